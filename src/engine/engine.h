/* =====================================================================================================================
 * >>engine/engine: what an engine holds.
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

#define SPECDEC__THREAD_BYTES (4 << 20) /* weights a step for each further thread */
#define SPECDEC__PROMPT_BYTES 16  /* bytes of a prompt's text, at most, for each token of the context */

enum { SPECDEC__MAX_MODELS = 4 }; /* that an engine opens: the target's, and those of drafters */

#define SPECDEC__READING_LARGE (64 << 20) /* bytes of models of which it is measured how they are read fastest, */
#define SPECDEC__READING_SLICE (128 << 10) /* bytes of each of two tiles' rows that are timed at once, */
#define SPECDEC__READING_SLICES 1024       /* of these slices, at most, */
#define SPECDEC__READING_TRIAL 0.015       /* and seconds; */
#define SPECDEC__READING_BETTER 0.98       /* of the usual way's time: then the other is taken */

/* What stays of a sequence that has ended, for others that begin alike: a kept view, and its tokens. */
typedef struct specdec__kept {
    specdec__view view;
    int32_t *tokens; /* (context): view.length of them count */
} specdec__kept;

typedef struct specdec__engine {
    specdec__ahead *ahead;       /* NULL while the engine is only measured */
    specdec__pipe *pipe;         /* NULL: the target makes one run at a time */
    const specdec__remote *remote; /* NULL: all is here */
    struct specdec__link *link;  /* what that works on */
    int nobody;                  /* the cancel flag of a run for several texts */
    specdec__kernels *kernels;
    specdec__model *own[SPECDEC__MAX_MODELS]; /* (own_count) those that it has opened */
    int own_count;
    const specdec__model *target_model;
    specdec_result (*verify)(specdec__context *, const specdec__batch *, specdec_error *); /* runs the target's steps */
    specdec__drafter *drafters;  /* (drafter_count, at most SPECDEC__MAX_DRAFTERS) */
    int drafter_count;
    specdec__tune *tune;         /* NULL while the engine is only measured */
    specdec_rule rule;           /* at temperatures above 0 */
    float *target_distribution;  /* (vocab), for the rules but coupled, and for log-probabilities */
    specdec__chooser chooser;
    specdec__masker *masker;     /* NULL: no sequence may have a constraint */
    specdec__chat chat;
    size_t memory_bytes;
    int busy;                    /* a call is under way */
    int ended;                   /* by specdec_deinit */

    specdec__room room;
    specdec *sequences;              /* (room.views) */
    specdec__kept *kept;         /* (room.kept) */
    const specdec *row_of;       /* the text after whose last token row 0 of the target's logits stands; NULL: none */
    specdec_tree shape;          /* of a drafter that is asked for the same tree at every step */
    specdec **members;           /* (member_count, at most room.views): the texts in the step under way */
    int member_count;
    int reading, roots;          /* nodes of prompts in it, and texts that it writes */
    int waiting;                 /* texts that have something to do, but for which it has no node */
    int turn;                    /* which text is asked first whether it has something to do */
    double spare;                /* seconds that drafters may read in it while others wait; -1: that is not known */
    int32_t fork_token, child_token; /* -1: there are none */

    unsigned char *stop_bytes;   /* (SPECDEC__STOP_ROOM) the stop strings of config.settings */
    void *scratch;               /* of the tokenizer */
    size_t scratch_bytes;
    char *chat_text;             /* (chat_bytes) a rendered conversation */
    unsigned char *chat_plain;   /* (chat_bytes) bits: which of it is plain text */
    size_t chat_bytes;

    specdec__context target;
    specdec__pool pool;
    specdec_config config;       /* the caller's, defaults filled in */
} specdec__engine;
