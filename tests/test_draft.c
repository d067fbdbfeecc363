/* test_draft.c - the promises of the list of drafters: their proposals are merged into one tree, without doubles and
   within the budget; whoever is in the list, in whatever order, the text stays that of plain decoding; a drafter is added
   by its row. SPECDEC_QUICK=1 shortens. */
#define SPECDEC_NO_CLOCK /* every width costs what it is said to cost: runs are repeatable */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "check.h"
#include "gguf_maker.h"
#include "statistics.h"

static specdec_error failure; /* of the last call that failed before there was an engine */

enum { NODES = 64, TEXT = 128, PROMPT = 4, ROOM = 4 << 20 };

static uint64_t state = 7;

static int uniform(int below) { return (int)(statistics_random(&state) * below); }

/* --- merging -------------------------------------------------------------------------------------------------------- */

/* A drafter's proposal with its arrays. */
typedef struct paper {
    int32_t parents[NODES], ranks[NODES], tokens[NODES], place[NODES], kept[NODES];
} paper;

static paper papers[SPECDEC__MAX_DRAFTERS];
static specdec__proposal proposals[SPECDEC__MAX_DRAFTERS];
static specdec__drafter drafters[SPECDEC__MAX_DRAFTERS];
static int32_t merged_parents[NODES], merged_ranks[NODES], merged_tokens[NODES];
static signed char merged_owner[NODES];
static specdec__merged_tree merged;

/* A proposal of n candidates of few different tokens, some of them empty; a random part of them, with their parents, is
   kept. No token comes twice behind a node. */
static void propose(int at, int n)
{
    specdec__proposal *p = &proposals[at];
    paper *own = &papers[at];
    int i, j, keeps;

    drafters[at].proposals = p;
    memset(p, 0, sizeof *p);
    p->drafts.tree.parents = own->parents;
    p->drafts.tree.ranks = own->ranks;
    p->drafts.tree.capacity = NODES;
    p->drafts.tokens = own->tokens;
    p->outcome.merged_node = own->place;
    p->outcome.kept = own->kept;
    specdec__tree_put_node(&p->drafts.tree, 0, -1, 0);
    for (i = p->drafts.tree.n = 1; i < n; i++) {
        const int parent = uniform(i);
        const int32_t token = uniform(8) ? uniform(5) : -1;

        for (j = specdec__tree_next_child(&p->drafts.tree, parent, parent + 1); j < i && p->drafts.tokens[j] != token;)
            j = specdec__tree_next_child(&p->drafts.tree, parent, j + 1);
        specdec__tree_put_node(&p->drafts.tree, i, parent, specdec__tree_next_rank(&p->drafts.tree, i, parent));
        p->drafts.tokens[i] = j < i ? -1 : token;
        p->drafts.tree.n++;
    }
    for (i = 1, p->outcome.kept_count = 1, p->outcome.kept[0] = 0; i < n; i++) {
        for (j = keeps = 0; j < p->outcome.kept_count; j++)
            keeps |= p->outcome.kept[j] == p->drafts.tree.parents[i];
        if (keeps && uniform(6))
            p->outcome.kept[p->outcome.kept_count++] = i;
    }
}

static void merge(int count, int capacity)
{
    memset(&merged, 0, sizeof merged);
    merged.tree.parents = merged_parents;
    merged.tree.ranks = merged_ranks;
    merged.tree.capacity = capacity;
    merged.tokens = merged_tokens;
    merged.owner = merged_owner;
    specdec__draft_merge_trees(&merged, drafters, count, 0, 99, capacity);
}

/* The node of the merged tree that has the same tokens on its path as candidate i; -1: none. */
static int same_path(const specdec__proposal *p, int i)
{
    int parent, j;

    if (i == 0)
        return 0;
    parent = same_path(p, p->drafts.tree.parents[i]);
    if (parent < 0 || p->drafts.tokens[i] < 0)
        return -1;
    j = specdec__tree_next_child(&merged.tree, parent, parent + 1);
    while (j < merged.tree.n && merged.tokens[j] != p->drafts.tokens[i])
        j = specdec__tree_next_child(&merged.tree, parent, j + 1);
    return j < merged.tree.n ? j : -1;
}

/* Counts what is wrong with the merged tree: every node must be there once, by its owner; every kept candidate that has a
   place must have the right one; whole: none may be missing. */
static int faults(int count, int whole)
{
    int i, j, k, wrong = specdec_tree_check(&merged.tree, NULL) != SPECDEC_OK || merged.tree.n > merged.tree.capacity;

    for (i = 1; i < merged.tree.n; i++) {
        for (j = specdec__tree_next_child(&merged.tree, merged_parents[i], i + 1); j < merged.tree.n;
             j = specdec__tree_next_child(&merged.tree, merged_parents[i], j + 1))
            wrong += merged_tokens[j] == merged_tokens[i];
        wrong += merged_owner[i] < 0 || merged_owner[i] >= count;
        wrong += specdec__draft_candidate_of_node(&drafters[merged_owner[i]].proposals[0].outcome, i) < 1;
    }
    for (i = 0; i < count; i++) {
        const specdec__proposal *p = &drafters[i].proposals[0];

        for (k = 0; k < p->outcome.kept_count; k++) {
            const int node = p->outcome.kept[k], right = same_path(p, node);

            wrong += p->outcome.merged_node[node] >= 0 ? p->outcome.merged_node[node] != right : whole && right >= 0;
            wrong += p->outcome.merged_node[node] >= 0 &&
                     specdec__draft_candidate_of_node(&p->outcome, p->outcome.merged_node[node]) != node;
        }
        if (i == 0) /* the first has room for all that hangs together */
            for (k = 0; k < p->outcome.kept_count && k < merged.tree.capacity; k++)
                wrong += p->outcome.merged_node[p->outcome.kept[k]] < 0 && p->drafts.tokens[p->outcome.kept[k]] >= 0 &&
                         p->outcome.merged_node[p->drafts.tree.parents[p->outcome.kept[k]]] >= 0;
    }
    return wrong;
}

static void test_merge(void)
{
    int turn, i, wrong = 0, unequal = 0, missing = 0;

    for (turn = 0; turn < 20000; turn++) {
        const int count = 1 + uniform(SPECDEC__MAX_DRAFTERS), capacity = 1 + uniform(NODES);
        int nodes;

        for (i = 0; i < count; i++)
            propose(i, 1 + uniform(NODES / SPECDEC__MAX_DRAFTERS));
        merge(count, capacity);
        wrong += faults(count, 0);
        merge(count, NODES);
        wrong += faults(count, 1);
        nodes = merged.tree.n;
        for (i = 0; i < count / 2; i++) { /* the other way round */
            specdec__drafter first = drafters[i];

            drafters[i] = drafters[count - 1 - i];
            drafters[count - 1 - i] = first;
        }
        merge(count, NODES);
        wrong += faults(count, 1);
        unequal += merged.tree.n != nodes;
        for (i = 0; i < count; i++)
            missing += drafters[i].proposals[0].outcome.merged_node[0] != 0;
    }
    TEST("a merged tree is valid, no larger than its budget, without doubles, and each node is where its drafter wants it");
    CHECK_EQUAL_INT(wrong, 0);
    CHECK_EQUAL_INT(missing, 0);
    TEST("when there is room, the order of the list does not matter: the same paths are in the tree");
    CHECK_EQUAL_INT(unequal, 0);

    TEST("what one drafter has drawn twice is twice in the tree; what another one adds to that is not");
    for (i = 0; i < 2; i++) {
        propose(i, 1);
        specdec__tree_put_node(&drafters[i].proposals[0].drafts.tree, 1, 0, 1);
        specdec__tree_put_node(&drafters[i].proposals[0].drafts.tree, 2, 0, 2);
        papers[i].tokens[1] = papers[i].tokens[2] = 3;
        drafters[i].proposals[0].drafts.tree.n = 3;
        specdec__draft_select_first_candidates(&drafters[i].proposals[0], 3);
    }
    merge(1, NODES);
    CHECK_EQUAL_INT(merged.tree.n, 3);
    merge(2, NODES);
    CHECK_EQUAL_INT(merged.tree.n, 3);
}

/* --- two drafters of our own ---------------------------------------------------------------------------------------- */

/* What an oracle knows, and what it was told. */
typedef struct oracle {
    const int32_t *text;
    int count, accepted, cut_to;
} oracle;

static oracle known;

static specdec_result oracle_init(specdec__drafter *d, const specdec__draft_setup *setup, specdec__arena *arena,
                                  specdec_error *error)
{
    oracle *state_of = SPECDEC__TAKE(arena, oracle, 1);

    (void)error;
    CHECK(setup->room->view_keys > 0 && setup->target->model->vocab_size > 0 && !d->model && state_of);
    *state_of = known;
    d->state = state_of;
    return SPECDEC_OK;
}

/* A chain of what will come. */
static specdec_result oracle_fill(specdec__drafter *d, const specdec__draft_request *request, specdec__draft_tree *drafts, specdec_error *error)
{
    const oracle *o = (const oracle *)d->state;
    int i;

    (void)error;
    for (i = 1; i < request->max_nodes && i < request->max_levels && request->count + i <= o->count; i++) {
        specdec__tree_put_node(&drafts->tree, i, i - 1, 1);
        drafts->tokens[i] = o->text[request->count + i - 1];
        drafts->share[i] = 0.99f;
    }
    drafts->tree.n = i;
    return SPECDEC_OK;
}

static void oracle_commit(specdec__drafter *d, int at, const int32_t *path, int count)
{
    int i;

    CHECK_EQUAL_INT(at, 0);
    for (i = 0; i < count; i++)
        CHECK_EQUAL_INT(path[i], i + 1);
    ((oracle *)d->state)->accepted += count;
}

static void oracle_truncate(specdec__drafter *d, int at, const int32_t *text, int length)
{
    CHECK_EQUAL_INT(at, 0);
    CHECK(memcmp(text, ((oracle *)d->state)->text, (size_t)length * sizeof *text) == 0);
    ((oracle *)d->state)->cut_to = length;
}

static void oracle_kind(specdec__drafter_kind *kind)
{
    kind->size = kind->depth = 8;
    kind->init = oracle_init;
    kind->fill_tree = oracle_fill;
    kind->commit_path = oracle_commit;
    kind->truncate_sequence = oracle_truncate;
}

/* One that says anything, for a small price, in trees that are given and in trees that grow. */
static specdec_result liar_fill(specdec__drafter *d, const specdec__draft_request *request, specdec__draft_tree *drafts, specdec_error *error)
{
    int i;

    (void)d, (void)request, (void)error;
    for (i = 1; i < drafts->tree.n; i++)
        drafts->tokens[i] = uniform(9) ? uniform(200) : -1;
    return SPECDEC_OK;
}

static specdec_result liar_extend(specdec__drafter *d, const specdec__draft_request *request, specdec__draft_tree *drafts,
                                  const specdec__draft_frontier *frontier, specdec_error *error)
{
    int i, k;

    (void)d, (void)request, (void)error;
    for (i = 0; i < frontier->count; i++)
        for (k = uniform(SPECDEC__GROWN_CHILDREN + 1); k > 0 && drafts->tree.n < drafts->tree.capacity; k--) {
            const int at = drafts->tree.n++, parent = frontier->chosen[i];

            specdec__tree_put_node(&drafts->tree, at, parent, specdec__tree_next_rank(&drafts->tree, at, parent));
            drafts->tokens[at] = uniform(200);
            drafts->depth[at] = drafts->depth[parent] + 1;
            drafts->share[at] = 1.0f / (float)SPECDEC__GROWN_CHILDREN;
        }
    drafts->extended_count += frontier->chosen[0] ? frontier->count : 0;
    return SPECDEC_OK;
}

static double liar_cost(const specdec__drafter *d, const specdec__model *target)
{
    CHECK(!d->model && target->layers > 0);
    return 0.01;
}

static void liar_kind(specdec__drafter_kind *kind)
{
    kind->size = 8;
    kind->depth = 5;
    kind->fill_tree = liar_fill;
    kind->extend_tree = liar_extend;
    kind->level_cost = liar_cost;
}

/* What several drafters offer one text, by hand: the nodes of the merged tree whose worth is among those that pay. */
static void test_share_out(void)
{
    static specdec__engine e;
    static specdec__tune tune;
    static specdec t, *members[1];
    static float worth[NODES], probability[SPECDEC__MAX_DRAFTERS][NODES];
    double times[SPECDEC__MAX_TREE_NODES + 1], sorted[SPECDEC__MAX_TREE_NODES + 1], rate;
    specdec__tree_plan plan;
    int turn, i, k, n, held, kept, best, equal, wrong = 0, cut = 0;

    for (turn = 0; turn < 4000; turn++) {
        const double slope = 0.01 * (1 + uniform(40));

        memset(&plan, 0, sizeof plan);
        for (i = 0; i <= SPECDEC__MAX_TREE_NODES; i++)
            plan.times[i] = times[i] = i ? 1 + slope * (i - 1) : 0;
        e.drafters = drafters;
        e.drafter_count = 1 + uniform(SPECDEC__MAX_DRAFTERS);
        e.tune = &tune;
        e.members = members;
        e.member_count = e.roots = 1;
        e.target.max_nodes = plan.most = NODES;
        members[0] = &t;
        t.engine = &e;
        for (k = 0; k < e.drafter_count; k++) {
            specdec__proposal *p = &proposals[k];

            propose(k, 1 + uniform(NODES / SPECDEC__MAX_DRAFTERS));
            drafters[k].kind.level_cost = liar_cost; /* its trees grow: it says how probable a path is */
            p->frontier.grows = p->frontier.shares = 1;
            p->frontier.probability = probability[k];
            for (i = 0; i < p->drafts.tree.n; i++)
                probability[k][i] = i ? probability[k][p->drafts.tree.parents[i]] * (float)(1 + uniform(9)) / 10 : 1;
        }
        merge(e.drafter_count, NODES);
        merged.worth = worth;
        sorted[0] = worth[0] = 1;
        for (i = held = 1; i < merged.tree.n; i++) { /* that one of those is right who have this path, and keep it */
            double missed = 1;

            for (k = 0; k < e.drafter_count; k++)
                for (n = 1; n < proposals[k].drafts.tree.n; n++)
                    missed *= proposals[k].outcome.merged_node[n] == i ? 1 - (double)probability[k][n] : 1;
            worth[i] = (float)(1 - missed);
            worth[i] = worth[i] < worth[merged_parents[i]] ? worth[i] : worth[merged_parents[i]];
            held = specdec__tune_insert_into_largest(sorted, held, SPECDEC__MAX_TREE_NODES, worth[i]);
        }
        best = specdec__tune_best_node_count(&plan, sorted, held, 0, &rate);
        for (i = equal = kept = 0; i < merged.tree.n; i++) {
            kept += worth[i] > (float)sorted[best - 1];
            equal += worth[i] == (float)sorted[best - 1];
        }
        wrong += kept > best || kept + equal < best;
        n = merged.tree.n;
        t.merged = merged;
        specdec__engine_prune_trees(&e, times);
        merged = t.merged;
        wrong += merged.tree.n != best;
        cut += merged.tree.n < n;
        for (i = 0; i < merged.tree.n; i++)
            wrong += worth[i] < (float)sorted[best - 1];
        wrong += specdec_tree_check(&merged.tree, NULL) != SPECDEC_OK;
        for (k = 0; k < e.drafter_count; k++)
            for (i = 0; i < proposals[k].drafts.tree.n; i++)
                wrong += proposals[k].outcome.merged_node[i] >= 0 && proposals[k].outcome.merged_node[i] != same_path(&proposals[k], i);
    }
    TEST("of what several drafters offer one text is kept what pays, by what all think of it together");
    CHECK_EQUAL_INT(wrong, 0);
    CHECK(cut > 1000);
}

/* --- engines with lists of ours ------------------------------------------------------------------------------------- */

enum { MODEL, NGRAM, ORACLE, LIAR, KINDS };
static const specdec__drafter_row kinds[KINDS] = {specdec__draft_model_write_kind, specdec__draft_ngram_write_kind, oracle_kind, liar_kind};

static unsigned char *files[2];
static size_t sizes[2];
static const int32_t prompt[PROMPT] = {5, 9, 70, 9};
static unsigned char room[ROOM];

static specdec_config config_of(float temperature)
{
    specdec_config c;

    memset(&c, 0, sizeof c);
    c.target.data = files[0];
    c.target.size = sizes[0];
    c.draft.data = files[1];
    c.draft.size = sizes[1];
    c.threads = 1;
    c.context = TEXT;
    c.settings.max_tokens = 80;
    c.settings.sampling.temperature = temperature;
    c.settings.sampling.seed = 3;
    c.drafting = SPECDEC_DRAFT_OFF;
    c.tree_size = 32; /* room for what is added */
    return c;
}

/* An engine whose drafters are list[count], in this order; NULL after a failed check. The caller frees *block. */
static specdec *open_engine(specdec_config *c, const int *list, int count, void **block)
{
    specdec__arena arena = {room, sizeof room, 0};
    specdec__drafter_kind kind;
    specdec *e = NULL;
    size_t bytes;
    int i;

    CHECK(!specdec_memory_needed(c, &bytes, &failure));
    *block = malloc(bytes);
    CHECK(!specdec_init(&e, c, *block, bytes, &failure));
    if (!e)
        return NULL;
    CHECK_EQUAL_INT(e->engine->drafter_count, 0);
    e->engine->config.drafting = SPECDEC_DRAFT_AUTO;
    for (i = 0; i < count; i++) {
        specdec__drafter_write_kind(&kind, kinds[list[i]]);
        CHECK_EQUAL_INT(specdec__engine_add_drafter(e->engine, &kind, (specdec_drafting)list[i], &arena, &e->error), SPECDEC_OK);
    }
    CHECK(arena.used != SIZE_MAX);
    return e;
}

/* Writes to the end. Returns how many tokens there are, of prompt and answer, in text. */
static int write_all(specdec *e, int32_t *text)
{
    const int32_t *tokens;
    int count;

    while (specdec_step(e, &tokens, &count) == SPECDEC_OK)
        continue;
    specdec_tokens(e, &tokens, &count);
    memcpy(text, tokens, (size_t)count * sizeof *text);
    return count;
}

static int answer(specdec_config *c, const int *list, int count, int32_t *text, specdec_stats *stats)
{
    void *block;
    specdec *e = open_engine(c, list, count, &block);
    int written = 0;

    if (e && !specdec_prompt_tokens(e, prompt, PROMPT)) {
        written = write_all(e, text);
        specdec_get_stats(e, stats);
    }
    specdec_deinit(e);
    free(block);
    return written;
}

/* What plain decoding writes becomes what an oracle knows. */
static void know(specdec_config *c, int32_t *text)
{
    specdec_stats stats;

    memset(&known, 0, sizeof known);
    known.count = answer(c, NULL, 0, text, &stats);
    known.text = text;
    CHECK(known.count > PROMPT + 40);
}

static void test_orders(void)
{
    static const int tree_sizes[] = {2, 3, 8, 64};
    static int32_t plain[TEXT], got[TEXT];
    specdec_stats stats;
    int turn, i, wrong = 0, large = 0, silent = 0;

    TEST("whoever drafts, in whatever order of the list: the text is that of plain decoding, no tree is too large");
    for (turn = 0; turn < (getenv("SPECDEC_QUICK") ? 24 : 96); turn++) {
        specdec_config c = config_of(turn & 1 ? 0.8f : 0);
        int list[KINDS] = {0, 1, 2, 3}, left = turn / 4;

        for (i = KINDS - 1; i > 0; left /= i + 1, i--) {
            int other = left % (i + 1), moved = list[other];

            list[other] = list[i];
            list[i] = moved;
        }
        c.policy = turn & 2 ? SPECDEC_POLICY_DYNAMIC : SPECDEC_POLICY_STATIC;
        c.tree_size = tree_sizes[turn % 3 + (turn % 7 == 0)];
        know(&c, plain);
        wrong += answer(&c, list, KINDS, got, &stats) != known.count ||
                 memcmp(got, plain, (size_t)known.count * sizeof *got) != 0;
        for (i = 0; i < SPECDEC_STATS_TREES; i++)
            large += stats.trees[i].nodes > c.tree_size;
        silent += stats.drafted == 0;
    }
    CHECK_EQUAL_INT(wrong, 0);
    CHECK_EQUAL_INT(large, 0);
    CHECK_EQUAL_INT(silent, 0);
}

static void test_own_row(void)
{
    static const int alone[] = {ORACLE}, last[] = {NGRAM, ORACLE};
    static int32_t plain[TEXT], got[TEXT];
    specdec_config c = config_of(0.8f);
    specdec_stats stats;
    void *block;
    specdec *e;
    const oracle *o;

    know(&c, plain);
    TEST("a drafter that is a row of its own is asked, believed, and told what was accepted");
    e = open_engine(&c, alone, 1, &block);
    o = (const oracle *)e->engine->drafters[0].state;
    CHECK(!specdec_prompt_tokens(e, prompt, PROMPT));
    CHECK_EQUAL_INT(write_all(e, got), known.count);
    CHECK(memcmp(got, plain, (size_t)known.count * sizeof *got) == 0);
    specdec_get_stats(e, &stats);
    CHECK(stats.tokens > 5 * stats.steps);
    CHECK_EQUAL_INT(o->accepted, stats.accepted);
    CHECK(stats.steps_by_drafter[ORACLE] > 0);
    TEST("and told what of the text is taken back");
    CHECK(!specdec_rewind(e, PROMPT + 7));
    CHECK_EQUAL_INT(o->cut_to, PROMPT + 7);
    specdec_deinit(e);
    free(block);
    TEST("with n-grams before it in the list it loses nothing");
    CHECK_EQUAL_INT(answer(&c, last, 2, got, &stats), known.count);
    CHECK(memcmp(got, plain, (size_t)known.count * sizeof *got) == 0);
    CHECK(stats.tokens > 5 * stats.steps);
}

static void test_lists(void)
{
    specdec_config c = config_of(0);
    specdec__drafter_kind kind;
    size_t plain, both, bytes;
    void *block;
    specdec *e;
    int i;

    TEST("the words of the command line name the kinds, in the order of specdec_drafting");
    CHECK(strcmp(specdec__drafter_list[SPECDEC_DRAFT_MODEL - SPECDEC_DRAFT_OFF - 1].name, "draft") == 0);
    CHECK(specdec__drafter_write_named_kind(&kind, SPECDEC_DRAFT_NGRAM) && kind.init == specdec__draft_ngram_init);
    CHECK(!specdec__drafter_write_named_kind(&kind, SPECDEC_DRAFT_AUTO) &&
          !specdec__drafter_write_named_kind(&kind, SPECDEC_DRAFT_OFF));
    TEST("auto takes all that have what they need, with a rule of rejection the first; a name takes one; off takes none");
    for (i = 0; i < 6; i++) {
        static const int counts[] = {2, 1, 1, 1, 0, 1};
        static const specdec_drafting chosen[] = {SPECDEC_DRAFT_AUTO, SPECDEC_DRAFT_AUTO, SPECDEC_DRAFT_MODEL,
                                                  SPECDEC_DRAFT_NGRAM, SPECDEC_DRAFT_OFF, SPECDEC_DRAFT_AUTO};

        c = config_of(i == 5 ? 1.0f : 0);
        c.rule = i == 5 ? SPECDEC_RULE_SEQUOIA : SPECDEC_RULE_COUPLED;
        c.drafting = chosen[i];
        c.draft.data = i == 1 ? NULL : c.draft.data;
        CHECK(!specdec_memory_needed(&c, &bytes, &failure));
        block = malloc(bytes);
        CHECK(!specdec_init(&e, &c, block, bytes, &failure));
        CHECK_EQUAL_INT(e->engine->drafter_count, counts[i]);
        CHECK_EQUAL_INT(e->engine->tune->count, counts[i]);
        specdec_deinit(e);
        free(block);
    }
    TEST("a drafter without its model is refused by its name");
    c = config_of(0);
    c.draft.data = NULL;
    c.drafting = SPECDEC_DRAFT_MODEL;
    CHECK_EQUAL_INT(specdec_memory_needed(&c, &bytes, &failure), SPECDEC_ERROR_ARGUMENT);
    CHECK(strstr(failure.text, "\"draft\"") != NULL);
    TEST("what a drafter needs is in the memory that is asked for, only when it drafts");
    c = config_of(0);
    CHECK(!specdec_memory_needed(&c, &plain, &failure));
    c.drafting = SPECDEC_DRAFT_NGRAM;
    CHECK(!specdec_memory_needed(&c, &bytes, &failure));
    CHECK(bytes > plain + (size_t)TEXT * (SPECDEC__NGRAM_LONGEST_CONTEXT + 1) * sizeof(specdec__ngram_run));
    c.drafting = SPECDEC_DRAFT_AUTO;
    CHECK(!specdec_memory_needed(&c, &both, &failure));
    CHECK(both > bytes);
}

/* What is thought of a drafter: a node's third child, once those before it were rejected, is accepted more often than
   they are. */
static void expect_third(specdec__engine *e)
{
    specdec__tune_drafter *d = &e->tune->drafters[0];
    int i;

    for (i = 0; i < SPECDEC__TUNE_RANKS; i++) {
        d->offered[i] = 1000;
        d->accepted[i] = i == 0 ? 300 : i == 2 ? 900 : 100;
    }
    d->level.seconds = 1e-9; /* and it costs nothing */
    d->level.seen = 7;
    d->credit = 1e9;
}

/* Children that were drawn of which one was dropped that had been drawn before them. */
static int drawn_behind_dropped(const specdec *t)
{
    const specdec__proposal *p = &t->engine->drafters[0].proposals[t->at];
    int i, k, count = 0;

    for (i = 1; i < p->drafts.tree.n; i++)
        for (k = 1; k < i; k++)
            count += p->drafts.tree.parents[k] == p->drafts.tree.parents[i] && p->drafts.tokens[k] >= 0 && p->outcome.merged_node[k] < 0 && p->outcome.merged_node[i] >= 0;
    return count;
}

/* Behind the prompt, two texts that share steps, with draws from other seeds each time. */
static void test_drawn(void)
{
    const int draws = getenv("SPECDEC_QUICK") ? 800 : 1500;
    specdec_config c = config_of(0.35f);
    int i, k, out_of_turn = 0, offered = 0;
    long counts[512] = {0};
    double exact[512];
    float logits[512];
    specdec *first = NULL, *second = NULL, *both[2];
    size_t bytes;
    void *block;

    c.drafting = SPECDEC_DRAFT_AUTO;
    c.rule = SPECDEC_RULE_SEQUOIA;
    c.sequences = 2;
    c.tree_size = 8;
    CHECK(!specdec_memory_needed(&c, &bytes, &failure));
    block = malloc(bytes);
    CHECK(!specdec_init(&first, &c, block, bytes, &failure) && !specdec_open(first, &second));
    CHECK(!specdec_prompt_tokens(first, prompt, PROMPT) && !specdec_logits(first, NULL, NULL, 0, logits));
    CHECK(first->model->vocab_size <= 512);
    for (i = 0; i < first->model->vocab_size; i++)
        exact[i] = exp((double)(logits[i] - logits[0]) / (double)c.settings.sampling.temperature);
    CHECK(!specdec_prompt_tokens(second, prompt, PROMPT) && !specdec_work(first) && !specdec_work(first));
    both[0] = first;
    both[1] = second;
    for (i = 0; i < draws; i++) {
        for (k = 0; k < 2; k++) {
            specdec_rewind(both[k], PROMPT - 1);
            specdec_prompt_tokens(both[k], prompt + PROMPT - 1, 1);
            both[k]->settings.sampling.temperature = c.settings.sampling.temperature;
            both[k]->settings.sampling.seed = (uint64_t)(2 * i + k + 1);
        }
        while (first->count == PROMPT) {
            expect_third(first->engine);
            for (k = 0; k < 2; k++)
                first->engine->drafters[0].proposals[k].cost.idle_steps = 0;
            CHECK(!specdec_work(first));
        }
        out_of_turn += drawn_behind_dropped(first) + drawn_behind_dropped(second);
        offered += first->merged.tree.n > 1;
        counts[first->tokens[PROMPT]]++;
    }
    TEST("of what was drawn without replacement for several texts, nothing is verified without what was drawn before it");
    CHECK_EQUAL_INT(out_of_turn, 0);
    printf("  %d texts, %d with guesses, %d out of turn, p = %g\n", draws, offered, out_of_turn,
           statistics_p_value(counts, exact, first->model->vocab_size));
    CHECK(offered > draws / 2);
    TEST("and the texts have the target's distribution");
    CHECK(statistics_p_value(counts, exact, first->model->vocab_size) > 1e-5);
    specdec_deinit(first);
    free(block);
}

/* Where the target draws for itself, a guess that comes twice is lost. */
static void test_top_k(void)
{
    specdec_config c = config_of(0.5f); /* few tokens are probable */
    int twice = 0, nodes = 0, i, k, count;
    const int32_t *tokens;
    size_t bytes;
    void *block;
    specdec *e;

    TEST("static trees of the top-k rule hold a node's likeliest children, none of them twice");
    c.drafting = SPECDEC_DRAFT_MODEL;
    c.rule = SPECDEC_RULE_TOP_K;
    CHECK(!specdec_memory_needed(&c, &bytes, &failure));
    block = malloc(bytes);
    CHECK(!specdec_init(&e, &c, block, bytes, &failure));
    CHECK(!specdec_prompt_tokens(e, prompt, PROMPT));
    while (!specdec_step(e, &tokens, &count)) {
        const specdec__proposal *p = &e->engine->drafters[0].proposals[0];

        for (i = 1; i < p->drafts.tree.n; i++, nodes++)
            for (k = 1; k < i; k++)
                twice += p->drafts.tree.parents[k] == p->drafts.tree.parents[i] && p->drafts.tokens[k] == p->drafts.tokens[i];
    }
    CHECK(nodes > 100);
    CHECK_EQUAL_INT(twice, 0);
    specdec_deinit(e);
    free(block);
}

/* One with a price whose every guess for text 1 comes true; for text 0 it would have to read for a long time first. */
static int late_behind(const specdec__drafter *d, int at, int count)
{
    (void)d;
    return at ? 0 : count + 1000;
}

static specdec_result late_fill(specdec__drafter *d, const specdec__draft_request *request, specdec__draft_tree *drafts, specdec_error *error)
{
    const oracle *o = (const oracle *)d->state;
    int i;

    (void)error;
    for (i = 1; i < drafts->tree.n; i++)
        drafts->tokens[i] = drafts->tree.ranks[i] == 1 && request->count + drafts->depth[i] <= o->count ? o->text[request->count + drafts->depth[i] - 1] : -1;
    return SPECDEC_OK;
}

static void late_kind(specdec__drafter_kind *kind)
{
    kind->draws = 1;
    kind->size = kind->depth = 8;
    kind->init = oracle_init;
    kind->fill_tree = late_fill;
    kind->level_cost = liar_cost;
    kind->count_unprefilled = late_behind;
}

/* With several texts each waits for itself. */
static void test_late(void)
{
    static int32_t text[TEXT];
    specdec__arena arena = {room, sizeof room, 0};
    specdec_config c = config_of(0);
    specdec__drafter_kind kind;
    specdec *first = NULL, *second = NULL;
    specdec_stats stats;
    size_t bytes;
    void *block;

    know(&c, text);
    c.sequences = 2;
    TEST("a drafter that does not pay for one text is asked for the other one all the same");
    CHECK(!specdec_memory_needed(&c, &bytes, &failure));
    block = malloc(bytes);
    CHECK(!specdec_init(&first, &c, block, bytes, &failure) && !specdec_open(first, &second));
    first->engine->config.drafting = SPECDEC_DRAFT_AUTO;
    specdec__drafter_write_kind(&kind, late_kind);
    CHECK(!specdec__engine_add_drafter(first->engine, &kind, SPECDEC_DRAFT_MODEL, &arena, &first->error));
    first->engine->tune->drafters[0].token_prefill.seconds = 1;
    CHECK(!specdec_prompt_tokens(first, prompt, PROMPT) && !specdec_prompt_tokens(second, prompt, PROMPT));
    for (bytes = 0; bytes < 12; bytes++) {
        specdec_text piece;

        CHECK(!specdec_work(first));
        while (!specdec_take(first, &piece) || !specdec_take(second, &piece))
            continue;
    }
    specdec_get_stats(second, &stats);
    printf("  %d tokens in %d steps\n", (int)stats.tokens, (int)stats.steps);
    CHECK(stats.tokens > 5 * stats.steps);
    specdec_get_stats(first, &stats);
    CHECK(stats.tokens <= stats.steps + 1);
    specdec_deinit(first);
    free(block);
}

/* Who chooses how trees come about, when the caller does not. */
static void test_policy(void)
{
    static int32_t text[TEXT];
    specdec_stats stats[SPECDEC_POLICY_COUNT];
    specdec_config c = config_of(0);
    int drafting, policy;

    TEST("trees of a named drafter are static, those of the engine's choice grow, if the caller does not say");
    for (drafting = 0; drafting < 2; drafting++) {
        const specdec_policy same = drafting ? SPECDEC_POLICY_DYNAMIC : SPECDEC_POLICY_STATIC;

        for (policy = 0; policy < SPECDEC_POLICY_COUNT; policy++) {
            size_t bytes;
            void *block;
            specdec *e;

            c.policy = (specdec_policy)policy;
            c.drafting = drafting ? SPECDEC_DRAFT_AUTO : SPECDEC_DRAFT_MODEL;
            CHECK(!specdec_memory_needed(&c, &bytes, &failure));
            block = malloc(bytes);
            CHECK(!specdec_init(&e, &c, block, bytes, &failure));
            CHECK(!specdec_prompt_tokens(e, prompt, PROMPT));
            write_all(e, text);
            specdec_get_stats(e, &stats[policy]);
            specdec_deinit(e);
            free(block);
        }
        CHECK(memcmp(stats[SPECDEC_POLICY_AUTO].trees, stats[same].trees, sizeof stats->trees) == 0);
        CHECK_EQUAL_INT(stats[SPECDEC_POLICY_AUTO].drafted, stats[same].drafted);
        CHECK(memcmp(stats[SPECDEC_POLICY_STATIC].trees, stats[SPECDEC_POLICY_DYNAMIC].trees, sizeof stats->trees) != 0);
    }
}

int main(void)
{
    maker_recipe r;
    int i;

    memset(&r, 0, sizeof r);
    r.seed = 11;
    r.output_type = 1;
    for (i = 0; i < 2; i++, r.noise = 0.25f)
        files[i] = maker_model(&r, &sizes[i]);
    test_merge();
    test_share_out();
    test_lists();
    test_own_row();
    test_orders();
    test_policy();
    test_late();
    test_top_k();
    test_drawn();
    free(files[0]);
    free(files[1]);
    return check_report("test_draft");
}
