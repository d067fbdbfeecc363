/* =====================================================================================================================
 * >>kernel/neon_i8mm: NEON with matrix products (i8mm): multiplies panels with several columns.
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

#if defined(__aarch64__) && defined(__ARM_NEON) && defined(__AARCH64EL__) && !defined(SPECDEC_NO_SIMD)
/* 4, 2 or 1 columns of up to 8 blocks, prepared once for two panels. A single column is paired with itself. */
typedef struct specdec__i8mm_input {
    int8_t codes[8][2][64];                /* (block, pair, value/8, 2 columns, 8) */
    float scale[8][2][4], excess[8][2][4]; /* (block, pair, 2 columns twice): see specdec__dotprod_input */
    float offset[8][2][4];                 /* (block, pair, 2 columns twice) as floats or, if not wide, as bytes */
} specdec__i8mm_input;

/* The corrections of a type's sums: see specdec__dotprod_bias and specdec__dotprod_surplus_of_code_sum. */
typedef struct specdec__i8mm_kind {
    int bias, surplus; /* specdec__dotprod_bias and specdec__dotprod_surplus_of_code_sum of the type */
} specdec__i8mm_kind;

/* Returns the numbers of columns pair and pair + 1 of four columns, each twice. */
SPECDEC__INLINE float32x4_t specdec__i8mm_duplicate_two_columns(float32x4_t four, int pair)
{
    const float32x2_t two = pair ? vget_high_f32(four) : vget_low_f32(four);

    return vcombine_f32(two, two);
}

/* Prepares block b of 4, 2 or 1 columns from `at` on for matrix products: see specdec__i8mm_input. */
SPECDEC__INLINE void specdec__i8mm_prepare_column_block(const specdec__i8mm_kind *kind, int wide,
                                                        const specdec__columns *x, size_t at, int columns, int b,
                                                        specdec__i8mm_input *to)
{
    static const uint8_t bytes[2][16] = {{0, 0, 0, 0, 255, 255, 255, 255, 4, 4, 4, 4, 255, 255, 255, 255},
                                         {8, 8, 8, 8, 255, 255, 255, 255, 12, 12, 12, 12, 255, 255, 255, 255}};
    const int32x2_t some = columns == 1 ? vld1_dup_s32(x->pair32 + at) : vld1_s32(x->pair32 + at);
    const float32x2_t few = columns == 1 ? vld1_dup_f32(x->scale + at) : vld1_f32(x->scale + at);
    const int32x4_t pairs = columns == 4 ? vld1q_s32(x->pair32 + at) : vcombine_s32(some, some);
    const float32x4_t scales = columns == 4 ? vld1q_f32(x->scale + at) : vcombine_f32(few, few);
    const int32x4_t offsets = vshrq_n_s32(vshlq_n_s32(pairs, 16), 16), sums = vshrq_n_s32(pairs, 16);
    const int32x4_t start = vdupq_n_s32(SPECDEC__DOTPROD_START_BITS);
    const int32x4_t excess = vmlaq_n_s32(vmlaq_n_s32(start, sums, kind->bias), offsets, kind->surplus);
    int c, i;

    SPECDEC__UNROLL
    for (c = 0; c < columns; c += 2) {
        const int8_t *first = x->codes + (at + (size_t)c) * 32, *second = columns > 1 ? first + 32 : first;
        const uint8x16_t offset = vqtbl1q_u8(vreinterpretq_u8_s32(pairs), vld1q_u8(bytes[c / 2]));

        SPECDEC__UNROLL
        for (i = 0; i < 2; i++) {
            const int64x2_t a = vreinterpretq_s64_s8(vld1q_s8(first + i * 16));
            const int64x2_t d = vreinterpretq_s64_s8(vld1q_s8(second + i * 16));

            vst1q_s8(to->codes[b][c / 2] + i * 32, vreinterpretq_s8_s64(vzip1q_s64(a, d)));
            vst1q_s8(to->codes[b][c / 2] + i * 32 + 16, vreinterpretq_s8_s64(vzip2q_s64(a, d)));
        }
        vst1q_f32(to->scale[b][c / 2], specdec__i8mm_duplicate_two_columns(scales, c));
        vst1q_f32(to->excess[b][c / 2], specdec__i8mm_duplicate_two_columns(vreinterpretq_f32_s32(excess), c));
        vst1q_f32(to->offset[b][c / 2],
                  wide ? specdec__i8mm_duplicate_two_columns(vcvtq_f32_s32(offsets), c) : vreinterpretq_f32_u8(offset));
    }
}

/* Adds eight rows of block b times columns to sum (pair of columns, pair of rows), whose lanes are (row, column) and
   began at SPECDEC__DOTPROD_START. */
SPECDEC__I8MM SPECDEC__INLINE void specdec__i8mm_add_products(const specdec__panel *panel,
                                                              const specdec__i8mm_input *ready, int b, int row,
                                                              int wide, int columns, int32x4_t (*sum)[4])
{
    int c, i, h;

    SPECDEC__UNROLL
    for (i = 0; i < 4; i++) {
        int8x16_t w[4];

        SPECDEC__UNROLL
        for (h = 0; h < 4; h++)
            w[h] = vld1q_s8(panel->u.codes + b * 512 + i * 128 + row * 8 + h * 16);
        SPECDEC__UNROLL
        for (c = 0; c < columns; c += 2) {
            const int8x16_t v = vld1q_s8(ready->codes[b][c / 2] + i * 16);

            SPECDEC__UNROLL
            for (h = 0; h < 4; h++)
                SPECDEC__SMMLA(sum[c / 2][h], w[h], v);
        }
    }
    if (wide)
        return;
    SPECDEC__UNROLL
    for (c = 0; c < columns; c += 2)
        SPECDEC__UNROLL
        for (h = 0; h < 4; h++) {
            const int8x16_t offset = vreinterpretq_s8_f32(vld1q_f32(ready->offset[b][c / 2]));

            SPECDEC__SMMLA(sum[c / 2][h], vld1q_s8((const int8_t *)panel->pair[b * 2] + row * 8 + h * 16), offset);
        }
}

/* Returns the numbers of the two rows of pair h, each twice. */
SPECDEC__INLINE float32x4_t specdec__i8mm_duplicate_two_rows(const float *from, int h)
{
    const float32x4_t four = vld1q_f32(from + h / 2 * 4);

    return h % 2 ? vzip2q_f32(four, four) : vzip1q_f32(four, four);
}

/* Adds the sums of eight rows of block b times scales, and minimums to acc (pair of columns, pair of rows). */
SPECDEC__INLINE void specdec__i8mm_add_granule(const specdec__panel *panel, const specdec__columns *x,
                                               const specdec__i8mm_input *ready, size_t at, int b, int row, int wide,
                                               int has_minimum, int columns, int32x4_t (*sum)[4], float32x4_t (*acc)[4])
{
    int c, h;

    SPECDEC__UNROLL
    for (h = 0; h < 4; h++) {
        const float32x4_t scale = specdec__i8mm_duplicate_two_rows(panel->scale[b] + row, h);

        SPECDEC__UNROLL
        for (c = 0; c < columns; c += 2) {
            float32x4_t exact = vreinterpretq_f32_s32(sum[c / 2][h]);

            if (wide)
                exact = vfmaq_f32(
                    exact, specdec__i8mm_duplicate_two_rows((const float *)(const void *)panel->pair[b] + row, h),
                    vld1q_f32(ready->offset[b][c / 2]));
            exact = vsubq_f32(exact, vld1q_f32(ready->excess[b][c / 2]));
            acc[c / 2][h] = vfmaq_f32(acc[c / 2][h], vmulq_f32(scale, vld1q_f32(ready->scale[b][c / 2])), exact);
            if (has_minimum) {
                const float *total = x->sum32 + at + c;
                const float32x2_t two = columns > 1 ? vld1_f32(total) : vld1_dup_f32(total);

                acc[c / 2][h] = vfmaq_f32(acc[c / 2][h], specdec__i8mm_duplicate_two_rows(panel->minimum[b] + row, h),
                                          vcombine_f32(two, two));
            }
        }
    }
}

/* Adds a panel times 1, 2 or 4 columns to sums (column, 16). */
SPECDEC__I8MM SPECDEC__INLINE void specdec__i8mm_multiply_columns(const specdec__panel *panel, int blocks,
                                                                  const specdec__columns *x,
                                                                  const specdec__i8mm_input *ready, size_t from,
                                                                  float *sums, int wide, int has_minimum, int columns)
{
    int32_t start[32]; /* in memory, as loads cost no more than moves between registers */
    int row, b, c, h;

    for (h = 0; h < 32; h++)
        start[h] = SPECDEC__DOTPROD_START_BITS;
    for (row = 0; row < SPECDEC__ROWS; row += 8) {
        float32x4_t acc[2][4];
        size_t at = from;

        SPECDEC__UNROLL
        for (c = 0; c < columns; c += 2)
            SPECDEC__UNROLL
            for (h = 0; h < 4; h++) {
                const float32x4_t even = vld1q_f32(sums + c * SPECDEC__ROWS + row + h / 2 * 4);
                const float32x4_t odd = columns > 1 ? vld1q_f32(sums + (c + 1) * SPECDEC__ROWS + row + h / 2 * 4)
                                                    : even;

                acc[c / 2][h] = h % 2 ? vzip2q_f32(even, odd) : vzip1q_f32(even, odd);
            }
        for (b = 0; b < blocks; b++, at += (size_t)x->n) {
            const int32_t *begin = start;
            int32x4_t sum[2][4];

            SPECDEC__NEON_HIDE_ADDRESS(begin);
            SPECDEC__UNROLL
            for (c = 0; c < columns; c += 2)
                SPECDEC__UNROLL
                for (h = 0; h < 4; h++)
                    sum[c / 2][h] = vld1q_s32(begin + c * 8 + h * 4);
            specdec__i8mm_add_products(panel, ready, b, row, wide, columns, sum);
            specdec__i8mm_add_granule(panel, x, ready, at, b, row, wide, has_minimum, columns, sum, acc);
        }
        SPECDEC__UNROLL
        for (c = 0; c < columns; c++)
            SPECDEC__UNROLL
            for (h = 0; h < 4; h += 2)
                vst1q_f32(sums + c * SPECDEC__ROWS + row + h * 2,
                          c % 2 ? vuzp2q_f32(acc[c / 2][h], acc[c / 2][h + 1])
                                : vuzp1q_f32(acc[c / 2][h], acc[c / 2][h + 1]));
    }
}

/* Multiplies one or two panels with `count` columns: 4, 2 and 1 at a time. */
SPECDEC__I8MM SPECDEC__INLINE void specdec__i8mm_multiply_by_column_groups(const specdec__i8mm_kind *kind, int wide,
                                                                           int has_minimum,
                                                                           const specdec__panel *panels, int tiles,
                                                                           int blocks, const specdec__columns *x,
                                                                           size_t at, int count, float *const *sums)
{
    specdec__i8mm_input ready;
    int b, c, t, columns;

    for (c = 0; c < count; c += columns, at += (size_t)columns) {
        columns = count - c >= 4 ? 4 : count - c >= 2 ? 2 : 1;
        for (b = 0; b < blocks; b++) {
            const size_t k = at + (size_t)b * (size_t)x->n;

            if (columns == 4)
                specdec__i8mm_prepare_column_block(kind, wide, x, k, 4, b, &ready);
            else if (columns == 2)
                specdec__i8mm_prepare_column_block(kind, wide, x, k, 2, b, &ready);
            else
                specdec__i8mm_prepare_column_block(kind, wide, x, k, 1, b, &ready);
        }
        for (t = 0; t < tiles; t++) {
            float *to = sums[t] + c * SPECDEC__ROWS;

            if (columns == 4)
                specdec__i8mm_multiply_columns(panels + t, blocks, x, &ready, at, to, wide, has_minimum, 4);
            else if (columns == 2)
                specdec__i8mm_multiply_columns(panels + t, blocks, x, &ready, at, to, wide, has_minimum, 2);
            else
                specdec__i8mm_multiply_columns(panels + t, blocks, x, &ready, at, to, wide, has_minimum, 1);
        }
    }
}

/* A variant of specdec__i8mm_multiply_by_column_groups, compiled for types with minimums, without them, or for wide
   types. */
typedef void specdec__i8mm_groups_function(const specdec__i8mm_kind *kind, const specdec__panel *panels, int tiles,
                                           int blocks, const specdec__columns *x, size_t at, int count,
                                           float *const *sums);
#define SPECDEC__I8MM_GROUPS(name, wide, has_minimum) \
    SPECDEC__I8MM static __attribute__((noinline)) void specdec__i8mm_groups_##name( \
        const specdec__i8mm_kind *kind, const specdec__panel *panels, int tiles, int blocks, \
        const specdec__columns *x, size_t at, int count, float *const *sums) \
    { \
        specdec__i8mm_multiply_by_column_groups(kind, wide, has_minimum, panels, tiles, blocks, x, at, count, sums); \
    }
SPECDEC__I8MM_GROUPS(plain, 0, 0)
SPECDEC__I8MM_GROUPS(minimum, 0, 1)
SPECDEC__I8MM_GROUPS(wide, 1, 0)

/* specdec__multiply_function of a type with granules of 32: few columns, and tiles with infinite scales, by dot
   products; more columns by matrix products of panels. unpack: unpacks a panel. */
typedef void specdec__i8mm_unpack_function(specdec__dotprod_run *run, int blocks, const unsigned char *ahead,
                                           specdec__panel *panel);
SPECDEC__INLINE void specdec__i8mm_multiply(int type, specdec__multiply_function *by_dots,
                                            specdec__i8mm_unpack_function *unpack,
                                            specdec__i8mm_groups_function *groups, const specdec__tiles *tiles,
                                            int blocks, specdec__panel *panels, const specdec__columns *x, int block,
                                            int column, int count, float *const *sums)
{
    const specdec__i8mm_kind kind = {specdec__dotprod_bias(type), specdec__dotprod_surplus_of_code_sum(type)};
    const size_t span = specdec__dotprod_block_bytes(type), end = (size_t)blocks * span;
    const int most = tiles->tile[1] ? 2 : 1;
    specdec__tiles part = *tiles;
    specdec__dotprod_run one;
    int from, run, wild, t;

    if (count <= specdec__dotprod_max_columns_without_panel(type)) {
        by_dots(tiles, blocks, panels, x, block, column, count, sums);
        return;
    }
    for (t = 0; t < most && !block; t++)
        memset(sums[t], 0, (size_t)count * SPECDEC__ROWS * sizeof(float));
    for (from = 0; from < blocks; from += run) {
        const size_t byte = (size_t)from * span, ahead = byte + SPECDEC__NEON_PREFETCH_BYTES;

        run = specdec__min_int(SPECDEC__PANEL_VALUES / 32, blocks - from);
        wild = 0;
        for (t = 0; t < most; t++) {
            part.tile[t] = tiles->tile[t] + byte;
            wild |= specdec__dotprod_has_infinite_scale(type, part.tile[t]);
        }
        if (wild) {
            by_dots(&part, run, panels, x, block + from, column, count, sums);
            continue;
        }
        for (t = 0; t < most; t++) {
            one.tile = part.tile[t];
            specdec__dotprod_unpack_factors(type, &one);
            unpack(&one, run, ahead < end ? tiles->tile[t] + ahead : tiles->next[t] + (ahead - end), panels + t);
        }
        groups(&kind, panels, most, run, x, (size_t)(block + from) * (size_t)x->n + (size_t)column, count, sums);
    }
}

/* Types for which matrix products are faster than dot products, with more columns than are multiplied without a
   panel. */
#define SPECDEC__I8MM_TYPES(X) \
    X(Q4_0, plain) X(Q8_0, wide) X(Q4_K, minimum) X(Q4_1, minimum) X(Q5_0, plain) X(Q5_1, minimum) X(Q5_K, minimum) \
    X(IQ4_NL, wide) X(IQ4_XS, wide)
#define SPECDEC__I8MM_MULTIPLY(name, groups) \
    SPECDEC__DOTPROD static __attribute__((noinline)) void \
    specdec__i8mm_unpack_##name(specdec__dotprod_run *run, int blocks, const unsigned char *ahead, \
                                specdec__panel *panel) \
    { \
        specdec__dotprod_unpack(SPECDEC__TYPE_##name, 1, run, blocks, ahead, panel); \
    } \
    static void specdec__i8mm_multiply_##name(const specdec__tiles *tiles, int blocks, specdec__panel *panels, \
                                              const specdec__columns *x, int block, int column, int count, \
                                              float *const *sums) \
    { \
        specdec__i8mm_multiply(SPECDEC__TYPE_##name, specdec__dotprod_multiply_##name, specdec__i8mm_unpack_##name, \
                               specdec__i8mm_groups_##groups, tiles, blocks, panels, x, block, column, count, sums); \
    }
SPECDEC__I8MM_TYPES(SPECDEC__I8MM_MULTIPLY)
#endif /* aarch64 */
