/* =====================================================================================================================
 * >>speculation/ngram: an index of every run of up to context + 1 tokens, and trees of likely continuations grown from
 *     it. What one sequence brought is offered to all.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "tree.h"

SPECDEC__FOR_SIZE
#define SPECDEC__NGRAM_CONTEXT_MAX 8   /* tokens of context, at most */
#define SPECDEC__NGRAM_WIDTH       8   /* continuations considered a node */
#define SPECDEC__NGRAM_SCAN        512 /* distinct continuations of a context looked at, newest first */
#define SPECDEC__NGRAM_END        (-1) /* among tokens: a text ends here */
#define SPECDEC__NGRAM_HEAD        24  /* bytes before the tokens of a file */

/* A run of tokens that occurs in the texts. Indices of runs; -1: none. Run 0 is the empty one. */
typedef struct specdec__ngram_run {
    int32_t token;  /* its last token */
    int32_t parent; /* the run without its last token */
    int32_t suffix; /* the run without its first token */
    int32_t depth;  /* tokens */
    int32_t count;  /* occurrences; a run that has lost all of them stays until those made after it are gone */
    int32_t total;  /* occurrences that have a token after them */
    int32_t kinds;  /* different tokens after them */
    int32_t child;  /* the newest run that is one token longer */
    int32_t sibling;
    int32_t chain; /* next in the hash bucket */
} specdec__ngram_run;

/* A node that the tree may get. */
typedef struct specdec__ngram_offer {
    float probability; /* of the path from the root */
    int32_t token, parent, depth;
    int32_t run;   /* the longest run that ends here and may be continued */
    int32_t order; /* of making; settles equal probabilities */
} specdec__ngram_offer;

/* A live text's place in the index, which counts text[from .. length). An empty place is free for the next text. */
typedef struct specdec__ngram_reader {
    const int32_t *text; /* the caller's: what was counted stays as it is until it is taken back */
    int from, length;
    int32_t active[SPECDEC__NGRAM_CONTEXT_MAX + 1]; /* the run that is the text's last k tokens */
} specdec__ngram_reader;

/* How large an index is. */
typedef struct specdec__ngram_size {
    int capacity;  /* runs: a token of text needs up to context + 1, of 40 bytes and a bucket each */
    int context;   /* tokens, 1 to SPECDEC__NGRAM_CONTEXT_MAX */
    int max_nodes; /* of a tree */
    int readers;   /* live texts */
    int history;   /* tokens kept of texts that have ended, each text's end taking one more; 0: none */
} specdec__ngram_size;

/* The index. It counts the history and what its readers have, each run as often as it occurs in these. With one text
   and no history, runs are made and removed in stack order, so a rewind leaves no trace. */
typedef struct specdec__ngram {
    specdec__ngram_run *runs;       /* [size.capacity] */
    int32_t *buckets;               /* [bucket_count], a power of two */
    specdec__ngram_offer *offers;   /* [size.max_nodes * SPECDEC__NGRAM_WIDTH], a heap */
    specdec__ngram_reader *readers; /* [size.readers] */
    int32_t *history;               /* [size.history], a ring: texts, each with SPECDEC__NGRAM_END behind it */
    int count, offer_count, offer_order;
    int oldest, remembered; /* in history: where it begins, and how much there is */
    uint32_t bucket_count;
    specdec__ngram_size size;
    specdec__ngram_reader past;     /* where history is indexed anew */
} specdec__ngram;

/* A reader is to count its text from here. */
static void specdec__ngram_start(specdec__ngram_reader *reader, int from)
{
    int k;

    reader->from = reader->length = from;
    for (k = 1; k <= SPECDEC__NGRAM_CONTEXT_MAX; k++)
        reader->active[k] = -1;
    reader->active[0] = 0;
}

/* Removes all runs. */
static void specdec__ngram_clear(specdec__ngram *index)
{
    uint32_t i;

    for (i = 0; i < index->bucket_count; i++)
        index->buckets[i] = -1;
    memset(&index->runs[0], 0, sizeof index->runs[0]);
    index->runs[0].token = index->runs[0].parent = index->runs[0].child = index->runs[0].sibling =
        index->runs[0].chain = -1;
    index->count = 1;
}

/* Takes the index's memory from an arena. One that only counts fills nothing. */
static specdec_result specdec__ngram_lay_out(specdec__ngram *index, specdec__arena *arena,
                                                             const specdec__ngram_size *size, specdec_error *error)
{
    const int most = 1 << 28, context = size->context, max_nodes = size->max_nodes;
    int i;

    if (context < 1 || context > SPECDEC__NGRAM_CONTEXT_MAX || max_nodes < 1 || max_nodes > SPECDEC_TREE_MAX_NODES)
        return specdec__fail(
            error, SPECDEC_ERROR_ARGUMENT,
            "an n-gram index of %d tokens of context for trees of %d nodes; allowed are 1 to %d and 1 to %d", context,
            max_nodes, SPECDEC__NGRAM_CONTEXT_MAX, SPECDEC_TREE_MAX_NODES);
    if (size->readers < 1 || size->readers > most / (16 * (context + 1)) || size->capacity > most ||
        size->capacity < 16 * (context + 1) * size->readers || size->history < 0 || size->history > most)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "an n-gram index of %d runs for %d texts and a history of "
                             "%d tokens; each text needs %d runs, at most %d are allowed", size->capacity,
                             size->readers, size->history, 16 * (context + 1), most);
    memset(index, 0, sizeof *index);
    index->size = *size;
    for (index->bucket_count = 16; index->bucket_count < (uint32_t)size->capacity; index->bucket_count *= 2)
        continue;
    index->runs = (specdec__ngram_run *)specdec__arena_reserve(arena, (size_t)size->capacity, sizeof *index->runs,
                                                               SPECDEC__CACHE_LINE); /* zeroed one by one */
    index->buckets = SPECDEC__TAKE(arena, int32_t, index->bucket_count);
    index->offers = SPECDEC__TAKE(arena, specdec__ngram_offer, (size_t)max_nodes * SPECDEC__NGRAM_WIDTH);
    index->readers = SPECDEC__TAKE(arena, specdec__ngram_reader, size->readers);
    index->history = SPECDEC__TAKE(arena, int32_t, size->history);
    if (arena->used == SIZE_MAX)
        return specdec__fail(error, SPECDEC_ERROR_MEMORY, "no memory left for an n-gram index of %d runs",
                             size->capacity);
    if (!arena->base)
        return SPECDEC_OK;
    specdec__ngram_clear(index);
    specdec__ngram_start(&index->past, 0);
    for (i = 0; i < size->readers; i++)
        specdec__ngram_start(&index->readers[i], 0);
    return SPECDEC_OK;
}

/* --- counting ----------------------------------------------------------------------------------------------------- */

/* The bucket of the run that continues parent by token. */
SPECDEC__INLINE int32_t *specdec__ngram_bucket(const specdec__ngram *index, int32_t parent, int32_t token)
{
    uint64_t key = ((uint64_t)(uint32_t)parent << 32 | (uint32_t)token) * 0x9e3779b97f4a7c15u;

    return &index->buckets[(uint32_t)(key >> 32) & (index->bucket_count - 1)];
}

/* The run that continues parent by token, or -1. */
static int32_t specdec__ngram_find(const specdec__ngram *index, int32_t parent, int32_t token)
{
    int32_t run = *specdec__ngram_bucket(index, parent, token);

    while (run >= 0 && (index->runs[run].parent != parent || index->runs[run].token != token))
        run = index->runs[run].chain;
    return run;
}

/* The run text[from .. end), or -1. */
static int32_t specdec__ngram_locate(const specdec__ngram *index, const int32_t *text, int from, int end)
{
    int32_t run = 0;

    for (; from < end && run >= 0; from++)
        run = specdec__ngram_find(index, run, text[from]);
    return run;
}

/* Adds the run that continues parent by token; there is room. */
static int32_t specdec__ngram_add(specdec__ngram *index, int32_t parent, int32_t token, int32_t suffix)
{
    int32_t *bucket = specdec__ngram_bucket(index, parent, token), at = index->count++;
    specdec__ngram_run *run = &index->runs[at];

    memset(run, 0, sizeof *run);
    run->token = token;
    run->parent = parent;
    run->suffix = suffix;
    run->depth = index->runs[parent].depth + 1;
    run->child = -1;
    run->sibling = index->runs[parent].child;
    run->chain = *bucket;
    *bucket = at;
    index->runs[parent].child = at;
    return at;
}

/* Removes the newest runs, as far as they have no occurrences left. */
static void specdec__ngram_pop(specdec__ngram *index)
{
    while (index->count > 1 && index->runs[index->count - 1].count <= 0) {
        const specdec__ngram_run *run = &index->runs[--index->count];

        *specdec__ngram_bucket(index, run->parent, run->token) = run->chain;
        index->runs[run->parent].child = run->sibling;
    }
}

/* Counts token as what follows a reader's text; there is room. O(context). */
static void specdec__ngram_insert(specdec__ngram *index, specdec__ngram_reader *reader, int32_t token)
{
    int32_t longer[SPECDEC__NGRAM_CONTEXT_MAX + 2], suffix = 0;
    int k, reached = 0;

    longer[0] = 0;
    for (k = 0; k <= index->size.context && reader->active[k] >= 0; k++) {
        int32_t run = specdec__ngram_find(index, reader->active[k], token);

        if (run < 0)
            run = specdec__ngram_add(index, reader->active[k], token, suffix);
        if (!index->runs[run].count++)
            index->runs[reader->active[k]].kinds++;
        index->runs[reader->active[k]].total++;
        suffix = longer[k + 1] = run;
        reached = k + 1;
    }
    for (k = 1; k <= index->size.context; k++)
        reader->active[k] = k <= reached ? longer[k] : -1;
    reader->length++;
}

/* Takes one occurrence out of the counts. A caller's changed text may have none. */
static void specdec__ngram_uncount(specdec__ngram *index, int32_t run)
{
    specdec__ngram_run *parent;

    if (run <= 0 || index->runs[run].count <= 0)
        return;
    parent = &index->runs[index->runs[run].parent];
    parent->total--;
    if (!--index->runs[run].count)
        parent->kinds--;
}

/* Takes the last token of a reader's text out of the counts: the runs that end with it. */
static void specdec__ngram_remove(specdec__ngram *index, specdec__ngram_reader *reader, const int32_t *text)
{
    int end = reader->length--, k;

    for (k = 1; k <= index->size.context + 1 && end - k >= reader->from; k++)
        specdec__ngram_uncount(index, specdec__ngram_locate(index, text, end - k, end));
    specdec__ngram_pop(index);
}

/* Takes the first token of what is counted of a text out of the counts: the runs that begin with it. text[count] is
   all that is counted, or its first context + 1 tokens. */
static void specdec__ngram_forget(specdec__ngram *index, const int32_t *text, int count)
{
    int32_t run = 0;
    int i;

    for (i = 0; i <= index->size.context && i < count && run >= 0; i++) {
        run = specdec__ngram_find(index, run, text[i]);
        specdec__ngram_uncount(index, run);
    }
    specdec__ngram_pop(index);
}

/* --- bounds: the oldest is forgotten ------------------------------------------------------------------------------ */

/* A place in the history, counted from the oldest. */
SPECDEC__INLINE int32_t *specdec__ngram_past(const specdec__ngram *index, int at)
{
    return &index->history[(index->oldest + at) % index->size.history];
}

/* Forgets the first `count` places of the history, whose runs are counted no more. */
static void specdec__ngram_drop(specdec__ngram *index, int count)
{
    if (count > 0)
        index->oldest = (index->oldest + count) % index->size.history;
    index->remembered -= count;
}

/* Makes a token, or the end of a text, the newest of the history. A full one forgets its oldest. Counts nothing. */
static void specdec__ngram_remember(specdec__ngram *index, int32_t token)
{
    int32_t first[SPECDEC__NGRAM_CONTEXT_MAX + 1];
    int n = 0;

    if (index->remembered == index->size.history) {
        for (; n <= index->size.context && n < index->remembered; n++)
            if ((first[n] = *specdec__ngram_past(index, n)) == SPECDEC__NGRAM_END)
                break;
        specdec__ngram_forget(index, first, n);
        specdec__ngram_drop(index, 1);
    }
    *specdec__ngram_past(index, index->remembered++) = token;
}

/* So many tokens have room in half of the runs, whatever they are. */
static int specdec__ngram_budget(const specdec__ngram *index)
{
    return index->size.capacity / (2 * (index->size.context + 1));
}

/* The most tokens that each reader may keep so that all together keep at most `room`. */
static int specdec__ngram_share(const specdec__ngram *index, int room)
{
    int low = 0, high = room, i;

    while (low < high) {
        int middle = high - (high - low) / 2;
        int64_t sum = 0;

        for (i = 0; i < index->size.readers; i++)
            sum += specdec__min_int(index->readers[i].length - index->readers[i].from, middle);
        if (sum <= room)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Counts a token of the history, or begins its next text. */
static void specdec__ngram_replay(specdec__ngram *index, int32_t token)
{
    if (token == SPECDEC__NGRAM_END)
        specdec__ngram_start(&index->past, 0);
    else
        specdec__ngram_insert(index, &index->past, token);
}

/* Makes room: indexes anew the newest tokens of history and live texts, as many as fill at most half of the runs. Half
   of these tokens, or what the live texts leave, are of the history; live texts share the rest, and each keeps its
   newest. O(capacity), once in at least capacity / (2 * (context + 1)) tokens: a constant time a token. */
static void specdec__ngram_rebuild(specdec__ngram *index)
{
    const int budget = specdec__ngram_budget(index);
    int64_t live = 0;
    int i, kept, share;

    for (i = 0; i < index->size.readers; i++)
        live += index->readers[i].length - index->readers[i].from;
    kept = specdec__max_int(budget / 2, budget - (int)(live < budget ? live : budget));
    kept = specdec__min_int(kept, index->remembered);
    share = specdec__ngram_share(index, budget - kept);
    specdec__ngram_drop(index, index->remembered - kept);
    specdec__ngram_clear(index);
    specdec__ngram_start(&index->past, 0);
    for (i = 0; i < kept; i++)
        specdec__ngram_replay(index, *specdec__ngram_past(index, i));
    for (i = 0; i < index->size.readers; i++) {
        specdec__ngram_reader *reader = &index->readers[i];
        const int end = reader->length;

        specdec__ngram_start(reader, specdec__max_int(reader->from, end - share));
        while (reader->length < end)
            specdec__ngram_insert(index, reader, reader->text[reader->length]);
    }
}

/* Makes room for one more token if there is none. */
SPECDEC__INLINE void specdec__ngram_make_room(specdec__ngram *index)
{
    if (index->size.capacity - index->count <= index->size.context)
        specdec__ngram_rebuild(index);
}

/* --- texts -------------------------------------------------------------------------------------------------------- */

/* Lets an empty reader begin with a text whose first `shared` tokens another text has counted: a fork. Of these only
   the context of what will follow is counted again. */
static void specdec__ngram_begin(const specdec__ngram *index, specdec__ngram_reader *reader, int shared)
{
    specdec__ngram_start(reader, specdec__max_int(shared - index->size.context, 0));
}

/* Indexes text[reader->length .. length). When no room is left, the oldest is forgotten. */
static void specdec__ngram_extend(specdec__ngram *index, specdec__ngram_reader *reader,
                                                  const int32_t *text, int length)
{
    reader->text = text;
    while (reader->length < length) {
        specdec__ngram_make_room(index);
        specdec__ngram_insert(index, reader, text[reader->length]);
    }
}

/* Goes back to text[0 .. length) and takes what this reader counted behind it out of the counts. text still holds the
   tokens that are taken back; the caller drops them afterwards. O(context ^ 2) a token. To before what is counted: what
   then is newest is counted anew. */
static void specdec__ngram_rewind(specdec__ngram *index, specdec__ngram_reader *reader,
                                                  const int32_t *text, int length)
{
    int k;

    reader->text = text;
    length = specdec__max_int(length, 0);
    while (reader->length > specdec__max_int(length, reader->from))
        specdec__ngram_remove(index, reader, text);
    if (length < reader->from) {
        specdec__ngram_start(reader, specdec__max_int(length - specdec__ngram_budget(index), 0));
        specdec__ngram_extend(index, reader, text, length);
        return;
    }
    for (k = 1; k <= index->size.context; k++)
        reader->active[k] =
            length - k >= reader->from ? specdec__ngram_locate(index, text, length - k, length) : -1;
}

/* The text has ended: what is counted of it goes into the history, or its newest part, if there is less room. The
   reader is empty afterwards. A text that shall leave nothing is rewound to 0 instead. O(context) a token. */
static void specdec__ngram_end(specdec__ngram *index, specdec__ngram_reader *reader,
                                               const int32_t *text)
{
    const int room = specdec__max_int(index->size.history - 1, 0), length = reader->length;
    int at;

    for (at = reader->from; length - at > room; at++)
        specdec__ngram_forget(index, text + at, length - at);
    if (at < length) {
        for (; at < length; at++)
            specdec__ngram_remember(index, text[at]);
        specdec__ngram_remember(index, SPECDEC__NGRAM_END);
    }
    specdec__ngram_start(reader, 0);
}

/* --- trees -------------------------------------------------------------------------------------------------------- */

/* The longest suffix of a run that is short enough to be continued and ever was; 0 when none is. */
static int32_t specdec__ngram_settle(const specdec__ngram *index, int32_t run)
{
    while (run > 0 && (index->runs[run].depth > index->size.context || index->runs[run].total <= 0))
        run = index->runs[run].suffix;
    return specdec__max_int(run, 0);
}

/* Adds probability to the offer of this token in best[held], or makes one, if it is among the best. Returns how
   many there are. */
static int specdec__ngram_note(specdec__ngram_offer *best, int held, int32_t token, int32_t run, float probability)
{
    specdec__ngram_offer offer;
    int at = 0;

    memset(&offer, 0, sizeof offer);
    while (at < held && best[at].token != token)
        at++;
    if (at < held) {
        offer = best[at];
        offer.probability = offer.probability + probability;
    } else {
        if (held == SPECDEC__NGRAM_WIDTH && !(probability > best[held - 1].probability))
            return held;
        offer.token = token;
        offer.run = run;
        offer.probability = probability;
        at = held < SPECDEC__NGRAM_WIDTH ? held++ : held - 1;
    }
    for (; at > 0 && offer.probability > best[at - 1].probability; at--)
        best[at] = best[at - 1];
    best[at] = offer;
    return held;
}

/* The likeliest tokens after a run: each context predicts by its counts and leaves the share kinds / (total + kinds) to
   the next shorter one (Witten and Bell 1991; PPM method C). Returns how many are in best[SPECDEC__NGRAM_WIDTH], best
   first. */
static int specdec__ngram_continue(const specdec__ngram *index, int32_t run, float probability,
                                   specdec__ngram_offer *best)
{
    int held = 0;

    for (; run > 0; run = index->runs[run].suffix) {
        float sum = (float)index->runs[run].total + (float)index->runs[run].kinds;
        int32_t child = index->runs[run].child;
        int scanned;

        if (index->runs[run].total <= 0)
            continue;
        for (scanned = 0; child >= 0 && scanned < SPECDEC__NGRAM_SCAN; scanned++, child = index->runs[child].sibling)
            if (index->runs[child].count > 0)
                held = specdec__ngram_note(best, held, index->runs[child].token, child,
                                           probability * (float)index->runs[child].count / sum);
        probability = probability * (float)index->runs[run].kinds / sum;
    }
    return held;
}

SPECDEC__INLINE int specdec__ngram_before(specdec__ngram_offer a, specdec__ngram_offer b)
{
    return a.probability > b.probability || (!(a.probability < b.probability) && a.order < b.order);
}

/* The heap's root is the best offer. */
#define SPECDEC__NGRAM_ORDER(key, a, b) specdec__ngram_before(b, a)
SPECDEC__HEAP(specdec__ngram_sink, specdec__ngram_offer, void, SPECDEC__NGRAM_ORDER)

/* Puts an offer on the heap. */
static void specdec__ngram_push(specdec__ngram *index, specdec__ngram_offer offer)
{
    int at = index->offer_count++;

    offer.order = index->offer_order++;
    for (; at > 0 && specdec__ngram_before(offer, index->offers[(at - 1) / 2]); at = (at - 1) / 2)
        index->offers[at] = index->offers[(at - 1) / 2];
    index->offers[at] = offer;
}

/* Takes the best offer off the heap. */
static specdec__ngram_offer specdec__ngram_take(specdec__ngram *index)
{
    specdec__ngram_offer best = index->offers[0];

    index->offers[0] = index->offers[--index->offer_count];
    specdec__ngram_sink(index->offers, NULL, index->offer_count, 0);
    return best;
}

/* Offers what may follow a node of the tree, where that is likelier than least. */
static void specdec__ngram_offer_children(specdec__ngram *index, int node, specdec__ngram_offer from, float least)
{
    specdec__ngram_offer best[SPECDEC__NGRAM_WIDTH];
    int i, held = specdec__ngram_continue(index, from.run, from.probability, best);

    for (i = 0; i < held && best[i].probability > least; i++) {
        best[i].run = specdec__ngram_settle(index, best[i].run);
        best[i].parent = node;
        best[i].depth = from.depth + 1;
        specdec__ngram_push(index, best[i]);
    }
}

/* Grows the tree of the at most n likeliest continuations of a reader's text (root included, which stands for its last
   token), of at most d levels, each likelier than least, after contexts of one token or more. tokens[n] and
   probability[n] (of the path from the root, an estimate) go with it; tokens[0] is the caller's. SuffixDecoding (Oliaro
   et al. 2024, arXiv 2411.04975) with bounded contexts. O(n). Errors: SPECDEC_ERROR_ARGUMENT, SPECDEC_ERROR_BUFFER. */
static specdec_result specdec__ngram_propose(specdec__ngram *index, const specdec__ngram_reader *reader,
                                                             specdec_tree *tree, int32_t *tokens, float *probability,
                                                             int n, int d, float least, specdec_error *error)
{
    specdec__ngram_offer offer;
    int k;

    if (!tree || !tree->parents || !tree->ranks || !tokens || !probability || n < 1 || n > index->size.max_nodes ||
        d < 1 || !(least >= 0.0f))
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "an n-gram tree has 1 to %d nodes and at least 1 level",
                             index->size.max_nodes);
    if (n > tree->capacity)
        return specdec__fail(error, SPECDEC_ERROR_BUFFER, "the tree needs %d nodes, its arrays hold %d", n,
                             tree->capacity);
    memset(&offer, 0, sizeof offer);
    for (k = index->size.context; k > 0 && reader->active[k] < 0; k--)
        continue;
    offer.run = specdec__ngram_settle(index, reader->active[k]);
    offer.probability = 1.0f;
    offer.parent = -1;
    index->offer_count = index->offer_order = 0;
    for (tree->n = 0;; offer = specdec__ngram_take(index)) {
        int node = tree->n++;

        specdec__tree_put(tree, node, offer.parent, node ? specdec__tree_rank(tree, node, offer.parent) : 0);
        probability[node] = offer.probability;
        if (node > 0)
            tokens[node] = offer.token;
        if (offer.depth + 1 < d)
            specdec__ngram_offer_children(index, node, offer, least);
        if (tree->n == n || index->offer_count == 0)
            return SPECDEC_OK;
    }
}

SPECDEC__FOR_SPEED
