/* sample_oracle.h - the filters as scalar code over a list of the whole row, as they were before samplers passed tokens
   over by bounds: what tests compare those with, bit for bit. */
#ifndef SAMPLE_ORACLE_H
#define SAMPLE_ORACLE_H
#define SPECDEC__ORACLE_ORDER(key, a, b) specdec__sample_comes_before(a, b)
SPECDEC__HEAP(oracle_sink, specdec_candidate, void, SPECDEC__ORACLE_ORDER)

/* Brings the best k of count items to the front, sorted; 0 < k <= count. O(count) for small k. */
static void oracle_select(specdec_candidate *items, int count, int k)
{
    specdec_candidate moving;
    int i;

    for (i = k / 2 - 1; i >= 0; i--)
        oracle_sink(items, NULL, k, i);
    for (i = k; i < count; i++) {
        if (specdec__sample_comes_before(items[i], items[0])) {
            moving = items[i];
            items[i] = items[0];
            items[0] = moving;
            oracle_sink(items, NULL, k, 0);
        }
    }
    for (i = k - 1; i > 0; i--) {
        moving = items[i];
        items[i] = items[0];
        items[0] = moving;
        oracle_sink(items, NULL, i, 0);
    }
}

/* Does the penalty change anything? */
static int oracle_penalises(const specdec_sampling *sampling)
{
    return sampling->repetition_penalty > 0.0f && (sampling->repetition_penalty < 1.0f ||
                                                   sampling->repetition_penalty > 1.0f);
}

/* The logit of a token of a row, with its biases: they are few. */
static float oracle_biased(const specdec_sampling *sampling, const float *logits, int32_t token)
{
    float logit = specdec__sample_comparable_logit(logits[token]);
    int i;

    for (i = 0; i < sampling->bias_count; i++)
        if (sampling->biases[i].token == token)
            logit = specdec__sample_comparable_logit(logit + sampling->biases[i].bias);
    return logit;
}

/* Copies the row into items[vocab], items[i] being token i, adds biases and makes tokens of the window less likely. */
static void oracle_alter(specdec_candidate *items, const specdec_sampling *sampling, const float *logits,
                                  int vocab, const int32_t *recent, int recent_count)
{
    int window = sampling->repetition_window ? sampling->repetition_window : 64;
    float penalty = sampling->repetition_penalty;
    int i;

    for (i = 0; i < vocab; i++) {
        items[i].token = i;
        items[i].logit = specdec__sample_comparable_logit(logits[i]);
    }
    for (i = 0; i < sampling->bias_count; i++) {
        const int32_t token = sampling->biases[i].token;

        if (token >= 0 && token < vocab)
            items[token].logit = specdec__sample_comparable_logit(items[token].logit + sampling->biases[i].bias);
    }
    if (!oracle_penalises(sampling))
        return;
    for (i = window < 0 ? 0 : specdec__max_int(recent_count - window, 0); i < recent_count; i++) {
        int32_t token = recent[i];

        if (token >= 0 && token < vocab) {
            float logit = oracle_biased(sampling, logits, token); /* afresh, so that repeats count once */

            items[token].logit = specdec__sample_comparable_logit(logit > 0.0f ? logit / penalty : logit * penalty);
        }
    }
}

/* Drops candidates of probability zero and shifts the rest so that the best logit is 0. Returns how many stay, >= 1. */
static int oracle_shift(specdec_candidate *items, int vocab)
{
    float best = specdec__float_from_bits(0xff800000u);
    int i, count = 0;

    for (i = 0; i < vocab; i++)
        best = items[i].logit > best ? items[i].logit : best;
    for (i = 0; i < vocab; i++) {
        float logit = items[i].logit - best;

        if (logit >= -SPECDEC__SAMPLE_LARGEST_FLOAT) {
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
static int oracle_nucleus(specdec_candidate *items, int count, float top_p, int sorted)
{
    int i = 0, ready = sorted ? count : specdec__min_int(64, count);
    double total = 0.0, reached = 0.0;

    for (i = 0; i < count; i++)
        total += (double)specdec__exp(items[i].logit);
    total *= (double)top_p;
    if (!sorted)
        oracle_select(items, count, ready);
    for (i = 0;; ready = ready > count / 8 ? count : ready * 8) {
        for (; i < ready; i++) {
            reached += (double)specdec__exp(items[i].logit);
            if (reached >= total)
                return i + 1;
        }
        if (ready == count)
            return count;
        oracle_select(items + ready, count - ready,
                               specdec__min_int(ready > count / 8 ? count : ready * 7, count - ready));
    }
}

/* Top-k, top-p, min-p and the temperature, which is above 0. */
static void oracle_filter(specdec_candidates *out, const specdec_sampling *sampling, const float *logits, int vocab,
                          const int32_t *recent, int recent_count)
{
    specdec_candidate *items = out->items;
    int i, count, kept, sorted = 0;

    oracle_alter(items, sampling, logits, vocab, recent, recent_count);
    count = oracle_shift(items, vocab);
    out->greedy = 0;
    out->count = count;
    if (sampling->top_k > 0 && sampling->top_k < count) {
        count = sampling->top_k;
        oracle_select(items, out->count, count);
        sorted = 1;
    }
    if (sampling->top_p > 0.0f && sampling->top_p < 1.0f)
        count = oracle_nucleus(items, count, sampling->top_p, sorted);
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
}
#endif
