/* =====================================================================================================================
 * >>engine/prefill: prompts: what is shared with other sequences, and reading the rest.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "../kernel/kernel.h"
#include "../cache/reserve.h"
#include "../forward/context.h"
#include "../forward/step.h"
#include "../speculation/constrained.h"
#include "../speculation/draft.h"
#include "stream.h"
#include "engine.h"
#include "../schedule/stop.h"
#include "sequences.h"

SPECDEC__FOR_SIZE

/* Tells drafters which tokens of a text the target has read in the last step: those from `from` on, whose nodes are
   path (n), counted from node `first`. row: of those wanted, that of the last of them; -1: it was not wanted. A drafter
   whose cache has no room left may miss some. */
static specdec_result specdec__engine_follow(specdec *t, int from, int n, int first, const int *path, int row)
{
    specdec__engine *e = t->engine;
    specdec_result result = SPECDEC_OK;
    specdec__prefilled heard;
    int i;

    heard.at = t->at;
    heard.text = t->tokens;
    heard.count = t->count;
    heard.from = from;
    heard.n = n;
    heard.first = first;
    heard.path = path;
    heard.state = row < 0 ? NULL : e->target.h + (size_t)row * (size_t)e->target.e;
    for (i = 0; i < e->drafter_count && (!result || result == SPECDEC_ERROR_FULL); i++)
        if (e->drafters[i].kind->follow)
            result = e->drafters[i].kind->follow(&e->drafters[i], &heard, &t->error);
    return result == SPECDEC_ERROR_FULL ? SPECDEC_OK : result;
}

/* The same for a batch of a prompt. */
static specdec_result specdec__engine_follow_batch(void *text, int at, int n)
{
    specdec *t = (specdec *)text;
    const specdec__context *c = &t->engine->target;

    return specdec__engine_follow(t, at, n, 0, NULL, c->wanted[n - 1] ? c->row_count - 1 : -1);
}

/* Drafters look at a text that is read, or that a step may write to. */
static void specdec__engine_prepare_drafters(specdec *t)
{
    const specdec__engine *e = t->engine;
    int i;

    for (i = 0; SPECDEC__PIPE && i < e->drafter_count; i++)
        if (e->drafters[i].kind->prepare)
            e->drafters[i].kind->prepare(&e->drafters[i], t->at, t->tokens, t->count, &t->settings.sampling);
}

/* Runs tokens[view length, count) through the target, for the rows that are wanted; if that of the last token is among
   them, it becomes row 0. */
static specdec_result specdec__engine_prefill(specdec *t, int count, const specdec__rows *rows)
{
    specdec__engine *e = t->engine;
    const int before = t->view.length;
    specdec__rows heard = *rows;
    specdec_result result;

    specdec__pipe_drain(e);
    specdec__engine_prepare_drafters(t);
    heard.hear = specdec__engine_follow_batch;
    heard.listener = t;
    e->row_of = NULL;
    e->pool.cancel = &t->cancel;
    result = specdec__forward_text(&e->target, &t->view, t->tokens, count, e->config.batch, &heard, &e->config.hooks,
                                   &t->error);
    t->stats.prefilled_tokens += t->view.length - before;
    if (result)
        specdec__view_unreserve(&t->view, &e->target.kv);
    else if (rows->from < count)
        e->row_of = t;
    return result;
}

/* The sequence among numbers [from, end) that begins with most of a text's tokens, at least `least`; of equals one that
   was shared before, so that one of them stays for all, and of those the one used last. -1: none. *length: how many it
   shares. */
static int specdec__engine_longest_shared(specdec *t, int from, int end, int least, int *length)
{
    specdec__engine *e = t->engine;
    uint64_t used = 0;
    int i, best = -1;

    for (i = from, *length = least; i < end; i++) {
        const specdec__source_keys keys = specdec__engine_keys(e, i);
        const int common = specdec__stream_common(t, keys.tokens, specdec__min_int(keys.view->length, t->count - 1));
        const uint64_t since = keys.view->used | (uint64_t)(keys.view->shared > 0) << 63;

        if (i == t->at || common < *length || (common == *length && best >= 0 && since <= used) ||
            !specdec__view_holds_all(keys.view, &e->target.kv, common))
            continue;
        *length = common;
        best = i;
        used = since;
    }
    return best;
}

/* When another sequence, open or kept, begins with more of the same tokens than were computed here, that is taken over.
   What is kept counts as used, too, where an open one has more. */
static void specdec__engine_adopt(specdec *t)
{
    specdec__engine *e = t->engine;
    const int before = t->view.length, views = e->room.views, least = before + SPECDEC__KEYS / 4; /* worth it */
    int length, kept_length, open, kept;

    if (!SPECDEC__SEQUENCES)
        return;
    open = specdec__engine_longest_shared(t, 0, views, least, &length);
    kept = specdec__engine_longest_shared(t, views, views + e->room.kept, least, &kept_length);
    if (kept >= 0)
        specdec__view_touch(specdec__engine_keys(e, kept).view, &e->target.kv, kept_length);
    if (open >= 0 && length >= kept_length) {
        specdec__engine_share(t, open, length);
        t->stats.shared_tokens += specdec__max_int(t->view.length - before, 0);
    } else if (kept >= 0) {
        specdec__engine_share(t, kept, kept_length);
        t->stats.cached_tokens += specdec__max_int(t->view.length - before, 0);
    }
}

/* Reads a prompt that lies behind the first `before` tokens. One text of several is read by the steps, unless rows of
   it are wanted at once. */
static specdec_result specdec__engine_prefill_or_defer(specdec *t, int before, const specdec__rows *wanted)
{
    specdec__rows rows = wanted ? *wanted : specdec__forward_wanted(t->count - 1);

    specdec__pipe_drain(t->engine);
    t->from_row = 0;
    if (t->engine->room.views > 1 && !wanted) {
        specdec__engine_reroot(t, t->count); /* if nothing was appended, its row is given up, too */
        specdec__engine_adopt(t);
        return SPECDEC_OK;
    }
    if (!wanted)
        specdec__engine_adopt(t);
    t->from_row = 1;
    rows.from = rows.logits ? before : t->count - 1;
    rows.states_from = before;
    return specdec__engine_prefill(t, t->count, &rows);
}

/* Forgets what was computed for the tokens behind the first `keep`. Of those all stays if tokens follow; else the last
   is to be run again, for its logits. */
static void specdec__engine_truncate(specdec *t, int keep, int follow)
{
    specdec__engine *e = t->engine;
    int i;

    if (t->view.length - keep >= SPECDEC__KEYS) /* less is not worth an entry of the table */
        specdec__engine_retain(t);
    specdec__ahead_drop(t, keep);
    specdec__constrained_forget(&t->constrained, keep);
    specdec__engine_reroot(t, keep + (follow > 0));
    for (i = 0; i < e->drafter_count; i++)
        if (e->drafters[i].kind->truncate)
            e->drafters[i].kind->truncate(&e->drafters[i], t->at, t->tokens, keep);
}

/* Puts tokens[count] in the place of those behind the first `keep`, which were handed out, and runs them; they may lie
   behind the sequence. What is replaced, and what is in stock, is given up when that has succeeded. On failure all is
   as it was: it waits behind the prompt meanwhile. wanted: NULL, or where a row or the states of each token shall
   go. */
static specdec_result specdec__engine_replace(specdec *t, int keep, const int32_t *tokens, int count,
                                              const specdec__rows *wanted)
{
    const int replaced = t->count - keep, from_row = t->from_row, closed_at = t->closed_at;
    double start = specdec__os_seconds();
    specdec_result result = specdec__stream_prompt_check(t, keep, tokens, count);
    int i;

    if (result)
        return result;
    if (replaced)
        specdec__engine_truncate(t, keep, count);
    if (count)
        memmove(t->tokens + t->count, tokens, (size_t)count * sizeof *tokens);
    specdec__stream_rotate(t->tokens + keep, sizeof *t->tokens, replaced, count);
    t->count = keep + count;
    result = specdec__engine_prefill_or_defer(t, keep, count ? wanted : NULL);
    if (result) {
        specdec__engine_forget(t, keep);
        specdec__stream_rotate(t->tokens + keep, sizeof *t->tokens, count, replaced);
        t->count = keep + replaced;
        t->from_row = from_row;
        t->closed_at = closed_at;
        return result;
    }
    t->handed_out = t->count;
    for (i = keep; t->logprobs && i < t->count; i++)
        t->logprobs[i] = 1;
    specdec__engine_drop_children(t, 0);
    t->forks = 0;
    specdec__stream_begin_answer(t);
    t->failed = SPECDEC_OK;
    t->stats.prompt_tokens += count;
    t->stats.prompt_seconds += specdec__os_seconds() - start;
    t->prompted_at = start;
    return SPECDEC_OK;
}

/* The same behind all that was handed out. */
static specdec_result specdec__engine_prompt(specdec *t, const int32_t *tokens, int count, const specdec__rows *wanted)
{
    return specdec__engine_replace(t, t->handed_out, tokens, count, wanted);
}

SPECDEC__FOR_SPEED
