/* =====================================================================================================================
 * >>schedule/lane: the state of asynchronous drafting and of pipelined runs, and the table by which an engine reaches
 *     other machines.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/lane.h"
#include "../model/model.h"
#include "../cache/kv.h"
#include "../forward/context.h"
#include "../speculation/draft.h"
#include "../speculation/tune.h"

#define SPECDEC__ASYNC_RUN_NODES 4         /* draft tokens that a draft run extends, at most */
#define SPECDEC__ASYNC_CUTOFF 0.02f        /* first cutoff: draft tokens of a lower path probability are not extended */
#define SPECDEC__ASYNC_CUTOFF_GROWTH 1.1f  /* factor by which the cutoff rises after each draft run of a step */
#define SPECDEC__ASYNC_CUTOFF_DECAY 0.8f   /* factor by which the cutoff falls after a step that kept no draft token */
#define SPECDEC__ASYNC_CUTOFF_LEAST 0.002f /* lowest cutoff */
#define SPECDEC__ASYNC_TRIAL_SHARE 0.01    /* share of the other mode's time that a trial of a mode may lose or save */
#define SPECDEC__ASYNC_TRIAL_STEPS 256     /* steps before the first trial of the other mode of drafting */
#define SPECDEC__ASYNC_DRAFTING_SHARE 0.04 /* drafting that takes a smaller share of all time is never asynchronous */
#define SPECDEC__ASYNC_TRIAL_STEPS_MOST 2048 /* steps between two trials of a mode, at most */

/* Time and tokens of all steps with one mode of drafting: synchronous, or asynchronous. */
typedef struct specdec__async_mode {
    double seconds;  /* seconds of all these steps */
    double drafting; /* seconds in which the target waited for drafts in these steps */
    double tokens;   /* tokens of all these steps: the mean of decoded and expected tokens, which varies less than
                        either */
} specdec__async_mode;

/* A draft run of the drafter's lane, which the caller's thread may look at while it runs. */
typedef struct specdec__draft_run {
    int32_t chosen[SPECDEC__ASYNC_RUN_NODES]; /* (count): the draft tokens that the run extends */
    int count;  /* number of these draft tokens */
    int nodes;                                /* nodes of the draft tree when the run began */
    double begun;                             /* clock in seconds when the run began */
} specdec__draft_run;

/* The state of a drafter that drafts while the target verifies: PipeInfer (Butler et al. 2024, arXiv 2407.11798). */
typedef struct specdec__async_drafting {
    specdec__lane lane;        /* the threads that draft while the other threads verify */
    specdec__drafter *drafter; /* the drafter that drafts on the lane; NULL: none does */
    int threads;               /* number of threads of the lane; the target has the others */
    int active;                /* 1: the lane drafts during the current step */
    specdec *sequence;         /* the sequence that the lane drafts for */
    int32_t *tokens;           /* (context + levels): the lane's copy of the sequence's tokens, of which the first
                                  `copied` are valid */
    int copied;                /* number of the sequence's tokens that are copied */
    specdec__proposal proposal; /* the lane's copy of the sequence's proposal */
    specdec__tune_drafter acceptance; /* the lane's copy of the measured acceptance of the drafter */
    int levels;                /* levels of the draft tree, at most */
    int nodes, width;          /* draft tokens that are extended in a step, and in one draft run, at most */
    float cutoff, first_cutoff; /* draft tokens of lower path probability are not extended: now, and at the begin of a
                                   step */
    int draft_run_count;          /* number of draft runs begun in the current step; the last one is
                                     draft_runs[draft_run_count % 2] */
    specdec__draft_run draft_runs[2];  /* the two newest draft runs */
    int prefills;              /* 1: the lane prefills the sequence for the drafter, which may take several steps */
    specdec__tune_mean run_time; /* mean seconds of a draft run of the lane */
    double usual_seconds;      /* mean seconds of a draft run when the step began */
    specdec_result result;     /* result of what the lane executes */
    specdec_error error;       /* error of what the lane executes */
    /* choice of the faster mode of drafting, synchronous or asynchronous */
    specdec__async_mode modes[2]; /* measurements of synchronous steps, and of asynchronous ones */
    double slowdown;           /* time of a step of the target while the lane drafts, over its time alone; 0: not
                                  measured */
    double overlap_pace;       /* levels that the lane drafts in the time in which all threads would draft one */
    int mode;                  /* mode of the current steps: 0: synchronous; 1: asynchronous */
    int trial;                 /* 1: the current mode is tried, to be compared with the other one */
    int steps_left, steps_between; /* steps until the next choice of a mode; steps from the last choice to the next
                                      one */
    int probe;                 /* 1: the current step measures slowdown and overlap_pace */
    int times_estimated;       /* 1: times of asynchronous steps were measured, or estimated by slowdown; 0: they were
                                  not */
} specdec__async_drafting;

#define SPECDEC__PIPE_RUNS 16     /* pipelined runs that were sent and have not returned, at most */
#define SPECDEC__PIPE_NODES 8     /* nodes of a pipelined run, at most */
/* nodes of all pipelined runs that are not cancelled, at most */
#define SPECDEC__PIPE_KEPT_NODES (SPECDEC__PIPE_RUNS * SPECDEC__PIPE_NODES)
#define SPECDEC__PIPE_CUTOFF 0.01f /* draft tokens whose paths are less probable are not sent to the target */
#define SPECDEC__PIPE_WAIT_SHARE 0.5 /* most time that a run waits for the oldest one, over that between two runs */

/* Kinds of orders to the target's stages: run nodes, commit the keys of accepted nodes, drop all nodes. */
enum { SPECDEC__ORDER_RUN, SPECDEC__ORDER_KEEP, SPECDEC__ORDER_DROP };

/* An order: a command to the stages of a pipelined target. All stages obey all orders in the same sequence, so an order
   finds the keys of every run that was sent before it. Nodes behind the committed tokens are numbered from 0 in the
   order of sending. */
typedef struct specdec__order {
    int kind;   /* SPECDEC__ORDER_... */
    int first;  /* how many nodes have numbers before this order; RUN: its nodes get the next ones */
    int n;      /* RUN: nodes to run; KEEP: nodes whose keys are committed; DROP: unused, all nodes are dropped */
    int stay;   /* KEEP: nodes that are renumbered from 0 on, the others are dropped; -1: all stay, as number - n */
    int32_t tokens[SPECDEC__PIPE_NODES];  /* RUN: (n): tokens of its nodes */
    int32_t parents[SPECDEC__PIPE_NODES]; /* RUN: (n): numbers of earlier nodes; -1: the last committed token */
    int path[SPECDEC__PIPE_NODES + SPECDEC__PIPE_KEPT_NODES]; /* KEEP: (n + stay): accepted nodes, then others */
} specdec__order;

/* A stage of a pipelined target: some of its layers, one after the other, on this machine or on another one. */
typedef struct specdec__stage {
    specdec__context *context; /* cache of keys and values of these layers, and buffers */
    specdec__view *view;       /* slots of the cache of the sequence whose runs the stage makes */
    int failed; /* 1: the cache had no room for a run; later runs are not made until an order has dropped all nodes */
} specdec__stage;

struct specdec__pipe;

/* Bits of the state of a pipelined lane: its oldest run has returned; its first stage is free for a run; all orders are
   obeyed; draft tokens have arrived from another rank. */
enum {
    SPECDEC__PIPE_RETURNED = 1,
    SPECDEC__PIPE_FREE = 2,
    SPECDEC__PIPE_IDLE = 4,
    SPECDEC__PIPE_DRAFTED = 8
};

/* The functions of a pipelined lane. Threads of this machine, or other ranks, execute its runs. */
typedef struct specdec__pipe_kind {
    /* Sends an order, of which the lane takes a copy. */
    void (*submit_order)(struct specdec__pipe *pipe, const specdec__order *order);
    /* Returns the lane's state. Waits until a bit of `until` is set, or the clock shows pipe->wake_at. until 0: does
       not wait. */
    int (*wait_for_state)(struct specdec__pipe *pipe, int until);
    /* Takes the oldest run, which has returned: its rows lie in the target's context. A cancelled run has no rows. */
    specdec_result (*take_run)(struct specdec__pipe *pipe, specdec_error *error);
    /* Cancels run number `at`, 0 being the oldest. The run still passes all stages, but they do not compute it. */
    void (*cancel_run)(struct specdec__pipe *pipe, int at);
} specdec__pipe_kind;

/* A pipelined run that was sent and has not been taken. */
typedef struct specdec__pipe_run {
    int n;           /* number of nodes that were sent in the run */
    int first, left; /* numbers [first, first + left): its nodes that can still be accepted */
    int row[SPECDEC__PIPE_NODES]; /* (left): the row of each of these nodes in the run */
    int root;        /* 1: the run's first node is the last token of the sequence; 0: it is a draft token */
    int cancelled;   /* 1: the stages were told not to compute the run */
    double sent;     /* clock in seconds when the run was sent */
} specdec__pipe_run;

/* The lane of a target that begins a run before earlier runs have returned, as a pipeline of stages can. Nodes of a run
   may descend from nodes of earlier runs that are not verified yet: PipeInfer (Butler et al. 2024). */
typedef struct specdec__pipe {
    const specdec__pipe_kind *kind; /* the lane's functions */
    int depth;      /* pipelined runs between sending and taking, at most */
    specdec__tune stages; /* seconds of a run in the slowest stage, by the run's nodes */
    double stage_seconds; /* seconds of the run taken last in the slowest stage; 0: not measured */
    double least_probability; /* path probability that one more node of the next run must have, for the node to pay */
    int32_t *node;  /* (capacity of a proposal): the number of each draft token that was sent as a node; -1: not sent */
    specdec *sequence; /* the sequence whose runs these are; the lane changes its view. NULL: no run is on its way */
    int nodes;      /* number of nodes behind the committed tokens that have numbers */
    int no_room;    /* 1: the cache had no room for the run sent last; only an order DROP may follow */
    int count;      /* number of runs that were sent and not taken */
    specdec__pipe_run runs[SPECDEC__PIPE_RUNS]; /* (count): the runs that were sent and not taken, the oldest first */
    specdec__tune_mean round_trip, draft; /* mean seconds from sending a run to taking it; mean seconds of a draft
                                             run */
    specdec__tune_mean trip_ratio; /* mean of a run's round trip over its time in the slowest stage */
    double free_at; /* clock in seconds when the first stage is expected to be free; 0: unknown */
    double wake_at; /* clock in seconds when `wait_for_state` returns at the latest; 0: no limit */
    double idle_since; /* clock in seconds since when the first stage has been free for a run; 0: it is not free */
} specdec__pipe;

/* Actions of a step of the engine: draft trees, send a run, take a run that has returned, end the step, wait. */
enum { SPECDEC__STEP_DRAFT, SPECDEC__STEP_SEND, SPECDEC__STEP_TAKE, SPECDEC__STEP_END, SPECDEC__STEP_WAIT };

/* The current step of the engine: it drafts, sends runs to the target's lane and verifies the runs that return. */
typedef struct specdec__step {
    int several_runs; /* 1: several runs of one sequence are on their way; 0: the trees of all members are one run */
    int last_action; /* with one run: the action done last, SPECDEC__STEP_... */
    double start;   /* clock in seconds when the step began */
    specdec_result result; /* result of the step's last action */
    /* a step with one run */
    int nodes;      /* nodes of the run, prompt tokens included */
    double drafted; /* clock in seconds when the trees were complete */
    double expected_tokens; /* expected tokens of the first member's tree; 0: not computed */
    specdec_error error; /* error of the run */
    /* a step with several runs */
    specdec *t;     /* the sequence that decodes */
    specdec__proposal *p; /* what the drafter proposes for the sequence */
    int before;     /* number of tokens of the sequence when the step began */
    int32_t chosen[SPECDEC__PIPE_NODES]; /* (count): draft tokens that are nodes of the next run */
    int count;                           /* number of these draft tokens */
    int drafts;     /* number of draft tokens to be extended next; 0: the cutoff is lowered first */
    int until;      /* SPECDEC__PIPE_... bits that end a wait for the lane */
    double wake_at; /* clock in seconds when that wait ends at the latest; 0: no limit */
} specdec__step;

struct specdec__engine;

/* How an engine reaches the machines that hold a part of its target, or its draft model: the only interface between the
   library and a cluster. An engine on one machine has no such table. */
typedef struct specdec__remote {
    int only_drafts;    /* 1: this rank holds the draft model alone, in the target's place */
    /* Removes the layers that other ranks have from a model. */
    specdec_result (*remove_remote_layers)(specdec__model *model, const specdec_cluster *cluster, specdec_error *error);
    /* Replaces a drafter kind whose model lies on another rank by one that asks that rank. */
    void (*replace_drafter_kind)(const specdec_config *config, specdec_drafting drafting, specdec__drafter_kind *kind);
    /* Takes the memory of this rank's part in the cluster from an arena, which may only count bytes, once the engine is
       laid out. */
    void (*allocate)(struct specdec__engine *engine, specdec__arena *arena);
    /* Used as hooks.progress while weights are repacked; its user_data is the engine. */
    int (*report_progress)(void *engine, const char *what, int done, int total);
    /* Connects to the other ranks. */
    specdec_result (*connect)(struct specdec__engine *engine, specdec_error *error);
    /* Sets the flag that ends waiting during a step; NULL: no flag does. */
    void (*set_cancel_flag)(struct specdec__engine *engine, int *cancel);
    /* Obeys rank 0 until it ends; NULL: this is rank 0. */
    specdec_result (*obey_rank_0)(specdec *sequence);
    /* Ends the connections to the other ranks, for specdec_deinit. */
    void (*disconnect)(struct specdec__engine *engine);
} specdec__remote;
