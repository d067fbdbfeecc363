/* test_fields.c - settings and configuration by name: every member has a row, every row sets its member and nothing else, and
   what it does not take is refused with a sentence. cc test_fields.c with the implementation linked; reads specdec.h. */
#include "specdec.h"
#include "check.h"
#include <locale.h>
#include <math.h>

static specdec_error error;

static const specdec_field *find(const char *name)
{
    int i;

    for (i = 0; specdec_get_field(i); i++)
        if (strcmp(specdec_get_field(i)->name, name) == 0)
            return specdec_get_field(i);
    return NULL;
}

/* The header's text, to know what members there are. */
static char *read_header(void)
{
    static char text[1 << 21];
    FILE *file = fopen("specdec.h", "rb");
    size_t size = file ? fread(text, 1, sizeof text - 1, file) : 0;

    if (file)
        fclose(file);
    text[size] = 0;
    return text;
}

/* Checks that each member of a structure, whose name is `of`, has a row; path: what stands before it in rows' names of members.
   Returns how many members there are. */
static int check_members(const char *text, const char *of, const char *path)
{
    char begin[80], row[120], name[64];
    const char *at, *end, *comment, *mark;
    int count = 0;

    snprintf(begin, sizeof begin, "typedef struct %s {", of);
    at = strstr(text, begin);
    if (!at)
        return 0;
    end = strstr(at, "\n} ");
    for (at = strchr(at, '\n') + 1; at < end; at = strchr(at, '\n') + 1) {
        const char *stop = strchr(at, ';'), *line = strchr(at, '\n');

        comment = strstr(at, "/*");
        if (!stop || stop > line || at[4] == ' ' || (comment && comment < stop)) /* a comment's further lines */
            continue;
        for (mark = at; mark < stop && *mark != '['; mark++)
            continue;
        for (at = mark; at[-1] == '_' || (at[-1] >= 'a' && at[-1] <= 'z'); at--)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(mark - at), at);
        count++;
        if (!strcmp(name, "settings") || !strcmp(name, "sampling") || !strcmp(name, "target") || !strcmp(name, "draft") ||
            !strcmp(name, "heads"))
            continue; /* structures: their members have rows */
        snprintf(row, sizeof row, ", %s%s, ", path, name);
        if (!strstr(strstr(text, "#define SPECDEC_SETTINGS_FIELDS(X)"), row)) {
            fprintf(stderr, "%s.%s has no row\n", of, name);
            CHECK(0);
        }
    }
    return count;
}

static void test_all(void)
{
    char *text = read_header();

    TEST("every member of a configuration and of settings has a row");
    if (!text[0]) {
        SKIP("specdec.h is not here");
        return;
    }
    CHECK(check_members(text, "specdec_sampling", "sampling.") >= 9);
    CHECK(check_members(text, "specdec_settings", "") >= 5);
    CHECK_EQUAL_INT(check_members(text, "specdec_source", "target."), 5);
    CHECK_EQUAL_INT(check_members(text, "specdec_source", "draft."), 5);
    CHECK_EQUAL_INT(check_members(text, "specdec_source", "heads."), 5);
    CHECK(check_members(text, "specdec_config", "") >= 30);
}

/* A text that a field takes, and that is not the default. */
static const char *example(const specdec_field *f)
{
    switch (f->kind) {
    case SPECDEC_FIELD_INTEGER: return f->low > 0 ? "17" : "3";
    case SPECDEC_FIELD_REAL: return f->low > 0 ? "1.5" : "0.5";
    case SPECDEC_FIELD_SEED: return "18446744073709551615";
    case SPECDEC_FIELD_SWITCH: return "on";
    case SPECDEC_FIELD_CHOICE: return strrchr(f->words, '|') + 1;
    case SPECDEC_FIELD_NAME: return strrchr(f->words, '|') + 1;
    case SPECDEC_FIELD_WORD:
    case SPECDEC_FIELD_FILE:
    case SPECDEC_FIELD_CHARACTERS:
    case SPECDEC_FIELD_LIST: return "text";
    case SPECDEC_FIELD_SEQUENCE: return "top_k;dry";
    case SPECDEC_FIELD_POINTER:
    default: return NULL;
    }
}

/* Bytes of a field in a configuration that are not 0. */
static int filled(const specdec_config *c, size_t from, size_t size)
{
    const unsigned char *bytes = (const unsigned char *)c;
    int count = 0;
    size_t i;

    for (i = from; i < from + size; i++)
        count += bytes[i] != 0;
    return count;
}

static void test_each(void)
{
    int i;

    TEST("every row sets its member alone, NULL sets the default, and rows of settings do so in settings alone, too");
    for (i = 0; specdec_get_field(i); i++) {
        const specdec_field *f = specdec_get_field(i);
        const char *text = example(f);
        specdec_config c;
        specdec_settings s;

        memset(&c, 0, sizeof c);
        memset(&s, 0, sizeof s);
        CHECK(f->help && f->help[0] && f->name && f->size && f->at + f->size <= sizeof c);
        CHECK(find(f->name) == f);
        CHECK_EQUAL_INT(specdec_config_set(&c, f->name, text, &error), text ? SPECDEC_OK : SPECDEC_ERROR_ARGUMENT);
        CHECK_EQUAL_INT(filled(&c, 0, sizeof c), filled(&c, f->at, f->size));
        CHECK((text != NULL) == (filled(&c, f->at, f->size) > 0));
        CHECK_EQUAL_INT(specdec_settings_set(&s, f->name, text, &error), text && f->settings ? SPECDEC_OK : SPECDEC_ERROR_ARGUMENT);
        CHECK(!f->settings || memcmp(&s, &c.settings, sizeof s) == 0);
        if (!text)
            continue;
        CHECK_EQUAL_INT(specdec_config_set(&c, f->name, NULL, &error), SPECDEC_OK);
        CHECK_EQUAL_INT(filled(&c, 0, sizeof c), 0);
    }
    CHECK(i > 50);
    CHECK(!specdec_get_field(i) && !specdec_get_field(-1));
}

static void test_values(void)
{
    static const struct {
        const char *name, *text;
        double value;
    } numbers[] = {{"temperature", "0.7", 0.7}, {"temperature", "1e-3", 1e-3}, {"temperature", ".5", 0.5},
                   {"temperature", "1000000", 1e6}, {"temperature", "1E2", 100}, {"temperature", "0.1", 0.1},
                   {"temperature", "0.69999998807907104492187500000000001", 0.7}, {"top_p", "0.95", 0.95},
                   {"temperature", "123456.789012345678901234567890e-2", 1234.56789}, {"temperature", "0000.3e+00", 0.3}};
    specdec_config c;
    size_t i;

    TEST("texts become the numbers that they say, in every locale");
    setlocale(LC_ALL, "de_DE.UTF-8");
    for (i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        float value;

        memset(&c, 0, sizeof c);
        CHECK_EQUAL_INT(specdec_config_set(&c, numbers[i].name, numbers[i].text, &error), SPECDEC_OK);
        memcpy(&value, (const char *)&c + find(numbers[i].name)->at, sizeof value);
        CHECK(fabs((double)value - (double)(float)numbers[i].value) <= 1e-7 * numbers[i].value);
    }
    memset(&c, 0, sizeof c);
    CHECK_EQUAL_INT(specdec_config_set(&c, "kv", "q8_0", &error), SPECDEC_OK);
    CHECK(strcmp(c.kv, "q8_0") == 0);
    CHECK_EQUAL_INT(specdec_config_set(&c, "drafting", "triforce", &error), SPECDEC_OK);
    CHECK_EQUAL_INT(c.drafting, SPECDEC_DRAFT_TRIFORCE);
    CHECK_EQUAL_INT(specdec_config_set(&c, "rule", "top-k", &error), SPECDEC_OK);
    CHECK_EQUAL_INT(c.rule, SPECDEC_RULE_TOP_K);
    CHECK_EQUAL_INT(specdec_config_set(&c, "policy", "dynamic", &error), SPECDEC_OK);
    CHECK_EQUAL_INT(c.policy, SPECDEC_POLICY_DYNAMIC);
    CHECK_EQUAL_INT(specdec_config_set(&c, "async", "-1", &error), SPECDEC_OK);
    CHECK_EQUAL_INT(c.async, -1);
    CHECK_EQUAL_INT(specdec_config_set(&c, "stop", "one", &error), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_config_set(&c, "stop", "two", &error), SPECDEC_OK);
    CHECK(strcmp(c.settings.stop[0], "one") == 0 && strcmp(c.settings.stop[1], "two") == 0 && !c.settings.stop[2]);
}

static void test_refused(void)
{
    static const char *const texts[][3] = {{"temperature", "", "temperature takes a number from 0 to 1000000, not "},
        {"temperature", "0,7", "not 0,7"}, {"temperature", "-1", "not -1"}, {"temperature", "nan", "not nan"},
        {"temperature", "inf", "not inf"}, {"temperature", "1e7", "not 1e7"}, {"temperature", "1e", "not 1e"},
        {"temperature", "1e999", "not 1e999"}, {"temperature", "1e-60", "not 1e-60"}, {"temperature", "0x1", "not 0x1"},
        {"temperature", " 1", "not  1"}, {"temperature", ".", "not ."}, {"temperature", "1.2.3", "not 1.2.3"},
        {"temperature", "e5", "not e5"}, {"top_p", "1.01", "top_p takes a number from 0 to 1, not 1.01"},
        {"top_k", "-1", "top_k takes a whole number from 0 to 16777216, not -1"}, {"top_k", "1.5", "not 1.5"}, {"top_k", "+1", "not +1"},
        {"top_k", "99999999999999999999", "not 9999"}, {"seed", "-1", "seed takes a whole number, not -1"},
        {"seed", "18446744073709551616", "not 18446744073709551616"}, {"seed", "", "not "},
        {"retrieval", "15", "retrieval takes a whole number from 16 to 16777216, or 0, not 15"},
        {"kv", "q4_0", "kv takes f16|f32|q8_0, not q4_0"}, {"kv", "", "not "}, {"kv", "f16|f32", "not f16|f32"}, {"kv", "f1", "not f1"},
        {"show_special", "yes", "show_special takes on or off, not yes"}, {"rule", "greedy", "not greedy"},
        {"hooks", "x", "hooks cannot be set from a text"}, {"cluster", "0", "cluster cannot"}, {"biases", "1", "biases cannot"},
        {"stop", "", "stop takes 1 to 256 bytes, "}, {"temprature", "1", "named temprature"}, {"", "1", "named "},
        {"settings", "1", "no field of a configuration named settings"}};
    specdec_config c, before;
    specdec_settings s;
    char name[300];
    size_t i;

    TEST("what a field does not take is refused with a sentence, and nothing is changed");
    memset(&c, 0, sizeof c);
    c.settings.sampling.temperature = 0.25f;
    c.kv = "f32";
    before = c;
    for (i = 0; i < sizeof texts / sizeof *texts; i++) {
        CHECK_EQUAL_INT(specdec_config_set(&c, texts[i][0], texts[i][1], &error), SPECDEC_ERROR_ARGUMENT);
        if (!strstr(error.text, texts[i][2])) {
            fprintf(stderr, "'%s', without '%s'\n", error.text, texts[i][2]);
            CHECK(0);
        }
        CHECK_EQUAL_INT(error.code, SPECDEC_ERROR_ARGUMENT);
        CHECK(memcmp(&c, &before, sizeof c) == 0);
    }
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = 0;
    CHECK_EQUAL_INT(specdec_config_set(&c, name, name, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_config_set(&c, "stop", name, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_config_set(NULL, "top_k", "1", &error), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_config_set(&c, NULL, "1", &error), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_settings_set(NULL, "top_k", "1", &error), SPECDEC_ERROR_ARGUMENT);
    memset(&s, 0, sizeof s);
    CHECK_EQUAL_INT(specdec_settings_set(&s, "context", "1", &error), SPECDEC_ERROR_ARGUMENT);
    CHECK(strstr(error.text, "no setting named context") != NULL);
    for (i = 0; i < SPECDEC_STOP_STRINGS; i++)
        CHECK_EQUAL_INT(specdec_settings_set(&s, "stop", "x", &error), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_settings_set(&s, "stop", "x", &error), SPECDEC_ERROR_ARGUMENT);
}

static void test_layout(void)
{
    specdec_config c;
    specdec *engine = (specdec *)&c;
    specdec_model *model = (specdec_model *)&c;
    size_t bytes = 7;

    TEST("structures of another header are refused before they are read");
    memset(&c, 0, sizeof c);
    CHECK_EQUAL_INT(specdec_check_layout(SPECDEC_LAYOUT, &error), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_check_layout(SPECDEC_LAYOUT + 1, &error), SPECDEC_ERROR_MISMATCH);
    CHECK(strstr(error.text, "structures of another layout") != NULL);
    CHECK_EQUAL_INT(specdec_check_layout(((uint64_t)512 << 32) + 5, &error), SPECDEC_ERROR_MISMATCH);
    CHECK(strstr(error.text, "specdec.h 0.5.12, this is " SPECDEC_VERSION) != NULL);
    CHECK_EQUAL_INT(specdec_checked_memory_needed(1, NULL, &bytes, &error), SPECDEC_ERROR_MISMATCH);
    CHECK_EQUAL_INT(specdec_checked_init(1, &engine, NULL, NULL, 0, &error), SPECDEC_ERROR_MISMATCH);
    CHECK_EQUAL_INT(specdec_checked_model_memory_needed(1, NULL, &bytes, NULL), SPECDEC_ERROR_MISMATCH);
    CHECK_EQUAL_INT(specdec_checked_model_init(1, &model, NULL, NULL, 0, &error), SPECDEC_ERROR_MISMATCH);
    CHECK(!engine && !model && bytes == 7);
    TEST("the four calls are what they were: with commas in a configuration, and as functions");
#ifndef __cplusplus
    CHECK_EQUAL_INT(specdec_memory_needed(&(specdec_config){.context = 5, .threads = 1}, &bytes, &error), SPECDEC_ERROR_ARGUMENT);
#endif
    {
        specdec_result (*as_function)(const specdec_config *, size_t *, specdec_error *) = specdec_memory_needed;

        CHECK_EQUAL_INT(as_function(NULL, &bytes, &error), SPECDEC_ERROR_ARGUMENT);
    }
    TEST("sizes by name");
    CHECK(specdec_size_of("specdec_config") == sizeof(specdec_config) && specdec_size_of("specdec_stats") == sizeof(specdec_stats));
    CHECK(specdec_size_of("specdec_error") == sizeof(specdec_error) && !specdec_size_of("nothing") && !specdec_size_of(NULL));
}

int main(void)
{
    test_all();
    test_each();
    test_values();
    test_refused();
    test_layout();
    return check_report("test_fields");
}
