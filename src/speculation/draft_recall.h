/* =====================================================================================================================
 * >>speculation/draft_recall: two levels: the target with a small cache, for which another drafter drafts.
 *
 *
 * TriForce (Sun et al. 2024, arXiv 2404.11912). The target's own weights with a retrieval cache draft a chain; a draft
 * model with a short window, or n-grams, draft trees that this small cache verifies (the first level;
 * its drafter: the first drafter). Both levels use
 * the same noise, so the chain is what the small cache alone would decode: a draw from its distribution.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../model/model.h"
#include "../cache/kv.h"
#include "../cache/reserve.h"
#include "../forward/context.h"
#include "../forward/step.h"
#include "tree.h"
#include "retrieve.h"
#include "draft.h"
#include "levels.h"
#include "draft_model.h"
#include "draft_ngram.h"

SPECDEC__FOR_SIZE

#define SPECDEC__RECALL_TREE_NODES 8    /* nodes of a tree that the small cache verifies, at most */
#define SPECDEC__RECALL_WINDOW 256 /* newest tokens of a sequence that the draft model of the small cache uses */
#define SPECDEC__RECALL_CONTEXT_DIVISOR 8 /* default size of the small cache, in tokens: the context divided by this */
#define SPECDEC__RECALL_LEAST_TOKENS 64   /* least default size of the small cache, in tokens */

/* The state of a drafter on two levels (TriForce): the target with a small cache drafts, and another drafter drafts for
   that. */
typedef struct specdec__draft_recall {
    specdec__level_state level_state;            /* the state common to drafters that draft level by level; must be
                                                    first */
    specdec__retrieval cache;          /* the small caches of the sequences */
    specdec__drafter first_drafter;    /* proposes tokens that the small cache verifies */
    specdec__proposal first_proposal;       /* what first_drafter proposes, for one sequence after the other */
    specdec_sampling sampling; /* the settings of sampling of the current sequence, as the first level uses them */
    int nodes;                 /* nodes of a tree that first_drafter proposes, at most */
} specdec__draft_recall;

/* Writes the first n nodes of a fixed tree to *tree: the best tree of 8 nodes for a typical acceptance. */
static void specdec__draft_recall_write_first_level_tree(specdec_tree *tree, int n)
{
    static const signed char parents[SPECDEC__RECALL_TREE_NODES] = {-1, 0, 0, 1, 1, 2, 3, 6};
    static const signed char ranks[SPECDEC__RECALL_TREE_NODES] = {0, 1, 2, 1, 2, 1, 1, 1};

    for (tree->n = 0; tree->n < n; tree->n++)
        specdec__tree_put_node(tree, tree->n, parents[tree->n], ranks[tree->n]);
}

/* Makes the first drafter propose a tree behind the first `done` tokens of the chain, no deeper than the chain may
   still grow, and runs the tree as a step of the target with the small cache. */
static specdec_result specdec__draft_recall_run_first_level(specdec__draft_recall *m,
                                                            const specdec__draft_request *request,
                                                            const specdec__draft_tree *drafts, int done,
                                                            specdec_error *error)
{
    specdec__proposal *q = &m->first_proposal;
    specdec__context *c = specdec__retrieve_context_with_small_cache(&m->cache);
    specdec__batch batch;
    specdec_result result;
    int i;

    q->request.at = request->at;
    q->request.max_levels = drafts->tree.n - 1 - done;
    q->request.max_nodes = m->nodes;
    q->frontier.valid_at = 0;
    specdec__draft_begin_proposal(q, request->text, specdec__draft_write_path_behind_text(request, drafts, done),
                                  &m->sampling, SPECDEC_RULE_COUPLED);
    q->request.constrained = request->constrained;
    if (m->first_drafter.kind.level_cost)
        specdec__draft_recall_write_first_level_tree(&q->drafts.tree, m->nodes);
    specdec_tree_depth(&q->drafts.tree, q->drafts.depth);
    while (q->drafts.depth[q->drafts.tree.n - 1] >= q->request.max_levels)
        q->drafts.tree.n--;
    if (q->request.max_levels > 1 &&
        (result = m->first_drafter.kind.fill_tree(&m->first_drafter, &q->request, &q->drafts, error)) != SPECDEC_OK)
        return result;
    for (i = 0; i < q->drafts.tree.n; i++) {
        c->tokens[i] = specdec__max_int(q->drafts.tokens[i], 0);
        c->parents[i] = q->drafts.tree.parents[i];
    }
    batch = specdec__forward_make_view_batch(c, &m->cache.sequences[request->at].view, 0, q->drafts.tree.n);
    return specdec__forward(c, &batch, error);
}

/* Verifies the first drafter's tree: appends the tokens that the target with the small cache chooses to the chain.
   *done: tokens of the chain. */
static void specdec__draft_recall_verify_first_level(specdec__draft_recall *m, const specdec__draft_request *request,
                                                     specdec__draft_tree *drafts, int *done)
{
    specdec__proposal *q = &m->first_proposal;
    int path[SPECDEC__RECALL_TREE_NODES], length = 0, node = 0, k;
    int32_t own[SPECDEC__RECALL_TREE_NODES];

    for (;;) {
        own[length] = node;
        path[length++] = node;
        specdec__draft_set_tokens_of_children(&m->level_state, request, drafts, *done, node);
        if (drafts->tokens[*done + 1] < 0 || ++*done == drafts->tree.n - 1)
            break;
        for (k = specdec__tree_next_child(&q->drafts.tree, node, node + 1);
             k < q->drafts.tree.n && q->drafts.tokens[k] != drafts->tokens[*done];)
            k = specdec__tree_next_child(&q->drafts.tree, node, k + 1);
        if (k >= q->drafts.tree.n)
            break;
        node = k;
    }
    specdec__view_commit(&m->cache.sequences[request->at].view, &m->cache.context.kv, path, length);
    if (m->first_drafter.kind.commit_path && q->drafts.tree.n > 1)
        m->first_drafter.kind.commit_path(&m->first_drafter, q->request.at, own + 1, length - 1);
}

/* Drafts a chain with the small cache: runs and verifies trees of the first drafter until the chain is full. */
static specdec_result specdec__draft_recall_fill_tree(specdec__drafter *d, const specdec__draft_request *request,
                                                      specdec__draft_tree *drafts, specdec_error *error)
{
    specdec__draft_recall *m = (specdec__draft_recall *)d->state;
    int done = 0, before = -1, i;
    specdec_result result;

    if (!request->view || !specdec__retrieve_leaves_out_chunks(&m->cache, request->view->length))
        return SPECDEC_ERROR_FULL;
    result = specdec__retrieve_begin_chain(&m->cache, request->at, request->view) ? SPECDEC_OK : SPECDEC_ERROR_FULL;
    m->level_state.chooser.sampling = request->sampling;
    m->level_state.chooser.constrained = request->constrained;
    m->sampling = *request->sampling;
    if (request->rule == SPECDEC_RULE_TOP_K) /* its chain is of the likeliest tokens */
        m->sampling.temperature = 0;
    else if (request->rule != SPECDEC_RULE_COUPLED)
        m->sampling.seed = specdec__draft_child_seed(request->sampling, request->rule, 1);
    for (i = 1; i < drafts->tree.n; i++)
        drafts->tokens[i] = -1;
    while (!result && done < drafts->tree.n - 1 && done > before) {
        before = done;
        result = specdec__draft_recall_run_first_level(m, request, drafts, done, error);
        if (!result)
            specdec__draft_recall_verify_first_level(m, request, drafts, &done);
    }
    if (m->first_drafter.kind.truncate_sequence)
        m->first_drafter.kind.truncate_sequence(&m->first_drafter, request->at, request->text, request->count);
    if (result) /* chunks may be missing */
        specdec__retrieve_drop_sequence(&m->cache, request->at);
    return result;
}

/* Drops what the small cache and the first drafter store of a sequence behind its first `length` tokens. */
static void specdec__draft_recall_truncate_sequence(specdec__drafter *d, int at, const int32_t *text, int length)
{
    specdec__draft_recall *m = (specdec__draft_recall *)d->state;
    specdec__retrieved_sequence *t = &m->cache.sequences[at];

    if (length < t->from + t->exact)
        specdec__retrieve_drop_sequence(&m->cache, at);
    if (m->first_drafter.kind.truncate_sequence)
        m->first_drafter.kind.truncate_sequence(&m->first_drafter, at, text, length);
}

/* Tells the first drafter that sequence `at` begins with the first `length` tokens of sequence `of`, if it can share
   what it has stored of them. */
static void specdec__draft_recall_share_prefix(specdec__drafter *d, int at, int of, int length)
{
    specdec__draft_recall *m = (specdec__draft_recall *)d->state;

    if (m->first_drafter.kind.share_prefix)
        m->first_drafter.kind.share_prefix(&m->first_drafter, at, of, length);
}

/* Drops what the small cache and the first drafter hold of a sequence that has ended. */
static void specdec__draft_recall_end_sequence(specdec__drafter *d, int at, const int32_t *text)
{
    specdec__draft_recall *m = (specdec__draft_recall *)d->state;

    specdec__retrieve_drop_sequence(&m->cache, at);
    if (m->first_drafter.kind.end_sequence)
        m->first_drafter.kind.end_sequence(&m->first_drafter, at, text);
    else if (m->first_drafter.kind.truncate_sequence)
        m->first_drafter.kind.truncate_sequence(&m->first_drafter, at, text, 0);
}

/* Returns the estimated cost of drafting a level, in plain steps: a step of the target with few keys, which gives about
   two tokens. */
static double specdec__draft_recall_level_cost(const specdec__drafter *d, const specdec__model *target)
{
    (void)d;
    (void)target;
    return 0.5;
}

/* Returns whether a sequence is long enough for the small cache to leave tokens out. */
static int specdec__draft_recall_can_draft(const specdec__drafter *d, int at, int count)
{
    (void)at;
    return specdec__retrieve_leaves_out_chunks(&((const specdec__draft_recall *)d->state)->cache, count - 1);
}

/* Initialises the first drafter: the draft model if the configuration has one, otherwise n-grams. */
static specdec_result specdec__draft_recall_init_first_level(specdec__draft_recall *m, const specdec__drafter *d,
                                                             const specdec__draft_setup *setup, specdec__arena *arena,
                                                             specdec_error *error)
{
    const int size = m->nodes;
    specdec__kv_demand room = *setup->room;
    specdec__draft_setup inner = *setup;

    room.kept_views = 0; /* the model of the first level reads what ended sequences began with */
    inner.room = &room;
    const specdec__model *model = d->model && specdec__model_can_decode(d->model) ? d->model : NULL;

    if (!SPECDEC__HAS_NGRAM_DRAFTERS && !model)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "drafting \"triforce\" needs a draft model here: "
                             "SPECDEC_NO_NGRAM leaves n-grams out of this build");
    memset(&m->first_drafter.kind, 0, sizeof m->first_drafter.kind);
    if (model)
        specdec__draft_model_write_kind(&m->first_drafter.kind);
    else if (SPECDEC__HAS_NGRAM_DRAFTERS)
        specdec__draft_ngram_write_kind(&m->first_drafter.kind);
    m->first_drafter.model = model;
    m->first_drafter.levels = SPECDEC_TREE_MAX_DEPTH;
    inner.capacity = size;
    inner.window = SPECDEC__RECALL_WINDOW;
    specdec__draft_allocate_proposal(&m->first_proposal, size, size, arena);
    return m->first_drafter.kind.init(&m->first_drafter, &inner, arena, error);
}

/* Takes the drafter's memory from an arena. Returns an error for a target whose keys cannot be copied by chunks. */
static specdec_result specdec__draft_recall_init(specdec__drafter *d, const specdec__draft_setup *setup,
                                                 specdec__arena *arena, specdec_error *error)
{
    specdec__draft_recall counted, *m = SPECDEC__TAKE(arena, specdec__draft_recall, 1);
    const specdec__context *target = setup->target;
    const specdec_config *config = setup->config;
    const int chunk = config->retrieval_chunk ? config->retrieval_chunk : 8;
    const int share = setup->room->view_keys / SPECDEC__RECALL_CONTEXT_DIVISOR;
    const int budget = config->retrieval ? config->retrieval : specdec__max_int(share, SPECDEC__RECALL_LEAST_TOKENS);
    specdec_result result;

    d->state = m;
    m = m ? m : &counted;
    if (specdec__recurrent_layers_exist(&target->model->recurrent_sizes))
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "drafting \"triforce\" needs a target without recurrent "
                             "layers");
    if (target->kv.span[SPECDEC__WINDOW].bytes)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "drafting \"triforce\" needs a target all of whose "
                             "layers see the whole text");
    specdec__levels_init(&m->level_state, target->model, setup, arena);
    m->nodes = specdec__min_int(SPECDEC__RECALL_TREE_NODES, target->max_nodes);
    specdec__retrieve_init(&m->cache, target, setup->room, budget, chunk, m->nodes, arena);
    if ((result = specdec__draft_recall_init_first_level(m, d, setup, arena, error)) != SPECDEC_OK)
        return result;
    d->kv_bytes = specdec__kv_total_bytes(&m->cache.context.kv) + m->first_drafter.kv_bytes;
    m->level_state.logits = m->cache.logits;
    m->level_state.stride = (size_t)target->output->rows;
    return SPECDEC_OK;
}

/* Writes the row of the kind of drafter on two levels: the target with a small cache drafts, and another drafter drafts
   for that. */
static void specdec__draft_recall_write_kind(specdec__drafter_kind *kind)
{
    kind->source = offsetof(specdec_config, draft);
    kind->optional = 1;
    kind->enabled_by = offsetof(specdec_config, retrieval);
    kind->ranks = 1;
    kind->draws = 1;
    kind->size = 13;
    kind->depth = 13;
    kind->init = specdec__draft_recall_init;
    kind->fill_tree = specdec__draft_recall_fill_tree;
    kind->truncate_sequence = specdec__draft_recall_truncate_sequence;
    kind->share_prefix = SPECDEC__SHARES(specdec__draft_recall_share_prefix);
    kind->end_sequence = specdec__draft_recall_end_sequence;
    kind->level_cost = specdec__draft_recall_level_cost;
    kind->can_draft = specdec__draft_recall_can_draft;
}

SPECDEC__FOR_SPEED
