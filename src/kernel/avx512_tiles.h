/* =====================================================================================================================
 * >>kernel/avx512_tiles: AVX-512: interleaves rows into tiles.
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
/* Loads 16 bytes of rows 0, 4, 8 and 12 into a vector. */
SPECDEC__AVX512 SPECDEC__INLINE __m512i specdec__avx512_load_four_rows(const unsigned char *from, size_t step)
{
    const __m512i x = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)from));
    const __m512i y = _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)(const void *)(from + 4 * step)), 1);
    const __m512i z = _mm512_inserti32x4(y, _mm_loadu_si128((const __m128i *)(const void *)(from + 8 * step)), 2);

    return _mm512_inserti32x4(z, _mm_loadu_si128((const __m128i *)(const void *)(from + 12 * step)), 3);
}

/* Transposes 16 bytes of each of 16 rows into words (4, 16 rows), at any address. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_transpose_rows(const unsigned char *from, size_t step, void *words)
{
    const __m512i a = specdec__avx512_load_four_rows(from, step), b = specdec__avx512_load_four_rows(from + step, step);
    const __m512i c = specdec__avx512_load_four_rows(from + 2 * step, step);
    const __m512i d = specdec__avx512_load_four_rows(from + 3 * step, step);
    const __m512i ab = _mm512_unpacklo_epi32(a, b), cd = _mm512_unpacklo_epi32(c, d);
    const __m512i ab2 = _mm512_unpackhi_epi32(a, b), cd2 = _mm512_unpackhi_epi32(c, d);

    _mm512_storeu_si512(words, _mm512_unpacklo_epi64(ab, cd));
    _mm512_storeu_si512((__m512i *)words + 1, _mm512_unpackhi_epi64(ab, cd));
    _mm512_storeu_si512((__m512i *)words + 2, _mm512_unpacklo_epi64(ab2, cd2));
    _mm512_storeu_si512((__m512i *)words + 3, _mm512_unpackhi_epi64(ab2, cd2));
}

/* Transposes as specdec__avx512_transpose_rows does; a function that is not inlined. */
SPECDEC__AVX512 SPECDEC__NOINLINE static void specdec__avx512_transpose_rows_not_inlined(const unsigned char *from,
                                                                                         size_t step, void *words)
{
    specdec__avx512_transpose_rows(from, step, words);
}

/* Splits words (16 rows) into their halves or bytes (2 or 4, 16 rows): first within four rows, then across them. */
SPECDEC__AVX512 SPECDEC__INLINE __m512i specdec__avx512_split_words(int unit, __m512i words)
{
    static const signed char order[2][16] = {{0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15},
                                             {0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15}};
    static const int places[2][16] = {{0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15},
                                      {0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15}};
    const __m128i within = _mm_loadu_si128((const __m128i *)(const void *)order[unit - 1]);

    return _mm512_permutexvar_epi32(_mm512_loadu_si512(places[unit - 1]),
                                    _mm512_shuffle_epi8(words, _mm512_broadcast_i32x4(within)));
}

/* Transposes the bits of words as `unit` says: SPECDEC__QUANT_BITS32 or SPECDEC__QUANT_PAIRS32. */
SPECDEC__AVX512 SPECDEC__INLINE __m512i specdec__avx512_transpose_bits(int unit, __m512i words)
{
    typedef uint32_t words16 __attribute__((vector_size(64)));
    words16 word = (words16)words, spare;

    SPECDEC__QUANT_TRANSPOSE(unit, word, spare);
    return (__m512i)word;
}

/* Returns the words that begin 16 bits behind words[0], of each row. */
SPECDEC__AVX512 SPECDEC__INLINE __m512i specdec__avx512_words_shifted_by_16_bits(const __m512i *words)
{
    return _mm512_rol_epi32(_mm512_mask_blend_epi16(0x55555555u, words[0], words[1]), 16);
}

/* Stores the lower 16 bits of the words of 16 rows. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_store_low_16_bits(__m512i words, unsigned char *to)
{
    _mm256_storeu_si256((__m256i *)(void *)to, _mm512_cvtepi32_epi16(words));
}

/* Interleaves two blocks of a half float and four words each, in registers: 18 bytes are no whole number of words, 36
   bytes are. */
SPECDEC__AVX512 static void specdec__avx512_interleave_two_blocks(const unsigned char *from, size_t step,
                                                                  unsigned char *to)
{
    __m512i words[9];
    int i;

    specdec__quant_prefetch(from, step, 36);
    specdec__avx512_transpose_rows(from, step, words);
    specdec__avx512_transpose_rows(from + 16, step, words + 4);
    specdec__avx512_transpose_rows(from + 20, step, words + 5);
    specdec__avx512_store_low_16_bits(words[0], to);
    specdec__avx512_store_low_16_bits(_mm512_srli_epi32(words[4], 16), to + 288);
    SPECDEC__UNROLL
    for (i = 0; i < 4; i++) {
        _mm512_storeu_si512(to + 32 + i * 64, specdec__avx512_words_shifted_by_16_bits(words + i));
        _mm512_storeu_si512(to + 320 + i * 64, words[5 + i]);
    }
}

/* Stores up to 16 bytes of a field, which begin `at` bytes (an even number) into words. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_store_units(int unit, const __m512i *words, size_t at, size_t size,
                                                                 unsigned char *to)
{
    const int odd = at % 4 != 0;
    __m512i x;

    for (words += at / 4; size >= 4; size -= 4, words++, to += 64) {
        x = odd ? specdec__avx512_words_shifted_by_16_bits(words) : *words;
        _mm512_storeu_si512(to, unit <= 2   ? specdec__avx512_split_words(unit, x)
                                : unit == 4 ? x
                                            : specdec__avx512_transpose_bits(unit, x));
    }
    if (size) /* half a word */
        specdec__avx512_store_low_16_bits(odd ? _mm512_srli_epi32(*words, 16) : *words, to);
}

/* Interleaves a field of 16 rows with AVX-512: see specdec__quant_interleave_field. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_interleave_field(int unit, size_t size, size_t rest,
                                                                      const unsigned char *from, size_t step,
                                                                      unsigned char *to)
{
    __m512i words[5];
    size_t i, left, back;

    words[4] = _mm512_setzero_si512(); /* the word behind the last word */
    if (size == 1)
        specdec__quant_interleave_unit(1, from, step, to);
    for (i = 0; size > 1 && i < size; i += left, to += left * SPECDEC__ROWS) {
        left = size - i < 16 ? size - i : 16;
        back = rest - i < 16 ? 16 - (rest - i) : 0;
        specdec__quant_prefetch(from + i, step, left);
        specdec__avx512_transpose_rows_not_inlined(from + i - back, step,
                                                   unit == 4 && left == 16 ? (void *)to : (void *)words);
        if (unit != 4 || left < 16)
            specdec__avx512_store_units(unit, words, back, left, to);
    }
}

/* Repacks rows into tiles with AVX-512: a specdec__interleave_function. */
SPECDEC__AVX512 static void specdec__avx512_interleave(const specdec__quant_type *type, const unsigned char *rows,
                                                       size_t row_bytes, int row_count, size_t blocks,
                                                       unsigned char *tile_out)
{
    const size_t whole = type->block == 1 ? blocks : 1; /* floats: one block a row */
    const int pairs = type->bytes == 18 && type->fields[1].unit == 4; /* Q4_0 and IQ4_NL */
    size_t b, rest, size;
    int f;

    if (row_count < SPECDEC__ROWS || whole * type->bytes < 16) {
        specdec__quant_interleave(type, rows, row_bytes, row_count, blocks, tile_out);
        return;
    }
    for (b = 0; b < blocks; b += whole) {
        if (pairs && blocks - b >= 2) {
            specdec__avx512_interleave_two_blocks(rows, row_bytes, tile_out);
            rows += 2 * type->bytes;
            tile_out += 2 * type->bytes * SPECDEC__ROWS;
            b++;
            continue;
        }
        rest = whole * type->bytes;
        for (f = 0; rest; f++) {
            const int unit = type->fields[f].unit;

            size = specdec__quant_unit_bytes(unit) * type->fields[f].count * whole;
            specdec__avx512_interleave_field(unit, size, rest, rows, row_bytes, tile_out);
            rows += size;
            tile_out += size * SPECDEC__ROWS;
            rest -= size;
        }
    }
}
#endif /* x86_64 */
