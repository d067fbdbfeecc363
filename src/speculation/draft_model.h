/* =====================================================================================================================
 * >>speculation/draft_model: the draft model.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "../base/pool.h"
#include "../model/model.h"
#include "../cache/kv.h"
#include "../cache/reserve.h"
#include "../forward/context.h"
#include "../forward/step.h"
#include "draft.h"
#include "levels.h"

SPECDEC__FOR_SIZE

/* The draft model's cache holds no more tokens than it was trained with. Of a longer sequence it holds the first tokens
   (the attention sinks of StreamingLLM: Xiao et al. 2024, arXiv 2309.17453) and the last ones, as if they followed each
   other. When the window is full, its second half is prefilled again, at new positions. */
#define SPECDEC__DRAFT_SINKS 16 /* first tokens of a sequence that stay in the draft model's cache */

/* The state of a drafter that is a draft model: its cache and its context. */
typedef struct specdec__draft_model {
    specdec__level_state level_state;  /* the state common to drafters that draft level by level; must be first */
    specdec__view *views; /* (sequences, then kept sequences): the draft model's keys and values of each */
    int *skipped;         /* (sequences, then kept sequences): tokens behind the sinks that are not in the cache */
    specdec__context context;  /* the context of the draft model */
    int window;           /* tokens of a sequence in the cache, at most */
    int threads;          /* threads that the context has buffers for */
} specdec__draft_model;

/* Skips more tokens behind the attention sinks, so that the rest of the sequence's first `count` tokens fits into the
   draft model's cache. */
static void specdec__draft_model_skip_oldest_tokens(specdec__draft_model *m, int at, int count)
{
    specdec__view *view = &m->views[at];

    if (count - m->skipped[at] <= m->window)
        return;
    m->skipped[at] = count - SPECDEC__DRAFT_SINKS - (m->window - SPECDEC__DRAFT_SINKS) / 2;
    specdec__view_truncate(view, &m->context.kv, SPECDEC__DRAFT_SINKS);
}

/* Prefills the first `count` tokens of sequence `at`, without the skipped ones, into the draft model's cache. wanted:
   1: also computes the logits of the last token. */
static specdec_result specdec__draft_model_prefill_text(specdec__draft_model *m, int at, const int32_t *text, int count,
                                                        int wanted, specdec_error *error)
{
    specdec__view *view = &m->views[at];
    const int most = m->context.max_nodes, keys = count - m->skipped[at];
    const int sinks = m->skipped[at] ? specdec__min_int(SPECDEC__DRAFT_SINKS, keys) : 0;
    specdec__prefill_rows rows = specdec__prefill_rows_with_logits_from(sinks); /* none of the sinks */
    specdec_result result = SPECDEC_OK;

    if (view->length < sinks)
        result = specdec__forward_prefill(&m->context, view, text, sinks, most, &rows, NULL, error);
    rows.logits_from = wanted ? keys - 1 : keys;
    return result ? result
                  : specdec__forward_prefill(&m->context, view, text + m->skipped[at], keys, most, &rows, NULL, error);
}

/* Begins a draft tree: prefills the sequence's tokens that are not in the draft model's cache, and computes the logits
   behind the root, row 0. */
static specdec_result specdec__draft_model_begin_tree(specdec__drafter *d, const specdec__draft_request *request,
                                                      const specdec__draft_tree *drafts, specdec_error *error)
{
    specdec__draft_model *m = (specdec__draft_model *)d->state;
    specdec__view *view = &m->views[request->at];

    (void)drafts;
    specdec__draft_model_skip_oldest_tokens(m, request->at, request->count);
    if (view->length >= request->count - m->skipped[request->at])
        specdec__view_truncate(view, &m->context.kv, request->count - m->skipped[request->at] - 1);
    return specdec__draft_model_prefill_text(m, request->at, request->text, request->count, 1, error);
}

/* Runs the draft model on candidates of one level, each behind the tokens on its path from the root. */
static specdec_result specdec__draft_model_run_level(specdec__drafter *d, const specdec__draft_request *request,
                                                     const specdec__draft_tree *drafts, const int32_t *candidates,
                                                     int from,
                                                     int count, specdec_error *error)
{
    specdec__draft_model *m = (specdec__draft_model *)d->state;
    specdec__context *c = &m->context;
    specdec__batch batch;

    specdec__levels_put_candidates_into_step(&m->level_state, c, request->at, drafts, candidates, from, count);
    batch = specdec__forward_make_view_batch(c, &m->views[request->at], from, from + count);
    return specdec__forward(c, &batch, error);
}

/* Makes the keys and values of accepted candidates part of the sequence's view, as far as the draft model has run
   them. */
static void specdec__draft_model_commit_path(specdec__drafter *d, int at, const int32_t *path, int count)
{
    specdec__draft_model *m = (specdec__draft_model *)d->state;
    const int32_t *nodes = specdec__draft_row_indices_of_sequence(&m->level_state, at);
    int kept[SPECDEC_TREE_MAX_DEPTH], i;

    for (i = 0; i < count && i < SPECDEC_TREE_MAX_DEPTH && nodes[path[i]] >= 0; i++)
        kept[i] = nodes[path[i]];
    specdec__view_commit(&m->views[at], &m->context.kv, kept, i);
}

/* Inserts a number into path[n], whose numbers are in ascending order. */
static void specdec__draft_insert_into_ascending_path(int *path, int n, int number)
{
    for (; n > 0 && path[n - 1] > number; n--)
        path[n] = path[n - 1];
    path[n] = number;
}

/* Makes an accepted candidate the root of the tree. Nodes that do not descend from it keep their slots in the draft
   model's cache until half of all slots are taken; then they are dropped. */
static void specdec__draft_model_keep_subtree(specdec__drafter *d, int at, specdec__draft_tree *drafts, int root)
{
    specdec__draft_model *m = (specdec__draft_model *)d->state;
    specdec__context *c = &m->context;
    int32_t *nodes = specdec__draft_row_indices_of_sequence(&m->level_state, at);
    const int count = drafts->depth[root], all = 2 * (drafts->extended_count - count) <= c->max_nodes;
    int i, stay = all ? -1 : 0;

    for (i = root; i > 0; i = drafts->tree.parents[i])
        c->path[drafts->depth[i] - 1] = nodes[i];
    specdec__levels_reroot_tree(&m->level_state, at, drafts, root);
    for (i = 1; i < drafts->tree.n && !all; i++)
        if (nodes[i] >= 0)
            specdec__draft_insert_into_ascending_path(c->path + count, stay++, nodes[i]);
    for (i = 1; i < drafts->tree.n; i++)
        if (nodes[i] >= 0)
            nodes[i] = all ? nodes[i] - count : specdec__forward_index_in_path(c->path + count, stay, nodes[i]);
    drafts->extended_count = specdec__forward_commit_and_keep_nodes(c, &m->views[at], c->path, count, stay,
                                                                    drafts->extended_count);
}

/* Makes the draft model run on at most `threads` threads of a pool from now on. */
static void specdec__draft_model_set_threads(specdec__drafter *d, specdec__pool *pool, int threads)
{
    specdec__draft_model *m = (specdec__draft_model *)d->state;

    m->context.pool = pool;
    m->context.threads = specdec__min_int(threads, m->threads);
}

/* Drops the draft model's keys of a sequence behind its first `length` tokens. */
static void specdec__draft_model_truncate_sequence(specdec__drafter *d, int at, const int32_t *text, int length)
{
    specdec__draft_model *m = (specdec__draft_model *)d->state;
    int keys = length - m->skipped[at];

    (void)text;
    if (m->skipped[at] && keys <= SPECDEC__DRAFT_SINKS) { /* it may all be read again */
        keys = specdec__min_int(length, SPECDEC__DRAFT_SINKS);
        m->skipped[at] = 0;
    }
    specdec__view_truncate(&m->views[at], &m->context.kv, keys);
}

/* Makes sequence `at` begin with the first `length` tokens of sequence `of`, whose keys in the draft model's cache it
   shares. */
static void specdec__draft_model_share_prefix(specdec__drafter *d, int at, int of, int length)
{
    specdec__draft_model *m = (specdec__draft_model *)d->state;
    int keys = length - m->skipped[of];

    m->skipped[at] = keys > SPECDEC__DRAFT_SINKS ? m->skipped[of] : 0;
    keys = m->skipped[of] == m->skipped[at] ? keys : specdec__min_int(length, SPECDEC__DRAFT_SINKS);
    keys = specdec__min_int(keys, m->views[of].length);
    if (specdec__view_share_keys(&m->views[at], &m->context.kv, &m->views[of], 0, keys))
        return;
    specdec__view_truncate(&m->views[at], &m->context.kv, 0);
    m->skipped[at] = 0;
}

/* Returns how many of a sequence's first `count` tokens the draft model has to prefill before the next tree. */
static int specdec__draft_model_count_unprefilled(const specdec__drafter *d, int at, int count)
{
    const specdec__draft_model *m = (const specdec__draft_model *)d->state;
    const int keys = count - m->skipped[at];

    return keys > m->window ? (m->window + SPECDEC__DRAFT_SINKS) / 2 : keys - m->views[at].length;
}

/* Prefills the first `count` tokens of the request's sequence into the draft model's cache. */
static specdec_result specdec__draft_model_prefill(specdec__drafter *d, const specdec__draft_request *request,
                                                   int count, specdec_error *error)
{
    specdec__draft_model *m = (specdec__draft_model *)d->state;

    specdec__draft_model_skip_oldest_tokens(m, request->at, request->count);
    return specdec__draft_model_prefill_text(m, request->at, request->text, count, 0, error);
}

/* Returns how many tokens of a sequence the draft model's cache holds, at most: the context that the model was trained
   with, less a tree. A sequence that is not longer is held whole. */
static int specdec__draft_model_choose_window(const specdec__model *model, const specdec__draft_setup *setup)
{
    const int most = setup->window ? setup->window : model->context - setup->config->tree_depth;

    return specdec__min_int(specdec__max_int(most, 8 * SPECDEC__DRAFT_SINKS), setup->room->view_keys);
}

/* Takes the drafter's memory from an arena, and checks that its model fits the target. */
static specdec_result specdec__draft_model_init(specdec__drafter *d, const specdec__draft_setup *setup,
                                                specdec__arena *arena, specdec_error *error)
{
    specdec__draft_model counted, *m = SPECDEC__TAKE(arena, specdec__draft_model, 1);
    const specdec_config *config = setup->config;
    const specdec__context *target = setup->target;
    specdec__kv_demand room = *setup->room;
    specdec_result result;
    specdec__view view;
    int i, places;

    d->state = m;
    m = m ? m : &counted;
    if (!specdec__model_can_decode(d->model))
        return specdec__fail(error, SPECDEC_ERROR_MISMATCH, "the draft model is a file of heads: %s",
                             specdec__model_architecture_name(d->model));
    if ((result = specdec__levels_check_vocabulary(d, target->model, error)) != SPECDEC_OK)
        return result;
    m->window = specdec__draft_model_choose_window(d->model, setup);
    room.view_keys = specdec__min_int(room.view_keys, m->window + config->tree_depth);
    places = room.max_views + room.kept_views;
    room.all_keys = specdec__min_int(room.all_keys, specdec__min_int(room.view_keys, (1 << 30) / places) * places);
    room.tree_nodes = room.step_nodes;
    /* a tree may be stored behind each sequence until its next one */
    room.reserved_nodes += room.max_views * room.step_nodes;
    specdec__levels_init(&m->level_state, d->model, setup, arena);
    specdec__context_init(&m->context, d->model, NULL, target->kernels, target->pool, setup->threads, target->kv.type,
                          &room, config->tree_size, arena);
    m->views = SPECDEC__TAKE(arena, specdec__view, places);
    m->skipped = SPECDEC__TAKE(arena, int, places);
    m->threads = setup->threads;
    for (i = 0; i < places; i++) {
        specdec__context_init_view(&m->context, m->views ? &m->views[i] : &view, &room, i >= room.max_views, arena);
        if (m->views && i >= room.max_views)
            specdec__kv_add_kept_view(&m->context.kv, &m->views[i]);
    }
    d->kv_bytes = specdec__kv_total_bytes(&m->context.kv);
    m->level_state.logits = m->context.logits;
    m->level_state.stride = (size_t)d->model->output.rows;
    specdec__levels_allocate_short_vocabulary(&m->level_state, &m->context, setup, arena);
    m->level_state.begin_tree = specdec__draft_model_begin_tree;
    m->level_state.run_level = specdec__draft_model_run_level;
    return SPECDEC_OK;
}

/* Returns the context of a drafter that is a draft model. */
static specdec__context *specdec__draft_model_get_context(specdec__drafter *d)
{
    return &((specdec__draft_model *)d->state)->context;
}

/* Writes the row of the kind of drafter that is a draft model: a model of its own, with a cache of its own. */
static void specdec__draft_model_write_kind(specdec__drafter_kind *kind)
{
    specdec__levels_write_kind(kind);
    kind->source = offsetof(specdec_config, draft);
    kind->size = 8;
    kind->depth = 5;
    kind->init = specdec__draft_model_init;
    kind->commit_path = specdec__draft_model_commit_path;
    kind->truncate_sequence = specdec__draft_model_truncate_sequence;
    kind->share_prefix = SPECDEC__SHARES(specdec__draft_model_share_prefix);
    kind->count_unprefilled = specdec__draft_model_count_unprefilled;
    kind->prefill = specdec__draft_model_prefill;
    kind->keep_subtree = SPECDEC__HAS_THREADS ? specdec__draft_model_keep_subtree : NULL;
    kind->set_threads = SPECDEC__HAS_THREADS ? specdec__draft_model_set_threads : NULL;
    kind->keeps_ended_sequences = 1;
}

SPECDEC__FOR_SPEED
