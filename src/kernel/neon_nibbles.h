/* =====================================================================================================================
 * >>kernel/neon_nibbles: NEON without dot products: multiplies 4-bit codes without a panel.
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
#include "neon_dotprod.h"
#include "neon_i8mm.h"
#include "neon_panels.h"

#if defined(__aarch64__) && defined(__ARM_NEON) && defined(__AARCH64EL__) && !defined(SPECDEC_NO_SIMD)
/* Four, two or one columns of up to 8 blocks, prepared once for two tiles. codes: (block, column, value/8, twice 8);
   start (block, column, 4 times): the bits of a float at which sums of unsigned codes times these begin. */
typedef struct specdec__neon_input {
    int8_t codes[8][4][64];          /* codes of the columns */
    int32_t start[8][4][4];          /* (block, column, row) the numbers that sums of products begin with */
    float scale[8][4], offset[8][4]; /* (block, column): x = scale * (code + offset) */
    float total[8][4];               /* (block, column): scale * sum of (code + offset) */
} specdec__neon_input;

/* 32 values of four rows, unpacked: codes (value/8, pair of rows), 2 rows x 8 unsigned codes each, and their sums. */
typedef struct specdec__neon_rows {
    int8x16_t codes[4][2];            /* unsigned codes */
    float32x4_t pair, scale, minimum; /* sums of codes, scales and minimums of the four rows */
} specdec__neon_rows;

/* Scales and minimums of a tile of Q4_K. */
typedef struct specdec__neon_scales {
    float scale[8][SPECDEC__ROWS], minimum[8][SPECDEC__ROWS]; /* (granule, row) */
} specdec__neon_scales;

/* Prepares columns from `at` on. The codes of Q4_0 are 8 too large; so are the products' sums by 8 times the sum of a
   column's 32 codes, and the factors of offsets by 32 * 8. */
SPECDEC__INLINE void specdec__neon_prepare_columns(int type, const specdec__columns *x, size_t at, int columns,
                                                   int blocks, specdec__neon_input *to)
{
    const int bias = specdec__dotprod_bias(type), surplus = specdec__dotprod_surplus_of_code_sum(type);
    int b, c, i;

    for (b = 0; b < blocks; b++, at += (size_t)x->n)
        SPECDEC__UNROLL
        for (c = 0; c < columns; c++) {
            const int8_t *codes = x->codes + (at + (size_t)c) * 32;
            const int32_t pair = x->pair32[at + (size_t)c], offset = (int16_t)(pair & 0xFFFF);

            SPECDEC__UNROLL
            for (i = 0; i < 4; i++) {
                const int8x8_t eight = vld1_s8(codes + i * 8);

                vst1q_s8(to->codes[b][c] + i * 16, vcombine_s8(eight, eight));
            }
            vst1q_s32(to->start[b][c],
                      vdupq_n_s32(SPECDEC__DOTPROD_START_BITS - (pair >> 16) * bias - offset * surplus));
            to->scale[b][c] = x->scale[at + (size_t)c];
            to->offset[b][c] = (float)offset;
            if (specdec__dotprod_has_minimum(type))
                to->total[b][c] = x->sum32[at + (size_t)c];
        }
}

/* Loads two words of two pairs of rows each: (pair). */
SPECDEC__INLINE uint32x4x2_t specdec__neon_load_row_pairs(const unsigned char *words)
{
    return vzipq_u32(vreinterpretq_u32_u8(vld1q_u8(words)), vreinterpretq_u32_u8(vld1q_u8(words + 64)));
}

/* Unpacks the nibbles of four rows of a block of Q4_0, Q4_1 or Q4_K. Of Q4_K a block has the low or the high
   nibbles. */
SPECDEC__INLINE void specdec__neon_load_codes(int type, const unsigned char *nibbles, int high,
                                              specdec__neon_rows *rows)
{
    const int is_k = type == SPECDEC__TYPE_Q4_K;
    int i, h;

    SPECDEC__UNROLL
    for (i = 0; i < 4; i++) {
        uint32x4x2_t pairs;

        if (!is_k && i > 1)
            return;
        pairs = specdec__neon_load_row_pairs(nibbles + i * 128);
        SPECDEC__UNROLL
        for (h = 0; h < 2; h++) {
            const uint8x16_t both = vreinterpretq_u8_u32(pairs.val[h]);

            rows->codes[i][h] = is_k && high ? specdec__neon_high_nibbles(both) : specdec__neon_low_nibbles(both);
            if (!is_k)
                rows->codes[(i + 2) & 3][h] = specdec__neon_high_nibbles(both);
        }
    }
}

/* Unpacks rows `row` to `row` + 3 of block b. tile: for Q4_K, 512 bytes further on for each two blocks. scales, way
   (the lowest bit of b): for Q4_K. */
SPECDEC__INLINE void specdec__neon_unpack_four_rows(int type, const unsigned char *tile, int b, int way, int row,
                                                    const specdec__neon_scales *scales, specdec__neon_rows *rows)
{
    const size_t at = type == SPECDEC__TYPE_Q4_0   ? SPECDEC__TILE_AT(q4_0, nibbles)
                      : type == SPECDEC__TYPE_Q4_1 ? SPECDEC__TILE_AT(q4_1, nibbles)
                                                   : SPECDEC__TILE_AT(q4_k, nibbles);
    int8x16_t sum[2];
    int h;

    specdec__neon_load_codes(type, tile + at + row * 4, way, rows);
    SPECDEC__UNROLL
    for (h = 0; h < 2; h++)
        sum[h] = vaddq_s8(vaddq_s8(rows->codes[0][h], rows->codes[1][h]),
                          vaddq_s8(rows->codes[2][h], rows->codes[3][h]));
    rows->pair = vcvtq_f32_s32(vpaddlq_s16(vpaddlq_s8(vpaddq_s8(sum[0], sum[1]))));
    if (type == SPECDEC__TYPE_Q4_K) {
        rows->scale = vld1q_f32(scales->scale[b] + row);
        rows->minimum = vld1q_f32(scales->minimum[b] + row);
        return;
    }
    rows->scale = specdec__neon_load_f16x4(tile + row * 2);
    if (type == SPECDEC__TYPE_Q4_1)
        rows->minimum = specdec__neon_load_f16x4(tile + SPECDEC__TILE_AT(q4_1, minimum) + row * 2);
}

/* Returns the sums of products of two rows: eight lanes of 4 products each. */
SPECDEC__INLINE int16x8_t specdec__neon_dot_two_rows(const specdec__neon_rows *rows, int h, const int8x16_t *v)
{
    int16x8_t even = vmull_s8(vget_low_s8(rows->codes[0][h]), vget_low_s8(v[0]));
    int16x8_t odd = vmull_high_s8(rows->codes[0][h], v[0]);
    int i;

    SPECDEC__UNROLL
    for (i = 1; i < 4; i++) {
        even = vmlal_s8(even, vget_low_s8(rows->codes[i][h]), vget_low_s8(v[i]));
        odd = vmlal_high_s8(odd, rows->codes[i][h], v[i]);
    }
    return vpaddq_s16(even, odd);
}

/* Adds four rows times block b of columns to acc (column). Sums of 16 products fit into 16 bits: 16 * 15 * 128. */
SPECDEC__INLINE void specdec__neon_multiply_rows(int type, const specdec__neon_rows *rows,
                                                 const specdec__neon_input *x, int b,
                                                 int columns, float32x4_t *acc)
{
    int c, i;

    SPECDEC__UNROLL
    for (c = 0; c < columns; c++) {
        int8x16_t v[4];
        int32x4_t sum = vld1q_s32(x->start[b][c]);
        float32x4_t exact;

        SPECDEC__UNROLL
        for (i = 0; i < 4; i++)
            v[i] = vld1q_s8(x->codes[b][c] + i * 16);
        sum = vpadalq_s16(sum, vpaddq_s16(specdec__neon_dot_two_rows(rows, 0, v), specdec__neon_dot_two_rows(rows, 1,
                                                                                                             v)));
        exact = vfmaq_n_f32(vreinterpretq_f32_s32(sum), rows->pair, x->offset[b][c]);
        exact = vsubq_f32(exact, vdupq_n_f32(SPECDEC__DOTPROD_START));
        acc[c] = vfmaq_f32(acc[c], vmulq_n_f32(rows->scale, x->scale[b][c]), exact);
        if (specdec__dotprod_has_minimum(type))
            acc[c] = vfmaq_n_f32(acc[c], rows->minimum, x->total[b][c]);
    }
}

/* Adds up to 8 blocks of a tile times 1, 2 or 4 columns to sums (column, 16). */
SPECDEC__INLINE void specdec__neon_multiply_tile(int type, const unsigned char *tile, int blocks,
                                                 const specdec__neon_input *x,
                                                 const specdec__neon_scales *scales, int columns, float *sums)
{
    const int quads = columns == 1 ? 2 : 1, ways = type == SPECDEC__TYPE_Q4_K ? 2 : 1;
    int row, b, c, i, way;

    for (row = 0; row < SPECDEC__ROWS; row += 4 * quads) {
        const unsigned char *from = tile;
        float32x4_t acc[2][4];

        SPECDEC__UNROLL
        for (i = 0; i < quads; i++)
            SPECDEC__UNROLL
            for (c = 0; c < columns; c++)
                acc[i][c] = vld1q_f32(sums + c * SPECDEC__ROWS + row + i * 4);
        for (b = 0; b < blocks; b += ways) {
            SPECDEC__UNROLL
            for (way = 0; way < ways; way++)
                SPECDEC__UNROLL
                for (i = 0; i < quads; i++) {
                    specdec__neon_rows rows;

                    specdec__neon_unpack_four_rows(type, from, b + way, way, row + i * 4, scales, &rows);
                    specdec__neon_multiply_rows(type, &rows, x, b + way, columns, acc[i]);
                    SPECDEC__NEON_RELOAD(from); /* four rows at a time, for which there are enough registers */
                }
            from += ways == 2 ? 512 : specdec__dotprod_block_bytes(type);
        }
        SPECDEC__UNROLL
        for (i = 0; i < quads; i++)
            SPECDEC__UNROLL
            for (c = 0; c < columns; c++)
                vst1q_f32(sums + c * SPECDEC__ROWS + row + i * 4, acc[i][c]);
    }
}

/* Multiplies up to 8 blocks of one or two tiles with 4, 2 or 1 columns from c on. */
SPECDEC__INLINE void specdec__neon_multiply_tiles(int type, const unsigned char *const *tile, int blocks,
                                                  const specdec__neon_scales *scales, const specdec__columns *x,
                                                  size_t at, int columns, int c, float *const *sums)
{
    specdec__neon_input ready;
    int t;

    specdec__neon_prepare_columns(type, x, at + (size_t)c, columns, blocks, &ready);
    for (t = 0; t < 2 && tile[t]; t++)
        specdec__neon_multiply_tile(type, tile[t], blocks, &ready, scales + t, columns, sums[t] + c * SPECDEC__ROWS);
}

/* Multiplies tiles of a type by columns, as a specdec__multiply_function. unpack: unpacks panels for more than 8
   columns; NULL: no panels. */
SPECDEC__INLINE void specdec__neon_multiply(int type, specdec__unpack_function *unpack, const specdec__tiles *tiles,
                                            int blocks, specdec__panel *panel, const specdec__columns *x, int block,
                                            int column, int count, float *const *sums)
{
    specdec__neon_scales scales[2];
    const unsigned char *tile[2];
    int from, run, c, t;

    for (t = 0; t < 2; t++) {
        tile[t] = tiles->tile[t];
        if (tile[t] && !block)
            memset(sums[t], 0, (size_t)count * SPECDEC__ROWS * sizeof(float));
    }
    for (from = 0; from < blocks; from += run) {
        const size_t at = (size_t)(block + from) * (size_t)x->n + (size_t)column;

        run = specdec__min_int(SPECDEC__PANEL_VALUES / 32, blocks - from);
        for (t = 0; t < 2 && tile[t]; t++) {
            if (unpack && count > 8) {
                unpack(tiles->type, tile[t], run, panel);
                specdec__neon_dot_32m(panel, run, x, block + from, column, count, sums[t]);
                tile[t] += (size_t)run * specdec__dotprod_block_bytes(type);
                continue;
            }
            specdec__neon_prefetch(tiles->type, tile[t], run);
            if (type == SPECDEC__TYPE_Q4_K)
                specdec__neon_unpack_scales_q4_q5_k(tile[t], scales[t].scale, scales[t].minimum);
        }
        if (unpack && count > 8)
            continue;
        for (c = 0; c + 4 <= count; c += 4)
            specdec__neon_multiply_tiles(type, tile, run, scales, x, at, 4, c, sums);
        if (count & 2)
            specdec__neon_multiply_tiles(type, tile, run, scales, x, at, 2, count & ~3, sums);
        if (count & 1)
            specdec__neon_multiply_tiles(type, tile, run, scales, x, at, 1, count - 1, sums);
        for (t = 0; t < 2 && tile[t]; t++)
            tile[t] += (size_t)run * specdec__dotprod_block_bytes(type);
    }
}

#define SPECDEC__NEON_TYPES(X) X(Q4_0, NULL) X(Q4_1, specdec__neon_unpack_q4_1) X(Q4_K, specdec__neon_unpack_q4_k)
#define SPECDEC__NEON_MULTIPLY(name, unpack) \
    static void specdec__neon_multiply_##name(const specdec__tiles *tiles, int blocks, specdec__panel *panels, \
                                              const specdec__columns *x, int block, int column, int count, \
                                              float *const *sums) \
    { \
        specdec__neon_multiply(SPECDEC__TYPE_##name, unpack, tiles, blocks, panels, x, block, column, count, sums); \
    }
SPECDEC__NEON_TYPES(SPECDEC__NEON_MULTIPLY)
#endif /* aarch64 */
