/* =====================================================================================================================
 * >>model/mixing: the kinds of recurrent layers as rows of a table, and the sizes of a model's recurrent layers.
 *
 * A recurrent layer has a state instead of keys and values: a window of the last inputs of a short causal convolution,
 * and for each of its heads a matrix (rows, values), which every token updates once. All recurrent layers of a model
 * are of one kind. The layer's input matrices project a token to a row: first gates of the output, then the inputs of
 * the state, which are the channels of the convolution and one or two numbers for each head (decay, rate).
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"

#define SPECDEC__MAX_TAPS 16 /* taps of a convolution, at most */

enum {
    SPECDEC__NO_STATE,          /* no recurrent layers */
    SPECDEC__SHORT_CONVOLUTION, /* a convolution between two gates, without heads: LFM2 (Liquid AI 2025) */
    SPECDEC__GATED_DELTA,       /* the gated delta rule: Yang et al. 2024, arXiv 2412.06464 */
    SPECDEC__MAMBA2,            /* Mamba-2: Dao and Gu 2024, arXiv 2405.21060 */
    SPECDEC__RECURRENT_KINDS
};

/* What differs between the kinds of recurrent layers. */
typedef struct specdec__recurrent_kind {
    const char *name; /* the name of the kind */
    int delta_rule;   /* 1: a token's value is reduced by the state's prediction for its key (the delta rule) */
    int silu;         /* 1: SiLU is applied to the output of the convolution */
} specdec__recurrent_kind;

static const specdec__recurrent_kind specdec__recurrent_kinds[SPECDEC__RECURRENT_KINDS] = {
    {"none", 0, 0}, {"short convolution", 0, 0}, {"gated delta rule", 1, 1}, {"Mamba-2", 0, 1}};

/* Sizes of the recurrent layers of a model, in floats. Queries, keys and values are parts of the convolution's
   output. */
typedef struct specdec__recurrent_sizes {
    int kind;                 /* SPECDEC__SHORT_CONVOLUTION, ...; SPECDEC__NO_STATE: there are none */
    int layers;               /* recurrent layers on this rank */
    int taps, channels;       /* number of taps, and of channels, of the convolution */
    int heads, rows, values;  /* number of heads, 0: none; size (rows, values) of the state matrix of each head */
    int groups;               /* number of different keys and queries; heads / groups heads share each */
    int keys_by_modulo;       /* 1: heads with equal index modulo `groups` share a key; 0: adjacent heads do */
    int beta_alpha_joined;    /* 1: one tensor (ssm_ba) gives both numbers of each head: for each group first those for
                                 the rate, then those for the decay */
    int query_channel, key_channel, value_channel; /* first channel of the queries, of the keys, of the values */
    int output_width;         /* width of the layer's output, before its output matrix */
    int input_width;          /* width of the row that the input matrices give for a token */
    int first_input, input_count; /* the inputs of the state are [first_input, first_input + input_count) of this row */
} specdec__recurrent_sizes;

/* Whether a model has recurrent layers, on this rank or another one. */
SPECDEC__INLINE int specdec__recurrent_layers_exist(const specdec__recurrent_sizes *m)
{
    return SPECDEC__HAS_RECURRENT_LAYERS && m->kind;
}

/* Returns the floats of the state matrix of one head. */
SPECDEC__INLINE size_t specdec__recurrent_state_matrix_floats(const specdec__recurrent_sizes *m)
{
    return (size_t)m->rows * (size_t)m->values;
}

/* Returns the floats of a convolution's window: the last taps - 1 inputs of all channels. */
SPECDEC__INLINE size_t specdec__recurrent_conv_window_floats(const specdec__recurrent_sizes *m)
{
    return m->layers ? (size_t)(m->taps - 1) * (size_t)m->channels : 0;
}
