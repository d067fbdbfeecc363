/* =====================================================================================================================
 * >>engine/slide: a full sequence slides: older tokens are removed.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../speculation/constrained.h"
#include "stream.h"
#include "sequences.h"
#include "prefill.h"

SPECDEC__FOR_SIZE

/* Returns how many tokens a sequence whose context is full removes: the older half of those behind the first
   settings.slide tokens, which stay. 0: it does not slide. A sequence slides once a call at most, so that a call which
   can return nothing ends. Parents do not slide, as children share their beginning. */
static int specdec__engine_count_tokens_to_slide(const specdec *t)
{
    const int others = t->context - t->settings.slide;

    if (!t->settings.slide || others < 2 || t->before.count || t->count != t->handed_out || t->count != t->context ||
        t->parent || specdec__engine_has_children(t))
        return 0;
    return others / 2;
}

/* Moves the fork places of a sequence that slides to the end of their array. back 1: the slide is undone, and they are
   moved back. */
static void specdec__engine_move_fork_places(specdec *t, int back)
{
    const int count = back ? t->before.placed : t->placed;
    int32_t *end = t->fork_places + specdec__stream_fork_limit(&t->engine->config, t->room) - count;

    if (count)
        memmove(back ? t->fork_places : end, back ? end : t->fork_places, (size_t)count * sizeof *end);
    t->before.placed = count;
    t->placed = back ? count : 0;
}

/* Stores the state of the sequence's constraint behind all its tokens, so that the constraint continues from there once
   some of them have slid out. */
static void specdec__engine_store_constraint_state(specdec *t)
{
    specdec__constrained *c = &t->constrained;

    if (!specdec__constrained_limits_tokens(c) || !c->constraint)
        return;
    specdec__constrained_commit_state(c, t->tokens, t->count);
    c->state[1] = c->state[0];
}

/* Makes the constraint of a sequence that has slid, or slid back, continue from its stored state. */
static void specdec__engine_restore_constraint_state(specdec *t)
{
    if (!specdec__constrained_limits_tokens(&t->constrained))
        return;
    specdec__constrained_begin_behind(&t->constrained, t->count);
    t->constrained.anchored = 1;
    t->complete_at = 0;
}

/* Makes a sequence whose context is full slide: removes `gone` tokens behind the first settings.slide ones. All keys
   behind these are computed again, as for a prompt: so the sequence continues like one that was prompted with the
   tokens which are left. */
static void specdec__engine_slide_sequence(specdec *t, int gone)
{
    const int keep = t->settings.slide, lost = keep + gone - specdec__max_int(t->answer_from, keep);

    specdec__engine_store_constraint_state(t);
    specdec__engine_drop_state_of_tokens(t, keep);
    t->before.count = gone;
    t->before.answer_from = t->answer_from;
    t->before.slid = t->slid;
    memcpy(t->tokens + t->room, t->tokens + keep, (size_t)gone * sizeof *t->tokens);
    specdec__stream_rotate_tokens(t, keep, gone, t->count - keep - gone);
    t->count -= gone;
    t->handed_out = t->count;
    specdec__engine_restore_constraint_state(t);
    t->stats.slid += gone;
    t->slid = specdec__min_int(t->slid + specdec__max_int(lost, 0), 1 << 30);
    if (t->answer_from > keep)
        t->answer_from = specdec__max_int(t->answer_from - gone, keep);
    specdec__engine_move_fork_places(t, 0); /* forks count as before, though their tokens moved */
    t->from_row = t->engine->room.max_views == 1;
    if (!t->from_row)
        specdec__engine_share_longest_prefix(t);
}

/* Undoes the slide of a sequence in the current call, as the call has failed. Tokens decoded since then are dropped,
   and so are log-probabilities that they have overwritten. */
static void specdec__engine_undo_slide(specdec *t)
{
    const int gone = t->before.count, keep = t->settings.slide;
    int i;

    if (!gone)
        return;
    specdec__engine_drop_children(t, 0);
    specdec__engine_drop_state_of_tokens(t, keep);
    for (i = t->context - gone; t->logprobs && i < t->count; i++)
        t->logprobs[i] = 1;
    t->count = t->handed_out = t->context;
    memcpy(t->tokens + t->context - gone, t->tokens + t->room, (size_t)gone * sizeof *t->tokens);
    specdec__stream_rotate_tokens(t, keep, t->context - keep - gone, gone);
    t->answer_from = t->before.answer_from;
    t->slid = t->before.slid;
    specdec__engine_move_fork_places(t, 1);
    specdec__engine_restore_constraint_state(t);
    t->stats.slid -= gone;
    t->from_row = t->before.count = 0;
}

SPECDEC__FOR_SPEED
