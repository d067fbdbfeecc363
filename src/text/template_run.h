/* =====================================================================================================================
 * >>text/template_run: runs the instructions of compiled chat templates.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "json.h"
#include "template.h"
#include "template_write.h"
#include "template_method.h"
#include "template_filter.h"
#include "template_token.h"
#include "template_parse.h"

SPECDEC__FOR_SIZE

/* ---- Operators. */

/* Returns a string, list or tuple repeated `times` times, as Python's a * times. */
static specdec__template_value specdec__template_repeat_value(specdec__template *t, const specdec__template_value *a,
                                                              int64_t times)
{
    const size_t from = t->used;
    specdec__template_value *out;
    int64_t i;

    times = times < 0 ? 0 : times;
    if (a->kind == SPECDEC__TEMPLATE_STRING) {
        specdec__template_value text;

        specdec__template_append_repeated(t, a, times);
        text = specdec__template_finish_string(t, from);
        text.safe = a->safe;
        return text;
    }
    if (times > 1000000)
        return specdec__template_fail(t, "it needs too much memory");
    out = specdec__template_new_list(t, specdec__size_multiply(a->size, (size_t)times));
    for (i = 0; out && a->size && i < times; i++)
        memcpy(out + (size_t)i * a->size, a->as.data, a->size * sizeof *out);
    return specdec__template_sized_value(a->kind, out, out ? a->size * (size_t)times : 0);
}

/* Returns the product of two values, or a repeated string or list: Python's a * b. */
static specdec__template_value specdec__template_multiply(specdec__template *t, const specdec__template_value *a,
                                                          const specdec__template_value *b)
{
    const int64_t x = a->as.integer, y = b->as.integer;

    if (a->kind == SPECDEC__TEMPLATE_INTEGER && b->kind >= SPECDEC__TEMPLATE_STRING &&
        b->kind <= SPECDEC__TEMPLATE_TUPLE)
        return specdec__template_repeat_value(t, b, x);
    if (b->kind == SPECDEC__TEMPLATE_INTEGER && a->kind >= SPECDEC__TEMPLATE_STRING &&
        a->kind <= SPECDEC__TEMPLATE_TUPLE)
        return specdec__template_repeat_value(t, a, y);
    if (!specdec__template_is_number(a) || !specdec__template_is_number(b))
        return specdec__template_fail(t, "it multiplies what cannot be multiplied");
    if (a->kind == SPECDEC__TEMPLATE_DOUBLE || b->kind == SPECDEC__TEMPLATE_DOUBLE)
        return specdec__template_double_value(specdec__template_as_double(a) * specdec__template_as_double(b));
    if (x && y && ((x == -1 && y == INT64_MIN) || (y == -1 && x == INT64_MIN) ||
                   (y != -1 && (x > 0 ? x > INT64_MAX / (y < 0 ? -y : y) : x < -(INT64_MAX / (y < 0 ? -y : y))))))
        return specdec__template_fail(t, "a number is too large");
    return specdec__template_integer_value(x * y);
}

/* Returns the greatest integer not above x. */
static double specdec__template_floor(double x)
{
    double whole;

    if (!(x > -9e15 && x < 9e15))
        return x;
    whole = (double)(int64_t)x;
    return whole > x ? whole - 1 : whole;
}

/* Returns the quotient or remainder of two numbers by the instruction op: Python's a / b, a // b or a % b. */
static specdec__template_value specdec__template_divide(specdec__template *t, int op,
                                                        const specdec__template_value *a,
                                                        const specdec__template_value *b)
{
    const double x = specdec__template_as_double(a), y = specdec__template_as_double(b);
    int64_t whole;

    if (op == SPECDEC__TEMPLATE_MODULO && a->kind == SPECDEC__TEMPLATE_STRING)
        return b->kind == SPECDEC__TEMPLATE_TUPLE
                   ? specdec__template_format_percent(t, a, specdec__template_list_items(b), b->size)
                   : specdec__template_format_percent(t, a, b, 1);
    if (!specdec__template_is_number(a) || !specdec__template_is_number(b))
        return specdec__template_fail(t, "it divides what cannot be divided");
    if (!(y < 0 || y > 0))
        return specdec__template_fail(t, "it divides by nothing");
    if (op == SPECDEC__TEMPLATE_DIVIDE)
        return specdec__template_double_value(x / y);
    if (a->kind == SPECDEC__TEMPLATE_DOUBLE || b->kind == SPECDEC__TEMPLATE_DOUBLE)
        return specdec__template_double_value(op == SPECDEC__TEMPLATE_FLOOR ? specdec__template_floor(x / y)
                                                                      : x - specdec__template_floor(x / y) * y);
    if (b->as.integer == -1)
        return op == SPECDEC__TEMPLATE_FLOOR && a->as.integer == INT64_MIN
                   ? specdec__template_fail(t, "a number is too large")
                   : specdec__template_integer_value(op == SPECDEC__TEMPLATE_FLOOR ? -a->as.integer : 0);
    whole = a->as.integer / b->as.integer;
    whole -= a->as.integer % b->as.integer && (a->as.integer < 0) != (b->as.integer < 0);
    return specdec__template_integer_value(op == SPECDEC__TEMPLATE_FLOOR ? whole
                                                                         : a->as.integer - whole * b->as.integer);
}

/* Returns the power of two numbers: Python's a ** b. */
static specdec__template_value specdec__template_power(specdec__template *t, const specdec__template_value *a,
                                                       const specdec__template_value *b)
{
    specdec__template_value out = specdec__template_integer_value(1);
    int64_t i;

    if (!specdec__template_is_number(a) ||
        (b->kind != SPECDEC__TEMPLATE_INTEGER && b->kind != SPECDEC__TEMPLATE_BOOL) || b->as.integer < 0 ||
        b->as.integer > 1000)
        return specdec__template_fail(t, "it raises to a power that is not known");
    for (i = 0; i < b->as.integer && !t->failed; i++)
        out = specdec__template_multiply(t, &out, a);
    return out;
}

/* Returns the difference of two numbers: Python's a - b. */
static specdec__template_value specdec__template_subtract(specdec__template *t, const specdec__template_value *a,
                                                          const specdec__template_value *b)
{
    specdec__template_value negative = *b;

    if (!specdec__template_is_number(a) || !specdec__template_is_number(b))
        return specdec__template_fail(t, "it subtracts what cannot be subtracted");
    if (b->kind == SPECDEC__TEMPLATE_DOUBLE)
        negative.as.real = -b->as.real;
    else if (b->as.integer == INT64_MIN)
        return specdec__template_fail(t, "a number is too large");
    else
        negative.as.integer = -b->as.integer;
    return specdec__template_add(t, a, &negative);
}

/* Returns the result of an instruction `op` with two operands, such as SPECDEC__TEMPLATE_ADD. */
static specdec__template_value specdec__template_run_binary_operator(specdec__template *t, int op,
                                                                     const specdec__template_value *a,
                                                                     const specdec__template_value *b)
{
    specdec__template_value first, second;
    int order;

    switch (op) {
    case SPECDEC__TEMPLATE_ADD: return specdec__template_add(t, a, b);
    case SPECDEC__TEMPLATE_SUBTRACT: return specdec__template_subtract(t, a, b);
    case SPECDEC__TEMPLATE_MULTIPLY: return specdec__template_multiply(t, a, b);
    case SPECDEC__TEMPLATE_DIVIDE: case SPECDEC__TEMPLATE_FLOOR: case SPECDEC__TEMPLATE_MODULO:
        return specdec__template_divide(t, op, a, b);
    case SPECDEC__TEMPLATE_POWER: return specdec__template_power(t, a, b);
    case SPECDEC__TEMPLATE_CONCATENATE:
        first = specdec__template_to_string(t, a);
        second = specdec__template_to_string(t, b);
        return specdec__template_concatenate_strings(t, &first, &second);
    case SPECDEC__TEMPLATE_EQUAL: case SPECDEC__TEMPLATE_UNEQUAL:
        return specdec__template_bool_value(specdec__template_values_equal(t, a, b, SPECDEC__TEMPLATE_MAX_COMPARED) ==
                                            (op == SPECDEC__TEMPLATE_EQUAL));
    case SPECDEC__TEMPLATE_IN: return specdec__template_bool_value(specdec__template_contains_value(t, b, a));
    case SPECDEC__TEMPLATE_NOT_IN: return specdec__template_bool_value(!specdec__template_contains_value(t, b, a));
    default: break;
    }
    order = specdec__template_compare_values(t, a, b, SPECDEC__TEMPLATE_MAX_COMPARED);
    return specdec__template_bool_value(op == SPECDEC__TEMPLATE_LESS      ? order < 0
                                        : op == SPECDEC__TEMPLATE_AT_MOST ? order <= 0
                                        : op == SPECDEC__TEMPLATE_GREATER ? order > 0
                                                                    : order >= 0);
}

/* ---- The stack, output, scopes. */

/* Pushes a value onto the template's stack; a full stack is an error. */
static void specdec__template_push_value(specdec__template *t, specdec__template_value value)
{
    if (t->value_count == SPECDEC__TEMPLATE_MAX_VALUES)
        specdec__template_fail(t, "an expression needs too many values");
    else
        t->stack[t->value_count++] = value;
}

/* Pops the value on top of the template's stack. The compiler makes sure that there is one. */
static specdec__template_value specdec__template_pop_value(specdec__template *t)
{
    return t->value_count ? t->stack[--t->value_count] : specdec__template_fail(t, "its stack is empty");
}

/* Writes bytes, with their marks (which of them come from messages), to the template's output. */
static void specdec__template_write_output(specdec__template *t, const void *from, size_t size)
{
    specdec__template_count_work(t, size);
    if (size > t->output_room - t->output_bytes) {
        t->output_full = !t->failed;
        specdec__template_fail(t, "it writes more than there is room for");
        return;
    }
    if (size)
        memcpy(t->output + t->output_bytes, from, size);
    specdec__template_copy_marks(t, t->output_marks, t->output_bytes, from, size);
    t->output_bytes += size;
}

/* Removes the output from offset `from` on, and returns it as a string. */
static specdec__template_value specdec__template_pop_output(specdec__template *t, size_t from)
{
    const size_t at = t->used, size = t->output_bytes - from;
    size_t i;

    specdec__template_append_bytes(t, t->output + from, size);
    for (i = 0; i < t->used - at; i++)
        specdec__template_set_bit(t->marks, at + i, specdec__template_get_bit(t->output_marks, from + i));
    t->output_bytes = from;
    return specdec__template_finish_string(t, at);
}

/* Releases the memory of the values that a statement of the template has computed. */
static void specdec__template_release_statement_values(specdec__template *t)
{
    const size_t floor = t->frame[t->frame_count - 1].memory_floor;

    t->used = floor > t->kept_bytes ? floor : t->kept_bytes;
}

/* Returns the variable of a scope with a name; NULL: there is none. */
static specdec__template_binding *specdec__template_find_variable(const specdec__template_scope *scope,
                                                                  const specdec__template_value *name)
{
    specdec__template_binding *binding = scope->first_binding;

    while (binding && (binding->name.as.data != name->as.data || binding->name.size != name->size))
        binding = binding->next;
    return binding;
}

/* Sets a variable of a scope; the name is interned. Returns 1 if the variable is new. */
static int specdec__template_set_variable(specdec__template *t, specdec__template_scope *scope,
                                          const specdec__template_value *name, specdec__template_value value)
{
    specdec__template_binding *binding = specdec__template_find_variable(scope, name);
    const int old = binding != NULL;

    if (!old) {
        binding = (specdec__template_binding *)specdec__template_take_memory(t, 1, sizeof *binding);
        if (!binding)
            return 0;
        binding->name = *name;
        binding->next = scope->first_binding;
        scope->first_binding = binding;
    }
    binding->value = value;
    return !old;
}

/* Pops a value from the template's stack into a variable of the innermost scope. */
static void specdec__template_store_variable(specdec__template *t, const specdec__template_value *name)
{
    specdec__template_set_variable(t, t->scope, name, specdec__template_pop_value(t));
    t->frame[t->frame_count - 1].memory_floor = t->used;
}

/* Pops a value from the template's stack into the attribute names[1] of the namespace names[0], which may be a variable
   of an outer scope. */
static void specdec__template_store_attribute(specdec__template *t, const specdec__template_value names[2])
{
    const specdec__template_scope *scope = t->scope;
    const specdec__template_binding *binding = NULL;
    const specdec__template_value value = specdec__template_pop_value(t);
    size_t place = SIZE_MAX;

    for (; scope && !binding; scope = scope->parent)
        binding = specdec__template_find_variable(scope, &names[0]);
    if (!binding || binding->value.kind != SPECDEC__TEMPLATE_NAMESPACE) {
        specdec__template_fail(t, "it sets an attribute of what is no namespace");
        return;
    }
    if (value.kind >= SPECDEC__TEMPLATE_STRING && value.size)
        place = specdec__template_memory_offset(t, value.as.data);
    if (specdec__template_set_variable(t, (specdec__template_scope *)(uintptr_t)binding->value.as.data, &names[1],
                                       value) ||
        (place != SIZE_MAX && place >= t->kept_bytes && place >= t->input_end && place < t->limit))
        t->kept_bytes = t->used;
}

/* Pushes a frame of a kind ('f', 'm', 'c', 's') with a new scope within `parent`. Returns the frame; NULL: there are
   too many. */
static specdec__template_frame *specdec__template_push_frame(specdec__template *t, int kind,
                                                             specdec__template_scope *parent)
{
    specdec__template_frame *frame = &t->frame[t->frame_count];
    specdec__template_scope *scope;

    if (t->frame_count == SPECDEC__TEMPLATE_MAX_FRAMES) {
        specdec__template_fail(t, "its loops and macros are too deep");
        return NULL;
    }
    memset(frame, 0, sizeof *frame);
    frame->kind = kind;
    frame->memory_base = t->used;
    frame->output_base = t->output_bytes;
    frame->stack_base = (size_t)t->value_count;
    frame->outer_scope = t->scope;
    scope = (specdec__template_scope *)specdec__template_take_memory(t, 1, sizeof *scope);
    if (!scope)
        return NULL;
    scope->parent = parent;
    scope->first_binding = NULL;
    t->scope = scope;
    frame->memory_floor = t->used;
    t->frame_count++;
    return frame;
}

/* Pops the innermost frame of the template, and releases its memory except values that are kept. */
static void specdec__template_pop_frame(specdec__template *t)
{
    const specdec__template_frame *frame = &t->frame[--t->frame_count];

    t->used = frame->memory_base > t->kept_bytes ? frame->memory_base : t->kept_bytes;
    t->scope = frame->outer_scope;
}

/* ---- Functions of templates. */

/* Function range(start, stop, step) of templates: a list of integers. */
static specdec__template_value specdec__template_call_range(specdec__template *t, const specdec__template_call *call)
{
    int64_t from = 0, to, step, count, i;
    specdec__template_value *out;

    to = specdec__template_integer_argument(t, call, call->positional_count > 1, NULL, 0);
    if (call->positional_count > 1)
        from = specdec__template_integer_argument(t, call, 0, NULL, 0);
    step = specdec__template_integer_argument(t, call, 2, NULL, 1);
    if (!call->positional_count || !step || from < -1000000000 || from > 1000000000 || to < -1000000000 ||
        to > 1000000000 || step < -1000000000 || step > 1000000000)
        return specdec__template_fail(t, "a range is not allowed");
    count = step > 0 ? (to - from + step - 1) / step : (from - to - step - 1) / -step;
    count = count < 0 ? 0 : count;
    if (count > 100000)
        return specdec__template_fail(t, "a range is too long");
    out = specdec__template_new_list(t, (size_t)count);
    for (i = 0; out && i < count; i++)
        out[i] = specdec__template_integer_value(from + i * step);
    return specdec__template_list_value(out, (size_t)count);
}

/* Function namespace(NAME=VALUE, ...), or namespace(dict), of templates: an object whose attributes can be set. */
static specdec__template_value specdec__template_call_namespace(specdec__template *t,
                                                                const specdec__template_call *call)
{
    specdec__template_scope *space = (specdec__template_scope *)specdec__template_take_memory(t, 1, sizeof *space);
    const specdec__template_value *dict = call->positional_count ? call->positional : NULL;
    size_t i;

    if (!space)
        return specdec__template_undefined_value();
    memset(space, 0, sizeof *space);
    for (i = 0; dict && dict->kind == SPECDEC__TEMPLATE_DICT && i < dict->size; i++) {
        const specdec__template_value name = specdec__template_list_items(dict)[2 * i];

        if (name.kind == SPECDEC__TEMPLATE_STRING) {
            const specdec__template_value own = specdec__template_intern_name(t, name);

            specdec__template_set_variable(t, space, &own, specdec__template_list_items(dict)[2 * i + 1]);
        }
    }
    for (i = 0; i < (size_t)call->named_count; i++) {
        specdec__template_value name = call->named[2 * i];

        name.kind = SPECDEC__TEMPLATE_STRING;
        specdec__template_set_variable(t, space, &name, call->named[2 * i + 1]);
    }
    return specdec__template_sized_value(SPECDEC__TEMPLATE_NAMESPACE, space, 1);
}

/* Returns a new dict of `count` pairs of a name and a value; of equal names the last one counts. */
static specdec__template_value specdec__template_new_dict(specdec__template *t, const specdec__template_value *pairs,
                                                          size_t count)
{
    specdec__template_value *out = specdec__template_new_list(t, 2 * count), dict;
    size_t i, k;

    dict = specdec__template_sized_value(SPECDEC__TEMPLATE_DICT, out, 0);
    for (i = 0; out && i < count && !t->failed; i++) {
        for (k = 0; k < dict.size; k++)
            if (specdec__template_values_equal(t, out + 2 * k, pairs + 2 * i, 4))
                break;
        if (k == dict.size) {
            dict.size++;
            out[2 * k] = pairs[2 * i];
            if (out[2 * k].kind == SPECDEC__TEMPLATE_KEYWORD)
                out[2 * k].kind = SPECDEC__TEMPLATE_STRING;
        }
        out[2 * k + 1] = pairs[2 * i + 1];
    }
    return dict;
}

/* Function dict(NAME=VALUE, ...) of templates: a new dict. */
static specdec__template_value specdec__template_call_dict(specdec__template *t, const specdec__template_call *call)
{
    if (call->positional_count &&
        (call->positional_count > 1 || call->positional->kind != SPECDEC__TEMPLATE_DICT || call->named_count))
        return specdec__template_fail(t, "dict is not known with such arguments");
    return call->positional_count ? *call->positional
                                  : specdec__template_new_dict(t, call->named, (size_t)call->named_count);
}

/* Function raise_exception(MESSAGE) of templates: the template stops with an error. */
static specdec__template_value specdec__template_call_raise_exception(specdec__template *t,
                                                                      const specdec__template_call *call)
{
    const specdec__template_value nothing = specdec__template_string_value("");
    const specdec__template_value text = specdec__template_to_string(t, call->positional_count ? call->positional
                                                                                               : &nothing);

    if (!t->failed)
        t->raised = 1;
    return specdec__template_fail_with_culprit(t, "the template refuses the conversation",
                                               specdec__template_as_bytes(text.as.data, text.size));
}

/* Appends a number with leading zeros, at least `digits` digits, to the string that is being built. */
static void specdec__template_append_zero_padded(specdec__template *t, int64_t number, int digits)
{
    char text[10];
    int i;

    for (i = digits; i-- > 0; number /= 10)
        text[i] = (char)('0' + number % 10);
    specdec__template_append_bytes(t, text, (size_t)digits);
}

/* Computes the Gregorian date of a day counted from 1 January 1970: year, month 1 to 12, day of month 1 to 31, day of
   year 1 to 366. */
static void specdec__template_date_of_day(int64_t days, int64_t *year, int *month, int *day, int *of_year)
{
    static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    const int64_t since = days + 719468;             /* days since 1 March of the year 0 */
    const int64_t era = (since >= 0 ? since : since - 146096) / 146097, in_era = since - era * 146097;
    const int64_t of_era = (in_era - in_era / 1460 + in_era / 36524 - in_era / 146096) / 365;
    const int64_t in_year = in_era - (365 * of_era + of_era / 4 - of_era / 100);
    const int shifted = (int)(5 * in_year + 2) / 153; /* months since March */
    int leap;

    *day = (int)in_year - (153 * shifted + 2) / 5 + 1;
    *month = shifted < 10 ? shifted + 3 : shifted - 9;
    *year = of_era + era * 400 + (*month <= 2);
    leap = *year % 4 == 0 && (*year % 100 != 0 || *year % 400 == 0);
    *of_year = before[*month - 1] + *day + (leap && *month > 2);
}

/* Function strftime_now(FORMAT) of templates: date and time of the caller's clock, with English names. */
static specdec__template_value specdec__template_call_strftime(specdec__template *t, const specdec__template_call *call)
{
    static const char *const months[] = {"January", "February", "March",     "April",   "May",      "June",
                                         "July",    "August",   "September", "October", "November", "December"};
    static const char *const weekdays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                           "Thursday", "Friday", "Saturday"};
    const specdec__template_value format = specdec__template_string_argument(t, call, 0, "format", "");
    const int64_t days = (t->local_time - (t->local_time % 86400 + 86400) % 86400) / 86400;
    const int second = (int)(t->local_time - days * 86400), weekday = (int)(((days + 4) % 7 + 7) % 7),
              hour = second / 3600;
    const char *text = specdec__template_string_bytes(&format);
    const size_t from = t->used;
    int64_t year;
    int month, day, of_year;
    size_t at;

    if (t->local_time == SPECDEC__TEMPLATE_NO_CLOCK)
        return specdec__template_fail_with_culprit(t, "it asks for the date",
                                                   specdec__template_as_bytes("strftime_now", 12));
    specdec__template_date_of_day(days, &year, &month, &day, &of_year);
    for (at = 0; at < format.size && !t->failed; at++) {
        const int plain = text[at] == '%' && at + 2 < format.size && text[at + 1] == '-';
        const int kind = text[at] == '%' && at + 1 + (size_t)plain < format.size ? text[at + 1 + (size_t)plain] : 0;
        int64_t number = -1;

        at += kind ? 1 + (size_t)plain : 0;
        switch (kind) {
        case 'Y': specdec__template_append_integer(t, year); break;
        case 'B': specdec__template_append_text(t, months[month - 1]); break;
        case 'b': case 'h': specdec__template_append_bytes(t, months[month - 1], 3); break;
        case 'A': specdec__template_append_text(t, weekdays[weekday]); break;
        case 'a': specdec__template_append_bytes(t, weekdays[weekday], 3); break;
        case 'p': specdec__template_append_text(t, hour < 12 ? "AM" : "PM"); break;
        case 'F':
            specdec__template_append_zero_padded(t, year, 4);
            specdec__template_append_text(t, "-");
            specdec__template_append_zero_padded(t, month, 2);
            specdec__template_append_text(t, "-");
            specdec__template_append_zero_padded(t, day, 2);
            break;
        case 'T':
            specdec__template_append_zero_padded(t, hour, 2);
            specdec__template_append_text(t, ":");
            specdec__template_append_zero_padded(t, second / 60 % 60, 2);
            specdec__template_append_text(t, ":");
            specdec__template_append_zero_padded(t, second % 60, 2);
            break;
        case 'm': number = month; break;
        case 'd': number = day; break;
        case 'H': number = hour; break;
        case 'I': number = (hour + 11) % 12 + 1; break;
        case 'M': number = second / 60 % 60; break;
        case 'S': number = second % 60; break;
        case 'y': number = (year % 100 + 100) % 100; break;
        case 'j': specdec__template_append_zero_padded(t, of_year, 3); break;
        case 'w': specdec__template_append_integer(t, weekday); break;
        case 'u': specdec__template_append_integer(t, weekday ? weekday : 7); break;
        case 'e':
            if (day < 10)
                specdec__template_append_text(t, " ");
            specdec__template_append_integer(t, day);
            break;
        default: specdec__template_append_bytes(t, text + at, 1); break;
        }
        if (number >= 0 && plain)
            specdec__template_append_integer(t, number);
        else if (number >= 0)
            specdec__template_append_zero_padded(t, number, 2);
    }
    return specdec__template_finish_string(t, from);
}

/* Functions that every template may call, by name. */
static const struct {
    const char *name; /* name of the function */
    specdec__template_value (*call)(specdec__template *t, const specdec__template_call *call);
} specdec__template_functions[] = {{"raise_exception", specdec__template_call_raise_exception},
                                   {"range", specdec__template_call_range},
                                   {"namespace", specdec__template_call_namespace},
                                   {"dict", specdec__template_call_dict},
                                   {"strftime_now", specdec__template_call_strftime}};

/* Returns the value of a name in a template: a variable of the innermost scope that has it, else a function, else
   undefined. */
static specdec__template_value specdec__template_load_name(specdec__template *t, const specdec__template_value *name)
{
    const specdec__template_scope *scope;
    size_t i;

    for (scope = t->scope; scope; scope = scope->parent) {
        const specdec__template_binding *binding = specdec__template_find_variable(scope, name);

        if (binding)
            return binding->value;
    }
    for (i = 0; i < SPECDEC__COUNT(specdec__template_functions); i++)
        if (specdec__template_string_equals(name, specdec__template_functions[i].name))
            return specdec__template_sized_value(SPECDEC__TEMPLATE_FUNCTION, NULL, i);
    return specdec__template_undefined_value_of_name(name);
}

/* ---- Calls. */

/* Appends the arguments that *arguments and **arguments of a call contain to its other arguments, in new memory. */
static void specdec__template_expand_arguments(specdec__template *t, int32_t packed, specdec__template_call *call)
{
    const int count = packed & 255, names = packed >> 8 & 255;
    const specdec__template_value more_named = packed & SPECDEC__TEMPLATE_STARS ? specdec__template_pop_value(t)
                                                                                : specdec__template_undefined_value();
    specdec__template_value more = packed & SPECDEC__TEMPLATE_STAR ? specdec__template_pop_value(t)
                                                                   : specdec__template_undefined_value();
    specdec__template_value *value, *named;
    const specdec__template_value *from;
    size_t i;

    more = specdec__template_items_to_iterate(t, &more);
    if (more_named.kind != SPECDEC__TEMPLATE_UNDEFINED && more_named.kind != SPECDEC__TEMPLATE_DICT)
        specdec__template_fail(t, "**arguments are no dict");
    value = specdec__template_new_list(t, (size_t)count + more.size);
    named = specdec__template_new_list(t, 2 * ((size_t)names + more_named.size));
    if (t->failed || !value || !named || more.size > 255 || more_named.size > 255)
        return;
    from = t->stack + t->value_count - count - 2 * names;
    for (i = 0; i < (size_t)count + more.size; i++)
        value[i] = i < (size_t)count ? from[i] : specdec__template_list_items(&more)[i - (size_t)count];
    for (i = 0; i < 2 * ((size_t)names + more_named.size); i++)
        named[i] = i < 2 * (size_t)names ? from[(size_t)count + i]
                                         : specdec__template_list_items(&more_named)[i - 2 * (size_t)names];
    for (i = 2 * (size_t)names; i < 2 * ((size_t)names + more_named.size); i += 2)
        named[i] = specdec__template_intern_name(t, named[i]);
    call->positional = value;
    call->named = named;
    call->positional_count = count + (int)more.size;
    call->named_count = names + (int)more_named.size;
    t->value_count -= count + 2 * names;
}

/* Pops the arguments of a call from the template's stack; they stay valid until the next push. packed: as returned by
   specdec__template_compile_arguments. */
static specdec__template_call specdec__template_pop_arguments(specdec__template *t, int32_t packed)
{
    specdec__template_call call;

    memset(&call, 0, sizeof call);
    call.positional_count = packed & 255;
    call.named_count = packed >> 8 & 255;
    if (t->value_count < call.positional_count + 2 * call.named_count) {
        specdec__template_fail(t, "its stack is empty");
        return call;
    }
    if (packed & (SPECDEC__TEMPLATE_STAR | SPECDEC__TEMPLATE_STARS)) {
        specdec__template_expand_arguments(t, packed, &call);
        return call;
    }
    t->value_count -= call.positional_count + 2 * call.named_count;
    call.positional = t->stack + t->value_count;
    call.named = call.positional + call.positional_count;
    return call;
}

/* Sets the variables of a macro's parameters to the arguments of a call. Further arguments are an error, unless the
   macro uses varargs or kwargs. */
static void specdec__template_bind_arguments(specdec__template *t, const specdec__template_macro *macro,
                                             const specdec__template_call *call)
{
    const specdec__template_value *names = specdec__template_list_items(&macro->parameters);
    const specdec__template_value varargs = specdec__template_intern_name(t, specdec__template_string_value("varargs"));
    const specdec__template_value kwargs = specdec__template_intern_name(t, specdec__template_string_value("kwargs"));
    specdec__template_value *pairs = specdec__template_new_list(t, 2 * (size_t)call->named_count), *rest, name;
    size_t others = 0, count = macro->parameters.size, k;
    int i;

    for (i = 0; i < call->positional_count && (size_t)i < count; i++)
        specdec__template_set_variable(t, t->scope, &names[i], call->positional[i]);
    if ((size_t)call->positional_count > count && !macro->varargs)
        specdec__template_fail(t, "a macro is given too many arguments");
    for (i = 0; i < call->named_count && pairs && !t->failed; i++) {
        name = call->named[2 * i];
        name.kind = SPECDEC__TEMPLATE_STRING;
        for (k = 0; k < count && (names[k].as.data != name.as.data || names[k].size != name.size); k++)
            ;
        if (k < count ? k < (size_t)call->positional_count
                      : !macro->kwargs && !(macro->caller && specdec__template_string_equals(&name, "caller")))
            specdec__template_fail(t, "a macro is given an argument twice, or one that it has not");
        if (k < count || (macro->caller && specdec__template_string_equals(&name, "caller"))) {
            specdec__template_set_variable(t, t->scope, &name, call->named[2 * i + 1]);
            continue;
        }
        pairs[2 * others] = name;
        pairs[2 * others++ + 1] = call->named[2 * i + 1];
    }
    if (macro->kwargs && !t->failed)
        specdec__template_set_variable(t, t->scope, &kwargs,
                                       specdec__template_sized_value(SPECDEC__TEMPLATE_DICT, pairs, others));
    if (macro->varargs && !t->failed) {
        others = (size_t)call->positional_count > count ? (size_t)call->positional_count - count : 0;
        rest = specdec__template_new_list(t, others);
        if (rest && others)
            memcpy(rest, call->positional + count, others * sizeof *rest);
        specdec__template_set_variable(t, t->scope, &varargs,
                                       specdec__template_sized_value(SPECDEC__TEMPLATE_TUPLE, rest, rest ? others : 0));
    }
}

/* Returns the result of calling loop.cycle(...) or loop.changed(...) in a template. */
static specdec__template_value specdec__template_call_loop_method(specdec__template *t,
                                                                  const specdec__template_value *self,
                                                                  const specdec__template_call *call)
{
    specdec__template_loop *loop = (specdec__template_loop *)(uintptr_t)self->as.data;
    const specdec__template_value list = specdec__template_list_value(call->positional, (size_t)call->positional_count);
    specdec__template_value *own;

    if (self->size == UINT32_MAX)
        return call->positional_count ? call->positional[loop->index % (size_t)call->positional_count]
                           : specdec__template_fail(t, "cycle needs values");
    if (loop->changed_called &&
        specdec__template_values_equal(t, &loop->last_changed, &list, SPECDEC__TEMPLATE_MAX_COMPARED))
        return specdec__template_bool_value(0);
    own = specdec__template_new_list(t, list.size);
    if (own && list.size)
        memcpy(own, list.as.data, list.size * sizeof *own);
    loop->changed_called = 1;
    loop->last_changed = specdec__template_list_value(own, list.size);
    t->kept_bytes = t->used;
    return specdec__template_bool_value(1);
}

/* Calls the value that lies below its arguments on the template's stack. packed: as returned by
   specdec__template_compile_arguments. Returns the index of the next instruction. */
static size_t specdec__template_call_value(specdec__template *t, int32_t packed, size_t next)
{
    const specdec__template_call call = specdec__template_pop_arguments(t, packed);
    const specdec__template_value callee = specdec__template_pop_value(t);
    const specdec__template_closure *closure = (const specdec__template_closure *)callee.as.data;
    specdec__template_value out;
    specdec__template_frame *frame;

    if (t->failed)
        return next;
    if (callee.kind == SPECDEC__TEMPLATE_MACRO) {
        frame = specdec__template_push_frame(t, 'm', closure->scope);
        if (!frame)
            return next;
        frame->return_instruction = next;
        specdec__template_bind_arguments(t, closure->macro, &call);
        frame->memory_floor = t->used;
        return closure->entry;
    }
    if (callee.kind == SPECDEC__TEMPLATE_FUNCTION)
        out = specdec__template_functions[callee.size].call(t, &call);
    else if (callee.kind == SPECDEC__TEMPLATE_METHOD && callee.size >= UINT32_MAX - 1)
        out = specdec__template_call_loop_method(t, &callee, &call);
    else if (callee.kind == SPECDEC__TEMPLATE_METHOD)
        out = specdec__template_methods[callee.size].call(t, specdec__template_list_items(&callee), &call,
                                                          specdec__template_methods[callee.size].how);
    else if (callee.kind == SPECDEC__TEMPLATE_UNDEFINED)
        out = specdec__template_fail_undefined(t, &callee);
    else
        out = specdec__template_fail(t, "it calls what cannot be called");
    specdec__template_push_value(t, out);
    return next;
}

/* ---- Loops. */

/* Begins a loop over the value on the template's stack; choose = 1: a loop that only filters the items. */
static void specdec__template_begin_loop(specdec__template *t, int choose)
{
    const specdec__template_value over = specdec__template_pop_value(t);
    const specdec__template_value list = specdec__template_items_to_iterate(t, &over);
    specdec__template_loop *loop = (specdec__template_loop *)specdec__template_take_memory(t, 1, sizeof *loop);
    specdec__template_value *chosen = choose ? specdec__template_new_list(t, list.size) : NULL;
    specdec__template_frame *frame = t->failed ? NULL : specdec__template_push_frame(t, choose ? 'h' : 'f', t->scope);

    if (!frame || !loop)
        return;
    memset(loop, 0, sizeof *loop);
    loop->items = specdec__template_list_items(&list);
    loop->count = list.size;
    loop->index = SIZE_MAX;
    loop->kept_items = chosen;
    loop->depth = 1;
    frame->loop = loop;
}

/* Begins the next iteration of the innermost loop, and pushes its item onto the stack. Returns 0 when there is none. */
static int specdec__template_next_iteration(specdec__template *t)
{
    specdec__template_frame *frame = &t->frame[t->frame_count - 1];
    const specdec__template_value name = specdec__template_intern_name(t, specdec__template_string_value("loop"));

    if (++frame->loop->index >= frame->loop->count)
        return 0;
    t->scope->first_binding = NULL;
    frame->memory_floor = frame->memory_base + (((size_t)8 - frame->memory_base % 8) % 8) + sizeof *t->scope;
    specdec__template_release_statement_values(t);
    if (frame->kind == 'f')
        specdec__template_set_variable(t, t->scope, &name,
                                       specdec__template_sized_value(SPECDEC__TEMPLATE_LOOP, frame->loop, 1));
    frame->memory_floor = t->used;
    specdec__template_push_value(t, frame->loop->items[frame->loop->index]);
    return 1;
}

/* ---- Running instructions. */

/* Returns the constant of an instruction by its place in the template's memory, in units of 8 bytes. */
static const void *specdec__template_constant_of_place(const specdec__template *t, int32_t place)
{
    return t->memory + (size_t)place * 8;
}

/* Pushes a macro as a value onto the template's stack. place: the macro's place in memory; next: index of the
   instruction behind this one. */
static void specdec__template_push_macro(specdec__template *t, int32_t place, size_t next)
{
    specdec__template_closure *closure = (specdec__template_closure *)specdec__template_take_memory(t, 1,
                                                                                                    sizeof *closure);

    if (!closure)
        return;
    closure->macro = (const specdec__template_macro *)specdec__template_constant_of_place(t, place);
    closure->scope = t->scope;
    closure->entry = next + 1; /* the jump over the body is skipped */
    specdec__template_push_value(t, specdec__template_sized_value(SPECDEC__TEMPLATE_MACRO, closure, 1));
}

/* Replaces `count` values on the template's stack by a list, tuple, dict or slice of them, by the instruction op. */
static void specdec__template_make_collection(specdec__template *t, int op, int32_t count)
{
    const size_t values = (size_t)count * (op == SPECDEC__TEMPLATE_MAKE_DICT ? 2 : 1);
    specdec__template_value *own, out;

    if (values > (size_t)t->value_count) {
        specdec__template_fail(t, "its stack is empty");
        return;
    }
    t->value_count -= (int)values;
    if (op == SPECDEC__TEMPLATE_MAKE_DICT) {
        out = specdec__template_new_dict(t, t->stack + t->value_count, (size_t)count);
    } else {
        own = specdec__template_new_list(t, values);
        if (own && values)
            memcpy(own, t->stack + t->value_count, values * sizeof *own);
        out = specdec__template_sized_value(op == SPECDEC__TEMPLATE_MAKE_LIST    ? SPECDEC__TEMPLATE_LIST
                                            : op == SPECDEC__TEMPLATE_MAKE_TUPLE ? SPECDEC__TEMPLATE_TUPLE
                                                                        : SPECDEC__TEMPLATE_SLICE,
                                            own, own ? values : 0);
    }
    specdec__template_push_value(t, out);
}

/* Pops a list from the template's stack and pushes its items, the first one on top; their number must be `count`. */
static void specdec__template_unpack_list(specdec__template *t, int32_t count)
{
    const specdec__template_value value = specdec__template_pop_value(t);
    const specdec__template_value list = specdec__template_items_to_iterate(t, &value);

    if ((size_t)count != list.size || value.kind == SPECDEC__TEMPLATE_UNDEFINED) {
        specdec__template_fail(t, "it gives another number of values to names");
        return;
    }
    while (count-- > 0)
        specdec__template_push_value(t, specdec__template_list_items(&list)[count]);
}

/* Pops a value from the template's stack and writes it to the output: {{ }}. */
static void specdec__template_write_value(specdec__template *t)
{
    const specdec__template_value value = specdec__template_pop_value(t);
    const specdec__template_value text = specdec__template_to_string(t, &value);

    specdec__template_write_output(t, text.as.data, text.size);
    specdec__template_release_statement_values(t);
}

/* Replaces a value and its arguments on the template's stack by the result of a filter or test. packed: as for a call,
   with the row of the filter or test. */
static void specdec__template_run_filter_or_test(specdec__template *t, int op, int32_t packed)
{
    const specdec__template_call call = specdec__template_pop_arguments(
        t, packed & ((1 << SPECDEC__TEMPLATE_ROW_SHIFT) - 1));
    const specdec__template_value value = specdec__template_pop_value(t);
    const int which = packed >> SPECDEC__TEMPLATE_ROW_SHIFT;

    if (t->failed)
        return;
    specdec__template_push_value(t, op == SPECDEC__TEMPLATE_FILTER
                                  ? specdec__template_run_filter(t, which, &value, &call)
                                  : specdec__template_bool_value(specdec__template_run_test(t, which, &value, &call)));
}

/* Runs an instruction that only computes values on the template's stack. */
static void specdec__template_run_value_instruction(specdec__template *t, int op, int32_t argument)
{
    const specdec__template_value *constant = (const specdec__template_value *)specdec__template_constant_of_place(t,
                                                                                                                   0);
    const specdec__template_value top =
        t->value_count ? t->stack[t->value_count - 1] : specdec__template_undefined_value();
    specdec__template_value below;

    if (op <= SPECDEC__TEMPLATE_STORE_ATTRIBUTE || op == SPECDEC__TEMPLATE_ATTRIBUTE)
        constant = (const specdec__template_value *)specdec__template_constant_of_place(t, argument);
    switch (op) {
    case SPECDEC__TEMPLATE_TEXT: specdec__template_write_output(t, constant->as.data, constant->size); return;
    case SPECDEC__TEMPLATE_EMIT: specdec__template_write_value(t); return;
    case SPECDEC__TEMPLATE_CONSTANT: specdec__template_push_value(t, *constant); return;
    case SPECDEC__TEMPLATE_LOAD: specdec__template_push_value(t, specdec__template_load_name(t, constant)); return;
    case SPECDEC__TEMPLATE_STORE: specdec__template_store_variable(t, constant); return;
    case SPECDEC__TEMPLATE_STORE_ATTRIBUTE: specdec__template_store_attribute(t, constant); return;
    case SPECDEC__TEMPLATE_UNPACK: specdec__template_unpack_list(t, argument); return;
    case SPECDEC__TEMPLATE_MAKE_SLICE: case SPECDEC__TEMPLATE_MAKE_LIST: case SPECDEC__TEMPLATE_MAKE_TUPLE:
    case SPECDEC__TEMPLATE_MAKE_DICT: specdec__template_make_collection(t, op, argument); return;
    case SPECDEC__TEMPLATE_FILTER:
    case SPECDEC__TEMPLATE_TEST: specdec__template_run_filter_or_test(t, op, argument); return;
    default: break;
    }
    specdec__template_pop_value(t);
    switch (op) {
    case SPECDEC__TEMPLATE_NOT:
        specdec__template_push_value(t, specdec__template_bool_value(!specdec__template_is_true(&top)));
        return;
    case SPECDEC__TEMPLATE_NEGATE: case SPECDEC__TEMPLATE_PLUS:
        below = specdec__template_integer_value(0);
        if (op == SPECDEC__TEMPLATE_NEGATE && top.kind == SPECDEC__TEMPLATE_DOUBLE)
            specdec__template_push_value(t, specdec__template_double_value(-top.as.real));
        else
            specdec__template_push_value(t, op == SPECDEC__TEMPLATE_NEGATE ? specdec__template_subtract(t, &below, &top)
                                                                     : specdec__template_add(t, &below, &top));
        return;
    case SPECDEC__TEMPLATE_ATTRIBUTE:
        specdec__template_push_value(t, specdec__template_get_attribute(t, &top, constant, 0));
        return;
    default: break;
    }
    below = specdec__template_pop_value(t);
    if (op == SPECDEC__TEMPLATE_ROTATE)
        specdec__template_push_value(t, top);
    if (op == SPECDEC__TEMPLATE_ROTATE)
        specdec__template_push_value(t, below);
    if (op == SPECDEC__TEMPLATE_ROTATE || op == SPECDEC__TEMPLATE_DROP_BELOW)
        specdec__template_push_value(t, top);
    else if (op == SPECDEC__TEMPLATE_ITEM)
        specdec__template_push_value(t, specdec__template_get_item(t, &below, &top));
    else
        specdec__template_push_value(t, specdec__template_run_binary_operator(t, op, &below, &top));
}

/* Pops the innermost `count` frames of the template. */
static void specdec__template_pop_frames(specdec__template *t, int32_t count)
{
    for (; count > 0 && t->frame_count > 1; count--) {
        if (t->frame[t->frame_count - 1].kind == 'c')
            t->output_bytes = t->frame[t->frame_count - 1].output_base;
        specdec__template_pop_frame(t);
    }
    specdec__template_release_statement_values(t);
}

/* Ends a macro or a captured block: its output becomes a value on the stack. Returns the index of the instruction to
   return to. */
static size_t specdec__template_end_capture_frame(specdec__template *t)
{
    const specdec__template_frame *frame = &t->frame[t->frame_count - 1];

    specdec__template_pop_frame(t);
    t->value_count = (int)frame->stack_base;
    specdec__template_push_value(t, specdec__template_pop_output(t, frame->output_base));
    return frame->return_instruction;
}

/* Runs an instruction that jumps, calls or changes frames. Returns the index of the next instruction. */
static size_t specdec__template_run_flow_instruction(specdec__template *t, int op, int32_t argument, size_t next)
{
    const size_t target = (size_t)((int64_t)next + argument);
    specdec__template_frame *frame = &t->frame[t->frame_count - 1];
    specdec__template_value top;

    switch (op) {
    case SPECDEC__TEMPLATE_JUMP: return target;
    case SPECDEC__TEMPLATE_JUMP_FALSE:
        top = specdec__template_pop_value(t);
        return specdec__template_is_true(&top) ? next : target;
    case SPECDEC__TEMPLATE_KEEP_FALSE: case SPECDEC__TEMPLATE_KEEP_TRUE:
        top = specdec__template_pop_value(t);
        if (specdec__template_is_true(&top) != (op == SPECDEC__TEMPLATE_KEEP_TRUE))
            return next;
        specdec__template_push_value(t, top);
        return target;
    case SPECDEC__TEMPLATE_CALL: return specdec__template_call_value(t, argument, next);
    case SPECDEC__TEMPLATE_FOR: specdec__template_begin_loop(t, 0); return next;
    case SPECDEC__TEMPLATE_CHOOSE: specdec__template_begin_loop(t, 1); return next;
    case SPECDEC__TEMPLATE_NEXT: return specdec__template_next_iteration(t) ? next : target;
    case SPECDEC__TEMPLATE_RAN: frame->loop->completed = 1; return next;
    case SPECDEC__TEMPLATE_END_FOR:
        specdec__template_pop_frame(t);
        specdec__template_release_statement_values(t);
        return frame->loop->completed ? target : next;
    case SPECDEC__TEMPLATE_CHOSEN:
        top = specdec__template_pop_value(t);
        if (specdec__template_is_true(&top))
            frame->loop->kept_items[frame->loop->kept_count++] = frame->loop->items[frame->loop->index];
        return next;
    case SPECDEC__TEMPLATE_END_CHOOSE:
        specdec__template_pop_frame(t);
        specdec__template_push_value(t, specdec__template_list_value(frame->loop->kept_items, frame->loop->kept_count));
        return next;
    case SPECDEC__TEMPLATE_DEFINE: specdec__template_push_macro(t, argument, next); return next;
    case SPECDEC__TEMPLATE_MISSING:
        return next + (size_t)!specdec__template_find_variable(
                          t->scope, (const specdec__template_value *)specdec__template_constant_of_place(t, argument));
    case SPECDEC__TEMPLATE_RETURN: return specdec__template_end_capture_frame(t);
    case SPECDEC__TEMPLATE_SCOPE: specdec__template_push_frame(t, 's', t->scope); return next;
    case SPECDEC__TEMPLATE_CAPTURE: specdec__template_push_frame(t, 'c', t->scope); return next;
    case SPECDEC__TEMPLATE_END_CAPTURE: specdec__template_end_capture_frame(t); return next;
    default: specdec__template_pop_frames(t, argument); return next;
    }
}

/* Runs the compiled instructions from the first to the end. */
static void specdec__template_run_code(specdec__template *t)
{
    size_t next = 0;

    t->value_count = t->frame_count = t->depth = 0;
    t->scope = NULL;
    if (!specdec__template_push_frame(t, 'r', &t->root))
        return;
    while (!t->failed && next < t->code_count) {
        const specdec__template_instruction code = t->code[next++];

        t->source = code.source;
        specdec__template_count_work(t, 0);
        if (code.op == SPECDEC__TEMPLATE_HALT)
            return;
        if ((code.op >= SPECDEC__TEMPLATE_JUMP && code.op <= SPECDEC__TEMPLATE_KEEP_TRUE) ||
            code.op == SPECDEC__TEMPLATE_CALL || code.op >= SPECDEC__TEMPLATE_FOR)
            next = specdec__template_run_flow_instruction(t, (int)code.op, code.argument, next);
        else
            specdec__template_run_value_instruction(t, (int)code.op, code.argument);
    }
}

/* ---- Input values of a template. */

/* Defines a variable of the whole template, such as messages, before the template runs. */
static void specdec__template_define_variable(specdec__template *t, specdec__template_value name,
                                              specdec__template_value value)
{
    name = specdec__template_intern_name(t, name);
    specdec__template_set_variable(t, &t->root, &name, value);
}

/* Returns a string value with a copy of bytes, marked as a message's. */
static specdec__template_value specdec__template_marked_string(specdec__template *t, const void *from, size_t size)
{
    const size_t at = t->used;

    specdec__template_append_marked(t, from, size, 1);
    return specdec__template_finish_string(t, at);
}

/* Returns the constant string of a known role, such as "user", which is not marked, as some templates write control
   tokens with it; NULL: another role. */
static const char *specdec__template_constant_of_role(const char *text, size_t size)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool", "developer"};
    size_t i;

    for (i = 0; i < SPECDEC__COUNT(roles); i++)
        if (strlen(roles[i]) == size && memcmp(roles[i], text, size) == 0)
            return roles[i];
    return NULL;
}

/* Returns the value of a JSON string as a template's string; its bytes are marked as a message's, except for known
   roles. */
static specdec__template_value specdec__template_value_of_json_string(specdec__template *t, const specdec__json *j,
                                                                      size_t node)
{
    const size_t at = t->used, most = j->nodes[node].to - j->nodes[node].from;
    const char *role;
    size_t i;

    if (most > t->limit - t->used)
        return specdec__template_fail(t, "it needs too much memory");
    specdec__template_count_work(t, most);
    t->used += specdec__json_string_value(j, node, (char *)t->memory + at, most);
    role = node > 1 && specdec__json_string_equals(j, node - 1, "role", 4)
               ? specdec__template_constant_of_role((const char *)t->memory + at, t->used - at)
               : NULL;
    if (role) {
        t->used = at;
        return specdec__template_string_value(role);
    }
    for (i = at; i < t->used; i++)
        specdec__template_set_bit(t->marks, i, 1);
    return specdec__template_finish_string(t, at);
}

/* Returns the value of a JSON node as a template's value; arrays and objects stay empty. */
static specdec__template_value specdec__template_value_of_json_node(specdec__template *t, const specdec__json *j,
                                                                    size_t node)
{
    const size_t count = j->nodes[node].count;
    specdec__template_value *items;
    int64_t integer;
    double real;

    switch (j->nodes[node].kind) {
    case SPECDEC__JSON_NULL: return specdec__template_none_value();
    case SPECDEC__JSON_FALSE: return specdec__template_bool_value(0);
    case SPECDEC__JSON_TRUE: return specdec__template_bool_value(1);
    case SPECDEC__JSON_STRING: return specdec__template_value_of_json_string(t, j, node);
    case SPECDEC__JSON_NUMBER:
        if (!j->nodes[node].escaped && specdec__json_read_integer(j, node, &integer))
            return specdec__template_integer_value(integer);
        specdec__json_read_double(j, node, &real);
        return specdec__template_double_value(real);
    default:
        items = specdec__template_new_list(t, count * (j->nodes[node].kind == SPECDEC__JSON_OBJECT ? 2 : 1));
        return specdec__template_sized_value(j->nodes[node].kind == SPECDEC__JSON_OBJECT ? SPECDEC__TEMPLATE_DICT
                                                                               : SPECDEC__TEMPLATE_LIST,
                                             items, items ? count : 0);
    }
}

/* Returns a parsed JSON text as a template's value, with all that its arrays and objects contain. */
static SPECDEC__NOINLINE specdec__template_value specdec__template_value_of_parsed_json(specdec__template *t,
                                                                                        const specdec__json *j)
{
    struct {
        specdec__template_value *next;
        size_t left;
    } open[SPECDEC__TEMPLATE_MAX_NESTED];
    specdec__template_value all = specdec__template_undefined_value(), *slot = &all;
    size_t node;
    int depth = 0;

    for (node = 0; node < j->count && !t->failed; node++) {
        while (depth && !open[depth - 1].left)
            depth--;
        if (depth) {
            slot = open[depth - 1].next++;
            open[depth - 1].left--;
        }
        *slot = specdec__template_value_of_json_node(t, j, node);
        if (slot->kind != SPECDEC__TEMPLATE_LIST && slot->kind != SPECDEC__TEMPLATE_DICT)
            continue;
        if (depth == SPECDEC__TEMPLATE_MAX_NESTED)
            return specdec__template_fail(t, "its messages are too deep");
        open[depth].next = (specdec__template_value *)(uintptr_t)slot->as.data;
        open[depth++].left = (size_t)slot->size * (slot->kind == SPECDEC__TEMPLATE_DICT ? 2 : 1);
    }
    return t->failed ? specdec__template_undefined_value() : all;
}

/* Parses a JSON text and returns it as a template's value; none for an empty text. */
SPECDEC__UNUSED static specdec__template_value specdec__template_read_json(specdec__template *t, specdec__bytes text)
{
    const size_t limit = t->limit;
    specdec__template_value value = specdec__template_none_value();
    specdec__json j;

    memset(&j, 0, sizeof j);
    j.text = text.data;
    j.size = text.size;
    if (!text.data)
        return value;
    if (specdec__json_parse(&j)) {
        j.room = j.count;
        j.nodes = (specdec__json_node *)specdec__template_take_permanent_memory(
            t, specdec__size_multiply(j.room, sizeof *j.nodes));
        if (j.nodes && specdec__json_parse(&j))
            value = specdec__template_value_of_parsed_json(t, &j);
        t->limit = limit;
    } else {
        specdec__template_fail_with_culprit(t, "a JSON text is none",
                                            specdec__template_as_bytes(j.failed, strlen(j.failed)));
    }
    return value;
}

/* ---- Rendering. */

/* Returns the bytes of memory that compiling a chat template of `bytes` bytes, and running it for a few messages,
   needs. */
static SPECDEC__UNUSED size_t specdec__template_memory_needed(size_t bytes)
{
    const size_t most = SPECDEC__TEMPLATE_MAX_BYTES;

    return (bytes < most ? bytes : most) * 8 + 65536;
}

/* Initialises a chat template with its text and memory. memory[size], aligned for pointers, is for its values;
   output[room] receives the text that it writes; plain[] receives a bit for each byte of that text, 1: it comes from a
   message. */
static void specdec__template_init(specdec__template *t, specdec__bytes text, void *memory, size_t size, char *output,
                                   unsigned char *plain, size_t room)
{
    const size_t bytes = size / 9 * 8 / 64 * 64;

    memset(t, 0, sizeof *t);
    t->text = text;
    t->memory = (unsigned char *)memory;
    t->marks = t->memory + bytes;
    t->size = t->limit = bytes < (size_t)1 << 31 ? bytes : (size_t)1 << 31;
    t->output = output;
    t->output_marks = plain;
    t->output_room = room;
    t->local_time = SPECDEC__TEMPLATE_NO_CLOCK;
    specdec__template_compile(t);
    t->input_end = t->used;
}

/* Compiles and runs a chat template whose input is defined. Afterwards t->output holds t->output_bytes bytes; or
   t->failed says why not, and t->line and t->column (from 1, in bytes) say where. */
static void specdec__template_render(specdec__template *t)
{
    size_t i;

    t->input_end = t->kept_bytes = t->used;
    if (!t->failed)
        specdec__template_run_code(t);
    if (!t->failed)
        return;
    t->line = t->column = 1;
    for (i = 0; i < t->source && i < t->text.size; i++) {
        t->column = t->text.data[i] == '\n' ? 1 : t->column + 1;
        t->line += t->text.data[i] == '\n';
    }
}

SPECDEC__FOR_SPEED
