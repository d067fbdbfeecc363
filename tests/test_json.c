/* test_json.c - the JSON reader: what JSON is, and what is none. */
#define SPECDEC_NO_SIMD
#include "../src/text/json.h"
#include "check.h"

enum { ROOM = 4096 };

static specdec__json_node nodes[ROOM];
static specdec__json json;

static int parse(const char *text, size_t size)
{
    memset(&json, 0, sizeof json);
    json.text = (const unsigned char *)text;
    json.size = size;
    json.nodes = nodes;
    json.room = ROOM;
    return specdec__json_parse(&json);
}

static int is_json(const char *text) { return parse(text, strlen(text)); }

static void check_valid(void)
{
    static const char *const valid[] = {
        "null", " true ", "false", "0", "-0", "12", "-1.5e+10", "1E-2", "0.5", "\"\"", "[]", "{}", "[ ]", "{ }", "[[],[]]", "[1 ,2]",
        "{\"a\":{},\"b\":[{}]}", "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e4\"", "\"\\ud83d\\ude00\"", "\"\xf0\x9f\x98\x80\"", "\"\\u0000\"",
        "\t\r\n [1]\n", "{\"\":1}", "\"\x7f\""};
    static const struct { const char *text; size_t at; } wrong[] = {
        {"", 0}, {" ", 1}, {"nul", 0}, {"nulll", 4}, {"01", 0}, {"-", 1}, {"1.", 2}, {".5", 0}, {"1e", 2}, {"1e+", 3}, {"+1", 0},
        {"[", 1}, {"]", 0}, {"[1", 2}, {"[1,", 3}, {"[1,]", 3}, {"[,1]", 1}, {"[1 2]", 3}, {"[}", 1}, {"[1}", 2}, {"{", 1}, {"{\"a\"", 4},
        {"{\"a\":", 5}, {"{\"a\":1", 6}, {"{\"a\":1,", 7}, {"{\"a\":1,}", 7}, {"{1:2}", 1}, {"{\"a\" 1}", 5}, {"{\"a\":1]", 6}, {"\"", 0},
        {"\"a", 0}, {"\"\n\"", 1}, {"\"\\x\"", 1}, {"\"\\u12\"", 1}, {"\"\\u12g4\"", 1}, {"\"\\ud800\"", 1}, {"\"\\udc00\"", 1},
        {"\"\\ud800\\ud800\"", 1}, {"\"\xff\"", 1}, {"\"\xc0\x80\"", 1}, {"\"\xed\xa0\x80\"", 1}, {"\"\xf4\x90\x80\x80\"", 1},
        {"\"\xe2\x82\"", 1}, {"1 1", 2}, {"{} []", 3}, {"NaN", 0}, {"'a'", 0}, {"[1]]", 3}, {"\xef\xbb\xbf[]", 0}, {"\"\\", 1}};
    char number[32];
    size_t i, size;

    TEST("what is JSON is read, and what is none is refused at its byte");
    for (i = 0; i < SPECDEC__COUNT(valid); i++) {
        CHECK(is_json(valid[i]));
        CHECK(!json.failed && json.count >= 1 && json.count <= strlen(valid[i]) / 2 + 2);
        CHECK_EQUAL_INT(nodes[0].next, json.count);
    }
    for (i = 0; i < SPECDEC__COUNT(wrong); i++) {
        CHECK(!is_json(wrong[i].text) && json.failed);
        CHECK_EQUAL_INT(json.error_at, wrong[i].at);
    }
    TEST("a text that is cut off anywhere is refused without a byte beyond its end being read");
    for (i = 0; i < SPECDEC__COUNT(valid); i++) {
        const size_t whole = strlen(valid[i]);

        sprintf(number, "%u", (unsigned)i);
        for (size = 0; size < whole; size++) {
            char *exact = (char *)malloc(size + 1), *end = exact + 1; /* behind end[size] sanitizers watch */

            if (!exact)
                return;
            memcpy(end, valid[i], size);
            if (!parse(end, size))
                CHECK(json.failed && json.error_at <= size);
            else
                CHECK_EQUAL_INT(nodes[0].next, json.count);
            free(exact);
        }
    }
}

static void check_nesting(void)
{
    static char deep[100000];
    size_t i;

    TEST("brackets may stand in each other to a fixed depth, and no deeper");
    for (i = 0; i < SPECDEC__JSON_DEPTH; i++) {
        deep[i] = '[';
        deep[SPECDEC__JSON_DEPTH + i] = ']';
    }
    CHECK(parse(deep, 2 * SPECDEC__JSON_DEPTH));
    CHECK_EQUAL_INT(json.count, SPECDEC__JSON_DEPTH);
    memset(deep, '[', sizeof deep);
    CHECK(!parse(deep, sizeof deep));
    CHECK_EQUAL_INT(json.error_at, SPECDEC__JSON_DEPTH);
}

static void check_room(void)
{
    const char *text = "{\"a\":[1,2,{\"b\":null}],\"c\":\"d\"}";
    size_t room;

    TEST("nodes are counted without room for them, and none is written beyond it");
    memset(&json, 0, sizeof json);
    json.text = (const unsigned char *)text;
    json.size = strlen(text);
    CHECK(specdec__json_parse(&json));
    CHECK_EQUAL_INT(json.count, 10);
    for (room = 0; room <= 10; room++) {
        memset(nodes, 77, sizeof nodes);
        json.nodes = nodes;
        json.room = room;
        CHECK(specdec__json_parse(&json));
        CHECK_EQUAL_INT(json.count, 10);
        CHECK(nodes[room].kind == 77 && (!room || nodes[room - 1].kind < 77));
    }
}

static void check_members(void)
{
    const char *text = " {\"role\":\"user\", \"a\\u0062c\" : [1, {\"x\" : 2}, \"\\u00e4\\n\"], \"twice\":1,\"twice\":2, \"\":{} } ";
    char out[8];
    size_t node, item;
    specdec__bytes raw;

    TEST("members are found by name, in any spelling; of several the last; items in their order");
    CHECK(is_json(text));
    CHECK_EQUAL_INT(nodes[0].count, 5);
    node = specdec__json_find_member(&json, 0, "role");
    CHECK(node && specdec__json_string_equals(&json, node, "user", 4));
    CHECK(!specdec__json_string_equals(&json, node, "use", 3) && !specdec__json_string_equals(&json, node, "users", 5));
    CHECK(!specdec__json_find_member(&json, 0, "x") && !specdec__json_find_member(&json, node, "x"));
    node = specdec__json_find_member(&json, 0, "abc");
    CHECK(node && nodes[node].kind == SPECDEC__JSON_ARRAY && nodes[node].count == 3);
    raw = specdec__json_value_text(&json, node);
    CHECK(raw.size == 26 && memcmp(raw.data, "[1, {\"x\" : 2}, \"\\u00e4\\n\"]", 26) == 0);
    item = nodes[node + 1].next;
    CHECK(nodes[item].kind == SPECDEC__JSON_OBJECT && specdec__json_find_member(&json, item, "x") == item + 2);
    item = nodes[item].next;
    CHECK_EQUAL_INT(specdec__json_string_value(&json, item, out, sizeof out), 3);
    CHECK(memcmp(out, "\xc3\xa4\n", 3) == 0 && nodes[item].escaped);
    memset(out, 7, sizeof out);
    CHECK_EQUAL_INT(specdec__json_string_value(&json, item, out, 2), 3);
    CHECK(out[2] == 7);
    CHECK(specdec__json_string_equals(&json, item, "\xc3\xa4\n", 3) &&
          !specdec__json_string_equals(&json, item, "\xc3\xa4", 2));
    node = specdec__json_find_member(&json, 0, "twice");
    CHECK(node && json.text[nodes[node].from] == '2');
    node = specdec__json_find_member(&json, 0, "");
    CHECK(node && nodes[node].kind == SPECDEC__JSON_OBJECT && !nodes[node].count);
    CHECK(is_json("\"\\ud83d\\ude00\""));
    CHECK(specdec__json_string_equals(&json, 0, "\xf0\x9f\x98\x80", 4));
}

static void check_numbers(void)
{
    static const struct { const char *text; int exact; int64_t value; } integers[] = {
        {"0", 1, 0}, {"-0", 1, 0}, {"7", 1, 7}, {"-12", 1, -12}, {"1e3", 1, 1000}, {"2.0", 1, 2}, {"2.5", 0, 0}, {"120e-1", 1, 12},
        {"9223372036854775807", 1, INT64_MAX}, {"-9223372036854775808", 1, INT64_MIN}, {"9223372036854775808", 0, 0},
        {"-9223372036854775809", 0, 0}, {"1e18", 1, 1000000000000000000}, {"1e19", 0, 0}, {"1e999999999999", 0, 0},
        {"0e999999999999", 0, 0}, {"0e99", 1, 0}, {"1.00000000000000000000000000", 1, 1}, {"10000000000000000000000000e-24", 1, 10}};
    static const char *const doubles[] = {"0", "-0.0", "1", "0.1", "-2.5e-3", "3.141592653589793", "1e22", "1.5e22", "123456789012345e-22",
                                          "0.7000", "100e-2"};
    static const char *const others[] = {"1e300", "1e-300", "1.7976931348623157e308", "123456789.123456789123", "1e23", "5e-200"};
    size_t i;
    int64_t value;
    double number;

    TEST("numbers are integers and doubles where they can be, exactly");
    for (i = 0; i < SPECDEC__COUNT(integers); i++) {
        value = 0;
        CHECK(is_json(integers[i].text));
        CHECK_EQUAL_INT(specdec__json_read_integer(&json, 0, &value), integers[i].exact);
        CHECK_EQUAL_INT(value, integers[i].value);
    }
    for (i = 0; i < SPECDEC__COUNT(doubles); i++) {
        CHECK(is_json(doubles[i]) && specdec__json_read_double(&json, 0, &number));
        CHECK(number == strtod(doubles[i], NULL) && !signbit(number) == !signbit(strtod(doubles[i], NULL)));
    }
    for (i = 0; i < SPECDEC__COUNT(others); i++) {
        CHECK(is_json(others[i]) && !specdec__json_read_double(&json, 0, &number));
        CHECK(fabs(number / strtod(others[i], NULL) - 1) < 1e-13);
    }
    CHECK(is_json("1e400") && !specdec__json_read_double(&json, 0, &number) && number > 1e308);
    CHECK(is_json("1e-400") && !specdec__json_read_double(&json, 0, &number) && number == 0);
    CHECK(is_json("true") && !specdec__json_read_double(&json, 0, &number) &&
          !specdec__json_read_integer(&json, 0, &value));
}

/* Random texts of JSON's letters: whatever is read, nodes lie in each other. */
static void check_random(void)
{
    static const char letters[] = "[]{},:\"\"01-.eE\\u \nnulltruefalse[{[{:,:,aab";
    uint64_t state = check_seed() + 1;
    long round, rounds = check_depth() ? 400000 : 40000, read = 0;
    char text[24];

    TEST("of any bytes that are read, the nodes lie in each other");
    for (round = 0; round < rounds; round++) {
        size_t size, i;

        for (size = 0; size < sizeof text; size++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            text[size] = letters[(state >> 33) % (sizeof letters - 1)];
        }
        size = 1 + (size_t)(state >> 40) % 6;
        if (!parse(text, size)) {
            CHECK(json.failed && json.error_at <= size);
            continue;
        }
        read++;
        CHECK(json.count <= size / 2 + 2);
        for (i = 0; i < json.count; i++)
            CHECK(nodes[i].from < nodes[i].to && nodes[i].to <= size && nodes[i].next > i && nodes[i].next <= json.count);
    }
    CHECK(read > 100);
}

int main(void)
{
    check_valid();
    check_nesting();
    check_room();
    check_members();
    check_numbers();
    check_random();
    return check_report("test_json");
}
