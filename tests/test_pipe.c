/* test_pipe.c - a target whose layers lie on several ranks, here threads that talk through memory: texts are those of one
   machine, whatever the links do; what goes wrong with a rank ends as an error on all, soon.
   cc -O2 -pthread -I. test_pipe.c; test_pipe [TEST [TIMES as long]]; SPECDEC_QUICK=1 shortens. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "skipping_clock.h"
#define SPECDEC_CLUSTER
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "check.h"
#include "gguf_maker.h"
#include "machine.h"
#include "ranks.h"

enum { CONTEXT_TOKENS = 200, TEXTS = 4 };

static int quick, times = 1;

/* --- models ----------------------------------------------------------------------------------------------------------- */

/* From RECURRENT on: two of each kind with recurrent layers, of which the second one drafts for the first. */
enum { PLAIN, NOISY, WINDOWED, OTHER, STRANGER, RECURRENT, KINDS = 6, MODELS = RECURRENT + 2 * KINDS };
static file models[MODELS];
static const char *const recurrent_names[KINDS] = {"lfm2", "qwen35", "granitehybrid", "falcon-h1", "nemotron_h", "qwen35moe"};

static void make_models(void)
{
    maker_recipe r;
    int i;

    memset(&r, 0, sizeof r);
    r.seed = 12;
    r.output_type = 1;
    r.may_end = 1;
    r.embedding = 32;
    r.layers = 6;
    models[OTHER] = random_file(&r);
    r.vocab = 700;
    models[STRANGER] = random_file(&r);
    models[PLAIN] = random_model(6, 0, 1);
    models[NOISY] = random_model(6, 0.03f, 1);
    models[WINDOWED] = random_windowed(1);
    memset(&r, 0, sizeof r);
    r.embedding = 32;
    r.output_type = r.may_end = 1;
    r.layers = 6;
    r.seed = 21;
    for (i = 0; i < 2 * KINDS; i++) {
        r.architecture = recurrent_names[i / 2];
        r.experts = strcmp(r.architecture, "qwen35moe") ? -1 : 0;
        r.noise = i % 2 ? 0.1f : 0;
        models[RECURRENT + i] = random_file(&r);
    }
}

/* --- what a text must be ---------------------------------------------------------------------------------------------- */

static machine oracle;

static specdec_config config_of(int target, int draft)
{
    specdec_config c;

    memset(&c, 0, sizeof c);
    c.target = source_of(&models[target]);
    if (draft >= 0)
        c.draft = source_of(&models[draft]);
    c.threads = 1;
    c.context = CONTEXT_TOKENS;
    return c;
}

typedef struct slot {
    specdec *text;
    specdec_settings settings;
    int from; /* tokens that were prompted, or checked */
} slot;

static void check_slot(slot *s)
{
    const int32_t *tokens;
    int count;

    specdec_tokens(s->text, &tokens, &count);
    check_written(&oracle, tokens, s->from, count, &s->settings);
    s->from = count;
}

/* --- random schedules --------------------------------------------------------------------------------------------------- */

typedef struct world {
    party cluster;
    slot slots[TEXTS];
    int texts;
} world;

static int written, cancelled, draft_runs; /* of all schedules; draft_runs: of steps whose runs followed each other */

static slot *any_slot(world *w, int open)
{
    int first = dice(&w->cluster.net, w->texts), i;

    for (i = 0; i < w->texts; i++) {
        slot *s = &w->slots[(first + i) % w->texts];

        if ((s->text != NULL) == open)
            return s;
    }
    return NULL;
}

static void open_slot(world *w)
{
    mesh *n = &w->cluster.net;
    slot *s = any_slot(w, 0), *other = any_slot(w, 1);

    if (!s)
        return;
    memset(s, 0, sizeof *s);
    if (other && dice(n, 2)) {
        check_slot(other);
        *s = *other;
        CHECK_EQUAL_INT(specdec_fork(other->text, &s->text), SPECDEC_OK);
    } else {
        CHECK_EQUAL_INT(specdec_open(w->cluster.ranks[0].text, &s->text), SPECDEC_OK);
    }
}

static void prompt_slot(world *w, slot *s)
{
    mesh *n = &w->cluster.net;
    int32_t tokens[CONTEXT_TOKENS];
    const slot *other = any_slot(w, 1);
    const int32_t *theirs, *mine;
    int length = 1 + dice(n, dice(n, 4) ? 20 : 130), i, count, own;

    check_slot(s);
    for (i = 0; i < length; i++)
        tokens[i] = 5 + dice(n, dice(n, 2) ? 6 : 250);
    specdec_tokens(other->text, &theirs, &count);
    specdec_tokens(s->text, &mine, &own);
    if (!own && count && dice(n, 2))
        memcpy(tokens, theirs, (size_t)(length = 1 + dice(n, count)) * sizeof *tokens);
    if (!specdec_prompt_tokens(s->text, tokens, length))
        s->from = own + length;
}

static void read_slot(world *w, slot *s)
{
    specdec_text piece;
    const int32_t *tokens;
    int count, left = 1 + dice(&w->cluster.net, 10), way = dice(&w->cluster.net, 2);
    specdec_result result = SPECDEC_OK;

    while (left-- > 0 && !result) {
        result = way ? specdec_next(s->text, &piece) : specdec_step(s->text, &tokens, &count);
        written += !result;
    }
    cancelled += result == SPECDEC_ERROR_CANCELLED;
    if (result && result != SPECDEC_DONE && result != SPECDEC_ERROR_CANCELLED && s->from) {
        fprintf(stderr, "%s\n", specdec_error_text(s->text));
        CHECK_EQUAL_INT(result, SPECDEC_OK);
    }
}

static void act(world *w)
{
    mesh *n = &w->cluster.net;
    slot *s = any_slot(w, 1);
    const int32_t *tokens;
    int count, what = dice(n, 20);

    specdec_tokens(s->text, &tokens, &count);
    if (what < 2 && w->texts > 1) {
        open_slot(w);
    } else if (what < 5) {
        prompt_slot(w, s);
    } else if (what < 6) {
        check_slot(s);
        s->settings.sampling.temperature = dice(n, 2) ? 0 : 0.9f;
        s->settings.sampling.seed = (uint64_t)dice(n, 5);
        CHECK_EQUAL_INT(specdec_set(s->text, &s->settings), SPECDEC_OK);
    } else if (what < 7) {
        check_slot(s);
        CHECK_EQUAL_INT(specdec_rewind(s->text, s->from = dice(n, count + 1)), SPECDEC_OK);
    } else if (what < 8) {
        specdec_cancel(s->text);
    } else if (what < 9 && w->texts > 1 && s != &w->slots[0]) {
        check_slot(s);
        specdec_close(s->text);
        s->text = NULL;
    } else if (what < 10 && count) {
        specdec_logits(s->text, NULL, NULL, 0, NULL);
    } else {
        read_slot(w, s);
    }
}

static int drafted, told; /* by ranks that only draft: guesses that came true, such ranks */

/* drafts: a rank has the draft model alone, and rank 0 none. */
static void run_schedule(const specdec_config *config, int ranks, int drafts, double late, uint64_t seed, int acts)
{
    static world w;
    specdec_config alone = *config;
    specdec_stats stats;
    int i;

    memset(&w, 0, sizeof w);
    w.cluster.net.random = seed + check_seed() * 1000003;
    w.cluster.net.late = late;
    deal_layers(&w.cluster, ranks, 6);
    if (drafts)
        deal_drafter(&w.cluster, 1 + dice(&w.cluster.net, ranks - 1));
    w.texts = config->sequences ? config->sequences : 1;
    alone.sequences = 0;
    alone.drafting = SPECDEC_DRAFT_OFF;
    if (!open_machine(&oracle, &alone))
        return;
    if (start_cluster(&w.cluster, config, 20)) {
        w.slots[0].text = w.cluster.ranks[0].text;
        for (i = 0; i < acts; i++)
            act(&w);
        for (i = 0; i < w.texts; i++)
            if (w.slots[i].text)
                check_slot(&w.slots[i]);
        specdec_get_stats(w.slots[0].text, &stats);
        draft_runs += (int)stats.steps_beside;
        if (drafts) {
            told++;
            drafted += (int)stats.accepted;
        }
    } else {
        fprintf(stderr, "%s\n", w.cluster.ranks[0].error.text);
        CHECK(0);
    }
    end_cluster(&w.cluster);
    for (i = 1; i < ranks; i++)
        if (w.cluster.ranks[i].result != SPECDEC_DONE) {
            fprintf(stderr, "rank %d: %s\n", i, w.cluster.ranks[i].error.text);
            CHECK_EQUAL_INT(w.cluster.ranks[i].result, SPECDEC_DONE);
        }
    close_machine(&oracle);
}

static void test_schedules(void)
{
    static const specdec_drafting draftings[] = {SPECDEC_DRAFT_AUTO, SPECDEC_DRAFT_MODEL, SPECDEC_DRAFT_NGRAM, SPECDEC_DRAFT_OFF};
    const int count = (quick ? 12 : 24) * times;
    uint64_t random = 5;
    int i;

    TEST("a text is what it is on one machine: 1 to 6 ranks, greedy and coupled, whenever messages come");
    for (i = 0; i < count; i++) {
        const int small = maker_random(&random) % 4 ? PLAIN : WINDOWED;
        specdec_config c = config_of(small, maker_random(&random) % 3 && small == PLAIN ? NOISY : small);

        c.sequences = maker_random(&random) % 3 ? 1 : TEXTS;
        c.drafting = i % 2 ? SPECDEC_DRAFT_MODEL : draftings[i / 2 % 4];
        c.policy = maker_random(&random) % 4 ? SPECDEC_POLICY_DYNAMIC : SPECDEC_POLICY_STATIC;
        c.batch = 1 + (int)(maker_random(&random) % 90);
        c.kv = maker_random(&random) % 2 ? NULL : "q8_0";
        run_schedule(&c, 1 + i % RANKS, 0, i % 3 ? 0 : 1e-3, (uint64_t)i + 1, quick ? 40 : 60);
    }
    printf("  %d schedules: %d pieces, %d steps in flight, %d cancelled\n", i, written, draft_runs, cancelled);
    CHECK(written > 20 * count && draft_runs > 5 * count);
}

static void test_recurrent(void)
{
    const int count = (quick ? 18 : 72) * times, before = draft_runs;
    uint64_t random = 31;
    int i;

    TEST("so is the text of a model with recurrent layers, whichever rank has them: forks, rewinds, cancelled calls, trees, several runs on their way");
    for (i = 0; i < count; i++) {
        const int kind = RECURRENT + 2 * (i % KINDS);
        specdec_config c = config_of(kind, maker_random(&random) % 4 ? kind + 1 : kind);

        c.sequences = maker_random(&random) % 3 ? 1 : TEXTS;
        c.drafting = i % 3 ? SPECDEC_DRAFT_MODEL : maker_random(&random) % 2 ? SPECDEC_DRAFT_AUTO : SPECDEC_DRAFT_NGRAM;
        c.policy = maker_random(&random) % 4 ? SPECDEC_POLICY_DYNAMIC : SPECDEC_POLICY_STATIC;
        c.batch = 1 + (int)(maker_random(&random) % 90);
        c.checkpoint = 8 + (int)(maker_random(&random) % 100);
        c.threads = 1 + (int)(maker_random(&random) % 2);
        run_schedule(&c, 2 + i % (RANKS - 1), i % 7 == 6 && c.drafting == SPECDEC_DRAFT_MODEL, i % 4 ? 0 : 1e-3, (uint64_t)i + 1, quick ? 40 : 60);
    }
    printf("  %d schedules: %d steps in flight, %d calls cancelled in all\n", i, draft_runs - before, cancelled);
    CHECK(draft_runs - before > 3 * count);
}

/* A text is written until it has so many tokens, at least, or until it ends. */
static int write_to(specdec *t, int length, const int32_t **tokens)
{
    specdec_result result = SPECDEC_OK;
    const int32_t *more;
    int n, count;

    for (specdec_tokens(t, tokens, &count); count < length && !result; specdec_tokens(t, tokens, &count))
        result = specdec_step(t, &more, &n);
    CHECK(result == SPECDEC_OK || result == SPECDEC_DONE);
    return count;
}

/* Logits (32, vocabulary) of a tree behind a prompt, then a sequence that is forked, cut and extended greedily, like its fork. text: 80. */
static void tree_and_text(specdec *t, const int32_t *given, float *rows, int32_t *text)
{
    int32_t parents[31];
    const int32_t *tokens;
    specdec *fork;
    int i;

    for (i = 0; i < 31; i++)
        parents[i] = i % 5 == 4 ? i - 3 : i - 1 - (i % 7 == 6);
    CHECK_EQUAL_INT(specdec_prompt_tokens(t, given, 16), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_logits(t, given + 16, parents, 31, rows), SPECDEC_OK);
    write_to(t, 30, &tokens);
    CHECK_EQUAL_INT(specdec_fork(t, &fork), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_rewind(t, 12), SPECDEC_OK);
    CHECK(write_to(t, 40, &tokens) >= 40);
    memcpy(text, tokens, 40 * sizeof *text);
    CHECK(write_to(fork, 40, &tokens) >= 40);
    memcpy(text + 40, tokens, 40 * sizeof *text);
}

/* Models of ../shared on some ranks. */
static void test_fixtures(void)
{
    static const char *const fixtures[] = {"lfm2-f32", "qwen35-f32", "granitehybrid-f32", "falcon-h1-q8_0", "nemotron_h-q8_0", "qwen35moe-f32", "lfm2moe-f32"};
    static float rows[2][32 * 1024];
    static int32_t texts[2][80];
    int32_t given[48];
    size_t k;
    int i;

    TEST("logits of models with recurrent layers are the same bits on ranks, and so are texts");
    for (i = 0; i < 48; i++)
        given[i] = 5 + i * i * 7 % 990;
    for (k = 0; k < sizeof fixtures / sizeof *fixtures; k++) {
        static party c;
        char name[64], path[512];
        specdec_config config, alone;
        file f;
        machine m;

        snprintf(name, sizeof name, "modern/%s.gguf", fixtures[k]);
        f.data = check_read_file(check_shared(path, sizeof path, name), &f.size);
        if (!f.data) {
            SKIP(name);
            continue;
        }
        memset(&config, 0, sizeof config);
        config.target = source_of(&f);
        config.threads = 1;
        config.context = CONTEXT_TOKENS;
        config.batch = config.tree_size = 32;
        config.sequences = 2;
        config.drafting = SPECDEC_DRAFT_NGRAM;
        config.checkpoint = 8;
        config.settings.ignore_end = 1;
        alone = config;
        alone.drafting = SPECDEC_DRAFT_OFF;
        memset(rows, 0, sizeof rows);
        memset(texts, 0, sizeof texts);
        memset(&c, 0, sizeof c);
        c.net.random = k + 1;
        if (open_machine(&m, &alone)) {
            const int layers = m.first->model->layers;

            tree_and_text(m.first, given, rows[0], texts[0]);
            close_machine(&m);
            deal_layers(&c, specdec__min_int(2 + (int)k % 3, layers), layers);
            if (start_cluster(&c, &config, 20)) {
                tree_and_text(c.ranks[0].text, given, rows[1], texts[1]);
                CHECK(memcmp(rows[0], rows[1], sizeof rows[0]) == 0);
                CHECK(memcmp(texts[0], texts[1], sizeof texts[0]) == 0);
                printf("  %s on %d ranks, of which the first has %d of %d layers\n", fixtures[k], c.count, c.layers[0], layers);
            } else {
                fprintf(stderr, "%s\n", c.ranks[0].error.text);
                CHECK(0);
            }
            end_cluster(&c);
        }
        free(f.data);
    }
}

static void test_draft_rank(void)
{
    const int count = (quick ? 10 : 25) * times;
    uint64_t random = 8;
    int i;

    TEST("and so it is when a rank of its own drafts, greedy and coupled, whenever its guesses come");
    for (i = 0; i < count; i++) {
        const int small = maker_random(&random) % 4 ? PLAIN : WINDOWED;
        specdec_config c = config_of(small, maker_random(&random) % 3 && small == PLAIN ? NOISY : small);

        c.sequences = maker_random(&random) % 3 ? 1 : TEXTS;
        c.drafting = i % 4 ? SPECDEC_DRAFT_MODEL : SPECDEC_DRAFT_AUTO;
        c.policy = maker_random(&random) % 4 ? SPECDEC_POLICY_DYNAMIC : SPECDEC_POLICY_STATIC;
        c.batch = 1 + (int)(maker_random(&random) % 90);
        run_schedule(&c, 2 + i % (RANKS - 1), 1, i % 3 ? 0 : 1e-3, (uint64_t)i + 1, quick ? 40 : 60);
    }
    printf("  %d schedules: %d guesses came true\n", told, drafted);
    CHECK(drafted > 5 * count);
}

/* The fork shares the page in whose rest the runs on their way have their keys. */
static void test_fork_in_flight(void)
{
    static party c;
    specdec_config config = config_of(PLAIN, NOISY), alone = config_of(PLAIN, -1);
    specdec *first, *fork;
    const int32_t *tokens;
    int32_t prompted[20];
    specdec_stats stats;
    specdec_settings ended = config.settings;
    int i, k, count;

    TEST("a text that is copied while runs of it are on their way goes on as it was, and so does the copy");
    memset(&c, 0, sizeof c);
    c.net.late = 5e-4;
    ended.max_tokens = 1;
    deal_layers(&c, 4, 6);
    config.sequences = 6;
    config.async = 1;
    config.drafting = SPECDEC_DRAFT_MODEL;
    alone.drafting = SPECDEC_DRAFT_OFF;
    for (i = 0; i < 20; i++)
        prompted[i] = 5 + i * i % 90;
    if (!open_machine(&oracle, &alone))
        return;
    if (start_cluster(&c, &config, 20)) {
        first = c.ranks[0].text;
        CHECK_EQUAL_INT(specdec_prompt_tokens(first, prompted, 20), SPECDEC_OK);
        for (k = 0; k < 6; k++) {
            for (i = 0; i < 6; i++)
                CHECK_EQUAL_INT(specdec_step(first, &tokens, &count), SPECDEC_OK);
            if (k < 5) {
                CHECK_EQUAL_INT(specdec_fork(first, &fork), SPECDEC_OK);
                CHECK_EQUAL_INT(specdec_set(fork, &ended), SPECDEC_OK); /* the first goes on alone */
            }
        }
        specdec_tokens(first, &tokens, &count);
        check_written(&oracle, tokens, 20, count, &config.settings);
        CHECK_EQUAL_INT(specdec_set(fork, &config.settings), SPECDEC_OK);
        for (i = 0; i < 6; i++)
            CHECK_EQUAL_INT(specdec_step(fork, &tokens, &count), SPECDEC_OK);
        specdec_tokens(fork, &tokens, &count);
        check_written(&oracle, tokens, 20, count, &config.settings);
        specdec_get_stats(first, &stats);
        CHECK(stats.steps_beside > 10);
    }
    end_cluster(&c);
    for (i = 1; i < 4; i++)
        CHECK_EQUAL_INT(c.ranks[i].result, SPECDEC_DONE);
    close_machine(&oracle);
}

/* Guesses beside those that came true keep numbers and places in the cache, of which there are few here; an always
   right draft model never makes the runs begin anew. */
static void test_right_drafts(void)
{
    static party c;
    specdec_config config = config_of(PLAIN, PLAIN), alone = config_of(PLAIN, -1);
    int32_t prompted[10];
    const int32_t *tokens;
    int i, count, full = 0, steps = 0, together = 0;

    TEST("runs follow each other through the ranks for as long as all guesses are right, however few nodes there may be");
    memset(&c, 0, sizeof c);
    c.net.late = 12e-3; /* much more than a step takes, under a sanitizer on a machine that others use, too */
    deal_layers(&c, 4, 6);
    config.drafting = SPECDEC_DRAFT_MODEL;
    config.async = 1;
    config.tree_size = 20;
    config.batch = 1;
    alone.drafting = SPECDEC_DRAFT_OFF;
    for (i = 0; i < 10; i++)
        prompted[i] = 5 + i * i % 90;
    if (!open_machine(&oracle, &alone))
        return;
    if (start_cluster(&c, &config, 20)) {
        specdec *text = c.ranks[0].text;
        const specdec__pipe *pipe = text->engine->pipe;
        double *long_ago = &text->engine->tune->drafters[0].share[0];

        *long_ago = 1000;
        CHECK_EQUAL_INT(specdec_prompt_tokens(text, prompted, 10), SPECDEC_OK);
        while (specdec_step(text, &tokens, &count) == SPECDEC_OK) {
            steps++;
            together += pipe->count > 1;
            full += pipe->nodes > text->engine->target.max_nodes - 4;
        }
        specdec_tokens(text, &tokens, &count);
        printf("  %d tokens, %d steps, %d of them with runs behind them, %d with hardly a number left\n", count - 10, steps, together, full);
        check_written(&oracle, tokens, 10, count, &config.settings);
        CHECK(steps > 20 && together > steps / 8 && full < steps / 4);
        TEST("what was seen long ago counts less with every step");
        CHECK(*long_ago < 1000 * pow(SPECDEC__TUNE_DECAY, 0.7 * steps));
        TEST("runs follow each other, and texts are those of one machine");
    }
    end_cluster(&c);
    for (i = 1; i < 4; i++)
        CHECK_EQUAL_INT(c.ranks[i].result, SPECDEC_DONE);
    close_machine(&oracle);
}

/* Another text holds some of the pages that both share. Returns the tokens of a text that then writes until it has no
   room any more. */
static int write_until_full(specdec *text, int length, const specdec_settings *settings)
{
    specdec_settings one = *settings;
    int32_t prompted[CONTEXT_TOKENS];
    const int32_t *tokens;
    specdec *other;
    specdec_result result;
    int i, count;

    one.max_tokens = 1;
    for (i = 0; i < CONTEXT_TOKENS; i++)
        prompted[i] = 5 + i * i % 90;
    CHECK_EQUAL_INT(specdec_open(text, &other), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_set(other, &one), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_prompt_tokens(other, prompted + 20, 150), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_step(other, &tokens, &count), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_prompt_tokens(text, prompted, length), SPECDEC_OK);
    while ((result = specdec_step(text, &tokens, &count)) == SPECDEC_OK)
        continue;
    CHECK_EQUAL_INT(result, SPECDEC_ERROR_FULL);
    CHECK(strstr(specdec_error_text(text), "no room in the cache") != NULL);
    specdec_tokens(text, &tokens, &count);
    specdec_close(other);
    for (i = 0; i < 5; i++) /* now there is room */
        CHECK_EQUAL_INT(specdec_step(text, &tokens, &length), SPECDEC_OK);
    return count;
}

static void test_full(void)
{
    static party c;
    file endless = random_model(6, 0, 0);
    specdec_config config = config_of(PLAIN, PLAIN), alone;
    const int32_t *tokens;
    specdec_stats stats;
    int i, length, count, reached;

    TEST("runs that find no room in the cache end nothing: the text goes on in steps, as far as it does on one machine");
    config.target = config.draft = source_of(&endless);
    config.context = 600;
    config.cache = 150;
    config.sequences = 2;
    config.tree_size = config.batch = 40;
    config.async = 1;
    config.drafting = SPECDEC_DRAFT_MODEL;
    alone = config;
    alone.draft.data = NULL;
    alone.drafting = SPECDEC_DRAFT_OFF;
    for (length = 130; length < 190; length += 18) {
        machine one;

        if (!open_machine(&one, &alone))
            break;
        reached = write_until_full(one.first, length, &config.settings);
        memset(&c, 0, sizeof c);
        c.net.late = 6e-3;
        c.net.random = 3;
        deal_layers(&c, 4, 6);
        if (start_cluster(&c, &config, 20)) {
            specdec *text = c.ranks[0].text;

            CHECK_EQUAL_INT(write_until_full(text, length, &config.settings), reached);
            specdec_tokens(text, &tokens, &count);
            check_written(&one, tokens, length, count, &config.settings);
            specdec_get_stats(text, &stats);
            printf("  %d tokens, then %d: %d steps, %d of them in flight\n", length, count - length, (int)stats.steps,
                   (int)stats.steps_beside);
            CHECK(stats.steps_beside > 0);
        }
        end_cluster(&c);
        for (i = 1; i < 4; i++)
            CHECK_EQUAL_INT(c.ranks[i].result, SPECDEC_DONE);
        close_machine(&one);
    }
    free(endless.data);
}

/* Cancels rank 0's text in the second batch of a prompt. */
static party stopped;
static int listens, layers_run; /* layers of rank 1 since it listens */

static void stop_soon(void *user_data, int nodes)
{
    (void)user_data;
    (void)nodes;
    if (SPECDEC__LOAD(&listens) && ++layers_run == 8)
        specdec_cancel(stopped.ranks[0].text);
}

static void test_cancel(void)
{
    specdec_config config = config_of(PLAIN, -1);
    int32_t prompted[190];
    const int32_t *tokens;
    int i, own, count;

    TEST("a prompt that is cancelled ends soon, whether rank 0 has layers or not, and another one can follow");
    config.batch = 4;
    config.drafting = SPECDEC_DRAFT_OFF;
    for (i = 0; i < 190; i++)
        prompted[i] = 5 + i * i % 90;
    if (!open_machine(&oracle, &config))
        return;
    for (own = 0; own < 2; own++) {
        memset(&stopped, 0, sizeof stopped);
        stopped.count = 2;
        stopped.layers[0] = own;
        stopped.layers[1] = 6 - own;
        stopped.ranks[1].cluster.layer = stop_soon;
        layers_run = 0;
        SPECDEC__STORE(&listens, 0);
        if (start_cluster(&stopped, &config, 20)) {
            specdec *text = stopped.ranks[0].text;
            uint32_t runs = text->engine->link->own.run;

            SPECDEC__STORE(&listens, 1);
            CHECK_EQUAL_INT(specdec_prompt_tokens(text, prompted, 190), SPECDEC_ERROR_CANCELLED);
            runs = text->engine->link->own.run - runs;
            printf("  %d runs of 48 were sent\n", (int)runs);
            CHECK(runs < 20);
            CHECK_EQUAL_INT(specdec_prompt_tokens(text, prompted, 30), SPECDEC_OK);
            for (i = 0; i < 4; i++)
                CHECK_EQUAL_INT(specdec_step(text, &tokens, &count), SPECDEC_OK);
            specdec_tokens(text, &tokens, &count);
            check_written(&oracle, tokens, 30, count, &config.settings);
        }
        end_cluster(&stopped);
        CHECK_EQUAL_INT(stopped.ranks[1].result, SPECDEC_DONE);
    }
    close_machine(&oracle);
}

/* --- what goes wrong ------------------------------------------------------------------------------------------------------ */

/* A cluster of some ranks that writes; whatever happens, all ranks end, soon, and those that fail say why. Returns how
   many have failed. drafter: the rank that has the draft model alone, or 0; strict: what was written is right. */
static int run_broken(party *c, const specdec_config *config, int ranks, int drafter, double silence, int kill,
                      int strict)
{
    static const int32_t prompted[] = {7, 9, 11, 8, 6};
    const int32_t *tokens;
    int i, count, failed = 0;
    double begun;

    deal_layers(c, ranks, 6);
    if (drafter)
        deal_drafter(c, drafter);
    if (start_cluster(c, config, silence)) {
        specdec *t = c->ranks[0].text;
        specdec_result result = specdec_prompt_tokens(t, prompted, 5);

        for (i = 0; i < 60 && !result; i++) {
            result = specdec_step(t, &tokens, &count);
            if (kill >= 0 && i == 10) {
                pthread_mutex_lock(&c->net.mutex);
                c->net.dead[kill] = 1;
                pthread_mutex_unlock(&c->net.mutex);
            }
            if (result == SPECDEC_DONE) {
                specdec_rewind(t, 0);
                result = specdec_prompt_tokens(t, prompted, 5);
            }
        }
        c->ranks[0].ended = specdec__os_monotonic_seconds();
        if (result) {
            CHECK(specdec_error_text(t)[0] != 0);
            failed++;
        }
        specdec_tokens(t, &tokens, &count);
        if (strict && count)
            check_written(&oracle, tokens, 5, count, &config->settings);
    } else {
        CHECK(c->ranks[0].error.text[0] != 0);
        failed++;
    }
    begun = specdec__os_monotonic_seconds();
    end_cluster(c);
    CHECK(specdec__os_monotonic_seconds() - begun < 5);
    for (i = 1; i < ranks; i++) {
        failed += c->ranks[i].result != SPECDEC_DONE;
        CHECK(c->ranks[i].result == SPECDEC_DONE || c->ranks[i].error.text[0]);
    }
    return failed;
}

static void test_lost(void)
{
    specdec_config c = config_of(PLAIN, NOISY);
    int kill, k, drafts;

    TEST("when a rank is lost, all others end with an error that says which");
    c.drafting = SPECDEC_DRAFT_MODEL;
    c.policy = SPECDEC_POLICY_DYNAMIC;
    for (kill = 0, drafts = 0; kill < 4; drafts = !drafts, kill += !drafts) {
        static party broken;
        char words[40];
        int i, named = 0;

        memset(&broken, 0, sizeof broken);
        broken.net.random = (uint64_t)kill + 3;
        CHECK_EQUAL_INT(run_broken(&broken, &c, 4, drafts ? kill == 3 ? 1 : 3 : 0, 1.0, kill, 0), 4);
        snprintf(words, sizeof words, "rank %d was not heard of", kill);
        for (i = 1, k = 0; i < 4; i++) {
            CHECK_EQUAL_INT(broken.ranks[i].result, SPECDEC_ERROR_PEER);
            named += i != kill && strstr(broken.ranks[i].error.text, words);
            k += i != kill;
        }
        CHECK_EQUAL_INT(named, k);
    }
}

/* hooks.log: counts how often it is said that a rank drafts no more. */
static void hear_loss(void *user_data, const char *line)
{
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER; /* all ranks have this hook */

    pthread_mutex_lock(&one);
    *(int *)user_data += strstr(line, "drafts no more") != NULL;
    pthread_mutex_unlock(&one);
}

static void test_lost_drafter(void)
{
    specdec_config c = config_of(PLAIN, NOISY), alone = config_of(PLAIN, -1);
    int ranks, heard = 0;

    TEST("when the rank that drafts is lost, the others go on without it, and say so");
    alone.drafting = SPECDEC_DRAFT_OFF;
    c.policy = SPECDEC_POLICY_DYNAMIC;
    c.drafting = SPECDEC_DRAFT_MODEL;
    if (!open_machine(&oracle, &alone))
        return;
    for (ranks = 2; ranks < 5; ranks++) {
        static party broken;

        memset(&broken, 0, sizeof broken);
        broken.net.random = (uint64_t)ranks;
        broken.net.late = 0.04; /* so that it lasts longer than a second */
        c.hooks.log = hear_loss;
        c.hooks.user_data = &heard;
        CHECK_EQUAL_INT(run_broken(&broken, &c, ranks, ranks - 1, 1.0, ranks - 1, 1), 1);
        CHECK_EQUAL_INT(broken.ranks[ranks - 1].result, SPECDEC_ERROR_PEER);
    }
    printf("  noticed %d times\n", heard);
    CHECK(heard > 0);
    close_machine(&oracle);
}

/* Something that a line does: bytes are flipped, lost, come twice. */
static int by_chance(mesh *n, int own, unsigned char *bytes, size_t *size)
{
    int i;

    (void)own;
    if (dice(n, n->stray))
        return 1;
    switch (dice(n, 4)) {
    case 0:
        for (i = dice(n, 4); i >= 0; i--)
            bytes[dice(n, (int)*size)] ^= (unsigned char)(1 << dice(n, 8));
        return 1;
    case 1: *size = (size_t)dice(n, (int)*size); return *size > 0;
    case 2: return 2;
    default: return 0;
    }
}

/* Something that a rank does that wants harm: words are others, and their sum fits. */
static int on_purpose(mesh *n, int own, unsigned char *bytes, size_t *size)
{
    static const uint32_t values[] = {0, 1, 2, 7, 0xffffffffu, 0x7fffffffu, 0x80000000u, 63, 64, 65};
    const int words = (int)(*size / 4);
    const int orders = (int)specdec__wire_get_word(bytes, SPECDEC__WIRE_ORDER_WORDS);
    int i;

    (void)own;
    if (dice(n, n->stray))
        return 1;
    for (i = dice(n, 3); i >= 0; i--) {
        const int at = orders > 0 && dice(n, 8) ? SPECDEC__WIRE_HEADER_WORDS + dice(n, orders) : dice(n, words);
        const uint32_t was = specdec__wire_get_word(bytes, at);

        specdec__wire_put_word(bytes, at, dice(n, 2) ? values[dice(n, 10)] : was + (uint32_t)dice(n, 5) - 2);
    }
    specdec__wire_put_word(bytes, SPECDEC__WIRE_CHECKSUM, specdec__wire_message_checksum(bytes, (size_t)words));
    return 1;
}

/* The same, but only the rank that drafts does it: the second one. */
static int drafter_lies(mesh *n, int own, unsigned char *bytes, size_t *size)
{
    return own == 1 ? on_purpose(n, own, bytes, size) : 1;
}

/* Where there is a draft model, the second rank of every other cluster has it alone; of all, if only that one lies. */
static void test_garbage(int (*tamper)(mesh *, int, unsigned char *, size_t *), int strict, int target)
{
    const int count = (quick ? 15 : 25) * times, noisy = target == PLAIN ? NOISY : target + 1;
    specdec_config alone = config_of(target, -1);
    const int lies = tamper == drafter_lies;
    int i, failed = 0, whole = 0;

    alone.drafting = SPECDEC_DRAFT_OFF;
    if (!open_machine(&oracle, &alone))
        return;
    for (i = 0; i < count; i++) {
        static party broken;
        specdec_config c = config_of(target, i % 3 || lies ? noisy : -1);
        int now;

        memset(&broken, 0, sizeof broken);
        broken.net.random = (uint64_t)i + 1;
        broken.net.tamper = tamper;
        broken.net.stray = 20 + i % 7 * 30;
        c.policy = SPECDEC_POLICY_DYNAMIC;
        now = run_broken(&broken, &c, 2 + i % 3, lies || (i % 3 && i % 2), 0.25, -1, strict);
        failed += now > 0;
        whole += now == 0;
    }
    close_machine(&oracle);
    printf("  %d clusters: %d ended with errors, %d did not notice\n", count, failed, whole);
    CHECK(lies || failed > count / 3);
}

static void test_liar(void)
{
    TEST("what a rank that drafts sends costs guesses, and the rank itself, but no text");
    test_garbage(drafter_lies, 1, PLAIN);
}

static void test_noise(void)
{
    TEST("bytes that are flipped, lost or doubled on a link end in an error, and what was written before is right");
    test_garbage(by_chance, 1, PLAIN);
    test_garbage(by_chance, 1, RECURRENT);
}

static void test_hostile(void)
{
    TEST("a rank that sends what it wants crashes no other one and keeps none waiting");
    test_garbage(on_purpose, 0, PLAIN);
    test_garbage(on_purpose, 0, RECURRENT);
    test_garbage(on_purpose, 0, RECURRENT + 2);
    test_garbage(on_purpose, 0, RECURRENT + 4);
}

/* Rank 0 sends orders as if a text had so many tokens, and lets the next one run. */
static specdec_result run_behind(specdec *text, int tokens)
{
    specdec__context *c = &text->engine->target;
    specdec__batch batch;
    specdec_error error;
    int i;

    for (i = 0; i < c->max_nodes; i++)
        c->path[i] = i;
    for (; tokens; tokens -= i) {
        i = specdec__min_int(tokens, c->max_nodes);
        CHECK(specdec__view_reserve_and_notify(&text->view, &c->kv, i));
        specdec__view_commit(&text->view, &c->kv, c->path, i);
    }
    c->tokens[0] = 5;
    c->parents[0] = -1;
    batch = specdec__forward_make_view_batch(c, &text->view, 0, 1);
    return specdec__forward(c, &batch, &error);
}

static void test_beyond(void)
{
    static const int targets[] = {PLAIN, WINDOWED};
    static party c;
    int i;

    TEST("a rank takes no more keys of a text than its context has");
    for (i = 0; i < 4; i++) {
        specdec_config config = config_of(targets[i / 2], -1);

        memset(&c, 0, sizeof c);
        c.count = 2;
        c.layers[1] = 6;
        config.batch = 90;
        config.drafting = SPECDEC_DRAFT_OFF;
        if (start_cluster(&c, &config, 20))
            CHECK_EQUAL_INT(run_behind(c.ranks[0].text, CONTEXT_TOKENS + i % 2), i % 2 ? SPECDEC_ERROR_PEER : SPECDEC_OK);
        end_cluster(&c);
        CHECK_EQUAL_INT(c.ranks[1].result, i % 2 ? SPECDEC_ERROR_PEER : SPECDEC_DONE);
        CHECK(!(i % 2) || strstr(c.ranks[1].error.text, "orders that make no sense"));
    }
}

static void test_retried(void)
{
    static party c;
    specdec_config config = config_of(PLAIN, NOISY);
    static const int32_t prompted[] = {7, 9, 11, 8, 6};
    const int32_t *tokens;
    int i, count, most = 0;

    TEST("whoever asks for more after a rank was lost hears that again, and no runs pile up");
    memset(&c, 0, sizeof c);
    c.net.late = 1e-3;
    deal_layers(&c, 3, 6);
    config.async = 1;
    config.drafting = SPECDEC_DRAFT_MODEL;
    if (start_cluster(&c, &config, 20)) {
        specdec *text = c.ranks[0].text;
        specdec__link *link = text->engine->link;

        CHECK_EQUAL_INT(specdec_prompt_tokens(text, prompted, 5), SPECDEC_OK);
        for (i = 0; i < 10; i++)
            CHECK_EQUAL_INT(specdec_step(text, &tokens, &count), SPECDEC_OK);
        CHECK(text->stats.steps_beside > 0);
        specdec__link_reject_message(link, 1, "something");
        for (i = 0; i < 100 && most < SPECDEC__WIRE_MAX_RUNS - 8; i++) {
            CHECK_EQUAL_INT(specdec_step(text, &tokens, &count), SPECDEC_ERROR_PEER);
            most = link->sent.count > most ? link->sent.count : most;
        }
        CHECK(most <= SPECDEC__PIPE_RUNS);
        printf("  %d runs at most\n", most);
    }
    end_cluster(&c);
    for (i = 1; i < 3; i++)
        CHECK_EQUAL_INT(c.ranks[i].result, SPECDEC_ERROR_PEER);
}

/* Bytes of guesses are flipped. */
static int guesses_break(mesh *n, int own, unsigned char *bytes, size_t *size)
{
    (void)own;
    if ((specdec__wire_get_word(bytes, SPECDEC__WIRE_KIND) >> 8 & 255) == SPECDEC__WIRE_DRAFT_TOKENS && !dice(n, 4))
        bytes[*size - 1] ^= 1;
    return 1;
}

static void test_broken_guesses(void)
{
    static party c;
    specdec_config config = config_of(PLAIN, NOISY), alone = config_of(PLAIN, -1);

    TEST("a rank that drafts is lost when its messages come with other bytes, and the others go on");
    alone.drafting = SPECDEC_DRAFT_OFF;
    config.drafting = SPECDEC_DRAFT_MODEL;
    if (!open_machine(&oracle, &alone))
        return;
    memset(&c, 0, sizeof c);
    c.net.random = 2;
    c.net.tamper = guesses_break;
    CHECK_EQUAL_INT(run_broken(&c, &config, 3, 1, 20, -1, 1), 1);
    CHECK_EQUAL_INT(c.ranks[1].result, SPECDEC_ERROR_PEER);
    close_machine(&oracle);
}

/* Rank 1 says twice that it is ready, and rank 2 is not heard. */
static int ready_twice(mesh *n, int own, unsigned char *bytes, size_t *size)
{
    (void)n;
    (void)size;
    return (specdec__wire_get_word(bytes, SPECDEC__WIRE_KIND) >> 8 & 255) != SPECDEC__WIRE_READY ? 1 : own == 2 ? 0 : 2;
}

/* hooks.progress: nobody waits long for ranks. */
static int wait_little(void *user_data, const char *what, int done, int all)
{
    static int looks; /* of rank 0 */

    (void)user_data;
    (void)all;
    return strcmp(what, "ranks") == 0 && done && ++looks > 6;
}

static void test_ready(void)
{
    static party c;
    specdec_config config = config_of(PLAIN, -1);
    int i;

    TEST("rank 0 waits for each rank, whatever one of them says twice");
    memset(&c, 0, sizeof c);
    c.net.tamper = ready_twice;
    config.hooks.progress = wait_little;
    deal_layers(&c, 3, 6);
    CHECK(!start_cluster(&c, &config, 20));
    CHECK_EQUAL_INT(c.ranks[0].result, SPECDEC_ERROR_CANCELLED);
    end_cluster(&c);
    for (i = 1; i < 3; i++)
        CHECK_EQUAL_INT(c.ranks[i].result, SPECDEC_ERROR_PEER);
}

/* --- one message alone, and ranks that live but do not go on --------------------------------------------------------- */

enum { LOST, LATE, TWICE, SWAPPED, FATES };

/* What happens to one message: the number-th of a kind from a rank. */
static struct {
    int kind, rank, number, fate;
} fated;

static int meet_fate(mesh *n, int own, unsigned char *bytes, size_t *size)
{
    (void)size;
    if ((int)(specdec__wire_get_word(bytes, SPECDEC__WIRE_KIND) >> 8 & 255) != fated.kind || own != fated.rank || fated.number--)
        return 1;
    n->hold = fated.fate == LATE ? 0.3 : 0;
    n->swap = fated.fate == SWAPPED;
    return fated.fate == LOST ? 0 : fated.fate == TWICE ? 2 : 1;
}

/* silence is 0.2 s here, so a message is missed after 1.6 s. */
static void test_single(void)
{
    const int count = (quick ? 32 : 8 * FATES * 4) * times;
    specdec_config alone = config_of(PLAIN, -1);
    uint64_t random = 3;
    int i, failed = 0, slow = 0;

    TEST("whichever message is lost, late, doubled or overtaken: soon there is an error, or the text is right");
    alone.drafting = SPECDEC_DRAFT_OFF;
    if (!open_machine(&oracle, &alone))
        return;
    for (i = 0; i < count; i++) {
        static party broken;
        specdec_config c = config_of(PLAIN, i % 3 ? NOISY : -1);
        const double start = specdec__os_monotonic_seconds();
        const int ranks = 2 + (int)(maker_random(&random) % 3), drafts = i % 3 == 2;

        memset(&broken, 0, sizeof broken);
        fated.fate = i % FATES;
        fated.kind = i / FATES % SPECDEC__WIRE_KINDS;
        fated.rank = fated.kind == SPECDEC__WIRE_CANCEL ? 0 : fated.kind == SPECDEC__WIRE_STATES ? ranks - 1
                   : fated.kind == SPECDEC__WIRE_DRAFT_TOKENS ? 1 : (int)(maker_random(&random) % (uint32_t)ranks);
        fated.number = (int)(maker_random(&random) % (maker_random(&random) % 2 ? 4 : 70));
        broken.net.random = (uint64_t)i + 1;
        broken.net.tamper = meet_fate;
        c.policy = i % 2 ? SPECDEC_POLICY_DYNAMIC : SPECDEC_POLICY_STATIC;
        c.drafting = c.draft.data ? SPECDEC_DRAFT_MODEL : SPECDEC_DRAFT_OFF;
        failed += run_broken(&broken, &c, ranks, drafts, 0.2, -1, 1) > 0;
        slow += specdec__os_monotonic_seconds() - start > 12;
    }
    close_machine(&oracle);
    printf("  %d messages: %d clusters ended with errors\n", count, failed);
    CHECK_EQUAL_INT(slow, 0);
    CHECK(failed > count / 20 && failed < count);
}

/* Some guesses are lost, doubled or overtaken. */
static int guesses_stray(mesh *n, int own, unsigned char *bytes, size_t *size)
{
    const int fate = own == 1 ? dice(n, 12) : FATES;

    (void)size;
    if ((specdec__wire_get_word(bytes, SPECDEC__WIRE_KIND) >> 8 & 255) != SPECDEC__WIRE_DRAFT_TOKENS)
        return 1;
    n->swap = fate == SWAPPED;
    return fate == LOST ? 0 : fate == TWICE ? 2 : 1;
}

/* Whether what the draft rank thinks may follow a text comes within 0.3 s. */
static int is_guessed(specdec *t)
{
    const double start = specdec__os_monotonic_seconds();
    specdec__link *link = t->engine->link;
    const specdec__remote_draft *guess;

    for (;;) {
        specdec__link_handle_urgent_messages(link);
        guess = specdec__remote_draft_find_root(link, t->at, t->tokens, t->count);
        if ((guess && guess->count) || specdec__os_monotonic_seconds() - start > 0.3)
            return guess && guess->count;
        skipping_sleep(0.0005);
    }
}

static void test_stray_guesses(void)
{
    static const int32_t prompted[] = {7, 9, 11, 8, 6};
    specdec_config config = config_of(PLAIN, PLAIN), alone = config_of(PLAIN, -1);
    static party c;
    const int32_t *tokens;
    int i, k, count, guessed = 0, steps = 0;

    TEST("when some guesses are lost, a rank that drafts begins anew, and guesses as well as before");
    alone.drafting = SPECDEC_DRAFT_OFF;
    config.drafting = SPECDEC_DRAFT_MODEL;
    if (!open_machine(&oracle, &alone))
        return;
    memset(&c, 0, sizeof c);
    c.net.late = 2e-3;
    c.net.tamper = guesses_stray;
    c.count = 2;
    c.layers[0] = 6;
    if (start_cluster(&c, &config, 20))
        for (k = 0; k < 3; k++) {
            specdec *t = c.ranks[0].text;

            specdec_rewind(t, 0);
            CHECK_EQUAL_INT(specdec_prompt_tokens(t, prompted, 5), SPECDEC_OK);
            for (i = 0; i < 40 && specdec_step(t, &tokens, &count) == SPECDEC_OK; i++, steps++)
                guessed += is_guessed(t);
            specdec_tokens(t, &tokens, &count);
            check_written(&oracle, tokens, 5, count, &config.settings);
        }
    printf("  guesses came behind %d of %d steps\n", guessed, steps);
    CHECK(steps > 30 && guessed > steps / 3);
    end_cluster(&c);
    CHECK_EQUAL_INT(c.ranks[1].result, SPECDEC_DONE);
    close_machine(&oracle);
}

/* From now on, messages of a rank that are not urgent do not arrive. */
static int deaf; /* -1: none */

static int is_deaf(mesh *n, int own, unsigned char *bytes, size_t *size)
{
    (void)n;
    (void)size;
    return own != deaf || (specdec__wire_get_word(bytes, SPECDEC__WIRE_KIND) >> 8 & 255) >= SPECDEC__WIRE_READY;
}

static void set_deaf(party *c, int which)
{
    pthread_mutex_lock(&c->net.mutex);
    deaf = which;
    pthread_mutex_unlock(&c->net.mutex);
}

static void set_shut(party *c, int which, int shut)
{
    pthread_mutex_lock(&c->net.mutex);
    c->net.shut[which] = shut;
    pthread_cond_broadcast(&c->net.news);
    pthread_mutex_unlock(&c->net.mutex);
}

/* A thread that cancels a text a little later. */
static specdec *late_text;

static void *cancel_late(void *argument)
{
    (void)argument;
    skipping_sleep(0.15);
    specdec_cancel(late_text);
    skipping_count(-1);
    return NULL;
}

static void test_deaf(void)
{
    static const int32_t prompted[] = {7, 9, 11, 8, 6};
    const int32_t *tokens;
    int i, count;

    TEST("a rank that is heard but does not go on ends all, with an error that says so");
    for (i = 0; i < 6; i++) { /* with and without runs that follow each other; whose message is lost */
        static party c;
        const int draft = i % 2 ? NOISY : -1, which = i / 2;
        specdec_config config = config_of(PLAIN, draft);
        specdec_result result = SPECDEC_OK;
        double start;
        int k;

        memset(&c, 0, sizeof c);
        deaf = -1;
        c.net.tamper = is_deaf;
        deal_layers(&c, 3, 6);
        config.drafting = draft < 0 ? SPECDEC_DRAFT_OFF : SPECDEC_DRAFT_MODEL;
        config.policy = SPECDEC_POLICY_DYNAMIC;
        if (start_cluster(&c, &config, 0.1)) {
            specdec *t = c.ranks[0].text;

            CHECK_EQUAL_INT(specdec_prompt_tokens(t, prompted, 5), SPECDEC_OK);
            CHECK_EQUAL_INT(specdec_step(t, &tokens, &count), SPECDEC_OK);
            set_deaf(&c, which);
            start = specdec__os_monotonic_seconds();
            for (k = 0; k < 40 && !result; k++)
                result = specdec_step(t, &tokens, &count);
            CHECK_EQUAL_INT(result, SPECDEC_ERROR_PEER);
            CHECK(specdec__os_monotonic_seconds() - start < 8);
            CHECK(specdec_error_text(t)[0] != 0);
        }
        end_cluster(&c);
        CHECK(c.ranks[1].result == SPECDEC_ERROR_PEER && c.ranks[2].result == SPECDEC_ERROR_PEER);
    }
}

/* Nobody is ever lost here (silence is 0): cancelling alone ends the waits. */
static void test_cancel_waits(void)
{
    specdec_config alone = config_of(PLAIN, -1);
    int32_t prompted[60];
    const int32_t *tokens;
    int i, k, way, count;

    TEST("a wait for other ranks ends when it is cancelled, and the text goes on right when they answer after all");
    alone.drafting = SPECDEC_DRAFT_OFF;
    for (i = 0; i < 60; i++)
        prompted[i] = 5 + i * i % 90;
    if (!open_machine(&oracle, &alone))
        return;
    for (way = 0; way < 4; way++) { /* plain, runs that follow each other, several texts, a rank that drafts */
        static party c;
        specdec_config config = config_of(PLAIN, way % 2 ? NOISY : -1);
        specdec *t[3];
        const int texts = way == 2 ? 3 : 1;
        pthread_t thread;

        memset(&c, 0, sizeof c);
        deal_layers(&c, 3, 6);
        if (way == 3)
            deal_drafter(&c, 2);
        config.sequences = texts;
        config.batch = 8;
        config.async = 1;
        config.policy = SPECDEC_POLICY_DYNAMIC;
        config.drafting = way % 2 ? SPECDEC_DRAFT_MODEL : SPECDEC_DRAFT_OFF;
        if (start_cluster(&c, &config, 0)) {
            t[0] = c.ranks[0].text;
            for (i = 1; i < texts; i++)
                CHECK_EQUAL_INT(specdec_open(t[0], &t[i]), SPECDEC_OK);
            for (i = 0; i < texts; i++)
                CHECK_EQUAL_INT(specdec_prompt_tokens(t[i], prompted + i, 30), SPECDEC_OK);
            for (i = 0; i < 5 * texts; i++)
                CHECK_EQUAL_INT(specdec_step(t[i % texts], &tokens, &count), SPECDEC_OK);
            late_text = t[texts - 1];
            for (k = 0; k < 40; k++) { /* many more than runs may be on their way */
                specdec_result result = SPECDEC_OK;

                set_shut(&c, 0, 1);
                if (k < 3)
                    skipping_start(&thread, cancel_late, NULL);
                else
                    specdec_cancel(late_text);
                for (i = 0; i < 40 && !result; i++)
                    result = specdec_step(late_text, &tokens, &count);
                CHECK_EQUAL_INT(result, SPECDEC_ERROR_CANCELLED);
                if (k < 3)
                    skipping_join(thread);
                specdec_cancel(late_text);
                if (k % 5 == 4) /* what is on its way is given up, and the text begins anew */
                    specdec_rewind(late_text, 12);
                if (k < 3) /* a prompt takes back the cancel before it: another one ends its wait */
                    skipping_start(&thread, cancel_late, NULL);
                else
                    set_shut(&c, 0, 0);
                specdec_prompt_tokens(late_text, prompted + 40, 1);
                if (k < 3)
                    skipping_join(thread);
                set_shut(&c, 0, k % 4 == 3);
            }
            set_shut(&c, 0, 0);
            for (i = 0; i < texts; i++) {
                CHECK_EQUAL_INT(specdec_rewind(t[i], 0), SPECDEC_OK);
                CHECK_EQUAL_INT(specdec_prompt_tokens(t[i], prompted + i, 30), SPECDEC_OK);
                for (k = 0; k < 8; k++)
                    CHECK_EQUAL_INT(specdec_step(t[i], &tokens, &count), SPECDEC_OK);
                specdec_tokens(t[i], &tokens, &count);
                check_written(&oracle, tokens, 30, count, &config.settings);
            }
        }
        end_cluster(&c);
        for (i = 1; i < 3; i++)
            CHECK_EQUAL_INT(c.ranks[i].result, SPECDEC_DONE);
    }
    close_machine(&oracle);
}

static void test_cancel_rank(void)
{
    static const int32_t prompted[] = {7, 9, 11, 8, 6};
    int which;

    TEST("specdec_cancel ends a rank that serves, and the others hear of it");
    for (which = 1; which < 3; which++) {
        static party c;
        specdec_config config = config_of(PLAIN, NOISY);
        specdec_result result = SPECDEC_OK;
        const int32_t *tokens;
        int i, count;

        memset(&c, 0, sizeof c);
        deal_layers(&c, 3, 6);
        if (which == 2)
            deal_drafter(&c, 2);
        if (start_cluster(&c, &config, 0)) {
            CHECK_EQUAL_INT(specdec_prompt_tokens(c.ranks[0].text, prompted, 5), SPECDEC_OK);
            specdec_cancel(c.ranks[which].text);
            for (i = 0; i < (which == 1 ? 150 : 10) && !result; i++) {
                skipping_sleep(0.01);
                result = specdec_step(c.ranks[0].text, &tokens, &count);
            }
            CHECK_EQUAL_INT(result, which == 1 ? SPECDEC_ERROR_PEER : SPECDEC_OK);
            CHECK(which == 2 || strstr(specdec_error_text(c.ranks[0].text), "rank 1: cancelled"));
        }
        end_cluster(&c);
        CHECK_EQUAL_INT(c.ranks[which].result, SPECDEC_ERROR_CANCELLED);
    }
}

/* Whether a rank, which has its engine then, waits for others. */
static int has_waited(party *c, int which)
{
    int waits;

    pthread_mutex_lock(&c->net.mutex);
    waits = c->net.waits[which];
    pthread_mutex_unlock(&c->net.mutex);
    return waits > 0;
}

/* Rank 0 never begins. */
static void test_never_heard(void)
{
    static party alone;
    int way, i;

    TEST("rank 0 waits for no rank that never begins");
    memset(&alone, 0, sizeof alone);
    pthread_mutex_init(&alone.net.mutex, NULL);
    pthread_cond_init(&alone.net.news, NULL);
    deal_layers(&alone, 3, 6);
    join_rank(&alone, 0, 0.1);
    alone.ranks[0].config = config_of(PLAIN, -1);
    alone.ranks[0].config.cluster = &alone.ranks[0].cluster;
    CHECK(!open_rank(&alone.ranks[0]));
    CHECK_EQUAL_INT(alone.ranks[0].result, SPECDEC_ERROR_PEER);
    CHECK(strstr(alone.ranks[0].error.text, "rank 1 ") == alone.ranks[0].error.text);
    alone.count = 1; /* the others have no thread */
    end_cluster(&alone);
    TEST("ranks that never hear rank 0 end, the one that drafts too, and when they are cancelled");
    for (way = 0; way < 3; way++) { /* a rank that drafts is there; it is not; nobody is lost */
        static party c;
        const double silence = way < 2 ? 0.1 : 0, start = specdec__os_monotonic_seconds();

        memset(&c, 0, sizeof c);
        pthread_mutex_init(&c.net.mutex, NULL);
        pthread_cond_init(&c.net.news, NULL);
        deal_layers(&c, 4, 6);
        if (!way)
            deal_drafter(&c, 2);
        for (i = 1; i < 4; i++) {
            join_rank(&c, i, silence);
            c.ranks[i].config = config_of(PLAIN, NOISY);
            c.ranks[i].config.cluster = &c.ranks[i].cluster;
            skipping_start(&c.ranks[i].thread, rank_thread, &c.ranks[i]);
        }
        if (way == 2) {
            for (i = 1; i < 4; i++)
                while (!has_waited(&c, i))
                    skipping_sleep(0.001);
            skipping_sleep(0.2);
            for (i = 1; i < 4; i++) /* none has ended: nobody has told them to */
                specdec_cancel(c.ranks[4 - i].text);
        }
        end_cluster(&c);
        CHECK(specdec__os_monotonic_seconds() - start < 8);
        for (i = 1; i < 4; i++) {
            CHECK(c.ranks[i].result == SPECDEC_ERROR_PEER || (way == 2 && c.ranks[i].result == SPECDEC_ERROR_CANCELLED));
            CHECK(strstr(c.ranks[i].error.text, way < 2 ? "not heard of" : "cancelled"));
        }
    }
}

/* hooks.progress: a large model takes its time. */
static int load_slowly(void *user_data, const char *what, int done, int all)
{
    (void)user_data;
    (void)done;
    (void)all;
    if (strcmp(what, "repack") == 0)
        skipping_sleep(0.08);
    return 0;
}

/* READY of rank 1 is lost once, or always. */
static int ready_lost, always;

static int lose_ready(mesh *n, int own, unsigned char *bytes, size_t *size)
{
    (void)n;
    (void)size;
    if ((specdec__wire_get_word(bytes, SPECDEC__WIRE_KIND) >> 8 & 255) != SPECDEC__WIRE_READY || own != 1)
        return 1;
    return !always && ready_lost++ > 0;
}

static void test_loading(void)
{
    static const int32_t prompted[] = {7, 9, 11, 8, 6};
    int way, i, started, pauses = 0;

    TEST("a rank may load for long, if it goes on, and may be missed once, but not for ever");
    for (way = 0; way < 4; way++) { /* rank 0 loads for long; the others do; one is missed once; always */
        static party c;
        specdec_config config = config_of(PLAIN, -1), others = config;
        specdec_hooks slow;

        memset(&slow, 0, sizeof slow);
        slow.progress = load_slowly;
        memset(&c, 0, sizeof c);
        ready_lost = 0;
        always = way == 3;
        c.net.tamper = way < 2 ? NULL : lose_ready;
        c.count = 2;
        c.layers[0] = way == 1 ? 0 : 5;
        c.layers[1] = 6 - c.layers[0];
        config.hooks = way ? config.hooks : slow;
        others.hooks = way == 1 ? slow : others.hooks;
        started = start_with(&c, &config, &others, 0.3); /* 2.4 s without progress are too long */
        if (!started && way < 3 && pauses++ < 3) { /* a busy machine makes pauses of .3 s, too */
            printf("  loading: a rank was not heard of for .3 s, tried again\n");
            end_cluster(&c);
            way--;
            continue;
        }
        CHECK_EQUAL_INT(started, way < 3);
        if (way < 3)
            CHECK_EQUAL_INT(specdec_prompt_tokens(c.ranks[0].text, prompted, 5), SPECDEC_OK);
        else
            CHECK(strstr(c.ranks[0].error.text, "rank 1 has not become ready"));
        end_cluster(&c);
        for (i = 1; i < 2; i++)
            CHECK_EQUAL_INT(c.ranks[i].result, way < 3 ? SPECDEC_DONE : SPECDEC_ERROR_PEER);
    }
}

/* --- what is refused --------------------------------------------------------------------------------------------------- */

static void test_refused(void)
{
    static const struct {
        int layers[3], ranks, rank;
        const char *words;
    } splits[] = {{{1, 2, 2}, 3, 0, "all together have all"}, {{1, 0, 5}, 3, 1, "needs a draft model"},
                  {{6, 0, 0}, 3, 0, "only rank 0 and one that drafts"}, {{1, 0, 6}, 3, 0, "rank 2 cannot"}, {{-1, 4, 3}, 3, 0, "rank 0 cannot"},
                  {{4, 4, 4}, 3, 2, "rank 1 cannot"}, {{2, 2, 2}, 3, 3, "rank 3 of a cluster of 3"}, {{6, 0, 0}, 65, 0, "cluster of 65"}};
    static party one;
    specdec_config c = config_of(PLAIN, NOISY);
    specdec_cluster *own = &one.ranks[0].cluster;
    size_t i, bytes;
    int32_t token = 7;
    const int layer = 1;
    float *states;

    TEST("what a cluster cannot do is refused with a sentence");
    memset(&one, 0, sizeof one);
    own->send = net_send;
    own->receive = net_receive;
    own->wait = net_wait;
    c.cluster = own;
    for (i = 0; i < sizeof splits / sizeof *splits; i++) {
        own->layers = splits[i].layers;
        own->ranks = splits[i].ranks;
        own->rank = splits[i].rank;
        c.draft.data = strstr(splits[i].words, "draft model") ? NULL : models[NOISY].data;
        refused("split", &c, SPECDEC_ERROR_ARGUMENT, splits[i].words);
    }
    c.draft.data = models[NOISY].data;
    own->layers = splits[2].layers;
    own->ranks = 3;
    own->rank = 0;
    c.rule = SPECDEC_RULE_SEQUOIA;
    refused("rule", &c, SPECDEC_ERROR_UNSUPPORTED, "needs the draft's distributions");
    c.rule = SPECDEC_RULE_COUPLED;
    c.retrieval = 64;
    own->layers = splits[0].layers;
    own->ranks = 3;
    own->rank = 0;
    refused("retrieval", &c, SPECDEC_ERROR_UNSUPPORTED, "retrieval needs");
    c.retrieval = 0;
    c.target.copy = 1;
    refused("copy", &c, SPECDEC_ERROR_UNSUPPORTED, "from a path or from data");
    c.target.copy = 0;
    memset(&one, 0, sizeof one);
    deal_layers(&one, 2, 6);
    states = (float *)malloc(1024 * sizeof *states);
    if (start_cluster(&one, &c, 0)) {
        specdec *t = one.ranks[0].text;

        CHECK_EQUAL_INT(specdec_prompt_states(t, &token, 1, &layer, 1, states), SPECDEC_ERROR_UNSUPPORTED);
        CHECK_EQUAL_INT(specdec_save(t, NULL, 0, &bytes), SPECDEC_ERROR_UNSUPPORTED);
        CHECK_EQUAL_INT(specdec_serve(t), SPECDEC_ERROR_ARGUMENT);
    }
    end_cluster(&one);
    free(states);
    CHECK_EQUAL_INT(one.ranks[1].result, SPECDEC_DONE);
}

static void test_mismatch(void)
{
    static party two;
    const specdec_config c = config_of(PLAIN, -1), other = config_of(OTHER, -1);

    TEST("ranks with another model or context than rank 0 are refused, on both sides");
    memset(&two, 0, sizeof two);
    deal_layers(&two, 2, 6);
    start_with(&two, &c, &other, 0);
    CHECK_EQUAL_INT(two.ranks[0].result, SPECDEC_ERROR_MISMATCH);
    CHECK(strstr(two.ranks[0].error.text, "another model") != NULL);
    end_cluster(&two);
    CHECK_EQUAL_INT(two.ranks[1].result, SPECDEC_ERROR_PEER);
}

static void test_draft_mismatch(void)
{
    static party two;
    const specdec_config c = config_of(PLAIN, -1);
    int i;

    TEST("a draft rank with another vocabulary or context than rank 0 is refused, on both sides");
    for (i = 0; i < 2; i++) {
        specdec_config other = config_of(PLAIN, i ? NOISY : STRANGER);

        other.context /= 1 + i;
        memset(&two, 0, sizeof two);
        two.count = 2;
        two.layers[0] = 6;
        start_with(&two, &c, &other, 0);
        CHECK_EQUAL_INT(two.ranks[0].result, SPECDEC_ERROR_MISMATCH);
        CHECK(strstr(two.ranks[0].error.text, "another model or configuration") != NULL);
        end_cluster(&two);
        CHECK_EQUAL_INT(two.ranks[1].result, SPECDEC_ERROR_PEER);
    }
}

/* Every rank needs memory for its own layers, not for the others', and the first one for the output. */
static void test_memory(void)
{
    static party four;
    specdec_config c = config_of(PLAIN, -1);
    size_t all;
    int i, more;

    TEST("a rank's memory holds its layers and their keys, the first one's the output head");
    CHECK_EQUAL_INT(specdec_memory_needed(&c, &all, &failure), SPECDEC_OK);
    memset(&four, 0, sizeof four);
    four.count = 4;
    four.layers[1] = 1;
    four.layers[2] = 2;
    four.layers[3] = 3;
    if (start_cluster(&four, &c, 0)) {
        const specdec__context *target = &four.ranks[0].text->engine->target;

        CHECK_EQUAL_INT(specdec__kv_total_bytes(&target->kv), 0);
        CHECK_EQUAL_INT(target->model->tile_bytes, specdec__matrix_tile_bytes(&target->model->output) *
                                                       (size_t)specdec__matrix_count_tiles(&target->model->output));
        four.ranks[0].text->engine->opened_models[0]->tile_bytes = SPECDEC__READING_LEAST_BYTES; /* a large head, and no layer to measure */
        specdec__engine_time_weight_reading(four.ranks[0].text->engine);
    }
    end_cluster(&four);
    for (i = 1; i < 4; i++)
        CHECK(four.ranks[i].bytes < all);
    more = (int)(four.ranks[3].bytes - four.ranks[2].bytes) - (int)(four.ranks[2].bytes - four.ranks[1].bytes);
    CHECK(more >= -64 && more <= 64); /* the last one has a layer more and nothing else, as the one before it has */
    CHECK(four.ranks[2].bytes > four.ranks[1].bytes);
}

/* Nodes of the next run, of seven that were drafted with these probabilities. */
static int width_of(specdec__pipe *pipe, float first, float others)
{
    float probability[8] = {first, others, others, others, others, others, others, others};
    const int32_t chosen[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    specdec__proposal p;

    memset(&p, 0, sizeof p);
    p.frontier.probability = probability;
    return specdec__pipe_best_node_count_of_run(pipe, &p, chosen, 8);
}

static void test_width(void)
{
    static specdec__pipe pipe;
    int i;

    TEST("a run holds the nodes that bring most in the time of its slowest stage, and twice those tried before at most");
    memset(&pipe, 0, sizeof pipe);
    CHECK_EQUAL_INT(width_of(&pipe, 1, 0.2f), 1);
    for (i = 1; i <= 8; i *= 2) {
        specdec__tune_add_step_time(&pipe.stages, i, 0.1, 0); /* as long as of one */
        CHECK_EQUAL_INT(width_of(&pipe, 1, 0.2f), i < 8 ? 2 * i : 8);
    }
    for (i = 0; i < 40; i++) { /* a node more costs as much as the first */
        specdec__tune_add_step_time(&pipe.stages, 1, 0.1, 0);
        specdec__tune_add_step_time(&pipe.stages, 8, 0.8, 0);
    }
    CHECK_EQUAL_INT(width_of(&pipe, 1, 0.2f), 1);
    memset(&pipe, 0, sizeof pipe);
    for (i = 0; i < 20; i++) { /* free up to four, then as much as the first */
        specdec__tune_add_step_time(&pipe.stages, 1, 0.1, 0);
        specdec__tune_add_step_time(&pipe.stages, 4, 0.1, 0);
        specdec__tune_add_step_time(&pipe.stages, 8, 0.5, 0);
    }
    CHECK_EQUAL_INT(width_of(&pipe, 1, 0.2f), 4);
    CHECK_EQUAL_INT(width_of(&pipe, 1, 1), 4);
}

static int message_is_good(const unsigned char *bytes, size_t size, size_t room)
{
    return specdec__wire_check_message(bytes, size, room, 3); /* of three ranks */
}

static void test_message(void)
{
    enum { WORDS = SPECDEC__WIRE_HEADER_WORDS + 3, BYTES = 4 * WORDS };
    unsigned char bytes[BYTES + 4] = {0};
    int i;

    TEST("a message is taken if it fills its room to the last byte, and refused if it is larger, cut, or any bit is another");
    specdec__wire_put_word(bytes, SPECDEC__WIRE_MAGIC_WORD, SPECDEC__WIRE_MAGIC);
    specdec__wire_put_word(bytes, SPECDEC__WIRE_KIND, SPECDEC__WIRE_VERSION | 1u << 16);
    specdec__wire_put_word(bytes, SPECDEC__WIRE_ORDER_WORDS, 3);
    specdec__wire_put_word(bytes, SPECDEC__WIRE_HEADER_WORDS + 1, 77);
    specdec__wire_put_word(bytes, SPECDEC__WIRE_CHECKSUM, specdec__wire_message_checksum(bytes, WORDS));
    CHECK(message_is_good(bytes, BYTES, BYTES));
    CHECK(message_is_good(bytes, BYTES, BYTES + 4));
    CHECK(!message_is_good(bytes, BYTES, BYTES - 4));
    CHECK(!message_is_good(bytes, BYTES - 4, BYTES));
    CHECK(!message_is_good(bytes, BYTES + 4, BYTES + 4));
    CHECK(!message_is_good(bytes, BYTES + 1, BYTES + 4));
    for (i = 0; i < 8 * BYTES; i++) {
        bytes[i / 8] ^= (unsigned char)(1 << i % 8);
        CHECK(!message_is_good(bytes, BYTES, BYTES));
        bytes[i / 8] ^= (unsigned char)(1 << i % 8);
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } tests[] = {{"message", test_message}, {"schedules", test_schedules}, {"recurrent", test_recurrent}, {"fixtures", test_fixtures}, {"drafter", test_draft_rank}, {"forks", test_fork_in_flight}, {"right", test_right_drafts},
                 {"full", test_full}, {"cancel", test_cancel}, {"beyond", test_beyond}, {"retried", test_retried},
                 {"guesses", test_broken_guesses}, {"ready", test_ready}, {"lost", test_lost}, {"lost_drafter", test_lost_drafter}, {"noise", test_noise}, {"hostile", test_hostile}, {"liar", test_liar},
                 {"single", test_single}, {"stray", test_stray_guesses}, {"deaf", test_deaf}, {"cancel_waits", test_cancel_waits}, {"cancel_rank", test_cancel_rank},
                 {"never_heard", test_never_heard}, {"loading", test_loading},
                 {"refused", test_refused}, {"mismatch", test_mismatch}, {"stranger", test_draft_mismatch}, {"memory", test_memory},
                 {"width", test_width}};
    size_t i;

    skipping.on = quick = getenv("SPECDEC_QUICK") != NULL;
    times = argc > 2 ? atoi(argv[2]) : 1;
    make_models();
    for (i = 0; i < sizeof tests / sizeof *tests; i++)
        if (argc < 2 || strcmp(argv[1], tests[i].name) == 0)
            tests[i].run();
    for (i = 0; i < MODELS; i++)
        free(models[i].data);
    return check_report("test_pipe");
}
