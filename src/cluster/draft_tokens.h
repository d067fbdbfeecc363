/* =====================================================================================================================
 * >>cluster/draft_tokens: rank 0's side of a draft rank: orders to it, and the draft tokens that have arrived from it.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "wire.h"
#include "link.h"

SPECDEC__FOR_SIZE

/* Sends an order with `count` words to the draft rank, about the sequence with view `view`. */
static void specdec__remote_draft_send_order(specdec__link *link, int kind, int view, const uint32_t *words, int count)
{
    unsigned char message[4 * (SPECDEC__WIRE_HEADER_WORDS + 4 + SPECDEC__WIRE_MAX_TOKENS)];
    unsigned char *to = message + 4 * SPECDEC__WIRE_HEADER_WORDS;
    int i;

    if (link->failed.code || link->drafts.lost)
        return;
    memset(message, 0, 4 * SPECDEC__WIRE_HEADER_WORDS);
    specdec__wire_put_word(to, 0, (uint32_t)kind | (uint32_t)(count + 2) << 8);
    specdec__wire_put_word(to, 1, (uint32_t)view);
    specdec__wire_put_word(to, 2, link->drafts.sequences[view].epoch);
    for (i = 0; i < count; i++)
        specdec__wire_put_word(to, 3 + i, words[i]);
    specdec__link_send(link, link->drafts.rank, SPECDEC__WIRE_ORDERS, message, 3 + count, 0, 0);
}

/* Sends the draft rank the tokens among a sequence's first `count` tokens that were not sent yet. */
static void specdec__remote_draft_send_tokens(specdec__link *link, int view, const int32_t *tokens, int count)
{
    specdec__remote_sequence *sequence = &link->drafts.sequences[view];
    uint32_t words[1 + SPECDEC__WIRE_MAX_TOKENS];
    int i;

    while (!link->drafts.lost && (sequence->sent_count < count || sequence->epoch_unsent)) {
        const int n = specdec__max_int(specdec__min_int(count - sequence->sent_count, SPECDEC__WIRE_MAX_TOKENS), 0);

        words[0] = (uint32_t)sequence->sent_count;
        for (i = 0; i < n; i++)
            words[1 + i] = (uint32_t)tokens[sequence->sent_count + i];
        sequence->sent_count += n;
        sequence->sent_at = specdec__os_monotonic_seconds();
        sequence->epoch_unsent = 0;
        specdec__remote_draft_send_order(link, SPECDEC__WIRE_ORDER_TOKENS, view, words, 1 + n);
    }
}

/* Sends the draft rank the sampling of a sequence, if it has changed. Draft tokens chosen by the old one become
   invalid. */
static void specdec__remote_draft_send_sampling(specdec__link *link, int view, const uint32_t *sampling)
{
    specdec__remote_sequence *sequence = &link->drafts.sequences[view];

    if (memcmp(sequence->sampling, sampling, sizeof sequence->sampling) == 0)
        return;
    memcpy(sequence->sampling, sampling, sizeof sequence->sampling);
    sequence->epoch++;
    sequence->count = 0;
    specdec__remote_draft_send_order(link, SPECDEC__WIRE_ORDER_SAMPLING, view, sampling, SPECDEC__WIRE_SAMPLING_WORDS);
}

/* Truncates a sequence on the draft rank to its first `length` tokens. The order is sent with the next tokens; where no
   token is left, at once. */
static void specdec__remote_draft_truncate_sequence(specdec__link *link, int view, int length)
{
    specdec__remote_sequence *sequence = &link->drafts.sequences[view];

    if (sequence->sent_count <= length)
        return;
    sequence->sent_count = length;
    sequence->epoch++;
    sequence->count = 0;
    sequence->epoch_unsent = 1;
    if (!length)
        specdec__remote_draft_send_tokens(link, view, NULL, 0);
}

/* Makes a sequence on the draft rank begin with the first `length` tokens of sequence `other`. The draft rank must have
   no token of it. */
static void specdec__remote_draft_fork_sequence(specdec__link *link, int view, int other, int length)
{
    specdec__remote_sequence *sequence = &link->drafts.sequences[view];
    uint32_t words[2];

    words[0] = (uint32_t)other;
    words[1] = (uint32_t)specdec__min_int(length, link->drafts.sequences[other].sent_count);
    sequence->sent_count = (int)words[1];
    sequence->epoch++;
    sequence->count = sequence->epoch_unsent = 0;
    specdec__remote_draft_send_tokens(link, other, NULL, 0);
    specdec__remote_draft_send_order(link, SPECDEC__WIRE_ORDER_FORK, view, words, 2);
}

/* Returns the draft token that is the last of a sequence's first `count` tokens: follows these tokens from the stored
   root to its descendants, which become the root; NULL: it has not arrived, or no path of draft tokens is equal to
   these tokens. */
static const specdec__remote_draft *specdec__remote_draft_find_root(specdec__link *link, int view,
                                                                    const int32_t *tokens,
                                                                    int count)
{
    specdec__remote_sequence *sequence = &link->drafts.sequences[view];
    const specdec__remote_draft *root = specdec__remote_draft_find_by_number(link, sequence->root), *child = NULL;
    uint32_t i;

    if (!root && sequence->count)
        specdec__remote_draft_invalidate_sequence(sequence);
    for (; root && sequence->count && sequence->count < count; root = child) {
        if (!root->count)
            return NULL;
        for (i = 0, child = NULL; i < root->count && !child; i++) {
            child = specdec__remote_draft_find_by_number(link, root->first + i);
            if (!child)
                specdec__remote_draft_invalidate_sequence(sequence);
            child = child && child->token == tokens[sequence->count] ? child : NULL;
        }
        sequence->count = child ? sequence->count + 1 : 0;
        sequence->root = child ? child->number : 0;
    }
    return root && sequence->count == count ? root : NULL;
}

SPECDEC__FOR_SPEED
