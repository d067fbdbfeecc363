/* =====================================================================================================================
 * >>constraint/numbers: JSON numbers between limits, and multiples, as DFAs.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../text/json.h"
#include "automaton.h"
#include "build.h"
#include "expression.h"

SPECDEC__FOR_SIZE

#define SPECDEC__DECIMAL_DIGITS 48 /* digits of a number in a JSON schema, at most */

/* A decimal number: its digits, `whole` of them in front of the point, without leading zeros, `fraction` of them behind
   it, without trailing zeros. */
typedef struct specdec__decimal {
    int negative;        /* 1: with a minus sign */
    int whole, fraction; /* numbers of digits in front of the point, behind it */
    char digits[SPECDEC__DECIMAL_DIGITS]; /* (whole + fraction) '0' to '9' */
} specdec__decimal;

/* Reads the decimal number of a JSON text, with its exponent. Returns 0 when it has too many digits. */
static int specdec__decimal_read(specdec__bytes raw, specdec__decimal *d)
{
    char digits[2 * SPECDEC__DECIMAL_DIGITS];
    int count = 0, point = -1, exponent = 0, sign = 1, from, i;
    size_t at = 0;

    memset(d, 0, sizeof *d);
    if (raw.size && raw.data[0] == '-') {
        d->negative = 1;
        at++;
    }
    for (; at < raw.size && (raw.data[at] | 32) != 'e'; at++) {
        if (raw.data[at] == '.')
            point = count;
        else if (count == SPECDEC__DECIMAL_DIGITS)
            return 0;
        else
            digits[count++] = (char)raw.data[at];
    }
    point = point < 0 ? count : point;
    if (at < raw.size) {
        at++;
        if (at < raw.size && (raw.data[at] == '-' || raw.data[at] == '+'))
            sign = raw.data[at++] == '-' ? -1 : 1;
        for (; at < raw.size; at++)
            exponent = exponent < 1000 ? exponent * 10 + raw.data[at] - '0' : exponent;
    }
    point += sign * exponent;
    while (count && digits[count - 1] == '0')
        count--;
    for (from = 0; from < count && digits[from] == '0'; from++)
        ;
    if (from == count) {
        d->negative = 0;
        return 1;
    }
    if (point - from > SPECDEC__DECIMAL_DIGITS / 2 || count - point > SPECDEC__DECIMAL_DIGITS / 2)
        return 0;
    for (i = point < from ? point : from; i < point || i < count; i++) {
        d->digits[d->whole + d->fraction] = i < from || i >= count ? '0' : digits[i];
        if (i < point)
            d->whole++;
        else
            d->fraction++;
    }
    return 1;
}

/* Compares two decimal numbers. Returns -1, 0 or 1 where a is below, equal to or above c. */
static int specdec__decimal_compare(const specdec__decimal *a, const specdec__decimal *c)
{
    const int sign = a->negative ? -1 : 1;
    int i, order = 0;

    if (a->negative != c->negative)
        return a->negative ? -1 : 1;
    if (a->whole != c->whole)
        return a->whole > c->whole ? sign : -sign;
    for (i = 0; !order && (i < a->whole + a->fraction || i < c->whole + c->fraction); i++) {
        const int one = i < a->whole + a->fraction ? a->digits[i] : '0';
        const int two = i < c->whole + c->fraction ? c->digits[i] : '0';

        order = one > two ? sign : one < two ? -sign : 0;
    }
    return order;
}

/* The text of a regular expression that is being written. */
typedef struct specdec__pattern {
    char text[6000]; /* (size) bytes of the expression so far */
    size_t size;     /* bytes of the expression so far */
} specdec__pattern;

/* Appends a text to the regular expression that is being written. */
static void specdec__pattern_append(specdec__pattern *p, const char *text)
{
    const size_t size = strlen(text);

    if (p->size + size < sizeof p->text) {
        memcpy(p->text + p->size, text, size);
        p->size += size;
    } else {
        p->size = sizeof p->text;
    }
}

/* Appends the set of the characters low to high to a regular expression; an empty set when low is above high. */
static void specdec__pattern_append_range(specdec__pattern *p, int low, int high)
{
    char text[6];

    text[0] = '[';
    text[1] = (char)low;
    text[2] = '-';
    text[3] = (char)high;
    text[4] = ']';
    text[5] = 0;
    specdec__pattern_append(p, low > high ? "[]" : text);
}

/* Appends `count` copies of a text to a regular expression. */
static void specdec__pattern_append_copies(specdec__pattern *p, const char *text, int count)
{
    while (count-- > 0)
        specdec__pattern_append(p, text);
}

/* Appends `count` digits to a regular expression, as they are. */
static void specdec__pattern_append_digits(specdec__pattern *p, const char *digits, int count)
{
    int i;

    for (i = 0; i < count; i++)
        specdec__pattern_append_range(p, digits[i], digits[i]);
}

/* Appends an expression for the fractions that are at least (at_least) or at most 0.digits; strict: above or below. */
static void specdec__pattern_append_fraction(specdec__pattern *p, const char *digits, int count, int at_least,
                                             int strict)
{
    int k;

    specdec__pattern_append(p, "("); /* a point, equal digits, then one that decides */
    for (k = 0; k < count; k++) {
        specdec__pattern_append(p, k ? "|\\." : "\\.");
        specdec__pattern_append_digits(p, digits, k);
        specdec__pattern_append_range(p, at_least ? digits[k] + 1 : '0', at_least ? '9' : digits[k] - 1);
        specdec__pattern_append(p, "\\d*");
    }
    if (at_least || !strict || count)
        specdec__pattern_append(p, count ? "|" : "");
    if (at_least) { /* the same digits, then more of them */
        specdec__pattern_append(p, "\\.");
        specdec__pattern_append_digits(p, digits, count);
        specdec__pattern_append(p, strict ? "\\d*[1-9]\\d*" : count ? "\\d*" : "\\d+|");
    } else {
        for (k = 0; k < count; k++) { /* a part of the digits */
            if (k)
                specdec__pattern_append(p, "\\.");
            specdec__pattern_append_digits(p, digits, k);
            specdec__pattern_append(p, "|");
        }
        if (strict) {
            specdec__pattern_append(p, "[]");
        } else {
            specdec__pattern_append(p, "\\.");
            specdec__pattern_append_digits(p, digits, count);
            specdec__pattern_append(p, count ? "0*" : "0+|");
        }
    }
    specdec__pattern_append(p, ")");
}

/* Appends an expression for the numbers without sign that are at least (at_least) or at most |d|; strict: above or
   below. */
static void specdec__pattern_append_magnitude(specdec__pattern *p, const specdec__decimal *d, int at_least, int strict)
{
    const char *whole = d->whole ? d->digits : "0";
    const int count = d->whole ? d->whole : 1;
    int k;

    specdec__pattern_append(p, "(");
    if (at_least) { /* more digits in front of the point */
        specdec__pattern_append(p, "[1-9]");
        specdec__pattern_append_copies(p, "\\d", count);
        specdec__pattern_append(p, "\\d*(\\.\\d+)?|");
    }
    for (k = 1; !at_least && k < count; k++) { /* fewer digits in front of the point; a single one may be 0 */
        specdec__pattern_append(p, k > 1 ? "[1-9]" : "\\d");
        specdec__pattern_append_copies(p, "\\d", k - 1);
        specdec__pattern_append(p, "(\\.\\d+)?|");
    }
    for (k = 0; k < count; k++) { /* as many digits in front of the point: equal ones, then one that decides */
        specdec__pattern_append_digits(p, whole, k);
        specdec__pattern_append_range(p,
                                      at_least          ? whole[k] + 1
                                      : k || count == 1 ? '0'
                                                        : '1',
                                      at_least ? '9' : whole[k] - 1);
        specdec__pattern_append_copies(p, "\\d", count - k - 1);
        specdec__pattern_append(p, "(\\.\\d+)?|");
    }
    specdec__pattern_append_digits(p, whole, count);
    specdec__pattern_append_fraction(p, d->digits + d->whole, d->fraction, at_least, strict);
    specdec__pattern_append(p, ")");
}

/* Builds the DFA of a regular expression over bytes. Returns 0 when the build failed. */
static int specdec__numbers_regex_dfa(specdec__build *b, specdec__dfa *d, const char *text, size_t size)
{
    specdec__source s;
    specdec__vector none;
    uint32_t tree, start;

    memset(&s, 0, sizeof s);
    memset(&none, 0, sizeof none);
    s.text = (const unsigned char *)text;
    s.size = size;
    tree = specdec__regex_parse(b, &s, &none, 1);
    b->nfa.count = 0;
    start = specdec__nfa_add_state(b, SPECDEC__NFA_ACCEPT, 1, 0);
    start = specdec__nfa_add_tree(b, tree, start);
    return !b->failed && specdec__dfa_build(b, d, start);
}

/* Builds the DFA of numbers, without exponent, that are at least (at_least) or at most d; strict: above or below. */
static SPECDEC__NOINLINE int specdec__numbers_build_limit_dfa(specdec__build *b, specdec__dfa *out,
                                                              const specdec__decimal *d, int at_least, int strict)
{
    specdec__pattern *p = (specdec__pattern *)(void *)specdec__build_reserve_scratch(b, sizeof *p / 4 + 1);
    const int zero = !d->whole && !d->fraction;

    if (!p)
        return 0;
    p->size = 0;
    if (at_least) {
        if (d->negative)
            specdec__pattern_append(p, "(0|[1-9]\\d*)(\\.\\d+)?|-");
        specdec__pattern_append_magnitude(p, d, !d->negative, strict);
    } else if (d->negative) {
        specdec__pattern_append(p, "-");
        specdec__pattern_append_magnitude(p, d, 1, strict);
    } else {
        specdec__pattern_append(p, zero ? "-(0\\.\\d*[1-9]\\d*|[1-9]\\d*(\\.\\d+)?)|" : "-(0|[1-9]\\d*)(\\.\\d+)?|");
        specdec__pattern_append_magnitude(p, d, 0, strict);
    }
    if (p->size == sizeof p->text)
        return specdec__build_fail(b, SPECDEC_ERROR_UNSUPPORTED, "too many digits");
    return specdec__numbers_regex_dfa(b, out, p->text, p->size);
}

#define SPECDEC__MULTIPLE_STATES_MOST 2000 /* states of the DFA of a multipleOf, about unit * (places + 1), at most */

/* Builds the DFA of multiples of unit * 10^-places (JSON Schema's multipleOf), without exponent. States: 1 start; 2
   behind the sign; 3 behind a whole part of 0; from 4 on the remainder of the whole part, modulo unit; then, for 0 to
   `places` digits behind the point, the remainder of all digits; last: zeros behind `places` digits of a multiple.
   Returns 0 when the build failed. */
static int specdec__numbers_build_multiples_dfa(specdec__build *b, specdec__dfa *d, uint32_t unit, uint32_t places)
{
    const uint32_t points = 4 + unit, rest = points + unit * (places + 1), states = rest + 1;
    unsigned char border[257];
    uint32_t i, k, digit, scale;

    memset(border, 0, sizeof border);
    border[(int)'-'] = border['-' + 1] = border['.' + 1] = border['9' + 1] = 1;
    for (i = '0'; i <= '9'; i++)
        border[i] = 1;
    specdec__dfa_begin(b, d);
    specdec__dfa_set_classes(d, border);
    d->states = states;
    d->label.count = 0;
    if (specdec__vector_extend(b, &d->label, states) == UINT32_MAX ||
        specdec__vector_extend(b, &d->next, states * d->classes) == UINT32_MAX)
        return 0;
    memset(d->label.data, 0, (size_t)states * 4);
    memset(d->next.data, 0, (size_t)states * d->classes * 4);
#define SPECDEC__NEXT(state, byte) d->next.data[(size_t)(state) * d->classes + d->class_of[(int)(byte)]]
    SPECDEC__NEXT(1, '-') = 2;
    for (digit = 0; digit < 10; digit++)
        SPECDEC__NEXT(1, '0' + digit) = SPECDEC__NEXT(2, '0' + digit) = digit ? 4 + digit % unit : 3;
    SPECDEC__NEXT(3, '.') = points;
    d->label.data[3] = 1;
    for (i = 0; i < unit; i++) {
        uint64_t value = i;

        for (digit = 0; digit < 10; digit++)
            SPECDEC__NEXT(4 + i, '0' + digit) = 4 + (i * 10 + digit) % unit;
        SPECDEC__NEXT(4 + i, '.') = points + i;
        for (k = 0; k < places; k++)
            value = value * 10 % unit;
        d->label.data[4 + i] = !value;
        for (k = 0; k < places; k++)
            for (digit = 0; digit < 10; digit++)
                SPECDEC__NEXT(points + unit * k + i, '0' + digit) = points + unit * (k + 1) + (i * 10 + digit) % unit;
        for (k = 1; k <= places; k++) {
            for (value = i, scale = k; scale < places; scale++)
                value = value * 10 % unit;
            d->label.data[points + unit * k + i] = !value;
        }
    }
    SPECDEC__NEXT(points + unit * places, '0') = rest; /* further zeros change nothing */
    SPECDEC__NEXT(rest, '0') = rest;
    d->label.data[rest] = 1;
#undef SPECDEC__NEXT
    return specdec__dfa_remove_dead_states(b, d) || !b->failed;
}

SPECDEC__FOR_SPEED
