/* =====================================================================================================================
 * >>speculation/draft_block: blocks of tokens, drafted in one pass, as a drafter: DFlash, DFlash2, DSpark.
 *
 *
 * The layers run over a block: the root, and masks behind it, whose tokens attend to each other and to the keys of the
 * whole sequence. The sequence's keys are computed from the target's hidden state behind each token, as soon as it is
 * received; keys of a block are dropped with the block. Each row of the block gives the logits of one level of the
 * tree, independent of the other levels (DFlash) or behind each token of the level before (DSpark, DFlash2), so that
 * the tree branches.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/op.h"
#include "../base/pool.h"
#include "../quant/table.h"
#include "../kernel/kernel.h"
#include "../model/model.h"
#include "../cache/kv.h"
#include "../cache/reserve.h"
#include "../forward/context.h"
#include "../forward/multiply.h"
#include "../forward/rows.h"
#include "../forward/step.h"
#include "sample.h"
#include "tree.h"
#include "draft.h"
#include "levels.h"
#include "draft_model.h"
#include "draft_layer.h"

SPECDEC__FOR_SIZE

/* The state of a drafter that drafts a block: the tokens of all levels of a tree in one forward pass. */
typedef struct specdec__draft_block {
    specdec__level_state level_state;  /* the state common to drafters that draft level by level; must be first */
    specdec__view *views; /* (sequences, then kept sequences): keys of the tokens whose hidden states were received */
    float *reads;         /* (nodes of a step, specdec__forward_states_stride): hidden states of the target, as the
                             layers read them */
    float *rows;          /* (tree size, vocab): logits behind each token of a level; NULL: all have those of the
                             block's row */
    float *narrow;        /* (output rows): scratch: logits of one row, before tokens are mapped to the vocabulary */
    float *ranks;         /* DSpark (tree size, rank): the row of markov_in of each token; DFlash2 (block, rank):
                             projected hidden states */
    float *row;           /* (rank or embedding + rank): scratch: one unpacked row of a table of weights */
    float *trust;         /* (tree size): for each row of `rows` the estimated probability that its best token is
                             accepted */
    specdec_candidate *best; /* (block, candidates): DFlash2: the most probable tokens of each row of the block, best
                                first */
    int32_t *set;         /* (tree size, candidates): DFlash2: the tokens that each row of `rows` has logits for; -1:
                             none */
    int place, n;         /* of the product being computed: the row of the block, and the number of tokens */
    specdec__context context;  /* the context of the drafter's model */
} specdec__draft_block;

/* Returns the logits of row i of the block, which belong to one level of the tree. The tokens of the level before may
   still change them (specdec__draft_block_compute_level_logits). */
static const float *specdec__draft_block_logits_row(const specdec__draft_block *m, int i)
{
    return m->context.logits + (size_t)i * (size_t)m->context.output->rows;
}

/* Dequantises row number `row` of a table of weights to out (columns of the table). */
static void specdec__draft_block_dequantise_row(const specdec__matrix *table, int row, float *out)
{
    specdec__quant_to_float(table->type, table->file + (size_t)row * table->row_bytes, (size_t)table->columns, out);
}

/* Returns which row a token has in a table of weights that has as many rows as the output matrix or the vocabulary; -1:
   it has none. */
static int specdec__draft_block_weight_row_of_token(const specdec__draft_block *m, const specdec__matrix *table,
                                                    int32_t token)
{
    const specdec__model *model = m->context.model;
    int i = 0;

    if (!model->ids || table->rows != model->id_count)
        return token < table->rows ? token : -1;
    while (i < model->id_count && model->ids[i] != token)
        i++;
    return i < model->id_count ? i : -1;
}

/* Returns the dot product of two rows of `count` floats, added in order. */
static float specdec__draft_block_dot_product(const float *a, const float *b, int count)
{
    float sum = 0;
    int i;

    for (i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

/* --- DSpark ------------------------------------------------------------------------------------------------------- */

/* Computes one thread's part of the products by which DSpark adds to the logits what each token contributes to those
   behind it. */
static void specdec__draft_block_markov_worker(void *argument, int thread)
{
    specdec__draft_block *m = (specdec__draft_block *)argument;
    const specdec__block_model *b = &m->context.model->block;
    specdec__matrix_input in = specdec__forward_make_input(m->ranks, m->n,
                                                           specdec__forward_stride(b->markov_in.columns), NULL);
    specdec__matrix_product t;

    t.matrix = &b->markov_out;
    t.bias = NULL;
    t.rows_out = m->rows;
    t.stride = (size_t)m->level_state.stride;
    specdec__forward_project(&m->context, thread, &in, &t, 1);
}

/* Returns DSpark's estimate of the probability that the best token of row i of the block is accepted behind a token.
   before: that token's row of markov_in. */
static float specdec__draft_block_best_token_acceptance(const specdec__draft_block *m, int i, const float *before)
{
    const specdec__context *c = &m->context;
    const specdec__block_model *b = &c->model->block;
    const int width = c->model->embedding;
    float sum;

    specdec__draft_block_dequantise_row(&b->confidence, 0, m->row);
    sum = specdec__draft_block_dot_product(m->row, c->h + (size_t)i * (size_t)c->e, width) +
          specdec__draft_block_dot_product(m->row + width, before, b->markov_in.columns) + b->confidence_bias;
    return 1 / (1 + specdec__exp(-sum));
}

/* DSpark: computes m->rows: row k becomes the logits of row i of the block, changed by token k of tokens[n], the one
   before. */
static specdec_result specdec__draft_block_add_markov_logits(specdec__draft_block *m, int i, const int32_t *tokens,
                                                             int n, specdec_error *error)
{
    specdec__context *c = &m->context;
    const specdec__block_model *b = &c->model->block;
    const size_t stride = (size_t)specdec__forward_stride(b->markov_in.columns);
    const float *own = specdec__draft_block_logits_row(m, i);
    const int outputs = c->output->rows, all = b->markov_out.rows != outputs;
    int k, r, at;

    memset(m->ranks, 0, (size_t)n * stride * sizeof *m->ranks);
    for (k = 0; k < n; k++) {
        at = specdec__draft_block_weight_row_of_token(m, &b->markov_in, tokens[k]);
        if (at >= 0)
            specdec__draft_block_dequantise_row(&b->markov_in, at, m->ranks + (size_t)k * stride);
        if (m->trust)
            m->trust[k] = specdec__draft_block_best_token_acceptance(m, i, m->ranks + (size_t)k * stride);
    }
    m->n = n;
    if (specdec__pool_run(c->pool, c->threads, specdec__draft_block_markov_worker, m))
        return specdec__fail(error, SPECDEC_ERROR_CANCELLED, "cancelled");
    for (k = 0; k < n; k++) {
        float *row = m->rows + (size_t)k * m->level_state.stride;

        for (r = 0; r < outputs; r++)
            m->narrow[r] = own[r] + row[all ? c->model->ids[r] : r];
        memcpy(row, m->narrow, (size_t)outputs * sizeof *row);
    }
    return SPECDEC_OK;
}

/* --- DFlash2 ------------------------------------------------------------------------------------------------------ */

/* Computes one thread's part of the products of DFlash2's selector with the block's hidden states. */
static void specdec__draft_block_selector_worker(void *argument, int thread)
{
    specdec__draft_block *m = (specdec__draft_block *)argument;
    const specdec__block_model *b = &m->context.model->block;
    specdec__matrix_input in = specdec__forward_make_input(m->context.h, m->n, m->context.e, NULL);
    specdec__matrix_product t;

    t.matrix = &b->hidden;
    t.bias = NULL;
    t.rows_out = m->ranks;
    t.stride = (size_t)specdec__forward_stride(b->hidden.rows);
    specdec__forward_project(&m->context, thread, &in, &t, 1);
}

/* DFlash2: selects the most probable tokens of each of the first n rows of the block, and stores them in m->best. */
static specdec_result specdec__draft_block_select_candidates(specdec__draft_block *m, int n, specdec_error *error)
{
    specdec__context *c = &m->context;
    const int k = c->model->block.candidates;
    int i;

    m->n = n;
    if (specdec__pool_run(c->pool, c->threads, specdec__draft_block_selector_worker, m))
        return specdec__fail(error, SPECDEC_ERROR_CANCELLED, "cancelled");
    for (i = 0; i < n; i++)
        specdec__sample_best_tokens(c->kernels, specdec__draft_block_logits_row(m, i), c->output->rows, k,
                                    m->best + (size_t)i * (size_t)k);
    return SPECDEC_OK;
}

/* DFlash2: computes m->rows, the logits of row i of the block behind each of tokens[n]. All tokens but the row's most
   probable ones, m->best, have -infinity. */
static void specdec__draft_block_compute_candidate_logits(specdec__draft_block *m, int i, const int32_t *tokens, int n)
{
    const specdec__model *model = m->context.model;
    const specdec__block_model *b = &model->block;
    const int rank = b->hidden.rows;
    const float *own = specdec__draft_block_logits_row(m, i);
    const float *hidden = m->ranks + (size_t)i * (size_t)specdec__forward_stride(rank);
    int k, j, r, at;

    for (k = 0; k < n; k++) {
        float *row = m->rows + (size_t)k * m->level_state.stride, *before = m->row, *after = m->row + rank;

        at = specdec__draft_block_weight_row_of_token(m, &b->predecessor, tokens[k]);
        memset(before, 0, (size_t)rank * sizeof *before);
        if (at >= 0)
            specdec__draft_block_dequantise_row(&b->predecessor, at, before);
        for (r = 0; r < rank; r++)
            before[r] *= hidden[r];
        for (j = 0; j < b->candidates; j++) {
            int32_t *set = &m->set[k * b->candidates + j];

            if (*set >= 0)
                row[*set] = specdec__float_from_bits(0xff800000u);
        }
        for (j = 0; j < b->candidates; j++) {
            const int32_t out = m->best[i * b->candidates + j].token;

            m->set[k * b->candidates + j] = out;
            at = model->ids && b->successor.rows != model->id_count ? model->ids[out] : out;
            specdec__draft_block_dequantise_row(&b->successor, at, after);
            row[out] = own[out] + specdec__draft_block_dot_product(before, after, rank);
        }
    }
}

/* --- the drafter -------------------------------------------------------------------------------------------------- */

/* Computes the logits of the level that row i of the block predicts, behind each of tokens[n], which are tokens of the
   level before. */
static specdec_result specdec__draft_block_compute_level_logits(specdec__draft_block *m, int i, const int32_t *tokens,
                                                                int n, specdec_error *error)
{
    if (!m->rows) { /* the same behind all */
        m->level_state.logits = specdec__draft_block_logits_row(m, i);
        return SPECDEC_OK;
    }
    if (!m->context.model->block.candidates)
        return specdec__draft_block_add_markov_logits(m, i, tokens, n, error);
    specdec__draft_block_compute_candidate_logits(m, i, tokens, n);
    return SPECDEC_OK;
}

/* Runs a block, the root and masks behind it, behind the tokens of a sequence. It has as many rows as the tree may have
   levels. */
static specdec_result specdec__draft_block_run_block(specdec__draft_block *m, const specdec__draft_request *request,
                                                     const specdec__draft_tree *drafts, specdec_error *error)
{
    specdec__context *c = &m->context;
    const specdec__block_model *b = &c->model->block;
    specdec__view *view = &m->views[request->at];
    const int deepest = specdec__max_int(specdec__max_int(request->max_levels - 1, drafts->depth[drafts->tree.n - 1]),
                                         1);
    const int rows = specdec__min_int(b->size - b->draft_row, deepest);
    specdec__batch batch = specdec__forward_make_view_batch(c, view, 0, b->size);
    specdec_result result;
    int i;

    for (i = 0; i < b->size; i++) {
        c->tokens[i] = i ? b->mask_token : drafts->tokens[0];
        c->parents[i] = i - 1;
        c->wants_logits[i] = i >= b->draft_row && i < b->draft_row + rows;
    }
    batch.wants_logits = c->wants_logits;
    result = specdec__forward(c, &batch, error);
    specdec__view_free_reserved_slots(view, &c->kv);
    return result || !b->candidates ? result : specdec__draft_block_select_candidates(m, rows, error);
}

/* Begins a draft tree: drops keys from the root on, runs the block, and computes the logits behind the root, row 0. */
static specdec_result specdec__draft_block_begin_tree(specdec__drafter *d, const specdec__draft_request *request,
                                                      const specdec__draft_tree *drafts, specdec_error *error)
{
    specdec__draft_block *m = (specdec__draft_block *)d->state;
    specdec__view *view = &m->views[request->at];
    specdec_result result;

    if (view->length > request->count - 1)
        specdec__view_truncate(view, &m->context.kv, request->count - 1);
    result = specdec__draft_block_run_block(m, request, drafts, error);
    return result ? result : specdec__draft_block_compute_level_logits(m, 0, drafts->tokens, 1, error);
}

/* Computes the logits behind candidates of one level from the block, which was run when the tree was begun. */
static specdec_result specdec__draft_block_run_level(specdec__drafter *d, const specdec__draft_request *request,
                                                     const specdec__draft_tree *drafts, const int32_t *candidates,
                                                     int from,
                                                     int count, specdec_error *error)
{
    int32_t tokens[SPECDEC__MAX_TREE_NODES];
    int i;

    (void)request;
    (void)from;
    for (i = 0; i < count; i++)
        tokens[i] = drafts->tokens[candidates[i]];
    return specdec__draft_block_compute_level_logits((specdec__draft_block *)d->state, drafts->depth[candidates[0]],
                                                     tokens, count, error);
}

/* Drops the drafter's keys of a sequence behind its first `length` tokens. */
static void specdec__draft_block_truncate_sequence(specdec__drafter *d, int at, const int32_t *text, int length)
{
    specdec__draft_block *m = (specdec__draft_block *)d->state;

    (void)text;
    specdec__view_truncate(&m->views[at], &m->context.kv, length);
}

/* Makes sequence `at` begin with the first `length` tokens of sequence `of`, whose keys it shares. */
static void specdec__draft_block_share_prefix(specdec__drafter *d, int at, int of, int length)
{
    specdec__draft_block *m = (specdec__draft_block *)d->state;
    const int keys = specdec__min_int(length, m->views[of].length);

    if (!specdec__view_share_keys(&m->views[at], &m->context.kv, &m->views[of], 0, keys))
        specdec__view_truncate(&m->views[at], &m->context.kv, 0);
}

/* Returns whether the drafter's keys of all tokens before the root were computed. */
static int specdec__draft_block_can_draft(const specdec__drafter *d, int at, int count)
{
    return ((const specdec__draft_block *)d->state)->views[at].length >= count - 1;
}

/* Returns how many of a sequence's tokens have keys in the drafter's cache: those whose hidden states it has
   received. */
static int specdec__draft_block_count_received_states(const specdec__drafter *d, int at)
{
    return ((const specdec__draft_block *)d->state)->views[at].length;
}

/* Computes the drafter's keys of committed tokens whose hidden states are new. Where hidden states of a sequence were
   missed, nothing is drafted for it until it is cut. */
static specdec_result specdec__draft_block_receive_states(specdec__drafter *d,
                                                          const specdec__committed_tokens *committed,
                                                          specdec_error *error)
{
    specdec__draft_block *m = (specdec__draft_block *)d->state;
    specdec__view *view = &m->views[committed->at];
    const size_t width = (size_t)d->model->reads.count * (size_t)d->model->reads.width;
    const size_t stride = (size_t)specdec__forward_states_stride(d->model);
    const int end = committed->from + committed->n;
    specdec_result result = SPECDEC_OK;
    int i, from, to;

    for (from = view->length; !result && from >= committed->from && from < end; from = to) {
        specdec__prefill_rows rows = specdec__prefill_rows_with_logits_from(end);

        to = specdec__min_int(end, from + m->context.max_nodes);
        for (i = from - committed->from; i < to - committed->from; i++) {
            const int node = committed->first + (committed->path ? committed->path[i] : i);

            memcpy(m->reads + (size_t)(i + committed->from - from) * stride, d->taps.out + (size_t)node * width,
                   width * sizeof *m->reads);
        }
        rows.reads = m->reads;
        rows.reads_from = from;
        result = specdec__forward_prefill(&m->context, view, committed->text, to, m->context.max_nodes, &rows, NULL,
                                          error);
    }
    return result;
}

/* Takes from an arena the memory for rows of logits behind the tokens of a level. */
static void specdec__draft_block_allocate_logits(specdec__draft_block *m, int size, specdec__arena *arena)
{
    const specdec__model *model = m->context.model;
    const specdec__block_model *b = &model->block;
    const int wide = specdec__max_int(m->context.output->rows, b->markov_out.rows);
    const int rank = specdec__max_int(b->markov_in.columns, b->hidden.rows);
    size_t i;

    m->level_state.stride = 0;
    if (!rank)
        return;
    m->level_state.stride = (size_t)wide;
    m->rows = SPECDEC__TAKE(arena, float, (size_t)size * (size_t)wide + 15);
    m->narrow = SPECDEC__TAKE(arena, float, m->context.output->rows);
    m->ranks = SPECDEC__TAKE(arena, float, (size_t)specdec__max_int(size, b->size) *
                                               (size_t)specdec__forward_stride(rank));
    m->row = SPECDEC__TAKE(arena, float, specdec__max_int(2 * rank, model->embedding + rank));
    m->trust = b->confidence.type ? SPECDEC__TAKE(arena, float, size) : NULL;
    m->level_state.trust = m->trust;
    m->best = SPECDEC__TAKE(arena, specdec_candidate, b->size * b->candidates);
    m->set = SPECDEC__TAKE(arena, int32_t, size * b->candidates);
    for (i = 0; m->set && i < (size_t)size * (size_t)b->candidates; i++)
        m->set[i] = -1;
    for (i = 0; m->rows && b->candidates && i < (size_t)size * (size_t)wide; i++)
        m->rows[i] = specdec__float_from_bits(0xff800000u);
    m->level_state.logits = m->rows;
}

/* Takes the drafter's memory from an arena, and checks that its file fits the target. */
static specdec_result specdec__draft_block_init(specdec__drafter *d, const specdec__draft_setup *setup,
                                                specdec__arena *arena, specdec_error *error)
{
    specdec__draft_block counted, *m = SPECDEC__TAKE(arena, specdec__draft_block, 1);
    const specdec__context *target = setup->target;
    const specdec__model *model = d->model;
    const specdec__block_model *b = &model->block;
    const size_t stride = (size_t)specdec__forward_states_stride(model);
    specdec_result result = specdec__draft_layer_check_target(model, target->model, error);
    const int places = setup->room->max_views + setup->room->kept_views;
    specdec__kv_demand room = *setup->room;
    specdec__view counted_view;
    int i;

    d->state = m;
    m = m ? m : &counted;
    memset(m, 0, sizeof *m);
    if (result || (result = specdec__levels_check_vocabulary(d, target->model, error)) != SPECDEC_OK)
        return result;
    if (b->mask_token >= target->model->vocab_size)
        return specdec__fail(error, SPECDEC_ERROR_MISMATCH, "the draft's mask is token %d, the target has %d",
                             (int)b->mask_token, target->model->vocab_size);
    room.step_nodes = specdec__max_int(room.step_nodes, b->size);
    room.reserved_nodes += b->size;
    specdec__levels_init(&m->level_state, model, setup, arena);
    specdec__context_init(&m->context, model, target, target->kernels, target->pool, setup->threads, target->kv.type,
                          &room, b->size - b->draft_row, arena);
    d->kv_bytes = specdec__kv_total_bytes(&m->context.kv);
    d->levels = specdec__min_int(b->size - b->draft_row, SPECDEC_TREE_MAX_DEPTH - 1);
    d->taps.layers = model->reads.layers;
    d->taps.count = model->reads.count;
    d->taps.out = SPECDEC__TAKE(arena, float, (size_t)target->max_nodes * stride);
    m->reads = SPECDEC__TAKE(arena, float, (size_t)m->context.max_nodes * stride);
    m->views = SPECDEC__TAKE(arena, specdec__view, places);
    for (i = 0; i < places; i++) {
        specdec__context_init_view(&m->context, m->views ? &m->views[i] : &counted_view, &room,
                                   i >= setup->room->max_views, arena);
        if (m->views && i >= setup->room->max_views)
            specdec__kv_add_kept_view(&m->context.kv, &m->views[i]);
    }
    specdec__draft_block_allocate_logits(m, setup->config->tree_size, arena);
    m->level_state.begin_tree = specdec__draft_block_begin_tree;
    m->level_state.run_level = specdec__draft_block_run_level;
    return SPECDEC_OK;
}

/* Writes the row of the kind of drafter that drafts the tokens of all levels in one forward pass. */
static void specdec__draft_block_write_kind(specdec__drafter_kind *kind)
{
    specdec__levels_write_kind(kind);
    kind->source = offsetof(specdec_config, draft);
    kind->size = 16;
    kind->depth = 8;
    kind->init = specdec__draft_block_init;
    kind->truncate_sequence = specdec__draft_block_truncate_sequence;
    kind->share_prefix = SPECDEC__SHARES(specdec__draft_block_share_prefix);
    kind->can_draft = specdec__draft_block_can_draft;
    kind->receive_states = specdec__draft_block_receive_states;
    kind->count_received_states = specdec__draft_block_count_received_states;
    kind->keeps_ended_sequences = 1;
}

SPECDEC__FOR_SPEED
