/* =====================================================================================================================
 * >>constraint/build: from expressions over characters to states: syntax tree, Thompson's NFA, subset construction.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "automaton.h"

SPECDEC__FOR_SIZE

/* Items of 32 bits that grow; a larger array replaces one that is full. */
typedef struct specdec__vector {
    uint32_t *data;
    uint32_t count, room;
} specdec__vector;

/* What a constraint is built in: the caller's block. Words grow from its front, all else from its back. */
typedef struct specdec__build {
    unsigned char *base;
    size_t size, back;         /* bytes; where what grows from the back begins */
    uint32_t *words;           /* (word_count) behind the header */
    uint32_t word_count;
    specdec__vector rules;     /* (rules) state that each begins in; 0: not built yet */
    specdec__vector nullable;  /* (rules) not 0: it matches the empty text */
    specdec__vector states;    /* all records */
    specdec__vector tree;      /* (SPECDEC__TREE_WORDS) syntax trees */
    specdec__vector ranges;    /* (2) of characters, for sets */
    specdec__vector nfa;       /* (3) type | low << 8 | high << 16; next; next or rule */
    uint32_t repeat_limit;     /* states above which a counted repetition becomes one with a counter; 0: never */
    int strings;               /* characters as in a JSON string: some must be escaped */
    int raw;                   /* strings are built as they are: nothing in them is escaped */
    uint32_t kinds, kind_count; /* as in the header */
    uint64_t work;             /* how much was done: a bound for what is hostile */
    uint32_t body, character, quote; /* states inside a JSON string; rule of one character; where a string begins */
    uint32_t crowd;            /* the state that has too many alternatives */
    int failed;                /* SPECDEC_ERROR_MEMORY, _FORMAT or _UNSUPPORTED */
    const char *why;
    size_t at;                 /* place in the text that failed */
} specdec__build;

enum {
    SPECDEC__TREE_EMPTY, SPECDEC__TREE_SET, SPECDEC__TREE_ALL, SPECDEC__TREE_ANY, SPECDEC__TREE_REPEAT,
    SPECDEC__TREE_RULE, SPECDEC__TREE_BEGIN, SPECDEC__TREE_END,
    SPECDEC__TREE_COUNTED /* all of a rule: repetitions of the rule before it, which a counter counts */
};

/* A tree's node: kind; first child; next sibling; two numbers: ranges and their count, least and most, a rule. The
   children of ALL are in reverse order. */
enum {
    SPECDEC__TREE_KIND, SPECDEC__TREE_CHILD, SPECDEC__TREE_NEXT, SPECDEC__TREE_A, SPECDEC__TREE_B, SPECDEC__TREE_WORDS
};

enum {
    SPECDEC__NFA_BYTE, SPECDEC__NFA_SPLIT, SPECDEC__NFA_CALL, SPECDEC__NFA_ACCEPT, SPECDEC__NFA_BEGIN, SPECDEC__NFA_END
};

#define SPECDEC__BUILD_WORK 30000000u
#define SPECDEC__BUILD_NFA 60000u    /* states of one expression */
#define SPECDEC__BUILD_DFA 8000u
#define SPECDEC__BUILD_DEPTH 100     /* brackets in brackets */
#define SPECDEC__LAST_CHARACTER 0x10ffffu

/* Ends the work; the first reason counts. Returns 0. */
static int specdec__build_fail(specdec__build *b, int code, const char *why)
{
    if (!b->failed) {
        b->failed = code;
        b->why = why;
    }
    return 0;
}

/* Counts work. Returns 0 when it is too much. */
static int specdec__build_works(specdec__build *b, size_t amount)
{
    b->work += amount;
    if (b->work > SPECDEC__BUILD_WORK)
        specdec__build_fail(b, SPECDEC_ERROR_UNSUPPORTED, "too complex");
    return !b->failed;
}

/* Scratch memory for count items of 32 bits, not zeroed; NULL: there is none left. */
static uint32_t *specdec__build_scratch(specdec__build *b, size_t count)
{
    const size_t front = (size_t)((unsigned char *)(b->words + b->word_count) - b->base);
    const size_t bytes = (specdec__size_multiply(count, 4) + 7) & ~(size_t)7;

    if (b->failed || count > SIZE_MAX / 8 || bytes > b->back - front) {
        specdec__build_fail(b, SPECDEC_ERROR_MEMORY, "");
        return NULL;
    }
    b->back -= bytes;
    return (uint32_t *)(void *)(b->base + b->back);
}

/* Room for so many more items. Returns their place, UINT32_MAX: there is no memory. */
static uint32_t specdec__vector_add(specdec__build *b, specdec__vector *v, uint32_t count)
{
    if (count > v->room - v->count) {
        const uint32_t room = v->room + count > 2 * v->room ? v->room + count + 16 : 2 * v->room;
        uint32_t *data = v->room < 1u << 28 ? specdec__build_scratch(b, room) : NULL;

        if (!data)
            return UINT32_MAX;
        if (v->count)
            memcpy(data, v->data, (size_t)v->count * 4);
        v->data = data;
        v->room = room;
    }
    v->count += count;
    return v->count - count;
}

static void specdec__vector_push(specdec__build *b, specdec__vector *v, uint32_t item)
{
    const uint32_t at = specdec__vector_add(b, v, 1);

    if (at != UINT32_MAX)
        v->data[at] = item;
}

/* Room for a record, or for what records name, zeroed. Returns its place; 0: there is no memory. */
static uint32_t specdec__build_words(specdec__build *b, uint32_t count)
{
    const size_t front = (size_t)((unsigned char *)(b->words + b->word_count) - b->base);
    const uint32_t at = b->word_count;

    if (b->failed || (size_t)count * 4 > b->back - front || at > (1u << 28) - count) {
        specdec__build_fail(b, SPECDEC_ERROR_MEMORY, "");
        return 0;
    }
    memset(b->words + at, 0, (size_t)count * 4);
    b->word_count += count;
    return at;
}

/* A record of a kind, of so many words. */
static uint32_t specdec__build_state(specdec__build *b, uint32_t header, uint32_t count)
{
    const uint32_t at = specdec__build_words(b, count);

    if (at) {
        b->words[at] = header;
        specdec__vector_push(b, &b->states, at);
    }
    return at;
}

static uint32_t specdec__build_rule(specdec__build *b)
{
    specdec__vector_push(b, &b->rules, 0);
    specdec__vector_push(b, &b->nullable, 0);
    return b->failed ? 0 : b->rules.count - 1;
}

/* ---- Trees. */

static uint32_t specdec__tree_add(specdec__build *b, uint32_t kind, uint32_t child, uint32_t a, uint32_t more)
{
    const uint32_t at = specdec__vector_add(b, &b->tree, SPECDEC__TREE_WORDS);
    uint32_t *node;

    if (at == UINT32_MAX)
        return 0;
    node = b->tree.data + at;
    node[SPECDEC__TREE_KIND] = kind;
    node[SPECDEC__TREE_CHILD] = child;
    node[SPECDEC__TREE_NEXT] = 0;
    node[SPECDEC__TREE_A] = a;
    node[SPECDEC__TREE_B] = more;
    return at;
}

/* Puts a node before the first child of another one. */
static void specdec__tree_prepend(specdec__build *b, uint32_t parent, uint32_t child)
{
    if (!b->failed) {
        b->tree.data[child + SPECDEC__TREE_NEXT] = b->tree.data[parent + SPECDEC__TREE_CHILD];
        b->tree.data[parent + SPECDEC__TREE_CHILD] = child;
    }
}

static void specdec__range_add(specdec__build *b, uint32_t low, uint32_t high)
{
    specdec__vector_push(b, &b->ranges, low);
    specdec__vector_push(b, &b->ranges, high);
}

/* A set of the ranges behind `from`. */
static uint32_t specdec__tree_set(specdec__build *b, uint32_t from)
{
    return specdec__tree_add(b, SPECDEC__TREE_SET, 0, from, (b->ranges.count - from) / 2);
}

static uint32_t specdec__tree_character(specdec__build *b, uint32_t low, uint32_t high)
{
    const uint32_t from = b->ranges.count;

    specdec__range_add(b, low, high);
    return specdec__tree_set(b, from);
}

/* Turns the ranges behind `from` into all other characters. */
static void specdec__ranges_negate(specdec__build *b, uint32_t from)
{
    const uint32_t count = (b->ranges.count - from) / 2;
    uint32_t *range = b->ranges.data + from, i, j, next = 0;

    for (i = 1; i < count; i++) { /* in order of their beginnings */
        const uint32_t low = range[2 * i], high = range[2 * i + 1];

        for (j = i; j && range[2 * j - 2] > low; j--) {
            range[2 * j] = range[2 * j - 2];
            range[2 * j + 1] = range[2 * j - 1];
        }
        range[2 * j] = low;
        range[2 * j + 1] = high;
    }
    if (!specdec__build_works(b, (size_t)count * count / 8))
        return;
    b->ranges.count = from;
    for (i = 0; i < count; i++) { /* what is written is never ahead of what is read */
        const uint32_t low = range[2 * i], high = range[2 * i + 1];

        if (low > next) {
            b->ranges.data[b->ranges.count++] = next;
            b->ranges.data[b->ranges.count++] = low - 1;
        }
        next = high + 1 > next ? high + 1 : next;
    }
    if (next <= SPECDEC__LAST_CHARACTER)
        specdec__range_add(b, next, SPECDEC__LAST_CHARACTER);
}

/* ---- The NFA, built from its end: each function gets the state that follows, and returns the first one. */

static uint32_t specdec__nfa_add(specdec__build *b, uint32_t head, uint32_t next, uint32_t other)
{
    const uint32_t at = specdec__vector_add(b, &b->nfa, 3);

    if (at == UINT32_MAX || b->nfa.count > 3 * SPECDEC__BUILD_NFA) {
        specdec__build_fail(b, SPECDEC_ERROR_UNSUPPORTED, "too complex");
        return 0;
    }
    b->nfa.data[at] = head;
    b->nfa.data[at + 1] = next;
    b->nfa.data[at + 2] = other;
    return at;
}

/* One of two; UINT32_MAX: nothing. */
static uint32_t specdec__nfa_either(specdec__build *b, uint32_t one, uint32_t other)
{
    return one == UINT32_MAX ? other : specdec__nfa_add(b, SPECDEC__NFA_SPLIT, one, other);
}

/* A byte; the same that was added behind `from` is used again. */
static uint32_t specdec__nfa_byte(specdec__build *b, uint32_t from, uint32_t low, uint32_t high, uint32_t next)
{
    const uint32_t head = SPECDEC__NFA_BYTE | low << 8 | high << 16;
    uint32_t i, tries = 0;

    for (i = b->nfa.count; i > from && tries < 32; tries++) {
        i -= 3;
        if (b->nfa.data[i] == head && b->nfa.data[i + 1] == next)
            return i;
    }
    return specdec__nfa_add(b, head, next, 0);
}

static uint32_t specdec__utf8(uint32_t code, unsigned char out[4])
{
    if (code < 0x80) {
        out[0] = (unsigned char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (unsigned char)(0xc0 | code >> 6);
        out[1] = (unsigned char)(0x80 | (code & 63));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (unsigned char)(0xe0 | code >> 12);
        out[1] = (unsigned char)(0x80 | (code >> 6 & 63));
        out[2] = (unsigned char)(0x80 | (code & 63));
        return 3;
    }
    out[0] = (unsigned char)(0xf0 | code >> 18);
    out[1] = (unsigned char)(0x80 | (code >> 12 & 63));
    out[2] = (unsigned char)(0x80 | (code >> 6 & 63));
    out[3] = (unsigned char)(0x80 | (code & 63));
    return 4;
}

/* Adds the characters low to high, as UTF-8, to those at `all`: cut where bytes behind the first run full circles. */
static uint32_t specdec__nfa_utf8(specdec__build *b, uint32_t from, uint32_t all, uint32_t low, uint32_t high,
                                  uint32_t next)
{
    static const uint32_t ends[] = {0x7f, 0x7ff, 0xd7ff, 0xdfff, 0xffff, SPECDEC__LAST_CHARACTER};

    while (low <= high && !b->failed) {
        unsigned char first[4], last[4];
        uint32_t end = high, size, i, at, unit;

        for (i = 0; i < 6 && ends[i] < low; i++)
            ;
        if (i == 3) { /* halves of pairs are no characters */
            low = 0xe000;
            continue;
        }
        end = end < ends[i] ? end : ends[i];
        size = specdec__utf8(low, first);
        for (unit = 63, i = 1; i < size; i++, unit = unit << 6 | 63) {
            if ((low & ~unit) == (end & ~unit))
                continue;
            if (low & unit)
                end = low | unit;
            else if ((end & unit) != unit)
                end = (end & ~unit) - 1;
        }
        specdec__utf8(low, first);
        specdec__utf8(end, last);
        at = next;
        for (i = size; i-- > 0;)
            at = specdec__nfa_byte(b, from, first[i], last[i], at);
        all = specdec__nfa_either(b, all, at);
        low = end + 1;
    }
    return all;
}

/* \u00XX, and for some the short form, in a JSON string. */
static uint32_t specdec__nfa_escape(specdec__build *b, uint32_t from, uint32_t all, uint32_t code, uint32_t next)
{
    static const char meant[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
    const char *known = code ? strchr(meant, (int)code) : NULL;
    uint32_t at;

    if (known)
        all = specdec__nfa_either(b, all, specdec__nfa_byte(b, from, '\\', '\\',
                                          specdec__nfa_byte(b, from, (uint32_t)names[known - meant],
                                                            (uint32_t)names[known - meant], next)));
    if (code < 0x20) {
        const uint32_t digit = code & 15;
        uint32_t last = digit < 10 ? specdec__nfa_byte(b, from, '0' + digit, '0' + digit, next)
                                   : specdec__nfa_either(b, specdec__nfa_byte(b, from, 'a' + digit - 10,
                                                                              'a' + digit - 10, next),
                                                         specdec__nfa_byte(b, from, 'A' + digit - 10,
                                                                           'A' + digit - 10, next));

        at = specdec__nfa_byte(b, from, '0' + (code >> 4), '0' + (code >> 4), last);
        at = specdec__nfa_byte(b, from, '0', '0', specdec__nfa_byte(b, from, '0', '0', at));
        at = specdec__nfa_byte(b, from, '\\', '\\', specdec__nfa_byte(b, from, 'u', 'u', at));
        all = specdec__nfa_either(b, all, at);
    }
    return all;
}

/* A character of so many ranges. No range: nothing matches. */
static uint32_t specdec__nfa_set(specdec__build *b, uint32_t ranges, uint32_t count, uint32_t next)
{
    const uint32_t from = b->nfa.count;
    uint32_t i, all = UINT32_MAX;

    for (i = 0; i < count && specdec__build_works(b, 16); i++) {
        uint32_t low = b->ranges.data[ranges + 2 * i];
        const uint32_t high = b->ranges.data[ranges + 2 * i + 1];

        if (b->strings)
            for (; low <= high && low <= '\\'; low++) {
                if (low < 0x20 || low == '"' || low == '\\') {
                    all = specdec__nfa_escape(b, from, all, low, next);
                } else { /* up to the next one that must be escaped */
                    const uint32_t limit = low < '"' ? '"' - 1 : '\\' - 1, end = high < limit ? high : limit;

                    all = specdec__nfa_either(b, all, specdec__nfa_byte(b, from, low, end, next));
                    low = end;
                }
            }
        all = specdec__nfa_utf8(b, from, all, low, high, next);
    }
    return all == UINT32_MAX ? specdec__nfa_add(b, SPECDEC__NFA_BYTE | 1 << 8, next, 0) : all; /* low 1, high 0 */
}

static uint32_t specdec__nfa_tree(specdec__build *b, uint32_t tree, uint32_t next);

/* A repetition, with copies of what is repeated. */
static uint32_t specdec__nfa_repeat(specdec__build *b, uint32_t tree, uint32_t next)
{
    const uint32_t *node = b->tree.data + tree;
    const uint32_t child = node[SPECDEC__TREE_CHILD], least = node[SPECDEC__TREE_A], most = node[SPECDEC__TREE_B];
    uint32_t i, at = next;

    if (most == UINT32_MAX) {
        at = specdec__nfa_add(b, SPECDEC__NFA_SPLIT, next, next);
        i = specdec__nfa_tree(b, child, at);
        if (!b->failed)
            b->nfa.data[at + 1] = i;
    }
    for (i = most == UINT32_MAX ? least : most; i > least && specdec__build_works(b, 1); i--)
        at = specdec__nfa_add(b, SPECDEC__NFA_SPLIT, specdec__nfa_tree(b, child, at), next);
    for (; i && specdec__build_works(b, 1); i--)
        at = specdec__nfa_tree(b, child, at);
    return at;
}

static uint32_t specdec__nfa_tree(specdec__build *b, uint32_t tree, uint32_t next)
{
    const uint32_t *node = b->tree.data + tree;
    const uint32_t kind = node[SPECDEC__TREE_KIND], a = node[SPECDEC__TREE_A];
    uint32_t child = node[SPECDEC__TREE_CHILD], all = UINT32_MAX;

    if (!specdec__build_works(b, 1))
        return 0;
    switch (kind) {
    case SPECDEC__TREE_SET: return specdec__nfa_set(b, a, node[SPECDEC__TREE_B], next);
    case SPECDEC__TREE_ALL:
        for (; child && !b->failed; child = b->tree.data[child + SPECDEC__TREE_NEXT])
            next = specdec__nfa_tree(b, child, next);
        return next;
    case SPECDEC__TREE_ANY:
        for (; child && !b->failed; child = b->tree.data[child + SPECDEC__TREE_NEXT])
            all = specdec__nfa_either(b, all, specdec__nfa_tree(b, child, next));
        return all == UINT32_MAX ? next : all;
    case SPECDEC__TREE_REPEAT: return specdec__nfa_repeat(b, tree, next);
    case SPECDEC__TREE_RULE:
        all = specdec__nfa_add(b, SPECDEC__NFA_CALL, next, a);
        return b->nullable.data[a] ? specdec__nfa_either(b, all, next) : all;
    case SPECDEC__TREE_BEGIN: return specdec__nfa_add(b, SPECDEC__NFA_BEGIN, next, 0);
    case SPECDEC__TREE_END: return specdec__nfa_add(b, SPECDEC__NFA_END, next, 0);
    default: return next;
    }
}

/* ---- Subset construction. */

/* A DFA. Classes of bytes are intervals. State 0 has no way out, 1 is the first. */
typedef struct specdec__dfa {
    uint32_t states, classes;
    unsigned char low[257];  /* (classes) first byte of each; */
    unsigned char of[256];   /* class of each byte */
    specdec__vector next;    /* (states, classes) */
    specdec__vector label;   /* (states) bits of what is accepted */
    specdec__vector calls;   /* (3) state, rule, state behind it; in order of states */
    specdec__vector sets;    /* while it is built: per state, place and count in members */
    specdec__vector members, slots, mark, list;
    uint32_t generation;
} specdec__dfa;

/* Notes the borders between classes: 256 bits. */
static void specdec__dfa_classes(specdec__dfa *d, const unsigned char *border)
{
    uint32_t i;

    d->classes = 0;
    for (i = 0; i < 256; i++) {
        if (!i || border[i])
            d->low[d->classes++] = (unsigned char)i;
        d->of[i] = (unsigned char)(d->classes - 1);
    }
}

static uint32_t specdec__dfa_high(const specdec__dfa *d, uint32_t class_of_bytes)
{
    return class_of_bytes + 1 < d->classes ? (uint32_t)d->low[class_of_bytes + 1] - 1 : 255;
}

/* Adds a state of the NFA, and what it leads to without a byte, to d->list. first: nothing was read yet. */
static void specdec__dfa_close(specdec__build *b, specdec__dfa *d, uint32_t state, int first, int last)
{
    uint32_t from = d->list.count, at = from;

    specdec__vector_push(b, &d->list, state);
    /* The list is its own work list: states that only lead on are taken out of it again. */
    while (at < d->list.count && specdec__build_works(b, 1)) {
        const uint32_t n = d->list.data[at], *node = b->nfa.data + n, type = node[0] & 255;
        uint32_t i;

        if (d->mark.data[n / 3] == d->generation) {
            d->list.data[at] = d->list.data[--d->list.count];
            continue;
        }
        d->mark.data[n / 3] = d->generation;
        if (type != SPECDEC__NFA_SPLIT && !(type == SPECDEC__NFA_BEGIN) && !(type == SPECDEC__NFA_END && last)) {
            at++;
            continue;
        }
        d->list.data[at] = d->list.data[--d->list.count];
        for (i = 1; i <= (type == SPECDEC__NFA_SPLIT ? 2u : 1u); i++)
            if (type != SPECDEC__NFA_BEGIN || first)
                specdec__vector_push(b, &d->list, b->nfa.data[n + i]);
    }
}

/* Labels of a set of states: of what is accepted when the text ends here. */
static uint32_t specdec__dfa_label(specdec__build *b, specdec__dfa *d, uint32_t from, uint32_t count, int first)
{
    uint32_t i, label = 0, ends = 0;

    for (i = from; i < from + count; i++) {
        const uint32_t *node = b->nfa.data + d->members.data[i];

        if ((node[0] & 255) == SPECDEC__NFA_ACCEPT)
            label |= node[1];
        ends |= (node[0] & 255) == SPECDEC__NFA_END;
    }
    if (!ends)
        return label;
    d->generation++;
    d->list.count = 0;
    for (i = from; i < from + count && !b->failed; i++)
        specdec__dfa_close(b, d, d->members.data[i], first, 1);
    for (i = 0; i < d->list.count && !b->failed; i++)
        if ((b->nfa.data[d->list.data[i]] & 255) == SPECDEC__NFA_ACCEPT)
            label |= b->nfa.data[d->list.data[i] + 1];
    return label;
}

static uint32_t specdec__dfa_hash(const uint32_t *member, uint32_t count)
{
    uint64_t sum = count;
    uint32_t i;

    for (i = 0; i < count; i++)
        sum += specdec__mix_bits(member[i]);
    return (uint32_t)(sum ^ sum >> 32);
}

/* Puts a state into the table of sets, which doubles when it is half full. */
static void specdec__dfa_enter(specdec__build *b, specdec__dfa *d, uint32_t state)
{
    uint32_t i, hash;

    if (2 * (d->states + 1) > d->slots.count) {
        const uint32_t count = d->slots.count ? 2 * d->slots.count : 32;

        d->slots.count = 0;
        if (specdec__vector_add(b, &d->slots, count) == UINT32_MAX)
            return;
        memset(d->slots.data, 0, (size_t)count * 4);
        for (i = 1; i < state; i++)
            specdec__dfa_enter(b, d, i);
    }
    hash = specdec__dfa_hash(d->members.data + d->sets.data[2 * state], d->sets.data[2 * state + 1]);
    while (d->slots.data[hash & (d->slots.count - 1)])
        hash++;
    d->slots.data[hash & (d->slots.count - 1)] = state;
}

/* The state of the set in d->list, whose members are those marked last; a new one where there is none. */
static uint32_t specdec__dfa_state(specdec__build *b, specdec__dfa *d, int first)
{
    const uint32_t count = d->list.count;
    uint32_t hash, i, state, from;

    if (!count || b->failed)
        return 0;
    hash = specdec__dfa_hash(d->list.data, count);
    for (; d->slots.count && (state = d->slots.data[hash & (d->slots.count - 1)]) != 0; hash++) {
        const uint32_t *member = d->members.data + d->sets.data[2 * state];

        if (d->sets.data[2 * state + 1] != count)
            continue;
        for (i = 0; i < count && d->mark.data[member[i] / 3] == d->generation; i++)
            ;
        if (i == count)
            return state;
    }
    if (d->states >= SPECDEC__BUILD_DFA)
        return (uint32_t)specdec__build_fail(b, SPECDEC_ERROR_UNSUPPORTED, "too complex");
    state = d->states++;
    from = specdec__vector_add(b, &d->members, count);
    if (from == UINT32_MAX)
        return 0;
    memcpy(d->members.data + from, d->list.data, (size_t)count * 4);
    specdec__vector_push(b, &d->sets, from);
    specdec__vector_push(b, &d->sets, count);
    specdec__vector_push(b, &d->label, 0);
    if (specdec__vector_add(b, &d->next, d->classes) == UINT32_MAX || b->failed)
        return 0;
    memset(d->next.data + (size_t)state * d->classes, 0, (size_t)d->classes * 4);
    specdec__dfa_enter(b, d, state);
    if (!b->failed)
        d->label.data[state] = specdec__dfa_label(b, d, from, count, first);
    return b->failed ? 0 : state;
}

/* The state behind a byte of a class, or behind a rule. */
static uint32_t specdec__dfa_target(specdec__build *b, specdec__dfa *d, uint32_t state, uint32_t type, uint32_t what)
{
    const uint32_t from = d->sets.data[2 * state], count = d->sets.data[2 * state + 1];
    uint32_t i;

    d->generation++;
    d->list.count = 0;
    for (i = from; i < from + count && specdec__build_works(b, 1); i++) {
        const uint32_t *node = b->nfa.data + d->members.data[i];

        if ((node[0] & 255) != type)
            continue;
        if (type == SPECDEC__NFA_CALL ? node[2] == what : what >= (node[0] >> 8 & 255) && what <= node[0] >> 16)
            specdec__dfa_close(b, d, node[1], 0, 0);
    }
    return specdec__dfa_state(b, d, 0);
}

static void specdec__dfa_begin(specdec__build *b, specdec__dfa *d)
{
    memset(d, 0, sizeof *d);
    d->states = 1;
    specdec__vector_push(b, &d->sets, 0);
    specdec__vector_push(b, &d->sets, 0);
    specdec__vector_push(b, &d->label, 0);
}

/* The DFA of the NFA that begins in a state. Returns 0 when it failed. */
static int specdec__dfa_build(specdec__build *b, specdec__dfa *d, uint32_t start)
{
    unsigned char border[257];
    uint32_t i, state, c;

    specdec__dfa_begin(b, d);
    memset(border, 0, sizeof border);
    for (i = 0; i < b->nfa.count; i += 3)
        if ((b->nfa.data[i] & 255) == SPECDEC__NFA_BYTE && b->nfa.data[i] >> 16 >= (b->nfa.data[i] >> 8 & 255))
            border[b->nfa.data[i] >> 8 & 255] = border[(b->nfa.data[i] >> 16) + 1] = 1;
    specdec__dfa_classes(d, border);
    if (specdec__vector_add(b, &d->mark, b->nfa.count / 3) == UINT32_MAX ||
        specdec__vector_add(b, &d->next, d->classes) == UINT32_MAX)
        return 0;
    memset(d->mark.data, 0, (size_t)d->mark.count * 4);
    memset(d->next.data, 0, (size_t)d->classes * 4);
    d->generation = 1;
    specdec__dfa_close(b, d, start, 1, 0);
    specdec__dfa_state(b, d, 1);
    for (state = 1; state < d->states && !b->failed; state++) {
        for (c = 0; c < d->classes && !b->failed; c++) {
            const uint32_t target = specdec__dfa_target(b, d, state, SPECDEC__NFA_BYTE, d->low[c]);
            d->next.data[(size_t)state * d->classes + c] = target;
        }
        for (i = 0; i < d->sets.data[2 * state + 1] && !b->failed; i++) {
            const uint32_t *node = b->nfa.data + d->members.data[d->sets.data[2 * state] + i], rule = node[2];
            uint32_t j, target, known = 0;

            if ((node[0] & 255) != SPECDEC__NFA_CALL)
                continue;
            for (j = d->calls.count; j && d->calls.data[j - 3] == state; j -= 3)
                known |= d->calls.data[j - 2] == rule;
            if (known)
                continue;
            target = specdec__dfa_target(b, d, state, SPECDEC__NFA_CALL, rule);
            specdec__vector_push(b, &d->calls, state);
            specdec__vector_push(b, &d->calls, rule);
            specdec__vector_push(b, &d->calls, target);
        }
    }
    return !b->failed;
}

/* How two DFAs become one: labels of both, of the first only without the second, of either. */
enum { SPECDEC__DFA_BOTH, SPECDEC__DFA_WITHOUT, SPECDEC__DFA_EITHER };

/* The product of two DFAs without calls. Pairs of states are the members of its sets. */
static int specdec__dfa_product(specdec__build *b, specdec__dfa *d, const specdec__dfa *x, const specdec__dfa *y,
                                int how)
{
    unsigned char border[257];
    uint32_t i, state, c;

    specdec__dfa_begin(b, d);
    memset(border, 0, sizeof border);
    for (i = 0; i < x->classes; i++)
        border[x->low[i]] = 1;
    for (i = 0; i < y->classes; i++)
        border[y->low[i]] = 1;
    specdec__dfa_classes(d, border);
    specdec__vector_add(b, &d->next, d->classes);
    specdec__vector_push(b, &d->slots, 0); /* chains: of each state of x, the pairs that have it */
    for (i = 1; i < x->states; i++)
        specdec__vector_push(b, &d->slots, 0);
    if (b->failed)
        return 0;
    memset(d->next.data, 0, (size_t)d->classes * 4);
    specdec__vector_push(b, &d->members, 0);
    for (state = 0; state < d->states && !b->failed; state++)
        for (c = state ? 0 : d->classes - 1; c < d->classes; c++) {
            const uint32_t one = state ? d->sets.data[2 * state] : 0, two = state ? d->sets.data[2 * state + 1] : 0;
            const uint32_t p = state ? x->next.data[(size_t)one * x->classes + x->of[d->low[c]]] : x->states > 1;
            const uint32_t q = state ? y->next.data[(size_t)two * y->classes + y->of[d->low[c]]] : y->states > 1;
            uint32_t at, label;

            if ((!p && (how != SPECDEC__DFA_EITHER || !q)) || (!q && how == SPECDEC__DFA_BOTH))
                continue;
            for (at = d->slots.data[p]; at && d->sets.data[2 * at + 1] != q && specdec__build_works(b, 1);)
                at = d->members.data[at];
            if (!at) {
                if (d->states >= SPECDEC__BUILD_DFA)
                    return specdec__build_fail(b, SPECDEC_ERROR_UNSUPPORTED, "too complex");
                at = d->states++;
                label = how == SPECDEC__DFA_EITHER ? x->label.data[p] | y->label.data[q]
                        : !y->label.data[q] == (how == SPECDEC__DFA_WITHOUT) ? x->label.data[p] : 0;
                specdec__vector_push(b, &d->sets, p);
                specdec__vector_push(b, &d->sets, q);
                specdec__vector_push(b, &d->label, label);
                specdec__vector_push(b, &d->members, d->slots.data[p]);
                if (specdec__vector_add(b, &d->next, d->classes) == UINT32_MAX || b->failed)
                    return 0;
                d->slots.data[p] = at;
                memset(d->next.data + (size_t)at * d->classes, 0, (size_t)d->classes * 4);
            }
            if (state)
                d->next.data[(size_t)state * d->classes + c] = at;
        }
    return !b->failed;
}

/* The state that a text leads to from another one. */
static uint32_t specdec__dfa_walk(const specdec__dfa *d, uint32_t state, const unsigned char *text, size_t size)
{
    size_t i;

    for (i = 0; i < size && state; i++)
        state = d->next.data[(size_t)state * d->classes + d->of[text[i]]];
    return state;
}

/* Marks the states of a DFA without calls from which something is accepted. Others become state 0 where they are led
   to. Returns whether the first one is of these. */
static int specdec__dfa_trim(specdec__build *b, specdec__dfa *d)
{
    specdec__vector alive;
    uint32_t i, c, changed = 1;

    memset(&alive, 0, sizeof alive);
    if (d->states < 2 || specdec__vector_add(b, &alive, d->states) == UINT32_MAX)
        return 0;
    for (i = 0; i < d->states; i++)
        alive.data[i] = i && d->label.data[i];
    while (changed && specdec__build_works(b, d->next.count))
        for (changed = 0, i = d->states; i-- > 1;)
            for (c = 0; c < d->classes && !alive.data[i]; c++)
                if (alive.data[d->next.data[(size_t)i * d->classes + c]])
                    changed = alive.data[i] = 1;
    for (i = 0; i < d->next.count; i++)
        if (!alive.data[d->next.data[i]])
            d->next.data[i] = 0;
    return !b->failed && alive.data[1];
}

/* Are two states alike, by the blocks of what they lead to? */
static int specdec__dfa_alike(const specdec__dfa *d, const uint32_t *block, uint32_t a, uint32_t c)
{
    const uint32_t *x = d->next.data + (size_t)a * d->classes, *y = d->next.data + (size_t)c * d->classes;
    uint32_t i;

    for (i = 0; i < d->classes; i++)
        if (block[x[i]] != block[y[i]])
            return 0;
    return block[a] == block[c];
}

/* Splits blocks of states by what these lead to. Returns how many blocks there are then. now: (states) their numbers,
   in order of their first states; slots: (mask + 1) an open hash. */
static uint32_t specdec__dfa_split(const specdec__dfa *d, const uint32_t *block, uint32_t *now, uint32_t *first,
                                   uint32_t *slots, uint32_t mask)
{
    uint32_t i, c, count = 0;

    memset(slots, 0, ((size_t)mask + 1) * 4);
    for (i = 0; i < d->states; i++) {
        uint64_t hash = specdec__mix_bits(block[i] + UINT64_C(1));
        uint32_t other;

        for (c = 0; c < d->classes; c++)
            hash = specdec__mix_bits(hash ^ block[d->next.data[(size_t)i * d->classes + c]]);
        for (; (other = slots[hash & mask]) != 0; hash++)
            if (specdec__dfa_alike(d, block, first[other - 1], i))
                break;
        if (!other) {
            first[count] = i;
            slots[hash & mask] = ++count;
            other = count;
        }
        now[i] = other - 1;
    }
    return count;
}

/* Makes one of states that nothing tells apart (E. F. Moore 1956), of a DFA without calls. State 1 stays the first. */
static void specdec__dfa_minimise(specdec__build *b, specdec__dfa *d)
{
    uint32_t mask = 15, count = 0, before = 0, i, c, *block, *now, *first, *slots;

    if (d->calls.count || d->states < 3)
        return;
    while (mask < 2 * d->states)
        mask = 2 * mask + 1;
    block = specdec__build_scratch(b, 3 * (size_t)d->states);
    slots = specdec__build_scratch(b, (size_t)mask + 1);
    if (!block || !slots)
        return;
    now = block + d->states;
    first = now + d->states;
    for (i = 0; i < d->states; i++)
        block[i] = i ? d->label.data[i] + 1 : 0;
    while ((count = specdec__dfa_split(d, block, now, first, slots, mask)) != before) {
        if (!specdec__build_works(b, d->next.count / 4 + 1))
            return;
        before = count;
        memcpy(block, now, (size_t)d->states * 4);
    }
    for (i = 0; i < count; i++) { /* a block's first state is never below its number */
        d->label.data[i] = d->label.data[first[i]];
        for (c = 0; c < d->classes; c++)
            d->next.data[(size_t)i * d->classes + c] = block[d->next.data[(size_t)first[i] * d->classes + c]];
    }
    d->states = count;
    d->label.count = count;
    d->next.count = count * d->classes;
}

/* ---- Records. */

/* What a DFA's state becomes: edges where classes that lead to the same state are one, and calls. */
static uint32_t specdec__emit_edges(const specdec__dfa *d, uint32_t state, const uint32_t *place, uint32_t *out)
{
    const uint32_t *next = d->next.data + (size_t)state * d->classes;
    uint32_t c, count = 0, previous = 0;

    for (c = 0; c < d->classes; previous = next[c++]) {
        if (!next[c])
            continue;
        if (next[c] == previous) {
            if (out)
                out[2 * count - 2] = (out[2 * count - 2] & 255) | specdec__dfa_high(d, c) << 8;
            continue;
        }
        if (out) {
            out[2 * count] = d->low[c] | specdec__dfa_high(d, c) << 8;
            out[2 * count + 1] = place[next[c]];
        }
        count++;
    }
    return count;
}

/* Records of a DFA, which becomes the least one. ends (32) says where a quote leads that ends each label; NULL:
   accepting states end a rule. Returns the first one. places: those of all states, or NULL. */
static uint32_t specdec__emit(specdec__build *b, specdec__dfa *d, const uint32_t *ends, uint32_t **places)
{
    uint32_t *place, i, call = 0, at;

    specdec__dfa_minimise(b, d);
    place = specdec__build_scratch(b, d->states);
    if (!place || d->states < 2)
        return 0;
    place[0] = 0;
    for (i = 1, at = b->word_count; i < d->states; i++) {
        uint32_t calls = 0;

        for (; call < d->calls.count && d->calls.data[call] == i; call += 3)
            calls++;
        place[i] = at;
        at += 2 + 2 * (specdec__emit_edges(d, i, NULL, NULL) + calls + (ends && d->label.data[i] ? 1 : 0));
    }
    for (i = 1, call = 0; i < d->states && !b->failed; i++) {
        const uint32_t end = i + 1 < d->states ? place[i + 1] : at, label = d->label.data[i];
        uint32_t *record, edges;

        if (!specdec__build_state(b, SPECDEC__VERTEX_PLAIN, end - place[i]))
            return 0;
        record = b->words + place[i];
        edges = specdec__emit_edges(d, i, place, record + 2);
        if (ends && label) { /* in order of bytes; no byte of a string's inside is a quote */
            uint32_t j, bit = 0;

            while (!(label >> bit & 1))
                bit++;
            for (j = edges++; j && (record[2 + 2 * j - 2] & 255) > '"'; j--) {
                record[2 + 2 * j] = record[2 * j];
                record[3 + 2 * j] = record[2 * j + 1];
            }
            record[2 + 2 * j] = '"' | '"' << 8;
            record[3 + 2 * j] = ends[bit];
        }
        record[0] |= edges << 16 | (!ends && label ? SPECDEC__VERTEX_FINAL : 0);
        for (; call < d->calls.count && d->calls.data[call] == i; call += 3) {
            uint32_t *out = record + 2 + 2 * (edges + record[1]++);
            const uint32_t target = d->calls.data[call + 2];

            out[0] = d->calls.data[call + 1];
            out[1] = place[target];
        }
    }
    if (places)
        *places = place;
    return place[1];
}

/* Calls whose end is the end of their rule need no level of the stack. */
static void specdec__build_tails(specdec__build *b)
{
    uint32_t i, j;

    for (i = 0; i < b->states.count; i++) {
        uint32_t *record = b->words + b->states.data[i];

        if (SPECDEC__VERTEX_KIND(record[0]) != SPECDEC__VERTEX_PLAIN)
            continue;
        for (j = 0; j < record[1]; j++) {
            uint32_t *call = record + 2 + 2 * (SPECDEC__VERTEX_EDGES(record[0]) + j);
            const uint32_t *behind = b->words + call[1];

            if (call[1] && behind[0] == (SPECDEC__VERTEX_PLAIN | SPECDEC__VERTEX_FINAL) && !behind[1])
                call[1] = 0;
        }
    }
}

/* Builds a rule from a tree. */
static int specdec__build_expression(specdec__build *b, uint32_t rule, uint32_t tree)
{
    specdec__dfa d;
    uint32_t start;

    b->nfa.count = 0;
    start = specdec__nfa_add(b, SPECDEC__NFA_ACCEPT, 1, 0);
    start = specdec__nfa_tree(b, tree, start);
    if (b->failed || !specdec__dfa_build(b, &d, start))
        return 0;
    start = specdec__emit(b, &d, NULL, NULL);
    if (!b->failed)
        b->rules.data[rule] = start;
    return !b->failed;
}

SPECDEC__FOR_SPEED
