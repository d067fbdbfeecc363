/* =====================================================================================================================
 * >>forward/streams: several residual streams (AltUp), LAuReL, and sparse gates, all of Gemma 3n: see specdec__streams.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/op.h"
#include "../base/pool.h"
#include "../kernel/kernel.h"
#include "../model/model.h"
#include "context.h"
#include "rows.h"

/* Returns row i of residual stream s; stream 0 is c->x. */
static float *specdec__forward_stream_row(const specdec__context *c, int s, int i)
{
    float *stream = s ? c->streams + (size_t)(s - 1) * (size_t)c->max_nodes * (size_t)c->e : c->x;

    return stream + (size_t)i * (size_t)c->e;
}

/* Computes the sum of x (n, a multiple of 16) and the sum of its squares, in double. Canonical: 8 strided sums each. */
static void specdec__forward_sum_squares(const float *x, int n, double *sum, double *squares)
{
    double sums[8] = {0, 0, 0, 0, 0, 0, 0, 0}, of_squares[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    int i, k;

    for (i = 0; i < n; i += 8)
        for (k = 0; k < 8; k++) {
            const double value = (double)x[i + k];

            sums[k] += value;
            of_squares[k] += value * value;
        }
    for (*sum = *squares = 0, k = 0; k < 8; k++) {
        *sum += sums[k];
        *squares += of_squares[k];
    }
}

/* Scales row i of stream s so that its sum of squares becomes `squares`. */
static void specdec__forward_scale_stream_row(const specdec__context *c, int s, int i, double squares)
{
    const int width = c->model->embedding;
    double sum, own;
    float *row = specdec__forward_stream_row(c, s, i);

    specdec__forward_sum_squares(row, width, &sum, &own);
    own = own > 1e-5 * width ? own : 1e-5 * width; /* a lower limit, as in the authors' code */
    if (squares > 0)
        c->kernels->scale(row, (float)(specdec__product(squares, specdec__inverse_square_root(squares)) *
                                       specdec__inverse_square_root(own)), width);
    else
        memset(row, 0, (size_t)width * sizeof *row);
}

/* Scales a thread's rows of all streams but x so that each row is as long as that of x; then, with `end`, x becomes the
   mean of all streams. */
static void specdec__forward_equalise_streams(specdec__context *c, int thread, int end)
{
    const int count = c->model->streams.count;
    double sum, squares;
    int i, s;

    for (i = thread; i < c->n; i += specdec__pool_active(c->pool)) {
        float *x = specdec__forward_stream_row(c, 0, i);

        specdec__forward_sum_squares(x, c->model->embedding, &sum, &squares);
        for (s = 1; s < count; s++)
            specdec__forward_scale_stream_row(c, s, i, squares);
        for (s = 1; end && s < count; s++)
            c->kernels->add_scaled(x, 1, specdec__forward_stream_row(c, s, i), c->model->embedding);
        if (end)
            c->kernels->scale(x, 1 / (float)count, c->model->embedding);
    }
}

/* Computes the coefficients of row i: out (rows) = weights (rows, streams) * tanh(output of the streams' router /
   embedding). */
static void specdec__forward_stream_coefficients(const specdec__context *c, int i, const float *weights, int rows,
                                                 float *out)
{
    const int count = c->model->streams.count;
    float modes[16] = {0};
    int r, k;

    memcpy(modes, c->stream_router + (size_t)i * 16, (size_t)count * sizeof *modes);
    c->kernels->scale(modes, 1 / (float)c->model->embedding, 16);
    c->kernels->soft_cap(modes, 1, 16);
    for (r = 0; r < rows; r++)
        for (out[r] = 0, k = 0; k < count; k++)
            out[r] = specdec__fma(weights[r * count + k], modes[k], out[r]);
}

#define SPECDEC__STREAM_PIECE 64 /* columns of all streams that are updated at a time */

/* Computes a layer's prediction of all streams, a thread's part: to each stream a weighted sum of all streams is added.
   Also copies the new x to c->predicted. */
static void specdec__forward_predict_streams(specdec__context *c, int thread, const specdec__layer *layer)
{
    const specdec__row_part part = specdec__forward_thread_rows(c, thread, c->n, c->e);
    const int count = c->model->streams.count, to = part.end_block * 32;
    float weight[SPECDEC__MAX_STREAMS * SPECDEC__MAX_STREAMS], old[SPECDEC__MAX_STREAMS][SPECDEC__STREAM_PIECE];
    int i, at, s, k, n;

    for (i = part.first_row; i < part.end_row; i++) {
        specdec__forward_stream_coefficients(c, i, layer->vector[SPECDEC__PREDICTIONS], count * count, weight);
        for (at = part.first_block * 32; at < to; at += n) {
            n = specdec__min_int(to - at, SPECDEC__STREAM_PIECE);
            for (s = 0; s < count; s++)
                memcpy(old[s], specdec__forward_stream_row(c, s, i) + at, (size_t)n * sizeof(float));
            for (s = 0; s < count; s++)
                for (k = 0; k < count; k++)
                    c->kernels->add_scaled(specdec__forward_stream_row(c, s, i) + at, weight[s * count + k], old[k], n);
            memcpy(c->predicted + (size_t)i * (size_t)c->e + at, specdec__forward_stream_row(c, 0, i) + at,
                   (size_t)n * sizeof(float));
        }
    }
}

/* Corrects all streams behind a layer, a thread's part: each becomes its prediction plus a coefficient times the
   difference of x and its prediction. Then h = x times the weights altup_correct_scale, which the layer's own
   embeddings are gated by. */
static void specdec__forward_correct_streams(specdec__context *c, int thread, const specdec__layer *layer)
{
    const specdec__row_part part = specdec__forward_thread_rows(c, thread, c->n, c->e);
    const int count = c->model->streams.count, to = part.end_block * 32;
    float weight[SPECDEC__MAX_STREAMS], grown[SPECDEC__STREAM_PIECE];
    int i, at, s, n;

    for (i = part.first_row; i < part.end_row; i++) {
        const float *predicted = c->predicted + (size_t)i * (size_t)c->e;
        const float *x = specdec__forward_stream_row(c, 0, i) + part.first_block * 32;

        specdec__forward_stream_coefficients(c, i, layer->vector[SPECDEC__CORRECTIONS], count, weight);
        for (at = part.first_block * 32; at < to; at += n) {
            n = specdec__min_int(to - at, SPECDEC__STREAM_PIECE);
            memcpy(grown, specdec__forward_stream_row(c, 0, i) + at, (size_t)n * sizeof *grown);
            c->kernels->add_scaled(grown, -1, predicted + at, n);
            memcpy(specdec__forward_stream_row(c, 0, i) + at, predicted + at, (size_t)n * sizeof *grown);
            for (s = 0; s < count; s++)
                c->kernels->add_scaled(specdec__forward_stream_row(c, s, i) + at, 1 + weight[s], grown, n);
        }
        c->kernels->convolve(&x, layer->vector[SPECDEC__INPUT_SCALE] + part.first_block * 32, 0, 1, NULL, 0,
                             to - part.first_block * 32, c->h + (size_t)i * (size_t)c->e + part.first_block * 32);
    }
}

/* Computes a thread's part of x = (x + h + norm(y)) / sqrt(2), where h is the input of LAuReL and y its output. */
static void specdec__forward_add_laurel(specdec__context *c, int thread, const specdec__layer *layer)
{
    const specdec__row_part part = specdec__forward_thread_rows(c, thread, c->n, c->e);
    const int at = part.first_block * 32, count = part.end_block * 32 - at;
    int i;

    for (i = part.first_row; i < part.end_row; i++) {
        const size_t row = (size_t)i * (size_t)c->e;
        float *x = c->x + row + at, *h = c->h + row;

        c->kernels->add_scaled(x, 1, h + at, count);
        specdec__forward_norm_function(c)(c->y + row, layer->vector[SPECDEC__LAUREL_NORM], c->model->epsilon,
                                          c->e - SPECDEC__ROW_PADDING, at, part.end_block * 32, h);
        c->kernels->add_scaled(x, 1, h + at, count);
        c->kernels->scale(x, 0.707106769f, count);
        specdec__forward_check_row_is_finite(c, thread, i, x, count, SPECDEC__FINITE_FACTOR);
    }
}

/* Makes a thread's rows of gates (n, stride) sparse: each of their `width` values becomes its excess over mean +
   sparsity * standard deviation of the row, or 0 if it is smaller. */
static void specdec__forward_sparsify_gates(const specdec__context *c, int thread, float sparsity, float *gates,
                                            int width, int stride)
{
    double sum, squares, variance;
    float least;
    int i, j;

    for (i = thread; i < c->n; i += specdec__pool_active(c->pool)) {
        float *row = gates + (size_t)i * (size_t)stride;

        specdec__forward_sum_squares(row, width, &sum, &squares);
        sum /= width;
        variance = squares / width - specdec__product(sum, sum);
        variance = variance > 1e-300 ? specdec__product(variance, specdec__inverse_square_root(variance)) : 0;
        least = (float)(sum + specdec__product((double)sparsity, variance));
        for (j = 0; j < width; j++)
            row[j] = row[j] > least ? row[j] - least : 0;
    }
}
