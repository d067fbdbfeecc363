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

#define SPECDEC__THREAD_BYTES (4 << 20) /* bytes of weights a step for each thread but the first */
#define SPECDEC__PROMPT_BYTES 16  /* bytes of a prompt for each token of the context, at most */

enum { SPECDEC__MAX_MODELS = 4 }; /* that an engine opens: the target's, and those of drafters */

/* The timing of two ways to read weights, when an engine starts. */
#define SPECDEC__READING_LARGE (64 << 20)  /* bytes of weights: smaller models are not timed */
#define SPECDEC__READING_SLICE (128 << 10) /* bytes of the rows of two tiles in one timed slice */
#define SPECDEC__READING_SLICES 1024       /* slices, at most */
#define SPECDEC__READING_TRIAL 0.015       /* seconds, at most */
#define SPECDEC__READING_BETTER 0.98       /* of the usual way's time: the other way is taken if it needs less */

/* Keys and values of an ended sequence, kept for sequences that begin with the same tokens. */
typedef struct specdec__kept {
    specdec__view view;
    int32_t *tokens; /* (context): the first view.length are valid */
} specdec__kept;

/* An engine: models, caches, drafters, and the table of sequences. */
typedef struct specdec__engine {
    specdec__ahead *ahead;       /* NULL while memory is only counted */
    specdec__pipe *pipe;         /* NULL: the target makes one run at a time */
    const specdec__remote *remote; /* NULL: the engine is on one machine */
    struct specdec__link *link;  /* connection to the other ranks */
    int nobody;                  /* cancel flag of a run for several sequences */
    specdec__kernels *kernels;
    specdec__model *own[SPECDEC__MAX_MODELS]; /* (own_count): models that it has opened */
    int own_count;
    const specdec__model *target_model;
    specdec_result (*verify)(specdec__context *, const specdec__batch *, specdec_error *); /* runs the target's steps */
    specdec__drafter *drafters;  /* (drafter_count, at most SPECDEC__MAX_DRAFTERS) */
    int drafter_count;
    specdec__tune *tune;         /* NULL while memory is only counted */
    specdec_rule rule;           /* of verification, at temperatures above 0 */
    float *target_distribution;  /* (vocab): for rules of rejection, and for log-probabilities */
    specdec__chooser chooser;
    specdec__masker *masker;     /* NULL: no sequence may have a constraint */
    specdec__chat chat;
    size_t memory_bytes;
    int busy;                    /* 1: a call is running */
    int ended;                   /* 1: by specdec_deinit */

    specdec__kv_demand room;
    specdec *sequences;          /* (room.max_views) */
    specdec__kept *kept;         /* (room.kept_views) */
    const specdec *row_of;       /* the sequence of whose last token row 0 of the target's logits is; NULL: none */
    specdec_tree shape;          /* the tree of every step, where the configuration fixes it */
    specdec **members;           /* (member_count, at most room.max_views): the sequences in the current step */
    int member_count;
    int prefill_nodes, roots;    /* of the current step: nodes that prefill prompts; sequences that decode */
    int waiting_count;           /* sequences that have something to do, but got no node in the current step */
    int first_asked;             /* index of the sequence that is first asked whether it takes part in a step */
    double spare_seconds;        /* that drafters may prefill in this step while other sequences wait; -1: not known */
    int32_t fork_token, child_token; /* -1: there are none */

    unsigned char *stop_bytes;   /* (SPECDEC__STOP_COPY_BYTES): the stop strings of config.settings */
    void *scratch;               /* of the tokenizer */
    size_t scratch_bytes;
    char *chat_text;             /* (chat_bytes): a rendered conversation */
    unsigned char *chat_plain;   /* (chat_bytes): bits: which bytes are content, where no control token counts */
    size_t chat_bytes;

    specdec__context target;
    specdec__pool pool;
    specdec_config config;       /* the caller's, with defaults filled in */
} specdec__engine;
