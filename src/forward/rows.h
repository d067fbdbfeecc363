/* =====================================================================================================================
 * >>forward/rows: norms, residuals and quantising of activations, by ranges of columns.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/pool.h"
#include "../kernel/kernel.h"
#include "../model/model.h"
#include "context.h"

/* Notes that a row has a value that is no number, or one that the cache cannot hold. Threads that note the same row do
   so for the same half of a layer. */
static SPECDEC__NOINLINE void specdec__forward_note(specdec__context *c, int thread, int row, int oversized)
{
    const int half = c->scratch[thread].half + 2;

    if (!SPECDEC__LOAD(&c->wrong[row]))
        SPECDEC__STORE(&c->wrong[row], oversized ? -half : half);
    SPECDEC__STORE(&c->unsound, 1);
}

/* Notes a row some values of which are no numbers, times `factor`. */
SPECDEC__INLINE void specdec__forward_check(specdec__context *c, int thread, int row, const float *x, int count,
                                            float factor)
{
    if (c->checks && !c->kernels->all_finite(x, factor, count))
        specdec__forward_note(c, thread, row, 0);
}

#define SPECDEC__ALL_SOUND (1 << 30) /* more than any half */

SPECDEC__FOR_SIZE
/* Says where values of rows [row, end) of the last step first were no numbers, or did not fit the cache. */
static specdec_result specdec__forward_sound(const specdec__context *c, int row, int end, specdec_error *error)
{
    const specdec__model *m = c->model;
    int half = SPECDEC__ALL_SOUND, oversized = 0;

    for (; c->unsound && row < end; row++) {
        const int own = (c->wrong[row] < 0 ? -c->wrong[row] : c->wrong[row]) - 2;

        if (own > -2 && own < half) {
            half = own;
            oversized = c->wrong[row] < 0;
        }
    }
    if (half == SPECDEC__ALL_SOUND)
        return SPECDEC_OK;
    if (oversized)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                             "keys or values of layer %d are too large for a cache in %s: config.kv = \"f32\" has room",
                             m->first + half / 2, specdec__kv_types[c->kv.type].name);
    if (half < 0 || half >= 2 * m->layers)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s are no numbers: the model is broken",
                             half < 0 ? "embeddings" : "logits");
    return specdec__fail(error, SPECDEC_ERROR_FORMAT, "values are no numbers from layer %d on, %s: the model is broken",
                         m->first + half / 2, half % 2 ? "its feed-forward network" : "its attention");
}
SPECDEC__FOR_SPEED

/* A thread's part of n rows of floats: whole rows, or blocks of 32 of each if they are few. */
typedef struct specdec__part {
    int first, last; /* rows */
    int from, to;    /* blocks of each */
} specdec__part;

static specdec__part specdec__forward_thread_part(const specdec__context *c, int thread, int n, int stride)
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
    const int *rows;   /* whose a row of values is; NULL: row i is that of row i */
    const float *up;   /* (n, up_stride): values = activation(values) * up */
    int up_stride;
    int alone;         /* values = activation(values) * values, or, with `shape`, the activation of that shape */
    const float *shape;
} specdec__input;

/* Quantises an input into c->columns. */
static void specdec__forward_quantise(specdec__context *c, int thread, const specdec__input *in)
{
    const specdec__model *m = c->model;
    const specdec__part part = specdec__forward_thread_part(c, thread, in->n, in->stride);
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
            specdec__forward_norm(c)(from, in->norm, m->epsilon, width, at, part.to * 32, row);
        else if (from)
            memcpy(row + at, from + at, (size_t)(part.to * 32 - at) * sizeof *row);
        if (in->up || in->alone)
            c->kernels->activate[m->trait[SPECDEC__ACTIVATION]](
                row + at, in->up      ? in->up + (size_t)i * (size_t)in->up_stride + at
                          : in->shape ? in->shape
                                      : row + at, part.to * 32 - at);
        if (in->up || in->alone) /* the others were checked where they come from */
            specdec__forward_check(c, thread, in->rows ? in->rows[i] : i, row + at, part.to * 32 - at, 1);
        c->kernels->quantise(row, part.from, part.to, i, &columns);
    }
    if (thread == 0) {
        c->columns.n = in->n;
        c->columns.stride = in->stride;
        c->columns.values = in->values;
    }
}

/* Rows of `to` become those of `from`, plus scale * y, or plus scale times the norm of y; h is free for that. */
static void specdec__forward_add(specdec__context *c, int thread, const float *norm, const float *from, float *to)
{
    const specdec__part part = specdec__forward_thread_part(c, thread, c->n, c->e);
    const int at = part.from * 32, count = part.to * 32 - at;
    int i;

    for (i = part.first; i < part.last; i++) {
        float *y = c->y + (size_t)i * (size_t)c->e, *h = c->h + (size_t)i * (size_t)c->e;
        float *x = to + (size_t)i * (size_t)c->e + at;

        if (norm)
            specdec__forward_norm(c)(y, norm, c->model->epsilon, c->e - SPECDEC__APART, at, part.to * 32, h);
        if (from != to)
            memcpy(x, from + (size_t)i * (size_t)c->e + at, (size_t)count * sizeof *x);
        c->kernels->add_scaled(x, c->model->fact[SPECDEC__RESIDUAL_SCALE], (norm ? h : y) + at, count);
        specdec__forward_check(c, thread, i, x, count, SPECDEC__SOUND);
    }
}

/* A thread's part of x times a factor. */
static void specdec__forward_scale(specdec__context *c, int thread, float factor)
{
    const specdec__part part = specdec__forward_thread_part(c, thread, c->n, c->e);
    int i;

    for (i = part.first; i < part.last; i++)
        c->kernels->scale(c->x + (size_t)i * (size_t)c->e + part.from * 32, factor, (part.to - part.from) * 32);
}

/* x grows by y, or its norm: what the attention of a layer gives, or, with `last`, its feed-forward network. Where both
   read the same x, attention leaves it as it is. */
static void specdec__forward_grow(specdec__context *c, int thread, const float *norm, int last)
{
    float *other = c->beside ? c->beside : c->x;

    specdec__forward_add(c, thread, norm, last ? other : c->x, last ? c->x : other);
}

/* Notes the rows of logits [at, at + count) that are no numbers. */
static void specdec__forward_check_logits(specdec__context *c, int thread, size_t at, int count)
{
    const float *logits = c->logits + at;
    int i;

    if (!c->checks || c->kernels->all_finite(logits, 1, count))
        return;
    for (i = 0; i < count; i++)
        if (!(logits[i] - logits[i] == 0))
            specdec__forward_note(c, thread, c->rows[(at + (size_t)i) / (size_t)c->output->rows], 0);
}

/* Checks, scales and caps a thread's part of the logits, 16 at a time: there is room behind the last. */
static void specdec__forward_finish(specdec__context *c, int thread)
{
    const float factor = c->model->fact[SPECDEC__LOGIT_SCALE], cap = c->model->fact[SPECDEC__LOGIT_CAP];
    const size_t all = (size_t)c->row_count * (size_t)c->output->rows;
    const size_t parts = (all + 15) / 16, threads = (size_t)specdec__pool_active(c->pool);
    const size_t to = parts * ((size_t)thread + 1) / threads * 16;
    size_t at = parts * (size_t)thread / threads * 16, i;
    int count;

    for (i = all; i < to; i++)
        c->logits[i] = 0; /* what is left there is not checked */
    for (; at < to; at += (size_t)count) {
        count = (int)(to - at < 4096 ? to - at : 4096);
        specdec__forward_check_logits(c, thread, at, count);
        if (factor != 1 || cap > 0)
            c->kernels->scale(c->logits + at, factor, count);
        if (cap > 0)
            c->kernels->soft_cap(c->logits + at, cap, count);
    }
}
