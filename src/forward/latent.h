/* =====================================================================================================================
 * >>forward/latent: latent attention (MLA, DeepSeek-AI 2024, arXiv 2405.04434): all heads share one key, which is a
 *     part that RoPE rotates and, behind it, a latent row; the latent row is also the value.
 *
 * A query has a part that RoPE rotates and an unrotated part. With attn_k_b[h] (latent, unrotated)
 * and attn_v_b[h] (value, latent) of head h, the score of a query with a key is
 *     rotated query . rotated key + still query . attn_k_b[h]^T latent
 * and the output of the head is attn_v_b[h] (sum of weights times latent). So attn_k_b is applied to queries and
 * attn_v_b to sums, and the cache holds latent rows alone. Both products have a column for each head and node.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/pool.h"
#include "../kernel/kernel.h"
#include "../model/model.h"
#include "../model/tensors.h"
#include "context.h"
#include "multiply.h"
#include "rows.h"

/* Multiplies the columns of each head by the matrix of that head: out (n, stride) has `size` values for each head in a
   row. Columns [head * n, head * n + n) of c->columns are those of one head. */
static void specdec__forward_multiply_head_matrices(specdec__context *c, int thread, const specdec__layer *layer,
                                                    int matrix, float *out, int size, int stride)
{
    const specdec__matrix *w = &layer->matrix[matrix];
    const int heads = layer->shape.heads, own = specdec__matrix_count_tiles(w) / heads, tiles = own * heads;
    const int passes = (c->n + SPECDEC__PASS_COLUMNS - 1) / SPECDEC__PASS_COLUMNS;
    specdec__scratch *scratch = &c->scratch[thread];
    specdec__matrix_product t = {w, NULL, NULL, (size_t)stride};
    specdec__matrix_tile places[2], next[2];
    specdec__item_walk walk;
    float *sums[2];
    int i, pair;

    sums[0] = scratch->sums;
    sums[1] = scratch->sums + SPECDEC__PASS_COLUMNS * SPECDEC__ROWS;
    for (i = 0; i < 2; i++)
        places[i].matrix = next[i].matrix = w;
    for (specdec__item_walk_begin(&walk, c->pool, tiles * passes, 2); walk.at < walk.count;
         specdec__item_walk_advance(&walk, pair)) {
        const int column = walk.at / tiles * SPECDEC__PASS_COLUMNS, tile = walk.at % tiles, head = tile / own;
        const int columns = specdec__min_int(SPECDEC__PASS_COLUMNS, c->n - column);

        pair = (tile + 1) % own && walk.at + 1 < walk.end ? 2 : 1;
        places[0].tile = tile;
        places[1].tile = tile + 1;
        next[0].tile = specdec__item_walk_item_after(&walk, pair) % tiles;
        next[1].tile = specdec__min_int(next[0].tile + 1, tiles - 1);
        specdec__forward_multiply_tiles(c, places, pair, next, head * c->n + column, columns, scratch, sums);
        t.rows_out = out + (size_t)head * (size_t)size;
        for (i = 0; i < pair; i++)
            specdec__forward_store_tile(c, &t, places[i].tile % own, column, columns, sums[i]);
    }
}

/* Quantises c->latent_columns, a column for each head and node, and multiplies them as
   specdec__forward_multiply_head_matrices does. Returns 1 when cancelled. */
static int specdec__forward_project_by_head_matrices(specdec__context *c, int thread, const specdec__layer *layer,
                                                     int matrix, float *out, int size, int stride)
{
    specdec__matrix_input in;

    memset(&in, 0, sizeof in);
    in.values = c->latent_columns;
    in.n = layer->shape.heads * c->n;
    in.stride = specdec__forward_stride(layer->matrix[matrix].columns);
    specdec__forward_quantise(c, thread, &in);
    if (specdec__pool_barrier(c->pool))
        return 1;
    specdec__forward_multiply_head_matrices(c, thread, layer, matrix, out, size, stride);
    return specdec__pool_barrier(c->pool);
}

/* Computes c->absorbed (n, heads * rank): attn_k_b of each head times the unrotated part of its query. Returns 1 when
   cancelled. */
static int specdec__forward_absorb_queries(specdec__context *c, int thread, const specdec__layer *layer)
{
    const specdec__latent *latent = &c->model->latent_attention;
    const int heads = layer->shape.heads, still = latent->key_dim - layer->shape.rope_dim;
    const size_t stride = (size_t)specdec__forward_stride(heads * latent->key_dim);
    int i, head;

    for (i = thread; i < c->n; i += specdec__pool_active(c->pool))
        for (head = 0; head < heads; head++)
            memcpy(c->latent_columns + (size_t)(head * c->n + i) * (size_t)specdec__forward_stride(still),
                   c->queries + (size_t)i * stride + (size_t)(head * latent->key_dim), (size_t)still * sizeof(float));
    if (specdec__pool_barrier(c->pool))
        return 1;
    return specdec__forward_project_by_head_matrices(c, thread, layer, SPECDEC__K_B, c->absorbed, latent->rank,
                                                     specdec__forward_stride(heads * latent->rank));
}

/* Writes a query of a head to out, or with head -1 the key, for one row of the step: the part that RoPE rotates, then
   the latent part (rank). */
static void specdec__forward_join_latent_row(const specdec__context *c, const specdec__layer *l, int row, int head,
                                             float *out)
{
    const specdec__latent *latent = &c->model->latent_attention;
    const int rank = latent->rank, turns = l->shape.rope_dim, heads = l->shape.heads;
    const float *key = c->keys + (size_t)row * (size_t)specdec__forward_stride(rank + turns);
    const float *query = c->queries + (size_t)row * (size_t)specdec__forward_stride(heads * latent->key_dim);

    if (head < 0) {
        memcpy(out, key + rank, (size_t)turns * sizeof *out);
        c->kernels->norm(key, l->vector[SPECDEC__LATENT_NORM], c->model->epsilon, rank, 0, rank, out + turns);
        return;
    }
    memcpy(out, query + (head + 1) * latent->key_dim - turns, (size_t)turns * sizeof *out);
    memcpy(out + turns, c->absorbed + (size_t)row * (size_t)specdec__forward_stride(heads * rank) +
                            (size_t)(head * rank), (size_t)rank * sizeof *out);
}
