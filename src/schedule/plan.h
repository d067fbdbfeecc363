/* =====================================================================================================================
 * >>schedule/plan: which sequences take part in a step, and with how many nodes.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "../cache/reserve.h"
#include "../speculation/tree.h"
#include "../speculation/tune.h"
#include "../engine/stream.h"
#include "../engine/engine.h"
#include "stop.h"
#include "../engine/sequences.h"
#include "../engine/prefill.h"

SPECDEC__FOR_SIZE

/* Makes a sequence fail in a step with the error `result`, which the next call on the sequence returns. */
static void specdec__engine_fail_sequence(specdec *t, specdec_result result)
{
    specdec__pipe_cancel_all_runs(t->engine);
    specdec__view_free_reserved_slots(&t->view, &t->engine->target.kv);
    t->failed = result;
    if (result == SPECDEC_ERROR_CANCELLED)
        SPECDEC__STORE(&t->cancel, 0);
}

/* Makes a sequence fail with CANCELLED if specdec_cancel was called for it. Returns 1 if so, else 0. */
static int specdec__engine_fail_if_cancelled(specdec *t)
{
    if (!SPECDEC__LOAD(&t->cancel))
        return 0;
    specdec__engine_fail_sequence(t, specdec__fail(&t->error, SPECDEC_ERROR_CANCELLED, "cancelled"));
    return 1;
}

/* Returns how many tokens of a sequence have to be prefilled before its last token can be the root of a tree. 0 for a
   sequence that has pipelined runs. */
static int specdec__engine_tokens_to_prefill(const specdec *t)
{
    const specdec__pipe *pipe = t->engine->pipe;

    return SPECDEC__PIPE && pipe && pipe->sequence == t ? 0 : t->count - 1 - t->view.length;
}

/* Prepares a sequence for a step; a pending fork is made first. Returns 0 if the sequence takes no part: it has no
   prompt, has ended or failed, or has enough pending tokens. Children decode whether their tokens are taken or not, and
   try again after an error of memory, as no caller may ask for that error. */
static int specdec__engine_prepare_sequence(specdec *t)
{
    if (t->parent && (t->failed == SPECDEC_ERROR_MEMORY || t->failed == SPECDEC_ERROR_FULL))
        t->failed = SPECDEC_OK;
    if (!t->open || !t->count || t->failed || specdec__stream_end_reason(t, t->count) != SPECDEC_STOP_NONE ||
        (t->count - t->handed_out >= SPECDEC__PENDING_TOKENS && !t->parent))
        return 0;
    if (SPECDEC__HAS_MANY_SEQUENCES && t->forced_count)
        specdec__engine_fork_child(t);
    return !t->failed;
}

/* Returns how many nodes all trees of a step may have together, at most. */
static int specdec__engine_most_nodes_of_step(const specdec__engine *e)
{
    return specdec__min_int(SPECDEC__MAX_TREE_NODES, e->target.max_nodes);
}

/* Sets e->members: sequence t, if not NULL, then all others that have something to decode or to prefill, up to the
   limit of nodes. The first one that has to be left out is asked first in the next step. */
static void specdec__engine_choose_step_sequences(specdec__engine *e, specdec *t)
{
    const int views = e->room.max_views, first = e->first_asked;
    int i;

    e->member_count = e->roots = e->prefill_nodes = 0;
    e->first_asked = views > 1 ? (first + 1) % views : 0;
    for (i = t ? -1 : 0; i < views; i++) {
        specdec *x = i < 0 ? t : &e->sequences[(first + i) % views];

        if ((x == t && i >= 0) || !specdec__engine_prepare_sequence(x) || specdec__engine_fail_if_cancelled(x))
            continue;
        if (e->member_count == specdec__engine_most_nodes_of_step(e)) {
            e->first_asked = x->at;
            return;
        }
        if (x->from_row)
            specdec__engine_drop_root_keys(x, x->count);
        x->from_row = x->prefill_count = 0;
        specdec__engine_prepare_drafters(x);
        e->roots += specdec__engine_tokens_to_prefill(x) == 0;
        e->members[e->member_count++] = x;
    }
}

/* Sets *slice to the limits of a step's prefilling. The step may prefill all tokens of prompts that fit while no
   sequence decodes; else config.prefill_chunk tokens, or as many as keep the step's time near that of a step without
   prompts (see >>speculation/tune). */
static void specdec__engine_set_prefill_limits(specdec__engine *e, specdec__tune_prefill *slice)
{
    slice->row = 1;
    slice->key = 0;
    slice->root = 0;
    slice->budget = slice->most_tokens = !e->roots ? e->config.batch : e->config.prefill_chunk;
    e->tune->load.rows = e->tune->load.keys = 0;
    e->spare_seconds = -1;
    if (e->roots && !e->config.prefill_chunk) {
        slice->most_tokens = 0; /* the first step in which sequences decode is measured without prompts */
        if (e->tune->load.nodes)
            specdec__tune_set_prefill_limits(e->tune, e->roots, slice);
    }
}

/* Shares out the nodes that prefill prompts. A prompt that is prefilled to its end has its root in the same step if a
   node is left. Sequences that get no node wait for the next step. */
static void specdec__engine_divide_prefill_nodes(specdec__engine *e)
{
    const int beside = e->roots; /* sequences that decode, and wait for the prompts */
    specdec__tune_load *load = &e->tune->load;
    int room = (beside ? specdec__engine_most_nodes_of_step(e) : e->target.max_nodes) - beside, i, kept = 0;
    specdec__tune_prefill slice;

    specdec__engine_set_prefill_limits(e, &slice);
    for (i = 0; i < e->member_count; i++) {
        specdec *t = e->members[i];
        const int pending = specdec__engine_tokens_to_prefill(t);

        const int wanted = pending ? pending + slice.root : 0;
        const int taken = specdec__tune_admit_prompt_tokens(load, &slice, specdec__min_int(wanted, room),
                                                            t->view.length);

        t->load_count = beside ? taken : 0;
        t->prefill_count = specdec__min_int(taken, pending);
        t->decodes = !pending || (taken == wanted && t->prefill_count < room);
        room -= t->prefill_count + (pending && t->decodes);
        e->roots += pending && t->decodes;
        e->prefill_nodes += t->prefill_count;
        if (t->prefill_count || t->decodes)
            e->members[kept++] = t;
    }
    e->waiting_count = e->member_count - kept;
    e->member_count = kept;
    if (slice.root)
        e->spare_seconds = slice.budget > 0 ? slice.budget : 0;
    if (!beside)
        load->rows = load->keys = 0;
}

/* Takes a sequence out of the totals of a step: subtracts the sequence's nodes from them. */
static void specdec__engine_remove_sequence_from_step_totals(specdec__engine *e, const specdec *t)
{
    int i;

    e->roots -= t->decodes;
    e->prefill_nodes -= t->prefill_count;
    e->tune->load.rows -= t->load_count;
    for (i = 0; i < t->load_count; i++)
        e->tune->load.keys -= t->view.length + i;
}

SPECDEC__FOR_SPEED
