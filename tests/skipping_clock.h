/* skipping_clock.h - a clock that runs on, but skips the time in which all threads of a test wait: what takes seconds takes
   moments, and no busy machine makes the silence longer. Include before specdec.h's implementation, which then reads this clock;
   without skipping.on, it is the true one. */
#ifndef SKIPPING_CLOCK_H
#define SKIPPING_CLOCK_H
#include <pthread.h>
#include <time.h>

enum { SKIPPING_THREADS = 32 };

static struct {
    pthread_mutex_t mutex;
    int on;
    int awake;                       /* threads that do not wait; the first one is */
    double skipped;                  /* seconds */
    double *until[SKIPPING_THREADS]; /* when each one that waits goes on */
    int waiting;
} skipping = {PTHREAD_MUTEX_INITIALIZER, 0, 1, 0, {NULL}, 0};

static inline int skipping_clock(int kind, struct timespec *now)
{
    double seconds;

    clock_gettime((clockid_t)kind, now);
    pthread_mutex_lock(&skipping.mutex);
    seconds = (double)now->tv_sec + 1e-9 * (double)now->tv_nsec + skipping.skipped;
    pthread_mutex_unlock(&skipping.mutex);
    now->tv_sec = (time_t)seconds;
    now->tv_nsec = (long)(1e9 * (seconds - (double)now->tv_sec));
    return 0;
}

static inline double skipping_seconds(void)
{
    struct timespec now;

    skipping_clock(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* One thread more, or less, that does not wait. */
static inline void skipping_count(int more)
{
    pthread_mutex_lock(&skipping.mutex);
    skipping.awake += more;
    pthread_mutex_unlock(&skipping.mutex);
}

/* This thread waits until then, or no longer. */
static inline void skipping_wait(double *until, int waits)
{
    int i;

    pthread_mutex_lock(&skipping.mutex);
    skipping.awake -= waits ? 1 : -1;
    if (waits) {
        skipping.until[skipping.waiting++] = until;
    } else {
        for (i = 0; skipping.until[i] != until; i++)
            ;
        skipping.until[i] = skipping.until[--skipping.waiting];
    }
    pthread_mutex_unlock(&skipping.mutex);
}

/* A thread that waits is to go on sooner. */
static inline void skipping_sooner(double *until, double then)
{
    pthread_mutex_lock(&skipping.mutex);
    *until = then < *until ? then : *until;
    pthread_mutex_unlock(&skipping.mutex);
}

/* If everybody waits, and the caller goes on first, it does so now. Returns the seconds that it has to wait still. */
static inline double skipping_skip(const double *until)
{
    double left = *until - skipping_seconds();
    int i;

    pthread_mutex_lock(&skipping.mutex);
    if (skipping.on && !skipping.awake && left > 0) {
        for (i = 0; i < skipping.waiting && *skipping.until[i] >= *until; i++)
            ;
        skipping.skipped += i == skipping.waiting ? left : 0;
        left = i == skipping.waiting ? 0 : left;
    }
    pthread_mutex_unlock(&skipping.mutex);
    return left;
}

/* The most real seconds to wait before looking again whether all others wait, too. */
static inline double skipping_slice(double left) { return skipping.on && left > 5e-4 ? 5e-4 : left; }

static inline void skipping_sleep(double seconds)
{
    double until = skipping_seconds() + seconds, left;

    skipping_wait(&until, 1);
    for (left = skipping_skip(&until); left > 0; left = skipping_skip(&until)) {
        const double slice = skipping_slice(left);
        struct timespec pause;

        pause.tv_sec = (time_t)slice;
        pause.tv_nsec = (long)(1e9 * (slice - (double)pause.tv_sec));
        nanosleep(&pause, NULL);
    }
    skipping_wait(&until, 0);
}

static inline void skipping_start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    skipping_count(1); /* run ends with skipping_count(-1) */
    pthread_create(thread, NULL, run, argument);
}

static inline void skipping_join(pthread_t thread)
{
    skipping_count(-1);
    pthread_join(thread, NULL);
    skipping_count(1);
}

#define clock_gettime(kind, now) skipping_clock((int)(kind), now)
#endif
