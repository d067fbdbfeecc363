/* fuzz_api.c - any sequence of public calls: those that fail change nothing, and the text is that of an undisturbed
   engine.
   clang -g -O1 -fsanitize=fuzzer,address,undefined -pthread -I. tests/fuzz_api.c -o build/fuzz_api
   build/fuzz_api -max_len=2048 CORPUS_FOLDER; FUZZ_TRACE=1 build/fuzz_api crash-... prints the calls
   FUZZ_PAIR=1: with the pair in examples/models instead of tiny random models, a hundred times slower

   The bytes are a configuration (32) and then calls (8 each). Three engines: the subject gets all calls, cancels and
   nonsense among them. The oracle gets those that succeeded and change the text; it is a plain engine (no drafting, one
   thread) where the subject must write the very text of plain decoding, else one of the same configuration. The reader
   answers questions that must not disturb either: how many tokens a text has, the logits after a text. tests/test_api.c
   runs the same without libFuzzer. Time does not count, so that a sequence always does the same (but for threads). */
#define SPECDEC_NO_SIMD /* kernels are not the matter here: builds in a third of the time */
#define SPECDEC_NO_CLOCK
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "gguf_maker.h"
#include <math.h>

static specdec_error failure; /* of the last call that failed before there was an engine */

#ifdef __cplusplus
extern "C"
#endif
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CONFIG_BYTES = 32, CALL_BYTES = 8, MOST_VOCABULARY = 4096, MOST_TOKENS = 512, MOST_TEXT = 16384 };
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* --- models ------------------------------------------------------------------------------------------------------- */

enum { PLAIN, NOISY, FOREIGN, QUANTISED, MODELS };

static const char *const model_names[MODELS] = {"plain", "noisy", "foreign", "quantised"};
enum { SETS = 8 };
static int vocabulary = 420; /* tokens of all of them */

static struct {
    unsigned char *data; /* NULL: at path */
    size_t size;
    const char *path;
    specdec_model *prepared;
} sets[SETS][MODELS], *models = sets[0];

/* What target and noisy draft are of, in each set. */
static const char *const set_names[SETS] = {"llama", "lfm2", "granitehybrid", "qwen35", "falcon-h1", "nemotron_h", "gemma4", "gemma3n"};

/* A model that several engines share. */
static specdec_model *prepare(int i)
{
    specdec_config config;
    specdec_model *model;
    size_t bytes;

    memset(&config, 0, sizeof config);
    config.target.data = models[i].data;
    config.target.size = models[i].size;
    config.target.path = models[i].path;
    config.threads = 1;
    if (specdec_model_memory_needed(&config, &bytes, &failure) || specdec_model_init(&model, &config, malloc(bytes), bytes, &failure)) {
        fprintf(stderr, "%s\n", failure.text);
        abort();
    }
    return model;
}

/* The pair in examples/models. Without it, nothing is tried. */
static void find_pair(void)
{
    int i;

    vocabulary = 4096;
    for (i = 0; i < MODELS; i++) {
        models[i].path = i == PLAIN || i == QUANTISED ? "examples/models/tiny-stories-target-q8_0.gguf"
                                                      : "examples/models/tiny-stories-draft-q8_0.gguf";
        models[i].prepared = prepare(i);
    }
}

/* Makes the words that end in a, b, c or d likelier, and bytes that are no word seldom: stop strings of these letters
   begin often then, and half characters now and then. Floats only. */
static void prefer_words(maker *m, const char *matrix, int columns)
{
    maker_tensor *t = m->tensor;
    char text[64];
    int token, i;

    while (strcmp(t->name, matrix) != 0)
        t++;
    for (token = 3; token < vocabulary; token++) {
        int length = maker_token(token, text, sizeof text), last = text[length - 1];
        float factor = token < 260 ? 0.4f : last <= 'd' ? 1.6f : 0.8f;

        for (i = 0; i < columns; i++) {
            unsigned char *at = t->data.data + 4 * ((size_t)token * (size_t)columns + (size_t)i);

            specdec__store_u32(at, specdec__bits_from_float(factor * specdec__load_f32(at)));
        }
    }
}

static unsigned char *make_model(const maker_recipe *r, size_t *size)
{
    maker *m = (maker *)malloc(sizeof *m);
    unsigned char *data;

    if (!m)
        exit(1);
    maker_begin(m, r);
    if (r->output_type)
        prefer_words(m, "output.weight", r->embedding);
    maker_write(m);
    *size = m->file.size;
    data = m->file.data;
    m->file.data = NULL; /* stays */
    maker_free(m);
    free(m);
    return data;
}

/* Small random models of one vocabulary: a target, one that often agrees with it, a smaller one, a quantised one. */
static void make_models(int set)
{
    maker_recipe r[MODELS];
    int i;

    models = sets[set];
    memset(r, 0, sizeof r);
    r[PLAIN].architecture = r[NOISY].architecture = set_names[set];
    r[PLAIN].experts = r[NOISY].experts = set ? -1 : 0;
    r[PLAIN].layers = r[NOISY].layers = set ? 3 : 0; /* one of each kind */
    r[PLAIN].seed = r[NOISY].seed = 11;
    r[PLAIN].output_type = r[NOISY].output_type = r[FOREIGN].output_type = r[QUANTISED].output_type = 1;
    r[NOISY].noise = 0.25f;
    r[FOREIGN].seed = 12;
    r[FOREIGN].architecture = "qwen3";
    r[FOREIGN].layers = 1;
    r[QUANTISED].seed = 13;
    r[QUANTISED].architecture = "qwen2";
    r[QUANTISED].types[0] = 9;
    r[QUANTISED].types[1] = 3;
    r[QUANTISED].may_end = 1;
    for (i = 0; i < MODELS; i++) {
        r[i].vocab = vocabulary;
        r[i].embedding = r[i].feed_forward = 32;
        r[i].heads = 2;
        r[i].kv_heads = 1;
        models[i].data = make_model(&r[i], &models[i].size);
        models[i].prepared = prepare(i);
    }
}

/* Heads that guess at random, for all of them. */
static struct {
    unsigned char *data;
    size_t size;
} heads;

static void make_heads(void)
{
    maker *m = (maker *)malloc(sizeof *m);
    maker_heads_recipe r;

    if (!m)
        exit(1);
    memset(&r, 0, sizeof r);
    r.vocab = vocabulary;
    r.embedding = 32;
    r.seed = 5;
    maker_begin_heads(m, &r);
    maker_write(m);
    heads.data = m->file.data;
    heads.size = m->file.size;
    m->file.data = NULL; /* stays */
    maker_free(m);
    free(m);
}

/* --- the world ---------------------------------------------------------------------------------------------------- */

/* How the oracle knows the text. */
typedef enum oracle_kind {
    ORACLE_PLAIN, /* the text of plain decoding, token by token */
    ORACLE_TWIN,  /* the text of an engine of the same configuration that was not disturbed */
    ORACLE_NONE   /* none: automatic trees depend on what was tried, after a cancel, and rejection rules on trees */
} oracle_kind;

typedef struct side {
    specdec *engine;
    specdec_config config;
    unsigned char *block; /* room bytes; the engine lies at its very end */
    size_t room;
} side;

typedef struct world {
    const uint8_t *data; /* bytes not yet used, of this call's */
    size_t left;
    uint64_t random;     /* for long arguments, from the call's bytes */
    int trace;

    side subject, oracle, reader;
    oracle_kind kind;
    char stops[2][8][8]; /* those that are set, and those before or after them */
    int stops_at;
    int pending;         /* a cancel may still be on its way */

    int32_t tokens[MOST_TOKENS]; /* the subject's, before a call */
    int count;
    int32_t past[MOST_TOKENS]; /* tokens of a text that was cut: prompts may begin so again */
    int past_count;
    int64_t prompted;    /* tokens of all prompts */
    char answer[MOST_TEXT]; /* what next has handed out since answer_from */
    size_t length;
    int answer_from;
    int64_t slid, answer_slid; /* tokens that slid out of the context before a call, and before the answer */
    int pure;            /* all of the answer came from next */
    int ended;           /* the answer is complete, or there is none */
    int full;            /* a prompt did not fit any more */
    int obeys;           /* the engine has room for constraints */
} world;

static int draw(world *w, unsigned below)
{
    int value = w->left ? (int)(*w->data % below) : 0;

    w->data += w->left > 0;
    w->left -= w->left > 0;
    return value;
}

/* A number below `below` that may be above 256, for contents that no mutation needs to reach. */
static int dice(world *w, unsigned below)
{
    return (int)(maker_random(&w->random) % below);
}

/* What the sequence has done so far, when somebody wants to see it. */
static void say(const world *w, const char *format, ...)
{
    va_list arguments;

    if (!w->trace)
        return;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
}

/* A promise of the library. */
#define PROMISE(w, condition, what) \
    do { \
        if (!(condition)) { \
            say(w, "\nBROKEN: %s (%s, line %d)\n", what, #condition, __LINE__); \
            abort(); \
        } \
    } while (0)

/* --- cancelling --------------------------------------------------------------------------------------------------- */

/* A cancel in the middle of a call: when the subject has worked out so many norms, or from its progress hook. */
static specdec *cancel_target;
static int cancel_norms, cancel_progress, cancel_fired; /* fired: the norms have cancelled; several threads count them down */
static void (*true_norm)(const float *x, const float *weight, float epsilon, int length, int from, int to, float *out);

static void counting_norm(const float *x, const float *weight, float epsilon, int length, int from, int to, float *out)
{
    if (__atomic_load_n(&cancel_norms, __ATOMIC_RELAXED) > 0 &&
        __atomic_sub_fetch(&cancel_norms, 1, __ATOMIC_RELAXED) == 0) {
        __atomic_store_n(&cancel_fired, 1, __ATOMIC_RELAXED);
        specdec_cancel(cancel_target);
    }
    true_norm(x, weight, epsilon, length, from, to, out);
}

static int on_progress(void *user_data, const char *what, int done, int total)
{
    const world *w = (const world *)user_data;

    PROMISE(w, what && total > 0 && done > 0 && done <= total, "progress makes sense");
    if (cancel_progress > 0 && --cancel_progress == 0 && strcmp(what, "prefill") == 0)
        return 1;
    return 0;
}

/* --- configurations ----------------------------------------------------------------------------------------------- */

static specdec_source draw_source(world *w, int model)
{
    specdec_source source;

    memset(&source, 0, sizeof source);
    source.model = draw(w, 3) ? NULL : models[model].prepared;
    source.data = models[model].data;
    source.size = models[model].size;
    source.path = models[model].path;
    source.copy = draw(w, 2);
    return source;
}

static void draw_sampling(world *w, specdec_sampling *s)
{
    static const float temperatures[] = {0, 0.8f, 0, 1.0f, 1.5f, 0.3f}, penalties[] = {0, 0, 1.3f, 0.9f};
    static const float top_p[] = {0, 0, 0.9f, 0.5f}, min_p[] = {0, 0, 0.05f};
    static const int32_t top_k[] = {0, 0, 40, 5, 1}, windows[] = {0, -1, 8};
    static const specdec_bias biases[] = {{20, 2.0f}, {25, -INFINITY}, {20, 1.0f}, {100000, 5.0f}};

    s->temperature = temperatures[draw(w, COUNT(temperatures))];
    s->top_k = top_k[draw(w, COUNT(top_k))];
    s->top_p = top_p[draw(w, COUNT(top_p))];
    s->min_p = min_p[draw(w, COUNT(min_p))];
    s->repetition_penalty = penalties[draw(w, COUNT(penalties))];
    s->repetition_window = windows[draw(w, COUNT(windows))];
    s->seed = (uint64_t)draw(w, 256);
    s->biases = biases;
    s->bias_count = draw(w, 8) == 7 ? 4 : 0;
    switch (draw(w, 10)) { /* 0: none of the rarer samplers */
    case 1: s->frequency_penalty = 0.4f; s->presence_penalty = -0.1f; break;
    case 2: s->dry_multiplier = 1; s->dry_allowed_length = 1; s->dry_breakers[0] = 'e'; break;
    case 3: s->xtc_probability = 0.6f; s->xtc_threshold = 0.02f; break;
    case 4: s->typical_p = 0.7f; break;
    case 5: s->top_n_sigma = 1.5f; s->temperature_range = 0.4f; break;
    case 6: s->mirostat_tau = 3; s->mirostat_rate = 0.5f; break;
    case 7: s->samplers[0] = SPECDEC_SAMPLER_TEMPERATURE; s->samplers[1] = SPECDEC_SAMPLER_TOP_P; s->samplers[2] = SPECDEC_SAMPLER_PENALTIES; break;
    default: break;
    }
}

/* Constraints, compiled once. */
enum { CONSTRAINTS = 5 };

static const specdec_constraint *constraint_of(int i)
{
    static const char *const choices[] = {"a", "ab", "abc", "d d d d", "b\n"};
    static const specdec_constraint_source sources[CONSTRAINTS] = {
        {SPECDEC_CONSTRAINT_REGEX, "([a-d]+[^a-d]){1,30}", SPECDEC_WHOLE_STRING, NULL, 0, NULL, 0},
        {SPECDEC_CONSTRAINT_SCHEMA, "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":9},\"b\":{\"type\":\"boolean\"}}}",
         SPECDEC_WHOLE_STRING, NULL, 0, NULL, 1},
        {SPECDEC_CONSTRAINT_CHOICES, NULL, 0, choices, 5, NULL, 0},
        {SPECDEC_CONSTRAINT_GBNF, "root ::= [^\\n]* \"!\"?", SPECDEC_WHOLE_STRING, NULL, 0, NULL, 0},
        {SPECDEC_CONSTRAINT_JSON, NULL, 0, NULL, 0, NULL, 0}};
    static const specdec_constraint *made[CONSTRAINTS];

    if (!made[i] && specdec_constraint_init(&made[i], &sources[i], malloc(4 << 20), 4 << 20, &failure)) {
        fprintf(stderr, "%s\n", failure.text);
        abort();
    }
    return made[i];
}

/* Half of all tokens, by the one before, but never those that end a text. */
static void allow_half(void *user_data, const int32_t *tokens, int count, uint32_t *mask)
{
    int i;

    (void)user_data;
    for (i = 3 + (count && tokens[count - 1] % 2); i < vocabulary; i += 2)
        mask[i / 32] &= ~(1u << i % 32);
}

/* What the answer obeys, mostly nothing, and how long it is at least. */
static void draw_constraint(world *w, specdec_settings *settings)
{
    const int which = draw(w, 2 * CONSTRAINTS + 2), least = draw(w, 6);

    settings->constraint = which > 0 && which <= CONSTRAINTS ? constraint_of(which - 1) : NULL;
    settings->allow = which == CONSTRAINTS + 1 ? allow_half : NULL;
    settings->min_tokens = least == 5 ? 1 + draw(w, 30) : 0;
}

/* Up to eight strings of letters that are often written; most begin like an answer and do not go on like it. */
static void draw_stops(world *w, specdec_settings *settings)
{
    int count = draw(w, 2) ? 0 : draw(w, 9), i, j;

    w->random = (uint64_t)draw(w, 256);
    w->stops_at ^= 1;
    memset(settings->stop, 0, sizeof settings->stop);
    for (i = 0; i < count; i++) {
        int length = 1 + dice(w, 2) + dice(w, 2) + dice(w, 2);

        for (j = 0; j < length; j++)
            w->stops[w->stops_at][i][j] = "abcd "[dice(w, j ? 5 : 4)];
        w->stops[w->stops_at][i][j] = 0;
        settings->stop[i] = w->stops[w->stops_at][i];
    }
}

/* The oracle's and the reader's configurations follow from the subject's. */
static void derive(world *w)
{
    specdec_config *oracle = &w->oracle.config, *reader = &w->reader.config;
    const specdec_config *c = &w->subject.config;
    int rejects = c->settings.sampling.temperature > 0 && c->rule != SPECDEC_RULE_COUPLED;

    w->kind = !rejects ? ORACLE_PLAIN : c->heads.data ? ORACLE_NONE : ORACLE_TWIN; /* heads are not always ready */
    *oracle = *c;
    memset(&oracle->hooks, 0, sizeof oracle->hooks);
    oracle->threads = 1;
    oracle->batch = 0;
    oracle->weights_in_place = 0;
    oracle->target.model = NULL;
    oracle->prefixes = w->kind == ORACLE_PLAIN ? -1 : 0;
    if (w->kind == ORACLE_PLAIN) {
        oracle->drafting = SPECDEC_DRAFT_OFF;
        oracle->rule = SPECDEC_RULE_COUPLED;
        memset(&oracle->draft, 0, sizeof oracle->draft);
        memset(&oracle->heads, 0, sizeof oracle->heads);
    }
    memset(reader, 0, sizeof *reader);
    reader->target = oracle->target;
    reader->kv = c->kv;
    reader->context = MOST_TOKENS;
    reader->threads = 1;
    reader->drafting = SPECDEC_DRAFT_OFF;
}

static void say_config(const world *w, const char *target, const char *draft)
{
    const specdec_config *c = &w->subject.config;
    const specdec_sampling *s = &c->settings.sampling;
    int i;

    say(w, "init: %s, target %s, draft %s, drafting %d, verifier %d, policy %d, tree %d/%d, context %d,\n", models[PLAIN].prepared->architecture->name, target, draft,
        (int)c->drafting, (int)c->rule, (int)c->policy, c->tree_size, c->tree_depth, c->context);
    say(w, "      checkpoint %d, ", c->checkpoint);
    say(w, "      batch %d, threads %d, async %d, kv %s, in place %d, prepared %d,\n", c->batch, c->threads, c->async,
        c->kv ? c->kv : "default", c->weights_in_place, c->target.model != NULL);
    say(w, "      max_tokens %d, slide %d, special %d, chat %s,\n", c->settings.max_tokens, c->settings.slide,
        c->settings.show_special,
        c->chat_format ? c->chat_format : "none");
    say(w, "      temperature %g, top_k %d, top_p %g, min_p %g, penalty %g over %d, seed %d", (double)s->temperature,
        (int)s->top_k, (double)s->top_p, (double)s->min_p, (double)s->repetition_penalty, (int)s->repetition_window,
        (int)s->seed);
    for (i = 0; i < 8 && c->settings.stop[i]; i++)
        say(w, "%s\"%s\"", i ? ", " : ", stop ", c->settings.stop[i]);
    say(w, ", constraint %p, allow %d, constraints %d, min_tokens %d\n", (const void *)c->settings.constraint, c->settings.allow != NULL,
        c->constraints, c->settings.min_tokens);
}

/* Whether a model has recurrent layers. */
static int recurrent(int model) { return models[model].prepared->recurrent_sizes.kind != 0; }

/* Whether all layers of a model see the whole text, which two levels need. */
static int sees_all(int model) { return !recurrent(model) && !models[model].prepared->span_layers[SPECDEC__WINDOW]; }

static void draw_config(world *w)
{
    static const int contexts[] = {100, 128, 80, 200, 65, 48, 16}, slides[] = {0, 4, 0, 1, 20}, batches[] = {0, 1, 2, 3, 5, 8, 17};
    static const int sizes[] = {0, 5, 8, 16, 2, 3, 64}, depths[] = {0, 3, 5, 2, 8, 32}, limits[] = {0, 0, 0, 20, 3};
    static const int drafts[] = {MODELS, NOISY, -1, MODELS, NOISY, FOREIGN, QUANTISED}; /* MODELS: the target itself */
    static const specdec_drafting draftings[] = {SPECDEC_DRAFT_MODEL, SPECDEC_DRAFT_AUTO, SPECDEC_DRAFT_MODEL,
                                                 SPECDEC_DRAFT_NGRAM, SPECDEC_DRAFT_OFF};
    static const char *const kv[] = {NULL, "f32", "q8_0"};
    static const char *const chats[] = {NULL, "zephyr", "llama2", "mistral", "tulu"}; /* whose tokens all models have */
    specdec_config *c = &w->subject.config;
    int target, draft, named;

    memset(c, 0, sizeof *c);
    target = draw(w, 3) ? PLAIN : draw(w, MODELS);
    draft = drafts[draw(w, COUNT(drafts))];
    draft = draft == MODELS ? target : draft;
    named = target;
    c->target = draw_source(w, target);
    if (draft >= 0)
        c->draft = draw_source(w, draft);
    c->drafting = draftings[draw(w, COUNT(draftings))];
    if (heads.data && draw(w, 2)) {
        c->heads.data = heads.data;
        c->heads.size = heads.size;
        c->drafting = draw(w, 2) ? SPECDEC_DRAFT_HEADS : c->drafting;
    }
    if (draft < 0 && c->drafting == SPECDEC_DRAFT_MODEL)
        c->drafting = SPECDEC_DRAFT_AUTO;
    if (target == PLAIN && draw(w, 3) == 0 && sees_all(target)) {
        c->drafting = draw(w, 3) ? SPECDEC_DRAFT_TRIFORCE : c->drafting;
        c->retrieval = 16 + draw(w, 30);
        c->retrieval_chunk = draw(w, 2) ? 0 : 1 + draw(w, 20);
    }
    c->rule = (specdec_rule)draw(w, SPECDEC_RULE_GREEDY);
    c->policy = (specdec_policy)draw(w, SPECDEC_POLICY_COUNT);
    c->screening = (specdec_screening)draw(w, SPECDEC_SCREENING_COUNT);
    c->tree_size = sizes[draw(w, COUNT(sizes))];
    c->tree_depth = depths[draw(w, COUNT(depths))];
    target = draw(w, COUNT(contexts) * COUNT(slides)); /* of one byte: there are just enough */
    c->context = contexts[target % (int)COUNT(contexts)];
    c->settings.slide = slides[target / (int)COUNT(contexts)];
    c->settings.slide = c->settings.slide < c->context - 1 && !recurrent(named) ? c->settings.slide : 0;
    c->batch = batches[draw(w, COUNT(batches))];
    c->threads = draw(w, 4) ? 1 : 1 + draw(w, 3);
    c->async = c->threads - 2; /* none, where it pays, or always */
    c->kv = kv[draw(w, COUNT(kv))];
    c->weights_in_place = draw(w, 2);
    c->checkpoint = recurrent(named) ? 1 + c->context / (1 + draw(w, 9)) : 0;
    c->cache = c->weights_in_place ? 3 * c->context : 0; /* then beginnings of texts that were cut are kept */
    c->settings.max_tokens = limits[draw(w, COUNT(limits))];
    c->settings.show_special = draw(w, 2);
    c->chat_format = chats[draw(w, COUNT(chats))];
    draw_sampling(w, &c->settings.sampling);
    draw_stops(w, &c->settings);
    draw_constraint(w, &c->settings);
    c->constraints = draw(w, 2);
    w->obeys = c->constraints || c->settings.constraint || c->settings.allow;
    c->hooks.user_data = w;
    c->hooks.progress = on_progress;
    derive(w);
    say_config(w, model_names[named], draft < 0 ? "none" : model_names[draft]);
}

/* --- engines ------------------------------------------------------------------------------------------------------ */

/* Makes the engine of a side. The block is kept where it is large enough, and full of what was in it. */
static void open_side(const world *w, side *s)
{
    specdec_result result;
    unsigned char *block;
    size_t bytes = 0;

    result = specdec_memory_needed(&s->config, &bytes, &failure);
    if (result)
        say(w, "%s\n", failure.text);
    PROMISE(w, result == SPECDEC_OK, "a good configuration is accepted");
    if (bytes > s->room) {
        free(s->block);
        s->room = bytes + 5;
        s->block = (unsigned char *)malloc(s->room);
        if (!s->block)
            exit(1);
        memset(s->block, 0xA5, s->room);
    }
    block = s->block + s->room - bytes;
    result = specdec_init(&s->engine, &s->config, block, bytes - 1, &failure);
    PROMISE(w, result == SPECDEC_ERROR_MEMORY && !s->engine, "one byte less than needed is refused");
    PROMISE(w, specdec_init(&s->engine, &s->config, block, bytes, &failure) == SPECDEC_OK, "what is needed is enough");
}

static void open_all(world *w)
{
    open_side(w, &w->subject);
    open_side(w, &w->oracle);
    open_side(w, &w->reader);
    w->prompted = 0;
    w->pending = w->count = w->answer_from = 0;
    w->slid = w->answer_slid = 0;
    w->length = 0;
    w->pure = w->full = 0;
    w->ended = 1;
    cancel_target = w->subject.engine;
    true_norm = w->subject.engine->engine->kernels->norm;
    w->subject.engine->engine->kernels->norm = counting_norm;
}

static void close_all(world *w)
{
    specdec_deinit(w->subject.engine);
    specdec_deinit(w->oracle.engine);
    specdec_deinit(w->reader.engine);
}

/* Tokens that slid out of the subject's context. */
static int64_t slid_of(const world *w)
{
    specdec_stats stats;

    specdec_get_stats(w->subject.engine, &stats);
    return stats.slid;
}

/* Does an engine hold exactly the tokens that the world remembers? */
static int holds(const world *w, const specdec *engine)
{
    const int32_t *tokens;
    int count;

    specdec_tokens(engine, &tokens, &count);
    return count == w->count && memcmp(tokens, w->tokens, (size_t)count * sizeof *tokens) == 0;
}

/* Remembers the subject's tokens. */
static void remember(world *w)
{
    const int32_t *tokens;

    specdec_tokens(w->subject.engine, &tokens, &w->count);
    PROMISE(w, w->count >= 0 && w->count <= w->subject.config.context, "the text fits into the context");
    memcpy(w->tokens, tokens, (size_t)w->count * sizeof *tokens);
    w->slid = slid_of(w);
}

/* What holds after every call of the subject. expected: SPECDEC_OK, or what the arguments deserve. A cancel may come
   instead of anything that runs the model (cancellable). Returns 1 when the call succeeded. */
static int settle(world *w, specdec_result result, specdec_result expected, int cancellable)
{
    specdec *e = w->subject.engine;

    if (cancel_fired || cancel_progress == 0)
        w->pending = 1;
    cancel_norms = cancel_progress = -1;
    cancel_fired = 0;
    w->ended |= result == SPECDEC_DONE;
    w->full |= result == SPECDEC_ERROR_CONTEXT;
    say(w, " -> %s", specdec_result_text(result));
    if (result == SPECDEC_OK || (result == SPECDEC_DONE && expected == SPECDEC_OK)) {
        PROMISE(w, expected == SPECDEC_OK, "a call with bad arguments fails");
        remember(w);
        say(w, ", %d tokens\n", w->count);
        return 1;
    }
    say(w, " (%s)\n", specdec_error_text(e));
    PROMISE(w, specdec_error_text(e)[0], "an error has a text");
    PROMISE(w, holds(w, e), "a failed call leaves the text as it was");
    if (result == SPECDEC_ERROR_CANCELLED) {
        PROMISE(w, cancellable && w->pending, "only what was cancelled is cancelled");
        w->pending = 0;
        if (w->kind == ORACLE_TWIN && w->subject.config.drafting == SPECDEC_DRAFT_AUTO)
            w->kind = ORACLE_NONE;
        return 0;
    }
    PROMISE(w, result == expected, "the error is the one that the arguments deserve");
    return 0;
}

/* The oracle did the same and must have the same text. */
static void agree(world *w, specdec_result result, specdec_result oracles)
{
    if (w->kind == ORACLE_NONE)
        return;
    PROMISE(w, result == oracles, "the undisturbed engine comes to the same result");
    PROMISE(w, holds(w, w->oracle.engine), "the text is that of an undisturbed engine");
}

/* --- calls that read ---------------------------------------------------------------------------------------------- */

/* Letters, spaces, and now and then any byte. */
static size_t make_text(world *w, char *text, size_t length)
{
    int rough = draw(w, 4) == 0;
    size_t i;

    for (i = 0; i < length; i++)
        text[i] = (char)(rough ? 1 + dice(w, 255) : "abcdefgh it "[dice(w, 12)]);
    return length;
}

/* What a prompt of n good tokens deserves. */
static specdec_result deserved(const world *w, size_t n)
{
    if (!n && !w->count)
        return SPECDEC_ERROR_ARGUMENT;
    return n >= (size_t)(w->subject.config.context - w->count) ? SPECDEC_ERROR_CONTEXT : SPECDEC_OK;
}

/* A prompt takes back what was cancelled before it, unless it is refused. Returns whether something was. */
static int take_back(world *w)
{
    const int pending = w->pending;

    w->pending = 0;
    return pending;
}

/* The same, once the prompt has come back. */
static int settle_prompt(world *w, specdec_result result, specdec_result expected, int pending)
{
    const int good = settle(w, result, expected, 1);

    w->pending |= pending && result && result != SPECDEC_ERROR_CANCELLED;
    return good;
}

/* A prompt was read: a new answer begins. */
static void begin_answer(world *w, int64_t read)
{
    w->prompted += read;
    w->answer_from = w->count;
    w->answer_slid = w->slid;
    w->length = 0;
    w->pure = 1;
    w->ended = !w->count;
    w->full = 0;
}

/* Tokens of a text by an engine's model. */
static specdec_result tokenize(const specdec *e, const char *text, size_t length, int flags, int32_t *tokens, int capacity,
                               int *count)
{
    static char memory[100000];
    const specdec_model *model = specdec_get_model(e);

    return specdec_tokenize(model, text, length, flags, tokens, capacity, count, memory,
                            specdec_tokenize_memory(model, length), &failure);
}

/* How text behind the text is made tokens. */
static int prompt_flags(const world *w)
{
    const specdec__vocab *v = &w->reader.engine->model->vocab;

    if (!w->count)
        return SPECDEC_TOKENIZE_BEGIN;
    return specdec__vocab_type_is_special(specdec__vocab_token_type(v, (uint32_t)w->tokens[w->count - 1]))
               ? 0
               : SPECDEC_TOKENIZE_INSIDE;
}

static void call_prompt(world *w)
{
    static const size_t lengths[] = {3, 1, 5, 9, 2, 20, 4, 40, 0, 6, 100, 7, 300, 1000, 8, 5000};
    char text[5001];
    size_t length = make_text(w, text, lengths[draw(w, COUNT(lengths))]);
    specdec_result expected = SPECDEC_ERROR_CONTEXT, result;
    int before = w->count, n = 0, pending;

    if (length <= 16 * (size_t)w->subject.config.context) {
        result = tokenize(w->reader.engine, text, length, prompt_flags(w), NULL, 0, &n);
        PROMISE(w, result == (n ? SPECDEC_ERROR_BUFFER : SPECDEC_OK), "a text can be counted");
        expected = deserved(w, (size_t)n);
    }
    say(w, "prompt of %zu bytes (%d tokens)", length, n);
    pending = take_back(w);
    result = specdec_prompt(w->subject.engine, text, length);
    if (!settle_prompt(w, result, expected, pending))
        return;
    PROMISE(w, w->count == before + n, "a prompt appends its tokens");
    begin_answer(w, n);
    agree(w, result, specdec_prompt(w->oracle.engine, text, length));
}

static void call_prompt_tokens(world *w)
{
    static const int lengths[] = {2, 3, 1, 4, 7, 2, 15, 3, 40, 5, 0, 120, 2, 400};
    const int32_t bad[] = {-1, vocabulary, INT32_MAX, INT32_MIN};
    int32_t tokens[400];
    int n = lengths[draw(w, COUNT(lengths))], wrong = draw(w, 6) == 5 && n, before = w->count, pending, again, i;
    specdec_result result, expected;

    for (i = 0; i < n; i++)
        tokens[i] = dice(w, (unsigned)vocabulary);
    again = dice(w, 2) ? w->past_count - before : 0;
    for (i = 0; i < n && i < again; i++)
        tokens[i] = w->past[before + i];
    if (wrong)
        tokens[dice(w, (unsigned)n)] = bad[dice(w, 4)];
    expected = wrong ? SPECDEC_ERROR_ARGUMENT : deserved(w, (size_t)n);
    say(w, "prompt_tokens of %d%s", n, wrong ? ", one is none" : "");
    pending = take_back(w);
    result = specdec_prompt_tokens(w->subject.engine, tokens, n);
    if (wrong && result == SPECDEC_ERROR_CONTEXT)
        expected = result; /* either will do when both are wrong */
    if (!settle_prompt(w, result, expected, pending))
        return;
    PROMISE(w, memcmp(w->tokens + before, tokens, (size_t)n * sizeof *tokens) == 0, "a prompt appends its tokens");
    begin_answer(w, n);
    agree(w, result, specdec_prompt_tokens(w->oracle.engine, tokens, n));
}

static void call_chat(world *w)
{
    static const int counts[] = {1, 2, 3, 0, 65};
    specdec_message messages[65];
    specdec_result result, expected;
    int count = counts[draw(w, COUNT(counts))], before = w->count, pending, i;
    char text[40];

    for (i = 0; i < 65; i++) {
        messages[i].role = (specdec_role)(i % 2 ? SPECDEC_ASSISTANT : SPECDEC_USER);
        messages[i].text = text;
        messages[i].special = i % 3 == 0;
        messages[i].length = make_text(w, text, (size_t)dice(w, 12));
    }
    expected = count == 0 ? SPECDEC_ERROR_ARGUMENT : SPECDEC_OK;
    expected = w->subject.config.chat_format ? expected : SPECDEC_ERROR_UNSUPPORTED;
    say(w, "chat of %d messages", count);
    pending = take_back(w);
    result = specdec_chat(w->subject.engine, messages, count);
    if (result == SPECDEC_ERROR_CONTEXT && expected == SPECDEC_OK)
        expected = result; /* how long a rendered conversation is, is not worked out again here */
    if (!settle_prompt(w, result, expected, pending))
        return;
    PROMISE(w, w->count > before, "a conversation appends tokens");
    begin_answer(w, w->count - before);
    agree(w, result, specdec_chat(w->oracle.engine, messages, count));
}

/* --- calls that write --------------------------------------------------------------------------------------------- */

/* Is a stop string in the answer? */
static int has_stop(const world *w)
{
    int i;

    for (i = 0; i < 8 && w->subject.config.settings.stop[i]; i++)
        if (strstr(w->answer, w->subject.config.settings.stop[i]))
            return 1;
    return 0;
}

/* Whether an answer that is complete is the text of its tokens, or with a stop string the beginning of it. Where
   control tokens change what is shown, or the context has slid, yes. */
static int is_text_of_tokens(world *w)
{
    char text[MOST_TEXT];
    size_t length = 0, more;
    int i;

    if (w->slid != w->answer_slid) /* some of them are gone */
        return 1;
    for (i = w->answer_from - 1; i < w->count; i++)
        if (i < 0 || w->tokens[i] < 3)
            return 1;
    for (i = w->answer_from; i < w->count; i++) {
        if (specdec_token_text(specdec_get_model(w->reader.engine), w->tokens[i], text + length, sizeof text - length, &more, NULL))
            return 0;
        length += more;
    }
    return (w->length == length || (w->subject.config.settings.stop[0] && w->length < length)) &&
           memcmp(text, w->answer, w->length) == 0;
}

static void one_next(world *w)
{
    specdec_text piece, oracles;
    specdec_result result;

    say(w, "next");
    result = specdec_next(w->subject.engine, &piece);
    if (!settle(w, result, w->count ? SPECDEC_OK : SPECDEC_ERROR_ARGUMENT, 1)) {
        PROMISE(w, piece.length == 0, "a failed call hands out nothing");
        return;
    }
    say(w, "     \"%.*s\"\n", (int)piece.length, piece.bytes);
    PROMISE(w, piece.length || result == SPECDEC_DONE, "next hands out something");
    PROMISE(w, w->length + piece.length < sizeof w->answer, "the text fits into the context");
    memcpy(w->answer + w->length, piece.bytes, piece.length);
    w->length += piece.length;
    w->answer[w->length] = 0;
    if (w->pure && memchr(w->answer, 0, w->length) == NULL) {
        PROMISE(w, !has_stop(w), "no stop string is handed out");
        PROMISE(w, result != SPECDEC_DONE || is_text_of_tokens(w), "the pieces are the text of the tokens");
    }
    if (w->kind == ORACLE_NONE)
        return;
    agree(w, result, specdec_next(w->oracle.engine, &oracles));
    PROMISE(w, piece.length == oracles.length && memcmp(piece.bytes, oracles.bytes, piece.length) == 0,
            "the pieces are those of an undisturbed engine");
}

static void call_next(world *w)
{
    int times = 1 + draw(w, 4);

    do
        one_next(w);
    while (--times && !w->ended);
}

static void call_step(world *w)
{
    specdec_result result, oracles = SPECDEC_OK;
    const int64_t slid = w->slid;
    const int32_t *tokens;
    int count, before = w->count, n;

    say(w, "step");
    result = specdec_step(w->subject.engine, &tokens, &count);
    if (!settle(w, result, w->count ? SPECDEC_OK : SPECDEC_ERROR_ARGUMENT, 1)) {
        PROMISE(w, count == 0, "a failed call hands out nothing");
        return;
    }
    PROMISE(w, result == SPECDEC_DONE ? count == 0 : count > 0, "a step hands out something");
    before -= (int)(w->slid - slid);
    PROMISE(w, w->count == before + count, "the tokens of a step are behind the text");
    PROMISE(w, memcmp(w->tokens + before, tokens, (size_t)count * sizeof *tokens) == 0, "and the same");
    w->pure = w->pure && !count;
    if (w->kind == ORACLE_NONE)
        return;
    do {
        oracles = specdec_step(w->oracle.engine, &tokens, &n);
        before += n;
    } while (oracles == SPECDEC_OK && before < w->count);
    agree(w, result, oracles);
}

/* Other settings; with rules of rejection no other temperature, as the oracle would then have to be another one. */
static void call_set(world *w)
{
    static const int limits[] = {0, 20, 3, 40, -1};
    specdec_settings fresh = w->subject.config.settings;
    const float temperature = fresh.sampling.temperature;
    const int what = draw(w, 4);
    specdec_result result, expected;

    if (what & 1)
        draw_sampling(w, &fresh.sampling);
    if (what & 2)
        draw_stops(w, &fresh);
    if (w->subject.config.rule != SPECDEC_RULE_COUPLED)
        fresh.sampling.temperature = temperature;
    fresh.max_tokens = limits[draw(w, COUNT(limits))];
    fresh.slide = draw(w, 4) ? fresh.slide : 3;
    fresh.slide = w->subject.engine->model->recurrent_sizes.kind ? 0 : fresh.slide;
    if (draw(w, 2))
        draw_constraint(w, &fresh);
    say(w, "set: temperature %g, seed %d, limit %d, stop \"%s\", constraint %p, allow %d, min_tokens %d", (double)fresh.sampling.temperature,
        (int)fresh.sampling.seed, fresh.max_tokens, fresh.stop[0] ? fresh.stop[0] : "", (const void *)fresh.constraint, fresh.allow != NULL,
        fresh.min_tokens);
    result = specdec_set(w->subject.engine, &fresh);
    expected = fresh.max_tokens < 0 || ((fresh.constraint || fresh.allow) && !w->obeys) ? SPECDEC_ERROR_ARGUMENT : SPECDEC_OK;
    if (!settle(w, result, expected, 0)) {
        w->stops_at ^= what >> 1;
        return;
    }
    w->subject.config.settings = fresh;
    w->pure = 0;
    agree(w, result, specdec_set(w->oracle.engine, &fresh));
}

static void call_rewind(world *w)
{
    const int any = dice(w, (unsigned)w->count + 1), few = dice(w, (unsigned)specdec__min_int(w->count, 4) + 1);
    const int counts[] = {w->count - few, w->count, any, w->count - few, w->count + 1, any, w->count - few, -1, 0,
                          any, w->count - few, INT32_MIN, INT32_MAX};
    int count = counts[draw(w, COUNT(counts))];
    specdec_result result, expected;

    expected = count < 0 || count > w->count ? SPECDEC_ERROR_ARGUMENT : SPECDEC_OK;
    say(w, "rewind to %d of %d", count, w->count);
    if (w->count > w->past_count / 2) {
        memcpy(w->past, w->tokens, (size_t)w->count * sizeof *w->past);
        w->past_count = w->count;
    }
    result = specdec_rewind(w->subject.engine, count);
    if (!settle(w, result, expected, 0))
        return;
    PROMISE(w, w->count == count, "rewind keeps as much as asked for");
    begin_answer(w, 0);
    agree(w, result, specdec_rewind(w->oracle.engine, count));
}

/* The text as a file: one that is good is loaded, by the oracle too, and changes nothing; one that is not is refused. */
static void call_save(world *w)
{
    specdec *e = w->subject.engine;
    const int how = draw(w, 4);
    size_t bytes = 0, again = 0;
    unsigned char *data, *twin;
    specdec_result result;

    result = specdec_save(e, NULL, 0, &bytes);
    if (result == SPECDEC_ERROR_UNSUPPORTED && w->slid && (e->settings.constraint || e->settings.allow)) {
        say(w, "no save: the constraint's text has slid out");
        return;
    }
    PROMISE(w, result == SPECDEC_OK, "a text says how large its file is");
    PROMISE(w, specdec_save(e, w, bytes - 1, &again) == SPECDEC_ERROR_BUFFER && again == bytes, "one byte less is refused");
    data = (unsigned char *)malloc(2 * bytes);
    twin = data + bytes;
    if (!data)
        exit(1);
    PROMISE(w, specdec_save(e, data, bytes, &bytes) == SPECDEC_OK, "a text is saved");
    memcpy(twin, data, bytes);
    if (how == 0)
        twin[(size_t)dice(w, 1u << 20) % bytes] ^= (unsigned char)(1 + dice(w, 255));
    say(w, "save %zu bytes, load %s", bytes, how ? "them" : "them damaged");
    result = specdec_load(e, twin, how == 1 ? (size_t)dice(w, 1u << 20) % bytes : bytes);
    if (how < 2) {
        PROMISE(w, result == SPECDEC_ERROR_FORMAT || result == SPECDEC_ERROR_UNSUPPORTED, "a damaged file is refused");
        settle(w, result, result, 0);
    } else if (settle(w, result, SPECDEC_OK, 0) && w->kind == ORACLE_PLAIN && how == 3) {
        agree(w, result, specdec_load(w->oracle.engine, data, bytes));
    } else if (w->kind != ORACLE_PLAIN) {
        w->kind = ORACLE_NONE; /* the drafters begin anew */
    }
    PROMISE(w, specdec_save(e, twin, bytes, &again) == SPECDEC_OK && again == bytes && memcmp(data, twin, bytes) == 0,
            "the file of a loaded text is that file, and nothing changes where it was refused");
    free(data);
}

/* --- calls that must not show ------------------------------------------------------------------------------------- */

/* Brings the reader to the subject's text. */
static void read_text(world *w)
{
    const int32_t *tokens;
    int count, same = 0;

    specdec_tokens(w->reader.engine, &tokens, &count);
    while (same < count && same < w->count && tokens[same] == w->tokens[same])
        same++;
    PROMISE(w, !specdec_rewind(w->reader.engine, same), "rewind");
    if (w->count > same)
        PROMISE(w, !specdec_prompt_tokens(w->reader.engine, w->tokens + same, w->count - same), "prompt");
}

/* Draws the nodes of a forward; returns what they deserve. */
static specdec_result draw_nodes(world *w, int32_t *tokens, int32_t *parents, int count, int most)
{
    int fault = draw(w, 6), i, at = count > 0 ? dice(w, (unsigned)count) : 0;

    for (i = 0; i < count; i++) {
        tokens[i] = dice(w, (unsigned)vocabulary);
        parents[i] = dice(w, 3) ? i - 1 : dice(w, (unsigned)i + 1) - 1;
    }
    if (count < !w->count || count > most)
        return SPECDEC_ERROR_ARGUMENT;
    if (count && fault == 1)
        tokens[at] = dice(w, 2) ? -1 : vocabulary;
    else if (count && fault == 2)
        parents[at] = dice(w, 2) ? at : -2;
    return count && (fault == 1 || fault == 2) ? SPECDEC_ERROR_ARGUMENT : SPECDEC_OK;
}

static void call_forward(world *w)
{
    enum { MOST_NODES = 65 };
    static float logits[(MOST_NODES + 2) * MOST_VOCABULARY], expected_logits[(MOST_NODES + 2) * MOST_VOCABULARY];
    static const int counts[] = {1, 2, 5, 8, 3, 0, -1, MOST_NODES};
    const specdec_config *c = &w->subject.config;
    const int size = c->tree_size ? c->tree_size : (int)w->subject.engine->engine->config.tree_size; /* or by default */
    const int most = specdec__max_int(c->batch ? c->batch : 64, size);
    int32_t tokens[MOST_NODES + 1], parents[MOST_NODES + 1];
    int count = counts[draw(w, COUNT(counts))], before = w->count;
    specdec_result expected = draw_nodes(w, tokens, parents, count, most), result;

    say(w, "forward of %d nodes", count);
    result = specdec_logits(w->subject.engine, tokens, parents, count, logits);
    if (result == SPECDEC_ERROR_CONTEXT && expected == SPECDEC_OK && w->count + count >= c->context)
        expected = result;
    if (!settle(w, result, expected, 1))
        return;
    PROMISE(w, w->count == before && holds(w, w->subject.engine), "forward changes nothing of the text");
    read_text(w);
    PROMISE(w, !specdec_logits(w->reader.engine, tokens, parents, count, expected_logits), "the reader's forward");
    PROMISE(w, memcmp(logits, expected_logits, sizeof *logits * (size_t)vocabulary * (size_t)(count + 1)) == 0,
            "logits are a function of the text and the nodes");
}

static void call_tokenize(world *w)
{
    char text[100], back[256];
    const specdec_model *model = specdec_get_model(w->subject.engine);
    int32_t tokens[256], whole[256];
    size_t length = make_text(w, text, (size_t)draw(w, 60)), used = 0, more;
    int begin = draw(w, 2), flags = begin | (draw(w, 2) ? SPECDEC_TOKENIZE_SPECIAL : 0), capacity, n, all, i;
    specdec_result result;

    PROMISE(w, !tokenize(w->reader.engine, text, length, flags, whole, 256, &all), "a short text");
    capacity = all ? dice(w, (unsigned)all + 1) : 0;
    capacity = draw(w, 2) ? capacity : all;
    say(w, "tokenize %zu bytes into room for %d of %d\n", length, capacity, all);
    failure.text[0] = 0;
    result = tokenize(w->subject.engine, text, length, flags, tokens, capacity, &n);
    PROMISE(w, result == (capacity < all ? SPECDEC_ERROR_BUFFER : SPECDEC_OK), "room is what it needs");
    PROMISE(w, n == all, "the needed count comes back");
    PROMISE(w, !result == !failure.text[0], "an error has a text");
    if (result)
        return;
    PROMISE(w, memcmp(tokens, whole, (size_t)n * sizeof *tokens) == 0, "ids are a function of the text");
    for (i = begin; i < n; i++, used += more)
        PROMISE(w, !specdec_token_text(model, tokens[i], back + used, sizeof back - used, &more, NULL), "tokens have texts");
    PROMISE(w, !length || (used == length + 1 && back[0] == ' ' && memcmp(back + 1, text, length) == 0),
            "a text becomes ids and these the text");
}

static void call_token_text(world *w)
{
    const int32_t bad[] = {-1, vocabulary, INT32_MIN, INT32_MAX};
    const specdec_model *model = specdec_get_model(w->subject.engine);
    int wrong = draw(w, 4) == 0, tight = draw(w, 2);
    int32_t token = wrong ? bad[draw(w, 4)] : dice(w, (unsigned)vocabulary);
    char bytes[64];
    size_t all = 0, length, room;

    if (!wrong)
        PROMISE(w, !specdec_token_text(model, token, bytes, sizeof bytes, &all, NULL), "tokens have texts");
    room = tight && all ? all - 1 : sizeof bytes;
    say(w, "token_text of %d into %zu bytes\n", (int)token, room);
    PROMISE(w, specdec_token_text(model, token, bytes, room, &length, &failure) ==
                   (wrong ? SPECDEC_ERROR_ARGUMENT : room < all ? SPECDEC_ERROR_BUFFER : SPECDEC_OK), "an error is the one deserved");
    PROMISE(w, wrong || length == all, "the needed length comes back");
}

static void call_stats(world *w)
{
    specdec_stats stats;
    specdec_info info;
    int64_t steps, widths = 0;
    int i;

    say(w, "get_stats\n");
    specdec_get_stats(w->subject.engine, &stats);
    specdec_get_info(w->subject.engine, &info);
    steps = stats.steps_other_trees;
    for (i = 0; i < SPECDEC_STATS_TREES; i++)
        steps += stats.trees[i].steps;
    for (i = 0; i < 7; i++)
        widths += stats.steps_by_width[i];
    PROMISE(w, stats.prompt_tokens == w->prompted, "prompt_tokens counts the tokens of successful prompts");
    PROMISE(w, steps == stats.steps && widths <= steps, "every step is counted once");
    PROMISE(w, stats.accepted <= stats.drafted && stats.tokens >= stats.steps, "counts make sense");
    PROMISE(w, info.context == w->subject.config.context && info.threads == w->subject.config.threads &&
               info.vocabulary == vocabulary, "info tells what was asked for");
    PROMISE(w, holds(w, w->subject.engine), "to ask changes nothing");
}

static void call_cancel(world *w)
{
    say(w, "cancel\n");
    specdec_cancel(w->subject.engine);
    w->pending = 1;
}

/* Arms a cancel for the middle of the next call. */
static void call_cancel_later(world *w)
{
    int how = draw(w, 4);

    cancel_norms = cancel_progress = -1;
    if (how)
        cancel_norms = 1 + draw(w, 256);
    else
        cancel_progress = 1 + draw(w, 4);
    say(w, "(cancel at the %s %d of the next call)\n", how ? "norm" : "progress report",
        how ? cancel_norms : cancel_progress);
}

/* A prompt that is cancelled, perhaps while verified tokens wait to be handed out. */
static void call_cancelled_prompt(world *w)
{
    if (draw(w, 2))
        call_cancel(w);
    else
        cancel_norms = 1 + draw(w, 8);
    call_prompt_tokens(w);
}

/* A next that is cancelled, perhaps while text is held back. */
static void call_cancelled_next(world *w)
{
    static const int norms[] = {0, 12, 24, 48, 96};
    int most = norms[draw(w, COUNT(norms))];

    if (most)
        cancel_norms = 1 + draw(w, (unsigned)most);
    else
        call_cancel(w);
    one_next(w);
}

/* --- failing configurations --------------------------------------------------------------------------------------- */

static void spoil(specdec_config *c, int how)
{
    switch (how) {
    case 0: c->context = -1; break;
    case 1: c->batch = 513; break;
    case 2: c->tree_size = 1; break;
    case 3: c->tree_depth = SPECDEC_TREE_MAX_DEPTH + 1; break;
    case 4: c->threads = -1; break;
    case 5: c->threads = 1 << 20; break;
    case 6: c->kv = "q9"; break;
    case 7: c->isa = "nope"; break;
    case 8: c->settings.max_tokens = -1; break;
    case 9: c->settings.sampling.temperature = -1; break;
    case 10: c->settings.sampling.top_p = 2; break;
    case 11: c->rule = SPECDEC_RULE_COUNT; break;
    case 12: c->drafting = SPECDEC_DRAFT_COUNT; break;
    case 13: memset(&c->draft, 0, sizeof c->draft); c->drafting = SPECDEC_DRAFT_MODEL; break;
    case 14: c->settings.stop[0] = ""; break;
    case 15: c->chat_format = "nope"; break;
    case 16: memset(&c->target, 0, sizeof c->target); break;
    case 17: c->retrieval = 3; break;
    default: c->target.model = NULL; c->target.size /= 2; break;
    }
}

/* Everything once more in the same blocks, after a configuration that is refused. */
static void call_init(world *w)
{
    specdec_config bad = w->subject.config;
    int how = draw(w, 19);
    specdec_result result;

    say(w, "deinit; init with fault %d", how);
    close_all(w);
    spoil(&bad, how);
    result = specdec_init(&w->subject.engine, &bad, w->subject.block, w->subject.room, &failure);
    PROMISE(w, result != SPECDEC_OK && !w->subject.engine, "a bad configuration is refused");
    say(w, " (%s)\n", failure.text);
    PROMISE(w, failure.text[0], "an error has a text");
    draw_config(w);
    open_all(w);
}

/* --- sequences ---------------------------------------------------------------------------------------------------- */

/* Which call a byte asks for; the first is the most frequent. */
static const struct { int share; void (*call)(world *w); } calls[] = {
    {62, call_next}, {20, call_step}, {20, call_prompt}, {16, call_prompt_tokens}, {6, call_chat}, {14, call_rewind},
    {12, call_forward}, {8, call_save}, {4, call_tokenize}, {4, call_token_text}, {6, call_stats}, {10, call_cancel},
    {16, call_cancel_later}, {22, call_cancelled_next}, {20, call_cancelled_prompt}, {14, call_set}, {2, call_init}};

static void call_one(world *w)
{
    int number, i;

    number = draw(w, 256);
    if (draw(w, 4) && (w->ended || w->full)) { /* little else makes sense */
        w->random = (uint64_t)number;
        if (w->full)
            call_rewind(w);
        else
            call_prompt_tokens(w);
        return;
    }
    for (i = 0; i + 1 < (int)COUNT(calls) && number >= calls[i].share; i++)
        number -= calls[i].share;
    w->random = (uint64_t)draw(w, 256) << 8;
    w->random |= (uint64_t)draw(w, 256);
    calls[i].call(w);
}

/* Runs the calls that the bytes ask for. Returns how many. */
static int run_sequence(const uint8_t *data, size_t size, int trace)
{
    static world *w;
    size_t at = CONFIG_BYTES;
    int count = 0, i, set = 0;

    if (!w) {
        if (getenv("FUZZ_PAIR"))
            find_pair();
        else {
            for (i = 0; i < SETS; i++)
                make_models(i);
            make_heads();
        }
        w = (world *)calloc(1, sizeof *w);
        if (!w)
            exit(1);
    }
    for (i = 0; i < CONFIG_BYTES && i < (int)size; i++)
        set += data[i];
    set = getenv("FUZZ_PAIR") ? 0 : getenv("FUZZ_SET") ? atoi(getenv("FUZZ_SET")) : set;
    models = sets[set % SETS];
    w->trace = trace;
    w->data = data;
    w->left = size < at ? size : at;
    cancel_norms = cancel_progress = -1;
    draw_config(w);
    open_all(w);
    for (; at < size; at += CALL_BYTES, count++) {
        w->data = data + at;
        w->left = size - at < CALL_BYTES ? size - at : (size_t)CALL_BYTES;
        say(w, "%3d  ", count);
        call_one(w);
    }
    close_all(w);
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    run_sequence(data, size, getenv("FUZZ_TRACE") != NULL);
    return 0;
}
