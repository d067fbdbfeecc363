/* =====================================================================================================================
 * >>constraint/values: builds the rules of strings, numbers, arrays and listed values that obey the facts of a shape.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../text/json.h"
#include "../text/answer.h"
#include "automaton.h"
#include "build.h"
#include "expression.h"
#include "strings.h"
#include "numbers.h"
#include "schema.h"

SPECDEC__FOR_SIZE

/* Adds an alternative, by its first state, to the rule that is being built. */
static void specdec__schema_add_alternative(specdec__schema *s, uint32_t state)
{
    if (state && !s->build->failed)
        specdec__vector_push(s->build, &s->alternatives, state);
}

/* Adds a state with one edge: the byte leads to `target`. Returns the state. */
static uint32_t specdec__schema_add_state_with_byte(specdec__schema *s, unsigned byte, uint32_t target)
{
    const uint32_t state = specdec__build_add_state(s->build, SPECDEC__RECORD_PLAIN | 1u << 16, 4);

    if (state) {
        s->build->words[state + 2] = byte | byte << 8;
        s->build->words[state + 3] = target;
    }
    return state;
}

/* Adds a state in which white space may stand if the constraint allows it, followed by a byte that leads to `target`;
   byte < 0: followed by a tail call of rule `target`. Returns the state. */
static uint32_t specdec__schema_add_state_with_space(specdec__schema *s, int byte, uint32_t target)
{
    static const unsigned char low[] = {9, 13, ' '}, high[] = {10, 13, ' '};
    const uint32_t spaces = s->allows_space ? 3 : 0, edges = spaces + (byte >= 0);
    const uint32_t state = specdec__build_add_state(s->build, SPECDEC__RECORD_PLAIN | edges << 16, 4 + 2 * spaces);
    uint32_t i, *record = s->build->words + state;

    if (!state)
        return 0;
    for (i = 0; i < spaces; i++) {
        record[2 + 2 * i] = low[i] | (uint32_t)high[i] << 8;
        record[3 + 2 * i] = state;
    }
    if (byte >= 0) {
        record[2 + 2 * i] = (uint32_t)byte | (uint32_t)byte << 8;
        record[3 + 2 * i] = target;
    } else {
        record[1] = 1;
        record[2 + 2 * i] = target;
    }
    return state;
}

/* Returns the state in front of a value that a rule describes; colon = 1: the state in front of the colon before the
   value. It is added when it is asked for first. */
static uint32_t specdec__schema_get_state_before_value(specdec__schema *s, uint32_t rule, int colon)
{
    uint32_t at;

    while (s->value_states.count < 2 * (rule + 1) && !s->build->failed)
        specdec__vector_push(s->build, &s->value_states, 0);
    if (s->build->failed)
        return 0;
    at = s->value_states.data[2 * rule];
    if (!at) {
        at = specdec__schema_add_state_with_space(s, -1, rule);
        s->value_states.data[2 * rule] = at;
        s->value_states.data[2 * rule + 1] = specdec__schema_add_state_with_space(s, ':', at);
    }
    return s->value_states.data[2 * rule + (colon != 0)];
}

/* ---- Strings. */

/* Returns the text of the JSON string at a node as the model must write it, *size bytes: with JSON's escapes; without
   escapes in raw strings. */
static unsigned char *specdec__schema_spell_string(specdec__schema *s, uint32_t node, size_t *size)
{
    static const char meant[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt", digits[] = "0123456789abcdef";
    const specdec__bytes raw = specdec__json_value_text(&s->json, node);
    unsigned char *text = (unsigned char *)specdec__build_reserve_scratch(s->build, raw.size / 4 + 1);
    unsigned char *out = (unsigned char *)specdec__build_reserve_scratch(s->build, 6 * raw.size / 4 + 1);
    size_t count, i, at = 0;

    *size = 0;
    if (!text || !out)
        return NULL;
    count = specdec__json_string_value(&s->json, node, (char *)text, raw.size);
    for (i = 0; i < count; i++) {
        const char *known = text[i] && !s->build->raw_strings ? strchr(meant, text[i]) : NULL;

        if (known) {
            out[at++] = '\\';
            out[at++] = (unsigned char)names[known - meant];
        } else if (text[i] < 32 && !s->build->raw_strings) {
            memcpy(out + at, "\\u00", 4);
            out[at + 4] = (unsigned char)digits[text[i] >> 4];
            out[at + 5] = (unsigned char)digits[text[i] & 15];
            at += 6;
        } else {
            out[at++] = text[i];
        }
    }
    *size = at;
    return out;
}

/* Returns the syntax tree of a pattern or format. 0 without an error: the format's name is an annotation. */
static uint32_t specdec__schema_parse_pattern(specdec__schema *s, const specdec__fact *fact, int format)
{
    specdec__source source;
    specdec__vector none;
    unsigned char *text;
    uint32_t tree;
    size_t size, i;

    memset(&source, 0, sizeof source);
    memset(&none, 0, sizeof none);
    if (specdec__schema_json_node(s, fact->node)->kind != SPECDEC__JSON_STRING)
        return (uint32_t)specdec__schema_fail_keyword(s, fact->node, NULL, SPECDEC_ERROR_FORMAT,
                                                      "this must be a string");
    size = specdec__json_value_text(&s->json, fact->node).size;
    text = (unsigned char *)specdec__build_reserve_scratch(s->build, size / 4 + 1);
    if (!text)
        return 0;
    source.text = text;
    source.size = specdec__json_string_value(&s->json, fact->node, (char *)text, size);
    if (format) {
        for (i = 0; i < SPECDEC__COUNT(specdec__formats); i++)
            if (source.size == strlen(specdec__formats[i].name) &&
                memcmp(specdec__formats[i].name, text, source.size) == 0)
                break;
        if (i == SPECDEC__COUNT(specdec__formats))
            return 0;
        if (!specdec__formats[i].expression)
            return (uint32_t)specdec__schema_fail_keyword(s, fact->owner, "format", SPECDEC_ERROR_UNSUPPORTED,
                                                          "it is not supported");
        source.text = (const unsigned char *)specdec__formats[i].expression;
        source.size = strlen(specdec__formats[i].expression);
    }
    tree = specdec__regex_parse(s->build, &source, &none, format);
    if (s->build->failed && !s->error_key) {
        s->error_node = fact->owner;
        s->error_key = "pattern";
        if (s->build->failed == SPECDEC_ERROR_FORMAT)
            s->build->failed = SPECDEC_ERROR_UNSUPPORTED;
    }
    return tree;
}

/* Builds the DFA of the string at a JSON node, or (list = 1) of all strings of an array. Returns 0 when the build
   failed. */
static int specdec__schema_build_listed_strings_dfa(specdec__schema *s, specdec__dfa *d, uint32_t node, int list)
{
    specdec__build *b = s->build;
    const uint32_t any = specdec__syntax_add_node(b, SPECDEC__SYNTAX_ANY, 0, 0, 0);
    uint32_t at = 0, start;

    if (!list)
        at = node;
    while (!b->failed && (!list || specdec__schema_next_child(s, node, &at))) {
        size_t size;
        unsigned char *text;

        if (specdec__schema_json_node(s, at)->kind == SPECDEC__JSON_STRING &&
            (text = specdec__schema_spell_string(s, at, &size)) != NULL)
            specdec__syntax_prepend_child(b, any, specdec__syntax_add_text(b, text, size));
        if (!list)
            break;
    }
    if (!b->failed && !b->tree.data[any + SPECDEC__SYNTAX_CHILD])
        specdec__syntax_prepend_child(b, any, specdec__syntax_add_set(b, b->ranges.count));
    b->nfa.count = 0;
    start = specdec__nfa_add_state(b, SPECDEC__NFA_ACCEPT, 1, 0);
    start = specdec__nfa_add_tree(b, any, start);
    return !b->failed && specdec__dfa_build(b, d, start);
}

/* Intersects *d with the strings that obey a fact. Lengths are not in *d but collected in length[4]: least, most, and
   the least and most that patterns already imply. Returns 0 when no string obeys the fact. */
static int specdec__schema_apply_string_fact(specdec__schema *s, const specdec__fact *fact, specdec__dfa *d, int *any,
                                             uint32_t *length)
{
    specdec__build *b = s->build;
    specdec__dfa one;
    uint32_t tree, least, most, count;

    switch (fact->kind) {
    case SPECDEC__KEY_MIN_LENGTH: case SPECDEC__KEY_MAX_LENGTH:
        count = specdec__schema_read_count(s, fact);
        if ((fact->kind == SPECDEC__KEY_MIN_LENGTH) != (fact->more != 0))
            length[0] = count + fact->more > length[0] ? count + fact->more : length[0];
        else
            length[1] = count - fact->more < length[1] ? count - fact->more : length[1];
        return 1;
    case SPECDEC__KEY_PATTERN: case SPECDEC__KEY_FORMAT:
        tree = specdec__schema_parse_pattern(s, fact, fact->kind == SPECDEC__KEY_FORMAT);
        if (!tree)
            return !fact->more;
        if (!fact->more) {
            specdec__syntax_text_lengths(b, tree, &least, &most);
            length[2] = least > length[2] ? least : length[2];
            length[3] = most < length[3] ? most : length[3];
        }
        return specdec__strings_tree_dfa(b, &one, tree) && specdec__strings_intersect(b, d, any, &one, (int)fact->more);
    case SPECDEC__KEY_ENUM: case SPECDEC__KEY_CONST:
        return specdec__schema_build_listed_strings_dfa(s, &one, fact->node, fact->kind == SPECDEC__KEY_ENUM) &&
               specdec__strings_intersect(b, d, any, &one, (int)fact->more);
    default: return 1;
    }
}

/* Intersects *d with the strings of the collected lengths, unless patterns already imply these lengths. */
static void specdec__schema_limit_length(specdec__schema *s, specdec__dfa *d, int *any, const uint32_t *length,
                                         uint32_t owner)
{
    specdec__dfa one;

    if (length[2] >= length[0] && length[3] <= length[1])
        return;
    if (!specdec__strings_length_dfa(s->build, &one, length[0], length[1]) ||
        !specdec__strings_intersect(s->build, d, any, &one, 0))
        if (s->build->failed == SPECDEC_ERROR_UNSUPPORTED && !s->error_key) {
            s->error_node = owner;
            s->error_key = "maxLength";
        }
}

/* ---- Raw strings: without quotes and escapes, between the marks of tool calls. */

/* Returns the mark in front of a raw string, in the current style of values. */
static const char *specdec__raw_string_open_mark(const specdec__schema *s)
{
    return s->style == SPECDEC__STYLE_LITERAL ? SPECDEC__CALL_TEXT(s->calls, VALUE_BEGIN) : "";
}

/* Adds states to the NFA that accept the texts of a DFA, followed by the state `next`. The DFA has no calls, and an
   accepting state can be reached from all of its states. */
static uint32_t specdec__nfa_add_dfa(specdec__build *b, const specdec__dfa *d, uint32_t next)
{
    const uint32_t first = b->nfa.count;
    uint32_t state, c;

    for (state = 0; state < d->states && !b->failed; state++)
        specdec__nfa_add_state(b, SPECDEC__NFA_SPLIT, 0, 0);
    for (state = 1; state < d->states && !b->failed; state++) {
        const uint32_t *targets = d->next.data + (size_t)state * d->classes;
        uint32_t all = d->label.data[state] ? next : UINT32_MAX, high;

        for (c = 0; c < d->classes && !b->failed; c++) {
            const uint32_t low = d->class_first[c], target = targets[c];

            while (c + 1 < d->classes && targets[c + 1] == target)
                c++;
            high = specdec__dfa_last_byte_of_class(d, c);
            if (target)
                all = specdec__nfa_add_split(
                    b, all,
                    specdec__nfa_add_state(b, SPECDEC__NFA_BYTE | low << 8 | high << 16, first + 3 * target, 0));
        }
        if (all == UINT32_MAX) /* no class leads on */
            all = specdec__nfa_add_state(b, SPECDEC__NFA_BYTE | 1u << 8, 0, 0);
        if (!b->failed)
            b->nfa.data[first + 3 * state + 1] = b->nfa.data[first + 3 * state + 2] = all;
    }
    return first + 3;
}

/* Adds states to the NFA that read a text, followed by the state `next`. Returns the first one. */
static uint32_t specdec__nfa_add_text(specdec__build *b, const char *text, uint32_t next)
{
    size_t i;

    for (i = strlen(text); i-- > 0;) {
        const uint32_t byte = (unsigned char)text[i];

        next = specdec__nfa_add_state(b, SPECDEC__NFA_BYTE | byte << 8 | byte << 16, next, 0);
    }
    return next;
}

/* Removes the texts that a regular expression matches from the DFA *d. Returns 0 when no text is left. */
static int specdec__raw_string_remove_matches(specdec__schema *s, specdec__dfa *d, const char *text)
{
    specdec__dfa other, old = *d;

    return specdec__numbers_regex_dfa(s->build, &other, text, strlen(text)) &&
           specdec__dfa_product(s->build, d, &old, &other, SPECDEC__DFA_WITHOUT) &&
           specdec__dfa_remove_dead_states(s->build, d);
}

/* Regular expressions of white space and of any text, for raw strings. */
#define SPECDEC__RAW_SPACE "[ \\t\\n\\r]*"
#define SPECDEC__RAW_ANY "[\\u{0}-\\u{10ffff}]*"

/* A regular expression of raw strings that the splitter would read as a number, array or other value
   (specdec__answer_read_value_byte). */
static const char specdec__raw_ambiguous_regex[] =
    SPECDEC__RAW_SPACE "(-?\\d+(\\.\\d+)?([eE][+-]?\\d+)?|true|false|null)" SPECDEC__RAW_SPACE
    "|" SPECDEC__RAW_SPACE "[\\[{]" SPECDEC__RAW_ANY "|" SPECDEC__RAW_SPACE "[-+.eE0-9]{48}" SPECDEC__RAW_ANY;

/* Puts the marks around the texts of *d. Texts that contain the closing mark are removed, as a reader would stop there.
   Where the form puts a value between line ends, the reader strips one on either side: texts that begin or end with a
   line end must be written so. */
static int specdec__raw_string_add_marks(specdec__schema *s, specdec__dfa *d)
{
    specdec__build *b = s->build;
    const uint32_t lines = s->style == SPECDEC__STYLE_TEXT && s->calls->flags & SPECDEC__CALLS_LINES;
    const char *close = SPECDEC__CALL_TEXT(s->calls, VALUE_END);
    const uint32_t any = specdec__syntax_add_character(b, 0, SPECDEC__LAST_CODE_POINT);
    const uint32_t more = specdec__syntax_add_character(b, 0, SPECDEC__LAST_CODE_POINT);
    const uint32_t all = specdec__syntax_add_node(b, SPECDEC__SYNTAX_ALL, 0, 0, 0);
    specdec__dfa made, other, bare = *d;
    uint32_t end, start, within = UINT32_MAX;

    if (lines && !specdec__raw_string_remove_matches(s, &bare, "\\n" SPECDEC__RAW_ANY "|" SPECDEC__RAW_ANY "\\n"))
        bare.states = 0;
    b->nfa.count = 0;
    end = specdec__nfa_add_text(b, close, specdec__nfa_add_state(b, SPECDEC__NFA_ACCEPT, 1, 0));
    if (lines)
        within = specdec__nfa_add_text(b, "\n", specdec__nfa_add_dfa(b, d, specdec__nfa_add_text(b, "\n", end)));
    if (bare.states > 1)
        within = specdec__nfa_add_split(b, within, specdec__nfa_add_dfa(b, &bare, end));
    start = specdec__nfa_add_text(b, specdec__raw_string_open_mark(s), within);
    if (b->failed || !specdec__dfa_build(b, &made, start))
        return 0;
    specdec__syntax_prepend_child(b, all,
                                  specdec__syntax_add_text(b, (const unsigned char *)specdec__raw_string_open_mark(s),
                                                           strlen(specdec__raw_string_open_mark(s))));
    specdec__syntax_prepend_child(b, all, specdec__syntax_add_node(b, SPECDEC__SYNTAX_REPEAT, any, 0, UINT32_MAX));
    specdec__syntax_prepend_child(b, all, specdec__syntax_add_text(b, (const unsigned char *)close, strlen(close)));
    specdec__syntax_prepend_child(b, all, specdec__syntax_add_node(b, SPECDEC__SYNTAX_REPEAT, more, 1, UINT32_MAX));
    b->nfa.count = 0;
    start = specdec__nfa_add_state(b, SPECDEC__NFA_ACCEPT, 1, 0);
    start = specdec__nfa_add_tree(b, all, start);
    return !b->failed && specdec__dfa_build(b, &other, start) &&
           specdec__dfa_product(b, d, &made, &other, SPECDEC__DFA_WITHOUT) && specdec__dfa_remove_dead_states(b, d);
}

/* Adds the raw strings that the DFA *d accepts (any = 0: all strings), and that have the collected lengths, to the
   current rule. */
static void specdec__raw_string_add_alternatives(specdec__schema *s, specdec__dfa *d, int any, const uint32_t *length,
                                                 uint32_t owner)
{
    if (!any)
        specdec__strings_length_dfa(s->build, d, length[0], length[1]);
    else
        specdec__schema_limit_length(s, d, &any, length, owner);
    if (s->build->failed == SPECDEC_ERROR_UNSUPPORTED && !s->error_key) {
        s->error_node = owner;
        s->error_key = "maxLength";
    }
    if (s->build->failed || !specdec__dfa_remove_dead_states(s->build, d))
        return;
    if (s->ambiguous && !specdec__raw_string_remove_matches(s, d, specdec__raw_ambiguous_regex))
        return;
    if (specdec__raw_string_add_marks(s, d))
        specdec__schema_add_alternative(s, specdec__dfa_write_records(s->build, d, NULL, NULL));
}

/* Returns the rule of any raw string with the marks around it. */
static uint32_t specdec__raw_string_any_rule(specdec__schema *s)
{
    specdec__dfa d;
    uint32_t rule;

    if (s->raw_string_rule)
        return s->raw_string_rule;
    rule = specdec__build_add_rule(s->build);
    if (specdec__strings_length_dfa(s->build, &d, 0, UINT32_MAX) && specdec__raw_string_add_marks(s, &d))
        s->build->rules.data[rule] = specdec__dfa_write_records(s->build, &d, NULL, NULL);
    return s->raw_string_rule = s->build->failed ? 0 : rule;
}

/* Adds the strings that obey all facts to the current rule. */
static void specdec__schema_add_strings(specdec__schema *s)
{
    uint32_t length[4] = {0, UINT32_MAX, 0, UINT32_MAX}, i, place, owner = 0;
    specdec__dfa d;
    int any = 0;

    memset(&d, 0, sizeof d);
    for (i = 0; i < s->facts.count / 4 && !s->build->failed; i++) {
        const specdec__fact fact = specdec__schema_get_fact(&s->facts, i);

        if (fact.kind == SPECDEC__KEY_MIN_LENGTH || fact.kind == SPECDEC__KEY_MAX_LENGTH)
            owner = fact.owner;
        if (!specdec__schema_apply_string_fact(s, &fact, &d, &any, length))
            return;
    }
    if (s->build->failed || length[0] > length[1])
        return;
    if (!any && !length[0] && length[1] == UINT32_MAX && !s->ambiguous) {
        s->free_types |= SPECDEC__JSON_TYPE_STRING;
        return;
    }
    if (s->build->raw_strings) {
        specdec__raw_string_add_alternatives(s, &d, any, length, owner);
        return;
    }
    if (!any) {
        specdec__schema_add_alternative(s, specdec__strings_add_counted_states(s->build, length[0], length[1]));
        return;
    }
    specdec__schema_limit_length(s, &d, &any, length, owner);
    if (s->build->failed || !specdec__dfa_remove_dead_states(s->build, &d))
        return;
    place = specdec__dfa_write_records(s->build, &d, &s->end_state, NULL);
    specdec__schema_add_alternative(s, specdec__schema_add_state_with_byte(s, '"', place));
}

/* ---- Numbers. */

/* Intersects *d with the numbers at least (at_least) or at most a limit; strict: above or below the limit. */
static void specdec__schema_limit_numbers(specdec__schema *s, specdec__dfa *d, uint32_t node, int at_least, int strict)
{
    specdec__dfa side, old = *d;
    specdec__decimal limit;

    if (specdec__schema_json_node(s, node)->kind != SPECDEC__JSON_NUMBER) {
        specdec__schema_fail_keyword(s, node, NULL, SPECDEC_ERROR_FORMAT, "this must be a number");
    } else if (!specdec__decimal_read(specdec__json_value_text(&s->json, node), &limit)) {
        specdec__schema_fail_keyword(s, node, NULL, SPECDEC_ERROR_UNSUPPORTED, "it has too many digits");
    } else if (specdec__numbers_build_limit_dfa(s->build, &side, &limit, at_least, strict)) {
        specdec__dfa_product(s->build, d, &old, &side, SPECDEC__DFA_BOTH);
    }
}

/* Removes a listed number from *d. */
static void specdec__schema_exclude_number(specdec__schema *s, specdec__dfa *d, uint32_t node)
{
    specdec__dfa above = *d, below = *d;

    if (specdec__schema_json_node(s, node)->kind != SPECDEC__JSON_NUMBER)
        return;
    specdec__schema_limit_numbers(s, &above, node, 1, 1);
    specdec__schema_limit_numbers(s, &below, node, 0, 1);
    if (!s->build->failed)
        specdec__dfa_product(s->build, d, &above, &below, SPECDEC__DFA_EITHER);
}

/* Intersects *d with the multiples of a number, or removes them if the fact is negated. */
static void specdec__schema_keep_multiples(specdec__schema *s, specdec__dfa *d, const specdec__fact *fact)
{
    specdec__dfa all, old = *d;
    specdec__decimal unit;
    uint32_t value = 0;
    int i;

    if (specdec__schema_json_node(s, fact->node)->kind != SPECDEC__JSON_NUMBER ||
        !specdec__decimal_read(specdec__json_value_text(&s->json, fact->node), &unit)) {
        specdec__schema_fail_keyword(s, fact->owner, "multipleOf", SPECDEC_ERROR_FORMAT, "this must be a number");
        return;
    }
    for (i = 0; i < unit.whole + unit.fraction && value <= SPECDEC__MULTIPLE_STATES_MOST; i++)
        value = value * 10 + (uint32_t)(unit.digits[i] - '0');
    if (!value || unit.negative || value * (uint32_t)(unit.fraction + 1) > SPECDEC__MULTIPLE_STATES_MOST) {
        specdec__schema_fail_keyword(s, fact->owner, "multipleOf", SPECDEC_ERROR_UNSUPPORTED,
                                     value && !unit.negative ? "the number is too large"
                                                             : "the number is not positive");
        return;
    }
    if (specdec__numbers_build_multiples_dfa(s->build, &all, value, (uint32_t)unit.fraction))
        specdec__dfa_product(s->build, d, &old, &all, fact->more ? SPECDEC__DFA_WITHOUT : SPECDEC__DFA_BOTH);
}

/* Is a minimum or maximum strict by the boolean exclusiveMinimum or exclusiveMaximum of JSON Schema draft 4? */
static int specdec__schema_limit_is_strict(const specdec__schema *s, const specdec__fact *fact)
{
    const uint32_t flag = specdec__schema_get_member(
        s, fact->owner, fact->kind == SPECDEC__KEY_MINIMUM ? "exclusiveMinimum" : "exclusiveMaximum");

    return flag && specdec__schema_json_node(s, flag)->kind == SPECDEC__JSON_TRUE;
}

/* Intersects *d (NULL: does nothing) with the numbers that obey a fact. Returns whether the fact restricts numbers. */
static int specdec__schema_apply_number_fact(specdec__schema *s, const specdec__fact *fact, specdec__dfa *d)
{
    const uint32_t kind = specdec__schema_json_node(s, fact->node)->kind;
    uint32_t at = 0;
    int strict = 1, flag = kind == SPECDEC__JSON_TRUE || kind == SPECDEC__JSON_FALSE;

    switch (fact->kind) {
    case SPECDEC__KEY_MINIMUM: case SPECDEC__KEY_MAXIMUM:
        strict = specdec__schema_limit_is_strict(s, fact);
        flag = 0;
        break;
    case SPECDEC__KEY_ABOVE: case SPECDEC__KEY_BELOW: break;
    case SPECDEC__KEY_MULTIPLE:
        if (d)
            specdec__schema_keep_multiples(s, d, fact);
        return 1;
    case SPECDEC__KEY_CONST: case SPECDEC__KEY_ENUM: /* these facts are negated here */
        if (d && fact->kind == SPECDEC__KEY_CONST)
            specdec__schema_exclude_number(s, d, fact->node);
        while (d && fact->kind == SPECDEC__KEY_ENUM && specdec__schema_next_child(s, fact->node, &at) &&
               !s->build->failed)
            specdec__schema_exclude_number(s, d, at);
        return 1;
    default: return 0;
    }
    if (flag) /* the boolean of JSON Schema draft 4, handled with minimum */
        return 0;
    if (d) {
        const int lower = fact->kind == SPECDEC__KEY_MINIMUM || fact->kind == SPECDEC__KEY_ABOVE;
        const int negated = fact->more != 0;

        specdec__schema_limit_numbers(s, d, fact->node, lower != negated, strict != negated);
    }
    return 1;
}

/* Builds the rule of a regular expression over bytes. */
static uint32_t specdec__schema_build_regex_rule(specdec__schema *s, const char *text)
{
    const uint32_t rule = specdec__build_add_rule(s->build);
    specdec__dfa d;

    if (!s->build->failed && specdec__numbers_regex_dfa(s->build, &d, text, strlen(text)))
        s->build->rules.data[rule] = specdec__dfa_write_records(s->build, &d, NULL, NULL);
    return s->build->failed ? 0 : rule;
}

/* Adds the numbers that obey all facts to the current rule. */
static void specdec__schema_add_numbers(specdec__schema *s)
{
    const uint32_t types = s->types & SPECDEC__JSON_TYPE_NUMBER;
    const char *text = types == SPECDEC__JSON_TYPE_NUMBER    ? "-?(0|[1-9]\\d*)(\\.\\d+)?"
                       : types == SPECDEC__JSON_TYPE_INTEGER ? "-?(0|[1-9]\\d*)"
                                                             : "-?(0|[1-9]\\d*)\\.\\d*[1-9]\\d*";
    uint32_t i, limits = 0;
    specdec__dfa d;

    for (i = 0; i < s->facts.count / 4; i++) {
        const specdec__fact fact = specdec__schema_get_fact(&s->facts, i);
        limits += (uint32_t)specdec__schema_apply_number_fact(s, &fact, NULL);
    }
    if (!limits && types != SPECDEC__JSON_TYPE_FRACTION) {
        s->free_types |= types;
        return;
    }
    if (!specdec__numbers_regex_dfa(s->build, &d, text, strlen(text)))
        return;
    for (i = 0; i < s->facts.count / 4 && !s->build->failed; i++) {
        const specdec__fact fact = specdec__schema_get_fact(&s->facts, i);
        specdec__schema_apply_number_fact(s, &fact, &d);
    }
    if (!s->build->failed && specdec__dfa_remove_dead_states(s->build, &d))
        specdec__schema_add_alternative(s, specdec__dfa_write_records(s->build, &d, NULL, NULL));
}

/* ---- Arrays. */

/* The schemas of an array's first items (a list) and of further items, by the keywords of one schema; 0: none. */
static void specdec__schema_find_item_schemas(const specdec__schema *s, uint32_t owner, uint32_t *first, uint32_t *rest)
{
    const uint32_t items = specdec__schema_get_member(s, owner, "items");

    *first = specdec__schema_get_member(s, owner, "prefixItems");
    *rest = items;
    if (!*first && items && specdec__schema_json_node(s, items)->kind == SPECDEC__JSON_ARRAY) {
        *first = items;
        *rest = specdec__schema_get_member(s, owner, "additionalItems");
    }
    if (*first && specdec__schema_json_node(s, *first)->kind != SPECDEC__JSON_ARRAY)
        *first = 0;
}

/* Returns the rule of item i of an array: the conjunction of the schemas that all facts have for it. */
static uint32_t specdec__schema_item_rule(specdec__schema *s, uint32_t i)
{
    uint32_t term[64], count = 0, f;

    for (f = 0; f < s->facts.count / 4 && !s->build->failed; f++) {
        const specdec__fact fact = specdec__schema_get_fact(&s->facts, f);
        uint32_t first, rest, at = 0, k = 0;

        if (fact.kind != SPECDEC__KEY_ITEMS)
            continue;
        specdec__schema_find_item_schemas(s, fact.owner, &first, &rest);
        if (first && i < specdec__schema_json_node(s, first)->count)
            for (rest = 0; specdec__schema_next_child(s, first, &at) && !rest; k++)
                rest = k == i ? at : 0;
        if (rest && count == 64)
            specdec__schema_fail_keyword(s, fact.owner, "items", SPECDEC_ERROR_UNSUPPORTED, "too complex");
        else if (rest)
            term[count++] = rest << 1;
    }
    return s->build->failed ? 0 : specdec__schema_conjunction_rule(s, term, count);
}

/* Adds the arrays that obey all facts to the current rule. */
static void specdec__schema_add_arrays(specdec__schema *s)
{
    specdec__build *b = s->build;
    uint32_t least = 0, most = UINT32_MAX, prefix = 0, i, array, start, after, before, unique = 0;

    for (i = 0; i < s->facts.count / 4 && !b->failed; i++) {
        const specdec__fact fact = specdec__schema_get_fact(&s->facts, i);

        if (fact.kind == SPECDEC__KEY_ITEMS) {
            uint32_t first, rest;

            specdec__schema_find_item_schemas(s, fact.owner, &first, &rest);
            if (first && specdec__schema_json_node(s, first)->count > prefix)
                prefix = specdec__schema_json_node(s, first)->count;
        } else if (fact.kind == SPECDEC__KEY_MIN_ITEMS || fact.kind == SPECDEC__KEY_MAX_ITEMS) {
            const uint32_t count = specdec__schema_read_count(s, &fact);

            if ((fact.kind == SPECDEC__KEY_MIN_ITEMS) != (fact.more != 0))
                least = count + fact.more > least ? count + fact.more : least;
            else
                most = count - fact.more < most ? count - fact.more : most;
        } else if (fact.kind == SPECDEC__KEY_UNIQUE &&
                   specdec__schema_json_node(s, fact.node)->kind == SPECDEC__JSON_TRUE) {
            unique = fact.owner + 1;
        }
    }
    if (b->failed || least > most)
        return;
    if (unique && most > 1) {
        specdec__schema_fail_keyword(s, unique - 1, "uniqueItems", SPECDEC_ERROR_UNSUPPORTED, "it is not supported");
        return;
    }
    array = specdec__build_add_words(b, SPECDEC__ARRAY_WORDS + prefix + 1);
    start = specdec__build_add_state(b, SPECDEC__RECORD_ARRAY, 2);
    after = specdec__build_add_state(b, SPECDEC__RECORD_AFTER_ITEM, 2);
    before = specdec__build_add_state(b, SPECDEC__RECORD_BEFORE_ITEM, 2);
    if (b->failed)
        return;
    b->words[start + 1] = b->words[after + 1] = b->words[before + 1] = array;
    b->words[array + SPECDEC__ARRAY_COUNT] = prefix;
    b->words[array + SPECDEC__ARRAY_LEAST] = least;
    b->words[array + SPECDEC__ARRAY_MOST] = most;
    b->words[array + SPECDEC__ARRAY_CAP] = most != UINT32_MAX ? most : least > prefix ? least : prefix;
    b->words[array + SPECDEC__ARRAY_END] = s->end_state;
    b->words[array + SPECDEC__ARRAY_AFTER] = after;
    b->words[array + SPECDEC__ARRAY_BEFORE] = before;
    for (i = 0; i <= prefix && !b->failed; i++) {
        const uint32_t rule = specdec__schema_item_rule(s, i);
        b->words[array + SPECDEC__ARRAY_WORDS + i] = rule;
    }
    specdec__schema_add_alternative(s, specdec__schema_add_state_with_byte(s, '[', start));
}

/* ---- Listed values. */

/* Does a listed value (enum, const) obey the other facts of its shape? */
static int specdec__schema_value_obeys_facts(specdec__schema *s, uint32_t node)
{
    static const char any_number[] = "-?\\d+(\\.\\d+)?([eE][+-]?\\d+)?";
    const uint32_t type = specdec__schema_type_bit_of_value(s, node);
    uint32_t i, length[4] = {0, UINT32_MAX, 0, UINT32_MAX}, at;
    specdec__dfa d;
    int any = 0;

    if (!(type & s->types))
        return 0;
    memset(&d, 0, sizeof d);
    if (type & SPECDEC__JSON_TYPE_NUMBER &&
        !specdec__numbers_regex_dfa(s->build, &d, any_number, sizeof any_number - 1))
        return 0;
    for (i = 0; i < s->facts.count / 4 && !s->build->failed; i++) {
        const specdec__fact fact = specdec__schema_get_fact(&s->facts, i);

        at = 0;
        if (fact.kind == SPECDEC__KEY_CONST && specdec__json_equal(s, fact.node, node) == (int)fact.more)
            return 0;
        if (fact.kind == SPECDEC__KEY_ENUM) {
            while (specdec__schema_next_child(s, fact.node, &at) && !specdec__json_equal(s, at, node))
                ;
            if ((at < specdec__schema_json_node(s, fact.node)->next && at) == (int)fact.more)
                return 0;
        } else if (fact.kind == SPECDEC__KEY_CONST) {
            continue;
        } else if (type & SPECDEC__JSON_TYPE_NUMBER) {
            specdec__schema_apply_number_fact(s, &fact, &d);
        } else if (type == SPECDEC__JSON_TYPE_STRING) {
            if (!specdec__schema_apply_string_fact(s, &fact, &d, &any, length))
                return 0;
        } else if (type >= SPECDEC__JSON_TYPE_ARRAY &&
                   ((type == SPECDEC__JSON_TYPE_ARRAY && fact.kind >= SPECDEC__KEY_ITEMS &&
                     fact.kind <= SPECDEC__KEY_UNIQUE) ||
                    (type == SPECDEC__JSON_TYPE_OBJECT && fact.kind >= SPECDEC__KEY_PROPERTIES))) {
            specdec__schema_fail_keyword(s, fact.owner, "enum", SPECDEC_ERROR_UNSUPPORTED,
                                         "it lists arrays or objects beside keywords for these");
        }
    }
    if (type & SPECDEC__JSON_TYPE_NUMBER && !s->build->failed) {
        const specdec__bytes raw = specdec__json_value_text(&s->json, node);

        return d.label.data[specdec__dfa_read_text(&d, 1, raw.data, raw.size)] != 0;
    }
    if (type == SPECDEC__JSON_TYPE_STRING && !s->build->failed) {
        size_t size, k, count = 0;
        const unsigned char *text = specdec__schema_spell_string(s, node, &size);
        char *plain = (char *)specdec__build_reserve_scratch(s->build, size / 4 + 1);

        if (!text || !plain)
            return 0;
        if (any && !d.label.data[specdec__dfa_read_text(&d, 1, text, size)])
            return 0;
        size = specdec__json_string_value(&s->json, node, plain, size);
        for (k = 0; k < size; k++)
            count += ((unsigned char)plain[k] & 0xc0) != 0x80;
        return count >= length[0] && count <= length[1];
    }
    return !s->build->failed;
}

/* Appends white space to the concatenation `all`, if it is free. */
static void specdec__literal_append_space(specdec__schema *s, uint32_t all)
{
    if (s->allows_space)
        specdec__syntax_prepend_child(
            s->build, all, specdec__syntax_add_node(s->build, SPECDEC__SYNTAX_REPEAT, s->space_tree, 0, UINT32_MAX));
}

/* Appends a byte to the concatenation `all`. */
static void specdec__literal_append_byte(specdec__schema *s, uint32_t all, unsigned byte)
{
    specdec__syntax_prepend_child(s->build, all, specdec__syntax_add_character(s->build, byte, byte));
}

/* Returns the syntax tree of null, false or true (kind 0, 1, 2) in the current style of values. */
static uint32_t specdec__literal_null_or_boolean_tree(specdec__schema *s, uint32_t kind)
{
    static const char *const words[] = {"null", "false", "true", "None", "False", "True"};
    const char *word = words[kind + (s->style == SPECDEC__STYLE_LITERAL &&
                                     s->calls->form == SPECDEC__CALLS_PYTHON ? 3 : 0)];

    return specdec__syntax_add_text(s->build, (const unsigned char *)word, strlen(word));
}

/* Returns the syntax tree of a listed string between the marks of raw strings; 0: it cannot be written so. */
static uint32_t specdec__literal_raw_string_tree(specdec__schema *s, uint32_t node)
{
    specdec__build *b = s->build;
    const uint32_t any = specdec__syntax_add_node(b, SPECDEC__SYNTAX_ANY, 0, 0, 0);
    uint32_t rule;
    specdec__dfa d;

    if (!specdec__schema_build_listed_strings_dfa(s, &d, node, 0) || !specdec__dfa_remove_dead_states(b, &d) ||
        (s->ambiguous && !specdec__raw_string_remove_matches(s, &d, specdec__raw_ambiguous_regex)) ||
        !specdec__raw_string_add_marks(s, &d))
        return 0;
    rule = specdec__build_add_rule(b);
    if (b->failed)
        return 0;
    b->rules.data[rule] = specdec__dfa_write_records(b, &d, NULL, NULL);
    specdec__syntax_prepend_child(b, any, specdec__syntax_add_node(b, SPECDEC__SYNTAX_RULE, 0, rule, 0));
    return b->failed ? 0 : any;
}

/* Returns the syntax tree of a listed value; 0: it cannot be written in this style. Arrays and objects keep the
   schema's order. */
static uint32_t specdec__literal_value_tree(specdec__schema *s, uint32_t node)
{
    specdec__build *b = s->build;
    const specdec__json_node value = *specdec__schema_json_node(s, node);
    uint32_t all, at = 0, first = 1, item;
    size_t size;

    if (value.kind < SPECDEC__JSON_NUMBER)
        return specdec__literal_null_or_boolean_tree(s, value.kind);
    if (value.kind == SPECDEC__JSON_STRING && b->raw_strings)
        return specdec__literal_raw_string_tree(s, node);
    if (value.kind < SPECDEC__JSON_STRING)
        return specdec__syntax_add_text(b, s->json.text + value.from, value.to - value.from);
    all = specdec__syntax_add_node(b, SPECDEC__SYNTAX_ALL, 0, 0, 0);
    if (value.kind == SPECDEC__JSON_STRING) {
        const unsigned char *text = specdec__schema_spell_string(s, node, &size);

        specdec__literal_append_byte(s, all, '"');
        if (text)
            specdec__syntax_prepend_child(b, all, specdec__syntax_add_text(b, text, size));
        specdec__literal_append_byte(s, all, '"');
        return all;
    }
    specdec__literal_append_byte(s, all, value.kind == SPECDEC__JSON_ARRAY ? '[' : '{');
    for (; specdec__schema_next_child(s, node, &at) && !b->failed; first = 0) {
        if (!first) {
            specdec__literal_append_space(s, all);
            specdec__literal_append_byte(s, all, ',');
        }
        specdec__literal_append_space(s, all);
        if (value.kind == SPECDEC__JSON_OBJECT) {
            if (b->raw_strings) {
                const unsigned char *name = specdec__schema_spell_string(s, at, &size);

                specdec__syntax_prepend_child(b, all, name ? specdec__syntax_add_text(b, name, size) : 0);
            } else {
                specdec__syntax_prepend_child(b, all, specdec__literal_value_tree(s, at));
            }
            specdec__literal_append_space(s, all);
            specdec__literal_append_byte(s, all, ':');
            specdec__literal_append_space(s, all);
        }
        item = specdec__literal_value_tree(s, value.kind == SPECDEC__JSON_OBJECT ? at + 1 : at);
        if (!item)
            return 0;
        specdec__syntax_prepend_child(b, all, item);
    }
    specdec__literal_append_space(s, all);
    specdec__literal_append_byte(s, all, value.kind == SPECDEC__JSON_ARRAY ? ']' : '}');
    return all;
}

SPECDEC__FOR_SPEED
