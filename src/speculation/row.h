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

#define SPECDEC__ROW_BLOCK_TOKENS 128 /* tokens of a block, passed over together if none can be chosen; 64 divides it */
#define SPECDEC__ROW_LEAST_TOKENS    4096 /* tokens of a row of logits, at least, for blocks to pay */
#define SPECDEC__ROW_NUCLEUS_BLOCKS  256  /* blocks of a row in which a top-p set is searched, at most */
#define SPECDEC__ROW_NUCLEUS_DRAWS   4    /* draws from the whole row before the top-p set is listed */
#define SPECDEC__ROW_SUM_TOLERANCE 1e-6 /* sums that differ by a smaller part of the whole may be equal: rounding */

/* How the target and drafters choose tokens from logits: settings of sampling, the constraint, and memory for
   candidates. */
typedef struct specdec__chooser {
    const specdec__kernels *kernels;   /* functions of the instruction set in use */
    const specdec__vocab *vocab;       /* the target's vocabulary */
    const specdec_sampling *sampling;  /* the settings of sampling */
    specdec_candidate *items; /* (vocab): memory for a list of candidates */
    specdec__constrained *constrained; /* the sequence's constraint; NULL: all tokens are allowed */
    float surprise;           /* mirostat's limit of a token's surprise, in bits: see specdec__sampler_input */
} specdec__chooser;

/* A row of logits from which tokens are sampled: as a list of candidates, or, where the samplers leave out nothing but
   the tokens behind a top-p set, as the logits themselves. */
typedef struct specdec__row {
    const specdec__kernels *kernels;  /* functions of the instruction set in use */
    const float *logits; /* (size): the logits, which samplers may have changed */
    int size; /* logits of the row */
    float highest;       /* the largest of the logits */
    float temperature;   /* temperature by which the logits are to be divided; 0: the row is a list, `candidates` */
    float top_p;         /* top-p of the logits, before they are divided by the temperature; 0: off */
    specdec_candidates candidates; /* the list of candidates, or memory for one */
} specdec__row;

/* Returns a token's logit minus the row's largest logit, as lists of candidates have it. */
SPECDEC__INLINE float specdec__row_logit_below_largest(const specdec__row *row, int token)
{
    return row->logits[token] - row->highest;
}

/* Writes the k blocks of a row with the largest logits, sorted as candidates, to the front of `blocks`, which has room
   for all blocks of the row. */
static void specdec__row_find_best_blocks(const specdec__row *row, specdec_candidate *blocks, int k)
{
    const int count = (row->size + SPECDEC__ROW_BLOCK_TOKENS - 1) / SPECDEC__ROW_BLOCK_TOKENS;
    int i;

    for (i = 0; i < count; i++) {
        const int from = i * SPECDEC__ROW_BLOCK_TOKENS, size = specdec__min_int(SPECDEC__ROW_BLOCK_TOKENS,
                                                                                row->size - from);

        blocks[i].token = from;
        blocks[i].logit = row->kernels->largest(row->logits + from, size) - row->highest;
    }
    specdec__sample_move_first_to_front(NULL, blocks, count, k);
}

/* Appends the tokens of the block that begins with token `from`, as far as their logits are at least `least`, to a list
   of `count` items. Returns the new count. */
static int specdec__row_append_tokens_of_block(const specdec__row *row, int from, float least, specdec_candidate *items,
                                               int count)
{
    const int end = specdec__min_int(from + SPECDEC__ROW_BLOCK_TOKENS, row->size);
    int i;

    for (i = from; i < end; i++) {
        const float logit = specdec__row_logit_below_largest(row, i);

        if (logit >= least) {
            items[count].token = i;
            items[count++].logit = logit;
        }
    }
    return count;
}

/* Makes a list of at least k tokens that includes the row's k best: all tokens whose logits are at least the k-th
   largest among the largest logits of blocks. Returns how many tokens; 0: listing the whole row is as fast. The list of
   blocks lies at the end of the first half of the row's list, which no token reaches. */
static int specdec__row_list_tokens_of_best_blocks(const specdec__row *row, int k)
{
    specdec_candidate *items = row->candidates.items, *blocks;
    const int count = (row->size + SPECDEC__ROW_BLOCK_TOKENS - 1) / SPECDEC__ROW_BLOCK_TOKENS;
    int i, found = 0;
    float least;

    if (row->size < SPECDEC__ROW_LEAST_TOKENS || k > count / 8 || k < 1)
        return 0;
    blocks = items + row->size / 2 - count;
    specdec__row_find_best_blocks(row, blocks, k);
    least = blocks[k - 1].logit;
    if (!(least >= -SPECDEC__SAMPLE_LARGEST_FLOAT))
        return 0;
    for (i = 0; i < k; i++)
        found = specdec__row_append_tokens_of_block(row, blocks[i].token, least, items, found);
    return found;
}

/* Makes the list of candidates that the first sampler of a chain would leave, without listing the whole row. Returns
   how many candidates; 0: the whole row has to be listed. */
static int specdec__row_list_by_first_sampler(const specdec__row *row, const specdec_sampling *s, int sampler)
{
    const float least = sampler == SPECDEC_SAMPLER_MIN_P ? specdec__log(s->min_p) : 0.0f;
    int from, count;

    if (sampler == SPECDEC_SAMPLER_TOP_K) {
        count = specdec__row_list_tokens_of_best_blocks(row, s->top_k);
        if (count)
            specdec__sample_move_first_to_front(NULL, row->candidates.items, count, s->top_k);
        return count ? s->top_k : 0;
    }
    if (sampler != SPECDEC_SAMPLER_MIN_P)
        return 0;
    for (from = 0, count = 0; from < row->size && count < row->size / 4; from += SPECDEC__ROW_BLOCK_TOKENS) {
        const int size = specdec__min_int(SPECDEC__ROW_BLOCK_TOKENS, row->size - from);

        if (row->kernels->largest(row->logits + from, size) - row->highest >= least)
            count = specdec__row_append_tokens_of_block(row, from, least, row->candidates.items, count);
    }
    return from < row->size ? 0 : count;
}

/* Prepares a row of logits (size) for sampling: applies biases and samplers. chooser->items (vocabulary): memory for
   the list; recent (recent_count): the tokens of the sequence before the row. */
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
    if (specdec__sampler_chain_alters_logits(s)) {
        first = specdec__sampler_alter_logits(&in, logits, chooser->items, chain, length);
        row->logits = specdec__sampler_row_in_list_memory(chooser->items, size);
    }
    row->highest = row->kernels->largest(row->logits, size);
    next += first;
    length -= first;
    heated = length && next[length - 1] == SPECDEC_SAMPLER_TEMPERATURE && !(s->temperature_range > 0.0f);
    if (!(s->temperature > 1e-6f) || !(row->highest >= -SPECDEC__SAMPLE_LARGEST_FLOAT) ||
        !(row->highest <= SPECDEC__SAMPLE_LARGEST_FLOAT)) {
        specdec__sample_apply_samplers(&row->candidates, &in, logits);
        return;
    }
    if (length == heated || (length == 1 + heated && next[0] == SPECDEC_SAMPLER_TOP_P)) {
        row->temperature = heated ? s->temperature : 1.0f;
        row->top_p = length > heated ? s->top_p : 0.0f;
        return;
    }
    if ((count = specdec__row_list_by_first_sampler(row, s, next[0])) > 0)
        row->candidates.count = specdec__sampler_run_chain(&in, next + 1, length - 1, chooser->items, count);
    else
        specdec__sample_apply_samplers(&row->candidates, &in, logits);
}

/* --- top-p ------------------------------------------------------------------------------------------------------- */

/* Sums of the weights e^(logit - largest logit) of a row. */
typedef struct specdec__row_weight_sums {
    double all, before; /* sum of the weights of all tokens; of those that come before a certain token */
} specdec__row_weight_sums;

/* Sums the weights e^(logit - largest logit) over all tokens of a row, and over those that come before `limit`. */
static specdec__row_weight_sums specdec__row_sum_weights(const specdec__row *row, specdec_candidate limit)
{
    double lanes[32] = {0};
    specdec__row_weight_sums mass = {0, 0};
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

/* Returns whether two sums differ by no more than rounding errors. all: the sum of the whole row. */
SPECDEC__INLINE int specdec__row_sums_equal(double sum, double wanted, double all)
{
    return sum - wanted < SPECDEC__ROW_SUM_TOLERANCE * all && wanted - sum < SPECDEC__ROW_SUM_TOLERANCE * all;
}

/* Makes a list of the row's top-p set from the blocks with the largest logits. Returns how many candidates; 0: the set
   has tokens of other blocks, or rounding decides whether it has. */
static int specdec__row_list_top_p_set_from_best_blocks(const specdec__row *row)
{
    specdec_candidate *items = row->candidates.items, limit;
    const int most = specdec__min_int(SPECDEC__ROW_NUCLEUS_BLOCKS, row->size / SPECDEC__ROW_BLOCK_TOKENS / 8);
    const int count = specdec__row_list_tokens_of_best_blocks(row, most);
    specdec__row_weight_sums mass;
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
    kept = specdec__sampler_keep_probability_share(items, count, NULL, wanted, 0);
    for (i = 0; i < kept - 1; i++)
        reached += (double)specdec__exp(items[i].logit);
    return specdec__row_sums_equal(reached, wanted, mass.all) ||
                   specdec__row_sums_equal(reached + (double)specdec__exp(items[i].logit), wanted, mass.all)
               ? 0 : kept;
}

/* Makes a list of the row's top-p set, with logits divided by the temperature. */
static void specdec__row_list_top_p_set(specdec__row *row)
{
    specdec_candidate *items = row->candidates.items;
    float *all = specdec__sampler_row_in_list_memory(items, row->size);
    int i, count = specdec__row_list_top_p_set_from_best_blocks(row);

    if (!count) {
        for (i = 0; row->logits != all && i < row->size; i++)
            all[i] = specdec__sample_comparable_logit(row->logits[i]);
        count = specdec__sampler_row_to_list(items, row->size);
        count = specdec__sampler_keep_top_p(items, count, row->top_p);
    }
    for (i = 0; i < count; i++)
        items[i].logit = items[i].logit / row->temperature;
    row->candidates.count = count;
    row->candidates.greedy = 0;
    row->temperature = 0;
}

/* Writes the k best tokens with noise, as specdec_sample_top finds them, to `best`: of the whole row, or of the tokens
   before `limit`. Blocks of tokens that the largest possible noise, or their own noise, cannot lift to the k best are
   skipped. Returns how many it writes. */
static int specdec__row_search_best_tokens(const specdec__row *row, uint64_t noise_row, const specdec_candidate *limit,
                                           int k, specdec_candidate *best)
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
            candidate.logit = specdec__row_logit_below_largest(row, i);
            if (!(candidate.logit >= -SPECDEC__SAMPLE_LARGEST_FLOAT) ||
                (limit && !specdec__sample_comes_before(candidate, *limit)))
                continue;
            candidate.logit = candidate.logit / row->temperature;
            held = specdec__sample_insert_with_noise(best, held, k, candidate, noise_row);
        }
    }
    return held;
}

/* Writes the k best tokens with noise of a row's top-p set to `best`. A token chosen from the whole row is one of them
   if it is in the set, that is if the tokens before it hold less than top_p. Otherwise the tokens from it on are left
   out, and the search is repeated. Returns how many it writes; 0: a list of candidates is needed. */
static int specdec__row_best_tokens_of_top_p_set(const specdec__row *row, uint64_t noise_row, int k,
                                                 specdec_candidate *best)
{
    specdec_candidate limit = {0, 0}, worst = {0, 0};
    int round, i, held;

    for (round = 0; round < SPECDEC__ROW_NUCLEUS_DRAWS; round++, limit = worst) {
        specdec__row_weight_sums mass;
        double wanted;

        held = specdec__row_search_best_tokens(row, noise_row, round ? &limit : NULL, k, best);
        for (i = 0; i < held; i++) {
            specdec_candidate one;

            one.token = best[i].token;
            one.logit = specdec__row_logit_below_largest(row, one.token);
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

/* Writes the k best tokens of a row with noise, as specdec_sample_top finds them, to `best`. Returns how many it
   writes. */
static int specdec__row_best_tokens(specdec__row *row, uint64_t seed, uint64_t position, int k, specdec_candidate *best)
{
    const uint64_t noise_row = specdec__sample_noise_of_position(seed, position);
    int held;

    if (row->temperature > 0 && !(row->top_p > 0))
        return specdec__row_search_best_tokens(row, noise_row, NULL, k, best);
    if (row->temperature > 0 && row->size >= SPECDEC__ROW_LEAST_TOKENS && k > 0 &&
        (held = specdec__row_best_tokens_of_top_p_set(row, noise_row, k, best)) > 0)
        return held;
    if (row->temperature > 0)
        specdec__row_list_top_p_set(row);
    return specdec_sample_top(&row->candidates, seed, position, k, best);
}

/* Writes the probabilities of a row's tokens, as specdec_sample_distribution does, but not normalised, to p (size). */
static void specdec__row_write_weights(specdec__row *row, float *p)
{
    if (row->temperature > 0 && row->top_p > 0)
        specdec__row_list_top_p_set(row);
    if (row->temperature > 0)
        row->kernels->token_weights(row->logits, row->size, row->highest, row->temperature, p);
    else
        specdec_sample_distribution(&row->candidates, row->size, p, NULL);
}

/* Returns the surprise of a token, -log2 of its probability in the row's list of candidates, in bits; 0: it is not in
   the list. */
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
