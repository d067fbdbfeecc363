/* =====================================================================================================================
 * >>model/heads: files of heads and layers that draft.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "model.h"
#include "tensors.h"

SPECDEC__FOR_SIZE

/* The name of a tensor of a head; head < 0: of one that they share. */
static const char *specdec__heads_name(const char *pattern, int head, char *name, size_t size)
{
    specdec__writer w = specdec__writer_to(name, size);
    char one[2] = {0, 0};

    for (; *pattern; pattern++)
        if (*pattern != '#') {
            one[0] = *pattern;
            specdec__write_string(&w, one);
        } else if (head >= 0) {
            specdec__write_string(&w, ".");
            specdec__write_number(&w, (unsigned long long)head, 0);
        }
    return name;
}

/* Binds what head i does not share with one before it. */
static specdec_result specdec__heads_layer(specdec__model *m, int i, specdec__arena *arena, specdec_error *error)
{
    const specdec__heads_kind *k = m->speculator;
    const int own = m->tied ? -1 : i, rows = m->id_count ? m->id_count : m->vocab_size, inner = m->feed_forward;
    const float *vector[SPECDEC__HEAD_INPUT + 1];
    specdec__matrix matrix[SPECDEC__HEAD_INPUT + 1];
    specdec__layer scratch, *layer = m->layer ? &m->layer[i] : &scratch;
    specdec_result r;
    char name[64];
    int found;

    specdec__model_take_layer(layer, arena);
    if (!layer->matrix) { /* only counted */
        layer->matrix = matrix;
        layer->vector = vector;
    }
    r = specdec__model_matrix(m, specdec__heads_name(k->input, i, name, sizeof name), inner,
                              i && k->follow ? inner : m->embedding, 1, &layer->matrix[SPECDEC__HEAD_INPUT], &found,
                              error);
    if (r)
        return r;
    specdec__model_count_weights(m, &layer->matrix[SPECDEC__HEAD_INPUT]);
    if (m->tied && i)
        return SPECDEC_OK;
    r = specdec__model_matrix(m, specdec__heads_name(k->output, own, name, sizeof name), rows, inner, 1,
                              &layer->matrix[SPECDEC__HEAD_OUTPUT], &found, error);
    if (!r)
        specdec__model_count_weights(m, &layer->matrix[SPECDEC__HEAD_OUTPUT]);
    if (!r && k->table)
        r = specdec__model_matrix(m, specdec__heads_name(k->table, own, name, sizeof name), m->vocab_size, inner, 1,
                                  &layer->table, &found, error);
    if (!r && k->norm)
        r = specdec__model_vector(m, specdec__heads_name(k->norm, own, name, sizeof name), inner, 1, arena,
                                  &layer->vector[SPECDEC__HEAD_NORM], error);
    return r ? r : specdec__model_vector(m, specdec__heads_name(k->bias, own, name, sizeof name), inner, 1, arena,
                                         &layer->vector[SPECDEC__HEAD_BIAS], error);
}

SPECDEC__FOR_SPEED
