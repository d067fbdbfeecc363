/* =====================================================================================================================
 * >>schedule/work: one step of an engine.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "../forward/step.h"
#include "../engine/engine.h"
#include "lane.h"
#include "stop.h"
#include "../engine/sequences.h"
#include "../engine/prefill.h"
#include "plan.h"
#include "trees.h"
#include "../engine/step.h"
#include "pipe.h"

SPECDEC__FOR_SIZE

/* One run: the trees of all members are chosen and run, and what the run says is written. Returns what is next. */
static int specdec__engine_next(const specdec__engine *e, specdec__step *s)
{
    return e->member_count ? ++s->act : SPECDEC__STEP_END;
}

/* The trees of all members, with room for their nodes. */
static void specdec__engine_fill_trees(specdec__engine *e)
{
    specdec__engine_draft(e);
    specdec__engine_reserve(e);
}

/* A step of those that take part, on lanes that answer sooner or later: the target's runs what it is sent, and a draft
   model's may go on meanwhile. A text that waits for other machines may be cancelled, whether it takes part or not. */
static void specdec__engine_turn(specdec__engine *e, specdec *t, double start)
{
    specdec__step s;
    int act;

    s.several = SPECDEC__PIPE && specdec__pipe_applies(e);
    s.act = SPECDEC__STEP_DRAFT - 1;
    s.start = start;
    s.result = SPECDEC_OK;
    if (SPECDEC__PIPE && e->remote)
        e->remote->wait(e, t ? &t->cancel : NULL);
    if (SPECDEC__PIPE && s.several)
        specdec__pipe_begin(e, &s);
    else
        specdec__pipe_drain(e);
    do {
        act = SPECDEC__PIPE && s.several ? specdec__pipe_next(e, &s) : specdec__engine_next(e, &s);
        if (act == SPECDEC__STEP_DRAFT)
            SPECDEC__PIPE && s.several ? specdec__pipe_draft(e, &s) : specdec__engine_fill_trees(e);
        else if (act == SPECDEC__STEP_SEND)
            SPECDEC__PIPE && s.several ? specdec__pipe_send(e->pipe, &s) : specdec__engine_send(e, &s);
        else if (act == SPECDEC__STEP_TAKE)
            SPECDEC__PIPE && s.several ? specdec__pipe_take(e, &s) : specdec__engine_take(e, &s);
        else if (SPECDEC__PIPE && act == SPECDEC__STEP_WAIT)
            specdec__pipe_wait(e->pipe, &s);
    } while (act != SPECDEC__STEP_END);
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
