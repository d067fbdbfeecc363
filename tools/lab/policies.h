/* policies.h - which tokens of a long text a small cache keeps: rows beside that of >>retrieve, to compare it with. None of
   them is in the engine. Include it behind specdec.h's implementation. */
#ifndef POLICIES_H
#define POLICIES_H

#include <math.h>

/* What the queries of a target thought of the keys of one text; the context that runs it recalls this. */
typedef struct policy_watch {
    int context, queries; /* keys of a text, and queries of a kv head in a step, at most */
    int counted;          /* tokens whose queries have been added up */
    float *sums;          /* (layers, kv heads, context): how much attention each key got, of all queries of the head */
    float *rows;          /* (threads, queries, context) */
    int *slots;           /* (threads, context) */
} policy_watch;

/* Room for texts of so many tokens. Returns 0 when there is none. */
static inline int policy_watch_init(policy_watch *w, const specdec__context *c, int context)
{
    const specdec__model *m = c->model;

    memset(w, 0, sizeof *w);
    w->context = context;
    w->queries = c->max_nodes * (m->heads / m->kv_heads);
    w->sums = (float *)calloc((size_t)m->layers * (size_t)m->kv_heads * (size_t)context, sizeof *w->sums);
    w->rows = (float *)malloc((size_t)c->threads * (size_t)w->queries * (size_t)context * sizeof *w->rows);
    w->slots = (int *)malloc((size_t)c->threads * (size_t)context * sizeof *w->slots);
    return w->sums && w->rows && w->slots;
}

static inline void policy_watch_end(policy_watch *w)
{
    free(w->sums);
    free(w->rows);
    free(w->slots);
}

static inline float *policy_sums(const policy_watch *w, const specdec__layer *layer, int head)
{
    return w->sums + ((size_t)layer->index * (size_t)layer->shape.kv_heads + (size_t)head) * (size_t)w->context;
}

/* rows (n * group, w->context): the scores of the queries of a kv head, in the step's first n nodes, with the keys in these
   slots of a cache. */
static inline void policy_scores(const specdec__context *step, const specdec__kv *kv, const policy_watch *w, int thread,
                          const specdec__layer *layer, int head, int n, const int *slots, int count, float *rows)
{
    const specdec__kv_layer *at_keys = &kv->layer[layer->index];
    const int group = layer->shape.heads / layer->shape.kv_heads, tiles = specdec__kv_types[kv->type].has_codes;
    specdec__context c = *step; /* the same queries, another cache */
    specdec__scratch *s = &c.scratch[thread];
    size_t query[4];
    int from, to, at, q, k, some;

    c.kv = *kv;
    for (from = 0; from < count; from = to) {
        const int page = slots[from] / SPECDEC__KEYS;
        const unsigned char *keys = specdec__kv_keys_address(kv, at_keys, page, head);
        const float *floats = tiles ? NULL : specdec__kv_keys_as_floats(kv->type, at_keys, c.kernels, keys, SPECDEC__KEYS, s->keys);

        for (to = from + 1; to < count && slots[to] / SPECDEC__KEYS == page;)
            to++;
        for (at = 0; at < n * group; at += some) {
            some = specdec__min_int(4, n * group - at);
            for (q = 0; q < some; q++)
                query[q] = (size_t)((at + q) / group * layer->shape.heads + head * group + (at + q) % group);
            if (tiles)
                specdec__forward_compute_tile_scores(&c, s, keys, at_keys->dim, SPECDEC__KEYS,
                                                     specdec__forward_column_of_rotated_query(&c, layer, 0, head * group) + at, some);
            else
                specdec__forward_compute_scores(&c, s, floats, (size_t)at_keys->dim, 0, SPECDEC__KEYS, floats, query, some);
            for (q = 0; q < some; q++)
                for (k = from; k < to; k++)
                    rows[(size_t)(at + q) * (size_t)w->context + (size_t)k] =
                        specdec__forward_get_score(&c, s, q, slots[k] % SPECDEC__KEYS);
        }
    }
}

/* sums (count) += the softmax of a row of scores. */
static inline void policy_add_weights(float *row, int count, float *sums)
{
    float highest = row[0], sum = 0;
    int k;

    for (k = 1; k < count; k++)
        highest = row[k] > highest ? row[k] : highest;
    for (k = 0; k < count; k++)
        sum += row[k] = expf(row[k] - highest);
    for (k = 0; k < count; k++)
        sums[k] += row[k] / sum;
}

/* The recall of a target's context: adds up how much attention keys get. A step is a chain behind one text. */
static inline void policy_gather(specdec__context *c, int thread, const specdec__layer *layer)
{
    policy_watch *w = (policy_watch *)c->before_attention_argument;
    const specdec__view *view = c->batch->views[c->first_node];
    const int group = layer->shape.heads / layer->shape.kv_heads, length = view->length;
    float *rows = w->rows + (size_t)thread * (size_t)w->queries * (size_t)w->context;
    int *slots = w->slots + (size_t)thread * (size_t)w->context, head, end = 0, i;

    specdec__view_find_slots_of_positions(&view->span[SPECDEC__WHOLE], 0, length, slots);
    for (i = 0; i < c->n; i++)
        slots[length + i] = c->slots[SPECDEC__WHOLE][c->first_node + i];
    while ((head = specdec__pool_claim_items(c->pool, c->model->kv_heads, 1, &end)) < c->model->kv_heads)
        for (; head < end; head++) {
            policy_scores(c, &c->kv, w, thread, layer, head, c->n, slots, length + c->n, rows);
            for (i = 0; i < c->n * group; i++)
                if (length + i / group >= w->counted)
                    policy_add_weights(rows + (size_t)i * (size_t)w->context, length + i / group + 1,
                                       policy_sums(w, layer, head));
        }
}

/* --- what a chunk is worth ---------------------------------------------------------------------------------------- */

/* StreamingLLM (Xiao et al. 2024, arXiv 2309.17453): the newest ones, behind the first. */
static inline void policy_newest(specdec__context *c, const struct specdec__retrieval *r, int thread, const specdec__layer *layer,
                          int head, float *scores)
{
    int i;

    (void)c;
    (void)thread;
    (void)layer;
    (void)head;
    for (i = 0; i < r->source_chunks; i++)
        scores[i] = (float)i;
}

/* H2O (Zhang et al. 2023, arXiv 2306.14048): the heavy hitters, which got most attention so far. There it is that of
   queries that see the kept keys; here all of them are seen, so it chooses no worse. */
static inline void policy_heavy(specdec__context *c, const struct specdec__retrieval *r, int thread, const specdec__layer *layer,
                         int head, float *scores)
{
    const policy_watch *w = (const policy_watch *)r->target->before_attention_argument;
    const float *sums = policy_sums(w, layer, head);
    int i;

    (void)c;
    (void)thread;
    memset(scores, 0, (size_t)r->source_chunks * sizeof *scores);
    for (i = 0; i < r->source_chunks * r->chunk; i++)
        scores[i / r->chunk] += sums[i];
}

/* TriForce (Sun et al. 2024, arXiv 2404.11912): what the newest queries think of its mean key: the sum of their scores. */
static inline void policy_mean_keys(specdec__context *c, const struct specdec__retrieval *r, int thread,
                             const specdec__layer *layer, int head, float *scores)
{
    const policy_watch *w = (const policy_watch *)r->target->before_attention_argument;
    const int group = layer->shape.heads / layer->shape.kv_heads, count = r->source_chunks * r->chunk;
    float *rows = w->rows + (size_t)thread * (size_t)w->queries * (size_t)w->context;
    int *slots = w->slots + (size_t)thread * (size_t)w->context, i, k;

    specdec__view_find_slots_of_positions(&r->whole->span[SPECDEC__WHOLE], 0, count, slots);
    policy_scores(c, &r->target->kv, w, thread, layer, head, 1, slots, count, rows);
    memset(scores, 0, (size_t)r->source_chunks * sizeof *scores);
    for (i = 0; i < group; i++)
        for (k = 0; k < count; k++)
            scores[k / r->chunk] += rows[i * w->context + k];
}

/* --- the whole text in few bits ----------------------------------------------------------------------------------- */

#define POLICY_GROUP 64 /* elements with one scale and one minimum, both f16: 4.5 bits an element */

/* Rounds elements of an F16 cache to the 16 levels between their least and their greatest. */
static inline void policy_round(const specdec__kernels *kernels, unsigned char *half, size_t count)
{
    float value[POLICY_GROUP], low, high, scale;
    size_t at;
    int i;

    for (at = 0; at < count; at += POLICY_GROUP, half += 2 * POLICY_GROUP) {
        kernels->f16_to_float(half, POLICY_GROUP, value);
        low = high = value[0];
        for (i = 1; i < POLICY_GROUP; i++) {
            low = value[i] < low ? value[i] : low;
            high = value[i] > high ? value[i] : high;
        }
        low = specdec__float_from_f16(specdec__f16_from_float(low));
        scale = specdec__float_from_f16(specdec__f16_from_float((high - low) / 15));
        for (i = 0; i < POLICY_GROUP; i++) {
            const float level = scale > 0 ? floorf((value[i] - low) / scale + 0.5f) : 0;

            value[i] = low + scale * (level < 0 ? 0 : level > 15 ? 15 : level);
            specdec__store_u16(half + 2 * i, specdec__f16_from_float(value[i]));
        }
    }
}

/* The recall of a small cache that keeps all: copies a layer's keys and values, page by page, and rounds them: keys by
   dimension, values by token. Of an F16 cache. */
static inline void policy_copy_rounded(specdec__context *c, int thread, const specdec__layer *layer)
{
    specdec__retrieval *r = (specdec__retrieval *)c->before_attention_argument;
    int head, end = 0, i, slot;

    (void)thread;
    while ((head = specdec__pool_claim_items(c->pool, c->model->kv_heads, 1, &end)) < c->model->kv_heads)
        for (; head < end; head++)
            for (i = 0; i < r->chunks; i++) {
                specdec__retrieve_copy_keys(r, layer->index, head, i * r->chunk, i * r->chunk, r->chunk);
                specdec__view_find_slots_of_positions(&r->view->span[SPECDEC__WHOLE], i * r->chunk, 1, &slot);
                policy_round(c->kernels, specdec__kv_keys_address(&r->context.kv, specdec__context_kv_layer(c, layer),
                                                                  slot / SPECDEC__KEYS, head), r->context.kv.head_bytes / 2);
            }
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

typedef struct policy {
    const char *name;
    int recent;  /* the newest tokens are one part in so many (8 at most) of what is kept; not with recall */
    void (*score)(specdec__context *c, const struct specdec__retrieval *r, int thread, const specdec__layer *layer, int head,
                  float *scores);
    void (*recall)(specdec__context *c, int thread, const specdec__layer *layer); /* NULL: by these scores */
} policy;

static SPECDEC__UNUSED const policy policies[] = {
    {"retrieval", 8, specdec__retrieve_score_chunks, NULL},
    {"TriForce's mean keys", 8, policy_mean_keys, NULL},
    {"H2O", 2, policy_heavy, NULL},
    {"H2O, 1/8 recent", 8, policy_heavy, NULL},
    {"StreamingLLM", 8, policy_newest, NULL},
    {"all in 4 bits", 0, NULL, policy_copy_rounded}};

enum { POLICIES = (int)(sizeof policies / sizeof *policies) };

/* Lays out a small cache of `budget` tokens of a text of up to room->length. A policy that keeps more of the newest tokens
   than retrieval does has so many chunks less, as far as the room that was laid out for either goes. */
static inline void policy_init(specdec__retrieval *r, const policy *p, const specdec__context *target, const specdec__kv_demand *room,
                        int budget, int chunk, int nodes, specdec__arena *arena)
{
    int moved;

    if (p->recall) {
        specdec__retrieve_init(r, target, room, 2 * room->view_keys, SPECDEC__KEYS, nodes, arena);
        return;
    }
    specdec__retrieve_init(r, target, room, budget, chunk, nodes, arena);
    r->score_chunks = p->score;
    moved = specdec__min_int(budget / p->recent - r->recent, r->chunks * chunk - r->most);
    moved = specdec__max_int(moved, 0) / chunk;
    r->chunks -= moved;
    r->recent += moved * chunk;
    r->most += moved * chunk;
}

/* Makes the small cache ready for what follows the committed tokens of a text. Returns 0 when there is no room. */
static inline int policy_begin(specdec__retrieval *r, const policy *p, const specdec__view *whole)
{
    if (p->recall) { /* all full pages but the newest tokens, anew */
        specdec__retrieve_drop_sequence(r, 0);
        r->recent = SPECDEC__KEYS;
        r->most = 2 * SPECDEC__KEYS;
        r->chunks = (whole->length - r->recent) / r->chunk;
    }
    return specdec__retrieve_begin_chain(r, 0, whole);
}
#endif
