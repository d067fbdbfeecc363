/* =====================================================================================================================
 * >>speculation/draft_layer: a layer that reads the target's hidden states as a drafter.
 *
 *
 * EAGLE-3, and NextN blocks in the target's own files (MTP). A pair is the target's hidden state behind a token, and
 * the next token: from it the layer predicts the token after that. Where pairs begin with the first token, the hidden
 * state before it is zeros. Pairs of a sequence are run once their hidden states were received, so the cache holds what
 * a run over the whole sequence would give; behind the root, the layer's own states replace the target's.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../model/model.h"
#include "../cache/kv.h"
#include "../cache/reserve.h"
#include "../forward/context.h"
#include "../forward/step.h"
#include "draft.h"
#include "levels.h"
#include "draft_model.h"

SPECDEC__FOR_SIZE

#define SPECDEC__DRAFT_STORED_STATES 32 /* most stored hidden states of a sequence whose pairs the layer has not run */

/* The pairs of a sequence, each a hidden state of the target and the next token: which of them the layer has run, and
   the hidden states of the newest. */
typedef struct specdec__draft_pairs {
    specdec__view view; /* the layer's keys and values of the pairs (hidden state, next token) that it has run */
    float *states; /* (SPECDEC__DRAFT_STORED_STATES, specdec__forward_states_stride): the target's hidden states of
                      `count` pairs from index `from` on; NULL: none are stored, as the sequence is a kept one */
    int from, count;    /* index of the pair of the first stored hidden state; number of these states. With from <=
                           view.length <= from + count: the number of pairs whose hidden states were received */
} specdec__draft_pairs;

/* The state of a drafter that is a layer which reads the target's hidden states (EAGLE-3, NextN). */
typedef struct specdec__draft_layer {
    specdec__level_state level_state;          /* the state common to drafters that draft level by level; must be
                                                  first */
    specdec__draft_pairs *sequences; /* (sequences, then kept sequences): the pairs of each */
    float *own_states;  /* (1 + tree size, embedding): the layer's hidden states behind the root, then behind each
                           candidate */
    float *reads;       /* (tree size, specdec__forward_states_stride): such hidden states as input of a run; NULL: a
                           run takes them as its residual stream */
    int leading_pairs;  /* 1: a sequence's first pair has zeros in place of a hidden state; 0: it has a hidden state */
    specdec__context context;  /* the context of the layer's model */
} specdec__draft_layer;

/* Returns the layer's hidden state behind the root (place 0) or behind a candidate (place 1 + its index): `embedding`
   floats. */
static float *specdec__draft_layer_hidden_state_of_place(const specdec__draft_layer *m, int place)
{
    return m->own_states + (size_t)place * (size_t)m->context.model->embedding;
}

/* Returns the index of the pair that predicts the token behind the first `count` tokens of a sequence. */
static int specdec__draft_layer_index_of_root_pair(const specdec__draft_layer *m, int count)
{
    return specdec__max_int(count - 2 + m->leading_pairs, 0);
}

/* Drops the stored hidden states of a sequence. The next hidden state to be stored is that of the first pair that the
   layer has not run. */
static void specdec__draft_layer_drop_stored_states(const specdec__draft_layer *m, specdec__draft_pairs *t)
{
    t->from = t->view.length;
    t->count = 0;
    if (t->from || !m->leading_pairs || !t->states)
        return;
    memset(t->states, 0, (size_t)specdec__forward_states_stride(m->context.model) * sizeof *t->states);
    t->count = 1;
}

/* Stores the layer's hidden states of the last `count` nodes of its run, whose logits were computed, in own_states from
   index `place` on. */
static void specdec__draft_layer_store_hidden_states(const specdec__draft_layer *m, int place, int count)
{
    const specdec__context *c = &m->context;
    const float *from = m->reads ? c->h + (size_t)(c->row_count - count) * (size_t)c->e
                                 : c->x + (size_t)(c->n - count) * (size_t)c->e;
    int i;

    for (i = 0; i < count; i++)
        memcpy(specdec__draft_layer_hidden_state_of_place(m, place + i), from + (size_t)i * (size_t)c->e,
               (size_t)c->model->embedding * sizeof *from);
}

/* Runs the layer on the pairs of sequence `at` before index `end`. wanted: 1: also computes the logits of the last
   pair. */
static specdec_result specdec__draft_layer_run_pairs(specdec__draft_layer *m, int at, const int32_t *text, int end,
                                                     int wanted, specdec_error *error)
{
    specdec__draft_pairs *t = &m->sequences[at];
    specdec__prefill_rows rows = specdec__prefill_rows_with_logits_from(wanted ? end - 1 : end);

    rows.reads = t->states;
    rows.reads_from = t->from;
    return specdec__forward_prefill(&m->context, &t->view, text + 1 - m->leading_pairs, end, m->context.max_nodes,
                                    &rows, NULL,
                                    error);
}

/* Begins a draft tree: runs the layer on the sequence's pairs up to that of the root. While the engine is timed, the
   hidden states are zeros. */
static specdec_result specdec__draft_layer_begin_tree(specdec__drafter *d, const specdec__draft_request *request,
                                                      const specdec__draft_tree *drafts, specdec_error *error)
{
    specdec__draft_layer *m = (specdec__draft_layer *)d->state;
    specdec__view *view = &m->sequences[request->at].view;
    const int root = specdec__draft_layer_index_of_root_pair(m, request->count);
    specdec_result result;

    (void)drafts;
    if (view->length > root)
        specdec__view_truncate(view, &m->context.kv, root);
    result = specdec__draft_layer_run_pairs(m, request->at, request->text, root + 1, 1, error);
    if (!result)
        specdec__draft_layer_store_hidden_states(m, 0, 1);
    return result;
}

/* Runs the layer on candidates of one level, from its own hidden states of their parents, and stores those of the
   candidates. */
static specdec_result specdec__draft_layer_run_level(specdec__drafter *d, const specdec__draft_request *request,
                                                     const specdec__draft_tree *drafts, const int32_t *candidates,
                                                     int from,
                                                     int count, specdec_error *error)
{
    specdec__draft_layer *m = (specdec__draft_layer *)d->state;
    specdec__context *c = &m->context;
    float *to = m->reads ? m->reads : c->x;
    const int stride = m->reads ? specdec__forward_states_stride(d->model) : c->e;
    specdec__batch batch;
    specdec_result result;
    int i;

    specdec__levels_put_candidates_into_step(&m->level_state, c, request->at, drafts, candidates, from, count);
    for (i = 0; i < count; i++)
        memcpy(to + (size_t)i * (size_t)stride, specdec__draft_layer_hidden_state_of_place(m, 1 + c->parents[from + i]),
               (size_t)d->model->embedding * sizeof *to);
    batch = specdec__forward_make_view_batch(c, &m->sequences[request->at].view, from, from + count);
    c->reads = m->reads;
    result = specdec__forward(c, &batch, error);
    c->reads = NULL;
    if (!result)
        specdec__draft_layer_store_hidden_states(m, 1 + from, count);
    return result;
}

/* Drops the pairs of a sequence behind its first `length` tokens. The hidden state of the last of these tokens is
   needed again, unless it is stored. */
static void specdec__draft_layer_truncate_sequence(specdec__drafter *d, int at, const int32_t *text, int length)
{
    specdec__draft_layer *m = (specdec__draft_layer *)d->state;
    specdec__draft_pairs *t = &m->sequences[at];

    (void)text;
    specdec__view_truncate(&t->view, &m->context.kv, specdec__max_int(length - 1 + m->leading_pairs, 0));
    t->count = specdec__min_int(t->count, length + m->leading_pairs - t->from);
    if (t->view.length < t->from)
        specdec__draft_layer_drop_stored_states(m, t);
}

/* Makes sequence `at` begin with the first `length` tokens of sequence `of`: shares the layer's keys of their pairs,
   and copies hidden states. */
static void specdec__draft_layer_share_prefix(specdec__drafter *d, int at, int of, int length)
{
    specdec__draft_layer *m = (specdec__draft_layer *)d->state;
    specdec__draft_pairs *t = &m->sequences[at];
    specdec__draft_pairs *other = &m->sequences[of];
    const int pairs = specdec__min_int(specdec__max_int(length - 1 + m->leading_pairs, 0), other->view.length);

    if (!specdec__view_share_keys(&t->view, &m->context.kv, &other->view, 0, pairs))
        specdec__view_truncate(&t->view, &m->context.kv, 0);
    specdec__draft_layer_drop_stored_states(m, t);
    if (!t->states || !other->states || other->from > t->from || other->from >= length + m->leading_pairs)
        return;
    t->from = other->from;
    t->count = specdec__min_int(other->count, length + m->leading_pairs - other->from);
    memcpy(t->states, other->states,
           (size_t)t->count * (size_t)specdec__forward_states_stride(d->model) * sizeof *t->states);
}

/* Returns whether the hidden state of the root's pair is stored, and those of all earlier pairs were received. */
static int specdec__draft_layer_can_draft(const specdec__drafter *d, int at, int count)
{
    const specdec__draft_layer *m = (const specdec__draft_layer *)d->state;
    const specdec__draft_pairs *t = &m->sequences[at];
    const int root = specdec__draft_layer_index_of_root_pair(m, count);

    return count >= 2 - m->leading_pairs && t->from <= root && t->from + t->count > root;
}

/* Returns how many of a sequence's tokens have hidden states that the drafter has received. */
static int specdec__draft_layer_count_received_states(const specdec__drafter *d, int at)
{
    const specdec__draft_layer *m = (const specdec__draft_layer *)d->state;

    return m->sequences[at].from + m->sequences[at].count - m->leading_pairs;
}

/* Makes room for hidden states of the sequence of `committed`: drops those of pairs that the layer has run, except the
   last. If there are none, the layer first runs all pairs whose tokens are known. */
static specdec_result specdec__draft_layer_make_room_for_states(specdec__draft_layer *m,
                                                                const specdec__committed_tokens *committed,
                                                                specdec_error *error)
{
    specdec__draft_pairs *t = &m->sequences[committed->at];
    const size_t stride = (size_t)specdec__forward_states_stride(m->context.model);
    const int end = specdec__min_int(t->from + t->count, committed->count - 1 + m->leading_pairs);
    specdec_result result;
    int gone;

    if (t->view.length <= t->from + 1 &&
        (result = specdec__draft_layer_run_pairs(m, committed->at, committed->text, end, 0, error)) != SPECDEC_OK)
        return result;
    gone = t->view.length - 1 - t->from;
    t->from += gone;
    t->count -= gone;
    memmove(t->states, t->states + (size_t)gone * stride, (size_t)t->count * stride * sizeof *t->states);
    return SPECDEC_OK;
}

/* Stores the hidden states of committed tokens that are new. Where hidden states of a sequence were missed, nothing is
   drafted for it until it is cut. */
static specdec_result specdec__draft_layer_receive_states(specdec__drafter *d,
                                                          const specdec__committed_tokens *committed,
                                                          specdec_error *error)
{
    specdec__draft_layer *m = (specdec__draft_layer *)d->state;
    specdec__draft_pairs *t = &m->sequences[committed->at];
    const specdec__reads *reads = &d->model->reads;
    const int width = reads->count * reads->width;
    int i;

    for (i = t->from + t->count - m->leading_pairs - committed->from; i >= 0 && i < committed->n; i++, t->count++) {
        const int node = committed->first + (committed->path ? committed->path[i] : i);
        const float *from = d->taps.out + (size_t)node * (size_t)width;
        specdec_result result = t->count < SPECDEC__DRAFT_STORED_STATES
                                    ? SPECDEC_OK
                                    : specdec__draft_layer_make_room_for_states(m, committed, error);
        float *to = t->states + (size_t)t->count * (size_t)specdec__forward_states_stride(d->model);

        if (result)
            return result;
        if (reads->states_norm)
            m->context.kernels->norm(from, reads->states_norm, d->model->epsilon, width, 0, width, to);
        else
            memcpy(to, from, (size_t)width * sizeof *to);
    }
    return SPECDEC_OK;
}

/* Checks that a drafter's model reads hidden states of this target's width and layers. */
static specdec_result specdec__draft_layer_check_target(const specdec__model *m, const specdec__model *target,
                                                        specdec_error *error)
{
    int i;

    if (m->reads.width != target->embedding)
        return specdec__fail(error, SPECDEC_ERROR_MISMATCH, "the draft reads states of %d, the target has states of %d",
                             m->reads.width, target->embedding);
    for (i = 0; i < m->reads.count; i++)
        if (m->reads.layers[i] > target->layers)
            return specdec__fail(error, SPECDEC_ERROR_MISMATCH, "the draft reads states after %d layers, the target "
                                 "has %d", m->reads.layers[i], target->layers);
    if (m->embedding != target->embedding && !(m->token_embedding.type && m->output.type))
        return specdec__fail(error, SPECDEC_ERROR_MISMATCH, "the draft, %d wide, has no %s of its own, and the "
                             "target's is for %d", m->embedding, m->output.type ? "token_embd.weight" : "output.weight",
                             target->embedding);
    return SPECDEC_OK;
}

/* Takes the drafter's memory from an arena, and checks that its file fits the target. */
static specdec_result specdec__draft_layer_init(specdec__drafter *d, const specdec__draft_setup *setup,
                                                specdec__arena *arena, specdec_error *error)
{
    specdec__draft_layer counted, *m = SPECDEC__TAKE(arena, specdec__draft_layer, 1);
    const specdec__context *target = setup->target;
    const specdec__model *model = d->model;
    const size_t stride = (size_t)specdec__forward_states_stride(model), size = (size_t)setup->config->tree_size;
    specdec_result result = specdec__draft_layer_check_target(model, target->model, error);
    const int places = setup->room->max_views + setup->room->kept_views;
    specdec__kv_demand room = *setup->room;
    specdec__draft_pairs unused, *t;
    int i;

    d->state = m;
    m = m ? m : &counted;
    m->leading_pairs = model->reads.is_nextn;
    if (result || (result = specdec__levels_check_vocabulary(d, target->model, error)) != SPECDEC_OK)
        return result;
    /* a tree is stored behind each sequence until it is drafted for again */
    room.reserved_nodes += room.max_views * ((int)size + m->leading_pairs);
    specdec__levels_init(&m->level_state, d->model, setup, arena);
    specdec__context_init(&m->context, model, target, target->kernels, target->pool, setup->threads,
                          target->kv.type, &room, (int)size, arena);
    d->kv_bytes = specdec__kv_total_bytes(&m->context.kv);
    d->taps.layers = model->reads.layers;
    d->taps.count = model->reads.count;
    d->taps.out = SPECDEC__TAKE(arena, float, (size_t)target->max_nodes * stride);
    m->own_states = SPECDEC__TAKE(arena, float, (1 + size) * (size_t)model->embedding);
    m->reads = m->leading_pairs ? SPECDEC__TAKE(arena, float, size * stride) : NULL;
    m->sequences = SPECDEC__TAKE(arena, specdec__draft_pairs, places);
    for (i = 0; i < places; i++) {
        t = m->sequences ? &m->sequences[i] : &unused;
        specdec__context_init_view(&m->context, &t->view, &room, i >= room.max_views, arena);
        if (i < room.max_views)
            t->states = SPECDEC__TAKE(arena, float, SPECDEC__DRAFT_STORED_STATES * stride);
        else if (m->sequences)
            specdec__kv_add_kept_view(&m->context.kv, &t->view);
        t->count = i < room.max_views && m->leading_pairs;
    }
    m->level_state.logits = m->context.logits;
    m->level_state.stride = (size_t)m->context.output->rows;
    specdec__levels_allocate_short_vocabulary(&m->level_state, &m->context, setup, arena);
    m->level_state.begin_tree = specdec__draft_layer_begin_tree;
    m->level_state.run_level = specdec__draft_layer_run_level;
    return SPECDEC_OK;
}

/* Writes the row of the kind of drafter that is one layer with a cache of its own, which reads hidden states of the
   target (EAGLE-3). */
static void specdec__draft_layer_write_kind(specdec__drafter_kind *kind)
{
    specdec__levels_write_kind(kind);
    kind->source = offsetof(specdec_config, heads);
    kind->size = 8;
    kind->depth = 4;
    kind->init = specdec__draft_layer_init;
    kind->truncate_sequence = specdec__draft_layer_truncate_sequence;
    kind->share_prefix = SPECDEC__SHARES(specdec__draft_layer_share_prefix);
    kind->can_draft = specdec__draft_layer_can_draft;
    kind->receive_states = specdec__draft_layer_receive_states;
    kind->count_received_states = specdec__draft_layer_count_received_states;
    kind->keeps_ended_sequences = 1;
}

/* Writes the row of the kind of drafter whose layer is the NextN block in the target's files; otherwise as
   specdec__draft_layer_write_kind. */
static void specdec__draft_mtp_write_kind(specdec__drafter_kind *kind)
{
    specdec__draft_layer_write_kind(kind);
    kind->source = 0;
    kind->nextn = 1;
}

SPECDEC__FOR_SPEED
