/* =====================================================================================================================
 * >>kernel/neon: 64-bit NEON: compiler facts, vector operations, attention over 8-bit values.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../quant/types.h"
#include "../quant/table.h"
#include "kernel.h"
#include "scalar.h"
#include "weigh.h"

#if defined(__aarch64__) && defined(__ARM_NEON) && defined(__AARCH64EL__) && !defined(SPECDEC_NO_SIMD)
#define SPECDEC__NEON

/* Target attributes. Functions with them call only one another, intrinsics, and functions of the base. Older clangs (14
   is one) have these intrinsics only if the command line asks for them, so for clang the instructions are written in
   assembly. */
#if defined(__clang__)
#define SPECDEC__DOTPROD __attribute__((target("dotprod")))
#define SPECDEC__I8MM __attribute__((target("i8mm")))
#define SPECDEC__SDOT SPECDEC__SDOT_IN_PLACE
#define SPECDEC__UDOT(sum, w, x, lane) __asm__("udot %0.4s, %1.16b, %2.4b[" #lane "]" : "+w"(sum) : "w"(w), "w"(x))
#define SPECDEC__NEON_COMPILER_BARRIER ((void)0)
#define SPECDEC__NEON_KEEPS_LOADS 0 /* 1: the compiler must be told to load a constant again */
#else
/* Each target repeats what the command line enables, as gcc inlines no function whose target has a feature that the
   caller's lacks. A command line that may be older than ARMv8.2 needs a whole architecture, for gcc's intrinsics and
   for the assembler, and each extension by name. The extensions of OTHERS have no macro, and do not change the compiled
   code. */
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
/* 1: gcc keeps loaded values and moves them between registers, in spite of SPECDEC__NEON_HIDE_ADDRESS. */
#define SPECDEC__NEON_KEEPS_LOADS 1
/* Keeps gcc from mixing the instructions before and after this point, for which it has too few registers. */
#define SPECDEC__NEON_COMPILER_BARRIER __asm__ volatile("")
#endif
/* sdot in assembly, for code where gcc would copy the sums that its intrinsic overwrites. */
#define SPECDEC__SDOT_IN_PLACE(sum, w, x, lane) \
    __asm__("sdot %0.4s, %1.16b, %2.4b[" #lane "]" : "+w"(sum) : "w"(w), "w"(x))
/* smmla in assembly: gcc's intrinsic requires a whole architecture, which prevents inlining of base functions. */
#define SPECDEC__SMMLA(sum, w, x) __asm__("smmla %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(w), "w"(x))

/* Hides the origin of an address from the compiler, so that it loads data again instead of keeping them in too few
   registers. SPECDEC__NEON_RELOAD does so even if the compiler has seen the same address here. */
#define SPECDEC__NEON_HIDE_ADDRESS(pointer) __asm__("" : "+r"(pointer))
#define SPECDEC__NEON_RELOAD(pointer) __asm__ volatile("" : "+r"(pointer))
/* Loads a vector of 16 bytes again for each value of `place` (a pointer) or `number`: for constants that an instruction
   overwrites, as a load costs less than a move between registers. */
typedef uint8x16_t __attribute__((may_alias)) specdec__neon_any;
#define SPECDEC__NEON_LOAD_CONSTANT(vector, from, place, number) \
    __asm__("ldr %q0, %1" : "=w"(vector) : "m"(*(const specdec__neon_any *)(from)), "m"(*(place)), "X"(number))

/* Copies the bits of `from` into a vector where mask has ones: clang would use three instructions. */
#define SPECDEC__NEON_INSERT_BITS(vector, from, mask) \
    __asm__("bit %0.16b, %1.16b, %2.16b" : "+w"(vector) : "w"(from), "w"(mask))

/* The vector of NEON: sixteen float lanes. */
typedef struct specdec__neon_v {
    float32x4_t a, b, c, d; /* lanes 0 to 3, 4 to 7, 8 to 11, 12 to 15 */
} specdec__neon_v;

/* Defines an operation of SPECDEC__LANE_OPERATIONS by an expression for each four lanes. */
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

/* Returns x > y ? x : y in each lane; NEON's own maximum treats NaNs and zeros differently. */
SPECDEC__INLINE float32x4_t specdec__neon_max4(float32x4_t x, float32x4_t y)
{
    return vbslq_f32(vcgtq_f32(x, y), x, y);
}

/* Returns x < y ? x : y in each lane. */
SPECDEC__INLINE float32x4_t specdec__neon_min4(float32x4_t x, float32x4_t y)
{
    return vbslq_f32(vcltq_f32(x, y), x, y);
}

/* Returns x * 2^n in each lane, where shifter is n + 1.5 * 2^23. */
SPECDEC__INLINE float32x4_t specdec__neon_four_times_power_of_2(float32x4_t x, float32x4_t shifter)
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
#define SPECDEC__NEON_EACH(part) specdec__neon_four_times_power_of_2(x.part, shifter.part)
SPECDEC__NEON_LANES(times_power_of_2, (specdec__neon_v x, specdec__neon_v shifter), SPECDEC__NEON_EACH)
#undef SPECDEC__NEON_EACH

/* Functions for further operations of SPECDEC__LANE_OPERATIONS. */
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

/* Returns the sum of 16 lanes by the canonical tree. */
SPECDEC__INLINE float specdec__neon_sum(const specdec__neon_v *parts)
{
    const specdec__neon_v x = parts[0];
    float32x4_t four = vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d));
    float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));

    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

/* Returns the largest of 16 lanes. */
SPECDEC__INLINE float specdec__neon_largest_lane(const specdec__neon_v *parts)
{
    const specdec__neon_v x = parts[0];
    float32x4_t four = specdec__neon_max4(specdec__neon_max4(x.a, x.c), specdec__neon_max4(x.b, x.d));
    float32x2_t low = vget_low_f32(four), high = vget_high_f32(four), two = vbsl_f32(vcgt_f32(low, high), low, high);
    float first = vget_lane_f32(two, 0), second = vget_lane_f32(two, 1);

    return first > second ? first : second;
}

SPECDEC__HIGHEST4(neon, , 1)

SPECDEC__INLINE int32_t specdec__neon_sum_codes(const int8_t *codes) { return vaddlvq_s8(vld1q_s8(codes)); }
#define specdec__neon_compute_noise_bits specdec__scalar_compute_noise_bits

SPECDEC__INLINE int32_t specdec__neon_bits_of_lane_0(specdec__neon_v x)
{
    return vgetq_lane_s32(vreinterpretq_s32_f32(x.a), 0);
}

/* Converts four half floats to floats. */
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

/* Converts four bfloat16 to floats. */
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

/* Returns 16 signed bytes plus 128, as unsigned bytes. */
SPECDEC__INLINE uint8x16_t specdec__neon_add_128_to_bytes(const int8_t *values)
{
    return veorq_u8(vreinterpretq_u8_s8(vld1q_s8(values)), vdupq_n_u8(128));
}

/* Returns where the sum of codes (64) times (values + 128) must start: minus 128 times the sum of the codes. */
SPECDEC__INLINE uint32_t specdec__neon_value_sum_start(const uint8_t *codes)
{
    const uint16x8_t low = vpaddlq_u8(vld1q_u8(codes)), high = vpaddlq_u8(vld1q_u8(codes + 16));
    const uint16x8_t sums = vpadalq_u8(vpadalq_u8(vaddq_u16(low, high), vld1q_u8(codes + 32)), vld1q_u8(codes + 48));

    return 0u - 128u * vaddlvq_u16(sums);
}

/* Converts four times four integers to floats. */
SPECDEC__INLINE specdec__neon_v specdec__neon_integers_to_floats(const uint32x4_t *x)
{
    specdec__neon_v r;

    r.a = vcvtq_f32_s32(vreinterpretq_s32_u32(x[0]));
    r.b = vcvtq_f32_s32(vreinterpretq_s32_u32(x[1]));
    r.c = vcvtq_f32_s32(vreinterpretq_s32_u32(x[2]));
    r.d = vcvtq_f32_s32(vreinterpretq_s32_u32(x[3]));
    return r;
}

/* Computes the sums over keys of codes times 8-bit values, for 16 dimensions and two queries: value_sums of
   SPECDEC__WEIGH_CODES. */
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
        specdec__weigh_prefetch_page_lines(next, key * SPECDEC__ROWS);
        SPECDEC__UNROLL
        for (i = 0; i < 4; i++) {
            const uint8x16_t value = specdec__neon_add_128_to_bytes(values + key * SPECDEC__ROWS + i * 16);

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
        start = vdupq_n_u32(specdec__neon_value_sum_start(codes + c * SPECDEC__KEYS));
        SPECDEC__UNROLL
        for (i = 0; i < 4; i++)
            low[c][i] = vaddq_u32(vpaddq_u32(low[c][i], high[c][i]), start);
        sums[c] = specdec__neon_integers_to_floats(low[c]);
    }
}

SPECDEC__WEIGH_CODES(neon, neon, , 1, 2, SPECDEC__UNROLL)

/* Adds the products of a tile and four columns over the keys of a lane: 4 of 16. */
#define SPECDEC__DOTPROD_ADD_VALUES(lane) \
    do { \
        specdec__weigh_prefetch_page_lines(next, (key + 4 * (lane)) * SPECDEC__ROWS); \
        SPECDEC__UNROLL \
        for (i = 0; i < 4; i++) \
            value[i] = specdec__neon_add_128_to_bytes(values + (key + 4 * (lane)) * SPECDEC__ROWS + i * 16); \
        SPECDEC__UNROLL \
        for (c = 0; c < 4; c++) \
            SPECDEC__UNROLL \
            for (i = 0; i < 4; i++) \
                SPECDEC__UDOT(acc[c][i], value[i], code[c], lane); \
    } while (0)

/* Computes the sums over keys of codes times 8-bit values, for 16 dimensions and four queries, with dot products:
   value_sums of SPECDEC__WEIGH_CODES. */
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
            acc[c][i] = vdupq_n_u32(specdec__neon_value_sum_start(codes + c * SPECDEC__KEYS));
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
        sums[c] = specdec__neon_integers_to_floats(acc[c]);
}

SPECDEC__WEIGH_CODES(dotprod, neon, SPECDEC__DOTPROD, 1, 4, SPECDEC__UNROLL)

/* Exact integer sums start at the bits of this float, whose last place counts ones: the bits of a sum are then those of
   a float, and one subtraction gives the sum as a float. No sum reaches 2^22. */
#define SPECDEC__DOTPROD_START 12582912.0f /* 3 * 2^22 */
#define SPECDEC__DOTPROD_START_BITS 0x4B400000 /* the bits of SPECDEC__DOTPROD_START, as an integer */
#endif /* aarch64 */
