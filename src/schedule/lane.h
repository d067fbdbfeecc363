/* =====================================================================================================================
 * >>schedule/lane: where an engine's runs are made: drafting beside the target, a target that takes several runs at
 *     once, and the table by which other machines are reached.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/lane.h"
#include "../model/model.h"
#include "../cache/kv.h"
#include "../forward/context.h"
#include "../speculation/draft.h"
#include "../speculation/tune.h"

#define SPECDEC__AHEAD_RUN 4 /* candidates that are extended together */
#define SPECDEC__AHEAD_CUTOFF 0.02f  /* what is less probable is not gone on from: */
#define SPECDEC__AHEAD_RECOVERY 1.1f /* grows so with every run behind the first, */
#define SPECDEC__AHEAD_DECAY 0.8f    /* shrinks so when nothing of what was drafted is left, */
#define SPECDEC__AHEAD_LEAST 0.002f  /* to this */
#define SPECDEC__AHEAD_STAKE 0.01    /* of the time since the last trial: what the other way may lose, or has to win */
#define SPECDEC__AHEAD_FIRST 256     /* steps of the way taken for the better before the other is tried, at first */
#define SPECDEC__AHEAD_WORTH 0.04    /* of all time, that drafting must take before that is looked at */
#define SPECDEC__AHEAD_PATIENCE 2048 /* steps between two comparisons, at most */

/* What is seen of a way to make steps. */
typedef struct specdec__ahead_seen {
    double seconds, drafting; /* all, and what of that the target waited for drafts */
    double tokens;            /* half of those that came, half of those that were promised: these are less by chance */
} specdec__ahead_seen;

/* A run of the lane, as others may look at it meanwhile. */
typedef struct specdec__flight {
    int32_t chosen[SPECDEC__AHEAD_RUN]; /* (count) the candidates that are extended */
    int count, known;                   /* known: the tree's candidates when it was begun */
    double begun;                       /* by the clock */
} specdec__flight;

/* A drafter that goes on while the target verifies: PipeInfer (Butler et al. 2024, arXiv 2407.11798). */
typedef struct specdec__ahead {
    specdec__lane lane;
    specdec__drafter *drafter; /* NULL: there is none */
    int threads;               /* of the lane; the target has the others */
    int on;                    /* in the step under way */
    specdec *text;             /* which it drafts for */
    int32_t *tokens;           /* (context + levels, `copied` are right) of that: the lane's own */
    int copied;
    specdec__proposal p;       /* the text's, as the lane sees it */
    specdec__tune_drafter known;
    int levels, nodes, width;  /* of what it may draft, at most: altogether, and candidates of a run */
    float cutoff, base;        /* what is less probable is not gone on from: now, and at first in a step */
    int flight;                /* runs that were begun in this step: the last one is flights[flight % 2] */
    specdec__flight flights[2];
    int reads;                 /* the lane reads the text; that may take several steps */
    specdec__tune_mean run;    /* of the lane: seconds */
    double usual;              /* that, as it was before the step */
    specdec_result result;
    specdec_error error;
    /* which way is faster */
    specdec__ahead_seen seen[2]; /* in turns, ahead */
    double slower;               /* so many times as long steps take while the lane drafts; 0: not measured */
    double pace;                 /* levels that it drafts meanwhile in the time in which all threads draft one */
    int way, other;              /* of the steps that are seen now; whether that is not the one taken for the better */
    int left, patience;          /* steps until this is looked at again, and how many these were */
    int probe;                   /* this step measures these */
    int known_steps;             /* what steps take is known, or guessed */
} specdec__ahead;

#define SPECDEC__PIPE_RUNS 16     /* on their way, at most */
#define SPECDEC__PIPE_NODES 8     /* of a run, at most */
#define SPECDEC__PIPE_ALIVE (SPECDEC__PIPE_RUNS * SPECDEC__PIPE_NODES) /* nodes that somebody wants, at most */
#define SPECDEC__PIPE_CUTOFF 0.01f /* what is less probable is not sent */
#define SPECDEC__PIPE_WAIT 0.5    /* of the time between two runs: so long one waits for what the oldest one says */

enum { SPECDEC__ORDER_RUN, SPECDEC__ORDER_KEEP, SPECDEC__ORDER_DROP };

/* What travels to the target. Its stages obey one order after the other, all in the same sequence, so that a command
   finds the keys of every run that was sent before it. */
typedef struct specdec__order {
    int kind;
    int first;  /* nodes behind the text that were known before it; an order's own get the next numbers */
    int n;      /* RUN: nodes to run; KEEP: nodes whose keys become the text's; DROP: all go */
    int stay;   /* KEEP: nodes that get the numbers from 0 on, the others go; -1: numbers behind path[n] fall by n */
    int32_t tokens[SPECDEC__PIPE_NODES];  /* RUN */
    int32_t parents[SPECDEC__PIPE_NODES]; /* RUN: nodes with smaller numbers; -1: the text's end */
    int path[SPECDEC__PIPE_NODES + SPECDEC__PIPE_ALIVE]; /* KEEP: (n + stay) rising */
} specdec__order;

/* A stage of the target: some of its layers, here or elsewhere. */
typedef struct specdec__stage {
    specdec__context *context;
    specdec__view *view;
    int failed; /* a run has found no room: those behind it are not run, until all nodes are dropped */
} specdec__stage;

struct specdec__pipe;

/* What may be the case with a lane: its oldest run is back; a run that is sent now begins at once; all is obeyed;
   guesses have come from elsewhere. */
enum { SPECDEC__PIPE_BACK = 1, SPECDEC__PIPE_TAKES = 2, SPECDEC__PIPE_IDLE = 4, SPECDEC__PIPE_GUESSED = 8 };

/* How a lane runs what it is sent. */
typedef struct specdec__pipe_kind {
    void (*submit)(struct specdec__pipe *pipe, const specdec__order *order); /* which is copied */
    /* What is the case, once one of `until` is, or when it is pipe->wake; 0: now. */
    int (*look)(struct specdec__pipe *pipe, int until);
    /* Takes the oldest run, which is back: its rows lie in the target's context. One that was cancelled has none. */
    specdec_result (*take)(struct specdec__pipe *pipe, specdec_error *error);
    /* Nobody wants run `at` of those on their way, 0: the oldest. It passes what stages are left empty, in order. */
    void (*cancel)(struct specdec__pipe *pipe, int at);
} specdec__pipe_kind;

/* A run on its way. */
typedef struct specdec__pipe_run {
    int n;           /* nodes that were sent */
    int first, left; /* those that are still wanted have the numbers from `first` on, */
    int row[SPECDEC__PIPE_NODES]; /* (left) and these of its rows */
    int root;        /* the first that was sent was no guess: the text ended with it */
    int cancelled;      /* was cancelled */
    double sent;     /* by the clock */
} specdec__pipe_run;

/* The lane of a target that takes new runs while others are on their way, as a pipeline of stages does. Nodes of a run
   may descend from nodes of runs before it, which nobody has verified yet: PipeInfer (Butler et al. 2024). */
typedef struct specdec__pipe {
    const specdec__pipe_kind *kind;
    int depth;      /* runs on their way, at most */
    specdec__tune stages; /* what runs take the slowest stage, by their nodes */
    double longest; /* seconds that the run which was taken last took there; 0: that is not known */
    double least;   /* how probable one more node of the next run must be to pay */
    int32_t *node;  /* (capacity of a proposal): the numbers that candidates have as nodes; -1: not sent */
    specdec *text;  /* whose runs these are; its view is the lane's. NULL: nothing is on its way */
    int nodes;      /* behind the text, as many as have numbers */
    int full;       /* there was no room for the run that was sent last: nothing but DROP may follow it */
    int count;      /* of runs */
    specdec__pipe_run runs[SPECDEC__PIPE_RUNS]; /* (count) the oldest first */
    specdec__tune_mean trip, draft; /* seconds of a run on its way, of a draft run */
    specdec__tune_mean laps;        /* the trip over what the run takes the slowest stage */
    double takes;   /* by the clock: a run that is sent then begins at once, as far as the lane knows; 0: it does not */
    double wake;    /* by the clock: a look at what is the case takes no longer; 0: as long as it takes */
    double idle;    /* since when a run that was sent would have begun at once; 0: it would not */
} specdec__pipe;

/* What a step does next. */
enum { SPECDEC__STEP_DRAFT, SPECDEC__STEP_SEND, SPECDEC__STEP_TAKE, SPECDEC__STEP_END, SPECDEC__STEP_WAIT };

/* A step under way. Runs are sent to the target's lane, and what comes back is written, until the step ends. */
typedef struct specdec__step {
    int several;    /* several runs of one sequence are on their way; else all trees are one run */
    int act;        /* one run: what was done last */
    double start;   /* by the clock */
    specdec_result result;
    /* one run */
    int nodes;
    double drafted; /* by the clock: the trees were complete */
    double promise; /* tokens that the first one promises, where that is of use */
    specdec_error error;
    /* several runs */
    specdec *t;
    specdec__proposal *p;
    int before;     /* tokens of the sequence when the step began */
    int32_t chosen[SPECDEC__PIPE_NODES]; /* (count) candidates for the next run */
    int count;
    int drafts;     /* candidates to be extended next; 0: first the cutoff falls */
    int until;      /* what is waited for, */
    double wake;    /* or that time; 0: as long as it takes */
} specdec__step;

struct specdec__engine;

/* How an engine reaches the other machines on which its target, or its draft model, lies: all that the rest of the
   library knows of a cluster. An engine that is alone has none. */
typedef struct specdec__remote {
    int drafts;         /* this rank has the draft model alone, in the target's place */
    /* Leaves a model the layers that this rank has. */
    specdec_result (*cut)(specdec__model *model, const specdec_cluster *cluster, specdec_error *error);
    /* The kind that drafts instead of one whose model may lie on another rank. */
    const specdec__drafter_kind *(*drafter)(const specdec_config *config, const specdec__drafter_kind *kind);
    /* Takes what this rank needs, once the engine is laid out, from an arena, which may only count. */
    void (*lay_out)(struct specdec__engine *engine, specdec__arena *arena);
    /* hooks.progress while weights are repacked, of the engine as user_data. */
    int (*loads)(void *engine, const char *what, int done, int total);
    specdec_result (*start)(struct specdec__engine *engine, specdec_error *error); /* finds the others */
    void (*wait)(struct specdec__engine *engine, int *cancel); /* what ends waiting in a step; NULL: nothing */
    specdec_result (*serve)(specdec *sequence); /* obeys rank 0 to the end; NULL: this is rank 0 */
    void (*end)(struct specdec__engine *engine);
} specdec__remote;
