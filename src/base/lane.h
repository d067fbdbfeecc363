/* =====================================================================================================================
 * >>base/lane: runs one job at a time beside the caller, on a thread that leads a team of its own.
 * ================================================================================================================== */

#pragma once
#include "base.h"
#include "os.h"
#include "pool.h"

typedef void specdec__lane_job(void *argument);

struct specdec__lane;

/* The functions that execute the jobs of a lane: on a thread of their own, or in the time of a simulator. */
typedef struct specdec__lane_kind {
    void (*submit)(struct specdec__lane *lane);       /* begins lane->job */
    int (*may_begin_run)(struct specdec__lane *lane); /* asked by the job before each run; 0: it must end */
    void (*stop_runs)(struct specdec__lane *lane);    /* makes may_begin_run return 0 */
    int (*is_running)(struct specdec__lane *lane);    /* whether the job has not ended yet */
    void (*wait)(struct specdec__lane *lane);         /* waits until the job has ended */
} specdec__lane_kind;

/* Executes one job at a time, such as the runs of a draft model, while the caller does other work. */
typedef struct specdec__lane {
    const specdec__lane_kind *kind; /* how jobs are executed */
    specdec__pool *pool;    /* the caller's pool: it lends its last threads to the lane while a job is pending */
    specdec__pool handover; /* two threads that meet when the job ends: the lane's thread, and the caller */
    specdec__pool job_pool; /* threads that execute the runs of a job: the lane's thread, and helpers */
    specdec__lane_job *job; /* the function that is executed */
    void *argument;         /* argument of the job */
    int cancel;             /* 1: the run of job_pool ends at its next barrier */
    int may_not_begin_run;  /* 1: the job must end before its next run */
    int job_pending;        /* 1: a job was submitted, and specdec__lane_wait was not called since */
} specdec__lane;

SPECDEC__FOR_SIZE

/* Runs a lane's job on the helper thread of lane->handover; thread 0, the caller, does nothing. */
static void specdec__lane_run_job(void *argument, int thread)
{
    const specdec__lane *lane = (const specdec__lane *)argument;

    if (thread)
        lane->job(lane->argument);
}

static void specdec__lane_submit_to_helper(specdec__lane *lane)
{
    lane->handover.function = specdec__lane_run_job;
    lane->handover.argument = lane;
    lane->handover.run_cancelled = lane->handover.next_item = 0;
    lane->handover.active = 2;
    specdec__pool_call_helpers(&lane->handover);
    SPECDEC__PAUSE();
}

static int specdec__lane_may_begin_run(specdec__lane *lane)
{
    SPECDEC__PAUSE();
    return !SPECDEC__LOAD(&lane->may_not_begin_run);
}

static void specdec__lane_stop_runs(specdec__lane *lane)
{
    SPECDEC__STORE(&lane->may_not_begin_run, 1);
    SPECDEC__PAUSE();
}

static int specdec__lane_is_running(specdec__lane *lane) { return !SPECDEC__LOAD(&lane->handover.arrived); }

static void specdec__lane_wait_for_job(specdec__lane *lane) { specdec__pool_wait_for_all(&lane->handover); }

static const specdec__lane_kind specdec__lane_helper = {specdec__lane_submit_to_helper, specdec__lane_may_begin_run,
                                                        specdec__lane_stop_runs, specdec__lane_is_running,
                                                        specdec__lane_wait_for_job};

/* Makes a lane of the last helper of a pool, which becomes the lane's thread, and of the threads - 1 helpers before it.
   While a job is pending, the pool runs without these helpers. */
static void specdec__lane_init(specdec__lane *lane, specdec__pool *pool, int threads)
{
    const int last = pool->crew ? pool->crew->count - 1 : 0;

    memset(lane, 0, sizeof *lane);
    lane->kind = &specdec__lane_helper;
    lane->pool = pool;
    specdec__pool_lend_helpers(&lane->handover, pool, last, 2, &lane->cancel);
    specdec__pool_lend_helpers(&lane->job_pool, pool, last - threads + 1, threads, &lane->cancel);
}

/* Begins a job of a lane: job(argument). specdec__lane_wait was called since the job before it. */
static void specdec__lane_submit(specdec__lane *lane, specdec__lane_job *job, void *argument)
{
    lane->job = job;
    lane->argument = argument;
    lane->job_pending = 1;
    lane->pool->threads -= lane->job_pool.threads - 1;
    SPECDEC__STORE(&lane->cancel, 0);
    SPECDEC__STORE(&lane->may_not_begin_run, 0);
    lane->kind->submit(lane);
}

/* Whether a lane has a job that has not ended yet. */
static int specdec__lane_has_unfinished_job(specdec__lane *lane)
{
    return lane->job_pending && lane->kind->is_running(lane);
}

/* Waits until a lane's job, if there is one, has ended. */
static void specdec__lane_wait(specdec__lane *lane)
{
    if (!lane->job_pending)
        return;
    lane->kind->wait(lane);
    lane->pool->threads += lane->job_pool.threads - 1;
    lane->job_pending = 0;
}

/* Cancels the current run of a lane's job: it ends at its next barrier. */
static void specdec__lane_cancel(specdec__lane *lane)
{
    SPECDEC__STORE(&lane->cancel, 1);
    SPECDEC__PAUSE();
}

SPECDEC__FOR_SPEED
