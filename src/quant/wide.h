/* =====================================================================================================================
 * >>quant/wide: the sums by which encoders compare scales (>>quant/fit), for four scales at a time with AVX2.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "fit.h"

/* Encoders spend most of their time on these sums, so they use AVX2 if the processor has it. */
#if defined(__x86_64__) && !defined(SPECDEC_NO_SIMD) && !defined(SPECDEC__QUANT_WIDE)
#define SPECDEC__QUANT_WIDE
#endif
#ifdef SPECDEC__QUANT_WIDE
#ifdef __x86_64__
#define SPECDEC__TARGET_AVX2_FMA __attribute__((target("avx2,fma")))
/* A vector of four doubles. */
typedef double specdec__wide_doubles __attribute__((vector_size(32)));

/* Adds an element to the three sums of four tries: code_value, code_code, code. scaled: value * inverse of each try.
   Fused multiply-adds give the bits of specdec__quant_add_to_sums, because the products are exact. */
SPECDEC__INLINE SPECDEC__TARGET_AVX2_FMA void specdec__wide_add_to_sums(specdec__wide_doubles *sums,
                                                                        const double *weight, double weighted,
                                                                        const specdec__wide_doubles *scaled, double low,
                                                                        double high)
{
    const specdec__wide_doubles lowest = {low, low, low, low}, highest = {high, high, high, high};
    const specdec__wide_doubles product = {weighted, weighted, weighted, weighted};
    specdec__wide_doubles code = __builtin_ia32_minpd256(__builtin_ia32_maxpd256(*scaled, lowest), highest);
    specdec__wide_doubles weight_code;

    code = (code + 6755399441055744.0) - 6755399441055744.0;
    weight_code = weight ? *weight * code : code;
    sums[0] = __builtin_ia32_vfmaddpd256(product, code, sums[0]);
    sums[1] = __builtin_ia32_vfmaddpd256(weight_code, code, sums[1]);
    sums[2] += weight_code;
}

/* Computes sums as specdec__quant_sum_tries_by_two does, for four tries at a time. inverse: (SPECDEC__QUANT_MAX_TRIES),
   0 from `tries` on. */
SPECDEC__INLINE SPECDEC__TARGET_AVX2_FMA void
specdec__wide_sum_tries(int pairs, const specdec__pair *value, const specdec__pair *weight,
                        const specdec__pair *weighted, double low, double high, int tries,
                        const double *inverse, specdec__quant_try_sums *trial)
{
    const specdec__wide_doubles zero = {0, 0, 0, 0};
    int i, t;

    for (t = 0; t < tries; t += 4) {
        specdec__wide_doubles even[3] = {zero, zero, zero}, odd[3] = {zero, zero, zero}, inverses;

        memcpy(&inverses, inverse + t, sizeof inverses);
        for (i = 0; i < pairs; i++) {
            specdec__wide_doubles a = inverses * value[i][0], b = inverses * value[i][1];
            double first = weight ? weight[i][0] : 1, second = weight ? weight[i][1] : 1;

            specdec__wide_add_to_sums(even, weight ? &first : NULL, weighted[i][0], &a, low, high);
            specdec__wide_add_to_sums(odd, weight ? &second : NULL, weighted[i][1], &b, low, high);
        }
        for (i = 0; i < 3; i++)
            even[i] += odd[i];
        memcpy(trial->code_value + t, &even[0], sizeof even[0]);
        memcpy(trial->code_code + t, &even[1], sizeof even[1]);
        memcpy(trial->code + t, &even[2], sizeof even[2]);
    }
}

/* Computes sums as specdec__wide_sum_tries does, compiled as two loops: with weights, and with weights of 1. */
static SPECDEC__TARGET_AVX2_FMA __attribute__((noinline)) void
specdec__wide_sum_weighted_tries(int pairs, const specdec__pair *value, const specdec__pair *weight,
                                 const specdec__pair *weighted, double low, double high, int tries,
                                 const double *inverse, specdec__quant_try_sums *trial)
{
    if (weight)
        specdec__wide_sum_tries(pairs, value, weight, weighted, low, high, tries, inverse, trial);
    else
        specdec__wide_sum_tries(pairs, value, NULL, weighted, low, high, tries, inverse, trial);
}
#endif

/* Computes the sums of all tries, by the function that suits this processor. */
static void specdec__quant_sum_tries(int pairs, const specdec__pair *value, const specdec__pair *weight,
                                     const specdec__pair *weighted, double low, double high, int tries,
                                     const double *inverse, specdec__quant_try_sums *trial)
{
#ifdef SPECDEC__TARGET_AVX2_FMA
    if (SPECDEC__OS_ALIGNS_WIDE_VECTORS && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        specdec__wide_sum_weighted_tries(pairs, value, weight, weighted, low, high, tries, inverse, trial);
        return;
    }
#endif
    specdec__quant_sum_tries_by_two(pairs, value, weight, weighted, low, high, tries, inverse, trial);
}
#else
#define specdec__quant_sum_tries specdec__quant_sum_tries_by_two
#endif
