/* =====================================================================================================================
 * >>speculation/retrieve: the same model with a small cache: of a long text the chunks of keys that the newest queries
 *     attend to most, by layer and kv head, chosen anew for every few draft tokens, and behind them the newest tokens.
 *     After the retrieval cache of TriForce (Sun et al. 2024, arXiv 2404.11912).
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/pool.h"
#include "../kernel/kernel.h"
#include "../model/model.h"
#include "../cache/kv.h"
#include "../cache/reserve.h"
#include "../forward/context.h"
#include "../forward/attention.h"
#include "sample.h"

SPECDEC__FOR_SIZE

#define SPECDEC__RETRIEVE_CHOICE_TOKENS 2 /* draft tokens after which chunks are chosen again (docs/measured.md) */

/* What the small cache holds of a sequence: some chunks of its keys and values, and its newest tokens. */
typedef struct specdec__retrieved_sequence {
    specdec__view view;  /* slots of the small cache: first those of the chunks, then those of the sequence's tokens
                            from index `from` on */
    int from;            /* index of the first token behind the chunks; 0: the small cache holds nothing of the
                            sequence */
    int exact;           /* tokens from index `from` on whose keys are copies of the target's; keys behind them were
                            computed with the small cache */
} specdec__retrieved_sequence;

/* The small caches of a target, one for each sequence, and how their chunks of keys are chosen. */
typedef struct specdec__retrieval {
    const specdec__context *target;  /* the target's context */
    float *logits;              /* (nodes of a step, vocab): logits of a step with the small cache */
    specdec__retrieved_sequence *sequences; /* (sequences): what the small cache holds of each */
    int chunk, chunks;          /* tokens of a chunk; chunks of a sequence that the small cache holds */
    int recent, most;           /* tokens behind the chunks that the small cache holds: at first, and at most */
    float *scores;              /* (threads, 5, candidates): scores of a sequence's chunks, then scratch for the parts
                                   of four queries */
    specdec_candidate *chosen;  /* (threads, chunks): the chunks with the highest scores */
    int few_dimensions;                    /* dimensions of keys and queries that scores are computed from; 0: all, as
                                              keys are stored in tiles */
    specdec_candidate *largest; /* (threads, few_dimensions): the dimensions in which the queries are largest */
    int *path;                  /* (chunks * chunk, at least most): 0, 1, 2, ...: a path of all nodes of a step, in
                                   order */
    int candidates;             /* chunks of a whole sequence, at most; a multiple of 16 */
    /* Computes the score of each chunk below `source_chunks` for a kv head, by the queries of row 0. */
    void (*score_chunks)(specdec__context *c, const struct specdec__retrieval *r, int thread,
                         const specdec__layer *layer, int head, float *scores);
    const specdec__view *whole; /* the current sequence's keys and values in the target's cache */
    const specdec__view *view;  /* the current sequence's keys and values in the small cache */
    int source_chunks;                  /* chunks of the current sequence that some are chosen from */
    int next_choice;                   /* position of the token before which chunks are chosen again */
    specdec__context context;   /* the target's context, with the small cache in place of the target's, and logits of
                                   its own */
} specdec__retrieval;

/* Returns whether a sequence of `committed` tokens is so long that the small cache leaves chunks out. */
static int specdec__retrieve_leaves_out_chunks(const specdec__retrieval *r, int committed)
{
    return committed - r->recent >= 2 * r->chunks * r->chunk;
}

/* Drops what the small cache holds of sequence `at`. */
static void specdec__retrieve_drop_sequence(specdec__retrieval *r, int at)
{
    specdec__view_truncate(&r->sequences[at].view, &r->context.kv, 0);
    r->sequences[at].from = 0;
}

/* Copies a layer's keys and values of a kv head from the target's cache to the small one: tokens [from, from + count),
   at most 64, of the current sequence go to the small cache's tokens from `to` on. */
static void specdec__retrieve_copy_keys(specdec__retrieval *r, int layer, int head, int from, int to, int count)
{
    const specdec__kv *kv = &r->target->kv, *own = &r->context.kv;
    const specdec__kv_layer *l = &kv->layer[layer]; /* the same in both caches */
    int a[SPECDEC__KEYS], b[SPECDEC__KEYS], i, n;

    specdec__view_find_slots_of_positions(&r->whole->span[SPECDEC__WHOLE], from, count, a);
    specdec__view_find_slots_of_positions(&r->view->span[SPECDEC__WHOLE], to, count, b);
    for (i = 0; i < count; i += n) {
        const int page = a[i] / SPECDEC__KEYS, page_to = b[i] / SPECDEC__KEYS;

        for (n = 1; i + n < count && a[i + n] == a[i] + n && b[i + n] == b[i] + n &&
             a[i + n] / SPECDEC__KEYS == page && b[i + n] / SPECDEC__KEYS == page_to; n++)
            continue;
        specdec__kv_copy_slots(kv->type, l, specdec__kv_keys_address(kv, l, page, head), a[i] % SPECDEC__KEYS,
                               specdec__kv_keys_address(own, l, page_to, head), b[i] % SPECDEC__KEYS, n);
    }
}

/* Returns from how many of a key's `dim` dimensions the scores of chunks are computed; 0: from all, as keys are stored
   in tiles. */
static int specdec__retrieve_count_scored_dimensions(const specdec__retrieval *r, int dim)
{
    return r->few_dimensions ? specdec__max_int(dim / 4, 16) : 0;
}

/* Finds the few dimensions in which the queries of a kv head in row 0 are largest, by the sum of their absolute values;
   largest first, of equal ones the earlier. Scores computed from these alone find nearly the same keys (SparQ, Ribar et
   al. 2024, arXiv 2312.04985) for a quarter of the memory traffic. */
static void specdec__retrieve_find_largest_dimensions(const specdec__context *c, const specdec__retrieval *r,
                                                      int thread, const specdec__layer *layer, int head)
{
    const int group = layer->shape.heads / layer->shape.kv_heads, dim = specdec__context_kv_layer(c, layer)->dim;
    const float *queries = c->rotated + (size_t)head * (size_t)group * (size_t)dim;
    float *sizes = c->scratch[thread].out;
    int q, d;

    memset(sizes, 0, (size_t)dim * sizeof *sizes);
    for (q = 0; q < group; q++)
        for (d = 0; d < dim; d++)
            sizes[d] += queries[q * dim + d] < 0 ? -queries[q * dim + d] : queries[q * dim + d];
    specdec__sample_best_tokens(c->kernels, sizes, dim, specdec__retrieve_count_scored_dimensions(r, dim),
                                r->largest + (size_t)thread * (size_t)r->few_dimensions);
}

/* Running sums of the attention of up to four queries of row 0: in all, and of each chunk of keys. */
typedef struct specdec__chunk_attention {
    specdec__scratch *scratch;     /* the thread's buffers: queries and scores */
    const specdec__layer *layer;   /* the layer whose keys are scored */
    int few_dimensions;            /* number of dimensions that scores are computed from; 0: all */
    const specdec_candidate *largest; /* (few_dimensions): these dimensions; scratch->queries has the queries' elements
                                         in them */
    float *chunks;      /* (4, candidates): each query's sum of attention weights over the keys of each chunk */
    int query, count;   /* index of the first of the queries; number of queries */
    float highest[4], sums[4][16]; /* of each query: its highest score, and 16 partial sums of attention weights */
} specdec__chunk_attention;

/* Computes scratch->scores (count, 64): the products of `count` queries with the 64 keys of a page, in the few largest
   dimensions. */
static void specdec__retrieve_score_by_few_dimensions(const specdec__context *c, const specdec__chunk_attention *t,
                                                      const unsigned char *keys)
{
    const size_t size = c->kv.type == SPECDEC__KV_F32 ? 4 : 2;
    int i;

    for (i = 0; i < t->few_dimensions; i++) {
        const unsigned char *row = keys + (size_t)t->largest[i].token * SPECDEC__KEYS * size;
        float *to = t->scratch->keys + i * SPECDEC__KEYS;

        if (size == 4)
            memcpy(to, row, SPECDEC__KEYS * sizeof *to);
        else
            c->kernels->f16_to_float(row, SPECDEC__KEYS, to);
    }
    c->kernels->key_scores(t->scratch->queries, t->few_dimensions, t->count, t->scratch->keys, 0, SPECDEC__KEYS,
                           t->scratch->keys,
                           t->scratch->scores);
}

/* Adds the keys in a segment of the target's view to the running attention sums. keys: the keys of the segment's page
   and kv head. */
static void specdec__retrieve_add_segment_attention(specdec__context *c, specdec__chunk_attention *t,
                                                    const specdec__retrieval *r,
                                                    const specdec__segment *a, const unsigned char *keys)
{
    float weights[SPECDEC__KEYS], *chunks = t->chunks, factor;
    int q, k, at, end;

    if (t->few_dimensions)
        specdec__retrieve_score_by_few_dimensions(c, t, keys);
    else
        specdec__forward_compute_tile_scores(
            c, t->scratch, keys, specdec__context_kv_layer(c, t->layer)->dim, SPECDEC__KEYS,
            specdec__forward_column_of_rotated_query(c, t->layer, 0, t->query), t->count);
    for (q = 0; q < t->count; q++, chunks += r->candidates) {
        for (k = 0; k < a->length; k++)
            weights[k] = specdec__forward_get_score(c, t->scratch, q, a->from + k);
        factor = c->kernels->softmax(weights, 0, a->length, &t->highest[q], t->sums[q]);
        if (factor < 1)
            c->kernels->scale(chunks, factor, r->candidates);
        for (k = 0; k < a->length;) {
            at = (a->start + k) / r->chunk;
            end = specdec__min_int(a->length, (at + 1) * r->chunk - a->start);
            for (; k < end; k++)
                chunks[at] += weights[k];
        }
    }
}

/* Computes scores (candidates): the attention that each chunk of keys gets from a kv head's queries in row 0, over the
   whole sequence, in few dimensions or in all. Behind the scores lies scratch for four rows more. TriForce takes the
   product of queries and mean keys instead, which chooses worse chunks (docs/measured.md). */
static void specdec__retrieve_score_chunks(specdec__context *c, const struct specdec__retrieval *r, int thread,
                                           const specdec__layer *layer, int head, float *scores)
{
    const specdec__kv_layer *keys = &r->target->kv.layer[layer->index];
    const int group = layer->shape.heads / layer->shape.kv_heads;
    const specdec__segments *s = &r->whole->span[SPECDEC__WHOLE];
    const size_t row = (size_t)r->candidates * sizeof *scores;
    specdec__chunk_attention t;
    int i, q;

    memset(scores, 0, row);
    t.scratch = &c->scratch[thread];
    t.layer = layer;
    t.few_dimensions = specdec__retrieve_count_scored_dimensions(r, keys->dim);
    t.largest = r->largest + (size_t)thread * (size_t)r->few_dimensions;
    t.chunks = scores + r->candidates;
    specdec__retrieve_find_largest_dimensions(c, r, thread, layer, head);
    for (t.query = head * group; t.query < (head + 1) * group; t.query += 4) {
        t.count = specdec__min_int(4, (head + 1) * group - t.query);
        memset(t.sums, 0, sizeof t.sums);
        memset(t.chunks, 0, 4 * row);
        for (q = 0; q < t.count; q++) {
            t.highest[q] = SPECDEC__NO_SCORE;
            for (i = 0; i < t.few_dimensions; i++)
                t.scratch->queries[q * t.few_dimensions + i] =
                    c->rotated[(t.query + q) * keys->dim + t.largest[i].token];
        }
        for (i = 0; i < s->count; i++)
            specdec__retrieve_add_segment_attention(c, &t, r, &s->segment[i],
                                                    specdec__kv_keys_address(&r->target->kv, keys, s->segment[i].page,
                                                                             head));
        for (q = 0; q < t.count; q++)
            c->kernels->add_scaled(scores, 1 / c->kernels->sum16(t.sums[q]), t.chunks + q * r->candidates,
                                   r->candidates);
    }
}

/* Chooses `kept` of `count` chunks: the first chunk of the sequence, whose score becomes the highest, and those with
   the highest scores, best first; of equal scores the earlier chunk. */
static void specdec__retrieve_choose_chunks(const specdec__kernels *kernels, float *scores, int count, int kept,
                                            specdec_candidate *chosen)
{
    scores[0] = -SPECDEC__NO_SCORE;
    specdec__sample_best_tokens(kernels, scores, count, kept, chosen);
}

/* The function `recall` of the context with the small cache: chooses the chunks of a layer, head by head, and copies
   them over the former ones. Layers that share another layer's keys share its chunks. */
static void specdec__retrieve_copy_chosen_chunks(specdec__context *c, int thread, const specdec__layer *layer)
{
    specdec__retrieval *r = (specdec__retrieval *)c->before_attention_argument;
    float *scores = r->scores + 5 * (size_t)thread * (size_t)r->candidates;
    specdec_candidate *chosen = r->chosen + (size_t)thread * (size_t)r->chunks;
    const int heads = specdec__context_kv_layer(c, layer)->owns_keys ? layer->shape.kv_heads : 0;
    int head, end = 0, i;

    while ((head = specdec__pool_claim_items(c->pool, heads, 1, &end)) < heads)
        for (; head < end; head++) {
            r->score_chunks(c, r, thread, layer, head, scores);
            specdec__retrieve_choose_chunks(c->kernels, scores, r->source_chunks, r->chunks, chosen);
            for (i = 0; i < r->chunks; i++)
                specdec__retrieve_copy_keys(r, layer->index, head, chosen[i].token * r->chunk, i * r->chunk, r->chunk);
        }
}

/* Takes the memory of small caches, of `budget` tokens each, from an arena. chunk: tokens of a chunk; nodes: of a step,
   at most. */
static void specdec__retrieve_init(specdec__retrieval *r, const specdec__context *target,
                                   const specdec__kv_demand *whole, int budget, int chunk, int nodes,
                                   specdec__arena *arena)
{
    specdec__kv_demand room = *whole;
    specdec__view view;
    int longest, i;

    memset(r, 0, sizeof *r);
    r->target = target;
    r->score_chunks = specdec__retrieve_score_chunks;
    r->chunk = chunk;
    r->recent = specdec__max_int(budget / 8, 4);
    /* those that do not fill a chunk lie with them */
    r->most = r->recent + specdec__max_int(specdec__max_int(budget / 32, 8), chunk);
    r->chunks = specdec__max_int((budget - r->most) / chunk, 1);
    r->candidates = specdec__round_up(room.view_keys / chunk + 1, 16);
    room.view_keys = r->chunks * chunk + r->most;
    room.all_keys = specdec__min_int(room.view_keys, (1 << 30) / room.max_views) * room.max_views;
    room.kept_views = 0;
    room.step_nodes = specdec__max_int(nodes, r->most);
    /* a tree is stored behind each sequence until its next one */
    room.reserved_nodes = 2 * room.step_nodes + room.max_views * nodes;
    specdec__kv_init(&r->context.kv, target->kv.type, target->model, &room, arena);
    room.step_nodes += r->chunks * chunk;
    r->sequences = SPECDEC__TAKE(arena, specdec__retrieved_sequence, room.max_views);
    for (i = 0; i < room.max_views; i++)
        specdec__context_init_view(&r->context, r->sequences ? &r->sequences[i].view : &view, &room, 0, arena);
    if (!specdec__kv_types[target->kv.type].has_codes)
        r->few_dimensions = specdec__max_int(target->kv.dim / 4, 16);
    r->logits = SPECDEC__TAKE(arena, float, (size_t)nodes * (size_t)target->output->rows + 15);
    r->scores = SPECDEC__TAKE(arena, float, 5 * (size_t)target->threads * (size_t)r->candidates);
    r->chosen = SPECDEC__TAKE(arena, specdec_candidate, (size_t)target->threads * (size_t)r->chunks);
    r->largest = SPECDEC__TAKE(arena, specdec_candidate, (size_t)target->threads * (size_t)r->few_dimensions);
    longest = specdec__max_int(r->chunks * chunk, r->most);
    r->path = SPECDEC__TAKE(arena, int, longest);
    for (i = 0; r->path && i < longest; i++)
        r->path[i] = i;
}

/* Reserves slots for n tokens behind a sequence's view of the small cache, and makes them part of the view. Returns 0
   if there is no room, else 1. */
static int specdec__retrieve_reserve_slots(specdec__retrieval *r, specdec__view *view, int n)
{
    if (n && !specdec__view_reserve_and_notify(view, &r->context.kv, n))
        return 0;
    specdec__view_commit(view, &r->context.kv, r->path, n);
    return 1;
}

/* Prepares the small cache for drafting a chain behind the committed tokens of sequence `at`: slots of chunks, which
   the next step chooses, and exact copies of the keys behind them. Returns 0 if there is no room, else 1. */
static int specdec__retrieve_begin_chain(specdec__retrieval *r, int at, const specdec__view *whole)
{
    specdec__retrieved_sequence *t = &r->sequences[at];
    const int kept = r->chunks * r->chunk, committed = whole->length;
    int layer, head, n, i, from;

    r->whole = whole;
    r->view = &t->view;
    if (!t->from || committed - t->from > r->most || committed < t->from + t->exact) {
        specdec__retrieve_drop_sequence(r, at);
        if (!specdec__retrieve_reserve_slots(r, &t->view, kept))
            return 0;
        t->from = t->view.next_position = (committed - r->recent) / r->chunk * r->chunk;
        t->exact = 0;
    }
    r->source_chunks = t->from / r->chunk;
    r->next_choice = 0;
    specdec__view_truncate(&t->view, &r->context.kv, kept + t->exact);
    n = committed - t->from - t->exact;
    if (!specdec__retrieve_reserve_slots(r, &t->view, n))
        return 0;
    for (layer = 0; layer < r->context.kv.layers; layer++)
        for (head = 0; r->context.kv.layer[layer].owns_keys && head < r->context.kv.layer[layer].kv_heads; head++)
            for (i = 0; i < n; i += SPECDEC__KEYS) {
                from = t->exact + i;
                specdec__retrieve_copy_keys(r, layer, head, t->from + from, kept + from,
                                            specdec__min_int(SPECDEC__KEYS, n - i));
            }
    t->exact += n;
    return 1;
}

/* Returns the context for a step of the target with the small cache, behind the end of its view. The step chooses
   chunks by its first node if the former chunks were used for enough draft tokens. */
static specdec__context *specdec__retrieve_context_with_small_cache(specdec__retrieval *r)
{
    const specdec__kv kv = r->context.kv;
    const int stale = r->view->next_position >= r->next_choice;

    r->context = *r->target;
    r->context.kv = kv;
    r->context.before_attention = stale ? specdec__retrieve_copy_chosen_chunks : NULL;
    r->context.before_attention_argument = r;
    r->context.logits = r->logits;
    memset(r->context.state_readers, 0, sizeof r->context.state_readers);
    if (stale)
        r->next_choice = r->view->next_position + SPECDEC__RETRIEVE_CHOICE_TOKENS;
    return &r->context;
}

SPECDEC__FOR_SPEED
