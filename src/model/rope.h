/* =====================================================================================================================
 * >>model/rope: sizes and binding of a layer's tensors; frequencies of RoPE and their scaling (linear, YaRN, NTK,
 *     factors).
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/op.h"
#include "gguf.h"
#include "model.h"
#include "facts.h"
#include "tensors.h"

SPECDEC__FOR_SIZE

/* Computes the dimensions of the tensors of a recurrent layer, in size[SPECDEC__DIM_...]; they are 0 with kind
   SPECDEC__NO_STATE. */
static void specdec__model_compute_recurrent_dimensions(const specdec__model *m, const specdec__recurrent_sizes *x,
                                                        int *size)
{
    const int is_short = x->kind == SPECDEC__SHORT_CONVOLUTION, delta = x->kind == SPECDEC__GATED_DELTA;
    const int ssm = x->kind == SPECDEC__MAMBA2;

    size[SPECDEC__DIM_SHORT] = is_short * m->embedding;
    size[SPECDEC__DIM_SHORT_ROWS] = is_short * x->input_width;
    size[SPECDEC__DIM_SHORT_TAPS] = is_short * x->taps * x->channels;
    size[SPECDEC__DIM_SSM_ROWS] = ssm * (x->output_width + x->channels + x->heads);
    size[SPECDEC__DIM_SSM_HEADS] = ssm * x->heads;
    size[SPECDEC__DIM_SSM_NORMS] = ssm * x->output_width;
    size[SPECDEC__DIM_SSM_NORM] = ssm ? x->output_width / x->groups : 0;
    size[SPECDEC__DIM_QKV] = delta * x->channels;
    size[SPECDEC__DIM_MIX_GATE] = delta * x->output_width;
    size[SPECDEC__DIM_BETA] = delta && !x->beta_alpha_joined ? x->heads : 0;
    size[SPECDEC__DIM_BETA_ALPHA] = delta && x->beta_alpha_joined ? 2 * x->heads : 0;
    size[SPECDEC__DIM_DELTA_NORM] = delta * x->rows;
    size[SPECDEC__DIM_INNER] = (delta || ssm) * x->output_width;
    size[SPECDEC__DIM_CHANNELS] = ssm * x->channels;
    size[SPECDEC__DIM_STATE_HEADS] = (delta || ssm) * x->heads;
    size[SPECDEC__DIM_SSM_TAPS] = (delta || ssm) * x->taps * x->channels;
    size[SPECDEC__DIM_TAPS] = x->taps;
}

/* Computes the dimensions of a layer's tensors for several residual streams (AltUp) and LAuReL, in
   size[SPECDEC__DIM_...]; they are 0 with streams = 0. */
static void specdec__model_compute_stream_dimensions(int streams, int embedding, int laurel, int *size)
{
    size[SPECDEC__DIM_STREAMS] = streams;
    size[SPECDEC__DIM_CORRECTIONS] = streams * streams;
    size[SPECDEC__DIM_PREDICTIONS] = streams * streams * streams;
    size[SPECDEC__DIM_STREAM_NORMS] = streams ? embedding : 0;
    size[SPECDEC__DIM_LAUREL] = streams ? laurel : 0;
}

/* Replaces the dimensions of a layer's attention, in size[SPECDEC__DIM_...], by those of latent attention. */
static void specdec__model_compute_latent_dimensions(const specdec__model *m, const specdec__shape *s, int *size)
{
    const specdec__latent *latent = &m->latent_attention;

    size[SPECDEC__DIM_Q] = size[SPECDEC__DIM_Q_ROWS] = latent->query_rank ? 0 : s->heads * latent->key_dim;
    size[SPECDEC__DIM_K] = size[SPECDEC__DIM_V] = size[SPECDEC__DIM_Q_NORM] = size[SPECDEC__DIM_K_NORM] = 0;
    size[SPECDEC__DIM_O] = s->heads * latent->value_dim;
    size[SPECDEC__DIM_LOW] = latent->query_rank;
    size[SPECDEC__DIM_LOW_Q] = s->heads * latent->key_dim;
    size[SPECDEC__DIM_LATENT_KEY] = s->key_dim;
    size[SPECDEC__DIM_RANK] = latent->rank;
    size[SPECDEC__DIM_STILL] = latent->key_dim - s->rope_dim;
    size[SPECDEC__DIM_LATENT_VALUE] = latent->value_dim;
}

/* Computes all dimensions of the tensors of a layer of this shape, size (SPECDEC__DIM_COUNT). */
static void specdec__model_compute_tensor_dimensions(const specdec__model *m, const specdec__shape *s, int *size)
{
    specdec__recurrent_sizes mixing = m->recurrent_sizes;
    const int whole = m->trait[SPECDEC__JOINT_NORMS], heads = s->kv_heads ? s->heads : 0;

    memset(size, 0, SPECDEC__DIM_COUNT * sizeof *size);
    size[SPECDEC__DIM_EMBEDDING] = m->embedding;
    size[SPECDEC__DIM_Q] = heads * s->key_dim;
    size[SPECDEC__DIM_Q_ROWS] = heads * specdec__model_query_rows(m, s);
    size[SPECDEC__DIM_K] = s->kv_heads * s->key_dim;
    size[SPECDEC__DIM_V] = s->kv_heads * s->value_dim;
    size[SPECDEC__DIM_O] = heads * s->value_dim;
    size[SPECDEC__DIM_FF] = s->feed_forward;
    size[SPECDEC__DIM_GATE] = m->trait[SPECDEC__UNGATED] ? 0 : s->feed_forward;
    size[SPECDEC__DIM_EXPERTS] = s->experts;
    size[SPECDEC__DIM_LATENT] = s->experts ? m->latent : 0;
    size[SPECDEC__DIM_EXPERT_INPUT] = !s->experts ? 0 : m->latent ? m->latent : m->embedding;
    size[SPECDEC__DIM_EXPERT_FF] = s->experts ? m->expert_ff : 0;
    size[SPECDEC__DIM_EXPERT_GATE] = m->trait[SPECDEC__UNGATED] ? 0 : size[SPECDEC__DIM_EXPERT_FF];
    size[SPECDEC__DIM_SHARED] = s->shared && s->feed_forward;
    size[SPECDEC__DIM_SHARED_GATE] = size[SPECDEC__DIM_SHARED] && m->trait[SPECDEC__SHARED_GATE];
    size[SPECDEC__DIM_DENSE_BESIDE] = s->experts && !s->shared ? m->embedding : 0;
    size[SPECDEC__DIM_INPUT] = m->layer_embeddings.width;
    size[SPECDEC__DIM_AFTER_INPUT] = m->layer_embeddings.width ? m->embedding : 0;
    size[SPECDEC__DIM_SCALE] = m->trait[SPECDEC__SCALES_OUTPUT];
    specdec__model_compute_stream_dimensions(m->streams.count, m->embedding, m->trait[SPECDEC__LAUREL], size);
    if (m->block.taps) {
        size[SPECDEC__DIM_CONV] = 2 * m->block.taps * (m->embedding / m->block.group_size);
        size[SPECDEC__DIM_CONV_BASE] = 2 * m->block.taps * m->embedding;
    }
    size[SPECDEC__DIM_OWN_KEYS] = s->key_layer < 0;
    size[SPECDEC__DIM_Q_NORM] = whole || !heads ? size[SPECDEC__DIM_Q] : s->key_dim;
    size[SPECDEC__DIM_K_NORM] = whole || !heads ? size[SPECDEC__DIM_K] : s->key_dim;
    size[SPECDEC__DIM_HEADS] = heads;
    if (m->latent_attention.rank && heads)
        specdec__model_compute_latent_dimensions(m, s, size);
    size[SPECDEC__DIM_READ] = m->embedding * (m->trait[SPECDEC__READS_STATES] == SPECDEC__BESIDE_EMBEDDINGS ? 2 : 1);
    mixing.kind = s->recurrent ? mixing.kind : SPECDEC__NO_STATE;
    specdec__model_compute_recurrent_dimensions(m, &mixing, size);
}

/* Binds vector i of a layer: as it is, folded from a matrix, or as a part of a fused tensor. Errors: FORMAT,
   UNSUPPORTED. */
static specdec_result specdec__model_bind_vector(const specdec__model *m, const char *name, int i,
                                                 const specdec__tensor_holder *holder, const int *size, int experts,
                                                 int required,
                                                 specdec__arena *arena, const float **out, specdec_error *error)
{
    const int own = size[specdec__vector_table[i].size];
    size_t k;

    for (k = 0; k < SPECDEC__COUNT(specdec__folded_table); k++)
        if (specdec__folded_table[k].vector == i)
            return specdec__model_copy_vector_from_matrix(m, name, own, size[specdec__folded_table[k].row],
                                                          specdec__folded_table[k].turned, required, arena, out, error);
    return specdec__model_copy_checked_values(m, name, holder->rows, holder->first_row, own,
                                              specdec__vector_table[i].each ? experts : 1, required, arena, out, error);
}

/* Binds the vectors of a layer of this shape; layer NULL: they are only checked and counted. Errors: FORMAT,
   UNSUPPORTED. */
static specdec_result specdec__model_bind_vectors(specdec__model *m, int index, const specdec__shape *shape,
                                                  const int *size, specdec__layer *layer, specdec__arena *arena,
                                                  specdec_error *error)
{
    specdec_result result = SPECDEC_OK;
    char name[64];
    int i;

    for (i = 0; i < SPECDEC__VECTORS && !result; i++) {
        const int named = SPECDEC__HAS_BIT(m->trait[SPECDEC__NEEDS], i), wanted = specdec__vector_table[i].wanted;
        const int required = named || wanted == SPECDEC__REQUIRED;
        specdec__tensor_holder holder;
        const float *counted;

        if ((!named && wanted == SPECDEC__IF_NAMED) || SPECDEC__HAS_BIT(m->trait[SPECDEC__LACKS], i) ||
            !specdec__model_dimensions_have_tensor(1, i, size))
            continue;
        holder = specdec__model_find_holder(m, index, 1, i, size);
        specdec__model_tensor_name(name, sizeof name, index, holder.suffix);
        result = specdec__model_bind_vector(m, name, i, &holder, size, shape->experts, required, arena,
                                            layer ? &layer->vector[i] : &counted, error);
    }
    return result;
}

/* Binds a layer; if it is on another rank, or the arena only counts, it is only checked and counted. Errors: FORMAT,
   UNSUPPORTED. */
static specdec_result specdec__model_bind_layer(specdec__model *m, int index, specdec__arena *arena,
                                                specdec_error *error)
{
    const int here = m->layer && index >= m->first_layer && index < m->first_layer + m->layers;
    const specdec__shape shape = specdec__model_layer_shape(m, index);
    specdec__layer *layer = here ? &m->layer[index - m->first_layer] : NULL;
    const int state = specdec__model_count_layer_in_spans(m, &shape);
    int size[SPECDEC__DIM_COUNT];
    float activation[4], sparsity = 0;
    specdec_result result;

    specdec__model_compute_tensor_dimensions(m, &shape, size);
    if (layer) {
        memset(layer, 0, sizeof *layer);
        layer->shape = shape;
        layer->index = index - m->first_layer;
        layer->recurrent_index = state;
        layer->query_scale = shape.kv_heads ? specdec__model_query_scale(m, &shape) : 0;
    }
    if ((result = specdec__model_bind_matrices(m, index, &shape, size, layer, error)) != SPECDEC_OK ||
        (result = specdec__model_bind_vectors(m, index, &shape, size, layer, arena, error)) != SPECDEC_OK)
        return result;
    if (m->trait[SPECDEC__ACTIVATION] == SPECDEC__XIELU)
        result = specdec__model_read_activation(m, index, layer ? layer->activation : activation, error);
    if (!result && m->trait[SPECDEC__SPARSE])
        result = specdec__model_read_sparsity(m, index, layer ? &layer->sparsity : &sparsity, error);
    if (layer && m->trait[SPECDEC__PARALLEL])
        layer->vector[SPECDEC__FFN_NORM] = layer->vector[SPECDEC__ATTENTION_NORM];
    return result;
}

/* How the file scales RoPE (rope.scaling.*). */
typedef struct specdec__rope_scaling {
    int yarn;      /* 1: frequencies are scaled as YaRN does */
    float divisor; /* all frequencies are divided by this number (linear scaling) */
    float factor, attention_factor, beta_fast, beta_slow; /* YaRN's factor, attention factor, beta_fast, beta_slow */
    float score_growth; /* scores are multiplied by (1 + score_growth * log(factor))^2 instead of cosine and sine; 0:
                           they are not */
    float attention_divisor; /* cosine and sine are divided by 1 + attention_divisor * 0.1 * log(factor) */
} specdec__rope_scaling;

/* Returns the dimension whose rotation makes `turns` turns over the original context (YaRN: Peng et al. 2023, arXiv
   2309.00071). */
static double specdec__yarn_dimension(const specdec__model *m, double turns)
{
    return m->rope_dim[SPECDEC__ROPE] * specdec__log_double(m->rope_original / (turns * 6.283185307179586)) /
           (2 * specdec__log_double(m->rope_base));
}

/* Scales frequencies (rope_dim / 2) as YaRN does: those of dimensions with few turns are divided by the factor, those
   with many turns stay, with a ramp between. */
static void specdec__model_scale_by_yarn(const specdec__model *m, const specdec__rope_scaling *rope, double *frequency)
{
    double low = specdec__yarn_dimension(m, rope->beta_fast), high = specdec__yarn_dimension(m, rope->beta_slow);
    const int dim = m->rope_dim[SPECDEC__ROPE];
    int i;

    low = low > 0 ? low < dim ? low : dim : 0;
    high = high > 0 ? high < dim ? high : dim : 0;
    if (!m->trait[SPECDEC__YARN_UNROUNDED]) {
        low = (int)low;
        high = (int)high < high ? (int)high + 1 : (int)high;
    }
    high = high < dim - 1 ? high : dim - 1;
    for (i = 0; i < dim / 2; i++) {
        double ramp = (i - low) / (high - low > 0.001 ? high - low : 0.001);

        ramp = 1 - (ramp < 0 ? 0 : ramp > 1 ? 1 : ramp); /* share of the unscaled frequency */
        frequency[i] = specdec__product(frequency[i], ramp) + specdec__product(frequency[i] / (double)rope->factor,
                                                                               1 - ramp);
    }
}

/* Reads how RoPE is scaled: not at all, linearly, by YaRN, by NTK (alpha), or by factors in a tensor alone. Errors:
   FORMAT, UNSUPPORTED. */
static specdec_result specdec__model_read_rope_scaling(specdec__model *m, specdec__rope_scaling *rope,
                                                       specdec_error *error)
{
    float alpha; /* NTK: the base grows so that the longest wave becomes alpha times as long */
    const int tempered = m->trait[SPECDEC__ROPE_VARIANT] == SPECDEC__ROPE_QUERIES_GROW;
    specdec__model_reader r = specdec__model_start_reading(m, error);
    char key[96];
    specdec__bytes kind;

    r.result = specdec__gguf_get_string(&m->gguf, specdec__model_write_key(m, ".rope.scaling.type", key, sizeof key),
                                        &kind, error);
    m->rope_base = specdec__model_read_rope_base(&r);
    alpha = specdec__model_read_float(&r, ".rope.scaling.alpha", 0);
    rope->factor = specdec__model_read_float(&r, ".rope.scale_linear", 0);
    rope->factor = specdec__model_read_float(&r, ".rope.scaling.factor", rope->factor);
    rope->attention_factor = specdec__model_read_float(&r, ".rope.scaling.attn_factor", 1);
    rope->beta_fast = specdec__model_read_float(&r, ".rope.scaling.yarn_beta_fast", 32);
    rope->beta_slow = specdec__model_read_float(&r, ".rope.scaling.yarn_beta_slow", 1);
    rope->attention_divisor = tempered ? specdec__model_read_float(&r, ".rope.scaling.yarn_log_multiplier", 0) : 0;
    rope->score_growth = m->trait[SPECDEC__ROPE_VARIANT] == SPECDEC__ROPE_SCORES_SCALED
                          ? specdec__model_read_float(&r, ".rope.scaling.yarn_log_multiplier", 0)
                          : 0;
    m->query_growth = tempered ? specdec__model_read_float(&r, ".attention.temperature_scale", 0) : 0;
    m->rope_original = specdec__model_read_integer(&r, ".rope.scaling.original_context_length", 1, 1 << 30, m->context);
    if (r.result)
        return r.result;
    rope->yarn = specdec__bytes_equal_string(kind, "yarn");
    if (!(rope->factor < 0 || rope->factor > 0))
        rope->factor = 1;
    rope->divisor = rope->yarn || specdec__bytes_equal_string(kind, "none") ? 1 : rope->factor;
    if (kind.data && !rope->yarn && !specdec__bytes_equal_string(kind, "none") &&
        !specdec__bytes_equal_string(kind, "linear") && !specdec__bytes_equal_string(kind, "longrope"))
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                             "RoPE scaling \"%.*s\" (none, linear, yarn and longrope are known)",
                             (int)(kind.size < 32 ? kind.size : 32), (const char *)kind.data);
    if (!(rope->factor >= 1e-2f && rope->factor <= 1e6f) ||
        !(rope->attention_factor > 0 && rope->attention_factor < 1e3f) ||
        !(rope->beta_fast >= 1e-3f && rope->beta_fast <= 1e6f) ||
        !(rope->beta_slow >= 1e-3f && rope->beta_slow <= 1e6f) ||
        !(rope->attention_divisor >= 0 && rope->attention_divisor <= 1e3f) ||
        !(rope->score_growth >= 0 && rope->score_growth <= 1e3f) ||
        !(m->query_growth >= 0 && m->query_growth <= 1e3f) || !(alpha >= 0 && alpha <= 1e6f) ||
        !(m->rope_base >= 1 && m->rope_base < 1e12f) || (rope->yarn && m->rope_base < 2))
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "RoPE base or scaling values are out of range");
    if (alpha > 0 && m->rope_dim[SPECDEC__ROPE] > 2)
        m->rope_base *= (float)specdec__exp_double(m->rope_dim[SPECDEC__ROPE] / (m->rope_dim[SPECDEC__ROPE] - 2.0) *
                                                   specdec__log_double((double)alpha));
    return SPECDEC_OK;
}

/* Computes the radians a position of one RoPE for every pair: base ^ (-2i / dim), divided by `divisor` and by the
   factors in a tensor, if any (Llama 3, LongRoPE). Errors: FORMAT. */
static specdec_result specdec__model_compute_frequencies(specdec__model *m, int which, float base, float divisor,
                                                         const char *factors_name,
                                                         specdec__arena *arena, specdec_error *error)
{
    const float *factors = NULL;
    const int dim = m->rope_dim[which];
    double *frequency;
    int i;
    specdec_result r = SPECDEC_OK;

    if (factors_name)
        r = specdec__model_copy_values(m, factors_name, dim / 2, 0, dim / 2, 1, 0, arena, &factors, error);
    m->rope_scale[which] = 1;
    m->rope_frequency[which] = frequency = SPECDEC__TAKE(arena, double, dim / 2);
    for (i = 0; !r && frequency && i < dim / 2; i++) {
        if (factors && !(factors[i] >= 1e-2f && factors[i] <= 1e31f /* a pair that does not turn */))
            return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s has a factor out of range at %d", factors_name, i);
        frequency[i] = base > 0 ? specdec__exp_double(-2.0 * i / dim * specdec__log_double(base)) : 0;
        frequency[i] /= (double)(factors ? factors[i] : 1) * (double)divisor;
    }
    return r;
}

SPECDEC__FOR_SPEED
