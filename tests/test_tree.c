/* test_tree.c - token trees: shapes, scores, the exact best tree, the choice of (n,d). */
#define _DEFAULT_SOURCE 1 /* POSIX, also under -std=c99 */
#include "../src/speculation/tree.h"
#include "check.h"
#include "statistics.h"
#include <dirent.h>
#include <time.h>

#define MANY SPECDEC_TREE_MAX_NODES

static int32_t parents[MANY], ranks[MANY], depths[MANY];
static specdec_tree tree = {parents, ranks, MANY, 0};

/* ---- A scanner that finds keys and numbers in JSON text; it trusts the file. ---- */

/* The text behind the next "key": from at on; NULL when there is none before end (which may be NULL). */
static const char *json_find(const char *at, const char *key, const char *end)
{
    char quoted[80];
    const char *found;

    snprintf(quoted, sizeof quoted, "\"%s\"", key);
    found = at ? strstr(at, quoted) : NULL;
    if (!found || (end && found >= end))
        return NULL;
    found += strlen(quoted);
    return found + strspn(found, " \t\r\n:");
}

/* Reads the next number or null (as fallback) behind brackets, commas and blanks; NULL when none comes. */
static const char *json_number(const char *at, double *value, double fallback)
{
    char *end;

    if (!at)
        return NULL;
    at += strspn(at, " \t\r\n,[");
    if (!strncmp(at, "null", 4)) {
        *value = fallback;
        return at + 4;
    }
    *value = strtod(at, &end);
    return end == at ? NULL : end;
}

/* Reads a flat array of numbers; returns how many. */
static int json_numbers(const char *at, double *values, int most)
{
    const char *end = at ? strchr(at, ']') : NULL;
    int count = 0;

    for (; at && count < most && (at = json_number(at, &values[count], 0)) != NULL && at <= end; count++)
        continue;
    return count;
}

static double json_value(const char *at, const char *key)
{
    double value = NAN;

    json_number(json_find(at, key, NULL), &value, NAN);
    return value;
}

static char *read_shared(const char *name)
{
    char path[512];
    size_t size;

    return (char *)check_read_file(check_shared(path, sizeof path, name), &size);
}

/* ---- Shapes and checks. ---- */

static void test_shapes(void)
{
    int i;

    TEST("chains, full trees and the root alone are valid trees of the shape asked for");
    CHECK_EQUAL_INT(specdec_tree_chains(&tree, 1, 5, NULL), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_tree_check(&tree, NULL), SPECDEC_OK);
    CHECK_EQUAL_INT(tree.n, 6);
    CHECK_EQUAL_INT(specdec_tree_depth(&tree, depths), 6);
    for (i = 0; i < 6; i++)
        CHECK(depths[i] == i && parents[i] == i - 1 && ranks[i] == (i > 0));
    CHECK_EQUAL_INT(specdec_tree_chains(&tree, 3, 4, NULL), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_tree_check(&tree, NULL), SPECDEC_OK);
    CHECK_EQUAL_INT(tree.n, 13);
    CHECK_EQUAL_INT(specdec_tree_depth(&tree, NULL), 5);
    CHECK(parents[3] == 0 && ranks[3] == 3 && parents[6] == 3 && ranks[6] == 1);
    CHECK_EQUAL_INT(specdec_tree_chains(&tree, 0, 0, NULL), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_tree_check(&tree, NULL), SPECDEC_OK);
    CHECK_EQUAL_INT(tree.n, 1);
    CHECK_EQUAL_INT(specdec_tree_full(&tree, 3, 4, NULL), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_tree_check(&tree, NULL), SPECDEC_OK);
    CHECK_EQUAL_INT(tree.n, 40);
    CHECK_EQUAL_INT(specdec_tree_depth(&tree, depths), 4);
    CHECK(depths[3] == 1 && depths[4] == 2 && depths[13] == 3 && parents[39] == 12 && ranks[39] == 3);
    CHECK_EQUAL_INT(specdec_tree_full(&tree, 1, 9, NULL), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_tree_depth(&tree, NULL), 9);
}

static void refused(const char *word)
{
    specdec_error error;

    error.text[0] = 0;
    CHECK_EQUAL_INT(specdec_tree_check(&tree, &error), SPECDEC_ERROR_ARGUMENT);
    CHECK(strstr(error.text, word) != NULL);
    specdec_tree_full(&tree, 2, 3, NULL);
}

static void test_bad_trees(void)
{
    specdec_tree small = {parents, ranks, 5, 0};

    TEST("a broken tree is refused with the node and the rule that it breaks");
    specdec_tree_full(&tree, 2, 3, NULL);
    tree.n = 0;
    refused("has 0 nodes");
    tree.n = MANY + 1;
    refused("nodes");
    parents[0] = 0;
    refused("root");
    parents[4] = 4;
    refused("parent of node 4");
    parents[4] = -1;
    refused("parent of node 4");
    parents[2] = 5;
    refused("parent of node 2");
    ranks[5] = 2;
    refused("rank of node 5");
    ranks[2] = 1;
    refused("rank of node 2");
    CHECK_EQUAL_INT(specdec_tree_check(NULL, NULL), SPECDEC_ERROR_ARGUMENT);

    TEST("too small arrays give the needed count, absurd sizes an error");
    CHECK_EQUAL_INT(specdec_tree_full(&small, 2, 3, NULL), SPECDEC_ERROR_BUFFER);
    CHECK_EQUAL_INT(small.n, 7);
    CHECK_EQUAL_INT(specdec_tree_full(&tree, 2, 30, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_tree_full(&tree, INT32_MAX, INT32_MAX, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_tree_full(&tree, 0, 3, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_tree_chains(&tree, INT32_MAX, INT32_MAX, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_tree_chains(&tree, -1, 3, NULL), SPECDEC_ERROR_ARGUMENT);
}

static void test_bad_arguments(void)
{
    double p[33] = {.5, .25}, score, grid[12], times[2] = {1, 2}, rate;
    int32_t widths[2] = {1, 2};
    int n, d;
    static unsigned char memory[1 << 16];

    TEST("what is no acceptance vector is refused");
    specdec_tree_chains(&tree, 1, 2, NULL);
    CHECK_EQUAL_INT(specdec_tree_score(NULL, &tree, p, 2, NULL), SPECDEC_ERROR_ARGUMENT);
    p[1] = -.1;
    CHECK_EQUAL_INT(specdec_tree_score(&score, &tree, p, 2, NULL), SPECDEC_ERROR_ARGUMENT);
    p[1] = NAN;
    CHECK_EQUAL_INT(specdec_tree_best(&tree, &score, p, 2, 3, 3, memory, sizeof memory, NULL), SPECDEC_ERROR_ARGUMENT);
    p[1] = .51;
    CHECK_EQUAL_INT(specdec_tree_best(&tree, &score, p, 2, 3, 3, memory, sizeof memory, NULL), SPECDEC_ERROR_ARGUMENT);
    p[1] = .25;
    CHECK_EQUAL_INT(specdec_tree_best(&tree, &score, p, 33, 3, 3, memory, sizeof memory, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_tree_best(&tree, &score, p, 0, 3, 3, memory, sizeof memory, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_tree_best(&tree, &score, NULL, 2, 3, 3, memory, sizeof memory, NULL),
                    SPECDEC_ERROR_ARGUMENT);

    TEST("sizes out of range, trees that cannot be and too little memory are refused");
    CHECK_EQUAL_INT(specdec_tree_best(&tree, &score, p, 2, 0, 3, memory, sizeof memory, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_tree_best(&tree, &score, p, 2, 3, 33, memory, sizeof memory, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_tree_best(&tree, &score, p, 2, 4, 2, memory, sizeof memory, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_tree_best(&tree, &score, p, 2, 3, 2, memory, specdec_tree_memory(3, 2, 2) - 1, NULL),
                    SPECDEC_ERROR_MEMORY);
    CHECK_EQUAL_INT(specdec_tree_best(&tree, &score, p, 2, 3, 2, memory + 1, specdec_tree_memory(3, 2, 2), NULL),
                    SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_tree_best(&tree, &score, p, 2, 3, 2, NULL, 1 << 16, NULL), SPECDEC_ERROR_MEMORY);
    CHECK_EQUAL_INT((long long)specdec_tree_memory(MANY + 1, 2, 2), 0);
    CHECK_EQUAL_INT((long long)specdec_tree_memory(8, 0, 2), 0);

    TEST("choosing refuses costs and widths that mean nothing");
    CHECK_EQUAL_INT(specdec_tree_grid(grid, p, 2, 2, 3, memory, sizeof memory, NULL), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_tree_choose(&n, &d, &rate, grid, 2, 3, widths, times, 2, 0, NULL), SPECDEC_OK);
    CHECK(n == 1 && d == 1);
    CHECK_EQUAL_INT(specdec_tree_choose(&n, &d, &rate, grid, 2, 3, widths, times, 2, -1, NULL), SPECDEC_ERROR_ARGUMENT);
    times[1] = 0;
    CHECK_EQUAL_INT(specdec_tree_choose(&n, &d, &rate, grid, 2, 3, widths, times, 2, 0, NULL), SPECDEC_ERROR_ARGUMENT);
    times[1] = NAN;
    CHECK_EQUAL_INT(specdec_tree_choose(&n, &d, &rate, grid, 2, 3, widths, times, 2, 0, NULL), SPECDEC_ERROR_ARGUMENT);
    times[1] = 2;
    widths[1] = 3;
    CHECK_EQUAL_INT(specdec_tree_choose(&n, &d, &rate, grid, 2, 3, widths, times, 2, 0, NULL), SPECDEC_ERROR_ARGUMENT);
}

/* ---- The dynamic programme against brute force. ---- */

/* The best score of m nodes in l levels, trying every split; for tiny sizes. from is the first rank still to be given.
 */
static double brute(const double *p, int width, int m, int l, int from)
{
    double best = m == 1 ? 1 : -1;
    int j;

    if (m > 1 && l > 1 && from < width) {
        for (j = 1; j < m; j++) {
            double child = brute(p, width, j, l - 1, 0), rest = brute(p, width, m - j, l, from + 1);

            if (child > 0 && rest > 0 && rest + p[from] * child > best)
                best = rest + p[from] * child;
        }
    }
    return best;
}

static void test_brute(void)
{
    static unsigned char memory[1 << 16];
    uint64_t state = 3;
    int round, n, d, k;

    TEST("the best tree is as good as trying all of them, also for vectors that are not monotone");
    for (round = 0; round < 40; round++) {
        int width = 1 + round % 5;
        double p[5], sum = 0;

        for (k = 0; k < width; k++)
            sum += p[k] = statistics_random(&state) < .2 ? 0 : statistics_random(&state);
        for (k = 0; k < width; k++)
            p[k] /= sum > 0 ? sum * 1.05 : 1;
        for (n = 1; n <= 8; n++) {
            for (d = 1; d <= 5; d++) {
                double expected = brute(p, width, n, d, 0), score, again;
                specdec_result result = specdec_tree_best(&tree, &score, p, width, n, d, memory, sizeof memory, NULL);

                CHECK_EQUAL_INT(result, expected > 0 ? SPECDEC_OK : SPECDEC_ERROR_ARGUMENT);
                if (result)
                    continue;
                CHECK(fabs(score - expected) < 1e-12);
                CHECK(tree.n == n && specdec_tree_depth(&tree, NULL) <= d);
                CHECK(!specdec_tree_score(&again, &tree, p, width, NULL) && fabs(again - score) < 1e-12);
            }
        }
    }
}

/* ---- Golden data of Sequoia. ---- */

/* Reads the vector under this name; returns its width without the entry for rank 0. */
static int read_vector(const char *text, const char *name, double *p)
{
    double raw[64];
    int count = json_numbers(json_find(json_find(text, name, NULL), "p_used_by_tree_search", NULL), raw, 64);

    if (count < 2)
        count = json_numbers(json_find(json_find(text, name, NULL), "p", NULL), raw, 64);
    memcpy(p, raw + 1, (size_t)(count - 1) * sizeof *p);
    return count - 1;
}

static const char *const vector_names[3] = {"A_sequoia_shipped", "B_triforce_shipped_lastdropped",
                                            "C_synthetic_dyadic"};

static void test_golden_grid(const char *vectors, void *memory, size_t bytes)
{
    char *text = read_shared("refdata/sequoia/golden_G_full_grid.json");
    static double grid[129 * 17];
    int v, n, d;

    TEST("every G(n,d) of the golden grid is met to 1e-9, and what is infeasible there is here");
    if (!text) {
        SKIP("no golden_G_full_grid.json");
        return;
    }
    for (v = 0; v < 3; v++) {
        double p[64], worst = 0;
        int width = read_vector(vectors, vector_names[v], p), wrong = 0, feasible = 0;
        const char *at = json_find(json_find(text, vector_names[v], NULL), "G_f64[n][d]", NULL);

        CHECK_EQUAL_INT(specdec_tree_grid(grid, p, width, 128, 16, memory, bytes, NULL), SPECDEC_OK);
        for (n = 0; n <= 128; n++) {
            for (d = 0; d <= 16; d++) {
                double expected = NAN, off;

                if (at)
                    at += strspn(at, "], [");
                at = json_number(at, &expected, 0);
                off = fabs(grid[n * 17 + d] - expected);
                wrong += !(off <= 1e-9);
                worst = off > worst ? off : worst;
                feasible += expected > 0;
            }
        }
        CHECK_EQUAL_INT(wrong, 0);
        CHECK(feasible > 1000);
        printf("  %s: %d feasible (n,d), largest difference %.1e\n", vector_names[v], feasible, worst);
    }
    free(text);
}

static void test_golden_rows(const char *vectors, void *memory, size_t bytes)
{
    char *text = read_shared("refdata/sequoia/golden_G.json");
    int v, rows = 0, wrong = 0;

    TEST("every row of the golden trees is met to 1e-9 by a tree of that score");
    if (!text) {
        SKIP("no golden_G.json");
        return;
    }
    for (v = 0; v < 3; v++) {
        double p[64];
        int width = read_vector(vectors, vector_names[v], p);
        const char *at = json_find(json_find(text, vector_names[v], NULL), "rows", NULL);
        const char *end = v < 2 ? json_find(at, vector_names[v + 1], NULL) : NULL;

        while ((at = json_find(at, "n", end)) != NULL) {
            double n = 0, golden = json_value(at, "G_f64"), score = 0, again = 0;
            int d = (int)json_value(at, "d");
            specdec_result result;

            json_number(at, &n, 0);
            result = specdec_tree_best(&tree, &score, p, width, (int)n, d, memory, bytes, NULL);
            if (golden > 0)
                wrong += result || fabs(score - golden) > 1e-9 || specdec_tree_score(&again, &tree, p, width, NULL) ||
                         fabs(again - golden) > 1e-9 || tree.n != (int)n || specdec_tree_depth(&tree, NULL) > d;
            else
                wrong += result != SPECDEC_ERROR_ARGUMENT;
            rows++;
        }
    }
    CHECK_EQUAL_INT(wrong, 0);
    CHECK(rows > 100);
    printf("  %d rows\n", rows);
    free(text);
}

/* Loads a growmap into the tree. Returns 1 when it is there. */
static int load_growmap(const char *file)
{
    static double numbers[MANY];
    char name[400], *text;
    int i;

    snprintf(name, sizeof name, "refdata/sequoia/growmaps/%s", file);
    text = read_shared(name);
    if (!text)
        return 0;
    tree.n = json_numbers(json_find(text, "parents", NULL), numbers, MANY);
    for (i = 0; i < tree.n; i++)
        parents[i] = (int32_t)numbers[i];
    json_numbers(json_find(text, "child_rank", NULL), numbers, MANY);
    for (i = 0; i < tree.n; i++)
        ranks[i] = (int32_t)numbers[i];
    free(text);
    return 1;
}

static void test_growmaps(const char *vectors)
{
    char *text = read_shared("refdata/sequoia/growmaps_index.json");
    const char *at = text;
    int count = 0, wrong = 0;
    double a[64], b[64];
    int width_a = read_vector(vectors, vector_names[0], a), width_b = read_vector(vectors, vector_names[1], b);

    TEST("the published trees are valid and score what their index says");
    if (!text) {
        SKIP("no growmaps_index.json");
        return;
    }
    while ((at = json_find(at, "file", NULL)) != NULL) {
        char file[300];
        double score_a = 0, score_b = 0, levels = json_value(at, "levels");
        size_t length = strcspn(at + 1, "\"");

        snprintf(file, sizeof file, "%.*s", (int)length, at + 1);
        if (!load_growmap(file)) {
            wrong++;
            continue;
        }
        if (specdec_tree_check(&tree, NULL) || specdec_tree_depth(&tree, NULL) != (int)levels ||
            tree.n != (int)json_value(at, "size") || specdec_tree_score(&score_a, &tree, a, width_a, NULL) ||
            specdec_tree_score(&score_b, &tree, b, width_b, NULL) || fabs(score_a - json_value(at, "under_A")) > 1e-9 ||
            fabs(score_b - json_value(at, "under_B")) > 1e-9) {
            wrong++;
            printf("  %s: n %d, A %.9f not %.9f, B %.9f not %.9f\n", file, tree.n, score_a, json_value(at, "under_A"),
                   score_b, json_value(at, "under_B"));
        }
        count++;
    }
    CHECK_EQUAL_INT(wrong, 0);
    CHECK_EQUAL_INT(count, 108);
    free(text);
}

static void test_choice(const char *vectors, void *memory, size_t bytes)
{
    char *text = read_shared("refdata/sequoia/golden_hw_optimizer.json");
    const char *at = text ? json_find(text, "rows", NULL) : NULL;
    static double grid[129 * 17];
    int rows = 0, wrong = 0;

    TEST("the hardware-aware choice is that of the golden rows");
    if (!text) {
        SKIP("no golden_hw_optimizer.json");
        return;
    }
    while ((at = json_find(at, "vector", NULL)) != NULL) {
        char name[64];
        double p[64], widths[16], times[16], rate = 0, draft = json_value(at, "draft_time");
        int32_t list[16];
        int width, d = (int)json_value(at, "max_depth"), best_n = 0, best_d = 0, i;
        int count = json_numbers(json_find(at, "valid_budget", NULL), widths, 16);

        snprintf(name, sizeof name, "%.*s", (int)strcspn(at + 1, "\""), at + 1);
        width = read_vector(vectors, name, p);
        json_numbers(json_find(at, "target_time", NULL), times, 16);
        for (i = 0; i < count; i++)
            list[i] = (int32_t)widths[i];
        if (specdec_tree_grid(grid, p, width, 128, d, memory, bytes, NULL) ||
            specdec_tree_choose(&best_n, &best_d, &rate, grid, 128, d, list, times, count, draft, NULL) ||
            best_n != (int)json_value(at, "n") || best_d != (int)json_value(at, "d") ||
            fabs(1 / rate - json_value(at, "time_per_token")) > 1e-6 * json_value(at, "time_per_token")) {
            wrong++;
            printf("  %s: chose n %d d %d, not %g %g\n", name, best_n, best_d, json_value(at, "n"),
                   json_value(at, "d"));
        }
        rows++;
    }
    CHECK_EQUAL_INT(wrong, 0);
    CHECK_EQUAL_INT(rows, 12);
    free(text);
}

static void test_golden(void)
{
    size_t bytes = specdec_tree_memory(128, 16, 32);
    void *memory = malloc(bytes);
    char *vectors = read_shared("refdata/sequoia/acceptance_vectors.json");

    TEST("golden data of Sequoia");
    if (!vectors || !memory) {
        SKIP("no refdata/sequoia; set SPECDEC_SHARED");
    } else {
        test_golden_grid(vectors, memory, bytes);
        test_golden_rows(vectors, memory, bytes);
        test_growmaps(vectors);
        test_choice(vectors, memory, bytes);
    }
    free(vectors);
    free(memory);
}

/* ---- The default family and growth from live probabilities. ---- */

static void test_pick(void)
{
    static const double vectors[4][4] = {{.63, .11, .06, .02}, {.92, .05, .01, .01}, {.3, .1, .05, .04}, {0, 0, 0, 0}};
    size_t bytes = specdec_tree_memory(64, 16, 4);
    void *memory = malloc(bytes);
    double times[65], rate = 0, score = 0, grid[65 * 17], ideal = 0;
    int v, i, n = 0, d = 0;

    TEST("a tree picked from the default family is nearly as good as the best tree for the live vector");
    for (v = 0; v < 4; v++) {
        static const int32_t widths[7] = {1, 2, 4, 8, 16, 32, 64};
        double some[7];

        for (i = 0; i <= 64; i++)
            times[i] = 1 + .01 * i;
        for (i = 0; i < 7; i++)
            some[i] = times[widths[i]];
        CHECK_EQUAL_INT(specdec_tree_pick(&tree, &rate, vectors[v], 4, times, 64, .05, NULL), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_tree_check(&tree, NULL), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_tree_score(&score, &tree, vectors[v], 4, NULL), SPECDEC_OK);
        if (tree.n > 1)
            CHECK(fabs(score / (times[tree.n] + .05 * specdec_tree_depth(&tree, NULL)) - rate) < 1e-12);
        CHECK_EQUAL_INT(specdec_tree_grid(grid, vectors[v], 4, 64, 16, memory, bytes, NULL), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_tree_choose(&n, &d, &ideal, grid, 64, 16, widths, some, 7, .05, NULL), SPECDEC_OK);
        printf("  p_1 %.2f: picked n %d, rate %.4f; best of all n %d, rate %.4f\n", vectors[v][0], tree.n, rate, n,
               ideal);
        CHECK(rate > .97 * ideal);
    }
    free(memory);

    TEST("the root alone is picked when no tree pays, and limits on n and capacity hold");
    CHECK_EQUAL_INT(tree.n, 1);
    for (i = 0; i <= 64; i++)
        times[i] = i ? (double)i : (double)NAN;
    CHECK_EQUAL_INT(specdec_tree_pick(&tree, &rate, vectors[0], 4, times, 64, 0, NULL), SPECDEC_OK);
    CHECK(tree.n == 1 && fabs(rate - 1) < 1e-12);
    for (n = 1; n <= 64; n *= 2) {
        specdec_tree small = {parents, ranks, n, 0};

        for (i = 0; i <= 64; i++)
            times[i] = 1;
        CHECK_EQUAL_INT(specdec_tree_pick(&tree, NULL, vectors[1], 4, times, n, 0, NULL), SPECDEC_OK);
        CHECK_EQUAL_INT(tree.n, n);
        CHECK_EQUAL_INT(specdec_tree_pick(&small, NULL, vectors[1], 4, times, 64, 0, NULL), SPECDEC_OK);
        CHECK_EQUAL_INT(small.n, n);
    }
    CHECK_EQUAL_INT(specdec_tree_pick(&tree, NULL, vectors[1], 4, times, 0, 0, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_tree_pick(&tree, NULL, vectors[1], 4, NULL, 4, 0, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_tree_pick(&tree, NULL, vectors[1], 4, times, 4, NAN, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_tree_pick(NULL, NULL, vectors[1], 4, times, 4, 0, NULL), SPECDEC_ERROR_ARGUMENT);
}

static void test_grow(void)
{
    static int32_t from[400], kept[400];
    static float probability[400];
    uint64_t state = 11;
    int round, i, j, wrong = 0;

    TEST("growth keeps the n most probable candidates, as a valid tree");
    for (round = 0; round < 300; round++) {
        int count = 1 + (int)(statistics_random(&state) * 399), n = 1 + (int)(statistics_random(&state) * 80), least;

        from[0] = -1;
        probability[0] = 1;
        for (i = 1; i < count; i++) {
            from[i] = (int32_t)(statistics_random(&state) * i);
            probability[i] = probability[from[i]] * (round % 3 ? (float)statistics_random(&state)
                                                               : (float)(int)(statistics_random(&state) * 3) / 2);
        }
        wrong += specdec_tree_grow(&tree, kept, from, probability, count, n, NULL) != SPECDEC_OK;
        wrong += specdec_tree_check(&tree, NULL) != SPECDEC_OK || tree.n != (n < count ? n : count) || kept[0] != 0;
        for (i = least = 0; i < tree.n; i++) {
            wrong += i && (kept[i] <= kept[i - 1] || from[kept[i]] != kept[parents[i]]);
            least = probability[kept[i]] < probability[kept[least]] ? i : least;
        }
        for (i = j = 0; i < count; i++) {
            if (j < tree.n && kept[j] == i)
                j++;
            else
                wrong += probability[i] > probability[kept[least]];
        }
    }
    CHECK_EQUAL_INT(wrong, 0);

    TEST("growth refuses what is no candidate tree");
    from[0] = 0;
    CHECK_EQUAL_INT(specdec_tree_grow(&tree, kept, from, probability, 2, 2, NULL), SPECDEC_ERROR_ARGUMENT);
    from[0] = -1;
    from[1] = 1;
    CHECK_EQUAL_INT(specdec_tree_grow(&tree, kept, from, probability, 2, 2, NULL), SPECDEC_ERROR_ARGUMENT);
    from[1] = 0;
    probability[1] = 1.5f;
    CHECK_EQUAL_INT(specdec_tree_grow(&tree, kept, from, probability, 2, 2, NULL), SPECDEC_ERROR_ARGUMENT);
    probability[1] = NAN;
    CHECK_EQUAL_INT(specdec_tree_grow(&tree, kept, from, probability, 2, 2, NULL), SPECDEC_ERROR_ARGUMENT);
    probability[1] = .5f;
    CHECK_EQUAL_INT(specdec_tree_grow(&tree, kept, from, probability, 2, 0, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_tree_grow(&tree, kept, from, probability, 0, 2, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_tree_grow(&tree, NULL, from, probability, 2, 2, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_tree_grow(&tree, kept, from, probability, 2, 2, NULL), SPECDEC_OK);
}

static void test_speed(void)
{
    static const int sizes[2][3] = {{64, 10, 8}, {1024, 32, 32}};
    int i, k;

    TEST("a usual best tree takes milliseconds, the largest seconds");
    for (i = 0; i < 2; i++) {
        size_t bytes = specdec_tree_memory(sizes[i][0], sizes[i][1], sizes[i][2]);
        void *memory = malloc(bytes);
        double p[32], score = 0, spent, left = 1;
        clock_t start = clock();

        for (k = 0; k < 32; k++) {
            p[k] = left * .4;
            left -= p[k];
        }
        CHECK_EQUAL_INT(specdec_tree_best(&tree, &score, p, sizes[i][2], sizes[i][0], sizes[i][1], memory, bytes, NULL),
                        SPECDEC_OK);
        spent = (double)(clock() - start) / CLOCKS_PER_SEC;
        printf("  n %d, d %d, width %d: %.2f ms, %zu bytes, G %.4f\n", sizes[i][0], sizes[i][1], sizes[i][2],
               spent * 1e3, bytes, score);
        CHECK(spent < (i ? 60 : 1));
        CHECK_EQUAL_INT(specdec_tree_check(&tree, NULL), SPECDEC_OK);
        free(memory);
    }
}

int main(void)
{
    test_shapes();
    test_bad_trees();
    test_bad_arguments();
    test_brute();
    test_golden();
    test_pick();
    test_grow();
    test_speed();
    return check_report("test_tree");
}
