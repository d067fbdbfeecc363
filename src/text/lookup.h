/* =====================================================================================================================
 * >>text/lookup: hash tables from bytes to tokens and from pairs of tokens to merges.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "vocabulary.h"
#include "unicode.h"

SPECDEC__FOR_SIZE

#define SPECDEC__VOCAB_PROBES_MOST 4096 /* entries of a hash table that a search may probe */

/* Returns a hash after one more byte (FNV-1a). */
SPECDEC__INLINE uint32_t specdec__vocab_hash_byte(uint32_t hash, unsigned char byte)
{
    return (hash ^ byte) * 16777619u;
}

/* Returns a hash with its bits mixed, after its last byte was added. */
SPECDEC__INLINE uint32_t specdec__vocab_hash_finish(uint32_t hash)
{
    return (hash ^ hash >> 15) * 0x2c1b3c6du ^ hash >> 13;
}

/* Returns a hash after the bytes of `part`. */
static uint32_t specdec__vocab_hash_bytes(uint32_t hash, specdec__bytes part)
{
    size_t i;

    for (i = 0; i < part.size; i++)
        hash = specdec__vocab_hash_byte(hash, part.data[i]);
    return hash;
}

/* Returns the id of the token whose text, as the file spells it, is a, or a followed by b (if not NULL); -1: there is
   none. */
static int32_t specdec__vocab_find_token_by_file_text(const specdec__vocab *v, specdec__bytes a,
                                                      const specdec__bytes *b)
{
    uint32_t hash = specdec__vocab_hash_bytes(0, a), entry;
    size_t size = a.size + (b ? b->size : 0);
    int i;

    if (b)
        hash = specdec__vocab_hash_bytes(hash, *b);
    hash = specdec__vocab_hash_finish(hash);
    for (i = 0; i < SPECDEC__VOCAB_PROBES_MOST && (entry = v->token_table[hash & v->token_table_mask]) != 0;
         i++, hash++) {
        specdec__bytes text = specdec__vocab_token_text(v, entry - 1);

        if (text.size == size && memcmp(text.data, a.data, a.size) == 0 &&
            (!b || memcmp(text.data + a.size, b->data, b->size) == 0))
            return (int32_t)(entry - 1);
    }
    return -1;
}

/* A stretch: plain text that is tokenized at once, perhaps with a space in front that is not in the text. */
typedef struct specdec__text_stretch {
    const unsigned char *text; /* bytes of the stretch, without the added space */
    size_t length;             /* bytes of the stretch, the added space included */
    size_t prefix;             /* 1: byte 0 is an added space; else 0 */
} specdec__text_stretch;

/* Returns byte `at` of a stretch of plain text. */
SPECDEC__INLINE unsigned char specdec__text_stretch_byte(const specdec__text_stretch *run, size_t at)
{
    return at < run->prefix ? (unsigned char)' ' : run->text[at - run->prefix];
}

/* Are the bytes [from, from + length) of a stretch of plain text, spelled as the vocabulary spells token texts, equal
   to a token's text? */
static int specdec__text_stretch_equals(const specdec__text_stretch *run, size_t from, size_t length, int model,
                                        specdec__bytes text)
{
    unsigned char spelled[3];
    size_t i, at = 0;

    for (i = from; i < from + length; i++) {
        size_t size = specdec__text_spell_byte_in_token(model, specdec__text_stretch_byte(run, i), spelled);

        if (size > text.size - at || memcmp(text.data + at, spelled, size) != 0)
            return 0;
        at += size;
    }
    return at == text.size;
}

/* Returns the id of the token that spells the bytes [from, from + length) of a stretch of plain text; -1: there is
   none. */
static int32_t specdec__vocab_find_token_of_stretch(const specdec__vocab *v, const specdec__text_stretch *run,
                                                    size_t from, size_t length)
{
    unsigned char spelled[3];
    uint32_t hash = 0, entry;
    size_t i;

    if (length > v->longest_bytes)
        return -1;
    for (i = from; i < from + length; i++) {
        size_t j, size = specdec__text_spell_byte_in_token(v->model, specdec__text_stretch_byte(run, i), spelled);

        for (j = 0; j < size; j++)
            hash = specdec__vocab_hash_byte(hash, spelled[j]);
    }
    hash = specdec__vocab_hash_finish(hash);
    for (i = 0; i < SPECDEC__VOCAB_PROBES_MOST && (entry = v->token_table[hash & v->token_table_mask]) != 0;
         i++, hash++)
        if (specdec__text_stretch_equals(run, from, length, v->model, specdec__vocab_token_text(v, entry - 1)))
            return (int32_t)(entry - 1);
    return -1;
}

/* Returns the hash of a pair of token ids. */
SPECDEC__INLINE uint32_t specdec__vocab_pair_hash(uint32_t left, uint32_t right)
{
    return specdec__vocab_hash_finish(left * 0x9e3779b1u ^ right * 0x85ebca77u ^ right >> 9);
}

/* Returns the rank of the BPE merge of two tokens, lower is earlier; SPECDEC__TEXT_NONE: there is no such merge. */
static uint32_t specdec__vocab_merge_rank(const specdec__vocab *v, uint32_t left, uint32_t right)
{
    uint32_t hash = specdec__vocab_pair_hash(left, right), entry;
    int i;

    for (i = 0; i < SPECDEC__VOCAB_PROBES_MOST && (entry = v->merge_table[hash & v->merge_table_mask]) != 0;
         i++, hash++)
        if (v->merges[2 * (size_t)entry - 2] == left && v->merges[2 * (size_t)entry - 1] == right)
            return entry - 1;
    return SPECDEC__TEXT_NONE;
}

/* Stores an entry in a hash table with linear probing. Returns 0 when it would be SPECDEC__VOCAB_PROBES_MOST entries
   away from its hash: then a hostile file has made hashes collide, and building the table would take quadratic time. */
static int specdec__vocab_store_in_hash_table(uint32_t *slots, uint32_t mask, uint32_t hash, uint32_t entry)
{
    int i;

    for (i = 0; i < SPECDEC__VOCAB_PROBES_MOST; i++, hash++)
        if (!slots[hash & mask]) {
            slots[hash & mask] = entry;
            return 1;
        }
    return 0;
}

SPECDEC__FOR_SPEED
