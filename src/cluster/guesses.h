/* =====================================================================================================================
 * >>cluster/guesses: draft tokens of a rank that drafts, as rank 0 keeps them.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "wire.h"
#include "link.h"

SPECDEC__FOR_SIZE

/* Sends an order to the draft rank: (view, epoch, words...). */
static void specdec__remote_draft_order(specdec__link *link, int kind, int view, const uint32_t *words, int count)
{
    unsigned char message[4 * (SPECDEC__WIRE_HEAD + 4 + SPECDEC__WIRE_TOKENS)];
    unsigned char *to = message + 4 * SPECDEC__WIRE_HEAD;
    int i;

    if (link->failed.code || link->lost)
        return;
    memset(message, 0, 4 * SPECDEC__WIRE_HEAD);
    specdec__wire_put(to, 0, (uint32_t)kind | (uint32_t)(count + 2) << 8);
    specdec__wire_put(to, 1, (uint32_t)view);
    specdec__wire_put(to, 2, link->guessed[view].epoch);
    for (i = 0; i < count; i++)
        specdec__wire_put(to, 3 + i, words[i]);
    specdec__link_send(link, link->drafter, SPECDEC__WIRE_ORDERS, message, 3 + count, 0, 0);
}

/* Sends the draft rank those of a sequence's first `count` tokens that it does not have. */
static void specdec__remote_draft_tell(specdec__link *link, int view, const int32_t *text, int count)
{
    specdec__remote_sequence *known = &link->guessed[view];
    uint32_t words[1 + SPECDEC__WIRE_TOKENS];
    int i;

    while (!link->lost && (known->told < count || known->news)) {
        const int n = specdec__max_int(specdec__min_int(count - known->told, SPECDEC__WIRE_TOKENS), 0);

        words[0] = (uint32_t)known->told;
        for (i = 0; i < n; i++)
            words[1 + i] = (uint32_t)text[known->told + i];
        known->told += n;
        known->told_at = specdec__os_seconds();
        known->news = 0;
        specdec__remote_draft_order(link, SPECDEC__WIRE_TEXT, view, words, 1 + n);
    }
}

/* Sends the draft rank the sampling of a sequence, if that has changed. */
static void specdec__remote_draft_choose(specdec__link *link, int view, const uint32_t *sampling)
{
    specdec__remote_sequence *known = &link->guessed[view];

    if (memcmp(known->sampling, sampling, sizeof known->sampling) == 0)
        return;
    memcpy(known->sampling, sampling, sizeof known->sampling);
    known->epoch++;
    known->count = 0;
    specdec__remote_draft_order(link, SPECDEC__WIRE_CHOOSE, view, sampling, SPECDEC__GUESS_SAMPLING);
}

/* Cuts a sequence on the draft rank to its first `length` tokens. */
static void specdec__remote_draft_cut(specdec__link *link, int view, int length)
{
    specdec__remote_sequence *known = &link->guessed[view];

    if (known->told <= length)
        return;
    known->told = length;
    known->epoch++;
    known->count = 0;
    known->news = 1;
    if (!length)
        specdec__remote_draft_tell(link, view, NULL, 0);
}

/* Tells the draft rank that a sequence, of which it has nothing, begins with the first `length` tokens of
   sequence `other`. */
static void specdec__remote_draft_branch(specdec__link *link, int view, int other, int length)
{
    specdec__remote_sequence *known = &link->guessed[view];
    uint32_t words[2];

    words[0] = (uint32_t)other;
    words[1] = (uint32_t)specdec__min_int(length, link->guessed[other].told);
    known->told = (int)words[1];
    known->epoch++;
    known->count = known->news = 0;
    specdec__remote_draft_tell(link, other, NULL, 0);
    specdec__remote_draft_order(link, SPECDEC__WIRE_BRANCH, view, words, 2);
}

/* The draft token that is the last of a sequence's first `count` tokens; NULL: it has not arrived, or the tokens before
   it differ. */
static const specdec__remote_draft *specdec__remote_draft_root(specdec__link *link, int view, const int32_t *text,
                                                               int count)
{
    specdec__remote_sequence *known = &link->guessed[view];
    const specdec__remote_draft *guess = specdec__remote_draft_at(link, known->root), *child = NULL;
    uint32_t i;

    if (!guess && known->count)
        specdec__remote_draft_forget(known);
    for (; guess && known->count && known->count < count; guess = child) {
        if (!guess->count)
            return NULL;
        for (i = 0, child = NULL; i < guess->count && !child; i++) {
            child = specdec__remote_draft_at(link, guess->first + i);
            if (!child)
                specdec__remote_draft_forget(known);
            child = child && child->token == text[known->count] ? child : NULL;
        }
        known->count = child ? known->count + 1 : 0;
        known->root = child ? child->number : 0;
    }
    return guess && known->count == count ? guess : NULL;
}

SPECDEC__FOR_SPEED
