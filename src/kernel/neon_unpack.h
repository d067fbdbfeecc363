/* =====================================================================================================================
 * >>kernel/neon_unpack: 64-bit NEON: unpacks tiles of all types into panels of codes.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../quant/types.h"
#include "../quant/table.h"
#include "kernel.h"
#include "scalar.h"
#include "weigh.h"
#include "neon.h"

#if defined(__aarch64__) && defined(__ARM_NEON) && defined(__AARCH64EL__) && !defined(SPECDEC_NO_SIMD)
/* Panels hold signed codes (value/4, row, 4); pair is the sum of a granule's codes. NEON without dot products
   multiplies narrow codes (up to 32, in granules of 16 up to 64) in longer chains of 16-bit sums. Granules of 32
   without a minimum may hold narrow or wide codes; an unused row of `pair` says which. */
#define SPECDEC__NEON_IS_WIDE(panel) ((panel)->pair[SPECDEC__PANEL_VALUES / 32][0])

/* Stores 32 values of the 4 rows from 4 * quad on, and the sums of granules, in a panel. q[i]: values 4 i to 4 i + 3 of
   each row. large: 1 if a code may be above 63. */
SPECDEC__INLINE void specdec__neon_store_codes(specdec__panel *panel, int block, int quad, const int8x16_t q[8],
                                               int granule, int large)
{
    int8_t *codes = panel->u.codes + block * 512 + quad * 16;
    int16x8_t sum[2];
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 8; i++)
        vst1q_s8(codes + i * 64, q[i]);
    SPECDEC__UNROLL
    for (i = 0; i < 2; i++)
        if (large)
            sum[i] = vpadalq_s8(vpadalq_s8(vpadalq_s8(vpaddlq_s8(q[i * 4]), q[i * 4 + 1]), q[i * 4 + 2]), q[i * 4 + 3]);
        else
            sum[i] = vpadalq_s8(vpaddlq_s8(vaddq_s8(q[i * 4], q[i * 4 + 1])), vaddq_s8(q[i * 4 + 2], q[i * 4 + 3]));
    if (granule == 32) {
        vst1q_s32(&panel->pair[block][quad * 4], vpaddlq_s16(vaddq_s16(sum[0], sum[1])));
    } else {
        vst1q_s32(&panel->pair[block * 2][quad * 4], vpaddlq_s16(sum[0]));
        vst1q_s32(&panel->pair[block * 2 + 1][quad * 4], vpaddlq_s16(sum[1]));
    }
}

/* Computes out (16 rows) = d * factor, or its negative; both are exact floats. */
SPECDEC__INLINE void specdec__neon_store_scales(float *out, const unsigned char *d, int8x16_t factor, int negative)
{
    int16x8_t low = vmovl_s8(vget_low_s8(factor)), high = vmovl_s8(vget_high_s8(factor));
    specdec__neon_v scale = specdec__neon_load_f16(d), r;

    r.a = vmulq_f32(scale.a, vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))));
    r.b = vmulq_f32(scale.b, vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))));
    r.c = vmulq_f32(scale.c, vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))));
    r.d = vmulq_f32(scale.d, vcvtq_f32_s32(vmovl_s16(vget_high_s16(high))));
    if (negative) {
        r.a = vnegq_f32(r.a);
        r.b = vnegq_f32(r.b);
        r.c = vnegq_f32(r.c);
        r.d = vnegq_f32(r.d);
    }
    specdec__neon_store(out, r);
}

/* Returns the low four bits of each byte. */
SPECDEC__INLINE int8x16_t specdec__neon_low_nibbles(uint8x16_t packed)
{
    return vreinterpretq_s8_u8(vandq_u8(packed, vdupq_n_u8(15)));
}

/* Returns the high four bits of each byte. */
SPECDEC__INLINE int8x16_t specdec__neon_high_nibbles(uint8x16_t packed)
{
    return vreinterpretq_s8_u8(vshrq_n_u8(packed, 4));
}

/* Unpacks the codes of block b of Q2_K, or with high bits of Q3_K: words of two-bit fields, which the blocks of a half
   of 256 values share. */
SPECDEC__INLINE void specdec__neon_unpack_two_bits(const unsigned char *two_bits, const unsigned char *high, int b,
                                                   specdec__panel *panel)
{
    const uint8x16_t two = vdupq_n_u8(3), bit = vdupq_n_u8(4);
    const int8x16_t two_bit_shift = vdupq_n_s8((int8_t)(b % 4 * -2)), high_shift = vdupq_n_s8((int8_t)(2 - b % 8));
    int quad, i;

    two_bits += b % 8 / 4 * 512;
    for (quad = 0; quad < 4; quad++) {
        int8x16_t q[8];

        SPECDEC__UNROLL
        for (i = 0; i < 8; i++) {
            uint8x16_t code = vandq_u8(vshlq_u8(vld1q_u8(two_bits + i * 64 + quad * 16), two_bit_shift), two);

            if (high)
                code = vsubq_u8(vorrq_u8(code, vandq_u8(vshlq_u8(vld1q_u8(high + i * 64 + quad * 16), high_shift),
                                                        bit)), bit);
            q[i] = vreinterpretq_s8_u8(code);
        }
        specdec__neon_store_codes(panel, b, quad, q, 16, 0);
    }
}

/* Unpacks a tile of Q2_K into a panel. A block is: 16 bytes of (scale, minimum) nibbles, 16 words of 2-bit fields, d,
   dmin. */
SPECDEC__INLINE void specdec__neon_unpack_tile_q2_k(const unsigned char *tile, int blocks, specdec__panel *panel)
{
    int b, k;

    for (b = 0; b < blocks; b++) {
        specdec__neon_unpack_two_bits(tile + SPECDEC__TILE_AT(q2_k, two_bits), NULL, b, panel);
        for (k = b * 2; k < b * 2 + 2; k++) {
            uint8x16_t both = vld1q_u8(tile + SPECDEC__TILE_AT(q2_k, scales) + k % 16 * 16);

            specdec__neon_store_scales(panel->scale[k], tile + SPECDEC__TILE_AT(q2_k, d),
                                       specdec__neon_low_nibbles(both), 0);
            specdec__neon_store_scales(panel->minimum[k], tile + SPECDEC__TILE_AT(q2_k, dmin),
                                       specdec__neon_high_nibbles(both), 1);
        }
        if (b % 8 == 7)
            tile += SPECDEC__TILE_BYTES(q2_k);
    }
}

/* Returns the six bits of scale k of Q3_K of 16 rows. */
SPECDEC__INLINE uint8x16_t specdec__neon_unpack_factors_q3_k(const unsigned char *tile, int k)
{
    const unsigned char *packed = tile + SPECDEC__TILE_AT(q3_k, scales);
    uint8x16_t low = vshlq_u8(vld1q_u8(packed + k % 8 * 16), vdupq_n_s8((int8_t)(k / 8 * -4)));
    uint8x16_t high = vshlq_u8(vld1q_u8(packed + (8 + k % 4) * 16), vdupq_n_s8((int8_t)(4 - k / 4 * 2)));

    return vorrq_u8(vandq_u8(low, vdupq_n_u8(15)), vandq_u8(high, vdupq_n_u8(48)));
}

/* Unpacks a tile of Q3_K into a panel. A block is: 8 words of high bits, 16 words of two_bits, 12 bytes of 6-bit
   scales, d. */
SPECDEC__INLINE void specdec__neon_unpack_tile_q3_k(const unsigned char *tile, int blocks, specdec__panel *panel)
{
    int b, k;

    for (b = 0; b < blocks; b++) {
        specdec__neon_unpack_two_bits(tile + SPECDEC__TILE_AT(q3_k, two_bits), tile + SPECDEC__TILE_AT(q3_k, high), b,
                                      panel);
        for (k = b % 8 * 2; k < b % 8 * 2 + 2; k++) {
            const uint8x16_t six = specdec__neon_unpack_factors_q3_k(tile, k);

            specdec__neon_store_scales(panel->scale[b / 8 * 16 + k], tile + SPECDEC__TILE_AT(q3_k, d),
                                       vsubq_s8(vreinterpretq_s8_u8(six), vdupq_n_s8(32)), 0);
        }
        if (b % 8 == 7)
            tile += SPECDEC__TILE_BYTES(q3_k);
    }
}

/* Returns whether the points of a type's grid have two bits for each magnitude (IQ2), else three (IQ3). Points of IQ2
   are looked up as eight bytes; those of IQ3, of which a value needs twice as many, as three bits a magnitude. */
SPECDEC__INLINE int specdec__neon_is_iq2(int type)
{
    return type == SPECDEC__TYPE_IQ2_XXS || type == SPECDEC__TYPE_IQ2_XS || type == SPECDEC__TYPE_IQ2_S;
}

/* Sixteen constants: each of four numbers four times, and four numbers repeated four times. */
#define SPECDEC__NEON_REPEAT_EACH(a, b, c, d) {a, a, a, a, b, b, b, b, c, c, c, c, d, d, d, d}
#define SPECDEC__NEON_REPEAT_ALL(a, b, c, d) {a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d}

/* Tables computed from lists of points: the magnitudes of a point of IQ2 as eight bytes, the first one lowest (see
   specdec__quant_iq2_point_magnitudes); and the signs of eight values, a byte 0xff for each negative value, by eight
   bits, or by seven bits and an eighth that makes the number of ones even (0x6996: which of 0 to 15 have an odd number
   of ones). */
#define SPECDEC__NEON_TABLE(take, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) \
    take(a), take(b), take(c), take(d), take(e), take(f), take(g), take(h), \
    take(i), take(j), take(k), take(l), take(m), take(n), take(o), take(p),
#define SPECDEC__NEON_ONES UINT64_C(0x0101010101010101)
#define SPECDEC__NEON_2BITS(p) \
    (((uint64_t)(p) & 3) | ((uint64_t)(p) & 12) << 6 | ((uint64_t)(p) & 48) << 12 | ((uint64_t)(p) & 192) << 18 | \
     ((uint64_t)(p) & 768) << 24 | ((uint64_t)(p) & 3072) << 30 | ((uint64_t)(p) & 12288) << 36 | \
     ((uint64_t)(p) & 49152) << 42)
#define SPECDEC__NEON_2HIGH(p) \
    (((uint64_t)(p) >> 1 & 1) | ((uint64_t)(p) & 8) << 5 | ((uint64_t)(p) & 32) << 11 | ((uint64_t)(p) & 128) << 17 | \
     ((uint64_t)(p) & 512) << 23 | ((uint64_t)(p) & 2048) << 29 | ((uint64_t)(p) & 8192) << 35 | \
     ((uint64_t)(p) & 32768) << 41)
#define SPECDEC__NEON_IQ2_POINT(p) (SPECDEC__NEON_2BITS(p) * 17 + SPECDEC__NEON_2HIGH(p) + SPECDEC__NEON_ONES * 8)
#define SPECDEC__NEON_IQ2(...) SPECDEC__NEON_TABLE(SPECDEC__NEON_IQ2_POINT, __VA_ARGS__)
static const uint64_t specdec__neon_iq2_xxs[256] = {SPECDEC__QUANT_IQ2_XXS_GRID(SPECDEC__NEON_IQ2)};
static const uint64_t specdec__neon_iq2_xs[512] = {SPECDEC__QUANT_IQ2_XS_GRID(SPECDEC__NEON_IQ2)};
static const uint64_t specdec__neon_iq2_s[1024] = {SPECDEC__QUANT_IQ2_S_GRID(SPECDEC__NEON_IQ2)};

#define SPECDEC__NEON_SIGN(s, i) (((uint64_t)((s) >> (i)) & 1) * 255 << (i) * 8)
#define SPECDEC__NEON_SIGNS(s) \
    (SPECDEC__NEON_SIGN(s, 0) | SPECDEC__NEON_SIGN(s, 1) | SPECDEC__NEON_SIGN(s, 2) | SPECDEC__NEON_SIGN(s, 3) | \
     SPECDEC__NEON_SIGN(s, 4) | SPECDEC__NEON_SIGN(s, 5) | SPECDEC__NEON_SIGN(s, 6) | SPECDEC__NEON_SIGN(s, 7))
#define SPECDEC__NEON_EVEN(s) SPECDEC__NEON_SIGNS((s) | (0x6996 >> (((s) ^ (s) >> 4) & 15) & 1) << 7)
#define SPECDEC__NEON_SIXTEEN(take, s) \
    SPECDEC__NEON_TABLE(take, (s), (s) + 1, (s) + 2, (s) + 3, (s) + 4, (s) + 5, (s) + 6, (s) + 7, (s) + 8, (s) + 9, \
                        (s) + 10, (s) + 11, (s) + 12, (s) + 13, (s) + 14, (s) + 15)
#define SPECDEC__NEON_128(take, s) \
    SPECDEC__NEON_SIXTEEN(take, s) SPECDEC__NEON_SIXTEEN(take, (s) + 16) SPECDEC__NEON_SIXTEEN(take, (s) + 32) \
    SPECDEC__NEON_SIXTEEN(take, (s) + 48) SPECDEC__NEON_SIXTEEN(take, (s) + 64) SPECDEC__NEON_SIXTEEN(take, (s) + 80) \
    SPECDEC__NEON_SIXTEEN(take, (s) + 96) SPECDEC__NEON_SIXTEEN(take, (s) + 112)
static const uint64_t specdec__neon_even_signs[128] = {SPECDEC__NEON_128(SPECDEC__NEON_EVEN, 0)};
static const uint64_t specdec__neon_signs[256] = {SPECDEC__NEON_128(SPECDEC__NEON_SIGNS, 0)
                                                      SPECDEC__NEON_128(SPECDEC__NEON_SIGNS, 128)};

/* Computes index (row, 4) = the ten-bit indices of the points of group g of four rows of IQ2_S. */
SPECDEC__INLINE void specdec__neon_unpack_indices_iq2_s(const unsigned char *tile, unsigned g, int row, uint16_t *index)
{
    static const uint8_t rows[16] = SPECDEC__NEON_REPEAT_EACH(0, 4, 8, 12);
    static const int8_t shifts[16] = SPECDEC__NEON_REPEAT_ALL(0, -2, -4, -6);
    const uint8x16_t which = vaddq_u8(vld1q_u8(rows), vdupq_n_u8((uint8_t)(g % 4)));
    const uint8x16_t low = vld1q_u8(tile + SPECDEC__TILE_AT(iq2_s, index) + g * 64 + row * 4);
    const uint8x16_t top = vld1q_u8(tile + SPECDEC__TILE_AT(iq2_s, high) + g / 4 * 64 + row * 4);
    const uint8x16_t high = vandq_u8(vshlq_u8(vqtbl1q_u8(top, which), vld1q_s8(shifts)), vdupq_n_u8(3));

    vst1q_u16(index, vreinterpretq_u16_u8(vzip1q_u8(low, high)));
    vst1q_u16(index + 8, vreinterpretq_u16_u8(vzip2q_u8(low, high)));
}

/* Loads 4 or 8 bytes as an integer, by one load: clang makes several of specdec__load_u32. */
SPECDEC__INLINE uint64_t specdec__neon_load_integer(const unsigned char *at, size_t bytes)
{
    uint64_t bits = 0;

    memcpy(&bits, at, bytes);
    return bits;
}

/* Returns word p of row `row` (of four) of a group of IQ2_XS: nine bits of the index of a grid point, and signs above
   them. */
SPECDEC__INLINE uint64_t specdec__neon_load_iq2_xs_word(const unsigned char *words, int row, int p)
{
    return specdec__neon_load_integer(words + p / 2 * 64 + row * 4, 4) >> p % 2 * 16 & 0xFFFF;
}

/* Returns the magnitudes of the eight values from 8 * p on of row `row` (of four). index: for IQ2_S from
   specdec__neon_unpack_indices_iq2_s; for other types bytes of a tile. */
SPECDEC__INLINE uint64x1_t specdec__neon_load_iq2_magnitudes(int type, const unsigned char *index, int row, int p)
{
    if (type == SPECDEC__TYPE_IQ2_XXS)
        return vld1_u64(specdec__neon_iq2_xxs + (specdec__neon_load_integer(index + row * 4, 4) >> p * 8 & 255));
    if (type == SPECDEC__TYPE_IQ2_XS)
        return vld1_u64(specdec__neon_iq2_xs + (specdec__neon_load_iq2_xs_word(index, row, p) & 511));
    return vld1_u64(specdec__neon_iq2_s + (specdec__neon_load_integer(index + row * 8, 8) >> p * 16 & 0xFFFF));
}

/* Returns the signs of the eight values from 8 * p on of row `row` (of four): a byte for each value, 0xff if the value
   is negative, else 0. signs: the bytes of the first row's signs; for IQ2_XS, whose points hold them, its points. */
SPECDEC__INLINE uint64x1_t specdec__neon_iq2_sign_masks(int type, const unsigned char *signs, int row, int p)
{
    if (type == SPECDEC__TYPE_IQ2_XS)
        return vld1_u64(specdec__neon_even_signs + (specdec__neon_load_iq2_xs_word(signs, row, p) >> 9));
    if (type == SPECDEC__TYPE_IQ2_S)
        return vld1_u64(specdec__neon_signs + (specdec__neon_load_integer(signs + row * 4, 4) >> p * 8 & 255));
    return vld1_u64(specdec__neon_even_signs + (specdec__neon_load_integer(signs + row * 4, 4) >> p * 7 & 127));
}

/* Computes codes (value/4) = 32 values of four rows: group g of a tile of IQ2. */
SPECDEC__INLINE void specdec__neon_load_iq2(int type, const unsigned char *tile, int g, int row, int8x16_t *codes)
{
    const int is_xxs = type == SPECDEC__TYPE_IQ2_XXS;
    const unsigned char *index = tile + g * 128 + row * 4 +
                                 (is_xxs ? SPECDEC__TILE_AT(iq2_xxs, groups) : SPECDEC__TILE_AT(iq2_xs, words));
    const unsigned char *signs = is_xxs ? index + 64 : index;
    uint16_t indices[16];
    int p, i;

    if (type == SPECDEC__TYPE_IQ2_S) {
        signs = tile + SPECDEC__TILE_AT(iq2_s, signs) + g * 64 + row * 4;
        specdec__neon_unpack_indices_iq2_s(tile, (unsigned)g, row, indices);
        index = (const unsigned char *)indices;
        SPECDEC__NEON_RELOAD(index); /* else gcc moves each index between registers */
    }
    SPECDEC__UNROLL
    for (p = 0; p < 4; p++) {
        int32x4_t eight[2]; /* eight values of two rows */

        SPECDEC__UNROLL
        for (i = 0; i < 2; i++) {
            const uint64x2_t sign = vcombine_u64(specdec__neon_iq2_sign_masks(type, signs, i * 2, p),
                                                 specdec__neon_iq2_sign_masks(type, signs, i * 2 + 1, p));
            const uint64x2_t magnitude = vcombine_u64(specdec__neon_load_iq2_magnitudes(type, index, i * 2, p),
                                                      specdec__neon_load_iq2_magnitudes(type, index, i * 2 + 1, p));

            eight[i] = vreinterpretq_s32_u8(vsubq_u8(vreinterpretq_u8_u64(veorq_u64(magnitude, sign)),
                                                     vreinterpretq_u8_u64(sign)));
        }
        codes[p * 2] = vreinterpretq_s8_s32(vuzp1q_s32(eight[0], eight[1]));
        codes[p * 2 + 1] = vreinterpretq_s8_s32(vuzp2q_s32(eight[0], eight[1]));
        SPECDEC__NEON_COMPILER_BARRIER;
    }
}

/* Constant vectors of IQ3, in one struct so that one address is enough to load them. A word is four values of four
   rows. sign_byte_index: the bytes of signs that belong to words 2 i and 2 i + 1; sign_bit: their bits for an even word
   and for an odd one. codes: the code of an index, which is three bits of a magnitude with the sign above them. */
typedef struct specdec__neon_grid {
    uint8_t sign_byte_index[4][16], sign_bit[2][16]; /* which byte of signs, and which bit of it, each lane takes */
    int8_t codes[16]; /* the code of each index: magnitude and sign */
} specdec__neon_grid;

#define SPECDEC__NEON_IQ3(...) \
    {{SPECDEC__NEON_REPEAT_EACH(0, 4, 8, 12), SPECDEC__NEON_REPEAT_EACH(1, 5, 9, 13), \
      SPECDEC__NEON_REPEAT_EACH(2, 6, 10, 14), SPECDEC__NEON_REPEAT_EACH(3, 7, 11, 15)}, \
     {SPECDEC__NEON_REPEAT_ALL(1, 2, 4, 8), SPECDEC__NEON_REPEAT_ALL(16, 32, 64, 128)}, __VA_ARGS__}

static const specdec__neon_grid specdec__neon_iq3_xxs =
    SPECDEC__NEON_IQ3({4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62});
static const specdec__neon_grid specdec__neon_iq3_s =
    SPECDEC__NEON_IQ3({1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15});

/* Stores eight 16-bit numbers as two integers: one move between registers for four numbers. */
SPECDEC__INLINE void specdec__neon_store_eight_indices(uint8x16_t eight, uint64_t *to)
{
    to[0] = vgetq_lane_u64(vreinterpretq_u64_u8(eight), 0);
    to[1] = vgetq_lane_u64(vreinterpretq_u64_u8(eight), 1);
}

/* Computes index (points/4, row) = the indices of the points of group g of four rows of IQ3_S, four in an integer. */
SPECDEC__INLINE void specdec__neon_unpack_indices_iq3_s(const unsigned char *tile, int g, int row, uint64_t *index)
{
    static const uint8_t rows[16] = SPECDEC__NEON_REPEAT_EACH(0, 4, 8, 12);
    const uint8x16_t which = vaddq_u8(vld1q_u8(rows), vdupq_n_u8((uint8_t)(g % 4)));
    const unsigned char *low = tile + SPECDEC__TILE_AT(iq3_s, index) + g * 128 + row * 4;
    const unsigned char *top = tile + SPECDEC__TILE_AT(iq3_s, high) + g / 4 * 64 + row * 4;
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 2; i++) {
        const uint8x16_t bytes = vld1q_u8(low + i * 64);
        uint8x16_t high = vqtbl1q_u8(vld1q_u8(top), which);

        high = vshrq_n_u8(vtstq_u8(high, vld1q_u8(specdec__neon_iq3_s.sign_bit[i])), 7);
        specdec__neon_store_eight_indices(vzip1q_u8(bytes, high), index + i * 4);
        specdec__neon_store_eight_indices(vzip2q_u8(bytes, high), index + i * 4 + 2);
    }
}

/* Returns grid point p of row `row` (of four) of a group of IQ3, 16 bits. bytes: for IQ3_XXS, the indices of the first
   row. */
SPECDEC__INLINE uint64_t specdec__neon_point_of_row(int type, const unsigned char *bytes, const uint64_t *index,
                                                    int row, int p)
{
    if (type == SPECDEC__TYPE_IQ3_XXS)
        return specdec__quant_iq3_xxs_grid[bytes[p / 4 * 64 + row * 4 + p % 4]];
    return specdec__quant_iq3_s_grid[index[p / 4 * 4 + row] >> p % 4 * 16 & 0xFFFF];
}

/* Returns grid point p of four rows of a group of IQ3, 16 bits each. */
SPECDEC__INLINE uint64_t specdec__neon_points_of_four_rows(int type, const unsigned char *bytes, const uint64_t *index,
                                                           int p)
{
    uint64_t four = specdec__neon_point_of_row(type, bytes, index, 3, p);

    four = specdec__neon_point_of_row(type, bytes, index, 2, p) | four << 16;
    four = specdec__neon_point_of_row(type, bytes, index, 1, p) | four << 16;
    return specdec__neon_point_of_row(type, bytes, index, 0, p) | four << 16;
}

/* Returns the points from which words 2 i and 2 i + 1 of four rows are unpacked: two points a row. */
SPECDEC__INLINE uint8x16_t specdec__neon_load_point_pairs(int type, const unsigned char *bytes, const uint64_t *index,
                                                          int i)
{
    return vreinterpretq_u8_u64(
        vcombine_u64(vcreate_u64(specdec__neon_points_of_four_rows(type, bytes, index, i * 2)),
                     vcreate_u64(specdec__neon_points_of_four_rows(type, bytes, index, i * 2 + 1))));
}

/* Returns the address of group g of four rows of a tile whose points have indices of one byte. */
SPECDEC__INLINE const unsigned char *specdec__neon_point_indices_address(const unsigned char *tile, int g, int row)
{
    return tile + SPECDEC__TILE_AT(iq3_xxs, index) + g * 128 + row * 4;
}

/* Loads the pairs of points of the first group of the first four rows of a tile: see specdec__neon_load_point_pairs. */
SPECDEC__INLINE void specdec__neon_load_first_points(int type, const unsigned char *tile, uint8x16_t *pairs)
{
    uint64_t indices[8];
    int i;

    if (type == SPECDEC__TYPE_IQ3_S)
        specdec__neon_unpack_indices_iq3_s(tile, 0, 0, indices);
    SPECDEC__UNROLL
    for (i = 0; i < 4; i++)
        pairs[i] = specdec__neon_load_point_pairs(type, specdec__neon_point_indices_address(tile, 0, 0), indices, i);
}

/* Returns bytes of eight signs from bytes of seven: the eighth sign makes the number of set bits even. */
SPECDEC__INLINE uint8x16_t specdec__neon_add_eighth_sign(uint8x16_t sevens)
{
    return vorrq_u8(sevens, vshlq_n_u8(vcntq_u8(sevens), 7));
}

/* Returns the signs of group g of four rows of IQ3, a bit each: (row, 4). */
SPECDEC__INLINE uint8x16_t specdec__neon_iq3_signs(int type, const unsigned char *tile, int g, int row)
{
    const size_t at = type == SPECDEC__TYPE_IQ3_S ? SPECDEC__TILE_AT(iq3_s, signs) : SPECDEC__TILE_AT(iq3_xxs, words);
    const uint8x16_t first = vld1q_u8(tile + at + g * 64 + row * 4);
    const uint32x4_t sevens = vreinterpretq_u32_u8(first);
    uint32x4_t low, high;

    if (type == SPECDEC__TYPE_IQ3_S)
        return first;
    low = vandq_u32(sevens, vdupq_n_u32(0x7F));
    high = vandq_u32(vshlq_n_u32(sevens, 1), vdupq_n_u32(0x7F00));
    low = vorrq_u32(low, vandq_u32(vshlq_n_u32(sevens, 2), vdupq_n_u32(0x7F0000)));
    high = vorrq_u32(high, vandq_u32(vshlq_n_u32(sevens, 3), vdupq_n_u32(0x7F000000)));
    return specdec__neon_add_eighth_sign(vreinterpretq_u8_u32(vorrq_u32(low, high)));
}

/* Computes codes (value/4) = 32 values of four rows: group g of a tile of IQ3. pairs: its pairs of points (see
   specdec__neon_load_point_pairs); they become those of group then_g of the rows from `then` on, as their loads take
   long. */
SPECDEC__INLINE void specdec__neon_load_iq3(int type, const unsigned char *tile, int g, int row, int then_g,
                                            int then, uint8x16_t *pairs, int8x16_t *codes)
{
    const specdec__neon_grid *grid = type == SPECDEC__TYPE_IQ3_XXS ? &specdec__neon_iq3_xxs : &specdec__neon_iq3_s;
    const unsigned char *bytes = specdec__neon_point_indices_address(tile, then_g, then);
    const uint8x16_t topmost = vdupq_n_u8(8), signs = specdec__neon_iq3_signs(type, tile, g, row);
    uint8x16_t index[2], from, minus, high, low;
    uint64_t indices[8];
    int i, k;

    SPECDEC__NEON_HIDE_ADDRESS(grid);
    if (type == SPECDEC__TYPE_IQ3_S)
        specdec__neon_unpack_indices_iq3_s(tile, then_g, then, indices);
    SPECDEC__UNROLL
    for (i = 0; i < 4; i++) {
        SPECDEC__NEON_COMPILER_BARRIER;
        high = vshrq_n_u8(pairs[i], 4);
        low = vandq_u8(pairs[i], vdupq_n_u8(15));
        index[0] = vzip1q_u8(low, high);
        index[1] = vzip2q_u8(low, high);
        pairs[i] = specdec__neon_load_point_pairs(type, bytes, indices, i);
        from = vqtbl1q_u8(signs, vld1q_u8(grid->sign_byte_index[i]));
        SPECDEC__UNROLL
        for (k = 0; k < 2; k++) {
            minus = vtstq_u8(from, vld1q_u8(grid->sign_bit[k]));
            SPECDEC__NEON_INSERT_BITS(index[k], minus, topmost);
            codes[i * 2 + k] = vqtbl1q_s8(vld1q_s8(grid->codes), index[k]);
        }
    }
}

/* Returns the factor of a type with a grid that d is multiplied by, besides an odd number. */
SPECDEC__INLINE float specdec__neon_grid_factor(int type)
{
    return specdec__neon_is_iq2(type) ? 0.125f : type == SPECDEC__TYPE_IQ3_XXS ? 0.25f : 1;
}
/* Returns the odd numbers 2 n + 1 that d of four rows is multiplied by, where n is scale i of a tile. */
SPECDEC__INLINE float32x4_t specdec__neon_odd_factors(int type, const unsigned char *tile, int i, int row)
{
    const int at_top = type == SPECDEC__TYPE_IQ2_XXS || type == SPECDEC__TYPE_IQ3_XXS;
    const size_t at = type == SPECDEC__TYPE_IQ2_XXS   ? SPECDEC__TILE_AT(iq2_xxs, groups) + (size_t)(i * 128 + 64)
                      : type == SPECDEC__TYPE_IQ3_XXS ? SPECDEC__TILE_AT(iq3_xxs, words) + (size_t)(i * 64)
                      : type == SPECDEC__TYPE_IQ2_XS  ? SPECDEC__TILE_AT(iq2_xs, scales) + (size_t)(i / 8 * 64)
                      : type == SPECDEC__TYPE_IQ2_S   ? SPECDEC__TILE_AT(iq2_s, scales) + (size_t)(i / 8 * 64)
                                                      : SPECDEC__TILE_AT(iq3_s, scales);
    uint32x4_t word = vreinterpretq_u32_u8(vld1q_u8(tile + at + row * 4));

    if (!at_top)
        word = vshlq_u32(word, vdupq_n_s32(28 - i % 8 * 4));
    return vcvtq_f32_u32(vorrq_u32(vshrq_n_u32(word, 27), vdupq_n_u32(1)));
}

/* Unpacks a tile of 256 values of a type with a grid. */
SPECDEC__INLINE void specdec__neon_unpack_points(int type, const unsigned char *tile, specdec__panel *panel)
{
    const int granule = type == SPECDEC__TYPE_IQ2_XS || type == SPECDEC__TYPE_IQ2_S ? 16 : 32;
    uint8x16_t pairs[4];
    int8x16_t codes[8];
    int row, i;

    SPECDEC__NEON_IS_WIDE(panel) = 1;
    if (!specdec__neon_is_iq2(type))
        specdec__neon_load_first_points(type, tile, pairs);
    for (row = 0; row < SPECDEC__ROWS; row += 4) {
        const float32x4_t d = vmulq_n_f32(specdec__neon_load_f16x4(tile + row * 2), specdec__neon_grid_factor(type));

        for (i = 0; i < 8; i++) {
            if (specdec__neon_is_iq2(type))
                specdec__neon_load_iq2(type, tile, i, row, codes);
            else
                specdec__neon_load_iq3(type, tile, i, row, (i + 1) % 8, i < 7 ? row : (row + 4) % SPECDEC__ROWS,
                                       pairs, codes);
            specdec__neon_store_codes(panel, i, row / 4, codes, granule, 0);
        }
        for (i = 0; i < SPECDEC__PANEL_VALUES / granule; i++)
            vst1q_f32(panel->scale[i] + row, vmulq_f32(d, specdec__neon_odd_factors(type, tile, i, row)));
    }
}

#define SPECDEC__NEON_POINTS(type_name, name) \
    static __attribute__((noinline)) void \
    specdec__neon_points_##type_name(const unsigned char *tile, specdec__panel *panel) \
    { \
        specdec__neon_unpack_points(SPECDEC__TYPE_##name, tile, panel); \
    }
SPECDEC__NEON_POINTS(iq2_xxs, IQ2_XXS)
SPECDEC__NEON_POINTS(iq2_xs, IQ2_XS)
SPECDEC__NEON_POINTS(iq2_s, IQ2_S)
SPECDEC__NEON_POINTS(iq3_xxs, IQ3_XXS)
SPECDEC__NEON_POINTS(iq3_s, IQ3_S)

/* Unpacks a tile of any type by its decoder, then reorders the codes for a panel. */
SPECDEC__INLINE void specdec__neon_unpack_by_decoder(const specdec__quant_type *type, const unsigned char *tile,
                                                     int blocks, specdec__panel *panel)
{
    int b, quad, i;

    specdec__unpack_tile_by_decoder(type, tile, blocks, panel);
    SPECDEC__NEON_IS_WIDE(panel) = 1;
    for (b = 0; b < blocks; b++) {
        int8x16_t q[4][8];

        for (quad = 0; quad < 4; quad++)
            for (i = 0; i < 8; i++)
                q[quad][i] = vld1q_s8(panel->u.codes + b * 512 + i * 64 + quad * 16);
        for (quad = 0; quad < 4; quad++)
            specdec__neon_store_codes(panel, b, quad, q[quad], type->granule, 1);
    }
}

/* The offsets of a block's fields in a tile, of types with 32 nibbles; 0 for a missing field. */
typedef struct specdec__neon_field_offsets {
    size_t block_bytes, minimum, high, nibbles; /* bytes of a block of 16 rows; offsets of the fields */
} specdec__neon_field_offsets;

#define SPECDEC__NEON_FIELD_OFFSETS(type, minimum, high) \
    {SPECDEC__TILE_BYTES(type), minimum, high, SPECDEC__TILE_AT(type, nibbles)}

/* Unpacks blocks of 32 nibbles: code = nibble + 16 * high bit + offset, or values[nibble]. */
SPECDEC__INLINE void specdec__neon_unpack_nibbles(const specdec__neon_field_offsets parts, const unsigned char *tile,
                                                  int blocks, specdec__panel *panel, int offset,
                                                  const int8_t *values)
{
    const int8x16_t add = vdupq_n_s8((int8_t)offset), table = values ? vld1q_s8(values) : add;
    const uint8x16_t bit = vdupq_n_u8(16);
    int b, quad, i;

    SPECDEC__NEON_IS_WIDE(panel) = values != NULL;
    for (b = 0; b < blocks; b++, tile += parts.block_bytes) {
        const unsigned char *nibbles = tile + parts.nibbles;

        for (quad = 0; quad < 4; quad++) {
            uint8x16_t high = parts.high ? vld1q_u8(tile + parts.high + quad * 16) : bit;
            int8x16_t q[8];

            SPECDEC__UNROLL
            for (i = 0; i < 4; i++) {
                uint8x16_t packed = vld1q_u8(nibbles + i * 64 + quad * 16);

                q[i] = specdec__neon_low_nibbles(packed);
                q[i + 4] = specdec__neon_high_nibbles(packed);
            }
            SPECDEC__UNROLL
            for (i = 0; i < 8; i++) {
                if (parts.high) {
                    uint8x16_t moved = vshlq_u8(high, vdupq_n_s8((int8_t)(4 - i)));
                    q[i] = vorrq_s8(q[i], vreinterpretq_s8_u8(vandq_u8(moved, bit)));
                }
                if (values)
                    q[i] = vqtbl1q_s8(table, vreinterpretq_u8_s8(q[i]));
                else if (offset)
                    q[i] = vaddq_s8(q[i], add);
            }
            specdec__neon_store_codes(panel, b, quad, q, 32, values != NULL);
        }
        specdec__neon_store(panel->scale[b], specdec__neon_load_f16(tile));
        if (parts.minimum)
            specdec__neon_store(panel->minimum[b], specdec__neon_load_f16(tile + parts.minimum));
    }
}

/* Unpacks a tile of Q8_0 into a panel. A block is: d, 8 words of codes. */
SPECDEC__INLINE void specdec__neon_unpack_tile_q8_0(const unsigned char *tile, int blocks, specdec__panel *panel)
{
    int b, quad, i;

    SPECDEC__NEON_IS_WIDE(panel) = 1;
    for (b = 0; b < blocks; b++, tile += SPECDEC__TILE_BYTES(q8_0)) {
        for (quad = 0; quad < 4; quad++) {
            int8x16_t q[8];

            SPECDEC__UNROLL
            for (i = 0; i < 8; i++)
                q[i] = vreinterpretq_s8_u8(vld1q_u8(tile + SPECDEC__TILE_AT(q8_0, codes) + i * 64 + quad * 16));
            specdec__neon_store_codes(panel, b, quad, q, 32, 1);
        }
        specdec__neon_store(panel->scale[b], specdec__neon_load_f16(tile));
    }
}

/* The 6-bit factors of scales and minimums of 16 rows, of blocks i and i + 4 of 8. */
typedef struct specdec__neon_factor_pairs {
    int8x16_t scale[2], minimum[2]; /* factors of scales, of minimums: of block i, of block i + 4 */
} specdec__neon_factor_pairs;

/* Returns factors of scales and minimums of 16 rows of Q4_K or Q5_K. packed: byte i of the 12 bytes that hold them. */
SPECDEC__INLINE specdec__neon_factor_pairs specdec__neon_unpack_factors_q4_q5_k(const unsigned char *packed)
{
    const uint8x16_t six = vdupq_n_u8(63), low = vdupq_n_u8(15);
    const uint8x16_t s = vld1q_u8(packed), m = vld1q_u8(packed + 4 * 16), both = vld1q_u8(packed + 8 * 16);
    uint8x16_t top = vshrq_n_u8(s, 2);
    specdec__neon_factor_pairs r;

    SPECDEC__NEON_INSERT_BITS(top, both, low);
    r.scale[0] = vreinterpretq_s8_u8(vandq_u8(s, six));
    r.scale[1] = vreinterpretq_s8_u8(top);
    r.minimum[0] = vreinterpretq_s8_u8(vandq_u8(m, six));
    r.minimum[1] = vreinterpretq_s8_u8(vsriq_n_u8(vshrq_n_u8(m, 2), both, 4));
    return r;
}

/* Unpacks scales and minimums of Q4_K and Q5_K from a tile's d, dmin and 12 packed bytes. */
SPECDEC__INLINE void specdec__neon_unpack_scales_q4_q5_k(const unsigned char *tile, float (*scale)[SPECDEC__ROWS],
                                                         float (*minimum)[SPECDEC__ROWS])
{
    const unsigned char *dmin = tile + SPECDEC__TILE_AT(q4_k, dmin);
    int i;

    for (i = 0; i < 4; i++) {
        specdec__neon_factor_pairs factors = specdec__neon_unpack_factors_q4_q5_k(
            tile + SPECDEC__TILE_AT(q4_k, scales) + i * 16);

        specdec__neon_store_scales(scale[i], tile, factors.scale[0], 0);
        specdec__neon_store_scales(scale[i + 4], tile, factors.scale[1], 0);
        specdec__neon_store_scales(minimum[i], dmin, factors.minimum[0], 1);
        specdec__neon_store_scales(minimum[i + 4], dmin, factors.minimum[1], 1);
    }
}

/* Unpacks a tile of Q4_K, or with high bits of Q5_K, into a panel. A block is: d, dmin, 12 bytes of scales, [8 words of
   high bits,] 32 words of nibbles. */
SPECDEC__INLINE void specdec__neon_unpack_tile_q4_q5_k(const unsigned char *tile, int blocks, specdec__panel *panel,
                                                       int has_high)
{
    const uint8x16_t bit = vdupq_n_u8(16);
    int b, quad, i;

    for (b = 0; b < blocks; b += 2) {
        const unsigned char *high = tile + SPECDEC__TILE_AT(q5_k, high);
        const unsigned char *nibbles = tile + b % 8 * 256 + (has_high ? SPECDEC__TILE_AT(q5_k, nibbles)
                                                                      : SPECDEC__TILE_AT(q4_k, nibbles));

        for (quad = 0; quad < 4; quad++) {
            int8x16_t even[8], odd[8];

            SPECDEC__UNROLL
            for (i = 0; i < 8; i++) {
                uint8x16_t packed = vld1q_u8(nibbles + i * 64 + quad * 16);

                even[i] = specdec__neon_low_nibbles(packed);
                odd[i] = specdec__neon_high_nibbles(packed);
                if (has_high) {
                    uint8x16_t bits = vld1q_u8(high + i * 64 + quad * 16);
                    uint8x16_t bits0 = vandq_u8(vshlq_u8(bits, vdupq_n_s8((int8_t)(4 - b % 8))), bit);
                    uint8x16_t bits1 = vandq_u8(vshlq_u8(bits, vdupq_n_s8((int8_t)(3 - b % 8))), bit);

                    even[i] = vorrq_s8(even[i], vreinterpretq_s8_u8(bits0));
                    odd[i] = vorrq_s8(odd[i], vreinterpretq_s8_u8(bits1));
                }
            }
            specdec__neon_store_codes(panel, b, quad, even, 32, 0);
            specdec__neon_store_codes(panel, b + 1, quad, odd, 32, 0);
        }
        if (b % 8 == 0)
            specdec__neon_unpack_scales_q4_q5_k(tile, panel->scale + b, panel->minimum + b);
        if (b % 8 == 6)
            tile += has_high ? SPECDEC__TILE_BYTES(q5_k) : SPECDEC__TILE_BYTES(q4_k);
    }
}

/* Unpacks a tile of Q6_K into a panel. A block is: 32 words of nibbles, 16 words of two high bits, 16 signed scales, d.
   Blocks t and t + 2 of a half share bytes. */
SPECDEC__INLINE void specdec__neon_unpack_tile_q6_k(const unsigned char *tile, int blocks, specdec__panel *panel)
{
    const int8x16_t offset = vdupq_n_s8(32);
    const uint8x16_t high_mask = vdupq_n_u8(48);
    int b, quad, i;

    for (b = 0; b < blocks; b++) {
        const int half = b % 8 / 4, part = b % 4;
        const unsigned char *low = tile + SPECDEC__TILE_AT(q6_k, nibbles) + half * 1024 + part % 2 * 512;
        const unsigned char *high = tile + SPECDEC__TILE_AT(q6_k, two_bits) + half * 512;
        const int8x16_t low_shift = vdupq_n_s8((int8_t)(part / 2 * -4));
        const int8x16_t high_shift = vdupq_n_s8((int8_t)(4 - part * 2));

        for (quad = 0; quad < 4; quad++) {
            int8x16_t q[8];

            SPECDEC__UNROLL
            for (i = 0; i < 8; i++) {
                int8x16_t nibbles = specdec__neon_low_nibbles(vshlq_u8(vld1q_u8(low + i * 64 + quad * 16), low_shift));
                uint8x16_t bits = vandq_u8(vshlq_u8(vld1q_u8(high + i * 64 + quad * 16), high_shift), high_mask);

                q[i] = vsubq_s8(vorrq_s8(nibbles, vreinterpretq_s8_u8(bits)), offset);
            }
            specdec__neon_store_codes(panel, b, quad, q, 16, 0);
        }
        for (i = 0; i < 2; i++) {
            uint8x16_t scale = vld1q_u8(tile + SPECDEC__TILE_AT(q6_k, scales) + (b % 8 * 2 + i) * 16);

            specdec__neon_store_scales(panel->scale[b * 2 + i], tile + SPECDEC__TILE_AT(q6_k, d),
                                       vreinterpretq_s8_u8(scale), 0);
        }
        if (b % 8 == 7)
            tile += SPECDEC__TILE_BYTES(q6_k);
    }
}

/* Returns the six bits of scale i of IQ4_XS of 16 rows. */
SPECDEC__INLINE uint8x16_t specdec__neon_unpack_factors_iq4_xs(const unsigned char *tile, int i)
{
    uint8x16x2_t high = vld2q_u8(tile + SPECDEC__TILE_AT(iq4_xs, high)); /* scales 0..3, scales 4..7 */
    uint8x16_t top = vshlq_u8(i < 4 ? high.val[0] : high.val[1], vdupq_n_s8((int8_t)(4 - i % 4 * 2)));
    uint8x16_t low = vshlq_u8(vld1q_u8(tile + SPECDEC__TILE_AT(iq4_xs, low) + i / 2 * 16),
                              vdupq_n_s8((int8_t)(i % 2 * -4)));

    return vorrq_u8(vandq_u8(low, vdupq_n_u8(15)), vandq_u8(top, vdupq_n_u8(48)));
}

/* Unpacks a tile of IQ4_XS into a panel. A block is: d, two high bits of 8 scales, their nibbles, 32 words of nibbles
   that index specdec__quant_iq4_values. */
SPECDEC__INLINE void specdec__neon_unpack_tile_iq4_xs(const unsigned char *tile, int blocks, specdec__panel *panel)
{
    const int8x16_t table = vld1q_s8(specdec__quant_iq4_values);
    int b, quad, i;

    SPECDEC__NEON_IS_WIDE(panel) = 1;
    for (b = 0; b < blocks; b++) {
        const int at = b % 8;
        const uint8x16_t scale = specdec__neon_unpack_factors_iq4_xs(tile, at);

        for (quad = 0; quad < 4; quad++) {
            int8x16_t q[8];

            SPECDEC__UNROLL
            for (i = 0; i < 4; i++) {
                uint8x16_t packed = vld1q_u8(tile + SPECDEC__TILE_AT(iq4_xs, nibbles) + at * 256 + i * 64 + quad * 16);

                q[i] = vqtbl1q_s8(table, vreinterpretq_u8_s8(specdec__neon_low_nibbles(packed)));
                q[i + 4] = vqtbl1q_s8(table, vreinterpretq_u8_s8(specdec__neon_high_nibbles(packed)));
            }
            specdec__neon_store_codes(panel, b, quad, q, 32, 1);
        }
        specdec__neon_store_scales(panel->scale[b], tile, vsubq_s8(vreinterpretq_s8_u8(scale), vdupq_n_s8(32)), 0);
        if (at == 7)
            tile += SPECDEC__TILE_BYTES(iq4_xs);
    }
}

/* Returns the number of groups of 32 values in a block of a type of few bits. */
SPECDEC__INLINE int specdec__neon_groups_per_file_block(int type)
{
    return type == SPECDEC__TYPE_Q1_0 ? 4 : type == SPECDEC__TYPE_Q2_0 ? 2 : type == SPECDEC__TYPE_TQ2_0 ? 8 : 1;
}

/* Returns the address of the block in the file's sense that holds block b of 32 values, of a type of few bits. */
SPECDEC__INLINE const unsigned char *specdec__neon_find_file_block(int type, const unsigned char *tile, int b)
{
    const size_t bytes = type == SPECDEC__TYPE_Q1_0    ? SPECDEC__TILE_BYTES(q1_0)
                         : type == SPECDEC__TYPE_Q2_0  ? SPECDEC__TILE_BYTES(q2_0)
                         : type == SPECDEC__TYPE_TQ2_0 ? SPECDEC__TILE_BYTES(tq2_0)
                                                       : SPECDEC__TILE_BYTES(mxfp4);

    return tile + (size_t)(b / specdec__neon_groups_per_file_block(type)) * bytes;
}

/* Unpacks 32 values of the four rows from row `row` on into q: codes + 1 of Q1_0, Q2_0 and TQ2_0, codes of MXFP4.
   file_block: from specdec__neon_find_file_block; group: which 32 values of it. */
SPECDEC__INLINE void specdec__neon_unpack_few_bits_codes(int type, const unsigned char *file_block, int group, int row,
                                                         int8x16_t q[8])
{
    const uint8x16_t mask = vdupq_n_u8(type == SPECDEC__TYPE_Q1_0 ? 2 : 3);
    const unsigned char *at = file_block + row * 4;
    int i;

    at += type == SPECDEC__TYPE_Q1_0    ? (int)SPECDEC__TILE_AT(q1_0, bits) + group * 64
          : type == SPECDEC__TYPE_Q2_0  ? (int)SPECDEC__TILE_AT(q2_0, two_bits) + group * 128
          : type == SPECDEC__TYPE_TQ2_0 ? (int)SPECDEC__TILE_AT(tq2_0, two_bits) + group / 4 * 512
                                        : (int)SPECDEC__TILE_AT(mxfp4, nibbles);
    SPECDEC__UNROLL
    for (i = 0; i < 8; i++) {
        const int line = type == SPECDEC__TYPE_Q1_0    ? 0
                         : type == SPECDEC__TYPE_Q2_0  ? i / 4
                         : type == SPECDEC__TYPE_TQ2_0 ? i
                                                       : i % 4;
        const int right = type == SPECDEC__TYPE_Q1_0    ? i - 1
                          : type == SPECDEC__TYPE_Q2_0  ? i % 4 * 2
                          : type == SPECDEC__TYPE_TQ2_0 ? group % 4 * 2
                                                        : i / 4 * 4;
        const uint8x16_t packed = vld1q_u8(at + line * 64);

        if (type == SPECDEC__TYPE_MXFP4)
            q[i] = vqtbl1q_s8(vld1q_s8(specdec__quant_fp4_values),
                              right ? vshrq_n_u8(packed, 4) : vandq_u8(packed, vdupq_n_u8(15)));
        else
            q[i] = vreinterpretq_s8_u8(vandq_u8(vshlq_u8(packed, vdupq_n_s8((int8_t)-right)), mask));
    }
}

/* Returns the scales of the four rows from row `row` on. Of MXFP4: see specdec__quant_e8m0_divided_by_2. */
SPECDEC__INLINE float32x4_t specdec__neon_load_few_bits_scales(int type, const unsigned char *file_block, int row)
{
    if (type == SPECDEC__TYPE_MXFP4) {
        const uint8x8_t bytes = vreinterpret_u8_u32(vdup_n_u32(specdec__load_u32(file_block + row)));
        const int32x4_t e = vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(bytes)))), one = vdupq_n_s32(1);
        const int32x4_t small = vshlq_s32(vdupq_n_s32(0x00200000), vminq_s32(e, one));

        return vreinterpretq_f32_s32(vmaxq_s32(vshlq_n_s32(vsubq_s32(e, one), 23), small));
    }
    return specdec__neon_load_f16x4(file_block + row * 2 +
                                    (type == SPECDEC__TYPE_TQ2_0 ? SPECDEC__TILE_AT(tq2_0, d) : 0));
}

/* Unpacks `blocks` blocks of 32 values of a tile of a type of few bits (Q1_0, Q2_0, TQ2_0, MXFP4) into a panel. */
SPECDEC__INLINE void specdec__neon_unpack_few_bits(int type, const unsigned char *tile, int blocks,
                                                   specdec__panel *panel)
{
    const int8x16_t bias = vdupq_n_s8(type == SPECDEC__TYPE_MXFP4 ? 0 : 1);
    int b, quad, i;

    SPECDEC__NEON_IS_WIDE(panel) = 0;
    for (b = 0; b < blocks; b++) {
        const unsigned char *own = specdec__neon_find_file_block(type, tile, b);

        for (quad = 0; quad < 4; quad++) {
            int8x16_t q[8];

            specdec__neon_unpack_few_bits_codes(type, own, b % specdec__neon_groups_per_file_block(type), quad * 4, q);
            SPECDEC__UNROLL
            for (i = 0; i < 8; i++)
                q[i] = vsubq_s8(q[i], bias);
            specdec__neon_store_codes(panel, b, quad, q, 32, 0);
            vst1q_f32(panel->scale[b] + quad * 4, specdec__neon_load_few_bits_scales(type, own, quad * 4));
        }
    }
}

/* Prefetches as many bytes as these blocks have, SPECDEC__NEON_PREFETCH_BYTES ahead: the next tile usually lies behind
   a tile. */
#define SPECDEC__NEON_PREFETCH_BYTES 4096 /* distance in bytes at which weights are prefetched */
SPECDEC__INLINE void specdec__neon_prefetch(const specdec__quant_type *type, const unsigned char *tile, int blocks)
{
    const int bytes = blocks * 32 / type->block * type->bytes * SPECDEC__ROWS;
    int i;

    for (i = 0; i < bytes; i += 256) {
        __builtin_prefetch(tile + SPECDEC__NEON_PREFETCH_BYTES + i, 0, 3);
        __builtin_prefetch(tile + SPECDEC__NEON_PREFETCH_BYTES + i + 64, 0, 3);
        __builtin_prefetch(tile + SPECDEC__NEON_PREFETCH_BYTES + i + 128, 0, 3);
        __builtin_prefetch(tile + SPECDEC__NEON_PREFETCH_BYTES + i + 192, 0, 3);
    }
}

/* Defines the specdec__unpack_function of a type. */
#define SPECDEC__NEON_UNPACK(name, call) \
    static void specdec__neon_unpack_##name(const specdec__quant_type *type, const unsigned char *tile, int blocks, \
                                            specdec__panel *panel) \
    { \
        specdec__neon_prefetch(type, tile, blocks); \
        call; \
    }
#define SPECDEC__NEON_NIBBLES(type_name, minimum, high, offset, values) \
    SPECDEC__NEON_UNPACK(type_name, \
        const specdec__neon_field_offsets parts = SPECDEC__NEON_FIELD_OFFSETS(type_name, minimum, high); \
        specdec__neon_unpack_nibbles(parts, tile, blocks, panel, offset, values))
SPECDEC__NEON_UNPACK(any, specdec__neon_unpack_by_decoder(type, tile, blocks, panel))
SPECDEC__NEON_UNPACK(iq2_xxs, specdec__neon_points_iq2_xxs(tile, panel))
SPECDEC__NEON_UNPACK(iq2_xs, specdec__neon_points_iq2_xs(tile, panel))
SPECDEC__NEON_UNPACK(iq2_s, specdec__neon_points_iq2_s(tile, panel))
SPECDEC__NEON_UNPACK(iq3_xxs, specdec__neon_points_iq3_xxs(tile, panel))
SPECDEC__NEON_UNPACK(iq3_s, specdec__neon_points_iq3_s(tile, panel))
SPECDEC__NEON_UNPACK(q2_k, specdec__neon_unpack_tile_q2_k(tile, blocks, panel))
SPECDEC__NEON_UNPACK(q3_k, specdec__neon_unpack_tile_q3_k(tile, blocks, panel))
SPECDEC__NEON_NIBBLES(q4_0, 0, 0, -8, NULL)
SPECDEC__NEON_NIBBLES(q4_1, SPECDEC__TILE_AT(q4_1, minimum), 0, 0, NULL)
SPECDEC__NEON_NIBBLES(q5_0, 0, SPECDEC__TILE_AT(q5_0, high), -16, NULL)
SPECDEC__NEON_NIBBLES(q5_1, SPECDEC__TILE_AT(q5_1, minimum), SPECDEC__TILE_AT(q5_1, high), 0, NULL)
SPECDEC__NEON_UNPACK(q8_0, specdec__neon_unpack_tile_q8_0(tile, blocks, panel))
SPECDEC__NEON_UNPACK(q4_k, specdec__neon_unpack_tile_q4_q5_k(tile, blocks, panel, 0))
SPECDEC__NEON_UNPACK(q5_k, specdec__neon_unpack_tile_q4_q5_k(tile, blocks, panel, 1))
SPECDEC__NEON_UNPACK(q6_k, specdec__neon_unpack_tile_q6_k(tile, blocks, panel))
SPECDEC__NEON_NIBBLES(iq4_nl, 0, 0, 0, specdec__quant_iq4_values)
SPECDEC__NEON_UNPACK(iq4_xs, specdec__neon_unpack_tile_iq4_xs(tile, blocks, panel))
SPECDEC__NEON_UNPACK(q1_0, specdec__neon_unpack_few_bits(SPECDEC__TYPE_Q1_0, tile, blocks, panel))
SPECDEC__NEON_UNPACK(q2_0, specdec__neon_unpack_few_bits(SPECDEC__TYPE_Q2_0, tile, blocks, panel))
SPECDEC__NEON_UNPACK(tq2_0, specdec__neon_unpack_few_bits(SPECDEC__TYPE_TQ2_0, tile, blocks, panel))
SPECDEC__NEON_UNPACK(mxfp4, specdec__neon_unpack_few_bits(SPECDEC__TYPE_MXFP4, tile, blocks, panel))
#endif /* aarch64 */
