/* test_compose.c - what goes together: every drafter and every pair of them, in turns and asynchronously, with one text and with
   five of which some fork, on one machine and on three ranks, writes what plain decoding writes, greedily and sampled, or is
   refused with a sentence. Prints the table. cc -O2 -pthread -I. test_compose.c; test_compose [random|ranks]: with very small
   models of random weights alone, for sanitizers; ranks: of the table only its right half. SPECDEC_QUICK=1 shortens. */
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

enum { WITH_LAYER = 3 /* a row */, PROMPT = 40, FORKS_AT = PROMPT + 4, TEXTS = 5, CONTEXT_TOKENS = 200, RETRIEVED = 16 };

#define MODEL(name) "examples/models/tiny-stories-" name "-q8_0.gguf"

static int quick, small, on_ranks_only;
static machine oracles[2], *oracle; /* that write without speculation; the one for the models in use */
static file layer, heads, random_target, random_draft;

/* Random models, also for a layer that reads states, of which no other is at hand. */
static void make_models(void)
{
    random_target = random_model(4, 0, 0);
    random_draft = random_model(4, 0.03f, 0);
    layer = random_layer();
    heads = random_heads();
}

/* --- the table ---------------------------------------------------------------------------------------------------------- */

/* What becomes of a combination. */
typedef enum fate {
    TOGETHER, /* as asked */
    ALONE,    /* asynchronously while one text writes, in turns while several do */
    TURNS,    /* in turns, although it was asked to draft meanwhile */
    REFUSED
} fate;

static const char *const fate_words[] = {"yes", "alone", "turns", "no"};

enum { NO_HEADS, HEADS, LAYER };
enum { AFAR = 2 /* the draft model has a rank of its own */ };

/* Drafters, and what becomes of them: [machine, ranks] [turns, asynchronous] [one text, five]. */
static const struct {
    const char *name;
    specdec_drafting drafting;
    int draft, heads, retrieval, drafters; /* drafters: that the engine then has, at least */
    fate fates[2][2][2];
    const char *words; /* of the sentence that refuses it */
} rows[] = {
#define ALL {{{TOGETHER, TOGETHER}, {TOGETHER, ALONE}}, {{TOGETHER, TOGETHER}, {TOGETHER, ALONE}}}
#define IN_TURNS {{{TOGETHER, TOGETHER}, {TURNS, TURNS}}, {{TOGETHER, TOGETHER}, {TURNS, TURNS}}}
#define HERE {{{TOGETHER, TOGETHER}, {TURNS, TURNS}}, {{REFUSED, REFUSED}, {REFUSED, REFUSED}}}
#define ALL_HERE {{{TOGETHER, TOGETHER}, {TOGETHER, ALONE}}, {{REFUSED, REFUSED}, {REFUSED, REFUSED}}}
#define NOT_BESIDE {{{TOGETHER, TOGETHER}, {TOGETHER, ALONE}}, {{TOGETHER, TOGETHER}, {TURNS, TURNS}}}
#define LACK "needs the target's keys"
#define STATES "reads states of the target's layers"
    {"draft model", SPECDEC_DRAFT_MODEL, 1, NO_HEADS, 0, 1, ALL, ""},
    {"n-grams", SPECDEC_DRAFT_NGRAM, 0, NO_HEADS, 0, 1, IN_TURNS, ""},
    {"heads", SPECDEC_DRAFT_HEADS, 0, HEADS, 0, 1, IN_TURNS, ""},
    {"EAGLE-3", SPECDEC_DRAFT_HEADS, 0, LAYER, 0, 1, HERE, STATES},
    {"two levels", SPECDEC_DRAFT_TRIFORCE, 0, NO_HEADS, RETRIEVED, 1, HERE, LACK},
    {"draft model, n-grams", SPECDEC_DRAFT_AUTO, 1, NO_HEADS, 0, 2, ALL, ""},
    {"draft model, heads", SPECDEC_DRAFT_AUTO, 1, HEADS, 0, 3, NOT_BESIDE, ""},
    {"draft rank", SPECDEC_DRAFT_MODEL, AFAR, NO_HEADS, 0, 1, ALL, ""},
    {"draft rank, n-grams", SPECDEC_DRAFT_AUTO, AFAR, NO_HEADS, 0, 2, ALL, ""},
    {"draft rank, heads", SPECDEC_DRAFT_AUTO, AFAR, HEADS, 0, 3, NOT_BESIDE, ""},
    {"draft model, EAGLE-3", SPECDEC_DRAFT_AUTO, 1, LAYER, 0, 3, ALL_HERE, STATES},
    {"draft model, two levels", SPECDEC_DRAFT_AUTO, 1, NO_HEADS, RETRIEVED, 3, ALL_HERE, LACK},
    {"draft model in two levels", SPECDEC_DRAFT_TRIFORCE, 1, NO_HEADS, RETRIEVED, 1, HERE, LACK},
    {"n-grams, heads", SPECDEC_DRAFT_AUTO, 0, HEADS, 0, 2, IN_TURNS, ""},
    {"n-grams, EAGLE-3", SPECDEC_DRAFT_AUTO, 0, LAYER, 0, 2, HERE, STATES},
    {"n-grams, two levels", SPECDEC_DRAFT_AUTO, 0, NO_HEADS, RETRIEVED, 2, HERE, LACK},
    {"heads, two levels", SPECDEC_DRAFT_AUTO, 0, HEADS, RETRIEVED, 3, HERE, LACK},
};

/* --- texts -------------------------------------------------------------------------------------------------------------- */

static int prompt_token(int which, int i) { return 20 + (which * 37 + i % 9 * 11 + i / 9 * 53) % 200; }

static void prompt(specdec *t, int which)
{
    int32_t tokens[PROMPT];
    int i;

    for (i = 0; i < PROMPT; i++)
        tokens[i] = prompt_token(which, i);
    CHECK_EQUAL_INT(specdec_prompt_tokens(t, tokens, PROMPT), SPECDEC_OK);
}

/* hooks.fork: a text of the first prompt forks once. */
static int forks_once(void *user_data, const int32_t *tokens, int count, int32_t *child)
{
    (void)user_data;
    child[0] = 250;
    return count == FORKS_AT && tokens[0] == prompt_token(0, 0) && tokens[1] == prompt_token(0, 1);
}

/* What all texts of an engine have counted. */
static specdec_stats sum_stats(const specdec *t)
{
    specdec_stats sum;
    int i;

    memset(&sum, 0, sizeof sum);
    for (i = 0; i < t->engine->room.max_views; i++) {
        sum.steps_beside += t->engine->sequences[i].stats.steps_beside;
        sum.drafted += t->engine->sequences[i].stats.drafted;
        sum.accepted += t->engine->sequences[i].stats.accepted;
        sum.tokens += t->engine->sequences[i].stats.tokens;
    }
    return sum;
}

/* A text and its children are what they are alone. */
static void check_text(specdec *t)
{
    specdec_settings settings;
    specdec *child;
    int i;

    specdec_get_settings(t, &settings);
    settings.max_tokens = 0;
    CHECK(t->count > t->answer_from);
    check_written(oracle, t->tokens, t->answer_from, t->count, &settings);
    for (i = 0; (child = specdec_child(t, i)) != NULL; i++)
        check_text(child);
}

static void write_one(specdec *t, int which)
{
    const int32_t *tokens;
    int count;

    prompt(t, which);
    while (specdec_step(t, &tokens, &count) == SPECDEC_OK)
        continue;
    CHECK_EQUAL_INT(specdec_stopped(t, NULL) == SPECDEC_STOP_LIMIT || specdec_stopped(t, NULL) == SPECDEC_STOP_END, 1);
    check_text(t);
}

/* One step for all texts, whose pieces are thrown away. Returns 0 when nobody has anything to do. */
static int work(specdec **texts, int count)
{
    specdec_text piece;
    int i;

    if (specdec_work(texts[0]))
        return 0;
    for (i = 0; i < count; i++) {
        specdec_result result;

        do
            result = specdec_take(texts[i], &piece);
        while (!result);
        if (result > SPECDEC_DONE && result != SPECDEC_PENDING)
            fprintf(stderr, "%s\n", specdec_error_text(texts[i]));
        CHECK(result <= SPECDEC_DONE || result == SPECDEC_PENDING);
    }
    return 1;
}

static void change(specdec *t, uint64_t seed, float temperature, int limit)
{
    specdec_settings settings;

    specdec_get_settings(t, &settings);
    settings.sampling.seed = seed;
    settings.sampling.temperature = temperature;
    settings.max_tokens = limit;
    CHECK_EQUAL_INT(specdec_set(t, &settings), SPECDEC_OK);
}

/* Two prompts, a copy of each, and a child of the first: greedy and sampled ones side by side. When all have ended, one writes
   alone. Returns how many steps were made beside others while several texts wrote. */
static int write_five(specdec *first)
{
    specdec *texts[TEXTS - 1];
    specdec_stats stats;
    int i, begun, limit;

    texts[0] = first;
    CHECK_EQUAL_INT(specdec_open(first, &texts[1]), SPECDEC_OK);
    specdec_get_stats(first, &stats);
    limit = first->settings.max_tokens;
    change(texts[0], 1, first->settings.sampling.temperature, 2 * limit);
    change(texts[1], 2, first->settings.sampling.temperature > 0 ? 0.0f : 0.9f, limit);
    for (i = 0; i < 2; i++)
        prompt(texts[i], i);
    while ((first->handed_out <= FORKS_AT || texts[1]->handed_out <= PROMPT + 2) && work(texts, 2))
        continue;
    for (i = 2; i < 4; i++) {
        CHECK_EQUAL_INT(specdec_fork(texts[i - 2], &texts[i]), SPECDEC_OK);
        change(texts[i], (uint64_t)i + 7, texts[i]->settings.sampling.temperature > 0 ? 0.0f : 0.8f, limit);
        texts[i]->answer_from = texts[i]->count; /* what came before is the other one's */
    }
    for (begun = (int)sum_stats(first).steps_beside; texts[3]->count < PROMPT + limit / 2 && work(texts, 4);)
        continue;
    begun = (int)sum_stats(first).steps_beside - begun;
    while (work(texts, 4))
        continue;
    CHECK(specdec_child(first, 0) != NULL);
    for (i = 0; i < 4; i++)
        check_text(texts[i]);
    CHECK_EQUAL_INT(specdec_rewind(first, 0), SPECDEC_OK);
    write_one(first, 1); /* alone, whoever was last of the five */
    return begun;
}

/* --- combinations ------------------------------------------------------------------------------------------------------- */

static specdec_config config_of(int row, int asynchronous, int texts, float temperature)
{
    specdec_config c;

    memset(&c, 0, sizeof c);
    if (small || rows[row].heads == LAYER) {
        c.target = source_of(&random_target);
        if (rows[row].draft)
            c.draft = source_of(&random_draft);
        if (rows[row].heads)
            c.heads = source_of(rows[row].heads == LAYER ? &layer : &heads);
    } else {
        c.target.path = MODEL("target");
        c.draft.path = rows[row].draft ? MODEL("draft") : NULL;
        c.heads.path = rows[row].heads == HEADS ? MODEL("heads") : NULL;
    }
    c.retrieval = rows[row].retrieval;
    c.drafting = rows[row].drafting;
    c.context = CONTEXT_TOKENS;
    c.threads = 2;
    c.async = asynchronous ? 1 : -1;
    c.sequences = texts;
    c.fork_token = "";
    c.hooks.fork = texts > 1 ? forks_once : NULL;
    c.settings.max_tokens = quick ? 16 : 40;
    c.settings.sampling.temperature = temperature;
    c.settings.sampling.seed = 3;
    return c;
}

/* Nodes that were guessed, in all combinations of a row: in one of them, the clock may say that none pays. */
static int64_t guessed[sizeof rows / sizeof *rows];

/* Writes on an engine, and finds out what became of the combination. */
static fate observe(specdec *t, int row, int asynchronous, int texts)
{
    int among = 0;
    specdec_stats stats;

    CHECK(t->engine->drafter_count >= rows[row].drafters);
    if (texts > 1)
        among = write_five(t);
    else
        write_one(t, 0);
    stats = sum_stats(t);
    guessed[row] += stats.drafted;
    CHECK_EQUAL_INT(among, 0);
    if (!asynchronous)
        CHECK_EQUAL_INT(stats.steps_beside, 0);
    return asynchronous && !stats.steps_beside ? TURNS : asynchronous && texts > 1 ? ALONE : TOGETHER;
}

static fate on_machine(const specdec_config *c, int row, int asynchronous, int texts)
{
    machine m;
    fate is = REFUSED;

    if (open_machine(&m, c)) {
        is = observe(m.first, row, asynchronous, texts);
        close_machine(&m);
    }
    return is;
}

/* Of three ranks, the last one drafts if the row says so. */
static fate on_ranks(const specdec_config *c, int row, int asynchronous, int texts)
{
    static party cluster;
    fate is = REFUSED;
    int i;

    memset(&cluster, 0, sizeof cluster);
    cluster.count = 3;
    cluster.layers[0] = row % 2;
    cluster.layers[1] = rows[row].draft == AFAR ? 4 - row % 2 : 1;
    cluster.layers[2] = 4 - cluster.layers[0] - cluster.layers[1];
    if (start_cluster(&cluster, c, 30))
        is = observe(cluster.ranks[0].text, row, asynchronous, texts);
    end_cluster(&cluster);
    for (i = 1; i < 3; i++)
        CHECK_EQUAL_INT(cluster.ranks[i].result, SPECDEC_DONE);
    return is;
}

/* A cluster is refused by what its first rank says before it has talked to any. */
static void check_refused(specdec_config *c, int row)
{
    static party cluster;

    memset(&cluster, 0, sizeof cluster);
    cluster.count = 3;
    cluster.layers[1] = cluster.layers[2] = 2;
    join_rank(&cluster, 0, 0);
    c->cluster = &cluster.ranks[0].cluster;
    refused(rows[row].name, c, SPECDEC_ERROR_UNSUPPORTED, rows[row].words);
}

static fate combine(int row, int ranks, int asynchronous, int texts)
{
    const fate wanted = rows[row].fates[ranks][asynchronous][texts > 1];
    fate is = REFUSED;
    int i;

    for (i = 0; i < (texts > 1 && quick ? 1 : 2); i++) {
        specdec_config c = config_of(row, asynchronous, texts, i ? 0.9f : 0);

        if (wanted == REFUSED)
            check_refused(&c, row);
        else
            is = ranks ? on_ranks(&c, row, asynchronous, texts) : on_machine(&c, row, asynchronous, texts);
        if (is != wanted)
            fprintf(stderr, "%s, %s, %s, %d texts, temperature %.1f:\n", rows[row].name, ranks ? "three ranks" : "one machine",
                    asynchronous ? "asynchronous" : "in turns", texts, c.settings.sampling.temperature);
        CHECK_EQUAL_INT(is, wanted);
    }
    return is;
}

/* A machine that writes without speculation what a row is about. */
static int open_oracle(machine *m, int row)
{
    specdec_config c = config_of(row, 0, 1, 0);

    c.drafting = SPECDEC_DRAFT_OFF;
    memset(&c.draft, 0, sizeof c.draft);
    memset(&c.heads, 0, sizeof c.heads);
    return open_machine(m, &c);
}

static void test_pairs(void)
{
    size_t i;
    int k;

    TEST("whatever goes together writes the text of plain decoding, and the rest is refused with a sentence");
    if (!open_oracle(&oracles[0], 0) || !open_oracle(&oracles[1], WITH_LAYER))
        return;
    for (i = 0; i < 2; i++) {
        printf("  %-26s", i ? "" : "one text, five; on");
        for (k = on_ranks_only; k < 2; k++)
            printf(" %-17s %-17s", i ? "in turns" : k ? "three ranks" : "one machine", i ? "asynchronous" : "");
        printf("\n");
    }
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        oracle = &oracles[rows[i].heads == LAYER];
        printf("  %-26s", rows[i].name);
        for (k = on_ranks_only ? 4 : 0; k < 8; k++) /* on one machine no rank is another one */
            printf(" %-8s", k < 4 && rows[i].draft == AFAR ? "-" : fate_words[combine((int)i, k / 4, k / 2 % 2,
                                                                                       k % 2 ? TEXTS : 1)]);
        printf("\n");
        if (!small && rows[i].drafting != SPECDEC_DRAFT_AUTO) {
            if (!guessed[i])
                fprintf(stderr, "%s: nothing was guessed\n", rows[i].name);
            CHECK(guessed[i] > 0);
        }
    }
    close_machine(&oracles[0]);
    close_machine(&oracles[1]);
}

int main(int argc, char **argv)
{
    on_ranks_only = argc > 1 && strcmp(argv[1], "ranks") == 0;
    small = on_ranks_only || (argc > 1 && strcmp(argv[1], "random") == 0);
    quick = getenv("SPECDEC_QUICK") != NULL;
    make_models();
    test_pairs();
    free(layer.data);
    free(heads.data);
    free(random_target.data);
    free(random_draft.data);
    return check_report("test_compose");
}
