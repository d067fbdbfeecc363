/* =====================================================================================================================
 * >>model/model: architectures as rows of a table; what a prepared model holds.
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

#define SPECDEC__MAX_DIMENSION (1 << 20) /* of embedding, feed-forward and head counts times sizes */
#define SPECDEC__MAX_EXPERTS 1024        /* feed-forward networks of a layer, */
#define SPECDEC__MAX_CHOSEN 64           /* and how many of them a token visits, and how many groups they make */

/* A weight matrix: y (rows) = W (rows, columns) * x (columns). */
/* How far the lower plane of a matrix moves the products of its rows, at most: see >>forward/screen. */
typedef struct specdec__row_bounds {
    uint16_t *norm;       /* (SPECDEC__PLANE_PARTS, rows padded to 16) bfloat16 */
    unsigned char *part;  /* (columns): the part of a bound that each belongs to */
    float most[4];        /* the largest bound of each part */
} specdec__row_bounds;

typedef struct specdec__matrix {
    const specdec__quant_type *type;
    int rows, columns;
    const unsigned char *file;  /* (row, block): as it lies in the file */
    const unsigned char *tiles; /* (row/16, block, ...) repacked; NULL: taken from the file tile by tile */
    size_t row_bytes;
    int run, apart;             /* of experts that share a tensor with others: so many tiles lie side by side in the
                                   file, and runs begin so many tiles apart; 0: all lie side by side */
    const unsigned char *scales; /* F32 in the file, one for scale_tiles tiles (0: for all), by which products are
                                    multiplied; NULL: none */
    int scale_tiles;
    const specdec__row_bounds *bounds; /* tiles are planes; NULL: they are tiles */
} specdec__matrix;

enum {
    SPECDEC__Q, SPECDEC__K, SPECDEC__V, SPECDEC__O, SPECDEC__GATE, SPECDEC__UP, SPECDEC__DOWN,
    SPECDEC__EXPERT_GATE, SPECDEC__EXPERT_UP, SPECDEC__EXPERT_DOWN, SPECDEC__ROUTER, SPECDEC__SHARED_ROUTER,
    SPECDEC__LATENT_DOWN, SPECDEC__LATENT_UP,
    SPECDEC__INPUT_GATE, SPECDEC__INPUT_OUT,
    SPECDEC__STREAM_ROUTER, SPECDEC__LAUREL_DOWN, SPECDEC__LAUREL_UP, /* of streams: see specdec__streams */
    SPECDEC__ATTENTION_CONV, SPECDEC__FFN_CONV, /* of blocks: see specdec__block */
    SPECDEC__Q_A, SPECDEC__Q_B, SPECDEC__KV_A, SPECDEC__K_B, SPECDEC__V_B, /* of latent attention */
    /* of recurrent layers */
    SPECDEC__MIX_SHORT_IN, SPECDEC__MIX_SHORT_OUT, SPECDEC__MIX_SSM_IN, SPECDEC__MIX_SSM_OUT, SPECDEC__MIX_QKV,
    SPECDEC__MIX_GATE, SPECDEC__MIX_BETA, SPECDEC__MIX_ALPHA, SPECDEC__MIX_BOTH,
    SPECDEC__MATRICES
};
enum {
    SPECDEC__ATTENTION_NORM, SPECDEC__FFN_NORM, SPECDEC__Q_NORM, SPECDEC__K_NORM,
    SPECDEC__AFTER_ATTENTION, SPECDEC__AFTER_FFN, SPECDEC__READ_NORM,
    SPECDEC__Q_BIAS, SPECDEC__K_BIAS, SPECDEC__V_BIAS, SPECDEC__O_BIAS,
    SPECDEC__GATE_BIAS, SPECDEC__UP_BIAS, SPECDEC__DOWN_BIAS, SPECDEC__SINKS,
    SPECDEC__ROUTER_BIAS, SPECDEC__CHOICE_BIAS, SPECDEC__EXPERT_GATE_BIAS, SPECDEC__EXPERT_UP_BIAS,
    SPECDEC__EXPERT_DOWN_BIAS,
    SPECDEC__FFN_NORM_BARE, SPECDEC__FFN_NORM_FIRST, /* only names */
    SPECDEC__AFTER_INPUT, SPECDEC__OUTPUT_SCALE,
    SPECDEC__ROUTER_NORM, SPECDEC__EXPERT_NORM, SPECDEC__AFTER_NETWORK, SPECDEC__AFTER_EXPERTS, /* of both: see
                                                                                                  SPECDEC__BOTH */
    SPECDEC__LOW_NORM, SPECDEC__LATENT_NORM, /* of latent attention */
    SPECDEC__STREAM_NORM, SPECDEC__PREDICTIONS, SPECDEC__CORRECTIONS, SPECDEC__INPUT_SCALE, /* of streams; weights of */
    SPECDEC__ATTENTION_CONV_BASE, SPECDEC__FFN_CONV_BASE, /* of blocks, (2, taps, embedding) */
    SPECDEC__LAUREL_NORM, /* predictions are (streams, streams, streams), of corrections (streams, streams) */
    /* of recurrent layers; taps are (taps, channels) */
    SPECDEC__MIX_SHORT_TAPS, SPECDEC__MIX_TAPS, SPECDEC__MIX_BIAS, SPECDEC__MIX_DT_BIAS, SPECDEC__MIX_A, SPECDEC__MIX_D,
    SPECDEC__MIX_NORM, SPECDEC__MIX_NORMS, SPECDEC__VECTORS
};
enum { SPECDEC__WHOLE, SPECDEC__WINDOW, SPECDEC__SPANS }; /* which keys a layer sees: all, or the last few */
enum { SPECDEC__ROPE, SPECDEC__ROPE_OTHER, SPECDEC__ROPE_LONG, SPECDEC__ROPES }; /* long: ROPE in long contexts */
enum {
    SPECDEC__EMBEDDING_SCALE, SPECDEC__QUERY_SCALE, SPECDEC__RESIDUAL_SCALE, SPECDEC__LOGIT_SCALE,
    SPECDEC__SCORE_CAP, SPECDEC__LOGIT_CAP, SPECDEC__FACTS /* all are factors, but for caps, of which 0 is none */
};

enum { SPECDEC__HEAD_OUTPUT, SPECDEC__HEAD_INPUT }; /* places of the matrices, and of the vectors, of heads */
enum { SPECDEC__HEAD_NORM, SPECDEC__HEAD_BIAS };

/* Sizes that may differ from layer to layer. */
typedef struct specdec__shape {
    int heads, kv_heads;    /* kv heads 0: the layer has no attention */
    int key_dim, value_dim; /* of a head: of its queries and keys; of its values */
    int rope_dim;           /* dimensions of a query or key that are rotated: the first ones */
    int feed_forward;       /* width of the network that every token goes through; 0: there is none */
    int experts;            /* networks of which a token goes through a few; 0: there are none */
    int shared;             /* the network for every token is called a shared expert */
    int keys_of;            /* number of an earlier layer whose keys and values it reads (where all read those of
                               another model: 0); -1: it has its own */
    int span;               /* SPECDEC__WHOLE or SPECDEC__WINDOW */
    int rope;               /* SPECDEC__ROPE or SPECDEC__ROPE_OTHER */
    int recurrent;          /* the layer has a state: alone, or beside attention */
} specdec__shape;

typedef struct specdec__layer {
    specdec__shape shape;
    int index;                             /* of the layers that are here, from 0 on */
    int state;                             /* of the recurrent ones that are here, from 0 on; -1: it has no state */
    float query_scale;                     /* what queries are multiplied by */
    const float *vector[SPECDEC__VECTORS]; /* padded with zeros to a multiple of 16; NULL when the model has none */
    specdec__matrix matrix[SPECDEC__MATRICES];
    float activation[4];                   /* the shape of xIELU, where that is the activation: see >>kernel/kernel */
    float sparsity;                        /* gates count by what they exceed their mean + so many standard deviations
                                              by; 0: by themselves */
    specdec__matrix table;                 /* of a head: a row for each token, looked up */
} specdec__layer;

/* What differs between architectures: traits, each with a number. A trait that a row does not name is 0, or what
   specdec__traits_usual says. Some architectures have layers of a second kind, "the others": layer i is one of them if
   bit i % PERIOD of OTHERS is set. */
enum {
    SPECDEC__NO_TRAIT,       /* ends a row */
    SPECDEC__NEOX,           /* RoPE turns pairs (i, i + dim/2), as in most models; otherwise (2i, 2i + 1), for which
                                converters have reordered Llama's rows of queries and keys */
    SPECDEC__ACTIVATION,     /* SPECDEC__SILU or another one */
    SPECDEC__UNGATED,        /* feed-forward networks have no gate: down(activation(up)) */
    SPECDEC__NEEDS,          /* bits of the optional vectors that must be there */
    SPECDEC__LACKS,          /* bits of the vectors that this one never has, though others always, or sometimes */
    SPECDEC__FFN_NORM_AS,    /* the vector whose name SPECDEC__FFN_NORM has in its files; 0: its own */
    SPECDEC__LAYER_NORM,     /* norms of x take its mean away (attention.layer_norm_epsilon) */
    SPECDEC__PARALLEL,       /* attention and feed-forward read the same norm of the same x */
    SPECDEC__NORM_TURNED,    /* norms of queries and keys, if there are any, are of what RoPE has turned */
    SPECDEC__JOINT_NORMS,    /* norms of queries and keys, if there are any, are of all heads of a row together */
    SPECDEC__PERIOD,
    SPECDEC__OTHERS,
    SPECDEC__WINDOW_KEYS,    /* keys that the others see if the file does not say; -1: all in any case */
    SPECDEC__REST_TURNS,     /* OTHER_BASE is said of the rest, where the others have windows, not of the others */
    SPECDEC__OTHER_BASE,     /* of the others' RoPE if the file does not say; 1: the rest's, but unscaled, 0: as the
                                rest, < 0: they do not rotate */
    SPECDEC__ROOT_EMBEDDING, /* embeddings are scaled by the root of their size */
    SPECDEC__WIDE_QUERIES,   /* with so many layers, queries are scaled by the root of embedding / heads, not of a
                                head */
    SPECDEC__CAP_SCORES,     /* soft cap of attention scores if the file does not say */
    SPECDEC__CAP_LOGITS,     /* soft cap of logits if the file does not say */
    SPECDEC__LOGITS_TIMES,   /* logits are multiplied by logit_scale; otherwise divided */
    SPECDEC__MUST_SAY,       /* bits of the facts that its files must give */
    SPECDEC__ROPE_BASE,      /* of RoPE, if the file does not say; 0: files must say it */
    SPECDEC__SPLIT_TURNS,    /* YaRN's bounds are not rounded to whole dimensions */
    SPECDEC__ROPE_ALSO,      /* what else its files may say of RoPE: see below */
    SPECDEC__EXPERT_SHARES,  /* whether its files may have, instead of one feed-forward network, several, of which a few
                                are chosen for a token, and how their outputs are weighted: see below */
    SPECDEC__SHARED_GATE,    /* the shared expert, as wide as a layer without experts if files do not say, is multiplied
                                by the sigmoid of what a router of its own says */
    SPECDEC__BOTH,           /* layers with experts have a network as others, too, and norms before and after each:
                                x += norm(norm(network(norm x)) + norm(experts(norm x))); routers read a norm of x, of
                                weight ffn_gate_inp.scale / root(embedding) */
    SPECDEC__SHARED_EACH,    /* expert_shared_feed_forward_length is the width of one of expert_shared_count */
    SPECDEC__QUERY_GATES,    /* each head has, behind the rows of its query, as many of a gate (in attn_q and its bias):
                                what the head attends to is multiplied by sigmoid(gate) */
    SPECDEC__MIXING,         /* the kind of its recurrent layers: SPECDEC__SHORT or another one; 0: it has none */
    SPECDEC__RECURS,         /* which layers are recurrent: see below */
    SPECDEC__CYCLES,         /* heads of recurrent layers that share a key are those equal modulo the number of keys */
    SPECDEC__EMBEDDING_NORM, /* the last norm is named token_embd_norm */
    SPECDEC__UNSCALED,       /* queries are not scaled, if the file does not say attention.scale */
    SPECDEC__NORMED_VALUES,  /* values go through a norm of each head, without a weight; a layer without attn_v has its
                                keys, as they are before norm and rotation, for values */
    SPECDEC__SHARES_KEYS,    /* the last attention.shared_kv_layers layers read the keys of the last layer before these
                                that sees as many */
    SPECDEC__LAYER_INPUTS,   /* each token has an embedding for each layer, too, if embedding_length_per_layer_input is
                                not 0: see specdec__inputs */
    SPECDEC__LATENT,         /* its attention is latent: see specdec__latent */
    SPECDEC__ALTUP,          /* how many residual streams it has, if the file does not say: see specdec__streams */
    SPECDEC__LAUREL,         /* rank of the product of matrices beside attention: see specdec__streams */
    SPECDEC__SPARSE,         /* in so many first layers gates are sparse, if the file does not say: see sparsity */
    SPECDEC__SCALES_OUTPUT,  /* a layer may end in a factor of its own, layer_output_scale */
    SPECDEC__GAPS,           /* lists in its files may have a 0 for a layer without attention, or without a
                                feed-forward network */
    SPECDEC__READS_STATES,   /* it reads hidden states of another model, and can only draft: see below */
    SPECDEC__SIGHT,          /* which keys a node sees: see below */
    SPECDEC__TRAITS
};

typedef struct specdec__trait {
    unsigned char trait;
    int value;
} specdec__trait;

static const specdec__trait specdec__traits_usual[] = {{SPECDEC__PERIOD, 1}, {SPECDEC__WINDOW_KEYS, -1}, {0, 0}};

#define SPECDEC__MOST_TRAITS 18 /* that a row names, and the end */

typedef struct specdec__architecture {
    const char *name;
    specdec__trait traits[SPECDEC__MOST_TRAITS];
} specdec__architecture;

/* That it is not done, if it is not finetuned; that it is never done; that queries grow behind the original context;
   that YaRN makes scores larger by yarn_log_multiplier, not by cosine and sine. */
enum { SPECDEC__NOTHING_ELSE, SPECDEC__MAY_REST, SPECDEC__RESTS, SPECDEC__TEMPERED, SPECDEC__SHARPENED };

/* Its one layer reads what comes of states next to embeddings (EAGLE-3); what comes of a state and the other model's
   embedding is the residual stream (assistants); what comes of states is the keys of a text, which layers read that run
   on embeddings (block drafters). */
enum { SPECDEC__NO_STATES, SPECDEC__BESIDE_EMBEDDINGS, SPECDEC__AS_STREAM, SPECDEC__AS_KEYS };

/* Those of its view, its ancestors and its own; those of its view alone, which is another model's: it has none; those
   of its view and of all nodes of the step, which are a block. */
enum { SPECDEC__SEES_ANCESTORS, SPECDEC__SEES_TEXT, SPECDEC__SEES_BLOCK };

/* Layers without attention; without attention and feed-forward network; all, beside attention; all but the last of
   every full_attention_interval, or as attention.recurrent_layers says. */
enum { SPECDEC__BARE, SPECDEC__BLANK, SPECDEC__BESIDE, SPECDEC__BETWEEN };

/* The shares of a token's experts are their values in a softmax over all experts, or, with SIGMOID, sigmoids of what
   the router says; NORMED: divided by their sum. Files may say otherwise. */
enum { SPECDEC__DENSE, SPECDEC__NORMED, SPECDEC__RAW, SPECDEC__SIGMOID = 4 };

#define SPECDEC__BIT(i) (1u << (i))
#define SPECDEC__HAS_BIT(bits, i) ((i) < 32 && (unsigned)(bits) >> (i) & 1)
#define SPECDEC__QKV_BIAS \
    (SPECDEC__BIT(SPECDEC__Q_BIAS) | SPECDEC__BIT(SPECDEC__K_BIAS) | SPECDEC__BIT(SPECDEC__V_BIAS))
#define SPECDEC__EXPERT_BIAS \
    (SPECDEC__BIT(SPECDEC__ROUTER_BIAS) | SPECDEC__BIT(SPECDEC__EXPERT_GATE_BIAS) | \
     SPECDEC__BIT(SPECDEC__EXPERT_UP_BIAS) | SPECDEC__BIT(SPECDEC__EXPERT_DOWN_BIAS))
#define SPECDEC__QK_NORM (SPECDEC__BIT(SPECDEC__Q_NORM) | SPECDEC__BIT(SPECDEC__K_NORM))
#define SPECDEC__BEFORE (SPECDEC__BIT(SPECDEC__ATTENTION_NORM) | SPECDEC__BIT(SPECDEC__FFN_NORM))
#define SPECDEC__AFTER (SPECDEC__BIT(SPECDEC__AFTER_ATTENTION) | SPECDEC__BIT(SPECDEC__AFTER_FFN))
#define SPECDEC__SCALES \
    (SPECDEC__BIT(SPECDEC__EMBEDDING_SCALE) | SPECDEC__BIT(SPECDEC__RESIDUAL_SCALE) | \
     SPECDEC__BIT(SPECDEC__LOGIT_SCALE))

static const specdec__architecture specdec__architectures[] = {
    {"llama", {{SPECDEC__ROPE_BASE, 10000}, {SPECDEC__EXPERT_SHARES, SPECDEC__NORMED}}},
    {"qwen2", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__QKV_BIAS}}},
    {"qwen3", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__QK_NORM}}},
    {"gemma", {{SPECDEC__NEOX, 1}, {SPECDEC__ACTIVATION, SPECDEC__GELU}, {SPECDEC__ROOT_EMBEDDING, 1},
               {SPECDEC__ROPE_BASE, 10000}}},
    {"gemma2", {{SPECDEC__NEOX, 1}, {SPECDEC__ACTIVATION, SPECDEC__GELU}, {SPECDEC__NEEDS, SPECDEC__AFTER},
                {SPECDEC__PERIOD, 2}, {SPECDEC__OTHERS, 1}, {SPECDEC__WINDOW_KEYS, 4096}, {SPECDEC__ROOT_EMBEDDING, 1},
                {SPECDEC__WIDE_QUERIES, 46}, {SPECDEC__CAP_SCORES, 50}, {SPECDEC__CAP_LOGITS, 30},
                {SPECDEC__ROPE_BASE, 10000}}},
    {"gemma3", {{SPECDEC__NEOX, 1}, {SPECDEC__ACTIVATION, SPECDEC__GELU},
                {SPECDEC__NEEDS, SPECDEC__AFTER | SPECDEC__QK_NORM}, {SPECDEC__PERIOD, 6}, {SPECDEC__OTHERS, 31},
                {SPECDEC__WINDOW_KEYS, 1 << 30}, {SPECDEC__OTHER_BASE, 10000}, {SPECDEC__ROOT_EMBEDDING, 1},
                {SPECDEC__WIDE_QUERIES, 62}}},
    {"gemma4", {{SPECDEC__NEOX, 1}, {SPECDEC__ACTIVATION, SPECDEC__GELU},
                {SPECDEC__NEEDS, SPECDEC__AFTER | SPECDEC__QK_NORM}, {SPECDEC__PERIOD, 6}, {SPECDEC__OTHERS, 31},
                {SPECDEC__WINDOW_KEYS, 1 << 30}, {SPECDEC__OTHER_BASE, 10000}, {SPECDEC__ROOT_EMBEDDING, 1},
                {SPECDEC__UNSCALED, 1}, {SPECDEC__NORMED_VALUES, 1}, {SPECDEC__SHARES_KEYS, 1},
                {SPECDEC__LAYER_INPUTS, 1}, {SPECDEC__SCALES_OUTPUT, 1},
                {SPECDEC__EXPERT_SHARES, SPECDEC__NORMED}, {SPECDEC__BOTH, 1}}},
    {"gemma3n", {{SPECDEC__NEOX, 1}, {SPECDEC__ACTIVATION, SPECDEC__GELU},
                 {SPECDEC__NEEDS, SPECDEC__AFTER | SPECDEC__QK_NORM}, {SPECDEC__PERIOD, 5}, {SPECDEC__OTHERS, 15},
                 {SPECDEC__WINDOW_KEYS, 1 << 30}, {SPECDEC__OTHER_BASE, 10000}, {SPECDEC__ROOT_EMBEDDING, 1},
                 {SPECDEC__UNSCALED, 1}, {SPECDEC__NORMED_VALUES, 1}, {SPECDEC__SHARES_KEYS, 1},
                 {SPECDEC__CAP_LOGITS, 30}, {SPECDEC__LAYER_INPUTS, 1}, {SPECDEC__ALTUP, 4}, {SPECDEC__LAUREL, 64},
                 {SPECDEC__SPARSE, 10}}},
    {"phi3", {{SPECDEC__NEOX, 1}, {SPECDEC__OTHERS, 1}, {SPECDEC__WINDOW_KEYS, 1 << 30}, {SPECDEC__ROPE_BASE, 10000}}},
    {"deepseek2", {{SPECDEC__LATENT, 1}, {SPECDEC__ROPE_ALSO, SPECDEC__SHARPENED}, {SPECDEC__ROPE_BASE, 10000},
                   {SPECDEC__EXPERT_SHARES, SPECDEC__RAW}}},
    {"smollm3", {{SPECDEC__PERIOD, 4}, {SPECDEC__OTHERS, 8}, {SPECDEC__OTHER_BASE, -1}}},
    {"granite", {{SPECDEC__MUST_SAY, SPECDEC__BIT(SPECDEC__LOGIT_SCALE)}, {SPECDEC__ROPE_BASE, 10000},
                 {SPECDEC__ROPE_ALSO, SPECDEC__MAY_REST}}},
    {"granitemoe", {{SPECDEC__MUST_SAY, SPECDEC__BIT(SPECDEC__LOGIT_SCALE)}, {SPECDEC__ROPE_BASE, 10000},
                    {SPECDEC__ROPE_ALSO, SPECDEC__MAY_REST}, {SPECDEC__EXPERT_SHARES, SPECDEC__NORMED}}},
    {"qwen3moe", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__QK_NORM}, {SPECDEC__EXPERT_SHARES, SPECDEC__NORMED}}},
    {"qwen3vlmoe", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__QK_NORM},
                    {SPECDEC__EXPERT_SHARES, SPECDEC__NORMED}}},
    {"olmoe", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__QK_NORM}, {SPECDEC__JOINT_NORMS, 1},
               {SPECDEC__ROPE_BASE, 10000}, {SPECDEC__EXPERT_SHARES, SPECDEC__RAW}}},
    {"mistral3", {{SPECDEC__ROPE_ALSO, SPECDEC__TEMPERED}}},
    {"ernie4_5", {{0, 0}}},
    {"minicpm", {{SPECDEC__MUST_SAY, SPECDEC__SCALES}, {SPECDEC__ROPE_BASE, 10000}}},
    {"internlm2", {{0, 0}}},
    {"qwen2vl", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__QKV_BIAS}}},
    {"qwen3vl", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__QK_NORM}}},
    {"glm4", {{SPECDEC__NEEDS, SPECDEC__AFTER}, {SPECDEC__ROPE_BASE, 10000}}},
    {"exaone", {{SPECDEC__NEOX, 1}}},
    {"lfm2", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__QK_NORM}, {SPECDEC__GAPS, 1},
              {SPECDEC__MIXING, SPECDEC__SHORT}, {SPECDEC__EMBEDDING_NORM, 1}}},
    {"granitehybrid", {{SPECDEC__MUST_SAY, SPECDEC__BIT(SPECDEC__LOGIT_SCALE)}, {SPECDEC__ROPE_BASE, 10000},
                       {SPECDEC__ROPE_ALSO, SPECDEC__MAY_REST}, {SPECDEC__EXPERT_SHARES, SPECDEC__NORMED},
                       {SPECDEC__GAPS, 1}, {SPECDEC__MIXING, SPECDEC__MAMBA2}}},
    {"exaone4", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__AFTER | SPECDEC__QK_NORM},
                 {SPECDEC__LACKS, SPECDEC__BEFORE}, {SPECDEC__PERIOD, 4}, {SPECDEC__OTHERS, 7},
                 {SPECDEC__WINDOW_KEYS, 1 << 30}, {SPECDEC__OTHER_BASE, -1}, {SPECDEC__REST_TURNS, 1}}},
    {"olmo2", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__AFTER | SPECDEC__QK_NORM},
               {SPECDEC__LACKS, SPECDEC__BEFORE}, {SPECDEC__JOINT_NORMS, 1}, {SPECDEC__PERIOD, 4},
               {SPECDEC__OTHERS, 7}, {SPECDEC__WINDOW_KEYS, 1 << 30}, {SPECDEC__OTHER_BASE, 1}}},
    {"cohere2", {{SPECDEC__LAYER_NORM, 1}, {SPECDEC__PARALLEL, 1}, {SPECDEC__LACKS, SPECDEC__BIT(SPECDEC__FFN_NORM)},
                 {SPECDEC__PERIOD, 4}, {SPECDEC__OTHERS, 7}, {SPECDEC__WINDOW_KEYS, 4096}, {SPECDEC__OTHER_BASE, -1},
                 {SPECDEC__REST_TURNS, 1}, {SPECDEC__LOGITS_TIMES, 1}}},
    {"seed_oss", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__QKV_BIAS},
                  {SPECDEC__FFN_NORM_AS, SPECDEC__AFTER_ATTENTION},
                  {SPECDEC__LACKS, SPECDEC__BIT(SPECDEC__AFTER_ATTENTION)}}},
    {"hunyuan-dense", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__QK_NORM}, {SPECDEC__NORM_TURNED, 1}}},
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
                 {SPECDEC__LACKS, SPECDEC__BIT(SPECDEC__AFTER_ATTENTION)}, {SPECDEC__PERIOD, 2}, {SPECDEC__OTHERS, 1},
                 {SPECDEC__WINDOW_KEYS, 128}, {SPECDEC__SPLIT_TURNS, 1}, {SPECDEC__EXPERT_SHARES, SPECDEC__NORMED}}},
    {"arcee", {{SPECDEC__ACTIVATION, SPECDEC__RELU}, {SPECDEC__UNGATED, 1}}},
    {"apertus", {{SPECDEC__NEOX, 1}, {SPECDEC__ACTIVATION, SPECDEC__XIELU}, {SPECDEC__UNGATED, 1},
                 {SPECDEC__NEEDS, SPECDEC__QK_NORM}}},
    {"qwen35", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__QK_NORM}, {SPECDEC__QUERY_GATES, 1},
                {SPECDEC__FFN_NORM_AS, SPECDEC__AFTER_ATTENTION},
                {SPECDEC__LACKS, SPECDEC__BIT(SPECDEC__AFTER_ATTENTION)}, {SPECDEC__MIXING, SPECDEC__DELTA},
                {SPECDEC__RECURS, SPECDEC__BETWEEN}, {SPECDEC__CYCLES, 1}}},
    {"qwen35moe", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__QK_NORM}, {SPECDEC__QUERY_GATES, 1},
                   {SPECDEC__FFN_NORM_AS, SPECDEC__AFTER_ATTENTION},
                   {SPECDEC__LACKS, SPECDEC__BIT(SPECDEC__AFTER_ATTENTION)}, {SPECDEC__MIXING, SPECDEC__DELTA},
                   {SPECDEC__RECURS, SPECDEC__BETWEEN}, {SPECDEC__CYCLES, 1}, {SPECDEC__EXPERT_SHARES, SPECDEC__NORMED},
                   {SPECDEC__SHARED_GATE, 1}}},
    {"qwen3next", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__QK_NORM}, {SPECDEC__QUERY_GATES, 1},
                   {SPECDEC__FFN_NORM_AS, SPECDEC__AFTER_ATTENTION},
                   {SPECDEC__LACKS, SPECDEC__BIT(SPECDEC__AFTER_ATTENTION)}, {SPECDEC__MIXING, SPECDEC__DELTA},
                   {SPECDEC__RECURS, SPECDEC__BETWEEN}, {SPECDEC__EXPERT_SHARES, SPECDEC__NORMED},
                   {SPECDEC__SHARED_GATE, 1}}},
    {"lfm2moe", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__QK_NORM}, {SPECDEC__GAPS, 1},
                 {SPECDEC__MIXING, SPECDEC__SHORT}, {SPECDEC__EMBEDDING_NORM, 1},
                 {SPECDEC__EXPERT_SHARES, SPECDEC__NORMED | SPECDEC__SIGMOID}}},
    {"falcon-h1", {{SPECDEC__NEOX, 1}, {SPECDEC__MIXING, SPECDEC__MAMBA2}, {SPECDEC__RECURS, SPECDEC__BESIDE},
                   {SPECDEC__FFN_NORM_AS, SPECDEC__FFN_NORM_BARE}}},
    {"nemotron_h", {{SPECDEC__ROPE_ALSO, SPECDEC__RESTS}, {SPECDEC__ROPE_BASE, 10000}, {SPECDEC__GAPS, 1},
                    {SPECDEC__ACTIVATION, SPECDEC__RELU}, {SPECDEC__UNGATED, 1},
                    {SPECDEC__MIXING, SPECDEC__MAMBA2}, {SPECDEC__RECURS, SPECDEC__BLANK},
                    {SPECDEC__FFN_NORM_AS, SPECDEC__FFN_NORM_FIRST}}},
    {"nemotron_h_moe", {{SPECDEC__ROPE_ALSO, SPECDEC__RESTS}, {SPECDEC__ROPE_BASE, 10000}, {SPECDEC__GAPS, 1},
                        {SPECDEC__ACTIVATION, SPECDEC__RELU}, {SPECDEC__UNGATED, 1},
                        {SPECDEC__MIXING, SPECDEC__MAMBA2}, {SPECDEC__RECURS, SPECDEC__BLANK},
                        {SPECDEC__FFN_NORM_AS, SPECDEC__FFN_NORM_FIRST},
                        {SPECDEC__EXPERT_SHARES, SPECDEC__NORMED | SPECDEC__SIGMOID}}},
    /* EAGLE-3 (Li et al. 2025, arXiv 2503.01840) */
    {"eagle3", {{SPECDEC__NEEDS, SPECDEC__BIT(SPECDEC__READ_NORM)},
                {SPECDEC__READS_STATES, SPECDEC__BESIDE_EMBEDDINGS}}},
    {"gemma4-assistant", {{SPECDEC__NEOX, 1}, {SPECDEC__ACTIVATION, SPECDEC__GELU},
                          {SPECDEC__NEEDS, SPECDEC__AFTER | SPECDEC__QK_NORM}, {SPECDEC__PERIOD, 6},
                          {SPECDEC__OTHERS, 31}, {SPECDEC__WINDOW_KEYS, 1 << 30}, {SPECDEC__OTHER_BASE, 10000},
                          {SPECDEC__UNSCALED, 1}, {SPECDEC__SCALES_OUTPUT, 1},
                          {SPECDEC__READS_STATES, SPECDEC__AS_STREAM}, {SPECDEC__SIGHT, SPECDEC__SEES_TEXT}}},
    {"dflash", {{SPECDEC__NEOX, 1}, {SPECDEC__NEEDS, SPECDEC__QK_NORM}, {SPECDEC__OTHERS, 1},
                {SPECDEC__WINDOW_KEYS, 1 << 30}, {SPECDEC__READS_STATES, SPECDEC__AS_KEYS},
                {SPECDEC__SIGHT, SPECDEC__SEES_BLOCK}}},
};

/* What a trait is for an architecture. */
static int specdec__architecture_trait(const specdec__architecture *a, int trait)
{
    const specdec__trait *const lists[] = {a->traits, specdec__traits_usual};
    const specdec__trait *t;
    size_t i;

    for (i = 0; i < SPECDEC__COUNT(lists); i++)
        for (t = lists[i]; t->trait; t++)
            if (t->trait == trait)
                return t->value;
    return 0;
}

/* A file of heads, which guess the next tokens from a state of the target. What a head reads is the target's state, or,
   where heads follow each other, that of the head before it. Its state is activation(norm(input * that + row of the
   last token in table) + bias), plus what it has read if it adds; its output times that are the logits. In names of
   tensors # stands for "." and the number of the head, or for nothing where all heads share the tensor. */
typedef struct specdec__heads_kind {
    const char *name;
    int follow, adds, activation;
    const char *output, *input, *table, *norm, *bias; /* NULL: none */
} specdec__heads_kind;

static const specdec__heads_kind specdec__heads_kinds[] = {
    /* Wertheimer et al. 2024, arXiv 2404.19124 */
    {"mlp_speculator", 1, 0, SPECDEC__GELU_EXACT, "speculator.head#.weight", "speculator.proj#.weight",
     "speculator.emb#.weight", "speculator.ln#.weight", "speculator.ln#.bias"},
    /* Cai et al. 2024, arXiv 2401.10774 */
    {"medusa", 0, 1, SPECDEC__SILU, "medusa#.head.weight", "medusa#.block.0.weight", NULL, NULL,
     "medusa#.block.0.bias"},
};

/* Sizes of layers that a file may say once, or in a list with a number for each layer. */
enum {
    SPECDEC__LIST_HEADS, SPECDEC__LIST_KV_HEADS, SPECDEC__LIST_KEY, SPECDEC__LIST_VALUE, SPECDEC__LIST_ROPE,
    SPECDEC__LIST_FF,
    SPECDEC__LIST_WINDOW_KEY, SPECDEC__LIST_WINDOW_VALUE, SPECDEC__LIST_WINDOW_ROPE, /* of layers with a window */
    SPECDEC__LISTS
};

#define SPECDEC__MAX_HEADS 8
#define SPECDEC__MAX_READS 8
#define SPECDEC__MAX_BLOCK 64 /* tokens that are drafted in one pass, the root's included */

/* What a model that reads states needs beside its layers. The states of a target after so many layers, one behind the
   other, times `matrix` are what it reads; of an assistant, the target's embedding of a token and the state behind the
   token before it. Or, of a block that predicts (see >>model/nextn), the layer reads `matrix` times the norm of an
   embedding and, behind it, that of the state. */
typedef struct specdec__reads {
    specdec__matrix matrix;         /* (embedding, count * width), or (embedding, embedding + width) */
    const float *token_norm, *state_norm; /* (embedding), (width): of a block that predicts; else NULL */
    const float *after;             /* (embedding) weights of a norm behind the matrix; NULL: none */
    specdec__matrix out;            /* of an assistant, (width, embedding): of its last norm, what stands for a state */
    int centroids, nearest;         /* then its output has a row for each of so many centroids, 0: for each token; and
                                       of a row of states so many of them tell which tokens have logits */
    const int32_t *order;           /* (vocabulary): the tokens of the first centroid, of the next one, ... */
    const float *norm;              /* (count * width) weights of a norm of the states before that; NULL: none */
    int layers[SPECDEC__MAX_READS]; /* (count) */
    int count, width;               /* width: of the target */
    int norm_first;                 /* the residual stream begins with the norm of what is read */
    int joined;                     /* it is such a block */
} specdec__reads;

/* What a model that drafts a block in one pass needs beside its layers (DFlash: Chen et al. 2026, arXiv 2602.06036).
   The block is the root's token and masks behind it. With w[t] row t of a matrix w, the logits of row i behind token s:
     DSpark:  logits[i] + markov_out markov_in[s]; how far to trust them: sigmoid(trust [state[i], markov_in[s]])
     DFlash2: of the `candidates` tokens t with the largest logits[i] alone,
              logits[i][t] + sum over r of before[s][r] (hidden state[i])[r] after[t][r]
   and in a layer a convolution before and one behind both halves: with h what a half reads, c = conv h, it makes of
   rows x sums over taps of (c[i][side][tap][group of d] + base[side][tap][d]) x[i - tap][d]. */
typedef struct specdec__block {
    int size, first;               /* its tokens; the row of the draft token behind the root: 0, or 1 */
    int32_t mask;
    int taps, group;               /* of the convolutions, 0: there are none; dimensions that share weights */
    specdec__matrix markov_in, markov_out, trust;   /* (vocabulary, rank), (output rows, rank), (1, embedding + rank) */
    float trust_bias;
    int candidates;                /* 0: all tokens */
    specdec__matrix before, after, hidden;          /* (vocabulary, rank), (output rows, rank), (rank, embedding) */
} specdec__block;

/* Embeddings that each token has for each layer, beside that of the first one. With x0 the latter, layer l reads
       e[l] = (root(width) * row of the table[l] + norm(matrix x0 / root(embedding))[l]) / root(2)
   and ends in x += norm(out(activation(gate x) * e[l])). Gemma 3n, Gemma 4. */
typedef struct specdec__inputs {
    int width;              /* of e[l]; 0: there are none */
    specdec__matrix table;  /* (vocabulary, layers * width), looked up where it lies in the file */
    specdec__matrix matrix; /* (layers * width, embedding) */
    const float *norm;      /* (width) */
} specdec__inputs;

#define SPECDEC__MOST_STREAMS 4

/* Several residual streams, of which a layer works on the first, x (AltUp: Baykal et al. 2023, arXiv 2301.13310), in
   Gemma 3n. The others begin as matrices times x, of its length. A layer predicts streams as sums of all, by weights
   that are the layer's matrix times tanh(router norm(x) / embedding); afterwards all grow by what it adds to x, each by
   a factor that is made likewise of the new x. Behind the last layer their mean is taken, once matrices have been
   applied to the others, of the length of x again. What layers make of their inputs is added to the others only.
       Beside attention is a product of two matrices (LAuReL: Menghani et al. 2024, arXiv 2411.07501): with h, what
   attention reads, x becomes (x + attention h + h + norm(up(down h))) / root(2). */
typedef struct specdec__streams {
    int count;                                            /* 0: there is but x */
    specdec__matrix matrix[2][SPECDEC__MOST_STREAMS - 1]; /* (embedding, embedding): of the beginning, of the end */
} specdec__streams;

/* Sizes of latent attention: see >>forward/latent. Shapes of layers are as the cache sees them: one kv head, whose keys
   are what rotates and a latent row, and whose values are the latter. */
typedef struct specdec__latent {
    int rank;               /* of a latent row; 0: attention is not latent */
    int query_rank;         /* of the rows that queries are made of; 0: they are made of the layer's input */
    int key_dim, value_dim; /* of a head, before and after its matrices: a query is what stays still, what rotates */
} specdec__latent;

typedef struct specdec_model {
    const specdec__architecture *architecture; /* NULL: heads */
    int trait[SPECDEC__TRAITS];                /* of the architecture; heads: all 0 */
    const specdec__heads_kind *speculator;     /* NULL: none. Else feed_forward is the width of the heads' states, */
    int guesses, tied;                         /* how many they are, and whether they share all but the first input */
    const float *input_norm;                   /* (embedding) weights of a norm of the target's state; NULL: none */
    const int32_t *ids;                        /* (id_count) tokens that rows of logits stand for; NULL: all of them */
    int id_count;
    int layers, embedding, context, vocab_size;
    int heads, kv_heads, head_dim, feed_forward; /* the largest of any layer; head_dim: of keys and values */
    int q_width, k_width, v_width, o_width;  /* the largest rows of any layer: heads times sizes of a head */
    int rope_dim[SPECDEC__ROPES];            /* dimensions that are rotated */
    int expert_ff;                           /* width of the feed-forward network of an expert */
    int nextn;                               /* blocks behind the layers that only predict: they are not run */
    specdec__gguf_value list[SPECDEC__LISTS]; /* sizes of layers; items NULL: the file does not say them */
    int experts, chosen;                     /* networks of a layer, 0: it is one; how many of them a token visits */
    int leading, every;                      /* layers before the first that may have experts; of these, every so
                                                many-th has them */
    int shared_ff, latent;                   /* width of the shared expert, 0: none; of what experts read, 0: as x */
    int sigmoid, normed;                     /* how they are weighted: see SPECDEC__SIGMOID */
    int groups, groups_chosen;               /* runs of as many experts; those that experts are chosen from */
    float expert_scale;                      /* of their shares */
    int first, all;                          /* layers of the model before these, if it is a part of one; all of them */
    int bare;                                /* the output head is another part's */
    int span_layers[SPECDEC__SPANS], window; /* keys that layers of SPECDEC__WINDOW see */
    int span_used[SPECDEC__SPANS];           /* whether any layer of the model, here or not, is of that span */
    specdec__mixing mixing;                  /* of recurrent layers */
    specdec__gguf_value recurrent;           /* a list that says which layers they are; items NULL: there is none */
    int interval;                            /* without it, of so many layers the last has attention */
    specdec__gguf_value pattern;             /* which layers are the others; see specdec__model_pattern */
    float fact[SPECDEC__FACTS];              /* a query scale of 0: see the layer's */
    float query_growth;                      /* queries at p times the original context are scaled by 1 + this * log(1 +
                                                floor(p)) */
    float epsilon, rope_base, rope_scale[SPECDEC__ROPES] /* of cosine and sine: YaRN's attention factor */;
    double *rope_frequency[SPECDEC__ROPES]; /* (rope_dim / 2) radians a position; NULL: no layer has it */
    int rope_original;                      /* contexts above this are long */
    specdec__layer *layer;
    specdec__matrix token_embedding, output; /* without a type: the target's, where the architecture reads states */
    const float *output_norm;
    specdec__reads reads;
    specdec__block block;
    specdec__inputs inputs;
    specdec__streams streams;
    specdec__latent latent_attention;
    float query_factor;       /* of all query scales */
    int sharing;              /* layers at the end that read the keys of others */
    const float *ones;        /* (head_dim, padded) weights of norms that have none; NULL: no norm lacks one */
    size_t weight_bytes;      /* bytes of all matrices that a step reads */
    size_t tile_bytes;        /* the same, repacked: rows padded to 16 */
    uint64_t weight_products; /* multiply-adds a token */
    specdec__vocab vocab;
    specdec__bytes chat_template;
    const specdec__chat *chat; /* as the template says; NULL: there is none, or nobody has looked yet */
    specdec__gguf gguf;       /* of a model in several files, the first */
    int parts, tensors;       /* files that it is in: see >>model/parts; tensors in all of them */
    size_t part_bytes;        /* that the files take in memory */
    specdec__bytes mapped;    /* to be unmapped at the end; empty when the caller lent memory */
} specdec__model;

/* Dimensions that a tensor's shape is checked against. A layer for which one of them is 0 lacks the tensor. */
enum {
    SPECDEC__DIM_E, SPECDEC__DIM_Q, SPECDEC__DIM_K, SPECDEC__DIM_V, SPECDEC__DIM_O, SPECDEC__DIM_FF,
    SPECDEC__DIM_EXPERTS,
    SPECDEC__DIM_X, SPECDEC__DIM_X_FF, SPECDEC__DIM_X_GATE, /* of an expert: what it reads, its width, its gate's */
    SPECDEC__DIM_SHARED, SPECDEC__DIM_SHARED_GATE, /* 1: there is a shared expert; it has a router */
    SPECDEC__DIM_LATENT,
    SPECDEC__DIM_GATE,   /* of a feed-forward network's gate, which some lack */
    SPECDEC__DIM_Q_ROWS, /* of queries and, where each has one, their gates */
    SPECDEC__DIM_READ, /* what a layer's first matrices read: embedding, or embedding and states */
    SPECDEC__DIM_Q_NORM, SPECDEC__DIM_K_NORM, SPECDEC__DIM_HEADS,
    SPECDEC__DIM_INPUT, SPECDEC__DIM_AFTER_INPUT, /* of an embedding for a layer, and of what comes of it */
    SPECDEC__DIM_NORMS_OF_BOTH, /* of norms in layers with experts and a network */
    SPECDEC__DIM_SCALE, /* 1 */
    SPECDEC__DIM_STREAMS, SPECDEC__DIM_PREDICTIONS, SPECDEC__DIM_CORRECTIONS, SPECDEC__DIM_STREAM_NORMS,
    SPECDEC__DIM_LAUREL,
    SPECDEC__DIM_CONV, SPECDEC__DIM_CONV_BASE,
    SPECDEC__DIM_LOW, SPECDEC__DIM_LOW_Q, SPECDEC__DIM_LATENT_KEY, SPECDEC__DIM_RANK, /* of latent attention: ranks */
    SPECDEC__DIM_STILL, SPECDEC__DIM_LATENT_VALUE,                 /* and sizes of a head */
    SPECDEC__DIM_OWN,   /* no dimension: whether keys and values are the layer's own */
    /* of recurrent layers of one kind, or of several */
    SPECDEC__DIM_SHORT, SPECDEC__DIM_SHORT_ROWS, SPECDEC__DIM_SHORT_TAPS,
    SPECDEC__DIM_SSM_ROWS, SPECDEC__DIM_SSM_HEADS, SPECDEC__DIM_SSM_NORMS, SPECDEC__DIM_SSM_NORM,
    SPECDEC__DIM_QKV, SPECDEC__DIM_MIX_GATE, SPECDEC__DIM_BETA, SPECDEC__DIM_BOTH, SPECDEC__DIM_DELTA_NORM,
    SPECDEC__DIM_INNER, SPECDEC__DIM_CHANNELS, SPECDEC__DIM_STATE_HEADS, SPECDEC__DIM_SSM_TAPS, SPECDEC__DIM_TAPS,
    SPECDEC__DIM_COUNT
};

enum { SPECDEC__ALONE, SPECDEC__EACH_EXPERT, SPECDEC__EACH_HEAD };

/* shared: its name in a shared expert. each: of what the tensor holds one each, one behind the other. */
static const struct {
    const char *suffix, *shared;
    unsigned char rows, columns, each;
} specdec__matrix_table[SPECDEC__MATRICES] = {
    {"attn_q.weight", NULL, SPECDEC__DIM_Q_ROWS, SPECDEC__DIM_READ, 0},
    {"attn_k.weight", NULL, SPECDEC__DIM_K, SPECDEC__DIM_READ, 0},
    {"attn_v.weight", NULL, SPECDEC__DIM_V, SPECDEC__DIM_READ, 0},
    {"attn_output.weight", NULL, SPECDEC__DIM_E, SPECDEC__DIM_O, 0},
    {"ffn_gate.weight", "ffn_gate_shexp.weight", SPECDEC__DIM_GATE, SPECDEC__DIM_E, 0},
    {"ffn_up.weight", "ffn_up_shexp.weight", SPECDEC__DIM_FF, SPECDEC__DIM_E, 0},
    {"ffn_down.weight", "ffn_down_shexp.weight", SPECDEC__DIM_E, SPECDEC__DIM_FF, 0},
    {"ffn_gate_exps.weight", NULL, SPECDEC__DIM_X_GATE, SPECDEC__DIM_X, SPECDEC__EACH_EXPERT},
    {"ffn_up_exps.weight", NULL, SPECDEC__DIM_X_FF, SPECDEC__DIM_X, SPECDEC__EACH_EXPERT},
    {"ffn_down_exps.weight", NULL, SPECDEC__DIM_X, SPECDEC__DIM_X_FF, SPECDEC__EACH_EXPERT},
    {"ffn_gate_inp.weight", NULL, SPECDEC__DIM_EXPERTS, SPECDEC__DIM_E, 0},
    {"ffn_gate_inp_shexp.weight", NULL, SPECDEC__DIM_SHARED_GATE, SPECDEC__DIM_E, 0},
    {"ffn_latent_down.weight", NULL, SPECDEC__DIM_LATENT, SPECDEC__DIM_E, 0},
    {"ffn_latent_up.weight", NULL, SPECDEC__DIM_E, SPECDEC__DIM_LATENT, 0},
    {"inp_gate.weight", NULL, SPECDEC__DIM_INPUT, SPECDEC__DIM_E, 0},
    {"proj.weight", NULL, SPECDEC__DIM_E, SPECDEC__DIM_INPUT, 0},
    {"altup_router.weight", NULL, SPECDEC__DIM_STREAMS, SPECDEC__DIM_E, 0},
    {"laurel_l.weight", NULL, SPECDEC__DIM_LAUREL, SPECDEC__DIM_E, 0},
    {"laurel_r.weight", NULL, SPECDEC__DIM_E, SPECDEC__DIM_LAUREL, 0},
    {"attn_conv_proj.weight", NULL, SPECDEC__DIM_CONV, SPECDEC__DIM_E, 0},
    {"ffn_conv_proj.weight", NULL, SPECDEC__DIM_CONV, SPECDEC__DIM_E, 0},
    {"attn_q_a.weight", NULL, SPECDEC__DIM_LOW, SPECDEC__DIM_E, 0},
    {"attn_q_b.weight", NULL, SPECDEC__DIM_LOW_Q, SPECDEC__DIM_LOW, 0},
    {"attn_kv_a_mqa.weight", NULL, SPECDEC__DIM_LATENT_KEY, SPECDEC__DIM_E, 0},
    {"attn_k_b.weight", NULL, SPECDEC__DIM_RANK, SPECDEC__DIM_STILL, SPECDEC__EACH_HEAD},
    {"attn_v_b.weight", NULL, SPECDEC__DIM_LATENT_VALUE, SPECDEC__DIM_RANK, SPECDEC__EACH_HEAD},
    {"shortconv.in_proj.weight", NULL, SPECDEC__DIM_SHORT_ROWS, SPECDEC__DIM_E, 0},
    {"shortconv.out_proj.weight", NULL, SPECDEC__DIM_E, SPECDEC__DIM_SHORT, 0},
    {"ssm_in.weight", NULL, SPECDEC__DIM_SSM_ROWS, SPECDEC__DIM_E, 0},
    {"ssm_out.weight", NULL, SPECDEC__DIM_E, SPECDEC__DIM_INNER, 0},
    {"attn_qkv.weight", NULL, SPECDEC__DIM_QKV, SPECDEC__DIM_E, 0},
    {"attn_gate.weight", NULL, SPECDEC__DIM_MIX_GATE, SPECDEC__DIM_E, 0},
    {"ssm_beta.weight", NULL, SPECDEC__DIM_BETA, SPECDEC__DIM_E, 0},
    {"ssm_alpha.weight", NULL, SPECDEC__DIM_BETA, SPECDEC__DIM_E, 0},
    {"ssm_ba.weight", NULL, SPECDEC__DIM_BOTH, SPECDEC__DIM_E, 0}};

/* Tensors that hold the rows of `count` matrices from `matrix` on, one below the other, and those of their biases, from
   vector `vector` on; where no tensor has the first one's name. Any architecture's files may have them. */
typedef struct specdec__fused {
    const char *weight, *bias; /* NULL: there are none */
    unsigned char matrix, vector, count;
    unsigned char sized; /* one matrix may have this name, too: it is fused if it has the rows of all */
} specdec__fused;

static const specdec__fused specdec__fused_table[] = {
    {"attn_qkv.weight", "attn_qkv.bias", SPECDEC__Q, SPECDEC__Q_BIAS, 3, 0},
    {"ffn_gate_up.weight", "ffn_gate_up.bias", SPECDEC__GATE, SPECDEC__GATE_BIAS, 2, 0},
    {"ffn_gate_up_exps.weight", NULL, SPECDEC__EXPERT_GATE, SPECDEC__EXPERT_GATE_BIAS, 2, 0},
    {"ffn_up.weight", "ffn_up.bias", SPECDEC__GATE, SPECDEC__GATE_BIAS, 2, 1}};

/* may_lack: 0 stands for layers without it. */
static const struct { const char *suffix; int high; unsigned char needed, may_lack; } specdec__list_table[] = {
    {".attention.head_count", 4096, 1, 1}, {".attention.head_count_kv", 4096, 0, 1},
    {".attention.key_length", 4096, 0, 0}, {".attention.value_length", 4096, 0, 0},
    {".rope.dimension_count", 4096, 0, 0}, {".feed_forward_length", SPECDEC__MAX_DIMENSION, 0, 1},
    {".attention.key_length_swa", 4096, 0, 0}, {".attention.value_length_swa", 4096, 0, 0},
    {".rope.dimension_count_swa", 4096, 0, 0}};

static const char *const specdec__fact_table[SPECDEC__FACTS] = {".embedding_scale",        ".attention.scale",
                                                                ".residual_scale",         ".logit_scale",
                                                                ".attn_logit_softcapping", ".final_logit_softcapping"};

/* How much a vector is wanted: always, where it is there, or only by rows that name it, which then must have it. */
enum { SPECDEC__IF_THERE, SPECDEC__ALWAYS, SPECDEC__IF_NAMED };

/* each: there is one for each expert, one behind the other. */
static const struct {
    const char *suffix;
    unsigned char size, wanted, each;
} specdec__vector_table[SPECDEC__VECTORS] = {
    {"attn_norm.weight", SPECDEC__DIM_E, SPECDEC__ALWAYS, 0}, {"ffn_norm.weight", SPECDEC__DIM_E, SPECDEC__ALWAYS, 0},
    {"attn_q_norm.weight", SPECDEC__DIM_Q_NORM, 0, 0}, {"attn_k_norm.weight", SPECDEC__DIM_K_NORM, 0, 0},
    {"post_attention_norm.weight", SPECDEC__DIM_E, 0, 0}, {"post_ffw_norm.weight", SPECDEC__DIM_E, 0, 0},
    {"attn_norm_2.weight", SPECDEC__DIM_E, SPECDEC__IF_NAMED, 0},
    {"attn_q.bias", SPECDEC__DIM_Q_ROWS, 0, 0}, {"attn_k.bias", SPECDEC__DIM_K, 0, 0},
    {"attn_v.bias", SPECDEC__DIM_V, 0, 0}, {"attn_output.bias", SPECDEC__DIM_E, 0, 0},
    {"ffn_gate.bias", SPECDEC__DIM_GATE, 0, 0}, {"ffn_up.bias", SPECDEC__DIM_FF, 0, 0},
    {"ffn_down.bias", SPECDEC__DIM_E, 0, 0},
    {"attn_sinks.weight", SPECDEC__DIM_HEADS, SPECDEC__IF_NAMED, 0},
    {"ffn_gate_inp.bias", SPECDEC__DIM_EXPERTS, 0, 0}, {"exp_probs_b.bias", SPECDEC__DIM_EXPERTS, 0, 0},
    {"ffn_gate_exps.bias", SPECDEC__DIM_X_GATE, 0, 1}, {"ffn_up_exps.bias", SPECDEC__DIM_X_FF, 0, 1},
    {"ffn_down_exps.bias", SPECDEC__DIM_X, 0, 1},
    {"ffn_norm", SPECDEC__DIM_E, SPECDEC__IF_NAMED, 0}, {"attn_norm.weight", SPECDEC__DIM_E, SPECDEC__IF_NAMED, 0},
    {"post_norm.weight", SPECDEC__DIM_AFTER_INPUT, SPECDEC__ALWAYS, 0},
    {"layer_output_scale.weight", SPECDEC__DIM_SCALE, 0, 0},
    {"ffn_gate_inp.scale", SPECDEC__DIM_NORMS_OF_BOTH, SPECDEC__ALWAYS, 0},
    {"pre_ffw_norm_2.weight", SPECDEC__DIM_NORMS_OF_BOTH, SPECDEC__ALWAYS, 0},
    {"post_ffw_norm_1.weight", SPECDEC__DIM_NORMS_OF_BOTH, SPECDEC__ALWAYS, 0},
    {"post_ffw_norm_2.weight", SPECDEC__DIM_NORMS_OF_BOTH, SPECDEC__ALWAYS, 0},
    {"attn_q_a_norm.weight", SPECDEC__DIM_LOW, SPECDEC__ALWAYS, 0},
    {"attn_kv_a_norm.weight", SPECDEC__DIM_RANK, SPECDEC__ALWAYS, 0},
    {"altup_router_norm.weight", SPECDEC__DIM_STREAM_NORMS, SPECDEC__ALWAYS, 0},
    {"altup_predict_coef.weight", SPECDEC__DIM_PREDICTIONS, SPECDEC__ALWAYS, 0},
    {"altup_correct_coef.weight", SPECDEC__DIM_CORRECTIONS, SPECDEC__ALWAYS, 0},
    {"altup_correct_scale.weight", SPECDEC__DIM_STREAM_NORMS, SPECDEC__ALWAYS, 0},
    {"attn_conv_base", SPECDEC__DIM_CONV_BASE, SPECDEC__ALWAYS, 0},
    {"ffn_conv_base", SPECDEC__DIM_CONV_BASE, SPECDEC__ALWAYS, 0},
    {"laurel_post_norm.weight", SPECDEC__DIM_STREAM_NORMS, SPECDEC__ALWAYS, 0},
    {"shortconv.conv.weight", SPECDEC__DIM_SHORT_TAPS, SPECDEC__ALWAYS, 0},
    {"ssm_conv1d.weight", SPECDEC__DIM_SSM_TAPS, SPECDEC__ALWAYS, 0},
    {"ssm_conv1d.bias", SPECDEC__DIM_CHANNELS, 0, 0}, {"ssm_dt.bias", SPECDEC__DIM_STATE_HEADS, SPECDEC__ALWAYS, 0},
    {"ssm_a", SPECDEC__DIM_STATE_HEADS, SPECDEC__ALWAYS, 0}, {"ssm_d", SPECDEC__DIM_SSM_HEADS, SPECDEC__ALWAYS, 0},
    {"ssm_norm.weight", SPECDEC__DIM_DELTA_NORM, SPECDEC__ALWAYS, 0},
    {"ssm_norm.weight", SPECDEC__DIM_SSM_NORMS, 0, 0}};

/* Vectors that are matrices in files, with rows of so many values; turned: they become matrices of their columns. */
static const struct { unsigned char vector, row, turned; } specdec__folded_table[] = {
    {SPECDEC__PREDICTIONS, SPECDEC__DIM_STREAMS, 0}, {SPECDEC__CORRECTIONS, SPECDEC__DIM_STREAMS, 0},
    {SPECDEC__ATTENTION_CONV_BASE, SPECDEC__DIM_E, 0}, {SPECDEC__FFN_CONV_BASE, SPECDEC__DIM_E, 0},
    {SPECDEC__MIX_SHORT_TAPS, SPECDEC__DIM_TAPS, 1}, {SPECDEC__MIX_TAPS, SPECDEC__DIM_TAPS, 1},
    {SPECDEC__MIX_NORMS, SPECDEC__DIM_SSM_NORM, 0}};

/* Of the matrices and the vectors of a layer, those that it lacks if it reads the keys of another one. */
static const unsigned specdec__of_keys[2] = {
    SPECDEC__BIT(SPECDEC__K) | SPECDEC__BIT(SPECDEC__V),
    SPECDEC__BIT(SPECDEC__K_NORM) | SPECDEC__BIT(SPECDEC__K_BIAS) | SPECDEC__BIT(SPECDEC__V_BIAS)};

static const char *specdec__model_name(const specdec__model *m)
{
    return m->architecture ? m->architecture->name : m->speculator->name;
}

/* Makes a model one of an architecture. */
static void specdec__model_is(specdec__model *m, const specdec__architecture *a)
{
    int i;

    m->architecture = a;
    m->query_factor = 1;
    for (i = 1; i < SPECDEC__TRAITS; i++)
        m->trait[i] = specdec__architecture_trait(a, i);
}

/* Rows of attn_q for one head: those of its query and, where it has one, those of its gate. */
SPECDEC__INLINE int specdec__model_query_rows(const specdec__model *m, const specdec__shape *s)
{
    return s->key_dim + (m->trait[SPECDEC__QUERY_GATES] ? s->value_dim : 0);
}

/* Whether layers have several feed-forward networks, of which a few are chosen for a token. */
SPECDEC__INLINE int specdec__model_mixes(const specdec__model *m) { return SPECDEC__EXPERTS && m->experts; }

/* Whether a part of a model has the first layers, and so the embedding; the last ones. */
SPECDEC__INLINE int specdec__model_begins(const specdec__model *m)
{
    return !SPECDEC__PIPE || !m->first || m->reads.count;
}
SPECDEC__INLINE int specdec__model_ends(const specdec__model *m)
{
    return !SPECDEC__PIPE || m->first + m->layers == m->all;
}

/* What a model is that can only draft; NULL: it is not one, or not bound. */
static SPECDEC__UNUSED const char *specdec__model_drafts(const specdec__model *m)
{
    static const char *const kinds[] = {NULL, "EAGLE-3", "assistant", "DFlash"};

    if (m->speculator)
        return "heads";
    return m->block.candidates       ? "DFlash2"
           : m->block.markov_in.type ? "DSpark"
                                     : kinds[m->trait[SPECDEC__READS_STATES]];
}

/* Whether a model can write a text on its own. */
static int specdec__model_writes(const specdec__model *m)
{
    return m->architecture && !m->trait[SPECDEC__READS_STATES] && !m->reads.count;
}

SPECDEC__FOR_SPEED
