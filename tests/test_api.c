/* test_api.c - a short run of fuzz_api.c without libFuzzer: sequences of random calls, each a function of its number.
   One that fails, crashes or hangs is made as short as it can be and printed.
   cc -O2 -pthread -I. test_api.c; test_api [FIRST [COUNT]]. SPECDEC_IMPLEMENTATION is in fuzz_api.c. */
#include "fuzz_api.c"
#include "check.h"
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_BYTES = CONFIG_BYTES + 64 * CALL_BYTES, SECONDS = 60 /* for one sequence that takes milliseconds */ };

/* What a child tells while it runs. */
static struct progress { int sequence, calls; } *progress;

/* Bytes of a sequence. Returns how many. */
static size_t make_sequence(int number, uint8_t *data)
{
    uint64_t state = ((uint64_t)number + check_seed() * 1000003) * 0xd1342543de82ef95u;
    size_t size = CONFIG_BYTES + (size_t)(8 + maker_random(&state) % 57) * CALL_BYTES, i;

    for (i = 0; i < size; i++)
        data[i] = (uint8_t)(maker_random(&state) >> 11);
    return size;
}

/* Runs one sequence in a process of its own. Returns 1 when it fails. */
static int fails(const uint8_t *data, size_t size, int trace)
{
    pid_t child;
    int status = 1;

    fflush(NULL);
    child = fork();
    if (child == 0) {
        if (!trace && !freopen("/dev/null", "w", stderr))
            _exit(1);
        alarm(SECONDS);
        run_sequence(data, size, trace);
        _exit(0);
    }
    waitpid(child, &status, 0);
    return status != 0;
}

/* Leaves out calls for as long as it still fails. Returns the new size. */
static size_t shorten(uint8_t *data, size_t size)
{
    uint8_t shorter[MOST_BYTES];
    size_t calls_at_once, at, kept;

    for (calls_at_once = 32; calls_at_once; calls_at_once /= 2)
        for (at = size; at > CONFIG_BYTES;) {
            size_t cut = calls_at_once * CALL_BYTES;

            cut = cut < at - CONFIG_BYTES ? cut : at - CONFIG_BYTES;
            at -= cut;
            kept = size - cut;
            memcpy(shorter, data, at);
            memcpy(shorter + at, data + at + cut, size - at - cut);
            if (fails(shorter, kept, 0)) {
                memcpy(data, shorter, kept);
                size = kept;
            }
        }
    for (at = 0; at < CONFIG_BYTES; at++) { /* a plainer configuration */
        memcpy(shorter, data, size);
        shorter[at] = 0;
        if (data[at] && fails(shorter, size, 0))
            data[at] = 0;
    }
    return size;
}

/* Runs sequences until one ends the process. Returns how many were done. */
static int run_some(int first, int count)
{
    uint8_t data[MOST_BYTES];
    pid_t child;
    int i;

    progress->sequence = first;
    fflush(NULL);
    child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(1);
        for (i = 0; i < count; i++) {
            alarm(SECONDS);
            progress->calls += run_sequence(data, make_sequence(first + i, data), 0);
            progress->sequence = first + i + 1;
        }
        _exit(0);
    }
    waitpid(child, &i, 0);
    return progress->sequence - first;
}

int main(int argc, char **argv)
{
    const int quick = getenv("SPECDEC_QUICK") != NULL;
    int first = argc > 1 ? atoi(argv[1]) : 1, count = argc > 2 ? atoi(argv[2]) : quick ? 40 : 150 * check_depth(), end = first + count;
    uint8_t data[MOST_BYTES];
    size_t size;
    void *shared = mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (shared == MAP_FAILED)
        return 1;
    progress = (struct progress *)shared;
    TEST("failing and cancelled calls change nothing; the text is that of an undisturbed engine");
    while (first < end) {
        int done = run_some(first, end - first);

        check_note(1);
        first += done;
        if (first == end)
            break;
        size = shorten(data, make_sequence(first, data));
        fprintf(stderr, "sequence %d:\n", first);
        CHECK(!fails(data, size, 1));
        first++;
    }
    printf("%d calls\n", progress->calls);
    return check_report("test_api");
}
