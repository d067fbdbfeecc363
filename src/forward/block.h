/* =====================================================================================================================
 * >>forward/block: dynamic convolutions over the rows of a block that is drafted in one pass: see specdec__block.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/pool.h"
#include "../model/model.h"
#include "context.h"
#include "rows.h"

SPECDEC__FOR_SIZE

/* Computes a thread's part of a dynamic convolution: each row of c->mixed (n, e) is a sum over taps of weights times
   the rows of x (n, e) up to its own. Weights are `base` plus those that the half's matrix has projected from the row,
   in c->convs. side: 0: the convolution before the half, 1: the one behind it. A half is attention or the feed-forward
   network of a layer. Canonical: taps in order. */
static void specdec__forward_convolve(specdec__context *c, int thread, const float *base, int side, const float *x)
{
    const specdec__block *b = &c->model->block;
    const specdec__part part = specdec__forward_thread_part(c, thread, c->n, c->e);
    const int width = c->model->embedding, groups = width / b->group;
    const int end = specdec__min_int(part.to * 32, width), stride = specdec__forward_stride(2 * b->taps * groups);
    int i, tap, d;

    for (i = part.first; i < part.last; i++) {
        float *out = c->mixed + (size_t)i * (size_t)c->e;

        memset(out + part.from * 32, 0, (size_t)(part.to - part.from) * 32 * sizeof *out);
        for (tap = 0; tap < b->taps && tap <= i; tap++) {
            const float *from = x + (size_t)(i - tap) * (size_t)c->e;
            const float *own = c->convs + (size_t)i * (size_t)stride + (side * b->taps + tap) * groups;
            const float *fixed = base + (size_t)(side * b->taps + tap) * (size_t)width;

            for (d = part.from * 32; d < end; d++)
                out[d] += (own[d / b->group] + fixed[d]) * from[d];
        }
    }
}

/* Copies a thread's part of c->mixed to x. */
static void specdec__forward_convolved(const specdec__context *c, int thread, float *x)
{
    const specdec__part part = specdec__forward_thread_part(c, thread, c->n, c->e);
    int i;

    for (i = part.first; i < part.last; i++) {
        const size_t at = (size_t)i * (size_t)c->e + (size_t)part.from * 32;

        memcpy(x + at, c->mixed + at, (size_t)(part.to - part.from) * 32 * sizeof *x);
    }
}

SPECDEC__FOR_SPEED
