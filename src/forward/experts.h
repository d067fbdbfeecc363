/* =====================================================================================================================
 * >>forward/experts: mixtures of experts: chooses the experts of each row of a step, and multiplies the matrices of
 *     each expert by the columns of its rows.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/pool.h"
#include "../base/op.h"
#include "../kernel/kernel.h"
#include "../model/model.h"
#include "../model/tensors.h"
#include "context.h"
#include "multiply.h"
#include "rows.h"

SPECDEC__FOR_SIZE

/* Turns a router's outputs for the experts of a row, router (experts), into their softmax or their sigmoids. */
static void specdec__forward_normalise_router_outputs(const specdec__context *c, float *router)
{
    const specdec__model *m = c->model;
    float sum = 0;
    int i;

    if (m->sigmoid_experts) {
        for (i = 0; i < m->experts; i++)
            router[i] = 1 / (1 + specdec__exp(-router[i]));
        return;
    }
    c->kernels->token_weights(router, m->experts, c->kernels->largest(router, m->experts), 1, router);
    for (i = 0; i < m->experts; i++)
        sum += router[i];
    for (i = 0; i < m->experts; i++)
        router[i] /= sum;
}

/* Scores by which experts, or groups of experts, are ranked: the score of number i is value[i] + bias[i]. */
typedef struct specdec__ranking_scores {
    const float *scores, *bias; /* of each number; bias NULL: zeros */
} specdec__ranking_scores;

/* Returns the score of expert, or group of experts, number i. */
static float specdec__forward_ranking_score(const specdec__ranking_scores *s, int i)
{
    return s->scores[i] + (s->bias ? s->bias[i] : 0);
}

/* Inserts expert, or group of experts, number i into a list of the `most` ones with the highest scores: order[count],
   highest first. Returns the new count. */
static int specdec__forward_insert_ranked(const specdec__ranking_scores *scores, int i, int *order, int count, int most)
{
    const float score = specdec__forward_ranking_score(scores, i);
    int at = specdec__min_int(count, most - 1);

    if (count == most && !(score > specdec__forward_ranking_score(scores, order[at])))
        return count;
    for (; at > 0 && score > specdec__forward_ranking_score(scores, order[at - 1]); at--)
        order[at] = order[at - 1];
    order[at] = i;
    return specdec__min_int(count + 1, most);
}

/* Marks the groups that the experts of a row are chosen from, open (groups) = 1: those with the largest sums of their
   two best scores. */
static void specdec__forward_choose_groups(const specdec__model *m, const specdec__ranking_scores *scores,
                                           unsigned char *open)
{
    const int size = m->experts / m->groups;
    float sums[SPECDEC__MAX_CHOSEN_EXPERTS];
    const specdec__ranking_scores of_groups = {sums, NULL};
    int best[SPECDEC__MAX_CHOSEN_EXPERTS], two[2], count = 0, i, k;

    for (i = 0; i < m->groups; i++) {
        int found = 0;

        for (k = i * size; k < (i + 1) * size; k++)
            found = specdec__forward_insert_ranked(scores, k, two, found, 2);
        sums[i] = specdec__forward_ranking_score(scores, two[0]) +
                  (found > 1 ? specdec__forward_ranking_score(scores, two[1]) : 0);
        count = specdec__forward_insert_ranked(&of_groups, i, best, count, m->groups_chosen);
    }
    memset(open, 0, (size_t)m->groups);
    for (i = 0; i < count; i++)
        open[best[i]] = 1;
}

/* Chooses the experts of a row from the outputs of the router, router (experts), and computes their weights. */
static void specdec__forward_choose_experts(const specdec__context *c, const specdec__layer *layer, int row,
                                            float *router)
{
    const specdec__model *m = c->model;
    const specdec__ranking_scores scores = {router, layer->vector[SPECDEC__CHOICE_BIAS]};
    float *share = c->routes.weight + row * m->chosen_experts, sum = 0;
    int *expert = c->routes.expert + row * m->chosen_experts, count = 0, i;
    unsigned char open[SPECDEC__MAX_CHOSEN_EXPERTS];

    specdec__forward_normalise_router_outputs(c, router);
    specdec__forward_choose_groups(m, &scores, open);
    for (i = 0; i < m->experts; i++)
        if (open[i / (m->experts / m->groups)])
            count = specdec__forward_insert_ranked(&scores, i, expert, count, m->chosen_experts);
    for (i = 0; i < m->chosen_experts; i++)
        sum += share[i] = router[expert[i]];
    sum = !m->normed_experts ? 1 : sum > 6.103515625e-5f ? sum : 6.103515625e-5f;
    for (i = 0; i < m->chosen_experts; i++)
        share[i] = share[i] / sum * m->expert_scale;
}

/* Assigns columns to all pairs of a row and an expert, so that the columns of an expert are contiguous, and makes jobs
   of at most SPECDEC__PASS_COLUMNS columns. */
static void specdec__forward_assign_columns(specdec__context *c)
{
    const int chosen = c->model->chosen_experts, experts = c->model->experts, columns = c->n * chosen;
    specdec__expert_routes *r = &c->routes;
    int i, at;

    memset(r->first_column, 0, (size_t)(experts + 1) * sizeof *r->first_column);
    for (i = 0; i < columns; i++)
        r->first_column[r->expert[i] + 1]++;
    for (i = 0; i < experts; i++)
        r->first_column[i + 1] += r->first_column[i];
    for (r->jobs = 0, i = 0; i < experts; i++)
        for (at = r->first_column[i]; at < r->first_column[i + 1]; at += SPECDEC__PASS_COLUMNS) {
            specdec__expert_job *job = &r->job[r->jobs++];

            job->expert = i;
            job->column = at;
            job->count = specdec__min_int(SPECDEC__PASS_COLUMNS, r->first_column[i + 1] - at);
        }
    for (i = 0; i < columns; i++) {
        r->column[i] = r->first_column[r->expert[i]]++;
        r->row[r->column[i]] = i / chosen;
    }
}

/* Finds item `at` of a walk over the tiles of all jobs, each job with `tiles` tiles: *job becomes the job that it
   belongs to, places[0] its tile, and places[1] the next tile of the same matrix. Returns the matrix product that the
   tile belongs to. */
static const specdec__matrix_product *specdec__forward_find_routed_tile(const specdec__context *c,
                                                                        const specdec__matrix_product *targets, int at,
                                                                        int tiles, specdec__matrix_tile *places,
                                                                        const specdec__expert_job **job)
{
    int own, i = at % tiles;

    *job = &c->routes.job[at / tiles];
    for (;; targets++, i -= own) {
        own = specdec__matrix_count_tiles(targets->matrix) / c->model->experts;
        if (i < own)
            break;
    }
    places[0].matrix = places[1].matrix = targets->matrix;
    places[0].tile = (*job)->expert * own + i;
    places[1].tile = places[0].tile + 1;
    return targets;
}

/* Multiplies matrices of all experts, each by the columns of its expert; otherwise as specdec__forward_multiply. */
static void specdec__forward_multiply_routed(specdec__context *c, int thread, const specdec__matrix_product *targets,
                                             int count)
{
    specdec__scratch *scratch = &c->scratch[thread];
    const specdec__expert_job *job, *unused;
    specdec__matrix_product target;
    specdec__item_walk walk;
    int tiles = 0, i, own, pair;
    float *sums[2];

    sums[0] = scratch->sums;
    sums[1] = scratch->sums + SPECDEC__PASS_COLUMNS * SPECDEC__ROWS;
    for (i = 0; i < count; i++)
        tiles += specdec__matrix_count_tiles(targets[i].matrix) / c->model->experts;
    for (specdec__item_walk_begin(&walk, c->pool, tiles * c->routes.jobs, 2); walk.at < walk.count;
         specdec__item_walk_advance(&walk, pair)) {
        specdec__matrix_tile places[2], next[2];
        const specdec__matrix_product *t = specdec__forward_find_routed_tile(c, targets, walk.at, tiles, places, &job);

        own = specdec__matrix_count_tiles(t->matrix) / c->model->experts;
        pair = places[1].tile % own && walk.at + 1 < walk.end ? 2 : 1;
        specdec__forward_find_routed_tile(c, targets, specdec__item_walk_item_after(&walk, pair), tiles, next, &unused);
        specdec__forward_multiply_tiles(c, places, pair, next, job->column, job->count, scratch, sums);
        target = *t;
        target.bias = t->bias ? t->bias + job->expert * own * SPECDEC__ROWS : NULL;
        for (i = 0; i < pair; i++)
            specdec__forward_store_tile(c, &target, places[i].tile % own, job->column, job->count, sums[i]);
    }
}

/* Quantises an input, a row for each column, and multiplies matrices of experts by it. Returns 1 when cancelled. */
static int specdec__forward_project_routed(specdec__context *c, int thread, const specdec__matrix_input *in,
                                           const specdec__matrix_product *targets, int count)
{
    specdec__forward_quantise(c, thread, in);
    if (specdec__pool_barrier(c->pool))
        return 1;
    specdec__forward_multiply_routed(c, thread, targets, count);
    return specdec__pool_barrier(c->pool);
}

/* Computes a thread's part of out (n, stride): each row's sum of outputs of experts times weights, best first. */
static void specdec__forward_sum_experts(specdec__context *c, int thread, float *out, int stride)
{
    const specdec__row_part part = specdec__forward_thread_rows(c, thread, c->n, stride);
    const int at = part.first_block * 32, count = part.end_block * 32 - at, chosen = c->model->chosen_experts;
    int i, k;

    for (i = part.first_row; i < part.end_row; i++) {
        float *y = out + (size_t)i * (size_t)stride + at;

        memset(y, 0, (size_t)count * sizeof *y);
        for (k = i * chosen; k < (i + 1) * chosen; k++)
            c->kernels->add_scaled(y, c->routes.weight[k],
                                   c->expert_outputs + (size_t)c->routes.column[k] * (size_t)stride + at, count);
    }
}

/* Adds the shared expert's output in c->expert_outputs to y, times the sigmoid of its router's output, if it has a
   router. */
static void specdec__forward_add_shared_expert(specdec__context *c, int thread, const specdec__layer *layer)
{
    const specdec__row_part part = specdec__forward_thread_rows(c, thread, c->n, c->e);
    const int at = part.first_block * 32, count = part.end_block * 32 - at;
    int i;

    for (i = part.first_row; i < part.end_row; i++) {
        const size_t begin = (size_t)i * (size_t)c->e + (size_t)at;
        const int routed = layer->matrix[SPECDEC__SHARED_ROUTER].rows;

        c->kernels->add_scaled(c->y + begin, routed ? 1 / (1 + specdec__exp(-c->shared_router[i])) : 1,
                               c->expert_outputs + begin, count);
    }
}

SPECDEC__FOR_SPEED
