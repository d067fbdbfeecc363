/* test_ops_scalar.c - the scalar fused multiply-add, exponential and logarithm against libm in double. */
#define SPECDEC_NO_SIMD /* no kernels are run: builds in a third of the time */
#include "../src/base/op.h"
#include "check.h"
#include <math.h>

/* The distance of a float from an exact value, in units of the last place. */
static double distance(float value, double exact)
{
    float about = (float)fabs(exact);

    return fabs((double)value - exact) / ((double)nextafterf(about, INFINITY) - (double)about);
}

static float from_bits(uint32_t bits)
{
    return specdec__float_from_bits(bits);
}

static void test_exp_log(void)
{
    double worst_exp = 0, worst_log = 0;
    uint32_t bits;

    TEST("exp and log are within 2 units of the last place, over the whole range");
    for (bits = 0; bits < 0xffffffffu - 4999; bits += 4999) {
        float x = from_bits(bits);

        if (x > -87.33654f && x < 88.72283f && distance(specdec__exp(x), exp((double)x)) > worst_exp)
            worst_exp = distance(specdec__exp(x), exp((double)x));
        if (x >= 1.17549435e-38f && x < INFINITY && distance(specdec__log(x), log((double)x)) > worst_log)
            worst_log = distance(specdec__log(x), log((double)x));
    }
    for (bits = 0x3f7f0000u; bits < 0x3f810000u; bits++)
        if (bits != 0x3f800000u && distance(specdec__log(from_bits(bits)), log((double)from_bits(bits))) > worst_log)
            worst_log = distance(specdec__log(from_bits(bits)), log((double)from_bits(bits)));
    CHECK(worst_exp < 2);
    CHECK(worst_log < 2);
    printf("  exp %.3f, log %.3f units of the last place\n", worst_exp, worst_log);

    TEST("the ends of the range are defined");
    CHECK(specdec__exp(-INFINITY) == 0 && specdec__exp(-1e30f) == 0 && specdec__exp(-87.4f) == 0);
    CHECK(isinf(specdec__exp(INFINITY)) && isinf(specdec__exp(1e30f)) && isnan(specdec__exp(NAN)));
    CHECK(specdec__exp(0) == 1 && specdec__log(1) == 0);
}

static void test_fma(void)
{
    uint64_t state = 1;
    long i, wrong = 0;
    int j;

    TEST("the fused multiply-add rounds once, as fmaf does");
    for (i = 0; i < 3000000; i++) {
        float f[3], ours, theirs;

        for (j = 0; j < 3; j++) {
            uint32_t bits;

            state = state * 6364136223846793005u + 1442695040888963407u;
            bits = (uint32_t)(state >> 32);
            f[j] = from_bits(i & 1 ? (bits & 0x83ffffffu) | 0x3c000000u : bits);
        }
        if (i % 3 == 0)
            f[2] = -(f[0] * f[1]);
        ours = specdec__fma(f[0], f[1], f[2]);
        theirs = fmaf(f[0], f[1], f[2]);
        wrong += memcmp(&ours, &theirs, sizeof ours) != 0 && !(isnan(ours) && isnan(theirs));
    }
    if (check_fmaf())
        CHECK_EQUAL_INT(wrong, 0);
    else
        SKIP("the C library's fmaf rounds twice");
}

int main(void)
{
    test_exp_log();
    test_fma();
    return check_report("test_ops_scalar");
}
