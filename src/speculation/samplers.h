/* =====================================================================================================================
 * >>speculation/samplers: the table of samplers; a row of logits becomes a list of candidates, sampler after sampler.
 *
 * Penalties and DRY change the logits of a few tokens of a row, the other samplers shorten a list of candidates or
 * change its temperature. What each keeps is what llama.cpp's sampler of the same name keeps; sums are in double, in
 * the order of the list.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/op.h"
#include "../text/vocabulary.h"
#include "../text/decode.h"
#include "sample.h"

#define SPECDEC__SAMPLE_PENALTY_WINDOW   64   /* tokens that penalties look back on where repetition_window is 0 */
#define SPECDEC__SAMPLE_SORTED_FIRST  64 /* candidates sorted first for a top-p set; then 8 times as many, and so on */
#define SPECDEC__SAMPLE_DRY_MAX_TOKENS   1024 /* DRY: tokens of a repetition that raise the penalty, at most */
#define SPECDEC__SAMPLE_XTC_NUMBER_INDEX 0x7fffffffu /* index of XTC's number among the random numbers of a position */
#define SPECDEC__SAMPLER_CHAIN_LENGTH   16   /* samplers that a sampler chain has, at most */
#define SPECDEC__SAMPLER_MIROSTAT SPECDEC_SAMPLER_COUNT /* mirostat's index in specdec__samplers */

/* The arguments of a sampler, besides the candidates or logits. */
typedef struct specdec__sampler_input {
    const specdec_sampling *sampling;  /* the settings of sampling */
    const specdec__vocab *vocab; /* the vocabulary, for DRY: some characters in tokens end repetitions; NULL: none do */
    int size;                    /* logits of a row: tokens of the vocabulary */
    const int32_t *recent;       /* (recent_count): the tokens of the sequence before the row */
    int recent_count;            /* number of these tokens */
    float surprise;              /* mirostat: bits of surprise that a kept token has, at most; 0: the limit at an
                                    answer's begin */
} specdec__sampler_input;

SPECDEC__FOR_SIZE

/* Returns the value of a setting, or `otherwise`, its default, if the setting is not above 0. */
SPECDEC__INLINE float specdec__sampler_value_or_default(float value, float otherwise)
{
    return value > 0.0f ? value : otherwise;
}

/* --- samplers that change a row (size) of logits ----------------------------------------------------------------- */

/* Returns whether the settings switch repetition, frequency or presence penalties on. */
static int specdec__sampler_penalties_on(const specdec_sampling *s)
{
    return (s->repetition_penalty > 0.0f && (s->repetition_penalty < 1.0f || s->repetition_penalty > 1.0f)) ||
           s->frequency_penalty < 0.0f || s->frequency_penalty > 0.0f || s->presence_penalty < 0.0f ||
           s->presence_penalty > 0.0f;
}

/* Returns a token's logit after the penalties for `times` occurrences of the token in the window. */
static float specdec__sampler_penalise_logit(const specdec_sampling *s, float logit, int32_t times)
{
    const float penalty = specdec__sampler_value_or_default(s->repetition_penalty, 1.0f);
    const float taken = (float)times * s->frequency_penalty + s->presence_penalty;

    logit = specdec__sample_comparable_logit(logit > 0.0f ? logit / penalty : logit * penalty);
    return taken < 0.0f || taken > 0.0f ? specdec__sample_comparable_logit(logit - taken) : logit;
}

/* Subtracts repetition, frequency and presence penalties from the logits, in a row (size), of tokens that occur in the
   window. marks (size): scratch for counting tokens. */
static void specdec__sampler_subtract_penalties(const specdec__sampler_input *in, float *row, int32_t *marks)
{
    const int window = in->sampling->repetition_window ? in->sampling->repetition_window
                                                           : SPECDEC__SAMPLE_PENALTY_WINDOW;
    const int from = window < 0 ? 0 : specdec__max_int(in->recent_count - window, 0);
    int i, pass;

    for (pass = 0; pass < 3; pass++)
        for (i = from; i < in->recent_count; i++) {
            const int32_t token = in->recent[i];

            if (token < 0 || token >= in->size)
                continue;
            if (pass == 0)
                marks[token] = 0;
            else if (pass == 1)
                marks[token]++;
            else if (marks[token]) {
                row[token] = specdec__sampler_penalise_logit(in->sampling, row[token], marks[token]);
                marks[token] = 0;
            }
        }
}

/* Returns whether the settings switch DRY on. */
static int specdec__sampler_dry_on(const specdec_sampling *s) { return s->dry_multiplier > 0.0f; }

/* DRY: returns whether a token has one of the characters that end a repetition. */
static int specdec__sampler_token_ends_repetition(const specdec__sampler_input *in, int32_t token)
{
    const char *breakers = in->sampling->dry_breakers[0] ? in->sampling->dry_breakers : "\n:\"*";
    unsigned char bytes[64];
    size_t count, at, size, i;

    if (!in->vocab || specdec__token_write_bytes(in->vocab, token, 1, bytes, sizeof bytes, &count, NULL))
        return 0;
    for (i = 0; i < sizeof in->sampling->dry_breakers && breakers[i]; i += size) {
        size = 1;
        while (i + size < sizeof in->sampling->dry_breakers && ((unsigned char)breakers[i + size] & 0xc0) == 0x80)
            size++;
        for (at = 0; at + size <= count; at++)
            if (memcmp(bytes + at, breakers + i, size) == 0)
                return 1;
    }
    return 0;
}

/* DRY: returns the number of tokens of the longest repetition whose penalty is a finite float. allowed: tokens of a
   repetition without penalty. */
static int specdec__sampler_dry_most_penalised_tokens(const specdec_sampling *s, int allowed)
{
    const float grows = specdec__log(specdec__sampler_value_or_default(s->dry_base, 1.75f));
    const float most = grows > 1e-6f ? 88.7228391f / grows : 0.0f;

    return most > 0.0f && most < (float)(SPECDEC__SAMPLE_DRY_MAX_TOKENS - 1)
               ? specdec__min_int(allowed, SPECDEC__SAMPLE_DRY_MAX_TOKENS) + 1 + (int)most
               : specdec__max_int(allowed, SPECDEC__SAMPLE_DRY_MAX_TOKENS);
}

/* DRY: returns what is subtracted from the logit of a token that would lengthen a repetition of `length` tokens.
   allowed: tokens of a repetition without penalty. */
static float specdec__sampler_dry_penalty(const specdec_sampling *s, int length, int allowed)
{
    const float grows = specdec__log(specdec__sampler_value_or_default(s->dry_base, 1.75f));
    const float most = grows > 1e-6f ? 88.7228391f / grows : 0.0f, over = (float)(length - allowed);

    return s->dry_multiplier * specdec__exp(grows * (most > 0.0f && over > most ? most : over));
}

/* DRY (https://github.com/oobabooga/text-generation-webui/pull/5677): subtracts penalties from the logits, in a row
   (size), of tokens that would lengthen a repetition. marks (size): scratch. */
static void specdec__sampler_subtract_dry_penalties(const specdec__sampler_input *in, float *row, int32_t *marks)
{
    const specdec_sampling *s = in->sampling;
    const int count = s->dry_window ? specdec__min_int(s->dry_window, in->recent_count) : in->recent_count;
    const int allowed = s->dry_allowed_length ? s->dry_allowed_length : 2;
    const int32_t *last = in->recent + in->recent_count - 1; /* last[-i]: the i-th from the end */
    int most = specdec__min_int(count, specdec__sampler_dry_most_penalised_tokens(s, allowed)), back, length, i;

    for (i = 0; i < most; i++)
        if (specdec__sampler_token_ends_repetition(in, last[-i]))
            most = i;
    if (most < allowed || count <= allowed)
        return;
    for (i = 0; i < count; i++)
        if (last[-i] >= 0 && last[-i] < in->size)
            marks[last[-i]] = 0;
    for (back = 1; back < count; back++) {
        const int32_t next = last[1 - back]; /* came behind what may be repeated */

        for (length = 0; length < most && back + length < count && last[-length] == last[-length - back];)
            length++;
        if (length >= allowed && next >= 0 && next < in->size && marks[next] < length)
            marks[next] = length;
    }
    for (i = 0; i < count; i++) {
        const int32_t token = last[-i];

        if (token < 0 || token >= in->size || !marks[token])
            continue;
        if (!specdec__sampler_token_ends_repetition(in, token))
            row[token] = specdec__sample_comparable_logit(row[token] - specdec__sampler_dry_penalty(s, marks[token],
                                                                                                    allowed));
        marks[token] = 0;
    }
}

/* --- samplers that change a list; each returns how many candidates it keeps, of at least one --------------------- */

static int specdec__sampler_top_n_sigma_on(const specdec_sampling *s) { return s->top_n_sigma > 0.0f; }
static int specdec__sampler_top_k_on(const specdec_sampling *s) { return s->top_k > 0; }
static int specdec__sampler_typical_on(const specdec_sampling *s) { return s->typical_p > 0.0f && s->typical_p < 1.0f; }
static int specdec__sampler_top_p_on(const specdec_sampling *s) { return s->top_p > 0.0f && s->top_p < 1.0f; }
static int specdec__sampler_min_p_on(const specdec_sampling *s) { return s->min_p > 0.0f; }
static int specdec__sampler_xtc_on(const specdec_sampling *s) { return s->xtc_probability > 0.0f; }
static int specdec__sampler_mirostat_on(const specdec_sampling *s) { return s->mirostat_tau > 0.0f; }
SPECDEC__FOR_SPEED

/* Returns whether the settings give a temperature that is not 1, or a range of temperatures. */
static int specdec__sampler_temperature_on(const specdec_sampling *s)
{
    return s->temperature < 1.0f || s->temperature > 1.0f || s->temperature_range > 0.0f;
}

/* Returns the highest logit of items (count). */
static float specdec__sampler_best_logit(const specdec_candidate *items, int count)
{
    float best = items[0].logit;
    int i;

    for (i = 1; i < count; i++)
        best = items[i].logit > best ? items[i].logit : best;
    return best;
}

/* Returns the sum of e^(logit - best) over items (count). *mean becomes the mean of logit - best under the distribution
   of these weights. */
static double specdec__sampler_sum_weights(const specdec_candidate *items, int count, float best, double *mean)
{
    double total = 0.0, sum = 0.0;
    int i;

    for (i = 0; i < count; i++) {
        const double weight = (double)specdec__exp(items[i].logit - best);

        total += weight;
        sum += weight > 0.0 ? weight * (double)(items[i].logit - best) : 0.0;
    }
    *mean = sum / total;
    return total;
}

/* Keeps the candidates whose logits are at least the best logit plus `least`, which is below 0. Returns how many are
   left. */
static int specdec__sampler_keep_logits_above(specdec_candidate *items, int count, float least)
{
    const float best = specdec__sampler_best_logit(items, count);
    int i, kept = 0;

    for (i = 0; i < count; i++)
        if (items[i].logit - best >= least)
            items[kept++] = items[i];
    return kept;
}

/* Keeps the first candidates, sorted by the distance of their logits from *center or (center NULL) by logit, until
   their sum of e^(logit - best) reaches `wanted` (more 1: exceeds it). Returns how many are left. */
static int specdec__sampler_keep_probability_share(specdec_candidate *items, int count, const float *center,
                                                   double wanted, int more)
{
    const float best = specdec__sampler_best_logit(items, count);
    int i = 0, ready = specdec__min_int(SPECDEC__SAMPLE_SORTED_FIRST, count);
    double reached = 0.0;

    specdec__sample_move_first_to_front(center, items, count, ready);
    for (;; ready = ready > count / 8 ? count : ready * 8) {
        for (; i < ready; i++) {
            reached += (double)specdec__exp(items[i].logit - best);
            if (reached > wanted || (reached >= wanted && !more))
                return i + 1;
        }
        if (ready == count)
            return count;
        specdec__sample_move_first_to_front(center, items + ready, count - ready,
                                            specdec__min_int(ready > count / 8 ? count : ready * 7, count - ready));
    }
}

/* Top-n-sigma: keeps the candidates whose logits are within n standard deviations of the best logit: Tang et al. 2024,
   arXiv 2411.07641. Returns how many are left. */
static int specdec__sampler_top_n_sigma(const specdec__sampler_input *in, specdec_candidate *items, int count)
{
    const float best = specdec__sampler_best_logit(items, count);
    const double n = (double)in->sampling->top_n_sigma;
    double mean = 0.0, variance = 0.0;
    int i, kept = 0;

    for (i = 0; i < count; i++)
        mean += (double)(items[i].logit - best);
    mean /= (double)count;
    for (i = 0; i < count; i++) {
        const double off = (double)(items[i].logit - best) - mean;

        variance += off * off;
    }
    variance /= (double)count;
    for (i = 0; i < count; i++) {
        const double below = (double)(best - items[i].logit);

        if (below * below <= n * n * variance)
            items[kept++] = items[i];
    }
    return kept;
}

/* Top-k: keeps the top_k candidates of the highest logits. Returns how many are left. */
static int specdec__sampler_top_k(const specdec__sampler_input *in, specdec_candidate *items, int count)
{
    if (in->sampling->top_k >= count)
        return count;
    specdec__sample_move_first_to_front(NULL, items, count, in->sampling->top_k);
    return in->sampling->top_k;
}

/* Locally typical sampling: keeps the candidates of typical surprise: Meister et al. 2022, arXiv 2202.00666. With the
   mean m of x = log p, -x is nearest to the entropy where x is nearest to m. Returns how many are left. */
static int specdec__sampler_typical(const specdec__sampler_input *in, specdec_candidate *items, int count)
{
    const float best = specdec__sampler_best_logit(items, count);
    double mean;
    const double total = specdec__sampler_sum_weights(items, count, best, &mean);
    const float center = (float)(mean + (double)best);

    return specdec__sampler_keep_probability_share(items, count, &center, total * (double)in->sampling->typical_p, 1);
}

/* Top-p: keeps the most probable candidates until their probabilities add up to top_p: Holtzman et al. 2019, arXiv
   1904.09751. Returns how many are left. */
static int specdec__sampler_keep_top_p(specdec_candidate *items, int count, float top_p)
{
    const float best = specdec__sampler_best_logit(items, count);
    double total = 0.0;
    int i;

    for (i = 0; i < count; i++)
        total += (double)specdec__exp(items[i].logit - best);
    return specdec__sampler_keep_probability_share(items, count, NULL, total * (double)top_p, 0);
}

/* Top-p, with the top_p of the settings. Returns how many candidates are left. */
static int specdec__sampler_top_p(const specdec__sampler_input *in, specdec_candidate *items, int count)
{
    return specdec__sampler_keep_top_p(items, count, in->sampling->top_p);
}

/* Min-p: keeps the candidates of at least min_p times the best candidate's probability: Nguyen et al. 2024, arXiv
   2407.01082. Returns how many are left. */
static int specdec__sampler_min_p(const specdec__sampler_input *in, specdec_candidate *items, int count)
{
    return specdec__sampler_keep_logits_above(items, count, specdec__log(in->sampling->min_p));
}

/* XTC (https://github.com/oobabooga/text-generation-webui/pull/6335): with some probability removes all candidates
   above the threshold except the least probable of them. Returns how many are left. */
static int specdec__sampler_xtc(const specdec__sampler_input *in, specdec_candidate *items, int count)
{
    const double threshold = (double)specdec__sampler_value_or_default(in->sampling->xtc_threshold, 0.1f);
    const float best = specdec__sampler_best_logit(items, count);
    specdec_uniform chance;
    double total, mean;
    int i, last = -1, kept = 0;

    chance.seed = in->sampling->seed;
    chance.position = (uint64_t)in->recent_count;
    chance.decision = SPECDEC__SAMPLE_XTC_NUMBER_INDEX;
    if (threshold > 0.5 || specdec_uniform_next(&chance) > (double)in->sampling->xtc_probability)
        return count;
    total = specdec__sampler_sum_weights(items, count, best, &mean);
    for (i = 0; i < count; i++)
        if ((double)specdec__exp(items[i].logit - best) >= threshold * total &&
            (last < 0 || specdec__sample_comes_before(items[last], items[i])))
            last = i;
    if (last < 0)
        return count;
    {
        const specdec_candidate least = items[last];

        for (i = 0; i < count; i++)
            if (!specdec__sample_comes_before(items[i], least))
                items[kept++] = items[i];
    }
    return kept;
}

/* Returns the temperature for a list of candidates. Where the settings give a range, it depends on the list's entropy:
   Zhang et al. 2024, arXiv 2403.14541. */
static float specdec__sampler_get_temperature(const specdec_sampling *s, const specdec_candidate *items, int count)
{
    const float low = s->temperature > s->temperature_range ? s->temperature - s->temperature_range : 0.0f;
    const float high = s->temperature + s->temperature_range;
    double mean, entropy;
    float share;

    if (!(s->temperature_range > 0.0f))
        return s->temperature;
    entropy = specdec__log_double(specdec__sampler_sum_weights(items, count, specdec__sampler_best_logit(items, count),
                                                               &mean));
    entropy -= mean;
    share = (float)(entropy / specdec__log_double((double)count));
    if (!(share > 0.0f))
        return low;
    return low + (high - low) * specdec__exp(specdec__sampler_value_or_default(s->temperature_exponent,
                                                                               1.0f) * specdec__log(share));
}

/* Divides all logits by the temperature; at temperature 0 keeps the best candidate alone. Returns how many are left. */
static int specdec__sampler_divide_by_temperature(const specdec__sampler_input *in, specdec_candidate *items, int count)
{
    float heat;
    int i;

    if (count == 1 && in->sampling->temperature_range > 0.0f)
        return count;
    heat = specdec__sampler_get_temperature(in->sampling, items, count);
    if (!(heat > 0.0f)) {
        specdec__sample_move_first_to_front(NULL, items, count, 1);
        return 1;
    }
    for (i = 0; i < count; i++)
        items[i].logit = items[i].logit / heat;
    return count;
}

/* Mirostat 2 (Basu et al. 2020, arXiv 2007.14966): keeps the best candidate, and those whose surprise is within the
   limit. Returns how many are left. */
static int specdec__sampler_mirostat(const specdec__sampler_input *in, specdec_candidate *items, int count)
{
    const float best = specdec__sampler_best_logit(items, count);
    const double most = (double)(in->surprise < 0.0f || in->surprise > 0.0f ? in->surprise
                                                                           : 2.0f * in->sampling->mirostat_tau);
    double mean, least;

    least = specdec__log_double(specdec__sampler_sum_weights(items, count, best, &mean)) - most * 0.69314718055994531;
    if (least < 0.0)
        return specdec__sampler_keep_logits_above(items, count, (float)least);
    specdec__sample_move_first_to_front(NULL, items, count, 1);
    return 1;
}

/* --- the table, and lists of it ---------------------------------------------------------------------------------- */

/* The table of samplers, in the order of specdec_sampler. */
static const struct specdec__sampler {
    int (*is_on)(const specdec_sampling *s); /* returns whether the settings switch the sampler on */
    /* Either it keeps some of a list of candidates and returns how many, or it alters a row (size) of logits; marks
       (size): scratch. The other function is NULL. */
    int (*keep_candidates)(const specdec__sampler_input *in, specdec_candidate *items, int count);
    void (*alter_row)(const specdec__sampler_input *in, float *row, int32_t *marks);
} specdec__samplers[] = {
    {NULL, NULL, NULL},
    {specdec__sampler_penalties_on, NULL, specdec__sampler_subtract_penalties},
    {specdec__sampler_dry_on, NULL, specdec__sampler_subtract_dry_penalties},
    {specdec__sampler_top_n_sigma_on, specdec__sampler_top_n_sigma, NULL},
    {specdec__sampler_top_k_on, specdec__sampler_top_k, NULL},
    {specdec__sampler_typical_on, specdec__sampler_typical, NULL},
    {specdec__sampler_top_p_on, specdec__sampler_top_p, NULL},
    {specdec__sampler_min_p_on, specdec__sampler_min_p, NULL},
    {specdec__sampler_xtc_on, specdec__sampler_xtc, NULL},
    {specdec__sampler_temperature_on, specdec__sampler_divide_by_temperature, NULL},
    {specdec__sampler_mirostat_on, specdec__sampler_mirostat, NULL},
};

SPECDEC__FOR_SIZE

/* Writes the indices of the samplers that the settings switch on, in their order, to
   chain[SPECDEC__SAMPLER_CHAIN_LENGTH]. Returns how many. */
static int specdec__sampler_write_chain(const specdec_sampling *s, unsigned char *chain)
{
#define SPECDEC__SAMPLER(NAME, name) SPECDEC_SAMPLER_##NAME,
    static const unsigned char all[] = {SPECDEC_SAMPLERS(SPECDEC__SAMPLER) 0};
#undef SPECDEC__SAMPLER
    static const unsigned char mirostat[] = {SPECDEC_SAMPLER_TEMPERATURE, SPECDEC__SAMPLER_MIROSTAT, 0};
    const int greedy = !(s->temperature > 0.0f);
    const unsigned char *list = !greedy && s->mirostat_tau > 0.0f ? mirostat : s->samplers[0] ? s->samplers : all;
    int i, count = 0;

    for (i = 0; i < SPECDEC__SAMPLER_CHAIN_LENGTH && list[i]; i++)
        if (specdec__samplers[list[i]].is_on(s) && (!greedy || specdec__samplers[list[i]].alter_row))
            chain[count++] = list[i];
    return count;
}

/* Returns whether biases, or the first sampler of the chain, change logits of a row before candidates are left out. */
static int specdec__sampler_chain_alters_logits(const specdec_sampling *s)
{
    unsigned char chain[SPECDEC__SAMPLER_CHAIN_LENGTH];

    return s->bias_count > 0 || (specdec__sampler_write_chain(s, chain) && specdec__samplers[chain[0]].alter_row);
}

/* Returns whether a sampler of the chain leaves out candidates, or the temperature depends on them: then a constraint
   has to be applied before the samplers. */
static int specdec__sampler_chain_drops_candidates(const specdec_sampling *s)
{
    unsigned char chain[SPECDEC__SAMPLER_CHAIN_LENGTH];
    int i, count = specdec__sampler_write_chain(s, chain), found = 0;

    for (i = 0; i < count; i++)
        found |= specdec__samplers[chain[i]].keep_candidates &&
                 (chain[i] != SPECDEC_SAMPLER_TEMPERATURE || s->temperature_range > 0.0f);
    return found;
}

/* --- settings ---------------------------------------------------------------------------------------------------- */

/* Checks the biases of settings: their number, and that each bias is a number. */
static specdec_result specdec__sample_check_biases(const specdec_sampling *sampling, specdec_error *error)
{
    int i;

    if (sampling->bias_count < 0 || (sampling->bias_count && !sampling->biases))
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "%d biases, or none where they should be",
                             sampling->bias_count);
    for (i = 0; i < sampling->bias_count; i++)
        if (!(sampling->biases[i].bias <= 0.0f) && !(sampling->biases[i].bias > 0.0f))
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "the bias of token %d is not a number",
                                 (int)sampling->biases[i].token);
    return SPECDEC_OK;
}

/* Returns an error if a list of samplers has an unknown sampler, or the same sampler twice. */
static specdec_result specdec__sample_check_samplers(const specdec_sampling *s, specdec_error *error)
{
    int i, j;

    for (i = 0; i < (int)sizeof s->samplers && s->samplers[i]; i++) {
        for (j = 0; j < i && s->samplers[j] != s->samplers[i];)
            j++;
        if (s->samplers[i] >= SPECDEC_SAMPLER_COUNT || j < i)
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "samplers names number %d, which is %s",
                                 (int)s->samplers[i], j < i ? "there before" : "none");
    }
    return SPECDEC_OK;
}

/* Checks that all settings of sampling are within their ranges. */
static specdec_result specdec__sample_check_settings(const specdec_sampling *s, specdec_error *error)
{
    const struct {
        const char *name;
        float value, low, high;
    } reals[] = {
        {"temperature must be 0 (greedy) or a number up to", s->temperature, 0.0f, 1e6f},
        {"top_p must be within 0 (off) and 1 (off):", s->top_p, 0.0f, 1.0f},
        {"min_p must be within 0 (off) and", s->min_p, 0.0f, 1.0f},
        {"repetition_penalty must be 0 or 1 (off) or a number up to", s->repetition_penalty, 0.0f, 1e6f},
        {"frequency_penalty must be a number of at most", s->frequency_penalty, -1e3f, 1e3f},
        {"presence_penalty must be a number of at most", s->presence_penalty, -1e3f, 1e3f},
        {"dry_multiplier must be 0 (off) or a number up to", s->dry_multiplier, 0.0f, 1e6f},
        {"dry_base must be 0 (1.75) or a number from 1 up to", s->dry_base, s->dry_base > 0.0f ? 1.0f : 0.0f, 1e6f},
        {"top_n_sigma must be 0 (off) or a number up to", s->top_n_sigma, 0.0f, 1e6f},
        {"typical_p must be within 0 (off) and 1 (off):", s->typical_p, 0.0f, 1.0f},
        {"xtc_probability must be within 0 (off) and", s->xtc_probability, 0.0f, 1.0f},
        {"xtc_threshold must be within 0 (0.1) and", s->xtc_threshold, 0.0f, 1.0f},
        {"temperature_range must be 0 (off) or a number up to", s->temperature_range, 0.0f, 1e6f},
        {"temperature_exponent must be 0 (1) or a number up to", s->temperature_exponent, 0.0f, 1e3f},
        {"mirostat_tau must be 0 (off) or a number up to", s->mirostat_tau, 0.0f, 1e3f},
        {"mirostat_rate must be 0 (0.1) or a number up to", s->mirostat_rate, 0.0f, 1e3f}};
    specdec_result result;
    size_t i;

    for (i = 0; i < SPECDEC__COUNT(reals); i++)
        if (!(reals[i].value >= reals[i].low && reals[i].value <= reals[i].high))
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "%s %d", reals[i].name, (int)reals[i].high);
    if (s->top_k < 0 || s->dry_allowed_length < 0 || s->dry_window < 0)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "top_k is %d, dry_allowed_length %d, dry_window %d: 0 or "
                             "more", (int)s->top_k, (int)s->dry_allowed_length, (int)s->dry_window);
    if (s->repetition_window < -1)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                             "repetition_window is %d; it must be -1 (all), 0 (%d) or more", (int)s->repetition_window,
                             SPECDEC__SAMPLE_PENALTY_WINDOW);
    result = specdec__sample_check_samplers(s, error);
    return result ? result : specdec__sample_check_biases(s, error);
}
SPECDEC__FOR_SPEED

/* --- a list of candidates in place of a row ---------------------------------------------------------------------- */

/* Returns a row of floats in the second half of items (size). A list that is written from the first item on never
   overwrites a float before it was used. The first half has memory for `size` integers. */
SPECDEC__INLINE float *specdec__sampler_row_in_list_memory(specdec_candidate *items, int size)
{
    return (float *)(void *)items + size;
}

/* Copies a row of logits to specdec__sampler_row_in_list_memory, adds biases, and applies the samplers at the
   beginning of chain[length] that change logits. Returns how many samplers it has applied. */
static int specdec__sampler_alter_logits(const specdec__sampler_input *in, const float *logits,
                                         specdec_candidate *items, const unsigned char *chain, int length)
{
    const specdec_sampling *s = in->sampling;
    float *row = specdec__sampler_row_in_list_memory(items, in->size);
    int i;

    for (i = 0; i < in->size; i++)
        row[i] = specdec__sample_comparable_logit(logits[i]);
    for (i = 0; i < s->bias_count; i++) {
        const int32_t token = s->biases[i].token;

        if (token >= 0 && token < in->size)
            row[token] = specdec__sample_comparable_logit(row[token] + s->biases[i].bias);
    }
    for (i = 0; i < length && specdec__samplers[chain[i]].alter_row; i++)
        specdec__samplers[chain[i]].alter_row(in, row, (int32_t *)(void *)items);
    return i;
}

/* Turns the row at specdec__sampler_row_in_list_memory into a list of candidates, without tokens of probability 0,
   shifted so that the best logit is 0. Returns how many candidates, at least 1. */
static int specdec__sampler_row_to_list(specdec_candidate *items, int size)
{
    const float *row = specdec__sampler_row_in_list_memory(items, size);
    float best = specdec__float_from_bits(0xff800000u);
    int i, count = 0;

    for (i = 0; i < size; i++)
        best = row[i] > best ? row[i] : best;
    for (i = 0; i < size; i++) {
        float logit = row[i] - best;

        if (logit >= -SPECDEC__SAMPLE_LARGEST_FLOAT) {
            items[count].token = i;
            items[count++].logit = logit;
        }
    }
    if (count == 0) {
        items[0].token = 0; /* nothing in the row is a number above -infinity */
        items[0].logit = 0.0f;
        count = 1;
    }
    return count;
}

#define SPECDEC__SAMPLER_TOKENS(key, a, b) ((a).token < (b).token)
SPECDEC__HEAP(specdec__sampler_sink, specdec_candidate, void, SPECDEC__SAMPLER_TOKENS)

/* Turns a list of candidates into the row at specdec__sampler_row_in_list_memory again, for samplers that change logits
   and come behind samplers that leave out candidates. */
static void specdec__sampler_list_to_row(specdec_candidate *items, int count, int size)
{
    float *row = specdec__sampler_row_in_list_memory(items, size);
    int i, token = size - 1;

    for (i = count / 2 - 1; i >= 0; i--)
        specdec__sampler_sink(items, NULL, count, i);
    for (i = count - 1; i > 0; i--) {
        const specdec_candidate moving = items[i];

        items[i] = items[0];
        items[0] = moving;
        specdec__sampler_sink(items, NULL, i, 0);
    }
    for (i = count - 1; i >= -1; i--) {
        const specdec_candidate one = items[specdec__max_int(i, 0)];

        for (; token > (i < 0 ? -1 : one.token); token--)
            row[token] = specdec__float_from_bits(0xff800000u);
        if (i >= 0)
            row[token--] = one.logit;
    }
}

/* Applies the samplers chain[length], one after the other, to items (count). Returns how many candidates are left; the
   best of them has logit 0. */
static int specdec__sampler_run_chain(const specdec__sampler_input *in, const unsigned char *chain, int length,
                                      specdec_candidate *items, int count)
{
    float best;
    int i;

    for (i = 0; i < length; i++) {
        const struct specdec__sampler *sampler = &specdec__samplers[chain[i]];

        if (sampler->keep_candidates) {
            count = sampler->keep_candidates(in, items, count);
            continue;
        }
        specdec__sampler_list_to_row(items, count, in->size);
        sampler->alter_row(in, specdec__sampler_row_in_list_memory(items, in->size), (int32_t *)(void *)items);
        count = specdec__sampler_row_to_list(items, in->size);
    }
    best = specdec__sampler_best_logit(items, count);
    for (i = 0; best < 0.0f && i < count; i++)
        items[i].logit = items[i].logit - best;
    return count;
}

/* Turns a row of logits into the list of candidates that all samplers of the settings leave. */
static void specdec__sample_apply_samplers(specdec_candidates *out, const specdec__sampler_input *in,
                                           const float *logits)
{
    unsigned char chain[SPECDEC__SAMPLER_CHAIN_LENGTH];
    const int length = specdec__sampler_write_chain(in->sampling, chain);
    const int first = specdec__sampler_alter_logits(in, logits, out->items, chain, length);

    out->greedy = !(in->sampling->temperature > 0.0f);
    out->count = specdec__sampler_row_to_list(out->items, in->size);
    out->count = specdec__sampler_run_chain(in, chain + first, length - first, out->items, out->count);
}

specdec_result specdec_sample_filter(specdec_candidates *out, const specdec_sampling *sampling, const float *logits,
                                     int vocab, const int32_t *recent, int recent_count, specdec_error *error)
{
    specdec__sampler_input in;
    specdec_result result;

    if (!out || !out->items || !sampling || !logits || vocab < 1 || recent_count < 0 || (recent_count && !recent))
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                             "sampling needs candidates, settings and a row of at least one logit");
    result = specdec__sample_check_settings(sampling, error);
    if (result)
        return result;
    memset(&in, 0, sizeof in);
    in.sampling = sampling;
    in.size = vocab;
    in.recent = recent;
    in.recent_count = recent_count;
    specdec__sample_apply_samplers(out, &in, logits);
    return SPECDEC_OK;
}
