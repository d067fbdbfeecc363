/* test_async.c - a draft model that goes on while the target verifies: what it brings, that it ends at once, and that many
   engines at a time do no harm to each other. That texts stay what they are: test_texts beside.
   cc -O2 -pthread -I. test_async.c; test_async [TEST [SECONDS of the engines]]; SPECDEC_QUICK=1 shortens. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
static void be_slow(void);
#define SPECDEC__PAUSE() be_slow()
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "check.h"
#include "gguf_maker.h"
#include "machine.h"

enum { CONTEXT_TOKENS = 400, CALLERS = 24 };

static int quick;
static double seconds_of_callers;
static __thread double slow; /* seconds that this thread wastes wherever it meets others */

static void be_slow(void)
{
    const double end = slow > 0 ? specdec__os_monotonic_seconds() + slow : 0;

    while (slow > 0 && specdec__os_monotonic_seconds() < end)
        machine_yield();
}

/* --- models and engines ------------------------------------------------------------------------------------------- */

static file target, draft, large;

static void make_models(void)
{
    maker_recipe r;

    memset(&r, 0, sizeof r);
    r.seed = 21;
    r.output_type = 1;
    r.embedding = 64;
    r.layers = 2;
    target = random_file(&r);
    r.noise = 0.03f;
    draft = random_file(&r);
    r.noise = 0.1f;
    r.layers = 2;
    r.embedding = 256;
    large = random_file(&r);
}

static specdec_config config_of(const file *model, const file *guesser, int threads, int async)
{
    specdec_config c;

    memset(&c, 0, sizeof c);
    c.target = source_of(model);
    if (guesser)
        c.draft = source_of(guesser);
    c.context = CONTEXT_TOKENS;
    c.threads = threads;
    c.async = async;
    c.settings.sampling.temperature = 1;
    c.settings.max_tokens = 150;
    return c;
}

/* Returns whether it was read. */
static int prompt(specdec *t, int number)
{
    int32_t tokens[20];
    int i;

    for (i = 0; i < 20; i++)
        tokens[i] = 5 + (number * 37 + i * i * 11) % 250;
    return specdec_prompt_tokens(t, tokens, 20) == SPECDEC_OK;
}

/* Writes an answer to its end. Returns a sum over its tokens. */
static uint64_t write_answer(specdec *t)
{
    uint64_t sum = 0;
    const int32_t *tokens;
    int i, count;

    while (specdec_step(t, &tokens, &count) == SPECDEC_OK)
        for (i = 0; i < count; i++)
            sum = sum * 31 + (uint64_t)tokens[i];
    return sum;
}

/* --- what it brings ----------------------------------------------------------------------------------------------- */

static int begun[4]; /* how often a thread said that it begins with that number */

static void note_thread(void *user_data, int number)
{
    (void)user_data;
    __atomic_fetch_add(&begun[number], 1, __ATOMIC_SEQ_CST);
}

static void test_ahead(void)
{
    uint64_t plain;
    specdec_stats stats[2];
    machine m;
    int way, i;

    TEST("what the draft model wrote meanwhile is verified next: more tokens a step than the target's alone, the same text");
    for (i = 0; i < 2; i++) {
        specdec_config c = config_of(&target, NULL, 2, -1);

        c.settings.sampling.temperature = (float)i;
        if (!open_machine(&m, &c))
            return;
        CHECK(prompt(m.first, 1));
        plain = write_answer(m.first);
        close_machine(&m);
        for (way = 0; way < 2; way++) {
            c = config_of(&target, &draft, 2, way ? 1 : -1);
            c.settings.sampling.temperature = (float)i;
            c.hooks.thread = note_thread;
            memset(begun, 0, sizeof begun);
            if (!open_machine(&m, &c))
                return;
            CHECK(prompt(m.first, 1));
            slow = way ? 5e-5 : 0; /* the target: else it is done before the draft model has woken up */
            CHECK(write_answer(m.first) == plain);
            slow = 0;
            specdec_get_stats(m.first, &stats[way]);
            close_machine(&m);
            CHECK(begun[0] == 0 && begun[1] == 1 && begun[2] == way && begun[3] == 0); /* the last one drafts */
        }
        CHECK_EQUAL_INT(stats[0].steps_beside, 0);
        CHECK(stats[1].steps_beside > 10);
        CHECK(stats[1].steps_by_drafter[SPECDEC_DRAFT_MODEL] > 5);
        CHECK(stats[1].tokens > stats[1].steps);
        printf("  %.2f tokens a step in turns, %.2f ahead; %d of %d steps\n", (double)stats[0].tokens / (double)stats[0].steps,
               (double)stats[1].tokens / (double)stats[1].steps, (int)stats[1].steps_beside, (int)stats[1].steps);
    }
}

/* A setting that asks for it where it cannot be is no error: the engine takes turns. */
static void test_turns(void)
{
    static const specdec_rule rules[] = {SPECDEC_RULE_COUPLED, SPECDEC_RULE_SEQUOIA, SPECDEC_RULE_TOP_K};
    specdec_stats stats;
    machine m;
    int i;

    TEST("with one thread, with rules of rejection, with n-grams alone the engine takes turns");
    for (i = 0; i < 4; i++) {
        specdec_config c = config_of(&target, i < 3 ? &draft : NULL, i ? 2 : 1, 1);

        c.rule = i < 3 ? rules[i] : SPECDEC_RULE_COUPLED;
        c.drafting = i < 3 ? SPECDEC_DRAFT_MODEL : SPECDEC_DRAFT_NGRAM;
        if (!open_machine(&m, &c))
            return;
        CHECK(prompt(m.first, i));
        write_answer(m.first);
        specdec_get_stats(m.first, &stats);
        CHECK_EQUAL_INT(stats.steps_beside, 0);
        CHECK(stats.tokens > 20);
        close_machine(&m);
    }
    TEST("a number of threads that is out of range is refused");
    {
        specdec_config c = config_of(&target, &draft, 2, -2);

        refused("async", &c, SPECDEC_ERROR_ARGUMENT, "config.async is");
        c.async = SPECDEC_MAX_THREADS;
        refused("async", &c, SPECDEC_ERROR_ARGUMENT, "config.async is");
    }
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

static void test_end(void)
{
    double longest = 0, seconds;
    int i, k, count, slower = 0;
    const int32_t *tokens;
    machine m;

    TEST("an engine ends in less than 50 milliseconds, whatever its lane does; a long text that the draft model reads included");
    for (i = 0; i < (quick ? 20 : 100); i++) {
        specdec_config c = config_of(&target, &large, 2, 1);

        if (!open_machine(&m, &c))
            return;
        CHECK(prompt(m.first, i));
        for (k = 0; k < i % 7; k++)
            specdec_step(m.first, &tokens, &count);
        if (i % 3 == 0)
            CHECK_EQUAL_INT(specdec_rewind(m.first, 10), SPECDEC_OK);
        seconds = specdec__os_monotonic_seconds();
        specdec_deinit(m.first);
        seconds = specdec__os_monotonic_seconds() - seconds;
        longest = seconds > longest ? seconds : longest;
        slower += seconds >= 0.05;
        free(m.block);
    }
    printf("  the longest took %.1f ms\n", 1e3 * longest);
    CHECK(slower <= i / 4 || getenv("TEST_WRAPPER")); /* the machine may make pauses of its own */
}

/* A model whose steps keep two threads busy. */
static file huge_model(void)
{
    maker_recipe r;

    memset(&r, 0, sizeof r);
    r.seed = 21;
    r.output_type = 1;
    r.embedding = 512;
    r.layers = 2;
    return random_file(&r);
}

/* A lane that reads a long text keeps its threads between two steps. */
static void test_reads(void)
{
    const file huge = huge_model();
    specdec_config c = config_of(&huge, &huge, 3, 2);
    static int32_t tokens[180];
    int i, k, count, apart, read = 0, differ = 0;
    const int32_t *got;
    float *row[2];
    specdec_info info;
    machine m;

    TEST("while the draft model reads on two threads, calls that run the target on all do so without these two");
    c.settings.max_tokens = 0;
    for (i = 0; i < 180; i++)
        tokens[i] = 5 + (i * 37 + i * i * 11) % 250;
    if (!open_machine(&m, &c))
        return;
    specdec_get_info(m.first, &info);
    CHECK(m.first->engine->async_drafting->lane.job_pool.threads == 2 && info.threads == 3);
    CHECK_EQUAL_INT(((specdec__draft_model *)m.first->engine->drafters[0].state)->threads, 2);
    for (k = 0; k < 2; k++)
        row[k] = (float *)malloc((size_t)info.vocabulary * sizeof *row[k]);
    for (i = 0; i < 6; i++) {
        specdec__lane *lane = &m.first->engine->async_drafting->lane;

        CHECK_EQUAL_INT(specdec_rewind(m.first, 0), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, tokens, 180), SPECDEC_OK);
        for (k = 0; k < 2; k++)
            CHECK_EQUAL_INT(specdec_step(m.first, &got, &count), SPECDEC_OK);
        apart = !lane->job_pending || m.first->engine->pool.threads - 1 <= lane->job_pool.first_helper;
        CHECK(apart);
        if (!apart) /* the next call would wait for ever */
            break;
        for (k = 0; k < 20 && m.first->engine->async_drafting->prefills; k++, read++) {
            CHECK_EQUAL_INT(specdec_logits(m.first, NULL, NULL, 0, row[k != 0]), SPECDEC_OK);
            differ += k && memcmp(row[0], row[1], (size_t)info.vocabulary * sizeof *row[0]) != 0;
        }
        specdec_get_info(m.first, &info);
        CHECK_EQUAL_INT(info.threads, 3);
    }
    CHECK(read > 6);
    CHECK_EQUAL_INT(differ, 0);
    specdec_rewind(m.first, 10);
    CHECK_EQUAL_INT(m.first->engine->pool.threads, 3);
    for (k = 0; k < 2; k++)
        free(row[k]);
    close_machine(&m);
    free(huge.data);
}

/* --- many engines ------------------------------------------------------------------------------------------------- */

typedef struct caller {
    specdec__os_thread thread;
    int number, answers, wrong;
    double end;
    void *block; /* (bytes) of its engine */
    size_t bytes;
} caller;

static uint64_t right[CALLERS];

static specdec_config caller_config(int number)
{
    specdec_config c = config_of(&target, &draft, 2, 1);

    c.settings.sampling.seed = (uint64_t)number;
    return c;
}

/* One engine, its answers again and again; some are cancelled on the way. */
static void call(void *argument)
{
    caller *self = (caller *)argument;
    const specdec_config c = caller_config(self->number);
    specdec *t;
    specdec_error error;

    while (specdec__os_monotonic_seconds() < self->end || !self->answers) {
        const int32_t *tokens;
        int count;

        if (specdec_init(&t, &c, self->block, self->bytes, &error)) {
            self->wrong++;
            break;
        }
        self->wrong += !prompt(t, self->number);
        specdec_step(t, &tokens, &count);
        specdec_cancel(t);
        self->wrong += specdec_step(t, &tokens, &count) == SPECDEC_OK;
        specdec_rewind(t, 0);
        self->wrong += !prompt(t, self->number);
        self->wrong += write_answer(t) != right[self->number];
        self->answers++;
        specdec_deinit(t);
    }
}

/* How many threads this process has, and how many pages are resident; 0 where the system does not say. */
static void held(int *threads, int *pages)
{
    FILE *f = fopen("/proc/self/statm", "r");
    char line[200];

    *threads = *pages = 0;
    if (f && fscanf(f, "%*d %d", pages) != 1)
        *pages = 0;
    if (f)
        fclose(f);
    f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "Threads: %d", threads) == 1)
            break;
    if (f)
        fclose(f);
}

static caller callers[CALLERS];

/* Memory for an engine, all of it touched. */
static void give_block(caller *self)
{
    specdec_config c = caller_config(self->number);
    specdec_error error;

    CHECK(!specdec_memory_needed(&c, &self->bytes, &error));
    self->block = malloc(self->bytes);
    CHECK(self->block != NULL);
    memset(self->block, 1, self->bytes);
}

static void run_callers(double seconds)
{
    enum { STACK = 1 << 20, PAGE = 1 << 16 };
    unsigned char *stacks = (unsigned char *)malloc(CALLERS * STACK + PAGE);
    unsigned char *first = stacks + (size_t)(-(uintptr_t)stacks & (PAGE - 1));
    int i, answers = 0;

    for (i = 0; i < CALLERS; i++) {
        callers[i].wrong = callers[i].answers = 0;
        callers[i].end = specdec__os_monotonic_seconds() + seconds;
        CHECK(specdec__os_start_thread(&callers[i].thread, first + (size_t)i * STACK, STACK, call, &callers[i]));
    }
    for (i = 0; i < CALLERS; i++) {
        specdec__os_join_thread(&callers[i].thread);
        CHECK_EQUAL_INT(callers[i].wrong, 0);
        CHECK(callers[i].answers > 0);
        answers += callers[i].answers;
    }
    free(stacks);
    printf("  %d answers of %d engines\n", answers, CALLERS);
}

static void test_callers(void)
{
    int i, threads[2], pages[2];
    machine m;

    TEST("engines of 24 callers at a time write what each writes alone; no thread and no memory is left behind");
    for (i = 0; i < CALLERS; i++) {
        specdec_config c = config_of(&target, NULL, 1, -1);

        c.settings.sampling.seed = (uint64_t)i;
        if (!open_machine(&m, &c))
            return;
        CHECK(prompt(m.first, i));
        right[i] = write_answer(m.first);
        close_machine(&m);
    }
    for (i = 0; i < CALLERS; i++) {
        callers[i].number = i;
        give_block(&callers[i]);
    }
    run_callers(0.1);
    held(&threads[0], &pages[0]);
    run_callers(seconds_of_callers);
    held(&threads[1], &pages[1]);
    CHECK_EQUAL_INT(threads[0], threads[1]);
    printf("  %d threads and %d resident pages before, %d and %d after\n", threads[0], pages[0], threads[1], pages[1]);
    CHECK(pages[1] <= pages[0] + 1024);
    for (i = 0; i < CALLERS; i++)
        free(callers[i].block);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } tests[] = {{"ahead", test_ahead}, {"turns", test_turns}, {"end", test_end}, {"callers", test_callers},
                 {"reads", test_reads}};
    size_t i;

    quick = getenv("SPECDEC_QUICK") != NULL;
    seconds_of_callers = argc > 2 ? atof(argv[2]) : quick ? 2 : 15;
    make_models();
    for (i = 0; i < sizeof tests / sizeof *tests; i++)
        if (argc < 2 || strcmp(argv[1], tests[i].name) == 0)
            tests[i].run();
    free(target.data);
    free(draft.data);
    free(large.data);
    return check_report("test_async");
}
