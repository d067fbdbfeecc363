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
                                              r->model->layers + r->model->nextn, low, high, &value, r->error);
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

/* Reads a size of layers: a number, or a list with one for each block. needed: it must be there. */
static void specdec__model_read_list(specdec__model_reader *r, specdec__model *m, int list, int needed)
{
    specdec__gguf_value *v = &m->list[list];
    const int low = specdec__list_table[list].may_lack && m->trait[SPECDEC__GAPS] ? 0 : 1;
    int64_t value = 0;
    char key[96];
    uint64_t i;

    specdec__model_key(m, specdec__list_table[list].suffix, key, sizeof key);
    if (r->result)
        return;
    if (!specdec__gguf_find(&m->gguf, key, v)) {
        if (needed)
            r->result = specdec__fail(r->error, SPECDEC_ERROR_FORMAT, "%s is missing", key);
        return;
    }
    if (v->is_array && v->count != (uint64_t)(m->layers + m->nextn))
        r->result = specdec__fail(r->error, SPECDEC_ERROR_FORMAT, "%s tells of %llu layers, there are %d", key,
                                  (unsigned long long)v->count, m->layers + m->nextn);
    for (i = 0; !r->result && i < (v->is_array ? v->count : 1); i++)
        if (!specdec__gguf_integer(v->type, v->items + (size_t)i * specdec__gguf_type_size[v->type], &value))
            r->result = specdec__gguf_wrong_type(key, "an ", "integer", v, r->error);
        else if (value < low || value > specdec__list_table[list].high)
            r->result = specdec__fail(r->error, SPECDEC_ERROR_FORMAT, "%s is out of range", key);
}

/* A size of a layer, or what it is where the file does not say it. */
static int specdec__model_listed(const specdec__model *m, int list, int index, int fallback)
{
    const specdec__gguf_value *v = &m->list[list];
    int64_t value = fallback;

    if (v->items)
        specdec__gguf_integer(v->type, v->items + (v->is_array ? (size_t)index * specdec__gguf_type_size[v->type] : 0),
                              &value);
    return (int)value;
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
    m->expert_ff = specdec__model_count(&r, ".expert_feed_forward_length", 1, SPECDEC__MAX_DIMENSION,
                                        specdec__model_listed(m, SPECDEC__LIST_FF, 0, -1));
    scale = specdec__model_float(&r, ".expert_weights_scale", 0);
    if (r.result)
        return r.result;
    if (scale != 0 && scale != 1)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "expert_weights_scale is not read");
    if (m->expert_ff % 16 || m->embedding % 16)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "experts of %d and %d rows, no multiples of 16",
                             m->expert_ff, m->embedding);
    return SPECDEC_OK;
}

/* Reads the sizes of a model that no layer has of its own, and where those of layers are. */
static specdec_result specdec__model_shape(specdec__model *m, specdec_error *error)
{
    const int most = SPECDEC__MAX_DIMENSION;
    specdec__model_reader r = specdec__model_read(m, error);
    int i;

    m->layers = specdec__model_count(&r, ".block_count", 1, 1 << 20, -1);
    m->nextn = specdec__model_count(&r, ".nextn_predict_layers", 0, 1 << 20, 0);
    if (!r.result && m->nextn >= m->layers)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "nextn_predict_layers %d of %d blocks", m->nextn, m->layers);
    m->all = m->layers -= m->nextn;
    if (m->trait[SPECDEC__SHARES_KEYS])
        m->sharing = specdec__model_count(&r, ".attention.shared_kv_layers", 0, m->layers - 1, 0);
    if (m->trait[SPECDEC__LAYER_INPUTS])
        m->inputs.width = specdec__model_count(&r, ".embedding_length_per_layer_input", 0, most / m->layers, 0);
    m->embedding = specdec__model_count(&r, ".embedding_length", 1, most, -1);
    m->context = specdec__model_count(&r, ".context_length", 1, 1 << 30, -1);
    for (i = 0; i < SPECDEC__LISTS; i++)
        specdec__model_read_list(&r, m, i, specdec__list_table[i].needed);
    m->epsilon = specdec__model_needed(&r, m->trait[SPECDEC__LAYER_NORM] ? ".attention.layer_norm_epsilon"
                                                                        : ".attention.layer_norm_rms_epsilon");
    if (r.result)
        return r.result;
    if (!(m->epsilon >= 0 && m->epsilon < 1))
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "epsilon of norms is out of range");
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
    if (m->pattern.is_array && m->pattern.count != (uint64_t)(m->layers + m->nextn))
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s tells of %llu layers, there are %d", key,
                             (unsigned long long)m->pattern.count, m->layers + m->nextn);
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

static int specdec__model_windowed(const specdec__model *m, int index)
{
    return specdec__model_other(m, index) && m->window;
}

/* The sizes of a layer, which specdec__model_layers checks. Where it has a window, keys of their own may say them. */
static specdec__shape specdec__model_layer_shape(const specdec__model *m, int index)
{
    const int other = specdec__model_other(m, index), windowed = specdec__model_windowed(m, index);
    specdec__shape s;
    int i;

    s.keys_of = -1;
    s.span = windowed ? SPECDEC__WINDOW : SPECDEC__WHOLE;
    s.rope = other != m->trait[SPECDEC__REST_TURNS] && m->trait[SPECDEC__OTHER_BASE] != 0 &&
                     (m->window || m->trait[SPECDEC__WINDOW_KEYS] < 0)
                 ? SPECDEC__ROPE_OTHER
                 : SPECDEC__ROPE;
    s.heads = specdec__model_listed(m, SPECDEC__LIST_HEADS, index, 0);
    s.kv_heads = specdec__model_listed(m, SPECDEC__LIST_KV_HEADS, index, s.heads);
    s.key_dim = specdec__model_listed(m, SPECDEC__LIST_KEY, index, s.heads ? m->embedding / s.heads : 0);
    s.key_dim = windowed ? specdec__model_listed(m, SPECDEC__LIST_WINDOW_KEY, index, s.key_dim) : s.key_dim;
    s.value_dim = specdec__model_listed(m, SPECDEC__LIST_VALUE, index, s.key_dim);
    s.value_dim = windowed ? specdec__model_listed(m, SPECDEC__LIST_WINDOW_VALUE, index, s.value_dim) : s.value_dim;
    s.rope_dim = specdec__model_listed(m, SPECDEC__LIST_ROPE, index, s.key_dim);
    s.rope_dim = windowed ? specdec__model_listed(m, SPECDEC__LIST_WINDOW_ROPE, index, s.rope_dim) : s.rope_dim;
    s.feed_forward = m->experts ? m->expert_ff : specdec__model_listed(m, SPECDEC__LIST_FF, index, 0);
    s.kv_heads = s.heads ? s.kv_heads : 0;
    for (i = m->all - m->sharing; index >= m->all - m->sharing && s.keys_of < 0 && i-- > 0;)
        if (specdec__model_windowed(m, i) == windowed)
            s.keys_of = i;
    return s;
}

/* Checks that a layer can read the keys of the one that it shares them with. */
static specdec_result specdec__model_check_sharing(const specdec__model *m, int index, const specdec__shape *s,
                                                   specdec_error *error)
{
    specdec__shape other;

    if (index < m->all - m->sharing)
        return SPECDEC_OK;
    if (s->keys_of < 0)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT,
                             "shared_kv_layers %d of %d: no layer before these sees as much as layer %d", m->sharing,
                             m->all, index);
    other = specdec__model_layer_shape(m, s->keys_of);
    if (other.kv_heads != s->kv_heads || other.key_dim != s->key_dim || other.value_dim != s->value_dim)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT,
                             "layer %d shares %d heads of %d keys and %d values, which layer %d does not have", index,
                             s->kv_heads, s->key_dim, s->value_dim, s->keys_of);
    return SPECDEC_OK;
}

/* Checks the sizes of a layer's attention. */
static specdec_result specdec__model_check_shape(const specdec__model *m, const specdec__shape *s, specdec_error *error)
{
    const int most = SPECDEC__MAX_DIMENSION;

    if (s->heads % s->kv_heads)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%d heads cannot share %d kv heads", s->heads, s->kv_heads);
    if (s->key_dim < 2 || s->key_dim > 1024 || s->value_dim > 1024)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                             "heads of %d keys and %d values (2..1024 and 1..1024 are read)", s->key_dim, s->value_dim);
    if (s->rope_dim > s->key_dim || s->rope_dim % 2)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "rope.dimension_count %d for heads of %d", s->rope_dim,
                             s->key_dim);
    if (s->heads * s->key_dim > most || s->heads * s->value_dim > most)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "%d heads of %d are too many", s->heads,
                             specdec__max_int(s->key_dim, s->value_dim));
    if (m->trait[SPECDEC__JOINT_NORMS] && s->kv_heads * s->key_dim % 16)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "keys of %d values together, no multiple of 16",
                             s->kv_heads * s->key_dim);
    if (m->rope_dim[s->rope] && m->rope_dim[s->rope] != s->rope_dim)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                             "layers that rotate %d and %d dimensions by the same RoPE", m->rope_dim[s->rope],
                             s->rope_dim);
    return SPECDEC_OK;
}

/* Checks the sizes of all layers, and finds the largest of each. */
static specdec_result specdec__model_layers(specdec__model *m, specdec_error *error)
{
    specdec_result result;
    int i, any = 0;

    for (i = 0; i < m->layers; i++) {
        const specdec__shape s = specdec__model_layer_shape(m, i);

        m->feed_forward = specdec__max_int(m->feed_forward, s.feed_forward);
        if (!s.kv_heads)
            continue;
        if ((result = specdec__model_check_shape(m, &s, error)) != SPECDEC_OK ||
            (result = specdec__model_check_sharing(m, i, &s, error)) != SPECDEC_OK)
            return result;
        any = m->rope_dim[s.rope] = s.rope_dim;
        m->heads = specdec__max_int(m->heads, s.heads);
        m->kv_heads = specdec__max_int(m->kv_heads, s.kv_heads);
        m->head_dim = specdec__max_int(m->head_dim, specdec__max_int(s.key_dim, s.value_dim));
        m->q_width = specdec__max_int(m->q_width, s.heads * specdec__model_query_rows(m, &s));
        m->k_width = specdec__max_int(m->k_width, s.kv_heads * s.key_dim);
        m->v_width = specdec__max_int(m->v_width, s.kv_heads * s.value_dim);
        m->o_width = specdec__max_int(m->o_width, s.heads * s.value_dim);
    }
    for (i = 0; i < SPECDEC__ROPES; i++)
        m->rope_dim[i] = m->rope_dim[i] ? m->rope_dim[i] : any;
    return SPECDEC_OK;
}

/* Refuses a file with a key that asks for what is not done: a text that sees what follows, other sizes of layers with a
   window where none has one. */
static specdec_result specdec__model_demands(const specdec__model *m, specdec_error *error)
{
    const struct { const char *suffix; int done; } key[] = {
        {".attention.causal", 1}, {".attention.key_length_swa", m->head_dim},
        {".attention.value_length_swa", m->head_dim}, {".rope.dimension_count_swa", m->rope_dim[SPECDEC__ROPE]}};
    specdec__model_reader r = specdec__model_read(m, error);
    int i;

    for (i = 0; i < (m->window ? 1 : (int)SPECDEC__COUNT(key)); i++) {
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
        if (i == SPECDEC__LOGIT_SCALE && !m->trait[SPECDEC__LOGITS_TIMES])
            m->fact[i] = 1 / m->fact[i];
        if (i == SPECDEC__SCORE_CAP || i == SPECDEC__LOGIT_CAP)
            m->fact[i] = value > 0 ? value : (float)m->trait[i == SPECDEC__SCORE_CAP ? SPECDEC__CAP_SCORES
                                                                                      : SPECDEC__CAP_LOGITS];
        else if (i == SPECDEC__EMBEDDING_SCALE && !(value > 0) && m->trait[SPECDEC__ROOT_EMBEDDING])
            m->fact[i] = (float)(m->embedding * specdec__inverse_root((double)m->embedding));
        else if (i == SPECDEC__QUERY_SCALE)
            m->fact[i] = value;
    }
    if (window == -1)
        return SPECDEC_OK;
    window = specdec__model_count(&r, ".attention.sliding_window", 0, 1 << 30, window);
    m->window = window < 1 << 30 ? window : 0;
    return r.result ? r.result : specdec__model_pattern(m, error);
}

SPECDEC__FOR_SPEED
