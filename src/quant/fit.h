/* =====================================================================================================================
 * >>quant/fit: what encoders compute with: rounding, ranges of values, and the sums by which they compare scales.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "types.h"

/* Every compiler must write the same file, with fused multiply-adds or not: every product in an encoder that is added
   to something is exact in double (float times float, or a small integer), or comes from specdec__product. */

/* Returns the integer nearest to value (the even one at a tie) in [low, high], both below 2^50 in magnitude; low for a
   NaN. */
SPECDEC__INLINE double specdec__quant_nearest_integer(double value, double low, double high)
{
    value = value > low ? value : low;
    value = value < high ? value : high;
    return (value + 6755399441055744.0) - 6755399441055744.0;
}

/* Returns the integer nearest to value in [low, high], as an int. */
SPECDEC__INLINE int specdec__quant_round(double value, int low, int high)
{
    return (int)specdec__quant_nearest_integer(value, (double)low, (double)high);
}

/* Returns 1 / value; 0 for 0. */
SPECDEC__INLINE double specdec__quant_inverse(double value) { return value != 0 ? 1 / value : 0; }

/* Returns a pair of two equal doubles. */
SPECDEC__INLINE specdec__pair specdec__quant_pair_of_equal(double value)
{
    specdec__pair pair = {value, value};
    return pair;
}

/* specdec__quant_nearest_integer of both elements of a pair, plus SPECDEC__QUANT_ROUNDING: the low bits of such a sum
   are those of the integer. */
#define SPECDEC__QUANT_ROUNDING specdec__quant_pair_of_equal(6755399441055744.0)
SPECDEC__INLINE specdec__pair specdec__quant_nearest_pair(specdec__pair value, specdec__pair low,
                                                          specdec__pair high)
{
    value = SPECDEC__LARGER_PAIR(value, low);
    return SPECDEC__SMALLER_PAIR(value, high) + SPECDEC__QUANT_ROUNDING;
}

/* Computes the codes in [low, high] nearest to value * inverse of 2 * pairs values, as signed bytes. */
SPECDEC__VECTORISE static SPECDEC__NOINLINE void specdec__quant_round_to_codes(int pairs, double low, double high,
                                                                               double inverse,
                                                                               const specdec__pair *values,
                                                                               unsigned char *codes)
{
    specdec__pair lowest = specdec__quant_pair_of_equal(low), highest = specdec__quant_pair_of_equal(high);
    uint64_t bits[32];
    int i;

    for (i = 0; i < pairs; i++) {
        specdec__pair sums = specdec__quant_nearest_pair(values[i] * inverse, lowest, highest);
        memcpy(bits + 2 * i, &sums, sizeof sums);
    }
    for (i = 0; i < 2 * pairs; i++)
        codes[i] = (unsigned char)bits[i];
}

/* Converts 2 * pairs floats to pairs of doubles. */
SPECDEC__INLINE void specdec__quant_floats_to_pairs(int pairs, const float *values, specdec__pair *wide)
{
    int i;

    for (i = 0; i < pairs; i++) {
        specdec__pair pair = {(double)values[2 * i], (double)values[2 * i + 1]};
        wide[i] = pair;
    }
}

/* Computes the smallest of `start` and `count` values, and the largest of the values. count: a multiple of 8. NaNs are
   ignored. */
SPECDEC__INLINE void specdec__quant_find_range(int count, const float *values, float start, float *low, float *high)
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
    *low = lows[0] + 0.0f; /* 0 even where a compiler's comparison kept -0 */
    *high = highs[0];
}

/* Returns the value of largest magnitude, with its sign; the first one of several. count: a multiple of 8. NaNs are
   ignored. */
SPECDEC__VECTORISE static SPECDEC__NOINLINE float specdec__quant_find_peak(int count, const float *values)
{
    float low, high;
    int i;

    specdec__quant_find_range(count, values, 0, &low, &high);
    if (!(high >= -low) || high == 0)
        return low;
    for (i = 0; high == -low && values[i] != low && values[i] != high; i++) {
    }
    return high == -low ? values[i] : high;
}

/* Encodes a block of Q8_0: the scale is the largest magnitude over 127. */
static SPECDEC__UNUSED void specdec__quant_encode_q8_0(const float *values, unsigned char *block)
{
    specdec__block_q8_0 *to = (specdec__block_q8_0 *)(void *)block;
    float peak = specdec__quant_find_peak(32, values);
    uint16_t d = specdec__f16_from_float((peak < 0 ? -peak : peak) / 127);
    specdec__pair wide[16];

    specdec__store_u16(to->d, d);
    specdec__quant_floats_to_pairs(16, values, wide);
    specdec__quant_round_to_codes(16, -127, 127, specdec__quant_inverse(specdec__float_from_f16(d)), wide, to->codes);
}

/* Sums over a group of elements for a least squares fit of values by codes: of weight * code * value, of weight *
   code^2 and of weight * code. Even and odd elements are summed apart. */
typedef struct specdec__quant_sums {
    specdec__pair code_value, code_code, code; /* sums of weight * code * value, weight * code^2, weight * code */
} specdec__quant_sums;

/* Adds two elements to the sums. weight: NULL for weights of 1; weighted: weight * value. */
SPECDEC__INLINE void specdec__quant_add_to_sums(specdec__quant_sums *sums, specdec__pair code,
                                                const specdec__pair *weight, specdec__pair weighted)
{
    specdec__pair weight_code = weight ? *weight * code : code;

    sums->code_value += weighted * code;
    sums->code_code += weight_code * code;
    sums->code += weight_code;
}

#define SPECDEC__QUANT_MAX_TRIES 12 /* scales that an encoder tries for a group, at most; a multiple of 4 */

/* The sums of every scale that an encoder tries for a group (a try). */
typedef struct specdec__quant_try_sums {
    double code_value[SPECDEC__QUANT_MAX_TRIES]; /* by try: sum of weight * code * value */
    double code_code[SPECDEC__QUANT_MAX_TRIES];  /* by try: sum of weight * code^2 */
    double code[SPECDEC__QUANT_MAX_TRIES];       /* by try: sum of weight * code */
} specdec__quant_try_sums;

/* Stores the sums of try t, even and odd elements added. */
SPECDEC__INLINE void specdec__quant_store_try_sums(specdec__quant_try_sums *trial, int t,
                                                   const specdec__quant_sums *sums)
{
    trial->code_value[t] = sums->code_value[0] + sums->code_value[1];
    trial->code_code[t] = sums->code_code[0] + sums->code_code[1];
    trial->code[t] = sums->code[0] + sums->code[1];
}

/* Computes the sums of every try: codes are the integers in [low, high] nearest to value * inverse[t]. tries: even. Two
   tries are summed at a time, so that the processor does not wait for the sums of one. */
SPECDEC__INLINE void specdec__quant_sum_tries_by_two(int pairs, const specdec__pair *value,
                                                     const specdec__pair *weight, const specdec__pair *weighted,
                                                     double low, double high, int tries, const double *inverse,
                                                     specdec__quant_try_sums *trial)
{
    specdec__pair lowest = specdec__quant_pair_of_equal(low), highest = specdec__quant_pair_of_equal(high);
    int i, t;

    for (t = 0; t < tries; t += 2) {
        specdec__quant_sums first = {{0, 0}, {0, 0}, {0, 0}}, second = first;

        for (i = 0; i < pairs; i++) {
            specdec__pair a = specdec__quant_nearest_pair(value[i] * inverse[t], lowest, highest);
            specdec__pair b = specdec__quant_nearest_pair(value[i] * inverse[t + 1], lowest, highest);

            specdec__quant_add_to_sums(&first, a - SPECDEC__QUANT_ROUNDING, weight ? weight + i : NULL, weighted[i]);
            specdec__quant_add_to_sums(&second, b - SPECDEC__QUANT_ROUNDING, weight ? weight + i : NULL, weighted[i]);
        }
        specdec__quant_store_try_sums(trial, t, &first);
        specdec__quant_store_try_sums(trial, t + 1, &second);
    }
}
