/* =====================================================================================================================
 * >>model/bind: binds a model's tensors to its layers and checks their shapes; a tensor that is not read is an error.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../quant/types.h"
#include "../base/op.h"
#include "gguf.h"
#include "model.h"
#include "parts.h"
#include "facts.h"
#include "tensors.h"
#include "rope.h"

SPECDEC__FOR_SIZE

/* Computes the frequencies and scales of all RoPEs of a model, from its metadata and traits. Errors: FORMAT,
   UNSUPPORTED. */
static specdec_result specdec__model_init_ropes(specdec__model *m, specdec__arena *arena, specdec_error *error)
{
    static const char *const factors[] = {"rope_freqs.weight", "rope_factors_short.weight"},
                             *const longer = "rope_factors_long.weight";
    const float given = (float)m->trait[SPECDEC__ALTERNATE_BASE];
    float other = given;
    specdec__gguf_tensor unused;
    specdec__rope_scaling rope;
    specdec__model_reader reader = specdec__model_start_reading(m, error);
    specdec_result r = specdec__model_read_rope_scaling(m, &rope, error);
    const int has_long = specdec__model_find_tensor(m, longer, &unused) ||
                         specdec__model_find_tensor(m, factors[1], &unused);
    const int also = m->trait[SPECDEC__ROPE_VARIANT];
    const int still = also == SPECDEC__ROPE_NEVER ||
                      (also == SPECDEC__ROPE_OPTIONAL &&
                       !specdec__model_read_integer(&reader, ".rope.scaling.finetuned", 0, 1, 1));
    const float base = still ? 0 : m->rope_base;

    if (r ||
        (r = specdec__model_compute_frequencies(m, SPECDEC__ROPE, base, rope.divisor, factors[has_long > 0], arena,
                                                error)) != SPECDEC_OK ||
        (has_long && (r = specdec__model_compute_frequencies(m, SPECDEC__ROPE_LONG, base, rope.divisor, longer, arena,
                                                             error)) != SPECDEC_OK))
        return r;
    m->rope_scale[SPECDEC__ROPE] = m->rope_scale[SPECDEC__ROPE_LONG] = still ? 1 : rope.attention_factor;
    if (rope.yarn && !still) {
        const double stretch = specdec__product(0.1, specdec__log_double(rope.factor));

        if (rope.score_growth > 0) { /* instead of cosine and sine, attention scores are scaled, each the product of two
                                     vectors */
            const double factor = 1 + specdec__product(rope.score_growth, specdec__log_double(rope.factor));

            m->query_factor = (float)specdec__product(factor, factor);
        } else
            m->rope_scale[SPECDEC__ROPE] = (float)(specdec__product(rope.attention_factor, 1 + stretch) /
                                                   (1 + specdec__product(stretch, rope.attention_divisor)));
        m->rope_scale[SPECDEC__ROPE_LONG] = m->rope_scale[SPECDEC__ROPE];
        if (m->rope_frequency[SPECDEC__ROPE])
            specdec__model_scale_by_yarn(m, &rope, m->rope_frequency[SPECDEC__ROPE]);
        if (m->rope_frequency[SPECDEC__ROPE_LONG])
            specdec__model_scale_by_yarn(m, &rope, m->rope_frequency[SPECDEC__ROPE_LONG]);
    }
    if (m->trait[SPECDEC__WINDOW_KEYS] >= 0) {
        other = specdec__model_read_float(&reader, ".rope.local.freq_base", /* Ollama's name */
                                          other == 1 ? m->rope_base : other);
        other = specdec__model_read_float(&reader, ".rope.freq_base_swa", other);
    }
    if (reader.result)
        return reader.result;
    if (other != given && !(other >= 1 && other < 1e12f))
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "rope.freq_base_swa is out of range");
    if (other > 0 && !(given > 0) && other != m->rope_base)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                             "rope.freq_base_swa is not rope.freq_base, which is not read of %s",
                             specdec__model_architecture_name(m));
    other = m->trait[SPECDEC__BASE_OF_REGULAR] ? given : other;
    if (m->trait[SPECDEC__ALTERNATE_BASE])
        r = specdec__model_compute_frequencies(m, SPECDEC__ROPE_ALTERNATE, other, 1, NULL, arena, error);
    m->rope_scale[SPECDEC__ROPE_ALTERNATE] =
        other > 0 && m->trait[SPECDEC__ALTERNATE_BASE] != 1 ? rope.attention_factor : 1;
    return r;
}

/* Reads the token ids of the rows of a short vocabulary, if the file has this tensor. Errors: FORMAT, UNSUPPORTED. */
static specdec_result specdec__model_read_short_vocabulary(specdec__model *m, const char *name, specdec__arena *arena,
                                                           specdec_error *error)
{
    specdec__gguf_tensor t;
    int32_t *ids;
    int found, width, i;
    specdec_result result = specdec__model_find_tensor_or_fail(m, name, 0, &t, &found, error);

    if (result || !found)
        return result;
    width = t.type == SPECDEC__TYPE_I32 ? 4 : 8;
    if (t.type != SPECDEC__TYPE_I32 && t.type != SPECDEC__TYPE_I64)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "tensor %s should be I32 or I64", name);
    if (!t.shape[0] || t.shape[0] > (uint64_t)m->vocab_size || t.shape[1] != 1 || t.shape[2] != 1 || t.shape[3] != 1)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "tensor %s has %llu values, the vocabulary %d", name,
                             (unsigned long long)t.shape[0], m->vocab_size);
    m->id_count = (int)t.shape[0];
    ids = SPECDEC__TAKE(arena, int32_t, m->id_count);
    for (i = 0; i < m->id_count; i++) {
        const unsigned char *at = t.data + (size_t)i * (size_t)width;
        const uint32_t id = specdec__load_u32(at);

        if (id >= (uint32_t)m->vocab_size || (width == 8 && specdec__load_u32(at + 4)))
            return specdec__fail(error, SPECDEC_ERROR_FORMAT, "tensor %s names a token at %d that there is not", name,
                                 i);
        if (ids)
            ids[i] = (int32_t)id;
    }
    m->ids = ids;
    return SPECDEC_OK;
}

/* Reads the list of the target's layers whose hidden states a model reads. Errors: FORMAT, UNSUPPORTED. */
static specdec_result specdec__model_read_target_layers(specdec__model *m, specdec_error *error)
{
    specdec__gguf_value list;
    char key[96];
    uint64_t i;

    specdec__model_write_key(m, ".target_layers", key, sizeof key);
    if (!specdec__gguf_find_value(&m->gguf, key, &list))
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s is missing", key);
    if (!list.is_array || (list.type != SPECDEC_GGUF_I32 && list.type != SPECDEC_GGUF_U32) || !list.count ||
        list.count > SPECDEC__MAX_STATES_READ)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "%s should be 1 to %d integers of 32 bits", key,
                             SPECDEC__MAX_STATES_READ);
    for (i = 0; i < list.count; i++) {
        const uint32_t layer = specdec__load_u32(list.items + 4 * i);

        if (layer > 1 << 20)
            return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s is out of range", key);
        m->reads.layers[m->reads.count++] = (int)layer;
    }
    return SPECDEC_OK;
}

/* Finds a tensor whose name contains a word, and copies the name. Returns 1 when found. */
static int specdec__model_find_tensor_with_word(const specdec__model *m, const char *word, char *name, size_t size)
{
    specdec__cursor c = specdec__cursor_begin_at_start(m->gguf.file.data, m->gguf.file.size);
    const size_t length = strlen(word);
    uint64_t i;
    size_t k;

    c.offset = m->gguf.tensors_at;
    for (i = 0; i < m->gguf.tensor_count; i++) {
        const specdec__bytes found = specdec__gguf_skip_record(&m->gguf, &c, 1);

        for (k = 0; found.size < size && k + length <= found.size; k++)
            if (!memcmp(found.data + k, word, length)) {
                memcpy(name, found.data, found.size);
                name[found.size] = 0;
                return 1;
            }
    }
    return 0;
}

/* Binds the centroids of an assistant as its output matrix, if its file has them; rows of the embedding are then read
   one by one. Errors: FORMAT. */
static specdec_result specdec__model_bind_centroids(specdec__model *m, specdec__arena *arena, specdec_error *error)
{
    specdec__model_reader r = specdec__model_start_reading(m, error);
    specdec__reads *reads = &m->reads;
    specdec__gguf_tensor t, order;
    char centroids[96], name[96];
    int32_t *ids;
    int i, found, wide;

    if (!specdec__model_find_tensor_with_word(m, "centroid", centroids, sizeof centroids) ||
        !specdec__model_find_tensor_with_word(m, "ordering", name, sizeof name) ||
        !specdec__model_find_tensor(m, centroids, &t) || !specdec__model_find_tensor(m, name, &order))
        return SPECDEC_OK;
    wide = order.type == SPECDEC__TYPE_I64 ? 8 : 4;
    if (t.shape[1] < 1 || t.shape[1] > (uint64_t)m->vocab_size || m->vocab_size % (int)t.shape[1])
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "tensor %s has %llu rows for a vocabulary of %d", centroids,
                             (unsigned long long)t.shape[1], m->vocab_size);
    if ((order.type != SPECDEC__TYPE_I32 && wide == 4) || order.size != (size_t)m->vocab_size * (size_t)wide)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "tensor %s should be %d integers", name, m->vocab_size);
    reads->centroids = (int)t.shape[1];
    reads->nearest_centroids = specdec__model_read_integer(&r, ".centroid_intermediate_top_k", 1, reads->centroids,
                                                           specdec__min_int(32, reads->centroids));
    if (r.result || (r.result = specdec__model_bind_matrix(m, centroids, reads->centroids, m->embedding, 1, &m->output,
                                                           &found, error)) != SPECDEC_OK)
        return r.result;
    ids = SPECDEC__TAKE(arena, int32_t, m->vocab_size);
    for (i = 0; i < m->vocab_size; i++) {
        const uint32_t id = specdec__load_u32(order.data + (size_t)i * (size_t)wide);

        if (id >= (uint32_t)m->vocab_size)
            return specdec__fail(error, SPECDEC_ERROR_FORMAT, "tensor %s names a token at %d that there is not", name,
                                 i);
        if (ids)
            ids[i] = (int32_t)id;
    }
    reads->centroid_tokens = ids;
    return SPECDEC_OK;
}

/* Binds the two projections of an assistant: see specdec__reads. Errors: FORMAT, UNSUPPORTED. */
static specdec_result specdec__model_bind_assistant(specdec__model *m, specdec_error *error)
{
    specdec__model_reader r = specdec__model_start_reading(m, error);
    specdec__reads *reads = &m->reads;
    specdec_result result;
    int found;

    reads->count = 2;
    reads->width = specdec__model_read_integer(&r, ".embedding_length_out", 1, SPECDEC__MAX_DIMENSION / 2, -1);
    if (r.result)
        return r.result;
    result = specdec__model_bind_matrix(m, "nextn.pre_projection.weight", m->embedding, 2 * reads->width, 1,
                                        &reads->matrix, &found, error);
    if (!result)
        result = specdec__model_bind_matrix(m, "nextn.post_projection.weight", reads->width, m->embedding, 1,
                                            &reads->next_state, &found, error);
    if (result)
        return result;
    specdec__model_count_whole_matrix(m, &reads->matrix);
    specdec__model_count_whole_matrix(m, &reads->next_state);
    return SPECDEC_OK;
}

/* Binds a matrix of (rows, columns) or, if the file has that shape, of (other, columns). Errors: FORMAT, UNSUPPORTED.
   */
static specdec_result specdec__model_bind_matrix_of_either_size(specdec__model *m, const char *name, int rows,
                                                                int other, int columns, specdec__matrix *out,
                                                                specdec_error *error)
{
    specdec__gguf_tensor t;
    int found;

    if (specdec__model_find_tensor(m, name, &t) && t.shape[1] == (uint64_t)other)
        rows = other;
    return specdec__model_bind_matrix(m, name, rows, columns, 1, out, &found, error);
}

/* Binds the tensors of DSpark, if the file has them: see specdec__block_model. Errors: FORMAT, UNSUPPORTED. */
static specdec_result specdec__model_bind_markov(specdec__model *m, int rows, specdec__arena *arena,
                                                 specdec_error *error)
{
    specdec__model_reader r = specdec__model_start_reading(m, error);
    const int trust = specdec__model_read_integer(&r, ".has_confidence_head", 0, 1, 0);
    const float *bias = NULL;
    specdec__block_model *b = &m->block;
    specdec__gguf_tensor t;
    int found, rank;

    if (r.result || !specdec__model_find_tensor(m, "markov_w1.weight", &t))
        return r.result;
    rank = t.shape[0] < SPECDEC__MAX_DIMENSION / 2 ? (int)t.shape[0] : 0;
    if ((r.result = specdec__model_bind_matrix_of_either_size(m, "markov_w1.weight", m->vocab_size, rows, rank,
                                                              &b->markov_in, error)) ||
        (r.result = specdec__model_bind_matrix_of_either_size(m, "markov_w2.weight", rows, m->vocab_size, rank,
                                                              &b->markov_out, error)) ||
        (trust && (r.result = specdec__model_bind_matrix(m, "conf_proj.weight", 1, m->embedding + rank, 1,
                                                         &b->confidence, &found, error))) ||
        (trust && (r.result = specdec__model_copy_vector(m, "conf_proj.bias", 1, 0, arena, &bias, error))))
        return r.result;
    b->confidence_bias = bias ? *bias : 0;
    specdec__model_count_whole_matrix(m, &b->markov_out);
    return SPECDEC_OK;
}

/* Binds the tensors of a model that drafts blocks, besides its layers. Errors: FORMAT, UNSUPPORTED. */
static specdec_result specdec__model_bind_block_drafter(specdec__model *m, specdec__arena *arena, specdec_error *error)
{
    specdec__model_reader r = specdec__model_start_reading(m, error);
    const int rows = m->id_count ? m->id_count : m->vocab_size;
    specdec__block_model *b = &m->block;
    int found, rank;

    if (b->mask_token >= m->vocab_size)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "mask_token_id %d, the vocabulary has %d", (int)b->mask_token,
                             m->vocab_size);
    if (b->candidates > rows)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "selector_top_k %d of %d tokens", b->candidates, rows);
    if (!b->candidates)
        return specdec__model_bind_markov(m, rows, arena, error);
    rank = specdec__model_read_integer(&r, ".selector_rank", 1, SPECDEC__MAX_DIMENSION, -1);
    if (r.result ||
        (r.result = specdec__model_bind_matrix_of_either_size(m, "selector_predecessor.weight", m->vocab_size, rows,
                                                              rank, &b->predecessor, error)) ||
        (r.result = specdec__model_bind_matrix_of_either_size(m, "selector_successor.weight", m->vocab_size, rows, rank,
                                                              &b->successor, error)) ||
        (r.result = specdec__model_bind_matrix(m, "selector_hidden.weight", rank, m->embedding, 1, &b->hidden, &found,
                                               error)))
        return r.result;
    specdec__model_count_whole_matrix(m, &b->hidden);
    return SPECDEC_OK;
}

/* Binds the tensors by which a model reads hidden states of the target: see specdec__reads. Errors: FORMAT,
   UNSUPPORTED. */
static specdec_result specdec__model_bind_state_reading(specdec__model *m, specdec__arena *arena, specdec_error *error)
{
    specdec__model_reader r = specdec__model_start_reading(m, error);
    specdec__reads *reads = &m->reads;
    specdec_result result;
    int found, normed;

    if (m->trait[SPECDEC__READS_STATES] == SPECDEC__AS_STREAM)
        return specdec__model_bind_assistant(m, error);
    if ((result = specdec__model_read_target_layers(m, error)) != SPECDEC_OK)
        return result;
    reads->width = specdec__model_read_integer(&r, ".target_hidden_size", 1, SPECDEC__MAX_DIMENSION, m->embedding);
    reads->norm_first = specdec__model_read_integer(&r, ".norm_before_residual", 0, 1, 0);
    normed = specdec__model_read_integer(&r, ".norm_before_fc", 0, 1, 0);
    if (!r.result && ((m->layers != 1 && !m->block.size) || reads->width > SPECDEC__MAX_DIMENSION / reads->count))
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                             "%d layers that read %d states of %d (one layer can be read)", m->layers, reads->count,
                             reads->width);
    if (r.result || (result = specdec__model_bind_matrix(m, "fc.weight", m->embedding, reads->count * reads->width, 1,
                                                         &reads->matrix, &found, error)) != SPECDEC_OK)
        return r.result ? r.result : result;
    specdec__model_count_whole_matrix(m, &reads->matrix);
    if (m->block.size)
        return specdec__model_copy_vector(m, "enc.output_norm.weight", m->embedding, 1, arena, &reads->matrix_norm,
                                          error);
    return normed ? specdec__model_copy_vector(m, "enc.output_norm.weight", reads->count * reads->width, 1, arena,
                                               &reads->states_norm, error)
                  : SPECDEC_OK;
}

/* Binds the embeddings for layers, if the model has them: see specdec__layer_embeddings. Errors: FORMAT, UNSUPPORTED.
   */
static specdec_result specdec__model_bind_layer_embeddings(specdec__model *m, specdec__arena *arena,
                                                           specdec_error *error)
{
    specdec__layer_embeddings *inputs = &m->layer_embeddings;
    const int all = inputs->width * m->all_layers;
    int found;
    specdec_result r;

    if (!inputs->width)
        return SPECDEC_OK;
    if ((r = specdec__model_bind_matrix(m, "per_layer_token_embd.weight", m->vocab_size, all, 1, &inputs->token_table,
                                        &found, error)) != SPECDEC_OK ||
        (r = specdec__model_bind_matrix(m, "per_layer_model_proj.weight", all, m->embedding, 1, &inputs->matrix, &found,
                                        error)) != SPECDEC_OK)
        return r;
    specdec__model_count_whole_matrix(m, &inputs->matrix);
    return specdec__model_copy_vector(m, "per_layer_proj_norm.weight", inputs->width, 1, arena, &inputs->norm, error);
}

/* Binds the matrices of AltUp, from x to the other streams and back. The file has one tensor for each direction, with
   the matrices of all streams but x. Errors: FORMAT, UNSUPPORTED. */
static specdec_result specdec__model_bind_streams(specdec__model *m, specdec_error *error)
{
    static const char *const names[] = {"altup_proj.weight", "altup_unembd_proj.weight"};
    const int others = m->streams.count - 1;
    specdec_result result = SPECDEC_OK;
    specdec__matrix all;
    int i, k, found;

    for (k = 0; k < 2 && others > 0 && !result; k++) {
        memset(&all, 0, sizeof all);
        result = specdec__model_bind_joined_matrices(m, names[k], others, m->embedding, m->embedding, 1, &all, &found,
                                                     error);
        if (!result && all.scales)
            result = specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "tensor %s has scales of its own", names[k]);
        all.rows = m->embedding;
        for (i = 0; i < others && !result; i++) {
            m->streams.matrix[k][i] = all;
            m->streams.matrix[k][i].file += (size_t)i * (size_t)all.rows * all.row_bytes;
            specdec__model_count_whole_matrix(m, &all);
        }
    }
    return result;
}

/* Makes a vector of ones, the weights of norms of heads that have none in the file. */
static void specdec__model_make_unit_norm_weights(specdec__model *m, specdec__arena *arena)
{
    const int count = m->trait[SPECDEC__NORMED_VALUES] ? specdec__round_up(m->head_dim, 16) : 0;
    float *ones = count ? SPECDEC__TAKE(arena, float, count) : NULL;
    int i;

    for (i = 0; ones && i < count; i++)
        ones[i] = 1;
    m->ones = ones;
}

/* Checks a layer that is on another rank, without counting its memory. */
static specdec_result specdec__model_check_remote_layer(specdec__model *m, int index, specdec_error *error)
{
    specdec__arena nowhere = {NULL, 0, 0};
    const size_t tile_bytes = m->tile_bytes;
    const int states = m->recurrent_sizes.layers;
    int own[SPECDEC__SPANS];
    specdec_result result;

    memcpy(own, m->span_layers, sizeof own);
    result = specdec__model_bind_layer(m, index, &nowhere, error);
    memcpy(m->span_layers, own, sizeof own);
    m->recurrent_sizes.layers = states;
    m->tile_bytes = tile_bytes;
    return result;
}

/* Binds the layers on this rank, and checks all others. */
static specdec_result specdec__model_bind_layers(specdec__model *m, specdec__arena *arena, specdec_error *error)
{
    specdec_result r = SPECDEC_OK;
    int i;

    m->layer = SPECDEC__TAKE(arena, specdec__layer, m->layers);
    for (i = 0; i < m->first_layer + m->layers && !r; i++)
        r = SPECDEC__PIPE && i < m->first_layer ? specdec__model_check_remote_layer(m, i, error)
                                             : specdec__model_bind_layer(m, i, arena, error);
    for (; SPECDEC__PIPE && i < m->all_layers && !r; i++)
        r = specdec__model_check_remote_layer(m, i, error);
    return r;
}

/* Whether a layer has a matrix, or with kinds = 2 also a vector, that is read from a tensor with this suffix. */
static int specdec__model_layer_has_tensor(const specdec__model *m, int layer, specdec__bytes suffix, int kinds)
{
    const specdec__shape shape = specdec__model_layer_shape(m, layer);
    int size[SPECDEC__DIM_COUNT], vectors, i, known = 0;
    size_t k;

    specdec__model_compute_tensor_dimensions(m, &shape, size);
    size[SPECDEC__DIM_OWN_KEYS] = 1; /* a layer that shares keys may have unused tensors of its own */
    for (vectors = 0; vectors < kinds; vectors++) {
        for (i = 0; i < (vectors ? (int)SPECDEC__VECTORS : (int)SPECDEC__MATRICES); i++)
            if (specdec__bytes_equal_string(suffix, specdec__model_single_tensor_suffix(m, vectors, i, size)) &&
                specdec__model_dimensions_have_tensor(vectors, i, size) &&
                (!vectors || ((specdec__vector_table[i].wanted != SPECDEC__IF_NAMED ||
                               SPECDEC__HAS_BIT(m->trait[SPECDEC__NEEDS], i)) &&
                              !SPECDEC__HAS_BIT(m->trait[SPECDEC__LACKS], i))))
                known |= specdec__bytes_equal_string(suffix,
                                                     specdec__model_find_holder(m, layer, vectors, i, size).suffix);
        for (k = 0; k < SPECDEC__COUNT(specdec__fused_table) && !known; k++) {
            const specdec__fused *f = &specdec__fused_table[k];
            const char *name = vectors ? f->bias : f->weight;

            i = vectors ? f->vector : f->matrix;
            known = name && specdec__bytes_equal_string(suffix, name) &&
                    specdec__bytes_equal_string(suffix, specdec__model_find_holder(m, layer, vectors, i, size).suffix);
        }
    }
    return known;
}

/* Returns the tensor name of the final norm. */
static const char *specdec__model_final_norm_name(const specdec__model *m)
{
    return m->trait[SPECDEC__EMBEDDING_NORM] ? "token_embd_norm.weight" : "output_norm.weight";
}

/* Whether a layer's tensor with this suffix is read, as a matrix, a vector or the scales of a matrix (".scale").
   ".input_scale", for processors that multiply 4-bit floats, is accepted and ignored. */
static int specdec__model_layer_reads_tensor(const specdec__model *m, int layer, specdec__bytes suffix)
{
    char weight[96];
    specdec__bytes matrix;

    if (specdec__model_layer_has_tensor(m, layer, suffix, 2))
        return 1;
    if (!specdec__model_replace_ending(suffix, ".input_scale", ".weight", weight, sizeof weight) &&
        !specdec__model_replace_ending(suffix, ".scale", ".weight", weight, sizeof weight))
        return 0;
    matrix.data = (const unsigned char *)weight;
    matrix.size = strlen(weight);
    return specdec__model_layer_has_tensor(m, layer, matrix, 1);
}

/* Whether a tensor of this name is read, as one of a layer or of the whole model. */
static int specdec__model_reads_tensor(const specdec__model *m, specdec__bytes name)
{
    const char *const whole[] = {
        "token_embd.weight", specdec__model_final_norm_name(m), "output.weight", "rope_freqs.weight",
        "rope_factors_short.weight", "rope_factors_long.weight", "d2t",
        "cls.output.weight" /* of rerankers, not used */};
    static const char *const inputs[] = {"per_layer_token_embd.weight", "per_layer_model_proj.weight",
                                         "per_layer_proj_norm.weight"};
    static const char *const streams[] = {"altup_proj.weight", "altup_unembd_proj.weight"};
    const int blocks = m->all_layers + m->nextn;
    int i, layer = 0, known = 0;

    for (i = 0; i < (int)SPECDEC__COUNT(whole); i++)
        known |= specdec__bytes_equal_string(name, whole[i]);
    for (i = 0; i < 3; i++)
        known |= m->layer_embeddings.width && specdec__bytes_equal_string(name, inputs[i]);
    for (i = 0; i < 2; i++)
        known |= m->streams.count && specdec__bytes_equal_string(name, streams[i]);
    if (known || name.size < 5 || memcmp(name.data, "blk.", 4) != 0)
        return known;
    for (name.data += 4, name.size -= 4; name.size && *name.data >= '0' && *name.data <= '9' && layer < blocks;
         name.data++, name.size--)
        layer = layer * 10 + *name.data - '0';
    if (layer >= blocks || !name.size || *name.data != '.')
        return 0;
    name.data++;
    name.size--;
    if (layer >= m->all_layers && name.size > 6 && memcmp(name.data, "nextn.", 6) == 0)
        return 1;
    return specdec__model_layer_reads_tensor(m, layer, name);
}

/* Returns an error if a file of a model (a part) has a tensor that is not read. Errors: UNSUPPORTED. */
static specdec_result specdec__model_refuse_unread_tensors_of_part(const specdec__model *m, const specdec__gguf *part,
                                                                   specdec_error *error)
{
    specdec__cursor c = specdec__cursor_begin_at_start(part->file.data, part->file.size);
    uint64_t i;

    c.offset = part->tensors_at;
    for (i = 0; i < part->tensor_count; i++) {
        const specdec__bytes name = specdec__gguf_skip_record(part, &c, 1);

        if (!specdec__model_reads_tensor(m, name))
            return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "tensor %.*s is not read of %s models",
                                 specdec__gguf_shown_bytes(name), (const char *)name.data,
                                 specdec__model_architecture_name(m));
    }
    return SPECDEC_OK;
}

/* Returns an error if the files of a model have a tensor that is not read, as its text would differ. A draft model may
   have such tensors. Errors: UNSUPPORTED. */
static specdec_result specdec__model_refuse_unread_tensors(const specdec__model *m, specdec_error *error)
{
    specdec__gguf part = m->gguf;
    specdec_result result = SPECDEC_OK;
    int i = 0;

    if (m->trait[SPECDEC__READS_STATES])
        return SPECDEC_OK;
    do
        result = specdec__model_refuse_unread_tensors_of_part(m, &part, error);
    while (!result && specdec__part_move_to_next(m, i++, &part));
    return result;
}

/* Binds all tensors of a model, and checks that there are no others. Errors: FORMAT, UNSUPPORTED. */
static specdec_result specdec__model_bind(specdec__model *m, specdec__arena *arena, specdec_error *error)
{
    const int reads = SPECDEC__HAS_STATE_DRAFTERS && m->trait[SPECDEC__READS_STATES];
    const int borrows = reads && m->trait[SPECDEC__READS_STATES] != SPECDEC__AS_STREAM;
    int found;
    size_t tile_bytes;
    specdec__gguf_tensor sinks;
    specdec_result r = specdec__model_init_ropes(m, arena, error);

    m->vocab_size = (int)m->vocab.count;
    if (m->block.size && specdec__model_find_tensor(m, "blk.0.attn_sinks.weight", &sinks))
        m->trait[SPECDEC__NEEDS] |= (int)SPECDEC__BIT(SPECDEC__SINKS);
    if (!r && m->all_layers > m->tensors)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "block_count %d, but the file holds only %d tensors",
                             m->all_layers, m->tensors);
    if (r || (r = specdec__model_bind_layers(m, arena, error)) != SPECDEC_OK ||
        (reads && (r = specdec__model_bind_state_reading(m, arena, error)) != SPECDEC_OK) ||
        (r = specdec__model_bind_layer_embeddings(m, arena, error)) != SPECDEC_OK ||
        (r = specdec__model_bind_streams(m, error)) != SPECDEC_OK ||
        (r = specdec__model_bind_matrix(m, "token_embd.weight", m->vocab_size, m->embedding, !borrows,
                                        &m->token_embedding, &found, error)) != SPECDEC_OK ||
        (r = specdec__model_copy_vector(m, specdec__model_final_norm_name(m), m->embedding, 1, arena, &m->output_norm,
                                        error)) != SPECDEC_OK ||
        (r = specdec__model_read_short_vocabulary(m, "d2t", arena, error)) != SPECDEC_OK ||
        (r = specdec__model_bind_matrix(m, "output.weight", m->id_count ? m->id_count : m->vocab_size, m->embedding,
                                        m->id_count > 0, &m->output, &found, error)) != SPECDEC_OK ||
        (m->block.size && (r = specdec__model_bind_block_drafter(m, arena, error)) != SPECDEC_OK) ||
        (r = specdec__model_refuse_unread_tensors(m, error)) != SPECDEC_OK)
        return r;
    specdec__model_make_unit_norm_weights(m, arena);
    if (!found && !borrows)
        m->output = m->token_embedding;
    if (SPECDEC__HAS_STATE_DRAFTERS && m->trait[SPECDEC__READS_STATES] == SPECDEC__AS_STREAM &&
        (r = specdec__model_bind_centroids(m, arena, error)) != SPECDEC_OK)
        return r;
    tile_bytes = m->tile_bytes;
    specdec__model_count_whole_matrix(m, &m->output);
    if (SPECDEC__PIPE && m->lacks_output)
        m->tile_bytes = tile_bytes;
    return SPECDEC_OK;
}

SPECDEC__FOR_SPEED
