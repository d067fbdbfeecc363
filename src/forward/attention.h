/* =====================================================================================================================
 * >>forward/attention: attention of nodes to the keys of their view and of their ancestors in the tree, in blocks of 64
 *     keys with one running maximum (online softmax).
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/pool.h"
#include "../quant/types.h"
#include "../quant/table.h"
#include "../base/op.h"
#include "../kernel/kernel.h"
#include "../kernel/dispatch.h"
#include "../model/model.h"
#include "../cache/kv.h"
#include "../cache/reserve.h"
#include "../cache/bytes.h"
#include "context.h"
#include "rows.h"
#include "latent.h"

/* Computes RoPE's cosine and sine (dim) for the position of a row, laid out so that x * cosine + partner * sine is the
   rotated x. rope: SPECDEC__ROPE or SPECDEC__ROPE_ALTERNATE. */
static void specdec__forward_compute_angles(specdec__context *c, int rope, int row)
{
    const specdec__model *m = c->model;
    const size_t at = ((size_t)rope * (size_t)c->max_nodes + (size_t)row) * (size_t)c->kv.dim;
    const float scale = m->rope_scale[rope];
    float *cosine = c->cosine + at, *sine = c->sine + at;
    int half = m->rope_dim[rope] / 2, i;

    for (i = m->rope_dim[rope]; i < c->kv.dim; i++) {
        cosine[i] = 1;
        sine[i] = 0;
    }
    for (i = 0; i < half; i++) {
        int a = m->trait[SPECDEC__NEOX] ? i : 2 * i, b = m->trait[SPECDEC__NEOX] ? i + half : 2 * i + 1;
        float s, k;

        specdec__sine_cosine((double)c->position[c->first_node + row] * c->frequency[rope][i], &s, &k);
        cosine[a] = cosine[b] = k * scale;
        sine[b] = s * scale;
        sine[a] = -sine[b];
    }
}

/* Applies RoPE and the optional norm of queries or keys to one head of one row: out (dim), padded with zeros as the
   cache pads keys. norm: weights; NULL: none. partner (dim): a buffer. The norm comes before the rotation, or behind it
   with the trait NORM_AFTER_ROPE. */
static void specdec__forward_rotate_head(const specdec__context *c, const specdec__layer *l, int row, const float *from,
                                         const float *norm, float *partner, float *out)
{
    const specdec__model *m = c->model;
    const size_t at = ((size_t)l->shape.rope * (size_t)c->max_nodes + (size_t)row) * (size_t)c->kv.dim;
    const int dim = specdec__context_kv_layer(c, l)->dim, size = l->shape.key_dim, half = l->shape.rope_dim / 2;
    int i;

    memcpy(out, from, (size_t)size * sizeof *out);
    for (i = size; i < dim; i++)
        out[i] = 0;
    norm = m->trait[SPECDEC__JOINT_NORMS] ? NULL : norm;
    if (norm && !m->trait[SPECDEC__NORM_AFTER_ROPE])
        c->kernels->norm(out, norm, m->epsilon, size, 0, specdec__round_up(size, 16), out);
    memset(partner, 0, (size_t)dim * sizeof *partner);
    if (m->trait[SPECDEC__NEOX]) {
        memcpy(partner, out + half, (size_t)half * sizeof *out);
        memcpy(partner + half, out, (size_t)half * sizeof *out);
    } else {
        for (i = 0; i < l->shape.rope_dim; i += 2) {
            partner[i] = out[i + 1];
            partner[i + 1] = out[i];
        }
    }
    c->kernels->rotate(out, partner, c->cosine + at, c->sine + at, dim);
    if (norm && m->trait[SPECDEC__NORM_AFTER_ROPE])
        c->kernels->norm(out, norm, m->epsilon, size, 0, specdec__round_up(size, 16), out);
}

/* Returns the factor of a layer's queries for one row: query_scale, times what SPECDEC__ROPE_QUERIES_GROW architectures
   multiply it by behind the original context. */
static float specdec__forward_query_scale(const specdec__context *c, const specdec__layer *l, int row)
{
    const specdec__model *m = c->model;
    const int times = m->query_growth > 0 ? c->position[c->first_node + row] / m->rope_original : 0;

    if (!times)
        return l->query_scale;
    return l->query_scale *
           (float)(1 + specdec__product((double)m->query_growth, specdec__log_double(1.0 + times)));
}

/* Computes a thread's share of the norms of queries and of keys in architectures that norm all heads of a row together
   (the trait JOINT_NORMS). */
static void specdec__forward_norm_joint_heads(specdec__context *c, int thread, const specdec__layer *l)
{
    const int q = l->shape.heads * l->shape.key_dim, kv = l->shape.kv_heads * l->shape.key_dim;
    const float epsilon = c->model->epsilon;
    int i;

    for (i = thread; i < c->n; i += specdec__pool_active(c->pool)) {
        float *queries = c->queries + (size_t)i * (size_t)specdec__forward_stride(q);
        float *keys = c->keys + (size_t)i * (size_t)specdec__forward_stride(kv);

        c->kernels->norm(queries, l->vector[SPECDEC__Q_NORM], epsilon, q, 0, q, queries);
        c->kernels->norm(keys, l->vector[SPECDEC__K_NORM], epsilon, kv, 0, kv, keys);
    }
}

/* Returns the column of c->rotated_columns that holds a query: columns of one kv head are contiguous, as they see the
   same keys. */
static int specdec__forward_column_of_rotated_query(const specdec__context *c, const specdec__layer *l, int row,
                                                    int head)
{
    int group = l->shape.heads / l->shape.kv_heads;

    return (head / group * c->n + row) * group + head % group;
}

/* Records a row in c->first_unsound if its key or value (padded) is not finite, or is too large for the type of the
   cache. */
static void specdec__forward_check_key_value(specdec__context *c, int thread, int row, const specdec__kv_layer *to,
                                             const float *key, const float *value)
{
    const specdec__kv_type *type = &specdec__kv_types[c->kv.type];

    if (!c->checks_values || (c->kernels->all_finite(key, type->key_factor, to->dim) &&
                              c->kernels->all_finite(value, type->value_factor, to->value_dim)))
        return;
    specdec__forward_record_unsound(c, thread, row, c->kernels->all_finite(key, SPECDEC__FINITE_FACTOR, to->dim) &&
                                              c->kernels->all_finite(value, SPECDEC__FINITE_FACTOR, to->value_dim));
}

/* Stores the key of one row and kv head in the cache, normed and rotated by RoPE as the architecture has it, and the
   value. */
static void specdec__forward_store_key_value(specdec__context *c, int thread, const specdec__layer *l, int row,
                                             int head)
{
    const specdec__kv_layer *to = specdec__context_kv_layer(c, l);
    const int size = l->shape.key_dim, value_size = l->shape.value_dim, slot = c->slots[to->span][c->first_node + row];
    const size_t stride = (size_t)specdec__forward_stride(l->shape.kv_heads * size);
    const size_t value_stride = (size_t)specdec__forward_stride(l->shape.kv_heads * value_size);
    specdec__scratch *s = &c->scratch[thread];
    const float *key = c->keys + (size_t)row * stride + (size_t)(head * size);
    const float *value = (l->matrix[SPECDEC__V].rows ? c->values : c->keys) + (size_t)row * value_stride +
                         (size_t)(head * value_size);

    if (c->absorbed) {
        specdec__forward_join_latent_row(c, l, row, -1, s->out);
        key = s->out;
        value = s->queries + l->shape.rope_dim; /* the latent part of the key */
    }
    specdec__forward_rotate_head(c, l, row, key, l->vector[SPECDEC__K_NORM], s->rope_partner, s->queries);
    memset(s->out, 0, (size_t)to->value_dim * sizeof *s->out);
    memcpy(s->out, value, (size_t)value_size * sizeof *s->out);
    if (c->model->trait[SPECDEC__NORMED_VALUES])
        c->kernels->norm(s->out, c->model->ones, c->model->epsilon, value_size, 0,
                         specdec__round_up(value_size, 16), s->out);
    specdec__forward_check_key_value(c, thread, row, to, s->queries, s->out);
    specdec__kv_store_key_and_value(c->kv.type, to, c->kernels,
                                    specdec__kv_keys_address(&c->kv, to, slot / SPECDEC__KEYS, head),
                                    slot % SPECDEC__KEYS, s->queries, s->out, (int8_t *)s->codes);
}

/* Stores the key and the value of one row and kv head in the cache, if the layer has its own, and rotates and scales
   the queries that share it into c->rotated. Gates of queries, if the architecture has them, are copied to the place in
   c->h that the output of their head will take. */
static void specdec__forward_rotate_queries(specdec__context *c, int thread, const specdec__layer *l, int row, int head)
{
    const specdec__kv_layer *to = specdec__context_kv_layer(c, l);
    const int heads = l->shape.heads, group = heads / l->shape.kv_heads, size = l->shape.key_dim, dim = to->dim;
    const int rows = specdec__model_query_rows(c->model, &l->shape);
    const size_t stride = (size_t)specdec__forward_stride(heads * rows);
    const size_t attended = (size_t)specdec__forward_stride(heads * l->shape.value_dim);
    const float scale = specdec__forward_query_scale(c, l, row);
    specdec__scratch *s = &c->scratch[thread];
    int i;

    if (to->owns_keys)
        specdec__forward_store_key_value(c, thread, l, row, head);
    for (i = head * group; i < (head + 1) * group; i++) {
        float *out = c->rotated + ((size_t)row * (size_t)heads + (size_t)i) * (size_t)dim;
        const float *query = c->queries + (size_t)row * stride + (size_t)(i * rows);

        if (c->absorbed) {
            specdec__forward_join_latent_row(c, l, row, i, s->out);
            query = s->out;
        }
        specdec__forward_rotate_head(c, l, row, query, l->vector[SPECDEC__Q_NORM], s->rope_partner, out);
        if (rows > size)
            memcpy(c->h + (size_t)row * attended + (size_t)(i * (rows - size)), query + size,
                   (size_t)(rows - size) * sizeof *query);
        c->kernels->scale(out, scale, dim);
        specdec__forward_check_row_is_finite(c, thread, row, out, dim, SPECDEC__FINITE_FACTOR);
        if (specdec__kv_types[c->kv.type].has_codes)
            c->kernels->quantise(out, 0, dim / 32, specdec__forward_column_of_rotated_query(c, l, row, i),
                                 &c->rotated_columns);
    }
}

/* A unit of attention that one thread computes: query heads [first_head, end_head) of one kv head of a layer, for nodes
   [first_node, end_node) and some stretches of keys. */
typedef struct specdec__attention_unit {
    const specdec__layer *layer; /* the layer whose attention is computed */
    const specdec__kv_layer *kv; /* the layout of its keys and values */
    int kv_head, first_head, end_head; /* number of the kv head; its query heads [first_head, end_head) */
    int first_node, end_node;          /* nodes [first_node, end_node) of the step */
    specdec__key_range stretches;    /* stretches of keys: see specdec__forward_seen_stretches */
    specdec__attention_sums sums;          /* running maxima and weighted sums of the current stretch */
} specdec__attention_unit;

/* Returns the last node whose key a node attends to; -1: it attends to the keys of its view alone. */
SPECDEC__INLINE int specdec__forward_last_seen_node(const specdec__context *c, int node)
{
    const int sight = c->model->trait[SPECDEC__VISIBLE_KEYS];

    return sight == SPECDEC__SEES_ANCESTORS ? node : sight == SPECDEC__SEES_BLOCK ? c->batch->n - 1 : -1;
}

/* Returns the number of keys up to the last one that a node attends to, included. */
SPECDEC__INLINE int specdec__forward_count_seen_keys(const specdec__context *c, int node)
{
    const int last = specdec__forward_last_seen_node(c, node);

    return last < 0 ? c->key_index[node] : c->key_index[last] + 1;
}

/* Returns which keys of block number `block`, of 64 logical positions, a node attends to. */
static specdec__key_range specdec__forward_seen_keys_of_block(const specdec__context *c,
                                                              const specdec__attention_unit *u, int node, int block)
{
    const int window = c->kv.span[u->kv->span].window, base = block * SPECDEC__KEYS;
    specdec__key_range range;

    range.to = specdec__min_int(SPECDEC__KEYS, specdec__forward_count_seen_keys(c, node) - base);
    range.from = window ? specdec__max_int(c->key_index[node] + 1 - window - base, 0) : 0;
    return range;
}

/* Writes the slots of the keys in a range of a block that a node attends to: committed keys of its view, then keys of
   nodes. slots (64): indexed by the position in the block. */
static void specdec__forward_seen_slots(const specdec__context *c, const specdec__attention_unit *u, int node,
                                        int block, specdec__key_range range, int *slots)
{
    const specdec__view *view = c->batch->views[node];
    const int base = block * SPECDEC__KEYS, committed = specdec__min_int(range.to, view->length - base) - range.from;
    const int own = base + range.from + specdec__max_int(committed, 0);
    int at = specdec__forward_last_seen_node(c, node);

    if (committed > 0)
        specdec__view_find_slots_of_positions(&view->span[u->kv->span], base + range.from, committed,
                                              slots + range.from);
    for (; at >= 0 && c->key_index[at] >= own; at = c->batch->parents[at])
        if (c->key_index[at] < base + range.to)
            slots[c->key_index[at] - base] = c->slots[u->kv->span][at];
}

/* Gets the keys and values in the first `slots` slots of a page for `queries` queries. Returns 1 if they are half
   floats in the cache, read in place; 0: they are floats, converted into a buffer if necessary, the first or (second =
   1) the second one. */
static int specdec__forward_load_keys_and_values(const specdec__context *c, specdec__scratch *s,
                                                 const specdec__attention_unit *u, int page, int slots, int second,
                                                 int queries, const void **keys, const void **values)
{
    const size_t size = (size_t)c->kv.dim * SPECDEC__KEYS;
    const unsigned char *k = specdec__kv_keys_address(&c->kv, u->kv, page, u->kv_head);
    float *k_buffer = s->keys + (size_t)second * size, *v_buffer = s->values + (size_t)second * size;

    *keys = k_buffer;
    *values = v_buffer;
    if (s->page_held[second] == page && s->slots_held[second] >= slots)
        return 0;
    if (specdec__kv_types[c->kv.type].is_f16 && queries <= c->kernels->half_queries) {
        *keys = k;
        *values = k + u->kv->key_bytes;
        return 1;
    }
    *keys = specdec__kv_keys_as_floats(c->kv.type, u->kv, c->kernels, k, slots, k_buffer);
    *values = specdec__kv_values_as_floats(c->kv.type, u->kv, c->kernels, k + u->kv->key_bytes, slots, v_buffer);
    if (*values == v_buffer)
        s->page_held[second] = page;
    s->slots_held[second] = slots;
    return 0;
}

/* Adds a block of keys to the softmax and the weighted sums of up to four queries (online softmax). scores (count, 64):
   of these queries. next: values to be prefetched. */
static void specdec__forward_add_key_block(specdec__context *c, const specdec__attention_sums *sums, float *scores,
                                           const size_t *query, const specdec__key_range *range, int count,
                                           const void *values, int halves, const void *next)
{
    const int dim = sums->width - 16;
    const size_t row_bytes = (size_t)dim * (halves ? 2 : 4);
    const float cap = c->model->fact[SPECDEC__SCORE_CAP];
    float *out[4], factor;
    int i, equal = 1;

    if (cap > 0)
        c->kernels->soft_cap(scores, cap, count * SPECDEC__KEYS);
    for (i = 0; i < count; i++) {
        float *row = sums->row + query[i] * (size_t)sums->width;

        out[i] = row + 16;
        factor = c->kernels->softmax(scores + i * SPECDEC__KEYS, range[i].from, range[i].to, &sums->highest[query[i]],
                                     row);
        if (factor < 1)
            c->kernels->scale(out[i], factor, dim);
        equal &= range[i].from == range[0].from && range[i].to == range[0].to;
    }
    for (i = 0; i < (equal ? 1 : count); i++)
        c->kernels->weigh_values(scores + i * SPECDEC__KEYS + range[i].from, equal ? count : 1,
                                 (const char *)values + (size_t)range[i].from * row_bytes, halves,
                                 range[i].to - range[i].from, dim, next, out + i);
}

/* Hides keys outside the range `seen` from queries [from, to): their scores in s->scores become so low that their
   weights are 0, and the scales of their values become 0. all (64): scales of values; scales (64): the result. */
static void specdec__forward_hide_keys(specdec__scratch *s, int from, int to, specdec__key_range seen, const float *all,
                                       float *scales)
{
    int key, i;

    for (key = 0; key < SPECDEC__KEYS; key++) {
        const int hidden = key < seen.from || key >= seen.to;
        float *row = s->scores + key / SPECDEC__ROWS * SPECDEC__SCORE_COLUMNS * SPECDEC__ROWS + key % SPECDEC__ROWS;

        scales[key] = hidden ? 0 : all[key];
        for (i = from; i < to && hidden; i++)
            row[i * SPECDEC__ROWS] = SPECDEC__NO_SCORE;
    }
}

/* Adds a block of keys to the softmax and the weighted sums of up to 64 queries, where the cache has 8-bit codes; their
   scores are s->scores. values: those of the page's first `slots` slots. Canonical: weights times scales of values,
   over a block and for one query, are quantised to codes in [0, 255] with one scale; the sum of codes times codes over
   the block is an exact integer. */
static SPECDEC__NOINLINE void
specdec__forward_add_key_block_of_codes(specdec__context *c, specdec__scratch *s, const specdec__attention_sums *sums,
                                        const size_t *query, const specdec__key_range *range, int count,
                                        const unsigned char *values, int slots, const unsigned char *next)
{
    const float cap = c->model->fact[SPECDEC__SCORE_CAP];
    float *out[SPECDEC__PASS_COLUMNS], scale[SPECDEC__PASS_COLUMNS], factor[SPECDEC__PASS_COLUMNS];
    float scales[SPECDEC__KEYS]; /* scales of values, 0 for hidden keys */
    specdec__softmax_block softening;
    int from, to, i;

    if (cap > 0)
        c->kernels->soft_cap(s->scores, cap, SPECDEC__SCORE_COLUMNS * SPECDEC__KEYS);
    softening.stride = SPECDEC__SCORE_COLUMNS;
    softening.sums = sums;
    for (from = 0; from < count; from = to) { /* queries that see the same keys */
        softening.value_scales = (const float *)(const void *)values;
        for (to = from + 1; to < count && range[to].from == range[from].from && range[to].to == range[from].to; )
            to++;
        if (range[from].to - range[from].from < SPECDEC__KEYS) {
            specdec__forward_hide_keys(s, from, to, range[from], softening.value_scales, scales);
            softening.value_scales = scales;
        }
        softening.scores = s->scores + from * SPECDEC__ROWS;
        softening.count = to - from;
        softening.query = query + from;
        softening.factor = factor + from;
        softening.codes = s->codes + from * SPECDEC__KEYS;
        softening.scale = scale + from;
        c->kernels->softmax_codes(&softening);
    }
    for (i = 0; i < count; i++) {
        out[i] = sums->row + query[i] * (size_t)sums->width + 16;
        if (factor[i] < 1)
            c->kernels->scale(out[i], factor[i], sums->width - 16);
    }
    for (; i % 4; i++) {
        out[i] = s->out;
        scale[i] = 0;
    }
    c->kernels->weigh_codes((const int8_t *)values + SPECDEC__KEYS * sizeof(float), sums->width - 16,
                            specdec__round_up(slots, 16), s->codes, scale, count, next, out);
}

/* Computes s->scores (4 tiles, SPECDEC__SCORE_COLUMNS, 16 keys): columns [column, column + count) of c->rotated_columns
   times the first `slots` keys (dim) of a page, which are tiles of codes. */
static void specdec__forward_compute_tile_scores(specdec__context *c, specdec__scratch *s, const unsigned char *keys,
                                                 int dim, int slots, int column, int count)
{
    const size_t bytes = (size_t)dim / 32 * 34 * SPECDEC__ROWS;
    float *sums[2];
    specdec__tiles tiles;
    int from, t;

    tiles.type = specdec__quant_find_type(SPECDEC__TYPE_Q8_0);
    for (from = 0; from < slots; from += 2 * SPECDEC__ROWS) {
        for (t = 0; t < 2; t++) {
            tiles.tile[t] = keys + (size_t)(from / SPECDEC__ROWS + t) * bytes;
            tiles.next[t] = tiles.tile[t] + 2 * bytes;
            sums[t] = s->scores + (from + t * SPECDEC__ROWS) * SPECDEC__SCORE_COLUMNS;
        }
        specdec__kernels_multiply(c->kernels, &tiles, dim / 32, s->panel, &c->rotated_columns, 0, column, count, sums);
    }
}

/* Computes s->scores (count <= 4, 64): queries times the first `slots` keys (dim) of a page. next: keys to be
   prefetched. */
static void specdec__forward_compute_scores(specdec__context *c, specdec__scratch *s, const void *keys, size_t dim,
                                            int halves, int slots, const void *next, const size_t *query, int count)
{
    const float *rotated = c->rotated + query[0] * dim;
    int i;

    if (query[count - 1] - query[0] != (size_t)(count - 1)) {
        for (i = 0; i < count; i++)
            memcpy(s->queries + (size_t)i * dim, c->rotated + query[i] * dim, dim * sizeof(float));
        rotated = s->queries;
    }
    c->kernels->key_scores(rotated, (int)dim, count, keys, halves, slots, next, s->scores);
}

/* Returns the score of the q-th query with a key, from s->scores in either layout. */
SPECDEC__INLINE float specdec__forward_get_score(const specdec__context *c, const specdec__scratch *s, int q, int key)
{
    const int tile = key / SPECDEC__ROWS;

    if (!specdec__kv_types[c->kv.type].has_codes)
        return s->scores[q * SPECDEC__KEYS + key];
    return s->scores[(tile * SPECDEC__SCORE_COLUMNS + q) * SPECDEC__ROWS + key % SPECDEC__ROWS];
}

/* Lists up to `most` queries of a unit for nodes [first, last), from the at-th on: their numbers, and which keys of a
   block each of them attends to. Returns how many. */
static int specdec__forward_list_queries(const specdec__context *c, const specdec__attention_unit *u, int first,
                                         int last, int block, int at, int most, size_t *query,
                                         specdec__key_range *range)
{
    const int part = u->end_head - u->first_head, count = specdec__min_int(most, (last - first) * part - at);
    int node = first + at / part, own = at % part, i;

    for (i = 0; i < count; i++) {
        query[i] = (size_t)(node - c->first_node) * (size_t)u->layer->shape.heads + (size_t)(u->first_head + own);
        if (i && own)
            range[i] = range[i - 1];
        else
            range[i] = specdec__forward_seen_keys_of_block(c, u, node, block);
        if (++own == part) {
            own = 0;
            node++;
        }
    }
    return count;
}

/* Returns the keys of the page that a unit reads after nodes up to `last` have attended to a block, to be prefetched:
   the next node's page, or that of the next block. NULL: not known. */
static const unsigned char *specdec__forward_next_page(const specdec__context *c, const specdec__attention_unit *u,
                                                       int last, int block)
{
    const specdec__view *view = c->batch->views[last < u->end_node ? last : u->first_node];
    int from, page = -1;

    block += last == u->end_node;
    from = block * SPECDEC__KEYS;
    if (from < view->length)
        page = specdec__view_find_page_of_positions(&view->span[u->kv->span], from,
                                                    specdec__min_int(SPECDEC__KEYS, view->length - from));
    return page < 0 ? NULL : specdec__kv_keys_address(&c->kv, u->kv, page, u->kv_head);
}

/* Computes attention of nodes [first, last) to a block whose keys are all in one page, each in the slot of its
   position: key p of the block in slot p. slots: how many of the page's first slots are read. */
static SPECDEC__NOINLINE void specdec__forward_attend_block_in_page(specdec__context *c, specdec__scratch *s,
                                                                    const specdec__attention_unit *u, int first,
                                                                    int last, int block, int page, int slots)
{
    const int queries = (last - first) * (u->end_head - u->first_head);
    const unsigned char *next = specdec__forward_next_page(c, u, last, block);
    const void *keys, *values;
    specdec__key_range range[4];
    size_t query[4];
    int halves, at, count;


    halves = specdec__forward_load_keys_and_values(c, s, u, page, slots, 0, queries, &keys, &values);
    for (at = 0; at < queries; at += count) {
        count = specdec__forward_list_queries(c, u, first, last, block, at, 4, query, range);
        specdec__forward_compute_scores(c, s, keys, (size_t)u->kv->dim, halves, slots, next ? next : keys, query,
                                        count);
        specdec__forward_add_key_block(c, &u->sums, s->scores, query, range, count, values, halves,
                                       next ? next + u->kv->key_bytes : values);
        next = NULL; /* prefetched by now */
    }
}

/* Computes attention of nodes [first, last) to a block as specdec__forward_attend_block_in_page does, where the cache
   has 8-bit codes. keys: those of the page and kv head. */
static SPECDEC__NOINLINE void specdec__forward_attend_block_of_codes(specdec__context *c, specdec__scratch *s,
                                                                     const specdec__attention_unit *u, int first,
                                                                     int last, int block, const unsigned char *keys,
                                                                     int slots)
{
    const int part = u->end_head - u->first_head, queries = (last - first) * part;
    /* columns of several nodes are contiguous only if the unit has all query heads of its kv head */
    const int apart = part < u->layer->shape.heads / u->layer->shape.kv_heads;
    const unsigned char *next = specdec__forward_next_page(c, u, last, block);
    specdec__key_range range[SPECDEC__PASS_COLUMNS];
    size_t query[SPECDEC__PASS_COLUMNS];
    int at, count;

    for (at = 0; at < queries; at += count) {
        count = specdec__forward_list_queries(c, u, first, last, block, at,
                                              apart ? part - at % part : SPECDEC__PASS_COLUMNS, query, range);
        specdec__forward_compute_tile_scores(c, s, keys, u->kv->dim, slots,
                                             specdec__forward_column_of_rotated_query(c, u->layer,
                                                                                      first - c->first_node + at / part,
                                                                                      u->first_head + at % part),
                                             count);
        specdec__forward_add_key_block_of_codes(c, s, &u->sums, query, range, count, keys + u->kv->key_bytes, slots,
                                                next);
        next = NULL; /* prefetched by now */
    }
}

/* Computes attention of one node to a block whose keys lie in several pages or other slots: scores are computed page by
   page, then put into logical order. slots (64): where the keys lie. */
static SPECDEC__NOINLINE void specdec__forward_attend_scattered_keys(specdec__context *c, specdec__scratch *s,
                                                                     const specdec__attention_unit *u, int node,
                                                                     int block, const int *slots)
{
    const specdec__key_range seen = specdec__forward_seen_keys_of_block(c, u, node, block);
    const size_t dim = (size_t)u->kv->value_dim, heads = (size_t)u->layer->shape.heads;
    int at, i, j, done;

    for (at = u->first_head; at < u->end_head; at += 4) {
        int count = specdec__min_int(4, u->end_head - at);
        float logical[4][SPECDEC__KEYS] = {{0}};
        specdec__key_range range[4];
        size_t query[4];

        for (i = 0; i < count; i++) {
            query[i] = (size_t)(node - c->first_node) * heads + (size_t)(at + i);
            range[i] = seen;
        }
        for (done = seen.from; done < seen.to; ) {
            int page = slots[done] / SPECDEC__KEYS;
            const void *keys, *values;

            specdec__forward_load_keys_and_values(c, s, u, page, SPECDEC__KEYS, page & 1, SPECDEC__KEYS, &keys,
                                                  &values);
            specdec__forward_compute_scores(c, s, keys, (size_t)u->kv->dim, 0, SPECDEC__KEYS, keys, query, count);
            for (j = done; j < seen.to && slots[j] / SPECDEC__KEYS == page; j++) {
                for (i = 0; i < count; i++)
                    logical[i][j] = s->scores[i * SPECDEC__KEYS + slots[j] % SPECDEC__KEYS];
                memcpy(s->gathered + (size_t)j * dim,
                       (const float *)values + (size_t)(slots[j] % SPECDEC__KEYS) * dim, dim * sizeof(float));
            }
            done = j;
        }
        memcpy(s->scores, logical, (size_t)count * sizeof *logical);
        specdec__forward_add_key_block(c, &u->sums, s->scores, query, range, count, s->gathered, 0, s->gathered);
    }
}

/* Copies the 8-bit keys and values of a block to s->page_codes, each to the slot of its position, as a page would hold
   them. slots (64): where they lie. */
static void specdec__forward_gather_block_codes(const specdec__context *c, specdec__scratch *s,
                                                const specdec__attention_unit *u, specdec__key_range range,
                                                const int *slots)
{
    int i;

    for (i = range.from; i < range.to; i++)
        specdec__kv_copy_codes(u->kv, specdec__kv_keys_address(&c->kv, u->kv, slots[i] / SPECDEC__KEYS, u->kv_head),
                               slots[i], s->page_codes, i);
}

/* Returns how many nodes, from `node` on, can share one pass over a block: their keys in it are in the same slots,
   though some nodes see more of them. all: the keys that any of these nodes sees. */
static int specdec__forward_count_nodes_sharing_slots(const specdec__context *c, const specdec__attention_unit *u,
                                                      int node, int block, specdec__key_range *all)
{
    const specdec__view *view = c->batch->views[node];
    int committed = (block + 1) * SPECDEC__KEYS <= view->length, last = node + 1;

    *all = specdec__forward_seen_keys_of_block(c, u, node, block);
    for (;
         last < u->end_node && c->batch->views[last] == view && (committed || (c->on_chain[node] && c->on_chain[last]));
         last++) {
        const specdec__key_range one = specdec__forward_seen_keys_of_block(c, u, last, block);

        if (one.from >= one.to)
            break;
        all->from = specdec__min_int(all->from, one.from);
        all->to = specdec__max_int(all->to, one.to);
    }
    return last - node;
}

/* Returns the page that holds the keys of a range of a block, each in the slot of its position, for a node; -1: there
   is no such page, and slots (64) tell where the keys lie. */
static int specdec__forward_find_page_of_keys(const specdec__context *c, const specdec__attention_unit *u, int node,
                                              int block, specdec__key_range range, int *slots)
{
    const specdec__view *view = c->batch->views[node];
    const int from = block * SPECDEC__KEYS + range.from, count = range.to - range.from;
    int aligned, i;

    if (from + count <= view->length) {
        int page = specdec__view_find_page_of_positions(&view->span[u->kv->span], from, count);

        if (page >= 0)
            return page;
    }
    specdec__forward_seen_slots(c, u, node, block, range, slots);
    aligned = slots[range.from] % SPECDEC__KEYS == range.from;
    for (i = range.from + 1; i < range.to; i++)
        aligned &= slots[i] == slots[i - 1] + 1;
    return aligned ? slots[range.from] / SPECDEC__KEYS : -1;
}

/* Computes attention of all nodes of a unit to one block of 64 keys, added to their running sums. */
static void specdec__forward_attend_block(specdec__context *c, specdec__scratch *s, const specdec__attention_unit *u,
                                          int block)
{
    int node, share, page, slots[SPECDEC__KEYS], i;

    for (node = u->first_node; node < u->end_node; node += share) {
        specdec__key_range range = specdec__forward_seen_keys_of_block(c, u, node, block);

        share = 1;
        if (range.from >= range.to)
            continue;
        share = specdec__forward_count_nodes_sharing_slots(c, u, node, block, &range);
        page = specdec__forward_find_page_of_keys(c, u, node + share - 1, block, range, slots);
        if (specdec__kv_types[c->kv.type].has_codes) {
            const unsigned char *keys = s->page_codes;

            if (page >= 0)
                keys = specdec__kv_keys_address(&c->kv, u->kv, page, u->kv_head);
            else
                specdec__forward_gather_block_codes(c, s, u, range, slots);
            specdec__forward_attend_block_of_codes(c, s, u, node, node + share, block, keys, range.to);
        } else if (page >= 0) {
            specdec__forward_attend_block_in_page(c, s, u, node, node + share, block, page, range.to);
        } else {
            for (i = node; i < node + share; i++)
                specdec__forward_attend_scattered_keys(c, s, u, i, block, slots);
        }
    }
}

/* Returns the range of stretches that hold the keys which nodes [first, last) see. Canonical: a stretch is
   SPECDEC__STRETCH_BLOCKS blocks of logical positions; each query sums over every stretch separately, and the sums
   are merged in the order of stretches, whichever threads have computed them. */
static specdec__key_range specdec__forward_seen_stretches(const specdec__context *c, int span, int first, int last)
{
    const int window = c->kv.span[span].window, keys = SPECDEC__STRETCH_BLOCKS * SPECDEC__KEYS;
    specdec__key_range seen = {1 << 30, 0};

    for (; first < last; first++) {
        const int most = specdec__max_int(specdec__forward_count_seen_keys(c, first) - 1, 0);

        seen.from = specdec__min_int(seen.from, window ? specdec__max_int(c->key_index[first] + 1 - window, 0) / keys
                                     : 0);
        seen.to = specdec__max_int(seen.to, most / keys + 1);
    }
    return seen;
}

/* Returns where the sums of a node's query heads, from `head` on, over the i-th stretch of a layer lie. */
static specdec__attention_sums specdec__forward_locate_sums(const specdec__context *c, const specdec__layer *l, int i,
                                                            int node, int head)
{
    const size_t at = ((size_t)i * (size_t)c->n +
                       (size_t)(node - c->first_node)) * (size_t)l->shape.heads + (size_t)head;
    specdec__attention_sums sums = c->sums;

    sums.width = 16 + specdec__context_kv_layer(c, l)->value_dim;
    sums.highest += at;
    sums.row += at * (size_t)sums.width;
    return sums;
}

/* Computes attention of a unit to the keys of one stretch, into the i-th sums. */
static void specdec__forward_attend_stretch(specdec__context *c, specdec__scratch *s, specdec__attention_unit *u,
                                            int stretch, int i)
{
    const int count = u->end_head - u->first_head;
    int node, block;

    for (node = u->first_node; node < u->end_node; node++) {
        specdec__attention_sums sums = specdec__forward_locate_sums(c, u->layer, i, node, u->first_head);
        int head;

        memset(sums.row, 0, (size_t)(count * sums.width) * sizeof *sums.row);
        for (head = 0; head < count; head++)
            sums.highest[head] = SPECDEC__NO_SCORE;
    }
    u->sums = specdec__forward_locate_sums(c, u->layer, i, c->first_node, 0);
    for (block = stretch * SPECDEC__STRETCH_BLOCKS; block < (stretch + 1) * SPECDEC__STRETCH_BLOCKS; block++)
        specdec__forward_attend_block(c, s, u, block);
}

/* Merges the sums of a node's query heads [from, to) over the i-th stretch into those over the first stretch. */
static void specdec__forward_merge_sums(const specdec__context *c, const specdec__layer *l, int i, int node, int from,
                                        int to)
{
    const specdec__attention_sums first = specdec__forward_locate_sums(c, l, 0, node, from);
    const specdec__attention_sums other = specdec__forward_locate_sums(c, l, i, node, from);

    c->kernels->merge_sums(&first, &other, to - from);
}

/* Computes x (size) *= sigmoid(gate (size)). Nothing behind the end of `gate` is read; x is padded to a multiple of
   16. */
static void specdec__forward_apply_gate(const specdec__context *c, float *x, const float *gate, size_t size)
{
    float last[16] = {0};
    const size_t whole = size / 16 * 16;

    c->kernels->sigmoid(x, gate, (int)whole);
    memcpy(last, gate + whole, (size - whole) * sizeof *gate);
    c->kernels->sigmoid(x + whole, last, size > whole ? 16 : 0);
}

/* Divides the sums of a node's query heads [from, to) by the total of their weights, and writes the outputs to c->h,
   times sigmoids of the gates that stand there, or with latent attention to c->latent_columns. A sink of a head counts
   as the score of one more key without a value. */
static void specdec__forward_write_attention_outputs(specdec__context *c, const specdec__layer *l, int node, int from,
                                                     int to)
{
    const float *sinks = l->vector[SPECDEC__SINKS];
    const size_t size = (size_t)l->shape.value_dim;
    const size_t stride = (size_t)specdec__forward_stride(l->shape.heads * l->shape.value_dim);
    const specdec__attention_sums sums = specdec__forward_locate_sums(c, l, 0, node, from);
    const size_t column = (size_t)specdec__forward_stride((int)size), at = (size_t)(node - c->first_node);
    const size_t apart = c->absorbed ? (size_t)c->n * column : size;
    float *out = (c->absorbed ? c->latent_columns + at * column : c->h + at * stride) + (size_t)from * apart;
    float *row = sums.row;
    int i;

    for (i = 0; i < to - from; i++, row += sums.width, out += apart) {
        const float sink = sinks ? specdec__exp(sinks[from + i] - sums.highest[i]) : 0;

        c->kernels->scale(row + 16, 1.0f / (c->kernels->sum16(row) + sink), sums.width - 16);
        if (c->model->trait[SPECDEC__QUERY_GATES])
            specdec__forward_apply_gate(c, row + 16, out, size);
        memcpy(out, row + 16, size * sizeof *out);
    }
}

/* Computes attention of a unit. apart: 1: the sums of its one stretch of keys will be merged with those of other units;
   0: it has all stretches, and the outputs of its heads are written. */
static void specdec__forward_attend_unit(specdec__context *c, int thread, specdec__attention_unit *u, int apart)
{
    specdec__scratch *s = &c->scratch[thread];
    int stretch, node;

    s->page_held[0] = s->page_held[1] = -1;
    for (stretch = u->stretches.from; stretch < u->stretches.to; stretch++) {
        const int other = stretch > u->stretches.from; /* into second sums, merged with the first at once */

        specdec__forward_attend_stretch(c, s, u, stretch, apart ? stretch - c->stretches[u->kv->span].from : other);
        for (node = u->first_node; node < u->end_node && other; node++)
            specdec__forward_merge_sums(c, u->layer, 1, node, u->first_head, u->end_head);
    }
    for (node = u->first_node; node < u->end_node && !apart; node++)
        specdec__forward_write_attention_outputs(c, u->layer, node, u->first_head, u->end_head);
}

SPECDEC__FOR_SIZE
/* How the attention of a layer is divided into units of (kv head, round of nodes, part of its query heads, and one
   stretch or all stretches). A unit's sums stay in the second-level cache while it reads pages; each page serves all
   its nodes. */
typedef struct specdec__attention_division {
    int rounds, head_parts, stretches, units; /* rounds of nodes; parts of a kv head's query heads; stretches if units
                                                 have one each, else 1; units in all */
} specdec__attention_division;

/* Returns how the attention of a layer is divided into units for the threads of a step. If each thread has fewer than
   four pairs of kv head and round, units have one stretch each, provided that there is memory for the sums of all
   queries over each stretch: then no two threads read the same keys. If units are still fewer than threads, there are
   more rounds of nodes, then more parts of query heads; a part has fewer columns for each tile of keys. */
static specdec__attention_division specdec__forward_divide_attention(const specdec__context *c, const specdec__layer *l)
{
    const specdec__key_range *seen = &c->stretches[specdec__context_kv_layer(c, l)->span];
    const int heads = l->shape.kv_heads, group = l->shape.heads / heads, threads = specdec__pool_active(c->pool);
    specdec__attention_division by;

    by.head_parts = by.stretches = 1;
    by.rounds = (c->n + SPECDEC__PASS_COLUMNS - 1) / SPECDEC__PASS_COLUMNS;
    if (threads > 1 && heads * by.rounds < 4 * threads &&
        seen->to - seen->from <= c->max_sums / (c->n * l->shape.heads))
        by.stretches = seen->to - seen->from;
    while (heads * by.stretches * by.rounds < threads && by.rounds < c->n)
        by.rounds++;
    while (heads * by.stretches * by.rounds * by.head_parts < threads && by.head_parts < group)
        do
            by.head_parts++;
        while (group % by.head_parts);
    by.units = heads * by.stretches * by.rounds * by.head_parts;
    return by;
}

/* Returns unit number i of a layer's attention, as specdec__forward_divide_attention has divided it. */
static specdec__attention_unit specdec__forward_make_attention_unit(const specdec__context *c,
                                                                    const specdec__layer *layer,
                                                                    const specdec__attention_division *by, int i)
{
    const int group = layer->shape.heads / layer->shape.kv_heads, stretch = i % by->stretches;
    const int part = i / by->stretches % by->head_parts, round = i / by->stretches / by->head_parts % by->rounds;
    specdec__attention_unit u;

    memset(&u, 0, sizeof u);
    u.layer = layer;
    u.kv = specdec__context_kv_layer(c, layer);
    u.kv_head = i / by->stretches / by->head_parts / by->rounds;
    u.first_head = u.kv_head * group + part * (group / by->head_parts);
    u.end_head = u.first_head + group / by->head_parts;
    u.first_node = c->first_node + c->n * round / by->rounds;
    u.end_node = c->first_node + c->n * (round + 1) / by->rounds;
    u.stretches = specdec__forward_seen_stretches(c, u.kv->span, u.first_node, u.end_node);
    if (by->stretches > 1) {
        u.stretches.from = c->stretches[u.kv->span].from + stretch;
        u.stretches.to = u.stretches.from + 1;
    }
    return u;
}

/* Computes a thread's share of the attention of a layer for all nodes. Returns 1 when cancelled. */
static int specdec__forward_run_attention(specdec__context *c, int thread, const specdec__layer *layer)
{
    const specdec__attention_division by = specdec__forward_divide_attention(c, layer);
    const int group = layer->shape.heads / layer->shape.kv_heads, items = c->n * layer->shape.kv_heads;
    int from, end = 0, i;

    while ((from = specdec__pool_claim_items(c->pool, by.units, 1, &end)) < by.units)
        for (; from < end; from++) {
            specdec__attention_unit unit = specdec__forward_make_attention_unit(c, layer, &by, from);

            specdec__forward_attend_unit(c, thread, &unit, by.stretches > 1);
        }
    if (specdec__pool_barrier(c->pool))
        return 1;
    if (by.stretches == 1)
        return 0;
    while ((from = specdec__pool_claim_items(c->pool, items, 1, &end)) < items)
        for (; from < end; from++) {
            const int node = c->first_node + from % c->n, head = from / c->n * group;

            for (i = 1; i < by.stretches; i++)
                specdec__forward_merge_sums(c, layer, i, node, head, head + group);
            specdec__forward_write_attention_outputs(c, layer, node, head, head + group);
        }
    return specdec__pool_barrier(c->pool);
}

SPECDEC__FOR_SPEED
