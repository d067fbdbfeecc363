/* =====================================================================================================================
 * >>model/open: opens, parses and repacks a model.
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

static specdec_result specdec__heads_bind(specdec__model *m, specdec__arena *arena, specdec_error *error)
{
    specdec__model_reader r = specdec__model_read(m, error);
    specdec_result result;
    float *norm;
    int i, scaled;

    m->epsilon = 1e-6f;
    m->vocab_size = specdec__model_count(&r, ".vocab_size", 1, 1 << 24, -1);
    m->embedding = specdec__model_count(&r, ".embedding_length", 1, SPECDEC__MAX_DIMENSION, -1);
    m->feed_forward = specdec__model_count(&r, ".inner_length", 1, SPECDEC__MAX_DIMENSION,
                                           m->speculator->adds ? m->embedding : -1);
    m->guesses = specdec__model_count(&r, ".n_predict", 1, SPECDEC__MAX_HEADS, -1);
    m->tied = specdec__model_count(&r, ".tie_weights", 0, 1, 0);
    scaled = specdec__model_count(&r, ".scale_input", 0, 1, 0);
    if (m->speculator->adds)
        specdec__model_count(&r, ".block_count", 1, 1, 1);
    if (!r.result && m->speculator->adds && (m->tied || m->feed_forward != m->embedding))
        r.result = specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "heads of another width than the target's states");
    result = r.result ? r.result : specdec__model_ids(m, "speculator.tokens", arena, error);
    if (result)
        return result;
    norm = scaled ? SPECDEC__TAKE(arena, float, m->embedding) : NULL;
    for (i = 0; norm && i < m->embedding; i++)
        norm[i] = 0.707106769f;
    m->input_norm = norm;
    m->layers = m->tied ? specdec__min_int(m->guesses, 2) : m->guesses;
    m->layer = SPECDEC__TAKE(arena, specdec__layer, m->layers);
    for (i = 0; i < m->layers; i++)
        if ((result = specdec__heads_layer(m, i, arena, error)) != SPECDEC_OK)
            return result;
    return SPECDEC_OK;
}

#define SPECDEC__STREAM_MATRICES (2 * (SPECDEC__MOST_STREAMS - 1))

/* Every matrix of a step, by number: those of layers, of streams, those of what is read, that of embeddings for layers,
   and the output head. Layers, and parts of a model, lack some of them: these have no rows here. */
static specdec__matrix *specdec__model_matrix_at(specdec__model *m, int i)
{
    const int each = SPECDEC__MATRICES, in_layers = m->layers * each, rest = i - in_layers - SPECDEC__STREAM_MATRICES;

    return i < in_layers ? &m->layer[i / each].matrix[i % each]
           : rest < 0    ? &m->streams.matrix[(i - in_layers) % 2][(i - in_layers) / 2]
           : rest == 0   ? &m->reads.matrix
           : rest == 1   ? &m->reads.out
           : rest == 2   ? &m->inputs.matrix
           : rest == 3   ? &m->block.markov_out
           : rest == 4   ? &m->block.hidden
                         : &m->output;
}

/* How many numbers specdec__model_matrix_at has; *there: how many of them are of matrices with rows. */
static int specdec__model_numbers(specdec__model *m, int *there)
{
    const int count = m->layers * SPECDEC__MATRICES + SPECDEC__STREAM_MATRICES + 5 + !m->bare;
    int i;

    for (*there = 0, i = 0; i < count; i++)
        *there += specdec__model_matrix_at(m, i)->rows > 0;
    return count;
}

#define SPECDEC__REPACK_PIECE (1 << 20) /* bytes of a mapped file that a thread repacks before it gives them back */

typedef struct specdec__repack {
    specdec__model *model;
    specdec__pool *pool;
    unsigned char *tiles;
    specdec__row_bounds *bounds; /* of the output matrix, which is to lie in planes; NULL: it is not */
    const specdec_hooks *hooks;
} specdec__repack;

/* Rows of a matrix that tile t holds. */
static int specdec__model_tile_rows(const specdec__matrix *matrix, int t)
{
    return specdec__min_int(SPECDEC__TILE_ROWS, matrix->rows - t * SPECDEC__TILE_ROWS);
}

/* Where the upper planes of a matrix begin in the room for its tiles. */
static size_t specdec__model_planes_at(const specdec__matrix *matrix)
{
    return (size_t)specdec__matrix_tiles(matrix) * (size_t)(matrix->columns / 32) * SPECDEC__PLANE_LOWER;
}

/* Repacks tile t of a matrix, of Q8_0, into planes, and works out the bounds of its rows. */
static void specdec__model_repack_planes(const specdec__matrix *matrix, int t, const specdec__row_bounds *bounds,
                                         unsigned char *planes)
{
    const int blocks = matrix->columns / 32, rows = specdec__model_tile_rows(matrix, t);
    const size_t stride = (size_t)specdec__matrix_tiles(matrix) * SPECDEC__TILE_ROWS;
    const unsigned char *file = specdec__matrix_at(matrix, t);
    unsigned char block[34 * SPECDEC__TILE_ROWS];
    uint16_t own[SPECDEC__PLANE_PARTS];
    int b, row, i;

    for (b = 0; b < blocks; b++) {
        specdec__quant_interleave(matrix->type, file + (size_t)b * 34, matrix->row_bytes, rows, 1, block);
        specdec__planes_split(block, (size_t)t * (size_t)blocks + (size_t)b, planes);
    }
    for (row = 0; row < SPECDEC__TILE_ROWS; row++) {
        memset(own, 0, sizeof own);
        if (row < rows)
            specdec__planes_bound(file + (size_t)row * matrix->row_bytes, blocks, bounds->part, own);
        for (i = 0; i < SPECDEC__PLANE_PARTS; i++)
            bounds->norm[(size_t)i * stride + (size_t)(t * SPECDEC__TILE_ROWS + row)] = own[i];
    }
}

/* Repacks tiles [from, end) of a matrix to `out`, where its first tile goes; bounds: NULL, or it is to lie in planes.
   Of a file that was mapped for this, no more than a piece is in memory at a time. */
static void specdec__model_repack_tiles(const specdec__matrix *matrix, int from, int end, int is_mapped,
                                        const specdec__row_bounds *bounds, unsigned char *out)
{
    const size_t tile_bytes = specdec__matrix_tile_bytes(matrix);
    const size_t blocks = (size_t)matrix->columns / matrix->type->block;
    const int piece = specdec__max_int((int)(SPECDEC__REPACK_PIECE / tile_bytes), 1);
    const unsigned char *file;
    int next, t;

    for (; from < end; from = next) {
        file = specdec__matrix_at(matrix, from);
        next = specdec__min_int(end, from + piece);
        for (t = from; t < next; t++)
            if (bounds)
                specdec__model_repack_planes(matrix, t, bounds, out + specdec__model_planes_at(matrix));
            else
                specdec__quant_interleave(matrix->type, specdec__matrix_at(matrix, t), matrix->row_bytes,
                                          specdec__model_tile_rows(matrix, t), blocks, out + (size_t)t * tile_bytes);
        t = next - 1;
        if (is_mapped)
            specdec__os_release_pages(file, (size_t)(specdec__matrix_at(matrix, t) - file) +
                                      (size_t)specdec__model_tile_rows(matrix, t) * matrix->row_bytes);
    }
}

/* Whether the output matrix is to lie in planes, so that most of its rows need not be read whole: rows of a type whose
   codes have eight bits, that are many (few cost little, and less than to screen them), or `always`. Capped logits may
   be equal where products are not. */
static int specdec__model_screens(const specdec__model *m, int always)
{
    const specdec__matrix *output = &m->output;

    return !m->bare && output->type && output->type->number == SPECDEC__TYPE_Q8_0 && !output->scales &&
           output->rows >= (always ? 1 : SPECDEC__SCREEN_MIN_ROWS) && !(m->fact[SPECDEC__LOGIT_CAP] > 0) &&
           m->fact[SPECDEC__LOGIT_SCALE] > 0;
}

/* Bytes of what planes need besides tiles. */
static size_t specdec__model_bound_bytes(const specdec__matrix *matrix)
{
    return (size_t)specdec__matrix_tiles(matrix) * SPECDEC__TILE_ROWS * SPECDEC__PLANE_PARTS * sizeof(uint16_t);
}

/* Gives an output matrix that is stored in planes the bounds of its rows. */
static void specdec__model_bind_bounds(specdec__matrix *matrix, specdec__row_bounds *bounds)
{
    const size_t stride = (size_t)specdec__matrix_tiles(matrix) * SPECDEC__TILE_ROWS;
    size_t i;
    int part;

    matrix->bounds = bounds;
    matrix->tiles += specdec__model_planes_at(matrix);
    for (part = 0; part < SPECDEC__PLANE_PARTS; part++)
        for (i = 0, bounds->most[part] = 0; i < stride; i++) {
            const float own = specdec__float_from_bf16(bounds->norm[(size_t)part * stride + i]);

            bounds->most[part] = own > bounds->most[part] ? own : bounds->most[part];
        }
}

static void specdec__model_repack_worker(void *argument, int thread)
{
    specdec__repack *job = (specdec__repack *)argument;
    specdec__model *m = job->model;
    unsigned char *out = job->tiles;
    int there, done = 0, i;
    const int count = specdec__model_numbers(m, &there);

    for (i = 0; i < count; i++) {
        specdec__matrix *matrix = specdec__model_matrix_at(m, i);
        size_t tile_bytes = specdec__matrix_tile_bytes(matrix);
        int tiles = specdec__matrix_tiles(matrix), from, end = 0;

        if (!tiles)
            continue;
        done++;
        while ((from = specdec__pool_claim(job->pool, tiles, 8, &end)) < tiles)
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

/* Rewrites all matrices of a step into tiles: as many bytes as in the file, plus padding to 16 rows. screening: 1: the
   output matrix into planes, where that pays; 2: wherever it can be. */
static specdec_result specdec__model_repack(specdec__model *m, int screening, specdec__arena *arena,
                                            specdec__pool *pool, const specdec_hooks *hooks, specdec_error *error)
{
    const int planes = screening && specdec__model_screens(m, screening > 1);
    specdec__row_bounds *bounds = planes ? SPECDEC__TAKE(arena, specdec__row_bounds, 1) : NULL;
    unsigned char *part = planes ? SPECDEC__TAKE(arena, unsigned char, m->output.columns) : NULL;
    uint16_t *norm = planes ? (uint16_t *)specdec__arena_reserve(arena, specdec__model_bound_bytes(&m->output), 1,
                                                                 SPECDEC__CACHE_LINE)
                            : NULL;
    specdec__repack job;

    job.tiles = (unsigned char *)specdec__arena_reserve(arena, m->tile_bytes, 1, SPECDEC__CACHE_LINE);
    if (!job.tiles)
        return SPECDEC_OK;
    specdec__os_use_large_pages(job.tiles, m->tile_bytes);
    job.bounds = bounds;
    if (bounds) {
        bounds->norm = norm;
        bounds->part = part;
        specdec__planes_parts(m->output_norm, m->output.columns, part);
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

/* The parts behind the first one, which is mapped, as specdec__model_open brings a single file. *file becomes the first
   part where it lies then. */
static specdec_result specdec__model_open_parts(specdec__model *m, const specdec_source *source, int count,
                                                specdec__arena *arena, specdec__bytes *file, specdec_error *error)
{
    char name[SPECDEC__PART_PATH];
    unsigned char *room = NULL;
    specdec_result result = SPECDEC_OK;
    int i;

    specdec__os_unmap(&m->mapped);
    for (i = 0; i < count && !result; i++) {
        result = specdec__part_path(source->path, i, count, name, error);
        if (result)
            return specdec__os_prefix_error(source->path, result, error);
        result = specdec__part_check(m, name, i, count, &m->part_bytes, error);
    }
    if (result)
        return result;
    if (source->copy)
        room = (unsigned char *)specdec__arena_reserve(arena, m->part_bytes, 1, SPECDEC__CACHE_LINE);
    file->data = room;
    if (!room) {
        file->data = m->mapped.data = m->part_bytes > SIZE_MAX / 2 ? NULL : specdec__os_find_addresses(m->part_bytes);
        m->mapped.size = m->part_bytes;
    }
    if (!file->data)
        return specdec__fail(error, SPECDEC_ERROR_FILE, "%s and its parts are too large to map", source->path);
    m->parts = count;
    return specdec__parts_bring(m, source->path, (unsigned char *)(uintptr_t)file->data, !room, error);
}

/* A file, or several, mapped or copied into the arena. While the arena only counts, they are mapped in both cases.
   whole: all parts of it; else the first will do. */
static specdec_result specdec__model_open(specdec__model *m, const specdec_source *source, int whole,
                                          specdec__arena *arena, specdec__bytes *file, specdec_error *error)
{
    int number = 0, count = 1;
    specdec_result result = specdec__os_map(&m->mapped, source->path, error);
    unsigned char *room = NULL;

    *file = m->mapped;
    if (SPECDEC__FILES && !result && whole && !specdec__gguf_lay_out(&m->gguf, *file, NULL) &&
        !specdec__part_number(&m->gguf, &number, &count, NULL) && count > 1 && !number)
        return specdec__model_open_parts(m, source, count, arena, file, error);
    if (!result && source->copy)
        room = (unsigned char *)specdec__arena_reserve(arena, file->size, 1, SPECDEC__CACHE_LINE);
    if (!room)
        return result;
    file->data = room;
    specdec__os_unmap(&m->mapped);
    return specdec__os_read(room, file->size, source->path, error);
}

/* Reads the chat template, and recognises it, with memory that is given back but for what its texts are; *beyond: where
   it ended. */
static specdec_result specdec__model_chat(specdec__model *m, specdec__arena *arena, size_t *beyond,
                                          specdec_error *error)
{
    specdec_result result = specdec__gguf_get_string(&m->gguf, "tokenizer.chat_template", &m->chat_template, error);
    specdec__chat_found *found;
    specdec__chat_work *work;
    void *memory;
    size_t bytes, from;

    if (!SPECDEC__TEMPLATES || result || !m->chat_template.data)
        return result;
    bytes = specdec__template_room(m->chat_template.size);
    found = SPECDEC__TAKE(arena, specdec__chat_found, 1);
    from = arena->used;
    work = SPECDEC__TAKE(arena, specdec__chat_work, 1);
    memory = specdec__arena_reserve(arena, bytes, 1, SPECDEC__CACHE_LINE);
    if (arena->base && arena->used != SIZE_MAX) {
        work->found = found;
        work->memory = memory;
        work->bytes = bytes;
        specdec__chat_recognise(work, m->chat_template, &m->vocab);
        specdec__conversation_find_format(work, m->chat_template, &m->vocab);
        m->chat = &found->chat;
    }
    *beyond = specdec__arena_rewind(arena, from);
    return SPECDEC_OK;
}

/* Letters that a name begins with: "qwen" of "qwen35moe". */
static size_t specdec__model_family(specdec__bytes name)
{
    size_t n = 0;

    while (n < name.size && name.data[n] >= 'a' && name.data[n] <= 'z')
        n++;
    return n;
}

/* Refuses an architecture that is not known, and names those of its family that are. */
static specdec_result specdec__model_unknown(specdec__bytes name, specdec_error *error)
{
    const size_t family = specdec__model_family(name), alike = family < 5 ? family : 5;
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
                         specdec__gguf_cut(name), name.data ? (const char *)name.data : "",
                         near_it[0] ? "of its family: " : "none of its family is", near_it);
}

/* Checks the GGUF in file, and all parts of the model. */
static specdec_result specdec__model_files(specdec__model *m, specdec__bytes file, int vocabulary_only,
                                           specdec_error *error)
{
    int number = 0, count = 1;
    char suffix[32];
    specdec__writer w = specdec__writer_to(suffix, sizeof suffix);
    specdec_result result;

    if ((result = m->parts > 1 ? specdec__gguf_lay_out(&m->gguf, file, error)
                               : specdec__gguf_open(&m->gguf, file, error)) != SPECDEC_OK ||
        (result = specdec__part_number(&m->gguf, &number, &count, error)) != SPECDEC_OK)
        return result;
    if (m->parts > 1)
        return specdec__parts_twice(m, error);
    m->parts = 1;
    m->tensors = (int)m->gguf.tensor_count;
    if (count == 1 || (vocabulary_only && !number))
        return SPECDEC_OK;
    specdec__part_suffix(&w, 1, count);
    return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                         "part %d of a model split into %d files: give the path of the first, which ends in %s",
                         number + 1, count, suffix);
}

/* Chooses the layers of a model that are wanted: m->first and m->layers of m->all, and whether it is m->bare. */
typedef struct specdec__model_cut {
    specdec_result (*cut)(specdec__model *m, const specdec_cluster *cluster, specdec_error *error);
    const specdec_cluster *cluster;
} specdec__model_cut;

/* Binds the GGUF in file to a model. Its arguments are those of specdec__model_init. */
static specdec_result specdec__model_parse(specdec__model *m, specdec__bytes file, int vocabulary_only,
                                           const specdec__model_cut *cut, specdec__arena *arena, specdec_error *error)
{
    specdec_result result;
    specdec__bytes name;
    size_t i, beyond = 0;

    if ((result = specdec__model_files(m, file, vocabulary_only, error)) != SPECDEC_OK ||
        (result = specdec__gguf_get_string(&m->gguf, "general.architecture", &name, error)) != SPECDEC_OK)
        return result;
    for (i = 0; i < SPECDEC__COUNT(specdec__architectures); i++)
        if (specdec__bytes_are(name, specdec__architectures[i].name))
            specdec__model_is(m, &specdec__architectures[i]);
    for (i = 0; i < SPECDEC__COUNT(specdec__heads_kinds); i++)
        if (specdec__bytes_are(name, specdec__heads_kinds[i].name))
            m->speculator = &specdec__heads_kinds[i];
    if (!SPECDEC__HEADS && (m->speculator || m->trait[SPECDEC__READS_STATES]))
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "heads are left out of this build by SPECDEC_NO_HEADS");
    if (SPECDEC__HEADS && m->speculator)
        return !vocabulary_only ? specdec__heads_bind(m, arena, error)
                                : specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "a file of heads has no vocabulary");
    if (vocabulary_only) { /* whatever the architecture */
        if ((result = specdec__vocab_init(&m->vocab, &m->gguf, arena, error)) != SPECDEC_OK)
            return result;
        result = specdec__model_chat(m, arena, &beyond, error);
        specdec__arena_skip_to(arena, beyond);
        return result;
    }
    if (!m->architecture)
        return specdec__model_unknown(name, error);
    if ((result = specdec__model_shape(m, error)) != SPECDEC_OK ||
        (result = specdec__model_mixing(m, error)) != SPECDEC_OK ||
        (result = specdec__model_facts(m, error)) != SPECDEC_OK ||
        (result = specdec__model_layers(m, error)) != SPECDEC_OK ||
        (result = specdec__model_demands(m, error)) != SPECDEC_OK ||
        (result = specdec__vocab_init(&m->vocab, &m->gguf, arena, error)) != SPECDEC_OK ||
        (result = specdec__model_chat(m, arena, &beyond, error)) != SPECDEC_OK)
        return result;
    if (SPECDEC__PIPE && cut && (result = cut->cut(m, cut->cluster, error)) != SPECDEC_OK)
        return result;
    result = specdec__model_bind(m, arena, error);
    specdec__arena_skip_to(arena, beyond);
    return result;
}

/* Opens and binds a model from a path or from memory. While the arena counts, *model is complete but for what lies in
   the arena, and the mapping stays the caller's to release with specdec__model_deinit. vocabulary_only: without
   weights. cut: NULL: all layers are wanted. */
static specdec_result specdec__model_init(specdec__model *m, const specdec_source *source, int vocabulary_only,
                                          const specdec__model_cut *cut, specdec__arena *arena, specdec_error *error)
{
    specdec_result result;
    specdec__bytes file;

    memset(m, 0, sizeof *m);
    file.data = (const unsigned char *)source->data;
    file.size = source->size;
    if (!file.data) {
        if (!source->path)
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "a model needs a path or data");
        result = specdec__model_open(m, source, !vocabulary_only, arena, &file, error);
        if (result)
            return result;
    }
    result = specdec__model_parse(m, file, vocabulary_only, cut, arena, error);
    return result && !source->data ? specdec__os_prefix_error(source->path, result, error) : result;
}

static void specdec__model_deinit(specdec__model *m)
{
    specdec__os_unmap(&m->mapped);
}

SPECDEC__FOR_SPEED
