/* =====================================================================================================================
 * >>schedule/pipe: a step's runs, where several are on their way.
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

/* Whether a text's runs may follow each other before they are verified: it writes alone, the same whoever guesses, and
   nobody wants to hear the target's states. Not in a step that leaves a prompt out: a usual one shows what steps take
   without it, and then it is read again. */
static int specdec__pipe_applies(const specdec__engine *e)
{
    int i;

    for (i = 0; e->pipe && i < e->drafter_count; i++)
        if (e->drafters[i].kind->follow)
            return 0;
    return e->pipe && !e->waiting && specdec__ahead_applies(e);
}

/* times[1..PIPE_NODES]: what a run of so many nodes costs, in the time of its slowest stage. What it takes longer than
   one node counts twice, as what it says is known later, too. A run may be twice as wide as any that was seen: that is
   thought to cost no more than the widest. */
static void specdec__pipe_costs(const specdec__pipe *pipe, double *times)
{
    int i, seen = 0;

    specdec__tune_times(&pipe->stages, times, SPECDEC__PIPE_NODES);
    for (i = 1; i <= SPECDEC__PIPE_NODES; i++)
        seen = pipe->stages.steps[0][i].seconds > 0 ? i : seen;
    for (i = seen + 1; i <= SPECDEC__PIPE_NODES; i++)
        times[i] = i <= 2 * seen ? times[seen] : 1e9;
    times[1] = seen ? times[1] : 1;
    for (i = 2; i <= SPECDEC__PIPE_NODES; i++)
        times[i] += times[i] - times[1];
}

/* How many of the chosen candidates, likeliest first, a run shall hold: as many as bring most tokens for its costs. One
   more would have to bring them at that rate. */
static int specdec__pipe_worth(specdec__pipe *pipe, const specdec__proposal *p, const int32_t *chosen, int count)
{
    double worth[SPECDEC__PIPE_NODES], rate;
    specdec__plan plan;
    int i, n;

    specdec__pipe_costs(pipe, plan.times);
    for (i = 0; i < count; i++)
        worth[i] = (double)p->probability[chosen[i]];
    plan.others = worth[0] - 1;
    n = specdec__tune_nodes(&plan, worth, count, 0, &rate);
    pipe->least = n < SPECDEC__PIPE_NODES ? rate * (plan.times[n + 1] - plan.times[n]) : worth[n - 1];
    return n;
}

/* Chooses what the next run holds: the likeliest candidates that were not sent, parents first. Returns how many. */
static int specdec__pipe_choose(const specdec__engine *e, const specdec__proposal *p, int32_t *chosen)
{
    specdec__pipe *pipe = e->pipe;
    const int most = specdec__min_int(SPECDEC__PIPE_NODES, e->target.most - pipe->nodes);
    int i, count = 0;

    for (i = 0; i < p->tree.n && pipe->count < pipe->depth; i++)
        if (pipe->node[i] < 0 && p->probability[i] >= SPECDEC__PIPE_CUTOFF)
            count = specdec__ahead_insert(p, chosen, count, most, i);
    pipe->least = 0;
    return count ? specdec__pipe_worth(pipe, p, chosen, count) : 0;
}

/* Sends the chosen candidates as a run. Errors: FULL. */
static void specdec__pipe_send(specdec__pipe *pipe, specdec__step *s)
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
        order.tokens[i] = p->tokens[chosen[i]];
        order.parents[i] = chosen[i] ? pipe->node[p->tree.parents[chosen[i]]] : -1;
        run->row[i] = i;
    }
    run->first = pipe->nodes;
    run->n = run->left = count;
    run->root = chosen[0] == 0;
    run->sent = specdec__os_seconds();
    run->cancelled = 0;
    pipe->nodes += count;
    pipe->idle = 0;
    pipe->kind->submit(pipe, &order);
    s->result = pipe->full ? SPECDEC_ERROR_FULL : SPECDEC_OK;
}

/* Writes what the rows of a run say, for as long as the text goes through it. The order becomes one to keep the keys of
   the nodes that it went through. */
static void specdec__pipe_walk(specdec *t, const specdec__proposal *p, const specdec__pipe_run *run,
                               specdec__order *order)
{
    specdec__engine *e = t->engine;
    const specdec__pipe *pipe = e->pipe;
    const int before = t->count, drafter = (int)(e->ahead->drafter - e->drafters);
    int32_t path[SPECDEC__MAX_TREE + 1];
    int at = 0;

    memset(order, 0, sizeof *order);
    order->kind = SPECDEC__ORDER_KEEP;
    order->first = pipe->nodes;
    while (pipe->node[at] >= run->first && pipe->node[at] < run->first + run->left) {
        const size_t row = (size_t)run->row[pipe->node[at] - run->first] * (size_t)e->target_model->vocab_size;
        const int32_t token = specdec__engine_draw(t, e->target.logits + row);
        const int count = t->count - before;

        order->path[order->n++] = pipe->node[at];
        specdec__tune_note(&e->tune->drafters[drafter], p, at, -1, token);
        if (specdec__engine_stops(t) || specdec__stream_ended(t, t->count) ||
            specdec__ahead_path(&p->tree, p->tokens, t->tokens + before, count, path) < count)
            return;
        at = path[count - 1];
    }
}

/* The text has gone on to a candidate, or -1: to something else, and then no node stays. Nodes that nobody wants any
   more keep their numbers, and places in the cache, until half of these are taken: then the order says which stay. */
static void specdec__pipe_stay(const specdec__pipe *pipe, const specdec__proposal *p, int root, int most,
                               specdec__order *order)
{
    const int goes_on = root >= 0 && pipe->node[root] >= 0;
    int i, at;

    order->stay = goes_on && 2 * (pipe->nodes - order->n) <= most ? -1 : 0;
    for (i = root; goes_on && order->stay >= 0 && i < p->tree.n; i++) {
        for (at = i; at > root;)
            at = p->tree.parents[at];
        if (at == root && pipe->node[i] >= 0)
            specdec__draft_insert(order->path + order->n, order->stay++, pipe->node[i]);
    }
}

/* The number that a node has once an order to keep some of them is obeyed; -1: none. */
static int specdec__pipe_number(const specdec__order *order, int node)
{
    return node < 0 || order->stay < 0 ? specdec__max_int(node - order->n, -1)
                                       : specdec__forward_among(order->path + order->n, order->stay, node);
}

/* What is left of a run, behind an order. */
static void specdec__pipe_thin(specdec__pipe_run *run, const specdec__order *order)
{
    const int first = run->first, left = run->left;
    int i, node;

    run->first = run->left = 0;
    for (i = 0; i < left; i++) {
        node = specdec__pipe_number(order, first + i);
        if (node < 0)
            continue;
        run->first = run->left ? run->first : node;
        run->row[run->left++] = run->row[i];
    }
}

/* The text has gone on to a candidate, or -1: to something else. Candidates and runs get their new numbers; runs of
   which nothing lies behind the text's last token any more are cancelled. */
static void specdec__pipe_settle(specdec *t, specdec__proposal *p, int root, const specdec__order *order)
{
    specdec__pipe *pipe = t->engine->pipe;
    const int known = p->tree.n, node = root < 0 ? -1 : specdec__pipe_number(order, pipe->node[root]);
    int i, k, alive;

    specdec__ahead_settle(t, t->tokens + t->count - order->n, order->n);
    for (i = 0; p->stays && i < known; i++) /* candidates that stay have moved to the front */
        if (p->place[i] >= 0)
            pipe->node[p->place[i]] = specdec__pipe_number(order, pipe->node[i]);
    p->tree.n = p->stays ? p->tree.n : 1;
    pipe->node[0] = node;
    for (i = 0; i < pipe->count; i++) {
        specdec__pipe_run *run = &pipe->runs[i];

        specdec__pipe_thin(run, order);
        for (k = alive = 0; k < p->tree.n && node >= 0; k++)
            alive |= pipe->node[k] >= run->first && pipe->node[k] < run->first + run->left;
        if (!alive)
            specdec__pipe_doom(pipe, i);
    }
    pipe->nodes = order->stay < 0 ? order->first - order->n : order->stay;
}

/* The oldest run is back: what it says is written. */
static void specdec__pipe_take(specdec__engine *e, specdec__step *s)
{
    specdec *t = s->t;
    specdec__proposal *p = s->p;
    specdec__pipe *pipe = e->pipe;
    const specdec__pipe_run run = pipe->runs[0];
    const specdec_result result = pipe->kind->take(pipe, &t->error);
    int32_t path[SPECDEC__MAX_TREE + 1];
    specdec__order order;
    int root;

    specdec__pipe_pop(pipe);
    s->result = run.cancelled ? SPECDEC_OK : result;
    if (result || run.cancelled)
        return;
    specdec__tune_see(&pipe->trip, specdec__os_seconds() - run.sent);
    if (pipe->longest > 0) {
        specdec__tune_step(&pipe->stages, run.n, pipe->longest, 0);
        specdec__tune_see(&pipe->laps, (specdec__os_seconds() - run.sent) / pipe->longest);
    }
    memset(p->place, -1, (size_t)p->tree.n * sizeof *p->place);
    specdec__pipe_walk(t, p, &run, &order);
    if (!order.n)
        return;
    specdec__tune_fade(e->tune);
    root = specdec__ahead_path(&p->tree, p->tokens, t->tokens + t->count - order.n, order.n, path) < order.n
               ? -1 : path[order.n - 1];
    specdec__pipe_stay(pipe, p, root, e->target.most, &order);
    pipe->kind->submit(pipe, &order);
    specdec__pipe_settle(t, p, root, &order);
    t->length = order.n;
    t->stats.tokens += order.n;
    t->stats.steps++;
    t->stats.steps_other_trees++; /* a run is a part of one */
    t->stats.steps_beside++;
    t->stats.drafted += run.n - run.root;
    t->stats.accepted += order.n - run.root;
}

/* Whether there is something to draft that could pay in the next run. *count: candidates to be extended; 0: none yet,
   the cutoff has to fall first. */
static int specdec__pipe_drafts(const specdec__engine *e, specdec__proposal *p, int *count)
{
    const specdec__ahead *a = e->ahead;
    const double least = e->pipe->least;

    *count = specdec__ahead_choose(a, p, 1);
    if (*count)
        return !p->extended[0] || (double)p->probability[p->chosen[0]] >= least;
    return a->cutoff > SPECDEC__AHEAD_LEAST && (double)a->cutoff > least;
}

/* Drafts a little, or lowers the cutoff for that. */
static void specdec__pipe_draft(specdec__engine *e, specdec__step *s)
{
    specdec__ahead *a = e->ahead;
    const double start = specdec__os_seconds();
    const int from = s->p->tree.n;

    if (!s->drafts) {
        a->cutoff *= SPECDEC__AHEAD_DECAY;
        return;
    }
    s->result = specdec__ahead_extend(a, s->p, &e->tune->drafters[a->drafter - e->drafters], s->drafts, &s->t->error);
    specdec__tune_see(&e->pipe->draft, specdec__os_seconds() - start);
    memset(e->pipe->node + from, -1, (size_t)(s->p->tree.n - from) * sizeof *e->pipe->node);
}

/* Seconds between two runs: those of the slowest stage. */
static double specdec__pipe_slot(const specdec__pipe *pipe)
{
    return pipe->laps.seconds > 0 ? specdec__tune_plain(&pipe->stages) : pipe->trip.seconds / pipe->depth;
}

/* When the oldest run will be back, by its width. */
static double specdec__pipe_back(const specdec__pipe *pipe)
{
    const specdec__pipe_run *run = &pipe->runs[0];
    double times[SPECDEC__PIPE_NODES + 1];

    specdec__tune_times(&pipe->stages, times, SPECDEC__PIPE_NODES);
    return run->sent + (pipe->laps.seconds > 0 ? pipe->laps.seconds * times[run->n] : pipe->trip.seconds);
}

/* Seconds that the chosen run waits, as a draft run may fill it up with what is worth more than that time: so much of
   what a run brings, as it is of the time between two runs. What another rank drafts is compared with the time of a
   stage, as it would else come a run later. 0: it does not wait. */
static double specdec__pipe_holds(const specdec__engine *e, specdec__proposal *p, const int32_t *chosen, int count,
                                  double now)
{
    const specdec__pipe *pipe = e->pipe;
    const specdec__drafter *d = e->ahead->drafter;
    const specdec__tune_drafter *known = &e->tune->drafters[d - e->drafters];
    const int remote = d->kind->due != NULL;
    const double slot = specdec__pipe_slot(pipe);
    const double seconds = remote ? d->kind->due(d, p) : pipe->draft.seconds;
    double brings = 0, more = 0;
    int i, n;

    if (!(seconds > 0) || now - pipe->idle + seconds > slot)
        return 0;
    for (i = 0; i < count; i++)
        brings += (double)p->probability[chosen[i]];
    for (i = 0, n = specdec__ahead_choose(e->ahead, p, !remote); i < n; i++) {
        const double next = (double)p->probability[p->chosen[i]] * known->accepted[0] / known->offered[0];

        more += next > pipe->least ? next - pipe->least : 0;
    }
    return more * slot > brings * seconds ? seconds : 0;
}

/* When the next run is to be sent: when the lane takes it, or a little later, if the oldest run is back by then: what
   that says is worth more than the little time. */
static double specdec__pipe_due(const specdec__pipe *pipe, double now)
{
    const double takes = pipe->idle > 0 ? pipe->idle : pipe->takes > now ? pipe->takes : now;
    const double last = takes + SPECDEC__PIPE_WAIT * specdec__pipe_slot(pipe);
    const double back = pipe->count && !pipe->runs[0].cancelled ? specdec__pipe_back(pipe) : last;

    return back < last && now < last ? back > now ? back : last : takes;
}

/* Whether the draft model may go on, when a run of so many nodes is to be sent in `left` seconds. */
static int specdec__pipe_spares(const specdec__pipe *pipe, int count, double left)
{
    return count < SPECDEC__PIPE_NODES || pipe->draft.seconds <= left;
}

/* Waits for what the step waits for. */
static void specdec__pipe_wait(specdec__pipe *pipe, const specdec__step *s)
{
    pipe->wake = s->wake;
    pipe->kind->look(pipe, s->until);
    pipe->wake = 0;
}

/* Makes ready for runs of the text that takes part. What was drafted for it stays. */
static void specdec__pipe_begin(specdec__engine *e, specdec__step *s)
{
    specdec *t = e->members[0];
    specdec__pipe *pipe = e->pipe;
    specdec__ahead *a = e->ahead;
    specdec__proposal *p = &a->drafter->proposals[t->at];

    s->t = t;
    s->p = p;
    s->before = t->count;

    if (a->lane.busy)
        specdec__ahead_halt(a, e);
    if (a->text && a->text != t) /* its nodes will be overwritten in the draft model's context */
        specdec__ahead_forget(a->text, a->copied);
    if (a->text != t)
        a->copied = 0;
    a->text = t;
    a->on = 0;
    e->pool.cancel = &t->cancel;
    e->row_of = NULL;
    specdec__draft_begin(p, t->tokens, t->count, &t->settings.sampling, SPECDEC_RULE_COUPLED);
    if (pipe->text != t) {
        specdec__pipe_drain(e);
        pipe->text = t;
        pipe->nodes = 0;
        memset(pipe->node, -1, (size_t)p->tree.capacity * sizeof *pipe->node);
    }
    p->grows = p->shares = 1;
    specdec__tune_paths(&e->tune->drafters[a->drafter - e->drafters], p, 1, a->levels);
    a->cutoff = a->base;
}

/* Ends a step. One for which the cache, or the drafter's, has no room is made with one run. Returns what is next. */
static int specdec__pipe_end(specdec__engine *e, specdec__step *s)
{
    specdec *t = s->t;

    if (s->result)
        s->p->stays = 0;
    if (s->result == SPECDEC_ERROR_FULL) {
        specdec__pipe_drain(e);
        s->several = 0;
        return s->act = SPECDEC__STEP_DRAFT;
    }
    if (s->result)
        specdec__engine_drop(t, s->result);
    if (t->count == s->before)
        return SPECDEC__STEP_END;
    if (t->forced_count || specdec__stream_ended(t, t->count))
        specdec__pipe_drain(e);
    t->stats.seconds += specdec__os_seconds() - s->start;
    specdec__engine_wrote(t, specdec__os_seconds());
    return SPECDEC__STEP_END;
}

/* Several runs: until the text has a token more, what is back is verified, what the lane takes is sent, and otherwise
   the draft goes on. Returns what is next. */
static int specdec__pipe_next(specdec__engine *e, specdec__step *s)
{
    specdec__pipe *pipe = e->pipe;
    const int remote = e->ahead->drafter->kind->due != NULL;
    int state, goes, sends;
    double now, due, holds;

    if (s->result || s->t->count != s->before || specdec__engine_cancelled(s->t))
        return specdec__pipe_end(e, s);
    state = pipe->kind->look(pipe, 0);
    now = specdec__os_seconds();
    s->count = specdec__pipe_choose(e, s->p, s->chosen);
    goes = s->count && (state & SPECDEC__PIPE_TAKES);
    pipe->idle = !goes ? 0 : pipe->idle > 0 ? pipe->idle : now;
    due = specdec__pipe_due(pipe, now);
    sends = goes && due <= now;
    holds = sends ? specdec__pipe_holds(e, s->p, s->chosen, s->count, now) : 0;
    if (pipe->count && (state & SPECDEC__PIPE_BACK))
        return SPECDEC__STEP_TAKE;
    if (sends && !(holds > 0))
        return SPECDEC__STEP_SEND;
    if ((sends || specdec__pipe_spares(pipe, s->count, due - now)) && specdec__pipe_drafts(e, s->p, &s->drafts))
        return SPECDEC__STEP_DRAFT;
    s->until = (pipe->count ? SPECDEC__PIPE_BACK : 0) | (s->count && !goes ? SPECDEC__PIPE_TAKES : 0) |
               SPECDEC__PIPE_GUESSED;
    s->wake = sends ? now + holds : goes ? due : 0;
    return sends && !remote ? SPECDEC__STEP_SEND : SPECDEC__STEP_WAIT;
}

SPECDEC__FOR_SPEED
