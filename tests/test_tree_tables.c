/* test_tree_tables.c - the generated trees in the header are those that the generator makes. */
#define SPECDEC_IMPLEMENTATION
#define main generator_main
#include "../tools/specdec-tune.c"
#undef main
#include "check.h"

int main(void)
{
    static int32_t parents[SPECDEC__TREE_DEFAULT_NODES], ranks[SPECDEC__TREE_DEFAULT_NODES];
    specdec_tree tree = {parents, ranks, SPECDEC__TREE_DEFAULT_NODES, 0};
    size_t i, bytes = sizeof specdec__tree_defaults;

    TEST("the table in the header is what the generator writes");
    CHECK(build_family());
    CHECK_EQUAL_INT(shape_count, SPECDEC__COUNT(specdec__tree_defaults));
    for (i = 0; i < SPECDEC__COUNT(specdec__tree_defaults) && i < (size_t)shape_count; i++) {
        const specdec__tree_default *row = &specdec__tree_defaults[i];

        CHECK(row->n == shapes[i].n && row->d == shapes[i].d && !strcmp(row->children, shapes[i].children));
        bytes += strlen(row->children) + 1;
    }

    TEST("every tree of the table is valid, of the size and depth it says; the table is small");
    for (i = 0; i < SPECDEC__COUNT(specdec__tree_defaults); i++) {
        tree.n = specdec__tree_defaults[i].n;
        CHECK(tree.n <= SPECDEC__TREE_DEFAULT_NODES);
        specdec__tree_write_default_tree(&specdec__tree_defaults[i], &tree);
        CHECK_EQUAL_INT(specdec_tree_check(&tree, NULL), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_tree_depth(&tree, NULL), specdec__tree_defaults[i].d);
    }
    CHECK(bytes < 8192);
    printf("  %zu trees, %zu bytes\n", SPECDEC__COUNT(specdec__tree_defaults), bytes);
    return check_report("test_tree_tables");
}
