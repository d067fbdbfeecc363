/* =====================================================================================================================
 * >>engine/prefill: prompts: shared with other sequences, or prefilled.
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

/* Reports tokens [from, from + n) of a sequence, which the last run has committed, to the drafters that need hidden
   states of the target. path (n): the tokens' nodes, counted from node `first`; row: index of the last token's hidden
   state among the rows of the run; -1: it is not there. A drafter whose cache is full may miss tokens. */
static specdec_result specdec__engine_report_committed_to_drafters(specdec *t, int from, int n, int first,
                                                                   const int *path, int row)
{
    specdec__engine *e = t->engine;
    specdec_result result = SPECDEC_OK;
    specdec__committed_tokens committed;
    int i;

    committed.at = t->at;
    committed.text = t->tokens;
    committed.count = t->count;
    committed.from = from;
    committed.n = n;
    committed.first = first;
    committed.path = path;
    committed.state = row < 0 ? NULL : e->target.h + (size_t)row * (size_t)e->target.e;
    for (i = 0; i < e->drafter_count && (!result || result == SPECDEC_ERROR_FULL); i++)
        if (e->drafters[i].kind.receive_states)
            result = e->drafters[i].kind.receive_states(&e->drafters[i], &committed, &t->error);
    return result == SPECDEC_ERROR_FULL ? SPECDEC_OK : result;
}

/* Reports tokens [at, at + n) of the sequence `text` to the drafters, as specdec__engine_report_committed_to_drafters
   does, once a batch of the sequence's prompt is prefilled. */
static specdec_result specdec__engine_report_prefilled_to_drafters(void *text, int at, int n)
{
    specdec *t = (specdec *)text;
    const specdec__context *c = &t->engine->target;

    return specdec__engine_report_committed_to_drafters(t, at, n, 0, NULL,
                                                        c->wants_logits[n - 1] ? c->row_count - 1 : -1);
}

/* Tells all drafters that a sequence is part of the next step. */
static void specdec__engine_prepare_drafters(specdec *t)
{
    const specdec__engine *e = t->engine;
    int i;

    for (i = 0; SPECDEC__PIPE && i < e->drafter_count; i++)
        if (e->drafters[i].kind.prepare_sequence)
            e->drafters[i].kind.prepare_sequence(&e->drafters[i], t->at, t->tokens, t->count, &t->settings.sampling);
}

/* Prefills tokens [t->view.length, count) of a sequence, in batches, and stores the logits and hidden states that
   `rows` asks for. If the last token's logits are wanted, they become row 0 of the target's logits. */
static specdec_result specdec__engine_prefill(specdec *t, int count, const specdec__prefill_rows *rows)
{
    specdec__engine *e = t->engine;
    const int before = t->view.length;
    specdec__prefill_rows committed = *rows;
    specdec_result result;

    specdec__pipe_cancel_all_runs(e);
    specdec__engine_prepare_drafters(t);
    committed.batch_done = specdec__engine_report_prefilled_to_drafters;
    committed.listener = t;
    e->row_0_sequence = NULL;
    e->pool.cancel = &t->cancel;
    result = specdec__forward_prefill(&e->target, &t->view, t->tokens, count, e->config.batch, &committed,
                                      &e->config.hooks,
                                      &t->error);
    t->stats.prefilled_tokens += t->view.length - before;
    if (result)
        specdec__view_free_reserved_slots(&t->view, &e->target.kv);
    else if (rows->logits_from < count)
        e->row_0_sequence = t;
    return result;
}

/* Returns the index, in [from, end), of the sequence whose beginning agrees with most tokens of t; -1: none agrees with
   `least` tokens. *length becomes how many tokens agree. Of equal sequences it is one that was shared before, so that
   all share one; of those the one used last. */
static int specdec__engine_find_longest_prefix(specdec *t, int from, int end, int least, int *length)
{
    specdec__engine *e = t->engine;
    uint64_t used = 0;
    int i, best = -1;

    for (i = from, *length = least; i < end; i++) {
        const specdec__shareable_keys keys = specdec__engine_shareable_keys(e, i);
        const int most = specdec__min_int(keys.view->length, t->count - 1);
        const int common = specdec__stream_count_common_tokens(t, keys.tokens, most);
        const uint64_t since = keys.view->last_use | (uint64_t)(keys.view->shared_keys > 0) << 63;

        if (i == t->at || common < *length || (common == *length && best >= 0 && since <= used) ||
            !specdec__view_has_all_keys(keys.view, &e->target.kv, common))
            continue;
        *length = common;
        best = i;
        used = since;
    }
    return best;
}

/* Makes t share the keys of another sequence, open or kept, that begins with more of t's tokens than have keys in t. A
   kept sequence is marked as used, even where an open one has more tokens. */
static void specdec__engine_share_longest_prefix(specdec *t)
{
    specdec__engine *e = t->engine;
    const int before = t->view.length, views = e->room.max_views;
    const int least = before + SPECDEC__KEYS / 4; /* fewer do not pay */
    int length, kept_length, open, kept;

    if (!SPECDEC__HAS_MANY_SEQUENCES)
        return;
    open = specdec__engine_find_longest_prefix(t, 0, views, least, &length);
    kept = specdec__engine_find_longest_prefix(t, views, views + e->room.kept_views, least, &kept_length);
    if (kept >= 0)
        specdec__view_mark_used(specdec__engine_shareable_keys(e, kept).view, &e->target.kv, kept_length);
    if (open >= 0 && length >= kept_length) {
        specdec__engine_share_prefix(t, open, length);
        t->stats.shared_tokens += specdec__max_int(t->view.length - before, 0);
    } else if (kept >= 0) {
        specdec__engine_share_prefix(t, kept, kept_length);
        t->stats.cached_tokens += specdec__max_int(t->view.length - before, 0);
    }
}

/* Prefills a sequence's prompt, which lies behind its first `before` tokens. Where the engine has several sequences,
   the next steps will prefill it, unless logits or hidden states are wanted (wanted not NULL). */
static specdec_result specdec__engine_prefill_or_defer(specdec *t, int before, const specdec__prefill_rows *wanted)
{
    specdec__prefill_rows rows = wanted ? *wanted : specdec__prefill_rows_with_logits_from(t->count - 1);

    specdec__pipe_cancel_all_runs(t->engine);
    t->from_row = 0;
    if (t->engine->room.max_views > 1 && !wanted) {
        specdec__engine_drop_root_keys(t, t->count); /* drops the last row, too, if nothing was appended */
        specdec__engine_share_longest_prefix(t);
        return SPECDEC_OK;
    }
    if (!wanted)
        specdec__engine_share_longest_prefix(t);
    t->from_row = 1;
    rows.logits_from = rows.logits ? before : t->count - 1;
    rows.states_from = before;
    return specdec__engine_prefill(t, t->count, &rows);
}

/* Drops keys, values, drafts and states that were computed for a sequence's tokens behind the first `keep`. follow
   above 0: other tokens will follow these; 0: none will, and the last of them is run again for its logits. */
static void specdec__engine_truncate_sequence(specdec *t, int keep, int follow)
{
    specdec__engine *e = t->engine;
    int i;

    if (t->view.length - keep >= SPECDEC__KEYS) /* fewer are not worth an entry of the table */
        specdec__engine_keep_prefix(t);
    specdec__async_drop_drafts(t, keep);
    specdec__constrained_drop_states_behind(&t->constrained, keep);
    specdec__engine_drop_root_keys(t, keep + (follow > 0));
    for (i = 0; i < e->drafter_count; i++)
        if (e->drafters[i].kind.truncate_sequence)
            e->drafters[i].kind.truncate_sequence(&e->drafters[i], t->at, t->tokens, keep);
}

/* Replaces the tokens of a sequence behind the first `keep` (all of which were returned) by tokens[count], and prefills
   these. tokens may lie behind the sequence in its buffer. Replaced and pending tokens are dropped once that has
   succeeded; after an error the sequence is as it was. wanted: NULL, or where the logits or hidden states of each token
   go. */
static specdec_result specdec__engine_replace_tokens(specdec *t, int keep, const int32_t *tokens, int count,
                                                     const specdec__prefill_rows *wanted)
{
    const int replaced = t->count - keep, from_row = t->from_row, complete_at = t->complete_at;
    double start = specdec__os_monotonic_seconds();
    specdec_result result = specdec__stream_check_prompt(t, keep, tokens, count);
    int i;

    if (result)
        return result;
    if (replaced)
        specdec__engine_truncate_sequence(t, keep, count);
    if (count)
        memmove(t->tokens + t->count, tokens, (size_t)count * sizeof *tokens);
    specdec__stream_rotate_items(t->tokens + keep, sizeof *t->tokens, replaced, count);
    t->count = keep + count;
    result = specdec__engine_prefill_or_defer(t, keep, count ? wanted : NULL);
    if (result) {
        specdec__engine_drop_state_of_tokens(t, keep);
        specdec__stream_rotate_items(t->tokens + keep, sizeof *t->tokens, count, replaced);
        t->count = keep + replaced;
        t->from_row = from_row;
        t->complete_at = complete_at;
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
    t->stats.prompt_seconds += specdec__os_monotonic_seconds() - start;
    t->prompted_at = start;
    return SPECDEC_OK;
}

/* Appends a prompt's tokens[count] to the sequence's prompted and returned tokens, and prefills them. wanted: as for
   specdec__engine_replace_tokens. */
static specdec_result specdec__engine_append_prompt(specdec *t, const int32_t *tokens, int count,
                                                    const specdec__prefill_rows *wanted)
{
    return specdec__engine_replace_tokens(t, t->handed_out, tokens, count, wanted);
}

SPECDEC__FOR_SPEED
