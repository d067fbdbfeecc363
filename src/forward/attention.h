/* =====================================================================================================================
 * >>forward/attention: attention over views and ancestors in a tree, in blocks of 64 keys.
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

/* cosine and sine (dim) of a row's position, laid out so that x * cosine + partner * sine rotates. */
static void specdec__forward_angles(specdec__context *c, int rope, int row)
{
    const specdec__model *m = c->model;
    const size_t at = ((size_t)rope * (size_t)c->most + (size_t)row) * (size_t)c->kv.dim;
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

        specdec__sine_cosine((double)c->position[c->first + row] * c->frequency[rope][i], &s, &k);
        cosine[a] = cosine[b] = k * scale;
        sine[b] = s * scale;
        sine[a] = -sine[b];
    }
}

/* One head of one row of the projection: optional norm, before or behind the rotation; out is padded with zeros as keys
   are. */
static void specdec__forward_head(const specdec__context *c, const specdec__layer *l, int row, const float *from,
                                  const float *norm, float *partner, float *out)
{
    const specdec__model *m = c->model;
    const size_t at = ((size_t)l->shape.rope * (size_t)c->most + (size_t)row) * (size_t)c->kv.dim;
    const int dim = specdec__context_keys(c, l)->dim, size = l->shape.key_dim, half = l->shape.rope_dim / 2;
    int i;

    memcpy(out, from, (size_t)size * sizeof *out);
    for (i = size; i < dim; i++)
        out[i] = 0;
    norm = m->trait[SPECDEC__JOINT_NORMS] ? NULL : norm;
    if (norm && !m->trait[SPECDEC__NORM_TURNED])
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
    if (norm && m->trait[SPECDEC__NORM_TURNED])
        c->kernels->norm(out, norm, m->epsilon, size, 0, specdec__round_up(size, 16), out);
}

/* By what a layer's queries of a row are scaled. */
static float specdec__forward_query_scale(const specdec__context *c, const specdec__layer *l, int row)
{
    const specdec__model *m = c->model;
    const int times = m->query_growth > 0 ? c->position[c->first + row] / m->rope_original : 0;

    if (!times)
        return l->query_scale;
    return l->query_scale *
           (float)(1 + specdec__product((double)m->query_growth, specdec__log_double(1.0 + times)));
}

/* A thread's share of the norms of queries and keys, all heads of a row together. */
static void specdec__forward_joint_norms(specdec__context *c, int thread, const specdec__layer *l)
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

/* Which column of c->turned a query is: those that see the same keys lie together. */
static int specdec__forward_column(const specdec__context *c, const specdec__layer *l, int row, int head)
{
    int group = l->shape.heads / l->shape.kv_heads;

    return (head / group * c->n + row) * group + head % group;
}

/* Notes a row whose key or value (padded) is no number, or would not fit the cache. */
static void specdec__forward_check_stored(specdec__context *c, int thread, int row, const specdec__kv_layer *to,
                                          const float *key, const float *value)
{
    const specdec__kv_type *type = &specdec__kv_types[c->kv.type];

    if (!c->checks || (c->kernels->all_finite(key, type->key_fits, to->dim) &&
                       c->kernels->all_finite(value, type->value_fits, to->value_dim)))
        return;
    specdec__forward_note(c, thread, row, c->kernels->all_finite(key, SPECDEC__SOUND, to->dim) &&
                                              c->kernels->all_finite(value, SPECDEC__SOUND, to->value_dim));
}

/* Stores key and value of one row and kv head. */
static void specdec__forward_store(specdec__context *c, int thread, const specdec__layer *l, int row, int head)
{
    const specdec__kv_layer *to = specdec__context_keys(c, l);
    const int size = l->shape.key_dim, value_size = l->shape.value_dim, slot = c->slots[to->span][c->first + row];
    const size_t stride = (size_t)specdec__forward_stride(l->shape.kv_heads * size);
    const size_t value_stride = (size_t)specdec__forward_stride(l->shape.kv_heads * value_size);
    specdec__scratch *s = &c->scratch[thread];
    const float *key = c->keys + (size_t)row * stride + (size_t)(head * size);
    const float *value = (l->matrix[SPECDEC__V].rows ? c->values : c->keys) + (size_t)row * value_stride +
                         (size_t)(head * value_size);

    if (c->absorbed) {
        specdec__forward_latent_row(c, l, row, -1, s->out);
        key = s->out;
        value = s->queries + l->shape.rope_dim; /* the rest of the key */
    }
    specdec__forward_head(c, l, row, key, l->vector[SPECDEC__K_NORM], s->partner, s->queries);
    memset(s->out, 0, (size_t)to->value_dim * sizeof *s->out);
    memcpy(s->out, value, (size_t)value_size * sizeof *s->out);
    if (c->model->trait[SPECDEC__NORMED_VALUES])
        c->kernels->norm(s->out, c->model->ones, c->model->epsilon, value_size, 0,
                         specdec__round_up(value_size, 16), s->out);
    specdec__forward_check_stored(c, thread, row, to, s->queries, s->out);
    specdec__kv_store(c->kv.type, to, c->kernels, specdec__kv_keys(&c->kv, to, slot / SPECDEC__KEYS, head),
                      slot % SPECDEC__KEYS, s->queries, s->out, (int8_t *)s->codes);
}

/* Stores key and value of one row and kv head, and rotates the queries that share it. Gates of the queries, if there
   are any, go to where what their heads attend to will be. */
static void specdec__forward_rotate(specdec__context *c, int thread, const specdec__layer *l, int row, int head)
{
    const specdec__kv_layer *to = specdec__context_keys(c, l);
    const int heads = l->shape.heads, group = heads / l->shape.kv_heads, size = l->shape.key_dim, dim = to->dim;
    const int rows = specdec__model_query_rows(c->model, &l->shape);
    const size_t stride = (size_t)specdec__forward_stride(heads * rows);
    const size_t attended = (size_t)specdec__forward_stride(heads * l->shape.value_dim);
    const float scale = specdec__forward_query_scale(c, l, row);
    specdec__scratch *s = &c->scratch[thread];
    int i;

    if (to->owns)
        specdec__forward_store(c, thread, l, row, head);
    for (i = head * group; i < (head + 1) * group; i++) {
        float *out = c->rotated + ((size_t)row * (size_t)heads + (size_t)i) * (size_t)dim;
        const float *query = c->queries + (size_t)row * stride + (size_t)(i * rows);

        if (c->absorbed) {
            specdec__forward_latent_row(c, l, row, i, s->out);
            query = s->out;
        }
        specdec__forward_head(c, l, row, query, l->vector[SPECDEC__Q_NORM], s->partner, out);
        if (rows > size)
            memcpy(c->h + (size_t)row * attended + (size_t)(i * (rows - size)), query + size,
                   (size_t)(rows - size) * sizeof *query);
        c->kernels->scale(out, scale, dim);
        specdec__forward_check(c, thread, row, out, dim, SPECDEC__SOUND);
        if (specdec__kv_types[c->kv.type].tiles)
            c->kernels->quantise(out, 0, dim / 32, specdec__forward_column(c, l, row, i), &c->turned);
    }
}

/* A unit of attention: query heads [from, to) of one kv head of a layer, nodes [first, last), some stretches. */
typedef struct specdec__unit {
    const specdec__layer *layer;
    const specdec__kv_layer *kv; /* where its keys and values lie */
    int head, from, to;
    int first, last;
    specdec__key_range stretches;
    specdec__attention_sums sums; /* of the stretch at hand */
} specdec__unit;

/* The last of the nodes whose keys a node sees; -1: it sees none of them. */
SPECDEC__INLINE int specdec__forward_last(const specdec__context *c, int node)
{
    const int sight = c->model->trait[SPECDEC__SIGHT];

    return sight == SPECDEC__SEES_ANCESTORS ? node : sight == SPECDEC__SEES_BLOCK ? c->batch->n - 1 : -1;
}

/* How many keys lie before the last one that a node sees, that included. */
SPECDEC__INLINE int specdec__forward_end(const specdec__context *c, int node)
{
    const int last = specdec__forward_last(c, node);

    return last < 0 ? c->place[node] : c->place[last] + 1;
}

/* Which keys of a block a node sees. */
static specdec__key_range specdec__forward_range(const specdec__context *c, const specdec__unit *u, int node, int block)
{
    const int window = c->kv.span[u->kv->span].window, base = block * SPECDEC__KEYS;
    specdec__key_range range;

    range.to = specdec__min_int(SPECDEC__KEYS, specdec__forward_end(c, node) - base);
    range.from = window ? specdec__max_int(c->place[node] + 1 - window - base, 0) : 0;
    return range;
}

/* The slots of the keys in a range of a block that a node sees: committed ones, then those of nodes. */
static void specdec__forward_slots(const specdec__context *c, const specdec__unit *u, int node, int block,
                                   specdec__key_range range, int *slots)
{
    const specdec__view *view = c->batch->views[node];
    const int base = block * SPECDEC__KEYS, committed = specdec__min_int(range.to, view->length - base) - range.from;
    const int own = base + range.from + specdec__max_int(committed, 0);
    int at = specdec__forward_last(c, node);

    if (committed > 0)
        specdec__view_slots(&view->span[u->kv->span], base + range.from, committed, slots + range.from);
    for (; at >= 0 && c->place[at] >= own; at = c->batch->parents[at])
        if (c->place[at] < base + range.to)
            slots[c->place[at] - base] = c->slots[u->kv->span][at];
}

/* Keys and values in the first slots of a page, for so many queries: as half floats where they lie, which is said by 1,
   or as floats, in the first or the second buffer. */
static int specdec__forward_page(const specdec__context *c, specdec__scratch *s, const specdec__unit *u, int page,
                                 int slots, int second, int queries, const void **keys, const void **values)
{
    const size_t size = (size_t)c->kv.dim * SPECDEC__KEYS;
    const unsigned char *k = specdec__kv_keys(&c->kv, u->kv, page, u->head);
    float *k_buffer = s->keys + (size_t)second * size, *v_buffer = s->values + (size_t)second * size;

    *keys = k_buffer;
    *values = v_buffer;
    if (s->page[second] == page && s->slots[second] >= slots)
        return 0;
    if (specdec__kv_types[c->kv.type].halves && queries <= c->kernels->half_queries) {
        *keys = k;
        *values = k + u->kv->key_bytes;
        return 1;
    }
    *keys = specdec__kv_keys_as_floats(c->kv.type, u->kv, c->kernels, k, slots, k_buffer);
    *values = specdec__kv_values_as_floats(c->kv.type, u->kv, c->kernels, k + u->kv->key_bytes, slots, v_buffer);
    if (*values == v_buffer)
        s->page[second] = page;
    s->slots[second] = slots;
    return 0;
}

/* Adds a block, whose scores (count, 64) are given, to the softmax and the weighted sums of up to four queries. next:
   values that are fetched meanwhile. */
static void specdec__forward_fold(specdec__context *c, const specdec__attention_sums *sums, float *scores,
                                  const size_t *query, const specdec__key_range *range, int count,
                                  const void *values, int halves,
                                  const void *next)
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

/* Keys that queries [from, to) of s->scores do not see get scores so low that they do not count, and values of no size:
   scales (64) become those of `all`. */
static void specdec__forward_hide(specdec__scratch *s, int from, int to, specdec__key_range seen, const float *all,
                                  float *scales)
{
    int key, i;

    for (key = 0; key < SPECDEC__KEYS; key++) {
        const int hidden = key < seen.from || key >= seen.to;
        float *row = s->scores + key / SPECDEC__ROWS * SPECDEC__SCORES * SPECDEC__ROWS + key % SPECDEC__ROWS;

        scales[key] = hidden ? 0 : all[key];
        for (i = from; i < to && hidden; i++)
            row[i * SPECDEC__ROWS] = SPECDEC__NO_SCORE;
    }
}

/* The same for up to 64 queries, where values, in the first slots of a block, are tiles; scores are s->scores.
   Canonical: weights times the scales of values, in a block and for a query, become codes in [0, 255] with one scale;
   the sum of codes times codes over the block is an exact integer. */
static SPECDEC__NOINLINE void specdec__forward_fold_codes(specdec__context *c, specdec__scratch *s,
                                                          const specdec__attention_sums *sums, const size_t *query,
                                                          const specdec__key_range *range, int count,
                                                          const unsigned char *values, int slots,
                                                          const unsigned char *next)
{
    const float cap = c->model->fact[SPECDEC__SCORE_CAP];
    float *out[SPECDEC__COLUMNS], scale[SPECDEC__COLUMNS], factor[SPECDEC__COLUMNS];
    float scales[SPECDEC__KEYS]; /* of values */
    specdec__softmax_block softening;
    int from, to, i;

    if (cap > 0)
        c->kernels->soft_cap(s->scores, cap, SPECDEC__SCORES * SPECDEC__KEYS);
    softening.stride = SPECDEC__SCORES;
    softening.sums = sums;
    for (from = 0; from < count; from = to) { /* queries that see the same keys */
        softening.value_scales = (const float *)(const void *)values;
        for (to = from + 1; to < count && range[to].from == range[from].from && range[to].to == range[from].to; )
            to++;
        if (range[from].to - range[from].from < SPECDEC__KEYS) {
            specdec__forward_hide(s, from, to, range[from], softening.value_scales, scales);
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

/* s->scores (4 tiles, SPECDEC__SCORES, 16 keys) of columns [column, column + count) of c->turned with the first slots
   of the tiles of keys (dim) of a page. */
static void specdec__forward_tile_scores(specdec__context *c, specdec__scratch *s, const unsigned char *keys, int dim,
                                         int slots, int column, int count)
{
    const size_t bytes = (size_t)dim / 32 * 34 * SPECDEC__ROWS;
    float *sums[2];
    specdec__tiles tiles;
    int from, t;

    tiles.type = specdec__quant_find(SPECDEC__TYPE_Q8_0);
    for (from = 0; from < slots; from += 2 * SPECDEC__ROWS) {
        for (t = 0; t < 2; t++) {
            tiles.tile[t] = keys + (size_t)(from / SPECDEC__ROWS + t) * bytes;
            tiles.next[t] = tiles.tile[t] + 2 * bytes;
            sums[t] = s->scores + (from + t * SPECDEC__ROWS) * SPECDEC__SCORES;
        }
        specdec__kernels_multiply(c->kernels, &tiles, dim / 32, s->panel, &c->turned, 0, column, count, sums);
    }
}

/* s->scores (count <= 4, 64) of queries with keys (dim), those in the first slots. next: keys that are fetched
   meanwhile. */
static void specdec__forward_scores(specdec__context *c, specdec__scratch *s, const void *keys, size_t dim, int halves,
                                    int slots, const void *next, const size_t *query, int count)
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

/* Of these scores, or of those above, that of the q-th query with a key. */
SPECDEC__INLINE float specdec__forward_score(const specdec__context *c, const specdec__scratch *s, int q, int key)
{
    const int tile = key / SPECDEC__ROWS;

    if (!specdec__kv_types[c->kv.type].tiles)
        return s->scores[q * SPECDEC__KEYS + key];
    return s->scores[(tile * SPECDEC__SCORES + q) * SPECDEC__ROWS + key % SPECDEC__ROWS];
}

/* Of the queries of a unit, nodes [first, last), those from `at` on, up to `most`: which they are, and the keys of a
   block that each of them sees. Returns how many. */
static int specdec__forward_some(const specdec__context *c, const specdec__unit *u, int first, int last, int block,
                                 int at, int most, size_t *query, specdec__key_range *range)
{
    const int part = u->to - u->from, count = specdec__min_int(most, (last - first) * part - at);
    int node = first + at / part, own = at % part, i;

    for (i = 0; i < count; i++) {
        query[i] = (size_t)(node - c->first) * (size_t)u->layer->shape.heads + (size_t)(u->from + own);
        if (i && own)
            range[i] = range[i - 1];
        else
            range[i] = specdec__forward_range(c, u, node, block);
        if (++own == part) {
            own = 0;
            node++;
        }
    }
    return count;
}

/* The page that a unit reads after these nodes have had their turn with a block, as far as that is known already: the
   next node's, or that of the next block. NULL: none. */
static const unsigned char *specdec__forward_next(const specdec__context *c, const specdec__unit *u, int last,
                                                  int block)
{
    const specdec__view *view = c->batch->views[last < u->last ? last : u->first];
    int from, page = -1;

    block += last == u->last;
    from = block * SPECDEC__KEYS;
    if (from < view->length)
        page = specdec__view_page(&view->span[u->kv->span], from,
                                  specdec__min_int(SPECDEC__KEYS, view->length - from));
    return page < 0 ? NULL : specdec__kv_keys(&c->kv, u->kv, page, u->head);
}

/* Nodes [first, last) over a block of keys that lie in the first slots of one page, each in its own. */
static SPECDEC__NOINLINE void specdec__forward_aligned(specdec__context *c, specdec__scratch *s, const specdec__unit *u,
                                                       int first, int last, int block, int page, int slots)
{
    const int queries = (last - first) * (u->to - u->from);
    const unsigned char *next = specdec__forward_next(c, u, last, block);
    const void *keys, *values;
    specdec__key_range range[4];
    size_t query[4];
    int halves, at, count;

    /* always this buffer, which stays in the cache */
    halves = specdec__forward_page(c, s, u, page, slots, 0, queries, &keys, &values);
    for (at = 0; at < queries; at += count) {
        count = specdec__forward_some(c, u, first, last, block, at, 4, query, range);
        specdec__forward_scores(c, s, keys, (size_t)u->kv->dim, halves, slots, next ? next : keys, query, count);
        specdec__forward_fold(c, &u->sums, s->scores, query, range, count, values, halves,
                              next ? next + u->kv->key_bytes : values);
        next = NULL; /* it is on its way */
    }
}

/* The same where keys and values are tiles. keys: of the page and head. */
static SPECDEC__NOINLINE void specdec__forward_tiled(specdec__context *c, specdec__scratch *s, const specdec__unit *u,
                                                     int first, int last, int block, const unsigned char *keys,
                                                     int slots)
{
    const int part = u->to - u->from, queries = (last - first) * part;
    /* columns of one node lie together, no others */
    const int apart = part < u->layer->shape.heads / u->layer->shape.kv_heads;
    const unsigned char *next = specdec__forward_next(c, u, last, block);
    specdec__key_range range[SPECDEC__COLUMNS];
    size_t query[SPECDEC__COLUMNS];
    int at, count;

    for (at = 0; at < queries; at += count) {
        count = specdec__forward_some(c, u, first, last, block, at, apart ? part - at % part : SPECDEC__COLUMNS, query,
                                      range);
        specdec__forward_tile_scores(c, s, keys, u->kv->dim, slots,
                                     specdec__forward_column(c, u->layer, first - c->first + at / part,
                                                             u->from + at % part),
                                     count);
        specdec__forward_fold_codes(c, s, &u->sums, query, range, count, keys + u->kv->key_bytes, slots, next);
        next = NULL; /* it is on its way */
    }
}

/* One node over a block whose keys lie anywhere: scores page by page, then put into logical order. */
static SPECDEC__NOINLINE void specdec__forward_gathered(specdec__context *c, specdec__scratch *s,
                                                        const specdec__unit *u, int node, int block, const int *slots)
{
    const specdec__key_range seen = specdec__forward_range(c, u, node, block);
    const size_t dim = (size_t)u->kv->value_dim, heads = (size_t)u->layer->shape.heads;
    int at, i, j, done;

    for (at = u->from; at < u->to; at += 4) {
        int count = specdec__min_int(4, u->to - at);
        float logical[4][SPECDEC__KEYS] = {{0}};
        specdec__key_range range[4];
        size_t query[4];

        for (i = 0; i < count; i++) {
            query[i] = (size_t)(node - c->first) * heads + (size_t)(at + i);
            range[i] = seen;
        }
        for (done = seen.from; done < seen.to; ) {
            int page = slots[done] / SPECDEC__KEYS;
            const void *keys, *values;

            specdec__forward_page(c, s, u, page, SPECDEC__KEYS, page & 1, SPECDEC__KEYS, &keys, &values);
            specdec__forward_scores(c, s, keys, (size_t)u->kv->dim, 0, SPECDEC__KEYS, keys, query, count);
            for (j = done; j < seen.to && slots[j] / SPECDEC__KEYS == page; j++) {
                for (i = 0; i < count; i++)
                    logical[i][j] = s->scores[i * SPECDEC__KEYS + slots[j] % SPECDEC__KEYS];
                memcpy(s->gathered + (size_t)j * dim,
                       (const float *)values + (size_t)(slots[j] % SPECDEC__KEYS) * dim, dim * sizeof(float));
            }
            done = j;
        }
        memcpy(s->scores, logical, (size_t)count * sizeof *logical);
        specdec__forward_fold(c, &u->sums, s->scores, query, range, count, s->gathered, 0, s->gathered);
    }
}

/* The slots of a block that lie anywhere, copied to where a page of their own would hold them. */
static void specdec__forward_gather_codes(const specdec__context *c, specdec__scratch *s, const specdec__unit *u,
                                          specdec__key_range range, const int *slots)
{
    int i;

    for (i = range.from; i < range.to; i++)
        specdec__kv_copy_codes(u->kv, specdec__kv_keys(&c->kv, u->kv, slots[i] / SPECDEC__KEYS, u->head), slots[i],
                               s->page_codes, i);
}

/* How many nodes from `node` on see the same slots of a block, some more of them than others. all: what any of them
   sees. */
static int specdec__forward_sharing(const specdec__context *c, const specdec__unit *u, int node, int block,
                                    specdec__key_range *all)
{
    const specdec__view *view = c->batch->views[node];
    int committed = (block + 1) * SPECDEC__KEYS <= view->length, last = node + 1;

    *all = specdec__forward_range(c, u, node, block);
    for (; last < u->last && c->batch->views[last] == view &&
         (committed || (c->trunk[node] && c->trunk[last])); last++) {
        const specdec__key_range one = specdec__forward_range(c, u, last, block);

        if (one.from >= one.to)
            break;
        all->from = specdec__min_int(all->from, one.from);
        all->to = specdec__max_int(all->to, one.to);
    }
    return last - node;
}

/* The page that has the keys of a range of a block that a node sees, each in its own slot; -1: none, and `slots` (64)
   are where they lie. */
static int specdec__forward_find(const specdec__context *c, const specdec__unit *u, int node, int block,
                                 specdec__key_range range, int *slots)
{
    const specdec__view *view = c->batch->views[node];
    const int from = block * SPECDEC__KEYS + range.from, count = range.to - range.from;
    int aligned, i;

    if (from + count <= view->length) {
        int page = specdec__view_page(&view->span[u->kv->span], from, count);

        if (page >= 0)
            return page;
    }
    specdec__forward_slots(c, u, node, block, range, slots);
    aligned = slots[range.from] % SPECDEC__KEYS == range.from;
    for (i = range.from + 1; i < range.to; i++)
        aligned &= slots[i] == slots[i - 1] + 1;
    return aligned ? slots[range.from] / SPECDEC__KEYS : -1;
}

/* Attention of all nodes of a unit to one block of 64 keys, added to their running sums. */
static void specdec__forward_block(specdec__context *c, specdec__scratch *s, const specdec__unit *u, int block)
{
    int node, share, page, slots[SPECDEC__KEYS], i;

    for (node = u->first; node < u->last; node += share) {
        specdec__key_range range = specdec__forward_range(c, u, node, block);

        share = 1;
        if (range.from >= range.to)
            continue;
        share = specdec__forward_sharing(c, u, node, block, &range);
        page = specdec__forward_find(c, u, node + share - 1, block, range, slots);
        if (specdec__kv_types[c->kv.type].tiles) {
            const unsigned char *keys = s->page_codes;

            if (page >= 0)
                keys = specdec__kv_keys(&c->kv, u->kv, page, u->head);
            else
                specdec__forward_gather_codes(c, s, u, range, slots);
            specdec__forward_tiled(c, s, u, node, node + share, block, keys, range.to);
        } else if (page >= 0) {
            specdec__forward_aligned(c, s, u, node, node + share, block, page, range.to);
        } else {
            for (i = node; i < node + share; i++)
                specdec__forward_gathered(c, s, u, i, block, slots);
        }
    }
}

/* The stretches that hold the keys which nodes [first, last) see. Canonical: a stretch is SPECDEC__STRETCH blocks of
   logical positions; what a query sums up over each is merged in their order, whoever has summed it up. */
static specdec__key_range specdec__forward_stretches(const specdec__context *c, int span, int first, int last)
{
    const int window = c->kv.span[span].window, keys = SPECDEC__STRETCH * SPECDEC__KEYS;
    specdec__key_range seen = {1 << 30, 0};

    for (; first < last; first++) {
        const int most = specdec__max_int(specdec__forward_end(c, first) - 1, 0);

        seen.from = specdec__min_int(seen.from, window ? specdec__max_int(c->place[first] + 1 - window, 0) / keys : 0);
        seen.to = specdec__max_int(seen.to, most / keys + 1);
    }
    return seen;
}

/* Where the sums of a node's query heads from `head` on lie, of the i-th stretch, in a layer. */
static specdec__attention_sums specdec__forward_sums(const specdec__context *c, const specdec__layer *l, int i,
                                                     int node, int head)
{
    const size_t at = ((size_t)i * (size_t)c->n + (size_t)(node - c->first)) * (size_t)l->shape.heads + (size_t)head;
    specdec__attention_sums sums = c->sums;

    sums.width = 16 + specdec__context_keys(c, l)->value_dim;
    sums.highest += at;
    sums.row += at * (size_t)sums.width;
    return sums;
}

/* Attention of a unit within one stretch, to the i-th sums. */
static void specdec__forward_stretch(specdec__context *c, specdec__scratch *s, specdec__unit *u, int stretch, int i)
{
    const int count = u->to - u->from;
    int node, block;

    for (node = u->first; node < u->last; node++) {
        specdec__attention_sums sums = specdec__forward_sums(c, u->layer, i, node, u->from);
        int head;

        memset(sums.row, 0, (size_t)(count * sums.width) * sizeof *sums.row);
        for (head = 0; head < count; head++)
            sums.highest[head] = SPECDEC__NO_SCORE;
    }
    u->sums = specdec__forward_sums(c, u->layer, i, c->first, 0);
    for (block = stretch * SPECDEC__STRETCH; block < (stretch + 1) * SPECDEC__STRETCH; block++)
        specdec__forward_block(c, s, u, block);
}

/* Adds the sums of a node's query heads [from, to) in the i-th stretch to those in the first one. */
static void specdec__forward_merge(const specdec__context *c, const specdec__layer *l, int i, int node, int from,
                                   int to)
{
    const specdec__attention_sums first = specdec__forward_sums(c, l, 0, node, from);
    const specdec__attention_sums other = specdec__forward_sums(c, l, i, node, from);

    c->kernels->merge_sums(&first, &other, to - from);
}

/* x (size) *= sigmoid(gate), of which nothing behind its last value is read. */
static void specdec__forward_gate(const specdec__context *c, float *x, const float *gate, size_t size)
{
    float last[16] = {0};
    const size_t whole = size / 16 * 16;

    c->kernels->sigmoid(x, gate, (int)whole);
    memcpy(last, gate + whole, (size - whole) * sizeof *gate);
    c->kernels->sigmoid(x + whole, last, size > whole ? 16 : 0);
}

/* What a node's query heads [from, to) have summed up becomes their attention, in c->h, where their gates are, or, if
   it is latent, in columns of heads. A sink of a head is one more score, of a key without a value. */
static void specdec__forward_attended(specdec__context *c, const specdec__layer *l, int node, int from, int to)
{
    const float *sinks = l->vector[SPECDEC__SINKS];
    const size_t size = (size_t)l->shape.value_dim;
    const size_t stride = (size_t)specdec__forward_stride(l->shape.heads * l->shape.value_dim);
    const specdec__attention_sums sums = specdec__forward_sums(c, l, 0, node, from);
    const size_t column = (size_t)specdec__forward_stride((int)size), at = (size_t)(node - c->first);
    const size_t apart = c->absorbed ? (size_t)c->n * column : size;
    float *out = (c->absorbed ? c->latent_columns + at * column : c->h + at * stride) + (size_t)from * apart;
    float *row = sums.row;
    int i;

    for (i = 0; i < to - from; i++, row += sums.width, out += apart) {
        const float sink = sinks ? specdec__exp(sinks[from + i] - sums.highest[i]) : 0;

        c->kernels->scale(row + 16, 1.0f / (c->kernels->sum16(row) + sink), sums.width - 16);
        if (c->model->trait[SPECDEC__QUERY_GATES])
            specdec__forward_gate(c, row + 16, out, size);
        memcpy(out, row + 16, size * sizeof *out);
    }
}

/* Attention of a unit. apart: its one stretch is merged with the others later; else it has all that it sees. */
static void specdec__forward_attend(specdec__context *c, int thread, specdec__unit *u, int apart)
{
    specdec__scratch *s = &c->scratch[thread];
    int stretch, node;

    s->page[0] = s->page[1] = -1;
    for (stretch = u->stretches.from; stretch < u->stretches.to; stretch++) {
        const int other = stretch > u->stretches.from; /* merged with the first one at once */

        specdec__forward_stretch(c, s, u, stretch, apart ? stretch - c->stretches[u->kv->span].from : other);
        for (node = u->first; node < u->last && other; node++)
            specdec__forward_merge(c, u->layer, 1, node, u->from, u->to);
    }
    for (node = u->first; node < u->last && !apart; node++)
        specdec__forward_attended(c, u->layer, node, u->from, u->to);
}

SPECDEC__FOR_SIZE
/* How a layer's attention is divided: units of (kv head, round of nodes, part of its query heads, stretch or all of
   them). What a unit sums up then stays in the second cache while it goes through pages; each serves all its nodes. */
typedef struct specdec__division {
    int rounds, parts, stretches, units;
} specdec__division;

/* Threads that have less than four kv heads and rounds each divide stretches, too, if sums of all queries in all of
   them have room, as then nobody reads another's keys; then come as many rounds and parts as they need: a part has
   fewer columns. */
static specdec__division specdec__forward_divide(const specdec__context *c, const specdec__layer *l)
{
    const specdec__key_range *seen = &c->stretches[specdec__context_keys(c, l)->span];
    const int heads = l->shape.kv_heads, group = l->shape.heads / heads, threads = specdec__pool_active(c->pool);
    specdec__division by;

    by.parts = by.stretches = 1;
    by.rounds = (c->n + SPECDEC__COLUMNS - 1) / SPECDEC__COLUMNS;
    if (threads > 1 && heads * by.rounds < 4 * threads &&
        seen->to - seen->from <= c->room_for_sums / (c->n * l->shape.heads))
        by.stretches = seen->to - seen->from;
    while (heads * by.stretches * by.rounds < threads && by.rounds < c->n)
        by.rounds++;
    while (heads * by.stretches * by.rounds * by.parts < threads && by.parts < group)
        do
            by.parts++;
        while (group % by.parts);
    by.units = heads * by.stretches * by.rounds * by.parts;
    return by;
}

/* Unit number i of a layer. */
static specdec__unit specdec__forward_unit(const specdec__context *c, const specdec__layer *layer,
                                           const specdec__division *by, int i)
{
    const int group = layer->shape.heads / layer->shape.kv_heads, stretch = i % by->stretches;
    const int part = i / by->stretches % by->parts, round = i / by->stretches / by->parts % by->rounds;
    specdec__unit u;

    memset(&u, 0, sizeof u);
    u.layer = layer;
    u.kv = specdec__context_keys(c, layer);
    u.head = i / by->stretches / by->parts / by->rounds;
    u.from = u.head * group + part * (group / by->parts);
    u.to = u.from + group / by->parts;
    u.first = c->first + c->n * round / by->rounds;
    u.last = c->first + c->n * (round + 1) / by->rounds;
    u.stretches = specdec__forward_stretches(c, u.kv->span, u.first, u.last);
    if (by->stretches > 1) {
        u.stretches.from = c->stretches[u.kv->span].from + stretch;
        u.stretches.to = u.stretches.from + 1;
    }
    return u;
}

/* Attention of a layer. Returns 1 when cancelled. */
static int specdec__forward_attention(specdec__context *c, int thread, const specdec__layer *layer)
{
    const specdec__division by = specdec__forward_divide(c, layer);
    const int group = layer->shape.heads / layer->shape.kv_heads, items = c->n * layer->shape.kv_heads;
    int from, end = 0, i;

    while ((from = specdec__pool_claim(c->pool, by.units, 1, &end)) < by.units)
        for (; from < end; from++) {
            specdec__unit unit = specdec__forward_unit(c, layer, &by, from);

            specdec__forward_attend(c, thread, &unit, by.stretches > 1);
        }
    if (specdec__pool_barrier(c->pool))
        return 1;
    if (by.stretches == 1)
        return 0;
    while ((from = specdec__pool_claim(c->pool, items, 1, &end)) < items)
        for (; from < end; from++) {
            const int node = c->first + from % c->n, head = from / c->n * group;

            for (i = 1; i < by.stretches; i++)
                specdec__forward_merge(c, layer, i, node, head, head + group);
            specdec__forward_attended(c, layer, node, head, head + group);
        }
    return specdec__pool_barrier(c->pool);
}

SPECDEC__FOR_SPEED
