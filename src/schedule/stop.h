/* =====================================================================================================================
 * >>schedule/stop: what is under way on lanes is ended.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "../base/lane.h"
#include "../speculation/draft.h"
#include "lane.h"
#include "../engine/stream.h"
#include "../engine/engine.h"

SPECDEC__FOR_SIZE

/* The oldest run is no longer on its way. */
static void specdec__pipe_pop(specdec__pipe *pipe)
{
    memmove(pipe->runs, pipe->runs + 1, (size_t)--pipe->count * sizeof *pipe->runs);
}

/* Nothing of a run is wanted. */
static void specdec__pipe_doom(specdec__pipe *pipe, int at)
{
    if (!pipe->runs[at].cancelled)
        pipe->kind->cancel(pipe, at);
    pipe->runs[at].cancelled = 1;
}

/* Ends all runs that are on their way. The view of their text is the engine's again, with nothing behind the text. */
static void specdec__pipe_drain(const specdec__engine *e)
{
    specdec__pipe *pipe = e->pipe;
    specdec__order order;
    int i;

    if (!SPECDEC__PIPE || !pipe || !pipe->text)
        return;
    for (i = 0; i < pipe->count; i++)
        specdec__pipe_doom(pipe, i);
    while (pipe->count) {
        pipe->kind->look(pipe, SPECDEC__PIPE_BACK);
        pipe->kind->take(pipe, NULL);
        specdec__pipe_pop(pipe);
    }
    memset(&order, 0, sizeof order);
    order.kind = SPECDEC__ORDER_DROP;
    pipe->kind->submit(pipe, &order);
    pipe->kind->look(pipe, SPECDEC__PIPE_IDLE);
    pipe->text = NULL;
}

/* Whether a drafter, this one if d is not NULL, goes on while the target makes the step under way. */
static int specdec__ahead_on(const specdec__engine *e, const specdec__drafter *d)
{
    return SPECDEC__OS_THREADS && e->ahead->on && (!d || e->ahead->drafter == d);
}

/* Ends what the lane does. What it has read stays. */
static void specdec__ahead_halt(specdec__ahead *a, specdec__engine *e)
{
    a->lane.kind->stop(&a->lane);
    specdec__lane_cancel(&a->lane);
    specdec__lane_wait(&a->lane);
    a->drafter->kind->move(a->drafter, &e->pool, e->config.threads);
    a->reads = 0;
}

/* Nothing that was drafted ahead for a text holds behind more than its first count tokens. */
static void specdec__ahead_forget(specdec *t, int count)
{
    specdec__ahead *a = t->engine->ahead;

    specdec__pipe_drain(t->engine);
    if (!SPECDEC__OS_THREADS || !a->drafter)
        return;
    if (a->lane.busy)
        specdec__ahead_halt(a, t->engine);
    a->drafter->proposals[t->at].stays = 0;
    if (a->text == t)
        a->copied = specdec__min_int(a->copied, count);
}

SPECDEC__FOR_SPEED
