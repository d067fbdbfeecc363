/* =====================================================================================================================
 * >>model/facts: the sizes and facts of a model, read from the metadata of its file and checked.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/op.h"
#include "gguf.h"
#include "model.h"

SPECDEC__FOR_SIZE

/* Writes a metadata key, such as "llama" + ".block_count", to a buffer and returns the buffer. */
static const char *specdec__model_write_key(const specdec__model *model, const char *suffix, char *buffer, size_t size)
{
    specdec__writer w = specdec__writer_to(buffer, size);

    specdec__write_string(&w, specdec__model_architecture_name(model));
    specdec__write_string(&w, suffix);
    return buffer;
}

/* Reads metadata keys of a model one after the other. After the first failure, which is in `result`, no more keys are
   read. */
typedef struct specdec__model_reader {
    const specdec__model *model; /* the model whose file is read */
    specdec_error *error;        /* filled in by the first failure */
    specdec_result result;       /* SPECDEC_OK, or the first failure */
} specdec__model_reader;

/* Returns a reader of a model's metadata keys, without a failure so far. */
static specdec__model_reader specdec__model_start_reading(const specdec__model *model, specdec_error *error)
{
    specdec__model_reader reader;

    reader.model = model;
    reader.error = error;
    reader.result = SPECDEC_OK;
    return reader;
}

/* Reads an integer metadata value of a model in [low, high]. It is an error if the file lacks the key, unless fallback
   >= 0, which is returned then. A list with a number for each layer is read if all numbers are equal. Returns `low`
   after a failure. */
static int specdec__model_read_integer(specdec__model_reader *r, const char *suffix, int low, int high, int fallback)
{
    char key[96];
    int64_t value = fallback;

    if (!r->result)
        r->result = specdec__gguf_get_integer(&r->model->gguf,
                                              specdec__model_write_key(r->model, suffix, key, sizeof key),
                                              r->model->layers + r->model->nextn, low, high, &value, r->error);
    if (!r->result && value < 0)
        r->result = specdec__fail(r->error, SPECDEC_ERROR_FORMAT, "%s is missing", key);
    return r->result ? low : (int)value;
}

/* Reads a float metadata value of a model; returns `fallback` if the file lacks the key. */
static float specdec__model_read_float(specdec__model_reader *r, const char *suffix, float fallback)
{
    char key[96];

    if (!r->result)
        r->result = specdec__gguf_get_float(&r->model->gguf,
                                            specdec__model_write_key(r->model, suffix, key, sizeof key), &fallback,
                                            r->error);
    return fallback;
}

/* Reads a float metadata value of a model; it is an error if the file lacks the key. */
static float specdec__model_read_required_float(specdec__model_reader *r, const char *suffix)
{
    specdec__gguf_value unused;
    char key[96];

    specdec__model_write_key(r->model, suffix, key, sizeof key);
    if (!r->result && !specdec__gguf_find_value(&r->model->gguf, key, &unused))
        r->result = specdec__fail(r->error, SPECDEC_ERROR_FORMAT, "%s is missing", key);
    return specdec__model_read_float(r, suffix, 1);
}

/* Reads the base of RoPE: the key of llama.cpp, or that of Ollama; else the trait ROPE_BASE, if the architecture has
   it. */
static float specdec__model_read_rope_base(specdec__model_reader *r)
{
    const float unsaid = (float)r->model->trait[SPECDEC__ROPE_BASE];
    const float base = specdec__model_read_float(r, ".rope.global.freq_base", unsaid);

    return base > 0 ? specdec__model_read_float(r, ".rope.freq_base", base)
                    : specdec__model_read_required_float(r, ".rope.freq_base");
}

/* Reads a size of layers, such as the number of heads, from its key: one number, or a list with one number for each
   block. Checks the numbers. list: SPECDEC__LIST_HEADS, ...; needed: 1: the key is required. Errors: FORMAT. */
static void specdec__model_read_layer_sizes(specdec__model_reader *r, specdec__model *m, int list, int needed)
{
    specdec__gguf_value *v = &m->list[list];
    const int low = specdec__list_table[list].may_lack && m->trait[SPECDEC__ZERO_SIZES] ? 0 : 1;
    int64_t value = 0;
    char key[96];
    uint64_t i;

    specdec__model_write_key(m, specdec__list_table[list].suffix, key, sizeof key);
    if (r->result)
        return;
    if (!specdec__gguf_find_value(&m->gguf, key, v)) {
        if (needed)
            r->result = specdec__fail(r->error, SPECDEC_ERROR_FORMAT, "%s is missing", key);
        return;
    }
    if (v->is_array && v->count != (uint64_t)(m->layers + m->nextn))
        r->result = specdec__fail(r->error, SPECDEC_ERROR_FORMAT, "%s tells of %llu layers, there are %d", key,
                                  (unsigned long long)v->count, m->layers + m->nextn);
    for (i = 0; !r->result && i < (v->is_array ? v->count : 1); i++)
        if (!specdec__gguf_read_integer(v->type, v->items + (size_t)i * specdec__gguf_type_size[v->type], &value))
            r->result = specdec__gguf_refuse_type(key, "an ", "integer", v, r->error);
        else if (value < low || value > specdec__list_table[list].high)
            r->result = specdec__fail(r->error, SPECDEC_ERROR_FORMAT, "%s is out of range", key);
}

/* Returns a size of layer number `index`, from the list SPECDEC__LIST_HEADS, ...; `fallback` if the file has no key for
   it. */
static int specdec__model_size_of_layer(const specdec__model *m, int list, int index, int fallback)
{
    const specdec__gguf_value *v = &m->list[list];
    int64_t value = fallback;

    if (v->items)
        specdec__gguf_read_integer(v->type, v->items + (v->is_array ? (size_t)index * specdec__gguf_type_size[v->type]
                                                        : 0),
                                   &value);
    return (int)value;
}

/* Reads the width of the shared expert of a mixture, if it has one. */
static void specdec__model_read_shared_expert(specdec__model_reader *r, specdec__model *m)
{
    const int most = SPECDEC__MAX_DIMENSION, count = specdec__model_read_integer(r, ".expert_shared_count", 0, 1024, 0);
    const int said = specdec__model_read_integer(r, ".expert_shared_feed_forward_length", 0, most, 0);

    m->shared_ff = said ? m->trait[SPECDEC__SHARED_EACH] ? said * count : said : count * m->expert_ff;
    if (!m->shared_ff && m->trait[SPECDEC__SHARED_GATE])
        m->shared_ff = specdec__model_size_of_layer(m, SPECDEC__LIST_FF, 0, 0);
    if (!r->result && m->shared_ff > most)
        r->result = specdec__fail(r->error, SPECDEC_ERROR_UNSUPPORTED, "shared experts of %d rows", m->shared_ff);
}

/* Reads how a token's experts are chosen and weighted. */
static void specdec__model_read_router(specdec__model_reader *r, specdec__model *m)
{
    const int usual = m->trait[SPECDEC__EXPERT_SHARES],
              kind = specdec__model_read_integer(r, ".expert_gating_func", 0, 3, 0);

    m->sigmoid_experts = kind ? kind == 2 : (usual & SPECDEC__SIGMOID) != 0;
    m->normed_experts = specdec__model_read_integer(r, ".expert_weights_norm", 0, 1,
                                                    kind == 3 || (usual & SPECDEC__NORMED));
    m->expert_scale = specdec__model_read_float(r, ".expert_weights_scale", 1);
    m->expert_scale = m->expert_scale < 0 || m->expert_scale > 0 ? m->expert_scale : 1;
    m->groups = specdec__model_read_integer(r, ".expert_group_count", 1,
                                            specdec__min_int(m->experts, SPECDEC__MAX_CHOSEN_EXPERTS), 1);
    m->groups_chosen = specdec__model_read_integer(r, ".expert_group_used_count", 1, m->groups, m->groups > 1 ? -1 : 1);
    if (!r->result && !(m->expert_scale > 0 && m->expert_scale < 1e6f))
        r->result = specdec__fail(r->error, SPECDEC_ERROR_FORMAT, "expert_weights_scale is out of range");
    if (!r->result && (m->experts % m->groups || m->experts / m->groups * m->groups_chosen < m->chosen_experts))
        r->result = specdec__fail(r->error, SPECDEC_ERROR_FORMAT,
                                  "%d of %d groups of experts, %d experts in all, of which %d are chosen",
                                  m->groups_chosen, m->groups, m->experts, m->chosen_experts);
}

/* Reads the sizes of a mixture of experts. Errors: FORMAT, UNSUPPORTED. */
static specdec_result specdec__model_read_experts(specdec__model *m, specdec_error *error)
{
    specdec__model_reader r = specdec__model_start_reading(m, error);

    m->experts = specdec__model_read_integer(&r, ".expert_count", 0, SPECDEC__MAX_EXPERTS, 0);
    if (!m->experts)
        return r.result;
    if (!SPECDEC__HAS_EXPERTS)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                             "mixtures of experts are left out of this build by SPECDEC_NO_EXPERTS");
    if (!m->trait[SPECDEC__EXPERT_SHARES])
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "mixtures of experts are not read of %s",
                             m->architecture->name);
    m->chosen_experts = specdec__model_read_integer(&r, ".expert_used_count", 1,
                                                    specdec__min_int(m->experts, SPECDEC__MAX_CHOSEN_EXPERTS), -1);
    m->expert_ff = specdec__model_read_integer(&r, ".expert_feed_forward_length", 1, SPECDEC__MAX_DIMENSION,
                                               specdec__model_size_of_layer(m, SPECDEC__LIST_FF, 0, -1));
    m->leading_dense = specdec__model_read_integer(&r, ".leading_dense_block_count", 0, m->layers, 0);
    m->expert_interval = specdec__model_read_integer(&r, ".interleave_moe_layer_step", 1, m->layers, 1);
    m->latent = specdec__model_read_integer(&r, ".moe_latent_size", 0, SPECDEC__MAX_DIMENSION, 0);
    if (!r.result && (m->expert_ff < 1 || m->expert_ff % 16 || m->embedding % 16 || m->latent % 16))
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "experts of %d and %d rows, no multiples of 16",
                             m->expert_ff, m->latent ? m->latent : m->embedding);
    specdec__model_read_shared_expert(&r, m);
    specdec__model_read_router(&r, m);
    return r.result;
}

/* Reads the sizes of latent attention (MLA). */
static void specdec__model_read_latent(specdec__model_reader *r, specdec__model *m)
{
    specdec__latent *latent = &m->latent_attention;

    latent->rank = specdec__model_read_integer(r, ".attention.kv_lora_rank", 1, 1024, -1);
    latent->query_rank = specdec__model_read_integer(r, ".attention.q_lora_rank", 0, SPECDEC__MAX_DIMENSION, 0);
    latent->key_dim = specdec__model_read_integer(r, ".attention.key_length_mla", 1, 4096, -1);
    latent->value_dim = specdec__model_read_integer(r, ".attention.value_length_mla", 1, 4096, -1);
}

/* Reads the sizes of a model that drafts blocks in one pass, and whether a row of a block attends to later rows. */
static void specdec__model_read_block_drafter(specdec__model_reader *r, specdec__model *m)
{
    static const char mask[] = "tokenizer.ggml.mask_token_id";
    specdec__block_model *b = &m->block;
    int64_t token = -1;

    b->size = specdec__model_read_integer(r, ".block_size", 2, SPECDEC__MAX_BLOCK_TOKENS, -1);
    b->draft_row = !specdec__model_read_integer(r, ".sample_from_anchor", 0, 1, 0);
    b->taps = specdec__model_read_integer(r, ".conv_kernel_size", 0, SPECDEC__MAX_BLOCK_TOKENS, 0);
    b->group_size = specdec__model_read_integer(r, ".conv_group_size", 1, m->embedding, b->taps ? -1 : 1);
    b->candidates = specdec__model_read_integer(r, ".selector_top_k", 0, SPECDEC__MAX_CHOSEN_EXPERTS, 0);
    if (specdec__model_read_integer(r, ".attention.causal", 0, 1, 0))
        m->trait[SPECDEC__VISIBLE_KEYS] = SPECDEC__SEES_ANCESTORS;
    if (!r->result)
        r->result = specdec__gguf_get_integer(&m->gguf, mask, 0, 0, 1 << 24, &token, r->error);
    if (!r->result && token < 0)
        r->result = specdec__fail(r->error, SPECDEC_ERROR_FORMAT, "%s is missing", mask);
    if (!r->result && m->embedding % b->group_size)
        r->result = specdec__fail(r->error, SPECDEC_ERROR_FORMAT, "conv_group_size %d of %d dimensions", b->group_size,
                                  m->embedding);
    b->mask_token = (int32_t)token;
}

/* Reads the sizes of a model that are the same for all layers, and the keys of those that may differ. Errors: FORMAT,
   UNSUPPORTED. */
static specdec_result specdec__model_read_sizes(specdec__model *m, specdec_error *error)
{
    const int most = SPECDEC__MAX_DIMENSION;
    specdec__model_reader r = specdec__model_start_reading(m, error);
    int i;

    m->layers = specdec__model_read_integer(&r, ".block_count", 1, 1 << 20, -1);
    if (!m->trait[SPECDEC__READS_STATES]) /* blocks of a draft model are its layers */
        m->nextn = specdec__model_read_integer(&r, ".nextn_predict_layers", 0, 1 << 20, 0);
    if (!r.result && m->nextn >= m->layers)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "nextn_predict_layers %d of %d blocks", m->nextn,
                             m->layers);
    m->all_layers = m->layers -= m->nextn;
    if (m->trait[SPECDEC__SHARES_KEYS])
        m->sharing_layers = specdec__model_read_integer(&r, ".attention.shared_kv_layers", 0, m->layers - 1, 0);
    if (m->trait[SPECDEC__LAYER_INPUTS])
        m->layer_embeddings.width = specdec__model_read_integer(&r, ".embedding_length_per_layer_input", 0,
                                                                most / m->layers, 0);
    m->embedding = specdec__model_read_integer(&r, ".embedding_length", 1, most, -1);
    if (m->trait[SPECDEC__ALTUP]) {
        m->streams.count = specdec__model_read_integer(&r, ".altup.num_inputs", 2, SPECDEC__MAX_STREAMS,
                                                       m->trait[SPECDEC__ALTUP]);
        specdec__model_read_integer(&r, ".altup.active_idx", 0, 0, 0);
    }
    m->context = specdec__model_read_integer(&r, ".context_length", 1, 1 << 30, -1);
    if (m->trait[SPECDEC__LATENT])
        specdec__model_read_latent(&r, m);
    if (m->trait[SPECDEC__READS_STATES] == SPECDEC__AS_KEYS)
        specdec__model_read_block_drafter(&r, m);
    for (i = 0; i < SPECDEC__LISTS; i++)
        specdec__model_read_layer_sizes(&r, m, i, specdec__list_table[i].needed);
    m->epsilon = specdec__model_read_required_float(
        &r, m->trait[SPECDEC__LAYER_NORM] ? ".attention.layer_norm_epsilon" : ".attention.layer_norm_rms_epsilon");
    if (r.result)
        return r.result;
    if (!(m->epsilon >= 0 && m->epsilon < 1))
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "epsilon of norms is out of range");
    return specdec__model_read_experts(m, error);
}

/* Reads the four parameters of a layer's xIELU. Their keys have no architecture in them; each is one float, or a list
   with a float for each block. Errors: FORMAT. */
static specdec_result specdec__model_read_activation(const specdec__model *m, int index, float *shape,
                                                     specdec_error *error)
{
    static const char *const keys[] = {"xielu.alpha_p", "xielu.alpha_n", "xielu.beta", "xielu.eps"};
    specdec__gguf_value v;
    int i;

    for (i = 0; i < 4; i++) {
        if (!specdec__gguf_find_value(&m->gguf, keys[i], &v))
            return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s is missing", keys[i]);
        if (v.type != SPECDEC_GGUF_F32)
            return specdec__gguf_refuse_type(keys[i], "", "f32", &v, error);
        if (v.is_array && v.count != (uint64_t)(m->all_layers + m->nextn))
            return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s tells of %llu layers, there are %d", keys[i],
                                 (unsigned long long)v.count, m->all_layers + m->nextn);
        shape[i] = specdec__load_f32(v.items + (v.is_array ? 4 * (size_t)index : 0));
        if (!(shape[i] >= -100 && shape[i] <= 100))
            return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s is out of range", keys[i]);
    }
    for (i = 0; i < 2; i++)
        shape[i] = (float)specdec__log_double(1 + specdec__exp_double((double)shape[i]));
    shape[1] += shape[2];
    return SPECDEC_OK;
}

/* Reads the sparsity of a layer's gates: one float, or a list with a float for each block; -100 or less (such as minus
   infinity) stands for gates that are not sparse. Errors: FORMAT. */
static specdec_result specdec__model_read_sparsity(const specdec__model *m, int index, float *sparsity,
                                                   specdec_error *error)
{
    const int blocks = m->all_layers + m->nextn;
    specdec__gguf_value v;
    char key[96];

    specdec__model_write_key(m, ".activation_sparsity_scale", key, sizeof key);
    *sparsity = index < m->trait[SPECDEC__SPARSE] ? 1.64485363f : 0; /* 95 of 100 values of a normal distribution */
    if (!specdec__gguf_find_value(&m->gguf, key, &v))
        return SPECDEC_OK;
    if (v.type != SPECDEC_GGUF_F32)
        return specdec__gguf_refuse_type(key, "", "f32", &v, error);
    if (v.is_array && v.count != (uint64_t)blocks)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s tells of %llu layers, there are %d", key,
                             (unsigned long long)v.count, blocks);
    *sparsity = specdec__load_f32(v.items + (v.is_array ? 4 * (size_t)index : 0));
    if (!(*sparsity <= 100))
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s is out of range", key);
    *sparsity = *sparsity > -100 ? *sparsity : 0;
    return SPECDEC_OK;
}

/* Reads which layers are alternate ones, with a window, if the file has a key for it: a list marks them, or a number n:
   all but the last of every n layers (0: all). Errors: FORMAT. */
static specdec_result specdec__model_read_alternate_layers(specdec__model *m, specdec_error *error)
{
    int64_t value;
    char key[96];

    specdec__model_write_key(m, ".attention.sliding_window_pattern", key, sizeof key);
    if (!specdec__gguf_find_value(&m->gguf, key, &m->alternate_list))
        return SPECDEC_OK;
    if (m->alternate_list.is_array && m->alternate_list.count != (uint64_t)(m->layers + m->nextn))
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s tells of %llu layers, there are %d", key,
                             (unsigned long long)m->alternate_list.count, m->layers + m->nextn);
    if (!specdec__gguf_read_integer(m->alternate_list.type, m->alternate_list.items, &value))
        return specdec__gguf_refuse_type(key, "an ", "integer", &m->alternate_list, error);
    return m->alternate_list.is_array || value >= 0
               ? SPECDEC_OK
               : specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s is out of range", key);
}

/* Whether a layer is an alternate one, by the file's list or number, or else by the architecture's traits. */
static int specdec__model_layer_is_alternate(const specdec__model *m, int index)
{
    const specdec__gguf_value *p = &m->alternate_list;
    int64_t value = 0;

    if (!p->items)
        return (int)(m->trait[SPECDEC__ALTERNATES] >> index % m->trait[SPECDEC__PERIOD] & 1);
    specdec__gguf_read_integer(p->type, p->items + (p->is_array ? (size_t)index * specdec__gguf_type_size[p->type] : 0),
                               &value);
    return p->is_array ? value != 0 : !value || index % value < value - 1;
}

/* Whether layer number `index`, of these sizes, is recurrent. */
static int specdec__model_layer_is_recurrent(const specdec__model *m, int index, const specdec__shape *s)
{
    const specdec__gguf_value *list = &m->recurrent_list;
    int64_t value = 0;

    if (!specdec__recurrent_layers_exist(&m->recurrent_sizes) ||
        index >= (m->all_layers ? m->all_layers : m->layers)) /* NextN blocks have attention */
        return 0;
    if (m->trait[SPECDEC__RECURS] == SPECDEC__RECURS_BESIDE_ATTENTION)
        return 1;
    if (m->trait[SPECDEC__RECURS] != SPECDEC__RECURS_AS_LISTED)
        return !s->kv_heads &&
               (m->trait[SPECDEC__RECURS] == SPECDEC__RECURS_WITHOUT_ATTENTION || (!s->feed_forward && !s->experts));
    if (!list->items)
        return (index + 1) % m->attention_interval != 0;
    specdec__gguf_read_integer(list->type, list->items + (size_t)index * specdec__gguf_type_size[list->type], &value);
    return value != 0;
}

/* Reads which layers are recurrent: a list, or an interval of layers with attention. Errors: FORMAT. */
static specdec_result specdec__model_read_recurrent_layers(specdec__model *m, specdec_error *error)
{
    specdec__model_reader r = specdec__model_start_reading(m, error);
    int64_t value;
    char key[96];

    specdec__model_write_key(m, ".attention.recurrent_layers", key, sizeof key);
    if (!specdec__gguf_find_value(&m->gguf, key, &m->recurrent_list)) {
        m->attention_interval = specdec__model_read_integer(&r, ".full_attention_interval", 1, 1 << 20, -1);
        return r.result;
    }
    if (!m->recurrent_list.is_array || m->recurrent_list.count != (uint64_t)(m->layers + m->nextn))
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s is no list of %d layers", key, m->layers + m->nextn);
    return specdec__gguf_read_integer(m->recurrent_list.type, m->recurrent_list.items, &value)
               ? SPECDEC_OK
               : specdec__gguf_refuse_type(key, "an ", "integer", &m->recurrent_list, error);
}

/* Checks the sizes of recurrent layers; kernels need multiples of 16. wide: number of channels of queries and keys.
   Errors: FORMAT, UNSUPPORTED. */
static specdec_result specdec__model_check_recurrent_sizes(const specdec__recurrent_sizes *x, int wide,
                                                           specdec_error *error)
{
    const int most = SPECDEC__MAX_DIMENSION;

    if (x->taps < 1 || x->taps > SPECDEC__MAX_TAPS)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "a convolution of %d taps (1..%d are read)", x->taps,
                             SPECDEC__MAX_TAPS);
    if (x->heads && (x->groups < 1 || x->heads % x->groups))
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%d heads of a state cannot share %d keys", x->heads,
                             x->groups);
    if (wide > most || x->channels > most || x->input_width > most || x->channels < 1 || x->output_width < 1)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "recurrent layers are too wide");
    if (x->channels % 16 || x->values % 16 || x->rows % 16 || x->output_width / specdec__max_int(x->groups, 1) % 16)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                             "states of %d channels, %d x %d, %d groups: some are no multiple of 16", x->channels,
                             x->rows, x->values, x->groups);
    return SPECDEC_OK;
}

/* Reads the sizes of recurrent layers, if the architecture has any. Errors: FORMAT, UNSUPPORTED. */
static specdec_result specdec__model_read_recurrent_sizes(specdec__model *m, specdec_error *error)
{
    const int most = SPECDEC__MAX_DIMENSION;
    specdec__model_reader r = specdec__model_start_reading(m, error);
    specdec__recurrent_sizes *x = &m->recurrent_sizes;
    int inner, wide;

    x->kind = m->trait[SPECDEC__RECURRENT_KIND];
    if (!x->kind)
        return SPECDEC_OK;
    if (!SPECDEC__HAS_RECURRENT_LAYERS)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                             "recurrent layers, which %s has, are left out of this build by SPECDEC_NO_RECURRENT",
                             m->architecture->name);
    if (m->trait[SPECDEC__RECURS] == SPECDEC__RECURS_AS_LISTED &&
        (r.result = specdec__model_read_recurrent_layers(m, error)) != SPECDEC_OK)
        return r.result;
    if (x->kind == SPECDEC__SHORT_CONVOLUTION) {
        x->taps = specdec__model_read_integer(&r, ".shortconv.l_cache", 0, 1 << 30, -1);
        x->channels = x->input_count = x->output_width = m->embedding;
        x->input_width = 3 * m->embedding;
        return r.result ? r.result : specdec__model_check_recurrent_sizes(x, x->input_width, error);
    }
    x->taps = specdec__model_read_integer(&r, ".ssm.conv_kernel", 0, 1 << 30, -1);
    x->rows = specdec__model_read_integer(&r, ".ssm.state_size", 1, most, -1);
    x->groups = specdec__model_read_integer(&r, ".ssm.group_count", 0, most, -1);
    x->heads = specdec__model_read_integer(&r, ".ssm.time_step_rank", 1, most, -1);
    inner = specdec__model_read_integer(&r, ".ssm.inner_size", 1, most, -1);
    if (r.result)
        return r.result;
    if (inner % x->heads || (x->kind == SPECDEC__GATED_DELTA && inner / x->heads != x->rows))
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "ssm.inner_size %d for %d heads of %d", inner, x->heads,
                             x->rows);
    x->output_width = x->first_input = inner;
    x->values = inner / x->heads;
    wide = specdec__max_int(x->groups, 1) > most / x->rows ? most + 1 : 2 * x->groups * x->rows;
    if (wide > most)
        return specdec__model_check_recurrent_sizes(x, wide, error);
    x->channels = inner + wide;
    x->query_channel = x->kind == SPECDEC__GATED_DELTA ? 0 : inner + wide / 2;
    x->key_channel = x->kind == SPECDEC__GATED_DELTA ? wide / 2 : inner;
    x->value_channel = x->kind == SPECDEC__GATED_DELTA ? wide : 0;
    x->keys_by_modulo = m->trait[SPECDEC__KEYS_BY_MODULO];
    x->beta_alpha_joined = x->kind == SPECDEC__GATED_DELTA && !x->keys_by_modulo;
    x->input_count = x->channels + (x->kind == SPECDEC__GATED_DELTA ? 2 : 1) * specdec__round_up(x->heads, 16);
    x->input_width = inner + x->input_count;
    return specdec__model_check_recurrent_sizes(x, wide, error);
}

/* Whether a layer has a sliding window. */
static int specdec__model_layer_has_window(const specdec__model *m, int index)
{
    return specdec__model_layer_is_alternate(m, index) && m->window;
}

/* Returns the sizes of a layer, unchecked: see specdec__model_check_layers. Layers with a window may have keys of their
   own (..._swa). */
static specdec__shape specdec__model_layer_shape(const specdec__model *m, int index)
{
    const int other = specdec__model_layer_is_alternate(m, index), windowed = specdec__model_layer_has_window(m, index);
    specdec__shape s;
    int i;

    s.key_layer = -1;
    s.span = windowed ? SPECDEC__WINDOW : SPECDEC__WHOLE;
    s.rope = other != m->trait[SPECDEC__BASE_OF_REGULAR] && m->trait[SPECDEC__ALTERNATE_BASE] != 0 &&
                     (m->window || m->trait[SPECDEC__WINDOW_KEYS] < 0)
                 ? SPECDEC__ROPE_ALTERNATE
                 : SPECDEC__ROPE;
    s.heads = specdec__model_size_of_layer(m, SPECDEC__LIST_HEADS, index, 0);
    s.kv_heads = specdec__model_size_of_layer(m, SPECDEC__LIST_KV_HEADS, index, s.heads);
    s.key_dim = specdec__model_size_of_layer(m, SPECDEC__LIST_KEY, index, s.heads ? m->embedding / s.heads : 0);
    s.key_dim = windowed ? specdec__model_size_of_layer(m, SPECDEC__LIST_WINDOW_KEY, index, s.key_dim) : s.key_dim;
    s.value_dim = specdec__model_size_of_layer(m, SPECDEC__LIST_VALUE, index, s.key_dim);
    s.value_dim = windowed ? specdec__model_size_of_layer(m, SPECDEC__LIST_WINDOW_VALUE, index, s.value_dim)
                           : s.value_dim;
    s.rope_dim = specdec__model_size_of_layer(m, SPECDEC__LIST_ROPE, index, s.key_dim);
    s.rope_dim = windowed ? specdec__model_size_of_layer(m, SPECDEC__LIST_WINDOW_ROPE, index, s.rope_dim) : s.rope_dim;
    s.experts = m->experts && index >= m->leading_dense && (index + 1) % m->expert_interval == 0 &&
                        specdec__model_size_of_layer(m, SPECDEC__LIST_FF, index,
                                                     1) /* 0: no feed-forward network at all */
                    ? m->experts
                    : 0;
    s.shared = s.experts > 0 && !m->trait[SPECDEC__DENSE_BESIDE_EXPERTS];
    s.feed_forward = s.shared ? m->shared_ff : specdec__model_size_of_layer(m, SPECDEC__LIST_FF, index, 0);
    s.kv_heads = s.heads ? s.kv_heads : 0;
    s.recurrent = specdec__model_layer_is_recurrent(m, index, &s);
    if (s.recurrent && m->trait[SPECDEC__RECURS] == SPECDEC__RECURS_AS_LISTED)
        s.heads = s.kv_heads = 0;
    if (m->trait[SPECDEC__VISIBLE_KEYS] == SPECDEC__SEES_VIEW)
        s.key_layer = 0;
    for (i = m->all_layers - m->sharing_layers; index >= m->all_layers - m->sharing_layers && s.key_layer < 0 &&
         i-- > 0;)
        if (specdec__model_layer_has_window(m, i) == windowed)
            s.key_layer = i;
    return s;
}

/* Checks that layer number `index` can read the keys of the earlier layer s->key_layer: both have the same sizes.
   Errors: FORMAT. */
static specdec_result specdec__model_check_shared_keys(const specdec__model *m, int index, const specdec__shape *s,
                                                       specdec_error *error)
{
    specdec__shape other;

    if (index < m->all_layers - m->sharing_layers)
        return SPECDEC_OK;
    if (s->key_layer < 0)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT,
                             "shared_kv_layers %d of %d: no layer before these sees as much as layer %d",
                             m->sharing_layers, m->all_layers, index);
    other = specdec__model_layer_shape(m, s->key_layer);
    if (other.kv_heads != s->kv_heads || other.key_dim != s->key_dim || other.value_dim != s->value_dim)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT,
                             "layer %d shares %d heads of %d keys and %d values, which layer %d does not have", index,
                             s->kv_heads, s->key_dim, s->value_dim, s->key_layer);
    return SPECDEC_OK;
}

/* Checks the sizes of a layer with latent attention. Errors: FORMAT, UNSUPPORTED. */
static specdec_result specdec__model_check_latent_sizes(const specdec__model *m, const specdec__shape *s,
                                                        specdec_error *error)
{
    const specdec__latent *latent = &m->latent_attention;

    if (s->kv_heads != 1 || s->value_dim != latent->rank || s->key_dim != latent->rank + s->rope_dim)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT,
                             "%d kv heads of %d keys and %d values do not agree with kv_lora_rank %d", s->kv_heads,
                             s->key_dim, s->value_dim, latent->rank);
    if (latent->key_dim <= s->rope_dim)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "key_length_mla %d, of which %d rotate", latent->key_dim,
                             s->rope_dim);
    if (latent->rank % 32 || latent->value_dim % 16)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                             "kv_lora_rank %d and value_length_mla %d, no multiples of 32 and 16", latent->rank,
                             latent->value_dim);
    if (s->heads * latent->key_dim > SPECDEC__MAX_DIMENSION || s->heads * latent->value_dim > SPECDEC__MAX_DIMENSION)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "%d heads of %d are too many", s->heads,
                             specdec__max_int(latent->key_dim, latent->value_dim));
    return SPECDEC_OK;
}

/* Checks the sizes of a layer's attention. Errors: FORMAT, UNSUPPORTED. */
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
    return m->latent_attention.rank ? specdec__model_check_latent_sizes(m, s, error) : SPECDEC_OK;
}

/* Checks the sizes of the layers on this rank, and sets the model's largest ones. Errors: FORMAT, UNSUPPORTED. */
static specdec_result specdec__model_check_layers(specdec__model *m, specdec_error *error)
{
    specdec_result result;
    int i, any = 0;

    for (i = m->first_layer; i < m->first_layer + m->layers; i++) {
        const specdec__shape s = specdec__model_layer_shape(m, i);

        if (!s.shared && !m->list[SPECDEC__LIST_FF].items)
            return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s.feed_forward_length is missing",
                                 specdec__model_architecture_name(m));
        m->feed_forward = specdec__max_int(m->feed_forward, s.feed_forward);
        if (!s.kv_heads)
            continue;
        if ((result = specdec__model_check_shape(m, &s, error)) != SPECDEC_OK ||
            (result = specdec__model_check_shared_keys(m, i, &s, error)) != SPECDEC_OK)
            return result;
        any = m->rope_dim[s.rope] = s.rope_dim;
        m->heads = specdec__max_int(m->heads, s.heads);
        m->kv_heads = specdec__max_int(m->kv_heads, s.kv_heads);
        m->head_dim = specdec__max_int(m->head_dim, specdec__max_int(s.key_dim, s.value_dim));
        m->q_width = specdec__max_int(m->q_width, s.heads * specdec__model_query_rows(m, &s));
        m->k_width = specdec__max_int(m->k_width, s.kv_heads * s.key_dim);
        m->v_width = specdec__max_int(m->v_width, s.kv_heads * s.value_dim);
        m->o_width = specdec__max_int(m->o_width, s.heads * s.value_dim);
        if (m->latent_attention.rank) {
            m->q_width = specdec__max_int(m->q_width, s.heads * m->latent_attention.key_dim);
            m->o_width = specdec__max_int(m->o_width, s.heads * m->latent_attention.value_dim);
        }
    }
    for (i = 0; i < SPECDEC__ROPES; i++)
        m->rope_dim[i] = m->rope_dim[i] ? m->rope_dim[i] : any;
    return SPECDEC_OK;
}

/* Returns an error if a file has a metadata key that asks for what the engine cannot do: attention to later tokens, or
   other sizes for layers with a window in a model without a window. Errors: UNSUPPORTED. */
static specdec_result specdec__model_refuse_unsupported_keys(const specdec__model *m, specdec_error *error)
{
    const struct { const char *suffix; int done; } key[] = {
        {".attention.causal", 1}, {".attention.key_length_swa", m->head_dim},
        {".attention.value_length_swa", m->head_dim}, {".rope.dimension_count_swa", m->rope_dim[SPECDEC__ROPE]}};
    specdec__model_reader r = specdec__model_start_reading(m, error);
    int i;

    for (i = m->block.size > 0; i < (m->window ? 1 : (int)SPECDEC__COUNT(key)); i++) {
        const int asked = specdec__model_read_integer(&r, key[i].suffix, 0, 1 << 30, key[i].done);

        if (!r.result && asked != key[i].done)
            return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "%s%s is %d (%d is read)",
                                 specdec__model_architecture_name(m), key[i].suffix, asked, key[i].done);
    }
    return r.result;
}

/* Reads scales, soft caps and the window: the file's, or else those of the architecture's traits. A scale of 0 in the
   file counts as absent. Errors: FORMAT. */
static specdec_result specdec__model_read_facts(specdec__model *m, specdec_error *error)
{
    specdec__model_reader r = specdec__model_start_reading(m, error);
    int i, window = m->trait[SPECDEC__WINDOW_KEYS];

    for (i = 0; i < SPECDEC__FACTS; i++) {
        const float value = specdec__model_read_float(&r, specdec__fact_table[i], 0);

        if (r.result)
            return r.result;
        if (!(value >= 0 && value < 1e6f))
            return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s is out of range", specdec__fact_table[i] + 1);
        if (!(value > 0) && m->trait[SPECDEC__REQUIRED_FACTS] >> i & 1)
            return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s is missing", specdec__fact_table[i] + 1);
        m->fact[i] = value > 0 ? value : 1;
        if (i == SPECDEC__LOGIT_SCALE && !m->trait[SPECDEC__LOGITS_TIMES])
            m->fact[i] = 1 / m->fact[i];
        if (i == SPECDEC__SCORE_CAP || i == SPECDEC__LOGIT_CAP)
            m->fact[i] = value > 0 ? value : (float)m->trait[i == SPECDEC__SCORE_CAP ? SPECDEC__CAP_SCORES
                                                                                      : SPECDEC__CAP_LOGITS];
        else if (i == SPECDEC__EMBEDDING_SCALE && !(value > 0) && m->trait[SPECDEC__ROOT_EMBEDDING])
            m->fact[i] = (float)(m->embedding * specdec__inverse_square_root((double)m->embedding));
        else if (i == SPECDEC__QUERY_SCALE)
            m->fact[i] = value;
    }
    if (window == -1)
        return SPECDEC_OK;
    window = specdec__model_read_integer(&r, ".attention.sliding_window", 0, 1 << 30, window);
    m->window = window < 1 << 30 ? window : 0;
    return r.result ? r.result : specdec__model_read_alternate_layers(m, error);
}

SPECDEC__FOR_SPEED
