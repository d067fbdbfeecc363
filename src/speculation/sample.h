/* =====================================================================================================================
 * >>speculation/sample: a row of logits becomes a set of candidates, the candidates become tokens or a distribution;
 *     noise that is a function of (seed, position, token).
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/op.h"
#include "../kernel/kernel.h"

#define SPECDEC__SAMPLE_WINDOW     64 /* repetition_window when the caller leaves it 0 */
#define SPECDEC__SAMPLE_NUCLEUS    64 /* candidates sorted first when looking for a top-p set; then 8 times more */
#define SPECDEC__SAMPLE_GUMBEL_MAX 22.1808f       /* no Gumbel value is larger: 32 ln 2 and some rounding */
#define SPECDEC__SAMPLE_LARGEST    3.40282347e38f /* the largest float */

/* What seed and position contribute to the noise; the same for every token of a row. */
SPECDEC__INLINE uint64_t specdec__sample_noise_row(uint64_t seed, uint64_t position)
{
    uint64_t key = specdec__mix(seed + 0x9e3779b97f4a7c15u);

    return specdec__mix(key ^ specdec__mix(position * 0xd1342543de82ef95u + 0x632be59bd9b4e019u));
}

/* 32 random bits, the same on every machine. Token ids are below 2^31; the upper half serves uniform numbers. */
static SPECDEC__UNUSED uint32_t specdec__noise(uint64_t seed, uint64_t position, uint32_t token)
{
    return (uint32_t)(specdec__noise_at(specdec__sample_noise_row(seed, position), token) >> 32);
}

/* -log(-log(u)) with u = (bits + 1) / (2^32 + 1): in [-3.1, SPECDEC__SAMPLE_GUMBEL_MAX]. Works on 1 - u near 1. */
static float specdec__sample_gumbel_from(uint32_t bits)
{
    const float unit = 2.32830644e-10f; /* 2^-32 */
    float u, complement, wait;

    if (bits < 0x80000000u)
        return -specdec__log(-specdec__log((float)(bits + 1) * unit));
    complement = (float)(~bits + 1) * unit;
    u = 1.0f - complement;
    wait = u < 1.0f ? -specdec__log(u) * (complement / (1.0f - u)) : complement;
    return -specdec__log(wait);
}

double specdec_uniform_next(specdec_uniform *source)
{
    uint64_t row, bits;

    if (!source)
        return 0;
    row = specdec__sample_noise_row(source->seed, source->position);
    bits = specdec__noise_at(row, 0x80000000u | source->decision++);
    return ((double)(bits >> 12) + 0.5) * (1.0 / 4503599627370496.0); /* 2^52 */
}

/* Order of candidates: the higher logit first, then the lower token. */
SPECDEC__INLINE int specdec__sample_before(specdec_candidate a, specdec_candidate b)
{
    return a.logit > b.logit || (!(a.logit < b.logit) && a.token < b.token);
}

#define SPECDEC__SAMPLE_ORDER(key, a, b) specdec__sample_before(a, b)
SPECDEC__HEAP(specdec__sample_sink, specdec_candidate, void, SPECDEC__SAMPLE_ORDER)

/* Brings the best k of count items to the front, sorted; 0 < k <= count. O(count) for small k. */
static void specdec__sample_select(specdec_candidate *items, int count, int k)
{
    specdec_candidate moving;
    int i;

    for (i = k / 2 - 1; i >= 0; i--)
        specdec__sample_sink(items, NULL, k, i);
    for (i = k; i < count; i++) {
        if (specdec__sample_before(items[i], items[0])) {
            moving = items[i];
            items[i] = items[0];
            items[0] = moving;
            specdec__sample_sink(items, NULL, k, 0);
        }
    }
    for (i = k - 1; i > 0; i--) {
        moving = items[i];
        items[i] = items[0];
        items[0] = moving;
        specdec__sample_sink(items, NULL, i, 0);
    }
}

/* A logit that can be compared: NaN becomes -infinity, +infinity the largest float. */
SPECDEC__INLINE float specdec__sample_clean(float logit)
{
    if (!(logit >= -SPECDEC__SAMPLE_LARGEST))
        return specdec__float_from_bits(0xff800000u);
    return logit > SPECDEC__SAMPLE_LARGEST ? SPECDEC__SAMPLE_LARGEST : logit;
}

/* Does the penalty change anything? */
SPECDEC__INLINE int specdec__sample_penalises(const specdec_sampling *sampling)
{
    return sampling->repetition_penalty > 0.0f && (sampling->repetition_penalty < 1.0f ||
                                                   sampling->repetition_penalty > 1.0f);
}

/* Do the penalty or biases change logits? */
SPECDEC__INLINE int specdec__sample_alters(const specdec_sampling *sampling)
{
    return sampling->bias_count > 0 || specdec__sample_penalises(sampling);
}

/* Is anything cut off before a token is drawn? A constraint then comes first. */
SPECDEC__INLINE int specdec__sample_filters(const specdec_sampling *sampling)
{
    return sampling->temperature > 0.0f && (sampling->top_k > 0 || (sampling->top_p > 0.0f && sampling->top_p < 1.0f) ||
                                            sampling->min_p > 0.0f);
}

SPECDEC__FOR_SIZE
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

static specdec_result specdec__sample_check(const specdec_sampling *sampling, specdec_error *error)
{
    if (!(sampling->temperature >= 0.0f && sampling->temperature <= 1e6f))
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "temperature must be 0 (greedy) or a number up to 1000000");
    if (sampling->top_k < 0)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "top_k is %d; it must be 0 (off) or more",
                             (int)sampling->top_k);
    if (!(sampling->top_p >= 0.0f && sampling->top_p <= 1.0f))
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "top_p must be within 0 (off) and 1 (off)");
    if (!(sampling->min_p >= 0.0f && sampling->min_p <= 1.0f))
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "min_p must be within 0 (off) and 1");
    if (!(sampling->repetition_penalty >= 0.0f && sampling->repetition_penalty <= 1e6f))
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                             "repetition_penalty must be 0 or 1 (off) or a number up to 1000000");
    if (sampling->repetition_window < -1)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                             "repetition_window is %d; it must be -1 (all), 0 (%d) or more",
                             (int)sampling->repetition_window, SPECDEC__SAMPLE_WINDOW);
    return specdec__sample_check_biases(sampling, error);
}
SPECDEC__FOR_SPEED

/* The logit of a token of a row, with its biases: they are few. */
static float specdec__sample_biased(const specdec_sampling *sampling, const float *logits, int32_t token)
{
    float logit = specdec__sample_clean(logits[token]);
    int i;

    for (i = 0; i < sampling->bias_count; i++)
        if (sampling->biases[i].token == token)
            logit = specdec__sample_clean(logit + sampling->biases[i].bias);
    return logit;
}

/* Copies the row into items[vocab], items[i] being token i, adds biases and makes tokens of the window less likely. */
static void specdec__sample_alter(specdec_candidate *items, const specdec_sampling *sampling, const float *logits,
                                  int vocab, const int32_t *recent, int recent_count)
{
    int window = sampling->repetition_window ? sampling->repetition_window : SPECDEC__SAMPLE_WINDOW;
    float penalty = sampling->repetition_penalty;
    int i;

    for (i = 0; i < vocab; i++) {
        items[i].token = i;
        items[i].logit = specdec__sample_clean(logits[i]);
    }
    for (i = 0; i < sampling->bias_count; i++) {
        const int32_t token = sampling->biases[i].token;

        if (token >= 0 && token < vocab)
            items[token].logit = specdec__sample_clean(items[token].logit + sampling->biases[i].bias);
    }
    if (!specdec__sample_penalises(sampling))
        return;
    for (i = window < 0 ? 0 : specdec__max_int(recent_count - window, 0); i < recent_count; i++) {
        int32_t token = recent[i];

        if (token >= 0 && token < vocab) {
            float logit = specdec__sample_biased(sampling, logits, token); /* afresh, so that repeats count once */

            items[token].logit = specdec__sample_clean(logit > 0.0f ? logit / penalty : logit * penalty);
        }
    }
}

/* Drops candidates of probability zero and shifts the rest so that the best logit is 0. Returns how many stay, >= 1. */
static int specdec__sample_shift(specdec_candidate *items, int vocab)
{
    float best = specdec__float_from_bits(0xff800000u);
    int i, count = 0;

    for (i = 0; i < vocab; i++)
        best = items[i].logit > best ? items[i].logit : best;
    for (i = 0; i < vocab; i++) {
        float logit = items[i].logit - best;

        if (logit >= -SPECDEC__SAMPLE_LARGEST) {
            items[count].token = items[i].token;
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

/* Keeps the fewest best candidates that hold top_p of the probability; leaves them sorted. Returns how many. */
static int specdec__sample_nucleus(specdec_candidate *items, int count, float top_p, int sorted)
{
    int i = 0, ready = sorted ? count : specdec__min_int(SPECDEC__SAMPLE_NUCLEUS, count);
    double total = 0.0, reached = 0.0;

    for (i = 0; i < count; i++)
        total += (double)specdec__exp(items[i].logit);
    total *= (double)top_p;
    if (!sorted)
        specdec__sample_select(items, count, ready);
    for (i = 0;; ready = ready > count / 8 ? count : ready * 8) {
        for (; i < ready; i++) {
            reached += (double)specdec__exp(items[i].logit);
            if (reached >= total)
                return i + 1;
        }
        if (ready == count)
            return count;
        specdec__sample_select(items + ready, count - ready,
                               specdec__min_int(ready > count / 8 ? count : ready * 7, count - ready));
    }
}

specdec_result specdec_sample_filter(specdec_candidates *out, const specdec_sampling *sampling, const float *logits,
                                     int vocab, const int32_t *recent, int recent_count, specdec_error *error)
{
    specdec_candidate *items = out ? out->items : NULL;
    int i, count, kept, sorted = 0;
    specdec_result result;

    if (!items || !sampling || !logits || vocab < 1 || recent_count < 0 || (recent_count && !recent))
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                             "sampling needs candidates, settings and a row of at least one logit");
    result = specdec__sample_check(sampling, error);
    if (result)
        return result;
    specdec__sample_alter(items, sampling, logits, vocab, recent, recent_count);
    count = specdec__sample_shift(items, vocab);
    out->greedy = !(sampling->temperature > 0.0f);
    out->count = count;
    if (out->greedy)
        return SPECDEC_OK;
    if (sampling->top_k > 0 && sampling->top_k < count) {
        count = sampling->top_k;
        specdec__sample_select(items, out->count, count);
        sorted = 1;
    }
    if (sampling->top_p > 0.0f && sampling->top_p < 1.0f)
        count = specdec__sample_nucleus(items, count, sampling->top_p, sorted);
    if (sampling->min_p > 0.0f) {
        float least = specdec__log(sampling->min_p);

        for (i = 0, kept = 0; i < count; i++)
            if (items[i].logit >= least)
                items[kept++] = items[i];
        count = kept;
    }
    for (i = 0; i < count; i++)
        items[i].logit = items[i].logit / sampling->temperature;
    out->count = count;
    return SPECDEC_OK;
}

/* Puts a candidate into the sorted list best[held] of at most k; when the list is full, its last one falls out. Returns
   how many are held. */
static int specdec__sample_insert(specdec_candidate *best, int held, int k, specdec_candidate candidate)
{
    int at = held < k ? held : k - 1;

    if (held == k && !specdec__sample_before(candidate, best[k - 1]))
        return held;
    for (; at > 0 && specdec__sample_before(candidate, best[at - 1]); at--)
        best[at] = best[at - 1];
    best[at] = candidate;
    return held < k ? held + 1 : held;
}

/* The most noise that these bits can give: ln 2 (rounded up to 710/1024, so that the product is exact) for each leading
   one and one more. */
SPECDEC__INLINE float specdec__sample_gumbel_limit(uint32_t bits)
{
    return (float)((__builtin_clz(~bits | 1u) + 1) * 710) * 0.0009765625f;
}

/* Adds Gumbel noise to a candidate and puts it into the list of the k best. A candidate is passed over only when no
   noise, or none that its leading random bits allow, could lift it to the k-th best: so the result is exact. Returns
   how many are held. */
static int specdec__sample_try(specdec_candidate *best, int held, int k, specdec_candidate candidate, uint64_t row)
{
    float worst = held == k ? best[k - 1].logit : specdec__float_from_bits(0xff800000u);
    uint32_t bits;

    if (candidate.logit + SPECDEC__SAMPLE_GUMBEL_MAX < worst)
        return held;
    bits = (uint32_t)(specdec__noise_at(row, (uint32_t)candidate.token) >> 32);
    if (candidate.logit + specdec__sample_gumbel_limit(bits) < worst)
        return held;
    candidate.logit = candidate.logit + specdec__sample_gumbel_from(bits);
    return specdec__sample_insert(best, held, k, candidate);
}

int specdec_sample_top(const specdec_candidates *candidates, uint64_t seed, uint64_t position, int k,
                       specdec_candidate *best)
{
    uint64_t row = specdec__sample_noise_row(seed, position);
    int i, held = 0;

    if (!candidates || !candidates->items || !best || k < 1)
        return 0;
    for (i = 0; i < candidates->count && !candidates->greedy; i++)
        held = specdec__sample_try(best, held, k, candidates->items[i], row);
    for (i = 0; i < candidates->count && candidates->greedy; i++)
        if (held < k || candidates->items[i].logit >= best[k - 1].logit)
            held = specdec__sample_insert(best, held, k, candidates->items[i]);
    return held;
}

/* The one token that (seed, position) chooses among the candidates; with greedy candidates the best one. */
static SPECDEC__UNUSED int32_t specdec__sample_coupled(const specdec_candidates *candidates, uint64_t seed,
                                                       uint64_t position)
{
    specdec_candidate best;

    best.token = 0;
    specdec_sample_top(candidates, seed, position, 1, &best);
    return best.token;
}

/* The k best tokens of a row, best first, without scratch: what a filter at temperature 0 and no penalty would give,
   but for the shift of the logits. Runs of tokens of which none can be among them are passed over. Returns how many. */
static SPECDEC__UNUSED int specdec__sample_greedy(const specdec__kernels *kernels, const float *logits, int vocab,
                                                  int k,
                                                  specdec_candidate *best)
{
    int i = 0, held = 0, end;

    for (; i < vocab && k > 0; i = end) {
        end = specdec__min_int(i + 256, vocab);
        if (held == k && !(kernels->largest(logits + i, end - i) > best[k - 1].logit))
            continue;
        for (; i < end; i++) {
            specdec_candidate candidate;

            if (held == k && !(logits[i] > best[k - 1].logit))
                continue;
            candidate.token = i;
            candidate.logit = specdec__sample_clean(logits[i]);
            held = specdec__sample_insert(best, held, k, candidate);
        }
    }
    return held;
}

/* A row of logits that is sampled from: as a list of candidates, or, when nothing is cut off or penalised, as it is. */
typedef struct specdec__row {
    const specdec__kernels *kernels;
    const float *logits; /* (vocab) */
    int vocab;
    float highest;                /* of the logits */
    float temperature;            /* 0: there is a list */
    specdec_candidates candidates;
} specdec__row;

/* items (vocab) is room for the list. recent (recent_count) is the text before the row. */
static specdec_result specdec__row_init(specdec__row *row, const specdec__kernels *kernels, const specdec_sampling *s,
                                        specdec_candidate *items, const float *logits, int vocab, const int32_t *recent,
                                        int recent_count)
{
    row->kernels = kernels;
    row->logits = logits;
    row->vocab = vocab;
    row->temperature = 0;
    row->candidates.items = items;
    if (s->temperature > 1e-6f && !(s->top_k > 0 && s->top_k < vocab) && !(s->top_p > 0 && s->top_p < 1) &&
        !(s->min_p > 0) &&
        !specdec__sample_alters(s)) {
        row->highest = kernels->largest(logits, vocab);
        if (row->highest >= -SPECDEC__SAMPLE_LARGEST && row->highest <= SPECDEC__SAMPLE_LARGEST) {
            row->temperature = s->temperature;
            return SPECDEC_OK;
        }
    }
    return specdec_sample_filter(&row->candidates, s, logits, vocab, recent, recent_count, NULL);
}

/* What specdec_sample_top gives, in blocks of 64 tokens: most blocks hold no token that could be chosen. */
static int specdec__row_top(const specdec__row *row, uint64_t seed, uint64_t position, int k, specdec_candidate *best)
{
    uint64_t noise_row = specdec__sample_noise_row(seed, position);
    int from, i, held = 0;

    if (!(row->temperature > 0))
        return specdec_sample_top(&row->candidates, seed, position, k, best);
    for (from = 0; from < row->vocab && k > 0; from += 64) {
        int count = specdec__min_int(64, row->vocab - from);

        if (held == k &&
            !row->kernels->hopefuls(row->logits + from, count, row->highest, 1.0f / row->temperature,
                                    best[k - 1].logit, noise_row, (uint32_t)from))
            continue;
        for (i = from; i < from + count; i++) {
            specdec_candidate candidate;

            candidate.token = i;
            candidate.logit = row->logits[i] - row->highest;
            if (!(candidate.logit >= -SPECDEC__SAMPLE_LARGEST))
                continue;
            candidate.logit = candidate.logit / row->temperature;
            held = specdec__sample_try(best, held, k, candidate, noise_row);
        }
    }
    return held;
}

specdec_result specdec_sample_distribution(const specdec_candidates *candidates, int vocab, float *p,
                                           specdec_error *error)
{
    double total = 0.0;
    int i;

    if (!candidates || !candidates->items || candidates->count < 1 || !p || vocab < 1)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                             "a distribution needs candidates and room for at least one token");
    for (i = 0; i < candidates->count; i++)
        if (candidates->items[i].token < 0 || candidates->items[i].token >= vocab)
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "token %d is not in the vocabulary of %u",
                                 (int)candidates->items[i].token, (unsigned)vocab);
    memset(p, 0, (size_t)vocab * sizeof *p);
    if (candidates->greedy) {
        p[specdec__sample_coupled(candidates, 0, 0)] = 1.0f;
        return SPECDEC_OK;
    }
    for (i = 0; i < candidates->count; i++) {
        float weight = specdec__exp(candidates->items[i].logit);

        p[candidates->items[i].token] = weight;
        total += (double)weight;
    }
    for (i = 0; i < candidates->count; i++)
        p[candidates->items[i].token] = (float)((double)p[candidates->items[i].token] / total);
    return SPECDEC_OK;
}

/* What specdec_sample_distribution gives, but for the sum of p (vocab), which need not be 1. */
static void specdec__row_weights(const specdec__row *row, float *p)
{
    if (row->temperature > 0)
        row->kernels->weights(row->logits, row->vocab, row->highest, row->temperature, p);
    else
        specdec_sample_distribution(&row->candidates, row->vocab, p, NULL);
}
