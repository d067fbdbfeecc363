/* =====================================================================================================================
 * >>base/pool: threads that run one function side by side, meet at barriers, share out ranges and watch a cancel flag.
 *
 * A pool is the thread that calls specdec__pool_run, as thread 0, and helpers on seats. A part of a pool's seats (a
 * team) that a thread of its own leads is a pool, too: it has its own cursor, barrier and cancel flag. Pools that run
 * at the same time must have no seat in common.
 * ================================================================================================================== */

#pragma once
#include "base.h"
#include "os.h"

/* Looks at a flag before a waiting thread sleeps: some five microseconds, as x86's pause takes 40 to 140 cycles. Where
   other programs want the cores, a thread that is woken runs sooner than one that waits busily, or that yields: a yield
   gives a whole slice of the scheduler's away. */
#if defined(__x86_64__) || defined(__i386__)
#define SPECDEC__SPINS 300
#else
#define SPECDEC__SPINS 2000
#endif
#define SPECDEC__STACK (256 * 1024) /* bytes of each helper thread's stack, inside the caller's block */

#define SPECDEC__LATE 500e-6    /* seconds; a thread that sleeps so long at a barrier waits for one that has no core */
#define SPECDEC__LATE_SHARE 0.1 /* of its threads' time: a run that waits longer is followed by one thread less */
#define SPECDEC__LATE_RUNS 2    /* in a row: a thread that has slept long may wake up on a core that is in use */
#define SPECDEC__LATE_REST 4    /* times the time of that run, after which the thread is tried again; it doubles */
#define SPECDEC__LATE_MOST 64   /* each time that the thread is late again, up to this */

#ifndef SPECDEC__PAUSE
#define SPECDEC__PAUSE() ((void)0) /* where threads meet: tests let some of them come late */
#endif

typedef void specdec__team_function(void *argument, int thread);

/* A helper thread. It waits until it is called, takes part in one run of a pool, and waits again. */
typedef struct specdec__seat {
    specdec__os_thread thread;
    struct specdec__crew *crew;
    struct specdec__pool *pool; /* whose run it is called to; NULL: the thread ends */
    int number;                 /* which thread of that pool it is */
    unsigned calls;
    unsigned char apart[SPECDEC__CACHE_LINE]; /* what it waits for shares no cache line with the next seat */
} specdec__seat;

/* All helper threads, and where those who wait long sleep. A pool and its parts share it. */
typedef struct specdec__crew {
    specdec__seat *seats; /* (count) */
    int count;
    int asleep;           /* seats that sleep until they are called */
    const specdec_hooks *hooks;
    specdec__os_lot lot;
} specdec__crew;

/* A pool or a part of one. It lives as long as its crew: a helper that leaves a barrier late still looks at it. */
typedef struct specdec__pool {
    specdec__crew *crew;  /* NULL: the caller is alone */
    int *cancel;          /* the engine's flag, set from anywhere */
    specdec__team_function *function;
    void *argument;
    int first;            /* seat of thread 1; those of the others follow */
    int threads;          /* the caller's included */
    int active;           /* threads in the run under way: 0 .. active - 1 */
    int arrived;          /* threads at the barrier */
    unsigned phase;       /* bumped when a barrier opens */
    int asleep;           /* threads that sleep until it opens */
    int stopped;          /* what the barrier saw in *cancel: the same for every thread */
    int cursor;           /* next unclaimed item of the phase */
    int most;             /* threads of the next run, at most: fewer where other programs want the cores */
    unsigned since;       /* microsecond in which a thread went to sleep at the barrier; 0: none has */
    double late;          /* seconds that threads of this run have slept for others that had no core, all together */
    double retry;         /* from when on one thread more is tried, specdec__os_seconds */
    double rest;          /* times the time of the last late run until then */
    int late_runs;        /* late runs in a row, of all of the pool's present threads */
} specdec__pool;

SPECDEC__INLINE void specdec__pool_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* A moment in microseconds, never 0; differences of two are right for an hour. */
static unsigned specdec__pool_moment(void) { return (unsigned)(uint64_t)(1e6 * specdec__os_seconds()) | 1; }

/* Waits until *word differs from value: spins first, then sleeps. *asleep counts the threads that sleep, *since, if not
   NULL, is the moment in which the first of them went to sleep. */
static void specdec__pool_wait(specdec__crew *crew, int *asleep, unsigned *since, unsigned *word, unsigned value)
{
    unsigned none = 0;
    int i;

    for (i = 0; i < SPECDEC__SPINS; i++) {
        if (SPECDEC__LOAD(word) != value)
            return;
        specdec__pool_relax();
    }
    if (since)
        SPECDEC__SWAP(since, &none, specdec__pool_moment());
    __atomic_fetch_add(asleep, 1, __ATOMIC_SEQ_CST);
    specdec__os_park(&crew->lot, word, value);
    __atomic_fetch_sub(asleep, 1, __ATOMIC_SEQ_CST);
}

/* Wakes the threads that *asleep counts. The caller has changed the word that they wait for. */
static void specdec__pool_wake(specdec__crew *crew, int *asleep)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* a thread that goes to sleep counts itself, then looks again */
    if (__atomic_load_n(asleep, __ATOMIC_SEQ_CST))
        specdec__os_wake(&crew->lot);
}

/* The last of a run's threads has come to the barrier: adds to pool->late what the `others` have slept. */
static void specdec__pool_note_late(specdec__pool *pool, int others)
{
    const unsigned since = SPECDEC__LOAD(&pool->since);
    double slept;

    if (!since)
        return;
    SPECDEC__STORE(&pool->since, 0);
    slept = 1e-6 * (specdec__pool_moment() - since);
    if (slept > SPECDEC__LATE)
        pool->late += slept * others;
}

/* All threads of a run meet here; the next phase's cursor is at 0 when they leave. */
static void specdec__pool_meet(specdec__pool *pool)
{
    unsigned phase = SPECDEC__LOAD(&pool->phase);
    /* read before arriving: afterwards the next run may already have changed it */
    int last = SPECDEC__OS_THREADS ? pool->active - 1 : 0;

    SPECDEC__PAUSE();
    if (last && SPECDEC__ADD(&pool->arrived, 1) != last) {
        specdec__pool_wait(pool->crew, &pool->asleep, &pool->since, &pool->phase, phase);
        return;
    }
    pool->arrived = 0;
    pool->stopped |= SPECDEC__LOAD(pool->cancel);
    pool->cursor = 0;
    if (last) {
        specdec__pool_note_late(pool, last);
        SPECDEC__STORE(&pool->phase, phase + 1);
        specdec__pool_wake(pool->crew, &pool->asleep);
    }
}

/* Threads of the run under way. */
SPECDEC__INLINE int specdec__pool_active(const specdec__pool *pool) { return SPECDEC__OS_THREADS ? pool->active : 1; }

/* All threads meet here in the middle of a run. Returns 1 once the run is cancelled. Every thread gets the same answer,
   so that all leave together. */
static int specdec__pool_barrier(specdec__pool *pool)
{
    specdec__pool_meet(pool);
    return pool->stopped;
}

/* Claims a part of what is left of [0, count): an even number of items, at least `least`. Returns the first item of the
   part and sets *end behind its last; returns count when all are taken. Faster threads come back more often, and parts
   get smaller towards the end, so all threads end at about the same time. */
static int specdec__pool_claim(specdec__pool *pool, int count, int least, int *end)
{
    int from, part;

    if (specdec__pool_active(pool) == 1) {
        from = pool->cursor;
        pool->cursor = *end = count;
        return from;
    }
    from = SPECDEC__LOAD(&pool->cursor);
    do {
        if (from >= count)
            return count;
        part = specdec__max_int(least, (count - from) / (pool->active * 3) & ~1);
        part = specdec__min_int(part, count - from);
    } while (!SPECDEC__SWAP(&pool->cursor, &from, from + part));
    *end = from + part;
    return from;
}

/* A thread's way through [0, count). It claims its next part before the present one is done, so it knows early what
   comes next. */
typedef struct specdec__walk {
    specdec__pool *pool;
    int count, least;
    int at, end;        /* what is left of the present part, from the item at hand on; at = count: nothing */
    int next, next_end; /* the part after it; next = -1: not claimed yet */
} specdec__walk;

static void specdec__walk_begin(specdec__walk *walk, specdec__pool *pool, int count, int least)
{
    walk->pool = pool;
    walk->count = count;
    walk->least = least;
    walk->end = walk->next_end = 0;
    walk->at = specdec__pool_claim(pool, count, least, &walk->end);
    walk->next = -1;
}

/* The item that follows the n items at hand. When none follows: the last of these n. */
static int specdec__walk_next(specdec__walk *walk, int n)
{
    if (walk->at + n < walk->end)
        return walk->at + n;
    if (walk->next < 0)
        walk->next = specdec__pool_claim(walk->pool, walk->count, walk->least, &walk->next_end);
    return walk->next < walk->count ? walk->next : walk->at + n - 1;
}

/* Moves on by n items. specdec__walk_next must have been asked for the one after them. */
static void specdec__walk_on(specdec__walk *walk, int n)
{
    walk->at += n;
    if (walk->at < walk->end)
        return;
    walk->at = walk->next;
    walk->end = walk->next_end;
    walk->next = -1;
}

/* Calls the helpers to a run: all threads but the first, which is the caller. */
static void specdec__pool_call(specdec__pool *pool)
{
    int i;

    for (i = 1; i < pool->active; i++) {
        specdec__seat *seat = &pool->crew->seats[pool->first + i - 1];

        seat->pool = pool;
        seat->number = i;
        SPECDEC__STORE(&seat->calls, seat->calls + 1);
    }
    specdec__pool_wake(pool->crew, &pool->crew->asleep);
}

/* How many of `threads` threads take part in a run that begins now. Where other programs want the cores, a barrier
   often waits a whole slice of the scheduler's for a thread that has none, and fewer threads are faster. */
static int specdec__pool_threads(specdec__pool *pool, int threads, double now)
{
    threads = specdec__min_int(threads, pool->threads);
    if (pool->most < threads && now >= pool->retry)
        pool->most++;
    return specdec__max_int(1, specdec__min_int(threads, pool->most));
}

/* What a run of `seconds` that ended now says of the next one's threads. A run that wanted fewer threads than it could
   have had, as a small draft model's, says nothing of wider ones. */
static void specdec__pool_learn(specdec__pool *pool, double now, double seconds)
{
    if (pool->active < specdec__min_int(pool->threads, pool->most))
        return;
    if (pool->late <= SPECDEC__LATE_SHARE * pool->active * seconds) {
        pool->rest /= 2;
        pool->late_runs = 0;
        return;
    }
    if (++pool->late_runs < SPECDEC__LATE_RUNS)
        return;
    pool->late_runs = 0;
    pool->rest *= 2;
    pool->rest = pool->rest < SPECDEC__LATE_REST   ? SPECDEC__LATE_REST
                 : pool->rest > SPECDEC__LATE_MOST ? SPECDEC__LATE_MOST
                                                   : pool->rest;
    pool->most = pool->active - 1;
    pool->retry = now + pool->rest * seconds;
}

/* Runs function(argument, thread) on at most `threads` threads, with the caller as thread 0; other threads sleep on.
   Returns when all are done: 1 when the run was cancelled at a barrier, else 0. */
static int specdec__pool_run(specdec__pool *pool, int threads, specdec__team_function *function, void *argument)
{
    const int crowd = SPECDEC__OS_THREADS && threads > 1 && pool->threads > 1;
    const double since = crowd ? specdec__os_seconds() : 0;

    pool->function = function;
    pool->argument = argument;
    pool->active = crowd ? specdec__pool_threads(pool, threads, since) : 1;
    pool->cursor = 0;
    pool->stopped = 0;
    pool->late = 0;
    if (pool->active > 1)
        specdec__pool_call(pool);
    function(argument, 0);
    specdec__pool_meet(pool);
    if (pool->active > 1) {
        const double now = specdec__os_seconds();

        specdec__pool_learn(pool, now, now - since);
    }
    return pool->stopped;
}

/* What a helper runs: it waits for a call, takes part in a run, and waits again. No run ends without its helpers, so no
   call is missed. */
static void specdec__pool_helper(void *argument)
{
    specdec__seat *seat = (specdec__seat *)argument;
    const specdec_hooks *hooks = seat->crew->hooks;
    unsigned calls = 0;

    if (hooks && hooks->thread)
        hooks->thread(hooks->user_data, 1 + (int)(seat - seat->crew->seats));
    for (;;) {
        specdec__pool *pool;

        specdec__pool_wait(seat->crew, &seat->crew->asleep, NULL, &seat->calls, calls++);
        pool = seat->pool;
        if (!pool)
            return;
        SPECDEC__PAUSE();
        pool->function(pool->argument, seat->number);
        specdec__pool_meet(pool);
    }
}

/* Stops and joins the helpers; parts end with the pool. A zeroed pool, or one that has been stopped, is left alone. */
static void specdec__pool_deinit(specdec__pool *pool)
{
    specdec__crew *crew = pool->crew;
    int i;

    pool->threads = 0;
    if (!SPECDEC__OS_THREADS || !crew)
        return;
    for (i = 0; i < crew->count; i++) {
        crew->seats[i].pool = NULL;
        SPECDEC__STORE(&crew->seats[i].calls, crew->seats[i].calls + 1);
    }
    specdec__pool_wake(crew, &crew->asleep);
    for (i = 0; i < crew->count; i++)
        specdec__os_join(&crew->seats[i].thread);
    specdec__os_lot_deinit(&crew->lot);
    pool->crew = NULL;
}

/* Makes a pool of `threads` threads: the one that will call specdec__pool_run with it, and threads - 1 helpers of
   another pool, from seat `first` on. It ends with that pool. */
static void specdec__pool_part(specdec__pool *part, const specdec__pool *whole, int first, int threads, int *cancel)
{
    memset(part, 0, sizeof *part);
    part->crew = whole->crew;
    part->first = whole->first + first;
    part->threads = part->active = part->most = threads;
    part->cancel = cancel;
}

SPECDEC__FOR_SIZE
/* Starts a helper for every seat, on stacks of SPECDEC__STACK bytes each. */
static specdec_result specdec__pool_start(specdec__pool *pool, int helpers, unsigned char *stacks, specdec_error *error)
{
    specdec__crew *crew = pool->crew;

    specdec__os_lot_init(&crew->lot);
    for (; crew->count < helpers; crew->count++) {
        specdec__seat *seat = &crew->seats[crew->count];
        void *stack = SPECDEC__OS_OWN_STACKS ? stacks + (size_t)crew->count * SPECDEC__STACK : NULL;

        seat->crew = crew;
        if (!specdec__os_start(&seat->thread, stack, SPECDEC__STACK, specdec__pool_helper, seat)) {
            int failed = crew->count + 2;

            specdec__pool_deinit(pool);
            return specdec__fail(error, SPECDEC_ERROR_SYSTEM, "cannot start thread %d of %d", failed, helpers + 1);
        }
    }
    pool->threads = helpers + 1;
    return SPECDEC_OK;
}

/* Starts threads - 1 helpers. They lie in the arena; so do their stacks, where the system allows that. While the arena
   only counts, nothing is started. hooks: NULL, or as long-lived as the pool. */
static specdec_result specdec__pool_init(specdec__pool *pool, int threads, int *cancel, const specdec_hooks *hooks,
                                         specdec__arena *arena, specdec_error *error)
{
    int helpers = SPECDEC__OS_THREADS ? threads - 1 : 0;
    specdec__crew *crew = NULL;
    unsigned char *stacks = NULL;

    if (helpers) {
        specdec__seat *seats = SPECDEC__TAKE(arena, specdec__seat, helpers);

        crew = SPECDEC__TAKE(arena, specdec__crew, 1);
        stacks = (unsigned char *)specdec__arena_take(arena, SPECDEC__OS_OWN_STACKS * (size_t)helpers, SPECDEC__STACK,
                                                      4096);
        if (crew) {
            crew->seats = seats;
            crew->hooks = hooks;
        }
    }
    if (!arena->base)
        return SPECDEC_OK;
    memset(pool, 0, sizeof *pool);
    pool->threads = pool->active = 1;
    pool->most = threads;
    pool->cancel = cancel;
    pool->crew = stacks ? crew : NULL;
    return pool->crew ? specdec__pool_start(pool, helpers, stacks, error) : SPECDEC_OK;
}
SPECDEC__FOR_SPEED
