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

#define SPECDEC__WEIGHT_BYTES_A_THREAD (4 << 20) /* weights that a step must read for one more thread to pay, bytes */
#define SPECDEC__PROMPT_BYTES_A_TOKEN 16         /* a prompt's bytes, at most, for each token of the context */

enum { SPECDEC__MAX_MODELS = 4 }; /* models that an engine opens, at most: the target, and those of drafters */

/* When an engine starts, it times the kernels' two orders of reading weights, kernels->reading and ->other_reading, on
   slices of the target's weights. */
#define SPECDEC__READING_LEAST_BYTES (64 << 20)  /* weights of a model, in bytes: smaller models are not timed */
#define SPECDEC__READING_SLICE_BYTES (128 << 10) /* weights of a timed slice, in bytes, for each of two tiles of rows */
#define SPECDEC__READING_MOST_SLICES 1024        /* timed slices, at most */
#define SPECDEC__READING_TRIAL_SECONDS 0.015     /* seconds of the timing, at most */
#define SPECDEC__READING_SWITCH_SHARE 0.98       /* other_reading is used if it takes less than this share of the time
                                                    that `reading` takes */

/* Keys and values of an ended sequence, kept for sequences that begin with the same tokens. */
typedef struct specdec__kept {
    specdec__view view; /* the pages with the keys and values; length 0: the entry is empty */
    int32_t *tokens;    /* (context): the sequence's tokens; the first view.length are valid */
} specdec__kept;

/* An engine: models, caches, drafters, and the table of sequences. */
typedef struct specdec__engine {
    specdec__ahead *ahead;       /* state of asynchronous drafting; NULL while memory is only counted */
    specdec__pipe *pipe;         /* the lane of pipelined runs; NULL: the target makes one run at a time */
    const specdec__remote *remote; /* functions that reach the other ranks; NULL: the engine is on one machine */
    specdec__remote cluster_functions; /* of a cluster's rank; `remote` then points to them */
    struct specdec__link *link;  /* connection to the other ranks */
    int never_cancelled;         /* always 0: the cancel flag of runs that no single sequence can cancel */
    specdec__kernels *kernels;   /* of the instruction set in use */
    specdec__model *opened_models[SPECDEC__MAX_MODELS]; /* (opened_count): those that the engine itself opened */
    int opened_count;
    const specdec__model *target_model;
    specdec_result (*verify)(specdec__context *, const specdec__batch *, specdec_error *); /* makes the target's runs */
    specdec__drafter *drafters;  /* (drafter_count, at most SPECDEC__MAX_DRAFTERS) */
    int drafter_count;
    specdec__tune *tune;         /* measured times and acceptance; NULL while memory is only counted */
    specdec_rule rule;           /* that verifies draft tokens at temperatures above 0 */
    float *target_distribution;  /* (vocab): weights of the target's tokens, for rejection and for log-probabilities */
    specdec__chooser chooser;    /* chooses a token from a row of logits; set for a sequence before each use */
    specdec__masker *masker;     /* memory of constraints, shared by all; NULL: no sequence may have a constraint */
    specdec__chat chat;          /* the chat format of the target, and its marks of calls and thoughts */
    size_t memory_bytes;         /* of the engine's block */
    int busy;                    /* 1: a thread is in a call of the API */
    int ended;                   /* 1: specdec_deinit was called */

    specdec__kv_demand room;     /* the numbers of sequences, tokens and nodes that the engine is laid out for */
    specdec *sequences;          /* (room.max_views): the places of open sequences; some are free */
    specdec__kept *kept;         /* (room.kept_views): the entries of the table of kept sequences; some are empty */
    const specdec *row_of;       /* the sequence of whose last token row 0 of the target's logits is; NULL: none */
    specdec_tree shape;          /* the tree of every step, where the configuration fixes it */
    specdec **members;           /* (member_count, at most room.max_views): the sequences in the current step */
    int member_count;
    int prefill_nodes, roots;    /* of the current step: nodes that prefill prompts; sequences that decode */
    int waiting_count;           /* sequences that have something to do, but got no node in the current step */
    int first_asked;             /* index of the sequence that is first asked whether it takes part in a step */
    double spare_seconds;        /* for which drafters may prefill in this step, while sequences wait; -1: not known */
    int32_t fork_token, child_token; /* a sequence forks behind the first; its child begins with the second; -1: none */

    unsigned char *stop_bytes;   /* (SPECDEC__STOP_COPY_BYTES): the stop strings of config.settings */
    void *scratch;               /* (scratch_bytes): working memory of the tokenizer and of chat templates */
    size_t scratch_bytes;
    char *chat_text;             /* (chat_bytes): a rendered conversation */
    unsigned char *chat_plain;   /* (chat_bytes bits): 1: that byte is a message's, and never part of a control token */
    size_t chat_bytes;           /* of a prompt's text, at most */

    specdec__context target;     /* the target's cache, and the buffers of its runs */
    specdec__pool pool;          /* the threads */
    specdec_config config;       /* the caller's, with defaults filled in */
} specdec__engine;
