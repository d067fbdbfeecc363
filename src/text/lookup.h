/* =====================================================================================================================
 * >>text/lookup: hash tables from bytes to tokens and from pairs of tokens to merges.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "vocabulary.h"
#include "unicode.h"

SPECDEC__FOR_SIZE

#define SPECDEC__VOCAB_FURTHEST 4096 /* places from its hash on among which an entry is */

SPECDEC__INLINE uint32_t specdec__vocab_hash_byte(uint32_t hash, unsigned char byte)
{
    return (hash ^ byte) * 16777619u;
}

SPECDEC__INLINE uint32_t specdec__vocab_hash_end(uint32_t hash)
{
    return (hash ^ hash >> 15) * 0x2c1b3c6du ^ hash >> 13;
}

static uint32_t specdec__vocab_hash(uint32_t hash, specdec__bytes part)
{
    size_t i;

    for (i = 0; i < part.size; i++)
        hash = specdec__vocab_hash_byte(hash, part.data[i]);
    return hash;
}

/* The id of the token whose text is a, followed by b unless that is NULL, spelled as in the file; -1: none. */
static int32_t specdec__vocab_find_spelled(const specdec__vocab *v, specdec__bytes a, const specdec__bytes *b)
{
    uint32_t hash = specdec__vocab_hash(0, a), entry;
    size_t size = a.size + (b ? b->size : 0);
    int i;

    if (b)
        hash = specdec__vocab_hash(hash, *b);
    hash = specdec__vocab_hash_end(hash);
    for (i = 0; i < SPECDEC__VOCAB_FURTHEST && (entry = v->slots[hash & v->slot_mask]) != 0; i++, hash++) {
        specdec__bytes text = specdec__vocab_text(v, entry - 1);

        if (text.size == size && memcmp(text.data, a.data, a.size) == 0 &&
            (!b || memcmp(text.data + a.size, b->data, b->size) == 0))
            return (int32_t)(entry - 1);
    }
    return -1;
}

/* A stretch of plain text; the byte at place 0 is a space that is not there when prefix is 1. */
typedef struct specdec__text_run {
    const unsigned char *text;
    size_t length; /* with the prefix */
    size_t prefix; /* 0 or 1 */
} specdec__text_run;

SPECDEC__INLINE unsigned char specdec__text_run_byte(const specdec__text_run *run, size_t at)
{
    return at < run->prefix ? (unsigned char)' ' : run->text[at - run->prefix];
}

/* Are the bytes [from, from + length) of a run, spelled, this text? */
static int specdec__text_run_equals(const specdec__text_run *run, size_t from, size_t length, int model,
                                    specdec__bytes text)
{
    unsigned char spelled[3];
    size_t i, at = 0;

    for (i = from; i < from + length; i++) {
        size_t size = specdec__text_spell(model, specdec__text_run_byte(run, i), spelled);

        if (size > text.size - at || memcmp(text.data + at, spelled, size) != 0)
            return 0;
        at += size;
    }
    return at == text.size;
}

/* The id of the token that the bytes [from, from + length) of a run spell; -1: none. */
static int32_t specdec__vocab_find(const specdec__vocab *v, const specdec__text_run *run, size_t from, size_t length)
{
    unsigned char spelled[3];
    uint32_t hash = 0, entry;
    size_t i;

    if (length > v->longest)
        return -1;
    for (i = from; i < from + length; i++) {
        size_t j, size = specdec__text_spell(v->model, specdec__text_run_byte(run, i), spelled);

        for (j = 0; j < size; j++)
            hash = specdec__vocab_hash_byte(hash, spelled[j]);
    }
    hash = specdec__vocab_hash_end(hash);
    for (i = 0; i < SPECDEC__VOCAB_FURTHEST && (entry = v->slots[hash & v->slot_mask]) != 0; i++, hash++)
        if (specdec__text_run_equals(run, from, length, v->model, specdec__vocab_text(v, entry - 1)))
            return (int32_t)(entry - 1);
    return -1;
}

SPECDEC__INLINE uint32_t specdec__vocab_pair_hash(uint32_t left, uint32_t right)
{
    return specdec__vocab_hash_end(left * 0x9e3779b1u ^ right * 0x85ebca77u ^ right >> 9);
}

/* The rank of the merge (left, right), lower is earlier; SPECDEC__TEXT_NONE: there is none. */
static uint32_t specdec__vocab_rank(const specdec__vocab *v, uint32_t left, uint32_t right)
{
    uint32_t hash = specdec__vocab_pair_hash(left, right), entry;
    int i;

    for (i = 0; i < SPECDEC__VOCAB_FURTHEST && (entry = v->merge_slots[hash & v->merge_mask]) != 0; i++, hash++)
        if (v->merges[2 * (size_t)entry - 2] == left && v->merges[2 * (size_t)entry - 1] == right)
            return entry - 1;
    return SPECDEC__TEXT_NONE;
}

/* Puts an entry into a table of open places. Returns 0 when its place would be further from its hash than chance ever
   puts it: a file whose texts all share one would take a time that grows with the square of their number. */
static int specdec__vocab_put(uint32_t *slots, uint32_t mask, uint32_t hash, uint32_t entry)
{
    int i;

    for (i = 0; i < SPECDEC__VOCAB_FURTHEST; i++, hash++)
        if (!slots[hash & mask]) {
            slots[hash & mask] = entry;
            return 1;
        }
    return 0;
}

SPECDEC__FOR_SPEED
