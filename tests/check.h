/* check.h - the whole test framework: named promises, counted checks. */
#ifndef CHECK_H
#define CHECK_H
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int check_passed, check_failed, check_skipped;
static const char *check_promise = "";

#define TEST(promise) (check_promise = (promise))

#define CHECK(condition) \
    do { \
        if (condition) { \
            check_passed++; \
        } else { \
            check_failed++; \
            fprintf(stderr, "%s:%d: FAILED: %s: %s\n", __FILE__, __LINE__, check_promise, #condition); \
        } \
    } while (0)

#define CHECK_EQUAL_INT(a, b) \
    do { \
        long long check_a = (long long)(a), check_b = (long long)(b); \
        if (check_a == check_b) { \
            check_passed++; \
        } else { \
            check_failed++; \
            fprintf(stderr, "%s:%d: FAILED: %s: %s is %lld, %s is %lld\n", __FILE__, __LINE__, check_promise, #a, check_a, #b, check_b); \
        } \
    } while (0)

/* Says why something was not run. */
#define SKIP(reason) (check_skipped++, printf("skipped: %s: %s\n", check_promise, (reason)))

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
    printf("%s: %d passed, %d failed, %d skipped\n", name, check_passed, check_failed, check_skipped);
    return check_failed != 0;
}
#endif
