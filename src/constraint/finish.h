/* =====================================================================================================================
 * >>constraint/finish: computes properties of all rules: which match nothing, how they begin, how deep they nest.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "automaton.h"
#include "build.h"
#include "expression.h"

SPECDEC__FOR_SIZE

#define SPECDEC__CONSTRAINT_MAGIC UINT64_C(0x3153544e4f434453) /* first bytes of a constraint: "SDCONTS1" */

/* Can a syntax tree match the empty text? */
static int specdec__syntax_is_nullable(specdec__build *b, uint32_t tree)
{
    const uint32_t *node = b->tree.data + tree;
    uint32_t child = node[SPECDEC__SYNTAX_CHILD];

    if (!specdec__build_count_work(b, 1))
        return 0;
    switch (node[SPECDEC__SYNTAX_KIND]) {
    case SPECDEC__SYNTAX_SET: return 0;
    case SPECDEC__SYNTAX_RULE: return b->nullable.data[node[SPECDEC__SYNTAX_A]] != 0;
    case SPECDEC__SYNTAX_REPEAT: case SPECDEC__SYNTAX_COUNTED:
        return !node[SPECDEC__SYNTAX_A] || specdec__syntax_is_nullable(b, child);
    case SPECDEC__SYNTAX_ALL:
        for (; child; child = b->tree.data[child + SPECDEC__SYNTAX_NEXT])
            if (!specdec__syntax_is_nullable(b, child))
                return 0;
        return 1;
    case SPECDEC__SYNTAX_ANY:
        for (; child; child = b->tree.data[child + SPECDEC__SYNTAX_NEXT])
            if (specdec__syntax_is_nullable(b, child))
                return 1;
        return 0;
    default: return 1;
    }
}

/* Computes which rules match the empty text, into b->nullable. trees: (rules) syntax tree of each, 0: it has none. */
static void specdec__build_find_nullable_rules(specdec__build *b, const specdec__vector *trees)
{
    uint32_t i, changed = 1;

    while (changed && !b->failed)
        for (changed = 0, i = 0; i < trees->count && !b->failed; i++)
            if (!b->nullable.data[i] && trees->data[i] && specdec__syntax_is_nullable(b, trees->data[i]))
                b->nullable.data[i] = changed = 1;
}

/* Builds a rule that counts the repetitions of its body at run time; the body is the rule before it. The body's first
   state is copied without its end, so that each repetition reads at least one byte. */
static void specdec__build_counted_rule(specdec__build *b, uint32_t rule, const uint32_t *node)
{
    const uint32_t body = b->rules.data[rule - 1];
    const uint32_t least = b->nullable.data[rule - 1] ? 0 : node[SPECDEC__SYNTAX_A], most = node[SPECDEC__SYNTAX_B];
    const uint32_t edges = SPECDEC__RECORD_EDGES(b->words[body]), words = 2 + 2 * (edges + b->words[body + 1]);
    const uint32_t copy = specdec__build_add_state(b, 0, words);
    const uint32_t start = specdec__build_add_state(b, SPECDEC__RECORD_REPEAT, 5);
    const uint32_t after = specdec__build_add_state(b, SPECDEC__RECORD_AFTER_REPEAT, 5);
    uint32_t i;

    if (b->failed)
        return;
    memcpy(b->words + copy, b->words + body, (size_t)words * 4);
    b->words[copy] &= ~SPECDEC__RECORD_MAY_END;
    for (i = 0; i < 2; i++) {
        uint32_t *record = b->words + (i ? after : start);

        record[1] = copy;
        record[2] = least;
        record[3] = most;
        record[4] = after;
    }
    b->rules.data[rule] = start;
}

/* Builds all rules that have syntax trees. */
static void specdec__build_rules(specdec__build *b, const specdec__vector *trees)
{
    uint32_t i;

    specdec__build_find_nullable_rules(b, trees);
    for (i = 0; i < trees->count && !b->failed; i++) {
        const uint32_t *node = b->tree.data + trees->data[i];

        if (!trees->data[i] || b->rules.data[i])
            continue;
        if (node[SPECDEC__SYNTAX_KIND] == SPECDEC__SYNTAX_COUNTED)
            specdec__build_counted_rule(b, i, node);
        else
            specdec__build_rule_from_tree(b, i, trees->data[i]);
    }
}

/* ---- Stack need: levels of the stack that a text takes from a state to the end of the state's rule. */

/* Returns the stack need of an object: that of its most demanding required member, or of the least demanding one that
   reaches the least number of members. */
static uint32_t specdec__stack_need_of_object(const specdec__build *b, const uint32_t *object)
{
    const uint32_t count = object[SPECDEC__OBJECT_COUNT], *first = object + SPECDEC__OBJECT_WORDS;
    uint32_t i, need = 0, required = 0;

    for (i = first[0]; i < count; i = first[i + 1], required++) {
        const uint32_t one = SPECDEC__RECORD_STACK_NEED(b->words[first[count + 1 + i]]);
        need = need > one ? need : one;
    }
    if (object[SPECDEC__OBJECT_LEAST] > required) {
        if (object[SPECDEC__OBJECT_OTHER]) {
            const uint32_t one = SPECDEC__RECORD_STACK_NEED(b->words[object[SPECDEC__OBJECT_OTHER]]);
            need = need > one ? need : one < 1 ? 1 : one;
        } else {
            for (i = 0; i < count; i++) {
                const uint32_t one = SPECDEC__RECORD_STACK_NEED(b->words[first[count + 1 + i]]);
                need = need > one ? need : one;
            }
            if (object[SPECDEC__OBJECT_LEAST] > count)
                need = 255;
        }
    }
    if (required > object[SPECDEC__OBJECT_MOST])
        need = 255;
    return need < 254 ? need + 1 : 255;
}

/* Returns the stack need of a rule: that of its first state; 255: the rule is not built. */
static uint32_t specdec__stack_need_of_rule(const specdec__build *b, uint32_t rule)
{
    return SPECDEC__RECORD_STACK_NEED(b->words[b->rules.data[rule]]);
}

/* Returns the stack need of an array: that of the most demanding of the items that it must have. */
static uint32_t specdec__stack_need_of_array(const specdec__build *b, const uint32_t *array)
{
    uint32_t i, need = 0;

    if (!array[SPECDEC__ARRAY_LEAST])
        return 0;
    for (i = 0; i < array[SPECDEC__ARRAY_LEAST] && i <= array[SPECDEC__ARRAY_COUNT]; i++) {
        const uint32_t rule = specdec__array_item_rule(array, i);
        const uint32_t one = rule == UINT32_MAX ? 255 : specdec__stack_need_of_rule(b, rule);

        need = need > one ? need : one;
    }
    return need < 254 ? need + 1 : 255;
}

/* Returns the stack need of a PLAIN state: the least of the needs of its end, its edges and its calls. */
static uint32_t specdec__stack_need_of_plain_record(const specdec__build *b, const uint32_t *record)
{
    const uint32_t edges = SPECDEC__RECORD_EDGES(record[0]);
    uint32_t i, need = record[0] & SPECDEC__RECORD_MAY_END ? 0 : 255;

    for (i = 0; i < edges && need; i++) {
        const uint32_t one = SPECDEC__RECORD_STACK_NEED(b->words[record[3 + 2 * i]]);
        need = need < one ? need : one;
    }
    for (i = 0; i < record[1] && need; i++) {
        const uint32_t *call = record + 2 + 2 * (edges + i);
        uint32_t one = specdec__stack_need_of_rule(b, call[0]);

        if (call[1]) {
            const uint32_t behind = SPECDEC__RECORD_STACK_NEED(b->words[call[1]]);

            one = one < 254 ? one + 1 : 255;
            one = one > behind ? one : behind;
        }
        need = need < one ? need : one;
    }
    return need;
}

/* Returns the stack need of a state, from the needs of the states that may follow it. */
static uint32_t specdec__stack_need_of_state(const specdec__build *b, uint32_t state)
{
    const uint32_t *record = b->words + state;
    uint32_t need;

    switch (SPECDEC__RECORD_KIND(record[0])) {
    case SPECDEC__RECORD_PLAIN: return specdec__stack_need_of_plain_record(b, record);
    case SPECDEC__RECORD_SET: return SPECDEC__RECORD_STACK_NEED(b->words[record[1]]);
    case SPECDEC__RECORD_OBJECT: return specdec__stack_need_of_object(b, b->words + record[1]);
    case SPECDEC__RECORD_ARRAY: return specdec__stack_need_of_array(b, b->words + record[1]);
    case SPECDEC__RECORD_REPEAT:
        need = SPECDEC__RECORD_STACK_NEED(b->words[record[1]]);
        return !record[2] ? 0 : need < 254 ? need + 1 : 255;
    default: return 0; /* KEY, AFTER and BEFORE states are only entered where a text can end */
    }
}

/* Computes the stack needs of all states, from 255 down, until none changes. */
static void specdec__build_compute_stack_needs(specdec__build *b)
{
    uint32_t i, changed = 1;

    for (i = 0; i < b->states.count; i++)
        b->words[b->states.data[i]] |= 255u << 8;
    while (changed && specdec__build_count_work(b, b->states.count))
        for (changed = 0, i = b->states.count; i-- > 0;) {
            uint32_t *header = b->words + b->states.data[i], need = SPECDEC__RECORD_STACK_NEED(*header), now;

            if (!need || (now = specdec__stack_need_of_state(b, b->states.data[i])) >= need)
                continue;
            *header = (*header & ~(255u << 8)) | now << 8;
            changed = 1;
        }
}

/* Removes calls of rules that match no text from all states. */
static void specdec__build_remove_unmatchable_calls(specdec__build *b)
{
    uint32_t i, k, kept;

    for (i = 0; i < b->states.count; i++) {
        uint32_t *record = b->words + b->states.data[i], *call = record + 2 + 2 * SPECDEC__RECORD_EDGES(record[0]);

        if (SPECDEC__RECORD_KIND(record[0]) != SPECDEC__RECORD_PLAIN)
            continue;
        for (k = kept = 0; k < record[1]; k++)
            if (specdec__stack_need_of_rule(b, call[2 * k]) < 255) {
                call[2 * kept] = call[2 * k];
                call[2 * kept++ + 1] = call[2 * k + 1];
            }
        record[1] = kept;
    }
}

/* Refuses a state in which more alternatives begin with one byte than a text may have threads. */
static void specdec__build_refuse_crowded_states(specdec__build *b, const specdec__rule *rules)
{
    uint32_t i, k, byte;

    for (i = 0; i < b->states.count && !b->failed; i++) {
        const uint32_t *record = b->words + b->states.data[i];
        const uint32_t *call = record + 2 + 2 * SPECDEC__RECORD_EDGES(record[0]);

        if (SPECDEC__RECORD_KIND(record[0]) != SPECDEC__RECORD_PLAIN || record[1] <= SPECDEC__AUTOMATON_THREADS)
            continue;
        for (byte = 0; byte < 256 && specdec__build_count_work(b, record[1]); byte++) {
            uint32_t count = 0;

            for (k = 0; k < record[1]; k++)
                count += rules[call[2 * k]].first[byte >> 5] >> (byte & 31) & 1;
            if (count > SPECDEC__AUTOMATON_THREADS) {
                b->crowded_state = b->states.data[i];
                specdec__build_fail(b, SPECDEC_ERROR_UNSUPPORTED, "too many alternatives in one place");
            }
        }
    }
}

/* ---- Live kinds: kinds of bytes that may follow in any order, SPECDEC__LIVE_KINDS_BYTES of them. */

/* Returns the edge of a state for a byte; NULL: there is none. */
static const uint32_t *specdec__build_find_edge(const specdec__build *b, uint32_t state, uint32_t byte)
{
    const uint32_t *record = b->words + state;

    return specdec__record_find_edge(record + 2, SPECDEC__RECORD_EDGES(record[0]), byte);
}

/* Returns the kinds that are live behind all whole characters of one form of UTF-8, from byte `at` of the character on;
   0: some character is refused, or needs more levels of the stack. self not 0: all kinds, if all characters lead to
   that state. */
static uint32_t specdec__live_kinds_behind_utf8(const specdec__build *b, uint32_t state, int form, uint32_t at,
                                                uint32_t self)
{
    static const unsigned char forms[8][5] = { /* bytes of a character; range of its first byte; range of its second
                                                  byte */
        {2, 0xc2, 0xdf, 0x80, 0xbf}, {3, 0xe0, 0xe0, 0xa0, 0xbf}, {3, 0xe1, 0xec, 0x80, 0xbf},
        {3, 0xed, 0xed, 0x80, 0x9f}, {3, 0xee, 0xef, 0x80, 0xbf}, {4, 0xf0, 0xf0, 0x90, 0xbf},
        {4, 0xf1, 0xf3, 0x80, 0xbf}, {4, 0xf4, 0xf4, 0x80, 0x8f}};
    const uint32_t high = at < 2 ? forms[form][2 + 2 * at] : 0xbf;
    uint32_t byte = at < 2 ? forms[form][1 + 2 * at] : 0x80, live = SPECDEC__BYTE_KINDS_PLAIN;

    while (byte <= high && live) {
        const uint32_t *edge = specdec__build_find_edge(b, state, byte);

        if (!edge || SPECDEC__RECORD_KIND(b->words[edge[1]]) != SPECDEC__RECORD_PLAIN ||
            SPECDEC__RECORD_STACK_NEED(b->words[edge[1]]) > SPECDEC__RECORD_STACK_NEED(b->words[state]))
            return 0;
        if (at + 1u < forms[form][0])
            live &= specdec__live_kinds_behind_utf8(b, edge[1], form, at + 1, self);
        else
            live &= !self             ? SPECDEC__RECORD_LIVE_KINDS(b->words[edge[1]])
                    : edge[1] == self ? SPECDEC__BYTE_KINDS_PLAIN
                                      : 0;
        byte = (edge[0] >> 8) + 1;
    }
    return live;
}

/* Returns the kinds of bytes that are live in a state and stay live in the states that such bytes lead to. */
static uint32_t specdec__live_kinds_of_state(const specdec__build *b, uint32_t state)
{
    uint32_t live = SPECDEC__RECORD_LIVE_KINDS(b->words[state]), byte = 0x20, next = 0, target = 0;
    int form;

    for (; byte < 0x80 && live; byte++) {
        const uint32_t kind = specdec__byte_kind(byte);

        if (!(kind & live))
            continue;
        if (byte >= next) {
            const uint32_t *edge = specdec__build_find_edge(b, state, byte);

            target = edge && SPECDEC__RECORD_STACK_NEED(b->words[edge[1]]) <=
                                 SPECDEC__RECORD_STACK_NEED(b->words[state])
                         ? SPECDEC__RECORD_LIVE_KINDS(b->words[edge[1]])
                         : 0;
            next = edge ? (edge[0] >> 8) + 1 : byte + 1;
            if (!edge)
                live &= ~kind;
        }
        live &= target | (live & kind ? 0 : SPECDEC__BYTE_KINDS_PLAIN);
    }
    for (form = 0; form < 8 && live & SPECDEC__BYTE_KIND_NON_ASCII; form++) {
        const uint32_t behind = specdec__live_kinds_behind_utf8(b, state, form, 0, 0);

        live &= behind & SPECDEC__BYTE_KIND_NON_ASCII ? behind : ~SPECDEC__BYTE_KIND_NON_ASCII;
    }
    return live;
}

/* Does every character that needs no escape in a JSON string lead back to the state, and no control character on? */
static int specdec__live_state_is_inside_string(const specdec__build *b, uint32_t state)
{
    uint32_t byte;
    int form;

    for (byte = 0; byte < 0x80; byte++) {
        const uint32_t *edge = specdec__build_find_edge(b, state, byte);

        if (byte < 0x20 ? edge != NULL : byte != '"' && byte != '\\' && (!edge || edge[1] != state))
            return 0;
    }
    for (form = 0; form < 8; form++)
        if (!specdec__live_kinds_behind_utf8(b, state, form, 0, state))
            return 0;
    return 1;
}

/* Computes the live kinds of all states without calls. Each round extends them by one byte, and uses what it has
   already found for other states. */
static void specdec__build_compute_live_kinds(specdec__build *b)
{
    uint32_t i, round, changed = 1;

    for (i = 0; i < b->states.count; i++) {
        uint32_t *record = b->words + b->states.data[i];

        if (SPECDEC__RECORD_KIND(record[0]) == SPECDEC__RECORD_PLAIN && !record[1] &&
            SPECDEC__RECORD_EDGES(record[0]) && SPECDEC__RECORD_STACK_NEED(record[0]) < 255)
            record[0] |= SPECDEC__BYTE_KINDS_PLAIN << SPECDEC__RECORD_LIVE_SHIFT;
    }
    for (round = 0; round < SPECDEC__LIVE_KINDS_BYTES && changed && specdec__build_count_work(b, b->states.count);
         round++)
        for (changed = 0, i = 0; i < b->states.count; i++) {
            uint32_t *header = b->words + b->states.data[i], before = SPECDEC__RECORD_LIVE_KINDS(*header), live;

            if (!before || (live = specdec__live_kinds_of_state(b, b->states.data[i])) == before)
                continue;
            *header = (*header & ((1u << SPECDEC__RECORD_LIVE_SHIFT) - 1)) | live << SPECDEC__RECORD_LIVE_SHIFT;
            changed = 1;
        }
    for (i = 0; i < b->states.count; i++)
        if (SPECDEC__RECORD_LIVE_KINDS(b->words[b->states.data[i]]) == SPECDEC__BYTE_KINDS_PLAIN &&
            !(b->words[b->states.data[i]] & SPECDEC__RECORD_MAY_END) &&
            specdec__live_state_is_inside_string(b, b->states.data[i]))
            b->words[b->states.data[i]] |= SPECDEC__RECORD_IN_STRING;
}

/* ---- First bytes of rules. */

/* Adds the bytes that may follow in a state to the first bytes of rule `out`. Returns 1 if the set has changed. */
static int specdec__rule_add_first_bytes(const specdec__build *b, specdec__rule *rules, uint32_t state,
                                         specdec__rule *out)
{
    const uint32_t *record = b->words + state, kind = SPECDEC__RECORD_KIND(record[0]);
    const uint32_t edges = SPECDEC__RECORD_EDGES(record[0]);
    uint32_t before[8], i, j;

    memcpy(before, out->first, sizeof before);
    if (kind == SPECDEC__RECORD_PLAIN) {
        for (i = 0; i < edges; i++)
            for (j = record[2 + 2 * i] & 255; j <= record[2 + 2 * i] >> 8; j++)
                out->first[j >> 5] |= 1u << (j & 31);
        for (i = 0; i < record[1]; i++)
            for (j = 0; j < 8; j++)
                out->first[j] |= rules[record[2 + 2 * (edges + i)]].first[j];
    } else if (kind == SPECDEC__RECORD_REPEAT) {
        return specdec__rule_add_first_bytes(b, rules, record[1], out);
    } else {
        memset(out->first, 255, sizeof out->first); /* the state behind a bracket is never a rule's first one */
    }
    return memcmp(before, out->first, sizeof before) != 0;
}

/* Writes header, rules and words of the finished constraint to the front of the block. root: number of the rule of a
   whole text. Returns 0 when the build failed. */
static int specdec__build_finish(specdec__build *b, uint32_t root, int allows_space)
{
    const size_t header = sizeof(specdec_constraint), size = b->rules.count * sizeof(specdec__rule);
    specdec_constraint *c = (specdec_constraint *)(void *)b->base;
    specdec__rule *rules;
    uint32_t i, changed = 1;

    specdec__build_make_tail_calls(b);
    specdec__build_compute_stack_needs(b);
    specdec__build_remove_unmatchable_calls(b);
    specdec__build_compute_live_kinds(b);
    rules = (specdec__rule *)(void *)specdec__build_reserve_scratch(b, size / 4);
    if (b->failed)
        return 0;
    memset(rules, 0, size);
    while (changed && specdec__build_count_work(b, b->rules.count))
        for (changed = 0, i = b->rules.count; i-- > 0;) {
            rules[i].start = b->rules.data[i];
            rules[i].stack_need = specdec__stack_need_of_rule(b, i);
            changed |= (uint32_t)specdec__rule_add_first_bytes(b, rules, rules[i].start, &rules[i]);
        }
    specdec__build_refuse_crowded_states(b, rules);
    if (!b->failed && specdec__stack_need_of_rule(b, root) > SPECDEC__STACK_HEIGHT)
        specdec__build_fail(b, SPECDEC_ERROR_FORMAT,
                            specdec__stack_need_of_rule(b, root) == 255 ? "nothing matches it"
                                                                        : "it is nested too deeply");
    if ((size_t)((unsigned char *)(b->words + b->word_count) - b->base) + size > b->scratch_at)
        specdec__build_fail(b, SPECDEC_ERROR_MEMORY, "");
    if (b->failed)
        return 0;
    memmove(b->base + header + size, b->words, (size_t)b->word_count * 4);
    memcpy(b->base + header, rules, size);
    memset(c, 0, header);
    c->magic = SPECDEC__CONSTRAINT_MAGIC;
    c->bytes = header + size + (size_t)b->word_count * 4;
    c->rule_count = b->rules.count;
    c->word_count = b->word_count;
    c->root_rule = root;
    c->allows_space = (uint32_t)allows_space;
    c->argument_kinds = b->argument_kinds;
    c->argument_kind_count = b->argument_kind_count;
    c->hash = specdec__hash(SPECDEC__EMPTY_HASH, b->base + header, c->bytes - header);
    c->hash = specdec__hash(c->hash, (const unsigned char *)&c->rule_count, 6 * sizeof c->rule_count);
    return 1;
}

/* Initialises the build of a constraint in a block of memory. Returns 0 when the block is too small for a header. */
static int specdec__build_begin(specdec__build *b, void *memory, size_t bytes)
{
    memset(b, 0, sizeof *b);
    if (!memory || bytes < sizeof(specdec_constraint) + 4096)
        return specdec__build_fail(b, SPECDEC_ERROR_MEMORY, "");
    b->base = (unsigned char *)memory;
    b->size = bytes;
    b->scratch_at = bytes & ~(size_t)7;
    b->words = (uint32_t *)(void *)(b->base + sizeof(specdec_constraint));
    specdec__build_add_words(b, 2); /* no record begins at index 0 */
    specdec__vector_extend(b, &b->tree, SPECDEC__SYNTAX_WORDS);
    specdec__vector_extend(b, &b->ranges, 2);
    return !b->failed;
}

SPECDEC__FOR_SPEED
