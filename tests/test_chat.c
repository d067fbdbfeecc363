/* test_chat.c - the promises of specdec --chat: a full context or a line that is too long ends nothing, and what is
   written then is what a fresh conversation of the remembered messages gets.
   cc -O2 -pthread -I. test_chat.c; runs in the repository root. */

#define main specdec_main
#include "../examples/specdec.c"
#undef main
#include "check.h"

enum { CONTEXT = 160, LINES = 12 };

static const char *const lines[LINES] = {
    "Tell me a story", "And then?", "Who was the girl with the red ball, and where did she live?", "Why?", "Go on",
    "What did the dog say when it saw the big tree in the garden behind the house of the old man?", "No!",
    "Tell me about her mother",
    "Once upon a time, there was a boy", "He was sad", "What happened to the boat?", "The end?"};

static text huge, large; /* lines that the context cannot hold: by far; with the format's tokens only */

static specdec *make_engine(options *o, int limit, float temperature)
{
    specdec *engine = NULL;
    size_t bytes;

    memset(o, 0, sizeof *o);
    o->limit = limit;
    o->chat = 1;
    o->system = "You are kind.";
    o->config.target.path = "examples/models/tiny-stories-draft-q8_0.gguf";
    o->config.chat_format = "zephyr";
    o->config.context = CONTEXT;
    o->config.threads = 1;
    o->config.settings.max_tokens = limit > 0 ? limit : 0;
    o->config.settings.sampling.temperature = temperature;
    o->config.settings.sampling.seed = 5;
    o->config.weights_in_place = 1;
    if (specdec_memory_needed(&o->config, &bytes, &failure) || specdec_init(&engine, &o->config, program_memory(bytes, ""), bytes, &failure))
        fprintf(stderr, "%s\n", failure.text);
    return engine;
}

/* The whole answer to what was prompted. */
static void collect(specdec *engine, text *out)
{
    specdec_text piece;
    specdec_result result;

    out->length = 0;
    do {
        result = specdec_next(engine, &piece);
        append(out, piece.bytes, piece.length);
    } while (result == SPECDEC_OK);
    CHECK_EQUAL_INT(result, SPECDEC_DONE);
}

/* What a talk remembers, its last question included, as messages. Returns how many. */
static int remembered(const talk *t, specdec_message *messages)
{
    int i, count = 0;

    add_message(messages, &count, SPECDEC_SYSTEM, t->o->system, SPECDEC_WHOLE_STRING);
    for (i = 0; i < t->count; i++) {
        add_message(messages, &count, SPECDEC_USER, t->exchanges[i].question.bytes, t->exchanges[i].question.length);
        if (i + 1 < t->count)
            add_message(messages, &count, SPECDEC_ASSISTANT, t->exchanges[i].answer.bytes,
                        t->exchanges[i].answer.length);
    }
    return count;
}

/* Runs a turn with standard output and standard error put away. */
static int quiet_turn(talk *t, const char *line, size_t length)
{
    int out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO), nowhere = open("/dev/null", O_WRONLY), status;

    fflush(stdout);
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
    status = turn(t, line, length, 0);
    fflush(stdout);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    close(nowhere);
    close(out);
    close(err);
    return status;
}

/* A talk, and beside it a conversation that begins afresh whenever the talk forgets, and never hears the lines that
   are too long. Returns how often the talk forgot; *kept: the most exchanges that were kept then. */
static int compare(int limit, float temperature, int *kept)
{
    options o, other;
    talk t;
    specdec *fresh = make_engine(&other, limit, temperature);
    specdec_message messages[2 * TALK_MOST + 2];
    text expected = {NULL, 0, 0};
    int i, forgot = 0;

    memset(&t, 0, sizeof t);
    t.o = &o;
    t.engine = make_engine(&o, limit, temperature);
    *kept = 0;
    for (i = 0; i < LINES; i++) {
        int before = t.count;
        const exchange *last;
        int count;

        CHECK_EQUAL_INT(quiet_turn(&t, i % 2 ? huge.bytes : large.bytes, i % 2 ? huge.length : large.length),
                        PROGRAM_OK);
        CHECK_EQUAL_INT(t.count, before);
        CHECK_EQUAL_INT(quiet_turn(&t, lines[i], strlen(lines[i])), PROGRAM_OK);
        last = &t.exchanges[t.count - 1];
        count = remembered(&t, messages);
        if (t.count <= before) {
            specdec_rewind(fresh, 0);
            forgot++;
            *kept = t.count - 1 > *kept ? t.count - 1 : *kept;
        } else if (i) {
            messages[0] = messages[count - 1];
            count = 1;
        }
        CHECK_EQUAL_INT(specdec_chat(fresh, messages, count), SPECDEC_OK);
        collect(fresh, &expected);
        CHECK_EQUAL_INT(last->answer.length, expected.length);
        CHECK(last->answer.length == expected.length &&
              memcmp(last->answer.bytes, expected.bytes, expected.length) == 0);
    }
    forget(&t, t.count);
    free(expected.bytes);
    specdec_deinit(t.engine);
    specdec_deinit(fresh);
    return forgot;
}

/* Makes the lines that are too long. */
static void test_lines(void)
{
    options o;
    specdec *engine = make_engine(&o, -1, 0);
    specdec_message message = {SPECDEC_USER, NULL, 0, 0};
    static char memory[20 * 4 * CONTEXT];
    int i, count = 0;

    TEST("chat: a line that fits but for the format's tokens");
    for (i = 0; i < 2000; i++)
        append(&huge, "word ", 5);
    while (count + 4 < CONTEXT) {
        append(&large, "dog ", 4);
        specdec_tokenize(specdec_get_model(engine), large.bytes, large.length, SPECDEC_TOKENIZE_SPECIAL, NULL, 0, &count, memory,
                         sizeof memory, NULL);
    }
    CHECK(count < CONTEXT);
    message.text = large.bytes;
    message.length = large.length;
    CHECK_EQUAL_INT(specdec_chat(engine, &message, 1), SPECDEC_ERROR_CONTEXT);
    specdec_deinit(engine);
}

static void test_forgetting(void)
{
    int kept;

    TEST("chat: some exchanges are forgotten, others kept; the text is that of a fresh conversation of those");
    CHECK(compare(10, 0.8f, &kept) >= 1);
    CHECK(kept >= 1);
    TEST("chat: answers up to the context's end");
    CHECK(compare(-1, 0, &kept) >= 3);
}

static void test_remembering(void)
{
    options o;
    talk t;
    int i;

    TEST("chat: more exchanges than are remembered; nothing is asked of the engine");
    memset(&t, 0, sizeof t);
    t.o = &o;
    for (i = 0; i < TALK_MOST + 3; i++) {
        char line[16];

        snprintf(line, sizeof line, "%d", i);
        CHECK(remember(&t, line, strlen(line)) != NULL);
    }
    CHECK_EQUAL_INT(t.count, TALK_MOST);
    CHECK(t.exchanges[0].question.length == 1 && t.exchanges[0].question.bytes[0] == '3');
    forget(&t, t.count);

    TEST("chat: what is remembered is never more than specdec_chat takes at once");
    CHECK(2 * TALK_MOST + 2 <= 64); /* messages of one specdec_chat */
}

int main(void)
{
    program_name = "test_chat";
    test_lines();
    test_forgetting();
    test_remembering();
    free(huge.bytes);
    free(large.bytes);
    return check_report("test_chat");
}
