/* =====================================================================================================================
 * >>text/merge: merging the symbols of a word into tokens: SentencePiece by score, BPE by rank.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "vocabulary.h"
#include "unicode.h"
#include "words.h"
#include "stages.h"
#include "lookup.h"

SPECDEC__FOR_SIZE

/* An array that receives the tokens of a text; count also counts tokens beyond the capacity. */
typedef struct specdec__token_sink {
    int32_t *tokens;        /* (capacity) ids of tokens */
    size_t capacity, count; /* tokens that there is room for; tokens so far, which may be more */
    int after_unknown;      /* 1: the last token is the unknown token, which SPM never writes twice in a row */
} specdec__token_sink;

/* Appends a token to the array that receives the tokens of a text. */
static void specdec__text_append_token(specdec__token_sink *sink, int32_t id)
{
    if (sink->count < sink->capacity)
        sink->tokens[sink->count] = id;
    sink->count++;
    sink->after_unknown = 0;
}

/* The state of merging the symbols of a stretch of n bytes; a symbol is identified by the offset of its first byte.
   It takes 12.5 bytes of memory for each byte of the stretch. */
typedef struct specdec__text_merger {
    const specdec__vocab *vocab;   /* has scores (SPM) or ranks (BPE) of merges */
    specdec__text_stretch stretch; /* the plain text whose symbols are merged */
    uint32_t *symbol_bytes; /* (n) bytes of a symbol, stored at its first and its last byte */
    uint32_t *symbol_token; /* (n) token id of a symbol, or none */
    uint32_t *merge_key;    /* (n) priority of merging a symbol with the next one, lower first; none at other offsets */
    uint32_t *tournament;   /* (2 * blocks) offsets: best of each block from index blocks on, best of all at index 1 */
    size_t blocks;          /* number of blocks of SPECDEC__TEXT_MERGE_BLOCK bytes of the stretch */
} specdec__text_merger;

/* Returns the priority of an SPM token's score as a key: higher scores give lower keys, but never
   SPECDEC__TEXT_NONE. */
static uint32_t specdec__text_merge_key_of_score(const specdec__vocab *v, uint32_t id)
{
    uint32_t bits = specdec__load_u32(v->scores + (size_t)id * 4);

    if (bits == 0x80000000u)
        bits = 0; /* -0 counts as 0 */
    return bits >> 31 ? bits : 0x7fffffffu - bits;
}

/* Returns the key of merging the symbol at an offset with the next symbol; SPECDEC__TEXT_NONE: they do not merge. */
static uint32_t specdec__text_pair_merge_key(const specdec__text_merger *m, size_t at)
{
    size_t next = at + m->symbol_bytes[at];
    int32_t id;

    if (next >= m->stretch.length)
        return SPECDEC__TEXT_NONE;
    if (SPECDEC__VOCAB_IS_BPE(m->vocab->model)) {
        if (m->symbol_token[at] == SPECDEC__TEXT_NONE || m->symbol_token[next] == SPECDEC__TEXT_NONE)
            return SPECDEC__TEXT_NONE;
        return specdec__vocab_merge_rank(m->vocab, m->symbol_token[at], m->symbol_token[next]);
    }
    id = specdec__vocab_find_token_of_stretch(m->vocab, &m->stretch, at,
                                              (size_t)m->symbol_bytes[at] + m->symbol_bytes[next]);
    return id < 0 ? SPECDEC__TEXT_NONE : specdec__text_merge_key_of_score(m->vocab, (uint32_t)id);
}

/* Returns that one of two offsets whose merge key is lower; of equal keys the left one. */
SPECDEC__INLINE uint32_t specdec__text_offset_of_lower_key(const specdec__text_merger *m, uint32_t a, uint32_t b)
{
    if (m->merge_key[a] != m->merge_key[b])
        return m->merge_key[a] < m->merge_key[b] ? a : b;
    return a < b ? a : b;
}

/* Recomputes the best offset of a block of symbols, and its path in the tournament tree. */
static void specdec__text_update_tournament_block(specdec__text_merger *m, size_t block)
{
    size_t at = block * SPECDEC__TEXT_MERGE_BLOCK, end = at + SPECDEC__TEXT_MERGE_BLOCK;
    uint32_t best = (uint32_t)at;

    for (end = end < m->stretch.length ? end : m->stretch.length; at < end; at++)
        best = specdec__text_offset_of_lower_key(m, best, (uint32_t)at);
    m->tournament[m->blocks + block] = best;
}

/* Sets the merge key of the symbol at an offset, and updates the tournament tree. */
static void specdec__text_set_merge_key(specdec__text_merger *m, size_t at, uint32_t key)
{
    size_t node = m->blocks + at / SPECDEC__TEXT_MERGE_BLOCK;

    m->merge_key[at] = key;
    specdec__text_update_tournament_block(m, at / SPECDEC__TEXT_MERGE_BLOCK);
    for (node /= 2; node; node /= 2)
        m->tournament[node] = specdec__text_offset_of_lower_key(m, m->tournament[2 * node],
                                                                m->tournament[2 * node + 1]);
}

/* Creates the first symbols of a stretch: bytes for byte-level BPE, else characters. */
static void specdec__text_create_symbols(specdec__text_merger *m)
{
    size_t n = m->stretch.length, at, size = 1, node;

    for (at = 0; at < n; at += size) {
        unsigned char byte = specdec__text_stretch_byte(&m->stretch, at);
        int32_t id;

        if (SPECDEC__VOCAB_IS_BYTES(m->vocab->model)) {
            id = m->vocab->byte_token[byte];
        } else {
            if (byte >= 0x80) {
                int sequence = specdec__utf8_sequence_bytes(m->stretch.text + at - m->stretch.prefix, n - at);
                size = sequence > 0 ? (size_t)sequence : 1;
            } else {
                size = 1;
            }
            id = specdec__vocab_find_token_of_stretch(m->vocab, &m->stretch, at, size);
        }
        for (node = at; node < at + size; node++)
            m->merge_key[node] = SPECDEC__TEXT_NONE;
        m->symbol_bytes[at] = m->symbol_bytes[at + size - 1] = (uint32_t)size;
        m->symbol_token[at] = id < 0 ? SPECDEC__TEXT_NONE : (uint32_t)id;
    }
    for (at = 0; at < n; at += m->symbol_bytes[at])
        m->merge_key[at] = specdec__text_pair_merge_key(m, at);
    for (node = 0; node < m->blocks; node++)
        specdec__text_update_tournament_block(m, node);
    for (node = m->blocks - 1; node; node--)
        m->tournament[node] = specdec__text_offset_of_lower_key(m, m->tournament[2 * node],
                                                                m->tournament[2 * node + 1]);
}

/* Merges the two neighbouring symbols with the lowest merge key, until no two can be merged. */
static void specdec__text_merge_symbols(specdec__text_merger *m)
{
    uint32_t at;

    for (at = m->tournament[1]; m->merge_key[at] != SPECDEC__TEXT_NONE; at = m->tournament[1]) {
        size_t next = at + m->symbol_bytes[at], size = (size_t)m->symbol_bytes[at] + m->symbol_bytes[next];

        m->symbol_bytes[at] = m->symbol_bytes[at + size - 1] = (uint32_t)size;
        m->symbol_token[at] = (uint32_t)specdec__vocab_find_token_of_stretch(m->vocab, &m->stretch, at, size);
        specdec__text_set_merge_key(m, next, SPECDEC__TEXT_NONE);
        specdec__text_set_merge_key(m, at, specdec__text_pair_merge_key(m, at));
        if (at) {
            size_t before = at - m->symbol_bytes[at - 1];
            specdec__text_set_merge_key(m, before, specdec__text_pair_merge_key(m, before));
        }
    }
}

/* Appends the tokens of a symbol that is no token itself: byte tokens, if the vocabulary has all its bytes; else SPM
   appends the unknown token, and BPE nothing (StarCoder has no tokens for bytes that never occur in UTF-8). */
static void specdec__text_append_byte_tokens(const specdec__text_merger *m, size_t at, specdec__token_sink *sink)
{
    unsigned char spelled[3];
    size_t i, j, size, known = 1, bpe = SPECDEC__VOCAB_IS_BPE(m->vocab->model);
    int pass;

    for (pass = 0; pass < 2 && known; pass++)
        for (i = at; i < at + m->symbol_bytes[at]; i++) {
            spelled[0] = specdec__text_stretch_byte(&m->stretch, i);
            size = SPECDEC__VOCAB_IS_BYTES(m->vocab->model)
                       ? 1
                       : specdec__text_spell_byte_in_token(m->vocab->model, spelled[0], spelled);
            for (j = 0; j < size; j++)
                if (m->vocab->byte_token[spelled[j]] < 0)
                    known = 0;
                else if (pass)
                    specdec__text_append_token(sink, m->vocab->byte_token[spelled[j]]);
        }
    if (known || bpe || m->vocab->unknown < 0 || sink->after_unknown)
        return;
    specdec__text_append_token(sink, m->vocab->unknown);
    sink->after_unknown = 1;
}

/* Returns the number of bytes of scratch memory for merging a stretch of n bytes. */
static size_t specdec__text_merge_scratch_bytes(size_t n)
{
    return specdec__size_multiply(
        specdec__size_add(specdec__size_multiply(n, 3), (n / SPECDEC__TEXT_MERGE_BLOCK + 1) * 2), sizeof(uint32_t));
}

/* Tokenizes a stretch of plain text by merging its symbols, and appends the tokens to `sink`. scratch is aligned for
   uint32_t. Error: MEMORY. */
static specdec_result specdec__text_tokenize_stretch(const specdec__vocab *v, const specdec__text_stretch *run,
                                                     specdec__token_sink *sink, uint32_t *scratch, size_t scratch_size,
                                                     specdec_error *error)
{
    specdec__text_merger m;
    size_t at, n = run->length;

    if (v->pre_tokenizer && (v->pre_tokenizer->whole_words == SPECDEC__WORDS_WHOLE ||
                             (v->pre_tokenizer->whole_words == SPECDEC__WORDS_LINE_ENDS && *run->text == '\n'))) {
        int32_t id = specdec__vocab_find_token_of_stretch(v, run, 0, n);

        if (id >= 0) {
            specdec__text_append_token(sink, id);
            return SPECDEC_OK;
        }
    }
    if (specdec__text_merge_scratch_bytes(n) > scratch_size)
        return specdec__fail(error, SPECDEC_ERROR_MEMORY,
                             "a word of %zu bytes needs %zu bytes of scratch, %zu are left",
                             n, specdec__text_merge_scratch_bytes(n), scratch_size);
    m.vocab = v;
    m.stretch = *run;
    m.symbol_bytes = scratch;
    m.symbol_token = scratch + n;
    m.merge_key = scratch + 2 * n;
    m.tournament = scratch + 3 * n;
    m.blocks = (n + SPECDEC__TEXT_MERGE_BLOCK - 1) / SPECDEC__TEXT_MERGE_BLOCK;
    specdec__text_create_symbols(&m);
    specdec__text_merge_symbols(&m);
    for (at = 0; at < n; at += m.symbol_bytes[at])
        if (m.symbol_token[at] != SPECDEC__TEXT_NONE)
            specdec__text_append_token(sink, (int32_t)m.symbol_token[at]);
        else
            specdec__text_append_byte_tokens(&m, at, sink);
    return SPECDEC_OK;
}

SPECDEC__FOR_SPEED
