/* test_program.c - the promises of tools/program.h and json.h: energy is counted where the platform tells, also when
   its counter starts over; JSON is valid, whatever is put into it; numbers on the command line are what they say.
   cc -O2 -pthread test_program.c; writes a few files below /tmp. */
#define _DEFAULT_SOURCE 1 /* POSIX, also under -std=c99 */
#include "../specdec.h"
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
    for (i = 0; i < SPECDEC__COUNT(cases); i++) {
        snprintf(expected, sizeof expected, "{\"name\":\"%s\",\"list\":[],\"number\":1.50,\"yes\":true}\n",
                 cases[i].json);
        CHECK(strcmp(written_as(buffer, cases[i].text, 1.5), expected) == 0);
    }
    TEST("json: what is no number is null");
    CHECK(strstr(written_as(buffer, "", zero / zero), "\"number\":null,") != NULL);
    CHECK(strstr(written_as(buffer, "", 1 / zero), "\"number\":null,") != NULL);
    CHECK(strstr(written_as(buffer, "", -1 / zero), "\"number\":null,") != NULL);
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

int main(void)
{
    snprintf(folder, sizeof folder, "/tmp/specdec-energy-%ld", (long)getpid());
    if (mkdir(folder, 0700) != 0)
        return 1;
    test_energy();
    test_json();
    test_integers();
    rmdir(folder);
    return check_report("test_program");
}
