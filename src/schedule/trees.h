/* =====================================================================================================================
 * >>schedule/trees: drafters are asked, what they propose is merged, and several sequences share the nodes of a step.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "../speculation/tree.h"
#include "../speculation/constrained.h"
#include "../speculation/draft.h"
#include "../speculation/tune.h"
#include "../engine/engine.h"
#include "../engine/layout.h"
#include "stop.h"
#include "plan.h"
#include "speculate.h"
#include "ahead.h"

SPECDEC__FOR_SIZE

/* Returns whether a level of a drafter's tree costs less than the share SPECDEC__TUNE_CHEAP_LEVEL of a plain step. Then
   the drafter drafts at every step, and the tree that it drafted decides whether the tree is verified. grows 1: its
   trees grow level by level; behind: tokens of the sequence that it has to prefill first. */
static int specdec__engine_drafter_level_is_cheap(const specdec__engine *e, int drafter, int grows, int behind,
                                                  const specdec__tree_plan *plan)
{
    const specdec__tune_drafter *known = &e->tune->drafters[drafter];

    return !e->drafters[drafter].kind.level_cost ||
           (grows && behind <= SPECDEC__TUNE_CATCH_UP_TOKENS && !plan->fixed &&
            specdec__tune_draft_level_seconds(known, plan->times[1]) < SPECDEC__TUNE_CHEAP_LEVEL * plan->times[1]);
}

/* Asks a drafter for draft tokens of a sequence, if they are expected to raise the tokens a second. plan->rate becomes
   the best rate of the drafters asked so far. */
static specdec_result specdec__engine_ask_drafter(specdec *t, int drafter, specdec__tree_plan *plan)
{
    specdec__engine *e = t->engine;
    specdec__drafter *d = &e->drafters[drafter];
    specdec__proposal *p = &d->proposals[t->at];
    double rate = 0;
    specdec_result result;
    int levels, readable, behind, fresh, light;

    p->frontier.grows =
        d->kind.extend_tree && (specdec__engine_trees_grow_by_level(&e->config) ||
                                           specdec__async_is_drafting(e, d));
    if (specdec__async_is_drafting(e, d))
        return specdec__async_make_tree(t, drafter, plan);
    p->frontier.shares = p->frontier.grows || !d->kind.level_cost;
    behind = d->kind.count_unprefilled ? d->kind.count_unprefilled(d, t->at, t->count) : 0;
    fresh = t->count - behind < t->answer_from;
    light = specdec__engine_drafter_level_is_cheap(e, drafter, p->frontier.grows, behind, plan);
    if ((d->kind.can_draft && !d->kind.can_draft(d, t->at, t->count)) ||
        (!plan->fixed && specdec__tune_drafter_skips_rate_estimate(e->tune, drafter, t->count)) ||
        (!light && !specdec__engine_shape_draft_tree(t, drafter, behind, plan)))
        return SPECDEC_OK;
    p->request.wait_seconds = SPECDEC__TUNE_WAIT_SHARE * specdec__tune_plain_step_seconds(e->tune) / e->member_count;
    readable = d->kind.prefill ? specdec__engine_most_drafter_prefill_tokens(t, drafter, behind) : behind;
    if (readable < behind)
        return specdec__engine_prefill_drafter(t, drafter, behind, readable);
    specdec__tune_start_draft_clock(&p->cost);
    result = p->frontier.grows ? specdec__engine_grow_tree(t, drafter, plan, &levels, &rate)
                      : specdec__engine_draft_whole_tree(t, drafter, plan, &levels, &rate);
    if (!result && light && p->outcome.kept_count > 1) {
        if (specdec__tune_drafter_must_rest(e->tune, drafter, plan, rate))
            specdec__draft_select_first_candidates(p, 1);
        else if (rate > plan->rate)
            plan->rate = rate;
    }
    specdec__tune_stop_draft_clock(e->tune, drafter, &p->cost, result ? 0 : levels, behind, fresh);
    return result;
}

/* Makes the tree that the step verifies for a sequence: asks all drafters, the last of the list first, and merges their
   trees. speculate 0: asks no drafter; the tree is the root. A drafter whose cache is full proposes nothing. */
static specdec_result specdec__engine_make_sequence_tree(specdec *t, specdec__tree_plan *plan, int speculate)
{
    specdec__engine *e = t->engine;
    specdec_result result = SPECDEC_OK;
    int i;

    specdec__constrained_commit_state(&t->constrained, t->tokens, t->count);
    for (i = 0; i < e->drafter_count; i++) {
        specdec__draft_begin_proposal(&e->drafters[i].proposals[t->at], t->tokens, t->count, &t->settings.sampling,
                                      specdec__engine_verification_rule(e, t));
        e->drafters[i].proposals[t->at].request.constrained = specdec__stream_get_constrained(t);
    }
    for (i = e->drafter_count; speculate && !result && i-- > 0;) {
        result = specdec__engine_ask_drafter(t, i, plan);
        if (result == SPECDEC_ERROR_FULL) {
            e->drafters[i].proposals[t->at].drafts.tree.n = 1;
            specdec__draft_select_first_candidates(&e->drafters[i].proposals[t->at], 1);
            result = SPECDEC_OK;
        }
    }
    specdec__draft_merge_trees(&t->merged, e->drafters, e->drafter_count, t->at, t->tokens[t->count - 1],
                               speculate ? plan->most : 1);
    return result;
}

/* Returns the probability that node i of a sequence's tree is accepted, by the measured acceptance of one drafter,
   which proposed the node as draft token `candidate`. m->worth holds the probability of the node's parent. */
static double specdec__engine_node_probability_by_drafter(const specdec *t, int i, int drafter, int candidate)
{
    const specdec__engine *e = t->engine;
    const specdec__merged_tree *m = &t->merged;
    const specdec__proposal *p = &e->drafters[drafter].proposals[t->at];
    double chance[SPECDEC__TUNE_RANKS];

    if (p->frontier.shares)
        return (double)p->frontier.probability[candidate];
    specdec__tune_acceptance_by_rank(&e->tune->drafters[drafter], chance);
    return (double)m->worth[m->tree.parents[i]] *
           chance[specdec__min_int(p->drafts.tree.ranks[candidate], SPECDEC__TUNE_RANKS) - 1];
}

/* Returns the probability that node i of a sequence's tree is accepted, from those by all drafters that proposed it,
   taken as independent; at most its parent's. For children drawn without replacement it is also at most that of the
   sibling drawn before, which is verified first. */
static float specdec__engine_node_probability(const specdec *t, int i)
{
    const specdec__engine *e = t->engine;
    const specdec__merged_tree *m = &t->merged;
    const int parent = m->tree.parents[i];
    int k, candidate, above = parent;
    double missed = 1;

    for (k = 0; k < e->drafter_count; k++)
        if ((candidate = specdec__draft_candidate_of_node(&e->drafters[k].proposals[t->at].outcome, i)) > 0)
            missed *= 1 - specdec__engine_node_probability_by_drafter(t, i, k, candidate);
    if (specdec__engine_verification_rule(e, t) == SPECDEC_RULE_SEQUOIA)
        for (above = i - 1; above > parent && m->tree.parents[above] != parent;)
            above--;
    return (float)(1 - missed) < m->worth[above] ? (float)(1 - missed) : m->worth[above];
}

/* Returns the expected tokens of a step for a sequence: 1 plus the sum of its nodes' probabilities of acceptance. */
static double specdec__engine_expected_tokens_of_sequence(specdec *t)
{
    specdec__merged_tree *m = &t->merged;
    double tokens = 1;
    int i;

    m->worth[0] = 1;
    for (i = 1; i < m->tree.n; i++) {
        m->worth[i] = specdec__engine_node_probability(t, i);
        tokens += (double)m->worth[i];
    }
    return tokens;
}

/* Prunes the trees of all sequences in the step: keeps the most probable draft tokens, as many as give the step the
   most tokens a second. times (nodes): seconds of a step. */
static SPECDEC__NOINLINE void specdec__engine_prune_trees(specdec__engine *e, const double *times)
{
    const int base = e->roots + e->prefill_nodes;
    double worth[SPECDEC__MAX_TREE_NODES + 1], rate;
    specdec__tree_plan plan;
    int i, k, held = 1, left;

    plan.most = specdec__engine_most_nodes_of_step(e) - base + 1;
    plan.other_tokens = e->roots - 1;
    for (i = 1; i <= plan.most; i++)
        plan.times[i] = times[base + i - 1];
    worth[0] = 1;
    for (k = 0; k < e->member_count; k++) {
        specdec__merged_tree *m = &e->members[k]->merged;

        m->worth[0] = 1;
        for (i = 1; i < m->tree.n; i++) {
            m->worth[i] = specdec__engine_node_probability(e->members[k], i);
            held = specdec__tune_insert_into_largest(worth, held, plan.most, (double)m->worth[i]);
        }
    }
    left = specdec__tune_best_node_count(&plan, worth, held, 0, &rate) - 1;
    for (k = 0, rate = worth[left]; k < e->member_count; k++)
        left -= specdec__draft_prune_tree(&e->members[k]->merged, e->drafters, e->drafter_count, e->members[k]->at,
                                          (float)rate, left);
}

/* Makes the token trees of all sequences in the step, one after the other. Each plan counts the nodes, seconds and
   expected tokens of the trees before it. */
static SPECDEC__NOINLINE void specdec__engine_draft_trees(specdec__engine *e)
{
    const int least = e->roots + e->prefill_nodes;
    double times[SPECDEC__MAX_TREE_NODES + 1], others = e->roots - 1, spent = 0;
    int i, base = least, kept = 0;
    specdec__tree_plan plan;

    if (SPECDEC__HAS_THREADS && e->async_drafting->drafter)
        specdec__async_begin_step(e);
    times[1] = 0;
    if (e->drafter_count)
        specdec__tune_estimate_times(e->tune, times,
                                     e->member_count > 1
                                         ? SPECDEC__MAX_TREE_NODES
                                         : specdec__min_int(SPECDEC__MAX_TREE_NODES, least + e->config.tree_size));
    for (i = 0; i < e->member_count; i++) {
        specdec *t = e->members[i];
        const double start = specdec__os_monotonic_seconds();
        const int speculate = t->decodes && specdec__engine_plan_tree(t, times, base, others, spent, &plan);
        specdec_result result;

        e->pool.cancel = &t->cancel;
        result = specdec__engine_make_sequence_tree(t, &plan, speculate);
        if (result) {
            specdec__engine_fail_sequence(t, result);
            specdec__engine_remove_sequence_from_step_totals(e, t);
            continue;
        }
        e->members[kept++] = t;
        if (t->merged.tree.n == 1)
            continue;
        spent += specdec__os_monotonic_seconds() - start;
        base += t->merged.tree.n - 1;
        if (!plan.fixed && plan.rate > plan.plain_rate) /* expected tokens of its tree */
            others = plan.rate * plan.times[t->merged.tree.n] - 1;
    }
    e->member_count = kept;
    if ((SPECDEC__HAS_MANY_SEQUENCES || SPECDEC__OTHER_DRAFTERS) && (kept > 1 || e->drafter_count > 1) &&
        base > least && !specdec__engine_tree_is_fixed(e))
        specdec__engine_prune_trees(e, times);
}

SPECDEC__FOR_SPEED
