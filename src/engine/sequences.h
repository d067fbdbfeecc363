/* =====================================================================================================================
 * >>engine/sequences: sequences opened, shared, forked and released.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "../cache/reserve.h"
#include "../speculation/constrained.h"
#include "../speculation/draft.h"
#include "stream.h"
#include "engine.h"
#include "../schedule/stop.h"

SPECDEC__FOR_SIZE

/* Drops the target's keys and values of token number `count`, counted from 1, of a sequence, and of all tokens behind
   it: that token is the root of the next tree again. */
static void specdec__engine_drop_root_keys(specdec *t, int count)
{
    specdec__engine *e = t->engine;

    specdec__pipe_cancel_all_runs(e);
    specdec__view_truncate(&t->view, &e->target.kv,
                           specdec__min_int(t->view.length, specdec__max_int(count - 1, 0)));
    if (e->row_0_sequence == t)
        e->row_0_sequence = NULL;
}

/* Drops all that was computed for a sequence's tokens behind the first `count`: keys, values, drafts, states of
   constraints. The tokens stay. */
static void specdec__engine_drop_state_of_tokens(specdec *t, int count)
{
    specdec__engine *e = t->engine;
    int i;

    specdec__async_drop_drafts(t, count);
    specdec__constrained_drop_states_behind(&t->constrained, count);
    specdec__engine_drop_root_keys(t, count);
    for (i = 0; i < e->drafter_count; i++)
        if (e->drafters[i].kind.truncate_sequence)
            e->drafters[i].kind.truncate_sequence(&e->drafters[i], t->at, t->tokens, count);
}

/* Keys and tokens of an open or a kept sequence that other sequences may share the beginning of. */
typedef struct specdec__shareable_keys {
    specdec__view *view;   /* the sequence's keys and values */
    const int32_t *tokens; /* (view->length): the tokens of these keys */
    int at;                /* index of the sequence for drafters: kept sequences come behind the open ones */
} specdec__shareable_keys;

/* Returns the keys and tokens of sequence `at`, whose beginning others may share. at: index of an open sequence, or the
   number of open sequences plus the index of a kept one. */
static specdec__shareable_keys specdec__engine_shareable_keys(specdec__engine *e, int at)
{
    specdec__shareable_keys keys;

    keys.view = at < e->room.max_views ? &e->sequences[at].view : &e->kept[at - e->room.max_views].view;
    keys.tokens = at < e->room.max_views ? e->sequences[at].tokens : e->kept[at - e->room.max_views].tokens;
    keys.at = at;
    return keys;
}

/* Makes drafters share what they have computed for the first `length` tokens of sequence `of` with sequence `at`. Both
   are indices as for specdec__engine_shareable_keys. */
static void specdec__engine_share_draft_prefix(specdec__engine *e, int at, int of, int length)
{
    int i;

    for (i = 0; i < e->drafter_count; i++) {
        const specdec__drafter_kind *kind = &e->drafters[i].kind;

        if (!kind->share_prefix || !(kind->keeps_ended_sequences || (at < e->room.max_views && of < e->room.max_views)))
            continue;
        if (at >= e->room.max_views) /* a drafter's cache may hold keys of an entry that the target's has lost */
            kind->truncate_sequence(&e->drafters[i], at, e->kept[at - e->room.max_views].tokens, 0);
        kind->share_prefix(&e->drafters[i], at, of, length);
    }
}

/* Makes sequence t begin with the first `length` tokens of another sequence, whose pages of keys and values t shares.
   of: index of the other sequence, as for specdec__engine_shareable_keys. */
static void specdec__engine_share_prefix(specdec *t, int of, int length)
{
    specdec__engine *e = t->engine;
    specdec__view *view = specdec__engine_shareable_keys(e, of).view;
    int i, missing;

    specdec__engine_drop_state_of_tokens(t, 0); /* also cancels the lane's job for the other sequence */
    if (!specdec__view_share_keys(&t->view, &e->target.kv, view, 0, specdec__min_int(length, view->length)))
        specdec__view_truncate(&t->view, &e->target.kv, 0); /* pages of its sliding window are free already */
    specdec__engine_share_draft_prefix(e, t->at, of, length);
    for (i = 0; i < e->drafter_count; i++) { /* hidden states that the other one no longer has are computed again */
        const specdec__drafter *d = &e->drafters[i];

        missing = d->kind.count_received_states ? t->view.length - d->kind.count_received_states(d, t->at) : 0;
        if (missing > 0 && missing <= SPECDEC__KEYS)
            specdec__view_truncate(&t->view, &e->target.kv, t->view.length - missing);
    }
}

/* Empties entry i of the table of kept sequences. */
static void specdec__engine_drop_kept_sequence(specdec__engine *e, int i)
{
    int k;

    specdec__view_truncate(&e->kept[i].view, &e->target.kv, 0);
    for (k = 0; k < e->drafter_count; k++)
        if (e->drafters[k].kind.keeps_ended_sequences)
            e->drafters[k].kind.truncate_sequence(&e->drafters[k], e->room.max_views + i, e->kept[i].tokens, 0);
}

/* Returns an empty entry of the table of kept sequences, for sequence t; -1: a kept sequence has all of t's tokens
   already. Entries that are a beginning of t are dropped, and, if no entry is empty, the oldest one. *shared becomes
   view->shared_keys of a dropped entry. */
static int specdec__engine_find_empty_kept_entry(const specdec *t, int *shared)
{
    specdec__engine *e = t->engine;
    const specdec__view *oldest;
    int i, empty = -1;

    for (*shared = i = 0; i < e->room.kept_views; i++) {
        specdec__view *view = &e->kept[i].view;
        const int least = specdec__min_int(view->length, t->view.length);

        if (least && specdec__stream_count_common_tokens(t, e->kept[i].tokens, least) == least) {
            if (least == t->view.length && specdec__view_has_all_keys(view, &e->target.kv, least)) {
                specdec__view_mark_used(view, &e->target.kv, 0);
                return -1;
            }
            if (least == view->length && specdec__view_has_all_keys(&t->view, &e->target.kv, least)) {
                *shared = specdec__max_int(*shared, view->shared_keys);
                specdec__engine_drop_kept_sequence(e, i);
            }
        }
        empty = view->length ? empty : i;
    }
    oldest = empty < 0 ? specdec__kv_find_evictable_view(&e->target.kv) : NULL;
    for (i = 0; oldest && empty < 0; i++)
        if (&e->kept[i].view == oldest)
            specdec__engine_drop_kept_sequence(e, empty = i);
    return empty;
}

/* Keeps the keys and values of a sequence that ends or is cut, for later sequences that begin with the same tokens.
   Those of forked children are not kept, as they begin like their parents. */
static void specdec__engine_keep_prefix(specdec *t)
{
    specdec__engine *e = t->engine;
    int shared, i;

    if (!e->room.kept_views || t->parent || t->view.length < SPECDEC__KEYS / 4)
        return;
    specdec__async_drop_drafts(t, t->count);
    i = specdec__engine_find_empty_kept_entry(t, &shared);
    if (i < 0)
        return;
    memcpy(e->kept[i].tokens, t->tokens, (size_t)t->view.length * sizeof *t->tokens);
    if (!specdec__view_share_keys(&e->kept[i].view, &e->target.kv, &t->view, 0, t->view.length)) {
        specdec__engine_drop_kept_sequence(e, i);
        return;
    }
    e->kept[i].view.shared_keys = shared;
    specdec__engine_share_draft_prefix(e, e->room.max_views + i, t->at, t->view.length);
}

/* Makes a free entry of the table of sequences an open, empty sequence with the engine's settings. */
static void specdec__engine_reset_sequence(specdec *t)
{
    t->open = 1;
    t->error.code = SPECDEC_OK;
    t->error.text[0] = 0;
    t->failed = SPECDEC_OK;
    SPECDEC__STORE(&t->cancel, 0);
    t->count = t->handed_out = t->from_row = t->cancelled = 0;
    t->parent = NULL;
    t->fork_at = t->depth = t->forks = t->placed = t->forced_count = 0;
    t->prompted_at = 0;
    memset(&t->stats, 0, sizeof t->stats);
    specdec__stream_check_settings(&t->engine->config.settings, &t->stop, NULL);
    specdec__stream_set_settings(t, &t->engine->config.settings, &t->stop);
    specdec__stream_begin_answer(t);
}

/* Gives back the pages and slots of caches that an ended sequence holds. The n-gram drafter may keep its n-grams. */
static void specdec__engine_release_sequence(specdec *t)
{
    specdec__engine *e = t->engine;
    int i;

    specdec__engine_keep_prefix(t);
    for (i = 0; i < e->drafter_count; i++)
        if (e->drafters[i].kind.end_sequence)
            e->drafters[i].kind.end_sequence(&e->drafters[i], t->at, t->tokens);
    specdec__engine_drop_state_of_tokens(t, 0);
}

/* Closes a sequence: gives back its pages of caches, and makes its entry in the table of sequences free. */
static void specdec__engine_close_sequence(specdec *t)
{
    specdec__engine_release_sequence(t);
    t->open = t->count = t->handed_out = t->finished = t->cancelled = 0;
}

/* Returns how many forks of a sequence lie behind its first `count` tokens, whether the children are open or not. */
static int specdec__engine_count_forks_behind(const specdec *t, int count)
{
    int behind = 0;

    while (SPECDEC__HAS_MANY_SEQUENCES && behind < t->placed && t->fork_places[t->placed - 1 - behind] > count)
        behind++;
    return behind;
}

/* Undoes the forks of a sequence behind its first `count` tokens: closes their children, and the children of these. */
static void specdec__engine_drop_children(specdec *t, int count)
{
    specdec__engine *e = t->engine;
    const int undone = specdec__engine_count_forks_behind(t, count);
    int i;

    for (i = 0; SPECDEC__HAS_MANY_SEQUENCES && i < e->room.max_views; i++) {
        specdec *x = &e->sequences[i];

        if (x->open && x->parent == t && x->fork_at > count) {
            specdec__engine_drop_children(x, 0);
            specdec__engine_close_sequence(x);
        }
    }
    t->forks -= undone;
    t->placed -= undone;
    if (t->count > count)
        t->forced_count = 0;
}

/* Drops a sequence's pending tokens (decoded, not returned), and the children forked behind them. */
static void specdec__engine_discard_pending(specdec *t)
{
    specdec__engine_drop_children(t, t->handed_out);
    specdec__engine_drop_state_of_tokens(t, t->handed_out);
    t->count = t->handed_out;
    t->complete_at = t->complete_at > t->count ? 0 : t->complete_at;
}

/* Drops a sequence's pending tokens, and the children forked behind them, but only if there are such children. */
static void specdec__engine_discard_pending_if_forked(specdec *t)
{
    if (specdec__engine_count_forks_behind(t, t->handed_out))
        specdec__engine_discard_pending(t);
}

/* Returns whether a sequence has open children. */
static int specdec__engine_has_children(const specdec *t)
{
    int i, found = 0;

    for (i = 0; i < t->engine->room.max_views; i++)
        found |= t->engine->sequences[i].open && t->engine->sequences[i].parent == t;
    return found;
}

/* Opens an empty sequence in a free entry of the table of t's engine, and returns it. NULL, with an error in t->error:
   no entry is free. */
static specdec *specdec__engine_open_sequence(specdec *t)
{
    specdec__engine *e = t->engine;
    int i;

    for (i = 0; i < e->room.max_views; i++)
        if (!e->sequences[i].open) {
            specdec__engine_reset_sequence(&e->sequences[i]);
            return &e->sequences[i];
        }
    specdec__fail(&t->error, SPECDEC_ERROR_MEMORY, "no slot for another sequence: all %d are open (config.sequences)",
                  e->room.max_views);
    return NULL;
}

/* Copies the state of the constraint of sequence `of` to its fork t. */
static void specdec__engine_fork_constraint(specdec *t, const specdec *of)
{
    const specdec__constrained *c = &of->constrained;

    if (!SPECDEC__HAS_CONSTRAINTS || !c->masker)
        return;
    specdec__constrained_begin_behind(&t->constrained, c->from);
    t->constrained.constraint = c->constraint;
    t->constrained.hash = c->hash;
    t->constrained.anchored = c->anchored;
    t->constrained.spelled = c->spelled;
    t->constrained.length = c->length;
    t->constrained.last = c->last;
    memcpy(t->constrained.state, c->state, 2 * sizeof *c->state);
}

/* Opens a copy of the sequence `of`, with its pending tokens, and returns it. NULL, with an error in of->error: no
   entry of the table of sequences is free. */
static specdec *specdec__engine_fork_sequence(specdec *of)
{
    const size_t count = (size_t)of->count;
    specdec *t = specdec__engine_open_sequence(of);

    if (!t)
        return NULL;
    t->stream = of->stream;
    t->stop = of->stop;
    specdec__stream_set_settings(t, &of->settings, &t->stop);
    t->released_bytes = of->released_bytes;
    t->count = of->count;
    t->handed_out = of->handed_out;
    t->answer_from = of->answer_from;
    t->slid = of->slid;
    t->finished = of->finished;
    t->depth = of->depth;
    t->forks = of->forks;
    t->placed = of->placed;
    if (t->placed)
        memcpy(t->fork_places, of->fork_places, (size_t)t->placed * sizeof *t->fork_places);
    t->forced_count = of->forced_count;
    memcpy(t->forced, of->forced, sizeof t->forced);
    memcpy(t->piece, of->piece, of->released_bytes);
    t->prompt_in_thought = of->prompt_in_thought;
    t->parts = of->parts;
    t->in_call = of->in_call;
    t->splitter = of->splitter;
    memcpy(t->part_bytes, of->part_bytes, 2 * of->text_room + SPECDEC__STOP_MAX_BYTES);
    if (of->splitter.input)
        t->splitter.input = (const char *)t->part_bytes + (of->splitter.input - (const char *)of->part_bytes);
    memcpy(t->tokens, of->tokens, count * sizeof *t->tokens);
    memcpy(t->surprise, of->surprise, count * sizeof *t->surprise);
    if (t->logprobs) {
        memcpy(t->logprobs, of->logprobs, count * sizeof *t->logprobs);
        memcpy(t->best, of->best, count * (size_t)t->best_count * sizeof *t->best);
    }
    specdec__engine_share_prefix(t, of->at, specdec__max_int(t->count - 1, 0));
    t->complete_at = of->complete_at;
    specdec__engine_fork_constraint(t, of);
    return t;
}

/* Opens the child of a sequence that is to fork. If no entry of the table of sequences is free, the sequence fails with
   MEMORY for now. */
static void specdec__engine_fork_child(specdec *t)
{
    specdec *child = specdec__engine_fork_sequence(t);
    int i;

    if (!child) {
        t->failed = SPECDEC_ERROR_MEMORY;
        return;
    }
    child->parent = t;
    child->fork_at = t->count;
    child->depth = t->depth + 1;
    child->forks = child->placed = child->forced_count = 0;
    for (i = 0; i < t->forced_count; i++) {
        if (child->logprobs)
            child->logprobs[child->count] = 1;
        child->tokens[child->count++] = t->forced[i];
    }
    child->handed_out = child->count;
    child->stop.stopped = 0;
    specdec__stream_begin_answer(child);
    t->forks++;
    t->fork_places[t->placed++] = t->count;
    t->forced_count = 0;
}

SPECDEC__FOR_SPEED
