/* =====================================================================================================================
 * >>quant/wide: the same sums, four scales at a time with AVX2.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "fit.h"

/* Encoders spend most of their time on these sums: with AVX2, where there is AVX2. */
#if defined(__x86_64__) && !defined(SPECDEC_NO_SIMD) && !defined(SPECDEC__QUANT_WIDE)
#define SPECDEC__QUANT_WIDE
#endif
#ifdef SPECDEC__QUANT_WIDE
#ifdef __x86_64__
#define SPECDEC__WIDE __attribute__((target("avx2,fma")))
typedef double specdec__wide_four __attribute__((vector_size(32)));

/* Adds one element to the sums of four tries: code_value, code_code, code; scaled = value * inverse. Fused, because the
   products are exact: the bits are those of specdec__quant_add. */
SPECDEC__INLINE SPECDEC__WIDE void
specdec__wide_add(specdec__wide_four *sums, const double *weight, double weighted,
                  const specdec__wide_four *scaled, double low, double high)
{
    const specdec__wide_four lowest = {low, low, low, low}, highest = {high, high, high, high};
    const specdec__wide_four product = {weighted, weighted, weighted, weighted};
    specdec__wide_four code = __builtin_ia32_minpd256(__builtin_ia32_maxpd256(*scaled, lowest), highest), weight_code;

    code = (code + 6755399441055744.0) - 6755399441055744.0;
    weight_code = weight ? *weight * code : code;
    sums[0] = __builtin_ia32_vfmaddpd256(product, code, sums[0]);
    sums[1] = __builtin_ia32_vfmaddpd256(weight_code, code, sums[1]);
    sums[2] += weight_code;
}

/* As specdec__quant_try_two, four tries side by side. inverse: SPECDEC__QUANT_TRIES, 0 beyond tries. */
SPECDEC__INLINE SPECDEC__WIDE void
specdec__wide_try(int pairs, const specdec__pair *value, const specdec__pair *weight,
                  const specdec__pair *weighted, double low, double high, int tries,
                  const double *inverse, specdec__quant_trial *trial)
{
    const specdec__wide_four zero = {0, 0, 0, 0};
    int i, t;

    for (t = 0; t < tries; t += 4) {
        specdec__wide_four even[3] = {zero, zero, zero}, odd[3] = {zero, zero, zero}, inverses;

        memcpy(&inverses, inverse + t, sizeof inverses);
        for (i = 0; i < pairs; i++) {
            specdec__wide_four a = inverses * value[i][0], b = inverses * value[i][1];
            double first = weight ? weight[i][0] : 1, second = weight ? weight[i][1] : 1;

            specdec__wide_add(even, weight ? &first : NULL, weighted[i][0], &a, low, high);
            specdec__wide_add(odd, weight ? &second : NULL, weighted[i][1], &b, low, high);
        }
        for (i = 0; i < 3; i++)
            even[i] += odd[i];
        memcpy(trial->code_value + t, &even[0], sizeof even[0]);
        memcpy(trial->code_code + t, &even[1], sizeof even[1]);
        memcpy(trial->code + t, &even[2], sizeof even[2]);
    }
}

/* Without and with weights: two loops. */
static SPECDEC__WIDE __attribute__((noinline)) void
specdec__wide_tries(int pairs, const specdec__pair *value, const specdec__pair *weight,
                    const specdec__pair *weighted, double low, double high, int tries,
                    const double *inverse, specdec__quant_trial *trial)
{
    if (weight)
        specdec__wide_try(pairs, value, weight, weighted, low, high, tries, inverse, trial);
    else
        specdec__wide_try(pairs, value, NULL, weighted, low, high, tries, inverse, trial);
}
#endif

/* The one of the two that suits this processor. */
static void specdec__quant_try(int pairs, const specdec__pair *value, const specdec__pair *weight,
                               const specdec__pair *weighted, double low, double high, int tries,
                               const double *inverse, specdec__quant_trial *trial)
{
#ifdef SPECDEC__WIDE
    if (SPECDEC__OS_WIDE_STACK && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        specdec__wide_tries(pairs, value, weight, weighted, low, high, tries, inverse, trial);
        return;
    }
#endif
    specdec__quant_try_two(pairs, value, weight, weighted, low, high, tries, inverse, trial);
}
#else
#define specdec__quant_try specdec__quant_try_two
#endif
