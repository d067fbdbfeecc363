/* =====================================================================================================================
 * >>engine/engine: the members of an engine.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/pool.h"
#include "../kernel/kernel.h"
#include "../text/chat.h"
#include "../model/model.h"
#include "../cache/kv.h"
#include "../forward/context.h"
#include "../speculation/constrained.h"
#include "../speculation/row.h"
#include "../speculation/draft.h"
#include "../speculation/tune.h"
#include "../schedule/lane.h"

#define SPECDEC__WEIGHT_BYTES_A_THREAD (4 << 20) /* bytes of weights that a step must read for one more thread to pay */
#define SPECDEC__PROMPT_BYTES_A_TOKEN 16         /* bytes of a prompt for each token of the context, at most */

enum { SPECDEC__MAX_MODELS = 4 }; /* models that an engine opens, at most: the target, and those of drafters */

/* When an engine starts, it times the kernels' two orders of reading weights, kernels->reading and
   kernels->other_reading, on slices of the target's weights. */
#define SPECDEC__READING_LEAST_BYTES (64 << 20)  /* bytes of weights of a model, from which reading is timed */
#define SPECDEC__READING_SLICE_BYTES (128 << 10) /* bytes of weights of a timed slice, for each of two tiles of rows */
#define SPECDEC__READING_MOST_SLICES 1024        /* number of slices of weights that are timed, at most */
#define SPECDEC__READING_TRIAL_SECONDS 0.015     /* seconds that timing the reading of weights may take, at most */
#define SPECDEC__READING_SWITCH_SHARE 0.98       /* time of other_reading over that of reading below which it is used */

/* The keys and values of a kept sequence: one that has ended, and whose first tokens later sequences may share. */
typedef struct specdec__kept_sequence {
    specdec__view view; /* the pages with the sequence's keys and values; length 0: the entry is empty */
    int32_t *tokens;    /* (context): the sequence's tokens, of which the first view.length are valid */
} specdec__kept_sequence;

/* An engine: models, caches, drafters, and the table of sequences. */
typedef struct specdec__engine {
    specdec__async_drafting *async_drafting;       /* state of asynchronous drafting; NULL while memory is only
                                                      counted */
    specdec__pipe *pipe;         /* the target's lane for pipelined runs; NULL: the target makes one run at a time */
    const specdec__remote *remote; /* functions that reach the other ranks; NULL: the engine is on one machine */
    specdec__remote cluster_functions; /* of a cluster's rank; `remote` then points to them */
    struct specdec__link *link;  /* the connection to the other ranks */
    int never_cancelled;         /* always 0: the cancel flag of runs that belong to no single sequence */
    specdec__kernels *kernels;   /* functions of the instruction set in use */
    specdec__model *opened_models[SPECDEC__MAX_MODELS]; /* (opened_count): the models that the engine itself has
                                                           opened */
    int opened_count;  /* number of models that the engine has opened */
    const specdec__model *target_model;  /* the target's model */
    specdec_result (*run_target)(specdec__context *, const specdec__batch *, specdec_error *); /* runs a batch */
    specdec__drafter *drafters;  /* (drafter_count, at most SPECDEC__MAX_DRAFTERS): the engine's drafters */
    int drafter_count;           /* number of drafters */
    specdec__tune *tune;         /* measured times and acceptance; NULL while memory is only counted */
    specdec_rule rule;           /* the rule that verifies draft tokens at temperatures above 0 */
    float *target_distribution;  /* (vocab): weights of the target's tokens, for rejection and for log-probabilities */
    specdec__chooser chooser;    /* how a token is chosen from a row of logits; set for a sequence before each use */
    specdec__masker *masker;     /* memory for constraints, shared by all sequences; NULL: no sequence may have a
                                    constraint */
    specdec__chat chat;          /* the target's chat format, and its marks of calls and thoughts */
    size_t memory_bytes;         /* bytes of the engine's block */
    int busy;                    /* 1: a thread is in a call of the API; 0: none is */
    int ended;                   /* 1: specdec_deinit was called */

    specdec__kv_demand room;     /* the numbers of sequences, tokens and nodes that the engine is laid out for */
    specdec *sequences;          /* (room.max_views): the table of sequences; the entries of sequences that are not open
                                    are free */
    specdec__kept_sequence *kept;         /* (room.kept_views): the table of kept sequences; some entries are empty */
    const specdec *row_0_sequence; /* the sequence whose last token has row 0 of the target's logits; NULL: none */
    specdec_tree fixed_tree;     /* the token tree of every step, where the configuration fixes it */
    specdec **members;           /* (member_count, at most room.max_views): the sequences in the current step */
    int member_count;            /* number of sequences in the current step */
    int prefill_nodes, roots;    /* in the current step: nodes that prefill prompts; sequences that decode */
    int waiting_count;           /* number of sequences that have something to do, but got no node in the current
                                    step */
    int first_asked;             /* index of the sequence that is first asked whether it takes part in a step */
    double spare_seconds;        /* seconds for which drafters may prefill in this step, while sequences wait; -1:
                                    unknown */
    int32_t fork_token, child_token; /* a sequence forks behind fork_token; its child begins with child_token; -1: there
                                        is none */

    unsigned char *stop_bytes;   /* (SPECDEC__STOP_COPY_BYTES): the stop strings of config.settings */
    void *scratch;               /* (scratch_bytes): working memory of the tokenizer and of chat templates */
    size_t scratch_bytes;        /* bytes of scratch */
    char *chat_text;             /* (chat_bytes): the text of a rendered conversation */
    unsigned char *chat_plain;   /* (chat_bytes bits): 1: the byte of chat_text comes from a message, so it is never
                                    part of a control token */
    size_t chat_bytes;           /* bytes of a prompt's text, at most */

    specdec__context target;     /* the target's cache and the buffers of its runs */
    specdec__pool pool;          /* the threads of the engine */
    specdec_config config;       /* the caller's configuration, with defaults filled in */
} specdec__engine;
