/* =====================================================================================================================
 * >>model/model: the table of architectures, one row of traits each; the tensors, sizes and facts that a model holds.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../quant/types.h"
#include "../kernel/kernel.h"
#include "gguf.h"
#include "mixing.h"
#include "../text/vocabulary.h"
#include "../text/chat.h"

SPECDEC__FOR_SIZE

#define SPECDEC__MAX_DIMENSION (1 << 20) /* width of an embedding, a network, or all heads of a layer, at most */
#define SPECDEC__MAX_EXPERTS 1024        /* experts of a layer, at most */
#define SPECDEC__MAX_CHOSEN_EXPERTS 64   /* experts that a token visits, and groups of experts, at most */

/* Upper bounds of what the lower plane of a matrix contributes to the products of its rows: see >>forward/screen. */
typedef struct specdec__row_bounds {
    uint16_t *norm;       /* (SPECDEC__PLANE_PARTS, rows padded to 16) bfloat16: a bound for each part of the columns
                             and each row */
    unsigned char *part_of_column; /* (columns) the part that each column belongs to */
    float largest[4];     /* the largest bound of any row, for each part */
} specdec__row_bounds;

/* A weight matrix: y (rows) = W (rows, columns) * x (columns). */
typedef struct specdec__matrix {
    const specdec__quant_type *type; /* how weights are quantised */
    int rows, columns;          /* size of the matrix */
    const unsigned char *file;  /* (rows, row_bytes) its rows, as they lie in the file */
    const unsigned char *tiles; /* (rows / 16, 16 * row_bytes) repacked into tiles; NULL: tiles are made from the file
                                   in each step */
    size_t row_bytes;           /* bytes of a row in the file */
    int run_tiles, run_stride;  /* where one tensor holds two matrices of every expert: tiles of one matrix that are
                                   contiguous in the file, and tiles from the first of them to those of the next expert;
                                   0: all tiles are contiguous */
    const unsigned char *scales; /* (F32) factors of products, from a tensor "X.scale"; NULL: none */
    int scale_tiles;            /* tiles that share a factor; 0: all tiles do */
    const specdec__row_bounds *bounds; /* not NULL: `tiles` holds planes, and these are the bounds of its rows */
} specdec__matrix;

/* The matrices of a layer, as in specdec__matrix_table. */
enum {
    SPECDEC__Q, SPECDEC__K, SPECDEC__V, SPECDEC__O, SPECDEC__GATE, SPECDEC__UP, SPECDEC__DOWN,
    SPECDEC__EXPERT_GATE, SPECDEC__EXPERT_UP, SPECDEC__EXPERT_DOWN, SPECDEC__ROUTER, SPECDEC__SHARED_ROUTER,
    SPECDEC__LATENT_DOWN, SPECDEC__LATENT_UP,
    SPECDEC__LAYER_EMBEDDING_GATE, SPECDEC__LAYER_EMBEDDING_OUT,
    SPECDEC__STREAM_ROUTER, SPECDEC__LAUREL_DOWN, SPECDEC__LAUREL_UP, /* of specdec__streams */
    SPECDEC__ATTENTION_CONV, SPECDEC__FFN_CONV, /* of specdec__block_model */
    SPECDEC__Q_A, SPECDEC__Q_B, SPECDEC__KV_A, SPECDEC__K_B, SPECDEC__V_B, /* of latent attention */
    /* of recurrent layers: */
    SPECDEC__RECURRENT_SHORT_IN, SPECDEC__RECURRENT_SHORT_OUT, SPECDEC__RECURRENT_SSM_IN, SPECDEC__RECURRENT_SSM_OUT,
    SPECDEC__RECURRENT_QKV,
    SPECDEC__RECURRENT_GATE, SPECDEC__RECURRENT_BETA, SPECDEC__RECURRENT_ALPHA, SPECDEC__RECURRENT_BETA_ALPHA,
    SPECDEC__MATRICES
};
/* The vectors of a layer, as in specdec__vector_table: weights of norms, biases, and small matrices. */
enum {
    SPECDEC__ATTENTION_NORM, SPECDEC__FFN_NORM, SPECDEC__Q_NORM, SPECDEC__K_NORM,
    SPECDEC__AFTER_ATTENTION, SPECDEC__AFTER_FFN, SPECDEC__READ_NORM,
    SPECDEC__Q_BIAS, SPECDEC__K_BIAS, SPECDEC__V_BIAS, SPECDEC__O_BIAS,
    SPECDEC__GATE_BIAS, SPECDEC__UP_BIAS, SPECDEC__DOWN_BIAS, SPECDEC__SINKS,
    SPECDEC__ROUTER_BIAS, SPECDEC__CHOICE_BIAS, SPECDEC__EXPERT_GATE_BIAS, SPECDEC__EXPERT_UP_BIAS,
    SPECDEC__EXPERT_DOWN_BIAS,
    SPECDEC__FFN_NORM_BARE, SPECDEC__FFN_NORM_FIRST, /* other tensor names of FFN_NORM */
    SPECDEC__AFTER_INPUT, SPECDEC__OUTPUT_SCALE,
    /* with the trait DENSE_BESIDE_EXPERTS: */
    SPECDEC__ROUTER_NORM, SPECDEC__EXPERT_NORM, SPECDEC__AFTER_NETWORK, SPECDEC__AFTER_EXPERTS,
    SPECDEC__LOW_NORM, SPECDEC__LATENT_NORM, /* of latent attention */
    SPECDEC__STREAM_NORM, SPECDEC__PREDICTIONS, SPECDEC__CORRECTIONS, SPECDEC__INPUT_SCALE, /* of specdec__streams */
    SPECDEC__ATTENTION_CONV_BASE, SPECDEC__FFN_CONV_BASE, /* of specdec__block_model: (2, taps, embedding) */
    SPECDEC__LAUREL_NORM, /* PREDICTIONS: (streams, streams, streams), CORRECTIONS: (streams, streams) */
    /* of recurrent layers; taps are (taps, channels): */
    SPECDEC__RECURRENT_SHORT_TAPS, SPECDEC__RECURRENT_TAPS, SPECDEC__RECURRENT_BIAS, SPECDEC__RECURRENT_DT_BIAS,
    SPECDEC__RECURRENT_A, SPECDEC__RECURRENT_D,
    SPECDEC__RECURRENT_NORM, SPECDEC__RECURRENT_NORMS, SPECDEC__VECTORS
};
/* Spans: a layer attends to all keys, or to a sliding window of the last keys. */
enum { SPECDEC__WHOLE, SPECDEC__WINDOW, SPECDEC__SPANS };
/* RoPEs of a model: of its regular layers, of its alternate layers, and of the regular ones in long contexts. */
enum { SPECDEC__ROPE, SPECDEC__ROPE_ALTERNATE, SPECDEC__ROPE_LONG, SPECDEC__ROPES };
/* Facts of a model: factors, and soft caps, of which 0 is none; keys are in specdec__fact_table. */
enum {
    SPECDEC__EMBEDDING_SCALE, SPECDEC__QUERY_SCALE, SPECDEC__RESIDUAL_SCALE, SPECDEC__LOGIT_SCALE,
    SPECDEC__SCORE_CAP, SPECDEC__LOGIT_CAP, SPECDEC__FACTS
};

/* The matrices, and the vectors, of a head that drafts (specdec__heads_kind), as indices into those of a layer. */
enum { SPECDEC__HEAD_OUTPUT, SPECDEC__HEAD_INPUT };
enum { SPECDEC__HEAD_NORM, SPECDEC__HEAD_BIAS };

/* The sizes of a layer, which may differ from layer to layer. */
typedef struct specdec__shape {
    int heads, kv_heads;    /* query heads, kv heads; kv heads 0: the layer has no attention */
    int key_dim, value_dim; /* of one head: size of a query and a key; size of a value */
    int rope_dim;           /* how many dimensions of a query or key RoPE rotates: the first ones */
    int feed_forward;       /* width of the network that every token goes through; 0: there is none */
    int experts;            /* experts of the layer; 0: no mixture of experts */
    int shared;             /* 1: the network that every token goes through is the shared expert of a mixture */
    int key_layer;          /* an earlier layer whose keys and values this one reads (0 in a model that reads another
                               model's); -1: it has its own */
    int span;               /* SPECDEC__WHOLE or SPECDEC__WINDOW */
    int rope;               /* SPECDEC__ROPE or SPECDEC__ROPE_ALTERNATE */
    int recurrent;          /* 1: the layer has a recurrent state, without or beside attention */
} specdec__shape;

/* A layer: its sizes and tensors. */
typedef struct specdec__layer {
    specdec__shape shape;                  /* sizes of the layer */
    int index;                             /* number among the layers on this rank */
    int recurrent_index;                   /* number among the recurrent layers on this rank; -1: the layer is not
                                              recurrent */
    float query_scale;                     /* factor of queries, such as 1 / root(key_dim) */
    const float *vector[SPECDEC__VECTORS]; /* biases, weights of norms, ..., padded with zeros to 16; NULL: none */
    specdec__matrix matrix[SPECDEC__MATRICES]; /* weight matrices, by SPECDEC__Q, ...; without rows: the layer has
                                                  none */
    float activation[4];                   /* parameters of xIELU, if that is the activation: see >>kernel/kernel */
    float sparsity;                        /* a gate counts as its excess over the gates' mean + this * standard
                                              deviation (Gemma 3n); 0: gates are not sparse */
    specdec__matrix token_table;           /* of a head that drafts: a row for each token, looked up */
} specdec__layer;

/* Traits: properties in which architectures differ, each with a number. A trait that a row of the table does not name
   is 0, or what specdec__default_traits says. Some architectures have regular and alternate layers: layer i is an
   alternate one if bit i % PERIOD of ALTERNATES is set. Alternate layers may have a sliding window, or another RoPE. */
enum {
    SPECDEC__NO_TRAIT,       /* ends a row of the table */
    SPECDEC__NEOX,           /* 1: RoPE rotates pairs (i, i + dim/2); 0: pairs (2i, 2i + 1), for which converters have
                                reordered Llama's rows of queries and keys */
    SPECDEC__ACTIVATION,     /* the activation: SPECDEC__SILU, SPECDEC__GELU, ... */
    SPECDEC__UNGATED,        /* 1: feed-forward networks have no gate: down(activation(up x)) */
    SPECDEC__NEEDS,          /* bits of optional vectors that files must have */
    SPECDEC__LACKS,          /* bits of vectors that files never have, though other architectures do */
    SPECDEC__FFN_NORM_AS,    /* the vector whose tensor name SPECDEC__FFN_NORM has in files; 0: its own name */
    SPECDEC__LAYER_NORM,     /* 1: norms are LayerNorms, which subtract the mean; 0: RMS norms */
    SPECDEC__PARALLEL,       /* 1: attention and feed-forward network read the same norm of the same x */
    SPECDEC__NORM_AFTER_ROPE, /* 1: norms of queries and keys come after RoPE */
    SPECDEC__JOINT_NORMS,    /* 1: norms of queries and keys are over all heads of a row together */
    SPECDEC__PERIOD,         /* layers after which the pattern of alternate layers repeats */
    SPECDEC__ALTERNATES,     /* bits of the alternate layers in a period */
    SPECDEC__WINDOW_KEYS,    /* window of alternate layers in keys, if the file has no key for it; -1: they have none in
                                any case */
    SPECDEC__BASE_OF_REGULAR, /* 1: ALTERNATE_BASE is about the regular layers instead, where alternate layers have
                                windows */
    SPECDEC__ALTERNATE_BASE, /* RoPE base of alternate layers, if the file has no key for it; 1: that of regular layers
                                without scaling; 0: the same RoPE; < 0: no RoPE */
    SPECDEC__ROOT_EMBEDDING, /* 1: embeddings are multiplied by the root of their width */
    SPECDEC__WIDE_QUERIES,   /* in models of this many layers, queries are divided by root(embedding / heads) instead of
                                root(key_dim) */
    SPECDEC__CAP_SCORES,     /* soft cap of attention scores, if the file has no key for it */
    SPECDEC__CAP_LOGITS,     /* soft cap of logits, if the file has no key for it */
    SPECDEC__LOGITS_TIMES,   /* 1: logits are multiplied by the key logit_scale; 0: divided */
    SPECDEC__REQUIRED_FACTS, /* bits of facts for which files must have a key */
    SPECDEC__ROPE_BASE,      /* RoPE base if the file has no key for it; 0: it must have one */
    SPECDEC__YARN_UNROUNDED, /* 1: YaRN's bounds are not rounded to whole dimensions */
    SPECDEC__ROPE_VARIANT,   /* what is special about RoPE: SPECDEC__ROPE_OPTIONAL, ... */
    SPECDEC__EXPERT_SHARES,  /* how outputs of experts are weighted: SPECDEC__NORMED, ...; 0: the architecture has no
                                experts */
    SPECDEC__SHARED_GATE,    /* 1: the shared expert's output is multiplied by the sigmoid of a router of its own;
                                without a key for its width, the expert is as wide as a dense layer */
    SPECDEC__DENSE_BESIDE_EXPERTS, /* 1: layers with experts have a dense network, too: x += norm(norm(network(norm x))
                                      + norm(experts(norm x))); routers read a norm of x with weights ffn_gate_inp.scale
                                      / root(embedding) */
    SPECDEC__SHARED_EACH,    /* 1: expert_shared_feed_forward_length is the width of one of expert_shared_count shared
                                experts */
    SPECDEC__QUERY_GATES,    /* 1: attn_q has rows of a gate behind the query of each head; the head's output is
                                multiplied by sigmoid(gate) */
    SPECDEC__RECURRENT_KIND,         /* kind of recurrent layers: SPECDEC__SHORT_CONVOLUTION, ...; 0: there are none */
    SPECDEC__RECURS,         /* which layers are recurrent: SPECDEC__RECURS_WITHOUT_ATTENTION, ... */
    SPECDEC__KEYS_BY_MODULO, /* 1: heads of recurrent layers with equal index modulo the number of keys share a key; 0:
                                adjacent heads do */
    SPECDEC__EMBEDDING_NORM, /* 1: the tensor of the final norm is named token_embd_norm */
    SPECDEC__UNSCALED,       /* 1: queries are not scaled if the file lacks the key attention.scale */
    SPECDEC__NORMED_VALUES,  /* 1: values are normalised for each head, without weights; a layer without attn_v takes
                                its keys before norm and RoPE as values */
    SPECDEC__SHARES_KEYS,    /* 1: the last attention.shared_kv_layers layers read the keys of the last earlier layer
                                with the same span */
    SPECDEC__LAYER_INPUTS,   /* 1: tokens have an embedding for each layer if embedding_length_per_layer_input is not 0:
                                see specdec__layer_embeddings */
    SPECDEC__LATENT,         /* 1: attention is latent (MLA): see specdec__latent */
    SPECDEC__ALTUP,          /* number of residual streams, if the file has no key for it; 0: one: see
                                specdec__streams */
    SPECDEC__LAUREL,         /* rank of the two matrices of LAuReL; 0: the architecture has none: see
                                specdec__streams */
    SPECDEC__SPARSE,         /* how many first layers have sparse gates, if the file has no key for it: see
                                specdec__layer.sparsity */
    SPECDEC__SCALES_OUTPUT,  /* 1: layers may end in a factor of their own, layer_output_scale */
    SPECDEC__ZERO_SIZES,     /* 1: lists of sizes may have a 0 for a layer without attention or without a feed-forward
                                network */
    SPECDEC__READS_STATES,   /* how it reads hidden states of another model, as a draft model:
                                SPECDEC__BESIDE_EMBEDDINGS, ...; 0: it does not */
    SPECDEC__VISIBLE_KEYS,   /* which keys a node attends to: SPECDEC__SEES_ANCESTORS, ... */
    SPECDEC__TRAITS
};

/* One trait of an architecture and its value. */
typedef struct specdec__trait {
    unsigned char trait; /* SPECDEC__NEOX, ... */
    int value;           /* the trait's value */
} specdec__trait;

/* Values of traits that a row of the table does not name; all other traits are 0. */
static const specdec__trait specdec__default_traits[] = {{SPECDEC__PERIOD, 1}, {SPECDEC__WINDOW_KEYS, -1}, {0, 0}};

#define SPECDEC__MAX_TRAITS 18 /* traits in a row of the table at most, the end included */

/* A row of the table of architectures. */
typedef struct specdec__architecture {
    const char *name;                            /* general.architecture in files */
    specdec__trait traits[SPECDEC__MAX_TRAITS]; /* ends with SPECDEC__NO_TRAIT */
} specdec__architecture;

/* RoPE's variants (the trait ROPE_VARIANT): none; no RoPE if rope.scaling.finetuned is 0; never any RoPE; queries grow
   behind the original context; YaRN with yarn_log_multiplier scales scores, instead of cosine and sine. */
enum {
    SPECDEC__ROPE_USUAL, SPECDEC__ROPE_OPTIONAL, SPECDEC__ROPE_NEVER, SPECDEC__ROPE_QUERIES_GROW,
    SPECDEC__ROPE_SCORES_SCALED
};

/* How a draft model reads hidden states of the target (the trait READS_STATES): not at all; its one layer reads the
   projected states beside embeddings (EAGLE-3); a projection of a state and the target's embedding is its residual
   stream (assistants); keys and values of its layers are projected from states (block drafters). */
enum { SPECDEC__NO_STATES, SPECDEC__BESIDE_EMBEDDINGS, SPECDEC__AS_STREAM, SPECDEC__AS_KEYS };

/* Which keys a node attends to (the trait VISIBLE_KEYS): those of its view, of its ancestors and its own; those of its
   view alone, which belong to the target; those of its view and of all nodes of the step, which are a block. */
enum { SPECDEC__SEES_ANCESTORS, SPECDEC__SEES_VIEW, SPECDEC__SEES_BLOCK };

/* Which layers are recurrent (the trait RECURS): layers without attention; layers without attention and feed-forward
   network; all layers, beside their attention; layers listed in attention.recurrent_layers, or all but the last of
   every full_attention_interval. */
enum {
    SPECDEC__RECURS_WITHOUT_ATTENTION, SPECDEC__RECURS_ALONE, SPECDEC__RECURS_BESIDE_ATTENTION,
    SPECDEC__RECURS_AS_LISTED
};

/* How the outputs of a token's experts are weighted (the trait EXPERT_SHARES), unless the file has keys for it: DENSE:
   there are no experts; RAW: by the softmax over all experts; NORMED: divided by the sum of the chosen experts'
   weights; with SIGMOID, sigmoids take the place of the softmax. */
enum { SPECDEC__DENSE, SPECDEC__NORMED, SPECDEC__RAW, SPECDEC__SIGMOID = 4 };

#define SPECDEC__BIT(i) (1u << (i))
#define SPECDEC__HAS_BIT(bits, i) ((i) < 32 && (unsigned)(bits) >> (i) & 1)
/* Sets of vectors and of facts, as bits, for rows of the table. */
#define SPECDEC__QKV_BIAS \
    (SPECDEC__BIT(SPECDEC__Q_BIAS) | SPECDEC__BIT(SPECDEC__K_BIAS) | SPECDEC__BIT(SPECDEC__V_BIAS))
#define SPECDEC__EXPERT_BIAS \
    (SPECDEC__BIT(SPECDEC__ROUTER_BIAS) | SPECDEC__BIT(SPECDEC__EXPERT_GATE_BIAS) | \
     SPECDEC__BIT(SPECDEC__EXPERT_UP_BIAS) | SPECDEC__BIT(SPECDEC__EXPERT_DOWN_BIAS))
#define SPECDEC__QK_NORM (SPECDEC__BIT(SPECDEC__Q_NORM) | SPECDEC__BIT(SPECDEC__K_NORM))
#define SPECDEC__PRE_NORMS (SPECDEC__BIT(SPECDEC__ATTENTION_NORM) | SPECDEC__BIT(SPECDEC__FFN_NORM))
#define SPECDEC__POST_NORMS (SPECDEC__BIT(SPECDEC__AFTER_ATTENTION) | SPECDEC__BIT(SPECDEC__AFTER_FFN))
#define SPECDEC__ALL_SCALES \
    (SPECDEC__BIT(SPECDEC__EMBEDDING_SCALE) | SPECDEC__BIT(SPECDEC__RESIDUAL_SCALE) | \
     SPECDEC__BIT(SPECDEC__LOGIT_SCALE))

/* The table of architectures. Those that read hidden states (eagle3 and later ones) come last. */
static const specdec__architecture specdec__architectures[] = {
    {"llama", {{SPECDEC__ROPE_BASE, 10000}, {SPECDEC__EXPERT_SHARES, SPECDEC__NORMED}}},
    {"qwen2", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__QKV_BIAS}}},
    {"qwen3", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__QK_NORM}}},
    {"gemma", {{SPECDEC__NEOX, 1}, {SPECDEC__ACTIVATION, SPECDEC__GELU}, {SPECDEC__ROOT_EMBEDDING, 1},
               {SPECDEC__ROPE_BASE, 10000}}},
    {"gemma2", {{SPECDEC__NEOX, 1}, {SPECDEC__ACTIVATION, SPECDEC__GELU}, {SPECDEC__NEEDS, SPECDEC__POST_NORMS},
                {SPECDEC__PERIOD, 2}, {SPECDEC__ALTERNATES, 1}, {SPECDEC__WINDOW_KEYS, 4096},
                {SPECDEC__ROOT_EMBEDDING, 1}, {SPECDEC__WIDE_QUERIES, 46}, {SPECDEC__CAP_SCORES, 50},
                {SPECDEC__CAP_LOGITS, 30}, {SPECDEC__ROPE_BASE, 10000}}},
    {"gemma3", {{SPECDEC__NEOX, 1}, {SPECDEC__ACTIVATION, SPECDEC__GELU},
                {SPECDEC__NEEDS, SPECDEC__POST_NORMS | SPECDEC__QK_NORM}, {SPECDEC__PERIOD, 6},
                {SPECDEC__ALTERNATES, 31}, {SPECDEC__WINDOW_KEYS, 1 << 30}, {SPECDEC__ALTERNATE_BASE, 10000},
                {SPECDEC__ROOT_EMBEDDING, 1}, {SPECDEC__WIDE_QUERIES, 62}}},
    {"gemma4", {{SPECDEC__NEOX, 1}, {SPECDEC__ACTIVATION, SPECDEC__GELU},
                {SPECDEC__NEEDS, SPECDEC__POST_NORMS | SPECDEC__QK_NORM}, {SPECDEC__PERIOD, 6},
                {SPECDEC__ALTERNATES, 31}, {SPECDEC__WINDOW_KEYS, 1 << 30}, {SPECDEC__ALTERNATE_BASE, 10000},
                {SPECDEC__ROOT_EMBEDDING, 1}, {SPECDEC__UNSCALED, 1}, {SPECDEC__NORMED_VALUES, 1},
                {SPECDEC__SHARES_KEYS, 1}, {SPECDEC__LAYER_INPUTS, 1}, {SPECDEC__SCALES_OUTPUT, 1},
                {SPECDEC__EXPERT_SHARES, SPECDEC__NORMED}, {SPECDEC__DENSE_BESIDE_EXPERTS, 1}}},
    {"gemma3n", {{SPECDEC__NEOX, 1}, {SPECDEC__ACTIVATION, SPECDEC__GELU},
                 {SPECDEC__NEEDS, SPECDEC__POST_NORMS | SPECDEC__QK_NORM}, {SPECDEC__PERIOD, 5},
                 {SPECDEC__ALTERNATES, 15}, {SPECDEC__WINDOW_KEYS, 1 << 30}, {SPECDEC__ALTERNATE_BASE, 10000},
                 {SPECDEC__ROOT_EMBEDDING, 1}, {SPECDEC__UNSCALED, 1}, {SPECDEC__NORMED_VALUES, 1},
                 {SPECDEC__SHARES_KEYS, 1}, {SPECDEC__CAP_LOGITS, 30}, {SPECDEC__LAYER_INPUTS, 1}, {SPECDEC__ALTUP, 4},
                 {SPECDEC__LAUREL, 64}, {SPECDEC__SPARSE, 10}}},
    {"phi3", {{SPECDEC__NEOX, 1}, {SPECDEC__ALTERNATES, 1}, {SPECDEC__WINDOW_KEYS, 1 << 30},
              {SPECDEC__ROPE_BASE, 10000}}},
    {"deepseek2", {{SPECDEC__LATENT, 1}, {SPECDEC__ROPE_VARIANT, SPECDEC__ROPE_SCORES_SCALED},
                   {SPECDEC__ROPE_BASE, 10000}, {SPECDEC__EXPERT_SHARES, SPECDEC__RAW}}},
    {"smollm3", {{SPECDEC__PERIOD, 4}, {SPECDEC__ALTERNATES, 8}, {SPECDEC__ALTERNATE_BASE, -1}}},
    {"granite", {{SPECDEC__REQUIRED_FACTS, SPECDEC__BIT(SPECDEC__LOGIT_SCALE)}, {SPECDEC__ROPE_BASE, 10000},
                 {SPECDEC__ROPE_VARIANT, SPECDEC__ROPE_OPTIONAL}}},
    {"granitemoe", {{SPECDEC__REQUIRED_FACTS, SPECDEC__BIT(SPECDEC__LOGIT_SCALE)}, {SPECDEC__ROPE_BASE, 10000},
                    {SPECDEC__ROPE_VARIANT, SPECDEC__ROPE_OPTIONAL}, {SPECDEC__EXPERT_SHARES, SPECDEC__NORMED}}},
    {"qwen3moe", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__QK_NORM}, {SPECDEC__EXPERT_SHARES, SPECDEC__NORMED}}},
    {"qwen3vlmoe", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__QK_NORM},
                    {SPECDEC__EXPERT_SHARES, SPECDEC__NORMED}}},
    {"olmoe", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__QK_NORM}, {SPECDEC__JOINT_NORMS, 1},
               {SPECDEC__ROPE_BASE, 10000}, {SPECDEC__EXPERT_SHARES, SPECDEC__RAW}}},
    {"mistral3", {{SPECDEC__ROPE_VARIANT, SPECDEC__ROPE_QUERIES_GROW}}},
    {"ernie4_5", {{0, 0}}},
    {"minicpm", {{SPECDEC__REQUIRED_FACTS, SPECDEC__ALL_SCALES}, {SPECDEC__ROPE_BASE, 10000}}},
    {"internlm2", {{0, 0}}},
    {"qwen2vl", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__QKV_BIAS}}},
    {"qwen3vl", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__QK_NORM}}},
    {"glm4", {{SPECDEC__NEEDS, SPECDEC__POST_NORMS}, {SPECDEC__ROPE_BASE, 10000}}},
    {"exaone", {{SPECDEC__NEOX, 1}}},
    {"lfm2", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__QK_NORM}, {SPECDEC__ZERO_SIZES, 1},
              {SPECDEC__RECURRENT_KIND, SPECDEC__SHORT_CONVOLUTION}, {SPECDEC__EMBEDDING_NORM, 1}}},
    {"granitehybrid", {{SPECDEC__REQUIRED_FACTS, SPECDEC__BIT(SPECDEC__LOGIT_SCALE)}, {SPECDEC__ROPE_BASE, 10000},
                       {SPECDEC__ROPE_VARIANT, SPECDEC__ROPE_OPTIONAL}, {SPECDEC__EXPERT_SHARES, SPECDEC__NORMED},
                       {SPECDEC__ZERO_SIZES, 1}, {SPECDEC__RECURRENT_KIND, SPECDEC__MAMBA2}}},
    {"exaone4", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__POST_NORMS | SPECDEC__QK_NORM},
                 {SPECDEC__LACKS, SPECDEC__PRE_NORMS}, {SPECDEC__PERIOD, 4}, {SPECDEC__ALTERNATES, 7},
                 {SPECDEC__WINDOW_KEYS, 1 << 30}, {SPECDEC__ALTERNATE_BASE, -1}, {SPECDEC__BASE_OF_REGULAR, 1}}},
    {"olmo2", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__POST_NORMS | SPECDEC__QK_NORM},
               {SPECDEC__LACKS, SPECDEC__PRE_NORMS}, {SPECDEC__JOINT_NORMS, 1}, {SPECDEC__PERIOD, 4},
               {SPECDEC__ALTERNATES, 7}, {SPECDEC__WINDOW_KEYS, 1 << 30}, {SPECDEC__ALTERNATE_BASE, 1}}},
    {"cohere2", {{SPECDEC__LAYER_NORM, 1}, {SPECDEC__PARALLEL, 1}, {SPECDEC__LACKS, SPECDEC__BIT(SPECDEC__FFN_NORM)},
                 {SPECDEC__PERIOD, 4}, {SPECDEC__ALTERNATES, 7}, {SPECDEC__WINDOW_KEYS, 4096},
                 {SPECDEC__ALTERNATE_BASE, -1}, {SPECDEC__BASE_OF_REGULAR, 1}, {SPECDEC__LOGITS_TIMES, 1}}},
    {"seed_oss", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__QKV_BIAS},
                  {SPECDEC__FFN_NORM_AS, SPECDEC__AFTER_ATTENTION},
                  {SPECDEC__LACKS, SPECDEC__BIT(SPECDEC__AFTER_ATTENTION)}}},
    {"hunyuan-dense", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__QK_NORM}, {SPECDEC__NORM_AFTER_ROPE, 1}}},
    {"qwen2moe", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__QKV_BIAS}, {SPECDEC__EXPERT_SHARES, SPECDEC__RAW},
                  {SPECDEC__SHARED_GATE, 1}}},
    {"ernie4_5-moe", {{SPECDEC__EXPERT_SHARES, SPECDEC__NORMED}}},
    {"bailingmoe2", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__QK_NORM},
                     {SPECDEC__EXPERT_SHARES, SPECDEC__RAW | SPECDEC__SIGMOID}, {SPECDEC__SHARED_EACH, 1}}},
    {"glm4moe", {{SPECDEC__NEOX, 1}, {SPECDEC__FFN_NORM_AS, SPECDEC__AFTER_ATTENTION},
                 {SPECDEC__LACKS, SPECDEC__BIT(SPECDEC__AFTER_ATTENTION)},
                 {SPECDEC__EXPERT_SHARES, SPECDEC__RAW | SPECDEC__SIGMOID}}},
    {"gpt-oss", {{SPECDEC__NEOX, 1}, {SPECDEC__ACTIVATION, SPECDEC__CLAMPED_SWIGLU},
                 {SPECDEC__NEEDS, SPECDEC__QKV_BIAS | SPECDEC__BIT(SPECDEC__O_BIAS) | SPECDEC__BIT(SPECDEC__SINKS) |
                                  SPECDEC__EXPERT_BIAS}, {SPECDEC__FFN_NORM_AS, SPECDEC__AFTER_ATTENTION},
                 {SPECDEC__LACKS, SPECDEC__BIT(SPECDEC__AFTER_ATTENTION)}, {SPECDEC__PERIOD, 2},
                 {SPECDEC__ALTERNATES, 1}, {SPECDEC__WINDOW_KEYS, 128}, {SPECDEC__YARN_UNROUNDED, 1},
                 {SPECDEC__EXPERT_SHARES, SPECDEC__NORMED}}},
    {"arcee", {{SPECDEC__ACTIVATION, SPECDEC__RELU}, {SPECDEC__UNGATED, 1}}},
    {"apertus", {{SPECDEC__NEOX, 1}, {SPECDEC__ACTIVATION, SPECDEC__XIELU}, {SPECDEC__UNGATED, 1},
                 {SPECDEC__NEEDS, SPECDEC__QK_NORM}}},
    {"qwen35", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__QK_NORM}, {SPECDEC__QUERY_GATES, 1},
                {SPECDEC__FFN_NORM_AS, SPECDEC__AFTER_ATTENTION},
                {SPECDEC__LACKS, SPECDEC__BIT(SPECDEC__AFTER_ATTENTION)},
                {SPECDEC__RECURRENT_KIND, SPECDEC__GATED_DELTA},
                {SPECDEC__RECURS, SPECDEC__RECURS_AS_LISTED}, {SPECDEC__KEYS_BY_MODULO, 1}}},
    {"qwen35moe", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__QK_NORM}, {SPECDEC__QUERY_GATES, 1},
                   {SPECDEC__FFN_NORM_AS, SPECDEC__AFTER_ATTENTION},
                   {SPECDEC__LACKS, SPECDEC__BIT(SPECDEC__AFTER_ATTENTION)},
                   {SPECDEC__RECURRENT_KIND, SPECDEC__GATED_DELTA},
                   {SPECDEC__RECURS, SPECDEC__RECURS_AS_LISTED}, {SPECDEC__KEYS_BY_MODULO, 1},
                   {SPECDEC__EXPERT_SHARES, SPECDEC__NORMED}, {SPECDEC__SHARED_GATE, 1}}},
    {"qwen3next", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__QK_NORM}, {SPECDEC__QUERY_GATES, 1},
                   {SPECDEC__FFN_NORM_AS, SPECDEC__AFTER_ATTENTION},
                   {SPECDEC__LACKS, SPECDEC__BIT(SPECDEC__AFTER_ATTENTION)},
                   {SPECDEC__RECURRENT_KIND, SPECDEC__GATED_DELTA},
                   {SPECDEC__RECURS, SPECDEC__RECURS_AS_LISTED}, {SPECDEC__EXPERT_SHARES, SPECDEC__NORMED},
                   {SPECDEC__SHARED_GATE, 1}}},
    {"lfm2moe", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__QK_NORM}, {SPECDEC__ZERO_SIZES, 1},
                 {SPECDEC__RECURRENT_KIND, SPECDEC__SHORT_CONVOLUTION}, {SPECDEC__EMBEDDING_NORM, 1},
                 {SPECDEC__EXPERT_SHARES, SPECDEC__NORMED | SPECDEC__SIGMOID}}},
    {"falcon-h1", {{SPECDEC__NEOX, 1}, {SPECDEC__RECURRENT_KIND, SPECDEC__MAMBA2},
                   {SPECDEC__RECURS, SPECDEC__RECURS_BESIDE_ATTENTION},
                   {SPECDEC__FFN_NORM_AS, SPECDEC__FFN_NORM_BARE}}},
    {"nemotron_h", {{SPECDEC__ROPE_VARIANT, SPECDEC__ROPE_NEVER}, {SPECDEC__ROPE_BASE, 10000}, {SPECDEC__ZERO_SIZES, 1},
                    {SPECDEC__ACTIVATION, SPECDEC__RELU}, {SPECDEC__UNGATED, 1},
                    {SPECDEC__RECURRENT_KIND, SPECDEC__MAMBA2}, {SPECDEC__RECURS, SPECDEC__RECURS_ALONE},
                    {SPECDEC__FFN_NORM_AS, SPECDEC__FFN_NORM_FIRST}}},
    {"nemotron_h_moe", {{SPECDEC__ROPE_VARIANT, SPECDEC__ROPE_NEVER}, {SPECDEC__ROPE_BASE, 10000},
                        {SPECDEC__ZERO_SIZES, 1}, {SPECDEC__ACTIVATION, SPECDEC__RELU}, {SPECDEC__UNGATED, 1},
                        {SPECDEC__RECURRENT_KIND, SPECDEC__MAMBA2}, {SPECDEC__RECURS, SPECDEC__RECURS_ALONE},
                        {SPECDEC__FFN_NORM_AS, SPECDEC__FFN_NORM_FIRST},
                        {SPECDEC__EXPERT_SHARES, SPECDEC__NORMED | SPECDEC__SIGMOID}}},
    /* EAGLE-3 (Li et al. 2025, arXiv 2503.01840) */
    {"eagle3", {{SPECDEC__NEEDS, SPECDEC__BIT(SPECDEC__READ_NORM)},
                {SPECDEC__READS_STATES, SPECDEC__BESIDE_EMBEDDINGS}}},
    {"gemma4-assistant", {{SPECDEC__NEOX, 1}, {SPECDEC__ACTIVATION, SPECDEC__GELU},
                          {SPECDEC__NEEDS, SPECDEC__POST_NORMS | SPECDEC__QK_NORM}, {SPECDEC__PERIOD, 6},
                          {SPECDEC__ALTERNATES, 31}, {SPECDEC__WINDOW_KEYS, 1 << 30}, {SPECDEC__ALTERNATE_BASE, 10000},
                          {SPECDEC__UNSCALED, 1}, {SPECDEC__SCALES_OUTPUT, 1},
                          {SPECDEC__READS_STATES, SPECDEC__AS_STREAM}, {SPECDEC__VISIBLE_KEYS, SPECDEC__SEES_VIEW}}},
    {"dflash", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__QK_NORM}, {SPECDEC__ALTERNATES, 1},
                {SPECDEC__WINDOW_KEYS, 1 << 30}, {SPECDEC__READS_STATES, SPECDEC__AS_KEYS},
                {SPECDEC__VISIBLE_KEYS, SPECDEC__SEES_BLOCK}}},
};

/* Returns the value of a trait of an architecture. */
static int specdec__architecture_trait(const specdec__architecture *a, int trait)
{
    const specdec__trait *const lists[] = {a->traits, specdec__default_traits};
    const specdec__trait *t;
    size_t i;

    for (i = 0; i < SPECDEC__COUNT(lists); i++)
        for (t = lists[i]; t->trait; t++)
            if (t->trait == trait)
                return t->value;
    return 0;
}

/* Names of tensors in a row of specdec__heads_kinds. # stands for "." and the head's number, or for nothing where all
   heads share the tensor. */
#define SPECDEC__HEADS_OUTPUT(name) SPECDEC__ROW_TEXT("o", name)
#define SPECDEC__HEADS_INPUT(name) SPECDEC__ROW_TEXT("i", name)
#define SPECDEC__HEADS_TABLE(name) SPECDEC__ROW_TEXT("t", name)
#define SPECDEC__HEADS_NORM(name) SPECDEC__ROW_TEXT("n", name)
#define SPECDEC__HEADS_BIAS(name) SPECDEC__ROW_TEXT("b", name)

/* Values of `chained` and `residual`, which are else 0. */
enum { SPECDEC__HEADS_CHAINED = 1, SPECDEC__HEADS_RESIDUAL = 1 };

/* A kind of files of heads, which draft tokens from a hidden state of the target. A head reads the target's state or,
   where heads are chained, the state of the head before it. Its state is activation(norm(input * state read + row of
   the last token in table) + bias), plus the state read if `residual`; its logits are output * state. */
typedef struct specdec__heads_kind {
    const char *name;      /* general.architecture in files */
    int chained, residual; /* 1: a head reads the state of the head before it; 1: it adds the state that it reads */
    int activation;        /* SPECDEC__SILU, ... */
    const char *tensors;   /* names of its tensors, as rows SPECDEC__HEADS_... */
} specdec__heads_kind;

/* The kinds of files of heads. */
static const specdec__heads_kind specdec__heads_kinds[] = {
    /* Wertheimer et al. 2024, arXiv 2404.19124 */
    {"mlp_speculator", SPECDEC__HEADS_CHAINED, 0, SPECDEC__GELU_EXACT,
     SPECDEC__HEADS_OUTPUT("speculator.head#.weight") SPECDEC__HEADS_INPUT("speculator.proj#.weight")
     SPECDEC__HEADS_TABLE("speculator.emb#.weight") SPECDEC__HEADS_NORM("speculator.ln#.weight")
     SPECDEC__HEADS_BIAS("speculator.ln#.bias")},
    /* Cai et al. 2024, arXiv 2401.10774 */
    {"medusa", 0, SPECDEC__HEADS_RESIDUAL, SPECDEC__SILU,
     SPECDEC__HEADS_OUTPUT("medusa#.head.weight") SPECDEC__HEADS_INPUT("medusa#.block.0.weight")
     SPECDEC__HEADS_BIAS("medusa#.block.0.bias")},
};

/* Sizes of layers that a file gives once, or as a list with a number for each layer; keys are in
   specdec__list_table. */
enum {
    SPECDEC__LIST_HEADS, SPECDEC__LIST_KV_HEADS, SPECDEC__LIST_KEY, SPECDEC__LIST_VALUE, SPECDEC__LIST_ROPE,
    SPECDEC__LIST_FF,
    SPECDEC__LIST_WINDOW_KEY, SPECDEC__LIST_WINDOW_VALUE, SPECDEC__LIST_WINDOW_ROPE, /* of layers with a window */
    SPECDEC__LISTS
};

#define SPECDEC__MAX_HEADS 8         /* heads in a file of heads, at most */
#define SPECDEC__MAX_STATES_READ 8   /* hidden states that a model reads for one token, at most */
#define SPECDEC__MAX_BLOCK_TOKENS 64 /* tokens of a block that is drafted in one pass, the root included, at most */

/* Tensors and sizes of a model that reads hidden states of a target. It reads `matrix` times the target's states before
   `count` of its layers, concatenated; for an assistant, times the target's embedding of a token and the target's state
   for the token before. The layer of a NextN block (>>model/nextn) reads `matrix` times the norm of an embedding and,
   behind it, the norm of the state. */
typedef struct specdec__reads {
    specdec__matrix matrix;         /* (embedding, count * width), or (embedding, embedding + width) */
    const float *token_norm, *state_norm; /* (embedding), (width) weights of norms of a NextN block; else NULL */
    const float *matrix_norm;       /* (embedding) weights of a norm behind the matrix; NULL: none */
    specdec__matrix next_state;     /* (width, embedding) of an assistant: projects its final norm to the state it reads
                                       for the next token */
    int centroids, nearest_centroids; /* of an assistant: rows of its output matrix if these stand for clusters of
                                         tokens, 0: it has a row for each token; and of how many of the nearest clusters
                                         the tokens get logits */
    const int32_t *centroid_tokens; /* (vocabulary) the tokens of the first cluster, then those of the second, ... */
    const float *states_norm;       /* (count * width) weights of a norm of the states before the matrix; NULL: none */
    int layers[SPECDEC__MAX_STATES_READ]; /* (count) the target's layers before which states are taken */
    int count, width;               /* states for each token; the target's embedding width */
    int norm_first;                 /* 1: the residual stream begins with the norm of the projected states */
    int is_nextn;                   /* 1: this is a NextN block */
} specdec__reads;

/* Tensors and sizes of a model that drafts a block of tokens in one pass (DFlash: Chen et al. 2026, arXiv 2602.06036).
   The block is the root and mask tokens behind it. With w[t] row t of a matrix w, the logits of row i behind token s:
     DSpark:  logits[i] + markov_out markov_in[s], and as its confidence sigmoid(confidence * [state[i], markov_in[s]])
     DFlash2: of the `candidates` tokens t with the largest logits[i] alone,
              logits[i][t] + sum over r of predecessor[s][r] (hidden state[i])[r] successor[t][r]
   DFlash2 also has a convolution before and one behind each half of a layer: with h the input of the half and
   c = conv h, row i is the sum over taps of (c[i][side][tap][group of d] + base[side][tap][d]) x[i - tap][d]. */
typedef struct specdec__block_model {
    int size, draft_row;           /* tokens of a block; its row whose logits draft the token behind the root: 0 or 1 */
    int32_t mask_token;            /* the mask token */
    int taps, group_size;          /* taps of the convolutions, 0: there are none; dimensions that share weights */
    specdec__matrix markov_in, markov_out, confidence; /* (vocabulary, rank), (output rows, rank), (1, embedding +
                                                          rank) */
    float confidence_bias;         /* added to the confidence before the sigmoid */
    int candidates;                /* tokens that DFlash2 scores in each row; 0: the model is not DFlash2 */
    specdec__matrix predecessor, successor, hidden; /* (vocabulary, rank), (output rows, rank), (rank, embedding) */
} specdec__block_model;

/* Embeddings that a token has for each layer besides that of the first layer (per-layer embeddings of Gemma 3n and
   Gemma 4). With x0 the embedding of the first layer, layer l reads
       e[l] = (root(width) * row of token_table[l] + norm(matrix x0 / root(embedding))[l]) / root(2)
   and ends in x += norm(out(activation(gate x) * e[l])). */
typedef struct specdec__layer_embeddings {
    int width;              /* floats of e[l]; 0: the model has no such embeddings */
    specdec__matrix token_table; /* (vocabulary, layers * width) rows are looked up in the file */
    specdec__matrix matrix; /* (layers * width, embedding) projects x0 to all layers' embeddings */
    const float *norm;      /* (width) weights of the norm */
} specdec__layer_embeddings;

#define SPECDEC__MAX_STREAMS 4 /* residual streams, at most */

/* Several residual streams (AltUp: Baykal et al. 2023, arXiv 2301.13310) in Gemma 3n; a layer works on the first, x.
   The others begin as matrices times x, scaled to the length of x. A layer predicts each stream as a sum of all
   streams, with weights from the layer's matrix times tanh(router norm(x) / embedding). Behind the layer, its change of
   x is added to every stream, times a coefficient that is computed likewise from the new x. The output of the layer's
   own embeddings is added to all streams but x. At the end, matrices are applied to the others, which are scaled to the
   length of x, and x becomes the mean of all streams.
       Beside attention is a product of two matrices (LAuReL: Menghani et al. 2024, arXiv 2411.07501): with h the input
   of attention, x becomes (x + attention h + h + norm(up(down h))) / root(2). */
typedef struct specdec__streams {
    int count;                                            /* number of streams; 0: only x */
    specdec__matrix matrix[2][SPECDEC__MAX_STREAMS - 1]; /* (embedding, embedding) applied before the first layer,
                                                             behind the last */
} specdec__streams;

/* Sizes of latent attention: see >>forward/latent. specdec__shape has the sizes that the cache sees: one kv head, whose
   key is the part that RoPE rotates and a latent row, and whose value is the latent row. */
typedef struct specdec__latent {
    int rank;               /* size of a latent row; 0: attention is not latent */
    int query_rank;         /* size of the rows that queries are projected from; 0: queries are projected from the
                               layer's input */
    int key_dim, value_dim; /* of one head: size of its query, unrotated part and rotated part; size of its output */
} specdec__latent;

/* A model: its architecture, sizes, facts and tensors. On a rank of a cluster, a part of its layers. */
typedef struct specdec_model {
    const specdec__architecture *architecture; /* its row of the table; NULL: a file of heads */
    int trait[SPECDEC__TRAITS];              /* values of the architecture's traits; a file of heads: all 0 */
    const specdec__heads_kind *speculator;   /* kind of a file of heads; feed_forward is the width of the heads' states
                                                then; NULL: no heads */
    int head_count, heads_tied;              /* number of these heads; 1: all but the first share every tensor but the
                                                input matrix */
    const float *input_norm;                 /* (embedding) weights of a norm of the target's state, which heads read;
                                                NULL: none */
    const int32_t *ids;                      /* (id_count) token id of each row of logits (a short vocabulary); NULL:
                                                row i is token i */
    int id_count;                            /* rows of logits of a short vocabulary; 0: rows are all tokens */
    int layers, embedding, context, vocab_size; /* layers on this rank; width of the residual stream; context_length;
                                                   tokens */
    int heads, kv_heads, head_dim, feed_forward; /* the largest of any layer on this rank; head_dim: size of keys and
                                                    values */
    int q_width, k_width, v_width, o_width;  /* the largest of any layer: heads times size of a head, of queries, keys,
                                                values, outputs of heads */
    int rope_dim[SPECDEC__ROPES];            /* how many dimensions each RoPE rotates */
    int expert_ff;                           /* width of an expert's network */
    int nextn;                               /* NextN blocks behind the layers, for multi-token prediction: not run as
                                                layers */
    specdec__gguf_value list[SPECDEC__LISTS]; /* sizes of layers, by SPECDEC__LIST_HEADS, ...; items NULL: no key */
    int experts, chosen_experts;             /* experts of a layer, 0: none; how many of them a token visits */
    int leading_dense, expert_interval;      /* first layers, which have no experts; of the later ones the last of every
                                                expert_interval has some */
    int shared_ff, latent;                   /* width of the shared expert, 0: none; width of what experts read if it is
                                                latent, 0: it is that of x */
    int sigmoid_experts, normed_experts;     /* how experts are weighted: see SPECDEC__SIGMOID, SPECDEC__NORMED */
    int groups, groups_chosen;               /* groups of experts, and how many of them a token's experts are chosen
                                                from */
    float expert_scale;                      /* factor of experts' weights */
    int first_layer, all_layers;             /* layers before those on this rank; layers of the whole model */
    int lacks_output;                        /* 1: the output matrix is on another rank */
    int span_layers[SPECDEC__SPANS], window; /* layers of each span on this rank; keys that layers of SPECDEC__WINDOW
                                                see */
    int span_used[SPECDEC__SPANS];           /* 1: some layer of the model, on any rank, is of this span */
    specdec__recurrent_sizes recurrent_sizes; /* sizes of the recurrent layers */
    specdec__gguf_value recurrent_list;      /* list that says which layers are recurrent; items NULL: none */
    int attention_interval;                  /* without this list: the last of every attention_interval layers has
                                                attention */
    specdec__gguf_value alternate_list;      /* which layers are alternate: specdec__model_read_alternate_layers */
    float fact[SPECDEC__FACTS];              /* scales and soft caps, by SPECDEC__EMBEDDING_SCALE, ...; a query scale of
                                                0: see specdec__model_query_scale */
    float query_growth;                      /* queries at p times the original context are multiplied by 1 +
                                                query_growth * log(1 + floor(p)) */
    float epsilon, rope_base;                /* epsilon of norms; base of RoPE's frequencies */
    float rope_scale[SPECDEC__ROPES];        /* factor of cosine and sine: YaRN's attention factor */
    double *rope_frequency[SPECDEC__ROPES];  /* (rope_dim / 2) radians a position for each pair; NULL: no layer has this
                                                RoPE */
    int rope_original;                       /* original context: longer contexts take SPECDEC__ROPE_LONG */
    specdec__layer *layer;                   /* (layers) the layers on this rank */
    specdec__matrix token_embedding, output; /* without a type in models that read states: those of the target are
                                                used */
    const float *output_norm;                /* (embedding) weights of the final norm */
    specdec__reads reads;                    /* how the model reads hidden states of a target */
    specdec__block_model block;              /* of models that draft a block in one pass */
    specdec__layer_embeddings layer_embeddings; /* embeddings for layers */
    specdec__streams streams;                /* several residual streams */
    specdec__latent latent_attention;        /* sizes of latent attention */
    float query_factor;                      /* factor of the query scales of all layers */
    int sharing_layers;                      /* layers at the end that read keys of earlier layers */
    const float *ones;                       /* (head_dim, padded) weights 1 of norms that have none in the file; NULL:
                                                no norm lacks them */
    size_t weight_bytes;                     /* bytes of all matrix rows that a token reads */
    size_t tile_bytes;                       /* bytes of all matrices, repacked into tiles with rows padded to 16 */
    uint64_t weight_products;                /* multiply-adds of a token */
    specdec__vocab vocab;                    /* the tokens and the tokenizer */
    specdec__bytes chat_template;            /* tokenizer.chat_template of the file; data NULL: none */
    const specdec__chat *chat;               /* the chat format that the template was recognised as; NULL: no
                                                template */
    specdec__gguf gguf;                      /* the file; the first one of a model in several files */
    int file_count, tensors;                 /* files of the model: see >>model/parts; tensors in all of them */
    size_t part_bytes;                       /* bytes of all files in memory */
    specdec__bytes mapped;                   /* the mapping of the file, to be unmapped at the end; empty: the caller's
                                                memory */
} specdec__model;

/* Dimensions that shapes of tensors are checked against. Where one of a tensor's dimensions is 0, the layer has no such
   tensor. */
enum {
    SPECDEC__DIM_EMBEDDING, SPECDEC__DIM_Q, SPECDEC__DIM_K, SPECDEC__DIM_V, SPECDEC__DIM_O, SPECDEC__DIM_FF,
    SPECDEC__DIM_EXPERTS,
    SPECDEC__DIM_EXPERT_INPUT, SPECDEC__DIM_EXPERT_FF, SPECDEC__DIM_EXPERT_GATE,
    SPECDEC__DIM_SHARED, SPECDEC__DIM_SHARED_GATE, /* 1: the layer has a shared expert; 1: with a router */
    SPECDEC__DIM_LATENT,
    SPECDEC__DIM_GATE,   /* rows of a feed-forward network's gate; 0: ungated */
    SPECDEC__DIM_Q_ROWS, /* rows of attn_q: queries, and their gates if there are any */
    SPECDEC__DIM_READ,   /* columns of a layer's first matrices: embedding, or embedding and states */
    SPECDEC__DIM_Q_NORM, SPECDEC__DIM_K_NORM, SPECDEC__DIM_HEADS,
    SPECDEC__DIM_INPUT, SPECDEC__DIM_AFTER_INPUT, /* of an embedding for layers; of the norm behind it */
    SPECDEC__DIM_DENSE_BESIDE,  /* of norms in layers with experts and a dense network */
    SPECDEC__DIM_SCALE,  /* 1: the layer has an output scale */
    SPECDEC__DIM_STREAMS, SPECDEC__DIM_PREDICTIONS, SPECDEC__DIM_CORRECTIONS, SPECDEC__DIM_STREAM_NORMS,
    SPECDEC__DIM_LAUREL,
    SPECDEC__DIM_CONV, SPECDEC__DIM_CONV_BASE,
    SPECDEC__DIM_LOW, SPECDEC__DIM_LOW_Q, SPECDEC__DIM_LATENT_KEY, SPECDEC__DIM_RANK, /* latent attention: */
    SPECDEC__DIM_STILL, SPECDEC__DIM_LATENT_VALUE, /* ranks, sizes of a head */
    SPECDEC__DIM_OWN_KEYS, /* no dimension: 1: the layer has keys and values of its own */
    /* of recurrent layers: */
    SPECDEC__DIM_SHORT, SPECDEC__DIM_SHORT_ROWS, SPECDEC__DIM_SHORT_TAPS,
    SPECDEC__DIM_SSM_ROWS, SPECDEC__DIM_SSM_HEADS, SPECDEC__DIM_SSM_NORMS, SPECDEC__DIM_SSM_NORM,
    SPECDEC__DIM_QKV, SPECDEC__DIM_MIX_GATE, SPECDEC__DIM_BETA, SPECDEC__DIM_BETA_ALPHA, SPECDEC__DIM_DELTA_NORM,
    SPECDEC__DIM_INNER, SPECDEC__DIM_CHANNELS, SPECDEC__DIM_STATE_HEADS, SPECDEC__DIM_SSM_TAPS, SPECDEC__DIM_TAPS,
    SPECDEC__DIM_COUNT
};

/* What a tensor holds: one matrix, or one for each expert or head, one behind the other. */
enum { SPECDEC__ONE_MATRIX, SPECDEC__EACH_EXPERT, SPECDEC__EACH_HEAD };

/* The matrices of a layer: names of their tensors, also in a shared expert; dimensions; SPECDEC__ONE_MATRIX, ... */
static const struct {
    const char *suffix, *shared;       /* of "blk.N.": the tensor's name; its name in a shared expert */
    unsigned char rows, columns, each; /* SPECDEC__DIM_...; SPECDEC__ONE_MATRIX, ... */
} specdec__matrix_table[SPECDEC__MATRICES] = {
    {"attn_q.weight", NULL, SPECDEC__DIM_Q_ROWS, SPECDEC__DIM_READ, 0},
    {"attn_k.weight", NULL, SPECDEC__DIM_K, SPECDEC__DIM_READ, 0},
    {"attn_v.weight", NULL, SPECDEC__DIM_V, SPECDEC__DIM_READ, 0},
    {"attn_output.weight", NULL, SPECDEC__DIM_EMBEDDING, SPECDEC__DIM_O, 0},
    {"ffn_gate.weight", "ffn_gate_shexp.weight", SPECDEC__DIM_GATE, SPECDEC__DIM_EMBEDDING, 0},
    {"ffn_up.weight", "ffn_up_shexp.weight", SPECDEC__DIM_FF, SPECDEC__DIM_EMBEDDING, 0},
    {"ffn_down.weight", "ffn_down_shexp.weight", SPECDEC__DIM_EMBEDDING, SPECDEC__DIM_FF, 0},
    {"ffn_gate_exps.weight", NULL, SPECDEC__DIM_EXPERT_GATE, SPECDEC__DIM_EXPERT_INPUT, SPECDEC__EACH_EXPERT},
    {"ffn_up_exps.weight", NULL, SPECDEC__DIM_EXPERT_FF, SPECDEC__DIM_EXPERT_INPUT, SPECDEC__EACH_EXPERT},
    {"ffn_down_exps.weight", NULL, SPECDEC__DIM_EXPERT_INPUT, SPECDEC__DIM_EXPERT_FF, SPECDEC__EACH_EXPERT},
    {"ffn_gate_inp.weight", NULL, SPECDEC__DIM_EXPERTS, SPECDEC__DIM_EMBEDDING, 0},
    {"ffn_gate_inp_shexp.weight", NULL, SPECDEC__DIM_SHARED_GATE, SPECDEC__DIM_EMBEDDING, 0},
    {"ffn_latent_down.weight", NULL, SPECDEC__DIM_LATENT, SPECDEC__DIM_EMBEDDING, 0},
    {"ffn_latent_up.weight", NULL, SPECDEC__DIM_EMBEDDING, SPECDEC__DIM_LATENT, 0},
    {"inp_gate.weight", NULL, SPECDEC__DIM_INPUT, SPECDEC__DIM_EMBEDDING, 0},
    {"proj.weight", NULL, SPECDEC__DIM_EMBEDDING, SPECDEC__DIM_INPUT, 0},
    {"altup_router.weight", NULL, SPECDEC__DIM_STREAMS, SPECDEC__DIM_EMBEDDING, 0},
    {"laurel_l.weight", NULL, SPECDEC__DIM_LAUREL, SPECDEC__DIM_EMBEDDING, 0},
    {"laurel_r.weight", NULL, SPECDEC__DIM_EMBEDDING, SPECDEC__DIM_LAUREL, 0},
    {"attn_conv_proj.weight", NULL, SPECDEC__DIM_CONV, SPECDEC__DIM_EMBEDDING, 0},
    {"ffn_conv_proj.weight", NULL, SPECDEC__DIM_CONV, SPECDEC__DIM_EMBEDDING, 0},
    {"attn_q_a.weight", NULL, SPECDEC__DIM_LOW, SPECDEC__DIM_EMBEDDING, 0},
    {"attn_q_b.weight", NULL, SPECDEC__DIM_LOW_Q, SPECDEC__DIM_LOW, 0},
    {"attn_kv_a_mqa.weight", NULL, SPECDEC__DIM_LATENT_KEY, SPECDEC__DIM_EMBEDDING, 0},
    {"attn_k_b.weight", NULL, SPECDEC__DIM_RANK, SPECDEC__DIM_STILL, SPECDEC__EACH_HEAD},
    {"attn_v_b.weight", NULL, SPECDEC__DIM_LATENT_VALUE, SPECDEC__DIM_RANK, SPECDEC__EACH_HEAD},
    {"shortconv.in_proj.weight", NULL, SPECDEC__DIM_SHORT_ROWS, SPECDEC__DIM_EMBEDDING, 0},
    {"shortconv.out_proj.weight", NULL, SPECDEC__DIM_EMBEDDING, SPECDEC__DIM_SHORT, 0},
    {"ssm_in.weight", NULL, SPECDEC__DIM_SSM_ROWS, SPECDEC__DIM_EMBEDDING, 0},
    {"ssm_out.weight", NULL, SPECDEC__DIM_EMBEDDING, SPECDEC__DIM_INNER, 0},
    {"attn_qkv.weight", NULL, SPECDEC__DIM_QKV, SPECDEC__DIM_EMBEDDING, 0},
    {"attn_gate.weight", NULL, SPECDEC__DIM_MIX_GATE, SPECDEC__DIM_EMBEDDING, 0},
    {"ssm_beta.weight", NULL, SPECDEC__DIM_BETA, SPECDEC__DIM_EMBEDDING, 0},
    {"ssm_alpha.weight", NULL, SPECDEC__DIM_BETA, SPECDEC__DIM_EMBEDDING, 0},
    {"ssm_ba.weight", NULL, SPECDEC__DIM_BETA_ALPHA, SPECDEC__DIM_EMBEDDING, 0}};

/* Fused tensors: one tensor with the rows of `count` matrices from `matrix` on, one below the other, and one with their
   biases, from `vector` on. They are read where the layer has no tensor of the first matrix's own name. */
typedef struct specdec__fused {
    const char *weight, *bias;           /* names of the tensors; bias NULL: none */
    unsigned char matrix, vector, count; /* the first matrix and the first bias; how many of each */
    unsigned char shares_name;           /* 1: the name is also that of a single matrix: the tensor is fused if it has
                                            the rows of all */
} specdec__fused;

static const specdec__fused specdec__fused_table[] = {
    {"attn_qkv.weight", "attn_qkv.bias", SPECDEC__Q, SPECDEC__Q_BIAS, 3, 0},
    {"ffn_gate_up.weight", "ffn_gate_up.bias", SPECDEC__GATE, SPECDEC__GATE_BIAS, 2, 0},
    {"ffn_gate_up_exps.weight", NULL, SPECDEC__EXPERT_GATE, SPECDEC__EXPERT_GATE_BIAS, 2, 0},
    {"ffn_up.weight", "ffn_up.bias", SPECDEC__GATE, SPECDEC__GATE_BIAS, 2, 1}};

/* Keys of the sizes of layers. high: the largest value; needed: 1: files must have the key; may_lack: 1: 0 stands for a
   layer without such heads or network (the trait ZERO_SIZES). */
static const struct { const char *suffix; int high; unsigned char needed, may_lack; } specdec__list_table[] = {
    {".attention.head_count", 4096, 1, 1}, {".attention.head_count_kv", 4096, 0, 1},
    {".attention.key_length", 4096, 0, 0}, {".attention.value_length", 4096, 0, 0},
    {".rope.dimension_count", 4096, 0, 0}, {".feed_forward_length", SPECDEC__MAX_DIMENSION, 0, 1},
    {".attention.key_length_swa", 4096, 0, 0}, {".attention.value_length_swa", 4096, 0, 0},
    {".rope.dimension_count_swa", 4096, 0, 0}};

/* Keys of the facts, by SPECDEC__EMBEDDING_SCALE, ... */
static const char *const specdec__fact_table[SPECDEC__FACTS] = {".embedding_scale",        ".attention.scale",
                                                                ".residual_scale",         ".logit_scale",
                                                                ".attn_logit_softcapping", ".final_logit_softcapping"};

/* When a layer must have a vector: never, it is optional; always; or, IF_NAMED, if the architecture's NEEDS names it,
   and else the vector is not read. */
enum { SPECDEC__OPTIONAL, SPECDEC__REQUIRED, SPECDEC__IF_NAMED };

/* The vectors of a layer: names of their tensors, dimension, SPECDEC__OPTIONAL, ..., and each = 1: one for each expert,
   one behind the other. */
static const struct {
    const char *suffix;               /* behind "blk.N.": the tensor's name */
    unsigned char size, wanted, each; /* SPECDEC__DIM_...; SPECDEC__OPTIONAL, ...; 1: one for each expert */
} specdec__vector_table[SPECDEC__VECTORS] = {
    {"attn_norm.weight", SPECDEC__DIM_EMBEDDING, SPECDEC__REQUIRED, 0},
    {"ffn_norm.weight", SPECDEC__DIM_EMBEDDING, SPECDEC__REQUIRED, 0},
    {"attn_q_norm.weight", SPECDEC__DIM_Q_NORM, 0, 0}, {"attn_k_norm.weight", SPECDEC__DIM_K_NORM, 0, 0},
    {"post_attention_norm.weight", SPECDEC__DIM_EMBEDDING, 0, 0},
    {"post_ffw_norm.weight", SPECDEC__DIM_EMBEDDING, 0, 0},
    {"attn_norm_2.weight", SPECDEC__DIM_EMBEDDING, SPECDEC__IF_NAMED, 0},
    {"attn_q.bias", SPECDEC__DIM_Q_ROWS, 0, 0}, {"attn_k.bias", SPECDEC__DIM_K, 0, 0},
    {"attn_v.bias", SPECDEC__DIM_V, 0, 0}, {"attn_output.bias", SPECDEC__DIM_EMBEDDING, 0, 0},
    {"ffn_gate.bias", SPECDEC__DIM_GATE, 0, 0}, {"ffn_up.bias", SPECDEC__DIM_FF, 0, 0},
    {"ffn_down.bias", SPECDEC__DIM_EMBEDDING, 0, 0},
    {"attn_sinks.weight", SPECDEC__DIM_HEADS, SPECDEC__IF_NAMED, 0},
    {"ffn_gate_inp.bias", SPECDEC__DIM_EXPERTS, 0, 0}, {"exp_probs_b.bias", SPECDEC__DIM_EXPERTS, 0, 0},
    {"ffn_gate_exps.bias", SPECDEC__DIM_EXPERT_GATE, 0, 1}, {"ffn_up_exps.bias", SPECDEC__DIM_EXPERT_FF, 0, 1},
    {"ffn_down_exps.bias", SPECDEC__DIM_EXPERT_INPUT, 0, 1},
    {"ffn_norm", SPECDEC__DIM_EMBEDDING, SPECDEC__IF_NAMED, 0},
    {"attn_norm.weight", SPECDEC__DIM_EMBEDDING, SPECDEC__IF_NAMED, 0},
    {"post_norm.weight", SPECDEC__DIM_AFTER_INPUT, SPECDEC__REQUIRED, 0},
    {"layer_output_scale.weight", SPECDEC__DIM_SCALE, 0, 0},
    {"ffn_gate_inp.scale", SPECDEC__DIM_DENSE_BESIDE, SPECDEC__REQUIRED, 0},
    {"pre_ffw_norm_2.weight", SPECDEC__DIM_DENSE_BESIDE, SPECDEC__REQUIRED, 0},
    {"post_ffw_norm_1.weight", SPECDEC__DIM_DENSE_BESIDE, SPECDEC__REQUIRED, 0},
    {"post_ffw_norm_2.weight", SPECDEC__DIM_DENSE_BESIDE, SPECDEC__REQUIRED, 0},
    {"attn_q_a_norm.weight", SPECDEC__DIM_LOW, SPECDEC__REQUIRED, 0},
    {"attn_kv_a_norm.weight", SPECDEC__DIM_RANK, SPECDEC__REQUIRED, 0},
    {"altup_router_norm.weight", SPECDEC__DIM_STREAM_NORMS, SPECDEC__REQUIRED, 0},
    {"altup_predict_coef.weight", SPECDEC__DIM_PREDICTIONS, SPECDEC__REQUIRED, 0},
    {"altup_correct_coef.weight", SPECDEC__DIM_CORRECTIONS, SPECDEC__REQUIRED, 0},
    {"altup_correct_scale.weight", SPECDEC__DIM_STREAM_NORMS, SPECDEC__REQUIRED, 0},
    {"attn_conv_base", SPECDEC__DIM_CONV_BASE, SPECDEC__REQUIRED, 0},
    {"ffn_conv_base", SPECDEC__DIM_CONV_BASE, SPECDEC__REQUIRED, 0},
    {"laurel_post_norm.weight", SPECDEC__DIM_STREAM_NORMS, SPECDEC__REQUIRED, 0},
    {"shortconv.conv.weight", SPECDEC__DIM_SHORT_TAPS, SPECDEC__REQUIRED, 0},
    {"ssm_conv1d.weight", SPECDEC__DIM_SSM_TAPS, SPECDEC__REQUIRED, 0},
    {"ssm_conv1d.bias", SPECDEC__DIM_CHANNELS, 0, 0}, {"ssm_dt.bias", SPECDEC__DIM_STATE_HEADS, SPECDEC__REQUIRED, 0},
    {"ssm_a", SPECDEC__DIM_STATE_HEADS, SPECDEC__REQUIRED, 0}, {"ssm_d", SPECDEC__DIM_SSM_HEADS, SPECDEC__REQUIRED, 0},
    {"ssm_norm.weight", SPECDEC__DIM_DELTA_NORM, SPECDEC__REQUIRED, 0},
    {"ssm_norm.weight", SPECDEC__DIM_SSM_NORMS, 0, 0}};

/* Vectors that are matrices in files, with rows of the dimension `row`; turned: 1: they are transposed. */
static const struct { unsigned char vector, row, turned; } specdec__folded_table[] = {
    {SPECDEC__PREDICTIONS, SPECDEC__DIM_STREAMS, 0}, {SPECDEC__CORRECTIONS, SPECDEC__DIM_STREAMS, 0},
    {SPECDEC__ATTENTION_CONV_BASE, SPECDEC__DIM_EMBEDDING, 0}, {SPECDEC__FFN_CONV_BASE, SPECDEC__DIM_EMBEDDING, 0},
    {SPECDEC__RECURRENT_SHORT_TAPS, SPECDEC__DIM_TAPS, 1}, {SPECDEC__RECURRENT_TAPS, SPECDEC__DIM_TAPS, 1},
    {SPECDEC__RECURRENT_NORMS, SPECDEC__DIM_SSM_NORM, 0}};

/* Matrices and vectors, as bits, that a layer lacks if it reads the keys of another layer. */
static const unsigned specdec__key_tensors[2] = {
    SPECDEC__BIT(SPECDEC__K) | SPECDEC__BIT(SPECDEC__V),
    SPECDEC__BIT(SPECDEC__K_NORM) | SPECDEC__BIT(SPECDEC__K_BIAS) | SPECDEC__BIT(SPECDEC__V_BIAS)};

/* Returns general.architecture of a model. */
static const char *specdec__model_architecture_name(const specdec__model *m)
{
    return m->architecture ? m->architecture->name : m->speculator->name;
}

/* Sets the architecture of a model and its traits. */
static void specdec__model_set_architecture(specdec__model *m, const specdec__architecture *a)
{
    int i;

    m->architecture = a;
    m->query_factor = 1;
    for (i = 1; i < SPECDEC__TRAITS; i++)
        m->trait[i] = specdec__architecture_trait(a, i);
}

/* Returns the rows of attn_q for one head: those of its query and, with the trait QUERY_GATES, those of its gate. */
SPECDEC__INLINE int specdec__model_query_rows(const specdec__model *m, const specdec__shape *s)
{
    return s->key_dim + (m->trait[SPECDEC__QUERY_GATES] ? s->value_dim : 0);
}

/* Whether the model is a mixture of experts. */
SPECDEC__INLINE int specdec__model_has_experts(const specdec__model *m) { return SPECDEC__HAS_EXPERTS && m->experts; }

/* Whether this rank has the first layers of a model, and so the embedding. */
SPECDEC__INLINE int specdec__model_has_first_layer(const specdec__model *m)
{
    return !SPECDEC__PIPE || !m->first_layer || m->reads.count;
}

/* Whether this rank has the last layers of a model. */
SPECDEC__INLINE int specdec__model_has_last_layer(const specdec__model *m)
{
    return !SPECDEC__PIPE || m->first_layer + m->layers == m->all_layers;
}

/* Returns the kind of a draft model, such as "EAGLE-3"; NULL: the model is no draft model, or not bound yet. */
static SPECDEC__UNUSED const char *specdec__model_draft_kind(const specdec__model *m)
{
    static const char *const kinds[] = {NULL, "EAGLE-3", "assistant", "DFlash"};

    if (m->speculator)
        return "heads";
    return m->block.candidates       ? "DFlash2"
           : m->block.markov_in.type ? "DSpark"
                                     : kinds[m->trait[SPECDEC__READS_STATES]];
}

/* Whether a model can decode on its own, so that it may be a target. */
static int specdec__model_can_decode(const specdec__model *m)
{
    return m->architecture && !m->trait[SPECDEC__READS_STATES] && !m->reads.count;
}

SPECDEC__FOR_SPEED
