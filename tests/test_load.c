/* test_load.c - how long a text waits while another one's prompt is read beside it. Time is made here: the clock that
   the engine looks at moves by what its kernels are called for, so that every run is the same.
   cc -O2 -pthread -I. test_load.c; SPECDEC_QUICK=1 shortens. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include <time.h>
static int made_clock(int kind, struct timespec *now);
#define clock_gettime(kind, now) made_clock((int)(kind), now)
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "check.h"
#include "gguf_maker.h"
#include "machine.h"

enum { PROMPT = 600 };

static int quick;

/* --- a machine whose steps take what its kernels are called for --------------------------------------------------- */

static struct {
    double seconds, pure;          /* the clock; what it would show without disturbances */
    double speed;                  /* by how much longer all takes now */
    double tile, row, key;         /* seconds of a call: for a tile of weights, a row's norm, a query and 64 keys */
    specdec__store_sums_function *store_sums;
    specdec__norm_function *norm;
    specdec__softmax_function *softmax;
} made;

static int made_clock(int kind, struct timespec *now)
{
    (void)kind;
    now->tv_sec = (time_t)made.seconds;
    now->tv_nsec = (long)(1e9 * (made.seconds - floor(made.seconds)));
    return 0;
}

static void pass(double seconds)
{
    made.pure += seconds;
    made.seconds += seconds * made.speed;
}

/* The same for a step of any width up to 64. */
static void made_put(const float *sums, int count, const float *bias, float *out, size_t stride)
{
    pass(made.tile);
    made.store_sums(sums, count, bias, out, stride);
}

static void made_norm(const float *x, const float *weight, float epsilon, int length, int from, int to, float *out)
{
    pass(made.row);
    made.norm(x, weight, epsilon, length, from, to, out);
}

static float made_softmax(float *scores, int from, int to, float *max, float *sums)
{
    pass(made.key);
    return made.softmax(scores, from, to, max, sums);
}

/* --- a text that writes, and one that comes in -------------------------------------------------------------------- */

typedef struct beside {
    specdec *running, *late;
    void *block;
    double plain;              /* seconds of the running text's step alone */
} beside;

/* What a row and 64 keys cost, in plain steps. */
typedef struct price {
    double row, keys;
} price;

enum { TARGET, DRAFT, MODELS };
static file models[MODELS];

static int open_engine(beside *b, int with_draft)
{
    specdec_config c;
    specdec_error error;
    size_t bytes;

    memset(&c, 0, sizeof c);
    c.target = source_of(&models[TARGET]);
    if (with_draft) {
        c.draft = source_of(&models[DRAFT]);
        c.drafting = SPECDEC_DRAFT_MODEL; /* whether it pays or not */
        c.tree_size = c.tree_depth = 2;
    } else {
        c.drafting = SPECDEC_DRAFT_OFF;
    }
    c.threads = 1;
    c.sequences = 2;
    c.context = PROMPT + 1500;
    CHECK_EQUAL_INT(specdec_memory_needed(&c, &bytes, &error), SPECDEC_OK);
    b->block = malloc(bytes);
    CHECK_EQUAL_INT(specdec_init(&b->running, &c, b->block, bytes, &error), SPECDEC_OK);
    return b->running && !specdec_open(b->running, &b->late);
}

/* Seconds of a step for both texts, without disturbances, in which the running one gets a token; -1: it failed. */
static double step_pure(const beside *b)
{
    const double start = made.pure;
    const int32_t *tokens;
    int before, count;

    specdec_tokens(b->running, NULL, &before);
    if (specdec_step(b->running, &tokens, &count))
        return -1;
    return made.pure - start;
}

static void wrap(specdec__kernels *k)
{
    made.store_sums = k->store_sums;
    made.norm = k->norm;
    made.softmax = k->softmax;
    k->store_sums = made_put;
    k->norm = made_norm;
    k->softmax = made_softmax;
}

/* An engine whose kernels move the clock, and its running text, that has written a little. */
static int begin(beside *b, int with_draft, price p)
{
    const int32_t prompt[] = {5, 9, 70, 9};
    double puts;
    int i;

    memset(b, 0, sizeof *b);
    made.seconds = 1;
    made.speed = 1;
    made.tile = made.row = made.key = 0;
    if (!open_engine(b, with_draft))
        return 0;
    wrap(b->running->engine->kernels);
    CHECK_EQUAL_INT(specdec_prompt_tokens(b->running, prompt, 4), SPECDEC_OK);
    CHECK(step_pure(b) >= 0);
    made.tile = 1;
    puts = step_pure(b);
    made.tile = 0.030 / puts; /* a step of the weights takes 30 ms, and less for the draft's */
    made.row = p.row * 0.030 / (2 * b->running->model->layers);
    made.key = p.keys * 0.030 / (b->running->model->layers * b->running->model->heads);
    for (i = 0; i < 40; i++)
        b->plain = step_pure(b);
    return b->plain > 0;
}

static void end(beside *b)
{
    specdec_deinit(b->running);
    free(b->block);
}

/* Disturbances: every step takes up to a tenth more or less, one in forty three times as long. */
static double disturbed(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % 40 == 0 ? 3 : 0.9 + 0.2 * ((*state >> 16) % 1000) / 1000;
}

/* What was seen while a prompt was read. */
typedef struct seen {
    double longest;   /* of all steps, undisturbed, in steps alone */
    double seconds;   /* of all, in steps alone */
    int steps;
} seen;

/* A prompt of so many tokens comes in. Both texts go on, until `more` steps after the late one has written. turn: how
   the machine's speed changes in the middle. */
static seen read_beside(beside *b, int count, int noisy, double turn, int more)
{
    static int32_t tokens[PROMPT];
    uint32_t state = 1;
    specdec_text piece;
    seen s = {0, 0, 0};
    int i, wrote = 0;

    for (i = 0; i < count; i++)
        tokens[i] = 5 + (i * 7 + i * i % 11) % 200;
    CHECK_EQUAL_INT(specdec_prompt_tokens(b->late, tokens, count), SPECDEC_OK);
    while (s.steps < 4 * PROMPT && (!wrote || more-- > 0)) {
        double one;

        made.speed = (noisy ? disturbed(&state) : 1) * (b->late->view.length > count / 2 ? turn : 1);
        one = step_pure(b) / b->plain;
        if (one < 0) /* the running text has ended: it writes on from where it began */
            break;
        s.longest = one > s.longest ? one : s.longest;
        s.seconds += one;
        s.steps++;
        while (!specdec_take(b->late, &piece))
            wrote = 1;
    }
    made.speed = 1;
    CHECK(wrote);
    return s;
}

/* A step of the machine never takes longer than that, as the running text waits for it. */
#define BOUND 1.5

static void test_alone(void)
{
    static const struct {
        const char *name;
        price cost;
        double most; /* of the time that the prompt would take if every step were filled */
    } machines[] = {{"memory-bound", {0.05, 0.003}, 1.5},
                    {"middling", {0.1, 0.012}, 1.5},
                    {"compute-bound", {0.3, 0.01}, 1.5}};
    beside b;
    size_t i;

    TEST("no step takes longer than one and a half while a prompt is read, from the first slice to the last");
    for (i = 0; i < sizeof machines / sizeof *machines; i++) {
        const price p = machines[i].cost;
        double rows = PROMPT * (p.row + p.keys * PROMPT / 128); /* what reading adds, in steps alone */

        if (!begin(&b, 0, p))
            return;
        const seen s = read_beside(&b, PROMPT, 0, 1, 0);

        printf("  %-14s longest %.2f, %d steps, %.1f steps alone (%.1f for the prompt)\n", machines[i].name, s.longest,
               s.steps, s.seconds, rows);
        CHECK(s.longest <= BOUND);
        CHECK(s.seconds <= machines[i].most * rows * 1.4 / 0.4);
        end(&b);
    }
}

/* Steps take a tenth more or less, some three times as long; and the machine becomes faster or slower. */
static void test_disturbed(void)
{
    static const double turns[] = {1, 0.5, 1.7};
    const price p = {0.1, 0.012};
    const double rows = PROMPT * (p.row + p.keys * PROMPT / 128);
    beside b;
    size_t i;

    TEST("neither disturbances nor a machine that changes its speed make the engine plan a step longer than 1.5");
    for (i = 0; i < (quick ? 1 : sizeof turns / sizeof *turns); i++) {
        if (!begin(&b, 0, p))
            return;
        const seen s = read_beside(&b, PROMPT, 1, turns[i], 0);

        printf("  speed %-8.1f longest %.2f, %d steps, %.1f steps alone (%.1f for the prompt)\n", turns[i], s.longest,
               s.steps, s.seconds, rows);
        CHECK(s.longest <= (turns[i] < 1 ? 1 + (BOUND - 1.05) / turns[i] : BOUND)); /* a slice was planned before that was seen */
        CHECK(s.seconds <= 2.5 * rows * 1.4 / 0.4);
        end(&b);
    }
}

/* The draft model, and how long it has read at once, undisturbed. */
static struct {
    specdec__drafter_kind kind; /* the draft model's */
    double longest;
    int reads;
} reader;

static specdec_result timed_read(specdec__drafter *d, const specdec__draft_request *request, int count, specdec_error *error)
{
    const double start = made.pure;
    const specdec_result result = reader.kind.prefill(d, request, count, error);

    reader.longest = made.pure - start > reader.longest ? made.pure - start : reader.longest;
    reader.reads++;
    return result;
}

/* The late text's drafter has to read the prompt, too. */
static void test_drafter(void)
{
    const price p = {0.02, 0.001};
    specdec__drafter *d;
    beside b;

    TEST("nobody waits longer than half a step for the draft model that catches up with another text's prompt");
    if (!begin(&b, 1, p))
        return;
    d = &b.running->engine->drafters[0];
    reader.kind = d->kind;
    d->kind.prefill = timed_read;
    read_beside(&b, PROMPT, 0, 1, 400);
    printf("  draft model    reads %d times, %.2f steps at most\n", reader.reads, reader.longest / b.plain);
    CHECK(reader.reads > 5);
    CHECK(reader.longest <= (BOUND - 1) * b.plain);
    CHECK(b.late->count - d->kind.count_unprefilled(d, b.late->at, b.late->count) > PROMPT);
    end(&b);
}

/* Two texts of a new engine that are prompted before anything was measured. */
static void test_fresh(void)
{
    const price p = {0.05, 0.003};
    static int32_t tokens[PROMPT];
    beside b, fresh;
    int i, steps = 0;

    TEST("a new engine reads a second prompt beside the first text as fast as one that has seen steps before");
    if (!begin(&b, 0, p))
        return;
    memset(&fresh, 0, sizeof fresh);
    if (open_engine(&fresh, 0)) {
        wrap(fresh.running->engine->kernels);
        for (i = 0; i < PROMPT; i++)
            tokens[i] = 5 + i * 7 % 200;
        CHECK_EQUAL_INT(specdec_prompt_tokens(fresh.running, tokens + 1, 4), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_prompt_tokens(fresh.late, tokens, PROMPT), SPECDEC_OK);
        for (; fresh.late->view.length < PROMPT - 1 && steps < PROMPT; steps++)
            CHECK(step_pure(&fresh) >= 0);
        printf("  new engine     %d steps\n", steps);
        CHECK(steps < PROMPT / 3);
    }
    end(&fresh);
    end(&b);
}

int main(void)
{
    int i;

    quick = getenv("SPECDEC_QUICK") != NULL;
    models[TARGET] = random_model(2, 0, 0);
    models[DRAFT] = random_model(1, 0, 0);
    test_fresh();
    test_alone();
    test_disturbed();
    test_drafter();
    for (i = 0; i < MODELS; i++)
        free(models[i].data);
    return check_report("test_load");
}
