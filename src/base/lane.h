/* =====================================================================================================================
 * >>base/lane: runs one job at a time beside the caller, on a thread that leads a team of its own.
 * ================================================================================================================== */

#pragma once
#include "base.h"
#include "os.h"
#include "pool.h"

typedef void specdec__lane_job(void *argument);

struct specdec__lane;

/* How jobs are run: beside the caller, or as a simulator will have it. */
typedef struct specdec__lane_kind {
    void (*submit)(struct specdec__lane *lane);
    int (*goes_on)(struct specdec__lane *lane); /* asked by the job, before each of its runs */
    void (*stop)(struct specdec__lane *lane);   /* it shall begin no further run */
    int (*runs)(struct specdec__lane *lane);    /* whether it is not done yet */
    void (*wait)(struct specdec__lane *lane);
} specdec__lane_kind;

typedef struct specdec__lane {
    const specdec__lane_kind *kind;
    specdec__pool *whole; /* it lends the lane its last threads while a job is not waited for */
    specdec__pool door; /* two threads: the lane's, and the caller, which comes in when it waits */
    specdec__pool team; /* what the lane's thread leads; its jobs run on that */
    specdec__lane_job *job;
    void *argument;
    int cancel;         /* ends what the team runs at the next barrier */
    int stopped;
    int busy;           /* a job was submitted, and not waited for */
} specdec__lane;

SPECDEC__FOR_SIZE

/* The caller takes no part in a job. */
static void specdec__lane_worker(void *argument, int thread)
{
    const specdec__lane *lane = (const specdec__lane *)argument;

    if (thread)
        lane->job(lane->argument);
}

static void specdec__lane_call(specdec__lane *lane)
{
    lane->door.function = specdec__lane_worker;
    lane->door.argument = lane;
    lane->door.stopped = lane->door.cursor = 0;
    lane->door.active = 2;
    specdec__pool_call(&lane->door);
    SPECDEC__PAUSE();
}

static int specdec__lane_not_stopped(specdec__lane *lane)
{
    SPECDEC__PAUSE();
    return !SPECDEC__LOAD(&lane->stopped);
}

static void specdec__lane_mark(specdec__lane *lane)
{
    SPECDEC__STORE(&lane->stopped, 1);
    SPECDEC__PAUSE();
}

static int specdec__lane_is_out(specdec__lane *lane) { return !SPECDEC__LOAD(&lane->door.arrived); }

static void specdec__lane_meet(specdec__lane *lane) { specdec__pool_meet(&lane->door); }

static const specdec__lane_kind specdec__lane_helper = {specdec__lane_call, specdec__lane_not_stopped,
                                                        specdec__lane_mark, specdec__lane_is_out, specdec__lane_meet};

/* Makes a lane of the last helper of a pool, which nobody else calls, and of the threads - 1 before it: the pool runs
   without these while the lane has a job. */
static void specdec__lane_init(specdec__lane *lane, specdec__pool *pool, int threads)
{
    const int last = pool->crew ? pool->crew->count - 1 : 0;

    memset(lane, 0, sizeof *lane);
    lane->kind = &specdec__lane_helper;
    lane->whole = pool;
    specdec__pool_part(&lane->door, pool, last, 2, &lane->cancel);
    specdec__pool_part(&lane->team, pool, last - threads + 1, threads, &lane->cancel);
}

/* Begins a job. The one before must have been waited for. */
static void specdec__lane_submit(specdec__lane *lane, specdec__lane_job *job, void *argument)
{
    lane->job = job;
    lane->argument = argument;
    lane->busy = 1;
    lane->whole->threads -= lane->team.threads - 1;
    SPECDEC__STORE(&lane->cancel, 0);
    SPECDEC__STORE(&lane->stopped, 0);
    lane->kind->submit(lane);
}

/* Whether a job runs that is not done yet. */
static int specdec__lane_runs(specdec__lane *lane) { return lane->busy && lane->kind->runs(lane); }

/* Waits until the job, if there is one, is done. */
static void specdec__lane_wait(specdec__lane *lane)
{
    if (!lane->busy)
        return;
    lane->kind->wait(lane);
    lane->whole->threads += lane->team.threads - 1;
    lane->busy = 0;
}

/* The job's run ends at its next barrier. */
static void specdec__lane_cancel(specdec__lane *lane)
{
    SPECDEC__STORE(&lane->cancel, 1);
    SPECDEC__PAUSE();
}

SPECDEC__FOR_SPEED
