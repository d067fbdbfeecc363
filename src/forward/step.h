/* =====================================================================================================================
 * >>forward/step: a step: layers, experts, logits; committing its nodes.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/pool.h"
#include "../quant/table.h"
#include "../base/op.h"
#include "../kernel/kernel.h"
#include "../model/model.h"
#include "../model/tensors.h"
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

SPECDEC__FOR_SIZE

static specdec__output specdec__forward_output(const specdec__layer *layer, int matrix, int bias, float *out,
                                               int stride)
{
    specdec__output t;

    t.matrix = &layer->matrix[matrix];
    t.bias = bias >= 0 ? layer->vector[bias] : NULL;
    t.out = out;
    t.stride = (size_t)stride;
    return t;
}

static specdec__input specdec__forward_input(float *values, int n, int stride, const float *up)
{
    specdec__input in;

    in.values = values;
    in.n = n;
    in.stride = stride;
    in.from = NULL;
    in.norm = NULL;
    in.rows = NULL;
    in.up = up;
    in.up_stride = stride;
    in.alone = 0;
    in.shape = NULL;
    return in;
}

/* What `up` is multiplied by, or without it what is activated by itself, in a layer. */
static specdec__input specdec__forward_activated(const specdec__context *c, const specdec__layer *layer, float *values,
                                                 int n, int stride, const float *up)
{
    specdec__input in = specdec__forward_input(values, n, stride, up);

    in.alone = !up;
    in.shape = c->model->trait[SPECDEC__ACTIVATION] == SPECDEC__XIELU ? layer->activation : NULL;
    return in;
}

/* Rows of h that are those of x, or, where there is a weight, their norms. */
static specdec__input specdec__forward_normed(specdec__context *c, int n, const float *norm)
{
    specdec__input in = specdec__forward_input(c->h, n, c->e, NULL);

    in.from = c->x;
    in.norm = norm;
    return in;
}

/* Quantises an input and multiplies matrices by it. Returns 1 when cancelled. */
static int specdec__forward_project(specdec__context *c, int thread, const specdec__input *in,
                                    const specdec__output *targets, int count)
{
    specdec__forward_quantise(c, thread, in);
    if (specdec__pool_barrier(c->pool))
        return 1;
    specdec__forward_multiply(c, thread, targets, count);
    return specdec__pool_barrier(c->pool);
}

/* Queries, which stand in c->queries and c->absorbed then, and the one key of all heads, before its norm, of latent
   attention. Returns 1 when cancelled. */
static int specdec__forward_latent_queries(specdec__context *c, int thread, const specdec__layer *layer)
{
    const specdec__latent *latent = &c->model->latent_attention;
    specdec__input in = specdec__forward_normed(c, c->n, layer->vector[SPECDEC__ATTENTION_NORM]);
    const int queries = specdec__forward_stride(layer->shape.heads * latent->key_dim);
    const int low = specdec__forward_stride(latent->query_rank);
    specdec__output t[2];

    t[0] = latent->query_rank ? specdec__forward_output(layer, SPECDEC__Q_A, -1, c->low, low)
                              : specdec__forward_output(layer, SPECDEC__Q, -1, c->queries, queries);
    t[1] = specdec__forward_output(layer, SPECDEC__KV_A, -1, c->keys, specdec__forward_stride(layer->shape.key_dim));
    if (specdec__forward_project(c, thread, &in, t, 2))
        return 1;
    if (latent->query_rank) {
        in = specdec__forward_input(c->h, c->n, low, NULL);
        in.from = c->low;
        in.norm = layer->vector[SPECDEC__LOW_NORM];
        t[0] = specdec__forward_output(layer, SPECDEC__Q_B, -1, c->queries, queries);
        if (specdec__forward_project(c, thread, &in, t, 1))
            return 1;
    }
    return specdec__forward_absorb(c, thread, layer);
}

/* What the first matrices of a half read where it begins with a convolution: of norms of x, of which *in tells. Returns
   1 when cancelled. */
static int specdec__forward_convolve_input(specdec__context *c, int thread, const specdec__layer *layer, int matrix,
                                           int base, specdec__input *in)
{
    const int stride = specdec__forward_stride(layer->matrix[matrix].rows);
    const specdec__output t = specdec__forward_output(layer, matrix, -1, c->convs, stride);

    if (specdec__forward_project(c, thread, in, &t, 1))
        return 1;
    specdec__forward_convolve(c, thread, layer->vector[base], 0, in->values);
    *in = specdec__forward_input(c->mixed, c->n, c->e, NULL);
    return specdec__pool_barrier(c->pool);
}

/* The output of such a half, in c->y, goes through another convolution. Returns 1 when cancelled. */
static int specdec__forward_convolve_output(specdec__context *c, int thread, const float *base)
{
    specdec__forward_convolve(c, thread, base, 1, c->y);
    if (specdec__pool_barrier(c->pool))
        return 1;
    specdec__forward_convolved(c, thread, c->y);
    return 0;
}

/* Queries, keys and values of a layer. Returns 1 when cancelled. */
static int specdec__forward_queries(specdec__context *c, int thread, const specdec__layer *layer)
{
    specdec__input in = specdec__forward_normed(c, c->n, layer->vector[SPECDEC__ATTENTION_NORM]);
    const specdec__shape *s = &layer->shape;
    const int owns = specdec__context_keys(c, layer)->owns, values = layer->matrix[SPECDEC__V].rows > 0;
    specdec__output t[3];

    if (c->model->trait[SPECDEC__READS_STATES] == SPECDEC__BESIDE_EMBEDDINGS)
        in = specdec__forward_input(c->h, c->n, specdec__forward_stride(2 * c->model->embedding), NULL);
    if (c->convs && specdec__forward_convolve_input(c, thread, layer, SPECDEC__ATTENTION_CONV,
                                                    SPECDEC__ATTENTION_CONV_BASE, &in))
        return 1;
    t[0] = specdec__forward_output(layer, SPECDEC__Q, SPECDEC__Q_BIAS, c->queries,
                                   specdec__forward_stride(s->heads * specdec__model_query_rows(c->model, s)));
    t[1] = specdec__forward_output(layer, SPECDEC__K, SPECDEC__K_BIAS, c->keys,
                                   specdec__forward_stride(s->kv_heads * s->key_dim));
    t[2] = specdec__forward_output(layer, SPECDEC__V, SPECDEC__V_BIAS, c->values,
                                   specdec__forward_stride(s->kv_heads * s->value_dim));
    return specdec__forward_project(c, thread, &in, t, owns ? 2 + values : 1);
}

/* x += attention of it. Returns 1 when cancelled. */
static int specdec__forward_attention_half(specdec__context *c, int thread, const specdec__layer *layer)
{
    const specdec__latent *latent = &c->model->latent_attention;
    const specdec__shape *s = &layer->shape;
    const int items = c->n * s->kv_heads;
    const int attended = specdec__forward_stride(s->heads * (latent->rank ? latent->value_dim : s->value_dim));
    specdec__input in;
    specdec__output t;
    int from, end = 0;

    if (thread == 0)
        c->turned.n = c->n * s->heads;
    if (latent->rank ? specdec__forward_latent_queries(c, thread, layer) : specdec__forward_queries(c, thread, layer))
        return 1;
    if (c->model->trait[SPECDEC__JOINT_NORMS]) {
        specdec__forward_joint_norms(c, thread, layer);
        if (specdec__pool_barrier(c->pool))
            return 1;
    }
    while ((from = specdec__pool_claim(c->pool, items, 1, &end)) < items)
        for (; from < end; from++)
            specdec__forward_rotate(c, thread, layer, from / s->kv_heads, from % s->kv_heads);
    if (specdec__pool_barrier(c->pool))
        return 1;
    if (c->recall) {
        c->recall(c, thread, layer);
        if (specdec__pool_barrier(c->pool))
            return 1;
    }
    if (specdec__forward_attention(c, thread, layer) ||
        (latent->rank &&
         specdec__forward_heads(c, thread, layer, SPECDEC__V_B, c->h, latent->value_dim, attended)))
        return 1;
    in = specdec__forward_input(c->h, c->n, attended, NULL);
    t = specdec__forward_output(layer, SPECDEC__O, SPECDEC__O_BIAS, c->y, c->e);
    if (specdec__forward_project(c, thread, &in, &t, 1) ||
        (c->convs && specdec__forward_convolve_output(c, thread, layer->vector[SPECDEC__ATTENTION_CONV_BASE])))
        return 1;
    if (layer->state >= 0)
        specdec__forward_add(c, thread, layer->vector[SPECDEC__AFTER_ATTENTION], c->mix.beside, c->x);
    else
        specdec__forward_grow(c, thread, layer->vector[SPECDEC__AFTER_ATTENTION], 0);
    return specdec__pool_barrier(c->pool);
}

/* Where in the rows of a recurrent layer the first matrices put what they make. */
static int specdec__forward_mix_targets(const specdec__context *c, const specdec__layer *layer, specdec__output *t)
{
    const specdec__mixing *m = &c->model->mixing;
    const struct { int matrix, at; } made[] = {
        {SPECDEC__MIX_SHORT_IN, 0}, {SPECDEC__MIX_SSM_IN, 0}, {SPECDEC__MIX_GATE, 0}, {SPECDEC__MIX_QKV, m->inputs},
        {SPECDEC__MIX_BETA, m->inputs + m->channels}, {SPECDEC__MIX_BOTH, m->inputs + m->channels},
        {SPECDEC__MIX_ALPHA, m->inputs + m->channels + specdec__round_up(m->heads, 16)}};
    int i, count = 0;

    for (i = 0; i < (int)SPECDEC__COUNT(made); i++)
        if (layer->matrix[made[i].matrix].rows)
            t[count++] = specdec__forward_output(layer, made[i].matrix, -1, c->mix.raw + made[i].at,
                                                 c->mix.raw_stride);
    return count;
}

/* x += what a recurrent layer makes of it; where the layer attends, too, the sum waits in c->mix.beside. Returns 1 when
   cancelled. */
static int specdec__forward_recurrent_half(specdec__context *c, int thread, const specdec__layer *layer)
{
    specdec__input in = specdec__forward_normed(c, c->n, layer->vector[SPECDEC__ATTENTION_NORM]);
    const specdec__mixing *m = &c->model->mixing;
    specdec__output t[4];
    const int count = specdec__forward_mix_targets(c, layer, t);

    if (specdec__forward_project(c, thread, &in, t, count) || specdec__forward_mix(c, thread, layer))
        return 1;
    in = specdec__forward_input(c->h, c->n, c->mix.inner, NULL);
    t[0] = specdec__forward_output(layer, m->heads ? SPECDEC__MIX_SSM_OUT : SPECDEC__MIX_SHORT_OUT, -1, c->y, c->e);
    if (specdec__forward_project(c, thread, &in, t, 1))
        return 1;
    if (layer->shape.kv_heads)
        specdec__forward_add(c, thread, NULL, c->x, c->mix.beside);
    else
        specdec__forward_grow(c, thread, layer->vector[SPECDEC__AFTER_ATTENTION], 0);
    return specdec__pool_barrier(c->pool);
}

/* out (n, e) = down(activation(gate x) * up x), or, without a gate, down(activation(up x)): the network of a layer that
   every token goes through. Returns 1 when cancelled. */
static int specdec__forward_network(specdec__context *c, int thread, const specdec__layer *layer,
                                    const specdec__input *x, float *out)
{
    const int ff = specdec__forward_stride(layer->shape.feed_forward);
    const int gated = layer->matrix[SPECDEC__GATE].rows > 0;
    float *up = layer->shape.experts ? c->up : c->y;
    specdec__input in;
    specdec__output t[2];

    t[0] = specdec__forward_output(layer, SPECDEC__GATE, SPECDEC__GATE_BIAS, c->hidden, ff);
    t[gated] = specdec__forward_output(layer, SPECDEC__UP, SPECDEC__UP_BIAS, gated ? up : c->hidden, ff);
    if (specdec__forward_project(c, thread, x, t, 1 + gated))
        return 1;
    if (layer->sparsity > 0 || layer->sparsity < 0) {
        specdec__forward_sparsify(c, thread, layer->sparsity, c->hidden, layer->shape.feed_forward, ff);
        if (specdec__pool_barrier(c->pool))
            return 1;
    }
    in = specdec__forward_activated(c, layer, c->hidden, c->n, ff, gated ? up : NULL);
    t[0] = specdec__forward_output(layer, SPECDEC__DOWN, SPECDEC__DOWN_BIAS, out, c->e);
    return specdec__forward_project(c, thread, &in, t, 1);
}

/* x += what its network makes of it. Returns 1 when cancelled. */
static int specdec__forward_ffn_half(specdec__context *c, int thread, const specdec__layer *layer)
{
    specdec__input in = specdec__forward_normed(c, c->n, layer->vector[SPECDEC__FFN_NORM]);

    if ((c->convs && specdec__forward_convolve_input(c, thread, layer, SPECDEC__FFN_CONV, SPECDEC__FFN_CONV_BASE,
                                                     &in)) ||
        specdec__forward_network(c, thread, layer, &in, c->y) ||
        (c->convs && specdec__forward_convolve_output(c, thread, layer->vector[SPECDEC__FFN_CONV_BASE])))
        return 1;
    specdec__forward_grow(c, thread, layer->vector[SPECDEC__AFTER_FFN], 1);
    return specdec__pool_barrier(c->pool);
}

/* Row i of the embeddings for layers, of which x0 and its product are there: see specdec__inputs. */
static void specdec__forward_layer_input(specdec__context *c, int thread, int i)
{
    const specdec__inputs *inputs = &c->model->inputs;
    const int width = inputs->width, all = inputs->table.columns;
    float *row = c->inputs + (size_t)i * (size_t)specdec__forward_stride(all), *table = c->scratch[thread].inputs;
    int at;

    specdec__quant_to_float(inputs->table.type, inputs->table.file + (size_t)c->batch->tokens[c->first + i] *
                                                                         inputs->table.row_bytes, (size_t)all, table);
    c->kernels->scale(row, (float)specdec__inverse_root(c->model->embedding), all);
    for (at = 0; at < all; at += width) {
        c->kernels->norm(row + at, inputs->norm, c->model->epsilon, width, 0, width, row + at);
        c->kernels->add_scaled(row + at, (float)(width * specdec__inverse_root(width)), table + at, width);
    }
    c->kernels->scale(row, 0.707106769f, all);
    specdec__forward_check(c, thread, i, row, all, SPECDEC__SOUND);
}

/* The embeddings for layers of all rows. Returns 1 when cancelled. */
static int specdec__forward_layer_inputs(specdec__context *c, int thread)
{
    const specdec__input in = specdec__forward_normed(c, c->n, NULL);
    specdec__output t;
    int i;

    t.matrix = &c->model->inputs.matrix;
    t.bias = NULL;
    t.out = c->inputs;
    t.stride = (size_t)specdec__forward_stride(t.matrix->rows);
    if (specdec__forward_project(c, thread, &in, &t, 1))
        return 1;
    for (i = thread; i < c->n; i += specdec__pool_active(c->pool))
        specdec__forward_layer_input(c, thread, i);
    return specdec__pool_barrier(c->pool);
}

/* What the streams' router of a layer says of x. Returns 1 when cancelled. */
static int specdec__forward_route_streams(specdec__context *c, int thread, const specdec__layer *layer)
{
    const specdec__input in = specdec__forward_normed(c, c->n, layer->vector[SPECDEC__STREAM_NORM]);
    const specdec__output t = specdec__forward_output(layer, SPECDEC__STREAM_ROUTER, -1, c->stream_router, 16);

    return specdec__forward_project(c, thread, &in, &t, 1);
}

/* The streams of all rows are made of x, which is the first; or, at the end, x of them. Returns 1 when cancelled. */
static int specdec__forward_project_streams(specdec__context *c, int thread, int end)
{
    const specdec__streams *streams = &c->model->streams;
    const int others = streams->count - 1;
    specdec__input in = specdec__forward_normed(c, c->n, NULL);
    specdec__output t[SPECDEC__MOST_STREAMS - 1];
    int s;

    for (s = 0; s < others; s++) {
        t[s].matrix = &streams->matrix[end][s];
        t[s].bias = NULL;
        t[s].out = specdec__forward_stream(c, s + 1, 0);
        in.from = t[s].out;
        t[s].stride = (size_t)c->e;
        if (end && specdec__forward_project(c, thread, &in, &t[s], 1))
            return 1;
    }
    in.from = c->x;
    if (!end && specdec__forward_project(c, thread, &in, t, others))
        return 1;
    specdec__forward_even(c, thread, end);
    return specdec__pool_barrier(c->pool);
}

/* How a layer begins that has several streams: it predicts them. Returns 1 when cancelled. */
static int specdec__forward_layer_begin(specdec__context *c, int thread, const specdec__layer *layer)
{
    if (specdec__forward_route_streams(c, thread, layer))
        return 1;
    specdec__forward_predict(c, thread, layer);
    return specdec__pool_barrier(c->pool);
}

/* x becomes (x + what stands beside attention) / root(2): see specdec__streams. Returns 1 when cancelled. */
static int specdec__forward_laurel(specdec__context *c, int thread, const specdec__layer *layer)
{
    const int stride = specdec__forward_stride(layer->matrix[SPECDEC__LAUREL_DOWN].rows);
    specdec__input in = specdec__forward_normed(c, c->n, layer->vector[SPECDEC__ATTENTION_NORM]);
    specdec__output t = specdec__forward_output(layer, SPECDEC__LAUREL_DOWN, -1, c->hidden, stride);

    in.from = c->predicted;
    if (specdec__forward_project(c, thread, &in, &t, 1))
        return 1;
    in = specdec__forward_input(c->hidden, c->n, stride, NULL);
    t = specdec__forward_output(layer, SPECDEC__LAUREL_UP, -1, c->y, c->e);
    if (specdec__forward_project(c, thread, &in, &t, 1))
        return 1;
    specdec__forward_add_laurel(c, thread, layer);
    return specdec__pool_barrier(c->pool);
}

/* How a layer ends: streams are corrected, if there are several; x, or all others, += what comes of its own embeddings,
   if there are any; then times its factor. Returns 1 when cancelled. */
static int specdec__forward_layer_end(specdec__context *c, int thread, const specdec__layer *layer)
{
    const int width = c->model->inputs.width, stride = specdec__forward_stride(width);
    const int count = c->model->streams.count;
    specdec__input in = specdec__forward_normed(c, c->n, NULL);
    specdec__output t;
    int s;

    if (count) {
        if (specdec__forward_route_streams(c, thread, layer))
            return 1;
        specdec__forward_correct(c, thread, layer);
        in = specdec__forward_input(c->h, c->n, c->e, NULL); /* which is made of x */
    }

    if (width) {
        t = specdec__forward_output(layer, SPECDEC__INPUT_GATE, -1, c->hidden, stride);
        if (specdec__forward_project(c, thread, &in, &t, 1))
            return 1;
        in = specdec__forward_input(c->hidden, c->n, stride, c->inputs + (size_t)layer->index * (size_t)width);
        in.up_stride = specdec__forward_stride(c->model->inputs.matrix.rows);
        t = specdec__forward_output(layer, SPECDEC__INPUT_OUT, -1, c->y, c->e);
        if (specdec__forward_project(c, thread, &in, &t, 1))
            return 1;
        for (s = count ? 1 : 0; s < specdec__max_int(count, 1); s++)
            specdec__forward_add(c, thread, layer->vector[SPECDEC__AFTER_INPUT], specdec__forward_stream(c, s, 0),
                                 specdec__forward_stream(c, s, 0));
    }
    if (layer->vector[SPECDEC__OUTPUT_SCALE])
        specdec__forward_scale(c, thread, *layer->vector[SPECDEC__OUTPUT_SCALE]);
    return specdec__pool_barrier(c->pool);
}

/* What a router says of the experts of a row (experts) becomes their softmax or their sigmoids. */
static void specdec__forward_router(const specdec__context *c, float *router)
{
    const specdec__model *m = c->model;
    float sum = 0;
    int i;

    if (m->sigmoid) {
        for (i = 0; i < m->experts; i++)
            router[i] = 1 / (1 + specdec__exp(-router[i]));
        return;
    }
    c->kernels->token_weights(router, m->experts, c->kernels->largest(router, m->experts), 1, router);
    for (i = 0; i < m->experts; i++)
        sum += router[i];
    for (i = 0; i < m->experts; i++)
        router[i] /= sum;
}

/* What candidates are chosen by: the score of i is value[i] + bias[i]. */
typedef struct specdec__scores {
    const float *value, *bias; /* bias NULL: 0 */
} specdec__scores;

static float specdec__forward_scored(const specdec__scores *s, int i)
{
    return s->value[i] + (s->bias ? s->bias[i] : 0);
}

/* Puts i into its place among order[count], in order of falling scores, of which `most` stay. Returns how many. */
static int specdec__forward_rank(const specdec__scores *scores, int i, int *order, int count, int most)
{
    const float score = specdec__forward_scored(scores, i);
    int at = specdec__min_int(count, most - 1);

    if (count == most && !(score > specdec__forward_scored(scores, order[at])))
        return count;
    for (; at > 0 && score > specdec__forward_scored(scores, order[at - 1]); at--)
        order[at] = order[at - 1];
    order[at] = i;
    return specdec__min_int(count + 1, most);
}

/* Marks the groups of experts that are chosen from: those whose two largest scores have the largest sums. */
static void specdec__forward_open(const specdec__model *m, const specdec__scores *scores, unsigned char *open)
{
    const int size = m->experts / m->groups;
    float sums[SPECDEC__MAX_CHOSEN];
    const specdec__scores of_groups = {sums, NULL};
    int best[SPECDEC__MAX_CHOSEN], two[2], count = 0, i, k;

    for (i = 0; i < m->groups; i++) {
        int found = 0;

        for (k = i * size; k < (i + 1) * size; k++)
            found = specdec__forward_rank(scores, k, two, found, 2);
        sums[i] = specdec__forward_scored(scores, two[0]) +
                  (found > 1 ? specdec__forward_scored(scores, two[1]) : 0);
        count = specdec__forward_rank(&of_groups, i, best, count, m->groups_chosen);
    }
    memset(open, 0, (size_t)m->groups);
    for (i = 0; i < count; i++)
        open[best[i]] = 1;
}

/* Chooses the experts of a row by what the router says (experts), and how much they count. */
static void specdec__forward_choose(const specdec__context *c, const specdec__layer *layer, int row, float *router)
{
    const specdec__model *m = c->model;
    const specdec__scores scores = {router, layer->vector[SPECDEC__CHOICE_BIAS]};
    float *share = c->routes.share + row * m->chosen, sum = 0;
    int *expert = c->routes.expert + row * m->chosen, count = 0, i;
    unsigned char open[SPECDEC__MAX_CHOSEN];

    specdec__forward_router(c, router);
    specdec__forward_open(m, &scores, open);
    for (i = 0; i < m->experts; i++)
        if (open[i / (m->experts / m->groups)])
            count = specdec__forward_rank(&scores, i, expert, count, m->chosen);
    for (i = 0; i < m->chosen; i++)
        sum += share[i] = router[expert[i]];
    sum = !m->normed ? 1 : sum > 6.103515625e-5f ? sum : 6.103515625e-5f;
    for (i = 0; i < m->chosen; i++)
        share[i] = share[i] / sum * m->expert_scale;
}

/* Lays the columns of each expert side by side. */
static void specdec__forward_sort(specdec__context *c)
{
    const int chosen = c->model->chosen, experts = c->model->experts, columns = c->n * chosen;
    specdec__routes *r = &c->routes;
    int i, at;

    memset(r->begin, 0, (size_t)(experts + 1) * sizeof *r->begin);
    for (i = 0; i < columns; i++)
        r->begin[r->expert[i] + 1]++;
    for (i = 0; i < experts; i++)
        r->begin[i + 1] += r->begin[i];
    for (r->jobs = 0, i = 0; i < experts; i++)
        for (at = r->begin[i]; at < r->begin[i + 1]; at += SPECDEC__COLUMNS) {
            specdec__job *job = &r->job[r->jobs++];

            job->expert = i;
            job->column = at;
            job->count = specdec__min_int(SPECDEC__COLUMNS, r->begin[i + 1] - at);
        }
    for (i = 0; i < columns; i++) {
        r->column[i] = r->begin[r->expert[i]]++;
        r->row[r->column[i]] = i / chosen;
    }
}

/* The tiles of item `at` of a walk, of which each job has so many, and the job. */
static const specdec__output *specdec__forward_routed(const specdec__context *c, const specdec__output *targets,
                                                      int at, int tiles, specdec__place *places,
                                                      const specdec__job **job)
{
    int own, i = at % tiles;

    *job = &c->routes.job[at / tiles];
    for (;; targets++, i -= own) {
        own = specdec__matrix_tiles(targets->matrix) / c->model->experts;
        if (i < own)
            break;
    }
    places[0].matrix = places[1].matrix = targets->matrix;
    places[0].tile = (*job)->expert * own + i;
    places[1].tile = places[0].tile + 1;
    return targets;
}

/* Matrices of experts, each over its own columns; as specdec__forward_multiply. */
static void specdec__forward_multiply_routed(specdec__context *c, int thread, const specdec__output *targets, int count)
{
    specdec__scratch *scratch = &c->scratch[thread];
    const specdec__job *job, *unused;
    specdec__output target;
    specdec__walk walk;
    int tiles = 0, i, own, pair;
    float *sums[2];

    sums[0] = scratch->sums;
    sums[1] = scratch->sums + SPECDEC__COLUMNS * SPECDEC__ROWS;
    for (i = 0; i < count; i++)
        tiles += specdec__matrix_tiles(targets[i].matrix) / c->model->experts;
    for (specdec__walk_begin(&walk, c->pool, tiles * c->routes.jobs, 2); walk.at < walk.count;
         specdec__walk_on(&walk, pair)) {
        specdec__place places[2], next[2];
        const specdec__output *t = specdec__forward_routed(c, targets, walk.at, tiles, places, &job);

        own = specdec__matrix_tiles(t->matrix) / c->model->experts;
        pair = places[1].tile % own && walk.at + 1 < walk.end ? 2 : 1;
        specdec__forward_routed(c, targets, specdec__walk_next(&walk, pair), tiles, next, &unused);
        specdec__forward_tiles(c, places, pair, next, job->column, job->count, scratch, sums);
        target = *t;
        target.bias = t->bias ? t->bias + job->expert * own * SPECDEC__ROWS : NULL;
        for (i = 0; i < pair; i++)
            specdec__forward_put(c, &target, places[i].tile % own, job->column, job->count, sums[i]);
    }
}

/* Quantises an input and multiplies matrices of experts by it. Returns 1 when cancelled. */
static int specdec__forward_project_routed(specdec__context *c, int thread, const specdec__input *in,
                                           const specdec__output *targets, int count)
{
    specdec__forward_quantise(c, thread, in);
    if (specdec__pool_barrier(c->pool))
        return 1;
    specdec__forward_multiply_routed(c, thread, targets, count);
    return specdec__pool_barrier(c->pool);
}

/* out (n, stride) = what the experts of each row give, by their shares, best first. */
static void specdec__forward_blend(specdec__context *c, int thread, float *out, int stride)
{
    const specdec__part part = specdec__forward_thread_part(c, thread, c->n, stride);
    const int at = part.from * 32, count = part.to * 32 - at, chosen = c->model->chosen;
    int i, k;

    for (i = part.first; i < part.last; i++) {
        float *y = out + (size_t)i * (size_t)stride + at;

        memset(y, 0, (size_t)count * sizeof *y);
        for (k = i * chosen; k < (i + 1) * chosen; k++)
            c->kernels->add_scaled(y, c->routes.share[k],
                                   c->parts + (size_t)c->routes.column[k] * (size_t)stride + at, count);
    }
}

/* y += what the shared expert gives, times the sigmoid of what its router says, if it has one. */
static void specdec__forward_share(specdec__context *c, int thread, const specdec__layer *layer)
{
    const specdec__part part = specdec__forward_thread_part(c, thread, c->n, c->e);
    const int at = part.from * 32, count = part.to * 32 - at;
    int i;

    for (i = part.first; i < part.last; i++) {
        const size_t begin = (size_t)i * (size_t)c->e + (size_t)at;
        const int routed = layer->matrix[SPECDEC__SHARED_ROUTER].rows;

        c->kernels->add_scaled(c->y + begin, routed ? 1 / (1 + specdec__exp(-c->shared_router[i])) : 1,
                               c->parts + begin, count);
    }
}

/* The routes of all rows, of which h is what routers read then: choices are shared out. Also what else experts need of
   h. Returns 1 when cancelled. */
static int specdec__forward_route(specdec__context *c, int thread, const specdec__layer *layer)
{
    const int experts = c->model->experts, stride = specdec__forward_stride(experts);
    const float *norm = layer->vector[SPECDEC__ROUTER_NORM];
    const specdec__input in = specdec__forward_normed(c, c->n, norm ? norm : layer->vector[SPECDEC__FFN_NORM]);
    specdec__output t[3];
    int count = 0, i;

    t[count++] = specdec__forward_output(layer, SPECDEC__ROUTER, SPECDEC__ROUTER_BIAS, c->y, stride);
    if (layer->matrix[SPECDEC__SHARED_ROUTER].rows)
        t[count++] = specdec__forward_output(layer, SPECDEC__SHARED_ROUTER, -1, c->shared_router, 1);
    if (c->latent)
        t[count++] = specdec__forward_output(layer, SPECDEC__LATENT_DOWN, -1, c->latent,
                                             specdec__forward_stride(c->model->latent));
    if (specdec__forward_project(c, thread, &in, t, count))
        return 1;
    for (i = thread; i < c->n; i += specdec__pool_active(c->pool)) {
        float *router = c->y + (size_t)i * (size_t)stride;

        memset(router + experts, 0, (size_t)(stride - experts) * sizeof *router);
        if (norm)
            c->kernels->scale(router, (float)specdec__inverse_root(c->model->embedding), stride);
        specdec__forward_check(c, thread, i, router, stride, 1);
        specdec__forward_choose(c, layer, i, router);
    }
    if (specdec__pool_barrier(c->pool))
        return 1;
    if (thread == 0)
        specdec__forward_sort(c);
    return specdec__pool_barrier(c->pool);
}

/* y = the sum of what the networks of each row's experts make of h, or of another norm of x, or of what is latent of
   h. Returns 1 when cancelled. */
static int specdec__forward_experts(specdec__context *c, int thread, const specdec__layer *layer)
{
    const int columns = c->n * c->model->chosen, ff = specdec__forward_stride(c->model->expert_ff);
    const int width = c->latent ? specdec__forward_stride(c->model->latent) : c->e;
    const int gated = layer->matrix[SPECDEC__EXPERT_GATE].rows > 0;
    specdec__input in = specdec__forward_input(c->parts, columns, width, NULL);
    specdec__output t[2];

    in.norm = layer->vector[SPECDEC__EXPERT_NORM];
    in.from = in.norm ? c->x : c->latent ? c->latent : c->h;
    in.rows = c->routes.row;
    t[0] = specdec__forward_output(layer, SPECDEC__EXPERT_GATE, SPECDEC__EXPERT_GATE_BIAS, c->hidden, ff);
    t[gated] = specdec__forward_output(layer, SPECDEC__EXPERT_UP, SPECDEC__EXPERT_UP_BIAS, gated ? c->up : c->hidden,
                                       ff);
    if (specdec__forward_project_routed(c, thread, &in, t, 1 + gated))
        return 1;
    in = specdec__forward_activated(c, layer, c->hidden, columns, ff, gated ? c->up : NULL);
    in.rows = c->routes.row;
    t[0] = specdec__forward_output(layer, SPECDEC__EXPERT_DOWN, SPECDEC__EXPERT_DOWN_BIAS, c->parts, width);
    if (specdec__forward_project_routed(c, thread, &in, t, 1))
        return 1;
    specdec__forward_blend(c, thread, c->latent ? c->latent : c->y, width);
    if (!c->latent)
        return specdec__pool_barrier(c->pool);
    if (specdec__pool_barrier(c->pool))
        return 1;
    in = specdec__forward_input(c->latent, c->n, width, NULL);
    t[0] = specdec__forward_output(layer, SPECDEC__LATENT_UP, -1, c->y, c->e);
    return specdec__forward_project(c, thread, &in, t, 1);
}

/* y = norm(y), of what experts give, + norm(parts), of what the network beside them gives. Returns 1 when cancelled. */
static int specdec__forward_both(specdec__context *c, int thread, const specdec__layer *layer)
{
    const specdec__part part = specdec__forward_thread_part(c, thread, c->n, c->e);
    const int at = part.from * 32, to = part.to * 32, width = c->e - SPECDEC__APART;
    int i;

    for (i = part.first; i < part.last; i++)
        specdec__forward_norm(c)(c->y + (size_t)i * (size_t)c->e, layer->vector[SPECDEC__AFTER_EXPERTS],
                                 c->model->epsilon, width, at, to, c->h + (size_t)i * (size_t)c->e);
    if (specdec__pool_barrier(c->pool))
        return 1;
    for (i = part.first; i < part.last; i++) {
        const size_t row = (size_t)i * (size_t)c->e;

        specdec__forward_norm(c)(c->parts + row, layer->vector[SPECDEC__AFTER_NETWORK], c->model->epsilon, width, at,
                                 to, c->y + row);
        c->kernels->add_scaled(c->y + row + at, 1, c->h + row + at, to - at);
    }
    return specdec__pool_barrier(c->pool);
}

/* Adds to x the outputs of its experts, and of the shared expert or the dense network, if there is one. Returns 1 when
   cancelled. */
static int specdec__forward_mixture_half(specdec__context *c, int thread, const specdec__layer *layer)
{
    const int shared = layer->shape.shared;
    const specdec__input in = shared ? specdec__forward_input(c->h, c->n, c->e, NULL)
                                     : specdec__forward_normed(c, c->n, layer->vector[SPECDEC__FFN_NORM]);

    if (specdec__forward_route(c, thread, layer) || specdec__forward_experts(c, thread, layer))
        return 1;
    if (layer->shape.feed_forward) {
        if (specdec__forward_network(c, thread, layer, &in, c->parts))
            return 1;
        if (shared)
            specdec__forward_share(c, thread, layer);
        if (shared ? specdec__pool_barrier(c->pool) : specdec__forward_both(c, thread, layer))
            return 1;
    }
    specdec__forward_grow(c, thread, layer->vector[SPECDEC__AFTER_FFN], 1);
    return specdec__pool_barrier(c->pool);
}

/* Hands out states after so many layers. */
static void specdec__forward_tap(const specdec__context *c, int thread, int layer)
{
    const specdec__model *m = c->model;
    const size_t width = (size_t)m->embedding;
    int k, i, j;

    for (k = 0; k < SPECDEC__TAPS; k++) {
        const specdec__taps *taps = &c->taps[k];

        for (i = 0; taps->out && i < taps->count; i++)
            for (j = taps->first + thread; taps->layers[i] == layer && j < c->n; j += specdec__pool_active(c->pool)) {
                float *out = taps->out + ((size_t)(j - taps->first) * (size_t)taps->count + (size_t)i) * width;
                const float *x = c->x + (size_t)j * (size_t)c->e;

                if (layer == SPECDEC_STATE_FINAL)
                    specdec__forward_norm(c)(x, m->output_norm, m->epsilon, m->embedding, 0, m->embedding, out);
                else
                    memcpy(out, x, width * sizeof *out);
            }
    }
}

/* Row i of what the layer, or the matrix before it, reads: the norm of the embedding, and behind it the norm of the
   state, or of what came of states, in x. */
static void specdec__forward_beside(specdec__context *c, int i, const float *embedding)
{
    const specdec__reads *reads = &c->model->reads;
    const float *const *norm = c->model->layer[0].vector, epsilon = c->model->epsilon;
    const int width = c->model->embedding;
    float *x = c->x + (size_t)i * (size_t)c->e, *h = c->h + (size_t)i * (size_t)specdec__forward_stride(2 * width);

    if (reads->joined) {
        c->kernels->norm(embedding, reads->token_norm, epsilon, width, 0, width, h);
        c->kernels->norm(c->reads + (size_t)i * (size_t)specdec__forward_read_stride(c->model), reads->state_norm,
                         epsilon, width, 0, width, h + width);
        return;
    }
    c->kernels->norm(embedding, norm[SPECDEC__ATTENTION_NORM], epsilon, width, 0, width, h);
    c->kernels->norm(x, norm[SPECDEC__READ_NORM], epsilon, width, 0, width, h + width);
    if (reads->norm_first)
        memcpy(x, h + width, (size_t)width * sizeof *x);
}

/* Makes x of the states that a step reads, or of these and embeddings, in h. Returns 1 when cancelled. */
static int specdec__forward_read(specdec__context *c, int thread)
{
    const specdec__reads *reads = &c->model->reads;
    specdec__input in = specdec__forward_input(c->reads, c->n, specdec__forward_read_stride(c->model), NULL);
    specdec__output t;

    if (reads->joined)
        in = specdec__forward_input(c->h, c->n, specdec__forward_stride(2 * c->model->embedding), NULL);
    t.matrix = &reads->matrix;
    t.bias = NULL;
    t.out = c->x;
    t.stride = (size_t)c->e;
    return specdec__forward_project(c, thread, &in, &t, 1);
}

/* A thread's share of the rows of the embedding and of the angles by which they are turned. */
static void specdec__forward_embed(specdec__context *c, int thread)
{
    const specdec__matrix *table = c->embedding;
    const int trait = c->model->trait[SPECDEC__READS_STATES], width = c->model->embedding;
    const int reads = SPECDEC__HEADS && (trait == SPECDEC__BESIDE_EMBEDDINGS || c->model->reads.joined);
    int i;

    for (i = thread; i < c->n; i += specdec__pool_active(c->pool)) {
        float *row;

        specdec__forward_angles(c, SPECDEC__ROPE, i);
        if (c->frequency[SPECDEC__ROPE_OTHER])
            specdec__forward_angles(c, SPECDEC__ROPE_OTHER, i);
        if (!specdec__model_begins(c->model) || (SPECDEC__HEADS && !reads && c->reads)) /* x came from elsewhere */
            continue;
        row = reads ? c->h + (size_t)i * (size_t)specdec__forward_stride(2 * width)
                    : c->x + (size_t)i * (size_t)c->e;
        specdec__quant_to_float(table->type, table->file + (size_t)c->batch->tokens[c->first + i] * table->row_bytes,
                                (size_t)width, row);
        c->kernels->scale(row, c->model->fact[SPECDEC__EMBEDDING_SCALE], width);
        specdec__forward_check(c, thread, i, row, width, SPECDEC__SOUND);
        if (reads)
            specdec__forward_beside(c, i, row);
    }
}

/* A thread's share of the logits, or of their bounds, if any are wanted: of rows[i] of x. Their states become rows of
   h in any case. */
static void specdec__forward_logits(void *argument, int thread)
{
    specdec__context *c = (specdec__context *)argument;
    const specdec__model *m = c->model;
    specdec__input in = specdec__forward_normed(c, c->row_count, m->output_norm);
    specdec__output t;

    t.matrix = c->output;
    t.bias = NULL;
    t.out = c->logits;
    t.stride = (size_t)c->output->rows;
    in.rows = c->rows;
    c->scratch[thread].half = 2 * m->layers;
    if (thread == 0)
        c->screen.bounds = specdec__screen_makes(c);
    if (specdec__screen_makes(c) == SPECDEC__SCREEN_LOGITS) {
        if (!specdec__forward_project(c, thread, &in, &t, 1))
            specdec__forward_finish(c, thread);
        return;
    }
    specdec__forward_quantise(c, thread, &in);
    if (specdec__screen_makes(c) == SPECDEC__SCREEN_NOTHING || specdec__pool_barrier(c->pool))
        return;
    specdec__screen_norms(c, thread);
    if (!specdec__pool_barrier(c->pool))
        specdec__forward_multiply(c, thread, &t, 1);
}

/* Keys and values of all layers, of x, which came of states. Returns 1 when cancelled. */
static int specdec__forward_keys(specdec__context *c, int thread)
{
    const specdec__input in = specdec__forward_normed(c, c->n, c->model->reads.after);
    int i, from, end, items;

    specdec__forward_quantise(c, thread, &in);
    for (i = 0; i < c->model->layers; i++) {
        const specdec__layer *layer = &c->model->layer[i];
        const specdec__shape *s = &layer->shape;
        specdec__output t[2];

        t[0] = specdec__forward_output(layer, SPECDEC__K, SPECDEC__K_BIAS, c->keys,
                                       specdec__forward_stride(s->kv_heads * s->key_dim));
        t[1] = specdec__forward_output(layer, SPECDEC__V, SPECDEC__V_BIAS, c->values,
                                       specdec__forward_stride(s->kv_heads * s->value_dim));
        if (specdec__pool_barrier(c->pool))
            return 1;
        specdec__forward_multiply(c, thread, t, 2);
        if (specdec__pool_barrier(c->pool))
            return 1;
        items = c->n * s->kv_heads;
        for (end = 0; (from = specdec__pool_claim(c->pool, items, 1, &end)) < items;)
            for (; from < end; from++)
                specdec__forward_store(c, thread, layer, from / s->kv_heads, from % s->kv_heads);
    }
    return specdec__pool_barrier(c->pool);
}

static void specdec__forward_worker(void *argument, int thread)
{
    specdec__context *c = (specdec__context *)argument;
    const specdec__model *m = c->model;
    int i;

    c->scratch[thread].half = -1;
    if (SPECDEC__HEADS && c->reads && !m->reads.joined && specdec__forward_read(c, thread))
        return;
    specdec__forward_embed(c, thread);
    if (specdec__pool_barrier(c->pool) ||
        (SPECDEC__HEADS && m->reads.joined && specdec__forward_read(c, thread)) ||
        (c->inputs && specdec__forward_layer_inputs(c, thread)) ||
        (c->streams && specdec__forward_project_streams(c, thread, 0)))
        return;
    if (SPECDEC__HEADS && c->reads && m->block.size) {
        specdec__forward_keys(c, thread);
        return;
    }
    for (i = 0; i < m->layers; i++) {
        specdec__forward_tap(c, thread, i);
        if (SPECDEC__PIPE && c->hooks && !thread)
            c->hooks->between(c);
        c->scratch[thread].half = 2 * i;
        if (c->streams && specdec__forward_layer_begin(c, thread, &m->layer[i]))
            return;
        if (SPECDEC__RECURRENT && m->layer[i].state >= 0 && specdec__forward_recurrent_half(c, thread, &m->layer[i]))
            return;
        if (m->layer[i].shape.kv_heads && specdec__forward_attention_half(c, thread, &m->layer[i]))
            return;
        if (m->layer[i].matrix[SPECDEC__LAUREL_DOWN].rows && specdec__forward_laurel(c, thread, &m->layer[i]))
            return;
        c->scratch[thread].half = 2 * i + 1;
        if (SPECDEC__EXPERTS && m->layer[i].shape.experts ? specdec__forward_mixture_half(c, thread, &m->layer[i])
            : m->layer[i].shape.feed_forward ? specdec__forward_ffn_half(c, thread, &m->layer[i])
                                             : 0)
            return;
        if ((c->inputs || c->streams || m->layer[i].vector[SPECDEC__OUTPUT_SCALE]) &&
            specdec__forward_layer_end(c, thread, &m->layer[i]))
            return;
    }
    if (c->streams && specdec__forward_project_streams(c, thread, 1))
        return;
    specdec__forward_tap(c, thread, m->layers);
    specdec__forward_tap(c, thread, SPECDEC_STATE_FINAL);
    if (c->row_count && specdec__model_ends(m) && !m->bare)
        specdec__forward_logits(c, thread);
}

/* Reserves slots for node i of a batch, and works out where it stands. Returns 0 when pages run out. */
static int specdec__forward_seat(specdec__context *c, const specdec__batch *batch, int i)
{
    specdec__view *view = batch->views[i];
    int parent = batch->parents[i], local = 0, previous = -1, span, j;

    if (c->model->trait[SPECDEC__SIGHT] == SPECDEC__SEES_TEXT) {
        c->place[i] = view->length;
        c->position[i] = view->position;
        c->trunk[i] = 1;
        return 1;
    }
    for (j = 0; j < i; j++)
        if (batch->views[j] == view) {
            local++;
            previous = j;
        }
    if (!specdec__view_reserve(view, &c->kv, local + 1))
        return 0;
    for (span = 0; span < SPECDEC__SPANS; span++)
        if (c->kv.span[span].count)
            c->slots[span][i] = specdec__view_reserved_slot(view, span, local);
    c->place[i] = parent < 0 ? view->length : c->place[parent] + 1;
    c->position[i] = c->place[i] - view->length + view->position;
    c->trunk[i] = parent == previous && (parent < 0 || c->trunk[parent]);
    return 1;
}

/* Checks a batch and works out positions, slots, trunk and rows. */
static specdec_result specdec__forward_prepare(specdec__context *c, const specdec__batch *batch, specdec_error *error)
{
    int i;

    if (batch->n - batch->done < 1 || batch->n > c->most)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "a step of %d nodes, the engine was made for 1..%d",
                             batch->n, c->most);
    c->row_count = c->unsound = 0;
    memset(c->wrong, 0, (size_t)(batch->n - batch->done) * sizeof *c->wrong);
    for (i = batch->done; i < batch->n; i++) {
        const int parent = batch->parents[i];

        if (batch->tokens[i] < 0 || batch->tokens[i] >= c->model->vocab_size)
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "token id %d, the vocabulary has %d",
                                 (int)batch->tokens[i], c->model->vocab_size);
        if (parent < -1 || parent >= i || (parent >= 0 && batch->views[parent] != batch->views[i]))
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "node %d has the parent %d", i, parent);
        if (!specdec__forward_seat(c, batch, i)) {
            specdec__view_unreserve(batch->views[i], &c->kv);
            return specdec__fail(error, SPECDEC_ERROR_FULL, "no room in the KV cache for %d more tokens",
                                 batch->n);
        }
        if (batch->wanted == NULL || batch->wanted[i])
            c->rows[c->row_count++] = i - batch->done;
    }
    if (c->row_count > c->most_rows && !c->model->bare)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "%d rows of logits, the engine was made for %d",
                             c->row_count, c->most_rows);
    c->batch = batch;
    for (i = 0; i < SPECDEC__SPANS; i++)
        c->stretches[i] = specdec__forward_stretches(c, i, batch->done, batch->n);
    c->first = batch->done;
    c->n = batch->n - batch->done;
    return SPECDEC_OK;
}

/* Prepares a cancelled batch without computing it: its nodes get their slots in the cache, and rows that waited are
   applied to the states of recurrent layers. */
static specdec_result specdec__forward_skip(specdec__context *c, const specdec__batch *batch, specdec_error *error)
{
    specdec_result result = specdec__forward_prepare(c, batch, error);

    if (result || !specdec__states_are(&c->kv.states))
        return result;
    result = specdec__forward_mix_prepare(c, batch, error);
    if (!result)
        specdec__forward_mix_end(c, 0);
    return result;
}

/* Runs a batch: logits (wanted rows, vocab) lie in c->logits, states (wanted rows, c->e apart) in c->h, keys and values
   in reserved slots of the views, until they are committed or overwritten by the next step. Rows whose values are
   no numbers are noted: see specdec__forward_sound. */
static specdec_result specdec__forward(specdec__context *c, const specdec__batch *batch, specdec_error *error)
{
    specdec_result result = specdec__forward_prepare(c, batch, error);

    if (SPECDEC__PIPE && !result && c->hooks && c->hooks->begin)
        result = c->hooks->begin(c, error);
    if (!result && specdec__states_are(&c->kv.states))
        result = specdec__forward_mix_prepare(c, batch, error);
    if (result)
        return result;
    if ((!SPECDEC__PIPE || c->model->layers) && specdec__pool_run(c->pool, c->threads, specdec__forward_worker, c))
        result = specdec__fail(error, SPECDEC_ERROR_CANCELLED, "cancelled");
    if (specdec__states_are(&c->kv.states))
        specdec__forward_mix_end(c, !result);
    if (!SPECDEC__PIPE || !c->hooks || !c->hooks->beyond)
        return result;
    if (!result)
        result = specdec__forward_sound(c, 0, c->n, error);
    return c->hooks->beyond(c, result, error);
}

/* The first n nodes in the context's own arrays as a batch that wants every row. */
static specdec__batch specdec__forward_batch(const specdec__context *c, int done, int n)
{
    specdec__batch batch;

    batch.n = n;
    batch.done = done;
    batch.tokens = c->tokens;
    batch.parents = c->parents;
    batch.views = c->views;
    batch.wanted = batch.certain = NULL;
    return batch;
}

/* The same, all of one view. */
static specdec__batch specdec__forward_alone(const specdec__context *c, specdec__view *view, int done, int n)
{
    int i;

    for (i = 0; i < n; i++)
        c->views[i] = view;
    return specdec__forward_batch(c, done, n);
}

/* Which of nodes path[n] this one is; -1: none. */
static int specdec__forward_among(const int *path, int n, int node)
{
    while (n > 0 && path[n - 1] != node)
        n--;
    return n - 1;
}

/* Commits nodes path[count], rising, of n nodes of a view that were run. path goes on with the `stay` of them that stay
   nodes, numbered anew in this order: they descend from the last one. With stay = -1 all behind the last one stay, and
   their numbers fall by count; those that do not descend from it are never asked for again. Returns how many numbers
   nodes have now. */
static int specdec__forward_keep(specdec__context *c, specdec__view *view, const int *path, int count, int stay, int n)
{
    const int all = stay < 0, last = path[count - 1], left = all ? n - 1 - last : stay, end = all ? n - count : stay;
    int i, span;

    specdec__view_keep(view, &c->kv, path, count, stay);
    for (i = 0; i < left; i++) {
        const int from = all ? last + 1 + i : path[count + i], to = end - left + i, parent = c->parents[from];

        c->parents[to] = !all ? specdec__forward_among(path + count, i, parent) : parent > last ? parent - count : -1;
        c->tokens[to] = c->tokens[from];
        c->place[to] = c->place[from];
        c->position[to] = c->position[from];
        c->trunk[to] = 0;
        for (span = 0; span < SPECDEC__SPANS; span++)
            c->slots[span][to] = all || !c->kv.span[span].count ? c->slots[span][from]
                                                                : specdec__view_reserved_slot(view, span, to);
    }
    return end;
}

/* Which tokens of a text shall have their logits, and which their states; and what else a text brings along. */
typedef struct specdec__rows {
    int from;           /* this one and those behind it */
    float *logits;      /* (count - from, vocab), the caller's; NULL: only the last one is kept, as row 0 */
    int states_from;    /* this one and those behind it */
    specdec__taps taps; /* out (count - states_from, ...) is the caller's; NULL: none */
    float *reads;       /* (count - reads_from, stride): states that a model reads; NULL: it reads none */
    int reads_from;
    /* Told of each batch, tokens [at, at + n), before it is committed; its error ends the run. Or NULL */
    specdec_result (*hear)(void *listener, int at, int n);
    void *listener;
} specdec__rows;

/* Logits for token `from` and those behind it, of which the last becomes row 0; no states. */
static specdec__rows specdec__forward_wanted(int from)
{
    specdec__rows rows;

    memset(&rows, 0, sizeof rows);
    rows.from = from;
    return rows;
}

/* A batch will hold tokens [at, at + n) of a text: where their states go, and what it reads. */
static void specdec__forward_states(specdec__context *c, const specdec__rows *rows, int at, int n)
{
    const size_t width = (size_t)rows->taps.count * (size_t)c->model->embedding;
    const int skip = specdec__max_int(rows->states_from - at, 0);

    c->taps[0] = rows->taps;
    c->taps[0].first = skip;
    if (skip >= n)
        c->taps[0].out = NULL;
    else if (c->taps[0].out)
        c->taps[0].out += (size_t)(at + skip - rows->states_from) * width;
    if (rows->reads)
        c->reads = rows->reads + (size_t)(at - rows->reads_from) * (size_t)specdec__forward_read_stride(c->model);
}

/* Hands out the rows of a batch that holds tokens [at, at + n) of a text. */
static void specdec__forward_rows(specdec__context *c, const specdec__rows *rows, int at, int n)
{
    const size_t vocab = (size_t)c->output->rows;
    const int skip = specdec__max_int(rows->from - at, 0); /* rows come for wanted nodes, in order of nodes */

    if (skip >= n || !rows->logits)
        return;
    memcpy(rows->logits + (size_t)(at + skip - rows->from) * vocab, c->logits,
           (size_t)(n - skip) * vocab * sizeof *c->logits);
    memmove(c->logits, c->logits + (size_t)(n - skip - 1) * vocab, vocab * sizeof *c->logits);
}

/* Runs text[view length, count), most tokens a step, and commits them; the last row wanted becomes row 0 of c->logits.
   Tokens that the model lacks (the padding of a larger vocabulary) count as 0. hooks may be NULL. Errors also:
   CANCELLED. */
static specdec_result specdec__forward_text(specdec__context *c, specdec__view *view, const int32_t *text, int count,
                                            int most, const specdec__rows *rows, const specdec_hooks *hooks,
                                            specdec_error *error)
{
    const int from = view->length, total = count - from;

    while (view->length < count) {
        const int at = view->length, n = specdec__min_int(most, count - at);
        specdec__batch batch = specdec__forward_alone(c, view, 0, n);
        specdec_result result;
        int i;

        for (i = 0; i < n; i++) {
            c->tokens[i] = text[at + i] < c->model->vocab_size ? text[at + i] : 0;
            c->parents[i] = i - 1;
            c->wanted[i] = (unsigned char)(at + i >= rows->from);
            c->path[i] = i;
            c->certain[i] = at + i < count - 1; /* the last token may become a root again */
        }
        batch.wanted = c->wanted;
        batch.certain = c->certain;
        specdec__forward_states(c, rows, at, n);
        result = specdec__forward(c, &batch, error);
        c->taps[0].out = NULL;
        c->reads = NULL;
        if (!result)
            result = specdec__forward_sound(c, 0, n, error);
        if (!result && rows->hear)
            result = rows->hear(rows->listener, at, n);
        if (result)
            return result;
        specdec__forward_rows(c, rows, at, n);
        specdec__view_commit(view, &c->kv, c->path, n);
        if (hooks && hooks->progress && total > 1 &&
            hooks->progress(hooks->user_data, "prefill", view->length - from, total))
            return specdec__fail(error, SPECDEC_ERROR_CANCELLED, "cancelled by the progress hook");
    }
    return SPECDEC_OK;
}
SPECDEC__FOR_SPEED
