/* test_engine.c - the promises of the engine: the text never depends on drafts, trees, threads, batches, cancellations or
   history; memory is what was asked for; a failed call changes nothing.
   cc -O2 -pthread -I. test_engine.c, run from the repository's root; SPECDEC_QUICK=1 shortens. */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "check.h"
#include "gguf_maker.h"
#include "pages.h"
#include <pthread.h>
#include <time.h>
#include <unistd.h>

static specdec_error failure; /* of the last call that failed before there was an engine */

#define MOST 2048 /* bytes and tokens of an answer here, at most */

static int quick;

/* --- engines and their answers --------------------------------------------------------------------------------------- */

typedef struct session {
    specdec *engine;
    specdec_config config;
    void *block;
    size_t bytes;
} session;

static specdec_result open_session(session *s, const specdec_config *config)
{
    specdec_result r;

    memset(s, 0, sizeof *s);
    s->config = *config;
    r = specdec_memory_needed(&s->config, &s->bytes, &failure);
    if (!r) {
        s->block = malloc(s->bytes);
        memset(s->block, 0xA5, s->bytes);
        r = specdec_init(&s->engine, &s->config, s->block, s->bytes, &failure);
    }
    if (r)
        fprintf(stderr, "open: %s\n", failure.text);
    return r;
}

static void close_session(session *s)
{
    specdec_deinit(s->engine);
    if (s->block)
        memset(s->block, 0x5A, s->bytes);
    free(s->block);
    memset(s, 0, sizeof *s);
}

/* What was written: all tokens of the engine, the bytes handed out. */
typedef struct answer {
    int32_t tokens[MOST];
    int count;
    char text[8 * MOST];
    size_t length;
    int cancelled; /* calls that returned so */
} answer;

static void take_tokens(specdec *e, answer *a)
{
    const int32_t *tokens;

    specdec_tokens(e, &tokens, &a->count);
    if (a->count > MOST)
        abort();
    memcpy(a->tokens, tokens, (size_t)a->count * sizeof *tokens);
}

static int token_count(specdec *e)
{
    const int32_t *tokens;
    int count;

    specdec_tokens(e, &tokens, &count);
    return count;
}

/* Reads on until the answer ends; cancelled calls are repeated and must have changed nothing. */
static specdec_result read_on(specdec *e, answer *a)
{
    specdec_text piece;
    specdec_result r;

    do {
        r = specdec_next(e, &piece);
        if (r == SPECDEC_OK)
            CHECK(piece.length > 0);
        if (r == SPECDEC_ERROR_CANCELLED) {
            a->cancelled++;
            CHECK_EQUAL_INT(piece.length, 0);
            continue;
        }
        if (r != SPECDEC_OK && r != SPECDEC_DONE)
            fprintf(stderr, "next: %s\n", specdec_error_text(e));
        if (a->length + piece.length > sizeof a->text)
            abort();
        memcpy(a->text + a->length, piece.bytes, piece.length);
        a->length += piece.length;
    } while (r == SPECDEC_OK || r == SPECDEC_ERROR_CANCELLED);
    take_tokens(e, a);
    return r;
}

static int same_answer(const answer *a, const answer *b)
{
    int i;

    for (i = 0; i < a->count && i < b->count && a->tokens[i] == b->tokens[i]; i++)
        ;
    if (a->count != b->count || i < a->count) {
        fprintf(stderr, "tokens differ at %d (of %d and %d)\n", i, a->count, b->count);
        return 0;
    }
    if (a->length != b->length || memcmp(a->text, b->text, a->length) != 0) {
        fprintf(stderr, "texts differ: %d and %d bytes\n", (int)a->length, (int)b->length);
        return 0;
    }
    return 1;
}

/* The whole of a conversation of one prompt. */
static int answer_to(const specdec_config *config, const char *prompt, answer *a)
{
    session s;
    int good = 0;

    memset(a, 0, sizeof *a);
    if (!open_session(&s, config)) {
        specdec_result r = specdec_prompt(s.engine, prompt, SPECDEC_WHOLE_STRING);

        if (r)
            fprintf(stderr, "prompt: %s\n", specdec_error_text(s.engine));
        good = !r && read_on(s.engine, a) == SPECDEC_DONE;
    }
    close_session(&s);
    return good;
}

/* --- models ----------------------------------------------------------------------------------------------------------- */

typedef struct model_file {
    unsigned char *data;
    size_t size;
} model_file;

enum { PLAIN, NOISY, FOREIGN, QUANTISED, MODELS };
static model_file models[MODELS];

static void make_models(void)
{
    maker_recipe r;

    memset(&r, 0, sizeof r);
    r.seed = 11;
    r.output_type = 1;
    r.may_end = 0;
    models[PLAIN].data = maker_model(&r, &models[PLAIN].size);
    r.noise = 0.25f;
    models[NOISY].data = maker_model(&r, &models[NOISY].size);
    memset(&r, 0, sizeof r);
    r.seed = 12;
    r.architecture = "qwen3moe";
    r.embedding = 32;
    r.layers = 1;
    models[FOREIGN].data = maker_model(&r, &models[FOREIGN].size);
    memset(&r, 0, sizeof r);
    r.seed = 13;
    r.architecture = "gemma3";
    r.layers = 6;
    r.window = 20;
    r.types[0] = 9;
    r.types[1] = 3;
    r.may_end = 1;
    models[QUANTISED].data = maker_model(&r, &models[QUANTISED].size);
}

static specdec_source source_of(int model)
{
    specdec_source s = {NULL, NULL, 0, NULL, 0};

    s.data = models[model].data;
    s.size = models[model].size;
    return s;
}

static specdec_config config_of(int target, int draft)
{
    specdec_config c;

    memset(&c, 0, sizeof c);
    c.target = source_of(target);
    if (draft >= 0)
        c.draft = source_of(draft);
    c.threads = 1;
    c.context = 256;
    c.settings.max_tokens = 100;
    return c;
}

/* --- lossless --------------------------------------------------------------------------------------------------------- */

static const specdec_bias biases[] = {{100, 3.0f}, {101, -INFINITY}, {1 << 20, 1.0f}}; /* the last one: outside of every vocabulary */
static const specdec_sampling samplings[] = {
    {.temperature = 0},
    {.repetition_penalty = 1.3f},
    {.temperature = 0.8f, .seed = 1},
    {.temperature = 0.8f, .seed = 2, .biases = biases, .bias_count = 3},
    {.temperature = 1.5f, .top_k = 20, .seed = 3},
    {.temperature = 0.7f, .top_p = 0.9f, .repetition_penalty = 1.1f, .repetition_window = 32, .seed = 4},
    {.temperature = 1.0f, .min_p = 0.1f, .repetition_penalty = 1.1f, .repetition_window = -1, .seed = 5, .biases = biases, .bias_count = 2},
    {.temperature = 1.0f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .repetition_penalty = 0.9f, .repetition_window = 8, .seed = 6},
    {.temperature = 0.9f, .seed = 7, .frequency_penalty = 0.3f, .presence_penalty = 0.2f, .dry_multiplier = 0.8f},
    {.dry_multiplier = 2.0f, .dry_base = 1.2f, .dry_allowed_length = 1, .dry_breakers = "e"},
    {.temperature = 1.2f, .seed = 8, .typical_p = 0.8f, .xtc_probability = 0.5f, .xtc_threshold = 0.05f},
    {.temperature = 1.0f, .seed = 9, .top_n_sigma = 1.5f, .temperature_range = 0.5f},
    {.temperature = 1.1f, .seed = 10, .mirostat_tau = 3.0f, .mirostat_rate = 0.3f},
    {.temperature = 1.3f, .top_k = 30, .top_p = 0.9f, .seed = 11, .dry_multiplier = 0.5f, .samplers = {SPECDEC_SAMPLER_TEMPERATURE, SPECDEC_SAMPLER_TOP_P, SPECDEC_SAMPLER_DRY, SPECDEC_SAMPLER_TOP_K}}};
static const int trees[][2] = {{0, 0}, {2, 2}, {5, 5}, {8, 3}, {16, 4}, {32, 32}, {64, 6}, {3, 2}, {9, 2}};

#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))

/* One target and one draft: drafting must not show. */
static void check_lossless(const specdec_config *base, const char *prompt, int turns)
{
    static const int threads[] = {1, 2, 4}, batches[] = {1, 3, 64};
    static answer expected, got;
    int s, t, turn = 0;

    for (s = 0; s < COUNT(samplings); s++) {
        specdec_config plain = *base;

        plain.settings.sampling = samplings[s];
        plain.drafting = SPECDEC_DRAFT_OFF;
        CHECK(answer_to(&plain, prompt, &expected));
        CHECK(expected.count > 1);
        for (t = 0; t < COUNT(trees); t++, turn++) {
            specdec_config c = *base;

            if (turn % turns)
                continue;
            c.settings.sampling = samplings[s];
            c.tree_size = trees[t][0];
            c.tree_depth = trees[t][1];
            c.threads = threads[turn % 3];
            c.batch = batches[turn / 3 % 3];
            c.weights_in_place = turn & 1;
            c.policy = (specdec_policy)(turn % 2);
            c.drafting = (specdec_drafting)(turn / 2 % 4 == 1 ? SPECDEC_DRAFT_AUTO : turn / 2 % 4 == 3 ? SPECDEC_DRAFT_NGRAM : SPECDEC_DRAFT_MODEL);
            CHECK(answer_to(&c, prompt, &got));
            CHECK(same_answer(&expected, &got));
        }
    }
}

static void test_lossless(void)
{
    static const int pairs[][2] = {{PLAIN, PLAIN}, {PLAIN, NOISY}, {PLAIN, FOREIGN}, {QUANTISED, NOISY}, {FOREIGN, FOREIGN}, {QUANTISED, QUANTISED}};
    static const char *const kv[] = {"f16", "f32", "q8_0"};
    int i;

    TEST("text with a draft is the text without, byte for byte: random models");
    for (i = 0; i < COUNT(pairs); i++) {
        specdec_config c = config_of(pairs[i][0], pairs[i][1]);

        c.kv = kv[i % 3];
        check_lossless(&c, "once upon a time there was", quick ? 11 : 2);
    }
}

static void test_examples(void)
{
    static const char target[] = "examples/models/tiny-stories-target-q8_0.gguf", draft[] = "examples/models/tiny-stories-draft-q8_0.gguf";
    size_t size;
    unsigned char *data = check_read_file(target, &size);
    specdec_config c;
    session s;
    answer a;
    specdec_stats stats;

    TEST("text with a draft is the text without, byte for byte: the pair in examples/models");
    free(data);
    if (!data) {
        SKIP("examples/models is not here");
        return;
    }
    memset(&c, 0, sizeof c);
    c.target.path = target;
    c.draft.path = draft;
    c.threads = 1;
    c.settings.max_tokens = quick ? 20 : 80;
    check_lossless(&c, "Once upon a time", quick ? 17 : 7);
    TEST("a good draft makes steps of several tokens");
    c.drafting = SPECDEC_DRAFT_MODEL; /* auto may find that it does not pay, beside others */
    CHECK(!open_session(&s, &c));
    memset(&a, 0, sizeof a);
    CHECK(!specdec_prompt(s.engine, "Once upon a time", SPECDEC_WHOLE_STRING));
    read_on(s.engine, &a);
    specdec_get_stats(s.engine, &stats);
    CHECK(stats.tokens > stats.steps && stats.accepted > 0 && stats.drafted >= stats.accepted);
    close_session(&s);
}

static void test_perfect_draft(void)
{
    specdec_config c = config_of(PLAIN, PLAIN);
    session s;
    answer a;
    specdec_stats stats;

    TEST("a draft that is the target is always right, greedy and sampled");
    for (c.settings.sampling.temperature = 0; c.settings.sampling.temperature < 1; c.settings.sampling.temperature += 0.9f) {
        c.tree_size = c.tree_depth = 5;
        c.drafting = SPECDEC_DRAFT_MODEL;
        memset(&a, 0, sizeof a);
        CHECK(!open_session(&s, &c));
        CHECK(!specdec_prompt(s.engine, "abc", SPECDEC_WHOLE_STRING));
        read_on(s.engine, &a);
        specdec_get_stats(s.engine, &stats);
        CHECK_EQUAL_INT(stats.accepted, stats.drafted);
        CHECK(stats.steps <= 1 + (stats.tokens + 4) / 5);
        CHECK_EQUAL_INT(stats.offered_by_rank[0], stats.accepted_by_rank[0]);
        close_session(&s);
    }
}

/* One answer, and what the engine did for it. */
static void count_answer(const specdec_config *c, answer *a, specdec_stats *stats)
{
    session s;

    memset(a, 0, sizeof *a);
    memset(stats, 0, sizeof *stats);
    if (!open_session(&s, c)) {
        CHECK_EQUAL_INT(specdec_prompt(s.engine, "once upon a time", SPECDEC_WHOLE_STRING), SPECDEC_OK);
        CHECK_EQUAL_INT(read_on(s.engine, a), SPECDEC_DONE);
        specdec_get_stats(s.engine, stats);
    } else {
        CHECK(0);
    }
    close_session(&s);
}

static void check_tree_counts(const specdec_stats *stats, const specdec_config *c)
{
    int64_t steps = stats->steps_other_trees;
    int i;

    for (i = 0; i < SPECDEC_STATS_TREES; i++) {
        const specdec_tree_count *t = &stats->trees[i];

        steps += t->steps;
        CHECK(i == 0 || t->steps <= t[-1].steps);
        CHECK(t->steps == 0 || (t->nodes >= 1 && t->nodes <= c->tree_size && t->levels >= 1 && t->levels <= t->nodes && t->levels <= c->tree_depth));
    }
    CHECK_EQUAL_INT(steps, stats->steps);
}

static void test_policies(void)
{
    static const specdec_drafting drafting[] = {SPECDEC_DRAFT_AUTO, SPECDEC_DRAFT_MODEL};
    static answer expected, got;
    specdec_config c = config_of(PLAIN, NOISY);
    specdec_stats stats;
    int policy, size, sampled, k;

    for (sampled = 0; sampled < 2; sampled++) {
        c.settings.sampling.temperature = sampled ? 0.8f : 0;
        c.drafting = SPECDEC_DRAFT_OFF;
        c.tree_size = c.tree_depth = 0;
        count_answer(&c, &expected, &stats);
        TEST("plain decoding counts trees of one node");
        CHECK(stats.trees[0].nodes == 1 && stats.trees[0].levels == 1 && stats.trees[0].steps == stats.steps && !stats.steps_other_trees);
        for (policy = 0; policy < SPECDEC_POLICY_COUNT; policy++)
            for (size = 2; size <= 64; size *= quick ? 8 : 2)
                for (k = 0; k < 2; k++) {
                    c.policy = (specdec_policy)policy;
                    c.drafting = drafting[k];
                    c.tree_size = size;
                    c.tree_depth = size < 7 ? size : 2 + size % 7;
                    count_answer(&c, &got, &stats);
                    TEST("static and dynamic trees give the text of plain decoding, greedy and coupled");
                    CHECK(same_answer(&expected, &got));
                    TEST("the trees that were counted are as many as the steps, and no larger than allowed");
                    check_tree_counts(&stats, &c);
                    CHECK(k == 0 || stats.steps_by_drafter[SPECDEC_DRAFT_MODEL] > 0);
                }
    }
}

/* Of so many drafters, a level of which costs a tenth of a step. */
static specdec__tune tune_of(int count)
{
    specdec__tune tune;

    memset(&tune, 0, sizeof tune);
    while (count--)
        specdec__tune_add_drafter(&tune, 0.1, 0);
    return tune;
}

/* One step by the tune alone: a plain one takes 1 second, one with a guess 1.2, drafting it .1. */
static void settle(specdec__tune *tune, int drafter, int speculates, int came)
{
    specdec__tune_outcome outcome;

    memset(&outcome, 0, sizeof outcome);
    outcome.base = outcome.sequences = 1;
    outcome.nodes[drafter] = speculates;
    outcome.accepted[drafter] = came;
    outcome.drafting[drafter] = speculates ? 0.1 : 0;
    outcome.seconds = speculates ? 1.2 : 1;
    if (speculates)
        specdec__tune_add_step_time(tune, 2, 1.2, 1);
    specdec__tune_update_credit(tune, &outcome);
}

/* A drafter none of whose guesses come true, then one whose guesses all do. */
static void test_credit(void)
{
    specdec__tree_plan plan;
    int drafter;

    memset(&plan, 0, sizeof plan);
    plan.plain_rate = 1;
    TEST("a drafter that never pays costs a four-hundredth of the time and half a step; one that pays is not held back");
    for (drafter = 0; drafter < SPECDEC__MAX_DRAFTERS; drafter++) {
        specdec__tune tune = tune_of(SPECDEC__MAX_DRAFTERS);
        double lost = 0;
        int i, asked = 0;

        specdec__tune_add_step_time(&tune, 1, 1.0, 1);
        for (i = 0; i < 4000; i++) {
            int speculates = !specdec__tune_drafter_must_rest(&tune, drafter, &plan, 1.0);

            settle(&tune, drafter, speculates, 0);
            lost += speculates ? 0.3 : 0;
            asked += speculates;
        }
        CHECK(asked > 10);
        CHECK(lost < 0.003 * 4000 + 1);
        for (i = 0, asked = 0; i < 400; i++) {
            int speculates = !specdec__tune_drafter_must_rest(&tune, drafter, &plan, 1.6);

            settle(&tune, drafter, speculates, speculates);
            asked += speculates;
        }
        CHECK(asked > 300);
    }

    TEST("a drafter does not answer for the losses of another");
    {
        specdec__tune tune = tune_of(2);
        int i;

        specdec__tune_add_step_time(&tune, 1, 1.0, 1);
        for (i = 0; i < 100; i++)
            settle(&tune, 1, 1, 0);
        CHECK(specdec__tune_drafter_must_rest(&tune, 1, &plan, 1.0));
        CHECK(!specdec__tune_drafter_must_rest(&tune, 0, &plan, 1.0));
    }
}

/* What the tune makes of times that are not as they should be. */
static void test_noise(void)
{
    static const double takes[] = {0, 1, 1.1, 0, 1.3};
    specdec__tune tune = tune_of(1);
    double times[SPECDEC__MAX_TREE_NODES + 1];
    uint64_t random = 1;
    int i, n;

    TEST("a cold first step of a width counts for no more than was expected of it");
    specdec__tune_add_step_time(&tune, 1, 1.0, 1);
    specdec__tune_add_step_time(&tune, 4, 9.0, 1);
    specdec__tune_estimate_times(&tune, times, 4);
    CHECK(times[4] < 1.4);

    TEST("a pause in the first draft, or while a drafter first reads, is not believed");
    CHECK(specdec__tune_add_drafting_time(&tune, 0, 2, 0, 0, 20.0) > 15);
    CHECK(tune.drafters[0].level.seconds < 0.2);
    for (i = 0; i < 6; i++)
        CHECK(specdec__tune_add_drafting_time(&tune, 0, 2, 0, 0, 0.4) < 0.16);
    CHECK(fabs(tune.drafters[0].level.seconds - 0.2) < 0.03); /* what it takes indeed */
    CHECK_EQUAL_INT((int)(10 * specdec__tune_add_drafting_time(&tune, 0, 2, 100, 1, 90.0)), 896);
    CHECK(tune.drafters[0].token_prefill.seconds < 0.04);

    TEST("a machine that becomes slower does so for all widths, also those that are not seen any more");
    for (i = 0; i < 40; i++)
        for (n = 1; n <= 4; n++)
            if (takes[n] > 0)
                specdec__tune_add_step_time(&tune, n, takes[n], 1);
    for (i = 0; i < 40; i++)
        specdec__tune_add_step_time(&tune, 2, 3 * takes[2], 1);
    specdec__tune_estimate_times(&tune, times, 4);
    CHECK(fabs(times[2] - 3 * takes[2]) < 0.05);
    CHECK(fabs(times[1] / times[2] - takes[1] / takes[2]) < 0.15 && fabs(times[4] / times[2] - takes[4] / takes[2]) < 0.25);

    TEST("where steps of the only width that is seen vary, others are not thought to become dearer");
    tune = tune_of(1);
    for (i = 0; i < 4000; i++)
        specdec__tune_add_step_time(&tune, i < 8 ? 1 : 4,
                               (i < 8 ? 1.0 : 1.3) * (1 + (i < 16 ? 0 : (double)(maker_random(&random) % 1000) / 1600)),
                               1);
    specdec__tune_estimate_times(&tune, times, 4);
    CHECK(fabs(times[1] / times[4] - 1 / 1.3) < 0.15);

    TEST("where steps cost the same up to a width that is known well, up to twice that is thought to be cheap, and no more");
    tune = tune_of(1);
    for (i = 0; i < 12; i++) {
        specdec__tune_add_step_time(&tune, 1, 1.0, 1);
        specdec__tune_add_step_time(&tune, 4, 1.0, 1);
        specdec__tune_estimate_times(&tune, times, 10);
        CHECK(i > 4 ? times[8] < 1.15 : times[8] > 1.35); /* one that is hardly known: a tenth for each node */
        CHECK(times[10] - times[8] > 0.19);
    }
}

/* A trial of drafting ahead after so many steps in turns of a second and 2.5 tokens each. Its steps bring `tokens` on
   average, half as many or half as many more by chance. Returns how many there are. */
static int try_ahead(specdec__async_drafting *ahead, int since, double tokens, uint64_t *random)
{
    int steps = 0;

    memset(ahead, 0, sizeof *ahead);
    ahead->modes[0].tokens = 2.5 * since;
    ahead->modes[0].seconds = since;
    ahead->mode = ahead->trial = 1;
    ahead->steps_between = ahead->steps_left = 2 * since;
    while (ahead->trial) {
        ahead->modes[1].tokens += tokens * (random ? 0.5 + (double)(maker_random(random) % 1000) / 1000 : 1);
        ahead->modes[1].seconds += 1;
        ahead->steps_left--;
        steps++;
        if (specdec__async_must_choose_mode(ahead))
            specdec__async_choose_mode(ahead);
    }
    return steps;
}

/* Which way of drafting is taken. */
static void test_ways(void)
{
    specdec__async_drafting ahead;
    uint64_t random = 1;
    double tokens;
    int steps, i, wrong = 0;

    TEST("a trial of the other way ends when it has lost or won a hundredth of the time before it");
    for (tokens = 1.06; tokens < 4; tokens += 0.25) {
        steps = try_ahead(&ahead, 256, tokens, NULL);
        CHECK(fabs(tokens / 2.5 - 1) * (steps - 1) < 2.56 && fabs(tokens / 2.5 - 1) * steps > 2.56);
        CHECK_EQUAL_INT(ahead.mode, tokens > 2.5);
    }
    CHECK_EQUAL_INT(try_ahead(&ahead, 256, 2.505, NULL), 512); /* about as fast: after twice that time */
    TEST("chance seldom decides: of 200 trials of a way that is 5 % slower");
    for (i = 0; i < 200; i++) {
        try_ahead(&ahead, 512, 0.95 * 2.5, &random);
        wrong += ahead.mode;
    }
    CHECK(wrong < 10);

    TEST("ahead is not tried where the lane drafts less than steps beside it take longer");
    memset(&ahead, 0, sizeof ahead);
    ahead.modes[0].seconds = 10;
    ahead.modes[0].drafting = 4;
    CHECK(!specdec__async_mode_may_be_faster(&ahead)); /* nothing was measured yet */
    ahead.slowdown = 1.33;
    ahead.overlap_pace = 0.25;
    CHECK(!specdec__async_mode_may_be_faster(&ahead)); /* saves 2, costs 2 */
    ahead.overlap_pace = 0.5;
    CHECK(specdec__async_mode_may_be_faster(&ahead)); /* all 4 */
    ahead.slowdown = 1.7;
    CHECK(!specdec__async_mode_may_be_faster(&ahead));
}

/* Grown trees of a size that is given are as good as static ones when the draft is the target. */
static void test_growth(void)
{
    static answer a;
    specdec_config c = config_of(PLAIN, PLAIN);
    specdec_stats stats;
    session s;
    int v;

    TEST("a grown tree has the nodes it may have, and the draft's best guess among them");
    c.drafting = SPECDEC_DRAFT_MODEL;
    c.policy = SPECDEC_POLICY_DYNAMIC;
    c.tree_size = 9;
    c.tree_depth = 4;
    for (c.settings.sampling.temperature = 0; c.settings.sampling.temperature < 1; c.settings.sampling.temperature += 0.9f) {
        count_answer(&c, &a, &stats);
        CHECK_EQUAL_INT(stats.drafted, 8 * stats.steps_by_drafter[SPECDEC_DRAFT_MODEL]);
        CHECK(stats.accepted_by_rank[0] > 0 && stats.tokens > stats.steps * 2);
    }
    TEST("trees do not grow for the rules whose children must be drawn from the draft's distribution");
    c.settings.sampling.temperature = 0.8f;
    for (v = 0; v < SPECDEC_RULE_GREEDY; v++) {
        c.rule = (specdec_rule)v;
        CHECK(!open_session(&s, &c));
        CHECK_EQUAL_INT(specdec__engine_trees_grow_by_level(&s.engine->engine->config), v == SPECDEC_RULE_COUPLED || v == SPECDEC_RULE_TOP_K);
        CHECK(!specdec_prompt(s.engine, "hello", SPECDEC_WHOLE_STRING));
        memset(&a, 0, sizeof a);
        CHECK_EQUAL_INT(read_on(s.engine, &a), SPECDEC_DONE);
        specdec_get_stats(s.engine, &stats);
        CHECK(stats.steps_by_drafter[SPECDEC_DRAFT_MODEL] > 0 && stats.accepted > 0);
        close_session(&s);
    }
    TEST("an unknown policy is refused");
    c.policy = SPECDEC_POLICY_COUNT;
    CHECK_EQUAL_INT(specdec_memory_needed(&c, &s.bytes, &failure), SPECDEC_ERROR_ARGUMENT);
}

/* A target whose vocabulary is padded may be prompted with, and may write, tokens that the draft does not have. */
static void test_padding(void)
{
    static const char unused[] = "tokenizer.ggml.token_type";
    maker_recipe r;
    maker *m = (maker *)malloc(sizeof *m);
    specdec_config c;
    session s[2];
    static answer a[2];
    int i, k;
    int32_t prompt[20];

    TEST("tokens that only a padded target knows do not stop the draft");
    memset(&r, 0, sizeof r);
    r.seed = 11;
    r.vocab = 330;
    maker_begin(m, &r);
    for (i = 301; i < 330; i++)
        specdec__store_u32(maker_find_pair(m, unused)->value.data + 12 + 4 * i, 5);
    maker_write(m);
    c = config_of(PLAIN, PLAIN);
    c.target.data = m->file.data;
    c.target.size = m->file.size;
    for (i = 0; i < 20; i++)
        prompt[i] = 5 + i * 17;
    for (k = 0; k < 2; k++) {
        c.drafting = k ? SPECDEC_DRAFT_AUTO : SPECDEC_DRAFT_OFF;
        memset(&a[k], 0, sizeof a[k]);
        if (!open_session(&s[k], &c)) {
            CHECK_EQUAL_INT(specdec_prompt_tokens(s[k].engine, prompt, 20), SPECDEC_OK);
            CHECK_EQUAL_INT(read_on(s[k].engine, &a[k]), SPECDEC_DONE);
        } else {
            CHECK(0); /* padded vocabularies belong together */
        }
        close_session(&s[k]);
    }
    CHECK(same_answer(&a[0], &a[1]));
    maker_free(m);
    free(m);
}

/* --- doors ------------------------------------------------------------------------------------------------------------- */

/* Counts how often it was measured how weights are read. */
static void hear_reading(void *heard, const char *line)
{
    *(int *)heard += strncmp(line, "reading weights", 15) == 0;
}

static void test_reading(void)
{
    specdec_config c = config_of(PLAIN, -1);
    static answer a, b;
    static const specdec__weight_reading readings[2] = {{0, 0}, {1, SPECDEC__PREFETCH_L1_BYTES}};
    specdec__kernels *kernels;
    session s;
    double seconds, least = 1;
    int heard = 0, way;

    TEST("which way to read weights is faster is measured in little time, and the text does not depend on it");
    c.threads = 1;
    c.hooks.log = hear_reading;
    c.hooks.user_data = &heard;
    CHECK(answer_to(&c, "hello", &a));
    CHECK_EQUAL_INT(heard, 0); /* a model this small lies in caches */
    for (way = 0; way < 6; way++) {
        CHECK(!open_session(&s, &c));
        s.engine->engine->opened_models[0]->tile_bytes = SPECDEC__READING_LEAST_BYTES;
        s.engine->engine->target.columns.values = NULL; /* no step of a large model was tried before */
        heard = 0;
        seconds = specdec__os_monotonic_seconds();
        specdec__engine_time_weight_reading(s.engine->engine);
        seconds = specdec__os_monotonic_seconds() - seconds;
        least = seconds < least ? seconds : least;
        kernels = s.engine->engine->kernels;
        CHECK_EQUAL_INT(heard, kernels->other_reading.one_tile || kernels->other_reading.l1_bytes);
        kernels->reading = way % 2 ? kernels->other_reading : readings[way % 4 / 2];
        memset(&b, 0, sizeof b);
        CHECK(!specdec_prompt(s.engine, "hello", SPECDEC_WHOLE_STRING));
        CHECK_EQUAL_INT(read_on(s.engine, &b), SPECDEC_DONE);
        CHECK(same_answer(&a, &b));
        close_session(&s);
    }
    CHECK(least < 0.1); /* 0.015, if nobody else wants the processor */
}

static void test_step(void)
{
    specdec_config c = config_of(PLAIN, NOISY);
    static answer a, b;
    session s;
    const int32_t *tokens;
    int count, steps = 0, i;
    specdec_result r;

    TEST("specdec_step gives the tokens that specdec_next spells");
    c.drafting = SPECDEC_DRAFT_MODEL; /* always speculates, however slow the machine */
    CHECK(answer_to(&c, "hello", &a));
    CHECK(!open_session(&s, &c));
    CHECK(!specdec_prompt(s.engine, "hello", SPECDEC_WHOLE_STRING));
    b.count = token_count(s.engine);
    take_tokens(s.engine, &b);
    while ((r = specdec_step(s.engine, &tokens, &count)) == SPECDEC_OK) {
        CHECK(count >= 1);
        for (i = 0; i < count; i++)
            b.tokens[b.count++] = tokens[i];
        steps++;
    }
    CHECK_EQUAL_INT(r, SPECDEC_DONE);
    CHECK_EQUAL_INT(count, 0);
    CHECK(b.count == a.count && memcmp(a.tokens, b.tokens, (size_t)a.count * sizeof *a.tokens) == 0);
    CHECK(steps < 100);
    CHECK_EQUAL_INT(specdec_step(s.engine, &tokens, &count), SPECDEC_DONE);
    close_session(&s);
}

/* What an engine writes behind `count` tokens and two more; before that it has read `before` tokens and written behind them. */
static void answer_behind(const specdec_config *c, const int32_t *tokens, int count, int before, answer *a)
{
    session s;

    CHECK(!open_session(&s, c));
    if (before) {
        memset(a, 0, sizeof *a);
        CHECK(!specdec_prompt_tokens(s.engine, tokens, before));
        read_on(s.engine, a);
        CHECK(!specdec_rewind(s.engine, count));
    } else {
        CHECK(!specdec_prompt_tokens(s.engine, tokens, count));
    }
    CHECK(!specdec_prompt_tokens(s.engine, tokens + 50, 2));
    memset(a, 0, sizeof *a);
    read_on(s.engine, a);
    close_session(&s);
}

static void test_far_rewind(void)
{
    static answer plain, a;
    static const specdec_drafting draftings[] = {SPECDEC_DRAFT_OFF, SPECDEC_DRAFT_MODEL, SPECDEC_DRAFT_AUTO};
    specdec_config c = config_of(QUANTISED, QUANTISED);
    int32_t tokens[700];
    int i, k;

    TEST("a rewind far behind a window, whose pages are gone, writes what was never read further");
    for (i = 0; i < 700; i++)
        tokens[i] = 5 + (i * i * 7 + i / 3) % 250;
    c.context = 800;
    c.settings.max_tokens = 30;
    for (k = 0; k < 2; k++) {
        c.kv = k ? "q8_0" : NULL;
        c.drafting = SPECDEC_DRAFT_OFF;
        answer_behind(&c, tokens, 300, 0, &plain);
        CHECK(plain.count > 303);
        for (i = 0; i < 3; i++) {
            c.drafting = draftings[i];
            answer_behind(&c, tokens, 300, 700, &a);
            CHECK(same_answer(&plain, &a));
        }
    }
}

static void test_rewind(void)
{
    specdec_config c = config_of(PLAIN, NOISY);
    static answer a, b;
    session s;
    int turn, sampled, prompted;
    uint64_t random = 5;

    TEST("going on after a rewind gives what a fresh engine gives");
    for (sampled = 0; sampled < 2; sampled++) {
        c.settings.sampling.temperature = sampled ? 0.9f : 0;
        c.tree_size = sampled ? 12 : 6;
        c.settings.max_tokens = 150;
        CHECK(answer_to(&c, "hello", &a));
        c.settings.max_tokens = 0;
        CHECK(!open_session(&s, &c));
        CHECK(!specdec_prompt(s.engine, "hello", SPECDEC_WHOLE_STRING));
        prompted = token_count(s.engine);
        for (turn = 0; turn < (quick ? 15 : 80); turn++) {
            int at = token_count(s.engine), goal = at + 1 + (int)(maker_random(&random) % 30), keep;
            specdec_text piece;

            goal = goal < a.count ? goal : a.count;
            while (token_count(s.engine) < goal)
                CHECK(!specdec_next(s.engine, &piece));
            take_tokens(s.engine, &b);
            CHECK(memcmp(a.tokens, b.tokens, (size_t)(b.count < a.count ? b.count : a.count) * sizeof *a.tokens) == 0);
            keep = prompted + (int)(maker_random(&random) % (uint32_t)(b.count - prompted + 1));
            if (turn % 4 == 3)
                keep = b.count;
            CHECK(!specdec_rewind(s.engine, keep));
            CHECK_EQUAL_INT(token_count(s.engine), keep);
        }
        CHECK(!specdec_rewind(s.engine, 0));
        CHECK_EQUAL_INT(token_count(s.engine), 0);
        memset(&b, 0, sizeof b);
        CHECK(!specdec_prompt(s.engine, "hello", SPECDEC_WHOLE_STRING));
        CHECK_EQUAL_INT(read_on(s.engine, &b), SPECDEC_DONE);
        CHECK(memcmp(a.text, b.text, a.length) == 0);
        CHECK(!specdec_rewind(s.engine, 3)); /* into the prompt */
        memset(&a, 0, sizeof a);
        CHECK_EQUAL_INT(read_on(s.engine, &a), SPECDEC_DONE);
        CHECK(!specdec_rewind(s.engine, 0));
        memset(&b, 0, sizeof b);
        CHECK(!specdec_prompt_tokens(s.engine, a.tokens, 3));
        CHECK_EQUAL_INT(read_on(s.engine, &b), SPECDEC_DONE);
        CHECK(same_answer(&a, &b));
        close_session(&s);
    }
}

static void test_prompts(void)
{
    specdec_config c = config_of(PLAIN, NOISY);
    static answer a, b;
    session s;
    int32_t prompt[90];
    int cut, i, batch;

    TEST("a prompt in two calls equals a prompt in one");
    for (i = 0; i < 90; i++)
        prompt[i] = 3 + i * 7 % 290;
    c.settings.max_tokens = 30;
    for (cut = 0; cut <= 90; cut += quick ? 45 : 9)
        for (batch = 1; batch < 100; batch += 31) {
            c.batch = batch;
            CHECK(!open_session(&s, &c));
            if (cut)
                CHECK(!specdec_prompt_tokens(s.engine, prompt, cut));
            CHECK_EQUAL_INT(specdec_prompt_tokens(s.engine, prompt + cut, 90 - cut), SPECDEC_OK);
            memset(&b, 0, sizeof b);
            CHECK_EQUAL_INT(read_on(s.engine, &b), SPECDEC_DONE);
            if (!a.count)
                a = b;
            CHECK(same_answer(&a, &b));
            close_session(&s);
        }

    TEST("a prompt behind an answer equals one prompt of both");
    c.settings.max_tokens = 20;
    CHECK(!open_session(&s, &c));
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    CHECK(!specdec_prompt_tokens(s.engine, prompt, 50));
    read_on(s.engine, &a); /* tokens behind the limit have been speculated: they must go */
    CHECK_EQUAL_INT(a.count, 70);
    CHECK(!specdec_prompt_tokens(s.engine, prompt + 50, 40));
    a.length = 0;
    read_on(s.engine, &a);
    CHECK_EQUAL_INT(a.count, 130);
    CHECK(!specdec_rewind(s.engine, 0));
    CHECK(!specdec_prompt_tokens(s.engine, a.tokens, 110));
    read_on(s.engine, &b);
    CHECK(same_answer(&a, &b));
    close_session(&s);
}

/* --- cancelling ------------------------------------------------------------------------------------------------------- */

typedef struct pest {
    specdec *engine;
    int stop, calls;
    long longest; /* nanoseconds between calls */
} pest;

static void *pester(void *argument)
{
    pest *p = (pest *)argument;
    uint64_t random = 77;

    while (!SPECDEC__LOAD(&p->stop) && p->calls < 300) {
        struct timespec t;

        t.tv_sec = 0;
        t.tv_nsec = (long)(maker_random(&random) % (uint32_t)p->longest);
        nanosleep(&t, NULL);
        specdec_cancel(p->engine);
        p->calls++;
    }
    return NULL;
}

static specdec_result prompt_until_done(specdec *e, const int32_t *tokens, int count, answer *a)
{
    int before = token_count(e);
    specdec_result r;

    while ((r = specdec_prompt_tokens(e, tokens, count)) == SPECDEC_ERROR_CANCELLED) {
        a->cancelled++;
        CHECK_EQUAL_INT(token_count(e), before);
    }
    return r;
}

static void test_cancel(void)
{
    static answer a, b;
    int32_t prompt[60];
    int turn, i, cancelled = 0;
    const int turns = quick ? 4 : 24, wanted = quick ? 4 : 100;
    specdec_config c = config_of(PLAIN, NOISY);

    TEST("cancellations at any moment, of prompts, steps and forwards, leave no trace in the text");
    for (i = 0; i < 60; i++)
        prompt[i] = 4 + i * 5 % 280;
    c.batch = 7;
    c.tree_size = 12;
    for (turn = 0; turn < turns || (cancelled < wanted && turn < 50 * turns); turn++) { /* sleeps may last longer than a text */
        session s;
        pest p;
        pthread_t thread;
        static float logits[3 * 301];
        static const int32_t node = 9, parent = -1;

        c.threads = 1 + turn % 3;
        c.settings.sampling.temperature = turn % 2 ? 0.8f : 0;
        c.drafting = turn % 4 == 3 ? SPECDEC_DRAFT_OFF : SPECDEC_DRAFT_AUTO;
        CHECK(!open_session(&s, &c));
        memset(&a, 0, sizeof a);
        CHECK(!specdec_prompt_tokens(s.engine, prompt, 30));
        read_on(s.engine, &a);
        CHECK(!specdec_prompt_tokens(s.engine, prompt + 30, 30));
        read_on(s.engine, &a);
        CHECK_EQUAL_INT(a.cancelled, 0);

        CHECK(!specdec_rewind(s.engine, 0));
        memset(&b, 0, sizeof b);
        p.engine = s.engine;
        p.stop = p.calls = 0;
        p.longest = turn % 3 ? 400000 : 4000000;
        pthread_create(&thread, NULL, pester, &p);
        CHECK(!prompt_until_done(s.engine, prompt, 30, &b));
        while (turn % 2 && specdec_logits(s.engine, &node, &parent, 1, logits) == SPECDEC_ERROR_CANCELLED)
            b.cancelled++;
        read_on(s.engine, &b);
        CHECK(!prompt_until_done(s.engine, prompt + 30, 30, &b));
        read_on(s.engine, &b);
        SPECDEC__STORE(&p.stop, 1);
        pthread_join(thread, NULL);
        CHECK(same_answer(&a, &b));
        cancelled += b.cancelled;
        close_session(&s);
    }
    printf("  cancelled %d calls\n", cancelled);
    CHECK(cancelled >= wanted);
}

/* The same from one thread: the cancellation is pending when the call begins. */
static void test_cancel_pending(void)
{
    static answer a, b;
    static float logits[301 * 3], again[301 * 3];
    static const int32_t nodes[] = {9, 50}, parents[] = {-1, 0};
    specdec_config c = config_of(PLAIN, NOISY);
    session s;
    specdec_text piece;
    specdec_result r;
    int turn = 0, before;

    TEST("a pending cancellation ends the next call that computes, and nothing else");
    c.settings.max_tokens = 60;
    CHECK(answer_to(&c, "hello", &a));
    CHECK(!open_session(&s, &c));
    memset(&b, 0, sizeof b);
    specdec_cancel(s.engine); /* too late for anything: the prompt takes it back */
    CHECK_EQUAL_INT(specdec_prompt(s.engine, "hello", SPECDEC_WHOLE_STRING), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_logits(s.engine, nodes, parents, 2, logits), SPECDEC_OK);
    specdec_cancel(s.engine);
    CHECK_EQUAL_INT(specdec_prompt_tokens(s.engine, nodes, -1), SPECDEC_ERROR_ARGUMENT); /* a failed call changes nothing */
    CHECK_EQUAL_INT(specdec_logits(s.engine, nodes, parents, 2, again), SPECDEC_ERROR_CANCELLED);
    CHECK_EQUAL_INT(specdec_logits(s.engine, nodes, parents, 2, logits), SPECDEC_OK);
    specdec_cancel(s.engine);
    CHECK_EQUAL_INT(specdec_logits(s.engine, nodes, parents, 2, again), SPECDEC_ERROR_CANCELLED);
    for (;;) {
        before = token_count(s.engine);
        if (turn++ % 2)
            specdec_cancel(s.engine);
        r = specdec_next(s.engine, &piece);
        if (r == SPECDEC_ERROR_CANCELLED) {
            CHECK_EQUAL_INT(token_count(s.engine), before);
            continue;
        }
        memcpy(b.text + b.length, piece.bytes, piece.length);
        b.length += piece.length;
        if (r)
            break;
        if (turn % 7 == 0)
            specdec_logits(s.engine, nodes, parents, 2, again); /* cancelled or not */
    }
    CHECK_EQUAL_INT(r, SPECDEC_DONE);
    take_tokens(s.engine, &b);
    CHECK(same_answer(&a, &b));
    close_session(&s);

    TEST("a cancellation that has ended the reading in specdec_work ends no prompt behind it");
    CHECK(!open_session(&s, &c));
    CHECK(!specdec_prompt(s.engine, "hello", SPECDEC_WHOLE_STRING));
    CHECK(!specdec_logits(s.engine, NULL, NULL, 0, NULL)); /* the prompt's row is gone: it is computed anew */
    specdec_cancel(s.engine);
    CHECK_EQUAL_INT(specdec_work(s.engine), SPECDEC_OK);
    CHECK(strstr(specdec_error_text(s.engine), "cancelled") != NULL);
    CHECK_EQUAL_INT(specdec_prompt(s.engine, " there", SPECDEC_WHOLE_STRING), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_next(s.engine, &piece), SPECDEC_OK);
    CHECK(!specdec_rewind(s.engine, 1));
    specdec_cancel(s.engine);
    CHECK_EQUAL_INT(specdec_work(s.engine), SPECDEC_OK);
    CHECK(!specdec_rewind(s.engine, 1)); /* takes no cancellation back */
    CHECK_EQUAL_INT(specdec_next(s.engine, &piece), SPECDEC_ERROR_CANCELLED);
    CHECK_EQUAL_INT(specdec_next(s.engine, &piece), SPECDEC_OK);
    close_session(&s);
    TEST("a cancelled forward right behind a prompt does not spoil its row");
    CHECK(!open_session(&s, &c));
    memset(&b, 0, sizeof b);
    CHECK(!specdec_prompt(s.engine, "hello", SPECDEC_WHOLE_STRING));
    {
        pest p;
        pthread_t thread;
        int i;

        p.engine = s.engine;
        p.stop = p.calls = 0;
        p.longest = 300000;
        pthread_create(&thread, NULL, pester, &p);
        for (i = 0; i < (quick ? 100 : 1000); i++)
            if (specdec_logits(s.engine, nodes, parents, 2, again) == SPECDEC_OK)
                CHECK(memcmp(logits, again, sizeof logits) == 0);
            else if (i % 2)
                break;
        SPECDEC__STORE(&p.stop, 1);
        pthread_join(thread, NULL);
    }
    read_on(s.engine, &b);
    CHECK(same_answer(&a, &b));
    close_session(&s);
}

/* Row 0 is overwritten, and then the run is cancelled: the worst moment, reached for certain by a hook of the test. */
static void test_cancel_worst(void)
{
    static answer a, b;
    static float logits[301 * 2];
    static const int32_t node = 9, parent = -1;
    specdec_config c = config_of(PLAIN, -1);
    session s;
    specdec__batch batch;
    int32_t none = -1;

    TEST("a forward that is cancelled after it has overwritten the row of the last token");
    c.settings.max_tokens = 20;
    CHECK(answer_to(&c, "hello", &a));
    CHECK(!open_session(&s, &c));
    CHECK(!specdec_prompt(s.engine, "hello", SPECDEC_WHOLE_STRING));
    specdec_cancel(s.engine);
    CHECK_EQUAL_INT(specdec_logits(s.engine, &node, &parent, 1, logits), SPECDEC_ERROR_CANCELLED);
    /* what the workers of that call may have done before its last barrier: */
    memset(&batch, 0, sizeof batch);
    batch.n = 1;
    batch.tokens = &node;
    batch.parents = &none;
    batch.views = s.engine->engine->target.views;
    CHECK(!specdec__forward(&s.engine->engine->target, &batch, NULL));
    memset(&b, 0, sizeof b);
    read_on(s.engine, &b);
    CHECK(same_answer(&a, &b));
    close_session(&s);
}

/* --- forward ---------------------------------------------------------------------------------------------------------- */

static void test_forward(void)
{
    static answer a, b;
    static float chain[9 * 301], tree[17 * 301], one[2 * 301];
    specdec_config c = config_of(PLAIN, NOISY);
    session s;
    specdec_text piece;
    int32_t tokens[16], parents[16];
    int i;

    TEST("specdec_logits gives the rows of any tree, and changes nothing in the text");
    CHECK(answer_to(&c, "hello", &a));
    CHECK(!open_session(&s, &c));
    memset(&b, 0, sizeof b);
    for (i = 0; i < 8; i++) {
        tokens[i] = 20 + 3 * i;
        parents[i] = i - 1;
    }
    CHECK_EQUAL_INT(specdec_logits(s.engine, tokens, parents, 0, one), SPECDEC_ERROR_ARGUMENT);
    CHECK(!specdec_logits(s.engine, tokens, parents, 8, chain)); /* nothing prompted yet */
    for (i = 0; i < 301 && !(chain[i] > 0) && !(chain[i] < 0); i++)
        continue;
    CHECK_EQUAL_INT(i, 301);
    CHECK(!specdec_prompt(s.engine, "hello", SPECDEC_WHOLE_STRING));
    CHECK(!specdec_logits(s.engine, tokens, parents, 8, chain));
    for (i = 0; i < 8; i++) { /* node 2i: a stranger, 2i + 1: the chain */
        tokens[8 + i] = 20 + 3 * i;
        parents[i] = i - 1;
    }
    for (i = 0; i < 8; i++) {
        int32_t t[16], p[16];
        int j, n = 0, last = -1;

        for (j = 0; j <= i; j++) {
            t[n] = 100 + j;
            p[n++] = last;
            t[n] = 20 + 3 * j;
            p[n] = last;
            last = n++;
        }
        CHECK(!specdec_logits(s.engine, t, p, n, tree));
        CHECK(memcmp(tree, chain, 301 * 4) == 0);
        CHECK(memcmp(tree + ((size_t)last + 1) * 301, chain + ((size_t)i + 1) * 301, 301 * 4) == 0);
        if (i == 3) { /* in the middle of an answer */
            CHECK(!specdec_next(s.engine, &piece));
            memcpy(b.text, piece.bytes, piece.length);
            b.length = piece.length;
            CHECK(!specdec_logits(s.engine, t, p, 1, one));
            break;
        }
    }
    CHECK_EQUAL_INT(specdec_logits(s.engine, NULL, NULL, 0, one), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_logits(s.engine, NULL, NULL, 1, one), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_logits(s.engine, tokens, parents, 2, NULL), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_logits(s.engine, tokens, parents, 100000, one), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_logits(s.engine, tokens, parents, 0x7FFFFFFF, one), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_logits(s.engine, tokens, parents, -1, one), SPECDEC_ERROR_ARGUMENT);
    tokens[0] = 301;
    CHECK_EQUAL_INT(specdec_logits(s.engine, tokens, parents, 1, one), SPECDEC_ERROR_ARGUMENT);
    tokens[0] = 20;
    parents[0] = 0;
    CHECK_EQUAL_INT(specdec_logits(s.engine, tokens, parents, 1, one), SPECDEC_ERROR_ARGUMENT);
    read_on(s.engine, &b);
    CHECK(same_answer(&a, &b));
    close_session(&s);
}

/* --- hooks, limits, stop strings -------------------------------------------------------------------------------------- */

typedef struct watcher {
    specdec **engine;
    int repacks, prefills, last, wrong, cancel_at;
} watcher;

static int watch(void *user_data, const char *what, int done, int total)
{
    watcher *w = (watcher *)user_data;
    int prefill = strcmp(what, "prefill") == 0;

    if (!prefill && strcmp(what, "repack") != 0)
        w->wrong++;
    w->repacks += !prefill;
    w->prefills += prefill;
    if (done <= 0 || done > total || (w->prefills + w->repacks > 1 && done <= w->last && w->last > 0))
        w->wrong++;
    w->last = done == total ? 0 : done;
    if (prefill && done >= w->cancel_at && w->cancel_at > 0)
        specdec_cancel(*w->engine);
    return 0;
}

static void test_progress(void)
{
    specdec_config c = config_of(PLAIN, NOISY);
    static answer a, b;
    session s;
    watcher w;
    int32_t prompt[100];
    int i;

    TEST("progress is told in growing steps up to the total, and may cancel");
    for (i = 0; i < 100; i++)
        prompt[i] = 5 + i;
    memset(&w, 0, sizeof w);
    c.batch = 16;
    c.threads = 2;
    c.hooks.user_data = &w;
    c.hooks.progress = watch;
    CHECK(!open_session(&s, &c));
    w.engine = &s.engine;
    CHECK_EQUAL_INT(w.repacks, 30);
    CHECK(!specdec_prompt_tokens(s.engine, prompt, 100));
    CHECK_EQUAL_INT(w.prefills, 7);
    CHECK_EQUAL_INT(w.wrong, 0);
    read_on(s.engine, &a);
    CHECK(!specdec_rewind(s.engine, 0));
    w.cancel_at = 48;
    CHECK_EQUAL_INT(specdec_prompt_tokens(s.engine, prompt, 100), SPECDEC_ERROR_CANCELLED);
    CHECK_EQUAL_INT(w.prefills, 10);
    w.cancel_at = 0;
    w.last = 0;
    CHECK_EQUAL_INT(specdec_prompt_tokens(s.engine, prompt, 100), SPECDEC_OK);
    CHECK_EQUAL_INT(w.prefills, 17);
    read_on(s.engine, &b);
    CHECK(same_answer(&a, &b));
    close_session(&s);
}

static void test_limits(void)
{
    static answer a, b;
    int limit, drafting;

    for (drafting = 0; drafting < 2; drafting++) {
        specdec_config c = config_of(PLAIN, NOISY);

        c.drafting = drafting ? SPECDEC_DRAFT_AUTO : SPECDEC_DRAFT_OFF;
        TEST("max_tokens is kept exactly, and the text is the beginning of the longer one");
        CHECK(answer_to(&c, "hello", &a));
        for (limit = 1; limit < 20; limit++) {
            c.settings.max_tokens = limit;
            CHECK(answer_to(&c, "hello", &b));
            CHECK_EQUAL_INT(b.count, a.count - 100 + limit);
            CHECK(memcmp(a.tokens, b.tokens, (size_t)b.count * 4) == 0);
        }
        TEST("the end of the context ends the answer, not before and not behind");
        for (limit = 12; limit < 80; limit += 9) {
            session s;

            c.settings.max_tokens = 0;
            c.context = limit;
            CHECK(answer_to(&c, "hello", &b));
            CHECK_EQUAL_INT(b.count, limit);
            CHECK(memcmp(a.tokens, b.tokens, (size_t)limit * 4) == 0);
            CHECK(!open_session(&s, &c));
            CHECK(!specdec_prompt(s.engine, "hello", SPECDEC_WHOLE_STRING));
            memset(&b, 0, sizeof b);
            read_on(s.engine, &b);
            CHECK_EQUAL_INT(specdec_prompt(s.engine, "more", SPECDEC_WHOLE_STRING), SPECDEC_ERROR_CONTEXT);
            CHECK(specdec_error_text(s.engine)[0] != 0);
            CHECK_EQUAL_INT(token_count(s.engine), limit);
            CHECK(!specdec_rewind(s.engine, limit / 2));
            memset(&b, 0, sizeof b);
            read_on(s.engine, &b);
            CHECK(b.count == limit && memcmp(a.tokens, b.tokens, (size_t)limit * 4) == 0);
            close_session(&s);
        }
    }
}

/* The first place of a string in bytes, or -1. */
static long find(const char *bytes, size_t length, const char *string, size_t size)
{
    size_t i;

    for (i = 0; i + size <= length; i++)
        if (memcmp(bytes + i, string, size) == 0)
            return (long)i;
    return -1;
}

static void test_stop(void)
{
    specdec_config c = config_of(PLAIN, NOISY);
    static answer a, b;
    char stop[32], other[32];
    size_t from, size;

    TEST("stop strings end the text before them, also across tokens; half-finished ones are handed out");
    CHECK(answer_to(&c, "hello", &a));
    for (from = 0; from + 12 < a.length && from < 150; from += quick ? 17 : 3)
        for (size = 1; size < 12; size += 4) {
            long first;

            memcpy(stop, a.text + from, size);
            stop[size] = 0;
            if (memchr(stop, 0, size))
                continue;
            c.settings.stop[0] = stop;
            first = find(a.text, a.length, stop, size);
            CHECK(answer_to(&c, "hello", &b));
            CHECK_EQUAL_INT(b.length, first);
            CHECK(memcmp(a.text, b.text, b.length) == 0);
            memcpy(other, stop, size); /* one that nearly matches */
            other[size] = '\x01';
            other[size + 1] = 0;
            if (find(a.text, a.length, other, size + 1) < 0) {
                c.settings.stop[0] = other;
                CHECK(answer_to(&c, "hello", &b));
                CHECK(same_answer(&a, &b));
                c.settings.stop[1] = stop;
                CHECK(answer_to(&c, "hello", &b));
                CHECK_EQUAL_INT(b.length, first);
                c.settings.stop[1] = NULL;
            }
        }
}

/* The reason of an answer's end, once it has ended; *which as specdec_stopped says. */
static specdec_stop reason_of(const specdec_config *config, const char *prompt, int *which, int *tokens)
{
    specdec_config c = *config;
    specdec_stop why = SPECDEC_STOP_NONE;
    specdec_result r = SPECDEC_OK;
    specdec_text piece;
    const int32_t *all;
    session s;

    *which = -2;
    CHECK(!open_session(&s, &c));
    CHECK_EQUAL_INT(specdec_stopped(s.engine, NULL), SPECDEC_STOP_NONE);
    CHECK(!specdec_prompt(s.engine, prompt, SPECDEC_WHOLE_STRING));
    while (r == SPECDEC_OK) {
        CHECK_EQUAL_INT(specdec_stopped(s.engine, which), SPECDEC_STOP_NONE);
        CHECK_EQUAL_INT(*which, -1);
        r = specdec_next(s.engine, &piece);
    }
    CHECK_EQUAL_INT(r, SPECDEC_DONE);
    why = specdec_stopped(s.engine, which);
    specdec_tokens(s.engine, &all, tokens);
    CHECK(why != SPECDEC_STOP_END || specdec__vocab_is_end_token(&s.engine->model->vocab, all[*tokens - 1]));
    CHECK_EQUAL_INT(specdec_next(s.engine, &piece), SPECDEC_DONE); /* it stays so, */
    CHECK_EQUAL_INT(specdec_stopped(s.engine, NULL), why);
    CHECK(!specdec_rewind(s.engine, 2)); /* until the text goes on */
    CHECK_EQUAL_INT(specdec_stopped(s.engine, NULL), SPECDEC_STOP_NONE);
    close_session(&s);
    return why;
}

static void test_stopped(void)
{
    static answer a;
    char stop[8] = "";
    specdec_config c = config_of(PLAIN, NOISY);
    int which, tokens, plain, seed;

    TEST("an engine says why an answer ended");
    c.settings.max_tokens = 7;
    CHECK_EQUAL_INT(reason_of(&c, "hello", &which, &tokens), SPECDEC_STOP_LIMIT);
    CHECK_EQUAL_INT(which, -1);
    c.settings.max_tokens = 0;
    c.context = 40;
    CHECK_EQUAL_INT(reason_of(&c, "hello", &which, &tokens), SPECDEC_STOP_CONTEXT);
    CHECK_EQUAL_INT(tokens, 40);
    CHECK_EQUAL_INT(which, -1);
    CHECK(answer_to(&c, "hello", &a));
    memcpy(stop, a.text + a.length / 2, 2);
    c.settings.stop[0] = "\x01 never";
    c.settings.stop[1] = stop;
    CHECK_EQUAL_INT(reason_of(&c, "hello", &which, &tokens), SPECDEC_STOP_STRING);
    CHECK_EQUAL_INT(which, 1);
    c = config_of(QUANTISED, -1);
    c.settings.sampling.temperature = 100;
    c.settings.max_tokens = 0;
    for (seed = 1; seed < 200; seed++) {
        c.settings.sampling.seed = (uint64_t)seed;
        c.context = 0;
        if (reason_of(&c, "hello", &which, &tokens) == SPECDEC_STOP_END)
            break;
    }
    CHECK(seed < 200);
    plain = tokens; /* an end token in the last place of the context, and of the limit, is an end all the same */
    c.context = plain;
    CHECK_EQUAL_INT(reason_of(&c, "hello", &which, &tokens), SPECDEC_STOP_END);
    CHECK_EQUAL_INT(tokens, plain);
}

static void test_chat(void)
{
    static answer a, b;
    specdec_config c = config_of(PLAIN, NOISY);
    specdec_message list[2] = {{SPECDEC_SYSTEM, "be kind", SPECDEC_WHOLE_STRING, 0},
                               {SPECDEC_USER, "hello there", 5, 0}};
    static const char *const formats[] = {"zephyr", "chatml", "chatml-think", "llama2", "llama3", "mistral", "gemma", "phi3",
                                          "phi4", "phi4-mini", "granite", "mistral-v3", "mistral-v7", "tulu",
                                          "deepseek-r1"};
    maker_recipe r;
    maker_buffer *file;
    maker m;
    session s;
    int i;

    TEST("chat: unknown formats are errors, known ones run and lose nothing to drafts");
    CHECK(!open_session(&s, &c));
    CHECK_EQUAL_INT(specdec_chat(s.engine, list, 2), SPECDEC_ERROR_UNSUPPORTED);
    close_session(&s);
    c.chat_format = "nonsense";
    CHECK(open_session(&s, &c) == SPECDEC_ERROR_ARGUMENT);
    close_session(&s);
    memset(&r, 0, sizeof r);
    maker_begin(&m, &r);
    maker_name_chat_tokens(&m, 270, 3);
    file = maker_write(&m);
    c.target.data = c.draft.data = file->data;
    c.target.size = c.draft.size = file->size;
    for (i = 0; i < COUNT(formats); i++) {
        int k;

        c.chat_format = formats[i];
        for (k = 0; k < 2; k++) {
            answer *into = k ? &b : &a;

            memset(into, 0, sizeof *into);
            c.drafting = k ? SPECDEC_DRAFT_AUTO : SPECDEC_DRAFT_OFF;
            c.settings.max_tokens = 30;
            c.context = 400;
            CHECK(!open_session(&s, &c));
            CHECK_EQUAL_INT(specdec_chat(s.engine, list, 2), SPECDEC_OK);
            read_on(s.engine, into);
            CHECK_EQUAL_INT(specdec_chat(s.engine, list + 1, 1), SPECDEC_OK);
            read_on(s.engine, into);
            CHECK_EQUAL_INT(specdec_chat(s.engine, list, 0), SPECDEC_ERROR_ARGUMENT);
            CHECK_EQUAL_INT(specdec_chat(s.engine, list, -1), SPECDEC_ERROR_ARGUMENT);
            close_session(&s);
        }
        CHECK(same_answer(&a, &b));
    }
    maker_free(&m);
}

/* A conversation at once, and the same in two calls with the answer's tokens between them: equal behind the answer's end
   token. strips: the model's name says that its special tokens take the white space behind them with them. */
static void check_second_turn(const char *format, int strips)
{
    static const int32_t reply[] = {100, 2}; /* and the end token */
    specdec_message list[3] = {{SPECDEC_USER, "one", 3, 0}, {SPECDEC_ASSISTANT, "x", 1, 0}, {SPECDEC_USER, "two", 3, 0}};
    specdec_config c = config_of(PLAIN, -1);
    static answer whole, parts;
    int turn, i;
    maker_recipe r;
    maker m;
    maker_buffer *file;

    memset(&r, 0, sizeof r);
    maker_begin(&m, &r);
    maker_name_chat_tokens(&m, 270, 3);
    if (strips)
        maker_text(&m, "general.name", "Phi3");
    file = maker_write(&m);
    c.target.data = file->data;
    c.target.size = file->size;
    c.chat_format = format;
    for (turn = 0; turn < 2; turn++) {
        session s;

        CHECK(!open_session(&s, &c));
        CHECK_EQUAL_INT(specdec_chat(s.engine, list, turn ? 1 : 3), SPECDEC_OK);
        if (turn) {
            CHECK_EQUAL_INT(specdec_prompt_tokens(s.engine, reply, 2), SPECDEC_OK);
            i = token_count(s.engine);
            CHECK_EQUAL_INT(specdec_chat(s.engine, list + 2, 1), SPECDEC_OK);
        }
        take_tokens(s.engine, turn ? &parts : &whole);
        close_session(&s);
    }
    for (turn = parts.count; turn > i && whole.count + turn > parts.count; turn--)
        if (parts.tokens[turn - 1] != whole.tokens[whole.count + turn - 1 - parts.count])
            break;
    if (turn != i || whole.tokens[whole.count + i - 1 - parts.count] != 2)
        fprintf(stderr, "%s, strips %d\n", format, strips);
    CHECK_EQUAL_INT(turn, i);
    CHECK_EQUAL_INT(whole.tokens[whole.count + i - 1 - parts.count], 2);
    maker_free(&m);
}

static void test_second_turn(void)
{
    static const char *const formats[] = {"zephyr", "tulu", "llama2", "mistral", "mistral-v3", "mistral-v7",
                                          "deepseek-r1"};
    int i, strips;

    TEST("chat: the second turn of a text goes on as the whole conversation would");
    for (i = 0; i < COUNT(formats); i++)
        for (strips = 0; strips < 2; strips++)
            check_second_turn(formats[i], strips);
}

/* --- failures ---------------------------------------------------------------------------------------------------------- */

static void test_failures(void)
{
    static answer a, b;
    specdec_config c = config_of(PLAIN, NOISY);
    session s;
    int32_t tokens[300] = {0}, bad;
    size_t count;
    const int32_t *out;
    int n, turn = 0;
    char text[64];
    specdec_text piece;
    specdec_result r;
    static char large[20000];
    const specdec_model *model;

    TEST("a failed call changes nothing, and says what is wrong");
    memset(large, 'x', sizeof large - 1);
    CHECK(answer_to(&c, "hello", &a));
    CHECK(!open_session(&s, &c));
    model = specdec_get_model(s.engine);
    CHECK_EQUAL_INT(specdec_next(s.engine, &piece), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_step(s.engine, &out, &n), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_prompt_tokens(s.engine, tokens, 0), SPECDEC_ERROR_ARGUMENT);
    CHECK(!specdec_prompt(s.engine, "hello", SPECDEC_WHOLE_STRING));
    memset(&b, 0, sizeof b);
    do {
        int before = token_count(s.engine);

        bad = turn % 2 ? -1 : 301;
        memset(large, 'x', sizeof large - 1);
        switch (turn++ % 9) {
        case 0: CHECK_EQUAL_INT(specdec_prompt_tokens(s.engine, &bad, 1), SPECDEC_ERROR_ARGUMENT); break;
        case 1: CHECK_EQUAL_INT(specdec_prompt_tokens(s.engine, tokens, 300), SPECDEC_ERROR_CONTEXT); break;
        case 2: CHECK_EQUAL_INT(specdec_prompt(s.engine, large, SPECDEC_WHOLE_STRING), SPECDEC_ERROR_CONTEXT); break;
        case 3: CHECK_EQUAL_INT(specdec_prompt(s.engine, large, 1000), SPECDEC_ERROR_CONTEXT); break;
        case 4: CHECK_EQUAL_INT(specdec_rewind(s.engine, before + 1), SPECDEC_ERROR_ARGUMENT); break;
        case 5: CHECK_EQUAL_INT(specdec_rewind(s.engine, -1), SPECDEC_ERROR_ARGUMENT); break;
        case 6: CHECK_EQUAL_INT(specdec_tokenize(model, "some words", SPECDEC_WHOLE_STRING, 5, tokens, 2, &n, large, sizeof large - 1, &failure),
                                SPECDEC_ERROR_BUFFER);
                CHECK(n > 2); break;
        case 7: CHECK_EQUAL_INT(specdec_token_text(model, 290, text, 0, &count, &failure), SPECDEC_ERROR_BUFFER);
                CHECK(count >= 1); break;
        case 8: CHECK(specdec_token_text(model, 301, text, sizeof text, &count, NULL) != SPECDEC_OK);
                CHECK(specdec_token_text(model, -1, text, sizeof text, &count, &failure) != SPECDEC_OK); break;
        }
        CHECK(specdec_error_text(s.engine)[0] != 0);
        CHECK(failure.text[0] != 0 || turn < 6);
        CHECK_EQUAL_INT(token_count(s.engine), before);
        r = specdec_next(s.engine, &piece);
        memcpy(b.text + b.length, piece.bytes, piece.length);
        b.length += piece.length;
    } while (!r);
    take_tokens(s.engine, &b);
    CHECK(same_answer(&a, &b));
    close_session(&s);

    TEST("specdec_deinit(NULL) is allowed, and init that fails leaves NULL");
    s.engine = (specdec *)(void *)text;
    CHECK_EQUAL_INT(specdec_init(&s.engine, &c, large, sizeof large, &failure), SPECDEC_ERROR_MEMORY);
    CHECK(s.engine == NULL && failure.text[0] != 0);
    CHECK_EQUAL_INT(specdec_init(&s.engine, &c, NULL, 1u << 30, &failure), SPECDEC_ERROR_MEMORY);
    specdec_deinit(s.engine);
    specdec_deinit(NULL);
    specdec_model_deinit(NULL);
    CHECK(specdec_error_text(NULL)[0] == 0);
}

/* --- memory ------------------------------------------------------------------------------------------------------------ */

/* size bytes between two pages that nobody may touch; at the end: they end where the second page begins. */
static unsigned char *guarded(size_t size, int at_end, unsigned char **mapping, size_t *length)
{
    const size_t page = PAGES_SIZE, body = (size + page - 1) / page * page;
    unsigned char *base = pages_reserve(body + 2 * page);

    if (!base || !pages_open(base + page, body))
        abort();
    memset(base + page, 0xA5, body);
    *mapping = base;
    *length = body + 2 * page;
    return base + page + (at_end ? body - size : 0);
}

static void check_guarded(const specdec_config *config, const answer *expected, int at_end)
{
    specdec_config c = *config;
    unsigned char *mapping, *block;
    size_t bytes = 0, length;
    specdec *engine;
    static answer a;

    CHECK_EQUAL_INT(specdec_memory_needed(&c, &bytes, &failure), SPECDEC_OK);
    block = guarded(bytes, at_end, &mapping, &length);
    CHECK_EQUAL_INT(specdec_init(&engine, &c, block, bytes - 1, &failure), SPECDEC_ERROR_MEMORY);
    CHECK(engine == NULL && failure.text[0] != 0);
    CHECK_EQUAL_INT(specdec_init(&engine, &c, block, bytes, &failure), SPECDEC_OK);
    if (engine) {
        specdec_info info;

        specdec_get_info(engine, &info);
        CHECK_EQUAL_INT(info.memory_bytes, bytes);
        memset(&a, 0, sizeof a);
        CHECK_EQUAL_INT(specdec_prompt(engine, "hello", SPECDEC_WHOLE_STRING), SPECDEC_OK);
        CHECK_EQUAL_INT(read_on(engine, &a), SPECDEC_DONE);
        CHECK(same_answer(expected, &a));
        specdec_deinit(engine);
    }
    pages_release(mapping, length);
}

static void test_memory(void)
{
    static answer a;
    int turn, shift;
    specdec_config c = config_of(PLAIN, NOISY);
    size_t bytes;
    unsigned char *block;

    for (turn = 0; turn < (quick ? 4 : 24); turn++) {
        TEST("exactly the reported bytes are enough, between guard pages, at either end; one less is refused");
        c = config_of(turn % 3 == 2 ? QUANTISED : PLAIN, turn % 4 == 3 ? -1 : turn % 4);
        c.threads = 1 + turn % 4;
        c.batch = 1 + turn * 11;
        c.tree_size = 2 + turn;
        c.tree_depth = 2 + turn % 3;
        c.context = 130 + 7 * turn;
        c.kv = turn % 3 == 0 ? "f16" : turn % 3 == 1 ? "f32" : "q8_0";
        c.weights_in_place = turn / 2 % 2;
        c.policy = turn % 2 ? SPECDEC_POLICY_STATIC : SPECDEC_POLICY_DYNAMIC;
        c.drafting = turn % 3 && turn % 4 != 3 ? SPECDEC_DRAFT_MODEL : SPECDEC_DRAFT_AUTO;
        CHECK(answer_to(&c, "hello", &a));
        check_guarded(&c, &a, 0);
        check_guarded(&c, &a, 1);
    }
    TEST("a block may begin anywhere");
    c = config_of(PLAIN, NOISY);
    c.threads = 2;
    c.settings.max_tokens = 5;
    CHECK(answer_to(&c, "hello", &a));
    CHECK(!specdec_memory_needed(&c, &bytes, &failure));
    block = (unsigned char *)malloc(bytes + 64);
    for (shift = 0; shift < 64; shift += quick ? 21 : 1) {
        static answer b;
        specdec *engine;

        memset(&b, 0, sizeof b);
        CHECK_EQUAL_INT(specdec_init(&engine, &c, block + shift, bytes, &failure), SPECDEC_OK);
        CHECK(!specdec_prompt(engine, "hello", SPECDEC_WHOLE_STRING));
        read_on(engine, &b);
        CHECK(same_answer(&a, &b));
        specdec_deinit(engine);
    }
    free(block);
}

/* --- several engines ---------------------------------------------------------------------------------------------------- */

typedef struct user {
    specdec_config config;
    answer got;
    int good;
} user;

static void *use(void *argument)
{
    user *u = (user *)argument;

    u->good = answer_to(&u->config, "hello", &u->got);
    return NULL;
}

static void test_sharing(void)
{
    enum { USERS = 4 };
    static user users[USERS];
    static answer expected[USERS];
    specdec_config prepare[2];
    specdec_model *model[2];
    unsigned char *mapping[2];
    size_t length[2], bytes;
    pthread_t thread[USERS];
    int i, round;

    TEST("engines in several threads share prepared models");
    for (round = 0; round < (quick ? 1 : 5); round++) {
        for (i = 0; i < 2; i++) {
            unsigned char *block;

            prepare[i] = config_of(i ? NOISY : PLAIN, -1);
            prepare[i].threads = 1 + round % 3;
            prepare[i].weights_in_place = round == 3;
            CHECK(!specdec_model_memory_needed(&prepare[i], &bytes, &failure));
            block = guarded(bytes, round % 2, &mapping[i], &length[i]);
            CHECK_EQUAL_INT(specdec_model_init(&model[i], &prepare[i], block, bytes - 1, &failure), SPECDEC_ERROR_MEMORY);
            CHECK(model[i] == NULL);
            CHECK_EQUAL_INT(specdec_model_init(&model[i], &prepare[i], block, bytes, &failure), SPECDEC_OK);
        }
        for (i = 0; i < USERS; i++) {
            users[i].config = config_of(PLAIN, NOISY);
            users[i].config.threads = 1 + i % 2;
            users[i].config.settings.sampling.temperature = i % 2 ? 0.8f : 0;
            users[i].config.settings.sampling.seed = (uint64_t)i;
            CHECK(answer_to(&users[i].config, "hello", &expected[i]));
            memset(&users[i].config.target, 0, sizeof users[i].config.target);
            users[i].config.target.model = model[0];
            if (i != 2) {
                memset(&users[i].config.draft, 0, sizeof users[i].config.draft);
                users[i].config.draft.model = model[i == 3 ? 0 : 1];
            }
        }
        for (i = 0; i < USERS; i++)
            pthread_create(&thread[i], NULL, use, &users[i]);
        for (i = 0; i < USERS; i++) {
            pthread_join(thread[i], NULL);
            CHECK(users[i].good);
            CHECK(same_answer(&expected[i], &users[i].got));
        }
        for (i = 0; i < 2; i++) {
            specdec_model_deinit(model[i]);
            pages_release(mapping[i], length[i]);
        }
    }
}

static void test_threads(void)
{
    static answer a, b;
    specdec_config c = config_of(PLAIN, NOISY);

    TEST("any number of threads gives the same text");
    c.settings.max_tokens = quick ? 5 : 12;
    CHECK(answer_to(&c, "hello", &a));
    for (c.threads = 2; c.threads <= 16; c.threads += quick ? 7 : 1) {
        CHECK(answer_to(&c, "hello", &b));
        CHECK(same_answer(&a, &b));
    }
    c.threads = 0;
    CHECK(answer_to(&c, "hello", &b));
    CHECK(same_answer(&a, &b));
}

/* --- what hostile callers found ---------------------------------------------------------------------------------------- */

static const specdec_rule rules[] = {SPECDEC_RULE_SEQUOIA, SPECDEC_RULE_SPECINFER, SPECDEC_RULE_SPECTR, SPECDEC_RULE_TOP_K};

static void test_rules_alone(void)
{
    static answer a, b;
    static const specdec_drafting kinds[] = {SPECDEC_DRAFT_OFF, SPECDEC_DRAFT_AUTO, SPECDEC_DRAFT_NGRAM};
    int rule, kind, draft;

    TEST("a verifier other than coupled works without a draft model, and the text does not depend on what guesses then");
    for (rule = 0; rule < COUNT(rules); rule++)
        for (kind = 0; kind < COUNT(kinds); kind++)
            for (draft = -1; draft <= (kind == 1 ? -1 : NOISY); draft += 1 + NOISY) {
                specdec_config c = config_of(PLAIN, draft);

                c.settings.sampling.temperature = 1;
                c.settings.sampling.seed = 5;
                c.rule = rules[rule];
                c.drafting = kinds[kind];
                CHECK(answer_to(&c, "Once upon", kind || draft >= 0 ? &b : &a));
                CHECK(!kind || same_answer(&a, &b));
            }
}

/* Logits behind a few tokens. */
static void logits_of(int model, const int32_t *tokens, int count, float *logits)
{
    static float rows[4 * 301];
    specdec_config c = config_of(model, -1);
    session s;

    CHECK(!open_session(&s, &c));
    CHECK(!specdec_prompt_logits(s.engine, tokens, count, rows));
    memcpy(logits, rows + (size_t)(count - 1) * 301, 301 * sizeof *logits);
    close_session(&s);
}

/* Biases after which the target, behind tokens[3], finds three tokens equally likely, the draft finds two of them
   impossible at this temperature, and the target's own choice of tokens[3] stays. Returns 0 when there are none. */
static int make_faint(int first, float temperature, int32_t *tokens, specdec_bias *bias)
{
    float before[301], target[301], draft[301], best, at;
    int i, x, winner, sure;

    logits_of(PLAIN, tokens, 3, before);
    for (x = 0; x < 3; x++) {
        tokens[3] = first + x;
        logits_of(PLAIN, tokens, 4, target);
        logits_of(NOISY, tokens, 4, draft);
        for (i = winner = 0; i < 3; i++) {
            bias[i].token = first + i;
            bias[i].bias = 60 - target[first + i];
            if (before[first + i] + bias[i].bias > before[first + winner] + bias[winner].bias)
                winner = i;
        }
        best = -INFINITY;
        for (i = 0; i < 3; i++)
            best = draft[first + i] + bias[i].bias > best ? draft[first + i] + bias[i].bias : best;
        for (i = sure = 0; i < 3; i++) {
            at = best - draft[first + i] - bias[i].bias;
            sure += at > 90 * temperature;
        }
        if (winner == x && sure == 2)
            return 1;
    }
    return 0;
}

static void test_faint(void)
{
    enum { TRIALS = 300 };
    int32_t tokens[4] = {1, 104, 105, 0};
    specdec_config c = config_of(PLAIN, NOISY);
    specdec_bias bias[3];
    int first = 100, counts[3] = {0, 0, 0}, i, k, count;
    session s;

    TEST("Sequoia at low temperatures: what the draft's distribution rounds to 0 is no child");
    while (first < 290 && !make_faint(first, 0.002f, tokens, bias))
        first += 3;
    CHECK(first < 290);
    c.rule = SPECDEC_RULE_SEQUOIA;
    c.drafting = SPECDEC_DRAFT_MODEL;
    c.tree_size = 4;
    c.tree_depth = 2;
    c.settings.max_tokens = 2;
    c.settings.sampling.temperature = 0.002f;
    c.settings.sampling.biases = bias;
    c.settings.sampling.bias_count = 3;
    CHECK(!open_session(&s, &c));
    for (k = 0; k < TRIALS; k++) {
        specdec_settings settings = c.settings;
        const int32_t *out;

        settings.sampling.seed = 777 + (uint64_t)k * 7919;
        CHECK(!specdec_rewind(s.engine, 0) && !specdec_set(s.engine, &settings));
        CHECK(!specdec_prompt_tokens(s.engine, tokens, 3));
        while (specdec_step(s.engine, &out, &count) == SPECDEC_OK)
            continue;
        specdec_tokens(s.engine, &out, &count);
        CHECK(count == 5 && out[3] == tokens[3]);
        for (i = 0; i < 3; i++)
            counts[i] += out[4] == first + i;
    }
    printf("  of %d draws, a third each: %d %d %d\n", TRIALS, counts[0], counts[1], counts[2]);
    for (i = 0; i < 3; i++)
        CHECK(counts[i] > TRIALS / 3 - 45 && counts[i] < TRIALS / 3 + 45);
    close_session(&s);
}

/* A call that must fail, or that must not change the text. */
static int cancel_here(void *user_data, const char *what, int done, int total)
{
    (void)user_data;
    (void)what;
    (void)done;
    (void)total;
    return 1;
}

static void disturb(specdec *e, int how)
{
    static const int32_t bad = 301, good[] = {9, 50}, parents[] = {-1, 0}, bad_parent = 3;
    static int32_t many[300];
    static float logits[3 * 301];
    static char large[20000];
    int before = token_count(e);

    memset(large, 'x', sizeof large - 1);
    switch (how % 10) {
    case 0: CHECK_EQUAL_INT(specdec_prompt_tokens(e, &bad, 1), SPECDEC_ERROR_ARGUMENT); break;
    case 1: CHECK_EQUAL_INT(specdec_prompt_tokens(e, many, 300), SPECDEC_ERROR_CONTEXT); break;
    case 2: CHECK_EQUAL_INT(specdec_prompt(e, large, SPECDEC_WHOLE_STRING), SPECDEC_ERROR_CONTEXT); break;
    case 3: CHECK_EQUAL_INT(specdec_prompt(e, large, 1000), SPECDEC_ERROR_CONTEXT); break;
    case 4: CHECK_EQUAL_INT(specdec_logits(e, &bad, parents, 1, logits), SPECDEC_ERROR_ARGUMENT); break;
    case 5: CHECK_EQUAL_INT(specdec_logits(e, good, &bad_parent, 1, logits), SPECDEC_ERROR_ARGUMENT); break;
    case 6: CHECK_EQUAL_INT(specdec_logits(e, good, parents, 2, logits), SPECDEC_OK); break;
    case 7: e->engine->config.hooks.progress = cancel_here;
            CHECK_EQUAL_INT(specdec_prompt_tokens(e, good, 2), SPECDEC_ERROR_CANCELLED);
            e->engine->config.hooks.progress = NULL; break;
    case 8: specdec_cancel(e);
            CHECK_EQUAL_INT(specdec_logits(e, good, parents, 2, logits), SPECDEC_ERROR_CANCELLED); break;
    case 9: CHECK_EQUAL_INT(specdec_rewind(e, before), SPECDEC_OK); break;
    }
    CHECK_EQUAL_INT(token_count(e), before);
}

static void test_stock(void)
{
    static answer a, b;
    int rule, seed, how;

    TEST("what was verified and not handed out yet survives failed calls, specdec_logits and a rewind to where the text is");
    for (rule = 0; rule < COUNT(rules); rule++)
        for (seed = 0; seed < (quick ? 1 : 3); seed++) {
            specdec_config c = config_of(PLAIN, NOISY);

            c.settings.sampling.temperature = 1;
            c.settings.sampling.seed = (uint64_t)seed;
            c.rule = rules[rule];
            c.drafting = SPECDEC_DRAFT_MODEL;
            c.settings.max_tokens = 30;
            CHECK(answer_to(&c, "hello", &a));
            for (how = 0; how < 10; how++) {
                session s;
                specdec_text piece;
                specdec_result r;
                int calls = 0;

                CHECK(!open_session(&s, &c));
                CHECK(!specdec_prompt(s.engine, "hello", SPECDEC_WHOLE_STRING));
                memset(&b, 0, sizeof b);
                do {
                    if (calls++ % 2)
                        disturb(s.engine, how);
                    r = specdec_next(s.engine, &piece);
                    memcpy(b.text + b.length, piece.bytes, piece.length);
                    b.length += piece.length;
                } while (!r && (how != 9 || token_count(s.engine) < a.count));
                take_tokens(s.engine, &b);
                if (how == 9) /* a rewind begins a new text: its limit counts anew, spaces may differ */
                    memcpy(b.text, a.text, b.length = a.length), b.count = specdec__min_int(b.count, a.count);
                CHECK(same_answer(&a, &b));
                close_session(&s);
            }
        }
}

static void test_held_back(void)
{
    static answer a, b;
    specdec_config c = config_of(PLAIN, NOISY);
    int temperature, cut, moved = 0;

    TEST("a cancelled specdec_next leaves the tokens as they were, also those whose text a stop string holds back");
    for (temperature = 0; temperature < 4; temperature++) {
        c.settings.sampling.temperature = 0.5f * (float)temperature;
        c.settings.stop[0] = NULL;
        CHECK(answer_to(&c, "hello", &a));
        for (cut = 0; cut + 12 < (int)a.length && cut < 60; cut += quick ? 17 : 5) {
            char stop[16] = {0};
            session s;
            specdec_text piece;
            specdec_result r;
            int calls = 0;

            memcpy(stop, a.text + cut, 10); /* almost comes, but ends in what never does */
            stop[10] = 1;
            c.settings.stop[0] = stop;
            CHECK(!open_session(&s, &c));
            CHECK(!specdec_prompt(s.engine, "hello", SPECDEC_WHOLE_STRING));
            memset(&b, 0, sizeof b);
            do {
                int before = token_count(s.engine);

                if (calls++ % 2 == 0)
                    specdec_cancel(s.engine);
                r = specdec_next(s.engine, &piece);
                if (r == SPECDEC_ERROR_CANCELLED) {
                    CHECK_EQUAL_INT(token_count(s.engine), before);
                    CHECK_EQUAL_INT(piece.length, 0);
                    moved++;
                }
                memcpy(b.text + b.length, piece.bytes, piece.length);
                b.length += piece.length;
            } while (!r || r == SPECDEC_ERROR_CANCELLED);
            take_tokens(s.engine, &b);
            CHECK(same_answer(&a, &b));
            close_session(&s);
        }
    }
    CHECK(moved > 0);
}

static void test_shared_arguments(void)
{
    specdec_config c = config_of(PLAIN, -1);
    specdec_model *model = NULL;
    static unsigned char block[4096];
    const size_t untouched = 12345;
    size_t bytes = untouched;
    int turn;

    TEST("a prepared model refuses threads and instruction sets that an engine refuses, and a failed query writes nothing");
    for (turn = 0; turn < 4; turn++) {
        c.threads = turn == 0 ? -3 : turn == 1 ? 1000000 : 1;
        c.isa = turn == 2 ? "nope" : NULL;
        if (turn == 3)
            c.target.size = 100;
        CHECK(specdec_model_memory_needed(&c, &bytes, &failure) != SPECDEC_OK);
        CHECK(failure.text[0] != 0);
        CHECK(specdec_memory_needed(&c, &bytes, &failure) != SPECDEC_OK);
        CHECK(bytes == untouched);
        CHECK(specdec_model_init(&model, &c, block, sizeof block, &failure) != SPECDEC_OK && model == NULL);
    }
}

static void test_copy(void)
{
    static answer a, b;
    static const char path[] = "examples/models/tiny-stories-draft-q8_0.gguf";
    specdec_config c = config_of(PLAIN, -1);
    unsigned char *data;
    size_t size = 0;
    char copy[] = "/tmp/specdec-test-XXXXXX";
    int file = mkstemp(copy);

    TEST("a model that is copied does not mind what becomes of its file");
    data = check_read_file(path, &size);
    CHECK(file >= 0 && data && write(file, data, size) == (ssize_t)size);
    memset(&c.target, 0, sizeof c.target);
    c.target.data = data;
    c.target.size = size;
    CHECK(answer_to(&c, "Once upon a time", &a));
    memset(&c.target, 0, sizeof c.target);
    c.target.path = copy;
    c.target.copy = 1;
    for (c.weights_in_place = 0; c.weights_in_place < 2; c.weights_in_place++) {
        session s;

        CHECK(!open_session(&s, &c));
        CHECK(ftruncate(file, 0) == 0);
        CHECK(!specdec_prompt(s.engine, "Once upon a time", SPECDEC_WHOLE_STRING));
        memset(&b, 0, sizeof b);
        CHECK_EQUAL_INT(read_on(s.engine, &b), SPECDEC_DONE);
        CHECK(same_answer(&a, &b));
        close_session(&s);
        CHECK(lseek(file, 0, SEEK_SET) == 0 && write(file, data, size) == (ssize_t)size);
    }
    close(file);
    remove(copy);
    free(data);
}

static const struct { const char *name; void (*run)(void); } tests[] = {
    {"lossless", test_lossless},
    {"perfect_draft", test_perfect_draft},
    {"policies", test_policies},
    {"credit", test_credit}, {"noise", test_noise}, {"ways", test_ways},
    {"growth", test_growth},
    {"padding", test_padding},
    {"reading", test_reading},
    {"step", test_step},
    {"rewind", test_rewind}, {"far_rewind", test_far_rewind},
    {"prompts", test_prompts},
    {"forward", test_forward},
    {"cancel", test_cancel},
    {"cancel_pending", test_cancel_pending},
    {"cancel_worst", test_cancel_worst},
    {"progress", test_progress},
    {"limits", test_limits},
    {"stop", test_stop},
    {"stopped", test_stopped},
    {"chat", test_chat}, {"second_turn", test_second_turn},
    {"failures", test_failures},
    {"rules_alone", test_rules_alone}, {"faint", test_faint},
    {"stock", test_stock},
    {"held_back", test_held_back},
    {"shared_arguments", test_shared_arguments},
    {"copy", test_copy},
    {"memory", test_memory},
    {"sharing", test_sharing},
    {"threads", test_threads},
    {"examples", test_examples}};

int main(int argc, char **argv)
{
    int i;

    quick = getenv("SPECDEC_QUICK") != NULL;
    make_models();
    for (i = 0; i < COUNT(tests); i++) { /* all, or the one named */
        double start = specdec__os_monotonic_seconds();

        if (argc > 1 && strcmp(argv[1], tests[i].name) != 0)
            continue;
        tests[i].run();
        printf("  %-16s %.1f s\n", tests[i].name, specdec__os_monotonic_seconds() - start);
        fflush(stdout);
    }
    for (i = 0; i < MODELS; i++)
        free(models[i].data);
    return check_report("test_engine");
}
