/* =====================================================================================================================
 * >>engine/fields: settings and configuration by name, and whether caller and implementation have the same structures.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "api.h"
#include "api_model.h"

SPECDEC__FOR_SIZE

/* 1: settings and configuration can be set by name; 0: this build leaves that out. */
#ifdef SPECDEC_NO_NAMES
#define SPECDEC__SETTINGS_BY_NAME 0 /* 0: settings cannot be set by name in this build */
#else
#define SPECDEC__SETTINGS_BY_NAME 1 /* settings can be set by name */
#endif

#define SPECDEC__FIELD(name, member, kind, low, high, words, help, settings) \
    {name, SPECDEC_FIELD_##kind, settings, offsetof(specdec_config, member), sizeof(((specdec_config *)0)->member), \
     low, high, words, help},
#define SPECDEC__FIELD_OF_SETTINGS(name, member, kind, low, high, words, help) \
    SPECDEC__FIELD(name, settings.member, kind, low, high, words, help, 1)
#define SPECDEC__FIELD_OF_CONFIG(name, member, kind, low, high, words, help) \
    SPECDEC__FIELD(name, member, kind, low, high, words, help, 0)

const specdec_field *specdec_get_field(int i)
{
    static const specdec_field fields[] = {SPECDEC_SETTINGS_FIELDS(SPECDEC__FIELD_OF_SETTINGS)
                                               SPECDEC_CONFIG_FIELDS(SPECDEC__FIELD_OF_CONFIG)};

    return SPECDEC__SETTINGS_BY_NAME && i >= 0 && i < (int)SPECDEC__COUNT(fields) ? &fields[i] : NULL;
}

/* Returns the index of text[length] in a list of words, "a|b"; -1: it is not in the list. */
static int specdec__field_find_word(const char *words, const char *text, size_t length)
{
    int i;

    for (i = 0;; i++) {
        size_t size = 0;

        while (words[size] && words[size] != '|')
            size++;
        if (size == length && memcmp(words, text, size) == 0)
            return i;
        if (!words[size])
            return -1;
        words += size + 1;
    }
}

/* Returns the index of a whole string in a list of words, "a|b"; -1: it is not in the list. */
static int specdec__field_word_index(const char *words, const char *text)
{
    return specdec__field_find_word(words, text, strlen(text));
}

/* Parses decimal digits into *value. Returns the address behind them; NULL: there are none, or the number is too
   large. */
static const char *specdec__field_parse_digits(const char *text, uint64_t *value)
{
    const char *first = text;

    for (*value = 0; *text >= '0' && *text <= '9'; text++) {
        const unsigned digit = (unsigned)(*text - '0');

        if (*value > (UINT64_MAX - digit) / 10)
            return NULL;
        *value = *value * 10 + digit;
    }
    return text == first ? NULL : text;
}

/* Parses an integer such as -12 into *value. Returns 0 if the text is no integer, else 1. */
static int specdec__field_parse_integer(const char *text, double *value)
{
    const int negative = *text == '-';
    uint64_t digits;
    const char *end = specdec__field_parse_digits(text + negative, &digits);

    if (!end || *end || digits > INT32_MAX)
        return 0;
    *value = negative ? -(double)digits : (double)digits;
    return 1;
}

/* Parses a number such as 0.7 or 1e-3 into *value, in any locale, to the nearest double for up to 15 digits. Returns 0
   if the text is no number, else 1. */
static int specdec__field_parse_real(const char *text, double *value)
{
    const int negative = *text == '-';
    double number = 0;
    int digits = 0, scale = 0, point = 0;
    uint64_t exponent = 0;

    for (text += negative; (*text >= '0' && *text <= '9') || (*text == '.' && !point); text++) {
        const int fits = number < 1e14; /* what lies behind is below a float's bits */

        if (*text == '.') {
            point = 1;
            continue;
        }
        number = fits ? number * 10 + (*text - '0') : number;
        scale += fits ? -point : !point;
        digits++;
    }
    if (digits && (*text == 'e' || *text == 'E')) {
        const int down = text[1] == '-';

        text = specdec__field_parse_digits(text + 1 + (down || text[1] == '+'), &exponent);
        if (!text || exponent > 400)
            return 0;
        scale += down ? -(int)exponent : (int)exponent;
    }
    for (exponent = 1, *value = 1; (int)exponent <= scale || (int)exponent <= -scale; exponent++)
        *value = *value < 1e300 ? *value * 10 : *value;
    *value = (negative ? -number : number) * (scale > 0 ? *value : 1) / (scale < 0 ? *value : 1);
    return digits && !*text;
}

/* Returns whether a field may have this value. A value that would become 0 as a float, which means the default, may
   not. */
static int specdec__field_allows_value(const specdec_field *field, double value)
{
    if (!(value >= field->low && value <= field->high) && !(value >= 0 && value <= 0))
        return 0;
    return field->kind != SPECDEC_FIELD_REAL || (value >= 0 && value <= 0) || (float)value > 0 || (float)value < 0;
}

/* Returns an error that says which values a field takes, for a text that it does not take. */
static specdec_result specdec__field_refuse_text(const specdec_field *field, const char *text, specdec_error *error)
{
    if (field->kind == SPECDEC_FIELD_POINTER)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "%s cannot be set from a text", field->name);
    if (field->words)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "%s takes %s%s, not %s", field->name, field->words,
                             field->kind == SPECDEC_FIELD_SEQUENCE ? ", separated by ;" : "", text);
    if (field->kind == SPECDEC_FIELD_CHARACTERS)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "%s takes up to %d bytes, not %s", field->name,
                             (int)field->high, text);
    if (field->kind == SPECDEC_FIELD_SWITCH)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "%s takes on or off, not %s", field->name, text);
    if (field->kind == SPECDEC_FIELD_SEED)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "%s takes a whole number, not %s", field->name, text);
    if (field->kind == SPECDEC_FIELD_LIST)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "%s takes %d to %d bytes, %d times at most: not %s",
                             field->name, (int)field->low, (int)field->high, (int)(field->size / sizeof(char *)), text);
    return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "%s takes a %snumber from %d to %d%s, not %s", field->name,
                         field->kind == SPECDEC_FIELD_INTEGER ? "whole " : "", (int)field->low, (int)field->high,
                         field->low > 0 ? ", or 0" : "", text);
}

/* Appends a string to a field that is a list of strings. Returns 0 if the list is full, or the string is empty or too
   long; else 1. */
static int specdec__field_append_string(const specdec_field *field, unsigned char *member, const char *text)
{
    const size_t length = strlen(text);
    const char *taken;
    size_t at;

    if ((double)length < field->low || (double)length > field->high)
        return 0;
    for (at = 0; at < field->size; at += sizeof taken) {
        memcpy(&taken, member + at, sizeof taken);
        if (!taken) {
            memcpy(member + at, &text, sizeof text);
            return 1;
        }
    }
    return 0;
}

/* Sets a field that is a list of words to their indices + 1. text: the words, separated by ; characters. Returns 0 if a
   word is unknown, or there are too many; else 1. */
static int specdec__field_store_words(const specdec_field *field, unsigned char *member, const char *text)
{
    unsigned char places[64] = {0};
    size_t count = 0, length;

    for (;; text += length + 1) {
        int place;

        for (length = 0; text[length] && text[length] != ';';)
            length++;
        place = specdec__field_find_word(field->words, text, length);
        if (place < 0 || count == field->size || count == sizeof places)
            return 0;
        places[count++] = (unsigned char)(place + 1);
        if (!text[length])
            break;
    }
    memcpy(member, places, field->size);
    return 1;
}

/* Copies a string into a field's member, and fills the rest of the member with zeros. Returns 0 if the string is too
   long, else 1. */
static int specdec__field_store_characters(const specdec_field *field, unsigned char *member, const char *text)
{
    const size_t length = strlen(text);

    if (length >= field->size || (double)length > field->high)
        return 0;
    memset(member, 0, field->size);
    memcpy(member, text, length);
    return 1;
}

/* Stores a value in a field's member, an int or an enumeration, which has the same size. Returns 1. */
static int specdec__field_store_int(unsigned char *member, int value)
{
    memcpy(member, &value, sizeof value);
    return 1;
}

/* Parses a text and sets the member of a field to its value. Returns 0 if the field does not take the text, else 1. */
static int specdec__field_parse_and_store(const specdec_field *field, unsigned char *member, const char *text)
{
    double value = 0;
    uint64_t seed;
    float real;
    int which;

    switch (field->kind) {
    case SPECDEC_FIELD_INTEGER:
        return specdec__field_parse_integer(text, &value) && specdec__field_allows_value(field, value) &&
               specdec__field_store_int(member, (int)value);
    case SPECDEC_FIELD_REAL:
        if (!specdec__field_parse_real(text, &value) || !specdec__field_allows_value(field, value))
            return 0;
        real = (float)value;
        memcpy(member, &real, sizeof real);
        return 1;
    case SPECDEC_FIELD_SEED:
        text = specdec__field_parse_digits(text, &seed);
        if (!text || *text)
            return 0;
        memcpy(member, &seed, sizeof seed);
        return 1;
    case SPECDEC_FIELD_SWITCH:
        which = specdec__field_word_index("0|1|off|on|false|true", text);
        return which >= 0 && specdec__field_store_int(member, which % 2);
    case SPECDEC_FIELD_CHOICE:
        which = specdec__field_word_index(field->words, text);
        return which >= 0 && specdec__field_store_int(member, which);
    case SPECDEC_FIELD_LIST: return specdec__field_append_string(field, member, text);
    case SPECDEC_FIELD_CHARACTERS: return specdec__field_store_characters(field, member, text);
    case SPECDEC_FIELD_SEQUENCE: return specdec__field_store_words(field, member, text);
    case SPECDEC_FIELD_NAME:
        if (specdec__field_word_index(field->words, text) < 0)
            return 0;
        memcpy(member, &text, sizeof text);
        return 1;
    case SPECDEC_FIELD_WORD:
    case SPECDEC_FIELD_FILE:
        memcpy(member, &text, sizeof text);
        return 1;
    case SPECDEC_FIELD_POINTER: break;
    }
    return 0;
}

/* Sets the field that is called `name` from a text; text NULL: to 0. block: the bytes of a configuration from offset
   `from` on; settings 1: only fields of specdec_settings are allowed. */
static specdec_result specdec__field_set_by_name(void *block, size_t from, int settings, const char *name,
                                                 const char *text, specdec_error *error)
{
    const specdec_field *field;
    unsigned char *member;
    int i = 0;

    if (!block || !name)
        return specdec__fail_missing_argument(error);
    if (!SPECDEC__SETTINGS_BY_NAME)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "SPECDEC_NO_NAMES leaves fields by name out of this "
                             "build");
    while ((field = specdec_get_field(i)) != NULL && ((settings && !field->settings) || strcmp(field->name, name) != 0))
        i++;
    if (!field)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "there is no %s named %s",
                             settings ? "setting" : "field of a configuration", name);
    member = (unsigned char *)block + (field->at - from);
    if (!text && field->kind != SPECDEC_FIELD_POINTER)
        memset(member, 0, field->size);
    else if (!specdec__field_parse_and_store(field, member, text ? text : ""))
        return specdec__field_refuse_text(field, text ? text : "", error);
    return SPECDEC_OK;
}

specdec_result specdec_config_set(specdec_config *config, const char *name, const char *text, specdec_error *error)
{
    return specdec__field_set_by_name(config, 0, 0, name, text, error);
}

specdec_result specdec_settings_set(specdec_settings *settings, const char *name, const char *text,
                                    specdec_error *error)
{
    return specdec__field_set_by_name(settings, offsetof(specdec_config, settings), 1, name, text, error);
}

/* --- structures --------------------------------------------------------------------------------------------------- */

specdec_result specdec_check_layout(uint64_t layout, specdec_error *error)
{
    const int version = (int)(layout >> 32);

    if (layout == SPECDEC_LAYOUT)
        return SPECDEC_OK;
    if (version != SPECDEC_VERSION_NUMBER)
        return specdec__fail(error, SPECDEC_ERROR_MISMATCH, "the caller was compiled with specdec.h %d.%d.%d, this is "
                             "%s", version / 10000, version / 100 % 100, version % 100, SPECDEC_VERSION);
    return specdec__fail(error, SPECDEC_ERROR_MISMATCH, "the caller was compiled with structures of another layout "
                         "than this specdec.h has");
}

size_t specdec_size_of(const char *structure)
{
    static const struct {
        const char *name;
        size_t size;
    } sizes[] = {
#define SPECDEC__SIZE(type) {#type, sizeof(type)},
        SPECDEC_STRUCTURES(SPECDEC__SIZE)
#undef SPECDEC__SIZE
    };
    size_t i;

    for (i = 0; SPECDEC__SETTINGS_BY_NAME && structure && i < SPECDEC__COUNT(sizes); i++)
        if (strcmp(sizes[i].name, structure) == 0)
            return sizes[i].size;
    return 0;
}

specdec_result specdec_checked_memory_needed(uint64_t layout, const specdec_config *config, size_t *bytes,
                                             specdec_error *error)
{
    const specdec_result result = specdec_check_layout(layout, error);

    return result ? result : specdec_memory_needed(config, bytes, error);
}

specdec_result specdec_checked_init(uint64_t layout, specdec **engine, const specdec_config *config, void *memory,
                                    size_t bytes, specdec_error *error)
{
    const specdec_result result = specdec_check_layout(layout, error);

    if (result && engine)
        *engine = NULL;
    return result ? result : specdec_init(engine, config, memory, bytes, error);
}

specdec_result specdec_checked_model_memory_needed(uint64_t layout, const specdec_config *config, size_t *bytes,
                                                   specdec_error *error)
{
    const specdec_result result = specdec_check_layout(layout, error);

    return result ? result : specdec_model_memory_needed(config, bytes, error);
}

specdec_result specdec_checked_model_init(uint64_t layout, specdec_model **model, const specdec_config *config,
                                          void *memory, size_t bytes, specdec_error *error)
{
    const specdec_result result = specdec_check_layout(layout, error);

    if (result && model)
        *model = NULL;
    return result ? result : specdec_model_init(model, config, memory, bytes, error);
}

SPECDEC__FOR_SPEED
