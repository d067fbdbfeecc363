/* test_pool.c - the worker pool: barriers, shared-out ranges, cancelling, parking, teams. Meant to run under
   -fsanitize=thread, too. cc -O2 -pthread -I. test_pool.c; SPECDEC_QUICK=1 shortens. */
#define SPECDEC_MAX_THREADS 1023 /* many more than usual */
#include "../src/base/pool.h"
#include "check.h"
#include "pages.h"
#include <pthread.h>
#include <time.h>

#define MOST_THREADS 16
#define ITEMS 1000
#define PHASES 20

static int quick;

typedef struct job {
    specdec__pool *pool;
    int items, chunk, phases;
    int cancel_at;                       /* phase in which thread 0 cancels; -1: none */
    int seen[PHASES][ITEMS];             /* plain ints: a second claim of an item is a race that a sanitizer sees */
    int entered[PHASES];                 /* atomic: threads that reached the end of a phase */
    int early;                           /* atomic: threads that left a barrier before all had come */
    int astray;                          /* atomic: items that came next and were not the ones foretold */
    int left_at[MOST_THREADS];           /* phase at which a thread saw the cancellation; phases: never */
    int *cancel;
} job;

/* A run of exactly `threads` threads, also where some of them came late before. */
static int run_all(specdec__pool *pool, int threads, specdec__team_function *function, void *argument)
{
    pool->max_active = threads;
    return specdec__pool_run(pool, threads, function, argument);
}

/* All items that this thread comes to, one or two at a time, each time asking for the next one first. */
static void walk_items(job *j, int *seen)
{
    specdec__item_walk walk;
    int foretold, last, n, i;

    for (specdec__item_walk_begin(&walk, j->pool, j->items, j->chunk); walk.at < j->items; ) {
        n = walk.at % 3 && walk.at + 1 < walk.end ? 2 : 1;
        last = walk.at + n - 1;
        foretold = specdec__item_walk_item_after(&walk, n);
        for (i = walk.at; i <= last; i++)
            seen[i]++;
        specdec__item_walk_advance(&walk, n);
        if (walk.at < j->items ? walk.at != foretold : last != foretold)
            SPECDEC__ADD(&j->astray, 1);
    }
}

static void worker(void *argument, int thread)
{
    job *j = (job *)argument;
    int phase, from, end = 0, i;

    for (phase = 0; phase < j->phases; phase++) {
        if (phase % 2)
            walk_items(j, j->seen[phase]);
        else
            while ((from = specdec__pool_claim_items(j->pool, j->items, j->chunk, &end)) < j->items)
                for (i = from; i < end; i++)
                    j->seen[phase][i]++;
        if (phase == j->cancel_at && thread == 0)
            SPECDEC__STORE(j->cancel, 1);
        SPECDEC__ADD(&j->entered[phase], 1);
        if (specdec__pool_barrier(j->pool)) {
            j->left_at[thread] = phase;
            return;
        }
        if (SPECDEC__LOAD(&j->entered[phase]) != j->pool->active)
            SPECDEC__ADD(&j->early, 1);
    }
    j->left_at[thread] = phase;
}

static void pause_for(long nanoseconds)
{
    struct timespec t;

    t.tv_sec = 0;
    t.tv_nsec = nanoseconds;
    nanosleep(&t, NULL);
}

static const specdec_hooks *start_hooks;

/* A pool whose stacks lie in a block of its own; the block is returned. */
static void *start(specdec__pool *pool, int threads, int *cancel)
{
    specdec__arena arena = {NULL, 0, 0};
    specdec_error error;
    void *block;

    CHECK_EQUAL_INT(specdec__pool_init(pool, threads, cancel, start_hooks, &arena, &error), SPECDEC_OK);
    arena.size = arena.used + 64;
    arena.used = 0;
    block = pages_take(arena.size);
    CHECK(block != NULL);
    arena.base = (unsigned char *)block;
    CHECK_EQUAL_INT(specdec__pool_init(pool, threads, cancel, start_hooks, &arena, &error), SPECDEC_OK);
    CHECK_EQUAL_INT(pool->threads, threads);
    return arena.base;
}

static job *new_job(specdec__pool *pool, int *cancel, int items, int chunk, int phases)
{
    job *j = (job *)calloc(1, sizeof *j);

    j->pool = pool;
    j->cancel = cancel;
    j->items = items;
    j->chunk = chunk;
    j->phases = phases;
    j->cancel_at = -1;
    return j;
}

static void test_claims(void)
{
    static const int items[] = {0, 1, 2, 7, 64, 999, 1000}, chunks[] = {1, 3, 8, 5000};
    int threads, i, k, c, phase, run;

    for (threads = 1; threads <= MOST_THREADS; threads += threads < 4 ? 1 : 4) {
        specdec__pool pool;
        int cancel = 0;
        void *block = start(&pool, threads, &cancel);

        for (c = 0; c < 4; c++)
            for (k = 0; k < 7; k++)
                for (run = 0; run < (quick ? 1 : 2); run++) {
                    job *j = new_job(&pool, &cancel, items[k], chunks[c], quick || threads > 2 ? 3 : PHASES);
                    int wrong = 0;

                    TEST("every item of every phase is claimed exactly once");
                    CHECK_EQUAL_INT(run_all(&pool, pool.threads, worker, j), 0);
                    for (phase = 0; phase < j->phases; phase++)
                        for (i = 0; i < ITEMS; i++)
                            wrong += j->seen[phase][i] != (i < items[k]);
                    CHECK_EQUAL_INT(wrong, 0);
                    TEST("nobody leaves a barrier before everybody has come");
                    CHECK_EQUAL_INT(j->early, 0);
                    TEST("who walks knows which item comes next");
                    CHECK_EQUAL_INT(j->astray, 0);
                    free(j);
                }
        specdec__pool_deinit(&pool);
        pages_free(block);
    }
}

static void test_cancel(void)
{
    int threads, round, i;

    TEST("a cancelled run ends at the same barrier on every thread, and the next run is whole again");
    for (threads = 1; threads <= 9; threads += threads < 3 ? 1 : 3) {
        specdec__pool pool;
        int cancel = 0;
        void *block = start(&pool, threads, &cancel);

        for (round = 0; round < (quick ? 10 : 60); round++) {
            job *j = new_job(&pool, &cancel, 50, 1, PHASES);

            j->cancel_at = round % PHASES;
            CHECK_EQUAL_INT(run_all(&pool, pool.threads, worker, j), 1);
            CHECK_EQUAL_INT(j->left_at[0], j->cancel_at);
            for (i = 1; i < threads; i++)
                CHECK_EQUAL_INT(j->left_at[i], j->left_at[0]);
            SPECDEC__STORE(&cancel, 0);
            j->cancel_at = -1;
            memset(j->seen, 0, sizeof j->seen);
            memset(j->entered, 0, sizeof j->entered);
            CHECK_EQUAL_INT(run_all(&pool, pool.threads, worker, j), 0);
            for (i = 0; i < threads; i++)
                CHECK_EQUAL_INT(j->left_at[i], PHASES);
            free(j);
        }
        specdec__pool_deinit(&pool);
        pages_free(block);
    }
}

/* Sets a flag again and again at odd moments until told to stop. */
typedef struct pest {
    int *cancel, stop;
} pest;

static void *pester(void *argument)
{
    pest *p = (pest *)argument;
    unsigned turn = 1;

    while (!SPECDEC__LOAD(&p->stop)) {
        turn = turn * 1664525u + 1013904223u;
        pause_for((long)(turn >> 16 & 65535));
        SPECDEC__STORE(p->cancel, 1);
    }
    return NULL;
}

static void test_cancel_from_outside(void)
{
    int round, i, cancelled = 0;
    specdec__pool pool;
    int cancel = 0;
    void *block = start(&pool, 3, &cancel);
    pthread_t thread;
    pest p;

    TEST("a flag set from another thread at any moment gives every thread the same answer");
    p.cancel = &cancel;
    p.stop = 0;
    pthread_create(&thread, NULL, pester, &p);
    for (round = 0; round < (quick ? 300 : 2000); round++) {
        job *j = new_job(&pool, &cancel, 8, 1, 5);
        int result = run_all(&pool, pool.threads, worker, j);

        cancelled += result;
        for (i = 1; i < 3; i++)
            CHECK_EQUAL_INT(j->left_at[i], j->left_at[0]);
        CHECK(result || j->left_at[0] == j->phases);
        if (result)
            SPECDEC__STORE(&cancel, 0);
        free(j);
    }
    SPECDEC__STORE(&p.stop, 1);
    pthread_join(thread, NULL);
    CHECK(cancelled > 0);
    specdec__pool_deinit(&pool);
    pages_free(block);
}

static void count_run(void *argument, int thread)
{
    SPECDEC__ADD(&((int *)argument)[thread], 1);
}

static void test_runs(void)
{
    int threads, i;

    for (threads = 1; threads <= 4; threads++) {
        specdec__pool pool;
        int cancel = 0, runs[MOST_THREADS] = {0}, many = quick ? 2000 : 6000;
        void *block = start(&pool, threads, &cancel);

        TEST("many short runs: every thread takes part in each exactly once");
        for (i = 0; i < many; i++)
            CHECK(!run_all(&pool, pool.threads, count_run, runs));
        for (i = 0; i < threads; i++)
            CHECK_EQUAL_INT(runs[i], many);
        TEST("threads that have parked come back");
        for (i = 0; i < (quick ? 20 : 100); i++) {
            pause_for(i % 2 ? 2000000 : 100000);
            CHECK(!run_all(&pool, pool.threads, count_run, runs));
        }
        for (i = 0; i < threads; i++)
            CHECK_EQUAL_INT(runs[i], many + (quick ? 20 : 100));
        specdec__pool_deinit(&pool);
        pages_free(block);
    }
}

/* Teams of changing size: those who leave a run late must not disturb the next. */
static void test_teams(void)
{
    specdec__pool pool;
    int cancel = 0, round, i, from, wrong = 0;
    void *block = start(&pool, 4, &cancel);
    uint32_t random = 7;

    TEST("runs of changing teams claim every item exactly once");
    for (round = 0; round < (quick ? 3000 : 20000); round++) {
        static job j;
        int runs[MOST_THREADS] = {0}, team;

        random = random * 1664525u + 1013904223u;
        team = 1 + (int)(random >> 30);
        if (round % 3 == 0) {
            memset(&j, 0, sizeof j);
            j.pool = &pool;
            j.cancel = &cancel;
            j.items = 9;
            j.chunk = 1;
            j.phases = 3;
            j.cancel_at = -1;
            CHECK(!run_all(&pool, team, worker, &j));
            for (from = 0; from < 3; from++)
                for (i = 0; i < 9; i++)
                    wrong += j.seen[from][i] != 1;
        } else {
            CHECK(!run_all(&pool, team, count_run, runs));
            for (i = 0; i < 4; i++)
                wrong += runs[i] != (i < team);
        }
    }
    CHECK_EQUAL_INT(wrong, 0);
    specdec__pool_deinit(&pool);
    pages_free(block);
}

/* One of several teams at work at the same time, and the thread that leads it. */
typedef struct leader {
    specdec__pool *pool;
    int cancel, rounds, cancels; /* cancels: every such round is cancelled; 0: none */
    uint32_t random;
    pthread_t thread;
    int wrong;                   /* what the leader saw that must not be */
} leader;

/* One run of a team of some size, cancelled in some phase or not at all (-1). Returns how much of it was wrong. */
static int lead_once(leader *l, job *j, int threads, int cancel_at)
{
    int wrong = 0, phase, i;

    memset(j, 0, sizeof *j);
    j->pool = l->pool;
    j->cancel = &l->cancel;
    j->items = (int)(l->random >> 8 & 31);
    j->chunk = 1 + (int)(l->random >> 16 & 3);
    j->phases = 4;
    j->cancel_at = cancel_at;
    wrong += run_all(l->pool, threads, worker, j) != (cancel_at >= 0);
    for (phase = 0; phase <= (cancel_at < 0 ? 3 : cancel_at); phase++)
        for (i = 0; i < ITEMS; i++)
            wrong += j->seen[phase][i] != (i < j->items);
    for (i = 0; i < threads; i++)
        wrong += j->left_at[i] != (cancel_at < 0 ? 4 : cancel_at);
    wrong += j->early + j->astray;
    SPECDEC__STORE(&l->cancel, 0);
    return wrong;
}

static void *lead(void *argument)
{
    leader *l = (leader *)argument;
    job *j = (job *)malloc(sizeof *j);
    int round, threads;

    for (round = 0; round < l->rounds; round++) {
        l->random = l->random * 1664525u + 1013904223u;
        threads = round % 3 ? l->pool->threads : 1 + (int)(l->random >> 24) % l->pool->threads;
        l->wrong += lead_once(l, j, threads, l->cancels && round % l->cancels == 0 ? (int)(l->random >> 20 & 3) : -1);
        if (round % 500 == 499)
            pause_for(300000); /* the others go on while this team parks */
    }
    free(j);
    return NULL;
}

/* Teams of sizes[count] threads, of helpers of one pool, at work at the same time. This thread leads the first one. */
static void lead_at_once(specdec__pool *pool, const int *sizes, int count, int rounds)
{
    static specdec__pool all[400][3]; /* a helper that leaves late still looks at its pool: each call has its own */
    static int calls;
    specdec__pool *parts = all[calls++];
    leader leaders[3];
    int first = 0, i;

    for (i = 0; i < count; i++) {
        memset(&leaders[i], 0, sizeof leaders[i]);
        specdec__pool_lend_helpers(&parts[i], pool, first, sizes[i], &leaders[i].cancel);
        first += sizes[i] - 1;
        leaders[i].pool = &parts[i];
        leaders[i].rounds = rounds;
        leaders[i].cancels = i == 1 ? 2 : 0; /* only the second is ever cancelled */
        leaders[i].random = (uint32_t)(i + 1);
    }
    for (i = 1; i < count; i++)
        pthread_create(&leaders[i].thread, NULL, lead, &leaders[i]);
    lead(&leaders[0]);
    for (i = 1; i < count; i++)
        pthread_join(leaders[i].thread, NULL);
    for (i = 0; i < count; i++)
        CHECK_EQUAL_INT(leaders[i].wrong, 0);
}

static void test_teams_at_once(void)
{
    static const int sizes[][3] = {{1, 1, 0}, {2, 1, 0}, {1, 2, 0}, {2, 2, 0},
                                   {3, 1, 0}, {2, 5, 0}, {4, 2, 3}, {1, 1, 1}};
    int i, k;

    TEST("teams run at the same time, each led by a thread of its own; cancelling one leaves the others alone");
    for (i = 0; i < 8; i++) {
        int count = sizes[i][2] ? 3 : 2, threads = 1, cancel = 0; /* this thread, and the helpers of all */
        specdec__pool pool;
        void *block;

        for (k = 0; k < count; k++)
            threads += sizes[i][k] - 1;
        block = start(&pool, threads, &cancel);
        lead_at_once(&pool, sizes[i], count, quick ? 300 : 3000);
        specdec__pool_deinit(&pool);
        pages_free(block);
    }
}

/* As an engine does that drafts while it verifies: all helpers help one leader, then they are shared out, each time
   otherwise. */
static void test_seats_move(void)
{
    specdec__pool pool;
    int cancel = 0, round, runs[MOST_THREADS] = {0}, i;
    void *block = start(&pool, 5, &cancel);

    TEST("helpers go from team to team between runs");
    for (round = 0; round < (quick ? 30 : 300); round++) {
        int sizes[3];

        sizes[0] = 1 + round % 4;
        sizes[1] = 5 - round % 4;
        lead_at_once(&pool, sizes, 2, 5);
        CHECK(!run_all(&pool, 5, count_run, runs));
        for (i = 0; i < 5; i++)
            CHECK_EQUAL_INT(runs[i], round + 1);
    }
    specdec__pool_deinit(&pool);
    pages_free(block);
}

static void test_life(void)
{
    int i;

    TEST("pools start and stop, used or not, parked or not");
    for (i = 0; i < (quick ? 30 : 150); i++) {
        specdec__pool pool;
        int cancel = 0, runs[MOST_THREADS] = {0};
        void *block = start(&pool, 1 + i % MOST_THREADS, &cancel);

        if (i % 3 == 1)
            run_all(&pool, pool.threads, count_run, runs);
        if (i % 5 == 2)
            pause_for(1000000);
        specdec__pool_deinit(&pool);
        memset(block, 0xFF, 64);
        pages_free(block);
    }
}

/* One thread waits long at a barrier while the others park there. */
static void sleepy(void *argument, int thread)
{
    job *j = (job *)argument;
    int i;

    for (i = 0; i < 6; i++) {
        if (i % j->pool->threads == thread)
            pause_for(3000000);
        SPECDEC__ADD(&j->entered[i], 1);
        specdec__pool_barrier(j->pool);
        if (SPECDEC__LOAD(&j->entered[i]) != j->pool->threads)
            SPECDEC__ADD(&j->early, 1);
    }
}

static void test_parking(void)
{
    int round;

    TEST("threads that parked at a barrier are woken by the last one");
    for (round = 0; round < (quick ? 2 : 10); round++) {
        specdec__pool pool;
        int cancel = 0;
        void *block = start(&pool, 2 + round % 4, &cancel);
        job *j = new_job(&pool, &cancel, 0, 1, 0);

        CHECK_EQUAL_INT(run_all(&pool, pool.threads, sleepy, j), 0);
        CHECK_EQUAL_INT(j->early, 0);
        specdec__pool_deinit(&pool);
        free(j);
        pages_free(block);
    }
}

/* The second thread comes to the end of a run some milliseconds after the first. */
static void tardy(void *argument, int thread)
{
    (void)argument;
    if (thread)
        pause_for(5000000);
}

static void test_late(void)
{
    specdec__pool pool;
    int cancel = 0, tries;
    void *block = start(&pool, 2, &cancel);

    TEST("time is measured that a thread sleeps for one that comes late");
    for (tries = 0, pool.late_seconds = 0; tries < 100 && !(pool.late_seconds > 0);
         tries++) /* the first may lose its core, too */
        run_all(&pool, 2, tardy, NULL);
    CHECK(pool.late_seconds > SPECDEC__LATE_SECONDS);
    specdec__pool_deinit(&pool);
    pages_free(block);

    TEST("two late runs in a row are followed by runs with a thread less, for longer each time");
    memset(&pool, 0, sizeof pool);
    pool.threads = pool.max_active = pool.active = 4;
    pool.late_seconds = 0.5; /* of 4 times one second */
    specdec__pool_adapt_max_active(&pool, 10, 1);
    CHECK_EQUAL_INT(specdec__pool_choose_active_threads(&pool, 4, 10), 4);
    pool.late_seconds = 0.3; /* in time */
    specdec__pool_adapt_max_active(&pool, 11, 1);
    pool.late_seconds = 0.5;
    specdec__pool_adapt_max_active(&pool, 12, 1);
    CHECK_EQUAL_INT(specdec__pool_choose_active_threads(&pool, 4, 12), 4);
    specdec__pool_adapt_max_active(&pool, 13, 1);
    CHECK_EQUAL_INT(specdec__pool_choose_active_threads(&pool, 4, 13), 3);
    CHECK_EQUAL_INT(specdec__pool_choose_active_threads(&pool, 2, 13), 2);
    CHECK_EQUAL_INT(specdec__pool_choose_active_threads(&pool, 4, 13 + SPECDEC__LATE_MIN_RETRY_FACTOR - 0.5), 3);
    CHECK_EQUAL_INT(specdec__pool_choose_active_threads(&pool, 4, 13 + SPECDEC__LATE_MIN_RETRY_FACTOR), 4);
    specdec__pool_adapt_max_active(&pool, 20, 1);
    specdec__pool_adapt_max_active(&pool, 21, 1);
    CHECK_EQUAL_INT(specdec__pool_choose_active_threads(&pool, 4, 21 + SPECDEC__LATE_MIN_RETRY_FACTOR), 3);
    CHECK_EQUAL_INT(specdec__pool_choose_active_threads(&pool, 4, 21 + 2 * SPECDEC__LATE_MIN_RETRY_FACTOR), 4);
    pool.max_active = 4;
    pool.active = 2; /* a draft model's run */
    specdec__pool_adapt_max_active(&pool, 90, 1);
    specdec__pool_adapt_max_active(&pool, 91, 1);
    CHECK_EQUAL_INT(specdec__pool_choose_active_threads(&pool, 4, 91), 4);
    pool.active = 4;
    for (tries = 0; tries < 20; tries++) {
        specdec__pool_adapt_max_active(&pool, 100, 1);
        specdec__pool_adapt_max_active(&pool, 100, 1);
    }
    CHECK_EQUAL_INT(specdec__pool_choose_active_threads(&pool, 4, 100 + SPECDEC__LATE_MAX_RETRY_FACTOR), 4);
    pool.active = pool.max_active = 1; /* one thread is left, whatever happens */
    specdec__pool_adapt_max_active(&pool, 200, 1);
    specdec__pool_adapt_max_active(&pool, 200, 1);
    CHECK_EQUAL_INT(specdec__pool_choose_active_threads(&pool, 4, 200), 1);
}

static int begun[16]; /* how often a thread said that it begins with that number */

static void note_thread(void *user_data, int number)
{
    (void)user_data;
    __atomic_fetch_add(&begun[number], 1, __ATOMIC_SEQ_CST);
}

static void test_hooks(void)
{
    enum { THREADS = 7 };
    specdec_hooks hooks;
    specdec__pool pool;
    int cancel = 0, i;
    void *block;

    TEST("every helper says once that it begins");
    memset(&hooks, 0, sizeof hooks);
    hooks.thread = note_thread;
    start_hooks = &hooks;
    block = start(&pool, THREADS, &cancel);
    specdec__pool_deinit(&pool);
    start_hooks = NULL;
    for (i = 0; i <= THREADS; i++)
        CHECK_EQUAL_INT(begun[i], i > 0 && i < THREADS);
    pages_free(block);
}

static void test_many(void)
{
    int counts[] = {255, 256, 257, 300}, i, cancel = 0;

    TEST("more threads than a byte can count");
    for (i = 0; i < (quick ? 2 : 4); i++) {
        specdec__pool *pool = (specdec__pool *)calloc(1, sizeof *pool);
        void *memory = start(pool, counts[i], &cancel);
        int runs[SPECDEC_MAX_THREADS] = {0}, j;

        CHECK(!run_all(pool, counts[i], count_run, runs));
        for (j = 0; j < counts[i]; j++)
            CHECK_EQUAL_INT(runs[j], 1);
        specdec__pool_deinit(pool);
        pages_free(memory);
        free(pool);
    }
}

static void test_processors(void)
{
    TEST("processors are those that this process may use");
    CHECK(specdec__os_count_processors() >= 1);
#if defined(__linux__)
    {
        unsigned long mine[128] = {0}, one[128] = {0};
        long bytes = syscall(SYS_sched_getaffinity, 0, sizeof mine, mine), i = 0;

        while (i < 128 && !mine[i])
            i++;
        if (bytes <= 0 || i == 128) {
            SKIP("the system does not tell");
            return;
        }
        one[i] = mine[i] & (~mine[i] + 1);
        CHECK(syscall(SYS_sched_setaffinity, 0, (size_t)bytes, one) == 0);
        CHECK_EQUAL_INT(specdec__os_count_processors(), 1);
        CHECK(syscall(SYS_sched_setaffinity, 0, (size_t)bytes, mine) == 0);
    }
#endif
}

int main(void)
{
    quick = getenv("SPECDEC_QUICK") != NULL;
    test_claims();
    test_cancel();
    test_cancel_from_outside();
    test_runs();
    test_teams();
    test_teams_at_once();
    test_seats_move();
    test_parking();
    test_late();
    test_life();
    test_hooks();
    test_many();
    test_processors();
    return check_report("test_pool");
}
