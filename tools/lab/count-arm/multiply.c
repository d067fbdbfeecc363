/* multiply ISA TYPE N: one call of the kernels as an engine makes it, two tiles of 16 rows x 512 values times N
   columns. What runs inside it is counted. */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include <stdio.h>
#include <stdlib.h>

#define BLOCKS 16
#define MOST 64

static unsigned char tiles_of_weights[3][SPECDEC__ROWS * BLOCKS * 64];
static float values[MOST * BLOCKS * 32], scale[MOST * BLOCKS], sum32[MOST * BLOCKS], sum16[MOST * BLOCKS * 2];
static float sums[2][MOST * SPECDEC__ROWS];
static int32_t pair32[MOST * BLOCKS], pair16[MOST * BLOCKS * 2];
static int8_t codes[MOST * BLOCKS * 32];
static specdec__panel panels[2];

int main(int argc, char **argv)
{
    specdec__kernels kernels;
    specdec__columns x;
    specdec__tiles tiles;
    specdec_error error;
    specdec_type type;
    float *to[2] = {sums[0], sums[1]};
    uint32_t random = 12345;
    size_t i;
    int c;

    memset(&x, 0, sizeof x);
    tiles.type = argc == 4 && specdec_type_by_name(argv[2], &type) ? specdec__quant_find_type(type.number) : NULL;
    x.n = argc == 4 ? atoi(argv[3]) : 0;
    if (!tiles.type || x.n < 1 || x.n > MOST || specdec__kernels_init(&kernels, argv[1], &error)) {
        fprintf(stderr, "multiply ISA TYPE N: no such instruction set or type, or N is not in 1..%d\n", MOST);
        return 2;
    }
    x.codes = codes;
    x.scale = scale;
    x.pair32 = pair32;
    x.pair16 = pair16;
    x.sum32 = sum32;
    x.sum16 = sum16;
    x.values = values;
    x.stride = BLOCKS * 32;
    for (i = 0; i < sizeof tiles_of_weights; i++) {
        random = random * 1664525 + 1013904223;
        (&tiles_of_weights[0][0])[i] = (unsigned char)(random >> 24 & 0x3f);
    }
    for (i = 0; i < SPECDEC__COUNT(values); i++) {
        random = random * 1664525 + 1013904223;
        values[i] = (float)(int32_t)random / 2147483648.0f;
    }
    for (c = 0; c < x.n; c++)
        kernels.quantise(values + (size_t)c * BLOCKS * 32, 0, BLOCKS, c, &x);
    for (i = 0; i < 2; i++) {
        tiles.tile[i] = tiles_of_weights[i];
        tiles.next[i] = tiles_of_weights[i + 1];
    }
    specdec__kernels_multiply(&kernels, &tiles, BLOCKS, panels, &x, 0, 0, x.n, to);
    printf("%g\n", (double)sums[0][0]);
    return 0;
}
