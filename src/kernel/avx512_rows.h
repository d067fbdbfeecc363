/* =====================================================================================================================
 * >>kernel/avx512_rows: AVX-512: multiplies rows as the file has them, without making tiles of them.
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
#include "avx512_tiles.h"

#if defined(__x86_64__) && !defined(SPECDEC_NO_SIMD) && !defined(SPECDEC_KERNELS_APART)
/* Multiplies rows of Q4_0, Q8_0, Q4_K and Q6_K with one column. A run is 16 granules of a row: their 16 sums, scales
   and minimums are transposed, so that the sums of 16 rows can be added in the canonical order. A vector holds four
   granules, each in 128 bits. */
enum {
    SPECDEC__AVX512_ROW_RUNS = 8,   /* runs of a row that are read before those of the next row */
    SPECDEC__AVX512_ROW_RUNS_M = 4, /* the same for types with minimums */
    SPECDEC__AVX512_ROWS_AHEAD = 8  /* distance in rows of prefetches into the second-level cache */
};

/* A run of a column: codes (vector, half of the granule, granule, 16); offsets (vector, granule, 16); scale (granule);
   correction (granule). */
typedef struct specdec__avx512_column_run {
    int8_t codes[4][2][64], offsets[4][64]; /* codes of the column; the offset of each code's block */
    float scale[16];                        /* scales of the granules */
    int32_t correction[16];                 /* what is added to dots of unsigned weight codes */
} specdec__avx512_column_run;

/* The runs of a column, and the scales, dots and minimums of 16 rows: (run, row, granule). */
typedef struct specdec__avx512_rows_memory {
    specdec__avx512_column_run runs[SPECDEC__AVX512_ROW_RUNS]; /* the runs of the column */
    float scale[SPECDEC__AVX512_ROW_RUNS][16][16]; /* (run, row, granule) scale of weights * scale of the column */
    float dot[SPECDEC__AVX512_ROW_RUNS][16][16];   /* (run, row, granule) sums of products of codes */
    float minimum[SPECDEC__AVX512_ROW_RUNS_M][16][16]; /* (run, row, granule) minimums of the weights */
} specdec__avx512_rows_memory;
SPECDEC__STATIC_ASSERT(avx512_rows_memory_fits,
                       sizeof(specdec__avx512_rows_memory) <= 2 * SPECDEC__PANEL_VALUES * SPECDEC__ROWS * 4);

/* Prepares the run of a column that begins at block `block`. The nibbles of Q4_K belong to two granules, so that a
   vector of codes has every second granule. */
SPECDEC__AVX512 SPECDEC__NOINLINE static void specdec__avx512_prepare_run(int type, const specdec__columns *x,
                                                                          int block, specdec__avx512_column_run *run)
{
    const int granule = specdec__x86_values_per_scale(type), per = 32 / granule, twos = type == SPECDEC__TYPE_Q4_K;
    const specdec__x86_columns from = specdec__x86_columns_of_block(x, (size_t)block, per);
    const int8_t *codes = (const int8_t *)from.codes;
    int g, i;

    for (g = 0; g < 16; g++) {
        const int at = (twos ? g / 8 * 8 + g % 2 * 4 + g % 8 / 2 : g) * 16;
        const int offset = (int16_t)(from.pairs[g] & 0xFFFF), sum = from.pairs[g] >> 16;

        for (i = 0; i < granule; i += 16, codes += 16)
            memcpy(run->codes[at / 64][i / 16] + at % 64, codes, 16);
        memset(run->offsets[0] + at, offset, 16);
        run->scale[g] = from.scales[g / per];
        run->correction[g] = -specdec__x86_bias(type) * (granule * offset + sum);
    }
}

/* Loads four times 16 bytes, `step` bytes apart. */
SPECDEC__AVX512 SPECDEC__INLINE __m512i specdec__avx512_load_four_blocks(const unsigned char *from, size_t step)
{
    const __m512i x = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)from));
    const __m512i y = _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)(const void *)(from + step)), 1);
    const __m512i z = _mm512_inserti32x4(y, _mm_loadu_si128((const __m128i *)(const void *)(from + 2 * step)), 2);

    return _mm512_inserti32x4(z, _mm_loadu_si128((const __m128i *)(const void *)(from + 3 * step)), 3);
}

/* Loads the half floats at the beginning of 16 blocks of 18 or 34 bytes as floats. No other bytes are read. */
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_load_scales_of_16_blocks(const unsigned char *from, int bytes)
{
    /* The half floats lie in different words of the vectors of 64 bytes, which can therefore be merged into one. */
    static const uint32_t wanted[2][9] = {
        {0x08040201, 0x80402010, 0x04020100, 0x40201008, 0x00000080},
        {0x00020001, 0x00080004, 0x00200010, 0x00800040, 0x02000100, 0x08000400, 0x20001000, 0x80004000, 0}};
    static const uint16_t words[2][16] = {{0, 9, 18, 27, 4, 13, 22, 31, 8, 17, 26, 3, 12, 21, 30, 7},
                                          {0, 17, 2, 19, 4, 21, 6, 23, 8, 25, 10, 27, 12, 29, 14, 31}};
    const int which = bytes == 34, count = which ? 8 : 5;
    __m512i x = _mm512_setzero_si512();
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < count; i++)
        x = _mm512_mask_loadu_epi16(x, (__mmask32)wanted[which][i], from + i * 64);
    x = _mm512_permutexvar_epi16(
        _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)words[which])), x);
    return _mm512_cvtph_ps(_mm512_castsi512_si256(x));
}

/* Unpacks the eight 6-bit scales and eight minimums of a block of Q4_K into bytes. */
SPECDEC__INLINE void specdec__avx512_unpack_row_factors_q4_k(const unsigned char *packed, uint64_t *scales,
                                                             uint64_t *minimums)
{
    const uint32_t a = specdec__load_u32(packed), b = specdec__load_u32(packed + 4), c = specdec__load_u32(packed + 8);
    const uint32_t last_a = (c & 0x0F0F0F0F) | (a >> 2 & 0x30303030);
    const uint32_t last_b = (c >> 4 & 0x0F0F0F0F) | (b >> 2 & 0x30303030);

    *scales = (uint64_t)last_a << 32 | (a & 0x3F3F3F3F);
    *minimums = (uint64_t)last_b << 32 | (b & 0x3F3F3F3F);
}

/* Returns d (2 blocks) times factors (2 blocks, 8 bytes), as floats: scales or minimums of Q4_K. */
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_row_scales_q4_k(__m512 d, const uint64_t *bytes)
{
    return _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(
                                _mm_set_epi64x((long long)bytes[1], (long long)bytes[0]))));
}

/* Returns the half float at offset `at` of a block of Q4_K in lanes 0 to 7, and that of the next block in lanes 8 to
   15, as floats. */
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_row_half_floats_q4_k(const unsigned char *from, size_t at)
{
    const int first = from[at] | from[at + 1] << 8;
    const int second = from[at + sizeof(specdec__block_q4_k)] | from[at + sizeof(specdec__block_q4_k) + 1] << 8;

    return _mm512_cvtph_ps(_mm256_set_m128i(_mm_set1_epi16((short)second), _mm_set1_epi16((short)first)));
}

/* Returns the scales of 16 granules of a row; stores the minimums of Q4_K in minimum (16). */
SPECDEC__AVX512 SPECDEC__INLINE __m512 specdec__avx512_row_scales(int type, const unsigned char *from, float *minimum)
{
    uint64_t scales[2], minimums[2];
    const unsigned char *d;

    switch (type) {
    case SPECDEC__TYPE_Q4_0: return specdec__avx512_load_scales_of_16_blocks(from, 18);
    case SPECDEC__TYPE_Q8_0: return specdec__avx512_load_scales_of_16_blocks(from, 34);
    case SPECDEC__TYPE_Q4_K:
        specdec__avx512_unpack_row_factors_q4_k(from + 4, scales, minimums);
        specdec__avx512_unpack_row_factors_q4_k(from + sizeof(specdec__block_q4_k) + 4, scales + 1, minimums + 1);
        _mm512_storeu_ps(minimum, specdec__avx512_row_scales_q4_k(
                                      specdec__avx512_negate(specdec__avx512_row_half_floats_q4_k(from, 2)), minimums));
        return specdec__avx512_row_scales_q4_k(specdec__avx512_row_half_floats_q4_k(from, 0), scales);
    default: /* Q6_K */
        d = from + offsetof(specdec__block_q6_k, d);
        return _mm512_mul_ps(
            _mm512_cvtph_ps(_mm256_set1_epi16((short)(d[0] | d[1] << 8))),
            _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(
                (const __m128i *)(const void *)(from + offsetof(specdec__block_q6_k, scales))))));
    }
}

/* Computes codes (vector, half of a granule) = the unsigned codes of two vectors of a run. two: which two vectors. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_unpack_row_codes(int type, const unsigned char *from, int two,
                                                                      __m512i codes[2][2])
{
    const __m512i by = _mm512_set_epi64(0x0002000200020002, 0x0002000200020002, 0x0002000200020002, 0x0002000200020002,
                                        0, 0, 0, 0);
    __m512i x, y;
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 2; i++)
        switch (type) {
        case SPECDEC__TYPE_Q4_0:
            x = specdec__avx512_load_four_blocks(from + (two * 2 + i) * 72 + 2, 18);
            codes[i][0] = specdec__avx512_mask_bytes(x, 15);
            codes[i][1] = specdec__avx512_mask_bytes(_mm512_srli_epi16(x, 4), 15);
            break;
        case SPECDEC__TYPE_Q8_0:
            x = specdec__avx512_load_four_blocks(from + (two * 2 + i) * 136 + 2, 34);
            y = specdec__avx512_load_four_blocks(from + (two * 2 + i) * 136 + 18, 34);
            codes[i][0] = _mm512_xor_si512(x, _mm512_set1_epi8((char)-128));
            codes[i][1] = _mm512_xor_si512(y, _mm512_set1_epi8((char)-128));
            break;
        case SPECDEC__TYPE_Q4_K: /* 16 bytes hold halves of two granules */
            x = specdec__avx512_load_four_blocks(from + two * 144 + 16 + i * 16, 32);
            codes[0][i] = specdec__avx512_mask_bytes(x, 15);
            codes[1][i] = specdec__avx512_mask_bytes(_mm512_srli_epi16(x, 4), 15);
            break;
        default: /* Q6_K: i selects nibbles and two-bit fields */
            x = specdec__avx512_load_bytes(from + two * 64);
            y = _mm512_srlv_epi16(_mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(const void *)(
                                      from + offsetof(specdec__block_q6_k, two_bits) + two * 32))),
                                  by);
            codes[i][0] = i ? specdec__avx512_select_bits(15, _mm512_srli_epi16(x, 4), y)
                            : specdec__avx512_select_bits(15, x, _mm512_slli_epi16(y, 4));
            codes[i][0] = specdec__avx512_mask_bytes(codes[i][0], 63);
            break;
        }
}

/* Adds the four partial sums of each of 16 granules, which are in four vectors, into one vector, in the order of the
   file. */
SPECDEC__AVX512 SPECDEC__INLINE __m512i specdec__avx512_sum_row_dots(int type, const __m512i *sums)
{
    const __m512i order =
        type == SPECDEC__TYPE_Q4_K
            ? _mm512_setr_epi32(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15)
            : _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512d pairs[2];
    int i;

    SPECDEC__UNROLL
    for (i = 0; i < 2; i++) {
        const __m512d a = _mm512_castsi512_pd(sums[2 * i]), b = _mm512_castsi512_pd(sums[2 * i + 1]);

        pairs[i] = _mm512_castsi512_pd(_mm512_add_epi32(_mm512_castpd_si512(_mm512_mask_blend_pd(0xAA, a, b)),
                                                        _mm512_castpd_si512(_mm512_shuffle_pd(a, b, 0x55))));
    }
    return _mm512_permutexvar_epi32(
        order, _mm512_add_epi32(_mm512_castps_si512(_mm512_shuffle_ps(_mm512_castpd_ps(pairs[0]),
                                                                      _mm512_castpd_ps(pairs[1]), 0x88)),
                                _mm512_castps_si512(_mm512_shuffle_ps(_mm512_castpd_ps(pairs[0]),
                                                                      _mm512_castpd_ps(pairs[1]), 0xDD))));
}

/* Multiplies a run of a row: dot (granule) = the sum of (code - bias) * (column code + offset); the column's codes and
   offsets are multiplied separately, as their sums are too large for a byte. scale, minimum (granule): of the row;
   minimum NULL: none. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_multiply_row_run(int type, const unsigned char *from,
                                                                      const specdec__avx512_column_run *x, float *dot,
                                                                      float *scale, float *minimum)
{
    const int halves = specdec__x86_values_per_scale(type) / 16, fits = specdec__x86_highest_code(type) * halves <= 255;
    __m512i codes[2][2], sums[4], offsets;
    int v, i;

    SPECDEC__UNROLL
    for (v = 0; v < 4; v++) {
        if (v % 2 == 0)
            specdec__avx512_unpack_row_codes(type, from, v / 2, codes);
        offsets = _mm512_loadu_si512(x->offsets[v]);
        sums[v] = _mm512_setzero_si512();
        SPECDEC__UNROLL
        for (i = 0; i < halves; i++) {
            sums[v] = _mm512_dpbusd_epi32(sums[v], codes[v % 2][i], _mm512_loadu_si512(x->codes[v][i]));
            if (!fits)
                sums[v] = _mm512_dpbusd_epi32(sums[v], codes[v % 2][i], offsets);
        }
        if (fits)
            sums[v] = _mm512_dpbusd_epi32(
                sums[v], halves == 2 ? _mm512_add_epi8(codes[v % 2][0], codes[v % 2][1]) : codes[v % 2][0], offsets);
    }
    _mm512_storeu_ps(dot, _mm512_cvtepi32_ps(_mm512_add_epi32(specdec__avx512_sum_row_dots(type, sums),
                                                              _mm512_loadu_si512(x->correction))));
    _mm512_storeu_ps(scale, _mm512_mul_ps(specdec__avx512_row_scales(type, from, minimum), _mm512_loadu_ps(x->scale)));
}

/* Adds the contributions of a run of 16 rows to sums (16), granule after granule. totals (granule): scale * sum of
   (code + offset) of the column, for minimums; NULL: none. */
SPECDEC__AVX512 SPECDEC__NOINLINE static void specdec__avx512_add_run_to_sums(const specdec__avx512_rows_memory *from,
                                                                              int run, const float *totals, float *sums)
{
    __m512 sum = _mm512_loadu_ps(sums), scale[4], dot[4], minimum[4];
    int g, i;

    for (g = 0; g < 16; g += 4) {
        specdec__avx512_transpose_rows((const unsigned char *)(from->scale[run][0] + g), sizeof *from->scale[run],
                                       scale);
        specdec__avx512_transpose_rows((const unsigned char *)(from->dot[run][0] + g), sizeof *from->dot[run], dot);
        if (totals)
            specdec__avx512_transpose_rows((const unsigned char *)(from->minimum[run][0] + g),
                                           sizeof *from->minimum[run], minimum);
        SPECDEC__UNROLL
        for (i = 0; i < 4; i++) {
            sum = _mm512_fmadd_ps(scale[i], dot[i], sum);
            if (totals)
                sum = _mm512_fmadd_ps(minimum[i], _mm512_set1_ps(totals[g + i]), sum);
        }
    }
    _mm512_storeu_ps(sums, sum);
}

/* Multiplies `runs` runs of 16 rows, row after row: memory is read fastest in order, with early prefetches into the
   second-level cache; the next row is prefetched into the first. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_multiply_runs(int type, const unsigned char *from,
                                                                   size_t row_bytes,
                                                                   int runs, specdec__avx512_rows_memory *room)
{
    const size_t bytes = (size_t)specdec__x86_values_per_scale(type) * (size_t)specdec__x86_block_bytes(type) / 2 /
                         SPECDEC__ROWS;
    int row, i;

    for (row = 0; row < SPECDEC__ROWS; row++, from += row_bytes)
        for (i = 0; i < runs; i++) {
            const unsigned char *at = from + (size_t)i * bytes;
            size_t fetched;

            for (fetched = 0; fetched < bytes; fetched += 64) {
                __builtin_prefetch((const void *)((uintptr_t)at + SPECDEC__AVX512_ROWS_AHEAD * row_bytes + fetched), 0,
                                   2);
                __builtin_prefetch((const void *)((uintptr_t)at + row_bytes + fetched), 0, 3);
            }
            specdec__avx512_multiply_row_run(type, at, room->runs + i, room->dot[i][row], room->scale[i][row],
                                    specdec__x86_has_minimum(type) ? room->minimum[i][row] : NULL);
        }
}

/* Multiplies rows of a file by one column, as a specdec__rows_function of a type. */
SPECDEC__AVX512 SPECDEC__INLINE void specdec__avx512_multiply_file_rows_of_type(int type, const specdec__tiles *tiles,
                                                                                size_t row_bytes, int blocks,
                                                                                const specdec__columns *x, void *room,
                                                                                float *const *sums)
{
    const int minimums = specdec__x86_has_minimum(type),
              run = specdec__x86_values_per_scale(type) / 2; /* blocks of 32 */
    const int most = minimums ? SPECDEC__AVX512_ROW_RUNS_M : SPECDEC__AVX512_ROW_RUNS;
    specdec__avx512_rows_memory *own = (specdec__avx512_rows_memory *)room;
    int block, runs, t, i;

    for (block = 0; block < blocks; block += runs * run) {
        runs = specdec__min_int((blocks - block) / run, most);
        for (i = 0; i < runs; i++)
            specdec__avx512_prepare_run(type, x, block + i * run, own->runs + i);
        for (t = 0; t < 2 && tiles->tile[t]; t++) {
            const size_t at = (size_t)block * (size_t)specdec__x86_block_bytes(type) / SPECDEC__ROWS;

            specdec__avx512_multiply_runs(type, tiles->tile[t] + at, row_bytes, runs, own);
            if (!block)
                memset(sums[t], 0, SPECDEC__ROWS * sizeof(float));
            for (i = 0; i < runs; i++)
                specdec__avx512_add_run_to_sums(own, i, minimums ? x->sum32 + block + i * run : NULL, sums[t]);
        }
    }
}

#define SPECDEC__AVX512_ROWS(number) \
    SPECDEC__AVX512 static void specdec__avx512_rows_##number(const specdec__tiles *tiles, size_t row_bytes, \
                                                              int blocks, const specdec__columns *x, void *room, \
                                                              float *const *sums) \
    { \
        specdec__avx512_multiply_file_rows_of_type(SPECDEC__TYPE_##number, tiles, row_bytes, blocks, x, room, sums); \
    }
SPECDEC__AVX512_ROWS(Q4_0)
SPECDEC__AVX512_ROWS(Q8_0)
SPECDEC__AVX512_ROWS(Q4_K)
SPECDEC__AVX512_ROWS(Q6_K)
#endif /* x86_64 */
