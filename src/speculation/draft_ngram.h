/* =====================================================================================================================
 * >>speculation/draft_ngram: n-grams as a drafter.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../text/vocabulary.h"
#include "ngram.h"
#include "draft.h"
#include "draft_model.h"

SPECDEC__FOR_SIZE

/* The likeliest continuations of the text by what it and the others hold already. */
static specdec_result specdec__draft_ngram_fill(specdec__drafter *d, specdec__proposal *p, specdec_error *error)
{
    specdec__ngram *index = (specdec__ngram *)d->state;
    specdec__ngram_reader *reader = &index->readers[p->at];

    specdec__ngram_extend(index, reader, p->text, p->count);
    return specdec__ngram_propose(index, reader, &p->tree, p->tokens, p->probability, p->most, p->levels,
                                  SPECDEC__NGRAM_LEAST, error);
}

static void specdec__draft_ngram_truncate(specdec__drafter *d, int at, const int32_t *text, int length)
{
    specdec__ngram *index = (specdec__ngram *)d->state;

    if (index->readers[at].length > length)
        specdec__ngram_rewind(index, &index->readers[at], text, length);
}

static void specdec__draft_ngram_share(specdec__drafter *d, int at, int of, int length)
{
    specdec__ngram *index = (specdec__ngram *)d->state;

    (void)of;
    specdec__ngram_begin(index, &index->readers[at], length);
}

static void specdec__draft_ngram_end(specdec__drafter *d, int at, const int32_t *text)
{
    specdec__ngram *index = (specdec__ngram *)d->state;

    specdec__ngram_end(index, &index->readers[at], text);
}

static int specdec__draft_ngram_behind(const specdec__drafter *d, int at, int count)
{
    return count - ((const specdec__ngram *)d->state)->readers[at].length;
}

static specdec_result specdec__draft_ngram_init(specdec__drafter *d, const specdec__draft_setup *setup,
                                                specdec__arena *arena, specdec_error *error)
{
    const int length = specdec__max_int(setup->room->length, 64), history = setup->config->history;
    const int most = (1 << 28) / (SPECDEC__NGRAM_TOKENS + 1);
    specdec__ngram counted, *index = SPECDEC__TAKE(arena, specdec__ngram, 1);
    specdec__ngram_size size;

    size.context = SPECDEC__NGRAM_TOKENS;
    size.max_nodes = setup->capacity;
    size.readers = setup->room->views;
    size.history = history;
    size.capacity = length + (size.readers - 1) * specdec__min_int(length, SPECDEC__NGRAM_SHARE);
    size.capacity = specdec__min_int(specdec__min_int(size.capacity, most) + history, most) * (size.context + 1);
    d->state = index;
    return specdec__ngram_lay_out(index ? index : &counted, arena, &size, error);
}

/* By what a file of what was seen is known to be for this vocabulary: a hash of its tokens' texts. */
static uint64_t specdec__draft_ngram_fingerprint(const specdec__vocab *vocab)
{
    uint64_t hash = SPECDEC__HASH;
    uint32_t id;

    for (id = 0; id < vocab->count; id++) {
        specdec__bytes text = specdec__vocab_text(vocab, id);

        hash = specdec__hash(hash, text.data - 8, text.size + 8); /* its length stands before it */
    }
    return hash;
}

static const specdec__drafter_kind specdec__draft_ngram_kind = {
    0, 0, 0, 0, 0, 32, 12, specdec__draft_ngram_init, specdec__draft_ngram_fill, NULL, NULL,
    specdec__draft_ngram_truncate,
    SPECDEC__SHARES(specdec__draft_ngram_share), specdec__draft_ngram_end, NULL, specdec__draft_ngram_behind, NULL,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0};

SPECDEC__FOR_SPEED
