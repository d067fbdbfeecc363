/* =====================================================================================================================
 * >>cluster/ranks: the lane of rank 0, on which several runs are on their way over the ranks.
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

/* The lane of a target whose layers lie on several ranks. */
typedef struct specdec__ranks {
    specdec__pipe pipe;
    specdec__stage stage; /* that of rank 0 */
    specdec__link *link;
    specdec_error error;  /* of a run that did not get beyond it */
} specdec__ranks;

SPECDEC__FOR_SIZE

/* The lane of a cluster sends an order: rank 0 obeys it first, its books tell the other ranks. */
static void specdec__ranks_submit(specdec__pipe *pipe, const specdec__order *order)
{
    specdec__ranks *ranks = (specdec__ranks *)pipe;
    specdec__link *link = ranks->link;
    const double start = specdec__os_seconds();
    const uint32_t runs = link->run;
    specdec__wire_flight *flight;
    specdec_result result;

    ranks->stage.view = &pipe->sequence->view;
    link->renumbers = order->kind == SPECDEC__ORDER_KEEP ? order->first : 0;
    link->flying = 1;
    result = specdec__stage_obey(&ranks->stage, order, 0, &ranks->error);
    link->flying = 0;
    pipe->no_room = ranks->stage.failed;
    if (order->kind != SPECDEC__ORDER_RUN)
        return;
    link->own = specdec__os_seconds() - start;
    if (!result || link->run != runs)
        return;
    flight = &link->flights[link->flight_count++]; /* it has gone nowhere */
    memset(flight, 0, sizeof *flight);
    flight->rows = flight->back = 1;
    flight->result = result;
}

static int specdec__ranks_state(specdec__ranks *ranks)
{
    specdec__link *link = ranks->link;
    int state = SPECDEC__PIPE_IDLE;

    while (specdec__link_answer(link))
        continue;
    specdec__link_poll(link);
    if (link->failed.code)
        return SPECDEC__PIPE_IDLE | SPECDEC__PIPE_RETURNED | SPECDEC__PIPE_FREE | SPECDEC__PIPE_DRAFTED;
    state |= link->fresh ? SPECDEC__PIPE_DRAFTED : 0;
    if (link->flight_count && link->flights[0].back)
        state |= SPECDEC__PIPE_RETURNED;
    ranks->pipe.free_at = link->run == link->done ? 0 : link->free_at - link->own;
    if (specdec__os_seconds() >= ranks->pipe.free_at && link->flight_count < SPECDEC__WIRE_FLIGHTS - 1)
        state |= SPECDEC__PIPE_FREE;
    return state;
}

static int specdec__ranks_wait(specdec__pipe *pipe, int until)
{
    specdec__ranks *ranks = (specdec__ranks *)pipe;
    specdec__link *link = ranks->link;

    link->fresh = until ? 0 : link->fresh; /* who waits has looked at what had come */
    for (;;) {
        const int state = specdec__ranks_state(ranks);
        const double now = specdec__os_seconds();
        double pause = SPECDEC__WIRE_PAUSE;

        if (!until || state & until || (pipe->wake_at > 0 && now >= pipe->wake_at) ||
            SPECDEC__LOAD(ranks->stage.context->pool->cancel) ||
            (until == SPECDEC__PIPE_RETURNED && specdec__link_any_cancelled(link))) /* no other run is awaited */
            return state;
        if (until & SPECDEC__PIPE_FREE && pipe->free_at - now < pause)
            pause = pipe->free_at - now;
        if (pipe->wake_at > 0 && pipe->wake_at - now < pause)
            pause = pipe->wake_at - now;
        if (pause > 0)
            specdec__link_wait(link, pause);
    }
}

/* A run that is cancelled is waited for, so that not too many are on their way, until any sequence is cancelled. */
static specdec_result specdec__ranks_take(specdec__pipe *pipe, specdec_error *error)
{
    specdec__ranks *ranks = (specdec__ranks *)pipe;
    specdec__link *link = ranks->link;
    specdec_error unsound;
    specdec_result result;
    double start, own;

    while (!(specdec__ranks_state(ranks) & SPECDEC__PIPE_RETURNED)) {
        if (specdec__link_any_cancelled(link)) {
            specdec__link_leave(link, &link->flights[link->flight_count - pipe->count]);
            return specdec__fail(error, SPECDEC_ERROR_CANCELLED, "cancelled");
        }
        specdec__link_wait(link, SPECDEC__WIRE_PAUSE);
    }
    if (link->failed.code) {
        specdec__link_sweep(link);
        specdec__link_land(link);
        return specdec__fail(error, link->failed.code, "%s", link->failed.text);
    }
    pipe->stage_seconds = link->flights[0].slowest_seconds;
    start = specdec__os_seconds();
    result = specdec__link_take_in(link, &unsound);
    own = link->own + specdec__os_seconds() - start; /* rank 0 computes its layers and the output */
    pipe->stage_seconds = own > pipe->stage_seconds ? own : pipe->stage_seconds;
    if (result == SPECDEC_ERROR_FORMAT) /* logits that are no numbers */
        return specdec__fail(error, result, "%s", unsound.text);
    return result && error ? specdec__fail(error, result, "%s", ranks->error.text) : result;
}

static void specdec__ranks_cancel(specdec__pipe *pipe, int at)
{
    specdec__link *link = ((specdec__ranks *)pipe)->link;

    specdec__link_doom(link, &link->flights[link->flight_count - pipe->count + at]);
}

static const specdec__pipe_kind specdec__ranks_kind = {specdec__ranks_submit, specdec__ranks_wait, specdec__ranks_take,
                                                       specdec__ranks_cancel};

SPECDEC__FOR_SPEED
