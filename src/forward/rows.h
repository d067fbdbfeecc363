/* =====================================================================================================================
 * >>forward/rows: norms, residual additions, quantisation of activations, and checks that values are finite; threads
 *     share rows or ranges of columns.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/pool.h"
#include "../kernel/kernel.h"
#include "../model/model.h"
#include "context.h"

/* Records in c->first_unsound that a row has a value that is not finite or, with `oversized`, one that the cache cannot
   hold. Threads that record the same row do so for the same half of a layer. */
static SPECDEC__NOINLINE void specdec__forward_record_unsound(specdec__context *c, int thread, int row, int oversized)
{
    const int half = c->scratch[thread].current_half + 2;

    if (!SPECDEC__LOAD(&c->first_unsound[row]))
        SPECDEC__STORE(&c->first_unsound[row], oversized ? -half : half);
    SPECDEC__STORE(&c->any_unsound, 1);
}

/* Records a row of the step in c->first_unsound if one of the values x (count), times `factor`, is not finite. */
SPECDEC__INLINE void specdec__forward_check_row_is_finite(specdec__context *c, int thread, int row, const float *x,
                                                          int count, float factor)
{
    if (c->checks_values && !c->kernels->all_finite(x, factor, count))
        specdec__forward_record_unsound(c, thread, row, 0);
}

#define SPECDEC__NO_HALF (1 << 30)   /* stands for "no half had a wrong value": above the number of any half */

SPECDEC__FOR_SIZE
/* Checks rows [row, end) of the last step: OK if all values were finite and fit the cache; else the error names the
   first layer and half where they were not. Errors: UNSUPPORTED (too large for the cache), FORMAT (not finite). */
static specdec_result specdec__forward_check_step(const specdec__context *c, int row, int end, specdec_error *error)
{
    const specdec__model *m = c->model;
    int half = SPECDEC__NO_HALF, oversized = 0;

    for (; c->any_unsound && row < end; row++) {
        const int own = (c->first_unsound[row] < 0 ? -c->first_unsound[row] : c->first_unsound[row]) - 2;

        if (own > -2 && own < half) {
            half = own;
            oversized = c->first_unsound[row] < 0;
        }
    }
    if (half == SPECDEC__NO_HALF)
        return SPECDEC_OK;
    if (oversized)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                             "keys or values of layer %d are too large for a cache in %s: config.kv = \"f32\" has room",
                             m->first_layer + half / 2, specdec__kv_types[c->kv.type].name);
    if (half < 0 || half >= 2 * m->layers)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s are no numbers: the model is broken",
                             half < 0 ? "embeddings" : "logits");
    return specdec__fail(error, SPECDEC_ERROR_FORMAT, "values are no numbers from layer %d on, %s: the model is broken",
                         m->first_layer + half / 2, half % 2 ? "its feed-forward network" : "its attention");
}
SPECDEC__FOR_SPEED

/* A thread's part of a matrix of n rows: whole rows if there are many, else some blocks of 32 columns of every row. */
typedef struct specdec__row_part {
    int first_row, end_row;     /* rows [first_row, end_row) */
    int first_block, end_block; /* blocks of 32 columns [first_block, end_block) */
} specdec__row_part;

/* Returns a thread's part of n rows, `stride` floats apart. */
static specdec__row_part specdec__forward_thread_rows(const specdec__context *c, int thread, int n, int stride)
{
    const int threads = specdec__pool_active(c->pool), blocks = (stride - SPECDEC__ROW_PADDING) / 32,
              whole = n >= 16 * threads;
    specdec__row_part part;

    part.first_row = whole ? n * thread / threads : 0;
    part.end_row = whole ? n * (thread + 1) / threads : n;
    part.first_block = whole ? 0 : blocks * thread / threads;
    part.end_block = whole ? blocks : blocks * (thread + 1) / threads;
    return part;
}

/* Rows that the next matrices read, and how they are computed before they are quantised. */
typedef struct specdec__matrix_input {
    float *values;     /* (n, stride) the input of the matrices */
    int n, stride;     /* rows, and floats between them */
    const float *source;    /* rows that `values` is computed from; NULL: it is given */
    const float *norm;      /* weights of the norm that rows of `source` get; NULL: none */
    const int *source_rows; /* (n) row of the step that each row of values belongs to; NULL: row i */
    const float *up;   /* (n, up_stride): values = activation(values) * up */
    int up_stride;     /* floats between rows of `up` */
    int ungated;       /* 1: values = activation(values) * values, or with `xielu` that of these parameters: networks
                          without `up` */
    const float *xielu; /* (4) parameters of xIELU; NULL: another activation */
} specdec__matrix_input;

/* Computes a thread's part of an input's values and quantises it into c->columns. */
static void specdec__forward_quantise(specdec__context *c, int thread, const specdec__matrix_input *in)
{
    const specdec__model *m = c->model;
    const specdec__row_part part = specdec__forward_thread_rows(c, thread, in->n, in->stride);
    const int at = part.first_block * 32, width = in->stride - SPECDEC__ROW_PADDING;
    specdec__columns columns; /* c->columns, before thread 0 sets n, stride and values */
    int i;

    columns.codes = c->columns.codes;
    columns.scale = c->columns.scale;
    columns.pair32 = c->columns.pair32;
    columns.pair16 = c->columns.pair16;
    columns.sum32 = c->columns.sum32;
    columns.sum16 = c->columns.sum16;
    columns.n = in->n;
    columns.stride = in->stride;
    columns.values = in->values;
    for (i = part.first_row; i < part.end_row; i++) {
        float *row = in->values + (size_t)i * (size_t)in->stride;
        const int source_row = in->source_rows ? in->source_rows[i] : i;
        const float *from = in->source ? in->source + (size_t)source_row * (size_t)in->stride : NULL;

        if (from && in->norm)
            specdec__forward_norm_function(c)(from, in->norm, m->epsilon, width, at, part.end_block * 32, row);
        else if (from)
            memcpy(row + at, from + at, (size_t)(part.end_block * 32 - at) * sizeof *row);
        if (in->up || in->ungated)
            c->kernels->activate[m->trait[SPECDEC__ACTIVATION]](
                row + at, in->up      ? in->up + (size_t)i * (size_t)in->up_stride + at
                          : in->xielu ? in->xielu
                                      : row + at, part.end_block * 32 - at);
        if (in->up || in->ungated) /* other inputs were checked where they were computed */
            specdec__forward_check_row_is_finite(c, thread, in->source_rows ? in->source_rows[i] : i, row + at,
                                                 part.end_block * 32 - at, 1);
        c->kernels->quantise(row, part.first_block, part.end_block, i, &columns);
    }
    if (thread == 0) {
        c->columns.n = in->n;
        c->columns.stride = in->stride;
        c->columns.values = in->values;
    }
}

/* Computes a thread's part of to (n, e) = from + residual scale * y, where y is c->y or, with `norm`, its norm with
   these weights; c->h is overwritten then. */
static void specdec__forward_add_residual(specdec__context *c, int thread, const float *norm, const float *from,
                                          float *to)
{
    const specdec__row_part part = specdec__forward_thread_rows(c, thread, c->n, c->e);
    const int at = part.first_block * 32, count = part.end_block * 32 - at;
    int i;

    for (i = part.first_row; i < part.end_row; i++) {
        float *y = c->y + (size_t)i * (size_t)c->e, *h = c->h + (size_t)i * (size_t)c->e;
        float *x = to + (size_t)i * (size_t)c->e + at;

        if (norm)
            specdec__forward_norm_function(c)(y, norm, c->model->epsilon, c->e - SPECDEC__ROW_PADDING, at,
                                              part.end_block * 32, h);
        if (from != to)
            memcpy(x, from + (size_t)i * (size_t)c->e + at, (size_t)count * sizeof *x);
        c->kernels->add_scaled(x, c->model->fact[SPECDEC__RESIDUAL_SCALE], (norm ? h : y) + at, count);
        specdec__forward_check_row_is_finite(c, thread, i, x, count, SPECDEC__FINITE_FACTOR);
    }
}

/* Multiplies a thread's part of c->x by a factor. */
static void specdec__forward_scale_x(specdec__context *c, int thread, float factor)
{
    const specdec__row_part part = specdec__forward_thread_rows(c, thread, c->n, c->e);
    int i;

    for (i = part.first_row; i < part.end_row; i++)
        c->kernels->scale(c->x + (size_t)i * (size_t)c->e + part.first_block * 32, factor,
                          (part.end_block - part.first_block) * 32);
}

/* Adds c->y or its norm, the output of a half of a layer, to the residual stream c->x. norm: weights; NULL: no norm.
   last: 0: the half is attention, 1: the feed-forward network. Where both halves read the same x (c->x_plus_attention),
   the sum of the first half goes to c->x_plus_attention, and that of the second to c->x. */
static void specdec__forward_add_half_output(specdec__context *c, int thread, const float *norm, int last)
{
    float *other = c->x_plus_attention ? c->x_plus_attention : c->x;

    specdec__forward_add_residual(c, thread, norm, last ? other : c->x, last ? c->x : other);
}

/* Records in c->first_unsound the rows that have a logit in [at, at + count) of c->logits which is not finite. */
static void specdec__forward_check_logits(specdec__context *c, int thread, size_t at, int count)
{
    const float *logits = c->logits + at;
    int i;

    if (!c->checks_values || c->kernels->all_finite(logits, 1, count))
        return;
    for (i = 0; i < count; i++)
        if (!(logits[i] - logits[i] == 0))
            specdec__forward_record_unsound(c, thread, c->rows[(at + (size_t)i) / (size_t)c->output->rows], 0);
}

/* Checks, scales and caps a thread's part of the logits, 16 at a time; there is memory for 15 behind the last. */
static void specdec__forward_check_and_cap_logits(specdec__context *c, int thread)
{
    const float factor = c->model->fact[SPECDEC__LOGIT_SCALE], cap = c->model->fact[SPECDEC__LOGIT_CAP];
    const size_t all = (size_t)c->row_count * (size_t)c->output->rows;
    const size_t parts = (all + 15) / 16, threads = (size_t)specdec__pool_active(c->pool);
    const size_t to = parts * ((size_t)thread + 1) / threads * 16;
    size_t at = parts * (size_t)thread / threads * 16, i;
    int count;

    for (i = all; i < to; i++)
        c->logits[i] = 0; /* padding: must pass the check */
    for (; at < to; at += (size_t)count) {
        count = (int)(to - at < 4096 ? to - at : 4096);
        specdec__forward_check_logits(c, thread, at, count);
        if (factor != 1 || cap > 0)
            c->kernels->scale(c->logits + at, factor, count);
        if (cap > 0)
            c->kernels->soft_cap(c->logits + at, cap, count);
    }
}
