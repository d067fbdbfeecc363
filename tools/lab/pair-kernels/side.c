/* The kernels of one version of specdec.h as a shared object: what pair.c calls. */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include <stdlib.h>

#define COLUMNS 64

void *side_open(const char *isa, const char *type, int values, int columns);
size_t side_tile(void *of);
float side_multiply(void *of, const unsigned char *tiles, int count);

/* One thread's room: columns of activations and what multiply writes. */
typedef struct side {
    specdec__kernels kernels;
    specdec__columns x;
    specdec__panel panels[2];
    float sums[2][COLUMNS * SPECDEC__ROWS];
    float *values;
    const specdec__quant_type *type;
    int blocks;
} side;

/* NULL if there is no memory. */
static void *room(size_t bytes)
{
    void *found;

    return posix_memalign(&found, 64, bytes) ? NULL : found;
}

/* NULL: no such instruction set or type, too many columns, or no memory. */
void *side_open(const char *isa, const char *type, int values, int columns)
{
    const size_t blocks = (size_t)values / 32, count = (size_t)columns;
    side *s = room(sizeof *s);
    uint32_t random = 12345;
    specdec_type found;
    specdec_error error;
    size_t i;
    int c;

    if (!s)
        return NULL;
    memset(s, 0, sizeof *s);
    s->type = specdec_type_by_name(type, &found) ? specdec__quant_find_type(found.number) : NULL;
    s->blocks = (int)blocks;
    if (!s->type || columns < 1 || columns > COLUMNS || specdec__kernels_init(&s->kernels, isa, &error))
        return NULL;
    s->x.n = columns;
    s->x.stride = values;
    s->x.codes = room(count * blocks * 32);
    s->x.scale = room(count * blocks * sizeof(float));
    s->x.pair32 = room(count * blocks * sizeof(int32_t));
    s->x.pair16 = room(count * blocks * 2 * sizeof(int32_t));
    s->x.sum32 = room(count * blocks * sizeof(float));
    s->x.sum16 = room(count * blocks * 2 * sizeof(float));
    s->values = room(count * blocks * 32 * sizeof(float));
    if (!s->x.codes || !s->x.scale || !s->x.pair32 || !s->x.pair16 || !s->x.sum32 || !s->x.sum16 || !s->values)
        return NULL;
    s->x.values = s->values;
    for (i = 0; i < count * blocks * 32; i++) {
        random = random * 1664525 + 1013904223;
        s->values[i] = (float)(int32_t)random / 2147483648.0f;
    }
    for (c = 0; c < columns; c++)
        s->kernels.quantise(s->values + (size_t)c * blocks * 32, 0, s->blocks, c, &s->x);
    return s;
}

/* Bytes of a tile: 16 rows. */
size_t side_tile(void *of)
{
    const side *s = of;

    return (size_t)s->type->bytes * SPECDEC__ROWS * (size_t)s->blocks * 32 / (size_t)s->type->block;
}

/* All tiles, two at a time, as an engine reads them. Returns something of the result. */
float side_multiply(void *of, const unsigned char *tiles, int count)
{
    side *s = of;
    const size_t bytes = side_tile(of);
    float *to[2] = {s->sums[0], s->sums[1]};
    specdec__tiles two;
    int t, i;

    two.type = s->type;
    for (t = 0; t + 1 < count; t += 2) {
        for (i = 0; i < 2; i++) {
            two.tile[i] = tiles + (size_t)(t + i) * bytes;
            two.next[i] = t + i + 2 < count ? two.tile[i] + 2 * bytes : tiles + (size_t)i * bytes;
        }
        specdec__kernels_multiply(&s->kernels, &two, s->blocks, s->panels, &s->x, 0, 0, s->x.n, to);
    }
    return s->sums[0][0] + s->sums[1][0];
}
