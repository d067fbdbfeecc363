/* =====================================================================================================================
 * >>kernel/neon32: NEON and VFPv4 on 32-bit ARM: scalar float loops, dots of panels.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "kernel.h"
#include "scalar.h"
#include "weigh.h"

#ifdef SPECDEC__NEON32
#ifdef SPECDEC__NEON32_ASKED
#pragma GCC push_options
#pragma GCC target("fpu=neon-vfpv4")
#endif

/* NEON treats floats below 2^-126 as 0 here, unlike the processor's scalar arithmetic. So float loops have a single
   lane, that of plain C, whose multiply-add is one instruction. clang would vectorise such code by itself: it needs
   -fno-slp-vectorize. */
typedef float specdec__neon32_v;
#define specdec__neon32_load specdec__scalar_load
#define specdec__neon32_store specdec__scalar_store
#define specdec__neon32_set specdec__scalar_set
#define specdec__neon32_add specdec__scalar_add
#define specdec__neon32_sub specdec__scalar_sub
#define specdec__neon32_mul specdec__scalar_mul
#define specdec__neon32_div specdec__scalar_div
#define specdec__neon32_max specdec__scalar_max
#define specdec__neon32_min specdec__scalar_min
#define specdec__neon32_times_power_of_2 specdec__scalar_times_power_of_2
#define specdec__neon32_sum specdec__scalar_sum
#define specdec__neon32_largest_lane specdec__scalar_largest_lane
#define specdec__neon32_largest_lanes_of_four specdec__scalar_largest_lanes_of_four
#define specdec__neon32_weigh_codes specdec__scalar_weigh_codes
#define specdec__neon32_bits_of_lane_0 specdec__scalar_bits_of_lane_0
#define specdec__neon32_store_low_bytes specdec__scalar_store_low_bytes
#define specdec__neon32_sum_codes specdec__scalar_sum_codes
#define specdec__neon32_compute_noise_bits specdec__scalar_compute_noise_bits
#define specdec__neon32_load_f16 specdec__scalar_load_f16
#define specdec__neon32_load_bf16 specdec__scalar_load_bf16
#define specdec__neon32_store_f16 specdec__scalar_store_f16
SPECDEC__INLINE float specdec__neon32_madd(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

#define SPECDEC__ISA neon32
#define SPECDEC__TARGET
#define SPECDEC__LANES 1
#define SPECDEC__WIDTH 8
#include SPECDEC__FILE

/* Converts four half floats to floats; also those below 2^-14. */
SPECDEC__INLINE float32x4_t specdec__neon32_from_f16(const unsigned char *at)
{
    uint8x8_t halves = vld1_u8(at);
    float32x4_t r;

    __asm__("vcvt.f32.f16 %q0, %P1" : "=w"(r) : "w"(halves));
    return r;
}

/* The functions that >>kernel/lines needs of an instruction set. */
#define SPECDEC__LINE_VECTOR 16 /* bytes of a line that are unpacked at a time */

/* Computes out (16 rows) = d * factor * unit. All products are exact, and 0 or at least 2^-27. */
static void specdec__line_store_scales(float *out, const unsigned char *d, const int8_t *factors, float unit)
{
    int row;

    for (row = 0; row < SPECDEC__ROWS; row += 8) {
        int16x8_t wide = vmovl_s8(vld1_s8(factors + row));
        float32x4_t low = vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide))), unit);
        float32x4_t high = vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_high_s16(wide))), unit);

        vst1q_f32(out + row, vmulq_f32(low, specdec__neon32_from_f16(d + row * 2)));
        vst1q_f32(out + row + 4, vmulq_f32(high, specdec__neon32_from_f16(d + row * 2 + 8)));
    }
}

/* Computes out (16 rows) = d, half floats as floats. */
static void specdec__line_store_f16_scales(float *out, const unsigned char *d)
{
    int row;

    for (row = 0; row < SPECDEC__ROWS; row += 4)
        vst1q_f32(out + row, specdec__neon32_from_f16(d + row * 2));
}

/* Replaces each of 512 codes of a panel, indices of a table, by the value in the table. */
static void specdec__line_look_up(int8_t *codes, const int8_t *values)
{
    int8x8x2_t table;
    int i;

    table.val[0] = vld1_s8(values);
    table.val[1] = vld1_s8(values + 8);
    for (i = 0; i < 512; i += 8)
        vst1_s8(codes + i, vtbl2_s8(table, vld1_s8(codes + i)));
}

/* Computes panel->pair of granule k of a panel: the sums of its codes, by row. */
SPECDEC__INLINE void specdec__neon32_sum_codes_of_granule(specdec__panel *panel, int k, int granule)
{
    const int8_t *codes = panel->u.codes + k * granule * SPECDEC__ROWS;
    int row, i;

    for (row = 0; row < SPECDEC__ROWS; row += 4) {
        int16x8_t sum = vpaddlq_s8(vld1q_s8(codes + row * 4));

        SPECDEC__UNROLL
        for (i = 1; i < granule / 4; i++)
            sum = vpadalq_s8(sum, vld1q_s8(codes + i * 64 + row * 4));
        vst1q_s32(panel->pair[k] + row, vpaddlq_s16(sum));
    }
}

#define SPECDEC__LINE_SUM_GRANULE specdec__neon32_sum_codes_of_granule

/* Returns the exact sums of a granule of four rows times a column. The sums of 8 products (wide: of 2) of a row fit
   into 16 bits: 8 * 32 * 127, 2 * 128 * 127. */
SPECDEC__INLINE int32x4_t specdec__neon32_granule_products(const int8_t *weights, const int8_t *codes, int words,
                                                           int wide)
{
    const int chain = wide ? 2 : words;
    int32x4_t low = vdupq_n_s32(0), high = low;
    int16x8_t low16 = vdupq_n_s16(0), high16 = low16;
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < words; i++) {
        const int32_t *four = (const int32_t *)(const void *)(codes + i * 4);
        const int8x8_t v = vreinterpret_s8_s32(vld1_dup_s32(four));
        const int8x16_t w = vld1q_s8(weights + i * 64);

        low16 = i % chain ? vmlal_s8(low16, vget_low_s8(w), v) : vmull_s8(vget_low_s8(w), v);
        high16 = i % chain ? vmlal_s8(high16, vget_high_s8(w), v) : vmull_s8(vget_high_s8(w), v);
        if (i == chain - 1) {
            low = vpaddlq_s16(low16);
            high = vpaddlq_s16(high16);
        } else if (i % chain == chain - 1) {
            low = vpadalq_s16(low, low16);
            high = vpadalq_s16(high, high16);
        }
    }
    return vcombine_s32(vpadd_s32(vget_low_s32(low), vget_high_s32(low)),
                        vpadd_s32(vget_low_s32(high), vget_high_s32(high)));
}

/* Returns whether multiplying a column gives no float below 2^-126 but 0. That holds if the column's scales are 0 or at
   least 2^-76, and sums begin at 0 or at least at 2^-103: the column's scales and totals are then multiples of 2^-99,
   its sums of 2^-126; scales and minimums of weights are multiples of 2^-27 (see specdec__line_store_scales); so
   products and all their sums, rounded or not, are multiples of 2^-126. Bits are compared without the sign, less 1, as
   0 is allowed. */
SPECDEC__INLINE int specdec__neon32_gives_no_subnormals(const specdec__columns *x, size_t at, int blocks,
                                                        const float *sums)
{
    const uint32x4_t one = vdupq_n_u32(1);
    uint32x4_t least = vdupq_n_u32(0xFFFFFFFFu);
    uint32x2_t two;
    uint32_t lowest = 0xFFFFFFFFu;
    int i;

    for (i = 0; i < SPECDEC__ROWS; i += 4)
        least = vminq_u32(least, vsubq_u32(vshlq_n_u32(vreinterpretq_u32_f32(vld1q_f32(sums + i)), 1), one));
    for (i = 0; i < blocks; i++) {
        uint32_t bits = (specdec__bits_from_float(x->scale[at + (size_t)i * (size_t)x->n]) << 1) - 1;

        lowest = bits < lowest ? bits : lowest;
    }
    two = vmin_u32(vget_low_u32(least), vget_high_u32(least));
    two = vpmin_u32(two, two);
    return vget_lane_u32(two, 0) >= ((127u - 103) << 24) - 1 && lowest >= ((127u - 76) << 24) - 1;
}

/* Adds a panel times one column to sums (16). */
SPECDEC__INLINE void specdec__neon32_dot_column(const specdec__panel *panel, int blocks, const specdec__columns *x,
                                                size_t from, float *sums, int granule, int has_minimum, int wide)
{
    const int per = 32 / granule;
    int row, b, g;

    for (row = 0; row < SPECDEC__ROWS; row += 4) {
        float32x4_t acc = vld1q_f32(sums + row);
        size_t at = from;

        for (b = 0; b < blocks; b++, at += (size_t)x->n) {
            const int32_t offset = (int16_t)(x->pair32[at] & 0xFFFF);

            SPECDEC__UNROLL
            for (g = 0; g < per; g++) {
                const int k = b * per + g;
                int32x4_t dot = specdec__neon32_granule_products(panel->u.codes + k * granule * SPECDEC__ROWS + row * 4,
                                                                 x->codes + at * 32 + g * granule, granule / 4, wide);

                dot = vmlaq_n_s32(dot, vld1q_s32(panel->pair[k] + row), offset);
                acc = vfmaq_f32(acc, vmulq_n_f32(vld1q_f32(panel->scale[k] + row), x->scale[at]), vcvtq_f32_s32(dot));
                if (has_minimum)
                    acc = vfmaq_f32(acc, vld1q_f32(panel->minimum[k] + row),
                                    vdupq_n_f32(per == 1 ? x->sum32[at] : x->sum16[at * 2 + (size_t)g]));
            }
        }
        vst1q_f32(sums + row, acc);
    }
}

/* Defines the dots. Plain C multiplies columns that are too small for NEON's floats. */
#define SPECDEC__NEON32_DOT(name, plain, granule, has_minimum, wide) \
    static void specdec__neon32_dot_##name(const specdec__panel *panel, int blocks, const specdec__columns *x, \
                                           int block, int column, int count, float *sums) \
    { \
        size_t at = (size_t)block * (size_t)x->n + (size_t)column; \
        for (; count; count--, column++, at++, sums += SPECDEC__ROWS) \
            if (specdec__neon32_gives_no_subnormals(x, at, blocks, sums)) \
                specdec__neon32_dot_column(panel, blocks, x, at, sums, granule, has_minimum, wide); \
            else \
                specdec__scalar_dot_##plain(panel, blocks, x, block, column, 1, sums); \
    }

SPECDEC__NEON32_DOT(16, 16, 16, 0, 0)
SPECDEC__NEON32_DOT(16_wide, 16, 16, 0, 1)
SPECDEC__NEON32_DOT(16m, 16m, 16, 1, 0)
SPECDEC__NEON32_DOT(32, 32, 32, 0, 0)
SPECDEC__NEON32_DOT(32_wide, 32, 32, 0, 1)
SPECDEC__NEON32_DOT(32m, 32m, 32, 1, 0)
#endif /* 32-bit ARM */
