/* =====================================================================================================================
 * >>engine/api_constraint: bodies of the API: constraints and masks, without an engine.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../text/vocabulary.h"
#include "../model/open.h"
#include "../constraint/automaton.h"
#include "../constraint/build.h"
#include "../constraint/finish.h"
#include "../constraint/compile.h"
#include "../constraint/trie.h"
#include "../constraint/mask.h"
#include "api.h"

#if SPECDEC__HAS_CONSTRAINTS
SPECDEC__FOR_SIZE

/* Checks the caller's source of a constraint. *size becomes the number of bytes of all its texts. */
static specdec_result specdec__constraint_check_source(const specdec_constraint_source *source, size_t *size,
                                                       specdec_error *error)
{
    int i;

    *size = 0;
    if ((unsigned)source->kind >= SPECDEC_CONSTRAINT_KINDS)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "there is no constraint of kind %d", (int)source->kind);
    if (source->kind == SPECDEC_CONSTRAINT_CHOICES) {
        if (!source->choices || source->choice_count < 1)
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "there is nothing to choose from");
        for (i = 0; i < source->choice_count; i++) {
            if (!source->choices[i])
                return specdec__fail_missing_argument(error);
            *size = specdec__size_add(*size, strlen(source->choices[i]));
        }
    } else if (source->kind != SPECDEC_CONSTRAINT_JSON) {
        if (!source->text)
            return specdec__fail_missing_argument(error);
        *size = source->length == SPECDEC_WHOLE_STRING ? strlen(source->text) : source->length;
    }
    if (*size > 1u << 26)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "a text of %zu bytes is too long", *size);
    return SPECDEC_OK;
}

specdec_result specdec_constraint_needed(const specdec_constraint_source *source, size_t *bytes, specdec_error *error)
{
    specdec_result result;
    size_t size;

    if (!source || !bytes)
        return specdec__fail_missing_argument(error);
    result = specdec__constraint_check_source(source, &size, error);
    if (!result)
        *bytes = ((size_t)16 << 20) + 400 * size;
    return result;
}

specdec_result specdec_constraint_init(const specdec_constraint **constraint, const specdec_constraint_source *source,
                                       void *memory, size_t bytes, specdec_error *error)
{
    specdec_result result;
    specdec__build *b;
    unsigned char *base = (unsigned char *)memory;
    size_t size, skip;

    if (!constraint)
        return specdec__fail_missing_argument(error);
    *constraint = NULL;
    if (!source || !memory)
        return specdec__fail_missing_argument(error);
    result = specdec__constraint_check_source(source, &size, error);
    if (result)
        return result;
    skip = (size_t)(-(uintptr_t)base & 7);
    size = sizeof *b + skip + 8;
    if (bytes < size)
        return specdec__fail_small_block(bytes, size, error);
    bytes = (bytes - size) & ~(size_t)7;
    b = (specdec__build *)(void *)(base + skip + bytes); /* at the end, as all else that is not kept */
    result = specdec__compile_constraint(b, source, base + skip, bytes, error);
    if (!result)
        *constraint = (const specdec_constraint *)(const void *)(base + skip);
    return result;
}

size_t specdec_constraint_bytes(const specdec_constraint *constraint) { return constraint ? constraint->bytes : 0; }

uint64_t specdec_constraint_hash(const specdec_constraint *constraint) { return constraint ? constraint->hash : 0; }

size_t specdec_constraint_state_bytes(const specdec_constraint *constraint)
{
    return constraint ? sizeof(specdec_constraint_state) : 0;
}

specdec_constraint_state *specdec_constraint_begin(const specdec_constraint *constraint, void *memory, size_t bytes)
{
    if (!constraint || !memory || bytes < sizeof(specdec_constraint_state) || (uintptr_t)memory & 3)
        return NULL;
    specdec__constraint_first_state(constraint, (specdec_constraint_state *)memory);
    return (specdec_constraint_state *)memory;
}

size_t specdec_constraint_advance(const specdec_constraint *constraint, specdec_constraint_state *state,
                                  const void *bytes, size_t count)
{
    size_t i = 0;

    while (constraint && state && bytes && i < count &&
           specdec__constraint_read_byte(constraint, state, ((const unsigned char *)bytes)[i]))
        i++;
    return i;
}

int specdec_constraint_allows(const specdec_constraint *constraint, const specdec_constraint_state *state,
                              const void *bytes, size_t count)
{
    return constraint && state && (bytes || !count) &&
           specdec__constraint_allows_bytes(constraint, state, (const unsigned char *)bytes, count);
}

int specdec_constraint_complete(const specdec_constraint *constraint, const specdec_constraint_state *state)
{
    return constraint && state && specdec__constraint_is_complete(constraint, state);
}

int specdec_constraint_next(const specdec_constraint *constraint, const specdec_constraint_state *state,
                            uint32_t mask[8])
{
    uint32_t i;
    int count = 0;

    if (!constraint || !state || !mask)
        return 0;
    specdec__mask_compute_next_bytes(constraint, state, mask);
    for (i = 0; i < 256; i++) {
        const unsigned char byte = (unsigned char)i;

        if (!(mask[i >> 5] >> (i & 31) & 1))
            continue;
        if (specdec__constraint_allows_bytes(constraint, state, &byte, 1))
            count++;
        else
            mask[i >> 5] &= ~(1u << (i & 31));
    }
    return count;
}

size_t specdec_constraint_forced(const specdec_constraint *constraint, const specdec_constraint_state *state,
                                 void *bytes, size_t room)
{
    specdec_constraint_state copy;
    size_t count = 0;
    int byte;

    if (!constraint || !state || !bytes)
        return 0;
    copy = *state;
    while (count < room && (byte = specdec__mask_find_forced_byte(constraint, &copy)) >= 0) {
        specdec__constraint_read_byte(constraint, &copy, (unsigned char)byte);
        ((unsigned char *)bytes)[count++] = (unsigned char)byte;
    }
    return count;
}

specdec_result specdec_token_trie_needed(const specdec_model *model, size_t *bytes, specdec_error *error)
{
    specdec__arena arena = {NULL, 0, 0};
    specdec_token_trie trie;

    if (!model || !bytes)
        return specdec__fail_missing_argument(error);
    if (!model->vocab.count)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "a file of heads has no vocabulary");
    SPECDEC__TAKE(&arena, specdec_token_trie, 1);
    specdec__trie_build(&trie, &model->vocab, &arena);
    return specdec__counted_block_bytes(&arena, bytes, error);
}

specdec_result specdec_token_trie_init(const specdec_token_trie **trie, const specdec_model *model, void *memory,
                                       size_t bytes, specdec_error *error)
{
    specdec__arena arena;
    specdec_token_trie *made;
    specdec_result result;
    size_t needed;

    if (!trie)
        return specdec__fail_missing_argument(error);
    *trie = NULL;
    result = specdec_token_trie_needed(model, &needed, error);
    if (result)
        return result;
    if (!memory || bytes < needed)
        return specdec__fail_small_block(memory ? bytes : 0, needed, error);
    arena = specdec__block_arena(memory, needed);
    made = SPECDEC__TAKE(&arena, specdec_token_trie, 1);
    if (made)
        specdec__trie_build(made, &model->vocab, &arena);
    if (arena.used == SIZE_MAX)
        return specdec__fail_small_block(bytes, needed, error);
    *trie = made;
    return SPECDEC_OK;
}

size_t specdec_constraint_mask_memory(const specdec_constraint *constraint)
{
    return constraint ? sizeof(specdec__mask_walk) : 0;
}

int specdec_constraint_mask(const specdec_constraint *constraint, const specdec_constraint_state *state,
                            const specdec_token_trie *trie, uint32_t *mask, void *memory, size_t bytes)
{
    if (!constraint || !state || !trie || !mask || !memory || bytes < sizeof(specdec__mask_walk) ||
        (uintptr_t)memory & 7)
        return 0;
    specdec__mask_compute(constraint, state, trie, mask, memory);
    return 1;
}

int specdec_constraint_token(const specdec_constraint *constraint, const specdec_constraint_state *state,
                             const specdec_token_trie *trie, int32_t token)
{
    const specdec__vocab *v;
    uint32_t at;

    if (!constraint || !state || !trie || token < 0 || (uint32_t)token >= trie->vocab->count)
        return 0;
    v = trie->vocab;
    if (specdec__vocab_is_end_token(v, token))
        return specdec__constraint_is_complete(constraint, state);
    at = trie->offset[token];
    return trie->offset[token + 1] > at &&
           specdec__constraint_allows_bytes(constraint, state, trie->text + at, trie->offset[token + 1] - at);
}

SPECDEC__FOR_SPEED
#else

/* Returns the error of a call on constraints in a build without them. */
static specdec_result specdec__fail_no_constraints(specdec_error *error)
{
    return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "built without constraints (SPECDEC_NO_CONSTRAINTS)");
}

specdec_result specdec_constraint_needed(const specdec_constraint_source *source, size_t *bytes, specdec_error *error)
{
    (void)source;
    (void)bytes;
    return specdec__fail_no_constraints(error);
}

specdec_result specdec_constraint_init(const specdec_constraint **constraint, const specdec_constraint_source *source,
                                       void *memory, size_t bytes, specdec_error *error)
{
    (void)source;
    (void)memory;
    (void)bytes;
    if (constraint)
        *constraint = NULL;
    return specdec__fail_no_constraints(error);
}

specdec_result specdec_token_trie_needed(const specdec_model *model, size_t *bytes, specdec_error *error)
{
    (void)model;
    (void)bytes;
    return specdec__fail_no_constraints(error);
}

specdec_result specdec_token_trie_init(const specdec_token_trie **trie, const specdec_model *model, void *memory,
                                       size_t bytes, specdec_error *error)
{
    (void)model;
    (void)memory;
    (void)bytes;
    if (trie)
        *trie = NULL;
    return specdec__fail_no_constraints(error);
}

size_t specdec_constraint_bytes(const specdec_constraint *constraint) { return (void)constraint, 0; }
uint64_t specdec_constraint_hash(const specdec_constraint *constraint) { return (void)constraint, 0; }
size_t specdec_constraint_state_bytes(const specdec_constraint *constraint) { return (void)constraint, 0; }
size_t specdec_constraint_mask_memory(const specdec_constraint *constraint) { return (void)constraint, 0; }

specdec_constraint_state *specdec_constraint_begin(const specdec_constraint *constraint, void *memory, size_t bytes)
{
    return (void)constraint, (void)memory, (void)bytes, (specdec_constraint_state *)NULL;
}

size_t specdec_constraint_advance(const specdec_constraint *constraint, specdec_constraint_state *state,
                                  const void *bytes, size_t count)
{
    return (void)constraint, (void)state, (void)bytes, (void)count, 0;
}

int specdec_constraint_allows(const specdec_constraint *constraint, const specdec_constraint_state *state,
                              const void *bytes, size_t count)
{
    return (void)constraint, (void)state, (void)bytes, (void)count, 0;
}

int specdec_constraint_complete(const specdec_constraint *constraint, const specdec_constraint_state *state)
{
    return (void)constraint, (void)state, 0;
}

int specdec_constraint_next(const specdec_constraint *constraint, const specdec_constraint_state *state,
                            uint32_t mask[8])
{
    return (void)constraint, (void)state, (void)mask, 0;
}

size_t specdec_constraint_forced(const specdec_constraint *constraint, const specdec_constraint_state *state,
                                 void *bytes, size_t room)
{
    return (void)constraint, (void)state, (void)bytes, (void)room, 0;
}

int specdec_constraint_mask(const specdec_constraint *constraint, const specdec_constraint_state *state,
                            const specdec_token_trie *trie, uint32_t *mask, void *memory, size_t bytes)
{
    return (void)constraint, (void)state, (void)trie, (void)mask, (void)memory, (void)bytes, 0;
}

int specdec_constraint_token(const specdec_constraint *constraint, const specdec_constraint_state *state,
                             const specdec_token_trie *trie, int32_t token)
{
    return (void)constraint, (void)state, (void)trie, (void)token, 0;
}
#endif
