/* statistics.h - what the statistical tests share: chi-square, and how many draws to take. Needs libm. */
#ifndef STATISTICS_H
#define STATISTICS_H
#include <math.h>
#include <stdlib.h>

/* Draws for a case: SPECDEC_TEST_DRAWS, by default 100000, with SPECDEC_QUICK 20000. */
static inline long statistics_draws(void)
{
    const char *text = getenv("SPECDEC_TEST_DRAWS");
    long draws = text ? atol(text) : 0;

    return draws > 0 ? draws : getenv("SPECDEC_QUICK") ? 20000 : 100000;
}

/* The probability that chi-square with these degrees of freedom is above x: the upper incomplete gamma function. */
static inline double statistics_chi_square_tail(double x, double freedom)
{
    double a = freedom / 2, z = x / 2, scale, sum, term, b, c, d, h;
    int i;

    if (z <= 0)
        return 1;
    scale = exp(-z + a * log(z) - lgamma(a));
    if (z < a + 1) {
        for (sum = term = 1 / a, i = 1; i < 10000 && term > sum * 1e-16; i++)
            sum += term *= z / (a + i);
        return 1 - sum * scale;
    }
    b = z + 1 - a;
    c = 1e300;
    h = d = 1 / b;
    for (i = 1; i < 10000; i++) {
        double an = -i * (i - a);

        b += 2;
        d = 1 / (an * d + b);
        c = b + an / c;
        h *= d * c;
        if (fabs(d * c - 1) < 1e-15)
            break;
    }
    return h * scale;
}

/* p-value of counts[n] against probabilities[n]. Categories with fewer than 5 expected counts are put together; one of
   probability 0 that was seen gives 0. */
static inline double statistics_p_value(const long *counts, const double *probabilities, int n)
{
    double chi = 0, total = 0, sum = 0, rest = 0, rest_seen = 0;
    int i, freedom = -1;

    for (i = 0; i < n; i++) {
        total += (double)counts[i];
        sum += probabilities[i];
    }
    for (i = 0; i < n; i++) {
        double expected = total * probabilities[i] / sum, off = (double)counts[i] - expected;

        if (!(expected > 0) && counts[i])
            return 0;
        if (expected < 5) {
            rest += expected;
            rest_seen += (double)counts[i];
        } else {
            chi += off * off / expected;
            freedom++;
        }
    }
    if (rest >= 1) {
        chi += (rest_seen - rest) * (rest_seen - rest) / rest;
        freedom++;
    }
    return freedom < 1 ? 1 : statistics_chi_square_tail(chi, freedom);
}

/* A small generator for test data, apart from the noise under test. */
static inline double statistics_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return ((double)(*state >> 33) + 0.5) / 2147483648.0;
}
#endif
