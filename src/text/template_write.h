/* =====================================================================================================================
 * >>text/template_write: writes a template's values as text, as Python's str, repr and json.dumps do.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "template.h"

SPECDEC__FOR_SIZE

/* How a template's values are written: as Python's repr or as JSON. */
typedef struct specdec__template_write_form {
    int json;                            /* 1: as JSON, 0: as Python's repr */
    int ascii_only;                      /* 1: characters beyond ASCII are escaped */
    int sort_names;                      /* 1: members in order of their names */
    int indent;                          /* spaces of a level of indentation; -1: all on one line */
    specdec__template_value indent_text; /* string of a level of indentation; size 0: spaces */
    specdec__template_value item_separator, name_separator; /* strings between items; between name and value */
} specdec__template_write_form;

/* Returns the default form of Python's repr or (json = 1) json.dumps. */
static specdec__template_write_form specdec__template_default_write_form(int json)
{
    specdec__template_write_form form;

    memset(&form, 0, sizeof form);
    form.json = json;
    form.indent = -1;
    form.item_separator = specdec__template_string_value(", ");
    form.name_separator = specdec__template_string_value(": ");
    return form;
}

/* Appends an integer in decimal to the string that is being built. */
static void specdec__template_append_integer(specdec__template *t, int64_t number)
{
    char digits[24];
    uint64_t left = number < 0 ? 0u - (uint64_t)number : (uint64_t)number;
    size_t at = sizeof digits;

    do
        digits[--at] = (char)('0' + left % 10);
    while (left /= 10);
    if (number < 0)
        digits[--at] = '-';
    specdec__template_append_bytes(t, digits + at, sizeof digits - at);
}

/* Appends an escape, such as \u, with `digits` hexadecimal digits of a code point, to the string that is being
   built. */
static void specdec__template_append_escape(specdec__template *t, const char *escape, uint32_t code, int digits)
{
    specdec__template_append_text(t, escape);
    while (digits-- > 0)
        specdec__template_append_bytes(t, &"0123456789abcdef"[code >> 4 * digits & 15], 1);
}

/* Does Python's repr escape a code point? Unicode's classes Cc, Cf, Zl, Zp, Zs and Co, as far as they matter. */
static int specdec__template_is_unprintable(uint32_t c)
{
    return c < 32 || (c >= 127 && c < 0xa1) || c == 0xad || (c > 0x1000 && specdec__template_is_space(c)) ||
           (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) ||
           (c >= 0xe000 && c <= 0xf8ff) || c == 0xfeff || (c >= 0xfff0 && c <= 0xfffb) || c >= 0xe0000;
}

/* Appends a character of a string between quotes, escaped if the form needs it. */
static void specdec__template_append_quoted(specdec__template *t, const specdec__template_write_form *form,
                                            const char *at, size_t size, uint32_t code, int quote)
{
    static const char json[] = "\"\\\n\r\t\b\f", json_names[] = "\"\\nrtbf";
    static const char repr[] = "\\\n\r\t", repr_names[] = "\\nrt";
    const char *known = code < 128 && code ? strchr(form->json ? json : repr, (int)code) : NULL;
    char escape[2] = {'\\', 0};

    if (known || (!form->json && code == (uint32_t)quote)) {
        escape[1] = !known ? (char)quote : form->json ? json_names[known - json] : repr_names[known - repr];
        specdec__template_append_bytes(t, escape, 2);
    } else if (form->json ? code < 32 || (form->ascii_only && code > 126) : specdec__template_is_unprintable(code)) {
        if (form->json && code > 0xffff) {
            specdec__template_append_escape(t, "\\u", 0xd800 + ((code - 0x10000) >> 10), 4);
            specdec__template_append_escape(t, "\\u", 0xdc00 + (code & 0x3ff), 4);
        } else if (form->json || code > 255) {
            specdec__template_append_escape(t, code > 0xffff ? "\\U" : "\\u", code, code > 0xffff ? 8 : 4);
        } else {
            specdec__template_append_escape(t, "\\x", code, 2);
        }
    } else {
        specdec__template_append_bytes(t, at, size);
    }
}

/* Appends a string with quotes and escapes; the marks of its bytes are kept between the quotes. */
static void specdec__template_append_quoted_string(specdec__template *t, const specdec__template_write_form *form,
                                                   const specdec__template_value *string)
{
    const char *text = specdec__template_string_bytes(string);
    const size_t place = specdec__template_memory_offset(t, text);
    const int quote = form->json || (string->size && memchr(text, '\'', string->size) &&
                                     !memchr(text, '"', string->size)) ? '"' : '\'';
    const char mark = (char)quote;
    size_t at, size, plain, from, i;

    specdec__template_append_bytes(t, &mark, 1);
    for (at = 0; at < string->size && !t->failed; at += size) {
        for (plain = at; plain < string->size; plain++) {
            const int c = (unsigned char)text[plain];

            if (c < 32 || c > 126 || c == '\\' || c == '"' || c == '\'')
                break;
        }
        size = plain - at;
        if (size) {
            specdec__template_append_bytes(t, text + at, size);
            continue;
        }
        size = specdec__template_character_bytes(text, string->size, at);
        from = t->used;
        specdec__template_append_quoted(t, form, text + at, size,
                                        specdec__template_code_point(text, string->size, at), quote);
        for (i = from; i < t->used && place != SIZE_MAX; i++)
            specdec__template_set_bit(t->marks, i, specdec__template_get_bit(t->marks, place + at));
    }
    specdec__template_append_bytes(t, &mark, 1);
}

/* ---- Doubles: the shortest decimal number that is nearest to the double, as Python's repr writes. */

/* Words of 9 decimal digits, and digits, that hold the exact value of any double. */
enum { SPECDEC__TEMPLATE_DOUBLE_WORDS = 90, SPECDEC__TEMPLATE_DOUBLE_DIGITS = 9 * SPECDEC__TEMPLATE_DOUBLE_WORDS };

/* Writes mantissa * 2^exponent exactly as SPECDEC__TEMPLATE_DOUBLE_DIGITS decimal digits; for a negative exponent the
   number is multiplied by 10^-exponent. */
static void specdec__template_write_double_digits(uint64_t mantissa, int exponent, char *digits)
{
    uint32_t word[SPECDEC__TEMPLATE_DOUBLE_WORDS]; /* 9 decimal digits each, the lowest first */
    const uint32_t factor = exponent < 0 ? 5 : 2;
    int left = exponent < 0 ? -exponent : exponent, i, k;

    memset(word, 0, sizeof word);
    for (i = 0; mantissa; i++, mantissa /= 1000000000u)
        word[i] = (uint32_t)(mantissa % 1000000000u);
    while (left > 0) {
        uint64_t carry = 0;
        uint32_t by = 1;

        for (k = 0; k < 8 && left > 0; k++, left--)
            by *= factor;
        for (i = 0; i < SPECDEC__TEMPLATE_DOUBLE_WORDS; i++) {
            carry += (uint64_t)word[i] * by;
            word[i] = (uint32_t)(carry % 1000000000u);
            carry /= 1000000000u;
        }
    }
    for (i = 0; i < SPECDEC__TEMPLATE_DOUBLE_WORDS; i++)
        for (k = 0; k < 9; k++, word[i] /= 10)
            digits[SPECDEC__TEMPLATE_DOUBLE_DIGITS - 1 - 9 * i - k] = (char)('0' + word[i] % 10);
}

/* Rounds a number to `count` digits from digit `first` on, half to even; later digits become 0, and a carry may reach
   digit first - 1. first > 0. */
static void specdec__template_round_digits(const char *digits, int first, int count, char *out)
{
    int end = first + count, i, up;

    memcpy(out, digits, SPECDEC__TEMPLATE_DOUBLE_DIGITS);
    if (end >= SPECDEC__TEMPLATE_DOUBLE_DIGITS)
        return;
    up = digits[end] > '5' || (digits[end] == '5' && (digits[end - 1] - '0') % 2);
    for (i = end + 1; !up && digits[end] == '5' && i < SPECDEC__TEMPLATE_DOUBLE_DIGITS; i++)
        up = digits[i] != '0';
    memset(out + end, '0', (size_t)(SPECDEC__TEMPLATE_DOUBLE_DIGITS - end));
    for (i = end - 1; up && i >= 0; i--) {
        up = out[i] == '9';
        out[i] = (char)(up ? '0' : out[i] + 1);
    }
}

/* Finds the shortest digits of a finite double above 0: out[18] and *point give the number 0.DIGITS * 10^point. Returns
   the number of digits. room: scratch memory of 4 * SPECDEC__TEMPLATE_DOUBLE_DIGITS bytes. */
static int specdec__template_shortest_digits(double number, char *room, char *out, int *point)
{
    char *const low = room, *const exact = low + SPECDEC__TEMPLATE_DOUBLE_DIGITS,
                *const high = exact + SPECDEC__TEMPLATE_DOUBLE_DIGITS;
    char *const rounded = high + SPECDEC__TEMPLATE_DOUBLE_DIGITS;
    uint64_t bits, mantissa;
    int exponent, first = 0, count = 0, fits = 0, bound;

    memcpy(&bits, &number, sizeof bits);
    mantissa = bits & ((1ull << 52) - 1);
    exponent = (int)(bits >> 52 & 2047);
    bound = !mantissa && exponent > 1; /* the next double below is only half as far away */
    mantissa |= exponent ? 1ull << 52 : 0;
    exponent = (exponent ? exponent : 1) - 1075 - 2;
    specdec__template_write_double_digits(4 * mantissa - (bound ? 1 : 2), exponent, low);
    specdec__template_write_double_digits(4 * mantissa, exponent, exact);
    specdec__template_write_double_digits(4 * mantissa + 2, exponent, high);
    while (exact[first] == '0')
        first++;
    while (!fits && count < 17) {
        specdec__template_round_digits(exact, first, ++count, rounded);
        fits = memcmp(rounded, low, SPECDEC__TEMPLATE_DOUBLE_DIGITS) + (mantissa % 2 == 0) > 0 &&
               memcmp(high, rounded, SPECDEC__TEMPLATE_DOUBLE_DIGITS) + (mantissa % 2 == 0) > 0;
    }
    first -= rounded[first - 1] != '0';
    *point = SPECDEC__TEMPLATE_DOUBLE_DIGITS - first - (exponent < 0 ? -exponent : 0);
    memcpy(out, rounded + first, (size_t)count);
    while (count > 1 && out[count - 1] == '0')
        count--;
    return count;
}

/* Appends a double as Python's repr or (json = 1) json.dumps writes it to the string that is being built. */
static void specdec__template_append_double(specdec__template *t, double number, int json)
{
    char digits[18], exponent[2];
    char *room;
    const size_t used = t->used;
    int count, point, i;

    if (number - number != 0) { /* NaN or infinite */
        specdec__template_append_text(t, number != number ? (json ? "NaN" : "nan")
                                      : number > 0     ? (json ? "Infinity" : "inf")
                                                       : (json ? "-Infinity" : "-inf"));
        return;
    }
    room = (char *)specdec__template_take_memory(t, 4, SPECDEC__TEMPLATE_DOUBLE_DIGITS);
    specdec__template_count_work(t, 8192);
    t->used = used;
    if (!room)
        return;
    digits[0] = '0';
    count = point = 1;
    if (number < 0 || number > 0)
        count = specdec__template_shortest_digits(number < 0 ? -number : number, room, digits, &point);
    if (number < 0 || (!(number > 0) && 1 / number < 0))
        specdec__template_append_text(t, "-");
    if (point > 16 || point < -3) {
        specdec__template_append_bytes(t, digits, 1);
        specdec__template_append_text(t, count > 1 ? "." : "");
        specdec__template_append_bytes(t, digits + 1, (size_t)count - 1);
        specdec__template_append_text(t, point > 0 ? "e+" : "e-");
        point = point > 0 ? point - 1 : 1 - point;
        exponent[0] = (char)('0' + point / 10 % 10);
        exponent[1] = (char)('0' + point % 10);
        if (point > 99)
            specdec__template_append_integer(t, point / 100);
        specdec__template_append_bytes(t, exponent, 2);
        return;
    }
    if (point <= 0)
        specdec__template_append_text(t, "0.");
    for (i = point; i < 0; i++)
        specdec__template_append_text(t, "0");
    for (i = 0; i < count || i <= point; i++) {
        if (i == point && point > 0)
            specdec__template_append_text(t, ".");
        specdec__template_append_bytes(t, i < count ? digits + i : "0", 1);
    }
}

/* ---- Lists and dicts. */

/* A list or dict of a template that is being written as text; nested ones are a stack of levels. */
typedef struct specdec__template_write_level {
    specdec__template_value value;       /* the list or dict */
    const specdec__template_value *name; /* name of the last member that was written */
    uint32_t next_item;                  /* index of the item or member that is written next */
} specdec__template_write_level;

/* Appends a string `times` times to the string that is being built. */
static void specdec__template_append_repeated(specdec__template *t, const specdec__template_value *string,
                                              int64_t times)
{
    while (times-- > 0 && string->size && !t->failed)
        specdec__template_append_bytes(t, string->as.data, string->size);
}

/* Appends a line end and the indentation of a level to the string that is being built. */
static void specdec__template_append_line_end(specdec__template *t, const specdec__template_write_form *form, int level)
{
    const specdec__template_value space = specdec__template_string_value(" ");

    if (!form->json || (form->indent < 0 && !form->indent_text.size))
        return;
    specdec__template_append_text(t, "\n");
    if (form->indent_text.size)
        specdec__template_append_repeated(t, &form->indent_text, level);
    else
        specdec__template_append_repeated(t, &space, (int64_t)form->indent * level);
}

/* Returns the opening (index 0) or closing (1) bracket with which a list, tuple or dict is written. */
static const char *specdec__template_bracket_of_collection(const specdec__template_write_form *form,
                                                           const specdec__template_value *value, int index)
{
    switch (value->kind) {
    case SPECDEC__TEMPLATE_DICT: return index ? "}" : "{";
    case SPECDEC__TEMPLATE_VIEW:
        return index ? "])" : value->spare == 0 ? "dict_keys([" : value->spare == 1 ? "dict_values([" : "dict_items([";
    case SPECDEC__TEMPLATE_TUPLE:
        if (!form->json)
            return index ? (value->size == 1 ? ",)" : ")") : "(";
        break;
    default: break;
    }
    return index ? "]" : "[";
}

/* Returns the member of a dict that is written next: in order, or (form->sort_names) that of the least name behind the
   name of `before`; NULL: none is left. */
static const specdec__template_value *specdec__template_next_member(specdec__template *t,
                                                                    const specdec__template_write_form *form,
                                                                    const specdec__template_write_level *level,
                                                                    const specdec__template_value *before)
{
    const specdec__template_value *items = specdec__template_list_items(&level->value), *best = NULL;
    uint32_t i;

    if (!form->sort_names)
        return items + 2 * (size_t)level->next_item;
    for (i = 0; i < level->value.size && !t->failed; i++)
        if ((!before || specdec__template_compare_values(t, items + 2 * (size_t)i, before, 2) > 0) &&
            (!best || specdec__template_compare_values(t, items + 2 * (size_t)i, best, 2) < 0))
            best = items + 2 * (size_t)i;
    return best ? best : items;
}

/* Appends a value that has no items to the string that is being built. name = 1: it is the name of a member, always a
   string in JSON. */
static void specdec__template_append_single_value(specdec__template *t, const specdec__template_value *value,
                                                  const specdec__template_write_form *form, int name)
{
    const char *quote = form->json && name && value->kind != SPECDEC__TEMPLATE_STRING ? "\"" : "";

    specdec__template_append_text(t, quote);
    switch (value->kind) {
    case SPECDEC__TEMPLATE_NONE: specdec__template_append_text(t, form->json ? "null" : "None"); break;
    case SPECDEC__TEMPLATE_BOOL:
        specdec__template_append_text(t, value->as.integer ? (form->json ? "true" : "True")
                                                        : (form->json ? "false" : "False"));
        break;
    case SPECDEC__TEMPLATE_INTEGER: specdec__template_append_integer(t, value->as.integer); break;
    case SPECDEC__TEMPLATE_DOUBLE: specdec__template_append_double(t, value->as.real, form->json); break;
    case SPECDEC__TEMPLATE_STRING: specdec__template_append_quoted_string(t, form, value); break;
    default:
        if (form->json || value->kind != SPECDEC__TEMPLATE_UNDEFINED)
            specdec__template_fail(t, form->json ? "it writes as JSON what is none" : "it writes what has no text");
        else
            specdec__template_append_text(t, "Undefined");
        break;
    }
    specdec__template_append_text(t, quote);
}

/* Is a value a list, tuple or dict with items that must be written within brackets? */
static int specdec__template_has_items(const specdec__template_value *value, const specdec__template_write_form *form)
{
    return (value->kind >= SPECDEC__TEMPLATE_LIST && value->kind <= SPECDEC__TEMPLATE_TUPLE) ||
           value->kind == SPECDEC__TEMPLATE_DICT || (value->kind == SPECDEC__TEMPLATE_VIEW && !form->json);
}

/* Appends any value, in a form of repr or JSON, to the string that is being built. */
static SPECDEC__NOINLINE void specdec__template_append_value(specdec__template *t, const specdec__template_value *value,
                                                             const specdec__template_write_form *form)
{
    specdec__template_write_level level[SPECDEC__TEMPLATE_MAX_NESTED];
    int depth = 0;

    for (;;) {
        if (!specdec__template_has_items(value, form)) {
            specdec__template_append_single_value(t, value, form, 0);
        } else if (depth == SPECDEC__TEMPLATE_MAX_NESTED) {
            specdec__template_fail(t, "it writes what is too deep");
        } else {
            level[depth].value = *value;
            level[depth++].next_item = 0;
            specdec__template_append_text(t, specdec__template_bracket_of_collection(form, value, 0));
        }
        while (depth && level[depth - 1].next_item == level[depth - 1].value.size && !t->failed) {
            if (level[--depth].next_item)
                specdec__template_append_line_end(t, form, depth);
            specdec__template_append_text(t, specdec__template_bracket_of_collection(form, &level[depth].value, 1));
        }
        if (!depth || t->failed)
            return;
        if (level[depth - 1].next_item)
            specdec__template_append_bytes(t, form->item_separator.as.data, form->item_separator.size);
        specdec__template_append_line_end(t, form, depth);
        value = specdec__template_list_items(&level[depth - 1].value);
        if (level[depth - 1].value.kind == SPECDEC__TEMPLATE_DICT) {
            value = specdec__template_next_member(t, form, &level[depth - 1],
                                                  level[depth - 1].next_item ? level[depth - 1].name : NULL);
            level[depth - 1].name = value;
            specdec__template_append_single_value(t, value, form, 1);
            specdec__template_append_bytes(t, form->name_separator.as.data, form->name_separator.size);
            value++;
        } else {
            value += level[depth - 1].next_item;
        }
        level[depth - 1].next_item++;
    }
}

/* Returns a value converted to a string, as by Python's str. */
static specdec__template_value specdec__template_to_string(specdec__template *t, const specdec__template_value *value)
{
    const specdec__template_write_form form = specdec__template_default_write_form(0);
    const size_t from = t->used;

    if (value->kind == SPECDEC__TEMPLATE_STRING)
        return *value;
    if (value->kind == SPECDEC__TEMPLATE_UNDEFINED)
        return specdec__template_string_value("");
    specdec__template_append_value(t, value, &form);
    return specdec__template_finish_string(t, from);
}

SPECDEC__FOR_SPEED
