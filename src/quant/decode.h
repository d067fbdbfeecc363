/* =====================================================================================================================
 * >>quant/decode: decoders of the quantised types: from a block to integer codes, scales and minimums.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "types.h"

/* Unpacks 32 nibbles from 16 bytes, the low nibbles first; code = nibble + offset. */
SPECDEC__INLINE void specdec__quant_unpack_nibbles(const unsigned char *packed, int offset, int8_t *codes)
{
    int i;

    for (i = 0; i < 16; i++) {
        codes[i] = (int8_t)((packed[i] & 15) + offset);
        codes[i + 16] = (int8_t)((packed[i] >> 4) + offset);
    }
}

/* Returns half the value of an 8-bit power of two (E8M0): 2^(exponent - 128), exponent 0 to 255; subnormal below 2. */
SPECDEC__INLINE float specdec__quant_e8m0_divided_by_2(unsigned exponent)
{
    return specdec__float_from_bits(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
}

/* Returns half the value of an 8-bit float without a sign (E4M3: 4 bits of exponent, 3 of mantissa); byte 0x7f stands
   for 0. */
SPECDEC__INLINE float specdec__quant_e4m3_divided_by_2(unsigned byte)
{
    const unsigned exponent = byte >> 3 & 15, mantissa = byte & 7;

    if ((byte & 127) == 127)
        return 0;
    return exponent ? specdec__float_from_bits((exponent + 119) << 23 | mantissa << 20)
                    : (float)mantissa * (1.0f / 1024);
}

SPECDEC__RARELY_RUN
/* Decodes a block of Q4_0: d f16, 16 bytes of nibbles. */
static void specdec__quant_decode_q4_0(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_q4_0 *from = (const specdec__block_q4_0 *)(const void *)block;

    (void)minimum;
    scale[0] = specdec__load_f16(from->d);
    specdec__quant_unpack_nibbles(from->nibbles, -8, codes);
}

/* Decodes a block of Q4_1: d f16, m f16, 16 bytes of nibbles. */
static void specdec__quant_decode_q4_1(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_q4_1 *from = (const specdec__block_q4_1 *)(const void *)block;

    scale[0] = specdec__load_f16(from->d);
    minimum[0] = specdec__load_f16(from->minimum);
    specdec__quant_unpack_nibbles(from->nibbles, 0, codes);
}

/* Decodes a block of Q5_0: d f16, 32 high bits, 16 bytes of nibbles. */
static void specdec__quant_decode_q5_0(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_q5_0 *from = (const specdec__block_q5_0 *)(const void *)block;
    uint32_t high = specdec__load_u32(from->high);
    int i;

    (void)minimum;
    scale[0] = specdec__load_f16(from->d);
    specdec__quant_unpack_nibbles(from->nibbles, -16, codes);
    for (i = 0; i < 32; i++)
        codes[i] = (int8_t)(codes[i] + (int)((high >> i) & 1) * 16);
}

/* Decodes a block of Q5_1: d f16, m f16, 32 high bits, 16 bytes of nibbles. */
static void specdec__quant_decode_q5_1(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_q5_1 *from = (const specdec__block_q5_1 *)(const void *)block;
    uint32_t high = specdec__load_u32(from->high);
    int i;

    scale[0] = specdec__load_f16(from->d);
    minimum[0] = specdec__load_f16(from->minimum);
    specdec__quant_unpack_nibbles(from->nibbles, 0, codes);
    for (i = 0; i < 32; i++)
        codes[i] = (int8_t)(codes[i] + (int)((high >> i) & 1) * 16);
}

/* Decodes a block of Q8_0: d f16, 32 signed bytes. */
static void specdec__quant_decode_q8_0(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_q8_0 *from = (const specdec__block_q8_0 *)(const void *)block;

    (void)minimum;
    scale[0] = specdec__load_f16(from->d);
    memcpy(codes, from->codes, 32);
}

/* Returns the two bits of element i (0..255) in 64 bytes, as Q2_K, Q3_K and Q6_K store them: byte 32*(i/128) + i%32,
   bits 2*(i/32 % 4). */
SPECDEC__INLINE int specdec__quant_get_two_bits(const unsigned char *packed, int i)
{
    return packed[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
}

/* Decodes a block of Q2_K: 16 bytes of (scale, minimum) nibbles, 64 bytes of 2-bit codes, d f16, dmin f16. */
static void specdec__quant_decode_q2_k(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_q2_k *from = (const specdec__block_q2_k *)(const void *)block;
    float d = specdec__load_f16(from->d), dmin = specdec__load_f16(from->dmin);
    int i;

    for (i = 0; i < 256; i++)
        codes[i] = (int8_t)specdec__quant_get_two_bits(from->two_bits, i);
    for (i = 0; i < 16; i++) {
        scale[i] = d * (float)(from->scales[i] & 15);
        minimum[i] = -(dmin * (float)(from->scales[i] >> 4));
    }
}

/* Decodes a block of Q3_K: 32 bytes of high bits, 64 bytes of low bits, 12 bytes of 6-bit scales (minus 32), d f16. */
static void specdec__quant_decode_q3_k(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_q3_k *from = (const specdec__block_q3_k *)(const void *)block;
    const unsigned char *packed = from->scales;
    float d = specdec__load_f16(from->d);
    int i;

    (void)minimum;
    for (i = 0; i < 256; i++)
        codes[i] = (int8_t)(specdec__quant_get_two_bits(from->two_bits, i) + (from->high[i % 32] >> (i / 32) & 1) * 4 -
                            4);
    for (i = 0; i < 16; i++) {
        int low = i < 8 ? packed[i] & 15 : packed[i - 8] >> 4;
        int high = packed[8 + i % 4] >> (i / 4 * 2) & 3;
        scale[i] = d * (float)(low + high * 16 - 32);
    }
}

/* Unpacks the scale and minimum (6 bits each) of group i (0..7) from the 12 bytes of Q4_K and Q5_K. */
SPECDEC__INLINE void specdec__quant_unpack_scale_k(const unsigned char *packed, int i, int *scale, int *minimum)
{
    if (i < 4) {
        *scale = packed[i] & 63;
        *minimum = packed[i + 4] & 63;
    } else {
        *scale = (packed[i + 4] & 15) | (packed[i - 4] >> 6) << 4;
        *minimum = packed[i + 4] >> 4 | (packed[i] >> 6) << 4;
    }
}

/* Computes the scales and minimums of the eight groups of a block of Q4_K or Q5_K. */
static SPECDEC__UNUSED void specdec__quant_unpack_scales_k(float d, float dmin, const unsigned char *packed,
                                                           float *scale, float *minimum)
{
    int i, s, m;

    for (i = 0; i < 8; i++) {
        specdec__quant_unpack_scale_k(packed, i, &s, &m);
        scale[i] = d * (float)s;
        minimum[i] = -(dmin * (float)m);
    }
}

/* Decodes a block of Q4_K: d f16, dmin f16, 12 bytes of scales and minimums, 128 bytes of nibbles. */
static void specdec__quant_decode_q4_k(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_q4_k *from = (const specdec__block_q4_k *)(const void *)block;
    int i;

    specdec__quant_unpack_scales_k(specdec__load_f16(from->d), specdec__load_f16(from->dmin), from->scales, scale,
                                   minimum);
    for (i = 0; i < 256; i++)
        codes[i] = (int8_t)(from->nibbles[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15);
}

/* Decodes a block of Q5_K: d f16, dmin f16, 12 bytes of scales and minimums, 32 bytes of high bits, 128 bytes of
   nibbles. */
static void specdec__quant_decode_q5_k(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_q5_k *from = (const specdec__block_q5_k *)(const void *)block;
    int i;

    specdec__quant_unpack_scales_k(specdec__load_f16(from->d), specdec__load_f16(from->dmin), from->scales, scale,
                                   minimum);
    for (i = 0; i < 256; i++) {
        int low = from->nibbles[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
        codes[i] = (int8_t)(low + (from->high[i % 32] >> (i / 32) & 1) * 16);
    }
}

/* Decodes a block of Q6_K: 128 bytes of nibbles, 64 bytes of 2 high bits, 16 signed scales, d f16. */
static void specdec__quant_decode_q6_k(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_q6_k *from = (const specdec__block_q6_k *)(const void *)block;
    float d = specdec__load_f16(from->d);
    int i;

    (void)minimum;
    for (i = 0; i < 256; i++) {
        int low = from->nibbles[i / 128 * 64 + i % 64] >> (i / 64 % 2 * 4) & 15;
        codes[i] = (int8_t)(low + specdec__quant_get_two_bits(from->two_bits, i) * 16 - 32);
    }
    for (i = 0; i < 16; i++)
        scale[i] = d * (float)(int8_t)from->scales[i];
}

/* Decodes a block of IQ4_NL: d f16, 16 bytes of nibbles that index specdec__quant_iq4_values. */
static void specdec__quant_decode_iq4_nl(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_iq4_nl *from = (const specdec__block_iq4_nl *)(const void *)block;
    int i;

    (void)minimum;
    scale[0] = specdec__load_f16(from->d);
    specdec__quant_unpack_nibbles(from->nibbles, 0, codes);
    for (i = 0; i < 32; i++)
        codes[i] = specdec__quant_iq4_values[codes[i]];
}

/* Decodes a block of IQ4_XS: d f16, the 2 high bits of 8 scales, their 4 low bits, 128 bytes of nibbles that index
   specdec__quant_iq4_values. */
static void specdec__quant_decode_iq4_xs(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_iq4_xs *from = (const specdec__block_iq4_xs *)(const void *)block;
    float d = specdec__load_f16(from->d);
    unsigned high = specdec__load_u16(from->high);
    int i;

    (void)minimum;
    for (i = 0; i < 8; i++) {
        int low = from->low[i / 2] >> (i % 2 * 4) & 15;
        scale[i] = d * (float)(low + (int)(high >> (2 * i) & 3) * 16 - 32);
        specdec__quant_unpack_nibbles(from->nibbles[i], 0, codes + 32 * i);
    }
    for (i = 0; i < 256; i++)
        codes[i] = specdec__quant_iq4_values[codes[i]];
}

/* Returns the eight sign bits of which files hold seven: the eighth makes the number of set bits even. */
SPECDEC__INLINE uint32_t specdec__quant_add_eighth_sign_bit(uint32_t seven)
{
    uint32_t parity = seven ^ seven >> 4;

    parity ^= parity >> 2;
    return seven | ((parity ^ parity >> 1) & 1) << 7;
}

/* Stores eight codes, made of eight magnitudes (0..127), one a byte, and eight signs: where bit k of signs is set, code
   k is negative. Magnitude 0 is in the lowest byte. */
SPECDEC__INLINE void specdec__quant_store_eight_codes(uint64_t magnitudes, uint64_t signs, int8_t *codes)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);

    signs = signs * ones & UINT64_C(0x8040201008040201);
    signs = (signs + ones * 127) >> 7 & ones;
    magnitudes = (magnitudes ^ signs * 255) + signs;
    specdec__store_u32(codes, (uint32_t)magnitudes);
    specdec__store_u32(codes + 4, (uint32_t)(magnitudes >> 32));
}

/* Unpacks a point of an IQ2 grid. point: 16 bits, 2 for each of 8 magnitudes. Returns the magnitudes, one a byte, the
   first one lowest: the 2 bits m stand for 8, 25 or 43 (8 + 17 * m + m / 2). */
SPECDEC__INLINE uint64_t specdec__quant_iq2_point_magnitudes(uint64_t point)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);

    point = (point | point << 24) & UINT64_C(0x000000FF000000FF);
    point = (point | point << 12) & UINT64_C(0x000F000F000F000F);
    point = (point | point << 6) & (ones * 3);
    return point * 17 + (point >> 1 & ones) + ones * 8;
}

/* Decodes a block of IQ2_XXS: d f16, then for each of 8 groups 4 bytes that index the grid and a word with four times 7
   signs and, above them, a 4-bit scale. */
static void specdec__quant_decode_iq2_xxs(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_iq2_xxs *from = (const specdec__block_iq2_xxs *)(const void *)block;
    float d = specdec__load_f16(from->d);
    int i;

    (void)minimum;
    for (i = 0; i < 32; i++) {
        const unsigned char *group = from->groups[i / 4];
        uint32_t word = specdec__load_u32(group + 4);

        specdec__quant_store_eight_codes(specdec__quant_iq2_point_magnitudes(specdec__quant_iq2_xxs_grid[group[i % 4]]),
                                         specdec__quant_add_eighth_sign_bit(word >> (i % 4 * 7) & 127), codes + 8 * i);
        if (i % 4 == 0)
            scale[i / 4] = d * (0.125f * (float)(2 * (word >> 28) + 1));
    }
}

/* Returns the magnitudes (0..7) of two points of an IQ3 grid, one a byte. */
SPECDEC__INLINE uint64_t specdec__quant_iq3_magnitudes_of_points(uint64_t first, uint64_t second)
{
    uint64_t points = first | second << 32;

    points = (points | points << 8) & UINT64_C(0x00FF00FF00FF00FF);
    return (points | points << 4) & UINT64_C(0x0F0F0F0F0F0F0F0F);
}

/* Decodes a block of IQ3_XXS: d f16, 64 bytes that index the grid, then for each of 8 groups a word with four times 7
   signs and, above them, a 4-bit scale. Magnitude m stands for 8 * m + 4, the largest one for two more. */
static void specdec__quant_decode_iq3_xxs(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_iq3_xxs *from = (const specdec__block_iq3_xxs *)(const void *)block;
    const uint64_t ones = UINT64_C(0x0101010101010101);
    const uint16_t *grid = specdec__quant_iq3_xxs_grid;
    float d = specdec__load_f16(from->d);
    int i;

    (void)minimum;
    for (i = 0; i < 32; i++) {
        const unsigned char *index = from->index + 2 * i;
        uint32_t word = specdec__load_u32(from->words[i / 4]);
        uint64_t points = specdec__quant_iq3_magnitudes_of_points(grid[index[0]], grid[index[1]]);

        points = points * 8 + ones * 4 + ((points + ones) >> 3 & ones) * 2;
        specdec__quant_store_eight_codes(points, specdec__quant_add_eighth_sign_bit(word >> (i % 4 * 7) & 127),
                                         codes + 8 * i);
        if (i % 4 == 0)
            scale[i / 4] = d * (0.25f * (float)(2 * (word >> 28) + 1));
    }
}

/* Decodes a block of IQ3_S: d f16, the 64 low bytes of grid indices, their 64 ninth bits, 32 bytes of signs, 8 nibbles
   of scales. Magnitude m stands for 2 * m + 1. */
static void specdec__quant_decode_iq3_s(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_iq3_s *from = (const specdec__block_iq3_s *)(const void *)block;
    const uint16_t *grid = specdec__quant_iq3_s_grid;
    float d = specdec__load_f16(from->d);
    int i;

    (void)minimum;
    for (i = 0; i < 32; i++) {
        int ninths = from->high[i / 4] >> (i % 4 * 2);
        int first = from->index[2 * i] | (ninths & 1) << 8, second = from->index[2 * i + 1] | (ninths & 2) << 7;
        uint64_t points = specdec__quant_iq3_magnitudes_of_points(grid[first], grid[second]);

        specdec__quant_store_eight_codes(points * 2 + UINT64_C(0x0101010101010101), from->signs[i], codes + 8 * i);
    }
    for (i = 0; i < 8; i++)
        scale[i] = d * (float)(2 * (from->scales[i / 2] >> (i % 2 * 4) & 15) + 1);
}

/* Decodes a block of IQ2_XS: d f16, 32 words of a 9-bit grid index and 7 signs, 16 nibbles of scales. */
static void specdec__quant_decode_iq2_xs(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_iq2_xs *from = (const specdec__block_iq2_xs *)(const void *)block;
    float d = specdec__load_f16(from->d);
    int i;

    (void)minimum;
    for (i = 0; i < 32; i++) {
        uint32_t word = specdec__load_u16(from->words[i]);

        specdec__quant_store_eight_codes(specdec__quant_iq2_point_magnitudes(specdec__quant_iq2_xs_grid[word & 511]),
                                         specdec__quant_add_eighth_sign_bit(word >> 9), codes + 8 * i);
    }
    for (i = 0; i < 16; i++)
        scale[i] = d * (0.125f * (float)(2 * (from->scales[i / 2] >> (i % 2 * 4) & 15) + 1));
}

/* Decodes a block of IQ2_S: d f16, the 32 low bytes of grid indices, 32 bytes of signs, the 32 pairs of high bits of
   the indices, 16 nibbles of scales. */
static void specdec__quant_decode_iq2_s(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_iq2_s *from = (const specdec__block_iq2_s *)(const void *)block;
    float d = specdec__load_f16(from->d);
    int i;

    (void)minimum;
    for (i = 0; i < 32; i++) {
        int point = from->index[i] | (from->high[i / 4] >> (i % 4 * 2) & 3) << 8;

        specdec__quant_store_eight_codes(specdec__quant_iq2_point_magnitudes(specdec__quant_iq2_s_grid[point]),
                                         from->signs[i], codes + 8 * i);
    }
    for (i = 0; i < 16; i++)
        scale[i] = d * (0.125f * (float)(2 * (from->scales[i / 2] >> (i % 2 * 4) & 15) + 1));
}
/* Decodes a block of MXFP4: an exponent e, 16 bytes of nibbles that are 4-bit floats (E2M1). Value: float * 2^(e -
   127). Codes are twice the floats (Open Compute Project, Microscaling Formats, 2023). */
static void specdec__quant_decode_mxfp4(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_mxfp4 *from = (const specdec__block_mxfp4 *)(const void *)block;
    int i;

    (void)minimum;
    scale[0] = specdec__quant_e8m0_divided_by_2(from->exponent);
    specdec__quant_unpack_nibbles(from->nibbles, 0, codes);
    for (i = 0; i < 32; i++)
        codes[i] = specdec__quant_fp4_values[codes[i]];
}

/* Decodes a block of NVFP4: 4 scales that are 8-bit floats without a sign (E4M3), then for each 16 values 8 bytes of
   nibbles that are 4-bit floats (E2M1). Codes are twice the floats. */
static void specdec__quant_decode_nvfp4(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_nvfp4 *from = (const specdec__block_nvfp4 *)(const void *)block;
    int i;

    (void)minimum;
    for (i = 0; i < 4; i++)
        scale[i] = specdec__quant_e4m3_divided_by_2(from->scales[i]);
    for (i = 0; i < 64; i++)
        codes[i] = specdec__quant_fp4_values[from->nibbles[i / 16][i % 8] >> (i / 8 % 2 * 4) & 15];
}

/* Decodes a block of Q1_0: d f16, 128 bits: value d for a set bit, else -d. */
static void specdec__quant_decode_q1_0(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_q1_0 *from = (const specdec__block_q1_0 *)(const void *)block;
    int i;

    (void)minimum;
    scale[0] = scale[1] = scale[2] = scale[3] = specdec__load_f16(from->d);
    for (i = 0; i < 128; i++)
        codes[i] = (int8_t)((from->bits[i / 8] >> (i % 8) & 1) * 2 - 1);
}

/* Decodes a block of Q2_0: d f16, 64 codes of 2 bits: value (bits - 1) * d. */
static void specdec__quant_decode_q2_0(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_q2_0 *from = (const specdec__block_q2_0 *)(const void *)block;
    int i;

    (void)minimum;
    scale[0] = scale[1] = specdec__load_f16(from->d);
    for (i = 0; i < 64; i++)
        codes[i] = (int8_t)((from->two_bits[i / 4] >> (i % 4 * 2) & 3) - 1);
}

/* Decodes a block of TQ2_0: 64 bytes of 2-bit codes, d f16: value (bits - 1) * d. */
SPECDEC__VECTORISE static void specdec__quant_decode_tq2_0(const unsigned char *block, int8_t *codes, float *scale,
                                                           float *minimum)
{
    const specdec__block_tq2_0 *from = (const specdec__block_tq2_0 *)(const void *)block;
    int i;

    (void)minimum;
    for (i = 0; i < 8; i++)
        scale[i] = specdec__load_f16(from->d);
    for (i = 0; i < 256; i++)
        codes[i] = (int8_t)(specdec__quant_get_two_bits(from->two_bits, i) - 1);
}

SPECDEC__RARELY_RUN_END

/* No instruction set has kernels for the types that follow: these decoders unpack them everywhere. */

/* Unpacks `digits` base-3 digits, less 1, of each of `count` bytes: all first digits, then all second digits, and so
   on. byte / 256 is a fraction whose first base-3 digits these are. */
SPECDEC__INLINE void specdec__quant_unpack_trits(const unsigned char *bytes, int count, int digits, int8_t *codes)
{
    static const unsigned char powers[5] = {1, 3, 9, 27, 81};
    int i, k;

    for (k = 0; k < digits; k++, codes += count)
        for (i = 0; i < count; i++)
            codes[i] = (int8_t)(((uint16_t)((uint8_t)(bytes[i] * powers[k]) * 3) >> 8) - 1);
}

/* Decodes a block of TQ1_0: 48 bytes of five base-3 digits, 4 bytes of four base-3 digits, d f16: value (digit - 1) *
   d. */
SPECDEC__VECTORISE static void specdec__quant_decode_tq1_0(const unsigned char *block, int8_t *codes, float *scale,
                                                           float *minimum)
{
    const specdec__block_tq1_0 *from = (const specdec__block_tq1_0 *)(const void *)block;
    int i;

    (void)minimum;
    for (i = 0; i < 8; i++)
        scale[i] = specdec__load_f16(from->d);
    specdec__quant_unpack_trits(from->trits5, 32, 5, codes);
    specdec__quant_unpack_trits(from->trits5 + 32, 16, 5, codes + 160);
    specdec__quant_unpack_trits(from->trits4, 4, 4, codes + 240);
}

/* Stores the eight codes of a point of the IQ1 grid: each of its values (-1, 0, 1) times eight, plus 1; minus 1 if
   `minus` is set. */
SPECDEC__INLINE void specdec__quant_iq1_store_point(uint32_t index, uint32_t minus, int8_t *codes)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    uint64_t point = specdec__quant_iq1_grid[index];

    point = (point | point << 24) & UINT64_C(0x000000FF000000FF);
    point = (point | point << 12) & UINT64_C(0x000F000F000F000F);
    point = (point | point << 6) & (ones * 3);
    point = (point * 8 + ones * (128 - 7) - (minus ? ones * 2 : 0)) ^ ones * 128; /* no byte borrows from another */
    specdec__store_u32(codes, (uint32_t)point);
    specdec__store_u32(codes + 4, (uint32_t)(point >> 32));
}

/* Decodes a block of IQ1_S: d f16, the 32 low bytes of grid indices, then 8 words: the 3 high bits of four indices, 3
   bits of a scale, and the sign of the shift of values by 1/8. */
static void specdec__quant_decode_iq1_s(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_iq1_s *from = (const specdec__block_iq1_s *)(const void *)block;
    float d = specdec__load_f16(from->d);
    int i;

    (void)minimum;
    for (i = 0; i < 32; i++) {
        uint32_t high = specdec__load_u16(from->high[i / 4]);

        specdec__quant_iq1_store_point(from->index[i] | (high >> (i % 4 * 3) & 7) << 8, high & 0x8000, codes + 8 * i);
        if (i % 4 == 0)
            scale[i / 4] = d * (0.125f * (float)(2 * (high >> 12 & 7) + 1));
    }
}

/* Decodes a block of IQ1_M: the 32 low bytes of grid indices, 32 nibbles (the 3 high bits of an index and the sign of
   the shift of values by 1/8), then 4 words: four scales of 3 bits each, and four bits of d f16. */
static void specdec__quant_decode_iq1_m(const unsigned char *block, int8_t *codes, float *scale, float *minimum)
{
    const specdec__block_iq1_m *from = (const specdec__block_iq1_m *)(const void *)block;
    unsigned half = 0;
    float d;
    int i;

    (void)minimum;
    for (i = 0; i < 4; i++)
        half |= (unsigned)specdec__load_u16(from->scales[i]) >> 12 << (4 * i);
    d = specdec__float_from_f16((uint16_t)half);
    for (i = 0; i < 32; i++) {
        uint32_t high = (uint32_t)from->high[i / 2] >> (i % 2 * 4) & 15;

        specdec__quant_iq1_store_point(from->index[i] | (high & 7) << 8, high & 8, codes + 8 * i);
    }
    for (i = 0; i < 16; i++)
        scale[i] = d * (0.125f * (float)(2 * (specdec__load_u16(from->scales[i / 4]) >> (i % 4 * 3) & 7) + 1));
}
