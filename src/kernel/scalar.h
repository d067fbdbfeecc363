/* =====================================================================================================================
 * >>kernel/scalar: the kernels in plain C, the reference for all instruction sets; and what several sets share.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../quant/types.h"
#include "../quant/tiles.h"
#include "../base/op.h"
#include "kernel.h"

/* Unpacks a tile of any type with the type's decoder. The reference for all other unpackers, and used where there is
   none. */
static void specdec__unpack_tile_by_decoder(const specdec__quant_type *type, const unsigned char *tile, int blocks,
                                            specdec__panel *panel)
{
    unsigned char block[SPECDEC__QUANT_MAX_BYTES];
    int8_t codes[SPECDEC__QUANT_MAX_BLOCK];
    int per = type->block, granules = per / type->granule, whole = blocks * 32 / per, row, i, j;

    for (i = 0; i < whole; i++, tile += (size_t)type->bytes * SPECDEC__ROWS)
        for (row = 0; row < SPECDEC__ROWS; row++) {
            float scale[SPECDEC__QUANT_MAX_GRANULES], minimum[SPECDEC__QUANT_MAX_GRANULES];

            specdec__quant_deinterleave_block(type, tile, row, block);
            type->decode(block, codes, scale, minimum);
            for (j = 0; j < per; j += 4)
                memcpy(panel->u.codes + ((i * per + j) * SPECDEC__ROWS + row * 4), codes + j, 4);
            for (j = 0; j < granules; j++) {
                panel->scale[i * granules + j][row] = scale[j];
                if (type->has_minimum)
                    panel->minimum[i * granules + j][row] = minimum[j];
            }
        }
}

SPECDEC__RARELY_RUN
/* Adds a panel of codes times `count` columns to sums (column, 16). The reference for the dots of all instruction sets.
   */
SPECDEC__INLINE void specdec__scalar_dot(const specdec__panel *panel, int blocks, const specdec__columns *x, int block,
                                         int column, int count, float *sums, int granule, int has_minimum)
{
    int b, c, row, g, i;

    for (c = 0; c < count; c++)
        for (b = 0; b < blocks; b++) {
            size_t at = (size_t)(block + b) * (size_t)x->n + (size_t)(column + c);
            const int8_t *codes = x->codes + at * 32;
            int offset = (int16_t)(x->pair32[at] & 0xFFFF);

            for (g = 0; g < 32 / granule; g++)
                for (row = 0; row < SPECDEC__ROWS; row++) {
                    int from = b * 32 + g * granule, k = from / granule;
                    float *sum = sums + c * SPECDEC__ROWS + row, scale = panel->scale[k][row] * x->scale[at];
                    int32_t dot = 0;

                    for (i = 0; i < granule; i++)
                        dot += panel->u.codes[((from + i) / 4 * SPECDEC__ROWS + row) * 4 + i % 4] *
                               (codes[g * granule + i] + offset);
                    *sum = specdec__fma(scale, (float)dot, *sum);
                    if (has_minimum)
                        *sum = specdec__fma(panel->minimum[k][row],
                                            granule == 32 ? x->sum32[at] : x->sum16[at * 2 + (size_t)g], *sum);
                }
        }
}

/* Defines the four integer dots of an instruction set (granules of 16 and 32, without and with minimums) by its inline
   function. */
#define SPECDEC__DOT(isa, target, name, granule, has_minimum) \
    target static void specdec__##isa##_dot_##name(const specdec__panel *panel, int blocks, const specdec__columns *x, \
                                                   int block, int column, int count, float *sums) \
    { \
        specdec__##isa##_dot(panel, blocks, x, block, column, count, sums, granule, has_minimum); \
    }
#define SPECDEC__DOTS(isa, target) \
    SPECDEC__DOT(isa, target, 16, 16, 0) SPECDEC__DOT(isa, target, 16m, 16, 1) \
    SPECDEC__DOT(isa, target, 32, 32, 0) SPECDEC__DOT(isa, target, 32m, 32, 1)

SPECDEC__DOTS(scalar, )

/* Defines the multiply function of a type by the instruction set's inline function. */
#define SPECDEC__MULTIPLY(isa, target, number) \
    target static void specdec__##isa##_multiply_##number(const specdec__tiles *tiles, int blocks, \
                                                          specdec__panel *panels, const specdec__columns *x, \
                                                          int block, int column, int count, float *const *sums) \
    { \
        specdec__##isa##_multiply(SPECDEC__TYPE_##number, tiles, blocks, panels, x, block, column, count, sums); \
    }

/* A group of 32 values of 16 rows whose codes are points of a grid. points (4, row): two points of 8 or 4 values in
   each word; signs (row): a bit for each value, or seven bits for each eight values. */
typedef struct specdec__grid_group {
    uint32_t points[4][16], signs[16]; /* grid points, two in a word; signs of a row, as bits */
} specdec__grid_group;

/* Returns two points of a grid, by their indices, in one word. */
SPECDEC__INLINE uint32_t specdec__grid_join_points(const uint16_t *grid, uint32_t first, uint32_t second)
{
    return grid[first] | (uint32_t)grid[second] << 16;
}

/* Reads group g of a row of a tile of IQ2_XXS. */
SPECDEC__INLINE void specdec__grid_load_iq2_xxs(const unsigned char *tile, int g, int row, specdec__grid_group *out)
{
    const unsigned char *at = tile + SPECDEC__TILE_AT(iq2_xxs, groups) + g * 128 + row * 4;

    out->points[0][row] = specdec__grid_join_points(specdec__quant_iq2_xxs_grid, at[0], at[1]);
    out->points[1][row] = specdec__grid_join_points(specdec__quant_iq2_xxs_grid, at[2], at[3]);
    out->signs[row] = specdec__load_u32(at + 64);
}

/* Reads group g of a row of a tile of IQ2_XS. */
SPECDEC__INLINE void specdec__grid_load_iq2_xs(const unsigned char *tile, int g, int row, specdec__grid_group *out)
{
    const unsigned char *at = tile + SPECDEC__TILE_AT(iq2_xs, words) + g * 128 + row * 4;
    uint32_t a = specdec__load_u32(at), b = specdec__load_u32(at + 64);

    out->points[0][row] = specdec__grid_join_points(specdec__quant_iq2_xs_grid, a & 511, a >> 16 & 511);
    out->points[1][row] = specdec__grid_join_points(specdec__quant_iq2_xs_grid, b & 511, b >> 16 & 511);
    out->signs[row] = (a >> 9 & 127) | a >> 25 << 7 | (b >> 9 & 127) << 14 | b >> 25 << 21;
}

/* Reads group g of a row of a tile of IQ2_S. */
SPECDEC__INLINE void specdec__grid_load_iq2_s(const unsigned char *tile, int g, int row, specdec__grid_group *out)
{
    const uint16_t *grid = specdec__quant_iq2_s_grid;
    uint32_t low = specdec__load_u32(tile + SPECDEC__TILE_AT(iq2_s, index) + g * 64 + row * 4);
    uint32_t high = tile[SPECDEC__TILE_AT(iq2_s, high) + (size_t)(g / 4 * 64 + row * 4 + g % 4)];

    out->points[0][row] = specdec__grid_join_points(grid, (low & 255) | (high & 3) << 8,
                                                    (low >> 8 & 255) | (high & 12) << 6);
    out->points[1][row] = specdec__grid_join_points(grid, (low >> 16 & 255) | (high & 48) << 4,
                                                    low >> 24 | (high & 192) << 2);
    out->signs[row] = specdec__load_u32(tile + SPECDEC__TILE_AT(iq2_s, signs) + g * 64 + row * 4);
}

/* Reads the points of group g of a row of IQ3_XXS or IQ3_S, whose index fields begin at the same offset. high: the
   ninth bits of the indices, one for each point. */
SPECDEC__INLINE void specdec__grid_load_iq3_points(const uint16_t *grid, const unsigned char *tile, uint32_t high,
                                                   int g, int row, specdec__grid_group *out)
{
    const unsigned char *at = tile + SPECDEC__TILE_AT(iq3_s, index) + g * 128 + row * 4;
    int i;

    for (i = 0; i < 4; i++, high >>= 2) {
        uint32_t two = specdec__load_u16(at + i / 2 * 64 + i % 2 * 2);
        out->points[i][row] = specdec__grid_join_points(grid, (two & 255) | (high & 1) << 8,
                                                        two >> 8 | (high & 2) << 7);
    }
}

/* Reads group g, 32 values, of all 16 rows of a tile of a type with a grid. */
SPECDEC__UNUSED SPECDEC__INLINE void specdec__grid_load_group(uint32_t type, const unsigned char *tile, int g,
                                                              specdec__grid_group *out)
{
    const unsigned char *high = tile + SPECDEC__TILE_AT(iq3_s, high) + g / 4 * 64 + g % 4;
    int row;

    if (type == SPECDEC__TYPE_IQ2_XXS)
        for (row = 0; row < SPECDEC__ROWS; row++)
            specdec__grid_load_iq2_xxs(tile, g, row, out);
    else if (type == SPECDEC__TYPE_IQ2_XS)
        for (row = 0; row < SPECDEC__ROWS; row++)
            specdec__grid_load_iq2_xs(tile, g, row, out);
    else if (type == SPECDEC__TYPE_IQ2_S)
        for (row = 0; row < SPECDEC__ROWS; row++)
            specdec__grid_load_iq2_s(tile, g, row, out);
    else if (type == SPECDEC__TYPE_IQ3_XXS)
        for (row = 0; row < SPECDEC__ROWS; row++)
            specdec__grid_load_iq3_points(specdec__quant_iq3_xxs_grid, tile, 0, g, row, out);
    else
        for (row = 0; row < SPECDEC__ROWS; row++)
            specdec__grid_load_iq3_points(specdec__quant_iq3_s_grid, tile, high[row * 4], g, row, out);
    if (type == SPECDEC__TYPE_IQ3_XXS)
        memcpy(out->signs, tile + SPECDEC__TILE_AT(iq3_xxs, words) + g * 64, sizeof out->signs);
    if (type == SPECDEC__TYPE_IQ3_S)
        memcpy(out->signs, tile + SPECDEC__TILE_AT(iq3_s, signs) + g * 64, sizeof out->signs);
}

/* The vector of plain C: one float. */
typedef float specdec__scalar_v;

/* Functions for the operations of SPECDEC__LANE_OPERATIONS. */
SPECDEC__INLINE float specdec__scalar_load(const float *at) { return *at; }
SPECDEC__INLINE void specdec__scalar_store(float *at, float a) { *at = a; }
SPECDEC__INLINE float specdec__scalar_set(float a) { return a; }
SPECDEC__INLINE float specdec__scalar_add(float a, float b) { return a + b; }
SPECDEC__INLINE float specdec__scalar_sub(float a, float b) { return a - b; }
SPECDEC__INLINE float specdec__scalar_mul(float a, float b) { return a * b; }
SPECDEC__INLINE float specdec__scalar_div(float a, float b) { return a / b; }
SPECDEC__INLINE float specdec__scalar_madd(float a, float b, float c) { return specdec__fma(a, b, c); }
SPECDEC__INLINE float specdec__scalar_max(float a, float b) { return a > b ? a : b; }
SPECDEC__INLINE float specdec__scalar_min(float a, float b) { return a < b ? a : b; }
SPECDEC__INLINE float specdec__scalar_times_power_of_2(float a, float shifter)
{
    return specdec__float_from_bits(specdec__bits_from_float(a) + (specdec__bits_from_float(shifter) << 23));
}
SPECDEC__INLINE void specdec__scalar_store_low_bytes(int8_t *at, float a)
{
    *at = (int8_t)(uint8_t)specdec__bits_from_float(a);
}
SPECDEC__INLINE int32_t specdec__scalar_bits_of_lane_0(float a) { return (int32_t)specdec__bits_from_float(a); }
SPECDEC__INLINE float specdec__scalar_load_bf16(const void *at)
{
    return specdec__float_from_bf16(specdec__load_u16(at));
}
SPECDEC__INLINE float specdec__scalar_load_f16(const void *at) { return specdec__load_f16(at); }
SPECDEC__INLINE void specdec__scalar_store_f16(void *at, float a)
{
    specdec__store_u16(at, specdec__f16_from_float(a));
}
/* Returns the sum of 16 lanes by the canonical tree: lanes i and i + 8, then i + 4, i + 2, i + 1. */
SPECDEC__INLINE float specdec__scalar_sum(const float *parts)
{
    float lane[8];
    int i, step;

    for (i = 0; i < 8; i++)
        lane[i] = parts[i] + parts[i + 8];
    for (step = 4; step; step /= 2)
        for (i = 0; i < step; i++)
            lane[i] += lane[i + step];
    return lane[0];
}
/* Returns the largest of 16 lanes. */
SPECDEC__INLINE float specdec__scalar_largest_lane(const float *parts)
{
    float lane[8];
    int i, step;

    for (i = 0; i < 8; i++)
        lane[i] = specdec__scalar_max(parts[i], parts[i + 8]);
    for (step = 4; step; step /= 2)
        for (i = 0; i < step; i++)
            lane[i] = specdec__scalar_max(lane[i], lane[i + step]);
    return lane[0];
}
/* Defines largest_lanes_of_four, the largest of 16 lanes four times, by an instruction set's `largest_lane`.
   parts: vectors that make 16 lanes. */
#define SPECDEC__HIGHEST4(isa, target, parts) \
    target SPECDEC__INLINE void specdec__##isa##_largest_lanes_of_four(const specdec__##isa##_v *x, float *out) \
    { \
        int i; \
        \
        for (i = 0; i < 4; i++) \
            out[i] = specdec__##isa##_largest_lane(x + i * (parts)); \
    }
SPECDEC__HIGHEST4(scalar, , 16)
/* Returns the sum of 16 codes. */
SPECDEC__INLINE int32_t specdec__scalar_sum_codes(const int8_t *codes)
{
    int32_t sum = 0;
    int i;

    for (i = 0; i < 16; i++)
        sum += codes[i];
    return sum;
}
/* Computes bits (64), the upper 32 random bits of the noise of 64 neighbouring tokens. first: the noise row's bits at
   the first token. */
static void specdec__scalar_compute_noise_bits(uint64_t first, uint32_t *bits)
{
    uint32_t i;

    for (i = 0; i < 64; i++)
        bits[i] = (uint32_t)(specdec__noise_bits_of_token(first, i) >> 32);
}

#define SPECDEC__ISA scalar
#define SPECDEC__TARGET
#define SPECDEC__LANES 1
#define SPECDEC__WIDTH 4
#include SPECDEC__FILE
SPECDEC__RARELY_RUN_END
