/* =====================================================================================================================
 * >>kernel/avx2_tiles: AVX2: interleaves rows into tiles.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../quant/types.h"
#include "../quant/tiles.h"
#include "kernel.h"
#include "scalar.h"
#include "x86.h"

#if defined(__x86_64__) && !defined(SPECDEC_NO_SIMD) && !defined(SPECDEC_KERNELS_APART)
/* Vectors hold words of 8 rows; the parameter `half` says which 8 of the 16 rows. */

/* Loads 16 bytes of rows 0 and 4 into a vector. */
SPECDEC__AVX2 SPECDEC__INLINE __m256i specdec__avx2_load_two_rows(const unsigned char *from, size_t step)
{
    return _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)from)),
        _mm_loadu_si128((const __m128i *)(const void *)(from + 4 * step)), 1);
}

/* Stores a vector at any address. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_store_vector(__m256i x, unsigned char *to)
{
    _mm256_storeu_si256((__m256i *)(void *)to, x);
}

/* Transposes 16 bytes of each of 8 rows into words (4, 8 rows), which are stored `apart` bytes apart, at any
   address. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_transpose_rows(const unsigned char *from, size_t step, size_t apart,
                                                                unsigned char *words)
{
    const __m256i a = specdec__avx2_load_two_rows(from, step), b = specdec__avx2_load_two_rows(from + step, step);
    const __m256i c = specdec__avx2_load_two_rows(from + 2 * step, step);
    const __m256i d = specdec__avx2_load_two_rows(from + 3 * step, step);
    const __m256i ab = _mm256_unpacklo_epi32(a, b), cd = _mm256_unpacklo_epi32(c, d);
    const __m256i ab2 = _mm256_unpackhi_epi32(a, b), cd2 = _mm256_unpackhi_epi32(c, d);

    specdec__avx2_store_vector(_mm256_unpacklo_epi64(ab, cd), words);
    specdec__avx2_store_vector(_mm256_unpackhi_epi64(ab, cd), words + apart);
    specdec__avx2_store_vector(_mm256_unpacklo_epi64(ab2, cd2), words + 2 * apart);
    specdec__avx2_store_vector(_mm256_unpackhi_epi64(ab2, cd2), words + 3 * apart);
}

/* Returns the words that begin 16 bits behind words[0], of each row. */
SPECDEC__AVX2 SPECDEC__INLINE __m256i specdec__avx2_words_shifted_by_16_bits(const __m256i *words)
{
    return _mm256_or_si256(_mm256_srli_epi32(words[0], 16), _mm256_slli_epi32(words[1], 16));
}

/* Stores the lower 16 bits of the words of 8 rows. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_store_low_16_bits(__m256i words, unsigned char *to)
{
    const __m256i lower = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 0, 0, 0, 0, 0, 0, 0, 0));
    const __m256i x = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(words, lower), 0x08);

    _mm_storeu_si128((__m128i *)(void *)to, _mm256_castsi256_si128(x));
}

/* Stores words (8 rows), split into units of 1 or 2 bytes or with their bits transposed as `unit` says, where a tile of
   16 rows has them. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_store_word(int unit, __m256i word, int half, unsigned char *to)
{
    const __m256i bytes =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    const __m256i pairs =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    typedef uint32_t words8 __attribute__((vector_size(32)));
    words8 bits = (words8)word, spare;
    __m128i low, high;

    if (unit > 2) {
        SPECDEC__QUANT_TRANSPOSE(unit, bits, spare);
        specdec__avx2_store_vector((__m256i)bits, to + half * 32);
        return;
    }
    word = unit == 1 ? _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(word, bytes),
                                                   _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))
                     : _mm256_permute4x64_epi64(_mm256_shuffle_epi8(word, pairs), 0xD8);
    low = _mm256_castsi256_si128(word);
    high = _mm256_extracti128_si256(word, 1);
    if (unit == 2) {
        _mm_storeu_si128((__m128i *)(void *)(to + half * 16), low);
        _mm_storeu_si128((__m128i *)(void *)(to + 32 + half * 16), high);
        return;
    }
    to += half * 8;
    _mm_storel_epi64((__m128i *)(void *)to, low);
    _mm_storel_epi64((__m128i *)(void *)(to + 16), _mm_unpackhi_epi64(low, low));
    _mm_storel_epi64((__m128i *)(void *)(to + 32), high);
    _mm_storel_epi64((__m128i *)(void *)(to + 48), _mm_unpackhi_epi64(high, high));
}

/* Interleaves two blocks of a half float and four words each, in registers: 18 bytes are no whole number of words, 36
   bytes are. */
SPECDEC__AVX2 static void specdec__avx2_interleave_two_blocks(const unsigned char *from, size_t step, unsigned char *to)
{
    __m256i words[9];
    int half, i;

    specdec__quant_prefetch(from, step, 36);
    for (half = 0; half < 2; half++, from += 8 * step) {
        specdec__avx2_transpose_rows(from, step, sizeof *words, (unsigned char *)words);
        specdec__avx2_transpose_rows(from + 16, step, sizeof *words, (unsigned char *)(words + 4));
        specdec__avx2_transpose_rows(from + 20, step, sizeof *words, (unsigned char *)(words + 5));
        specdec__avx2_store_low_16_bits(words[0], to + half * 16);
        specdec__avx2_store_low_16_bits(_mm256_srli_epi32(words[4], 16), to + 288 + half * 16);
        SPECDEC__UNROLL
        for (i = 0; i < 4; i++) {
            specdec__avx2_store_vector(specdec__avx2_words_shifted_by_16_bits(words + i), to + 32 + i * 64 + half * 32);
            specdec__avx2_store_vector(words[5 + i], to + 320 + i * 64 + half * 32);
        }
    }
}

/* Stores up to 16 bytes of a field of 8 rows, which begin `at` bytes (an even number) into words. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_store_units(int unit, const __m256i *words, size_t at, size_t size,
                                                             int half, unsigned char *to)
{
    const int odd = at % 4 != 0;

    for (words += at / 4; size >= 4; size -= 4, words++, to += 64)
        specdec__avx2_store_word(unit, odd ? specdec__avx2_words_shifted_by_16_bits(words) : *words, half, to);
    if (size) /* half a word */
        specdec__avx2_store_low_16_bits(odd ? _mm256_srli_epi32(*words, 16) : *words, to + half * 16);
}

/* Interleaves a field of 16 rows with AVX2: see specdec__quant_interleave_field. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_interleave_field(int unit, size_t size, size_t rest,
                                                                  const unsigned char *from, size_t step,
                                                                  unsigned char *to)
{
    __m256i words[5];
    size_t i, left, back;
    int half;

    words[4] = _mm256_setzero_si256(); /* the word behind the last word */
    if (size <= 2)
        specdec__quant_interleave_unit(size, from, step, to);
    for (i = 0; size > 2 && i < size; i += left, to += left * SPECDEC__ROWS) {
        left = size - i < 16 ? size - i : 16;
        back = rest - i < 16 ? 16 - (rest - i) : 0;
        specdec__quant_prefetch(from + i, step, left);
        for (half = 0; half < 2; half++) {
            const int direct = unit == 4 && left == 16;

            specdec__avx2_transpose_rows(from + i - back + (size_t)half * 8 * step, step, direct ? 64 : sizeof *words,
                                         direct ? to + half * 32 : (unsigned char *)words);
            if (!direct)
                specdec__avx2_store_units(unit, words, back, left, half, to);
        }
    }
}

/* Repacks rows into tiles with AVX2: a specdec__interleave_function. */
SPECDEC__AVX2 static void specdec__avx2_interleave(const specdec__quant_type *type, const unsigned char *rows,
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
            specdec__avx2_interleave_two_blocks(rows, row_bytes, tile_out);
            rows += 2 * type->bytes;
            tile_out += 2 * type->bytes * SPECDEC__ROWS;
            b++;
            continue;
        }
        rest = whole * type->bytes;
        for (f = 0; rest; f++) {
            const int unit = type->fields[f].unit;

            size = specdec__quant_unit_bytes(unit) * type->fields[f].count * whole;
            specdec__avx2_interleave_field(unit, size, rest, rows, row_bytes, tile_out);
            rows += size;
            tile_out += size * SPECDEC__ROWS;
            rest -= size;
        }
    }
}
#endif /* x86_64 */
