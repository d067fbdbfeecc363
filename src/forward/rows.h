/* =====================================================================================================================
 * >>forward/rows: norms, residuals and quantising of activations, by ranges of columns.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/pool.h"
#include "../kernel/kernel.h"
#include "../model/model.h"
#include "context.h"

/* A thread's part of n rows of floats: whole rows, or blocks of 32 of each if they are few. */
typedef struct specdec__part {
    int first, last; /* rows */
    int from, to;    /* blocks of each */
} specdec__part;

static specdec__part specdec__forward_part(const specdec__context *c, int thread, int n, int stride)
{
    const int threads = specdec__pool_active(c->pool), blocks = (stride - SPECDEC__APART) / 32,
              whole = n >= 16 * threads;
    specdec__part part;

    part.first = whole ? n * thread / threads : 0;
    part.last = whole ? n * (thread + 1) / threads : n;
    part.from = whole ? 0 : blocks * thread / threads;
    part.to = whole ? blocks : blocks * (thread + 1) / threads;
    return part;
}

/* What the next matrices read: rows of values (n, stride), which are made first from something else if `from` or `up`
   is set. */
typedef struct specdec__input {
    float *values;
    int n, stride;
    const float *from; /* values = row rows[i] (or i) of these, */
    const float *norm; /* or its norm with this weight */
    const int *rows;
    const float *up;   /* (n, stride): values = activation(values) * up */
} specdec__input;

/* Quantises an input into c->columns. */
static void specdec__forward_quantise(specdec__context *c, int thread, const specdec__input *in)
{
    const specdec__model *m = c->model;
    const specdec__part part = specdec__forward_part(c, thread, in->n, in->stride);
    const int at = part.from * 32, width = in->stride - SPECDEC__APART;
    specdec__columns columns; /* a copy but for what thread 0 is going to write */
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
    for (i = part.first; i < part.last; i++) {
        float *row = in->values + (size_t)i * (size_t)in->stride;
        const float *from = in->from ? in->from + (size_t)(in->rows ? in->rows[i] : i) * (size_t)in->stride : NULL;

        if (from && in->norm)
            c->kernels->norm(from, in->norm, m->epsilon, width, at, part.to * 32, row);
        else if (from)
            memcpy(row + at, from + at, (size_t)(part.to * 32 - at) * sizeof *row);
        if (in->up)
            c->kernels->activate[m->architecture->activation](row + at, in->up + (size_t)i * (size_t)in->stride + at,
                                                              part.to * 32 - at);
        c->kernels->quantise(row, part.from, part.to, i, &columns);
    }
    if (thread == 0) {
        c->columns.n = in->n;
        c->columns.stride = in->stride;
        c->columns.values = in->values;
    }
}

/* x += scale * y, or scale times the norm of y; h is free for that. */
static void specdec__forward_grow(specdec__context *c, int thread, const float *norm)
{
    const specdec__part part = specdec__forward_part(c, thread, c->n, c->e);
    const int at = part.from * 32, count = part.to * 32 - at;
    int i;

    for (i = part.first; i < part.last; i++) {
        float *y = c->y + (size_t)i * (size_t)c->e, *h = c->h + (size_t)i * (size_t)c->e;

        if (norm)
            c->kernels->norm(y, norm, c->model->epsilon, c->e - SPECDEC__APART, at, part.to * 32, h);
        c->kernels->add_scaled(c->x + (size_t)i * (size_t)c->e + at, c->model->fact[SPECDEC__RESIDUAL_SCALE],
                               (norm ? h : y) + at, count);
    }
}

/* Scales and caps logits, 16 at a time: there is room behind the last. */
static void specdec__forward_finish(const specdec__context *c, int thread)
{
    const size_t parts = ((size_t)c->row_count * (size_t)c->output->rows + 15) / 16,
                 threads = (size_t)specdec__pool_active(c->pool);
    const size_t to = parts * ((size_t)thread + 1) / threads * 16;
    size_t at = parts * (size_t)thread / threads * 16;
    int count;

    for (; at < to; at += (size_t)count) {
        count = (int)(to - at < 4096 ? to - at : 4096);
        c->kernels->scale(c->logits + at, 1 / c->model->fact[SPECDEC__LOGIT_DIVISOR], count);
        if (c->model->fact[SPECDEC__LOGIT_CAP] > 0)
            c->kernels->cap(c->logits + at, c->model->fact[SPECDEC__LOGIT_CAP], count);
    }
}
