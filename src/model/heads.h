/* =====================================================================================================================
 * >>model/heads: binds the tensors of a file of heads that draft (Medusa, MLP speculators).
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "model.h"
#include "tensors.h"

SPECDEC__FOR_SIZE

enum { SPECDEC__HEADS_NAME_BYTES = 64 }; /* a name of a head's tensor, at most */

/* Writes the name of a head's tensor, of column SPECDEC__HEADS_...: # becomes "." and the head's number, or nothing
   with head < 0, where heads share the tensor. Returns NULL if the kind has no such tensor. */
static const char *specdec__heads_tensor_name(const specdec__heads_kind *kind, char column, int head,
                                              char name[SPECDEC__HEADS_NAME_BYTES])
{
    const char *pattern = specdec__row_text_of_column(kind->tensors, column, 0);
    specdec__writer w = specdec__writer_to(name, SPECDEC__HEADS_NAME_BYTES);
    char one[2] = {0, 0};

    for (; pattern && *pattern; pattern++)
        if (*pattern != '#') {
            one[0] = *pattern;
            specdec__write_string(&w, one);
        } else if (head >= 0) {
            specdec__write_string(&w, ".");
            specdec__write_number(&w, (unsigned long long)head, 0);
        }
    return pattern ? name : NULL;
}
#define SPECDEC__HEADS_TENSOR(NAME, head) \
    specdec__heads_tensor_name(k, SPECDEC__ROW_COLUMN(SPECDEC__HEADS_##NAME), head, name)

/* Binds the tensors that head i does not share with an earlier head; while the arena counts, it only checks them.
   Errors: FORMAT, UNSUPPORTED. */
static specdec_result specdec__heads_bind_head(specdec__model *m, int i, specdec__arena *arena, specdec_error *error)
{
    const specdec__heads_kind *k = m->speculator;
    const int own = m->heads_tied ? -1 : i, rows = m->id_count ? m->id_count : m->vocab_size, inner = m->feed_forward;
    specdec__layer *layer = m->layer ? &m->layer[i] : NULL;
    specdec__matrix counted, *to;
    const float *none;
    specdec_result r;
    char name[SPECDEC__HEADS_NAME_BYTES];
    int found;

    if (layer)
        memset(layer, 0, sizeof *layer);
    to = layer ? &layer->matrix[SPECDEC__HEAD_INPUT] : &counted;
    r = specdec__model_bind_matrix(m, SPECDEC__HEADS_TENSOR(INPUT, i), inner, i && k->chained ? inner : m->embedding, 1,
                                   to, &found, error);
    if (r)
        return r;
    specdec__model_count_whole_matrix(m, to);
    if (m->heads_tied && i)
        return SPECDEC_OK;
    to = layer ? &layer->matrix[SPECDEC__HEAD_OUTPUT] : &counted;
    r = specdec__model_bind_matrix(m, SPECDEC__HEADS_TENSOR(OUTPUT, own), rows, inner, 1, to, &found, error);
    if (!r)
        specdec__model_count_whole_matrix(m, to);
    if (!r && SPECDEC__HEADS_TENSOR(TABLE, own))
        r = specdec__model_bind_matrix(m, name, m->vocab_size, inner, 1, layer ? &layer->token_table : &counted, &found,
                                       error);
    if (!r && SPECDEC__HEADS_TENSOR(NORM, own))
        r = specdec__model_copy_vector(m, name, inner, 1, arena, layer ? &layer->vector[SPECDEC__HEAD_NORM] : &none,
                                       error);
    return r ? r : specdec__model_copy_vector(m, SPECDEC__HEADS_TENSOR(BIAS, own), inner, 1, arena,
                                              layer ? &layer->vector[SPECDEC__HEAD_BIAS] : &none, error);
}

SPECDEC__FOR_SPEED
