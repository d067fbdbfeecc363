/* pretend.h - flags that say what layers and links take, for examples/cluster.c, which lets them take that, and for
   specdec-sim, which counts with it. */
#ifndef PRETEND_H
#define PRETEND_H
#include <stdlib.h>

enum { PRETEND_WIDTHS = 7 };

/* Seconds of a layer for 1, 2, 4 .. 64 nodes; 0: as the last one that is given. */
typedef struct pretend_table {
    double seconds[PRETEND_WIDTHS];
} pretend_table;

/* Reads "60" or "60,61,65,80": milliseconds. Returns 0 when that is not what it says. */
static inline int pretend_read(pretend_table *table, const char *text)
{
    char *end;
    int i;

    for (i = 0; i < PRETEND_WIDTHS; i++, text = end + 1) {
        table->seconds[i] = 1e-3 * strtod(text, &end);
        if (end == text || !(table->seconds[i] >= 0 && table->seconds[i] <= 100))
            return 0;
        if (*end != ',')
            return !*end;
    }
    return 0;
}

/* Seconds of a layer for so many nodes: between two widths, what a line between them says; behind the last, so much more
   as there are more nodes. */
static inline double pretend_seconds(const pretend_table *table, int nodes)
{
    const double *s = table->seconds;
    int i = 0;

    while (i < PRETEND_WIDTHS - 1 && s[i + 1] > 0 && nodes > 2 << i)
        i++;
    if (i < PRETEND_WIDTHS - 1 && s[i + 1] > 0)
        return s[i] + (s[i + 1] - s[i]) * (nodes - (1 << i)) / (1 << i);
    return i && nodes > 1 << i ? s[i] * nodes / (1 << i) : s[i];
}

/* Reads "5" or "5,100": milliseconds of a message, megabits a second (0: any number). Returns 0 when that is not what it
   says, or it is a message of more than 100 seconds. */
static inline int pretend_link(const char *text, double *seconds, double *bits)
{
    char *end;

    *seconds = 1e-3 * strtod(text, &end);
    *bits = end != text && *end == ',' ? 1e6 * strtod(end + 1, &end) : 0;
    return end != text && !*end && *seconds >= 0 && *seconds <= 100 && *bits >= 0 && *bits <= 1e15;
}

#endif
