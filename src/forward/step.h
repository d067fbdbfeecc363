/* =====================================================================================================================
 * >>forward/step: runs a step, one forward pass of a batch: embedding, layers, experts, logits; commits its nodes.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/pool.h"
#include "../quant/table.h"
#include "../base/op.h"
#include "../kernel/kernel.h"
#include "../model/model.h"
#include "../cache/state.h"
#include "../cache/kv.h"
#include "../cache/reserve.h"
#include "context.h"
#include "screen.h"
#include "multiply.h"
#include "rows.h"
#include "latent.h"
#include "streams.h"
#include "attention.h"
#include "recurrent.h"
#include "block.h"
#include "experts.h"

SPECDEC__FOR_SIZE

/* Returns the description of a product that threads are to compute: a layer's matrix, a bias (-1: none), and where the
   rows of the result go, `stride` floats apart. */
static specdec__matrix_product specdec__forward_make_product(const specdec__layer *layer, int matrix, int bias,
                                                             float *out, int stride)
{
    specdec__matrix_product t;

    t.matrix = &layer->matrix[matrix];
    t.bias = bias >= 0 ? layer->vector[bias] : NULL;
    t.rows_out = out;
    t.stride = (size_t)stride;
    return t;
}

/* Returns the description of an input of matrices: n rows of values, `stride` floats apart. up: NULL, or values become
   activation(values) * up. */
static specdec__matrix_input specdec__forward_make_input(float *values, int n, int stride, const float *up)
{
    specdec__matrix_input in;

    in.values = values;
    in.n = n;
    in.stride = stride;
    in.source = NULL;
    in.norm = NULL;
    in.source_rows = NULL;
    in.up = up;
    in.up_stride = stride;
    in.ungated = 0;
    in.xielu = NULL;
    return in;
}

/* Returns the description of the input of a feed-forward network's last matrix: activation(values) * up; up NULL:
   activation(values). */
static specdec__matrix_input specdec__forward_activated_input(const specdec__context *c, const specdec__layer *layer,
                                                              float *values, int n, int stride, const float *up)
{
    specdec__matrix_input in = specdec__forward_make_input(values, n, stride, up);

    in.ungated = !up;
    in.xielu = c->model->trait[SPECDEC__ACTIVATION] == SPECDEC__XIELU ? layer->activation : NULL;
    return in;
}

/* Returns the description of an input of matrices, n rows in c->h: the norms of the rows of c->x. norm: weights; NULL:
   no norm, the rows themselves. */
static specdec__matrix_input specdec__forward_normed_input(specdec__context *c, int n, const float *norm)
{
    specdec__matrix_input in = specdec__forward_make_input(c->h, n, c->e, NULL);

    in.source = c->x;
    in.norm = norm;
    return in;
}

/* Quantises an input, and multiplies several matrices by it. Returns 1 when the step is cancelled. */
static int specdec__forward_project(specdec__context *c, int thread, const specdec__matrix_input *in,
                                    const specdec__matrix_product *targets, int count)
{
    specdec__forward_quantise(c, thread, in);
    if (specdec__pool_barrier(c->pool))
        return 1;
    specdec__forward_multiply(c, thread, targets, count);
    return specdec__pool_barrier(c->pool);
}

/* Computes the queries of latent attention, in c->queries and c->absorbed, and in c->keys the one key of all heads,
   before its norm. Returns 1 when cancelled. */
static int specdec__forward_project_latent_queries(specdec__context *c, int thread, const specdec__layer *layer)
{
    const specdec__latent *latent = &c->model->latent_attention;
    specdec__matrix_input in = specdec__forward_normed_input(c, c->n, layer->vector[SPECDEC__ATTENTION_NORM]);
    const int queries = specdec__forward_stride(layer->shape.heads * latent->key_dim);
    const int low = specdec__forward_stride(latent->query_rank);
    specdec__matrix_product t[2];

    t[0] = latent->query_rank ? specdec__forward_make_product(layer, SPECDEC__Q_A, -1, c->query_latent, low)
                              : specdec__forward_make_product(layer, SPECDEC__Q, -1, c->queries, queries);
    t[1] = specdec__forward_make_product(layer, SPECDEC__KV_A, -1, c->keys,
                                         specdec__forward_stride(layer->shape.key_dim));
    if (specdec__forward_project(c, thread, &in, t, 2))
        return 1;
    if (latent->query_rank) {
        in = specdec__forward_make_input(c->h, c->n, low, NULL);
        in.source = c->query_latent;
        in.norm = layer->vector[SPECDEC__LOW_NORM];
        t[0] = specdec__forward_make_product(layer, SPECDEC__Q_B, -1, c->queries, queries);
        if (specdec__forward_project(c, thread, &in, t, 1))
            return 1;
    }
    return specdec__forward_absorb_queries(c, thread, layer);
}

/* Runs the convolution before a half of a layer (models that draft blocks). *in: at first the norms of x; then the
   output of the convolution, which the first matrices of the half read. Returns 1 when cancelled. */
static int specdec__forward_convolve_half_input(specdec__context *c, int thread, const specdec__layer *layer,
                                                int matrix, int base, specdec__matrix_input *in)
{
    const int stride = specdec__forward_stride(layer->matrix[matrix].rows);
    const specdec__matrix_product t = specdec__forward_make_product(layer, matrix, -1, c->conv_weights, stride);

    if (specdec__forward_project(c, thread, in, &t, 1))
        return 1;
    specdec__forward_convolve_block(c, thread, layer->vector[base], 0, in->values);
    *in = specdec__forward_make_input(c->conv_output, c->n, c->e, NULL);
    return specdec__pool_barrier(c->pool);
}

/* Runs the convolution behind a half of a layer (models that draft blocks), over the half's output in c->y. Returns 1
   when cancelled. */
static int specdec__forward_convolve_half_output(specdec__context *c, int thread, const float *base)
{
    specdec__forward_convolve_block(c, thread, base, 1, c->y);
    if (specdec__pool_barrier(c->pool))
        return 1;
    specdec__forward_copy_conv_output(c, thread, c->y);
    return 0;
}

/* Computes the queries, keys and values of a layer from the norms of c->x. Norms of queries and keys, and RoPE, are
   applied later. Returns 1 when cancelled. */
static int specdec__forward_project_queries(specdec__context *c, int thread, const specdec__layer *layer)
{
    specdec__matrix_input in = specdec__forward_normed_input(c, c->n, layer->vector[SPECDEC__ATTENTION_NORM]);
    const specdec__shape *s = &layer->shape;
    const int owns = specdec__context_kv_layer(c, layer)->owns_keys, values = layer->matrix[SPECDEC__V].rows > 0;
    specdec__matrix_product t[3];

    if (c->model->trait[SPECDEC__READS_STATES] == SPECDEC__BESIDE_EMBEDDINGS)
        in = specdec__forward_make_input(c->h, c->n, specdec__forward_stride(2 * c->model->embedding), NULL);
    if (c->conv_weights && specdec__forward_convolve_half_input(c, thread, layer, SPECDEC__ATTENTION_CONV,
                                                                SPECDEC__ATTENTION_CONV_BASE, &in))
        return 1;
    t[0] = specdec__forward_make_product(layer, SPECDEC__Q, SPECDEC__Q_BIAS, c->queries,
                                         specdec__forward_stride(s->heads * specdec__model_query_rows(c->model, s)));
    t[1] = specdec__forward_make_product(layer, SPECDEC__K, SPECDEC__K_BIAS, c->keys,
                                         specdec__forward_stride(s->kv_heads * s->key_dim));
    t[2] = specdec__forward_make_product(layer, SPECDEC__V, SPECDEC__V_BIAS, c->values,
                                         specdec__forward_stride(s->kv_heads * s->value_dim));
    return specdec__forward_project(c, thread, &in, t, owns ? 2 + values : 1);
}

/* Runs the attention half of a layer: x += output matrix * attention(norm(x)). Returns 1 when cancelled. */
static int specdec__forward_run_attention_half(specdec__context *c, int thread, const specdec__layer *layer)
{
    const specdec__latent *latent = &c->model->latent_attention;
    const specdec__shape *s = &layer->shape;
    const int items = c->n * s->kv_heads;
    const int attended = specdec__forward_stride(s->heads * (latent->rank ? latent->value_dim : s->value_dim));
    specdec__matrix_input in;
    specdec__matrix_product t;
    int from, end = 0;

    if (thread == 0)
        c->rotated_columns.n = c->n * s->heads;
    if (latent->rank ? specdec__forward_project_latent_queries(c, thread, layer)
                     : specdec__forward_project_queries(c, thread, layer))
        return 1;
    if (c->model->trait[SPECDEC__JOINT_NORMS]) {
        specdec__forward_norm_joint_heads(c, thread, layer);
        if (specdec__pool_barrier(c->pool))
            return 1;
    }
    while ((from = specdec__pool_claim_items(c->pool, items, 1, &end)) < items)
        for (; from < end; from++)
            specdec__forward_rotate_queries(c, thread, layer, from / s->kv_heads, from % s->kv_heads);
    if (specdec__pool_barrier(c->pool))
        return 1;
    if (c->before_attention) {
        c->before_attention(c, thread, layer);
        if (specdec__pool_barrier(c->pool))
            return 1;
    }
    if (specdec__forward_run_attention(c, thread, layer) ||
        (latent->rank &&
         specdec__forward_project_by_head_matrices(c, thread, layer, SPECDEC__V_B, c->h, latent->value_dim, attended)))
        return 1;
    in = specdec__forward_make_input(c->h, c->n, attended, NULL);
    t = specdec__forward_make_product(layer, SPECDEC__O, SPECDEC__O_BIAS, c->y, c->e);
    if (specdec__forward_project(c, thread, &in, &t, 1) ||
        (c->conv_weights && specdec__forward_convolve_half_output(c, thread,
                                                                  layer->vector[SPECDEC__ATTENTION_CONV_BASE])))
        return 1;
    if (layer->recurrent_index >= 0)
        specdec__forward_add_residual(c, thread, layer->vector[SPECDEC__AFTER_ATTENTION], c->recurrent.x_plus_output,
                                      c->x);
    else
        specdec__forward_add_half_output(c, thread, layer->vector[SPECDEC__AFTER_ATTENTION], 0);
    return specdec__pool_barrier(c->pool);
}

/* Lists the input matrices of a recurrent layer, and where in rows of c->recurrent.projected they write. Returns how
   many. */
static int specdec__recurrent_list_input_products(const specdec__context *c, const specdec__layer *layer,
                                                  specdec__matrix_product *t)
{
    const specdec__recurrent_sizes *m = &c->model->recurrent_sizes;
    const struct { int matrix, at; } made[] = {
        {SPECDEC__RECURRENT_SHORT_IN, 0}, {SPECDEC__RECURRENT_SSM_IN, 0}, {SPECDEC__RECURRENT_GATE, 0},
        {SPECDEC__RECURRENT_QKV, m->first_input}, {SPECDEC__RECURRENT_BETA, m->first_input + m->channels},
        {SPECDEC__RECURRENT_BETA_ALPHA, m->first_input + m->channels},
        {SPECDEC__RECURRENT_ALPHA, m->first_input + m->channels + specdec__round_up(m->heads, 16)}};
    int i, count = 0;

    for (i = 0; i < (int)SPECDEC__COUNT(made); i++)
        if (layer->matrix[made[i].matrix].rows)
            t[count++] = specdec__forward_make_product(layer, made[i].matrix, -1, c->recurrent.projected + made[i].at,
                                                       c->recurrent.projected_stride);
    return count;
}

/* Runs the recurrent half of a layer: x += output of the recurrence of norm(x). Where the layer also attends, the sum
   goes to c->recurrent.x_plus_output and x stays. Returns 1 when cancelled. */
static int specdec__forward_run_recurrent_half(specdec__context *c, int thread, const specdec__layer *layer)
{
    specdec__matrix_input in = specdec__forward_normed_input(c, c->n, layer->vector[SPECDEC__ATTENTION_NORM]);
    const specdec__recurrent_sizes *m = &c->model->recurrent_sizes;
    specdec__matrix_product t[4];
    const int count = specdec__recurrent_list_input_products(c, layer, t);

    if (specdec__forward_project(c, thread, &in, t, count) || specdec__recurrent_run_layer(c, thread, layer))
        return 1;
    in = specdec__forward_make_input(c->h, c->n, c->recurrent.output_stride, NULL);
    t[0] = specdec__forward_make_product(layer, m->heads ? SPECDEC__RECURRENT_SSM_OUT : SPECDEC__RECURRENT_SHORT_OUT,
                                         -1, c->y, c->e);
    if (specdec__forward_project(c, thread, &in, t, 1))
        return 1;
    if (layer->shape.kv_heads)
        specdec__forward_add_residual(c, thread, NULL, c->x, c->recurrent.x_plus_output);
    else
        specdec__forward_add_half_output(c, thread, layer->vector[SPECDEC__AFTER_ATTENTION], 0);
    return specdec__pool_barrier(c->pool);
}

/* Runs the feed-forward network of a layer that every token passes: out (n, e) = down(activation(gate x) * up x), or
   without a gate down(activation(up x)). Returns 1 when cancelled. */
static int specdec__forward_run_network(specdec__context *c, int thread, const specdec__layer *layer,
                                        const specdec__matrix_input *x, float *out)
{
    const int ff = specdec__forward_stride(layer->shape.feed_forward);
    const int gated = layer->matrix[SPECDEC__GATE].rows > 0;
    float *up = layer->shape.experts ? c->up : c->y;
    specdec__matrix_input in;
    specdec__matrix_product t[2];

    t[0] = specdec__forward_make_product(layer, SPECDEC__GATE, SPECDEC__GATE_BIAS, c->hidden, ff);
    t[gated] = specdec__forward_make_product(layer, SPECDEC__UP, SPECDEC__UP_BIAS, gated ? up : c->hidden, ff);
    if (specdec__forward_project(c, thread, x, t, 1 + gated))
        return 1;
    if (layer->sparsity > 0 || layer->sparsity < 0) {
        specdec__forward_sparsify_gates(c, thread, layer->sparsity, c->hidden, layer->shape.feed_forward, ff);
        if (specdec__pool_barrier(c->pool))
            return 1;
    }
    in = specdec__forward_activated_input(c, layer, c->hidden, c->n, ff, gated ? up : NULL);
    t[0] = specdec__forward_make_product(layer, SPECDEC__DOWN, SPECDEC__DOWN_BIAS, out, c->e);
    return specdec__forward_project(c, thread, &in, t, 1);
}

/* Runs the feed-forward half of a layer without experts: x += network(norm(x)). Returns 1 when cancelled. */
static int specdec__forward_run_ffn_half(specdec__context *c, int thread, const specdec__layer *layer)
{
    specdec__matrix_input in = specdec__forward_normed_input(c, c->n, layer->vector[SPECDEC__FFN_NORM]);

    if ((c->conv_weights && specdec__forward_convolve_half_input(c, thread, layer, SPECDEC__FFN_CONV,
                                                                 SPECDEC__FFN_CONV_BASE, &in)) ||
        specdec__forward_run_network(c, thread, layer, &in, c->y) ||
        (c->conv_weights && specdec__forward_convolve_half_output(c, thread, layer->vector[SPECDEC__FFN_CONV_BASE])))
        return 1;
    specdec__forward_add_half_output(c, thread, layer->vector[SPECDEC__AFTER_FFN], 1);
    return specdec__pool_barrier(c->pool);
}

/* Computes row i of the embeddings for layers, e[l] of all layers (specdec__layer_embeddings); at first the row is
   matrix * x0. */
static void specdec__forward_compute_layer_embedding(specdec__context *c, int thread, int i)
{
    const specdec__layer_embeddings *inputs = &c->model->layer_embeddings;
    const int width = inputs->width, all = inputs->token_table.columns;
    float *row = c->layer_embeddings + (size_t)i * (size_t)specdec__forward_stride(all),
          *table = c->scratch[thread].layer_embeddings;
    int at;

    specdec__quant_to_float(inputs->token_table.type,
                            inputs->token_table.file +
                                (size_t)c->batch->tokens[c->first_node + i] * inputs->token_table.row_bytes,
                            (size_t)all, table);
    c->kernels->scale(row, (float)specdec__inverse_square_root(c->model->embedding), all);
    for (at = 0; at < all; at += width) {
        c->kernels->norm(row + at, inputs->norm, c->model->epsilon, width, 0, width, row + at);
        c->kernels->add_scaled(row + at, (float)(width * specdec__inverse_square_root(width)), table + at, width);
    }
    c->kernels->scale(row, 0.707106769f, all);
    specdec__forward_check_row_is_finite(c, thread, i, row, all, SPECDEC__FINITE_FACTOR);
}

/* Computes the embeddings for layers of all rows (specdec__layer_embeddings). Returns 1 when cancelled. */
static int specdec__forward_compute_layer_embeddings(specdec__context *c, int thread)
{
    const specdec__matrix_input in = specdec__forward_normed_input(c, c->n, NULL);
    specdec__matrix_product t;
    int i;

    t.matrix = &c->model->layer_embeddings.matrix;
    t.bias = NULL;
    t.rows_out = c->layer_embeddings;
    t.stride = (size_t)specdec__forward_stride(t.matrix->rows);
    if (specdec__forward_project(c, thread, &in, &t, 1))
        return 1;
    for (i = thread; i < c->n; i += specdec__pool_active(c->pool))
        specdec__forward_compute_layer_embedding(c, thread, i);
    return specdec__pool_barrier(c->pool);
}

/* Computes the output of the router of residual streams (AltUp) of a layer for x, in c->stream_router. Returns 1 when
   cancelled. */
static int specdec__forward_route_streams(specdec__context *c, int thread, const specdec__layer *layer)
{
    const specdec__matrix_input in = specdec__forward_normed_input(c, c->n, layer->vector[SPECDEC__STREAM_NORM]);
    const specdec__matrix_product t = specdec__forward_make_product(layer, SPECDEC__STREAM_ROUTER, -1, c->stream_router,
                                                                    16);

    return specdec__forward_project(c, thread, &in, &t, 1);
}

/* Computes all residual streams from x before the first layer (end = 0), or x from all streams behind the last layer
   (end = 1). Returns 1 when cancelled. */
static int specdec__forward_project_streams(specdec__context *c, int thread, int end)
{
    const specdec__streams *streams = &c->model->streams;
    const int others = streams->count - 1;
    specdec__matrix_input in = specdec__forward_normed_input(c, c->n, NULL);
    specdec__matrix_product t[SPECDEC__MAX_STREAMS - 1];
    int s;

    for (s = 0; s < others; s++) {
        t[s].matrix = &streams->matrix[end][s];
        t[s].bias = NULL;
        t[s].rows_out = specdec__forward_stream_row(c, s + 1, 0);
        in.source = t[s].rows_out;
        t[s].stride = (size_t)c->e;
        if (end && specdec__forward_project(c, thread, &in, &t[s], 1))
            return 1;
    }
    in.source = c->x;
    if (!end && specdec__forward_project(c, thread, &in, t, others))
        return 1;
    specdec__forward_equalise_streams(c, thread, end);
    return specdec__pool_barrier(c->pool);
}

/* Begins a layer of a model with several residual streams: computes the layer's prediction of all streams. Returns 1
   when cancelled. */
static int specdec__forward_begin_layer(specdec__context *c, int thread, const specdec__layer *layer)
{
    if (specdec__forward_route_streams(c, thread, layer))
        return 1;
    specdec__forward_predict_streams(c, thread, layer);
    return specdec__pool_barrier(c->pool);
}

/* Runs LAuReL behind the attention of a layer: x = (x + h + norm(up(down h))) / root(2), h being the input of
   attention: see specdec__streams. Returns 1 when cancelled. */
static int specdec__forward_run_laurel(specdec__context *c, int thread, const specdec__layer *layer)
{
    const int stride = specdec__forward_stride(layer->matrix[SPECDEC__LAUREL_DOWN].rows);
    specdec__matrix_input in = specdec__forward_normed_input(c, c->n, layer->vector[SPECDEC__ATTENTION_NORM]);
    specdec__matrix_product t = specdec__forward_make_product(layer, SPECDEC__LAUREL_DOWN, -1, c->hidden, stride);

    in.source = c->predicted;
    if (specdec__forward_project(c, thread, &in, &t, 1))
        return 1;
    in = specdec__forward_make_input(c->hidden, c->n, stride, NULL);
    t = specdec__forward_make_product(layer, SPECDEC__LAUREL_UP, -1, c->y, c->e);
    if (specdec__forward_project(c, thread, &in, &t, 1))
        return 1;
    specdec__forward_add_laurel(c, thread, layer);
    return specdec__pool_barrier(c->pool);
}

/* Ends a layer: corrects all streams, if there are several; adds the output of the layer's own embeddings to x, or to
   all streams but x; multiplies x by the layer's output scale, if it has one. Returns 1 when cancelled. */
static int specdec__forward_end_layer(specdec__context *c, int thread, const specdec__layer *layer)
{
    const int width = c->model->layer_embeddings.width, stride = specdec__forward_stride(width);
    const int count = c->model->streams.count;
    specdec__matrix_input in = specdec__forward_normed_input(c, c->n, NULL);
    specdec__matrix_product t;
    int s;

    if (count) {
        if (specdec__forward_route_streams(c, thread, layer))
            return 1;
        specdec__forward_correct_streams(c, thread, layer);
        in = specdec__forward_make_input(c->h, c->n, c->e, NULL); /* x times altup_correct_scale */
    }

    if (width) {
        t = specdec__forward_make_product(layer, SPECDEC__LAYER_EMBEDDING_GATE, -1, c->hidden, stride);
        if (specdec__forward_project(c, thread, &in, &t, 1))
            return 1;
        in = specdec__forward_make_input(c->hidden, c->n, stride,
                                         c->layer_embeddings + (size_t)layer->index * (size_t)width);
        in.up_stride = specdec__forward_stride(c->model->layer_embeddings.matrix.rows);
        t = specdec__forward_make_product(layer, SPECDEC__LAYER_EMBEDDING_OUT, -1, c->y, c->e);
        if (specdec__forward_project(c, thread, &in, &t, 1))
            return 1;
        for (s = count ? 1 : 0; s < specdec__max_int(count, 1); s++)
            specdec__forward_add_residual(c, thread, layer->vector[SPECDEC__AFTER_INPUT],
                                          specdec__forward_stream_row(c, s, 0), specdec__forward_stream_row(c, s, 0));
    }
    if (layer->vector[SPECDEC__OUTPUT_SCALE])
        specdec__forward_scale_x(c, thread, *layer->vector[SPECDEC__OUTPUT_SCALE]);
    return specdec__pool_barrier(c->pool);
}

/* Runs the router of a layer and chooses the experts of all rows; threads share the rows. Also computes the shared
   expert's router and the latent rows, which read the same h. Returns 1 when cancelled. */
static int specdec__forward_route_rows(specdec__context *c, int thread, const specdec__layer *layer)
{
    const int experts = c->model->experts, stride = specdec__forward_stride(experts);
    const float *norm = layer->vector[SPECDEC__ROUTER_NORM];
    const specdec__matrix_input in = specdec__forward_normed_input(c, c->n,
                                                                   norm ? norm : layer->vector[SPECDEC__FFN_NORM]);
    specdec__matrix_product t[3];
    int count = 0, i;

    t[count++] = specdec__forward_make_product(layer, SPECDEC__ROUTER, SPECDEC__ROUTER_BIAS, c->y, stride);
    if (layer->matrix[SPECDEC__SHARED_ROUTER].rows)
        t[count++] = specdec__forward_make_product(layer, SPECDEC__SHARED_ROUTER, -1, c->shared_router, 1);
    if (c->latent)
        t[count++] = specdec__forward_make_product(layer, SPECDEC__LATENT_DOWN, -1, c->latent,
                                                   specdec__forward_stride(c->model->latent));
    if (specdec__forward_project(c, thread, &in, t, count))
        return 1;
    for (i = thread; i < c->n; i += specdec__pool_active(c->pool)) {
        float *router = c->y + (size_t)i * (size_t)stride;

        memset(router + experts, 0, (size_t)(stride - experts) * sizeof *router);
        if (norm)
            c->kernels->scale(router, (float)specdec__inverse_square_root(c->model->embedding), stride);
        specdec__forward_check_row_is_finite(c, thread, i, router, stride, 1);
        specdec__forward_choose_experts(c, layer, i, router);
    }
    if (specdec__pool_barrier(c->pool))
        return 1;
    if (thread == 0)
        specdec__forward_assign_columns(c);
    return specdec__pool_barrier(c->pool);
}

/* Computes y: the weighted sum of the networks of each row's experts. They read h, another norm of x, or latent rows,
   according to the architecture. Returns 1 when cancelled. */
static int specdec__forward_run_experts(specdec__context *c, int thread, const specdec__layer *layer)
{
    const int columns = c->n * c->model->chosen_experts, ff = specdec__forward_stride(c->model->expert_ff);
    const int width = c->latent ? specdec__forward_stride(c->model->latent) : c->e;
    const int gated = layer->matrix[SPECDEC__EXPERT_GATE].rows > 0;
    specdec__matrix_input in = specdec__forward_make_input(c->expert_outputs, columns, width, NULL);
    specdec__matrix_product t[2];

    in.norm = layer->vector[SPECDEC__EXPERT_NORM];
    in.source = in.norm ? c->x : c->latent ? c->latent : c->h;
    in.source_rows = c->routes.row;
    t[0] = specdec__forward_make_product(layer, SPECDEC__EXPERT_GATE, SPECDEC__EXPERT_GATE_BIAS, c->hidden, ff);
    t[gated] = specdec__forward_make_product(layer, SPECDEC__EXPERT_UP, SPECDEC__EXPERT_UP_BIAS,
                                             gated ? c->up : c->hidden, ff);
    if (specdec__forward_project_routed(c, thread, &in, t, 1 + gated))
        return 1;
    in = specdec__forward_activated_input(c, layer, c->hidden, columns, ff, gated ? c->up : NULL);
    in.source_rows = c->routes.row;
    t[0] = specdec__forward_make_product(layer, SPECDEC__EXPERT_DOWN, SPECDEC__EXPERT_DOWN_BIAS, c->expert_outputs,
                                         width);
    if (specdec__forward_project_routed(c, thread, &in, t, 1))
        return 1;
    specdec__forward_sum_experts(c, thread, c->latent ? c->latent : c->y, width);
    if (!c->latent)
        return specdec__pool_barrier(c->pool);
    if (specdec__pool_barrier(c->pool))
        return 1;
    in = specdec__forward_make_input(c->latent, c->n, width, NULL);
    t[0] = specdec__forward_make_product(layer, SPECDEC__LATENT_UP, -1, c->y, c->e);
    return specdec__forward_project(c, thread, &in, t, 1);
}

/* Computes y = norm(y) + norm(dense): y is the output of the experts, dense that of the network beside them, which lies
   in c->expert_outputs (the trait DENSE_BESIDE_EXPERTS). Returns 1 when cancelled. */
static int specdec__forward_add_dense_network(specdec__context *c, int thread, const specdec__layer *layer)
{
    const specdec__row_part part = specdec__forward_thread_rows(c, thread, c->n, c->e);
    const int at = part.first_block * 32, to = part.end_block * 32, width = c->e - SPECDEC__ROW_PADDING;
    int i;

    for (i = part.first_row; i < part.end_row; i++)
        specdec__forward_norm_function(c)(c->y + (size_t)i * (size_t)c->e, layer->vector[SPECDEC__AFTER_EXPERTS],
                                          c->model->epsilon, width, at, to, c->h + (size_t)i * (size_t)c->e);
    if (specdec__pool_barrier(c->pool))
        return 1;
    for (i = part.first_row; i < part.end_row; i++) {
        const size_t row = (size_t)i * (size_t)c->e;

        specdec__forward_norm_function(c)(c->expert_outputs + row, layer->vector[SPECDEC__AFTER_NETWORK],
                                          c->model->epsilon, width, at, to, c->y + row);
        c->kernels->add_scaled(c->y + row + at, 1, c->h + row + at, to - at);
    }
    return specdec__pool_barrier(c->pool);
}

/* Runs the feed-forward half of a layer with experts: x += outputs of its experts, and of the shared expert or the
   dense network if there is one. Returns 1 when cancelled. */
static int specdec__forward_run_expert_half(specdec__context *c, int thread, const specdec__layer *layer)
{
    const int shared = layer->shape.shared;
    const specdec__matrix_input in = shared ? specdec__forward_make_input(c->h, c->n, c->e, NULL)
                                     : specdec__forward_normed_input(c, c->n, layer->vector[SPECDEC__FFN_NORM]);

    if (specdec__forward_route_rows(c, thread, layer) || specdec__forward_run_experts(c, thread, layer))
        return 1;
    if (layer->shape.feed_forward) {
        if (specdec__forward_run_network(c, thread, layer, &in, c->expert_outputs))
            return 1;
        if (shared)
            specdec__forward_add_shared_expert(c, thread, layer);
        if (shared ? specdec__pool_barrier(c->pool) : specdec__forward_add_dense_network(c, thread, layer))
            return 1;
    }
    specdec__forward_add_half_output(c, thread, layer->vector[SPECDEC__AFTER_FFN], 1);
    return specdec__pool_barrier(c->pool);
}

/* Copies hidden states to the readers that want those before layer number `layer`, or SPECDEC_STATE_FINAL. */
static void specdec__forward_copy_states(const specdec__context *c, int thread, int layer)
{
    const specdec__model *m = c->model;
    const size_t width = (size_t)m->embedding;
    int k, i, j;

    for (k = 0; k < SPECDEC__STATE_READERS; k++) {
        const specdec__state_reader *taps = &c->state_readers[k];

        for (i = 0; taps->out && i < taps->count; i++)
            for (j = taps->first_node + thread; taps->layers[i] == layer &&
                 j < c->n; j += specdec__pool_active(c->pool)) {
                float *out = taps->out + ((size_t)(j - taps->first_node) * (size_t)taps->count + (size_t)i) * width;
                const float *x = c->x + (size_t)j * (size_t)c->e;

                if (layer == SPECDEC_STATE_FINAL)
                    specdec__forward_norm_function(c)(x, m->output_norm, m->epsilon, m->embedding, 0, m->embedding,
                                                      out);
                else
                    memcpy(out, x, width * sizeof *out);
            }
    }
}

/* Computes row i of h for a model that reads states: the norm of the embedding, and behind it the norm of the state,
   which c->reads holds, or x where reads.matrix has been applied already. */
static void specdec__forward_join_embedding_state(specdec__context *c, int i, const float *embedding)
{
    const specdec__reads *reads = &c->model->reads;
    const float *const *norm = c->model->layer[0].vector, epsilon = c->model->epsilon;
    const int width = c->model->embedding;
    float *x = c->x + (size_t)i * (size_t)c->e, *h = c->h + (size_t)i * (size_t)specdec__forward_stride(2 * width);

    if (reads->is_nextn) {
        c->kernels->norm(embedding, reads->token_norm, epsilon, width, 0, width, h);
        c->kernels->norm(c->reads + (size_t)i * (size_t)specdec__forward_states_stride(c->model), reads->state_norm,
                         epsilon, width, 0, width, h + width);
        return;
    }
    c->kernels->norm(embedding, norm[SPECDEC__ATTENTION_NORM], epsilon, width, 0, width, h);
    c->kernels->norm(x, norm[SPECDEC__READ_NORM], epsilon, width, 0, width, h + width);
    if (reads->norm_first)
        memcpy(x, h + width, (size_t)width * sizeof *x);
}

/* Computes c->x of a draft model from the hidden states of the target that it reads: reads.matrix times the states, or
   with reads.is_nextn times the rows of h. Returns 1 when cancelled. */
static int specdec__forward_project_states(specdec__context *c, int thread)
{
    const specdec__reads *reads = &c->model->reads;
    specdec__matrix_input in = specdec__forward_make_input(c->reads, c->n, specdec__forward_states_stride(c->model),
                                                           NULL);
    specdec__matrix_product t;

    if (reads->is_nextn)
        in = specdec__forward_make_input(c->h, c->n, specdec__forward_stride(2 * c->model->embedding), NULL);
    t.matrix = &reads->matrix;
    t.bias = NULL;
    t.rows_out = c->x;
    t.stride = (size_t)c->e;
    return specdec__forward_project(c, thread, &in, &t, 1);
}

/* Computes a thread's share of the embeddings of all rows of a step, in c->x, and of the cosines and sines of RoPE. */
static void specdec__forward_embed_rows(specdec__context *c, int thread)
{
    const specdec__matrix *table = c->embedding;
    const int trait = c->model->trait[SPECDEC__READS_STATES], width = c->model->embedding;
    const int reads = SPECDEC__HAS_STATE_DRAFTERS && (trait == SPECDEC__BESIDE_EMBEDDINGS || c->model->reads.is_nextn);
    int i;

    for (i = thread; i < c->n; i += specdec__pool_active(c->pool)) {
        float *row;

        specdec__forward_compute_angles(c, SPECDEC__ROPE, i);
        if (c->frequency[SPECDEC__ROPE_ALTERNATE])
            specdec__forward_compute_angles(c, SPECDEC__ROPE_ALTERNATE, i);
        if (!specdec__model_has_first_layer(c->model) || (SPECDEC__HAS_STATE_DRAFTERS && !reads && c->reads))
            continue; /* x was received, or projected from states */
        row = reads ? c->h + (size_t)i * (size_t)specdec__forward_stride(2 * width)
                    : c->x + (size_t)i * (size_t)c->e;
        specdec__quant_to_float(table->type,
                                table->file + (size_t)c->batch->tokens[c->first_node + i] * table->row_bytes,
                                (size_t)width, row);
        c->kernels->scale(row, c->model->fact[SPECDEC__EMBEDDING_SCALE], width);
        specdec__forward_check_row_is_finite(c, thread, i, row, width, SPECDEC__FINITE_FACTOR);
        if (reads)
            specdec__forward_join_embedding_state(c, i, row);
    }
}

/* Computes a thread's share of the logits of the wanted rows of x, or of their bounds, or of no logits, as
   specdec__screen_output_of_step says. In any case h (row_count, e) becomes their hidden states. A function of the
   thread pool. */
static void specdec__forward_compute_logits(void *argument, int thread)
{
    specdec__context *c = (specdec__context *)argument;
    const specdec__model *m = c->model;
    specdec__matrix_input in = specdec__forward_normed_input(c, c->row_count, m->output_norm);
    specdec__matrix_product t;

    t.matrix = c->output;
    t.bias = NULL;
    t.rows_out = c->logits;
    t.stride = (size_t)c->output->rows;
    in.source_rows = c->rows;
    c->scratch[thread].current_half = 2 * m->layers;
    if (thread == 0) {
        c->screen.computed = specdec__screen_output_of_step(c);
        c->screen.too_large = 0;
    }
    if (specdec__screen_output_of_step(c) == SPECDEC__SCREEN_LOGITS) {
        if (!specdec__forward_project(c, thread, &in, &t, 1))
            specdec__forward_check_and_cap_logits(c, thread);
        return;
    }
    specdec__forward_quantise(c, thread, &in);
    if (specdec__screen_output_of_step(c) == SPECDEC__SCREEN_NOTHING || specdec__pool_barrier(c->pool))
        return;
    specdec__screen_compute_norms(c, thread);
    if (specdec__pool_barrier(c->pool))
        return;
    specdec__forward_multiply(c, thread, &t, 1);
    if (!specdec__pool_barrier(c->pool))
        specdec__screen_find_largest(c, thread);
}

/* Computes the keys and values of all layers of a model that drafts blocks from the target's states, which reads.matrix
   has projected to x, and stores them in the cache. Returns 1 when cancelled. */
static int specdec__forward_store_block_keys(specdec__context *c, int thread)
{
    const specdec__matrix_input in = specdec__forward_normed_input(c, c->n, c->model->reads.matrix_norm);
    int i, from, end, items;

    specdec__forward_quantise(c, thread, &in);
    for (i = 0; i < c->model->layers; i++) {
        const specdec__layer *layer = &c->model->layer[i];
        const specdec__shape *s = &layer->shape;
        specdec__matrix_product t[2];

        t[0] = specdec__forward_make_product(layer, SPECDEC__K, SPECDEC__K_BIAS, c->keys,
                                             specdec__forward_stride(s->kv_heads * s->key_dim));
        t[1] = specdec__forward_make_product(layer, SPECDEC__V, SPECDEC__V_BIAS, c->values,
                                             specdec__forward_stride(s->kv_heads * s->value_dim));
        if (specdec__pool_barrier(c->pool))
            return 1;
        specdec__forward_multiply(c, thread, t, 2);
        if (specdec__pool_barrier(c->pool))
            return 1;
        items = c->n * s->kv_heads;
        for (end = 0; (from = specdec__pool_claim_items(c->pool, items, 1, &end)) < items;)
            for (; from < end; from++)
                specdec__forward_store_key_value(c, thread, layer, from / s->kv_heads, from % s->kv_heads);
    }
    return specdec__pool_barrier(c->pool);
}

/* Runs a thread's share of a step, a function of the thread pool: embedding, layers, hidden states, logits. */
static void specdec__forward_run_thread(void *argument, int thread)
{
    specdec__context *c = (specdec__context *)argument;
    const specdec__model *m = c->model;
    int i;

    c->scratch[thread].current_half = -1;
    if (SPECDEC__HAS_STATE_DRAFTERS && c->reads && !m->reads.is_nextn && specdec__forward_project_states(c, thread))
        return;
    specdec__forward_embed_rows(c, thread);
    if (specdec__pool_barrier(c->pool) ||
        (SPECDEC__HAS_STATE_DRAFTERS && m->reads.is_nextn && specdec__forward_project_states(c, thread)) ||
        (c->layer_embeddings && specdec__forward_compute_layer_embeddings(c, thread)) ||
        (c->streams && specdec__forward_project_streams(c, thread, 0)))
        return;
    if (SPECDEC__HAS_STATE_DRAFTERS && c->reads && m->block.size) {
        specdec__forward_store_block_keys(c, thread);
        return;
    }
    for (i = 0; i < m->layers; i++) {
        specdec__forward_copy_states(c, thread, i);
        if (SPECDEC__PIPE && c->hooks && !thread)
            c->hooks->before_layer(c);
        c->scratch[thread].current_half = 2 * i;
        if (c->streams && specdec__forward_begin_layer(c, thread, &m->layer[i]))
            return;
        if (SPECDEC__HAS_RECURRENT_LAYERS && m->layer[i].recurrent_index >= 0 &&
            specdec__forward_run_recurrent_half(c, thread, &m->layer[i]))
            return;
        if (m->layer[i].shape.kv_heads && specdec__forward_run_attention_half(c, thread, &m->layer[i]))
            return;
        if (m->layer[i].matrix[SPECDEC__LAUREL_DOWN].rows && specdec__forward_run_laurel(c, thread, &m->layer[i]))
            return;
        c->scratch[thread].current_half = 2 * i + 1;
        if (SPECDEC__HAS_EXPERTS && m->layer[i].shape.experts
                ? specdec__forward_run_expert_half(c, thread, &m->layer[i])
            : m->layer[i].shape.feed_forward ? specdec__forward_run_ffn_half(c, thread, &m->layer[i])
                                             : 0)
            return;
        if ((c->layer_embeddings || c->streams || m->layer[i].vector[SPECDEC__OUTPUT_SCALE]) &&
            specdec__forward_end_layer(c, thread, &m->layer[i]))
            return;
    }
    if (c->streams && specdec__forward_project_streams(c, thread, 1))
        return;
    specdec__forward_copy_states(c, thread, m->layers);
    specdec__forward_copy_states(c, thread, SPECDEC_STATE_FINAL);
    if (c->row_count && specdec__model_has_last_layer(m) && !m->lacks_output)
        specdec__forward_compute_logits(c, thread);
}

/* Reserves a slot for node i of a batch, and computes its logical and RoPE position. Returns 0 when pages run out. */
static int specdec__forward_reserve_node(specdec__context *c, const specdec__batch *batch, int i)
{
    specdec__view *view = batch->views[i];
    int parent = batch->parents[i], local = 0, previous = -1, span, j;

    if (c->model->trait[SPECDEC__VISIBLE_KEYS] == SPECDEC__SEES_VIEW) {
        c->key_index[i] = view->length;
        c->position[i] = view->next_position;
        c->on_chain[i] = 1;
        return 1;
    }
    for (j = 0; j < i; j++)
        if (batch->views[j] == view) {
            local++;
            previous = j;
        }
    if (!specdec__view_reserve_and_notify(view, &c->kv, local + 1))
        return 0;
    for (span = 0; span < SPECDEC__SPANS; span++)
        if (c->kv.span[span].count)
            c->slots[span][i] = specdec__view_reserved_slot(view, span, local);
    c->key_index[i] = parent < 0 ? view->length : c->key_index[parent] + 1;
    c->position[i] = c->key_index[i] - view->length + view->next_position;
    c->on_chain[i] = parent == previous && (parent < 0 || c->on_chain[parent]);
    return 1;
}

/* Checks a batch, reserves slots for its nodes and prepares the context for them. Errors: ARGUMENT, FULL. */
static specdec_result specdec__forward_prepare_batch(specdec__context *c, const specdec__batch *batch,
                                                     specdec_error *error)
{
    int i;

    if (batch->n - batch->done_count < 1 || batch->n > c->max_nodes)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "a step of %d nodes, the engine was made for 1..%d",
                             batch->n, c->max_nodes);
    c->row_count = c->any_unsound = 0;
    memset(c->first_unsound, 0, (size_t)(batch->n - batch->done_count) * sizeof *c->first_unsound);
    for (i = batch->done_count; i < batch->n; i++) {
        const int parent = batch->parents[i];

        if (batch->tokens[i] < 0 || batch->tokens[i] >= c->model->vocab_size)
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "token id %d, the vocabulary has %d",
                                 (int)batch->tokens[i], c->model->vocab_size);
        if (parent < -1 || parent >= i || (parent >= 0 && batch->views[parent] != batch->views[i]))
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "node %d has the parent %d", i, parent);
        if (!specdec__forward_reserve_node(c, batch, i)) {
            specdec__view_free_reserved_slots(batch->views[i], &c->kv);
            return specdec__fail(error, SPECDEC_ERROR_FULL, "no room in the KV cache for %d more tokens",
                                 batch->n);
        }
        if (batch->wants_logits == NULL || batch->wants_logits[i])
            c->rows[c->row_count++] = i - batch->done_count;
    }
    if (c->row_count > c->max_rows && !c->model->lacks_output)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "%d rows of logits, the engine was made for %d",
                             c->row_count, c->max_rows);
    c->batch = batch;
    for (i = 0; i < SPECDEC__SPANS; i++)
        c->stretches[i] = specdec__forward_seen_stretches(c, i, batch->done_count, batch->n);
    c->first_node = batch->done_count;
    c->n = batch->n - batch->done_count;
    return SPECDEC_OK;
}

/* Prepares a cancelled batch without computing it: its nodes get slots in the cache, and waiting tokens are applied to
   the states of recurrent layers. Errors: as specdec__forward. */
static specdec_result specdec__forward_skip_batch(specdec__context *c, const specdec__batch *batch,
                                                  specdec_error *error)
{
    specdec_result result = specdec__forward_prepare_batch(c, batch, error);

    if (result || !specdec__states_exist(&c->kv.states))
        return result;
    result = specdec__recurrent_prepare_step(c, batch, error);
    if (!result)
        specdec__recurrent_end_step(c, 0);
    return result;
}

/* Runs a batch, one forward pass: logits (wanted rows, vocab) go to c->logits, hidden states (wanted rows, stride c->e)
   to c->h, keys and values to reserved slots of the views, until they are committed or the next step overwrites them.
   Rows with values that are not finite are recorded: see specdec__forward_check_step. Errors: ARGUMENT, FULL,
   CANCELLED. */
static specdec_result specdec__forward(specdec__context *c, const specdec__batch *batch, specdec_error *error)
{
    specdec_result result = specdec__forward_prepare_batch(c, batch, error);

    if (SPECDEC__PIPE && !result && c->hooks && c->hooks->begin)
        result = c->hooks->begin(c, error);
    if (!result && specdec__states_exist(&c->kv.states))
        result = specdec__recurrent_prepare_step(c, batch, error);
    if (result)
        return result;
    if ((!SPECDEC__PIPE || c->model->layers) && specdec__pool_run(c->pool, c->threads, specdec__forward_run_thread, c))
        result = specdec__fail(error, SPECDEC_ERROR_CANCELLED, "cancelled");
    if (specdec__states_exist(&c->kv.states))
        specdec__recurrent_end_step(c, !result);
    if (!SPECDEC__PIPE || !c->hooks || !c->hooks->after_layers)
        return result;
    if (!result)
        result = specdec__forward_check_step(c, 0, c->n, error);
    return c->hooks->after_layers(c, result, error);
}

/* Returns a batch of the context's first n nodes, of which `done` were run before; all rows are wanted. */
static specdec__batch specdec__forward_make_batch(const specdec__context *c, int done, int n)
{
    specdec__batch batch;

    batch.n = n;
    batch.done_count = done;
    batch.tokens = c->tokens;
    batch.parents = c->parents;
    batch.views = c->views;
    batch.wants_logits = batch.certain = NULL;
    return batch;
}

/* Returns a batch of the first n nodes in the context's own arrays, all of one view; see
   specdec__forward_make_batch. */
static specdec__batch specdec__forward_make_view_batch(const specdec__context *c, specdec__view *view, int done, int n)
{
    int i;

    for (i = 0; i < n; i++)
        c->views[i] = view;
    return specdec__forward_make_batch(c, done, n);
}

/* Returns the index i < n with path[i] == node; -1: there is none. */
static int specdec__forward_index_in_path(const int *path, int n, int node)
{
    while (n > 0 && path[n - 1] != node)
        n--;
    return n - 1;
}

/* Commits nodes path[0 .. count), rising, of n nodes of a view that were run. The next `stay` entries of path stay
   nodes, descend from path[count - 1], and get the numbers 0, 1, ... in this order. With stay = -1 all nodes behind
   path[count - 1] stay, and their numbers fall by count; those that do not descend from it are never used again.
   Returns the number of nodes left. */
static int specdec__forward_commit_and_keep_nodes(specdec__context *c, specdec__view *view, const int *path, int count,
                                                  int stay, int n)
{
    const int all = stay < 0, last = path[count - 1], left = all ? n - 1 - last : stay, end = all ? n - count : stay;
    int i, span;

    specdec__view_commit_and_keep_nodes(view, &c->kv, path, count, stay);
    for (i = 0; i < left; i++) {
        const int from = all ? last + 1 + i : path[count + i], to = end - left + i, parent = c->parents[from];

        c->parents[to] = !all            ? specdec__forward_index_in_path(path + count, i, parent)
                         : parent > last ? parent - count
                                         : -1;
        c->tokens[to] = c->tokens[from];
        c->key_index[to] = c->key_index[from];
        c->position[to] = c->position[from];
        c->on_chain[to] = 0;
        for (span = 0; span < SPECDEC__SPANS; span++)
            c->slots[span][to] = all || !c->kv.span[span].count ? c->slots[span][from]
                                                                : specdec__view_reserved_slot(view, span, to);
    }
    return end;
}

/* What a prefill computes besides keys and values: logits and states of some tokens; and states that it reads. */
typedef struct specdec__prefill_rows {
    int logits_from;    /* logits are computed for this token and all later ones */
    float *logits;      /* (count - logits_from, vocab) the caller's memory; NULL: only the last row is kept, as row 0
                           of c->logits */
    int states_from;    /* hidden states are copied for this token and all later ones */
    specdec__state_reader state_reader; /* which states; out (count - states_from, ...) is the caller's memory; out
                                           NULL: none */
    float *reads;       /* (count - reads_from, stride) states of another model that this one reads; NULL: it reads
                           none */
    int reads_from;     /* the token of the first row of `reads` */
    /* Called after each batch, tokens [at, at + n), before it is committed; its error ends the prefill. NULL: not
       called. */
    specdec_result (*batch_done)(void *listener, int at, int n); /* called after tokens [at, at + n) are run */
    void *listener; /* argument of batch_done */
} specdec__prefill_rows;

/* Returns what a prefill that needs no hidden states computes: logits of token `from` and of all later ones. The last
   row of logits becomes row 0 of c->logits. */
static specdec__prefill_rows specdec__prefill_rows_with_logits_from(int from)
{
    specdec__prefill_rows rows;

    memset(&rows, 0, sizeof rows);
    rows.logits_from = from;
    return rows;
}

/* Sets up a context for the step that runs tokens [at, at + n) of a prefill: where its hidden states are copied to, and
   which states of another model it reads. */
static void specdec__forward_set_up_prefill(specdec__context *c, const specdec__prefill_rows *rows, int at, int n)
{
    const size_t width = (size_t)rows->state_reader.count * (size_t)c->model->embedding;
    const int skip = specdec__max_int(rows->states_from - at, 0);

    c->state_readers[0] = rows->state_reader;
    c->state_readers[0].first_node = skip;
    if (skip >= n)
        c->state_readers[0].out = NULL;
    else if (c->state_readers[0].out)
        c->state_readers[0].out += (size_t)(at + skip - rows->states_from) * width;
    if (rows->reads)
        c->reads = rows->reads + (size_t)(at - rows->reads_from) * (size_t)specdec__forward_states_stride(c->model);
}

/* Copies the logits of a batch of tokens [at, at + n) of a prefill to the caller; the last row becomes row 0. */
static void specdec__forward_copy_prefill_logits(specdec__context *c, const specdec__prefill_rows *rows, int at, int n)
{
    const size_t vocab = (size_t)c->output->rows;
    const int skip = specdec__max_int(rows->logits_from - at, 0); /* logits have rows for wanted nodes only */

    if (skip >= n || !rows->logits)
        return;
    memcpy(rows->logits + (size_t)(at + skip - rows->logits_from) * vocab, c->logits,
           (size_t)(n - skip) * vocab * sizeof *c->logits);
    memmove(c->logits, c->logits + (size_t)(n - skip - 1) * vocab, vocab * sizeof *c->logits);
}

/* Prefills a view: runs tokens text[view->length .. count), `most` tokens a step, and commits them. Row 0 of c->logits
   becomes the last wanted row. Token ids that the model lacks (padding of a larger vocabulary) count as 0. hooks: NULL,
   or progress is reported. Errors: those of specdec__forward and specdec__forward_check_step, CANCELLED. */
static specdec_result specdec__forward_prefill(specdec__context *c, specdec__view *view, const int32_t *text, int count,
                                               int most, const specdec__prefill_rows *rows, const specdec_hooks *hooks,
                                               specdec_error *error)
{
    const int from = view->length, total = count - from;

    while (view->length < count) {
        const int at = view->length, n = specdec__min_int(most, count - at);
        specdec__batch batch = specdec__forward_make_view_batch(c, view, 0, n);
        specdec_result result;
        int i;

        for (i = 0; i < n; i++) {
            c->tokens[i] = text[at + i] < c->model->vocab_size ? text[at + i] : 0;
            c->parents[i] = i - 1;
            c->wants_logits[i] = (unsigned char)(at + i >= rows->logits_from);
            c->path[i] = i;
            c->certain[i] = at + i < count - 1; /* the last token may be a root later */
        }
        batch.wants_logits = c->wants_logits;
        batch.certain = c->certain;
        specdec__forward_set_up_prefill(c, rows, at, n);
        result = specdec__forward(c, &batch, error);
        c->state_readers[0].out = NULL;
        c->reads = NULL;
        if (!result)
            result = specdec__forward_check_step(c, 0, n, error);
        if (!result && rows->batch_done)
            result = rows->batch_done(rows->listener, at, n);
        if (result)
            return result;
        specdec__forward_copy_prefill_logits(c, rows, at, n);
        specdec__view_commit(view, &c->kv, c->path, n);
        if (hooks && hooks->progress && total > 1 &&
            hooks->progress(hooks->user_data, "prefill", view->length - from, total))
            return specdec__fail(error, SPECDEC_ERROR_CANCELLED, "cancelled by the progress hook");
    }
    return SPECDEC_OK;
}
SPECDEC__FOR_SPEED
