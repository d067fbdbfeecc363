/* =====================================================================================================================
 * >>schedule/pipe: a step with several runs on their way.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "../forward/step.h"
#include "../speculation/tree.h"
#include "../speculation/draft.h"
#include "../speculation/tune.h"
#include "../engine/stream.h"
#include "lane.h"
#include "../engine/engine.h"
#include "stop.h"
#include "plan.h"
#include "ahead.h"
#include "../engine/step.h"

SPECDEC__FOR_SIZE

/* Returns whether several runs of a sequence may be on their way in this step: the sequence decodes alone, with coupled
   verification, and no drafter needs the target's hidden states. Not in a step that leaves out a prompt: a step with
   one run measures the time without load, then prefilling continues. */
static int specdec__pipe_may_send_several_runs(const specdec__engine *e)
{
    int i;

    for (i = 0; e->pipe && i < e->drafter_count; i++)
        if (e->drafters[i].kind.receive_states)
            return 0;
    return e->pipe && !e->waiting_count && specdec__async_may_draft_while_target_runs(e);
}

/* Computes times[1..SPECDEC__PIPE_NODES]: the cost of a run by its number of nodes, in seconds of its slowest stage.
   Time above that of one node counts twice, as the run's rows also return later. Runs up to twice as wide as the widest
   measured run are assumed to cost no more than that one, wider runs are ruled out. */
static void specdec__pipe_estimate_run_costs(const specdec__pipe *pipe, double *times)
{
    int i, seen = 0;

    specdec__tune_estimate_times(&pipe->stages, times, SPECDEC__PIPE_NODES);
    for (i = 1; i <= SPECDEC__PIPE_NODES; i++)
        seen = pipe->stages.steps[0][i].seconds > 0 ? i : seen;
    for (i = seen + 1; i <= SPECDEC__PIPE_NODES; i++)
        times[i] = i <= 2 * seen ? times[seen] : 1e9;
    times[1] = seen ? times[1] : 1;
    for (i = 2; i <= SPECDEC__PIPE_NODES; i++)
        times[i] += times[i] - times[1];
}

/* Returns how many of the draft tokens chosen[count], the most probable first, the next run is to hold: as many as give
   the most tokens for its cost. pipe->least_probability becomes the probability that one node more would need. */
static int specdec__pipe_best_node_count_of_run(specdec__pipe *pipe, const specdec__proposal *p, const int32_t *chosen,
                                                int count)
{
    double worth[SPECDEC__PIPE_NODES], rate;
    specdec__tree_plan plan;
    int i, n;

    specdec__pipe_estimate_run_costs(pipe, plan.times);
    for (i = 0; i < count; i++)
        worth[i] = (double)p->frontier.probability[chosen[i]];
    plan.other_tokens = worth[0] - 1;
    n = specdec__tune_best_node_count(&plan, worth, count, 0, &rate);
    pipe->least_probability = n < SPECDEC__PIPE_NODES ? rate * (plan.times[n + 1] - plan.times[n]) : worth[n - 1];
    return n;
}

/* Chooses the nodes of the next run: the most probable draft tokens that were not sent, parents first, into `chosen`.
   Returns how many. */
static int specdec__pipe_choose_nodes(const specdec__engine *e, const specdec__proposal *p, int32_t *chosen)
{
    specdec__pipe *pipe = e->pipe;
    const int most = specdec__min_int(SPECDEC__PIPE_NODES, e->target.max_nodes - pipe->nodes);
    int i, count = 0;

    for (i = 0; i < p->drafts.tree.n && pipe->count < pipe->depth; i++)
        if (pipe->node[i] < 0 && p->frontier.probability[i] >= SPECDEC__PIPE_CUTOFF)
            count = specdec__async_insert_into_most_probable(p->frontier.probability, chosen, count, most, i);
    pipe->least_probability = 0;
    return count ? specdec__pipe_best_node_count_of_run(pipe, p, chosen, count) : 0;
}

/* Sends the draft tokens s->chosen[s->count] as a run to the target's lane. s->result becomes FULL if the cache has no
   room. */
static void specdec__pipe_send_run(specdec__pipe *pipe, specdec__step *s)
{
    const specdec__proposal *p = s->p;
    const int32_t *chosen = s->chosen;
    const int count = s->count;
    specdec__pipe_run *run = &pipe->runs[pipe->count++];
    specdec__order order;
    int i;

    memset(&order, 0, sizeof order);
    order.kind = SPECDEC__ORDER_RUN;
    order.first = pipe->nodes;
    order.n = count;
    for (i = 0; i < count; i++) {
        pipe->node[chosen[i]] = pipe->nodes + i;
        order.tokens[i] = p->drafts.tokens[chosen[i]];
        order.parents[i] = chosen[i] ? pipe->node[p->drafts.tree.parents[chosen[i]]] : -1;
        run->row[i] = i;
    }
    run->first = pipe->nodes;
    run->n = run->left = count;
    run->root = chosen[0] == 0;
    run->sent = specdec__os_monotonic_seconds();
    run->cancelled = 0;
    pipe->nodes += count;
    pipe->idle_since = 0;
    pipe->kind->submit_order(pipe, &order);
    s->result = pipe->no_room ? SPECDEC_ERROR_FULL : SPECDEC_OK;
}

/* Verifies a returned run: decodes the token of each row as long as the tokens before are nodes of the run. *order
   becomes the order that commits the keys of these nodes. */
static void specdec__pipe_verify_run(specdec *t, const specdec__proposal *p, const specdec__pipe_run *run,
                                     specdec__order *order)
{
    specdec__engine *e = t->engine;
    const specdec__pipe *pipe = e->pipe;
    const int before = t->count, drafter = (int)(e->async_drafting->drafter - e->drafters);
    int32_t path[SPECDEC__MAX_TREE_NODES + 1];
    int at = 0;

    memset(order, 0, sizeof *order);
    order->kind = SPECDEC__ORDER_KEEP;
    order->first = pipe->nodes;
    while (pipe->node[at] >= run->first && pipe->node[at] < run->first + run->left) {
        const size_t row = (size_t)run->row[pipe->node[at] - run->first] * (size_t)e->target_model->vocab_size;
        const int32_t token = specdec__engine_decode_from_logits(t, e->target.logits + row);
        const int count = t->count - before;

        order->path[order->n++] = pipe->node[at];
        specdec__tune_count_accepted_children(&e->tune->drafters[drafter], p, at, -1, token);
        if (specdec__engine_sequence_ends_or_forks(t) || specdec__stream_end_reason(t, t->count) ||
            specdec__async_find_path_of_tokens(&p->drafts.tree, p->drafts.tokens, t->tokens + before, count,
                                               path) < count)
            return;
        at = path[count - 1];
    }
}

/* Completes an order KEEP with the nodes that stay. root: the draft token that is now the last token of the sequence;
   -1: none is, and no node stays. Cancelled nodes keep their numbers and slots until half of `most` are taken: then the
   order lists the nodes that stay. */
static void specdec__pipe_choose_kept_nodes(const specdec__pipe *pipe, const specdec__proposal *p, int root, int most,
                                            specdec__order *order)
{
    const int goes_on = root >= 0 && pipe->node[root] >= 0;
    int i, at;

    order->stay = goes_on && 2 * (pipe->nodes - order->n) <= most ? -1 : 0;
    for (i = root; goes_on && order->stay >= 0 && i < p->drafts.tree.n; i++) {
        for (at = i; at > root;)
            at = p->drafts.tree.parents[at];
        if (at == root && pipe->node[i] >= 0)
            specdec__draft_insert_into_ascending_path(order->path + order->n, order->stay++, pipe->node[i]);
    }
}

/* Returns the number that a node has once an order KEEP is obeyed; -1: the order drops the node. node: the node's
   number before. */
static int specdec__pipe_new_node_number(const specdec__order *order, int node)
{
    return node < 0 || order->stay < 0 ? specdec__max_int(node - order->n, -1)
                                       : specdec__forward_index_in_path(order->path + order->n, order->stay, node);
}

/* Renumbers the nodes of a run after an order KEEP, and removes the nodes that the order drops. */
static void specdec__pipe_renumber_run(specdec__pipe_run *run, const specdec__order *order)
{
    const int first = run->first, left = run->left;
    int i, node;

    run->first = run->left = 0;
    for (i = 0; i < left; i++) {
        node = specdec__pipe_new_node_number(order, first + i);
        if (node < 0)
            continue;
        run->first = run->left ? run->first : node;
        run->row[run->left++] = run->row[i];
    }
}

/* Renumbers the nodes of all draft tokens and runs after an order KEEP, and cancels runs that have no node behind the
   sequence's last token. root: the draft token that is the new root; -1: the root was not drafted. */
static void specdec__pipe_renumber_nodes(specdec *t, specdec__proposal *p, int root, const specdec__order *order)
{
    specdec__pipe *pipe = t->engine->pipe;
    const int known = p->drafts.tree.n, node = root < 0 ? -1 : specdec__pipe_new_node_number(order, pipe->node[root]);
    int i, k, alive;

    specdec__async_move_root(t, t->tokens + t->count - order->n, order->n);
    for (i = 0; p->frontier.valid_at && i < known; i++) /* draft tokens that stay have moved to the front */
        if (p->drafts.moved[i] >= 0)
            pipe->node[p->drafts.moved[i]] = specdec__pipe_new_node_number(order, pipe->node[i]);
    p->drafts.tree.n = p->frontier.valid_at ? p->drafts.tree.n : 1;
    pipe->node[0] = node;
    for (i = 0; i < pipe->count; i++) {
        specdec__pipe_run *run = &pipe->runs[i];

        specdec__pipe_renumber_run(run, order);
        for (k = alive = 0; k < p->drafts.tree.n && node >= 0; k++)
            alive |= pipe->node[k] >= run->first && pipe->node[k] < run->first + run->left;
        if (!alive)
            specdec__pipe_cancel_run(pipe, i);
    }
    pipe->nodes = order->stay < 0 ? order->first - order->n : order->stay;
}

/* Takes the oldest run, which has returned, from the lane: verifies it, and commits and counts the accepted nodes. */
static void specdec__pipe_take_run(specdec__engine *e, specdec__step *s)
{
    specdec *t = s->t;
    specdec__proposal *p = s->p;
    specdec__pipe *pipe = e->pipe;
    const specdec__pipe_run run = pipe->runs[0];
    const specdec_result result = pipe->kind->take_run(pipe, &t->error);
    int32_t path[SPECDEC__MAX_TREE_NODES + 1];
    specdec__order order;
    int found, root;

    specdec__pipe_remove_oldest(pipe);
    s->result = run.cancelled ? SPECDEC_OK : result;
    if (result || run.cancelled)
        return;
    specdec__tune_add_time_to_mean(&pipe->round_trip, specdec__os_monotonic_seconds() - run.sent);
    if (pipe->stage_seconds > 0) {
        specdec__tune_add_step_time(&pipe->stages, run.n, pipe->stage_seconds, 0);
        specdec__tune_add_time_to_mean(&pipe->trip_ratio,
                                       (specdec__os_monotonic_seconds() - run.sent) / pipe->stage_seconds);
    }
    memset(p->outcome.merged_node, -1, (size_t)p->drafts.tree.n * sizeof *p->outcome.merged_node);
    specdec__pipe_verify_run(t, p, &run, &order);
    if (!order.n)
        return;
    specdec__tune_decay_acceptance(e->tune);
    found = specdec__async_find_path_of_tokens(&p->drafts.tree, p->drafts.tokens, t->tokens + t->count - order.n,
                                               order.n, path);
    root = found < order.n ? -1 : path[order.n - 1];
    specdec__pipe_choose_kept_nodes(pipe, p, root, e->target.max_nodes, &order);
    pipe->kind->submit_order(pipe, &order);
    specdec__pipe_renumber_nodes(t, p, root, &order);
    t->length = order.n;
    t->stats.tokens += order.n;
    t->stats.steps++;
    t->stats.steps_other_trees++; /* a run is a part of a tree */
    t->stats.steps_beside++;
    t->stats.drafted += run.n - run.root;
    t->stats.accepted += order.n - run.root;
}

/* Returns whether to make a draft run now, for the target's next run. *count becomes how many draft tokens are extended
   (frontier.chosen); 0: the cutoff has to fall first. */
static int specdec__pipe_choose_draft_tokens(const specdec__engine *e, specdec__proposal *p, int *count)
{
    const specdec__async_drafting *a = e->async_drafting;
    const double least = e->pipe->least_probability;

    *count = specdec__async_choose_draft_tokens(a, p, 1);
    if (*count)
        return !p->drafts.extended[0] || (double)p->frontier.probability[p->frontier.chosen[0]] >= least;
    return a->cutoff > SPECDEC__ASYNC_CUTOFF_LEAST && (double)a->cutoff > least;
}

/* Makes a draft run: extends the s->drafts chosen draft tokens by one level. Lowers the cutoff instead if no draft
   token was chosen. */
static void specdec__pipe_extend_drafts(specdec__engine *e, specdec__step *s)
{
    specdec__async_drafting *a = e->async_drafting;
    const double start = specdec__os_monotonic_seconds();
    const int from = s->p->drafts.tree.n;

    if (!s->drafts) {
        a->cutoff *= SPECDEC__ASYNC_CUTOFF_DECAY;
        return;
    }
    s->result = specdec__async_extend_draft_tokens(a, s->p, &e->tune->drafters[a->drafter - e->drafters], s->drafts,
                                                   &s->t->error);
    specdec__tune_add_time_to_mean(&e->pipe->draft, specdec__os_monotonic_seconds() - start);
    memset(e->pipe->node + from, -1, (size_t)(s->p->drafts.tree.n - from) * sizeof *e->pipe->node);
}

/* Returns the seconds between two runs of the target: the time of its slowest stage. */
static double specdec__pipe_seconds_between_runs(const specdec__pipe *pipe)
{
    return pipe->trip_ratio.seconds > 0 ? specdec__tune_plain_step_seconds(&pipe->stages)
                                        : pipe->round_trip.seconds / pipe->depth;
}

/* Returns the clock time, in seconds, at which the oldest run is expected to return, by its number of nodes. */
static double specdec__pipe_return_clock_of_oldest_run(const specdec__pipe *pipe)
{
    const specdec__pipe_run *run = &pipe->runs[0];
    double times[SPECDEC__PIPE_NODES + 1];

    specdec__tune_estimate_times(&pipe->stages, times, SPECDEC__PIPE_NODES);
    return run->sent +
           (pipe->trip_ratio.seconds > 0 ? pipe->trip_ratio.seconds * times[run->n] : pipe->round_trip.seconds);
}

/* Returns the seconds by which sending the chosen run is delayed, so that a draft run may add nodes to it; 0: no delay.
   A delay is worth it if the expected tokens gained, over those of the run, are more than these seconds over the time
   between two runs. Drafts of another rank are compared with the time of a stage, as they would otherwise be one run
   later. */
static double specdec__pipe_seconds_to_delay_run(const specdec__engine *e, specdec__proposal *p, const int32_t *chosen,
                                                 int count, double now)
{
    const specdec__pipe *pipe = e->pipe;
    const specdec__drafter *d = e->async_drafting->drafter;
    const specdec__tune_drafter *known = &e->tune->drafters[d - e->drafters];
    const int remote = d->kind.seconds_until_more_children != NULL;
    const double slot = specdec__pipe_seconds_between_runs(pipe);
    const double seconds = remote ? d->kind.seconds_until_more_children(d, &p->request) : pipe->draft.seconds;
    const float *probability = p->frontier.probability;
    double brings = 0, more = 0;
    int i, n;

    if (!(seconds > 0) || now - pipe->idle_since + seconds > slot)
        return 0;
    for (i = 0; i < count; i++)
        brings += (double)probability[chosen[i]];
    for (i = 0, n = specdec__async_choose_draft_tokens(e->async_drafting, p, !remote); i < n; i++) {
        const double next = (double)probability[p->frontier.chosen[i]] * known->accepted[0] / known->offered[0];

        more += next > pipe->least_probability ? next - pipe->least_probability : 0;
    }
    return more * slot > brings * seconds ? seconds : 0;
}

/* Returns the clock time, in seconds, at which the next run is to be sent: when the first stage is free, or a little
   later if the oldest run returns by then, as its tokens are worth more than that time. */
static double specdec__pipe_send_clock_of_next_run(const specdec__pipe *pipe, double now)
{
    const double takes = pipe->idle_since > 0 ? pipe->idle_since : pipe->free_at > now ? pipe->free_at : now;
    const double last = takes + SPECDEC__PIPE_WAIT_SHARE * specdec__pipe_seconds_between_runs(pipe);
    const double back = pipe->count && !pipe->runs[0].cancelled ? specdec__pipe_return_clock_of_oldest_run(pipe) : last;

    return back < last && now < last ? back > now ? back : last : takes;
}

/* Returns whether a draft run may begin although a run of `count` nodes is to be sent in `left` seconds. */
static int specdec__pipe_may_begin_draft_run(const specdec__pipe *pipe, int count, double left)
{
    return count < SPECDEC__PIPE_NODES || pipe->draft.seconds <= left;
}

/* Waits until the state of the target's lane has one of the bits s->until, or until the clock shows s->wake_at. */
static void specdec__pipe_wait_for_lane(specdec__pipe *pipe, const specdec__step *s)
{
    pipe->wake_at = s->wake_at;
    pipe->kind->wait_for_state(pipe, s->until);
    pipe->wake_at = 0;
}

/* Begins a step that makes several runs of one sequence. Draft tokens kept from earlier steps stay in the tree. */
static void specdec__pipe_begin_step(specdec__engine *e, specdec__step *s)
{
    specdec *t = e->members[0];
    specdec__pipe *pipe = e->pipe;
    specdec__async_drafting *a = e->async_drafting;
    specdec__proposal *p = &a->drafter->proposals[t->at];

    s->t = t;
    s->p = p;
    s->before = t->count;

    if (a->lane.job_pending)
        specdec__async_stop_lane(a, e);
    if (a->sequence && a->sequence != t) /* the draft model's context is needed for t */
        specdec__async_drop_drafts(a->sequence, a->copied);
    if (a->sequence != t)
        a->copied = 0;
    a->sequence = t;
    a->active = 0;
    e->pool.cancel = &t->cancel;
    e->row_0_sequence = NULL;
    specdec__draft_begin_proposal(p, t->tokens, t->count, &t->settings.sampling, SPECDEC_RULE_COUPLED);
    if (pipe->sequence != t) {
        specdec__pipe_cancel_all_runs(e);
        pipe->sequence = t;
        pipe->nodes = 0;
        memset(pipe->node, -1, (size_t)p->drafts.tree.capacity * sizeof *pipe->node);
    }
    p->frontier.grows = p->frontier.shares = 1;
    specdec__tune_set_path_probabilities(&e->tune->drafters[a->drafter - e->drafters], &p->drafts, &p->frontier, 1,
                                         a->levels);
    a->cutoff = a->first_cutoff;
}

/* Ends a step with several runs. Where the cache of the target or the drafter is full, the step is made again with one
   run. Returns the next action. */
static int specdec__pipe_end_step(specdec__engine *e, specdec__step *s)
{
    specdec *t = s->t;

    if (s->result)
        s->p->frontier.valid_at = 0;
    if (s->result == SPECDEC_ERROR_FULL) {
        specdec__pipe_cancel_all_runs(e);
        s->several_runs = 0;
        return s->last_action = SPECDEC__STEP_DRAFT;
    }
    if (s->result)
        specdec__engine_fail_sequence(t, s->result);
    if (t->count == s->before)
        return SPECDEC__STEP_END;
    if (t->forced_count || specdec__stream_end_reason(t, t->count))
        specdec__pipe_cancel_all_runs(e);
    t->stats.seconds += specdec__os_monotonic_seconds() - s->start;
    specdec__engine_finish_step(t, specdec__os_monotonic_seconds());
    return SPECDEC__STEP_END;
}

/* Returns the next action of a step with several runs, SPECDEC__STEP_..., until the sequence has a new token: take a
   run that has returned, send a run if the first stage is free, else draft, else wait. */
static int specdec__pipe_next_action(specdec__engine *e, specdec__step *s)
{
    specdec__pipe *pipe = e->pipe;
    const int remote = e->async_drafting->drafter->kind.seconds_until_more_children != NULL;
    int state, goes, sends;
    double now, due, holds;

    if (s->result || s->t->count != s->before || specdec__engine_fail_if_cancelled(s->t))
        return specdec__pipe_end_step(e, s);
    state = pipe->kind->wait_for_state(pipe, 0);
    now = specdec__os_monotonic_seconds();
    s->count = specdec__pipe_choose_nodes(e, s->p, s->chosen);
    goes = s->count && (state & SPECDEC__PIPE_FREE);
    pipe->idle_since = !goes ? 0 : pipe->idle_since > 0 ? pipe->idle_since : now;
    due = specdec__pipe_send_clock_of_next_run(pipe, now);
    sends = goes && due <= now;
    holds = sends ? specdec__pipe_seconds_to_delay_run(e, s->p, s->chosen, s->count, now) : 0;
    if (pipe->count && (state & SPECDEC__PIPE_RETURNED))
        return SPECDEC__STEP_TAKE;
    if (sends && !(holds > 0))
        return SPECDEC__STEP_SEND;
    if ((sends || specdec__pipe_may_begin_draft_run(pipe, s->count, due - now)) &&
        specdec__pipe_choose_draft_tokens(e, s->p, &s->drafts))
        return SPECDEC__STEP_DRAFT;
    s->until = (pipe->count ? SPECDEC__PIPE_RETURNED : 0) | (s->count && !goes ? SPECDEC__PIPE_FREE : 0) |
               SPECDEC__PIPE_DRAFTED;
    s->wake_at = sends ? now + holds : goes ? due : 0;
    return sends && !remote ? SPECDEC__STEP_SEND : SPECDEC__STEP_WAIT;
}

SPECDEC__FOR_SPEED
