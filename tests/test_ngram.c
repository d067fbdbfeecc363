/* test_ngram.c - the n-gram index counts rightly, forgets rightly and proposes what a naive count would; of many texts
   as of one, and after it was saved and loaded. */
#define SPECDEC_NO_SIMD /* no kernels are run: builds in a third of the time */
#include "../src/speculation/draft_ngram.h"
#include "../src/speculation/ngram_file.h"
#include "check.h"
#include "statistics.h"
#include <time.h>

#define TEXT     20000
#define CAPACITY 200000
#define NODES    64

static unsigned char memory[32 << 20], memory_two[32 << 20];
static int32_t text[TEXT], parents[NODES], ranks[NODES], tokens[NODES];
static float probability[NODES];
static specdec_tree tree = {parents, ranks, NODES, 0};
static uint64_t state = 5;

static int uniform(int below)
{
    return (int)(statistics_random(&state) * below);
}

static specdec__ngram_size size_of(int capacity, int context, int readers, int history)
{
    specdec__ngram_size size;

    size.capacity = capacity;
    size.context = context;
    size.max_nodes = NODES;
    size.readers = readers;
    size.history = history;
    size.recycled = 0;
    return size;
}

static void start_many(specdec__ngram *index, unsigned char *block, int capacity, int context, int readers, int history)
{
    specdec__ngram_size size = size_of(capacity, context, readers, history);
    specdec__arena arena;

    arena.base = block;
    arena.size = sizeof memory;
    arena.used = 0;
    CHECK_EQUAL_INT(specdec__ngram_lay_out(index, &arena, &size, NULL), SPECDEC_OK);
}

/* An index of one text. Returns its reader. */
static specdec__ngram_reader *start(specdec__ngram *index, unsigned char *block, int capacity, int context)
{
    start_many(index, block, capacity, context, 1, 0);
    return index->readers;
}

/* Into tree, tokens and probability. */
static specdec_result propose(specdec__ngram *index, const specdec__ngram_reader *reader, int n, int d, float least)
{
    specdec__ngram_tree_limits wish = {0, 0, 0, 0, 0};

    wish.n = n;
    wish.d = d;
    wish.least = least;
    return specdec__ngram_propose_tree(index, reader, &tree, tokens, probability, &wish, NULL);
}

/* A text of a few phrases that come again, with noise between. */
static void make_text(int length, int noise)
{
    int at = 0;

    while (at < length) {
        int phrase = uniform(40), i;

        for (i = 0; i < 12 && at < length; i++)
            text[at++] = uniform(100) < noise ? uniform(1000) : (phrase * 131 + i * i * 7) % 1000;
    }
}

/* How often pattern[size] occurs in all[count]. */
static int occurrences(const int32_t *pattern, int size, const int32_t *all, int count)
{
    int i, found = 0;

    for (i = 0; i + size <= count; i++)
        found += all[i] == pattern[0] && !memcmp(all + i, pattern, (size_t)size * sizeof *all);
    return found;
}

static void test_counts(void)
{
    specdec__ngram index;
    int i, k, wrong = 0;

    TEST("every run is counted as often as it occurs");
    start(&index, memory, CAPACITY, 4);
    make_text(2000, 20);
    specdec__ngram_extend_sequence(&index, index.readers, text, 2000);
    for (i = 5; i < 2000; i += 7) {
        for (k = 1; k <= 5; k++) {
            int32_t run = specdec__ngram_find_run_of_text(&index, text, i - k, i);

            wrong += run < 0 || index.runs[run].count != occurrences(text + i - k, k, text, 2000) ||
                     index.runs[run].depth != k ||
                     index.runs[run].suffix != specdec__ngram_find_run_of_text(&index, text, i - k + 1, i);
        }
    }
    CHECK_EQUAL_INT(wrong, 0);
}

static int same_index(const specdec__ngram *a, const specdec__ngram *b)
{
    const specdec__ngram_reader *r = a->readers, *s = b->readers;

    return a->count == b->count && r->length == s->length && r->from == s->from &&
           !memcmp(a->runs, b->runs, (size_t)a->count * sizeof *a->runs) &&
           !memcmp(r->active, s->active, sizeof r->active) &&
           !memcmp(a->buckets, b->buckets, a->bucket_count * sizeof *a->buckets);
}

static void test_rewind(void)
{
    specdec__ngram one, two;
    int round, length = 0, wrong = 0;

    TEST("after a rewind the index is, byte for byte, the one that never saw the tokens");
    make_text(3000, 30);
    start(&one, memory, CAPACITY, 5);
    for (round = 0; round < 60; round++) {
        int further = length + uniform(100), back = uniform(further + 1) / (round % 9 ? 40 : 2), i;

        specdec__ngram_extend_sequence(&one, one.readers, text, further);
        length = further - back;
        specdec__ngram_rewind_sequence(&one, one.readers, text, length);
        for (i = length; i < length + 50; i++)
            text[i] = uniform(3) ? text[uniform(length + 1)] : uniform(1000);
        start(&two, memory_two, CAPACITY, 5);
        specdec__ngram_extend_sequence(&two, two.readers, text, length);
        wrong += !same_index(&one, &two);
    }
    CHECK_EQUAL_INT(wrong, 0);
    specdec__ngram_rewind_sequence(&one, one.readers, text, 0);
    CHECK(one.count == 1 && one.readers->length == 0);
}

/* What follows pattern[size] in all[count], where a text's end does not count: *total tokens, *kinds different ones.
   Returns how often `token` does. */
static int followers(const int32_t *pattern, int size, const int32_t *all, int count, int32_t token, int *total,
                     int *kinds)
{
    char seen[1000] = {0};
    int i, found = 0;

    *total = *kinds = 0;
    for (i = size; i < count; i++) {
        if (all[i] < 0 || all[i - 1] != pattern[size - 1] ||
            memcmp(all + i - size, pattern, (size_t)size * sizeof *all))
            continue;
        *total += 1;
        found += all[i] == token;
        *kinds += !seen[all[i]];
        seen[all[i]] = 1;
    }
    return found;
}

/* The estimate for one token behind end[-context], straight from its definition; all[count] is all that was seen. */
static double naive(const specdec__ngram *index, int32_t token, const int32_t *end, int context, const int32_t *all,
                    int count)
{
    char before[1000] = {0};
    double left = 1;
    int k, i, listed = 0;

    for (k = context; k >= 1; k--) {
        int counts[1000] = {0}, total = 0, kinds = 0, most = 0, evidence;
        const specdec__ngram_trust *trust;

        for (i = k; i < count; i++)
            if (all[i] >= 0 && !before[all[i]] && !memcmp(all + i - k, end - k, (size_t)k * sizeof *all)) {
                total++;
                kinds += !counts[all[i]]++;
                most = counts[all[i]] > most ? counts[all[i]] : most;
            }
        if (!total)
            continue;
        evidence = listed ? 5 : kinds == 1 ? (total < 3 ? total - 1 : 2) : 2 * most >= total ? 3 : 4;
        trust = &index->trust[0][k][evidence]; /* nothing was learned: no streak */
        if (counts[token])
            return left * (double)(trust->right / trust->tried) * counts[token] / total;
        left *= 1 - (double)(trust->right / trust->tried);
        for (i = 0; i < 1000; i++)
            before[i] |= counts[i] > 0;
        listed = 1;
    }
    return 0;
}

static void test_propose(void)
{
    const specdec__ngram_tree_limits wish = {8, 8, 0, 0, 0};
    specdec__ngram index;
    int length, i, wrong = 0, hits = 0, steps = 0;

    TEST("proposed trees are valid and their first level is likeliest by a naive count");
    make_text(1500, 15);
    start(&index, memory, CAPACITY, 3);
    for (length = 300; length < 1500; length += 13) {
        double best = 0;
        int n = 1 + uniform(NODES), d = 1 + uniform(6);

        specdec__ngram_extend_sequence(&index, index.readers, text, length);
        tokens[0] = text[length - 1];
        wrong += propose(&index, index.readers, n, d, 0.0f) != SPECDEC_OK;
        wrong += specdec_tree_check(&tree, NULL) != SPECDEC_OK || tree.n > n || specdec_tree_depth(&tree, NULL) > d;
        for (i = 1; i < tree.n; i++) {
            wrong += probability[i] > probability[parents[i]] || !(probability[i] > 0);
            if (parents[i] == 0 && ranks[i] < 4)
                wrong += fabs((double)probability[i] - naive(&index, tokens[i], text + length, 3, text, length)) > 1e-5;
        }
        for (i = 0; i < 1000 && tree.n > 1; i++)
            best = fmax(best, naive(&index, i, text + length, 3, text, length));
        if (tree.n > 1)
            wrong += fabs((double)probability[1] - best) > 1e-5;
        for (i = 1; i < tree.n; i++)
            hits += parents[i] == 0 && tokens[i] == text[length];
        steps += d > 1 && n > 1;
    }
    CHECK_EQUAL_INT(wrong, 0);
    CHECK(hits > steps / 3);
    printf("  %d of %d next tokens in the trees\n", hits, steps);

    TEST("a text that repeats itself is continued in full");
    start(&index, memory, CAPACITY, 4);
    for (i = 0; i < 100; i++)
        text[i] = i % 25 * 31;
    specdec__ngram_extend_sequence(&index, index.readers, text, 100);
    CHECK_EQUAL_INT(propose(&index, index.readers, 17, 17, 0.0f), SPECDEC_OK);
    CHECK_EQUAL_INT(tree.n, 17);
    for (i = 1; i < 17; i++)
        CHECK(tokens[i] == (99 + i) % 25 * 31 && parents[i] == i - 1);
    CHECK_EQUAL_INT(propose(&index, index.readers, 17, 17, 0.999f), SPECDEC_OK);
    CHECK_EQUAL_INT(tree.n, 1);

    TEST("an unknown context gives the root alone; what cannot be is refused");
    start(&index, memory, CAPACITY, 4);
    CHECK_EQUAL_INT(propose(&index, index.readers, 8, 8, 0.0f), SPECDEC_OK);
    CHECK_EQUAL_INT(tree.n, 1);
    CHECK_EQUAL_INT(propose(&index, index.readers, 0, 8, 0.0f), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(propose(&index, index.readers, NODES + 1, 8, 0.0f), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec__ngram_propose_tree(&index, index.readers, &tree, NULL, probability, &wish, NULL),
                    SPECDEC_ERROR_ARGUMENT);
    tree.capacity = 4;
    CHECK_EQUAL_INT(propose(&index, index.readers, 8, 8, 0.0f), SPECDEC_ERROR_BUFFER);
    tree.capacity = NODES;
}

/* A hash of what is proposed while a text grows, is rewound and goes on otherwise. */
static uint64_t hash_of_proposals(specdec__ngram *index, specdec__ngram_reader *reader)
{
    uint64_t hash = 1;
    int round, i, length = 0;

    state = 77;
    make_text(TEXT, 15);
    for (round = 0; round < 1000; round++) {
        const int further = length + uniform(40), back = uniform(round % 50 ? 6 : further / 4 + 1);
        const int n = 1 + uniform(NODES), d = 1 + uniform(9);

        specdec__ngram_extend_sequence(index, reader, text, further);
        length = further - back;
        specdec__ngram_rewind_sequence(index, reader, text, length);
        for (i = length; back && i < length + 30; i++)
            text[i] = uniform(3) ? text[uniform(length + 1)] : uniform(1000);
        CHECK(!propose(index, reader, n, d, round % 3 ? 0.02f : 0.0f));
        tokens[0] = 0;
        for (i = 0; i < tree.n; i++) {
            hash = specdec__mix_bits(hash + (uint32_t)tokens[i]);
            hash = specdec__mix_bits(hash + (uint32_t)parents[i]);
            hash = specdec__mix_bits(hash + specdec__bits_from_float(probability[i]));
        }
    }
    return hash;
}

static void test_one_text(void)
{
    static const int capacities[] = {600, 4000, CAPACITY}, contexts[] = {4, 8, 3};
    static const uint64_t hashes[] = {0x959d6cfde0fdc5f8u, 0x45206b507d14674cu, 0xc8e61ff9e4d3e626u};
    specdec__ngram index;
    int i, others;

    TEST("a text alone is proposed the same, bit for bit, by an index of one text and by one with room for others");
    for (i = 0; i < 3; i++)
        for (others = 0; others < 2; others++) {
            start_many(&index, memory, capacities[i], contexts[i], 1 + 3 * others, 500 * others);
            CHECK(hash_of_proposals(&index, &index.readers[others]) == hashes[i]);
        }
}

static void test_bounds(void)
{
    specdec__ngram small, large;
    specdec__ngram_reader *reader;
    specdec__ngram_size size;
    specdec__arena arena;
    int i, wrong = 0;
    clock_t begin;

    TEST("a full index forgets the oldest text and goes on; going back behind that starts afresh");
    make_text(TEXT, 10);
    reader = start(&small, memory, 1000, 4);
    for (i = 1; i <= TEXT; i++) {
        specdec__ngram_extend_sequence(&small, reader, text, i);
        wrong += small.count > 1000 || reader->length != i || reader->from < 0;
        if (i % 500 == 0) {
            wrong += propose(&small, reader, 32, 6, 0.0f) != SPECDEC_OK;
            specdec__ngram_rewind_sequence(&small, reader, text, i - 150);
            wrong += reader->length != i - 150;
            specdec__ngram_extend_sequence(&small, reader, text, i);
        }
    }
    CHECK(reader->from > 0);
    CHECK_EQUAL_INT(wrong, 0);

    TEST("counting only tells the bytes that are needed; one byte fewer is an error");
    size = size_of(5000, 4, 3, 200);
    memset(&arena, 0, sizeof arena);
    CHECK_EQUAL_INT(specdec__ngram_lay_out(&small, &arena, &size, NULL), SPECDEC_OK);
    arena.base = memory;
    arena.size = arena.used - 1;
    arena.used = 0;
    CHECK_EQUAL_INT(specdec__ngram_lay_out(&small, &arena, &size, NULL), SPECDEC_ERROR_MEMORY);
    arena.size++;
    arena.used = 0;
    CHECK_EQUAL_INT(specdec__ngram_lay_out(&small, &arena, &size, NULL), SPECDEC_OK);

    TEST("sizes that make no sense are refused");
    for (i = 0; i < 9; i++) {
        static const int capacities[] = {5000, 10, 239, 1 << 29, 5000, 5000, 5000, 1 << 28, 5000};
        static const int contexts[] = {9, 4, 4, 4, 0, 4, 4, 4, 4};
        static const int readers[] = {1, 1, 3, 1, 1, 0, 1, 0x7fffffff, 1}, histories[] = {0, 0, 0, 0, 0, 0, -1, 0, 0};

        size = size_of(capacities[i], contexts[i], readers[i], histories[i]);
        size.max_nodes = i == 8 ? 0 : NODES;
        CHECK_EQUAL_INT(specdec__ngram_lay_out(&small, &arena, &size, NULL), SPECDEC_ERROR_ARGUMENT);
    }

    TEST("indexing and proposing take microseconds");
    start(&large, memory, CAPACITY, 5);
    begin = clock();
    specdec__ngram_extend_sequence(&large, large.readers, text, TEXT);
    printf("  %.2f us a token", (double)(clock() - begin) * 1e6 / CLOCKS_PER_SEC / TEXT);
    begin = clock();
    for (i = 0; i < 200; i++)
        wrong += propose(&large, large.readers, NODES, 8, 0.0f) != SPECDEC_OK;
    printf(", %.1f us a tree of %d nodes\n", (double)(clock() - begin) * 1e6 / CLOCKS_PER_SEC / 200, tree.n);
    CHECK_EQUAL_INT(wrong, 0);
}

/* --- many texts --------------------------------------------------------------------------------------------------- */

enum { READERS = 3, LENGTH = 400, ROOM = 1 << 16 };

static int32_t texts[READERS][LENGTH], ended[ROOM], all[ROOM];
static int ended_count, all_count;

/* All that the index should count, the history and each live text, with an end behind each: all[all_count]. */
static void gather(const specdec__ngram *index)
{
    int i;

    all_count = 0;
    for (i = 0; i < index->history_count; i++)
        all[all_count++] = *specdec__ngram_history_token_address(index, i);
    for (i = 0; i < index->size.readers; i++) {
        const specdec__ngram_reader *r = &index->readers[i];

        memcpy(all + all_count, r->text + r->from, (size_t)(r->length - r->from) * sizeof *all);
        all_count += r->length - r->from;
        all[all_count++] = SPECDEC__NGRAM_END_MARK;
    }
}

/* How many runs are counted otherwise than a search through all texts counts them, or are missing. */
static int wrong_counts(const specdec__ngram *index)
{
    int at, i, k, total, kinds, wrong = 0;

    gather(index);
    for (at = 1; at < index->count; at++) {
        const specdec__ngram_run *run = &index->runs[at];
        int32_t pattern[SPECDEC__NGRAM_MAX_CONTEXT + 1], up = at;

        for (i = run->depth; i > 0; up = index->runs[up].parent)
            pattern[--i] = index->runs[up].token;
        wrong += run->count != occurrences(pattern, run->depth, all, all_count);
        if (run->depth > index->size.context)
            continue;
        followers(pattern, run->depth, all, all_count, -1, &total, &kinds);
        wrong += run->total != total || run->kinds != kinds;
    }
    for (i = 0; i < all_count; i++)
        for (k = 1; k <= index->size.context + 1 && all[i + k - 1] >= 0; k++)
            wrong += specdec__ngram_find_run_of_text(index, all, i, i + k) <= 0;
    return wrong;
}

/* How many first guesses for a reader are not what a search through all texts guesses. */
static int wrong_guesses(specdec__ngram *index, const specdec__ngram_reader *reader)
{
    const int context = specdec__min_int(index->size.context, reader->length - reader->from);
    const int32_t *end = reader->text + reader->length;
    double best = 0;
    int i, wrong;

    gather(index);
    wrong = propose(index, reader, 20, 4, 0.0f) != SPECDEC_OK;
    for (i = 1; i < tree.n; i++)
        if (!parents[i] && ranks[i] < 4)
            wrong += fabs((double)probability[i] - naive(index, tokens[i], end, context, all, all_count)) > 1e-5;
    for (i = 0; i < 60; i++)
        best = fmax(best, naive(index, i, end, context, all, all_count));
    return wrong + (fabs(best - (tree.n > 1 ? (double)probability[1] : 0)) > 1e-5);
}

/* Is the history the newest part of what has ended? */
static int history_is_newest(const specdec__ngram *index)
{
    int i, wrong = index->history_count > index->size.history || index->history_count > ended_count;

    for (i = 0; !wrong && i < index->history_count; i++)
        wrong = *specdec__ngram_history_token_address(index, i) != ended[ended_count - index->history_count + i];
    return !wrong;
}

static void end_text(specdec__ngram *index, int which)
{
    specdec__ngram_reader *r = &index->readers[which];

    memcpy(ended + ended_count, texts[which] + r->from, (size_t)(r->length - r->from) * sizeof *ended);
    ended_count += r->length - r->from;
    if (r->length > r->from)
        ended[ended_count++] = SPECDEC__NGRAM_END_MARK;
    specdec__ngram_end_sequence(index, r, texts[which]);
}

/* Tokens of a few phrases, from a place of a text on. */
static void write_on(int32_t *to, int count)
{
    int i, phrase = uniform(6);

    for (i = 0; i < count; i++)
        to[i] = uniform(6) ? (phrase * 11 + i % 9 * 5) % 60 : uniform(60);
}

/* One of the texts grows, is rewound, begins as a fork or ends. */
static void random_step(specdec__ngram *index)
{
    const int which = uniform(READERS), what = uniform(12);
    specdec__ngram_reader *r = &index->readers[which];
    int32_t *own = texts[which];

    if (r->length > LENGTH - 40 || what == 0) {
        end_text(index, which);
        if (uniform(3) == 0) {
            const int from = uniform(READERS), shared = index->readers[from].length;

            memmove(own, texts[from], (size_t)shared * sizeof *own);
            if (from != which)
                specdec__ngram_begin_sequence(index, r, shared);
        }
    } else if (what < 4)
        specdec__ngram_rewind_sequence(index, r, own, r->length - uniform(r->length / (uniform(4) ? 8 : 1) + 1));
    else {
        const int more = 1 + uniform(30);

        write_on(own + r->length, more);
        specdec__ngram_extend_sequence(index, r, own, r->length + more);
    }
}

static void test_many_texts(void)
{
    static const int capacities[] = {CAPACITY, 600, 1500}, histories[] = {ROOM, 300, 0};
    specdec__ngram index;
    const int rounds = getenv("SPECDEC_QUICK") ? 150 : 300;
    int world, round, i, wrong = 0, guesses = 0, misplaced = 0;

    TEST("texts that grow, are rewound and end in any order are counted and continued as a search through all does");
    for (world = 0; world < 6; world++) {
        const int capacity = capacities[world % 3], history = histories[world / 2];
        int cut = 0;

        start_many(&index, memory, capacity, 4, READERS, history);
        for (i = 0; i < READERS; i++)
            specdec__ngram_extend_sequence(&index, &index.readers[i], texts[i], 0);
        ended_count = 0;
        for (round = 0; round < rounds; round++) {
            random_step(&index);
            if (round % 5 == 0)
                wrong += wrong_counts(&index);
            else
                guesses += wrong_guesses(&index, &index.readers[uniform(READERS)]);
            misplaced += !history_is_newest(&index);
            if (capacity == CAPACITY)
                misplaced += index.history_count != (history ? specdec__min_int(ended_count, history) : 0);
            for (i = 0; i < READERS; i++)
                cut += index.readers[i].from > 60;
            wrong += capacity - index.count < 0;
        }
        CHECK(capacity > 600 || cut > 0);
        for (i = 0; i < READERS; i++) /* what is taken back leaves nothing, once all that is newer is gone, too */
            specdec__ngram_rewind_sequence(&index, &index.readers[i], texts[i], 0);
        CHECK(index.history_count || index.count == 1);
    }
    CHECK_EQUAL_INT(wrong, 0);
    CHECK_EQUAL_INT(guesses, 0);
    CHECK_EQUAL_INT(misplaced, 0);

    TEST("a full index forgets of history and texts, never a text that is short, nor the newest of a long one");
    start_many(&index, memory, 600, 4, READERS, 40); /* 60 tokens fill half of it, 30 of them of the history */
    for (i = 0; i < LENGTH; i++)
        texts[0][i] = texts[1][i] = texts[2][i] = uniform(1000);
    specdec__ngram_extend_sequence(&index, &index.readers[0], texts[0], 39);
    specdec__ngram_end_sequence(&index, &index.readers[0], texts[0]);
    specdec__ngram_extend_sequence(&index, &index.readers[0], texts[0], 10);
    specdec__ngram_extend_sequence(&index, &index.readers[1], texts[1] + 100, 30);
    for (i = 1, wrong = 0; i <= LENGTH; i++) {
        const specdec__ngram_reader *r = index.readers;

        specdec__ngram_extend_sequence(&index, &index.readers[2], texts[2], i);
        wrong += r[0].from > 0 || r[1].length - r[1].from < 10 || r[2].length - r[2].from < specdec__min_int(i, 10);
    }
    CHECK_EQUAL_INT(wrong, 0);
    CHECK(index.readers[1].from > 0 && index.history_count == 30 && index.readers[2].from > LENGTH / 2);
    CHECK_EQUAL_INT(wrong_counts(&index), 0);
}

/* The token that is thought likeliest behind text[length], which is read by reader; -1: none. */
static int32_t guess(specdec__ngram *index, specdec__ngram_reader *reader, const int32_t *own, int length)
{

    specdec__ngram_extend_sequence(index, reader, own, length);
    CHECK(!propose(index, reader, 2, 2, 0.0f));
    return tree.n > 1 ? tokens[1] : -1;
}

static void test_learning(void)
{
    static const int32_t question[] = {1, 2, 3, 4, 5, 6, 7, 8}, other[] = {11, 12, 13, 14, 15, 16, 17, 18};
    specdec__ngram index;
    specdec__ngram_reader *r;
    int history;

    TEST("a text learns from another that lives, not from what that has taken back, and from one that ended");
    for (history = 0; history <= 20; history += 10) {
        start_many(&index, memory, 1000, 4, 3, history);
        r = index.readers;
        specdec__ngram_extend_sequence(&index, &r[0], question, 8);
        CHECK_EQUAL_INT(guess(&index, &r[1], question + 2, 2), 5);
        specdec__ngram_rewind_sequence(&index, &r[0], question, 3);
        CHECK_EQUAL_INT(guess(&index, &r[1], question + 2, 2), -1);
        specdec__ngram_rewind_sequence(&index, &r[1], question + 2, 0);
        specdec__ngram_extend_sequence(&index, &r[0], question, 8);
        specdec__ngram_end_sequence(&index, &r[0], question);
        CHECK_EQUAL_INT(r[0].length, 0);
        CHECK_EQUAL_INT(guess(&index, &r[1], question + 2, 2), history ? 5 : -1);
        specdec__ngram_rewind_sequence(&index, &r[1], question + 2, 0);

        TEST("the history is bounded: what ended last drives out what ended first");
        specdec__ngram_extend_sequence(&index, &r[2], other, 8);
        specdec__ngram_end_sequence(&index, &r[2], other);
        CHECK(index.history_count <= history);
        CHECK_EQUAL_INT(guess(&index, &r[1], question + 2, 2), history > 10 ? 5 : -1);
        specdec__ngram_rewind_sequence(&index, &r[1], question + 2, 0);
        CHECK_EQUAL_INT(guess(&index, &r[1], other + 2, 2), history ? 15 : -1);
    }

    TEST("a text may move when it is rewound or grows");
    start_many(&index, memory, 600, 4, 2, 0);
    memcpy(texts[0], question, sizeof question);
    specdec__ngram_extend_sequence(&index, &index.readers[0], texts[0], 8);
    specdec__ngram_rewind_sequence(&index, &index.readers[0], question, 6);
    memset(texts[0], 0, sizeof texts[0]);
    specdec__ngram_extend_sequence(&index, &index.readers[1], text, 300);
    CHECK(index.readers[1].from > 0 && specdec__ngram_find_run_of_text(&index, question, 1, 6) > 0);

    TEST("a text longer than the history leaves its newest part");
    start_many(&index, memory, 1000, 4, 1, 5);
    specdec__ngram_extend_sequence(&index, index.readers, question, 8);
    specdec__ngram_end_sequence(&index, index.readers, question);
    CHECK_EQUAL_INT(index.history_count, 5);
    CHECK(*specdec__ngram_history_token_address(&index, 0) == 5 &&
          *specdec__ngram_history_token_address(&index, 4) == SPECDEC__NGRAM_END_MARK);

    TEST("what a fork shares is counted once, and yet it has a context from its first token on");
    start_many(&index, memory, 1000, 2, 2, 0);
    r = index.readers;
    specdec__ngram_extend_sequence(&index, &r[0], question, 8);
    specdec__ngram_begin_sequence(&index, &r[1], 6);
    CHECK_EQUAL_INT(guess(&index, &r[1], question, 6), 7);
    CHECK_EQUAL_INT(index.runs[specdec__ngram_find_run_of_text(&index, question, 0, 1)].count, 1);
    CHECK_EQUAL_INT(index.runs[specdec__ngram_find_run_of_text(&index, question, 5, 6)].count, 2);
}

/* --- saved and loaded --------------------------------------------------------------------------------------------- */

enum { FILE_SIZE = 1 << 17, VOCABULARY = 60 };
static const uint64_t fingerprint = 0x123456789abcdef0u;
static unsigned char file[FILE_SIZE];
static size_t file_size;

static void save(const specdec__ngram *index)
{
    size_t needed = 0;

    CHECK_EQUAL_INT(specdec__ngram_save_file(index, fingerprint, NULL, 0, &needed, NULL), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec__ngram_save_file(index, fingerprint, file, needed - 1, &file_size, NULL),
                    SPECDEC_ERROR_BUFFER);
    CHECK(file_size == needed);
    CHECK_EQUAL_INT(specdec__ngram_save_file(index, fingerprint, file, needed, &file_size, NULL), SPECDEC_OK);
}

static void test_files(void)
{
    specdec__ngram one, two;
    int i, history, fresh = 0, known = 0;

    TEST("what was saved and loaded is, byte for byte, the index in which these texts have ended");
    start_many(&one, memory, 20000, 4, READERS, 1000);
    for (i = 0; i < READERS; i++) {
        write_on(texts[i], 250);
        specdec__ngram_extend_sequence(&one, &one.readers[i], texts[i], 250);
        if (i == 0)
            specdec__ngram_end_sequence(&one, &one.readers[i], texts[i]);
    }
    save(&one);
    for (i = 1; i < READERS; i++)
        specdec__ngram_end_sequence(&one, &one.readers[i], texts[i]);
    start_many(&two, memory_two, 20000, 4, READERS, 1000);
    CHECK_EQUAL_INT(specdec__ngram_load_file(&two, fingerprint, VOCABULARY, file, file_size, NULL), SPECDEC_OK);
    CHECK(same_index(&one, &two) && one.history_count == READERS * 251 && two.history_count == one.history_count);
    CHECK(!memcmp(one.history, two.history, (size_t)one.history_count * sizeof *one.history));
    CHECK(hash_of_proposals(&one, one.readers) == hash_of_proposals(&two, two.readers));

    TEST("loaded after any story, in any room: it is counted rightly, and of what has no room the newest is kept");
    for (history = 1; history < 2000; history += history < 12 ? 1 : 217) {
        start_many(&one, memory, 3000, 4, READERS, 700);
        start_many(&two, memory_two, history % 2 ? 4000 : 30000, 4, READERS, history);
        for (i = 0; i < READERS; i++) {
            specdec__ngram_extend_sequence(&one, &one.readers[i], texts[i], 0);
            specdec__ngram_extend_sequence(&two, &two.readers[i], text, i ? 0 : 20);
        }
        ended_count = 0;
        for (i = 0; i < 100; i++)
            random_step(&one);
        save(&one);
        for (i = 0; i < READERS; i++)
            end_text(&one, i);
        CHECK_EQUAL_INT(specdec__ngram_load_file(&two, fingerprint, VOCABULARY, file, file_size, NULL), SPECDEC_OK);
        CHECK(two.history_count > 0 && history_is_newest(&two));
        specdec__ngram_rewind_sequence(&two, two.readers, text, 0);
        CHECK_EQUAL_INT(wrong_counts(&two), 0);
        CHECK_EQUAL_INT(wrong_guesses(&two, two.readers), 0);
    }

    TEST("an answer that was given before the file was saved is guessed from its second token on");
    make_text(600, 100);
    start_many(&one, memory, 20000, 4, 1, 1000);
    specdec__ngram_extend_sequence(&one, one.readers, text, 600);
    save(&one);
    start_many(&two, memory_two, 20000, 4, 1, 1000);
    CHECK_EQUAL_INT(specdec__ngram_load_file(&two, fingerprint, 1000, file, file_size, NULL), SPECDEC_OK);
    start_many(&one, memory, 20000, 4, 1, 1000);
    for (i = 1; i < 600; i++) {
        fresh += guess(&one, one.readers, text, i) == text[i];
        known += guess(&two, two.readers, text, i) == text[i];
    }
    CHECK(fresh < 30 && known > 580);
    printf("  %d of 599 tokens guessed, %d after loading\n", fresh, known);

    TEST("a file of version 1, which has no table, is read");
    specdec__store_u32(file + 8, 1);
    file_size = SPECDEC__NGRAM_FILE_HEAD_BYTES + 4 * (size_t)specdec__load_u32(file + 12);
    specdec__store_u64(file + file_size, specdec__hash(SPECDEC__EMPTY_HASH, file, file_size));
    file_size += 8;
    start_many(&two, memory_two, 20000, 4, 1, 1000);
    CHECK_EQUAL_INT(specdec__ngram_load_file(&two, fingerprint, 1000, file, file_size, NULL), SPECDEC_OK);
    CHECK_EQUAL_INT(two.history_count, 601);

    TEST("without a history nothing can be loaded");
    start_many(&two, memory_two, 3000, 4, 1, 0);
    CHECK_EQUAL_INT(specdec__ngram_load_file(&two, fingerprint, 1000, file, file_size, NULL), SPECDEC_ERROR_ARGUMENT);
}

/* A file, of tokens alone, that says what it holds rightly. */
static size_t seal(unsigned char *data, uint32_t count)
{
    const size_t end = SPECDEC__NGRAM_FILE_HEAD_BYTES + (size_t)count * 4 + 4;

    specdec__store_u32(data + 12, count);
    specdec__store_u32(data + end - 4, 0);
    specdec__store_u64(data + end, specdec__hash(SPECDEC__EMPTY_HASH, data, end));
    return end + 8;
}

/* Offers size bytes as a file, in a block of just that size. Is it refused with a text, and the index as it was? */
static int refused(specdec__ngram *index, const unsigned char *data, size_t size, specdec_result wanted)
{
    static specdec__ngram_run runs[3000];
    unsigned char *copy = (unsigned char *)malloc(size + !size);
    const specdec__ngram before = *index;
    specdec_error error;
    specdec_result got;

    memcpy(runs, index->runs, (size_t)index->count * sizeof *runs);
    memcpy(copy, data, size);
    memset(&error, 0, sizeof error);
    got = specdec__ngram_load_file(index, fingerprint, VOCABULARY, copy, size, &error);
    free(copy);
    return got && (!wanted || got == wanted) && error.text[0] && error.code == got &&
           !memcmp(&before, index, sizeof before) && !memcmp(runs, index->runs, (size_t)index->count * sizeof *runs);
}

static void test_damage(void)
{
    static const int32_t phrase[] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5};
    static const char expected[] = "SPECSEEN\2\0\0\0\3\0\0\0\xf0\xde\xbc\x9a\x78\x56\x34\x12"
                                   "\3\0\0\0\1\0\0\0\xff\xff\xff\xff\0\0\0\0";
    specdec__ngram index;
    unsigned char bad[256];
    size_t at, size;
    int i, wrong = 0, taken = 0;

    TEST("a file has the bytes that are documented, on every machine");
    CHECK(specdec__hash(SPECDEC__EMPTY_HASH, (const unsigned char *)"foobar", 6) == 0x85944171f73967e8u);
    start_many(&index, memory, 1000, 4, 2, 100);
    specdec__ngram_extend_sequence(&index, index.readers, phrase, 2);
    save(&index);
    CHECK(file_size == sizeof expected - 1 + 8 && !memcmp(file, expected, sizeof expected - 1));
    CHECK(specdec__load_u64(file + file_size - 8) == specdec__hash(SPECDEC__EMPTY_HASH, file, file_size - 8));

    TEST("every change of a byte, every file cut short and every one with more behind it is refused; nothing changes");
    specdec__ngram_extend_sequence(&index, index.readers, phrase, 9);
    specdec__ngram_end_sequence(&index, index.readers, phrase);
    specdec__ngram_extend_sequence(&index, index.readers + 1, phrase + 5, 6);
    save(&index);
    for (at = 0; at < file_size; at++)
        for (i = 1; i < 256; i++) {
            memcpy(bad, file, file_size);
            bad[at] = (unsigned char)(bad[at] ^ i);
            wrong += !refused(&index, bad, file_size, SPECDEC_OK);
        }
    memset(bad, 0, sizeof bad);
    memcpy(bad, file, file_size);
    for (size = 0; size < sizeof bad; size++)
        wrong += size != file_size && !refused(&index, bad, size, SPECDEC_ERROR_FORMAT);
    CHECK_EQUAL_INT(wrong, 0);
    TEST("whoever seals a file with tokens that are none, or a text without an end, is refused as well");
    specdec__store_u32(bad + 32, VOCABULARY); /* the first text has nine tokens */
    CHECK(refused(&index, bad, seal(bad, 10), SPECDEC_ERROR_FORMAT));
    specdec__store_u32(bad + 32, 0x80000000u);
    CHECK(refused(&index, bad, seal(bad, 10), SPECDEC_ERROR_FORMAT));
    specdec__store_u32(bad + 32, 0);
    CHECK(refused(&index, bad, seal(bad, 9), SPECDEC_ERROR_FORMAT));
    memcpy(bad, file, file_size);
    size = seal(bad, 10) + 1;
    specdec__store_u64(bad + size - 8, specdec__hash(SPECDEC__EMPTY_HASH, bad, size - 8));
    CHECK(refused(&index, bad, size, SPECDEC_ERROR_FORMAT));
    specdec__store_u32(bad + 8, 3);
    CHECK(refused(&index, bad, seal(bad, 0), SPECDEC_ERROR_UNSUPPORTED));
    specdec__store_u32(bad + 8, 0);
    CHECK(refused(&index, bad, seal(bad, 0), SPECDEC_ERROR_UNSUPPORTED));
    TEST("a file for another vocabulary is refused");
    memcpy(bad, file, file_size);
    bad[16]++;
    CHECK(refused(&index, bad, seal(bad, specdec__load_u32(bad + 12)), SPECDEC_ERROR_MISMATCH));

    TEST("sealed noise is refused, or harmless");
    for (i = 0; i < 3000; i++) {
        const uint32_t count = (uint32_t)uniform(40);

        for (at = 0; at < count; at++)
            specdec__store_u32(file + SPECDEC__NGRAM_FILE_HEAD_BYTES + at * 4,
                               uniform(4) ? (uint32_t)uniform(uniform(40) ? VOCABULARY : VOCABULARY + 2) : 0xffffffffu);
        size = seal(file, count);
        taken += !specdec__ngram_load_file(&index, fingerprint, VOCABULARY, file, size, NULL);
        if (i % 10 == 0)
            wrong += wrong_counts(&index);
    }
    CHECK_EQUAL_INT(wrong, 0);
    CHECK(taken > 300 && taken < 2700);
}

/* The fingerprint of tokens with these texts, which are as long as the digits say. */
static uint64_t fingerprint_of(const char *all_texts, const char *lengths)
{
    unsigned char bytes[100];
    uint32_t places[8];
    specdec__vocab vocab;
    size_t at = 0;

    memset(&vocab, 0, sizeof vocab);
    for (; *lengths; all_texts += *lengths++ - '0') {
        const size_t length = (size_t)(*lengths - '0');

        places[vocab.count++] = (uint32_t)at;
        specdec__store_u64(bytes + at, length);
        memcpy(bytes + at + 8, all_texts, length);
        at += 8 + length;
    }
    vocab.texts = bytes;
    vocab.text_offset = places;
    return specdec__draft_ngram_hash_vocabulary(&vocab);
}

static void test_fingerprint(void)
{
    TEST("vocabularies with other texts, other borders between them or more tokens have other fingerprints");
    CHECK(fingerprint_of("abc", "12") == fingerprint_of("abc", "12"));
    CHECK(fingerprint_of("abc", "12") != fingerprint_of("abd", "12"));
    CHECK(fingerprint_of("abc", "12") != fingerprint_of("abc", "21"));
    CHECK(fingerprint_of("abc", "12") != fingerprint_of("bca", "21"));
    CHECK(fingerprint_of("abc", "12") != fingerprint_of("abc", "120"));
}

/* --- what the target found likely --------------------------------------------------------------------------------- */

enum { ROW = 50 };

/* A row of logits in which these are likely, and nothing else is known. */
static void make_row(float *row, int first, int second)
{
    int i;

    for (i = 0; i < ROW; i++)
        row[i] = -HUGE_VALF;
    row[first] = 3;
    row[second] = 2.5f;
}

/* A drafter of an index of one text, the target having verified a tree behind 1, 2, 3: the root's children 7 and 9, of
   which 7 was accepted, and 8 behind 9. */
static void watch(specdec__ngram *index, int entries, int whole)
{
    static const int32_t own[] = {1, 2, 3, 7, 20}, path[] = {0, 1}, drafted[] = {3, 7, 9, 8};
    static const int32_t above[] = {-1, 0, 0, 2}, order[] = {0, 1, 2, 1};
    static float logits[4 * ROW];
    static specdec_sampling sampling;
    specdec__ngram_size size = size_of(CAPACITY, 4, 1, 0);
    specdec__kernels kernels;
    specdec__arena arena = {memory, sizeof memory, 0};
    specdec__verified_tree judged;
    specdec__drafter drafter;
    int i;

    size.recycled = entries;
    CHECK_EQUAL_INT(specdec__ngram_lay_out(index, &arena, &size, NULL), SPECDEC_OK);
    memset(&kernels, 0, sizeof kernels);
    memset(&judged, 0, sizeof judged);
    memset(&drafter, 0, sizeof drafter);
    kernels.largest = specdec__scalar_largest;
    for (i = 0; i < 4; i++) {
        parents[i] = above[i];
        ranks[i] = order[i];
    }
    tree.n = 4;
    make_row(logits, 7, 9);
    make_row(logits + ROW, 20, 21);
    make_row(logits + 2 * ROW, 30, 31);
    make_row(logits + 3 * ROW, 40, 41);
    drafter.state = index;
    judged.text = own;
    judged.count = 3;
    judged.sampling = &sampling;
    judged.tree = &tree;
    judged.tokens = drafted;
    judged.logits = logits;
    judged.vocab = ROW;
    judged.kernels = &kernels;
    judged.path = path;
    judged.length = 2;
    judged.whole = whole;
    specdec__draft_ngram_receive_logits(&drafter, &judged);
    specdec__ngram_extend_sequence(index, index->readers, own, 5);
}

/* Whether the tree holds this token behind a node. */
static int holds(int node, int32_t token)
{
    int i = node + 1;

    while (i < tree.n && (parents[i] != node || tokens[i] != token))
        i++;
    return i < tree.n ? i : 0;
}

/* An index of one text, with a history and a table of so many entries. */
static void start_recycling(specdec__ngram *index, unsigned char *block, int entries)
{
    specdec__ngram_size size = size_of(CAPACITY, 4, 1, 100);
    specdec__arena arena = {0};

    arena.base = block;
    arena.size = sizeof memory;
    size.recycled = entries;
    CHECK_EQUAL_INT(specdec__ngram_lay_out(index, &arena, &size, NULL), SPECDEC_OK);
}

/* The file's last entry, damaged and sealed again. */
static void check_entries(specdec__ngram *index)
{
    static const struct { int at; unsigned char value; } changes[] = {{39, 0x7f}, {5, 0xff}, {4, 0}, {7, 0x7f}};
    unsigned char *bad = (unsigned char *)malloc(file_size + SPECDEC__NGRAM_FILE_ENTRY_BYTES);
    unsigned char *last = bad + file_size - 8 - SPECDEC__NGRAM_FILE_ENTRY_BYTES;
    const size_t counted = file_size - 12 -
                           specdec__ngram_count_used_entries(&index->recycling) * SPECDEC__NGRAM_FILE_ENTRY_BYTES;
    int i;

    for (i = 0; i < 4; i++) {
        memcpy(bad, file, file_size);
        last[changes[i].at] = changes[i].value;
        if (changes[i].at == 4)
            last[5] = 0;
        specdec__store_u64(bad + file_size - 8, specdec__hash(SPECDEC__EMPTY_HASH, bad, file_size - 8));
        CHECK(refused(index, bad, file_size, SPECDEC_ERROR_FORMAT));
    }
    for (i = -1; i <= 1; i += 2) {
        memcpy(bad, file, file_size);
        specdec__store_u32(bad + counted, specdec__load_u32(bad + counted) + (uint32_t)i);
        specdec__store_u64(bad + file_size - 8, specdec__hash(SPECDEC__EMPTY_HASH, bad, file_size - 8));
        CHECK(refused(index, bad, file_size, SPECDEC_ERROR_FORMAT));
    }
    free(bad);
}

static void test_rows(void)
{
    static const int32_t other[] = {5, 9}, again[] = {2, 3};
    specdec__ngram_tree_limits draw = {16, 6, 0, 1, 0};
    specdec__ngram index;
    int i, wrong = 0;

    TEST("behind the root what the target thought likely in its place is proposed, each continued by what was seen");
    watch(&index, 1024, 1);
    CHECK_EQUAL_INT(propose(&index, index.readers, 16, 6, 0.0f), SPECDEC_OK);
    CHECK(holds(0, 21) && !holds(0, 20));

    TEST("what the target found behind a node that was rejected is proposed when its token comes");
    specdec__ngram_rewind_sequence(&index, index.readers, index.readers->text, 0);
    specdec__ngram_extend_sequence(&index, index.readers, other, 2);
    CHECK_EQUAL_INT(propose(&index, index.readers, 16, 6, 0.0f), SPECDEC_OK);
    CHECK(holds(0, 30) && holds(0, 31) && tokens[1] == 30);
    watch(&index, 1024, 0);
    specdec__ngram_rewind_sequence(&index, index.readers, index.readers->text, 0);
    specdec__ngram_extend_sequence(&index, index.readers, other, 2);
    CHECK_EQUAL_INT(propose(&index, index.readers, 16, 6, 0.0f), SPECDEC_OK);
    CHECK_EQUAL_INT(tree.n, 1); /* of a node that was not reached nothing is known then */
    specdec__ngram_rewind_sequence(&index, index.readers, other, 0);
    specdec__ngram_extend_sequence(&index, index.readers, again, 2);
    CHECK_EQUAL_INT(propose(&index, index.readers, 16, 6, 0.0f), SPECDEC_OK);
    CHECK(holds(0, 7) && holds(0, 9) && holds(holds(0, 7), 20));

    TEST("what the target found likely is in the file, too, and is read in a table of any size");
    watch(&index, 1024, 1);
    save(&index);
    for (i = 0; i < 3; i++) {
        specdec__ngram two;

        start_recycling(&two, memory_two, i == 0 ? 16 : i == 1 ? 1024 : 4096);
        CHECK_EQUAL_INT(specdec__ngram_load_file(&two, fingerprint, VOCABULARY, file, file_size, NULL), SPECDEC_OK);
        specdec__ngram_extend_sequence(&two, two.readers, other, 2);
        CHECK_EQUAL_INT(propose(&two, two.readers, 16, 6, 0.0f), SPECDEC_OK);
        CHECK(i == 0 || (holds(0, 30) && holds(0, 31)));
        CHECK(specdec__ngram_count_used_entries(&two.recycling) > 0);
    }

    TEST("entries of other tokens or with shares that rise are refused, as are more or fewer than are there");
    save(&index);
    check_entries(&index);

    TEST("a table of no entries proposes none of this, one of a few entries is written within its bounds");
    watch(&index, 0, 1);
    CHECK(propose(&index, index.readers, 16, 6, 0.0f) == SPECDEC_OK && tree.n == 1);
    watch(&index, 1, 1);
    CHECK_EQUAL_INT(propose(&index, index.readers, 16, 6, 0.0f), SPECDEC_OK);

    TEST("of equals that token is proposed first which the noise favours");
    watch(&index, 1024, 1);
    specdec__ngram_rewind_sequence(&index, index.readers, index.readers->text, 0);
    specdec__ngram_extend_sequence(&index, index.readers, again, 2);
    for (i = 0; i < 1024; i++)
        index.recycling.entries[i].share[0] = index.recycling.entries[i].share[1];
    for (i = 0; i < 100; i++) {
        draw.seed = (uint64_t)i;
        wrong += specdec__ngram_propose_tree(&index, index.readers, &tree, tokens, probability, &draw,
                                             NULL) != SPECDEC_OK;
        wrong += tokens[1] != (specdec__noise_bits((uint64_t)i, 2, 7) > specdec__noise_bits((uint64_t)i, 2, 9) ? 7 : 9);
    }
    CHECK_EQUAL_INT(wrong, 0);
}

/* A text that repeats itself is followed token by token, as it is written. */
static void test_streaks(void)
{
    specdec__ngram_path place;
    specdec__ngram index;
    float before, after, changed;
    int i, hits = 0;

    TEST("the more tokens in a row were foreseen, the likelier the next one is thought; one surprise ends that");
    start_many(&index, memory, 4000, 4, 1, 0);
    for (i = 0; i < 200; i++)
        text[i] = 10 + i % 20;
    specdec__ngram_extend_sequence(&index, index.readers, text, 25);
    propose(&index, index.readers, 8, 8, 0.0f);
    before = probability[1];
    for (i = 25; i < 33; i++) {
        specdec__ngram_set_path(&place, &tree, tokens, 0, text, i);
        specdec__draft_ngram_update_source_trust(&index, index.readers, &place, text, i);
        specdec__ngram_extend_sequence(&index, index.readers, text, i + 1);
        hits += index.readers->streak == i - 24;
    }
    CHECK_EQUAL_INT(hits, 8);
    propose(&index, index.readers, 8, 8, 0.0f);
    after = probability[1];
    CHECK(tree.n == 8 && after > before + 0.2f && probability[7] > 0.5f);
    text[33] = 999;
    specdec__draft_ngram_update_source_trust(&index, index.readers, &place, text, 33);
    CHECK_EQUAL_INT(index.readers->streak, 0);
    text[33] = 10 + 33 % 20;
    specdec__ngram_rewind_sequence(&index, index.readers, text, 32);
    propose(&index, index.readers, 8, 8, 0.0f); /* behind what was taken back no streak is known */
    changed = probability[1];
    CHECK(changed < after);
}

int main(void)
{
    test_counts();
    test_rewind();
    test_propose();
    test_one_text();
    test_bounds();
    test_many_texts();
    test_learning();
    test_rows();
    test_streaks();
    test_files();
    test_damage();
    test_fingerprint();
    return check_report("test_ngram");
}
