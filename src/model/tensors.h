/* =====================================================================================================================
 * >>model/tensors: tensors found by name, checked against their shapes, and counted.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../quant/types.h"
#include "../quant/table.h"
#include "gguf.h"
#include "model.h"
#include "facts.h"

SPECDEC__FOR_SIZE

/* Notes which keys a layer sees and how it rotates. */
static void specdec__model_kind(specdec__model *m, specdec__layer *layer, int index)
{
    const specdec__architecture *a = m->architecture;
    const int other = specdec__model_other(m, index);

    layer->span = other && m->window ? SPECDEC__WINDOW : SPECDEC__WHOLE;
    layer->place = m->span_layers[layer->span]++;
    m->span_used[layer->span] = 1;
    layer->rope = other && a->base != 0 && (m->window || a->window < 0) ? SPECDEC__ROPE_OTHER : SPECDEC__ROPE;
}

static specdec_result specdec__model_find(const specdec__model *m, const char *name, int required,
                                          specdec__gguf_tensor *out,
                                          int *found, specdec_error *error)
{
    *found = specdec__gguf_find_tensor(&m->gguf, name, out);
    if (*found == 2)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "tensor %s occurs twice", name);
    if (!*found && required)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "tensor %s is missing", name);
    return SPECDEC_OK;
}

/* Binds `count` matrices of exactly (rows, columns) as one; *found tells whether an optional one is there. */
static specdec_result specdec__model_matrices(const specdec__model *m, const char *name, int count, int rows,
                                              int columns, int required,
                                              specdec__matrix *out, int *found, specdec_error *error)
{
    specdec__gguf_tensor t;
    specdec_result result = specdec__model_find(m, name, required, &t, found, error);

    if (result || !*found)
        return result;
    out->type = specdec__quant_find(t.type);
    if (!out->type)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "tensor %s is of type %u, which is not read", name,
                             t.type);
    if (specdec__quant_left_out(out->type))
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                             "tensor %s is of type %s, which SPECDEC_TYPES leaves out of this build", name,
                             out->type->name);
    if (t.dimensions < 2 || t.shape[0] != (uint64_t)columns || t.shape[1] != (uint64_t)rows ||
        t.shape[2] != (uint64_t)count || t.shape[3] != 1)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "tensor %s is %llu x %llu x %llu, it should be %d x %d x %d",
                             name, (unsigned long long)t.shape[0], (unsigned long long)t.shape[1],
                             (unsigned long long)t.shape[2], columns, rows, count);
    if (columns % 32)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "tensor %s has rows of %d values, no multiple of 32",
                             name, columns);
    out->rows = rows * count;
    out->columns = columns;
    out->file = t.data;
    out->tiles = NULL;
    out->row_bytes = t.size / (size_t)out->rows;
    return SPECDEC_OK;
}

static specdec_result specdec__model_matrix(const specdec__model *m, const char *name, int rows, int columns,
                                            int required,
                                            specdec__matrix *out, int *found, specdec_error *error)
{
    return specdec__model_matrices(m, name, 1, rows, columns, required, out, found, error);
}

/* A vector of exactly size values, copied into the arena and padded to a multiple of 16; NULL when absent. */
static specdec_result specdec__model_vector(const specdec__model *m, const char *name, int size, int required,
                                            specdec__arena *arena,
                                            const float **out, specdec_error *error)
{
    specdec__gguf_tensor t;
    const specdec__quant_type *type;
    float *values;
    int found;
    specdec_result result = specdec__model_find(m, name, required, &t, &found, error);

    if (result || !found)
        return result;
    type = specdec__quant_find(t.type);
    if (!type || type->granule)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "tensor %s should be F32, F16 or BF16", name);
    if (t.shape[0] != (uint64_t)size || t.shape[1] != 1 || t.shape[2] != 1 || t.shape[3] != 1)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "tensor %s has %llu values, it should have %d", name,
                             (unsigned long long)t.shape[0], size);
    values = SPECDEC__TAKE(arena, float, specdec__round_up(size, 16));
    if (values)
        specdec__quant_to_float(type, t.data, (size_t)size, values);
    *out = values;
    return SPECDEC_OK;
}

static void specdec__model_tensor_name(char *name, size_t size, int layer, const char *suffix)
{
    specdec__writer w = specdec__writer_to(name, size);

    specdec__write_string(&w, "blk.");
    specdec__write_number(&w, (unsigned long long)layer, 0);
    specdec__write_string(&w, ".");
    specdec__write_string(&w, suffix);
}

SPECDEC__INLINE size_t specdec__matrix_tile_bytes(const specdec__matrix *matrix)
{
    return matrix->row_bytes * SPECDEC__QUANT_ROWS;
}
SPECDEC__INLINE int specdec__matrix_tiles(const specdec__matrix *matrix)
{
    return (matrix->rows + SPECDEC__QUANT_ROWS - 1) / SPECDEC__QUANT_ROWS;
}

/* Counts a matrix, of which a token needs so many rows. */
static void specdec__model_count_rows(specdec__model *m, const specdec__matrix *matrix, int rows)
{
    const size_t tiles = (size_t)specdec__matrix_tiles(matrix);

    m->weight_bytes += matrix->row_bytes * (size_t)rows;
    m->weight_products += (uint64_t)rows * (uint64_t)matrix->columns;
    m->tile_bytes = specdec__size_add(m->tile_bytes, /* tensors may overlap: more than there is room for */
                                      specdec__size_multiply(specdec__matrix_tile_bytes(matrix), tiles));
}

static void specdec__model_count_weights(specdec__model *m, const specdec__matrix *matrix)
{
    specdec__model_count_rows(m, matrix, matrix->rows);
}

/* The tensor that holds matrix i of a layer: how many rows it has, and which of them is the matrix's first. */
static const char *specdec__model_holder(const specdec__model *m, int i, const int *size, int *rows, int *first)
{
    int f, j;

    *first = 0;
    *rows = size[specdec__matrix_table[i].rows];
    if (specdec__model_mixes(m) && specdec__matrix_table[i].of_experts)
        return specdec__matrix_table[i].of_experts;
    for (f = 0; f < (int)SPECDEC__COUNT(specdec__fused_table); f++) {
        const int from = specdec__fused_table[f].first, to = from + specdec__fused_table[f].count;

        if (!(m->architecture->fused & SPECDEC__BIT(f)) || i < from || i >= to)
            continue;
        *rows = 0;
        for (j = from; j < to; j++) {
            *first += j < i ? size[specdec__matrix_table[j].rows] : 0;
            *rows += size[specdec__matrix_table[j].rows];
        }
        return specdec__fused_table[f].suffix;
    }
    return specdec__matrix_table[i].suffix;
}

/* Binds the matrices of a layer. */
static specdec_result specdec__model_layer_matrices(specdec__model *m, int index, const int *size,
                                                    specdec__layer *layer, specdec_error *error)
{
    char name[64];
    int i, found;

    for (i = 0; i < specdec__model_each(m); i++) {
        const int parts = specdec__model_mixes(m) && specdec__matrix_table[i].of_experts ? m->experts : 1;
        specdec__matrix *matrix = &layer->matrix[i];
        specdec_result result;
        int rows, first;

        specdec__model_tensor_name(name, sizeof name, index, specdec__model_holder(m, i, size, &rows, &first));
        result = specdec__model_matrices(m, name, parts, rows, size[specdec__matrix_table[i].columns], 1, matrix,
                                         &found, error);
        if (result)
            return result;
        rows = size[specdec__matrix_table[i].rows];
        matrix->rows = rows * parts;
        matrix->file += (size_t)first * matrix->row_bytes;
        specdec__model_count_rows(m, matrix, parts > 1 ? rows * m->chosen : rows);
    }
    return SPECDEC_OK;
}

SPECDEC__FOR_SPEED
