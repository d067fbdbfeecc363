/* specdec-tune-tables.c - writes the default family of token trees: the lines between BEGIN and END GENERATED TREES in
   >>tree. A mode of specdec-tune; usage: specdec-tune-tables > LINES

   For every profile of acceptance, every width and every cost of a draft pass: the exact best tree at its best depth.
   Equal shapes appear once. The result is the same on every machine. */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include <stdio.h>
#include <stdlib.h>

#define RANKS  8
#define LEVELS 16
#define NODES  64

/* Acceptance in 1/10000 by child rank: p_1 = a, and after k children the rejected rest is (1 - a) k^-b with
   b = 0.2 + 1.2 a^3, a power law as in Chen et al. 2024 that passes near the two vectors published with it. */
static const int profiles[][RANKS] = {
    {2000, 1082, 564, 372, 273, 214, 175, 147}, {3500, 1040, 529, 344, 250, 194, 157, 132},
    {5000, 1077, 519, 326, 231, 176, 140, 116}, {6200, 1087, 485, 291, 199, 147, 115, 93},
    {7300, 999, 403, 227, 148, 106, 80, 63},    {8300, 780, 278, 145, 89, 61, 44, 34},
    {9100, 481, 151, 73, 43, 28, 19, 14},       {9700, 178, 50, 22, 13, 8, 5, 4},
};

static const int widths[] = {2, 4, 8, 16, 32, 64};
static const double draft_times[] = {0.02, 0.1, 0.3}; /* a draft pass over a step of the target */

typedef struct shape {
    int n, d;
    char children[NODES + 1];
} shape;

static shape shapes[SPECDEC__COUNT(profiles) * SPECDEC__COUNT(widths) * SPECDEC__COUNT(draft_times)];
static int shape_count;

/* Notes a tree, unless it is there already. */
static void note(const specdec_tree *tree)
{
    shape s;
    int i, counts[NODES] = {0}, end = tree->n;

    for (i = 1; i < tree->n; i++)
        counts[tree->parents[i]]++;
    while (end > 0 && counts[end - 1] == 0)
        end--;
    memset(&s, 0, sizeof s);
    s.n = tree->n;
    s.d = specdec_tree_depth(tree, NULL);
    for (i = 0; i < end; i++)
        s.children[i] = "0123456789abcdefghijklmnopqrstuvwxyz"[counts[i]];
    for (i = 0; i < shape_count; i++)
        if (shapes[i].n == s.n && !strcmp(shapes[i].children, s.children))
            return;
    shapes[shape_count++] = s;
}

/* Notes the best trees of one width for one profile. */
static void build(const double *p, const double *grid, int n, void *memory, size_t bytes)
{
    static int32_t parents[NODES], ranks[NODES];
    specdec_tree tree = {parents, ranks, NODES, 0};
    const double one = 1.0;
    const int32_t width = n;
    size_t c;

    for (c = 0; c < SPECDEC__COUNT(draft_times); c++) {
        int best_n = 0, d = 0;

        if (specdec_tree_choose(&best_n, &d, NULL, grid, NODES, LEVELS, &width, &one, 1, draft_times[c], NULL) ||
            specdec_tree_best(&tree, NULL, p, RANKS, n, d, memory, bytes, NULL))
            continue;
        note(&tree);
    }
}

/* Fills shapes with the whole family. Returns 0 when memory ran out. */
static int build_family(void)
{
    static double grid[(NODES + 1) * (LEVELS + 1)];
    size_t bytes = specdec_tree_memory(NODES, LEVELS, RANKS), w, i;
    void *memory = malloc(bytes);
    double p[RANKS];
    int k;

    for (w = 0; memory && w < SPECDEC__COUNT(widths); w++) {
        for (i = 0; i < SPECDEC__COUNT(profiles); i++) {
            for (k = 0; k < RANKS; k++)
                p[k] = profiles[i][k] / 10000.0;
            if (!specdec_tree_grid(grid, p, RANKS, NODES, LEVELS, memory, bytes, NULL))
                build(p, grid, widths[w], memory, bytes);
        }
    }
    w = memory != NULL;
    free(memory);
    return (int)w;
}

int main(void)
{
    int i;

    if (!build_family()) {
        fprintf(stderr, "specdec-tune-tables: out of memory\n");
        return 1;
    }
    for (i = 0; i < shape_count; i++)
        printf("    {%d, %d, \"%s\"},\n", shapes[i].n, shapes[i].d, shapes[i].children);
    return 0;
}
