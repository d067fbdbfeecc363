/* test_converse.c - whole conversations, with thoughts, tools and calls: only what is new is prefilled, a failed call
   changes nothing, what users write is never a control token, and answers come in parts. */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "check.h"
#include "gguf_maker.h"
#include <stdlib.h>

#define WHOLE(text) {text, SPECDEC_WHOLE_STRING}
#define QWEN "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + (m.content or '') }}" \
             "{% if m.reasoning_content and loop.last %}{{ '<think>' + m.reasoning_content + '</think>' }}{% endif %}" \
             "{% for c in m.tool_calls or [] %}{{ '<tool_call>\\n' + {'name': c.function.name, 'arguments': c.function.arguments}|tojson + " \
             "'\\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\\n' }}{% endfor %}" \
             "{% if tools %}{{ tools|length }} tools{% endif %}" \
             "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' + ('<think>\\n' if think else '') }}{% endif %}"

enum { CHAT_TOKENS = 270, MOST = 8192 };

/* A model in memory, and an engine. */
typedef struct subject {
    maker m;
    specdec_config config;
    specdec *engine;
    void *block;
} subject;

static specdec_error failure;
static int make_calls; /* the engine has room for constraints */

/* Starts an engine. */
static specdec_result start(subject *s)
{
    specdec_result result;
    size_t bytes = 0;

    result = specdec_memory_needed(&s->config, &bytes, &failure);
    if (result)
        return result;
    s->block = malloc(bytes);
    return specdec_init(&s->engine, &s->config, s->block, bytes, &failure);
}

/* Starts one on a small model of random weights with this template. */
static specdec_result make(subject *s, const char *text, int context)
{
    const maker_buffer *file;
    maker_recipe r;

    memset(&r, 0, sizeof r);
    memset(s, 0, sizeof *s);
    maker_begin(&s->m, &r);
    maker_name_chat_tokens(&s->m, CHAT_TOKENS, 3);
    maker_text(&s->m, "tokenizer.chat_template", text);
    file = maker_write(&s->m);
    s->config.target.data = file->data;
    s->config.target.size = file->size;
    s->config.context = context;
    s->config.threads = 1;
    s->config.drafting = SPECDEC_DRAFT_OFF;
    s->config.settings.max_tokens = 6;
    s->config.constraints = make_calls;
    return start(s);
}

static void stop(subject *s)
{
    specdec_deinit(s->engine);
    free(s->block);
    if (s->config.target.data)
        maker_free(&s->m);
}

/* Copies the tokens of a sequence. Returns how many there are. */
static int tokens_of(const subject *s, int32_t *out)
{
    const int32_t *tokens;
    int count;

    specdec_tokens(s->engine, &tokens, &count);
    if (count && count <= MOST)
        memcpy(out, tokens, (size_t)count * sizeof *out);
    return count;
}

static int64_t prefilled(const subject *s)
{
    specdec_stats stats;

    specdec_get_stats(s->engine, &stats);
    return stats.prefilled_tokens;
}

/* The whole answer. */
static size_t answer(subject *s, char *out, size_t room)
{
    specdec_text piece;
    specdec_result result;
    size_t size = 0;

    do {
        result = specdec_next(s->engine, &piece);
        if (result != SPECDEC_OK && result != SPECDEC_DONE)
            break;
        if (piece.length <= room - size) {
            memcpy(out + size, piece.bytes, piece.length);
            size += piece.length;
        }
    } while (result == SPECDEC_OK);
    CHECK_EQUAL_INT(result, SPECDEC_DONE);
    return size;
}

/* A conversation of so many turns, whose answers are what the model has written. */
static void talk(subject *s, int turns)
{
    static char texts[32][512];
    specdec_chat_message messages[64];
    specdec_chat_input input;
    specdec_stats stats;
    int turn, count = 0;

    memset(messages, 0, sizeof messages);
    memset(&input, 0, sizeof input);
    input.messages = messages;
    for (turn = 0; turn < turns; turn++) {
        messages[count].role = "user";
        messages[count].content.bytes = turn % 3 ? "And then? What did the dog say?" : "Tell me about the sea, please.";
        messages[count++].content.length = SPECDEC_WHOLE_STRING;
        input.count = count;
        CHECK_EQUAL_INT(specdec_chat_messages(s->engine, &input), SPECDEC_OK);
        messages[count].role = "assistant";
        messages[count].content.bytes = texts[turn];
        messages[count++].content.length = answer(s, texts[turn], sizeof texts[0]);
    }
    specdec_get_stats(s->engine, &stats);
    specdec_tokens(s->engine, NULL, &count);
    CHECK_EQUAL_INT((long)(stats.prompt_tokens + stats.tokens), count); /* nothing was replaced */
    CHECK(stats.prefilled_tokens <= stats.prompt_tokens + turns); /* the last token of each answer is run with the next prompt */
}

static void test_growing(void)
{
    static const char *const files[] = {"models/smollm2-135m-instruct-q4_1.gguf"};
    subject s;
    FILE *file;

    TEST("in a conversation of 20 turns each token is prefilled once");
    memset(&s, 0, sizeof s);
    s.config.target.path = "examples/models/tiny-stories-target-q8_0.gguf";
    s.config.chat_format = "zephyr";
    s.config.context = 2048;
    s.config.drafting = SPECDEC_DRAFT_OFF;
    s.config.settings.max_tokens = 12;
    CHECK_EQUAL_INT(start(&s), SPECDEC_OK);
    talk(&s, 20);
    stop(&s);
    file = fopen(files[0], "rb");
    if (!file || !check_depth()) {
        SKIP(file ? "SPECDEC_QUICK" : "models/ is not there");
        if (file)
            fclose(file);
        return;
    }
    fclose(file);
    memset(&s, 0, sizeof s);
    s.config.target.path = files[0];
    s.config.context = 2048;
    s.config.settings.max_tokens = 12;
    s.config.drafting = SPECDEC_DRAFT_OFF;
    CHECK_EQUAL_INT(start(&s), SPECDEC_OK);
    talk(&s, 20);
    stop(&s);
}

static const specdec_tool_call one_call = {WHOLE("c1"), WHOLE("f"), WHOLE("{\"a\": 1}")};

/* A conversation with all that a message may have. */
static const specdec_chat_message all[] = {
    {"system", WHOLE("Be kind."), {NULL, 0}, NULL, 0, {NULL, 0}, {NULL, 0}},
    {"user", WHOLE("hello"), {NULL, 0}, NULL, 0, {NULL, 0}, {NULL, 0}},
    {"assistant", {NULL, 0}, WHOLE("Hm. Hm. Hm."), &one_call, 1, {NULL, 0}, {NULL, 0}},
    {"tool", WHOLE("3 degrees"), {NULL, 0}, NULL, 0, WHOLE("c1"), WHOLE("f")},
    {"assistant", WHOLE("Cold."), WHOLE("It is 3 degrees, so cold."), NULL, 0, {NULL, 0}, {NULL, 0}},
    {"user", WHOLE("thanks"), {NULL, 0}, NULL, 0, {NULL, 0}, {NULL, 0}}};

static void test_rewritten(void)
{
    static int32_t first[MOST], fresh[MOST], again[MOST];
    specdec_chat_input input;
    subject s, other;
    int count, fresh_count = 0, common = 0, i;
    int64_t before;

    TEST("a template that rewrites an earlier turn costs what follows the change and no more");
    memset(&input, 0, sizeof input);
    input.messages = all;
    CHECK_EQUAL_INT(make(&s, QWEN, 600), SPECDEC_OK);
    CHECK_EQUAL_INT(make(&other, QWEN, 600), SPECDEC_OK);
    for (i = 5; i <= 6; i++) {
        input.count = i; /* first with the thoughts of the last answer, then without */
        before = prefilled(&s);
        CHECK_EQUAL_INT(specdec_chat_messages(s.engine, &input), SPECDEC_OK);
        count = tokens_of(&s, i == 5 ? first : again);
        if (i == 5)
            fresh_count = count;
    }
    while (common < fresh_count && common < count && first[common] == again[common])
        common++;
    CHECK(common > 20 && common < count);
    CHECK(prefilled(&s) - before <= count - common + 1);
    CHECK_EQUAL_INT(specdec_chat_messages(other.engine, &input), SPECDEC_OK);
    fresh_count = tokens_of(&other, fresh);
    CHECK_EQUAL_INT(count, fresh_count);
    CHECK(count == fresh_count && memcmp(fresh, again, (size_t)count * sizeof *fresh) == 0);
    before = prefilled(&s);
    CHECK_EQUAL_INT(specdec_chat_messages(s.engine, &input), SPECDEC_OK); /* the same once more */
    CHECK(prefilled(&s) - before <= 1);
    stop(&s);
    stop(&other);
}

/* What of a conversation a step writes does not depend on what was there before. */
static void test_same_answer(void)
{
    char alone[256], behind[256];
    specdec_chat_input input;
    size_t size, other_size;
    subject s, other;
    int32_t tokens[MOST];

    TEST("an answer does not depend on what the sequence held before");
    memset(&input, 0, sizeof input);
    input.messages = all;
    input.count = 6;
    CHECK_EQUAL_INT(make(&s, QWEN, 600), SPECDEC_OK);
    CHECK_EQUAL_INT(make(&other, QWEN, 600), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_chat_messages(s.engine, &input), SPECDEC_OK);
    size = answer(&s, alone, sizeof alone);
    input.count = 2;
    CHECK_EQUAL_INT(specdec_chat_messages(other.engine, &input), SPECDEC_OK);
    answer(&other, behind, sizeof behind);
    input.count = 6;
    CHECK_EQUAL_INT(specdec_chat_messages(other.engine, &input), SPECDEC_OK);
    other_size = answer(&other, behind, sizeof behind);
    CHECK(size == other_size && memcmp(alone, behind, size) == 0);
    CHECK_EQUAL_INT(tokens_of(&s, tokens), tokens_of(&other, tokens));
    stop(&s);
    stop(&other);
}

static void test_failing(void)
{
    static char large[9000];
    char undisturbed[256], disturbed[256];
    specdec_chat_message messages[2];
    specdec_chat_input input;
    int32_t before[MOST], after[MOST];
    specdec_text piece;
    int count, at;
    size_t size, i;
    subject s, other;

    TEST("a call that fails changes nothing");
    CHECK_EQUAL_INT(make(&s, QWEN, 300), SPECDEC_OK);
    CHECK_EQUAL_INT(make(&other, QWEN, 300), SPECDEC_OK);
    memset(messages, 0, sizeof messages);
    memset(&input, 0, sizeof input);
    memset(large, 'a', sizeof large - 1);
    input.messages = all;
    input.count = 2;
    CHECK_EQUAL_INT(specdec_chat_messages(s.engine, &input), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_chat_messages(other.engine, &input), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_next(s.engine, &piece), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_next(other.engine, &piece), SPECDEC_OK);
    messages[0].role = "user";
    messages[0].content.bytes = large;
    messages[0].content.length = sizeof large - 1;
    count = tokens_of(&s, before);
    input.messages = messages;
    input.count = 1;
    CHECK_EQUAL_INT(specdec_chat_messages(s.engine, &input), SPECDEC_ERROR_CONTEXT);
    messages[0].content.length = 1000; /* fits as text, but not as tokens */
    CHECK_EQUAL_INT(specdec_chat_messages(s.engine, &input), SPECDEC_ERROR_CONTEXT);
    messages[0].role = NULL;
    CHECK_EQUAL_INT(specdec_chat_messages(s.engine, &input), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_chat_json(s.engine, "{\"messages\": [", SPECDEC_WHOLE_STRING), SPECDEC_ERROR_FORMAT);
    CHECK_EQUAL_INT(specdec_chat_json(s.engine, "{\"messages\": 3}", SPECDEC_WHOLE_STRING), SPECDEC_ERROR_FORMAT);
    CHECK_EQUAL_INT(specdec_chat_json(s.engine, "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]}",
                                      SPECDEC_WHOLE_STRING), SPECDEC_ERROR_FORMAT);
    CHECK_EQUAL_INT(specdec_chat_json(s.engine, "{\"messages\": []}", SPECDEC_WHOLE_STRING), SPECDEC_ERROR_ARGUMENT);
    specdec_cancel(s.engine);
    at = tokens_of(&s, after);
    CHECK(at == count && memcmp(before, after, (size_t)count * sizeof *before) == 0);
    CHECK_EQUAL_INT(specdec_next(s.engine, &piece), SPECDEC_ERROR_CANCELLED);
    size = answer(&s, disturbed, sizeof disturbed);
    i = answer(&other, undisturbed, sizeof undisturbed);
    CHECK(i == size && memcmp(disturbed, undisturbed, size) == 0);
    stop(&s);
    stop(&other);
}

static void test_json(void)
{
    static const char json[] =
        "{\"model\": \"x\", \"stream\": true, \"messages\": [{\"role\": \"system\", \"content\": \"Be kind.\"}, {\"role\": \"user\", \"content\": "
        "[{\"type\": \"text\", \"text\": \"hello\"}]}, {\"role\": \"assistant\", \"content\": null, \"reasoning_content\": \"Hm. Hm. Hm.\", "
        "\"tool_calls\": [{\"id\": \"c1\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}}]}, "
        "{\"role\": \"tool\", \"tool_call_id\": \"c1\", \"name\": \"f\", \"content\": \"3 degrees\"}, {\"role\": \"assistant\", \"content\": "
        "\"Cold.\", \"reasoning_content\": \"It is 3 degrees, so cold.\"}, {\"role\": \"user\", \"content\": \"thanks\"}], \"tools\": [{\"type\": "
        "\"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}], \"chat_template_kwargs\": {\"think\": true}}";
    static const char tools[] = "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}]";
    static int32_t one[MOST], two[MOST];
    specdec_chat_input input;
    int count;
    subject s;

    TEST("a request in OpenAI's form is the conversation that the structures give");
    CHECK_EQUAL_INT(make(&s, QWEN, 600), SPECDEC_OK);
    memset(&input, 0, sizeof input);
    input.messages = all;
    input.count = 6;
    input.tools.bytes = tools;
    input.tools.length = SPECDEC_WHOLE_STRING;
    input.arguments.bytes = "{\"think\": true}";
    input.arguments.length = SPECDEC_WHOLE_STRING;
    CHECK_EQUAL_INT(specdec_chat_messages(s.engine, &input), SPECDEC_OK);
    count = tokens_of(&s, one);
    specdec_rewind(s.engine, 0);
    CHECK_EQUAL_INT(specdec_chat_json(s.engine, json, sizeof json - 1), SPECDEC_OK);
    CHECK_EQUAL_INT(tokens_of(&s, two), count);
    CHECK(memcmp(one, two, (size_t)count * sizeof *one) == 0);
    input.tools.bytes = "{}";
    CHECK_EQUAL_INT(specdec_chat_messages(s.engine, &input), SPECDEC_ERROR_FORMAT);
    stop(&s);
}

/* The text of a sequence, control tokens included. */
static const char *spelled(const subject *s)
{
    static char text[MOST];
    const int32_t *tokens;
    size_t length = 0;
    int count;

    specdec_tokens(s->engine, &tokens, &count);
    CHECK_EQUAL_INT(specdec_detokenize(specdec_get_model(s->engine), tokens, count, SPECDEC_TOKENIZE_SPECIAL, text, sizeof text - 1,
                                       &length, &failure), SPECDEC_OK);
    text[length] = 0;
    return text;
}

static int ends_with(const char *text, const char *end)
{
    return strlen(text) >= strlen(end) && !strcmp(text + strlen(text) - strlen(end), end);
}

static void test_continued(void)
{
    subject s;

    TEST("a last message of the assistant is continued");
    CHECK_EQUAL_INT(make(&s, QWEN, 600), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_chat_json(s.engine, "{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}, {\"role\": \"assistant\", "
                                      "\"content\": \"Once upon\"}], \"continue_final_message\": true}", SPECDEC_WHOLE_STRING), SPECDEC_OK);
    CHECK(ends_with(spelled(&s), "assistant\nOnce upon"));
    CHECK_EQUAL_INT(specdec_chat_json(s.engine, "{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}], "
                                      "\"continue_final_message\": true}", SPECDEC_WHOLE_STRING), SPECDEC_ERROR_ARGUMENT);
    CHECK(ends_with(spelled(&s), "assistant\nOnce upon"));
    stop(&s);
}

static void test_choice(void)
{
    char json[600];
    static const struct { const char *choice, *end; specdec_result result; } choices[] = {
        {"\"auto\"", "1 tools<|im_start|>assistant\n", SPECDEC_OK},
        {"\"none\"", "\n<|im_start|>assistant\n", SPECDEC_OK},
        {"\"required\"", "assistant\n<tool_call>\n{\"name\": \"", SPECDEC_OK},
        {"{\"type\": \"function\", \"function\": {\"name\": \"f\"}}", "<tool_call>\n{\"name\": \"f\", \"arguments\": ", SPECDEC_OK},
        {"{\"type\": \"function\"}", "", SPECDEC_ERROR_FORMAT}};
    specdec_part part;
    subject s;
    size_t i;

    TEST("tool_choice decides whether tools are given, and whether a call must follow");
    CHECK_EQUAL_INT(make(&s, QWEN, 600), SPECDEC_OK);
    for (i = 0; i < sizeof choices / sizeof *choices; i++) {
        snprintf(json, sizeof json, "{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}], \"tools\": [{\"type\": \"function\", "
                 "\"function\": {\"name\": \"f\", \"parameters\": {}}}], \"tool_choice\": %s}", choices[i].choice);
        CHECK_EQUAL_INT(specdec_chat_json(s.engine, json, SPECDEC_WHOLE_STRING), choices[i].result);
        if (!choices[i].result)
            CHECK(ends_with(spelled(&s), choices[i].end));
        if (i == 3) {
            CHECK_EQUAL_INT(specdec_next_part(s.engine, &part), SPECDEC_OK);
            CHECK_EQUAL_INT((int)part.kind, SPECDEC_PART_NAME);
            CHECK(part.text.length == 1 && part.text.bytes[0] == 'f');
        }
    }
    stop(&s);
}

/* Answers in parts: without marks they are what specdec_next gives. */
static void test_parts(void)
{
    char whole[512], joined[512];
    specdec_chat_input input;
    specdec_result result;
    specdec_part part;
    subject s, other;
    size_t size, used = 0;
    int round;

    TEST("an answer in parts is the answer; behind a prompt that begins a thought it is one");
    memset(&input, 0, sizeof input);
    input.messages = all;
    input.count = 2;
    for (round = 0; round < 2; round++, used = 0) {
        CHECK_EQUAL_INT(make(&s, QWEN, 600), SPECDEC_OK);
        CHECK_EQUAL_INT(make(&other, QWEN, 600), SPECDEC_OK);
        input.arguments.bytes = round ? "{\"think\": true}" : NULL;
        input.arguments.length = SPECDEC_WHOLE_STRING;
        CHECK_EQUAL_INT(specdec_chat_messages(s.engine, &input), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_chat_messages(other.engine, &input), SPECDEC_OK);
        size = answer(&s, whole, sizeof whole);
        while ((result = specdec_next_part(other.engine, &part)) == SPECDEC_OK) {
            CHECK_EQUAL_INT((int)part.kind, round ? SPECDEC_PART_THOUGHT : SPECDEC_PART_CONTENT);
            CHECK_EQUAL_INT(part.call, -1);
            if (part.text.length <= sizeof joined - used) {
                memcpy(joined + used, part.text.bytes, part.text.length);
                used += part.text.length;
            }
        }
        CHECK_EQUAL_INT(result, SPECDEC_DONE);
        CHECK(used == size && memcmp(whole, joined, size) == 0);
        stop(&s);
        stop(&other);
    }
}

/* --- calls ---------------------------------------------------------------------------------------------------------- */

#define TURNS(call) \
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + (m.content or '') }}{% for c in m.tool_calls or [] %}{% set f = c.function %}{{ " call \
    " }}{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}{{ '<|im_start|>assistant\n' }}"

static const struct { const char *name, *text; } forms[] = {
    {"hermes", TURNS("'<tool_call>\n' + {'name': f.name, 'arguments': f.arguments}|tojson + '\n</tool_call>'")},
    {"llama3", TURNS("{'name': f.name, 'parameters': f.arguments}|tojson")},
    {"mistral", TURNS("'[TOOL_CALLS]' + f.name + '[ARGS]' + f.arguments|tojson")},
    {"granite", TURNS("'<|tool_call|>' + [{'name': f.name, 'arguments': f.arguments}]|tojson")},
    {"deepseek-v3", TURNS("'<\xef\xbd\x9ctool\xe2\x96\x81" "calls\xe2\x96\x81" "begin\xef\xbd\x9c><\xef\xbd\x9ctool\xe2\x96\x81" "call\xe2\x96\x81" "begin\xef\xbd\x9c>' + f.name + '"
                          "<\xef\xbd\x9ctool\xe2\x96\x81sep\xef\xbd\x9c>' + f.arguments|tojson + '<\xef\xbd\x9ctool\xe2\x96\x81" "call\xe2\x96\x81"
                          "end\xef\xbd\x9c><\xef\xbd\x9ctool\xe2\x96\x81" "calls\xe2\x96\x81" "end\xef\xbd\x9c>'")},
    {"apertus", TURNS("'<|tools_prefix|>' + [{f.name: f.arguments}]|tojson + '<|tools_suffix|>'")},
    {"lfm2", TURNS("'<|tool_call_start|>[' + f.name + '(' }}{% for k, v in f.arguments.items() %}{{ ('' if loop.first else ', ') + k + '=' + v|tojson }}"
                   "{% endfor %}{{ ')]<|tool_call_end|>'")},
    {"gemma4", TURNS("'<|tool_call>call:' + f.name + '{' }}{% for k, v in f.arguments.items() %}{{ ('' if loop.first else ',') + k + ':' + "
                     "('<|\"|>' + v + '<|\"|>' if v is string else v|tojson) }}{% endfor %}{{ '}<tool_call|>'")},
    {"glm", TURNS("'<tool_call>' + f.name + '\n' }}{% for k, v in f.arguments.items() %}{{ '<arg_key>' + k + '</arg_key>\n<arg_value>' + "
                  "(v if v is string else v|tojson) + '</arg_value>\n' }}{% endfor %}{{ '</tool_call>'")},
    {"qwen-coder", TURNS("'<tool_call>\n<function=' + f.name + '>\n' }}{% for k, v in f.arguments.items() %}{{ '<parameter=' + k + '>\n' + "
                         "(v if v is string else v|tojson) + '\n</parameter>\n' }}{% endfor %}{{ '</function>\n</tool_call>'")},
    {"minimax", TURNS("'<minimax:tool_call>\n<invoke name=\"' + f.name + '\">\n' }}{% for k, v in f.arguments.items() %}{{ '<parameter name=\"' + k + "
                      "'\">' + (v if v is string else v|tojson) + '</parameter>\n' }}{% endfor %}{{ '</invoke>\n</minimax:tool_call>'")},
    {"seed", TURNS("'<seed:tool_call>\n<function=' + f.name + '>\n' }}{% for k, v in f.arguments.items() %}{{ '<parameter=' + k + '>' + "
                   "(v if v is string else v|tojson) + '</parameter>\n' }}{% endfor %}{{ '</function>\n</seed:tool_call>'")}};

#define SCHEMA "{\"type\": \"object\", \"properties\": {\"n\": {\"type\": \"integer\", \"minimum\": 0, \"maximum\": 99}, \"u\": {\"enum\": [\"c\", " \
               "\"f\"]}, \"s\": {\"type\": \"string\", \"maxLength\": 4}}, \"required\": [\"n\", \"u\", \"s\"], \"additionalProperties\": false}"

static const char call_tools[] = "[{\"type\": \"function\", \"function\": {\"name\": \"set_heat\", \"description\": \"d\", \"parameters\": " SCHEMA "}}]";

/* Compiles into memory of its own, which stays. */
static const specdec_constraint *compile(specdec_constraint_kind kind, const char *text, const char *calls)
{
    const specdec_constraint *constraint = NULL;
    specdec_constraint_source source;
    size_t bytes = 0;
    void *memory;

    memset(&source, 0, sizeof source);
    source.kind = kind;
    source.text = text;
    source.length = SPECDEC_WHOLE_STRING;
    source.calls = calls;
    source.compact = kind == SPECDEC_CONSTRAINT_TOOLS; /* random weights love white space */
    CHECK_EQUAL_INT(specdec_constraint_needed(&source, &bytes, &failure), SPECDEC_OK);
    memory = malloc(bytes);
    CHECK_EQUAL_INT(specdec_constraint_init(&constraint, &source, memory, bytes, &failure), SPECDEC_OK);
    return constraint;
}

/* A call as it was taken. */
typedef struct taken {
    char name[64], arguments[512];
    size_t name_size, size;
    int calls, whole;
} taken;

/* Takes an answer in parts, and the first call of it. */
static void take_call(subject *s, taken *out)
{
    specdec_part part;
    specdec_result result;

    memset(out, 0, sizeof *out);
    while ((result = specdec_next_part(s->engine, &part)) == SPECDEC_OK) {
        out->calls = part.call + 1 > out->calls ? part.call + 1 : out->calls;
        out->whole += part.kind == SPECDEC_PART_END;
        if (part.kind == SPECDEC_PART_NAME && !part.call && part.text.length <= sizeof out->name - out->name_size) {
            memcpy(out->name + out->name_size, part.text.bytes, part.text.length);
            out->name_size += part.text.length;
        }
        if (part.kind == SPECDEC_PART_ARGUMENTS && !part.call && part.text.length <= sizeof out->arguments - out->size) {
            memcpy(out->arguments + out->size, part.text.bytes, part.text.length);
            out->size += part.text.length;
        }
        if (part.kind == SPECDEC_PART_END)
            break;
    }
    CHECK(result == SPECDEC_OK || result == SPECDEC_DONE);
}

/* What writes the mark of a call after a few words, and leaves the rest to settings.calls: then a call begins within an answer. */
static const specdec_constraint *mark_of(const char *form)
{
    const specdec__calls *row = specdec__answer_find_call_row_by_name(form);
    const char *section = SPECDEC__CALL_TEXT(row, SECTION_BEGIN) ? SPECDEC__CALL_TEXT(row, SECTION_BEGIN) : "", *mark = row->flags & SPECDEC__CALLS_BARE ? "<|python_tag|>" : SPECDEC__CALL_TEXT(row, BEGIN);
    char text[400];
    size_t at, size;

    snprintf(text, sizeof text, "root ::= [a-z]{2,9} \"%s%s", section, mark);
    for (at = strlen("root ::= [a-z]{2,9} \""), size = strlen(text); at < size; at++) /* quotes of the mark */
        if (text[at] == '"') {
            memmove(text + at + 1, text + at, ++size - at);
            text[at++] = '\\';
        }
    snprintf(text + size, sizeof text - size, "%s", "\" rest\nrest ::= [^\\x00]*\n");
    return compile(SPECDEC_CONSTRAINT_GBNF, text, NULL);
}

/* One conversation whose answer must be a call: the prompt begins it, or the answer does. Returns whether its arguments are as the schema says; and they are
   whole, if *out says so. An answer in which no call begins is none: a token that ends a mark may go on as no call does. */
static int converse(subject *s, const char *json, const specdec_constraint *calls, const specdec_constraint *mark, uint64_t seed, float temperature,
                    int most, const specdec_constraint *schema, const char *name, taken *out)
{
    specdec_constraint_state *state;
    specdec_settings settings;
    void *memory = malloc(specdec_constraint_state_bytes(schema));
    int good;

    specdec_get_settings(s->engine, &settings);
    settings.calls = calls;
    settings.constraint = mark;
    settings.max_tokens = most;
    settings.sampling.seed = seed;
    settings.sampling.temperature = temperature;
    CHECK_EQUAL_INT(specdec_set(s->engine, &settings), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_chat_json(s->engine, json, SPECDEC_WHOLE_STRING), SPECDEC_OK);
    take_call(s, out);
    state = specdec_constraint_begin(schema, memory, specdec_constraint_state_bytes(schema));
    good = !out->calls || (out->calls == 1 && out->name_size == strlen(name) && !memcmp(out->name, name, out->name_size) &&
                           specdec_constraint_advance(schema, state, out->arguments, out->size) == out->size &&
                           (!out->whole || specdec_constraint_complete(schema, state)));
    free(memory);
    return good;
}

/* One on a small model of random weights, with and without draft tokens. Returns whether the call is whole. */
static int call_once(const char *form, const char *text, uint64_t seed, int lazily, const specdec_constraint *schema)
{
    static int32_t plain[MOST], drafted[MOST];
    const specdec_constraint *calls = compile(SPECDEC_CONSTRAINT_TOOLS, call_tools, form), *mark = lazily ? mark_of(form) : NULL;
    specdec_model_info info;
    char json[1200];
    taken out, other;
    subject s;
    int count, round;

    snprintf(json, sizeof json, "{\"messages\": [{\"role\": \"user\", \"content\": \"Heat %d\"}], \"tools\": %s, \"tool_choice\": %s}", (int)seed, call_tools,
             lazily ? "\"auto\"" : seed % 2 ? "\"required\"" : "{\"type\": \"function\", \"function\": {\"name\": \"set_heat\"}}");
    for (round = 0; round < 2; round++) {
        make_calls = 1;
        CHECK_EQUAL_INT(make(&s, text, 700), SPECDEC_OK);
        make_calls = 0;
        if (round) {
            specdec_deinit(s.engine);
            free(s.block);
            s.config.drafting = SPECDEC_DRAFT_AUTO;
            CHECK_EQUAL_INT(start(&s), SPECDEC_OK);
        }
        CHECK_EQUAL_INT(specdec_get_model_info(specdec_get_model(s.engine), &info), SPECDEC_OK);
        CHECK(info.call_format && !strcmp(info.call_format, form));
        CHECK(converse(&s, json, calls, mark, seed, 1, 400, schema, "set_heat", round ? &other : &out));
        CHECK(lazily || out.calls == 1);
        count = tokens_of(&s, round ? drafted : plain);
        if (round)
            CHECK(out.size == other.size && out.whole == other.whole && !memcmp(out.arguments, other.arguments, out.size) &&
                  memcmp(plain, drafted, (size_t)count * sizeof *plain) == 0);
        stop(&s);
    }
    free((void *)calls);
    free((void *)mark);
    return out.whole;
}

static void test_calls(void)
{
    const specdec_constraint *schema = compile(SPECDEC_CONSTRAINT_SCHEMA, SCHEMA, NULL);
    const int rounds = check_depth() ? 40 : 4;
    int i, whole, round;

    TEST("every call that begins is one of its schema, in every form, begun by the prompt or by the answer, with draft tokens as without");
    for (i = 0; i < (int)(sizeof forms / sizeof *forms); i++) {
        for (whole = 0, round = 0; round < rounds; round++)
            whole += call_once(forms[i].name, forms[i].text, (uint64_t)(round / 2) + 1, round % 2, schema);
        CHECK(whole > 0);
        printf("  %s: %d of %d calls are whole\n", forms[i].name, whole, rounds);
    }
    free((void *)schema);
}

/* Conversations with a real model, which gets each form of calls in turn: build/test_converse calls MODEL CONVERSATIONS FORM... */
static void test_model_calls(const char *path, int conversations, char **names, int name_count)
{
    static const char *const cities[] = {"Berlin", "Lima", "Oslo", "Nairobi", "Kyoto", "Quito", "Perth", "Bergen"};
    static int32_t plain[MOST], drafted[MOST];
    const specdec_constraint *schema = compile(SPECDEC_CONSTRAINT_SCHEMA, SCHEMA, NULL), *calls, *mark;
    subject s[2];
    char json[1600];
    taken out[2];
    int i, k, round, whole, differ, wrong, none, count;

    TEST("every call that a real model begins is one of its schema, with draft tokens as without");
    memset(s, 0, sizeof s);
    for (round = 0; round < 2; round++) {
        s[round].config.target.path = path;
        s[round].config.context = 1024;
        s[round].config.constraints = 1;
        s[round].config.drafting = round ? SPECDEC_DRAFT_AUTO : SPECDEC_DRAFT_OFF;
        if (start(&s[round])) {
            printf("%s: %s\n", path, failure.text);
            CHECK(0);
            return;
        }
    }
    for (i = 0; i < name_count; i++) {
        calls = compile(SPECDEC_CONSTRAINT_TOOLS, call_tools, names[i]);
        mark = mark_of(names[i]);
        for (whole = differ = wrong = none = k = 0; k < conversations; k++) {
            snprintf(json, sizeof json, "{\"messages\": [{\"role\": \"system\", \"content\": \"set_heat sets the heating: n is the number of degrees, u is c or f, "
                     "s a short note.\"}, {\"role\": \"user\", \"content\": \"I am in %s. Heat the room to %d degrees.\"}], \"tools\": %s, \"tool_choice\": "
                     "\"%s\"}", cities[k % 8], 15 + k, call_tools, k % 2 ? "auto" : "required");
            for (round = 0; round < 2; round++) {
                s[round].engine->engine->chat.calls = specdec__answer_find_call_row_by_name(names[i]);
                wrong += !converse(&s[round], json, calls, k % 2 ? mark : NULL, (uint64_t)k + 1, k % 4 < 2 ? 0.f : 1.f, 120, schema, "set_heat", &out[round]);
                count = tokens_of(&s[round], round ? drafted : plain);
            }
            differ += out[0].size != out[1].size || memcmp(out[0].arguments, out[1].arguments, out[0].size) ||
                      memcmp(plain, drafted, (size_t)count * sizeof *plain) != 0;
            whole += out[0].whole;
            none += !out[0].calls;
        }
        printf("  %s: %d conversations, %d calls are whole, %d not begun, %d not of the schema, %d differ from --spec off; the last: %.*s\n", names[i], conversations, whole,
               none, wrong, differ, (int)out[0].size, out[0].arguments);
        fflush(stdout);
        CHECK(!wrong && !differ && whole > 0);
        free((void *)calls);
        free((void *)mark);
    }
    for (round = 0; round < 2; round++) {
        specdec_deinit(s[round].engine);
        free(s[round].block);
    }
    free((void *)schema);
}

/* --- what users write ---------------------------------------------------------------------------------------------- */

enum { RENDERED = 1 << 19, SCRATCH = 24 << 20 };

static struct {
    char text[RENDERED];
    unsigned char plain[RENDERED / 8 + 1];
    int32_t tokens[4 * RENDERED];
    unsigned char scratch[SCRATCH];
} room;

/* How many control tokens a conversation has whose user writes this; -1: the template refuses it. */
static int controls(const specdec__vocab *v, specdec__bytes text, const char *says, size_t size)
{
    specdec_chat_message messages[3];
    specdec_chat_input input;
    specdec__conversation_work work;
    specdec__chat_text out;
    size_t count = 0, i;
    int found = 0;

    memset(messages, 0, sizeof messages);
    memset(&input, 0, sizeof input);
    messages[0].role = messages[2].role = "user";
    messages[1].role = "assistant";
    messages[0].content.bytes = messages[1].content.bytes = messages[2].content.bytes = says;
    messages[0].content.length = messages[1].content.length = messages[2].content.length = size;
    input.messages = messages;
    input.count = 3;
    out.text = room.text;
    out.marks = room.plain;
    out.size = RENDERED;
    out.needed = 0;
    work.vocab = v;
    work.text = text;
    work.memory = room.scratch;
    work.memory_bytes = SCRATCH;
    work.local_time = 0;
    if (specdec__conversation_render(&work, &input, &out, &failure))
        return -1;
    if (specdec__tokenize(v, out.text, out.needed, SPECDEC_TOKENIZE_SPECIAL, out.marks, room.tokens, 4 * RENDERED, &count, room.scratch,
                          SCRATCH, &failure))
        return -2;
    for (i = 0; i < count; i++)
        found += specdec__vocab_token_type(v, (uint32_t)room.tokens[i]) == SPECDEC__TOKEN_CONTROL;
    return found;
}

/* The spellings of all control tokens of a vocabulary, at most so many bytes of them, from one on. */
static size_t spell_controls(const specdec__vocab *v, uint32_t *from, char *out, size_t most)
{
    size_t used = 0;

    for (; *from < v->special_count; ++*from) {
        const specdec__bytes text = specdec__vocab_token_text(v, v->specials[*from]);

        if (specdec__vocab_token_type(v, v->specials[*from]) != SPECDEC__TOKEN_CONTROL ||
            memchr(text.data, 0, text.size))
            continue;
        if (used + text.size + 1 > most)
            break;
        memcpy(out + used, text.data, text.size);
        used += text.size;
        out[used++] = 'x';
    }
    return used;
}

/* The next template that the cases of the shared folder name, its path; NULL behind the last. */
static const char *next_template(const char **cases, char *path, size_t size)
{
    static char last[256];
    char name[256];

    while (*cases && (*cases = strstr(*cases, "\"template\": \"")) != NULL) {
        const size_t length = strcspn(*cases += 13, "\"");

        snprintf(name, sizeof name, "templates/%.*s", (int)(length < 200 ? length : 200), *cases);
        if (strcmp(name, last)) {
            strcpy(last, name);
            return check_shared(path, size, name);
        }
    }
    last[0] = 0;
    return NULL;
}

static void test_forged(void)
{
    static const char *const vocabularies[] = {"deepseek-coder", "gemma-4", "gpt-2", "llama-bpe", "llama-spm", "qwen2", "qwen35", "refact",
                                               "starcoder"};
    static char says[1 << 14], path[700];
    size_t i, size = 0, compared = 0, refused = 0, templates = 0;
    char *cases = (char *)check_read_file(check_shared(path, sizeof path, "templates/cases.jsonl"), &size);
    specdec_config config;
    specdec_model *model;
    size_t bytes;
    void *block;

    TEST("a message that spells every control token of a vocabulary never yields one, in any template");
    if (!cases) {
        SKIP("../shared is not there");
        return;
    }
    for (i = 0; i < sizeof vocabularies / sizeof *vocabularies; i += check_depth() ? 1 : 3) {
        const char *at = cases;
        char name[64];

        memset(&config, 0, sizeof config);
        snprintf(name, sizeof name, "vocab/ggml-vocab-%s.gguf", vocabularies[i]);
        config.target.path = check_shared(path, sizeof path, name);
        config.vocabulary_only = 1;
        if (specdec_model_memory_needed(&config, &bytes, &failure)) {
            SKIP(failure.text);
            continue;
        }
        block = malloc(bytes);
        CHECK_EQUAL_INT(specdec_model_init(&model, &config, block, bytes, &failure), SPECDEC_OK);
        for (templates = 0; next_template(&at, path, sizeof path); templates++) {
            char *text = (char *)check_read_file(path, &size);
            uint32_t from = 0;
            size_t said;

            CHECK(text != NULL);
            while (text && (said = spell_controls(&model->vocab, &from, says, sizeof says)) > 0) {
                const int forged = controls(&model->vocab, specdec__template_as_bytes(text, size), says, said);
                const int plain = controls(&model->vocab, specdec__template_as_bytes(text, size), "hello", 5);

                if (forged > plain)
                    printf("  %s, %s: %d control tokens, %d are the template's\n", vocabularies[i], path, forged, plain);
                CHECK(forged <= plain);
                compared += forged >= 0;
                refused += forged < 0;
            }
            free(text);
        }
        specdec_model_deinit(model);
        free(block);
    }
    printf("  %zu templates: %zu conversations compared, %zu refused by their templates\n", templates, compared, refused);
    free(cases);
}

int main(int argc, char **argv)
{
    if (argc > 4 && !strcmp(argv[1], "calls")) {
        test_model_calls(argv[2], atoi(argv[3]), argv + 4, argc - 4);
        return check_report("test_converse calls");
    }
    test_growing();
    test_rewritten();
    test_same_answer();
    test_failing();
    test_json();
    test_continued();
    test_choice();
    test_parts();
    test_calls();
    test_forged();
    return check_report("test_converse");
}
