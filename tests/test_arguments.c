/* test_arguments.c - every public function is called with each of its arguments at its extremes (NULL, INT_MIN, INT_MAX, 0,
   SIZE_MAX, not-numbers), the others as they should be: a call is refused or done, the engine's text stays, and nothing is
   undefined. Make builds it with -fsanitize=undefined, whose traps are told here by the call that they met.
   cc -O1 -pthread -I. -fsanitize=undefined -fsanitize-undefined-trap-on-error tests/test_arguments.c */
#define SPECDEC_NO_SIMD /* kernels are not the matter here */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "check.h"
#include "gguf_maker.h"
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <unistd.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

enum { VOCABULARY = 301, CONTEXT = 64, ROOM = 1 << 16 };

static const int ints[] = {INT_MIN, INT_MIN + 1, -65537, -2, -1, 0, 1, 2, 63, 64, 65, 1024, 1025, 65537, INT_MAX - 1, INT_MAX};
static const size_t sizes[] = {0, 1, 2, 63, (size_t)INT_MAX, (size_t)INT_MAX + 1, SIZE_MAX / 4, SIZE_MAX / 2, SIZE_MAX - 64,
                               SIZE_MAX - 1};
static const float reals[] = {-INFINITY, -1e30f, -1, -1e-45f, 0, 1e-45f, 1e-30f, 1, 1.5f, 1e6f, 3e38f, INFINITY, NAN};

static specdec_error failure;
static const char *volatile calling = "";

/* Ends the test, and says which call was undefined. Writes as signal handlers may. */
static void on_trap(int number)
{
    const char *name = calling;

    (void)number;
    if (write(STDERR_FILENO, "FAILED: undefined behaviour in ", 31) < 0 || write(STDERR_FILENO, name, strlen(name)) < 0 ||
        write(STDERR_FILENO, "\n", 1) < 0)
        _exit(2);
    _exit(1);
}

/* A call whose result may be anything that is a result. */
#define TRY(call) \
    do { \
        specdec_result tried; \
        calling = #call; \
        tried = (call); \
        calling = "the test"; \
        CHECK((unsigned)tried < SPECDEC_RESULT_COUNT); \
    } while (0)

/* A call that must be refused by an error. */
#define REFUSED(call) \
    do { \
        specdec_result tried; \
        calling = #call; \
        tried = (call); \
        calling = "the test"; \
        if (tried < SPECDEC_ERROR_ARGUMENT) \
            fprintf(stderr, "%s: was not refused\n", #call); \
        CHECK(tried >= SPECDEC_ERROR_ARGUMENT && (unsigned)tried < SPECDEC_RESULT_COUNT); \
    } while (0)

/* A call without a result. */
#define CALL(call) \
    do { \
        calling = #call; \
        (void)(call); \
        calling = "the test"; \
        check_note(1); \
    } while (0)

static unsigned char *model_data;
static size_t model_size;
static specdec_config config; /* of the engine */
static void *block;
static size_t block_bytes;
static specdec *engine;
static int32_t prompt[] = {1, 40, 50, 60};

/* A small random model in memory. */
static void make_model(void)
{
    maker *m = (maker *)malloc(sizeof *m);
    maker_recipe r;

    if (!m)
        exit(1);
    memset(&r, 0, sizeof r);
    r.vocab = VOCABULARY;
    r.embedding = r.feed_forward = 32;
    r.heads = 2;
    r.kv_heads = 1;
    r.seed = 3;
    maker_begin(m, &r);
    maker_write(m);
    model_data = m->file.data;
    model_size = m->file.size;
    m->file.data = NULL; /* stays */
    maker_free(m);
    free(m);
}

static void plain_config(specdec_config *c)
{
    memset(c, 0, sizeof *c);
    c->target.data = model_data;
    c->target.size = model_size;
    c->context = CONTEXT;
    c->threads = 1;
    c->batch = 8;
    c->sequences = 2;
    c->logprobs = 2;
    c->history = 64;
    c->chat_format = "llama2";
    c->settings.max_tokens = 8;
}

static void make_engine(void)
{
    plain_config(&config);
    if (specdec_memory_needed(&config, &block_bytes, &failure)) {
        fprintf(stderr, "%s\n", failure.text);
        exit(1);
    }
    block = malloc(block_bytes);
    if (!block || specdec_init(&engine, &config, block, block_bytes, &failure) || specdec_prompt_tokens(engine, prompt, COUNT(prompt)))
        exit(1);
}

static int tokens_of(const specdec *text)
{
    int count;

    specdec_tokens(text, NULL, &count);
    return count;
}

/* The engine's text is as it was: the same prompt. */
static void check_text(void)
{
    const int32_t *tokens;
    int count;

    specdec_tokens(engine, &tokens, &count);
    CHECK(count == COUNT(prompt) && memcmp(tokens, prompt, sizeof prompt) == 0);
}

/* Puts the engine's text back. */
static void restart(void)
{
    specdec_rewind(engine, 0);
    if (specdec_prompt_tokens(engine, prompt, COUNT(prompt)))
        CHECK(COUNT(prompt) < 0); /* it is taken again */
}

/* --- configurations ----------------------------------------------------------------------------------------------- */

/* The numbers of a configuration. */
static int *const *config_ints(specdec_config *c)
{
    static int *all[33];
    int n = 0;

    all[n++] = &c->context; all[n++] = &c->sequences; all[n++] = &c->cache; all[n++] = &c->forks; all[n++] = &c->fork_depth;
    all[n++] = &c->history; all[n++] = &c->prefill_chunk; all[n++] = &c->threads; all[n++] = &c->batch; all[n++] = &c->weights_in_place;
    all[n++] = &c->logprobs; all[n++] = &c->async; all[n++] = (int *)&c->drafting; all[n++] = (int *)&c->rule;
    all[n++] = (int *)&c->policy; all[n++] = &c->retrieval; all[n++] = &c->retrieval_chunk; all[n++] = &c->tree_size;
    all[n++] = &c->draft_vocabulary; all[n++] = &c->tree_depth; all[n++] = &c->settings.max_tokens; all[n++] = &c->settings.slide;
    all[n++] = &c->settings.show_special; all[n++] = &c->settings.sampling.top_k;
    all[n++] = &c->settings.sampling.repetition_window; all[n++] = &c->settings.sampling.bias_count;
    all[n++] = &c->settings.end_token_count; all[n++] = &c->settings.end_tokens[0];
    all[n] = NULL;
    return all;
}

static float *const *config_reals(specdec_sampling *s)
{
    static float *all[5];

    all[0] = &s->temperature; all[1] = &s->top_p; all[2] = &s->min_p; all[3] = &s->repetition_penalty;
    all[4] = NULL;
    return all;
}

/* Asks for the memory of a configuration; makes an engine if that is little, writes with it, and ends it. */
static void try_config(const specdec_config *c)
{
    specdec *made = NULL;
    specdec_text piece;
    size_t bytes = 0;
    void *memory;
    int i;

    TRY(specdec_memory_needed(c, &bytes, &failure));
    if (!bytes || bytes > (8 << 20))
        return;
    memory = malloc(bytes);
    TRY(specdec_init(&made, c, memory, bytes, &failure));
    if (made) {
        TRY(specdec_prompt_tokens(made, prompt, COUNT(prompt)));
        for (i = 0; i < 4; i++)
            TRY(specdec_next(made, &piece));
    }
    CALL((specdec_deinit(made), 0));
    free(memory);
}

/* Fields by name: texts that are numbers at their extremes, or none. */
static void test_fields(void)
{
    static const char *const texts[] = {"", " ", "-", "+", ".", "0", "-0", "1", "-1", "00", "1e", "1e5", "1e400", "-1e400", "1e-400",
        "inf", "-inf", "nan", "0x10", "2147483647", "2147483648", "-2147483648", "-2147483649", "18446744073709551615",
        "18446744073709551616", "99999999999999999999999999999999999999", "on", "off", "\xff\xfe", "f16", "auto", NULL};
    specdec_settings settings;
    specdec_config c;
    const specdec_field *field;
    int i, k;

    TEST("fields by name: what is no value is refused");
    memset(&c, 0, sizeof c);
    memset(&settings, 0, sizeof settings);
    for (i = 0; i < COUNT(ints); i++) {
        calling = "specdec_get_field";
        field = specdec_get_field(ints[i]);
        CHECK(ints[i] < 1000 && ints[i] >= 0 ? 1 : !field);
    }
    for (i = 0; (field = specdec_get_field(i)) != NULL; i++)
        for (k = 0; k < COUNT(texts); k++) {
            TRY(specdec_config_set(&c, field->name, texts[k], &failure));
            TRY(specdec_settings_set(&settings, field->name, texts[k], NULL));
        }
    REFUSED(specdec_config_set(NULL, "context", "1", &failure));
    REFUSED(specdec_config_set(&c, NULL, "1", NULL));
    REFUSED(specdec_config_set(&c, "", "1", &failure));
    REFUSED(specdec_config_set(&c, "no such field", NULL, &failure));
    REFUSED(specdec_settings_set(NULL, "seed", "1", &failure));
    REFUSED(specdec_settings_set(&settings, NULL, "1", NULL));
    REFUSED(specdec_settings_set(&settings, "context", "1", &failure));
    CHECK(specdec_size_of(NULL) == 0 && specdec_size_of("") == 0);
    REFUSED(specdec_check_layout(0, &failure));
    REFUSED(specdec_check_layout(UINT64_MAX, NULL));
    REFUSED(specdec_checked_memory_needed(0, &c, NULL, NULL));
    REFUSED(specdec_checked_init(UINT64_MAX, NULL, &c, block, block_bytes, &failure));
    REFUSED(specdec_checked_model_memory_needed(1, NULL, NULL, NULL));
    REFUSED(specdec_checked_model_init(1, NULL, NULL, NULL, 0, NULL));
}

/* A constraint, its state and a trie: what is missing, too small or out of range. */
static void test_constraints(void)
{
    static uint32_t mask[16];
    specdec_constraint_source source;
    const specdec_constraint *constraint = NULL;
    specdec_constraint_state *state = NULL;
    const specdec_token_trie *trie = NULL;
    unsigned char *memory, bytes[8];
    size_t needed = 0, i;
    int j;

    TEST("constraints: NULLs, kinds that there are not, every size that is too small");
    memset(&source, 0, sizeof source);
    REFUSED(specdec_constraint_needed(NULL, &needed, &failure));
    REFUSED(specdec_constraint_needed(&source, NULL, &failure));
    for (j = 0; j < COUNT(ints); j++) {
        source.kind = (specdec_constraint_kind)ints[j];
        TRY(specdec_constraint_needed(&source, &needed, &failure)); /* without a text */
        source.choice_count = ints[j];
        TRY(specdec_constraint_needed(&source, &needed, NULL));
    }
    memset(&source, 0, sizeof source);
    source.kind = SPECDEC_CONSTRAINT_GBNF;
    source.text = "root ::= \"ab\" | \"ac\"";
    source.length = SPECDEC_WHOLE_STRING;
    TRY(specdec_constraint_needed(&source, &needed, &failure));
    memory = (unsigned char *)malloc(needed);
    REFUSED(specdec_constraint_init(NULL, &source, memory, needed, &failure));
    REFUSED(specdec_constraint_init(&constraint, NULL, memory, needed, &failure));
    REFUSED(specdec_constraint_init(&constraint, &source, NULL, needed, NULL));
    REFUSED(specdec_constraint_init(&constraint, &source, memory, 0, NULL));
    for (i = 1; memory && i < 4096; i += 97)
        TRY(specdec_constraint_init(&constraint, &source, memory, i, &failure));
    REFUSED(specdec_token_trie_needed(NULL, &needed, &failure));
    REFUSED(specdec_token_trie_init(NULL, NULL, NULL, 0, &failure));
    REFUSED(specdec_token_trie_init(&trie, NULL, memory, 100, NULL));
    constraint = NULL;
    if (memory)
        TRY(specdec_constraint_init(&constraint, &source, memory, needed, &failure));
    CHECK(!specdec_constraint_bytes(NULL) && !specdec_constraint_hash(NULL) && !specdec_constraint_state_bytes(NULL) &&
          !specdec_constraint_mask_memory(NULL));
    if (constraint) {
        unsigned char *own = (unsigned char *)malloc(specdec_constraint_state_bytes(constraint));

        CHECK(!specdec_constraint_begin(NULL, own, SIZE_MAX) && !specdec_constraint_begin(constraint, NULL, SIZE_MAX) &&
              !specdec_constraint_begin(constraint, own, specdec_constraint_state_bytes(constraint) - 1));
        state = own ? specdec_constraint_begin(constraint, own, specdec_constraint_state_bytes(constraint)) : NULL;
        CHECK(!specdec_constraint_advance(NULL, state, "a", 1) && !specdec_constraint_advance(constraint, NULL, "a", 1) &&
              !specdec_constraint_advance(constraint, state, NULL, 1) && !specdec_constraint_advance(constraint, state, "x", 1));
        CHECK(!specdec_constraint_allows(NULL, state, "a", 1) && !specdec_constraint_allows(constraint, NULL, "a", 1) &&
              !specdec_constraint_allows(constraint, state, NULL, 1) && specdec_constraint_allows(constraint, state, NULL, 0));
        CHECK(!specdec_constraint_complete(NULL, state) && !specdec_constraint_complete(constraint, NULL));
        CHECK(!specdec_constraint_next(NULL, state, mask) && !specdec_constraint_next(constraint, NULL, mask) &&
              !specdec_constraint_next(constraint, state, NULL) && specdec_constraint_next(constraint, state, mask) == 1);
        CHECK(!specdec_constraint_forced(NULL, state, bytes, 8) && !specdec_constraint_forced(constraint, NULL, bytes, 8) &&
              !specdec_constraint_forced(constraint, state, NULL, 8) && !specdec_constraint_forced(constraint, state, bytes, 0) &&
              specdec_constraint_forced(constraint, state, bytes, 8) == 1);
        CHECK(!specdec_constraint_mask(constraint, state, NULL, mask, memory, SIZE_MAX) &&
              !specdec_constraint_mask(NULL, NULL, NULL, NULL, NULL, 0));
        CHECK(!specdec_constraint_token(constraint, state, NULL, 0) && !specdec_constraint_token(NULL, NULL, NULL, -1));
        free(own);
    }
    free(memory);
}

static void test_splitter(void)
{
    specdec_splitter splitter;
    specdec_part part;

    TEST("a splitter of answers: NULLs, marks that there are not, an answer without a byte");
    REFUSED(specdec_splitter_begin(NULL, NULL, NULL, 0));
    REFUSED(specdec_splitter_begin(&splitter, "no such marks", NULL, 0));
    REFUSED(specdec_splitter_begin(&splitter, NULL, "no such marks", 0));
    specdec_splitter_push(NULL, "a", 1);
    CHECK(!specdec_splitter_next(NULL, &part));
    CHECK(specdec_splitter_begin(&splitter, NULL, NULL, 0) == SPECDEC_OK);
    CHECK(!specdec_splitter_next(&splitter, NULL) && !specdec_splitter_next(&splitter, &part));
    specdec_splitter_push(&splitter, "a", SPECDEC_WHOLE_STRING);
    CHECK(specdec_splitter_next(&splitter, &part) && part.kind == SPECDEC_PART_CONTENT && part.text.length == 1 && *part.text.bytes == 'a');
    specdec_splitter_push(&splitter, NULL, 0);
    CHECK(!specdec_splitter_next(&splitter, &part));
}

/* Every function that the interface declares is called here, or at least named. */
static void test_all(void)
{
    size_t size;
    char *interface = (char *)check_read_file("specdec.h", &size), *own = (char *)check_read_file("tests/test_arguments.c", &size);
    char *at, *name, *end;

    TEST("no public function is left out");
    if (!interface || !own)
        SKIP("the sources are not here");
    if (interface && (at = strstr(interface, "\n#endif /* SPECDEC_H */")) != NULL)
        *at = 0;
    for (at = interface; interface && own && (at = strstr(at, "\nSPECDEC_DEF ")) != NULL;) {
        at += 13;
        end = at + strcspn(at, "(");
        name = end;
        while (name > at && (name[-1] == '_' || (name[-1] >= 'a' && name[-1] <= 'z')))
            name--;
        *end = 0;
        if (!strstr(own, name))
            fprintf(stderr, "%s: is not called\n", name);
        CHECK(strstr(own, name) != NULL);
        at = end + 1;
    }
    free(interface);
    free(own);
}

static void test_configurations(void)
{
    specdec_config c;
    specdec_model *model = NULL;
    size_t bytes = 0, k;
    int i, j;

    TEST("configurations: every number at its extremes");
    plain_config(&c);
    for (j = 0; config_ints(&c)[j]; j++)
        for (i = 0; i < COUNT(ints); i++) {
            plain_config(&c);
            *config_ints(&c)[j] = ints[i];
            try_config(&c);
        }
    for (j = 0; config_reals(&c.settings.sampling)[j]; j++)
        for (i = 0; i < COUNT(reals); i++) {
            plain_config(&c);
            c.settings.sampling.temperature = 1;
            *config_reals(&c.settings.sampling)[j] = reals[i];
            try_config(&c);
        }
    TEST("configurations: sizes and pointers");
    for (k = 0; k < 4; k++) {
        plain_config(&c);
        c.target.size = k;
        REFUSED(specdec_memory_needed(&c, &bytes, &failure));
        REFUSED(specdec_model_memory_needed(&c, &bytes, &failure));
    }
    plain_config(&c);
    REFUSED(specdec_memory_needed(NULL, &bytes, &failure));
    REFUSED(specdec_memory_needed(&c, NULL, &failure));
    REFUSED(specdec_memory_needed(NULL, NULL, NULL));
    REFUSED(specdec_init(NULL, &c, block, block_bytes, &failure));
    REFUSED(specdec_model_memory_needed(NULL, &bytes, &failure));
    REFUSED(specdec_model_memory_needed(&c, NULL, NULL));
    REFUSED(specdec_model_init(NULL, &c, block, block_bytes, &failure));
    REFUSED(specdec_model_init(&model, NULL, block, block_bytes, NULL));
    REFUSED(specdec_model_init(&model, &c, NULL, SIZE_MAX, NULL));
    {
        specdec *made = NULL;

        REFUSED(specdec_init(&made, NULL, block, block_bytes, &failure));
        REFUSED(specdec_init(&made, &c, NULL, SIZE_MAX, NULL));
        for (i = 0; i < 3; i++)
            REFUSED(specdec_init(&made, &c, block, sizes[i], NULL));
        CHECK(!made);
    }
    memset(&c, 0, sizeof c);
    REFUSED(specdec_memory_needed(&c, &bytes, &failure));
    c.target.data = model_data; /* size 0 */
    REFUSED(specdec_memory_needed(&c, &bytes, &failure));
    plain_config(&c);
    c.settings.stop[0] = "";
    REFUSED(specdec_memory_needed(&c, &bytes, &failure));
    plain_config(&c);
    c.settings.sampling.bias_count = 1; /* of NULL */
    REFUSED(specdec_memory_needed(&c, &bytes, &failure));
    CALL((specdec_model_deinit(NULL), 0));
    CALL((specdec_deinit(NULL), 0));
}

/* --- calls on texts ----------------------------------------------------------------------------------------------- */

/* All calls on no text. */
static void test_no_text(void)
{
    specdec_settings settings;
    specdec_message message = {SPECDEC_USER, "a", 1, 0};
    specdec_logprob logprob;
    specdec_stats stats;
    specdec_info info;
    specdec_text piece;
    specdec_tree tree;
    const int32_t *tokens;
    static char bytes[64];
    static float row[VOCABULARY];
    specdec *other = NULL;
    size_t size;
    int count, layer = 0;

    TEST("calls on NULL are refused");
    memset(&settings, 0, sizeof settings);
    memset(&tree, 0, sizeof tree);
    REFUSED(specdec_serve(NULL));
    REFUSED(specdec_set(NULL, &settings));
    REFUSED(specdec_open(NULL, &other));
    REFUSED(specdec_fork(NULL, &other));
    REFUSED(specdec_join_forks(NULL, bytes, sizeof bytes, &size));
    REFUSED(specdec_work(NULL));
    REFUSED(specdec_save_history(NULL, bytes, sizeof bytes, &size));
    REFUSED(specdec_load_history(NULL, bytes, sizeof bytes));
    REFUSED(specdec_save(NULL, bytes, sizeof bytes, &size));
    REFUSED(specdec_load(NULL, bytes, sizeof bytes));
    REFUSED(specdec_prompt(NULL, "a", 1));
    REFUSED(specdec_prompt_special(NULL, "a", 1));
    REFUSED(specdec_cut_stop(NULL));
    REFUSED(specdec_prompt_tokens(NULL, prompt, 1));
    REFUSED(specdec_chat(NULL, &message, 1));
    REFUSED(specdec_chat_messages(NULL, NULL));
    REFUSED(specdec_chat_json(NULL, "{}", 2));
    REFUSED(specdec_next_part(NULL, NULL));
    REFUSED(specdec_take_part(NULL, NULL));
    REFUSED(specdec_score(NULL, NULL, 1, NULL));
    REFUSED(specdec_next(NULL, &piece));
    REFUSED(specdec_take(NULL, &piece));
    REFUSED(specdec_step(NULL, &tokens, &count));
    REFUSED(specdec_rewind(NULL, 0));
    REFUSED(specdec_get_logprob(NULL, 0, &logprob));
    REFUSED(specdec_logits(NULL, NULL, NULL, 0, row));
    REFUSED(specdec_prompt_logits(NULL, prompt, 1, row));
    REFUSED(specdec_prompt_states(NULL, prompt, 1, &layer, 1, row));
    REFUSED(specdec_set_tree(NULL, &tree));
    CALL((specdec_close(NULL), 0));
    CALL((specdec_cancel(NULL), 0));
    CALL((specdec_drop_prefixes(NULL), 0));
    CALL((specdec_get_settings(NULL, &settings), 0));
    CALL((specdec_get_stats(NULL, &stats), 0));
    CALL((specdec_get_info(NULL, &info), 0));
    CALL((specdec_tokens(NULL, &tokens, &count), 0));
    CALL((specdec_tokens(NULL, NULL, NULL), 0));
    CHECK(specdec_error_text(NULL) != NULL);
    CHECK(specdec_child(NULL, INT_MIN) == NULL);
    CHECK_EQUAL_INT(specdec_stopped(NULL, NULL), SPECDEC_STOP_NONE);
    CHECK_EQUAL_INT(specdec_stopped(NULL, &count), SPECDEC_STOP_NONE);
    CALL(specdec_get_model(NULL));
}

static void test_missing(void)
{
    double score = 0;
    int count = 0, layer = 0;
    size_t size;
    static char bytes[64];
    static float row[8 * VOCABULARY];

    TEST("a NULL where something is needed is refused, and the text stays");
    REFUSED(specdec_set(engine, NULL));
    REFUSED(specdec_open(engine, NULL));
    REFUSED(specdec_fork(engine, NULL));
    REFUSED(specdec_join_forks(engine, NULL, 1, &size));
    REFUSED(specdec_join_forks(engine, bytes, sizeof bytes, NULL));
    REFUSED(specdec_save_history(engine, bytes, sizeof bytes, NULL));
    REFUSED(specdec_load_history(engine, NULL, 1));
    REFUSED(specdec_save(engine, bytes, sizeof bytes, NULL));
    REFUSED(specdec_load(engine, NULL, SIZE_MAX));
    REFUSED(specdec_prompt(engine, NULL, 1));
    REFUSED(specdec_prompt(engine, NULL, SPECDEC_WHOLE_STRING));
    REFUSED(specdec_prompt_special(engine, NULL, 1));
    REFUSED(specdec_prompt_special(engine, NULL, SPECDEC_WHOLE_STRING));
    TRY(specdec_cut_stop(engine));
    REFUSED(specdec_prompt_tokens(engine, NULL, 1));
    REFUSED(specdec_chat(engine, NULL, 1));
    REFUSED(specdec_chat_messages(engine, NULL));
    REFUSED(specdec_chat_json(engine, NULL, 2));
    REFUSED(specdec_chat_json(engine, "[", 1));
    REFUSED(specdec_next_part(engine, NULL));
    REFUSED(specdec_take_part(engine, NULL));
    REFUSED(specdec_score(engine, NULL, 1, &score));
    REFUSED(specdec_score(engine, NULL, -1, &score));
    REFUSED(specdec_next(engine, NULL));
    REFUSED(specdec_take(engine, NULL));
    REFUSED(specdec_step(engine, NULL, &count));
    REFUSED(specdec_step(engine, NULL, NULL));
    REFUSED(specdec_get_logprob(engine, 0, NULL));
    REFUSED(specdec_logits(engine, NULL, NULL, 1, row));
    REFUSED(specdec_logits(engine, prompt, NULL, 1, row));
    REFUSED(specdec_prompt_logits(engine, NULL, 1, row));
    REFUSED(specdec_prompt_logits(engine, prompt, 1, NULL));
    REFUSED(specdec_prompt_states(engine, prompt, 1, NULL, 1, row));
    REFUSED(specdec_prompt_states(engine, prompt, 1, &layer, 1, NULL));
    REFUSED(specdec_prompt_states(engine, NULL, 1, &layer, 1, row));
    REFUSED(specdec_set_tree(engine, NULL));
    CALL((specdec_get_settings(engine, NULL), 0));
    CALL((specdec_get_stats(engine, NULL), 0));
    CALL((specdec_get_info(engine, NULL), 0));
    CALL((specdec_tokens(engine, NULL, NULL), 0));
    CALL(specdec_stopped(engine, NULL));
    CALL(specdec_child(engine, INT_MAX));
    check_text();
}

static void test_counts(void)
{
    static float rows[80 * VOCABULARY];
    static char bytes[64];
    specdec_message message = {SPECDEC_USER, "a", 1, 0};
    specdec_settings settings, before;
    specdec_logprob logprob;
    size_t size;
    int i, j, layer;

    TEST("counts and positions at their extremes");
    for (i = 0; i < COUNT(ints); i++) {
        if (ints[i] < 0 || ints[i] > CONTEXT) {
            REFUSED(specdec_prompt_tokens(engine, prompt, ints[i]));
            REFUSED(specdec_prompt_logits(engine, prompt, ints[i], rows));
            layer = 0;
            REFUSED(specdec_prompt_states(engine, prompt, ints[i], &layer, 1, rows));
            REFUSED(specdec_logits(engine, prompt, prompt, ints[i], rows));
        }
        if (ints[i] < 0 || ints[i] > COUNT(prompt))
            REFUSED(specdec_rewind(engine, ints[i]));
        REFUSED(specdec_get_logprob(engine, ints[i], &logprob));
        CALL(specdec_child(engine, ints[i]));
        if (ints[i] <= 0) {
            REFUSED(specdec_chat(engine, &message, ints[i]));
            layer = 0;
            REFUSED(specdec_prompt_states(engine, prompt, 1, &layer, ints[i], rows));
        }
        layer = ints[i];
        if (layer < SPECDEC_STATE_FINAL || layer > 2)
            REFUSED(specdec_prompt_states(engine, prompt, 1, &layer, 1, rows));
        if (ints[i] < 0 || ints[i] >= VOCABULARY) {
            const int32_t token = ints[i];

            REFUSED(specdec_prompt_tokens(engine, &token, 1));
            REFUSED(specdec_prompt_logits(engine, &token, 1, rows));
            REFUSED(specdec_logits(engine, &token, prompt, 1, rows));
        }
        if (ints[i] < -1 || ints[i] >= 0) {
            const int32_t parent = ints[i];

            REFUSED(specdec_logits(engine, prompt, &parent, 1, rows));
        }
        message.role = (specdec_role)ints[i];
        if (ints[i] < 0 || ints[i] > 2)
            REFUSED(specdec_chat(engine, &message, 1));
        message.role = SPECDEC_USER;
        check_text();
    }
    for (i = 0; i < COUNT(sizes); i++) {
        if (sizes[i] > 63) {
            REFUSED(specdec_prompt(engine, "a", sizes[i]));
            REFUSED(specdec_prompt_special(engine, "a", sizes[i]));
            message.length = sizes[i];
            REFUSED(specdec_chat(engine, &message, 1));
        }
        if (sizes[i] < 63) {
            REFUSED(specdec_load(engine, bytes, sizes[i]));
            REFUSED(specdec_load_history(engine, bytes, sizes[i]));
            REFUSED(specdec_save(engine, bytes, sizes[i], &size));
        }
    }
    message.text = NULL;
    message.length = 1;
    REFUSED(specdec_chat(engine, &message, 1));
    message.length = SPECDEC_WHOLE_STRING;
    REFUSED(specdec_chat(engine, &message, 1));
    TRY(specdec_prompt(engine, NULL, 0));
    TRY(specdec_prompt_tokens(engine, NULL, 0));
    TRY(specdec_prompt_logits(engine, NULL, 0, NULL));
    check_text();

    TEST("settings at their extremes: taken, or the old ones stay");
    specdec_get_settings(engine, &before);
    for (j = 0; config_ints(&config)[j]; j++)
        for (i = 0; i < COUNT(ints); i++) {
            specdec_config c = config;
            specdec_text piece;

            *config_ints(&c)[j] = ints[i];
            settings = c.settings;
            TRY(specdec_set(engine, &settings));
            TRY(specdec_next(engine, &piece));
            restart();
            TRY(specdec_set(engine, &before));
        }
    for (j = 0; config_reals(&settings.sampling)[j]; j++)
        for (i = 0; i < COUNT(reals); i++) {
            specdec_text piece;

            settings = before;
            settings.sampling.temperature = 0.7f;
            *config_reals(&settings.sampling)[j] = reals[i];
            TRY(specdec_set(engine, &settings));
            TRY(specdec_next(engine, &piece));
            restart();
            TRY(specdec_set(engine, &before));
        }
    check_text();
}

/* --- models and tokens -------------------------------------------------------------------------------------------- */

/* The tokens of a conversation, without an engine; memory has ROOM bytes. */
static void test_conversations(const specdec_model *model, void *memory)
{
    specdec_message message = {SPECDEC_USER, "a", 1, 0};
    specdec_conversation conversation = {"llama2", &message, 1};
    int32_t tokens[64];
    int count, i;

    REFUSED(specdec_chat_tokens(NULL, &conversation, tokens, 64, &count, memory, ROOM, &failure));
    REFUSED(specdec_chat_tokens(model, NULL, tokens, 64, &count, memory, ROOM, &failure));
    REFUSED(specdec_chat_tokens(model, &conversation, NULL, 64, &count, memory, ROOM, &failure));
    REFUSED(specdec_chat_tokens(model, &conversation, tokens, 64, NULL, memory, ROOM, &failure));
    REFUSED(specdec_chat_tokens(model, &conversation, tokens, 64, &count, NULL, ROOM, NULL));
    CALL(specdec_chat_tokens_memory(NULL, &conversation));
    CALL(specdec_chat_tokens_memory(model, NULL));
    for (i = 0; i < COUNT(ints); i++) {
        conversation.count = ints[i];
        if (ints[i] <= 0) {
            REFUSED(specdec_chat_tokens(model, &conversation, tokens, 64, &count, memory, ROOM, &failure));
            CALL(specdec_chat_tokens_memory(model, &conversation));
        }
        conversation.count = 1;
        if (ints[i] <= 64)
            TRY(specdec_chat_tokens(model, &conversation, tokens, ints[i], &count, memory, ROOM, &failure));
        message.role = (specdec_role)ints[i];
        if (ints[i] < 0 || ints[i] > 2)
            REFUSED(specdec_chat_tokens(model, &conversation, tokens, 64, &count, memory, ROOM, &failure));
        CALL(specdec_chat_tokens_memory(model, &conversation));
        message.role = SPECDEC_USER;
    }
    message.text = NULL;
    REFUSED(specdec_chat_tokens(model, &conversation, tokens, 64, &count, memory, ROOM, &failure));
    CALL(specdec_chat_tokens_memory(model, &conversation));
    message.text = "a";
    conversation.messages = NULL;
    REFUSED(specdec_chat_tokens(model, &conversation, tokens, 64, &count, memory, ROOM, &failure));
    conversation.messages = &message;
    conversation.chat_format = "";
    REFUSED(specdec_chat_tokens(model, &conversation, tokens, 64, &count, memory, ROOM, &failure));
}

static void test_tokens(void)
{
    const specdec_model *model = specdec_get_model(engine);
    static char memory[ROOM], bytes[256];
    int32_t tokens[64];
    size_t length;
    int count, i;
    specdec_model_info info;

    TEST("tokens and texts: counts, sizes, NULLs");
    REFUSED(specdec_tokenize(NULL, "a", 1, 0, tokens, 64, &count, memory, ROOM, &failure));
    REFUSED(specdec_tokenize(model, NULL, 1, 0, tokens, 64, &count, memory, ROOM, &failure));
    REFUSED(specdec_tokenize(model, NULL, SPECDEC_WHOLE_STRING, 0, tokens, 64, &count, memory, ROOM, &failure));
    REFUSED(specdec_tokenize(model, "a", 1, 0, NULL, 64, &count, memory, ROOM, &failure));
    REFUSED(specdec_tokenize(model, "a", 1, 0, tokens, 64, NULL, memory, ROOM, &failure));
    REFUSED(specdec_tokenize(model, "a", 1, 0, tokens, 64, &count, NULL, ROOM, NULL));
    TRY(specdec_tokenize(model, NULL, 0, 0, NULL, 0, &count, memory, ROOM, &failure));
    REFUSED(specdec_token_text(NULL, 1, bytes, sizeof bytes, &length, &failure));
    REFUSED(specdec_token_text(model, 1, NULL, 1, &length, &failure));
    REFUSED(specdec_token_text(model, 1, bytes, sizeof bytes, NULL, NULL));
    REFUSED(specdec_detokenize(NULL, prompt, 1, 0, bytes, sizeof bytes, &length, &failure));
    REFUSED(specdec_detokenize(model, NULL, 1, 0, bytes, sizeof bytes, &length, &failure));
    REFUSED(specdec_detokenize(model, prompt, 1, 0, NULL, 1, &length, &failure));
    REFUSED(specdec_detokenize(model, prompt, 1, 0, bytes, sizeof bytes, NULL, NULL));
    TRY(specdec_detokenize(model, NULL, 0, 0, bytes, sizeof bytes, &length, &failure));
    for (i = 0; i < COUNT(ints); i++) {
        const int32_t token = ints[i];

        TRY(specdec_tokenize(model, "a b", 3, ints[i], tokens, 64, &count, memory, ROOM, &failure));
        if (ints[i] <= 64) {
            count = -5;
            TRY(specdec_tokenize(model, "a b", 3, 0, tokens, ints[i], &count, memory, ROOM, &failure));
            CHECK(count > 0 && count < 16);
        }
        if (token < 0 || token >= VOCABULARY) {
            REFUSED(specdec_token_text(model, token, bytes, sizeof bytes, &length, &failure));
            REFUSED(specdec_detokenize(model, &token, 1, 0, bytes, sizeof bytes, &length, &failure));
        }
        if (ints[i] < 0) {
            REFUSED(specdec_detokenize(model, prompt, ints[i], 0, bytes, sizeof bytes, &length, &failure));
            REFUSED(specdec_detokenize(model, NULL, ints[i], 0, NULL, 0, &length, NULL));
        }
        TRY(specdec_detokenize(model, prompt, 2, ints[i], bytes, sizeof bytes, &length, &failure));
    }
    for (i = 0; i < COUNT(sizes); i++) {
        CALL(specdec_tokenize_memory(model, sizes[i]));
        CALL(specdec_tokenize_memory(NULL, sizes[i]));
        if (sizes[i] > 63)
            REFUSED(specdec_tokenize(model, "a", sizes[i], 0, tokens, 64, &count, memory, ROOM, &failure));
        if (sizes[i] < 64)
            TRY(specdec_tokenize(model, "a", 1, 0, tokens, 64, &count, memory, sizes[i], &failure));
    }
    test_conversations(model, memory);
    for (i = 0; i < COUNT(ints); i++)
        CHECK(ints[i] >= 0 && ints[i] < VOCABULARY ? specdec_token_kind(model, ints[i]) >= 0 : specdec_token_kind(model, ints[i]) < 0);
    CALL(specdec_token_kind(NULL, 0));
    REFUSED(specdec_get_model_info(NULL, &info));
    REFUSED(specdec_get_model_info(model, NULL));
}

/* --- files and types ---------------------------------------------------------------------------------------------- */

static void test_files(void)
{
    specdec_gguf gguf, none;
    specdec_gguf_value value, array;
    specdec_gguf_tensor tensor;
    specdec_gguf_pair pair;
    specdec_bytes string;
    specdec_type type;
    static unsigned char data[1024];
    static float values[256];
    size_t place, size, i;
    int64_t integer;
    double real;
    float single;
    int j;

    TEST("files: places, items, NULLs");
    memset(&none, 0, sizeof none);
    REFUSED(specdec_gguf_open(NULL, model_data, model_size, &failure));
    REFUSED(specdec_gguf_open(&gguf, NULL, SIZE_MAX, &failure));
    for (i = 0; i < 4; i++)
        REFUSED(specdec_gguf_open(&gguf, model_data, i, NULL));
    TRY(specdec_gguf_open(&gguf, model_data, model_size, &failure));
    CHECK(!specdec_gguf_find(NULL, "a", &value) && !specdec_gguf_find(&gguf, NULL, &value) && !specdec_gguf_find(&gguf, "a", NULL));
    CHECK(!specdec_gguf_find_tensor(NULL, "a", &tensor) && !specdec_gguf_find_tensor(&gguf, NULL, &tensor) &&
          !specdec_gguf_find_tensor(&gguf, "a", NULL));
    CHECK(specdec_gguf_find(&gguf, "tokenizer.ggml.tokens", &array));
    CHECK(specdec_gguf_find(&gguf, "general.architecture", &value));
    for (i = 0; i < (size_t)COUNT(sizes); i++) {
        if (sizes[i] > 0 && sizes[i] < model_size)
            continue; /* a place is 0, or what a call has left there */
        place = sizes[i];
        CALL(specdec_gguf_next_pair(&gguf, &place, &pair));
        place = sizes[i];
        CALL(specdec_gguf_next_tensor(&gguf, &place, &tensor));
        place = sizes[i];
        CALL(specdec_gguf_next_string(&array, &place, &string));
        place = sizes[i];
        CHECK(!specdec_gguf_next_pair(&none, &place, &pair) && !specdec_gguf_next_tensor(&none, &place, &tensor));
        CALL(specdec_gguf_integer(&array, sizes[i], &integer));
        CALL(specdec_gguf_real(&array, sizes[i], &real));
        CALL(specdec_gguf_integer(&value, sizes[i], &integer));
    }
    place = 0;
    CHECK(!specdec_gguf_next_pair(NULL, &place, &pair) && !specdec_gguf_next_pair(&gguf, NULL, &pair) &&
          !specdec_gguf_next_pair(&gguf, &place, NULL));
    CHECK(!specdec_gguf_next_tensor(NULL, &place, &tensor) && !specdec_gguf_next_tensor(&gguf, NULL, &tensor) &&
          !specdec_gguf_next_tensor(&gguf, &place, NULL));
    CHECK(!specdec_gguf_next_string(NULL, &place, &string) && !specdec_gguf_next_string(&array, NULL, &string) &&
          !specdec_gguf_next_string(&array, &place, NULL));
    CHECK(!specdec_gguf_integer(NULL, 0, &integer) && !specdec_gguf_integer(&value, 0, NULL));
    CHECK(!specdec_gguf_real(NULL, 0, &real) && !specdec_gguf_real(&value, 0, NULL));
    REFUSED(specdec_gguf_get_integer(NULL, "a", 0, 1, &integer, &failure));
    REFUSED(specdec_gguf_get_integer(&gguf, NULL, 0, 1, &integer, &failure));
    REFUSED(specdec_gguf_get_integer(&gguf, "a", 0, 1, NULL, NULL));
    TRY(specdec_gguf_get_integer(&gguf, "llama.block_count", INT64_MIN, INT64_MAX, &integer, NULL));
    REFUSED(specdec_gguf_get_integer(&gguf, "llama.block_count", INT64_MAX, INT64_MIN, &integer, NULL));
    REFUSED(specdec_gguf_get_float(NULL, "a", &single, &failure));
    REFUSED(specdec_gguf_get_float(&gguf, NULL, &single, &failure));
    REFUSED(specdec_gguf_get_float(&gguf, "a", NULL, NULL));
    REFUSED(specdec_gguf_get_string(NULL, "a", &string, &failure));
    REFUSED(specdec_gguf_get_string(&gguf, NULL, &string, &failure));
    REFUSED(specdec_gguf_get_string(&gguf, "a", NULL, NULL));

    TEST("types: numbers, counts, NULLs");
    CHECK(!specdec_type_by_name(NULL, &type) && !specdec_type_by_name("Q8_0", NULL) && !specdec_type_by_name("", &type));
    CHECK(!specdec_type_by_number(0, NULL));
    CHECK(specdec_type_not_read(0, NULL) == NULL && specdec_type_not_read(UINT32_MAX, &type) == NULL);
    for (j = 0; j < COUNT(ints); j++)
        CALL(specdec_type_not_read((uint32_t)ints[j], j % 2 ? &type : NULL));
    for (j = 0; j < COUNT(ints); j++) {
        CALL(specdec_type_by_number((uint32_t)ints[j], &type));
        for (i = 0; i < (size_t)COUNT(sizes); i++)
            TRY(specdec_type_bytes((uint32_t)ints[j], sizes[i], &size, &failure));
        TRY(specdec_type_to_float((uint32_t)ints[j], data, 0, values, &failure));
        TRY(specdec_type_to_float((uint32_t)ints[j], NULL, 0, NULL, &failure));
        TRY(specdec_type_from_float((uint32_t)ints[j], NULL, 0, NULL, &failure));
    }
    for (j = 0; j < SPECDEC_TYPE_NUMBERS; j++) {
        const int known = specdec_type_by_number((uint32_t)j, &type), reads = known && strncmp(type.name, "I", 1) != 0;

        REFUSED(specdec_type_bytes((uint32_t)j, 256, NULL, &failure));
        REFUSED(specdec_type_to_float((uint32_t)j, NULL, 256, values, &failure));
        REFUSED(specdec_type_to_float((uint32_t)j, data, 256, NULL, &failure));
        REFUSED(specdec_type_from_float((uint32_t)j, NULL, 256, data, NULL));
        REFUSED(specdec_type_from_float((uint32_t)j, values, 256, NULL, NULL));
        if (!reads)
            continue;
        for (i = 0; i < sizeof data; i++)
            data[i] = 0xFF; /* not-numbers as scales */
        TRY(specdec_type_to_float((uint32_t)j, data, 256, values, &failure));
        for (i = 0; i < 256; i++)
            values[i] = reals[i % (size_t)COUNT(reals)];
        TRY(specdec_type_from_float((uint32_t)j, values, 256, data, &failure));
    }
}

static void test_names(void)
{
    int i;

    TEST("names of what is not there");
    for (i = 0; i < COUNT(ints); i++) {
        const char *name, *text;

        calling = "specdec_isa_name";
        name = specdec_isa_name(ints[i]);
        CHECK(ints[i] >= 0 || !name);
        CHECK(ints[i] != 0 || name);
        CHECK(ints[i] < 63 || !name);
        calling = "specdec_result_text";
        text = specdec_result_text((specdec_result)ints[i]);
        CHECK(text && *text);
    }
    calling = "the test";
    CHECK(specdec_version() != NULL);
    CHECK(specdec_processors() >= 1);
}

/* --- sampling, trees, verifiers ----------------------------------------------------------------------------------- */

static void test_sampling(void)
{
    enum { VOCAB = 8 };
    specdec_candidate items[VOCAB], best[VOCAB];
    specdec_candidates candidates;
    specdec_sampling sampling;
    specdec_bias bias = {3, NAN};
    specdec_uniform uniform = {UINT64_MAX, UINT64_MAX, INT32_MAX - 1};
    const int32_t recent[4] = {INT32_MIN, -1, 7, INT32_MAX};
    float logits[VOCAB], p[VOCAB];
    int i, j, k;

    TEST("sampling: numbers, counts, NULLs");
    memset(&sampling, 0, sizeof sampling);
    candidates.items = items;
    candidates.count = VOCAB;
    candidates.greedy = 0;
    for (i = 0; i < VOCAB; i++)
        logits[i] = (float)i;
    REFUSED(specdec_sample_filter(NULL, &sampling, logits, VOCAB, recent, 4, &failure));
    REFUSED(specdec_sample_filter(&candidates, NULL, logits, VOCAB, recent, 4, &failure));
    REFUSED(specdec_sample_filter(&candidates, &sampling, NULL, VOCAB, recent, 4, &failure));
    REFUSED(specdec_sample_filter(&candidates, &sampling, logits, VOCAB, NULL, 4, NULL));
    for (i = 0; i < COUNT(ints); i++) {
        if (ints[i] <= 0)
            REFUSED(specdec_sample_filter(&candidates, &sampling, logits, ints[i], recent, 4, &failure));
        if (ints[i] < 0)
            REFUSED(specdec_sample_filter(&candidates, &sampling, logits, VOCAB, recent, ints[i], &failure));
        memset(&sampling, 0, sizeof sampling);
        sampling.temperature = 1;
        sampling.top_k = ints[i];
        TRY(specdec_sample_filter(&candidates, &sampling, logits, VOCAB, recent, 4, &failure));
        sampling.top_k = 0;
        sampling.repetition_penalty = 1.5f;
        sampling.repetition_window = ints[i];
        TRY(specdec_sample_filter(&candidates, &sampling, logits, VOCAB, recent, 4, &failure));
        sampling.repetition_window = 0;
        bias.token = ints[i];
        sampling.biases = &bias;
        sampling.bias_count = 1;
        TRY(specdec_sample_filter(&candidates, &sampling, logits, VOCAB, recent, 4, &failure));
        if (ints[i] < 0) {
            sampling.bias_count = ints[i];
            REFUSED(specdec_sample_filter(&candidates, &sampling, logits, VOCAB, recent, 4, &failure));
        }
        sampling.biases = NULL;
        if (ints[i]) {
            sampling.bias_count = ints[i];
            REFUSED(specdec_sample_filter(&candidates, &sampling, logits, VOCAB, recent, 4, &failure));
        }
    }
    for (k = 0; k < COUNT(reals); k++) /* all logits, or one, at an extreme, and so a parameter */
        for (i = 0; i < COUNT(reals); i++)
            for (j = 0; config_reals(&sampling)[j]; j++) {
                memset(&sampling, 0, sizeof sampling);
                sampling.temperature = 0.5f;
                *config_reals(&sampling)[j] = reals[i];
                logits[3] = reals[k];
                logits[4] = k % 2 ? reals[k] : 1;
                if (specdec_sample_filter(&candidates, &sampling, logits, VOCAB, recent, 4, &failure))
                    continue;
                CALL(specdec_sample_top(&candidates, UINT64_MAX, UINT64_MAX, VOCAB, best));
                TRY(specdec_sample_distribution(&candidates, VOCAB, p, &failure));
            }
    candidates.count = VOCAB;
    for (i = 0; i < VOCAB; i++) {
        items[i].token = i;
        items[i].logit = 0;
    }
    for (i = 0; i < COUNT(ints); i++) {
        CALL(specdec_sample_top(NULL, 0, 0, ints[i], best));
        CALL(specdec_sample_top(&candidates, 0, 0, ints[i], NULL));
        if (ints[i] <= VOCAB)
            CHECK(specdec_sample_top(&candidates, 0, 0, ints[i], best) <= VOCAB);
        if (ints[i] < VOCAB) /* also below the candidates' tokens */
            REFUSED(specdec_sample_distribution(&candidates, ints[i], p, &failure));
        if (ints[i] <= 0) {
            specdec_candidates few = candidates;

            few.count = ints[i];
            CHECK_EQUAL_INT(specdec_sample_top(&few, 0, 0, 2, best), 0);
            TRY(specdec_sample_distribution(&few, VOCAB, p, &failure));
        }
    }
    REFUSED(specdec_sample_distribution(NULL, VOCAB, p, &failure));
    REFUSED(specdec_sample_distribution(&candidates, VOCAB, NULL, NULL));
    candidates.items = NULL;
    REFUSED(specdec_sample_distribution(&candidates, VOCAB, p, NULL));
    CALL(specdec_sample_top(&candidates, 0, 0, 2, best));
    CHECK(specdec_uniform_next(NULL) <= 0);
    calling = "specdec_uniform_next";
    CHECK(specdec_uniform_next(&uniform) > 0);
    calling = "the test";
}

static void test_trees(void)
{
    enum { NODES = 8, WIDTH = 3, LEVELS = 4 };
    static double grid[1 << 12], times[NODES + 1];
    static char memory[1 << 20];
    int32_t parents[NODES] = {-1, 0, 0, 1}, ranks[NODES] = {0, 1, 2, 1}, kept[NODES], depths[NODES], widths[2] = {1, 4};
    double p[WIDTH] = {0.5, 0.2, 0.1}, score = 0, rate;
    float probability[NODES] = {1, 0.5f, 0.3f, 0.2f};
    specdec_tree tree = {parents, ranks, NODES, 4}, made;
    int i, n, d;

    TEST("trees: numbers, counts, NULLs");
    for (i = 0; i <= NODES; i++)
        times[i] = 1 + i;
    REFUSED(specdec_tree_check(NULL, &failure));
    CHECK_EQUAL_INT(specdec_tree_depth(NULL, depths), 0);
    REFUSED(specdec_tree_chains(NULL, 1, 1, NULL));
    REFUSED(specdec_tree_full(NULL, 1, 1, NULL));
    REFUSED(specdec_tree_score(NULL, &tree, p, WIDTH, NULL));
    REFUSED(specdec_tree_score(&score, NULL, p, WIDTH, NULL));
    REFUSED(specdec_tree_score(&score, &tree, NULL, WIDTH, NULL));
    REFUSED(specdec_tree_best(NULL, &score, p, WIDTH, 4, 3, memory, sizeof memory, NULL));
    REFUSED(specdec_tree_best(&tree, &score, NULL, WIDTH, 4, 3, memory, sizeof memory, NULL));
    REFUSED(specdec_tree_best(&tree, &score, p, WIDTH, 4, 3, NULL, sizeof memory, NULL));
    REFUSED(specdec_tree_best(&tree, &score, p, WIDTH, 4, 3, memory, 0, NULL));
    REFUSED(specdec_tree_grid(NULL, p, WIDTH, 4, 3, memory, sizeof memory, NULL));
    REFUSED(specdec_tree_grid(grid, NULL, WIDTH, 4, 3, memory, sizeof memory, NULL));
    REFUSED(specdec_tree_grid(grid, p, WIDTH, 4, 3, NULL, SIZE_MAX, NULL));
    TRY(specdec_tree_grid(grid, p, WIDTH, 4, 3, memory, sizeof memory, NULL));
    REFUSED(specdec_tree_choose(NULL, &d, &rate, grid, 4, 3, widths, times, 2, 0.1, NULL));
    REFUSED(specdec_tree_choose(&n, NULL, &rate, grid, 4, 3, widths, times, 2, 0.1, NULL));
    REFUSED(specdec_tree_choose(&n, &d, &rate, NULL, 4, 3, widths, times, 2, 0.1, NULL));
    REFUSED(specdec_tree_choose(&n, &d, &rate, grid, 4, 3, NULL, times, 2, 0.1, NULL));
    REFUSED(specdec_tree_choose(&n, &d, &rate, grid, 4, 3, widths, NULL, 2, 0.1, NULL));
    REFUSED(specdec_tree_pick(NULL, &rate, p, WIDTH, times, NODES, 0.1, NULL));
    REFUSED(specdec_tree_pick(&tree, &rate, NULL, WIDTH, times, NODES, 0.1, NULL));
    REFUSED(specdec_tree_pick(&tree, &rate, p, WIDTH, NULL, NODES, 0.1, NULL));
    REFUSED(specdec_tree_grow(NULL, kept, parents, probability, 4, 2, NULL));
    REFUSED(specdec_tree_grow(&tree, NULL, parents, probability, 4, 2, NULL));
    REFUSED(specdec_tree_grow(&tree, kept, NULL, probability, 4, 2, NULL));
    REFUSED(specdec_tree_grow(&tree, kept, parents, NULL, 4, 2, NULL));
    made = tree;
    made.parents = NULL;
    REFUSED(specdec_tree_check(&made, NULL));
    REFUSED(specdec_tree_chains(&made, 1, 1, NULL));
    REFUSED(specdec_tree_score(&score, &made, p, WIDTH, NULL));
    made = tree;
    made.ranks = NULL;
    REFUSED(specdec_tree_check(&made, NULL));
    REFUSED(specdec_tree_full(&made, 1, 2, NULL));
    for (i = 0; i < COUNT(ints); i++) {
        const int x = ints[i];

        made = tree;
        made.n = x;
        if (x < 1 || x > NODES) {
            REFUSED(specdec_tree_check(&made, &failure));
            REFUSED(specdec_tree_score(&score, &made, p, WIDTH, &failure));
        }
        made = tree;
        made.capacity = x;
        if (x < 4) {
            REFUSED(specdec_tree_check(&made, &failure));
            REFUSED(specdec_tree_full(&made, 3, 2, &failure));
        }
        if (x >= 0 && x <= NODES) {
            int32_t kept_parent = parents[3], kept_rank = ranks[3];

            parents[3] = x > 2 ? x : -2;
            REFUSED(specdec_tree_check(&tree, &failure));
            parents[3] = kept_parent;
            ranks[3] = x == 1 ? 0 : x;
            REFUSED(specdec_tree_check(&tree, &failure));
            ranks[3] = kept_rank;
        }
        CALL(specdec_tree_memory(x, LEVELS, WIDTH));
        CALL(specdec_tree_memory(NODES, x, WIDTH));
        CALL(specdec_tree_memory(NODES, LEVELS, x));
        CALL(specdec_tree_memory(x, x, x));
        made = tree;
        TRY(specdec_tree_chains(&made, x, 1, &failure));
        made = tree;
        TRY(specdec_tree_chains(&made, 1, x, &failure));
        made = tree;
        TRY(specdec_tree_chains(&made, x, x, &failure));
        made = tree;
        TRY(specdec_tree_full(&made, x, 2, &failure));
        made = tree;
        TRY(specdec_tree_full(&made, 1, x, &failure));
        made = tree;
        TRY(specdec_tree_full(&made, x, x, &failure));
        parents[0] = -1; parents[1] = parents[2] = 0; parents[3] = 1;
        ranks[0] = 0; ranks[1] = ranks[3] = 1; ranks[2] = 2;
        if (x < 1 || x > WIDTH) {
            if (x < 0 || x > SPECDEC_TREE_MAX_WIDTH)
                REFUSED(specdec_tree_best(&tree, &score, p, x, 4, 3, memory, sizeof memory, &failure));
            if (x < 0 || x > SPECDEC_TREE_MAX_WIDTH)
                REFUSED(specdec_tree_score(&score, &tree, p, x, &failure));
        }
        tree.n = 4;
        if (x < 1 || x > SPECDEC_TREE_MAX_NODES) {
            made = tree;
            REFUSED(specdec_tree_best(&made, &score, p, WIDTH, x, 3, memory, sizeof memory, &failure));
            REFUSED(specdec_tree_grid(grid, p, WIDTH, x, 3, memory, sizeof memory, &failure));
        }
        if (x < 1 || x > SPECDEC_TREE_MAX_DEPTH) {
            made = tree;
            REFUSED(specdec_tree_best(&made, &score, p, WIDTH, 4, x, memory, sizeof memory, &failure));
            REFUSED(specdec_tree_grid(grid, p, WIDTH, 4, x, memory, sizeof memory, &failure));
        }
        if (x <= 0) {
            REFUSED(specdec_tree_choose(&n, &d, &rate, grid, x, 3, widths, times, 2, 0.1, &failure));
            REFUSED(specdec_tree_choose(&n, &d, &rate, grid, 4, x, widths, times, 2, 0.1, &failure));
            REFUSED(specdec_tree_choose(&n, &d, &rate, grid, 4, 3, widths, times, x, 0.1, &failure));
            made = tree;
            REFUSED(specdec_tree_pick(&made, &rate, p, WIDTH, times, x, 0.1, &failure));
            REFUSED(specdec_tree_grow(&made, kept, parents, probability, x, 2, &failure));
            REFUSED(specdec_tree_grow(&made, kept, parents, probability, 4, x, &failure));
        }
        parents[0] = -1; parents[1] = parents[2] = 0; parents[3] = 1;
        ranks[0] = 0; ranks[1] = ranks[3] = 1; ranks[2] = 2;
    }
    for (i = 0; i < COUNT(reals); i++) {
        p[1] = (double)reals[i];
        made = tree;
        TRY(specdec_tree_score(&score, &tree, p, WIDTH, &failure));
        TRY(specdec_tree_best(&made, &score, p, WIDTH, 4, 3, memory, sizeof memory, &failure));
        TRY(specdec_tree_grid(grid, p, WIDTH, 4, 3, memory, sizeof memory, &failure));
        TRY(specdec_tree_pick(&made, &rate, p, WIDTH, times, NODES, 0.1, &failure));
        p[1] = 0.2;
        TRY(specdec_tree_pick(&made, &rate, p, WIDTH, times, NODES, (double)reals[i], &failure));
        TRY(specdec_tree_grid(grid, p, WIDTH, 4, 3, memory, sizeof memory, &failure));
        TRY(specdec_tree_choose(&n, &d, &rate, grid, 4, 3, widths, times, 2, (double)reals[i], &failure));
        times[1] = (double)reals[i];
        TRY(specdec_tree_choose(&n, &d, &rate, grid, 4, 3, widths, times, 2, 0.1, &failure));
        TRY(specdec_tree_pick(&made, &rate, p, WIDTH, times, NODES, 0.1, &failure));
        times[1] = 2;
        parents[0] = -1; parents[1] = parents[2] = 0; parents[3] = 1;
        probability[2] = reals[i];
        TRY(specdec_tree_grow(&made, kept, parents, probability, 4, 2, &failure));
        probability[2] = 0.3f;
        parents[0] = -1; parents[1] = parents[2] = 0; parents[3] = 1;
        ranks[0] = 0; ranks[1] = ranks[3] = 1; ranks[2] = 2;
    }
}

static specdec_result accept_first(void *user_data, int node, const int32_t *children, int child_count, specdec_verdict *verdict)
{
    (void)node;
    verdict->child = *(int *)user_data;
    verdict->token = child_count > 0 ? children[0] : 1;
    return SPECDEC_OK;
}

static void test_verifiers(void)
{
    enum { VOCAB = 8 };
    float target[VOCAB], draft[VOCAB];
    int32_t children[2] = {1, 2}, path[4], accepted[4], tokens[4] = {1, 2, 3, 4};
    int32_t parents[4] = {-1, 0, 0, 1}, ranks[4] = {0, 1, 2, 1};
    specdec_tree tree = {parents, ranks, 4, 4};
    specdec_uniform uniform = {1, 2, 0};
    specdec_choice choice, broken;
    specdec_verdict verdict;
    int i, rule, count, child = -1;

    TEST("verifiers: rules, counts, tokens, NULLs");
    for (i = 0; i < VOCAB; i++)
        target[i] = draft[i] = 1.0f / VOCAB;
    memset(&choice, 0, sizeof choice);
    choice.target = target;
    choice.draft = draft;
    choice.children = children;
    choice.vocab = VOCAB;
    choice.child_count = 2;
    choice.random = &uniform;
    for (i = 0; i < COUNT(ints); i++)
        if (ints[i] < 0 || ints[i] >= SPECDEC_RULE_COUNT)
            REFUSED(specdec_verify((specdec_rule)ints[i], &choice, &verdict, &failure));
    for (rule = 0; rule < SPECDEC_RULE_COUNT; rule++) {
        const specdec_rule r = (specdec_rule)rule;

        REFUSED(specdec_verify(r, NULL, &verdict, &failure));
        REFUSED(specdec_verify(r, &choice, NULL, NULL));
        broken = choice;
        broken.target = NULL;
        REFUSED(specdec_verify(r, &broken, &verdict, NULL));
        broken = choice;
        broken.children = NULL;
        REFUSED(specdec_verify(r, &broken, &verdict, NULL));
        broken = choice;
        broken.draft = NULL;
        TRY(specdec_verify(r, &broken, &verdict, NULL));
        broken = choice;
        broken.random = NULL;
        TRY(specdec_verify(r, &broken, &verdict, NULL));
        for (i = 0; i < COUNT(ints); i++) {
            broken = choice;
            broken.vocab = ints[i];
            if (ints[i] <= 2)
                REFUSED(specdec_verify(r, &broken, &verdict, &failure));
            broken = choice;
            broken.child_count = ints[i];
            if (ints[i] < 0)
                REFUSED(specdec_verify(r, &broken, &verdict, &failure));
            if (ints[i] < 0 || ints[i] >= VOCAB) {
                children[1] = ints[i];
                REFUSED(specdec_verify(r, &choice, &verdict, &failure));
                children[1] = 2;
            }
        }
        for (i = 0; i < COUNT(reals); i++) {
            uniform.decision = 0;
            target[3] = reals[i];
            TRY(specdec_verify(r, &choice, &verdict, &failure));
            target[3] = 1.0f / VOCAB;
            draft[1] = reals[i];
            TRY(specdec_verify(r, &choice, &verdict, &failure));
            draft[1] = 1.0f / VOCAB;
        }
    }
    CALL((specdec_verify_match(NULL, children, 2, 1), 0));
    CALL((specdec_verify_match(&verdict, NULL, 2, 1), 0));
    for (i = 0; i < COUNT(ints); i++)
        if (ints[i] <= 2)
            CALL((specdec_verify_match(&verdict, children, ints[i], ints[i]), 0));
    REFUSED(specdec_verify_walk(NULL, accepted, &count, &tree, tokens, accept_first, &child, &failure));
    REFUSED(specdec_verify_walk(path, NULL, &count, &tree, tokens, accept_first, &child, &failure));
    REFUSED(specdec_verify_walk(path, accepted, NULL, &tree, tokens, accept_first, &child, &failure));
    REFUSED(specdec_verify_walk(path, accepted, &count, NULL, tokens, accept_first, &child, &failure));
    REFUSED(specdec_verify_walk(path, accepted, &count, &tree, NULL, accept_first, &child, &failure));
    REFUSED(specdec_verify_walk(path, accepted, &count, &tree, tokens, NULL, &child, NULL));
    for (i = 0; i < COUNT(ints); i++) {
        child = ints[i];
        TRY(specdec_verify_walk(path, accepted, &count, &tree, tokens, accept_first, &child, &failure));
        tree.n = ints[i];
        if (ints[i] < 1 || ints[i] > 4)
            REFUSED(specdec_verify_walk(path, accepted, &count, &tree, tokens, accept_first, &child, &failure));
        tree.n = 4;
    }
    for (i = 0; i < COUNT(ints); i++) { /* set for an engine that drafts otherwise, or not at all */
        tree.n = ints[i];
        REFUSED(specdec_set_tree(engine, &tree));
    }
}

int main(void)
{
    signal(SIGILL, on_trap);
    signal(SIGTRAP, on_trap);
    signal(SIGSEGV, on_trap);
    signal(SIGABRT, on_trap);
    signal(SIGFPE, on_trap);
    make_model();
    make_engine();
    test_names();
    test_no_text();
    test_missing();
    test_counts();
    test_tokens();
    test_files();
    test_sampling();
    test_trees();
    test_verifiers();
    CHECK(tokens_of(engine) == COUNT(prompt));
    test_fields();
    test_constraints();
    test_splitter();
    test_all();
    test_configurations();
    specdec_deinit(engine);
    free(block);
    free(model_data);
    return check_report("test_arguments");
}
