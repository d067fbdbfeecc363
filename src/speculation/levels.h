/* =====================================================================================================================
 * >>speculation/levels: drafting level by level.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "../base/op.h"
#include "../text/load.h"
#include "../model/model.h"
#include "../forward/context.h"
#include "sample.h"
#include "samplers.h"
#include "row.h"
#include "tree.h"
#include "draft.h"
#include "short.h"
#include "constrained.h"

SPECDEC__FOR_SIZE

/* The state common to all drafters that make one forward pass for each level of a draft tree. It is the first member of
   their own state. */
typedef struct specdec__level_state {
    specdec__chooser chooser;  /* how tokens are chosen from logits */
    int vocab;         /* number of tokens that may be proposed: those that the target and the drafter's model share */
    int vocab_rows;    /* floats of a row of request->distributions: the target's vocabulary */
    specdec__short_vocabulary *short_rows; /* copied rows of the drafter's output matrix (>>speculation/short); NULL:
                                              none */
    specdec__context *context; /* the context of the drafter's model; set only where there are short_rows */
    const int32_t *ids; /* (id_count): the token of each logit of a row; NULL: logit i is that of token i */
    int id_count;       /* logits of a row; tokens at ids */
    float *whole;      /* (vocab): a row with the logits of all tokens, where the computed rows have fewer: the other
                          tokens get -infinity */
    int runs;          /* forward passes made for the current tree, without that of the root */
    int32_t *nodes;    /* (sequences, capacity): for each candidate its index among those that were run; -1: not run */
    int capacity;      /* candidates of a proposal, at most */
    const float *logits; /* rows of logits of the last forward pass, `stride` floats apart */
    size_t stride;     /* floats from one row of logits to the next */
    const float *trust;  /* (rows): the drafter's estimated probability that the best token of each row is accepted;
                            NULL: none */
    /* Begins a draft tree by a forward pass up to the root: row 0 of the logits becomes the root's. */
    specdec_result (*begin_tree)(specdec__drafter *drafter, const specdec__draft_request *request,
                                 const specdec__draft_tree *drafts, specdec_error *error);
    /* Runs candidates[count] of one level in one forward pass. They get the indices from `from` on (see nodes), and row
       i of the logits becomes that of candidates[i]. */
    specdec_result (*run_level)(specdec__drafter *drafter, const specdec__draft_request *request,
                                const specdec__draft_tree *drafts, const int32_t *candidates, int from, int count,
                                specdec_error *error);
} specdec__level_state;

/* Prepares *row for sampling from logits (vocab) behind the tokens text (count). Tokens that the constraint forbids are
   left out. */
static void specdec__chooser_prepare_row(const specdec__chooser *chooser, specdec__row *row, const float *logits,
                                         int vocab,
                                         const int32_t *text, int count)
{
    const int limited = specdec__constrained_limits_tokens(chooser->constrained);
    int32_t lowest = 0;

    if (limited)
        logits = specdec__constrained_mask_logits(chooser->constrained, logits, vocab, text, count, &lowest);
    specdec__row_init(row, chooser, logits, vocab, text, count);
    if (limited && !(row->temperature > 0) && row->candidates.count == 1 &&
        !specdec__masker_allows_token(chooser->constrained->masker, row->candidates.items[0].token))
        row->candidates.items[0].token = lowest; /* biases forbid all that may follow */
}

/* Writes the k best tokens of a row of logits (vocab) behind text (count) to `best`, best first, whether the constraint
   allows them or not. Returns how many it writes. */
static int specdec__choose_best_unconstrained_tokens(const specdec__chooser *chooser, const float *logits, int vocab,
                                                     const int32_t *text, int count, int k, specdec_candidate *best)
{
    const specdec_sampling *s = chooser->sampling;
    specdec__row row;

    if (!(s->temperature > 0) && !specdec__sampler_chain_alters_logits(s))
        return specdec__sample_best_tokens(chooser->kernels, logits, vocab, k, best);
    specdec__row_init(&row, chooser, logits, vocab, text, count);
    return specdec__row_best_tokens(&row, s->seed, (uint64_t)count, k, best);
}

/* Writes the k best tokens that the constraint allows to `best`, best first, from a row of logits (vocab) behind text
   (count). The best tokens are checked one by one, unless samplers shorten the list of candidates, or too few of those
   tokens are allowed: then the row is masked first. Returns how many it writes. */
static int specdec__choose_best_allowed_tokens(const specdec__chooser *chooser, const float *logits, int vocab,
                                               const int32_t *text, int count, int k, specdec_candidate *best)
{
    specdec__constrained *c = chooser->constrained;
    const specdec_sampling *s = chooser->sampling;
    const int asked = specdec__min_int(k, SPECDEC__MAX_CHILDREN) + SPECDEC__CONSTRAINED_EXTRA_CANDIDATES;
    specdec_candidate candidates[SPECDEC__MAX_CHILDREN + SPECDEC__CONSTRAINED_EXTRA_CANDIDATES];
    const int32_t forced = specdec__constrained_forced_token(c, text, count);
    specdec__row row;
    int found, i;

    if (forced >= 0 && forced < vocab) {
        best[0].token = forced;
        best[0].logit = 0;
        return 1;
    }
    if (!c->allow && !specdec__sampler_chain_drops_candidates(s)) {
        found = specdec__choose_best_unconstrained_tokens(chooser, logits, vocab, text, count, asked, candidates);
        found = specdec__constrained_keep_allowed_candidates(c, text, count, found, k, candidates);
        memcpy(best, candidates, (size_t)found * sizeof *best);
        if (found == k)
            return found;
    }
    specdec__chooser_prepare_row(chooser, &row, logits, vocab, text, count);
    found = specdec__row_best_tokens(&row, s->seed, (uint64_t)count, specdec__min_int(k, SPECDEC__MAX_CHILDREN), best);
    for (i = 1; i < found && best[i].logit >= -SPECDEC__SAMPLE_LARGEST_FLOAT; i++)
        continue;
    return specdec__min_int(found, i);
}

/* Writes the k best tokens of a row of logits (vocab) behind recent (recent_count) to `best`, best first, in the order
   that sampling and the constraint give: the first one is the token of plain decoding. Returns how many it writes. */
static int specdec__choose_best_tokens(const specdec__chooser *chooser, const float *logits, int vocab,
                                       const int32_t *recent, int recent_count, int k, specdec_candidate *best)
{
    return specdec__constrained_limits_tokens(chooser->constrained)
               ? specdec__choose_best_allowed_tokens(chooser, logits, vocab, recent, recent_count, k, best)
               : specdec__choose_best_unconstrained_tokens(chooser, logits, vocab, recent, recent_count, k, best);
}

/* Writes the tokens on a tree's path from the root (excluded) to a node into request->text, behind the sequence's
   tokens. Returns the number of tokens of sequence and path together. */
static int specdec__draft_write_path_behind_text(const specdec__draft_request *request,
                                                 const specdec__draft_tree *drafts, int node)
{
    int length = request->count + drafts->depth[node], at;

    for (at = node; at > 0; at = drafts->tree.parents[at])
        request->text[request->count + drafts->depth[at] - 1] = drafts->tokens[at];
    return length;
}

/* Returns the part of m->nodes that belongs to sequence `at`. */
SPECDEC__INLINE int32_t *specdec__draft_row_indices_of_sequence(const specdec__level_state *m, int at)
{
    return m->nodes + (size_t)at * (size_t)m->capacity;
}

/* Returns where the parent of a candidate is among the rows that were run for the current tree: 0: the parent is the
   root; else 1 + the parent's index. */
SPECDEC__INLINE int specdec__draft_row_index_of_parent(const specdec__level_state *m, int at,
                                                       const specdec__draft_tree *drafts, int candidate)
{
    const int parent = drafts->tree.parents[candidate];

    return parent ? 1 + specdec__draft_row_indices_of_sequence(m, at)[parent] : 0;
}

/* Returns row i of the last forward pass as logits (vocab) of all tokens. Tokens that a short vocabulary lacks have
   -infinity. */
static const float *specdec__draft_logits_of_all_tokens(const specdec__level_state *m, int i)
{
    const float *row = m->logits + (size_t)i * m->stride;
    int j;

    if (!m->ids)
        return row;
    for (j = 0; j < m->id_count; j++)
        if (m->ids[j] < m->vocab)
            m->whole[m->ids[j]] = row[j];
    return m->whole;
}

/* Returns the seed by which the child of rank `rank` is drawn for a rule of rejection. It differs from the target's
   seed, so that the draws are independent. */
static uint64_t specdec__draft_child_seed(const specdec_sampling *s, specdec_rule rule, int rank)
{
    const uint64_t seed = s->seed ^ 0x6a09e667f3bcc909u;

    return rule == SPECDEC_RULE_SEQUOIA ? seed : seed + (uint64_t)rank * 0x9e3779b97f4a7c15u;
}

/* Draws `count` children of a node into `best` for a rule of rejection, and stores the distribution that they were
   drawn from in request->distributions. Drawn without replacement, tokens of probability 0 are left out. Returns how
   many children there are. */
static int specdec__draft_draw_children(specdec__level_state *m, const specdec__draft_request *request, int node,
                                        const float *logits,
                                        int length, int count, specdec_candidate *best)
{
    const specdec_sampling *s = m->chooser.sampling;
    float *q = request->distributions + (size_t)node * (size_t)m->vocab_rows;
    specdec__row row;
    int i, found, drawn = 0;

    specdec__chooser_prepare_row(&m->chooser, &row, logits, m->vocab, request->text, length);
    specdec__row_write_weights(&row, q);
    if (request->rule == SPECDEC_RULE_SEQUOIA) {
        found = specdec__row_best_tokens(&row, specdec__draft_child_seed(s, request->rule, 1), (uint64_t)length, count,
                                         best);
        for (i = 0; i < found; i++)
            if (q[best[i].token] > 0)
                best[drawn++] = best[i];
        return drawn;
    }
    for (i = 0; i < count; i++)
        specdec__row_best_tokens(&row, specdec__draft_child_seed(s, request->rule, i + 1), (uint64_t)length, 1,
                                 &best[i]);
    return count;
}

/* Writes the most probable tokens of a drafter's row, penalties included, to best (count): the children for top-k
   verification. Returns how many it writes. */
static int specdec__draft_list_likeliest_children(specdec__level_state *m, const specdec__draft_request *request,
                                                  const float *logits,
                                                  int length, int count, specdec_candidate *best)
{
    specdec_candidates candidates;
    int32_t lowest;

    if (specdec__constrained_limits_tokens(request->constrained))
        logits = specdec__constrained_mask_logits(request->constrained, logits, m->vocab, request->text, length,
                                                  &lowest);
    candidates.items = m->chooser.items;
    if (specdec_sample_filter(&candidates, m->chooser.sampling, logits, m->vocab, request->text, length, NULL))
        return 0;
    candidates.greedy = 1;
    return specdec_sample_top(&candidates, 0, 0, count, best);
}

/* Writes the tokens that become children of a node under the request's rule of verification to best (count). logits:
   the node's row; length: tokens of the sequence and of the path to the node. Returns how many it writes. */
static int specdec__draft_list_children_by_rule(specdec__level_state *m, const specdec__draft_request *request,
                                                int node, const float *logits,
                                                int length, int count, specdec_candidate *best)
{
    if (!SPECDEC__HAS_DISTRIBUTION_VERIFIERS || request->rule == SPECDEC_RULE_COUPLED)
        return specdec__choose_best_tokens(&m->chooser, logits, m->vocab, request->text, length, count, best);
    return request->rule == SPECDEC_RULE_TOP_K ? specdec__draft_list_likeliest_children(m, request, logits, length,
                                                                                        count, best)
                                               : specdec__draft_draw_children(m, request, node, logits, length, count,
                                                                              best);
}

/* Chooses the tokens of all children that a node has in a tree of fixed shape, from row `at` of the last forward pass.
   A child for which there is no token gets -1. */
static void specdec__draft_set_tokens_of_children(specdec__level_state *m, const specdec__draft_request *request,
                                                  specdec__draft_tree *drafts, int node, int at)
{
    const specdec_tree *tree = &drafts->tree;
    const float *logits = specdec__draft_logits_of_all_tokens(m, at);
    specdec_candidate best[SPECDEC__MAX_CHILDREN];
    const int first = specdec__tree_next_child(tree, node, node + 1),
              length = specdec__draft_write_path_behind_text(request, drafts, node);
    int count = 0, found, i;

    for (i = first; i < tree->n; i = specdec__tree_next_child(tree, node, i + 1))
        count++;
    found = specdec__draft_list_children_by_rule(m, request, node, logits, length,
                                                 specdec__min_int(count, SPECDEC__MAX_CHILDREN), best);
    for (i = first; i < tree->n; i = specdec__tree_next_child(tree, node, i + 1))
        drafts->tokens[i] = tree->ranks[i] <= found ? best[tree->ranks[i] - 1].token : -1;
}

/* Appends the most probable tokens of row `row` of the last forward pass to the tree, as children of `node`. Their
   shares are those of exp(logit) among them, with the noise by which the target will choose. Not used for rules that
   need children drawn from a certain distribution. */
static void specdec__draft_append_children(specdec__level_state *m, const specdec__draft_request *request,
                                           specdec__draft_tree *drafts,
                                           int node, int row)
{
    specdec_candidate best[SPECDEC__GROWN_CHILDREN];
    const float *logits = specdec__draft_logits_of_all_tokens(m, row);
    const int length = specdec__draft_write_path_behind_text(request, drafts, node);
    const int most = specdec__min_int(SPECDEC__GROWN_CHILDREN, drafts->tree.capacity - drafts->tree.n);
    float weight[SPECDEC__GROWN_CHILDREN], total = 0;
    const int found = specdec__draft_list_children_by_rule(m, request, node, logits, length, most, best);
    int i;

    for (i = 0; i < found; i++) {
        float below = best[i].logit - best[0].logit;

        weight[i] = i && !(below > -80) ? 0 : specdec__exp(i ? below : 0);
        total += weight[i];
    }
    for (i = 0; i < found; i++) {
        int at = drafts->tree.n++;

        specdec__tree_put_node(&drafts->tree, at, node, i + 1);
        drafts->tokens[at] = best[i].token;
        drafts->depth[at] = drafts->depth[node] + 1;
        drafts->share[at] = weight[i] / total * (m->trust ? m->trust[row] : 1);
        drafts->extended[at] = 0;
        specdec__draft_row_indices_of_sequence(m, request->at)[at] = -1;
    }
}

/* Runs candidates[count] of one level of the tree in a forward pass. They get the indices from `from` on in
   m->nodes. */
static specdec_result specdec__draft_run_candidates(specdec__drafter *d, const specdec__draft_request *request,
                                                    const specdec__draft_tree *drafts, const int32_t *candidates,
                                                    int from,
                                                    int count, specdec_error *error)
{
    specdec__level_state *m = (specdec__level_state *)d->state;
    int32_t *nodes = specdec__draft_row_indices_of_sequence(m, request->at);
    specdec_result result;
    double start;
    int i;

    for (i = 0; i < count; i++)
        nodes[candidates[i]] = from + i;
    start = m->short_rows ? specdec__os_monotonic_seconds() : 0;
    result = m->run_level(d, request, drafts, candidates, from, count, error);
    if (m->short_rows && !result) {
        specdec__short_vocabulary_add_level_seconds(m->short_rows, specdec__os_monotonic_seconds() - start);
        m->runs++;
    }
    for (i = 0; result && i < count; i++)
        nodes[candidates[i]] = -1;
    return result;
}

/* Chooses whether the next tree is drafted with the copied rows of the output matrix or with all rows, and updates the
   copies. */
static void specdec__levels_choose_output_rows(specdec__level_state *m, const specdec__draft_request *request)
{
    specdec__short_vocabulary *s = m->short_rows;

    specdec__short_vocabulary_note_new_tokens(s, request->at, request->text, request->count, m->vocab, m->whole);
    s->mean_levels += (m->runs + 1 - s->mean_levels) / (s->mean_levels > 0 ? 8 : 1);
    m->runs = 0;
    specdec__short_vocabulary_choose_matrix(s, 4 * request->wait_seconds);
    if (s->in_use)
        specdec__short_vocabulary_copy_rows(s);
    m->ids = s->in_use ? s->ids : NULL;
    m->id_count = s->in_use ? s->matrix.rows : 0;
    m->context->output = s->in_use ? &s->matrix : s->full_matrix;
    m->stride = (size_t)m->context->output->rows;
}

/* Begins a draft tree: row 0 of the logits becomes the root's, and no other node counts as run. */
static specdec_result specdec__draft_begin_tree(specdec__drafter *d, const specdec__draft_request *request,
                                                const specdec__draft_tree *drafts, specdec_error *error)
{
    specdec__level_state *m = (specdec__level_state *)d->state;

    memset(specdec__draft_row_indices_of_sequence(m, request->at), -1, (size_t)drafts->tree.n * sizeof *m->nodes);
    m->chooser.sampling = request->sampling;
    m->chooser.constrained = request->constrained;
    if (m->short_rows)
        specdec__levels_choose_output_rows(m, request);
    return m->begin_tree(d, request, drafts, error);
}

/* The function fill_tree of drafters that draft level by level: all nodes of a level that have children are run
   together. */
static specdec_result specdec__levels_fill_tree(specdec__drafter *d, const specdec__draft_request *request,
                                                specdec__draft_tree *drafts, specdec_error *error)
{
    specdec__level_state *m = (specdec__level_state *)d->state;
    const specdec_tree *tree = &drafts->tree;
    specdec_result result = specdec__draft_begin_tree(d, request, drafts, error);
    int32_t level[SPECDEC__MAX_TREE_NODES];
    int from, to, i, count, n = 0;

    if (result)
        return result;
    for (i = 1; i < tree->n; i++)
        drafts->tokens[i] = -1;
    specdec__draft_set_tokens_of_children(m, request, drafts, 0, 0);
    for (from = 1; from < tree->n && drafts->depth[from] < d->levels; from = to, n += count) {
        count = 0;
        for (to = from; to < tree->n && drafts->depth[to] == drafts->depth[from]; to++)
            if (drafts->tokens[to] >= 0 && specdec__tree_next_child(tree, to, to + 1) < tree->n)
                level[count++] = to;
        if (count && (result = specdec__draft_run_candidates(d, request, drafts, level, n, count, error)) != SPECDEC_OK)
            return result;
        for (i = 0; i < count; i++)
            specdec__draft_set_tokens_of_children(m, request, drafts, level[i], i);
    }
    return SPECDEC_OK;
}

/* The function extend of drafters that draft level by level: runs the root, or all chosen candidates together, and
   appends their children. */
static specdec_result specdec__levels_extend_tree(specdec__drafter *d, const specdec__draft_request *request,
                                                  specdec__draft_tree *drafts, const specdec__draft_frontier *frontier,
                                                  specdec_error *error)
{
    specdec__level_state *m = (specdec__level_state *)d->state;
    const int32_t *chosen = frontier->chosen;
    const int root = chosen[0] == 0, count = frontier->count;
    specdec_result result = root ? specdec__draft_begin_tree(d, request, drafts, error)
                                 : specdec__draft_run_candidates(d, request, drafts, chosen, drafts->extended_count,
                                                                 count, error);
    int i;

    for (i = 0; !result && i < count; i++) {
        specdec__draft_append_children(m, request, drafts, chosen[i], i);
        drafts->extended[chosen[i]] = 1;
    }
    drafts->extended_count += result || root ? 0 : count;
    return result;
}

/* Makes candidate `root` the root of a draft tree, and drops all candidates that do not descend from it. drafts->moved
   becomes the new index of each candidate. */
static void specdec__draft_reroot_tree(specdec__draft_tree *drafts, int root)
{
    int32_t *now = drafts->moved;
    const int above = drafts->depth[root];
    int i, n = 1;

    memset(now, -1, (size_t)drafts->tree.n * sizeof *now);
    now[root] = 0;
    drafts->tokens[0] = drafts->tokens[root];
    for (i = root + 1; i < drafts->tree.n; i++) {
        const int parent = now[drafts->tree.parents[i]];

        if (parent < 0)
            continue;
        specdec__tree_put_node(&drafts->tree, n, parent, drafts->tree.ranks[i]);
        drafts->tokens[n] = drafts->tokens[i];
        drafts->depth[n] = drafts->depth[i] - above;
        drafts->share[n] = drafts->share[i];
        drafts->extended[n] = drafts->extended[i];
        now[i] = n++;
    }
    drafts->tree.n = n;
}

/* Makes candidate `root` the root of the draft tree of sequence `at`, as specdec__draft_reroot_tree does, and moves the
   candidates' indices in m->nodes likewise. */
static void specdec__levels_reroot_tree(specdec__level_state *m, int at, specdec__draft_tree *drafts, int root)
{
    int32_t *nodes = specdec__draft_row_indices_of_sequence(m, at);
    const int known = drafts->tree.n;
    int i;

    specdec__draft_reroot_tree(drafts, root);
    for (i = root + 1; i < known; i++)
        if (drafts->moved[i] >= 0)
            nodes[drafts->moved[i]] = nodes[i];
    nodes[0] = -1;
}

/* Makes candidates[count] nodes of the run that a drafter's context makes next, with their tokens and parents, from
   node number `from` on. */
static void specdec__levels_put_candidates_into_step(const specdec__level_state *m, specdec__context *c, int at,
                                                     const specdec__draft_tree *drafts, const int32_t *candidates,
                                                     int from, int count)
{
    int i;

    for (i = 0; i < count; i++) {
        const int parent = drafts->tree.parents[candidates[i]];

        c->tokens[from + i] = drafts->tokens[candidates[i]];
        c->parents[from + i] = parent ? specdec__draft_row_indices_of_sequence(m, at)[parent] : -1;
    }
}

/* Checks that a drafter's model has the vocabulary of the target. */
static specdec_result specdec__levels_check_vocabulary(const specdec__drafter *d, const specdec__model *target,
                                                       specdec_error *error)
{
    uint32_t different = 0;

    if (specdec__vocab_compare(&target->vocab, &d->model->vocab, &different) != SPECDEC__VOCAB_DIFFERENT)
        return SPECDEC_OK;
    return specdec__fail(error, SPECDEC_ERROR_MISMATCH, "the draft model has another vocabulary: %d tokens, the "
                         "target %d; they first differ at token %u", d->model->vocab_size, target->vocab_size,
                         different);
}

/* Takes the memory of the state common to drafters that draft level by level from an arena. model: the drafter's. */
static void specdec__levels_init(specdec__level_state *m, const specdec__model *model,
                                 const specdec__draft_setup *setup, specdec__arena *arena)
{
    const specdec__model *target = setup->target->model;
    int i;

    m->trust = NULL;
    m->short_rows = NULL;
    m->vocab = specdec__min_int(target->vocab_size, model->vocab_size);
    m->vocab_rows = target->vocab_size;
    m->chooser.kernels = setup->target->kernels;
    m->chooser.vocab = &target->vocab;
    m->chooser.surprise = 0;
    m->chooser.items = SPECDEC__TAKE(arena, specdec_candidate, m->vocab);
    m->ids = model->ids;
    m->id_count = model->id_count;
    m->whole = m->id_count ? SPECDEC__TAKE(arena, float, m->vocab) : NULL;
    for (i = 0; m->whole && i < m->vocab; i++)
        m->whole[i] = specdec__float_from_bits(0xff800000u);
    m->capacity = setup->capacity;
    m->nodes = SPECDEC__TAKE(arena, int32_t, (size_t)setup->room->max_views * (size_t)m->capacity);
}

/* Returns how many bytes of weights a level of a draft tree reads, with all rows of the output matrix. */
static size_t specdec__levels_weight_bytes_of_level(const specdec__model *model, const specdec__model *target)
{
    return model->weight_bytes + (model->output.type ? 0 : target->output.row_bytes * (size_t)target->output.rows);
}

/* Returns the estimated cost of drafting a level, in plain steps, by bytes of weights. It is less with a short
   vocabulary. */
static double specdec__levels_level_cost(const specdec__drafter *d, const specdec__model *target)
{
    const specdec__level_state *m = (const specdec__level_state *)d->state;
    double bytes = (double)specdec__levels_weight_bytes_of_level(d->model, target);

    if (m && m->short_rows)
        bytes -= (double)m->short_rows->full_matrix->row_bytes *
                 (m->short_rows->full_matrix->rows - m->short_rows->matrix.rows);
    return bytes / (double)target->weight_bytes;
}

/* Sets the columns that all kinds of drafters have in common which draft level by level. */
static void specdec__levels_write_kind(specdec__drafter_kind *kind)
{
    kind->draws = 1;
    kind->fill_tree = specdec__levels_fill_tree;
    kind->extend_tree = specdec__levels_extend_tree;
    kind->level_cost = specdec__levels_level_cost;
}

/* Takes the memory of a short vocabulary from an arena, if one may pay or the configuration asks for it. */
static void specdec__levels_allocate_short_vocabulary(specdec__level_state *m, specdec__context *c,
                                                      const specdec__draft_setup *setup, specdec__arena *arena)
{
    const specdec__model *target = setup->target->model;
    const size_t level = specdec__levels_weight_bytes_of_level(c->model, target);
    const int rows = m->id_count
                         ? 0
                         : specdec__short_vocabulary_count_rows_to_copy(c->output, setup->config->draft_vocabulary,
                                                                        level);
    specdec__short_vocabulary counted, *s;
    int i;

    m->short_rows = NULL;
    if (!rows)
        return;
    s = SPECDEC__TAKE(arena, specdec__short_vocabulary, 1);
    m->short_rows = s;
    memset(&counted, 0, sizeof counted);
    specdec__short_vocabulary_init(s ? s : &counted, c->output, rows, setup->room->max_views, level, &target->vocab,
                                   arena);
    if (s)
        s->always_in_use = setup->config->draft_vocabulary > 0;
    m->context = c;
    m->whole = SPECDEC__TAKE(arena, float, m->vocab);
    for (i = 0; m->whole && i < m->vocab; i++)
        m->whole[i] = specdec__float_from_bits(0xff800000u);
}

SPECDEC__FOR_SPEED
