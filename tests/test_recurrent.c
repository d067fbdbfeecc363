/* test_recurrent.c - models with recurrent layers: trees are verified exactly, states are read and written once a step, and sequences
   that fork, rewind, are saved or cancelled go on as plain decoding does.
   cc -O2 -pthread -I. test_recurrent.c; SPECDEC_QUICK=1 shortens. test_recurrent NAME: one test; `texts ROUNDS`: 80 schedules
   a round. */
#define SPECDEC_CLUSTER /* for the hook between layers */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "check.h"
#include "gguf_maker.h"
#include "machine.h"

enum { CONTEXT_TOKENS = 200, VOCABULARY = 301, SEQUENCES = 5 };

static int quick;

/* --- models ----------------------------------------------------------------------------------------------------------- */

/* One of every kind of recurrent layer, and of every way in which they lie between others. */
static const char *const names[] = {"lfm2", "qwen35", "granitehybrid", "falcon-h1", "nemotron_h"};
enum { KINDS = sizeof names / sizeof names[0] };

/* Further ones that schedules run: recurrent layers with experts, latent attention, layers of several shapes that share keys and have
   embeddings of their own, several residual streams, experts beside attention. */
static const char *const more_names[] = {"nemotron_h_moe", "qwen3next", "deepseek2", "gemma4", "gemma3n", "qwen35moe", "glm4moe"};
/* Those whose files have a block that predicts. */
static const char *const predicting[] = {"qwen35", "qwen3next", "deepseek2", "qwen35moe", "glm4moe"};
enum { ALL_KINDS = KINDS + sizeof more_names / sizeof more_names[0] };
static file models[ALL_KINDS], noisy[ALL_KINDS], llama;
static int given_rounds; /* of schedules */

static const char *name_of(int kind) { return kind < KINDS ? names[kind] : more_names[kind - KINDS]; }

static int predicts(const char *name)
{
    size_t i;

    for (i = 0; i < sizeof predicting / sizeof predicting[0]; i++)
        if (!strcmp(name, predicting[i]))
            return 1;
    return 0;
}

static file recurrent_file(const char *name, int layers, float noise, uint32_t seed, int mixes)
{
    maker_recipe r;

    memset(&r, 0, sizeof r);
    r.architecture = name;
    r.experts = mixes ? 0 : -1;
    r.varied = r.sharing = strcmp(name, "gemma4") == 0;
    r.head_dim = r.varied ? 16 : 0;
    r.window = 24;
    r.nextn = predicts(name);
    r.seed = seed;
    r.output_type = 1;
    r.embedding = 32;
    r.layers = layers;
    r.noise = noise;
    return random_file(&r);
}

static void make_models(void)
{
    int i;

    for (i = 0; i < ALL_KINDS; i++) {
        models[i] = recurrent_file(name_of(i), 4, 0, 21, i >= KINDS);
        noisy[i] = recurrent_file(name_of(i), 4, 0.15f, 21, i >= KINDS);
    }
    llama = random_model(1, 0, 0);
}

static specdec_config config_of(int kind)
{
    specdec_config c;

    memset(&c, 0, sizeof c);
    c.target = source_of(&models[kind]);
    c.threads = 1;
    c.context = CONTEXT_TOKENS;
    c.drafting = SPECDEC_DRAFT_OFF;
    c.async = -1;
    return c;
}

static void random_tokens(uint64_t *state, int32_t *tokens, int count)
{
    int i;

    for (i = 0; i < count; i++)
        tokens[i] = 3 + (int32_t)(maker_random(state) % (VOCABULARY - 3));
}

/* --- trees ------------------------------------------------------------------------------------------------------------ */

/* A tree's rows are those of each node's path, read alone from the beginning. */
static void check_tree(machine *m, machine *plain, int nodes, uint64_t *state)
{
    static float rows[65][VOCABULARY], row[2][VOCABULARY];
    int32_t prompt[20], tokens[64], parents[64], path[64];
    const int length = 1 + (int)(maker_random(state) % 20), shape = (int)(maker_random(state) % 3);
    int i, k, depth;

    random_tokens(state, prompt, length);
    random_tokens(state, tokens, nodes);
    for (i = 0; i < nodes; i++) /* any tree, a chain with few branches, a bush */
        parents[i] = shape == 0 ? (int32_t)(maker_random(state) % (unsigned)(i + 1)) - 1 : shape == 1 ? i - 1 - (i % 5 == 4) : i / 7 - 1;
    CHECK_EQUAL_INT(specdec_rewind(m->first, 0), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_prompt_tokens(m->first, prompt, length), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_logits(m->first, tokens, parents, nodes, rows[0]), SPECDEC_OK);
    for (i = 0; i < nodes; i += 1 + nodes / 9) {
        for (depth = 0, k = i; k >= 0; k = parents[k])
            path[depth++] = tokens[k];
        for (k = 0; k < depth / 2; k++) {
            const int32_t swapped = path[k];

            path[k] = path[depth - 1 - k];
            path[depth - 1 - k] = swapped;
        }
        CHECK_EQUAL_INT(specdec_rewind(plain->first, 0), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_prompt_tokens(plain->first, prompt, length), SPECDEC_OK);
        for (k = 0; k < depth; k++)
            CHECK_EQUAL_INT(specdec_prompt_tokens(plain->first, path + k, 1), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_logits(plain->first, NULL, NULL, 0, row[0]), SPECDEC_OK);
        CHECK(memcmp(row[0], rows[i + 1], sizeof row[0]) == 0);
    }
}

static void test_trees(void)
{
    static const int sizes[] = {1, 2, 3, 8, 31, 64};
    uint64_t state = 99 + check_seed();
    machine m, plain;
    int kind, i;

    TEST("the logits of a tree's nodes are the bits of plain decoding: any shape, width and number of threads, scalar beside the best");
    for (kind = 0; kind < KINDS; kind++) {
        specdec_config c = config_of(kind), one = config_of(kind);

        c.batch = 64;
        one.batch = 1;
        one.isa = "scalar";
        for (i = 0; i < 6; i++) {
            c.threads = 1 + i % 3;
            if (!open_machine(&m, &c) || !open_machine(&plain, &one))
                return;
            check_tree(&m, &plain, sizes[i], &state);
            check_tree(&m, &plain, sizes[i], &state);
            close_machine(&m);
            close_machine(&plain);
        }
    }
}

/* --- states are streamed once ----------------------------------------------------------------------------------------- */

/* A step of so many nodes behind a prompt whose last token waits to be applied to the state. */
static void check_stream(int kind, int nodes)
{
    specdec_config c = config_of(kind);
    specdec__context *target;
    const specdec__states *s;
    specdec__batch batch;
    int32_t tokens[80];
    uint64_t state = 5;
    double moved, expected;
    machine m;
    int i;

    c.batch = 64;
    c.tree_size = 64;
    if (!open_machine(&m, &c))
        return;
    random_tokens(&state, tokens, 80);
    CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, tokens + 64, 16), SPECDEC_OK);
    CHECK_EQUAL_INT(m.first->view.state.waiting_tokens, 1);
    target = &m.first->engine->target;
    s = &target->kv.states;
    for (i = 0; i < nodes; i++) {
        target->tokens[i] = tokens[i];
        target->parents[i] = (i + 1) / 2 - 1;
    }
    moved = -(double)(s->bytes_read + s->bytes_written);
    batch = specdec__forward_make_view_batch(target, &m.first->view, 0, nodes);
    CHECK_EQUAL_INT(specdec__forward(target, &batch, NULL), SPECDEC_OK);
    moved += (double)(s->bytes_read + s->bytes_written);
    expected = 2.0 * (double)specdec__state_bytes_in_file(s) + (double)s->input_floats * sizeof(float) * (nodes + 1);
    printf("  %-14s %2d nodes: %.0f bytes moved, a state twice and inputs are %.0f\n", names[kind], nodes, moved, expected);
    CHECK(moved >= 0.95 * expected && moved <= 1.05 * expected);
    specdec__view_free_reserved_slots(&m.first->view, &target->kv);
    close_machine(&m);
}

static void test_stream(void)
{
    int kind;

    TEST("a step reads and writes a state once, and the inputs of its nodes, whatever its width");
    for (kind = 0; kind < KINDS; kind++) {
        check_stream(kind, 1);
        check_stream(kind, 8);
        check_stream(kind, 32);
    }
}

/* --- steps that end early --------------------------------------------------------------------------------------------- */

static int stop, stop_at; /* a step's cancel flag, and before which of its layers it is set */

static void stop_between(specdec__context *c)
{
    (void)c;
    if (!stop_at--)
        SPECDEC__STORE(&stop, 1);
}

/* Runs a tree of 8 nodes behind a text. */
static specdec_result run_tree(specdec *t, const int32_t *tokens)
{
    specdec__context *c = &t->engine->target;
    specdec__batch batch;
    int i;

    for (i = 0; i < 8; i++) {
        c->tokens[i] = tokens[i];
        c->parents[i] = (i + 1) / 2 - 1;
    }
    batch = specdec__forward_make_view_batch(c, &t->view, 0, 8);
    return specdec__forward(c, &batch, &failure);
}

/* Steps behind a prompt, whose last token waits, that end before each of the layers; then a whole one. */
static void check_stopped(int kind, int threads, uint64_t *state)
{
    static const specdec__forward_hooks hooks = {stop_between, NULL, NULL};
    specdec_config c = config_of(kind), one = config_of(kind);
    int32_t tokens[32];
    machine m, plain;
    int layer;

    c.batch = one.batch = 8;
    c.tree_size = one.tree_size = 8;
    c.threads = threads;
    random_tokens(state, tokens, 32);
    for (layer = 0; layer <= 4; layer++) {
        specdec__context *target;
        int *cancel;

        if (!open_machine(&m, &c) || !open_machine(&plain, &one))
            return;
        target = &m.first->engine->target;
        cancel = target->pool->cancel;
        CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, tokens, 16), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_prompt_tokens(plain.first, tokens, 16), SPECDEC_OK);
        CHECK_EQUAL_INT(m.first->view.state.waiting_tokens, 1);
        target->hooks = &hooks;
        target->pool->cancel = &stop;
        stop = 0;
        stop_at = layer;
        CHECK_EQUAL_INT(run_tree(m.first, tokens + 16), layer < 4 ? SPECDEC_ERROR_CANCELLED : SPECDEC_OK);
        CHECK_EQUAL_INT(m.first->view.state.waiting_tokens, 0);
        CHECK_EQUAL_INT(specdec__state_current_point(&m.first->view.state).length, m.first->view.length);
        target->hooks = NULL;
        target->pool->cancel = cancel;
        CHECK_EQUAL_INT(run_tree(m.first, tokens + 24), SPECDEC_OK);
        CHECK_EQUAL_INT(run_tree(plain.first, tokens + 24), SPECDEC_OK);
        CHECK(memcmp(target->logits, plain.first->engine->target.logits, 8 * VOCABULARY * sizeof(float)) == 0);
        specdec__view_free_reserved_slots(&m.first->view, &target->kv);
        specdec__view_free_reserved_slots(&plain.first->view, &plain.first->engine->target.kv);
        close_machine(&m);
        close_machine(&plain);
    }
}

static void test_stopped(void)
{
    uint64_t state = 77 + check_seed();
    int kind;

    TEST("a step that ends early, wherever, has applied what waited to the state, and nothing else");
    for (kind = 0; kind < KINDS; kind++) {
        check_stopped(kind, 1, &state);
        check_stopped(kind, 3, &state);
    }
}

/* --- texts ------------------------------------------------------------------------------------------------------------ */

/* A sequence of a schedule. */
typedef struct text {
    specdec *t;
    int from; /* tokens before these were prompted, or may have been */
} text;

static void check_text(machine *oracle, const text *x)
{
    const int32_t *tokens;
    specdec_settings settings;
    int count;

    specdec_tokens(x->t, &tokens, &count);
    specdec_get_settings(x->t, &settings);
    if (x->from > 0 && x->from <= count)
        check_written(oracle, tokens, x->from, count, &settings);
}

/* What is behind a sequence's own tokens is read by whoever asks for its row: that row is plain decoding's. */
static void save_and_load(specdec *t)
{
    size_t bytes = 0;
    void *data;

    CHECK_EQUAL_INT(specdec_save(t, NULL, 0, &bytes), SPECDEC_OK);
    data = malloc(bytes);
    CHECK_EQUAL_INT(specdec_save(t, data, bytes, &bytes), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_load(t, data, bytes), SPECDEC_OK);
    free(data);
}

/* One call of a schedule on a sequence. */
static void one_call(machine *m, text *texts, int i, int most, uint64_t *state)
{
    text *x = &texts[i];
    const unsigned what = maker_random(state) % 16;
    int32_t tokens[40];
    const int32_t *known;
    int count, n, k;
    specdec_result result;

    if (!x->t) {
        if (specdec_open(m->first, &x->t) != SPECDEC_OK)
            x->t = NULL;
        x->from = 0;
        return;
    }
    specdec_tokens(x->t, &known, &count);
    if (!count || (what == 0 && count < 100)) {
        n = 1 + (int)(maker_random(state) % 40);
        random_tokens(state, tokens, n);
        result = specdec_prompt_tokens(x->t, tokens, n);
        CHECK(result == SPECDEC_OK || result == SPECDEC_ERROR_CANCELLED);
        x->from = result ? x->from : count + n;
    } else if (what == 1 || count > CONTEXT_TOKENS - 20) {
        n = (int)(maker_random(state) % (unsigned)(count + 1));
        CHECK_EQUAL_INT(specdec_rewind(x->t, n), SPECDEC_OK);
        x->from = n < x->from ? n : x->from;
    } else if (what == 2) {
        for (k = 0; k < most && texts[k].t; k++)
            continue;
        if (k < most && specdec_fork(x->t, &texts[k].t) == SPECDEC_OK)
            texts[k].from = x->from;
        else if (k < most)
            texts[k].t = NULL;
    } else if (what == 3 && i) {
        specdec_close(x->t);
        x->t = NULL;
    } else if (what == 4) {
        save_and_load(x->t);
    } else if (what == 5) {
        specdec_cancel(x->t);
        result = specdec_step(x->t, &known, &n);
        CHECK(result == SPECDEC_ERROR_CANCELLED || result == SPECDEC_OK || result == SPECDEC_DONE);
    } else {
        for (k = 0; k < 4; k++) {
            result = specdec_step(x->t, &known, &n);
            CHECK(result == SPECDEC_OK || result == SPECDEC_DONE || result == SPECDEC_ERROR_CANCELLED);
        }
    }
}

static void schedule(int kind, int drafting, int texts, float temperature, uint64_t seed)
{
    specdec_config c = config_of(kind), plain = config_of(kind);
    text text_list[SEQUENCES];
    uint64_t state = seed;
    machine m, oracle;
    int i, k;

    c.sequences = texts;
    c.drafting = SPECDEC_DRAFT_AUTO;
    if (drafting == 0)
        c.drafting = SPECDEC_DRAFT_NGRAM;
    else if (drafting == 4)
        c.drafting = maker_random(&state) % 3 ? SPECDEC_DRAFT_MTP : SPECDEC_DRAFT_AUTO;
    else
        c.draft = source_of(drafting == 1 ? &noisy[kind] : drafting == 2 ? &llama : &noisy[(kind + 1) % ALL_KINDS]);
    c.tree_size = maker_random(&state) % 2 ? 64 : 2 + (int)(maker_random(&state) % 30);
    c.tree_depth = 2 + (int)(maker_random(&state) % 12);
    c.policy = maker_random(&state) % 2 ? SPECDEC_POLICY_STATIC : SPECDEC_POLICY_DYNAMIC;
    c.threads = 1 + (int)(maker_random(&state) % 2);
    c.async = maker_random(&state) % 3 ? -1 : c.threads - 1;
    c.batch = 1 + (int)(maker_random(&state) % 30);
    c.checkpoint = 8 + (int)(maker_random(&state) % 100);
    c.settings.sampling.temperature = plain.settings.sampling.temperature = temperature;
    c.settings.sampling.seed = plain.settings.sampling.seed = seed;
    if (c.drafting == SPECDEC_DRAFT_AUTO && c.policy == SPECDEC_POLICY_STATIC)
        c.drafting = drafting == 4 ? SPECDEC_DRAFT_MTP : SPECDEC_DRAFT_MODEL;
    if (!open_machine(&m, &c) || !open_machine(&oracle, &plain))
        return;
    memset(text_list, 0, sizeof text_list);
    text_list[0].t = m.first;
    for (k = 0; k < 40; k++) {
        i = (int)(maker_random(&state) % (unsigned)texts);
        one_call(&m, text_list, i, texts, &state);
    }
    for (i = 0; i < texts; i++)
        if (text_list[i].t)
            check_text(&oracle, &text_list[i]);
    close_machine(&m);
    close_machine(&oracle);
}

static void test_texts(void)
{
    const int rounds = given_rounds ? given_rounds : quick ? 1 : 12 * check_depth();
    int kind, i, drafting;

    TEST("texts are those of plain decoding: greedy and coupled, n-grams, drafts that are recurrent or not, blocks that predict, one sequence and five that fork, rewind, are saved, cancelled and closed");
    for (kind = 0; kind < ALL_KINDS; kind++)
        for (i = 0; i < rounds; i++)
            for (drafting = 0; drafting < 4 + predicts(name_of(kind)); drafting++) {
                schedule(kind, drafting, 1, i % 2 ? 0.9f : 0, 1000 + (uint64_t)i + check_seed());
                schedule(kind, drafting, SEQUENCES, i % 2 ? 0 : 0.8f, 2000 + (uint64_t)i + check_seed());
            }
}

/* --- checkpoints and memory ------------------------------------------------------------------------------------------- */

static void test_checkpoints(void)
{
    specdec_stats stats;
    uint64_t state = 3;
    int32_t tokens[150];
    const int32_t *more;
    int kind, i, n, at;
    int64_t before;
    machine m;

    TEST("a rewound text reads on from the last checkpoint: no more tokens than lie between two, and a batch");
    random_tokens(&state, tokens, 150);
    for (kind = 0; kind < KINDS; kind++) {
        specdec_config c = config_of(kind);

        c.checkpoint = 20;
        c.batch = 10;
        if (!open_machine(&m, &c))
            return;
        CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, tokens, 150), SPECDEC_OK);
        for (i = 0; i < 6; i++) {
            at = 149 - 23 * i;
            CHECK_EQUAL_INT(specdec_rewind(m.first, at), SPECDEC_OK);
            specdec_get_stats(m.first, &stats);
            before = stats.prefilled_tokens;
            CHECK_EQUAL_INT(specdec_step(m.first, &more, &n), SPECDEC_OK);
            specdec_get_stats(m.first, &stats);
            CHECK(stats.prefilled_tokens - before <= 20 + 10);
        }
        close_machine(&m);
    }
}

static void test_memory(void)
{
    size_t few, many, none;
    int kind;

    TEST("states and checkpoints are in the memory query");
    for (kind = 0; kind < KINDS; kind++) {
        specdec_config c = config_of(kind);
        specdec__recurrent_sizes x;
        machine m;

        if (!open_machine(&m, &c))
            return;
        x = m.first->model->recurrent_sizes;
        close_machine(&m);
        c.checkpoint = CONTEXT_TOKENS + 1; /* none */
        CHECK_EQUAL_INT(specdec_memory_needed(&c, &none, &failure), SPECDEC_OK);
        c.checkpoint = CONTEXT_TOKENS / 2;
        CHECK_EQUAL_INT(specdec_memory_needed(&c, &few, &failure), SPECDEC_OK);
        c.checkpoint = CONTEXT_TOKENS / 10;
        CHECK_EQUAL_INT(specdec_memory_needed(&c, &many, &failure), SPECDEC_OK);
        CHECK(few - none >= 2 * specdec__state_slot_bytes(&x));
        CHECK(many - few >= 8 * specdec__state_slot_bytes(&x));
    }
}

static void test_refused(void)
{
    machine m;
    int kind;

    TEST("what a state cannot do is refused with a sentence");
    for (kind = 0; kind < KINDS; kind++) {
        specdec_config c = config_of(kind);
        specdec_settings settings;

        c.settings.slide = 4;
        refused(names[kind], &c, SPECDEC_ERROR_UNSUPPORTED, "does not slide");
        c.settings.slide = 0;
        if (!open_machine(&m, &c))
            return;
        specdec_get_settings(m.first, &settings);
        settings.slide = 4;
        CHECK_EQUAL_INT(specdec_set(m.first, &settings), SPECDEC_ERROR_UNSUPPORTED);
        CHECK(strstr(specdec_error_text(m.first), "does not slide") != NULL);
        close_machine(&m);
        c.drafting = SPECDEC_DRAFT_TRIFORCE;
        c.retrieval = 32;
        refused(names[kind], &c, SPECDEC_ERROR_UNSUPPORTED, "recurrent layers");
    }
}

/* --- hostile files ---------------------------------------------------------------------------------------------------- */

/* A model whose key has another value is refused, or works; never more than that. Returns what comes of it. */
static specdec_result with_key(const char *name, const char *suffix, uint32_t value)
{
    static maker m;
    maker_recipe r;
    specdec_config c;
    specdec *t = NULL;
    specdec_result result;
    size_t bytes = 0;
    file f;
    void *block = NULL;

    memset(&r, 0, sizeof r);
    r.architecture = name;
    r.experts = -1;
    r.embedding = 32;
    r.seed = 4;
    maker_begin(&m, &r);
    r.architecture = name;
    maker_u32(&m, maker_key(&r, suffix), value);
    f = finish(&m);
    memset(&c, 0, sizeof c);
    c.target = source_of(&f);
    c.context = 64;
    c.threads = 1;
    result = specdec_memory_needed(&c, &bytes, &failure);
    if (!result) {
        block = malloc(bytes);
        result = block ? specdec_init(&t, &c, block, bytes, &failure) : SPECDEC_ERROR_MEMORY;
    }
    if (!result)
        specdec_deinit(t);
    else
        CHECK(failure.text[0] != 0);
    free(block);
    free(f.data);
    return result;
}

static void test_hostile(void)
{
    static const char *const keys[] = {".shortconv.l_cache", ".ssm.conv_kernel", ".ssm.state_size", ".ssm.group_count",
                                       ".ssm.time_step_rank", ".ssm.inner_size", ".full_attention_interval"};
    static const uint32_t values[] = {0, 1, 2, 3, 5, 17, 48, 1000000, 1u << 31, 0xffffffffu};
    size_t kind, k, i;

    TEST("sizes of recurrent layers that disagree, or are out of range, are refused");
    for (kind = 0; kind < KINDS; kind++)
        for (k = 0; k < sizeof keys / sizeof keys[0]; k++) {
            maker_recipe r;
            static maker m;
            int known;

            memset(&r, 0, sizeof r);
            r.architecture = names[kind];
            r.experts = -1;
            maker_begin(&m, &r);
            known = maker_find_pair(&m, maker_key(&r, keys[k])) != NULL;
            maker_free(&m);
            for (i = 0; known && i < sizeof values / sizeof values[0]; i++) {
                const specdec_result result = with_key(names[kind], keys[k], values[i]);

                /* 2 is the number of groups and of layers between attention in made models; 1 layer between is no other file */
                CHECK(result != SPECDEC_OK || values[i] <= 3);
                CHECK(result == SPECDEC_OK || result == SPECDEC_ERROR_FORMAT || result == SPECDEC_ERROR_UNSUPPORTED);
            }
        }
    CHECK_EQUAL_INT(with_key("lfm2", ".shortconv.l_cache", 0), SPECDEC_ERROR_UNSUPPORTED);
    CHECK(strstr(failure.text, "taps") != NULL);
    CHECK_EQUAL_INT(with_key("qwen35", ".ssm.conv_kernel", 1000000), SPECDEC_ERROR_UNSUPPORTED);
    CHECK_EQUAL_INT(with_key("granitehybrid", ".ssm.group_count", 0), SPECDEC_ERROR_FORMAT);
}

int main(int argc, char **argv)
{
    static const struct { const char *name; void (*run)(void); } tests[] = {
        {"trees", test_trees}, {"stream", test_stream}, {"stopped", test_stopped}, {"texts", test_texts}, {"checkpoints", test_checkpoints},
        {"memory", test_memory}, {"refused", test_refused}, {"hostile", test_hostile}};
    size_t i;

    quick = getenv("SPECDEC_QUICK") != NULL;
    given_rounds = argc > 2 ? atoi(argv[2]) : 0;
    make_models();
    for (i = 0; i < sizeof tests / sizeof tests[0]; i++)
        if (argc < 2 || strcmp(argv[1], tests[i].name) == 0)
            tests[i].run();
    return check_report("test_recurrent");
}
