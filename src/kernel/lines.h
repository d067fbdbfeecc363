/* =====================================================================================================================
 * >>kernel/lines: unpacks tiles line by line, for NEON of 32-bit ARM and for RISC-V vectors.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../quant/types.h"
#include "kernel.h"
#include "scalar.h"
#include "neon32.h"

#ifdef SPECDEC__LINE_VECTOR
/* A line is 4 values of each of 16 rows, 64 bytes, in tiles as in panels. All bytes of a line are unpacked alike. */
typedef uint8_t specdec__line_vector __attribute__((vector_size(SPECDEC__LINE_VECTOR))); /* bytes of a line */
typedef uint8_t specdec__line_row_bytes __attribute__((vector_size(16)));                /* a byte of each row */

/* How the low bits of a block of 32 values lie in lines. WHOLE: 8 lines. HALVES: 4 lines, the second 16 values in the
   high nibbles. PAIRS and FOURS: 8 lines for two or four blocks, above each other in their bytes. SIX: as Q6_K has
   them. GRID: no codes but points of a grid. */
enum { SPECDEC__LINE_WHOLE, SPECDEC__LINE_HALVES, SPECDEC__LINE_PAIRS, SPECDEC__LINE_FOURS, SPECDEC__LINE_SIX,
       SPECDEC__LINE_GRID };

/* Bits of a type's codes: where they begin in a tile, their mask, and by how much they are shifted in a code. */
typedef struct specdec__line_bits {
    uint16_t at;         /* byte of a tile where they begin */
    uint8_t mask, shift; /* mask of the bits in a byte; by how much they are shifted to the left in a code */
} specdec__line_bits;

/* What codes are: numbers, or indices of specdec__quant_iq4_values. */
enum { SPECDEC__LINE_NUMBERS, SPECDEC__LINE_IQ4_VALUES };

/* The layout of a type's codes in a tile: code = (low bits | high bits << shift) + offset. */
typedef struct specdec__line_codes {
    uint32_t type;                 /* SPECDEC__TYPE_Q4_0, ... */
    uint16_t layout;               /* SPECDEC__LINE_WHOLE and so on */
    specdec__line_bits low, high;  /* high.mask 0: there are no high bits */
    int8_t offset;                 /* added to the bits of a code */
    uint8_t codes;                 /* SPECDEC__LINE_NUMBERS or SPECDEC__LINE_IQ4_VALUES */
} specdec__line_codes;

#define SPECDEC__LINE_BITS(tile, field, mask, shift) {SPECDEC__TILE_AT(tile, field), mask, shift}
#define SPECDEC__LINE_NO_BITS {0, 0, 0}
#define SPECDEC__LINE_WITHOUT_CODES(type, layout) \
    {type, layout, SPECDEC__LINE_NO_BITS, SPECDEC__LINE_NO_BITS, 0, SPECDEC__LINE_NUMBERS}

/* The layouts of all types that are unpacked line by line; other types, for which the last row stands, are unpacked by
   their decoders. */
static const specdec__line_codes specdec__line_types[] = {
    {SPECDEC__TYPE_Q4_0, SPECDEC__LINE_HALVES, SPECDEC__LINE_BITS(q4_0, nibbles, 15, 0),
     SPECDEC__LINE_NO_BITS, -8, SPECDEC__LINE_NUMBERS},
    {SPECDEC__TYPE_Q4_1, SPECDEC__LINE_HALVES, SPECDEC__LINE_BITS(q4_1, nibbles, 15, 0),
     SPECDEC__LINE_NO_BITS, 0, SPECDEC__LINE_NUMBERS},
    {SPECDEC__TYPE_Q5_0, SPECDEC__LINE_HALVES, SPECDEC__LINE_BITS(q5_0, nibbles, 15, 0),
     SPECDEC__LINE_BITS(q5_0, high, 1, 4), -16, SPECDEC__LINE_NUMBERS},
    {SPECDEC__TYPE_Q5_1, SPECDEC__LINE_HALVES, SPECDEC__LINE_BITS(q5_1, nibbles, 15, 0),
     SPECDEC__LINE_BITS(q5_1, high, 1, 4), 0, SPECDEC__LINE_NUMBERS},
    {SPECDEC__TYPE_Q8_0, SPECDEC__LINE_WHOLE, SPECDEC__LINE_BITS(q8_0, codes, 255, 0),
     SPECDEC__LINE_NO_BITS, 0, SPECDEC__LINE_NUMBERS},
    {SPECDEC__TYPE_Q2_K, SPECDEC__LINE_FOURS, SPECDEC__LINE_BITS(q2_k, two_bits, 3, 0),
     SPECDEC__LINE_NO_BITS, 0, SPECDEC__LINE_NUMBERS},
    {SPECDEC__TYPE_Q3_K, SPECDEC__LINE_FOURS, SPECDEC__LINE_BITS(q3_k, two_bits, 3, 0),
     SPECDEC__LINE_BITS(q3_k, high, 1, 2), -4, SPECDEC__LINE_NUMBERS},
    {SPECDEC__TYPE_Q4_K, SPECDEC__LINE_PAIRS, SPECDEC__LINE_BITS(q4_k, nibbles, 15, 0),
     SPECDEC__LINE_NO_BITS, 0, SPECDEC__LINE_NUMBERS},
    {SPECDEC__TYPE_Q5_K, SPECDEC__LINE_PAIRS, SPECDEC__LINE_BITS(q5_k, nibbles, 15, 0),
     SPECDEC__LINE_BITS(q5_k, high, 1, 4), 0, SPECDEC__LINE_NUMBERS},
    {SPECDEC__TYPE_Q6_K, SPECDEC__LINE_SIX, SPECDEC__LINE_BITS(q6_k, nibbles, 15, 0),
     SPECDEC__LINE_BITS(q6_k, two_bits, 3, 4), -32, SPECDEC__LINE_NUMBERS},
    {SPECDEC__TYPE_IQ4_NL, SPECDEC__LINE_HALVES, SPECDEC__LINE_BITS(iq4_nl, nibbles, 15, 0),
     SPECDEC__LINE_NO_BITS, 0, SPECDEC__LINE_IQ4_VALUES},
    {SPECDEC__TYPE_IQ4_XS, SPECDEC__LINE_HALVES, SPECDEC__LINE_BITS(iq4_xs, nibbles, 15, 0),
     SPECDEC__LINE_NO_BITS, 0, SPECDEC__LINE_IQ4_VALUES},
    SPECDEC__LINE_WITHOUT_CODES(SPECDEC__TYPE_IQ2_XXS, SPECDEC__LINE_GRID),
    SPECDEC__LINE_WITHOUT_CODES(SPECDEC__TYPE_IQ2_XS, SPECDEC__LINE_GRID),
    SPECDEC__LINE_WITHOUT_CODES(SPECDEC__TYPE_IQ2_S, SPECDEC__LINE_GRID),
    SPECDEC__LINE_WITHOUT_CODES(SPECDEC__TYPE_IQ3_XXS, SPECDEC__LINE_GRID),
    SPECDEC__LINE_WITHOUT_CODES(SPECDEC__TYPE_IQ3_S, SPECDEC__LINE_GRID),
    SPECDEC__LINE_WITHOUT_CODES(SPECDEC__TYPE_COUNT, SPECDEC__LINE_WHOLE)};

/* Four lines of a block: where their low and high bits begin, and how their bytes are shifted. */
typedef struct specdec__line_run {
    const unsigned char *low, *high; /* the low and the high bits of the first line */
    int shift, high_shift;           /* by how much these are shifted in their bytes */
    int high_step;         /* bytes between the high bits of two lines */
    int high_turn;         /* by how much more the next line's high bits are shifted */
} specdec__line_run;

/* Returns where the four lines of half `half` of block b of a tile are. */
SPECDEC__INLINE specdec__line_run specdec__line_find_run(const specdec__line_codes *from, const unsigned char *tile,
                                                         int b, int half)
{
    specdec__line_run run = {tile + from->low.at + half * 256, tile + from->high.at + half * 256, 0, b, 64, 0};

    switch (from->layout) {
    case SPECDEC__LINE_HALVES:
        run.low += b * 256 - half * 256;
        run.shift = half * 4;
        run.high = tile + from->high.at; /* a line of words with a bit for each value */
        run.high_shift = half * 4;
        run.high_step = 0;
        run.high_turn = 1;
        break;
    case SPECDEC__LINE_PAIRS:
        run.low += b / 2 * 512;
        run.shift = b % 2 * 4;
        break;
    case SPECDEC__LINE_FOURS:
        run.low += b / 4 * 512;
        run.shift = b % 4 * 2;
        break;
    case SPECDEC__LINE_SIX:
        run.low += b / 4 * 1024 + b % 2 * 512;
        run.shift = b % 4 / 2 * 4;
        run.high += b / 4 * 512;
        run.high_shift = b % 4 * 2;
        break;
    default: break;
    }
    return run;
}

/* Returns a vector with the same number in every byte. */
SPECDEC__INLINE specdec__line_vector specdec__line_repeat_byte(int number)
{
    specdec__line_vector v = {0};

    return v + (uint8_t)number;
}

/* Loads a vector of bytes from any address. */
SPECDEC__INLINE specdec__line_vector specdec__line_load(const void *at)
{
    specdec__line_vector v;

    memcpy(&v, at, sizeof v);
    return v;
}

/* Unpacks four lines into codes. */
SPECDEC__INLINE void specdec__line_unpack_run(const specdec__line_codes *from, const specdec__line_run *run,
                                              int has_high, int8_t *codes)
{
    const specdec__line_vector mask = specdec__line_repeat_byte(from->low.mask),
                               offset = specdec__line_repeat_byte(from->offset);
    const specdec__line_vector high_mask = specdec__line_repeat_byte(from->high.mask);
    const specdec__line_vector up = specdec__line_repeat_byte(from->high.shift);
    const specdec__line_vector shift = specdec__line_repeat_byte(run->shift);
    int i, j;

    for (i = 0; i < 4; i++) {
        const unsigned char *low = run->low + i * 64, *high = run->high + i * run->high_step;
        const specdec__line_vector turn = specdec__line_repeat_byte(run->high_shift + i * run->high_turn);

        SPECDEC__UNROLL
        for (j = 0; j < 64; j += (int)sizeof mask) {
            specdec__line_vector v = specdec__line_load(low + j) >> shift & mask;

            if (has_high)
                v |= (specdec__line_load(high + j) >> turn & high_mask) << up;
            v += offset;
            memcpy(codes + i * 64 + j, &v, sizeof v);
        }
    }
}

/* Unpacks the codes of block b of a tile. */
static void specdec__line_unpack_codes(const specdec__line_codes *from, const unsigned char *tile, int b,
                                       int8_t *codes)
{
    int half;

    for (half = 0; half < 2; half++) {
        const specdec__line_run run = specdec__line_find_run(from, tile, b, half);

        if (from->high.mask)
            specdec__line_unpack_run(from, &run, 1, codes + half * 256);
        else
            specdec__line_unpack_run(from, &run, 0, codes + half * 256);
    }
    if (from->codes == SPECDEC__LINE_IQ4_VALUES)
        specdec__line_look_up(codes, specdec__quant_iq4_values);
}

/* Returns four bytes of eight signs from four times seven signs: the eighth sign makes the number of set bits even. */
SPECDEC__INLINE uint32_t specdec__line_add_eighth_signs(uint32_t sevens)
{
    uint32_t signs = (sevens & 0x7F) | (sevens << 1 & 0x7F00) | (sevens << 2 & 0x7F0000) | (sevens << 3 & 0x7F000000);
    uint32_t parity = signs ^ signs >> 4;

    parity ^= parity >> 2;
    parity ^= parity >> 1;
    return signs | (parity & 0x01010101) << 7;
}

/* Returns the four codes of a row in line i of a group of grid points: magnitudes as bytes, then the signs applied. */
SPECDEC__INLINE uint32_t specdec__line_codes_of_point(uint32_t type, const specdec__grid_group *group, int i, int row)
{
    const uint32_t ones = 0x01010101, signs = (group->signs[row] >> (i * 4) & 15) * 0x204081 & ones;
    uint32_t point;

    if (type == SPECDEC__TYPE_IQ3_XXS || type == SPECDEC__TYPE_IQ3_S) {
        point = group->points[i / 2][row] >> (i % 2 * 16);
        point = (point & 15) | (point << 4 & 0xF00) | (point << 8 & 0xF0000) | (point << 12 & 0xF000000);
        point = type == SPECDEC__TYPE_IQ3_S ? point * 2 + ones
                                            : point * 8 + ones * 4 + (point & point >> 1 & point >> 2 & ones) * 2;
    } else {
        point = group->points[i / 4][row] >> (i % 4 * 8);
        point = (point & 3) | (point << 6 & 0x300) | (point << 12 & 0x30000) | (point << 18 & 0x3000000);
        point = point * 17 + (point >> 1 & ones) + ones * 8;
    }
    return (point ^ signs * 255) + signs;
}

/* Unpacks the codes of block b of a tile of a type with a grid. */
SPECDEC__VECTORISE static void specdec__line_unpack_grid(uint32_t type, const unsigned char *tile, int b, int8_t *codes)
{
    specdec__grid_group group;
    uint32_t line[16];
    int i, row;

    specdec__grid_load_group(type, tile, b, &group);
    if (type != SPECDEC__TYPE_IQ2_S && type != SPECDEC__TYPE_IQ3_S)
        for (row = 0; row < SPECDEC__ROWS; row++)
            group.signs[row] = specdec__line_add_eighth_signs(group.signs[row]);
    for (i = 0; i < 8; i++) {
        if (type == SPECDEC__TYPE_IQ3_S)
            for (row = 0; row < SPECDEC__ROWS; row++)
                line[row] = specdec__line_codes_of_point(SPECDEC__TYPE_IQ3_S, &group, i, row);
        else if (type == SPECDEC__TYPE_IQ3_XXS)
            for (row = 0; row < SPECDEC__ROWS; row++)
                line[row] = specdec__line_codes_of_point(SPECDEC__TYPE_IQ3_XXS, &group, i, row);
        else
            for (row = 0; row < SPECDEC__ROWS; row++)
                line[row] = specdec__line_codes_of_point(SPECDEC__TYPE_IQ2_S, &group, i, row);
        memcpy(codes + i * 64, line, sizeof line);
    }
}

/* Returns one byte of each of 16 rows; these bytes are `step` bytes apart. */
SPECDEC__INLINE specdec__line_row_bytes specdec__line_gather_row_bytes(const unsigned char *at, int step)
{
    specdec__line_row_bytes r;
    unsigned char bytes[16];
    int row;

    for (row = 0; row < SPECDEC__ROWS; row++)
        bytes[row] = at[row * step];
    memcpy(&r, bytes, sizeof r);
    return r;
}

/* Unpacks the scale (and minimum) of granule k of a tile of 256 values, as integers to be multiplied by d (and
   dmin). */
static void specdec__line_unpack_factors(uint32_t type, const unsigned char *tile, int k,
                                         specdec__line_row_bytes *scale, specdec__line_row_bytes *minimum)
{
    const unsigned char *at;

    switch (type) {
    case SPECDEC__TYPE_Q2_K:
        *minimum = specdec__line_gather_row_bytes(tile + SPECDEC__TILE_AT(q2_k, scales) + k * 16, 1);
        *scale = *minimum & 15;
        *minimum >>= 4;
        break;
    case SPECDEC__TYPE_Q3_K:
        at = tile + SPECDEC__TILE_AT(q3_k, scales);
        *scale = specdec__line_gather_row_bytes(at + k % 8 * 16, 1) >> (uint8_t)(k / 8 * 4) & 15;
        *scale |= (specdec__line_gather_row_bytes(at + (8 + k % 4) * 16, 1) >> (uint8_t)(k / 4 * 2) & 3) << 4;
        *scale -= 32;
        break;
    case SPECDEC__TYPE_Q6_K:
        *scale = specdec__line_gather_row_bytes(tile + SPECDEC__TILE_AT(q6_k, scales) + k * 16, 1);
        break;
    case SPECDEC__TYPE_IQ4_XS:
        at = tile + SPECDEC__TILE_AT(iq4_xs, low) + k / 2 * 16;
        *scale = specdec__line_gather_row_bytes(at, 1) >> (uint8_t)(k % 2 * 4) & 15;
        at = tile + SPECDEC__TILE_AT(iq4_xs, high) + k / 4;
        *scale |= (specdec__line_gather_row_bytes(at, 2) >> (uint8_t)(k % 4 * 2) & 3) << 4;
        *scale -= 32;
        break;
    default: /* Q4_K, Q5_K */
        at = tile + SPECDEC__TILE_AT(q4_k, scales) + k % 4 * 16;
        *scale = specdec__line_gather_row_bytes(at, 1);
        *minimum = specdec__line_gather_row_bytes(at + 4 * 16, 1);
        if (k < 4) {
            *scale &= 63;
            *minimum &= 63;
        } else {
            specdec__line_row_bytes both = specdec__line_gather_row_bytes(at + 8 * 16, 1);
            *scale = (both & 15) | *scale >> 6 << 4;
            *minimum = both >> 4 | *minimum >> 6 << 4;
        }
        break;
    }
}

/* Unpacks the scale of granule k of a tile of a type with a grid, as an integer for each row. Returns the factor by
   which d times this integer is multiplied. */
static float specdec__line_unpack_grid_scales(uint32_t type, const unsigned char *tile, int k,
                                              specdec__line_row_bytes *scale)
{
    const int word = k / 8 * 64, byte = k % 8 / 2;
    int shift = k % 2 * 4;
    size_t at;

    switch (type) {
    case SPECDEC__TYPE_IQ2_XS: at = SPECDEC__TILE_AT(iq2_xs, scales) + (size_t)(word + byte); break;
    case SPECDEC__TYPE_IQ2_S: at = SPECDEC__TILE_AT(iq2_s, scales) + (size_t)(word + byte); break;
    case SPECDEC__TYPE_IQ3_S: at = SPECDEC__TILE_AT(iq3_s, scales) + (size_t)byte; break;
    case SPECDEC__TYPE_IQ3_XXS:
        at = SPECDEC__TILE_AT(iq3_xxs, words) + (size_t)(k * 64 + 3);
        shift = 4;
        break;
    default: /* IQ2_XXS */
        at = SPECDEC__TILE_AT(iq2_xxs, groups) + (size_t)(k * 128 + 67);
        shift = 4;
        break;
    }
    *scale = (specdec__line_gather_row_bytes(tile + at, 4) >> (uint8_t)shift & 15) * 2 + 1;
    return type == SPECDEC__TYPE_IQ3_S ? 1.0f : type == SPECDEC__TYPE_IQ3_XXS ? 0.25f : 0.125f;
}

/* Unpacks the scales (and minimums) of granule k of a tile into granule `to` of a panel. */
static void specdec__line_unpack_scales(const specdec__quant_type *type, const specdec__line_codes *from,
                                        const unsigned char *tile, int k, specdec__panel *panel, int to)
{
    const unsigned char *d = tile, *dmin = tile + SPECDEC__TILE_AT(q4_k, dmin);
    specdec__line_row_bytes scale, minimum = {0};
    float unit = 1;
    int8_t factors[16];

    if (type->block == 32) {
        specdec__line_store_f16_scales(panel->scale[to], d);
        if (type->has_minimum)
            specdec__line_store_f16_scales(panel->minimum[to], tile + SPECDEC__TILE_AT(q4_1, minimum));
        return;
    }
    if (from->layout == SPECDEC__LINE_GRID)
        unit = specdec__line_unpack_grid_scales(type->number, tile, k, &scale);
    else
        specdec__line_unpack_factors(type->number, tile, k, &scale, &minimum);
    switch (type->number) {
    case SPECDEC__TYPE_Q2_K:
        d = tile + SPECDEC__TILE_AT(q2_k, d);
        dmin = tile + SPECDEC__TILE_AT(q2_k, dmin);
        break;
    case SPECDEC__TYPE_Q3_K: d = tile + SPECDEC__TILE_AT(q3_k, d); break;
    case SPECDEC__TYPE_Q6_K: d = tile + SPECDEC__TILE_AT(q6_k, d); break;
    default: break;
    }
    memcpy(factors, &scale, sizeof factors);
    specdec__line_store_scales(panel->scale[to], d, factors, unit);
    memcpy(factors, &minimum, sizeof factors);
    if (type->has_minimum)
        specdec__line_store_scales(panel->minimum[to], dmin, factors, -1);
}

/* Unpacks blocks * 32 values of 16 rows of any type, and prefetches the bytes SPECDEC__LINE_PREFETCH_BYTES ahead. */
#define SPECDEC__LINE_PREFETCH_BYTES 4096 /* distance in bytes at which weights are prefetched */
static void specdec__line_unpack_tile(const specdec__quant_type *type, const unsigned char *tile, int blocks,
                                      specdec__panel *panel)
{
    const specdec__line_codes *from = specdec__line_types;
    const int per = type->granule == 16 ? 2 : 1, whole = type->block == 32 ? 1 : 8;
    const int bytes = type->bytes * SPECDEC__ROWS, share = type->block == 32 ? bytes : bytes / 8;
    int b, g, i;

    while (from->type != type->number && from->type != SPECDEC__TYPE_COUNT)
        from++;
    if (from->type == SPECDEC__TYPE_COUNT) {
        specdec__unpack_tile_by_decoder(type, tile, blocks, panel);
        for (b = 0; b < blocks * per; b++)
            SPECDEC__LINE_SUM_GRANULE(panel, b, type->granule);
        return;
    }
    for (b = 0; b < blocks; b++) {
        const int at = b & (whole - 1);

        for (i = 0; i < share; i += 64)
            __builtin_prefetch(tile + SPECDEC__LINE_PREFETCH_BYTES + at * share + i, 0, 3);
        if (from->layout == SPECDEC__LINE_GRID)
            specdec__line_unpack_grid(type->number, tile, at, panel->u.codes + b * 512);
        else
            specdec__line_unpack_codes(from, tile, at, panel->u.codes + b * 512);
        for (g = 0; g < per; g++) {
            specdec__line_unpack_scales(type, from, tile, at * per + g, panel, b * per + g);
            if (per == 1)
                SPECDEC__LINE_SUM_GRANULE(panel, b, 32);
            else
                SPECDEC__LINE_SUM_GRANULE(panel, b * 2 + g, 16);
        }
        if (at == whole - 1)
            tile += bytes;
    }
}
#endif

#ifdef SPECDEC__NEON32_ASKED
#pragma GCC pop_options
#endif
