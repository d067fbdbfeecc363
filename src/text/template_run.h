/* =====================================================================================================================
 * >>text/template_run: a chat template is run: expressions, filters, tags.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../model/gguf.h"
#include "template.h"

SPECDEC__FOR_SIZE

/* ---- Expressions. */

static specdec__template_value specdec__template_expression(specdec__template *t);
static specdec__template_value specdec__template_binary(specdec__template *t, int level);
static void specdec__template_run(specdec__template *t);
static void specdec__template_close(specdec__template *t);

/* Goes `by` levels deeper. Returns 0, and the run has ended, when that is too deep. */
static int specdec__template_deeper(specdec__template *t, int by)
{
    t->depth += by;
    if (t->depth > SPECDEC__TEMPLATE_DEPTH)
        specdec__template_garbled(t);
    return !t->failed;
}

/* Arguments or items up to a closing bracket. They stay until t->arguments is less again. */
static SPECDEC__NOINLINE void specdec__template_read_arguments(specdec__template *t, const char *close,
                                                               specdec__template_arguments *arguments)
{
    specdec__template_value value;

    arguments->value = t->argument + t->arguments;
    arguments->name = t->argument_name + t->arguments;
    arguments->count = 0;
    while (!t->failed && !specdec__template_accept(t, close)) {
        const size_t at = t->at;
        specdec__bytes name = specdec__template_name(t);

        if (!name.size || specdec__template_next(t) != '=' || (t->at + 1 < t->end && t->text.data[t->at + 1] == '=')) {
            t->at = at;
            name.size = 0;
        } else {
            t->at++;
        }
        value = specdec__template_expression(t);
        if (t->arguments == SPECDEC__TEMPLATE_ARGUMENTS ||
            (!specdec__template_accept(t, ",") && specdec__template_next(t) != close[0])) {
            specdec__template_garbled(t);
            return;
        }
        arguments->name[arguments->count] = name;
        arguments->value[arguments->count++] = value;
        t->arguments++;
    }
}

/* Calls a macro: what it writes. */
static SPECDEC__NOINLINE specdec__template_value specdec__template_call(specdec__template *t,
                                                                        const specdec__template_value *macro,
                                                                        const specdec__template_arguments *arguments)
{
    const size_t at = t->at, end = t->end, after = t->after, written = t->written;
    const int strip = t->strip, line = t->line, variables = t->variables, from = t->from, blocks = t->blocks;
    specdec__template_value out;
    int i = 0, k;

    t->at = (size_t)macro->number;
    t->end = macro->size;
    while (!t->failed && !specdec__template_accept(t, ")")) {
        specdec__bytes name = specdec__template_name(t);
        specdec__template_value value = specdec__template_number(SPECDEC__TEMPLATE_UNDEFINED, 0);

        if (specdec__template_accept(t, "="))
            value = specdec__template_expression(t);
        if (i < arguments->count && !arguments->name[i].size)
            value = arguments->value[i];
        for (k = 0; k < arguments->count; k++)
            if (arguments->name[k].size &&
                specdec__bytes_equal(arguments->name[k], (const char *)name.data, name.size))
                value = arguments->value[k];
        specdec__template_bind(t, name, value);
        if (!specdec__template_accept(t, ",") && specdec__template_next(t) != ')')
            specdec__template_garbled(t);
        i++;
    }
    t->from = variables;
    t->sets++;
    specdec__template_close(t);
    if (!t->failed)
        specdec__template_run(t);
    out = specdec__template_join(t, specdec__template_string(""),
                                 specdec__template_of(SPECDEC__TEMPLATE_STRING, t->output + written,
                                                      t->written - written));
    t->at = at;
    t->end = end;
    t->after = after;
    t->written = written;
    t->strip = strip;
    t->line = line;
    t->variables = variables;
    t->from = from;
    t->blocks = blocks;
    return out;
}

/* What a function of this name returns. */
static SPECDEC__NOINLINE specdec__template_value
specdec__template_function(specdec__template *t, specdec__bytes name, const specdec__template_arguments *arguments)
{
    const specdec__template_variable *variable = specdec__template_find(t, name, 0);
    specdec__template_value out = specdec__template_number(SPECDEC__TEMPLATE_UNDEFINED, 0);
    int i;

    if (specdec__bytes_are(name, "namespace")) {
        out = specdec__template_number(SPECDEC__TEMPLATE_SPACE, ++t->spaces);
        for (i = 0; i < arguments->count; i++)
            specdec__template_set(t, arguments->name[i], t->spaces, arguments->value[i]);
        return out;
    }
    if (specdec__bytes_are(name, "raise_exception"))
        return specdec__template_fail(t, "it refuses such a conversation", name);
    if (!variable || variable->value.kind != SPECDEC__TEMPLATE_MACRO)
        return specdec__template_fail(t, "it calls a function that is not known", name);
    if (specdec__template_deeper(t, SPECDEC__TEMPLATE_CALL))
        out = specdec__template_call(t, &variable->value, arguments);
    t->depth -= SPECDEC__TEMPLATE_CALL;
    return out;
}

/* A string without certain characters at its ends (1: the left, 2: the right). */
static SPECDEC__NOINLINE specdec__template_value specdec__template_strip(specdec__template *t,
                                                                         specdec__template_value value,
                                                                         const specdec__template_arguments *arguments,
                                                                         int ends)
{
    const char *set = " \t\r\n\v\f", *text = (const char *)value.at;
    size_t size = 6;

    if (arguments->count && arguments->value[0].kind == SPECDEC__TEMPLATE_STRING) {
        set = (const char *)arguments->value[0].at;
        size = arguments->value[0].size;
    }
    specdec__template_step(t, value.size * size);
    for (; ends & 1 && value.size && size && memchr(set, text[0], size); value.size--)
        text++;
    while (ends & 2 && value.size && size && memchr(set, text[value.size - 1], size))
        value.size--;
    value.at = text;
    return value;
}

/* The parts of a string between separators. */
static SPECDEC__NOINLINE specdec__template_value specdec__template_split(specdec__template *t,
                                                                         specdec__template_value value,
                                                                         const specdec__template_value *by)
{
    size_t count = 1, at = 0, found, i;
    specdec__template_value *out;

    specdec__template_step(t, 2 * value.size * (by->size + 1));
    while (by->size && (found = specdec__template_search(&value, at, by)) < value.size) {
        count++;
        at = found + by->size;
    }
    out = (specdec__template_value *)specdec__template_take(t, count * sizeof *out);
    for (at = 0, i = 0; out && i < count; i++) {
        found = i + 1 < count ? specdec__template_search(&value, at, by) : value.size;
        out[i] = specdec__template_of(SPECDEC__TEMPLATE_STRING, (const char *)value.at + at, found - at);
        at = found + by->size;
    }
    return specdec__template_of(SPECDEC__TEMPLATE_LIST, out, out ? count : 0);
}

/* A string with one string for another. */
static SPECDEC__NOINLINE specdec__template_value specdec__template_replace(specdec__template *t,
                                                                           specdec__template_value value,
                                                                           const specdec__template_value *from,
                                                                           const specdec__template_value *to)
{
    specdec__template_value out = specdec__template_string(""), part;
    size_t at = 0, found;

    if (!from->size || to->kind != SPECDEC__TEMPLATE_STRING)
        return specdec__template_fail(t, "it replaces nothing", specdec__template_bytes(NULL, 0));
    specdec__template_step(t, value.size * from->size);
    do {
        found = specdec__template_search(&value, at, from);
        part = specdec__template_of(SPECDEC__TEMPLATE_STRING, (const char *)value.at + at, found - at);
        out = specdec__template_join(t, out, part);
        at = found + from->size;
        if (found < value.size)
            out = specdec__template_join(t, out, *to);
    } while (!t->failed && found < value.size);
    return out;
}

/* A method or filter on a value. */
static SPECDEC__NOINLINE specdec__template_value specdec__template_apply(specdec__template *t, specdec__bytes name,
                                                                         specdec__template_value value,
                                                                         const specdec__template_arguments *arguments)
{
    const int is_string = value.kind == SPECDEC__TEMPLATE_STRING, is_list = value.kind == SPECDEC__TEMPLATE_LIST;
    const specdec__template_value *first = arguments->value;
    const int by_string = arguments->count > 0 && first->kind == SPECDEC__TEMPLATE_STRING;
    int ends;

    if (value.kind == SPECDEC__TEMPLATE_UNDEFINED && specdec__bytes_are(name, "trim"))
        return specdec__template_string("");
    if (is_string && (specdec__bytes_are(name, "strip") || specdec__bytes_are(name, "trim")))
        return specdec__template_strip(t, value, arguments, 3);
    if (is_string && specdec__bytes_are(name, "lstrip"))
        return specdec__template_strip(t, value, arguments, 1);
    if (is_string && specdec__bytes_are(name, "rstrip"))
        return specdec__template_strip(t, value, arguments, 2);
    if (is_string && by_string && arguments->count == 1 && specdec__bytes_are(name, "split"))
        return specdec__template_split(t, value, first);
    if (is_string && by_string && arguments->count == 2 && specdec__bytes_are(name, "replace"))
        return specdec__template_replace(t, value, first, &arguments->value[1]);
    ends = specdec__bytes_are(name, "endswith");
    if (is_string && by_string && (ends || specdec__bytes_are(name, "startswith")))
        return specdec__template_number(
            SPECDEC__TEMPLATE_BOOL,
            first->size <= value.size &&
                memcmp((const char *)value.at + (ends ? value.size - first->size : 0), first->at, first->size) == 0);
    if ((is_string || is_list) && (specdec__bytes_are(name, "length") || specdec__bytes_are(name, "count")))
        return specdec__template_number(SPECDEC__TEMPLATE_INTEGER, (int64_t)value.size);
    if (is_list && (specdec__bytes_are(name, "first") || specdec__bytes_are(name, "last")) && value.size)
        return ((const specdec__template_value *)value.at)[specdec__bytes_are(name, "first") ? 0 : value.size - 1];
    if ((is_list && specdec__bytes_are(name, "list")) ||
        (is_string && (specdec__bytes_are(name, "string") || specdec__bytes_are(name, "safe"))))
        return value;
    if (specdec__bytes_are(name, "default") || specdec__bytes_are(name, "d")) {
        const int falsy = arguments->count > 1 && specdec__template_truth(&arguments->value[1]);

        if (value.kind != SPECDEC__TEMPLATE_UNDEFINED && !(falsy && !specdec__template_truth(&value)))
            return value;
        return arguments->count ? *first : specdec__template_string("");
    }
    return specdec__template_fail(t, "it uses a filter or method that is not known", name);
}

/* The attribute or item of a value. */
static SPECDEC__NOINLINE specdec__template_value specdec__template_get(specdec__template *t,
                                                                       const specdec__template_value *of,
                                                                       const specdec__template_value *key)
{
    static const char *const roles[] = {"system", "user", "assistant"};
    const specdec_message *message = (const specdec_message *)of->at;
    const specdec__bytes name = specdec__template_bytes(key->at, key->size);
    const specdec__template_value *items = (const specdec__template_value *)of->at;
    const specdec__template_value none = specdec__template_number(SPECDEC__TEMPLATE_UNDEFINED, 0);
    const specdec__template_variable *variable;
    int64_t number = key->number + (key->number < 0 ? (int64_t)of->size : 0);

    if (t->skip || t->failed)
        return none;
    if (of->kind == SPECDEC__TEMPLATE_LIST && key->kind == SPECDEC__TEMPLATE_INTEGER)
        return number >= 0 && number < (int64_t)of->size ? items[number] : none;
    if (of->kind == SPECDEC__TEMPLATE_UNDEFINED || key->kind != SPECDEC__TEMPLATE_STRING)
        return specdec__template_fail(t, "it asks what is not defined for something", name);
    if (of->kind == SPECDEC__TEMPLATE_MESSAGE) {
        if (specdec__bytes_are(name, "content"))
            return specdec__template_of(SPECDEC__TEMPLATE_STRING, message->text, message->length);
        return specdec__bytes_are(name, "role") ? specdec__template_string(roles[message->role]) : none;
    }
    if (of->kind == SPECDEC__TEMPLATE_SPACE) {
        variable = specdec__template_find(t, name, (int)of->number);
        return variable ? variable->value : none;
    }
    if (of->kind != SPECDEC__TEMPLATE_LOOP)
        return none;
    number = of->number;
    if (specdec__bytes_are(name, "index") || specdec__bytes_are(name, "index0"))
        return specdec__template_number(SPECDEC__TEMPLATE_INTEGER, number + (name.size == 5));
    if (specdec__bytes_are(name, "first") || specdec__bytes_are(name, "last"))
        return specdec__template_number(SPECDEC__TEMPLATE_BOOL,
                                        name.size == 5 ? number == 0 : number + 1 == (int64_t)of->size);
    if (specdec__bytes_are(name, "length"))
        return specdec__template_number(SPECDEC__TEMPLATE_INTEGER, (int64_t)of->size);
    if (specdec__bytes_are(name, "revindex") || specdec__bytes_are(name, "revindex0"))
        return specdec__template_number(SPECDEC__TEMPLATE_INTEGER, (int64_t)of->size - number - (name.size == 9));
    if (specdec__bytes_are(name, "previtem"))
        return number ? items[number - 1] : none;
    if (specdec__bytes_are(name, "nextitem"))
        return number + 1 < (int64_t)of->size ? items[number + 1] : none;
    return specdec__template_fail(t, "it asks a loop for what is not known", name);
}

/* What stands in square brackets behind a value. */
static SPECDEC__NOINLINE specdec__template_value specdec__template_item(specdec__template *t,
                                                                        const specdec__template_value *of)
{
    int64_t place[3] = {0, INT32_MAX, 1};
    specdec__template_value key = specdec__template_number(SPECDEC__TEMPLATE_INTEGER, 0);
    int i, slice = 0;

    for (i = 0; i < 3; i++) {
        if (specdec__template_next(t) != ':' && t->text.data[t->at] != ']') {
            key = specdec__template_expression(t);
            place[i] = key.number;
            if (slice && key.kind != SPECDEC__TEMPLATE_INTEGER)
                specdec__template_fail(t, "it takes apart what is no list", specdec__template_bytes(NULL, 0));
        }
        if (!specdec__template_accept(t, ":"))
            break;
        slice = 1;
    }
    if (!specdec__template_accept(t, "]")) {
        specdec__template_garbled(t);
        return key;
    }
    if (t->skip || t->failed)
        return specdec__template_number(SPECDEC__TEMPLATE_UNDEFINED, 0);
    return slice ? specdec__template_slice(t, of, place[0], place[1], place[2]) : specdec__template_get(t, of, &key);
}

/* Is a value what a test says? */
static SPECDEC__NOINLINE specdec__template_value specdec__template_test(specdec__template *t,
                                                                        const specdec__template_value *value)
{
    static const char *const tests[] = {"defined", "undefined", "none", "string", "mapping", "iterable", "sequence",
                                        "number", "true", "false", "boolean"};
    const int negated = specdec__template_accept(t, "not"), kind = value->kind;
    const specdec__bytes name = specdec__template_name(t);
    const int listed = kind == SPECDEC__TEMPLATE_LIST || kind == SPECDEC__TEMPLATE_STRING ||
                       kind == SPECDEC__TEMPLATE_MESSAGE;
    size_t i;
    int is = 0;

    for (i = 0; i < SPECDEC__COUNT(tests) && !specdec__bytes_are(name, tests[i]); i++)
        ;
    switch (i) {
    case 0: is = kind != SPECDEC__TEMPLATE_UNDEFINED; break;
    case 1: is = kind == SPECDEC__TEMPLATE_UNDEFINED; break;
    case 2: is = kind == SPECDEC__TEMPLATE_NONE; break;
    case 3: is = kind == SPECDEC__TEMPLATE_STRING; break;
    case 4: is = kind == SPECDEC__TEMPLATE_MESSAGE; break;
    case 5: case 6: is = listed || kind == SPECDEC__TEMPLATE_UNDEFINED; break;
    case 7: is = kind == SPECDEC__TEMPLATE_INTEGER || kind == SPECDEC__TEMPLATE_BOOL; break;
    case 8: case 9: is = kind == SPECDEC__TEMPLATE_BOOL && value->number == (i == 8); break;
    case 10: is = kind == SPECDEC__TEMPLATE_BOOL; break;
    default: return specdec__template_fail(t, "it makes a test that is not known", name);
    }
    return specdec__template_number(SPECDEC__TEMPLATE_BOOL, is != negated);
}

/* A list of items. */
static SPECDEC__NOINLINE specdec__template_value specdec__template_list(specdec__template *t,
                                                                        const specdec__template_arguments *items)
{
    const size_t count = (size_t)items->count;
    specdec__template_value *out = (specdec__template_value *)specdec__template_take(t, count * sizeof *out);

    if (out && count)
        memcpy(out, items->value, count * sizeof *out);
    return specdec__template_of(SPECDEC__TEMPLATE_LIST, out, out ? count : 0);
}

/* The value of a message's member as its method get has it. */
static specdec__template_value specdec__template_member(specdec__template *t, const specdec__template_value *message,
                                                        const specdec__template_arguments *arguments)
{
    const specdec__template_value value = specdec__template_get(t, message, arguments->value);

    if (value.kind != SPECDEC__TEMPLATE_UNDEFINED)
        return value;
    return arguments->count > 1 ? arguments->value[1] : specdec__template_number(SPECDEC__TEMPLATE_NONE, 0);
}

/* What stands behind an opening bracket, and what comes of it: kind '[' a list, '(' a function of this name, else a
   method or filter on a value, which may have no arguments. */
static SPECDEC__NOINLINE specdec__template_value specdec__template_apply_to(specdec__template *t, int kind,
                                                                            specdec__bytes name,
                                                                            const specdec__template_value *value,
                                                                            int has_arguments)
{
    specdec__template_arguments arguments;
    specdec__template_value out = specdec__template_number(SPECDEC__TEMPLATE_UNDEFINED, 0);
    const int before = t->arguments;

    arguments.value = t->argument;
    arguments.name = t->argument_name;
    arguments.count = 0;
    if (has_arguments && specdec__template_deeper(t, SPECDEC__TEMPLATE_BRACKET))
        specdec__template_read_arguments(t, kind == '[' ? "]" : ")", &arguments);
    if (t->skip || t->failed)
        ;
    else if (kind == '[')
        out = specdec__template_list(t, &arguments);
    else if (kind == '(')
        out = specdec__template_function(t, name, &arguments);
    else if (value->kind == SPECDEC__TEMPLATE_MESSAGE && specdec__bytes_are(name, "get") && arguments.count)
        out = specdec__template_member(t, value, &arguments);
    else
        out = specdec__template_apply(t, name, *value, &arguments);
    t->depth -= has_arguments ? SPECDEC__TEMPLATE_BRACKET : 0;
    t->arguments = before;
    return out;
}

/* A name: a constant, a function or a variable. The date is none: what it changes no format can hold. */
static SPECDEC__NOINLINE specdec__template_value specdec__template_named(specdec__template *t, specdec__bytes name)
{
    static const char *const constants[] = {"true", "True", "false", "False", "none", "None"};
    const specdec__template_variable *variable;
    size_t i;

    for (i = 0; i < SPECDEC__COUNT(constants); i++)
        if (specdec__bytes_are(name, constants[i]))
            return specdec__template_number(i < 4 ? SPECDEC__TEMPLATE_BOOL : SPECDEC__TEMPLATE_NONE, i < 2);
    if (specdec__bytes_are(name, "strftime_now"))
        specdec__template_fail(t, "it asks for the date", name);
    if (specdec__template_accept(t, "("))
        return specdec__template_apply_to(t, '(', name, NULL, 1);
    variable = specdec__template_find(t, name, 0);
    return variable ? variable->value : specdec__template_number(SPECDEC__TEMPLATE_UNDEFINED, 0);
}

/* What an expression is made of, without what stands behind it. */
static SPECDEC__NOINLINE specdec__template_value specdec__template_primary(specdec__template *t)
{
    const int c = specdec__template_next(t);
    specdec__template_value value = specdec__template_number(SPECDEC__TEMPLATE_INTEGER, 0);
    specdec__bytes name;

    if (c == '"' || c == '\'') {
        value = specdec__template_quoted(t);
        while (!t->failed && (specdec__template_next(t) == '"' || t->text.data[t->at] == '\'')) {
            specdec__template_value more = specdec__template_quoted(t);

            value = t->skip ? more : specdec__template_join(t, value, more);
        }
        return value;
    }
    if (c >= '0' && c <= '9') {
        for (; t->at < t->end && t->text.data[t->at] >= '0' && t->text.data[t->at] <= '9'; t->at++)
            value.number = value.number < INT32_MAX ? value.number * 10 + (t->text.data[t->at] - '0') : value.number;
        return value;
    }
    if (specdec__template_accept(t, "["))
        return specdec__template_apply_to(t, '[', specdec__template_bytes(NULL, 0), NULL, 1);
    if (specdec__template_accept(t, "(")) {
        if (specdec__template_deeper(t, SPECDEC__TEMPLATE_BRACKET))
            value = specdec__template_expression(t);
        t->depth -= SPECDEC__TEMPLATE_BRACKET;
        if (!t->failed && !specdec__template_accept(t, ")"))
            specdec__template_garbled(t);
        return value;
    }
    name = specdec__template_name(t);
    if (!name.size) {
        specdec__template_garbled(t);
        return value;
    }
    return specdec__template_named(t, name);
}

/* An operand with its attributes, items, calls, filters and tests. */
static SPECDEC__NOINLINE specdec__template_value specdec__template_operand(specdec__template *t)
{
    const int minus = specdec__template_accept(t, "-");
    specdec__template_value value = specdec__template_primary(t), key;
    specdec__bytes name;
    int dot;

    specdec__template_step(t, 0);
    while (!t->failed) {
        if ((dot = specdec__template_accept(t, ".")) || specdec__template_accept(t, "|")) {
            const int called = (name = specdec__template_name(t)).size && specdec__template_accept(t, "(");

            key = specdec__template_of(SPECDEC__TEMPLATE_STRING, name.data, name.size);
            value = called || !dot ? specdec__template_apply_to(t, '.', name, &value, called)
                                   : specdec__template_get(t, &value, &key);
        } else if (specdec__template_accept(t, "[")) {
            if (specdec__template_deeper(t, SPECDEC__TEMPLATE_BRACKET))
                value = specdec__template_item(t, &value);
            t->depth -= SPECDEC__TEMPLATE_BRACKET;
        } else if (specdec__template_accept(t, "is")) {
            value = specdec__template_test(t, &value);
        } else {
            break;
        }
    }
    if (minus)
        value.number = -value.number;
    return value;
}

/* Is a value in a list, a string in a string, or the name of what a message has? */
static SPECDEC__NOINLINE int specdec__template_within(specdec__template *t, const specdec__template_value *what,
                                                      const specdec__template_value *in)
{
    const specdec__template_value *items = (const specdec__template_value *)in->at;
    size_t i;

    specdec__template_step(t, in->size * (what->size + 1));
    if (in->kind == SPECDEC__TEMPLATE_STRING && what->kind == SPECDEC__TEMPLATE_STRING)
        return !what->size || specdec__template_search(in, 0, what) < in->size;
    if (in->kind == SPECDEC__TEMPLATE_MESSAGE)
        return specdec__template_is(what, "role") || specdec__template_is(what, "content");
    if (in->kind != SPECDEC__TEMPLATE_LIST)
        specdec__template_fail(t, "it looks into what is no list", specdec__template_bytes(NULL, 0));
    else
        for (i = 0; i < in->size; i++)
            if (specdec__template_equal(what, &items[i]))
                return 1;
    return 0;
}

/* Two operands and what stands between them: the number of a comparison or sum below. */
static SPECDEC__NOINLINE specdec__template_value specdec__template_combine(specdec__template *t, int i,
                                                                           specdec__template_value a,
                                                                           specdec__template_value b)
{
    const int numbers = a.kind >= SPECDEC__TEMPLATE_BOOL && a.kind <= SPECDEC__TEMPLATE_INTEGER &&
                        b.kind >= SPECDEC__TEMPLATE_BOOL && b.kind <= SPECDEC__TEMPLATE_INTEGER;
    specdec__template_value *out;
    int64_t x = a.number, y = b.number;

    if (t->skip || t->failed)
        return specdec__template_number(SPECDEC__TEMPLATE_UNDEFINED, 0);
    if (i < 4)
        return specdec__template_number(SPECDEC__TEMPLATE_BOOL, (i < 2 ? specdec__template_equal(&a, &b)
                                                                       : specdec__template_within(t, &a, &b)) ==
                                                                    (i % 2 == 0));
    if (i == 8 && a.kind == SPECDEC__TEMPLATE_LIST && b.kind == SPECDEC__TEMPLATE_LIST) {
        out = (specdec__template_value *)specdec__template_take(t, (a.size + b.size) * sizeof *out);
        if (out && a.size)
            memcpy(out, a.at, a.size * sizeof *out);
        if (out && b.size)
            memcpy(out + a.size, b.at, b.size * sizeof *out);
        return specdec__template_of(SPECDEC__TEMPLATE_LIST, out, out ? a.size + b.size : 0);
    }
    if (i == 8 && a.kind == SPECDEC__TEMPLATE_STRING && b.kind == SPECDEC__TEMPLATE_STRING)
        return specdec__template_join(t, a, b);
    if (i == 10)
        return specdec__template_join(t, a, b);
    if (!numbers || x > INT32_MAX || x < -INT32_MAX || y > INT32_MAX || y < -INT32_MAX || (i > 11 && !y))
        return specdec__template_fail(t, "it computes with what is no number", specdec__template_bytes(NULL, 0));
    switch (i) {
    case 4: return specdec__template_number(SPECDEC__TEMPLATE_BOOL, x <= y);
    case 5: return specdec__template_number(SPECDEC__TEMPLATE_BOOL, x >= y);
    case 6: return specdec__template_number(SPECDEC__TEMPLATE_BOOL, x < y);
    case 7: return specdec__template_number(SPECDEC__TEMPLATE_BOOL, x > y);
    case 8: return specdec__template_number(SPECDEC__TEMPLATE_INTEGER, x + y);
    case 9: return specdec__template_number(SPECDEC__TEMPLATE_INTEGER, x - y);
    case 11: return specdec__template_number(SPECDEC__TEMPLATE_INTEGER, x * y);
    }
    x %= y; /* as Python has it: the sign of y */
    return specdec__template_number(SPECDEC__TEMPLATE_INTEGER, x && (x < 0) != (y < 0) ? x + y : x);
}

/* The operator that stands here, of this level or one that binds closer; -1: none. Levels: 0 or, 1 and, 3 comparisons,
   4 sums, 5 strings that are joined, 6 products. */
static int specdec__template_operator(specdec__template *t, int level, int *own)
{
    static const char *const operators[] = {"==", "!=", "in", "not in", "<=", ">=", "<", ">",
                                            "+",  "-",  "~",  "*",      "%",  "or", "and"};
    static const unsigned char levels[] = {3, 3, 3, 3, 3, 3, 3, 3, 4, 4, 5, 6, 6, 0, 1};
    size_t i;

    for (i = 0; i < SPECDEC__COUNT(operators); i++)
        if (levels[i] >= level && specdec__template_accept(t, operators[i])) {
            *own = levels[i];
            return (int)i;
        }
    return -1;
}

/* Operands and the operators between them, of this level and those that bind closer. */
static specdec__template_value specdec__template_binary(specdec__template *t, int level)
{
    specdec__template_value value, other;
    int i, own = 0, decided;

    if (specdec__template_accept(t, "not")) {
        value = specdec__template_deeper(t, 1) ? specdec__template_binary(t, 3)
                                               : specdec__template_number(SPECDEC__TEMPLATE_UNDEFINED, 0);
        t->depth--;
        value = specdec__template_number(SPECDEC__TEMPLATE_BOOL, !specdec__template_truth(&value));
    } else {
        value = specdec__template_operand(t);
    }
    while (!t->failed && (i = specdec__template_operator(t, level, &own)) >= 0) {
        decided = own < 2 && specdec__template_truth(&value) == !own;
        t->skip += decided;
        other = specdec__template_deeper(t, 1) ? specdec__template_binary(t, own + 1) : value;
        t->depth--;
        t->skip -= decided;
        value = decided ? value : own < 2 ? other : specdec__template_combine(t, i, value, other);
    }
    return value;
}

/* An expression; "a if b else c" reads b first, as a may have no value without it. */
static specdec__template_value specdec__template_expression(specdec__template *t)
{
    const size_t at = t->at;
    specdec__template_value value, wanted;
    size_t after;

    t->skip++;
    specdec__template_binary(t, 0);
    specdec__template_step(t, t->at - at);
    t->skip--;
    if (!specdec__template_accept(t, "if")) {
        if (t->skip)
            return specdec__template_number(SPECDEC__TEMPLATE_UNDEFINED, 0);
        t->at = at;
        return specdec__template_binary(t, 0);
    }
    wanted = specdec__template_binary(t, 0);
    after = t->at;
    t->at = at;
    t->skip += !specdec__template_truth(&wanted);
    value = specdec__template_binary(t, 0);
    t->skip -= !specdec__template_truth(&wanted);
    t->at = after;
    if (!specdec__template_accept(t, "else"))
        return specdec__template_truth(&wanted) ? value : specdec__template_number(SPECDEC__TEMPLATE_UNDEFINED, 0);
    t->skip += specdec__template_truth(&wanted);
    specdec__template_next(t);
    if (specdec__template_truth(&wanted))
        specdec__template_expression(t);
    else
        value = specdec__template_expression(t);
    t->skip -= specdec__template_truth(&wanted);
    return value;
}

/* ---- Text and tags. */

static void specdec__template_write(specdec__template *t, const void *text, size_t size)
{
    if (size > sizeof t->output - t->written) {
        specdec__template_fail(t, "it writes too much", specdec__template_bytes(NULL, 0));
        return;
    }
    if (size)
        memcpy(t->output + t->written, text, size);
    t->written += size;
}

/* Finds the end of a tag whose text begins at `at`: outside strings and brackets. */
static void specdec__template_bound(specdec__template *t, unsigned char kind)
{
    const unsigned char *text = t->text.data;
    size_t i;
    int depth = 0;
    unsigned char quote = 0, c;

    for (i = t->at; i + 1 < t->text.size; i++) {
        c = text[i];
        if (kind != '#' && quote) {
            i += c == '\\';
            quote = c == quote ? 0 : quote;
        } else if (depth <= 0 && c == (kind == '{' ? '}' : kind) && text[i + 1] == '}') {
            break;
        } else if (kind != '#') {
            quote = c == '"' || c == '\'' ? c : 0;
            depth += c == '(' || c == '[' || c == '{' ? 1 : c == ')' || c == ']' || c == '}' ? -1 : 0;
        }
    }
    if (i + 1 >= t->text.size) {
        specdec__template_fail(t, "a tag has no end", specdec__template_bytes(NULL, 0));
        i = t->text.size;
    }
    t->end = i > t->at && (text[i - 1] == '-' || text[i - 1] == '+') ? i - 1 : i;
}

/* Leaves the tag that ends at t->end: its text begins behind it, and some white space goes. */
static void specdec__template_close(specdec__template *t)
{
    const unsigned char *text = t->text.data + t->end;
    const size_t left = t->text.size - t->end;
    const int marked = left && (text[0] == '-' || text[0] == '+');

    t->strip = left && text[0] == '-' ? 2 : left > (size_t)marked && !marked && text[marked] != '}' ? 1 : 0;
    t->after = t->end + (left < (size_t)marked + 2 ? left : (size_t)marked + 2);
}

/* Goes on to the next tag that is no comment, and writes the text before it (write = 0: does not). Returns its kind,
   '{' or '%', 0: the template ends. t->at to t->end is what stands in it. */
static int specdec__template_tag(specdec__template *t, int write)
{
    const unsigned char *text = t->text.data;

    while (!t->failed) {
        size_t from = t->after, to, tag, start;
        int kind, dash, lines;

        if (t->strip == 2) {
            while (from < t->text.size && memchr(" \t\r\n\v\f", text[from], 6))
                from++;
        } else if (t->strip) {
            from += from < t->text.size && text[from] == '\n';
        }
        t->line = from > t->after ? text[from - 1] == '\n' : t->after == 0;
        for (tag = from; tag + 1 < t->text.size; tag++)
            if (text[tag] == '{' && (text[tag + 1] == '{' || text[tag + 1] == '%' || text[tag + 1] == '#'))
                break;
        kind = tag + 1 < t->text.size ? text[tag + 1] : 0;
        to = kind ? tag : t->text.size;
        dash = kind && tag + 2 < t->text.size ? text[tag + 2] : 0;
        for (start = to; start > from && (text[start - 1] == ' ' || text[start - 1] == '\t'); start--)
            ;
        lines = start > from ? text[start - 1] == '\n' : t->line;
        if (kind && dash == '-')
            while (to > from && memchr(" \t\r\n\v\f", text[to - 1], 6))
                to--;
        else if (kind && kind != '{' && dash != '+' && lines)
            to = start;
        if (write)
            specdec__template_write(t, text + from, to - from);
        t->after = t->text.size;
        t->strip = 0;
        if (!kind)
            return 0;
        t->at = tag + 2 + (dash == '-' || dash == '+');
        specdec__template_bound(t, (unsigned char)kind);
        specdec__template_close(t);
        specdec__template_step(t, t->end - t->at + tag - from);
        if (kind != '#')
            return kind;
    }
    return 0;
}

/* Passes over the text of a block that is not run, to the tag of its own level that ends it: one that begins with
   "end", or, if asked for, "elif" and "else". Returns that tag's name. */
static specdec__bytes specdec__template_pass(specdec__template *t, int others)
{
    static const char *const openers[] = {"if", "for", "macro", "call", "filter", "block", "generation"};
    specdec__bytes name = specdec__template_bytes(NULL, 0);
    int kind, depth = 0;
    size_t i;

    while ((kind = specdec__template_tag(t, 0)) != 0) {
        if (kind != '%')
            continue;
        name = specdec__template_name(t);
        for (i = 0; i < SPECDEC__COUNT(openers); i++)
            depth += specdec__bytes_are(name, openers[i]);
        if (specdec__bytes_are(name, "set")) { /* a block, unless it has a value */
            while (specdec__template_name(t).size && specdec__template_accept(t, "."))
                ;
            depth += !specdec__template_next(t);
        }
        if (!depth && (name.size > 3 && memcmp(name.data, "end", 3) == 0))
            return name;
        if (!depth && others && (specdec__bytes_are(name, "elif") || specdec__bytes_are(name, "else")))
            return name;
        depth -= name.size > 3 && memcmp(name.data, "end", 3) == 0;
    }
    specdec__template_fail(t, "a block has no end", name);
    return name;
}

/* A new block; NULL, and the run has ended, when there are too many. */
static specdec__template_block *specdec__template_push(specdec__template *t, int kind, specdec__bytes name)
{
    specdec__template_block *block = &t->block[t->blocks];

    if (t->blocks == SPECDEC__TEMPLATE_BLOCKS) {
        specdec__template_fail(t, "its blocks are too deep", name);
        return NULL;
    }
    t->blocks++;
    memset(block, 0, sizeof *block);
    block->kind = kind;
    block->name = name;
    block->body = t->end;
    block->written = t->written;
    block->variables = t->variables;
    return block;
}

/* if, and elif behind what was not run. */
static void specdec__template_if(specdec__template *t)
{
    specdec__bytes name = specdec__template_bytes("if", 2);
    int taken = 0;

    while (!t->failed && !taken) {
        specdec__template_value wanted = specdec__template_number(SPECDEC__TEMPLATE_BOOL, 1);

        if (!specdec__bytes_are(name, "else"))
            wanted = specdec__template_expression(t);
        taken = specdec__template_truth(&wanted);
        if (!t->failed && !taken) {
            name = specdec__template_pass(t, 1);
            if (specdec__bytes_are(name, "endif"))
                return;
        }
    }
    specdec__template_push(t, 'i', name);
}

/* Begins the next round of a loop, or leaves it. */
static void specdec__template_round(specdec__template *t)
{
    specdec__template_block *block = &t->block[t->blocks - 1];
    specdec__template_value loop = block->list;

    t->variables = block->variables;
    t->sets++;
    if (block->index == (int)block->list.size) {
        t->blocks--;
        return;
    }
    loop.kind = SPECDEC__TEMPLATE_LOOP;
    loop.number = block->index;
    specdec__template_set(t, block->name, 0, ((const specdec__template_value *)block->list.at)[block->index++]);
    specdec__template_set_name(t, "loop", loop);
    t->end = block->body;
    specdec__template_close(t);
}

/* Those items of a list for which an expression at t->at is true, with each as a variable. */
static specdec__template_value specdec__template_filter(specdec__template *t, specdec__bytes name,
                                                        specdec__template_value list)
{
    specdec__template_value *out = (specdec__template_value *)specdec__template_take(t, list.size * sizeof *out);
    const int variables = t->variables;
    const size_t at = t->at;
    size_t i, count = 0;

    for (i = 0; out && !t->failed && i < list.size; i++) {
        const specdec__template_value item = ((const specdec__template_value *)list.at)[i];
        specdec__template_value wanted;

        t->at = at;
        t->variables = variables;
        specdec__template_bind(t, name, item);
        wanted = specdec__template_expression(t);
        if (specdec__template_truth(&wanted))
            out[count++] = item;
    }
    t->variables = variables;
    if (!list.size) {
        t->skip++;
        specdec__template_expression(t);
        t->skip--;
    }
    return specdec__template_of(SPECDEC__TEMPLATE_LIST, out, count);
}

static void specdec__template_for(specdec__template *t)
{
    const specdec__bytes name = specdec__template_name(t);
    specdec__template_value list;
    specdec__template_block *block;

    if (!specdec__template_accept(t, "in")) {
        specdec__template_fail(t, "it has a loop that is not understood", name);
        return;
    }
    list = specdec__template_binary(t, 0);
    if (list.kind == SPECDEC__TEMPLATE_UNDEFINED)
        list = specdec__template_of(SPECDEC__TEMPLATE_LIST, NULL, 0);
    if (list.kind != SPECDEC__TEMPLATE_LIST)
        specdec__template_fail(t, "it loops over what is no list", name);
    if (!t->failed && specdec__template_accept(t, "if"))
        list = specdec__template_filter(t, name, list);
    if (t->failed || specdec__template_next(t)) {
        specdec__template_fail(t, "it has a loop that is not understood", name);
        return;
    }
    if (!list.size) {
        if (specdec__bytes_are(specdec__template_pass(t, 1), "else"))
            specdec__template_push(t, 'e', name);
        return;
    }
    block = specdec__template_push(t, 'f', name);
    if (block) {
        block->list = list;
        specdec__template_round(t);
    }
}

static void specdec__template_assign(specdec__template *t)
{
    specdec__bytes name = specdec__template_name(t), attribute;
    const specdec__template_variable *variable;
    int space = 0;

    if (specdec__template_accept(t, ".")) {
        attribute = specdec__template_name(t);
        variable = specdec__template_find(t, name, 0);
        space = variable && variable->value.kind == SPECDEC__TEMPLATE_SPACE ? (int)variable->value.number : 0;
        if (!space)
            specdec__template_fail(t, "it sets an attribute of what is no namespace", name);
        name = attribute;
    }
    if (!specdec__template_next(t) && !space) {
        specdec__template_push(t, 's', name);
        return;
    }
    if (!specdec__template_accept(t, "=")) {
        specdec__template_fail(t, "it sets what is not understood", name);
        return;
    }
    specdec__template_set(t, name, space, specdec__template_expression(t));
    if (specdec__template_next(t))
        specdec__template_fail(t, "it sets what is not understood", name);
}

/* The end of a block: of a loop, perhaps another round; of a set, its value. */
static void specdec__template_end(specdec__template *t, specdec__bytes name)
{
    const specdec__template_block *block = &t->block[t->blocks ? t->blocks - 1 : 0];
    specdec__template_value value;

    if (!t->blocks) {
        specdec__template_fail(t, "it ends a block that has not begun", name);
    } else if (block->kind == 'f') {
        specdec__template_round(t);
    } else if (block->kind == 's') {
        t->blocks--;
        value = specdec__template_join(t, specdec__template_string(""),
                                       specdec__template_of(SPECDEC__TEMPLATE_STRING, t->output + block->written,
                                                            t->written - block->written));
        t->written = block->written;
        specdec__template_set(t, block->name, 0, value);
    } else {
        t->blocks--;
    }
}

/* elif or else behind what was run: the rest of the block is passed over. */
static void specdec__template_leave(specdec__template *t, specdec__bytes name)
{
    specdec__template_block *block = &t->block[t->blocks ? t->blocks - 1 : 0];

    if (t->blocks && block->kind == 'f' && block->index < (int)block->list.size) {
        specdec__template_round(t);
        return;
    }
    specdec__template_pass(t, 0);
    specdec__template_end(t, name);
}

/* One statement. Returns 1 when it ends a macro. */
static int specdec__template_statement(specdec__template *t)
{
    const specdec__bytes name = specdec__template_name(t);
    specdec__template_value macro;
    specdec__bytes own;

    if (specdec__bytes_are(name, "if")) {
        specdec__template_if(t);
    } else if (specdec__bytes_are(name, "for")) {
        specdec__template_for(t);
    } else if (specdec__bytes_are(name, "set")) {
        specdec__template_assign(t);
    } else if (specdec__bytes_are(name, "elif") || specdec__bytes_are(name, "else")) { /* behind what was run */
        specdec__template_leave(t, name);
    } else if (specdec__bytes_are(name, "macro")) {
        own = specdec__template_name(t);
        if (!specdec__template_accept(t, "("))
            specdec__template_fail(t, "it has a macro that is not understood", own);
        macro = specdec__template_of(SPECDEC__TEMPLATE_MACRO, NULL, t->end);
        macro.number = (int64_t)t->at;
        specdec__template_set(t, own, 0, macro);
        specdec__template_pass(t, 0);
    } else if (specdec__bytes_are(name, "endmacro")) {
        return 1;
    } else if (specdec__bytes_are(name, "endif") || specdec__bytes_are(name, "endfor") ||
               specdec__bytes_are(name, "endset")) {
        specdec__template_end(t, name);
    } else if (!specdec__bytes_are(name, "generation") && !specdec__bytes_are(name, "endgeneration")) {
        specdec__template_fail(t, "it has a statement that is not known", name);
    }
    return 0;
}

/* Runs from t->after to the end of the template, or of the macro. */
static void specdec__template_run(specdec__template *t)
{
    int kind;

    while ((kind = specdec__template_tag(t, 1)) != 0) {
        const size_t used = t->used;
        const int sets = t->sets;

        if (kind == '%') {
            if (specdec__template_statement(t))
                return;
        } else {
            specdec__template_value value = specdec__template_expression(t);

            if (specdec__template_next(t))
                specdec__template_garbled(t);
            value = specdec__template_join(t, value, specdec__template_string(""));
            specdec__template_write(t, value.at, value.size);
        }
        if (t->sets == sets && kind == '{')
            t->used = used; /* nothing that was made there is needed any more */
    }
}

/* Runs a template for a few messages, as a conversation that the model is to answer. bos, eos: the texts of the tokens
   that begin and end texts. Afterwards t->output holds t->written bytes, or t->failed says why not. */
static SPECDEC__UNUSED void specdec__template_render(specdec__template *t, specdec__bytes text, specdec__bytes bos,
                                                     specdec__bytes eos, const specdec_message *messages, int count)
{
    specdec__template_value *list;
    int i;

    t->text = text;
    t->text.size -= text.size && text.data[text.size - 1] == '\n';
    t->at = t->end = t->after = t->used = t->written = 0;
    t->strip = t->line = t->skip = t->depth = t->steps = t->spaces = t->from = t->variables = t->blocks = 0;
    t->arguments = t->sets = 0;
    t->failed = NULL;
    t->culprit = specdec__template_bytes(NULL, 0);
    if (text.size > SPECDEC__TEMPLATE_LONGEST || (text.size && memchr(text.data, '\r', text.size)))
        specdec__template_fail(t, "it is too long, or has carriage returns", specdec__template_bytes(NULL, 0));
    list = (specdec__template_value *)specdec__template_take(t, (size_t)count * sizeof *list);
    for (i = 0; list && i < count; i++)
        list[i] = specdec__template_of(SPECDEC__TEMPLATE_MESSAGE, &messages[i], 0);
    specdec__template_set_name(t, "messages", specdec__template_of(SPECDEC__TEMPLATE_LIST, list, (size_t)count));
    specdec__template_set_name(t, "bos_token", specdec__template_of(SPECDEC__TEMPLATE_STRING, bos.data, bos.size));
    specdec__template_set_name(t, "eos_token", specdec__template_of(SPECDEC__TEMPLATE_STRING, eos.data, eos.size));
    specdec__template_set_name(t, "add_generation_prompt", specdec__template_number(SPECDEC__TEMPLATE_BOOL, 1));
    specdec__template_set_name(t, "tools", specdec__template_number(SPECDEC__TEMPLATE_NONE, 0));
    if (!t->failed)
        specdec__template_run(t);
    if (!t->failed && t->blocks)
        specdec__template_fail(t, "a block has no end", t->block[0].name);
}

SPECDEC__FOR_SPEED
