/* =====================================================================================================================
 * >>forward/screen: screening of a large output matrix: a step reads five of the eight bits of every code, and the
 *     other three only in rows whose logit can still be the largest. The chosen tokens are the same.
 *
 * A sampler that needs only the k largest logits need not know the others, only that they are smaller. So a step
 * multiplies by the upper plane of the matrix (>>quant/planes), with 4 for the lower bits, and computes an upper bound
 * of each logit. >>speculation/settle then reads the rows with the highest bounds from the file, whose products are the
 * exact logits, bit for bit, and then every other row whose bound reaches the k-th largest of these logits.
 *
 * The bound. A row has codes c and scales d (one for a block of 32), its weights are w = d c, the column is x. The
 * lower bits contribute e = d (c - c'), c' with 4 for the lower bits. Let p = w x, p' = (w - e) x, without rounding.
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

/* Returns the bytes of one plane of the output matrix. block: its bytes for a block of 32 columns and 16 rows. */
static SPECDEC__UNUSED int64_t specdec__screen_plane_bytes(const specdec__context *c, int block)
{
    return (int64_t)((c->output->rows + SPECDEC__ROWS - 1) / SPECDEC__ROWS) * (c->output->columns / 32) * block;
}

/* Returns what the running step computes for wanted rows: SPECDEC__SCREEN_LOGITS, ..._BOUNDS or ..._NOTHING. */
SPECDEC__INLINE int specdec__screen_output_of_step(const specdec__context *c)
{
    return c->screen.needed == SPECDEC__SCREEN_BOUNDS && !c->output->bounds ? SPECDEC__SCREEN_LOGITS : c->screen.needed;
}

/* Computes a thread's share of c->screen.norms (row_count, parts): the norms of parts of the columns that the output
   matrix is multiplied by. A norm becomes NaN where bounds could overflow, and so do the bounds. */
static void specdec__screen_compute_norms(const specdec__context *c, int thread)
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

                sums[output->bounds->part_of_column[b * 32 + i]] += value * value;
            }
            for (i = 0; i < SPECDEC__PLANE_PARTS; i++)
                squares[i] += (double)x->scale[at] * (double)x->scale[at] * (double)sums[i];
        }
        for (i = 0; i < SPECDEC__PLANE_PARTS; i++) {
            const double norm = specdec__plane_square_root(squares[i]) * 1.0001;

            most += norm * (double)output->bounds->largest[i];
            norms[i] = norm < 1e30 ? (float)norm : specdec__float_from_bits(0x7fc00000u);
        }
        if (!(most < 1e30))
            norms[0] = specdec__float_from_bits(0x7fc00000u);
    }
}

/* Turns upper bounds of products (count, a multiple of 16) into upper bounds of capped logits. Caps are computed with
   an error below cap * 7e-7, so that a cap's value can be smaller for a larger product: each bound is raised by more
   than twice that. All become NaN if one is NaN or too large, which a cap would hide. */
SPECDEC__VECTORISE static SPECDEC__UNUSED void specdec__screen_cap_bounds(const specdec__kernels *kernels, float cap,
                                                                          float *bounds, int count)
{
    const float more = kernels->all_finite(bounds, 1e8f, count) ? cap * 4e-6f : specdec__float_from_bits(0x7fc00000u);
    int i;

    kernels->soft_cap(bounds, cap, count);
    for (i = 0; i < count; i++)
        bounds[i] += more;
}

/* Turns the products of a tile with the upper plane, sums (count, 16), into upper bounds of the logits. */
SPECDEC__INLINE void specdec__screen_compute_bounds(const specdec__context *c, const specdec__matrix *matrix, int tile,
                                                    int column, int count, float *sums)
{
    const size_t stride = (size_t)(matrix->rows + SPECDEC__ROWS - 1) / SPECDEC__ROWS * SPECDEC__ROWS;
    const float factor = c->model->fact[SPECDEC__LOGIT_SCALE], cap = c->model->fact[SPECDEC__LOGIT_CAP];

    c->kernels->add_bounds(sums, count, matrix->bounds->norm + (size_t)tile * SPECDEC__ROWS, stride,
                           c->screen.norms + column * SPECDEC__PLANE_PARTS);
    if (factor != 1) /* positive: it keeps the order */
        c->kernels->scale(sums, factor, count * SPECDEC__ROWS);
    if (cap > 0)
        specdec__screen_cap_bounds(c->kernels, cap, sums, count * SPECDEC__ROWS);
}

/* Computes a thread's share of c->screen.largest, once all bounds are there. */
static void specdec__screen_find_largest(specdec__context *c, int thread)
{
    const int rows = c->output->rows, groups = specdec__screen_count_groups(c->output);
    const int threads = specdec__pool_active(c->pool);
    const int from = groups / threads * thread, end = thread == threads - 1 ? groups : from + groups / threads;
    const int whole = specdec__min_int(end, rows / SPECDEC__SCREEN_GROUP); /* groups before it have 64 rows */
    int column, i;

    for (column = 0; column < c->columns.n; column++) {
        float *row = c->logits + (size_t)column * (size_t)rows;
        float *largest = c->screen.largest + (size_t)column * (size_t)groups;

        if (!c->kernels->find_largest(row + from * SPECDEC__SCREEN_GROUP, whole - from, largest + from))
            SPECDEC__STORE(&c->screen.too_large, 1);
        for (i = whole * SPECDEC__SCREEN_GROUP; end == groups && i < rows; i++) {
            if (!(row[i] > -1e30f && row[i] < 1e30f))
                SPECDEC__STORE(&c->screen.too_large, 1);
            largest[whole] = i % SPECDEC__SCREEN_GROUP && largest[whole] > row[i] ? largest[whole] : row[i];
        }
    }
}

/* Computes the exact logits of the tokens items[count] for one row of the last step, which has computed bounds only. */
static SPECDEC__UNUSED void specdec__screen_read_rows(specdec__context *c, int column, specdec_candidate *items,
                                                      int count)
{
    const specdec__matrix *output = c->output;
    const float cap = c->model->fact[SPECDEC__LOGIT_CAP];
    const unsigned char *rows[SPECDEC__ROWS];
    float logits[SPECDEC__ROWS];
    int from, i;

    for (from = 0; from < count; from += SPECDEC__ROWS) {
        const int few = specdec__min_int(SPECDEC__ROWS, count - from);

        for (i = 0; i < SPECDEC__ROWS; i++)
            rows[i] = output->file + (size_t)items[from + (i < few ? i : 0)].token * output->row_bytes;
        c->kernels->multiply_file_rows(rows, output->columns / 32, &c->columns, column, logits);
        c->kernels->scale(logits, c->model->fact[SPECDEC__LOGIT_SCALE], SPECDEC__ROWS);
        if (cap > 0)
            c->kernels->soft_cap(logits, cap, SPECDEC__ROWS);
        for (i = 0; i < few; i++)
            items[from + i].logit = logits[i];
    }
    c->screen.rows_read += (uint64_t)count;
    c->screen.saved -= (int64_t)count * (int64_t)output->row_bytes;
}
