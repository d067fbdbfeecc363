/* =====================================================================================================================
 * >>schedule/speculate: which trees a step verifies.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "../speculation/tree.h"
#include "../speculation/draft.h"
#include "../speculation/tune.h"
#include "../engine/engine.h"
#include "../engine/layout.h"
#include "plan.h"

SPECDEC__FOR_SIZE

/* Computes the plan of a sequence's tree: its limit of nodes, and the step's times by its nodes. times (nodes): seconds
   of a step; base: nodes that the step has without draft tokens of this sequence; others: expected tokens of the other
   sequences; spent: seconds of drafting for them. Returns 0 if the sequence is not to speculate, else 1. */
static int specdec__engine_plan_tree(const specdec *t, const double *times, int base, double others, double spent,
                                     specdec__tree_plan *plan)
{
    const specdec__engine *e = t->engine;
    int i;

    plan->fixed = specdec__engine_tree_is_fixed(e);
    plan->most = specdec__min_int(plan->fixed ? e->fixed_tree.n : e->config.tree_size,
                                  specdec__engine_most_nodes_of_step(e) - base + 1);
    plan->other_tokens = others;
    if (e->config.drafting == SPECDEC_DRAFT_OFF || t->context - t->count <= e->config.tree_depth ||
        plan->most < (plan->fixed ? e->fixed_tree.n : 2) || !(times[1] > 0 || plan->fixed))
        return 0; /* the first step measures a plain step */
    for (i = 0; i <= plan->most; i++)
        plan->times[i] = plan->fixed ? 1 : i ? times[base + i - 1] + spent : 0; /* fixed: whatever they cost */
    plan->plain_rate = plan->rate = (1 + others) / plan->times[1];
    return 1;
}

/* Returns the seconds that a drafter needs to prefill the `behind` tokens of a sequence that it lacks: measured, or
   estimated from the target's prefilling. 0 for few tokens, which a draft run prefills at little cost. */
static double specdec__engine_drafter_prefill_seconds(const specdec *t, int drafter, int behind)
{
    const specdec__tune_drafter *known = &t->engine->tune->drafters[drafter];
    double each = known->token_prefill.seconds;

    if (!(each > 0) && t->stats.prompt_tokens)
        each = known->cost * t->stats.prompt_seconds / (double)t->stats.prompt_tokens;
    return behind > SPECDEC__TUNE_CATCH_UP_TOKENS ? behind * each : 0;
}

/* Builds the tree that a drafter with a cost is to fill, or decides whether a growing tree is to be drafted. behind:
   tokens of the sequence that the drafter lacks. Returns 0 if the drafter is not asked in this step, else 1. */
static int specdec__engine_shape_draft_tree(const specdec *t, int drafter, int behind, specdec__tree_plan *plan)
{
    const specdec__engine *e = t->engine;
    specdec__proposal *p = &e->drafters[drafter].proposals[t->at];
    specdec_tree *tree = &p->drafts.tree;
    const size_t bytes = (size_t)e->fixed_tree.n * sizeof *tree->parents;
    double rate;

    if (plan->fixed) {
        memcpy(tree->parents, e->fixed_tree.parents, bytes);
        memcpy(tree->ranks, e->fixed_tree.ranks, bytes);
        tree->n = e->fixed_tree.n;
    } else {
        rate = specdec__tune_shape_tree(&e->tune->drafters[drafter], p, plan,
                                   specdec__engine_drafter_prefill_seconds(t, drafter, behind));
        if (specdec__tune_drafter_must_rest(e->tune, drafter, plan, rate))
            tree->n = 1;
        if (tree->n > 1)
            plan->rate = rate;
    }
    return tree->n > 1;
}

/* Returns how many nodes of a proposal's tree give a step the most tokens a second (*rate). drafting: seconds spent on
   the tree. worth (plan->most): becomes the probabilities of the most probable *held nodes, falling. */
static int specdec__engine_best_node_count(const specdec__proposal *p, const specdec__tree_plan *plan, double drafting,
                                           double *worth, int *held, double *rate)
{
    int i;

    for (i = 0, *held = 0; i < p->drafts.tree.n; i++)
        if (p->frontier.probability[i] > 0)
            *held = specdec__tune_insert_into_largest(worth, *held, plan->most, (double)p->frontier.probability[i]);
    return plan->fixed ? *held : specdec__tune_best_node_count(plan, worth, *held, drafting, rate);
}

/* Chooses the draft tokens of the newest level that are extended next, into p->frontier.chosen: those whose first
   child, by the measured acceptance, would be among the verified nodes. No token is chosen if one level more would not
   raise the tokens a second. drafting: seconds so far; level: seconds of the next level. Returns how many, at most
   `room`. */
static int specdec__engine_choose_extended_nodes(specdec__proposal *p, const specdec__tune_drafter *t,
                                                 const specdec__tree_plan *plan, double drafting, double level,
                                                 int room)
{
    const specdec__draft_tree *drafts = &p->drafts;
    const float *probability = p->frontier.probability;
    double worth[SPECDEC__MAX_TREE_NODES], chance[SPECDEC__TUNE_RANKS], now = 0, then = 0, least;
    int held, count = 0, i, k, n;

    specdec__engine_best_node_count(p, plan, drafting, worth, &held, &now);
    specdec__tune_acceptance_by_rank(t, chance);
    for (i = p->frontier.level; i < drafts->tree.n; i++)
        for (k = 0; k < SPECDEC__TUNE_RANKS && !drafts->extended[i] && probability[i] > 0; k++)
            held = specdec__tune_insert_into_largest(worth, held, plan->most, (double)probability[i] * chance[k]);
    n = plan->fixed ? held : specdec__tune_best_node_count(plan, worth, held, drafting + level, &then);
    if (!plan->fixed && !(then > now * 1.01))
        return 0;
    least = worth[n - 1];
    for (i = p->frontier.level; i < drafts->tree.n && count < room; i++)
        if (!drafts->extended[i] && drafts->depth[i] + 1 < p->request.max_levels && probability[i] > 0 &&
            (double)probability[i] * chance[0] >= least)
            p->frontier.chosen[count++] = i;
    return count;
}

/* Returns how many draft tokens of a proposal may still be extended in this step. Tokens of a tree kept from an earlier
   step do not count against the limit. */
static int specdec__engine_candidates_left_to_extend(const specdec__engine *e, const specdec__proposal *p)
{
    return p->frontier.valid_at ? specdec__min_int(e->config.tree_size, e->room.step_nodes - p->drafts.extended_count)
                       : e->config.tree_size - 1 - p->drafts.extended_count;
}

/* Chooses the nodes of a draft tree that are to be verified, outcome.kept: the most probable ones, as many as give the
   most tokens a second (*rate). frontier.probability holds the probabilities of the paths. */
static specdec_result specdec__engine_keep_best_nodes(specdec *t, specdec__proposal *p, const specdec__tree_plan *plan,
                                                      double drafting, double *rate)
{
    double worth[SPECDEC__MAX_TREE_NODES];
    int held, n = specdec__engine_best_node_count(p, plan, drafting, worth, &held, rate);
    specdec_result result;

    result = specdec_tree_grow(&t->merged.tree, p->outcome.kept, p->drafts.tree.parents, p->frontier.probability,
                               p->drafts.tree.n, n, &t->error);
    p->outcome.kept_count = t->merged.tree.n; /* only the number is used: the tree is made when all have proposed */
    return result;
}

/* Drafts a tree level by level as long as the expected tokens a second (*rate) rise, and keeps its most probable nodes.
   EAGLE-2 (Li et al. 2024, arXiv 2406.16858) and OPT-Tree (Wang et al. 2024, arXiv 2406.17276); the size by the rate of
   Sequoia (Chen et al. 2024, arXiv 2402.12374): F(T) / (t(n) + d * level). *levels: becomes d, the number of levels
   drafted. */
static specdec_result specdec__engine_grow_tree(specdec *t, int drafter, const specdec__tree_plan *plan, int *levels,
                                                double *rate)
{
    specdec__engine *e = t->engine;
    specdec__drafter *d = &e->drafters[drafter];
    specdec__proposal *p = &d->proposals[t->at];
    const specdec__tune_drafter *known = &e->tune->drafters[drafter];
    const double first = plan->fixed ? 0 : specdec__tune_draft_level_seconds(known, plan->times[1]);
    const int stays = p->frontier.valid_at != 0, deepest = p->request.max_levels - 1;
    double drafting = 0, level = first;
    int count = 1;
    specdec_result result;

    if (!stays)
        p->drafts.tree.n = 1;
    p->frontier.level = 1;
    for (*levels = 0;; ++*levels, drafting += level, level = known->at_once ? 0 : first) {
        specdec__tune_set_path_probabilities(known, &p->drafts, &p->frontier, p->frontier.level, deepest);
        if (stays || *levels) /* else it is the root */
            count = specdec__engine_choose_extended_nodes(p, known, plan, drafting, level,
                                                          specdec__engine_candidates_left_to_extend(e, p));
        if (!count || *levels == deepest + stays)
            break;
        p->frontier.level = p->drafts.tree.n;
        p->frontier.count = count;
        result = d->kind.extend_tree(d, &p->request, &p->drafts, &p->frontier, &t->error);
        if (result)
            return result;
    }
    return specdec__engine_keep_best_nodes(t, p, plan, drafting, rate);
}

/* Makes a drafter draft the tokens of its whole tree at once. All nodes are kept for the target; of a tree whose shape
   the drafter chose, only the nodes that give the most tokens a second (*rate). *levels: becomes the number of levels
   drafted. */
static specdec_result specdec__engine_draft_whole_tree(specdec *t, int drafter, const specdec__tree_plan *plan,
                                                       int *levels, double *rate)
{
    specdec__drafter *d = &t->engine->drafters[drafter];
    specdec__proposal *p = &d->proposals[t->at];
    specdec_result result;

    p->request.max_nodes = plan->most;
    *levels = specdec_tree_depth(&p->drafts.tree, p->drafts.depth);
    result = d->kind.fill_tree(d, &p->request, &p->drafts, &t->error);
    if (result)
        return result;
    if (!p->frontier.shares) {
        specdec__draft_select_first_candidates(p, p->drafts.tree.n);
        return SPECDEC_OK;
    }
    specdec_tree_depth(&p->drafts.tree, p->drafts.depth);
    specdec__tune_set_path_probabilities(&t->engine->tune->drafters[drafter], &p->drafts, &p->frontier, 1,
                                         p->request.max_levels);
    return specdec__engine_keep_best_nodes(t, p, plan, 0, rate);
}

/* Returns how many tokens a drafter may prefill in this step, of the `behind` tokens of a sequence that it lacks, so
   that other sequences do not wait long. */
static int specdec__engine_most_drafter_prefill_tokens(specdec *t, int drafter, int behind)
{
    specdec__engine *e = t->engine;
    const specdec__tune_drafter *known = &e->tune->drafters[drafter];
    const double level = specdec__tune_draft_level_seconds(known, specdec__tune_plain_step_seconds(e->tune));
    const double each = known->token_prefill.seconds > 0 ? known->token_prefill.seconds : level / 10;
    double left = e->spare_seconds - level;
    int tokens = specdec__min_int(behind, e->config.batch);

    if (e->member_count == 1 || behind <= SPECDEC__TUNE_CATCH_UP_TOKENS)
        return behind;
    if (e->spare_seconds < 0 || !(each > 0))
        return tokens;
    if (!(known->token_prefill.seconds > 0))
        tokens = specdec__min_int(tokens, SPECDEC__TUNE_CATCH_UP_TOKENS);
    if (left < tokens * each)
        tokens = left > 0 ? (int)(left / each) : 0;
    if (!tokens && !(e->tune->load.rows > 0)) /* else the drafter would wait for ever */
        tokens = SPECDEC__TUNE_CATCH_UP_TOKENS;
    left -= tokens * each;
    if (tokens)
        e->spare_seconds = left > 0 ? left : 0;
    return tokens;
}

/* Makes a drafter prefill the first `tokens` of the `behind` tokens of a sequence that it lacks, and measures the
   seconds. The drafter proposes nothing in this step. */
static specdec_result specdec__engine_prefill_drafter(specdec *t, int drafter, int behind, int tokens)
{
    specdec__engine *e = t->engine;
    specdec__tune_drafter *known = &e->tune->drafters[drafter];
    specdec__drafter *d = &e->drafters[drafter];
    const double start = specdec__os_monotonic_seconds();
    specdec_result result = SPECDEC_OK;
    double seconds, level;

    d->proposals[t->at].drafts.tree.n = 1;
    if (tokens)
        result = d->kind.prefill(d, &d->proposals[t->at].request, t->count - behind + tokens, &t->error);
    if (result || !tokens)
        return result;
    seconds = specdec__os_monotonic_seconds() - start;
    level = specdec__tune_draft_level_seconds(known, specdec__tune_plain_step_seconds(e->tune));
    specdec__tune_add_time_to_mean(&known->token_prefill,
                                   (seconds - (level < 0.75 * seconds ? level : 0.75 * seconds)) / tokens);
    return SPECDEC_OK;
}

SPECDEC__FOR_SPEED
