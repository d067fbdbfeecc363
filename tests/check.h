/* check.h - the whole test framework: named promises, counted checks. */
#ifndef CHECK_H
#define CHECK_H
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A promise is what TEST names: it is kept when at least one check of it ran and none failed. */
typedef struct check_entry {
    const char *promise;
    int failed, ran;
} check_entry;

#define CHECK_PROMISES 256
static check_entry check_list[CHECK_PROMISES];
static int check_count, check_now, check_skipped;
static long long check_comparisons, check_failures;

/* What follows belongs to a promise; one that was named before goes on. Promises that find no room count as the last one. */
static inline void check_begin(const char *promise)
{
    for (check_now = 0; check_now < check_count; check_now++)
        if (!strcmp(check_list[check_now].promise, promise))
            return;
    if (check_count == CHECK_PROMISES)
        check_now--;
    else
        check_list[check_count++].promise = promise;
}

#define TEST(promise) check_begin(promise)

static inline const char *check_promise(void)
{
    if (!check_count)
        check_begin("everything else");
    return check_list[check_now].promise;
}

/* Counts a comparison. Returns whether it held. */
static inline int check_note(int holds)
{
    check_promise();
    check_comparisons++;
    check_failures += !holds;
    check_list[check_now].ran = 1;
    check_list[check_now].failed |= !holds;
    return holds;
}

#define CHECK(condition) \
    do { \
        if (!check_note(!!(condition))) \
            fprintf(stderr, "%s:%d: FAILED: %s: %s\n", __FILE__, __LINE__, check_promise(), #condition); \
    } while (0)

#define CHECK_EQUAL_INT(a, b) \
    do { \
        long long check_a = (long long)(a), check_b = (long long)(b); \
        if (!check_note(check_a == check_b)) \
            fprintf(stderr, "%s:%d: FAILED: %s: %s is %lld, %s is %lld\n", __FILE__, __LINE__, check_promise(), #a, check_a, #b, \
                    check_b); \
    } while (0)

/* How thorough a test is: 0 for make test (SPECDEC_QUICK), else what DEPTH says, 1 to 5. */
static inline int check_depth(void)
{
    const char *depth = getenv("DEPTH");
    return getenv("SPECDEC_QUICK") ? 0 : depth && atoi(depth) > 0 ? atoi(depth) : 1;
}

/* Where random tests begin: SEED, or 0. It is printed by what runs the tests, so that a failure can be repeated. */
static inline uint64_t check_seed(void)
{
    const char *seed = getenv("SEED");
    return seed ? strtoull(seed, NULL, 10) : 0;
}

/* Says why something was not run. */
#define SKIP(reason) (check_skipped++, printf("skipped: %s: %s\n", check_promise(), (reason)))

/* Does the C library's fmaf round once, so that it can be compared with? MinGW's rounds twice. */
static inline int check_fmaf(void)
{
    volatile float a = 24929, b = 673, c = ldexpf(1, -56); /* a * b is 2^24 + 1, a tie of two floats */

    return fmaf(a, b, c) == 16777218;
}

/* Path of a file in the shared folder that stands beside a full checkout. Returns buffer. */
static inline const char *check_shared(char *buffer, size_t size, const char *name)
{
    const char *root = getenv("SPECDEC_SHARED");
    snprintf(buffer, size, "%s/%s", root ? root : "../shared", name);
    return buffer;
}

/* Reads a whole file, with a terminating zero that size does not count; NULL when it cannot. The caller frees it. */
static inline unsigned char *check_read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    unsigned char *data = NULL;
    long length;

    if (!file)
        return NULL;
    if (fseek(file, 0, SEEK_END) == 0 && (length = ftell(file)) >= 0 && fseek(file, 0, SEEK_SET) == 0) {
        data = (unsigned char *)malloc((size_t)length + 1);
        if (data && fread(data, 1, (size_t)length, file) == (size_t)length) {
            data[length] = 0;
            *size = (size_t)length;
        } else {
            free(data);
            data = NULL;
        }
    }
    fclose(file);
    return data;
}

/* For files of reference numbers, which are JSON. The text behind the first time that a key comes; it must come. */
static inline const char *check_behind(const char *json, const char *key)
{
    const char *at = strstr(json, key);

    if (!at)
        abort();
    return at + strlen(key);
}

/* The next number of such a text; *at becomes what follows it. */
static inline double check_next_number(const char **at)
{
    char *end;
    double value;

    *at += strcspn(*at, "0123456789-");
    value = strtod(*at, &end);
    *at = end;
    return value;
}

static inline int check_report(const char *name)
{
    int i, kept = 0, broken = 0;

    for (i = 0; i < check_count; i++) {
        kept += check_list[i].ran && !check_list[i].failed;
        broken += check_list[i].failed;
    }
    printf("%s: %d passed, %d failed, %d skipped (%lld comparisons)\n", name, kept, broken, check_skipped, check_comparisons);
    return broken != 0;
}
#endif
