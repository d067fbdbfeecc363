/* =====================================================================================================================
 * >>kernel/neon_panels: NEON without dot products: dots of panels.
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

#if defined(__aarch64__) && defined(__ARM_NEON) && defined(__AARCH64EL__) && !defined(SPECDEC_NO_SIMD)
/* Returns the sums of products of a granule of four rows, `words` words (w), with a column, plus *start. The sums of 8
   products (wide: of 2) of a row fit into 16 bits: 8 * 32 * 127, 2 * 128 * 127. */
SPECDEC__INLINE float32x4_t specdec__neon_granule_products(const int8x16_t *w, int words, int wide,
                                                           const int32_t *start, const int8_t *codes)
{
    const int chain = wide ? 2 : words;
    int32x4_t low, high;
    int16x8_t low16, high16;
    int i;

    SPECDEC__NEON_HIDE_ADDRESS(start);
    low = vld1q_s32(start);
    high = vld1q_s32(start + 4);
    low16 = high16 = vdupq_n_s16(0);
    SPECDEC__UNROLL
    for (i = 0; i < words; i++) {
        const int32_t *four = (const int32_t *)(const void *)(codes + i * 4);
        int8x16_t v = vreinterpretq_s8_s32(vld1q_dup_s32(four));

        low16 = i % chain ? vmlal_s8(low16, vget_low_s8(w[i]), vget_low_s8(v))
                          : vmull_s8(vget_low_s8(w[i]), vget_low_s8(v));
        high16 = i % chain ? vmlal_high_s8(high16, w[i], v) : vmull_high_s8(w[i], v);
        if (i % chain == chain - 1) {
            low = vpadalq_s16(low, low16);
            high = vpadalq_s16(high, high16);
        }
    }
    return vreinterpretq_f32_s32(vpaddq_s32(low, high));
}

/* Adds four rows of granule k of a panel, from row `row` on, times columns to acc (column). */
SPECDEC__INLINE void specdec__neon_add_granule(int type, const specdec__panel *panel, int k, int row, int columns,
                                               int wide,
                                               const int32_t *start, const specdec__dotprod_input *x, float32x4_t *acc)
{
    const int granule = specdec__dotprod_values_per_scale(type), per = 32 / granule;
    const int8_t *codes = x->codes + (size_t)(k / per) * x->stride + k % per * granule;
    const float32x4_t scale = vld1q_f32(panel->scale[k] + row);
    const float32x4_t pair = vcvtq_f32_s32(vld1q_s32(panel->pair[k] + row));
    const float *scales = x->scale[k / per], *totals = x->total[k];
    const float *offsets = (const float *)(const void *)x->offset[k / per];
    float32x4_t sum[4];
    int8x16_t w[8];
    int c, i;

    SPECDEC__UNROLL
    for (i = 0; i < granule / 4; i++)
        w[i] = vld1q_s8(panel->u.codes + k * granule * 16 + i * 64 + row * 4);
    SPECDEC__UNROLL
    for (c = 0; c < columns; c++) {
        sum[c] = specdec__neon_granule_products(w, granule / 4, wide, start, codes + c * 32);
        if (columns == 4)
            SPECDEC__NEON_COMPILER_BARRIER;
    }
    SPECDEC__UNROLL
    for (c = 0; c < columns; c++) {
        sum[c] = vsubq_f32(vfmaq_n_f32(sum[c], pair, offsets[c]), vdupq_n_f32(SPECDEC__DOTPROD_START));
        acc[c] = vfmaq_f32(acc[c], vmulq_n_f32(scale, scales[c]), sum[c]);
        if (specdec__dotprod_has_minimum(type))
            acc[c] = vfmaq_n_f32(acc[c], vld1q_f32(panel->minimum[k] + row), totals[c]);
    }
}

/* Adds a panel times 1, 2 or 4 columns to sums (column, 16). The codes of a single column are spread over a vector once
   for eight rows. */
SPECDEC__INLINE void specdec__neon_multiply_columns(int type, const specdec__panel *panel, int blocks,
                                                    const specdec__columns *x,
                                                    size_t at, int columns, int wide, float *sums)
{
    const int32_t bits = SPECDEC__DOTPROD_START_BITS, start[8] = {bits, 0, bits, 0, bits, 0, bits, 0};
    const int granules = blocks * (32 / specdec__dotprod_values_per_scale(type)), quads = columns == 1 ? 4 : 1;
    specdec__dotprod_input ready;
    int row, k, c, i;

    specdec__dotprod_prepare_columns(type, 0, x, at, columns, columns, blocks, &ready);
    for (row = 0; row < SPECDEC__ROWS; row += 4 * quads) {
        float32x4_t acc[4][4];

        SPECDEC__UNROLL
        for (i = 0; i < quads; i++)
            SPECDEC__UNROLL
            for (c = 0; c < columns; c++)
                acc[i][c] = vld1q_f32(sums + c * SPECDEC__ROWS + row + i * 4);
        for (k = 0; k < granules; k++)
            SPECDEC__UNROLL
            for (i = 0; i < quads; i++)
                specdec__neon_add_granule(type, panel, k, row + i * 4, columns, wide, start, &ready, acc[i]);
        SPECDEC__UNROLL
        for (i = 0; i < quads; i++)
            SPECDEC__UNROLL
            for (c = 0; c < columns; c++)
                vst1q_f32(sums + c * SPECDEC__ROWS + row + i * 4, acc[i][c]);
    }
}

/* Adds a panel times `count` columns to sums (column, 16). */
SPECDEC__INLINE void specdec__neon_dot(int type, const specdec__panel *panel, int blocks, const specdec__columns *x,
                                       size_t at, int count, int wide, float *sums)
{
    for (; count >= 4; count -= 4, at += 4, sums += 64)
        specdec__neon_multiply_columns(type, panel, blocks, x, at, 4, wide, sums);
    if (count & 2) {
        specdec__neon_multiply_columns(type, panel, blocks, x, at, 2, wide, sums);
        at += 2;
        sums += 32;
    }
    if (count & 1)
        specdec__neon_multiply_columns(type, panel, blocks, x, at, 1, wide, sums);
}

#define SPECDEC__NEON_DOT(name, type, wide) \
    static void specdec__neon_dot_##name(const specdec__panel *panel, int blocks, const specdec__columns *x, \
                                         int block, int column, int count, float *sums) \
    { \
        specdec__neon_dot(type, panel, blocks, x, (size_t)block * (size_t)x->n + (size_t)column, count, wide, sums); \
    }

SPECDEC__NEON_DOT(16, SPECDEC__DOTPROD_PANEL_16, 0)
SPECDEC__NEON_DOT(16m, SPECDEC__DOTPROD_PANEL_16M, 0)
SPECDEC__NEON_DOT(32m, SPECDEC__DOTPROD_PANEL_32M, 0)
SPECDEC__NEON_DOT(32_wide, SPECDEC__DOTPROD_PANEL_32, 1)
SPECDEC__NEON_DOT(32_narrow, SPECDEC__DOTPROD_PANEL_32, 0)

static void specdec__neon_dot_32(const specdec__panel *panel, int blocks, const specdec__columns *x, int block,
                                 int column, int count, float *sums)
{
    (SPECDEC__NEON_IS_WIDE(panel) ? specdec__neon_dot_32_wide : specdec__neon_dot_32_narrow)(panel, blocks, x, block,
                                                                                             column, count, sums);
}
#endif /* aarch64 */
