/* pair ISA TYPE N,N,... MEGABYTES THREADS ROUNDS OLD.so NEW.so: nanoseconds in which two versions of the kernels multiply
   a block (16 rows x 32 weights) by N columns, and their ratio. The two take turns every few milliseconds on the same
   weights in the same process, so that what disturbs the one disturbs the other; the ratio is the median of the rounds'. */
#define _DEFAULT_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define VALUES 2048
#define THREADS 16
#define SLICE 0.02 /* seconds that a version runs before it is the other one's turn */

typedef void *open_function(const char *isa, const char *type, int values, int columns);
typedef size_t tile_function(void *room);
typedef float multiply_function(void *room, const unsigned char *tiles, int count);

typedef struct version {
    open_function *open;
    tile_function *tile;
    multiply_function *multiply;
} version;

typedef struct worker {
    const version *v;
    void *room;
    const unsigned char *tiles;
    int count, passes;
} worker;

static volatile float sink;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *pass(void *argument)
{
    const worker *w = argument;
    int i;

    for (i = 0; i < w->passes; i++)
        sink = w->v->multiply(w->room, w->tiles, w->count);
    return NULL;
}

/* Seconds that so many passes over the weights take. Threads are begun anew: at most a hundredth of a slice. */
static double timed(worker *workers, int threads, int passes)
{
    pthread_t thread[THREADS];
    double start = now();
    int i;

    for (i = 0; i < threads; i++)
        workers[i].passes = passes;
    for (i = 1; i < threads; i++)
        if (pthread_create(thread + i, NULL, pass, workers + i))
            exit(1);
    pass(workers);
    for (i = 1; i < threads; i++)
        pthread_join(thread[i], NULL);
    return now() - start;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* dlsym's object pointer as a function's, the way POSIX allows. */
static void take(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);

    if (!symbol) {
        fprintf(stderr, "pair: %s\n", dlerror());
        exit(1);
    }
    memcpy(function, &symbol, sizeof symbol);
}

/* Both versions' workers. Returns the weights that they share. */
static unsigned char *prepare(worker workers[2][THREADS], const version *versions, char **argv, int columns)
{
    const int threads = atoi(argv[5]);
    unsigned char *tiles = NULL;
    size_t bytes = 0, all = 0, i;
    int side, thread, count = 0;
    void *found;

    for (side = 0; side < 2; side++)
        for (thread = 0; thread < threads; thread++) {
            worker *w = &workers[side][thread];

            w->v = versions + side;
            w->room = w->v->open(argv[1], argv[2], VALUES, columns);
            if (!w->room) {
                fprintf(stderr, "pair: no instruction set %s, no type %s, or not 1 to 64 columns\n", argv[1], argv[2]);
                exit(2);
            }
            if (!tiles) {
                bytes = w->v->tile(w->room);
                count = (int)(atof(argv[4]) * 1e6 / (double)bytes / threads) / 2 * 2;
                count = count < 2 ? 2 : count;
                all = bytes * (size_t)count * (size_t)threads;
                if (posix_memalign(&found, 1 << 21, all))
                    exit(1);
#ifdef MADV_HUGEPAGE
                madvise(found, all, MADV_HUGEPAGE); /* as programs have it */
#endif
                tiles = found;
                for (i = 0; i < all; i++)
                    tiles[i] = (unsigned char)((i * 2654435761u) >> 13 & 0x3f);
            }
            w->tiles = tiles + bytes * (size_t)count * (size_t)thread;
            w->count = count;
        }
    return tiles;
}

static void compare(const version *versions, char **argv, int columns)
{
    const int threads = atoi(argv[5]), rounds = atoi(argv[6]);
    worker workers[2][THREADS];
    unsigned char *tiles = prepare(workers, versions, argv, columns);
    double *times[3], blocks;
    int side, round, passes = 1;

    while (timed(workers[0], threads, passes) < SLICE)
        passes *= 2;
    for (side = 0; side < 3; side++)
        if (!(times[side] = malloc((size_t)rounds * sizeof(double))))
            exit(1);
    for (round = 0; round < rounds; round++) {
        for (side = 0; side < 2; side++) {
            const int which = side ^ (round & 1);

            times[which][round] = timed(workers[which], threads, passes);
        }
        times[2][round] = times[1][round] / times[0][round];
    }
    for (side = 0; side < 3; side++)
        qsort(times[side], (size_t)rounds, sizeof(double), by_size);
    blocks = (double)passes * workers[0][0].count * threads * (VALUES / 32) * 1e-9;
    printf("%-8s %-8s %3d  old %8.2f  new %8.2f ns (fastest quarter)  new / old %.3f (quarters %.3f to %.3f)\n", argv[1],
           argv[2], columns, times[0][rounds / 4] / blocks, times[1][rounds / 4] / blocks, times[2][rounds / 2],
           times[2][rounds / 4], times[2][rounds * 3 / 4]);
    fflush(stdout);
    free(tiles);
}

int main(int argc, char **argv)
{
    version versions[2];
    char *widths;
    int i;

    if (argc != 9 || atoi(argv[5]) < 1 || atoi(argv[5]) > THREADS || atoi(argv[6]) < 4) {
        fprintf(stderr, "usage: pair ISA TYPE N,N,... MEGABYTES THREADS ROUNDS OLD.so NEW.so\n");
        return 2;
    }
    for (i = 0; i < 2; i++) {
        void *library = dlopen(argv[7 + i], RTLD_NOW | RTLD_LOCAL);

        if (!library) {
            fprintf(stderr, "pair: %s\n", dlerror());
            return 1;
        }
        take(library, "side_open", &versions[i].open);
        take(library, "side_tile", &versions[i].tile);
        take(library, "side_multiply", &versions[i].multiply);
    }
    for (widths = strtok(argv[3], ","); widths; widths = strtok(NULL, ","))
        compare(versions, argv, atoi(widths));
    return 0;
}
