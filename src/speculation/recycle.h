/* =====================================================================================================================
 * >>speculation/recycle: which tokens the target found likeliest behind a context of one to three tokens when it ran
 *     there last, whether they were accepted or not: a table of bounded size, older contexts making room.
 *
 *
 * Token recycling (Luo et al. 2024, arXiv 2408.08696) with contexts of more than one token. Every node of a tree
 * is run, so its logits exist anyway; their most probable tokens are stored for the next time.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/op.h"
#include "../kernel/kernel.h"
#include "sample.h"

SPECDEC__FOR_SIZE
#define SPECDEC__RECYCLE_CONTEXT 3 /* tokens of a context, at most */
#define SPECDEC__RECYCLE_TOKENS  6 /* most probable tokens of a row of logits that are stored */

/* An entry of the table of recycled tokens: the target's most probable tokens behind a context of one to three
   tokens. */
typedef struct specdec__recycle_entry {
    uint32_t tag;                            /* hash of the context; its lowest bits are the entry's index */
    uint16_t share[SPECDEC__RECYCLE_TOKENS]; /* probabilities of the tokens, falling, in parts of 32768; 0: no token */
    int32_t tokens[SPECDEC__RECYCLE_TOKENS]; /* the tokens, the most probable first */
} specdec__recycle_entry;

/* The table of recycled tokens: the target's most probable tokens behind contexts. */
typedef struct specdec__recycle_table {
    specdec__recycle_entry *entries; /* [count]: a hash table of contexts, with one place for each index */
    uint32_t count;             /* number of entries, a power of two; 0: nothing is stored */
} specdec__recycle_table;

/* Takes the memory of a table of at least `entries` entries (0: none) from an arena. */
static void specdec__recycle_lay_out(specdec__recycle_table *r, specdec__arena *arena, int entries)
{
    for (r->count = entries > 0; r->count && r->count < (uint32_t)entries; r->count *= 2)
        continue;
    r->entries = SPECDEC__TAKE(arena, specdec__recycle_entry, r->count);
    if (r->entries)
        memset(r->entries, 0, r->count * sizeof *r->entries);
}

/* Returns the hash of a context of n tokens, tail[0] being its newest. */
static uint32_t specdec__recycle_hash_context(const int32_t *tail, int n)
{
    uint64_t hash = (uint64_t)n;
    int i;

    for (i = 0; i < n; i++)
        hash = specdec__mix_bits((hash ^ (uint32_t)tail[i]) * 0x9e3779b97f4a7c15u);
    return (uint32_t)(hash >> 32);
}

/* Returns the only entry that a context with this hash can have in the table, which has at least one entry. */
SPECDEC__INLINE specdec__recycle_entry *specdec__recycle_entry_of_tag(const specdec__recycle_table *r, uint32_t tag)
{
    return &r->entries[tag & (r->count - 1)];
}

/* Returns the entry of the longest context in the table that the `known` tokens of tail, newest first, end with; NULL:
   there is none. *length becomes the number of its tokens. */
static const specdec__recycle_entry *specdec__recycle_find_longest_entry(const specdec__recycle_table *r,
                                                                         const int32_t *tail, int known, int *length)
{
    known = specdec__min_int(known, SPECDEC__RECYCLE_CONTEXT);
    for (*length = known; r->count && *length > 0; --*length) {
        const uint32_t tag = specdec__recycle_hash_context(tail, *length);
        const specdec__recycle_entry *entry = specdec__recycle_entry_of_tag(r, tag);

        if (entry->tag == tag && entry->share[0])
            return entry;
    }
    return NULL;
}

/* Stores the target's most probable tokens of a row of logits (vocab) behind a context, tail (known tokens, newest
   first). Logits that were not computed are -infinity or NaN. heat: the temperature; 0: greedy. */
static void specdec__recycle_store_best_tokens(specdec__recycle_table *r, const int32_t *tail, int known,
                                               const specdec__kernels *kernels, const float *logits, int vocab,
                                               float heat)
{
    specdec_candidate best[SPECDEC__RECYCLE_TOKENS];
    const float scale = heat > 0.05f ? 1 / heat : 1;
    float weight[SPECDEC__RECYCLE_TOKENS], sum = 0;
    specdec__recycle_entry kept;
    int i, held;

    memset(&kept, 0, sizeof kept);
    held = specdec__sample_best_tokens(kernels, logits, vocab, SPECDEC__RECYCLE_TOKENS, best);
    for (i = 0; i < held && best[i].logit > -1e30f; i++)
        sum += weight[i] = specdec__exp((best[i].logit - best[0].logit) * scale);
    for (held = i, i = 0; i < held; i++) {
        kept.share[i] = (uint16_t)(weight[i] / sum * 32768.0f);
        kept.tokens[i] = best[i].token;
    }
    for (i = 1; held && i <= known && i <= SPECDEC__RECYCLE_CONTEXT && r->count; i++) {
        kept.tag = specdec__recycle_hash_context(tail, i);
        *specdec__recycle_entry_of_tag(r, kept.tag) = kept;
    }
}

SPECDEC__FOR_SPEED
