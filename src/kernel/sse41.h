/* =====================================================================================================================
 * >>kernel/sse41: SSE4.1 with SSSE3: vector operations, unpackers and dots of common types.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../quant/types.h"
#include "kernel.h"
#include "scalar.h"
#include "weigh.h"
#include "x86.h"

#if defined(__x86_64__) && !defined(SPECDEC_NO_SIMD)
#define SPECDEC__SSE41 __attribute__((target("sse4.1"))) SPECDEC__UNSANITIZED

/* The vector of SSE4.1: four float lanes. */
typedef __m128 specdec__sse41_v;

/* Functions for the operations of SPECDEC__LANE_OPERATIONS. */
SPECDEC__SSE41 SPECDEC__INLINE __m128 specdec__sse41_set(float a) { return _mm_set1_ps(a); }
SPECDEC__SSE41 SPECDEC__INLINE __m128 specdec__sse41_add(__m128 a, __m128 b) { return _mm_add_ps(a, b); }
SPECDEC__SSE41 SPECDEC__INLINE __m128 specdec__sse41_sub(__m128 a, __m128 b) { return _mm_sub_ps(a, b); }
SPECDEC__SSE41 SPECDEC__INLINE __m128 specdec__sse41_mul(__m128 a, __m128 b) { return _mm_mul_ps(a, b); }
SPECDEC__SSE41 SPECDEC__INLINE __m128 specdec__sse41_div(__m128 a, __m128 b) { return _mm_div_ps(a, b); }
SPECDEC__SSE41 SPECDEC__INLINE __m128 specdec__sse41_max(__m128 a, __m128 b) { return _mm_max_ps(a, b); }
SPECDEC__SSE41 SPECDEC__INLINE __m128 specdec__sse41_min(__m128 a, __m128 b) { return _mm_min_ps(a, b); }
SPECDEC__SSE41 SPECDEC__INLINE __m128 specdec__sse41_times_power_of_2(__m128 a, __m128 shifter)
{
    return _mm_castsi128_ps(_mm_add_epi32(_mm_castps_si128(a), _mm_slli_epi32(_mm_castps_si128(shifter), 23)));
}

/* Returns product + addend rounded to odd, from their rounded sum: if the sum is inexact and even, it is moved one unit
   towards zero if the error points there, and its last bit is set. */
SPECDEC__SSE41 SPECDEC__INLINE __m128d specdec__sse41_round_to_odd(__m128d product, __m128d addend, __m128d sum)
{
    __m128d back = _mm_sub_pd(sum, product), zero = _mm_setzero_pd();
    __m128d error = _mm_add_pd(_mm_sub_pd(product, _mm_sub_pd(sum, back)), _mm_sub_pd(addend, back));
    __m128d inexact = _mm_or_pd(_mm_cmplt_pd(error, zero), _mm_cmpgt_pd(error, zero)); /* 0 for NaNs */
    __m128i odd = _mm_srli_epi64(_mm_castpd_si128(inexact), 63),
            opposite = _mm_srli_epi64(_mm_castpd_si128(_mm_xor_pd(error, sum)), 63);

    return _mm_castsi128_pd(_mm_or_si128(_mm_sub_epi64(_mm_castpd_si128(sum), _mm_and_si128(odd, opposite)), odd));
}

/* Returns specdec__fma of four lanes, by rounding to odd. */
SPECDEC__SSE41 static __attribute__((noinline)) __m128 specdec__sse41_fma_odd(__m128 a, __m128 b, __m128 c)
{
    __m128d low = _mm_mul_pd(_mm_cvtps_pd(a), _mm_cvtps_pd(b)), low_addend = _mm_cvtps_pd(c);
    __m128d high = _mm_mul_pd(_mm_cvtps_pd(_mm_movehl_ps(a, a)), _mm_cvtps_pd(_mm_movehl_ps(b, b)));
    __m128d high_addend = _mm_cvtps_pd(_mm_movehl_ps(c, c));

    return _mm_movelh_ps(_mm_cvtpd_ps(specdec__sse41_round_to_odd(low, low_addend, _mm_add_pd(low, low_addend))),
                         _mm_cvtpd_ps(specdec__sse41_round_to_odd(high, high_addend, _mm_add_pd(high, high_addend))));
}

/* Returns specdec__fma of four lanes. Rounding to odd matters only for sums half way between two floats, where the 29
   bits that a float lacks are 1000..., and for subnormal floats (below 2^-126), which lack more bits; all other sums
   are rounded directly. */
SPECDEC__SSE41 SPECDEC__INLINE __m128 specdec__sse41_madd(__m128 a, __m128 b, __m128 c)
{
    __m128d low = _mm_add_pd(_mm_mul_pd(_mm_cvtps_pd(a), _mm_cvtps_pd(b)), _mm_cvtps_pd(c));
    __m128d high = _mm_add_pd(_mm_mul_pd(_mm_cvtps_pd(_mm_movehl_ps(a, a)), _mm_cvtps_pd(_mm_movehl_ps(b, b))),
                              _mm_cvtps_pd(_mm_movehl_ps(c, c)));
    __m128i ends = _mm_castps_si128(_mm_shuffle_ps(_mm_castpd_ps(low), _mm_castpd_ps(high), 0x88));
    __m128i tops = _mm_castps_si128(_mm_shuffle_ps(_mm_castpd_ps(low), _mm_castpd_ps(high), 0xDD));
    __m128i half = _mm_cmpeq_epi32(_mm_slli_epi32(ends, 3), _mm_set1_epi32((int)0x80000000u)), tiny;

    tops = _mm_and_si128(tops, _mm_set1_epi32(0x7FFFFFFF)); /* without the sign */
    tiny = _mm_and_si128(_mm_cmplt_epi32(tops, _mm_set1_epi32((1023 - 126) << 20)),
                         _mm_cmpgt_epi32(tops, _mm_setzero_si128()));
    if (__builtin_expect(_mm_movemask_epi8(_mm_or_si128(half, tiny)), 0))
        return specdec__sse41_fma_odd(a, b, c);
    return _mm_movelh_ps(_mm_cvtpd_ps(low), _mm_cvtpd_ps(high));
}
/* Functions for further operations of SPECDEC__LANE_OPERATIONS. */
SPECDEC__SSE41 SPECDEC__INLINE __m128 specdec__sse41_load(const float *at) { return _mm_loadu_ps(at); }
SPECDEC__SSE41 SPECDEC__INLINE void specdec__sse41_store(float *at, __m128 a) { _mm_storeu_ps(at, a); }
SPECDEC__SSE41 SPECDEC__INLINE int32_t specdec__sse41_bits_of_lane_0(__m128 a)
{
    return _mm_cvtsi128_si32(_mm_castps_si128(a));
}

/* Converts four signed bytes to floats. */
SPECDEC__SSE41 SPECDEC__INLINE __m128 specdec__sse41_load_bytes(const int8_t *at)
{
    return _mm_cvtepi32_ps(_mm_cvtepi8_epi32(_mm_cvtsi32_si128((int)specdec__load_u32(at))));
}
SPECDEC__SSE41 SPECDEC__INLINE __m128 specdec__sse41_load_bf16(const void *at)
{
    return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), _mm_loadl_epi64((const __m128i *)at)));
}
/* Converts half floats to floats: shifts the bits up by 13 and adds 112 to the exponent; infinities and NaNs get the
   largest exponent. A subnormal gets 113 and thus a leading 1, which is subtracted again: no operand is a subnormal
   float, which processors are slow with, or take for 0 where the program wants that. */
SPECDEC__SSE41 SPECDEC__INLINE __m128 specdec__sse41_load_f16(const void *at)
{
    __m128i half = _mm_cvtepu16_epi32(_mm_loadl_epi64((const __m128i *)at));
    __m128i bits = _mm_slli_epi32(_mm_and_si128(half, _mm_set1_epi32(0x7FFF)), 13);
    __m128i sign = _mm_slli_epi32(_mm_and_si128(half, _mm_set1_epi32(0x8000)), 16);
    __m128i all_ones = _mm_and_si128(_mm_cmpgt_epi32(bits, _mm_set1_epi32(0x0F7FFFFF)), _mm_set1_epi32(0x7F800000));
    __m128i small = _mm_cmplt_epi32(bits, _mm_set1_epi32(1 << 23));
    __m128i exponent = _mm_sub_epi32(_mm_set1_epi32(112 << 23), _mm_slli_epi32(small, 23));
    __m128 magnitude = _mm_sub_ps(_mm_castsi128_ps(_mm_add_epi32(bits, exponent)),
                                  _mm_castsi128_ps(_mm_and_si128(small, _mm_set1_epi32(113 << 23))));

    return _mm_or_ps(magnitude, _mm_castsi128_ps(_mm_or_si128(sign, all_ones)));
}
SPECDEC__SSE41 SPECDEC__INLINE void specdec__sse41_store_f16(void *at, __m128 a)
{
    float lanes[4];
    int i;

    _mm_storeu_ps(lanes, a);
    for (i = 0; i < 4; i++)
        specdec__store_u16((unsigned char *)at + i * 2, specdec__f16_from_float(lanes[i]));
}
SPECDEC__SSE41 SPECDEC__INLINE void specdec__sse41_store_low_bytes(int8_t *at, __m128 a)
{
    __m128i bytes = _mm_shuffle_epi8(_mm_castps_si128(a), _mm_set1_epi32(0x0C080400));

    specdec__store_u32(at, (uint32_t)_mm_cvtsi128_si32(bytes));
}
SPECDEC__SSE41 SPECDEC__INLINE float specdec__sse41_sum(const __m128 *parts)
{
    __m128 y = _mm_add_ps(_mm_add_ps(parts[0], parts[2]), _mm_add_ps(parts[1], parts[3]));

    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}
SPECDEC__SSE41 SPECDEC__INLINE float specdec__sse41_largest_lane(const __m128 *parts)
{
    __m128 y = _mm_max_ps(_mm_max_ps(parts[0], parts[2]), _mm_max_ps(parts[1], parts[3]));

    y = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}
SPECDEC__HIGHEST4(sse41, SPECDEC__SSE41, 4)
SPECDEC__SSE41 SPECDEC__INLINE int32_t specdec__sse41_sum_codes(const int8_t *codes)
{
    __m128i high = _mm_set1_epi8((char)-128), v = _mm_loadu_si128((const __m128i *)(const void *)codes);
    __m128i sums = _mm_sad_epu8(_mm_xor_si128(v, high), _mm_setzero_si128());
    return _mm_cvtsi128_si32(sums) + _mm_extract_epi32(sums, 2) - 16 * 128;
}
#define specdec__sse41_compute_noise_bits specdec__scalar_compute_noise_bits

#define SPECDEC__ISA sse41
#define SPECDEC__TARGET SPECDEC__SSE41
#define SPECDEC__LANES 4
#define SPECDEC__WIDTH 2
SPECDEC__FOR_SIZE
#include SPECDEC__FILE
SPECDEC__FOR_SPEED

/* Computes the sums over keys of codes times 8-bit values, for 16 dimensions and one query: value_sums of
   SPECDEC__WEIGH_CODES. */
SPECDEC__SSE41 SPECDEC__INLINE void specdec__sse41_value_sums(const int8_t *values, int keys, const uint8_t *codes,
                                                              const unsigned char *next, __m128 *sums)
{
    __m128i acc[8];
    int key, i;

    SPECDEC__UNROLL
    for (i = 0; i < 8; i++)
        acc[i] = _mm_setzero_si128();
    for (key = 0; key < keys; key += 4) {
        const __m128i code = _mm_cvtepu8_epi16(_mm_set1_epi32((int)specdec__load_u32(codes + key)));
        const int8_t *from = values + key * SPECDEC__ROWS;

        specdec__weigh_prefetch_page_lines(next, key * SPECDEC__ROWS);
        SPECDEC__UNROLL
        for (i = 0; i < 8; i++) {
            __m128i value = _mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i *)(const void *)(from + i * 8)));

            acc[i] = _mm_add_epi32(acc[i], _mm_madd_epi16(code, value));
        }
    }
    SPECDEC__UNROLL
    for (i = 0; i < 4; i++)
        sums[i] = _mm_cvtepi32_ps(_mm_hadd_epi32(acc[2 * i], acc[2 * i + 1]));
}

SPECDEC__WEIGH_CODES(sse41, sse41, SPECDEC__SSE41, 1, 1, )

/* Loads 16 bytes. */
SPECDEC__SSE41 SPECDEC__INLINE __m128i specdec__sse41_load_16(const void *at)
{
    return _mm_loadu_si128((const __m128i *)at);
}
/* Stores 16 bytes. */
SPECDEC__SSE41 SPECDEC__INLINE void specdec__sse41_store_16(void *at, __m128i v)
{
    _mm_storeu_si128((__m128i *)at, v);
}
/* Returns every byte of a, with only the bits that are set in mask. */
SPECDEC__SSE41 SPECDEC__INLINE __m128i specdec__sse41_mask_bytes(__m128i a, int mask)
{
    return _mm_and_si128(a, _mm_set1_epi8((char)mask));
}

/* Modes of multiplying codes w with signed x, by the size of w: unsigned 4 or 6 bits, or signed 8 bits. Two products
   are added in every 16-bit lane; 8, 2 or 1 such sums can be added there without reaching 2^15. */
enum { SPECDEC__SSE41_4BIT, SPECDEC__SSE41_6BIT, SPECDEC__SSE41_SIGNED };

/* Returns the products of codes w and activations x, two of them added in each 16-bit lane. */
SPECDEC__SSE41 SPECDEC__INLINE __m128i specdec__sse41_pair_products(int mode, __m128i w, __m128i x)
{
    return mode == SPECDEC__SSE41_SIGNED ? _mm_maddubs_epi16(_mm_abs_epi8(w), _mm_sign_epi8(x, w))
                                         : _mm_maddubs_epi16(w, x);
}

/* Unpacks `vectors` times 64 bytes of nibbles into twice as many codes, the low nibbles first. */
SPECDEC__SSE41 SPECDEC__INLINE void specdec__sse41_unpack_nibbles(const unsigned char *from, int vectors, int8_t *codes)
{
    int i;

    for (i = 0; i < vectors * 64; i += 16) {
        __m128i q = specdec__sse41_load_16(from + i);

        _mm_prefetch((const char *)from + SPECDEC__PREFETCH_BYTES + i, _MM_HINT_T0);
        specdec__sse41_store_16(codes + i, specdec__sse41_mask_bytes(q, 15));
        specdec__sse41_store_16(codes + vectors * 64 + i, specdec__sse41_mask_bytes(_mm_srli_epi16(q, 4), 15));
    }
}

/* Computes scale (16) = the half floats of 16 rows. */
SPECDEC__SSE41 SPECDEC__INLINE void specdec__sse41_load_scales(const unsigned char *at, float *scale)
{
    int i;

    for (i = 0; i < 16; i += 4)
        _mm_storeu_ps(scale + i, specdec__sse41_load_f16(at + i * 2));
}

/* Computes out (count, 16) = the half floats d (16) * sign * signed bytes (count, 16). */
SPECDEC__SSE41 SPECDEC__INLINE void specdec__sse41_scales_times_factors(const unsigned char *d, float sign,
                                                                        const int8_t *bytes, int count,
                                                                        float (*out)[SPECDEC__ROWS])
{
    int row, i;

    for (row = 0; row < 16; row += 4) {
        const __m128 scale = _mm_mul_ps(specdec__sse41_load_f16(d + row * 2), _mm_set1_ps(sign));

        for (i = 0; i < count; i++)
            _mm_storeu_ps(out[i] + row, _mm_mul_ps(scale, specdec__sse41_load_bytes(bytes + i * 16 + row)));
    }
}

/* Unpacks scales and codes + 8 of blocks of Q4_0 into a panel. */
SPECDEC__SSE41 SPECDEC__INLINE void specdec__sse41_unpack_codes_Q4_0(const unsigned char *tile, int blocks,
                                                                     specdec__panel *panel)
{
    int b;

    for (b = 0; b < blocks; b++, tile += SPECDEC__TILE_BYTES(q4_0)) {
        specdec__sse41_load_scales(tile, panel->scale[b]);
        specdec__sse41_unpack_nibbles(tile + SPECDEC__TILE_AT(q4_0, nibbles), 4, panel->u.codes + b * 512);
    }
}

/* Unpacks scales and codes of blocks of Q8_0 into a panel. */
SPECDEC__SSE41 SPECDEC__INLINE void specdec__sse41_unpack_codes_Q8_0(const unsigned char *tile, int blocks,
                                                                     specdec__panel *panel)
{
    int b, i;

    for (b = 0; b < blocks; b++, tile += SPECDEC__TILE_BYTES(q8_0)) {
        specdec__sse41_load_scales(tile, panel->scale[b]);
        for (i = 0; i < 512; i += 64) {
            _mm_prefetch((const char *)tile + SPECDEC__PREFETCH_BYTES + i, _MM_HINT_T0);
            memcpy(panel->u.codes + b * 512 + i, tile + SPECDEC__TILE_AT(q8_0, codes) + i, 64);
        }
    }
}

/* Unpacks scales, minimums and codes of a block of Q4_K into a panel. */
SPECDEC__SSE41 SPECDEC__INLINE void specdec__sse41_unpack_codes_Q4_K(const unsigned char *tile, specdec__panel *panel)
{
    const unsigned char *packed = tile + SPECDEC__TILE_AT(q4_k, scales), *dmin = tile + SPECDEC__TILE_AT(q4_k, dmin);
    int8_t scales[128], minimums[128];
    int i;

    for (i = 0; i < 64; i += 16, packed += 16) {
        __m128i a = specdec__sse41_load_16(packed), b = specdec__sse41_load_16(packed + 64);
        __m128i c = specdec__sse41_load_16(packed + 128);

        specdec__sse41_store_16(scales + i, specdec__sse41_mask_bytes(a, 63));
        specdec__sse41_store_16(scales + 64 + i,
                                specdec__sse41_mask_bytes(c, 15) | specdec__sse41_mask_bytes(_mm_srli_epi16(a, 2), 48));
        specdec__sse41_store_16(minimums + i, specdec__sse41_mask_bytes(b, 63));
        specdec__sse41_store_16(minimums + 64 + i, specdec__sse41_mask_bytes(_mm_srli_epi16(c, 4), 15) |
                                                       specdec__sse41_mask_bytes(_mm_srli_epi16(b, 2), 48));
    }
    specdec__sse41_scales_times_factors(tile, 1, scales, 8, panel->scale);
    specdec__sse41_scales_times_factors(dmin, -1, minimums, 8, panel->minimum);
    for (i = 0; i < 4; i++)
        specdec__sse41_unpack_nibbles(tile + SPECDEC__TILE_AT(q4_k, nibbles) + i * 512, 8, panel->u.codes + i * 1024);
}

/* Unpacks scales and codes + 32 of a block of Q6_K into a panel. */
SPECDEC__SSE41 SPECDEC__INLINE void specdec__sse41_unpack_codes_Q6_K(const unsigned char *tile, specdec__panel *panel)
{
    const unsigned char *low = tile + SPECDEC__TILE_AT(q6_k, nibbles), *high = tile + SPECDEC__TILE_AT(q6_k, two_bits);
    int8_t *codes = panel->u.codes;
    int half, s, i;

    specdec__sse41_scales_times_factors(tile + SPECDEC__TILE_AT(q6_k, d), 1,
                                        (const int8_t *)tile + SPECDEC__TILE_AT(q6_k, scales), 16, panel->scale);
    for (half = 0; half < 2; half++, low += 1024, high += 512)
        for (s = 0; s < 4; s++, codes += 512)
            for (i = 0; i < 512; i += 16) {
                __m128i q = specdec__sse41_mask_bytes(
                    _mm_srli_epi16(specdec__sse41_load_16(low + s % 2 * 512 + i), s / 2 * 4), 15);
                __m128i h = specdec__sse41_mask_bytes(_mm_srli_epi16(specdec__sse41_load_16(high + i), s * 2), 3);

                _mm_prefetch((const char *)low + SPECDEC__PREFETCH_BYTES + s % 2 * 512 + i, _MM_HINT_T0);
                specdec__sse41_store_16(codes + i, q | h << 4);
            }
}

/* Computes panel->pair of all granules of a panel: the sum of the codes in the low half of a word, -bias in the high
   half. Its product with (offset, sum of activation codes) is the correction of a dot for bias and offset. small: 1:
   codes are unsigned, and those of a granule in one lane add up to at most a byte. */
SPECDEC__SSE41 SPECDEC__INLINE void specdec__sse41_compute_pairs(int granule, int bias, int small, int blocks,
                                                                 specdec__panel *panel)
{
    const __m128i ones = _mm_set1_epi32(0x01010101), words = _mm_set1_epi32(0x00010001),
                  above = _mm_set1_epi32(-65536 * bias);
    int vectors = granule / 4, k, r, i;

    for (k = 0; k < blocks * 32 / granule; k++)
        for (r = 0; r < 4; r++) {
            int8_t *codes = panel->u.codes + k * vectors * 64 + r * 16;
            __m128i sum = small ? specdec__sse41_load_16(codes) : _mm_setzero_si128();

            if (small) {
                for (i = 1; i < vectors; i++)
                    sum = _mm_add_epi8(sum, specdec__sse41_load_16(codes + i * 64));
                sum = specdec__sse41_pair_products(SPECDEC__SSE41_4BIT, sum, ones);
            } else {
                for (i = 0; i < vectors; i++)
                    sum = _mm_add_epi16(sum, specdec__sse41_pair_products(SPECDEC__SSE41_4BIT, ones,
                                                                          specdec__sse41_load_16(codes + i * 64)));
            }
            sum = _mm_add_epi32(_mm_madd_epi16(sum, words), _mm_set1_epi32(-granule * bias));
            specdec__sse41_store_16(&panel->pair[k][r * 4], (sum & _mm_set1_epi32(65535)) | above);
        }
}

/* Adds a granule of a panel times columns, in 32-bit lanes to sums (column, register). */
SPECDEC__SSE41 SPECDEC__INLINE void specdec__sse41_dot_integers(int mode, int vectors, int columns, const int8_t *w,
                                                                const int32_t *x, __m128i (*sums)[4])
{
    const __m128i words = _mm_set1_epi32(0x00010001);
    const int step = mode == SPECDEC__SSE41_4BIT ? vectors : mode == SPECDEC__SSE41_6BIT ? 2 : 1;
    __m128i part[2][4], codes[4];
    int i, c, r;

    for (i = 0; i < vectors; i++) {
        SPECDEC__UNROLL
        for (r = 0; r < 4; r++)
            codes[r] = specdec__sse41_load_16(w + i * 64 + r * 16);
        SPECDEC__UNROLL
        for (c = 0; c < columns; c++) {
            __m128i value = _mm_set1_epi32(x[c * 8 + i]);

            SPECDEC__UNROLL
            for (r = 0; r < 4; r++) {
                __m128i product = specdec__sse41_pair_products(mode, codes[r], value);

                part[c][r] = i % step ? _mm_add_epi16(part[c][r], product) : product;
                if (i % step == step - 1)
                    sums[c][r] = _mm_add_epi32(sums[c][r], _mm_madd_epi16(part[c][r], words));
            }
        }
    }
}

/* Adds the contribution of a granule with its integers (column, register) to sums (column, 16). g: which of the `per`
   granules of its block. */
SPECDEC__SSE41 SPECDEC__INLINE void
specdec__sse41_add_granule(const float *scale, const float *minimum, const specdec__x86_columns *from, int per, int g,
                           int columns, __m128i (*integers)[4], float *sums)
{
    int c, r;

    for (c = 0; c < columns; c++)
        for (r = 0; r < 16; r += 4, sums += 4) {
            __m128 sum = _mm_loadu_ps(sums), by = _mm_mul_ps(_mm_loadu_ps(scale + r), _mm_set1_ps(from->scales[c]));

            sum = specdec__sse41_madd(by, _mm_cvtepi32_ps(integers[c][r / 4]), sum);
            if (minimum)
                sum = specdec__sse41_madd(_mm_loadu_ps(minimum + r), _mm_set1_ps(from->totals[c * per + g]), sum);
            _mm_storeu_ps(sums, sum);
        }
}

/* Adds a panel times 1 or 2 columns to sums (column, 16). */
SPECDEC__SSE41 SPECDEC__INLINE void
specdec__sse41_dot_columns(int mode, int granule, int has_minimum, int columns, const specdec__panel *panel, int blocks,
                           const specdec__columns *x, size_t at, float *sums)
{
    const int per = 32 / granule, vectors = granule / 4;
    int k, c, r;

    for (k = 0; k < blocks * per; k++) {
        const specdec__x86_columns from = specdec__x86_columns_of_block(x, at + (size_t)(k / per) * (size_t)x->n, per);
        const int g = k % per;
        __m128i integers[2][4];

        SPECDEC__UNROLL
        for (c = 0; c < columns; c++) {
            __m128i pair = _mm_set1_epi32(from.pairs[c * per + g]);

            SPECDEC__UNROLL
            for (r = 0; r < 4; r++)
                integers[c][r] = _mm_madd_epi16(specdec__sse41_load_16(&panel->pair[k][r * 4]), pair);
        }
        specdec__sse41_dot_integers(mode, vectors, columns, panel->u.codes + k * vectors * 64, from.codes + g * 4,
                                    integers);
        specdec__sse41_add_granule(panel->scale[k], has_minimum ? panel->minimum[k] : NULL, &from, per, g, columns,
                                   integers, sums);
    }
}

/* Adds a panel times `count` columns to sums (column, 16), two at a time. */
SPECDEC__SSE41 SPECDEC__INLINE void specdec__sse41_dot(int mode, int granule, int has_minimum,
                                                       const specdec__panel *panel, int blocks,
                                                       const specdec__columns *x, size_t at, int count, float *sums)
{
    for (; count >= 2; count -= 2, at += 2, sums += 32)
        specdec__sse41_dot_columns(mode, granule, has_minimum, 2, panel, blocks, x, at, sums);
    if (count)
        specdec__sse41_dot_columns(mode, granule, has_minimum, 1, panel, blocks, x, at, sums);
}

/* Defines the dots of a mode: dots with and without minimums, and of several granules, share their machine code. */
#define SPECDEC__SSE41_DOTS(name, mode, granule_of_mode) \
    SPECDEC__SSE41 static SPECDEC__NOINLINE void \
    specdec__sse41_dots_##name(const specdec__panel *panel, int blocks, const specdec__columns *x, int block, \
                               int column, int count, float *sums, int granule, int has_minimum) \
    { \
        const size_t at = (size_t)block * (size_t)x->n + (size_t)column; \
        (void)granule; \
        specdec__sse41_dot(mode, granule_of_mode, has_minimum, panel, blocks, x, at, count, sums); \
    }
#define SPECDEC__SSE41_DOT(name, mode, granule, has_minimum) \
    static SPECDEC__UNUSED void specdec__sse41_dot_##name(const specdec__panel *panel, int blocks, \
                                                          const specdec__columns *x, int block, int column, \
                                                          int count, float *sums) \
    { \
        specdec__sse41_dots_##mode(panel, blocks, x, block, column, count, sums, granule, has_minimum); \
    }

SPECDEC__SSE41_DOTS(4bit, SPECDEC__SSE41_4BIT, 32)
SPECDEC__SSE41_DOTS(6bit, SPECDEC__SSE41_6BIT, 16)
SPECDEC__SSE41_DOTS(signed, SPECDEC__SSE41_SIGNED, granule)
SPECDEC__SSE41_DOT(4bit, 4bit, 32, 0)
SPECDEC__SSE41_DOT(4bitm, 4bit, 32, 1)
SPECDEC__SSE41_DOT(6bit, 6bit, 16, 0)
SPECDEC__SSE41_DOT(16, signed, 16, 0)
SPECDEC__SSE41_DOT(16m, signed, 16, 1)
SPECDEC__SSE41_DOT(32, signed, 32, 0)
SPECDEC__SSE41_DOT(32m, signed, 32, 1)

/* Defines the unpacker of a type: pairs, and codes + bias for types of at most 6 bits (Q4_0, Q4_K, Q6_K), which are
   multiplied as unsigned; else signed codes. */
#define SPECDEC__SSE41_UNPACK(name, granule, bias, small, codes) \
    SPECDEC__SSE41 static void specdec__sse41_unpack_##name( \
        const specdec__quant_type *type, const unsigned char *tile, int blocks, specdec__panel *panel) \
    { \
        (void)type; \
        codes; \
        specdec__sse41_compute_pairs(granule, bias, small, blocks, panel); \
    }

SPECDEC__SSE41_UNPACK(Q4_0, 32, 8, 1, specdec__sse41_unpack_codes_Q4_0(tile, blocks, panel))
SPECDEC__SSE41_UNPACK(Q4_K, 32, 0, 1, specdec__sse41_unpack_codes_Q4_K(tile, panel))
SPECDEC__SSE41_UNPACK(Q6_K, 16, 32, 1, specdec__sse41_unpack_codes_Q6_K(tile, panel))
SPECDEC__SSE41_UNPACK(Q8_0, 32, 0, 0, specdec__sse41_unpack_codes_Q8_0(tile, blocks, panel))
SPECDEC__SSE41_UNPACK(any, type->granule, 0, 0, specdec__unpack_tile_by_decoder(type, tile, blocks, panel))
#endif /* x86_64 */
