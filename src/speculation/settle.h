/* =====================================================================================================================
 * >>speculation/settle: a row of upper bounds of logits (>>forward/screen) becomes a row of logits: those of the
 *     tokens that a sampler can choose are computed.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/pool.h"
#include "../kernel/kernel.h"
#include "../model/model.h"
#include "../forward/context.h"
#include "../forward/screen.h"
#include "../forward/step.h"
#include "sample.h"
#include "samplers.h"

SPECDEC__FOR_SIZE

#define SPECDEC__SETTLE_LEADERS 16 /* tokens with the highest upper bounds, whose logits are computed first */
#define SPECDEC__SETTLE_PAUSE_STEPS 128  /* steps without bounds after one whose bounds did not help, at most */
#define SPECDEC__SETTLE_MOST_TOP_K 128    /* the largest top_k: above it all logits are computed */
#define SPECDEC__SETTLE_SKIPPED_GROUPS 16 /* groups of tokens that are passed over together */
#define SPECDEC__SETTLE_MOST_SHARE 8 /* if more than one token in so many can be chosen, all logits are computed */

/* A list of tokens whose logits are always computed, as the sampler alters them. */
typedef struct specdec__settle_list {
    const void *tokens; /* address of the first token, an int32_t */
    size_t stride_bytes;       /* bytes from one token to the next */
    int count;          /* number of tokens */
} specdec__settle_list;

/* Token i of a list. */
static int32_t specdec__settle_token_of_list(const specdec__settle_list *list, int i)
{
    int32_t token;

    memcpy(&token, (const unsigned char *)list->tokens + (size_t)i * list->stride_bytes, sizeof token);
    return token;
}

/* A row of upper bounds of logits that is turned into logits. */
typedef struct specdec__settling {
    specdec__context *context; /* the context of the target, whose last step made the row */
    float *row;               /* (vocab): an upper bound of each token's logit; -infinity once the token is found */
    const float *largest;     /* (groups): a limit of the largest bound in each group of 64 tokens */
    const uint32_t *allowed;  /* a bit for each token that may be found; NULL: all may */
    int vocab, groups;        /* tokens of the row, and groups of 64 tokens */
    int column;               /* index of the row in the step */
    specdec_candidate *found; /* (vocab): tokens that may be chosen, with their logits once these are computed */
    int count, most;          /* found tokens; most of them for which computing theirs is faster than all logits */
} specdec__settling;

/* Which logits of a row a chain of samplers needs. */
typedef struct specdec__settle_need {
    int k;             /* how many of the largest logits are needed; 0: all logits are */
    int by_noise;      /* 1: also the logits that noise, at this temperature, can lift above the largest one; 0: not */
    int altered;       /* number of newest tokens of the sequence whose logits the sampler may alter */
    float temperature; /* temperature by which logits are divided before noise is added */
    float factor, reach; /* the sampler makes a logit x at most factor * x + reach */
    const uint32_t *allowed; /* a bit for each allowed token; NULL: all are */
} specdec__settle_need;

/* What the settings of a sequence of `count` tokens need of a row of logits. Possible chains: penalties and DRY, which
   alter tokens of the sequence only, may come first; then top-k, unless the best token is wanted; or nothing but the
   temperature. */
static specdec__settle_need specdec__settle_needed_logits(const specdec_sampling *s, int count)
{
    const float penalty = s->repetition_penalty > 0 ? s->repetition_penalty : 1;
    specdec__settle_need need = {0, 0, 0, 1, 0, penalty < 1 ? 1 / penalty : penalty, NULL};
    unsigned char chain[SPECDEC__SAMPLER_CHAIN_LENGTH];
    const int length = specdec__sampler_write_chain(s, chain), greedy = !(s->temperature > 0);
    int at = 0, window, i;

    for (; at < length && specdec__samplers[chain[at]].alter_row; at++) {
        window = chain[at] == SPECDEC_SAMPLER_PENALTIES && s->repetition_window >= 0
                     ? s->repetition_window ? s->repetition_window : SPECDEC__SAMPLE_PENALTY_WINDOW
                     : count;
        need.altered = specdec__max_int(need.altered, specdec__min_int(window, count));
    }
    need.reach = (s->frequency_penalty < 0 ? -s->frequency_penalty : s->frequency_penalty) * (float)need.altered +
                 (s->presence_penalty < 0 ? -s->presence_penalty : s->presence_penalty);
    for (i = 0; i < s->bias_count; i++)
        need.reach += s->biases[i].bias < 0 ? -s->biases[i].bias : s->biases[i].bias;
    for (i = at; i < length; i++)
        if (specdec__samplers[chain[i]].alter_row)
            return need;
    if (greedy)
        need.k = 1;
    else if (at < length && chain[at] == SPECDEC_SAMPLER_TOP_K)
        need.k = s->top_k <= SPECDEC__SETTLE_MOST_TOP_K ? s->top_k + 1 : 0; /* one more, so that some are cut off */
    else if (s->temperature > 1e-6f && !s->bias_count && !at &&
             (!length || (length == 1 && chain[0] == SPECDEC_SAMPLER_TEMPERATURE && !(s->temperature_range > 0))))
        need.k = need.by_noise = 1;
    need.temperature = length && need.by_noise ? s->temperature : 1;
    return need;
}

/* Computes the logits of the found tokens from index `from` on; their bounds become -infinity. */
static void specdec__settle_compute_found_logits(specdec__settling *w, int from)
{
    int i;

    for (i = from; i < w->count; i++)
        w->row[w->found[i].token] = specdec__float_from_bits(0xff800000u);
    specdec__screen_read_rows(w->context, w->column, w->found + from, w->count - from);
}

/* Whether a token may be found: it is allowed, and was not found before. */
SPECDEC__INLINE int specdec__settle_token_may_be_found(const specdec__settling *w, int32_t token)
{
    return w->row[token] >= -SPECDEC__SAMPLE_LARGEST_FLOAT &&
           (!w->allowed || (w->allowed[token / 32] >> token % 32 & 1));
}

/* Returns the first group from `group` on that may hold a bound of at least `least`; w->groups if there is none. */
static int specdec__settle_next_group_with_bound(const specdec__settling *w, int group, float least)
{
    const int together = SPECDEC__SETTLE_SKIPPED_GROUPS;

    while (group < w->groups)
        if (group % together == 0 && group + together <= w->groups &&
            !(w->context->kernels->largest(w->largest + group, together) >= least))
            group += together;
        else if (w->largest[group] >= least)
            break;
        else
            group++;
    return group;
}

/* Returns the token behind the last one of a group. */
SPECDEC__INLINE int specdec__settle_end_token_of_group(const specdec__settling *w, int group)
{
    return specdec__min_int((group + 1) * SPECDEC__SCREEN_GROUP, w->vocab);
}

/* Finds the `leaders` allowed tokens with the highest bounds of their logits, best first: found[count]. Returns whether
   there is any. */
static int specdec__settle_find_highest_bounds(specdec__settling *w, int leaders)
{
    float least = -SPECDEC__SAMPLE_LARGEST_FLOAT;
    specdec_candidate candidate;
    int group = 0, end;

    for (; (group = specdec__settle_next_group_with_bound(w, group, least)) < w->groups; group++) {
        end = specdec__settle_end_token_of_group(w, group);
        for (candidate.token = group * SPECDEC__SCREEN_GROUP; candidate.token < end; candidate.token++) {
            candidate.logit = w->row[candidate.token];
            if (!(candidate.logit >= least) || !specdec__settle_token_may_be_found(w, candidate.token))
                continue;
            w->count = specdec__sample_insert_into_best(w->found, w->count, leaders, candidate);
            if (w->count == leaders)
                least = w->found[leaders - 1].logit;
        }
    }
    return w->count > 0;
}

/* The lowest bound of a token that may be chosen: the logit of a token with a lower bound is below the k-th largest of
   the found logits (without those of lists), also after the largest logit, at most `highest`, was subtracted from both
   and the results rounded. Below all bounds if fewer than k logits were found. */
static float specdec__settle_lowest_useful_bound(const specdec__settling *w, const specdec__settle_need *need,
                                                 float highest, const specdec__settle_list *lists, int list_count)
{
    specdec_candidate best[SPECDEC__SETTLE_MOST_TOP_K + 1];
    float largest = highest < 0 ? -highest : highest, own;
    const int k = need->k;
    int i, j, l, held = 0;

    for (i = 0; i < w->count; i++) {
        int altered = 0;

        for (l = 0; l < list_count; l++)
            for (j = 0; j < lists[l].count; j++)
                altered |= specdec__settle_token_of_list(&lists[l], j) == w->found[i].token;
        own = w->found[i].logit < 0 ? -w->found[i].logit : w->found[i].logit;
        largest = own > largest ? own : largest;
        if (!altered)
            held = specdec__sample_insert_into_best(best, held, k, w->found[i]);
    }
    if (held < k)
        return -SPECDEC__SAMPLE_LARGEST_FLOAT;
    return best[k - 1].logit - (largest * need->factor + need->reach) * 4.8e-7f;
}

/* Adds the tokens of lists[list_count] to the found ones. Returns 0 if there are too many; else 1. */
static int specdec__settle_find_listed_tokens(specdec__settling *w, const specdec__settle_list *lists, int list_count)
{
    int l, i;

    for (l = 0; l < list_count; l++)
        for (i = 0; i < lists[l].count; i++) {
            const int32_t token = specdec__settle_token_of_list(&lists[l], i);

            if (token < 0 || token >= w->vocab || !specdec__settle_token_may_be_found(w, token))
                continue;
            if (w->count == w->most)
                return 0;
            w->found[w->count++].token = token;
            w->row[token] = specdec__float_from_bits(0xff800000u);
        }
    return 1;
}

/* Adds all allowed tokens whose bounds are at least `least` to the found ones. Returns 0 if there are too many; else
   1. */
static int specdec__settle_find_tokens_above(specdec__settling *w, float least)
{
    int group = 0, i, end;

    for (; (group = specdec__settle_next_group_with_bound(w, group, least)) < w->groups; group++) {
        end = specdec__settle_end_token_of_group(w, group);
        for (i = group * SPECDEC__SCREEN_GROUP; i < end; i++)
            if (w->row[i] >= least && specdec__settle_token_may_be_found(w, i)) {
                if (w->count == w->most)
                    return 0;
                w->found[w->count++].token = i;
            }
    }
    return 1;
}

/* Adds all tokens that noise could lift to the best one to the found ones; the largest logit is found already. heat:
   the temperature; noise: the position's row of noise. Rounds like specdec__row_best_tokens, each step of which keeps
   the order. Returns 0 if there are too many; else 1. */
static int specdec__settle_find_tokens_by_noise(specdec__settling *w, float heat, uint64_t noise)
{
    specdec_candidate best, candidate;
    float highest = w->found[0].logit;
    int i, end, held = 0;

    for (i = 1; i < w->count; i++)
        highest = w->found[i].logit > highest ? w->found[i].logit : highest;
    for (i = 0; i < w->count; i++) {
        candidate = w->found[i];
        candidate.logit = candidate.logit - highest;
        candidate.logit = candidate.logit / heat;
        held = specdec__sample_insert_with_noise(&best, held, 1, candidate, noise);
    }
    for (i = 0; i < w->vocab; i = end) {
        i += w->context->kernels->count_unreachable(w->row + i, w->vocab - i, highest, 1.0f / heat, best.logit, noise,
                                                    (uint32_t)i);
        end = specdec__min_int(i + 64, w->vocab);
        for (; i < end; i++) {
            specdec_candidate lifted = best;

            candidate.token = i;
            candidate.logit = w->row[i] - highest;
            candidate.logit = candidate.logit / heat;
            lifted.token = w->vocab; /* so that a token with as much noise as the best one takes its place, too */
            if (!(w->row[i] >= -SPECDEC__SAMPLE_LARGEST_FLOAT) ||
                !specdec__sample_insert_with_noise(&lifted, 1, 1, candidate, noise) || lifted.token != i)
                continue;
            if (w->count == w->most)
                return 0;
            w->found[w->count++].token = i;
        }
    }
    return 1;
}

/* Finds the tokens among which the sampler chooses, and computes their logits. Returns 0 if all logits of the row are
   needed; else 1. */
static int specdec__settle_find_tokens(specdec__settling *w, const specdec__settle_need *need, uint64_t noise,
                                       const specdec__settle_list *lists, int list_count)
{
    const int leaders = specdec__round_up(2 * need->k, SPECDEC__SETTLE_LEADERS);
    float least;
    int known;

    if (!need->k || w->most < leaders || !specdec__settle_find_highest_bounds(w, leaders))
        return 0;
    least = w->found[0].logit;
    specdec__settle_compute_found_logits(w, 0);
    least = specdec__settle_lowest_useful_bound(w, need, least, lists, list_count);
    known = w->count;
    if (!specdec__settle_find_listed_tokens(w, lists, list_count) || !specdec__settle_find_tokens_above(w, least))
        return 0;
    specdec__settle_compute_found_logits(w, known);
    known = w->count;
    if (!need->by_noise)
        return 1;
    if (!specdec__settle_find_tokens_by_noise(w, need->temperature, noise))
        return 0;
    specdec__settle_compute_found_logits(w, known);
    return 1;
}

/* Computes all logits of the last step. */
static void specdec__settle_compute_all_logits(specdec__context *c)
{
    c->screen.needed = SPECDEC__SCREEN_LOGITS;
    c->screen.rows_whole++;
    c->screen.saved -= specdec__screen_plane_bytes(c, SPECDEC__PLANE_UPPER + SPECDEC__PLANE_LOWER);
    specdec__pool_run(c->pool, c->threads, specdec__forward_compute_logits, c);
}

/* Turns row `column` of the last step, which holds upper bounds of logits, into a row of logits from which a sampler
   chooses as from all logits: tokens that it cannot choose get -infinity. noise: the position's row of noise; found
   (vocab): scratch; lists: tokens that the sampler alters. Computes all logits of the step if that is faster. */
static SPECDEC__UNUSED void specdec__settle_compute_needed_logits(specdec__context *c, int column,
                                                                  const specdec__settle_need *need,
                                                                  uint64_t noise, const specdec__settle_list *lists,
                                                                  int list_count, specdec_candidate *found)
{
    specdec__settling w;
    int i;

    w.context = c;
    w.vocab = c->output->rows;
    w.row = c->logits + (size_t)column * (size_t)w.vocab;
    w.column = column;
    w.groups = specdec__screen_count_groups(c->output);
    w.largest = c->screen.largest + (size_t)column * (size_t)w.groups;
    w.allowed = need->allowed;
    w.found = found;
    w.count = 0;
    w.most = w.vocab / SPECDEC__SETTLE_MOST_SHARE;
    c->screen.rows++;
    if (!c->screen.too_large && specdec__settle_find_tokens(&w, need, noise, lists, list_count)) {
        for (i = 0; i < w.vocab; i++)
            w.row[i] = specdec__float_from_bits(0xff800000u);
        for (i = 0; i < w.count; i++)
            w.row[found[i].token] = found[i].logit;
        c->screen.pause_steps -= c->screen.pause_steps > 0;
        return;
    }
    c->screen.pause_left = c->screen.pause_steps = specdec__min_int(2 * c->screen.pause_steps + 8,
                                                                    SPECDEC__SETTLE_PAUSE_STEPS);
    specdec__settle_compute_all_logits(c);
}

SPECDEC__FOR_SPEED
