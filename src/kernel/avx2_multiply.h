/* =====================================================================================================================
 * >>kernel/avx2_multiply: AVX2 and AVX-VNNI: multiplies unpacked blocks with columns, for every type.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../quant/types.h"
#include "kernel.h"
#include "scalar.h"
#include "weigh.h"
#include "x86.h"
#include "sse41.h"
#include "avx2.h"

#if defined(__x86_64__) && !defined(SPECDEC_NO_SIMD) && !defined(SPECDEC_KERNELS_APART)
/* sum += four products of unsigned u and signed x in every word: the AVX-VNNI instruction in assembly, as functions for
   AVX2 may not call its intrinsic. */
#ifdef SPECDEC__AVXVNNI
#define SPECDEC__AVX2_DPBUSD(sum, u, x) \
    __asm__("%{vex%} vpdpbusd {%2, %1, %0|%0, %1, %2}" : "+x"(sum) : "x"(u), "x"(x))
#else
#define SPECDEC__AVX2_DPBUSD(sum, u, x) ((void)(u), (void)(x))
#endif

#ifdef SPECDEC__AVXVNNI
/* Computes the sums over keys of codes times 8-bit values, for 16 dimensions and four queries: value_sums of
   SPECDEC__WEIGH_CODES. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avxvnni_value_sums(const int8_t *values, int keys, const uint8_t *codes,
                                                               const unsigned char *next, specdec__avx2_v *sums)
{
    __m256i acc[4][2], value[2], code;
    int key, c;

    SPECDEC__UNROLL
    for (c = 0; c < 4; c++)
        acc[c][0] = acc[c][1] = _mm256_setzero_si256();
    for (key = 0; key < keys; key += 4) {
        specdec__weigh_prefetch_page_lines(next, key * SPECDEC__ROWS);
        value[0] = _mm256_loadu_si256((const __m256i *)(const void *)(values + key * SPECDEC__ROWS));
        value[1] = _mm256_loadu_si256((const __m256i *)(const void *)(values + key * SPECDEC__ROWS + 32));
        SPECDEC__UNROLL
        for (c = 0; c < 4; c++) {
            code = _mm256_set1_epi32((int)specdec__load_u32(codes + c * SPECDEC__KEYS + key));
            SPECDEC__AVX2_DPBUSD(acc[c][0], code, value[0]);
            SPECDEC__AVX2_DPBUSD(acc[c][1], code, value[1]);
        }
    }
    SPECDEC__UNROLL
    for (c = 0; c < 4; c++) {
        sums[c].a = _mm256_cvtepi32_ps(acc[c][0]);
        sums[c].b = _mm256_cvtepi32_ps(acc[c][1]);
    }
}

SPECDEC__WEIGH_CODES(avxvnni, avx2, SPECDEC__AVX2, 1, 4, SPECDEC__UNROLL)
#endif

/* Computes sums as specdec__avx2_compute_granule_dots does, with AVX-VNNI. Each column has two chains of sums, which
   halves the wait for the last product. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_vnni_compute_granule_dots(int columns, int vectors, const __m256i *u,
                                                                           const int32_t *x, __m256i *sums)
{
    __m256i odd[SPECDEC__AVX2_REGISTER_COLUMNS];
    int i, c;

    SPECDEC__UNROLL
    for (c = 0; c < columns; c++)
        sums[c] = odd[c] = _mm256_setzero_si256();
    SPECDEC__UNROLL
    for (i = 0; i < vectors; i += 2)
        SPECDEC__UNROLL
        for (c = 0; c < columns; c++) {
            SPECDEC__AVX2_DPBUSD(sums[c], u[i], _mm256_set1_epi32(x[c * 8 + i]));
            SPECDEC__AVX2_DPBUSD(odd[c], u[i + 1], _mm256_set1_epi32(x[c * 8 + i + 1]));
        }
    SPECDEC__UNROLL
    for (c = 0; c < columns; c++)
        sums[c] = _mm256_add_epi32(sums[c], odd[c]);
}

/* Returns the pair that corrects the dots of a granule of each of 8 rows (see specdec__avx512_make_pair_from_codes),
   from its `count` vectors of unsigned codes, with AVX-VNNI. */
SPECDEC__AVX2 SPECDEC__INLINE __m256i specdec__avx2_vnni_make_pair_from_codes(int type, const __m256i *u, int count)
{
    __m256i sum = _mm256_setzero_si256(), rest = u[0];
    int i;

    SPECDEC__UNROLL
    for (i = 1; i < count; i++)
        if (specdec__avx2_is_signed(type))
            SPECDEC__AVX2_DPBUSD(sum, u[i], _mm256_set1_epi8(1));
        else
            rest = _mm256_add_epi8(rest, u[i]);
    SPECDEC__AVX2_DPBUSD(sum, rest, _mm256_set1_epi8(1));
    return specdec__avx2_make_pair_from_sum(type, sum);
}

/* Makes signed codes unsigned for AVX-VNNI, by adding 128. */
SPECDEC__AVX2 SPECDEC__INLINE __m256i specdec__avx2_make_unsigned(int type, int vnni, __m256i codes)
{
    return vnni && specdec__avx2_is_signed(type) ? _mm256_xor_si256(codes, _mm256_set1_epi8((char)-128)) : codes;
}

/* Adds granule g of a block times columns to acc (column). vnni: 1 with AVX-VNNI, a constant here and below. */
SPECDEC__AVX2 SPECDEC__INLINE void
specdec__avx2_multiply_register_granule(int type, int vnni, int columns, const __m256i *u, __m256i pair, __m256 scale,
                                        __m256 minimum, const specdec__x86_columns *x, int g, int column, __m256 *acc)
{
    const int granule = specdec__x86_values_per_scale(type), per = 32 / granule;
    const int32_t *codes = x->codes + (size_t)column * 8 + g * 4, *pairs = x->pairs + column * per + g;
    __m256i sums[SPECDEC__AVX2_REGISTER_COLUMNS];
    int c;

    if (vnni)
        specdec__avx2_vnni_compute_granule_dots(columns, granule / 4, u, codes, sums);
    else
        specdec__avx2_compute_granule_dots(type, columns, granule / 4, u, codes, sums);
    SPECDEC__UNROLL
    for (c = 0; c < columns; c++) {
        __m256 by = _mm256_mul_ps(scale, _mm256_set1_ps(x->scales[column + c]));

        sums[c] = _mm256_add_epi32(sums[c], _mm256_madd_epi16(pair, _mm256_set1_epi32(pairs[c * per])));
        acc[c] = _mm256_fmadd_ps(by, _mm256_cvtepi32_ps(sums[c]), acc[c]);
        if (specdec__x86_has_minimum(type))
            acc[c] = _mm256_fmadd_ps(minimum, _mm256_set1_ps(x->totals[(column + c) * per + g]), acc[c]);
    }
}

/* Multiplies a block with columns. columns: a constant, 1 to 4 of them are added to acc (column); 0: `count` columns
   are added to sums (column, 16). */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_multiply_register_block(int type, int vnni,
                                                                         const specdec__avx2_rows *rows, int block,
                                                                         const specdec__columns *x, size_t at,
                                                                         int columns, int count, __m256 *acc,
                                                                         float *sums)
{
    const int granule = specdec__x86_values_per_scale(type), per = 32 / granule, half = rows->half;
    specdec__x86_columns from;
    __m256i u[8];
    int g, c, i;

    specdec__avx2_unpack_codes(type, rows->tile, block, half, u);
    SPECDEC__UNROLL
    for (i = 0; i < 8; i++) {
        u[i] = specdec__avx2_make_unsigned(type, vnni, u[i]);
        SPECDEC__KEEP_IN_REGISTER(u[i]);
    }
    from = specdec__x86_columns_of_block(x, at, per);
    SPECDEC__UNROLL
    for (g = 0; g < per; g++) {
        const __m256i *codes = u + g * 4;
        __m256i pair = vnni ? specdec__avx2_vnni_make_pair_from_codes(type, codes, granule / 4)
                            : specdec__avx2_make_pair_from_codes(type, codes, granule / 4);
        __m256 scale = specdec__avx2_granule_scales_or_minimums(type, 0, rows, block * per + g), minimum = scale;

        if (specdec__x86_has_minimum(type))
            minimum = specdec__avx2_granule_scales_or_minimums(type, 1, rows, block * per + g);
        if (columns)
            specdec__avx2_multiply_register_granule(type, vnni, columns, codes, pair, scale, minimum, &from, g, 0, acc);
        else
            for (c = 0; c < count; c++) {
                acc[0] = _mm256_loadu_ps(sums + c * SPECDEC__ROWS);
                specdec__avx2_multiply_register_granule(type, vnni, 1, codes, pair, scale, minimum, &from, g, c, acc);
                _mm256_storeu_ps(sums + c * SPECDEC__ROWS, acc[0]);
            }
    }
}

/* Multiplies up to 256 values of a tile, from byte `from` on: 8 rows, then the other 8. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_multiply_register_run(int type, int vnni, const specdec__tiles *tiles,
                                                                       int t, size_t from, size_t end, int blocks,
                                                                       const specdec__columns *x, size_t at,
                                                                       int columns, int count, float *sums)
{
    const int share = specdec__x86_block_bytes(type) / 2;
    specdec__avx2_rows rows;
    int8_t room[512];
    int b, c;

    rows.tile = tiles->tile[t] + from;
    rows.factors = specdec__x86_has_scale_without_factors(type) ? room
                                                                : specdec__avx2_unpack_factors(type, rows.tile, room);
    for (rows.half = 0; rows.half < 2; rows.half++, sums += 8) {
        __m256 acc[SPECDEC__AVX2_REGISTER_COLUMNS];

        specdec__avx2_load_block_scales(type, rows.tile, rows.half, rows.d);
        SPECDEC__UNROLL
        for (c = 0; c < columns; c++)
            acc[c] = _mm256_loadu_ps(sums + c * SPECDEC__ROWS);
        for (b = 0; b < blocks; b++) {
            specdec__x86_prefetch_ahead(share, tiles->tile[t], from + (size_t)((rows.half * blocks + b) * share), end,
                                        tiles->next[t]);
            specdec__avx2_multiply_register_block(type, vnni, &rows, b, x, at + (size_t)b * (size_t)x->n, columns,
                                                  count, acc, sums);
        }
        SPECDEC__UNROLL
        for (c = 0; c < columns; c++)
            _mm256_storeu_ps(sums + c * SPECDEC__ROWS, acc[c]);
    }
}

/* Multiplies 256 values of each row of one tile by the columns, then 256 of the other tile, and so on: memory delivers
   more bytes a second when two places are read by turns. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_multiply_register_tiles(int type, int vnni,
                                                                         const specdec__tiles *tiles, int blocks,
                                                                         const specdec__columns *x, int block,
                                                                         int column, int columns, int count,
                                                                         float *const *sums)
{
    const size_t span = (size_t)specdec__x86_block_bytes(type), end = (size_t)blocks * span;
    int from, run, t;

    for (from = 0; from < blocks; from += run) {
        const size_t at = (size_t)(block + from) * (size_t)x->n + (size_t)column;

        run = specdec__min_int(SPECDEC__PANEL_VALUES / 32, blocks - from);
        for (t = 0; t < 2 && tiles->tile[t]; t++) {
            if (block + from == 0)
                memset(sums[t], 0, (size_t)count * SPECDEC__ROWS * sizeof(float));
            specdec__avx2_multiply_register_run(type, vnni, tiles, t, (size_t)from * span, end, run, x, at, columns,
                                                count, sums[t]);
        }
    }
}

/* Multiplies tiles by columns without a panel, as a specdec__multiply_function: by up to `most` columns (2 or 4), each
   number with its own machine code; most 0: by any number, of which 1 and 2 have their own code. */
SPECDEC__AVX2 SPECDEC__INLINE void
specdec__avx2_multiply(int type, int vnni, int most, const specdec__tiles *tiles, int blocks, const specdec__columns *x,
                       int block, int column, int count, float *const *sums)
{
    if (count == 1)
        specdec__avx2_multiply_register_tiles(type, vnni, tiles, blocks, x, block, column, 1, 1, sums);
    else if (count == 2 || most == 2)
        specdec__avx2_multiply_register_tiles(type, vnni, tiles, blocks, x, block, column, 2, 2, sums);
    else if (count == 3 && most == 4)
        specdec__avx2_multiply_register_tiles(type, vnni, tiles, blocks, x, block, column, 3, 3, sums);
    else if (most == 4)
        specdec__avx2_multiply_register_tiles(type, vnni, tiles, blocks, x, block, column, 4, 4, sums);
    else
        specdec__avx2_multiply_register_tiles(type, vnni, tiles, blocks, x, block, column, 0, count, sums);
}

/* Adds four vectors of codes times columns to sums (column, half). Each vector of codes is loaded once for all columns,
   each word of a column once for 16 rows. part (column, half): 16-bit sums of the last `before` vectors. begun: 0 if
   sums are still undefined. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_dot_four_vectors(int type, int columns, int step, int before,
                                                                  int begun, const int8_t *codes, const int32_t *x,
                                                                  __m256i (*part)[2], __m256i (*sums)[2])
{
    const int is_signed = specdec__avx2_is_signed(type), run = step < 4 ? step : 1;
    __m256i u[2][2], word, product;
    int i, j, c, half;

    SPECDEC__UNROLL
    for (i = 0; i < 4; i += run) {
        SPECDEC__UNROLL
        for (j = 0; j < 2 * run; j++)
            u[j / 2][j % 2] = specdec__avx2_load_32(codes + i * 64 + j * 32);
        SPECDEC__UNROLL
        for (c = 0; c < columns; c++)
            SPECDEC__UNROLL
            for (j = 0; j < run; j++) {
                word = _mm256_set1_epi32(x[c * 8 + i + j]);
                SPECDEC__UNROLL
                for (half = 0; half < 2; half++) {
                    product = specdec__avx2_pair_products(is_signed, u[j][half], word);
                    if ((before + i + j) % step)
                        product = _mm256_add_epi16(part[c][half], product);
                    SPECDEC__KEEP_IN_REGISTER(product);
                    part[c][half] = product;
                    if ((before + i + j) % step < step - 1)
                        continue;
                    product = _mm256_madd_epi16(product, _mm256_set1_epi16(1));
                    sums[c][half] =
                        begun || before + i + j >= step ? _mm256_add_epi32(sums[c][half], product) : product;
                    SPECDEC__KEEP_IN_REGISTER(sums[c][half]);
                }
            }
    }
}

/* Computes sums as specdec__avx2_dot_four_vectors does, with AVX-VNNI. */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_vnni_dot_four_vectors(int type, int columns, const int8_t *codes,
                                                                       const int32_t *x, __m256i (*sums)[2])
{
    __m256i u[2], word;
    int i, c;

    SPECDEC__UNROLL
    for (i = 0; i < 4; i++) {
        u[0] = specdec__avx2_make_unsigned(type, 1, specdec__avx2_load_32(codes + i * 64));
        u[1] = specdec__avx2_make_unsigned(type, 1, specdec__avx2_load_32(codes + i * 64 + 32));
        SPECDEC__UNROLL
        for (c = 0; c < columns; c++) {
            word = _mm256_set1_epi32(x[c * 8 + i]);
            SPECDEC__AVX2_DPBUSD(sums[c][0], u[0], word);
            SPECDEC__AVX2_DPBUSD(sums[c][1], u[1], word);
        }
    }
}

/* Returns the corrections of the dots of 8 rows of a granule with a column: the pairs of the rows times x, the pair of
   the column. */
SPECDEC__AVX2 SPECDEC__INLINE __m256i specdec__avx2_correction_of_dots(int type, int vnni, const int32_t *pairs,
                                                                       int32_t x)
{
    __m256i pair = specdec__avx2_load_32(pairs);

    if (vnni && specdec__avx2_is_signed(type)) /* pairs of signed codes have no bias */
        pair = _mm256_or_si256(pair, _mm256_set1_epi32(-128 * 65536));
    return _mm256_madd_epi16(pair, _mm256_set1_epi32(x));
}

/* Adds granule g of the block in a panel times 1 to 4 columns to sums (column, 16). k: index of the granule in 256
   values. */
SPECDEC__AVX2 SPECDEC__INLINE void
specdec__avx2_dot_granule(int type, int vnni, int columns, const specdec__panel *panel, int g, int k,
                          const specdec__x86_columns *x, float *sums)
{
    const int per = 32 / specdec__x86_values_per_scale(type), vectors = 8 / per,
              step = specdec__avx2_products_per_16_bit_sum(type, vectors);
    const int pairs_first = vnni || (step == 4 && vectors == 8);
    const int8_t *codes = panel->u.codes + g * vectors * 64;
    const int32_t *words = x->codes + g * 4, *pairs = panel->pair[k];
    __m256i found[4][2], part[4][2];
    int i, c, half;

    if (pairs_first)
        SPECDEC__UNROLL
        for (c = 0; c < columns; c++)
            for (half = 0; half < 2; half++)
                found[c][half] = specdec__avx2_correction_of_dots(type, vnni, pairs + half * 8, x->pairs[c * per + g]);
    if (vnni)
        for (i = 0; i < vectors; i += 4)
            specdec__avx2_vnni_dot_four_vectors(type, columns, codes + i * 64, words + i, found);
    else if (pairs_first)
        for (i = 0; i < vectors; i += 4)
            specdec__avx2_dot_four_vectors(type, columns, step, 0, 1, codes + i * 64, words + i, part, found);
    else
        SPECDEC__UNROLL
        for (i = 0; i < vectors; i += 4)
            specdec__avx2_dot_four_vectors(type, columns, step, i, 0, codes + i * 64, words + i, part, found);
    SPECDEC__UNROLL
    for (c = 0; c < columns; c++)
        SPECDEC__UNROLL
        for (half = 0; half < 2; half++) {
            float *to = sums + c * SPECDEC__ROWS + half * 8;
            __m256 by = _mm256_mul_ps(_mm256_loadu_ps(panel->scale[k] + half * 8), _mm256_set1_ps(x->scales[c]));
            __m256i sum = found[c][half];
            __m256 acc;

            if (!pairs_first)
                sum = _mm256_add_epi32(
                    sum, specdec__avx2_correction_of_dots(type, vnni, pairs + half * 8, x->pairs[c * per + g]));
            acc = _mm256_fmadd_ps(by, _mm256_cvtepi32_ps(sum), _mm256_loadu_ps(to));
            if (specdec__x86_has_minimum(type))
                acc = _mm256_fmadd_ps(_mm256_loadu_ps(panel->minimum[k] + half * 8),
                                      _mm256_set1_ps(x->totals[c * per + g]), acc);
            _mm256_storeu_ps(to, acc);
        }
}

/* Adds block b of 256 values, which the panel holds, times `columns` columns to sums (column, 16); advances x and sums
   by these columns. */
SPECDEC__AVX2 SPECDEC__INLINE void
specdec__avx2_dot_columns(int type, int vnni, int columns, const specdec__panel *panel, int b, specdec__x86_columns *x,
                          float **sums)
{
    const int per = 32 / specdec__x86_values_per_scale(type);
    int g;

    for (g = 0; g < per; g++)
        specdec__avx2_dot_granule(type, vnni, columns, panel, g, b * per + g, x, *sums);
    x->codes += columns * 8;
    x->pairs += columns * per;
    x->totals += columns * per;
    x->scales += columns;
    *sums += columns * SPECDEC__ROWS;
}

/* Adds a block times `count` columns to sums (column, 16), four at a time; five are three and two, six are twice three.
   */
SPECDEC__AVX2 SPECDEC__INLINE void specdec__avx2_dot_block(int type, int vnni, const specdec__panel *panel, int b,
                                                           specdec__x86_columns x, int count, float *sums)
{
    for (; count > 6 || count == 4; count -= 4)
        specdec__avx2_dot_columns(type, vnni, 4, panel, b, &x, &sums);
    for (; count >= 3; count -= 3)
        specdec__avx2_dot_columns(type, vnni, 3, panel, b, &x, &sums);
    if (count == 2)
        specdec__avx2_dot_columns(type, vnni, 2, panel, b, &x, &sums);
    if (count == 1)
        specdec__avx2_dot_columns(type, vnni, 1, panel, b, &x, &sums);
}

/* Adds up to 256 values of a tile times columns to sums (column, 16), block by block: unpacks a block, then multiplies
   it. */
SPECDEC__AVX2 SPECDEC__INLINE void
specdec__avx2_multiply_run(int type, int vnni, specdec__avx2_block_function *unpack, const unsigned char *tile,
                           const char *ahead, size_t span, int blocks, specdec__panel *panel, specdec__x86_columns x,
                           size_t n, int count, float *sums)
{
    const size_t per = 32 / (size_t)specdec__x86_values_per_scale(type);
    int b;

    for (b = 0; b < blocks; b++, ahead += span) {
        unpack(tile, b, ahead, panel);
        specdec__avx2_dot_block(type, vnni, panel, b, x, count, sums);
        x.codes += n * 8;
        x.pairs += n * per;
        x.totals += n * per;
        x.scales += n;
    }
}

/* Multiplies tiles by columns block by block, as a specdec__multiply_function, for a type, or for all types with the
   same kind of panel. Takes one tile after the other: where memory is not the limit, a single stream is faster. */
SPECDEC__AVX2 SPECDEC__INLINE void
specdec__avx2_multiply_by_blocks(int type, int vnni, specdec__avx2_block_function *unpack, const specdec__tiles *tiles,
                                 int blocks, specdec__panel *panel, const specdec__columns *x, int block, int column,
                                 int count, float *const *sums)
{
    const size_t span = (size_t)tiles->type->bytes * SPECDEC__ROWS * 32 / (size_t)tiles->type->block;
    int t, from;

    for (t = 0; t < 2 && tiles->tile[t]; t++) {
        const unsigned char *next = !t && tiles->tile[1] ? tiles->tile[1] : tiles->next[0];

        if (!block)
            memset(sums[t], 0, (size_t)count * SPECDEC__ROWS * sizeof(float));
        for (from = 0; from < blocks; from += SPECDEC__PANEL_VALUES / 32) {
            const size_t at = (size_t)(block + from) * (size_t)x->n + (size_t)column, byte = (size_t)from * span;

            specdec__avx2_multiply_run(type, vnni, unpack, tiles->tile[t] + byte,
                                       specdec__x86_prefetch_address(tiles->tile[t], byte, (size_t)blocks * span, next),
                                       span, specdec__min_int(SPECDEC__PANEL_VALUES / 32, blocks - from), panel,
                                       specdec__x86_columns_of_block(x, at, 32 / specdec__x86_values_per_scale(type)),
                                       (size_t)x->n, count, sums[t]);
        }
    }
}

/* Defines specdec__avx2_multiply_by_blocks for types with a kind of panel. unpack: the type's block function. */
#define SPECDEC__AVX2_BY_BLOCKS_KIND(isa, vnni, kind, type) \
    SPECDEC__AVX2 static void specdec__##isa##_multiply_by_blocks_##kind( \
        specdec__avx2_block_function *unpack, const specdec__tiles *tiles, int blocks, specdec__panel *panel, \
        const specdec__columns *x, int block, int column, int count, float *const *sums) \
    { \
        specdec__avx2_multiply_by_blocks(type, vnni, unpack, tiles, blocks, panel, x, block, column, count, sums); \
    }
/* Defines specdec__avx2_multiply_by_blocks for one type, with its block function inlined. */
#define SPECDEC__AVX2_BY_BLOCKS_INLINE(number) \
    SPECDEC__AVX2 static SPECDEC__NOINLINE void specdec__avx2_multiply_by_blocks_##number( \
        specdec__avx2_block_function *unpack, const specdec__tiles *tiles, int blocks, specdec__panel *panel, \
        const specdec__columns *x, int block, int column, int count, float *const *sums) \
    { \
        (void)unpack; \
        specdec__avx2_multiply_by_blocks(SPECDEC__TYPE_##number, 0, specdec__avx2_unpack_block_##number, tiles, \
                                         blocks, panel, x, block, column, count, sums); \
    }
/* Defines the multiply function of a type. fused: number of columns, 2 or 4, up to which no panel is used; 0: always a
   panel. */
#define SPECDEC__AVX2_MULTIPLY(isa, vnni, number, kind, fused) \
    SPECDEC__AVX2 static void specdec__##isa##_multiply_##number(const specdec__tiles *tiles, int blocks, \
                                                                 specdec__panel *panels, const specdec__columns *x, \
                                                                 int block, int column, int count, float *const *sums) \
    { \
        if (fused && count <= fused) \
            specdec__avx2_multiply(SPECDEC__TYPE_##number, vnni, fused, tiles, blocks, x, block, column, count, sums); \
        else \
            specdec__##isa##_multiply_by_blocks_##kind(specdec__avx2_unpack_block_##number, tiles, blocks, panels, x, \
                                                       block, column, count, sums); \
    }
/* Defines the multiply function of Q6_K: only two products of 6-bit codes can be added in 16 bits, and granules are
   short, so that panels are not faster at any width. */
#define SPECDEC__AVX2_MULTIPLY_Q6_K(isa, vnni) \
    SPECDEC__AVX2 static void \
    specdec__##isa##_multiply_Q6_K(const specdec__tiles *tiles, int blocks, specdec__panel *panels, \
                                   const specdec__columns *x, int block, int column, int count, float *const *sums) \
    { \
        (void)panels; \
        specdec__avx2_multiply(SPECDEC__TYPE_Q6_K, vnni, 0, tiles, blocks, x, block, column, count, sums); \
    }
/* Defines all multiply functions of AVX2 or AVX-VNNI. fused: as above, for common types; for types of one, two and four
   bits it is 2. */
#define SPECDEC__AVX2_MULTIPLIES(isa, vnni, fused, kind_q4_0, kind_q4_k) \
    SPECDEC__AVX2_BY_BLOCKS_KIND(isa, vnni, 32, SPECDEC__X86_PANEL_32) \
    SPECDEC__AVX2_BY_BLOCKS_KIND(isa, vnni, 32m, SPECDEC__X86_PANEL_32M) \
    SPECDEC__AVX2_BY_BLOCKS_KIND(isa, vnni, 32_signed, SPECDEC__X86_PANEL_32_SIGNED) \
    SPECDEC__AVX2_BY_BLOCKS_KIND(isa, vnni, 16, SPECDEC__X86_PANEL_16) \
    SPECDEC__AVX2_BY_BLOCKS_KIND(isa, vnni, 16m, SPECDEC__X86_PANEL_16M) \
    SPECDEC__AVX2_BY_BLOCKS_KIND(isa, vnni, 16_signed, SPECDEC__X86_PANEL_16_SIGNED) \
    SPECDEC__AVX2_MULTIPLY(isa, vnni, Q4_0, kind_q4_0, fused) \
    SPECDEC__AVX2_MULTIPLY(isa, vnni, Q8_0, 32_signed, fused) \
    SPECDEC__AVX2_MULTIPLY(isa, vnni, Q4_K, kind_q4_k, fused) \
    SPECDEC__AVX2_MULTIPLY_Q6_K(isa, vnni) \
    SPECDEC__AVX2_MULTIPLY(isa, vnni, Q4_1, 32m, 0) \
    SPECDEC__AVX2_MULTIPLY(isa, vnni, Q5_0, 32, 0) \
    SPECDEC__AVX2_MULTIPLY(isa, vnni, Q5_1, 32m, 0) \
    SPECDEC__AVX2_MULTIPLY(isa, vnni, Q2_K, 16m, 0) \
    SPECDEC__AVX2_MULTIPLY(isa, vnni, Q3_K, 16, 0) \
    SPECDEC__AVX2_MULTIPLY(isa, vnni, Q5_K, 32m, 0) \
    SPECDEC__AVX2_MULTIPLY(isa, vnni, IQ4_NL, 32_signed, 0) \
    SPECDEC__AVX2_MULTIPLY(isa, vnni, IQ4_XS, 32_signed, 0) \
    SPECDEC__AVX2_MULTIPLY(isa, vnni, MXFP4, 32, 2) \
    SPECDEC__AVX2_MULTIPLY(isa, vnni, NVFP4, 16, 0) \
    SPECDEC__AVX2_MULTIPLY(isa, vnni, Q1_0, 32, 2) \
    SPECDEC__AVX2_MULTIPLY(isa, vnni, Q2_0, 32, 2) \
    SPECDEC__AVX2_MULTIPLY(isa, vnni, TQ2_0, 32, 2) \
    SPECDEC__AVX2_MULTIPLY(isa, vnni, IQ2_XXS, 32_signed, 0) \
    SPECDEC__AVX2_MULTIPLY(isa, vnni, IQ2_XS, 16_signed, 0) \
    SPECDEC__AVX2_MULTIPLY(isa, vnni, IQ2_S, 16_signed, 0) \
    SPECDEC__AVX2_MULTIPLY(isa, vnni, IQ3_XXS, 32_signed, 0) \
    SPECDEC__AVX2_MULTIPLY(isa, vnni, IQ3_S, 32_signed, 0)

SPECDEC__AVX2_BY_BLOCKS_INLINE(Q4_0)
SPECDEC__AVX2_BY_BLOCKS_INLINE(Q4_K)
SPECDEC__AVX2_MULTIPLIES(avx2, 0, 2, Q4_0, Q4_K)
#ifdef SPECDEC__AVXVNNI /* unpacking takes most of the time here */
SPECDEC__AVX2_MULTIPLIES(avxvnni, 1, SPECDEC__AVX2_REGISTER_COLUMNS, 32, 32m)
#endif
#endif /* x86_64 */
