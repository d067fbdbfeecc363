/* =====================================================================================================================
 * >>schedule/stop: runs and drafts of lanes are cancelled.
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

/* Removes the oldest run from the list of pipelined runs that were sent and not taken. */
static void specdec__pipe_remove_oldest(specdec__pipe *pipe)
{
    memmove(pipe->runs, pipe->runs + 1, (size_t)--pipe->count * sizeof *pipe->runs);
}

/* Cancels pipelined run number `at`, 0 being the oldest that was sent and not taken, if it is not cancelled yet. */
static void specdec__pipe_cancel_run(specdec__pipe *pipe, int at)
{
    if (!pipe->runs[at].cancelled)
        pipe->kind->cancel_run(pipe, at);
    pipe->runs[at].cancelled = 1;
}

/* Cancels all pipelined runs of the engine and waits until they have returned. The view of their sequence then has no
   slots behind those of its committed tokens, and the engine may use it. */
static void specdec__pipe_cancel_all_runs(const specdec__engine *e)
{
    specdec__pipe *pipe = e->pipe;
    specdec__order order;
    int i;

    if (!SPECDEC__PIPE || !pipe || !pipe->sequence)
        return;
    for (i = 0; i < pipe->count; i++)
        specdec__pipe_cancel_run(pipe, i);
    while (pipe->count) {
        pipe->kind->wait_for_state(pipe, SPECDEC__PIPE_RETURNED);
        pipe->kind->take_run(pipe, NULL);
        specdec__pipe_remove_oldest(pipe);
    }
    memset(&order, 0, sizeof order);
    order.kind = SPECDEC__ORDER_DROP;
    pipe->kind->submit_order(pipe, &order);
    pipe->kind->wait_for_state(pipe, SPECDEC__PIPE_IDLE);
    pipe->sequence = NULL;
}

/* Returns whether drafter d (NULL: any drafter) drafts while the target runs the current step. */
static int specdec__async_is_drafting(const specdec__engine *e, const specdec__drafter *d)
{
    return SPECDEC__OS_THREADS && e->async_drafting->active && (!d || e->async_drafting->drafter == d);
}

/* Cancels the drafting or prefilling that the lane of an asynchronous drafter does, and waits until the lane has ended
   it. Tokens that the drafter has prefilled stay in its cache. */
static void specdec__async_stop_lane(specdec__async_drafting *a, specdec__engine *e)
{
    a->lane.kind->stop(&a->lane);
    specdec__lane_cancel(&a->lane);
    specdec__lane_wait(&a->lane);
    a->drafter->kind.set_threads(a->drafter, &e->pool, e->config.threads);
    a->prefills = 0;
}

/* Drops a sequence's pipelined runs and the draft tokens that a lane has drafted for it, as the tokens behind its first
   `count` will change. */
static void specdec__async_drop_drafts(specdec *t, int count)
{
    specdec__async_drafting *a = t->engine->async_drafting;

    specdec__pipe_cancel_all_runs(t->engine);
    if (!SPECDEC__OS_THREADS || !a->drafter)
        return;
    if (a->lane.busy)
        specdec__async_stop_lane(a, t->engine);
    a->drafter->proposals[t->at].frontier.valid_at = 0;
    if (a->sequence == t)
        a->copied = specdec__min_int(a->copied, count);
}

SPECDEC__FOR_SPEED
