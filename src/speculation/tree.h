/* =====================================================================================================================
 * >>speculation/tree: token trees as arrays: shapes, scores, the best tree for an acceptance vector, growth from live
 *     probabilities, the default family.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"

SPECDEC__FOR_SIZE

#define SPECDEC__MAX_TREE_NODES  64       /* nodes of a token tree of the engine, at most */
#define SPECDEC__GROWN_CHILDREN    8        /* children that a node of a growing tree gets, at most */
#define SPECDEC__TREE_NO_SCORE (-1e300) /* the score (expected tokens a step) of a tree that does not exist */
#define SPECDEC__TREE_SCORE_TIE  1e-12    /* trees whose rates differ by a smaller share count as equally fast */

/* Writes node i of a token tree: the child of `parent` whose rank is `rank`, one more than its last sibling's. Parents
   come before children, siblings in order of rank. */
SPECDEC__INLINE void specdec__tree_put_node(specdec_tree *tree, int i, int parent, int rank)
{
    tree->parents[i] = parent;
    tree->ranks[i] = rank;
}

/* Returns the first child of a node at or behind index i of the tree, or n where there is none. The children of a node
   come in order of rank: a loop over them begins at i = node + 1 and goes on at one more than each child's index. */
SPECDEC__INLINE int specdec__tree_next_child(const specdec_tree *tree, int node, int i)
{
    while (i < tree->n && tree->parents[i] != node)
        i++;
    return i;
}

/* Returns the rank of a child of `parent` that comes right behind the first i nodes: one more than its last
   sibling's. */
SPECDEC__INLINE int specdec__tree_next_rank(const specdec_tree *tree, int i, int parent)
{
    int sibling = i - 1;

    while (sibling > 0 && tree->parents[sibling] != parent)
        sibling--;
    return sibling > 0 ? tree->ranks[sibling] + 1 : 1;
}

/* Checks that the arrays of a tree have room for n nodes, and sets tree->n in any case. Without room:
   SPECDEC_ERROR_BUFFER; tree->n is the needed number. */
static specdec_result specdec__tree_check_room(specdec_tree *tree, size_t n, specdec_error *error)
{
    if (!tree || !tree->parents || !tree->ranks)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "a tree needs its arrays of parents and ranks");
    if (n < 1 || n > SPECDEC_TREE_MAX_NODES)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "a tree of %zu nodes; it has 1 to %d", n,
                             SPECDEC_TREE_MAX_NODES);
    tree->n = (int)n;
    if (tree->capacity < (int)n)
        return specdec__fail(error, SPECDEC_ERROR_BUFFER, "the tree needs %zu nodes, its arrays hold %d", n,
                             tree->capacity);
    return SPECDEC_OK;
}

specdec_result specdec_tree_check(const specdec_tree *tree, specdec_error *error)
{
    int i;

    if (!tree || !tree->parents || !tree->ranks)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "a tree needs its arrays of parents and ranks");
    if (tree->n < 1 || tree->n > SPECDEC_TREE_MAX_NODES || tree->n > tree->capacity)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                             "the tree has %d nodes; allowed are 1 to %d, its arrays hold %d", tree->n,
                             SPECDEC_TREE_MAX_NODES, tree->capacity);
    if (tree->parents[0] != -1 || tree->ranks[0] != 0)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "node 0 is the root: its parent must be -1 and its rank 0");
    for (i = 1; i < tree->n; i++) {
        if (tree->parents[i] < 0 || tree->parents[i] >= i)
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                                 "the parent of node %d is %d; it must be a node before it", i, (int)tree->parents[i]);
        if (tree->ranks[i] != specdec__tree_next_rank(tree, i, tree->parents[i]))
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                                 "the rank of node %d is %d; siblings must count 1, 2, ... in order", i,
                                 (int)tree->ranks[i]);
    }
    return SPECDEC_OK;
}

int specdec_tree_depth(const specdec_tree *tree, int32_t *depths)
{
    int i, d = 0;

    for (i = 0; tree && i < tree->n; i++) {
        int at, depth = 0;

        for (at = i; tree->parents[at] >= 0; at = tree->parents[at])
            depth++;
        if (depths)
            depths[i] = depth;
        d = specdec__max_int(d, depth + 1);
    }
    return d;
}

specdec_result specdec_tree_chains(specdec_tree *tree, int chains, int length, specdec_error *error)
{
    size_t n = specdec__size_add(
        1, specdec__size_multiply((size_t)specdec__max_int(chains, 0), (size_t)specdec__max_int(length, 0)));
    specdec_result result;
    int i;

    if (chains < 0 || length < 0)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "%d chains of %d nodes: both must be 0 or more", chains,
                             length);
    result = specdec__tree_check_room(tree, n, error);
    if (result)
        return result;
    specdec__tree_put_node(tree, 0, -1, 0);
    for (i = 1; i < tree->n; i++)
        specdec__tree_put_node(tree, i, i <= chains ? 0 : i - chains, i <= chains ? i : 1);
    return SPECDEC_OK;
}

specdec_result specdec_tree_full(specdec_tree *tree, int k, int d, specdec_error *error)
{
    size_t n = 1, level = 1;
    specdec_result result;
    int i;

    if (k < 1 || d < 1)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                             "a full tree needs at least 1 child a node and 1 level, not %d and %d", k, d);
    for (i = 1; i < d && n <= SPECDEC_TREE_MAX_NODES; i++) {
        level = specdec__size_multiply(level, (size_t)k);
        n = specdec__size_add(n, level);
    }
    result = specdec__tree_check_room(tree, n, error);
    if (result)
        return result;
    specdec__tree_put_node(tree, 0, -1, 0);
    for (i = 1; i < tree->n; i++)
        specdec__tree_put_node(tree, i, (i - 1) / k, (i - 1) % k + 1);
    return SPECDEC_OK;
}

/* Returns an error unless p[width] is an acceptance vector: probabilities, of children by rank, that add up to at most
   1. */
static specdec_result specdec__tree_check_acceptance(const double *p, int width, specdec_error *error)
{
    double sum = 0.0;
    int k;

    if (!p || width < 1 || width > SPECDEC_TREE_MAX_WIDTH)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "an acceptance vector of %d entries; it has 1 to %d",
                             p ? width : 0, SPECDEC_TREE_MAX_WIDTH);
    for (k = 0; k < width; k++) {
        if (!(p[k] >= 0.0 && p[k] <= 1.0 + 1e-6))
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                                 "entry %d of the acceptance vector is not within 0 and 1", k + 1);
        sum += p[k];
    }
    if (sum > 1.0 + 1e-6)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "the acceptance vector sums to more than 1");
    return SPECDEC_OK;
}

specdec_result specdec_tree_score(double *score, const specdec_tree *tree, const double *p, int width,
                                  specdec_error *error)
{
    specdec_result result = specdec_tree_check(tree, error);
    int i, at;

    if (!result)
        result = specdec__tree_check_acceptance(p, width, error);
    if (!result && !score)
        result = specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "a score needs a place to go to");
    if (result)
        return result;
    for (*score = 0.0, i = 0; i < tree->n; i++) {
        double f = 1.0;

        for (at = i; at > 0 && f > 0.0; at = tree->parents[at])
            f *= tree->ranks[at] <= width ? p[tree->ranks[at] - 1] : 0.0;
        *score += f;
    }
    return SPECDEC_OK;
}

/* The tables of the dynamic programme that finds the best tree. A row has a place for every number of nodes of a
   subtree, 0..n; a score is the expected number of tokens a step. */
typedef struct specdec__tree_tables {
    const double *p; /* (width): the acceptance vector */
    int width, n, d; /* children of a node, nodes and levels of a tree, at most */
    size_t stride;   /* places of a row: n + 1 */
    double *best;    /* [d + 1][stride]: [l][m]: the best score of a tree with m nodes and at most l levels */
    double *rows;    /* [width + 1][stride]: [b][m]: for one number of levels, the same with exactly b children of the
                        root */
    double *weights; /* [stride]: [j]: what a child with a subtree of j nodes adds to the score */
    int32_t *sizes;  /* [n]: number of nodes of the subtree of each node of the tree being written */
} specdec__tree_tables;

/* Takes the memory of the tables from an arena. */
static specdec_result specdec__tree_lay_out_tables(specdec__tree_tables *tables, specdec__arena *arena)
{
    tables->stride = (size_t)tables->n + 1;
    tables->best = SPECDEC__TAKE(arena, double, ((size_t)tables->d + 1) * tables->stride);
    tables->rows = SPECDEC__TAKE(arena, double, ((size_t)tables->width + 1) * tables->stride);
    tables->weights = SPECDEC__TAKE(arena, double, tables->stride);
    tables->sizes = SPECDEC__TAKE(arena, int32_t, tables->n);
    return arena->used == SIZE_MAX ? SPECDEC_ERROR_MEMORY : SPECDEC_OK;
}

size_t specdec_tree_memory(int n, int d, int width)
{
    specdec__tree_tables tables;
    specdec__arena arena;

    if (n < 1 || n > SPECDEC_TREE_MAX_NODES || d < 1 || d > SPECDEC_TREE_MAX_DEPTH || width < 1 ||
        width > SPECDEC_TREE_MAX_WIDTH)
        return 0;
    memset(&arena, 0, sizeof arena);
    tables.n = n;
    tables.d = d;
    tables.width = width;
    specdec__tree_lay_out_tables(&tables, &arena);
    return arena.used + sizeof(double) - 1;
}

/* Computes weights[j], j >= 1: p times below[j], the best score of a subtree of j nodes. Returns the largest j, at most
   `most`, for which such a subtree exists. */
static int specdec__tree_weigh_child_subtrees(double *weights, const double *below, double p, int most)
{
    int j;

    for (j = 1; j <= most && below[j] > 0.0; j++)
        weights[j] = p * below[j];
    return j - 1;
}

/* Computes rows[b][m], the best scores with exactly b children, for m <= most, where the children's subtrees score
   below[]:
   T[m][l][b] = max_y T[y][l][b-1] + p_b * best[m-y][l-1] (Chen et al. 2024, arXiv 2402.12374, section 4.1). */
static void specdec__tree_fill_child_scores(const specdec__tree_tables *tables, const double *below, int most)
{
    int b, m, y, j;

    for (m = 0; m <= most; m++)
        tables->rows[m] = m == 1 ? 1.0 : SPECDEC__TREE_NO_SCORE;
    for (b = 1; b <= tables->width; b++) {
        const double *before = tables->rows + (size_t)(b - 1) * tables->stride;
        double *row = tables->rows + (size_t)b * tables->stride;
        int largest = specdec__tree_weigh_child_subtrees(tables->weights, below, tables->p[b - 1], most - 1);

        for (m = 0; m <= most; m++)
            row[m] = SPECDEC__TREE_NO_SCORE;
        for (y = b; y < most; y++) {
            const double *weights = tables->weights;
            double *out = row + y, base = before[y];
            int last = specdec__min_int(largest, most - y);

            if (base < 0.0)
                continue;
            for (j = 1; j <= last; j++) {
                double score = base + weights[j];
                out[j] = score > out[j] ? score : out[j];
            }
        }
    }
}

/* Computes best[l][m], the best score of a tree with at most l levels and m nodes, for every l <= d and m <= n. */
static void specdec__tree_fill_best_scores(const specdec__tree_tables *tables)
{
    int b, l, m;

    for (m = 0; m <= tables->n; m++)
        tables->best[m] = SPECDEC__TREE_NO_SCORE;
    for (l = 1; l <= tables->d; l++) {
        double *best = tables->best + (size_t)l * tables->stride;

        specdec__tree_fill_child_scores(tables, best - tables->stride, tables->n);
        memcpy(best, tables->rows, tables->stride * sizeof *best);
        for (b = 1; b <= tables->width; b++) {
            const double *row = tables->rows + (size_t)b * tables->stride;

            for (m = 1; m <= tables->n; m++)
                best[m] = row[m] > best[m] ? row[m] : best[m];
        }
    }
}

/* Checks the arguments of a search for the best tree, takes the tables from `memory` (bytes) and computes them. */
static specdec_result specdec__tree_compute_tables(specdec__tree_tables *tables, const double *p, int width, int n,
                                                   int d, void *memory, size_t bytes, specdec_error *error)
{
    specdec_result result = specdec__tree_check_acceptance(p, width, error);
    size_t needed = specdec_tree_memory(n, d, width), skip = (size_t)(0u - (uintptr_t)memory) % sizeof(double);
    specdec__arena arena;

    if (result)
        return result;
    if (needed == 0)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                             "a tree of %d nodes and %d levels; allowed are 1 to %d and 1 to %d", n, d,
                             SPECDEC_TREE_MAX_NODES, SPECDEC_TREE_MAX_DEPTH);
    if (!memory || bytes < needed)
        return specdec__fail(error, SPECDEC_ERROR_MEMORY, "the best tree needs %zu bytes of memory, not %zu", needed,
                             memory ? bytes : (size_t)0);
    tables->p = p;
    tables->width = width;
    tables->n = n;
    tables->d = d;
    arena.base = (unsigned char *)memory + skip;
    arena.size = bytes - skip;
    arena.used = 0;
    if (specdec__tree_lay_out_tables(tables, &arena))
        return specdec__fail(error, SPECDEC_ERROR_MEMORY, "the best tree needs %zu bytes of memory", needed);
    specdec__tree_fill_best_scores(tables);
    return SPECDEC_OK;
}

/* Splits the m nodes of a subtree between its root and the subtrees of the root's children, by the rows of its level.
   Writes the numbers of nodes of these subtrees to `sizes`, in order of rank, and returns how many there are. */
static int specdec__tree_split_nodes(const specdec__tree_tables *tables, const double *below, int m, int32_t *sizes)
{
    int b = 0, k, y, children;

    for (k = 1; k <= tables->width; k++)
        if (tables->rows[(size_t)k * tables->stride + (size_t)m] > tables->rows[(size_t)b * tables->stride + (size_t)m])
            b = k;
    children = b;
    for (; b > 0; b--) {
        const double *before = tables->rows + (size_t)(b - 1) * tables->stride;
        int largest = specdec__tree_weigh_child_subtrees(tables->weights, below, tables->p[b - 1], m - 1), chosen = 0;
        double best = 0.0;

        for (y = specdec__max_int(b, m - largest); y < m; y++) {
            if (before[y] + tables->weights[m - y] > best) {
                best = before[y] + tables->weights[m - y];
                chosen = y;
            }
        }
        sizes[b - 1] = m - chosen;
        m = chosen;
    }
    return children;
}

/* Writes one best tree to *tree, level by level, from the computed tables. */
static void specdec__tree_write_best_tree(const specdec__tree_tables *tables, specdec_tree *tree)
{
    int from = 0, end = 1, next = 1, l, i, k, most;

    specdec__tree_put_node(tree, 0, -1, 0);
    tables->sizes[0] = tables->n;
    for (l = tables->d; from < end; l--, from = end, end = next) {
        const double *below = tables->best + (size_t)(l - 1) * tables->stride;

        for (most = 1, i = from; i < end; i++)
            most = specdec__max_int(most, tables->sizes[i]);
        specdec__tree_fill_child_scores(tables, below, most);
        for (i = from; i < end; i++) {
            int children = specdec__tree_split_nodes(tables, below, tables->sizes[i], tables->sizes + next);

            for (k = 1; k <= children; k++)
                specdec__tree_put_node(tree, next++, i, k);
        }
    }
}

specdec_result specdec_tree_best(specdec_tree *tree, double *score, const double *p, int width, int n, int d,
                                 void *memory, size_t bytes, specdec_error *error)
{
    specdec__tree_tables tables;
    specdec_result result = specdec__tree_compute_tables(&tables, p, width, n, d, memory, bytes, error);

    if (result)
        return result;
    if (tables.best[(size_t)d * tables.stride + (size_t)n] < 0.0)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                             "no tree has %d nodes in %d levels with at most %d children a node", n, d, width);
    result = specdec__tree_check_room(tree, (size_t)n, error);
    if (result)
        return result;
    if (score)
        *score = tables.best[(size_t)d * tables.stride + (size_t)n];
    specdec__tree_write_best_tree(&tables, tree);
    return SPECDEC_OK;
}

specdec_result specdec_tree_grid(double *grid, const double *p, int width, int n, int d, void *memory, size_t bytes,
                                 specdec_error *error)
{
    specdec__tree_tables tables;
    specdec_result result;
    int l, m;

    if (!grid)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "the grid of scores needs an array to go to");
    result = specdec__tree_compute_tables(&tables, p, width, n, d, memory, bytes, error);
    if (result)
        return result;
    for (m = 0; m <= n; m++) {
        for (l = 0; l <= d; l++) {
            double score = tables.best[(size_t)l * tables.stride + (size_t)m];

            grid[(size_t)m * ((size_t)d + 1) + (size_t)l] = score > 0.0 ? score : 0.0;
        }
    }
    return SPECDEC_OK;
}

/* Returns whether a cost is a number that expected tokens can be divided by. */
SPECDEC__INLINE int specdec__tree_is_valid_cost(double cost) { return cost > 0.0 && cost <= 1e30; }

specdec_result specdec_tree_choose(int *best_n, int *best_d, double *best_rate, const double *grid, int n, int d,
                                   const int32_t *widths, const double *times, int count, double draft_time,
                                   specdec_error *error)
{
    double best = 0.0;
    int i, l;

    if (!best_n || !best_d || !grid || !widths || !times || n < 1 || d < 1 || count < 1)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                             "choosing a tree needs a grid of scores and at least one width with its time");
    if (!(draft_time >= 0.0 && draft_time <= 1e30))
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "the time of a draft pass must be 0 or more");
    for (i = 0; i < count; i++) {
        if (widths[i] < 1 || widths[i] > n || !specdec__tree_is_valid_cost(times[i]))
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                                 "width %d must be within 1 and %d and its time positive", (int)widths[i], n);
        for (l = 1; l <= d; l++) {
            double rate = grid[(size_t)widths[i] * ((size_t)d + 1) + (size_t)l] / (times[i] + l * draft_time);

            if (rate > best + best * SPECDEC__TREE_SCORE_TIE) {
                best = rate;
                *best_n = widths[i];
                *best_d = l;
            }
        }
    }
    if (!(best > 0.0))
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "no tree has any of these widths in %d levels", d);
    if (best_rate)
        *best_rate = best;
    return SPECDEC_OK;
}

/* Returns whether draft token a comes before b: it is more probable, or as probable and earlier. */
SPECDEC__INLINE int specdec__tree_candidate_comes_before(const float *probability, int32_t a, int32_t b)
{
    return probability[a] > probability[b] || (!(probability[a] < probability[b]) && a < b);
}

SPECDEC__HEAP(specdec__tree_sink, int32_t, float, specdec__tree_candidate_comes_before)

/* The order of draft tokens by their indices. */
#define SPECDEC__TREE_ORDER(key, a, b) ((a) < (b))
SPECDEC__HEAP(specdec__tree_sink_index, int32_t, void, SPECDEC__TREE_ORDER)

/* Sorts draft tokens by index, so that children come behind their parents again. */
static void specdec__tree_sort_candidates_by_index(int32_t *kept, int count)
{
    int i;

    for (i = count / 2 - 1; i >= 0; i--)
        specdec__tree_sink_index(kept, NULL, count, i);
    for (i = count - 1; i > 0; i--) {
        int32_t moving = kept[0];

        kept[0] = kept[i];
        kept[i] = moving;
        specdec__tree_sink_index(kept, NULL, i, 0);
    }
}

/* Returns the index of a draft token in the sorted list kept[count]. */
static int specdec__tree_index_of_kept_candidate(const int32_t *kept, int count, int32_t candidate)
{
    int low = 0, high = count - 1;

    while (low < high) {
        int middle = low + (high - low) / 2;

        if (kept[middle] < candidate)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Returns an error unless these draft tokens are a tree whose probabilities do not rise from parent to child. */
static specdec_result specdec__tree_check_candidates(const int32_t *parents, const float *probability, int count,
                                                     specdec_error *error)
{
    int i;

    if (!parents || !probability || count < 1 || parents[0] != -1)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                             "growing a tree needs candidates, the first of them the root, with parent -1");
    for (i = 0; i < count; i++) {
        if (i > 0 && (parents[i] < 0 || parents[i] >= i))
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                                 "the parent of candidate %d is %d; it must be a candidate before it", i,
                                 (int)parents[i]);
        if (!(probability[i] >= 0.0f) || (i > 0 && probability[i] > probability[parents[i]]))
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                                 "the probability of candidate %d is negative or above its parent's", i);
    }
    return SPECDEC_OK;
}

specdec_result specdec_tree_grow(specdec_tree *tree, int32_t *kept, const int32_t *parents, const float *probability,
                                 int count, int n, specdec_error *error)
{
    specdec_result result = specdec__tree_check_candidates(parents, probability, count, error);
    int i;

    if (!result)
        result = specdec__tree_check_room(
            tree, (size_t)specdec__min_int(specdec__max_int(n, 0), specdec__max_int(count, 0)), error);
    if (result)
        return result;
    if (!kept)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                             "growing a tree needs room for the candidates that are kept");
    n = tree->n;
    for (i = 0; i < n; i++)
        kept[i] = i;
    for (i = n / 2 - 1; i >= 0; i--)
        specdec__tree_sink(kept, probability, n, i);
    for (i = n; i < count; i++) {
        if (specdec__tree_candidate_comes_before(probability, i, kept[0])) {
            kept[0] = i;
            specdec__tree_sink(kept, probability, n, 0);
        }
    }
    specdec__tree_sort_candidates_by_index(kept, n);
    specdec__tree_put_node(tree, 0, -1, 0);
    for (i = 1; i < n; i++) {
        int parent = specdec__tree_index_of_kept_candidate(kept, n, parents[kept[i]]);

        specdec__tree_put_node(tree, i, parent, specdec__tree_next_rank(tree, i, parent));
    }
    return SPECDEC_OK;
}

/* A tree of the default family, a table of good trees for typical machines and acceptances. children: the number of
   children of each node, level by level, as a digit in base 36; nodes behind its end have none. */
typedef struct specdec__tree_default {
    unsigned char n, d; /* number of nodes; number of levels */
    const char *children;  /* a digit a node: its number of children */
} specdec__tree_default;

#define SPECDEC__TREE_DEFAULT_NODES 64 /* nodes of a tree of the default family, at most */

static const specdec__tree_default specdec__tree_defaults[] = {
    /* BEGIN GENERATED TREES */
    {2, 2, "1"},
    {4, 2, "3"},
    {4, 3, "21"},
    {4, 4, "111"},
    {8, 2, "7"},
    {8, 3, "421"},
    {8, 4, "32101"},
    {8, 5, "2211001"},
    {8, 3, "3211"},
    {8, 7, "2101111"},
    {8, 8, "1111111"},
    {8, 4, "221101"},
    {8, 6, "2111011"},
    {16, 3, "83211"},
    {16, 3, "84111"},
    {16, 5, "531100210101"},
    {16, 6, "431102101010001"},
    {16, 4, "53110021011"},
    {16, 3, "651111"},
    {16, 8, "321021110101011"},
    {16, 5, "32102112111"},
    {16, 4, "4311021111"},
    {16, 11, "221201100111111"},
    {16, 7, "221211111110001"},
    {16, 16, "111111111111111"},
    {16, 10, "221211100011111"},
    {16, 6, "22121121111"},
    {16, 13, "221100111111111"},
    {32, 3, "885322111"},
    {32, 4, "87321111031100001001"},
    {32, 5, "85211110031100101000210101"},
    {32, 4, "8621111104111001011"},
    {32, 6, "64111003110110210101021111"},
    {32, 4, "86211110041110010111"},
    {32, 8, "43110311112101010211111010011"},
    {32, 6, "4411131101103101011210111"},
    {32, 4, "752111105111110111"},
    {32, 11, "2212112111211112111111000000111"},
    {32, 7, "3311210112111021111211111"},
    {32, 5, "5411104111111311011011"},
    {32, 16, "2212112111211111000101011111111"},
    {32, 10, "2212112111211112111111100000101"},
    {32, 7, "3311310102101121111211111"},
    {32, 16, "2212112111211111000011011111111"},
    {32, 12, "2212112111211112011111000001111"},
    {64, 4, "8885433224321000032100000210001"},
    {64, 3, "888887655"},
    {64, 4, "88643221173211110311000210010010101"},
    {64, 5, "884221111721111102100101011104111000101100010011"},
    {64, 4, "885322211832111113110021010101011"},
    {64, 7, "86211110052111021111031100101001001003111111112101010101"},
    {64, 5, "883211111621111002101011100511110101110101111"},
    {64, 4, "88532211183221111311002101010111"},
    {64, 8, "65211104111010110311011111131111110110210101010102111111"},
    {64, 6, "7621111052111021111041110101101001104111111110111"},
    {64, 5, "87211111062111102111110521110211110111111"},
    {64, 12, "331131111210101121111021111121111112111111121111111110000000001"},
    {64, 8, "4411141111113110110110311111111311111111112101010101011"},
    {64, 6, "66211105111101011151111111111114111011101110111"},
    {64, 16, "221211211121111211111211111121111111211111111100000110110001111"},
    {64, 11, "221211211121111211111211111121111111211111111211111101"},
    {64, 8, "3311311113111111311111111311111111113111111111111"},
    {64, 16, "221211211121111211111211111121111111211111111100001010110001111"},
    {64, 11, "2212112111211112111112111111211111112111111111110111111"},
    /* END GENERATED TREES */
};

SPECDEC__FOR_SPEED

/* Reads from the digits of a default tree how many children the next node has, and moves *at to the next digit. */
SPECDEC__INLINE int specdec__tree_read_child_count(const char **at)
{
    char digit = **at;

    if (!digit)
        return 0;
    ++*at;
    return digit <= '9' ? digit - '0' : digit - 'a' + 10;
}

/* Returns the expected tokens a step of a tree of the default family, by the acceptance vector p[width]. */
static double specdec__tree_score_default_tree(const specdec__tree_default *shape, const double *p, int width)
{
    double f[SPECDEC__TREE_DEFAULT_NODES], score = 0.0;
    const char *at = shape->children;
    int i, k, next = 1;

    f[0] = 1.0;
    for (i = 0; i < shape->n; i++) {
        int children = specdec__tree_read_child_count(&at);

        score += f[i];
        for (k = 0; k < children && next < shape->n; k++)
            f[next++] = k < width ? f[i] * p[k] : 0.0;
    }
    return score;
}

/* Writes a tree of the default family to *tree, as parents and ranks. */
static void specdec__tree_write_default_tree(const specdec__tree_default *shape, specdec_tree *tree)
{
    const char *at = shape->children;
    int i, k, next = 1;

    specdec__tree_put_node(tree, 0, -1, 0);
    for (i = 0; i < shape->n; i++) {
        int children = specdec__tree_read_child_count(&at);

        for (k = 0; k < children && next < shape->n; k++)
            specdec__tree_put_node(tree, next++, i, k + 1);
    }
}

/* What a step costs, by the size of its tree: the data by which a tree of the default family is picked. */
typedef struct specdec__tree_step {
    const double *times; /* (n + 1): seconds of a step by the number of its nodes; the first is not used */
    int n, levels;       /* nodes and levels of the tree, at most */
    int undrafted;       /* levels that take no draft pass: 0; or 1: the root */
    double draft_time;   /* seconds of the draft pass of one level */
    double others;       /* expected tokens of the step besides those of this tree */
} specdec__tree_step;

/* Picks the tree of the default family with the most tokens a second, as specdec_tree_pick does, for a step that may
   also have nodes of other trees. */
static specdec_result specdec__tree_pick_default_tree(specdec_tree *tree, double *best_rate, const double *p, int width,
                                                      const specdec__tree_step *step, specdec_error *error)
{
    const double *times = step->times;
    const int n = step->n;
    static const specdec__tree_default alone = {1, 1, ""};
    const specdec__tree_default *best = &alone;
    specdec_result result = specdec__tree_check_acceptance(p, width, error);
    double rate, highest;
    size_t i;

    if (result)
        return result;
    if (!times || n < 1 || !(step->draft_time >= 0.0 && step->draft_time <= 1e30))
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                             "picking a tree needs the times of steps of 1 to n nodes and of a draft pass");
    for (i = 1; i <= (size_t)n; i++)
        if (!specdec__tree_is_valid_cost(times[i]))
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "the time of a step of %d nodes is not positive",
                                 (int)i);
    highest = (1.0 + step->others) / times[1];
    for (i = 0; i < SPECDEC__COUNT(specdec__tree_defaults); i++) {
        const specdec__tree_default *shape = &specdec__tree_defaults[i];

        if (shape->n > n || shape->d > step->levels || (tree && shape->n > tree->capacity))
            continue;
        rate = (step->others + specdec__tree_score_default_tree(shape, p, width)) /
               (times[shape->n] + (shape->d - step->undrafted) * step->draft_time);
        if (rate > highest + highest * SPECDEC__TREE_SCORE_TIE) {
            highest = rate;
            best = shape;
        }
    }
    result = specdec__tree_check_room(tree, best->n, error);
    if (result)
        return result;
    specdec__tree_write_default_tree(best, tree);
    if (best_rate)
        *best_rate = highest;
    return SPECDEC_OK;
}

specdec_result specdec_tree_pick(specdec_tree *tree, double *best_rate, const double *p, int width, const double *times,
                                 int n, double draft_time, specdec_error *error)
{
    specdec__tree_step step;

    step.times = times;
    step.n = n;
    step.levels = SPECDEC_TREE_MAX_DEPTH;
    step.undrafted = 0;
    step.draft_time = draft_time;
    step.others = 0;
    return specdec__tree_pick_default_tree(tree, best_rate, p, width, &step, error);
}
