/* =====================================================================================================================
 * >>constraint/gbnf: compiles grammars in llama.cpp's format GBNF (grammars/README.md there).
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "automaton.h"
#include "build.h"
#include "expression.h"
#include "finish.h"

SPECDEC__FOR_SIZE

/* A GBNF grammar that is being parsed. Rules are numbered in the order in which their names first appear. */
typedef struct specdec__gbnf {
    specdec__source source;      /* the grammar's text */
    specdec__vector names;       /* 3 words each: offset and length of a name in the source; 1: its rule was defined */
    specdec__vector rule_number; /* number of the rule of each name */
    specdec__vector trees;       /* index of the syntax tree of each rule */
    specdec__vector name_table;  /* hash table of a power of two of entries: 1 + index of a name, 0: empty */
} specdec__gbnf;

/* Skips spaces and comments of a grammar; also line ends if `lines`. */
static void specdec__gbnf_skip_space(specdec__source *s, int lines)
{
    for (;; s->position++) {
        const int c = specdec__source_peek_byte(s);

        if (c == '#')
            while (s->position + 1 < s->size && s->text[s->position + 1] != '\n' && s->text[s->position + 1] != '\r')
                s->position++;
        else if (c != ' ' && c != '\t' && !(lines && (c == '\n' || c == '\r')))
            return;
    }
}

/* May a byte be in the name of a grammar's rule? */
static int specdec__gbnf_is_name_byte(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* Returns the index of a rule's name; a new name is added, with a rule. The hash table of names doubles when it is half
   full. */
static uint32_t specdec__gbnf_find_name(specdec__build *b, specdec__gbnf *g, size_t at, size_t size)
{
    const unsigned char *text = g->source.text;
    uint64_t hash = specdec__hash(SPECDEC__EMPTY_HASH, text + at, size);
    uint32_t i, entry, count = g->names.count / 3;

    if (2 * (count + 1) > g->name_table.count) {
        const uint32_t room = g->name_table.count ? 2 * g->name_table.count : 64;

        g->name_table.count = 0;
        if (specdec__vector_extend(b, &g->name_table, room) == UINT32_MAX)
            return 0;
        memset(g->name_table.data, 0, (size_t)room * 4);
        for (i = 0; i < count; i++) {
            uint64_t place = specdec__hash(SPECDEC__EMPTY_HASH, text + g->names.data[3 * i], g->names.data[3 * i + 1]);

            while (g->name_table.data[place & (room - 1)])
                place++;
            g->name_table.data[place & (room - 1)] = i + 1;
        }
    }
    for (; (entry = g->name_table.data[hash & (g->name_table.count - 1)]) != 0; hash++)
        if (g->names.data[3 * entry - 2] == size && memcmp(text + g->names.data[3 * entry - 3], text + at, size) == 0)
            return entry - 1;
    g->name_table.data[hash & (g->name_table.count - 1)] = count + 1;
    specdec__vector_push(b, &g->names, (uint32_t)at);
    specdec__vector_push(b, &g->names, (uint32_t)size);
    specdec__vector_push(b, &g->names, 0);
    specdec__vector_push(b, &g->rule_number, specdec__build_add_rule(b));
    specdec__vector_push(b, &g->trees, 0);
    return count;
}

/* Reads a rule's name in a grammar. Returns the index of the name. */
static uint32_t specdec__gbnf_read_name(specdec__build *b, specdec__gbnf *g)
{
    specdec__source *s = &g->source;
    const size_t from = s->position;

    while (specdec__gbnf_is_name_byte(specdec__source_peek_byte(s)))
        s->position++;
    if (s->position == from)
        return specdec__source_fail(b, s, "a name is missing");
    return specdec__gbnf_find_name(b, g, from, s->position - from);
}

/* Reads a character of a grammar's string or class, perhaps an escape. Returns its code point. */
static uint32_t specdec__gbnf_read_character(specdec__build *b, specdec__source *s)
{
    static const char names[] = "nrt\"\\[]'/-^", meant[] = "\n\r\t\"\\[]'/-^";
    const char *known;
    int c;

    if (!specdec__source_accept_byte(s, '\\'))
        return specdec__source_read_character(b, s);
    c = specdec__source_peek_byte(s);
    known = c > 0 ? strchr(names, c) : NULL;
    s->position += c >= 0;
    if (known)
        return (unsigned char)meant[known - names];
    if (c == 'x' || c == 'u' || c == 'U')
        return specdec__source_read_hex(b, s, c == 'x' ? 2 : c == 'u' ? 4 : 8);
    s->position--;
    return specdec__source_fail(b, s, "this escape is not known");
}

/* Reads a class of characters of a grammar, such as [a-z], behind its [. Returns its syntax tree. */
static uint32_t specdec__gbnf_read_class(specdec__build *b, specdec__source *s)
{
    const int negated = specdec__source_accept_byte(s, '^');
    const uint32_t from = b->ranges.count;

    while (!b->failed && !specdec__source_accept_byte(s, ']')) {
        const uint32_t low = specdec__gbnf_read_character(b, s);
        uint32_t high = low;

        if (s->size - s->position >= 2 && s->text[s->position] == '-' && s->text[s->position + 1] != ']') {
            s->position++;
            high = specdec__gbnf_read_character(b, s);
            if (!b->failed && high < low)
                return specdec__source_fail(b, s, "a range ends before it begins");
        }
        specdec__syntax_add_range(b, low, high);
    }
    if (negated && !b->failed)
        specdec__syntax_negate_ranges(b, from);
    return specdec__syntax_add_set(b, from);
}

static uint32_t specdec__gbnf_read_alternatives(specdec__build *b, specdec__gbnf *g, int inside);

/* Reads an item of a grammar's rule: a string, a class, a rule's name, or alternatives in parentheses. Returns its
   syntax tree; 0, and reads nothing, when no item begins here. */
static uint32_t specdec__gbnf_read_item(specdec__build *b, specdec__gbnf *g)
{
    specdec__source *s = &g->source;
    const int c = specdec__source_peek_byte(s);
    uint32_t tree;

    if (c == '"') {
        tree = specdec__syntax_add_node(b, SPECDEC__SYNTAX_ALL, 0, 0, 0);
        s->position++;
        while (!b->failed && !specdec__source_accept_byte(s, '"')) {
            const uint32_t character = specdec__gbnf_read_character(b, s);
            specdec__syntax_prepend_child(b, tree, specdec__syntax_add_character(b, character, character));
        }
        return tree;
    }
    if (c == '[') {
        s->position++;
        return specdec__gbnf_read_class(b, s);
    }
    if (c == '.') {
        s->position++;
        return specdec__syntax_add_character(b, 0, SPECDEC__LAST_CODE_POINT);
    }
    if (c == '(') {
        s->position++;
        specdec__gbnf_skip_space(s, 1);
        tree = specdec__gbnf_read_alternatives(b, g, 1);
        return specdec__source_accept_byte(s, ')') ? tree : specdec__source_fail(b, s, "a bracket is not closed");
    }
    if (specdec__gbnf_is_name_byte(c)) {
        const uint32_t name = specdec__gbnf_read_name(b, g);
        return b->failed ? 0 : specdec__syntax_add_node(b, SPECDEC__SYNTAX_RULE, 0, g->rule_number.data[name], 0);
    }
    return 0;
}

/* Reads a quantifier (* + ? {n,m}) of a grammar's item into *least and *most. Returns 0 when there is none. */
static int specdec__gbnf_read_quantifier(specdec__build *b, specdec__source *s, uint32_t *least, uint32_t *most)
{
    const int c = specdec__source_peek_byte(s);

    *least = c == '+';
    *most = c == '?' ? 1 : UINT32_MAX;
    if (c == '*' || c == '+' || c == '?') {
        s->position++;
        return 1;
    }
    if (c != '{')
        return 0;
    s->position++;
    specdec__gbnf_skip_space(s, 0);
    *least = specdec__source_read_number(s);
    specdec__gbnf_skip_space(s, 0);
    if (*least == UINT32_MAX && specdec__source_peek_byte(s) != ',')
        return (int)specdec__source_fail(b, s, "a number is missing");
    *most = *least;
    *least = *least == UINT32_MAX ? 0 : *least;
    if (specdec__source_accept_byte(s, ',')) {
        specdec__gbnf_skip_space(s, 0);
        *most = specdec__source_read_number(s);
        specdec__gbnf_skip_space(s, 0);
    }
    if (*least > *most)
        return (int)specdec__source_fail(b, s, "a repetition's least is above its most");
    return specdec__source_accept_byte(s, '}') ? 1 : (int)specdec__source_fail(b, s, "} is missing");
}

/* Reads a concatenation of quantified items of a grammar. Returns its syntax tree. */
static uint32_t specdec__gbnf_read_concatenation(specdec__build *b, specdec__gbnf *g, int inside)
{
    const uint32_t all = specdec__syntax_add_node(b, SPECDEC__SYNTAX_ALL, 0, 0, 0);
    uint32_t tree, least, most;

    while (!b->failed && (tree = specdec__gbnf_read_item(b, g)) != 0) {
        specdec__gbnf_skip_space(&g->source, inside);
        while (!b->failed && specdec__gbnf_read_quantifier(b, &g->source, &least, &most)) {
            tree = specdec__syntax_add_repeat(b, &g->trees, tree, least, most);
            specdec__gbnf_skip_space(&g->source, inside);
        }
        specdec__syntax_prepend_child(b, all, tree);
    }
    return all;
}

/* Reads alternatives between bars of a grammar. Returns their syntax tree. */
static uint32_t specdec__gbnf_read_alternatives(specdec__build *b, specdec__gbnf *g, int inside)
{
    uint32_t any = 0, tree;

    if (++g->source.depth > SPECDEC__BRACKETS_MOST)
        return specdec__source_fail(b, &g->source, "it is nested too deeply");
    tree = specdec__gbnf_read_concatenation(b, g, inside);
    while (!b->failed && specdec__source_accept_byte(&g->source, '|')) {
        specdec__gbnf_skip_space(&g->source, 1);
        if (!any)
            specdec__syntax_prepend_child(b, any = specdec__syntax_add_node(b, SPECDEC__SYNTAX_ANY, 0, 0, 0), tree);
        specdec__syntax_prepend_child(b, any, specdec__gbnf_read_concatenation(b, g, inside));
    }
    g->source.depth--;
    return any ? any : tree;
}

/* Reads the definition of a grammar's rule: name ::= alternatives. */
static void specdec__gbnf_read_rule(specdec__build *b, specdec__gbnf *g)
{
    specdec__source *s = &g->source;
    const uint32_t name = specdec__gbnf_read_name(b, g);
    uint32_t tree;

    specdec__gbnf_skip_space(s, 0);
    if (!b->failed && (s->size - s->position < 3 || memcmp(s->text + s->position, "::=", 3) != 0))
        specdec__source_fail(b, s, "::= is missing");
    if (!b->failed && g->names.data[3 * name + 2])
        specdec__source_fail(b, s, "this rule was defined before");
    s->position += 3;
    if (b->failed)
        return;
    specdec__gbnf_skip_space(s, 1);
    tree = specdec__gbnf_read_alternatives(b, g, 0);
    if (b->failed)
        return;
    g->trees.data[g->rule_number.data[name]] = tree;
    g->names.data[3 * name + 2] = 1;
    if (specdec__source_peek_byte(s) >= 0 && specdec__source_peek_byte(s) != '\n' &&
        specdec__source_peek_byte(s) != '\r')
        specdec__source_fail(b, s, "this cannot stand here");
    specdec__gbnf_skip_space(s, 1);
}

/* Adds the rules that may stand at the beginning of a syntax tree to a list. Returns whether the tree may match the
   empty text. */
static int specdec__gbnf_add_leftmost_rules(specdec__build *b, uint32_t tree, specdec__vector *list)
{
    const uint32_t *node = b->tree.data + tree;
    const uint32_t kind = node[SPECDEC__SYNTAX_KIND];
    uint32_t child, last = 0;

    if (!specdec__build_count_work(b, 1))
        return 0;
    if (kind == SPECDEC__SYNTAX_RULE)
        specdec__vector_push(b, list, node[SPECDEC__SYNTAX_A]);
    if (kind != SPECDEC__SYNTAX_ALL) {
        for (child = node[SPECDEC__SYNTAX_CHILD]; child; child = b->tree.data[child + SPECDEC__SYNTAX_NEXT])
            specdec__gbnf_add_leftmost_rules(b, child, list);
        return specdec__syntax_is_nullable(b, tree);
    }
    for (child = node[SPECDEC__SYNTAX_CHILD]; child; child = b->tree.data[child + SPECDEC__SYNTAX_NEXT])
        if (!specdec__syntax_is_nullable(b, child))
            last = child; /* the leftmost child that is not empty */
    child = node[SPECDEC__SYNTAX_CHILD];
    while (child && last && child != last)
        child = b->tree.data[child + SPECDEC__SYNTAX_NEXT];
    for (; child; child = b->tree.data[child + SPECDEC__SYNTAX_NEXT])
        specdec__gbnf_add_leftmost_rules(b, child, list);
    return !last;
}

/* Refuses left recursion in a grammar: a rule that begins with itself. Searches depth-first, with a stack of its
   own. */
static void specdec__gbnf_refuse_left_recursion(specdec__build *b, specdec__gbnf *g)
{
    specdec__vector list, from, stack, color;
    uint32_t i, j;

    memset(&list, 0, sizeof list);
    memset(&from, 0, sizeof from);
    memset(&stack, 0, sizeof stack);
    memset(&color, 0, sizeof color);
    for (i = 0; i < g->trees.count && !b->failed; i++) {
        specdec__vector_push(b, &from, list.count);
        specdec__vector_push(b, &color, 0);
        if (g->trees.data[i])
            specdec__gbnf_add_leftmost_rules(b, g->trees.data[i], &list);
    }
    specdec__vector_push(b, &from, list.count);
    for (i = 0; i < g->trees.count && !b->failed; i++) {
        if (color.data[i])
            continue;
        color.data[i] = 1;
        specdec__vector_push(b, &stack, i);
        specdec__vector_push(b, &stack, from.data[i]);
        while (stack.count && !b->failed) {
            const uint32_t rule = stack.data[stack.count - 2], at = stack.data[stack.count - 1]++;
            const uint32_t other = at < from.data[rule + 1] ? list.data[at] : UINT32_MAX;

            if (other == UINT32_MAX) {
                color.data[rule] = 2;
                stack.count -= 2;
            } else if (!color.data[other]) {
                color.data[other] = 1;
                specdec__vector_push(b, &stack, other);
                specdec__vector_push(b, &stack, from.data[other]);
            } else if (color.data[other] == 1) {
                for (j = 0; j < g->rule_number.count && g->rule_number.data[j] != other; j++)
                    ;
                g->source.position = j < g->rule_number.count ? g->names.data[3 * j] : 0;
                specdec__source_fail(b, &g->source, "left recursion: this rule may begin with itself");
            }
        }
    }
}

/* Builds the constraint of a GBNF grammar, whose first rule is "root". */
static void specdec__gbnf_build(specdec__build *b, const unsigned char *text, size_t size)
{
    specdec__gbnf g;
    uint32_t i, root;

    memset(&g, 0, sizeof g);
    g.source.text = text;
    g.source.size = size;
    b->repeat_limit = 256;
    if (size > 1u << 26) {
        specdec__build_fail(b, SPECDEC_ERROR_UNSUPPORTED, "the text is too long");
        return;
    }
    specdec__gbnf_skip_space(&g.source, 1);
    while (!b->failed && g.source.position < size)
        specdec__gbnf_read_rule(b, &g);
    for (i = 0; i < g.names.count && !b->failed; i += 3)
        if (!g.names.data[i + 2]) {
            g.source.position = g.names.data[i];
            specdec__source_fail(b, &g.source, "this rule is not defined");
        }
    for (root = 0; root < g.rule_number.count && !b->failed; root++)
        if (g.names.data[3 * root + 1] == 4 && memcmp(text + g.names.data[3 * root], "root", 4) == 0)
            break;
    if (!b->failed && root == g.rule_number.count)
        specdec__source_fail(b, &g.source, "there is no rule root");
    if (b->failed)
        return;
    specdec__build_find_nullable_rules(b, &g.trees);
    specdec__gbnf_refuse_left_recursion(b, &g);
    specdec__build_rules(b, &g.trees);
    if (!b->failed)
        specdec__build_finish(b, g.rule_number.data[root], 0);
}

SPECDEC__FOR_SPEED
