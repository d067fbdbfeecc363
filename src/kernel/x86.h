/* =====================================================================================================================
 * >>kernel/x86: facts of types, prefetches and random bits that the instruction sets of x86-64 share.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "../quant/types.h"
#include "../quant/planes.h"
#include "kernel.h"
#include "scalar.h"
#include "weigh.h"

#if defined(__x86_64__) && !defined(SPECDEC_NO_SIMD)
/* Without optimisation gcc's intrinsics are macros, whose conversions of masks would count as ours. */
#if defined(__GNUC__) && !defined(__clang__) && !defined(__OPTIMIZE__)
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#endif

/* The target attributes of functions for AVX2 and AVX-512; SPECDEC__AVXVNNI where the compiler's assembler knows
   AVX-VNNI; and the linkage of the functions that fill tables, which other files may call. */
#define SPECDEC__AVX2 __attribute__((target("avx2,fma,f16c"))) SPECDEC__UNSANITIZED
#if (defined(__clang__) && __clang_major__ >= 12) || (!defined(__clang__) && __GNUC__ >= 11)
#define SPECDEC__AVXVNNI
#endif
#define SPECDEC__AVX512 \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c"))) SPECDEC__UNSANITIZED
#if defined(SPECDEC_KERNELS) || defined(SPECDEC_KERNELS_APART)
#define SPECDEC__KERNELS_LINKAGE SPECDEC__OS_HIDDEN
#else
#define SPECDEC__KERNELS_LINKAGE static
#endif

/* Makes the compiler load a vector once and keep it, instead of loading it for every use. */
#define SPECDEC__KEEP_IN_REGISTER(vector) __asm__("" : "+v"(vector))

/* Panels count as types of their own, by granule and minimum (M); SIGNED: codes that were not made unsigned. So do the
   planes of Q8_0, where tiles[] points to the upper plane. */
enum {
    SPECDEC__X86_PLANE = SPECDEC__TYPE_COUNT, SPECDEC__X86_PLANES, /* the upper plane; both planes */
    SPECDEC__X86_PANEL_32, SPECDEC__X86_PANEL_32M, SPECDEC__X86_PANEL_16, SPECDEC__X86_PANEL_16M,
    SPECDEC__X86_PANEL_32_SIGNED, SPECDEC__X86_PANEL_16_SIGNED
};

/* Each type, and each kind of panel, has machine code of its own. The facts that this code depends on are constants
   from the type's row, kept in masks with a bit for each type and kind of panel. Masks compile faster than switches. */
#define SPECDEC__X86_MASK(condition, number) | (uint64_t)((condition) != 0) << (number)
#define SPECDEC__X86_BIT_0(number, name, block, bytes, granule, bits, ...) SPECDEC__X86_MASK((bits) & 1, number)
#define SPECDEC__X86_BIT_1(number, name, block, bytes, granule, bits, ...) SPECDEC__X86_MASK((bits) & 2, number)
#define SPECDEC__X86_BIT_2(number, name, block, bytes, granule, bits, ...) SPECDEC__X86_MASK((bits) & 4, number)
#define SPECDEC__X86_BIT_3(number, name, block, bytes, granule, bits, ...) SPECDEC__X86_MASK((bits) & 8, number)
#define SPECDEC__X86_IS_SHORT(number, name, block, ...) SPECDEC__X86_MASK((block) > 1 && (block) < 256, number)
#define SPECDEC__X86_PARTS(number, name, block, ...) case number: return (block) / 32;
#define SPECDEC__X86_BYTES(number, name, block, bytes, ...) case number: return (bytes) * SPECDEC__ROWS * 32 / (block);
#define SPECDEC__X86_IS_16(number, name, block, bytes, granule, ...) SPECDEC__X86_MASK((granule) == 16, number)
#define SPECDEC__X86_MINIMUM(number, name, block, bytes, granule, bits, minimum, ...) SPECDEC__X86_MASK(minimum, number)
#define SPECDEC__X86_EITHER_PLANE (UINT64_C(3) << SPECDEC__X86_PLANE)
#define SPECDEC__X86_PANEL(number) (UINT64_C(1) << SPECDEC__X86_PANEL_##number)

/* Returns whether a type has minimums besides scales. */
SPECDEC__INLINE int specdec__x86_has_minimum(int type)
{
    const uint64_t panels = SPECDEC__X86_PANEL(32M) | SPECDEC__X86_PANEL(16M);
    const uint64_t mask = panels SPECDEC__QUANT_TYPES(SPECDEC__X86_MINIMUM);

    return (int)(mask >> type & 1);
}

/* Returns the bits of a type's codes: 5 in panels of unsigned codes, 8 in panels of signed codes. */
SPECDEC__INLINE int specdec__x86_bits_per_code(int type)
{
    const uint64_t fives = SPECDEC__X86_PANEL(32) | SPECDEC__X86_PANEL(32M) | SPECDEC__X86_PANEL(16) |
                           SPECDEC__X86_PANEL(16M);
    const uint64_t eights = SPECDEC__X86_PANEL(32_SIGNED) | SPECDEC__X86_PANEL(16_SIGNED) |
                            SPECDEC__X86_EITHER_PLANE;
    const uint64_t mask0 = fives SPECDEC__QUANT_TYPES(SPECDEC__X86_BIT_0);
    const uint64_t mask1 = 0 SPECDEC__QUANT_TYPES(SPECDEC__X86_BIT_1);
    const uint64_t mask2 = fives SPECDEC__QUANT_TYPES(SPECDEC__X86_BIT_2);
    const uint64_t mask3 = eights SPECDEC__QUANT_TYPES(SPECDEC__X86_BIT_3);

    return (int)((mask0 >> type & 1) | (mask1 >> type & 1) << 1 | (mask2 >> type & 1) << 2 | (mask3 >> type & 1) << 3);
}

/* Returns the number that is added to a type's codes to make them unsigned. */
SPECDEC__INLINE int specdec__x86_bias(int type)
{
    return specdec__quant_bias(specdec__x86_bits_per_code(type), specdec__x86_has_minimum(type));
}
/* Returns the largest unsigned code of a type. */
SPECDEC__INLINE int specdec__x86_highest_code(int type) { return (1 << specdec__x86_bits_per_code(type)) - 1; }

/* Returns the bytes of 32 values of 16 rows in a tile: a block of 32 values, or a part of a longer block. */
SPECDEC__INLINE int specdec__x86_block_bytes(int type)
{
    switch (type) {
    SPECDEC__QUANT_TYPES(SPECDEC__X86_BYTES)
    case SPECDEC__X86_PLANE: case SPECDEC__X86_PLANES: return SPECDEC__PLANE_UPPER;
    default: return 0;
    }
}

/* Returns whether a block of a type has a single scale, not one with factors: types of fewer than 256 values, and
   TQ2_0. */
SPECDEC__INLINE int specdec__x86_has_scale_without_factors(int type)
{
    const uint64_t own = UINT64_C(1) << SPECDEC__TYPE_TQ2_0 | SPECDEC__X86_EITHER_PLANE;
    const uint64_t mask = own SPECDEC__QUANT_TYPES(SPECDEC__X86_IS_SHORT);

    return (int)(mask >> type & 1);
}

/* Returns the number of groups of 32 values in a block of a type. */
SPECDEC__INLINE int specdec__x86_groups_per_file_block(int type)
{
    switch (type) {
    SPECDEC__QUANT_TYPES(SPECDEC__X86_PARTS)
    default: return 1;
    }
}

/* Returns the address of the block in the file's sense that holds 32 values (number `block` of a tile). Types with
   factors of scales have one block of 256 values, at `tile`. */
SPECDEC__INLINE const unsigned char *specdec__x86_find_file_block(int type, const unsigned char *tile, int block)
{
    const int parts = specdec__x86_groups_per_file_block(type),
              whole = specdec__x86_has_scale_without_factors(type) ? block / parts : 0;

    return tile + (size_t)whole * (size_t)(specdec__x86_block_bytes(type) * parts);
}
/* Returns the index of the tile's 32 values number `block` among the groups of 32 values of their block in the file's
   sense. */
SPECDEC__INLINE int specdec__x86_group_in_file_block(int type, int block)
{
    return specdec__x86_has_scale_without_factors(type) ? block % specdec__x86_groups_per_file_block(type) : block;
}

/* Returns the number of values of a type that share a scale. */
SPECDEC__INLINE int specdec__x86_values_per_scale(int type)
{
    const uint64_t panels = SPECDEC__X86_PANEL(16) | SPECDEC__X86_PANEL(16M) | SPECDEC__X86_PANEL(16_SIGNED);
    const uint64_t mask = panels SPECDEC__QUANT_TYPES(SPECDEC__X86_IS_16);

    return mask >> type & 1 ? 16 : 32;
}

/* Unpacks 32 values of a type: cases for a switch, each with the offset of the codes in a tile and the function that
   unpacks them. own, part: from specdec__x86_find_file_block and specdec__x86_group_in_file_block, from the first row
   of a vector on. */
#define SPECDEC__X86_CODES(isa, own, part, u) \
    case SPECDEC__TYPE_Q4_0: specdec__##isa##_unpack_nibbles((own) + SPECDEC__TILE_AT(q4_0, nibbles), NULL, u); break; \
    case SPECDEC__TYPE_Q4_1: specdec__##isa##_unpack_nibbles((own) + SPECDEC__TILE_AT(q4_1, nibbles), NULL, u); break; \
    case SPECDEC__TYPE_Q5_0: \
        specdec__##isa##_unpack_nibbles((own) + SPECDEC__TILE_AT(q5_0, nibbles), (own) + SPECDEC__TILE_AT(q5_0, high), \
                                        u); \
        break; \
    case SPECDEC__TYPE_Q5_1: \
        specdec__##isa##_unpack_nibbles((own) + SPECDEC__TILE_AT(q5_1, nibbles), (own) + SPECDEC__TILE_AT(q5_1, high), \
                                        u); \
        break; \
    case SPECDEC__TYPE_IQ4_NL: \
        specdec__##isa##_unpack_nibbles((own) + SPECDEC__TILE_AT(iq4_nl, nibbles), NULL, u); \
        specdec__##isa##_iq4_values(u); \
        break; \
    case SPECDEC__TYPE_IQ4_XS: \
        specdec__##isa##_unpack_nibbles((own) + SPECDEC__TILE_AT(iq4_xs, nibbles) + (part)*256, NULL, u); \
        specdec__##isa##_iq4_values(u); \
        break; \
    case SPECDEC__TYPE_MXFP4: \
        specdec__##isa##_unpack_nibbles((own) + SPECDEC__TILE_AT(mxfp4, nibbles), NULL, u); \
        specdec__##isa##_fp4_values(u); \
        break; \
    case SPECDEC__TYPE_NVFP4: \
        specdec__##isa##_unpack_nvfp4((own) + SPECDEC__TILE_AT(nvfp4, nibbles) + (part)*256, u); \
        specdec__##isa##_fp4_values(u); \
        break; \
    case SPECDEC__TYPE_Q1_0: specdec__##isa##_unpack_q1_0((own) + SPECDEC__TILE_AT(q1_0, bits) + (part)*64, u); break; \
    case SPECDEC__TYPE_Q2_0: \
        specdec__##isa##_unpack_q2_0((own) + SPECDEC__TILE_AT(q2_0, two_bits) + (part)*128, u); \
        break; \
    case SPECDEC__TYPE_TQ2_0: \
        specdec__##isa##_unpack_two_bits((own) + SPECDEC__TILE_AT(tq2_0, two_bits), NULL, part, u); \
        break; \
    case SPECDEC__TYPE_Q2_K: \
        specdec__##isa##_unpack_two_bits((own) + SPECDEC__TILE_AT(q2_k, two_bits), NULL, part, u); \
        break; \
    case SPECDEC__TYPE_Q3_K: \
        specdec__##isa##_unpack_two_bits((own) + SPECDEC__TILE_AT(q3_k, two_bits), \
                                         (own) + SPECDEC__TILE_AT(q3_k, high), part, u); \
        break; \
    case SPECDEC__TYPE_Q4_K: \
        specdec__##isa##_unpack_q4_q5_k((own) + SPECDEC__TILE_AT(q4_k, nibbles), NULL, part, u); \
        break; \
    case SPECDEC__TYPE_Q5_K: \
        specdec__##isa##_unpack_q4_q5_k((own) + SPECDEC__TILE_AT(q5_k, nibbles), (own) + SPECDEC__TILE_AT(q5_k, high), \
                                        part, u); \
        break; \
    case SPECDEC__TYPE_Q6_K: specdec__##isa##_unpack_q6_k(own, part, u); break;

/* Types by how they are multiplied. Common types and, in less machine code, rare types each have a kernel for AVX-512;
   types with a grid are unpacked into panels. AVX2 unpacks a block at a time, except for one or two columns of common
   types. */
#define SPECDEC__X86_COMMON_TYPES(X, isa) X(isa, Q4_0) X(isa, Q8_0) X(isa, Q4_K) X(isa, Q6_K)
#define SPECDEC__X86_RARE_TYPES(X, isa) \
    X(isa, Q4_1) X(isa, Q5_0) X(isa, Q5_1) X(isa, Q2_K) X(isa, Q3_K) X(isa, Q5_K) X(isa, IQ4_NL) X(isa, IQ4_XS) \
    X(isa, MXFP4) X(isa, NVFP4) X(isa, Q1_0) X(isa, Q2_0) X(isa, TQ2_0)
#define SPECDEC__X86_GRID_TYPES(X, isa) X(isa, IQ2_XXS) X(isa, IQ2_XS) X(isa, IQ2_S) X(isa, IQ3_XXS) X(isa, IQ3_S)
/* Types that only their decoders unpack. */
#define SPECDEC__X86_DECODED_TYPES(X, isa) X(isa, IQ1_S) X(isa, IQ1_M) X(isa, TQ1_0)

#define SPECDEC__X86_TYPE_BIT(isa, number) | UINT64_C(1) << SPECDEC__TYPE_##number

/* Returns whether a type is one of SPECDEC__X86_RARE_TYPES. */
SPECDEC__INLINE int specdec__x86_is_rare_type(int type)
{
    const uint64_t mask = 0 SPECDEC__X86_RARE_TYPES(SPECDEC__X86_TYPE_BIT, );

    return (int)(mask >> type & 1);
}

/* Returns the address SPECDEC__PREFETCH_BYTES ahead of byte `at` of a tile; past the tile's end, the address in `next`.
   */
SPECDEC__INLINE const char *specdec__x86_prefetch_address(const unsigned char *tile, size_t at, size_t end,
                                                          const unsigned char *next)
{
    return (const char *)(at + SPECDEC__PREFETCH_BYTES < end ? tile + at : next + at - end) + SPECDEC__PREFETCH_BYTES;
}

/* Prefetches `bytes` bytes into the first-level cache. */
SPECDEC__INLINE void specdec__x86_prefetch_bytes(int bytes, const char *from)
{
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < bytes; i += 64)
        _mm_prefetch(from + i, _MM_HINT_T0);
}

/* Returns the offset of a block's scale d in a tile; dmin follows it. */
SPECDEC__INLINE size_t specdec__x86_offset_of_d(int type)
{
    switch (type) {
    case SPECDEC__TYPE_Q2_K: return SPECDEC__TILE_AT(q2_k, d);
    case SPECDEC__TYPE_Q3_K: return SPECDEC__TILE_AT(q3_k, d);
    case SPECDEC__TYPE_Q6_K: return SPECDEC__TILE_AT(q6_k, d);
    case SPECDEC__TYPE_TQ2_0: return SPECDEC__TILE_AT(tq2_0, d);
    default: return 0;
    }
}

/* Prefetches `bytes` bytes, SPECDEC__PREFETCH_BYTES ahead of byte `at` of a tile. */
SPECDEC__INLINE void specdec__x86_prefetch_ahead(int bytes, const unsigned char *tile, size_t at, size_t end,
                                                 const unsigned char *next)
{
    specdec__x86_prefetch_bytes(bytes, specdec__x86_prefetch_address(tile, at, end, next));
}

/* Some columns of activations, from a block on. codes (column, 8): 4 codes in each word; pairs and totals (column,
   granules of a block); scales (column). */
typedef struct specdec__x86_columns {
    const int32_t *codes, *pairs; /* four codes in each word; offset and sum of codes of each granule */
    const float *scales, *totals; /* scales; scale * sum of (code + offset) of each granule */
} specdec__x86_columns;

/* Returns the columns from index `at` (block, column) of x on. per: granules of a block. */
SPECDEC__INLINE specdec__x86_columns specdec__x86_columns_of_block(const specdec__columns *x, size_t at, int per)
{
    specdec__x86_columns from;

    from.codes = (const int32_t *)(const void *)(x->codes + at * 32);
    from.pairs = (per == 1 ? x->pair32 : x->pair16) + at * (size_t)per;
    from.totals = (per == 1 ? x->sum32 : x->sum16) + at * (size_t)per;
    from.scales = x->scale + at;
    __asm__("" : "+r"(from.codes), "+r"(from.pairs), "+r"(from.scales)); /* one address for each array */
    return from;
}

/* --- random bits: see specdec__scalar_compute_noise_bits ---------------------------------------------------------- */

/* Returns x times a 64-bit constant in each 64-bit lane, from products of 32-bit halves, as AVX2 has no wider ones. */
SPECDEC__AVX2 SPECDEC__INLINE __m256i specdec__avx2_multiply_u64(__m256i x, uint64_t constant)
{
    const __m256i low = _mm256_set1_epi64x((long long)(constant & 0xffffffffu));
    const __m256i swapped = _mm256_set1_epi64x((long long)(constant >> 32 | constant << 32));
    const __m256i crossed = _mm256_mullo_epi32(x, swapped); /* their sum is the upper half */

    return _mm256_add_epi64(_mm256_mul_epu32(x, low),
                            _mm256_slli_epi64(_mm256_add_epi32(crossed, _mm256_srli_epi64(crossed, 32)), 32));
}

/* Returns specdec__mix_bits in 64-bit lanes, without its last step. */
SPECDEC__AVX2 SPECDEC__INLINE __m256i specdec__avx2_mix_bits(__m256i x)
{
    x = specdec__avx2_multiply_u64(_mm256_xor_si256(x, _mm256_srli_epi64(x, 30)), 0xbf58476d1ce4e5b9u);
    return specdec__avx2_multiply_u64(_mm256_xor_si256(x, _mm256_srli_epi64(x, 27)), 0x94d049bb133111ebu);
}

/* Computes bits (64) = the upper 32 random bits of 64 neighbouring tokens: see specdec__scalar_compute_noise_bits. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_compute_noise_bits(uint64_t first, uint32_t *bits)
{
    const uint64_t step = SPECDEC__NOISE_TOKEN_STEP;
    const __m256i eight = _mm256_set1_epi64x((long long)(8 * step)), from = _mm256_set1_epi64x((long long)first);
    const __m256i places = _mm256_set_epi64x((long long)(5 * step), (long long)(4 * step), (long long)step, 0);
    __m256i a = _mm256_add_epi64(from, places);
    __m256i b = _mm256_add_epi64(a, _mm256_set1_epi64x((long long)(2 * step))), high;
    int i;

    for (i = 0; i < 64; i += 8) { /* upper 32 bits of tokens 0, 1, 4, 5 and 2, 3, 6, 7 */
        high = _mm256_castps_si256(_mm256_shuffle_ps(_mm256_castsi256_ps(specdec__avx2_mix_bits(a)),
                                                     _mm256_castsi256_ps(specdec__avx2_mix_bits(b)), 0xDD));
        high = _mm256_xor_si256(high, _mm256_srli_epi32(high, 31));
        _mm256_storeu_si256((__m256i *)(void *)(bits + i), high);
        a = _mm256_add_epi64(a, eight);
        b = _mm256_add_epi64(b, eight);
    }
}

/* Returns specdec__mix_bits in 64-bit lanes, without its last step. */
SPECDEC__AVX512 SPECDEC__INLINE __m512i specdec__avx512_mix_bits(__m512i x)
{
    x = _mm512_xor_si512(x, _mm512_srli_epi64(x, 30));
    x = _mm512_mullo_epi64(x, _mm512_set1_epi64((long long)0xbf58476d1ce4e5b9u));
    x = _mm512_xor_si512(x, _mm512_srli_epi64(x, 27));
    return _mm512_mullo_epi64(x, _mm512_set1_epi64((long long)0x94d049bb133111ebu));
}

/* Computes bits (64) = the upper 32 random bits of 64 neighbouring tokens: see specdec__scalar_compute_noise_bits. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_compute_noise_bits(uint64_t first, uint32_t *bits)
{
    const __m512i step = _mm512_set1_epi64((long long)SPECDEC__NOISE_TOKEN_STEP);
    const __m512i upper = _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    const __m512i places = _mm512_mullo_epi64(step, _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0));
    __m512i a = _mm512_add_epi64(_mm512_set1_epi64((long long)first), places), b, high;
    int i;

    for (i = 0; i < 64; i += 16) {
        b = _mm512_add_epi64(a, _mm512_slli_epi64(step, 3));
        high = _mm512_permutex2var_epi32(specdec__avx512_mix_bits(a), upper, specdec__avx512_mix_bits(b));
        high = _mm512_xor_si512(high, _mm512_srli_epi32(high, 31));
        _mm512_storeu_si512(bits + i, high);
        a = _mm512_add_epi64(b, _mm512_slli_epi64(step, 3));
    }
}
#endif /* x86_64 */
