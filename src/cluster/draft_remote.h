/* =====================================================================================================================
 * >>cluster/draft_remote: a drafter whose draft model runs on another rank.
 *
 * The draft rank extends its tree from the most probable draft tokens by itself; rank 0 looks them up. A draft token
 * that has not arrived yet is left out. Where no path of the tree is equal to the sequence, new draft tokens are waited
 * for, for a part of a step's time.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "../model/model.h"
#include "../forward/context.h"
#include "wire.h"
#include "link.h"
#include "draft_tokens.h"
#include "../speculation/tree.h"
#include "../speculation/draft.h"
#include "../speculation/levels.h"

SPECDEC__FOR_SIZE

/* The state of this drafter. */
typedef struct specdec__draft_remote {
    const specdec__context *target; /* the target's context; its link stores the draft tokens that have arrived */
    int vocab;                      /* number of tokens of the target's vocabulary; other tokens are not proposed */
    uint32_t *numbers;              /* (sequences, capacity): the numbers of candidates on the draft rank; 0: none */
    int capacity;                   /* candidates of a sequence, at most */
    double until;                   /* time in seconds until which draft tokens are waited for; 0: not at all */
} specdec__draft_remote;

SPECDEC__STATIC_ASSERT(remote_draft_holds_children, SPECDEC__GROWN_CHILDREN <= SPECDEC__REMOTE_DRAFT_CHILDREN);

/* Returns the connection of this rank to the other ranks. */
static specdec__link *specdec__draft_remote_link(const specdec__drafter *d)
{
    return (specdec__link *)((const specdec__draft_remote *)d->state)->target->hooks_argument;
}

/* Returns the numbers that the candidates of sequence `at` have on the draft rank (capacity). */
static uint32_t *specdec__draft_remote_candidate_numbers(const specdec__drafter *d, int at)
{
    const specdec__draft_remote *m = (const specdec__draft_remote *)d->state;

    return m->numbers + (size_t)at * (size_t)m->capacity;
}

/* Returns the draft token of the draft rank that a candidate is; NULL: its children have not arrived. */
static const specdec__remote_draft *
specdec__draft_remote_find_draft_token(const specdec__drafter *d, const specdec__draft_request *request, int candidate)
{
    specdec__link *link = specdec__draft_remote_link(d);
    const specdec__remote_draft *parent =
        candidate
        ? specdec__remote_draft_find_by_number(link, specdec__draft_remote_candidate_numbers(d, request->at)[candidate])
        : specdec__remote_draft_find_root(link, request->at, request->text, request->count);

    return parent && parent->count ? parent : NULL;
}

/* Returns whether the children of a candidate have arrived from the draft rank. */
static int specdec__draft_remote_can_extend(const specdec__drafter *d, const specdec__draft_request *request,
                                            int candidate)
{
    return specdec__draft_remote_find_draft_token(d, request, candidate) != NULL;
}

/* Returns the seconds until more draft tokens are expected, from the mean times measured so far; 0: twice the mean time
   has passed. */
static double specdec__draft_remote_seconds_until_arrival(const specdec__drafter *d,
                                                          const specdec__draft_request *request)
{
    const specdec__link *link = specdec__draft_remote_link(d);
    const int has_children = specdec__draft_remote_can_extend(d, request, 0);
    const double least = 0.2 * link->drafts.latency;
    const double interval = link->drafts.interval > least ? link->drafts.interval : least;
    const double usual = has_children ? interval : link->drafts.latency;
    const double began = has_children ? link->drafts.arrived_at : link->drafts.sequences[request->at].sent_at;
    const double since = specdec__os_monotonic_seconds() - began;

    return since >= 2 * usual ? 0 : since < 0.8 * usual ? usual - since : 0.2 * usual;
}

/* Sets the time until which draft tokens behind the root are waited for: twice the usual time, at most
   request->wait_seconds, after the last token was sent to the draft rank. */
static void specdec__draft_remote_begin(specdec__drafter *d, const specdec__draft_request *request)
{
    specdec__draft_remote *m = (specdec__draft_remote *)d->state;
    const specdec__link *link = specdec__draft_remote_link(d);
    const double late = 2 * link->drafts.latency,
                 wait = !(late > 0) || late > request->wait_seconds ? request->wait_seconds : late;

    m->until = specdec__draft_remote_can_extend(d, request, 0) ? 0 : link->drafts.sequences[request->at].sent_at + wait;
}

/* Waits until the children of a candidate have arrived from the draft rank, at most until the time `until` of the
   drafter's state. */
static void specdec__draft_remote_await_children(specdec__drafter *d, const specdec__draft_request *request,
                                                 int candidate)
{
    const specdec__draft_remote *m = (const specdec__draft_remote *)d->state;
    specdec__link *link = specdec__draft_remote_link(d);
    double left;

    while ((left = m->until - specdec__os_monotonic_seconds()) > 0 && !link->failed.code &&
           !SPECDEC__LOAD(m->target->pool->cancel) && !specdec__draft_remote_can_extend(d, request, candidate)) {
        specdec__link_wait_for_message(link, left);
        specdec__link_handle_urgent_messages(link);
    }
}

/* Returns child number `rank` (from 1) of a draft token, the most probable one first; NULL: there is none, or the
   target's vocabulary lacks its token. */
static const specdec__remote_draft *specdec__draft_remote_find_child(const specdec__drafter *d,
                                                                     const specdec__remote_draft *parent, int rank)
{
    const specdec__draft_remote *m = (const specdec__draft_remote *)d->state;
    const specdec__remote_draft *child =
        rank <= parent->count
            ? specdec__remote_draft_find_by_number(specdec__draft_remote_link(d), parent->first + (uint32_t)rank - 1)
            : NULL;

    return child && child->token < m->vocab ? child : NULL;
}

/* Fills a tree of a given shape with draft tokens that have arrived. */
static specdec_result specdec__draft_remote_fill(specdec__drafter *d, const specdec__draft_request *request,
                                                 specdec__draft_tree *drafts, specdec_error *error)
{
    uint32_t *numbers = specdec__draft_remote_candidate_numbers(d, request->at);
    int i;

    (void)error;
    specdec__draft_remote_begin(d, request);
    for (i = 1; i < drafts->tree.n; i++) {
        const int above = drafts->tree.parents[i];
        const specdec__remote_draft *parent, *child;

        if (drafts->tree.ranks[i] == 1 && (!above || drafts->tokens[above] >= 0))
            specdec__draft_remote_await_children(d, request, above);
        parent = specdec__draft_remote_find_draft_token(d, request, above);
        child = parent ? specdec__draft_remote_find_child(d, parent, drafts->tree.ranks[i]) : NULL;

        numbers[i] = child ? child->number : 0;
        drafts->tokens[i] = child ? child->token : -1;
    }
    return SPECDEC_OK;
}

/* Appends the children of a candidate that have arrived to a tree of draft tokens. */
static void specdec__draft_remote_append_children(specdec__drafter *d, const specdec__draft_request *request,
                                                  specdec__draft_tree *drafts, int candidate)
{
    const specdec__remote_draft *parent = specdec__draft_remote_find_draft_token(d, request, candidate), *child;
    const int most = specdec__min_int(SPECDEC__GROWN_CHILDREN, drafts->tree.capacity - drafts->tree.n);
    int i;

    drafts->extended[candidate] = parent != NULL;
    for (i = 1; parent && i <= most && (child = specdec__draft_remote_find_child(d, parent, i)) != NULL; i++) {
        const int at = drafts->tree.n++;

        specdec__tree_put_node(&drafts->tree, at, candidate, i);
        drafts->tokens[at] = child->token;
        drafts->depth[at] = drafts->depth[candidate] + 1;
        drafts->share[at] = (float)child->share / 255.0f;
        drafts->extended[at] = 0;
        specdec__draft_remote_candidate_numbers(d, request->at)[at] = child->number;
    }
}

/* Extends a tree by the children of the chosen candidates that have arrived; waits for those of the most probable
   candidate. */
static specdec_result specdec__draft_remote_extend(specdec__drafter *d, const specdec__draft_request *request,
                                                   specdec__draft_tree *drafts, const specdec__draft_frontier *frontier,
                                                   specdec_error *error)
{
    const int32_t *chosen = frontier->chosen;
    int i, best = 0;

    (void)error;
    for (i = 1; i < frontier->count; i++)
        best = frontier->probability[chosen[i]] > frontier->probability[chosen[best]] ? i : best;
    if (!chosen[0])
        specdec__draft_remote_begin(d, request);
    specdec__draft_remote_await_children(d, request, chosen[best]);
    for (i = 0; i < frontier->count; i++)
        specdec__draft_remote_append_children(d, request, drafts, chosen[i]);
    drafts->extended_count += chosen[0] ? frontier->count : 0;
    return SPECDEC_OK;
}

/* Makes a candidate the root of a tree: its descendants are kept, with their numbers on the draft rank. */
static void specdec__draft_remote_keep_subtree(specdec__drafter *d, int at, specdec__draft_tree *drafts, int root)
{
    uint32_t *numbers = specdec__draft_remote_candidate_numbers(d, at);
    const int known = drafts->tree.n;
    int i;

    specdec__draft_reroot_tree(drafts, root);
    for (i = root + 1; i < known; i++)
        if (drafts->moved[i] >= 0)
            numbers[drafts->moved[i]] = numbers[i];
    for (drafts->extended_count = 0, i = 1; i < drafts->tree.n; i++)
        drafts->extended_count += drafts->extended[i];
}

/* Truncates a sequence (at: its number) on the draft rank. */
static void specdec__draft_remote_truncate_sequence(specdec__drafter *d, int at, const int32_t *text, int length)
{
    (void)text;
    specdec__remote_draft_truncate_sequence(specdec__draft_remote_link(d), at, length);
}

/* Makes sequence `at` begin with the first `length` tokens of sequence `of` on the draft rank. */
static void specdec__draft_remote_share_tokens(specdec__drafter *d, int at, int of, int length)
{
    specdec__remote_draft_fork_sequence(specdec__draft_remote_link(d), at, of, length);
}

/* Returns the cost of a level of the draft tree, 0: drafting takes time only on the draft rank. */
static double specdec__draft_remote_cost(const specdec__drafter *d, const specdec__model *target)
{
    (void)d;
    (void)target;
    return 0;
}

/* Returns the number of a sequence's tokens that this drafter has still to prefill, 0: the draft rank prefills them
   when they arrive. */
static int specdec__draft_remote_unread_count(const specdec__drafter *d, int at, int count)
{
    (void)d;
    (void)at;
    (void)count;
    return 0;
}

/* Sends the draft rank a sequence's sampling and its new tokens. */
static void specdec__draft_remote_prepare(specdec__drafter *d, int at, const int32_t *text, int count,
                                          const specdec_sampling *s)
{
    specdec__link *link = specdec__draft_remote_link(d);
    uint32_t words[SPECDEC__WIRE_SAMPLING_WORDS];
    specdec_sampling others;

    words[0] = specdec__bits_from_float(s->temperature);
    words[1] = (uint32_t)s->top_k;
    words[2] = specdec__bits_from_float(s->top_p);
    words[3] = specdec__bits_from_float(s->min_p);
    words[4] = specdec__bits_from_float(s->repetition_penalty);
    words[5] = (uint32_t)s->repetition_window;
    words[6] = (uint32_t)s->seed;
    words[7] = (uint32_t)(s->seed >> 32);
    others = *s;
    specdec__sample_copy_settings_as_words(&others, words + 8, 0);
    specdec__remote_draft_send_sampling(link, at, words);
    specdec__remote_draft_send_tokens(link, at, text, count);
}

/* Takes the remote drafter's memory from the arena. */
static specdec_result specdec__draft_remote_init(specdec__drafter *d, const specdec__draft_setup *setup,
                                                 specdec__arena *arena, specdec_error *error)
{
    specdec__draft_remote *m = SPECDEC__TAKE(arena, specdec__draft_remote, 1);
    uint32_t *numbers = SPECDEC__TAKE(arena, uint32_t, (size_t)setup->room->max_views * (size_t)setup->capacity);

    (void)error;
    d->state = m;
    if (!m)
        return SPECDEC_OK;
    m->target = setup->target;
    m->vocab = setup->target->model->vocab_size;
    m->numbers = numbers;
    m->capacity = setup->capacity;
    return SPECDEC_OK;
}

/* Writes the row of functions of this drafter: a draft model on another rank. */
static void specdec__draft_remote_write_kind(specdec__drafter_kind *kind)
{
    kind->size = 8;
    kind->depth = 5;
    kind->init = specdec__draft_remote_init;
    kind->fill_tree = specdec__draft_remote_fill;
    kind->extend_tree = specdec__draft_remote_extend;
    kind->truncate_sequence = specdec__draft_remote_truncate_sequence;
    kind->share_prefix = specdec__draft_remote_share_tokens;
    kind->level_cost = specdec__draft_remote_cost;
    kind->count_unprefilled = specdec__draft_remote_unread_count;
    kind->keep_subtree = specdec__draft_remote_keep_subtree;
    kind->prepare_sequence = specdec__draft_remote_prepare;
    kind->can_extend = specdec__draft_remote_can_extend;
    kind->seconds_until_more_children = specdec__draft_remote_seconds_until_arrival;
}

SPECDEC__FOR_SPEED
