/* =====================================================================================================================
 * >>schedule/ahead: drafting while the target verifies.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "../base/pool.h"
#include "../base/lane.h"
#include "../speculation/tree.h"
#include "../speculation/constrained.h"
#include "../speculation/draft.h"
#include "../speculation/tune.h"
#include "lane.h"
#include "../engine/engine.h"
#include "../engine/layout.h"
#include "stop.h"
#include "plan.h"
#include "speculate.h"

SPECDEC__FOR_SIZE

/* Inserts draft token i into the list chosen[count] of the draft tokens with the highest path probabilities, the most
   probable first, at most `most`. probability: path probability of each draft token. Returns the new count. */
static int specdec__async_insert_into_most_probable(const float *probability, int32_t *chosen, int count, int most,
                                                    int i)
{
    if (most < 1 || (count == most && !(probability[i] > probability[chosen[count - 1]])))
        return count;
    count += count < most;
    for (most = count - 1; most > 0 && probability[i] > probability[chosen[most - 1]]; most--)
        chosen[most] = chosen[most - 1];
    chosen[most] = i;
    return count;
}

/* Returns whether the drafter can extend a draft token now. A drafter on another rank may not have the token's children
   yet. */
static int specdec__async_can_extend(const specdec__drafter *d, const specdec__proposal *p, int candidate)
{
    return !SPECDEC__PIPE || !d->kind.can_extend || d->kind.can_extend(d, &p->request, candidate);
}

/* Chooses the draft tokens that are extended next (frontier.chosen): the most probable one, and up to three that are at
   least half as probable. now 1: only those that can be extended now. Returns how many; 0: all are less probable than
   the cutoff, or the tree is full. */
static int specdec__async_choose_draft_tokens(const specdec__async_drafting *a, specdec__proposal *p, int now)
{
    const specdec__draft_tree *drafts = &p->drafts;
    const float *probability = p->frontier.probability;
    int32_t *chosen = p->frontier.chosen;
    const int most = specdec__min_int(specdec__min_int(a->width, a->nodes - drafts->extended_count),
                                      (drafts->tree.capacity - drafts->tree.n) / SPECDEC__GROWN_CHILDREN);
    int i, count = 0;

    if (!drafts->extended[0]) {
        chosen[0] = 0;
        return !now || specdec__async_can_extend(a->drafter, p, 0);
    }
    for (i = 1; i < drafts->tree.n; i++)
        if (!drafts->extended[i] && drafts->depth[i] < a->levels && probability[i] >= a->cutoff &&
            (!now || specdec__async_can_extend(a->drafter, p, i)))
            count = specdec__async_insert_into_most_probable(probability, chosen, count, most, i);
    while (count > 1 && 2 * probability[chosen[count - 1]] < probability[chosen[0]])
        count--;
    return count;
}

/* Makes a draft run: the drafter extends the `count` draft tokens p->frontier.chosen by one level. p: the proposal of
   a->sequence, or the lane's copy of it. */
static specdec_result specdec__async_extend_draft_tokens(specdec__async_drafting *a, specdec__proposal *p,
                                                         const specdec__tune_drafter *known, int count,
                                                         specdec_error *error)
{
    const int from = p->drafts.tree.n;
    specdec_result result;

    p->frontier.count = count;
    result = a->drafter->kind.extend_tree(a->drafter, &p->request, &p->drafts, &p->frontier, error);
    if (result)
        return result;
    specdec__tune_set_path_probabilities(known, &p->drafts, &p->frontier, from, a->levels);
    a->cutoff *= SPECDEC__ASYNC_CUTOFF_GROWTH;
    return SPECDEC_OK;
}

/* The function that the drafter's lane executes during a run of the target: extends the most probable draft tokens, a
   few at a time, until it is stopped. */
static void specdec__async_draft_on_lane(void *argument)
{
    specdec__async_drafting *a = (specdec__async_drafting *)argument;
    specdec__proposal *p = &a->proposal;
    int count;

    while (a->lane.kind->may_begin_run(&a->lane) && (count = specdec__async_choose_draft_tokens(a, p, 1)) > 0) {
        const int root = p->frontier.chosen[0] == 0;
        specdec__draft_run *flight = &a->draft_runs[(a->draft_run_count + 1) % 2];

        memcpy(flight->chosen, p->frontier.chosen, (size_t)count * sizeof *p->frontier.chosen);
        flight->count = count;
        flight->nodes = p->drafts.tree.n;
        flight->begun = specdec__os_monotonic_seconds();
        SPECDEC__STORE(&a->draft_run_count, a->draft_run_count + 1);
        SPECDEC__PAUSE();
        a->result = specdec__async_extend_draft_tokens(a, p, &a->acceptance, count, &a->error);
        if (a->result)
            return;
        if (!root)
            specdec__tune_add_time_to_mean(&a->run_time, specdec__os_monotonic_seconds() - flight->begun);
    }
}

/* The function that the drafter's lane executes where the drafter lacks many tokens of the sequence: prefills these. */
static void specdec__async_prefill_on_lane(void *argument)
{
    specdec__async_drafting *a = (specdec__async_drafting *)argument;

    a->result = a->drafter->kind.prefill(a->drafter, &a->proposal.request, a->proposal.request.count, &a->error);
}

/* Starts the drafter's lane for a sequence, while the target runs: the lane extends the sequence's draft tree, or, if
   the drafter lacks many of the sequence's tokens, prefills these. */
static void specdec__async_start_lane(specdec *t)
{
    specdec__engine *e = t->engine;
    specdec__async_drafting *a = e->async_drafting;
    specdec__proposal *p = &a->drafter->proposals[t->at];

    if (a->prefills)
        return;
    if (a->sequence != t)
        a->copied = 0;
    a->sequence = t;
    memcpy(a->tokens + a->copied, t->tokens + a->copied, (size_t)(t->count - a->copied) * sizeof *a->tokens);
    a->copied = t->count;
    a->proposal = *p;
    a->proposal.request.text = a->tokens;
    a->acceptance = e->tune->drafters[a->drafter - e->drafters];
    specdec__tune_set_path_probabilities(&a->acceptance, &a->proposal.drafts, &a->proposal.frontier, 1, a->levels);
    a->cutoff = a->first_cutoff;
    a->result = SPECDEC_OK;
    a->draft_run_count = 0;
    a->usual_seconds = a->run_time.seconds;
    a->draft_runs[0].count = 0;
    a->draft_runs[0].nodes = p->drafts.tree.n;
    a->prefills = !p->drafts.extended[0] &&
                  a->drafter->kind.count_unprefilled(a->drafter, t->at, t->count) > SPECDEC__TUNE_CATCH_UP_TOKENS;
    a->drafter->kind.set_threads(a->drafter, &a->lane.job_pool, a->threads);
    specdec__lane_submit(&a->lane, a->prefills ? specdec__async_prefill_on_lane : specdec__async_draft_on_lane, a);
}

/* Finds the path of tokens[count] behind the root of a tree. held: the tokens of the tree's nodes; path (count):
   receives the path's nodes. Returns how many of the tokens were found. */
static int specdec__async_find_path_of_tokens(const specdec_tree *tree, const int32_t *held, const int32_t *tokens,
                                              int count, int32_t *path)
{
    int i, k, at = 0;

    for (i = 0; i < count; i++) {
        for (k = specdec__tree_next_child(tree, at, at + 1); k < tree->n && held[k] != tokens[i];)
            k = specdec__tree_next_child(tree, at, k + 1);
        if (k >= tree->n)
            break;
        path[i] = at = k;
    }
    return i;
}

/* Returns whether the lane's current draft run can be cancelled: none of its draft tokens can follow tokens[count],
   which the target has just decoded; or all threads would redo it in less time (`anew` seconds) than it still needs. */
static int specdec__async_may_cancel_draft_run(specdec__async_drafting *a, const specdec__proposal *p,
                                               const int32_t *tokens, int count, double anew)
{
    const specdec__draft_run *flight = &a->draft_runs[SPECDEC__LOAD(&a->draft_run_count) % 2];
    specdec_tree tree = p->drafts.tree; /* its arrays are the lane's; n is the size when the step began */
    int32_t path[SPECDEC__MAX_TREE_NODES + 1];
    int length, at, i, k;

    if (flight->count && a->usual_seconds > 0 &&
        flight->begun + a->usual_seconds > specdec__os_monotonic_seconds() + anew)
        return 1;
    tree.n = flight->nodes;
    length = specdec__async_find_path_of_tokens(&tree, p->drafts.tokens, tokens, count, path);
    at = length ? path[length - 1] : 0;
    if (length < count && specdec__tree_next_child(&tree, at, at + 1) < tree.n)
        return 1;
    for (i = 0; i < flight->count; i++) {
        for (k = flight->chosen[i]; k > at;)
            k = tree.parents[k];
        if (k == at)
            return 0;
    }
    return 1;
}

/* Moves the root of a sequence's draft tree to the last of tokens[count], which the target has just decoded. Draft
   tokens behind it are kept, all others are dropped. */
static void specdec__async_move_root(specdec *t, const int32_t *tokens, int count)
{
    specdec__async_drafting *a = t->engine->async_drafting;
    specdec__drafter *d = a->drafter;
    specdec__proposal *p = &d->proposals[t->at];
    int32_t path[SPECDEC__MAX_TREE_NODES + 1];
    const int length = specdec__async_find_path_of_tokens(&p->drafts.tree, p->drafts.tokens, tokens, count, path);

    p->frontier.valid_at = 0;
    if (length == count && p->drafts.extended[path[length - 1]] &&
        d->kind.count_unprefilled(d, t->at, t->count) <= count) {
        d->kind.keep_subtree(d, t->at, &p->drafts, path[length - 1]);
        p->frontier.valid_at = t->count;
        a->first_cutoff = SPECDEC__ASYNC_CUTOFF;
    } else {
        if (p->drafts.extended[0] && d->kind.commit_path)
            d->kind.commit_path(d, t->at, path, length);
        a->first_cutoff *= a->first_cutoff > SPECDEC__ASYNC_CUTOFF_LEAST ? SPECDEC__ASYNC_CUTOFF_DECAY : 1;
    }
}

/* Ends the drafting of the lane in a step, once the target has decoded tokens[count]: waits for the current draft run,
   or cancels it if it is useless, and keeps the draft tokens behind the last decoded one. */
static void specdec__async_finish_lane(specdec *t, const int32_t *tokens, int count)
{
    specdec__engine *e = t->engine;
    specdec__async_drafting *a = e->async_drafting;
    specdec__drafter *d = a->drafter;
    specdec__proposal *p = &d->proposals[t->at];
    const double plain = specdec__tune_plain_step_seconds(e->tune);
    double start;

    if (a->prefills)
        return;
    a->lane.kind->stop_runs(&a->lane);
    if (specdec__async_may_cancel_draft_run(a, p, tokens, count,
                                            specdec__tune_draft_level_seconds(&e->tune->drafters[d - e->drafters],
                                                                              plain)))
        specdec__lane_cancel(&a->lane);
    start = specdec__os_monotonic_seconds();
    specdec__lane_wait(&a->lane);
    t->stats.beside_seconds += specdec__os_monotonic_seconds() - start;
    d->kind.set_threads(d, &e->pool, e->config.threads);
    p->frontier.valid_at = 0;
    if (a->result && a->result != SPECDEC_ERROR_CANCELLED)
        return;
    p->drafts = a->proposal.drafts;
    specdec__async_move_root(t, tokens, count);
}

/* Makes the tree of the asynchronous drafter for a sequence in this step: the draft tokens kept from the last step, and
   further levels as long as they raise the tokens a second. The drafter proposes nothing while the lane prefills. */
static specdec_result specdec__async_make_tree(specdec *t, int drafter, specdec__tree_plan *plan)
{
    specdec__engine *e = t->engine;
    specdec__async_drafting *a = e->async_drafting;
    specdec__drafter *d = a->drafter;
    specdec__proposal *p = &d->proposals[t->at];
    double rate = 0;
    specdec_result result;
    int levels, behind, stays;

    specdec__tune_start_draft_clock(&p->cost);
    if (a->prefills && specdec__lane_has_unfinished_job(&a->lane))
        return SPECDEC_OK;
    if (a->prefills)
        specdec__async_stop_lane(a, e);
    stays = p->frontier.valid_at != 0;
    behind = stays ? 0 : d->kind.count_unprefilled(d, t->at, t->count);
    if (behind > SPECDEC__TUNE_CATCH_UP_TOKENS ||
        (!stays && !specdec__engine_shape_draft_tree(t, drafter, behind, plan))) {
        p->drafts.tree.n = stays ? p->drafts.tree.n : 1;
        return SPECDEC_OK;
    }
    result = specdec__engine_grow_tree(t, drafter, plan, &levels, &rate);
    if (rate > plan->rate)
        plan->rate = rate;
    specdec__tune_stop_draft_clock(e->tune, drafter, &p->cost, result ? 0 : levels, behind, 0);
    return result;
}

/* Returns whether a drafter may draft while the target verifies in this step: one sequence decodes, alone, with coupled
   verification and no constraint. */
static int specdec__async_may_draft_while_target_runs(const specdec__engine *e)
{
    return e->async_drafting->drafter && e->member_count == 1 && e->members[0]->decodes &&
           !e->members[0]->prefill_count &&
           specdec__engine_verification_rule(e, e->members[0]) == SPECDEC_RULE_COUPLED &&
           !specdec__constrained_limits_tokens(&e->members[0]->constrained);
}

/* Returns whether the engine itself chooses the mode of this step, synchronous or asynchronous drafting (config.async
   0). */
static int specdec__async_engine_chooses_mode(const specdec__engine *e)
{
    return SPECDEC__HAS_THREADS && !e->config.async && specdec__async_may_draft_while_target_runs(e);
}

/* Estimates the times of asynchronous steps, by number of nodes: those of synchronous steps times the measured
   slowdown. */
static void specdec__async_estimate_times(specdec__async_drafting *a, specdec__tune *tune)
{
    int i;

    a->times_estimated = 1;
    for (i = 0; i <= SPECDEC__MAX_TREE_NODES && a->slowdown > 0; i++)
        if (tune->steps[0][i].seconds > 0) {
            tune->steps[1][i].seconds = tune->steps[0][i].seconds * a->slowdown;
            tune->steps[1][i].seen = 1;
        }
}

/* Sets the mode of a step that begins: asynchronous if the lane is to draft while the target runs, otherwise
   synchronous. */
static void specdec__async_begin_step(specdec__engine *e)
{
    specdec__async_drafting *a = e->async_drafting;
    const int applies = !specdec__in_cluster(&e->config) && specdec__async_may_draft_while_target_runs(e);

    a->probe = applies && a->probe;
    a->active = applies && (e->config.async || a->mode || a->probe);
    e->tune->async = a->active && !a->probe;
    if (e->tune->async && !a->times_estimated)
        specdec__async_estimate_times(a, e->tune);
    if (a->sequence && (!a->active || a->sequence != e->members[0]))
        specdec__async_drop_drafts(a->sequence, a->copied);
}

/* Returns the seconds that the mode on trial, synchronous or asynchronous drafting, has saved so far: the time that its
   tokens take at the other mode's tokens a second, minus the time that they took. */
static double specdec__async_trial_seconds_saved(const specdec__async_drafting *a)
{
    const specdec__async_mode *tried = &a->modes[a->mode], *usual = &a->modes[!a->mode];

    return usual->tokens > 0 ? tried->tokens * usual->seconds / usual->tokens - tried->seconds : 0;
}

/* Returns whether it is time to choose between synchronous and asynchronous drafting: after a->steps_left steps, or
   when a trial has lost or won SPECDEC__ASYNC_TRIAL_SHARE of the other mode's time. So trials cost at most that share
   of all time. */
static int specdec__async_must_choose_mode(const specdec__async_drafting *a)
{
    const double saved = a->trial ? specdec__async_trial_seconds_saved(a) : 0;

    return a->steps_left <= 0 || (saved < 0 ? -saved : saved) > SPECDEC__ASYNC_TRIAL_SHARE * a->modes[!a->mode].seconds;
}

/* Computes a->slowdown and a->overlap_pace from a step that was made to measure them: its run had `width` nodes and
   took `seconds`. A draft run that was not finished counts as long as the step. */
static void specdec__async_measure_slowdown(specdec__engine *e, int width, double seconds)
{
    specdec__async_drafting *a = e->async_drafting;
    const double run = a->run_time.seconds > 0 ? a->run_time.seconds : seconds;
    double times[SPECDEC__MAX_TREE_NODES + 1];

    specdec__tune_estimate_times(e->tune, times, width);
    a->slowdown = seconds / times[width];
    a->overlap_pace = e->tune->drafters[a->drafter - e->drafters].level.seconds / run;
}

/* Returns whether asynchronous steps can be faster than synchronous ones. They save at most the drafting that the lane
   does while the target runs. They lose the slowdown of the target, which has fewer threads and less memory
   bandwidth. */
static int specdec__async_mode_may_be_faster(const specdec__async_drafting *a)
{
    const specdec__async_mode *turns = &a->modes[0];
    const double verifying = (turns->seconds - turns->drafting) * a->slowdown;
    const double left = turns->drafting - verifying * a->overlap_pace; /* drafting that the lane does not finish */

    return a->slowdown > 0 && turns->seconds > 1.02 * (verifying + (left > 0 ? left : 0));
}

/* Ends a series of steps in one mode of drafting: begins a trial of the other mode, or ends the trial and takes the
   faster mode. */
static void specdec__async_choose_mode(specdec__async_drafting *a)
{
    if (!a->trial) {
        a->steps_between = specdec__min_int(2 * a->steps_between, SPECDEC__ASYNC_TRIAL_STEPS_MOST);
        a->trial = a->mode || specdec__async_mode_may_be_faster(a);
        a->slowdown = a->trial ? a->slowdown : 0; /* measured again before the next trial */
        a->mode = a->trial ? !a->mode : a->mode;
    } else if (specdec__async_trial_seconds_saved(a) > 0) {
        a->steps_between = SPECDEC__ASYNC_TRIAL_STEPS;
        a->trial = 0;
    } else {
        a->mode = !a->mode;
        a->trial = 0;
    }
    a->steps_left = a->steps_between;
    memset(&a->modes[a->mode], 0, sizeof a->modes[0]);
}

/* Adds a step to the measurements of its mode, synchronous or asynchronous, and chooses a mode if it is time to.
   seconds: time of the step; drafting: the part of it before the target ran; tokens: as in specdec__async_mode. */
static void specdec__async_record_step(specdec__engine *e, double seconds, double drafting, double tokens)
{
    specdec__async_drafting *a = e->async_drafting;
    specdec__async_mode *seen = &a->modes[a->mode];

    if (!specdec__async_engine_chooses_mode(e) || a->probe) {
        a->probe = 0;
        return;
    }
    seen->seconds += seconds;
    seen->drafting += drafting;
    seen->tokens += tokens;
    a->steps_left--;
    if (!specdec__async_must_choose_mode(a))
        return;
    if (!a->mode && !a->trial && !(a->slowdown > 0) && seen->drafting > SPECDEC__ASYNC_DRAFTING_SHARE * seen->seconds)
        a->steps_left = a->probe = 1; /* the next step may take twice the time */
    else
        specdec__async_choose_mode(a);
}

SPECDEC__FOR_SPEED
