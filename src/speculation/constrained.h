/* =====================================================================================================================
 * >>speculation/constrained: which tokens may follow in a sequence that has a constraint: the constraint's states
 *     behind tokens of the sequence and behind draft tokens, masks of allowed tokens, forced tokens.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../text/vocabulary.h"
#include "../text/decode.h"
#include "../text/tokenize.h"
#include "../constraint/automaton.h"
#include "../constraint/finish.h"
#include "../constraint/trie.h"
#include "../constraint/mask.h"
#include "sample.h"

SPECDEC__FOR_SIZE

#define SPECDEC__FORCED_BYTES 64 /* bytes that a constraint forces and that are tokenized together, at most */
#define SPECDEC__CONSTRAINED_PATH_TOKENS (SPECDEC_TREE_MAX_DEPTH + 1) /* draft tokens of a path whose constraint states
                                                                         are stored, at most */
#define SPECDEC__CONSTRAINED_EXTRA_CANDIDATES 15 /* more than k tokens are checked before all are masked */

enum { SPECDEC__CONSTRAINED_CALL_MARKS = 24 }; /* control tokens with which tool calls are written, at most */

struct specdec__constrained;

/* The memory that all constrained sequences of an engine share: the trie of the vocabulary, a mask of allowed tokens,
   and the constraint's states behind the tokens of one path of a token tree. */
typedef struct specdec__masker {
    const specdec__vocab *vocab; /* the target's vocabulary */
    int vocab_size;            /* logits of a row */
    const specdec_token_trie *trie; /* the vocabulary's tokens as a trie, in trie_memory; NULL until the first
                                       constraint is used */
    unsigned char *trie_memory; /* (trie_bytes): memory in which the trie is built */
    size_t trie_bytes;          /* bytes of trie_memory */
    uint32_t *mask;            /* (vocab_size bits): 1: the token is allowed; computed by
                                  specdec__constrained_compute_mask */
    float *row;                /* (vocab_size): a copy of a row of logits: -infinity where the mask has no bit */
    specdec__mask_walk *walk;  /* scratch of specdec__mask_compute */
    int32_t *forced;           /* (4 * SPECDEC__FORCED_BYTES + 5): the tokens that spell the forced bytes */
    void *scratch;             /* (scratch_bytes): memory of the tokenizer for SPECDEC__FORCED_BYTES bytes */
    size_t scratch_bytes;      /* bytes of scratch */
    int32_t marks[SPECDEC__CONSTRAINED_CALL_MARKS]; /* (mark_count): control tokens that count as the text they are
                                                       spelled with in tool calls */
    int mark_count;            /* number of these tokens; -1: they were not searched yet */
    const struct specdec__constrained *owner; /* the sequence's constraint that the stored path belongs to */
    int base, path_count;      /* tokens of the sequence before the path; draft tokens of the path */
    int32_t path[SPECDEC__CONSTRAINED_PATH_TOKENS]; /* (path_count): the draft tokens of a path of the token tree, from
                                                       its root on */
    specdec_constraint_state *states; /* (SPECDEC__CONSTRAINED_PATH_TOKENS + 1): the constraint's state behind each
                                         token of the path; the last one is scratch */
} specdec__masker;

/* The constraint of a sequence. Its states depend only on the sequence's tokens from index `from` on. The state behind
   the committed tokens is stored, so that they are not parsed again. */
typedef struct specdec__constrained {
    specdec__masker *masker;   /* NULL: the engine has no room for constraints */
    const specdec_constraint *constraint; /* the compiled constraint; NULL: there is none */
    uint64_t hash;             /* hash of the constraint */
    specdec_allow allow;       /* the caller's function that allows or forbids a token; NULL: none */
    void *allow_data;          /* the first argument of that function */
    const int32_t *ends;       /* (end_count): tokens that end the answer, besides the end tokens of the vocabulary */
    int end_count;             /* number of these tokens */
    int from;                  /* index of the token at which the constraint begins */
    int anchored;              /* 1: the constraint's first tokens have slid out of the context, and it continues from
                                  state[1] */
    int spelled;               /* 1: control tokens that mark tool calls count as the text they are spelled with */
    int length;                /* tokens of the sequence that state[0] is the state behind */
    int32_t last;              /* the last of these tokens; -1: there are none */
    specdec_constraint_state *state; /* (2): [0]: the constraint's state behind the first `length` tokens; [1]: at index
                                        `from`, where anchored is 1 */
} specdec__constrained;

/* Returns whether a sequence has a constraint, or a function of the caller's, that limits its tokens. */
SPECDEC__INLINE int specdec__constrained_limits_tokens(const specdec__constrained *c)
{
    return SPECDEC__HAS_CONSTRAINTS && c && (c->constraint || c->allow);
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* Takes the memory for constraints of an engine from an arena. m: NULL where the arena only counts bytes. */
static void specdec__masker_lay_out(specdec__masker *m, const specdec__vocab *vocab, int vocab_size,
                                    specdec__arena *arena)
{
    specdec__arena counter = {NULL, 0, 0};
    specdec__masker made;
    specdec_token_trie trie;
    size_t bytes = 0, at = 0;
    uint32_t id;

    memset(&made, 0, sizeof made);
    made.vocab = vocab;
    made.vocab_size = vocab_size;
    made.mark_count = -1;
    SPECDEC__TAKE(&counter, specdec_token_trie, 1);
    for (id = 0; id < vocab->count; id++)
        bytes += specdec__vocab_next_token_text(vocab, &at).size; /* decoded, a token is not longer than in the file */
    specdec__trie_layout(&trie, &counter, bytes, vocab->count);
    made.trie_bytes = counter.used;
    made.trie_memory = (unsigned char *)specdec__arena_reserve(arena, made.trie_bytes, 1, SPECDEC__CACHE_LINE);
    made.mask = SPECDEC__TAKE(arena, uint32_t, ((size_t)specdec__max_int(vocab_size, (int)vocab->count) + 31) / 32);
    made.row = SPECDEC__TAKE(arena, float, vocab_size);
    made.walk = SPECDEC__TAKE(arena, specdec__mask_walk, 1);
    made.states = SPECDEC__TAKE(arena, specdec_constraint_state, SPECDEC__CONSTRAINED_PATH_TOKENS + 1);
    made.forced = SPECDEC__TAKE(arena, int32_t, 4 * SPECDEC__FORCED_BYTES + 5);
    made.scratch_bytes = specdec__tokenize_scratch_bytes(vocab, SPECDEC__FORCED_BYTES);
    made.scratch = specdec__arena_reserve(arena, made.scratch_bytes, 1, SPECDEC__CACHE_LINE);
    if (m)
        *m = made;
}

/* Builds the trie of the vocabulary's tokens in trie_memory, unless it is built. */
static void specdec__masker_build_trie(specdec__masker *m)
{
    specdec__arena arena;
    specdec_token_trie *trie;

    if (m->trie)
        return;
    arena.base = m->trie_memory;
    arena.size = m->trie_bytes;
    arena.used = 0;
    trie = SPECDEC__TAKE(&arena, specdec_token_trie, 1);
    specdec__trie_build(trie, m->vocab, &arena);
    m->trie = trie;
}

/* --- states ------------------------------------------------------------------------------------------------------- */

/* Returns whether a token ends the sequence's answer. */
static int specdec__constrained_token_ends_answer(const specdec__constrained *c, int32_t token)
{
    int i;

    for (i = 0; i < c->end_count; i++)
        if (c->ends[i] == token)
            return 1;
    return specdec__vocab_is_end_token(c->masker->vocab, token);
}

/* Returns whether decoding drops the space at the beginning of the plain token behind `previous` (-1: none).
   Vocabularies of SentencePiece put a space before a text. */
static int specdec__constrained_drops_leading_space(const specdec__constrained *c, int32_t previous)
{
    const specdec__vocab *v = c->masker->vocab;

    return !SPECDEC__VOCAB_IS_BPE(v->model) && v->add_space_prefix &&
           (previous < 0 || (uint32_t)previous >= v->count ||
            specdec__vocab_type_is_special(specdec__vocab_token_type(v, (uint32_t)previous)));
}

/* Returns whether a token is a control token that marks tool calls and counts as the text it is spelled with. */
static int specdec__constrained_is_call_mark(const specdec__constrained *c, int32_t token)
{
    int i;

    for (i = 0; c->spelled && i < c->masker->mark_count; i++)
        if (c->masker->marks[i] == token)
            return 1;
    return 0;
}

/* Returns the bytes that a token adds to the text behind token `previous`; empty: it adds none. */
static specdec__bytes specdec__constrained_token_bytes(const specdec__constrained *c, int32_t previous, int32_t token)
{
    const specdec_token_trie *trie = c->masker->trie;
    specdec__bytes bytes = {NULL, 0};

    if (token < 0 || (uint32_t)token >= c->masker->vocab->count)
        return bytes;
    if (specdec__constrained_is_call_mark(c, token))
        return specdec__vocab_token_text(c->masker->vocab, (uint32_t)token);
    bytes.data = trie->text + trie->offset[token];
    bytes.size = trie->offset[token + 1] - trie->offset[token];
    if (bytes.size && bytes.data[0] == ' ' && specdec__constrained_drops_leading_space(c, previous)) {
        const int type = specdec__vocab_token_type(c->masker->vocab, (uint32_t)token);

        if (!specdec__vocab_type_is_special(type) && type != SPECDEC__TOKEN_BYTE) {
            bytes.data++;
            bytes.size--;
        }
    }
    return bytes;
}

/* Advances a state of the constraint by one token, which follows token `previous`. Behind a token that was not allowed,
   no token is allowed. */
static void specdec__constrained_advance_state(const specdec__constrained *c, specdec_constraint_state *state,
                                               int32_t previous, int32_t token)
{
    const specdec__bytes bytes = specdec__constrained_token_bytes(c, previous, token);
    size_t i;

    if (specdec__constrained_token_ends_answer(c, token))
        return;
    for (i = 0; i < bytes.size; i++)
        if (!specdec__constraint_read_byte(c->constraint, state, bytes.data[i]))
            break;
    if (i < bytes.size || !bytes.size)
        state->thread_count = 0;
}

/* Returns the token before index `at` of a sequence; -1: there is none. */
SPECDEC__INLINE int32_t specdec__constrained_token_before_index(const int32_t *text,
                                                                int at) { return at > 0 ? text[at - 1] : -1; }

/* Makes the constraint begin behind the first `from` tokens of its sequence. */
static void specdec__constrained_begin_behind(specdec__constrained *c, int from)
{
    c->from = from;
    c->anchored = c->spelled = 0;
    c->length = -1;
    if (c->masker && c->masker->owner == c)
        c->masker->owner = NULL;
}

/* Drops the stored states of the constraint, unless they are those behind at most the first `count` tokens of its
   sequence. */
static void specdec__constrained_drop_states_behind(specdec__constrained *c, int count)
{
    if (c->length > count)
        c->length = -1;
    if (c->masker && c->masker->owner == c)
        c->masker->owner = NULL;
}

/* Computes the constraint's state behind the first `count` tokens of the sequence, and stores it as state[0]. */
static void specdec__constrained_commit_state(specdec__constrained *c, const int32_t *text, int count)
{
    if (!SPECDEC__HAS_CONSTRAINTS || !c->constraint)
        return;
    if (c->length < c->from || c->length > count ||
        (c->length > c->from && c->last != specdec__constrained_token_before_index(text, c->length))) {
        if (c->anchored)
            c->state[0] = c->state[1];
        else
            specdec__constraint_first_state(c->constraint, &c->state[0]);
        c->length = c->from;
    }
    for (; c->length < count; c->length++)
        specdec__constrained_advance_state(c, &c->state[0], specdec__constrained_token_before_index(text, c->length),
                                           text[c->length]);
    c->last = specdec__constrained_token_before_index(text, c->length);
    if (c->masker->owner == c)
        c->masker->owner = NULL;
}

/* Returns the constraint's state behind the first `count` tokens of text, which may end with draft tokens. */
static const specdec_constraint_state *specdec__constrained_state_behind(specdec__constrained *c, const int32_t *text,
                                                                         int count)
{
    specdec__masker *m = c->masker;
    int i = 0, at;

    if (c->length < c->from || count < c->length || count - c->length > SPECDEC__CONSTRAINED_PATH_TOKENS)
        specdec__constrained_commit_state(c, text, count);
    if (count == c->length)
        return &c->state[0];
    if (m->owner != c || m->base != c->length) {
        m->owner = c;
        m->base = c->length;
        m->path_count = 0;
    }
    while (i < m->path_count && c->length + i < count && m->path[i] == text[c->length + i])
        i++;
    for (at = c->length + i; at < count; at++, i++) {
        m->states[i] = i ? m->states[i - 1] : c->state[0];
        specdec__constrained_advance_state(c, &m->states[i], specdec__constrained_token_before_index(text, at),
                                           text[at]);
        m->path[i] = text[at];
        m->path_count = i + 1;
    }
    return &m->states[count - c->length - 1];
}

/* Returns whether the first `count` tokens satisfy the constraint, and no token may follow them but an end token. */
static int specdec__constrained_only_end_may_follow(specdec__constrained *c, const int32_t *text, int count)
{
    const specdec_constraint_state *state;

    if (!SPECDEC__HAS_CONSTRAINTS || !c->constraint)
        return 0;
    state = specdec__constrained_state_behind(c, text, count);
    return specdec__constraint_is_complete(c->constraint, state) &&
           specdec__mask_find_only_byte(c->constraint, state) < 0;
}

/* --- tokens ------------------------------------------------------------------------------------------------------- */

/* Returns whether the constraint may allow a token that is longer than `size` bytes and begins with these bytes, which
   must follow. behind: the constraint's state behind the bytes. The result may be 1 where only the first byte behind
   them is allowed. */
static int specdec__constrained_allows_longer_token(const specdec__constrained *c, const unsigned char *bytes,
                                                    size_t size, const specdec_constraint_state *behind)
{
    const specdec__trie_tree *tree = &c->masker->trie->all;
    uint32_t next[8], i = 1, end = tree->count;
    size_t depth = 0;

    while (i < end && depth < size) {
        if ((tree->nodes[i].next_and_byte & 255) != bytes[depth]) {
            i = tree->nodes[i].next_and_byte >> 8;
            continue;
        }
        end = tree->nodes[i++].next_and_byte >> 8;
        depth++;
    }
    if (depth < size || i >= end)
        return 0;
    specdec__mask_compute_next_bytes(c->constraint, behind, next);
    for (; i < end; i = tree->nodes[i].next_and_byte >> 8) {
        const uint32_t byte = tree->nodes[i].next_and_byte & 255;

        if (next[byte >> 5] >> (byte & 31) & 1)
            return 1;
    }
    return 0;
}

/* Returns the forced token behind the first `count` tokens: where the constraint leaves one continuation, the first
   token that the tokenizer makes of it, unless a token longer than the continuation is allowed. -1: no token is
   forced. */
static int32_t specdec__constrained_forced_token(specdec__constrained *c, const int32_t *text, int count)
{
    const int32_t previous = specdec__constrained_token_before_index(text, count);
    unsigned char bytes[SPECDEC__FORCED_BYTES];
    specdec_constraint_state *state;
    specdec__bytes first;
    int32_t *tokens;
    size_t size = 0, n;
    int byte;

    if (!SPECDEC__HAS_CONSTRAINTS || !c->constraint || c->allow)
        return -1;
    byte = specdec__mask_find_forced_byte(c->constraint, specdec__constrained_state_behind(c, text, count));
    if (byte < 0)
        return -1;
    tokens = c->masker->forced;
    state = &c->masker->states[SPECDEC__CONSTRAINED_PATH_TOKENS];
    for (*state = *specdec__constrained_state_behind(c, text, count); byte >= 0 && size < SPECDEC__FORCED_BYTES;
         byte = specdec__mask_find_forced_byte(c->constraint, state)) {
        specdec__constraint_read_byte(c->constraint, state, (unsigned char)byte);
        bytes[size++] = (unsigned char)byte;
    }
    if (specdec__tokenize(c->masker->vocab, (const char *)bytes, size,
                          (specdec__constrained_drops_leading_space(c, previous) ? 0 : SPECDEC_TOKENIZE_INSIDE) |
                              (c->spelled ? SPECDEC_TOKENIZE_SPECIAL : 0), NULL, tokens,
                          4 * SPECDEC__FORCED_BYTES + 5, &n, c->masker->scratch, c->masker->scratch_bytes, NULL) || !n)
        return -1;
    first = specdec__constrained_token_bytes(c, previous, tokens[0]);
    if (!first.size || first.size > size || memcmp(first.data, bytes, first.size) != 0 ||
        tokens[0] >= c->masker->vocab_size || specdec__constrained_token_ends_answer(c, tokens[0]) ||
        (first.size == size && specdec__constrained_allows_longer_token(c, bytes, size, state)))
        return -1;
    return tokens[0];
}

/* Returns whether the constraint, without the caller's function, allows a token behind token `previous` in a state. */
static int specdec__constrained_state_allows(const specdec__constrained *c, const specdec_constraint_state *state,
                                             int32_t previous, int32_t token)
{
    specdec__bytes bytes;

    if (specdec__constrained_token_ends_answer(c, token))
        return specdec__constraint_is_complete(c->constraint, state);
    bytes = specdec__constrained_token_bytes(c, previous, token);
    return bytes.size && specdec__constraint_allows_bytes(c->constraint, state, bytes.data, bytes.size);
}

/* Sets the bits of the mask for all tokens that the constraint, without the caller's function, allows behind the first
   `count` tokens. */
static void specdec__constrained_set_allowed_bits(specdec__constrained *c, const int32_t *text, int count)
{
    const specdec_constraint_state *state = specdec__constrained_state_behind(c, text, count);
    const int32_t previous = specdec__constrained_token_before_index(text, count);
    specdec__masker *m = c->masker;
    uint32_t i;

    specdec__mask_compute(c->constraint, state, m->trie, m->mask, m->walk);
    for (i = 0; (int)i < c->end_count; i++)
        if (c->ends[i] >= 0 && (uint32_t)c->ends[i] < m->vocab->count) {
            m->mask[c->ends[i] / 32] &= ~(1u << c->ends[i] % 32);
            if (specdec__constraint_is_complete(c->constraint, state))
                m->mask[c->ends[i] / 32] |= 1u << c->ends[i] % 32;
        }
    for (i = 0; c->spelled && (int)i < m->mark_count; i++)
        if (specdec__constrained_state_allows(c, state, previous, m->marks[i]))
            m->mask[m->marks[i] / 32] |= 1u << m->marks[i] % 32;
    for (i = 0; i < m->vocab->count && specdec__constrained_drops_leading_space(c, previous); i++)
        if (m->trie->offset[i + 1] > m->trie->offset[i] && m->trie->text[m->trie->offset[i]] == ' ') {
            m->mask[i / 32] &= ~(1u << i % 32);
            if (specdec__constrained_state_allows(c, state, previous, (int32_t)i))
                m->mask[i / 32] |= 1u << i % 32;
        }
}

/* Returns whether the mask allows a token. */
SPECDEC__INLINE int specdec__masker_allows_token(const specdec__masker *m, int32_t token)
{
    return m->mask[token / 32] >> token % 32 & 1;
}

/* Computes m->mask: the tokens that are allowed behind the first `count` tokens; if there are none, the end tokens.
   Returns the lowest allowed token. */
static int32_t specdec__constrained_compute_mask(specdec__constrained *c, const int32_t *text, int count)
{
    specdec__masker *m = c->masker;
    const int words = (specdec__max_int(m->vocab_size, (int)m->vocab->count) + 31) / 32;
    const int tokens = specdec__min_int(m->vocab_size, (int)m->vocab->count);
    const int32_t forced = specdec__constrained_forced_token(c, text, count);
    int i;

    memset(m->mask, c->constraint ? 0 : 255, (size_t)words * sizeof *m->mask);
    if (forced >= 0)
        m->mask[forced / 32] |= 1u << forced % 32;
    else if (c->constraint)
        specdec__constrained_set_allowed_bits(c, text, count);
    if (c->allow)
        c->allow(c->allow_data, text, count, m->mask);
    for (i = tokens; i < 32 * words; i = i % 32 ? i + 1 : i + 32) /* bits that are no tokens */
        m->mask[i / 32] &= i % 32 ? ~(1u << i % 32) : 0;
    for (i = 0; i < tokens; i = m->mask[i / 32] ? i + 1 : (i | 31) + 1)
        if (specdec__masker_allows_token(m, i))
            return i;
    for (i = 0; i < m->vocab->end_token_count; i++)
        if (m->vocab->end_tokens[i] >= 0 && m->vocab->end_tokens[i] < tokens)
            m->mask[m->vocab->end_tokens[i] / 32] |= 1u << m->vocab->end_tokens[i] % 32;
    for (i = 0; i < tokens; i++)
        if (specdec__masker_allows_token(m, i))
            return i;
    m->mask[0] |= 1;
    return 0;
}

/* Returns a copy of a row of logits (vocab) in which all forbidden tokens are -infinity. *lowest becomes the lowest
   allowed token. */
static const float *specdec__constrained_mask_logits(specdec__constrained *c, const float *logits, int vocab,
                                                     const int32_t *text, int count, int32_t *lowest)
{
    specdec__masker *m = c->masker;
    const float none = specdec__float_from_bits(0xff800000u);
    int i, k, some = 0;

    *lowest = specdec__constrained_compute_mask(c, text, count);
    for (i = 0; i < vocab; i += 32) {
        const uint32_t bits = m->mask[i / 32];
        const int end = specdec__min_int(32, vocab - i);

        for (k = 0; k < end; k++) {
            m->row[i + k] = bits >> k & 1 ? logits[i + k] : none;
            some |= m->row[i + k] >= -SPECDEC__SAMPLE_LARGEST_FLOAT;
        }
    }
    for (i = 0; i < vocab && !some; i++) /* the model says nothing about them */
        if (specdec__masker_allows_token(m, i))
            m->row[i] = 0;
    return m->row;
}

/* Returns whether a token is allowed behind the first `count` tokens of text. */
static int specdec__constrained_allows_token(specdec__constrained *c, const int32_t *text, int count, int32_t token)
{
    const int32_t forced = specdec__constrained_forced_token(c, text, count);

    if (forced >= 0)
        return token == forced;
    if (!c->allow)
        return specdec__constrained_state_allows(c, specdec__constrained_state_behind(c, text, count),
                                                 specdec__constrained_token_before_index(text, count), token);
    specdec__constrained_compute_mask(c, text, count);
    return token >= 0 && token < c->masker->vocab_size && specdec__masker_allows_token(c->masker, token);
}

/* Removes forbidden tokens from candidates (found), and keeps the first k allowed ones at most. Returns how many are
   left. */
static int specdec__constrained_keep_allowed_candidates(specdec__constrained *c, const int32_t *text, int count,
                                                        int found, int k, specdec_candidate *candidates)
{
    const specdec_constraint_state *state = specdec__constrained_state_behind(c, text, count);
    int i, kept = 0;

    for (i = 0; i < found && kept < k; i++)
        if (candidates[i].logit >= -SPECDEC__SAMPLE_LARGEST_FLOAT &&
            specdec__constrained_state_allows(c, state, specdec__constrained_token_before_index(text, count),
                                              candidates[i].token))
            candidates[kept++] = candidates[i];
    return kept;
}

SPECDEC__FOR_SPEED
