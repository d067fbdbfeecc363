/* --- NEON, with and without dot products and matrix products ------------------------------------------------------ */

#pragma once
#include "../base/base.h"
#include "../quant/types.h"
#include "../quant/encode.h"
#include "kernel.h"
#include "scalar.h"
#include "weigh.h"

#if defined(__aarch64__) && defined(__ARM_NEON) && defined(__AARCH64EL__) && !defined(SPECDEC_NO_SIMD)
#define SPECDEC__NEON

/* Functions with these attributes call only one another, intrinsics, and helpers of the base. Older clangs (14 is one)
   have these intrinsics only when the command line asks for them, so every clang gets the instruction. */
#if defined(__clang__)
#define SPECDEC__DOTPROD __attribute__((target("dotprod")))
#define SPECDEC__I8MM __attribute__((target("i8mm")))
#define SPECDEC__SDOT SPECDEC__SDOT_IN_PLACE
#define SPECDEC__UDOT(sum, w, x, lane) __asm__("udot %0.4s, %1.16b, %2.4b[" #lane "]" : "+w"(sum) : "w"(w), "w"(x))
#define SPECDEC__NEON_APART ((void)0)
#define SPECDEC__NEON_KEEPS 0
#else
/* With what the command line has, as gcc inlines no helper of a base that the function's own target does not have. A
   base that may be older than ARMv8.2 needs a whole architecture, for gcc's intrinsics and for the assembler, and each
   extension by name. No macro tells of those of OTHERS, and none of them changes what is compiled. */
#define SPECDEC__NEON_OTHERS "+rcpc+rng+ssbs+sb+predres+profile+memtag"
#if defined(__ARM_FEATURE_AES) || defined(__ARM_FEATURE_SHA2) || defined(__ARM_FEATURE_CRYPTO)
#define SPECDEC__NEON_CRYPTO "+crypto"
#else
#define SPECDEC__NEON_CRYPTO
#endif
#ifdef __ARM_FEATURE_SHA3
#define SPECDEC__NEON_SHA3 "+sha3"
#else
#define SPECDEC__NEON_SHA3
#endif
#ifdef __ARM_FEATURE_BF16_SCALAR_ARITHMETIC
#define SPECDEC__NEON_BF16 "+bf16"
#else
#define SPECDEC__NEON_BF16
#endif
#ifdef __ARM_FEATURE_FP16_FML
#define SPECDEC__NEON_FP16 "+fp16fml"
#elif defined(__ARM_FEATURE_FP16_SCALAR_ARITHMETIC)
#define SPECDEC__NEON_FP16 "+fp16"
#else
#define SPECDEC__NEON_FP16
#endif
#ifdef __ARM_FEATURE_SVE
#define SPECDEC__NEON_SVE "+sve"
#else
#define SPECDEC__NEON_SVE
#endif
#define SPECDEC__NEON_BASE \
    SPECDEC__NEON_CRYPTO SPECDEC__NEON_SHA3 SPECDEC__NEON_BF16 SPECDEC__NEON_FP16 SPECDEC__NEON_SVE SPECDEC__NEON_OTHERS
#ifdef __ARM_FEATURE_DOTPROD
#define SPECDEC__DOTPROD
#define SPECDEC__I8MM __attribute__((target("+i8mm")))
#elif defined(__ARM_FEATURE_MATMUL_INT8)
#define SPECDEC__DOTPROD __attribute__((target("+dotprod")))
#define SPECDEC__I8MM __attribute__((target("+dotprod")))
#elif defined(__ARM_FEATURE_COMPLEX) || defined(__ARM_FEATURE_SVE2) /* ARMv8.3, or newer */
#define SPECDEC__DOTPROD __attribute__((target("+dotprod")))
#define SPECDEC__I8MM __attribute__((target("+i8mm")))
#else
#define SPECDEC__DOTPROD __attribute__((target("arch=armv8.2-a+dotprod" SPECDEC__NEON_BASE)))
#define SPECDEC__I8MM __attribute__((target("arch=armv8.2-a+i8mm" SPECDEC__NEON_BASE)))
#endif
#define SPECDEC__SDOT(sum, w, x, lane) ((sum) = vdotq_laneq_s32(sum, w, x, lane))
#define SPECDEC__UDOT(sum, w, x, lane) ((sum) = vdotq_laneq_u32(sum, w, x, lane))
/* gcc keeps what it has loaded, and moves it to where it is needed, whatever SPECDEC__NEON_ANEW says. */
#define SPECDEC__NEON_KEEPS 1
/* gcc does not mix what comes before with what comes after, for which registers would be too few. */
#define SPECDEC__NEON_APART __asm__ volatile("")
#endif
/* sdot for places where gcc would copy the sums that its intrinsic overwrites. */
#define SPECDEC__SDOT_IN_PLACE(sum, w, x, lane) \
    __asm__("sdot %0.4s, %1.16b, %2.4b[" #lane "]" : "+w"(sum) : "w"(w), "w"(x))
/* gcc's intrinsic asks for a whole architecture, which helpers of a base with more than that do not go into. */
#define SPECDEC__SMMLA(sum, w, x) __asm__("smmla %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(w), "w"(x))

/* An address that compilers know nothing of: what was read elsewhere is read again, not kept in too few registers. The
   second: also where compilers have seen the same address here. */
#define SPECDEC__NEON_ANEW(pointer) __asm__("" : "+r"(pointer))
#define SPECDEC__NEON_LOAD(pointer) __asm__ volatile("" : "+r"(pointer))
/* Reads a vector of 16 bytes again wherever place, a pointer, or number differs: for constants that an instruction
   overwrites, as a load costs less than a move between registers. */
typedef uint8x16_t __attribute__((may_alias)) specdec__neon_any;
#define SPECDEC__NEON_AGAIN(vector, from, place, number) \
    __asm__("ldr %q0, %1" : "=w"(vector) : "m"(*(const specdec__neon_any *)(from)), "m"(*(place)), "X"(number))

/* Bits of `from` into a vector, where mask has ones: clang would make three instructions of it. */
#define SPECDEC__NEON_PUT_BITS(vector, from, mask) \
    __asm__("bit %0.16b, %1.16b, %2.16b" : "+w"(vector) : "w"(from), "w"(mask))

/* Sixteen float lanes. */
typedef struct specdec__neon_v {
    float32x4_t a, b, c, d;
} specdec__neon_v;

#define SPECDEC__NEON_LANES(name, parameters, expression) \
    SPECDEC__INLINE specdec__neon_v specdec__neon_##name parameters \
    { \
        specdec__neon_v r; \
        r.a = expression(a); \
        r.b = expression(b); \
        r.c = expression(c); \
        r.d = expression(d); \
        return r; \
    }

/* x > y ? x : y, as the other instruction sets have it; NEON's own maximum treats NaNs and zeros differently. */
SPECDEC__INLINE float32x4_t specdec__neon_max4(float32x4_t x, float32x4_t y)
{
    return vbslq_f32(vcgtq_f32(x, y), x, y);
}

/* x < y ? x : y. */
SPECDEC__INLINE float32x4_t specdec__neon_min4(float32x4_t x, float32x4_t y)
{
    return vbslq_f32(vcltq_f32(x, y), x, y);
}

/* x * 2^n, where shifter is n + 1.5 * 2^23. */
SPECDEC__INLINE float32x4_t specdec__neon_scale4(float32x4_t x, float32x4_t shifter)
{
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(x), vshlq_n_s32(vreinterpretq_s32_f32(shifter), 23)));
}

#define SPECDEC__NEON_EACH(part) vdupq_n_f32(x)
SPECDEC__NEON_LANES(set, (float x), SPECDEC__NEON_EACH)
#undef SPECDEC__NEON_EACH
#define SPECDEC__NEON_EACH(part) vaddq_f32(x.part, y.part)
SPECDEC__NEON_LANES(add, (specdec__neon_v x, specdec__neon_v y), SPECDEC__NEON_EACH)
#undef SPECDEC__NEON_EACH
#define SPECDEC__NEON_EACH(part) vsubq_f32(x.part, y.part)
SPECDEC__NEON_LANES(sub, (specdec__neon_v x, specdec__neon_v y), SPECDEC__NEON_EACH)
#undef SPECDEC__NEON_EACH
#define SPECDEC__NEON_EACH(part) vmulq_f32(x.part, y.part)
SPECDEC__NEON_LANES(mul, (specdec__neon_v x, specdec__neon_v y), SPECDEC__NEON_EACH)
#undef SPECDEC__NEON_EACH
#define SPECDEC__NEON_EACH(part) vdivq_f32(x.part, y.part)
SPECDEC__NEON_LANES(div, (specdec__neon_v x, specdec__neon_v y), SPECDEC__NEON_EACH)
#undef SPECDEC__NEON_EACH
#define SPECDEC__NEON_EACH(part) vfmaq_f32(z.part, x.part, y.part)
SPECDEC__NEON_LANES(madd, (specdec__neon_v x, specdec__neon_v y, specdec__neon_v z), SPECDEC__NEON_EACH)
#undef SPECDEC__NEON_EACH
#define SPECDEC__NEON_EACH(part) specdec__neon_max4(x.part, y.part)
SPECDEC__NEON_LANES(max, (specdec__neon_v x, specdec__neon_v y), SPECDEC__NEON_EACH)
#undef SPECDEC__NEON_EACH
#define SPECDEC__NEON_EACH(part) specdec__neon_min4(x.part, y.part)
SPECDEC__NEON_LANES(min, (specdec__neon_v x, specdec__neon_v y), SPECDEC__NEON_EACH)
#undef SPECDEC__NEON_EACH
#define SPECDEC__NEON_EACH(part) specdec__neon_scale4(x.part, shifter.part)
SPECDEC__NEON_LANES(scale2, (specdec__neon_v x, specdec__neon_v shifter), SPECDEC__NEON_EACH)
#undef SPECDEC__NEON_EACH

/* More operations of SPECDEC__LANE_OPERATIONS. */
SPECDEC__INLINE specdec__neon_v specdec__neon_load(const float *at)
{
    specdec__neon_v r;

    r.a = vld1q_f32(at);
    r.b = vld1q_f32(at + 4);
    r.c = vld1q_f32(at + 8);
    r.d = vld1q_f32(at + 12);
    return r;
}

SPECDEC__INLINE void specdec__neon_store(float *at, specdec__neon_v x)
{
    vst1q_f32(at, x.a);
    vst1q_f32(at + 4, x.b);
    vst1q_f32(at + 8, x.c);
    vst1q_f32(at + 12, x.d);
}

SPECDEC__INLINE void specdec__neon_store_low_bytes(int8_t *at, specdec__neon_v x)
{
    int16x8_t low = vuzp1q_s16(vreinterpretq_s16_f32(x.a), vreinterpretq_s16_f32(x.b));
    int16x8_t high = vuzp1q_s16(vreinterpretq_s16_f32(x.c), vreinterpretq_s16_f32(x.d));

    vst1q_s8(at, vuzp1q_s8(vreinterpretq_s8_s16(low), vreinterpretq_s8_s16(high)));
}

/* The canonical sum of 16 lanes. */
SPECDEC__INLINE float specdec__neon_sum(const specdec__neon_v *parts)
{
    const specdec__neon_v x = parts[0];
    float32x4_t four = vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d));
    float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));

    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

/* The largest of 16 lanes. */
SPECDEC__INLINE float specdec__neon_highest(const specdec__neon_v *parts)
{
    const specdec__neon_v x = parts[0];
    float32x4_t four = specdec__neon_max4(specdec__neon_max4(x.a, x.c), specdec__neon_max4(x.b, x.d));
    float32x2_t low = vget_low_f32(four), high = vget_high_f32(four), two = vbsl_f32(vcgt_f32(low, high), low, high);
    float first = vget_lane_f32(two, 0), second = vget_lane_f32(two, 1);

    return first > second ? first : second;
}

SPECDEC__HIGHEST4(neon, , 1)

SPECDEC__INLINE int32_t specdec__neon_sum_codes(const int8_t *codes) { return vaddlvq_s8(vld1q_s8(codes)); }

SPECDEC__INLINE int32_t specdec__neon_first_bits(specdec__neon_v x)
{
    return vgetq_lane_s32(vreinterpretq_s32_f32(x.a), 0);
}

/* Four half floats to floats. */
SPECDEC__INLINE float32x4_t specdec__neon_load_f16x4(const unsigned char *at)
{
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(at)));
}

SPECDEC__INLINE specdec__neon_v specdec__neon_load_f16(const void *at)
{
    const unsigned char *from = (const unsigned char *)at;
    specdec__neon_v r;

    r.a = specdec__neon_load_f16x4(from);
    r.b = specdec__neon_load_f16x4(from + 8);
    r.c = specdec__neon_load_f16x4(from + 16);
    r.d = specdec__neon_load_f16x4(from + 24);
    return r;
}

/* Four bfloat16 to floats. */
SPECDEC__INLINE float32x4_t specdec__neon_load_bf16x4(const unsigned char *at)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(at)), 16));
}

SPECDEC__INLINE specdec__neon_v specdec__neon_load_bf16(const void *at)
{
    const unsigned char *from = (const unsigned char *)at;
    specdec__neon_v r;

    r.a = specdec__neon_load_bf16x4(from);
    r.b = specdec__neon_load_bf16x4(from + 8);
    r.c = specdec__neon_load_bf16x4(from + 16);
    r.d = specdec__neon_load_bf16x4(from + 24);
    return r;
}

SPECDEC__INLINE void specdec__neon_store_f16(void *at, specdec__neon_v x)
{
    unsigned char *to = (unsigned char *)at;

    vst1_u8(to, vreinterpret_u8_f16(vcvt_f16_f32(x.a)));
    vst1_u8(to + 8, vreinterpret_u8_f16(vcvt_f16_f32(x.b)));
    vst1_u8(to + 16, vreinterpret_u8_f16(vcvt_f16_f32(x.c)));
    vst1_u8(to + 24, vreinterpret_u8_f16(vcvt_f16_f32(x.d)));
}

#define SPECDEC__ISA neon
#define SPECDEC__TARGET
#define SPECDEC__LANES 16
#define SPECDEC__WIDTH 1
#include SPECDEC__FILE

/* 16 values plus 128. */
SPECDEC__INLINE uint8x16_t specdec__neon_raised(const int8_t *values)
{
    return veorq_u8(vreinterpretq_u8_s8(vld1q_s8(values)), vdupq_n_u8(128));
}

/* What sums of codes (64) times values plus 128 have to start at. */
SPECDEC__INLINE uint32_t specdec__neon_start(const uint8_t *codes)
{
    const uint16x8_t low = vpaddlq_u8(vld1q_u8(codes)), high = vpaddlq_u8(vld1q_u8(codes + 16));
    const uint16x8_t sums = vpadalq_u8(vpadalq_u8(vaddq_u16(low, high), vld1q_u8(codes + 32)), vld1q_u8(codes + 48));

    return 0u - 128u * vaddlvq_u16(sums);
}

/* Four times four lanes of integers as floats. */
SPECDEC__INLINE specdec__neon_v specdec__neon_from_integers(const uint32x4_t *x)
{
    specdec__neon_v r;

    r.a = vcvtq_f32_s32(vreinterpretq_s32_u32(x[0]));
    r.b = vcvtq_f32_s32(vreinterpretq_s32_u32(x[1]));
    r.c = vcvtq_f32_s32(vreinterpretq_s32_u32(x[2]));
    r.d = vcvtq_f32_s32(vreinterpretq_s32_u32(x[3]));
    return r;
}

/* One tile. */
SPECDEC__INLINE void specdec__neon_value_sums(const int8_t *values, int keys, const uint8_t *codes,
                                              const unsigned char *next, specdec__neon_v *sums)
{
    uint32x4_t low[2][4], high[2][4], start;
    int key, c, i;

    SPECDEC__UNROLL
    for (c = 0; c < 2; c++)
        SPECDEC__UNROLL
        for (i = 0; i < 4; i++)
            low[c][i] = high[c][i] = vdupq_n_u32(0);
    for (key = 0; key < keys; key += 4) {
        specdec__weigh_fetch(next, key * SPECDEC__ROWS);
        SPECDEC__UNROLL
        for (i = 0; i < 4; i++) {
            const uint8x16_t value = specdec__neon_raised(values + key * SPECDEC__ROWS + i * 16);

            SPECDEC__UNROLL
            for (c = 0; c < 2; c++) {
                const uint32_t four = specdec__load_u32(codes + c * SPECDEC__KEYS + key);
                const uint8x16_t code = vreinterpretq_u8_u32(vdupq_n_u32(four));

                low[c][i] = vpadalq_u16(low[c][i], vmull_u8(vget_low_u8(value), vget_low_u8(code)));
                high[c][i] = vpadalq_u16(high[c][i], vmull_high_u8(value, code));
            }
        }
    }
    SPECDEC__UNROLL
    for (c = 0; c < 2; c++) {
        start = vdupq_n_u32(specdec__neon_start(codes + c * SPECDEC__KEYS));
        SPECDEC__UNROLL
        for (i = 0; i < 4; i++)
            low[c][i] = vaddq_u32(vpaddq_u32(low[c][i], high[c][i]), start);
        sums[c] = specdec__neon_from_integers(low[c]);
    }
}

SPECDEC__WEIGH_CODES(neon, neon, , 1, 2, SPECDEC__UNROLL)

/* The sums of a tile and four columns, over the keys of one lane: 4 of 16. */
#define SPECDEC__DOTPROD_ADD_VALUES(lane) \
    do { \
        specdec__weigh_fetch(next, (key + 4 * (lane)) * SPECDEC__ROWS); \
        SPECDEC__UNROLL \
        for (i = 0; i < 4; i++) \
            value[i] = specdec__neon_raised(values + (key + 4 * (lane)) * SPECDEC__ROWS + i * 16); \
        SPECDEC__UNROLL \
        for (c = 0; c < 4; c++) \
            SPECDEC__UNROLL \
            for (i = 0; i < 4; i++) \
                SPECDEC__UDOT(acc[c][i], value[i], code[c], lane); \
    } while (0)

/* One tile, four columns, with dot products. */
SPECDEC__DOTPROD SPECDEC__INLINE void specdec__dotprod_value_sums(const int8_t *values, int keys, const uint8_t *codes,
                                                                  const unsigned char *next, specdec__neon_v *sums)
{
    uint32x4_t acc[4][4];
    uint8x16_t code[4], value[4];
    int key, c, i;

    SPECDEC__UNROLL
    for (c = 0; c < 4; c++)
        SPECDEC__UNROLL
        for (i = 0; i < 4; i++)
            acc[c][i] = vdupq_n_u32(specdec__neon_start(codes + c * SPECDEC__KEYS));
    for (key = 0; key < keys; key += 16) {
        SPECDEC__UNROLL
        for (c = 0; c < 4; c++)
            code[c] = vld1q_u8(codes + c * SPECDEC__KEYS + key);
        SPECDEC__DOTPROD_ADD_VALUES(0);
        SPECDEC__DOTPROD_ADD_VALUES(1);
        SPECDEC__DOTPROD_ADD_VALUES(2);
        SPECDEC__DOTPROD_ADD_VALUES(3);
    }
    SPECDEC__UNROLL
    for (c = 0; c < 4; c++)
        sums[c] = specdec__neon_from_integers(acc[c]);
}

SPECDEC__WEIGH_CODES(dotprod, neon, SPECDEC__DOTPROD, 1, 4, SPECDEC__UNROLL)

/* Unpacking. Codes are signed; pair is the sum of a granule's codes. Layout of codes: (value/4, row, 4). Plain NEON
   multiplies narrow codes (up to 32, in granules of 16 up to 64) in longer chains of 16-bit sums. Granules of 32
   without a minimum may hold narrow codes or wide ones; a row of pair that they do not use says which. */
#define SPECDEC__NEON_WIDE(panel) ((panel)->pair[SPECDEC__PANEL / 32][0])

/* Stores 32 values of the 4 rows from 4*quad on, q[i] = values 4*i.. of each, and their sums. large: may one be
   above 63? */
SPECDEC__INLINE void specdec__neon_put_codes(specdec__panel *panel, int block, int quad, const int8x16_t q[8],
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

/* out (16 rows) = d * factor, or its negative; both factors exact. */
SPECDEC__INLINE void specdec__neon_put_scale(float *out, const unsigned char *d, int8x16_t factor, int negative)
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

/* The low four bits of each byte. */
SPECDEC__INLINE int8x16_t specdec__neon_low_nibbles(uint8x16_t packed)
{
    return vreinterpretq_s8_u8(vandq_u8(packed, vdupq_n_u8(15)));
}

/* The high four bits of each byte. */
SPECDEC__INLINE int8x16_t specdec__neon_high_nibbles(uint8x16_t packed)
{
    return vreinterpretq_s8_u8(vshrq_n_u8(packed, 4));
}

/* Q2_K, or with high bits Q3_K: words of two bits; those of a half of 256 values lie above each other. */
SPECDEC__INLINE void specdec__neon_put_crumbs(const unsigned char *crumbs, const unsigned char *high, int b,
                                              specdec__panel *panel)
{
    const uint8x16_t two = vdupq_n_u8(3), bit = vdupq_n_u8(4);
    const int8x16_t crumb_shift = vdupq_n_s8((int8_t)(b % 4 * -2)), high_shift = vdupq_n_s8((int8_t)(2 - b % 8));
    int quad, i;

    crumbs += b % 8 / 4 * 512;
    for (quad = 0; quad < 4; quad++) {
        int8x16_t q[8];

        SPECDEC__UNROLL
        for (i = 0; i < 8; i++) {
            uint8x16_t code = vandq_u8(vshlq_u8(vld1q_u8(crumbs + i * 64 + quad * 16), crumb_shift), two);

            if (high)
                code = vsubq_u8(vorrq_u8(code, vandq_u8(vshlq_u8(vld1q_u8(high + i * 64 + quad * 16), high_shift),
                                                        bit)), bit);
            q[i] = vreinterpretq_s8_u8(code);
        }
        specdec__neon_put_codes(panel, b, quad, q, 16, 0);
    }
}

/* Q2_K: 16 bytes of (scale, minimum) nibbles, 16 words of crumbs, d, dmin. */
SPECDEC__INLINE void specdec__neon_unpack_2k(const unsigned char *tile, int blocks, specdec__panel *panel)
{
    int b, k;

    for (b = 0; b < blocks; b++) {
        specdec__neon_put_crumbs(tile + SPECDEC__TILE_AT(q2_k, crumbs), NULL, b, panel);
        for (k = b * 2; k < b * 2 + 2; k++) {
            uint8x16_t both = vld1q_u8(tile + SPECDEC__TILE_AT(q2_k, scales) + k % 16 * 16);

            specdec__neon_put_scale(panel->scale[k], tile + SPECDEC__TILE_AT(q2_k, d), specdec__neon_low_nibbles(both),
                                    0);
            specdec__neon_put_scale(panel->minimum[k], tile + SPECDEC__TILE_AT(q2_k, dmin),
                                    specdec__neon_high_nibbles(both), 1);
        }
        if (b % 8 == 7)
            tile += SPECDEC__TILE_BYTES(q2_k);
    }
}

/* Six bits of scale k of Q3_K, of 16 rows each. */
SPECDEC__INLINE uint8x16_t specdec__neon_factors_3k(const unsigned char *tile, int k)
{
    const unsigned char *packed = tile + SPECDEC__TILE_AT(q3_k, scales);
    uint8x16_t low = vshlq_u8(vld1q_u8(packed + k % 8 * 16), vdupq_n_s8((int8_t)(k / 8 * -4)));
    uint8x16_t high = vshlq_u8(vld1q_u8(packed + (8 + k % 4) * 16), vdupq_n_s8((int8_t)(4 - k / 4 * 2)));

    return vorrq_u8(vandq_u8(low, vdupq_n_u8(15)), vandq_u8(high, vdupq_n_u8(48)));
}

/* Q3_K: 8 words of high bits, 16 words of crumbs, 12 bytes of 6-bit scales, d. */
SPECDEC__INLINE void specdec__neon_unpack_3k(const unsigned char *tile, int blocks, specdec__panel *panel)
{
    int b, k;

    for (b = 0; b < blocks; b++) {
        specdec__neon_put_crumbs(tile + SPECDEC__TILE_AT(q3_k, crumbs), tile + SPECDEC__TILE_AT(q3_k, high), b, panel);
        for (k = b % 8 * 2; k < b % 8 * 2 + 2; k++) {
            const uint8x16_t six = specdec__neon_factors_3k(tile, k);

            specdec__neon_put_scale(panel->scale[b / 8 * 16 + k], tile + SPECDEC__TILE_AT(q3_k, d),
                                    vsubq_s8(vreinterpretq_s8_u8(six), vdupq_n_s8(32)), 0);
        }
        if (b % 8 == 7)
            tile += SPECDEC__TILE_BYTES(q3_k);
    }
}

/* Have the points of a grid two bits for each magnitude? Else they have three. The points of IQ2 are looked up as eight
   bytes each, those of IQ3, of which a value needs twice as many, as three bits a magnitude. */
SPECDEC__INLINE int specdec__neon_is_iq2(int type)
{
    return type == SPECDEC__TYPE_IQ2_XXS || type == SPECDEC__TYPE_IQ2_XS || type == SPECDEC__TYPE_IQ2_S;
}

#define SPECDEC__NEON_FOUR(a, b, c, d) {a, a, a, a, b, b, b, b, c, c, c, c, d, d, d, d}
#define SPECDEC__NEON_SAME(a, b, c, d) {a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d}

/* Tables made of lists of points. The magnitudes of a point of IQ2, eight bytes, the first one lowest (see
   specdec__quant_iq2_point); the signs of eight values, a byte of ones for each that is negative, by eight bits, or by
   seven with the eighth that makes the number of ones even (0x6996: which of 0..15 have an odd number of them). */
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

/* The numbers of the points of group g of four rows of IQ2_S, which have ten bits: (row, 4). */
SPECDEC__INLINE void specdec__neon_indices_2s(const unsigned char *tile, unsigned g, int row, uint16_t *index)
{
    static const uint8_t rows[16] = SPECDEC__NEON_FOUR(0, 4, 8, 12);
    static const int8_t crumb[16] = SPECDEC__NEON_SAME(0, -2, -4, -6);
    const uint8x16_t which = vaddq_u8(vld1q_u8(rows), vdupq_n_u8((uint8_t)(g % 4)));
    const uint8x16_t low = vld1q_u8(tile + SPECDEC__TILE_AT(iq2_s, index) + g * 64 + row * 4);
    const uint8x16_t top = vld1q_u8(tile + SPECDEC__TILE_AT(iq2_s, high) + g / 4 * 64 + row * 4);
    const uint8x16_t high = vandq_u8(vshlq_u8(vqtbl1q_u8(top, which), vld1q_s8(crumb)), vdupq_n_u8(3));

    vst1q_u16(index, vreinterpretq_u16_u8(vzip1q_u8(low, high)));
    vst1q_u16(index + 8, vreinterpretq_u16_u8(vzip2q_u8(low, high)));
}

/* 4 or 8 bytes as an integer, in one load: clang makes several of specdec__load_u32. */
SPECDEC__INLINE uint64_t specdec__neon_bits(const unsigned char *at, size_t bytes)
{
    uint64_t bits = 0;

    memcpy(&bits, at, bytes);
    return bits;
}

/* Word p of a row of a group of IQ2_XS, one of four: the number of a point, and above its nine bits signs. */
SPECDEC__INLINE uint64_t specdec__neon_word(const unsigned char *words, int row, int p)
{
    return specdec__neon_bits(words + p / 2 * 64 + row * 4, 4) >> p % 2 * 16 & 0xFFFF;
}

/* The magnitudes of eight values of row `row`, one of four, from 8*p on. index: of IQ2_S, see specdec__neon_indices_2s;
   of others, bytes of a tile. */
SPECDEC__INLINE uint64x1_t specdec__neon_magnitudes(int type, const unsigned char *index, int row, int p)
{
    if (type == SPECDEC__TYPE_IQ2_XXS)
        return vld1_u64(specdec__neon_iq2_xxs + (specdec__neon_bits(index + row * 4, 4) >> p * 8 & 255));
    if (type == SPECDEC__TYPE_IQ2_XS)
        return vld1_u64(specdec__neon_iq2_xs + (specdec__neon_word(index, row, p) & 511));
    return vld1_u64(specdec__neon_iq2_s + (specdec__neon_bits(index + row * 8, 8) >> p * 16 & 0xFFFF));
}

/* Ones in the bytes of those of them that are negative. signs: of the first row; of IQ2_XS its points. */
SPECDEC__INLINE uint64x1_t specdec__neon_negative(int type, const unsigned char *signs, int row, int p)
{
    if (type == SPECDEC__TYPE_IQ2_XS)
        return vld1_u64(specdec__neon_even_signs + (specdec__neon_word(signs, row, p) >> 9));
    if (type == SPECDEC__TYPE_IQ2_S)
        return vld1_u64(specdec__neon_signs + (specdec__neon_bits(signs + row * 4, 4) >> p * 8 & 255));
    return vld1_u64(specdec__neon_even_signs + (specdec__neon_bits(signs + row * 4, 4) >> p * 7 & 127));
}

/* 32 values of four rows, codes (value/4): group g of a tile of IQ2. */
SPECDEC__INLINE void specdec__neon_take_iq2(int type, const unsigned char *tile, int g, int row, int8x16_t *codes)
{
    const int is_xxs = type == SPECDEC__TYPE_IQ2_XXS;
    const unsigned char *index = tile + g * 128 + row * 4 +
                                 (is_xxs ? SPECDEC__TILE_AT(iq2_xxs, groups) : SPECDEC__TILE_AT(iq2_xs, words));
    const unsigned char *signs = is_xxs ? index + 64 : index;
    uint16_t indices[16];
    int p, i;

    if (type == SPECDEC__TYPE_IQ2_S) {
        signs = tile + SPECDEC__TILE_AT(iq2_s, signs) + g * 64 + row * 4;
        specdec__neon_indices_2s(tile, (unsigned)g, row, indices);
        index = (const unsigned char *)indices;
        SPECDEC__NEON_LOAD(index); /* else gcc moves each between registers */
    }
    SPECDEC__UNROLL
    for (p = 0; p < 4; p++) {
        int32x4_t eight[2]; /* values of two rows */

        SPECDEC__UNROLL
        for (i = 0; i < 2; i++) {
            const uint64x2_t sign = vcombine_u64(specdec__neon_negative(type, signs, i * 2, p),
                                                 specdec__neon_negative(type, signs, i * 2 + 1, p));
            const uint64x2_t magnitude = vcombine_u64(specdec__neon_magnitudes(type, index, i * 2, p),
                                                      specdec__neon_magnitudes(type, index, i * 2 + 1, p));

            eight[i] = vreinterpretq_s32_u8(vsubq_u8(vreinterpretq_u8_u64(veorq_u64(magnitude, sign)),
                                                     vreinterpretq_u8_u64(sign)));
        }
        codes[p * 2] = vreinterpretq_s8_s32(vuzp1q_s32(eight[0], eight[1]));
        codes[p * 2 + 1] = vreinterpretq_s8_s32(vuzp2q_s32(eight[0], eight[1]));
        SPECDEC__NEON_APART;
    }
}

/* Vectors of constants of IQ3, in one place so that one address is enough to read them. A word is four values of four
   rows. sign_from: which bytes of signs belong to words 2i and 2i + 1; sign: which bits of them to an even word and to
   an odd one. codes: the code of an index, which is three bits of a magnitude with the sign above them. */
typedef struct specdec__neon_grid {
    uint8_t sign_from[4][16], sign[2][16];
    int8_t codes[16];
} specdec__neon_grid;

#define SPECDEC__NEON_IQ3(...) \
    {{SPECDEC__NEON_FOUR(0, 4, 8, 12), SPECDEC__NEON_FOUR(1, 5, 9, 13), SPECDEC__NEON_FOUR(2, 6, 10, 14), \
      SPECDEC__NEON_FOUR(3, 7, 11, 15)}, \
     {SPECDEC__NEON_SAME(1, 2, 4, 8), SPECDEC__NEON_SAME(16, 32, 64, 128)}, __VA_ARGS__}

static const specdec__neon_grid specdec__neon_iq3_xxs =
    SPECDEC__NEON_IQ3({4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62});
static const specdec__neon_grid specdec__neon_iq3_s =
    SPECDEC__NEON_IQ3({1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15});

/* Eight numbers of 16 bits as two integers: one move between registers for four of them. */
SPECDEC__INLINE void specdec__neon_put_indices(uint8x16_t eight, uint64_t *to)
{
    to[0] = vgetq_lane_u64(vreinterpretq_u64_u8(eight), 0);
    to[1] = vgetq_lane_u64(vreinterpretq_u64_u8(eight), 1);
}

/* Which points four rows of group g of IQ3_S have: index (points/4, row), four to an integer. */
SPECDEC__INLINE void specdec__neon_indices(const unsigned char *tile, int g, int row, uint64_t *index)
{
    static const uint8_t rows[16] = SPECDEC__NEON_FOUR(0, 4, 8, 12);
    const uint8x16_t which = vaddq_u8(vld1q_u8(rows), vdupq_n_u8((uint8_t)(g % 4)));
    const unsigned char *low = tile + SPECDEC__TILE_AT(iq3_s, index) + g * 128 + row * 4;
    const unsigned char *top = tile + SPECDEC__TILE_AT(iq3_s, high) + g / 4 * 64 + row * 4;
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 2; i++) {
        const uint8x16_t bytes = vld1q_u8(low + i * 64);
        uint8x16_t high = vqtbl1q_u8(vld1q_u8(top), which);

        high = vshrq_n_u8(vtstq_u8(high, vld1q_u8(specdec__neon_iq3_s.sign[i])), 7);
        specdec__neon_put_indices(vzip1q_u8(bytes, high), index + i * 4);
        specdec__neon_put_indices(vzip2q_u8(bytes, high), index + i * 4 + 2);
    }
}

/* Point p of a row of four, 16 bits. bytes: those of the first row, of IQ3_XXS. */
SPECDEC__INLINE uint64_t specdec__neon_point(int type, const unsigned char *bytes, const uint64_t *index, int row,
                                             int p)
{
    if (type == SPECDEC__TYPE_IQ3_XXS)
        return specdec__quant_iq3_xxs_grid[bytes[p / 4 * 64 + row * 4 + p % 4]];
    return specdec__quant_iq3_s_grid[index[p / 4 * 4 + row] >> p % 4 * 16 & 0xFFFF];
}

/* The same of all four rows. */
SPECDEC__INLINE uint64_t specdec__neon_points(int type, const unsigned char *bytes, const uint64_t *index, int p)
{
    uint64_t four = specdec__neon_point(type, bytes, index, 3, p);

    four = specdec__neon_point(type, bytes, index, 2, p) | four << 16;
    four = specdec__neon_point(type, bytes, index, 1, p) | four << 16;
    return specdec__neon_point(type, bytes, index, 0, p) | four << 16;
}

/* What words 2i and 2i + 1 of four rows are read from: two points. */
SPECDEC__INLINE uint8x16_t specdec__neon_point_pair(int type, const unsigned char *bytes, const uint64_t *index, int i)
{
    return vreinterpretq_u8_u64(vcombine_u64(vcreate_u64(specdec__neon_points(type, bytes, index, i * 2)),
                                             vcreate_u64(specdec__neon_points(type, bytes, index, i * 2 + 1))));
}

/* Group g of four rows of a tile whose points have numbers of a byte. */
SPECDEC__INLINE const unsigned char *specdec__neon_point_bytes(const unsigned char *tile, int g, int row)
{
    return tile + SPECDEC__TILE_AT(iq3_xxs, index) + g * 128 + row * 4;
}

/* The pairs of the first group of the first four rows. */
SPECDEC__INLINE void specdec__neon_first_points(int type, const unsigned char *tile, uint8x16_t *pairs)
{
    uint64_t indices[8];
    int i;

    if (type == SPECDEC__TYPE_IQ3_S)
        specdec__neon_indices(tile, 0, 0, indices);
    SPECDEC__UNROLL
    for (i = 0; i < 4; i++)
        pairs[i] = specdec__neon_point_pair(type, specdec__neon_point_bytes(tile, 0, 0), indices, i);
}

/* Bytes of seven bits each, with the eighth that makes the number of ones even. */
SPECDEC__INLINE uint8x16_t specdec__neon_make_even(uint8x16_t sevens)
{
    return vorrq_u8(sevens, vshlq_n_u8(vcntq_u8(sevens), 7));
}

/* Signs of group g of four rows of IQ3, a bit each: (row, 4). */
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
    return specdec__neon_make_even(vreinterpretq_u8_u32(vorrq_u32(low, high)));
}

/* 32 values of four rows, codes (value/4): group g of a tile of IQ3. pairs: of it (see specdec__neon_point_pair); they
   become those of group then_g of the rows from then on, as their loads take long. */
SPECDEC__INLINE void specdec__neon_take_iq3(int type, const unsigned char *tile, int g, int row, int then_g,
                                            int then, uint8x16_t *pairs, int8x16_t *codes)
{
    const specdec__neon_grid *grid = type == SPECDEC__TYPE_IQ3_XXS ? &specdec__neon_iq3_xxs : &specdec__neon_iq3_s;
    const unsigned char *bytes = specdec__neon_point_bytes(tile, then_g, then);
    const uint8x16_t topmost = vdupq_n_u8(8), signs = specdec__neon_iq3_signs(type, tile, g, row);
    uint8x16_t index[2], from, minus, high, low;
    uint64_t indices[8];
    int i, k;

    SPECDEC__NEON_ANEW(grid);
    if (type == SPECDEC__TYPE_IQ3_S)
        specdec__neon_indices(tile, then_g, then, indices);
    SPECDEC__UNROLL
    for (i = 0; i < 4; i++) {
        SPECDEC__NEON_APART;
        high = vshrq_n_u8(pairs[i], 4);
        low = vandq_u8(pairs[i], vdupq_n_u8(15));
        index[0] = vzip1q_u8(low, high);
        index[1] = vzip2q_u8(low, high);
        pairs[i] = specdec__neon_point_pair(type, bytes, indices, i);
        from = vqtbl1q_u8(signs, vld1q_u8(grid->sign_from[i]));
        SPECDEC__UNROLL
        for (k = 0; k < 2; k++) {
            minus = vtstq_u8(from, vld1q_u8(grid->sign[k]));
            SPECDEC__NEON_PUT_BITS(index[k], minus, topmost);
            codes[i * 2 + k] = vqtbl1q_s8(vld1q_s8(grid->codes), index[k]);
        }
    }
}

/* What d of such a type is multiplied by, besides an odd number: 2n + 1, n being scale i of a tile; of four rows. */
SPECDEC__INLINE float specdec__neon_grid_factor(int type)
{
    return specdec__neon_is_iq2(type) ? 0.125f : type == SPECDEC__TYPE_IQ3_XXS ? 0.25f : 1;
}
SPECDEC__INLINE float32x4_t specdec__neon_odd(int type, const unsigned char *tile, int i, int row)
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

/* Unpacks a tile of 256 values whose codes are points of a grid. */
SPECDEC__INLINE void specdec__neon_unpack_points(int type, const unsigned char *tile, specdec__panel *panel)
{
    const int granule = type == SPECDEC__TYPE_IQ2_XS || type == SPECDEC__TYPE_IQ2_S ? 16 : 32;
    uint8x16_t pairs[4];
    int8x16_t codes[8];
    int row, i;

    SPECDEC__NEON_WIDE(panel) = 1;
    if (!specdec__neon_is_iq2(type))
        specdec__neon_first_points(type, tile, pairs);
    for (row = 0; row < SPECDEC__ROWS; row += 4) {
        const float32x4_t d = vmulq_n_f32(specdec__neon_load_f16x4(tile + row * 2), specdec__neon_grid_factor(type));

        for (i = 0; i < 8; i++) {
            if (specdec__neon_is_iq2(type))
                specdec__neon_take_iq2(type, tile, i, row, codes);
            else
                specdec__neon_take_iq3(type, tile, i, row, (i + 1) % 8, i < 7 ? row : (row + 4) % SPECDEC__ROWS,
                                       pairs, codes);
            specdec__neon_put_codes(panel, i, row / 4, codes, granule, 0);
        }
        for (i = 0; i < SPECDEC__PANEL / granule; i++)
            vst1q_f32(panel->scale[i] + row, vmulq_f32(d, specdec__neon_odd(type, tile, i, row)));
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

/* Any type by its decoder; the codes are then put in this order. */
SPECDEC__INLINE void specdec__neon_unpack_generic(const specdec__quant_type *type, const unsigned char *tile,
                                                  int blocks, specdec__panel *panel)
{
    int b, quad, i;

    specdec__unpack_codes(type, tile, blocks, panel);
    SPECDEC__NEON_WIDE(panel) = 1;
    for (b = 0; b < blocks; b++) {
        int8x16_t q[4][8];

        for (quad = 0; quad < 4; quad++)
            for (i = 0; i < 8; i++)
                q[quad][i] = vld1q_s8(panel->u.codes + b * 512 + i * 64 + quad * 16);
        for (quad = 0; quad < 4; quad++)
            specdec__neon_put_codes(panel, b, quad, q[quad], type->granule, 1);
    }
}

/* Where blocks of 32 of nibbles have their parts in a tile: 0 where there is none. */
typedef struct specdec__neon_parts {
    size_t bytes, minimum, high, nibbles;
} specdec__neon_parts;

#define SPECDEC__NEON_PARTS(type, minimum, high) \
    {SPECDEC__TILE_BYTES(type), minimum, high, SPECDEC__TILE_AT(type, nibbles)}

/* code = nibble + 16 * high bit + offset, or values[nibble]. */
SPECDEC__INLINE void specdec__neon_unpack_nibbles(const specdec__neon_parts parts, const unsigned char *tile,
                                                  int blocks, specdec__panel *panel, int offset,
                                                  const int8_t *values)
{
    const int8x16_t add = vdupq_n_s8((int8_t)offset), table = values ? vld1q_s8(values) : add;
    const uint8x16_t bit = vdupq_n_u8(16);
    int b, quad, i;

    SPECDEC__NEON_WIDE(panel) = values != NULL;
    for (b = 0; b < blocks; b++, tile += parts.bytes) {
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
            specdec__neon_put_codes(panel, b, quad, q, 32, values != NULL);
        }
        specdec__neon_store(panel->scale[b], specdec__neon_load_f16(tile));
        if (parts.minimum)
            specdec__neon_store(panel->minimum[b], specdec__neon_load_f16(tile + parts.minimum));
    }
}

/* Q8_0: d, 8 words of codes. */
SPECDEC__INLINE void specdec__neon_unpack_bytes(const unsigned char *tile, int blocks, specdec__panel *panel)
{
    int b, quad, i;

    SPECDEC__NEON_WIDE(panel) = 1;
    for (b = 0; b < blocks; b++, tile += SPECDEC__TILE_BYTES(q8_0)) {
        for (quad = 0; quad < 4; quad++) {
            int8x16_t q[8];

            SPECDEC__UNROLL
            for (i = 0; i < 8; i++)
                q[i] = vreinterpretq_s8_u8(vld1q_u8(tile + SPECDEC__TILE_AT(q8_0, codes) + i * 64 + quad * 16));
            specdec__neon_put_codes(panel, b, quad, q, 32, 1);
        }
        specdec__neon_store(panel->scale[b], specdec__neon_load_f16(tile));
    }
}

/* Six bits of scales and minimums of 16 rows each: blocks i and i + 4 of 8. */
typedef struct specdec__neon_four {
    int8x16_t scale[2], minimum[2];
} specdec__neon_four;

/* Those of Q4_K and Q5_K, from byte i of 12 on. */
SPECDEC__INLINE specdec__neon_four specdec__neon_factors_k(const unsigned char *packed)
{
    const uint8x16_t six = vdupq_n_u8(63), low = vdupq_n_u8(15);
    const uint8x16_t s = vld1q_u8(packed), m = vld1q_u8(packed + 4 * 16), both = vld1q_u8(packed + 8 * 16);
    uint8x16_t top = vshrq_n_u8(s, 2);
    specdec__neon_four r;

    SPECDEC__NEON_PUT_BITS(top, both, low);
    r.scale[0] = vreinterpretq_s8_u8(vandq_u8(s, six));
    r.scale[1] = vreinterpretq_s8_u8(top);
    r.minimum[0] = vreinterpretq_s8_u8(vandq_u8(m, six));
    r.minimum[1] = vreinterpretq_s8_u8(vsriq_n_u8(vshrq_n_u8(m, 2), both, 4));
    return r;
}

/* Scales and minimums of Q4_K and Q5_K from a tile's d, dmin and 12 packed bytes. */
SPECDEC__INLINE void specdec__neon_scales_k(const unsigned char *tile, float (*scale)[SPECDEC__ROWS],
                                            float (*minimum)[SPECDEC__ROWS])
{
    const unsigned char *dmin = tile + SPECDEC__TILE_AT(q4_k, dmin);
    int i;

    for (i = 0; i < 4; i++) {
        specdec__neon_four factors = specdec__neon_factors_k(tile + SPECDEC__TILE_AT(q4_k, scales) + i * 16);

        specdec__neon_put_scale(scale[i], tile, factors.scale[0], 0);
        specdec__neon_put_scale(scale[i + 4], tile, factors.scale[1], 0);
        specdec__neon_put_scale(minimum[i], dmin, factors.minimum[0], 1);
        specdec__neon_put_scale(minimum[i + 4], dmin, factors.minimum[1], 1);
    }
}

/* Q4_K, or with high bits Q5_K: d, dmin, 12 bytes of scales, [8 words of high bits,] 32 words of nibbles. */
SPECDEC__INLINE void specdec__neon_unpack_k(const unsigned char *tile, int blocks, specdec__panel *panel,
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
            specdec__neon_put_codes(panel, b, quad, even, 32, 0);
            specdec__neon_put_codes(panel, b + 1, quad, odd, 32, 0);
        }
        if (b % 8 == 0)
            specdec__neon_scales_k(tile, panel->scale + b, panel->minimum + b);
        if (b % 8 == 6)
            tile += has_high ? SPECDEC__TILE_BYTES(q5_k) : SPECDEC__TILE_BYTES(q4_k);
    }
}

/* Q6_K: 32 words of nibbles, 16 words of 2 high bits, 16 signed scales, d. Blocks t and t + 2 of a half share bytes. */
SPECDEC__INLINE void specdec__neon_unpack_6k(const unsigned char *tile, int blocks, specdec__panel *panel)
{
    const int8x16_t offset = vdupq_n_s8(32);
    const uint8x16_t crumb = vdupq_n_u8(48);
    int b, quad, i;

    for (b = 0; b < blocks; b++) {
        const int half = b % 8 / 4, part = b % 4;
        const unsigned char *low = tile + SPECDEC__TILE_AT(q6_k, nibbles) + half * 1024 + part % 2 * 512;
        const unsigned char *high = tile + SPECDEC__TILE_AT(q6_k, crumbs) + half * 512;
        const int8x16_t low_shift = vdupq_n_s8((int8_t)(part / 2 * -4));
        const int8x16_t high_shift = vdupq_n_s8((int8_t)(4 - part * 2));

        for (quad = 0; quad < 4; quad++) {
            int8x16_t q[8];

            SPECDEC__UNROLL
            for (i = 0; i < 8; i++) {
                int8x16_t nibbles = specdec__neon_low_nibbles(vshlq_u8(vld1q_u8(low + i * 64 + quad * 16), low_shift));
                uint8x16_t bits = vandq_u8(vshlq_u8(vld1q_u8(high + i * 64 + quad * 16), high_shift), crumb);

                q[i] = vsubq_s8(vorrq_s8(nibbles, vreinterpretq_s8_u8(bits)), offset);
            }
            specdec__neon_put_codes(panel, b, quad, q, 16, 0);
        }
        for (i = 0; i < 2; i++) {
            uint8x16_t scale = vld1q_u8(tile + SPECDEC__TILE_AT(q6_k, scales) + (b % 8 * 2 + i) * 16);

            specdec__neon_put_scale(panel->scale[b * 2 + i], tile + SPECDEC__TILE_AT(q6_k, d),
                                    vreinterpretq_s8_u8(scale), 0);
        }
        if (b % 8 == 7)
            tile += SPECDEC__TILE_BYTES(q6_k);
    }
}

/* Six bits of scale i of IQ4_XS, of 16 rows each. */
SPECDEC__INLINE uint8x16_t specdec__neon_factors_4xs(const unsigned char *tile, int i)
{
    uint8x16x2_t high = vld2q_u8(tile + SPECDEC__TILE_AT(iq4_xs, high)); /* scales 0..3, scales 4..7 */
    uint8x16_t top = vshlq_u8(i < 4 ? high.val[0] : high.val[1], vdupq_n_s8((int8_t)(4 - i % 4 * 2)));
    uint8x16_t low = vshlq_u8(vld1q_u8(tile + SPECDEC__TILE_AT(iq4_xs, low) + i / 2 * 16),
                              vdupq_n_s8((int8_t)(i % 2 * -4)));

    return vorrq_u8(vandq_u8(low, vdupq_n_u8(15)), vandq_u8(top, vdupq_n_u8(48)));
}

/* IQ4_XS: d, two high bits of 8 scales, their nibbles, 32 words of nibbles that index the table. */
SPECDEC__INLINE void specdec__neon_unpack_4xs(const unsigned char *tile, int blocks, specdec__panel *panel)
{
    const int8x16_t table = vld1q_s8(specdec__quant_iq4_values);
    int b, quad, i;

    SPECDEC__NEON_WIDE(panel) = 1;
    for (b = 0; b < blocks; b++) {
        const int at = b % 8;
        const uint8x16_t scale = specdec__neon_factors_4xs(tile, at);

        for (quad = 0; quad < 4; quad++) {
            int8x16_t q[8];

            SPECDEC__UNROLL
            for (i = 0; i < 4; i++) {
                uint8x16_t packed = vld1q_u8(tile + SPECDEC__TILE_AT(iq4_xs, nibbles) + at * 256 + i * 64 + quad * 16);

                q[i] = vqtbl1q_s8(table, vreinterpretq_u8_s8(specdec__neon_low_nibbles(packed)));
                q[i + 4] = vqtbl1q_s8(table, vreinterpretq_u8_s8(specdec__neon_high_nibbles(packed)));
            }
            specdec__neon_put_codes(panel, b, quad, q, 32, 1);
        }
        specdec__neon_put_scale(panel->scale[b], tile, vsubq_s8(vreinterpretq_s8_u8(scale), vdupq_n_s8(32)), 0);
        if (at == 7)
            tile += SPECDEC__TILE_BYTES(iq4_xs);
    }
}

/* Prefetches as many bytes as these blocks have, so much further on: behind a tile usually stands the next one. */
#define SPECDEC__NEON_AHEAD 4096
SPECDEC__INLINE void specdec__neon_prefetch(const specdec__quant_type *type, const unsigned char *tile, int blocks)
{
    const int bytes = blocks * 32 / type->block * type->bytes * SPECDEC__ROWS;
    int i;

    for (i = 0; i < bytes; i += 256) {
        __builtin_prefetch(tile + SPECDEC__NEON_AHEAD + i, 0, 3);
        __builtin_prefetch(tile + SPECDEC__NEON_AHEAD + i + 64, 0, 3);
        __builtin_prefetch(tile + SPECDEC__NEON_AHEAD + i + 128, 0, 3);
        __builtin_prefetch(tile + SPECDEC__NEON_AHEAD + i + 192, 0, 3);
    }
}

/* The unpack functions. */
#define SPECDEC__NEON_UNPACK(name, call) \
    static void specdec__neon_unpack_##name(const specdec__quant_type *type, const unsigned char *tile, int blocks, \
                                            specdec__panel *panel) \
    { \
        specdec__neon_prefetch(type, tile, blocks); \
        call; \
    }
#define SPECDEC__NEON_NIBBLES(type_name, minimum, high, offset, values) \
    SPECDEC__NEON_UNPACK(type_name, \
        const specdec__neon_parts parts = SPECDEC__NEON_PARTS(type_name, minimum, high); \
        specdec__neon_unpack_nibbles(parts, tile, blocks, panel, offset, values))
SPECDEC__NEON_UNPACK(any, specdec__neon_unpack_generic(type, tile, blocks, panel))
SPECDEC__NEON_UNPACK(iq2_xxs, specdec__neon_points_iq2_xxs(tile, panel))
SPECDEC__NEON_UNPACK(iq2_xs, specdec__neon_points_iq2_xs(tile, panel))
SPECDEC__NEON_UNPACK(iq2_s, specdec__neon_points_iq2_s(tile, panel))
SPECDEC__NEON_UNPACK(iq3_xxs, specdec__neon_points_iq3_xxs(tile, panel))
SPECDEC__NEON_UNPACK(iq3_s, specdec__neon_points_iq3_s(tile, panel))
SPECDEC__NEON_UNPACK(q2_k, specdec__neon_unpack_2k(tile, blocks, panel))
SPECDEC__NEON_UNPACK(q3_k, specdec__neon_unpack_3k(tile, blocks, panel))
SPECDEC__NEON_NIBBLES(q4_0, 0, 0, -8, NULL)
SPECDEC__NEON_NIBBLES(q4_1, SPECDEC__TILE_AT(q4_1, minimum), 0, 0, NULL)
SPECDEC__NEON_NIBBLES(q5_0, 0, SPECDEC__TILE_AT(q5_0, high), -16, NULL)
SPECDEC__NEON_NIBBLES(q5_1, SPECDEC__TILE_AT(q5_1, minimum), SPECDEC__TILE_AT(q5_1, high), 0, NULL)
SPECDEC__NEON_UNPACK(q8_0, specdec__neon_unpack_bytes(tile, blocks, panel))
SPECDEC__NEON_UNPACK(q4_k, specdec__neon_unpack_k(tile, blocks, panel, 0))
SPECDEC__NEON_UNPACK(q5_k, specdec__neon_unpack_k(tile, blocks, panel, 1))
SPECDEC__NEON_UNPACK(q6_k, specdec__neon_unpack_6k(tile, blocks, panel))
SPECDEC__NEON_NIBBLES(iq4_nl, 0, 0, 0, specdec__quant_iq4_values)
SPECDEC__NEON_UNPACK(iq4_xs, specdec__neon_unpack_4xs(tile, blocks, panel))

/* Sums are exact integers. They start at the bits of this float, whose last place counts ones: the bits of a sum are
   those of a float, and one subtraction gives the sum as a float. No sum reaches 2^22. */
#define SPECDEC__DOTPROD_START 12582912.0f /* 3 * 2^22 */
#define SPECDEC__DOTPROD_START_BITS 0x4B400000

/* --- dot products from tiles, without a panel --------------------------------------------------------------------- */

/* What lies unpacked in a panel counts as a type of its own, by granule and minimum. */
enum {
    SPECDEC__DOTPROD_PANEL_16 = SPECDEC__TYPE_COUNT, SPECDEC__DOTPROD_PANEL_16M, SPECDEC__DOTPROD_PANEL_32,
    SPECDEC__DOTPROD_PANEL_32M
};

/* What the code of a type depends on: constants from the type's row, in masks with a bit for each type and kind of
   panel. */
#define SPECDEC__DOTPROD_IS_16(number, name, block, bytes, granule, ...) | (uint64_t)((granule) == 16) << (number)
#define SPECDEC__DOTPROD_IS_WIDE(number, name, block, bytes, granule, bits, ...) | (uint64_t)((bits) == 8) << (number)
#define SPECDEC__DOTPROD_MINIMUM(number, name, block, bytes, granule, bits, minimum, ...) \
    | (uint64_t)(minimum) << (number)
#define SPECDEC__DOTPROD_BIAS(number, name, block, bytes, granule, bits, minimum, ...) \
    case number: return (minimum) || (bits) == 8 ? 0 : (1 << (bits)) / 2;
#define SPECDEC__DOTPROD_SPAN(number, name, block, bytes, ...) \
    case number: return (bytes) * SPECDEC__ROWS * 32 / (block);
#define SPECDEC__DOTPROD_PANEL(number) (UINT64_C(1) << SPECDEC__DOTPROD_PANEL_##number)

/* Values that share a scale. */
SPECDEC__INLINE int specdec__dotprod_granule(int type)
{
    const uint64_t panels = SPECDEC__DOTPROD_PANEL(16) | SPECDEC__DOTPROD_PANEL(16M);
    const uint64_t mask = panels SPECDEC__QUANT_TYPES(SPECDEC__DOTPROD_IS_16);

    return mask >> type & 1 ? 16 : 32;
}

/* Are scales and minimums those of Q4_K? */
SPECDEC__INLINE int specdec__dotprod_is_like_q4_k(int type)
{
    return type == SPECDEC__TYPE_Q4_K || type == SPECDEC__TYPE_Q5_K;
}

/* Does a type have minimums besides scales? */
SPECDEC__INLINE int specdec__dotprod_has_minimum(int type)
{
    const uint64_t panels = SPECDEC__DOTPROD_PANEL(16M) | SPECDEC__DOTPROD_PANEL(32M);
    const uint64_t mask = panels SPECDEC__QUANT_TYPES(SPECDEC__DOTPROD_MINIMUM);

    return (int)(mask >> type & 1);
}

/* Are minimums taken without their sign? */
SPECDEC__INLINE int specdec__dotprod_is_subtracted(int type)
{
    return specdec__dotprod_is_like_q4_k(type) || type == SPECDEC__TYPE_Q2_K;
}

/* Columns that are multiplied at once without a panel. */
SPECDEC__INLINE int specdec__dotprod_most(int type)
{
    const int is_32 = type == SPECDEC__TYPE_Q4_0 || type == SPECDEC__TYPE_Q8_0 || type == SPECDEC__TYPE_Q4_K;

    return type >= SPECDEC__TYPE_COUNT || is_32 || specdec__dotprod_granule(type) == 16 ? 4 : 2;
}

/* Is the sum of a granule's codes a float, for each row? Else four bytes hold parts of it, for each row. */
SPECDEC__INLINE int specdec__dotprod_is_wide(int type)
{
    const uint64_t mask = 0 SPECDEC__QUANT_TYPES(SPECDEC__DOTPROD_IS_WIDE);

    return type >= SPECDEC__TYPE_COUNT || (mask >> type & 1);
}

/* What was added to codes to make them unsigned. */
SPECDEC__INLINE int specdec__dotprod_bias(int type)
{
    switch (type) {
    SPECDEC__QUANT_TYPES(SPECDEC__DOTPROD_BIAS)
    default: return 0;
    }
}

/* By how much the sums of a granule's codes that offsets are multiplied by are too large: those of Q4_0 and Q3_K are of
   unsigned codes; of five bits, eight such codes take a byte, and 128 is taken off each to have signed ones. */
SPECDEC__INLINE int specdec__dotprod_surplus(int type)
{
    return type == SPECDEC__TYPE_Q4_0                                 ? 32 * 8
           : type == SPECDEC__TYPE_Q3_K                               ? 16 * 4
           : type == SPECDEC__TYPE_Q5_1 || type == SPECDEC__TYPE_Q5_K ? -4 * 128
                                                                      : 0;
}

/* Are there two sums of codes of a granule? Those of Q6_K are signed bytes then, without 128 being taken off: for one
   column without a panel a dot product more is less than that. */
SPECDEC__INLINE int specdec__dotprod_is_halved(int type, int packed, int columns)
{
    return type == SPECDEC__TYPE_Q6_K && packed && columns == 1;
}

/* Bytes of 32 values of a tile; blocks that are taken one way each. */
SPECDEC__INLINE size_t specdec__dotprod_span(int type)
{
    switch (type) {
    SPECDEC__QUANT_TYPES(SPECDEC__DOTPROD_SPAN)
    default: return 0;
    }
}
SPECDEC__INLINE int specdec__dotprod_ways(int type)
{
    return specdec__dotprod_is_like_q4_k(type) ? 2
           : type == SPECDEC__TYPE_Q2_K || type == SPECDEC__TYPE_Q3_K || type == SPECDEC__TYPE_Q6_K ? 4
                                                                                                    : 1;
}

/* Where the d of 16 rows stand in a tile whose scales are d times small integers, behind them those of minimums if it
   has any; and what was added to these integers in specdec__dotprod_run, -1 if scales are half floats of their own. */
SPECDEC__INLINE size_t specdec__dotprod_d(int type)
{
    return type == SPECDEC__TYPE_Q2_K   ? SPECDEC__TILE_AT(q2_k, d)
           : type == SPECDEC__TYPE_Q3_K ? SPECDEC__TILE_AT(q3_k, d)
           : type == SPECDEC__TYPE_Q6_K ? SPECDEC__TILE_AT(q6_k, d)
                                        : 0;
}
SPECDEC__INLINE int specdec__dotprod_raised(int type)
{
    return type == SPECDEC__TYPE_Q6_K                                              ? 128
           : type == SPECDEC__TYPE_Q3_K || type == SPECDEC__TYPE_IQ4_XS            ? 32
           : specdec__dotprod_is_like_q4_k(type) || type == SPECDEC__TYPE_Q2_K ? 0
                                                                                   : -1;
}

/* Up to 4 columns of up to 8 blocks, made ready once for the rows of two tiles. */
typedef struct specdec__dotprod_x {
    const int8_t *codes;  /* of the first block */
    size_t stride;        /* bytes from one block to the next */
    size_t last;          /* of four columns: bytes from the first to the last; of three, the last counts twice */
    int32_t start[4][4];  /* what sums start at: loads, as these cost less than moves between registers */
    float scale[8][4];    /* (block, column) */
    int32_t offset[8][4]; /* (block, column): an offset in each of four bytes; of wide types, as a float's bits */
    float excess[16][4];  /* (granule, column): by how much the bits of a sum are too large, as a float */
    float total[16][4];   /* (granule, column): scale * sum of (code + offset) */
} specdec__dotprod_x;

/* Block b of one column, c, of columns. */
SPECDEC__INLINE void specdec__dotprod_prepare_one(int type, int packed, const specdec__columns *x, size_t at,
                                                  int columns, int b, int c, specdec__dotprod_x *to)
{
    const int per = 32 / specdec__dotprod_granule(type), bias = specdec__dotprod_bias(type);
    const int surplus = specdec__dotprod_is_halved(type, packed, columns) ? 16 * bias
                                                                          : specdec__dotprod_surplus(type);
    const int32_t *pairs = per == 1 ? x->pair32 + at : x->pair16 + at * 2, offset = (int16_t)(*pairs & 0xFFFF);
    const float *totals = per == 1 ? x->sum32 + at : x->sum16 + at * 2;
    int32_t excess;
    int g;

    memcpy(&to->scale[b][c], x->scale + at, 4); /* as an integer, which is cheaper to store */
    if (specdec__dotprod_is_wide(type))
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

/* The same of four columns. */
SPECDEC__INLINE void specdec__dotprod_prepare_four(int type, const specdec__columns *x, size_t at, int b,
                                                   specdec__dotprod_x *to)
{
    static const uint8_t bytes[16] = {0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12};
    const int per = 32 / specdec__dotprod_granule(type), bias = specdec__dotprod_bias(type);
    const int32x4_t pair = vld1q_s32(x->pair32 + at), offset = vshrq_n_s32(vshlq_n_s32(pair, 16), 16);
    const int32x4_t start = vdupq_n_s32(SPECDEC__DOTPROD_START_BITS);

    vst1q_f32(to->scale[b], vld1q_f32(x->scale + at));
    if (specdec__dotprod_is_wide(type))
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
            const int32x4_t more = specdec__dotprod_surplus(type) ? vshlq_n_s32(offset, 4) : vdupq_n_s32(0);

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

/* Columns from `at` on, of `blocks` blocks; count: columns, or 3 of 4. */
SPECDEC__INLINE void specdec__dotprod_prepare(int type, int packed, const specdec__columns *x, size_t at, int columns,
                                              int count, int blocks, specdec__dotprod_x *to)
{
    int b, c;

    to->codes = x->codes + at * 32;
    to->stride = (size_t)x->n * 32;
    to->last = (size_t)(count - 1) * 32;
    for (c = 0; c < columns; c++)
        vst1q_s32(to->start[c], vdupq_n_s32(SPECDEC__DOTPROD_START_BITS));
    for (b = 0; b < blocks; b++, at += (size_t)x->n)
        if (count == 4) {
            specdec__dotprod_prepare_four(type, x, at, b, to);
        } else {
            SPECDEC__UNROLL
            for (c = 0; c < columns; c++)
                specdec__dotprod_prepare_one(type, packed, x, at + (size_t)specdec__min_int(c, count - 1), columns, b,
                                             c, to);
        }
}

/* 32 values of 4 rows: codes (value/4), and for each granule sums of codes, scales and minimums, the latter without
   their sign. */
typedef struct specdec__dotprod_rows {
    int8x16_t codes[8], sums[2], others[2]; /* others: see specdec__dotprod_is_halved */
    float32x4_t pair[2], scale[2], minimum[2];
} specdec__dotprod_rows;

/* What the blocks of a run need. factors of scales (granule, 16 rows), raised (see specdec__dotprod_raised): of Q4_K,
   from [8] on they are of minimums; Q2_K has none here. less: what products of d and of dmin of four rows with factors
   are too large by, negative, in memory as a load costs less than a move. */
typedef struct specdec__dotprod_run {
    const unsigned char *tile;
    const specdec__panel *panel;
    unsigned char factors[16][SPECDEC__ROWS];
    float less[2][4];
} specdec__dotprod_run;

/* Four rows of a run, from row on: d and dmin, of Q2_K a sixteenth of that; which: the rows' numbers, each in the
   second byte of its lane, no row's in the others. */
typedef struct specdec__dotprod_quad {
    int row;
    float32x4_t d, dmin;
    uint8x16_t which, kept[8]; /* kept: of Q6_K and one column, crumbs that two blocks use */
} specdec__dotprod_quad;

/* The sum of 4 or 8 vectors of bytes. */
SPECDEC__INLINE int8x16_t specdec__dotprod_add_up(const int8x16_t *codes, int count)
{
    int8x16_t low = vaddq_s8(vaddq_s8(codes[0], codes[1]), vaddq_s8(codes[2], codes[3]));

    return count == 4 ? low
                      : vaddq_s8(low, vaddq_s8(vaddq_s8(codes[4], codes[5]), vaddq_s8(codes[6], codes[7])));
}

/* d times factor k of the four rows from row on. A factor becomes the float 2^15 + factor by one of its bytes; what is
   too much is taken off before the one rounding, and no product has so many bits that it is rounded. */
SPECDEC__INLINE float32x4_t specdec__dotprod_factor(const specdec__dotprod_run *run, int k, int way,
                                                    uint8x16_t which, float32x4_t d, const float *less)
{
    static const float from[4] = {32768, 32768, 32768, 32768};
    const unsigned char *factors = run->factors[k];
    uint8x16_t bits;
    float32x4_t product;

    SPECDEC__NEON_AGAIN(bits, from, factors, way);
    SPECDEC__NEON_AGAIN(product, less, factors, way);
    return vfmaq_f32(product, d, vreinterpretq_f32_u8(vqtbx1q_u8(bits, vld1q_u8(factors), which)));
}

/* Nibbles of four rows: 16 bytes of each to 32 values. */
SPECDEC__INLINE void specdec__dotprod_split(const unsigned char *nibbles, specdec__dotprod_rows *rows)
{
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 4; i++) {
        uint8x16_t packed = vld1q_u8(nibbles + i * 64);

        rows->codes[i] = specdec__neon_low_nibbles(packed);
        rows->codes[i + 4] = specdec__neon_high_nibbles(packed);
    }
}

/* 32 values of four rows with their fifth bits: bit i of a byte of high belongs to word i. */
SPECDEC__INLINE void specdec__dotprod_put_fifth(uint8x16_t high, specdec__dotprod_rows *rows)
{
    const uint8x16_t bit = vdupq_n_u8(16);
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 8; i++) {
        uint8x16_t moved = i < 4 ? vshlq_u8(high, vdupq_n_s8((int8_t)(4 - i))) : high;

        if (i > 4)
            moved = vshlq_u8(high, vdupq_n_s8((int8_t)(4 - i)));
        SPECDEC__NEON_PUT_BITS(rows->codes[i], moved, bit);
    }
    rows->sums[0] = veorq_s8(specdec__dotprod_add_up(rows->codes, 8), vdupq_n_s8(-128));
}

/* Sums of codes of eight bits. */
SPECDEC__DOTPROD SPECDEC__INLINE void specdec__dotprod_add_wide(specdec__dotprod_rows *rows)
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

/* Nibbles to the values of IQ4_NL and IQ4_XS. */
SPECDEC__DOTPROD SPECDEC__INLINE void specdec__dotprod_look_up(specdec__dotprod_rows *rows)
{
    const int8x16_t values = vld1q_s8(specdec__quant_iq4_values);
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 8; i++)
        rows->codes[i] = vqtbl1q_s8(values, vreinterpretq_u8_s8(rows->codes[i]));
    specdec__dotprod_add_wide(rows);
}

/* 32 values of four rows of block b of IQ2. */
SPECDEC__DOTPROD SPECDEC__INLINE void specdec__dotprod_take_iq2(int type, const specdec__dotprod_run *run, int b,
                                                                 const specdec__dotprod_quad *quad,
                                                                 specdec__dotprod_rows *rows)
{
    const int per = 32 / specdec__dotprod_granule(type), words = 8 / per;
    const int8x16_t ones = vdupq_n_s8(1);
    int g, i;

    specdec__neon_take_iq2(type, run->tile, b, quad->row, rows->codes);
    SPECDEC__UNROLL
    for (g = 0; g < per; g++) {
        int32x4_t sum = vdupq_n_s32(SPECDEC__DOTPROD_START_BITS);

        SPECDEC__UNROLL
        for (i = g * words; i < (g + 1) * words; i += 2)
            SPECDEC__SDOT(sum, vaddq_s8(rows->codes[i], rows->codes[i + 1]), ones, 0);
        rows->pair[g] = vsubq_f32(vreinterpretq_f32_s32(sum), vdupq_n_f32(SPECDEC__DOTPROD_START));
        rows->scale[g] = vmulq_f32(quad->d, specdec__neon_odd(type, run->tile, b * per + g, quad->row));
    }
}

/* Four rows of a block of 32 nibbles with a half float as its scale, from row on: Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL. tile:
   4 * row bytes behind the block's beginning. */
SPECDEC__DOTPROD SPECDEC__INLINE void specdec__dotprod_take_nibbles(int type, const unsigned char *tile, int row,
                                                                    specdec__dotprod_rows *rows)
{
    const size_t nibbles = type == SPECDEC__TYPE_Q4_1   ? SPECDEC__TILE_AT(q4_1, nibbles)
                           : type == SPECDEC__TYPE_Q5_0 ? SPECDEC__TILE_AT(q5_0, nibbles)
                           : type == SPECDEC__TYPE_Q5_1 ? SPECDEC__TILE_AT(q5_1, nibbles)
                                                        : SPECDEC__TILE_AT(q4_0, nibbles);

    specdec__dotprod_split(tile + nibbles, rows);
    if (type == SPECDEC__TYPE_IQ4_NL)
        specdec__dotprod_look_up(rows);
    else if (type == SPECDEC__TYPE_Q5_0)
        specdec__dotprod_put_fifth(vld1q_u8(tile + SPECDEC__TILE_AT(q5_0, high)), rows);
    else if (type == SPECDEC__TYPE_Q5_1)
        specdec__dotprod_put_fifth(vld1q_u8(tile + SPECDEC__TILE_AT(q5_1, high)), rows);
    else
        rows->sums[0] = specdec__dotprod_add_up(rows->codes, 8);
    rows->scale[0] = specdec__neon_load_f16x4(tile - row * 2);
    if (specdec__dotprod_has_minimum(type)) /* at the same place in both types */
        rows->minimum[0] = specdec__neon_load_f16x4(tile + SPECDEC__TILE_AT(q4_1, minimum) - row * 2);
}

/* The same of Q8_0. */
SPECDEC__DOTPROD SPECDEC__INLINE void specdec__dotprod_take_q8_0(const unsigned char *tile, int row,
                                                                 specdec__dotprod_rows *rows)
{
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 8; i++)
        rows->codes[i] = vld1q_s8((const int8_t *)tile + SPECDEC__TILE_AT(q8_0, codes) + i * 64);
    specdec__dotprod_add_wide(rows);
    rows->scale[0] = specdec__neon_load_f16x4(tile - row * 2);
}

/* The same of block b of IQ4_XS. */
SPECDEC__DOTPROD SPECDEC__INLINE void specdec__dotprod_take_iq4_xs(const specdec__dotprod_run *run, int b,
                                                                   const specdec__dotprod_quad *quad,
                                                                   specdec__dotprod_rows *rows)
{
    specdec__dotprod_split(run->tile + SPECDEC__TILE_AT(iq4_xs, nibbles) + b * 256 + quad->row * 4, rows);
    specdec__dotprod_look_up(rows);
    rows->scale[0] = specdec__dotprod_factor(run, b, b, quad->which, quad->d, run->less[0]);
}

/* Scale and minimum of granule i of a block of Q2_K, k of its tile: the nibbles of a byte, which becomes the second one
   of the float 2^15. The high nibble then counts 16. See specdec__dotprod_factor. */
SPECDEC__INLINE void specdec__dotprod_factors_2k(const specdec__dotprod_run *run, int k, int i,
                                                 const specdec__dotprod_quad *quad, specdec__dotprod_rows *rows)
{
    const uint8x16_t start = vreinterpretq_u8_u32(vdupq_n_u32(0x47000000u));
    const unsigned char *both = run->tile + SPECDEC__TILE_AT(q2_k, scales) + k * 16;
    const uint32x4_t bits = vreinterpretq_u32_u8(vqtbx1q_u8(start, vld1q_u8(both), quad->which));

    SPECDEC__NEON_AGAIN(rows->scale[i], run->less[0], both, i);
    SPECDEC__NEON_AGAIN(rows->minimum[i], run->less[1], both, i);
    rows->scale[i] = vfmaq_f32(rows->scale[i], quad->d, vreinterpretq_f32_u32(vbicq_u32(bits, vdupq_n_u32(0xF000))));
    rows->minimum[i] = vfmaq_f32(rows->minimum[i], quad->dmin,
                                 vreinterpretq_f32_u32(vbicq_u32(bits, vdupq_n_u32(0x0F00))));
}

/* The same of block b of Q2_K or Q3_K; way: b % 4. */
SPECDEC__INLINE void specdec__dotprod_take_crumbs(int type, const specdec__dotprod_run *run, int b, int way,
                                                  const specdec__dotprod_quad *quad, specdec__dotprod_rows *rows)
{
    const int row = quad->row;
    const int has_high = type == SPECDEC__TYPE_Q3_K;
    const unsigned char *crumbs = run->tile + (b - way) * 128 + row * 4 +
                                  (has_high ? SPECDEC__TILE_AT(q3_k, crumbs) : SPECDEC__TILE_AT(q2_k, crumbs));
    const unsigned char *high = run->tile + SPECDEC__TILE_AT(q3_k, high) + row * 4;
    const uint8x16_t crumb = vdupq_n_u8(3), third = vdupq_n_u8(4), bit = vdupq_n_u8((uint8_t)(1 << b));
    int i;

    SPECDEC__NEON_LOAD(crumbs);
    SPECDEC__UNROLL
    for (i = 0; i < 8; i++) {
        uint8x16_t packed = vld1q_u8(crumbs + i * 64);
        uint8x16_t code = way == 0   ? packed
                          : way == 1 ? vshrq_n_u8(packed, 2)
                          : way == 2 ? vshrq_n_u8(packed, 4)
                                     : vshrq_n_u8(packed, 6);

        if (way < 3)
            code = vandq_u8(code, crumb);
        if (has_high)
            SPECDEC__NEON_PUT_BITS(code, vtstq_u8(vld1q_u8(high + i * 64), bit), third);
        rows->codes[i] = vreinterpretq_s8_u8(code);
    }
    SPECDEC__UNROLL
    for (i = 0; i < 2; i++) {
        rows->sums[i] = specdec__dotprod_add_up(rows->codes + i * 4, 4);
        if (has_high)
            rows->scale[i] = specdec__dotprod_factor(run, b * 2 + i, i, quad->which, quad->d, run->less[0]);
        else
            specdec__dotprod_factors_2k(run, b * 2 + i, i, quad, rows);
    }
}

/* The same of block b of Q4_K or Q5_K, the first or second of a pair. With one column, registers keep the nibbles for
   the second, and for a panel, of no column. */
SPECDEC__INLINE void specdec__dotprod_take_k(int type, const specdec__dotprod_run *run, int b, int second, int columns,
                                             const specdec__dotprod_quad *quad, specdec__dotprod_rows *rows)
{
    const int has_high = type == SPECDEC__TYPE_Q5_K, row = quad->row;
    const unsigned char *high = run->tile + SPECDEC__TILE_AT(q5_k, high) + row * 4;
    const unsigned char *nibbles = run->tile + (b - second) * 256 + row * 4 +
                                   (has_high ? SPECDEC__TILE_AT(q5_k, nibbles) : SPECDEC__TILE_AT(q4_k, nibbles));
    const uint8x16_t bit = vdupq_n_u8(16);
    const int8x16_t by = vdupq_n_s8((int8_t)(4 - b));
    int i;

    if (columns > 1)
        SPECDEC__NEON_LOAD(nibbles);
    SPECDEC__UNROLL
    for (i = 0; i < 8; i++) {
        uint8x16_t packed = vld1q_u8(nibbles + i * 64);

        rows->codes[i] = second ? specdec__neon_high_nibbles(packed) : specdec__neon_low_nibbles(packed);
        if (has_high)
            SPECDEC__NEON_PUT_BITS(rows->codes[i], vshlq_u8(vld1q_u8(high + i * 64), by), bit);
    }
    rows->sums[0] = specdec__dotprod_add_up(rows->codes, 8);
    if (has_high)
        rows->sums[0] = veorq_s8(rows->sums[0], vdupq_n_s8(-128));
    rows->scale[0] = specdec__dotprod_factor(run, b, second, quad->which, quad->d, run->less[0]);
    rows->minimum[0] = specdec__dotprod_factor(run, b + 8, second, quad->which, quad->dmin, run->less[1]);
}

/* The same of block b of Q6_K; way: b % 4. */
SPECDEC__INLINE void specdec__dotprod_take_q6_k(const specdec__dotprod_run *run, int b, int way, int columns,
                                                specdec__dotprod_quad *quad, specdec__dotprod_rows *rows)
{
    const int row = quad->row;
    const unsigned char *nibbles = run->tile + SPECDEC__TILE_AT(q6_k, nibbles) + (b - way + way % 2 * 2) * 256;
    const unsigned char *crumbs = run->tile + SPECDEC__TILE_AT(q6_k, crumbs) + (b - way) * 128;
    const uint8x16_t six = vdupq_n_u8(63);
    int i;

    SPECDEC__NEON_LOAD(nibbles);
    SPECDEC__NEON_LOAD(crumbs);
    SPECDEC__UNROLL
    for (i = 0; i < 8; i++) {
        uint8x16_t low = vld1q_u8(nibbles + i * 64 + row * 4), high;

        if (way == 3 && columns <= 1)
            high = quad->kept[i];
        else
            high = vld1q_u8(crumbs + i * 64 + row * 4);
        if (way % 2 && !(way == 3 && columns <= 1))
            high = vshrq_n_u8(high, 2);
        if (way == 1 && columns <= 1)
            quad->kept[i] = high;
        low = way < 2 ? vsliq_n_u8(low, high, 4) : vsriq_n_u8(high, low, 4);
        rows->codes[i] = vreinterpretq_s8_u8(way == 3 ? low : vandq_u8(low, six));
    }
    SPECDEC__UNROLL
    for (i = 0; i < 2; i++) {
        if (specdec__dotprod_is_halved(SPECDEC__TYPE_Q6_K, 1, columns)) {
            rows->sums[i] = vaddq_s8(rows->codes[i * 4], rows->codes[i * 4 + 1]);
            rows->others[i] = vaddq_s8(rows->codes[i * 4 + 2], rows->codes[i * 4 + 3]);
        } else {
            rows->sums[i] = veorq_s8(specdec__dotprod_add_up(rows->codes + i * 4, 4), vdupq_n_s8(-128));
        }
        rows->scale[i] = specdec__dotprod_factor(run, b * 2 + i, way * 2 + i, quad->which, quad->d, run->less[0]);
    }
}

/* Four rows of block b of a panel; the codes of Q8_0 stay in the tile. */
SPECDEC__INLINE void specdec__dotprod_take_panel(int type, const specdec__dotprod_run *run, int b, int row,
                                                 specdec__dotprod_rows *rows)
{
    const int per = 32 / specdec__dotprod_granule(type);
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
        else if (specdec__dotprod_is_wide(type))
            rows->pair[i] = vcvtq_f32_s32(vld1q_s32(pair));
        else
            rows->sums[i] = vreinterpretq_s8_s32(vld1q_s32(pair));
        rows->scale[i] = vld1q_f32(panel->scale[b * per + i] + row);
        if (specdec__dotprod_has_minimum(type))
            rows->minimum[i] = vld1q_f32(panel->minimum[b * per + i] + row);
    }
}

/* Four rows of block b of a tile, or of a panel; way: b modulo specdec__dotprod_ways, a constant. */
SPECDEC__DOTPROD SPECDEC__INLINE void specdec__dotprod_take(int type, int packed, const specdec__dotprod_run *run,
                                                            int b, int way, int columns,
                                                            specdec__dotprod_quad *quad, specdec__dotprod_rows *rows)
{
    const int row = quad->row;
    const unsigned char *tile = run->tile + (size_t)b * specdec__dotprod_span(type) + row * 4;

    if (SPECDEC__NEON_KEEPS)
        SPECDEC__NEON_ANEW(tile); /* one address: gcc would keep a register for each 64 bytes of it */
    if (!packed)
        specdec__dotprod_take_panel(type, run, b, row, rows);
    else if (type == SPECDEC__TYPE_Q8_0)
        specdec__dotprod_take_q8_0(tile, row, rows);
    else if (type == SPECDEC__TYPE_IQ4_XS)
        specdec__dotprod_take_iq4_xs(run, b, quad, rows);
    else if (specdec__neon_is_iq2(type))
        specdec__dotprod_take_iq2(type, run, b, quad, rows);
    else if (type == SPECDEC__TYPE_Q2_K || type == SPECDEC__TYPE_Q3_K)
        specdec__dotprod_take_crumbs(type, run, b, way, quad, rows);
    else if (type == SPECDEC__TYPE_Q6_K)
        specdec__dotprod_take_q6_k(run, b, way, columns, quad, rows);
    else if (specdec__dotprod_is_like_q4_k(type))
        specdec__dotprod_take_k(type, run, b, way, columns, quad, rows);
    else
        specdec__dotprod_take_nibbles(type, tile, row, rows);
}

/* Those of Q6_K are signed bytes. */
SPECDEC__INLINE void specdec__dotprod_factors_6k(specdec__dotprod_run *run)
{
    const unsigned char *scales = run->tile + SPECDEC__TILE_AT(q6_k, scales);
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 16; i++)
        vst1q_u8(run->factors[i], veorq_u8(vld1q_u8(scales + i * 16), vdupq_n_u8(128)));
}

/* Fills the factors. */
SPECDEC__INLINE void specdec__dotprod_factors(int type, specdec__dotprod_run *run)
{
    int i;

    for (i = 0; i < 4 && specdec__dotprod_is_like_q4_k(type); i++) {
        specdec__neon_four factors = specdec__neon_factors_k(run->tile + SPECDEC__TILE_AT(q4_k, scales) + i * 16);

        vst1q_u8(run->factors[i], vreinterpretq_u8_s8(factors.scale[0]));
        vst1q_u8(run->factors[i + 4], vreinterpretq_u8_s8(factors.scale[1]));
        vst1q_u8(run->factors[i + 8], vreinterpretq_u8_s8(factors.minimum[0]));
        vst1q_u8(run->factors[i + 12], vreinterpretq_u8_s8(factors.minimum[1]));
    }
    if (type == SPECDEC__TYPE_Q6_K)
        specdec__dotprod_factors_6k(run);
    for (i = 0; i < 16 && type == SPECDEC__TYPE_Q3_K; i++)
        vst1q_u8(run->factors[i], specdec__neon_factors_3k(run->tile, i));
    for (i = 0; i < 8 && type == SPECDEC__TYPE_IQ4_XS; i++)
        vst1q_u8(run->factors[i], specdec__neon_factors_4xs(run->tile, i));
}

/* The four rows from row on. */
SPECDEC__INLINE void specdec__dotprod_scales(int type, specdec__dotprod_run *run, int row, specdec__dotprod_quad *quad)
{
    static const uint32_t which[SPECDEC__ROWS] = {
        0xFFFF00FF, 0xFFFF01FF, 0xFFFF02FF, 0xFFFF03FF, 0xFFFF04FF, 0xFFFF05FF, 0xFFFF06FF, 0xFFFF07FF,
        0xFFFF08FF, 0xFFFF09FF, 0xFFFF0AFF, 0xFFFF0BFF, 0xFFFF0CFF, 0xFFFF0DFF, 0xFFFF0EFF, 0xFFFF0FFF};
    const unsigned char *d = run->tile + specdec__dotprod_d(type) + row * 2;
    const int raised = specdec__dotprod_raised(type);

    quad->row = row;
    if (specdec__neon_is_iq2(type))
        quad->d = vmulq_n_f32(specdec__neon_load_f16x4(d), specdec__neon_grid_factor(type));
    if (raised < 0)
        return;
    quad->which = vreinterpretq_u8_u32(vld1q_u32(which + row));
    quad->d = specdec__neon_load_f16x4(d);
    vst1q_f32(run->less[0], vmulq_n_f32(quad->d, (float)(-32768 - raised)));
    if (specdec__dotprod_has_minimum(type)) {
        quad->dmin = specdec__neon_load_f16x4(d + SPECDEC__ROWS * 2);
        if (type == SPECDEC__TYPE_Q2_K)
            quad->dmin = vmulq_n_f32(quad->dmin, 0.0625f);
        vst1q_f32(run->less[1], vmulq_n_f32(quad->dmin, -32768));
    }
}

/* The larger ones of 16 half floats, as integers without a sign, twice that. */
SPECDEC__INLINE uint16x8_t specdec__dotprod_largest(const unsigned char *d)
{
    const uint16x8_t low = vreinterpretq_u16_u8(vld1q_u8(d)), high = vreinterpretq_u16_u8(vld1q_u8(d + 16));

    return vmaxq_u16(vshlq_n_u16(low, 1), vshlq_n_u16(high, 1));
}

/* Does a tile have scales that are no finite numbers? What specdec__dotprod_factor takes off is not then. */
SPECDEC__INLINE int specdec__dotprod_is_wild(int type, const unsigned char *tile)
{
    const unsigned char *d = tile + specdec__dotprod_d(type);
    uint16x8_t most;

    if (specdec__dotprod_raised(type) < 0)
        return 0;
    most = specdec__dotprod_largest(d);
    if (specdec__dotprod_has_minimum(type))
        most = vmaxq_u16(most, specdec__dotprod_largest(d + 32));
    return vmaxvq_u16(most) >= 0xF800;
}

/* Four values of four rows times those of every column. */
#define SPECDEC__DOTPROD_EACH(w, lane) \
    SPECDEC__UNROLL \
    for (c = 0; c < columns; c++) \
        SPECDEC__SDOT(dot[c], w, v[c], lane)

/* acc (column) += granule g of block b: the exact sums dot, which began at SPECDEC__DOTPROD_START, times both scales,
   and the minimum: canonical order. */
SPECDEC__INLINE void specdec__dotprod_fold(int type, int columns, const specdec__dotprod_rows *rows, int g,
                                           const specdec__dotprod_x *x, int b, float32x4_t scales,
                                           const int32x4_t *dot, float32x4_t *acc)
{
    const int k = b * (32 / specdec__dotprod_granule(type)) + g;
    const int has_excess = specdec__dotprod_bias(type) || specdec__dotprod_surplus(type);
    const float32x4_t one = vdupq_n_f32(1), start = vdupq_n_f32(SPECDEC__DOTPROD_START);
    const float32x4_t excess = vld1q_f32(x->excess[k]), totals = vld1q_f32(x->total[k]);
    const float32x4_t offsets = vreinterpretq_f32_s32(vld1q_s32(x->offset[b]));
    int c;

    SPECDEC__UNROLL
    for (c = 0; c < columns; c++) {
        float32x4_t sum = vreinterpretq_f32_s32(dot[c]);

        if (specdec__dotprod_is_wide(type))
            sum = vfmaq_n_f32(sum, rows->pair[g], offsets[c]);
        sum = has_excess ? vfmsq_n_f32(sum, one, excess[c]) : vsubq_f32(sum, start);
        acc[c] = vfmaq_f32(acc[c], vmulq_n_f32(rows->scale[g], scales[c]), sum);
        if (specdec__dotprod_has_minimum(type))
            acc[c] = specdec__dotprod_is_subtracted(type) ? vfmsq_n_f32(acc[c], rows->minimum[g], totals[c])
                                                          : vfmaq_n_f32(acc[c], rows->minimum[g], totals[c]);
    }
}

/* acc (column) += four rows of block b times columns. */
SPECDEC__DOTPROD SPECDEC__INLINE void specdec__dotprod_block(int type, int packed, int columns,
                                                             const specdec__dotprod_rows *rows,
                                                             const specdec__dotprod_x *x, const int8_t *codes, int b,
                                                             float32x4_t *acc)
{
    const int per = 32 / specdec__dotprod_granule(type), words = 8 / per;
    float32x4_t scales = vld1q_f32(x->scale[b]);
    const int8x16_t bytes = vreinterpretq_s8_s32(vld1q_s32(x->offset[b]));
    int g, c, h;

    SPECDEC__UNROLL
    for (g = 0; g < per; g++) {
        const int8_t *fourth = codes + (packed ? x->last : 96);
        const int32_t *begin = x->start[0];
        const float *factors = x->scale[b];
        int32x4_t dot[4];

        if (g) {
            SPECDEC__NEON_LOAD(factors);
            scales = vld1q_f32(factors);
        }
        SPECDEC__NEON_ANEW(begin);
        SPECDEC__UNROLL
        for (c = 0; c < columns; c++)
            if (packed || (per == 2 && SPECDEC__NEON_KEEPS))
                SPECDEC__NEON_AGAIN(dot[c], x->start[c], codes, g * 4 + c);
            else
                dot[c] = vld1q_s32(begin + c * 4);
        SPECDEC__UNROLL
        for (h = g * words; h < (g + 1) * words; h += 4) {
            int8x16_t v[4];

            SPECDEC__UNROLL
            for (c = 0; c < columns; c++)
                v[c] = vld1q_s8((c == 3 ? fourth : codes + c * 32) + h * 4);
            SPECDEC__DOTPROD_EACH(rows->codes[h], 0);
            SPECDEC__DOTPROD_EACH(rows->codes[h + 1], 1);
            SPECDEC__DOTPROD_EACH(rows->codes[h + 2], 2);
            SPECDEC__DOTPROD_EACH(rows->codes[h + 3], 3);
            if (!packed && per == 1)
                SPECDEC__NEON_APART;
        }
        if (packed)
            SPECDEC__NEON_APART;
        if (!specdec__dotprod_is_wide(type)) {
            SPECDEC__SDOT(dot[0], rows->sums[g], bytes, 0);
            if (specdec__dotprod_is_halved(type, packed, columns))
                SPECDEC__SDOT(dot[0], rows->others[g], bytes, 0);
            if (columns > 1)
                SPECDEC__SDOT(dot[1], rows->sums[g], bytes, 1);
            if (columns > 2)
                SPECDEC__SDOT(dot[2], rows->sums[g], bytes, 2);
            if (columns > 3)
                SPECDEC__SDOT(dot[3], rows->sums[g], bytes, 3);
        }
        specdec__dotprod_fold(type, columns, rows, g, x, b, scales, dot, acc);
    }
}

/* Prefetches a quarter of a block: each block does, for every four rows. Where whole lines of 64 bytes are most of it,
   it is only those. */
SPECDEC__INLINE void specdec__dotprod_prefetch(int type, const unsigned char **ahead)
{
    const int share = (int)specdec__dotprod_span(type) / 4, most = share % 64 <= 8;
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < share - most * 8; i += 64)
        __builtin_prefetch(*ahead + i, 0, 3);
    *ahead += most ? share / 64 * 64 : share;
}

/* Prefetches what the up to 8 blocks of four rows do not: 8 bytes for each of them. */
SPECDEC__INLINE void specdec__dotprod_prefetch_rest(int type, const unsigned char **ahead)
{
    if (specdec__dotprod_span(type) / 4 % 64 <= 8) {
        __builtin_prefetch(*ahead, 0, 3);
        *ahead += 64;
    }
}

/* Word i of granule g of four rows of a block of Q6_K, number `way` of four whose nibbles and crumbs begin here. kept,
   if not NULL: crumbs of the second block, which the fourth one takes from there. A way's instructions stand in one
   piece, as gcc would copy what they overwrite. */
SPECDEC__INLINE int8x16_t specdec__dotprod_word_6k(const unsigned char *nibbles, const unsigned char *crumbs, int way,
                                                   int g, int i, uint8x16_t *kept)
{
    const uint8x16_t six = vdupq_n_u8(63);
    const unsigned char *from = nibbles + way % 2 * 512 + g * 256 + i * 64;
    uint8x16_t low, high;

    crumbs += g * 256 + i * 64;
    SPECDEC__NEON_AGAIN(low, from, from, way);
    if (way == 3 && kept)
        high = kept[g * 4 + i];
    else
        SPECDEC__NEON_AGAIN(high, crumbs, crumbs, way);
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

/* Word i of a granule times columns; takes that word of the granule that comes next. */
#define SPECDEC__DOTPROD_WORD(i) \
    SPECDEC__UNROLL \
    for (c = 0; c < columns; c++) \
        SPECDEC__SDOT_IN_PLACE(dot[c], w[i], v[c], i); \
    if (way + g < 4) \
        next[i] = specdec__dotprod_word_6k(nibbles, crumbs, way + g, 1 - g, i, columns == 1 ? quad->kept : NULL); \
    SPECDEC__NEON_APART

/* acc (column) += granule g of four rows of block b of Q6_K, number `way` of four, times columns. w: its codes; next:
   becomes those of the granule that follows, as unpacking and multiplying by turns keep more of the core busy. */
SPECDEC__DOTPROD SPECDEC__INLINE void specdec__dotprod_granule_6k(const specdec__dotprod_run *run, int b, int way,
                                                                  int g, int columns, specdec__dotprod_quad *quad,
                                                                  const specdec__dotprod_x *x, const int8_t *codes,
                                                                  const int8x16_t *w, int8x16_t *next,
                                                                  float32x4_t *acc)
{
    const unsigned char *tile = run->tile + quad->row * 4;
    const unsigned char *nibbles = tile + SPECDEC__TILE_AT(q6_k, nibbles) + (b - way) * 256;
    const unsigned char *crumbs = tile + SPECDEC__TILE_AT(q6_k, crumbs) + (b - way) * 128;
    const int halved = specdec__dotprod_is_halved(SPECDEC__TYPE_Q6_K, 1, columns);
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
        SPECDEC__NEON_AGAIN(dot[c], x->start[c], codes, g * 4 + c);
        v[c] = vld1q_s8(codes + (c == 3 ? x->last : (size_t)c * 32) + g * 16);
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
    rows.scale[g] = specdec__dotprod_factor(run, b * 2 + g, way * 2 + g, quad->which, quad->d, run->less[0]);
    SPECDEC__NEON_AGAIN(scales, x->scale[b], codes, g);
    specdec__dotprod_fold(SPECDEC__TYPE_Q6_K, columns, &rows, g, x, b, scales, dot, acc);
    SPECDEC__NEON_APART;
}

/* acc (column) += four blocks of Q6_K of four rows, from b on, times columns. */
SPECDEC__DOTPROD SPECDEC__INLINE void specdec__dotprod_four_6k(const specdec__dotprod_run *run, int b, int columns,
                                                               specdec__dotprod_quad *quad,
                                                               const specdec__dotprod_x *x, const int8_t *codes,
                                                               const unsigned char **ahead, float32x4_t *acc)
{
    const unsigned char *tile = run->tile + quad->row * 4;
    int8x16_t w[4], next[4];
    int way, i;

    SPECDEC__UNROLL
    for (i = 0; i < 4; i++)
        w[i] = specdec__dotprod_word_6k(tile + SPECDEC__TILE_AT(q6_k, nibbles) + b * 256,
                                        tile + SPECDEC__TILE_AT(q6_k, crumbs) + b * 128, 0, 0, i, NULL);
    SPECDEC__UNROLL
    for (i = 0; i < 8; i++)
        quad->kept[i] = vdupq_n_u8(0); /* never read: gcc warns where loops stay loops */
    SPECDEC__UNROLL
    for (way = 0; way < 4; way++, codes += x->stride) {
        specdec__dotprod_prefetch(SPECDEC__TYPE_Q6_K, ahead);
        specdec__dotprod_granule_6k(run, b + way, way, 0, columns, quad, x, codes, w, next, acc);
        specdec__dotprod_granule_6k(run, b + way, way, 1, columns, quad, x, codes, next, w, acc);
    }
}

/* sums (column, 16) += up to 8 blocks, of a tile or a panel, times 1 to 4 columns. */
SPECDEC__DOTPROD SPECDEC__INLINE void specdec__dotprod_run_columns(int type, int packed, int columns,
                                                                   specdec__dotprod_run *run, int blocks,
                                                                   const unsigned char *ahead,
                                                                   const specdec__dotprod_x *x, float *sums)
{
    const int ways = packed ? specdec__dotprod_ways(type) : 1;
    int row, b, c, way;

    for (row = 0; row < SPECDEC__ROWS; row += 4) {
        const int8_t *codes = x->codes;
        float *last = sums + (packed ? x->last / 2 : 48) + row;
        specdec__dotprod_quad quad;
        float32x4_t acc[4];

        specdec__dotprod_scales(packed ? type : SPECDEC__TYPE_COUNT, run, row, &quad);
        if (packed)
            specdec__dotprod_prefetch_rest(type, &ahead);
        SPECDEC__UNROLL
        for (c = 0; c < columns; c++)
            acc[c] = vld1q_f32(c == 3 ? last : sums + c * SPECDEC__ROWS + row);
        for (b = 0; b < blocks; b += ways) {
            if (type == SPECDEC__TYPE_Q6_K && packed && SPECDEC__NEON_KEEPS) {
                specdec__dotprod_four_6k(run, b, columns, &quad, x, codes, &ahead, acc);
                codes += x->stride * 4;
                continue;
            }
            SPECDEC__UNROLL
            for (way = 0; way < ways; way++, codes += x->stride) {
                specdec__dotprod_rows rows;

                if (packed)
                    specdec__dotprod_prefetch(type, &ahead);
                specdec__dotprod_take(type, packed, run, b + way, way, columns, &quad, &rows);
                SPECDEC__NEON_APART;
                specdec__dotprod_block(type, packed, columns, &rows, x, codes, b + way, acc);
            }
        }
        SPECDEC__UNROLL
        for (c = 0; c < columns; c++)
            vst1q_f32(c == 3 ? last : sums + c * SPECDEC__ROWS + row, acc[c]);
    }
}

/* Four rows of a block to a panel; of Q8_0, all but the codes. */
SPECDEC__INLINE void specdec__dotprod_put(int type, const specdec__dotprod_rows *rows, int block, int row,
                                          specdec__panel *panel)
{
    const int per = 32 / specdec__dotprod_granule(type), kept = type == SPECDEC__TYPE_Q8_0 ? 0 : 8;
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

/* Vectors whose words take turns: the first two words of each, and the last two. */
SPECDEC__INLINE void specdec__i8mm_put_pair(int8_t *to, int8x16_t even, int8x16_t odd)
{
    const int32x4_t first = vreinterpretq_s32_s8(even), second = vreinterpretq_s32_s8(odd);

    vst1q_s8(to, vreinterpretq_s8_s32(vzip1q_s32(first, second)));
    vst1q_s8(to + 16, vreinterpretq_s8_s32(vzip2q_s32(first, second)));
}

/* Four rows of a block of a type of granules of 32 to a panel for matrix products: codes (value/8, row, 8), minimums
   with their sign. pair: of wide types the sums of codes, floats; of others (row, 8) bytes, whose first four add up
   to them. */
SPECDEC__INLINE void specdec__i8mm_put(int type, const specdec__dotprod_rows *rows, int block, int row,
                                       specdec__panel *panel)
{
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 8; i += 2)
        specdec__i8mm_put_pair(panel->u.codes + block * 512 + i * 64 + row * 8, rows->codes[i], rows->codes[i + 1]);
    if (specdec__dotprod_is_wide(type))
        vst1q_s32(panel->pair[block] + row, vreinterpretq_s32_f32(rows->pair[0]));
    else
        specdec__i8mm_put_pair((int8_t *)panel->pair[block * 2] + row * 8, rows->sums[0], rows->sums[0]);
    vst1q_f32(panel->scale[block] + row, rows->scale[0]);
    if (specdec__dotprod_has_minimum(type))
        vst1q_f32(panel->minimum[block] + row, specdec__dotprod_is_subtracted(type) ? vnegq_f32(rows->minimum[0])
                                                                                    : rows->minimum[0]);
}

/* Up to 8 blocks of a tile to a panel, or zipped, to one for matrix products. Two that share bytes are taken before
   either is stored. */
SPECDEC__DOTPROD SPECDEC__INLINE void specdec__dotprod_unpack(int type, int zipped, specdec__dotprod_run *run,
                                                              int blocks, const unsigned char *ahead,
                                                              specdec__panel *panel)
{
    const int ways = specdec__dotprod_ways(type), together = ways == 2 ? 2 : 1;
    specdec__dotprod_quad quad;
    int row, b, way, i;

    for (row = 0; row < SPECDEC__ROWS; row += 4) {
        specdec__dotprod_scales(type, run, row, &quad);
        specdec__dotprod_prefetch_rest(type, &ahead);
        for (b = 0; b < blocks; b += ways)
            SPECDEC__UNROLL
            for (way = 0; way < ways; way += together) {
                specdec__dotprod_rows rows[2];

                SPECDEC__UNROLL
                for (i = 0; i < together; i++) {
                    specdec__dotprod_prefetch(type, &ahead);
                    specdec__dotprod_take(type, 1, run, b + way + i, way + i, 0, &quad, rows + i);
                }
                SPECDEC__NEON_APART;
                SPECDEC__UNROLL
                for (i = 0; i < together; i++)
                    (zipped ? specdec__i8mm_put : specdec__dotprod_put)(type, rows + i, b + way + i, row, panel);
            }
    }
}

/* Up to 8 blocks of one or two tiles, or panels, times 1 to 4 columns. */
SPECDEC__DOTPROD SPECDEC__INLINE void specdec__dotprod_columns(int type, int packed, int columns, int count, int tiles,
                                                               specdec__dotprod_run *runs, int blocks,
                                                               const unsigned char *const *ahead,
                                                               const specdec__columns *x, size_t at,
                                                               float *const *sums, int column)
{
    specdec__dotprod_x ready;
    int t;

    specdec__dotprod_prepare(type, packed, x, at + (size_t)column, columns, count, blocks, &ready);
    for (t = 0; t < tiles; t++)
        specdec__dotprod_run_columns(type, packed, columns, &runs[t], blocks, ahead ? ahead[t] : NULL, &ready,
                                     sums[t] + column * SPECDEC__ROWS);
}

/* The same times count columns, 4 at a time. */
SPECDEC__DOTPROD SPECDEC__INLINE void specdec__dotprod_groups(int type, int packed, int tiles,
                                                              specdec__dotprod_run *runs, int blocks,
                                                              const unsigned char *const *ahead,
                                                              const specdec__columns *x, size_t at, int count,
                                                              float *const *sums)
{
    const int many = specdec__dotprod_most(type) == 4;
    int c;

    for (c = 0; many && count - c >= (packed ? 3 : 4); c += 4)
        specdec__dotprod_columns(type, packed, 4, specdec__min_int(4, count - c), tiles, runs, blocks, ahead, x, at,
                                 sums, c);
    if (count - c >= 2) {
        specdec__dotprod_columns(type, packed, 2, 2, tiles, runs, blocks, ahead, x, at, sums, c);
        c += 2;
    }
    if (count - c == 1)
        specdec__dotprod_columns(type, packed, 1, 1, tiles, runs, blocks, ahead, x, at, sums, c);
}

/* Panels of the other types. */
#define SPECDEC__DOTPROD_DOT(name, type) \
    SPECDEC__DOTPROD static void \
    specdec__dotprod_dot_##name(const specdec__panel *panel, int blocks, const specdec__columns *x, int block, \
                                int column, int count, float *sums) \
    { \
        specdec__dotprod_run run; \
        run.tile = NULL; /* not read */ \
        run.panel = panel; \
        specdec__dotprod_groups(type, 0, 1, &run, blocks, NULL, x, (size_t)block * (size_t)x->n + (size_t)column, \
                                count, &sums); \
    }

SPECDEC__DOTPROD_DOT(16, SPECDEC__DOTPROD_PANEL_16)
SPECDEC__DOTPROD_DOT(16m, SPECDEC__DOTPROD_PANEL_16M)
SPECDEC__DOTPROD_DOT(32, SPECDEC__DOTPROD_PANEL_32)
SPECDEC__DOTPROD_DOT(32m, SPECDEC__DOTPROD_PANEL_32M)

/* Up to 8 blocks of one or two tiles times count columns, through panels. */
typedef void specdec__dotprod_through_function(int tiles, specdec__dotprod_run *runs, int blocks,
                                               const unsigned char *const *ahead, specdec__panel *panels,
                                               const specdec__columns *x, size_t at, int count, float *const *sums);
#define SPECDEC__DOTPROD_THROUGH(name) \
    SPECDEC__DOTPROD static __attribute__((noinline)) void \
    specdec__dotprod_through_##name(int tiles, specdec__dotprod_run *runs, int blocks, \
                                    const unsigned char *const *ahead, specdec__panel *panels, \
                                    const specdec__columns *x, size_t at, int count, float *const *sums) \
    { \
        int t; \
        for (t = 0; t < tiles; t++) \
            specdec__dotprod_unpack(SPECDEC__TYPE_##name, 0, &runs[t], blocks, ahead[t], panels + t); \
        specdec__dotprod_groups(SPECDEC__TYPE_##name, 0, tiles, runs, blocks, NULL, x, at, count, sums); \
    }

SPECDEC__DOTPROD_THROUGH(Q4_0)
SPECDEC__DOTPROD_THROUGH(Q8_0)
SPECDEC__DOTPROD_THROUGH(Q4_K)
SPECDEC__DOTPROD_THROUGH(Q6_K)

/* The same through panels that have nothing of their type left: also for scales that are no finite numbers. */
#define SPECDEC__DOTPROD_PLAINLY(name, unpack, dot) \
    SPECDEC__DOTPROD static __attribute__((noinline)) void \
    specdec__dotprod_plainly_##name(int tiles, specdec__dotprod_run *runs, int blocks, \
                                    const unsigned char *const *ahead, specdec__panel *panels, \
                                    const specdec__columns *x, size_t at, int count, float *const *sums) \
    { \
        int t; \
        (void)ahead; \
        for (t = 0; t < tiles; t++) { \
            unpack(specdec__quant_find(SPECDEC__TYPE_##name), runs[t].tile, blocks, panels + t); \
            dot(panels + t, blocks, x, (int)(at / (size_t)x->n), (int)(at % (size_t)x->n), count, sums[t]); \
        } \
    }

SPECDEC__DOTPROD_PLAINLY(Q4_1, specdec__neon_unpack_q4_1, specdec__dotprod_dot_32m)
SPECDEC__DOTPROD_PLAINLY(Q4_K, specdec__neon_unpack_q4_k, specdec__dotprod_dot_32m)
SPECDEC__DOTPROD_PLAINLY(Q6_K, specdec__neon_unpack_q6_k, specdec__dotprod_dot_16)
SPECDEC__DOTPROD_PLAINLY(Q2_K, specdec__neon_unpack_q2_k, specdec__dotprod_dot_16m)
SPECDEC__DOTPROD_PLAINLY(Q3_K, specdec__neon_unpack_q3_k, specdec__dotprod_dot_16)
SPECDEC__DOTPROD_PLAINLY(IQ4_NL, specdec__neon_unpack_iq4_nl, specdec__dotprod_dot_32)
SPECDEC__DOTPROD_PLAINLY(IQ4_XS, specdec__neon_unpack_iq4_xs, specdec__dotprod_dot_32)
SPECDEC__DOTPROD_PLAINLY(Q5_0, specdec__neon_unpack_q5_0, specdec__dotprod_dot_32)
SPECDEC__DOTPROD_PLAINLY(Q5_1, specdec__neon_unpack_q5_1, specdec__dotprod_dot_32m)
SPECDEC__DOTPROD_PLAINLY(Q5_K, specdec__neon_unpack_q5_k, specdec__dotprod_dot_32m)
SPECDEC__DOTPROD_PLAINLY(IQ2_XXS, specdec__neon_unpack_iq2_xxs, specdec__dotprod_dot_32)
SPECDEC__DOTPROD_PLAINLY(IQ2_XS, specdec__neon_unpack_iq2_xs, specdec__dotprod_dot_16)
SPECDEC__DOTPROD_PLAINLY(IQ2_S, specdec__neon_unpack_iq2_s, specdec__dotprod_dot_16)

/* What multiply does (see specdec__multiply_function): up to 4 columns without a panel, more of them by through, tiles
   with wild scales by plainly. */
SPECDEC__DOTPROD SPECDEC__INLINE void specdec__dotprod_multiply(int type, specdec__dotprod_through_function *through,
                                                                specdec__dotprod_through_function *plainly,
                                                                const specdec__tiles *tiles, int blocks,
                                                                specdec__panel *panels, const specdec__columns *x,
                                                                int block, int column, int count, float *const *sums)
{
    const size_t span = specdec__dotprod_span(type), end = (size_t)blocks * span;
    const int most = tiles->tile[1] ? 2 : 1;
    specdec__dotprod_run runs[2];
    const unsigned char *ahead[2];
    int from, run, wild, t;

    for (t = 0; t < most && !block; t++)
        memset(sums[t], 0, (size_t)count * SPECDEC__ROWS * sizeof(float));
    for (from = 0; from < blocks; from += run) {
        const size_t at = (size_t)(block + from) * (size_t)x->n + (size_t)column, byte = (size_t)from * span;

        run = specdec__min_int(SPECDEC__PANEL / 32, blocks - from);
        wild = 0;
        for (t = 0; t < most; t++) {
            runs[t].tile = tiles->tile[t] + byte;
            runs[t].panel = panels + t;
            wild |= specdec__dotprod_is_wild(type, runs[t].tile);
        }
        for (t = 0; t < most; t++) {
            ahead[t] = byte + SPECDEC__NEON_AHEAD < end ? runs[t].tile + SPECDEC__NEON_AHEAD
                                                           : tiles->next[t] + (byte + SPECDEC__NEON_AHEAD - end);
            specdec__dotprod_factors(type, &runs[t]);
        }
        if (wild)
            plainly(most, runs, run, ahead, panels, x, at, count, sums);
        else if (count <= specdec__dotprod_most(type))
            specdec__dotprod_groups(type, 1, most, runs, run, ahead, x, at, count, sums);
        else
            through(most, runs, run, ahead, panels, x, at, count, sums);
    }
}

/* The types that have kernels of their own; how more columns are multiplied, and tiles with wild scales. */
#define SPECDEC__DOTPROD_TYPES(X) \
    X(Q4_0, through, through) X(Q8_0, through, through) X(Q4_K, through, plainly) X(Q6_K, through, plainly) \
    X(Q4_1, plainly, plainly) X(Q5_0, plainly, plainly) X(Q5_1, plainly, plainly) X(Q5_K, plainly, plainly) \
    X(Q2_K, plainly, plainly) X(Q3_K, plainly, plainly) X(IQ4_NL, plainly, plainly) X(IQ4_XS, plainly, plainly) \
    X(IQ2_XXS, plainly, plainly) X(IQ2_XS, plainly, plainly) X(IQ2_S, plainly, plainly)
#define SPECDEC__DOTPROD_MULTIPLY(name, through, plainly) \
    SPECDEC__DOTPROD static void specdec__dotprod_multiply_##name(const specdec__tiles *tiles, int blocks, \
                                                                  specdec__panel *panels, const specdec__columns *x, \
                                                                  int block, int column, int count, \
                                                                  float *const *sums) \
    { \
        specdec__dotprod_multiply(SPECDEC__TYPE_##name, specdec__dotprod_##through##_##name, \
                                  specdec__dotprod_##plainly##_##name, tiles, blocks, panels, x, block, column, \
                                  count, sums); \
    }
SPECDEC__DOTPROD_TYPES(SPECDEC__DOTPROD_MULTIPLY)

/* --- matrix products ---------------------------------------------------------------------------------------------- */

/* 4, 2 or 1 columns of up to 8 blocks, made ready once for two panels: a single column is its own partner. */
typedef struct specdec__i8mm_x {
    int8_t codes[8][2][64];                /* (block, pair, value/8, 2 columns, 8) */
    float scale[8][2][4], excess[8][2][4]; /* (block, pair): of both columns, twice; see specdec__dotprod_x */
    float offset[8][2][4];                 /* the same; of types that are not wide in four bytes of eight of each */
} specdec__i8mm_x;

/* What sums of a type are corrected by: see specdec__dotprod_bias, specdec__dotprod_surplus. */
typedef struct specdec__i8mm_kind {
    int bias, surplus;
} specdec__i8mm_kind;

/* Two of four columns, twice. */
SPECDEC__INLINE float32x4_t specdec__i8mm_both(float32x4_t four, int pair)
{
    const float32x2_t two = pair ? vget_high_f32(four) : vget_low_f32(four);

    return vcombine_f32(two, two);
}

/* Block b of 4, 2 or 1 columns from `at` on. */
SPECDEC__INLINE void specdec__i8mm_prepare(const specdec__i8mm_kind *kind, int wide, const specdec__columns *x,
                                           size_t at, int columns, int b, specdec__i8mm_x *to)
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
        vst1q_f32(to->scale[b][c / 2], specdec__i8mm_both(scales, c));
        vst1q_f32(to->excess[b][c / 2], specdec__i8mm_both(vreinterpretq_f32_s32(excess), c));
        vst1q_f32(to->offset[b][c / 2], wide ? specdec__i8mm_both(vcvtq_f32_s32(offsets), c)
                                             : vreinterpretq_f32_u8(offset));
    }
}

/* sum (pair of columns, pair of rows), whose lanes are (row, column), which began at SPECDEC__DOTPROD_START, += eight
   rows of block b times columns. */
SPECDEC__I8MM SPECDEC__INLINE void specdec__i8mm_products(const specdec__panel *panel, const specdec__i8mm_x *ready,
                                                          int b, int row, int wide, int columns, int32x4_t (*sum)[4])
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

/* The two rows of pair h of those in two vectors, twice each. */
SPECDEC__INLINE float32x4_t specdec__i8mm_twice(const float *from, int h)
{
    const float32x4_t four = vld1q_f32(from + h / 2 * 4);

    return h % 2 ? vzip2q_f32(four, four) : vzip1q_f32(four, four);
}

/* acc (pair of columns, pair of rows) += the sums of eight rows of block b times scales, and minimums. */
SPECDEC__INLINE void specdec__i8mm_fold(const specdec__panel *panel, const specdec__columns *x,
                                        const specdec__i8mm_x *ready, size_t at, int b, int row, int wide,
                                        int has_minimum, int columns, int32x4_t (*sum)[4], float32x4_t (*acc)[4])
{
    int c, h;

    SPECDEC__UNROLL
    for (h = 0; h < 4; h++) {
        const float32x4_t scale = specdec__i8mm_twice(panel->scale[b] + row, h);

        SPECDEC__UNROLL
        for (c = 0; c < columns; c += 2) {
            float32x4_t exact = vreinterpretq_f32_s32(sum[c / 2][h]);

            if (wide)
                exact = vfmaq_f32(exact, specdec__i8mm_twice((const float *)(const void *)panel->pair[b] + row, h),
                                  vld1q_f32(ready->offset[b][c / 2]));
            exact = vsubq_f32(exact, vld1q_f32(ready->excess[b][c / 2]));
            acc[c / 2][h] = vfmaq_f32(acc[c / 2][h], vmulq_f32(scale, vld1q_f32(ready->scale[b][c / 2])), exact);
            if (has_minimum) {
                const float *total = x->sum32 + at + c;
                const float32x2_t two = columns > 1 ? vld1_f32(total) : vld1_dup_f32(total);

                acc[c / 2][h] = vfmaq_f32(acc[c / 2][h], specdec__i8mm_twice(panel->minimum[b] + row, h),
                                          vcombine_f32(two, two));
            }
        }
    }
}

/* sums (column, 16) += a panel times 1, 2 or 4 columns. */
SPECDEC__I8MM SPECDEC__INLINE void specdec__i8mm_columns(const specdec__panel *panel, int blocks,
                                                         const specdec__columns *x, const specdec__i8mm_x *ready,
                                                         size_t from, float *sums, int wide, int has_minimum,
                                                         int columns)
{
    int32_t start[32]; /* loads, as these cost no more than moves between registers */
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

            SPECDEC__NEON_ANEW(begin);
            SPECDEC__UNROLL
            for (c = 0; c < columns; c += 2)
                SPECDEC__UNROLL
                for (h = 0; h < 4; h++)
                    sum[c / 2][h] = vld1q_s32(begin + c * 8 + h * 4);
            specdec__i8mm_products(panel, ready, b, row, wide, columns, sum);
            specdec__i8mm_fold(panel, x, ready, at, b, row, wide, has_minimum, columns, sum, acc);
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

/* One or two panels times count columns: 4, 2 and 1 at a time. */
SPECDEC__I8MM SPECDEC__INLINE void specdec__i8mm_groups(const specdec__i8mm_kind *kind, int wide, int has_minimum,
                                                        const specdec__panel *panels, int tiles, int blocks,
                                                        const specdec__columns *x, size_t at, int count,
                                                        float *const *sums)
{
    specdec__i8mm_x ready;
    int b, c, t, columns;

    for (c = 0; c < count; c += columns, at += (size_t)columns) {
        columns = count - c >= 4 ? 4 : count - c >= 2 ? 2 : 1;
        for (b = 0; b < blocks; b++) {
            const size_t k = at + (size_t)b * (size_t)x->n;

            if (columns == 4)
                specdec__i8mm_prepare(kind, wide, x, k, 4, b, &ready);
            else if (columns == 2)
                specdec__i8mm_prepare(kind, wide, x, k, 2, b, &ready);
            else
                specdec__i8mm_prepare(kind, wide, x, k, 1, b, &ready);
        }
        for (t = 0; t < tiles; t++) {
            float *to = sums[t] + c * SPECDEC__ROWS;

            if (columns == 4)
                specdec__i8mm_columns(panels + t, blocks, x, &ready, at, to, wide, has_minimum, 4);
            else if (columns == 2)
                specdec__i8mm_columns(panels + t, blocks, x, &ready, at, to, wide, has_minimum, 2);
            else
                specdec__i8mm_columns(panels + t, blocks, x, &ready, at, to, wide, has_minimum, 1);
        }
    }
}

/* The same, by what types have. */
typedef void specdec__i8mm_groups_function(const specdec__i8mm_kind *kind, const specdec__panel *panels, int tiles,
                                           int blocks, const specdec__columns *x, size_t at, int count,
                                           float *const *sums);
#define SPECDEC__I8MM_GROUPS(name, wide, has_minimum) \
    SPECDEC__I8MM static __attribute__((noinline)) void \
    specdec__i8mm_groups_##name(const specdec__i8mm_kind *kind, const specdec__panel *panels, int tiles, int blocks, \
                                const specdec__columns *x, size_t at, int count, float *const *sums) \
    { \
        specdec__i8mm_groups(kind, wide, has_minimum, panels, tiles, blocks, x, at, count, sums); \
    }
SPECDEC__I8MM_GROUPS(plain, 0, 0)
SPECDEC__I8MM_GROUPS(minimum, 0, 1)
SPECDEC__I8MM_GROUPS(wide, 1, 0)

/* What multiply does (see specdec__multiply_function), of granules of 32: few columns, and runs with wild scales, by
   dot products; more columns by matrix products of panels. */
typedef void specdec__i8mm_unpack_function(specdec__dotprod_run *run, int blocks, const unsigned char *ahead,
                                           specdec__panel *panel);
SPECDEC__INLINE void specdec__i8mm_multiply(int type, specdec__multiply_function *by_dots,
                                            specdec__i8mm_unpack_function *unpack,
                                            specdec__i8mm_groups_function *groups, const specdec__tiles *tiles,
                                            int blocks, specdec__panel *panels, const specdec__columns *x, int block,
                                            int column, int count, float *const *sums)
{
    const specdec__i8mm_kind kind = {specdec__dotprod_bias(type), specdec__dotprod_surplus(type)};
    const size_t span = specdec__dotprod_span(type), end = (size_t)blocks * span;
    const int most = tiles->tile[1] ? 2 : 1;
    specdec__tiles part = *tiles;
    specdec__dotprod_run one;
    int from, run, wild, t;

    if (count <= specdec__dotprod_most(type)) {
        by_dots(tiles, blocks, panels, x, block, column, count, sums);
        return;
    }
    for (t = 0; t < most && !block; t++)
        memset(sums[t], 0, (size_t)count * SPECDEC__ROWS * sizeof(float));
    for (from = 0; from < blocks; from += run) {
        const size_t byte = (size_t)from * span, ahead = byte + SPECDEC__NEON_AHEAD;

        run = specdec__min_int(SPECDEC__PANEL / 32, blocks - from);
        wild = 0;
        for (t = 0; t < most; t++) {
            part.tile[t] = tiles->tile[t] + byte;
            wild |= specdec__dotprod_is_wild(type, part.tile[t]);
        }
        if (wild) {
            by_dots(&part, run, panels, x, block + from, column, count, sums);
            continue;
        }
        for (t = 0; t < most; t++) {
            one.tile = part.tile[t];
            specdec__dotprod_factors(type, &one);
            unpack(&one, run, ahead < end ? tiles->tile[t] + ahead : tiles->next[t] + (ahead - end), panels + t);
        }
        groups(&kind, panels, most, run, x, (size_t)(block + from) * (size_t)x->n + (size_t)column, count, sums);
    }
}

/* The types that matrix products take less for than dot products, of more columns than go without a panel. */
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

/* --- plain NEON: panels only -------------------------------------------------------------------------------------- */

/* Sums of four rows of one column, that start at SPECDEC__DOTPROD_START; w: words of the granule. Sums of 8 products
   (with wide, 2) of each row fit into 16 bits: 8 * 32 * 127, 2 * 128 * 127. */
SPECDEC__INLINE float32x4_t specdec__neon_products(const int8x16_t *w, int words, int wide, const int32_t *start,
                                                   const int8_t *codes)
{
    const int chain = wide ? 2 : words;
    int32x4_t low, high;
    int16x8_t low16, high16;
    int i;

    SPECDEC__NEON_ANEW(start);
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

/* acc (column) += four rows of granule k of a panel, from row on, times columns. */
SPECDEC__INLINE void specdec__neon_granule(int type, const specdec__panel *panel, int k, int row, int columns, int wide,
                                           const int32_t *start, const specdec__dotprod_x *x, float32x4_t *acc)
{
    const int granule = specdec__dotprod_granule(type), per = 32 / granule;
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
        sum[c] = specdec__neon_products(w, granule / 4, wide, start, codes + c * 32);
        if (columns == 4)
            SPECDEC__NEON_APART;
    }
    SPECDEC__UNROLL
    for (c = 0; c < columns; c++) {
        sum[c] = vsubq_f32(vfmaq_n_f32(sum[c], pair, offsets[c]), vdupq_n_f32(SPECDEC__DOTPROD_START));
        acc[c] = vfmaq_f32(acc[c], vmulq_n_f32(scale, scales[c]), sum[c]);
        if (specdec__dotprod_has_minimum(type))
            acc[c] = vfmaq_n_f32(acc[c], vld1q_f32(panel->minimum[k] + row), totals[c]);
    }
}

/* sums (column, 16) += a panel times 1, 2 or 4 columns. A single column's codes are spread out once for eight rows. */
SPECDEC__INLINE void specdec__neon_columns(int type, const specdec__panel *panel, int blocks, const specdec__columns *x,
                                           size_t at, int columns, int wide, float *sums)
{
    const int32_t bits = SPECDEC__DOTPROD_START_BITS, start[8] = {bits, 0, bits, 0, bits, 0, bits, 0};
    const int granules = blocks * (32 / specdec__dotprod_granule(type)), quads = columns == 1 ? 4 : 1;
    specdec__dotprod_x ready;
    int row, k, c, i;

    specdec__dotprod_prepare(type, 0, x, at, columns, columns, blocks, &ready);
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
                specdec__neon_granule(type, panel, k, row + i * 4, columns, wide, start, &ready, acc[i]);
        SPECDEC__UNROLL
        for (i = 0; i < quads; i++)
            SPECDEC__UNROLL
            for (c = 0; c < columns; c++)
                vst1q_f32(sums + c * SPECDEC__ROWS + row + i * 4, acc[i][c]);
    }
}

/* The same times count columns. */
SPECDEC__INLINE void specdec__neon_dot(int type, const specdec__panel *panel, int blocks, const specdec__columns *x,
                                       size_t at, int count, int wide, float *sums)
{
    for (; count >= 4; count -= 4, at += 4, sums += 64)
        specdec__neon_columns(type, panel, blocks, x, at, 4, wide, sums);
    if (count & 2) {
        specdec__neon_columns(type, panel, blocks, x, at, 2, wide, sums);
        at += 2;
        sums += 32;
    }
    if (count & 1)
        specdec__neon_columns(type, panel, blocks, x, at, 1, wide, sums);
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
    (SPECDEC__NEON_WIDE(panel) ? specdec__neon_dot_32_wide : specdec__neon_dot_32_narrow)(panel, blocks, x, block,
                                                                                           column, count, sums);
}

/* --- plain NEON: nibbles without a panel ------------------------------------------------------------------------- */

/* Four, two or one columns of up to 8 blocks, made ready once for two tiles: codes (block, column, value/8, twice 8);
   start (block, column, 4 times): what sums of unsigned codes times these begin at, bits of a float. */
typedef struct specdec__neon_x {
    int8_t codes[8][4][64];
    int32_t start[8][4][4];
    float scale[8][4], offset[8][4], total[8][4]; /* total: scale * sum of (code + offset) */
} specdec__neon_x;

/* 32 values of four rows: codes (value/8, pair of rows) of 2 rows x 8 unsigned values each, and their sums. */
typedef struct specdec__neon_rows {
    int8x16_t codes[4][2];
    float32x4_t pair, scale, minimum;
} specdec__neon_rows;

/* Scales and minimums of a tile of Q4_K. */
typedef struct specdec__neon_scales {
    float scale[8][SPECDEC__ROWS], minimum[8][SPECDEC__ROWS];
} specdec__neon_scales;

/* Columns from `at` on. The codes of Q4_0 are 8 too large, so the products' sums are by 8 times the sum of 32 codes of
   a column, and what offsets are multiplied by is by 32 * 8. */
SPECDEC__INLINE void specdec__neon_prepare(int type, const specdec__columns *x, size_t at, int columns, int blocks,
                                           specdec__neon_x *to)
{
    const int bias = specdec__dotprod_bias(type), surplus = specdec__dotprod_surplus(type);
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

/* Two pairs of rows of two words each: (pair). */
SPECDEC__INLINE uint32x4x2_t specdec__neon_row_pairs(const unsigned char *words)
{
    return vzipq_u32(vreinterpretq_u32_u8(vld1q_u8(words)), vreinterpretq_u32_u8(vld1q_u8(words + 64)));
}

/* The nibbles of four rows of one block of Q4_0 or Q4_1, or of Q4_K; there the low or the high ones, another block has
   the others. */
SPECDEC__INLINE void specdec__neon_take_codes(int type, const unsigned char *nibbles, int high,
                                              specdec__neon_rows *rows)
{
    const int is_k = type == SPECDEC__TYPE_Q4_K;
    int i, h;

    SPECDEC__UNROLL
    for (i = 0; i < 4; i++) {
        uint32x4x2_t pairs;

        if (!is_k && i > 1)
            return;
        pairs = specdec__neon_row_pairs(nibbles + i * 128);
        SPECDEC__UNROLL
        for (h = 0; h < 2; h++) {
            const uint8x16_t both = vreinterpretq_u8_u32(pairs.val[h]);

            rows->codes[i][h] = is_k && high ? specdec__neon_high_nibbles(both) : specdec__neon_low_nibbles(both);
            if (!is_k)
                rows->codes[(i + 2) & 3][h] = specdec__neon_high_nibbles(both);
        }
    }
}

/* Rows `row` to `row` + 3 of block b; tile: of Q4_K 512 bytes further on for each two blocks; scales, way (0 or 1, b's
   lowest bit): of Q4_K. */
SPECDEC__INLINE void specdec__neon_take(int type, const unsigned char *tile, int b, int way, int row,
                                        const specdec__neon_scales *scales, specdec__neon_rows *rows)
{
    const size_t at = type == SPECDEC__TYPE_Q4_0   ? SPECDEC__TILE_AT(q4_0, nibbles)
                      : type == SPECDEC__TYPE_Q4_1 ? SPECDEC__TILE_AT(q4_1, nibbles)
                                                   : SPECDEC__TILE_AT(q4_k, nibbles);
    int8x16_t sum[2];
    int h;

    specdec__neon_take_codes(type, tile + at + row * 4, way, rows);
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

/* Sums of two rows: eight lanes of 4 products each. */
SPECDEC__INLINE int16x8_t specdec__neon_two_rows(const specdec__neon_rows *rows, int h, const int8x16_t *v)
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

/* acc (column) += four rows times block b of columns. Sums of 16 products fit into 16 bits: 16 * 15 * 128. */
SPECDEC__INLINE void specdec__neon_add_rows(int type, const specdec__neon_rows *rows, const specdec__neon_x *x, int b,
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
        sum = vpadalq_s16(sum, vpaddq_s16(specdec__neon_two_rows(rows, 0, v), specdec__neon_two_rows(rows, 1, v)));
        exact = vfmaq_n_f32(vreinterpretq_f32_s32(sum), rows->pair, x->offset[b][c]);
        exact = vsubq_f32(exact, vdupq_n_f32(SPECDEC__DOTPROD_START));
        acc[c] = vfmaq_f32(acc[c], vmulq_n_f32(rows->scale, x->scale[b][c]), exact);
        if (specdec__dotprod_has_minimum(type))
            acc[c] = vfmaq_n_f32(acc[c], rows->minimum, x->total[b][c]);
    }
}

/* sums (column, 16) += up to 8 blocks of a tile times 1, 2 or 4 columns. */
SPECDEC__INLINE void specdec__neon_tile(int type, const unsigned char *tile, int blocks, const specdec__neon_x *x,
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

                    specdec__neon_take(type, from, b + way, way, row + i * 4, scales, &rows);
                    specdec__neon_add_rows(type, &rows, x, b + way, columns, acc[i]);
                    SPECDEC__NEON_LOAD(from); /* rows after rows, for which registers are enough */
                }
            from += ways == 2 ? 512 : specdec__dotprod_span(type);
        }
        SPECDEC__UNROLL
        for (i = 0; i < quads; i++)
            SPECDEC__UNROLL
            for (c = 0; c < columns; c++)
                vst1q_f32(sums + c * SPECDEC__ROWS + row + i * 4, acc[i][c]);
    }
}

/* One or two tiles of up to 8 blocks times 4, 2 or 1 columns from c on. */
SPECDEC__INLINE void specdec__neon_tiles(int type, const unsigned char *const *tile, int blocks,
                                         const specdec__neon_scales *scales, const specdec__columns *x, size_t at,
                                         int columns, int c, float *const *sums)
{
    specdec__neon_x ready;
    int t;

    specdec__neon_prepare(type, x, at + (size_t)c, columns, blocks, &ready);
    for (t = 0; t < 2 && tile[t]; t++)
        specdec__neon_tile(type, tile[t], blocks, &ready, scales + t, columns, sums[t] + c * SPECDEC__ROWS);
}

/* See specdec__multiply_function. unpack: for more columns than 8, NULL to do without panels always. */
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

        run = specdec__min_int(SPECDEC__PANEL / 32, blocks - from);
        for (t = 0; t < 2 && tile[t]; t++) {
            if (unpack && count > 8) {
                unpack(tiles->type, tile[t], run, panel);
                specdec__neon_dot_32m(panel, run, x, block + from, column, count, sums[t]);
                tile[t] += (size_t)run * specdec__dotprod_span(type);
                continue;
            }
            specdec__neon_prefetch(tiles->type, tile[t], run);
            if (type == SPECDEC__TYPE_Q4_K)
                specdec__neon_scales_k(tile[t], scales[t].scale, scales[t].minimum);
        }
        if (unpack && count > 8)
            continue;
        for (c = 0; c + 4 <= count; c += 4)
            specdec__neon_tiles(type, tile, run, scales, x, at, 4, c, sums);
        if (count & 2)
            specdec__neon_tiles(type, tile, run, scales, x, at, 2, count & ~3, sums);
        if (count & 1)
            specdec__neon_tiles(type, tile, run, scales, x, at, 1, count - 1, sums);
        for (t = 0; t < 2 && tile[t]; t++)
            tile[t] += (size_t)run * specdec__dotprod_span(type);
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
