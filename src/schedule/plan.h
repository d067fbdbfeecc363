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

/* What went wrong with a text in a step: the next call on it tells. */
static void specdec__engine_drop(specdec *t, specdec_result result)
{
    specdec__pipe_drain(t->engine);
    specdec__view_unreserve(&t->view, &t->engine->target.kv);
    t->failed = result;
    if (result == SPECDEC_ERROR_CANCELLED)
        SPECDEC__STORE(&t->cancel, 0);
}

/* Whether a pending cancellation keeps a text from taking part. */
static int specdec__engine_cancelled(specdec *t)
{
    if (!SPECDEC__LOAD(&t->cancel))
        return 0;
    specdec__engine_drop(t, specdec__fail(&t->error, SPECDEC_ERROR_CANCELLED, "cancelled"));
    return 1;
}

/* Tokens that have to be read before the last one can be a root. A text with runs on their way has been read. */
static int specdec__engine_pending(const specdec *t)
{
    const specdec__pipe *pipe = t->engine->pipe;

    return SPECDEC__PIPE && pipe && pipe->text == t ? 0 : t->count - 1 - t->view.length;
}

/* Makes a text ready for a step: a fork that it owes is made first. Returns 0 when it takes no part: it was not
   prompted, has ended or failed, or what it writes is not taken. Children run on; as perhaps nobody asks what went
   wrong with them, they try again when there was no room. */
static int specdec__engine_make_ready(specdec *t)
{
    if (t->parent && (t->failed == SPECDEC_ERROR_MEMORY || t->failed == SPECDEC_ERROR_FULL))
        t->failed = SPECDEC_OK;
    if (!t->open || !t->count || t->failed || specdec__stream_ended(t, t->count) != SPECDEC_STOP_NONE ||
        (t->count - t->handed_out >= SPECDEC__STOCK && !t->parent))
        return 0;
    if (SPECDEC__SEQUENCES && t->forced_count)
        specdec__engine_fork_child(t);
    return !t->failed;
}

/* Nodes of a step, at most. */
static int specdec__engine_most(const specdec__engine *e)
{
    return specdec__min_int(SPECDEC__MAX_TREE, e->target.most);
}

/* Makes up the step: t, if not NULL, then all others that have something to do, as many as it has nodes for. Whoever
   finds no room is the first in the next one. */
static void specdec__engine_gather(specdec__engine *e, specdec *t)
{
    const int views = e->room.views, first = e->turn;
    int i;

    e->member_count = e->roots = e->reading = 0;
    e->turn = views > 1 ? (first + 1) % views : 0;
    for (i = t ? -1 : 0; i < views; i++) {
        specdec *x = i < 0 ? t : &e->sequences[(first + i) % views];

        if ((x == t && i >= 0) || !specdec__engine_make_ready(x) || specdec__engine_cancelled(x))
            continue;
        if (e->member_count == specdec__engine_most(e)) {
            e->turn = x->at;
            return;
        }
        if (x->from_row)
            specdec__engine_reroot(x, x->count);
        x->from_row = x->lead = 0;
        specdec__engine_look(x);
        e->roots += specdec__engine_pending(x) == 0;
        e->members[e->member_count++] = x;
    }
}

/* What of prompts a step may read: all that fits, while nobody writes; else what the configuration says, or what was
   seen to make a step not much longer. */
static void specdec__engine_slice(specdec__engine *e, specdec__tune_slice *slice)
{
    slice->row = 1;
    slice->key = 0;
    slice->root = 0;
    slice->left = slice->most = !e->roots ? e->config.batch : e->config.prefill_chunk;
    e->tune->load.rows = e->tune->load.keys = 0;
    e->spare = -1;
    if (e->roots && !e->config.prefill_chunk) {
        slice->most = 0; /* the first step of those who write shows what it takes without prompts */
        if (e->tune->load.nodes)
            specdec__tune_cut(e->tune, e->roots, slice);
    }
}

/* Shares out the nodes that read prompts. A prompt that is read to its end has its root in the same step, if there is a
   node for it; a text that gets none waits for the next step. */
static void specdec__engine_lead(specdec__engine *e)
{
    const int beside = e->roots; /* those who wait for what is read */
    specdec__tune_load *load = &e->tune->load;
    int room = (beside ? specdec__engine_most(e) : e->target.most) - beside, i, kept = 0;
    specdec__tune_slice slice;

    specdec__engine_slice(e, &slice);
    for (i = 0; i < e->member_count; i++) {
        specdec *t = e->members[i];
        const int pending = specdec__engine_pending(t);

        const int wanted = pending ? pending + slice.root : 0;
        const int taken = specdec__tune_take(load, &slice, specdec__min_int(wanted, room), t->view.length);

        t->loads = beside ? taken : 0;
        t->lead = specdec__min_int(taken, pending);
        t->writes = !pending || (taken == wanted && t->lead < room);
        room -= t->lead + (pending && t->writes);
        e->roots += pending && t->writes;
        e->reading += t->lead;
        if (t->lead || t->writes)
            e->members[kept++] = t;
    }
    e->waiting = e->member_count - kept;
    e->member_count = kept;
    if (slice.root)
        e->spare = slice.left > 0 ? slice.left : 0;
    if (!beside)
        load->rows = load->keys = 0;
}

/* A text leaves the step that is being made up. */
static void specdec__engine_leave(specdec__engine *e, const specdec *t)
{
    int i;

    e->roots -= t->writes;
    e->reading -= t->lead;
    e->tune->load.rows -= t->loads;
    for (i = 0; i < t->loads; i++)
        e->tune->load.keys -= t->view.length + i;
}

SPECDEC__FOR_SPEED
