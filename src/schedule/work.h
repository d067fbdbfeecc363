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

/* Returns the next action of a step with one run, SPECDEC__STEP_...: draft, send, take, end, in this order. */
static int specdec__engine_next_action(const specdec__engine *e, specdec__step *s)
{
    return e->member_count ? ++s->last_action : SPECDEC__STEP_END;
}

/* Drafts the trees of all sequences in a step and reserves slots of the cache for their nodes. */
static void specdec__engine_make_trees(specdec__engine *e)
{
    specdec__engine_draft_trees(e);
    specdec__engine_reserve_slots(e);
}

/* Makes one step of the sequences in e->members: drafts, sends runs to the target's lane, waits, and takes the runs
   that return. The wait for other machines ends if t, in the step or not, is cancelled. */
static void specdec__engine_run_step(specdec__engine *e, specdec *t, double start)
{
    specdec__step s;
    int act;

    s.several_runs = SPECDEC__PIPE && specdec__pipe_may_send_several_runs(e);
    s.last_action = SPECDEC__STEP_DRAFT - 1;
    s.start = start;
    s.result = SPECDEC_OK;
    if (SPECDEC__PIPE && e->remote)
        e->remote->set_cancel_flag(e, t ? &t->cancel : NULL);
    if (SPECDEC__PIPE && s.several_runs)
        specdec__pipe_begin_step(e, &s);
    else
        specdec__pipe_cancel_all_runs(e);
    do {
        act = SPECDEC__PIPE && s.several_runs ? specdec__pipe_next_action(e, &s) : specdec__engine_next_action(e, &s);
        if (act == SPECDEC__STEP_DRAFT)
            SPECDEC__PIPE && s.several_runs ? specdec__pipe_extend_drafts(e, &s) : specdec__engine_make_trees(e);
        else if (act == SPECDEC__STEP_SEND)
            SPECDEC__PIPE && s.several_runs ? specdec__pipe_send_run(e->pipe, &s) : specdec__engine_run_trees(e, &s);
        else if (act == SPECDEC__STEP_TAKE)
            SPECDEC__PIPE && s.several_runs ? specdec__pipe_take_run(e, &s) : specdec__engine_verify_trees(e, &s);
        else if (SPECDEC__PIPE && act == SPECDEC__STEP_WAIT)
            specdec__pipe_wait_for_lane(e->pipe, &s);
    } while (act != SPECDEC__STEP_END);
    if (SPECDEC__PIPE && e->remote)
        e->remote->set_cancel_flag(e, NULL);
}

/* Makes one step of all sequences that have something to decode or to prefill. t: NULL, or one of them, which needs a
   token. Returns DONE if no sequence has anything to do. An error is that of t; errors of other sequences are returned
   by the next call on them. */
static specdec_result specdec__engine_step(specdec__engine *e, specdec *t)
{
    double start = specdec__os_monotonic_seconds();
    specdec_result result = SPECDEC_OK;

    if (t && t->from_row && e->row_0_sequence == t) {
        specdec__engine_decode_first_token(t);
        return SPECDEC_OK;
    }
    if (t && e->room.max_views == 1) { /* one sequence: after a failed prompt, a rewind, specdec_logits */
        const specdec__prefill_rows rows = specdec__prefill_rows_with_logits_from(t->count - t->from_row);

        if (t->from_row || specdec__engine_tokens_to_prefill(t) > 0)
            result = specdec__engine_prefill(t, t->count - !t->from_row, &rows);
        if (result)
            return result;
        if (t->from_row) {
            specdec__engine_decode_first_token(t);
            return SPECDEC_OK;
        }
    }
    specdec__engine_choose_step_sequences(e, t);
    if (!t || t->failed != SPECDEC_ERROR_CANCELLED) {
        specdec__engine_divide_prefill_nodes(e);
        specdec__engine_run_step(e, t, start);
        if (!t && !e->member_count)
            return SPECDEC_DONE;
    }
    if (t) {
        result = t->failed;
        t->failed = SPECDEC_OK;
    }
    return result;
}

/* Ends a call on a sequence that was ended by a cancellation: clears the cancellation. result: of the call. Returns the
   call's result. */
static specdec_result specdec__engine_clear_cancellation(specdec *t, specdec_result result)
{
    t->cancelled = result == SPECDEC_ERROR_CANCELLED;
    if (t->cancelled)
        SPECDEC__STORE(&t->cancel, 0);
    return result;
}

SPECDEC__FOR_SPEED
