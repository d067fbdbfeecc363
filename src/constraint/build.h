/* =====================================================================================================================
 * >>constraint/build: builds states from expressions over characters: syntax tree, Thompson's NFA, subset construction.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "automaton.h"

SPECDEC__FOR_SIZE

/* A growing array of 32-bit items. When it is full, a larger copy takes its place; the old memory stays unused. */
typedef struct specdec__vector {
    uint32_t *data; /* (count of capacity) items */
    uint32_t count, capacity; /* items in use; items that there is room for */
} specdec__vector;

/* A constraint that is being built in the caller's block: words are added at its front, scratch memory at its back. */
typedef struct specdec__build {
    unsigned char *base;     /* the caller's memory block, in which the constraint is built */
    size_t size, scratch_at; /* bytes of the block; offset in it where scratch memory begins */
    uint32_t *words;         /* (word_count) words, behind the constraint's header */
    uint32_t word_count;     /* number of words of the constraint so far */
    specdec__vector rules;                        /* first state of each rule; 0: not built yet */
    specdec__vector nullable;                     /* for each rule, not 0: it matches the empty text */
    specdec__vector states;                       /* indices of all records among the words */
    specdec__vector tree;                         /* syntax trees, SPECDEC__SYNTAX_WORDS words for each node */
    specdec__vector ranges;                       /* first and last character of each range of the sets */
    specdec__vector nfa;   /* states of the NFA, 3 words each: see specdec__nfa_add_state */
    uint32_t repeat_limit; /* NFA states above which a repetition is counted at run time, not copied; 0: no limit */
    int json_strings;      /* 1: characters are spelled as in a JSON string, some with an escape */
    int raw_strings;       /* 1: listed strings are spelled without escapes */
    uint32_t argument_kinds, argument_kind_count; /* index among the words of tool argument kinds; their number */
    uint64_t work;             /* units of work so far, at most SPECDEC__BUILD_WORK_MOST, against hostile sources */
    uint32_t string_body;      /* state inside any JSON string, behind its opening quote */
    uint32_t string_character; /* rule of one character of any JSON string */
    uint32_t string_quote;     /* state in front of the opening quote of any JSON string */
    uint32_t crowded_state;    /* state that was refused, as it has too many alternatives */
    int failed;                /* 0, SPECDEC_ERROR_MEMORY, _FORMAT or _UNSUPPORTED */
    const char *error_text;    /* reason of the failure */
    size_t error_at;           /* byte offset of the error in the constraint's source text */
} specdec__build;

/* Kinds of nodes of the syntax tree of an expression over characters. */
enum {
    SPECDEC__SYNTAX_EMPTY, SPECDEC__SYNTAX_SET, SPECDEC__SYNTAX_ALL, SPECDEC__SYNTAX_ANY, SPECDEC__SYNTAX_REPEAT,
    SPECDEC__SYNTAX_RULE, SPECDEC__SYNTAX_BEGIN, SPECDEC__SYNTAX_END,
    SPECDEC__SYNTAX_COUNTED /* node of a rule by itself: repetitions of the rule before it, counted at run time */
};

/* Words of a syntax tree's node: kind; first child; next sibling; two numbers A and B: a SET's first range and number
   of ranges, a REPEAT's least and most, the RULE's number. Children of ALL (a concatenation) are in reverse order. */
enum {
    SPECDEC__SYNTAX_KIND, SPECDEC__SYNTAX_CHILD, SPECDEC__SYNTAX_NEXT, SPECDEC__SYNTAX_A, SPECDEC__SYNTAX_B,
    SPECDEC__SYNTAX_WORDS
};

/* Types of states of the NFA (nondeterministic finite automaton). */
enum {
    SPECDEC__NFA_BYTE, SPECDEC__NFA_SPLIT, SPECDEC__NFA_CALL, SPECDEC__NFA_ACCEPT, SPECDEC__NFA_BEGIN, SPECDEC__NFA_END
};

#define SPECDEC__BUILD_WORK_MOST 30000000u /* units of work that building a constraint may take, at most */
#define SPECDEC__NFA_STATES_MOST 60000u /* NFA states of one expression, at most */
#define SPECDEC__DFA_STATES_MOST 8000u /* states of one DFA, at most */
#define SPECDEC__BRACKETS_MOST 100   /* brackets within each other in a constraint's source, at most */
#define SPECDEC__LAST_CODE_POINT 0x10ffffu /* the last code point of Unicode */

/* Stores the error of a build and its text, unless an earlier one is stored. Returns 0. */
static int specdec__build_fail(specdec__build *b, int code, const char *why)
{
    if (!b->failed) {
        b->failed = code;
        b->error_text = why;
    }
    return 0;
}

/* Adds to the build's units of work. Returns 0 when the build has failed or the work is above its limit. */
static int specdec__build_count_work(specdec__build *b, size_t amount)
{
    b->work += amount;
    if (b->work > SPECDEC__BUILD_WORK_MOST)
        specdec__build_fail(b, SPECDEC_ERROR_UNSUPPORTED, "too complex");
    return !b->failed;
}

/* Takes scratch memory for `count` items of 32 bits, not zeroed; NULL: the block is full. */
static uint32_t *specdec__build_reserve_scratch(specdec__build *b, size_t count)
{
    const size_t front = (size_t)((unsigned char *)(b->words + b->word_count) - b->base);
    const size_t bytes = (specdec__size_multiply(count, 4) + 7) & ~(size_t)7;

    if (b->failed || count > SIZE_MAX / 8 || bytes > b->scratch_at - front) {
        specdec__build_fail(b, SPECDEC_ERROR_MEMORY, "");
        return NULL;
    }
    b->scratch_at -= bytes;
    return (uint32_t *)(void *)(b->base + b->scratch_at);
}

/* Appends room for `count` items to a vector. Returns the index of the first one; UINT32_MAX: the block is full. */
static uint32_t specdec__vector_extend(specdec__build *b, specdec__vector *v, uint32_t count)
{
    if (count > v->capacity - v->count) {
        const uint32_t room = v->capacity + count > 2 * v->capacity ? v->capacity + count + 16 : 2 * v->capacity;
        uint32_t *data = v->capacity < 1u << 28 ? specdec__build_reserve_scratch(b, room) : NULL;

        if (!data)
            return UINT32_MAX;
        if (v->count)
            memcpy(data, v->data, (size_t)v->count * 4);
        v->data = data;
        v->capacity = room;
    }
    v->count += count;
    return v->count - count;
}

/* Appends an item to a vector; a full block makes the build fail. */
static void specdec__vector_push(specdec__build *b, specdec__vector *v, uint32_t item)
{
    const uint32_t at = specdec__vector_extend(b, v, 1);

    if (at != UINT32_MAX)
        v->data[at] = item;
}

/* Appends `count` zeroed words to the constraint. Returns the index of the first one; 0: the block is full. */
static uint32_t specdec__build_add_words(specdec__build *b, uint32_t count)
{
    const size_t front = (size_t)((unsigned char *)(b->words + b->word_count) - b->base);
    const uint32_t at = b->word_count;

    if (b->failed || (size_t)count * 4 > b->scratch_at - front || at > (1u << 28) - count) {
        specdec__build_fail(b, SPECDEC_ERROR_MEMORY, "");
        return 0;
    }
    memset(b->words + at, 0, (size_t)count * 4);
    b->word_count += count;
    return at;
}

/* Appends the record of a state, `count` words with this header, to the constraint. Returns the state, the record's
   index; 0: the block is full. */
static uint32_t specdec__build_add_state(specdec__build *b, uint32_t header, uint32_t count)
{
    const uint32_t at = specdec__build_add_words(b, count);

    if (at) {
        b->words[at] = header;
        specdec__vector_push(b, &b->states, at);
    }
    return at;
}

/* Adds a rule that is not built yet to the constraint. Returns the rule's number. */
static uint32_t specdec__build_add_rule(specdec__build *b)
{
    specdec__vector_push(b, &b->rules, 0);
    specdec__vector_push(b, &b->nullable, 0);
    return b->failed ? 0 : b->rules.count - 1;
}

/* ---- Syntax trees of expressions over characters. */

/* Adds a node to the syntax trees. Returns its index. */
static uint32_t specdec__syntax_add_node(specdec__build *b, uint32_t kind, uint32_t child, uint32_t a, uint32_t more)
{
    const uint32_t at = specdec__vector_extend(b, &b->tree, SPECDEC__SYNTAX_WORDS);
    uint32_t *node;

    if (at == UINT32_MAX)
        return 0;
    node = b->tree.data + at;
    node[SPECDEC__SYNTAX_KIND] = kind;
    node[SPECDEC__SYNTAX_CHILD] = child;
    node[SPECDEC__SYNTAX_NEXT] = 0;
    node[SPECDEC__SYNTAX_A] = a;
    node[SPECDEC__SYNTAX_B] = more;
    return at;
}

/* Makes a node of a syntax tree the first child of the node `parent`. */
static void specdec__syntax_prepend_child(specdec__build *b, uint32_t parent, uint32_t child)
{
    if (!b->failed) {
        b->tree.data[child + SPECDEC__SYNTAX_NEXT] = b->tree.data[parent + SPECDEC__SYNTAX_CHILD];
        b->tree.data[parent + SPECDEC__SYNTAX_CHILD] = child;
    }
}

/* Adds the characters low to high to the ranges of the character set that is being made. */
static void specdec__syntax_add_range(specdec__build *b, uint32_t low, uint32_t high)
{
    specdec__vector_push(b, &b->ranges, low);
    specdec__vector_push(b, &b->ranges, high);
}

/* Adds a SET node, of the ranges from index `from` to the last one, to the syntax trees. Returns its index. */
static uint32_t specdec__syntax_add_set(specdec__build *b, uint32_t from)
{
    return specdec__syntax_add_node(b, SPECDEC__SYNTAX_SET, 0, from, (b->ranges.count - from) / 2);
}

/* Adds a SET node of one range of characters, low to high, to the syntax trees. Returns its index. */
static uint32_t specdec__syntax_add_character(specdec__build *b, uint32_t low, uint32_t high)
{
    const uint32_t from = b->ranges.count;

    specdec__syntax_add_range(b, low, high);
    return specdec__syntax_add_set(b, from);
}

/* Replaces the ranges from index `from` on by their complement in Unicode. */
static void specdec__syntax_negate_ranges(specdec__build *b, uint32_t from)
{
    const uint32_t count = (b->ranges.count - from) / 2;
    uint32_t *range = b->ranges.data + from, i, j, next = 0;

    for (i = 1; i < count; i++) { /* insertion sort by the first character */
        const uint32_t low = range[2 * i], high = range[2 * i + 1];

        for (j = i; j && range[2 * j - 2] > low; j--) {
            range[2 * j] = range[2 * j - 2];
            range[2 * j + 1] = range[2 * j - 1];
        }
        range[2 * j] = low;
        range[2 * j + 1] = high;
    }
    if (!specdec__build_count_work(b, (size_t)count * count / 8))
        return;
    b->ranges.count = from;
    for (i = 0; i < count; i++) { /* in place: a range is only written where it was read already */
        const uint32_t low = range[2 * i], high = range[2 * i + 1];

        if (low > next) {
            b->ranges.data[b->ranges.count++] = next;
            b->ranges.data[b->ranges.count++] = low - 1;
        }
        next = high + 1 > next ? high + 1 : next;
    }
    if (next <= SPECDEC__LAST_CODE_POINT)
        specdec__syntax_add_range(b, next, SPECDEC__LAST_CODE_POINT);
}

/* ---- The NFA (K. Thompson 1968), built from its end: a function gets the next state and returns the first one. */

/* Adds a state to the NFA, 3 words: head (type | low byte << 8 | high byte << 16); next state; second next state, label
   or rule. Returns its index; 0: the build failed. */
static uint32_t specdec__nfa_add_state(specdec__build *b, uint32_t head, uint32_t next, uint32_t other)
{
    const uint32_t at = specdec__vector_extend(b, &b->nfa, 3);

    if (at == UINT32_MAX || b->nfa.count > 3 * SPECDEC__NFA_STATES_MOST) {
        specdec__build_fail(b, SPECDEC_ERROR_UNSUPPORTED, "too complex");
        return 0;
    }
    b->nfa.data[at] = head;
    b->nfa.data[at + 1] = next;
    b->nfa.data[at + 2] = other;
    return at;
}

/* Adds an NFA state that leads to two states without reading a byte. Returns its index. If `one` is UINT32_MAX, it adds
   no state and returns `other`. */
static uint32_t specdec__nfa_add_split(specdec__build *b, uint32_t one, uint32_t other)
{
    return one == UINT32_MAX ? other : specdec__nfa_add_state(b, SPECDEC__NFA_SPLIT, one, other);
}

/* Adds a BYTE state, which reads a byte from low to high, to the NFA; an equal one that was added from index `from` on
   is used again. Returns its index. */
static uint32_t specdec__nfa_add_byte(specdec__build *b, uint32_t from, uint32_t low, uint32_t high, uint32_t next)
{
    const uint32_t head = SPECDEC__NFA_BYTE | low << 8 | high << 16;
    uint32_t i, tries = 0;

    for (i = b->nfa.count; i > from && tries < 32; tries++) {
        i -= 3;
        if (b->nfa.data[i] == head && b->nfa.data[i + 1] == next)
            return i;
    }
    return specdec__nfa_add_state(b, head, next, 0);
}

/* Writes a character as UTF-8. Returns its bytes. */
static uint32_t specdec__utf8_encode(uint32_t code, unsigned char out[4])
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

/* Adds states that read the characters low to high, as UTF-8, to the alternatives that begin in state `all`. Returns
   the first state of all alternatives. The range is cut so that in each part all bytes behind the first different one
   take all their values. */
static uint32_t specdec__nfa_add_utf8(specdec__build *b, uint32_t from, uint32_t all, uint32_t low, uint32_t high,
                                      uint32_t next)
{
    static const uint32_t ends[] = {0x7f, 0x7ff, 0xd7ff, 0xdfff, 0xffff, SPECDEC__LAST_CODE_POINT};

    while (low <= high && !b->failed) {
        unsigned char first[4], last[4];
        uint32_t end = high, size, i, at, unit;

        for (i = 0; i < 6 && ends[i] < low; i++)
            ;
        if (i == 3) { /* surrogates are no characters */
            low = 0xe000;
            continue;
        }
        end = end < ends[i] ? end : ends[i];
        size = specdec__utf8_encode(low, first);
        for (unit = 63, i = 1; i < size; i++, unit = unit << 6 | 63) {
            if ((low & ~unit) == (end & ~unit))
                continue;
            if (low & unit)
                end = low | unit;
            else if ((end & unit) != unit)
                end = (end & ~unit) - 1;
        }
        specdec__utf8_encode(low, first);
        specdec__utf8_encode(end, last);
        at = next;
        for (i = size; i-- > 0;)
            at = specdec__nfa_add_byte(b, from, first[i], last[i], at);
        all = specdec__nfa_add_split(b, all, at);
        low = end + 1;
    }
    return all;
}

/* Adds states that read a character's escapes in a JSON string, \u00XX and, if it has one, the short form, to the
   alternatives that begin in state `all`. Returns the first state of all alternatives. */
static uint32_t specdec__nfa_add_escape(specdec__build *b, uint32_t from, uint32_t all, uint32_t code, uint32_t next)
{
    static const char meant[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
    const char *known = code ? strchr(meant, (int)code) : NULL;
    uint32_t at;

    if (known)
        all = specdec__nfa_add_split(b, all, specdec__nfa_add_byte(b, from, '\\', '\\',
                                          specdec__nfa_add_byte(b, from, (uint32_t)names[known - meant],
                                                                (uint32_t)names[known - meant], next)));
    if (code < 0x20) {
        const uint32_t digit = code & 15;
        uint32_t last = digit < 10 ? specdec__nfa_add_byte(b, from, '0' + digit, '0' + digit, next)
                                   : specdec__nfa_add_split(b, specdec__nfa_add_byte(b, from, 'a' + digit - 10,
                                                                                     'a' + digit - 10, next),
                                                            specdec__nfa_add_byte(b, from, 'A' + digit - 10,
                                                                                  'A' + digit - 10, next));

        at = specdec__nfa_add_byte(b, from, '0' + (code >> 4), '0' + (code >> 4), last);
        at = specdec__nfa_add_byte(b, from, '0', '0', specdec__nfa_add_byte(b, from, '0', '0', at));
        at = specdec__nfa_add_byte(b, from, '\\', '\\', specdec__nfa_add_byte(b, from, 'u', 'u', at));
        all = specdec__nfa_add_split(b, all, at);
    }
    return all;
}

/* Adds states that read one character of a set of `count` ranges; without ranges, a state that nothing matches. Returns
   the first state. */
static uint32_t specdec__nfa_add_set(specdec__build *b, uint32_t ranges, uint32_t count, uint32_t next)
{
    const uint32_t from = b->nfa.count;
    uint32_t i, all = UINT32_MAX;

    for (i = 0; i < count && specdec__build_count_work(b, 16); i++) {
        uint32_t low = b->ranges.data[ranges + 2 * i];
        const uint32_t high = b->ranges.data[ranges + 2 * i + 1];

        if (b->json_strings)
            for (; low <= high && low <= '\\'; low++) {
                if (low < 0x20 || low == '"' || low == '\\') {
                    all = specdec__nfa_add_escape(b, from, all, low, next);
                } else { /* stops in front of the next character that needs an escape */
                    const uint32_t limit = low < '"' ? '"' - 1 : '\\' - 1, end = high < limit ? high : limit;

                    all = specdec__nfa_add_split(b, all, specdec__nfa_add_byte(b, from, low, end, next));
                    low = end;
                }
            }
        all = specdec__nfa_add_utf8(b, from, all, low, high, next);
    }
    /* an empty range of bytes: low 1, high 0 */
    return all == UINT32_MAX ? specdec__nfa_add_state(b, SPECDEC__NFA_BYTE | 1 << 8, next, 0) : all;
}

static uint32_t specdec__nfa_add_tree(specdec__build *b, uint32_t tree, uint32_t next);

/* Adds states of a syntax tree's repetition, as copies: `least` of them, then optional ones or a loop. Returns the
   first state. */
static uint32_t specdec__nfa_add_repetition(specdec__build *b, uint32_t tree, uint32_t next)
{
    const uint32_t *node = b->tree.data + tree;
    const uint32_t child = node[SPECDEC__SYNTAX_CHILD], least = node[SPECDEC__SYNTAX_A], most = node[SPECDEC__SYNTAX_B];
    uint32_t i, at = next;

    if (most == UINT32_MAX) {
        at = specdec__nfa_add_state(b, SPECDEC__NFA_SPLIT, next, next);
        i = specdec__nfa_add_tree(b, child, at);
        if (!b->failed)
            b->nfa.data[at + 1] = i;
    }
    for (i = most == UINT32_MAX ? least : most; i > least && specdec__build_count_work(b, 1); i--)
        at = specdec__nfa_add_state(b, SPECDEC__NFA_SPLIT, specdec__nfa_add_tree(b, child, at), next);
    for (; i && specdec__build_count_work(b, 1); i--)
        at = specdec__nfa_add_tree(b, child, at);
    return at;
}

/* Adds the NFA states of a syntax tree, followed by the state `next`. Returns the first state. */
static uint32_t specdec__nfa_add_tree(specdec__build *b, uint32_t tree, uint32_t next)
{
    const uint32_t *node = b->tree.data + tree;
    const uint32_t kind = node[SPECDEC__SYNTAX_KIND], a = node[SPECDEC__SYNTAX_A];
    uint32_t child = node[SPECDEC__SYNTAX_CHILD], all = UINT32_MAX;

    if (!specdec__build_count_work(b, 1))
        return 0;
    switch (kind) {
    case SPECDEC__SYNTAX_SET: return specdec__nfa_add_set(b, a, node[SPECDEC__SYNTAX_B], next);
    case SPECDEC__SYNTAX_ALL:
        for (; child && !b->failed; child = b->tree.data[child + SPECDEC__SYNTAX_NEXT])
            next = specdec__nfa_add_tree(b, child, next);
        return next;
    case SPECDEC__SYNTAX_ANY:
        for (; child && !b->failed; child = b->tree.data[child + SPECDEC__SYNTAX_NEXT])
            all = specdec__nfa_add_split(b, all, specdec__nfa_add_tree(b, child, next));
        return all == UINT32_MAX ? next : all;
    case SPECDEC__SYNTAX_REPEAT: return specdec__nfa_add_repetition(b, tree, next);
    case SPECDEC__SYNTAX_RULE:
        all = specdec__nfa_add_state(b, SPECDEC__NFA_CALL, next, a);
        return b->nullable.data[a] ? specdec__nfa_add_split(b, all, next) : all;
    case SPECDEC__SYNTAX_BEGIN: return specdec__nfa_add_state(b, SPECDEC__NFA_BEGIN, next, 0);
    case SPECDEC__SYNTAX_END: return specdec__nfa_add_state(b, SPECDEC__NFA_END, next, 0);
    default: return next;
    }
}

/* ---- Subset construction: the DFA of an NFA. */

/* A DFA over classes of bytes, which are intervals. State 0 rejects, state 1 is the first. */
typedef struct specdec__dfa {
    uint32_t states, classes; /* number of states; number of classes of bytes */
    unsigned char class_first[257];     /* (classes) first byte of each class */
    unsigned char class_of[256];        /* index of the class of each byte */
    specdec__vector next;               /* (states, classes) state to which each class of bytes leads; 0: none */
    specdec__vector label;              /* (states) bits of the labels that are accepted in the state */
    specdec__vector calls;              /* 3 words each: state, rule that it calls, state behind; in order of states */
    specdec__vector sets;               /* (2 * states) index in `members`, and number, of a state's NFA states */
    specdec__vector members, set_table; /* NFA states of all DFA states; hash table by which a DFA state is found */
    specdec__vector visited;            /* number of the set by which each NFA state was visited last */
    specdec__vector current_set;        /* NFA states of the set that is being made */
    uint32_t generation;                /* number of the current set of NFA states */
} specdec__dfa;

/* Sets the classes of bytes from their borders: border[i] is 1 where a class begins at byte i. */
static void specdec__dfa_set_classes(specdec__dfa *d, const unsigned char *border)
{
    uint32_t i;

    d->classes = 0;
    for (i = 0; i < 256; i++) {
        if (!i || border[i])
            d->class_first[d->classes++] = (unsigned char)i;
        d->class_of[i] = (unsigned char)(d->classes - 1);
    }
}

/* Returns the last byte of a class of bytes. */
static uint32_t specdec__dfa_last_byte_of_class(const specdec__dfa *d, uint32_t class_of_bytes)
{
    return class_of_bytes + 1 < d->classes ? (uint32_t)d->class_first[class_of_bytes + 1] - 1 : 255;
}

/* Adds the epsilon closure of an NFA state to d->current_set. first: nothing was read yet; last: the text ends
   here, so that anchors at its end hold. */
static void specdec__dfa_add_closure(specdec__build *b, specdec__dfa *d, uint32_t state, int first, int last)
{
    uint32_t from = d->current_set.count, at = from;

    specdec__vector_push(b, &d->current_set, state);
    /* The list is also the list of work: SPLIT and anchor states are replaced by the states behind them. */
    while (at < d->current_set.count && specdec__build_count_work(b, 1)) {
        const uint32_t n = d->current_set.data[at], *node = b->nfa.data + n, type = node[0] & 255;
        uint32_t i;

        if (d->visited.data[n / 3] == d->generation) {
            d->current_set.data[at] = d->current_set.data[--d->current_set.count];
            continue;
        }
        d->visited.data[n / 3] = d->generation;
        if (type != SPECDEC__NFA_SPLIT && !(type == SPECDEC__NFA_BEGIN) && !(type == SPECDEC__NFA_END && last)) {
            at++;
            continue;
        }
        d->current_set.data[at] = d->current_set.data[--d->current_set.count];
        for (i = 1; i <= (type == SPECDEC__NFA_SPLIT ? 2u : 1u); i++)
            if (type != SPECDEC__NFA_BEGIN || first)
                specdec__vector_push(b, &d->current_set, b->nfa.data[n + i]);
    }
}

/* Returns the labels of a set of NFA states: bits of the ACCEPT states that are reached if the text ends here. */
static uint32_t specdec__dfa_find_labels_of_set(specdec__build *b, specdec__dfa *d, uint32_t from, uint32_t count,
                                                int first)
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
    d->current_set.count = 0;
    for (i = from; i < from + count && !b->failed; i++)
        specdec__dfa_add_closure(b, d, d->members.data[i], first, 1);
    for (i = 0; i < d->current_set.count && !b->failed; i++)
        if ((b->nfa.data[d->current_set.data[i]] & 255) == SPECDEC__NFA_ACCEPT)
            label |= b->nfa.data[d->current_set.data[i] + 1];
    return label;
}

/* Returns a hash of a set of NFA states, whatever their order. */
static uint32_t specdec__dfa_hash_set(const uint32_t *member, uint32_t count)
{
    uint64_t sum = count;
    uint32_t i;

    for (i = 0; i < count; i++)
        sum += specdec__mix_bits(member[i]);
    return (uint32_t)(sum ^ sum >> 32);
}

/* Enters a state into the hash table of sets, which doubles when it is half full. */
static void specdec__dfa_enter_set_in_table(specdec__build *b, specdec__dfa *d, uint32_t state)
{
    uint32_t i, hash;

    if (2 * (d->states + 1) > d->set_table.count) {
        const uint32_t count = d->set_table.count ? 2 * d->set_table.count : 32;

        d->set_table.count = 0;
        if (specdec__vector_extend(b, &d->set_table, count) == UINT32_MAX)
            return;
        memset(d->set_table.data, 0, (size_t)count * 4);
        for (i = 1; i < state; i++)
            specdec__dfa_enter_set_in_table(b, d, i);
    }
    hash = specdec__dfa_hash_set(d->members.data + d->sets.data[2 * state], d->sets.data[2 * state + 1]);
    while (d->set_table.data[hash & (d->set_table.count - 1)])
        hash++;
    d->set_table.data[hash & (d->set_table.count - 1)] = state;
}

/* Returns the DFA state of the set of NFA states in d->current_set, whose members are marked; a new set gets a new
   state. */
static uint32_t specdec__dfa_find_state_of_set(specdec__build *b, specdec__dfa *d, int first)
{
    const uint32_t count = d->current_set.count;
    uint32_t hash, i, state, from;

    if (!count || b->failed)
        return 0;
    hash = specdec__dfa_hash_set(d->current_set.data, count);
    for (; d->set_table.count && (state = d->set_table.data[hash & (d->set_table.count - 1)]) != 0; hash++) {
        const uint32_t *member = d->members.data + d->sets.data[2 * state];

        if (d->sets.data[2 * state + 1] != count)
            continue;
        for (i = 0; i < count && d->visited.data[member[i] / 3] == d->generation; i++)
            ;
        if (i == count)
            return state;
    }
    if (d->states >= SPECDEC__DFA_STATES_MOST)
        return (uint32_t)specdec__build_fail(b, SPECDEC_ERROR_UNSUPPORTED, "too complex");
    state = d->states++;
    from = specdec__vector_extend(b, &d->members, count);
    if (from == UINT32_MAX)
        return 0;
    memcpy(d->members.data + from, d->current_set.data, (size_t)count * 4);
    specdec__vector_push(b, &d->sets, from);
    specdec__vector_push(b, &d->sets, count);
    specdec__vector_push(b, &d->label, 0);
    if (specdec__vector_extend(b, &d->next, d->classes) == UINT32_MAX || b->failed)
        return 0;
    memset(d->next.data + (size_t)state * d->classes, 0, (size_t)d->classes * 4);
    specdec__dfa_enter_set_in_table(b, d, state);
    if (!b->failed)
        d->label.data[state] = specdec__dfa_find_labels_of_set(b, d, from, count, first);
    return b->failed ? 0 : state;
}

/* Returns the DFA state behind a byte (type BYTE), or behind the call of a rule (type CALL). */
static uint32_t specdec__dfa_state_behind_byte_or_call(specdec__build *b, specdec__dfa *d, uint32_t state,
                                                       uint32_t type, uint32_t what)
{
    const uint32_t from = d->sets.data[2 * state], count = d->sets.data[2 * state + 1];
    uint32_t i;

    d->generation++;
    d->current_set.count = 0;
    for (i = from; i < from + count && specdec__build_count_work(b, 1); i++) {
        const uint32_t *node = b->nfa.data + d->members.data[i];

        if ((node[0] & 255) != type)
            continue;
        if (type == SPECDEC__NFA_CALL ? node[2] == what : what >= (node[0] >> 8 & 255) && what <= node[0] >> 16)
            specdec__dfa_add_closure(b, d, node[1], 0, 0);
    }
    return specdec__dfa_find_state_of_set(b, d, 0);
}

/* Initialises a DFA, with state 0 only, which rejects. */
static void specdec__dfa_begin(specdec__build *b, specdec__dfa *d)
{
    memset(d, 0, sizeof *d);
    d->states = 1;
    specdec__vector_push(b, &d->sets, 0);
    specdec__vector_push(b, &d->sets, 0);
    specdec__vector_push(b, &d->label, 0);
}

/* Builds the DFA of the NFA that begins in state `start`. Returns 0 when the build failed. */
static int specdec__dfa_build(specdec__build *b, specdec__dfa *d, uint32_t start)
{
    unsigned char border[257];
    uint32_t i, state, c;

    specdec__dfa_begin(b, d);
    memset(border, 0, sizeof border);
    for (i = 0; i < b->nfa.count; i += 3)
        if ((b->nfa.data[i] & 255) == SPECDEC__NFA_BYTE && b->nfa.data[i] >> 16 >= (b->nfa.data[i] >> 8 & 255))
            border[b->nfa.data[i] >> 8 & 255] = border[(b->nfa.data[i] >> 16) + 1] = 1;
    specdec__dfa_set_classes(d, border);
    if (specdec__vector_extend(b, &d->visited, b->nfa.count / 3) == UINT32_MAX ||
        specdec__vector_extend(b, &d->next, d->classes) == UINT32_MAX)
        return 0;
    memset(d->visited.data, 0, (size_t)d->visited.count * 4);
    memset(d->next.data, 0, (size_t)d->classes * 4);
    d->generation = 1;
    specdec__dfa_add_closure(b, d, start, 1, 0);
    specdec__dfa_find_state_of_set(b, d, 1);
    for (state = 1; state < d->states && !b->failed; state++) {
        for (c = 0; c < d->classes && !b->failed; c++) {
            const uint32_t target = specdec__dfa_state_behind_byte_or_call(b, d, state, SPECDEC__NFA_BYTE,
                                                                           d->class_first[c]);
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
            target = specdec__dfa_state_behind_byte_or_call(b, d, state, SPECDEC__NFA_CALL, rule);
            specdec__vector_push(b, &d->calls, state);
            specdec__vector_push(b, &d->calls, rule);
            specdec__vector_push(b, &d->calls, target);
        }
    }
    return !b->failed;
}

/* How a product of two DFAs accepts: where both do, where the first does and the second does not, where either does. */
enum { SPECDEC__DFA_BOTH, SPECDEC__DFA_WITHOUT, SPECDEC__DFA_EITHER };

/* Builds the product of two DFAs without calls: a state is a pair of states, kept in d->sets. how: SPECDEC__DFA_BOTH to
   _EITHER. Returns 0 when the build failed. */
static int specdec__dfa_product(specdec__build *b, specdec__dfa *d, const specdec__dfa *x, const specdec__dfa *y,
                                int how)
{
    unsigned char border[257];
    uint32_t i, state, c;

    specdec__dfa_begin(b, d);
    memset(border, 0, sizeof border);
    for (i = 0; i < x->classes; i++)
        border[x->class_first[i]] = 1;
    for (i = 0; i < y->classes; i++)
        border[y->class_first[i]] = 1;
    specdec__dfa_set_classes(d, border);
    specdec__vector_extend(b, &d->next, d->classes);
    specdec__vector_push(b, &d->set_table, 0); /* first pair of each state of x; pairs of one state are chained through
                                              members */
    for (i = 1; i < x->states; i++)
        specdec__vector_push(b, &d->set_table, 0);
    if (b->failed)
        return 0;
    memset(d->next.data, 0, (size_t)d->classes * 4);
    specdec__vector_push(b, &d->members, 0);
    for (state = 0; state < d->states && !b->failed; state++)
        for (c = state ? 0 : d->classes - 1; c < d->classes; c++) {
            const uint32_t one = state ? d->sets.data[2 * state] : 0, two = state ? d->sets.data[2 * state + 1] : 0;
            const uint32_t p = state ? x->next.data[(size_t)one * x->classes + x->class_of[d->class_first[c]]]
                                     : x->states > 1;
            const uint32_t q = state ? y->next.data[(size_t)two * y->classes + y->class_of[d->class_first[c]]]
                                     : y->states > 1;
            uint32_t at, label;

            if ((!p && (how != SPECDEC__DFA_EITHER || !q)) || (!q && how == SPECDEC__DFA_BOTH))
                continue;
            for (at = d->set_table.data[p]; at && d->sets.data[2 * at + 1] != q && specdec__build_count_work(b, 1);)
                at = d->members.data[at];
            if (!at) {
                if (d->states >= SPECDEC__DFA_STATES_MOST)
                    return specdec__build_fail(b, SPECDEC_ERROR_UNSUPPORTED, "too complex");
                at = d->states++;
                label = how == SPECDEC__DFA_EITHER ? x->label.data[p] | y->label.data[q]
                        : !y->label.data[q] == (how == SPECDEC__DFA_WITHOUT) ? x->label.data[p] : 0;
                specdec__vector_push(b, &d->sets, p);
                specdec__vector_push(b, &d->sets, q);
                specdec__vector_push(b, &d->label, label);
                specdec__vector_push(b, &d->members, d->set_table.data[p]);
                if (specdec__vector_extend(b, &d->next, d->classes) == UINT32_MAX || b->failed)
                    return 0;
                d->set_table.data[p] = at;
                memset(d->next.data + (size_t)at * d->classes, 0, (size_t)d->classes * 4);
            }
            if (state)
                d->next.data[(size_t)state * d->classes + c] = at;
        }
    return !b->failed;
}

/* Returns the state in which a DFA is after it has read a text from `state` on. */
static uint32_t specdec__dfa_read_text(const specdec__dfa *d, uint32_t state, const unsigned char *text, size_t size)
{
    size_t i;

    for (i = 0; i < size && state; i++)
        state = d->next.data[(size_t)state * d->classes + d->class_of[text[i]]];
    return state;
}

/* Replaces states from which no accepting state can be reached by state 0, in a DFA without calls. Returns 0 when state
   1 is such a state, so that the DFA accepts no text. */
static int specdec__dfa_remove_dead_states(specdec__build *b, specdec__dfa *d)
{
    specdec__vector alive;
    uint32_t i, c, changed = 1;

    memset(&alive, 0, sizeof alive);
    if (d->states < 2 || specdec__vector_extend(b, &alive, d->states) == UINT32_MAX)
        return 0;
    for (i = 0; i < d->states; i++)
        alive.data[i] = i && d->label.data[i];
    while (changed && specdec__build_count_work(b, d->next.count))
        for (changed = 0, i = d->states; i-- > 1;)
            for (c = 0; c < d->classes && !alive.data[i]; c++)
                if (alive.data[d->next.data[(size_t)i * d->classes + c]])
                    changed = alive.data[i] = 1;
    for (i = 0; i < d->next.count; i++)
        if (!alive.data[d->next.data[i]])
            d->next.data[i] = 0;
    return !b->failed && alive.data[1];
}

/* Are two states of a DFA in one block, and do all classes of bytes lead them to equal blocks? */
static int specdec__dfa_states_equal(const specdec__dfa *d, const uint32_t *block, uint32_t a, uint32_t c)
{
    const uint32_t *x = d->next.data + (size_t)a * d->classes, *y = d->next.data + (size_t)c * d->classes;
    uint32_t i;

    for (i = 0; i < d->classes; i++)
        if (block[x[i]] != block[y[i]])
            return 0;
    return block[a] == block[c];
}

/* Splits blocks of equal DFA states by the blocks that their classes of bytes lead to (Moore's partition refinement).
   Returns the number of blocks. now: (states) new block of each, in order of first states; slots: (mask + 1) hash table
   of blocks. */
static uint32_t specdec__dfa_split_blocks(const specdec__dfa *d, const uint32_t *block, uint32_t *now, uint32_t *first,
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
            if (specdec__dfa_states_equal(d, block, first[other - 1], i))
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

/* Minimises a DFA without calls: equivalent states become one (E. F. Moore 1956). State 1 stays the first. */
static void specdec__dfa_minimise(specdec__build *b, specdec__dfa *d)
{
    uint32_t mask = 15, count = 0, before = 0, i, c, *block, *now, *first, *slots;

    if (d->calls.count || d->states < 3)
        return;
    while (mask < 2 * d->states)
        mask = 2 * mask + 1;
    block = specdec__build_reserve_scratch(b, 3 * (size_t)d->states);
    slots = specdec__build_reserve_scratch(b, (size_t)mask + 1);
    if (!block || !slots)
        return;
    now = block + d->states;
    first = now + d->states;
    for (i = 0; i < d->states; i++)
        block[i] = i ? d->label.data[i] + 1 : 0;
    while ((count = specdec__dfa_split_blocks(d, block, now, first, slots, mask)) != before) {
        if (!specdec__build_count_work(b, d->next.count / 4 + 1))
            return;
        before = count;
        memcpy(block, now, (size_t)d->states * 4);
    }
    for (i = 0; i < count; i++) { /* a block's first state is never below the block's number */
        d->label.data[i] = d->label.data[first[i]];
        for (c = 0; c < d->classes; c++)
            d->next.data[(size_t)i * d->classes + c] = block[d->next.data[(size_t)first[i] * d->classes + c]];
    }
    d->states = count;
    d->label.count = count;
    d->next.count = count * d->classes;
}

/* ---- Records of the automaton from the states of a DFA. */

/* Writes the edges of a DFA's state to `out` (NULL: only counts them); neighbouring classes with one target share an
   edge. place: record of each state. Returns the number of edges. */
static uint32_t specdec__dfa_write_edges(const specdec__dfa *d, uint32_t state, const uint32_t *place, uint32_t *out)
{
    const uint32_t *next = d->next.data + (size_t)state * d->classes;
    uint32_t c, count = 0, previous = 0;

    for (c = 0; c < d->classes; previous = next[c++]) {
        if (!next[c])
            continue;
        if (next[c] == previous) {
            if (out)
                out[2 * count - 2] = (out[2 * count - 2] & 255) | specdec__dfa_last_byte_of_class(d, c) << 8;
            continue;
        }
        if (out) {
            out[2 * count] = d->class_first[c] | specdec__dfa_last_byte_of_class(d, c) << 8;
            out[2 * count + 1] = place[next[c]];
        }
        count++;
    }
    return count;
}

/* Minimises a DFA and appends its states as records. ends: (32) for each number that an accepting state can carry, the
   state behind the closing quote; NULL: accepting states end the rule. places: receives the record of each state, or
   NULL. Returns the first state. */
static uint32_t specdec__dfa_write_records(specdec__build *b, specdec__dfa *d, const uint32_t *ends, uint32_t **places)
{
    uint32_t *place, i, call = 0, at;

    specdec__dfa_minimise(b, d);
    place = specdec__build_reserve_scratch(b, d->states);
    if (!place || d->states < 2)
        return 0;
    place[0] = 0;
    for (i = 1, at = b->word_count; i < d->states; i++) {
        uint32_t calls = 0;

        for (; call < d->calls.count && d->calls.data[call] == i; call += 3)
            calls++;
        place[i] = at;
        at += 2 + 2 * (specdec__dfa_write_edges(d, i, NULL, NULL) + calls + (ends && d->label.data[i] ? 1 : 0));
    }
    for (i = 1, call = 0; i < d->states && !b->failed; i++) {
        const uint32_t end = i + 1 < d->states ? place[i + 1] : at, label = d->label.data[i];
        uint32_t *record, edges;

        if (!specdec__build_add_state(b, SPECDEC__RECORD_PLAIN, end - place[i]))
            return 0;
        record = b->words + place[i];
        edges = specdec__dfa_write_edges(d, i, place, record + 2);
        if (ends && label) { /* edges stay in order of bytes; no string has a quote inside */
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
        record[0] |= edges << 16 | (!ends && label ? SPECDEC__RECORD_MAY_END : 0);
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

/* Turns calls of rules whose return state only ends the caller's rule into tail calls, which need no level of the
   stack. */
static void specdec__build_make_tail_calls(specdec__build *b)
{
    uint32_t i, j;

    for (i = 0; i < b->states.count; i++) {
        uint32_t *record = b->words + b->states.data[i];

        if (SPECDEC__RECORD_KIND(record[0]) != SPECDEC__RECORD_PLAIN)
            continue;
        for (j = 0; j < record[1]; j++) {
            uint32_t *call = record + 2 + 2 * (SPECDEC__RECORD_EDGES(record[0]) + j);
            const uint32_t *behind = b->words + call[1];

            if (call[1] && behind[0] == (SPECDEC__RECORD_PLAIN | SPECDEC__RECORD_MAY_END) && !behind[1])
                call[1] = 0;
        }
    }
}

/* Builds the states of a rule from a syntax tree. Returns 0 when the build failed. */
static int specdec__build_rule_from_tree(specdec__build *b, uint32_t rule, uint32_t tree)
{
    specdec__dfa d;
    uint32_t start;

    b->nfa.count = 0;
    start = specdec__nfa_add_state(b, SPECDEC__NFA_ACCEPT, 1, 0);
    start = specdec__nfa_add_tree(b, tree, start);
    if (b->failed || !specdec__dfa_build(b, &d, start))
        return 0;
    start = specdec__dfa_write_records(b, &d, NULL, NULL);
    if (!b->failed)
        b->rules.data[rule] = start;
    return !b->failed;
}

SPECDEC__FOR_SPEED
