/* =====================================================================================================================
 * >>schedule/work: one step of an engine, whichever kind.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "../forward/step.h"
#include "../engine/engine.h"
#include "stop.h"
#include "../engine/sequences.h"
#include "../engine/prefill.h"
#include "plan.h"
#include "ahead.h"
#include "trees.h"
#include "../engine/step.h"
#include "pipe.h"

SPECDEC__FOR_SIZE

/* A step of an engine. A text that waits for other machines may be cancelled, whether it takes part or not. */
static void specdec__engine_turn(specdec__engine *e, specdec *t, double start)
{
    if (SPECDEC__PIPE && e->remote)
        e->remote->wait(e, t ? &t->cancel : NULL);
    specdec__pipe_drain(e);
    if (e->member_count)
        specdec__engine_draft(e);
    specdec__engine_reserve(e);
    if (e->member_count)
        specdec__engine_run(e, start);
    if (SPECDEC__PIPE && e->remote)
        e->remote->wait(e, NULL);
}

/* One step for all texts that have something to do; t, if not NULL, is among them, and needs a token. DONE: nobody
   has. Errors are those of t; what goes wrong with others they are told by their next call. */
static specdec_result specdec__engine_step(specdec__engine *e, specdec *t)
{
    double start = specdec__os_seconds();
    specdec_result result = SPECDEC_OK;

    if (t && t->from_row && e->row_of == t) {
        specdec__engine_begin_answer(t);
        return SPECDEC_OK;
    }
    if (t && e->room.views == 1) { /* nobody else waits: after a failed prompt, a rewind, specdec_logits */
        const specdec__rows rows = specdec__forward_wanted(t->count - t->from_row);

        if (t->from_row || specdec__engine_pending(t) > 0)
            result = specdec__engine_prefill(t, t->count - !t->from_row, &rows);
        if (result)
            return result;
        if (t->from_row) {
            specdec__engine_begin_answer(t);
            return SPECDEC_OK;
        }
    }
    specdec__engine_gather(e, t);
    if (!t || t->failed != SPECDEC_ERROR_CANCELLED) {
        specdec__engine_lead(e);
        if (!SPECDEC__PIPE || !specdec__pipe_applies(e) || !specdec__pipe_step(e->members[0], start))
            specdec__engine_turn(e, t, start);
        if (!t && !e->member_count)
            return SPECDEC_DONE;
    }
    if (t) {
        result = t->failed;
        t->failed = SPECDEC_OK;
    }
    return result;
}

/* A pending cancellation ends one call. */
static specdec_result specdec__engine_uncancel(specdec *t, specdec_result result)
{
    t->cancelled = result == SPECDEC_ERROR_CANCELLED;
    if (t->cancelled)
        SPECDEC__STORE(&t->cancel, 0);
    return result;
}

SPECDEC__FOR_SPEED
