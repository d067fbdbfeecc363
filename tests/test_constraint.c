/* test_constraint.c - promises of >>constraint: what grammars, expressions and schemas accept and refuse, no dead ends,
   masks that agree with single questions, errors that say where, bounded work. */
#define SPECDEC_NO_SIMD /* no kernels are run: builds in a third of the time */
#include "../src/base/os.h"
#include "../src/engine/api_model.h"
#include "../src/engine/api_constraint.h"
#include "check.h"

#define ROOM ((size_t)24 << 20)

static unsigned char *room; /* (ROOM) where constraints are compiled */
static uint64_t seed;

static uint32_t random_below(uint32_t count)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((seed >> 33) % count);
}

static const specdec_constraint *compile(specdec_constraint_kind kind, const char *text, int compact, specdec_error *error)
{
    const specdec_constraint *c;
    specdec_constraint_source source;

    memset(&source, 0, sizeof source);
    source.kind = kind;
    source.text = text;
    source.length = SPECDEC_WHOLE_STRING;
    source.compact = compact;
    return specdec_constraint_init(&c, &source, room, ROOM, error) ? NULL : c;
}

static int accepts(const specdec_constraint *c, const char *text)
{
    specdec_constraint_state state;

    specdec_constraint_begin(c, &state, sizeof state);
    return specdec_constraint_advance(c, &state, text, strlen(text)) == strlen(text) && specdec_constraint_complete(c, &state);
}

/* Random bytes among those that may follow, then a way to the end. Returns 0 at a dead end. Bytes that come often are
   made rare, so that the walk ends. */
static int walk(const specdec_constraint *c, int steps)
{
    specdec_constraint_state state;
    uint32_t mask[8];
    int i, count;

    specdec_constraint_begin(c, &state, sizeof state);
    for (i = 0; i < steps + 4000; i++) {
        uint32_t byte = 0, k, chosen = UINT32_MAX;

        if (specdec_constraint_complete(c, &state) && i >= steps)
            return 1;
        count = specdec_constraint_next(c, &state, mask);
        if (!count)
            return specdec_constraint_complete(c, &state);
        if (i >= steps) /* to the end: brackets and quotes close, digits and letters come before what opens */
            for (k = 0; k < 5 && chosen == UINT32_MAX; k++) {
                byte = (unsigned char)"\"]},:"[k];
                if (mask[byte >> 5] >> (byte & 31) & 1 && random_below(8))
                    chosen = byte;
            }
        if (chosen == UINT32_MAX) {
            for (k = random_below((uint32_t)count), byte = 0;; byte++)
                if (mask[byte >> 5] >> (byte & 31) & 1 && !k--)
                    break;
            chosen = byte;
        }
        {
            const unsigned char next = (unsigned char)chosen;

            if (specdec_constraint_advance(c, &state, &next, 1) != 1)
                return 0;
        }
    }
    return -1; /* not at an end yet, but none was closed either */
}

/* Texts that must be accepted, NULL, texts that must be refused, NULL. */
typedef struct example {
    specdec_constraint_kind kind;
    const char *source;
    const char *texts[16];
} example;

#define GBNF SPECDEC_CONSTRAINT_GBNF
#define REGEX SPECDEC_CONSTRAINT_REGEX
#define SCHEMA SPECDEC_CONSTRAINT_SCHEMA

static const example grammars[] = {
    {GBNF, "root ::= \"a\" b* \"c\" # comment\nb ::= \"x\" | \"y\" b", {"ac", "axyxc", NULL, "axyc", "a", "", NULL}},
    {GBNF, "root ::= expr\nexpr ::= term (\"+\" term)*\nterm ::= [0-9]+ | \"(\" expr \")\"",
     {"1+(2+3)", "((((7))))+12", NULL, "1+", "(1", "1)", NULL}},
    {GBNF, "root ::= s\ns ::= \"a\" s \"b\" | \"\"", {"", "ab", "aaabbb", NULL, "aab", "abb", "ba", NULL}},
    {GBNF, "root ::= [a-c]{2,3} \"!\"{0,1000000} [^\\x00-\\x7f]", {"ab\xc3\xa9", "abc!!!!\xe6\xbc\xa2", NULL, "ab", "abcd", "a!", NULL}},
    {GBNF, "root ::= (\n \"x\" |\n \"y\" )+ \"\\n\"", {"xy\n", NULL, "xy", NULL}},
    {GBNF, "root ::= \"\\u00e9\" . [\\]\\-a] \"\\x41\"?", {"\xc3\xa9z]", "\xc3\xa9\xf0\x9f\x98\x80-A", NULL, "e]", NULL}},
    {GBNF, "root ::= \"'\" [^\"]* \"\\\"\"", {"'a\nb\"", "'\xc3\xa9\"", NULL, "'a", "a\"", NULL}},
    {GBNF, "root ::= a a\na ::= (\"x\"{300,400} \"y\")?", {"", NULL, "xy", "y", NULL}},
    {REGEX, "[a-z]+@[a-z]+\\.(com|org)", {"ab@cd.com", NULL, "ab@cd.co", "@a.com", NULL}},
    {REGEX, "(ab|a)(c|bcd)", {"abcd", "ac", "abc", NULL, "ab", NULL}},
    {REGEX, "\\d{2,}-\\w\\s[^a-f]?", {"123-z q", "12-_\t", NULL, "1-a ", "12-a a", NULL}},
    {REGEX, "(a*)*b", {"b", "aaab", NULL, "aaa", NULL}},
    {REGEX, "a{0,1000000}", {"", "aaaa", NULL, "b", NULL}}};

static const example schemas[] = {
    {SCHEMA, "true", {"null", "[1,2.5e3,\"x\\n\",{}]", "{\"a\": {\"b\": []}}", "\"\\ud83d\\ude00\"", NULL, "nul", "[1,]", "01",
                      "\"\\ud83d\"", "{\"a\"}", NULL}},
    {SCHEMA, "{\"type\":[\"integer\",\"null\"]}", {"-12", "0", "null", NULL, "1.5", "00", "-", "true", NULL}},
    {SCHEMA, "{\"properties\":{\"a\":{\"type\":\"string\"},\"b\":{\"type\":\"integer\"},\"c\":true},\"required\":[\"b\"],"
             "\"additionalProperties\":false,\"type\":\"object\"}",
     {"{\"b\":1}", "{\"a\":\"\",\"b\":2,\"c\":null}", "{\"b\":1 , \"c\" : {}}", NULL, "{}", "{\"a\":\"\"}", "{\"b\":1,\"a\":\"\"}",
      "{\"b\":1,\"d\":2}", "{\"b\":1,\"b\":1}", NULL}},
    {SCHEMA, "{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"integer\"}},\"additionalProperties\":{\"type\":\"boolean\"}}",
     {"{}", "{\"ab\":1,\"abc\":true}", "{\"a\":false,\"x\":true}", NULL, "{\"ab\":true}", "{\"abc\":1}", "{\"x\":true,\"ab\":1}", NULL}},
    {SCHEMA, "{\"type\":\"object\",\"patternProperties\":{\"^x\":{\"type\":\"integer\"},\"y$\":{\"minimum\":5}},\"additionalProperties\":false}",
     {"{\"x1\":1,\"xy\":7,\"ay\":\"\"}", NULL, "{\"a\":1}", "{\"xy\":3}", "{\"x\":\"\"}", NULL}},
    {SCHEMA, "{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[a-z]+$\",\"maxLength\":3},\"minProperties\":1,\"maxProperties\":2}",
     {"{\"abc\":1}", "{\"a\":1,\"b\":2}", NULL, "{}", "{\"abcd\":1}", "{\"A\":1}", "{\"a\":1,\"b\":2,\"c\":3}", NULL}},
    {SCHEMA, "{\"items\":{\"type\":\"integer\"},\"prefixItems\":[{\"type\":\"string\"}],\"minItems\":2,\"maxItems\":3,\"type\":\"array\"}",
     {"[\"a\",1]", "[\"a\", 1, 2]", NULL, "[\"a\"]", "[1,1]", "[\"a\",1,2,3]", "[\"a\",\"b\"]", NULL}},
    {SCHEMA, "{\"type\":\"string\",\"minLength\":2,\"maxLength\":4}",
     {"\"ab\"", "\"\xc3\xa9\\n\\u0041d\"", NULL, "\"a\"", "\"abcde\"", NULL}},
    {SCHEMA, "{\"type\":\"string\",\"pattern\":\"^a[^b]*\\\"$\",\"maxLength\":5}", {"\"a\\\"\"", "\"accc\\\"\"", NULL, "\"a\"", "\"acccc\\\"\"", "\"ab\\\"\"", NULL}},
    {SCHEMA, "{\"type\":\"string\",\"format\":\"date\"}", {"\"2024-02-29\"", "\"2023-12-31\"", "\"2000-02-29\"", NULL, "\"2023-02-29\"", "\"1900-02-29\"", "\"2023-04-31\"", "\"2023-13-01\"", NULL}},
    {SCHEMA, "{\"type\":\"string\",\"format\":\"ipv4\"}", {"\"1.2.3.255\"", NULL, "\"1.2.3.256\"", "\"1.2.3\"", NULL}},
    {SCHEMA, "{\"type\":\"string\",\"format\":\"uuid\"}", {"\"123e4567-e89b-12d3-a456-426614174000\"", NULL, "\"123e4567\"", NULL}},
    {SCHEMA, "{\"enum\":[1,\"a\\\"b\",{\"x\":[true]},null]}", {"1", "\"a\\\"b\"", "{\"x\":[true]}", "{ \"x\" : [ true ] }", "null", NULL, "2", "\"a\"", "{}", NULL}},
    {SCHEMA, "{\"const\":3.5}", {"3.5", NULL, "3", "3.51", NULL}},
    {SCHEMA, "{\"type\":\"integer\",\"minimum\":-7,\"maximum\":120}", {"-7", "-1", "0", "99", "120", NULL, "-8", "121", "1000", "-10", NULL}},
    {SCHEMA, "{\"type\":\"number\",\"exclusiveMinimum\":0.25,\"maximum\":10.5}", {"0.251", "1", "10.5", "10.50", "9.99", NULL, "0.25", "0.2", "10.51", "11", "0", NULL}},
    {SCHEMA, "{\"type\":\"number\",\"maximum\":-1.5,\"minimum\":-20}", {"-1.5", "-2", "-20", "-19.9", NULL, "-1.4", "1", "-20.1", NULL}},
    {SCHEMA, "{\"type\":\"number\",\"multipleOf\":0.25,\"minimum\":0}", {"0", "1.5", "0.75", "2.50", "3.250", NULL, "0.1", "0.251", "-1", NULL}},
    {SCHEMA, "{\"type\":\"integer\",\"multipleOf\":7}", {"0", "14", "-49", "7000", NULL, "1", "15", NULL}},
    {SCHEMA, "{\"$ref\":\"#/$defs/tree\",\"$defs\":{\"tree\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"kids\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/tree\"}}},\"required\":[\"v\"],\"additionalProperties\":false}}}",
     {"{\"v\":1,\"kids\":[{\"v\":2,\"kids\":[]},{\"v\":3}]}", NULL, "{\"v\":1,\"kids\":[{}]}", NULL}},
    {SCHEMA, "{\"anyOf\":[{\"type\":\"string\",\"maxLength\":2},{\"type\":\"integer\"},{\"type\":\"object\",\"required\":[\"k\"],\"properties\":{\"k\":{\"const\":1}}}]}",
     {"\"ab\"", "5", "{\"k\":1,\"z\":2}", NULL, "\"abc\"", "{\"k\":2}", "{}", NULL}},
    {SCHEMA, "{\"oneOf\":[{\"type\":\"integer\",\"multipleOf\":2},{\"type\":\"integer\",\"multipleOf\":3}]}", {"2", "3", "9", "10", NULL, "6", "12", "5", NULL}},
    {SCHEMA, "{\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}],\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}}}",
     {"{\"a\":1}", "{\"b\":1}", "{\"a\":1,\"c\":2}", NULL, "{}", "{\"a\":1,\"b\":2}", NULL}},
    {SCHEMA, "{\"allOf\":[{\"properties\":{\"a\":{\"minimum\":3}}},{\"properties\":{\"a\":{\"maximum\":5}}}],\"properties\":{\"a\":{\"type\":\"integer\"}},\"type\":\"object\"}",
     {"{\"a\":4}", "{}", NULL, "{\"a\":2}", "{\"a\":6}", "{\"a\":\"x\"}", NULL}},
    {SCHEMA, "{\"type\":\"integer\",\"not\":{\"enum\":[5,7]}}", {"4", "50", "6", "75", NULL, "5", "7", NULL}},
    {SCHEMA, "{\"type\":\"string\",\"not\":{\"pattern\":\"^ab\"}}", {"\"a\"", "\"\"", "\"bab\"", NULL, "\"ab\"", "\"abc\"", NULL}},
    {SCHEMA, "{\"type\":[\"string\",\"integer\"],\"if\":{\"type\":\"string\"},\"then\":{\"minLength\":1},\"else\":{\"minimum\":0}}", {"\"a\"", "0", "12", NULL, "\"\"", "-1", NULL}},
    {SCHEMA, "{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"dependentRequired\":{\"a\":[\"b\"]},\"additionalProperties\":false}", {"{}", "{\"b\":1}", "{\"a\":1,\"b\":1}", NULL, "{\"a\":1}", NULL}},
    {SCHEMA, "{\"type\":\"object\",\"properties\":{\"\xc3\xa9\\\"\":{\"type\":\"null\"}},\"additionalProperties\":false}", {"{\"\xc3\xa9\\\"\":null}", NULL, "{\"\xc3\xa9\":null}", "{\"\xc3\xaa\\\"\":null}", NULL}}};

static void test_examples(const example *list, size_t count, const char *promise)
{
    size_t i;

    TEST(promise);
    for (i = 0; i < count; i++) {
        specdec_error error;
        const specdec_constraint *c = compile(list[i].kind, list[i].source, 0, &error);
        const char *const *text = list[i].texts;
        int wanted = 1, k, ends = 0;

        CHECK(c != NULL);
        if (!c) {
            fprintf(stderr, "%s: %s\n", list[i].source, error.text);
            continue;
        }
        for (; *text || wanted; text++) {
            if (!*text) {
                wanted = 0;
                continue;
            }
            if (accepts(c, *text) != wanted)
                fprintf(stderr, "%s: %s\n", list[i].source, *text);
            CHECK_EQUAL_INT(accepts(c, *text), wanted);
        }
        for (k = 0; k < 40 + 200 * check_depth(); k++) {
            const int end = walk(c, (int)random_below(60));

            if (!end)
                fprintf(stderr, "a dead end: %s\n", list[i].source);
            CHECK(end != 0);
            ends += end > 0;
        }
        CHECK(ends > 0);
    }
}

/* What must fail: kind, source, result, and a part of the words. */
static const struct failure {
    specdec_constraint_kind kind;
    const char *source;
    specdec_result result;
    const char *words;
} failures[] = {
    {GBNF, "root ::= root \"a\" | \"b\"", SPECDEC_ERROR_FORMAT, "left recursion"},
    {GBNF, "root ::= \"x\"\nb ::= c\nc ::= \"\" b \"k\"", SPECDEC_ERROR_FORMAT, "line 2, column 1"},
    {GBNF, "root ::= \"a\"\n  | oops", SPECDEC_ERROR_FORMAT, "line 2, column"},
    {GBNF, "x ::= \"a\"", SPECDEC_ERROR_FORMAT, "root"},
    {GBNF, "root ::= \"a", SPECDEC_ERROR_FORMAT, "line 1"},
    {GBNF, "root ::= (\"a\"", SPECDEC_ERROR_FORMAT, "bracket"},
    {GBNF, "root ::= \"a\"{3,2}", SPECDEC_ERROR_FORMAT, "least"},
    {GBNF, "root ::= s\ns ::= \"a\" s", SPECDEC_ERROR_FORMAT, "nothing matches"},
    {GBNF, "root ::= [z-a]", SPECDEC_ERROR_FORMAT, "range"},
    {REGEX, "(?=a)b", SPECDEC_ERROR_FORMAT, "looking"},
    {REGEX, "a**", SPECDEC_OK, ""},
    {REGEX, "*a", SPECDEC_ERROR_FORMAT, "repeat"},
    {REGEX, ".*a.{200}", SPECDEC_OK, ""},
    {SCHEMA, "{\"type\":\"strin\"}", SPECDEC_ERROR_FORMAT, "#/type"},
    {SCHEMA, "{\"properties\":{\"a\":{\"items\":{\"contains\":true}}}}", SPECDEC_ERROR_UNSUPPORTED, "contains at #/properties/a/items"},
    {SCHEMA, "{\"type\":\"array\",\"uniqueItems\":true}", SPECDEC_ERROR_UNSUPPORTED, "uniqueItems"},
    {SCHEMA, "{\"properties\":{\"a\":{\"pattern\":\"(?!x)\"}}}", SPECDEC_ERROR_UNSUPPORTED, "pattern at #/properties/a"},
    {SCHEMA, "{\"$ref\":\"http://example.com/x\"}", SPECDEC_ERROR_UNSUPPORTED, "$ref at #"},
    {SCHEMA, "{\"unevaluatedProperties\":false}", SPECDEC_ERROR_UNSUPPORTED, "unevaluatedProperties"},
    {SCHEMA, "{\"type\":\"string\",\"format\":\"iri\"}", SPECDEC_ERROR_UNSUPPORTED, "format"},
    {SCHEMA, "{\"multipleOf\":0}", SPECDEC_ERROR_UNSUPPORTED, "multipleOf"},
    {SCHEMA, "{\"minimum\":5,\"maximum\":4,\"type\":\"integer\"}", SPECDEC_ERROR_FORMAT, "nothing matches"},
    {SCHEMA, "{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":{\"$ref\":\"#\"}}}", SPECDEC_ERROR_FORMAT, "nothing matches"},
    {SCHEMA, "{\"a\":1,}", SPECDEC_ERROR_FORMAT, "line 1"},
    {SCHEMA, "[]", SPECDEC_ERROR_FORMAT, "schema"}};

static void test_failures(void)
{
    size_t i;

    TEST("what cannot be done is refused with words that say where and what");
    for (i = 0; i < SPECDEC__COUNT(failures); i++) {
        specdec_error error;
        const specdec_constraint *c;

        if (failures[i].result == SPECDEC_OK) /* patterns that explode elsewhere: done, or refused in bounded time */
            continue;
        error.code = SPECDEC_OK;
        c = compile(failures[i].kind, failures[i].source, 0, &error);
        CHECK(!c);
        CHECK_EQUAL_INT(error.code, failures[i].result);
        if (!strstr(error.text, failures[i].words))
            fprintf(stderr, "%s: %s\n", failures[i].source, error.text);
        CHECK(strstr(error.text, failures[i].words) != NULL);
    }
}

/* Patterns that make backtracking engines take exponential time, and counters without measure, over texts that nearly
   match: a constraint that compiles reads them in time that grows with their length alone. */
static void test_counters(void)
{
    static char text[20000];
    static const struct { specdec_constraint_kind kind; const char *source, *unit; } cases[] = {
        {REGEX, "(a+)+", "a"}, {REGEX, "([a-zA-Z]+)*", "aB"}, {REGEX, "(a|aa)+", "a"}, {REGEX, "(a|a?)+", "a"}, {REGEX, "(.*a){12}.*", "xa"},
        {REGEX, "(([a-z])+.)+[A-Z]([a-z])+", "az."}, {REGEX, "(.*)*", "xy"}, {REGEX, "a{0,1000000}", "a"}, {REGEX, "(a{0,1000000}b){0,1000000}", "aab"},
        {REGEX, "(a{0,1000000}){0,1000000}", "a"}, {REGEX, "[a-z]{5,1000000}", "q"}, {REGEX, "(a|b|ab)*{0,1000000}", "ab"},
        {GBNF, "root ::= \"x\"{0,1000000}", "x"}, {GBNF, "root ::= (\"ab\" [0-9]{0,1000000}){0,1000000}", "ab17"},
        {GBNF, "root ::= (\"a\" | \"a\" \"a\")* \"b\"", "a"},
        {SCHEMA, "{\"type\":\"string\",\"maxLength\":1000000}", "x"}, {SCHEMA, "{\"type\":\"string\",\"pattern\":\"^(a+)+$\"}", "a"},
        {SCHEMA, "{\"type\":\"array\",\"maxItems\":1000000,\"items\":{\"type\":\"integer\"}}", "7,"}};
    size_t i, read = 0;

    TEST("patterns that explode elsewhere and counters up to a million: bounded time to compile and for each byte, or an error that says why");
    for (i = 0; i < SPECDEC__COUNT(cases); i++) {
        const double from = specdec__os_monotonic_seconds();
        const size_t unit = strlen(cases[i].unit), size = cases[i].kind == SCHEMA ? 1 : 0;
        const specdec_constraint *c;
        specdec_constraint_state state;
        specdec_error error;
        size_t k, length = size;

        error.code = SPECDEC_OK;
        error.text[0] = 0;
        c = compile(cases[i].kind, cases[i].source, 0, &error);
        CHECK(c ? 1 : error.code != SPECDEC_OK && error.text[0]);
        if (!c)
            fprintf(stderr, "%s: %s\n", cases[i].source, error.text);
        text[0] = strstr(cases[i].source, "array") ? '[' : '"';
        for (k = 0; k < 15000 / unit; k++, length += unit)
            memcpy(text + length, cases[i].unit, unit);
        if (c) {
            specdec_constraint_begin(c, &state, sizeof state);
            read += k = specdec_constraint_advance(c, &state, text, length);
            if (k != length)
                fprintf(stderr, "%s: %zu of %zu\n", cases[i].source, k, length);
            CHECK(k == length);
        }
        if (specdec__os_monotonic_seconds() - from > 10)
            fprintf(stderr, "%s: %.1f s\n", cases[i].source, specdec__os_monotonic_seconds() - from);
        CHECK(specdec__os_monotonic_seconds() - from < 20);
    }
    CHECK(read > 0);
}

/* Sources that ask for too much: compiled or refused, with bounded work. */
static void test_hostile(void)
{
    static char text[200000];
    static const char *const regexes[] = {".*a.{200}", "((a{1000}){1000}){1000}", "(((){1000}){1000}){1000}", "(x+x+)+y",
                                          "(a|aa)*{1000}", "([a-z]{1,1000}[0-9]{1,1000}){1,1000}", "(a?){5000}a{5000}"};
    specdec_error error;
    size_t i;
    const double from = specdec__os_monotonic_seconds();

    TEST("hostile sources take bounded time and the memory that they are given");
    for (i = 0; i < SPECDEC__COUNT(regexes); i++) {
        error.code = SPECDEC_OK;
        CHECK(compile(REGEX, regexes[i], 0, &error) || error.code != SPECDEC_OK);
        snprintf(text, sizeof text, "{\"type\":\"string\",\"pattern\":\"%s\",\"maxLength\":4000}", regexes[i]);
        error.code = SPECDEC_OK;
        CHECK(compile(SCHEMA, text, 0, &error) || error.code != SPECDEC_OK);
    }
    memset(text, '(', 100000);
    text[100000] = 0;
    CHECK(!compile(REGEX, text, 0, &error));
    memcpy(text, "root ::= ", 9);
    CHECK(!compile(GBNF, text, 0, &error));
    memset(text, '[', 100000);
    CHECK(!compile(SCHEMA, text, 0, &error));
    for (i = 0, text[0] = 0; i < 2000; i++)
        snprintf(text + strlen(text), 60, "%s ::= r%zu | \"x\" r%zu\n", i ? "" : "root", i + 1, i + 1);
    CHECK(!compile(GBNF, text, 0, &error));
    {
        char *at = text + snprintf(text, 40, "root ::= r0\n");

        for (i = 0; i < 3000; i++)
            at += snprintf(at, 40, "r%zu ::= \"x\" r%zu | \"y\"\n", i, i + 1);
        snprintf(at, 40, "r%zu ::= \"z\"\n", i);
        CHECK(compile(GBNF, text, 0, &error) != NULL);
        at = text + snprintf(text, 100, "{\"anyOf\":[");
        for (i = 0; i < 60; i++)
            at += snprintf(at, 100, "%s{\"oneOf\":[{\"minimum\":%zu},{\"maxLength\":%zu},{\"required\":[\"a%zu\"]}]}", i ? "," : "", i, i, i);
        snprintf(at, 40, "]}");
        error.code = SPECDEC_OK;
        CHECK(compile(SCHEMA, text, 0, &error) || error.code != SPECDEC_OK);
    }
    CHECK(specdec__os_monotonic_seconds() - from < 60);
}

static void test_memory(void)
{
    static const char schema[] = "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":\"^[a-z]{2,9}$\"},"
                                 "\"b\":{\"type\":\"array\",\"items\":{\"type\":\"integer\",\"minimum\":3}}},\"required\":[\"a\"]}";
    specdec_constraint_source source;
    const specdec_constraint *c = NULL;
    specdec_error error;
    size_t bytes, enough = 0, kept = 0;
    uint64_t hash = 0;

    TEST("with less memory than it takes a source is refused, with more it becomes the same constraint");
    memset(&source, 0, sizeof source);
    source.kind = SCHEMA;
    source.text = schema;
    source.length = SPECDEC_WHOLE_STRING;
    for (bytes = 0; bytes < ROOM && enough < 3; bytes += check_depth() ? 1 : bytes < 8192 ? 61 : bytes / 40) {
        unsigned char *memory = (unsigned char *)malloc(bytes + 1);
        specdec_result result = specdec_constraint_init(&c, &source, memory, bytes, &error);

        CHECK(result == SPECDEC_OK ? c != NULL : result == SPECDEC_ERROR_MEMORY && !c);
        if (!result) {
            if (enough++)
                CHECK(hash == specdec_constraint_hash(c) && kept == specdec_constraint_bytes(c));
            hash = specdec_constraint_hash(c);
            kept = specdec_constraint_bytes(c);
            CHECK(accepts(c, "{\"a\":\"xyz\",\"b\":[3,4]}") && !accepts(c, "{\"a\":\"xyz\",\"b\":[2]}"));
        }
        free(memory);
    }
    CHECK(enough == 3);
    TEST("a copy of a constraint is as good, wherever it lies");
    c = compile(SCHEMA, schema, 0, &error);
    CHECK(c != NULL);
    if (c) {
        void *copy = malloc(specdec_constraint_bytes(c));

        memcpy(copy, c, specdec_constraint_bytes(c));
        memset(room, 0, ROOM);
        CHECK(accepts((const specdec_constraint *)copy, "{\"a\":\"xyz\",\"b\":[3,4]}"));
        free(copy);
    }
}

static void test_prefix(void)
{
    specdec_constraint_state state, other;
    const specdec_constraint *c;
    specdec_error error;
    uint32_t mask[8];
    char forced[64];
    size_t count;

    TEST("a prefix can be asked what may and what must follow");
    c = compile(SCHEMA, "{\"type\":\"object\",\"properties\":{\"name\":{\"enum\":[\"ann\",\"anton\"]}},\"required\":[\"name\"],"
                        "\"additionalProperties\":false}", 1, &error);
    CHECK(c != NULL);
    if (!c)
        return;
    specdec_constraint_begin(c, &state, sizeof state);
    count = specdec_constraint_forced(c, &state, forced, sizeof forced);
    CHECK(count == 11 && memcmp(forced, "{\"name\":\"an", 11) == 0);
    CHECK_EQUAL_INT(specdec_constraint_advance(c, &state, forced, count), 11);
    CHECK_EQUAL_INT(specdec_constraint_next(c, &state, mask), 2);
    CHECK(mask['n' >> 5] >> ('n' & 31) & 1 && mask['t' >> 5] >> ('t' & 31) & 1);
    other = state;
    CHECK(specdec_constraint_allows(c, &state, "n\"}", 3) && !specdec_constraint_allows(c, &state, "x", 1));
    CHECK_EQUAL_INT(specdec_constraint_advance(c, &state, "nx", 2), 1);
    CHECK(!specdec_constraint_complete(c, &state));
    CHECK_EQUAL_INT(specdec_constraint_advance(c, &other, "ton\"}", 5), 5);
    CHECK(specdec_constraint_complete(c, &other) && !specdec_constraint_next(c, &other, mask));
    TEST("one of several texts");
    {
        static const char *const choices[] = {"yes", "no", "not sure"};
        specdec_constraint_source source;

        memset(&source, 0, sizeof source);
        source.kind = SPECDEC_CONSTRAINT_CHOICES;
        source.choices = choices;
        source.choice_count = 3;
        CHECK(!specdec_constraint_init(&c, &source, room, ROOM, &error));
        CHECK(accepts(c, "no") && accepts(c, "not sure") && accepts(c, "yes") && !accepts(c, "not") && !accepts(c, "yesno"));
    }
    TEST("alternatives that nothing matches take no room from others; too many that begin alike are refused");
    {
        static char text[20000];
        int many, k;

        for (many = 0; many < 2; many++) {
            char *at = text + snprintf(text, 100, "{\"anyOf\":[");

            for (k = 0; k < 100; k++)
                at += snprintf(at, 120, "{\"type\":\"object\",\"required\":[\"a%d\"],\"properties\":{\"a%d\":%s}},", k, k,
                               many ? "true" : "{\"$ref\":\"#/$defs/endless\"}");
            snprintf(at, 200, "{\"type\":\"object\",\"required\":[\"b\"]}],\"$defs\":{\"endless\":{\"type\":\"array\","
                              "\"minItems\":1,\"items\":{\"$ref\":\"#/$defs/endless\"}}}}");
            c = compile(SCHEMA, text, 0, &error);
            CHECK(many ? !c && strstr(error.text, "anyOf") : c && accepts(c, "{\"b\":1}"));
        }
    }
    TEST("JSON nests as deep as states have room, and ends there");
    c = compile(SPECDEC_CONSTRAINT_JSON, NULL, 0, &error);
    CHECK(c != NULL);
    if (c) {
        int depth = 0;

        specdec_constraint_begin(c, &state, sizeof state);
        while (depth < 1000 && specdec_constraint_advance(c, &state, depth % 2 ? "{\"a\":" : "[", depth % 2 ? 5 : 1) == (depth % 2 ? 5u : 1u))
            depth++;
        CHECK(depth >= 40 && depth < 1000);
    }
}

/* The vocabulary of a model file; NULL: the file is not there. */
static specdec_model *open_model(const char *path, void **memory)
{
    specdec_config config;
    specdec_model *model = NULL;
    size_t bytes;

    memset(&config, 0, sizeof config);
    config.target.path = path;
    config.threads = config.vocabulary_only = 1;
    *memory = NULL;
    if (specdec_model_memory_needed(&config, &bytes, NULL))
        return NULL;
    *memory = malloc(bytes);
    return specdec_model_init(&model, &config, *memory, bytes, NULL) ? NULL : model;
}

/* Masks along random texts, compared with all questions. */
static void test_masks(const char *path, int most)
{
    void *memory, *trie_memory, *scratch;
    specdec_model *model = open_model(path, &memory);
    const specdec_token_trie *trie = NULL;
    uint32_t *mask;
    size_t bytes, i, size;
    int walked = 0;

    TEST("a mask says what single questions say, at every token");
    if (!model) {
        SKIP("no vocabulary");
        return;
    }
    CHECK(!specdec_token_trie_needed(model, &bytes, NULL));
    trie_memory = malloc(bytes);
    CHECK(specdec_token_trie_init(&trie, model, trie_memory, bytes - 1, NULL) == SPECDEC_ERROR_MEMORY);
    CHECK(!specdec_token_trie_init(&trie, model, trie_memory, bytes, NULL));
    mask = (uint32_t *)calloc(model->vocab.count / 32 + 1, 4);
    scratch = malloc(sizeof(specdec__mask_walk));
    for (i = 0; i < SPECDEC__COUNT(schemas) + SPECDEC__COUNT(grammars); i++) {
        const example *e = i < SPECDEC__COUNT(schemas) ? &schemas[i] : &grammars[i - SPECDEC__COUNT(schemas)];
        const specdec_constraint *c = compile(e->kind, e->source, 0, NULL);
        specdec_constraint_state state;
        int step;

        specdec_constraint_begin(c, &state, sizeof state);
        for (step = 0; step < 12 && walked < most; step++, walked++) {
            uint32_t token, allowed = 0, wrong = 0, chosen;

            CHECK(specdec_constraint_mask(c, &state, trie, mask, scratch, sizeof(specdec__mask_walk)));
            for (token = 0; token < model->vocab.count; token++) {
                const int bit = (int)(mask[token / 32] >> token % 32 & 1);

                allowed += (uint32_t)bit;
                wrong += bit != specdec_constraint_token(c, &state, trie, (int32_t)token);
            }
            if (wrong)
                fprintf(stderr, "%s: %u tokens of step %d\n", e->source, wrong, step);
            CHECK_EQUAL_INT(wrong, 0);
            CHECK(allowed > 0 || !specdec_constraint_complete(c, &state));
            if (!allowed)
                break;
            for (chosen = random_below(allowed), token = 0;; token++)
                if (mask[token / 32] >> token % 32 & 1 && !chosen--)
                    break;
            if (specdec__vocab_is_end_token(&model->vocab, (int32_t)token))
                break;
            size = trie->offset[token + 1] - trie->offset[token];
            CHECK_EQUAL_INT(specdec_constraint_advance(c, &state, trie->text + trie->offset[token], size), size);
        }
    }
    CHECK(walked > 0);
    free(mask);
    free(scratch);
    free(trie_memory);
    specdec_model_deinit(model);
    free(memory);
}

int main(void)
{
    char path[512];

    room = (unsigned char *)malloc(ROOM);
    seed = check_seed() + 1;
    test_examples(grammars, SPECDEC__COUNT(grammars), "grammars and expressions accept what they say, without dead ends");
    test_examples(schemas, SPECDEC__COUNT(schemas), "schemas accept what they say, without dead ends");
    test_failures();
    test_hostile();
    test_counters();
    test_memory();
    test_prefix();
    test_masks("examples/models/tiny-stories-draft-q8_0.gguf", 100000);
    if (check_depth())
        test_masks(check_shared(path, sizeof path, "vocab/ggml-vocab-qwen2.gguf"), 40 * check_depth());
    free(room);
    return check_report("test_constraint");
}
