/* =====================================================================================================================
 * >>model/mixing: the kinds of recurrent layers as rows of a table, and the sizes of a model's.
 *
 * A recurrent layer keeps a state in place of keys: the last inputs of a short causal convolution, and, for each of its
 * heads, a matrix (rows, values), which every token changes by one update. All recurrent layers of a model are of one
 * kind. What its matrices make of a token is a row: gates of the output first, then the inputs, by which alone the
 * state changes: channels of the convolution, then a few numbers for each head.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"

#define SPECDEC__MOST_TAPS 16 /* of a convolution */

enum {
    SPECDEC__NO_STATE,
    SPECDEC__SHORT,  /* a convolution between two gates, and nothing else: LFM2 (Liquid AI 2025) */
    SPECDEC__DELTA,  /* the gated delta rule: Yang et al. 2024, arXiv 2412.06464 */
    SPECDEC__MAMBA2, /* Dao and Gu 2024, arXiv 2405.21060 */
    SPECDEC__MIXINGS
};

typedef struct specdec__mixing_kind {
    const char *name;
    int corrects; /* the update is one by a delta rule */
    int silu;     /* behind the convolution */
} specdec__mixing_kind;

static const specdec__mixing_kind specdec__mixing_kinds[SPECDEC__MIXINGS] = {
    {"none", 0, 0}, {"short convolution", 0, 0}, {"gated delta rule", 1, 1}, {"Mamba-2", 0, 1}};

/* Sizes of the recurrent layers of a model, in floats. */
typedef struct specdec__mixing {
    int kind;
    int layers;               /* of the model that is here */
    int taps, channels;       /* of the convolution */
    int heads, rows, values;  /* of matrices; heads 0: there are none */
    int groups;               /* heads that keys and queries are made for: several heads share one, */
    int cycles;               /* those whose numbers are equal modulo groups; else those side by side */
    int paired;               /* one matrix makes both numbers of a head, group by group: first one of all its heads */
    int query, key, value;    /* where they begin among the channels */
    int inner;                /* of what the last matrix reads */
    int row;                  /* of what the first matrices make, */
    int inputs, kept;         /* of which [inputs, inputs + kept) changes the state */
} specdec__mixing;

/* Whether a model has recurrent layers, here or in another part of it. */
SPECDEC__INLINE int specdec__mixing_is(const specdec__mixing *m) { return SPECDEC__RECURRENT && m->kind; }

/* Floats of the matrix of a head. */
SPECDEC__INLINE size_t specdec__mixing_head(const specdec__mixing *m) { return (size_t)m->rows * (size_t)m->values; }

/* Floats of the last taps - 1 inputs of the convolution's channels, which the next token's convolution needs. */
SPECDEC__INLINE size_t specdec__mixing_window(const specdec__mixing *m)
{
    return m->layers ? (size_t)(m->taps - 1) * (size_t)m->channels : 0;
}
