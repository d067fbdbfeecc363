/* =====================================================================================================================
 * >>constraint/mask: computes which tokens may follow, by a walk over the trie of tokens with the threads of a text.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "automaton.h"
#include "trie.h"

/* Limits of a walk over a trie: threads, new stack nodes, threads of the state that are walked one by one. */
enum { SPECDEC__MASK_THREADS = 1024, SPECDEC__MASK_NEW_NODES = 512, SPECDEC__MASK_SINGLE_THREADS = 8 };

/* A trie node on the path of a walk: its threads, the number of new stack nodes, and where its children end. */
typedef struct specdec__mask_level {
    uint32_t children_end;               /* index of the trie node behind the node's children */
    uint16_t first_thread, thread_count; /* index in mask_walk.threads, and number, of the node's threads */
    uint16_t new_node_count;             /* new stack nodes that the bytes in front of the node have added */
    unsigned char has_set;               /* 1: specdec__mask_walk.byte_sets[depth] has the bytes that may follow */
    unsigned char is_plain;              /* 1: no byte of the path is of BYTE_KIND_OTHER */
} specdec__mask_level;

/* The working memory of computing a mask. */
typedef struct specdec__mask_walk {
    specdec__automaton automaton;          /* reads the bytes of tokens */
    const specdec_constraint_state *state; /* the state of the text that the tokens may follow */
    const specdec_token_trie *trie;        /* the tokens of the vocabulary */
    const specdec__trie_tree *tree;        /* the trie that is walked: trie->all or trie->rest */
    uint32_t *mask;                        /* (trie->words) a bit for each token, 1: it may follow */
    uint32_t plain_least, plain_most; /* only entries behind so many plain characters are added, at least and at most */
    uint32_t threads_most;            /* the largest number of threads behind one byte so far */
    uint32_t short_plain_bytes;       /* plain tokens of up to so many bytes are in the mask already */
    uint32_t byte_sets[4][8];         /* (256 bits each) bytes that may follow the first levels of the path */
    specdec__automaton_thread visits[SPECDEC__BYTE_VISITS]; /* states that the current byte visits */
    specdec__automaton_thread threads[SPECDEC__MASK_THREADS]; /* threads of all trie nodes on the path */
    specdec__stack_node new_nodes[SPECDEC__MASK_NEW_NODES]; /* stack nodes that all bytes of the path have added */
    specdec__mask_level levels[SPECDEC__TRIE_TOKEN_BYTES + 2]; /* trie nodes on the path */
    uint32_t key_states[SPECDEC__TRIE_TOKEN_BYTES + 2];        /* KEY states on the path */
    uint32_t key_ends[SPECDEC__TRIE_TOKEN_BYTES + 2];          /* where the children of these KEY states' nodes end */
    unsigned char live_nodes[(int)SPECDEC__STACK_NODES + (int)SPECDEC__MASK_NEW_NODES]; /* 1: stack node in use */
} specdec__mask_walk;

#define SPECDEC__MASK_SET(mask, token) ((mask)[(token) / 32] |= 1u << (token) % 32)

/* Adds the bytes that `count` threads may read next to a set of 256 bits. */
static void specdec__automaton_find_next_bytes(specdec__automaton *m, const specdec__automaton_thread *threads,
                                               uint32_t count, uint32_t set[8])
{
    uint32_t i, j;

    m->visit_count = 0;
    m->first_new_node = m->new_node_count;
    for (i = 0; i < count; i++)
        specdec__automaton_visit_state(m, threads[i].state, threads[i].node);
    for (i = 0; i < m->visit_count; i++) {
        const specdec__automaton_thread at = m->visits[i];
        const uint32_t *record = m->words + at.state;

        switch (SPECDEC__RECORD_KIND(record[0])) {
        case SPECDEC__RECORD_PLAIN:
            specdec__record_add_first_bytes(m, at.state, set);
            if (record[0] & SPECDEC__RECORD_MAY_END)
                specdec__automaton_end_rule(m, at.node);
            break;
        case SPECDEC__RECORD_KEY: specdec__record_add_first_bytes(m, at.state, set); break;
        case SPECDEC__RECORD_SET: specdec__automaton_count_member(m, &at); break;
        case SPECDEC__RECORD_REPEAT:
        case SPECDEC__RECORD_AFTER_REPEAT: specdec__automaton_visit_repetition(m, &at); break;
        default:
            for (j = 0; j < 128; j++)
                if (j == '"' || j == '}' || j == ',' || j == ']' ||
                    (m->constraint->allows_space && (j == ' ' || j == 9 || j == 10 || j == 13)))
                    set[j >> 5] |= 1u << (j & 31);
            if (SPECDEC__RECORD_KIND(record[0]) == SPECDEC__RECORD_ARRAY ||
                SPECDEC__RECORD_KIND(record[0]) == SPECDEC__RECORD_BEFORE_ITEM) {
                const uint32_t items = SPECDEC__RECORD_KIND(record[0]) == SPECDEC__RECORD_ARRAY
                                           ? 0 : specdec__automaton_node(m, at.node)->counter;
                const uint32_t rule = specdec__array_item_rule(m->words + record[1], items);

                for (j = 0; j < 8 && rule != UINT32_MAX; j++)
                    set[j] |= m->rules[rule].first[j];
            }
        }
    }
    m->new_node_count = m->first_new_node;
}

/* May a text be continued with `count` bytes? They are read with a copy of its state. */
static SPECDEC__NOINLINE int specdec__constraint_allows_bytes(const specdec_constraint *c,
                                                              const specdec_constraint_state *state,
                                                              const unsigned char *bytes, size_t count)
{
    specdec_constraint_state copy = *state;
    size_t i;

    for (i = 0; i < count; i++)
        if (!specdec__constraint_read_byte(c, &copy, bytes[i]))
            return 0;
    return 1;
}

/* Computes the bytes that may follow a text, as a mask of 256 bits, which may have some bits too many. */
static SPECDEC__NOINLINE void specdec__mask_compute_next_bytes(const specdec_constraint *constraint,
                                                               const specdec_constraint_state *state, uint32_t mask[8])
{
    specdec__stack_node fresh[SPECDEC__STACK_NEW];
    specdec__automaton_thread items[SPECDEC__BYTE_VISITS];
    specdec__automaton m;

    specdec__automaton_load_state(&m, constraint, state);
    m.new_nodes = fresh;
    m.new_node_room = SPECDEC__STACK_NEW;
    m.visits = items;
    memset(mask, 0, 8 * sizeof *mask);
    specdec__automaton_find_next_bytes(&m, state->thread, state->thread_count, mask);
}

/* Returns the only byte that may follow a text; -1: no byte may; 256: several may. */
static int specdec__mask_find_only_byte(const specdec_constraint *c, const specdec_constraint_state *state)
{
    uint32_t mask[8], i;
    int found = -1;

    specdec__mask_compute_next_bytes(c, state, mask);
    for (i = 0; i < 256; i++) {
        const unsigned char byte = (unsigned char)i;

        if (!(mask[i >> 5] >> (i & 31) & 1) || !specdec__constraint_allows_bytes(c, state, &byte, 1))
            continue;
        if (found >= 0)
            return 256;
        found = (int)i;
    }
    return found;
}

/* Returns the byte that must follow a text, as the text is not complete and no other byte may follow; -1: there is
   none. */
static SPECDEC__UNUSED int specdec__mask_find_forced_byte(const specdec_constraint *c,
                                                          const specdec_constraint_state *state)
{
    const int byte = specdec__mask_find_only_byte(c, state);

    return byte < 0 || byte > 255 || specdec__constraint_is_complete(c, state) ? -1 : byte;
}

/* Adds the tokens below a trie node to the mask one by one, each read from the text's own state: for walks that ran out
   of memory. */
static void specdec__mask_test_tokens_one_by_one(specdec__mask_walk *w, uint32_t node, uint32_t end)
{
    uint32_t entry = w->tree->nodes[node].first_and_kinds >> 8;

    for (end = w->tree->nodes[end].first_and_kinds >> 8; entry < end; entry++) {
        const uint32_t token = w->tree->tokens[entry], at = w->trie->offset[token];

        if (specdec__constraint_allows_bytes(w->automaton.constraint, w->state, w->trie->text + at,
                                             w->trie->offset[token + 1] - at))
            SPECDEC__MASK_SET(w->mask, token);
    }
}

/* Adds the tokens of the entries [from, to) of the trie to the mask. */
SPECDEC__INLINE void specdec__mask_add_entries(specdec__mask_walk *w, uint32_t from, uint32_t to)
{
    for (; from < to; from++) {
        const uint32_t token = w->tree->tokens[from];

        if (w->tree == &w->trie->all ||
            (w->trie->plain_characters[token] >= w->plain_least && w->trie->plain_characters[token] <= w->plain_most))
            SPECDEC__MASK_SET(w->mask, token);
    }
}

/* May `height` bytes of the given kinds, in any order, follow in the state of a thread? */
SPECDEC__INLINE int specdec__mask_allows_byte_kinds(const specdec__mask_walk *w, const specdec__automaton_thread *at,
                                                    uint32_t kinds, uint32_t height)
{
    const uint32_t *record = w->automaton.words + at->state;

    if (record[0] & SPECDEC__RECORD_IN_STRING)
        return !(kinds & SPECDEC__BYTE_KIND_OTHER);
    if (SPECDEC__RECORD_KIND(record[0]) == SPECDEC__RECORD_PLAIN)
        return !(kinds & ~SPECDEC__RECORD_LIVE_KINDS(record[0])) && height <= SPECDEC__LIVE_KINDS_BYTES;
    if (!(record[0] & SPECDEC__RECORD_COUNTED_STRING) ||
        SPECDEC__RECORD_KIND(record[0]) != SPECDEC__RECORD_AFTER_REPEAT)
        return 0;
    return !(kinds & SPECDEC__BYTE_KIND_OTHER) &&
           (record[3] == UINT32_MAX || record[3] - specdec__automaton_node(&w->automaton, at->node)->counter >= height);
}

/* Reads a plain character inside a string with length limits, as specdec__automaton_read_byte does, but faster. Returns
   the number of threads behind it: 1, or 0 where the string is full. */
static uint32_t specdec__mask_read_counted_character(specdec__mask_walk *w, const specdec__automaton_thread *at)
{
    specdec__automaton *m = &w->automaton;
    const uint32_t *record = m->words + at->state;
    const specdec__stack_node node = *specdec__automaton_node(m, at->node);

    if (node.counter >= record[3])
        return 0;
    m->first_new_node = m->new_node_count;
    m->next_threads->state = at->state;
    m->next_threads->node = specdec__automaton_push_node(
        m, node.return_state, record[3] == UINT32_MAX && node.counter >= record[2] ? node.counter : node.counter + 1,
        node.parent);
    return 1;
}

/* Reads a byte with the threads of a trie node on the path; the threads behind the byte are stored behind the node's.
   Returns their number; UINT32_MAX: out of memory. */
SPECDEC__INLINE uint32_t specdec__mask_read_byte(specdec__mask_walk *w, const specdec__mask_level *level, uint32_t byte)
{
    const specdec__automaton_thread *threads = w->threads + level->first_thread;
    specdec__automaton *m = &w->automaton;

    m->next_threads = w->threads + level->first_thread + level->thread_count;
    if (level->thread_count == 1) {
        const uint32_t *record = m->words + threads->state;

        if (specdec__record_has_only_edges(record)) {
            const uint32_t *edge = specdec__record_find_edge(record + 2, SPECDEC__RECORD_EDGES(record[0]), byte);

            if (!edge ||
                specdec__automaton_stack_height(m, threads->node) + SPECDEC__RECORD_STACK_NEED(m->words[edge[1]]) >
                    SPECDEC__STACK_HEIGHT)
                return 0;
            if (!threads->node || !specdec__record_can_only_end(m->words + edge[1])) {
                m->next_threads->state = edge[1];
                m->next_threads->node = threads->node;
                return level->first_thread + level->thread_count + 1u <=
                               (unsigned)SPECDEC__MASK_THREADS - (unsigned)SPECDEC__AUTOMATON_THREADS
                           ? 1
                           : UINT32_MAX;
            }
        }
    }
    if (level->first_thread + level->thread_count + SPECDEC__AUTOMATON_THREADS > SPECDEC__MASK_THREADS ||
        m->new_node_count + SPECDEC__STACK_NEW > SPECDEC__MASK_NEW_NODES)
        return UINT32_MAX;
    if (level->thread_count == 1 && byte < 0x80 && byte >= 0x20 && byte != '"' && byte != '\\' &&
        m->words[threads->state] & SPECDEC__RECORD_COUNTED_STRING &&
        SPECDEC__RECORD_KIND(m->words[threads->state]) == SPECDEC__RECORD_AFTER_REPEAT &&
        m->state_node_count + m->new_node_count < SPECDEC__STACK_NODES)
        return specdec__mask_read_counted_character(w, threads);
    specdec__automaton_read_byte(m, threads, level->thread_count, byte);
    if (m->state_node_count + m->new_node_count > SPECDEC__STACK_NODES)
        specdec__automaton_remove_excess_threads(m, w->live_nodes);
    w->threads_most = m->next_count > w->threads_most ? m->next_count : w->threads_most;
    return m->next_count;
}

/* Adds the tokens of the trie nodes i to end - 1, all children of one node, to the mask, by a depth-first walk from the
   threads of level 0. */
static void specdec__mask_add_tokens_of_children(specdec__mask_walk *w, const specdec__trie_tree *tree, uint32_t i,
                                                 uint32_t end)
{
    const specdec__trie_node *nodes = tree->nodes;
    specdec__mask_level *level = w->levels;
    uint32_t depth = 0;

    w->tree = tree;
    level->children_end = end;
    level->new_node_count = (uint16_t)w->automaton.new_node_count;
    level->has_set = level->is_plain = 1;
    memset(w->byte_sets[0], 0, sizeof w->byte_sets[0]);
    specdec__automaton_find_next_bytes(&w->automaton, w->threads + level->first_thread, level->thread_count,
                                       w->byte_sets[0]);
    for (;;) {
        uint32_t byte, next, count, first, k;

        while (i >= level->children_end) {
            if (!depth)
                return;
            level = &w->levels[--depth];
        }
        byte = nodes[i].next_and_byte & 255;
        next = nodes[i].next_and_byte >> 8;
        first = nodes[i].first_and_kinds >> 8;
        if (level->has_set && !(w->byte_sets[depth][byte >> 5] >> (byte & 31) & 1)) {
            i = next;
            continue;
        }
        w->automaton.new_node_count = level->new_node_count;
        if (level->thread_count == 1 && byte < 0x80 && byte >= 0x20 && byte != '"' && byte != '\\' &&
            w->automaton.words[w->threads[level->first_thread].state] & SPECDEC__RECORD_IN_STRING) {
            w->threads[level->first_thread + 1] = w->threads[level->first_thread];
            count = 1;
        } else {
            count = specdec__mask_read_byte(w, level, byte);
        }
        if (count == UINT32_MAX) {
            specdec__mask_test_tokens_one_by_one(w, i, next);
            i = next;
            continue;
        }
        if (!count) {
            i = next;
            continue;
        }
        for (k = 0; k < count && k < 4; k++)
            if (specdec__mask_allows_byte_kinds(w, w->threads + level->first_thread + level->thread_count + k,
                                                nodes[i].first_and_kinds & 255, tree->heights[i]))
                break;
        if (k < count && k < 4) {
            const uint32_t *record = w->automaton.words +
                                     w->threads[level->first_thread + level->thread_count + k].state;

            /* short plain tokens are in the mask already; a state without live kinds is inside a character */
            if (depth + 1 + tree->heights[i] > w->short_plain_bytes || !level->is_plain ||
                !SPECDEC__RECORD_LIVE_KINDS(record[0]) ||
                (byte < 0x80 && specdec__byte_kind(byte) == SPECDEC__BYTE_KIND_OTHER))
                specdec__mask_add_entries(w, first, nodes[next].first_and_kinds >> 8);
            i = next;
            continue;
        }
        specdec__mask_add_entries(w, first,
                                  next == i + 1 ? nodes[next].first_and_kinds >> 8 : nodes[i + 1].first_and_kinds >> 8);
        if (next == i + 1) {
            i = next;
            continue;
        }
        w->levels[depth + 1].first_thread = (uint16_t)(level->first_thread + level->thread_count);
        w->levels[depth + 1].is_plain = level->is_plain &&
                                        (byte >= 0x80 || specdec__byte_kind(byte) != SPECDEC__BYTE_KIND_OTHER);
        level = &w->levels[++depth];
        level->thread_count = (uint16_t)count;
        level->new_node_count = (uint16_t)w->automaton.new_node_count;
        level->children_end = next;
        level->has_set = 0;
        if (depth < 4 && next - i > 64) {
            level->has_set = 1;
            memset(w->byte_sets[depth], 0, sizeof w->byte_sets[depth]);
            if (w->automaton.new_node_count + SPECDEC__STACK_NEW <= SPECDEC__MASK_NEW_NODES)
                specdec__automaton_find_next_bytes(&w->automaton, w->threads + level->first_thread, level->thread_count,
                                                   w->byte_sets[depth]);
            else
                level->has_set = 0;
        }
        i++;
    }
}

/* Adds the tokens that consist of at most `most` plain characters to the mask. */
static void specdec__mask_add_plain_tokens(specdec__mask_walk *w, uint32_t most)
{
    const specdec_token_trie *t = w->trie;
    uint32_t i;

    if (most >= SPECDEC__TRIE_TOKEN_BYTES) {
        for (i = 0; i < t->words; i++)
            w->mask[i] |= t->plain[i];
        return;
    }
    for (i = 0; i < t->length_begin[most + 1]; i++)
        SPECDEC__MASK_SET(w->mask, t->by_length[i]);
}

/* Adds the tokens that a thread allows inside a string with length limits to the mask. Entries are grouped by the
   number of plain characters in front: all of a group lead to one counter. In front of the quote the stack node of the
   repetition is pushed first. */
static void specdec__mask_add_counted_string_tokens(specdec__mask_walk *w, const specdec__automaton_thread *at)
{
    specdec__automaton *m = &w->automaton;
    const uint32_t *record = m->words + at->state, *call = record + 2 + 2 * SPECDEC__RECORD_EDGES(record[0]);
    const int begins = SPECDEC__RECORD_KIND(record[0]) == SPECDEC__RECORD_PLAIN;
    const uint32_t after = begins ? m->words[m->rules[call[0]].start + 4] : at->state;
    const uint32_t least = m->words[after + 2], most = m->words[after + 3];
    uint32_t p, last = 0, done = 0, parent;

    m->new_node_count = m->first_new_node = 0;
    if (begins) {
        parent = specdec__automaton_push_node(m, call[1], 0, at->node);
        if (parent == UINT32_MAX)
            return;
    } else {
        parent = w->state->node[at->node].parent;
        done = w->state->node[at->node].counter;
    }
    specdec__mask_add_plain_tokens(w, most == UINT32_MAX ? SPECDEC__TRIE_TOKEN_BYTES : most - done);
    for (p = 0; p <= SPECDEC__TRIE_TOKEN_BYTES && (most == UINT32_MAX || done + p <= most); p = last + 1) {
        uint32_t any = w->trie->rest_lengths[p];

        last = p;
        if (done + p >= least &&
            (most == UINT32_MAX || most - done >= SPECDEC__TRIE_TOKEN_BYTES + w->trie->rest_longest)) {
            last = SPECDEC__TRIE_TOKEN_BYTES; /* no limit is within reach of any entry */
            any = 1;
        } else if (done + p >= least && most - done > p + w->trie->rest_longest) {
            last = most - done - w->trie->rest_longest - 1;
            any = 1;
        }
        if (!any)
            continue;
        w->plain_least = p;
        w->plain_most = last;
        m->new_node_count = m->first_new_node = begins ? 1 : 0;
        w->threads[0].state = after;
        w->threads[0].node = specdec__automaton_push_node(m, after, most == UINT32_MAX && done + p > least
                                                                 ? (done > least ? done : least) : done + p, parent);
        if (w->threads[0].node == UINT32_MAX)
            return;
        w->levels[0].first_thread = 0;
        w->levels[0].thread_count = 1;
        specdec__mask_add_tokens_of_children(w, &w->trie->rest, 1, w->trie->rest.count);
    }
    m->new_node_count = 0;
}

/* Adds the tokens that `count` threads allow to the mask, by a walk over a whole trie. */
static void specdec__mask_walk_trie(specdec__mask_walk *w, const specdec__automaton_thread *threads, uint32_t count,
                                    const specdec__trie_tree *tree)
{
    w->plain_least = 0;
    w->plain_most = SPECDEC__TRIE_TOKEN_BYTES;
    w->automaton.new_node_count = 0;
    w->levels[0].first_thread = 0;
    w->levels[0].thread_count = (uint16_t)count;
    memcpy(w->threads, threads, count * sizeof *threads);
    specdec__mask_add_tokens_of_children(w, tree, 1, tree->count);
}

/* May any unlisted key follow a KEY state, so that the state of unlimited strings reads it? */
static int specdec__mask_allows_any_key(const specdec__mask_walk *w, const specdec__automaton_thread *at)
{
    const specdec__automaton *m = &w->automaton;
    const uint32_t *record = m->words + at->state, *object = m->words + record[1];

    return SPECDEC__RECORD_KIND(record[0]) == SPECDEC__RECORD_KEY && record[3] &&
           m->words[record[3]] & SPECDEC__RECORD_IN_STRING &&
           SPECDEC__RECORD_KIND(m->words[object[SPECDEC__OBJECT_OTHER]]) == SPECDEC__RECORD_SET &&
           specdec__object_allows_unlisted(m, object, specdec__automaton_node(m, at->node)->counter,
                                           specdec__automaton_stack_height(m, at->node));
}

/* Computes anew which tokens at and below a trie node may follow, from the thread in w->threads[0], which stands in
   front of the node's byte. */
static void specdec__mask_recompute_tokens_of_node(specdec__mask_walk *w, uint32_t node)
{
    const specdec__trie_tree *tree = &w->trie->all;
    const uint32_t next = tree->nodes[node].next_and_byte >> 8, first = tree->nodes[node].first_and_kinds >> 8;
    uint32_t entry, count;

    w->tree = tree;
    for (entry = first; entry < tree->nodes[next].first_and_kinds >> 8; entry++)
        w->mask[tree->tokens[entry] / 32] &= ~(1u << tree->tokens[entry] % 32);
    w->automaton.new_node_count = 0;
    w->levels[0].first_thread = 0;
    w->levels[0].thread_count = 1;
    count = specdec__mask_read_byte(w, &w->levels[0], tree->nodes[node].next_and_byte & 255);
    if (!count)
        return;
    memmove(w->threads, w->threads + 1, count * sizeof *w->threads);
    w->levels[0].thread_count = (uint16_t)count;
    specdec__mask_add_entries(w, first, tree->nodes[next == node + 1 ? next : node + 1].first_and_kinds >> 8);
    if (next > node + 1)
        specdec__mask_add_tokens_of_children(w, tree, node + 1, next);
}

/* Adds the tokens that a thread allows at an object's key, where listed and unlisted keys may follow, to the mask:
   first those of an unlimited string; then tokens that begin like a listed key are computed anew. */
static void specdec__mask_add_key_tokens(specdec__mask_walk *w, const specdec__automaton_thread *at)
{
    specdec__automaton *m = &w->automaton;
    const uint32_t *record = m->words + at->state;
    const specdec__trie_node *nodes = w->trie->all.nodes;
    uint32_t i = 1, depth = 0, end = w->trie->all.count;

    specdec__mask_add_plain_tokens(w, SPECDEC__TRIE_TOKEN_BYTES);
    w->plain_least = 0;
    w->plain_most = SPECDEC__TRIE_TOKEN_BYTES;
    m->new_node_count = m->first_new_node = 0;
    w->threads[0].state = record[3];
    w->threads[0].node = specdec__automaton_push_node(m, m->words[record[1] + SPECDEC__OBJECT_OTHER], 0, at->node);
    w->levels[0].first_thread = 0;
    w->levels[0].thread_count = 1;
    specdec__mask_add_tokens_of_children(w, &w->trie->rest, 1, w->trie->rest.count);
    w->key_states[0] = at->state;
    w->key_ends[0] = end;
    for (;;) { /* along the tree of listed keys */
        const uint32_t *edge;

        while (i >= w->key_ends[depth]) {
            if (!depth)
                return;
            depth--;
        }
        record = m->words + w->key_states[depth];
        end = nodes[i].next_and_byte >> 8;
        edge = specdec__record_find_edge(record + 4, SPECDEC__RECORD_EDGES(record[0]), nodes[i].next_and_byte & 255);
        if (edge && SPECDEC__RECORD_KIND(m->words[edge[1]]) == SPECDEC__RECORD_KEY && end > i + 1 &&
            specdec__object_allows_key(m, edge[1], at->node)) {
            w->key_states[++depth] = edge[1]; /* tokens that end here are allowed, as in any string */
            w->key_ends[depth] = end;
            i++;
            continue;
        }
        if (edge) {
            w->threads[0].state = w->key_states[depth];
            w->threads[0].node = at->node;
            specdec__mask_recompute_tokens_of_node(w, i);
        }
        i = end;
    }
}

/* Adds all tokens that may follow the text, except end-of-text tokens, to the mask. Threads inside strings are walked
   one by one, with the tries for strings; if threads would be left out in a walk with all of them, that walk is made
   instead. */
static void specdec__mask_add_tokens_of_threads(specdec__mask_walk *w)
{
    const specdec_constraint_state *state = w->state;
    specdec__automaton_thread others[SPECDEC__AUTOMATON_THREADS];
    uint32_t i, count = 0, sum = 0, key = UINT32_MAX;

    if (state->thread_count <= SPECDEC__MASK_SINGLE_THREADS) {
        for (i = 0; i < state->thread_count && key == UINT32_MAX; i++)
            if (specdec__mask_allows_any_key(w, &state->thread[i]))
                key = i;
        w->threads_most = 1;
        if (key != UINT32_MAX) { /* first, as it also takes tokens away */
            specdec__mask_add_key_tokens(w, &state->thread[key]);
            sum += w->threads_most;
        }
        for (i = 0; i < state->thread_count; i++) {
            const specdec__automaton_thread *at = &state->thread[i];
            const uint32_t header = w->automaton.words[at->state];

            if (i == key)
                continue;
            w->threads_most = 1;
            if (header & SPECDEC__RECORD_IN_STRING) {
                specdec__mask_add_plain_tokens(w, SPECDEC__TRIE_TOKEN_BYTES);
                specdec__mask_walk_trie(w, at, 1, &w->trie->rest);
            } else if (header & SPECDEC__RECORD_COUNTED_STRING &&
                       SPECDEC__RECORD_KIND(header) != SPECDEC__RECORD_REPEAT) {
                specdec__mask_add_counted_string_tokens(w, at);
            } else if (SPECDEC__RECORD_KIND(header) == SPECDEC__RECORD_PLAIN &&
                       SPECDEC__RECORD_LIVE_KINDS(header) == SPECDEC__BYTE_KINDS_PLAIN) {
                uint32_t k;

                for (k = 0; k < w->trie->words; k++)
                    w->mask[k] |= w->trie->short_plain[k];
                w->short_plain_bytes = SPECDEC__LIVE_KINDS_BYTES;
                specdec__mask_walk_trie(w, at, 1, &w->trie->all);
                w->short_plain_bytes = 0;
            } else {
                others[count++] = *at;
                continue;
            }
            sum += w->threads_most;
        }
        w->threads_most = 1;
        if (count)
            specdec__mask_walk_trie(w, others, count, &w->trie->all);
        sum += w->threads_most;
        if (!w->automaton.dropped && sum <= SPECDEC__AUTOMATON_THREADS)
            return;
    }
    memset(w->mask, 0, (size_t)w->trie->words * 4);
    specdec__mask_walk_trie(w, state->thread, state->thread_count, &w->trie->all);
}

/* Computes which tokens may follow a text with this state: bit i of mask is 1 if token i may. memory:
   sizeof(specdec__mask_walk) bytes. */
static SPECDEC__UNUSED void specdec__mask_compute(const specdec_constraint *c, const specdec_constraint_state *state,
                                                  const specdec_token_trie *trie, uint32_t *mask, void *memory)
{
    specdec__mask_walk *w = (specdec__mask_walk *)memory;
    const specdec__vocab *v = trie->vocab;
    const int complete = specdec__constraint_is_complete(c, state);
    int i;

    specdec__automaton_load_state(&w->automaton, c, state);
    w->automaton.new_nodes = w->new_nodes;
    w->automaton.new_node_room = SPECDEC__MASK_NEW_NODES;
    w->automaton.visits = w->visits;
    w->state = state;
    w->trie = trie;
    w->mask = mask;
    w->short_plain_bytes = 0;
    memset(mask, 0, (size_t)trie->words * 4);
    specdec__mask_add_tokens_of_threads(w);
    for (i = 0; i < v->end_token_count; i++) {
        const uint32_t token = (uint32_t)v->end_tokens[i];

        mask[token / 32] &= ~(1u << token % 32);
        if (complete)
            SPECDEC__MASK_SET(mask, token);
    }
}
