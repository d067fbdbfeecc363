/* =====================================================================================================================
 * >>text/template_filter: the filters and tests of chat templates.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "json.h"
#include "template.h"
#include "template_write.h"
#include "template_method.h"

SPECDEC__FOR_SIZE

enum { SPECDEC__TEMPLATE_MAX_NESTED_FILTERS = 3 }; /* levels of filters that call filters (map) within each other */

/* ---- Tests. */

/* Is a value an item of a list, a name in a dict, or a part of a string? Python's `in`. */
static int specdec__template_contains_value(specdec__template *t, const specdec__template_value *in,
                                            const specdec__template_value *value)
{
    size_t i;

    if (in->kind == SPECDEC__TEMPLATE_STRING) {
        if (value->kind == SPECDEC__TEMPLATE_UNDEFINED)
            specdec__template_fail_undefined(t, value);
        else if (value->kind != SPECDEC__TEMPLATE_STRING)
            specdec__template_fail(t, "it looks in a string for what is none");
        specdec__template_count_work(t, in->size);
        return !t->failed && specdec__template_find_string(in, 0, value) <= in->size;
    }
    if (in->kind == SPECDEC__TEMPLATE_DICT)
        return specdec__template_find_member(t, in, value) != NULL;
    if (in->kind != SPECDEC__TEMPLATE_UNDEFINED && !specdec__template_is_list_like(in))
        specdec__template_fail(t, "it looks in what is no list");
    for (i = 0; specdec__template_is_list_like(in) && i < in->size && !t->failed; i++)
        if (specdec__template_values_equal(t, specdec__template_list_items(in) + i, value,
                                           SPECDEC__TEMPLATE_MAX_COMPARED))
            return 1;
    return 0;
}

/* Jinja's tests: the words behind `is`. */
enum {
    SPECDEC__TEMPLATE_IS_DEFINED,
    SPECDEC__TEMPLATE_IS_UNDEFINED,
    SPECDEC__TEMPLATE_IS_NONE,
    SPECDEC__TEMPLATE_IS_TRUE,
    SPECDEC__TEMPLATE_IS_FALSE,
    SPECDEC__TEMPLATE_IS_BOOLEAN,
    SPECDEC__TEMPLATE_IS_INTEGER,
    SPECDEC__TEMPLATE_IS_FLOAT,
    SPECDEC__TEMPLATE_IS_NUMBER,
    SPECDEC__TEMPLATE_IS_STRING,
    SPECDEC__TEMPLATE_IS_MAPPING,
    SPECDEC__TEMPLATE_IS_ITERABLE,
    SPECDEC__TEMPLATE_IS_SEQUENCE,
    SPECDEC__TEMPLATE_IS_CALLABLE,
    SPECDEC__TEMPLATE_IS_ESCAPED,
    SPECDEC__TEMPLATE_IS_LOWER,
    SPECDEC__TEMPLATE_IS_UPPER,
    SPECDEC__TEMPLATE_IS_EVEN,
    SPECDEC__TEMPLATE_IS_ODD,
    SPECDEC__TEMPLATE_IS_FILTER,
    SPECDEC__TEMPLATE_IS_TEST,
    SPECDEC__TEMPLATE_IS_IN,
    SPECDEC__TEMPLATE_IS_SAME,
    SPECDEC__TEMPLATE_IS_DIVISIBLE, /* tests from here on take an argument */
    SPECDEC__TEMPLATE_IS_EQUAL,
    SPECDEC__TEMPLATE_IS_UNEQUAL,
    SPECDEC__TEMPLATE_IS_LESS,
    SPECDEC__TEMPLATE_IS_AT_MOST,
    SPECDEC__TEMPLATE_IS_GREATER,
    SPECDEC__TEMPLATE_IS_AT_LEAST
};

/* Jinja's tests by name. */
static const struct { const char *name; int how; } specdec__template_tests[] = {
    {"defined", SPECDEC__TEMPLATE_IS_DEFINED}, {"undefined", SPECDEC__TEMPLATE_IS_UNDEFINED},
    {"none", SPECDEC__TEMPLATE_IS_NONE}, {"true", SPECDEC__TEMPLATE_IS_TRUE}, {"false", SPECDEC__TEMPLATE_IS_FALSE},
    {"boolean", SPECDEC__TEMPLATE_IS_BOOLEAN}, {"integer", SPECDEC__TEMPLATE_IS_INTEGER},
    {"float", SPECDEC__TEMPLATE_IS_FLOAT}, {"number", SPECDEC__TEMPLATE_IS_NUMBER},
    {"string", SPECDEC__TEMPLATE_IS_STRING}, {"mapping", SPECDEC__TEMPLATE_IS_MAPPING},
    {"iterable", SPECDEC__TEMPLATE_IS_ITERABLE}, {"sequence", SPECDEC__TEMPLATE_IS_SEQUENCE},
    {"callable", SPECDEC__TEMPLATE_IS_CALLABLE}, {"escaped", SPECDEC__TEMPLATE_IS_ESCAPED},
    {"lower", SPECDEC__TEMPLATE_IS_LOWER}, {"upper", SPECDEC__TEMPLATE_IS_UPPER}, {"even", SPECDEC__TEMPLATE_IS_EVEN},
    {"odd", SPECDEC__TEMPLATE_IS_ODD}, {"filter", SPECDEC__TEMPLATE_IS_FILTER}, {"test", SPECDEC__TEMPLATE_IS_TEST},
    {"in", SPECDEC__TEMPLATE_IS_IN}, {"sameas", SPECDEC__TEMPLATE_IS_SAME},
    {"divisibleby", SPECDEC__TEMPLATE_IS_DIVISIBLE}, {"eq", SPECDEC__TEMPLATE_IS_EQUAL},
    {"==", SPECDEC__TEMPLATE_IS_EQUAL}, {"equalto", SPECDEC__TEMPLATE_IS_EQUAL}, {"ne", SPECDEC__TEMPLATE_IS_UNEQUAL},
    {"!=", SPECDEC__TEMPLATE_IS_UNEQUAL}, {"lt", SPECDEC__TEMPLATE_IS_LESS}, {"<", SPECDEC__TEMPLATE_IS_LESS},
    {"lessthan", SPECDEC__TEMPLATE_IS_LESS}, {"le", SPECDEC__TEMPLATE_IS_AT_MOST}, {"<=", SPECDEC__TEMPLATE_IS_AT_MOST},
    {"gt", SPECDEC__TEMPLATE_IS_GREATER}, {">", SPECDEC__TEMPLATE_IS_GREATER},
    {"greaterthan", SPECDEC__TEMPLATE_IS_GREATER}, {"ge", SPECDEC__TEMPLATE_IS_AT_LEAST},
    {">=", SPECDEC__TEMPLATE_IS_AT_LEAST}};

/* Returns the row of specdec__template_tests with a name; a row behind the end: the name is unknown. */
static int specdec__template_find_test_row(const specdec__template_value *name)
{
    size_t i;

    for (i = 0; i < SPECDEC__COUNT(specdec__template_tests); i++)
        if (specdec__template_string_equals(name, specdec__template_tests[i].name))
            return (int)i;
    return SPECDEC__COUNT(specdec__template_tests);
}

static int specdec__template_find_filter_row(const specdec__template_value *name);
static int specdec__template_is_filter_row(int which);

/* Returns the result of a test that takes no argument. how: SPECDEC__TEMPLATE_IS_... */
static int specdec__template_run_simple_test(specdec__template *t, const specdec__template_value *value, int how)
{
    const specdec__template_call none = {NULL, NULL, 0, 0};
    specdec__template_value text;
    const int kind = value->kind;

    switch (how) {
    case SPECDEC__TEMPLATE_IS_DEFINED: return kind != SPECDEC__TEMPLATE_UNDEFINED;
    case SPECDEC__TEMPLATE_IS_UNDEFINED: return kind == SPECDEC__TEMPLATE_UNDEFINED;
    case SPECDEC__TEMPLATE_IS_NONE: return kind == SPECDEC__TEMPLATE_NONE;
    case SPECDEC__TEMPLATE_IS_TRUE: return kind == SPECDEC__TEMPLATE_BOOL && value->as.integer;
    case SPECDEC__TEMPLATE_IS_FALSE: return kind == SPECDEC__TEMPLATE_BOOL && !value->as.integer;
    case SPECDEC__TEMPLATE_IS_BOOLEAN: return kind == SPECDEC__TEMPLATE_BOOL;
    case SPECDEC__TEMPLATE_IS_INTEGER: return kind == SPECDEC__TEMPLATE_INTEGER;
    case SPECDEC__TEMPLATE_IS_FLOAT: return kind == SPECDEC__TEMPLATE_DOUBLE;
    case SPECDEC__TEMPLATE_IS_NUMBER: return specdec__template_is_number(value);
    case SPECDEC__TEMPLATE_IS_STRING: return kind == SPECDEC__TEMPLATE_STRING;
    case SPECDEC__TEMPLATE_IS_MAPPING: return kind == SPECDEC__TEMPLATE_DICT;
    case SPECDEC__TEMPLATE_IS_ITERABLE:
        return kind == SPECDEC__TEMPLATE_UNDEFINED ||
               (kind >= SPECDEC__TEMPLATE_STRING && kind <= SPECDEC__TEMPLATE_DICT) || kind == SPECDEC__TEMPLATE_LOOP;
    case SPECDEC__TEMPLATE_IS_SEQUENCE:
        return kind == SPECDEC__TEMPLATE_UNDEFINED ||
               (kind >= SPECDEC__TEMPLATE_STRING && kind <= SPECDEC__TEMPLATE_TUPLE) || kind == SPECDEC__TEMPLATE_DICT;
    case SPECDEC__TEMPLATE_IS_CALLABLE:
        return kind == SPECDEC__TEMPLATE_UNDEFINED || kind == SPECDEC__TEMPLATE_MACRO ||
               kind == SPECDEC__TEMPLATE_FUNCTION || kind == SPECDEC__TEMPLATE_METHOD;
    case SPECDEC__TEMPLATE_IS_ESCAPED: return value->safe;
    case SPECDEC__TEMPLATE_IS_LOWER: case SPECDEC__TEMPLATE_IS_UPPER:
        text = specdec__template_to_string(t, value);
        text = specdec__template_method_all_characters(t, &text, &none, how == SPECDEC__TEMPLATE_IS_LOWER ? 4 : 5);
        return specdec__template_is_true(&text);
    case SPECDEC__TEMPLATE_IS_FILTER: return specdec__template_is_filter_row(specdec__template_find_filter_row(value));
    case SPECDEC__TEMPLATE_IS_TEST:
        return specdec__template_find_test_row(value) < (int)SPECDEC__COUNT(specdec__template_tests);
    default:
        if (!specdec__template_is_number(value) || kind == SPECDEC__TEMPLATE_DOUBLE)
            specdec__template_fail(t, "it asks whether something is even that is no integer");
        return value->as.integer % 2 == 0 ? how == SPECDEC__TEMPLATE_IS_EVEN : how == SPECDEC__TEMPLATE_IS_ODD;
    }
}

/* Returns the result, 1 or 0, of a test: row `which` of specdec__template_tests, with the arguments of its call. */
static int specdec__template_run_test(specdec__template *t, int which, const specdec__template_value *value,
                                      const specdec__template_call *call)
{
    const specdec__template_value *other = specdec__template_get_argument(call, 0, NULL);
    int how, order;

    if (which < 0 || which >= (int)SPECDEC__COUNT(specdec__template_tests)) {
        specdec__template_fail(t, "a test is not known");
        return 0;
    }
    how = specdec__template_tests[which].how;
    if (call->positional_count != (how >= SPECDEC__TEMPLATE_IS_IN) || call->named_count) {
        specdec__template_fail(t, "a test has the wrong number of arguments");
        return 0;
    }
    switch (how) {
    case SPECDEC__TEMPLATE_IS_IN: return specdec__template_contains_value(t, other, value);
    case SPECDEC__TEMPLATE_IS_SAME:
        return value->kind == other->kind && (specdec__template_is_number(value) || value->as.data == other->as.data) &&
               specdec__template_values_equal(t, value, other, SPECDEC__TEMPLATE_MAX_COMPARED);
    case SPECDEC__TEMPLATE_IS_DIVISIBLE:
        if (value->kind != SPECDEC__TEMPLATE_INTEGER || other->kind != SPECDEC__TEMPLATE_INTEGER ||
            !other->as.integer || other->as.integer == -1) {
            if (specdec__template_is_true(other))
                return 1;
            specdec__template_fail(t, "it divides by nothing");
            return 0;
        }
        return value->as.integer % other->as.integer == 0;
    case SPECDEC__TEMPLATE_IS_EQUAL: case SPECDEC__TEMPLATE_IS_UNEQUAL:
        return specdec__template_values_equal(t, value, other, SPECDEC__TEMPLATE_MAX_COMPARED) ==
               (how == SPECDEC__TEMPLATE_IS_EQUAL);
    case SPECDEC__TEMPLATE_IS_LESS: case SPECDEC__TEMPLATE_IS_AT_MOST: case SPECDEC__TEMPLATE_IS_GREATER:
    case SPECDEC__TEMPLATE_IS_AT_LEAST:
        order = specdec__template_compare_values(t, value, other, SPECDEC__TEMPLATE_MAX_COMPARED);
        return how == SPECDEC__TEMPLATE_IS_LESS      ? order < 0
               : how == SPECDEC__TEMPLATE_IS_AT_MOST ? order <= 0
               : how == SPECDEC__TEMPLATE_IS_GREATER ? order > 0
                                                     : order >= 0;
    default: return specdec__template_run_simple_test(t, value, how);
    }
}

/* ---- Filters of strings. Each gets the value, the arguments of its call, and the number `how` of its row in the
   table. */

/* Filters upper, lower, capitalize, title: the string in another case. */
static specdec__template_value specdec__template_filter_change_case(specdec__template *t,
                                                                    const specdec__template_value *value,
                                                                    const specdec__template_call *call, int to)
{
    const specdec__template_value text = specdec__template_to_string(t, value);

    (void)call;
    return specdec__template_change_case(t, &text, to);
}

/* Filter trim(chars): the string without these characters, or white space, at its ends. */
static specdec__template_value specdec__template_filter_trim(specdec__template *t, const specdec__template_value *value,
                                                             const specdec__template_call *call, int unused)
{
    const specdec__template_value text = specdec__template_to_string(t, value);

    (void)unused;
    return specdec__template_method_strip(t, &text, call, 3);
}

/* Filter replace(old, new, count): the string with `new` in place of `old`. */
static specdec__template_value specdec__template_filter_replace(specdec__template *t,
                                                                const specdec__template_value *value,
                                                                const specdec__template_call *call, int unused)
{
    const specdec__template_value text = specdec__template_to_string(t, value);
    const specdec__template_value *old = specdec__template_get_argument(call, 0, "old");
    const specdec__template_value *by = specdec__template_get_argument(call, 1, "new");
    specdec__template_value what, with;

    (void)unused;
    if (!old || !by)
        return specdec__template_fail(t, "replace needs two strings");
    what = specdec__template_to_string(t, old);
    with = specdec__template_to_string(t, by);
    return specdec__template_replace_string(t, &text, &what, &with,
                                            specdec__template_integer_argument(t, call, 2, "count", -1));
}

/* Filters string (safe = 0), safe (1): the value as a string, marked as safe in HTML. */
static specdec__template_value specdec__template_filter_string(specdec__template *t,
                                                               const specdec__template_value *value,
                                                               const specdec__template_call *call, int safe)
{
    specdec__template_value text = specdec__template_to_string(t, value);

    (void)call;
    text.safe |= (uint8_t)safe;
    return text;
}

/* Returns a string with &, <, >, ' and " escaped for HTML; a string that is marked as safe is only escaped if
   `force`. */
static specdec__template_value specdec__template_escape_html(specdec__template *t, const specdec__template_value *value,
                                                             int force)
{
    static const char escapes[] = "&<>'\"";
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    specdec__template_value text = specdec__template_to_string(t, value);
    const size_t from = t->used;
    size_t i;

    if (!text.safe || force) {
        for (i = 0; i < text.size && !t->failed; i++) {
            const char c = specdec__template_string_bytes(&text)[i], *known = c ? strchr(escapes, c) : NULL;

            if (known)
                specdec__template_append_text(t, names[known - escapes]);
            else
                specdec__template_append_bytes(t, specdec__template_string_bytes(&text) + i, 1);
        }
        text = specdec__template_finish_string(t, from);
    }
    text.safe = 1;
    return text;
}

/* Filters escape (force = 0), forceescape (1): the string escaped for HTML. */
static specdec__template_value specdec__template_filter_escape(specdec__template *t,
                                                               const specdec__template_value *value,
                                                               const specdec__template_call *call, int force)
{
    (void)call;
    return specdec__template_escape_html(t, value, force);
}

/* Filter indent(width=4, first=false, blank=false): width is a number or a string. */
static specdec__template_value specdec__template_filter_indent(specdec__template *t,
                                                               const specdec__template_value *value,
                                                               const specdec__template_call *call, int unused)
{
    const specdec__template_value *width = specdec__template_get_argument(call, 0, "width");
    const int first = specdec__template_flag_argument(call, 1, "first", 0),
              blank = specdec__template_flag_argument(call, 2, "blank", 0);
    const int words = width && width->kind == SPECDEC__TEMPLATE_STRING;
    const specdec__template_value tab = words ? *width : specdec__template_string_value(" ");
    const int64_t times = words ? 1 : specdec__template_integer_argument(t, call, 0, "width", 4);
    size_t from, at, next, end;

    (void)unused;
    if (value->kind != SPECDEC__TEMPLATE_STRING)
        return specdec__template_fail(t, "it indents what is no string");
    from = t->used;
    for (at = 0; at <= value->size && !t->failed; at = next) { /* as if the text ended with a line feed */
        end = specdec__template_offset_of_line_end(value, at, &next);
        if (at ? end > at || blank : first)
            specdec__template_append_repeated(t, &tab, times);
        specdec__template_append_bytes(t, specdec__template_string_bytes(value) + at, end - at);
        next += end == value->size;
        if (next <= value->size)
            specdec__template_append_text(t, "\n");
    }
    return specdec__template_finish_string(t, from);
}

/* Filter truncate(length=255, killwords=false, end='...', leeway=5): the beginning of a long string. */
static specdec__template_value specdec__template_filter_truncate(specdec__template *t,
                                                                 const specdec__template_value *value,
                                                                 const specdec__template_call *call, int unused)
{
    const int64_t length = specdec__template_integer_argument(t, call, 0, "length", 255);
    const specdec__template_value end = specdec__template_string_argument(t, call, 2, "end", "...");
    const specdec__template_value space = specdec__template_string_value(" ");
    const int64_t left = length - (int64_t)specdec__template_count_characters(&end);
    specdec__template_value head;
    size_t at;

    (void)unused;
    if (value->kind != SPECDEC__TEMPLATE_STRING || left < 0)
        return specdec__template_fail(t, "it truncates what it cannot");
    if ((int64_t)specdec__template_count_characters(value) <=
        length + specdec__template_integer_argument(t, call, 3, "leeway", 5))
        return *value;
    head = specdec__template_substring(value, 0, specdec__template_character_offset(value, (size_t)left));
    at = specdec__template_find_last_string(&head, head.size, &space);
    if (!specdec__template_flag_argument(call, 1, "killwords", 0) && at <= head.size)
        head.size = (uint32_t)at;
    return specdec__template_concatenate_strings(t, &head, &end);
}

/* Filter wordcount: the number of runs of letters, digits and underscores. */
static specdec__template_value specdec__template_filter_wordcount(specdec__template *t,
                                                                  const specdec__template_value *value,
                                                                  const specdec__template_call *call, int unused)
{
    const specdec__template_value text = specdec__template_to_string(t, value);
    size_t at;
    int64_t count = 0;
    int inside = 0;

    (void)call;
    (void)unused;
    for (at = 0; at < text.size;
         at += specdec__template_character_bytes(specdec__template_string_bytes(&text), text.size, at)) {
        const uint32_t c = specdec__template_code_point(specdec__template_string_bytes(&text), text.size, at);
        const int word = c == '_' || specdec__template_is_letter(c) ||
                         specdec__text_class_properties[specdec__text_character_class(c)].kind == SPECDEC__TEXT_NUMBER;

        count += word && !inside;
        inside = word;
    }
    return specdec__template_integer_value(count);
}

/* Filter urlencode: percent-encoding of a string, or of a dict's members as a query. */
static specdec__template_value specdec__template_filter_urlencode(specdec__template *t,
                                                                  const specdec__template_value *value,
                                                                  const specdec__template_call *call, int unused)
{
    const specdec__template_value text = specdec__template_to_string(t, value);
    const size_t from = t->used;
    size_t i;

    (void)call;
    (void)unused;
    for (i = 0; i < text.size && !t->failed; i++) {
        const unsigned c = (unsigned char)specdec__template_string_bytes(&text)[i], letter = c | 32;

        if ((letter >= 'a' && letter <= 'z') || (c >= '0' && c <= '9') || (c && strchr("_.-~/", (int)c))) {
            specdec__template_append_bytes(t, specdec__template_string_bytes(&text) + i, 1);
        } else {
            specdec__template_append_text(t, "%");
            specdec__template_append_bytes(t, &"0123456789ABCDEF"[c >> 4], 1);
            specdec__template_append_bytes(t, &"0123456789ABCDEF"[c & 15], 1);
        }
    }
    return specdec__template_finish_string(t, from);
}

/* Filter tojson(indent, ensure_ascii, separators, sort_keys): the value as JSON, as transformers defines it. */
static specdec__template_value specdec__template_filter_json(specdec__template *t, const specdec__template_value *value,
                                                             const specdec__template_call *call, int unused)
{
    const specdec__template_value *indent = specdec__template_get_argument(call, 1, "indent");
    const specdec__template_value *separators = specdec__template_get_argument(call, 2, "separators");
    specdec__template_write_form form = specdec__template_default_write_form(1);
    size_t from;

    (void)unused;
    form.ascii_only = specdec__template_flag_argument(call, 0, "ensure_ascii", 0);
    form.sort_names = specdec__template_flag_argument(call, 3, "sort_keys", 0);
    if (indent && indent->kind != SPECDEC__TEMPLATE_NONE) {
        if (indent->kind == SPECDEC__TEMPLATE_STRING)
            form.indent_text = *indent;
        form.indent = indent->kind == SPECDEC__TEMPLATE_STRING
                          ? 0
                          : (int)specdec__template_integer_argument(t, call, 1, "indent", 0);
        form.indent = form.indent < 0 ? 0 : form.indent;
        form.item_separator = specdec__template_string_value(",");
    }
    if (separators && separators->kind != SPECDEC__TEMPLATE_NONE) {
        const specdec__template_value list = specdec__template_items_to_iterate(t, separators);

        if (list.size != 2 || specdec__template_list_items(&list)[0].kind != SPECDEC__TEMPLATE_STRING ||
            specdec__template_list_items(&list)[1].kind != SPECDEC__TEMPLATE_STRING)
            return specdec__template_fail(t, "separators must be two strings");
        form.item_separator = specdec__template_list_items(&list)[0];
        form.name_separator = specdec__template_list_items(&list)[1];
    }
    from = t->used;
    specdec__template_append_value(t, value, &form);
    return specdec__template_finish_string(t, from);
}

/* ---- Filters of numbers. */

/* Returns the number that a text spells in a base, as a value; *found: 1 if it spells one, else 0. */
static specdec__template_value specdec__template_parse_number(const specdec__template_value *text, int base, int *found)
{
    specdec__json number;
    specdec__json_node node;
    size_t i = text->size && strchr("+-", *specdec__template_string_bytes(text)) ? 1 : 0;
    int64_t integer = 0;
    double real = 0;
    const int negative = i && *specdec__template_string_bytes(text) == '-';

    *found = text->size > i;
    for (; i < text->size && *found; i++) {
        const int c = (unsigned char)specdec__template_string_bytes(text)[i], low = c | 32;
        const int digit = c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'z' ? low - 'a' + 10 : 99;

        *found = digit < base && integer <= (INT64_MAX - digit) / base;
        integer = *found ? integer * base + digit : 0;
    }
    if (*found)
        return specdec__template_integer_value(negative ? -integer : integer);
    memset(&number, 0, sizeof number);
    number.text = (const unsigned char *)text->as.data;
    number.size = text->size;
    number.nodes = &node;
    number.room = 1;
    *found = base == 10 && specdec__json_parse(&number) && node.kind == SPECDEC__JSON_NUMBER;
    if (*found)
        specdec__json_read_double(&number, 0, &real);
    return specdec__template_double_value(real);
}

/* Filters int(default, base) (real = 0), float(default) (1): default is the result for texts that spell no number. */
static specdec__template_value specdec__template_filter_number(specdec__template *t,
                                                               const specdec__template_value *value,
                                                               const specdec__template_call *call, int real)
{
    const specdec__template_value *otherwise = specdec__template_get_argument(call, 0, "default"),
                                  none = specdec__template_none_value();
    specdec__template_value number = *value;
    const int base = real ? 10 : (int)specdec__template_integer_argument(t, call, 1, "base", 10);
    int found = specdec__template_is_number(value);

    if (value->kind == SPECDEC__TEMPLATE_UNDEFINED)
        return specdec__template_fail_undefined(t, value);
    if (value->kind == SPECDEC__TEMPLATE_STRING) {
        number = specdec__template_strip_string(t, value, &none, 3);
        number = specdec__template_parse_number(&number, base, &found);
    }
    if (found && !real && number.kind == SPECDEC__TEMPLATE_DOUBLE) {
        found = number.as.real > -9e18 && number.as.real < 9e18;
        if (found)
            number = specdec__template_integer_value((int64_t)number.as.real);
    }
    if (!found)
        return otherwise ? *otherwise : real ? specdec__template_double_value(0) : specdec__template_integer_value(0);
    return real ? specdec__template_double_value(specdec__template_as_double(&number))
                : specdec__template_integer_value(number.as.integer);
}

/* Filter abs: the absolute value of a number. */
static specdec__template_value specdec__template_filter_abs(specdec__template *t, const specdec__template_value *value,
                                                            const specdec__template_call *call, int unused)
{
    (void)call;
    (void)unused;
    if (!specdec__template_is_number(value) ||
        (value->kind != SPECDEC__TEMPLATE_DOUBLE && value->as.integer == INT64_MIN))
        return specdec__template_fail(t, "abs needs a number");
    if (value->kind == SPECDEC__TEMPLATE_DOUBLE)
        return specdec__template_double_value(value->as.real < 0 ? -value->as.real : value->as.real);
    return specdec__template_integer_value(value->as.integer < 0 ? -value->as.integer : value->as.integer);
}

/* Filter round(precision=0, method='common'): a number rounded to decimal places. */
static specdec__template_value specdec__template_filter_round(specdec__template *t,
                                                              const specdec__template_value *value,
                                                              const specdec__template_call *call, int unused)
{
    const int64_t precision = specdec__template_integer_argument(t, call, 0, "precision", 0);
    const specdec__template_value method = specdec__template_string_argument(t, call, 1, "method", "common");
    double scale = 1, number = specdec__template_as_double(value), whole;
    int64_t i;

    (void)unused;
    if (!specdec__template_is_number(value) || precision < 0 || precision > 15)
        return specdec__template_fail(t, "round needs a number");
    if (value->kind != SPECDEC__TEMPLATE_DOUBLE && specdec__template_string_equals(&method, "common"))
        return specdec__template_integer_value(value->as.integer);
    for (i = 0; i < precision; i++)
        scale *= 10;
    number *= scale;
    if (!(number > -9e15 && number < 9e15))
        return *value;
    whole = (double)(int64_t)number;
    whole -= whole > number;
    if (specdec__template_string_equals(&method, "ceil"))
        whole += whole < number;
    else if (specdec__template_string_equals(&method, "common"))
        whole += number - whole > 0.5 || (!(number - whole < 0.5) && (int64_t)whole % 2);
    return specdec__template_double_value(whole / scale);
}

/* ---- Filters of lists. */

/* Filter length: the number of characters, items or members. */
static specdec__template_value specdec__template_filter_length(specdec__template *t,
                                                               const specdec__template_value *value,
                                                               const specdec__template_call *call, int unused)
{
    (void)call;
    (void)unused;
    if (value->kind == SPECDEC__TEMPLATE_STRING)
        return specdec__template_integer_value((int64_t)specdec__template_count_characters(value));
    if (value->kind == SPECDEC__TEMPLATE_UNDEFINED)
        return specdec__template_integer_value(0);
    if (value->kind == SPECDEC__TEMPLATE_LOOP)
        return specdec__template_integer_value((int64_t)((const specdec__template_loop *)value->as.data)->count);
    if (value->kind < SPECDEC__TEMPLATE_LIST || value->kind > SPECDEC__TEMPLATE_DICT ||
        value->kind == SPECDEC__TEMPLATE_ITERATOR)
        return specdec__template_fail(t, "it asks for the length of what has none");
    return specdec__template_integer_value((int64_t)value->size);
}

/* Filters first (last = 0), last (1): an item of a list or a character of a string. */
static specdec__template_value specdec__template_filter_first_last(specdec__template *t,
                                                                   const specdec__template_value *value,
                                                                   const specdec__template_call *call, int last)
{
    const specdec__template_value list = specdec__template_items_to_iterate(t, value);

    (void)call;
    if (last && value->kind == SPECDEC__TEMPLATE_ITERATOR)
        return specdec__template_fail(t, "it asks for the last of what is there once");
    return list.size ? specdec__template_list_items(&list)[last ? list.size - 1 : 0]
                     : specdec__template_undefined_value();
}

/* Filters list (reverse = 0), reverse (1): the items of a value as a list. */
static specdec__template_value specdec__template_filter_list(specdec__template *t, const specdec__template_value *value,
                                                             const specdec__template_call *call, int reverse)
{
    specdec__template_value list = specdec__template_items_to_iterate(t, value),
                            none = specdec__template_string_value("");
    specdec__template_value *out;
    size_t i;

    (void)call;
    if (!reverse)
        return list;
    out = specdec__template_new_list(t, list.size);
    for (i = 0; out && i < list.size; i++)
        out[list.size - 1 - i] = specdec__template_list_items(&list)[i];
    list = specdec__template_sized_value(SPECDEC__TEMPLATE_ITERATOR, out, out ? list.size : 0);
    return value->kind == SPECDEC__TEMPLATE_STRING ? specdec__template_join_list(t, &list, &none, 0) : list;
}

/* Returns the attribute of an item that a path such as "a.b.0" names. otherwise: the result for an undefined attribute;
   NULL: undefined. */
static specdec__template_value specdec__template_attribute_at_path(specdec__template *t,
                                                                   const specdec__template_value *item,
                                                                   const specdec__template_value *path,
                                                                   const specdec__template_value *otherwise)
{
    specdec__template_value out = *item;
    const specdec__template_value dot = specdec__template_string_value(".");
    size_t at = 0, end;
    int found;

    if (path->kind != SPECDEC__TEMPLATE_STRING)
        return specdec__template_get_item(t, item, path);
    for (; at <= path->size && !t->failed; at = end + 1) {
        specdec__template_value part, number;

        end = specdec__template_find_string(path, at, &dot);
        end = end > path->size ? path->size : end;
        part = specdec__template_substring(path, at, end);
        number = specdec__template_parse_number(&part, 10, &found);
        out = specdec__template_get_item(t, &out, found && number.kind == SPECDEC__TEMPLATE_INTEGER ? &number : &part);
        if (out.kind == SPECDEC__TEMPLATE_UNDEFINED && otherwise)
            out = *otherwise;
    }
    return out;
}

static specdec__template_value specdec__template_run_filter(specdec__template *t, int which,
                                                            const specdec__template_value *value,
                                                            const specdec__template_call *call);

/* Returns the positional arguments of a call from number `from` on, and its named ones, as a call. */
static specdec__template_call specdec__template_arguments_from(const specdec__template_call *call, int from)
{
    specdec__template_call rest = *call;

    rest.positional += from < call->positional_count ? from : call->positional_count;
    rest.positional_count -= from < call->positional_count ? from : call->positional_count;
    return rest;
}

/* Returns the items over which a loop over a value would run, as a list, for the filters map and select; empty when the
   value is false. */
static specdec__template_value specdec__template_iterate_if_true(specdec__template *t,
                                                                 const specdec__template_value *value)
{
    return specdec__template_is_true(value) ? specdec__template_items_to_iterate(t, value)
                                            : specdec__template_list_value(NULL, 0);
}

/* Filter map(attribute=..., default=...), or map(FILTER, arguments): the attribute, or filter result, of each item. */
static specdec__template_value specdec__template_filter_map(specdec__template *t, const specdec__template_value *value,
                                                            const specdec__template_call *call, int unused)
{
    const specdec__template_value *attribute = specdec__template_get_argument(call, -1, "attribute");
    const specdec__template_value *otherwise = specdec__template_get_argument(call, -1, "default");
    const specdec__template_value list = specdec__template_iterate_if_true(t, value);
    const specdec__template_call rest = specdec__template_arguments_from(call, 1);
    specdec__template_value *out = specdec__template_new_list(t, list.size);
    size_t i;

    (void)unused;
    if (!attribute && (!call->positional_count || call->positional[0].kind != SPECDEC__TEMPLATE_STRING))
        return specdec__template_fail(t, "map needs an attribute or a filter");
    for (i = 0; out && i < list.size && !t->failed; i++) {
        const specdec__template_value *item = specdec__template_list_items(&list) + i;

        out[i] = attribute ? specdec__template_attribute_at_path(t, item, attribute, otherwise)
                           : specdec__template_run_filter(t, specdec__template_find_filter_row(call->positional), item,
                                                          &rest);
    }
    return specdec__template_sized_value(SPECDEC__TEMPLATE_ITERATOR, out, out ? list.size : 0);
}

/* Filters select (how = 0), reject (1), selectattr (2), rejectattr (3): the items that pass, or fail, a test. */
static specdec__template_value specdec__template_filter_select(specdec__template *t,
                                                               const specdec__template_value *value,
                                                               const specdec__template_call *call, int how)
{
    const int test = how / 2; /* number of the argument that names the test */
    const specdec__template_value list = specdec__template_iterate_if_true(t, value);
    const specdec__template_call rest = specdec__template_arguments_from(call, test + 1);
    specdec__template_value *out = specdec__template_new_list(t, list.size);
    size_t i, count = 0;

    if (call->positional_count < test)
        return specdec__template_fail(t, "it chooses by an attribute that is missing");
    for (i = 0; out && i < list.size && !t->failed; i++) {
        specdec__template_value item = specdec__template_list_items(&list)[i];
        int wanted;

        if (test)
            item = specdec__template_attribute_at_path(t, &item, call->positional, NULL);
        wanted = call->positional_count > test
                     ? specdec__template_run_test(t, specdec__template_find_test_row(call->positional + test), &item,
                                                  &rest)
                     : specdec__template_is_true(&item);
        if (wanted != how % 2)
            out[count++] = specdec__template_list_items(&list)[i];
    }
    return specdec__template_sized_value(SPECDEC__TEMPLATE_ITERATOR, out, out ? count : 0);
}

/* Filter join(separator, attribute): the items as strings in one string. */
static specdec__template_value specdec__template_filter_join(specdec__template *t, const specdec__template_value *value,
                                                             const specdec__template_call *call, int unused)
{
    const specdec__template_value *between = specdec__template_get_argument(call, 0, "d");
    const specdec__template_value *attribute = specdec__template_get_argument(call, 1, "attribute");
    const specdec__template_value list = specdec__template_items_to_iterate(t, value),
                                  empty = specdec__template_string_value("");
    specdec__template_value *out, joined, text;
    size_t i;

    (void)unused;
    text = between ? specdec__template_to_string(t, between) : empty;
    if (!attribute || attribute->kind == SPECDEC__TEMPLATE_NONE)
        return specdec__template_join_list(t, &list, &text, 1);
    out = specdec__template_new_list(t, list.size);
    for (i = 0; out && i < list.size && !t->failed; i++)
        out[i] = specdec__template_attribute_at_path(t, specdec__template_list_items(&list) + i, attribute, NULL);
    joined = specdec__template_list_value(out, list.size);
    return specdec__template_join_list(t, &joined, &text, 1);
}

/* Returns the key of an item for sorting and comparing: the item or its attribute; strings in lower case unless `cases`
   is 1. */
static specdec__template_value specdec__template_sort_key(specdec__template *t, const specdec__template_value *item,
                                                          const specdec__template_value *attribute, int cases)
{
    specdec__template_value key = *item;

    if (attribute && attribute->kind != SPECDEC__TEMPLATE_NONE)
        key = specdec__template_attribute_at_path(t, item, attribute, NULL);
    if (!cases && key.kind == SPECDEC__TEMPLATE_STRING)
        key = specdec__template_change_case(t, &key, SPECDEC__TEMPLATE_TO_LOWER);
    return key;
}

/* Sorts items and their keys by the keys (stable insertion sort); reverse = 1: largest first. */
static void specdec__template_sort(specdec__template *t, specdec__template_value *items, specdec__template_value *keys,
                                   size_t count, int reverse)
{
    size_t i, k;

    for (i = 1; i < count && !t->failed; i++) {
        const specdec__template_value item = items[i], key = keys[i];

        for (k = i; k > 0 && !t->failed; k--) {
            const int order = specdec__template_compare_values(t, &key, &keys[k - 1], SPECDEC__TEMPLATE_MAX_COMPARED);

            if (reverse ? order <= 0 : order >= 0)
                break;
            items[k] = items[k - 1];
            keys[k] = keys[k - 1];
        }
        items[k] = item;
        keys[k] = key;
    }
}

/* Filters sort(reverse, case_sensitive, attribute) (dict = 0), dictsort(case_sensitive, by, reverse) (1). */
static specdec__template_value specdec__template_filter_sort(specdec__template *t, const specdec__template_value *value,
                                                             const specdec__template_call *call, int dict)
{
    const int reverse = specdec__template_flag_argument(call, dict ? 2 : 0, "reverse", 0);
    const int cases = specdec__template_flag_argument(call, dict ? 0 : 1, "case_sensitive", 0);
    const specdec__template_value *attribute = dict ? NULL : specdec__template_get_argument(call, 2, "attribute");
    const specdec__template_value by = specdec__template_string_argument(t, call, dict ? 1 : -1, dict ? "by" : NULL,
                                                                         "key");
    specdec__template_value list, *out, *keys;
    size_t i;

    if (dict && value->kind != SPECDEC__TEMPLATE_DICT)
        return specdec__template_fail(t, "it sorts what is no dict");
    list = dict ? specdec__template_dict_view(t, value, 2) : specdec__template_items_to_iterate(t, value);
    out = specdec__template_new_list(t, list.size);
    keys = specdec__template_new_list(t, list.size);
    if (!out || !keys)
        return specdec__template_undefined_value();
    for (i = 0; i < list.size && !t->failed; i++) {
        const specdec__template_value *item = specdec__template_list_items(&list) + i;

        out[i] = *item;
        if (dict)
            item = specdec__template_list_items(item) + specdec__template_string_equals(&by, "value");
        keys[i] = specdec__template_sort_key(t, item, attribute, cases);
    }
    specdec__template_sort(t, out, keys, list.size, reverse);
    return specdec__template_list_value(out, list.size);
}

/* Filters unique (how = 0), min (1), max (2) of a list's items. */
static specdec__template_value specdec__template_filter_unique_min_max(specdec__template *t,
                                                                       const specdec__template_value *value,
                                                                       const specdec__template_call *call, int how)
{
    const specdec__template_value list = specdec__template_items_to_iterate(t, value);
    const int cases = specdec__template_flag_argument(call, 0, "case_sensitive", 0);
    const specdec__template_value *attribute = specdec__template_get_argument(call, 1, "attribute");
    specdec__template_value *out = specdec__template_new_list(t, list.size),
                            *keys = specdec__template_new_list(t, list.size);
    size_t i, k, count = 0, best = 0;

    for (i = 0; out && keys && i < list.size && !t->failed; i++) {
        keys[count] = specdec__template_sort_key(t, specdec__template_list_items(&list) + i, attribute, cases);
        for (k = 0; !how && k < count &&
                    !specdec__template_values_equal(t, &keys[k], &keys[count], SPECDEC__TEMPLATE_MAX_COMPARED);
             k++)
            ;
        if (how || k == count)
            out[count++] = specdec__template_list_items(&list)[i];
    }
    if (!how)
        return specdec__template_sized_value(SPECDEC__TEMPLATE_ITERATOR, out, count);
    for (i = 1; i < count && !t->failed; i++) {
        const int order = specdec__template_compare_values(t, &keys[i], &keys[best], SPECDEC__TEMPLATE_MAX_COMPARED);

        best = (how == 1 ? order < 0 : order > 0) ? i : best;
    }
    return count ? out[best] : specdec__template_undefined_value();
}

/* Returns the sum of two numbers, strings, lists or tuples: Python's a + b. */
static specdec__template_value specdec__template_add(specdec__template *t, const specdec__template_value *a,
                                                     const specdec__template_value *b)
{
    const int lists = a->kind == b->kind && (a->kind == SPECDEC__TEMPLATE_LIST || a->kind == SPECDEC__TEMPLATE_TUPLE);
    specdec__template_value *items, first, second;

    if (a->kind == SPECDEC__TEMPLATE_UNDEFINED || b->kind == SPECDEC__TEMPLATE_UNDEFINED)
        return specdec__template_fail_undefined(t, a->kind == SPECDEC__TEMPLATE_UNDEFINED ? a : b);
    if (a->kind == SPECDEC__TEMPLATE_STRING && b->kind == SPECDEC__TEMPLATE_STRING) {
        first = a->safe || !b->safe ? *a : specdec__template_escape_html(t, a, 0);
        second = b->safe || !a->safe ? *b : specdec__template_escape_html(t, b, 0);
        first = specdec__template_concatenate_strings(t, &first, &second);
        first.safe = (uint8_t)(a->safe || b->safe);
        return first;
    }
    if (lists) {
        items = specdec__template_new_list(t, (size_t)a->size + b->size);
        if (items && a->size)
            memcpy(items, a->as.data, a->size * sizeof *items);
        if (items && b->size)
            memcpy(items + a->size, b->as.data, b->size * sizeof *items);
        return specdec__template_sized_value(a->kind, items, items ? (size_t)a->size + b->size : 0);
    }
    if (!specdec__template_is_number(a) || !specdec__template_is_number(b))
        return specdec__template_fail(t, "it adds what cannot be added");
    if (a->kind == SPECDEC__TEMPLATE_DOUBLE || b->kind == SPECDEC__TEMPLATE_DOUBLE)
        return specdec__template_double_value(specdec__template_as_double(a) + specdec__template_as_double(b));
    if (b->as.integer > 0 ? a->as.integer > INT64_MAX - b->as.integer : a->as.integer < INT64_MIN - b->as.integer)
        return specdec__template_fail(t, "a number is too large");
    return specdec__template_integer_value(a->as.integer + b->as.integer);
}

/* Filter sum(attribute, start): the sum of the items or their attributes. */
static specdec__template_value specdec__template_filter_sum(specdec__template *t, const specdec__template_value *value,
                                                            const specdec__template_call *call, int unused)
{
    const specdec__template_value *attribute = specdec__template_get_argument(call, 0, "attribute");
    const specdec__template_value *start = specdec__template_get_argument(call, 1, "start");
    const specdec__template_value list = specdec__template_items_to_iterate(t, value);
    specdec__template_value out = start ? *start : specdec__template_integer_value(0), item;
    size_t i;

    (void)unused;
    for (i = 0; i < list.size && !t->failed; i++) {
        item = specdec__template_sort_key(t, specdec__template_list_items(&list) + i, attribute, 1);
        out = specdec__template_add(t, &out, &item);
    }
    return out;
}

/* Filter groupby(attribute, default, case_sensitive): pairs of a key and the list of its items, sorted by key. */
static specdec__template_value specdec__template_filter_groupby(specdec__template *t,
                                                                const specdec__template_value *value,
                                                                const specdec__template_call *call, int unused)
{
    const specdec__template_value *attribute = specdec__template_get_argument(call, 0, "attribute");
    const specdec__template_value *otherwise = specdec__template_get_argument(call, 1, "default");
    const int cases = specdec__template_flag_argument(call, 2, "case_sensitive", 0);
    const specdec__template_value list = specdec__template_items_to_iterate(t, value);
    specdec__template_value *items = specdec__template_new_list(t, list.size),
                            *keys = specdec__template_new_list(t, list.size);
    specdec__template_value *out = specdec__template_new_list(t, 3 * (size_t)list.size);
    size_t i, first = 0, count = 0;

    (void)unused;
    if (!attribute || !items || !keys || !out)
        return specdec__template_fail(t, "groupby needs an attribute");
    for (i = 0; i < list.size && !t->failed; i++) {
        items[i] = specdec__template_list_items(&list)[i];
        keys[i] = specdec__template_attribute_at_path(t, &items[i], attribute, otherwise);
        keys[i] = specdec__template_sort_key(t, &keys[i], NULL, cases);
    }
    specdec__template_sort(t, items, keys, list.size, 0);
    for (i = 1; i <= list.size && list.size && !t->failed; i++) {
        specdec__template_value *pair = out + list.size + 2 * count;

        if (i < list.size && specdec__template_values_equal(t, &keys[i], &keys[first], SPECDEC__TEMPLATE_MAX_COMPARED))
            continue;
        pair[0] = specdec__template_attribute_at_path(t, &items[first], attribute, otherwise);
        pair[1] = specdec__template_list_value(items + first, i - first);
        out[count++] = specdec__template_sized_value(SPECDEC__TEMPLATE_TUPLE, pair, 2);
        first = i;
    }
    return specdec__template_list_value(out, count);
}

/* Filters batch(linecount, fill_with) (slices = 0), slice(slices, fill_with) (1): a list divided into lists. */
static specdec__template_value specdec__template_filter_batch(specdec__template *t,
                                                              const specdec__template_value *value,
                                                              const specdec__template_call *call, int slices)
{
    const int64_t number = specdec__template_integer_argument(t, call, 0, slices ? "slices" : "linecount", 0);
    const specdec__template_value *fill = specdec__template_get_argument(call, 1, "fill_with");
    const specdec__template_value list = specdec__template_items_to_iterate(t, value);
    size_t count, i, at = 0;
    specdec__template_value *out;

    if (number < 1 || number > 100000)
        return specdec__template_fail(t, "batch needs a number");
    count = slices ? (size_t)number : (list.size + (size_t)number - 1) / (size_t)number;
    out = specdec__template_new_list(t, count);
    for (i = 0; out && i < count && !t->failed; i++) {
        const size_t least = slices ? list.size / count : (size_t)number, more = slices ? list.size % count : 0;
        size_t size = least + (i < more);
        const size_t whole = slices ? least + (more > 0) : size;
        specdec__template_value *part = specdec__template_new_list(t, whole);

        size = size < list.size - at ? size : list.size - at;
        if (!part)
            break;
        if (size)
            memcpy(part, specdec__template_list_items(&list) + at, size * sizeof *part);
        at += size;
        while (fill && fill->kind != SPECDEC__TEMPLATE_NONE && size < whole)
            part[size++] = *fill;
        out[i] = specdec__template_list_value(part, size);
    }
    return specdec__template_sized_value(SPECDEC__TEMPLATE_ITERATOR, out, out ? count : 0);
}

/* Filter items: the members of a dict as pairs. */
static specdec__template_value specdec__template_filter_items(specdec__template *t,
                                                              const specdec__template_value *value,
                                                              const specdec__template_call *call, int unused)
{
    specdec__template_value out = specdec__template_list_value(NULL, 0);

    (void)call;
    (void)unused;
    if (value->kind == SPECDEC__TEMPLATE_DICT)
        out = specdec__template_dict_view(t, value, 2);
    else if (value->kind != SPECDEC__TEMPLATE_UNDEFINED)
        specdec__template_fail(t, "items needs a dict");
    out.kind = SPECDEC__TEMPLATE_ITERATOR;
    return out;
}

/* Filter default(default_value, boolean): the default for an undefined value, or (boolean) for a false one. */
static specdec__template_value specdec__template_filter_default(specdec__template *t,
                                                                const specdec__template_value *value,
                                                                const specdec__template_call *call, int unused)
{
    const specdec__template_value *otherwise = specdec__template_get_argument(call, 0, "default_value");
    const int boolean = specdec__template_flag_argument(call, 1, "boolean", 0);

    (void)t;
    (void)unused;
    if (value->kind != SPECDEC__TEMPLATE_UNDEFINED && !(boolean && !specdec__template_is_true(value)))
        return *value;
    return otherwise ? *otherwise : specdec__template_string_value("");
}

/* Filter attr(name): an attribute of the value. */
static specdec__template_value specdec__template_filter_attr(specdec__template *t, const specdec__template_value *value,
                                                             const specdec__template_call *call, int unused)
{
    const specdec__template_value name = specdec__template_string_argument(t, call, 0, "name", "");

    (void)unused;
    return value->kind == SPECDEC__TEMPLATE_DICT ? specdec__template_bind_method(t, value, &name)
                                                 : specdec__template_get_attribute(t, value, &name, 0);
}

/* Returns Python's `format % values` as a string: its fields take `count` values. */
static specdec__template_value specdec__template_format_percent(specdec__template *t,
                                                                const specdec__template_value *format,
                                                                const specdec__template_value *values, size_t count)
{
    const specdec__template_write_form form = specdec__template_default_write_form(0);
    const char *text = specdec__template_string_bytes(format);
    const size_t from = t->used;
    size_t at, used = 0;

    for (at = 0; at < format->size && !t->failed; at++) {
        const char kind = at + 1 < format->size ? text[at + 1] : 0;
        const specdec__template_value *value = used < count ? &values[used] : NULL;

        if (text[at] != '%' || kind == '%') {
            specdec__template_append_bytes(t, text + at, 1);
            at += text[at] == '%';
            continue;
        }
        if (!value || !kind || !strchr("srd", kind) || (kind == 'd' && !specdec__template_is_number(value)))
            return specdec__template_fail(t, "a field of a format is not known, or its value is missing");
        if (kind == 's' && value->kind == SPECDEC__TEMPLATE_STRING)
            specdec__template_append_bytes(t, value->as.data, value->size);
        else if (kind == 'd')
            specdec__template_append_integer(t, value->kind == SPECDEC__TEMPLATE_DOUBLE ? (int64_t)value->as.real
                                                                                    : value->as.integer);
        else if (kind == 'r' || value->kind != SPECDEC__TEMPLATE_UNDEFINED)
            specdec__template_append_value(t, value, &form);
        used++;
        at++;
    }
    return used == count ? specdec__template_finish_string(t, from)
                         : specdec__template_fail(t, "a format has more values than fields");
}

/* Filter format: the string's fields filled in, as Python's % does. */
static specdec__template_value specdec__template_filter_format(specdec__template *t,
                                                               const specdec__template_value *value,
                                                               const specdec__template_call *call, int unused)
{
    const specdec__template_value text = specdec__template_to_string(t, value);

    (void)unused;
    return specdec__template_format_percent(t, &text, call->positional, (size_t)call->positional_count);
}

/* Filter center(width=80): the string between spaces. */
static specdec__template_value specdec__template_filter_center(specdec__template *t,
                                                               const specdec__template_value *value,
                                                               const specdec__template_call *call, int how)
{
    const specdec__template_value text = specdec__template_to_string(t, value);

    return specdec__template_method_pad_to_width(t, &text, call, how);
}

/* Jinja's filters, by name. how: the last argument of call(), for functions of several filters. */
static const struct {
    const char *name; /* name of the filter */
    int how;          /* the last argument of call() */
    specdec__template_value (*call)(specdec__template *t, const specdec__template_value *value,
                                    const specdec__template_call *call, int how);
} specdec__template_filters[] = {
    {"tojson", 0, specdec__template_filter_json}, {"length", 0, specdec__template_filter_length},
    {"count", 0, specdec__template_filter_length}, {"trim", 0, specdec__template_filter_trim},
    {"default", 0, specdec__template_filter_default}, {"d", 0, specdec__template_filter_default},
    {"string", 0, specdec__template_filter_string}, {"safe", 1, specdec__template_filter_string},
    {"upper", SPECDEC__TEMPLATE_TO_UPPER, specdec__template_filter_change_case},
    {"lower", SPECDEC__TEMPLATE_TO_LOWER, specdec__template_filter_change_case},
    {"capitalize", SPECDEC__TEMPLATE_TO_CAPITAL, specdec__template_filter_change_case},
    {"title", SPECDEC__TEMPLATE_TO_WORDS, specdec__template_filter_change_case},
    {"join", 0, specdec__template_filter_join}, {"items", 0, specdec__template_filter_items},
    {"dictsort", 1, specdec__template_filter_sort}, {"sort", 0, specdec__template_filter_sort},
    {"list", 0, specdec__template_filter_list}, {"reverse", 1, specdec__template_filter_list},
    {"replace", 0, specdec__template_filter_replace}, {"indent", 0, specdec__template_filter_indent},
    {"map", 0, specdec__template_filter_map}, {"select", 0, specdec__template_filter_select},
    {"reject", 1, specdec__template_filter_select}, {"selectattr", 2, specdec__template_filter_select},
    {"rejectattr", 3, specdec__template_filter_select}, {"first", 0, specdec__template_filter_first_last},
    {"last", 1, specdec__template_filter_first_last}, {"int", 0, specdec__template_filter_number},
    {"float", 1, specdec__template_filter_number}, {"abs", 0, specdec__template_filter_abs},
    {"round", 0, specdec__template_filter_round}, {"unique", 0, specdec__template_filter_unique_min_max},
    {"min", 1, specdec__template_filter_unique_min_max}, {"max", 2, specdec__template_filter_unique_min_max},
    {"sum", 0, specdec__template_filter_sum}, {"groupby", 0, specdec__template_filter_groupby},
    {"batch", 0, specdec__template_filter_batch}, {"slice", 1, specdec__template_filter_batch},
    {"attr", 0, specdec__template_filter_attr}, {"format", 0, specdec__template_filter_format},
    {"center", 2, specdec__template_filter_center}, {"escape", 0, specdec__template_filter_escape},
    {"e", 0, specdec__template_filter_escape}, {"forceescape", 1, specdec__template_filter_escape},
    {"truncate", 0, specdec__template_filter_truncate}, {"wordcount", 0, specdec__template_filter_wordcount},
    {"urlencode", 0, specdec__template_filter_urlencode}};

/* Is `which` the index of a row of specdec__template_filters? */
static int specdec__template_is_filter_row(int which)
{
    return which >= 0 && which < (int)SPECDEC__COUNT(specdec__template_filters);
}

/* Returns the row of specdec__template_filters with a name; a row behind the end: the name is unknown. */
static int specdec__template_find_filter_row(const specdec__template_value *name)
{
    size_t i;

    for (i = 0; i < SPECDEC__COUNT(specdec__template_filters); i++)
        if (specdec__template_string_equals(name, specdec__template_filters[i].name))
            return (int)i;
    return SPECDEC__COUNT(specdec__template_filters);
}

/* Returns the result of a filter: row `which` of specdec__template_filters, with the arguments of its call. */
static specdec__template_value specdec__template_run_filter(specdec__template *t, int which,
                                                            const specdec__template_value *value,
                                                            const specdec__template_call *call)
{
    specdec__template_value out;

    if (!specdec__template_is_filter_row(which))
        return specdec__template_fail(t, "a filter is not known");
    if (++t->depth > SPECDEC__TEMPLATE_MAX_NESTED_FILTERS)
        return specdec__template_fail(t, "filters are too deep in each other");
    specdec__template_count_work(t, 0);
    out = specdec__template_filters[which].call(t, value, call, specdec__template_filters[which].how);
    t->depth--;
    return out;
}

SPECDEC__FOR_SPEED
