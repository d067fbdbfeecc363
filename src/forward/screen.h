/* =====================================================================================================================
 * >>forward/screen: a large output matrix of which a step reads five bits of every code, and the other three only of
 *     rows that can still win: the text keeps its bits.
 *
 * Whoever wants the largest logit, or the k largest, need not know the others, only that they are smaller. So a step
 * multiplies with the upper plane of the matrix (>>quant/planes), the lower bits being taken as 4, and each row gets an
 * upper bound of its logit. >>speculation/settle then looks at the rows with the highest bounds as they lie in the
 * file, and at every other one whose bound reaches what it has found there. That is the logit, bit for bit.
 *
 * The bound. A row has codes c and scales d (a block of 32 each), its weights are w = d c, the column is x, and what
 * the lower bits add is e = d (c - c'), c' with 4 for the lower bits. Let p = w x, p' = (w - e) x, without rounding.
 *   (1) p - p' = e x = the sum over parts of the columns e_i x_i <= the sum of |e_i| |x_i|      (Cauchy and Schwarz)
 *   (2) Integer sums of a block are exact, and below 2^24. The product of scales is rounded once, and each of B blocks
 *       adds with one rounding, so a computed p is off by at most (B + 1) u (1 + u)^B times the sum over blocks of
 *       |products|, u = 2^-24; that is at most |w| |x|, by Cauchy and Schwarz. p' likewise, of (|w| + |e|) |x|.
 *   (3) The bound itself, p' + the sum of |x_i| r_i, is rounded P + 1 times, P = 4 parts, of values below those.
 * Hence with r_i = |e_i| + 8 (B + 8) u (|w| + |e|), rounded up to bfloat16, and |x_i| rounded up by one in 10,000, the
 * computed bound is at least the computed p: the factor 8 is more than thrice what (2) and (3) add up to. Scales that
 * vanish (below 2^-149) cost less than 1e-30, which is added. Where |p'| or a bound may exceed 1e30, all is read.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/pool.h"
#include "../quant/planes.h"
#include "../kernel/kernel.h"
#include "../model/model.h"
#include "context.h"

/* Bytes of one of the planes of the output matrix, by its bytes of a block of 16 rows. */
static SPECDEC__UNUSED int64_t specdec__screen_bytes(const specdec__context *c, int block)
{
    return (int64_t)((c->output->rows + SPECDEC__ROWS - 1) / SPECDEC__ROWS) * (c->output->columns / 32) * block;
}

/* What the step under way makes of rows of logits. */
SPECDEC__INLINE int specdec__screen_makes(const specdec__context *c)
{
    return c->screen.asked == SPECDEC__SCREEN_BOUNDS && !c->output->bounds ? SPECDEC__SCREEN_LOGITS : c->screen.asked;
}

/* norms (row_count, parts) of the columns that the output matrix is multiplied with, a thread's share. Where bounds
   could overflow they become no numbers, and so do the bounds. */
static void specdec__screen_norms(const specdec__context *c, int thread)
{
    const specdec__columns *x = &c->columns;
    const specdec__matrix *output = c->output;
    int column, b, i;

    for (column = thread; column < x->n; column += specdec__pool_active(c->pool)) {
        float *norms = c->screen.norms + column * SPECDEC__PLANE_PARTS;
        double squares[SPECDEC__PLANE_PARTS] = {0}, most = 0;

        for (b = 0; b < output->columns / 32; b++) {
            const size_t at = (size_t)b * (size_t)x->n + (size_t)column;
            const int offset = (int16_t)(x->pair32[at] & 0xFFFF);
            int sums[SPECDEC__PLANE_PARTS] = {0};

            for (i = 0; i < 32; i++) {
                const int value = x->codes[at * 32 + (size_t)i] + offset;

                sums[output->bounds->part[b * 32 + i]] += value * value;
            }
            for (i = 0; i < SPECDEC__PLANE_PARTS; i++)
                squares[i] += (double)x->scale[at] * (double)x->scale[at] * (double)sums[i];
        }
        for (i = 0; i < SPECDEC__PLANE_PARTS; i++) {
            const double norm = specdec__plane_square_root(squares[i]) * 1.0001;

            most += norm * (double)output->bounds->most[i];
            norms[i] = norm < 1e30 ? (float)norm : specdec__float_from_bits(0x7fc00000u);
        }
        if (!(most < 1e30))
            norms[0] = specdec__float_from_bits(0x7fc00000u);
    }
}

/* Products with the upper plane, sums (count, 16) of a tile, become bounds. */
SPECDEC__INLINE void specdec__screen_widen(const specdec__context *c, const specdec__matrix *matrix, int tile,
                                           int column, int count, float *sums)
{
    const size_t stride = (size_t)(matrix->rows + SPECDEC__ROWS - 1) / SPECDEC__ROWS * SPECDEC__ROWS;

    c->kernels->add_bounds(sums, count, matrix->bounds->norm + (size_t)tile * SPECDEC__ROWS, stride,
                           c->screen.norms + column * SPECDEC__PLANE_PARTS);
}

/* The logits of items[count] of a row of the last step, which made bounds. */
static SPECDEC__UNUSED void specdec__screen_read(specdec__context *c, int column, specdec_candidate *items, int count)
{
    const specdec__matrix *output = c->output;
    const unsigned char *rows[SPECDEC__ROWS];
    float logits[SPECDEC__ROWS];
    int from, i;

    for (from = 0; from < count; from += SPECDEC__ROWS) {
        const int few = specdec__min_int(SPECDEC__ROWS, count - from);

        for (i = 0; i < SPECDEC__ROWS; i++)
            rows[i] = output->file + (size_t)items[from + (i < few ? i : 0)].token * output->row_bytes;
        c->kernels->multiply_file_rows(rows, output->columns / 32, &c->columns, column, logits);
        c->kernels->scale(logits, c->model->fact[SPECDEC__LOGIT_SCALE], SPECDEC__ROWS);
        for (i = 0; i < few; i++)
            items[from + i].logit = logits[i];
    }
    c->screen.read += (uint64_t)count;
    c->screen.saved -= (int64_t)count * (int64_t)output->row_bytes;
}
