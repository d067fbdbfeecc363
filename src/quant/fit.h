/* =====================================================================================================================
 * >>quant/fit: sums with which encoders compare scales.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "types.h"

/* Encoders. Two compilers must write the same file, fused multiply-add or not: every product that is added to something
   is exact in double (float times float, or a small integer), or comes from specdec__product. */

/* The integer nearest to value (to the even one at a tie) in [low, high], both below 2^50; low for a NaN. */
SPECDEC__INLINE double specdec__quant_nearest(double value, double low, double high)
{
    value = value > low ? value : low;
    value = value < high ? value : high;
    return (value + 6755399441055744.0) - 6755399441055744.0;
}

/* The same as an int. */
SPECDEC__INLINE int specdec__quant_round(double value, int low, int high)
{
    return (int)specdec__quant_nearest(value, (double)low, (double)high);
}

/* 1 / value; 0 for 0. */
SPECDEC__INLINE double specdec__quant_inverse(double value) { return value != 0 ? 1 / value : 0; }

/* The same value twice. */
SPECDEC__INLINE specdec__pair specdec__quant_both(double value)
{
    specdec__pair pair = {value, value};
    return pair;
}

/* specdec__quant_nearest of both, plus SPECDEC__QUANT_MAGIC: the low bits of the sums are those of the integers. */
#define SPECDEC__QUANT_MAGIC specdec__quant_both(6755399441055744.0)
SPECDEC__INLINE specdec__pair specdec__quant_nearest_pair(specdec__pair value, specdec__pair low,
                                                          specdec__pair high)
{
    value = SPECDEC__LARGER_PAIR(value, low);
    return SPECDEC__SMALLER_PAIR(value, high) + SPECDEC__QUANT_MAGIC;
}

/* The codes in [low, high] nearest to value * inverse, 2 * pairs of them, as signed bytes. */
SPECDEC__VECTORISE static SPECDEC__NOINLINE void specdec__quant_codes(int pairs, double low, double high,
                                                                      double inverse, const specdec__pair *values,
                                                                      unsigned char *codes)
{
    specdec__pair lowest = specdec__quant_both(low), highest = specdec__quant_both(high);
    uint64_t bits[32];
    int i;

    for (i = 0; i < pairs; i++) {
        specdec__pair sums = specdec__quant_nearest_pair(values[i] * inverse, lowest, highest);
        memcpy(bits + 2 * i, &sums, sizeof sums);
    }
    for (i = 0; i < 2 * pairs; i++)
        codes[i] = (unsigned char)bits[i];
}

/* 2 * pairs floats. */
SPECDEC__INLINE void specdec__quant_widen(int pairs, const float *values, specdec__pair *wide)
{
    int i;

    for (i = 0; i < pairs; i++) {
        specdec__pair pair = {(double)values[2 * i], (double)values[2 * i + 1]};
        wide[i] = pair;
    }
}

/* The smallest of `start` and the values, and the largest of the values. count is a multiple of 8; NaNs do not
   count. */
SPECDEC__INLINE void specdec__quant_extent(int count, const float *values, float start, float *low, float *high)
{
    float lows[8], highs[8];
    int i, k;

    for (k = 0; k < 8; k++) {
        lows[k] = start;
        highs[k] = specdec__float_from_bits(0xFF800000u);
    }
    for (i = 0; i < count; i += 8)
        for (k = 0; k < 8; k++) {
            lows[k] = values[i + k] < lows[k] ? values[i + k] : lows[k];
            highs[k] = values[i + k] > highs[k] ? values[i + k] : highs[k];
        }
    for (k = 1; k < 8; k++) {
        lows[0] = lows[k] < lows[0] ? lows[k] : lows[0];
        highs[0] = highs[k] > highs[0] ? highs[k] : highs[0];
    }
    *low = lows[0] + 0.0f; /* never -0, whichever comparison met it */
    *high = highs[0];
}

/* The value of largest magnitude, with its sign; of equal ones the first. count is a multiple of 8; NaNs do not count.
   */
SPECDEC__VECTORISE static SPECDEC__NOINLINE float specdec__quant_peak(int count, const float *values)
{
    float low, high;
    int i;

    specdec__quant_extent(count, values, 0, &low, &high);
    if (!(high >= -low) || high == 0)
        return low;
    for (i = 0; high == -low && values[i] != low && values[i] != high; i++) {
    }
    return high == -low ? values[i] : high;
}

/* Q8_0: the scale is the largest magnitude over 127. */
static SPECDEC__UNUSED void specdec__quant_encode_q8_0(const float *values, unsigned char *block)
{
    specdec__block_q8_0 *to = (specdec__block_q8_0 *)(void *)block;
    float peak = specdec__quant_peak(32, values);
    uint16_t d = specdec__f16_from_float((peak < 0 ? -peak : peak) / 127);
    specdec__pair wide[16];

    specdec__store_u16(to->d, d);
    specdec__quant_widen(16, values, wide);
    specdec__quant_codes(16, -127, 127, specdec__quant_inverse(specdec__float_from_f16(d)), wide, to->codes);
}

/* Sums over a group that a least squares fit of values by codes needs: of weight * code * value, of weight * code^2 and
   of weight * code. Even and odd elements are added apart, then together. */
typedef struct specdec__quant_sums {
    specdec__pair code_value, code_code, code;
} specdec__quant_sums;

/* Adds one pair of elements to the sums. weight: NULL for 1; weighted = weight * value. */
SPECDEC__INLINE void specdec__quant_add(specdec__quant_sums *sums, specdec__pair code,
                                        const specdec__pair *weight, specdec__pair weighted)
{
    specdec__pair weight_code = weight ? *weight * code : code;

    sums->code_value += weighted * code;
    sums->code_code += weight_code * code;
    sums->code += weight_code;
}

#define SPECDEC__QUANT_TRIES 12 /* at most; a multiple of 4 */

/* The sums of every try. */
typedef struct specdec__quant_trial {
    double code_value[SPECDEC__QUANT_TRIES], code_code[SPECDEC__QUANT_TRIES], code[SPECDEC__QUANT_TRIES];
} specdec__quant_trial;

/* Notes the sums of try t. */
SPECDEC__INLINE void specdec__quant_note(specdec__quant_trial *trial, int t, const specdec__quant_sums *sums)
{
    trial->code_value[t] = sums->code_value[0] + sums->code_value[1];
    trial->code_code[t] = sums->code_code[0] + sums->code_code[1];
    trial->code[t] = sums->code[0] + sums->code[1];
}

/* The sums for the codes in [low, high] nearest to value * inverse, for so many inverses (tries, even). Two tries at a
   time: one alone would leave the processor waiting for its sums. */
SPECDEC__INLINE void specdec__quant_try_two(int pairs, const specdec__pair *value,
                                            const specdec__pair *weight, const specdec__pair *weighted,
                                            double low, double high, int tries, const double *inverse,
                                            specdec__quant_trial *trial)
{
    specdec__pair lowest = specdec__quant_both(low), highest = specdec__quant_both(high);
    int i, t;

    for (t = 0; t < tries; t += 2) {
        specdec__quant_sums first = {{0, 0}, {0, 0}, {0, 0}}, second = first;

        for (i = 0; i < pairs; i++) {
            specdec__pair a = specdec__quant_nearest_pair(value[i] * inverse[t], lowest, highest);
            specdec__pair b = specdec__quant_nearest_pair(value[i] * inverse[t + 1], lowest, highest);

            specdec__quant_add(&first, a - SPECDEC__QUANT_MAGIC, weight ? weight + i : NULL, weighted[i]);
            specdec__quant_add(&second, b - SPECDEC__QUANT_MAGIC, weight ? weight + i : NULL, weighted[i]);
        }
        specdec__quant_note(trial, t, &first);
        specdec__quant_note(trial, t + 1, &second);
    }
}
