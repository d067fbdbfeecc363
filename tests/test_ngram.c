/* test_ngram.c - the n-gram index counts rightly, forgets rightly and proposes what a naive count would. */
#define SPECDEC_NO_SIMD /* no kernels are run: builds in a third of the time */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "check.h"
#include "statistics.h"
#include <time.h>

#define TEXT     20000
#define CAPACITY 200000
#define NODES    64

static unsigned char memory[32 << 20], memory_two[32 << 20];
static int32_t text[TEXT], parents[NODES], ranks[NODES], tokens[NODES], other_tokens[NODES];
static float probability[NODES], other_probability[NODES];
static uint64_t state = 5;

static int uniform(int below)
{
    return (int)(statistics_random(&state) * below);
}

static void start(specdec__ngram *index, unsigned char *block, int capacity, int context)
{
    specdec__arena arena;

    arena.base = block;
    arena.size = sizeof memory;
    arena.used = 0;
    CHECK_EQUAL_INT(specdec__ngram_lay_out(index, &arena, capacity, context, NODES, NULL), SPECDEC_OK);
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

/* How often pattern[size] occurs in text[0 .. length). */
static int occurrences(const int32_t *pattern, int size, int length)
{
    int i, count = 0;

    for (i = 0; i + size <= length; i++)
        count += !memcmp(text + i, pattern, (size_t)size * sizeof *text);
    return count;
}

static void test_counts(void)
{
    specdec__ngram index;
    int i, k, wrong = 0;

    TEST("every run is counted as often as it occurs");
    start(&index, memory, CAPACITY, 4);
    make_text(2000, 20);
    specdec__ngram_extend(&index, text, 2000);
    for (i = 5; i < 2000; i += 7) {
        for (k = 1; k <= 5; k++) {
            int32_t run = specdec__ngram_locate(&index, text, i - k, i);

            wrong += run < 0 || index.runs[run].count != occurrences(text + i - k, k, 2000) ||
                     index.runs[run].depth != k ||
                     index.runs[run].suffix != specdec__ngram_locate(&index, text, i - k + 1, i);
        }
    }
    CHECK_EQUAL_INT(wrong, 0);
}

static int same_index(const specdec__ngram *a, const specdec__ngram *b)
{
    return a->count == b->count && a->length == b->length && a->from == b->from &&
           !memcmp(a->runs, b->runs, (size_t)a->count * sizeof *a->runs) &&
           !memcmp(a->active, b->active, sizeof a->active) &&
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

        specdec__ngram_extend(&one, text, further);
        length = further - back;
        specdec__ngram_rewind(&one, text, length);
        for (i = length; i < length + 50; i++)
            text[i] = uniform(3) ? text[uniform(length + 1)] : uniform(1000);
        start(&two, memory_two, CAPACITY, 5);
        specdec__ngram_extend(&two, text, length);
        wrong += !same_index(&one, &two);
    }
    CHECK_EQUAL_INT(wrong, 0);
    specdec__ngram_rewind(&one, text, 0);
    CHECK(one.count == 1 && one.length == 0);
}

/* The estimate for one token after text[0 .. length), straight from its definition. */
static double naive(int32_t token, int length, int context)
{
    double share = 1, p = 0;
    int k, i, j;

    for (k = context; k >= 1; k--) {
        int total = 0, kinds = 0, count = 0;

        for (i = k; k <= length && i < length; i++) {
            if (memcmp(text + i - k, text + length - k, (size_t)k * sizeof *text))
                continue;
            total++;
            count += text[i] == token;
            for (j = k; j < i; j++)
                if (text[j] == text[i] && !memcmp(text + j - k, text + length - k, (size_t)k * sizeof *text))
                    break;
            kinds += j == i;
        }
        if (total) {
            p += share * count / (total + kinds);
            share *= (double)kinds / (total + kinds);
        }
    }
    return p;
}

static void test_propose(void)
{
    specdec__ngram index;
    specdec_tree tree = {parents, ranks, NODES, 0};
    int length, i, wrong = 0, hits = 0, steps = 0;

    TEST("proposed trees are valid and their first level is likeliest by a naive count");
    make_text(1500, 15);
    start(&index, memory, CAPACITY, 3);
    for (length = 300; length < 1500; length += 13) {
        double best = 0;
        int n = 1 + uniform(NODES), d = 1 + uniform(6);

        specdec__ngram_extend(&index, text, length);
        tokens[0] = text[length - 1];
        wrong += specdec__ngram_propose(&index, &tree, tokens, probability, n, d, 0.0f, NULL) != SPECDEC_OK;
        wrong += specdec_tree_check(&tree, NULL) != SPECDEC_OK || tree.n > n || specdec_tree_depth(&tree, NULL) > d;
        for (i = 1; i < tree.n; i++) {
            wrong += probability[i] > probability[parents[i]] || !(probability[i] > 0);
            if (parents[i] == 0 && ranks[i] < 4)
                wrong += fabs((double)probability[i] - naive(tokens[i], length, 3)) > 1e-5;
        }
        for (i = 0; i < 1000 && tree.n > 1; i++)
            best = naive(i, length, 3) > best ? naive(i, length, 3) : best;
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
    specdec__ngram_extend(&index, text, 100);
    CHECK_EQUAL_INT(specdec__ngram_propose(&index, &tree, tokens, probability, 17, 17, 0.0f, NULL), SPECDEC_OK);
    CHECK_EQUAL_INT(tree.n, 17);
    for (i = 1; i < 17; i++)
        CHECK(tokens[i] == (99 + i) % 25 * 31 && parents[i] == i - 1);
    CHECK_EQUAL_INT(specdec__ngram_propose(&index, &tree, tokens, probability, 17, 17, 0.999f, NULL), SPECDEC_OK);
    CHECK_EQUAL_INT(tree.n, 1);

    TEST("an unknown context gives the root alone; what cannot be is refused");
    start(&index, memory, CAPACITY, 4);
    CHECK_EQUAL_INT(specdec__ngram_propose(&index, &tree, tokens, probability, 8, 8, 0.0f, NULL), SPECDEC_OK);
    CHECK_EQUAL_INT(tree.n, 1);
    CHECK_EQUAL_INT(specdec__ngram_propose(&index, &tree, tokens, probability, 0, 8, 0.0f, NULL),
                    SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec__ngram_propose(&index, &tree, tokens, probability, NODES + 1, 8, 0.0f, NULL),
                    SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec__ngram_propose(&index, &tree, NULL, probability, 8, 8, 0.0f, NULL), SPECDEC_ERROR_ARGUMENT);
    tree.capacity = 4;
    CHECK_EQUAL_INT(specdec__ngram_propose(&index, &tree, tokens, probability, 8, 8, 0.0f, NULL), SPECDEC_ERROR_BUFFER);
}

static void test_bounds(void)
{
    specdec__ngram small, large;
    specdec_tree tree = {parents, ranks, NODES, 0};
    specdec__arena arena;
    int i, wrong = 0;
    clock_t begin;

    TEST("a full index forgets the oldest text and goes on; going back behind that starts afresh");
    make_text(TEXT, 10);
    start(&small, memory, 1000, 4);
    for (i = 1; i <= TEXT; i++) {
        specdec__ngram_extend(&small, text, i);
        wrong += small.count > 1000 || small.length != i || small.from < 0;
        if (i % 500 == 0) {
            wrong += specdec__ngram_propose(&small, &tree, tokens, probability, 32, 6, 0.0f, NULL) != SPECDEC_OK;
            specdec__ngram_rewind(&small, text, i - 150);
            wrong += small.length != i - 150;
            specdec__ngram_extend(&small, text, i);
        }
    }
    CHECK(small.from > 0);
    CHECK_EQUAL_INT(wrong, 0);

    TEST("counting only tells the bytes that are needed; one byte fewer is an error");
    memset(&arena, 0, sizeof arena);
    CHECK_EQUAL_INT(specdec__ngram_lay_out(&small, &arena, 5000, 4, NODES, NULL), SPECDEC_OK);
    arena.base = memory;
    arena.size = arena.used - 1;
    arena.used = 0;
    CHECK_EQUAL_INT(specdec__ngram_lay_out(&small, &arena, 5000, 4, NODES, NULL), SPECDEC_ERROR_MEMORY);
    arena.size++;
    arena.used = 0;
    CHECK_EQUAL_INT(specdec__ngram_lay_out(&small, &arena, 5000, 4, NODES, NULL), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec__ngram_lay_out(&small, &arena, 5000, 9, NODES, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec__ngram_lay_out(&small, &arena, 10, 4, NODES, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec__ngram_lay_out(&small, &arena, 5000, 4, 0, NULL), SPECDEC_ERROR_ARGUMENT);

    TEST("indexing and proposing take microseconds");
    start(&large, memory, CAPACITY, 5);
    begin = clock();
    specdec__ngram_extend(&large, text, TEXT);
    printf("  %.2f us a token", (double)(clock() - begin) * 1e6 / CLOCKS_PER_SEC / TEXT);
    begin = clock();
    for (i = 0; i < 200; i++)
        wrong +=
            specdec__ngram_propose(&large, &tree, other_tokens, other_probability, NODES, 8, 0.0f, NULL) != SPECDEC_OK;
    printf(", %.1f us a tree of %d nodes\n", (double)(clock() - begin) * 1e6 / CLOCKS_PER_SEC / 200, tree.n);
    CHECK_EQUAL_INT(wrong, 0);
}

int main(void)
{
    test_counts();
    test_rewind();
    test_propose();
    test_bounds();
    return check_report("test_ngram");
}
