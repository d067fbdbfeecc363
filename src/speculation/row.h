/* =====================================================================================================================
 * >>speculation/row: chooses tokens from a row of logits without sorting a list of all tokens: tokens that cannot be
 *     chosen are passed over by the largest logit of their block.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/op.h"
#include "../kernel/kernel.h"
#include "../text/vocabulary.h"
#include "sample.h"
#include "samplers.h"
#include "constrained.h"

#define SPECDEC__ROW_BLOCK_TOKENS    128  /* tokens that are passed over together; a multiple of 64 */
#define SPECDEC__ROW_LEAST_TOKENS    4096 /* tokens of a row from which on blocks pay */
#define SPECDEC__ROW_NUCLEUS_BLOCKS  256  /* blocks that are searched for a top-p set, at most */
#define SPECDEC__ROW_ROUNDS   4    /* draws from the whole row before the top-p set is listed */
#define SPECDEC__ROW_ROUNDING 1e-6 /* sums whose difference is below this share of all may be equal: floats are added */

/* How target and draft choose tokens: sampling, constraint, and memory for candidates. */
typedef struct specdec__chooser {
    const specdec__kernels *kernels;
    const specdec__vocab *vocab;
    const specdec_sampling *sampling;
    specdec_candidate *items; /* (vocab): memory for a list of candidates */
    specdec__constrained *constrained; /* NULL: all tokens are allowed */
    float surprise;           /* of mirostat, in bits: see specdec__sampler_input */
} specdec__chooser;

/* A row of logits from which tokens are sampled: as a list of candidates; or, where the samplers leave out nothing but
   the tokens behind a top-p set, as the logits themselves. */
typedef struct specdec__row {
    const specdec__kernels *kernels;
    const float *logits; /* (size), which samplers may have changed */
    int size; /* logits of the row */
    float highest;       /* of the logits */
    float temperature;   /* 0: the row is a list: `candidates` */
    float top_p;         /* top-p of the logits before the temperature; 0: off */
    specdec_candidates candidates; /* the list, or memory for one */
} specdec__row;

/* A token's logit as lists have it: minus the row's largest logit. */
SPECDEC__INLINE float specdec__row_logit(const specdec__row *row, int token)
{
    return row->logits[token] - row->highest;
}

/* Writes the k blocks with the largest logits, as sorted candidates, to the front of `blocks` (one a block). */
static void specdec__row_find_blocks(const specdec__row *row, specdec_candidate *blocks, int k)
{
    const int count = (row->size + SPECDEC__ROW_BLOCK_TOKENS - 1) / SPECDEC__ROW_BLOCK_TOKENS;
    int i;

    for (i = 0; i < count; i++) {
        const int from = i * SPECDEC__ROW_BLOCK_TOKENS, size = specdec__min_int(SPECDEC__ROW_BLOCK_TOKENS,
                                                                                row->size - from);

        blocks[i].token = from;
        blocks[i].logit = row->kernels->largest(row->logits + from, size) - row->highest;
    }
    specdec__sample_select_first(NULL, blocks, count, k);
}

/* Appends the tokens of the block that begins with token `from`, whose logits are at least `least`, to `count` items.
   Returns the new count. */
static int specdec__row_collect_block(const specdec__row *row, int from, float least, specdec_candidate *items,
                                      int count)
{
    const int end = specdec__min_int(from + SPECDEC__ROW_BLOCK_TOKENS, row->size);
    int i;

    for (i = from; i < end; i++) {
        const float logit = specdec__row_logit(row, i);

        if (logit >= least) {
            items[count].token = i;
            items[count++].logit = logit;
        }
    }
    return count;
}

/* Makes a list of at least k tokens that includes the k best: all tokens whose logits are at least the k-th best of the
   k blocks with the largest logits. Returns how many; 0: a full list is as fast. The list of blocks lies at the end of
   the first half of items, which no token reaches. */
static int specdec__row_list_best_blocks(const specdec__row *row, int k)
{
    specdec_candidate *items = row->candidates.items, *blocks;
    const int count = (row->size + SPECDEC__ROW_BLOCK_TOKENS - 1) / SPECDEC__ROW_BLOCK_TOKENS;
    int i, found = 0;
    float least;

    if (row->size < SPECDEC__ROW_LEAST_TOKENS || k > count / 8 || k < 1)
        return 0;
    blocks = items + row->size / 2 - count;
    specdec__row_find_blocks(row, blocks, k);
    least = blocks[k - 1].logit;
    if (!(least >= -SPECDEC__SAMPLE_LARGEST))
        return 0;
    for (i = 0; i < k; i++)
        found = specdec__row_collect_block(row, blocks[i].token, least, items, found);
    return found;
}

/* Makes the list that the first sampler of a chain would leave, without a list of the whole row. Returns how many; 0:
   the whole list is needed. */
static int specdec__row_run_first_sampler(const specdec__row *row, const specdec_sampling *s, int sampler)
{
    const float least = sampler == SPECDEC_SAMPLER_MIN_P ? specdec__log(s->min_p) : 0.0f;
    int from, count;

    if (sampler == SPECDEC_SAMPLER_TOP_K) {
        count = specdec__row_list_best_blocks(row, s->top_k);
        if (count)
            specdec__sample_select_first(NULL, row->candidates.items, count, s->top_k);
        return count ? s->top_k : 0;
    }
    if (sampler != SPECDEC_SAMPLER_MIN_P)
        return 0;
    for (from = 0, count = 0; from < row->size && count < row->size / 4; from += SPECDEC__ROW_BLOCK_TOKENS) {
        const int size = specdec__min_int(SPECDEC__ROW_BLOCK_TOKENS, row->size - from);

        if (row->kernels->largest(row->logits + from, size) - row->highest >= least)
            count = specdec__row_collect_block(row, from, least, row->candidates.items, count);
    }
    return from < row->size ? 0 : count;
}

/* Prepares a row of logits (size) for sampling. chooser->items (vocabulary): memory of the list; recent (recent_count):
   the sequence before the row. */
static void specdec__row_init(specdec__row *row, const specdec__chooser *chooser, const float *logits, int size,
                              const int32_t *recent, int recent_count)
{
    const specdec_sampling *s = chooser->sampling;
    unsigned char chain[SPECDEC__SAMPLER_CHAIN_LENGTH], *next = chain;
    int length = specdec__sampler_write_chain(s, chain), first = 0, count = 0, heated;
    specdec__sampler_input in;

    in.sampling = s;
    in.vocab = chooser->vocab;
    in.size = size;
    in.recent = recent;
    in.recent_count = recent_count;
    in.surprise = chooser->surprise;
    memset(row, 0, sizeof *row);
    row->kernels = chooser->kernels;
    row->logits = logits;
    row->size = size;
    row->candidates.items = chooser->items;
    if (specdec__sample_alters_logits(s)) {
        first = specdec__sampler_alter_row(&in, logits, chooser->items, chain, length);
        row->logits = specdec__sampler_row(chooser->items, size);
    }
    row->highest = row->kernels->largest(row->logits, size);
    next += first;
    length -= first;
    heated = length && next[length - 1] == SPECDEC_SAMPLER_TEMPERATURE && !(s->temperature_range > 0.0f);
    if (!(s->temperature > 1e-6f) || !(row->highest >= -SPECDEC__SAMPLE_LARGEST) ||
        !(row->highest <= SPECDEC__SAMPLE_LARGEST)) {
        specdec__sample_list_row(&row->candidates, &in, logits);
        return;
    }
    if (length == heated || (length == 1 + heated && next[0] == SPECDEC_SAMPLER_TOP_P)) {
        row->temperature = heated ? s->temperature : 1.0f;
        row->top_p = length > heated ? s->top_p : 0.0f;
        return;
    }
    if ((count = specdec__row_run_first_sampler(row, s, next[0])) > 0)
        row->candidates.count = specdec__sampler_run_chain(&in, next + 1, length - 1, chooser->items, count);
    else
        specdec__sample_list_row(&row->candidates, &in, logits);
}

/* --- top-p ------------------------------------------------------------------------------------------------------- */

/* Sums of e^(logit - best): of all tokens, and of those that come before one. */
typedef struct specdec__row_mass {
    double all, before; /* of all tokens; of those before one */
} specdec__row_mass;

/* Sums e^(logit - best) over all tokens of a row, and over those that come before `limit`. */
static specdec__row_mass specdec__row_sum_weights(const specdec__row *row, specdec_candidate limit)
{
    double lanes[32] = {0};
    specdec__row_mass mass = {0, 0};
    /* lower tokens count with the same logit, too: all above the next lower float; -0 is not one */
    const uint32_t bits = specdec__bits_from_float(limit.logit < 0.0f ? limit.logit : -0.0f);
    int i;

    row->kernels->add_weights(row->logits, limit.token, row->highest, specdec__float_from_bits(bits + 1), lanes);
    row->kernels->add_weights(row->logits + limit.token, row->size - limit.token, row->highest, limit.logit, lanes);
    for (i = 0; i < 16; i++) {
        mass.all += lanes[i];
        mass.before += lanes[16 + i];
    }
    return mass;
}

/* Whether two sums differ by no more than rounding errors. */
SPECDEC__INLINE int specdec__row_sums_equal(double sum, double wanted, double all)
{
    return sum - wanted < SPECDEC__ROW_ROUNDING * all && wanted - sum < SPECDEC__ROW_ROUNDING * all;
}

/* Makes a list of the row's top-p set from the best blocks. Returns how many candidates; 0: the set has tokens of other
   blocks, or rounding decides. */
static int specdec__row_list_nucleus_few(const specdec__row *row)
{
    specdec_candidate *items = row->candidates.items, limit;
    const int most = specdec__min_int(SPECDEC__ROW_NUCLEUS_BLOCKS, row->size / SPECDEC__ROW_BLOCK_TOKENS / 8);
    const int count = specdec__row_list_best_blocks(row, most);
    specdec__row_mass mass;
    double wanted, reached = 0;
    int i, kept;

    if (!count)
        return 0;
    limit.token = 0;
    for (limit.logit = 0, i = 0; i < count; i++)
        limit.logit = items[i].logit < limit.logit ? items[i].logit : limit.logit;
    mass = specdec__row_sum_weights(row, limit);
    wanted = (double)row->top_p * mass.all;
    if (mass.before < wanted || specdec__row_sums_equal(mass.before, wanted, mass.all))
        return 0;
    kept = specdec__sampler_keep_share(items, count, NULL, wanted, 0);
    for (i = 0; i < kept - 1; i++)
        reached += (double)specdec__exp(items[i].logit);
    return specdec__row_sums_equal(reached, wanted, mass.all) ||
                   specdec__row_sums_equal(reached + (double)specdec__exp(items[i].logit), wanted, mass.all)
               ? 0 : kept;
}

/* Makes a list of the row's top-p set, logits divided by the temperature. */
static void specdec__row_list_nucleus(specdec__row *row)
{
    specdec_candidate *items = row->candidates.items;
    float *all = specdec__sampler_row(items, row->size);
    int i, count = specdec__row_list_nucleus_few(row);

    if (!count) {
        for (i = 0; row->logits != all && i < row->size; i++)
            all[i] = specdec__sample_clean_logit(row->logits[i]);
        count = specdec__sampler_list_row(items, row->size);
        count = specdec__sampler_keep_top_p(items, count, row->top_p);
    }
    for (i = 0; i < count; i++)
        items[i].logit = items[i].logit / row->temperature;
    row->candidates.count = count;
    row->candidates.greedy = 0;
    row->temperature = 0;
}

/* Writes the k best tokens with noise, as by specdec_sample_top, of the row or of the tokens before `limit`, to `best`.
   Groups of tokens that the largest possible noise, or their own, cannot lift to the k best are skipped. Returns how
   many. */
static int specdec__row_search_best(const specdec__row *row, uint64_t noise_row, const specdec_candidate *limit, int k,
                                    specdec_candidate *best)
{
    int from, end, i, held = 0;

    for (from = 0; from < row->size && k > 0; from = end) {
        if (held == k)
            from += row->kernels->count_unreachable(row->logits + from, row->size - from, row->highest,
                                                    1.0f / row->temperature, best[k - 1].logit, noise_row,
                                                    (uint32_t)from);
        end = specdec__min_int(from + 64, row->size);
        for (i = from; i < end; i++) {
            specdec_candidate candidate;

            candidate.token = i;
            candidate.logit = specdec__row_logit(row, i);
            if (!(candidate.logit >= -SPECDEC__SAMPLE_LARGEST) ||
                (limit && !specdec__sample_comes_before(candidate, *limit)))
                continue;
            candidate.logit = candidate.logit / row->temperature;
            held = specdec__sample_try_candidate(best, held, k, candidate, noise_row);
        }
    }
    return held;
}

/* As specdec__row_search_best, from a top-p set. A token chosen from the whole row is the result if it is in the set,
   that is if the tokens before it hold less than top_p; otherwise the tokens from it on are left out, and the search is
   repeated. Returns how many; 0: a list is needed. */
static int specdec__row_best_of_top_p(const specdec__row *row, uint64_t noise_row, int k, specdec_candidate *best)
{
    specdec_candidate limit = {0, 0}, worst = {0, 0};
    int round, i, held;

    for (round = 0; round < SPECDEC__ROW_ROUNDS; round++, limit = worst) {
        specdec__row_mass mass;
        double wanted;

        held = specdec__row_search_best(row, noise_row, round ? &limit : NULL, k, best);
        for (i = 0; i < held; i++) {
            specdec_candidate one;

            one.token = best[i].token;
            one.logit = specdec__row_logit(row, one.token);
            worst = !i || specdec__sample_comes_before(worst, one) ? one : worst;
        }
        mass = specdec__row_sum_weights(row, worst);
        wanted = (double)row->top_p * mass.all;
        if (specdec__row_sums_equal(mass.before, wanted, mass.all))
            return 0;
        if (mass.before < wanted)
            return held;
        if (k > 1)
            return 0;
    }
    return 0;
}

/* Writes the k best tokens of a row with noise, as by specdec_sample_top, to `best`. Returns how many. */
static int specdec__row_best_tokens(specdec__row *row, uint64_t seed, uint64_t position, int k, specdec_candidate *best)
{
    const uint64_t noise_row = specdec__sample_noise_row(seed, position);
    int held;

    if (row->temperature > 0 && !(row->top_p > 0))
        return specdec__row_search_best(row, noise_row, NULL, k, best);
    if (row->temperature > 0 && row->size >= SPECDEC__ROW_LEAST_TOKENS && k > 0 &&
        (held = specdec__row_best_of_top_p(row, noise_row, k, best)) > 0)
        return held;
    if (row->temperature > 0)
        specdec__row_list_nucleus(row);
    return specdec_sample_top(&row->candidates, seed, position, k, best);
}

/* Writes the distribution of specdec_sample_distribution, not normalised, to p (size). */
static void specdec__row_write_weights(specdec__row *row, float *p)
{
    if (row->temperature > 0 && row->top_p > 0)
        specdec__row_list_nucleus(row);
    if (row->temperature > 0)
        row->kernels->token_weights(row->logits, row->size, row->highest, row->temperature, p);
    else
        specdec_sample_distribution(&row->candidates, row->size, p, NULL);
}

/* The surprise (-log2 of the probability) of a token of the row's list, in bits; 0: it is not in the list. */
static float specdec__row_token_surprise(const specdec__row *row, int32_t token)
{
    const specdec_candidates *list = &row->candidates;
    double mean, total;
    int i = 0;

    while (i < list->count && list->items[i].token != token)
        i++;
    if (row->temperature > 0 || i >= list->count)
        return 0;
    total = specdec__sampler_sum_weights(list->items, list->count, 0, &mean);
    return (float)((specdec__log_double(total) - (double)list->items[i].logit) * 1.4426950408889634);
}
