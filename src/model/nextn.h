/* =====================================================================================================================
 * >>model/nextn: the block of a model that predicts a token further on (multi-token prediction), as a model of its own.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "model.h"
#include "facts.h"
#include "tensors.h"
#include "rope.h"

SPECDEC__FOR_SIZE

/* Writes the name of a tensor of the first NextN block to `name`. */
static const char *specdec__nextn_name(const specdec__model *target, const char *suffix, char *name, size_t size)
{
    specdec__writer w = specdec__writer_to(name, size);

    specdec__write_string(&w, "blk.");
    specdec__write_number(&w, (unsigned long long)target->all, 0);
    specdec__write_string(&w, ".nextn.");
    specdec__write_string(&w, suffix);
    specdec__write_string(&w, ".weight");
    return name;
}

/* Whether a model's files hold such a block: some say that there is one, and lack it. */
static int specdec__nextn_has(const specdec__model *target)
{
    static const char *const needed[] = {"eh_proj", "enorm", "hnorm"};
    specdec__gguf_tensor unused;
    char name[64];
    int i, found = 0;

    for (i = 0; SPECDEC__HEADS && target->nextn && i < (int)SPECDEC__COUNT(needed); i++)
        found |= specdec__model_find_tensor(target, specdec__nextn_name(target, needed[i], name, sizeof name), &unused);
    return found;
}

/* Binds a matrix of the block, of so many columns; *found: whether an optional one is there. */
static specdec_result specdec__nextn_matrix(specdec__model *m, const specdec__model *target, const char *suffix,
                                            int rows, specdec__matrix *out, int *found, specdec_error *error)
{
    const int joined = out == &m->reads.matrix;
    char name[64];

    return specdec__model_matrix(m, specdec__nextn_name(target, suffix, name, sizeof name), rows,
                                 (1 + joined) * m->embedding, joined, out, found, error);
}

static specdec_result specdec__nextn_vector(specdec__model *m, const specdec__model *target, const char *suffix,
                                            int required, specdec__arena *arena, const float **out,
                                            specdec_error *error)
{
    char name[64];

    return specdec__model_vector(m, specdec__nextn_name(target, suffix, name, sizeof name), m->embedding, required,
                                 arena, out, error);
}

/* Binds what the block has besides a layer of the architecture. */
static specdec_result specdec__nextn_bind(specdec__model *m, const specdec__model *target, specdec__arena *arena,
                                          specdec_error *error)
{
    specdec_result r;
    int found;

    if ((r = specdec__nextn_matrix(m, target, "eh_proj", m->embedding, &m->reads.matrix, &found, error)) !=
            SPECDEC_OK ||
        (r = specdec__nextn_vector(m, target, "enorm", 1, arena, &m->reads.token_norm, error)) != SPECDEC_OK ||
        (r = specdec__nextn_vector(m, target, "hnorm", 1, arena, &m->reads.state_norm, error)) != SPECDEC_OK ||
        (r = specdec__nextn_vector(m, target, "shared_head_norm", 0, arena, &m->output_norm, error)) != SPECDEC_OK ||
        (r = specdec__nextn_matrix(m, target, "embed_tokens", m->vocab_size, &m->token_embedding, &found, error)) !=
            SPECDEC_OK ||
        (r = specdec__nextn_matrix(m, target, "shared_head_head", m->vocab_size, &m->output, &found, error)) !=
            SPECDEC_OK)
        return r;
    specdec__model_count_weights(m, &m->reads.matrix);
    if (m->output.type)
        specdec__model_count_weights(m, &m->output);
    return SPECDEC_OK;
}

/* Makes a model of one layer of the first block that only predicts (DeepSeek-AI 2024, arXiv 2412.19437). With h the
   target's state behind the token before, after its last norm, the layer reads
       x = matrix [norm of a token's embedding; norm of h]
   and the norm of what comes out takes the place of h, which the next token is predicted from, and the one after it in
   turn. Embedding, last norm and output are the target's where the block has none. The target stays, and must outlive
   the model. */
static specdec_result specdec__nextn_init(specdec__model *m, const specdec__model *target, specdec__arena *arena,
                                          specdec_error *error)
{
    specdec_result result;

    *m = *target;
    memset(&m->mapped, 0, sizeof m->mapped);
    memset(&m->mixing, 0, sizeof m->mixing);
    memset(&m->token_embedding, 0, sizeof m->token_embedding);
    memset(&m->output, 0, sizeof m->output);
    memset(&m->inputs, 0, sizeof m->inputs);
    memset(&m->streams, 0, sizeof m->streams);
    memset(m->span_layers, 0, sizeof m->span_layers);
    memset(m->span_used, 0, sizeof m->span_used);
    m->heads = m->kv_heads = m->head_dim = m->feed_forward = 0;
    m->q_width = m->k_width = m->v_width = m->o_width = 0;
    m->weight_bytes = m->tile_bytes = 0;
    m->weight_products = 0;
    m->first = target->all;
    m->layers = 1;
    m->all = target->all + 1;
    m->nextn = target->nextn - 1;
    m->sharing = m->bare = 0;
    m->reads.layers[0] = SPECDEC_STATE_FINAL;
    m->reads.count = m->reads.joined = 1;
    m->reads.width = m->embedding;
    if ((result = specdec__model_layers(m, error)) != SPECDEC_OK)
        return result;
    m->layer = SPECDEC__TAKE(arena, specdec__layer, 1);
    if ((result = specdec__model_layer(m, m->first, arena, error)) != SPECDEC_OK)
        return result;
    return specdec__nextn_bind(m, target, arena, error);
}

SPECDEC__FOR_SPEED
