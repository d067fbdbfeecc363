/* =====================================================================================================================
 * >>model/facts: the numbers of a model, read from its keys and checked.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/op.h"
#include "gguf.h"
#include "model.h"

SPECDEC__FOR_SIZE

/* "llama" + ".block_count" and the like, in a buffer of the caller's. */
static const char *specdec__model_key(const specdec__model *model, const char *suffix, char *buffer, size_t size)
{
    specdec__writer w = specdec__writer_to(buffer, size);

    specdec__write_string(&w, specdec__model_name(model));
    specdec__write_string(&w, suffix);
    return buffer;
}

/* Reads a model's keys, one after the other. After the first failure, which is in result, nothing more is read. */
typedef struct specdec__model_reader {
    const specdec__model *model;
    specdec_error *error;
    specdec_result result;
} specdec__model_reader;

static specdec__model_reader specdec__model_read(const specdec__model *model, specdec_error *error)
{
    specdec__model_reader reader;

    reader.model = model;
    reader.error = error;
    reader.result = SPECDEC_OK;
    return reader;
}

/* A required or (fallback >= 0) optional count. A list with a number for each layer counts, if all are equal. */
static int specdec__model_count(specdec__model_reader *r, const char *suffix, int low, int high, int fallback)
{
    char key[96];
    int64_t value = fallback;

    if (!r->result)
        r->result = specdec__gguf_get_integer(&r->model->gguf, specdec__model_key(r->model, suffix, key, sizeof key),
                                              r->model->layers, low, high, &value, r->error);
    if (!r->result && value < 0)
        r->result = specdec__fail(r->error, SPECDEC_ERROR_FORMAT, "%s is missing", key);
    return r->result ? low : (int)value;
}

static float specdec__model_float(specdec__model_reader *r, const char *suffix, float fallback)
{
    char key[96];

    if (!r->result)
        r->result = specdec__gguf_get_float(&r->model->gguf, specdec__model_key(r->model, suffix, key, sizeof key),
                                            &fallback, r->error);
    return fallback;
}

/* A float that must be there. */
static float specdec__model_needed(specdec__model_reader *r, const char *suffix)
{
    specdec__gguf_value unused;
    char key[96];

    specdec__model_key(r->model, suffix, key, sizeof key);
    if (!r->result && !specdec__gguf_find(&r->model->gguf, key, &unused))
        r->result = specdec__fail(r->error, SPECDEC_ERROR_FORMAT, "%s is missing", key);
    return specdec__model_float(r, suffix, 1);
}

/* The base of RoPE: the file's, as llama.cpp or as Ollama spells it, or that of an architecture whose files need not
   say it. */
static float specdec__model_base(specdec__model_reader *r)
{
    const float unsaid = (float)r->model->trait[SPECDEC__ROPE_BASE];
    const float base = specdec__model_float(r, ".rope.global.freq_base", unsaid);

    return base > 0 ? specdec__model_float(r, ".rope.freq_base", base) : specdec__model_needed(r, ".rope.freq_base");
}

/* Reads what a mixture of experts has beside what others have. Its feed-forward networks have a size of their own. */
static specdec_result specdec__model_experts(specdec__model *m, specdec_error *error)
{
    specdec__model_reader r = specdec__model_read(m, error);
    float scale;

    m->experts = specdec__model_count(&r, ".expert_count", 0, SPECDEC__MAX_EXPERTS, 0);
    if (!m->experts)
        return r.result;
    if (!SPECDEC__EXPERTS)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                             "mixtures of experts are left out of this build by SPECDEC_NO_EXPERTS");
    if (!m->trait[SPECDEC__EXPERT_SHARES])
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "mixtures of experts are not read of %s",
                             m->architecture->name);
    if (specdec__model_count(&r, ".expert_shared_feed_forward_length", 0, 1 << 30, 0) ||
        specdec__model_count(&r, ".expert_group_count", 0, 1 << 30, 0) > 1)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "shared experts and groups of experts are not read");
    m->chosen = specdec__model_count(&r, ".expert_used_count", 1, specdec__min_int(m->experts, SPECDEC__MAX_CHOSEN),
                                     -1);
    m->feed_forward = specdec__model_count(&r, ".expert_feed_forward_length", 1, SPECDEC__MAX_DIMENSION,
                                           m->feed_forward);
    scale = specdec__model_float(&r, ".expert_weights_scale", 0);
    if (r.result)
        return r.result;
    if (scale != 0 && scale != 1)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "expert_weights_scale is not read");
    if (m->feed_forward % 16 || m->embedding % 16)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "experts of %d and %d rows, no multiples of 16",
                             m->feed_forward, m->embedding);
    return SPECDEC_OK;
}

/* Reads the sizes of a model and checks them. */
static specdec_result specdec__model_shape(specdec__model *m, specdec_error *error)
{
    const int most = SPECDEC__MAX_DIMENSION;
    specdec__model_reader r = specdec__model_read(m, error);
    int value_dim;

    m->layers = specdec__model_count(&r, ".block_count", 1, 1 << 20, -1);
    m->embedding = specdec__model_count(&r, ".embedding_length", 1, most, -1);
    m->feed_forward = specdec__model_count(&r, ".feed_forward_length", 1, most, -1);
    m->context = specdec__model_count(&r, ".context_length", 1, 1 << 30, -1);
    m->heads = specdec__model_count(&r, ".attention.head_count", 1, 4096, -1);
    m->kv_heads = specdec__model_count(&r, ".attention.head_count_kv", 1, 4096, m->heads);
    m->head_dim = specdec__model_count(&r, ".attention.key_length", 1, 4096, m->embedding / m->heads);
    value_dim = specdec__model_count(&r, ".attention.value_length", 1, 4096, m->head_dim);
    m->rope_dim = specdec__model_count(&r, ".rope.dimension_count", 1, 4096, m->head_dim);
    if (r.result)
        return r.result;
    if (m->trait[SPECDEC__JOINT_NORMS] && m->kv_heads * m->head_dim % 16)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "keys of %d values together, no multiple of 16",
                             m->kv_heads * m->head_dim);
    if (m->heads % m->kv_heads)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%d heads cannot share %d kv heads", m->heads, m->kv_heads);
    if (m->head_dim < 2 || m->head_dim > 1024 || value_dim != m->head_dim)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                             "heads of %d keys and %d values (2..1024 and equal are read)", m->head_dim, value_dim);
    if (m->rope_dim > m->head_dim || m->rope_dim % 2)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "rope.dimension_count %d for heads of %d", m->rope_dim,
                             m->head_dim);
    if (m->heads * m->head_dim > most)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "%d heads of %d are too many", m->heads, m->head_dim);
    m->epsilon = specdec__model_needed(&r, ".attention.layer_norm_rms_epsilon");
    if (r.result)
        return r.result;
    if (!(m->epsilon >= 0 && m->epsilon < 1))
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "layer_norm_rms_epsilon is out of range");
    return specdec__model_experts(m, error);
}

/* Reads which layers have a window, if the file says so: those that a list of all layers marks, or all but the last of
   every so many (of 0: all). */
static specdec_result specdec__model_pattern(specdec__model *m, specdec_error *error)
{
    int64_t value;
    char key[96];

    specdec__model_key(m, ".attention.sliding_window_pattern", key, sizeof key);
    if (!specdec__gguf_find(&m->gguf, key, &m->pattern))
        return SPECDEC_OK;
    if (m->pattern.is_array && m->pattern.count != (uint64_t)m->layers)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s tells of %llu layers, there are %d", key,
                             (unsigned long long)m->pattern.count, m->layers);
    if (!specdec__gguf_integer(m->pattern.type, m->pattern.items, &value))
        return specdec__gguf_wrong_type(key, "an ", "integer", &m->pattern, error);
    return m->pattern.is_array || value >= 0
               ? SPECDEC_OK
               : specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s is out of range", key);
}

/* Whether a layer is one of the others, by that or by the architecture's row. */
static int specdec__model_other(const specdec__model *m, int index)
{
    const specdec__gguf_value *p = &m->pattern;
    int64_t value = 0;

    if (!p->items)
        return (int)(m->trait[SPECDEC__OTHERS] >> index % m->trait[SPECDEC__PERIOD] & 1);
    specdec__gguf_integer(p->type, p->items + (p->is_array ? (size_t)index * specdec__gguf_type_size[p->type] : 0),
                          &value);
    return p->is_array ? value != 0 : !value || index % value < value - 1;
}

/* Refuses a file with a key that asks for what is not done: a text that sees what follows, layers of another kind
   behind the others, other sizes where there is a window. */
static specdec_result specdec__model_demands(const specdec__model *m, specdec_error *error)
{
    const struct { const char *suffix; int done; } key[] = {
        {".attention.causal", 1}, {".nextn_predict_layers", 0}, {".attention.key_length_swa", m->head_dim},
        {".attention.value_length_swa", m->head_dim}, {".rope.dimension_count_swa", m->rope_dim}};
    specdec__model_reader r = specdec__model_read(m, error);
    int i;

    for (i = 0; i < (int)SPECDEC__COUNT(key); i++) {
        const int asked = specdec__model_count(&r, key[i].suffix, 0, 1 << 30, key[i].done);

        if (!r.result && asked != key[i].done)
            return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "%s%s is %d (%d is read)", specdec__model_name(m),
                                 key[i].suffix, asked, key[i].done);
    }
    return r.result;
}

/* Scales, caps and the window: the architecture's, unless the file says otherwise. A scale of 0 in the file counts as
   absent. */
static specdec_result specdec__model_facts(specdec__model *m, specdec_error *error)
{
    const int queries = m->layers == m->trait[SPECDEC__WIDE_QUERIES] ? m->embedding / m->heads : m->head_dim;
    specdec__model_reader r = specdec__model_read(m, error);
    int i, window = m->trait[SPECDEC__WINDOW_KEYS];

    for (i = 0; i < SPECDEC__FACTS; i++) {
        const float value = specdec__model_float(&r, specdec__fact_table[i], 0);

        if (r.result)
            return r.result;
        if (!(value >= 0 && value < 1e6f))
            return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s is out of range", specdec__fact_table[i] + 1);
        if (!(value > 0) && m->trait[SPECDEC__MUST_SAY] >> i & 1)
            return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s is missing", specdec__fact_table[i] + 1);
        m->fact[i] = value > 0 ? value : 1;
        if (i == SPECDEC__SCORE_CAP || i == SPECDEC__LOGIT_CAP)
            m->fact[i] = value > 0 ? value : (float)m->trait[i == SPECDEC__SCORE_CAP ? SPECDEC__CAP_SCORES
                                                                                      : SPECDEC__CAP_LOGITS];
        else if (i == SPECDEC__EMBEDDING_SCALE && !(value > 0) && m->trait[SPECDEC__ROOT_EMBEDDING])
            m->fact[i] = (float)(m->embedding * specdec__inverse_root((double)m->embedding));
        else if (i == SPECDEC__QUERY_SCALE && !(value > 0))
            m->fact[i] = (float)specdec__inverse_root((double)queries);
    }
    if (window == -1)
        return SPECDEC_OK;
    window = specdec__model_count(&r, ".attention.sliding_window", 0, 1 << 30, window < 0 ? 0 : window);
    if (window && m->trait[SPECDEC__WINDOW_KEYS] < 0)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "%s with a sliding window is not read",
                             specdec__model_name(m));
    m->window = window < 1 << 30 ? window : 0;
    return r.result ? r.result : specdec__model_pattern(m, error);
}

SPECDEC__FOR_SPEED
