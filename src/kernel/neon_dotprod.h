/* =====================================================================================================================
 * >>kernel/neon_dotprod: NEON with dot products: multiplies tiles without a panel, and panels.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../quant/types.h"
#include "../quant/table.h"
#include "kernel.h"
#include "scalar.h"
#include "weigh.h"
#include "neon.h"
#include "neon_unpack.h"
#include "neon_facts.h"

#if defined(__aarch64__) && defined(__ARM_NEON) && defined(__AARCH64EL__) && !defined(SPECDEC_NO_SIMD)
/* Up to 4 columns of up to 8 blocks, prepared once for the rows of two tiles. */
typedef struct specdec__dotprod_input {
    const int8_t *codes;  /* codes of the first block */
    size_t stride;        /* bytes between blocks */
    size_t fourth_column; /* bytes from the first to the fourth column; of three columns, the last one counts
                                      twice */
    int32_t start[4][4];  /* starts of sums, in memory, as loads cost less than moves between registers */
    float scale[8][4];    /* (block, column) */
    int32_t offset[8][4]; /* (block, column): an offset in each of four bytes; for wide types, the bits of a float */
    float excess[16][4];  /* (granule, column): by how much the bits of a sum are too large, as a float */
    float total[16][4];   /* (granule, column): scale * sum of (code + offset) */
} specdec__dotprod_input;

/* Prepares block b of column c of `columns` columns for dot products: its codes, scale and offset in
   specdec__dotprod_input. */
SPECDEC__INLINE void specdec__dotprod_prepare_column_block(int type, int packed, const specdec__columns *x, size_t at,
                                                           int columns, int b, int c, specdec__dotprod_input *to)
{
    const int per = 32 / specdec__dotprod_values_per_scale(type), bias = specdec__dotprod_bias(type);
    const int surplus = specdec__dotprod_has_two_sums_per_granule(type, packed, columns)
                            ? 16 * bias
                            : specdec__dotprod_surplus_of_code_sum(type);
    const int32_t *pairs = per == 1 ? x->pair32 + at : x->pair16 + at * 2, offset = (int16_t)(*pairs & 0xFFFF);
    const float *totals = per == 1 ? x->sum32 + at : x->sum16 + at * 2;
    int32_t excess;
    int g;

    memcpy(&to->scale[b][c], x->scale + at, 4); /* stored as an integer, which costs less */
    if (specdec__dotprod_has_float_code_sums(type))
        to->offset[b][c] = (int32_t)specdec__bits_from_float((float)offset);
    else
        to->offset[b][c] = (int32_t)((uint32_t)(offset & 0xFF) * 0x01010101u);
    SPECDEC__UNROLL
    for (g = 0; g < per; g++) {
        excess = SPECDEC__DOTPROD_START_BITS + (pairs[g] >> 16) * bias + offset * surplus;
        if (bias || surplus)
            memcpy(&to->excess[b * per + g][c], &excess, 4);
        if (specdec__dotprod_has_minimum(type))
            memcpy(&to->total[b * per + g][c], totals + g, 4);
    }
}

/* Prepares block b of four columns for dot products: scales and offsets in specdec__dotprod_input. */
SPECDEC__INLINE void specdec__dotprod_prepare_four_columns(int type, const specdec__columns *x, size_t at, int b,
                                                           specdec__dotprod_input *to)
{
    static const uint8_t bytes[16] = {0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12};
    const int per = 32 / specdec__dotprod_values_per_scale(type), bias = specdec__dotprod_bias(type);
    const int32x4_t pair = vld1q_s32(x->pair32 + at), offset = vshrq_n_s32(vshlq_n_s32(pair, 16), 16);
    const int32x4_t start = vdupq_n_s32(SPECDEC__DOTPROD_START_BITS);

    vst1q_f32(to->scale[b], vld1q_f32(x->scale + at));
    if (specdec__dotprod_has_float_code_sums(type))
        vst1q_s32(to->offset[b], vreinterpretq_s32_f32(vcvtq_f32_s32(offset)));
    else
        vst1q_s32(to->offset[b], vreinterpretq_s32_s8(vqtbl1q_s8(vreinterpretq_s8_s32(pair), vld1q_u8(bytes))));
    if (per == 1) {
        if (bias)
            vst1q_f32(to->excess[b], vreinterpretq_f32_s32(vmlaq_n_s32(
                                         start, vsraq_n_s32(vshlq_n_s32(offset, 5), pair, 16), bias)));
        if (specdec__dotprod_has_minimum(type))
            vst1q_f32(to->total[b], vld1q_f32(x->sum32 + at));
    } else {
        int32x4x2_t halves = vld2q_s32(x->pair16 + at * 2);
        float32x4x2_t totals = vld2q_f32(x->sum16 + at * 2);

        if (bias) {
            const int32x4_t more = specdec__dotprod_surplus_of_code_sum(type) ? vshlq_n_s32(offset, 4) : vdupq_n_s32(0);

            halves.val[0] = vsraq_n_s32(more, halves.val[0], 16);
            halves.val[1] = vsraq_n_s32(more, halves.val[1], 16);
            vst1q_f32(to->excess[b * 2], vreinterpretq_f32_s32(vmlaq_n_s32(start, halves.val[0], bias)));
            vst1q_f32(to->excess[b * 2 + 1], vreinterpretq_f32_s32(vmlaq_n_s32(start, halves.val[1], bias)));
        }
        if (specdec__dotprod_has_minimum(type)) {
            vst1q_f32(to->total[b * 2], totals.val[0]);
            vst1q_f32(to->total[b * 2 + 1], totals.val[1]);
        }
    }
}

/* Prepares `blocks` blocks of columns from `at` on. count: number of columns; it is columns, or 3 where columns is
   4. */
SPECDEC__INLINE void specdec__dotprod_prepare_columns(int type, int packed, const specdec__columns *x, size_t at,
                                                      int columns, int count, int blocks, specdec__dotprod_input *to)
{
    int b, c;

    to->codes = x->codes + at * 32;
    to->stride = (size_t)x->n * 32;
    to->fourth_column = (size_t)(count - 1) * 32;
    for (c = 0; c < columns; c++)
        vst1q_s32(to->start[c], vdupq_n_s32(SPECDEC__DOTPROD_START_BITS));
    for (b = 0; b < blocks; b++, at += (size_t)x->n)
        if (count == 4) {
            specdec__dotprod_prepare_four_columns(type, x, at, b, to);
        } else {
            SPECDEC__UNROLL
            for (c = 0; c < columns; c++)
                specdec__dotprod_prepare_column_block(type, packed, x, at + (size_t)specdec__min_int(c, count - 1),
                                                      columns, b, c, to);
        }
}

/* 32 values of four rows, unpacked: codes (value/4) and, for each granule, sums of codes, scales, and minimums without
   their sign. */
typedef struct specdec__dotprod_rows {
    int8x16_t codes[8], sums[2], second_sums[2]; /* second_sums: see specdec__dotprod_has_two_sums_per_granule */
    float32x4_t pair[2], scale[2], minimum[2];   /* (granule): sums of codes as floats, scales, minimums */
} specdec__dotprod_rows;

/* The data that blocks of up to 256 values of a tile (a run) share. factors (granule, 16 rows): the integer factors of
   scales, plus specdec__dotprod_factor_bias; of Q4_K, factors of minimums from [8] on; unused for Q2_K. factor_surplus
   is in memory, as a load costs less than a move between registers. */
typedef struct specdec__dotprod_run {
    const unsigned char *tile;                /* where the blocks begin in the tile */
    const specdec__panel *panel;              /* the panel that blocks are loaded from; NULL: from the tile */
    unsigned char factors[16][SPECDEC__ROWS]; /* (granule, row) integer factors of scales */
    float factor_surplus[2][4]; /* what products with d, with dmin, of four rows are too large by, negative */
} specdec__dotprod_run;

/* Four rows of a run, from row `row` on: d and dmin (for Q2_K a sixteenth). row_index: the index of each row in the
   second byte of its lane, no row's index in the other bytes. */
typedef struct specdec__dotprod_quad {
    int row;                                  /* the first of the four rows */
    float32x4_t d, dmin;                      /* floats that the rows' integer factors are multiplied by */
    uint8x16_t row_index, shared_two_bits[8]; /* shared_two_bits: for Q6_K and one column, two_bits that two blocks
                                                 share */
} specdec__dotprod_quad;

/* Returns the sum of 4 or 8 vectors of codes, byte by byte. */
SPECDEC__INLINE int8x16_t specdec__dotprod_sum_code_vectors(const int8x16_t *codes, int count)
{
    int8x16_t low = vaddq_s8(vaddq_s8(codes[0], codes[1]), vaddq_s8(codes[2], codes[3]));

    return count == 4 ? low
                      : vaddq_s8(low, vaddq_s8(vaddq_s8(codes[4], codes[5]), vaddq_s8(codes[6], codes[7])));
}

/* Returns the scales of granule k of four rows of a run: d times the factor. A factor becomes the float 2^15 + factor
   by setting one of its bytes; the product with 2^15 is subtracted before the only rounding, and no product has so many
   bits that it is rounded. */
SPECDEC__INLINE float32x4_t specdec__dotprod_scale_by_factor(const specdec__dotprod_run *run, int k, int way,
                                                             uint8x16_t which, float32x4_t d, const float *less)
{
    static const float from[4] = {32768, 32768, 32768, 32768};
    const unsigned char *factors = run->factors[k];
    uint8x16_t bits;
    float32x4_t product;

    SPECDEC__NEON_LOAD_CONSTANT(bits, from, factors, way);
    SPECDEC__NEON_LOAD_CONSTANT(product, less, factors, way);
    return vfmaq_f32(product, d, vreinterpretq_f32_u8(vqtbx1q_u8(bits, vld1q_u8(factors), which)));
}

/* Splits nibbles of four rows, 16 bytes each, into 32 codes a row. */
SPECDEC__INLINE void specdec__dotprod_split_nibbles(const unsigned char *nibbles, specdec__dotprod_rows *rows)
{
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 4; i++) {
        uint8x16_t packed = vld1q_u8(nibbles + i * 64);

        rows->codes[i] = specdec__neon_low_nibbles(packed);
        rows->codes[i + 4] = specdec__neon_high_nibbles(packed);
    }
}

/* Adds the fifth bits to 32 codes of four rows: bit i of a byte of `high` belongs to word i. */
SPECDEC__INLINE void specdec__dotprod_insert_fifth_bits(uint8x16_t high, specdec__dotprod_rows *rows)
{
    const uint8x16_t bit = vdupq_n_u8(16);
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 8; i++) {
        uint8x16_t moved = i < 4 ? vshlq_u8(high, vdupq_n_s8((int8_t)(4 - i))) : high;

        if (i > 4)
            moved = vshlq_u8(high, vdupq_n_s8((int8_t)(4 - i)));
        SPECDEC__NEON_INSERT_BITS(rows->codes[i], moved, bit);
    }
    rows->sums[0] = veorq_s8(specdec__dotprod_sum_code_vectors(rows->codes, 8), vdupq_n_s8(-128));
}

/* Computes rows->pair, the sums of the 8-bit codes of each granule of four rows, as floats. */
SPECDEC__DOTPROD SPECDEC__INLINE void specdec__dotprod_sum_wide_codes(specdec__dotprod_rows *rows)
{
    const int8x16_t ones = vdupq_n_s8(1);
    int32x4_t sum = vdupq_n_s32(SPECDEC__DOTPROD_START_BITS), more = vdupq_n_s32(0);
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 8; i += 2) {
        SPECDEC__SDOT(sum, rows->codes[i], ones, 0);
        SPECDEC__SDOT(more, rows->codes[i + 1], ones, 0);
    }
    rows->pair[0] = vsubq_f32(vreinterpretq_f32_s32(vaddq_s32(sum, more)), vdupq_n_f32(SPECDEC__DOTPROD_START));
}

/* Replaces the codes of four rows, nibbles, by the values of IQ4_NL and IQ4_XS that they index. */
SPECDEC__DOTPROD SPECDEC__INLINE void specdec__dotprod_look_up_iq4(specdec__dotprod_rows *rows)
{
    const int8x16_t values = vld1q_s8(specdec__quant_iq4_values);
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 8; i++)
        rows->codes[i] = vqtbl1q_s8(values, vreinterpretq_u8_s8(rows->codes[i]));
    specdec__dotprod_sum_wide_codes(rows);
}

/* Unpacks 32 values of four rows of block b of IQ2. */
SPECDEC__DOTPROD SPECDEC__INLINE void specdec__dotprod_load_iq2(int type, const specdec__dotprod_run *run, int b,
                                                                const specdec__dotprod_quad *quad,
                                                                specdec__dotprod_rows *rows)
{
    const int per = 32 / specdec__dotprod_values_per_scale(type), words = 8 / per;
    const int8x16_t ones = vdupq_n_s8(1);
    int g, i;

    specdec__neon_load_iq2(type, run->tile, b, quad->row, rows->codes);
    SPECDEC__UNROLL
    for (g = 0; g < per; g++) {
        int32x4_t sum = vdupq_n_s32(SPECDEC__DOTPROD_START_BITS);

        SPECDEC__UNROLL
        for (i = g * words; i < (g + 1) * words; i += 2)
            SPECDEC__SDOT(sum, vaddq_s8(rows->codes[i], rows->codes[i + 1]), ones, 0);
        rows->pair[g] = vsubq_f32(vreinterpretq_f32_s32(sum), vdupq_n_f32(SPECDEC__DOTPROD_START));
        rows->scale[g] = vmulq_f32(quad->d, specdec__neon_odd_factors(type, run->tile, b * per + g, quad->row));
    }
}

/* Unpacks four rows, from row `row` on, of a block of 32 nibbles with a half float as its scale: Q4_0, Q4_1, Q5_0,
   Q5_1, IQ4_NL. tile: 4 * row bytes behind the block's beginning. */
SPECDEC__DOTPROD SPECDEC__INLINE void specdec__dotprod_load_nibbles(int type, const unsigned char *tile, int row,
                                                                    specdec__dotprod_rows *rows)
{
    const size_t nibbles = type == SPECDEC__TYPE_Q4_1   ? SPECDEC__TILE_AT(q4_1, nibbles)
                           : type == SPECDEC__TYPE_Q5_0 ? SPECDEC__TILE_AT(q5_0, nibbles)
                           : type == SPECDEC__TYPE_Q5_1 ? SPECDEC__TILE_AT(q5_1, nibbles)
                                                        : SPECDEC__TILE_AT(q4_0, nibbles);

    specdec__dotprod_split_nibbles(tile + nibbles, rows);
    if (type == SPECDEC__TYPE_IQ4_NL)
        specdec__dotprod_look_up_iq4(rows);
    else if (type == SPECDEC__TYPE_Q5_0)
        specdec__dotprod_insert_fifth_bits(vld1q_u8(tile + SPECDEC__TILE_AT(q5_0, high)), rows);
    else if (type == SPECDEC__TYPE_Q5_1)
        specdec__dotprod_insert_fifth_bits(vld1q_u8(tile + SPECDEC__TILE_AT(q5_1, high)), rows);
    else
        rows->sums[0] = specdec__dotprod_sum_code_vectors(rows->codes, 8);
    rows->scale[0] = specdec__neon_load_f16x4(tile - row * 2);
    if (specdec__dotprod_has_minimum(type)) /* at the same offset in both types */
        rows->minimum[0] = specdec__neon_load_f16x4(tile + SPECDEC__TILE_AT(q4_1, minimum) - row * 2);
}

/* Unpacks 32 values of the four rows from row `row` on of a block of Q8_0. */
SPECDEC__DOTPROD SPECDEC__INLINE void specdec__dotprod_load_q8_0(const unsigned char *tile, int row,
                                                                 specdec__dotprod_rows *rows)
{
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 8; i++)
        rows->codes[i] = vld1q_s8((const int8_t *)tile + SPECDEC__TILE_AT(q8_0, codes) + i * 64);
    specdec__dotprod_sum_wide_codes(rows);
    rows->scale[0] = specdec__neon_load_f16x4(tile - row * 2);
}

/* Unpacks four rows of block b of IQ4_XS. */
SPECDEC__DOTPROD SPECDEC__INLINE void specdec__dotprod_load_iq4_xs(const specdec__dotprod_run *run, int b,
                                                                   const specdec__dotprod_quad *quad,
                                                                   specdec__dotprod_rows *rows)
{
    specdec__dotprod_split_nibbles(run->tile + SPECDEC__TILE_AT(iq4_xs, nibbles) + b * 256 + quad->row * 4, rows);
    specdec__dotprod_look_up_iq4(rows);
    rows->scale[0] = specdec__dotprod_scale_by_factor(run, b, b, quad->row_index, quad->d, run->factor_surplus[0]);
}

/* Computes the scale and the minimum of granule i of a block of Q2_K, granule k of its tile, for four rows: the nibbles
   of a byte, which becomes the second byte of the float 2^15, so that the high nibble counts 16 times: see
   specdec__dotprod_scale_by_factor. */
SPECDEC__INLINE void specdec__dotprod_scales_q2_k(const specdec__dotprod_run *run, int k, int i,
                                                  const specdec__dotprod_quad *quad, specdec__dotprod_rows *rows)
{
    const uint8x16_t start = vreinterpretq_u8_u32(vdupq_n_u32(0x47000000u));
    const unsigned char *both = run->tile + SPECDEC__TILE_AT(q2_k, scales) + k * 16;
    const uint32x4_t bits = vreinterpretq_u32_u8(vqtbx1q_u8(start, vld1q_u8(both), quad->row_index));

    SPECDEC__NEON_LOAD_CONSTANT(rows->scale[i], run->factor_surplus[0], both, i);
    SPECDEC__NEON_LOAD_CONSTANT(rows->minimum[i], run->factor_surplus[1], both, i);
    rows->scale[i] = vfmaq_f32(rows->scale[i], quad->d, vreinterpretq_f32_u32(vbicq_u32(bits, vdupq_n_u32(0xF000))));
    rows->minimum[i] = vfmaq_f32(rows->minimum[i], quad->dmin,
                                 vreinterpretq_f32_u32(vbicq_u32(bits, vdupq_n_u32(0x0F00))));
}

/* Unpacks four rows of block b of Q2_K or Q3_K. way: b % 4. */
SPECDEC__INLINE void specdec__dotprod_load_two_bits(int type, const specdec__dotprod_run *run, int b, int way,
                                                    const specdec__dotprod_quad *quad, specdec__dotprod_rows *rows)
{
    const int row = quad->row;
    const int has_high = type == SPECDEC__TYPE_Q3_K;
    const unsigned char *two_bits = run->tile + (b - way) * 128 + row * 4 +
                                  (has_high ? SPECDEC__TILE_AT(q3_k, two_bits) : SPECDEC__TILE_AT(q2_k, two_bits));
    const unsigned char *high = run->tile + SPECDEC__TILE_AT(q3_k, high) + row * 4;
    const uint8x16_t low_two_bits = vdupq_n_u8(3), third = vdupq_n_u8(4), bit = vdupq_n_u8((uint8_t)(1 << b));
    int i;

    SPECDEC__NEON_RELOAD(two_bits);
    SPECDEC__UNROLL
    for (i = 0; i < 8; i++) {
        uint8x16_t packed = vld1q_u8(two_bits + i * 64);
        uint8x16_t code = way == 0   ? packed
                          : way == 1 ? vshrq_n_u8(packed, 2)
                          : way == 2 ? vshrq_n_u8(packed, 4)
                                     : vshrq_n_u8(packed, 6);

        if (way < 3)
            code = vandq_u8(code, low_two_bits);
        if (has_high)
            SPECDEC__NEON_INSERT_BITS(code, vtstq_u8(vld1q_u8(high + i * 64), bit), third);
        rows->codes[i] = vreinterpretq_s8_u8(code);
    }
    SPECDEC__UNROLL
    for (i = 0; i < 2; i++) {
        rows->sums[i] = specdec__dotprod_sum_code_vectors(rows->codes + i * 4, 4);
        if (has_high)
            rows->scale[i] = specdec__dotprod_scale_by_factor(run, b * 2 + i, i, quad->row_index, quad->d,
                                                              run->factor_surplus[0]);
        else
            specdec__dotprod_scales_q2_k(run, b * 2 + i, i, quad, rows);
    }
}

/* Unpacks four rows of block b of Q4_K or Q5_K, the first or second of two that share bytes. With one column, or for a
   panel (no column), registers keep the nibbles for the second block. */
SPECDEC__INLINE void specdec__dotprod_load_q4_q5_k(int type, const specdec__dotprod_run *run, int b, int second,
                                                   int columns, const specdec__dotprod_quad *quad,
                                                   specdec__dotprod_rows *rows)
{
    const int has_high = type == SPECDEC__TYPE_Q5_K, row = quad->row;
    const unsigned char *high = run->tile + SPECDEC__TILE_AT(q5_k, high) + row * 4;
    const unsigned char *nibbles = run->tile + (b - second) * 256 + row * 4 +
                                   (has_high ? SPECDEC__TILE_AT(q5_k, nibbles) : SPECDEC__TILE_AT(q4_k, nibbles));
    const uint8x16_t bit = vdupq_n_u8(16);
    const int8x16_t by = vdupq_n_s8((int8_t)(4 - b));
    int i;

    if (columns > 1)
        SPECDEC__NEON_RELOAD(nibbles);
    SPECDEC__UNROLL
    for (i = 0; i < 8; i++) {
        uint8x16_t packed = vld1q_u8(nibbles + i * 64);

        rows->codes[i] = second ? specdec__neon_high_nibbles(packed) : specdec__neon_low_nibbles(packed);
        if (has_high)
            SPECDEC__NEON_INSERT_BITS(rows->codes[i], vshlq_u8(vld1q_u8(high + i * 64), by), bit);
    }
    rows->sums[0] = specdec__dotprod_sum_code_vectors(rows->codes, 8);
    if (has_high)
        rows->sums[0] = veorq_s8(rows->sums[0], vdupq_n_s8(-128));
    rows->scale[0] = specdec__dotprod_scale_by_factor(run, b, second, quad->row_index, quad->d, run->factor_surplus[0]);
    rows->minimum[0] = specdec__dotprod_scale_by_factor(run, b + 8, second, quad->row_index, quad->dmin,
                                                        run->factor_surplus[1]);
}

/* Unpacks four rows of block b of Q6_K. way: b % 4. */
SPECDEC__INLINE void specdec__dotprod_load_q6_k(const specdec__dotprod_run *run, int b, int way, int columns,
                                                specdec__dotprod_quad *quad, specdec__dotprod_rows *rows)
{
    const int row = quad->row;
    const unsigned char *nibbles = run->tile + SPECDEC__TILE_AT(q6_k, nibbles) + (b - way + way % 2 * 2) * 256;
    const unsigned char *two_bits = run->tile + SPECDEC__TILE_AT(q6_k, two_bits) + (b - way) * 128;
    const uint8x16_t six = vdupq_n_u8(63);
    int i;

    SPECDEC__NEON_RELOAD(nibbles);
    SPECDEC__NEON_RELOAD(two_bits);
    SPECDEC__UNROLL
    for (i = 0; i < 8; i++) {
        uint8x16_t low = vld1q_u8(nibbles + i * 64 + row * 4), high;

        if (way == 3 && columns <= 1)
            high = quad->shared_two_bits[i];
        else
            high = vld1q_u8(two_bits + i * 64 + row * 4);
        if (way % 2 && !(way == 3 && columns <= 1))
            high = vshrq_n_u8(high, 2);
        if (way == 1 && columns <= 1)
            quad->shared_two_bits[i] = high;
        low = way < 2 ? vsliq_n_u8(low, high, 4) : vsriq_n_u8(high, low, 4);
        rows->codes[i] = vreinterpretq_s8_u8(way == 3 ? low : vandq_u8(low, six));
    }
    SPECDEC__UNROLL
    for (i = 0; i < 2; i++) {
        if (specdec__dotprod_has_two_sums_per_granule(SPECDEC__TYPE_Q6_K, 1, columns)) {
            rows->sums[i] = vaddq_s8(rows->codes[i * 4], rows->codes[i * 4 + 1]);
            rows->second_sums[i] = vaddq_s8(rows->codes[i * 4 + 2], rows->codes[i * 4 + 3]);
        } else {
            rows->sums[i] = veorq_s8(specdec__dotprod_sum_code_vectors(rows->codes + i * 4, 4), vdupq_n_s8(-128));
        }
        rows->scale[i] = specdec__dotprod_scale_by_factor(run, b * 2 + i, way * 2 + i, quad->row_index, quad->d,
                                                          run->factor_surplus[0]);
    }
}

/* Unpacks four rows of block b of a type of few bits. */
SPECDEC__INLINE void specdec__dotprod_load_few_bits(int type, const specdec__dotprod_run *run, int b, int row,
                                                    specdec__dotprod_rows *rows)
{
    const unsigned char *own = specdec__neon_find_file_block(type, run->tile, b);
    const int part = b % specdec__neon_groups_per_file_block(type);
    uint8x16_t ones;

    specdec__neon_unpack_few_bits_codes(type, own, part, row, rows->codes);
    if (type == SPECDEC__TYPE_Q1_0) { /* codes are twice the bits */
        ones = vcntq_u8(vld1q_u8(own + SPECDEC__TILE_AT(q1_0, bits) + part * 64 + row * 4));
        rows->sums[0] = vreinterpretq_s8_u8(vaddq_u8(ones, ones));
    } else {
        rows->sums[0] = specdec__dotprod_sum_code_vectors(rows->codes, 8);
    }
    rows->scale[0] = specdec__neon_load_few_bits_scales(type, own, row);
}

/* Loads four rows of block b of a panel; the codes of Q8_0 stay in the tile. */
SPECDEC__INLINE void specdec__dotprod_load_panel(int type, const specdec__dotprod_run *run, int b, int row,
                                                 specdec__dotprod_rows *rows)
{
    const int per = 32 / specdec__dotprod_values_per_scale(type);
    const specdec__panel *panel = run->panel;
    const int8_t *codes = panel->u.codes + b * 512;
    int i;

    if (type == SPECDEC__TYPE_Q8_0)
        codes = (const int8_t *)run->tile + (size_t)b * SPECDEC__TILE_BYTES(q8_0) + SPECDEC__TILE_AT(q8_0, codes);
    SPECDEC__UNROLL
    for (i = 0; i < 8; i++)
        rows->codes[i] = vld1q_s8(codes + i * 64 + row * 4);
    SPECDEC__UNROLL
    for (i = 0; i < per; i++) {
        const int32_t *pair = panel->pair[b * per + i] + row;

        if (type == SPECDEC__TYPE_Q8_0)
            rows->pair[i] = vreinterpretq_f32_s32(vld1q_s32(pair));
        else if (specdec__dotprod_has_float_code_sums(type))
            rows->pair[i] = vcvtq_f32_s32(vld1q_s32(pair));
        else
            rows->sums[i] = vreinterpretq_s8_s32(vld1q_s32(pair));
        rows->scale[i] = vld1q_f32(panel->scale[b * per + i] + row);
        if (specdec__dotprod_has_minimum(type))
            rows->minimum[i] = vld1q_f32(panel->minimum[b * per + i] + row);
    }
}

/* Unpacks four rows of block b of a tile, or loads them from a panel. way: b modulo specdec__dotprod_count_unpack_ways,
   a constant. */
SPECDEC__DOTPROD SPECDEC__INLINE void specdec__dotprod_load_block(int type, int packed, const specdec__dotprod_run *run,
                                                                  int b, int way, int columns,
                                                                  specdec__dotprod_quad *quad,
                                                                  specdec__dotprod_rows *rows)
{
    const int row = quad->row;
    const unsigned char *tile = run->tile + (size_t)b * specdec__dotprod_block_bytes(type) + row * 4;

    if (SPECDEC__NEON_KEEPS_LOADS)
        SPECDEC__NEON_HIDE_ADDRESS(tile); /* one address: else gcc uses a register for each 64 bytes */
    if (!packed)
        specdec__dotprod_load_panel(type, run, b, row, rows);
    else if (type == SPECDEC__TYPE_Q8_0)
        specdec__dotprod_load_q8_0(tile, row, rows);
    else if (type == SPECDEC__TYPE_IQ4_XS)
        specdec__dotprod_load_iq4_xs(run, b, quad, rows);
    else if (specdec__neon_is_iq2(type))
        specdec__dotprod_load_iq2(type, run, b, quad, rows);
    else if (type == SPECDEC__TYPE_Q2_K || type == SPECDEC__TYPE_Q3_K)
        specdec__dotprod_load_two_bits(type, run, b, way, quad, rows);
    else if (type == SPECDEC__TYPE_Q6_K)
        specdec__dotprod_load_q6_k(run, b, way, columns, quad, rows);
    else if (specdec__dotprod_has_few_bit_codes(type))
        specdec__dotprod_load_few_bits(type, run, b, row, rows);
    else if (specdec__dotprod_has_q4_k_scales(type))
        specdec__dotprod_load_q4_q5_k(type, run, b, way, columns, quad, rows);
    else
        specdec__dotprod_load_nibbles(type, tile, row, rows);
}

/* Unpacks the factors of Q6_K, which are signed bytes. */
SPECDEC__INLINE void specdec__dotprod_unpack_factors_q6_k(specdec__dotprod_run *run)
{
    const unsigned char *scales = run->tile + SPECDEC__TILE_AT(q6_k, scales);
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 16; i++)
        vst1q_u8(run->factors[i], veorq_u8(vld1q_u8(scales + i * 16), vdupq_n_u8(128)));
}

/* Unpacks the factors of scales and minimums of a run. */
SPECDEC__INLINE void specdec__dotprod_unpack_factors(int type, specdec__dotprod_run *run)
{
    int i;

    for (i = 0; i < 4 && specdec__dotprod_has_q4_k_scales(type); i++) {
        specdec__neon_factor_pairs factors = specdec__neon_unpack_factors_q4_q5_k(
            run->tile + SPECDEC__TILE_AT(q4_k, scales) + i * 16);

        vst1q_u8(run->factors[i], vreinterpretq_u8_s8(factors.scale[0]));
        vst1q_u8(run->factors[i + 4], vreinterpretq_u8_s8(factors.scale[1]));
        vst1q_u8(run->factors[i + 8], vreinterpretq_u8_s8(factors.minimum[0]));
        vst1q_u8(run->factors[i + 12], vreinterpretq_u8_s8(factors.minimum[1]));
    }
    if (type == SPECDEC__TYPE_Q6_K)
        specdec__dotprod_unpack_factors_q6_k(run);
    for (i = 0; i < 16 && type == SPECDEC__TYPE_Q3_K; i++)
        vst1q_u8(run->factors[i], specdec__neon_unpack_factors_q3_k(run->tile, i));
    for (i = 0; i < 8 && type == SPECDEC__TYPE_IQ4_XS; i++)
        vst1q_u8(run->factors[i], specdec__neon_unpack_factors_iq4_xs(run->tile, i));
}

/* Loads d and dmin of the four rows from row `row` on of a run. */
SPECDEC__INLINE void specdec__dotprod_load_scales(int type, specdec__dotprod_run *run, int row,
                                                  specdec__dotprod_quad *quad)
{
    static const uint32_t which[SPECDEC__ROWS] = {
        0xFFFF00FF, 0xFFFF01FF, 0xFFFF02FF, 0xFFFF03FF, 0xFFFF04FF, 0xFFFF05FF, 0xFFFF06FF, 0xFFFF07FF,
        0xFFFF08FF, 0xFFFF09FF, 0xFFFF0AFF, 0xFFFF0BFF, 0xFFFF0CFF, 0xFFFF0DFF, 0xFFFF0EFF, 0xFFFF0FFF};
    const unsigned char *d = run->tile + specdec__dotprod_offset_of_d(type) + row * 2;
    const int raised = specdec__dotprod_factor_bias(type);

    quad->row = row;
    if (specdec__neon_is_iq2(type))
        quad->d = vmulq_n_f32(specdec__neon_load_f16x4(d), specdec__neon_grid_factor(type));
    if (raised < 0)
        return;
    quad->row_index = vreinterpretq_u8_u32(vld1q_u32(which + row));
    quad->d = specdec__neon_load_f16x4(d);
    vst1q_f32(run->factor_surplus[0], vmulq_n_f32(quad->d, (float)(-32768 - raised)));
    if (specdec__dotprod_has_minimum(type)) {
        quad->dmin = specdec__neon_load_f16x4(d + SPECDEC__ROWS * 2);
        if (type == SPECDEC__TYPE_Q2_K)
            quad->dmin = vmulq_n_f32(quad->dmin, 0.0625f);
        vst1q_f32(run->factor_surplus[1], vmulq_n_f32(quad->dmin, -32768));
    }
}

/* Returns the element-wise larger of two times 8 half floats: twice their bits without the sign, as integers. */
SPECDEC__INLINE uint16x8_t specdec__dotprod_larger_half_floats(const unsigned char *d)
{
    const uint16x8_t low = vreinterpretq_u16_u8(vld1q_u8(d)), high = vreinterpretq_u16_u8(vld1q_u8(d + 16));

    return vmaxq_u16(vshlq_n_u16(low, 1), vshlq_n_u16(high, 1));
}

/* Returns whether a tile has scales that are not finite: specdec__dotprod_scale_by_factor cannot subtract from these.
   */
SPECDEC__INLINE int specdec__dotprod_has_infinite_scale(int type, const unsigned char *tile)
{
    const unsigned char *d = tile + specdec__dotprod_offset_of_d(type);
    uint16x8_t most;

    if (specdec__dotprod_factor_bias(type) < 0)
        return 0;
    most = specdec__dotprod_larger_half_floats(d);
    if (specdec__dotprod_has_minimum(type))
        most = vmaxq_u16(most, specdec__dotprod_larger_half_floats(d + 32));
    return vmaxvq_u16(most) >= 0xF800;
}

/* dot (column) += four values of four rows times those of every column. */
#define SPECDEC__DOTPROD_EACH_COLUMN(w, lane) \
    SPECDEC__UNROLL \
    for (c = 0; c < columns; c++) \
        SPECDEC__SDOT(dot[c], w, v[c], lane)

/* Adds granule g of block b, in the canonical order to acc (column): the exact sums dot, which began at
   SPECDEC__DOTPROD_START, times both scales; and the minimum. */
SPECDEC__INLINE void specdec__dotprod_add_granule(int type, int columns, const specdec__dotprod_rows *rows, int g,
                                                  const specdec__dotprod_input *x, int b, float32x4_t scales,
                                                  const int32x4_t *dot, float32x4_t *acc)
{
    const int k = b * (32 / specdec__dotprod_values_per_scale(type)) + g;
    const int has_excess = specdec__dotprod_bias(type) || specdec__dotprod_surplus_of_code_sum(type);
    const float32x4_t one = vdupq_n_f32(1), start = vdupq_n_f32(SPECDEC__DOTPROD_START);
    const float32x4_t excess = vld1q_f32(x->excess[k]), totals = vld1q_f32(x->total[k]);
    const float32x4_t offsets = vreinterpretq_f32_s32(vld1q_s32(x->offset[b]));
    int c;

    SPECDEC__UNROLL
    for (c = 0; c < columns; c++) {
        float32x4_t sum = vreinterpretq_f32_s32(dot[c]);

        if (specdec__dotprod_has_float_code_sums(type))
            sum = vfmaq_n_f32(sum, rows->pair[g], offsets[c]);
        sum = has_excess ? vfmsq_n_f32(sum, one, excess[c]) : vsubq_f32(sum, start);
        acc[c] = vfmaq_f32(acc[c], vmulq_n_f32(rows->scale[g], scales[c]), sum);
        if (specdec__dotprod_has_minimum(type))
            acc[c] = specdec__dotprod_subtracts_minimum(type) ? vfmsq_n_f32(acc[c], rows->minimum[g], totals[c])
                                                          : vfmaq_n_f32(acc[c], rows->minimum[g], totals[c]);
    }
}

/* Adds four rows of block b times columns to acc (column). */
SPECDEC__DOTPROD SPECDEC__INLINE void specdec__dotprod_multiply_block(int type, int packed, int columns,
                                                                      const specdec__dotprod_rows *rows,
                                                                      const specdec__dotprod_input *x,
                                                                      const int8_t *codes, int b, float32x4_t *acc)
{
    const int per = 32 / specdec__dotprod_values_per_scale(type), words = 8 / per;
    float32x4_t scales = vld1q_f32(x->scale[b]);
    const int8x16_t bytes = vreinterpretq_s8_s32(vld1q_s32(x->offset[b]));
    int g, c, h;

    SPECDEC__UNROLL
    for (g = 0; g < per; g++) {
        const int8_t *fourth = codes + (packed ? x->fourth_column : 96);
        const int32_t *begin = x->start[0];
        const float *factors = x->scale[b];
        int32x4_t dot[4];

        if (g) {
            SPECDEC__NEON_RELOAD(factors);
            scales = vld1q_f32(factors);
        }
        SPECDEC__NEON_HIDE_ADDRESS(begin);
        SPECDEC__UNROLL
        for (c = 0; c < columns; c++)
            if (packed || (per == 2 && SPECDEC__NEON_KEEPS_LOADS))
                SPECDEC__NEON_LOAD_CONSTANT(dot[c], x->start[c], codes, g * 4 + c);
            else
                dot[c] = vld1q_s32(begin + c * 4);
        SPECDEC__UNROLL
        for (h = g * words; h < (g + 1) * words; h += 4) {
            int8x16_t v[4];

            SPECDEC__UNROLL
            for (c = 0; c < columns; c++)
                v[c] = vld1q_s8((c == 3 ? fourth : codes + c * 32) + h * 4);
            SPECDEC__DOTPROD_EACH_COLUMN(rows->codes[h], 0);
            SPECDEC__DOTPROD_EACH_COLUMN(rows->codes[h + 1], 1);
            SPECDEC__DOTPROD_EACH_COLUMN(rows->codes[h + 2], 2);
            SPECDEC__DOTPROD_EACH_COLUMN(rows->codes[h + 3], 3);
            if (!packed && per == 1)
                SPECDEC__NEON_COMPILER_BARRIER;
        }
        if (packed)
            SPECDEC__NEON_COMPILER_BARRIER;
        if (!specdec__dotprod_has_float_code_sums(type)) {
            SPECDEC__SDOT(dot[0], rows->sums[g], bytes, 0);
            if (specdec__dotprod_has_two_sums_per_granule(type, packed, columns))
                SPECDEC__SDOT(dot[0], rows->second_sums[g], bytes, 0);
            if (columns > 1)
                SPECDEC__SDOT(dot[1], rows->sums[g], bytes, 1);
            if (columns > 2)
                SPECDEC__SDOT(dot[2], rows->sums[g], bytes, 2);
            if (columns > 3)
                SPECDEC__SDOT(dot[3], rows->sums[g], bytes, 3);
        }
        specdec__dotprod_add_granule(type, columns, rows, g, x, b, scales, dot, acc);
    }
}

/* Prefetches a quarter of a block; it is called for every four rows of a block. Types of which whole lines of 64 bytes
   are the largest part prefetch only those. */
SPECDEC__INLINE void specdec__dotprod_prefetch_quarter_block(int type, const unsigned char **ahead)
{
    const int share = (int)specdec__dotprod_block_bytes(type) / 4, most = share % 64 <= 8;
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < share - most * 8; i += 64)
        __builtin_prefetch(*ahead + i, 0, 3);
    *ahead += most ? share / 64 * 64 : share;
}

/* Prefetches the rest of up to 8 blocks for four rows: 8 bytes for each block. */
SPECDEC__INLINE void specdec__dotprod_prefetch_rest_of_blocks(int type, const unsigned char **ahead)
{
    if (specdec__dotprod_block_bytes(type) / 4 % 64 <= 8) {
        __builtin_prefetch(*ahead, 0, 3);
        *ahead += 64;
    }
}

/* Returns word i of granule g of four rows of a block of Q6_K: four codes of each row. way: which one of the four
   blocks whose nibbles and two_bits begin here. kept, unless NULL: the two_bits of the second block, from which the
   bits of the fourth block are taken. The instructions of a way are one asm statement, as gcc would copy registers that
   they overwrite. */
SPECDEC__INLINE int8x16_t specdec__dotprod_unpack_word_q6_k(const unsigned char *nibbles, const unsigned char *two_bits,
                                                            int way, int g, int i, uint8x16_t *kept)
{
    const uint8x16_t six = vdupq_n_u8(63);
    const unsigned char *from = nibbles + way % 2 * 512 + g * 256 + i * 64;
    uint8x16_t low, high;

    two_bits += g * 256 + i * 64;
    SPECDEC__NEON_LOAD_CONSTANT(low, from, from, way);
    if (way == 3 && kept)
        high = kept[g * 4 + i];
    else
        SPECDEC__NEON_LOAD_CONSTANT(high, two_bits, two_bits, way);
    if (way == 0)
        __asm__("sli %0.16b, %1.16b, #4\n\tand %0.16b, %0.16b, %2.16b" : "+w"(low) : "w"(high), "w"(six));
    else if (way == 1)
        __asm__("ushr %1.16b, %1.16b, #2\n\tsli %0.16b, %1.16b, #4\n\tand %0.16b, %0.16b, %2.16b"
                : "+w"(low), "+w"(high)
                : "w"(six));
    else if (way == 2)
        __asm__("sri %1.16b, %0.16b, #4\n\tand %0.16b, %1.16b, %2.16b" : "+w"(low), "+w"(high) : "w"(six));
    else if (kept)
        __asm__("sri %0.16b, %1.16b, #4" : "+w"(high) : "w"(low));
    else
        __asm__("ushr %0.16b, %0.16b, #2\n\tsri %0.16b, %1.16b, #4" : "+w"(high) : "w"(low));
    if (way == 1 && kept)
        kept[g * 4 + i] = high;
    return vreinterpretq_s8_u8(way == 3 ? high : low);
}

/* Multiplies word i of a granule with columns, and unpacks word i of the next granule. */
#define SPECDEC__DOTPROD_WORD(i) \
    SPECDEC__UNROLL \
    for (c = 0; c < columns; c++) \
        SPECDEC__SDOT_IN_PLACE(dot[c], w[i], v[c], i); \
    if (way + g < 4) \
        next[i] = specdec__dotprod_unpack_word_q6_k(nibbles, two_bits, way + g, 1 - g, i, \
                                                    columns == 1 ? quad->shared_two_bits : NULL); \
    SPECDEC__NEON_COMPILER_BARRIER

/* Adds granule g of four rows of block b of Q6_K, number `way` of four, times columns to acc (column). w: the granule's
   codes; next: becomes the codes of the next granule, as alternating unpacking and multiplying uses more of the core.
   */
SPECDEC__DOTPROD SPECDEC__INLINE void
specdec__dotprod_multiply_granule_q6_k(const specdec__dotprod_run *run, int b, int way, int g, int columns,
                                       specdec__dotprod_quad *quad, const specdec__dotprod_input *x,
                                       const int8_t *codes, const int8x16_t *w, int8x16_t *next, float32x4_t *acc)
{
    const unsigned char *tile = run->tile + quad->row * 4;
    const unsigned char *nibbles = tile + SPECDEC__TILE_AT(q6_k, nibbles) + (b - way) * 256;
    const unsigned char *two_bits = tile + SPECDEC__TILE_AT(q6_k, two_bits) + (b - way) * 128;
    const int halved = specdec__dotprod_has_two_sums_per_granule(SPECDEC__TYPE_Q6_K, 1, columns);
    const int8x16_t half = vaddq_s8(w[0], w[1]), other = vaddq_s8(w[2], w[3]);
    const int8x16_t sum = halved ? half : veorq_s8(vaddq_s8(half, other), vdupq_n_s8(-128));
    const int8x16_t bytes = vreinterpretq_s8_s32(vld1q_s32(x->offset[b]));
    specdec__dotprod_rows rows;
    float32x4_t scales;
    int32x4_t dot[4];
    int8x16_t v[4];
    int c;

    SPECDEC__UNROLL
    for (c = 0; c < columns; c++) {
        SPECDEC__NEON_LOAD_CONSTANT(dot[c], x->start[c], codes, g * 4 + c);
        v[c] = vld1q_s8(codes + (c == 3 ? x->fourth_column : (size_t)c * 32) + g * 16);
    }
    SPECDEC__DOTPROD_WORD(0);
    SPECDEC__DOTPROD_WORD(1);
    SPECDEC__DOTPROD_WORD(2);
    SPECDEC__DOTPROD_WORD(3);
    SPECDEC__SDOT_IN_PLACE(dot[0], sum, bytes, 0);
    if (halved)
        SPECDEC__SDOT_IN_PLACE(dot[0], other, bytes, 0);
    if (columns > 1)
        SPECDEC__SDOT_IN_PLACE(dot[1], sum, bytes, 1);
    if (columns > 2) {
        SPECDEC__SDOT_IN_PLACE(dot[2], sum, bytes, 2);
        SPECDEC__SDOT_IN_PLACE(dot[3], sum, bytes, 3);
    }
    rows.scale[g] = specdec__dotprod_scale_by_factor(run, b * 2 + g, way * 2 + g, quad->row_index, quad->d,
                                                     run->factor_surplus[0]);
    SPECDEC__NEON_LOAD_CONSTANT(scales, x->scale[b], codes, g);
    specdec__dotprod_add_granule(SPECDEC__TYPE_Q6_K, columns, &rows, g, x, b, scales, dot, acc);
    SPECDEC__NEON_COMPILER_BARRIER;
}

/* Adds four blocks of Q6_K of four rows, from block b on, times columns to acc (column). */
SPECDEC__DOTPROD SPECDEC__INLINE void
specdec__dotprod_multiply_four_blocks_q6_k(const specdec__dotprod_run *run, int b, int columns,
                                           specdec__dotprod_quad *quad, const specdec__dotprod_input *x,
                                           const int8_t *codes, const unsigned char **ahead, float32x4_t *acc)
{
    const unsigned char *tile = run->tile + quad->row * 4;
    int8x16_t w[4], next[4];
    int way, i;

    SPECDEC__UNROLL
    for (i = 0; i < 4; i++)
        w[i] = specdec__dotprod_unpack_word_q6_k(tile + SPECDEC__TILE_AT(q6_k, nibbles) + b * 256,
                                                 tile + SPECDEC__TILE_AT(q6_k, two_bits) + b * 128, 0, 0, i, NULL);
    SPECDEC__UNROLL
    for (i = 0; i < 8; i++)
        quad->shared_two_bits[i] = vdupq_n_u8(0); /* never read, but gcc warns if loops are not unrolled */
    SPECDEC__UNROLL
    for (way = 0; way < 4; way++, codes += x->stride) {
        specdec__dotprod_prefetch_quarter_block(SPECDEC__TYPE_Q6_K, ahead);
        specdec__dotprod_multiply_granule_q6_k(run, b + way, way, 0, columns, quad, x, codes, w, next, acc);
        specdec__dotprod_multiply_granule_q6_k(run, b + way, way, 1, columns, quad, x, codes, next, w, acc);
    }
}

/* Adds up to 8 blocks, of a tile or a panel, times 1 to 4 columns to sums (column, 16). */
SPECDEC__DOTPROD SPECDEC__INLINE void specdec__dotprod_multiply_run(int type, int packed, int columns,
                                                                    specdec__dotprod_run *run, int blocks,
                                                                    const unsigned char *ahead,
                                                                    const specdec__dotprod_input *x, float *sums)
{
    const int ways = packed ? specdec__dotprod_count_unpack_ways(type) : 1;
    int row, b, c, way;

    for (row = 0; row < SPECDEC__ROWS; row += 4) {
        const int8_t *codes = x->codes;
        float *last = sums + (packed ? x->fourth_column / 2 : 48) + row;
        specdec__dotprod_quad quad;
        float32x4_t acc[4];

        specdec__dotprod_load_scales(packed ? type : SPECDEC__TYPE_COUNT, run, row, &quad);
        if (packed)
            specdec__dotprod_prefetch_rest_of_blocks(type, &ahead);
        SPECDEC__UNROLL
        for (c = 0; c < columns; c++)
            acc[c] = vld1q_f32(c == 3 ? last : sums + c * SPECDEC__ROWS + row);
        for (b = 0; b < blocks; b += ways) {
            if (type == SPECDEC__TYPE_Q6_K && packed && SPECDEC__NEON_KEEPS_LOADS) {
                specdec__dotprod_multiply_four_blocks_q6_k(run, b, columns, &quad, x, codes, &ahead, acc);
                codes += x->stride * 4;
                continue;
            }
            SPECDEC__UNROLL
            for (way = 0; way < ways; way++, codes += x->stride) {
                specdec__dotprod_rows rows;

                if (packed)
                    specdec__dotprod_prefetch_quarter_block(type, &ahead);
                specdec__dotprod_load_block(type, packed, run, b + way, way, columns, &quad, &rows);
                SPECDEC__NEON_COMPILER_BARRIER;
                specdec__dotprod_multiply_block(type, packed, columns, &rows, x, codes, b + way, acc);
            }
        }
        SPECDEC__UNROLL
        for (c = 0; c < columns; c++)
            vst1q_f32(c == 3 ? last : sums + c * SPECDEC__ROWS + row, acc[c]);
    }
}

/* Stores four rows of a block in a panel; for Q8_0 all but the codes. */
SPECDEC__INLINE void specdec__dotprod_store_panel(int type, const specdec__dotprod_rows *rows, int block, int row,
                                                  specdec__panel *panel)
{
    const int per = 32 / specdec__dotprod_values_per_scale(type), kept = type == SPECDEC__TYPE_Q8_0 ? 0 : 8;
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < kept; i++)
        vst1q_s8(panel->u.codes + block * 512 + i * 64 + row * 4, rows->codes[i]);
    SPECDEC__UNROLL
    for (i = 0; i < per; i++) {
        const int32x4_t sums = type == SPECDEC__TYPE_Q8_0 ? vreinterpretq_s32_f32(rows->pair[i])
                                                          : vreinterpretq_s32_s8(rows->sums[i]);

        vst1q_s32(panel->pair[block * per + i] + row, sums);
        vst1q_f32(panel->scale[block * per + i] + row, rows->scale[i]);
        if (specdec__dotprod_has_minimum(type))
            vst1q_f32(panel->minimum[block * per + i] + row, rows->minimum[i]);
    }
}

/* Stores the words of two vectors alternately: the first two words of each, then the last two. */
SPECDEC__INLINE void specdec__i8mm_store_words_alternately(int8_t *to, int8x16_t even, int8x16_t odd)
{
    const int32x4_t first = vreinterpretq_s32_s8(even), second = vreinterpretq_s32_s8(odd);

    vst1q_s8(to, vreinterpretq_s8_s32(vzip1q_s32(first, second)));
    vst1q_s8(to + 16, vreinterpretq_s8_s32(vzip2q_s32(first, second)));
}

/* Stores four rows of a block with granules of 32 in a panel for matrix products: codes (value/8, row, 8), minimums
   with their sign. pair: for wide types the sums of codes as floats; for others (row, 8) bytes, whose first four add up
   to the sum. */
SPECDEC__INLINE void specdec__i8mm_store_panel(int type, const specdec__dotprod_rows *rows, int block, int row,
                                               specdec__panel *panel)
{
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 8; i += 2)
        specdec__i8mm_store_words_alternately(panel->u.codes + block * 512 + i * 64 + row * 8, rows->codes[i],
                                              rows->codes[i + 1]);
    if (specdec__dotprod_has_float_code_sums(type))
        vst1q_s32(panel->pair[block] + row, vreinterpretq_s32_f32(rows->pair[0]));
    else
        specdec__i8mm_store_words_alternately((int8_t *)panel->pair[block * 2] + row * 8, rows->sums[0], rows->sums[0]);
    vst1q_f32(panel->scale[block] + row, rows->scale[0]);
    if (specdec__dotprod_has_minimum(type))
        vst1q_f32(panel->minimum[block] + row, specdec__dotprod_subtracts_minimum(type) ? vnegq_f32(rows->minimum[0])
                                                                                    : rows->minimum[0]);
}

/* Unpacks up to 8 blocks of a tile into a panel; zipped: into one for matrix products. Two blocks that share bytes are
   unpacked before either is stored. */
SPECDEC__DOTPROD SPECDEC__INLINE void specdec__dotprod_unpack(int type, int zipped, specdec__dotprod_run *run,
                                                              int blocks, const unsigned char *ahead,
                                                              specdec__panel *panel)
{
    const int ways = specdec__dotprod_count_unpack_ways(type), together = ways == 2 ? 2 : 1;
    specdec__dotprod_quad quad;
    int row, b, way, i;

    for (row = 0; row < SPECDEC__ROWS; row += 4) {
        specdec__dotprod_load_scales(type, run, row, &quad);
        specdec__dotprod_prefetch_rest_of_blocks(type, &ahead);
        for (b = 0; b < blocks; b += ways)
            SPECDEC__UNROLL
            for (way = 0; way < ways; way += together) {
                specdec__dotprod_rows rows[2];

                SPECDEC__UNROLL
                for (i = 0; i < together; i++) {
                    specdec__dotprod_prefetch_quarter_block(type, &ahead);
                    specdec__dotprod_load_block(type, 1, run, b + way + i, way + i, 0, &quad, rows + i);
                }
                SPECDEC__NEON_COMPILER_BARRIER;
                SPECDEC__UNROLL
                for (i = 0; i < together; i++)
                    (zipped ? specdec__i8mm_store_panel
                            : specdec__dotprod_store_panel)(type, rows + i, b + way + i, row, panel);
            }
    }
}

/* Multiplies up to 8 blocks of one or two tiles, or panels, with 1 to 4 columns. */
SPECDEC__DOTPROD SPECDEC__INLINE void specdec__dotprod_multiply_columns(int type, int packed, int columns, int count,
                                                                        int tiles,
                                                                        specdec__dotprod_run *runs, int blocks,
                                                                        const unsigned char *const *ahead,
                                                                        const specdec__columns *x, size_t at,
                                                                        float *const *sums, int column)
{
    specdec__dotprod_input ready;
    int t;

    specdec__dotprod_prepare_columns(type, packed, x, at + (size_t)column, columns, count, blocks, &ready);
    for (t = 0; t < tiles; t++)
        specdec__dotprod_multiply_run(type, packed, columns, &runs[t], blocks, ahead ? ahead[t] : NULL, &ready,
                                      sums[t] + column * SPECDEC__ROWS);
}

/* Multiplies up to 8 blocks of one or two tiles, or panels, with `count` columns, 4 at a time. */
SPECDEC__DOTPROD SPECDEC__INLINE void specdec__dotprod_multiply_by_column_groups(int type, int packed, int tiles,
                                                                                 specdec__dotprod_run *runs, int blocks,
                                                                                 const unsigned char *const *ahead,
                                                                                 const specdec__columns *x, size_t at,
                                                                                 int count, float *const *sums)
{
    const int many = specdec__dotprod_max_columns_without_panel(type) == 4;
    int c;

    for (c = 0; many && count - c >= (packed ? 3 : 4); c += 4)
        specdec__dotprod_multiply_columns(type, packed, 4, specdec__min_int(4, count - c), tiles, runs, blocks, ahead,
                                          x, at, sums, c);
    if (count - c >= 2) {
        specdec__dotprod_multiply_columns(type, packed, 2, 2, tiles, runs, blocks, ahead, x, at, sums, c);
        c += 2;
    }
    if (count - c == 1)
        specdec__dotprod_multiply_columns(type, packed, 1, 1, tiles, runs, blocks, ahead, x, at, sums, c);
}

/* Defines the dot of a kind of panel. */
#define SPECDEC__DOTPROD_DOT(name, type) \
    SPECDEC__DOTPROD static void specdec__dotprod_dot_##name(const specdec__panel *panel, int blocks, \
                                                             const specdec__columns *x, int block, int column, \
                                                             int count, float *sums) \
    { \
        specdec__dotprod_run run; \
        run.tile = NULL; /* a panel is read instead */ \
        run.panel = panel; \
        specdec__dotprod_multiply_by_column_groups(type, 0, 1, &run, blocks, NULL, x, \
                                                   (size_t)block * (size_t)x->n + (size_t)column, count, &sums); \
    }

SPECDEC__DOTPROD_DOT(16, SPECDEC__DOTPROD_PANEL_16)
SPECDEC__DOTPROD_DOT(16m, SPECDEC__DOTPROD_PANEL_16M)
SPECDEC__DOTPROD_DOT(32, SPECDEC__DOTPROD_PANEL_32)
SPECDEC__DOTPROD_DOT(32m, SPECDEC__DOTPROD_PANEL_32M)

/* Multiplies up to 8 blocks of one or two tiles with `count` columns, by unpacking panels. */
typedef void specdec__dotprod_panels_function(int tiles, specdec__dotprod_run *runs, int blocks,
                                              const unsigned char *const *ahead, specdec__panel *panels,
                                              const specdec__columns *x, size_t at, int count, float *const *sums);
/* Defines a specdec__dotprod_panels_function with panels as the type's own kernel reads them. */
#define SPECDEC__DOTPROD_TYPED_PANELS(name) \
    SPECDEC__DOTPROD static __attribute__((noinline)) void specdec__dotprod_typed_panels_##name( \
        int tiles, specdec__dotprod_run *runs, int blocks, const unsigned char *const *ahead, specdec__panel *panels, \
        const specdec__columns *x, size_t at, int count, float *const *sums) \
    { \
        int t; \
        for (t = 0; t < tiles; t++) \
            specdec__dotprod_unpack(SPECDEC__TYPE_##name, 0, &runs[t], blocks, ahead[t], panels + t); \
        specdec__dotprod_multiply_by_column_groups(SPECDEC__TYPE_##name, 0, tiles, runs, blocks, NULL, x, at, count, \
                                                   sums); \
    }

SPECDEC__DOTPROD_TYPED_PANELS(Q4_0)
SPECDEC__DOTPROD_TYPED_PANELS(Q8_0)
SPECDEC__DOTPROD_TYPED_PANELS(Q4_K)
SPECDEC__DOTPROD_TYPED_PANELS(Q6_K)

/* Defines a specdec__dotprod_panels_function with panels as other types have them, which also works for scales that are
   not finite. */
#define SPECDEC__DOTPROD_PLAIN_PANELS(name, unpack, dot) \
    SPECDEC__DOTPROD static __attribute__((noinline)) void specdec__dotprod_plain_panels_##name( \
        int tiles, specdec__dotprod_run *runs, int blocks, const unsigned char *const *ahead, specdec__panel *panels, \
        const specdec__columns *x, size_t at, int count, float *const *sums) \
    { \
        int t; \
        (void)ahead; \
        for (t = 0; t < tiles; t++) { \
            unpack(specdec__quant_find_type(SPECDEC__TYPE_##name), runs[t].tile, blocks, panels + t); \
            dot(panels + t, blocks, x, (int)(at / (size_t)x->n), (int)(at % (size_t)x->n), count, sums[t]); \
        } \
    }

SPECDEC__DOTPROD_PLAIN_PANELS(Q4_1, specdec__neon_unpack_q4_1, specdec__dotprod_dot_32m)
SPECDEC__DOTPROD_PLAIN_PANELS(Q4_K, specdec__neon_unpack_q4_k, specdec__dotprod_dot_32m)
SPECDEC__DOTPROD_PLAIN_PANELS(Q6_K, specdec__neon_unpack_q6_k, specdec__dotprod_dot_16)
SPECDEC__DOTPROD_PLAIN_PANELS(Q2_K, specdec__neon_unpack_q2_k, specdec__dotprod_dot_16m)
SPECDEC__DOTPROD_PLAIN_PANELS(Q3_K, specdec__neon_unpack_q3_k, specdec__dotprod_dot_16)
SPECDEC__DOTPROD_PLAIN_PANELS(IQ4_NL, specdec__neon_unpack_iq4_nl, specdec__dotprod_dot_32)
SPECDEC__DOTPROD_PLAIN_PANELS(IQ4_XS, specdec__neon_unpack_iq4_xs, specdec__dotprod_dot_32)
SPECDEC__DOTPROD_PLAIN_PANELS(Q5_0, specdec__neon_unpack_q5_0, specdec__dotprod_dot_32)
SPECDEC__DOTPROD_PLAIN_PANELS(Q5_1, specdec__neon_unpack_q5_1, specdec__dotprod_dot_32m)
SPECDEC__DOTPROD_PLAIN_PANELS(Q5_K, specdec__neon_unpack_q5_k, specdec__dotprod_dot_32m)
SPECDEC__DOTPROD_PLAIN_PANELS(IQ2_XXS, specdec__neon_unpack_iq2_xxs, specdec__dotprod_dot_32)
SPECDEC__DOTPROD_PLAIN_PANELS(IQ2_XS, specdec__neon_unpack_iq2_xs, specdec__dotprod_dot_16)
SPECDEC__DOTPROD_PLAIN_PANELS(IQ2_S, specdec__neon_unpack_iq2_s, specdec__dotprod_dot_16)
SPECDEC__DOTPROD_PLAIN_PANELS(MXFP4, specdec__neon_unpack_mxfp4, specdec__dotprod_dot_32)
SPECDEC__DOTPROD_PLAIN_PANELS(Q1_0, specdec__neon_unpack_q1_0, specdec__dotprod_dot_32)
SPECDEC__DOTPROD_PLAIN_PANELS(Q2_0, specdec__neon_unpack_q2_0, specdec__dotprod_dot_32)
SPECDEC__DOTPROD_PLAIN_PANELS(TQ2_0, specdec__neon_unpack_tq2_0, specdec__dotprod_dot_32)

/* Multiplies tiles of a type by columns, as a specdec__multiply_function: up to 4 columns without a panel, more columns
   by `typed_panels`, tiles with infinite scales by `plain_panels`. */
SPECDEC__DOTPROD SPECDEC__INLINE void specdec__dotprod_multiply(int type,
                                                                specdec__dotprod_panels_function *typed_panels,
                                                                specdec__dotprod_panels_function *plain_panels,
                                                                const specdec__tiles *tiles, int blocks,
                                                                specdec__panel *panels, const specdec__columns *x,
                                                                int block, int column, int count, float *const *sums)
{
    const size_t span = specdec__dotprod_block_bytes(type), end = (size_t)blocks * span;
    const int most = tiles->tile[1] ? 2 : 1;
    specdec__dotprod_run runs[2];
    const unsigned char *ahead[2];
    int from, run, wild, t;

    for (t = 0; t < most && !block; t++)
        memset(sums[t], 0, (size_t)count * SPECDEC__ROWS * sizeof(float));
    for (from = 0; from < blocks; from += run) {
        const size_t at = (size_t)(block + from) * (size_t)x->n + (size_t)column, byte = (size_t)from * span;

        run = specdec__min_int(SPECDEC__PANEL_VALUES / 32, blocks - from);
        wild = 0;
        for (t = 0; t < most; t++) {
            runs[t].tile = tiles->tile[t] + byte;
            runs[t].panel = panels + t;
            wild |= specdec__dotprod_has_infinite_scale(type, runs[t].tile);
        }
        for (t = 0; t < most; t++) {
            ahead[t] = byte + SPECDEC__NEON_PREFETCH_BYTES < end
                           ? runs[t].tile + SPECDEC__NEON_PREFETCH_BYTES
                           : tiles->next[t] + (byte + SPECDEC__NEON_PREFETCH_BYTES - end);
            specdec__dotprod_unpack_factors(type, &runs[t]);
        }
        if (wild)
            plain_panels(most, runs, run, ahead, panels, x, at, count, sums);
        else if (count <= specdec__dotprod_max_columns_without_panel(type))
            specdec__dotprod_multiply_by_column_groups(type, 1, most, runs, run, ahead, x, at, count, sums);
        else
            typed_panels(most, runs, run, ahead, panels, x, at, count, sums);
    }
}

/* The types with kernels of their own; the kind of panels for many columns, and for tiles with infinite scales. */
#define SPECDEC__DOTPROD_TYPES(X) \
    X(Q4_0, typed, typed) X(Q8_0, typed, typed) X(Q4_K, typed, plain) X(Q6_K, typed, plain) \
    X(Q4_1, plain, plain) X(Q5_0, plain, plain) X(Q5_1, plain, plain) X(Q5_K, plain, plain) \
    X(Q2_K, plain, plain) X(Q3_K, plain, plain) X(IQ4_NL, plain, plain) X(IQ4_XS, plain, plain) \
    X(IQ2_XXS, plain, plain) X(IQ2_XS, plain, plain) X(IQ2_S, plain, plain) \
    X(MXFP4, plain, plain) X(Q1_0, plain, plain) X(Q2_0, plain, plain) X(TQ2_0, plain, plain)
#define SPECDEC__DOTPROD_MULTIPLY(name, many, infinite) \
    SPECDEC__DOTPROD static void specdec__dotprod_multiply_##name(const specdec__tiles *tiles, int blocks, \
                                                                  specdec__panel *panels, const specdec__columns *x, \
                                                                  int block, int column, int count, \
                                                                  float *const *sums) \
    { \
        specdec__dotprod_multiply(SPECDEC__TYPE_##name, specdec__dotprod_##many##_panels_##name, \
                                  specdec__dotprod_##infinite##_panels_##name, tiles, blocks, panels, x, block, \
                                  column, count, sums); \
    }
SPECDEC__DOTPROD_TYPES(SPECDEC__DOTPROD_MULTIPLY)
#endif /* aarch64 */
