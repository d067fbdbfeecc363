/* =====================================================================================================================
 * >>base/op: exp, log, sin, cos and fma of a number with the same bits on every machine, which libm does not give.
 * ================================================================================================================== */

#pragma once
#include "base.h"

/* a*b + c rounded once, on every machine. Without an FMA instruction: the exact product in double, the sum rounded to
   odd (Boldo and Melquiond 2008), then rounded to float. */
#if defined(__FP_FAST_FMAF) || defined(__aarch64__) || defined(__FMA__) || defined(__ARM_FEATURE_FMA) || \
    defined(__riscv_flen)
SPECDEC__INLINE float specdec__fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#else
static SPECDEC__UNUSED __attribute__((noinline)) float specdec__fma(float a, float b, float c)
{
    double product = (double)a * (double)b, addend = (double)c, sum = product + addend;
    double back = sum - product, error = (product - (sum - back)) + (addend - back);
    uint64_t bits;

    memcpy(&bits, &sum, sizeof bits);
    if (error == error && error != 0 && !(bits & 1)) {
        if ((error > 0) == (sum > 0))
            bits++;
        else
            bits--;
        memcpy(&sum, &bits, sizeof sum);
    }
    return (float)sum;
}
#endif

/* Returns 1/sqrt(x) for normal x > 0, by Newton's method in double. Five iterations give the same bits on every
   machine. */
static double specdec__inverse_square_root(double x)
{
    double y;
    uint64_t bits;
    int i;

    memcpy(&bits, &x, sizeof bits);
    bits = UINT64_C(0x5FE6EB50C7B537A9) - (bits >> 1);
    memcpy(&y, &bits, sizeof y);
    for (i = 0; i < 5; i++) {
        y = y * (1.5 - specdec__product(0.5 * x * y, y));
    }
    return y;
}

/* The steps of e^x = 2^n * p, for one float below and for sixteen lanes in >>kernel/lanes, which thus get the same
   bits: range reduction by Cody and Waite (1980), then a polynomial of degree 6 in r, |r| <= log(2) / 2. The low bits
   of shifter are those of n. madd(a, b, c): a * b + c rounded once; set(a): a constant; sub(a, b): a difference. */
#define SPECDEC__EXP(x, shifter, n, r, p, madd, set, sub) \
    do { \
        shifter = madd(x, set(1.44269502f), set(12582912.0f)); /* 1.5 * 2^23: adding it rounds to an integer */ \
        n = sub(shifter, set(12582912.0f)); \
        r = madd(n, set(-0.693145752f), x); \
        r = madd(n, set(-1.42860677e-6f), r); \
        p = madd(set(0.00138144637f), r, set(0.00836878084f)); \
        p = madd(p, r, set(0.0416683927f)); \
        p = madd(p, r, set(0.166665196f)); \
        p = madd(p, r, set(0.49999994f)); \
        p = madd(p, r, set(1.0f)); \
        p = madd(p, r, set(1.0f)); \
    } while (0)
#define SPECDEC__EXP_SET(a) (a)
#define SPECDEC__EXP_SUB(a, b) ((a) - (b))

/* Returns e^x within 1 ulp: infinity for x above 88.72; 0 for x below -87.33, where results would be subnormal; NaN for
   NaN. */
static SPECDEC__UNUSED float specdec__exp(float x)
{
    float shifter, n, r, p;
    uint32_t whole, half;

    if (!(x <= 88.7228317f))
        return x > 0.0f ? specdec__float_from_bits(0x7f800000u) : x;
    if (x < -87.3365402f)
        return 0.0f;
    SPECDEC__EXP(x, shifter, n, r, p, specdec__fma, SPECDEC__EXP_SET, SPECDEC__EXP_SUB);
    whole = specdec__bits_from_float(shifter) - specdec__bits_from_float(12582912.0f) + 256u; /* n + 256, in 130..384 */
    half = whole >> 1;
    return p * specdec__float_from_bits((half - 1u) << 23) * specdec__float_from_bits((whole - half - 1u) << 23);
}

/* Returns the natural logarithm of a positive normal float, within 1 ulp. For other arguments the result is
   unspecified. */
static SPECDEC__UNUSED float specdec__log(float x)
{
    uint32_t bits = specdec__bits_from_float(x) - 0x3f3504f3u; /* sqrt(1/2) */
    float exponent = (float)((int)((bits + 0x40000000u) >> 23) - 128);
    float f = specdec__float_from_bits((bits & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    float square = f * f;
    float p = specdec__fma(-0.076344952f, f, 0.12761575f);

    p = specdec__fma(p, f, -0.131601825f);
    p = specdec__fma(p, f, 0.142017588f);
    p = specdec__fma(p, f, -0.166233569f);
    p = specdec__fma(p, f, 0.200012267f);
    p = specdec__fma(p, f, -0.250008196f);
    p = specdec__fma(p, f, 0.333333313f);
    p = specdec__fma(p, f, -0.5f);
    p = specdec__fma(p, square, exponent * 1.42860677e-6f);
    return specdec__fma(exponent, 0.693145752f, p + f);
}

/* Returns the natural logarithm of a normal double > 0, to about 1e-15: x is scaled by a power of 2 into [sqrt(1/2),
   sqrt(2)), where the series of atanh is summed. For other arguments the result is unspecified; for 0 it is below -700.
   */
static double specdec__log_double(double x)
{
    int exponent = 0, i;
    double z, square, power, sum = 0;

    for (; x >= 1.4142135623730951 && exponent < 1024; x *= 0.5)
        exponent++;
    for (; x < 0.7071067811865476 && exponent > -1024; x *= 2)
        exponent--;
    z = (x - 1) / (x + 1);
    square = z * z;
    power = z;
    for (i = 1; i < 40; i += 2) {
        sum += power / i;
        power *= square;
    }
    return 2 * sum + specdec__product(exponent, 0.6931471805599453);
}

/* Returns e^x for |x| < 700, to about 1e-15: a power of two times a Taylor series. */
static double specdec__exp_double(double x)
{
    int k = (int)(specdec__product(x, 1.4426950408889634) + (x < 0 ? -0.5 : 0.5)), i;
    double r = x - specdec__product(k, 0.6931471805599453), term = 1, sum = 1;

    for (i = 1; i < 20; i++) {
        term *= r / i;
        sum += term;
    }
    for (; k > 0; k--)
        sum *= 2;
    for (; k < 0; k++)
        sum *= 0.5;
    return sum;
}

/* Returns the sum of coefficient[i] * x^i for i < count, by Horner's rule; every product is rounded. */
static double specdec__evaluate_polynomial(const double *coefficient, int count, double x)
{
    double sum = coefficient[count - 1];
    int i;

    for (i = count - 2; i >= 0; i--)
        sum = coefficient[i] + specdec__product(sum, x);
    return sum;
}

/* Computes sin(x) and cos(x) for |x| < 2^30, to about 1e-15 for small x and 1e-9 at the end of that range. */
static void specdec__sine_cosine(double x, float *sine, float *cosine)
{
    static const double sines[] = {1.0,          -1.0 / 6,        1.0 / 120,          -1.0 / 5040,
                                   1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800.0, -1.0 / 1307674368000.0};
    static const double cosines[] = {1.0,         -1.0 / 2,       1.0 / 24,          -1.0 / 720,
                                     1.0 / 40320, -1.0 / 3628800, 1.0 / 479001600.0, -1.0 / 87178291200.0};
    double quarter = (specdec__product(x, 0.6366197723675814) + 6755399441055744.0) - 6755399441055744.0;
    double r = (x - specdec__product(quarter, 1.5707963267341256)) - specdec__product(quarter, 6.077100506506192e-11);
    double s = r * specdec__evaluate_polynomial(sines, (int)SPECDEC__COUNT(sines), r * r);
    double c = specdec__evaluate_polynomial(cosines, (int)SPECDEC__COUNT(cosines), r * r);
    int64_t k = (int64_t)quarter;

    *sine = (float)(k & 1 ? c : s);
    *cosine = (float)(k & 1 ? s : c);
    if (k & 2)
        *sine = -*sine;
    if ((k + 1) & 2)
        *cosine = -*cosine;
}
