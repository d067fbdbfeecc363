/* =====================================================================================================================
 * >>kernel/avx512_grid: AVX-512: unpacks types whose codes are points of a grid, and types without own kernels.
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
#include "avx512.h"

#if defined(__x86_64__) && !defined(SPECDEC_NO_SIMD) && !defined(SPECDEC_KERNELS_APART)
/* Returns four bytes of eight signs in each word, from four times seven signs: the eighth sign makes the number of set
   bits even. */
SPECDEC__AVX512 SPECDEC__INLINE __m512i specdec__avx512_add_eighth_signs(__m512i word)
{
    const __m512i parity =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
    __m512i signs = _mm512_and_si512(word, _mm512_set1_epi32(0x7F));

    signs = _mm512_or_si512(signs, _mm512_and_si512(_mm512_slli_epi32(word, 1), _mm512_set1_epi32(0x7F00)));
    signs = _mm512_or_si512(signs, _mm512_and_si512(_mm512_slli_epi32(word, 2), _mm512_set1_epi32(0x7F0000)));
    signs = _mm512_or_si512(signs, _mm512_and_si512(_mm512_slli_epi32(word, 3), _mm512_set1_epi32(0x7F000000)));
    return _mm512_or_si512(
        signs, _mm512_shuffle_epi8(
                   parity, specdec__avx512_mask_bytes(_mm512_xor_si512(signs, _mm512_srli_epi16(signs, 4)), 15)));
}

/* Returns the indices for a shuffle that takes the same four bytes of every word. */
SPECDEC__AVX512 SPECDEC__INLINE __m512i specdec__avx512_shuffle_indices_in_words(uint32_t bytes)
{
    const __m128i lanes = _mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0C0C0C0C);

    return _mm512_add_epi8(_mm512_set1_epi32((int)bytes), _mm512_broadcast_i32x4(lanes));
}

/* Replaces points[i], indices of grid points, by the points grid[points[i]], in 16-bit lanes, for a grid of 64 << deep
   points. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_look_up_grid(const uint16_t *grid, int deep, int count,
                                                                  __m512i *points)
{
    __m512i found[16];
    __mmask32 upper;
    int i, bit, v;

    for (i = 0; i < count; i++) {
        if (deep == 4)
            __asm__("" : "+r"(grid)); /* makes gcc read a large grid again, as registers cannot hold it */
        SPECDEC__UNROLL
        for (v = 0; v < 1 << deep; v++)
            found[v] = _mm512_permutex2var_epi16(_mm512_loadu_si512(grid + v * 64), points[i],
                                                 _mm512_loadu_si512(grid + v * 64 + 32));
        SPECDEC__UNROLL
        for (bit = 0; bit < deep; bit++) {
            upper = _mm512_movepi16_mask(_mm512_sll_epi16(points[i], _mm_cvtsi32_si128(9 - bit)));
            SPECDEC__UNROLL
            for (v = 0; v < 1 << (deep - 1 - bit); v++)
                found[v] = _mm512_mask_mov_epi16(found[2 * v], upper, found[2 * v + 1]);
        }
        points[i] = found[0];
    }
}

/* Moves bit n of every word to bit 8, and bit n + 1 to bit 24: the ninth bits of two indices. */
SPECDEC__AVX512 SPECDEC__INLINE __m512i specdec__avx512_place_ninth_bits(__m512i word, int n)
{
    const __m512i low = _mm512_srl_epi32(word, _mm_cvtsi32_si128(n)), two = _mm512_slli_epi32(low, 23);

    return _mm512_and_si512(_mm512_or_si512(_mm512_slli_epi32(low, 8), two), _mm512_set1_epi32(0x01000100));
}

/* Computes index (2 or 4) = the indices of the points of group g, two indices in a word, as in specdec__grid_group. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_point_indices(int type, const unsigned char *tile, int g,
                                                                   __m512i *index)
{
    const size_t at = type == SPECDEC__TYPE_IQ2_XXS  ? SPECDEC__TILE_AT(iq2_xxs, groups) + (size_t)g * 128
                      : type == SPECDEC__TYPE_IQ2_XS ? SPECDEC__TILE_AT(iq2_xs, words) + (size_t)g * 128
                      : type == SPECDEC__TYPE_IQ2_S  ? SPECDEC__TILE_AT(iq2_s, index) + (size_t)g * 64
                                                     : SPECDEC__TILE_AT(iq3_s, index) + (size_t)g * 128;
    const size_t high = (type == SPECDEC__TYPE_IQ2_S ? SPECDEC__TILE_AT(iq2_s, high) : SPECDEC__TILE_AT(iq3_s, high)) +
                        (size_t)(g / 4) * 64;
    const int count = type == SPECDEC__TYPE_IQ3_XXS || type == SPECDEC__TYPE_IQ3_S ? 4 : 2;
    __m512i word, above = _mm512_setzero_si512();
    int i;

    if (type == SPECDEC__TYPE_IQ2_S || type == SPECDEC__TYPE_IQ3_S)
        above = _mm512_maskz_shuffle_epi8(UINT64_C(0x1111111111111111), specdec__avx512_load_bytes(tile + high),
                                          specdec__avx512_shuffle_indices_in_words((uint32_t)(g % 4)));
    for (i = 0; i < count; i++) {
        word = specdec__avx512_load_bytes(tile + at + (type == SPECDEC__TYPE_IQ2_XS ? i : i / 2) * 64);
        index[i] = type == SPECDEC__TYPE_IQ2_XS ? _mm512_and_si512(word, _mm512_set1_epi32(0x01FF01FF))
                                                : _mm512_maskz_shuffle_epi8(UINT64_C(0x5555555555555555), word,
                                                                            specdec__avx512_shuffle_indices_in_words(
                                                                                i % 2 ? 0x03030202 : 0x01010000));
        if (type == SPECDEC__TYPE_IQ3_S)
            index[i] = _mm512_or_si512(index[i], specdec__avx512_place_ninth_bits(above, 2 * i));
        if (type == SPECDEC__TYPE_IQ2_S) { /* IQ2_S has two high bits for an index */
            word = _mm512_srl_epi32(above, _mm_cvtsi32_si128(4 * i));
            word = _mm512_or_si512(_mm512_slli_epi32(word, 8), _mm512_slli_epi32(word, 22));
            index[i] = _mm512_or_si512(index[i], _mm512_and_si512(word, _mm512_set1_epi32(0x03000300)));
        }
    }
}

/* Returns the signs of group g of 16 rows of a tile, a bit for each of 32 values. */
SPECDEC__AVX512 SPECDEC__INLINE __m512i specdec__avx512_group_signs(int type, const unsigned char *tile, int g)
{
    __m512i a, b;

    switch (type) {
    case SPECDEC__TYPE_IQ2_XXS:
        a = specdec__avx512_load_bytes(tile + SPECDEC__TILE_AT(iq2_xxs, groups) + g * 128 + 64);
        return specdec__avx512_add_eighth_signs(a);
    case SPECDEC__TYPE_IQ3_XXS:
        return specdec__avx512_add_eighth_signs(
            specdec__avx512_load_bytes(tile + SPECDEC__TILE_AT(iq3_xxs, words) + g * 64));
    case SPECDEC__TYPE_IQ2_S: return specdec__avx512_load_bytes(tile + SPECDEC__TILE_AT(iq2_s, signs) + g * 64);
    case SPECDEC__TYPE_IQ3_S: return specdec__avx512_load_bytes(tile + SPECDEC__TILE_AT(iq3_s, signs) + g * 64);
    default: /* IQ2_XS: in the top bits of each index */
        a = _mm512_srli_epi16(specdec__avx512_load_bytes(tile + SPECDEC__TILE_AT(iq2_xs, words) + g * 128), 9);
        b = _mm512_srli_epi16(specdec__avx512_load_bytes(tile + SPECDEC__TILE_AT(iq2_xs, words) + g * 128 + 64), 9);
        a = _mm512_madd_epi16(a, _mm512_set1_epi32(0x00800001)); /* the signs of two points: 14 bits */
        b = _mm512_madd_epi16(b, _mm512_set1_epi32(0x00800001));
        return specdec__avx512_add_eighth_signs(_mm512_or_si512(a, _mm512_slli_epi32(b, 14)));
    }
}

/* Returns four codes + 128 of each of 16 rows, from points of a grid: as specdec__avx2_codes_of_points. table: codes +
   128. */
SPECDEC__AVX512 SPECDEC__INLINE __m512i specdec__avx512_codes_of_points(int twos, __m512i table, const __m512i *points,
                                                                        __m512i signs, int i)
{
    const __m512i words = points[twos ? i / 4 : i / 2], bits = _mm512_set1_epi32(i % 2 ? (int)0x80402010 : 0x08040201);
    const __m512i low = specdec__avx512_mask_bytes(words, 15),
                  high = specdec__avx512_mask_bytes(_mm512_srli_epi16(words, 4), 15);
    const int second = twos ? i / 2 % 2 : i % 2;
    __m512i index = second ? _mm512_mask_mov_epi16(_mm512_srli_epi32(low, 16), 0xAAAAAAAA, high)
                           : _mm512_mask_mov_epi16(low, 0xAAAAAAAA, _mm512_slli_epi32(high, 16));
    __mmask64 minus;

    index = _mm512_shuffle_epi8(index, specdec__avx512_shuffle_indices_in_words(!twos   ? 0x03010200
                                                                                : i % 2 ? 0x03030101
                                                                                        : 0x02020000));
    index = twos ? _mm512_and_si512(index, _mm512_set1_epi32(0x0C030C03)) : index;
    index = _mm512_shuffle_epi8(table, index);
    minus = _mm512_test_epi8_mask(
        _mm512_shuffle_epi8(signs, specdec__avx512_shuffle_indices_in_words((uint32_t)(i / 2) * 0x01010101u)), bits);
    return _mm512_mask_sub_epi8(index, minus, _mm512_setzero_si512(), index);
}

/* Stores the codes + 128 of a group, and its one or two pairs, in a panel. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_store_group_codes(int twos, int pairs, __m512i table,
                                                                       const __m512i *points, __m512i signs,
                                                                       int8_t *codes, int32_t (*pair)[SPECDEC__ROWS])
{
    __m512i u[8];
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 8; i++) {
        u[i] = specdec__avx512_codes_of_points(twos, table, points, signs, i);
        _mm512_storeu_si512(codes + i * 64, u[i]);
    }
    if (pairs == 1) {
        _mm512_storeu_si512(pair[0], specdec__avx512_make_pair_from_codes(SPECDEC__X86_PANEL_32_SIGNED, u, 8));
    } else {
        _mm512_storeu_si512(pair[0], specdec__avx512_make_pair_from_codes(SPECDEC__X86_PANEL_32_SIGNED, u, 4));
        _mm512_storeu_si512(pair[1], specdec__avx512_make_pair_from_codes(SPECDEC__X86_PANEL_32_SIGNED, u + 4, 4));
    }
}

/* Unpacks the scales of a tile of a type with a grid. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_unpack_grid_scales(uint32_t type, const unsigned char *tile,
                                                                        float (*scale)[SPECDEC__ROWS])
{
    const specdec__x86_grid_scales from = specdec__x86_grid_scale_layout(type, tile);
    const __m512 factor = _mm512_set1_ps(from.factor), d = specdec__avx512_from_f16(tile);
    __m512i n;
    int g;

    for (g = 0; g < from.count; g++) {
        n = specdec__avx512_load_bytes(from.at + (from.step ? g * from.step : g / 8 * 64));
        n = _mm512_srl_epi32(n, _mm_cvtsi32_si128(from.step ? 28 : g % 8 * 4));
        n = _mm512_or_si512(_mm512_and_si512(_mm512_add_epi32(n, n), _mm512_set1_epi32(30)), _mm512_set1_epi32(1));
        _mm512_storeu_ps(scale[g], _mm512_mul_ps(d, _mm512_mul_ps(factor, _mm512_cvtepi32_ps(n))));
    }
}

/* Unpacks a tile of a type with a grid of 64 << deep points: codes + 128, pairs and scales. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_unpack_points(uint32_t number, const uint16_t *grid, int deep,
                                                                   const unsigned char *tile, int blocks,
                                                                   specdec__panel *panel)
{
    const __m512i table = _mm512_broadcast_i32x4(
        _mm_xor_si128(specdec__avx2_load_magnitude_table(number), _mm_set1_epi8((char)-128)));
    const int twos = specdec__avx2_has_two_bit_points(number), pairs = 32 / specdec__x86_values_per_scale((int)number);
    __m512i points[4], signs;
    int g;

    __asm__("" : "+r"(grid)); /* else its points become constants in the code */
    for (g = 0; g < blocks; g++) {
        signs = specdec__avx512_group_signs((int)number, tile, g);
        specdec__avx512_point_indices((int)number, tile, g, points);
        specdec__avx512_look_up_grid(grid, deep, twos ? 2 : 4, points);
        specdec__avx512_store_group_codes(twos, pairs, table, points, signs, panel->u.codes + g * 512,
                                          panel->pair + g * pairs);
    }
    specdec__avx512_unpack_grid_scales(number, tile, panel->scale);
}

#define SPECDEC__AVX512_GRID(name, type, deep) \
    SPECDEC__AVX512 static void specdec__avx512_unpack_##type(const specdec__quant_type *row, \
                                                              const unsigned char *tile, int blocks, \
                                                              specdec__panel *panel) \
    { \
        (void)row; \
        specdec__avx512_unpack_points(SPECDEC__TYPE_##type, specdec__quant_##name##_grid, deep, tile, blocks, panel); \
    }

SPECDEC__AVX512_GRID(iq2_xxs, IQ2_XXS, 2)
SPECDEC__AVX512_GRID(iq2_xs, IQ2_XS, 3)
SPECDEC__AVX512_GRID(iq2_s, IQ2_S, 4)
SPECDEC__AVX512_GRID(iq3_xxs, IQ3_XXS, 2)
SPECDEC__AVX512_GRID(iq3_s, IQ3_S, 3)

/* Unpacks a tile of any type without minimums by its decoder: codes + 128, pairs and scales. */
SPECDEC__AVX512 static void specdec__avx512_unpack_by_decoder(const specdec__quant_type *type,
                                                              const unsigned char *tile, int blocks,
                                                              specdec__panel *panel)
{
    const __m512i high = _mm512_set1_epi8((char)-128);
    __m512i u[8];
    int b, i;

    specdec__unpack_tile_by_decoder(type, tile, blocks, panel);
    for (b = 0; b < blocks; b++) {
        SPECDEC__UNROLL
        for (i = 0; i < 8; i++) {
            u[i] = _mm512_xor_si512(_mm512_loadu_si512(panel->u.codes + b * 512 + i * 64), high);
            _mm512_storeu_si512(panel->u.codes + b * 512 + i * 64, u[i]);
        }
        if (type->granule == 32) {
            _mm512_storeu_si512(panel->pair[b],
                                specdec__avx512_make_pair_from_codes(SPECDEC__X86_PANEL_32_SIGNED, u, 8));
        } else {
            _mm512_storeu_si512(panel->pair[2 * b],
                                specdec__avx512_make_pair_from_codes(SPECDEC__X86_PANEL_32_SIGNED, u, 4));
            _mm512_storeu_si512(panel->pair[2 * b + 1],
                                specdec__avx512_make_pair_from_codes(SPECDEC__X86_PANEL_32_SIGNED, u + 4, 4));
        }
    }
}
#endif /* x86_64 */
