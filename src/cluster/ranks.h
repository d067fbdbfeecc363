/* =====================================================================================================================
 * >>cluster/ranks: the target's lane on rank 0 of a cluster: several runs at different ranks at the same time.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "../forward/context.h"
#include "../schedule/lane.h"
#include "../schedule/stage.h"
#include "../engine/stream.h"
#include "wire.h"
#include "link.h"
#include "orders.h"

/* The lane of a target whose layers lie on several ranks, on rank 0. */
typedef struct specdec__ranks {
    specdec__pipe pipe;   /* the lane as the scheduler sees it: runs on their way */
    specdec__stage stage; /* runs rank 0's own layers */
    specdec__link *link;  /* the connection to the other ranks */
    specdec_error error;  /* error of a run that rank 0 could not send to the next rank */
} specdec__ranks;

SPECDEC__FOR_SIZE

/* Submits an order of the pipe: rank 0 obeys it, and the changes of its cache are stored as orders to the other ranks.
   A run that fails on rank 0 counts as returned. */
static void specdec__ranks_submit(specdec__pipe *pipe, const specdec__order *order)
{
    specdec__ranks *ranks = (specdec__ranks *)pipe;
    specdec__link *link = ranks->link;
    const double start = specdec__os_monotonic_seconds();
    const uint32_t runs = link->own.run;
    specdec__wire_run *run;
    specdec_result result;

    ranks->stage.view = &pipe->sequence->view;
    link->sent.renumbered_nodes = order->kind == SPECDEC__ORDER_KEEP ? order->first : 0;
    link->sent.overlap = 1;
    result = specdec__stage_obey_order(&ranks->stage, order, 0, &ranks->error);
    link->sent.overlap = 0;
    pipe->no_room = ranks->stage.failed;
    if (order->kind != SPECDEC__ORDER_RUN)
        return;
    link->own.seconds = specdec__os_monotonic_seconds() - start;
    if (!result || link->own.run != runs)
        return;
    run = &link->sent.runs[link->sent.count++]; /* no other rank has it */
    memset(run, 0, sizeof *run);
    run->rows = run->returned = 1;
    run->result = result;
}

/* Handles the messages that have arrived. Returns the lane's state: SPECDEC__PIPE_... flags. A failed cluster has all
   of them, so that its error is taken. */
static int specdec__ranks_poll_state(specdec__ranks *ranks)
{
    specdec__link *link = ranks->link;
    int state = SPECDEC__PIPE_IDLE;

    while (specdec__link_receive_answer(link))
        continue;
    specdec__link_handle_urgent_messages(link);
    if (link->failed.code)
        return SPECDEC__PIPE_IDLE | SPECDEC__PIPE_RETURNED | SPECDEC__PIPE_FREE | SPECDEC__PIPE_DRAFTED;
    state |= link->drafts.arrived ? SPECDEC__PIPE_DRAFTED : 0;
    if (link->sent.count && link->sent.runs[0].returned)
        state |= SPECDEC__PIPE_RETURNED;
    ranks->pipe.free_at = link->own.run == specdec__link_first_stage_peer(link)->done_run
                              ? 0 : link->sent.first_rank_free_at - link->own.seconds;
    if (specdec__os_monotonic_seconds() >= ranks->pipe.free_at && link->sent.count < SPECDEC__WIRE_MAX_RUNS - 1)
        state |= SPECDEC__PIPE_FREE;
    return state;
}

/* Waits until the lane has one of the states `until`, pipe->wake_at is over, or a sequence is cancelled; until 0: does
   not wait. Returns the lane's state. */
static int specdec__ranks_wait(specdec__pipe *pipe, int until)
{
    specdec__ranks *ranks = (specdec__ranks *)pipe;
    specdec__link *link = ranks->link;

    link->drafts.arrived = until ? 0 : link->drafts.arrived; /* a caller that waits has used all that have arrived */
    for (;;) {
        const int state = specdec__ranks_poll_state(ranks);
        const double now = specdec__os_monotonic_seconds();
        double pause = SPECDEC__WIRE_WAIT_SECONDS;

        if (!until || state & until || (pipe->wake_at > 0 && now >= pipe->wake_at) ||
            SPECDEC__LOAD(ranks->stage.context->pool->cancel) ||
            (until == SPECDEC__PIPE_RETURNED &&
             specdec__link_any_sequence_cancelled(link))) /* no other run is awaited */
            return state;
        if (until & SPECDEC__PIPE_FREE && pipe->free_at - now < pause)
            pause = pipe->free_at - now;
        if (pipe->wake_at > 0 && pipe->wake_at - now < pause)
            pause = pipe->wake_at - now;
        if (pause > 0)
            specdec__link_wait_for_message(link, pause);
    }
}

/* Takes the oldest run of the pipe, and computes its logits. A cancelled run is waited for, too, so that not too many
   runs are unanswered; once any sequence is cancelled, it is abandoned. */
static specdec_result specdec__ranks_take(specdec__pipe *pipe, specdec_error *error)
{
    specdec__ranks *ranks = (specdec__ranks *)pipe;
    specdec__link *link = ranks->link;
    specdec_error unsound;
    specdec_result result;
    double start, own;

    while (!(specdec__ranks_poll_state(ranks) & SPECDEC__PIPE_RETURNED)) {
        if (specdec__link_any_sequence_cancelled(link)) {
            specdec__link_abandon_run(link, &link->sent.runs[link->sent.count - pipe->count]);
            return specdec__fail(error, SPECDEC_ERROR_CANCELLED, "cancelled");
        }
        specdec__link_wait_for_message(link, SPECDEC__WIRE_WAIT_SECONDS);
    }
    if (link->failed.code) {
        specdec__link_remove_abandoned_runs(link);
        specdec__link_remove_oldest_run(link);
        return specdec__fail(error, link->failed.code, "%s", link->failed.text);
    }
    pipe->stage_seconds = link->sent.runs[0].slowest_seconds;
    start = specdec__os_monotonic_seconds();
    result = specdec__link_take_run(link, &unsound);
    own = link->own.seconds + specdec__os_monotonic_seconds() - start; /* rank 0 computes its layers and the output */
    pipe->stage_seconds = own > pipe->stage_seconds ? own : pipe->stage_seconds;
    if (result == SPECDEC_ERROR_FORMAT) /* logits that are not finite */
        return specdec__fail(error, result, "%s", unsound.text);
    return result && error ? specdec__fail(error, result, "%s", ranks->error.text) : result;
}

/* Cancels run number `at` of the pipe, counted from the oldest. */
static void specdec__ranks_cancel(specdec__pipe *pipe, int at)
{
    specdec__link *link = ((specdec__ranks *)pipe)->link;

    specdec__link_cancel_run(link, &link->sent.runs[link->sent.count - pipe->count + at]);
}

/* The functions of the lane of a target whose layers lie on several ranks. */
static const specdec__pipe_kind specdec__ranks_kind = {specdec__ranks_submit, specdec__ranks_wait, specdec__ranks_take,
                                                       specdec__ranks_cancel};

SPECDEC__FOR_SPEED
