/* =====================================================================================================================
 * >>speculation/draft_ngram: n-grams as a drafter.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../text/vocabulary.h"
#include "ngram.h"
#include "draft.h"
#include "tree.h"
#include "constrained.h"
#include "draft_model.h"

SPECDEC__FOR_SIZE

/* Removes from a draft tree the draft tokens that the sequence's constraint forbids, and their descendants. */
static void specdec__draft_ngram_drop_forbidden_tokens(const specdec__draft_request *request,
                                                       specdec__draft_tree *drafts)
{
    int32_t now[SPECDEC__MAX_TREE_NODES];
    int i, n = 1;

    now[0] = drafts->depth[0] = 0;
    for (i = 1; i < drafts->tree.n; i++) {
        const int parent = now[drafts->tree.parents[i]];

        now[i] = -1;
        if (parent < 0 || !specdec__constrained_allows_token(request->constrained, request->text,
                                                             specdec__draft_write_path_behind_text(request, drafts,
                                                                                                   parent),
                                                             drafts->tokens[i]))
            continue;
        specdec__tree_put_node(&drafts->tree, n, parent, specdec__tree_next_rank(&drafts->tree, n, parent));
        drafts->tokens[n] = drafts->tokens[i];
        drafts->share[n] = drafts->share[i];
        drafts->depth[n] = drafts->depth[parent] + 1;
        now[i] = n++;
    }
    drafts->tree.n = n;
}

/* Proposes the most probable continuations of the sequence, by n-grams of all sequences. */
static specdec_result specdec__draft_ngram_fill_tree(specdec__drafter *d, const specdec__draft_request *request,
                                                     specdec__draft_tree *drafts, specdec_error *error)
{
    specdec__ngram *index = (specdec__ngram *)d->state;
    specdec__ngram_reader *reader = &index->readers[request->at];
    specdec__ngram_tree_limits wish;
    specdec_result result;
    int i;

    wish.n = request->max_nodes;
    wish.d = request->max_levels;
    wish.least = SPECDEC__NGRAM_LEAST_PROBABILITY;
    wish.coupled = request->rule == SPECDEC_RULE_COUPLED && request->sampling->temperature > 0;
    wish.seed = request->sampling->seed;
    specdec__ngram_extend_sequence(index, reader, request->text, request->count);
    result = specdec__ngram_propose_tree(index, reader, &drafts->tree, drafts->tokens, drafts->share, &wish, error);
    for (i = result ? 0 : drafts->tree.n - 1; i > 0; i--)
        drafts->share[i] /= drafts->share[drafts->tree.parents[i]];
    if (!result && specdec__constrained_limits_tokens(request->constrained))
        specdec__draft_ngram_drop_forbidden_tokens(request, drafts);
    return result;
}

/* Updates how much each source of n-grams is trusted, from the token that followed text[length]. */
static void specdec__draft_ngram_update_source_trust(specdec__ngram *index, specdec__ngram_reader *reader,
                                                     specdec__ngram_path *place, const int32_t *text, int length)
{
    specdec__ngram_extend_sequence(index, reader, text, length);
    place->run = specdec__ngram_longest_continuable_run(index, reader);
    place->streak = reader->streak_at == length ? reader->streak : 0;
    reader->streak = specdec__ngram_update_source_trust(index, place, text[length]) ? place->streak + 1 : 0;
    reader->streak_at = length + 1;
}

/* Stores the target's most probable tokens at a node of a verified tree, if the node's logits were computed. */
static void specdec__draft_ngram_store_best_tokens(specdec__ngram *index, const specdec__ngram_path *place,
                                                   const specdec__verified_tree *j, int node)
{
    if (j->logits)
        specdec__recycle_store_best_tokens(&index->recycling, place->tail, place->known, j->kernels,
                                           j->logits + (size_t)node * (size_t)j->vocab, j->vocab,
                                           j->sampling->temperature);
}

/* Learns from the tokens that a step has decoded, and stores the target's most probable tokens behind every node of the
   verified tree, accepted or not. */
static void specdec__draft_ngram_receive_logits(specdec__drafter *d, const specdec__verified_tree *j)
{
    specdec__ngram *index = (specdec__ngram *)d->state;
    specdec__ngram_reader *reader = &index->readers[j->at];
    specdec__ngram_path place;
    unsigned char reached[SPECDEC__MAX_TREE_NODES] = {0};
    int i, node;

    for (i = 0; i < j->length; i++) {
        specdec__ngram_set_path(&place, j->tree, j->tokens, 0, j->text, j->count + i);
        place.root = !i;
        reached[j->path[i]] = 1;
        if (reader->length <= j->count + i)
            specdec__draft_ngram_update_source_trust(index, reader, &place, j->text, j->count + i);
        specdec__draft_ngram_store_best_tokens(index, &place, j, j->path[i]);
    }
    for (node = 1; node < j->tree->n && j->whole; node++) {
        if (reached[node])
            continue;
        specdec__ngram_set_path(&place, j->tree, j->tokens, node, j->text, j->count);
        specdec__draft_ngram_store_best_tokens(index, &place, j, node);
    }
}

/* Removes the n-grams of a sequence behind its first `length` tokens from the index. */
static void specdec__draft_ngram_truncate_sequence(specdec__drafter *d, int at, const int32_t *text, int length)
{
    specdec__ngram *index = (specdec__ngram *)d->state;

    if (index->readers[at].length > length)
        specdec__ngram_rewind_sequence(index, &index->readers[at], text, length);
}

/* Makes sequence `at` begin with the first `length` tokens of another sequence, whose n-grams the index counts
   already. */
static void specdec__draft_ngram_share_prefix(specdec__drafter *d, int at, int of, int length)
{
    specdec__ngram *index = (specdec__ngram *)d->state;

    (void)of;
    specdec__ngram_begin_sequence(index, &index->readers[at], length);
}

/* Moves an ended sequence's n-grams to the history of the index. */
static void specdec__draft_ngram_end_sequence(specdec__drafter *d, int at, const int32_t *text)
{
    specdec__ngram *index = (specdec__ngram *)d->state;

    specdec__ngram_end_sequence(index, &index->readers[at], text);
}

/* Returns how many of a sequence's first `count` tokens are not counted in the index yet. */
static int specdec__draft_ngram_count_unprefilled(const specdec__drafter *d, int at, int count)
{
    return count - ((const specdec__ngram *)d->state)->readers[at].length;
}

/* Takes the memory of the index from an arena. Its size follows from the number of sequences and from the configured
   history. */
static specdec_result specdec__draft_ngram_init(specdec__drafter *d, const specdec__draft_setup *setup,
                                                specdec__arena *arena, specdec_error *error)
{
    const int length = specdec__max_int(setup->room->view_keys, 64), history = setup->config->history;
    const int most = (1 << 28) / (SPECDEC__NGRAM_LONGEST_CONTEXT + 1);
    specdec__ngram counted, *index = SPECDEC__TAKE(arena, specdec__ngram, 1);
    specdec__ngram_size size;

    size.context = SPECDEC__NGRAM_LONGEST_CONTEXT;
    size.max_nodes = setup->capacity;
    size.readers = setup->room->max_views;
    size.history = history;
    size.recycled = specdec__min_int(specdec__min_int(4 * length, SPECDEC__NGRAM_RECYCLED_CONTEXTS),
                                     2 * setup->target->model->vocab_size);
    size.capacity = length + (size.readers - 1) * specdec__min_int(length, SPECDEC__NGRAM_SEQUENCE_TOKENS);
    size.capacity = specdec__min_int(specdec__min_int(size.capacity, most) + history, most) * (size.context + 1);
    d->state = index;
    return specdec__ngram_lay_out(index ? index : &counted, arena, &size, error);
}

/* Returns a hash of the spellings of all tokens, by which files of n-grams are known to be of this vocabulary. */
static uint64_t specdec__draft_ngram_hash_vocabulary(const specdec__vocab *vocab)
{
    uint64_t hash = SPECDEC__EMPTY_HASH;
    uint32_t id;

    for (id = 0; id < vocab->count; id++) {
        specdec__bytes text = specdec__vocab_token_text(vocab, id);

        hash = specdec__hash(hash, text.data - 8, text.size + 8); /* its length stands before it */
    }
    return hash;
}

/* Writes the row of the kind of drafter that uses n-grams of the sequences and most probable tokens of the target. */
static void specdec__draft_ngram_write_kind(specdec__drafter_kind *kind)
{
    kind->size = 32;
    kind->depth = 12;
    kind->init = specdec__draft_ngram_init;
    kind->fill_tree = specdec__draft_ngram_fill_tree;
    kind->truncate_sequence = specdec__draft_ngram_truncate_sequence;
    kind->share_prefix = SPECDEC__SHARES(specdec__draft_ngram_share_prefix);
    kind->end_sequence = specdec__draft_ngram_end_sequence;
    kind->count_unprefilled = specdec__draft_ngram_count_unprefilled;
    kind->receive_logits = specdec__draft_ngram_receive_logits;
}

SPECDEC__FOR_SPEED
