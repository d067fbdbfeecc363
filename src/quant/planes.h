/* =====================================================================================================================
 * >>quant/planes: tiles of Q8_0 as two planes, the upper five bits of every code and the lower three, so that the upper
 *     ones can be read alone; and how far the lower ones can move the product of a row.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/op.h"
#include "types.h"

/* A code c is 8 h + l - 128, h (5 bits) and l (3 bits) unsigned. Of a block of 32 values of 16 rows, group g are values
   4 g to 4 g + 3 of all rows: 64 bytes of a tile. Upper plane: scales (16 half floats), the upper four bits of h (four
   lines of 64 bytes: group 2 i in the low nibbles of line i, group 2 i + 1 in the high ones), its lowest bit (a line:
   bit g is that of group g). Lower plane: three lines, bit g of line k is bit k of l of group g. The upper
   planes of all tiles of a matrix lie one after the other, the lower ones before them in the opposite order: from where
   the upper ones begin (`planes` below) both can be found. Together they are as long as the tile. */
#define SPECDEC__PLANE_UPPER 352 /* bytes of a block */
#define SPECDEC__PLANE_LOWER 192
#define SPECDEC__PLANE_MIDDLE 4  /* what stands for l where only h is read */
#define SPECDEC__SCREEN_ROWS 40000 /* an output matrix of fewer rows is read whole */
#define SPECDEC__PLANE_PARTS 4   /* of a row's columns, of which each has a bound of its own */

/* Where the block of the lower plane lies to one of the upper plane. */
SPECDEC__INLINE const unsigned char *specdec__plane_lower(const unsigned char *planes, const unsigned char *upper)
{
    return planes - ((size_t)(upper - planes) / SPECDEC__PLANE_UPPER + 1) * SPECDEC__PLANE_LOWER;
}

/* Bit `bit` of 64 codes becomes bit `to` of the bytes of a line. */
SPECDEC__INLINE void specdec__plane_put_bits(const unsigned char *codes, int bit, int to, unsigned char *line)
{
    int i;

    for (i = 0; i < 64; i++)
        line[i] = (unsigned char)(line[i] | ((codes[i] ^ 0x80) >> bit & 1) << to);
}

/* Block b of a matrix, counted through all tiles, becomes part of its planes. */
SPECDEC__VECTORISE static SPECDEC__UNUSED void specdec__planes_split(const unsigned char *block, size_t b,
                                                                     unsigned char *planes)
{
    unsigned char *upper = planes + b * SPECDEC__PLANE_UPPER, *lower = planes - (b + 1) * SPECDEC__PLANE_LOWER, *line;
    int g, i, k;

    memcpy(upper, block, 32);
    memset(upper + 32, 0, SPECDEC__PLANE_UPPER - 32);
    memset(lower, 0, SPECDEC__PLANE_LOWER);
    for (g = 0, block += 32; g < 8; g++, block += 64) {
        line = upper + 32 + g / 2 * 64;
        for (i = 0; i < 64; i++)
            line[i] = (unsigned char)(line[i] | ((block[i] ^ 0x80) >> 4) << (g % 2 * 4));
        specdec__plane_put_bits(block, 3, g, upper + 288);
        for (k = 0; k < 3; k++)
            specdec__plane_put_bits(block, k, g, lower + k * 64);
    }
}

/* The root of x >= 0, at least, but for 1e-15 of it; 1e300 for what is no number. */
static SPECDEC__UNUSED double specdec__plane_root(double x)
{
    return !(x < 1e300) ? 1e300 : x > 1e-290 ? x * specdec__inverse_root(x) : 1e-145;
}

/* The least bfloat16 that is not below x, x >= 0; infinity for what is no number. */
static SPECDEC__UNUSED uint16_t specdec__plane_round_up(double x)
{
    float value;

    if (!(x < 1e38))
        return 0x7F80;
    value = (float)(x * 1.0001); /* more than rounding to float takes away */
    return (uint16_t)((specdec__bits_from_float(value) + 0xFFFFu) >> 16);
}

/* The bounds of a row of Q8_0 (blocks), by part of its columns (part: of each): see >>forward/screen. */
static SPECDEC__UNUSED void specdec__planes_bound(const unsigned char *row, int blocks, const unsigned char *part,
                                                  uint16_t *out)
{
    double lost[SPECDEC__PLANE_PARTS] = {0}, all = 0, rest = 0, rounding;
    int b, i;

    for (b = 0; b < blocks; b++, row += 34, part += 32) {
        const double d = (double)specdec__load_f16(row), square = d * d;

        for (i = 0; i < 32; i++) {
            const int code = (int8_t)row[2 + i], left = (code + 128) % 8 - SPECDEC__PLANE_MIDDLE;

            lost[part[i]] += square * (double)(left * left);
            all += square * (double)(code * code);
        }
    }
    for (i = 0; i < SPECDEC__PLANE_PARTS; i++)
        rest += lost[i];
    rounding = (double)(blocks + 8) * 4.8e-7 * (specdec__plane_root(all) + specdec__plane_root(rest));
    for (i = 0; i < SPECDEC__PLANE_PARTS; i++)
        out[i] = specdec__plane_round_up(specdec__plane_root(lost[i]) + rounding);
}

/* Which part of a row's bound its columns belong to: the heavier a column's weight, before which states are normed, the
   more of a state's energy lies there, and the smaller its part. norm NULL: columns are alike. */
static SPECDEC__UNUSED void specdec__planes_parts(const float *norm, int columns, unsigned char *part)
{
    int i, k, before;

    for (i = 0; i < columns; i++) {
        const float own = norm ? norm[i] * norm[i] : 0;

        for (k = 0, before = 0; norm && k < columns; k++)
            before += norm[k] * norm[k] > own || (k < i && !(norm[k] * norm[k] < own));
        before = norm ? before : i;
        part[i] = (unsigned char)((before >= columns / 32) + (before >= columns / 8) + (before >= columns / 8 * 3));
    }
}
