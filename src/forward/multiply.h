/* =====================================================================================================================
 * >>forward/multiply: matrices times the columns of a step, each tile of weights unpacked once.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/pool.h"
#include "../kernel/kernel.h"
#include "../kernel/dispatch.h"
#include "../model/model.h"
#include "../model/tensors.h"
#include "context.h"
#include "screen.h"

/* A tile of a matrix: rows [16 * tile, 16 * tile + 16). */
typedef struct specdec__matrix_tile {
    const specdec__matrix *matrix; /* the matrix that the tile belongs to */
    int tile;                      /* number of the tile */
} specdec__matrix_tile;

/* Returns the address of a tile: repacked, or as its rows lie in the file. */
SPECDEC__INLINE const unsigned char *specdec__matrix_tile_address(const specdec__matrix_tile *place)
{
    const specdec__matrix *matrix = place->matrix;

    return matrix->tiles ? matrix->tiles + (size_t)place->tile * specdec__matrix_tile_bytes(matrix)
                         : specdec__matrix_tile_in_file(matrix, place->tile);
}

/* Whether all of these tiles have 16 rows; the last tile of a matrix may have fewer. */
static int specdec__tiles_have_16_rows(const specdec__matrix_tile *places, int count)
{
    while (count && (places[count - 1].tile + 1) * SPECDEC__ROWS <= places[count - 1].matrix->rows)
        count--;
    return !count;
}

/* Multiplies tiles of a matrix in planes by columns, as specdec__forward_multiply_tiles does: by the upper plane alone
   where the step computes bounds, else by both planes. */
static void specdec__forward_multiply_planes(const specdec__context *c, const specdec__matrix_tile *places,
                                             int place_count, const specdec__matrix_tile *next, int column, int count,
                                             specdec__scratch *scratch, float *const *sums)
{
    const specdec__matrix *matrix = places->matrix;
    const int all = matrix->columns / 32;
    const size_t bytes = (size_t)all * SPECDEC__PLANE_UPPER;
    specdec__multiply_function *multiply = c->screen.computed ? c->kernels->multiply_upper_plane
                                                              : c->kernels->multiply_planes;
    specdec__tiles tiles;
    int from, i;

    tiles.type = matrix->type;
    tiles.tile[1] = NULL;
    tiles.l1_bytes = c->kernels->reading.l1_bytes;
    tiles.planes = matrix->tiles;
    for (i = 0; multiply && i < place_count; i++) {
        tiles.tile[i] = matrix->tiles + (size_t)places[i].tile * bytes;
        tiles.next[i] = matrix->tiles + (size_t)next[i].tile * bytes;
    }
    if (multiply) {
        multiply(&tiles, all, scratch->panel, &c->columns, 0, column, count, sums);
        return;
    }
    for (from = 0; from < all; from += SPECDEC__PANEL_VALUES / 32) {
        const int blocks = specdec__min_int(SPECDEC__PANEL_VALUES / 32, all - from);

        for (i = 0; i < place_count; i++) {
            unsigned char *tile = scratch->tile + i * (SPECDEC__PANEL_VALUES * SPECDEC__ROWS * 4);

            c->kernels->join_planes(matrix->tiles, (size_t)places[i].tile * (size_t)all + (size_t)from, blocks,
                             !c->screen.computed, tile);
            tiles.tile[i] = tiles.next[i] = tile;
        }
        specdec__kernels_multiply(c->kernels, &tiles, blocks, scratch->panel, &c->columns, from, column, count, sums);
    }
}

/* Computes what specdec__forward_multiply_tiles computes, before the scales of matrices are applied. */
static void specdec__forward_multiply_unscaled(const specdec__context *c, const specdec__matrix_tile *places,
                                               int place_count, const specdec__matrix_tile *next, int column, int count,
                                               specdec__scratch *scratch, float *const *sums)
{
    const specdec__matrix *matrix = places->matrix;
    const size_t room = SPECDEC__PANEL_VALUES * SPECDEC__ROWS * 4;
    specdec__tiles tiles;
    int from, i;

    if (matrix->bounds) {
        specdec__forward_multiply_planes(c, places, place_count, next, column, count, scratch, sums);
        return;
    }
    tiles.type = matrix->type;
    tiles.tile[1] = NULL;
    for (i = 0; i < place_count; i++) {
        tiles.tile[i] = specdec__matrix_tile_address(&places[i]);
        tiles.next[i] = specdec__matrix_tile_address(&next[i]);
    }
    if (matrix->tiles) {
        specdec__kernels_multiply(c->kernels, &tiles, matrix->columns / 32, scratch->panel, &c->columns, 0, column,
                                  count, sums);
        return;
    }
    if (c->columns.n == 1 && c->kernels->rows[matrix->type->number] && matrix->columns % 512 == 0 &&
        specdec__tiles_have_16_rows(places, place_count)) {
        c->kernels->rows[matrix->type->number](&tiles, matrix->row_bytes, matrix->columns / 32, &c->columns,
                                               scratch->tile, sums);
        return;
    }
    for (from = 0; from < matrix->columns; from += SPECDEC__PANEL_VALUES) {
        int values = specdec__min_int(SPECDEC__PANEL_VALUES, matrix->columns - from);
        size_t blocks = (size_t)(values / matrix->type->block);

        for (i = 0; i < place_count; i++) {
            const specdec__matrix *own = places[i].matrix;

            const int rows = specdec__min_int(SPECDEC__ROWS, own->rows - places[i].tile * SPECDEC__ROWS);
            unsigned char *tile = scratch->tile + (size_t)i * room;

            c->kernels->interleave(
                own->type,
                specdec__matrix_tile_address(&places[i]) + (size_t)(from / own->type->block) * own->type->bytes,
                own->row_bytes, rows, blocks, tile);
            tiles.tile[i] = tiles.next[i] = tile;
        }
        specdec__kernels_multiply(c->kernels, &tiles, values / 32, scratch->panel, &c->columns, from / 32, column,
                                  count, sums);
    }
}

/* Computes sums[i] (count, 16): tile places[i] times columns [column, column + count) of c->columns. The matrices of
   the tiles have the same type and columns. next: the tiles that this thread multiplies next, to be prefetched. */
static void specdec__forward_multiply_tiles(const specdec__context *c, const specdec__matrix_tile *places,
                                            int place_count, const specdec__matrix_tile *next, int column, int count,
                                            specdec__scratch *scratch, float *const *sums)
{
    int i;

    specdec__forward_multiply_unscaled(c, places, place_count, next, column, count, scratch, sums);
    for (i = 0; i < place_count; i++) {
        const specdec__matrix *matrix = places[i].matrix;
        const int at = matrix->scale_tiles ? places[i].tile / matrix->scale_tiles : 0;

        if (matrix->scales)
            c->kernels->scale(sums[i], specdec__load_f32(matrix->scales + 4 * (size_t)at), count * SPECDEC__ROWS);
    }
}

SPECDEC__FOR_SIZE
/* Slices of a matrix that are multiplied to measure the time of a step, one for each thread. A slice is `pairs` pairs
   of tiles; the first thread's slice has the number index * threads. */
typedef struct specdec__slices {
    specdec__context *context;     /* whose pool and scratch are used */
    const specdec__matrix *matrix; /* the matrix to be timed */
    int number, pairs;             /* number of this measurement; pairs of tiles in a slice */
} specdec__slices;

/* Multiplies a thread's slice by column 0, whatever it holds, and discards the sums: the weights are read as in a step
   of one token. */
static SPECDEC__UNUSED void specdec__forward_multiply_slice(void *argument, int thread)
{
    const specdec__slices *slices = (const specdec__slices *)argument;
    specdec__context *c = slices->context;
    const int all = specdec__matrix_count_tiles(slices->matrix) / 2 - 1, pairs = slices->pairs;
    int k = slices->number * specdec__pool_active(c->pool) + thread, end, i;
    specdec__matrix_tile places[4]; /* a pair of tiles and the next pair */
    float *sums[2];

    for (i = 0; i < 4; i++)
        places[i].matrix = slices->matrix;
    sums[0] = c->scratch[thread].sums;
    sums[1] = sums[0] + SPECDEC__ROWS;
    k = pairs < all ? k % (all / pairs) * pairs : 0;
    for (end = k + pairs; k < all && k < end; k++) {
        for (i = 0; i < 4; i++)
            places[i].tile = 2 * k + i;
        specdec__forward_multiply_tiles(c, places, 2, places + 2, 0, 1, &c->scratch[thread], sums);
    }
}
SPECDEC__FOR_SPEED

/* A matrix to be multiplied, and where its product goes: out (n, stride) = matrix times columns + bias. */
typedef struct specdec__matrix_product {
    const specdec__matrix *matrix; /* the matrix to multiply by */
    const float *bias;             /* (rows); NULL: none */
    float *rows_out;               /* (n, stride) the product */
    size_t stride;                 /* floats between rows of the product */
} specdec__matrix_product;

/* Writes the sums (count, 16) of a tile, plus the bias, to the rows of its target for columns [column, column + count).
   */
static void specdec__forward_store_tile(const specdec__context *c, const specdec__matrix_product *t, int tile,
                                        int column, int count, const float *sums)
{
    int rows = t->matrix->rows - tile * SPECDEC__ROWS, i;
    const float *bias = t->bias ? t->bias + tile * SPECDEC__ROWS : NULL;
    float *out = t->rows_out + (size_t)column * t->stride + (size_t)tile * SPECDEC__ROWS, last[SPECDEC__ROWS];

    if (rows >= SPECDEC__ROWS) {
        c->kernels->store_sums(sums, count, bias, out, t->stride);
        return;
    }
    for (i = 0; i < count; i++, sums += SPECDEC__ROWS, out += t->stride) { /* the last, partial tile */
        c->kernels->store_sums(sums, 1, bias, last, 0);
        memcpy(out, last, (size_t)rows * sizeof *out);
    }
}

/* Finds tile i of several matrices whose tiles are numbered one matrix behind the other: places[0] becomes this tile,
   places[1] the next one of the same matrix. Returns the target of the matrix. */
static const specdec__matrix_product *specdec__forward_find_tile(const specdec__matrix_product *targets, int i,
                                                                 specdec__matrix_tile *places)
{
    for (; i >= specdec__matrix_count_tiles(targets->matrix); targets++)
        i -= specdec__matrix_count_tiles(targets->matrix);
    places[0].matrix = places[1].matrix = targets->matrix;
    places[0].tile = i;
    places[1].tile = i + 1;
    return targets;
}

/* Multiplies several matrices by c->columns. Threads claim tiles, two at a time. */
static void specdec__forward_multiply(specdec__context *c, int thread, const specdec__matrix_product *targets,
                                      int count)
{
    specdec__scratch *scratch = &c->scratch[thread];
    float *sums[2];
    int tiles = 0, passes = (c->columns.n + SPECDEC__PASS_COLUMNS - 1) / SPECDEC__PASS_COLUMNS, i, pair;
    specdec__item_walk walk;

    sums[0] = scratch->sums;
    sums[1] = scratch->sums + SPECDEC__PASS_COLUMNS * SPECDEC__ROWS;
    for (i = 0; i < count; i++)
        tiles += specdec__matrix_count_tiles(targets[i].matrix);
    for (specdec__item_walk_begin(&walk, c->pool, tiles * passes, 2); walk.at < walk.count;
         specdec__item_walk_advance(&walk, pair)) {
        specdec__matrix_tile places[2], next[2];
        const int pass = passes > 1 ? walk.at / tiles : 0, column = pass * SPECDEC__PASS_COLUMNS; /* no slow division */
        const int columns = specdec__min_int(SPECDEC__PASS_COLUMNS, c->columns.n - column);
        const specdec__matrix_product *t = specdec__forward_find_tile(targets, walk.at - pass * tiles, places);
        int after;

        pair = places[1].tile < specdec__matrix_count_tiles(t->matrix) && walk.at + 1 < walk.end ? 2 : 1;
        after = specdec__item_walk_item_after(&walk, pair);
        specdec__forward_find_tile(targets, passes > 1 ? after % tiles : after, next);
        specdec__forward_multiply_tiles(c, places, pair, next, column, columns, scratch, sums);
        for (i = 0; i < pair && c->screen.computed && t->matrix == c->output; i++)
            specdec__screen_compute_bounds(c, t->matrix, places[i].tile, column, columns, sums[i]);
        for (i = 0; i < pair; i++)
            specdec__forward_store_tile(c, t, places[i].tile, column, columns, sums[i]);
    }
}
