/* test_heads.c - drafts that read the target's state: states are handed out with the same bits at every width; heads compute
   what their papers say; what they propose never changes a text; files that do not fit are refused in words.
   cc -O2 -pthread -I. test_heads.c -lm, run from the repository's root; SPECDEC_QUICK=1 shortens. */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "check.h"
#include "gguf_maker.h"
#include "machine.h"

enum { CONTEXT_TOKENS = 200, MOST_WIDE = 512, VOCAB = 301 };

static int quick;

/* --- files ------------------------------------------------------------------------------------------------------------ */

static file target;

static file make_heads(const maker_heads_recipe *recipe)
{
    static maker m;

    maker_begin_heads(&m, recipe);
    return finish(&m);
}

/* --- engines ---------------------------------------------------------------------------------------------------------- */

static specdec_config config_of(const file *heads)
{
    specdec_config c;

    memset(&c, 0, sizeof c);
    c.target = source_of(&target);
    if (heads)
        c.heads = source_of(heads);
    c.threads = 1;
    c.context = CONTEXT_TOKENS;
    c.settings.max_tokens = 60;
    c.drafting = heads ? SPECDEC_DRAFT_HEADS : SPECDEC_DRAFT_OFF;
    return c;
}

/* --- the target's states ---------------------------------------------------------------------------------------------- */

/* States of tokens that are prompted in pieces of so many. */
static void states_of(specdec *t, const int32_t *tokens, int count, int piece, const int *layers, int layer_count, float *states)
{
    specdec_info info;
    int at, n;

    specdec_get_info(t, &info);
    CHECK_EQUAL_INT(specdec_rewind(t, 0), SPECDEC_OK);
    for (at = 0; at < count; at += n) {
        n = specdec__min_int(piece, count - at);
        CHECK_EQUAL_INT(specdec_prompt_states(t, tokens + at, n, layers, layer_count, states + (size_t)(at * layer_count * info.embedding)),
                        SPECDEC_OK);
    }
}

static void test_states(void)
{
    static const int layers[] = {1, SPECDEC_STATE_FINAL, 0, 2};
    enum { COUNT = 50, LAYERS = 4, WIDE = 64 };
    static float first[COUNT * LAYERS * WIDE], states[COUNT * LAYERS * WIDE], logits[COUNT * VOCAB], again[COUNT * VOCAB];
    static const int batches[] = {1, 7, 64}, pieces[] = {1, 13, 50};
    specdec_config c = config_of(NULL);
    int32_t tokens[COUNT];
    machine m;
    int i, j, b, threads, wrong = 0;
    uint64_t random = 5;

    for (i = 0; i < COUNT; i++)
        tokens[i] = (int32_t)(3 + maker_random(&random) % (VOCAB - 3));
    TEST("states have the same bits at every width, number of threads and cut of a prompt");
    for (b = 0; b < 3; b++)
        for (threads = 1; threads <= 3; threads += 2) {
            c.batch = batches[b];
            c.threads = threads;
            if (!open_machine(&m, &c))
                return;
            for (i = 0; i < 3; i++) {
                states_of(m.first, tokens, COUNT, pieces[i], layers, LAYERS, b || i || threads > 1 ? states : first);
                CHECK(!(b || i || threads > 1) || memcmp(states, first, sizeof first) == 0);
            }
            close_machine(&m);
        }
    TEST("states are what the layers see and what logits come from, and asking for them changes nothing");
    if (!open_machine(&m, &c))
        return;
    CHECK_EQUAL_INT(specdec_prompt_logits(m.first, tokens, COUNT, logits), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_logits(m.first, NULL, NULL, 0, again), SPECDEC_OK);
    states_of(m.first, tokens, COUNT, 9, layers, LAYERS, states);
    CHECK_EQUAL_INT(specdec_logits(m.first, NULL, NULL, 0, again + VOCAB), SPECDEC_OK);
    CHECK(memcmp(again, again + VOCAB, VOCAB * sizeof *again) == 0);
    for (i = 0; i < COUNT; i++) {
        const specdec__model *model = m.first->model;
        float row[WIDE];

        specdec__quant_to_float(model->token_embedding.type, model->token_embedding.file + (size_t)tokens[i] * model->token_embedding.row_bytes,
                                WIDE, row);
        wrong += memcmp(row, first + (i * LAYERS + 2) * WIDE, sizeof row) != 0;
        for (j = 0; j < VOCAB; j++) {
            double sum = 0;
            int k;

            specdec__quant_to_float(model->output.type, model->output.file + (size_t)j * model->output.row_bytes, WIDE, row);
            for (k = 0; k < WIDE; k++)
                sum += (double)row[k] * (double)first[(i * LAYERS + 1) * WIDE + k];
            wrong += !(fabs(sum - (double)logits[i * VOCAB + j]) < 1e-4);
        }
    }
    CHECK_EQUAL_INT(wrong, 0);
    TEST("a layer that there is not is refused, and so are missing arguments");
    for (i = -2; i <= 3; i += 5)
        CHECK_EQUAL_INT(specdec_prompt_states(m.first, tokens, 1, &i, 1, states), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_prompt_states(m.first, tokens, 1, layers, 0, states), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_prompt_states(m.first, tokens, 1, NULL, 1, states), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_prompt_states(m.first, tokens, 1, layers, 1, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_prompt_states(NULL, tokens, 1, layers, 1, states), SPECDEC_ERROR_ARGUMENT);
    close_machine(&m);
}

/* --- what heads compute, in double ------------------------------------------------------------------------------------ */

/* An F32 tensor of a file of heads: `front` + [.head] + `behind`. */
static const unsigned char *floats_of(const specdec_gguf *g, const char *front, int head, const char *behind)
{
    specdec_gguf_tensor t;

    if (!specdec_gguf_find_tensor(g, maker_head_name(front, head, behind), &t))
        abort();
    return t.data;
}

static double value_at(const unsigned char *floats, int i) { return (double)specdec__load_f32(floats + 4 * (size_t)i); }

static int64_t count_of(const specdec_gguf *g, const char *key, int64_t fallback)
{
    specdec_gguf_get_integer(g, key, 0, 1 << 30, &fallback, NULL);
    return fallback;
}

/* out (rows) = matrix (rows, columns) * in */
static void multiply(const unsigned char *matrix, int rows, int columns, const double *in, double *out)
{
    int i, j;

    for (i = 0; i < rows; i++)
        for (j = 0, out[i] = 0; j < columns; j++)
            out[i] += value_at(matrix, i * columns + j) * in[j];
}

/* An MLP speculator's head i: its state from the one before it (or the target's) and the token that came, in place; logits. */
static void mlp_head(const specdec_gguf *g, int i, double *state, int token, double *logits)
{
    const int inner = (int)count_of(g, "mlp_speculator.inner_length", 0), wide = (int)count_of(g, "mlp_speculator.embedding_length", 0);
    const int vocab = (int)count_of(g, "mlp_speculator.vocab_size", 0), n = (int)count_of(g, "mlp_speculator.n_predict", 0);
    const int tied = (int)count_of(g, "mlp_speculator.tie_weights", 0), own = tied ? -1 : i;
    const double s = pow(0.5, 0.5 / n), e = sqrt((1 - s * s) * inner / 2);
    double z[MOST_WIDE], sum = 0;
    int j;

    if (i == 0 && count_of(g, "mlp_speculator.scale_input", 0)) {
        for (j = 0; j < wide; j++)
            sum += state[j] * state[j];
        for (j = 0; j < wide; j++)
            state[j] /= sqrt(sum / wide + 1e-6) * sqrt(2);
    }
    multiply(floats_of(g, "speculator.proj", tied && i ? 1 : i, ".weight"), inner, i ? inner : wide, state, z);
    for (j = 0, sum = 0; j < inner; j++) {
        z[j] += e / s * value_at(floats_of(g, "speculator.emb", own, ".weight"), token * inner + j);
        sum += z[j] * z[j];
    }
    for (j = 0; j < inner; j++) {
        z[j] = z[j] / sqrt(sum / inner + 1e-6) * value_at(floats_of(g, "speculator.ln", own, ".weight"), j) +
               value_at(floats_of(g, "speculator.ln", own, ".bias"), j);
        state[j] = z[j] / 2 * (1 + erf(z[j] / sqrt(2)));
    }
    multiply(floats_of(g, "speculator.head", own, ".weight"), vocab, inner, state, logits);
}

/* A Medusa head: the target's state stays as it is. */
static void medusa_head(const specdec_gguf *g, int i, double *state, int token, double *logits)
{
    const int wide = (int)count_of(g, "medusa.embedding_length", 0), vocab = (int)count_of(g, "medusa.vocab_size", 0);
    double z[MOST_WIDE];
    int j;

    (void)token;
    multiply(floats_of(g, "medusa", i, ".block.0.weight"), wide, wide, state, z);
    for (j = 0; j < wide; j++) {
        z[j] += value_at(floats_of(g, "medusa", i, ".block.0.bias"), j);
        z[j] = state[j] + z[j] / (1 + exp(-z[j]));
    }
    multiply(floats_of(g, "medusa", i, ".head.weight"), vocab, wide, z, logits);
}

/* --- the numbers of the paper's own code ------------------------------------------------------------------------------ */

enum { E = 8, INNER = 6, WORDS = 16, GUESSES = 3, TIMES_E = 4, TIMES_INNER = 16 };

/* Adds a tensor of floats whose rows and values come several times, so that rows are long enough for tiles: sums stay the same
   when values are divided by how often what they are multiplied with comes. */
static void add_repeated(maker *m, const char *json, const char *name, int rows, int columns, int row_times, int column_times, double divisor)
{
    const char *at;
    char key[80];
    double values[WORDS * E];
    maker_tensor *t = maker_add_tensor(m, name, 0, (uint64_t)(columns * column_times), rows ? (uint64_t)(rows * row_times) : 0);
    int i, j, k, r;

    snprintf(key, sizeof key, "\"%s\":", name);
    at = check_behind(json, key);
    for (i = 0; i < (rows ? rows : 1) * columns; i++)
        values[i] = check_next_number(&at);
    for (i = 0; i < (rows ? rows : 1); i++)
        for (r = 0; r < row_times; r++)
            for (j = 0; j < columns; j++)
                for (k = 0; k < column_times; k++)
                    maker_put_float(&t->data, (float)(values[i * columns + j] / divisor));
}

static file golden_file(const char *json, int scaled)
{
    static maker m;
    char name[80];
    int i;

    memset(&m, 0, sizeof m);
    m.alignment = 32;
    m.version = 3;
    maker_text(&m, "general.architecture", "mlp_speculator");
    maker_u32(&m, "mlp_speculator.vocab_size", WORDS);
    maker_u32(&m, "mlp_speculator.embedding_length", E * TIMES_E);
    maker_u32(&m, "mlp_speculator.inner_length", INNER * TIMES_INNER);
    maker_u32(&m, "mlp_speculator.n_predict", GUESSES);
    maker_bool(&m, "mlp_speculator.tie_weights", 0); /* the file repeats them */
    maker_bool(&m, "mlp_speculator.scale_input", scaled);
    for (i = 0; i < GUESSES; i++) {
        snprintf(name, sizeof name, "speculator.proj.%d.weight", i);
        if (i)
            add_repeated(&m, json, name, INNER, INNER, TIMES_INNER, TIMES_INNER, TIMES_INNER);
        else
            add_repeated(&m, json, name, INNER, E, TIMES_INNER, TIMES_E, TIMES_E);
        snprintf(name, sizeof name, "speculator.emb.%d.weight", i);
        add_repeated(&m, json, name, WORDS, INNER, 1, TIMES_INNER, sqrt((double)TIMES_INNER)); /* its factor grows with the width */
        snprintf(name, sizeof name, "speculator.head.%d.weight", i);
        add_repeated(&m, json, name, WORDS, INNER, 1, TIMES_INNER, TIMES_INNER);
        snprintf(name, sizeof name, "speculator.ln.%d.weight", i);
        add_repeated(&m, json, name, 0, INNER, 1, TIMES_INNER, 1);
        snprintf(name, sizeof name, "speculator.ln.%d.bias", i);
        add_repeated(&m, json, name, 0, INNER, 1, TIMES_INNER, 1);
    }
    return finish(&m);
}

/* Heads with what they need to run, outside an engine. */
typedef struct rig {
    specdec__model model;
    specdec__kernels kernels;
    specdec__pool pool;
    specdec__context context; /* only what heads take from the target's */
    specdec__heads heads;
    int cancel;
    void *block;
} rig;

enum { RIG_BYTES = 8 << 20, RIG_ROWS = 24 };

static int open_rig(rig *r, const file *f, const char *isa, int threads)
{
    specdec__arena arena;
    specdec_source source = source_of(f);
    int i;

    memset(r, 0, sizeof *r);
    arena.base = (unsigned char *)(r->block = malloc(RIG_BYTES));
    arena.size = RIG_BYTES;
    arena.used = 0;
    if (specdec__kernels_init(&r->kernels, isa, &failure) || specdec__pool_init(&r->pool, threads, &r->cancel, NULL, &arena, &failure) ||
        specdec__model_init(&r->model, &source, 0, NULL, &arena, &failure)) {
        CHECK_EQUAL_INT(failure.code, SPECDEC_OK);
        fprintf(stderr, "%s\n", failure.text);
        return 0;
    }
    r->context.kernels = &r->kernels;
    r->context.pool = &r->pool;
    r->context.scratch = SPECDEC__TAKE(&arena, specdec__scratch, threads);
    for (i = 0; i < threads; i++) {
        specdec__scratch *s = &r->context.scratch[i];

        s->panel = SPECDEC__TAKE(&arena, specdec__panel, 2);
        s->tile = SPECDEC__TAKE(&arena, unsigned char, 2 * SPECDEC__PANEL * SPECDEC__ROWS * 4);
        s->sums = SPECDEC__TAKE(&arena, float, 2 * SPECDEC__COLUMNS * SPECDEC__ROWS);
    }
    specdec__heads_init(&r->heads, &r->model, &r->context, threads, RIG_ROWS, &arena);
    CHECK(arena.used != SIZE_MAX);
    return arena.used != SIZE_MAX;
}

static void close_rig(rig *r)
{
    specdec__pool_deinit(&r->pool);
    free(r->block);
}

/* Runs all heads over states and tokens; logits[level][row][vocab]. tokens[i + level]: what came at row i, level. */
static void run_heads(rig *r, const float *states, const int32_t *tokens, int n, float *logits)
{
    const specdec__model *m = &r->model;
    const int rows = specdec__heads_output_rows(m);
    int level, i;

    for (level = 0; level < m->head_count; level++) {
        const int from_target = !level || !m->speculator->chained, width = from_target ? m->embedding : m->feed_forward;

        for (i = 0; i < n; i++)
            memcpy(r->heads.input + (size_t)i * (size_t)specdec__forward_stride(width),
                   from_target ? states + i * m->embedding : r->heads.inner + (size_t)i * (size_t)specdec__forward_stride(width),
                   (size_t)width * sizeof(float));
        CHECK_EQUAL_INT(specdec__heads_run_level(&r->heads, level, tokens + level, n, &failure), SPECDEC_OK);
        memcpy(logits + level * n * rows, r->heads.logits, (size_t)(n * rows) * sizeof(float));
    }
}

static void test_golden(void)
{
    enum { N = 4 };
    char path[512];
    size_t size;
    char *json = (char *)check_read_file(check_shared(path, sizeof path, "refdata/mlp_speculator/golden.json"), &size);
    const char *at;
    int cases = 0;

    TEST("heads give the states and logits of the published code");
    if (!json) {
        SKIP("refdata/mlp_speculator/golden.json is not there");
        return;
    }
    for (at = json; (at = strstr(at, "\"emb_dim\"")) != NULL; at++, cases++) {
        const int scaled = strstr(at, "\"scale_input\": true") != NULL && strstr(at, "\"scale_input\": true") < strstr(at, "\"tensors\"");
        const char *wanted = check_behind(at, "\"train_forward\""), *in = check_behind(wanted, "\"state\":"), *tokens_at = check_behind(wanted, "\"inds\":");
        file f = golden_file(at, scaled);
        float states[N * E * TIMES_E], logits[GUESSES * N * WORDS];
        int32_t tokens[N + GUESSES];
        double worst = 0;
        rig r;
        int i, j;

        for (i = 0; i < N * E; i++) {
            const float value = (float)check_next_number(&in);

            for (j = 0; j < TIMES_E; j++)
                states[i * TIMES_E + j] = value;
        }
        for (i = 0; i < N + GUESSES; i++)
            tokens[i] = (int32_t)check_next_number(&tokens_at);
        if (open_rig(&r, &f, NULL, 2)) {
            run_heads(&r, states, tokens, N, logits);
            wanted = check_behind(wanted, "\"logits_h_n_v\":");
            for (i = 0; i < GUESSES * N * WORDS; i++)
                worst = fmax(worst, fabs(check_next_number(&wanted) - (double)logits[i]));
            CHECK(worst < 1e-5);
            close_rig(&r);
        }
        printf("  case %d: off by %.1e at most\n", cases, worst);
        free(f.data);
    }
    CHECK_EQUAL_INT(cases, 4);
    free(json);
}

/* --- bits ------------------------------------------------------------------------------------------------------------- */

static void test_bits(void)
{
    static const int types[] = {1, 9, 3}; /* F32, Q8_0, Q4_0 */
    static float states[RIG_ROWS * 64], first[3 * RIG_ROWS * VOCAB], got[3 * RIG_ROWS * VOCAB];
    int32_t tokens[RIG_ROWS + 8];
    uint64_t random = 9;
    int kind, type, isa, threads, i, j, level;

    TEST("logits of heads have the same bits with every instruction set, number of threads and width");
    for (i = 0; i < RIG_ROWS * 64; i++)
        states[i] = maker_uniform(&random);
    for (i = 0; i < RIG_ROWS + 8; i++)
        tokens[i] = (int32_t)(maker_random(&random) % VOCAB);
    for (kind = 0; kind < 2; kind++)
        for (type = 0; type < 3; type++) {
            maker_heads_recipe h;
            file f;
            rig r;

            memset(&h, 0, sizeof h);
            h.medusa = kind;
            h.type = types[type];
            h.tied = !kind && type == 1;
            h.scaled = !kind;
            h.seed = 3;
            f = make_heads(&h);
            if (!open_rig(&r, &f, "scalar", 1))
                return;
            run_heads(&r, states, tokens, RIG_ROWS, first);
            close_rig(&r);
            for (isa = 0; specdec_isa_name(isa); isa++)
                for (threads = 1; threads <= 4; threads += 3) {
                    if (!open_rig(&r, &f, specdec_isa_name(isa), threads))
                        return;
                    run_heads(&r, states, tokens, RIG_ROWS, got);
                    CHECK(memcmp(got, first, sizeof got) == 0);
                    for (i = 0; i < RIG_ROWS; i += 5) { /* alone */
                        run_heads(&r, states + i * 64, tokens + i, 1, got);
                        for (level = j = 0; level < 3; level++)
                            j += memcmp(got + level * VOCAB, first + (level * RIG_ROWS + i) * VOCAB, VOCAB * sizeof *got) != 0;
                        CHECK_EQUAL_INT(j, 0);
                    }
                    close_rig(&r);
                }
            free(f.data);
        }
}

/* --- what is proposed ------------------------------------------------------------------------------------------------- */

/* Checks the last proposal of an engine against heads in double: every candidate must be (nearly) one of the best behind its
   parent. Returns how many candidates there were. */
static int check_proposal(const specdec *t, const specdec_gguf *g, int medusa, const float *state)
{
    const specdec__proposal *p = &t->engine->drafters[0].proposals[0];
    static double states[SPECDEC__MAX_TREE_NODES][MOST_WIDE], logits[SPECDEC__MAX_TREE_NODES][VOCAB];
    int i, j, better, checked = 0;

    for (i = 0; i < 64; i++)
        states[0][i] = (double)state[i];
    for (i = 0; i < p->drafts.tree.n; i++) {
        const int parent = p->drafts.tree.parents[i];

        if (i && p->drafts.tokens[i] < 0)
            continue;
        if (i) {
            for (j = 0, better = 0; j < VOCAB; j++)
                better += logits[parent][j] > logits[parent][p->drafts.tokens[i]] + 2e-3;
            CHECK(better < p->drafts.tree.ranks[i]);
            memcpy(states[i], states[parent], sizeof states[i]);
            checked++;
        }
        if (p->drafts.depth[i] < 3)
            (medusa ? medusa_head : mlp_head)(g, p->drafts.depth[i], states[i], p->drafts.tokens[i], logits[i]);
    }
    return checked;
}

static void test_proposals(void)
{
    static float states[CONTEXT_TOKENS * 64];
    static const int final = SPECDEC_STATE_FINAL;
    int kind, dynamic;

    TEST("what heads propose are the best tokens by the published formula and the target's state");
    for (kind = 0; kind < 3; kind++) /* untied, tied, Medusa */
        for (dynamic = 0; dynamic < 2; dynamic++) {
            maker_heads_recipe h;
            specdec_config c;
            specdec_gguf g;
            machine m, other;
            const int32_t *tokens;
            int32_t prompt[] = {5, 9, 70};
            int count, all, checked = 0;
            file f;

            memset(&h, 0, sizeof h);
            h.medusa = kind == 2;
            h.tied = h.scaled = kind == 1;
            h.seed = 8;
            f = make_heads(&h);
            CHECK(!specdec_gguf_open(&g, f.data, f.size, &failure));
            c = config_of(&f);
            c.policy = dynamic ? SPECDEC_POLICY_DYNAMIC : SPECDEC_POLICY_STATIC;
            if (!open_machine(&m, &c))
                return;
            c = config_of(NULL);
            if (!open_machine(&other, &c))
                return;
            CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, prompt, 3), SPECDEC_OK);
            while (specdec_step(m.first, &tokens, &count) == SPECDEC_OK) {
                const int before = m.first->handed_out - count;

                if (m.first->stats.steps < 2)
                    continue; /* the first token came with the prompt */
                specdec_tokens(m.first, &tokens, &all);
                CHECK_EQUAL_INT(specdec_rewind(other.first, 0), SPECDEC_OK);
                CHECK_EQUAL_INT(specdec_prompt_states(other.first, tokens, before, &final, 1, states), SPECDEC_OK);
                checked += check_proposal(m.first, &g, h.medusa, states + (before - 2) * 64);
            }
            CHECK(checked > 100);
            close_machine(&m);
            close_machine(&other);
            free(f.data);
        }
}

/* --- texts ------------------------------------------------------------------------------------------------------------ */

/* Writes an answer to a prompt, with disturbances that leave the text as it is; the text lies in `text`. */
static int answer(specdec *t, uint64_t *random, int32_t *text)
{
    static float row[VOCAB];
    const int32_t *tokens;
    int32_t prompt[] = {5, 9, 70, 33};
    specdec_settings settings;
    specdec_text piece;
    specdec_result result;
    int count;

    CHECK_EQUAL_INT(specdec_rewind(t, 0), SPECDEC_OK);
    result = specdec_prompt_tokens(t, prompt, 4);
    if (result == SPECDEC_ERROR_CANCELLED) /* a cancel that came as the last answer ended */
        result = specdec_prompt_tokens(t, prompt, 4);
    CHECK_EQUAL_INT(result, SPECDEC_OK);
    specdec_get_settings(t, &settings);
    while (specdec_next(t, &piece) == SPECDEC_OK)
        switch (random ? maker_random(random) % 12 : 99) {
        case 0:
            CHECK_EQUAL_INT(specdec_set(t, &settings), SPECDEC_OK);
            break;
        case 1:
            specdec_cancel(t);
            while ((result = specdec_next(t, &piece)) == SPECDEC_OK) /* what is in stock comes first */
                continue;
            CHECK(result == SPECDEC_ERROR_CANCELLED || result == SPECDEC_DONE);
            break;
        case 2:
            CHECK_EQUAL_INT(specdec_logits(t, NULL, NULL, 0, row), SPECDEC_OK);
            break;
        }
    specdec_tokens(t, &tokens, &count);
    memcpy(text, tokens, (size_t)count * sizeof *text);
    return count;
}

static void test_texts(void)
{
    static int32_t plain[CONTEXT_TOKENS], got[CONTEXT_TOKENS];
    uint64_t random = 4;
    int kind, warm, dynamic, drafting, plain_count = 0, i;

    TEST("heads change no text: greedy and coupled, static and grown trees, alone and with n-grams, disturbed or not");
    for (kind = 0; kind < 4; kind++) /* untied, tied, Medusa, short vocabulary */
        for (warm = 0; warm < 2; warm++) {
            maker_heads_recipe h;
            file f;
            specdec_config c = config_of(NULL);
            machine m;

            memset(&h, 0, sizeof h);
            h.medusa = kind == 2;
            h.tied = kind == 1;
            h.rows = kind == 3 ? 90 : 0;
            h.seed = 21;
            f = make_heads(&h);
            c.settings.sampling.temperature = warm ? 1.3f : 0;
            c.settings.sampling.seed = 77;
            if (!open_machine(&m, &c))
                return;
            plain_count = answer(m.first, NULL, plain);
            close_machine(&m);
            for (dynamic = 0; dynamic < 2; dynamic++)
                for (drafting = 0; drafting < 2; drafting++) {
                    c.heads = source_of(&f);
                    c.policy = dynamic ? SPECDEC_POLICY_DYNAMIC : SPECDEC_POLICY_STATIC;
                    c.drafting = drafting ? SPECDEC_DRAFT_AUTO : SPECDEC_DRAFT_HEADS;
                    c.threads = 1 + drafting;
                    if (!open_machine(&m, &c))
                        return;
                    for (i = 0; i < (quick ? 2 : 6); i++) {
                        CHECK_EQUAL_INT(answer(m.first, i ? &random : NULL, got), plain_count);
                        CHECK(memcmp(got, plain, (size_t)plain_count * sizeof *got) == 0);
                    }
                    CHECK(drafting || m.first->stats.steps_by_drafter[SPECDEC_DRAFT_HEADS] > 0);
                    close_machine(&m);
                }
            free(f.data);
        }
}

/* A draft model of a short vocabulary: made from a whole one by leaving rows out. */
static file short_draft(const maker_recipe *recipe, int rows, int bad)
{
    static maker m;
    maker_tensor *ids, *output;
    int i;

    maker_begin(&m, recipe);
    output = maker_find_tensor(&m, "output.weight");
    output->shape[1] = (uint64_t)rows;
    for (i = 0; i < rows; i++)
        memmove(output->data.data + i * 64 * 4, output->data.data + 2 * i * 64 * 4, 64 * 4);
    output->data.size = (size_t)rows * 64 * 4;
    ids = maker_add_tensor(&m, "d2t", 27, (uint64_t)rows, 0);
    for (i = 0; i < rows; i++)
        maker_put_number(&ids->data, (uint64_t)(bad && i == rows / 2 ? bad : 2 * i), 8);
    return finish(&m);
}

static void test_short_vocabulary(void)
{
    static const specdec_rule rules[] = {SPECDEC_RULE_COUPLED, SPECDEC_RULE_SEQUOIA, SPECDEC_RULE_TOP_K};
    static int32_t plain[CONTEXT_TOKENS], got[CONTEXT_TOKENS];
    maker_recipe recipe;
    specdec_config c = config_of(NULL);
    machine m;
    file draft;
    int i, j, count, odd = 0, drafted = 0;

    TEST("a draft model of a short vocabulary proposes only what is in it, and changes no text");
    memset(&recipe, 0, sizeof recipe);
    recipe.output_type = 1;
    recipe.seed = 31;
    recipe.noise = 0.2f;
    draft = short_draft(&recipe, 150, 0);
    c.settings.sampling.temperature = 1;
    if (!open_machine(&m, &c))
        return;
    count = answer(m.first, NULL, plain);
    close_machine(&m);
    for (i = 0; i < 3; i++) {
        const specdec__proposal *p;

        c.draft = source_of(&draft);
        c.drafting = SPECDEC_DRAFT_MODEL;
        c.rule = rules[i];
        if (!open_machine(&m, &c))
            return;
        p = &m.first->engine->drafters[0].proposals[0];
        if (i == 0) {
            CHECK_EQUAL_INT(answer(m.first, NULL, got), count);
            CHECK(memcmp(got, plain, (size_t)count * sizeof *got) == 0);
        } else {
            answer(m.first, NULL, got);
        }
        for (j = 1; j < p->drafts.tree.n; j++) {
            drafted += p->drafts.tokens[j] >= 0;
            odd += p->drafts.tokens[j] >= 0 && p->drafts.tokens[j] % 2;
        }
        close_machine(&m);
    }
    CHECK(drafted > 8);
    CHECK_EQUAL_INT(odd, 0);
    free(draft.data);
}

/* --- what does not fit ------------------------------------------------------------------------------------------------ */

/* What is wrong with a file of heads. */
typedef struct flaw {
    const char *what;
    int width, vocab;          /* of heads */
    const char *key;           /* set to value */
    uint32_t value;
    const char *tensor;        /* left out, or given another shape: */
    int columns;               /* 0: left out */
    specdec_result result;
    const char *words;
} flaw;

static const flaw flaws[] = {
    {"width", 96, 0, NULL, 0, NULL, 0, SPECDEC_ERROR_MISMATCH, "states of 96"},
    {"vocabulary", 0, 333, NULL, 0, NULL, 0, SPECDEC_ERROR_MISMATCH, "vocabulary of 333"},
    {"no guesses", 0, 0, "mlp_speculator.n_predict", 0, NULL, 0, SPECDEC_ERROR_FORMAT, "n_predict"},
    {"a hundred guesses", 0, 0, "mlp_speculator.n_predict", 100, NULL, 0, SPECDEC_ERROR_FORMAT, "n_predict"},
    {"more guesses than heads", 0, 0, "mlp_speculator.n_predict", 4, NULL, 0, SPECDEC_ERROR_FORMAT, "speculator.proj.3.weight"},
    {"no table", 0, 0, NULL, 0, "speculator.emb.1.weight", 0, SPECDEC_ERROR_FORMAT, "speculator.emb.1.weight is missing"},
    {"no output", 0, 0, NULL, 0, "speculator.head.2.weight", 0, SPECDEC_ERROR_FORMAT, "speculator.head.2.weight is missing"},
    {"no input", 0, 0, NULL, 0, "speculator.proj.0.weight", 0, SPECDEC_ERROR_FORMAT, "speculator.proj.0.weight is missing"},
    {"no norm", 0, 0, NULL, 0, "speculator.ln.0.bias", 0, SPECDEC_ERROR_FORMAT, "speculator.ln.0.bias is missing"},
    {"a short norm", 0, 0, NULL, 0, "speculator.ln.0.weight", 64, SPECDEC_ERROR_FORMAT, "speculator.ln.0.weight"},
    {"an inner width of none", 0, 0, "mlp_speculator.inner_length", 0, NULL, 0, SPECDEC_ERROR_FORMAT, "inner_length"},
    {"an inner width that is another", 0, 0, "mlp_speculator.inner_length", 128, NULL, 0, SPECDEC_ERROR_FORMAT, "128"},
    {"no vocabulary", 0, 0, "mlp_speculator.vocab_size", 0, NULL, 0, SPECDEC_ERROR_FORMAT, "vocab_size"},
};

static void test_flaws(void)
{
    static maker m;
    maker_heads_recipe h;
    maker_recipe recipe;
    specdec_config c;
    size_t i;
    file f;

    TEST("files of heads that do not fit are refused, and the error names what is wrong");
    for (i = 0; i < sizeof flaws / sizeof flaws[0]; i++) {
        maker_tensor *t;

        memset(&h, 0, sizeof h);
        h.embedding = flaws[i].width;
        h.vocab = flaws[i].vocab;
        maker_begin_heads(&m, &h);
        if (flaws[i].key)
            maker_u32(&m, flaws[i].key, flaws[i].value);
        t = flaws[i].tensor ? maker_find_tensor(&m, flaws[i].tensor) : NULL;
        if (t && flaws[i].columns)
            t->shape[0] = (uint64_t)flaws[i].columns;
        else if (t)
            t->name[0] = 'x';
        f = finish(&m);
        c = config_of(&f);
        refused(flaws[i].what, &c, flaws[i].result, flaws[i].words);
        free(f.data);
    }
    memset(&h, 0, sizeof h);
    f = make_heads(&h);
    c = config_of(&f);
    c.draft = c.heads;
    c.drafting = SPECDEC_DRAFT_MODEL;
    refused("heads as a draft model", &c, SPECDEC_ERROR_MISMATCH, "file of heads");
    c = config_of(&f);
    c.target = c.heads;
    refused("heads as the target", &c, SPECDEC_ERROR_MISMATCH, "file of heads");
    c = config_of(&target);
    refused("a model as heads", &c, SPECDEC_ERROR_MISMATCH, "language model");
    c = config_of(NULL);
    c.drafting = SPECDEC_DRAFT_HEADS;
    refused("no heads", &c, SPECDEC_ERROR_ARGUMENT, "heads");
    free(f.data);

    TEST("a short vocabulary with tokens that there are not is refused");
    h.rows = 400;
    f = make_heads(&h);
    c = config_of(&f);
    refused("more tokens than the vocabulary", &c, SPECDEC_ERROR_FORMAT, "speculator.tokens");
    free(f.data);
    memset(&recipe, 0, sizeof recipe);
    recipe.output_type = 1;
    f = short_draft(&recipe, 100, 301);
    c = config_of(NULL);
    c.draft = source_of(&f);
    c.drafting = SPECDEC_DRAFT_MODEL;
    refused("a token out of range", &c, SPECDEC_ERROR_FORMAT, "d2t names a token at 50");
    free(f.data);
    f = short_draft(&recipe, 100, 0);
    c.draft = source_of(&f);
    c.target = c.draft;
    refused("a target of a short vocabulary", &c, SPECDEC_ERROR_MISMATCH, "short vocabulary");
    free(f.data);
}

static const struct {
    const char *name;
    void (*run)(void);
} tests[] = {{"states", test_states}, {"golden", test_golden}, {"bits", test_bits}, {"proposals", test_proposals},
             {"texts", test_texts}, {"short_vocabulary", test_short_vocabulary}, {"flaws", test_flaws}};

int main(int argc, char **argv)
{
    maker_recipe r;
    size_t i;

    quick = getenv("SPECDEC_QUICK") != NULL;
    memset(&r, 0, sizeof r);
    r.output_type = 1;
    r.seed = 31;
    target = random_file(&r);
    for (i = 0; i < sizeof tests / sizeof tests[0]; i++)
        if (argc < 2 || strcmp(argv[1], tests[i].name) == 0)
            tests[i].run();
    free(target.data);
    return check_report("test_heads");
}
