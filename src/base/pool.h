/* =====================================================================================================================
 * >>base/pool: threads that run one function side by side, meet at barriers, share out ranges and watch a cancel flag.
 *
 * A pool is the thread that calls specdec__pool_run, as thread 0, and helpers. Some of a pool's helpers (a
 * team) that a thread of its own leads is a pool, too: it has its own items, barrier and cancel flag. Pools that run
 * at the same time must have no helper in common.
 * ================================================================================================================== */

#pragma once
#include "base.h"
#include "os.h"

/* Looks at a flag before a waiting thread sleeps: some five microseconds, as x86's pause takes 40 to 140 cycles. Where
   other programs want the cores, a thread that is woken runs sooner than one that waits busily, or that yields: a yield
   gives a whole slice of the scheduler's away. */
#if defined(__x86_64__) || defined(__i386__)
#define SPECDEC__WAIT_SPINS 300 /* looks at a flag before a waiting thread sleeps */
#else
#define SPECDEC__WAIT_SPINS 2000 /* looks at a flag before a waiting thread sleeps */
#endif
#define SPECDEC__STACK_BYTES (256 * 1024) /* bytes of each helper thread's stack, inside the caller's block */

/* Fewer threads, where other programs use the cores. */
#define SPECDEC__LATE_SECONDS 500e-6      /* a thread that sleeps longer at a barrier waits for one that has no core */
#define SPECDEC__LATE_MAX_SHARE 0.1       /* a run is late if its threads have slept for a larger share of their time */
#define SPECDEC__LATE_RUNS 2              /* so many late runs in a row are followed by runs with one thread less */
#define SPECDEC__LATE_MIN_RETRY_FACTOR 4  /* one thread more is tried after so many times a late run's time: */
#define SPECDEC__LATE_MAX_RETRY_FACTOR 64 /* at first the minimum, doubled at each further late run up to the maximum */

#ifndef SPECDEC__PAUSE
#define SPECDEC__PAUSE() ((void)0) /* where threads meet: tests let some of them come late */
#endif

typedef void specdec__team_function(void *argument, int thread);

/* A helper thread. It waits until it is called, takes part in one run of a pool, and waits again. */
typedef struct specdec__helper {
    specdec__os_thread thread;                  /* the system's thread */
    struct specdec__crew *crew;                 /* the helpers that it is one of */
    struct specdec__pool *pool;                 /* the pool whose run it is called to; NULL: the thread ends */
    int number;                                 /* its thread number in that pool's run: 1, 2, ... */
    unsigned call_count;                        /* how often it was called; the thread waits until this changes */
    unsigned char padding[SPECDEC__CACHE_LINE]; /* so that no two helpers share a cache line */
} specdec__helper;

/* All helper threads of a pool, and the parking lot where those who wait long sleep. A pool and its parts share it. */
typedef struct specdec__crew {
    specdec__helper *helpers;            /* (count) */
    int count;                           /* number of helpers */
    int sleeping;                        /* helpers that sleep until they are called */
    const specdec_hooks *hooks;          /* the caller's hooks, of which one is called by each new thread; NULL: none */
    specdec__os_parking_lot parking_lot; /* where waiting threads sleep */
} specdec__crew;

/* A pool of threads, or a part of one. It lives as long as its crew: a helper that leaves a barrier late still looks at
   it. */
typedef struct specdec__pool {
    specdec__crew *crew;              /* helpers of this pool and of others; NULL: the caller is alone */
    int *cancel;                      /* the engine's flag, which any thread may set to 1 to end the run */
    specdec__team_function *function; /* what the threads of the current run execute */
    void *argument;                   /* argument of the function */
    int first_helper;                 /* index in the crew of thread 1; the next threads are the next helpers */
    int threads;                      /* threads of the pool, the caller included */
    int active;                       /* threads of the current run: numbers 0 to active - 1 */
    int arrived;                      /* threads that wait at the barrier */
    unsigned phase;                   /* counted up each time that all threads have met at a barrier */
    int sleeping;                     /* threads that sleep until the phase changes */
    int run_cancelled;                /* *cancel when the last barrier was reached: the same for every thread */
    int next_item;                    /* the first item that no thread has claimed in this phase */
    int max_active;                   /* threads of the next run, at most; fewer where other programs use the cores */
    unsigned sleeping_since;          /* microsecond in which the first thread went to sleep at the barrier; 0: none */
    double late_seconds;              /* total seconds that threads of this run have slept for threads without a core */
    double retry_time;                /* when one thread more is tried: see specdec__os_monotonic_seconds */
    double retry_factor;              /* time between a late run and retry_time, over the time of that run */
    int late_runs;                    /* late runs in a row */
} specdec__pool;

SPECDEC__INLINE void specdec__pool_pause_core(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Returns the current time in microseconds, never 0; differences of two such times are right for an hour. */
static unsigned specdec__pool_microseconds(void)
{
    return (unsigned)(uint64_t)(1e6 * specdec__os_monotonic_seconds()) | 1;
}

/* Waits until *word differs from value: spins first, then sleeps. *asleep: the number of threads that sleep here.
   *since, unless NULL: the microsecond in which the first of them went to sleep; 0: none sleeps. */
static void specdec__pool_wait_for_change(specdec__crew *crew, int *asleep, unsigned *since, unsigned *word,
                                          unsigned value)
{
    unsigned none = 0;
    int i;

    for (i = 0; i < SPECDEC__WAIT_SPINS; i++) {
        if (SPECDEC__LOAD(word) != value)
            return;
        specdec__pool_pause_core();
    }
    if (since)
        SPECDEC__SWAP(since, &none, specdec__pool_microseconds());
    __atomic_fetch_add(asleep, 1, __ATOMIC_SEQ_CST);
    specdec__os_sleep_until_changed(&crew->parking_lot, word, value);
    __atomic_fetch_sub(asleep, 1, __ATOMIC_SEQ_CST);
}

/* Wakes the threads that sleep and that *asleep counts. The caller has changed the word that they wait for. */
static void specdec__pool_wake_threads(specdec__crew *crew, int *asleep)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* a thread that goes to sleep counts itself, then looks again */
    if (__atomic_load_n(asleep, __ATOMIC_SEQ_CST))
        specdec__os_wake_all(&crew->parking_lot);
}

/* Adds the seconds that the `others` threads have slept at a barrier to pool->late_seconds, if each slept longer than
   SPECDEC__LATE_SECONDS. Called by the last thread to arrive. */
static void specdec__pool_record_late_seconds(specdec__pool *pool, int others)
{
    const unsigned since = SPECDEC__LOAD(&pool->sleeping_since);
    double slept;

    if (!since)
        return;
    SPECDEC__STORE(&pool->sleeping_since, 0);
    slept = 1e-6 * (specdec__pool_microseconds() - since);
    if (slept > SPECDEC__LATE_SECONDS)
        pool->late_seconds += slept * others;
}

/* Waits at a barrier until all threads of the run have arrived. The last one records a cancel, and sets next_item to 0
   for the next phase. */
static void specdec__pool_wait_for_all(specdec__pool *pool)
{
    unsigned phase = SPECDEC__LOAD(&pool->phase);
    /* read before arriving: afterwards the next run may already have changed it */
    int last = SPECDEC__HAS_THREADS ? pool->active - 1 : 0;

    SPECDEC__PAUSE();
    if (last && SPECDEC__ADD(&pool->arrived, 1) != last) {
        specdec__pool_wait_for_change(pool->crew, &pool->sleeping, &pool->sleeping_since, &pool->phase, phase);
        return;
    }
    pool->arrived = 0;
    pool->run_cancelled |= SPECDEC__LOAD(pool->cancel);
    pool->next_item = 0;
    if (last) {
        specdec__pool_record_late_seconds(pool, last);
        SPECDEC__STORE(&pool->phase, phase + 1);
        specdec__pool_wake_threads(pool->crew, &pool->sleeping);
    }
}

/* Returns the number of threads of the current run. */
SPECDEC__INLINE int specdec__pool_active(const specdec__pool *pool) { return SPECDEC__HAS_THREADS ? pool->active : 1; }

/* Waits at a barrier in the middle of a run until all its threads have arrived. Returns 1 once the run is cancelled:
   every thread gets the same answer, so that all leave together. */
static int specdec__pool_barrier(specdec__pool *pool)
{
    specdec__pool_wait_for_all(pool);
    return pool->run_cancelled;
}

/* Claims a part of the items of [0, count) that no thread has claimed: an even number of items, at least `least`.
   Returns the first item of the part, and sets *end behind its last one; returns count if all items are claimed. Faster
   threads claim more often, and parts get smaller towards the end, so all threads end at about the same time. */
static int specdec__pool_claim_items(specdec__pool *pool, int count, int least, int *end)
{
    int from, part;

    if (specdec__pool_active(pool) == 1) {
        from = pool->next_item;
        pool->next_item = *end = count;
        return from;
    }
    from = SPECDEC__LOAD(&pool->next_item);
    do {
        if (from >= count)
            return count;
        part = specdec__max_int(least, (count - from) / (pool->active * 3) & ~1);
        part = specdec__min_int(part, count - from);
    } while (!SPECDEC__SWAP(&pool->next_item, &from, from + part));
    *end = from + part;
    return from;
}

/* A thread's way through the items [0, count) that the threads of a pool share. It claims its next part before it has
   done the current one, so it knows early which item comes next. */
typedef struct specdec__item_walk {
    specdec__pool *pool;  /* the pool whose threads share the items */
    int count, min_items; /* number of items; how many a thread claims at a time, at least */
    int at, end;          /* the rest of the claimed part: items [at, end); at = count: there are no more items */
    int next, next_end;   /* the part claimed after it: items [next, next_end); next = -1: not claimed yet */
} specdec__item_walk;

static void specdec__item_walk_begin(specdec__item_walk *walk, specdec__pool *pool, int count, int least)
{
    walk->pool = pool;
    walk->count = count;
    walk->min_items = least;
    walk->end = walk->next_end = 0;
    walk->at = specdec__pool_claim_items(pool, count, least, &walk->end);
    walk->next = -1;
}

/* Returns the item that follows the next n items of a walk; the last of these n items if there is none. */
static int specdec__item_walk_item_after(specdec__item_walk *walk, int n)
{
    if (walk->at + n < walk->end)
        return walk->at + n;
    if (walk->next < 0)
        walk->next = specdec__pool_claim_items(walk->pool, walk->count, walk->min_items, &walk->next_end);
    return walk->next < walk->count ? walk->next : walk->at + n - 1;
}

/* Advances a walk by n items. specdec__item_walk_item_after(walk, n) was called before. */
static void specdec__item_walk_advance(specdec__item_walk *walk, int n)
{
    walk->at += n;
    if (walk->at < walk->end)
        return;
    walk->at = walk->next;
    walk->end = walk->next_end;
    walk->next = -1;
}

/* Calls the helpers of a pool to its run: all threads but thread 0, which is the caller. */
static void specdec__pool_call_helpers(specdec__pool *pool)
{
    int i;

    for (i = 1; i < pool->active; i++) {
        specdec__helper *helper = &pool->crew->helpers[pool->first_helper + i - 1];

        helper->pool = pool;
        helper->number = i;
        SPECDEC__STORE(&helper->call_count, helper->call_count + 1);
    }
    specdec__pool_wake_threads(pool->crew, &pool->crew->sleeping);
}

/* Returns how many of `threads` threads take part in a run that begins at second `now`. Where other programs use the
   cores, a barrier often waits a whole time slice for a thread that has no core, and fewer threads are faster. */
static int specdec__pool_choose_active_threads(specdec__pool *pool, int threads, double now)
{
    threads = specdec__min_int(threads, pool->threads);
    if (pool->max_active < threads && now >= pool->retry_time)
        pool->max_active++;
    return specdec__max_int(1, specdec__min_int(threads, pool->max_active));
}

/* Adapts pool->max_active, the most threads of later runs, after a run of `seconds` seconds that ended at second `now`.
   A run that wanted fewer threads than it could have had, as a small draft model's, says nothing of wider ones. */
static void specdec__pool_adapt_max_active(specdec__pool *pool, double now, double seconds)
{
    if (pool->active < specdec__min_int(pool->threads, pool->max_active))
        return;
    if (pool->late_seconds <= SPECDEC__LATE_MAX_SHARE * pool->active * seconds) {
        pool->retry_factor /= 2;
        pool->late_runs = 0;
        return;
    }
    if (++pool->late_runs < SPECDEC__LATE_RUNS)
        return;
    pool->late_runs = 0;
    pool->retry_factor *= 2;
    pool->retry_factor = pool->retry_factor < SPECDEC__LATE_MIN_RETRY_FACTOR   ? SPECDEC__LATE_MIN_RETRY_FACTOR
                         : pool->retry_factor > SPECDEC__LATE_MAX_RETRY_FACTOR ? SPECDEC__LATE_MAX_RETRY_FACTOR
                                                                               : pool->retry_factor;
    pool->max_active = pool->active - 1;
    pool->retry_time = now + pool->retry_factor * seconds;
}

/* Runs function(argument, thread) on at most `threads` threads of a pool, with the caller as thread 0; its other
   threads stay asleep. Returns when all are done: 1 if the run was cancelled at a barrier, else 0. */
static int specdec__pool_run(specdec__pool *pool, int threads, specdec__team_function *function, void *argument)
{
    const int crowd = SPECDEC__HAS_THREADS && threads > 1 && pool->threads > 1;
    const double since = crowd ? specdec__os_monotonic_seconds() : 0;

    pool->function = function;
    pool->argument = argument;
    pool->active = crowd ? specdec__pool_choose_active_threads(pool, threads, since) : 1;
    pool->next_item = 0;
    pool->run_cancelled = 0;
    pool->late_seconds = 0;
    if (pool->active > 1)
        specdec__pool_call_helpers(pool);
    function(argument, 0);
    specdec__pool_wait_for_all(pool);
    if (pool->active > 1) {
        const double now = specdec__os_monotonic_seconds();

        specdec__pool_adapt_max_active(pool, now, now - since);
    }
    return pool->run_cancelled;
}

/* Runs a helper thread: it waits for a call, takes part in a run, and waits again. A run ends only when its helpers
   have arrived, so no call is missed. */
static void specdec__pool_run_helper(void *argument)
{
    specdec__helper *helper = (specdec__helper *)argument;
    const specdec_hooks *hooks = helper->crew->hooks;
    unsigned calls = 0;

    if (hooks && hooks->thread)
        hooks->thread(hooks->user_data, 1 + (int)(helper - helper->crew->helpers));
    for (;;) {
        specdec__pool *pool;

        specdec__pool_wait_for_change(helper->crew, &helper->crew->sleeping, NULL, &helper->call_count, calls++);
        pool = helper->pool;
        if (!pool)
            return;
        SPECDEC__PAUSE();
        pool->function(pool->argument, helper->number);
        specdec__pool_wait_for_all(pool);
    }
}

/* Ends and joins all helpers of a pool, and so its parts. Does nothing for a zeroed pool, or one whose helpers have
   ended. */
static void specdec__pool_deinit(specdec__pool *pool)
{
    specdec__crew *crew = pool->crew;
    int i;

    pool->threads = 0;
    if (!SPECDEC__HAS_THREADS || !crew)
        return;
    for (i = 0; i < crew->count; i++) {
        crew->helpers[i].pool = NULL;
        SPECDEC__STORE(&crew->helpers[i].call_count, crew->helpers[i].call_count + 1);
    }
    specdec__pool_wake_threads(crew, &crew->sleeping);
    for (i = 0; i < crew->count; i++)
        specdec__os_join_thread(&crew->helpers[i].thread);
    specdec__os_parking_lot_deinit(&crew->parking_lot);
    pool->crew = NULL;
}

/* Makes a part of a pool, with `threads` threads: the one that will call specdec__pool_run with the part, and threads -
   1 helpers of the whole pool, from its helper number `first` on. The part ends with the whole pool. */
static void specdec__pool_lend_helpers(specdec__pool *part, const specdec__pool *whole, int first, int threads,
                                       int *cancel)
{
    memset(part, 0, sizeof *part);
    part->crew = whole->crew;
    part->first_helper = whole->first_helper + first;
    part->threads = part->active = part->max_active = threads;
    part->cancel = cancel;
}

SPECDEC__FOR_SIZE
/* Starts the helper threads of a pool, with stacks of SPECDEC__STACK_BYTES each. Errors: SYSTEM. */
static specdec_result specdec__pool_start_helpers(specdec__pool *pool, int helpers, unsigned char *stacks,
                                                  specdec_error *error)
{
    specdec__crew *crew = pool->crew;

    specdec__os_parking_lot_init(&crew->parking_lot);
    for (; crew->count < helpers; crew->count++) {
        specdec__helper *helper = &crew->helpers[crew->count];
        void *stack = SPECDEC__OS_TAKES_STACKS ? stacks + (size_t)crew->count * SPECDEC__STACK_BYTES : NULL;

        helper->crew = crew;
        if (!specdec__os_start_thread(&helper->thread, stack, SPECDEC__STACK_BYTES, specdec__pool_run_helper, helper)) {
            int failed = crew->count + 2;

            specdec__pool_deinit(pool);
            return specdec__fail(error, SPECDEC_ERROR_SYSTEM, "cannot start thread %d of %d", failed, helpers + 1);
        }
    }
    pool->threads = helpers + 1;
    return SPECDEC_OK;
}

/* Makes a pool of `threads` threads and starts its threads - 1 helpers. Helpers lie in the arena; so do their stacks,
   where the system allows that. While the arena only counts, nothing is started. hooks: NULL, or as long-lived as the
   pool. Errors: SYSTEM. */
static specdec_result specdec__pool_init(specdec__pool *pool, int threads, int *cancel, const specdec_hooks *hooks,
                                         specdec__arena *arena, specdec_error *error)
{
    int helpers = SPECDEC__HAS_THREADS ? threads - 1 : 0;
    specdec__crew *crew = NULL;
    unsigned char *stacks = NULL;

    if (helpers) {
        specdec__helper *items = SPECDEC__TAKE(arena, specdec__helper, helpers);

        crew = SPECDEC__TAKE(arena, specdec__crew, 1);
        stacks = (unsigned char *)specdec__arena_take(arena, SPECDEC__OS_TAKES_STACKS * (size_t)helpers,
                                                      SPECDEC__STACK_BYTES, 4096);
        if (crew) {
            crew->helpers = items;
            crew->hooks = hooks;
        }
    }
    if (!arena->base)
        return SPECDEC_OK;
    memset(pool, 0, sizeof *pool);
    pool->threads = pool->active = 1;
    pool->max_active = threads;
    pool->cancel = cancel;
    pool->crew = stacks ? crew : NULL;
    return pool->crew ? specdec__pool_start_helpers(pool, helpers, stacks, error) : SPECDEC_OK;
}
SPECDEC__FOR_SPEED
