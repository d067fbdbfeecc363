/* =====================================================================================================================
 * >>quant/planes: tiles of Q8_0 split into two planes: the upper five bits of every code, which can be read alone, and
 *     the lower three bits; and bounds of how far the lower plane can move the product of a row.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/op.h"
#include "types.h"

/* A code c is 8 h + l - 128, with h (5 bits) and l (3 bits) unsigned. In a block of 32 columns of 16 rows, group g is
   columns 4 g to 4 g + 3 of all rows: 64 codes. The upper plane holds the scales (16 half floats), the upper four bits
   of h (four lines of 64 bytes: group 2 i in the low nibbles of line i, group 2 i + 1 in the high nibbles), and the
   lowest bit of h (one line: bit g of a byte belongs to group g). The lower plane holds three lines: bit g of line k is
   bit k of l of group g. The upper planes of all tiles of a matrix lie one after the other; the lower planes lie before
   them, in the opposite order. `planes` below is the address where the upper planes begin, from which both can be
   found. Together they are as long as the tiles. */
#define SPECDEC__PLANE_UPPER 352 /* bytes of a block in the upper plane */
#define SPECDEC__PLANE_LOWER 192 /* bytes of a block in the lower plane */
#define SPECDEC__PLANE_MIDDLE 4  /* stands for a code's lower three bits where only the upper plane is read */
#define SPECDEC__SCREEN_MIN_ROWS 100000 /* an output matrix with fewer rows is not split */
#define SPECDEC__PLANE_PARTS 4   /* parts of a row's columns; a row has a bound for each part */

/* The lower plane's block that belongs to a block of the upper plane. */
SPECDEC__INLINE const unsigned char *specdec__plane_find_lower_block(const unsigned char *planes,
                                                                     const unsigned char *upper)
{
    return planes - ((size_t)(upper - planes) / SPECDEC__PLANE_UPPER + 1) * SPECDEC__PLANE_LOWER;
}

/* Copies bit `bit` of each of 64 codes to bit `to` of the bytes of a line. */
SPECDEC__INLINE void specdec__plane_copy_bits(const unsigned char *codes, int bit, int to, unsigned char *line)
{
    int i;

    for (i = 0; i < 64; i++)
        line[i] = (unsigned char)(line[i] | ((codes[i] ^ 0x80) >> bit & 1) << to);
}

/* Splits block b of a matrix, counted through all tiles, into the two planes. */
SPECDEC__VECTORISE static SPECDEC__UNUSED void specdec__planes_split_block(const unsigned char *block, size_t b,
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
        specdec__plane_copy_bits(block, 3, g, upper + 288);
        for (k = 0; k < 3; k++)
            specdec__plane_copy_bits(block, k, g, lower + k * 64);
    }
}

/* An upper bound of the square root of x >= 0, but for a relative error of 1e-15; 1e300 for NaN and for x >= 1e300. */
static SPECDEC__UNUSED double specdec__plane_square_root(double x)
{
    return !(x < 1e300) ? 1e300 : x > 1e-290 ? x * specdec__inverse_square_root(x) : 1e-145;
}

/* An upper bound of x >= 0 as a bfloat16; infinity for NaN and for x >= 1e38. */
static SPECDEC__UNUSED uint16_t specdec__plane_round_up_to_bf16(double x)
{
    float value;

    if (!(x < 1e38))
        return 0x7F80;
    value = (float)(x * 1.0001); /* more than rounding to float takes away */
    return (uint16_t)((specdec__bits_from_float(value) + 0xFFFFu) >> 16);
}

/* The bounds of a row of Q8_0 (blocks), one for each part of its columns, out (SPECDEC__PLANE_PARTS): see
   >>forward/screen. part: the part of each column. */
static SPECDEC__UNUSED void specdec__planes_compute_row_bounds(const unsigned char *row, int blocks,
                                                               const unsigned char *part, uint16_t *out)
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
    rounding = (double)(blocks + 8) * 4.8e-7 * (specdec__plane_square_root(all) + specdec__plane_square_root(rest));
    for (i = 0; i < SPECDEC__PLANE_PARTS; i++)
        out[i] = specdec__plane_round_up_to_bf16(specdec__plane_square_root(lost[i]) + rounding);
}

/* Divides columns into parts by the weight of the norm before the matrix: the larger a column's weight, the more of a
   state's energy lies in it, and the smaller its part. norm NULL: columns are divided in order. */
static SPECDEC__UNUSED void specdec__planes_divide_columns(const float *norm, int columns, unsigned char *part)
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
