/* =====================================================================================================================
 * >>speculation/heads: runs heads that predict the next tokens from a hidden state of the target, level by level.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/pool.h"
#include "../quant/table.h"
#include "../base/op.h"
#include "../model/model.h"
#include "../forward/context.h"
#include "../forward/multiply.h"
#include "../forward/rows.h"
#include "../forward/step.h"

/* A file of heads, which predict the next tokens from a hidden state of the target, with the buffers of one level of a
   tree. */
typedef struct specdec__heads {
    float blend;              /* factor of a token's row of the table that is added to a hidden state */
    float *input;             /* (most, stride of the wider of embedding and states): the input rows of the level */
    float *inner;             /* (most, stride of states): the states that the head of the level computes */
    float *table;             /* (threads, inner): scratch: one unpacked row of the table of tokens */
    float *ones;              /* (inner): 1 each, as the other factor of gated activations */
    float *logits;            /* (most, output rows): the logits of each row */
    /* the level that is being run */
    int level, n;             /* number of the level, which is that of its head; number of its rows */
    const int32_t *tokens;    /* (n): the tokens behind which the rows predict */
    specdec__context context; /* a context of which only what products with matrices need is set */
} specdec__heads;

SPECDEC__FOR_SIZE

/* Returns how many logits a row has, one a token. All heads have the same number. */
static int specdec__heads_output_rows(const specdec__model *m) { return m->id_count ? m->id_count : m->vocab_size; }

/* Takes the buffers of a level of at most `most` rows from an arena. */
static void specdec__heads_init(specdec__heads *h, const specdec__model *model, const specdec__context *target,
                                int threads, int most, specdec__arena *arena)
{
    specdec__context *c = &h->context;
    const int inner = model->feed_forward, widest = specdec__max_int(inner, model->embedding);
    const double s = specdec__exp_double(-0.34657359027997264 / model->head_count); /* 2^(-1 / 2n) */
    const double square = (1 - s * s) * inner / 2;
    int i;

    memset(h, 0, sizeof *h);
    c->model = model;
    c->kernels = target->kernels;
    c->pool = target->pool;
    c->threads = threads;
    c->scratch = target->scratch;
    specdec__columns_take_memory(&c->columns, (size_t)most, (size_t)specdec__forward_stride(widest), arena);
    h->blend = (float)(square * specdec__inverse_square_root(square) / s);
    h->input = SPECDEC__TAKE(arena, float, (size_t)most * (size_t)specdec__forward_stride(widest));
    h->inner = SPECDEC__TAKE(arena, float, (size_t)most * (size_t)specdec__forward_stride(inner));
    h->table = SPECDEC__TAKE(arena, float, (size_t)threads * (size_t)inner);
    h->ones = SPECDEC__TAKE(arena, float, inner);
    h->logits = SPECDEC__TAKE(arena, float, specdec__size_multiply((size_t)most,
                                                              (size_t)specdec__heads_output_rows(model)));
    for (i = 0; h->ones && i < inner; i++)
        h->ones[i] = 1;
}

/* Returns how many floats an input row of a level has. */
static int specdec__heads_floats_per_input_row(const specdec__model *m, int level)
{
    return level && m->speculator->chained ? m->feed_forward : m->embedding;
}

/* Computes one thread's part of a level's states from the products with the head's matrices. */
static void specdec__heads_compute_states(specdec__heads *h, int thread)
{
    const specdec__context *c = &h->context;
    const specdec__model *m = c->model;
    const specdec__layer *l = &m->layer[m->heads_tied ? 0 : h->level];
    const int inner = m->feed_forward, width = specdec__heads_floats_per_input_row(m, h->level);
    float *row = h->table + (size_t)thread * (size_t)inner;
    int i;

    for (i = thread; i < h->n; i += specdec__pool_active(c->pool)) {
        float *z = h->inner + (size_t)i * (size_t)specdec__forward_stride(inner);

        if (l->token_table.file) {
            specdec__quant_to_float(l->token_table.type, l->token_table.file +
                                    (size_t)h->tokens[i] * l->token_table.row_bytes, (size_t)inner, row);
            c->kernels->add_scaled(z, h->blend, row, inner);
        }
        if (l->vector[SPECDEC__HEAD_NORM])
            c->kernels->norm(z, l->vector[SPECDEC__HEAD_NORM], m->epsilon, inner, 0, inner, z);
        c->kernels->add_scaled(z, 1, l->vector[SPECDEC__HEAD_BIAS], inner);
        c->kernels->activate[m->speculator->activation](z, h->ones, inner);
        if (m->speculator->residual)
            c->kernels->add_scaled(z, 1, h->input + (size_t)i * (size_t)specdec__forward_stride(width), inner);
    }
}

/* Computes one thread's part of a level: products, states and logits. */
static void specdec__heads_level_worker(void *argument, int thread)
{
    specdec__heads *h = (specdec__heads *)argument;
    specdec__context *c = &h->context;
    const specdec__model *m = c->model;
    const specdec__layer *own = &m->layer[specdec__min_int(h->level, m->layers - 1)];
    const int stride = specdec__forward_stride(m->feed_forward);
    specdec__matrix_input in = specdec__forward_make_input(
        h->input, h->n, specdec__forward_stride(specdec__heads_floats_per_input_row(m, h->level)), NULL);
    specdec__matrix_product t;

    t.matrix = &own->matrix[SPECDEC__HEAD_INPUT];
    t.bias = NULL;
    t.rows_out = h->inner;
    t.stride = (size_t)stride;
    if (specdec__forward_project(c, thread, &in, &t, 1))
        return;
    specdec__heads_compute_states(h, thread);
    if (specdec__pool_barrier(c->pool))
        return;
    in = specdec__forward_make_input(h->inner, h->n, stride, NULL);
    t.matrix = &m->layer[m->heads_tied ? 0 : h->level].matrix[SPECDEC__HEAD_OUTPUT];
    t.rows_out = h->logits;
    t.stride = (size_t)specdec__heads_output_rows(m);
    specdec__forward_project(c, thread, &in, &t, 1);
}

SPECDEC__FOR_SPEED

/* Runs the head number `level` on the n rows of h->input, behind tokens[n]. States go to h->inner, logits to h->logits.
   Where the file says so, the input of level 0 is normalised first. */
static specdec_result specdec__heads_run_level(specdec__heads *h, int level, const int32_t *tokens, int n,
                                               specdec_error *error)
{
    const specdec__context *c = &h->context;
    const specdec__model *m = c->model;
    int i;

    h->level = level;
    h->tokens = tokens;
    h->n = n;
    for (i = 0; i < n && m->input_norm && !level; i++) {
        float *x = h->input + (size_t)i * (size_t)specdec__forward_stride(m->embedding);

        c->kernels->norm(x, m->input_norm, m->epsilon, m->embedding, 0, m->embedding, x);
    }
    if (specdec__pool_run(c->pool, c->threads, specdec__heads_level_worker, h))
        return specdec__fail(error, SPECDEC_ERROR_CANCELLED, "cancelled");
    return SPECDEC_OK;
}
