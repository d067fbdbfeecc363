/* =====================================================================================================================
 * >>kernel/rvv: RISC-V vectors (V 1.0) of 128 bits and more: vector operations, and dots of panels.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../quant/types.h"
#include "kernel.h"
#include "scalar.h"
#include "weigh.h"
#include "neon32.h"

#ifdef SPECDEC__RVV
/* The vector of RISC-V: sixteen float lanes. The compiler spreads them over as many registers as needed. */
typedef float specdec__rvv_v __attribute__((vector_size(64)));
typedef uint32_t specdec__rvv_bits __attribute__((vector_size(64)));
typedef uint16_t specdec__rvv_halves __attribute__((vector_size(32)));
typedef int8_t specdec__rvv_bytes __attribute__((vector_size(16)));

/* Functions for the operations of SPECDEC__LANE_OPERATIONS. */
SPECDEC__INLINE specdec__rvv_v specdec__rvv_load(const float *at)
{
    specdec__rvv_v r;

    memcpy(&r, at, sizeof r);
    return r;
}
SPECDEC__INLINE void specdec__rvv_store(float *at, specdec__rvv_v x) { memcpy(at, &x, sizeof x); }
SPECDEC__INLINE specdec__rvv_v specdec__rvv_set(float x)
{
    const specdec__rvv_v r = {x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};

    return r;
}
SPECDEC__INLINE specdec__rvv_v specdec__rvv_add(specdec__rvv_v x, specdec__rvv_v y) { return x + y; }
SPECDEC__INLINE specdec__rvv_v specdec__rvv_sub(specdec__rvv_v x, specdec__rvv_v y) { return x - y; }
SPECDEC__INLINE specdec__rvv_v specdec__rvv_mul(specdec__rvv_v x, specdec__rvv_v y) { return x * y; }
SPECDEC__INLINE specdec__rvv_v specdec__rvv_div(specdec__rvv_v x, specdec__rvv_v y) { return x / y; }
SPECDEC__INLINE specdec__rvv_v specdec__rvv_madd(specdec__rvv_v x, specdec__rvv_v y, specdec__rvv_v z)
{
    return __builtin_elementwise_fma(x, y, z);
}

/* Returns the lanes of x where the mask is set, of y elsewhere. */
SPECDEC__INLINE specdec__rvv_v specdec__rvv_select(specdec__rvv_bits mask, specdec__rvv_v x, specdec__rvv_v y)
{
    return (specdec__rvv_v)((mask & (specdec__rvv_bits)x) | (~mask & (specdec__rvv_bits)y));
}
SPECDEC__INLINE specdec__rvv_v specdec__rvv_max(specdec__rvv_v x, specdec__rvv_v y)
{
    return specdec__rvv_select((specdec__rvv_bits)(x > y), x, y);
}
SPECDEC__INLINE specdec__rvv_v specdec__rvv_min(specdec__rvv_v x, specdec__rvv_v y)
{
    return specdec__rvv_select((specdec__rvv_bits)(x < y), x, y);
}
SPECDEC__INLINE specdec__rvv_v specdec__rvv_times_power_of_2(specdec__rvv_v x, specdec__rvv_v shifter)
{
    return (specdec__rvv_v)((specdec__rvv_bits)x + ((specdec__rvv_bits)shifter << 23));
}
SPECDEC__INLINE float specdec__rvv_sum(const specdec__rvv_v *parts)
{
    float lanes[16];

    specdec__rvv_store(lanes, *parts);
    return specdec__scalar_sum(lanes);
}
SPECDEC__INLINE float specdec__rvv_largest_lane(const specdec__rvv_v *parts)
{
    float lanes[16];

    specdec__rvv_store(lanes, *parts);
    return specdec__scalar_largest_lane(lanes);
}
SPECDEC__HIGHEST4(rvv, , 1)
#define specdec__rvv_weigh_codes specdec__scalar_weigh_codes
SPECDEC__INLINE int32_t specdec__rvv_bits_of_lane_0(specdec__rvv_v x) { return (int32_t)((specdec__rvv_bits)x)[0]; }
SPECDEC__INLINE void specdec__rvv_store_low_bytes(int8_t *at, specdec__rvv_v x)
{
    const specdec__rvv_bytes low = __builtin_convertvector((specdec__rvv_bits)x, specdec__rvv_bytes);

    memcpy(at, &low, sizeof low);
}
#define specdec__rvv_sum_codes specdec__scalar_sum_codes
#define specdec__rvv_compute_noise_bits specdec__scalar_compute_noise_bits

/* Converts half floats to floats: their bits, as those of a float, are 2^112 times too small, except for infinities and
   NaNs. */
SPECDEC__INLINE specdec__rvv_v specdec__rvv_load_f16(const void *at)
{
    specdec__rvv_halves halves;
    specdec__rvv_bits wide, size;
    specdec__rvv_v r;

    memcpy(&halves, at, sizeof halves);
    wide = __builtin_convertvector(halves, specdec__rvv_bits);
    size = wide & 0x7FFF;
    r = (specdec__rvv_v)(size << 13) * 5192296858534827628530496329220096.0f;
    return (specdec__rvv_v)((specdec__rvv_bits)r | ((specdec__rvv_bits)(size >= 0x7C00) & 0x7F800000) |
                            (wide & 0x8000) << 16);
}
SPECDEC__INLINE specdec__rvv_v specdec__rvv_load_bf16(const void *at)
{
    specdec__rvv_halves halves;

    memcpy(&halves, at, sizeof halves);
    return (specdec__rvv_v)(__builtin_convertvector(halves, specdec__rvv_bits) << 16);
}
SPECDEC__INLINE void specdec__rvv_store_f16(void *at, specdec__rvv_v x)
{
    float lanes[16];
    uint16_t halves[16];
    int i;

    specdec__rvv_store(lanes, x);
    for (i = 0; i < 16; i++)
        halves[i] = specdec__f16_from_float(lanes[i]);
    memcpy(at, halves, sizeof halves);
}

#define SPECDEC__ISA rvv
#define SPECDEC__TARGET
#define SPECDEC__LANES 16
#define SPECDEC__WIDTH 1
#include SPECDEC__FILE

/* The functions that >>kernel/lines needs of an instruction set; described in >>kernel/neon32. */
#define SPECDEC__LINE_VECTOR 64

static void specdec__line_store_scales(float *out, const unsigned char *d, const int8_t *factors, float unit)
{
    specdec__rvv_bytes bytes;

    memcpy(&bytes, factors, sizeof bytes);
    specdec__rvv_store(out, __builtin_convertvector(bytes, specdec__rvv_v) * unit * specdec__rvv_load_f16(d));
}

static void specdec__line_store_f16_scales(float *out, const unsigned char *d)
{
    specdec__rvv_store(out, specdec__rvv_load_f16(d));
}

static void specdec__line_look_up(int8_t *codes, const int8_t *values)
{
    const vint8m1_t table = __riscv_vle8_v_i8m1(values, 16);
    int i;

    for (i = 0; i < 512; i += 16) {
        vuint8m1_t which = __riscv_vreinterpret_v_i8m1_u8m1(__riscv_vle8_v_i8m1(codes + i, 16));

        __riscv_vse8_v_i8m1(codes + i, __riscv_vrgather_vv_i8m1(table, which, 16), 16);
    }
}

/* Computes panel->pair of granule k of a panel: the sums of its codes, by row. Codes of a panel are (value, row) here.
   */
SPECDEC__INLINE void specdec__rvv_sum_codes_of_granule(specdec__panel *panel, int k, int granule)
{
    int8_t *codes = panel->u.codes + k * granule * SPECDEC__ROWS;
    vint16m2_t sum = __riscv_vmv_v_x_i16m2(0, 16);
    int i;

    for (i = 0; i < granule * SPECDEC__ROWS; i += 64) {
        int8_t *at = codes + i;
        const vint8m1_t v0 = __riscv_vlse8_v_i8m1(at, 4, 16), v1 = __riscv_vlse8_v_i8m1(at + 1, 4, 16);
        const vint8m1_t v2 = __riscv_vlse8_v_i8m1(at + 2, 4, 16), v3 = __riscv_vlse8_v_i8m1(at + 3, 4, 16);

        sum = __riscv_vwadd_wv_i16m2(__riscv_vwadd_wv_i16m2(sum, v0, 16), v1, 16);
        sum = __riscv_vwadd_wv_i16m2(__riscv_vwadd_wv_i16m2(sum, v2, 16), v3, 16);
        __riscv_vse8_v_i8m1(at, v0, 16);
        __riscv_vse8_v_i8m1(at + 16, v1, 16);
        __riscv_vse8_v_i8m1(at + 32, v2, 16);
        __riscv_vse8_v_i8m1(at + 48, v3, 16);
    }
    __riscv_vse32_v_i32m4(panel->pair[k], __riscv_vwcvt_x_x_v_i32m4(sum, 16), 16);
}
#define SPECDEC__LINE_SUM_GRANULE specdec__rvv_sum_codes_of_granule

/* Adds a panel times one column to sums (16). The sums of 8 products (wide: of 2) of a row fit into 16 bits: 8 * 32 *
   127, 2 * 128 * 127. */
SPECDEC__INLINE void specdec__rvv_dot_column(const specdec__panel *panel, int blocks, const specdec__columns *x,
                                             size_t at, float *sums, int granule, int has_minimum, int wide)
{
    const int per = 32 / granule, chain = wide ? 2 : 8;
    vfloat32m4_t acc = __riscv_vle32_v_f32m4(sums, 16);
    int b, g, i, j;

    for (b = 0; b < blocks; b++, at += (size_t)x->n)
        SPECDEC__UNROLL
        for (g = 0; g < per; g++) {
            const int k = b * per + g;
            const int8_t *weights = panel->u.codes + k * granule * SPECDEC__ROWS;
            const int8_t *codes = x->codes + at * 32 + g * granule;
            vint32m4_t dot = __riscv_vmul_vx_i32m4(__riscv_vle32_v_i32m4(panel->pair[k], 16),
                                                   (int16_t)(x->pair32[at] & 0xFFFF), 16);
            vfloat32m4_t scale = __riscv_vfmul_vf_f32m4(__riscv_vle32_v_f32m4(panel->scale[k], 16), x->scale[at], 16);

            for (i = 0; i < granule; i += chain, weights += chain * SPECDEC__ROWS) {
                vint16m2_t part = __riscv_vwmul_vx_i16m2(__riscv_vle8_v_i8m1(weights, 16), codes[i], 16);

                SPECDEC__UNROLL
                for (j = 1; j < chain; j++)
                    part = __riscv_vwmacc_vx_i16m2(
                        part, codes[i + j], __riscv_vle8_v_i8m1(weights + j * SPECDEC__ROWS, 16), 16);
                dot = __riscv_vwadd_wv_i32m4(dot, part, 16);
            }
            acc = __riscv_vfmacc_vv_f32m4(acc, scale, __riscv_vfcvt_f_x_v_f32m4(dot, 16), 16);
            if (has_minimum)
                acc = __riscv_vfmacc_vf_f32m4(acc, per == 1 ? x->sum32[at] : x->sum16[at * 2 + (size_t)g],
                                              __riscv_vle32_v_f32m4(panel->minimum[k], 16), 16);
        }
    __riscv_vse32_v_f32m4(sums, acc, 16);
}

#define SPECDEC__RVV_DOT(name, granule, has_minimum, wide) \
    static void specdec__rvv_dot_##name(const specdec__panel *panel, int blocks, const specdec__columns *x, int block, \
                                        int column, int count, float *sums) \
    { \
        size_t at = (size_t)block * (size_t)x->n + (size_t)column; \
        for (; count; count--, at++, sums += SPECDEC__ROWS) \
            specdec__rvv_dot_column(panel, blocks, x, at, sums, granule, has_minimum, wide); \
    }

SPECDEC__RVV_DOT(16, 16, 0, 0)
SPECDEC__RVV_DOT(16_wide, 16, 0, 1)
SPECDEC__RVV_DOT(16m, 16, 1, 0)
SPECDEC__RVV_DOT(32, 32, 0, 0)
SPECDEC__RVV_DOT(32_wide, 32, 0, 1)
SPECDEC__RVV_DOT(32m, 32, 1, 0)
#endif /* RISC-V */
