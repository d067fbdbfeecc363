/* test_embed.c - what embedders rely on: nothing of a config is read after init, late cancellations end no prompt, a second
   thread is refused, and so are calls behind the end. */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "check.h"
#include "gguf_maker.h"
#include "machine.h"
#include <pthread.h>

static int quick;
static file plain, noisy;

static specdec_config config_of(int texts)
{
    specdec_config c;

    memset(&c, 0, sizeof c);
    c.target = source_of(&plain);
    c.draft = source_of(&noisy);
    c.context = 300;
    c.sequences = texts;
    c.threads = 1;
    return c;
}

/* What a text writes behind a prompt, without its end. */
static size_t written(specdec *t, char *out, size_t room)
{
    specdec_text piece;
    size_t length = 0;

    while (specdec_next(t, &piece) == SPECDEC_OK)
        if (length + piece.length <= room) {
            memcpy(out + length, piece.bytes, piece.length);
            length += piece.length;
        }
    return length;
}

/* --- lifetimes -------------------------------------------------------------------------------------------------------- */

/* A copy of a string in memory of its own, and that memory overwritten. */
static char *lent(const char *string) { return strcpy((char *)malloc(strlen(string) + 1), string); }

static void scribble(char *string)
{
    memset(string, '#', strlen(string));
    free(string);
}

/* An engine whose config, and all strings in it that need not stay, are overwritten and freed when it is made, writes and tells
   what one does that has them. */
static void test_scribbled(void)
{
    static char a[4000], b[4000];
    specdec_config *c = (specdec_config *)malloc(sizeof *c), whole = config_of(3);
    char *strings[6];
    machine m, other;
    specdec_info info;
    specdec *t, *u;
    size_t bytes, length;
    int i;
    FILE *f;

    TEST("nothing of a config but what the header names is read after init");
    f = fopen("test_embed_model.gguf", "wb");
    if (!f) {
        SKIP("no file can be written here");
        free(c);
        return;
    }
    CHECK(fwrite(plain.data, 1, plain.size, f) == plain.size);
    fclose(f);
    whole.kv = "q8_0";
    whole.chat_format = "zephyr";
    whole.fork_token = whole.child_token = "";
    whole.isa = specdec_isa_name(0);
    whole.settings.max_tokens = 40;
    *c = whole;
    memset(&c->target, 0, sizeof c->target);
    c->target.path = strings[0] = lent("test_embed_model.gguf");
    c->kv = strings[1] = lent("q8_0");
    c->chat_format = strings[2] = lent("zephyr");
    c->fork_token = strings[3] = lent("");
    c->child_token = strings[4] = lent("");
    c->isa = strings[5] = lent(specdec_isa_name(0));
    CHECK(open_machine(&other, &whole));
    CHECK_EQUAL_INT(specdec_memory_needed(c, &bytes, &failure), SPECDEC_OK);
    m.block = malloc(bytes);
    CHECK_EQUAL_INT(specdec_init(&m.first, c, m.block, bytes, &failure), SPECDEC_OK);
    for (i = 0; i < 6; i++)
        scribble(strings[i]);
    memset(c, 0x5A, sizeof *c);
    free(c);
    specdec_get_info(m.first, &info);
    CHECK(strcmp(info.kv, "q8_0") == 0 && strcmp(info.chat_format, "zephyr") == 0 && strcmp(info.isa, specdec_isa_name(0)) == 0);
    for (i = 0; i < 3; i++) {
        CHECK_EQUAL_INT(specdec_open(m.first, &t), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_open(other.first, &u), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_prompt(t, "hello there", SPECDEC_WHOLE_STRING), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_prompt(u, "hello there", SPECDEC_WHOLE_STRING), SPECDEC_OK);
        length = written(t, a, sizeof a);
        CHECK(length && length == written(u, b, sizeof b) && memcmp(a, b, length) == 0);
        specdec_close(t);
        specdec_close(u);
    }
    close_machine(&m);
    close_machine(&other);
    remove("test_embed_model.gguf");
}

/* --- cancellations ---------------------------------------------------------------------------------------------------- */

typedef struct rival {
    specdec *text;
    int stop, calls, refused, served;
    pthread_t thread;
} rival;

static void *cancels(void *user_data)
{
    rival *r = (rival *)user_data;

    while (!SPECDEC__LOAD(&r->stop)) {
        specdec_cancel(r->text);
        SPECDEC__STORE(&r->calls, r->calls + 1);
        if (r->calls % 16 == 0)
            machine_yield();
    }
    return NULL;
}

/* A server that cancels an answer, learns that it was done already, and prompts: that prompt is read. With a thread that
   cancels all the time, calls succeed or are cancelled, and what is written in the end is what it would be. */
static void test_late_cancels(void)
{
    static char a[4000], b[4000];
    static const int32_t bad = -5;
    specdec_config c = config_of(1);
    specdec_text piece;
    size_t length;
    machine m;
    rival r;
    int texts, i, cancelled = 0;

    for (texts = 1; texts <= 2; texts++) {
        TEST("a cancel that came too late ends no prompt; races with prompts end one call or none");
        c.sequences = texts;
        c.settings.max_tokens = 30;
        if (!open_machine(&m, &c))
            return;
        CHECK_EQUAL_INT(specdec_prompt(m.first, "hello", SPECDEC_WHOLE_STRING), SPECDEC_OK);
        length = written(m.first, a, sizeof a);
        for (i = 0; i < 20; i++) { /* DONE, or anywhere in an answer */
            specdec_cancel(m.first);
            if (i % 3 == 0)
                specdec_cancel(m.first);
            CHECK_EQUAL_INT(specdec_rewind(m.first, 0), SPECDEC_OK);
            if (i % 4 == 0) /* refused: the cancel stays, for the next one */
                CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, &bad, 1), SPECDEC_ERROR_ARGUMENT);
            CHECK_EQUAL_INT(specdec_prompt(m.first, "hello", SPECDEC_WHOLE_STRING), SPECDEC_OK);
            CHECK_EQUAL_INT(specdec_next(m.first, &piece), SPECDEC_OK);
            specdec_cancel(m.first); /* and this one is in time */
            while (specdec_next(m.first, &piece) == SPECDEC_OK)
                continue;
            CHECK_EQUAL_INT(specdec_stopped(m.first, NULL), SPECDEC_STOP_CANCELLED);
        }
        memset(&r, 0, sizeof r);
        r.text = m.first;
        pthread_create(&r.thread, NULL, cancels, &r);
        while (!SPECDEC__LOAD(&r.calls))
            machine_yield();
        for (i = 0; i < (quick ? 200 : 2000) || (cancelled < 5 && i < 20000); i++) {
            specdec_result result;

            CHECK_EQUAL_INT(specdec_rewind(m.first, 0), SPECDEC_OK);
            result = specdec_prompt(m.first, "hello", SPECDEC_WHOLE_STRING);
            CHECK(result == SPECDEC_OK || result == SPECDEC_ERROR_CANCELLED);
            result = result ? result : specdec_next(m.first, &piece);
            CHECK(result == SPECDEC_OK || result == SPECDEC_ERROR_CANCELLED);
            cancelled += result != 0;
        }
        SPECDEC__STORE(&r.stop, 1);
        pthread_join(r.thread, NULL);
        CHECK_EQUAL_INT(specdec_rewind(m.first, 0), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_prompt(m.first, "hello", SPECDEC_WHOLE_STRING), SPECDEC_OK);
        CHECK(written(m.first, b, sizeof b) == length && memcmp(a, b, length) == 0);
        close_machine(&m);
    }
    printf("  %d of the calls in races were cancelled\n", cancelled);
}

/* --- several threads -------------------------------------------------------------------------------------------------- */

/* Calls an engine although another thread may be inside. */
static void *intrudes(void *user_data)
{
    rival *r = (rival *)user_data;
    specdec *opened;
    specdec_text piece;

    while (!SPECDEC__LOAD(&r->stop)) {
        specdec_result result = r->calls % 2 ? specdec_open(r->text, &opened) : specdec_take(r->text, &piece);

        if (r->calls++ % 2 && !result)
            specdec_close(opened);
        SPECDEC__STORE(&r->refused, r->refused + (result == SPECDEC_ERROR_ARGUMENT));
        SPECDEC__STORE(&r->served, r->served + (result == SPECDEC_OK || result == SPECDEC_PENDING || result == SPECDEC_DONE));
        machine_yield();
    }
    return NULL;
}

static specdec *inner;
static int asked, told;

static int asks(void *user_data, const char *what, int done, int total)
{
    specdec_text piece;

    (void)user_data;
    (void)what;
    (void)done;
    (void)total;
    if (inner) {
        told += specdec_next(inner, &piece) == SPECDEC_ERROR_ARGUMENT;
        told += specdec_prompt(inner, "x", 1) == SPECDEC_ERROR_ARGUMENT;
        specdec_close(inner); /* does nothing */
        asked += 2;
    }
    return 0;
}

/* While one thread waits for a long call, another's calls on any text of the engine are refused; hooks' calls are, too. What is
   written is what it would be. */
static void test_second_thread(void)
{
    static char a[4000], b[4000];
    specdec_config c = config_of(4);
    specdec *mine;
    specdec_text piece;
    size_t length;
    machine m;
    rival r;
    int i;

    TEST("a second thread inside an engine, or a call from a hook, is refused, and nothing is changed");
    if (!open_machine(&m, &c))
        return;
    CHECK_EQUAL_INT(specdec_open(m.first, &mine), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_prompt(mine, "hello", SPECDEC_WHOLE_STRING), SPECDEC_OK);
    length = written(mine, a, sizeof a);
    memset(&r, 0, sizeof r);
    r.text = m.first;
    CHECK_EQUAL_INT(specdec_prompt(m.first, "other", SPECDEC_WHOLE_STRING), SPECDEC_OK);
    pthread_create(&r.thread, NULL, intrudes, &r);
    for (i = 0; i < (quick ? 30 : 200) || ((!SPECDEC__LOAD(&r.served) || !SPECDEC__LOAD(&r.refused)) && i < 5000); i++) {
        size_t at = 0;
        specdec_result result;

        while ((result = specdec_rewind(mine, 0)) == SPECDEC_ERROR_ARGUMENT) /* it is the other one's turn */
            continue;
        CHECK_EQUAL_INT(result, SPECDEC_OK);
        while ((result = specdec_prompt(mine, "hello", SPECDEC_WHOLE_STRING)) == SPECDEC_ERROR_ARGUMENT)
            continue;
        CHECK_EQUAL_INT(result, SPECDEC_OK);
        while ((result = specdec_next(mine, &piece)) == SPECDEC_OK || result == SPECDEC_ERROR_ARGUMENT)
            if (result) {
                machine_yield();
            } else {
                memcpy(b + at, piece.bytes, piece.length);
                at += piece.length;
            }
        CHECK(result == SPECDEC_DONE && at == length && memcmp(a, b, length) == 0);
        machine_yield();
    }
    SPECDEC__STORE(&r.stop, 1);
    pthread_join(r.thread, NULL);
    CHECK(r.served > 0 && r.refused > 0);
    printf("  %d calls of a second thread: %d refused, %d served between the first one's\n", r.calls, r.refused, r.served);
    close_machine(&m);
    c.sequences = 1;
    c.hooks.progress = asks;
    c.batch = 4;
    if (!open_machine(&m, &c))
        return;
    inner = m.first;
    CHECK_EQUAL_INT(specdec_prompt(m.first, "hello there, hello there", SPECDEC_WHOLE_STRING), SPECDEC_OK);
    CHECK(asked > 0);
    CHECK_EQUAL_INT(told, asked);
    inner = NULL;
    CHECK_EQUAL_INT(specdec_next(m.first, &piece), SPECDEC_OK);
    close_machine(&m);
}

/* A call made from within a step that is known to be long: the flag is taken as a thread would find it. */
static void test_all_refused(void)
{
    specdec_config c = config_of(2);
    static float row[4096];
    int32_t token = 5, parent = -1;
    specdec_message message = {SPECDEC_USER, "x", 1, 0};
    specdec_settings settings;
    const int32_t *tokens;
    specdec_logprob logprob;
    specdec_result r[22];
    specdec_text piece;
    specdec *t, *opened = NULL;
    char bytes[8];
    size_t size = 8;
    int layer = 0, count, way, n, i;
    machine m;

    for (way = 0; way < 2; way++) {
        TEST("every call that acts is refused while another one is under way, and behind the end");
        if (!open_machine(&m, &c))
            return;
        t = m.first;
        CHECK_EQUAL_INT(specdec_prompt(t, "hello", 5), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_next(t, &piece), SPECDEC_OK);
        memset(&settings, 0, sizeof settings);
        if (way)
            specdec_deinit(t);
        else
            t->engine->busy = 1;
        n = 0;
        opened = t;
        r[n++] = specdec_open(t, &opened);
        CHECK(!opened);
        opened = t;
        r[n++] = specdec_fork(t, &opened);
        CHECK(!opened);
        r[n++] = specdec_prompt(t, "x", 1);
        r[n++] = specdec_prompt_tokens(t, &token, 1);
        r[n++] = specdec_prompt_logits(t, &token, 1, row);
        r[n++] = specdec_prompt_states(t, &token, 1, &layer, 1, row);
        r[n++] = specdec_chat(t, &message, 1);
        r[n++] = specdec_next(t, &piece);
        r[n++] = specdec_take(t, &piece);
        r[n++] = specdec_step(t, &tokens, &count);
        r[n++] = specdec_work(t);
        r[n++] = specdec_rewind(t, 0);
        r[n++] = specdec_set(t, &settings);
        r[n++] = specdec_logits(t, &token, &parent, 1, row);
        r[n++] = specdec_join_forks(t, bytes, 8, &size);
        r[n++] = specdec_save(t, NULL, 0, &size);
        r[n++] = specdec_load(t, bytes, 8);
        r[n++] = specdec_save_history(t, NULL, 0, &size);
        r[n++] = specdec_load_history(t, bytes, 8);
        r[n++] = specdec_get_logprob(t, 0, &logprob);
        r[n++] = specdec_serve(t);
        r[n++] = specdec_set_tree(t, NULL);
        for (i = 0; i < n; i++)
            CHECK_EQUAL_INT(r[i], SPECDEC_ERROR_ARGUMENT);
        specdec_close(t);
        specdec_drop_prefixes(t);
        specdec_cancel(t);
        if (way) {
            specdec_deinit(t);
            CHECK(!specdec_get_model(t));
            free(m.block);
            continue;
        }
        t->engine->busy = 0;
        CHECK_EQUAL_INT(specdec_error_text(t)[0], 0); /* other calls' words are not touched */
        CHECK_EQUAL_INT(specdec_prompt(t, "hello", 5), SPECDEC_OK); /* the cancel was too late */
        CHECK_EQUAL_INT(specdec_next(t, &piece), SPECDEC_OK);
        close_machine(&m);
    }
}

/* Texts of one engine that want different log-probabilities, and one that changes its mind: each gets the numbers of an engine
   that keeps all; what is written is the same. */
static void test_logprobs(void)
{
    static const int wants[] = {0, -1, 1, 3, 5};
    specdec_config c = config_of(6), alone = config_of(1);
    const int32_t *tokens, *theirs;
    specdec_settings settings;
    specdec_logprob mine, all;
    int i, k, n, count, want;
    machine m, oracle;
    specdec *t;

    TEST("each text has the log-probabilities that its settings ask for");
    c.logprobs = alone.logprobs = 5;
    c.settings.max_tokens = alone.settings.max_tokens = 24;
    if (!open_machine(&m, &c) || !open_machine(&oracle, &alone))
        return;
    CHECK_EQUAL_INT(specdec_prompt(oracle.first, "hello", 5), SPECDEC_OK);
    while (specdec_step(oracle.first, &tokens, &n) == SPECDEC_OK)
        continue;
    specdec_tokens(oracle.first, &theirs, &count);
    for (i = 0; i < 5; i++) {
        CHECK_EQUAL_INT(specdec_open(m.first, &t), SPECDEC_OK);
        specdec_get_settings(t, &settings);
        settings.top_logprobs = wants[i];
        CHECK_EQUAL_INT(specdec_set(t, &settings), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_prompt(t, "hello", 5), SPECDEC_OK);
        specdec_tokens(t, NULL, &k);
        for (n = k; n < k + 12;) { /* half of it, then other settings: the next token handed out has what these say */
            specdec_text piece;

            CHECK_EQUAL_INT(specdec_next(t, &piece), SPECDEC_OK);
            specdec_tokens(t, NULL, &n);
        }
        settings.top_logprobs = wants[4 - i];
        CHECK_EQUAL_INT(specdec_set(t, &settings), SPECDEC_OK);
        while (specdec_step(t, &tokens, &want) == SPECDEC_OK)
            continue;
        specdec_tokens(t, &tokens, &want);
        CHECK(want == count && memcmp(tokens, theirs, (size_t)count * sizeof *tokens) == 0);
        for (; k < count; k++) {
            want = k < n ? wants[i] : wants[4 - i];
            CHECK_EQUAL_INT(specdec_get_logprob(t, k, &mine), want < 0 ? SPECDEC_ERROR_ARGUMENT : SPECDEC_OK);
            CHECK_EQUAL_INT(specdec_get_logprob(oracle.first, k, &all), SPECDEC_OK);
            if (want >= 0) {
                CHECK_EQUAL_INT(mine.count, want ? want : 5);
                CHECK(mine.logprob >= all.logprob && mine.logprob <= all.logprob);
                CHECK(memcmp(mine.best, all.best, (size_t)mine.count * sizeof *mine.best) == 0);
            }
        }
        specdec_close(t);
    }
    specdec_get_settings(m.first, &settings);
    settings.top_logprobs = 6;
    CHECK_EQUAL_INT(specdec_set(m.first, &settings), SPECDEC_ERROR_ARGUMENT);
    settings.top_logprobs = -2;
    CHECK_EQUAL_INT(specdec_set(m.first, &settings), SPECDEC_ERROR_ARGUMENT);
    c.settings.top_logprobs = 6;
    refused("more than there is room for", &c, SPECDEC_ERROR_ARGUMENT, "settings.top_logprobs is 6");
    close_machine(&m);
    close_machine(&oracle);
}

int main(void)
{
    quick = getenv("SPECDEC_QUICK") != NULL;
    plain = random_model(1, 0, 0);
    noisy = random_model(1, 0.25f, 0);
    test_scribbled();
    test_late_cancels();
    test_second_thread();
    test_all_refused();
    test_logprobs();
    free(plain.data);
    free(noisy.data);
    return check_report("test_embed");
}
