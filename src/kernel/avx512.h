/* =====================================================================================================================
 * >>kernel/avx512: AVX-512 with VNNI: vector operations, unpackers, and multiply for every type.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../quant/types.h"
#include "../quant/tiles.h"
#include "kernel.h"
#include "scalar.h"
#include "weigh.h"
#include "x86.h"
#include "avx2.h"
#include "avx2_multiply.h"

#if defined(__x86_64__) && !defined(SPECDEC_NO_SIMD) && !defined(SPECDEC_KERNELS_APART)
/* The vector of AVX-512: sixteen float lanes. */
typedef __m512 specdec__avx512_v;

/* The operations of SPECDEC__LANE_OPERATIONS. */
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_load(const float *at) { return _mm512_loadu_ps(at); }
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_store(float *at, __m512 a) { _mm512_storeu_ps(at, a); }
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_set(float a) { return _mm512_set1_ps(a); }
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_add(__m512 a, __m512 b) { return _mm512_add_ps(a, b); }
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_sub(__m512 a, __m512 b) { return _mm512_sub_ps(a, b); }
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_mul(__m512 a, __m512 b) { return _mm512_mul_ps(a, b); }
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_div(__m512 a, __m512 b) { return _mm512_div_ps(a, b); }
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_madd(__m512 a, __m512 b, __m512 c)
{
    return _mm512_fmadd_ps(a, b, c);
}
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_max(__m512 a, __m512 b) { return _mm512_max_ps(a, b); }
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_min(__m512 a, __m512 b) { return _mm512_min_ps(a, b); }
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_times_power_of_2(__m512 a, __m512 shifter)
{
    return _mm512_castsi512_ps(
        _mm512_add_epi32(_mm512_castps_si512(a), _mm512_slli_epi32(_mm512_castps_si512(shifter), 23)));
}
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_store_low_bytes(int8_t *at, __m512 a)
{
    _mm_storeu_si128((__m128i *)(void *)at, _mm512_cvtepi32_epi8(_mm512_castps_si512(a)));
}
SPECDEC__AVX512 SPECDEC__INLINE float specdec__avx512_sum(const __m512 *parts)
{
    const __m512 a = parts[0];
    __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
SPECDEC__AVX512 SPECDEC__INLINE float specdec__avx512_largest_lane(const __m512 *parts)
{
    const __m512 a = parts[0];
    __m256 b = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_largest_lanes_of_four(const __m512 *x, float *out)
{
    const __m512 ab = _mm512_max_ps(_mm512_shuffle_f32x4(x[0], x[1], 0x44), _mm512_shuffle_f32x4(x[0], x[1], 0xEE));
    const __m512 cd = _mm512_max_ps(_mm512_shuffle_f32x4(x[2], x[3], 0x44), _mm512_shuffle_f32x4(x[2], x[3], 0xEE));
    __m512 all = _mm512_max_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xDD));

    all = _mm512_max_ps(all, _mm512_permute_ps(all, 0x4E));
    all = _mm512_max_ps(all, _mm512_permute_ps(all, 0xB1));
    all = _mm512_permutexvar_ps(_mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 8, 4, 0), all);
    _mm_storeu_ps(out, _mm512_castps512_ps128(all));
}
SPECDEC__AVX512 SPECDEC__INLINE int32_t specdec__avx512_sum_codes(const int8_t *codes)
{
    __m128i high = _mm_set1_epi8((char)-128), v = _mm_loadu_si128((const __m128i *)(const void *)codes);
    __m128i sums = _mm_sad_epu8(_mm_xor_si128(v, high), _mm_setzero_si128());
    return _mm_cvtsi128_si32(sums) + _mm_extract_epi32(sums, 2) - 16 * 128;
}
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_load_f16(const void *at)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)at));
}
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_load_bf16(const void *at)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)at)), 16));
}
SPECDEC__AVX512 SPECDEC__INLINE int32_t specdec__avx512_bits_of_lane_0(__m512 a)
{
    return _mm_cvtsi128_si32(_mm512_castsi512_si128(_mm512_castps_si512(a)));
}
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_store_f16(void *at, __m512 a)
{
    _mm256_storeu_si256((__m256i *)at, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* Weight codes stay packed in the tile and are unpacked in registers: up to 6 columns tile after tile, more columns
   with two tiles side by side. The parameter `type` is a constant in all functions below: every type gets its own
   machine code. */

/* Loads 64 bytes. */
SPECDEC__AVX512 SPECDEC__INLINE __m512i specdec__avx512_load_bytes(const unsigned char *at)
{
    return _mm512_loadu_si512(at);
}
/* Converts 16 half floats to floats. */
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_from_f16(const unsigned char *at)
{
    return specdec__avx512_load_f16(at);
}

/* Converts 16 signed bytes to floats. */
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_from_bytes(const int8_t *at)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)at)));
}

/* The bits of mask in every byte. */
SPECDEC__AVX512 SPECDEC__INLINE __m512i specdec__avx512_mask_bytes(__m512i a, int mask)
{
    return _mm512_and_si512(a, _mm512_set1_epi8((char)mask));
}

/* The bits of `mask` from a, all others from b. The mask is the last operand, as the first one is overwritten. */
SPECDEC__AVX512 SPECDEC__INLINE __m512i specdec__avx512_select_bits(int mask, __m512i a, __m512i b)
{
    return _mm512_ternarylogic_epi32(a, b, _mm512_set1_epi8((char)mask), 0xE4);
}

/* sum += four products of unsigned u and signed bytes at x, which are the same for all lanes. In assembly, as gcc would
   load x by an instruction of its own. */
SPECDEC__AVX512 SPECDEC__INLINE __m512i specdec__avx512_add_byte_products(__m512i sum, __m512i u, const int32_t *x)
{
    __asm__("vpdpbusd {%2%{1to16%}, %1, %0|%0, %1, %2%{1to16%}}" : "+v"(sum) : "v"(u), "m"(*x));
    return sum;
}
/* sum += two products of 16-bit numbers in u and at x, which are the same for all lanes. */
SPECDEC__AVX512 SPECDEC__INLINE __m512i specdec__avx512_add_16_bit_products(__m512i sum, __m512i u, const int32_t *x)
{
    __asm__("vpdpwssd {%2%{1to16%}, %1, %0|%0, %1, %2%{1to16%}}" : "+v"(sum) : "v"(u), "m"(*x));
    return sum;
}

/* `value` in every byte of a whose bit n is set, else 0. (On Zen 5, shifts by a variable count would keep the
   multipliers busy.) */
SPECDEC__AVX512 SPECDEC__INLINE __m512i specdec__avx512_value_where_bit_set(__m512i a, int n, int value)
{
    __m512i found = _mm512_sub_epi8(_mm512_setzero_si512(), specdec__avx512_mask_bytes(a, 1 << n));
    return _mm512_min_epu8(found, _mm512_set1_epi8((char)value));
}

/* Shifts every 16 bits to the right by a constant n, 0 to 6. */
SPECDEC__AVX512 SPECDEC__INLINE __m512i specdec__avx512_shift_right(__m512i a, int n)
{
    switch (n) {
    case 1: return _mm512_srli_epi16(a, 1);
    case 2: return _mm512_srli_epi16(a, 2);
    case 3: return _mm512_srli_epi16(a, 3);
    case 4: return _mm512_srli_epi16(a, 4);
    case 5: return _mm512_srli_epi16(a, 5);
    case 6: return _mm512_srli_epi16(a, 6);
    default: return a;
    }
}

/* Moves bit n of every byte to bit 4, for a constant n; the caller masks the other bits. */
SPECDEC__AVX512 SPECDEC__INLINE __m512i specdec__avx512_move_bit_to_4(__m512i a, int n)
{
    switch (n) {
    case 0: return _mm512_slli_epi16(a, 4);
    case 1: return _mm512_slli_epi16(a, 3);
    case 2: return _mm512_slli_epi16(a, 2);
    case 3: return _mm512_slli_epi16(a, 1);
    case 4: return a;
    case 5: return _mm512_srli_epi16(a, 1);
    case 6: return _mm512_srli_epi16(a, 2);
    default: return _mm512_srli_epi16(a, 3);
    }
}

/* u (8 vectors) = the nibbles of four vectors, the low ones first. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_split_nibbles(const unsigned char *at, __m512i u[8])
{
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 4; i++) {
        __m512i q = specdec__avx512_load_bytes(at + i * 64);

        SPECDEC__KEEP_IN_REGISTER(q);
        u[i] = specdec__avx512_mask_bytes(q, 15);
        u[i + 4] = specdec__avx512_mask_bytes(_mm512_srli_epi16(q, 4), 15);
    }
}

/* Replaces nibbles by the values of IQ4_NL and IQ4_XS, plus 128. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_iq4_values(__m512i u[8])
{
    const __m512i table = _mm512_xor_si512(_mm512_set1_epi8((char)-128), _mm512_broadcast_i32x4(
        _mm_loadu_si128((const __m128i *)(const void *)specdec__quant_iq4_values)));
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 8; i++)
        u[i] = _mm512_shuffle_epi8(table, u[i]);
}

/* Replaces nibbles by twice the 4-bit floats that they are, plus 16. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_fp4_values(__m512i u[8])
{
    const __m512i table = _mm512_add_epi8(_mm512_set1_epi8(16), _mm512_broadcast_i32x4(
        _mm_loadu_si128((const __m128i *)(const void *)specdec__quant_fp4_values)));
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 8; i++)
        u[i] = _mm512_shuffle_epi8(table, u[i]);
}

/* Unpacks two granules of 16 codes a row from the nibbles of two vectors each, the low nibbles first. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_unpack_nvfp4(const unsigned char *at, __m512i u[8])
{
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 4; i++) {
        __m512i q = specdec__avx512_load_bytes(at + i * 64);

        u[i / 2 * 4 + i % 2] = specdec__avx512_mask_bytes(q, 15);
        u[i / 2 * 4 + i % 2 + 2] = specdec__avx512_mask_bytes(_mm512_srli_epi16(q, 4), 15);
    }
}

/* Unpacks 32 codes a row of one bit each from a vector: twice the bits. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_unpack_q1_0(const unsigned char *at, __m512i u[8])
{
    const __m512i q = specdec__avx512_load_bytes(at);
    int i;

    u[0] = specdec__avx512_mask_bytes(_mm512_slli_epi16(q, 1), 2);
    SPECDEC__UNROLL
    for (i = 1; i < 8; i++)
        u[i] = specdec__avx512_mask_bytes(specdec__avx512_shift_right(q, i - 1), 2);
}

/* Unpacks 32 codes a row of two bits each from two vectors. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_unpack_q2_0(const unsigned char *at, __m512i u[8])
{
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 8; i++)
        u[i] = specdec__avx512_mask_bytes(
            specdec__avx512_shift_right(specdec__avx512_load_bytes(at + i / 4 * 64), i % 4 * 2), 3);
}

/* Unpacks 32 unsigned codes a row from nibbles (at), with fifth bits (bits) unless NULL. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_unpack_nibbles(const unsigned char *at, const unsigned char *bits,
                                                                    __m512i u[8])
{
    int i;

    specdec__avx512_split_nibbles(at, u);
    if (bits) {
        __m512i high = specdec__avx512_load_bytes(bits);

        SPECDEC__UNROLL
        for (i = 0; i < 8; i++)
            u[i] = _mm512_or_si512(u[i], specdec__avx512_mask_bytes(specdec__avx512_move_bit_to_4(high, i), 16));
    }
}

/* Unpacks an eighth of the codes of Q4_K and Q5_K: the low nibbles of eight vectors for even eighths, the high ones for
   odd eighths. bits: the fifth bits, or NULL. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_unpack_q4_q5_k(const unsigned char *at, const unsigned char *bits,
                                                                    int eighth, __m512i u[8])
{
    int i;

    at += eighth / 2 * 512;
    if (eighth % 2) {
        SPECDEC__UNROLL
        for (i = 0; i < 8; i++)
            u[i] = specdec__avx512_mask_bytes(_mm512_srli_epi16(specdec__avx512_load_bytes(at + i * 64), 4), 15);
    } else {
        SPECDEC__UNROLL
        for (i = 0; i < 8; i++)
            u[i] = specdec__avx512_mask_bytes(specdec__avx512_load_bytes(at + i * 64), 15);
    }
    if (bits) {
        SPECDEC__UNROLL
        for (i = 0; i < 8; i++)
            u[i] = _mm512_or_si512(
                u[i], specdec__avx512_value_where_bit_set(specdec__avx512_load_bytes(bits + i * 64), eighth, 16));
    }
}

/* Unpacks one of the four groups of 32 codes in 128 values of Q6_K. run: a constant. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_unpack_six_bits(const unsigned char *low,
                                                                     const unsigned char *high, int run, __m512i u[8])
{
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 8; i++) {
        __m512i q = specdec__avx512_load_bytes(low + run % 2 * 512 + i * 64),
                h = specdec__avx512_load_bytes(high + i * 64);

        if (run >= 2)
            q = _mm512_srli_epi16(q, 4);
        if (run == 0)
            h = _mm512_slli_epi16(h, 4);
        if (run == 1)
            h = _mm512_slli_epi16(h, 2);
        if (run == 3)
            h = _mm512_srli_epi16(h, 2);
        u[i] = specdec__avx512_mask_bytes(specdec__avx512_select_bits(15, q, h), 63);
    }
}

/* Unpacks an eighth of the codes of a tile of Q6_K: four low bits and two high bits make a code. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_unpack_q6_k(const unsigned char *tile, int eighth, __m512i u[8])
{
    const unsigned char *low = tile + SPECDEC__TILE_AT(q6_k, nibbles) + eighth / 4 * 1024;
    const unsigned char *high = tile + SPECDEC__TILE_AT(q6_k, two_bits) + eighth / 4 * 512;

    switch (eighth % 4) {
    case 0: specdec__avx512_unpack_six_bits(low, high, 0, u); break;
    case 1: specdec__avx512_unpack_six_bits(low, high, 1, u); break;
    case 2: specdec__avx512_unpack_six_bits(low, high, 2, u); break;
    default: specdec__avx512_unpack_six_bits(low, high, 3, u); break;
    }
}

/* Unpacks one of the four groups of 32 two-bit fields in 128 values of Q2_K or Q3_K. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_unpack_two_bit_run(const unsigned char *at, int run, __m512i u[8])
{
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 8; i++) {
        __m512i q = specdec__avx512_load_bytes(at + i * 64);

        u[i] = specdec__avx512_mask_bytes(specdec__avx512_shift_right(q, 2 * run), 3);
    }
}

/* Unpacks an eighth of the codes of Q2_K and Q3_K: two bits of eight vectors. bits: the third bits, or NULL. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_unpack_two_bits(const unsigned char *at, const unsigned char *bits,
                                                                     int eighth, __m512i u[8])
{
    int i;

    at += eighth / 4 * 512;
    switch (eighth % 4) {
    case 0: specdec__avx512_unpack_two_bit_run(at, 0, u); break;
    case 1: specdec__avx512_unpack_two_bit_run(at, 1, u); break;
    case 2: specdec__avx512_unpack_two_bit_run(at, 2, u); break;
    default: specdec__avx512_unpack_two_bit_run(at, 3, u); break;
    }
    if (bits) {
        SPECDEC__UNROLL
        for (i = 0; i < 8; i++)
            u[i] = _mm512_or_si512(
                u[i], specdec__avx512_value_where_bit_set(specdec__avx512_load_bytes(bits + i * 64), eighth, 4));
    }
}

#ifdef __clang__
typedef unsigned specdec__avx512_shift_count; /* the type of a shift's count in this compiler */
#else
typedef int specdec__avx512_shift_count;
#endif

/* Moves bit `from` of every byte to bit `to`; other bits are undefined. */
SPECDEC__AVX512 SPECDEC__INLINE __m512i specdec__avx512_move_bit(__m512i a, int from, int to)
{
    return from < to ? _mm512_slli_epi16(a, (specdec__avx512_shift_count)(to - from))
                     : _mm512_srli_epi16(a, (specdec__avx512_shift_count)(from - to));
}

/* Unpacks the codes of a block of Q8_0 in planes. upper: its part of the upper plane; lower: its part of the lower
   plane, or NULL. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_unpack_planes(const unsigned char *upper,
                                                                   const unsigned char *lower, __m512i u[8])
{
    const __m512i fifth = specdec__avx512_load_bytes(upper + 288);
    __m512i line, low = _mm512_set1_epi8(SPECDEC__PLANE_MIDDLE);
    int g;

    if (lower) {
        SPECDEC__UNROLL
        for (g = 0; g < SPECDEC__PLANE_LOWER; g += 64) /* the next blocks of the lower plane lie before this one */
            _mm_prefetch((const char *)((uintptr_t)lower - SPECDEC__PREFETCH_BYTES / 2 + (uintptr_t)g), _MM_HINT_T0);
    }
    SPECDEC__UNROLL
    for (g = 0; g < 8; g++) {
        if (lower) {
            low = specdec__avx512_move_bit(specdec__avx512_load_bytes(lower), g, 0);
            low = specdec__avx512_select_bits(2, specdec__avx512_move_bit(specdec__avx512_load_bytes(lower + 64), g, 1),
                                              low);
            low = specdec__avx512_select_bits(4, specdec__avx512_move_bit(specdec__avx512_load_bytes(lower + 128), g,
                                                                          2),
                                              low);
        }
        line = specdec__avx512_load_bytes(upper + 32 + g / 2 * 64);
        u[g] = specdec__avx512_select_bits(8, specdec__avx512_move_bit(fifth, g, 3), low);
        u[g] = specdec__avx512_select_bits(0xF0, g % 2 ? line : _mm512_slli_epi16(line, 4), u[g]);
    }
}

/* u (8 vectors) = the unsigned codes 32 * block to 32 * block + 31 of 16 rows of a tile of 256 values or of blocks of
   32. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_unpack_codes(int type, const unsigned char *tile,
                                                                  const specdec__panel *panel, int block, __m512i u[8])
{
    const unsigned char *own = type < SPECDEC__X86_PANEL_32 ? specdec__x86_find_file_block(type, tile, block) : tile;
    int i;

    switch (type) {
    SPECDEC__X86_CODES(avx512, own, specdec__x86_group_in_file_block(type, block), u)
    case SPECDEC__TYPE_Q8_0:
        SPECDEC__UNROLL
        for (i = 0; i < 8; i++)
            u[i] = _mm512_xor_si512(specdec__avx512_load_bytes(own + SPECDEC__TILE_AT(q8_0, codes) + i * 64),
                                    _mm512_set1_epi8((char)-128));
        break;
    case SPECDEC__X86_PLANE: specdec__avx512_unpack_planes(own, NULL, u); break;
    case SPECDEC__X86_PLANES:
        specdec__avx512_unpack_planes(own, specdec__plane_find_lower_block(panel->u.planes, own), u);
        break;
    default: /* the panel holds the codes */
        SPECDEC__UNROLL
        for (i = 0; i < 8; i++)
            u[i] = _mm512_loadu_si512(panel->u.codes + (size_t)block * 512 + i * 64);
        break;
    }
}

/* The pair of a granule of `count` vectors: the sum of its codes in the low half of a word, -bias in the high half. Its
   product with (offset, sum of activation codes) is the correction of a dot of unsigned codes for bias and offset. */
SPECDEC__AVX512 SPECDEC__INLINE __m512i specdec__avx512_make_pair_from_codes(int type, const __m512i *u, int count)
{
    const int bias = specdec__x86_bias(type);
    const __m512i ones = _mm512_set1_epi8(1);
    __m512i sum = _mm512_set1_epi32(-4 * count * bias), rest = u[0];
    int i;

    SPECDEC__UNROLL
    for (i = 1; i < count; i++)
        if (specdec__x86_highest_code(type) * count <= 255)
            rest = _mm512_add_epi8(rest, u[i]);
        else
            sum = _mm512_dpbusd_epi32(sum, u[i], ones);
    sum = _mm512_dpbusd_epi32(sum, rest, ones);
    return _mm512_mask_blend_epi16(0xAAAAAAAA, sum, _mm512_set1_epi16((short)-bias));
}

/* out (count, 16) = d times signed bytes (count, 16). */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_scales_times_factors(__m512 d, const int8_t *bytes, int count,
                                                                          float (*out)[SPECDEC__ROWS])
{
    int i;

    for (i = 0; i < count; i++)
        _mm512_storeu_ps(out[i], _mm512_mul_ps(d, specdec__avx512_from_bytes(bytes + i * 16)));
}

/* -a. */
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_negate(__m512 a)
{
    return _mm512_sub_ps(_mm512_set1_ps(-0.0f), a);
}

/* Unpacks the scales and minimums of Q4_K and Q5_K: d, dmin, 12 bytes of 6-bit factors. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_unpack_scales_q4_q5_k(const unsigned char *tile,
                                                                           specdec__panel *panel)
{
    const unsigned char *packed = tile + SPECDEC__TILE_AT(q4_k, scales), *dmin = tile + SPECDEC__TILE_AT(q4_k, dmin);
    const __m512i a = specdec__avx512_load_bytes(packed), b = specdec__avx512_load_bytes(packed + 64);
    const __m512i c = specdec__avx512_load_bytes(packed + 128);
    int8_t scales[128], minimums[128];

    _mm512_storeu_si512(scales, specdec__avx512_mask_bytes(a, 63));
    _mm512_storeu_si512(scales + 64,
                        specdec__avx512_mask_bytes(specdec__avx512_select_bits(15, c, _mm512_srli_epi16(a, 2)), 63));
    _mm512_storeu_si512(minimums, specdec__avx512_mask_bytes(b, 63));
    _mm512_storeu_si512(minimums + 64,
                        specdec__avx512_mask_bytes(
                            specdec__avx512_select_bits(15, _mm512_srli_epi16(c, 4), _mm512_srli_epi16(b, 2)), 63));
    specdec__avx512_scales_times_factors(specdec__avx512_from_f16(tile), scales, 8, panel->scale);
    specdec__avx512_scales_times_factors(specdec__avx512_negate(specdec__avx512_from_f16(dmin)), minimums, 8,
                                         panel->minimum);
}

/* Unpacks the scales and minimums of 256 values. All types but Q4_K and Q5_K unpack factors as AVX2 does. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_unpack_scales(int type, const unsigned char *tile,
                                                                   specdec__panel *panel)
{
    const unsigned char *d = tile + specdec__x86_offset_of_d(type);
    const int count = 256 / specdec__x86_values_per_scale(type);

    if (type == SPECDEC__TYPE_Q4_K || type == SPECDEC__TYPE_Q5_K) {
        specdec__avx512_unpack_scales_q4_q5_k(tile, panel);
    } else {
        int8_t room[512];
        const int8_t *factors = specdec__avx2_unpack_factors(type, tile, room);

        specdec__avx512_scales_times_factors(specdec__avx512_from_f16(d), factors, count, panel->scale);
        if (specdec__x86_has_minimum(type))
            specdec__avx512_scales_times_factors(
                specdec__avx512_negate(specdec__avx512_from_f16(d + 2 * SPECDEC__ROWS)), factors + 256, count,
                panel->minimum);
    }
}

/* specdec__quant_e8m0_divided_by_2 of 16 bytes. */
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_e8m0_divided_by_2(const unsigned char *at)
{
    const __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)at));
    const __m512i one = _mm512_set1_epi32(1);
    const __m512i small = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), _mm512_min_epi32(e, one));

    return _mm512_castsi512_ps(_mm512_max_epi32(_mm512_slli_epi32(_mm512_sub_epi32(e, one), 23), small));
}

/* specdec__quant_e4m3_divided_by_2 of byte i of each of 16 words. */
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_e4m3_divided_by_2(const unsigned char *words, int i)
{
    const __m512i v = _mm512_and_si512(_mm512_srl_epi32(specdec__avx512_load_bytes(words), _mm_cvtsi32_si128(i * 8)),
                                       _mm512_set1_epi32(127));
    const __m512i normal = _mm512_add_epi32(_mm512_slli_epi32(v, 20), _mm512_set1_epi32(119 << 23));
    const __m512 small = _mm512_mul_ps(_mm512_cvtepi32_ps(v), _mm512_set1_ps(1.0f / 1024));
    const __m512 value = _mm512_mask_blend_ps(_mm512_cmplt_epi32_mask(v, _mm512_set1_epi32(8)),
                                              _mm512_castsi512_ps(normal), small);

    return _mm512_maskz_mov_ps(_mm512_cmpneq_epi32_mask(v, _mm512_set1_epi32(127)), value);
}

/* The scale of granule g of 32 values of a type without factors of scales. file_block, group: as own and part of
   SPECDEC__X86_CODES. */
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_scale_without_factor(int type, const unsigned char *file_block,
                                                                            int group, int g)
{
    if (type == SPECDEC__TYPE_MXFP4)
        return specdec__avx512_e8m0_divided_by_2(file_block);
    if (type == SPECDEC__TYPE_NVFP4)
        return specdec__avx512_e4m3_divided_by_2(file_block, group * 2 + g);
    return specdec__avx512_from_f16(file_block + specdec__x86_offset_of_d(type));
}

#define SPECDEC__AVX512_REGISTER_COLUMNS 6  /* columns up to which sums stay in registers, tile after tile */
#define SPECDEC__AVX512_PAIR_COLUMNS 4 /* columns up to which they do for two tiles side by side, and for rare types */

/* A block of 32 values of a tile, unpacked in registers as far as there are enough: codes (vector), pair, scale and
   minimum (granule). */
typedef struct specdec__avx512_block {
    __m512i codes[8], pair[2];   /* (vector) unsigned codes; (granule) pairs that correct dots */
    __m512 scale[2], minimum[2]; /* (granule) scales, minimums */
} specdec__avx512_block;

/* Unpacks block `block` of a tile, or of a panel, into registers. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_unpack_block(int type, const unsigned char *tile, int block,
                                                                  const specdec__panel *panel,
                                                                  specdec__avx512_block *out)
{
    const int granule = specdec__x86_values_per_scale(type), per = 32 / granule,
              plain = specdec__x86_has_scale_without_factors(type);
    const int unpacked = type >= SPECDEC__X86_PANEL_32;
    const unsigned char *own = unpacked ? tile : specdec__x86_find_file_block(type, tile, block);
    int i;

    specdec__avx512_unpack_codes(type, tile, panel, block, out->codes);
    SPECDEC__UNROLL
    for (i = 0; i < 8; i++)
        SPECDEC__KEEP_IN_REGISTER(out->codes[i]);
    SPECDEC__UNROLL
    for (i = 0; i < per; i++) {
        out->pair[i] = unpacked ? _mm512_loadu_si512(panel->pair[block * per + i])
                                : specdec__avx512_make_pair_from_codes(type, out->codes + i * 4, granule / 4);
        out->scale[i] = plain ? specdec__avx512_scale_without_factor(type, own,
                                                                     specdec__x86_group_in_file_block(type, block), i)
                              : _mm512_loadu_ps(panel->scale[block * per + i]);
        if (specdec__x86_has_minimum(type))
            out->minimum[i] = plain ? specdec__avx512_from_f16(own + 2 * SPECDEC__ROWS)
                                    : _mm512_loadu_ps(panel->minimum[block * per + i]);
    }
}

/* integers (tiles, columns) = the dots of granule g of a block of each tile with columns from c on. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_dot_integers(int type, int tiles, int columns,
                                                                  const specdec__avx512_block *blocks, int g,
                                                                  const specdec__x86_columns *x, int c,
                                                                  __m512i *integers)
{
    const int vectors = specdec__x86_values_per_scale(type) / 4, per = 8 / vectors,
              chains = tiles == 1 && per == 1 ? 2 : 1;
    const int32_t *codes = x->codes + c * 8 + g * 4, *pairs = x->pairs + c * per + g;
    __m512i odd[SPECDEC__AVX512_REGISTER_COLUMNS], value;
    int i, k, t;

    SPECDEC__UNROLL
    for (k = 0; k < columns; k++) {
        odd[k] = _mm512_setzero_si512();
        SPECDEC__UNROLL
        for (t = 0; t < tiles; t++)
            integers[t * columns + k] = _mm512_setzero_si512();
    }
    SPECDEC__UNROLL
    for (i = 0; i < vectors; i++)
        SPECDEC__UNROLL
        for (k = 0; k < columns; k++) {
            __m512i *to = i % chains ? &odd[k] : &integers[k];

            if (tiles == 1) {
                *to = specdec__avx512_add_byte_products(*to, blocks[0].codes[g * 4 + i], &codes[k * 8 + i]);
                continue;
            }
            value = _mm512_set1_epi32(codes[k * 8 + i]);
            SPECDEC__KEEP_IN_REGISTER(value); /* loaded once for both tiles */
            SPECDEC__UNROLL
            for (t = 0; t < tiles; t++)
                integers[t * columns + k] =
                    _mm512_dpbusd_epi32(integers[t * columns + k], blocks[t].codes[g * 4 + i], value);
        }
    SPECDEC__UNROLL
    for (k = 0; k < columns; k++) /* last, so that no product waits for the pair */
        SPECDEC__UNROLL
        for (t = 0; t < tiles; t++) {
            integers[t * columns + k] = specdec__avx512_add_16_bit_products(integers[t * columns + k],
                                                                            blocks[t].pair[g], &pairs[k * per]);
            if (chains == 2)
                integers[t * columns + k] = _mm512_add_epi32(integers[t * columns + k], odd[k]);
        }
}

/* sum += the contribution of granule g of a block with column c: scales times integers, and minimums. */
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_add_granule(int type, const specdec__avx512_block *block, int g,
                                                                   const specdec__x86_columns *x, int c,
                                                                   __m512i integers, __m512 sum)
{
    const int per = 32 / specdec__x86_values_per_scale(type);

    sum = _mm512_fmadd_ps(_mm512_mul_ps(block->scale[g], _mm512_set1_ps(x->scales[c])), _mm512_cvtepi32_ps(integers),
                          sum);
    if (specdec__x86_has_minimum(type))
        sum = _mm512_fmadd_ps(block->minimum[g], _mm512_set1_ps(x->totals[c * per + g]), sum);
    return sum;
}

/* sums[tile] (column, 16) += a block of each tile times columns from c on. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_multiply_columns(int type, int tiles, int columns,
                                                                      const specdec__avx512_block *blocks,
                                                                      const specdec__x86_columns *x, int c,
                                                                      float *const *sums)
{
    __m512i integers[8];
    int g, k, t;

    SPECDEC__UNROLL
    for (g = 0; g < 32 / specdec__x86_values_per_scale(type); g++) {
        specdec__avx512_dot_integers(type, tiles, columns, blocks, g, x, c, integers);
        SPECDEC__UNROLL
        for (k = 0; k < columns; k++)
            SPECDEC__UNROLL
            for (t = 0; t < tiles; t++) {
                float *to = sums[t] + (c + k) * SPECDEC__ROWS;

                _mm512_storeu_ps(to, specdec__avx512_add_granule(type, blocks + t, g, x, c + k,
                                                                 integers[t * columns + k], _mm512_loadu_ps(to)));
            }
    }
}

/* Multiplies a block of one or two tiles with `count` columns. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_multiply_block(int type, int tiles,
                                                                    const specdec__avx512_block *taken,
                                                                    const specdec__columns *x, size_t at, int count,
                                                                    float *const *sums)
{
    const specdec__x86_columns from = specdec__x86_columns_of_block(x, at, 32 / specdec__x86_values_per_scale(type));
    int c;

    for (c = 0; c + 4 <= count; c += 4)
        specdec__avx512_multiply_columns(type, tiles, 4, taken, &from, c, sums);
    for (; c < count; c++)
        specdec__avx512_multiply_columns(type, tiles, 1, taken, &from, c, sums);
}

/* Multiplies two tiles side by side with `count` columns, so that a column's codes are read once for both. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_multiply_two_tiles(int type, const specdec__tiles *tiles,
                                                                        int blocks, specdec__panel *panels,
                                                                        const specdec__columns *x, size_t at, int count,
                                                                        float *const *sums)
{
    const int run = specdec__x86_has_scale_without_factors(type) ? blocks : 8;
    const size_t span = (size_t)specdec__x86_block_bytes(type), end = (size_t)blocks * span, n = (size_t)x->n;
    specdec__avx512_block taken[2];
    size_t from;
    int b, t;

    for (from = 0; from < end; from += (size_t)run * span) {
        if (!specdec__x86_has_scale_without_factors(type))
            for (t = 0; t < 2; t++)
                specdec__avx512_unpack_scales(type, tiles->tile[t] + from, panels + t);
        for (b = 0; b < run; b++, at += n) {
            SPECDEC__UNROLL
            for (t = 0; t < 2; t++) {
                specdec__x86_prefetch_ahead((int)span, tiles->tile[t], from + (size_t)b * span, end, tiles->next[t]);
                specdec__avx512_unpack_block(type, tiles->tile[t] + from, b, panels + t, taken + t);
            }
            specdec__avx512_multiply_block(type, 2, taken, x, at, count, sums);
        }
    }
}

/* acc (tiles, most) += a block of one or two tiles times `columns` columns. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_multiply_register_block(int type, int tiles, int most, int columns,
                                                                             const specdec__avx512_block *taken,
                                                                             const specdec__columns *x, size_t at,
                                                                             __m512 *acc)
{
    const int per = 32 / specdec__x86_values_per_scale(type);
    const specdec__x86_columns from = specdec__x86_columns_of_block(x, at, per);
    __m512i integers[2 * SPECDEC__AVX512_PAIR_COLUMNS];
    int g, k, t;

    SPECDEC__UNROLL
    for (g = 0; g < per; g++) {
        specdec__avx512_dot_integers(type, tiles, columns, taken, g, &from, 0, integers);
        SPECDEC__UNROLL
        for (t = 0; t < tiles; t++)
            SPECDEC__UNROLL
            for (k = 0; k < columns; k++)
                acc[t * most + k] = specdec__avx512_add_granule(type, taken + t, g, &from, k, integers[t * columns + k],
                                                                acc[t * most + k]);
    }
}

/* acc (tiles, most) += a block of one or two tiles times `count` columns, 1 to most. tiles and most are constants, here
   and below: 4 or 6 columns of one tile, 4 of two. All counts share the code that unpacks. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_multiply_register_columns(int type, int tiles, int most, int count,
                                                                               const specdec__avx512_block *taken,
                                                                               const specdec__columns *x, size_t at,
                                                                               __m512 *acc)
{
    if (count == 1)
        specdec__avx512_multiply_register_block(type, tiles, most, 1, taken, x, at, acc);
    else if (count == 2)
        specdec__avx512_multiply_register_block(type, tiles, most, 2, taken, x, at, acc);
    else if (count == 3)
        specdec__avx512_multiply_register_block(type, tiles, most, 3, taken, x, at, acc);
    else if (count == 4 || most == 4)
        specdec__avx512_multiply_register_block(type, tiles, most, 4, taken, x, at, acc);
    else if (count == 5)
        specdec__avx512_multiply_register_block(type, tiles, most, 5, taken, x, at, acc);
    else
        specdec__avx512_multiply_register_block(type, tiles, most, 6, taken, x, at, acc);
}

/* Loads sums (count, 16) into acc (most). */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_load_sums_into_registers(int most, int count, const float *sums,
                                                                              __m512 *acc)
{
    int k;

    SPECDEC__UNROLL
    for (k = 0; k < most; k++)
        acc[k] = k < count ? _mm512_loadu_ps(sums + k * SPECDEC__ROWS) : _mm512_setzero_ps();
}

/* Stores acc (most) in sums (count, 16). */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_store_sums_from_registers(int most, int count, const __m512 *acc,
                                                                               float *sums)
{
    int k;

    SPECDEC__UNROLL
    for (k = 0; k < most; k++)
        if (k < count)
            _mm512_storeu_ps(sums + k * SPECDEC__ROWS, acc[k]);
}

/* specdec__x86_prefetch_ahead with a distance of `ahead` bytes, into the cache that `hint` names. (Not the same
   function: gcc would place the prefetches for many columns elsewhere, which makes Q8_0 3 to 9 % slower.) */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_prefetch(int bytes, const unsigned char *tile, size_t at,
                                                              size_t end, const unsigned char *next, int hint,
                                                              int ahead)
{
    const char *from = (const char *)(at + (size_t)ahead < end ? tile + at : next + at - end) + ahead;
    int i;

    __asm__("" : "+r"(from)); /* else gcc encodes `ahead` in every instruction */
    SPECDEC__UNROLL
    for (i = 0; i < bytes; i += 64)
        if (hint == _MM_HINT_T0)
            _mm_prefetch(from + i, _MM_HINT_T0);
        else
            _mm_prefetch(from + i, _MM_HINT_T1);
}

/* Multiplies one or two tiles with 1 to `most` columns, whose sums stay in registers: in memory, every block would wait
   for the sums of the block before. next: the weights read after each tile. Intel's first-level cache can wait for few
   lines at a time: weights are prefetched into the second-level cache early, and at the smaller distance `lead` into
   the first (not for Q6_K, whose scales lie behind the codes and are read before them). A block's own loads come before
   prefetches for later blocks. */
SPECDEC__AVX512 SPECDEC__INLINE void
specdec__avx512_multiply_register_tiles(int type, int tiles, int most, int count, const unsigned char *const *tile,
                                        const unsigned char *const *next, int lead, int blocks, specdec__panel *panels,
                                        const specdec__columns *x, size_t at, float *const *sums)
{
    const int run = specdec__x86_has_scale_without_factors(type) ? blocks : 8;
    const size_t span = (size_t)specdec__x86_block_bytes(type), end = (size_t)blocks * span, n = (size_t)x->n;
    specdec__avx512_block taken[2];
    __m512 acc[2 * SPECDEC__AVX512_PAIR_COLUMNS];
    size_t from;
    int b, t;

    SPECDEC__UNROLL
    for (t = 0; t < tiles; t++)
        specdec__avx512_load_sums_into_registers(most, count, sums[t], acc + t * most);
    for (from = 0; from < end; from += (size_t)run * span) {
        for (t = 0; t < tiles && !specdec__x86_has_scale_without_factors(type); t++)
            specdec__avx512_unpack_scales(type, tile[t] + from, panels + t);
        for (b = 0; b < run; b++, at += n) {
            const size_t place = from + (size_t)b * span;

            SPECDEC__UNROLL
            for (t = 0; t < tiles; t++) {
                specdec__avx512_prefetch((int)span, tile[t], place, end, next[t], _MM_HINT_T0,
                                         type == SPECDEC__TYPE_Q6_K ? SPECDEC__PREFETCH_BYTES : lead);
                specdec__avx512_unpack_block(type, tile[t] + from, b, panels + t, taken + t);
                if (tiles == 2 || lead != SPECDEC__PREFETCH_BYTES)
                    specdec__avx512_prefetch((int)span, tile[t], place, end, next[t], _MM_HINT_T1,
                                             SPECDEC__PREFETCH_BYTES);
            }
            specdec__avx512_multiply_register_columns(type, tiles, most, count, taken, x, at, acc);
        }
    }
    SPECDEC__UNROLL
    for (t = 0; t < tiles; t++)
        specdec__avx512_store_sums_from_registers(most, count, acc + t * most, sums[t]);
}

/* specdec__multiply_function of a type. Few columns: tile after tile, or with a smaller prefetch distance side by side,
   whichever reads memory faster on this machine. A single tile with many columns, which is rare: a few columns at a
   time. Rare types make do with less machine code. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_multiply(int type, const specdec__tiles *tiles, int blocks,
                                                              specdec__panel *panels, const specdec__columns *x,
                                                              int block, int column, int count, float *const *sums)
{
    const int rare = specdec__x86_is_rare_type(type),
              most = rare ? SPECDEC__AVX512_PAIR_COLUMNS : SPECDEC__AVX512_REGISTER_COLUMNS,
              lead = rare ? SPECDEC__PREFETCH_BYTES : tiles->l1_bytes;
    size_t at = (size_t)block * (size_t)x->n + (size_t)column;
    int t, c, few;

    for (t = 0; t < 2 && tiles->tile[t] && !block; t++)
        memset(sums[t], 0, (size_t)count * SPECDEC__ROWS * sizeof(float));
    if (count > most && tiles->tile[1]) {
        specdec__avx512_multiply_two_tiles(type, tiles, blocks, panels, x, at, count, sums);
        return;
    }
    if (count <= SPECDEC__AVX512_PAIR_COLUMNS && tiles->tile[1] && lead != SPECDEC__PREFETCH_BYTES) {
        specdec__avx512_multiply_register_tiles(type, 2, SPECDEC__AVX512_PAIR_COLUMNS, count, tiles->tile, tiles->next,
                                                lead, blocks, panels, x, at, sums);
        return;
    }
    for (t = 0; t < 2 && tiles->tile[t]; t++) {
        const unsigned char *next = !t && tiles->tile[1] ? tiles->tile[1] : tiles->next[0];

        for (c = 0; c < count; c += few) {
            float *const to = sums[t] + c * SPECDEC__ROWS;

            few = specdec__min_int(count - c, most);
            specdec__avx512_multiply_register_tiles(type, 1, most, few, tiles->tile + t, &next, lead, blocks, panels, x,
                                                    at + (size_t)c, &to);
        }
    }
}

#define SPECDEC__AVX512_MULTIPLY(isa, number) SPECDEC__MULTIPLY(isa, SPECDEC__AVX512, number)
SPECDEC__X86_COMMON_TYPES(SPECDEC__AVX512_MULTIPLY, avx512)
SPECDEC__X86_RARE_TYPES(SPECDEC__AVX512_MULTIPLY, avx512)

/* Defines the multiply functions of Q8_0 in planes; tiles[] points to the upper planes. */
#define SPECDEC__AVX512_PLANES(name, type) \
    SPECDEC__AVX512 static void \
    specdec__avx512_multiply_##name(const specdec__tiles *tiles, int blocks, specdec__panel *panels, \
                                    const specdec__columns *x, int block, int column, int count, float *const *sums) \
    { \
        panels[0].u.planes = panels[1].u.planes = tiles->planes; \
        specdec__avx512_multiply(type, tiles, blocks, panels, x, block, column, count, sums); \
    }
SPECDEC__AVX512_PLANES(plane, SPECDEC__X86_PLANE)
SPECDEC__AVX512_PLANES(planes, SPECDEC__X86_PLANES)

/* sums (count, 16) += a panel times 1 to 4 columns. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_dot_columns(int type, int count,
                                                                 const specdec__panel *panel, int blocks,
                                                                 const specdec__columns *x, size_t at, float *sums)
{
    specdec__avx512_block taken;
    __m512 acc[SPECDEC__AVX512_REGISTER_COLUMNS];
    int b;

    specdec__avx512_load_sums_into_registers(4, count, sums, acc);
    for (b = 0; b < blocks; b++, at += (size_t)x->n) {
        specdec__avx512_unpack_block(type, NULL, b, panel, &taken);
        specdec__avx512_multiply_register_columns(type, 1, 4, count, &taken, x, at, acc);
    }
    specdec__avx512_store_sums_from_registers(4, count, acc, sums);
}

/* sums (count, 16) += a panel times `count` columns, 4 at a time. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_dot(int type, const specdec__panel *panel, int blocks,
                                                         const specdec__columns *x, size_t at, int count, float *sums)
{
    int few;

    for (; count; count -= few, at += (size_t)few, sums += few * SPECDEC__ROWS) {
        few = specdec__min_int(count, 4);
        specdec__avx512_dot_columns(type, few, panel, blocks, x, at, sums);
    }
}

/* sums[panel] (count, 16) += two panels times columns, so that a column's codes are read once for both. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_dot_two_panels(int type, const specdec__panel *panels, int blocks,
                                                                    const specdec__columns *x, size_t at, int count,
                                                                    float *const *sums)
{
    specdec__avx512_block taken[2];
    int b;

    for (b = 0; b < blocks; b++, at += (size_t)x->n) {
        specdec__avx512_unpack_block(type, NULL, b, panels, taken);
        specdec__avx512_unpack_block(type, NULL, b, panels + 1, taken + 1);
        specdec__avx512_multiply_block(type, 2, taken, x, at, count, sums);
    }
}

#define SPECDEC__AVX512_DOT_PAIR(name, type) \
    SPECDEC__AVX512 static void specdec__avx512_pair_##name(const specdec__panel *panels, int blocks, \
                                                            const specdec__columns *x, int block, int column, \
                                                            int count, float *const *sums) \
    { \
        const size_t at = (size_t)block * (size_t)x->n + (size_t)column; \
        specdec__avx512_dot_two_panels(type, panels, blocks, x, at, count, sums); \
    }

SPECDEC__AVX512_DOT_PAIR(16, SPECDEC__X86_PANEL_16)
SPECDEC__AVX512_DOT_PAIR(32, SPECDEC__X86_PANEL_32)

#define SPECDEC__AVX512_DOT(name, type) \
    SPECDEC__AVX512 static void \
    specdec__avx512_dot_##name(const specdec__panel *panel, int blocks, const specdec__columns *x, int block, \
                               int column, int count, float *sums) \
    { \
        const size_t at = (size_t)block * (size_t)x->n + (size_t)column; \
        specdec__avx512_dot(type, panel, blocks, x, at, count, sums); \
    }

SPECDEC__AVX512_DOT(16, SPECDEC__X86_PANEL_16)
SPECDEC__AVX512_DOT(32, SPECDEC__X86_PANEL_32)

#define SPECDEC__ISA avx512
#define SPECDEC__TARGET SPECDEC__AVX512
#define SPECDEC__LANES 16
#define SPECDEC__WIDTH 4
#include SPECDEC__FILE

/* value_sums of SPECDEC__WEIGH_CODES for two tiles and four columns. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_value_sums(const int8_t *values, int keys, const uint8_t *codes,
                                                                const unsigned char *next, __m512 *sums)
{
    __m512i acc[4][2], value[2], code;
    int key, c, i;

    SPECDEC__UNROLL
    for (c = 0; c < 4; c++)
        acc[c][0] = acc[c][1] = _mm512_setzero_si512();
    for (key = 0; key < keys; key += 4) {
        SPECDEC__UNROLL
        for (i = 0; i < 2; i++) {
            specdec__weigh_prefetch_page_lines(next, (key + i * SPECDEC__KEYS) * SPECDEC__ROWS);
            value[i] = _mm512_loadu_si512(values + (key + i * SPECDEC__KEYS) * SPECDEC__ROWS);
        }
        SPECDEC__UNROLL
        for (c = 0; c < 4; c++) {
            code = _mm512_set1_epi32((int)specdec__load_u32(codes + c * SPECDEC__KEYS + key));
            SPECDEC__UNROLL
            for (i = 0; i < 2; i++)
                acc[c][i] = _mm512_dpbusd_epi32(acc[c][i], code, value[i]);
        }
    }
    SPECDEC__UNROLL
    for (c = 0; c < 4; c++)
        SPECDEC__UNROLL
        for (i = 0; i < 2; i++)
            sums[c * 2 + i] = _mm512_cvtepi32_ps(acc[c][i]);
}

SPECDEC__WEIGH_CODES(avx512, avx512, SPECDEC__AVX512, 2, 4, SPECDEC__UNROLL)
#endif /* x86_64 */
