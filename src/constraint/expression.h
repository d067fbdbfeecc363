/* =====================================================================================================================
 * >>constraint/expression: parses regular expressions, as JSON schemas have them, and helps to parse grammars.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../text/unicode.h"
#include "automaton.h"
#include "build.h"

SPECDEC__FOR_SIZE

/* A source text that is being parsed: a grammar or a regular expression. */
typedef struct specdec__source {
    const unsigned char *text; /* (size) the grammar or regular expression */
    size_t size, position;     /* bytes of the text; bytes that were parsed */
    int depth;                 /* number of open brackets */
} specdec__source;

/* Stores an error of the build at the current byte of the source. Returns 0. */
static uint32_t specdec__source_fail(specdec__build *b, const specdec__source *s, const char *why)
{
    if (!b->failed)
        b->error_at = s->position;
    specdec__build_fail(b, SPECDEC_ERROR_FORMAT, why);
    return 0;
}

/* Returns the next byte of a source; -1: the source ends. */
static int specdec__source_peek_byte(const specdec__source *s)
{
    return s->position < s->size ? s->text[s->position] : -1;
}

/* Reads a byte of a source if it is the next one. Returns whether it was. */
static int specdec__source_accept_byte(specdec__source *s, int byte)
{
    if (specdec__source_peek_byte(s) != byte)
        return 0;
    s->position++;
    return 1;
}

/* Reads the next UTF-8 character of a source and returns its code point; invalid UTF-8 is an error. */
static uint32_t specdec__source_read_character(specdec__build *b, specdec__source *s)
{
    const specdec__text_character c = specdec__text_character_at(s->text, s->size, s->position);

    if (!c.size || (c.code == 0xfffd && c.size == 1))
        return specdec__source_fail(b, s, c.size ? "this is not UTF-8" : "it ends too early");
    s->position += (size_t)c.size;
    return c.code;
}

/* Returns the value of a hexadecimal digit; -1: the character is no such digit. */
static int specdec__hex_digit_value(int c)
{
    const int small = c | 32;

    return c >= '0' && c <= '9' ? c - '0' : small >= 'a' && small <= 'f' ? small - 'a' + 10 : -1;
}

/* Reads exactly `digits` hexadecimal digits of a source and returns the number; other characters are an error. */
static uint32_t specdec__source_read_hex(specdec__build *b, specdec__source *s, int digits)
{
    uint32_t value = 0;

    while (digits--) {
        const int digit = specdec__hex_digit_value(specdec__source_peek_byte(s));

        if (digit < 0)
            return specdec__source_fail(b, s, "a hexadecimal digit is missing");
        value = value * 16 + (uint32_t)digit;
        s->position++;
    }
    return value <= SPECDEC__LAST_CODE_POINT ? value : specdec__source_fail(b, s, "there is no such character");
}

/* Reads a decimal number of a source and returns it, at most a billion; UINT32_MAX: there is no digit. */
static uint32_t specdec__source_read_number(specdec__source *s)
{
    uint32_t value = UINT32_MAX;

    for (; specdec__source_peek_byte(s) >= '0' && specdec__source_peek_byte(s) <= '9'; s->position++)
        if ((value = (value == UINT32_MAX ? 0 : value * 10) + (uint32_t)(s->text[s->position] - '0')) > 1000000000)
            value = 100000000; /* stays far above every limit */
    return value;
}

/* Returns an estimate of the number of NFA states of a syntax tree. */
static uint64_t specdec__syntax_count_states(specdec__build *b, uint32_t tree)
{
    const uint32_t *node = b->tree.data + tree;
    const uint32_t kind = node[SPECDEC__SYNTAX_KIND], least = node[SPECDEC__SYNTAX_A], most = node[SPECDEC__SYNTAX_B];
    uint64_t size = kind == SPECDEC__SYNTAX_SET ? node[SPECDEC__SYNTAX_B] : 1;
    uint32_t child;

    for (child = node[SPECDEC__SYNTAX_CHILD]; child && specdec__build_count_work(b, 1);
         child = b->tree.data[child + SPECDEC__SYNTAX_NEXT])
        size += specdec__syntax_count_states(b, child);
    if (kind == SPECDEC__SYNTAX_REPEAT)
        size *= most != UINT32_MAX ? most + (uint64_t)1 : least + (uint64_t)1;
    return size < 1000000000u ? size : 1000000000u;
}

/* Returns a syntax tree that repeats `tree` least to most times. Where copies would take more NFA states than
   b->repeat_limit, it becomes a rule of its own that is counted at run time. */
static uint32_t specdec__syntax_add_repeat(specdec__build *b, specdec__vector *rule_trees, uint32_t tree,
                                           uint32_t least, uint32_t most)
{
    const uint32_t copies = most == UINT32_MAX ? least : most;
    uint32_t at, rule = 0;

    if (b->failed)
        return 0;
    if (b->repeat_limit && copies > 1 && copies * specdec__syntax_count_states(b, tree) > b->repeat_limit) {
        rule = specdec__build_add_rule(b);
        specdec__vector_push(b, rule_trees, tree);
        tree = specdec__syntax_add_node(b, SPECDEC__SYNTAX_RULE, 0, rule, 0);
    }
    at = specdec__syntax_add_node(b, SPECDEC__SYNTAX_REPEAT, tree, least, most);
    if (!rule || b->failed)
        return at;
    b->tree.data[at] = SPECDEC__SYNTAX_COUNTED;
    specdec__build_add_rule(b);
    specdec__vector_push(b, rule_trees, at);
    return specdec__syntax_add_node(b, SPECDEC__SYNTAX_RULE, 0, rule + 1, 0);
}

/* ---- Regular expressions: ECMA-262 without lookaround, back references and \b. */

/* Adds the ranges of the class \d \w \s \D \W or \S. Returns 0 when the letter names no class. */
static int specdec__regex_add_class(specdec__build *b, int c)
{
    static const unsigned short spaces[] = {9, 13, 32, 32, 0xa0, 0xa0, 0x1680, 0x1680, 0x2000, 0x200a, 0x2028, 0x2029,
                                            0x202f, 0x202f, 0x205f, 0x205f, 0x3000, 0x3000, 0xfeff, 0xfeff};
    static const unsigned short words[] = {'0', '9', 'A', 'Z', '_', '_', 'a', 'z'};
    const int small = c | 32;
    const unsigned short *ranges = small == 's' ? spaces : words;
    const uint32_t from = b->ranges.count, count = small == 's' ? 10 : small == 'w' ? 4 : 1;
    uint32_t i;

    if (small != 'd' && small != 'w' && small != 's')
        return 0;
    for (i = 0; i < count; i++)
        specdec__syntax_add_range(b, ranges[2 * i], ranges[2 * i + 1]);
    if (c != small && !b->failed)
        specdec__syntax_negate_ranges(b, from);
    return 1;
}

/* Reads an escape of a regular expression, behind its backslash. Returns its syntax tree. */
static uint32_t specdec__regex_read_escape(specdec__build *b, specdec__source *s)
{
    static const char names[] = "nrtfv0", meant[] = "\n\r\t\f\v";
    const uint32_t c = specdec__source_read_character(b, s);
    const char *known = c && c < 128 ? strchr(names, (int)c) : NULL;

    if (known)
        return (uint32_t)meant[known - names];
    if (c == 'x')
        return specdec__source_read_hex(b, s, 2);
    if (c == 'u' && specdec__source_accept_byte(s, '{')) {
        uint32_t value = 0;

        do {
            value = value * 16 + specdec__source_read_hex(b, s, 1);
        } while (!b->failed && value <= SPECDEC__LAST_CODE_POINT && !specdec__source_accept_byte(s, '}'));
        return value <= SPECDEC__LAST_CODE_POINT ? value : specdec__source_fail(b, s, "there is no such character");
    }
    if (c == 'u') {
        const uint32_t value = specdec__source_read_hex(b, s, 4);

        if (value >> 10 == 0x36 && specdec__source_accept_byte(s, '\\') && specdec__source_accept_byte(s, 'u'))
            return 0x10000 + ((value & 0x3ff) << 10) + (specdec__source_read_hex(b, s, 4) & 0x3ff);
        return value;
    }
    if (c == 'c' && (specdec__source_peek_byte(s) | 32) >= 'a' && (specdec__source_peek_byte(s) | 32) <= 'z')
        return s->text[s->position++] & 31u;
    if (c < 128 && ((c >= '1' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z')))
        return specdec__source_fail(b, s, "this escape is not supported");
    return c;
}

/* Reads a bracket expression, such as [a-z], behind its [. Returns its syntax tree. */
static uint32_t specdec__regex_read_bracket(specdec__build *b, specdec__source *s)
{
    const int negated = specdec__source_accept_byte(s, '^');
    const uint32_t from = b->ranges.count;

    while (!specdec__source_accept_byte(s, ']') && !b->failed) {
        uint32_t low, high;

        if (specdec__source_accept_byte(s, '\\')) {
            if (specdec__regex_add_class(b, specdec__source_peek_byte(s))) {
                s->position++;
                continue;
            }
            low = specdec__source_accept_byte(s, 'b') ? 8 : specdec__regex_read_escape(b, s);
        } else {
            low = specdec__source_read_character(b, s);
        }
        high = low;
        if (s->size - s->position >= 2 && s->text[s->position] == '-' && s->text[s->position + 1] != ']' &&
            !(s->text[s->position + 1] == '\\' && s->size - s->position > 2 &&
              memchr("dwsDWS", s->text[s->position + 2], 6))) {
            s->position++;
            high = specdec__source_accept_byte(s, '\\') ? specdec__regex_read_escape(b, s)
                                                        : specdec__source_read_character(b, s);
            if (high < low)
                return specdec__source_fail(b, s, "a range ends before it begins");
        }
        specdec__syntax_add_range(b, low, high);
    }
    if (negated && !b->failed)
        specdec__syntax_negate_ranges(b, from);
    return specdec__syntax_add_set(b, from);
}

static uint32_t specdec__regex_read_alternatives(specdec__build *b, specdec__source *s, specdec__vector *rule_trees);

/* Reads an atom of a regular expression: a group in parentheses, a set, an anchor, or a character. Returns its syntax
   tree. */
static uint32_t specdec__regex_read_atom(specdec__build *b, specdec__source *s, specdec__vector *rule_trees)
{
    const uint32_t from = b->ranges.count, c = specdec__source_read_character(b, s);
    uint32_t escaped;

    if (c == '(') {
        uint32_t tree;

        if (specdec__source_accept_byte(s, '?')) {
            if (specdec__source_accept_byte(s, '<') && specdec__source_peek_byte(s) != '=' &&
                specdec__source_peek_byte(s) != '!')
                while (!b->failed && specdec__source_read_character(b, s) != '>')
                    ;
            else if (!specdec__source_accept_byte(s, ':'))
                return specdec__source_fail(b, s, "looking ahead or behind is not supported");
        }
        tree = specdec__regex_read_alternatives(b, s, rule_trees);
        if (!specdec__source_accept_byte(s, ')'))
            return specdec__source_fail(b, s, "a bracket is not closed");
        return tree;
    }
    if (c == '[')
        return specdec__regex_read_bracket(b, s);
    if (c == '^')
        return specdec__syntax_add_node(b, SPECDEC__SYNTAX_BEGIN, 0, 0, 0);
    if (c == '$')
        return specdec__syntax_add_node(b, SPECDEC__SYNTAX_END, 0, 0, 0);
    if (c == '.') {
        specdec__syntax_add_range(b, '\n', '\n');
        specdec__syntax_add_range(b, '\r', '\r');
        specdec__syntax_add_range(b, 0x2028, 0x2029);
        if (!b->failed)
            specdec__syntax_negate_ranges(b, from);
        return specdec__syntax_add_set(b, from);
    }
    if (c == '*' || c == '+' || c == '?') {
        s->position--;
        return specdec__source_fail(b, s, "there is nothing to repeat");
    }
    if (c == '\\') {
        if (specdec__regex_add_class(b, specdec__source_peek_byte(s))) {
            s->position++;
            return specdec__syntax_add_set(b, from);
        }
        escaped = specdec__regex_read_escape(b, s);
        return specdec__syntax_add_character(b, escaped, escaped);
    }
    return specdec__syntax_add_character(b, c, c);
}

/* Reads a quantifier (* + ? {n,m}) of a regular expression into *least and *most. Returns 0 when there is none. */
static int specdec__regex_read_quantifier(specdec__source *s, uint32_t *least, uint32_t *most)
{
    const size_t from = s->position;
    const int c = specdec__source_peek_byte(s);

    *most = UINT32_MAX;
    *least = c == '+';
    if (c == '*' || c == '+' || c == '?') {
        *most = c == '?' ? 1 : UINT32_MAX;
        s->position++;
        return 1;
    }
    if (!specdec__source_accept_byte(s, '{'))
        return 0;
    *least = specdec__source_read_number(s);
    if (*least != UINT32_MAX) {
        *most = *least;
        if (specdec__source_accept_byte(s, ','))
            *most = specdec__source_read_number(s);
        if (specdec__source_accept_byte(s, '}'))
            return 1;
    }
    s->position = from; /* the brace is no quantifier: read as a character */
    return 0;
}

/* Reads a concatenation of quantified atoms of a regular expression. Returns its syntax tree. */
static uint32_t specdec__regex_read_concatenation(specdec__build *b, specdec__source *s, specdec__vector *rule_trees)
{
    const uint32_t all = specdec__syntax_add_node(b, SPECDEC__SYNTAX_ALL, 0, 0, 0);

    while (s->position < s->size && s->text[s->position] != '|' && s->text[s->position] != ')' && !b->failed) {
        uint32_t tree = specdec__regex_read_atom(b, s, rule_trees), least, most;

        while (!b->failed && specdec__regex_read_quantifier(s, &least, &most)) {
            if (least > most)
                return specdec__source_fail(b, s, "a repetition's least is above its most");
            tree = specdec__syntax_add_repeat(b, rule_trees, tree, least, most);
            specdec__source_accept_byte(s, '?'); /* lazy or greedy makes no difference to which texts match */
        }
        specdec__syntax_prepend_child(b, all, tree);
    }
    return all;
}

/* Reads alternatives between bars of a regular expression. Returns their syntax tree. */
static uint32_t specdec__regex_read_alternatives(specdec__build *b, specdec__source *s, specdec__vector *rule_trees)
{
    uint32_t any = 0, tree;

    if (++s->depth > SPECDEC__BRACKETS_MOST)
        return specdec__source_fail(b, s, "it is nested too deeply");
    tree = specdec__regex_read_concatenation(b, s, rule_trees);
    while (!b->failed && specdec__source_accept_byte(s, '|')) {
        if (!any)
            specdec__syntax_prepend_child(b, any = specdec__syntax_add_node(b, SPECDEC__SYNTAX_ANY, 0, 0, 0), tree);
        specdec__syntax_prepend_child(b, any, specdec__regex_read_concatenation(b, s, rule_trees));
    }
    s->depth--;
    return any ? any : tree;
}

/* Must every text that a syntax tree matches stand at the beginning (begin = 1) or end (0) of the whole text, because
   of ^ or $? */
static int specdec__regex_is_anchored(specdec__build *b, uint32_t tree, int begin)
{
    const uint32_t *node = b->tree.data + tree;
    const uint32_t kind = node[SPECDEC__SYNTAX_KIND];
    uint32_t child = node[SPECDEC__SYNTAX_CHILD], all = 1;

    if (kind == (begin ? (uint32_t)SPECDEC__SYNTAX_BEGIN : (uint32_t)SPECDEC__SYNTAX_END))
        return 1;
    if (!child || (kind != SPECDEC__SYNTAX_ALL && kind != SPECDEC__SYNTAX_ANY) || !specdec__build_count_work(b, 1))
        return 0;
    if (kind == SPECDEC__SYNTAX_ALL) { /* children are in reverse order */
        while (begin && b->tree.data[child + SPECDEC__SYNTAX_NEXT])
            child = b->tree.data[child + SPECDEC__SYNTAX_NEXT];
        return specdec__regex_is_anchored(b, child, begin);
    }
    for (; child && all; child = b->tree.data[child + SPECDEC__SYNTAX_NEXT])
        all = (uint32_t)specdec__regex_is_anchored(b, child, begin);
    return (int)all;
}

/* Returns a syntax tree that matches any text. */
static uint32_t specdec__syntax_add_any_text(specdec__build *b)
{
    return specdec__syntax_add_node(b, SPECDEC__SYNTAX_REPEAT,
                                    specdec__syntax_add_character(b, 0, SPECDEC__LAST_CODE_POINT), 0, UINT32_MAX);
}

/* Parses a regular expression and returns its syntax tree. whole: the expression must match the whole text; else a part
   of it may match, as in ECMA-262. */
static uint32_t specdec__regex_parse(specdec__build *b, specdec__source *s, specdec__vector *rule_trees, int whole)
{
    const uint32_t tree = specdec__regex_read_alternatives(b, s, rule_trees);
    uint32_t all;

    if (!b->failed && s->position < s->size)
        return specdec__source_fail(b, s, "a bracket is closed that was not opened");
    if (b->failed || whole)
        return tree;
    all = specdec__syntax_add_node(b, SPECDEC__SYNTAX_ALL, 0, 0, 0);
    if (!b->failed && !specdec__regex_is_anchored(b, tree, 1))
        specdec__syntax_prepend_child(b, all, specdec__syntax_add_any_text(b));
    if (b->failed)
        return 0;
    specdec__syntax_prepend_child(b, all, tree);
    /* Children of ALL are in reverse: the text behind the match is prepended last. */
    if (!specdec__regex_is_anchored(b, tree, 0))
        specdec__syntax_prepend_child(b, all, specdec__syntax_add_any_text(b));
    return all;
}

SPECDEC__FOR_SPEED
