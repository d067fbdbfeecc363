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

/* The common part of drafters that make one run for each level of a tree. Their state begins with it. */
typedef struct specdec__levels {
    specdec__chooser chooser;
    int vocab;         /* tokens that may be proposed: those that target and drafter share */
    int vocab_rows;    /* floats of a row of request->distributions: the target's vocabulary */
    specdec__short *own; /* the rows of a short vocabulary; NULL: it is the file's, or there is none. Then also */
    specdec__context *context; /* of the drafter's model */
    const int32_t *ids; /* (id_count): the tokens of a row of logits; NULL: all, in order */
    int id_count;
    float *whole;      /* (vocab) a row of logits with all tokens, where rows have fewer: -infinity for the others */
    int runs;          /* levels of the current tree that were run, without the root */
    int32_t *nodes;    /* (sequences, capacity): the index of a candidate among those that were run; -1: not run */
    int capacity;
    const float *logits; /* rows of the last run, `stride` floats apart */
    size_t stride;
    const float *trust;  /* of each row: the drafter's probability that the row is right; NULL: it has none */
    /* Begins a tree; row 0 becomes that of the root. */
    specdec_result (*begin)(specdec__drafter *drafter, const specdec__draft_request *request,
                            const specdec__draft_tree *drafts, specdec_error *error);
    /* Runs candidates[count] of one level, which get the indices from `from` on; row i is that of candidates[i]. */
    specdec_result (*run)(specdec__drafter *drafter, const specdec__draft_request *request,
                          const specdec__draft_tree *drafts, const int32_t *candidates, int from, int count,
                          specdec_error *error);
} specdec__levels;

/* Prepares a row of logits (vocab) for sampling behind text (count), without the tokens that the constraint forbids. */
static void specdec__chooser_row(const specdec__chooser *chooser, specdec__row *row, const float *logits, int vocab,
                                 const int32_t *text, int count)
{
    const int limited = specdec__constrained_is(chooser->constrained);
    int32_t lowest = 0;

    if (limited)
        logits = specdec__constrained_row(chooser->constrained, logits, vocab, text, count, &lowest);
    specdec__row_init(row, chooser, logits, vocab, text, count);
    if (limited && !(row->temperature > 0) && row->candidates.count == 1 &&
        !specdec__masker_has(chooser->constrained->masker, row->candidates.items[0].token))
        row->candidates.items[0].token = lowest; /* biases forbid all that may follow */
}

/* The k best tokens of a row of logits (vocab), best first, forbidden ones included. */
static int specdec__choose_any(const specdec__chooser *chooser, const float *logits, int vocab, const int32_t *text,
                               int count, int k, specdec_candidate *best)
{
    const specdec_sampling *s = chooser->sampling;
    specdec__row row;

    if (!(s->temperature > 0) && !specdec__sample_alters(s))
        return specdec__sample_greedy(chooser->kernels, logits, vocab, k, best);
    specdec__row_init(&row, chooser, logits, vocab, text, count);
    return specdec__row_top(&row, s->seed, (uint64_t)count, k, best);
}

/* The k best tokens of a row that the constraint allows. The best tokens are checked one by one, unless samplers cut
   the list of candidates, or too few of those tokens are allowed: then the row is masked first. */
static int specdec__choose_allowed(const specdec__chooser *chooser, const float *logits, int vocab,
                                   const int32_t *text, int count, int k, specdec_candidate *best)
{
    specdec__constrained *c = chooser->constrained;
    const specdec_sampling *s = chooser->sampling;
    const int asked = specdec__min_int(k, SPECDEC__MAX_CHILDREN) + SPECDEC__CONSTRAINED_ASKED;
    specdec_candidate candidates[SPECDEC__MAX_CHILDREN + SPECDEC__CONSTRAINED_ASKED];
    const int32_t forced = specdec__constrained_forced(c, text, count);
    specdec__row row;
    int found, i;

    if (forced >= 0 && forced < vocab) {
        best[0].token = forced;
        best[0].logit = 0;
        return 1;
    }
    if (!c->allow && !specdec__sample_filters(s)) {
        found = specdec__choose_any(chooser, logits, vocab, text, count, asked, candidates);
        found = specdec__constrained_keep(c, text, count, found, k, candidates);
        memcpy(best, candidates, (size_t)found * sizeof *best);
        if (found == k)
            return found;
    }
    specdec__chooser_row(chooser, &row, logits, vocab, text, count);
    found = specdec__row_top(&row, s->seed, (uint64_t)count, specdec__min_int(k, SPECDEC__MAX_CHILDREN), best);
    for (i = 1; i < found && best[i].logit >= -SPECDEC__SAMPLE_LARGEST; i++)
        continue;
    return specdec__min_int(found, i);
}

/* The k best tokens of a row of logits (vocab), best first, behind recent (recent_count). The first one is the token of
   plain decoding. */
static int specdec__choose(const specdec__chooser *chooser, const float *logits, int vocab, const int32_t *recent,
                           int recent_count, int k, specdec_candidate *best)
{
    return specdec__constrained_is(chooser->constrained)
               ? specdec__choose_allowed(chooser, logits, vocab, recent, recent_count, k, best)
               : specdec__choose_any(chooser, logits, vocab, recent, recent_count, k, best);
}

/* Writes the tokens on the path from the root (excluded) to a node behind the sequence. Returns the length of sequence
   and path. */
static int specdec__draft_path(const specdec__draft_request *request, const specdec__draft_tree *drafts, int node)
{
    int length = request->count + drafts->depth[node], at;

    for (at = node; at > 0; at = drafts->tree.parents[at])
        request->text[request->count + drafts->depth[at] - 1] = drafts->tokens[at];
    return length;
}

SPECDEC__INLINE int32_t *specdec__draft_nodes(const specdec__levels *m, int at)
{
    return m->nodes + (size_t)at * (size_t)m->capacity;
}

/* The index of a candidate's parent among the rows that were run: 0: the root; else 1 + its node. */
SPECDEC__INLINE int specdec__draft_place(const specdec__levels *m, int at, const specdec__draft_tree *drafts,
                                         int candidate)
{
    const int parent = drafts->tree.parents[candidate];

    return parent ? 1 + specdec__draft_nodes(m, at)[parent] : 0;
}

/* Row i of the last run, with logits for all tokens; those that a short vocabulary lacks have -infinity. */
static const float *specdec__draft_row(const specdec__levels *m, int i)
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

/* The seed by which `rank` children are drawn for a rule of rejection. It differs from the target's. */
static uint64_t specdec__draft_seed(const specdec_sampling *s, specdec_rule rule, int rank)
{
    const uint64_t seed = s->seed ^ 0x6a09e667f3bcc909u;

    return rule == SPECDEC_RULE_SEQUOIA ? seed : seed + (uint64_t)rank * 0x9e3779b97f4a7c15u;
}

/* Draws `count` children of a node for a rule of rejection, and stores the distribution that they were drawn from.
   Without replacement, tokens of probability 0 are left out. Returns how many there are. */
static int specdec__draft_draw(specdec__levels *m, const specdec__draft_request *request, int node, const float *logits,
                               int length, int count, specdec_candidate *best)
{
    const specdec_sampling *s = m->chooser.sampling;
    float *q = request->distributions + (size_t)node * (size_t)m->vocab_rows;
    specdec__row row;
    int i, found, drawn = 0;

    specdec__chooser_row(&m->chooser, &row, logits, m->vocab, request->text, length);
    specdec__row_weights(&row, q);
    if (request->rule == SPECDEC_RULE_SEQUOIA) {
        found = specdec__row_top(&row, specdec__draft_seed(s, request->rule, 1), (uint64_t)length, count, best);
        for (i = 0; i < found; i++)
            if (q[best[i].token] > 0)
                best[drawn++] = best[i];
        return drawn;
    }
    for (i = 0; i < count; i++)
        specdec__row_top(&row, specdec__draft_seed(s, request->rule, i + 1), (uint64_t)length, 1, &best[i]);
    return count;
}

/* The draft's most probable tokens, penalties included: the children for top-k verification. */
static int specdec__draft_likeliest(specdec__levels *m, const specdec__draft_request *request, const float *logits,
                                    int length, int count, specdec_candidate *best)
{
    specdec_candidates candidates;
    int32_t lowest;

    if (specdec__constrained_is(request->constrained))
        logits = specdec__constrained_row(request->constrained, logits, m->vocab, request->text, length, &lowest);
    candidates.items = m->chooser.items;
    if (specdec_sample_filter(&candidates, m->chooser.sampling, logits, m->vocab, request->text, length, NULL))
        return 0;
    candidates.greedy = 1;
    return specdec_sample_top(&candidates, 0, 0, count, best);
}

/* The tokens that become children of a node under the request's rule. length: of the sequence and the path. Returns
   how many there are. */
static int specdec__draft_best(specdec__levels *m, const specdec__draft_request *request, int node, const float *logits,
                               int length, int count, specdec_candidate *best)
{
    if (!SPECDEC__VERIFIERS || request->rule == SPECDEC_RULE_COUPLED)
        return specdec__choose(&m->chooser, logits, m->vocab, request->text, length, count, best);
    return request->rule == SPECDEC_RULE_TOP_K ? specdec__draft_likeliest(m, request, logits, length, count, best)
                                               : specdec__draft_draw(m, request, node, logits, length, count, best);
}

/* Chooses the children of a node from row `at` of the last run. */
static void specdec__draft_children(specdec__levels *m, const specdec__draft_request *request,
                                    specdec__draft_tree *drafts, int node, int at)
{
    const specdec_tree *tree = &drafts->tree;
    const float *logits = specdec__draft_row(m, at);
    specdec_candidate best[SPECDEC__MAX_CHILDREN];
    const int first = specdec__tree_child(tree, node, node + 1), length = specdec__draft_path(request, drafts, node);
    int count = 0, found, i;

    for (i = first; i < tree->n; i = specdec__tree_child(tree, node, i + 1))
        count++;
    found = specdec__draft_best(m, request, node, logits, length, specdec__min_int(count, SPECDEC__MAX_CHILDREN), best);
    for (i = first; i < tree->n; i = specdec__tree_child(tree, node, i + 1))
        drafts->tokens[i] = tree->ranks[i] <= found ? best[tree->ranks[i] - 1].token : -1;
}

/* Appends the best tokens of a row behind a node, with their shares of exp(logit), including the noise by which the
   target will choose. Not for rules that need children of a certain distribution. */
static void specdec__draft_offer(specdec__levels *m, const specdec__draft_request *request, specdec__draft_tree *drafts,
                                 int node, int row)
{
    specdec_candidate best[SPECDEC__OFFERS];
    const float *logits = specdec__draft_row(m, row);
    const int length = specdec__draft_path(request, drafts, node);
    const int most = specdec__min_int(SPECDEC__OFFERS, drafts->tree.capacity - drafts->tree.n);
    float weight[SPECDEC__OFFERS], total = 0;
    const int found = specdec__draft_best(m, request, node, logits, length, most, best);
    int i;

    for (i = 0; i < found; i++) {
        float below = best[i].logit - best[0].logit;

        weight[i] = i && !(below > -80) ? 0 : specdec__exp(i ? below : 0);
        total += weight[i];
    }
    for (i = 0; i < found; i++) {
        int at = drafts->tree.n++;

        specdec__tree_put(&drafts->tree, at, node, i + 1);
        drafts->tokens[at] = best[i].token;
        drafts->depth[at] = drafts->depth[node] + 1;
        drafts->share[at] = weight[i] / total * (m->trust ? m->trust[row] : 1);
        drafts->extended[at] = 0;
        specdec__draft_nodes(m, request->at)[at] = -1;
    }
}

/* Runs candidates behind their paths; their rows get the indices from `from` on. */
static specdec_result specdec__draft_run(specdec__drafter *d, const specdec__draft_request *request,
                                         const specdec__draft_tree *drafts, const int32_t *candidates, int from,
                                         int count, specdec_error *error)
{
    specdec__levels *m = (specdec__levels *)d->state;
    int32_t *nodes = specdec__draft_nodes(m, request->at);
    specdec_result result;
    double start;
    int i;

    for (i = 0; i < count; i++)
        nodes[candidates[i]] = from + i;
    start = m->own ? specdec__os_seconds() : 0;
    result = m->run(d, request, drafts, candidates, from, count, error);
    if (m->own && !result) {
        specdec__short_see(m->own, specdec__os_seconds() - start);
        m->runs++;
    }
    for (i = 0; result && i < count; i++)
        nodes[candidates[i]] = -1;
    return result;
}

/* Begins a tree: chooses whether it is drafted with the short vocabulary or with all rows of the output matrix. */
static void specdec__levels_shorten(specdec__levels *m, const specdec__draft_request *request)
{
    specdec__short *s = m->own;

    specdec__short_read(s, request->at, request->text, request->count, m->vocab, m->whole);
    s->levels += (m->runs + 1 - s->levels) / (s->levels > 0 ? 8 : 1);
    m->runs = 0;
    specdec__short_choose(s, 4 * request->wait_seconds);
    if (s->on)
        specdec__short_copy(s);
    m->ids = s->on ? s->ids : NULL;
    m->id_count = s->on ? s->matrix.rows : 0;
    m->context->output = s->on ? &s->matrix : s->full;
    m->stride = (size_t)m->context->output->rows;
}

/* Begins a tree: row 0 becomes the root's, and no other node has been run. */
static specdec_result specdec__draft_root(specdec__drafter *d, const specdec__draft_request *request,
                                          const specdec__draft_tree *drafts, specdec_error *error)
{
    specdec__levels *m = (specdec__levels *)d->state;

    memset(specdec__draft_nodes(m, request->at), -1, (size_t)drafts->tree.n * sizeof *m->nodes);
    m->chooser.sampling = request->sampling;
    m->chooser.constrained = request->constrained;
    if (m->own)
        specdec__levels_shorten(m, request);
    return m->begin(d, request, drafts, error);
}

/* The fill of drafters by levels: all nodes of a level that have children are run together. */
static specdec_result specdec__draft_levels_fill(specdec__drafter *d, const specdec__draft_request *request,
                                                 specdec__draft_tree *drafts, specdec_error *error)
{
    specdec__levels *m = (specdec__levels *)d->state;
    const specdec_tree *tree = &drafts->tree;
    specdec_result result = specdec__draft_root(d, request, drafts, error);
    int32_t level[SPECDEC__MAX_TREE];
    int from, to, i, count, n = 0;

    if (result)
        return result;
    for (i = 1; i < tree->n; i++)
        drafts->tokens[i] = -1;
    specdec__draft_children(m, request, drafts, 0, 0);
    for (from = 1; from < tree->n && drafts->depth[from] < d->levels; from = to, n += count) {
        count = 0;
        for (to = from; to < tree->n && drafts->depth[to] == drafts->depth[from]; to++)
            if (drafts->tokens[to] >= 0 && specdec__tree_child(tree, to, to + 1) < tree->n)
                level[count++] = to;
        if (count && (result = specdec__draft_run(d, request, drafts, level, n, count, error)) != SPECDEC_OK)
            return result;
        for (i = 0; i < count; i++)
            specdec__draft_children(m, request, drafts, level[i], i);
    }
    return SPECDEC_OK;
}

/* The extend of drafters by levels: runs the root, or all chosen candidates together. */
static specdec_result specdec__draft_levels_extend(specdec__drafter *d, const specdec__draft_request *request,
                                                   specdec__draft_tree *drafts, const specdec__draft_frontier *frontier,
                                                   specdec_error *error)
{
    specdec__levels *m = (specdec__levels *)d->state;
    const int32_t *chosen = frontier->chosen;
    const int root = chosen[0] == 0, count = frontier->count;
    specdec_result result = root ? specdec__draft_root(d, request, drafts, error)
                                 : specdec__draft_run(d, request, drafts, chosen, drafts->extended_count, count, error);
    int i;

    for (i = 0; !result && i < count; i++) {
        specdec__draft_offer(m, request, drafts, chosen[i], i);
        drafts->extended[chosen[i]] = 1;
    }
    drafts->extended_count += result || root ? 0 : count;
    return result;
}

/* Makes a candidate the root, and drops all that do not descend from it. */
static void specdec__draft_reroot(specdec__draft_tree *drafts, int root)
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
        specdec__tree_put(&drafts->tree, n, parent, drafts->tree.ranks[i]);
        drafts->tokens[n] = drafts->tokens[i];
        drafts->depth[n] = drafts->depth[i] - above;
        drafts->share[n] = drafts->share[i];
        drafts->extended[n] = drafts->extended[i];
        now[i] = n++;
    }
    drafts->tree.n = n;
}

/* As specdec__draft_reroot, for candidates that are nodes of a drafter's context. */
static void specdec__levels_reroot(specdec__levels *m, int at, specdec__draft_tree *drafts, int root)
{
    int32_t *nodes = specdec__draft_nodes(m, at);
    const int known = drafts->tree.n;
    int i;

    specdec__draft_reroot(drafts, root);
    for (i = root + 1; i < known; i++)
        if (drafts->moved[i] >= 0)
            nodes[drafts->moved[i]] = nodes[i];
    nodes[0] = -1;
}

/* Makes candidates nodes of a drafter's context, from number `from` on. */
static void specdec__levels_put(const specdec__levels *m, specdec__context *c, int at,
                                const specdec__draft_tree *drafts, const int32_t *candidates, int from, int count)
{
    int i;

    for (i = 0; i < count; i++) {
        const int parent = drafts->tree.parents[candidates[i]];

        c->tokens[from + i] = drafts->tokens[candidates[i]];
        c->parents[from + i] = parent ? specdec__draft_nodes(m, at)[parent] : -1;
    }
}

/* Checks that a model has the target's vocabulary. */
static specdec_result specdec__levels_vocabulary(const specdec__drafter *d, const specdec__model *target,
                                                 specdec_error *error)
{
    uint32_t different = 0;

    if (specdec__vocab_compare(&target->vocab, &d->model->vocab, &different) != SPECDEC__VOCAB_DIFFERENT)
        return SPECDEC_OK;
    return specdec__fail(error, SPECDEC_ERROR_MISMATCH, "the draft model has another vocabulary: %d tokens, the "
                         "target %d; they first differ at token %u", d->model->vocab_size, target->vocab_size,
                         different);
}

/* Takes the memory of a drafter by levels. */
static void specdec__levels_init(specdec__levels *m, const specdec__model *model, const specdec__draft_setup *setup,
                                 specdec__arena *arena)
{
    const specdec__model *target = setup->target->model;
    int i;

    m->trust = NULL;
    m->own = NULL;
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

/* Bytes of weights that a level uses, with all rows of the output matrix. */
static size_t specdec__levels_bytes(const specdec__model *model, const specdec__model *target)
{
    return model->weight_bytes + (model->output.type ? 0 : target->output.row_bytes * (size_t)target->output.rows);
}

/* The cost of a level in plain steps, by bytes of weights; less with a short vocabulary. */
static double specdec__levels_cost(const specdec__drafter *d, const specdec__model *target)
{
    const specdec__levels *m = (const specdec__levels *)d->state;
    double bytes = (double)specdec__levels_bytes(d->model, target);

    if (m && m->own)
        bytes -= (double)m->own->full->row_bytes * (m->own->full->rows - m->own->matrix.rows);
    return bytes / (double)target->weight_bytes;
}

/* The columns that all drafters by levels have in common. */
static void specdec__levels_kind(specdec__drafter_kind *kind)
{
    kind->draws = 1;
    kind->fill = specdec__draft_levels_fill;
    kind->extend = specdec__draft_levels_extend;
    kind->cost = specdec__levels_cost;
}

/* Takes the memory of a short vocabulary, if one may pay or the configuration asks for it. */
static void specdec__levels_take_short(specdec__levels *m, specdec__context *c, const specdec__draft_setup *setup,
                                       specdec__arena *arena)
{
    const specdec__model *target = setup->target->model;
    const size_t level = specdec__levels_bytes(c->model, target);
    const int rows = m->id_count ? 0 : specdec__short_rows(c->output, setup->config->draft_vocabulary, level);
    specdec__short counted, *s;
    int i;

    m->own = NULL;
    if (!rows)
        return;
    s = SPECDEC__TAKE(arena, specdec__short, 1);
    m->own = s;
    memset(&counted, 0, sizeof counted);
    specdec__short_init(s ? s : &counted, c->output, rows, setup->room->max_views, level, &target->vocab, arena);
    if (s)
        s->always = setup->config->draft_vocabulary > 0;
    m->context = c;
    m->whole = SPECDEC__TAKE(arena, float, m->vocab);
    for (i = 0; m->whole && i < m->vocab; i++)
        m->whole[i] = specdec__float_from_bits(0xff800000u);
}

SPECDEC__FOR_SPEED
