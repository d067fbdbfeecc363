/* test_texts.c - many texts in one engine: each writes what it writes alone, whoever else is there, whenever they come, go,
   fork, are cancelled or run out of memory; pages come back when nobody needs them.
   cc -O2 -pthread -I. test_texts.c, run from the repository's root; SPECDEC_QUICK=1 shortens. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
static void come_late(void);
#define SPECDEC__PAUSE() come_late()
#define SPECDEC__PIPE 1
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include <limits.h>
#include "check.h"
#include "gguf_maker.h"
#include "machine.h"

enum { CONTEXT_TOKENS = 300, TEXTS = 32 };

static int quick, schedules;
static const char *given_model; /* for schedules; NULL: small ones of random weights */

/* --- models ----------------------------------------------------------------------------------------------------------- */

enum { PLAIN, NOISY, WINDOWED, EXPERTS, NOISY_EXPERTS, PREDICTING, MODELS };
static file models[MODELS];

/* Drafts that guess at random, for all of them: heads, and a layer that reads states. */
static file heads, layer;

enum { DRAFTERS = 4 };
static file drafters[DRAFTERS]; /* those that come in files of their own; the last is for the model with windows */

static void make_models(void)
{
    models[PLAIN] = random_model(1, 0, 1);
    models[NOISY] = random_model(1, 0.25f, 1);
    models[EXPERTS] = random_mixture(4, 1, 0, 1);
    models[NOISY_EXPERTS] = random_mixture(4, 1, 0.25f, 1);
    models[WINDOWED] = random_windowed(1);
    models[PREDICTING] = random_predicting(1, 1);
}

/* --- engines ---------------------------------------------------------------------------------------------------------- */

static specdec_config config_of(int target, int draft)
{
    specdec_config c;

    memset(&c, 0, sizeof c);
    c.target.data = models[target].data;
    c.target.size = models[target].size;
    if (draft >= 0) {
        c.draft.data = models[draft].data;
        c.draft.size = models[draft].size;
        c.heads.data = heads.data;
        c.heads.size = heads.size;
    }
    c.threads = 1;
    c.context = CONTEXT_TOKENS;
    return c;
}

/* A target and its draft; every third one that is plain has experts. */
static specdec_config pair_of(int target, int i)
{
    return target != PLAIN ? config_of(target, target) : i % 3 ? config_of(PLAIN, NOISY) : config_of(EXPERTS, NOISY_EXPERTS);
}

/* Pages that some view of target or draft still has, those aside that kept views alone have. */
static int used_pages(const specdec *t)
{
    const specdec__engine *e = t->engine;
    int i, span, used = 0;

    for (span = 0; span < SPECDEC__SPANS; span++) {
        used += e->target.kv.span[span].count - e->target.kv.span[span].free_count - e->target.kv.span[span].only_kept;
        for (i = 0; i < e->drafter_count; i++)
            if (e->drafters[i].kind.init == specdec__draft_model_init || e->drafters[i].kind.init == specdec__draft_layer_init ||
                e->drafters[i].kind.init == specdec__draft_block_init) {
                const void *state = e->drafters[i].state;
                const specdec__kv *kv = e->drafters[i].kind.init == specdec__draft_model_init
                                            ? &((const specdec__draft_model *)state)->context.kv
                                        : e->drafters[i].kind.init == specdec__draft_block_init
                                            ? &((const specdec__draft_block *)state)->context.kv
                                            : &((const specdec__draft_layer *)state)->context.kv;
                const specdec__pages *pages = &kv->span[span];

                used += pages->count - pages->free_count - pages->only_kept;
            }
    }
    return used;
}

/* --- constraints ------------------------------------------------------------------------------------------------------ */

enum { CONSTRAINTS = 5, CONSTRAINT_BYTES = 1 << 20 };
static const specdec_constraint *constraints[CONSTRAINTS];
static int obeyed; /* tokens of checked answers that had one */
static uint64_t screened; /* rows of logits of which bounds were computed first */

/* A schema with much that is forced, a grammar, an expression that hardly forbids anything, choices, one without an end. */
static void make_constraints(void)
{
    static const char *const words[] = {"yes", "no", "perhaps", "nobody knows", "none of these"};
    static const specdec_constraint_source sources[CONSTRAINTS] = {
        {SPECDEC_CONSTRAINT_SCHEMA, "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":9},\"kind\":{\"enum\":[\"small\",\"large\",\"larger\"]},"
         "\"count\":{\"type\":\"integer\",\"minimum\":3,\"maximum\":250}},\"required\":[\"name\",\"kind\",\"count\"],\"additionalProperties\":false}",
         SPECDEC_WHOLE_STRING, NULL, 0, NULL, 1},
        {SPECDEC_CONSTRAINT_GBNF, "root ::= \"The \" (\"cat\" | \"cow\" | \"crow\") (\" sings\" | \" sits\" | [a-c]{1,12})* \".\"", SPECDEC_WHOLE_STRING, NULL, 0, NULL, 0},
        {SPECDEC_CONSTRAINT_REGEX, "[^x]{0,60}", SPECDEC_WHOLE_STRING, NULL, 0, NULL, 0},
        {SPECDEC_CONSTRAINT_CHOICES, NULL, 0, words, 5, NULL, 0},
        {SPECDEC_CONSTRAINT_GBNF, "root ::= (\"again, \" | \"and \")+", SPECDEC_WHOLE_STRING, NULL, 0, NULL, 0}};
    int i;

    for (i = 0; i < CONSTRAINTS; i++)
        CHECK_EQUAL_INT(specdec_constraint_init(&constraints[i], &sources[i], malloc(CONSTRAINT_BYTES), CONSTRAINT_BYTES, &failure), SPECDEC_OK);
}

/* --- what a text must be ---------------------------------------------------------------------------------------------- */

static machine oracle;

/* A text of the engine under test, and what is known of it. */
typedef struct slot {
    specdec *text;
    specdec_settings settings;
    int from;      /* tokens that were prompted, or checked already */
    int begin;     /* tokens before its answer, which obeys settings.constraint */
    int prompted;  /* there was a prompt */
} slot;

static void check_slot(slot *s)
{
    const int32_t *tokens;
    int count;

    specdec_tokens(s->text, &tokens, &count);
    check_written(&oracle, tokens, s->settings.constraint && s->prompted ? s->begin : s->from, count, &s->settings);
    s->from = count;
    obeyed += s->settings.constraint && s->prompted ? count - s->begin : 0;
}

/* --- a lane that takes its time --------------------------------------------------------------------------------------- */

enum { WAITING = 64 };

/* Obeys, in order, what it is sent, but whenever it likes; a run that is obeyed comes back later still. */
typedef struct slow_lane {
    specdec__pipe pipe;
    specdec__stage stage;
    const specdec__engine *engine;
    uint64_t random;
    int late; /* it obeys an order in one of so many looks */
    struct {
        specdec__order order;
        int cancelled, obeyed;
        specdec_result result;
        specdec_error error;
        float *rows; /* of a run */
    } queue[WAITING]; /* (count); runs stay until they are taken */
    int count;
} slow_lane;

static int runs_sent, runs_cancelled, runs_together, runs_broken; /* of all such lanes; together: most on their way */
static int orders_thinned; /* that took numbers from nodes which nobody wants */

static int lane_dice(slow_lane *lane, int n) { return (int)(maker_random(&lane->random) % (uint64_t)n); }

static size_t lane_row_bytes(const slow_lane *lane, int n)
{
    return (size_t)n * (size_t)lane->engine->target_model->vocab_size * sizeof(float);
}

/* Obeys the next order, if there is one. A run that was cancelled may be in the middle of its work by then. */
static int lane_obey(slow_lane *lane)
{
    static int now = 1;
    specdec__context *c = lane->stage.context;
    int *const cancel = c->pool->cancel;
    int i = 0, broken;

    while (i < lane->count && lane->queue[i].obeyed)
        i++;
    if (i == lane->count)
        return 0;
    broken = lane->queue[i].cancelled && lane->queue[i].order.kind == SPECDEC__ORDER_RUN && lane_dice(lane, 2);
    c->pool->cancel = broken ? &now : cancel;
    lane->queue[i].result = specdec__stage_obey_order(&lane->stage, &lane->queue[i].order, lane->queue[i].cancelled && !broken,
                                                      &lane->queue[i].error);
    c->pool->cancel = cancel;
    lane->queue[i].obeyed = 1;
    runs_broken += broken;
    if (lane->queue[i].order.kind == SPECDEC__ORDER_RUN) {
        const size_t bytes = lane_row_bytes(lane, lane->queue[i].order.n);

        lane->queue[i].rows = (float *)malloc(bytes);
        memcpy(lane->queue[i].rows, c->logits, bytes);
        memset(c->logits, 0xFF, bytes); /* are only there when the run was taken */
    } else {
        lane->count--;
        memmove(&lane->queue[i], &lane->queue[i + 1], (size_t)(lane->count - i) * sizeof lane->queue[0]);
    }
    return 1;
}

static void slow_submit(specdec__pipe *pipe, const specdec__order *order)
{
    slow_lane *lane = (slow_lane *)pipe;

    CHECK(lane->count < WAITING);
    memset(&lane->queue[lane->count], 0, sizeof lane->queue[0]);
    lane->queue[lane->count++].order = *order;
    lane->stage.view = &pipe->sequence->view;
    if (order->kind == SPECDEC__ORDER_RUN) {
        runs_sent++;
        runs_together = pipe->count > runs_together ? pipe->count : runs_together;
        CHECK(pipe->count <= pipe->depth);
    } else if (order->kind == SPECDEC__ORDER_KEEP) { /* however long all guesses are right, there are numbers for more */
        const int left = order->stay < 0 ? order->first - order->n : order->stay;

        /* also of the run that is back, where the text ends in its middle */
        CHECK(left <= specdec__max_int(lane->stage.context->max_nodes / 2, SPECDEC__PIPE_NODES * (pipe->count + 1)));
        orders_thinned += order->stay > 0;
    }
}

static int slow_look(specdec__pipe *pipe, int until)
{
    slow_lane *lane = (slow_lane *)pipe;
    int state;

    if (!lane_dice(lane, lane->late))
        lane_obey(lane);
    while (until & SPECDEC__PIPE_IDLE && lane_obey(lane))
        continue;
    state = lane_dice(lane, 2) ? SPECDEC__PIPE_FREE : 0;
    if (until & SPECDEC__PIPE_FREE && (!(until & SPECDEC__PIPE_RETURNED) || lane_dice(lane, 2)))
        return SPECDEC__PIPE_FREE;
    if (pipe->wake_at > 0 && lane_dice(lane, 2)) /* nothing was the case in time */
        return 0;
    while (until & SPECDEC__PIPE_RETURNED && lane->count && !lane->queue[0].obeyed)
        lane_obey(lane);
    if (lane->count && lane->queue[0].obeyed && (until || lane_dice(lane, 2)))
        state |= SPECDEC__PIPE_RETURNED;
    return state;
}

static specdec_result slow_take(specdec__pipe *pipe, specdec_error *error)
{
    slow_lane *lane = (slow_lane *)pipe;
    const specdec_result result = lane->queue[0].result;

    CHECK(lane->count && lane->queue[0].obeyed && lane->queue[0].order.kind == SPECDEC__ORDER_RUN);
    memcpy(lane->stage.context->logits, lane->queue[0].rows, lane_row_bytes(lane, lane->queue[0].order.n));
    pipe->stage_seconds = 1e-6 * (8 + lane_dice(lane, 8) * lane->queue[0].order.n); /* so runs get all widths */
    if (error && result)
        *error = lane->queue[0].error;
    free(lane->queue[0].rows);
    memmove(&lane->queue[0], &lane->queue[1], (size_t)--lane->count * sizeof lane->queue[0]);
    return result;
}

static void slow_cancel(specdec__pipe *pipe, int at)
{
    slow_lane *lane = (slow_lane *)pipe;
    int i;

    for (i = 0; i < lane->count; i++)
        if (lane->queue[i].order.kind == SPECDEC__ORDER_RUN && at-- == 0) {
            lane->queue[i].cancelled = 1;
            runs_cancelled++;
            return;
        }
    CHECK(i < lane->count); /* none that is on its way */
}

/* An engine's target gets a lane with so many runs on their way. */
static void slow_attach(slow_lane *lane, specdec *t, int depth, uint64_t seed)
{
    static const specdec__pipe_kind kind = {slow_submit, slow_look, slow_take, slow_cancel};
    specdec__engine *e = t->engine;

    memset(lane, 0, sizeof *lane);
    lane->pipe.kind = &kind;
    lane->pipe.depth = depth;
    lane->pipe.node = (int32_t *)malloc((size_t)e->drafters[0].proposals[0].drafts.tree.capacity * sizeof *lane->pipe.node);
    lane->stage.context = &e->target;
    lane->engine = e;
    lane->random = seed;
    lane->late = 1 + (int)(seed % 9);
    CHECK(e->drafters[0].kind.init == specdec__draft_model_init);
    e->pipe = &lane->pipe;
}

/* --- random schedules ------------------------------------------------------------------------------------------------- */

enum { PAST = 6 }; /* texts that were closed or cut and are remembered */

typedef struct world {
    machine own;
    int32_t past[PAST][CONTEXT_TOKENS];
    int past_count[PAST];
    specdec_config config;
    slot slots[TEXTS];
    uint64_t random;
    slow_lane lane;
} world;

static int steps, together, full, cancelled, written; /* what has happened in all schedules */
static long long kept_taken, open_taken, all_prompted; /* tokens of prompts in all schedules: not read, and all */
static int ahead; /* acts behind which a draft model had gone on while the target verified */
static int pipe_depth; /* of the lanes of the schedules to come; 0: one run at a time */

static int dice(world *w, int n) { return (int)(maker_random(&w->random) % (uint64_t)n); }

/* What is known of a text that is closed or cut: later prompts may begin as it does. */
static void remember(world *w, const slot *s)
{
    const int at = dice(w, PAST);
    const int32_t *tokens;
    specdec_stats stats;

    specdec_tokens(s->text, &tokens, &w->past_count[at]);
    memcpy(w->past[at], tokens, (size_t)w->past_count[at] * sizeof *tokens);
    specdec_get_stats(s->text, &stats);
    kept_taken += stats.cached_tokens;
    open_taken += stats.shared_tokens;
    all_prompted += stats.prompt_tokens;
}

static slot *any_slot(world *w, int open)
{
    int first = dice(w, w->config.sequences), i;

    for (i = 0; i < w->config.sequences; i++) {
        slot *s = &w->slots[(first + i) % w->config.sequences];

        if ((s->text != NULL) == open)
            return s;
    }
    return NULL;
}

/* Other settings from here on. With a constraint, what follows is a new answer, whatever it was before. */
static void change_settings(world *w, slot *s)
{
    const specdec_constraint *before = s->settings.constraint;
    const int32_t *tokens;

    check_slot(s);
    s->settings.constraint = w->config.constraints && dice(w, 2) ? constraints[dice(w, CONSTRAINTS)] : NULL;
    s->settings.sampling.temperature = dice(w, 2) ? 0 : 0.9f;
    s->settings.sampling.seed = (uint64_t)dice(w, 5);
    s->settings.max_tokens = dice(w, 3) ? 0 : 20;
    CHECK_EQUAL_INT(specdec_set(s->text, &s->settings), SPECDEC_OK);
    specdec_tokens(s->text, &tokens, &s->begin);
    if (before || s->settings.constraint)
        CHECK_EQUAL_INT(specdec_rewind(s->text, s->begin), SPECDEC_OK);
}

static void open_slot(world *w)
{
    slot *s = any_slot(w, 0), *other = any_slot(w, 1);
    specdec *text = w->own.first;

    if (!s) {
        CHECK_EQUAL_INT(specdec_open(text, &text), SPECDEC_ERROR_MEMORY);
        CHECK(!text);
        return;
    }
    memset(s, 0, sizeof *s);
    if (other && other->prompted && dice(w, 2)) {
        check_slot(other);
        *s = *other;
        CHECK_EQUAL_INT(specdec_fork(other->text, &s->text), SPECDEC_OK);
    } else {
        CHECK_EQUAL_INT(specdec_open(text, &s->text), SPECDEC_OK);
        change_settings(w, s);
    }
}

/* Tokens of nobody's, or those that another text begins with. */
static void prompt_slot(world *w, slot *s)
{
    int32_t tokens[CONTEXT_TOKENS];
    const slot *other = any_slot(w, 1);
    const int32_t *theirs, *mine;
    int n = 1 + dice(w, dice(w, 4) ? 20 : 150), i, count, own;
    specdec_result result;

    check_slot(s);
    for (i = 0; i < n; i++)
        tokens[i] = 5 + dice(w, dice(w, 2) ? 6 : 250);
    specdec_tokens(other->text, &theirs, &count);
    specdec_tokens(s->text, &mine, &own);
    if (!own && dice(w, 2) && count) {
        memcpy(tokens, theirs, (size_t)(n = 1 + dice(w, count)) * sizeof *tokens);
    } else if (!own && dice(w, 3)) {
        const int at = dice(w, PAST), begin = dice(w, w->past_count[at] + 1);

        memcpy(tokens, w->past[at], (size_t)begin * sizeof *tokens);
        n = begin + n < CONTEXT_TOKENS ? begin + n : CONTEXT_TOKENS;
        for (i = begin; i < n; i++)
            tokens[i] = 5 + dice(w, 6);
    }
    result = specdec_prompt_tokens(s->text, tokens, n);
    if (result == SPECDEC_ERROR_CANCELLED || result == SPECDEC_ERROR_CONTEXT)
        return;
    CHECK_EQUAL_INT(result, SPECDEC_OK);
    s->from = s->begin = own + n;
    s->prompted = 1;
}

/* Some hand-outs, in one of the ways there are. */
static void read_slot(world *w, slot *s)
{
    const int32_t *tokens;
    specdec_text piece;
    int way = dice(w, 3), n = 1 + dice(w, 10), count;
    specdec_result result = SPECDEC_OK;

    while (n-- > 0 && !result) {
        result = way == 0 ? specdec_next(s->text, &piece) : way == 1 ? specdec_take(s->text, &piece)
                                                                     : specdec_step(s->text, &tokens, &count);
        written += !result;
    }
    cancelled += result == SPECDEC_ERROR_CANCELLED;
    full += result == SPECDEC_ERROR_FULL;
    if (result != SPECDEC_OK && result != SPECDEC_DONE && result != SPECDEC_ERROR_CANCELLED &&
        !(result == SPECDEC_PENDING && way == 1) && !(result == SPECDEC_ERROR_FULL && w->config.cache) &&
        !(result == SPECDEC_ERROR_ARGUMENT && !s->prompted)) {
        fprintf(stderr, "%d: %s\n", (int)result, specdec_error_text(s->text));
        CHECK_EQUAL_INT(result, SPECDEC_OK);
    }
}

static void act(world *w)
{
    slot *s = any_slot(w, 1);
    const int32_t *tokens;
    int count, what = dice(w, 20);

    if (!s || what < 2) {
        open_slot(w);
        return;
    }
    specdec_tokens(s->text, &tokens, &count);
    if (what < 4)
        prompt_slot(w, s);
    else if (what < 5)
        change_settings(w, s);
    else if (what < 6 && dice(w, 2)) {
        check_slot(s);
        remember(w, s);
        specdec_close(s->text);
        s->text = NULL;
    } else if (what < 7 && count && dice(w, 2)) {
        check_slot(s);
        remember(w, s);
        CHECK_EQUAL_INT(specdec_rewind(s->text, s->from = s->begin = dice(w, 2) * dice(w, count + 1)), SPECDEC_OK);
        s->prompted = s->from > 0;
    } else if (what < 8)
        specdec_cancel(s->text);
    else if (what < 12) {
        specdec_result result = specdec_work(s->text);

        steps += !result;
        together += w->own.first->engine->roots > 1;
        CHECK(result == SPECDEC_OK || result == SPECDEC_DONE);
    } else if (what < 19)
        read_slot(w, s);
    else if (s->prompted)
        specdec_logits(s->text, NULL, NULL, 0, NULL);
}

static void run_schedule(const specdec_config *c, uint64_t seed, int acts)
{
    specdec_config alone = *c;
    world w;
    int i;

    memset(&w, 0, sizeof w);
    w.config = *c;
    w.random = seed + check_seed() * 1000003;
    alone.sequences = alone.cache = 0;
    alone.drafting = SPECDEC_DRAFT_OFF;
    alone.screening = SPECDEC_SCREENING_OFF;
    alone.logprobs = c->constraints; /* it reads all logits, also where a token is forced */
    if (!open_machine(&oracle, &alone) || !open_machine(&w.own, c))
        return;
    w.slots[0].text = w.own.first;
    if (pipe_depth)
        slow_attach(&w.lane, w.own.first, pipe_depth, seed);
    for (i = 0; i < acts; i++) {
        act(&w);
        ahead += w.own.first->engine->async_drafting->active;
    }
    for (i = 0; i < c->sequences; i++)
        if (w.slots[i].text) {
            check_slot(&w.slots[i]);
            specdec_close(w.slots[i].text);
        }
    CHECK_EQUAL_INT(used_pages(w.own.first), 0);
    specdec_drop_prefixes(w.own.first);
    CHECK_EQUAL_INT(used_pages(w.own.first), 0);
    for (i = 0; i < SPECDEC__SPANS; i++)
        CHECK_EQUAL_INT(w.own.first->engine->target.kv.span[i].only_kept, 0);
    screened += w.own.first->engine->target.screen.rows;
    close_machine(&w.own);
    close_machine(&oracle);
    CHECK_EQUAL_INT(w.lane.count, 0);
    free(w.lane.pipe.node);
}

/* Two levels look at few tokens, so that they have something to do; models with windows do without. */
static void retrieve(specdec_config *c, int windowed, int turn)
{
    if (c->drafting == SPECDEC_DRAFT_TRIFORCE && windowed)
        c->drafting = SPECDEC_DRAFT_NGRAM;
    if (!windowed && (c->drafting == SPECDEC_DRAFT_TRIFORCE || (c->drafting == SPECDEC_DRAFT_AUTO && turn % 3)))
        c->retrieval = 16 + turn % 40;
}

/* Only one target has a block that predicts. */
static void predict(specdec_config *c, int windowed)
{
    if (c->drafting != SPECDEC_DRAFT_MTP)
        return;
    if (windowed)
        c->drafting = SPECDEC_DRAFT_NGRAM;
    else
        c->target = source_of(&models[PREDICTING]);
}

static void test_schedules(void)
{
    static const int counts[] = {1, 2, 3, 5, 8, 16, 32};
    static const specdec_drafting draftings[] = {SPECDEC_DRAFT_AUTO, SPECDEC_DRAFT_MODEL, SPECDEC_DRAFT_NGRAM, SPECDEC_DRAFT_OFF,
                                                 SPECDEC_DRAFT_HEADS, SPECDEC_DRAFT_TRIFORCE, SPECDEC_DRAFT_MTP};
    uint64_t random = 77;
    int i;

    TEST("each text is what it is alone: random arrivals, forks, cancellations, rewinds, settings and departures");
    for (i = 0; i < schedules; i++) {
        const int small = maker_random(&random) % 3 ? PLAIN : WINDOWED;
        specdec_config c = pair_of(small, i);

        if (given_model) {
            memset(&c.target, 0, sizeof c.target);
            memset(&c.draft, 0, sizeof c.draft);
            memset(&c.heads, 0, sizeof c.heads);
            c.target.path = given_model;
        } else if (i % 2) {
            c.heads.data = layer.data;
            c.heads.size = layer.size;
        }
        c.draft_vocabulary = i % 3 ? 0 : 64;
        if (i % 4 > 1 && !given_model)
            c.draft = source_of(&drafters[i / 4 % (small == PLAIN ? DRAFTERS - 1 : DRAFTERS)]);
        c.sequences = counts[i % 7];
        c.drafting = draftings[maker_random(&random) % 7];
        retrieve(&c, small != PLAIN && !given_model, i);
        predict(&c, small != PLAIN || given_model);
        c.drafting = given_model && (c.drafting == SPECDEC_DRAFT_MODEL || c.drafting == SPECDEC_DRAFT_HEADS) ? SPECDEC_DRAFT_NGRAM : c.drafting;
        c.policy = maker_random(&random) % 2 ? SPECDEC_POLICY_DYNAMIC : SPECDEC_POLICY_STATIC;
        c.prefill_chunk = (int)(maker_random(&random) % 3) * 3;
        c.batch = 1 + (int)(maker_random(&random) % 70);
        c.tree_size = maker_random(&random) % 2 ? 0 : 3 + (int)(maker_random(&random) % 20);
        c.kv = maker_random(&random) % 2 ? NULL : "q8_0";
        c.threads = 1 + (int)(maker_random(&random) % 2);
        c.cache = maker_random(&random) % 3 ? 0 : 1 + (int)(maker_random(&random) % 200);
        if (c.sequences == 1)
            c.cache = c.cache % 2 ? CONTEXT_TOKENS * (2 + c.cache % 5) : 0; /* what is kept of one text lies beside it */
        c.prefixes = i % 4 ? 0 : -1 + i / 4 % 5;
        c.constraints = i / 3 % 2;
        c.screening = i % 3 ? SPECDEC_SCREENING_ALWAYS : SPECDEC_SCREENING_AUTO;
        run_schedule(&c, (uint64_t)i + 1, 150);
    }
    printf("  %d schedules: %d steps, %d of them for several texts; %d pieces; %d calls cancelled, %d without room\n", schedules, steps,
           together, written, cancelled, full);
    printf("  of %lld tokens prompted to texts that ended, %lld were taken from open texts, %lld from ended ones\n", all_prompted,
           open_taken, kept_taken);
    printf("  %d tokens of answers obeyed a constraint; %.0f rows of logits were bounds first\n", obeyed, (double)screened);
    CHECK(schedules < 20 || obeyed > 300);
    CHECK(schedules < 20 || screened > 100);
    CHECK(schedules < 20 || kept_taken > 0);
    CHECK(schedules < 20 || (together > steps / 8 && cancelled));
    CHECK(schedules < 50 || full);
    CHECK(schedules < 50 || given_model || together > steps / 4); /* the small pair; TinyLlama: a fifth of the steps */
}

/* --- a draft model that goes on while the target verifies ------------------------------------------------------------- */

static int tardy; /* one of so many threads that meet comes late; 0: none */

/* Where threads meet, some of them wait a little, others not at all. */
static void come_late(void)
{
    static unsigned meetings;
    unsigned number;

    if (!tardy)
        return;
    number = (__atomic_add_fetch(&meetings, 1, __ATOMIC_RELAXED) * 2654435761u) >> 8;
    if (number % (unsigned)tardy == 0) {
        const double end = specdec__os_monotonic_seconds() + 1e-6 * (number / 64 % 128);

        while (specdec__os_monotonic_seconds() < end)
            machine_yield();
    }
}

static void test_beside(void)
{
    static const int counts[] = {1, 1, 1, 2, 3};
    uint64_t random = 78;
    int i;

    TEST("a text is what it is without drafts, though the draft model goes on while the target verifies, whoever comes late");
    if (getenv("TEST_WRAPPER")) {
        SKIP("emulators lose wake-ups now and then");
        return;
    }
    for (i = 0; i < schedules / 2; i++) {
        const int small = maker_random(&random) % 4 ? PLAIN : WINDOWED;
        specdec_config c = pair_of(small, i);

        memset(&c.heads, 0, sizeof c.heads);
        c.sequences = counts[i % 5];
        c.drafting = maker_random(&random) % 2 ? SPECDEC_DRAFT_AUTO : SPECDEC_DRAFT_MODEL;
        c.policy = maker_random(&random) % 2 ? SPECDEC_POLICY_DYNAMIC : SPECDEC_POLICY_STATIC;
        c.tree_size = maker_random(&random) % 2 ? 0 : 3 + (int)(maker_random(&random) % 20);
        c.batch = 1 + (int)(maker_random(&random) % 70);
        c.kv = maker_random(&random) % 2 ? NULL : "q8_0";
        c.threads = 2 + (int)(maker_random(&random) % 3);
        c.async = 1 + (int)(maker_random(&random) % 2);
        c.cache = maker_random(&random) % 3 || c.sequences == 1 ? 0 : 1 + (int)(maker_random(&random) % 200);
        tardy = 2 + (int)(maker_random(&random) % 30);
        run_schedule(&c, (uint64_t)i + 1, quick ? 60 : 100);
        tardy = 0;
    }
    printf("  %d schedules, %d acts behind a step that was drafted beside\n", i, ahead);
    CHECK(ahead > 10 * i);
}

/* An engine ends, or its text is cancelled, while runs are on their way. */
static void end_in_flight(const specdec_config *c, uint64_t seed)
{
    static slow_lane lane;
    const int32_t prompted[] = {7, 9, 11}, *tokens;
    specdec_stats stats;
    machine m;
    int i, count;

    if (!open_machine(&m, c))
        return;
    slow_attach(&lane, m.first, 4, seed);
    CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, prompted, 3), SPECDEC_OK);
    for (i = 0; i < 1 + (int)(seed % 9); i++)
        CHECK_EQUAL_INT(specdec_step(m.first, &tokens, &count), SPECDEC_OK);
    if (seed % 2) {
        specdec_cancel(m.first);
        while (specdec_step(m.first, &tokens, &count) == SPECDEC_OK)
            continue; /* what is in stock comes first */
        CHECK_EQUAL_INT(lane.pipe.count, 0);
        CHECK(!lane.pipe.sequence);
    }
    specdec_get_stats(m.first, &stats);
    CHECK(stats.accepted <= stats.drafted && stats.tokens >= stats.steps);
    close_machine(&m);
    CHECK_EQUAL_INT(lane.count, 0);
    free(lane.pipe.node);
}

static void test_flight(void)
{
    static const int counts[] = {1, 1, 1, 1, 3};
    uint64_t random = 79;
    int i;

    TEST("a text is what it is without drafts, though up to 8 runs are on their way, whenever the lane makes them");
    for (i = 0; i < schedules / 3; i++) {
        const int small = maker_random(&random) % 4 ? PLAIN : WINDOWED;
        specdec_config c = config_of(small, maker_random(&random) % 3 && small == PLAIN ? NOISY : small);

        memset(&c.heads, 0, sizeof c.heads);
        c.sequences = counts[i % 5];
        c.drafting = maker_random(&random) % 2 ? SPECDEC_DRAFT_AUTO : SPECDEC_DRAFT_MODEL;
        c.tree_size = i % 2 ? 0 : 2 + i / 2 % 8;
        c.batch = 1 + (int)(maker_random(&random) % (i % 2 ? 90 : 12)); /* numbers for few nodes are soon used up */
        c.kv = maker_random(&random) % 2 ? NULL : "q8_0";
        c.threads = 2;
        c.async = 1;
        c.cache = maker_random(&random) % 3 || c.sequences == 1 ? 0 : 1 + (int)(maker_random(&random) % 200);
        pipe_depth = 1 + (int)(maker_random(&random) % 8);
        run_schedule(&c, (uint64_t)i + 1, 120);
        end_in_flight(&c, (uint64_t)i);
    }
    pipe_depth = 0;
    printf("  %d schedules: %d runs, %d at a time at most, %d cancelled, %d of them in the middle; numbers were freed %d times\n", i,
           runs_sent, runs_together, runs_cancelled, runs_broken, orders_thinned);
    CHECK(i < 8 || (runs_sent > 20 * i && runs_cancelled > 5 * i && runs_together >= 4 && runs_broken > i));
    CHECK(i < 30 || orders_thinned > i);
}

/* --- texts that fork -------------------------------------------------------------------------------------------------- */

enum { FORK = 40, CHILD = 41 };
static const specdec_bias no_child = {CHILD, -INFINITY};
static const specdec_bias no_forks[] = {{CHILD, -INFINITY}, {FORK, -INFINITY}};

/* A rule that forks at every token which is a multiple of seven. */
static int sevens(void *user_data, const int32_t *tokens, int count, int32_t *child)
{
    (void)user_data;
    child[0] = tokens[count - 1] / 7 + 5;
    child[1] = 77;
    return tokens[count - 1] % 7 == 0 ? 2 : 0;
}

static int forked, attended; /* children; keys that were looked at */

/* Checks a text that has ended and its children: each path is what it is when it is read and gone on from alone. */
static void check_family(specdec *t, int depth, int max_depth, int by_token)
{
    specdec_settings settings;
    const int32_t *tokens;
    specdec *child;
    int i, from = t->answer_from, at = 0;

    specdec_get_settings(t, &settings);
    if (by_token) {
        settings.sampling.biases = depth < max_depth ? &no_child : no_forks;
        settings.sampling.bias_count = depth < max_depth ? 1 : 2;
    }
    tokens = t->tokens;
    check_written(&oracle, tokens, from, t->count, &settings);
    for (i = from; i < t->count; i++)
        attended += i;
    for (i = 0; (child = specdec_child(t, i)) != NULL; i++) {
        forked++;
        CHECK(child->fork_at > from && child->fork_at > at && child->fork_at <= t->count);
        at = child->fork_at;
        CHECK(memcmp(child->tokens, tokens, (size_t)at * sizeof *tokens) == 0);
        CHECK(by_token ? tokens[at - 1] == FORK && child->tokens[at] == CHILD : tokens[at - 1] % 7 == 0 && child->tokens[at + 1] == 77);
        check_family(child, depth + 1, max_depth, by_token);
    }
}

static void test_forks(void)
{
    int i;

    TEST("texts that fork: each path is what it is alone, by token and by rule, greedily and sampled, with every drafter");
    for (i = 0; i < (getenv("TEST_WRAPPER") ? 6 : quick ? 6 : 200); i++) {
        static const specdec_drafting draftings[] = {SPECDEC_DRAFT_AUTO, SPECDEC_DRAFT_MODEL, SPECDEC_DRAFT_NGRAM, SPECDEC_DRAFT_OFF,
                                                 SPECDEC_DRAFT_HEADS, SPECDEC_DRAFT_TRIFORCE, SPECDEC_DRAFT_MTP};
        const int model = i % 5 ? PLAIN : WINDOWED, by_token = i % 2;
        specdec_config c = config_of(model, model == PLAIN ? NOISY : WINDOWED), alone;
        int32_t tokens[30];
        uint64_t random = (uint64_t)i;
        char text[20000];
        size_t length, again;
        machine m;
        int k;

        alone = c;
        alone.fork_token = "";
        c.sequences = 200;
        c.drafting = draftings[i / 2 % 7];
        retrieve(&c, model != PLAIN, i);
        predict(&c, model != PLAIN);
        c.settings.max_tokens = 40;
        c.settings.sampling.temperature = i % 3 ? 1.0f : 0;
        c.settings.sampling.seed = (uint64_t)i;
        c.fork_depth = 1 + i % 3;
        c.forks = 4;
        c.cache = 6000;
        if (by_token) {
            c.fork_token = "40";
            c.child_token = "41";
        } else {
            c.hooks.fork = sevens;
        }
        if (!open_machine(&oracle, &alone) || !open_machine(&m, &c))
            return;
        for (k = 0; k < 30; k++)
            tokens[k] = 5 + (int)(maker_random(&random) % 250);
        CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, tokens, 30), SPECDEC_OK);
        while (m.first->count - m.first->answer_from < 40 && !specdec__stream_end_reason(m.first, m.first->count)) {
            specdec_text piece;

            CHECK(specdec_work(m.first) == SPECDEC_OK);
            while (specdec_take(m.first, &piece) == SPECDEC_OK)
                continue;
        }
        while (specdec_work(m.first) == SPECDEC_OK)
            continue;
        check_family(m.first, 0, c.fork_depth, by_token);
        CHECK_EQUAL_INT(specdec_join_forks(m.first, NULL, 0, &length), length ? SPECDEC_ERROR_BUFFER : SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_join_forks(m.first, text, sizeof text, &again), SPECDEC_OK);
        CHECK_EQUAL_INT(length, again);
        specdec_close(m.first);
        CHECK_EQUAL_INT(used_pages(m.first), 0);
        for (k = 0; k < 200; k++)
            CHECK(!m.first->engine->sequences[k].open);
        close_machine(&m);
        close_machine(&oracle);
    }
    printf("  %d forks\n", forked);
    CHECK(forked > (getenv("TEST_WRAPPER") || quick ? 10 : 500));
}

/* --- bytes and log-probabilities ---------------------------------------------------------------------------------------- */

enum { ANSWER_BYTES = 20000 };

/* One answer to its end: its bytes, its log-probabilities, why it ended. */
typedef struct answer {
    char bytes[ANSWER_BYTES];
    size_t length;
    int count, done;
    specdec_stop stop;
    int32_t tokens[CONTEXT_TOKENS];
    float logprobs[CONTEXT_TOKENS];
} answer;

/* Hands out one more piece. Returns 0 when there is none now. */
static int answer_more(answer *a, specdec *t, int work)
{
    specdec_text piece;
    const specdec_result result = work ? specdec_next(t, &piece) : specdec_take(t, &piece);

    if (result == SPECDEC_PENDING || result == SPECDEC_ERROR_CANCELLED)
        return 0;
    CHECK(result == SPECDEC_OK || result == SPECDEC_DONE);
    a->done = result != SPECDEC_OK;
    memcpy(a->bytes + a->length, piece.bytes, piece.length);
    a->length += piece.length;
    return !a->done;
}

static void answer_end(answer *a, specdec *t)
{
    const int32_t *tokens;
    specdec_logprob logprob;
    int i;

    a->stop = specdec_stopped(t, NULL);
    specdec_tokens(t, &tokens, &a->count);
    memcpy(a->tokens, tokens, (size_t)a->count * sizeof *tokens);
    for (i = 0; i < a->count; i++)
        a->logprobs[i] = specdec_get_logprob(t, i, &logprob) ? 1 : logprob.logprob + logprob.best[1].logit;
}

static void test_bytes(void)
{
    static const char *const kinds[] = {"f32", "f16", "q8_0"};
    static const int contexts[] = {20, 40, 300, 70};
    static answer alone, many[8];
    static float rows[10 * 400];
    uint64_t random = 5;
    int i, k, j;

    TEST("bytes, stop strings, log-probabilities and restored answers are those of a text alone, in the tightest engines, too");
    for (i = 0; i < (quick ? 8 : 70); i++) {
        const int model = i % 4 ? PLAIN : WINDOWED;
        specdec_config c = config_of(model, i % 3 ? -1 : model == PLAIN ? NOISY : WINDOWED), one;
        int32_t tokens[8][10];
        specdec_settings settings[8];
        specdec *t[8];
        machine m;

        c.context = contexts[i % 4];
        c.kv = kinds[i % 3];
        c.batch = i % 5 ? 1 : 0;
        c.tree_size = i % 2 ? 2 : 0;
        c.logprobs = 2;
        one = c;
        one.drafting = SPECDEC_DRAFT_OFF;
        c.sequences = i % 7 ? 8 : 200;
        c.policy = i % 2 ? SPECDEC_POLICY_DYNAMIC : SPECDEC_POLICY_STATIC;
        if (!open_machine(&oracle, &one) || !open_machine(&m, &c))
            return;
        for (k = 0; k < 8; k++) {
            t[k] = m.first;
            if (k)
                CHECK_EQUAL_INT(specdec_open(m.first, &t[k]), SPECDEC_OK);
            specdec_get_settings(t[k], &settings[k]);
            settings[k].sampling.temperature = (float)(k % 3);
            settings[k].sampling.seed = (uint64_t)i;
            settings[k].stop[0] = k % 2 ? NULL : "e";
            settings[k].stop[1] = k % 2 ? NULL : "\xC3";
            settings[k].show_special = k % 3 == 1;
            CHECK_EQUAL_INT(specdec_set(t[k], &settings[k]), SPECDEC_OK);
            for (j = 0; j < 10; j++)
                tokens[k][j] = 5 + (int)(maker_random(&random) % 250);
            CHECK_EQUAL_INT(k == 3 ? specdec_prompt_logits(t[k], tokens[k], 10, rows)
                                   : specdec_prompt_tokens(t[k], tokens[k], 10), SPECDEC_OK);
            if (i % 2) /* adds nothing, whatever the prompt has left behind */
                CHECK_EQUAL_INT(specdec_prompt_tokens(t[k], tokens[k], 0), SPECDEC_OK);
            many[k].length = 0;
            many[k].done = 0;
        }
        for (j = 1; j;)
            for (j = k = 0; k < 8; k++) {
                const int way = (int)(maker_random(&random) % 8);

                if (many[k].done)
                    continue;
                if (way == 0)
                    CHECK_EQUAL_INT(specdec_work(t[k]) | 1, SPECDEC_DONE | 1);
                if (way == 1)
                    specdec_cancel(t[k]);
                if (way == 2 && specdec_logits(t[k], NULL, NULL, 0, NULL) != SPECDEC_OK)
                    CHECK_EQUAL_INT(specdec_logits(t[k], NULL, NULL, 0, NULL), SPECDEC_OK);
                answer_more(&many[k], t[k], way < 6);
                j |= !many[k].done;
            }
        for (k = 0; k < 8; k++) {
            char whole[ANSWER_BYTES];
            size_t length;

            answer_end(&many[k], t[k]);
            CHECK_EQUAL_INT(specdec_rewind(oracle.first, 0), SPECDEC_OK);
            CHECK_EQUAL_INT(specdec_set(oracle.first, &settings[k]), SPECDEC_OK);
            CHECK_EQUAL_INT(specdec_prompt_tokens(oracle.first, tokens[k], 10), SPECDEC_OK);
            alone.length = 0;
            while (answer_more(&alone, oracle.first, 1))
                continue;
            answer_end(&alone, oracle.first);
            CHECK_EQUAL_INT(alone.stop, many[k].stop);
            CHECK_EQUAL_INT(alone.count, many[k].count);
            CHECK(alone.length == many[k].length && memcmp(alone.bytes, many[k].bytes, alone.length) == 0);
            CHECK(memcmp(alone.logprobs, many[k].logprobs, (size_t)alone.count * sizeof *alone.logprobs) == 0);
            CHECK_EQUAL_INT(specdec_join_forks(t[k], whole, sizeof whole, &length), SPECDEC_OK);
            CHECK(alone.length == length && memcmp(alone.bytes, whole, length) == 0);
            specdec_close(t[k]);
        }
        CHECK_EQUAL_INT(used_pages(m.first), 0);
        close_machine(&m);
        close_machine(&oracle);
    }
}

/* --- random acts on texts that fork ------------------------------------------------------------------------------------ */

static int rubbish;  /* what a rule returns that knows nothing */
static specdec *hasty; /* the text that the progress hook cancels */

/* Forks at every seventh token; in between, it may return rubbish. */
static int careless(void *user_data, const int32_t *tokens, int count, int32_t *child)
{
    static const int answers[] = {-1, 99, -99, INT_MAX, INT_MIN, 1, 2, SPECDEC_FORK_TOKENS + 1};
    const int last = tokens[count - 1];

    if (last % 7 == 0)
        return sevens(user_data, tokens, count, child);
    child[0] = last % 2 ? -1 : INT_MAX;
    child[1] = -7;
    return rubbish ? answers[last % 8] : 0;
}

static int cancels(void *user_data, const char *what, int done, int all)
{
    (void)user_data, (void)what, (void)all;
    if (hasty && done % 3 == 0)
        specdec_cancel(hasty);
    return done % 11 == 0;
}

/* What has been written behind the last prompt is what it is alone. */
static void check_answer(specdec *t)
{
    if (t->engine->rule == SPECDEC_RULE_COUPLED || !(t->settings.sampling.temperature > 0))
        check_written(&oracle, t->tokens, t->answer_from, t->count, &t->settings);
}

/* A table of texts is sound: children have open parents, and hold what these began with. */
static void check_table(const specdec__engine *e)
{
    int i;

    for (i = 0; i < e->room.max_views; i++) {
        const specdec *t = &e->sequences[i];

        if (!t->open) {
            CHECK_EQUAL_INT(t->view.length, 0);
            continue;
        }
        CHECK(t->handed_out <= t->count && t->count <= t->context && t->view.length <= t->count);
        CHECK(!t->parent || (t->parent->open && t->parent != t && t->depth <= e->config.fork_depth));
    }
}

static void wild_act(world *w)
{
    specdec__engine *e = w->own.first->engine;
    specdec *t = &e->sequences[dice(w, w->config.sequences)], *other;
    specdec_settings settings;
    int32_t tokens[40];
    char whole[ANSWER_BYTES];
    static unsigned char seen[100000];
    static float rows[40 * 400];
    size_t length;
    int i, n = 1 + dice(w, 30), what = dice(w, 24);

    while (!t->open && dice(w, 4))
        t = &e->sequences[dice(w, w->config.sequences)];
    for (i = 0; i < n; i++)
        tokens[i] = 5 + dice(w, 250);
    if (!t->open) {
        if (what < 4)
            specdec_open(w->own.first, &other);
        else
            CHECK_EQUAL_INT(specdec_prompt_tokens(t, tokens, n), SPECDEC_ERROR_ARGUMENT);
    } else if (what < 2) {
        check_answer(t);
        specdec_prompt_tokens(t, tokens, n);
    } else if (what < 3) {
        check_answer(t);
        specdec_prompt_logits(t, tokens, n, rows);
    } else if (what < 4) {
        check_answer(t);
        specdec_rewind(t, dice(w, t->handed_out + 1));
    } else if (what < 5) {
        if (t->released_bytes || t->answer_from < t->handed_out)
            return;
        specdec_get_settings(t, &settings);
        settings.sampling.seed++;
        settings.sampling.temperature = (float)dice(w, 2);
        settings.max_tokens = 10 + dice(w, 40);
        CHECK_EQUAL_INT(specdec_set(t, &settings), SPECDEC_OK);
    } else if (what < 7) {
        if (specdec_fork(t, &other) == SPECDEC_OK)
            check_answer(other);
    } else if (what < 8) {
        check_answer(t);
        specdec_close(t);
    } else if (what < 9) {
        specdec_cancel(t);
    } else if (what < 10) {
        specdec_logits(t, NULL, NULL, 0, NULL);
    } else if (what < 11) {
        CHECK_EQUAL_INT(specdec_join_forks(t, whole, sizeof whole, &length), SPECDEC_OK);
    } else if (what < 12 && w->config.drafting == SPECDEC_DRAFT_NGRAM) {
        CHECK_EQUAL_INT(specdec_save_history(t, seen, sizeof seen, &length), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_load_history(t, seen, length), SPECDEC_OK);
    } else if (what < 13) {
        hasty = dice(w, 3) ? NULL : t;
    } else if (what < 18) {
        specdec_work(t);
    } else {
        while (n-- > 0) {
            const int32_t *more;
            int count;
            specdec_text piece;
            const specdec_result result = what == 18  ? specdec_step(t, &more, &count)
                                          : what < 21 ? specdec_next(t, &piece)
                                                      : specdec_take(t, &piece);

            if (result)
                break;
        }
    }
    check_table(e);
}

static void test_wild(void)
{
    static const char *const kinds[] = {"f16", "f32", "q8_0"};
    static const specdec_drafting draftings[] = {SPECDEC_DRAFT_AUTO, SPECDEC_DRAFT_MODEL, SPECDEC_DRAFT_NGRAM, SPECDEC_DRAFT_OFF,
                                                 SPECDEC_DRAFT_HEADS, SPECDEC_DRAFT_TRIFORCE, SPECDEC_DRAFT_MTP};
    int i, k;

    TEST("texts that fork are what they are alone, whatever their callers do with them and their children");
    for (i = 0; i < schedules; i += 4) {
        const int model = i % 16 ? PLAIN : WINDOWED;
        specdec_config c = config_of(model, model == PLAIN ? NOISY : WINDOWED), alone;
        world w;

        memset(&w, 0, sizeof w);
        w.random = (uint64_t)i * 7919 + 1;
        rubbish = i % 8 > 0;
        hasty = NULL;
        c.sequences = 2 + dice(&w, 20);
        c.context = dice(&w, 4) ? 100 + dice(&w, 200) : 20 + dice(&w, 60);
        c.drafting = draftings[dice(&w, 7)];
        retrieve(&c, model != PLAIN, i);
        predict(&c, model != PLAIN);
        c.policy = dice(&w, 2) ? SPECDEC_POLICY_DYNAMIC : SPECDEC_POLICY_STATIC;
        c.kv = kinds[dice(&w, 3)];
        c.batch = dice(&w, 2) ? 1 + dice(&w, 4) : 64;
        c.prefill_chunk = dice(&w, 4);
        c.tree_size = dice(&w, 2) ? 0 : 2 + dice(&w, 62);
        c.cache = dice(&w, 2) ? 0 : 1 + dice(&w, 600);
        c.history = dice(&w, 2) ? 1 + dice(&w, 300) : c.drafting == SPECDEC_DRAFT_NGRAM;
        c.logprobs = dice(&w, 2) * 3;
        c.forks = 1 + dice(&w, 9);
        c.fork_depth = 1 + dice(&w, 8);
        c.settings.max_tokens = 60;
        alone = c;
        alone.sequences = alone.cache = alone.logprobs = alone.history = 0;
        alone.drafting = SPECDEC_DRAFT_OFF;
        c.hooks.fork = careless;
        c.hooks.progress = dice(&w, 4) ? NULL : cancels;
        w.config = c;
        if (dice(&w, 6) == 0)
            w.config.rule = c.rule = (specdec_rule)(dice(&w, 4) + 1);
        c.hooks.progress = NULL;
        if (!open_machine(&oracle, &alone) || !open_machine(&w.own, &c))
            return;
        w.own.first->engine->config.hooks.progress = w.config.hooks.progress;
        for (k = 0; k < 150; k++)
            wild_act(&w);
        hasty = NULL;
        for (k = 0; k < c.sequences; k++) {
            specdec *t = &w.own.first->engine->sequences[k];

            if (t->open)
                check_answer(t);
            specdec_close(t);
        }
        CHECK_EQUAL_INT(used_pages(w.own.first), 0);
        close_machine(&w.own);
        close_machine(&oracle);
        if (check_failures) {
            fprintf(stderr, "schedule %d\n", i);
            return;
        }
    }
}

/* --- pages, bombs, waiting -------------------------------------------------------------------------------------------- */

static void write_all(specdec *t)
{
    specdec_text piece;

    while (specdec_next(t, &piece) == SPECDEC_OK)
        continue;
}

/* Pages of a target whose layers all see everything. */
static int target_pages(const specdec *t)
{
    const specdec__pages *pages = &t->engine->target.kv.span[0];

    return pages->count - pages->free_count - pages->only_kept;
}

static void test_shared_prompt(void)
{
    enum { PROMPT = 1000, FORKS = 64, OWN = 40 };
    static int32_t tokens[PROMPT + 1];
    static specdec *texts[FORKS];
    specdec_config c = config_of(PLAIN, -1), alone;
    specdec_settings settings;
    machine m;
    int i;

    TEST("64 forks of a prompt of 1,000 tokens hold it once, and each a copy of its last page beside what it writes");
    c.context = 1100;
    alone = c;
    c.sequences = FORKS + 1;
    c.cache = PROMPT + FORKS * 128;
    c.settings.max_tokens = OWN;
    if (!open_machine(&oracle, &alone) || !open_machine(&m, &c))
        return;
    for (i = 0; i < PROMPT; i++)
        tokens[i] = 5 + (i * i + i / 7) % 250;
    CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, tokens, PROMPT), SPECDEC_OK);
    while (m.first->view.length < PROMPT - 1)
        CHECK_EQUAL_INT(specdec_work(m.first), SPECDEC_OK);
    for (i = 0; i < FORKS; i++) {
        CHECK_EQUAL_INT(specdec_fork(m.first, &texts[i]), SPECDEC_OK);
        specdec_get_settings(texts[i], &settings);
        settings.sampling.temperature = 1;
        settings.sampling.seed = (uint64_t)i;
        CHECK_EQUAL_INT(specdec_set(texts[i], &settings), SPECDEC_OK);
    }
    for (i = 0; i < FORKS; i++)
        write_all(texts[i]);
    printf("  %d tokens in the cache for %d texts of %d\n", 64 * target_pages(m.first), FORKS, PROMPT + OWN);
    CHECK(target_pages(m.first) <= (PROMPT + 63) / 64 + FORKS * (1 + (OWN + 63) / 64));
    for (i = 0; i < FORKS; i++) {
        specdec_get_settings(texts[i], &settings);
        check_written(&oracle, texts[i]->tokens, PROMPT, texts[i]->handed_out, &settings);
        specdec_close(texts[i]);
    }
    TEST("a text that begins as another one did reads only what is new, and pages come back at once");
    CHECK(target_pages(m.first) <= (PROMPT + OWN) / 64 + 2);
    CHECK_EQUAL_INT(specdec_open(m.first, &texts[0]), SPECDEC_OK);
    tokens[PROMPT] = 9;
    CHECK_EQUAL_INT(specdec_prompt_tokens(texts[0], tokens, PROMPT + 1), SPECDEC_OK);
    CHECK(texts[0]->view.length >= PROMPT - 1);
    specdec_close(m.first);
    write_all(texts[0]);
    specdec_get_settings(texts[0], &settings);
    check_written(&oracle, texts[0]->tokens, PROMPT + 1, texts[0]->handed_out, &settings);
    specdec_close(texts[0]);
    CHECK_EQUAL_INT(target_pages(m.first), 0);
    CHECK_EQUAL_INT(specdec_prompt_tokens(texts[0], tokens, 3), SPECDEC_ERROR_ARGUMENT); /* it is closed */
    CHECK_EQUAL_INT(specdec_open(m.first, &texts[0]), SPECDEC_OK);
    close_machine(&m);
    close_machine(&oracle);
}

static int always(void *user_data, const int32_t *tokens, int count, int32_t *child)
{
    (void)user_data, (void)tokens;
    child[0] = 5 + count % 250;
    return 1;
}

static void test_bombs(void)
{
    specdec_config c = config_of(PLAIN, NOISY), alone = c;
    static const int32_t tokens[] = {5, 9, 70, 9};
    int32_t most[CONTEXT_TOKENS];
    specdec *victim, *bomb, *child;
    specdec_text piece;
    specdec_result result;
    machine m;
    int i, refused = 0;

    TEST("a text that forks at every token gets an error when the places are gone; the others go on");
    c.sequences = 12;
    c.forks = 1000;
    c.fork_depth = 8;
    c.hooks.fork = always;
    c.settings.max_tokens = 60;
    if (!open_machine(&oracle, &alone) || !open_machine(&m, &c))
        return;
    bomb = m.first;
    CHECK_EQUAL_INT(specdec_open(m.first, &victim), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_prompt_tokens(bomb, tokens, 4), SPECDEC_OK);
    for (i = 0; i < 200; i++) {
        specdec_work(bomb);
        result = specdec_take(bomb, &piece);
        refused += result == SPECDEC_ERROR_MEMORY;
    }
    CHECK(refused > 0 && strstr(specdec_error_text(bomb), "config.sequences") != NULL);
    child = specdec_child(bomb, 0);
    CHECK(child && child->fork_at == 5);
    TEST("closing what forks gives all its places back, and it can be told to go on otherwise");
    specdec_close(bomb);
    for (i = 0; i < 12; i++)
        CHECK_EQUAL_INT(m.first->engine->sequences[i].open, &m.first->engine->sequences[i] == victim);
    m.first->engine->config.hooks.fork = NULL;
    CHECK_EQUAL_INT(specdec_prompt_tokens(victim, tokens, 4), SPECDEC_OK);
    write_all(victim);
    check_written(&oracle, victim->tokens, 4, victim->handed_out, &c.settings);
    specdec_close(victim);
    CHECK_EQUAL_INT(used_pages(m.first), 0);
    TEST("at the context's end no text forks");
    m.first->engine->config.hooks.fork = always;
    CHECK_EQUAL_INT(specdec_open(m.first, &victim), SPECDEC_OK);
    for (i = 0; i < CONTEXT_TOKENS; i++)
        most[i] = 5 + i % 200;
    CHECK_EQUAL_INT(specdec_prompt_tokens(victim, most, CONTEXT_TOKENS - 2), SPECDEC_OK);
    write_all(victim);
    CHECK(!specdec_child(victim, 0));
    close_machine(&m);
    close_machine(&oracle);
}

/* Two texts of three pages, of which at last one lacks a page for its next token. */
static void lack_page(int drafting, int first, int second)
{
    static const specdec_bias endless = {2, -1e9f};
    specdec_config c = config_of(PLAIN, NOISY);
    int32_t tokens[SPECDEC__KEYS], parents[12], ranks[12];
    specdec_tree tree = {NULL, NULL, 12, 0};
    specdec_text piece;
    specdec *texts[2];
    specdec__pages *pages;
    machine m;
    int i, lacks = -1;

    c.sequences = 2;
    c.drafting = drafting ? SPECDEC_DRAFT_MODEL : SPECDEC_DRAFT_OFF;
    c.policy = SPECDEC_POLICY_STATIC;
    c.prefill_chunk = SPECDEC__KEYS;
    c.tree_size = 12;
    c.async = -1;
    c.settings.sampling.biases = &endless;
    c.settings.sampling.bias_count = 1;
    for (i = 0; i < SPECDEC__KEYS; i++)
        tokens[i] = 5 + i % 7;
    if (!open_machine(&m, &c))
        return;
    pages = &m.first->engine->target.kv.span[0];
    pages->free_count = 3;
    tree.parents = parents;
    tree.ranks = ranks;
    CHECK(!specdec_tree_chains(&tree, 11, 1, NULL));
    if (drafting)
        CHECK_EQUAL_INT(specdec_set_tree(m.first, &tree), SPECDEC_OK);
    texts[0] = m.first;
    CHECK_EQUAL_INT(specdec_open(m.first, &texts[1]), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_prompt_tokens(texts[0], tokens, first), SPECDEC_OK);
    tokens[0] = 90; /* shares nothing */
    CHECK_EQUAL_INT(specdec_prompt_tokens(texts[1], tokens, second), SPECDEC_OK);
    while (lacks < 0) {
        CHECK_EQUAL_INT(specdec_work(m.first), SPECDEC_OK);
        for (i = 0; i < 2; i++) {
            specdec_result result;

            while ((result = specdec_take(texts[i], &piece)) == SPECDEC_OK)
                continue;
            if (result != SPECDEC_PENDING)
                lacks = i;
        }
    }
    CHECK_EQUAL_INT(pages->free_count, 0);
    CHECK_EQUAL_INT(texts[lacks]->count % SPECDEC__KEYS, 1);
    close_machine(&m);
}

static void test_last_page(void)
{
    int drafting, first;

    TEST("no text lacks a page for its next token because another one guesses");
    for (drafting = 0; drafting < 2; drafting++)
        for (first = SPECDEC__KEYS - 20; first < SPECDEC__KEYS; first++) {
            lack_page(drafting, first, SPECDEC__KEYS - 9);
            lack_page(drafting, SPECDEC__KEYS - 9, first);
        }
}

/* Whether some bytes are somewhere among others. */
static int holds_bytes(const char *bytes, size_t length, const char *wanted, size_t count)
{
    size_t at;

    for (at = 0; at + count <= length; at++)
        if (memcmp(bytes + at, wanted, count) == 0)
            return 1;
    return 0;
}

static int children_of(specdec *t)
{
    int i = 0;

    while (specdec_child(t, i))
        i++;
    return i;
}

/* Takes up to count pieces of an answer, those that come with its end included, to bytes[length]. Returns the new length. */
static size_t take_pieces(specdec *t, int count, char *bytes, size_t length)
{
    specdec_result result = SPECDEC_OK;
    specdec_text piece;

    for (; count-- && result == SPECDEC_OK; length += piece.length) {
        result = specdec_next(t, &piece);
        memcpy(bytes + length, piece.bytes, piece.length);
    }
    return length;
}

/* Texts that are sampled, have up to 60 tokens, and fork by the rule; no drafts. */
static specdec_config config_of_sevens(void)
{
    specdec_config c = config_of(PLAIN, -1);

    c.sequences = 60;
    c.drafting = SPECDEC_DRAFT_OFF;
    c.fork_depth = 1;
    c.hooks.fork = sevens;
    c.settings.max_tokens = 60;
    c.settings.sampling.temperature = 1;
    return c;
}

/* Two pieces of an answer, then the rest with another limit and stop string, with so many steps made early. Returns how many
   children it has; bytes[*length] becomes the restored answer. */
static int written_ahead(const specdec_config *c, int early, int limit, const char *stop, char *bytes, size_t room, size_t *length)
{
    static const int32_t tokens[] = {5, 9, 70, 9};
    specdec_settings settings;
    machine m;
    int i, children;

    if (!open_machine(&m, c))
        return -1;
    CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, tokens, 4), SPECDEC_OK);
    for (i = 0; i < early; i++)
        specdec_work(m.first);
    take_pieces(m.first, 2, bytes, 0);
    for (i = 0; i < early; i++)
        specdec_work(m.first);
    specdec_get_settings(m.first, &settings);
    settings.max_tokens = limit;
    settings.stop[0] = stop;
    CHECK_EQUAL_INT(specdec_set(m.first, &settings), SPECDEC_OK);
    for (i = 0; i < early; i++)
        specdec_work(m.first);
    write_all(m.first);
    while (specdec_work(m.first) == SPECDEC_OK)
        continue;
    children = children_of(m.first);
    CHECK_EQUAL_INT(specdec_join_forks(m.first, bytes, room, length), SPECDEC_OK);
    close_machine(&m);
    return children;
}

/* What steps made ahead have borne is what is borne without them. */
static void test_forks_ahead(void)
{
    specdec_config c = config_of_sevens();
    char plain[20000], whole[20000], again[20000], stop[3] = {0};
    size_t length, length_whole, length_again;
    const int seeds = quick ? 4 : 16;
    int seed, at, children, all = 0, stops = 0;

    TEST("settings that change, and stop strings that come, ask not how far steps have gone ahead: children and answers are the same");
    for (seed = 0; seed < seeds; seed++) {
        c.settings.sampling.seed = (uint64_t)seed;
        children = written_ahead(&c, 0, 30, NULL, whole, sizeof whole, &length);
        CHECK_EQUAL_INT(written_ahead(&c, 6, 30, NULL, again, sizeof again, &length_again), children);
        CHECK(length == length_again && memcmp(whole, again, length) == 0);
        all += children;
        c.hooks.fork = NULL; /* what the text itself writes */
        written_ahead(&c, 0, 60, NULL, plain, sizeof plain, &length);
        c.hooks.fork = sevens;
        for (at = 4; (size_t)at + 2 < length; at += 3, stops++) {
            memcpy(stop, plain + at, 2);
            children = written_ahead(&c, 0, 60, stop, whole, sizeof whole, &length_whole);
            CHECK_EQUAL_INT(written_ahead(&c, 6, 60, stop, again, sizeof again, &length_again), children);
            CHECK(length_whole == length_again && memcmp(whole, again, length_again) == 0);
        }
    }
    CHECK(all > seeds && stops > seeds);
}

/* Forks, and what a caller may do to the texts around them. */
static void test_families(void)
{
    static const int32_t tokens[] = {5, 9, 70, 9};
    static const specdec_bias forced[] = {{FORK, INFINITY}};
    specdec_config c = config_of_sevens();
    char whole[20000], again[20000];
    size_t length, length_again;
    specdec *copy, *child;
    specdec_info info;
    machine m;
    int i, seed, copies = 0;

    TEST("a copy of a text whose stock has a fork in it goes on alike: it gets that child, too");
    for (seed = 0; seed < 16; seed++) {
        c.settings.sampling.seed = (uint64_t)seed;
        if (!open_machine(&m, &c))
            return;
        CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, tokens, 4), SPECDEC_OK);
        for (i = 0; i < 6; i++)
            specdec_work(m.first);
        copies += children_of(m.first) > 0;
        CHECK_EQUAL_INT(specdec_fork(m.first, &copy), SPECDEC_OK);
        write_all(m.first);
        write_all(copy);
        while (specdec_work(m.first) == SPECDEC_OK)
            continue;
        CHECK_EQUAL_INT(children_of(copy), children_of(m.first));
        CHECK_EQUAL_INT(specdec_join_forks(m.first, whole, sizeof whole, &length), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_join_forks(copy, again, sizeof again, &length_again), SPECDEC_OK);
        CHECK(length == length_again && memcmp(whole, again, length) == 0);
        close_machine(&m);
    }
    CHECK(copies > 3);
    TEST("an answer that goes on behind a rewind is restored with the children that it gets then");
    c.settings.sampling.seed = 3;
    if (!open_machine(&m, &c))
        return;
    CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, tokens, 4), SPECDEC_OK);
    write_all(m.first);
    CHECK(children_of(m.first) >= 3);
    CHECK_EQUAL_INT(specdec_rewind(m.first, specdec_child(m.first, 1)->fork_at + 1), SPECDEC_OK);
    write_all(m.first);
    while (specdec_work(m.first) == SPECDEC_OK)
        continue;
    CHECK_EQUAL_INT(specdec_join_forks(m.first, whole, sizeof whole, &length), SPECDEC_OK);
    for (i = 0; (child = specdec_child(m.first, i)) != NULL; i++) {
        CHECK(child->fork_at > m.first->answer_from);
        CHECK_EQUAL_INT(specdec_join_forks(child, again, sizeof again, &length_again), SPECDEC_OK);
        CHECK(length_again == 0 || holds_bytes(whole, length, again, length_again));
    }
    CHECK(i > 0);
    close_machine(&m);
    TEST("what a child has handed out stays where it is while its parent's answer is restored");
    if (!open_machine(&m, &c))
        return;
    CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, tokens, 4), SPECDEC_OK);
    write_all(m.first);
    while (specdec_work(m.first) == SPECDEC_OK)
        continue;
    for (i = 0; (child = specdec_child(m.first, i)) != NULL; i++) {
        specdec_text piece;

        if (specdec_take(child, &piece) != SPECDEC_OK || piece.length > sizeof again)
            continue;
        memcpy(again, piece.bytes, piece.length);
        CHECK_EQUAL_INT(specdec_join_forks(m.first, whole, sizeof whole, &length), SPECDEC_OK);
        CHECK(memcmp(piece.bytes, again, piece.length) == 0);
    }
    CHECK(i > 0);
    close_machine(&m);
    TEST("a limit that is lowered ends an answer within its stock, and the restored one as well");
    c.hooks.fork = NULL;
    if (!open_machine(&m, &c))
        return;
    for (seed = 0; seed < 3; seed++) { /* the limit above, at, and below what was taken */
        specdec_settings settings;
        specdec_text piece;

        CHECK_EQUAL_INT(specdec_rewind(m.first, 0), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, tokens, 4), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_next(m.first, &piece), SPECDEC_OK);
        memcpy(again, piece.bytes, length_again = piece.length);
        for (i = 0; i < 6; i++)
            specdec_work(m.first);
        specdec_get_settings(m.first, &settings);
        settings.max_tokens = 2 - seed ? 2 - seed : 1;
        CHECK_EQUAL_INT(specdec_set(m.first, &settings), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_join_forks(m.first, whole, sizeof whole, &length), SPECDEC_OK);
        while (specdec_next(m.first, &piece) == SPECDEC_OK) {
            memcpy(again + length_again, piece.bytes, piece.length);
            length_again += piece.length;
        }
        CHECK(length == length_again && memcmp(whole, again, length) == 0);
        settings.max_tokens = 0;
        CHECK_EQUAL_INT(specdec_set(m.first, &settings), SPECDEC_OK);
    }
    TEST("stop strings that come later change nothing of what was handed out, nor of what is restored of that");
    for (seed = 0; seed < 4; seed++) { /* a string that has come is set, early and late; one ends the answer and is taken away */
        char string[4] = {0};
        specdec_settings settings;

        specdec_get_settings(m.first, &settings);
        settings.max_tokens = 24;
        if (seed > 1)
            memcpy(string, again + (seed == 2 ? 10 : 3), 3);
        settings.stop[0] = seed > 1 ? string : NULL;
        CHECK_EQUAL_INT(specdec_set(m.first, &settings), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_rewind(m.first, 0), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, tokens, 4), SPECDEC_OK);
        length_again = take_pieces(m.first, seed ? 100 : 5, again, 0);
        CHECK(length_again > 0);
        CHECK_EQUAL_INT(specdec_stopped(m.first, NULL), !seed ? SPECDEC_STOP_NONE : seed == 1 ? SPECDEC_STOP_LIMIT
                                                                                              : SPECDEC_STOP_STRING);
        memcpy(string, again, 3);
        settings.stop[0] = seed > 1 ? NULL : string;
        CHECK_EQUAL_INT(specdec_set(m.first, &settings), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_join_forks(m.first, whole, sizeof whole, &length), SPECDEC_OK);
        CHECK(length >= length_again && memcmp(whole, again, length_again) == 0);
        length_again = take_pieces(m.first, 100, again, length_again);
        CHECK(length <= length_again && memcmp(whole, again, length) == 0);
        CHECK_EQUAL_INT(specdec_join_forks(m.first, whole, sizeof whole, &length), SPECDEC_OK);
        CHECK(length == length_again && memcmp(whole, again, length) == 0);
        settings.stop[0] = NULL;
        CHECK_EQUAL_INT(specdec_set(m.first, &settings), SPECDEC_OK);
    }
    TEST("the beginning of a character that ends an answer, and is a stop string, ends the restored one at the same place");
    for (seed = 0; seed < 4; seed++) { /* behind two tokens, or alone: C3 or E2 */
        specdec_bias bias = {0, 1000};
        specdec_settings settings;

        specdec_get_settings(m.first, &settings);
        bias.token = seed % 2 ? 3 + 0xE2 : 3 + 0xC3;
        settings.max_tokens = seed < 2 ? 2 : 1;
        settings.stop[0] = seed % 2 ? "\xE2" : "\xC3";
        CHECK_EQUAL_INT(specdec_set(m.first, &settings), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_rewind(m.first, 0), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, tokens, 4), SPECDEC_OK);
        length_again = seed < 2 ? take_pieces(m.first, 100, again, 0) : 0;
        settings.max_tokens = seed < 2 ? 3 : 1;
        settings.sampling.biases = &bias;
        settings.sampling.bias_count = 1;
        CHECK_EQUAL_INT(specdec_set(m.first, &settings), SPECDEC_OK);
        length_again = take_pieces(m.first, 100, again, length_again);
        CHECK_EQUAL_INT(specdec_stopped(m.first, NULL), SPECDEC_STOP_STRING);
        CHECK_EQUAL_INT(specdec_join_forks(m.first, whole, sizeof whole, &length), SPECDEC_OK);
        CHECK(length == length_again && memcmp(whole, again, length) == 0);
        settings.sampling.bias_count = 0;
        settings.stop[0] = NULL;
        CHECK_EQUAL_INT(specdec_set(m.first, &settings), SPECDEC_OK);
    }
    close_machine(&m);
    c.hooks.fork = sevens;
    TEST("a child that found no place for its own child, and that nobody reads, goes on when there is one");
    c.sequences = 3;
    c.forks = 1;
    c.fork_depth = 2;
    for (seed = copies = 0; seed < 16; seed++) {
        c.settings.sampling.seed = (uint64_t)seed;
        if (!open_machine(&m, &c))
            return;
        CHECK_EQUAL_INT(specdec_open(m.first, &copy), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, tokens, 4), SPECDEC_OK);
        write_all(m.first);
        while (specdec_work(m.first) == SPECDEC_OK)
            continue;
        child = specdec_child(m.first, 0);
        if (child && child->failed == SPECDEC_ERROR_MEMORY) {
            copies++;
            specdec_close(copy);
            while (specdec_work(m.first) == SPECDEC_OK)
                continue;
            CHECK(specdec_child(child, 0) == copy && specdec__stream_end_reason(child, child->count));
            CHECK(specdec__stream_end_reason(copy, copy->count));
        }
        close_machine(&m);
    }
    CHECK(copies > 3);
    TEST("no bias makes a text write the child token, or fork where it may not");
    c.hooks.fork = NULL;
    c.fork_token = "40";
    c.child_token = "41";
    c.forks = 2;
    c.fork_depth = 1;
    c.settings.sampling.biases = forced;
    c.settings.sampling.bias_count = 1;
    for (i = 0; i < 2; i++) {
        c.settings.sampling.temperature = (float)i;
        if (!open_machine(&m, &c))
            return;
        CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, tokens, 4), SPECDEC_OK);
        write_all(m.first);
        CHECK_EQUAL_INT(children_of(m.first), 2);
        specdec_get_info(m.first, &info);
        CHECK_EQUAL_INT(info.open_sequences, 3);
        close_machine(&m);
    }
}

/* An answer whose beginning has slid out of the context, closed. */
static void test_closed(void)
{
    static const int32_t tokens[] = {5, 9, 70, 9};
    static const specdec_bias endless = {2, -INFINITY};
    specdec_config c = config_of(PLAIN, -1);
    machine m;

    TEST("the answer of a text that is closed has not ended: there is none");
    c.settings.slide = 4;
    c.settings.sampling.biases = &endless;
    c.settings.sampling.bias_count = 1;
    c.settings.max_tokens = 3 * CONTEXT_TOKENS;
    if (!open_machine(&m, &c))
        return;
    CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, tokens, 4), SPECDEC_OK);
    write_all(m.first);
    CHECK(m.first->slid > m.first->answer_from && specdec_stopped(m.first, NULL) != SPECDEC_STOP_NONE);
    c.settings.max_tokens = 1; /* which what has slid out is above, alone */
    CHECK_EQUAL_INT(specdec_set(m.first, &c.settings), SPECDEC_OK);
    specdec_close(m.first);
    CHECK_EQUAL_INT(specdec_stopped(m.first, NULL), SPECDEC_STOP_NONE);
    close_machine(&m);
}

/* Log-probabilities are the model's own, before what the engine forbids. */
static void test_forbidden(void)
{
    static const int32_t tokens[] = {5, 9, 70, 9};
    specdec_config c = config_of(PLAIN, NOISY);
    specdec_logprob logprob[2];
    machine one, other;
    int i, k, differ = 0;

    TEST("log-probabilities do not know of tokens that may not be chosen, because texts fork by them");
    c.settings.sampling.temperature = 1;
    c.settings.sampling.seed = 3;
    c.settings.sampling.biases = no_forks;
    c.settings.sampling.bias_count = 2;
    c.settings.max_tokens = 100;
    c.logprobs = 64;
    c.sequences = 2;
    if (!open_machine(&one, &c))
        return;
    c.fork_token = "40";
    c.child_token = "41";
    if (!open_machine(&other, &c))
        return;
    CHECK_EQUAL_INT(specdec_prompt_tokens(one.first, tokens, 4), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_prompt_tokens(other.first, tokens, 4), SPECDEC_OK);
    write_all(one.first);
    write_all(other.first);
    CHECK(one.first->handed_out > 6 && one.first->handed_out == other.first->handed_out);
    for (i = 4; i < one.first->handed_out && i < other.first->handed_out; i++) {
        CHECK_EQUAL_INT(specdec_get_logprob(one.first, i, &logprob[0]), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_get_logprob(other.first, i, &logprob[1]), SPECDEC_OK);
        differ += memcmp(&logprob[0].logprob, &logprob[1].logprob, sizeof(float)) != 0;
        for (k = 0; k < logprob[0].count; k++)
            differ += logprob[0].best[k].token != logprob[1].best[k].token;
    }
    CHECK_EQUAL_INT(differ, 0);
    close_machine(&one);
    close_machine(&other);
}

/* A text that asks for logits keeps no page that it does not fill; one that fails for want of pages keeps none. */
static void test_logits_pages(void)
{
    specdec_config c = config_of(PLAIN, -1);
    static int32_t tokens[400], parents[64];
    specdec *other;
    machine m;
    int i, before;

    TEST("specdec_logits gives the pages of its nodes back, also where they do not suffice");
    c.sequences = 2;
    c.cache = 64;
    c.batch = 64;
    c.context = 500;
    c.settings.max_tokens = 1;
    for (i = 0; i < 400; i++)
        tokens[i] = 5 + i * i % 200;
    for (i = 0; i < 64; i++)
        parents[i] = i - 1;
    if (!open_machine(&m, &c))
        return;
    CHECK_EQUAL_INT(used_pages(m.first), 0);
    CHECK_EQUAL_INT(specdec_open(m.first, &other), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, tokens, 60), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_logits(m.first, NULL, NULL, 0, NULL), SPECDEC_OK);
    before = used_pages(m.first);
    CHECK_EQUAL_INT(specdec_logits(m.first, tokens, parents, 64, NULL), SPECDEC_OK);
    CHECK_EQUAL_INT(used_pages(m.first), before);
    tokens[0] = 9;
    CHECK_EQUAL_INT(specdec_prompt_tokens(other, tokens, 64 * (m.first->engine->target.kv.span[0].count - 1)), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_work(other), SPECDEC_OK);
    while (other->view.length < other->count - 1 && specdec_work(other) == SPECDEC_OK)
        continue;
    before = used_pages(m.first);
    CHECK_EQUAL_INT(specdec_logits(m.first, tokens, parents, 64, NULL), SPECDEC_ERROR_FULL);
    CHECK_EQUAL_INT(used_pages(m.first), before);
    close_machine(&m);
}

/* What may go wrong with texts: calls with nothing, too many of them, too small a cache. */
static void test_refusals(void)
{
    specdec_config c = config_of(PLAIN, -1);
    specdec_settings settings;
    specdec *texts[3] = {NULL, NULL, NULL}, *other = NULL;
    static int32_t tokens[250];
    specdec_text piece;
    specdec_info info;
    specdec_result result;
    size_t bytes;
    machine m;
    int i, failed = 0, mixed = 0, count[3];

    TEST("what is out of range is refused");
    c.sequences = SPECDEC_MAX_SEQUENCES + 1;
    CHECK_EQUAL_INT(specdec_memory_needed(&c, &bytes, &failure), SPECDEC_ERROR_ARGUMENT);
    c.sequences = 3;
    c.fork_depth = 9;
    CHECK_EQUAL_INT(specdec_memory_needed(&c, &bytes, &failure), SPECDEC_ERROR_ARGUMENT);
    c.fork_depth = 0;
    c.cache = INT_MAX;
    CHECK_EQUAL_INT(specdec_memory_needed(&c, &bytes, &failure), SPECDEC_ERROR_ARGUMENT);
    c.cache = 0;
    c.fork_token = "no such token";
    CHECK_EQUAL_INT(specdec_memory_needed(&c, &bytes, &failure), SPECDEC_ERROR_ARGUMENT);
    CHECK(strstr(failure.text, "no such token") != NULL);
    c.fork_token = NULL;
    c.cache = 400;
    if (!open_machine(&m, &c))
        return;
    CHECK_EQUAL_INT(specdec_open(NULL, &other), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_open(m.first, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_fork(NULL, &other), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_work(NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_work(m.first), SPECDEC_DONE);
    CHECK_EQUAL_INT(specdec_take(m.first, &piece), SPECDEC_ERROR_ARGUMENT);
    specdec_close(NULL);
    TEST("when the cache is full, one text is told and nothing is lost: room that another one leaves is used");
    for (i = 0; i < 250; i++)
        tokens[i] = 5 + i * i % 200;
    texts[0] = m.first;
    for (i = 0; i < 3; i++) {
        if (i)
            CHECK_EQUAL_INT(specdec_open(m.first, &texts[i]), SPECDEC_OK);
        tokens[0] = 10 + i; /* nothing to share */
        CHECK_EQUAL_INT(specdec_prompt_tokens(texts[i], tokens, 250), SPECDEC_OK);
    }
    specdec_get_settings(m.first, &settings);
    settings.max_tokens = -1;
    do {
        result = specdec_work(m.first);
        for (i = 0; i < 3; i++) { /* also when all have failed in the last step */
            CHECK_EQUAL_INT(specdec_set(texts[i], &settings), SPECDEC_ERROR_ARGUMENT);
            if (specdec_take(texts[i], &piece) == SPECDEC_ERROR_FULL) {
                failed++;
                mixed += strstr(specdec_error_text(texts[i]), "max_tokens") != NULL; /* the words of another failure */
            }
        }
    } while (result == SPECDEC_OK);
    CHECK(failed > 0);
    CHECK_EQUAL_INT(mixed, 0);
    for (i = 0; i < 3; i++)
        count[i] = texts[i]->count;
    CHECK(count[0] + count[1] + count[2] < 3 * CONTEXT_TOKENS);
    specdec_close(texts[0]);
    specdec_close(texts[1]);
    write_all(texts[2]); /* which may begin with what went wrong before */
    write_all(texts[2]);
    CHECK(texts[2]->count == CONTEXT_TOKENS || specdec_stopped(texts[2], NULL) == SPECDEC_STOP_END);
    specdec_get_info(texts[2], &info);
    CHECK_EQUAL_INT(info.sequences, 3);
    CHECK_EQUAL_INT(info.open_sequences, 1);
    CHECK(info.cache_free < info.cache && info.cache >= 400);
    close_machine(&m);
}

/* An assistant that answers alike every day: what one engine has seen, another one drafts from. */
static void test_seen(void)
{
    static unsigned char seen[100000];
    static const int32_t tokens[] = {5, 9, 70, 9, 33};
    specdec_config c = config_of(PLAIN, -1);
    specdec_stats stats[2];
    specdec *text;
    machine m;
    size_t bytes = 0, i;
    int day, noticed = 0;

    TEST("what texts have written is remembered when they are closed, saved and loaded, and the next ones are guessed from it");
    c.sequences = 2;
    c.history = 1000;
    c.drafting = SPECDEC_DRAFT_NGRAM;
    c.settings.sampling.temperature = 1;
    c.settings.max_tokens = 200;
    for (day = 0; day < 2; day++) {
        if (!open_machine(&m, &c))
            return;
        if (day) {
            CHECK_EQUAL_INT(specdec_load_history(m.first, seen, bytes - 1), SPECDEC_ERROR_FORMAT);
            for (i = 0; i < bytes; i += 37) {
                seen[i] ^= 4;
                noticed += specdec_load_history(m.first, seen, bytes) != SPECDEC_OK;
                seen[i] ^= 4;
            }
            CHECK_EQUAL_INT(noticed, (bytes + 36) / 37);
            CHECK_EQUAL_INT(specdec_load_history(m.first, seen, bytes), SPECDEC_OK);
        }
        CHECK_EQUAL_INT(specdec_open(m.first, &text), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_prompt_tokens(text, tokens, 5), SPECDEC_OK);
        write_all(text);
        specdec_get_stats(text, &stats[day]);
        specdec_close(text);
        CHECK_EQUAL_INT(specdec_save_history(m.first, NULL, 0, &bytes), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_save_history(m.first, seen, bytes - 1, &bytes), SPECDEC_ERROR_BUFFER);
        CHECK_EQUAL_INT(specdec_save_history(m.first, seen, sizeof seen, &bytes), SPECDEC_OK);
        close_machine(&m);
    }
    printf("  %d tokens in %d steps on the first day, %d in %d on the second\n", (int)stats[0].tokens, (int)stats[0].steps,
           (int)stats[1].tokens, (int)stats[1].steps);
    CHECK(stats[0].tokens == stats[1].tokens && stats[1].steps * 4 < stats[0].steps * 3);
}

/* The longest step, in nodes, while a text writes and a prompt of 250 tokens comes in. */
static void test_slices(void)
{
    specdec_config c = config_of(PLAIN, -1);
    static int32_t tokens[250];
    specdec *late;
    const int32_t *got;
    machine m;
    int i, slices = 0, before, count;

    TEST("a prompt is read in slices between the steps of others, as many tokens each as the caller allows");
    c.sequences = 2;
    c.prefill_chunk = 5;
    c.settings.sampling.temperature = 1;
    if (!open_machine(&m, &c))
        return;
    for (i = 0; i < 250; i++)
        tokens[i] = 5 + i * i % 200;
    CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, tokens + 3, 4), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_step(m.first, &got, &count), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_open(m.first, &late), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_prompt_tokens(late, tokens, 250), SPECDEC_OK);
    while (late->view.length < 249) {
        before = late->view.length;
        if (specdec_step(m.first, &got, &count))
            break;
        CHECK(late->view.length - before <= 5);
        slices++;
    }
    CHECK(slices >= 49 || specdec_stopped(m.first, NULL));
    close_machine(&m);
}

/* One text that is driven by specdec_work and specdec_take. */
static void test_alone(void)
{
    static const int32_t tokens[] = {5, 9, 70, 9};
    int rule, way, i;

    TEST("one text that specdec_work drives takes the steps that it takes with specdec_next, and writes the same by every rule");
    for (rule = 0; rule < SPECDEC_RULE_GREEDY; rule++) {
        int32_t texts[2][CONTEXT_TOKENS];
        int count[2];
        specdec_stats stats[2];

        for (way = 0; way < 2; way++) {
            specdec_config c = config_of(PLAIN, NOISY);
            specdec_text piece;
            machine m;

            c.rule = (specdec_rule)rule;
            c.drafting = SPECDEC_DRAFT_MODEL;
            c.settings.sampling.temperature = 1;
            c.settings.max_tokens = 60;
            if (!open_machine(&m, &c))
                return;
            for (i = 0; i < 2; i++) { /* the second prompt finds a stock */
                CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, tokens, 4), SPECDEC_OK);
                if (way)
                    while (specdec_work(m.first) == SPECDEC_OK)
                        while (specdec_take(m.first, &piece) == SPECDEC_OK)
                            continue;
                else
                    write_all(m.first);
            }
            count[way] = m.first->handed_out;
            memcpy(texts[way], m.first->tokens, (size_t)count[way] * sizeof(int32_t));
            specdec_get_stats(m.first, &stats[way]);
            specdec_cancel(m.first);
            CHECK_EQUAL_INT(specdec_rewind(m.first, 20), SPECDEC_OK);
            CHECK_EQUAL_INT(way ? specdec_work(m.first) : SPECDEC_OK, SPECDEC_OK); /* what went wrong, the text's next call tells */
            CHECK_EQUAL_INT(specdec_rewind(m.first, 10), SPECDEC_OK); /* takes no cancellation back, nor what came of one */
            CHECK_EQUAL_INT(way ? specdec_take(m.first, &piece) : specdec_next(m.first, &piece), SPECDEC_ERROR_CANCELLED);
            close_machine(&m);
        }
        CHECK_EQUAL_INT(count[0], count[1]);
        CHECK(memcmp(texts[0], texts[1], (size_t)count[0] * sizeof(int32_t)) == 0);
        CHECK_EQUAL_INT(stats[0].steps, stats[1].steps);
    }
}

/* As many texts as there may be. */
static void test_most(void)
{
    static specdec *texts[SPECDEC_MAX_SEQUENCES];
    specdec_config c = config_of(PLAIN, -1);
    int32_t tokens[3] = {5, 9, 70};
    machine m;
    int i, ended = 0;

    TEST("an engine of 1,024 texts lets all of them write");
    c.sequences = SPECDEC_MAX_SEQUENCES;
    c.context = 40;
    c.settings.max_tokens = 3;
    if (!open_machine(&m, &c))
        return;
    texts[0] = m.first;
    for (i = 0; i < c.sequences; i++) {
        if (i)
            CHECK_EQUAL_INT(specdec_open(m.first, &texts[i]), SPECDEC_OK);
        tokens[1] = 5 + i % 250;
        tokens[2] = 5 + i / 250;
        CHECK_EQUAL_INT(specdec_prompt_tokens(texts[i], tokens, 3), SPECDEC_OK);
    }
    while (specdec_work(m.first) == SPECDEC_OK)
        continue;
    for (i = 0; i < c.sequences; i++)
        ended += specdec__stream_end_reason(texts[i], texts[i]->count) != SPECDEC_STOP_NONE;
    CHECK_EQUAL_INT(ended, c.sequences);
    close_machine(&m);
}

/* Keys that texts hold now: what children share with their parents counts once. */
static int held(const specdec__engine *e)
{
    int i, sum = 0;

    for (i = 0; i < e->room.max_views; i++)
        if (e->sequences[i].open && e->sequences[i].view.length)
            sum += e->sequences[i].view.length - (e->sequences[i].parent ? e->sequences[i].fork_at - 1 : 0);
    return sum;
}

/* Tokens that a text and its children have written, and what each of them looked at; in the order of restoring these would
   be one text. */
static int family_tokens(specdec *t, int *looked_at)
{
    int i, sum = t->count - t->answer_from;
    specdec *child;

    for (i = t->answer_from; i < t->count; i++)
        *looked_at += i;
    for (i = 0; (child = specdec_child(t, i)) != NULL; i++)
        sum += family_tokens(child, looked_at);
    return sum;
}

/* Steps until the text is done. Returns how many of its tokens differ from known[count]; 0: none, and it is as long. */
static int writes_otherwise(specdec *t, const int32_t *known, int count)
{
    const int32_t *tokens;
    int n, i, differing;

    while (specdec_step(t, &tokens, &n) == SPECDEC_OK)
        continue;
    specdec_tokens(t, &tokens, &n);
    differing = n > count ? n - count : count - n;
    for (i = 0; i < n && i < count; i++)
        differing += tokens[i] != known[i];
    return differing;
}

/* The limit of forks is a matter of the tokens that a text has, not of which children are still open. */
static void test_fork_limit(void)
{
    specdec_config c = config_of(PLAIN, -1);
    static unsigned char saved[4 << 20];
    int32_t known[600] = {0};
    const int32_t *tokens;
    specdec *other;
    int prompted, count, i, closed = 0;
    size_t bytes;
    machine m;

    TEST("a text that has used up its forks and is rewound, copied or loaded writes the same again, also without its children");
    c.target.data = NULL;
    c.target.path = "examples/models/tiny-fork-q8_0.gguf";
    c.sequences = 8;
    c.forks = 3;
    c.drafting = SPECDEC_DRAFT_OFF;
    if (!open_machine(&m, &c))
        return;
    CHECK_EQUAL_INT(specdec_prompt(m.first, "Paul wants to make a boat on the island. What must he do?", SPECDEC_WHOLE_STRING), SPECDEC_OK);
    specdec_tokens(m.first, NULL, &prompted);
    writes_otherwise(m.first, known, 0);
    specdec_tokens(m.first, &tokens, &count);
    CHECK(count > prompted && count <= 600);
    memcpy(known, tokens, (size_t)count * sizeof *known);
    CHECK_EQUAL_INT(children_of(m.first), 3);
    CHECK_EQUAL_INT(specdec_save(m.first, saved, sizeof saved, &bytes), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_fork(m.first, &other), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_rewind(other, prompted), SPECDEC_OK);
    CHECK_EQUAL_INT(writes_otherwise(other, known, count), 0);
    specdec_close(other);
    CHECK_EQUAL_INT(specdec_rewind(m.first, prompted), SPECDEC_OK);
    CHECK_EQUAL_INT(writes_otherwise(m.first, known, count), 0);
    while ((other = specdec_child(m.first, 0)) != NULL)
        specdec_close(other);
    CHECK_EQUAL_INT(specdec_rewind(m.first, prompted), SPECDEC_OK);
    CHECK_EQUAL_INT(writes_otherwise(m.first, known, count), 0);
    CHECK_EQUAL_INT(children_of(m.first), 3);
    CHECK_EQUAL_INT(specdec_open(m.first, &other), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_load(other, saved, bytes), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_rewind(other, prompted), SPECDEC_OK);
    CHECK_EQUAL_INT(writes_otherwise(other, known, count), 0);
    specdec_close(other);
    CHECK_EQUAL_INT(specdec_rewind(m.first, prompted), SPECDEC_OK);
    for (i = 0; i < 40; i++) { /* children of what is in stock are closed, and the stock is given up */
        specdec_settings settings;
        specdec_text piece;

        specdec_work(m.first);
        specdec_work(m.first);
        for (; (other = specdec_child(m.first, 0)) != NULL; closed++)
            specdec_close(other);
        specdec_get_settings(m.first, &settings);
        settings.sampling.seed++;
        specdec_take(m.first, &piece);
        CHECK_EQUAL_INT(specdec_set(m.first, &settings), SPECDEC_OK);
    }
    CHECK(closed >= 3);
    CHECK_EQUAL_INT(writes_otherwise(m.first, known, count), 0);
    close_machine(&m);
}

/* Forks of an endless text, whose children are closed as they come: many more than its context has tokens. */
static void test_fork_slides(void)
{
    specdec_config c = config_of(PLAIN, NOISY);
    static const int32_t tokens[] = {5, 9, 70, 9};
    const specdec_bias endless = {2, -1e9f};
    specdec *child;
    machine m;
    int i, closed = 0;

    TEST("a text that forks and slides has as many forks as it may, however short its context is");
    c.sequences = 4;
    c.context = 24;
    c.forks = 100;
    c.hooks.fork = always;
    c.settings.max_tokens = 0;
    c.settings.slide = 2;
    c.settings.sampling.biases = &endless;
    c.settings.sampling.bias_count = 1;
    if (!open_machine(&m, &c))
        return;
    CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, tokens, 4), SPECDEC_OK);
    for (i = 0; i < 600; i++) {
        const int32_t *stepped;
        int n;

        if (specdec_step(m.first, &stepped, &n) == SPECDEC_DONE)
            break;
        for (; (child = specdec_child(m.first, 0)) != NULL; closed++)
            specdec_close(child);
    }
    CHECK_EQUAL_INT(closed, 100);
    CHECK_EQUAL_INT(m.first->forks, 100);
    CHECK(m.first->stats.slid > 24);
    close_machine(&m);
}

static void test_forking_model(void)
{
    static const struct {
        const char *prompt, *answer;
    } known[] = {
        {"Lucy saw a cow, a sheep and a wolf in the village:",
         "\n1. The cow: The large kind cow lived in the barn. It loved to lie in the sun. It ate grass.\n"
         "2. The sheep: The soft quiet sheep lived in the meadow. It liked to walk behind the others. It ate grass every day.\n"
         "3. The wolf: The wild grey wolf lived in the dark woods. It liked to sing to the moon. It ate meat."},
        {"Paul wants to make a boat on the island. What must he do?",
         "\n1. Cut the wood: Cut the wood of a strong tree into long boards. Let them dry in the sun.\n"
         "2. Build the body: Nail the boards together to build the body. There must be no hole. Paul can do that alone.\n"
         "3. Sew the sail: Take a large white cloth. Sew the sail with strong thread. Paul can do that alone.\n"
         "4. Try it: Push the boat into the water and try it. See if it swims."},
        {"Tell me about two rooms of Tim's farm in the forest.",
         "\n1. The hall: The hall was high and wide. There were two things in it.\n"
         "- A small picture: The picture was small. It showed a queen on a horse. Nobody knew who had made it.\n"
         "- A big clock: The clock was big. It was always late. Tim used it every day.\n"
         "2. The tower: The tower was round and cold. There were two things in it.\n"
         "- A beautiful ladder: The ladder was beautiful. It was long and old. Tim liked it.\n"
         "- A big ladder: The ladder was big. It was long and old. Tim liked it."}};
    size_t i;

    TEST("the model that was taught to fork writes its lists side by side, and restoring puts them in order");
    for (i = 0; i < 3; i++) {
        specdec_config c = config_of(PLAIN, -1);
        char whole[2000];
        size_t length;
        int peak = 0, steps_made = 0, looked_at = 0, flat = 0, tokens, k, prompted;
        machine m;

        c.target.data = NULL;
        c.target.path = "examples/models/tiny-fork-q8_0.gguf";
        c.sequences = 12;
        c.drafting = SPECDEC_DRAFT_OFF;
        if (!open_machine(&m, &c))
            return;
        CHECK_EQUAL_INT(specdec_prompt(m.first, known[i].prompt, SPECDEC_WHOLE_STRING), SPECDEC_OK);
        prompted = m.first->count;
        for (; specdec_work(m.first) == SPECDEC_OK; steps_made++) {
            specdec_text piece;

            while (specdec_take(m.first, &piece) == SPECDEC_OK)
                continue;
            peak = held(m.first->engine) > peak ? held(m.first->engine) : peak;
        }
        CHECK_EQUAL_INT(specdec_join_forks(m.first, whole, sizeof whole, &length), SPECDEC_OK);
        CHECK(length == strlen(known[i].answer) && memcmp(whole, known[i].answer, length) == 0);
        tokens = family_tokens(m.first, &looked_at);
        for (k = prompted; k < prompted + tokens; k++)
            flat += k;
        printf("  %d tokens in %d steps; keys at most %d of %d, looked at %d of %d\n", tokens, steps_made, peak, prompted + tokens,
               looked_at, flat);
        CHECK(steps_made * 2 < tokens && peak < prompted + tokens && looked_at < flat * 85 / 100);
        close_machine(&m);
    }
}

/* One fork, behind 23 tokens. */
static int at_23(void *user_data, const int32_t *tokens, int count, int32_t *child)
{
    (void)user_data;
    (void)tokens;
    child[0] = 77;
    return count == 23;
}

/* A call in which a text slides fails: it knows where it has forked, as before. */
static void test_failed_slide(void)
{
    specdec_config c = config_of(PLAIN, -1);
    static const specdec_bias endless = {2, -1e9f};
    int32_t tokens[20];
    const int32_t *got;
    machine m;
    int way, i, count;

    TEST("a text whose slide fails forks again where it has forked, when it is rewound to before that");
    c.sequences = 3;
    c.context = 60;
    c.forks = 1;
    c.fork_depth = 1;
    c.hooks.fork = at_23;
    c.settings.max_tokens = 0;
    c.settings.slide = 4;
    c.settings.sampling.biases = &endless;
    c.settings.sampling.bias_count = 1;
    for (i = 0; i < 20; i++)
        tokens[i] = 5 + (i * 7 + i * i) % 200;
    for (way = 0; way < 2; way++) {
        if (!open_machine(&m, &c))
            return;
        CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, tokens, 20), SPECDEC_OK);
        while (m.first->handed_out < 60 && specdec_step(m.first, &got, &count) == SPECDEC_OK)
            continue;
        CHECK_EQUAL_INT(m.first->handed_out, 60);
        CHECK_EQUAL_INT(children_of(m.first), 1);
        specdec_close(specdec_child(m.first, 0));
        if (way) {
            specdec_cancel(m.first);
            CHECK_EQUAL_INT(specdec_step(m.first, &got, &count), SPECDEC_ERROR_CANCELLED);
        }
        CHECK_EQUAL_INT(m.first->handed_out, 60);
        CHECK_EQUAL_INT(specdec_rewind(m.first, 20), SPECDEC_OK);
        for (i = 0; i < 8; i++)
            specdec_step(m.first, &got, &count);
        CHECK_EQUAL_INT(children_of(m.first), 1);
        close_machine(&m);
    }
}

/* A text whose reading is cancelled has the pages of what it has read. */
static void test_cancelled_read(void)
{
    static int32_t tokens[600];
    specdec_config c = config_of(PLAIN, -1);
    machine m;
    int i;

    TEST("specdec_logits that is cancelled while it reads gives back the pages that it does not fill");
    c.sequences = 2;
    c.cache = 700;
    c.context = 1200;
    c.batch = 512;
    c.drafting = SPECDEC_DRAFT_OFF;
    for (i = 0; i < 600; i++)
        tokens[i] = 5 + (i * 7 + i * i) % 200;
    if (!open_machine(&m, &c))
        return;
    CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, tokens, 600), SPECDEC_OK);
    CHECK_EQUAL_INT(used_pages(m.first), 0);
    specdec_cancel(m.first);
    CHECK_EQUAL_INT(specdec_logits(m.first, NULL, NULL, 0, NULL), SPECDEC_ERROR_CANCELLED);
    CHECK_EQUAL_INT(m.first->view.length, 0);
    CHECK_EQUAL_INT(used_pages(m.first), 0);
    CHECK_EQUAL_INT(specdec_logits(m.first, NULL, NULL, 0, NULL), SPECDEC_OK);
    close_machine(&m);
}

/* An engine of two texts whose runs follow each other. Returns whether there is one. */
static int open_pipe(machine *m, slow_lane *lane, specdec **other, int slice)
{
    static const specdec_bias endless = {2, -1e9f};
    specdec_config c = config_of(PLAIN, PLAIN);

    memset(&c.heads, 0, sizeof c.heads);
    c.sequences = c.threads = 2;
    c.async = 1;
    c.prefill_chunk = slice;
    c.context = 2000;
    c.drafting = SPECDEC_DRAFT_MODEL;
    c.policy = SPECDEC_POLICY_DYNAMIC;
    c.settings.max_tokens = 0;
    c.settings.sampling.biases = &endless;
    c.settings.sampling.bias_count = 1;
    if (!open_machine(m, &c))
        return 0;
    slow_attach(lane, m->first, 4, 3);
    CHECK_EQUAL_INT(specdec_open(m->first, other), SPECDEC_OK);
    return 1;
}

static void close_pipe(machine *m, slow_lane *lane)
{
    close_machine(m);
    free(lane->pipe.node);
}

/* A prompt beside a text whose runs follow each other. */
static void test_flight_waits(void)
{
    static slow_lane lane;
    static int32_t tokens[300];
    specdec_text piece;
    specdec *late;
    machine m;
    int i;

    TEST("a prompt is read while another text writes with several runs on their way");
    for (i = 0; i < 300; i++)
        tokens[i] = 5 + (i * 7 + i * i) % 200;
    if (!open_pipe(&m, &lane, &late, 0))
        return;
    CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, tokens, 3), SPECDEC_OK);
    for (i = 0; i < 1000 && late->count == late->handed_out; i++) {
        CHECK_EQUAL_INT(specdec_work(m.first), SPECDEC_OK);
        while (specdec_take(m.first, &piece) == SPECDEC_OK)
            continue;
        if (i == 20)
            CHECK_EQUAL_INT(specdec_prompt_tokens(late, tokens + 1, 299), SPECDEC_OK);
    }
    CHECK(late->count > late->handed_out);
    close_pipe(&m, &lane);
}

/* Two texts whose runs follow each other, in turns: one whose stock is full takes no part. */
static void test_flight_turns(void)
{
    static slow_lane lane;
    static const int32_t tokens[] = {5, 9, 70, 9};
    specdec_stats stats;
    specdec_text piece;
    specdec *texts[2];
    int64_t trees;
    machine m;
    int i, k, changes = 0, left = 0;

    TEST("of a text whose runs followed each other no draft stays when another one's do; and each of its steps is counted by its tree");
    if (!open_pipe(&m, &lane, &texts[1], 8))
        return;
    texts[0] = m.first;
    for (i = 0; i < 2; i++)
        CHECK_EQUAL_INT(specdec_prompt_tokens(texts[i], tokens + i, 3), SPECDEC_OK);
    for (i = 0; i < 60; i++) {
        specdec *to = texts[i % 2], *from = texts[!(i % 2)];

        for (k = 0; k < 200 && to->count - to->handed_out < 8; k++) {
            const specdec *was = m.first->engine->pipe->sequence;

            CHECK_EQUAL_INT(specdec_work(m.first), SPECDEC_OK);
            if (was != from || m.first->engine->pipe->sequence != to)
                continue;
            changes++;
            left += m.first->engine->drafters[0].proposals[from->at].frontier.valid_at != 0;
        }
        while (specdec_take(from, &piece) == SPECDEC_OK)
            continue;
    }
    CHECK(changes > 3);
    CHECK_EQUAL_INT(left, 0);
    for (i = 0; i < 2; i++) {
        specdec_get_stats(texts[i], &stats);
        for (k = 0, trees = stats.steps_other_trees; k < SPECDEC_STATS_TREES; k++)
            trees += stats.trees[k].steps;
        CHECK_EQUAL_INT(trees, stats.steps);
    }
    close_pipe(&m, &lane);
}

/* Where nothing may be chosen, token 0 is: here the one by which texts fork. */
static void test_fork_barred(void)
{
    static specdec_bias biases[600];
    static const int32_t tokens[] = {7, 9, 11};
    specdec_config c = config_of(PLAIN, -1);
    specdec_info info;
    machine m;
    int i;

    TEST("a fork token that comes although all tokens are forbidden makes no fork more than a text may have");
    c.sequences = 9;
    c.forks = 1;
    c.fork_token = "0";
    c.child_token = "41";
    c.settings.max_tokens = 80;
    c.settings.sampling.biases = biases;
    if (!open_machine(&m, &c))
        return;
    specdec_get_info(m.first, &info);
    CHECK(info.fork_token == 0 && info.vocabulary <= 600);
    for (i = 1; i < info.vocabulary; i++) {
        biases[i - 1].token = i;
        biases[i - 1].bias = -INFINITY;
    }
    c.settings.sampling.bias_count = info.vocabulary - 1;
    CHECK_EQUAL_INT(specdec_set(m.first, &c.settings), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, tokens, 3), SPECDEC_OK);
    for (i = 0; i < 20; i++)
        specdec_work(m.first);
    write_all(m.first);
    CHECK(m.first->forks == 1 && m.first->placed == 1);
    CHECK_EQUAL_INT(children_of(m.first), 1);
    CHECK_EQUAL_INT(m.first->count, 83);
    close_machine(&m);
}

static const struct {
    const char *name;
    void (*run)(void);
} tests[] = {{"shared_prompt", test_shared_prompt}, {"bombs", test_bombs}, {"last_page", test_last_page}, {"refusals", test_refusals}, {"slices", test_slices},
             {"alone", test_alone}, {"most", test_most},
             {"seen", test_seen}, {"wild", test_wild}, {"ahead", test_forks_ahead}, {"families", test_families}, {"logits", test_logits_pages}, {"forbidden", test_forbidden}, {"closed", test_closed},
             {"forking_model", test_forking_model}, {"fork_limit", test_fork_limit}, {"fork_slides", test_fork_slides},
             {"bytes", test_bytes}, {"forks", test_forks}, {"schedules", test_schedules},
             {"beside", test_beside},
             {"flight", test_flight}, {"fork_barred", test_fork_barred}, {"failed_slide", test_failed_slide},
             {"cancelled_read", test_cancelled_read},
             {"flight_waits", test_flight_waits}, {"flight_turns", test_flight_turns}};

/* All tests, or the one named; "schedules 10 MODEL.gguf": so many of them, with this model. */
int main(int argc, char **argv)
{
    size_t i;

    quick = getenv("SPECDEC_QUICK") != NULL;
    schedules = argc > 2 ? atoi(argv[2]) : getenv("TEST_WRAPPER") ? 4 : quick ? 8 : 400 * check_depth(); /* emulated: few */
    given_model = argc > 3 ? argv[3] : NULL;
    make_models();
    make_constraints();
    heads = random_heads();
    layer = random_layer();
    for (i = 0; i < DRAFTERS; i++)
        drafters[i] = random_drafter((int)i);
    for (i = 0; i < sizeof tests / sizeof *tests; i++) {
        double start = specdec__os_monotonic_seconds();

        if (argc > 1 && strcmp(argv[1], tests[i].name) != 0)
            continue;
        tests[i].run();
        printf("  %-16s %.1f s\n", tests[i].name, specdec__os_monotonic_seconds() - start);
        fflush(stdout);
    }
    for (i = 0; i < MODELS; i++)
        free(models[i].data);
    free(heads.data);
    free(layer.data);
    for (i = 0; i < DRAFTERS; i++)
        free(drafters[i].data);
    return check_report("test_texts");
}
