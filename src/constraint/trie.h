/* =====================================================================================================================
 * >>constraint/trie: the tokens of a vocabulary as a tree of bytes, and lists of tokens that may stand inside strings.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../text/vocabulary.h"
#include "../text/unicode.h"
#include "../text/decode.h"
#include "automaton.h"

SPECDEC__FOR_SIZE

#define SPECDEC__TRIE_TOKEN_BYTES 255 /* bytes of a token in a trie, at most; a mask never allows longer tokens */

/* A node of a trie of tokens, in depth-first order: its children lie behind it, up to `next`. Entries of tokens at or
   below the node begin at `first`; those that end at the node come first. */
typedef struct specdec__trie_node {
    uint32_t next_and_byte;   /* index of the node behind all children << 8 | byte of this node */
    uint32_t first_and_kinds; /* index of the first entry << 8 | kinds of all bytes below the node */
} specdec__trie_node;

/* A trie of tokens, or of the rests of tokens from some byte on (its entries). */
typedef struct specdec__trie_tree {
    specdec__trie_node *nodes; /* (count + 1) the root has no byte; the last node marks the end */
    unsigned char *heights;    /* (count + 1) bytes of the longest path below each node */
    uint32_t *tokens;          /* (entries) token of each entry, in order of bytes */
    uint32_t count, entries;   /* number of nodes; number of entries */
} specdec__trie_tree;

/* The tokens of a vocabulary, prepared for masks. Plain characters need no escape in a JSON string. */
struct specdec_token_trie {
    const specdec__vocab *vocab;        /* the vocabulary that has the tokens */
    uint32_t words;                     /* number of 32-bit words of a mask of all tokens */
    unsigned char *text;                /* bytes of all tokens, one after the other */
    uint32_t *offset;                   /* (tokens + 1) offset of each token in text */
    specdec__trie_tree all;             /* trie of whole tokens */
    specdec__trie_tree rest;            /* trie of the ends of tokens, from the first character on that is not plain */
    uint32_t *plain;                    /* (words) mask of tokens that consist of plain characters */
    uint32_t *short_plain;              /* (words) mask of plain tokens of at most SPECDEC__LIVE_KINDS_BYTES bytes */
    uint32_t *by_length;                /* (plain_count) plain tokens, in order of their number of characters */
    uint32_t length_begin[SPECDEC__TRIE_TOKEN_BYTES + 2]; /* [n]: index in by_length of the first of n characters */
    uint32_t plain_count, rest_longest; /* number of plain tokens; bytes of the longest entry of `rest` */
    unsigned char *plain_characters;    /* (tokens) plain characters in front of the first one that is not plain */
    unsigned char rest_lengths[SPECDEC__TRIE_TOKEN_BYTES + 1]; /* [n]: 1 if n plain characters lie before an entry */
    /* while the tries are built: */
    const unsigned char *entry_begin; /* (tokens) byte of the token at which its entry begins */
};

/* Returns the number of bytes of the plain character at the beginning of a text; 0: no plain character begins there. */
static size_t specdec__trie_plain_character_bytes(const unsigned char *text, size_t size)
{
    const int length = size ? specdec__utf8_sequence_bytes(text, size) : 0;

    return length <= 0 || (length == 1 && specdec__byte_kind(text[0]) == SPECDEC__BYTE_KIND_OTHER) ? 0 : (size_t)length;
}

/* Does the trie's entry of token a come before that of token c, in order of bytes? */
static int specdec__trie_entry_is_before(const specdec_token_trie *t, uint32_t a, uint32_t c)
{
    const unsigned char *x = t->text + t->offset[a] + t->entry_begin[a],
                        *y = t->text + t->offset[c] + t->entry_begin[c];
    const size_t m = t->offset[a + 1] - t->offset[a] - t->entry_begin[a],
                 n = t->offset[c + 1] - t->offset[c] - t->entry_begin[c];
    const int order = memcmp(x, y, m < n ? m : n);

    return order ? order < 0 : m != n ? m < n : a < c;
}

SPECDEC__HEAP(specdec__trie_sink, uint32_t, specdec_token_trie, specdec__trie_entry_is_before)

/* Sorts tokens by the bytes of their entries (heap sort). */
static void specdec__trie_sort_entries(specdec_token_trie *t, uint32_t *tokens, uint32_t count)
{
    uint32_t i;

    for (i = count / 2; i-- > 0;)
        specdec__trie_sink(tokens, t, (int)count, (int)i);
    while (count > 1) {
        const uint32_t last = tokens[0];

        tokens[0] = tokens[--count];
        tokens[count] = last;
        specdec__trie_sink(tokens, t, (int)count, 0);
    }
}

/* Returns the bytes of a token's entry in the trie that is being built. */
static specdec__bytes specdec__trie_entry_bytes(const specdec_token_trie *t, uint32_t token)
{
    specdec__bytes out;

    out.data = t->text + t->offset[token] + t->entry_begin[token];
    out.size = t->offset[token + 1] - t->offset[token] - t->entry_begin[token];
    return out;
}

/* Counts the nodes of a trie or, if `fill`, writes them to tree->nodes. Returns their number. */
static uint32_t specdec__trie_build_nodes(const specdec_token_trie *t, specdec__trie_tree *tree, int fill)
{
    uint32_t path[SPECDEC__TRIE_TOKEN_BYTES + 1], count = 1, i;
    size_t depth = 0, k;

    path[0] = 0;
    if (fill)
        tree->nodes[0].next_and_byte = tree->nodes[0].first_and_kinds = 0;
    for (i = 0; i < tree->entries; i++) {
        const specdec__bytes entry = specdec__trie_entry_bytes(t, tree->tokens[i]);

        k = 0;
        if (i) {
            const specdec__bytes last = specdec__trie_entry_bytes(t, tree->tokens[i - 1]);

            while (k < depth && k < entry.size && entry.data[k] == last.data[k])
                k++;
        }
        for (; fill && depth > k; depth--)
            tree->nodes[path[depth]].next_and_byte |= count << 8;
        for (depth = k; depth < entry.size; count++) {
            path[++depth] = count;
            if (fill) {
                tree->nodes[count].next_and_byte = entry.data[depth - 1];
                tree->nodes[count].first_and_kinds = i << 8;
            }
        }
    }
    for (; fill && depth; depth--)
        tree->nodes[path[depth]].next_and_byte |= count << 8;
    if (fill) {
        tree->nodes[0].next_and_byte |= count << 8;
        tree->nodes[count].next_and_byte = (count + 1) << 8;
        tree->nodes[count].first_and_kinds = tree->entries << 8;
    }
    return count;
}

/* Computes the kinds of bytes from each place of a trie's entry to its end; kinds[0]: of the whole entry. Places inside
   a character get BYTE_KIND_OTHER. */
static void specdec__trie_compute_suffix_kinds(specdec__bytes entry, unsigned char *kinds)
{
    size_t at = 0, i;

    kinds[entry.size] = 0;
    while (at < entry.size) { /* first the kind of each character */
        const int length = specdec__utf8_sequence_bytes(entry.data + at, entry.size - at);
        const size_t size = length > 1 ? (size_t)length : 1;

        kinds[at] = (unsigned char)(length > 1   ? SPECDEC__BYTE_KIND_NON_ASCII
                                    : length < 1 ? SPECDEC__BYTE_KIND_OTHER
                                                 : specdec__byte_kind(entry.data[at]));
        for (i = 1; i < size; i++)
            kinds[at + i] = 0;
        at += size;
    }
    for (i = entry.size; i-- > 0;)
        kinds[i] |= kinds[i + 1];
    for (at = 0; at < entry.size;) {
        const int length = specdec__utf8_sequence_bytes(entry.data + at, entry.size - at);

        for (i = 1; length > 1 && i < (size_t)length; i++)
            kinds[at + i] |= SPECDEC__BYTE_KIND_OTHER;
        at += length > 1 ? (size_t)length : 1;
    }
}

/* Computes for all nodes of a trie the kinds of bytes below them and their heights. */
static void specdec__trie_compute_node_kinds(const specdec_token_trie *t, specdec__trie_tree *tree)
{
    uint32_t path[SPECDEC__TRIE_TOKEN_BYTES + 2], i, depth = 0;
    unsigned char kinds[SPECDEC__TRIE_TOKEN_BYTES + 2];

    memset(tree->heights, 0, tree->count + 1);
    path[0] = 0;
    for (i = 0; i < tree->count; i++) {
        uint32_t entry, end, k;

        while (depth && i >= tree->nodes[path[depth]].next_and_byte >> 8)
            depth--;
        if (i)
            path[++depth] = i;
        end = tree->nodes[i + 1].first_and_kinds >> 8;
        for (entry = tree->nodes[i].first_and_kinds >> 8; entry < end; entry++) { /* entries that end at this node */
            const specdec__bytes bytes = specdec__trie_entry_bytes(t, tree->tokens[entry]);

            if (bytes.size != depth)
                break;
            specdec__trie_compute_suffix_kinds(bytes, kinds);
            for (k = 0; k <= depth; k++) {
                tree->nodes[path[k]].first_and_kinds |= kinds[k];
                if (tree->heights[path[k]] < depth - k)
                    tree->heights[path[k]] = (unsigned char)(depth - k);
            }
        }
    }
}

/* Reserves the arrays of a trie, for `tokens` tokens of `bytes` bytes in all. */
static void specdec__trie_layout(specdec_token_trie *t, specdec__arena *arena, size_t bytes, uint32_t tokens)
{
    t->offset = (uint32_t *)specdec__arena_reserve(arena, (size_t)tokens + 1, 4, 8);
    t->text = (unsigned char *)specdec__arena_reserve(arena, bytes + 1, 1, 8);
    t->plain_characters = (unsigned char *)specdec__arena_reserve(arena, 2 * (size_t)tokens, 1, 8);
    t->all.tokens = (uint32_t *)specdec__arena_reserve(arena, tokens, 4, 8);
    t->rest.tokens = (uint32_t *)specdec__arena_reserve(arena, tokens, 4, 8);
    t->by_length = (uint32_t *)specdec__arena_reserve(arena, tokens, 4, 8);
    t->plain = (uint32_t *)specdec__arena_reserve(arena, ((size_t)tokens + 31) / 32, 4, 8);
    t->short_plain = (uint32_t *)specdec__arena_reserve(arena, ((size_t)tokens + 31) / 32, 4, 8);
    /* In each trie, at most one node for every byte; the second trie uses what the first one leaves. */
    t->all.nodes = (specdec__trie_node *)specdec__arena_reserve(arena, 2 * bytes + 4, sizeof *t->all.nodes, 8);
    t->all.heights = (unsigned char *)specdec__arena_reserve(arena, 2 * bytes + 4, 1, 8);
}

/* Reads the bytes of all tokens but the longest ones. text NULL: only counts the bytes. Returns their number. */
static size_t specdec__trie_read_tokens(const specdec__vocab *v, unsigned char *text, uint32_t *at)
{
    size_t sum = 0, size;
    uint32_t id;

    for (id = 0; id < v->count; id++) {
        if (at)
            at[id] = (uint32_t)sum;
        if (specdec__token_write_bytes(v, (int32_t)id, 0, NULL, 0, &size, NULL) != SPECDEC_OK && !size)
            continue;
        if (size > SPECDEC__TRIE_TOKEN_BYTES)
            continue;
        if (text)
            specdec__token_write_bytes(v, (int32_t)id, 0, text + sum, size, &size, NULL);
        sum += size;
    }
    if (at)
        at[v->count] = (uint32_t)sum;
    return sum;
}

/* Divides the vocabulary's tokens into plain ones, by length, and those with entries in `rest`. from: (tokens) receives
   the first byte that is not plain. */
static void specdec__trie_separate_plain_tokens(specdec_token_trie *t, unsigned char *from)
{
    uint32_t id, i, count[SPECDEC__TRIE_TOKEN_BYTES + 1];

    memset(count, 0, sizeof count);
    memset(t->plain, 0, (size_t)t->words * 4);
    memset(t->short_plain, 0, (size_t)t->words * 4);
    for (id = 0; id < t->vocab->count; id++) {
        const unsigned char *text = t->text + t->offset[id];
        const size_t size = t->offset[id + 1] - t->offset[id];
        size_t at = 0, characters = 0, one;

        while (at < size && (one = specdec__trie_plain_character_bytes(text + at, size - at)) != 0) {
            at += one;
            characters++;
        }
        from[id] = (unsigned char)at;
        t->plain_characters[id] = (unsigned char)characters;
        if (!size)
            continue;
        t->all.tokens[t->all.entries++] = id;
        if (at == size) {
            t->plain[id / 32] |= 1u << id % 32;
            if (size <= SPECDEC__LIVE_KINDS_BYTES)
                t->short_plain[id / 32] |= 1u << id % 32;
            count[characters]++;
            t->plain_count++;
        } else if (text[at] >= 0x20) { /* control characters never stand inside a JSON string */
            t->rest.tokens[t->rest.entries++] = id;
            t->rest_lengths[characters] = 1;
            t->rest_longest = size - at > t->rest_longest ? (uint32_t)(size - at) : t->rest_longest;
        }
    }
    for (i = 0; i <= SPECDEC__TRIE_TOKEN_BYTES; i++) {
        t->length_begin[i + 1] = t->length_begin[i] + count[i];
        count[i] = t->length_begin[i];
    }
    for (id = 0; id < t->vocab->count; id++)
        if (t->plain[id / 32] >> id % 32 & 1)
            t->by_length[count[t->plain_characters[id]]++] = id;
}

/* Builds the tries of a vocabulary's tokens in an arena, which may only count the bytes. */
static SPECDEC__UNUSED void specdec__trie_build(specdec_token_trie *t, const specdec__vocab *v, specdec__arena *arena)
{
    unsigned char *from;

    memset(t, 0, sizeof *t);
    t->vocab = v;
    t->words = (v->count + 31) / 32;
    specdec__trie_layout(t, arena, specdec__trie_read_tokens(v, NULL, NULL), v->count);
    if (!arena->base || arena->used == SIZE_MAX)
        return;
    specdec__trie_read_tokens(v, t->text, t->offset);
    from = t->plain_characters + v->count;
    specdec__trie_separate_plain_tokens(t, from);
    t->entry_begin = from;
    specdec__trie_sort_entries(t, t->rest.tokens, t->rest.entries);
    t->rest.nodes = t->all.nodes; /* only counted: not written yet */
    t->rest.count = specdec__trie_build_nodes(t, &t->rest, 0);
    memset(from, 0, v->count);
    specdec__trie_sort_entries(t, t->all.tokens, t->all.entries);
    t->all.count = specdec__trie_build_nodes(t, &t->all, 1);
    specdec__trie_compute_node_kinds(t, &t->all);
    t->rest.nodes = t->all.nodes + t->all.count + 1;
    t->rest.heights = t->all.heights + t->all.count + 1;
    {
        uint32_t id;

        for (id = 0; id < v->count; id++) { /* once more, as it was cleared */
            size_t at = 0, i, size = t->offset[id + 1] - t->offset[id];

            for (i = 0; i < t->plain_characters[id]; i++)
                at += specdec__trie_plain_character_bytes(t->text + t->offset[id] + at, size - at);
            from[id] = (unsigned char)at;
        }
    }
    specdec__trie_build_nodes(t, &t->rest, 1);
    specdec__trie_compute_node_kinds(t, &t->rest);
}

SPECDEC__FOR_SPEED
