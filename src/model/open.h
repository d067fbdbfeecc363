/* =====================================================================================================================
 * >>model/open: opens the file of a model, binds it, and repacks its matrices into tiles.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "../base/pool.h"
#include "../quant/types.h"
#include "../quant/tiles.h"
#include "../quant/planes.h"
#include "gguf.h"
#include "../text/load.h"
#include "../text/conversation.h"
#include "model.h"
#include "parts.h"
#include "facts.h"
#include "tensors.h"
#include "bind.h"
#include "heads.h"

SPECDEC__FOR_SIZE

/* Reads the sizes of a file of heads and binds its tensors. Errors: FORMAT, UNSUPPORTED. */
static specdec_result specdec__heads_bind(specdec__model *m, specdec__arena *arena, specdec_error *error)
{
    specdec__model_reader r = specdec__model_start_reading(m, error);
    specdec_result result;
    float *norm;
    int i, scaled;

    m->epsilon = 1e-6f;
    m->vocab_size = specdec__model_read_integer(&r, ".vocab_size", 1, 1 << 24, -1);
    m->embedding = specdec__model_read_integer(&r, ".embedding_length", 1, SPECDEC__MAX_DIMENSION, -1);
    m->feed_forward = specdec__model_read_integer(&r, ".inner_length", 1, SPECDEC__MAX_DIMENSION,
                                                  m->speculator->residual ? m->embedding : -1);
    m->head_count = specdec__model_read_integer(&r, ".n_predict", 1, SPECDEC__MAX_HEADS, -1);
    m->heads_tied = specdec__model_read_integer(&r, ".tie_weights", 0, 1, 0);
    scaled = specdec__model_read_integer(&r, ".scale_input", 0, 1, 0);
    if (m->speculator->residual)
        specdec__model_read_integer(&r, ".block_count", 1, 1, 1);
    if (!r.result && m->speculator->residual && (m->heads_tied || m->feed_forward != m->embedding))
        r.result = specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "heads of another width than the target's states");
    result = r.result ? r.result : specdec__model_read_short_vocabulary(m, "speculator.tokens", arena, error);
    if (result)
        return result;
    norm = scaled ? SPECDEC__TAKE(arena, float, m->embedding) : NULL;
    for (i = 0; norm && i < m->embedding; i++)
        norm[i] = 0.707106769f;
    m->input_norm = norm;
    m->layers = m->heads_tied ? specdec__min_int(m->head_count, 2) : m->head_count;
    m->layer = SPECDEC__TAKE(arena, specdec__layer, m->layers);
    for (i = 0; i < m->layers; i++)
        if ((result = specdec__heads_bind_head(m, i, arena, error)) != SPECDEC_OK)
            return result;
    return SPECDEC_OK;
}

#define SPECDEC__STREAM_MATRICES (2 * (SPECDEC__MAX_STREAMS - 1)) /* matrices of AltUp, both directions */

/* Returns matrix number i of a model: those of layers, of streams, of models that read states, of embeddings for
   layers, and the output matrix. Some layers and models lack some of these matrices: they have 0 rows. */
static specdec__matrix *specdec__model_matrix_by_number(specdec__model *m, int i)
{
    const int each = SPECDEC__MATRICES, in_layers = m->layers * each, rest = i - in_layers - SPECDEC__STREAM_MATRICES;

    return i < in_layers ? &m->layer[i / each].matrix[i % each]
           : rest < 0    ? &m->streams.matrix[(i - in_layers) % 2][(i - in_layers) / 2]
           : rest == 0   ? &m->reads.matrix
           : rest == 1   ? &m->reads.next_state
           : rest == 2   ? &m->layer_embeddings.matrix
           : rest == 3   ? &m->block.markov_out
           : rest == 4   ? &m->block.hidden
                         : &m->output;
}

/* Returns how many numbers specdec__model_matrix_by_number takes; *there: how many of these matrices have rows. */
static int specdec__model_count_matrices(specdec__model *m, int *there)
{
    const int count = m->layers * SPECDEC__MATRICES + SPECDEC__STREAM_MATRICES + 5 + !m->lacks_output;
    int i;

    for (*there = 0, i = 0; i < count; i++)
        *there += specdec__model_matrix_by_number(m, i)->rows > 0;
    return count;
}

#define SPECDEC__REPACK_PIECE (1 << 20) /* bytes of a mapped file that a thread repacks before it releases their
                                           memory */

/* Arguments of the threads that repack a model's matrices. */
typedef struct specdec__repack {
    specdec__model *model;       /* the model to repack */
    specdec__pool *pool;         /* the threads that repack */
    unsigned char *tile_memory;  /* memory for the tiles of all matrices */
    specdec__row_bounds *bounds; /* for the output matrix, if it is to lie in planes; else NULL */
    const specdec_hooks *hooks;  /* the caller's, for progress */
} specdec__repack;

/* Returns the rows of tile t of a matrix: 16, or fewer in the last tile. */
static int specdec__model_tile_rows(const specdec__matrix *matrix, int t)
{
    return specdec__min_int(SPECDEC__TILE_ROWS, matrix->rows - t * SPECDEC__TILE_ROWS);
}

/* Returns the offset of the upper planes of a matrix in the memory for its tiles; the lower planes come first. */
static size_t specdec__model_planes_offset(const specdec__matrix *matrix)
{
    return (size_t)specdec__matrix_count_tiles(matrix) * (size_t)(matrix->columns / 32) * SPECDEC__PLANE_LOWER;
}

/* Repacks tile t of a Q8_0 matrix into planes, and computes the bounds of its rows. */
static void specdec__model_repack_planes(const specdec__matrix *matrix, int t, const specdec__row_bounds *bounds,
                                         unsigned char *planes)
{
    const int blocks = matrix->columns / 32, rows = specdec__model_tile_rows(matrix, t);
    const size_t stride = (size_t)specdec__matrix_count_tiles(matrix) * SPECDEC__TILE_ROWS;
    const unsigned char *file = specdec__matrix_tile_in_file(matrix, t);
    unsigned char block[34 * SPECDEC__TILE_ROWS];
    uint16_t own[SPECDEC__PLANE_PARTS];
    int b, row, i;

    for (b = 0; b < blocks; b++) {
        specdec__quant_interleave(matrix->type, file + (size_t)b * 34, matrix->row_bytes, rows, 1, block);
        specdec__planes_split_block(block, (size_t)t * (size_t)blocks + (size_t)b, planes);
    }
    for (row = 0; row < SPECDEC__TILE_ROWS; row++) {
        memset(own, 0, sizeof own);
        if (row < rows)
            specdec__planes_compute_row_bounds(file + (size_t)row * matrix->row_bytes, blocks, bounds->part_of_column,
                                               own);
        for (i = 0; i < SPECDEC__PLANE_PARTS; i++)
            bounds->norm[(size_t)i * stride + (size_t)(t * SPECDEC__TILE_ROWS + row)] = own[i];
    }
}

/* Repacks tiles [from, end) of a matrix. out: memory for all its tiles. bounds: not NULL: into planes. is_mapped: the
   file is mapped: no more than SPECDEC__REPACK_PIECE bytes of it are kept in memory at a time. */
static void specdec__model_repack_tiles(const specdec__matrix *matrix, int from, int end, int is_mapped,
                                        const specdec__row_bounds *bounds, unsigned char *out)
{
    const size_t tile_bytes = specdec__matrix_tile_bytes(matrix);
    const size_t blocks = (size_t)matrix->columns / matrix->type->block;
    const int piece = specdec__max_int((int)(SPECDEC__REPACK_PIECE / tile_bytes), 1);
    const unsigned char *file;
    int next, t;

    for (; from < end; from = next) {
        file = specdec__matrix_tile_in_file(matrix, from);
        next = specdec__min_int(end, from + piece);
        for (t = from; t < next; t++)
            if (bounds)
                specdec__model_repack_planes(matrix, t, bounds, out + specdec__model_planes_offset(matrix));
            else
                specdec__quant_interleave(matrix->type, specdec__matrix_tile_in_file(matrix, t), matrix->row_bytes,
                                          specdec__model_tile_rows(matrix, t), blocks, out + (size_t)t * tile_bytes);
        t = next - 1;
        if (is_mapped)
            specdec__os_release_pages(file, (size_t)(specdec__matrix_tile_in_file(matrix, t) - file) +
                                            (size_t)specdec__model_tile_rows(matrix, t) * matrix->row_bytes);
    }
}

/* Whether the output matrix can be screened, and so is to lie in planes: its codes have eight bits, and it has enough
   rows that screening saves time, unless `always`. */
static int specdec__model_can_screen(const specdec__model *m, int always)
{
    const specdec__matrix *output = &m->output;

    return !m->lacks_output && output->type && output->type->number == SPECDEC__TYPE_Q8_0 && !output->scales &&
           output->rows >= (always ? 1 : SPECDEC__SCREEN_MIN_ROWS) && m->fact[SPECDEC__LOGIT_SCALE] > 0;
}

/* Returns the bytes of memory for the row bounds (specdec__row_bounds) of a matrix that is split into two planes. */
static size_t specdec__model_row_bounds_bytes(const specdec__matrix *matrix)
{
    return (size_t)specdec__matrix_count_tiles(matrix) * SPECDEC__TILE_ROWS * SPECDEC__PLANE_PARTS * sizeof(uint16_t);
}

/* Attaches the bounds of its rows to an output matrix that lies in planes. */
static void specdec__model_bind_bounds(specdec__matrix *matrix, specdec__row_bounds *bounds)
{
    const size_t stride = (size_t)specdec__matrix_count_tiles(matrix) * SPECDEC__TILE_ROWS;
    size_t i;
    int part;

    matrix->bounds = bounds;
    matrix->tiles += specdec__model_planes_offset(matrix);
    for (part = 0; part < SPECDEC__PLANE_PARTS; part++)
        for (i = 0, bounds->largest[part] = 0; i < stride; i++) {
            const float own = specdec__float_from_bf16(bounds->norm[(size_t)part * stride + i]);

            bounds->largest[part] = own > bounds->largest[part] ? own : bounds->largest[part];
        }
}

/* Repacks a thread's share of all matrices, a function of the thread pool. */
static void specdec__model_repack_worker(void *argument, int thread)
{
    specdec__repack *job = (specdec__repack *)argument;
    specdec__model *m = job->model;
    unsigned char *out = job->tile_memory;
    int there, done = 0, i;
    const int count = specdec__model_count_matrices(m, &there);

    for (i = 0; i < count; i++) {
        specdec__matrix *matrix = specdec__model_matrix_by_number(m, i);
        size_t tile_bytes = specdec__matrix_tile_bytes(matrix);
        int tiles = specdec__matrix_count_tiles(matrix), from, end = 0;

        if (!tiles)
            continue;
        done++;
        while ((from = specdec__pool_claim_items(job->pool, tiles, 8, &end)) < tiles)
            specdec__model_repack_tiles(matrix, from, end, m->mapped.data != NULL,
                                        matrix == &m->output ? job->bounds : NULL, out);
        if (specdec__pool_barrier(job->pool))
            return;
        if (thread == 0) {
            matrix->tiles = out;
            if (matrix == &m->output && job->bounds)
                specdec__model_bind_bounds(matrix, job->bounds);
            if (job->hooks->progress && job->hooks->progress(job->hooks->user_data, "repack", done, there))
                SPECDEC__STORE(job->pool->cancel, 1);
        }
        out += tile_bytes * (size_t)tiles;
    }
}

/* Repacks all matrices of a step into tiles, as many bytes as in the file plus padding to 16 rows. screening: 1: the
   output matrix into planes if that saves time; 2: if it is possible; 0: never. Errors: CANCELLED. */
static specdec_result specdec__model_repack_matrices(specdec__model *m, int screening, specdec__arena *arena,
                                                     specdec__pool *pool, const specdec_hooks *hooks,
                                                     specdec_error *error)
{
    const int planes = screening && specdec__model_can_screen(m, screening > 1);
    specdec__row_bounds *bounds = planes ? SPECDEC__TAKE(arena, specdec__row_bounds, 1) : NULL;
    unsigned char *part = planes ? SPECDEC__TAKE(arena, unsigned char, m->output.columns) : NULL;
    uint16_t *norm = planes ? (uint16_t *)specdec__arena_reserve(arena, specdec__model_row_bounds_bytes(&m->output), 1,
                                                                 SPECDEC__CACHE_LINE)
                            : NULL;
    specdec__repack job;

    job.tile_memory = (unsigned char *)specdec__arena_reserve(arena, m->tile_bytes, 1, SPECDEC__CACHE_LINE);
    if (!job.tile_memory)
        return SPECDEC_OK;
    specdec__os_use_large_pages(job.tile_memory, m->tile_bytes);
    job.bounds = bounds;
    if (bounds) {
        bounds->norm = norm;
        bounds->part_of_column = part;
        specdec__planes_divide_columns(m->output_norm, m->output.columns, part);
    }
    job.model = m;
    job.pool = pool;
    job.hooks = hooks;
    if (specdec__pool_run(pool, pool->threads, specdec__model_repack_worker, &job))
        return specdec__fail(error, SPECDEC_ERROR_CANCELLED, "cancelled while repacking");
    if (m->mapped.data)
        specdec__os_release_pages(m->mapped.data, m->mapped.size);
    return SPECDEC_OK;
}

/* Opens all files of a model in several files, of which the first is mapped, as specdec__model_load_file opens one.
   *file becomes the first one's bytes. Errors: FILE, FORMAT, UNSUPPORTED. */
static specdec_result specdec__model_open_parts(specdec__model *m, const specdec_source *source, int count,
                                                specdec__arena *arena, specdec__bytes *file, specdec_error *error)
{
    char name[SPECDEC__MAX_PART_PATH_BYTES];
    unsigned char *room = NULL;
    specdec_result result = SPECDEC_OK;
    int i;

    specdec__os_unmap_file(&m->mapped);
    for (i = 0; i < count && !result; i++) {
        result = specdec__part_write_path(source->path, i, count, name, error);
        if (result)
            return specdec__os_prefix_error(source->path, result, error);
        result = specdec__part_check_file(m, name, i, count, &m->part_bytes, error);
    }
    if (result)
        return result;
    if (source->copy)
        room = (unsigned char *)specdec__arena_reserve(arena, m->part_bytes, 1, SPECDEC__CACHE_LINE);
    file->data = room;
    if (!room) {
        file->data = m->mapped.data = m->part_bytes > SIZE_MAX / 2 ? NULL
                                                                   : specdec__os_find_free_addresses(m->part_bytes);
        m->mapped.size = m->part_bytes;
    }
    if (!file->data)
        return specdec__fail(error, SPECDEC_ERROR_FILE, "%s and its parts are too large to map", source->path);
    m->file_count = count;
    return specdec__parts_load(m, source->path, (unsigned char *)(uintptr_t)file->data, !room, error);
}

/* Maps the file of a model, or copies it into the arena (source->copy); while the arena only counts, it is mapped in
   any case. whole: 1: with all files of a model in several files; 0: the first one alone. Errors: FILE, FORMAT,
   UNSUPPORTED. */
static specdec_result specdec__model_load_file(specdec__model *m, const specdec_source *source, int whole,
                                               specdec__arena *arena, specdec__bytes *file, specdec_error *error)
{
    int number = 0, count = 1;
    specdec_result result = specdec__os_map_whole_file(&m->mapped, source->path, error);
    unsigned char *room = NULL;

    *file = m->mapped;
    if (SPECDEC__HAS_FILES && !result && whole && !specdec__gguf_find_sections(&m->gguf, *file, NULL) &&
        !specdec__part_read_number(&m->gguf, &number, &count, NULL) && count > 1 && !number)
        return specdec__model_open_parts(m, source, count, arena, file, error);
    if (!result && source->copy)
        room = (unsigned char *)specdec__arena_reserve(arena, file->size, 1, SPECDEC__CACHE_LINE);
    if (!room)
        return result;
    file->data = room;
    specdec__os_unmap_file(&m->mapped);
    return specdec__os_read_file_start(room, file->size, source->path, error);
}

/* Reads the chat template and recognises its format. Of the memory this takes, only the format's texts stay; *beyond:
   where the rest ended. */
static specdec_result specdec__model_recognise_chat(specdec__model *m, specdec__arena *arena, size_t *beyond,
                                                    specdec_error *error)
{
    specdec_result result = specdec__gguf_get_string(&m->gguf, "tokenizer.chat_template", &m->chat_template, error);
    specdec__chat_recognition *found;
    specdec__chat_work *work;
    void *memory;
    size_t bytes, from;

    if (!SPECDEC__HAS_CHAT_TEMPLATES || result || !m->chat_template.data)
        return result;
    bytes = specdec__template_memory_needed(m->chat_template.size);
    found = SPECDEC__TAKE(arena, specdec__chat_recognition, 1);
    from = arena->used;
    work = SPECDEC__TAKE(arena, specdec__chat_work, 1);
    memory = specdec__arena_reserve(arena, bytes, 1, SPECDEC__CACHE_LINE);
    if (arena->base && arena->used != SIZE_MAX) {
        work->found = found;
        work->memory = memory;
        work->memory_bytes = bytes;
        specdec__chat_recognise_template(work, m->chat_template, &m->vocab);
        specdec__conversation_find_call_format(work, m->chat_template, &m->vocab);
        m->chat = &found->chat;
    }
    *beyond = specdec__arena_rewind(arena, from);
    return SPECDEC_OK;
}

/* Returns how many letters a name begins with: 4 for "qwen35moe". */
static size_t specdec__model_count_leading_letters(specdec__bytes name)
{
    size_t n = 0;

    while (n < name.size && name.data[n] >= 'a' && name.data[n] <= 'z')
        n++;
    return n;
}

/* Returns the error for an unknown architecture; its text lists known architectures whose names begin alike. */
static specdec_result specdec__model_refuse_architecture(specdec__bytes name, specdec_error *error)
{
    const size_t family = specdec__model_count_leading_letters(name), alike = family < 5 ? family : 5;
    char near_it[128];
    specdec__writer w = specdec__writer_to(near_it, sizeof near_it);
    size_t i;

    near_it[0] = 0;
    for (i = 0; family > 1 && i < SPECDEC__COUNT(specdec__architectures); i++) {
        const char *known = specdec__architectures[i].name;

        if (strlen(known) < alike || memcmp(known, name.data, alike) != 0)
            continue;
        specdec__write_string(&w, near_it[0] ? ", " : "");
        specdec__write_string(&w, known);
    }
    return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "architecture \"%.*s\" is not known (%s%s)",
                         specdec__gguf_shown_bytes(name), name.data ? (const char *)name.data : "",
                         near_it[0] ? "of its family: " : "none of its family is", near_it);
}

/* Checks the GGUF in `file`, and those of all files of the model. Errors: FORMAT, UNSUPPORTED. */
static specdec_result specdec__model_check_files(specdec__model *m, specdec__bytes file, int vocabulary_only,
                                                 specdec_error *error)
{
    int number = 0, count = 1;
    char suffix[32];
    specdec__writer w = specdec__writer_to(suffix, sizeof suffix);
    specdec_result result;

    if ((result = m->file_count > 1 ? specdec__gguf_find_sections(&m->gguf, file, error)
                               : specdec__gguf_open(&m->gguf, file, error)) != SPECDEC_OK ||
        (result = specdec__part_read_number(&m->gguf, &number, &count, error)) != SPECDEC_OK)
        return result;
    if (m->file_count > 1)
        return specdec__parts_check_duplicates(m, error);
    m->file_count = 1;
    m->tensors = (int)m->gguf.tensor_count;
    if (count == 1 || (vocabulary_only && !number))
        return SPECDEC_OK;
    specdec__part_write_suffix(&w, 1, count);
    return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                         "part %d of a model split into %d files: give the path of the first, which ends in %s",
                         number + 1, count, suffix);
}

/* How a rank of a cluster chooses its layers: `choose` sets m->first_layer, m->layers and m->lacks_output;
   m->all_layers is known. */
typedef struct specdec__layer_choice {
    specdec_result (*choose)(specdec__model *m, const specdec_cluster *cluster, specdec_error *error);
    const specdec_cluster *cluster; /* argument of choose */
} specdec__layer_choice;

/* Reads and binds the model in `file`; arguments and errors as for specdec__model_init. */
static specdec_result specdec__model_parse(specdec__model *m, specdec__bytes file, int vocabulary_only,
                                           const specdec__layer_choice *cut, specdec__arena *arena,
                                           specdec_error *error)
{
    specdec_result result;
    specdec__bytes name;
    size_t i, beyond = 0;

    if ((result = specdec__model_check_files(m, file, vocabulary_only, error)) != SPECDEC_OK ||
        (result = specdec__gguf_get_string(&m->gguf, "general.architecture", &name, error)) != SPECDEC_OK)
        return result;
    for (i = 0; i < SPECDEC__COUNT(specdec__architectures); i++)
        if (specdec__bytes_equal_string(name, specdec__architectures[i].name))
            specdec__model_set_architecture(m, &specdec__architectures[i]);
    for (i = 0; i < SPECDEC__COUNT(specdec__heads_kinds); i++)
        if (specdec__bytes_equal_string(name, specdec__heads_kinds[i].name))
            m->speculator = &specdec__heads_kinds[i];
    if (!SPECDEC__HAS_STATE_DRAFTERS && (m->speculator || m->trait[SPECDEC__READS_STATES]))
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "heads are left out of this build by SPECDEC_NO_HEADS");
    if (SPECDEC__HAS_STATE_DRAFTERS && m->speculator)
        return !vocabulary_only ? specdec__heads_bind(m, arena, error)
                                : specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "a file of heads has no vocabulary");
    if (vocabulary_only) { /* whatever the architecture */
        if ((result = specdec__vocab_init(&m->vocab, &m->gguf, arena, error)) != SPECDEC_OK)
            return result;
        result = specdec__model_recognise_chat(m, arena, &beyond, error);
        specdec__arena_skip_to(arena, beyond);
        return result;
    }
    if (!m->architecture)
        return specdec__model_refuse_architecture(name, error);
    if ((result = specdec__model_read_sizes(m, error)) != SPECDEC_OK ||
        (result = specdec__model_read_recurrent_sizes(m, error)) != SPECDEC_OK ||
        (result = specdec__model_read_facts(m, error)) != SPECDEC_OK ||
        (result = specdec__model_check_layers(m, error)) != SPECDEC_OK ||
        (result = specdec__model_refuse_unsupported_keys(m, error)) != SPECDEC_OK ||
        (result = specdec__vocab_init(&m->vocab, &m->gguf, arena, error)) != SPECDEC_OK ||
        (result = specdec__model_recognise_chat(m, arena, &beyond, error)) != SPECDEC_OK)
        return result;
    if (SPECDEC__PIPE && cut && (result = cut->choose(m, cut->cluster, error)) != SPECDEC_OK)
        return result;
    result = specdec__model_bind(m, arena, error);
    specdec__arena_skip_to(arena, beyond);
    return result;
}

/* Opens and binds a model from a path or from memory. While the arena only counts, *model is complete except for
   tensors in the arena, and the caller releases it with specdec__model_deinit. vocabulary_only: 1: without weights.
   cut: NULL: all layers. Errors: ARGUMENT, FILE, FORMAT, UNSUPPORTED. */
static specdec_result specdec__model_init(specdec__model *m, const specdec_source *source, int vocabulary_only,
                                          const specdec__layer_choice *cut, specdec__arena *arena, specdec_error *error)
{
    specdec_result result;
    specdec__bytes file;

    memset(m, 0, sizeof *m);
    file.data = (const unsigned char *)source->data;
    file.size = source->size;
    if (!file.data) {
        if (!source->path)
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "a model needs a path or data");
        result = specdec__model_load_file(m, source, !vocabulary_only, arena, &file, error);
        if (result)
            return result;
    }
    result = specdec__model_parse(m, file, vocabulary_only, cut, arena, error);
    return result && !source->data ? specdec__os_prefix_error(source->path, result, error) : result;
}

/* Unmaps the files of a model. */
static void specdec__model_deinit(specdec__model *m)
{
    specdec__os_unmap_file(&m->mapped);
}

SPECDEC__FOR_SPEED
