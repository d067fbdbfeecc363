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

/* Candidate i joins chosen[count], at most `most` of the likeliest, if it is one of them. Returns how many they are. */
static int specdec__ahead_insert(const specdec__proposal *p, int32_t *chosen, int count, int most, int i)
{
    const float probability = p->probability[i];

    if (most < 1 || (count == most && !(probability > p->probability[chosen[count - 1]])))
        return count;
    count += count < most;
    for (most = count - 1; most > 0 && probability > p->probability[chosen[most - 1]]; most--)
        chosen[most] = chosen[most - 1];
    chosen[most] = i;
    return count;
}

/* Whether a candidate can be extended now. */
static int specdec__ahead_knows(const specdec__drafter *d, const specdec__proposal *p, int candidate)
{
    return !SPECDEC__PIPE || !d->kind->knows || d->kind->knows(d, p, candidate);
}

/* Chooses what is extended next: the likeliest candidate, and up to three that are at least half as likely. None: what
   is left is below the cutoff, or there is no room. now: of what can be extended now. Returns how many. */
static int specdec__ahead_choose(const specdec__ahead *a, specdec__proposal *p, int now)
{
    const int most = specdec__min_int(specdec__min_int(a->width, a->nodes - p->ran),
                                      (p->tree.capacity - p->tree.n) / SPECDEC__OFFERS);
    int i, count = 0;

    if (!p->extended[0]) {
        p->chosen[0] = 0;
        return !now || specdec__ahead_knows(a->drafter, p, 0);
    }
    for (i = 1; i < p->tree.n; i++)
        if (!p->extended[i] && p->depth[i] < a->levels && p->probability[i] >= a->cutoff &&
            (!now || specdec__ahead_knows(a->drafter, p, i)))
            count = specdec__ahead_insert(p, p->chosen, count, most, i);
    while (count > 1 && 2 * p->probability[p->chosen[count - 1]] < p->probability[p->chosen[0]])
        count--;
    return count;
}

/* Extends the chosen candidates of a tree, which is that of a's text or its copy. */
static specdec_result specdec__ahead_extend(specdec__ahead *a, specdec__proposal *p, const specdec__tune_drafter *known,
                                            int count, specdec_error *error)
{
    const int from = p->tree.n, root = p->chosen[0] == 0;
    const specdec_result result = a->drafter->kind->extend(a->drafter, p, count, error);

    if (result)
        return result;
    p->ran += root ? 0 : count;
    specdec__tune_paths(known, p, from, a->levels);
    a->cutoff *= SPECDEC__AHEAD_RECOVERY;
    return SPECDEC_OK;
}

/* The lane's job during a step: it goes on from the most promising leaves, a few at a time. */
static void specdec__ahead_work(void *argument)
{
    specdec__ahead *a = (specdec__ahead *)argument;
    specdec__proposal *p = &a->p;
    int count;

    while (a->lane.kind->goes_on(&a->lane) && (count = specdec__ahead_choose(a, p, 1)) > 0) {
        const int root = p->chosen[0] == 0;
        specdec__flight *flight = &a->flights[(a->flight + 1) % 2];

        memcpy(flight->chosen, p->chosen, (size_t)count * sizeof *p->chosen);
        flight->count = count;
        flight->known = p->tree.n;
        flight->begun = specdec__os_seconds();
        SPECDEC__STORE(&a->flight, a->flight + 1);
        SPECDEC__PAUSE();
        a->result = specdec__ahead_extend(a, p, &a->known, count, &a->error);
        if (a->result)
            return;
        if (!root)
            specdec__tune_see(&a->run, specdec__os_seconds() - flight->begun);
    }
}

/* The lane's job when there is much text that the drafter has not read. */
static void specdec__ahead_read(void *argument)
{
    specdec__ahead *a = (specdec__ahead *)argument;

    a->result = a->drafter->kind->read(a->drafter, &a->p, a->p.count, &a->error);
}

/* While the target runs, the lane goes on with the tree of a text, or reads the text first. */
static void specdec__ahead_begin(specdec *t)
{
    specdec__engine *e = t->engine;
    specdec__ahead *a = e->ahead;
    specdec__proposal *p = &a->drafter->proposals[t->at];

    if (a->reads)
        return;
    if (a->text != t)
        a->copied = 0;
    a->text = t;
    memcpy(a->tokens + a->copied, t->tokens + a->copied, (size_t)(t->count - a->copied) * sizeof *a->tokens);
    a->copied = t->count;
    a->p = *p;
    a->p.text = a->tokens;
    a->known = e->tune->drafters[a->drafter - e->drafters];
    specdec__tune_paths(&a->known, &a->p, 1, a->levels);
    a->cutoff = a->base;
    a->result = SPECDEC_OK;
    a->flight = 0;
    a->usual = a->run.seconds;
    a->flights[0].count = 0;
    a->flights[0].known = p->tree.n;
    a->reads = !p->extended[0] && a->drafter->kind->behind(a->drafter, t->at, t->count) > SPECDEC__TUNE_BEHIND;
    a->drafter->kind->move(a->drafter, &a->lane.team, a->threads);
    specdec__lane_submit(&a->lane, a->reads ? specdec__ahead_read : specdec__ahead_work, a);
}

/* Follows tokens[count] from the root of a tree whose candidates hold `held`. path (count): the candidates. Returns how
   many there are. */
static int specdec__ahead_path(const specdec_tree *tree, const int32_t *held, const int32_t *tokens, int count,
                               int32_t *path)
{
    int i, k, at = 0;

    for (i = 0; i < count; i++) {
        for (k = specdec__tree_child(tree, at, at + 1); k < tree->n && held[k] != tokens[i];)
            k = specdec__tree_child(tree, at, k + 1);
        if (k >= tree->n)
            break;
        path[i] = at = k;
    }
    return i;
}

/* Whether what the lane runs just now cannot belong to the text any more, which goes on with tokens[count]; or would be
   there sooner if all threads began it anew, for which `anew` seconds are needed. */
static int specdec__ahead_unwanted(specdec__ahead *a, const specdec__proposal *p, const int32_t *tokens, int count,
                                 double anew)
{
    const specdec__flight *flight = &a->flights[SPECDEC__LOAD(&a->flight) % 2];
    specdec_tree tree = p->tree; /* as it was when the step began: the lane's has grown */
    int32_t path[SPECDEC__MAX_TREE + 1];
    int length, at, i, k;

    if (flight->count && a->usual > 0 && flight->begun + a->usual > specdec__os_seconds() + anew)
        return 1;
    tree.n = flight->known;
    length = specdec__ahead_path(&tree, p->tokens, tokens, count, path);
    at = length ? path[length - 1] : 0;
    if (length < count && specdec__tree_child(&tree, at, at + 1) < tree.n)
        return 1;
    for (i = 0; i < flight->count; i++) {
        for (k = flight->chosen[i]; k > at;)
            k = tree.parents[k];
        if (k == at)
            return 0;
    }
    return 1;
}

/* The target has written tokens[count], the last ones of the text. What was drafted behind them stays, with what the
   drafter has read of them; the rest is dropped. */
static void specdec__ahead_settle(specdec *t, const int32_t *tokens, int count)
{
    specdec__ahead *a = t->engine->ahead;
    specdec__drafter *d = a->drafter;
    specdec__proposal *p = &d->proposals[t->at];
    int32_t path[SPECDEC__MAX_TREE + 1];
    const int length = specdec__ahead_path(&p->tree, p->tokens, tokens, count, path);

    p->stays = 0;
    if (length == count && p->extended[path[length - 1]] && d->kind->behind(d, t->at, t->count) <= count) {
        d->kind->keep(d, p, path[length - 1]);
        p->stays = t->count;
        a->base = SPECDEC__AHEAD_CUTOFF;
    } else {
        if (p->extended[0] && d->kind->commit)
            d->kind->commit(d, p, path, length);
        a->base *= a->base > SPECDEC__AHEAD_LEAST ? SPECDEC__AHEAD_DECAY : 1;
    }
}

/* The target has written tokens[count]. What the lane has drafted behind them stays, the rest is dropped. A run that is
   under way ends at its next barrier, if nothing of it can stay. */
static void specdec__ahead_end(specdec *t, const int32_t *tokens, int count)
{
    specdec__engine *e = t->engine;
    specdec__ahead *a = e->ahead;
    specdec__drafter *d = a->drafter;
    specdec__proposal *p = &d->proposals[t->at];
    const double plain = specdec__tune_plain(e->tune);
    double start;

    if (a->reads)
        return;
    a->lane.kind->stop(&a->lane);
    if (specdec__ahead_unwanted(a, p, tokens, count, specdec__tune_level(&e->tune->drafters[d - e->drafters], plain)))
        specdec__lane_cancel(&a->lane);
    start = specdec__os_seconds();
    specdec__lane_wait(&a->lane);
    t->stats.beside_seconds += specdec__os_seconds() - start;
    d->kind->move(d, &e->pool, e->config.threads);
    p->stays = 0;
    if (a->result && a->result != SPECDEC_ERROR_CANCELLED)
        return;
    p->tree.n = a->p.tree.n;
    p->ran = a->p.ran;
    specdec__ahead_settle(t, tokens, count);
}

/* What the lane's drafter proposes: what stays of its tree, with what is worth waiting for. Nothing while it reads. */
static specdec_result specdec__ahead_ask(specdec *t, int drafter, specdec__plan *plan)
{
    specdec__engine *e = t->engine;
    specdec__ahead *a = e->ahead;
    specdec__drafter *d = a->drafter;
    specdec__proposal *p = &d->proposals[t->at];
    const double start = specdec__os_seconds();
    double rate = 0;
    specdec_result result;
    int levels, behind;

    if (a->reads && specdec__lane_runs(&a->lane))
        return SPECDEC_OK;
    if (a->reads)
        specdec__ahead_halt(a, e);
    behind = p->stays ? 0 : d->kind->behind(d, t->at, t->count);
    if (behind > SPECDEC__TUNE_BEHIND || (!p->stays && !specdec__engine_shape(t, drafter, behind, plan))) {
        p->tree.n = p->stays ? p->tree.n : 1;
        return SPECDEC_OK;
    }
    result = specdec__engine_grow(t, drafter, plan, &levels, &rate);
    if (rate > plan->rate)
        plan->rate = rate;
    p->seconds = specdec__os_seconds() - start;
    if (!result)
        p->seconds -= specdec__tune_drafting(e->tune, drafter, levels, behind, 0, p->seconds);
    return result;
}

/* Whether somebody may draft while the target makes this step: for one text alone that writes. */
static int specdec__ahead_applies(const specdec__engine *e)
{
    return e->ahead->drafter && e->member_count == 1 && e->members[0]->writes && !e->members[0]->lead &&
           specdec__engine_rule(e, e->members[0]) == SPECDEC_RULE_COUPLED &&
           !specdec__constrained_is(&e->members[0]->constrained);
}

/* Whether it is the engine's choice, in this step, if somebody drafts meanwhile. */
static int specdec__ahead_compares(const specdec__engine *e)
{
    return SPECDEC__OS_THREADS && !e->config.async && specdec__ahead_applies(e);
}

/* Steps are thought to take so much longer than they took in turns, until they are seen. */
static void specdec__ahead_expect(specdec__ahead *a, specdec__tune *tune)
{
    int i;

    a->known_steps = 1;
    for (i = 0; i <= SPECDEC__MAX_TREE && a->slower > 0; i++)
        if (tune->steps[0][i].seconds > 0) {
            tune->steps[1][i].seconds = tune->steps[0][i].seconds * a->slower;
            tune->steps[1][i].seen = 1;
        }
}

/* Before a step: whether somebody drafts while the target makes it. */
static void specdec__ahead_switch(specdec__engine *e)
{
    specdec__ahead *a = e->ahead;
    const int applies = !specdec__in_cluster(&e->config) && specdec__ahead_applies(e);

    a->probe = applies && a->probe;
    a->on = applies && (e->config.async || a->way || a->probe);
    e->tune->beside = a->on && !a->probe;
    if (e->tune->beside && !a->known_steps)
        specdec__ahead_expect(a, e->tune);
    if (a->text && (!a->on || a->text != e->members[0]))
        specdec__ahead_forget(a->text, a->copied);
}

/* Seconds that the way which is tried has saved: what its tokens would have taken in the other way, less what they
   took. */
static double specdec__ahead_saved(const specdec__ahead *a)
{
    const specdec__ahead_seen *tried = &a->seen[a->way], *usual = &a->seen[!a->way];

    return usual->tokens > 0 ? tried->tokens * usual->seconds / usual->tokens - tried->seconds : 0;
}

/* Whether it is time to choose between the ways. A trial goes on until it has lost its stake, or has won as much: so
   trials cost a hundredth of all time at most, and the more time is at stake, the less chance decides. */
static int specdec__ahead_decides(const specdec__ahead *a)
{
    const double saved = a->other ? specdec__ahead_saved(a) : 0;

    return a->left <= 0 || (saved < 0 ? -saved : saved) > SPECDEC__AHEAD_STAKE * a->seen[!a->way].seconds;
}

/* What the step of a probe has shown. A lane that was not done with a run is thought to be done at its end. */
static void specdec__ahead_measure(specdec__engine *e, int width, double seconds)
{
    specdec__ahead *a = e->ahead;
    const double run = a->run.seconds > 0 ? a->run.seconds : seconds;
    double times[SPECDEC__MAX_TREE + 1];

    specdec__tune_times(e->tune, times, width);
    a->slower = seconds / times[width];
    a->pace = e->tune->drafters[a->drafter - e->drafters].level.seconds / run;
}

/* Whether drafting ahead may be faster: it saves at most what those drafts took that the lane makes while the target
   runs, and costs what steps take longer meanwhile, on fewer threads and with a part of the memory's bandwidth. */
static int specdec__ahead_may(const specdec__ahead *a)
{
    const specdec__ahead_seen *turns = &a->seen[0];
    const double verifying = (turns->seconds - turns->drafting) * a->slower;
    const double left = turns->drafting - verifying * a->pace; /* to be drafted in turns */

    return a->slower > 0 && turns->seconds > 1.02 * (verifying + (left > 0 ? left : 0));
}

/* Enough steps were seen: chooses the way of those to come. */
static void specdec__ahead_look(specdec__ahead *a)
{
    if (!a->other) {
        a->patience = specdec__min_int(2 * a->patience, SPECDEC__AHEAD_PATIENCE);
        a->other = a->way || specdec__ahead_may(a);
        a->slower = a->other ? a->slower : 0; /* is measured anew next time */
        a->way = a->other ? !a->way : a->way;
    } else if (specdec__ahead_saved(a) > 0) {
        a->patience = SPECDEC__AHEAD_FIRST;
        a->other = 0;
    } else {
        a->way = !a->way;
        a->other = 0;
    }
    a->left = a->patience;
    memset(&a->seen[a->way], 0, sizeof a->seen[0]);
}

/* After a step that somebody might have drafted beside: what it brought. drafting: seconds before the target ran. */
static void specdec__ahead_note(specdec__engine *e, double seconds, double drafting, double tokens)
{
    specdec__ahead *a = e->ahead;
    specdec__ahead_seen *seen = &a->seen[a->way];

    if (!specdec__ahead_compares(e) || a->probe) {
        a->probe = 0;
        return;
    }
    seen->seconds += seconds;
    seen->drafting += drafting;
    seen->tokens += tokens;
    a->left--;
    if (!specdec__ahead_decides(a))
        return;
    if (!a->way && !a->other && !(a->slower > 0) && seen->drafting > SPECDEC__AHEAD_WORTH * seen->seconds)
        a->left = a->probe = 1; /* takes up to a step longer than others */
    else
        specdec__ahead_look(a);
}

SPECDEC__FOR_SPEED
