/* =====================================================================================================================
 * >>forward/block: dynamic convolutions over the rows of a block that is drafted in one pass: see specdec__block_model.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/pool.h"
#include "../model/model.h"
#include "context.h"
#include "rows.h"

SPECDEC__FOR_SIZE

/* Computes a thread's part of a dynamic convolution: each row of c->conv_output (n, e) is a sum over taps of weights
   times the rows of x (n, e) up to its own. Weights are `base` plus those that the half's matrix has projected from the
   row, in c->conv_weights. side: 0: the convolution before the half, 1: the one behind it. A half is attention or the
   feed-forward network of a layer. Canonical: taps in order. */
static void specdec__forward_convolve_block(specdec__context *c, int thread, const float *base, int side,
                                            const float *x)
{
    const specdec__block_model *b = &c->model->block;
    const specdec__row_part part = specdec__forward_thread_rows(c, thread, c->n, c->e);
    const int width = c->model->embedding, groups = width / b->group_size;
    const int end = specdec__min_int(part.end_block * 32,
                                     width), stride = specdec__forward_stride(2 * b->taps * groups);
    int i, tap, d;

    for (i = part.first_row; i < part.end_row; i++) {
        float *out = c->conv_output + (size_t)i * (size_t)c->e;

        memset(out + part.first_block * 32, 0, (size_t)(part.end_block - part.first_block) * 32 * sizeof *out);
        for (tap = 0; tap < b->taps && tap <= i; tap++) {
            const float *from = x + (size_t)(i - tap) * (size_t)c->e;
            const float *own = c->conv_weights + (size_t)i * (size_t)stride + (side * b->taps + tap) * groups;
            const float *fixed = base + (size_t)(side * b->taps + tap) * (size_t)width;

            for (d = part.first_block * 32; d < end; d++)
                out[d] += (own[d / b->group_size] + fixed[d]) * from[d];
        }
    }
}

/* Copies a thread's part of c->conv_output to x. */
static void specdec__forward_copy_conv_output(const specdec__context *c, int thread, float *x)
{
    const specdec__row_part part = specdec__forward_thread_rows(c, thread, c->n, c->e);
    int i;

    for (i = part.first_row; i < part.end_row; i++) {
        const size_t at = (size_t)i * (size_t)c->e + (size_t)part.first_block * 32;

        memcpy(x + at, c->conv_output + at, (size_t)(part.end_block - part.first_block) * 32 * sizeof *x);
    }
}

SPECDEC__FOR_SPEED
