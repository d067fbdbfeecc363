/* =====================================================================================================================
 * >>model/nextn: a target's NextN block for multi-token prediction (MTP), bound as a draft model of one layer.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "model.h"
#include "facts.h"
#include "tensors.h"
#include "rope.h"

SPECDEC__FOR_SIZE

/* Writes the name of a tensor of the first NextN block to `name`. */
static const char *specdec__nextn_tensor_name(const specdec__model *target, const char *suffix, char *name, size_t size)
{
    specdec__writer w = specdec__writer_to(name, size);

    specdec__write_string(&w, "blk.");
    specdec__write_number(&w, (unsigned long long)target->all_layers, 0);
    specdec__write_string(&w, ".nextn.");
    specdec__write_string(&w, suffix);
    specdec__write_string(&w, ".weight");
    return name;
}

/* Whether a model's files hold a NextN block; some files announce one and lack it. */
static int specdec__nextn_exists(const specdec__model *target)
{
    static const char *const needed[] = {"eh_proj", "enorm", "hnorm"};
    specdec__gguf_tensor unused;
    char name[64];
    int i, found = 0;

    for (i = 0; SPECDEC__HAS_STATE_DRAFTERS && target->nextn && i < (int)SPECDEC__COUNT(needed); i++)
        found |= specdec__model_find_tensor(target, specdec__nextn_tensor_name(target, needed[i], name, sizeof name),
                                            &unused);
    return found;
}

/* Binds a matrix of the NextN block, whose number of columns `out` already has. *found: 1 if the tensor is there.
   Errors: FORMAT, UNSUPPORTED. */
static specdec_result specdec__nextn_bind_matrix(specdec__model *m, const specdec__model *target, const char *suffix,
                                                 int rows, specdec__matrix *out, int *found, specdec_error *error)
{
    const int joined = out == &m->reads.matrix;
    char name[64];

    return specdec__model_bind_matrix(m, specdec__nextn_tensor_name(target, suffix, name, sizeof name), rows,
                                      (1 + joined) * m->embedding, joined, out, found, error);
}

/* Binds a vector (embedding) of the NextN block. Errors: FORMAT (required and missing), UNSUPPORTED. */
static specdec_result specdec__nextn_copy_vector(specdec__model *m, const specdec__model *target, const char *suffix,
                                                 int required, specdec__arena *arena, const float **out,
                                                 specdec_error *error)
{
    char name[64];

    return specdec__model_copy_vector(m, specdec__nextn_tensor_name(target, suffix, name, sizeof name), m->embedding,
                                      required, arena, out, error);
}

/* Binds the tensors of the NextN block besides those of its layer. Errors: FORMAT, UNSUPPORTED. */
static specdec_result specdec__nextn_bind(specdec__model *m, const specdec__model *target, specdec__arena *arena,
                                          specdec_error *error)
{
    specdec_result r;
    int found;

    if ((r = specdec__nextn_bind_matrix(m, target, "eh_proj", m->embedding, &m->reads.matrix, &found, error)) !=
            SPECDEC_OK ||
        (r = specdec__nextn_copy_vector(m, target, "enorm", 1, arena, &m->reads.token_norm, error)) != SPECDEC_OK ||
        (r = specdec__nextn_copy_vector(m, target, "hnorm", 1, arena, &m->reads.state_norm, error)) != SPECDEC_OK ||
        (r = specdec__nextn_copy_vector(m, target, "shared_head_norm", 0, arena, &m->output_norm,
                                        error)) != SPECDEC_OK ||
        (r = specdec__nextn_bind_matrix(m, target, "embed_tokens", m->vocab_size, &m->token_embedding, &found,
                                        error)) !=
            SPECDEC_OK ||
        (r = specdec__nextn_bind_matrix(m, target, "shared_head_head", m->vocab_size, &m->output, &found, error)) !=
            SPECDEC_OK)
        return r;
    specdec__model_count_whole_matrix(m, &m->reads.matrix);
    if (m->output.type)
        specdec__model_count_whole_matrix(m, &m->output);
    return SPECDEC_OK;
}

/* Makes a draft model of one layer from a target's first NextN block (DeepSeek-AI 2024, arXiv 2412.19437). With h the
   target's final hidden state for the token before, the layer reads x = matrix [norm of a token's embedding; norm of
   h], and the norm of its output predicts the next token, and takes the place of h for the token after it. Embedding,
   final norm and output matrix are the target's where the block has none. The target must outlive the model. Errors:
   FORMAT, UNSUPPORTED. */
static specdec_result specdec__nextn_init(specdec__model *m, const specdec__model *target, specdec__arena *arena,
                                          specdec_error *error)
{
    specdec_result result;

    *m = *target;
    memset(&m->mapped, 0, sizeof m->mapped);
    memset(&m->recurrent_sizes, 0, sizeof m->recurrent_sizes);
    memset(&m->token_embedding, 0, sizeof m->token_embedding);
    memset(&m->output, 0, sizeof m->output);
    memset(&m->layer_embeddings, 0, sizeof m->layer_embeddings);
    memset(&m->streams, 0, sizeof m->streams);
    memset(m->span_layers, 0, sizeof m->span_layers);
    memset(m->span_used, 0, sizeof m->span_used);
    m->heads = m->kv_heads = m->head_dim = m->feed_forward = 0;
    m->q_width = m->k_width = m->v_width = m->o_width = 0;
    m->weight_bytes = m->tile_bytes = 0;
    m->weight_products = 0;
    m->first_layer = target->all_layers;
    m->layers = 1;
    m->all_layers = target->all_layers + 1;
    m->nextn = target->nextn - 1;
    m->sharing_layers = m->lacks_output = 0;
    m->reads.layers[0] = SPECDEC_STATE_FINAL;
    m->reads.count = m->reads.is_nextn = 1;
    m->reads.width = m->embedding;
    if ((result = specdec__model_check_layers(m, error)) != SPECDEC_OK)
        return result;
    m->layer = SPECDEC__TAKE(arena, specdec__layer, 1);
    if ((result = specdec__model_bind_layer(m, m->first_layer, arena, error)) != SPECDEC_OK)
        return result;
    return specdec__nextn_bind(m, target, arena, error);
}

SPECDEC__FOR_SPEED
