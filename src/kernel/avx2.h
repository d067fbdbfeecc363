/* =====================================================================================================================
 * >>kernel/avx2: AVX2 with FMA and F16C: vector operations, unpackers of all types.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../quant/types.h"
#include "kernel.h"
#include "scalar.h"
#include "weigh.h"
#include "x86.h"
#include "sse41.h"

#if defined(__x86_64__) && !defined(SPECDEC_NO_SIMD) && !defined(SPECDEC_KERNELS_APART)

/* The vector of AVX2: sixteen float lanes in two registers. */
typedef struct specdec__avx2_v {
    __m256 a, b; /* lanes 0 to 7, lanes 8 to 15 */
} specdec__avx2_v;

/* Defines an operation of SPECDEC__LANE_OPERATIONS by expressions for the low and the high 8 lanes. */
#define SPECDEC__AVX2_LANES(name, parameters, low, high) \
    SPECDEC__AVX2 SPECDEC__INLINE specdec__avx2_v specdec__avx2_##name parameters \
    { \
        specdec__avx2_v r; \
        r.a = low; \
        r.b = high; \
        return r; \
    }

SPECDEC__AVX2_LANES(load, (const float *at), _mm256_loadu_ps(at), _mm256_loadu_ps(at + 8))
SPECDEC__AVX2_LANES(set, (float x), _mm256_set1_ps(x), _mm256_set1_ps(x))
SPECDEC__AVX2_LANES(add, (specdec__avx2_v x, specdec__avx2_v y), _mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b))
SPECDEC__AVX2_LANES(sub, (specdec__avx2_v x, specdec__avx2_v y), _mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b))
SPECDEC__AVX2_LANES(mul, (specdec__avx2_v x, specdec__avx2_v y), _mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b))
SPECDEC__AVX2_LANES(div, (specdec__avx2_v x, specdec__avx2_v y), _mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b))
SPECDEC__AVX2_LANES(max, (specdec__avx2_v x, specdec__avx2_v y), _mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b))
SPECDEC__AVX2_LANES(min, (specdec__avx2_v x, specdec__avx2_v y), _mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b))
SPECDEC__AVX2_LANES(madd, (specdec__avx2_v x, specdec__avx2_v y, specdec__avx2_v z), _mm256_fmadd_ps(x.a, y.a, z.a),
                    _mm256_fmadd_ps(x.b, y.b, z.b))
SPECDEC__AVX2_LANES(load_f16, (const void *at), _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)at)),
                    _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)at + 1)))

/* Returns a * 2^n in eight lanes, where shifter is n + 1.5 * 2^23. */
SPECDEC__AVX2 SPECDEC__INLINE __m256 specdec__avx2_eight_times_power_of_2(__m256 a, __m256 shifter)
{
    return _mm256_castsi256_ps(
        _mm256_add_epi32(_mm256_castps_si256(a), _mm256_slli_epi32(_mm256_castps_si256(shifter), 23)));
}
SPECDEC__AVX2_LANES(times_power_of_2, (specdec__avx2_v x, specdec__avx2_v shifter),
                    specdec__avx2_eight_times_power_of_2(x.a, shifter.a),
                    specdec__avx2_eight_times_power_of_2(x.b, shifter.b))
/* Converts eight bfloat16 to floats. */
SPECDEC__AVX2 SPECDEC__INLINE __m256 specdec__avx2_from_bf16(const __m128i *at)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(at)), 16));
}
SPECDEC__AVX2_LANES(load_bf16, (const void *at), specdec__avx2_from_bf16((const __m128i *)at),
                    specdec__avx2_from_bf16((const __m128i *)at + 1))
/* Converts eight signed bytes to floats. */
SPECDEC__AVX2 SPECDEC__INLINE __m256 specdec__avx2_from_bytes(const int8_t *at)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)at)));
}
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_store(float *at, specdec__avx2_v x)
{
    _mm256_storeu_ps(at, x.a);
    _mm256_storeu_ps(at + 8, x.b);
}
/* Stores the low byte of the bits of each of 16 lanes. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_store_low_bytes(int8_t *at, specdec__avx2_v x)
{
    const __m256i byte = _mm256_set1_epi32(255);
    __m256i words = _mm256_packus_epi32(_mm256_and_si256(_mm256_castps_si256(x.a), byte),
                                        _mm256_and_si256(_mm256_castps_si256(x.b), byte));

    words = _mm256_permute4x64_epi64(words, 0xD8);
    _mm_storeu_si128((__m128i *)(void *)at,
                     _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}
/* Returns the sum of 16 lanes by the canonical tree. */
SPECDEC__AVX2 SPECDEC__INLINE float specdec__avx2_sum(const specdec__avx2_v *parts)
{
    const specdec__avx2_v x = parts[0];
    __m256 b = _mm256_add_ps(x.a, x.b);
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
/* Returns the largest of 16 lanes. */
SPECDEC__AVX2 SPECDEC__INLINE float specdec__avx2_largest_lane(const specdec__avx2_v *parts)
{
    const specdec__avx2_v x = parts[0];
    __m256 b = _mm256_max_ps(x.a, x.b);
    __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}
SPECDEC__HIGHEST4(avx2, SPECDEC__AVX2, 1)
/* Returns the sum of 16 codes. */
SPECDEC__AVX2 SPECDEC__INLINE int32_t specdec__avx2_sum_codes(const int8_t *codes)
{
    return specdec__sse41_sum_codes(codes);
}
/* Returns the bits of the float in lane 0. */
SPECDEC__AVX2 SPECDEC__INLINE int32_t specdec__avx2_bits_of_lane_0(specdec__avx2_v x)
{
    return _mm_cvtsi128_si32(_mm_castps_si128(_mm256_castps256_ps128(x.a)));
}
/* Stores 16 lanes as half floats. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_store_f16(void *at, specdec__avx2_v x)
{
    _mm_storeu_si128((__m128i *)at, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    _mm_storeu_si128((__m128i *)at + 1, _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

#define SPECDEC__ISA avx2
#define SPECDEC__TARGET SPECDEC__AVX2
#define SPECDEC__LANES 16 /* floats of the set's vector */
#define SPECDEC__WIDTH 1  /* vectors that a loop of key_scores and weigh_values keeps at a time */
#include SPECDEC__FILE

/* Computes the sums over keys of codes times 8-bit values, for 16 dimensions and two queries: value_sums of
   SPECDEC__WEIGH_CODES. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_value_sums(const int8_t *values, int keys, const uint8_t *codes,
                                                            const unsigned char *next, specdec__avx2_v *sums)
{
    __m256i acc[2][4], code[2];
    int key, c, i;

    SPECDEC__UNROLL
    for (c = 0; c < 2; c++)
        acc[c][0] = acc[c][1] = acc[c][2] = acc[c][3] = _mm256_setzero_si256();
    for (key = 0; key < keys; key += 4) {
        const __m128i *from = (const __m128i *)(const void *)(values + key * SPECDEC__ROWS);

        specdec__weigh_prefetch_page_lines(next, key * SPECDEC__ROWS);
        SPECDEC__UNROLL
        for (c = 0; c < 2; c++)
            code[c] = _mm256_cvtepu8_epi16(_mm_set1_epi32((int)specdec__load_u32(codes + c * SPECDEC__KEYS + key)));
        SPECDEC__UNROLL
        for (i = 0; i < 4; i++) {
            __m256i value = _mm256_cvtepi8_epi16(_mm_loadu_si128(from + i));

            SPECDEC__UNROLL
            for (c = 0; c < 2; c++)
                acc[c][i] = _mm256_add_epi32(acc[c][i], _mm256_madd_epi16(code[c], value));
        }
    }
    SPECDEC__UNROLL
    for (c = 0; c < 2; c++) { /* neighbouring lanes are parts of one sum */
        __m256i low = _mm256_hadd_epi32(acc[c][0], acc[c][1]), high = _mm256_hadd_epi32(acc[c][2], acc[c][3]);

        sums[c].a = _mm256_cvtepi32_ps(_mm256_permute4x64_epi64(low, 0xD8));
        sums[c].b = _mm256_cvtepi32_ps(_mm256_permute4x64_epi64(high, 0xD8));
    }
}

SPECDEC__WEIGH_CODES(avx2, avx2, SPECDEC__AVX2, 1, 2, SPECDEC__UNROLL)

/* Weight codes are unpacked in registers, of 8 rows at a time, and multiplied by all columns. The parameter `type` is a
   constant in all functions below: every type gets its own machine code. */

/* Loads 32 bytes. */
SPECDEC__AVX2 SPECDEC__INLINE __m256i specdec__avx2_load_32(const void *at)
{
    return _mm256_loadu_si256((const __m256i *)at);
}
/* Stores 32 bytes. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_store_32(void *at, __m256i v)
{
    _mm256_storeu_si256((__m256i *)at, v);
}
/* Returns every byte of a, with only the bits that are set in mask. */
SPECDEC__AVX2 SPECDEC__INLINE __m256i specdec__avx2_mask_bytes(__m256i a, int mask)
{
    return _mm256_and_si256(a, _mm256_set1_epi8((char)mask));
}

/* Converts eight half floats to floats. */
SPECDEC__AVX2 SPECDEC__INLINE __m256 specdec__avx2_from_f16(const unsigned char *at)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)at));
}

/* Returns specdec__quant_e8m0_divided_by_2 of eight bytes, as floats. */
SPECDEC__AVX2 SPECDEC__INLINE __m256 specdec__avx2_e8m0_divided_by_2(const unsigned char *at)
{
    const __m256i one = _mm256_set1_epi32(1);
    const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)at));
    const __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), _mm256_min_epi32(e, one));

    return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_slli_epi32(_mm256_sub_epi32(e, one), 23), small));
}

/* Returns specdec__quant_e4m3_divided_by_2 of byte i of each of eight words, as floats. */
SPECDEC__AVX2 SPECDEC__INLINE __m256 specdec__avx2_e4m3_divided_by_2(const unsigned char *words, int i)
{
    const __m256i v = _mm256_and_si256(_mm256_srl_epi32(specdec__avx2_load_32(words), _mm_cvtsi32_si128(i * 8)),
                                       _mm256_set1_epi32(127));
    const __m256i normal = _mm256_add_epi32(_mm256_slli_epi32(v, 20), _mm256_set1_epi32(119 << 23));
    const __m256 small = _mm256_mul_ps(_mm256_cvtepi32_ps(v), _mm256_set1_ps(1.0f / 1024));
    const __m256 value = _mm256_blendv_ps(_mm256_castsi256_ps(normal), small,
                                          _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(8), v)));

    return _mm256_andnot_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(v, _mm256_set1_epi32(127))), value);
}

/* Returns whether a type has signed codes of 8 bits. */
SPECDEC__INLINE int specdec__avx2_is_signed(int type) { return specdec__x86_highest_code(type) == 255; }

/* Returns a vector with `value` in every byte whose bit n is set in a, and 0 elsewhere. */
SPECDEC__AVX2 SPECDEC__INLINE __m256i specdec__avx2_value_where_bit_set(__m256i a, int n, int value)
{
    __m256i found = _mm256_sub_epi8(_mm256_setzero_si256(), specdec__avx2_mask_bytes(a, 1 << n));
    return _mm256_min_epu8(found, _mm256_set1_epi8((char)value));
}

/* Returns a with bit n of every byte moved to bit 4, for a constant n; the caller masks the other bits. */
SPECDEC__AVX2 SPECDEC__INLINE __m256i specdec__avx2_move_bit_to_4(__m256i a, int n)
{
    return n < 4 ? _mm256_slli_epi16(a, 4 - n) : _mm256_srli_epi16(a, n - 4);
}

/* Unpacks 32 codes a row from nibbles (at), with fifth bits (bits) unless NULL. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_unpack_nibbles(const unsigned char *at, const unsigned char *bits,
                                                                __m256i u[8])
{
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 4; i++) {
        __m256i q = specdec__avx2_load_32(at + i * 64);

        u[i] = specdec__avx2_mask_bytes(q, 15);
        u[i + 4] = specdec__avx2_mask_bytes(_mm256_srli_epi16(q, 4), 15);
    }
    if (bits) {
        __m256i high = specdec__avx2_load_32(bits);

        SPECDEC__UNROLL
        for (i = 0; i < 8; i++)
            u[i] = _mm256_or_si256(u[i], specdec__avx2_mask_bytes(specdec__avx2_move_bit_to_4(high, i), 16));
    }
}

/* Replaces nibbles by the values of IQ4_NL and IQ4_XS. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_iq4_values(__m256i u[8])
{
    const __m256i table =
        _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)specdec__quant_iq4_values));
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 8; i++)
        u[i] = _mm256_shuffle_epi8(table, u[i]);
}

/* Replaces nibbles by twice the 4-bit floats that they are, plus 16. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_fp4_values(__m256i u[8])
{
    const __m256i table = _mm256_add_epi8(_mm256_set1_epi8(16), _mm256_broadcastsi128_si256(
        _mm_loadu_si128((const __m128i *)(const void *)specdec__quant_fp4_values)));
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 8; i++)
        u[i] = _mm256_shuffle_epi8(table, u[i]);
}

/* Unpacks two granules of 16 codes a row from the nibbles of two vectors each, the low nibbles first. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_unpack_nvfp4(const unsigned char *at, __m256i u[8])
{
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 4; i++) {
        __m256i q = specdec__avx2_load_32(at + i * 64);

        u[i / 2 * 4 + i % 2] = specdec__avx2_mask_bytes(q, 15);
        u[i / 2 * 4 + i % 2 + 2] = specdec__avx2_mask_bytes(_mm256_srli_epi16(q, 4), 15);
    }
}

/* Unpacks 32 codes a row of one bit each from a vector: twice the bits. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_unpack_q1_0(const unsigned char *at, __m256i u[8])
{
    const __m256i q = specdec__avx2_load_32(at);
    int i;

    u[0] = specdec__avx2_mask_bytes(_mm256_slli_epi16(q, 1), 2);
    SPECDEC__UNROLL
    for (i = 1; i < 8; i++)
        u[i] = specdec__avx2_mask_bytes(_mm256_srli_epi16(q, i - 1), 2);
}

/* Unpacks 32 codes a row of two bits each from two vectors. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_unpack_q2_0(const unsigned char *at, __m256i u[8])
{
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 8; i++)
        u[i] = specdec__avx2_mask_bytes(_mm256_srli_epi16(specdec__avx2_load_32(at + i / 4 * 64), i % 4 * 2), 3);
}

/* Unpacks one of the groups of 32 codes that share bytes: `bits` bits of each byte, from bit `run * bits` on. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_unpack_group_of_32(const unsigned char *at, int run, int bits,
                                                                    __m256i u[8])
{
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 8; i++)
        u[i] = specdec__avx2_mask_bytes(_mm256_srli_epi16(specdec__avx2_load_32(at + i * 64), run * bits),
                                        (1 << bits) - 1);
}

/* Unpacks an eighth of the codes of Q4_K and Q5_K: the low nibbles of eight vectors for even eighths, the high ones for
   odd eighths. bits: the fifth bits, or NULL. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_unpack_q4_q5_k(const unsigned char *at, const unsigned char *bits,
                                                                int eighth, __m256i u[8])
{
    int i;

    at += eighth / 2 * 512;
    if (eighth % 2)
        specdec__avx2_unpack_group_of_32(at, 1, 4, u);
    else
        specdec__avx2_unpack_group_of_32(at, 0, 4, u);
    if (bits) {
        SPECDEC__UNROLL
        for (i = 0; i < 8; i++)
            u[i] = _mm256_or_si256(u[i],
                                   specdec__avx2_value_where_bit_set(specdec__avx2_load_32(bits + i * 64), eighth, 16));
    }
}

/* Unpacks one of the four groups of 32 codes in 128 values of Q6_K. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_unpack_six_bits(const unsigned char *low, const unsigned char *high,
                                                                 int run, __m256i u[8])
{
    int i;

    specdec__avx2_unpack_group_of_32(low + run % 2 * 512, run / 2, 4, u);
    SPECDEC__UNROLL
    for (i = 0; i < 8; i++) {
        __m256i h = specdec__avx2_load_32(high + i * 64);

        h = run < 2 ? _mm256_slli_epi16(h, 4 - 2 * run) : _mm256_srli_epi16(h, 2 * run - 4);
        u[i] = _mm256_or_si256(u[i], specdec__avx2_mask_bytes(h, 48));
    }
}

/* Unpacks an eighth of the codes of a tile of Q6_K: four low bits from nibbles, two high bits. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_unpack_q6_k(const unsigned char *at, int eighth, __m256i u[8])
{
    const unsigned char *low = at + SPECDEC__TILE_AT(q6_k, nibbles) + eighth / 4 * 1024;
    const unsigned char *high = at + SPECDEC__TILE_AT(q6_k, two_bits) + eighth / 4 * 512;

    switch (eighth % 4) {
    case 0: specdec__avx2_unpack_six_bits(low, high, 0, u); break;
    case 1: specdec__avx2_unpack_six_bits(low, high, 1, u); break;
    case 2: specdec__avx2_unpack_six_bits(low, high, 2, u); break;
    default: specdec__avx2_unpack_six_bits(low, high, 3, u); break;
    }
}

/* Unpacks an eighth of the codes of Q2_K and Q3_K: two bits of eight vectors. bits: the third bits, or NULL. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_unpack_two_bits(const unsigned char *at, const unsigned char *bits,
                                                                 int eighth, __m256i u[8])
{
    int i;

    at += eighth / 4 * 512;
    switch (eighth % 4) {
    case 0: specdec__avx2_unpack_group_of_32(at, 0, 2, u); break;
    case 1: specdec__avx2_unpack_group_of_32(at, 1, 2, u); break;
    case 2: specdec__avx2_unpack_group_of_32(at, 2, 2, u); break;
    default: specdec__avx2_unpack_group_of_32(at, 3, 2, u); break;
    }
    if (bits) {
        SPECDEC__UNROLL
        for (i = 0; i < 8; i++)
            u[i] = _mm256_or_si256(u[i],
                                   specdec__avx2_value_where_bit_set(specdec__avx2_load_32(bits + i * 64), eighth, 4));
    }
}

/* Computes u (8 vectors) = codes 32 * block to 32 * block + 31 of 8 rows of a tile, plus their bias if they have fewer
   than 8 bits. half: which 8 rows. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_unpack_codes(int type, const unsigned char *tile, int block, int half,
                                                              __m256i u[8])
{
    const unsigned char *own = specdec__x86_find_file_block(type, tile + half * 32, block);
    int i;

    switch (type) {
    SPECDEC__X86_CODES(avx2, own, specdec__x86_group_in_file_block(type, block), u)
    default: /* Q8_0 */
        SPECDEC__UNROLL
        for (i = 0; i < 8; i++)
            u[i] = specdec__avx2_load_32(own + SPECDEC__TILE_AT(q8_0, codes) + i * 64);
        break;
    }
}

/* Unpacks the factors of the scales and minimums of a tile of Q2_K: a scale of a granule is d of its block times an
   integer, the factor. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_unpack_factors_q2_k(const unsigned char *tile, int8_t *scales,
                                                                     int8_t *minimums)
{
    int i;

    for (i = 0; i < 256; i += 32) {
        __m256i both = specdec__avx2_load_32(tile + SPECDEC__TILE_AT(q2_k, scales) + i);

        specdec__avx2_store_32(scales + i, specdec__avx2_mask_bytes(both, 15));
        specdec__avx2_store_32(minimums + i, specdec__avx2_mask_bytes(_mm256_srli_epi16(both, 4), 15));
    }
}

/* Unpacks the factors of the scales and minimums of Q4_K and Q5_K, 6 bits each. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_unpack_factors_q4_q5_k(const unsigned char *tile, int8_t *scales,
                                                                        int8_t *minimums)
{
    const unsigned char *packed = tile + SPECDEC__TILE_AT(q4_k, scales); /* the same offset in Q5_K */
    int i;

    for (i = 0; i < 64; i += 32) {
        __m256i a = specdec__avx2_load_32(packed + i), b = specdec__avx2_load_32(packed + 64 + i);
        __m256i c = specdec__avx2_load_32(packed + 128 + i);
        __m256i top = specdec__avx2_mask_bytes(_mm256_srli_epi16(a, 2), 48);

        specdec__avx2_store_32(scales + i, specdec__avx2_mask_bytes(a, 63));
        specdec__avx2_store_32(scales + 64 + i, _mm256_or_si256(specdec__avx2_mask_bytes(c, 15), top));
        top = specdec__avx2_mask_bytes(_mm256_srli_epi16(b, 2), 48);
        specdec__avx2_store_32(minimums + i, specdec__avx2_mask_bytes(b, 63));
        specdec__avx2_store_32(minimums + 64 + i,
                               _mm256_or_si256(specdec__avx2_mask_bytes(_mm256_srli_epi16(c, 4), 15), top));
    }
}

/* Unpacks the factors of the scales of Q3_K: 6 bits, less 32. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_unpack_factors_q3_k(const unsigned char *tile, int8_t *scales)
{
    const unsigned char *packed = tile + SPECDEC__TILE_AT(q3_k, scales);
    int i, half;

    for (half = 0; half < 64; half += 32) {
        const __m256i high = specdec__avx2_load_32(packed + 128 + half);

        SPECDEC__UNROLL
        for (i = 0; i < 4; i++) { /* two scales at once */
            __m256i two = specdec__avx2_load_32(packed + i % 2 * 64 + half);
            __m256i low = specdec__avx2_mask_bytes(_mm256_srli_epi16(two, i / 2 * 4), 15);
            __m256i top = specdec__avx2_mask_bytes(
                i < 2 ? _mm256_slli_epi16(high, 4 - 2 * i) : _mm256_srli_epi16(high, 2 * i - 4), 48);

            specdec__avx2_store_32(scales + i * 64 + half,
                                   _mm256_sub_epi8(_mm256_or_si256(low, top), _mm256_set1_epi8(32)));
        }
    }
}

/* Unpacks the factors of the scales of IQ4_XS: 6 bits, less 32. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_unpack_factors_iq4_xs(const unsigned char *tile, int8_t *scales)
{
    const __m128i *lows = (const __m128i *)(const void *)(tile + SPECDEC__TILE_AT(iq4_xs, low));
    const __m128i *highs = (const __m128i *)(const void *)(tile + SPECDEC__TILE_AT(iq4_xs, high));
    const __m128i three = _mm_set1_epi16(3);
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 8; i++) {
        __m128i low = _mm_and_si128(_mm_srli_epi16(_mm_loadu_si128(lows + i / 2), i % 2 * 4), _mm_set1_epi8(15));
        __m128i first = _mm_and_si128(_mm_srli_epi16(_mm_loadu_si128(highs), 2 * i), three);
        __m128i second = _mm_and_si128(_mm_srli_epi16(_mm_loadu_si128(highs + 1), 2 * i), three);
        __m128i top = _mm_slli_epi16(_mm_packus_epi16(first, second), 4);

        _mm_storeu_si128((__m128i *)(void *)(scales + i * 16), _mm_sub_epi8(_mm_or_si128(low, top), _mm_set1_epi8(32)));
    }
}

/* Returns four bytes of eight signs in each word, from four times seven signs: the eighth sign makes the number of set
   bits even. */
SPECDEC__AVX2 SPECDEC__INLINE __m256i specdec__avx2_add_eighth_signs(__m256i word)
{
    const __m256i parity = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
    __m256i signs = _mm256_and_si256(word, _mm256_set1_epi32(0x7F));

    signs = _mm256_or_si256(signs, _mm256_and_si256(_mm256_slli_epi32(word, 1), _mm256_set1_epi32(0x7F00)));
    signs = _mm256_or_si256(signs, _mm256_and_si256(_mm256_slli_epi32(word, 2), _mm256_set1_epi32(0x7F0000)));
    signs = _mm256_or_si256(signs, _mm256_and_si256(_mm256_slli_epi32(word, 3), _mm256_set1_epi32(0x7F000000)));
    return _mm256_or_si256(
        signs, _mm256_shuffle_epi8(parity,
                                   specdec__avx2_mask_bytes(_mm256_xor_si256(signs, _mm256_srli_epi16(signs, 4)), 15)));
}

/* Returns the factors (granule, 16) of the scales of 256 values and, 256 bytes further, of the minimums. room: memory
   for them. */
SPECDEC__AVX2 SPECDEC__INLINE const int8_t *specdec__avx2_unpack_factors(int type, const unsigned char *tile,
                                                                         int8_t *room)
{
    switch (type) {
    case SPECDEC__TYPE_Q2_K: specdec__avx2_unpack_factors_q2_k(tile, room, room + 256); break;
    case SPECDEC__TYPE_Q3_K: specdec__avx2_unpack_factors_q3_k(tile, room); break;
    case SPECDEC__TYPE_Q4_K:
    case SPECDEC__TYPE_Q5_K: specdec__avx2_unpack_factors_q4_q5_k(tile, room, room + 256); break;
    case SPECDEC__TYPE_Q6_K: return (const int8_t *)tile + SPECDEC__TILE_AT(q6_k, scales);
    case SPECDEC__TYPE_IQ4_XS: specdec__avx2_unpack_factors_iq4_xs(tile, room); break;
    default: break; /* no factors */
    }
    return room;
}

/* Computes d[0] and d[1]: the factors d of the scales and dmin of the minimums of a block, for 8 rows of a tile. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_load_block_scales(int type, const unsigned char *tile, int half,
                                                                   __m256 d[2])
{
    const unsigned char *at = tile + specdec__x86_offset_of_d(type) + half * 16;

    d[0] = d[1] = _mm256_setzero_ps();
    if (!specdec__x86_has_scale_without_factors(type))
        d[0] = specdec__avx2_from_f16(at);
    if (!specdec__x86_has_scale_without_factors(type) && specdec__x86_has_minimum(type))
        d[1] = _mm256_sub_ps(_mm256_set1_ps(-0.0f), specdec__avx2_from_f16(at + 2 * SPECDEC__ROWS));
}

/* Up to 256 values of 8 rows of a tile. */
typedef struct specdec__avx2_rows {
    const unsigned char *tile; /* the tile that the rows are in */
    const int8_t *factors;     /* integer factors of d and dmin: see specdec__avx2_unpack_factors */
    __m256 d[2];               /* d and dmin of the 8 rows: see specdec__avx2_load_block_scales */
    int half;              /* 0: rows 0 to 7, 1: rows 8 to 15 */
} specdec__avx2_rows;

/* Returns the scales of a granule, or, with minimums = 1, the minimums, of 8 rows. */
SPECDEC__AVX2 SPECDEC__INLINE __m256 specdec__avx2_granule_scales_or_minimums(int type, int minimums,
                                                                              const specdec__avx2_rows *rows,
                                                                              int granule)
{
    const int8_t *factors = rows->factors + minimums * 256 + granule * 16 + rows->half * 8;

    if (type == SPECDEC__TYPE_MXFP4)
        return specdec__avx2_e8m0_divided_by_2(specdec__x86_find_file_block(type, rows->tile, granule) +
                                               rows->half * 8);
    if (type == SPECDEC__TYPE_NVFP4)
        return specdec__avx2_e4m3_divided_by_2(
            specdec__x86_find_file_block(type, rows->tile, granule / 2) + rows->half * 32, granule % 4);
    if (specdec__x86_has_scale_without_factors(type))
        return specdec__avx2_from_f16(specdec__x86_find_file_block(type, rows->tile, granule) +
                                      specdec__x86_offset_of_d(type) + minimums * 2 * SPECDEC__ROWS + rows->half * 16);
    return _mm256_mul_ps(rows->d[minimums], specdec__avx2_from_bytes(factors));
}

/* Returns the pair that corrects the dots of a granule of each of 8 rows (see specdec__avx512_make_pair_from_codes),
   from the sum of its unsigned codes. */
SPECDEC__AVX2 SPECDEC__INLINE __m256i specdec__avx2_make_pair_from_sum(int type, __m256i sum)
{
    const int bias = specdec__x86_bias(type), below = -bias * specdec__x86_values_per_scale(type);

    return _mm256_add_epi16(sum, _mm256_set1_epi32(-bias * 65536 + (below & 65535)));
}

/* Returns the pair that corrects the dots of a granule of each of 8 rows (see specdec__avx512_make_pair_from_codes),
   from its `count` vectors of codes. */
SPECDEC__AVX2 SPECDEC__INLINE __m256i specdec__avx2_make_pair_from_codes(int type, const __m256i *u, int count)
{
    const __m256i ones = _mm256_set1_epi8(1), words = _mm256_set1_epi16(1);
    const int wide = specdec__avx2_is_signed(type);
    __m256i sum = wide ? _mm256_maddubs_epi16(ones, u[0]) : u[0];
    int i;

    SPECDEC__UNROLL
    for (i = 1; i < count; i++)
        sum = wide ? _mm256_add_epi16(sum, _mm256_maddubs_epi16(ones, u[i])) : _mm256_add_epi8(sum, u[i]);
    if (wide)
        return _mm256_and_si256(_mm256_madd_epi16(sum, words), _mm256_set1_epi32(65535));
    return specdec__avx2_make_pair_from_sum(type, _mm256_madd_epi16(_mm256_maddubs_epi16(sum, ones), words));
}

/* Returns how many products of vectors are added in 16 bits, where that cannot saturate. */
SPECDEC__INLINE int specdec__avx2_products_per_16_bit_sum(int type, int vectors)
{
    return specdec__avx2_is_signed(type) ? 1 : specdec__min_int(32767 / (254 * specdec__x86_highest_code(type)),
                                                                vectors);
}

/* Returns the products of bytes of u and x, two of them added in each 16-bit lane. */
SPECDEC__AVX2 SPECDEC__INLINE __m256i specdec__avx2_pair_products(int is_signed, __m256i u, __m256i x)
{
    return is_signed ? _mm256_maddubs_epi16(_mm256_abs_epi8(u), _mm256_sign_epi8(x, u)) : _mm256_maddubs_epi16(u, x);
}

#define SPECDEC__AVX2_REGISTER_COLUMNS 4 /* columns that are multiplied by codes in registers, at most */

/* Computes sums (column) = the dots of the vectors of a granule with columns. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_compute_granule_dots(int type, int columns, int vectors,
                                                                      const __m256i *u, const int32_t *x, __m256i *sums)
{
    const int step = specdec__avx2_products_per_16_bit_sum(type, vectors);
    __m256i part[SPECDEC__AVX2_REGISTER_COLUMNS], product;
    int i, c;

    SPECDEC__UNROLL
    for (i = 0; i < vectors; i++) {
        SPECDEC__UNROLL
        for (c = 0; c < columns; c++) {
            product = specdec__avx2_pair_products(specdec__avx2_is_signed(type), u[i], _mm256_set1_epi32(x[c * 8 + i]));
            if (i % step)
                product = _mm256_add_epi16(part[c], product);
            SPECDEC__KEEP_IN_REGISTER(product); /* else compilers add in another order, which needs more registers */
            part[c] = product;
            if (i % step == step - 1) {
                product = _mm256_madd_epi16(product, _mm256_set1_epi16(1));
                sums[c] = i < step ? product : _mm256_add_epi32(sums[c], product);
            }
        }
    }
}

/* Unpacks block `block` of up to 256 values of a tile: 32 values of 16 rows, into 512 codes at the beginning of the
   panel, and the block's pairs, scales and minimums into its granules. Blocks are unpacked in order. ahead: any
   address, from which as many bytes are prefetched. */
typedef void specdec__avx2_block_function(const unsigned char *tile, int block, const char *ahead,
                                          specdec__panel *panel);

/* Unpacks a block of a type into a panel: a specdec__avx2_block_function. Block 0 also unpacks the scales of 256 values
   into the panel, behind the codes. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_unpack_block(int type, const unsigned char *tile, int block,
                                                              const char *ahead, specdec__panel *panel)
{
    const int granule = specdec__x86_values_per_scale(type), per = 32 / granule;
    int8_t *room = panel->u.codes + 512;
    specdec__avx2_rows rows;
    __m256i u[8];
    int g, k, i, to;

    rows.tile = tile;
    specdec__x86_prefetch_bytes(specdec__x86_block_bytes(type), ahead);
    rows.factors = room;
    if (!block && !specdec__x86_has_scale_without_factors(type))
        specdec__avx2_unpack_factors(type, tile, room);
    SPECDEC__UNROLL
    for (rows.half = 0; rows.half < 2; rows.half++) {
        to = rows.half * 8;
        specdec__avx2_load_block_scales(type, tile, rows.half, rows.d);
        specdec__avx2_unpack_codes(type, tile, block, rows.half, u);
        SPECDEC__UNROLL
        for (i = 0; i < 8; i++)
            specdec__avx2_store_32(panel->u.codes + i * 64 + to * 4, u[i]);
        SPECDEC__UNROLL
        for (g = 0; g < per; g++) {
            k = block * per + g;
            specdec__avx2_store_32(panel->pair[k] + to,
                                   specdec__avx2_make_pair_from_codes(type, u + g * 4, granule / 4));
            _mm256_storeu_ps(panel->scale[k] + to, specdec__avx2_granule_scales_or_minimums(type, 0, &rows, k));
            if (specdec__x86_has_minimum(type))
                _mm256_storeu_ps(panel->minimum[k] + to, specdec__avx2_granule_scales_or_minimums(type, 1, &rows, k));
        }
    }
}

/* Defines the specdec__avx2_block_function of a type. */
#define SPECDEC__AVX2_BLOCK(is_inline, number) \
    SPECDEC__AVX2 is_inline void specdec__avx2_unpack_block_##number(const unsigned char *tile, int block, \
                                                                     const char *ahead, specdec__panel *panel) \
    { \
        specdec__avx2_unpack_block(SPECDEC__TYPE_##number, tile, block, ahead, panel); \
    }
SPECDEC__AVX2_BLOCK(SPECDEC__INLINE, Q4_0)
SPECDEC__AVX2_BLOCK(SPECDEC__INLINE, Q4_K)
SPECDEC__AVX2_BLOCK(static, Q8_0)
SPECDEC__X86_RARE_TYPES(SPECDEC__AVX2_BLOCK, static)

/* Computes pair (granule, row), the pairs that correct dots, of a block's granules of `vectors` vectors (4 or 8) of
   signed codes. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_compute_pairs(int vectors, const int8_t *codes,
                                                               int32_t (*pair)[SPECDEC__ROWS])
{
    __m256i u[8];
    int g, half, i;

    for (g = 0; g < 8 / vectors; g++, codes += vectors * 64)
        for (half = 0; half < 2; half++) {
            SPECDEC__UNROLL
            for (i = 0; i < vectors; i++)
                u[i] = specdec__avx2_load_32(codes + i * 64 + half * 32);
            specdec__avx2_store_32(pair[g] + half * 8,
                                   specdec__avx2_make_pair_from_codes(SPECDEC__X86_PANEL_32_SIGNED, u, vectors));
        }
}

/* Returns the nibbles of the first or the second half of every word, as bytes: the low nibbles of two bytes, then the
   high ones. */
SPECDEC__AVX2 SPECDEC__INLINE __m256i specdec__avx2_nibbles_of_half_words(__m256i words, int second)
{
    const __m256i low = specdec__avx2_mask_bytes(words, 15),
                  high = specdec__avx2_mask_bytes(_mm256_srli_epi16(words, 4), 15);

    return second ? _mm256_blend_epi16(_mm256_srli_epi32(low, 16), high, 0xAA)
                  : _mm256_blend_epi16(low, _mm256_slli_epi32(high, 16), 0xAA);
}

/* Returns the indices for a shuffle that takes the same four bytes of every word. */
SPECDEC__AVX2 SPECDEC__INLINE __m256i specdec__avx2_shuffle_indices_in_words(uint32_t bytes)
{
    const __m128i lanes = _mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0C0C0C0C);

    return _mm256_add_epi8(_mm256_set1_epi32((int)bytes), _mm256_broadcastsi128_si256(lanes));
}

/* Returns four codes of each of 8 rows: point i of a group of a grid, as four indices of a table of magnitudes, with
   signs. Indices have four bits, or two bits (twos), which are two bits higher in odd bytes, as in the table. points
   (word, 16): two points in a word, or four with two-bit indices. */
SPECDEC__AVX2 SPECDEC__INLINE __m256i specdec__avx2_codes_of_points(int twos, __m256i table, const uint32_t *points,
                                                                    __m256i signs, int i)
{
    const __m256i bits = _mm256_set1_epi32(i % 2 ? (int)0x80402010 : 0x08040201);
    const __m256i words = specdec__avx2_load_32(points + (twos ? i / 4 : i / 2) * 16);
    __m256i index = specdec__avx2_nibbles_of_half_words(words, twos ? i / 2 % 2 : i % 2);

    index = _mm256_shuffle_epi8(index, specdec__avx2_shuffle_indices_in_words(!twos   ? 0x03010200
                                                                              : i % 2 ? 0x03030101
                                                                                      : 0x02020000));
    index = twos ? _mm256_and_si256(index, _mm256_set1_epi32(0x0C030C03)) : index;
    signs = _mm256_and_si256(
        _mm256_shuffle_epi8(signs, specdec__avx2_shuffle_indices_in_words((uint32_t)(i / 2) * 0x01010101u)), bits);
    signs = _mm256_or_si256(_mm256_cmpeq_epi8(signs, bits), _mm256_set1_epi8(1)); /* the sign, -1 or 1, in each byte */
    return _mm256_sign_epi8(_mm256_shuffle_epi8(table, index), signs);
}

/* Stores the codes of a group of grid points in a panel. twos, table: see specdec__avx2_codes_of_points; sevens: 1:
   seven signs stand for eight codes. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_store_group_codes(int twos, int sevens, __m256i table,
                                                                   const specdec__grid_group *group, int8_t *codes)
{
    int half, i;

    for (half = 0; half < 16; half += 8, codes += 32) {
        __m256i signs = specdec__avx2_load_32(group->signs + half);

        signs = sevens ? specdec__avx2_add_eighth_signs(signs) : signs;
        SPECDEC__UNROLL
        for (i = 0; i < 8; i++)
            specdec__avx2_store_32(codes + i * 64,
                                   specdec__avx2_codes_of_points(twos, table, group->points[0] + half, signs, i));
    }
}

/* Computes scale (16) = d of a tile * factor * (2 n + 1), where n is the four bits from bit `shift` on of words (16).
   */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_scales_by_odd_factors(const unsigned char *tile,
                                                                       const unsigned char *words, int shift,
                                                                       float factor, float *scale)
{
    int half;

    for (half = 0; half < 2; half++) {
        __m256i n = _mm256_srl_epi32(specdec__avx2_load_32(words + half * 32), _mm_cvtsi32_si128(shift));

        n = _mm256_and_si256(_mm256_add_epi32(n, n), _mm256_set1_epi32(30));
        n = _mm256_or_si256(n, _mm256_set1_epi32(1));
        _mm256_storeu_ps(scale + half * 8, _mm256_mul_ps(specdec__avx2_from_f16(tile + half * 16),
                                                         _mm256_mul_ps(_mm256_set1_ps(factor), _mm256_cvtepi32_ps(n))));
    }
}

/* The layout of the scales of a type with a grid: four bits each, eight in a word, or in the top bits of words that are
   `step` bytes apart. */
typedef struct specdec__x86_grid_scales {
    const unsigned char *at; /* where the scales begin */
    int count, step;         /* scales of a row; bytes between words with a scale, 0: eight scales in a word */
    float factor;            /* scale = d * factor * (2 n + 1), where n is four bits */
} specdec__x86_grid_scales;

/* Returns the layout of the scales of a tile of a type with a grid. */
SPECDEC__INLINE specdec__x86_grid_scales specdec__x86_grid_scale_layout(uint32_t type, const unsigned char *tile)
{
    specdec__x86_grid_scales out = {tile, 16, 0, 0.125f};

    switch (type) {
    case SPECDEC__TYPE_IQ2_XXS: out.at += SPECDEC__TILE_AT(iq2_xxs, groups) + 64; out.count = 8; out.step = 128; break;
    case SPECDEC__TYPE_IQ2_XS: out.at += SPECDEC__TILE_AT(iq2_xs, scales); break;
    case SPECDEC__TYPE_IQ2_S: out.at += SPECDEC__TILE_AT(iq2_s, scales); break;
    case SPECDEC__TYPE_IQ3_XXS:
        out.at += SPECDEC__TILE_AT(iq3_xxs, words);
        out.count = 8;
        out.step = 64;
        out.factor = 0.25f;
        break;
    default: out.at += SPECDEC__TILE_AT(iq3_s, scales); out.count = 8; out.factor = 1; break;
    }
    return out;
}

/* Unpacks the scales of a tile of a type with a grid. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_unpack_grid_scales(uint32_t type, const unsigned char *tile,
                                                                    float (*scale)[SPECDEC__ROWS])
{
    const specdec__x86_grid_scales from = specdec__x86_grid_scale_layout(type, tile);
    int g;

    for (g = 0; g < from.count; g++)
        specdec__avx2_scales_by_odd_factors(tile, from.at + (from.step ? g * from.step : g / 8 * 64),
                                            from.step ? 28 : g % 8 * 4, from.factor, scale[g]);
}

/* Returns whether a point of a type is eight indices of two bits, not four of four bits. */
SPECDEC__INLINE int specdec__avx2_has_two_bit_points(uint32_t type)
{
    return type != SPECDEC__TYPE_IQ3_XXS && type != SPECDEC__TYPE_IQ3_S;
}

/* Returns the magnitudes that the indices in a type's points stand for. */
SPECDEC__AVX2 SPECDEC__INLINE __m128i specdec__avx2_load_magnitude_table(uint32_t type)
{
    const __m128i twos = _mm_setr_epi8(8, 25, 43, 0, 25, 0, 0, 0, 43, 0, 0, 0, 0, 0, 0, 0);
    const __m128i odd = _mm_setr_epi8(1, 3, 5, 7, 9, 11, 13, 15, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m128i fours = _mm_setr_epi8(4, 12, 20, 28, 36, 44, 52, 62, 0, 0, 0, 0, 0, 0, 0, 0);

    return specdec__avx2_has_two_bit_points(type) ? twos : type == SPECDEC__TYPE_IQ3_S ? odd : fours;
}

/* Unpacks a block of a type with a grid into a panel: a specdec__avx2_block_function. */
SPECDEC__AVX2 static void specdec__avx2_unpack_block_of_grid(int type, const unsigned char *tile, int block,
                                                             specdec__panel *panel)
{
    const int sevens = type != SPECDEC__TYPE_IQ2_S && type != SPECDEC__TYPE_IQ3_S;
    const __m256i table = _mm256_broadcastsi128_si256(specdec__avx2_load_magnitude_table((uint32_t)type));
    int8_t *codes = panel->u.codes;
    specdec__grid_group group;

    specdec__grid_load_group((uint32_t)type, tile, block, &group);
    if (specdec__avx2_has_two_bit_points((uint32_t)type))
        specdec__avx2_store_group_codes(1, sevens, table, &group, codes);
    else
        specdec__avx2_store_group_codes(0, sevens, table, &group, codes);
    if (!block)
        specdec__avx2_unpack_grid_scales((uint32_t)type, tile, panel->scale);
    if (specdec__x86_values_per_scale(type) == 32)
        specdec__avx2_compute_pairs(8, codes, panel->pair + block);
    else
        specdec__avx2_compute_pairs(4, codes, panel->pair + 2 * block);
}

#define SPECDEC__AVX2_BLOCK_GRID(isa, number) \
    SPECDEC__AVX2 static void specdec__##isa##_unpack_block_##number(const unsigned char *tile, int block, \
                                                                     const char *ahead, specdec__panel *panel) \
    { \
        specdec__x86_prefetch_bytes(specdec__x86_block_bytes(SPECDEC__TYPE_##number), ahead); \
        specdec__##isa##_unpack_block_of_grid(SPECDEC__TYPE_##number, tile, block, panel); \
    }
SPECDEC__X86_GRID_TYPES(SPECDEC__AVX2_BLOCK_GRID, avx2)
#endif /* x86_64 */
