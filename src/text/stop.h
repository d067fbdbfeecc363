/* =====================================================================================================================
 * >>text/stop: stop strings in a stream of bytes.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"

SPECDEC__FOR_SIZE

#define SPECDEC__STOP_MAX_BYTES 256 /* bytes of a stop string, at most */

/* Bytes for copies of all stop strings, each with a terminating zero. */
#define SPECDEC__STOP_COPY_BYTES (SPECDEC_STOP_BYTES + SPECDEC_STOP_STRINGS)

/* A search for stop strings in text that arrives in pieces; all zeros: the initial state. The bytes held back always
   are the beginning of a stop string, so that its number and their count describe them. */
typedef struct specdec__stop_scan {
    int count;                                    /* number of stop strings */
    int held_string;                              /* number of the stop string whose beginning is held back */
    size_t held;                                  /* bytes held back, as they may begin a stop string */
    int stopped;                                  /* 1 + the number of the stop string that was found; 0: none */
    size_t taken_bytes;                           /* bytes received from the beginning of the found stop string on */
    size_t bytes;                                 /* bytes of all stop strings together */
    specdec__bytes strings[SPECDEC_STOP_STRINGS]; /* (count) the stop strings, in the caller's memory or copied */
} specdec__stop_scan;

/* Adds a stop string, which must stay in memory, to a search. Error: ARGUMENT when it is empty or too long, or there
   are too many strings or bytes of strings. */
static SPECDEC__UNUSED specdec_result specdec__stop_add_string(specdec__stop_scan *scan, const char *string,
                                                               size_t length, specdec_error *error)
{
    if (scan->count >= SPECDEC_STOP_STRINGS || length < 1 || length > SPECDEC__STOP_MAX_BYTES ||
        scan->bytes + length > SPECDEC_STOP_BYTES)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "at most %d stop strings of 1 to %d bytes, %d in all",
                             SPECDEC_STOP_STRINGS, SPECDEC__STOP_MAX_BYTES, SPECDEC_STOP_BYTES);
    scan->bytes += length;
    scan->strings[scan->count].data = (const unsigned char *)string;
    scan->strings[scan->count++].size = length;
    return SPECDEC_OK;
}

/* Copies all stop strings to out[SPECDEC__STOP_COPY_BYTES], which may already hold some of them. Not inlined, as it
   needs a second copy on the stack. */
static SPECDEC__UNUSED SPECDEC__NOINLINE void specdec__stop_copy_strings(specdec__stop_scan *scan, unsigned char *out)
{
    unsigned char copies[SPECDEC__STOP_COPY_BYTES];
    size_t at = 0;
    int i;

    for (i = 0; i < scan->count; i++) {
        memcpy(copies + at, scan->strings[i].data, scan->strings[i].size);
        scan->strings[i].data = out + at;
        at += scan->strings[i].size;
        copies[at++] = 0;
    }
    if (at)
        memcpy(out, copies, at);
}

/* Do the bytes that are held back, followed by the byte `next`, end with the first `length` bytes of a stop string? */
static int specdec__stop_held_bytes_match(const specdec__stop_scan *scan, specdec__bytes string, size_t length,
                                          unsigned char next)
{
    if (string.data[length - 1] != next)
        return 0;
    return length == 1 ||
           memcmp(string.data, scan->strings[scan->held_string].data + scan->held - (length - 1), length - 1) == 0;
}

/* Takes the next byte of the text. Returns how many bytes, of those held back and this one, cannot be part of a stop
   string. */
static size_t specdec__stop_read_byte(specdec__stop_scan *scan, unsigned char next)
{
    size_t longest = 0, all = scan->held + 1, length;
    int i, of = 0;

    for (i = 0; i < scan->count; i++) {
        specdec__bytes string = scan->strings[i];

        if (string.size > all || !specdec__stop_held_bytes_match(scan, string, string.size, next) ||
            string.size <= longest)
            continue;
        longest = string.size;
        scan->stopped = i + 1;
    }
    for (i = 0; i < scan->count && !scan->stopped; i++)
        for (length = all < scan->strings[i].size ? all : scan->strings[i].size - 1; length > longest; length--)
            if (specdec__stop_held_bytes_match(scan, scan->strings[i], length, next)) {
                longest = length;
                of = i;
            }
    length = all - longest;
    if (longest && !scan->stopped) {
        scan->held_string = of;
        scan->held = longest;
    } else {
        scan->held = 0;
    }
    return length;
}

/* Takes the next `length` bytes of the text, and writes those that surely lie in front of any stop string to out:
   *written bytes, also from earlier calls. size, the room in out, is at least length + SPECDEC__STOP_MAX_BYTES (else
   BUFFER). After a stop string, scan->stopped is set, and nothing more is written. out and bytes must not overlap. */
static SPECDEC__UNUSED specdec_result specdec__stop_push_bytes(specdec__stop_scan *scan, const unsigned char *bytes,
                                                               size_t length, unsigned char *out, size_t size,
                                                               size_t *written, specdec_error *error)
{
    size_t i;

    *written = 0;
    if (size < specdec__size_add(length, SPECDEC__STOP_MAX_BYTES))
        return specdec__fail(error, SPECDEC_ERROR_BUFFER, "%zu bytes need room for %zu", length,
                             specdec__size_add(length, SPECDEC__STOP_MAX_BYTES));
    for (i = 0; i < length && !scan->stopped; i++) {
        const unsigned char *held = scan->strings[scan->held_string].data;
        size_t held_count = scan->held, free_count = specdec__stop_read_byte(scan, bytes[i]);
        size_t from_held = free_count < held_count ? free_count : held_count;

        if (from_held)
            memcpy(out + *written, held, from_held);
        *written += from_held;
        if (free_count > held_count)
            out[(*written)++] = bytes[i];
    }
    if (i && scan->stopped)
        scan->taken_bytes = scan->strings[scan->stopped - 1].size + (length - i);
    return SPECDEC_OK;
}

/* Writes the bytes that are held back to out, which has room for SPECDEC__STOP_MAX_BYTES, as the text ends without a
   stop string. Returns their number. */
static SPECDEC__UNUSED size_t specdec__stop_write_held_bytes(specdec__stop_scan *scan, unsigned char *out)
{
    size_t count = scan->held;

    if (count)
        memcpy(out, scan->strings[scan->held_string].data, count);
    scan->held = 0;
    return count;
}

SPECDEC__FOR_SPEED
