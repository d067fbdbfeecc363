/* =====================================================================================================================
 * >>constraint/strings: DFAs of the texts that may stand inside a JSON string: by pattern, format, length or list.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "automaton.h"
#include "build.h"
#include "expression.h"

SPECDEC__FOR_SIZE

/* The DFAs of this part read the text of a JSON string between its quotes. Each character is spelled in one way only
   (control characters also as \u00XX), so that products of two DFAs compare equal texts. */

/* Parts of the regular expressions of formats. */
#define SPECDEC__DAY "(0[1-9]|[12]\\d|3[01])"
#define SPECDEC__LEAP "([02468][048]|[13579][26])" /* two digits that are divisible by 4 */
#define SPECDEC__DATE \
    "(\\d{4}-((0[13578]|1[02])-" SPECDEC__DAY "|(0[469]|11)-(0[1-9]|[12]\\d|30)|02-(0[1-9]|1\\d|2[0-8]))" \
    "|(\\d\\d(0[48]|[2468][048]|[13579][26])|" SPECDEC__LEAP "00)-02-29)"
#define SPECDEC__TIME "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d+)?([zZ]|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define SPECDEC__OCTET "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define SPECDEC__IPV4 SPECDEC__OCTET "(\\." SPECDEC__OCTET "){3}"
#define SPECDEC__HEX4 "[0-9a-fA-F]{1,4}"
#define SPECDEC__LS32 "(" SPECDEC__HEX4 ":" SPECDEC__HEX4 "|" SPECDEC__IPV4 ")"
#define SPECDEC__IPV6 \
    "(" SPECDEC__HEX4 ":){6}" SPECDEC__LS32 "|::(" SPECDEC__HEX4 ":){5}" SPECDEC__LS32 \
    "|(" SPECDEC__HEX4 ")?::(" SPECDEC__HEX4 ":){4}" SPECDEC__LS32 \
    "|((" SPECDEC__HEX4 ":){0,1}" SPECDEC__HEX4 ")?::(" SPECDEC__HEX4 ":){3}" SPECDEC__LS32 \
    "|((" SPECDEC__HEX4 ":){0,2}" SPECDEC__HEX4 ")?::(" SPECDEC__HEX4 ":){2}" SPECDEC__LS32 \
    "|((" SPECDEC__HEX4 ":){0,3}" SPECDEC__HEX4 ")?::" SPECDEC__HEX4 ":" SPECDEC__LS32 \
    "|((" SPECDEC__HEX4 ":){0,4}" SPECDEC__HEX4 ")?::" SPECDEC__LS32 \
    "|((" SPECDEC__HEX4 ":){0,5}" SPECDEC__HEX4 ")?::" SPECDEC__HEX4 \
    "|((" SPECDEC__HEX4 ":){0,6}" SPECDEC__HEX4 ")?::"
#define SPECDEC__LABEL "[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
#define SPECDEC__URI_BYTE "([a-zA-Z0-9._~!$&'()*+,;=:@/-]|%[0-9a-fA-F]{2})"
#define SPECDEC__URI_REST "(\\?(" SPECDEC__URI_BYTE "|[?])*)?(#(" SPECDEC__URI_BYTE "|[?])*)?"

/* Values of `format` as regular expressions: RFC 3339 (with leap days, without leap seconds), 4291, 3986, 1123, 9562,
   6901. Schemas with a format whose expression is NULL are refused; names that are not in the table are annotations. */
static const struct specdec__format {
    const char *name, *expression; /* value of the keyword `format`; its regular expression, NULL: not supported */
} specdec__formats[] = {
    {"date", SPECDEC__DATE},
    {"time", SPECDEC__TIME},
    {"date-time", SPECDEC__DATE "[tT]" SPECDEC__TIME},
    {"duration", "P(\\d+W|(\\d+Y(\\d+M(\\d+D)?)?|\\d+M(\\d+D)?|\\d+D)(T(\\d+H(\\d+M(\\d+S)?)?|\\d+M(\\d+S)?|\\d+S))?"
                 "|T(\\d+H(\\d+M(\\d+S)?)?|\\d+M(\\d+S)?|\\d+S))"},
    {"email", "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+(\\.[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+)*@[a-zA-Z0-9]([a-zA-Z0-9-]*"
              "[a-zA-Z0-9])?(\\.[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?)*"},
    {"hostname", SPECDEC__LABEL "(\\." SPECDEC__LABEL ")*"},
    {"ipv4", SPECDEC__IPV4},
    {"ipv6", SPECDEC__IPV6},
    {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
    {"uri", "[a-zA-Z][a-zA-Z0-9+.-]*:(" SPECDEC__URI_BYTE "|\\[[0-9a-fA-F:.]+\\])*" SPECDEC__URI_REST},
    {"uri-reference", "([a-zA-Z][a-zA-Z0-9+.-]*:)?(" SPECDEC__URI_BYTE "|\\[[0-9a-fA-F:.]+\\])*" SPECDEC__URI_REST},
    {"uri-template", "([a-zA-Z0-9._~!$&()*+,;=:@/?#\\[\\]-]|%[0-9a-fA-F]{2}|\\{[+#./;?&=,!@|]?[a-zA-Z0-9_%]"
                     "[a-zA-Z0-9_.%,:*]*\\})*"},
    {"json-pointer", "(/([^~/]|~[01])*)*"},
    {"regex", NULL}, {"iri", NULL}, {"iri-reference", NULL}, {"idn-email", NULL}, {"idn-hostname", NULL},
    {"relative-json-pointer", NULL}};

/* Builds the DFA of a syntax tree, with characters spelled as in a JSON string. Returns 0 when the build failed. */
static int specdec__strings_tree_dfa(specdec__build *b, specdec__dfa *d, uint32_t tree)
{
    uint32_t start;

    b->nfa.count = 0;
    b->json_strings = !b->raw_strings;
    start = specdec__nfa_add_state(b, SPECDEC__NFA_ACCEPT, 1, 0);
    start = specdec__nfa_add_tree(b, tree, start);
    b->json_strings = 0;
    return !b->failed && specdec__dfa_build(b, d, start) && (specdec__dfa_remove_dead_states(b, d) || !b->failed);
}

/* Computes how many characters the texts that a syntax tree matches have: least and most; *most UINT32_MAX: no
   limit. */
static void specdec__syntax_text_lengths(specdec__build *b, uint32_t tree, uint32_t *least, uint32_t *most)
{
    const uint32_t *node = b->tree.data + tree;
    const uint32_t kind = node[SPECDEC__SYNTAX_KIND], a = node[SPECDEC__SYNTAX_A], more = node[SPECDEC__SYNTAX_B];
    uint32_t child = node[SPECDEC__SYNTAX_CHILD], low, high;
    uint64_t sum = 0, top = 0;
    int first = 1;

    *least = *most = kind == SPECDEC__SYNTAX_SET;
    if (kind == SPECDEC__SYNTAX_SET || !child || !specdec__build_count_work(b, 1))
        return;
    for (; child; child = b->tree.data[child + SPECDEC__SYNTAX_NEXT], first = 0) {
        specdec__syntax_text_lengths(b, child, &low, &high);
        if (kind == SPECDEC__SYNTAX_ANY) {
            sum = first || low < sum ? low : sum;
            top = high > top ? high : top;
        } else {
            sum += low;
            top = high == UINT32_MAX ? UINT32_MAX : top + high;
        }
        top = top > UINT32_MAX ? UINT32_MAX : top;
    }
    if (kind == SPECDEC__SYNTAX_REPEAT) {
        sum *= a;
        top = !top ? 0 : top == UINT32_MAX || more == UINT32_MAX ? UINT32_MAX : top * more;
    }
    *least = sum < UINT32_MAX ? (uint32_t)sum : UINT32_MAX - 1;
    *most = top < UINT32_MAX ? (uint32_t)top : UINT32_MAX;
}

/* Returns a syntax tree that matches one text, byte by byte. */
static uint32_t specdec__syntax_add_text(specdec__build *b, const unsigned char *text, size_t size)
{
    const uint32_t all = specdec__syntax_add_node(b, SPECDEC__SYNTAX_ALL, 0, 0, 0);
    size_t at = 0;

    while (at < size && !b->failed) {
        const specdec__text_character c = specdec__text_character_at(text, size, at);

        specdec__syntax_prepend_child(b, all, specdec__syntax_add_character(b, c.code, c.code));
        at += (size_t)c.size;
    }
    return all;
}

/* Builds the DFA of JSON strings of least to most characters. Returns 0 when the build failed. */
static int specdec__strings_length_dfa(specdec__build *b, specdec__dfa *d, uint32_t least, uint32_t most)
{
    const uint32_t one = specdec__syntax_add_character(b, 0, SPECDEC__LAST_CODE_POINT);

    return specdec__strings_tree_dfa(b, d, specdec__syntax_add_node(b, SPECDEC__SYNTAX_REPEAT, one, least, most));
}

/* Intersects *d with another DFA, or (without = 1) with its complement. *any is 0 while *d is not set: then *d becomes
   the other DFA or its complement. Returns 0 when the build failed. */
static int specdec__strings_intersect(specdec__build *b, specdec__dfa *d, int *any, const specdec__dfa *other,
                                      int without)
{
    specdec__dfa old;

    if (!*any && !without) {
        *d = *other;
        *any = 1;
        return 1;
    }
    if (!*any && !specdec__strings_length_dfa(b, d, 0, UINT32_MAX))
        return 0;
    *any = 1;
    old = *d;
    return specdec__dfa_product(b, d, &old, other, without ? SPECDEC__DFA_WITHOUT : SPECDEC__DFA_BOTH) &&
           (specdec__dfa_remove_dead_states(b, d) || !b->failed);
}

/* Adds the states that every JSON constraint has: inside a string, a rule of any string, a rule of one character. body:
   receives the DFA between the quotes; place: its states. These strings may have any escape of JSON. */
static void specdec__strings_add_any_string_states(specdec__build *b, specdec__dfa *body, uint32_t **place)
{
    static const char character[] =
        "[\\u{20}-\\u{21}\\u{23}-\\u{5b}\\u{5d}-\\u{10ffff}]|\\\\([\"\\\\/bfnrt]|u([0-9a-cA-CefEF][0-9a-fA-F]{3}"
        "|[dD][0-7][0-9a-fA-F]{2}|[dD][89abAB][0-9a-fA-F]{2}\\\\u[dD][c-fC-F][0-9a-fA-F]{2}))";
    specdec__source s;
    specdec__vector none;
    uint32_t tree, all, end, ends[1], rule, start, i;

    memset(&s, 0, sizeof s);
    memset(&none, 0, sizeof none);
    s.text = (const unsigned char *)character;
    s.size = sizeof character - 1;
    tree = specdec__regex_parse(b, &s, &none, 1);
    rule = specdec__build_add_rule(b);
    end = specdec__build_add_state(b, SPECDEC__RECORD_PLAIN | SPECDEC__RECORD_MAY_END, 2);
    all = specdec__syntax_add_node(b, SPECDEC__SYNTAX_REPEAT, tree, 0, UINT32_MAX);
    b->nfa.count = 0;
    start = specdec__nfa_add_state(b, SPECDEC__NFA_ACCEPT, 1, 0);
    start = specdec__nfa_add_tree(b, all, start);
    if (b->failed || !specdec__dfa_build(b, body, start))
        return;
    ends[0] = end;
    specdec__dfa_write_records(b, body, ends, place);
    /* The first state and the state behind a character differ in their number only: they become one. */
    start = b->failed ? 0 : specdec__dfa_read_text(body, 1, (const unsigned char *)"a", 1);
    if (b->failed)
        return;
    b->string_body = (*place)[start];
    (*place)[1] = b->string_body;
    b->words[b->string_body] |= SPECDEC__RECORD_IN_STRING;
    b->string_quote = specdec__build_add_state(b, SPECDEC__RECORD_PLAIN | 1u << 16, 4);
    if (b->failed)
        return;
    b->words[b->string_quote + 2] = '"' | '"' << 8;
    b->words[b->string_quote + 3] = b->string_body;
    b->rules.data[rule] = b->string_quote;
    b->string_character = specdec__build_add_rule(b);
    specdec__build_rule_from_tree(b, b->string_character, tree);
    for (i = 0; i < 2 && !b->failed; i++)
        b->nullable.data[i] = 0;
}

/* Builds states that read a JSON string of least to most characters, counted at run time. Returns the first state. */
static uint32_t specdec__strings_add_counted_states(specdec__build *b, uint32_t least, uint32_t most)
{
    const uint32_t rule = specdec__build_add_rule(b);
    const uint32_t end = specdec__build_add_state(b, SPECDEC__RECORD_PLAIN | SPECDEC__RECORD_MAY_END, 2);
    const uint32_t start = specdec__build_add_state(b, SPECDEC__RECORD_REPEAT | SPECDEC__RECORD_COUNTED_STRING, 5);
    const uint32_t after = specdec__build_add_state(b, SPECDEC__RECORD_AFTER_REPEAT | SPECDEC__RECORD_COUNTED_STRING,
                                                    5);
    const uint32_t last = specdec__build_add_state(b, SPECDEC__RECORD_PLAIN | 1u << 16, 4);
    const uint32_t inside = specdec__build_add_state(
        b, SPECDEC__RECORD_PLAIN | SPECDEC__RECORD_COUNTED_STRING | (least ? 0u : 1u) << 16, least ? 4 : 6);
    const uint32_t quote = specdec__build_add_state(b, SPECDEC__RECORD_PLAIN | 1u << 16, 4);
    uint32_t i, at;

    if (b->failed)
        return 0;
    for (i = 0; i < 2; i++) {
        uint32_t *record = b->words + (i ? after : start);

        record[1] = b->rules.data[b->string_character];
        record[2] = least;
        record[3] = most;
        record[4] = after;
    }
    b->rules.data[rule] = start;
    b->words[quote + 2] = b->words[last + 2] = '"' | '"' << 8;
    b->words[quote + 3] = inside;
    b->words[last + 3] = end;
    at = inside + 2;
    if (!least) {
        b->words[at++] = '"' | '"' << 8;
        b->words[at++] = end;
    }
    b->words[inside + 1] = 1;
    b->words[at++] = rule;
    b->words[at] = last;
    return quote;
}

SPECDEC__FOR_SPEED
