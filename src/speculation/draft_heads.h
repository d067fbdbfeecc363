/* =====================================================================================================================
 * >>speculation/draft_heads: heads as a drafter (MLP speculator, Medusa).
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../model/model.h"
#include "../forward/context.h"
#include "heads.h"
#include "tree.h"
#include "draft.h"
#include "levels.h"

SPECDEC__FOR_SIZE

/* The state common to drafters that need no cache, but the target's hidden state of the token before the root. It is
   the first member of their own state. */
typedef struct specdec__draft_stored_state {
    specdec__level_state level_state;  /* the state common to drafters that draft level by level; must be first */
    int width;    /* floats of a hidden state */
    float *state; /* (sequences, width): the target's hidden state of the last token that it ran */
    int *known;   /* (sequences): the index of that token in its sequence; -1: no hidden state is stored */
} specdec__draft_stored_state;

/* The state of a drafter that is a file of heads (MLP speculator, Medusa). */
typedef struct specdec__draft_heads {
    specdec__draft_stored_state last; /* the target's last hidden state of each sequence; must be first */
    specdec__heads heads;     /* the heads, with the buffers of a level */
    float *inner; /* (1 + tree size, stride of the heads' states): the heads' states behind the root, then behind each
                     candidate */
} specdec__draft_heads;

/* Returns the stored hidden state (width) of sequence `at`. */
static float *specdec__draft_get_stored_state(const specdec__draft_stored_state *m, int at)
{
    return m->state + (size_t)at * (size_t)m->width;
}

/* Drops the hidden state of a sequence that is cut to its first `length` tokens, if the state is that of a dropped
   token. */
static void specdec__draft_stored_state_truncate_sequence(specdec__drafter *d, int at, const int32_t *text, int length)
{
    specdec__draft_stored_state *m = (specdec__draft_stored_state *)d->state;

    (void)text;
    if (m->known[at] >= length)
        m->known[at] = -1;
}

/* Makes sequence `at` begin as sequence `of`: copies the stored hidden state if it is that of one of the first `length`
   tokens. */
static void specdec__draft_stored_state_share_prefix(specdec__drafter *d, int at, int of, int length)
{
    specdec__draft_stored_state *m = (specdec__draft_stored_state *)d->state;

    m->known[at] = m->known[of] < length ? m->known[of] : -1;
    memcpy(specdec__draft_get_stored_state(m, at), specdec__draft_get_stored_state(m, of),
           (size_t)m->width * sizeof(float));
}

/* Returns whether the target's hidden state of the token before the root is stored. */
static int specdec__draft_stored_state_can_draft(const specdec__drafter *d, int at, int count)
{
    const specdec__draft_stored_state *m = (const specdec__draft_stored_state *)d->state;

    return m->known[at] >= 0 && m->known[at] == count - 2;
}

/* Stores the target's hidden state of the last committed token, if it was computed. */
static specdec_result specdec__draft_stored_state_receive_states(specdec__drafter *d,
                                                                 const specdec__committed_tokens *committed,
                                                                 specdec_error *error)
{
    specdec__draft_stored_state *m = (specdec__draft_stored_state *)d->state;

    (void)error;
    if (!committed->state)
        return SPECDEC_OK;
    m->known[committed->at] = committed->from + committed->n - 1;
    memcpy(specdec__draft_get_stored_state(m, committed->at), committed->state, (size_t)m->width * sizeof(float));
    return SPECDEC_OK;
}

/* Takes the memory for hidden states, and that common to drafters that draft level by level, from an arena. model: the
   drafter's. */
static void specdec__draft_stored_state_init(specdec__draft_stored_state *m, const specdec__model *model, int width,
                                             const specdec__draft_setup *setup, specdec__arena *arena)
{
    const int views = setup->room->max_views;
    int i;

    specdec__levels_init(&m->level_state, model, setup, arena);
    m->width = width;
    m->state = SPECDEC__TAKE(arena, float, (size_t)views * (size_t)width);
    m->known = SPECDEC__TAKE(arena, int, views);
    for (i = 0; m->known && i < views; i++)
        m->known[i] = -1;
    if (m->state) /* the trial reads states before any were received */
        memset(m->state, 0, (size_t)views * (size_t)width * sizeof *m->state);
}

/* Runs the head of a level on the rows in heads.input, behind tokens[count], and stores the states that it computes in
   `inner` from index `from` on. */
static specdec_result specdec__draft_heads_compute_level(specdec__draft_heads *m, int level, const int32_t *tokens,
                                                         int from,
                                                         int count, specdec_error *error)
{
    const size_t stride = (size_t)specdec__forward_stride(m->heads.context.model->feed_forward);
    specdec_result result = specdec__heads_run_level(&m->heads, level, tokens, count, error);

    if (!result)
        memcpy(m->inner + (size_t)from * stride, m->heads.inner, (size_t)count * stride * sizeof *m->inner);
    return result;
}

/* Copies the target's hidden state of sequence `at` to the input of the first level, which has one row. */
static void specdec__draft_heads_copy_state_to_input(specdec__draft_heads *m, int at)
{
    memcpy(m->heads.input, specdec__draft_get_stored_state(&m->last, at),
           (size_t)m->heads.context.model->embedding * sizeof(float));
}

/* Begins a draft tree: computes the logits behind the root, row 0, from the target's hidden state. */
static specdec_result specdec__draft_heads_begin_tree(specdec__drafter *d, const specdec__draft_request *request,
                                                      const specdec__draft_tree *drafts, specdec_error *error)
{
    specdec__draft_heads *m = (specdec__draft_heads *)d->state;

    specdec__draft_heads_copy_state_to_input(m, request->at);
    m->last.level_state.stride = (size_t)specdec__heads_output_rows(d->model);
    return specdec__draft_heads_compute_level(m, 0, &drafts->tokens[0], 0, 1, error);
}

/* Runs the head of a level on candidates of the tree. Heads that do not use the states of the level before give the
   same logits behind all its candidates. */
static specdec_result specdec__draft_heads_run_level(specdec__drafter *d, const specdec__draft_request *request,
                                                     const specdec__draft_tree *drafts, const int32_t *candidates,
                                                     int from,
                                                     int count, specdec_error *error)
{
    specdec__draft_heads *m = (specdec__draft_heads *)d->state;
    const size_t stride = (size_t)specdec__forward_stride(d->model->feed_forward);
    int32_t tokens[SPECDEC__MAX_TREE_NODES];
    int i;

    if (!d->model->speculator->chained) {
        specdec__draft_heads_copy_state_to_input(m, request->at);
        m->last.level_state.stride = 0;
        return specdec__draft_heads_compute_level(m, drafts->depth[candidates[0]], &drafts->tokens[0], 0, 1, error);
    }
    for (i = 0; i < count; i++) {
        const int place = specdec__draft_row_index_of_parent(&m->last.level_state, request->at, drafts, candidates[i]);

        tokens[i] = drafts->tokens[candidates[i]];
        memcpy(m->heads.input + (size_t)i * stride, m->inner + (size_t)place * stride, stride * sizeof(float));
    }
    return specdec__draft_heads_compute_level(m, drafts->depth[candidates[0]], tokens, 1 + from, count, error);
}

/* Returns the estimated cost of drafting a level, in plain steps, by bytes of weights. */
static double specdec__draft_heads_level_cost(const specdec__drafter *d, const specdec__model *target)
{
    return (double)d->model->weight_bytes / d->model->layers / (double)target->weight_bytes;
}

/* Takes the drafter's memory from an arena, and checks that the heads fit the target. */
static specdec_result specdec__draft_heads_init(specdec__drafter *d, const specdec__draft_setup *setup,
                                                specdec__arena *arena, specdec_error *error)
{
    specdec__draft_heads counted, *m = SPECDEC__TAKE(arena, specdec__draft_heads, 1);
    const specdec__model *target = setup->target->model, *model = d->model;
    const int size = setup->config->tree_size;

    d->state = m;
    m = m ? m : &counted;
    if (specdec__model_can_decode(model))
        return specdec__fail(error, SPECDEC_ERROR_MISMATCH, "the file of heads holds a language model: %s",
                             specdec__model_architecture_name(model));
    if (model->vocab_size != target->vocab_size || model->embedding != target->embedding)
        return specdec__fail(error, SPECDEC_ERROR_MISMATCH,
                             "the heads are for states of %d and a vocabulary of %d, the target has %d and %d",
                             model->embedding, model->vocab_size, target->embedding, target->vocab_size);
    d->levels = model->head_count;
    specdec__draft_stored_state_init(&m->last, model, model->embedding, setup, arena);
    specdec__heads_init(&m->heads, model, setup->target, setup->threads, size, arena);
    m->inner = SPECDEC__TAKE(arena, float,
                             ((size_t)size + 1) * (size_t)specdec__forward_stride(model->feed_forward));
    m->last.level_state.logits = m->heads.logits;
    m->last.level_state.begin_tree = specdec__draft_heads_begin_tree;
    m->last.level_state.run_level = specdec__draft_heads_run_level;
    return SPECDEC_OK;
}

/* Writes the row of the kind of drafter that is a file of heads on the target's last hidden state. */
static void specdec__draft_heads_write_kind(specdec__drafter_kind *kind)
{
    specdec__levels_write_kind(kind);
    kind->source = offsetof(specdec_config, heads);
    kind->size = 8;
    kind->depth = 4;
    kind->init = specdec__draft_heads_init;
    kind->truncate_sequence = specdec__draft_stored_state_truncate_sequence;
    kind->share_prefix = SPECDEC__SHARES(specdec__draft_stored_state_share_prefix);
    kind->level_cost = specdec__draft_heads_level_cost;
    kind->can_draft = specdec__draft_stored_state_can_draft;
    kind->receive_states = specdec__draft_stored_state_receive_states;
}

SPECDEC__FOR_SPEED
