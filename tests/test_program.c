/* test_program.c - the promises of tools/program.h and json.h: energy is counted where the platform tells, also when
   its counter starts over; JSON is valid, whatever is put into it, and read as it is written; numbers on the command
   line are what they say.
   cc -O2 -pthread -I. test_program.c; writes a few files below /tmp. */
#define _DEFAULT_SOURCE 1 /* POSIX, also under -std=c99 */
#include "specdec.h"
#include "check.h"
#include "../tools/program.h"
#include "../tools/json.h"

static char folder[64];

/* What a file of the folder says; NULL: it is not there. */
static void say(const char *name, const char *text)
{
    char path[128];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    remove(path);
    file = text ? fopen(path, "w") : NULL;
    if (file) {
        fputs(text, file);
        fclose(file);
    }
}

static int near(double a, double b) { return a - b < 1e-9 && b - a < 1e-9; }

static void test_energy(void)
{
    program_energy energy;

    TEST("energy: nothing is known without a counter, or when it makes no sense");
    program_energy_begin(&energy, "/nowhere/intel-rapl:0");
    CHECK(!energy.known);
    program_energy_look(&energy);
    CHECK(!energy.known && near(energy.joules, 0));
    say("max_energy_range_uj", "1000000\n");
    program_energy_begin(&energy, folder);
    CHECK(!energy.known);
    say("energy_uj", "many\n");
    program_energy_begin(&energy, folder);
    CHECK(!energy.known);

    TEST("energy: differences add up, also over the end of the counter's range; what is skipped does not count");
    say("energy_uj", "400000\n");
    program_energy_begin(&energy, folder);
    CHECK(energy.known && near(energy.joules, 0));
    say("energy_uj", "900000\n");
    program_energy_poll(&energy); /* too early */
    CHECK(near(energy.joules, 0));
    program_energy_look(&energy);
    CHECK(near(energy.joules, 0.5));
    say("energy_uj", "100000\n");
    program_energy_look(&energy);
    CHECK(near(energy.joules, 0.7));
    say("energy_uj", "300000\n");
    program_energy_skip(&energy);
    say("energy_uj", "350000\n");
    energy.looked -= 2 * PROGRAM_ENERGY_SECONDS;
    program_energy_poll(&energy);
    CHECK(near(energy.joules, 0.75));

    TEST("energy: a counter that goes away makes the sum unknown");
    say("energy_uj", NULL);
    program_energy_look(&energy);
    CHECK(!energy.known);
    say("max_energy_range_uj", NULL);
}

/* What the writer makes of a text and a number; the caller's buffer of 256 bytes. */
static const char *written_as(char *buffer, const char *name, double number)
{
    FILE *file = tmpfile();
    size_t length = 0;
    json_writer j;

    if (file) {
        json_begin(&j, file);
        json_object(&j, NULL);
        json_text(&j, "name", name);
        json_array(&j, "list");
        json_close(&j);
        json_number(&j, "number", "%.2f", number);
        json_truth(&j, "yes", 1);
        json_close(&j);
        rewind(file);
        length = fread(buffer, 1, 255, file);
        fclose(file);
    }
    buffer[length] = 0;
    return buffer;
}

static void test_json(void)
{
    static const struct {
        const char *text, *json;
    } cases[] = {{"plain", "plain"}, {"a\"b\\c", "a\\\"b\\\\c"}, {"\n\t\x7f\x01", "\\u000a\\u0009\\u007f\\u0001"},
                 {"\xc3\xa9", "\xc3\xa9"},
                 {"\xff\xc3", "\\ufffd\\ufffd"}, {"\xed\xa0\x80", "\\ufffd\\ufffd\\ufffd"}, {"", ""}};
    char buffer[256], expected[256];
    double zero = 0;
    size_t i;

    TEST("json: strings are escaped, bytes that are no UTF-8 replaced, commas stand between items");
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(expected, sizeof expected, "{\"name\":\"%s\",\"list\":[],\"number\":1.50,\"yes\":true}\n",
                 cases[i].json);
        CHECK(strcmp(written_as(buffer, cases[i].text, 1.5), expected) == 0);
    }
    TEST("json: what is no number is null");
    CHECK(strstr(written_as(buffer, "", zero / zero), "\"number\":null,") != NULL);
    CHECK(strstr(written_as(buffer, "", 1 / zero), "\"number\":null,") != NULL);
    CHECK(strstr(written_as(buffer, "", -1 / zero), "\"number\":null,") != NULL);
}

/* The bytes behind what the reader takes for a value at the beginning of a text; -1: for none. */
static int left_behind(const char *text)
{
    char copy[512], *behind;

    snprintf(copy, sizeof copy, "%s", text);
    behind = json_skip(copy, JSON_NESTED);
    return behind ? (int)strlen(behind) : -1;
}

static void test_json_reading(void)
{
    static const char *const values[] = {
        "{}", "[]", "[[],{}]", "\"\"", "\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\xc3\xa9\"", "0", "-0", "-12.50e+3", "1E5", "10",
        "0.1", "true", "false", "null", "{ \"a\" : [ 1 , { \"b\" : null } ] , \"a\" : \"\" }"};
    static const char *const others[] = {
        "", "{", "[", "\"", "\"a", "{\"a\"}", "{\"a\":}", "{a:1}", "{\"a\":1,}", "[1,]", "[1 2]", "[,]", "{1:2}",
        "{\"a\" 1}", "[1}", "-", "01", "1.", ".5", "1e", "1e+", "+1", "nul", "True", "'a'", "\"\\x\"", "\"\\u12g4\"",
        "\"\\u12", "\"\n\"", "\"\xff\"", "\"\xed\xa0\x80\"", "\"\\"};
    char deep[2 * JSON_NESTED + 4];
    size_t i;

    TEST("json: what is a value is one, what is none is none");
    for (i = 0; i < PROGRAM_COUNT(values); i++)
        CHECK_EQUAL_INT(left_behind(values[i]), 0);
    for (i = 0; i < PROGRAM_COUNT(others); i++)
        CHECK(left_behind(others[i]) != 0);
    CHECK_EQUAL_INT(left_behind("12 3"), 2);
    memset(deep, '[', sizeof deep);
    memset(deep + JSON_NESTED, ']', sizeof deep - JSON_NESTED);
    deep[2 * JSON_NESTED] = 0;
    CHECK_EQUAL_INT(left_behind(deep), 0);
    memset(deep, '[', JSON_NESTED + 1);
    memset(deep + JSON_NESTED + 1, ']', JSON_NESTED + 1);
    deep[2 * JSON_NESTED + 2] = 0;
    TEST("json: what is nested too deeply is no value, and no stack is lost for it");
    CHECK_EQUAL_INT(left_behind(deep), -1);
}

/* The bytes that a string in JSON stands for, behind its opening quote; as JSON again, in the caller's 256 bytes. */
static const char *read_as(char *buffer, const char *json)
{
    char text[128];
    size_t length = 0;
    FILE *file = tmpfile();

    snprintf(text, sizeof text, "%s", json);
    buffer[0] = 0;
    if (file && json_decode(text, &length)) {
        json_quote(file, text, length);
        rewind(file);
        buffer[fread(buffer, 1, 255, file)] = 0;
    }
    if (file)
        fclose(file);
    return buffer;
}

static void test_json_strings(void)
{
    static const struct {
        const char *json, *again;
    } cases[] = {{"a\" b", "\"a\""}, {"\\\"\\\\\\/\"", "\"\\\"\\\\/\""},
                 {"\\n\\t\\u007F\"", "\"\\u000a\\u0009\\u007f\""}, {"a\\u0000b\"", "\"a\\u0000b\""}, {"\"", "\"\""},
                 {"\\u00e9\\u20AC\\ud83d\\ude00\"", "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\""},
                 {"\\ud83d\"", ""}, {"\\ude00\\ud83d\"", ""}, {"\\ud83d\\n\"", ""}, {"a", ""}, {"\\q\"", ""}};
    char buffer[256], object[] = " {\"a\": {\"b\": 1}, \"b\" :2 , \"c\":[], \"b\": [3, 4],\"\\u0064\":5}", *at, *value;
    size_t i;

    TEST("json: strings are decoded, zero bytes too, and halves of surrogate pairs are no text");
    for (i = 0; i < PROGRAM_COUNT(cases); i++)
        CHECK(strcmp(read_as(buffer, cases[i].json), cases[i].again) == 0);
    TEST("json: members are found by name, the last of equals, in this object alone");
    at = json_space(object);
    CHECK_EQUAL_INT(left_behind(at), 0);
    CHECK(!strncmp(json_member(at, "a"), "{\"b\"", 4) && !strncmp(json_member(at, "c"), "[]", 2));
    CHECK(!json_member(at, "x") && !json_member(at, ""));
    CHECK(!json_member(json_member(at, "c"), "b") && !json_member(json_member(at, "b"), "b"));
    at = json_member(at, "b");
    value = json_next(&at, NULL);
    CHECK(value && *value == '3');
    value = json_next(&at, NULL);
    CHECK(value && *value == '4');
    CHECK(!json_next(&at, NULL) && !json_next(&at, NULL));
}

/* Stores a text for a flag of whole numbers from -10 to high; the value, or -99 when it is refused. */
static int stored(const char *text, double high)
{
    int value = -99;
    program_flag flag = {"-n", PROGRAM_INTEGER, NULL, "N", "", -10, 0};

    flag.out = &value;
    flag.high = high;
    return program_store(&flag, text) ? value : -99;
}

static void test_integers(void)
{
    TEST("flags: whole numbers beyond an int are refused, not cut");
    CHECK_EQUAL_INT(stored("12", 100), 12);
    CHECK_EQUAL_INT(stored("-10", 100), -10);
    CHECK_EQUAL_INT(stored("101", 100), -99);
    CHECK_EQUAL_INT(stored("4294967297", 100), -99);
    CHECK_EQUAL_INT(stored("4294967297", 1e12), -99);
    CHECK_EQUAL_INT(stored("99999999999999999999", 1e30), -99);
    CHECK_EQUAL_INT(stored("", 100), -99);
    CHECK_EQUAL_INT(stored("1x", 100), -99);
}

/* What is said about text that was typed on a terminal: lines of standard error. */
static int lines_said(const char *text, size_t length)
{
    FILE *file = tmpfile();
    int kept = dup(STDERR_FILENO), lines = 0, c;

    if (!file)
        return -1;
    fflush(stderr);
    dup2(fileno(file), STDERR_FILENO);
    program_note_cut(text, length);
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(kept);
    rewind(file);
    while ((c = getc(file)) != EOF)
        lines += c == '\n';
    fclose(file);
    return lines;
}

static void test_cut(void)
{
    static char text[3 * (PROGRAM_TYPED + 1)];

    TEST("terminals: a line that is as long as they hand over is said to be cut, shorter ones are not");
    memset(text, 'a', sizeof text);
    CHECK_EQUAL_INT(lines_said(text, 0), 0);
    CHECK_EQUAL_INT(lines_said(text, PROGRAM_TYPED - 1), 0);
    CHECK_EQUAL_INT(lines_said(text, PROGRAM_TYPED), 1);
    text[PROGRAM_TYPED - 1] = '\n';
    CHECK_EQUAL_INT(lines_said(text, PROGRAM_TYPED), 0);
    text[PROGRAM_TYPED - 1] = 'a';
    text[PROGRAM_TYPED] = text[2 * PROGRAM_TYPED + 1] = '\n';
    CHECK_EQUAL_INT(lines_said(text, sizeof text), 3);
}

int main(void)
{
    snprintf(folder, sizeof folder, "/tmp/specdec-energy-%ld", (long)getpid());
    if (mkdir(folder, 0700) != 0)
        return 1;
    test_energy();
    test_json();
    test_json_reading();
    test_json_strings();
    test_integers();
    rmdir(folder);
    test_cut();
    return check_report("test_program");
}
