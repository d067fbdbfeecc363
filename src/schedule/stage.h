/* =====================================================================================================================
 * >>schedule/stage: a stage of a target: how it obeys runs, and the orders between them.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../cache/reserve.h"
#include "../forward/context.h"
#include "../forward/step.h"
#include "lane.h"

SPECDEC__FOR_SIZE

/* Makes a stage of the target obey an order: it runs, commits or drops nodes. cancelled 1: the run is not computed, but
   its nodes get their slots in the cache, as nodes of later runs may descend from them. Errors: FULL, CANCELLED. */
SPECDEC__NOINLINE static specdec_result specdec__stage_obey_order(specdec__stage *stage, const specdec__order *order,
                                                                  int cancelled, specdec_error *error)
{
    specdec__context *c = stage->context;
    const int end = order->first + order->n;
    specdec__batch batch;

    if (order->kind == SPECDEC__ORDER_DROP) {
        specdec__view_free_reserved_slots(stage->view, &c->kv);
        stage->failed = 0;
        return SPECDEC_OK;
    }
    if (order->kind == SPECDEC__ORDER_KEEP) {
        specdec__forward_commit_and_keep_nodes(c, stage->view, order->path, order->n, order->stay, order->first);
        return SPECDEC_OK;
    }
    stage->failed |= !specdec__view_reserve_and_notify(stage->view, &c->kv, end);
    if (stage->failed)
        return specdec__fail(error, SPECDEC_ERROR_FULL, "no room in the cache for %d more tokens", end);
    memcpy(c->tokens + order->first, order->tokens, (size_t)order->n * sizeof *c->tokens);
    memcpy(c->parents + order->first, order->parents, (size_t)order->n * sizeof *c->parents);
    batch = specdec__forward_make_view_batch(c, stage->view, order->first, end);
    return cancelled ? specdec__forward_skip_batch(c, &batch, error) : specdec__forward(c, &batch, error);
}

SPECDEC__FOR_SPEED
