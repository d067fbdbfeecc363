/* =====================================================================================================================
 * >>model/tensors: tensors found by name, checked against their shapes, and counted.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../quant/types.h"
#include "../quant/table.h"
#include "gguf.h"
#include "model.h"
#include "parts.h"
#include "facts.h"

SPECDEC__FOR_SIZE

/* What a layer multiplies queries by. */
static float specdec__model_query_scale(const specdec__model *m, const specdec__shape *shape)
{
    const specdec__latent *latent = &m->latent_attention;
    const int wide = m->all == m->trait[SPECDEC__WIDE_QUERIES];
    float scale = m->fact[SPECDEC__QUERY_SCALE];

    if (m->trait[SPECDEC__UNSCALED] && !(scale > 0))
        scale = 1;
    if (!(scale > 0))
        scale = (float)specdec__inverse_root(wide          ? m->embedding / shape->heads
                                             : latent->rank ? latent->key_dim
                                                            : shape->key_dim);
    return scale * m->query_factor;
}

/* Counts a layer of these sizes. Returns the number of its state; -1: it has none. */
static int specdec__model_count_layer(specdec__model *m, const specdec__shape *shape)
{
    if (shape->kv_heads) {
        m->span_layers[shape->span]++;
        m->span_used[shape->span] = 1;
    }
    return shape->recurrent ? m->mixing.layers++ : -1;
}

static specdec_result specdec__model_find(const specdec__model *m, const char *name, int required,
                                          specdec__gguf_tensor *out,
                                          int *found, specdec_error *error)
{
    *found = specdec__model_find_tensor(m, name, out);
    if (!*found && required)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "tensor %s is missing", name);
    return SPECDEC_OK;
}

/* Refuses a tensor of a type that is not read. */
static specdec_result specdec__model_fail_type(const char *name, uint32_t type, specdec_error *error)
{
    const specdec__quant_unsupported *unsupported = specdec__quant_find_unsupported(type);

    return unsupported ? specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                                       "tensor %s is of type %s, which is not read (%s is)", name, unsupported->name,
                                       unsupported->nearest)
                    : specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                                    "tensor %s is of type %u, which is not known", name, (unsigned)type);
}

/* Writes the name of a tensor "X.weight" with another ending, ".scale". Returns 0 when it has not that ending. */
static int specdec__model_renamed(specdec__bytes name, const char *from, const char *to, char *out, size_t size)
{
    specdec__writer w = specdec__writer_to(out, size);
    const size_t end = strlen(from);

    if (name.size < end || memcmp(name.data + name.size - end, from, end) != 0 ||
        name.size - end + strlen(to) + 1 > size)
        return 0;
    specdec__write_bytes(&w, (const char *)name.data, name.size - end);
    specdec__write_string(&w, to);
    return 1;
}

/* Binds the scales of count matrices that are one, where the file has such: "X.scale" beside "X.weight" (NVFP4). */
static specdec_result specdec__model_scales(const specdec__model *m, const char *name, int count, specdec__matrix *out,
                                            specdec_error *error)
{
    static const char router[] = ".ffn_gate_inp.weight";
    specdec__bytes weight = {(const unsigned char *)name, strlen(name)};
    specdec__gguf_tensor t;
    char scale[96];
    int i;

    out->scales = NULL;
    if (m->trait[SPECDEC__BOTH] && specdec__model_renamed(weight, router, "", scale, sizeof scale))
        return SPECDEC_OK; /* "X.scale" is the weight of a norm */
    out->scale_tiles = out->rows / count / SPECDEC__TILE_ROWS;
    if (!specdec__model_renamed(weight, ".weight", ".scale", scale, sizeof scale) ||
        !specdec__model_find_tensor(m, scale, &t))
        return SPECDEC_OK;
    if (t.type != SPECDEC__TYPE_F32 || t.shape[0] != (uint64_t)count || t.shape[1] != 1 || t.shape[2] != 1 ||
        t.shape[3] != 1)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "tensor %s should be %d values of F32", scale, count);
    for (i = 0; i < count; i++) {
        const float value = specdec__load_f32(t.data + 4 * (size_t)i);

        if (!(value >= -1e16f && value <= 1e16f))
            return specdec__fail(error, SPECDEC_ERROR_FORMAT,
                                 "tensor %s holds what is no number, or beyond 1e16, at %d", scale, i);
    }
    out->scales = t.data;
    out->scale_tiles = count > 1 ? out->scale_tiles : 0;
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
        return specdec__model_fail_type(name, t.type, error);
    if (specdec__quant_is_left_out(out->type))
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                             "tensor %s is of type %s, which SPECDEC_TYPES leaves out of this build", name,
                             out->type->name);
    if ((t.dimensions < 2 && rows > 1) || t.shape[0] != (uint64_t)columns || t.shape[1] != (uint64_t)rows ||
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
    out->bounds = NULL;
    out->row_bytes = t.size / (size_t)out->rows;
    out->run = out->apart = 0;
    return specdec__model_scales(m, name, count, out, error);
}

static specdec_result specdec__model_matrix(const specdec__model *m, const char *name, int rows, int columns,
                                            int required,
                                            specdec__matrix *out, int *found, specdec_error *error)
{
    return specdec__model_matrices(m, name, 1, rows, columns, required, out, found, error);
}

/* Values [first, first + size) of a vector of exactly `all` values, or all of so many such vectors, copied into the
   arena and padded to a multiple of 16; NULL when absent. None is checked. */
static specdec_result specdec__model_values(const specdec__model *m, const char *name, int all, int first, int size,
                                            int vectors, int required, specdec__arena *arena, const float **out,
                                            specdec_error *error)
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
    if (vectors == 1 && t.shape[0] == 1) { /* a row may be a column */
        t.shape[0] = t.shape[1];
        t.shape[1] = 1;
    }
    if (t.shape[0] != (uint64_t)all || t.shape[1] != (uint64_t)vectors || t.shape[2] != 1 || t.shape[3] != 1)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "tensor %s is %llu x %llu, it should be %d x %d", name,
                             (unsigned long long)t.shape[0], (unsigned long long)t.shape[1], all, vectors);
    size *= vectors; /* at most 2^30 */
    values = SPECDEC__TAKE(arena, float, specdec__round_up(size, 16));
    if (values)
        specdec__quant_to_float(type, t.data + (size_t)first * (size_t)type->bytes, (size_t)size, values);
    *out = values;
    return SPECDEC_OK;
}

/* As specdec__model_values, and checks that all values are numbers of at most 1e16 in size. */
static specdec_result specdec__model_slice(const specdec__model *m, const char *name, int all, int first, int size,
                                           int vectors, int required, specdec__arena *arena, const float **out,
                                           specdec_error *error)
{
    const float *values = NULL;
    specdec_result result = specdec__model_values(m, name, all, first, size, vectors, required, arena,
                                                   &values, error);
    int i;

    for (i = 0; values && i < size * vectors; i++)
        if (!(values[i] >= -1e16f && values[i] <= 1e16f))
            return specdec__fail(error, SPECDEC_ERROR_FORMAT,
                                 "tensor %s holds what is no number, or beyond 1e16, at %d", name, first + i);
    if (values)
        *out = values;
    return result;
}

/* A vector of exactly size values, which the file has as a matrix with rows of so many; turned: column by column. */
static specdec_result specdec__model_folded(const specdec__model *m, const char *name, int size, int row, int turned,
                                            int required, specdec__arena *arena, const float **out,
                                            specdec_error *error)
{
    const specdec__quant_type *type;
    specdec__gguf_tensor t;
    float *values, one;
    int found, i, to;
    specdec_result result = specdec__model_find(m, name, required, &t, &found, error);

    if (result || !found)
        return result;
    type = specdec__quant_find(t.type);
    if (!type || type->granule)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "tensor %s should be F32, F16 or BF16", name);
    if (t.shape[1] <= (uint64_t)size && t.shape[2] <= (uint64_t)size) /* rows may be folded once more */
        t.shape[1] *= t.shape[2];
    if (t.shape[0] != (uint64_t)row || t.shape[1] != (uint64_t)(size / row) || t.shape[3] != 1)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "tensor %s is %llu x %llu, it should be %d x %d", name,
                             (unsigned long long)t.shape[0], (unsigned long long)t.shape[1], row, size / row);
    values = SPECDEC__TAKE(arena, float, specdec__round_up(size, 16));
    for (i = 0; values && i < size; i++) {
        specdec__quant_to_float(type, t.data + (size_t)i * (size_t)type->bytes, 1, &one);
        if (!(one >= -1e16f && one <= 1e16f))
            return specdec__fail(error, SPECDEC_ERROR_FORMAT,
                                 "tensor %s holds what is no number, or beyond 1e16, at %d", name, i);
        to = turned ? i % row * (size / row) + i / row : i;
        values[to] = one;
    }
    *out = values;
    return SPECDEC_OK;
}

/* A vector of exactly size values, all of them. */
static specdec_result specdec__model_vector(const specdec__model *m, const char *name, int size, int required,
                                            specdec__arena *arena,
                                            const float **out, specdec_error *error)
{
    return specdec__model_slice(m, name, size, 0, size, 1, required, arena, out, error);
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
    return matrix->row_bytes * SPECDEC__TILE_ROWS;
}
/* Where tile t of a matrix lies in the file. */
SPECDEC__INLINE const unsigned char *specdec__matrix_at(const specdec__matrix *matrix, int t)
{
    const int place = matrix->run ? t / matrix->run * matrix->apart + t % matrix->run : t;

    return matrix->file + (size_t)place * specdec__matrix_tile_bytes(matrix);
}
SPECDEC__INLINE int specdec__matrix_tiles(const specdec__matrix *matrix)
{
    return (matrix->rows + SPECDEC__TILE_ROWS - 1) / SPECDEC__TILE_ROWS;
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

/* The tensor that holds a matrix, or a vector, of a layer: of how many rows, from which on they are its own. */
typedef struct specdec__holder {
    const char *suffix;
    int all, first;
} specdec__holder;

/* The suffix of a tensor for matrix i, or vector i, alone, in a layer of these dimensions. */
static const char *specdec__model_own(const specdec__model *m, int vectors, int i, const int *size)
{
    if (vectors)
        return specdec__vector_table[i == SPECDEC__FFN_NORM && m->trait[SPECDEC__FFN_NORM_AS]
                                         ? m->trait[SPECDEC__FFN_NORM_AS]
                                         : i].suffix;
    return size[SPECDEC__DIM_SHARED] && specdec__matrix_table[i].shared ? specdec__matrix_table[i].shared
                                                                        : specdec__matrix_table[i].suffix;
}

static int specdec__model_rows(int vectors, int i, const int *size)
{
    return size[vectors ? specdec__vector_table[i].size : specdec__matrix_table[i].rows];
}

/* Whether a layer of these dimensions has matrix i, or vector i, at all. */
static int specdec__model_takes(int vectors, int i, const int *size)
{
    return specdec__model_rows(vectors, i, size) && (vectors || size[specdec__matrix_table[i].columns]) &&
           (size[SPECDEC__DIM_OWN] || !SPECDEC__HAS_BIT(specdec__of_keys[vectors], i));
}

/* Whether a layer has a tensor; *rows: how many. */
static int specdec__model_has(const specdec__model *m, int layer, const char *suffix, int vectors, uint64_t *rows)
{
    specdec__gguf_tensor t;
    char name[64];
    int found;

    specdec__model_tensor_name(name, sizeof name, layer, suffix);
    specdec__model_find(m, name, 0, &t, &found, NULL);
    *rows = found ? t.shape[vectors ? 0 : 1] : 0;
    return found;
}

/* Whether a layer has a fused tensor, which holds `all` rows, in place of single ones. */
static int specdec__model_fuses(const specdec__model *m, int layer, const specdec__fused *f, int vectors, int all,
                                const int *size)
{
    const char *suffix = vectors ? f->bias : f->weight;
    uint64_t rows;

    return suffix && !(size[SPECDEC__DIM_SHARED] && specdec__matrix_table[f->matrix].shared) &&
           !specdec__model_has(m, layer, specdec__model_own(m, vectors, vectors ? f->vector : f->matrix, size), vectors,
                               &rows) &&
           specdec__model_has(m, layer, suffix, vectors, &rows) && (!f->sized || rows == (uint64_t)all);
}

/* Finds what holds matrix i, or vector i: a tensor of its own, or a fused one. */
static specdec__holder specdec__model_holder(const specdec__model *m, int layer, int vectors, int i, const int *size)
{
    specdec__holder own;
    size_t k;
    int j;

    own.suffix = specdec__model_own(m, vectors, i, size);
    own.all = specdec__model_rows(vectors, i, size);
    own.first = 0;
    for (k = 0; k < SPECDEC__COUNT(specdec__fused_table); k++) {
        const specdec__fused *f = &specdec__fused_table[k];
        const int from = vectors ? f->vector : f->matrix, to = from + f->count;
        specdec__holder fused = {vectors ? f->bias : f->weight, 0, 0};

        if (i < from || i >= to)
            continue;
        for (j = from; j < to; j++) {
            fused.first += j < i ? specdec__model_rows(vectors, j, size) : 0;
            fused.all += specdec__model_rows(vectors, j, size);
        }
        if (specdec__model_fuses(m, layer, f, vectors, fused.all, size))
            return fused;
    }
    return own;
}

/* Binds the matrices of a layer of this shape; layer NULL: only checks and counts them. */
static specdec_result specdec__model_layer_matrices(specdec__model *m, int index, const specdec__shape *shape,
                                                    const int *size, specdec__layer *layer, specdec_error *error)
{
    specdec__matrix counted;
    char name[64];
    int i, found;

    for (i = 0; i < SPECDEC__MATRICES; i++) {
        const int each = specdec__matrix_table[i].each;
        const int parts = each == SPECDEC__EACH_HEAD ? shape->heads : each ? shape->experts : 1;
        const int rows = specdec__model_rows(0, i, size);
        specdec__matrix *matrix = layer ? &layer->matrix[i] : &counted;
        specdec__holder holder;
        specdec_result result;

        if (!specdec__model_takes(0, i, size))
            continue;
        holder = specdec__model_holder(m, index, 0, i, size);
        specdec__model_tensor_name(name, sizeof name, index, holder.suffix);
        result = specdec__model_matrices(m, name, parts, holder.all, size[specdec__matrix_table[i].columns],
                                         i != SPECDEC__V || !m->trait[SPECDEC__NORMED_VALUES], matrix, &found, error);
        if (result)
            return result;
        if (!found && size[SPECDEC__DIM_K] != size[SPECDEC__DIM_V])
            return specdec__fail(error, SPECDEC_ERROR_FORMAT, "tensor %s is missing, and keys are no values of %d",
                                 name, size[SPECDEC__DIM_V]);
        if (!found)
            continue;
        matrix->rows = rows * parts;
        matrix->file += (size_t)holder.first * matrix->row_bytes;
        if (parts > 1 && rows < holder.all) { /* rows of experts are multiples of 16 */
            matrix->run = rows / SPECDEC__TILE_ROWS;
            matrix->scale_tiles = matrix->scales ? matrix->run : 0;
            matrix->apart = holder.all / SPECDEC__TILE_ROWS;
        }
        specdec__model_count_rows(m, matrix, rows * (each == SPECDEC__EACH_EXPERT ? m->chosen : parts));
    }
    return SPECDEC_OK;
}

SPECDEC__FOR_SPEED
