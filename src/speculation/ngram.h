/* =====================================================================================================================
 * >>speculation/ngram: an index of every run of up to context + 1 tokens of all sequences, and trees of likely
 *     continuations of a sequence, grown from the index.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/op.h"
#include "sample.h"
#include "tree.h"
#include "recycle.h"

SPECDEC__FOR_SIZE
#define SPECDEC__NGRAM_MAX_CONTEXT 8   /* tokens of a context that continuations are counted for, at most */
#define SPECDEC__NGRAM_CHILDREN       16  /* continuations of a node of the tree, or of a context, at most */
#define SPECDEC__NGRAM_LIST_ITEMS        64  /* continuations in a list, of all contexts of a path together, at most */
#define SPECDEC__NGRAM_SCANNED_RUNS        128 /* continuations of a context that are compared, newest first, at most */
/* Sources of continuations are numbered: 0: recycled tokens in the root's place; 1 to SPECDEC__NGRAM_MAX_CONTEXT:
   contexts by their length; this index and the next one: recycled tokens behind contexts of one token, and of more. */
#define SPECDEC__NGRAM_FIRST_ROW_SOURCE (SPECDEC__NGRAM_MAX_CONTEXT + 1)
#define SPECDEC__NGRAM_SOURCES     (SPECDEC__NGRAM_FIRST_ROW_SOURCE + 2)
#define SPECDEC__NGRAM_EVIDENCE_KINDS    6   /* kinds of evidence by which the trust in a source is counted */
#define SPECDEC__NGRAM_EVIDENCE_LONGER_CONTEXT       5 /* kind of evidence: longer contexts have other continuations */
#define SPECDEC__NGRAM_STREAK_CLASSES     3 /* classes of runs of most probable tokens: 0, 1 to 3, 4 or more tokens */
#define SPECDEC__NGRAM_MAX_COUNTED_USES 60.0f /* most uses of a source that its trust counts; older ones lose weight */
#define SPECDEC__NGRAM_END_MARK        (-1) /* stands in the history in place of a token: a sequence ends here */

/* A run: an n-gram, that is 0 to context + 1 tokens in a row that occur in sequences. parent, suffix, child, sibling
   and next_in_bucket are indices of runs; -1: none. Run 0 is empty. */
typedef struct specdec__ngram_run {
    int32_t token;  /* the run's last token */
    int32_t parent; /* index of the run without its last token */
    int32_t suffix; /* index of the run without its first token */
    int32_t depth;  /* number of tokens of the run */
    int32_t count;  /* occurrences of the run; a run that has lost all of them stays until the runs made after it are
                       gone */
    int32_t total;  /* occurrences of the run that have a token after them */
    int32_t kinds;  /* number of different tokens after them */
    int32_t child;  /* index of the newest run that is one token longer than this one */
    int32_t sibling; /* index of the next older run of the same parent */
    int32_t next_in_bucket; /* index of the next run in the same bucket of the hash table */
} specdec__ngram_run;

/* A draft token that may be added to the tree of continuations. */
typedef struct specdec__ngram_candidate {
    float probability; /* estimated probability that the path from the root to this token is accepted */
    int32_t token, parent, depth; /* the token; its parent's node in the tree; its level (root: 0) */
    int32_t run;    /* index of the longest run at the path's end that can be continued; in the heap: the parent's */
    int32_t streak; /* number of tokens at the path's end that were each the most probable one */
    int32_t order; /* serial number: of equal probabilities the lower number comes first */
} specdec__ngram_candidate;

/* Trust in a source of continuations: how often it had the token that came next, of how often it was used. Sources:
   recycled tokens in the root's place (0), contexts by their length, and recycled tokens behind contexts of one token,
   and of more. Trust is counted separately by evidence: the context has one continuation, seen once, twice, or more
   often; several, of which one has at least half; several others; longer contexts have other tokens. And separately by
   streak: how many tokens before (0, 1 to 3, 4 or more) were each the most probable one of the source's list. */
typedef struct specdec__ngram_trust {
    float right, tried; /* how often the source had the next token; how often it was asked */
} specdec__ngram_trust;

/* A path from the root of a tree of continuations, behind which further continuations are searched. */
typedef struct specdec__ngram_path {
    int32_t run; /* index of the longest run at the path's end that can be continued */
    int streak;  /* number of tokens at the path's end that were each the most probable one */
    int root;    /* 1: the path is the root alone */
    int known;   /* number of tokens in tail */
    int32_t tail[SPECDEC__RECYCLE_CONTEXT + 1]; /* the path's last tokens, newest first */
} specdec__ngram_path;

/* A token in a list of continuations. share: its part of a stage, that is of the tokens of one source; the shares of a
   stage add up to 1 if all its tokens are listed. probability: estimated, after the stages before. */
typedef struct specdec__ngram_item {
    int32_t token;             /* the token that may follow */
    float share, probability;  /* the part of its stage that it makes up, 0 to 1; its estimated probability */
} specdec__ngram_item;

/* A list of the tokens that may follow a path, in stages: the tokens of one source after those of another. */
typedef struct specdec__ngram_list {
    specdec__ngram_item items[SPECDEC__NGRAM_LIST_ITEMS];  /* (count): the tokens, stage by stage */
    struct {
        specdec__ngram_trust *trust;
        int end; /* index of the item behind the stage */
    } stages[SPECDEC__NGRAM_SOURCES];
    int count, stage_count; /* number of items; number of stages */
    int streak; /* index of the path's class of streaks, for the counts of trust */
} specdec__ngram_list;

/* The limits of a tree of continuations, and the noise by which the target chooses. */
typedef struct specdec__ngram_tree_limits {
    int n, d;      /* nodes and levels of the tree, at most */
    float least;   /* each node's path is more probable than this */
    int coupled;   /* 1: the target chooses its tokens with the noise of `seed` */
    uint64_t seed; /* seed of the target's noise */
} specdec__ngram_tree_limits;

/* The tokens of an open sequence that the index counts: text[from .. length). An empty reader is free for another
   sequence. */
typedef struct specdec__ngram_reader {
    const int32_t *text; /* (length): the sequence's tokens; those that the index counts must not change until they are
                            removed from it */
    int from, length; /* the index counts the sequence's tokens from index `from` up to `length` */
    int streak, streak_at; /* tokens in a row that were each the most probable one; the length of the sequence at which
                              they were counted */
    int32_t active[SPECDEC__NGRAM_MAX_CONTEXT + 1]; /* [k]: index of the run of the sequence's last k tokens */
} specdec__ngram_reader;

/* The sizes of an n-gram index. */
typedef struct specdec__ngram_size {
    int capacity;  /* runs, at most: a token needs up to context + 1 of them, of 40 bytes and a bucket each */
    int context;   /* tokens of the longest context, 1 to SPECDEC__NGRAM_MAX_CONTEXT */
    int max_nodes; /* nodes of a tree of continuations, at most */
    int readers;   /* open sequences, at most */
    int history;   /* tokens of ended sequences that are kept, each sequence with an end mark that counts as a token; 0:
                      none */
    int recycled;  /* contexts whose most probable tokens by the target are stored, at most; 0: none */
} specdec__ngram_size;

/* The n-gram index. It counts how often each run occurs in the history and in the open sequences. With one sequence and
   no history, runs are added and removed in stack order, so cutting the sequence restores the former index. */
typedef struct specdec__ngram {
    specdec__ngram_run *runs;       /* [size.capacity]: all runs */
    int32_t *buckets;               /* [bucket_count]: the hash table of runs: the first run of each bucket; -1: none */
    specdec__ngram_candidate *candidates;   /* [size.max_nodes * SPECDEC__NGRAM_CHILDREN]: a heap of the draft tokens
                                               that may be added to the tree */
    specdec__ngram_reader *readers; /* [size.readers]: the open sequences */
    int32_t *history;               /* [size.history]: a ring of the tokens of ended sequences, SPECDEC__NGRAM_END_MARK
                                       behind each sequence */
    int count;                      /* number of runs */
    int candidate_count, candidate_order;   /* number of draft tokens in the heap; the serial number of the next one */
    int oldest, history_count; /* index of the oldest token in the history; number of tokens in the history */
    uint32_t bucket_count;     /* buckets of the hash table, a power of two */
    specdec__ngram_size size;      /* the sizes that the index was made with */
    specdec__recycle_table recycling;  /* the target's most probable tokens behind contexts */
    /* the trust in each source, by streak and evidence */
    specdec__ngram_trust trust[SPECDEC__NGRAM_STREAK_CLASSES][SPECDEC__NGRAM_SOURCES][SPECDEC__NGRAM_EVIDENCE_KINDS];
    specdec__ngram_reader rebuilder; /* counts the tokens of the history when the index is rebuilt */
} specdec__ngram;

/* Empties a reader. It will count the tokens of its sequence from index `from` on. */
static void specdec__ngram_empty_reader(specdec__ngram_reader *reader, int from)
{
    int k;

    reader->from = reader->length = from;
    reader->streak = reader->streak_at = 0;
    for (k = 1; k <= SPECDEC__NGRAM_MAX_CONTEXT; k++)
        reader->active[k] = -1;
    reader->active[0] = 0;
}

/* Removes all runs from an index, except the empty run. */
static void specdec__ngram_clear_runs(specdec__ngram *index)
{
    uint32_t i;

    for (i = 0; i < index->bucket_count; i++)
        index->buckets[i] = -1;
    memset(&index->runs[0], 0, sizeof index->runs[0]);
    index->runs[0].token = index->runs[0].parent = index->runs[0].child = index->runs[0].sibling =
        index->runs[0].next_in_bucket = -1;
    index->count = 1;
}

/* Sets the trust in all sources of continuations to a prior, which weighs as much as a few uses. */
static void specdec__ngram_set_trust_priors(specdec__ngram *index)
{
    static const float right[SPECDEC__NGRAM_EVIDENCE_KINDS] = {0.5f, 0.67f, 0.8f, 0.65f, 0.5f, 0.5f};
    static const float doubt[SPECDEC__NGRAM_STREAK_CLASSES] = {1, 0.5f, 0.25f};
    int i, k, streak;

    for (i = 0; i < SPECDEC__NGRAM_SOURCES; i++)
        for (k = 0; k < SPECDEC__NGRAM_EVIDENCE_KINDS; k++) {
            float share = right[k] * (i == 1 ? 0.55f : i == 2 ? 0.75f : 1);

            if (!i || (i >= SPECDEC__NGRAM_FIRST_ROW_SOURCE && k == SPECDEC__NGRAM_EVIDENCE_LONGER_CONTEXT))
                share = 0.15f;
            else if (i >= SPECDEC__NGRAM_FIRST_ROW_SOURCE)
                share = 0.4f;
            for (streak = 0; streak < SPECDEC__NGRAM_STREAK_CLASSES; streak++) {
                index->trust[streak][i][k].tried = 4;
                index->trust[streak][i][k].right = 4 * (1 - doubt[streak] * (1 - share));
            }
        }
}

/* Takes the memory of an n-gram index from an arena and initialises the index; where the arena only counts bytes,
   nothing is set. */
static specdec_result specdec__ngram_lay_out(specdec__ngram *index, specdec__arena *arena,
                                             const specdec__ngram_size *size, specdec_error *error)
{
    const int most = 1 << 28, context = size->context, max_nodes = size->max_nodes;
    int i;

    if (context < 1 || context > SPECDEC__NGRAM_MAX_CONTEXT || max_nodes < 1 || max_nodes > SPECDEC_TREE_MAX_NODES)
        return specdec__fail(
            error, SPECDEC_ERROR_ARGUMENT,
            "an n-gram index of %d tokens of context for trees of %d nodes; allowed are 1 to %d and 1 to %d", context,
            max_nodes, SPECDEC__NGRAM_MAX_CONTEXT, SPECDEC_TREE_MAX_NODES);
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
    index->candidates = SPECDEC__TAKE(arena, specdec__ngram_candidate, (size_t)max_nodes * SPECDEC__NGRAM_CHILDREN);
    index->readers = SPECDEC__TAKE(arena, specdec__ngram_reader, size->readers);
    index->history = SPECDEC__TAKE(arena, int32_t, size->history);
    specdec__recycle_lay_out(&index->recycling, arena, size->recycled);
    specdec__ngram_set_trust_priors(index);
    if (arena->used == SIZE_MAX)
        return specdec__fail(error, SPECDEC_ERROR_MEMORY, "no memory left for an n-gram index of %d runs",
                             size->capacity);
    if (!arena->base)
        return SPECDEC_OK;
    specdec__ngram_clear_runs(index);
    specdec__ngram_empty_reader(&index->rebuilder, 0);
    for (i = 0; i < size->readers; i++)
        specdec__ngram_empty_reader(&index->readers[i], 0);
    return SPECDEC_OK;
}

/* --- counting ----------------------------------------------------------------------------------------------------- */

/* Returns the bucket of the hash table for the run that continues run `parent` by a token. */
SPECDEC__INLINE int32_t *specdec__ngram_find_bucket(const specdec__ngram *index, int32_t parent, int32_t token)
{
    uint64_t key = ((uint64_t)(uint32_t)parent << 32 | (uint32_t)token) * 0x9e3779b97f4a7c15u;

    return &index->buckets[(uint32_t)(key >> 32) & (index->bucket_count - 1)];
}

/* Returns the index of the run that continues run `parent` by a token; -1: the n-gram index has no such run. */
static int32_t specdec__ngram_find_longer_run(const specdec__ngram *index, int32_t parent, int32_t token)
{
    int32_t run = *specdec__ngram_find_bucket(index, parent, token);

    while (run >= 0 && (index->runs[run].parent != parent || index->runs[run].token != token))
        run = index->runs[run].next_in_bucket;
    return run;
}

/* Returns the index of the run text[from .. end); -1: the n-gram index has no such run. */
static int32_t specdec__ngram_find_run_of_text(const specdec__ngram *index, const int32_t *text, int from, int end)
{
    int32_t run = 0;

    for (; from < end && run >= 0; from++)
        run = specdec__ngram_find_longer_run(index, run, text[from]);
    return run;
}

/* Adds the run that continues run `parent` by a token; there must be room for it. suffix: index of the run without its
   first token. Returns the new run's index. */
static int32_t specdec__ngram_add_run(specdec__ngram *index, int32_t parent, int32_t token, int32_t suffix)
{
    int32_t *bucket = specdec__ngram_find_bucket(index, parent, token), at = index->count++;
    specdec__ngram_run *run = &index->runs[at];

    memset(run, 0, sizeof *run);
    run->token = token;
    run->parent = parent;
    run->suffix = suffix;
    run->depth = index->runs[parent].depth + 1;
    run->child = -1;
    run->sibling = index->runs[parent].child;
    run->next_in_bucket = *bucket;
    *bucket = at;
    index->runs[parent].child = at;
    return at;
}

/* Removes the newest runs of an n-gram index, as far as they have no occurrences left. */
static void specdec__ngram_remove_uncounted_runs(specdec__ngram *index)
{
    while (index->count > 1 && index->runs[index->count - 1].count <= 0) {
        const specdec__ngram_run *run = &index->runs[--index->count];

        *specdec__ngram_find_bucket(index, run->parent, run->token) = run->next_in_bucket;
        index->runs[run->parent].child = run->sibling;
    }
}

/* Counts `token` as the next token of a reader's sequence, in all runs that end with it. There is room for new runs.
   O(context). */
static void specdec__ngram_count_token(specdec__ngram *index, specdec__ngram_reader *reader, int32_t token)
{
    int32_t longer[SPECDEC__NGRAM_MAX_CONTEXT + 2], suffix = 0;
    int k, reached = 0;

    longer[0] = 0;
    for (k = 0; k <= index->size.context && reader->active[k] >= 0; k++) {
        int32_t run = specdec__ngram_find_longer_run(index, reader->active[k], token);

        if (run < 0)
            run = specdec__ngram_add_run(index, reader->active[k], token, suffix);
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

/* Removes one occurrence of a run. The run may have none where a caller has changed the tokens of a sequence. */
static void specdec__ngram_uncount_run(specdec__ngram *index, int32_t run)
{
    specdec__ngram_run *parent;

    if (run <= 0 || index->runs[run].count <= 0)
        return;
    parent = &index->runs[index->runs[run].parent];
    parent->total--;
    if (!--index->runs[run].count)
        parent->kinds--;
}

/* Removes the occurrences of all runs that end with the last token of a reader's sequence. */
static void specdec__ngram_uncount_last_token(specdec__ngram *index, specdec__ngram_reader *reader, const int32_t *text)
{
    int end = reader->length--, k;

    for (k = 1; k <= index->size.context + 1 && end - k >= reader->from; k++)
        specdec__ngram_uncount_run(index, specdec__ngram_find_run_of_text(index, text, end - k, end));
    specdec__ngram_remove_uncounted_runs(index);
}

/* Removes the occurrences of all runs that begin with the first token of text[count]: all counted tokens of a sequence,
   or the first context + 1 of them. */
static void specdec__ngram_uncount_first_token(specdec__ngram *index, const int32_t *text, int count)
{
    int32_t run = 0;
    int i;

    for (i = 0; i <= index->size.context && i < count && run >= 0; i++) {
        run = specdec__ngram_find_longer_run(index, run, text[i]);
        specdec__ngram_uncount_run(index, run);
    }
    specdec__ngram_remove_uncounted_runs(index);
}

/* --- bounded memory: the oldest is dropped ------------------------------------------------------------------------ */

/* Returns the address of a token in the history; at: its index, counted from the oldest token. */
SPECDEC__INLINE int32_t *specdec__ngram_history_token_address(const specdec__ngram *index, int at)
{
    return &index->history[(index->oldest + at) % index->size.history];
}

/* Drops the oldest `count` tokens from the history. Their runs must not be counted any more. */
static void specdec__ngram_drop_history(specdec__ngram *index, int count)
{
    if (count > 0)
        index->oldest = (index->oldest + count) % index->size.history;
    index->history_count -= count;
}

/* Appends a token, or the mark of a sequence's end, to the history, without counting runs. A full history drops its
   oldest token. */
static void specdec__ngram_append_history(specdec__ngram *index, int32_t token)
{
    int32_t first[SPECDEC__NGRAM_MAX_CONTEXT + 1];
    int n = 0;

    if (index->history_count == index->size.history) {
        for (; n <= index->size.context && n < index->history_count; n++)
            if ((first[n] = *specdec__ngram_history_token_address(index, n)) == SPECDEC__NGRAM_END_MARK)
                break;
        specdec__ngram_uncount_first_token(index, first, n);
        specdec__ngram_drop_history(index, 1);
    }
    *specdec__ngram_history_token_address(index, index->history_count++) = token;
}

/* Returns how many tokens have runs that fill half of the n-gram index, at most. */
static int specdec__ngram_most_counted_tokens(const specdec__ngram *index)
{
    return index->size.capacity / (2 * (index->size.context + 1));
}

/* Returns the most tokens that each reader may keep, so that all readers together keep at most `room` tokens. */
static int specdec__ngram_most_tokens_of_reader(const specdec__ngram *index, int room)
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

/* Counts the next token of the history, or, at the mark of a sequence's end, begins its next sequence. */
static void specdec__ngram_count_history_token(specdec__ngram *index, int32_t token)
{
    if (token == SPECDEC__NGRAM_END_MARK)
        specdec__ngram_empty_reader(&index->rebuilder, 0);
    else
        specdec__ngram_count_token(index, &index->rebuilder, token);
}

/* Makes room for runs: counts the newest tokens of the history and of open sequences anew, as many as fill at most half
   of the runs. Half of these tokens, or as many as the open sequences leave, are of the history; open sequences share
   the rest, and each keeps its newest tokens. O(capacity), once in at least capacity / (2 * (context + 1)) tokens: a
   constant time a token. */
static void specdec__ngram_rebuild_index(specdec__ngram *index)
{
    const int budget = specdec__ngram_most_counted_tokens(index);
    int64_t live = 0;
    int i, kept, share;

    for (i = 0; i < index->size.readers; i++)
        live += index->readers[i].length - index->readers[i].from;
    kept = specdec__max_int(budget / 2, budget - (int)(live < budget ? live : budget));
    kept = specdec__min_int(kept, index->history_count);
    share = specdec__ngram_most_tokens_of_reader(index, budget - kept);
    specdec__ngram_drop_history(index, index->history_count - kept);
    specdec__ngram_clear_runs(index);
    specdec__ngram_empty_reader(&index->rebuilder, 0);
    for (i = 0; i < kept; i++)
        specdec__ngram_count_history_token(index, *specdec__ngram_history_token_address(index, i));
    for (i = 0; i < index->size.readers; i++) {
        specdec__ngram_reader *reader = &index->readers[i];
        const int end = reader->length;

        specdec__ngram_empty_reader(reader, specdec__max_int(reader->from, end - share));
        while (reader->length < end)
            specdec__ngram_count_token(index, reader, reader->text[reader->length]);
    }
}

/* Rebuilds the n-gram index if it has no room for the runs of one more token. */
SPECDEC__INLINE void specdec__ngram_make_room_for_token(specdec__ngram *index)
{
    if (index->size.capacity - index->count <= index->size.context)
        specdec__ngram_rebuild_index(index);
}

/* --- sequences ---------------------------------------------------------------------------------------------------- */

/* Begins a sequence in an empty reader. Its first `shared` tokens were counted in another sequence, of which it is a
   fork, so they are not counted again. */
static void specdec__ngram_begin_sequence(const specdec__ngram *index, specdec__ngram_reader *reader, int shared)
{
    specdec__ngram_empty_reader(reader, specdec__max_int(shared - index->size.context, 0));
}

/* Counts the tokens text[reader->length .. length) of a reader's sequence. Where the n-gram index has no room, the
   oldest tokens are dropped. */
static void specdec__ngram_extend_sequence(specdec__ngram *index, specdec__ngram_reader *reader,
                                           const int32_t *text, int length)
{
    reader->text = text;
    while (reader->length < length) {
        specdec__ngram_make_room_for_token(index);
        specdec__ngram_count_token(index, reader, text[reader->length]);
    }
}

/* Cuts a reader's sequence to text[0 .. length), and removes the occurrences of the tokens behind it, which text still
   holds. O(context ^ 2) a token. Where the cut is before the first counted token, the newest tokens are counted
   anew. */
static void specdec__ngram_rewind_sequence(specdec__ngram *index, specdec__ngram_reader *reader,
                                           const int32_t *text, int length)
{
    int k;

    reader->text = text;
    length = specdec__max_int(length, 0);
    while (reader->length > specdec__max_int(length, reader->from))
        specdec__ngram_uncount_last_token(index, reader, text);
    if (length < reader->from) {
        specdec__ngram_empty_reader(reader, specdec__max_int(length - specdec__ngram_most_counted_tokens(index), 0));
        specdec__ngram_extend_sequence(index, reader, text, length);
        return;
    }
    for (k = 1; k <= index->size.context; k++)
        reader->active[k] =
            length - k >= reader->from ? specdec__ngram_find_run_of_text(index, text, length - k, length) : -1;
}

/* Ends a reader's sequence: its counted tokens, or the newest of them, go into the history, and the reader is empty. A
   sequence that is to leave nothing is cut to 0 tokens instead. O(context) a token. */
static void specdec__ngram_end_sequence(specdec__ngram *index, specdec__ngram_reader *reader,
                                        const int32_t *text)
{
    const int room = specdec__max_int(index->size.history - 1, 0), length = reader->length;
    int at;

    for (at = reader->from; length - at > room; at++)
        specdec__ngram_uncount_first_token(index, text + at, length - at);
    if (at < length) {
        for (; at < length; at++)
            specdec__ngram_append_history(index, text[at]);
        specdec__ngram_append_history(index, SPECDEC__NGRAM_END_MARK);
    }
    specdec__ngram_empty_reader(reader, 0);
}

/* --- trees -------------------------------------------------------------------------------------------------------- */

/* Returns the longest suffix of a run that is short enough to be continued and has a continuation; 0 (the empty run):
   there is none. */
static int32_t specdec__ngram_longest_continuable_suffix(const specdec__ngram *index, int32_t run)
{
    while (run > 0 && (index->runs[run].depth > index->size.context || index->runs[run].total <= 0))
        run = index->runs[run].suffix;
    return specdec__max_int(run, 0);
}

/* Returns the longest run that can be continued once `token` has followed run `run`; 0 (the empty run): there is
   none. */
static int32_t specdec__ngram_longest_run_after_token(const specdec__ngram *index, int32_t run, int32_t token)
{
    int32_t next;

    while ((next = specdec__ngram_find_longer_run(index, run, token)) < 0 && run > 0)
        run = index->runs[run].suffix;
    return specdec__ngram_longest_continuable_suffix(index, next);
}

/* Returns the index of a token in a list of continuations; -1: it is not listed. */
static int specdec__ngram_find_listed_token(const specdec__ngram_list *list, int32_t token)
{
    int at = list->count - 1;

    while (at >= 0 && list->items[at].token != token)
        at--;
    return at;
}

/* Inserts a token into the newest stage of a list of continuations, which begins at item `from`, unless an earlier
   stage has the token. A stage keeps its SPECDEC__NGRAM_CHILDREN tokens of the largest weights, the largest first. */
static void specdec__ngram_insert_listed_token(specdec__ngram_list *list, int from, int32_t token, float weight)
{
    int at = list->count;

    if (at - from == SPECDEC__NGRAM_CHILDREN || at == SPECDEC__NGRAM_LIST_ITEMS) {
        if (at == from || !(weight > list->items[at - 1].share))
            return;
        at--;
    } else {
        list->count++;
    }
    for (; at > from && weight > list->items[at - 1].share; at--)
        list->items[at] = list->items[at - 1];
    list->items[at].token = token;
    list->items[at].share = weight;
}

/* Ends the newest stage of a list of continuations, which begins at item `from`: its weights become shares. sum: the
   weights of all tokens of the stage, listed or not; trust: the trust in the stage's source. */
static void specdec__ngram_end_list_stage(specdec__ngram_list *list, int from, float sum, specdec__ngram_trust *trust)
{
    int i;

    if (list->count == from)
        return;
    for (i = from; i < list->count; i++)
        list->items[i].share = list->items[i].share / sum;
    list->stages[list->stage_count].trust = trust;
    list->stages[list->stage_count++].end = list->count;
}

/* Adds a stage to a list of continuations: the tokens that followed a run, without those that are listed already. */
static void specdec__ngram_list_run_continuations(specdec__ngram *index, specdec__ngram_list *list, int32_t run)
{
    const int from = list->count, depth = index->runs[run].depth;
    int32_t child = index->runs[run].child;
    int scanned = 0, total = 0, kinds = 0, most = 0, evidence;

    for (; child >= 0 && scanned < SPECDEC__NGRAM_SCANNED_RUNS; child = index->runs[child].sibling, scanned++) {
        const specdec__ngram_run *next = &index->runs[child];
        const int known = specdec__ngram_find_listed_token(list, next->token);

        if (next->count <= 0 || (known >= 0 && known < from))
            continue;
        total += next->count;
        kinds++;
        most = specdec__max_int(most, next->count);
        specdec__ngram_insert_listed_token(list, from, next->token, (float)next->count);
    }
    if (from)
        evidence = SPECDEC__NGRAM_EVIDENCE_LONGER_CONTEXT;
    else if (kinds == 1)
        evidence = specdec__min_int(total, 3) - 1;
    else
        evidence = 2 * most >= total ? 3 : 4;
    specdec__ngram_end_list_stage(list, from, (float)total, &index->trust[list->streak][depth][evidence]);
}

/* Adds a stage to a list of continuations: the target's most probable tokens of a recycled row, without those that are
   listed already and without the token `but`. trust: the trust in this source. */
static void specdec__ngram_list_recycled_tokens(specdec__ngram_list *list, const specdec__recycle_entry *row,
                                                int32_t but, specdec__ngram_trust *trust)
{
    const int from = list->count;
    float sum = 0;
    int i, known;

    for (i = 0; i < SPECDEC__RECYCLE_TOKENS && row->share[i]; i++) {
        known = specdec__ngram_find_listed_token(list, row->tokens[i]);
        if (row->tokens[i] == but || (known >= 0 && known < from))
            continue;
        sum += (float)row->share[i];
        specdec__ngram_insert_listed_token(list, from, row->tokens[i], (float)row->share[i]);
    }
    specdec__ngram_end_list_stage(list, from, sum, trust + (from ? SPECDEC__NGRAM_EVIDENCE_LONGER_CONTEXT : 0));
}

/* Lists the tokens that may follow a path, in stages: those behind the longest context; those that only the next
   shorter context adds, and so on; the target's most probable tokens behind the path's end, and, behind the root, those
   in the root's place (LogitSpec, arXiv 2507.01449). Each stage gets a part of the probability that the stages before
   have left, by the trust in its source. */
static void specdec__ngram_list_continuations(specdec__ngram *index, specdec__ngram_list *list,
                                              const specdec__ngram_path *place)
{
    const specdec__recycle_table *r = &index->recycling;
    const specdec__recycle_entry *row;
    int32_t run = place->run;
    int length, kinds = 0, from = 0, i, k;
    float left = 1;

    list->count = list->stage_count = 0;
    list->streak = place->streak < 4 ? place->streak > 0 : 2;
    for (; run > 0; run = index->runs[run].suffix) {
        if (index->runs[run].total > 0 && index->runs[run].kinds != kinds)
            specdec__ngram_list_run_continuations(index, list, run);
        kinds = index->runs[run].total > 0 ? index->runs[run].kinds : kinds;
    }
    row = specdec__recycle_find_longest_entry(r, place->tail, place->known, &length);
    if (row)
        specdec__ngram_list_recycled_tokens(list, row, -1,
                                            index->trust[list->streak][SPECDEC__NGRAM_FIRST_ROW_SOURCE + (length > 1)]);
    row = place->root && place->known > 1
              ? specdec__recycle_find_longest_entry(r, place->tail + 1, place->known - 1, &length)
              : NULL;
    if (row)
        specdec__ngram_list_recycled_tokens(list, row, place->tail[0], index->trust[list->streak][0]);
    for (k = 0; k < list->stage_count; k++) {
        const float right = list->stages[k].trust->right / list->stages[k].trust->tried;

        for (i = from; i < list->stages[k].end; i++)
            list->items[i].probability = left * right * list->items[i].share;
        left = left * (1 - right);
        from = list->stages[k].end;
    }
}

/* Updates the trust in the sources of a path's continuations from the token that followed the path. Returns 1 if that
   was the most probable token, else 0. */
static int specdec__ngram_update_source_trust(specdec__ngram *index, const specdec__ngram_path *place, int32_t token)
{
    specdec__ngram_list list;
    int k, at, best = 0, right = 0;

    specdec__ngram_list_continuations(index, &list, place);
    at = specdec__ngram_find_listed_token(&list, token);
    for (k = 0; k < list.stage_count && !right; k++) {
        specdec__ngram_trust *trust = list.stages[k].trust;

        right = at >= 0 && at < list.stages[k].end;
        trust->tried += 1;
        trust->right += (float)right;
        if (trust->tried > SPECDEC__NGRAM_MAX_COUNTED_USES) {
            trust->tried *= 0.98f;
            trust->right *= 0.98f;
        }
    }
    for (k = 1; k < list.count; k++)
        best = list.items[k].probability > list.items[best].probability ? k : best;
    return at >= 0 && at == best;
}

/* Raises the shares of tokens for which the target's noise is large, where the target chooses with the same noise. A
   token's odds are multiplied by the root of the factor that would be exact if the shares were the target's
   probabilities; those of tokens that are not listed, by the root of the usual factor. noise: the row of noise of the
   position. */
static void specdec__ngram_raise_shares_by_noise(specdec__ngram_list *list, uint64_t noise)
{
    float rest = 1, sum;
    int i;

    for (i = 0; i < list->count; i++)
        rest -= list->items[i].probability;
    sum = (rest > 0.001f ? rest : 0.001f) * 1.34f;
    for (i = 0; i < list->count; i++) {
        const uint32_t bits = (uint32_t)(specdec__noise_bits_of_token(noise, (uint32_t)list->items[i].token) >> 32);

        list->items[i].probability *= specdec__exp(0.5f * specdec__sample_gumbel_of_bits(bits));
        sum += list->items[i].probability;
    }
    for (i = 0; i < list->count; i++)
        list->items[i].probability /= sum;
}

/* Returns whether draft token a is added to the tree before b: it is more probable, or as probable and older. */
SPECDEC__INLINE int specdec__ngram_candidate_comes_before(specdec__ngram_candidate a, specdec__ngram_candidate b)
{
    return a.probability > b.probability || (!(a.probability < b.probability) && a.order < b.order);
}

/* The order of the heap of draft tokens, whose first item is the best one. */
#define SPECDEC__NGRAM_ORDER(key, a, b) specdec__ngram_candidate_comes_before(b, a)
SPECDEC__HEAP(specdec__ngram_sink, specdec__ngram_candidate, void, SPECDEC__NGRAM_ORDER)

/* Adds a draft token to the heap of those that may be added to the tree. */
static void specdec__ngram_push_candidate(specdec__ngram *index, specdec__ngram_candidate candidate)
{
    int at = index->candidate_count++;

    candidate.order = index->candidate_order++;
    for (; at > 0 && specdec__ngram_candidate_comes_before(candidate, index->candidates[(at - 1) / 2]);
         at = (at - 1) / 2)
        index->candidates[at] = index->candidates[(at - 1) / 2];
    index->candidates[at] = candidate;
}

/* Removes the best draft token from the heap, and returns it. */
static specdec__ngram_candidate specdec__ngram_pop_best_candidate(specdec__ngram *index)
{
    specdec__ngram_candidate best = index->candidates[0];

    index->candidates[0] = index->candidates[--index->candidate_count];
    specdec__ngram_sink(index->candidates, NULL, index->candidate_count, 0);
    return best;
}

/* Adds the continuations of a node to the heap: the most probable tokens of a list, at most SPECDEC__NGRAM_CHILDREN,
   whose paths are more probable than `least`. from: the draft token that became the node. */
static void specdec__ngram_push_continuations_of_node(specdec__ngram *index, int node,
                                                      const specdec__ngram_candidate *from,
                                                      specdec__ngram_list *list, float least)
{
    specdec__ngram_candidate candidate = *from;
    int i, k, best;

    candidate.parent = node;
    candidate.depth = from->depth + 1;
    for (k = 0; k < list->count && k < SPECDEC__NGRAM_CHILDREN; k++) {
        specdec__ngram_item item;

        for (best = k, i = k + 1; i < list->count; i++)
            best = list->items[i].probability > list->items[best].probability ? i : best;
        item = list->items[best];
        list->items[best] = list->items[k];
        list->items[k] = item;
        candidate.token = item.token;
        candidate.probability = from->probability * item.probability;
        candidate.streak = k ? 0 : from->streak + 1;
        if (!(candidate.probability > least))
            return;
        specdec__ngram_push_candidate(index, candidate);
    }
}

/* Sets *place to the path that ends with a node of a tree, whose root is the last token of text[length]. The caller
   sets the members run and streak. */
static void specdec__ngram_set_path(specdec__ngram_path *place, const specdec_tree *tree, const int32_t *tokens,
                                    int node, const int32_t *text, int length)
{
    int n = 0;

    place->root = !node;
    for (; node > 0 && n <= SPECDEC__RECYCLE_CONTEXT; node = tree->parents[node])
        place->tail[n++] = tokens[node];
    for (; length > 0 && n <= SPECDEC__RECYCLE_CONTEXT; length--)
        place->tail[n++] = text[length - 1];
    place->known = n;
}

/* Returns the longest run that a reader's sequence ends with and that can be continued. */
static int32_t specdec__ngram_longest_continuable_run(const specdec__ngram *index, const specdec__ngram_reader *reader)
{
    int k = index->size.context;

    while (k > 0 && reader->active[k] < 0)
        k--;
    return specdec__ngram_longest_continuable_suffix(index, reader->active[k]);
}

/* Builds the tree of the most probable continuations of a reader's sequence: at most wish->n nodes, the root (the
   sequence's last token) included, and wish->d levels, all more probable than wish->least. tokens[n]: receives the
   nodes' tokens; the caller sets tokens[0]. probability[n]: receives the estimated probabilities of the paths from the
   root. SuffixDecoding (Oliaro et al. 2024, arXiv 2411.04975) with bounded contexts. O(n). Errors:
   SPECDEC_ERROR_ARGUMENT, SPECDEC_ERROR_BUFFER. */
static specdec_result specdec__ngram_propose_tree(specdec__ngram *index, const specdec__ngram_reader *reader,
                                                  specdec_tree *tree, int32_t *tokens, float *probability,
                                                  const specdec__ngram_tree_limits *wish, specdec_error *error)
{
    const int n = wish->n;
    specdec__ngram_candidate candidate;
    specdec__ngram_list list;
    specdec__ngram_path place;

    if (!tree || !tree->parents || !tree->ranks || !tokens || !probability || n < 1 || n > index->size.max_nodes ||
        wish->d < 1 || !(wish->least >= 0.0f))
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "an n-gram tree has 1 to %d nodes and at least 1 level",
                             index->size.max_nodes);
    if (n > tree->capacity)
        return specdec__fail(error, SPECDEC_ERROR_BUFFER, "the tree needs %d nodes, its arrays hold %d", n,
                             tree->capacity);
    memset(&candidate, 0, sizeof candidate);
    candidate.run = specdec__ngram_longest_continuable_run(index, reader);
    candidate.probability = 1.0f;
    candidate.parent = -1;
    candidate.streak = reader->streak_at == reader->length ? reader->streak : 0;
    index->candidate_count = index->candidate_order = 0;
    for (tree->n = 0;; candidate = specdec__ngram_pop_best_candidate(index)) {
        int node = tree->n++;

        specdec__tree_put_node(tree, node, candidate.parent,
                               node ? specdec__tree_next_rank(tree, node, candidate.parent) : 0);
        probability[node] = candidate.probability;
        if (node > 0) {
            tokens[node] = candidate.token;
            candidate.run = specdec__ngram_longest_run_after_token(index, candidate.run, candidate.token);
        }
        if (candidate.depth + 1 < wish->d && node + 1 < n) {
            specdec__ngram_set_path(&place, tree, tokens, node, reader->text, reader->length);
            place.run = candidate.run;
            place.streak = candidate.streak;
            specdec__ngram_list_continuations(index, &list, &place);
            if (wish->coupled)
                specdec__ngram_raise_shares_by_noise(
                    &list, specdec__sample_noise_of_position(wish->seed, (uint64_t)(reader->length + candidate.depth)));
            specdec__ngram_push_continuations_of_node(index, node, &candidate, &list, wish->least);
        }
        if (tree->n == n || index->candidate_count == 0)
            return SPECDEC_OK;
    }
}

SPECDEC__FOR_SPEED
