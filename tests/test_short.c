/* test_short.c - a short vocabulary of a drafter's own: its rows are those of the output matrix, bit for bit; tokens that a text has
   get rows; no text depends on it; it is used where it pays.
   cc -O2 -pthread -I. test_short.c, run from the repository's root; SPECDEC_QUICK=1 shortens. test_short time: what a level with
   151,936 tokens takes. */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "check.h"
#include "gguf_maker.h"
#include "machine.h"

enum { CONTEXT_TOKENS = 130, VOCAB = 301, ROWS = 64 };

static file target, draft, layer;
static int quick;

/* A draft model, a layer that reads states, a block of the target. */
enum { MODEL, LAYER, BLOCK, DRAFTERS };

static specdec_config config_of(int drafter, int rows)
{
    static const specdec_drafting draftings[DRAFTERS] = {SPECDEC_DRAFT_MODEL, SPECDEC_DRAFT_HEADS, SPECDEC_DRAFT_MTP};
    specdec_config c;

    memset(&c, 0, sizeof c);
    c.target = source_of(&target);
    c.draft = source_of(&draft);
    c.heads = source_of(&layer);
    c.threads = 1;
    c.context = CONTEXT_TOKENS;
    c.drafting = draftings[drafter];
    c.draft_vocabulary = rows;
    return c;
}

static void make_models(void)
{
    maker_recipe r;

    target = random_predicting(2, 0);
    draft = random_model(2, 0.1f, 0);
    memset(&r, 0, sizeof r);
    r.architecture = "eagle3";
    r.embedding = 32;
    r.seed = 6;
    r.reads[0] = 2;
    r.output_type = 1;
    layer = random_file(&r);
}

static specdec__level_state *levels_of(const machine *m) { return (specdec__level_state *)m->first->engine->drafters[0].state; }

/* The drafter's row behind the text. */
static const float *row_of(machine *m)
{
    specdec__drafter *d = &m->first->engine->drafters[0];
    specdec__proposal *p = &d->proposals[0];

    m->first->engine->pool.cancel = &m->first->engine->never_cancelled;
    specdec__draft_begin_proposal(p, m->first->tokens, m->first->count, &m->first->settings.sampling, SPECDEC_RULE_COUPLED);
    CHECK_EQUAL_INT(specdec__draft_begin_tree(d, &p->request, &p->drafts, &failure), SPECDEC_OK);
    return levels_of(m)->logits;
}

/* Every type of weights, in place and in tiles: rows behind texts whose tokens have pushed others out. */
static void test_rows(void)
{
    static const int types[] = {0, 1, 8, 2, 14, 3};
    int32_t tokens[3];
    machine whole, brief;
    int i, k, drafter;

    TEST("rows of a short vocabulary are those of the output matrix, bit for bit, and tokens of the text are among them");
    for (i = 0; i < 6; i++)
        for (drafter = 0; drafter < DRAFTERS; drafter++) {
            const file own = target, other = draft;
            specdec_config c;
            maker_recipe r;
            uint64_t random = 5;
            int turn, wrong = 0, missing = 0;

            memset(&r, 0, sizeof r);
            r.seed = 11;
            r.nextn = 1;
            r.embedding = types[i] == 14 ? 256 : 32;
            r.output_type = 1 + types[i];
            target = random_file(&r);
            draft = random_file(&r);
            c = config_of(drafter, -1);
            c.weights_in_place = i % 2;
            if (drafter != LAYER || r.embedding == 32) {
                if (!open_machine(&whole, &c))
                    return;
                c.draft_vocabulary = ROWS;
                if (!open_machine(&brief, &c))
                    return;
                CHECK(!levels_of(&whole)->short_rows && levels_of(&brief)->short_rows);
                for (turn = 0; turn < (quick ? 8 : 30); turn++) {
                    const float *all, *some;
                    const specdec__level_state *m = levels_of(&brief);

                    for (k = 0; k < 3; k++)
                        tokens[k] = 3 + (int32_t)(maker_random(&random) % (VOCAB - 3));
                    CHECK_EQUAL_INT(specdec_prompt_tokens(whole.first, tokens, 3), SPECDEC_OK);
                    CHECK_EQUAL_INT(specdec_prompt_tokens(brief.first, tokens, 3), SPECDEC_OK);
                    all = row_of(&whole);
                    some = row_of(&brief);
                    CHECK_EQUAL_INT(m->id_count, ROWS);
                    for (k = 0; k < ROWS; k++)
                        wrong += memcmp(&some[k], &all[m->ids[k]],
                                        sizeof *all) != 0 || m->short_rows->row_of_token[m->ids[k]] != k;
                    for (k = 0; k < 3; k++)
                        missing += m->short_rows->row_of_token[tokens[k]] < 0;
                }
                CHECK_EQUAL_INT(wrong, 0);
                CHECK_EQUAL_INT(missing, 0);
                close_machine(&whole);
                close_machine(&brief);
            }
            free(target.data);
            free(draft.data);
            target = own;
            draft = other;
        }
}

/* Writes until the context is full. Returns how many tokens there are. */
static int answer(specdec *t, int32_t *text)
{
    const int32_t *tokens;
    int32_t prompt[20];
    specdec_text piece;
    int count, i;

    for (i = 0; i < 20; i++)
        prompt[i] = 3 + (i * i * 7) % 290;
    CHECK_EQUAL_INT(specdec_rewind(t, 0), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_prompt_tokens(t, prompt, 20), SPECDEC_OK);
    while (specdec_next(t, &piece) == SPECDEC_OK)
        continue;
    specdec_tokens(t, &tokens, &count);
    memcpy(text, tokens, (size_t)count * sizeof *text);
    return count;
}

static void test_texts(void)
{
    static int32_t plain[CONTEXT_TOKENS], got[CONTEXT_TOKENS];
    long long accepted = 0, drafted = 0;
    int drafter, run, count;
    machine m;

    TEST("no text depends on the short vocabulary: greedy and sampled, static trees and grown ones, alone and asynchronously");
    for (drafter = 0; drafter < DRAFTERS; drafter++)
        for (run = 0; run < 8; run++) {
            specdec_config c = config_of(drafter, 0);

            c.drafting = SPECDEC_DRAFT_OFF;
            c.settings.sampling.temperature = run % 2 ? 3.0f : 0;
            c.settings.sampling.seed = (uint64_t)run;
            if (!open_machine(&m, &c))
                return;
            count = answer(m.first, plain);
            close_machine(&m);
            c.drafting = config_of(drafter, 0).drafting;
            c.draft_vocabulary = run & 4 ? 32 : 160;
            c.policy = run & 2 ? SPECDEC_POLICY_DYNAMIC : SPECDEC_POLICY_STATIC;
            c.threads = 1 + run / 4;
            c.async = run / 4;
            if (!open_machine(&m, &c))
                return;
            CHECK_EQUAL_INT(answer(m.first, got), count);
            CHECK(!memcmp(plain, got, (size_t)count * sizeof *got));
            accepted += m.first->stats.accepted;
            drafted += m.first->stats.drafted;
            close_machine(&m);
        }
    CHECK(drafted > 500);
    CHECK(accepted > 50);
}

/* The text of an assistant's target, and how many draft tokens were accepted. */
static int assisted(const file *model, const file *assistant, int rows, int32_t *text, long long *drafted)
{
    specdec_config c;
    machine m;
    int count = 0;

    memset(&c, 0, sizeof c);
    c.target = source_of(model);
    c.draft = source_of(assistant);
    c.threads = 1;
    c.context = CONTEXT_TOKENS;
    c.drafting = rows ? SPECDEC_DRAFT_MODEL : SPECDEC_DRAFT_OFF;
    c.draft_vocabulary = rows;
    if (open_machine(&m, &c)) {
        CHECK(rows <= 0 || levels_of(&m)->short_rows);
        count = answer(m.first, text);
        *drafted = m.first->stats.drafted;
        close_machine(&m);
    }
    return count;
}

static void test_assistant(void)
{
    static int32_t plain[CONTEXT_TOKENS], got[CONTEXT_TOKENS];
    char path[512];
    file model, assistant;
    long long drafted = 0;
    int count;

    TEST("an assistant that reads the target's keys drafts with it, and changes no text");
    model.data = check_read_file(check_shared(path, sizeof path, "modern/gemma4-dense-f32.gguf"), &model.size);
    assistant.data = check_read_file(check_shared(path, sizeof path, "modern/gemma4-assistant-draft-f32.gguf"), &assistant.size);
    if (!model.data || !assistant.data) {
        SKIP("../shared/modern is not there");
    } else {
        count = assisted(&model, &assistant, 0, plain, &drafted);
        CHECK_EQUAL_INT(assisted(&model, &assistant, 256, got, &drafted), count);
        CHECK(!memcmp(plain, got, (size_t)count * sizeof *got));
        CHECK(drafted > 50);
    }
    free(model.data);
    free(assistant.data);
}

static void test_rules(void)
{
    int rule, drafter, i;
    machine m;

    TEST("every rule of verification drafts with it, and nothing is proposed that it lacks");
    for (rule = SPECDEC_RULE_COUPLED; rule < SPECDEC_RULE_GREEDY; rule++)
        for (drafter = 0; drafter < DRAFTERS; drafter++) {
            specdec_config c = config_of(drafter, ROWS);
            const int32_t *tokens;
            int32_t prompt = 5;
            int count, lacking = 0, steps = 0;

            c.rule = (specdec_rule)rule;
            c.settings.sampling.temperature = 2;
            if (!open_machine(&m, &c))
                return;
            CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, &prompt, 1), SPECDEC_OK);
            while (specdec_step(m.first, &tokens, &count) == SPECDEC_OK && steps++ < 60) {
                const specdec__proposal *p = &m.first->engine->drafters[0].proposals[0];

                for (i = 1; i < p->drafts.tree.n; i++)
                    lacking += p->drafts.tokens[i] >= 0 &&
                               levels_of(&m)->short_rows->row_of_token[p->drafts.tokens[i]] < 0;
            }
            CHECK(steps > 10);
            CHECK_EQUAL_INT(lacking, 0);
            close_machine(&m);
        }
}

static void test_memory(void)
{
    specdec_config c = config_of(MODEL, -1);
    size_t bytes[3];

    TEST("it takes memory for its rows, which the query counts; none where all rows are wanted, or few would be left out");
    CHECK_EQUAL_INT(specdec_memory_needed(&c, &bytes[0], &failure), SPECDEC_OK);
    c.draft_vocabulary = ROWS;
    CHECK_EQUAL_INT(specdec_memory_needed(&c, &bytes[1], &failure), SPECDEC_OK);
    c.draft_vocabulary = 0;
    CHECK_EQUAL_INT(specdec_memory_needed(&c, &bytes[2], &failure), SPECDEC_OK);
    CHECK(bytes[1] > bytes[0] + ROWS * 32 * 4);
    CHECK_EQUAL_INT(bytes[2], bytes[0]);
    c.draft_vocabulary = 1 << 24;
    CHECK_EQUAL_INT(specdec_memory_needed(&c, &bytes[2], &failure), SPECDEC_OK);
    CHECK_EQUAL_INT(bytes[2], bytes[0]);
    c.draft_vocabulary = -2;
    refused("fewer than none", &c, SPECDEC_ERROR_ARGUMENT, "draft_vocabulary");
}

/* Decisions by times and misses that are made up. */
static void test_choice(void)
{
    static specdec__short_vocabulary s;
    static specdec__matrix full;
    int i, on[2] = {0, 0};

    TEST("it is used while it promises more tokens a second than the whole matrix, by times and misses that were measured");
    full.rows = 32000;
    full.row_bytes = 100;
    s.full_matrix = &full;
    s.matrix.rows = 8000;
    s.mean_levels = 4;
    s.in_use = 1;
    for (i = 0; i < 2; i++) {
        s.seconds[0] = 0.010;
        s.seconds[1] = 0.002;
        s.written_tokens = 100;
        s.missed_tokens = i ? 60 : 1; /* most tokens are missed: then only the whole matrix is worth its time */
        s.tree_count = 10;
        specdec__short_vocabulary_choose_matrix(&s, 0.1);
        on[i] = s.in_use;
    }
    CHECK_EQUAL_INT(on[0], 1);
    CHECK_EQUAL_INT(on[1], 0);
    s.seconds[0] = s.seconds[1] = 0.002; /* no faster */
    s.missed_tokens = 1;
    specdec__short_vocabulary_choose_matrix(&s, 0.1);
    CHECK_EQUAL_INT(s.in_use, 0);
    s.seconds[1] = 0; /* never seen: by the bytes of weights */
    specdec__short_vocabulary_choose_matrix(&s, 0.1);
    CHECK_EQUAL_INT(s.in_use, 1);
    for (i = 0, on[0] = 0; i < 4 * SPECDEC__SHORT_TRIAL_TREES; i++) {
        specdec__short_vocabulary_choose_matrix(&s, 0.1);
        on[0] += !s.in_use;
    }
    CHECK_EQUAL_INT(on[0], 4); /* the whole matrix is looked at now and then */
}

/* Seconds of a level, with a short vocabulary and without. */
static void test_time(void)
{
    double seconds[2] = {1e9, 1e9};
    maker_recipe r;
    machine m[2];
    int i, k;

    TEST("a level with 151,936 tokens takes a fifth of the time, or less");
    memset(&r, 0, sizeof r);
    r.layers = 1;
    r.embedding = 512;
    r.types[0] = 1 + 8;
    r.output_type = 1 + 8;
    r.vocab = 151936;
    free(target.data);
    free(draft.data);
    target = random_file(&r);
    draft = target;
    for (i = 0; i < 2; i++) {
        specdec_config c = config_of(MODEL, i ? -1 : 0);
        int32_t prompt[] = {5, 9, 70};

        c.batch = 4;
        if (!open_machine(&m[i], &c))
            return;
        CHECK_EQUAL_INT(specdec_prompt_tokens(m[i].first, prompt, 3), SPECDEC_OK);
    }
    CHECK(levels_of(&m[0])->short_rows && !levels_of(&m[1])->short_rows);
    for (k = 0; k < 30; k++)
        for (i = 0; i < 2; i++) {
            specdec__drafter *d = &m[i].first->engine->drafters[0];
            specdec__proposal *p = &d->proposals[0];
            double start;

            if (levels_of(&m[i])->short_rows)
                levels_of(&m[i])->short_rows->always_in_use = 1;
            row_of(&m[i]);
            CHECK_EQUAL_INT(specdec_tree_chains(&p->drafts.tree, 1, 4, NULL), SPECDEC_OK);
            p->drafts.depth[1] = 1;
            start = specdec__os_monotonic_seconds();
            specdec__draft_set_tokens_of_children(levels_of(&m[i]), &p->request, &p->drafts, 0, 0); /* chosen, and run */
            {
                const int32_t one = 1;

                CHECK_EQUAL_INT(specdec__draft_run_candidates(d, &p->request, &p->drafts, &one, 0, 1, &failure),
                                SPECDEC_OK);
            }
            seconds[i] = fmin(seconds[i], specdec__os_monotonic_seconds() - start);
        }
    printf("  a level: %.3f ms with %d rows, %.3f ms with all: %.2f times as fast\n", 1e3 * seconds[0], levels_of(&m[0])->short_rows->matrix.rows,
           1e3 * seconds[1], seconds[1] / seconds[0]);
    CHECK(seconds[1] > 5 * seconds[0]);
    close_machine(&m[0]);
    close_machine(&m[1]);
}

int main(int argc, char **argv)
{
    quick = check_depth() == 0;
    make_models();
    if (argc > 1 && !strcmp(argv[1], "time")) {
        test_time();
        return check_report("test_short");
    }
    test_rows();
    test_texts();
    test_assistant();
    test_rules();
    test_memory();
    test_choice();
    return check_report("test_short");
}
