/* test_answer.c - answers are taken apart as they come: content, thoughts, calls of tools, in the marks of many models. */
#define SPECDEC_NO_SIMD
#include "../src/text/conversation.h"
#include "check.h"

enum { ROOM = 1 << 16 };

typedef struct sorted {
    char content[ROOM], thought[ROOM], name[4][256], arguments[4][ROOM];
    size_t content_size, thought_size, name_size[4], arguments_size[4];
    int calls, whole, wrong;
} sorted;

/* Adds a part to what was gathered. */
static void gather(sorted *out, const specdec_part *part)
{
    const int call = part->call < 0 || part->call > 3 ? 0 : part->call;
    char *to = part->kind == SPECDEC_PART_CONTENT   ? out->content
               : part->kind == SPECDEC_PART_THOUGHT ? out->thought
               : part->kind == SPECDEC_PART_NAME    ? out->name[call]
                                                    : out->arguments[call];
    size_t *size = part->kind == SPECDEC_PART_CONTENT   ? &out->content_size
                   : part->kind == SPECDEC_PART_THOUGHT ? &out->thought_size
                   : part->kind == SPECDEC_PART_NAME    ? &out->name_size[call]
                                                        : &out->arguments_size[call];
    const size_t room = part->kind == SPECDEC_PART_NAME ? sizeof out->name[0] : (size_t)ROOM;

    out->wrong |= (part->kind >= SPECDEC_PART_NAME) != (part->call >= 0) || part->call > 3;
    if (part->call >= out->calls)
        out->calls = part->call + 1;
    out->whole += part->kind == SPECDEC_PART_END;
    if (part->kind == SPECDEC_PART_END)
        out->wrong |= part->text.length > 0;
    else if (part->text.length <= room - *size) {
        memcpy(to + *size, part->text.bytes, part->text.length);
        *size += part->text.length;
    } else {
        out->wrong = 1;
    }
}

/* Takes an answer apart that comes in three pieces. The pieces are copied, so that nothing behind them is looked at. */
static void take(sorted *out, const char *calls, const char *thoughts, int inside, const char *text, size_t size, size_t cut,
                 size_t next)
{
    size_t from[4];
    specdec_splitter s;
    specdec_part part;
    int i;

    memset(out, 0, sizeof *out);
    from[0] = 0;
    from[1] = cut;
    from[2] = next;
    from[3] = size;
    specdec__answer_begin_splitter(&s, calls ? specdec__answer_find_call_row_by_name(calls) : NULL,
                                   thoughts ? specdec__answer_find_thought_row_by_name(thoughts) : NULL, inside);
    for (i = 0; i < 4; i++) {
        const size_t length = i < 3 ? from[i + 1] - from[i] : 0;
        char *piece = i < 3 ? (char *)malloc(length + 1) : NULL;

        if (piece && length)
            memcpy(piece, text + from[i], length);
        specdec__answer_push_bytes(&s, piece, length);
        while (specdec__answer_next_part(&s, &part))
            gather(out, &part);
        free(piece);
    }
}

typedef struct answer {
    const char *calls, *thoughts;
    int inside;
    const char *text, *content, *thought;
    const char *name[2], *arguments[2]; /* NULL: there is no such call */
} answer;

#define BEGIN "<\xef\xbd\x9ctool\xe2\x96\x81" "calls\xe2\x96\x81" "begin\xef\xbd\x9c>"
#define CALL  "<\xef\xbd\x9ctool\xe2\x96\x81" "call\xe2\x96\x81" "begin\xef\xbd\x9c>"
#define SEP   "<\xef\xbd\x9ctool\xe2\x96\x81sep\xef\xbd\x9c>"
#define END   "<\xef\xbd\x9ctool\xe2\x96\x81" "call\xe2\x96\x81" "end\xef\xbd\x9c>"
#define ENDS  "<\xef\xbd\x9ctool\xe2\x96\x81" "calls\xe2\x96\x81" "end\xef\xbd\x9c>"

static const answer answers[] = {
    {NULL, NULL, 0, "Hello <tool_call> \n", "Hello <tool_call> \n", "", {NULL, NULL}, {NULL, NULL}},
    {"hermes", "think", 0, "<think>\nHm <b>\n</think>\n\nYes <tool> and <tool_cal", "Yes <tool> and <tool_cal", "Hm <b>", {NULL, NULL}, {NULL, NULL}},
    {"hermes", "think", 1, "Hm\n\nwell</think>\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, {\"b\": \"}\\\"\"}]}}\n</tool_call>\n"
     "<tool_call>{\"arguments\": {}, \"name\": \"g\"}</tool_call>", "", "Hm\n\nwell", {"f", "g"}, {"{\"a\": [1, {\"b\": \"}\\\"\"}]}", "{}"}},
    {"hermes", NULL, 0, "One moment.\n<tool_call>\n{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": \\\"x\\\\n\\\"}\"}\n</tool_call> Done", "One moment.Done", "",
     {"f", NULL}, {"{\"a\": \"x\\n\"}", NULL}},
    {"hermes", NULL, 0, "<tool_call>\n{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {\"a\": 1}}}\n</tool_call>", "", "",
     {"f", NULL}, {"{\"a\": 1}", NULL}},
    {"mistral", "mistral", 0, "[THINK]so[/THINK]a[b[TOOL_CALLS]f[ARGS]{\"a\": \"]\"}[TOOL_CALLS]g[ARGS]{}", "a[b", "so", {"f", "g"}, {"{\"a\": \"]\"}", "{}"}},
    {"mistral-list", NULL, 0, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\":\"g\",\"arguments\":{}}]", "", "", {"f", "g"},
     {"{\"a\": 1}", "{}"}},
    {"llama3", NULL, 0, "{\"name\": \"f\", \"parameters\": {\"a\": \"b\"}}", "", "", {"f", NULL}, {"{\"a\": \"b\"}", NULL}},
    {"llama3", NULL, 0, "{\"title\": \"f\", \"parameters\": {}}", "{\"title\": \"f\", \"parameters\": {}}", "", {NULL, NULL}, {NULL, NULL}},
    {"llama3", NULL, 0, "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {\"x\": null}}", "", "", {"f", "g"},
     {"{}", "{\"x\": null}"}},
    {"granite", NULL, 0, "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]", "", "", {"f", NULL}, {"{\"a\": 1}", NULL}},
    {"granite", NULL, 0, "So<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]<|/tool_call|>", "So", "", {"f", NULL}, {"{\"a\": 1}", NULL}},
    {"lfm2", NULL, 0, "Let's see.<|tool_call_start|>[f(a='it\\'s \"so\"', b=[1, True, None], c={'k': 2.5}), g()]<|tool_call_end|>ok", "Let's see.ok", "",
     {"f", "g"}, {"{\"a\": \"it's \\\"so\\\"\", \"b\": [1, true, null], \"c\": {\"k\": 2.5}}", "{}"}},
    {"gemma4", "gemma4", 0, "<|channel>thought\nhm<channel|><|tool_call>call:f{city:<|\"|>K\xc3\xb6ln \"a\"\n<|\"|>,n:3,l:[1,{z:true}]}<tool_call|>", "", "hm",
     {"f", NULL}, {"{\"city\": \"K\xc3\xb6ln \\\"a\\\"\\n\", \"n\": 3, \"l\": [1, {\"z\": true}]}", NULL}},
    {"gpt-oss", "gpt-oss", 0, "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
     "{\"a\": 1}<|call|>", "", "hm", {"f", NULL}, {"{\"a\": 1}", NULL}},
    {"gpt-oss", "gpt-oss", 0, "<|channel|>analysis<|message|>a < b<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>", "Yes.", "a < b",
     {NULL, NULL}, {NULL, NULL}},
    {"deepseek-r1", "think", 1, "hm</think>\n\n" BEGIN CALL "function" SEP "f\n```json\n{\"a\": 1}\n```" END "\n" CALL "function" SEP "g\n```json\n{}\n```" END ENDS,
     "", "hm", {"f", "g"}, {"{\"a\": 1}", "{}"}},
    {"deepseek-v3", "think", 0, "So." BEGIN CALL "f" SEP "{\"a\": {\"b\": 1}}" END CALL "g" SEP "{}" END ENDS, "So.", "", {"f", "g"}, {"{\"a\": {\"b\": 1}}", "{}"}},
    {"kimi", NULL, 0, "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": 1}<|tool_call_end|>"
     "<|tool_calls_section_end|>", "", "", {"f", NULL}, {"{\"a\": 1}", NULL}},
    {"glm", "think", 0, "<think></think>\n<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x \"y\"</arg_value>\n<arg_key>b</arg_key>\n<arg_value>[1, 2]</arg_value>\n"
     "</tool_call>", "", "", {"f", NULL}, {"{\"a\": \"x \\\"y\\\"\", \"b\": [1, 2]}", NULL}},
    {"qwen-coder", NULL, 0, "Now\n<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n<parameter=b>\n3\n</parameter>\n</function>\n</tool_call>", "Now", "",
     {"f", NULL}, {"{\"a\": \"x\", \"b\": 3}", NULL}},
    {"apertus", "apertus", 0, "<|inner_prefix|>hm<|inner_suffix|><|tools_prefix|>[{\"f\": {\"a\": 1}}, {\"g\": {}}]<|tools_suffix|>", "", "hm", {"f", "g"},
     {"{\"a\": 1}", "{}"}}};

/* Is what was gathered what is expected? */
static int is(const sorted *got, const answer *a)
{
    int i, calls = (a->name[0] != NULL) + (a->name[1] != NULL), same;

    same = !got->wrong && got->calls == calls && got->whole == calls && got->content_size == strlen(a->content) &&
           !memcmp(got->content, a->content, got->content_size) && got->thought_size == strlen(a->thought) &&
           !memcmp(got->thought, a->thought, got->thought_size);
    for (i = 0; i < calls && same; i++)
        same = got->name_size[i] == strlen(a->name[i]) && !memcmp(got->name[i], a->name[i], got->name_size[i]) &&
               got->arguments_size[i] == strlen(a->arguments[i]) && !memcmp(got->arguments[i], a->arguments[i], got->arguments_size[i]);
    return same;
}

static sorted got, whole;

static void test_answers(void)
{
    size_t i, cut, next;

    TEST("answers are taken apart in every format, wherever the pieces are cut");
    for (i = 0; i < SPECDEC__COUNT(answers); i++) {
        const answer *a = &answers[i];
        const size_t size = strlen(a->text);
        int bad = 0;

        for (cut = 0; cut <= size && !bad; cut++)
            for (next = cut; next <= size && !bad; next += 1 + (size - next) / 3) {
                take(&got, a->calls, a->thoughts, a->inside, a->text, size, cut, next);
                bad = !is(&got, a);
            }
        CHECK(!bad);
        if (bad)
            printf("  answer %zu, cut at %zu: content \"%.*s\", thought \"%.*s\", %d calls (%d whole), \"%.*s\" %.*s\n", i, cut - 1,
                   (int)got.content_size, got.content, (int)got.thought_size, got.thought, got.calls, got.whole, (int)got.name_size[0],
                   got.name[0], (int)got.arguments_size[0], got.arguments[0]);
    }
}

/* Long arguments and contents come whole, whatever is in them. */
static void test_long(void)
{
    static char text[ROOM], value[ROOM];
    size_t i, used = 0, from;

    TEST("long contents and arguments lose no byte");
    for (i = 0; i < sizeof value - 4096; i++)
        value[i] = "abc {[<\xc3\xa4|]}>:,'=\n"[i % 18];
    memcpy(text, value, 20000);
    used = 20000;
    memcpy(text + used, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"", 46);
    used += 46; /* the value begins */
    from = used - 7;
    for (i = 0; i < 20000; i++)
        text[used++] = value[i] == '\n' || (value[i] & 0x80) ? 'n' : value[i];
    memcpy(text + used, "\"}}\n</tool_call>", 16);
    used += 16;
    take(&whole, "hermes", "think", 0, text, used, 10, 30000);
    CHECK_EQUAL_INT(whole.calls, 1);
    CHECK_EQUAL_INT(whole.whole, 1);
    CHECK(whole.content_size >= 19999 && !memcmp(whole.content, value, 19999));
    CHECK_EQUAL_INT((long)whole.arguments_size[0], (long)(used - from - 14));
    CHECK(!memcmp(whole.arguments[0], text + from, whole.arguments_size[0]));
}

/* Any bytes, in any format: nothing breaks, contents come out, and the same whatever the cuts are. */
static void test_noise(void)
{
    unsigned seed = 7, round;
    char text[600];

    TEST("of noise with marks in it the parts are the same, however it is cut");
    for (round = 0; round < 4000; round++) {
        const specdec__calls *row = &specdec__call_table[round % SPECDEC__COUNT(specdec__call_table)];
        const specdec__thoughts *thoughts = &specdec__thought_table[round / 7 % SPECDEC__COUNT(specdec__thought_table)];
        const char *const pieces[] = {SPECDEC__CALL_TEXT(row, BEGIN), SPECDEC__CALL_TEXT(row, SECTION_BEGIN) ? SPECDEC__CALL_TEXT(row, SECTION_BEGIN) : "", SPECDEC__CALL_TEXT(row, NAME_END) ? SPECDEC__CALL_TEXT(row, NAME_END) : "", SPECDEC__CALL_TEXT(row, END) ? SPECDEC__CALL_TEXT(row, END) : "",
                                      SPECDEC__CALL_TEXT(row, SECTION_END) ? SPECDEC__CALL_TEXT(row, SECTION_END) : "", thoughts->open, thoughts->close, SPECDEC__CALL_TEXT(row, WRITTEN_BEGIN), SPECDEC__CALL_TEXT(row, WRITTEN_MIDDLE), SPECDEC__CALL_TEXT(row, WRITTEN_END) ? SPECDEC__CALL_TEXT(row, WRITTEN_END) : "}",
                                      SPECDEC__CALL_TEXT(row, KEY_BEGIN) ? SPECDEC__CALL_TEXT(row, KEY_BEGIN) : "{", SPECDEC__CALL_TEXT(row, KEY_END) ? SPECDEC__CALL_TEXT(row, KEY_END) : "\"", SPECDEC__CALL_TEXT(row, VALUE_END) ? SPECDEC__CALL_TEXT(row, VALUE_END) : ":",
                                      "{\"name\": \"f\", \"arguments\": {\"a\": 1}}", "f", "\"", "\\", "}", "{", "[", "]", ",", ":", "=", " ", "\n", "x", "'", "1"};
        size_t size = 0;
        int same;

        while (size < 300) {
            const char *piece;

            seed = seed * 1664525u + 1013904223u;
            piece = pieces[(seed >> 16) % SPECDEC__COUNT(pieces)];
            memcpy(text + size, piece, strlen(piece));
            size += strlen(piece);
        }
        take(&whole, row->name, thoughts->name, (int)(seed >> 20) & 1, text, size, size, size);
        take(&got, row->name, thoughts->name, (int)(seed >> 20) & 1, text, size, (seed >> 8) % 150, 150 + (seed >> 12) % 150);
        same = whole.content_size == got.content_size && whole.thought_size == got.thought_size && whole.calls == got.calls && whole.whole == got.whole &&
               !memcmp(whole.content, got.content, got.content_size) && !memcmp(whole.arguments, got.arguments, sizeof got.arguments) &&
               !memcmp(whole.name, got.name, sizeof got.name);
        if (!same)
            printf("  round %u, %s\n", round, row->name);
        CHECK(same);
    }
}

/* Which row a template gets. */
static const specdec__calls *row_of(const char *name)
{
    static specdec__chat_work work;
    static specdec__chat_recognition found;
    char path[700], file[300];
    specdec__vocab v;
    size_t size = 0;
    char *text;

    snprintf(file, sizeof file, "templates/%s", name);
    text = (char *)check_read_file(check_shared(path, sizeof path, file), &size);
    if (!text)
        return NULL;
    memset(&v, 0, sizeof v);
    memset(&found, 0, sizeof found);
    v.bos = v.eos = -1;
    work.found = &found;
    work.memory_bytes = specdec__template_memory_needed(size);
    work.memory = malloc(work.memory_bytes);
    specdec__conversation_find_call_format(&work, specdec__template_as_bytes(text, size), &v);
    free(work.memory);
    free(text);
    return found.chat.calls;
}

static void test_real(void)
{
    static const struct { const char *file, *row; } known[] = {
        {"Qwen-Qwen3-0.6B.jinja", "hermes"}, {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja", "hermes"},
        {"meta-llama-Llama-3.1-8B-Instruct.jinja", "llama3"}, {"mistralai-Ministral-3-14B-Reasoning-2512.jinja", "mistral"},
        {"ibm-granite-granite-4.1.jinja", "hermes"}, {"ibm-granite-granite-3.3-2B-Instruct.jinja", "granite"},
        {"LFM2.5-8B-A1B.jinja", "lfm2"}, {"openai-gpt-oss-120b.jinja", "gpt-oss"}, {"deepseek-ai-DeepSeek-V3.1.jinja", "deepseek-v3"},
        {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja", "deepseek-r1"}, {"google-gemma-4-31B-it.jinja", "gemma4"},
        {"GLM-4.6.jinja", "glm"}, {"Qwen3.5-4B.jinja", "qwen-coder"}, {"MiniMax-M2.jinja", "minimax"}};
    size_t i;
    const specdec__calls *row;

    TEST("the marks of calls are found from what a template writes for a known one");
    if (!row_of(known[0].file)) {
        SKIP("../shared is not there");
        return;
    }
    for (i = 0; i < SPECDEC__COUNT(known); i++) {
        row = row_of(known[i].file);
        CHECK(row && !strcmp(row->name, known[i].row));
        if (!row || strcmp(row->name, known[i].row))
            printf("  %s: %s\n", known[i].file, row ? row->name : "none");
    }
}

/* White space may stand before a mark, and a model may write it without end. */
static void test_spaces(void)
{
    static const char *const calls[] = {NULL, "hermes", "llama3", "granite", "lfm2", "gemma4", "mistral"};
    static char text[4000];
    size_t i, k;

    TEST("white space without end is text");
    for (k = 0; k < 3; k++) {
        text[0] = 'A';
        memset(text + 1, "\n \t"[k], sizeof text - 2);
        text[sizeof text - 1] = 'Z';
        for (i = 0; i < sizeof calls / sizeof *calls; i++) {
            take(&whole, calls[i], "think", 0, text, sizeof text, 100, 130);
            CHECK(!whole.wrong && whole.content_size == sizeof text && !memcmp(whole.content, text, sizeof text));
            take(&whole, calls[i], "think", 1, text, sizeof text - 1, 1, 2000);
            CHECK(!whole.wrong && !whole.content_size && whole.thought_size == sizeof text - 1);
        }
    }
}

int main(void)
{
    test_answers();
    test_long();
    test_spaces();
    test_noise();
    test_real();
    return check_report("test_answer");
}
