/* test_tools.c - calls of tools in every form that is known: whatever the constraint of their schemas lets a model write, what is taken from it is
   JSON that the schemas describe. */
#define SPECDEC_NO_SIMD /* no kernels are run: builds in a third of the time */
#include "../src/base/os.h"
#include "../src/engine/api_model.h"
#include "../src/engine/api_constraint.h"
#include "check.h"

enum { LONGEST = 20000, TOOLS = 5 };

static uint64_t seed;

static uint32_t random_below(uint32_t count)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((seed >> 33) % count);
}

/* Names and parameters of tools. Arguments have names that need quotes, values of two kinds, patterns, lists, objects in objects. */
static const struct { const char *name, *parameters; } tools[TOOLS] = {
    {"get_weather", "{\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}, \"days\": {\"type\": \"integer\", \"minimum\": 1, "
                    "\"maximum\": 99}, \"unit\": {\"enum\": [\"c\", \"f\", \"3\", null]}, \"when\": {\"type\": \"string\", \"format\": \"date\"}}, "
                    "\"required\": [\"city\"], \"additionalProperties\": false}"},
    {"now", "{}"},
    {"get", "{\"type\": \"object\", \"properties\": {\"any\": {\"type\": [\"number\", \"string\", \"boolean\"]}, \"text\": {\"type\": \"string\", "
            "\"minLength\": 2, \"maxLength\": 6}, \"deep\": {\"type\": \"object\", \"properties\": {\"on\": {\"type\": \"boolean\"}, \"word\": "
            "{\"type\": [\"string\", \"null\"]}, \"list\": {\"type\": \"array\", \"items\": {\"type\": \"string\"}, \"maxItems\": 2}}, \"required\": "
            "[\"on\"], \"additionalProperties\": false}, \"listed\": {\"enum\": [[\"a\", true], {\"b\": \"c\"}, \"\\n\", \"x\\ny\", 7]}}, "
            "\"required\": [\"text\", \"deep\"], \"additionalProperties\": false}"},
    {"either", "{\"type\": \"object\", \"anyOf\": [{\"properties\": {\"v\": {\"type\": \"string\"}}, \"required\": [\"v\"]}, {\"properties\": {\"v\": "
               "{\"type\": \"integer\"}, \"w\": {\"type\": \"string\", \"pattern\": \"^[0-9\\n]+$\"}}, \"required\": [\"w\"]}]}"},
    {"open", "{\"type\": \"object\", \"additionalProperties\": {\"type\": \"string\"}, \"maxProperties\": 1000}"}};

/* Compiles into memory of its own. */
static const specdec_constraint *compile(specdec_constraint_kind kind, const char *text, const char *calls, int compact)
{
    const specdec_constraint *constraint = NULL;
    specdec_constraint_source source;
    specdec_error error;
    size_t bytes = 0;
    void *memory;

    memset(&source, 0, sizeof source);
    source.kind = kind;
    source.text = text;
    source.length = SPECDEC_WHOLE_STRING;
    source.calls = calls;
    source.compact = compact;
    error.text[0] = 0;
    CHECK_EQUAL_INT(specdec_constraint_needed(&source, &bytes, &error), SPECDEC_OK);
    memory = malloc(bytes);
    if (specdec_constraint_init(&constraint, &source, memory, bytes, &error))
        printf("  %s: %s\n", calls ? calls : "schema", error.text);
    if (constraint) { /* only what it needs is kept */
        const size_t needed = specdec_constraint_bytes(constraint);
        void *kept = malloc(needed);

        memcpy(kept, constraint, needed);
        constraint = (const specdec_constraint *)kept;
    }
    free(memory);
    return constraint;
}

/* Reads a text if it may follow. */
static int follows(const specdec_constraint *c, specdec_constraint_state *state, const char *text, char *out, int *size)
{
    const size_t length = text ? strlen(text) : 0;

    if (!length || *size + (int)length > LONGEST || !specdec_constraint_allows(c, state, text, length))
        return 0;
    specdec_constraint_advance(c, state, text, length);
    memcpy(out + *size, text, length);
    *size += (int)length;
    return 1;
}

/* A text that the constraint allows: random bytes, more and more of them those that end something. Returns its size; 0: it has found no end. */
static int write_call(const specdec_constraint *c, const specdec__calls *row, char *out)
{
    const char *const ends[] = {SPECDEC__CALL_TEXT(row, VALUE_END), SPECDEC__CALL_TEXT(row, END), "\"", "}", "]", ")", SPECDEC__CALL_TEXT(row, NAME_END), "\\\"", "\"}", "1", "null", "\n", "None", "{\"a\": 3}"};
    specdec_constraint_state state;
    uint32_t mask[8], byte, k;
    int size = 0, end = 0, i;

    specdec_constraint_begin(c, &state, sizeof state);
    for (i = 0; i < 6000 && size < LONGEST - 100; i++) {
        if (specdec_constraint_complete(c, &state))
            return size;
        for (end = 0; random_below(4) && end < 3 + i / 100; end++)
            if (follows(c, &state, ends[random_below((uint32_t)(sizeof ends / sizeof *ends))], out, &size))
                break;
        if (specdec_constraint_complete(c, &state))
            return size;
        if (!specdec_constraint_next(c, &state, mask))
            return 0;
        for (k = 0; k < 64; k++) { /* mostly printable ones */
            byte = random_below(256);
            if (mask[byte >> 5] >> (byte & 31) & 1 && (k > 40 || (byte >= 32 && byte < 127) || !random_below(40)))
                break;
        }
        for (k = 0; k < 256 && !(mask[byte >> 5] >> (byte & 31) & 1); k++)
            byte = (byte + 1) & 255;
        out[size] = (char)byte;
        if (specdec_constraint_advance(c, &state, out + size, 1) != 1)
            return 0;
        size++;
    }
    return 0;
}

/* The first call of an answer, taken in pieces of random sizes. Returns whether it is whole and all that there is. */
static int take(const specdec_constraint *c, const specdec__calls *row, const char *text, size_t size, char *name, char *arguments)
{
    size_t at = 0, piece, named = 0, count = 0;
    int whole = 0, other = 0, ended = 0;
    specdec_splitter s;
    specdec_part part;

    specdec__answer_begin_splitter(&s, row, NULL, 0);
    specdec__tools_set_splitter_argument_kinds(&s, c);
    while (!ended) {
        piece = 1 + random_below(9);
        piece = piece < size - at ? piece : size - at;
        ended = !piece;
        specdec__answer_push_bytes(&s, ended ? NULL : text + at, piece);
        at += piece;
        while (specdec__answer_next_part(&s, &part)) {
            if (part.kind == SPECDEC_PART_NAME && named + part.text.length < 100) {
                memcpy(name + named, part.text.bytes, part.text.length);
                named += part.text.length;
            } else if (part.kind == SPECDEC_PART_ARGUMENTS && count + part.text.length < LONGEST * 6) {
                memcpy(arguments + count, part.text.bytes, part.text.length);
                count += part.text.length;
            } else if (part.kind == SPECDEC_PART_END) {
                whole++;
            } else {
                other++;
            }
            other += part.call > 0;
        }
    }
    name[named] = arguments[count] = 0;
    return whole == 1 && !other;
}

static const specdec_constraint *schemas[TOOLS];
static char call[LONGEST + 400], arguments[LONGEST * 6 + 1], source[8000];

/* One call. Returns 1: it is right, 0: it is not, -1: the walk has found no end. */
static int try_call(const specdec_constraint *c, const specdec__calls *row, int *which)
{
    const char *before = row->form == SPECDEC__CALLS_CHANNEL ? "<|channel|>commentary to=functions." : row->flags & SPECDEC__CALLS_BARE ? "<|python_tag|>"
                                                                                                     : SPECDEC__CALL_TEXT(row, BEGIN);
    const char *behind = row->form == SPECDEC__CALLS_CHANNEL && random_below(2) ? SPECDEC__CALL_TEXT(row, END) : "";
    specdec_constraint_state state;
    char name[100];
    size_t size = 0;
    int written, i;

    if (SPECDEC__CALL_TEXT(row, SECTION_BEGIN)) {
        memcpy(call, SPECDEC__CALL_TEXT(row, SECTION_BEGIN), strlen(SPECDEC__CALL_TEXT(row, SECTION_BEGIN)));
        size = strlen(SPECDEC__CALL_TEXT(row, SECTION_BEGIN));
    }
    memcpy(call + size, before, strlen(before));
    size += strlen(before);
    written = write_call(c, row, call + size);
    if (!written)
        return -1;
    size += (size_t)written;
    if (row->form == SPECDEC__CALLS_CHANNEL && memcmp(call + size - strlen(SPECDEC__CALL_TEXT(row, END)), SPECDEC__CALL_TEXT(row, END), strlen(SPECDEC__CALL_TEXT(row, END))))
        behind = SPECDEC__CALL_TEXT(row, END);
    memcpy(call + size, behind, strlen(behind));
    size += strlen(behind);
    memset(name, 0, sizeof name);
    if (!take(c, row, call, size, name, arguments))
        return 0;
    for (i = 0; i < TOOLS && strcmp(tools[i].name, name); i++)
        ;
    if (i == TOOLS)
        return 0;
    *which = i;
    specdec_constraint_begin(schemas[i], &state, sizeof state);
    return specdec_constraint_advance(schemas[i], &state, arguments, strlen(arguments)) == strlen(arguments) &&
           specdec_constraint_complete(schemas[i], &state);
}

static void test_forms(void)
{
    const int rounds = check_depth() ? 4000 : 150;
    int i, k, open, wrong, seen[TOOLS], named, result;
    size_t size = 0;
    size_t r;

    TEST("what the constraint of tools lets a model write is a call whose arguments their schemas describe, in every form");
    for (i = 0; i < TOOLS; i++) {
        schemas[i] = compile(SPECDEC_CONSTRAINT_SCHEMA, tools[i].parameters, NULL, 0);
        CHECK(schemas[i] != NULL);
        size += (size_t)snprintf(source + size, sizeof source - size, "%s{\"type\": \"function\", \"function\": {\"name\": \"%s\", \"parameters\": %s}}",
                                 i ? ", " : "[", tools[i].name, tools[i].parameters);
    }
    snprintf(source + size, sizeof source - size, "]");
    for (r = 0; r < SPECDEC__COUNT(specdec__call_table); r++) {
        const specdec__calls *row = &specdec__call_table[r];
        const specdec_constraint *c = compile(SPECDEC_CONSTRAINT_TOOLS, source, row->name, (int)(r & 1));

        CHECK(c != NULL);
        if (!c)
            continue;
        memset(seen, 0, sizeof seen);
        for (open = wrong = k = 0; k < rounds; k++) {
            seed = 1000 * (uint64_t)r + (uint64_t)k + 1;
            result = try_call(c, row, &named);
            open += result < 0;
            if (result > 0)
                seen[named]++;
            if (!result && !wrong++)
                printf("  %s, %d: %.*s\n  %s\n", row->name, k, 300, call, arguments);
        }
        for (i = 0; i < TOOLS; i++)
            CHECK(seen[i] > 0);
        CHECK_EQUAL_INT(wrong, 0);
        CHECK(open < rounds / 2);
        free((void *)c);
    }
    for (i = 0; i < TOOLS; i++)
        free((void *)schemas[i]);
}

/* What a form cannot write is refused with words. */
static void test_refused(void)
{
    static const struct { const char *calls, *parameters, *says; } refused[] = {
        {"lfm2", "{\"type\": \"object\", \"minProperties\": 3, \"properties\": {\"a\": {}, \"b\": {}, \"c\": {}, \"d\": {}}}", "minProperties"},
        {"glm", "{\"type\": \"object\", \"maxProperties\": 1, \"properties\": {\"a\": {}, \"b\": {}}}", "maxProperties"},
        {"gemma4", "{\"type\": \"object\", \"properties\": {\"a b\": {}}, \"required\": [\"a b\"]}", "nothing matches it"},
        {"glm", "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"string\", \"maxLength\": 100000}}}", "maxLength"},
        {"none", "{}", "there are no calls of this form"}};
    static unsigned char room[(size_t)24 << 20];
    const specdec_constraint *c;
    specdec_constraint_source s;
    specdec_error error;
    size_t i;

    TEST("what a form of calls cannot write is refused with words");
    for (i = 0; i < sizeof refused / sizeof *refused; i++) {
        snprintf(source, sizeof source, "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": %s}}]", refused[i].parameters);
        memset(&s, 0, sizeof s);
        s.kind = SPECDEC_CONSTRAINT_TOOLS;
        s.text = source;
        s.length = SPECDEC_WHOLE_STRING;
        s.calls = refused[i].calls;
        error.text[0] = 0;
        CHECK(specdec_constraint_init(&c, &s, room, sizeof room, &error) != SPECDEC_OK);
        CHECK(strstr(error.text, refused[i].says) != NULL);
        if (!strstr(error.text, refused[i].says))
            printf("  %s\n", error.text);
    }
}

int main(void)
{
    test_forms();
    test_refused();
    return check_report("test_tools");
}
