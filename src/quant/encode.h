/* =====================================================================================================================
 * >>quant/encode: encoders of the quantised types that can be written: from floats to blocks.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "types.h"
#include "decode.h"
#include "table.h"
#include "fit.h"
#include "wide.h"

/* The scales that an encoder tries for a group, each given by the code (before rounding) that the value of largest
   magnitude would get; most lie near either end of the codes' range. 5.1 and 3 are for Q4_0 made from IQ2_XXS: its
   values (8, 25, 43 times a scale) then fall almost on whole codes. */
static const float specdec__quant_peaks_q4_0[] = {-8.8f, -8.4f, -8, -7.6f, -7.2f, 6.2f, 6.6f, 7, 7.4f, 7.8f, 5.1f, 3};
static const float specdec__quant_peaks_q5_0[] = {-16.8f, -16.4f, -16, -15.6f, -15.2f, 14.2f, 14.6f, 15, 15.4f, 15.8f};
static const float specdec__quant_peaks_q6_k[] = {-32.8f, -32.4f, -32, -31.6f, -31.2f, 30.2f, 30.6f, 31, 31.4f, 31.8f};

/* Returns the scale s that minimises the sum of weight * (value - s * code)^2 over codes in [low, high], the best of
   several tries; 0 when all values are 0. peak: the value of largest magnitude; peaks (tries): the codes that are tried
   for it. */
SPECDEC__INLINE float specdec__quant_fit_scale(int pairs, const specdec__pair *value,
                                               const specdec__pair *weight, const specdec__pair *weighted,
                                               double low, double high, const float *peaks, int tries, float peak)
{
    double best = 0, scale = 0, unit = specdec__quant_inverse(peak);
    double inverse[SPECDEC__QUANT_MAX_TRIES], gain[SPECDEC__QUANT_MAX_TRIES];
    specdec__quant_try_sums s;
    int t;

    if (!(peak - peak == 0))
        return peak;
    for (t = 0; t < SPECDEC__QUANT_MAX_TRIES; t++)
        inverse[t] = t < tries ? (double)peaks[t] * unit : 0;
    specdec__quant_sum_tries(pairs, value, weight, weighted, low, high, tries, inverse, &s);
    for (t = 0; t < tries; t++)
        gain[t] = s.code_value[t] * s.code_value[t] / s.code_code[t];
    for (t = 0; t < tries; t++) /* NaN (0 / 0) is not greater */
        if (gain[t] > best) {
            best = gain[t];
            scale = s.code_value[t] / s.code_code[t];
        }
    return (float)scale;
}

/* Computes the weights of the squared errors of 32 values: |value| plus 1.25 times the mean magnitude, so that large
   values get small errors, yet no value is ignored. (On models of 135M to 1.1B, weights of 1 lose a sixth more, as KL
   divergence, at four bits.) Returns 0 for values that are not finite. */
SPECDEC__INLINE int specdec__quant_error_weights(const float *values, float *weights)
{
    double base = 0;
    int i;

    for (i = 0; i < 32; i++)
        base += (double)(values[i] < 0 ? -values[i] : values[i]);
    base = specdec__product(base, 1.25 / 32);
    for (i = 0; i < 32; i++)
        weights[i] = (float)(base + (double)(values[i] < 0 ? -values[i] : values[i]));
    return base - base == 0;
}

/* Encodes 32 values as codes in [-half, half) and a scale d, a half float: the best one of those tried. */
SPECDEC__VECTORISE static SPECDEC__UNUSED void specdec__quant_encode_codes_and_scale(const float *values, int half,
                                                                                     const float *peaks, int tries,
                                                                                     unsigned char *d,
                                                                                     unsigned char *codes)
{
    specdec__pair value[16], weight[16], weighted[16];
    float weights[32];
    int i;

    specdec__quant_error_weights(values, weights);
    specdec__quant_floats_to_pairs(16, values, value);
    specdec__quant_floats_to_pairs(16, weights, weight);
    for (i = 0; i < 16; i++)
        weighted[i] = weight[i] * value[i];
    specdec__store_u16(
        d, specdec__f16_from_float(specdec__quant_fit_scale(16, value, weight, weighted, -half, half - 1, peaks, tries,
                                                            specdec__quant_find_peak(32, values))));
    specdec__quant_round_to_codes(16, -half, half - 1, specdec__quant_inverse(specdec__load_f16(d)), value, codes);
}

/* Encodes a block of Q4_0: codes from -8 to 7. */
static SPECDEC__UNUSED void specdec__quant_encode_q4_0(const float *values, unsigned char *block)
{
    specdec__block_q4_0 *to = (specdec__block_q4_0 *)(void *)block;
    unsigned char codes[32];
    int i;

    specdec__quant_encode_codes_and_scale(values, 8, specdec__quant_peaks_q4_0, 12, to->d, codes);
    for (i = 0; i < 16; i++)
        to->nibbles[i] = (unsigned char)((codes[i] + 8) | (codes[i + 16] + 8) << 4);
}

/* Packs 32 codes of 5 bits: the lower four bits of codes i and i + 16 into nibbles[i], the fifth bit of code i into bit
   i of a word. */
static void specdec__quant_pack_five_bits(const unsigned char *codes, unsigned char *high, unsigned char *nibbles)
{
    uint32_t bits = 0;
    int i;

    for (i = 0; i < 32; i++)
        bits |= (uint32_t)(codes[i] >> 4 & 1) << i;
    specdec__store_u32(high, bits);
    for (i = 0; i < 16; i++)
        nibbles[i] = (unsigned char)((codes[i] & 15) | (codes[i + 16] & 15) << 4);
}

/* Encodes a block of Q5_0: codes from -16 to 15. */
static SPECDEC__UNUSED void specdec__quant_encode_q5_0(const float *values, unsigned char *block)
{
    specdec__block_q5_0 *to = (specdec__block_q5_0 *)(void *)block;
    unsigned char codes[32];
    int i;

    specdec__quant_encode_codes_and_scale(values, 16, specdec__quant_peaks_q5_0, 10, to->d, codes);
    for (i = 0; i < 32; i++)
        codes[i] = (unsigned char)(codes[i] + 16);
    specdec__quant_pack_five_bits(codes, to->high, to->nibbles);
}

/* Returns the scale of a group of Q6_K (16 values) with the smallest squared error, weighted by squared values, so that
   large values get the smallest errors. */
SPECDEC__VECTORISE static float specdec__quant_fit_q6_k_scale(const float *values)
{
    specdec__pair value[8], weight[8], weighted[8];
    float squares[16];
    int i;

    for (i = 0; i < 16; i++)
        squares[i] = values[i] * values[i];
    specdec__quant_floats_to_pairs(8, values, value);
    specdec__quant_floats_to_pairs(8, squares, weight);
    for (i = 0; i < 8; i++)
        weighted[i] = weight[i] * value[i];
    return specdec__quant_fit_scale(8, value, weight, weighted, -32, 31, specdec__quant_peaks_q6_k, 10,
                                    specdec__quant_find_peak(16, values));
}

/* Encodes a block of Q6_K: the best scale of every group, then the largest of these scales over 128 as the scale of the
   block. */
SPECDEC__VECTORISE static SPECDEC__UNUSED void specdec__quant_encode_q6_k(const float *values, unsigned char *block)
{
    specdec__block_q6_k *to = (specdec__block_q6_k *)(void *)block;
    float scales[16], d;
    specdec__pair wide[8];
    unsigned char codes[256];
    int i, g;

    for (g = 0; g < 16; g++)
        scales[g] = specdec__quant_fit_q6_k_scale(values + 16 * g);
    specdec__store_u16(to->d, specdec__f16_from_float(specdec__quant_find_peak(16, scales) / -128));
    d = specdec__load_f16(to->d);
    for (g = 0; g < 16; g++) {
        int scale = specdec__quant_round((double)scales[g] * specdec__quant_inverse(d), -128, 127);

        to->scales[g] = (unsigned char)scale;
        specdec__quant_floats_to_pairs(8, values + 16 * g, wide);
        specdec__quant_round_to_codes(8, -32, 31, specdec__quant_inverse((double)d * (double)scale), wide,
                                      codes + 16 * g);
    }
    for (i = 0; i < 256; i++)
        codes[i] = (unsigned char)(codes[i] + 32);
    for (i = 0; i < 128; i++)
        to->nibbles[i] = (unsigned char)((codes[i / 64 * 128 + i % 64] & 15) | codes[i / 64 * 128 + 64 + i % 64] << 4);
    for (i = 0; i < 64; i++) {
        const unsigned char *from = codes + i / 32 * 128 + i % 32;
        to->two_bits[i] = (unsigned char)(from[0] >> 4 | from[32] >> 4 << 2 | from[64] >> 4 << 4 | from[96] >> 4 << 6);
    }
}

/* Computes the scale s >= 0 and minimum m that minimise the sum of weight * (value - (s * code - m))^2 over 32 values
   with codes from 0 to highest. m >= 0, unless is_free. */
SPECDEC__VECTORISE static void specdec__quant_fit_scale_and_minimum(const float *values, int highest, int is_free,
                                                                    float *scale_out, float *minimum_out)
{
    float low, high, above[32], weights[32];
    double sum = 0, value_sum = 0, best = -1, inverse[SPECDEC__QUANT_MAX_TRIES];
    specdec__pair value[16], weight[16], weighted[16];
    specdec__quant_try_sums s;
    int i, t, is_finite = specdec__quant_error_weights(values, weights);

    specdec__quant_find_range(32, values, is_free ? specdec__float_from_bits(0x7F800000u) : 0, &low, &high);
    *scale_out = 0;
    *minimum_out = -low;
    if (!(high > low) || !is_finite)
        return;
    for (i = 0; i < 32; i++) {
        above[i] = values[i] - low;
        sum += (double)weights[i];
        value_sum += (double)weights[i] * (double)values[i];
    }
    specdec__quant_floats_to_pairs(16, values, weighted);
    specdec__quant_floats_to_pairs(16, weights, weight);
    specdec__quant_floats_to_pairs(16, above, value);
    for (i = 0; i < 16; i++)
        weighted[i] *= weight[i];
    for (t = 0; t < 12; t++) /* from highest - 1 to highest + 1, which comes twice */
        inverse[t] = (double)(10 * highest - 10 + 2 * specdec__min_int(t, 10)) / 10 / ((double)high - (double)low);
    specdec__quant_sum_tries(16, value, weight, weighted, 0, highest, 12, inverse, &s);
    for (t = 0; t < 12; t++) {
        double all = specdec__product(sum, s.code_code[t]), rest = all - specdec__product(s.code[t], s.code[t]);
        double scale = 0, minimum = -1, gain;

        if (rest > 1e-9 * all) {
            scale = (specdec__product(sum, s.code_value[t]) - specdec__product(value_sum, s.code[t])) / rest;
            minimum = (specdec__product(scale, s.code[t]) - value_sum) / sum;
        }
        if (!is_free && minimum < 0 && s.code_code[t] > 0) {
            minimum = 0;
            scale = s.code_value[t] / s.code_code[t];
        }
        gain = specdec__product(scale, s.code_value[t]) - specdec__product(minimum, value_sum);
        if (gain > best && scale > 0 && (is_free || minimum >= 0)) {
            best = gain;
            *scale_out = (float)scale;
            *minimum_out = (float)minimum;
        }
    }
}

/* Encodes 32 values as codes from 0 to highest, a scale and a minimum, both half floats: value = scale * code +
   minimum. */
SPECDEC__VECTORISE static SPECDEC__UNUSED void specdec__quant_encode_codes_scale_minimum(const float *values,
                                                                                         int highest, unsigned char *d,
                                                                                         unsigned char *minimum,
                                                                                         unsigned char *codes)
{
    specdec__pair above[16], lowest;
    float scale, below;
    int i;

    specdec__quant_fit_scale_and_minimum(values, highest, 1, &scale, &below);
    specdec__store_u16(d, specdec__f16_from_float(scale));
    specdec__store_u16(minimum, specdec__f16_from_float(-below));
    lowest = specdec__quant_pair_of_equal(specdec__load_f16(minimum));
    specdec__quant_floats_to_pairs(16, values, above);
    for (i = 0; i < 16; i++)
        above[i] -= lowest;
    specdec__quant_round_to_codes(16, 0, highest, specdec__quant_inverse(specdec__load_f16(d)), above, codes);
}

/* Encodes a block of Q4_1: the best scale and minimum for codes from 0 to 15. */
static SPECDEC__UNUSED void specdec__quant_encode_q4_1(const float *values, unsigned char *block)
{
    specdec__block_q4_1 *to = (specdec__block_q4_1 *)(void *)block;
    unsigned char codes[32];
    int i;

    specdec__quant_encode_codes_scale_minimum(values, 15, to->d, to->minimum, codes);
    for (i = 0; i < 16; i++)
        to->nibbles[i] = (unsigned char)(codes[i] | codes[i + 16] << 4);
}

/* Encodes a block of Q5_1: the best scale and minimum for codes from 0 to 31. */
static SPECDEC__UNUSED void specdec__quant_encode_q5_1(const float *values, unsigned char *block)
{
    specdec__block_q5_1 *to = (specdec__block_q5_1 *)(void *)block;
    unsigned char codes[32];

    specdec__quant_encode_codes_scale_minimum(values, 31, to->d, to->minimum, codes);
    specdec__quant_pack_five_bits(codes, to->high, to->nibbles);
}

/* Packs eight 6-bit scales and minimums into the 12 bytes of Q4_K and Q5_K. */
static void specdec__quant_pack_scales_k(const int *scales, const int *minimums, unsigned char *packed)
{
    int i;

    for (i = 0; i < 4; i++) {
        packed[i] = (unsigned char)(scales[i] | (scales[i + 4] >> 4) << 6);
        packed[i + 4] = (unsigned char)(minimums[i] | (minimums[i + 4] >> 4) << 6);
        packed[i + 8] = (unsigned char)((scales[i + 4] & 15) | (minimums[i + 4] & 15) << 4);
    }
}

/* Encodes 256 values in eight groups as codes from 0 to highest: the best scale and minimum of every group, rounded to
   6 bits in units of d and dmin, half floats. */
SPECDEC__VECTORISE static SPECDEC__UNUSED void
specdec__quant_encode_eight_groups(const float *values, int highest, unsigned char *d_out, unsigned char *dmin_out,
                                   unsigned char *packed, unsigned char *codes)
{
    float scales[8], minimums[8], d, dmin;
    specdec__pair above[16];
    int i, g, scale[8], minimum[8];

    for (g = 0; g < 8; g++)
        specdec__quant_fit_scale_and_minimum(values + 32 * g, highest, 0, &scales[g], &minimums[g]);
    specdec__store_u16(d_out, specdec__f16_from_float(specdec__quant_find_peak(8, scales) / 63));
    specdec__store_u16(dmin_out, specdec__f16_from_float(specdec__quant_find_peak(8, minimums) / 63));
    d = specdec__load_f16(d_out);
    dmin = specdec__load_f16(dmin_out);
    for (g = 0; g < 8; g++) {
        scale[g] = specdec__quant_round((double)scales[g] * specdec__quant_inverse(d), 0, 63);
        minimum[g] = specdec__quant_round((double)minimums[g] * specdec__quant_inverse(dmin), 0, 63);
        specdec__quant_floats_to_pairs(16, values + 32 * g, above);
        for (i = 0; i < 16; i++)
            above[i] += (double)dmin * (double)minimum[g];
        specdec__quant_round_to_codes(16, 0, highest, specdec__quant_inverse((double)d * (double)scale[g]), above,
                                      codes + 32 * g);
    }
    specdec__quant_pack_scales_k(scale, minimum, packed);
}

/* Encodes a block of Q4_K: codes from 0 to 15. */
static SPECDEC__UNUSED void specdec__quant_encode_q4_k(const float *values, unsigned char *block)
{
    specdec__block_q4_k *to = (specdec__block_q4_k *)(void *)block;
    unsigned char codes[256];
    int i;

    specdec__quant_encode_eight_groups(values, 15, to->d, to->dmin, to->scales, codes);
    for (i = 0; i < 128; i++)
        to->nibbles[i] = (unsigned char)(codes[i / 32 * 64 + i % 32] | codes[i / 32 * 64 + 32 + i % 32] << 4);
}

/* Encodes a block of Q5_K: codes from 0 to 31; the fifth bits of group g are bits g of `high`. */
static SPECDEC__UNUSED void specdec__quant_encode_q5_k(const float *values, unsigned char *block)
{
    specdec__block_q5_k *to = (specdec__block_q5_k *)(void *)block;
    unsigned char codes[256];
    int i, g;

    specdec__quant_encode_eight_groups(values, 31, to->d, to->dmin, to->scales, codes);
    for (i = 0; i < 32; i++)
        for (to->high[i] = 0, g = 0; g < 8; g++)
            to->high[i] = (unsigned char)(to->high[i] | codes[32 * g + i] >> 4 << g);
    for (i = 0; i < 128; i++)
        to->nibbles[i] =
            (unsigned char)((codes[i / 32 * 64 + i % 32] & 15) | (codes[i / 32 * 64 + 32 + i % 32] & 15) << 4);
}

/* Computes the ternary codes (-1, 0, 1), plus 1, of 256 values, and their scale, with the smallest squared error. If
   the codes of the k largest magnitudes, whose sum is s, are not 0, the best scale is s / k, and s^2 / k is subtracted
   from the error: the best k maximises it. */
static SPECDEC__UNUSED void specdec__quant_encode_ternary(const float *values, unsigned char *d, unsigned char *codes)
{
    static const int gaps[] = {109, 41, 19, 5, 1};
    float size[256], scale = 0;
    double sum = 0, best = 0;
    int i, k, g;

    for (i = 0; i < 256; i++)
        size[i] = values[i] < 0 ? -values[i] : values[i];
    for (g = 0; g < 5; g++) /* Shell sort, the largest magnitude first */
        for (i = gaps[g]; i < 256; i++) {
            const float one = size[i];

            for (k = i; k >= gaps[g] && size[k - gaps[g]] < one; k -= gaps[g])
                size[k] = size[k - gaps[g]];
            size[k] = one;
        }
    for (k = 1; k <= 256; k++) {
        sum += (double)size[k - 1];
        if (specdec__product(sum, sum / k) > best) {
            best = specdec__product(sum, sum / k);
            scale = (float)(sum / k);
        }
    }
    specdec__store_u16(d, specdec__f16_from_float(scale));
    scale = specdec__load_f16(d) / 2;
    for (i = 0; i < 256; i++)
        codes[i] = (unsigned char)(1 + (values[i] > scale) - (values[i] < -scale));
}

/* Encodes a block of TQ2_0: codes + 1 in two bits. */
static SPECDEC__UNUSED void specdec__quant_encode_tq2_0(const float *values, unsigned char *block)
{
    specdec__block_tq2_0 *to = (specdec__block_tq2_0 *)(void *)block;
    unsigned char codes[256];
    int i;

    specdec__quant_encode_ternary(values, to->d, codes);
    for (i = 0; i < 64; i++) {
        const unsigned char *from = codes + i / 32 * 128 + i % 32;

        to->two_bits[i] = (unsigned char)(from[0] | from[32] << 2 | from[64] << 4 | from[96] << 6);
    }
}

/* Packs `count` base-3 digits, `apart` bytes apart, into a byte that has room for five, the first one highest: the
   smallest fraction over 256 that begins with them. */
static unsigned char specdec__quant_pack_trits(const unsigned char *digits, int count, int apart)
{
    unsigned value = 0;
    int k;

    for (k = 0; k < 5; k++)
        value = 3 * value + (k < count ? digits[k * apart] : 0u);
    return (unsigned char)((value * 256 + 242) / 243);
}

/* Encodes a block of TQ1_0: codes + 1 as base-3 digits, five a byte; the last 16 values four a byte. */
static SPECDEC__UNUSED void specdec__quant_encode_tq1_0(const float *values, unsigned char *block)
{
    specdec__block_tq1_0 *to = (specdec__block_tq1_0 *)(void *)block;
    unsigned char codes[256];
    int i;

    specdec__quant_encode_ternary(values, to->d, codes);
    for (i = 0; i < 32; i++)
        to->trits5[i] = specdec__quant_pack_trits(codes + i, 5, 32);
    for (i = 0; i < 16; i++)
        to->trits5[32 + i] = specdec__quant_pack_trits(codes + 160 + i, 5, 16);
    for (i = 0; i < 4; i++)
        to->trits4[i] = specdec__quant_pack_trits(codes + 240 + i, 4, 4);
}

/* Encodes a block of Q1_0: the signs, and the mean magnitude as scale, which gives the smallest squared error. */
static SPECDEC__UNUSED void specdec__quant_encode_q1_0(const float *values, unsigned char *block)
{
    specdec__block_q1_0 *to = (specdec__block_q1_0 *)(void *)block;
    double sum = 0;
    int i;

    memset(to->bits, 0, sizeof to->bits);
    for (i = 0; i < 128; i++) {
        sum += (double)(values[i] < 0 ? -values[i] : values[i]);
        to->bits[i / 8] = (unsigned char)(to->bits[i / 8] | (values[i] >= 0) << i % 8);
    }
    specdec__store_u16(to->d, specdec__f16_from_float((float)(sum / 128)));
}

/* Encodes a block of Q2_0: codes from -1 to 2, with the best of several scales. */
SPECDEC__VECTORISE static SPECDEC__UNUSED void specdec__quant_encode_q2_0(const float *values, unsigned char *block)
{
    static const float peaks[] = {2, 1.8f, 1.6f, 1.4f, 1.2f, 1, 2.2f, 2.5f, 0.8f, -1, -1.2f, -1.4f};
    specdec__block_q2_0 *to = (specdec__block_q2_0 *)(void *)block;
    specdec__pair value[32];
    unsigned char codes[64];
    int i;

    specdec__quant_floats_to_pairs(32, values, value);
    specdec__store_u16(to->d, specdec__f16_from_float(specdec__quant_fit_scale(32, value, NULL, value, -1, 2, peaks, 12,
                                                                               specdec__quant_find_peak(64, values))));
    for (i = 0; i < 2; i++)
        specdec__quant_round_to_codes(16, -1, 2, specdec__quant_inverse(specdec__load_f16(to->d)), value + 16 * i,
                                      codes + 32 * i);
    for (i = 0; i < 64; i++)
        codes[i] = (unsigned char)(codes[i] + 1);
    for (i = 0; i < 16; i++)
        to->two_bits[i] = (unsigned char)(codes[4 * i] | codes[4 * i + 1] << 2 | codes[4 * i + 2] << 4 |
                                          codes[4 * i + 3] << 6);
}

/* Encodes 32 values as nibbles: the nearest 4-bit floats (E2M1) times 2 * unit, the smaller magnitude at a tie. Returns
   the sum of squared errors. */
static double specdec__quant_encode_fp4_nibbles(const float *values, double unit, unsigned char *nibbles)
{
    double error = 0;
    int i, k;

    for (i = 0; i < 32; i++) {
        const double size = values[i] < 0 ? -(double)values[i] : (double)values[i];
        double miss;

        for (k = 0; k < 7 && size * 2 > unit * (specdec__quant_fp4_values[k] + specdec__quant_fp4_values[k + 1]); k++)
            continue;
        miss = size - unit * specdec__quant_fp4_values[k]; /* unit is a power of two */
        error += specdec__product(miss, miss);
        nibbles[i] = (unsigned char)(k | (values[i] < 0 && k ? 8 : 0));
    }
    return error;
}

/* Encodes a block of MXFP4: tries the exponents with which the largest magnitude becomes one of the larger floats, and
   takes the one with the smallest squared error. */
static SPECDEC__UNUSED void specdec__quant_encode_mxfp4(const float *values, unsigned char *block)
{
    specdec__block_mxfp4 *to = (specdec__block_mxfp4 *)(void *)block;
    const int peak = (int)(specdec__bits_from_float(specdec__quant_find_peak(32, values)) >> 23 & 255);
    unsigned char nibbles[32], best[32];
    double least = -1, error;
    int i, e;

    memset(best, 0, sizeof best);
    to->exponent = 0;
    for (e = specdec__max_int(peak - 3, 0); e <= specdec__min_int(specdec__max_int(peak - 1, 0), 254); e++) {
        error = specdec__quant_encode_fp4_nibbles(values, (double)specdec__quant_e8m0_divided_by_2((unsigned)e),
                                                  nibbles);
        if (least < 0 || error < least) {
            least = error;
            to->exponent = (unsigned char)e;
            memcpy(best, nibbles, sizeof best);
        }
    }
    for (i = 0; i < 16; i++)
        to->nibbles[i] = (unsigned char)(best[i] | best[i + 16] << 4);
}

/* Encodes values (block) into a block (bytes), with the smallest (weighted) squared error found. Any input gives some
   block; one with NaNs, or with values too large for half floats, need not resemble them. */
typedef void specdec__quant_encoder(const float *values, unsigned char *block);

/* Returns the encoder of a type. NULL for plain floats and for types that are only read. A function instead of a table,
   so that a program that encodes nothing links no encoder. */
static SPECDEC__UNUSED specdec__quant_encoder *specdec__quant_find_encoder(const specdec__quant_type *type)
{
#ifdef SPECDEC_NO_ENCODERS
    (void)type;
    return NULL;
#else
    switch (type->number) {
    case SPECDEC__TYPE_Q4_0: return specdec__quant_encode_q4_0;
    case SPECDEC__TYPE_Q4_1: return specdec__quant_encode_q4_1;
    case SPECDEC__TYPE_Q5_0: return specdec__quant_encode_q5_0;
    case SPECDEC__TYPE_Q5_1: return specdec__quant_encode_q5_1;
    case SPECDEC__TYPE_Q8_0: return specdec__quant_encode_q8_0;
    case SPECDEC__TYPE_Q4_K: return specdec__quant_encode_q4_k;
    case SPECDEC__TYPE_Q5_K: return specdec__quant_encode_q5_k;
    case SPECDEC__TYPE_Q6_K: return specdec__quant_encode_q6_k;
    case SPECDEC__TYPE_Q1_0: return specdec__quant_encode_q1_0;
    case SPECDEC__TYPE_Q2_0: return specdec__quant_encode_q2_0;
    case SPECDEC__TYPE_TQ1_0: return specdec__quant_encode_tq1_0;
    case SPECDEC__TYPE_TQ2_0: return specdec__quant_encode_tq2_0;
    case SPECDEC__TYPE_MXFP4: return specdec__quant_encode_mxfp4;
    default: return NULL;
    }
#endif
}

/* Converts a row of floats (elements, a multiple of the block) to a plain type, or to one that has an encoder. */
static SPECDEC__UNUSED void specdec__quant_from_float(const specdec__quant_type *type, const float *values,
                                                      size_t elements, void *row)
{
    unsigned char *at = (unsigned char *)row;
    size_t i;

    if (type->number == SPECDEC__TYPE_F32)
        for (i = 0; i < elements; i++)
            specdec__store_u32(at + 4 * i, specdec__bits_from_float(values[i]));
    else if (type->number == SPECDEC__TYPE_F16)
        for (i = 0; i < elements; i++)
            specdec__store_u16(at + 2 * i, specdec__f16_from_float(values[i]));
    else if (type->number == SPECDEC__TYPE_BF16)
        for (i = 0; i < elements; i++)
            specdec__store_u16(at + 2 * i, specdec__bf16_from_float(values[i]));
    else
        for (i = 0; i < elements / type->block; i++)
            specdec__quant_find_encoder(type)(values + i * type->block, at + i * type->bytes);
}
