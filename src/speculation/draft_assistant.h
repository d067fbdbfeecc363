/* =====================================================================================================================
 * >>speculation/draft_assistant: an assistant as a drafter: layers that read the target's own keys and values.
 *
 *
 * Gemma 4's assistants. Input: token p and the target's hidden state behind token p - 1; output: the logits of token p
 * + 1, and a state that replaces the target's behind token p, for the next level. Queries of all levels have the
 * position of the root, the first one of which the target has no key.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/pool.h"
#include "../quant/table.h"
#include "../model/model.h"
#include "../cache/kv.h"
#include "../forward/context.h"
#include "../forward/multiply.h"
#include "../forward/rows.h"
#include "../forward/step.h"
#include "sample.h"
#include "tree.h"
#include "draft.h"
#include "levels.h"
#include "draft_heads.h"

SPECDEC__FOR_SIZE

/* The state of a drafter that is an assistant: layers that attend to the target's own keys and values (Gemma 4). */
typedef struct specdec__draft_assistant {
    specdec__draft_stored_state last; /* the target's last hidden state of each sequence; must be first */
    const specdec__context *target;  /* the target's context, whose cache the assistant reads */
    float *own_states;   /* (1 + tree size, stride of states): the assistant's hidden states behind the root, then
                            behind each candidate */
    float *reads;   /* (tree size, specdec__forward_states_stride): input of each row: a token's embedding, then a
                       hidden state */
    int place, n;   /* of the level being run: index of its first state in own_states; number of its rows */
    /* logits by centroids: only the tokens of the centroids nearest to a hidden state have logits. Otherwise NULL */
    float *rows;    /* (tree size, vocab): the logits of each row */
    float *row;     /* (threads, embedding): scratch: one unpacked row of the output matrix */
    specdec_candidate *nearest; /* (tree size, nearest centroids): the nearest centroids of each row; -1: none */
    specdec__context context;   /* the context of the assistant's model */
} specdec__draft_assistant;

/* Returns how many floats lie between the beginnings of two rows of own_states. */
static size_t specdec__draft_assistant_floats_per_state(const specdec__draft_assistant *m)
{
    return (size_t)specdec__forward_stride(m->context.model->reads.width);
}

/* Writes row i of a level's input: the target's embedding of a token, then a hidden state. */
static void specdec__draft_assistant_write_input_row(specdec__draft_assistant *m, int i, int32_t token,
                                                     const float *state)
{
    const specdec__reads *reads = &m->context.model->reads;
    const specdec__matrix *table = m->target->embedding;
    float *row = m->reads + (size_t)i * (size_t)specdec__forward_states_stride(m->context.model);

    specdec__quant_to_float(table->type, table->file + (size_t)token * table->row_bytes, (size_t)reads->width, row);
    m->target->kernels->scale(row, m->target->model->fact[SPECDEC__EMBEDDING_SCALE], reads->width);
    memcpy(row + reads->width, state, (size_t)reads->width * sizeof *row);
}

/* Returns the dot product of two rows of `count` floats, a multiple of 8, in a fixed order: eight partial sums, which
   are then added in order. */
static float specdec__draft_assistant_dot_product(const float *a, const float *b, int count)
{
    float sums[8] = {0}, sum = 0;
    int i, j;

    for (i = 0; i < count; i += 8)
        for (j = 0; j < 8; j++)
            sums[j] += a[i + j] * b[i + j];
    for (j = 0; j < 8; j++)
        sum += sums[j];
    return sum;
}

/* Computes the logits of row i for the tokens of the centroid that is k-th nearest to its hidden state. keep 0: sets
   these logits back to -infinity instead. */
static void specdec__draft_assistant_score_centroid_tokens(specdec__draft_assistant *m, int thread, int i, int k,
                                                           int keep)
{
    const specdec__context *c = &m->context;
    const specdec__model *model = c->model;
    const specdec__matrix *head = &model->token_embedding;
    const int centroid = m->nearest[i * model->reads.nearest_centroids + k].token;
    const int size = model->vocab_size / model->reads.centroids, width = model->embedding;
    float *row = m->row + (size_t)thread * (size_t)width;
    int at;

    for (at = centroid * size; centroid >= 0 && at < (centroid + 1) * size; at++) {
        const int32_t token = model->reads.centroid_tokens[at];
        float *out = m->rows + (size_t)i * (size_t)model->vocab_size + (size_t)token;

        *out = specdec__float_from_bits(0xff800000u);
        if (!keep)
            continue;
        specdec__quant_to_float(head->type, head->file + (size_t)token * head->row_bytes, (size_t)width, row);
        *out = specdec__draft_assistant_dot_product(row, c->h + (size_t)i * (size_t)c->e, width);
    }
}

/* Computes one thread's part of a level's logits: those of the tokens of the nearest centroids. All other logits of a
   row stay -infinity. */
static void specdec__draft_assistant_score_nearest_centroids(specdec__draft_assistant *m, int thread)
{
    specdec__context *c = &m->context;
    const int nearest = c->model->reads.nearest_centroids, items = m->n * nearest;
    int i, k, from, end = 0;

    for (i = thread; i < m->n; i += specdec__pool_active(c->pool)) {
        for (k = 0; k < nearest; k++)
            specdec__draft_assistant_score_centroid_tokens(m, thread, i, k, 0);
        specdec__sample_best_tokens(c->kernels, c->logits + (size_t)i * (size_t)c->output->rows, c->output->rows,
                                    nearest,
                                    m->nearest + i * nearest);
    }
    if (specdec__pool_barrier(c->pool))
        return;
    while ((from = specdec__pool_claim_items(c->pool, items, 1, &end)) < items)
        for (; from < end; from++)
            specdec__draft_assistant_score_centroid_tokens(m, thread, from / nearest, from % nearest, 1);
}

/* Computes one thread's part of a level: the hidden states behind the assistant's last norm, and the logits of the
   nearest centroids' tokens. */
static void specdec__draft_assistant_level_worker(void *argument, int thread)
{
    specdec__draft_assistant *m = (specdec__draft_assistant *)argument;
    specdec__context *c = &m->context;
    specdec__matrix_input in = specdec__forward_make_input(c->h, m->n, c->e, NULL);
    specdec__matrix_product t;

    t.matrix = &c->model->reads.next_state;
    t.bias = NULL;
    t.stride = specdec__draft_assistant_floats_per_state(m);
    t.rows_out = m->own_states + (size_t)m->place * t.stride;
    if (!specdec__forward_project(c, thread, &in, &t, 1) && m->rows)
        specdec__draft_assistant_score_nearest_centroids(m, thread);
}

/* Runs the assistant on the n input rows of a level, behind the tokens of a sequence. The hidden states that it
   computes are stored in own_states from index `place` on. */
static specdec_result specdec__draft_assistant_run_rows(specdec__draft_assistant *m,
                                                        const specdec__draft_request *request,
                                                        int place, int n, specdec_error *error)
{
    specdec__context *c = &m->context;
    /* it only reads the target's view */
    specdec__batch batch = specdec__forward_make_view_batch(c, (specdec__view *)(uintptr_t)request->view, 0, n);
    specdec_result result;
    int i;

    for (i = 0; i < n; i++) {
        c->tokens[i] = 0; /* its embedding is not used */
        c->parents[i] = -1;
    }
    c->reads = m->reads;
    result = specdec__forward(c, &batch, error);
    c->reads = NULL;
    if (result)
        return result;
    m->place = place;
    m->n = n;
    return specdec__pool_run(c->pool, c->threads, specdec__draft_assistant_level_worker, m)
               ? specdec__fail(error, SPECDEC_ERROR_CANCELLED, "cancelled")
               : SPECDEC_OK;
}

/* Begins a draft tree: computes the logits behind the root, row 0. Returns FULL where the target has no keys before the
   root, as while an engine is timed. */
static specdec_result specdec__draft_assistant_begin_tree(specdec__drafter *d, const specdec__draft_request *request,
                                                          const specdec__draft_tree *drafts, specdec_error *error)
{
    specdec__draft_assistant *m = (specdec__draft_assistant *)d->state;

    if (!request->view || request->view->length < 1 || request->view->length != request->count - 1)
        return SPECDEC_ERROR_FULL;
    specdec__draft_assistant_write_input_row(m, 0, drafts->tokens[0],
                                             specdec__draft_get_stored_state(&m->last, request->at));
    return specdec__draft_assistant_run_rows(m, request, 0, 1, error);
}

/* Runs the assistant on candidates of one level of the tree, from the hidden states of their parents. */
static specdec_result specdec__draft_assistant_run_level(specdec__drafter *d, const specdec__draft_request *request,
                                                         const specdec__draft_tree *drafts, const int32_t *candidates,
                                                         int from, int count, specdec_error *error)
{
    specdec__draft_assistant *m = (specdec__draft_assistant *)d->state;
    int i;

    for (i = 0; i < count; i++) {
        const int place = specdec__draft_row_index_of_parent(&m->last.level_state, request->at, drafts, candidates[i]);

        specdec__draft_assistant_write_input_row(m, i, drafts->tokens[candidates[i]],
                                                 m->own_states +
                                                     (size_t)place * specdec__draft_assistant_floats_per_state(m));
    }
    return specdec__draft_assistant_run_rows(m, request, 1 + from, count, error);
}

/* Returns whether the target's hidden state of the token before the root, and its keys before the root, are there. */
static int specdec__draft_assistant_can_draft(const specdec__drafter *d, int at, int count)
{
    const specdec__view *view = d->proposals[at].request.view;

    return view && view->length == count - 1 && specdec__draft_stored_state_can_draft(d, at, count);
}

/* Checks that an assistant can read the target's keys: the numbers of heads, their sizes, and the layers agree. */
static specdec_result specdec__draft_assistant_check_target(const specdec__model *m, const specdec__model *target,
                                                            specdec_error *error)
{
    int i;

    if (m->reads.width != target->embedding)
        return specdec__fail(error, SPECDEC_ERROR_MISMATCH, "the draft reads states of %d, the target has states of %d",
                             m->reads.width, target->embedding);
    if (target->layers < 2 || specdec__recurrent_layers_exist(&target->recurrent_sizes) ||
        target->latent_attention.rank)
        return specdec__fail(error, SPECDEC_ERROR_MISMATCH, "the draft reads the keys of the target's last two layers, "
                             "which a %s of %d layers does not have", specdec__model_architecture_name(target),
                             target->layers);
    for (i = 0; i < m->layers; i++) {
        const specdec__shape s = specdec__model_layer_shape(m, i);
        const int windowed = s.span == SPECDEC__WINDOW, from = target->layers - 1 - windowed;
        const specdec__shape keys = specdec__model_layer_shape(target, from);

        if (keys.kv_heads != s.kv_heads || keys.key_dim != s.key_dim || keys.value_dim != s.value_dim)
            return specdec__fail(error, SPECDEC_ERROR_MISMATCH, "layer %d of the draft reads %d heads of %d keys and "
                                 "%d values, the target's layer %d has %d of %d and %d", i, s.kv_heads, s.key_dim,
                                 s.value_dim, from, keys.kv_heads, keys.key_dim, keys.value_dim);
        if (keys.span != s.span || (windowed && m->window > target->window))
            return specdec__fail(error, SPECDEC_ERROR_MISMATCH, "layer %d of the draft sees a window of %d keys, the "
                                 "target's layer %d one of %d (0: all keys)", i, windowed ? m->window : 0, from,
                                 keys.span == SPECDEC__WINDOW ? target->window : 0);
    }
    return SPECDEC_OK;
}

/* Takes the memory for logits by centroids from an arena; where the file has no centroids, that for a short vocabulary,
   if one may pay. */
static void specdec__draft_assistant_allocate_logits(specdec__draft_assistant *m, const specdec__draft_setup *setup,
                                                     specdec__arena *arena)
{
    const specdec__model *model = m->context.model;
    const int size = setup->config->tree_size;
    const size_t all = (size_t)size * (size_t)model->vocab_size;
    size_t i;

    m->rows = m->row = NULL;
    if (!model->reads.centroids) {
        specdec__levels_allocate_short_vocabulary(&m->last.level_state, &m->context, setup, arena);
        return;
    }
    m->rows = SPECDEC__TAKE(arena, float, all);
    m->row = SPECDEC__TAKE(arena, float, (size_t)setup->threads * (size_t)model->embedding);
    m->nearest = SPECDEC__TAKE(arena, specdec_candidate, (size_t)size * (size_t)model->reads.nearest_centroids);
    for (i = 0; m->nearest && i < (size_t)size * (size_t)model->reads.nearest_centroids; i++)
        m->nearest[i].token = -1;
    for (i = 0; m->rows && i < all; i++)
        m->rows[i] = specdec__float_from_bits(0xff800000u);
    m->last.level_state.logits = m->rows;
    m->last.level_state.stride = (size_t)model->vocab_size;
}

/* Takes the drafter's memory from an arena, and checks that the assistant fits the target. */
static specdec_result specdec__draft_assistant_init(specdec__drafter *d, const specdec__draft_setup *setup,
                                                    specdec__arena *arena, specdec_error *error)
{
    specdec__draft_assistant counted, *m = SPECDEC__TAKE(arena, specdec__draft_assistant, 1);
    const specdec__context *target = setup->target;
    specdec__kv_demand room = *setup->room;
    const int size = setup->config->tree_size;
    specdec_result result = specdec__draft_assistant_check_target(d->model, target->model, error);

    d->state = m;
    m = m ? m : &counted;
    if (result || (result = specdec__levels_check_vocabulary(d, target->model, error)) != SPECDEC_OK)
        return result;
    room.step_nodes = size;
    m->target = target;
    specdec__draft_stored_state_init(&m->last, d->model, d->model->reads.width, setup, arena);
    specdec__context_init(&m->context, d->model, target, target->kernels, target->pool, setup->threads,
                          target->kv.type, &room, size, arena);
    m->own_states = SPECDEC__TAKE(arena, float, (1 + (size_t)size) * specdec__draft_assistant_floats_per_state(m));
    m->reads = SPECDEC__TAKE(arena, float, (size_t)size * (size_t)specdec__forward_states_stride(d->model));
    m->last.level_state.logits = m->context.logits;
    m->last.level_state.stride = (size_t)m->context.output->rows;
    if (!d->model->reads.centroids)
        specdec__levels_allocate_short_vocabulary(&m->last.level_state, &m->context, setup, arena);
    specdec__draft_assistant_allocate_logits(m, setup, arena);
    m->last.level_state.begin_tree = specdec__draft_assistant_begin_tree;
    m->last.level_state.run_level = specdec__draft_assistant_run_level;
    return SPECDEC_OK;
}

/* Writes the row of the kind of drafter that is an assistant: layers that read the target's cache. */
static void specdec__draft_assistant_write_kind(specdec__drafter_kind *kind)
{
    specdec__levels_write_kind(kind);
    kind->source = offsetof(specdec_config, draft);
    kind->size = 8;
    kind->depth = 5;
    kind->init = specdec__draft_assistant_init;
    kind->truncate_sequence = specdec__draft_stored_state_truncate_sequence;
    kind->share_prefix = SPECDEC__SHARES(specdec__draft_stored_state_share_prefix);
    kind->can_draft = specdec__draft_assistant_can_draft;
    kind->receive_states = specdec__draft_stored_state_receive_states;
}

SPECDEC__FOR_SPEED
