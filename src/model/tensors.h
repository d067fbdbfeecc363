/* =====================================================================================================================
 * >>model/tensors: finds tensors by name, checks their types and shapes, and counts the memory of matrices.
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

/* Returns the factor by which the queries of a layer of this shape are multiplied, such as 1 / root(key_dim). */
static float specdec__model_query_scale(const specdec__model *m, const specdec__shape *shape)
{
    const specdec__latent *latent = &m->latent_attention;
    const int wide = m->all_layers == m->trait[SPECDEC__WIDE_QUERIES];
    float scale = m->fact[SPECDEC__QUERY_SCALE];

    if (m->trait[SPECDEC__UNSCALED] && !(scale > 0))
        scale = 1;
    if (!(scale > 0))
        scale = (float)specdec__inverse_square_root(wide          ? m->embedding / shape->heads
                                                    : latent->rank ? latent->key_dim
                                                            : shape->key_dim);
    return scale * m->query_factor;
}

/* Counts a layer of this shape in the model's numbers of layers of each span. Returns its number among the recurrent
   layers on this rank; -1: it is not recurrent. */
static int specdec__model_count_layer_in_spans(specdec__model *m, const specdec__shape *shape)
{
    if (shape->kv_heads) {
        m->span_layers[shape->span]++;
        m->span_used[shape->span] = 1;
    }
    return shape->recurrent ? m->recurrent_sizes.layers++ : -1;
}

/* Finds a tensor of a model by name; *found: 1 if it is there. Errors: FORMAT (required and missing). */
static specdec_result specdec__model_find_tensor_or_fail(const specdec__model *m, const char *name, int required,
                                                         specdec__gguf_tensor *out, int *found, specdec_error *error)
{
    *found = specdec__model_find_tensor(m, name, out);
    if (!*found && required)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "tensor %s is missing", name);
    return SPECDEC_OK;
}

/* Returns the error for a tensor of a type that cannot be read. */
static specdec_result specdec__model_refuse_type(const char *name, uint32_t type, specdec_error *error)
{
    const specdec__quant_unsupported *unsupported = specdec__quant_find_unsupported(type);

    return unsupported ? specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                                       "tensor %s is of type %s, which is not read (%s is)", name, unsupported->name,
                                       unsupported->nearest)
                    : specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                                    "tensor %s is of type %u, which is not known", name, (unsigned)type);
}

/* Replaces the ending of a tensor name, as "X.weight" by "X.scale". Returns 0 if the name has another ending, or `out`
   is too small. */
static int specdec__model_replace_ending(specdec__bytes name, const char *from, const char *to, char *out, size_t size)
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

/* Binds the factors of `count` matrices in one tensor, if the file has them: "X.scale" beside "X.weight" (NVFP4).
   Errors: FORMAT. */
static specdec_result specdec__model_bind_scales(const specdec__model *m, const char *name, int count,
                                                 specdec__matrix *out, specdec_error *error)
{
    static const char router[] = ".ffn_gate_inp.weight";
    specdec__bytes weight = {(const unsigned char *)name, strlen(name)};
    specdec__gguf_tensor t;
    char scale[96];
    int i;

    out->scales = NULL;
    if (m->trait[SPECDEC__DENSE_BESIDE_EXPERTS] && specdec__model_replace_ending(weight, router, "", scale,
                                                                                 sizeof scale))
        return SPECDEC_OK; /* "X.scale" is the weight of a norm */
    out->scale_tiles = out->rows / count / SPECDEC__TILE_ROWS;
    if (!specdec__model_replace_ending(weight, ".weight", ".scale", scale, sizeof scale) ||
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

/* Binds `count` matrices of exactly (rows, columns) in one tensor, as one matrix; *found: 1 if an optional tensor is
   there. Errors: FORMAT, UNSUPPORTED. */
static specdec_result specdec__model_bind_joined_matrices(const specdec__model *m, const char *name, int count,
                                                          int rows, int columns, int required,
                                                          specdec__matrix *out, int *found, specdec_error *error)
{
    specdec__gguf_tensor t;
    specdec_result result = specdec__model_find_tensor_or_fail(m, name, required, &t, found, error);

    if (result || !*found)
        return result;
    out->type = specdec__quant_find_type(t.type);
    if (!out->type)
        return specdec__model_refuse_type(name, t.type, error);
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
    out->run_tiles = out->run_stride = 0;
    return specdec__model_bind_scales(m, name, count, out, error);
}

/* Binds a matrix of exactly (rows, columns); *found: 1 if an optional tensor is there. Errors: FORMAT, UNSUPPORTED. */
static specdec_result specdec__model_bind_matrix(const specdec__model *m, const char *name, int rows, int columns,
                                                 int required,
                                                 specdec__matrix *out, int *found, specdec_error *error)
{
    return specdec__model_bind_joined_matrices(m, name, 1, rows, columns, required, out, found, error);
}

/* Copies values [first, first + size) of a vector of exactly `all` values into the arena, padded with zeros to a
   multiple of 16; with vectors > 1, all values of so many vectors. *out stays NULL if an optional tensor is missing.
   Values are not checked. Errors: FORMAT, UNSUPPORTED. */
static specdec_result specdec__model_copy_values(const specdec__model *m, const char *name, int all, int first,
                                                 int size, int vectors, int required, specdec__arena *arena,
                                                 const float **out, specdec_error *error)
{
    specdec__gguf_tensor t;
    const specdec__quant_type *type;
    float *values;
    int found;
    specdec_result result = specdec__model_find_tensor_or_fail(m, name, required, &t, &found, error);

    if (result || !found)
        return result;
    type = specdec__quant_find_type(t.type);
    if (!type || type->granule)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "tensor %s should be F32, F16 or BF16", name);
    if (vectors == 1 && t.shape[0] == 1) { /* a vector may be a matrix of one column */
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

/* Copies values as specdec__model_copy_values does, and checks that their magnitude is at most 1e16. Errors: FORMAT,
   UNSUPPORTED. */
static specdec_result specdec__model_copy_checked_values(const specdec__model *m, const char *name, int all, int first,
                                                         int size, int vectors, int required, specdec__arena *arena,
                                                         const float **out, specdec_error *error)
{
    const float *values = NULL;
    specdec_result result = specdec__model_copy_values(m, name, all, first, size, vectors, required, arena,
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

/* Copies a vector of exactly `size` values that the file has as a matrix with rows of `row` values; turned: 1: column
   by column. Errors: FORMAT, UNSUPPORTED. */
static specdec_result specdec__model_copy_vector_from_matrix(const specdec__model *m, const char *name, int size,
                                                             int row, int turned, int required, specdec__arena *arena,
                                                             const float **out, specdec_error *error)
{
    const specdec__quant_type *type;
    specdec__gguf_tensor t;
    float *values, one;
    int found, i, to;
    specdec_result result = specdec__model_find_tensor_or_fail(m, name, required, &t, &found, error);

    if (result || !found)
        return result;
    type = specdec__quant_find_type(t.type);
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

/* Copies a vector of exactly `size` values and checks them as specdec__model_copy_checked_values does. */
static specdec_result specdec__model_copy_vector(const specdec__model *m, const char *name, int size, int required,
                                                 specdec__arena *arena,
                                                 const float **out, specdec_error *error)
{
    return specdec__model_copy_checked_values(m, name, size, 0, size, 1, required, arena, out, error);
}

/* Writes the name of a layer's tensor: "blk.", the number of the layer, ".", the suffix. */
static void specdec__model_tensor_name(char *name, size_t size, int layer, const char *suffix)
{
    specdec__writer w = specdec__writer_to(name, size);

    specdec__write_string(&w, "blk.");
    specdec__write_number(&w, (unsigned long long)layer, 0);
    specdec__write_string(&w, ".");
    specdec__write_string(&w, suffix);
}

/* Returns the bytes of one tile, 16 rows, of a matrix. */
SPECDEC__INLINE size_t specdec__matrix_tile_bytes(const specdec__matrix *matrix)
{
    return matrix->row_bytes * SPECDEC__TILE_ROWS;
}
/* Returns the address in the file of the first row of tile t of a matrix. */
SPECDEC__INLINE const unsigned char *specdec__matrix_tile_in_file(const specdec__matrix *matrix, int t)
{
    const int place = matrix->run_tiles ? t / matrix->run_tiles * matrix->run_stride + t % matrix->run_tiles : t;

    return matrix->file + (size_t)place * specdec__matrix_tile_bytes(matrix);
}
/* Returns the number of tiles of a matrix. */
SPECDEC__INLINE int specdec__matrix_count_tiles(const specdec__matrix *matrix)
{
    return (matrix->rows + SPECDEC__TILE_ROWS - 1) / SPECDEC__TILE_ROWS;
}

/* Adds a matrix to the model's counts of bytes and multiply-adds. rows: how many of its rows a token reads. */
static void specdec__model_count_rows_read(specdec__model *m, const specdec__matrix *matrix, int rows)
{
    const size_t tiles = (size_t)specdec__matrix_count_tiles(matrix);

    m->weight_bytes += matrix->row_bytes * (size_t)rows;
    m->weight_products += (uint64_t)rows * (uint64_t)matrix->columns;
    m->tile_bytes = specdec__size_add(m->tile_bytes, /* tensors may overlap: the sum may exceed size_t */
                                      specdec__size_multiply(specdec__matrix_tile_bytes(matrix), tiles));
}

/* Adds a matrix to the model's counts, all of whose rows a token reads. */
static void specdec__model_count_whole_matrix(specdec__model *m, const specdec__matrix *matrix)
{
    specdec__model_count_rows_read(m, matrix, matrix->rows);
}

/* The tensor that holds a matrix or vector of a layer: a tensor of its own, or a fused one. */
typedef struct specdec__tensor_holder {
    const char *suffix;  /* the tensor's name behind "blk.N." */
    int rows, first_row; /* rows of the tensor; the first of them that is this matrix's or vector's own */
} specdec__tensor_holder;

/* Returns the tensor name, without "blk.N.", of matrix i (vectors = 0) or vector i (vectors = 1) of a layer, where it
   has a tensor of its own. size: the layer's dimensions. */
static const char *specdec__model_single_tensor_suffix(const specdec__model *m, int vectors, int i, const int *size)
{
    if (vectors)
        return specdec__vector_table[i == SPECDEC__FFN_NORM && m->trait[SPECDEC__FFN_NORM_AS]
                                         ? m->trait[SPECDEC__FFN_NORM_AS]
                                         : i].suffix;
    return size[SPECDEC__DIM_SHARED] && specdec__matrix_table[i].shared ? specdec__matrix_table[i].shared
                                                                        : specdec__matrix_table[i].suffix;
}

/* Returns the rows of matrix i, or the size of vector i, in a layer of these dimensions. */
static int specdec__model_tensor_rows(int vectors, int i, const int *size)
{
    return size[vectors ? specdec__vector_table[i].size : specdec__matrix_table[i].rows];
}

/* Whether a layer of these dimensions has a matrix i, or vector i, at all. */
static int specdec__model_dimensions_have_tensor(int vectors, int i, const int *size)
{
    return specdec__model_tensor_rows(vectors, i, size) && (vectors || size[specdec__matrix_table[i].columns]) &&
           (size[SPECDEC__DIM_OWN_KEYS] || !SPECDEC__HAS_BIT(specdec__key_tensors[vectors], i));
}

/* Whether the file has a tensor of a layer with this suffix; *rows: its rows, or its size if it is a vector. */
static int specdec__model_file_has_tensor(const specdec__model *m, int layer, const char *suffix, int vectors,
                                          uint64_t *rows)
{
    specdec__gguf_tensor t;
    char name[64];
    int found;

    specdec__model_tensor_name(name, sizeof name, layer, suffix);
    specdec__model_find_tensor_or_fail(m, name, 0, &t, &found, NULL);
    *rows = found ? t.shape[vectors ? 0 : 1] : 0;
    return found;
}

/* Whether the file has a fused tensor of a layer, with `all` rows, instead of one for each matrix. */
static int specdec__model_file_has_fused_tensor(const specdec__model *m, int layer, const specdec__fused *f,
                                                int vectors, int all, const int *size)
{
    const char *suffix = vectors ? f->bias : f->weight;
    uint64_t rows;

    return suffix && !(size[SPECDEC__DIM_SHARED] && specdec__matrix_table[f->matrix].shared) &&
           !specdec__model_file_has_tensor(
               m, layer, specdec__model_single_tensor_suffix(m, vectors, vectors ? f->vector : f->matrix, size),
               vectors, &rows) &&
           specdec__model_file_has_tensor(m, layer, suffix, vectors, &rows) &&
           (!f->shares_name || rows == (uint64_t)all);
}

/* Finds the tensor that holds matrix i, or vector i, of a layer: one of its own, or a fused one. */
static specdec__tensor_holder specdec__model_find_holder(const specdec__model *m, int layer, int vectors, int i,
                                                         const int *size)
{
    specdec__tensor_holder own;
    size_t k;
    int j;

    own.suffix = specdec__model_single_tensor_suffix(m, vectors, i, size);
    own.rows = specdec__model_tensor_rows(vectors, i, size);
    own.first_row = 0;
    for (k = 0; k < SPECDEC__COUNT(specdec__fused_table); k++) {
        const specdec__fused *f = &specdec__fused_table[k];
        const int from = vectors ? f->vector : f->matrix, to = from + f->count;
        specdec__tensor_holder fused = {vectors ? f->bias : f->weight, 0, 0};

        if (i < from || i >= to)
            continue;
        for (j = from; j < to; j++) {
            fused.first_row += j < i ? specdec__model_tensor_rows(vectors, j, size) : 0;
            fused.rows += specdec__model_tensor_rows(vectors, j, size);
        }
        if (specdec__model_file_has_fused_tensor(m, layer, f, vectors, fused.rows, size))
            return fused;
    }
    return own;
}

/* Binds the matrices of a layer of this shape; layer NULL: they are only checked and counted. Errors: FORMAT,
   UNSUPPORTED. */
static specdec_result specdec__model_bind_matrices(specdec__model *m, int index, const specdec__shape *shape,
                                                   const int *size, specdec__layer *layer, specdec_error *error)
{
    specdec__matrix counted;
    char name[64];
    int i, found;

    for (i = 0; i < SPECDEC__MATRICES; i++) {
        const int each = specdec__matrix_table[i].each;
        const int parts = each == SPECDEC__EACH_HEAD ? shape->heads : each ? shape->experts : 1;
        const int rows = specdec__model_tensor_rows(0, i, size);
        specdec__matrix *matrix = layer ? &layer->matrix[i] : &counted;
        specdec__tensor_holder holder;
        specdec_result result;

        if (!specdec__model_dimensions_have_tensor(0, i, size))
            continue;
        holder = specdec__model_find_holder(m, index, 0, i, size);
        specdec__model_tensor_name(name, sizeof name, index, holder.suffix);
        result = specdec__model_bind_joined_matrices(m, name, parts, holder.rows,
                                                     size[specdec__matrix_table[i].columns],
                                                     i != SPECDEC__V || !m->trait[SPECDEC__NORMED_VALUES], matrix,
                                                     &found, error);
        if (result)
            return result;
        if (!found && size[SPECDEC__DIM_K] != size[SPECDEC__DIM_V])
            return specdec__fail(error, SPECDEC_ERROR_FORMAT, "tensor %s is missing, and keys are no values of %d",
                                 name, size[SPECDEC__DIM_V]);
        if (!found)
            continue;
        matrix->rows = rows * parts;
        matrix->file += (size_t)holder.first_row * matrix->row_bytes;
        if (parts > 1 && rows < holder.rows) { /* rows of experts are multiples of 16 */
            matrix->run_tiles = rows / SPECDEC__TILE_ROWS;
            matrix->scale_tiles = matrix->scales ? matrix->run_tiles : 0;
            matrix->run_stride = holder.rows / SPECDEC__TILE_ROWS;
        }
        specdec__model_count_rows_read(m, matrix, rows * (each == SPECDEC__EACH_EXPERT ? m->chosen_experts : parts));
    }
    return SPECDEC_OK;
}

SPECDEC__FOR_SPEED
