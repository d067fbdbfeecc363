/* test_settings.c - what may change between two calls, why answers end, log-probabilities, and arguments that are missing; on the
   pair in examples/models, through the public part alone. */
#include "specdec.h"
#include "check.h"

#define TARGET "examples/models/tiny-stories-target-q8_0.gguf"
#define DRAFT "examples/models/tiny-stories-draft-q8_0.gguf"

static specdec_error error;

/* An engine, and what it has written. */
typedef struct session {
    specdec *engine;
    void *block;
    char text[8000];
    size_t length;
} session;

static specdec_config config_of(specdec_drafting drafting)
{
    specdec_config c;

    memset(&c, 0, sizeof c);
    c.target.path = TARGET;
    c.draft.path = DRAFT;
    c.drafting = drafting;
    c.context = 400;
    c.threads = 1;
    c.settings.max_tokens = 120;
    return c;
}

static int open_session(session *s, const specdec_config *c)
{
    size_t bytes;

    memset(s, 0, sizeof *s);
    CHECK_EQUAL_INT(specdec_memory_needed(c, &bytes, &error), SPECDEC_OK);
    s->block = malloc(bytes);
    CHECK_EQUAL_INT(specdec_init(&s->engine, c, s->block, bytes, &error), SPECDEC_OK);
    return s->engine && !specdec_prompt(s->engine, "Once upon a time", SPECDEC_WHOLE_STRING);
}

static void close_session(session *s)
{
    specdec_deinit(s->engine);
    free(s->block);
}

static specdec_result next(session *s)
{
    specdec_text piece;
    specdec_result result = specdec_next(s->engine, &piece);

    memcpy(s->text + s->length, piece.bytes, piece.length);
    s->length += piece.length;
    return result;
}

static void read_on(session *s)
{
    while (next(s) == SPECDEC_OK)
        continue;
}

/* The whole answer of a configuration. */
static void answer_of(const specdec_config *c, session *s)
{
    CHECK(open_session(s, c));
    read_on(s);
    close_session(s);
}

static const specdec_drafting draftings[] = {SPECDEC_DRAFT_OFF, SPECDEC_DRAFT_MODEL, SPECDEC_DRAFT_NGRAM, SPECDEC_DRAFT_AUTO};
#define DRAFTINGS 4

/* --- sampling --------------------------------------------------------------------------------------------------------- */

static specdec_settings settings_of(int i)
{
    static const float temperatures[] = {0, 0.9f, 0, 1.2f, 0.7f};
    static const specdec_bias biases[] = {{13, -4.0f}, {300, 5.0f}, {301, -INFINITY}};
    specdec_settings s;

    memset(&s, 0, sizeof s);
    s.sampling.temperature = temperatures[i % 5];
    s.sampling.seed = (uint64_t)(i / 2);
    s.sampling.top_p = i % 3 == 2 ? 0.9f : 0;
    s.sampling.repetition_penalty = i % 4 == 3 ? 1.2f : 0;
    s.sampling.biases = i % 7 == 5 ? biases : NULL;
    s.sampling.bias_count = i % 7 == 5 ? 3 : 0;
    s.max_tokens = 150;
    return s;
}

/* An answer whose sampling changes behind every third piece. */
static void changing_answer(session *s, specdec_drafting drafting, specdec_rule rule)
{
    specdec_config c = config_of(drafting);
    int i;

    c.rule = rule;
    CHECK(open_session(s, &c));
    for (i = 0;; i++) {
        specdec_settings settings = settings_of(i / 3);

        if (i % 3 == 0)
            CHECK_EQUAL_INT(specdec_set(s->engine, &settings), SPECDEC_OK);
        if (next(s))
            break;
    }
    CHECK_EQUAL_INT(specdec_stopped(s->engine, NULL), SPECDEC_STOP_LIMIT);
    close_session(s);
}

static void test_sampling(void)
{
    static session plain, s;
    specdec_config c = config_of(SPECDEC_DRAFT_AUTO);
    specdec_settings settings;
    int i;

    TEST("sampling that changes between calls gives the same text with every drafter");
    changing_answer(&plain, SPECDEC_DRAFT_OFF, SPECDEC_RULE_COUPLED);
    CHECK(plain.length > 200);
    for (i = 1; i < DRAFTINGS; i++) {
        changing_answer(&s, draftings[i], SPECDEC_RULE_COUPLED);
        CHECK(s.length == plain.length && memcmp(s.text, plain.text, s.length) == 0);
    }

    TEST("temperature may come and go with every rule");
    for (i = SPECDEC_RULE_COUPLED; i < SPECDEC_RULE_GREEDY; i++) {
        changing_answer(&s, SPECDEC_DRAFT_MODEL, (specdec_rule)i);
        CHECK(s.length > 200);
    }

    TEST("to set what is set already changes nothing");
    answer_of(&c, &plain);
    CHECK(open_session(&s, &c));
    do {
        memset(&settings, 0x55, sizeof settings);
        specdec_get_settings(s.engine, &settings);
        CHECK_EQUAL_INT(settings.max_tokens, 120);
        CHECK_EQUAL_INT(specdec_set(s.engine, &settings), SPECDEC_OK);
    } while (!next(&s));
    close_session(&s);
    CHECK(s.length == plain.length && memcmp(s.text, plain.text, s.length) == 0);
}

static void test_bias(void)
{
    static session s;
    specdec_config c = config_of(SPECDEC_DRAFT_AUTO);
    specdec_bias bias[2];
    const int32_t *tokens;
    int d, i, count, prompted, first;

    TEST("a bias forbids a token, or brings it");
    for (d = 0; d < DRAFTINGS; d++) {
        c.drafting = draftings[d];
        c.settings.sampling.temperature = d % 2 ? 0.8f : 0;
        c.settings.sampling.bias_count = 0;
        CHECK(open_session(&s, &c));
        specdec_tokens(s.engine, &tokens, &prompted);
        read_on(&s);
        specdec_tokens(s.engine, &tokens, &count);
        first = tokens[prompted];
        close_session(&s);

        bias[0].token = first;
        bias[0].bias = -INFINITY;
        c.settings.sampling.biases = bias;
        c.settings.sampling.bias_count = 1;
        CHECK(open_session(&s, &c));
        read_on(&s);
        specdec_tokens(s.engine, &tokens, &count);
        CHECK(count > prompted + 5);
        for (i = prompted; i < count && tokens[i] != first; i++)
            continue;
        CHECK_EQUAL_INT(i, count);
        close_session(&s);

        bias[0].bias = 30;
        bias[1] = bias[0]; /* both count */
        c.settings.sampling.bias_count = 2;
        CHECK(open_session(&s, &c));
        read_on(&s);
        specdec_tokens(s.engine, &tokens, &count);
        CHECK_EQUAL_INT(count, prompted + 120);
        for (i = prompted; i < count && tokens[i] == first; i++)
            continue;
        CHECK_EQUAL_INT(i, count);
        close_session(&s);
    }
}

static void test_refused(void)
{
    static session plain, s;
    static const specdec_bias no_number = {1, NAN};
    specdec_config c = config_of(SPECDEC_DRAFT_AUTO);
    char longest[258];
    size_t bytes;
    int i, turn = 0;

    TEST("settings that are refused change nothing, and say why");
    memset(longest, 'x', 257);
    longest[257] = 0;
    answer_of(&c, &plain);
    CHECK(open_session(&s, &c));
    do {
        specdec_settings bad = settings_of(turn);

        switch (turn++ % 8) {
        case 0: bad.max_tokens = -1; break;
        case 1: bad.sampling.temperature = -1; break;
        case 2: bad.sampling.top_p = NAN; break;
        case 3: bad.sampling.biases = &no_number; bad.sampling.bias_count = 1; break;
        case 4: bad.sampling.biases = NULL; bad.sampling.bias_count = 1; break;
        case 5: bad.sampling.bias_count = -1; break;
        case 6: bad.stop[0] = "good"; bad.stop[1] = ""; break;
        default: bad.stop[0] = longest; break;
        }
        CHECK_EQUAL_INT(specdec_set(s.engine, &bad), SPECDEC_ERROR_ARGUMENT);
        CHECK(specdec_error_text(s.engine)[0] != 0);
        c.settings = bad;
        CHECK_EQUAL_INT(specdec_memory_needed(&c, &bytes, &error), SPECDEC_ERROR_ARGUMENT);
    } while (!next(&s));
    for (i = 0; i < 3; i++)
        CHECK_EQUAL_INT(next(&s), SPECDEC_DONE);
    close_session(&s);
    CHECK(s.length == plain.length && memcmp(s.text, plain.text, s.length) == 0);
}

/* --- stop strings and limits ------------------------------------------------------------------------------------------ */

/* Where a string stands in text[length] from a place on; length when nowhere. */
static size_t find(const char *text, size_t length, size_t from, const char *string)
{
    for (; string && from + strlen(string) <= length; from++)
        if (memcmp(text + from, string, strlen(string)) == 0)
            return from;
    return length;
}

/* Bytes of a text, as a string with an ending of its own. */
static const char *part(char *out, const session *s, size_t from, size_t count, const char *ending)
{
    memcpy(out, s->text + from, count);
    strcpy(out + count, ending);
    return out;
}

static void test_stop_strings(void)
{
    static session plain, s;
    specdec_config c = config_of(SPECDEC_DRAFT_AUTO);
    specdec_settings settings, none;
    char first[40], second[40];
    size_t at, from;
    int kind;

    TEST("stop strings that change while bytes are held back: nothing is lost, nothing comes twice");
    answer_of(&c, &plain);
    for (at = 10; at + 30 < plain.length && at < 80; at += 7)
        for (kind = 0; kind < 4; kind++) {
            c.settings.stop[0] = part(first, &plain, at, 12, "\1"); /* holds back, never ends */
            CHECK(open_session(&s, &c));
            while (s.length + 4 < at)
                CHECK_EQUAL_INT(next(&s), SPECDEC_OK);
            CHECK_EQUAL_INT(next(&s), SPECDEC_OK);
            specdec_get_settings(s.engine, &settings);
            settings.stop[0] = kind == 0 ? NULL : kind == 1 ? part(second, &plain, at + 2, 3, "")
                             : kind == 2 ? part(second, &plain, at + 5, 15, "") : part(second, &plain, at + 4, 9, "\2");
            from = s.length;
            none = settings;
            none.stop[0] = NULL;
            CHECK_EQUAL_INT(specdec_set(s.engine, &none), SPECDEC_OK); /* nothing is handed out between: the last one counts */
            CHECK_EQUAL_INT(specdec_set(s.engine, &settings), SPECDEC_OK);
            CHECK_EQUAL_INT(specdec_set(s.engine, &settings), SPECDEC_OK); /* twice */
            read_on(&s);
            CHECK_EQUAL_INT(s.length, find(plain.text, plain.length, from, settings.stop[0]));
            CHECK(memcmp(s.text, plain.text, s.length) == 0);
            CHECK_EQUAL_INT(specdec_stopped(s.engine, NULL), s.length < plain.length ? SPECDEC_STOP_STRING : SPECDEC_STOP_LIMIT);
            close_session(&s);
        }
}

static void test_reasons(void)
{
    static session plain, s;
    specdec_config c = config_of(SPECDEC_DRAFT_AUTO);
    specdec_settings settings;
    specdec_bias bias = {2, 1000}; /* the token that ends texts */
    const int32_t *tokens;
    specdec_result result;
    int which, count;

    TEST("a limit that is raised lets the answer go on as if it had never been there");
    answer_of(&c, &plain);
    c.settings.max_tokens = 7;
    CHECK(open_session(&s, &c));
    CHECK_EQUAL_INT(specdec_stopped(s.engine, &which), SPECDEC_STOP_NONE);
    read_on(&s);
    CHECK_EQUAL_INT(specdec_stopped(s.engine, &which), SPECDEC_STOP_LIMIT);
    CHECK_EQUAL_INT(which, -1);
    specdec_get_settings(s.engine, &settings);
    settings.max_tokens = 120;
    CHECK(!specdec_set(s.engine, &settings));
    read_on(&s);
    CHECK(s.length == plain.length && memcmp(s.text, plain.text, s.length) == 0);

    TEST("an answer says why it ended");
    settings.max_tokens = 0;
    CHECK(!specdec_set(s.engine, &settings));
    specdec_cancel(s.engine);
    while ((result = next(&s)) == SPECDEC_OK) /* what was verified already still comes */
        continue;
    CHECK_EQUAL_INT(result, SPECDEC_ERROR_CANCELLED);
    CHECK_EQUAL_INT(specdec_stopped(s.engine, &which), SPECDEC_STOP_CANCELLED);
    CHECK_EQUAL_INT(next(&s), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_stopped(s.engine, &which), SPECDEC_STOP_NONE);
    for (count = 0; count < 20; count++) { /* in some of these turns the next token was verified already, and nothing runs */
        specdec_cancel(s.engine);
        CHECK_EQUAL_INT(specdec_logits(s.engine, NULL, NULL, 0, NULL), SPECDEC_ERROR_CANCELLED);
        CHECK_EQUAL_INT(specdec_stopped(s.engine, &which), SPECDEC_STOP_CANCELLED);
        CHECK_EQUAL_INT(next(&s), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_stopped(s.engine, &which), SPECDEC_STOP_NONE);
    }
    settings.sampling.biases = &bias;
    settings.sampling.bias_count = 1;
    CHECK(!specdec_set(s.engine, &settings));
    read_on(&s);
    CHECK_EQUAL_INT(specdec_stopped(s.engine, &which), SPECDEC_STOP_END);
    CHECK_EQUAL_INT(which, 2);
    specdec_tokens(s.engine, &tokens, &count);
    CHECK_EQUAL_INT(tokens[count - 1], 2);
    settings.sampling.bias_count = 0;
    settings.stop[0] = "never to be seen";
    settings.stop[1] = " ";
    CHECK(!specdec_set(s.engine, &settings));
    CHECK(!specdec_prompt(s.engine, "Tom and Lily were", SPECDEC_WHOLE_STRING));
    CHECK_EQUAL_INT(specdec_stopped(s.engine, &which), SPECDEC_STOP_NONE);
    read_on(&s);
    CHECK_EQUAL_INT(specdec_stopped(s.engine, &which), SPECDEC_STOP_STRING);
    CHECK_EQUAL_INT(which, 1);
    settings.stop[0] = NULL;
    bias.bias = -INFINITY;
    settings.sampling.bias_count = 1;
    CHECK(!specdec_set(s.engine, &settings));
    CHECK_EQUAL_INT(next(&s), SPECDEC_DONE); /* ended stays ended */
    CHECK(!specdec_prompt(s.engine, " at the", SPECDEC_WHOLE_STRING));
    read_on(&s);
    CHECK_EQUAL_INT(specdec_stopped(s.engine, &which), SPECDEC_STOP_CONTEXT);
    close_session(&s);
}

/* --- rows and log-probabilities --------------------------------------------------------------------------------------- */

/* Log-probability of a token by a row, in doubles. */
static double by_hand(const float *row, int vocabulary, int32_t token)
{
    double best = (double)row[0], total = 0;
    int i;

    for (i = 1; i < vocabulary; i++)
        best = fmax(best, (double)row[i]);
    for (i = 0; i < vocabulary; i++)
        total += exp((double)row[i] - best);
    return (double)row[token] - best - log(total);
}

/* Compares what an engine says about its answer with the rows of its whole text, read anew by another. */
static void check_logprobs(session *s, const float *rows, const int32_t *tokens, int count, int prompted, int vocabulary)
{
    specdec_logprob l;
    int i, j;

    for (i = 0; i < count; i++) {
        const float *row = rows + (size_t)(i - 1) * (size_t)vocabulary;

        if (i < prompted) {
            CHECK_EQUAL_INT(specdec_get_logprob(s->engine, i, &l), SPECDEC_ERROR_ARGUMENT);
            continue;
        }
        CHECK_EQUAL_INT(specdec_get_logprob(s->engine, i, &l), SPECDEC_OK);
        CHECK(l.token == tokens[i] && l.count == 5);
        CHECK(fabs((double)l.logprob - by_hand(row, vocabulary, l.token)) < 1e-5);
        for (j = 0; j < 5; j++) {
            CHECK(fabs((double)l.best[j].logit - by_hand(row, vocabulary, l.best[j].token)) < 1e-5);
            CHECK(j == 0 || row[l.best[j].token] <= row[l.best[j - 1].token]);
            CHECK(l.best[j].token == l.token || l.best[0].logit >= l.logprob);
        }
    }
    CHECK_EQUAL_INT(specdec_get_logprob(s->engine, count, &l), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_get_logprob(s->engine, -1, &l), SPECDEC_ERROR_ARGUMENT);
}

static void test_logprobs(void)
{
    static session plain, s;
    specdec_config c = config_of(SPECDEC_DRAFT_OFF), none = c;
    specdec_info info;
    specdec_logprob a, b;
    const int32_t *tokens, *others;
    float *rows, *row;
    int d, i, count, other_count, prompted;

    TEST("log-probabilities are those of the model's own rows, and the same bits with every drafter");
    c.logprobs = 5;
    c.settings.max_tokens = 40;
    c.settings.sampling.temperature = 1;
    CHECK(open_session(&plain, &c));
    specdec_tokens(plain.engine, &tokens, &prompted);
    specdec_get_info(plain.engine, &info);
    read_on(&plain);
    specdec_tokens(plain.engine, &tokens, &count);
    CHECK(count > prompted + 10);
    rows = (float *)malloc((size_t)count * (size_t)info.vocabulary * sizeof *rows);
    row = (float *)malloc((size_t)info.vocabulary * 2 * sizeof *row);
    CHECK(open_session(&s, &none));
    CHECK_EQUAL_INT(specdec_get_logprob(s.engine, 0, &a), SPECDEC_ERROR_ARGUMENT);
    CHECK(!specdec_rewind(s.engine, 0));
    CHECK_EQUAL_INT(specdec_prompt_logits(s.engine, tokens, 3, rows), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_prompt_logits(s.engine, tokens + 3, count - 3, rows + 3 * (size_t)info.vocabulary), SPECDEC_OK);
    check_logprobs(&plain, rows, tokens, count, prompted, info.vocabulary);
    for (d = 1; d < DRAFTINGS; d++) {
        static session drafted;

        c.drafting = draftings[d];
        CHECK(open_session(&drafted, &c));
        read_on(&drafted);
        specdec_tokens(drafted.engine, &others, &other_count);
        CHECK(other_count == count && memcmp(others, tokens, (size_t)count * sizeof *tokens) == 0);
        for (i = prompted; i < count; i++) {
            CHECK(!specdec_get_logprob(plain.engine, i, &a) && !specdec_get_logprob(drafted.engine, i, &b));
            CHECK(memcmp(&a.logprob, &b.logprob, sizeof a.logprob) == 0 && memcmp(a.best, b.best, 5 * sizeof *a.best) == 0);
        }
        close_session(&drafted);
    }

    TEST("the rows of a prompt are those that specdec_logits gives, and the answer behind them is the same");
    for (i = count - 1; i > 0; i -= 7) {
        CHECK(!specdec_rewind(s.engine, i));
        CHECK(!specdec_logits(s.engine, NULL, NULL, 0, row));
        CHECK(memcmp(row, rows + (size_t)(i - 1) * (size_t)info.vocabulary, (size_t)info.vocabulary * sizeof *row) == 0);
    }
    CHECK(!specdec_rewind(s.engine, 0));
    CHECK(!specdec_prompt_logits(s.engine, tokens, prompted, rows));
    read_on(&s);
    close_session(&s);
    answer_of(&none, &plain);
    CHECK(s.length == plain.length && memcmp(s.text, plain.text, s.length) == 0);
    free(rows);
    free(row);
}

/* --- tokenising, hooks, missing arguments ----------------------------------------------------------------------------- */

static void test_vocabulary(void)
{
    static session s;
    static const char text[] = "Once there was a <s> little \xc3\xa9l\xc3\xa9phant\n\n  in 1999.";
    static char memory[2000], back[200];
    specdec_config c = config_of(SPECDEC_DRAFT_OFF);
    specdec_model *model;
    int32_t a[100], b[100];
    size_t whole, bytes, used = 0, length;
    void *block;
    int flags, n, m, i;

    TEST("a model of a vocabulary alone tokenises as the engine's does, takes little memory, and is no model for an engine");
    CHECK(open_session(&s, &c));
    CHECK(!specdec_model_memory_needed(&c, &whole, &error));
    c.vocabulary_only = 1;
    CHECK(!specdec_model_memory_needed(&c, &bytes, &error));
    CHECK(bytes < whole / 3);
    block = malloc(bytes);
    CHECK_EQUAL_INT(specdec_model_init(&model, &c, block, bytes - 1, &error), SPECDEC_ERROR_MEMORY);
    CHECK_EQUAL_INT(specdec_model_init(&model, &c, block, bytes, &error), SPECDEC_OK);
    CHECK(specdec_tokenize_memory(model, strlen(text)) <= sizeof memory);
    for (flags = 0; flags < 8; flags++) {
        CHECK(!specdec_tokenize(model, text, SPECDEC_WHOLE_STRING, flags, a, 100, &n, memory, sizeof memory, &error));
        CHECK(!specdec_tokenize(specdec_get_model(s.engine), text, sizeof text - 1, flags, b, 100, &m, memory, sizeof memory, NULL));
        CHECK(n == m && n > 5 && memcmp(a, b, (size_t)n * sizeof *a) == 0);
        CHECK_EQUAL_INT(specdec_tokenize(model, text, SPECDEC_WHOLE_STRING, flags, NULL, 0, &m, memory, sizeof memory, &error), SPECDEC_ERROR_BUFFER);
        CHECK_EQUAL_INT(m, n);
    }
    CHECK(!specdec_tokenize(model, text, SPECDEC_WHOLE_STRING, 0, a, 100, &n, memory, sizeof memory, &error));
    for (i = 0; i < n; i++, used += length)
        CHECK(!specdec_token_text(model, a[i], back + used, sizeof back - used, &length, &error));
    CHECK(used == strlen(text) + 1 && memcmp(back + 1, text, strlen(text)) == 0); /* SPM puts a space before it */
    CHECK_EQUAL_INT(specdec_tokenize(model, text, SPECDEC_WHOLE_STRING, 0, a, 100, &n, memory, 8, &error), SPECDEC_ERROR_MEMORY);
    memset(&c, 0, sizeof c);
    c.target.model = model;
    CHECK_EQUAL_INT(specdec_memory_needed(&c, &bytes, &error), SPECDEC_ERROR_ARGUMENT);
    CHECK(strstr(error.text, "vocabulary") != NULL);
    c = config_of(SPECDEC_DRAFT_OFF);
    c.vocabulary_only = 1;
    CHECK_EQUAL_INT(specdec_memory_needed(&c, &bytes, &error), SPECDEC_ERROR_ARGUMENT);
    specdec_model_deinit(model);
    free(block);
    close_session(&s);
}

typedef struct watcher {
    int calls, cancel_at, lines;
    size_t longest;
} watcher;

static int on_progress(void *user_data, const char *what, int done, int total)
{
    watcher *w = (watcher *)user_data;

    CHECK(what && done > 0 && done <= total);
    return ++w->calls == w->cancel_at;
}

static void on_line(void *user_data, const char *line)
{
    watcher *w = (watcher *)user_data;

    w->lines++;
    w->longest = strlen(line) > w->longest ? strlen(line) : w->longest;
    CHECK(line[0] && !strchr(line, '\n'));
}

static void test_hooks(void)
{
    static session plain, s;
    specdec_config c = config_of(SPECDEC_DRAFT_AUTO);
    specdec_model *model;
    watcher w;
    size_t bytes;
    void *block;
    int repacks;

    TEST("the progress hook cancels an init, a model's init and a prompt; after each, all works");
    answer_of(&c, &plain);
    memset(&w, 0, sizeof w);
    c.hooks.user_data = &w;
    c.hooks.progress = on_progress;
    c.hooks.log = on_line;
    c.batch = 2;
    CHECK(!specdec_memory_needed(&c, &bytes, &error));
    CHECK_EQUAL_INT(w.calls, 0);
    block = malloc(bytes);
    CHECK(!specdec_init(&s.engine, &c, block, bytes, &error));
    repacks = w.calls;
    CHECK(repacks > 20);
    specdec_deinit(s.engine);
    for (w.cancel_at = repacks; w.cancel_at > 0; w.cancel_at -= 5) { /* the last one, too */
        w.calls = 0;
        CHECK_EQUAL_INT(specdec_init(&s.engine, &c, block, bytes, &error), SPECDEC_ERROR_CANCELLED);
        CHECK(!s.engine && error.text[0]);
        w.calls = 0;
        CHECK_EQUAL_INT(specdec_model_init(&model, &c, block, bytes, &error), w.cancel_at < 30 ? SPECDEC_ERROR_CANCELLED : SPECDEC_OK);
        specdec_model_deinit(model);
    }
    w.calls = w.cancel_at = 0;
    memset(&s, 0, sizeof s);
    CHECK(!specdec_init(&s.engine, &c, block, bytes, &error));
    w.cancel_at = w.calls + 2;
    CHECK_EQUAL_INT(specdec_prompt(s.engine, "Once upon a time", SPECDEC_WHOLE_STRING), SPECDEC_ERROR_CANCELLED);
    CHECK_EQUAL_INT(specdec_stopped(s.engine, NULL), SPECDEC_STOP_CANCELLED);
    CHECK(!specdec_prompt(s.engine, "Once upon a time", SPECDEC_WHOLE_STRING));
    CHECK_EQUAL_INT(specdec_stopped(s.engine, NULL), SPECDEC_STOP_NONE);
    read_on(&s);
    CHECK(s.length == plain.length && memcmp(s.text, plain.text, s.length) == 0);
    specdec_deinit(s.engine);
    free(block);

    TEST("the log has some lines, each whole");
    CHECK(w.lines >= 4 && w.longest < 159);
}

static void test_missing(void)
{
    static session s;
    specdec_config c = config_of(SPECDEC_DRAFT_OFF);
    specdec_message message = {SPECDEC_USER, NULL, 3, 0};
    specdec_text piece;
    specdec_settings settings;
    specdec_stats stats;
    specdec_info info;
    specdec_logprob logprob;
    specdec *none;
    const int32_t *tokens;
    const int32_t token = 5, parent = -1;
    size_t bytes;
    int count;

    TEST("an argument that is missing is an error, not a crash");
    c.chat_format = "zephyr";
    CHECK(open_session(&s, &c));
    CHECK_EQUAL_INT(specdec_memory_needed(NULL, &bytes, &error), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_memory_needed(&c, NULL, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_init(NULL, &c, s.block, 1, &error), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_init(&none, NULL, s.block, 1, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_set(NULL, &c.settings), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_set(s.engine, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK(strstr(specdec_error_text(s.engine), "NULL") != NULL);
    CHECK_EQUAL_INT(specdec_prompt(NULL, "a", 1), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_prompt(s.engine, NULL, 1), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_prompt(s.engine, NULL, SPECDEC_WHOLE_STRING), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_prompt_tokens(NULL, &token, 1), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_prompt_tokens(s.engine, NULL, 1), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_prompt_logits(s.engine, &token, -1, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_chat(NULL, &message, 1), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_chat(s.engine, NULL, 1), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_chat(s.engine, &message, 1), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_chat(s.engine, &message, 0), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_next(NULL, &piece), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_next(s.engine, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_step(s.engine, NULL, &count), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_step(s.engine, &tokens, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_rewind(NULL, 0), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_stopped(NULL, &count), SPECDEC_STOP_NONE);
    CHECK_EQUAL_INT(count, -1);
    CHECK_EQUAL_INT(specdec_logits(s.engine, NULL, &parent, 1, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_logits(s.engine, &token, NULL, 1, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_logits(NULL, &token, &parent, 1, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_get_logprob(NULL, 0, &logprob), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_get_logprob(s.engine, 0, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_model_memory_needed(NULL, &bytes, &error), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_model_memory_needed(&c, NULL, &error), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_model_init(NULL, &c, s.block, 1, &error), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_tokenize(NULL, "a", 1, 0, NULL, 0, &count, NULL, 0, &error), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_tokenize(specdec_get_model(s.engine), NULL, 1, 0, NULL, 0, &count, NULL, 0, &error), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_token_text(NULL, 1, NULL, 0, &bytes, &error), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_token_text(specdec_get_model(s.engine), 1, NULL, 0, NULL, &error), SPECDEC_ERROR_ARGUMENT);
    CHECK(specdec_tokenize_memory(NULL, 5) == 0 && specdec_get_model(NULL) == NULL && specdec_error_text(NULL)[0] == 0);
    specdec_cancel(NULL);
    specdec_deinit(NULL);
    specdec_model_deinit(NULL);
    specdec_get_settings(NULL, &settings);
    specdec_get_settings(s.engine, NULL);
    specdec_get_stats(NULL, &stats);
    specdec_get_stats(s.engine, NULL);
    specdec_get_info(NULL, &info);
    specdec_get_info(s.engine, NULL);
    specdec_tokens(NULL, &tokens, &count);
    CHECK(!tokens && !count);
    specdec_tokens(s.engine, NULL, NULL);
    CHECK_EQUAL_INT(next(&s), SPECDEC_OK);
    close_session(&s);
    CHECK(SPECDEC_VERSION_NUMBER > 0 && strcmp(specdec_version(), SPECDEC_VERSION) == 0);
}

/* --- several texts ------------------------------------------------------------------------------------------------------ */

static void test_narrow(void)
{
    static session s;
    specdec_config c = config_of(SPECDEC_DRAFT_MODEL);
    specdec_stats stats;
    specdec_text piece;
    specdec *other = NULL;
    int i;

    TEST("a draft model guesses for several texts also when prompts are read token by token");
    c.sequences = 2;
    c.batch = 1;
    c.tree_size = 4; /* the same tree at every step */
    CHECK(open_session(&s, &c));
    CHECK(!specdec_open(s.engine, &other) && !specdec_prompt(other, "The end", SPECDEC_WHOLE_STRING));
    for (i = 0; i < 30; i++)
        CHECK(!specdec_next(s.engine, &piece) && !specdec_next(other, &piece));
    specdec_get_stats(other, &stats);
    CHECK(stats.drafted > 0 && stats.accepted > 0);
    specdec_get_stats(s.engine, &stats);
    CHECK(stats.drafted > 0 && stats.accepted > 0);
    close_session(&s);
}

int main(void)
{
    test_sampling();
    test_bias();
    test_refused();
    test_stop_strings();
    test_reasons();
    test_logprobs();
    test_vocabulary();
    test_hooks();
    test_narrow();
    test_missing();
    return check_report("test_settings");
}
