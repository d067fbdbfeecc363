/* =====================================================================================================================
 * >>speculation/sample: candidates and their order; candidates become tokens or a distribution by noise that is a
 *     function of (seed, position, token).
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/op.h"
#include "../kernel/kernel.h"

#define SPECDEC__SAMPLE_LARGEST_FLOAT 3.40282347e38f /* the largest float */

/* Members of specdec_sampling that files and messages of a cluster hold as words of 32 bits: X(member, words). */
#define SPECDEC__SAMPLE_MEMBERS(X) \
    X(frequency_penalty, 1) X(presence_penalty, 1) X(dry_multiplier, 1) X(dry_base, 1) X(dry_allowed_length, 1) \
    X(dry_window, 1) X(dry_breakers, 4) X(top_n_sigma, 1) X(typical_p, 1) X(xtc_probability, 1) X(xtc_threshold, 1) \
    X(temperature_range, 1) X(temperature_exponent, 1) X(mirostat_tau, 1) X(mirostat_rate, 1) X(samplers, 4)
#define SPECDEC__SAMPLE_MEMBER(member, words) +words
enum { SPECDEC__SAMPLE_WORDS = SPECDEC__SAMPLE_MEMBERS(SPECDEC__SAMPLE_MEMBER) };
#undef SPECDEC__SAMPLE_MEMBER

SPECDEC__FOR_SIZE

/* Copies the listed members of *s to word[SPECDEC__SAMPLE_WORDS], or, loads 1, from there to *s. Strings become
   little-endian words, so that their bytes are the same on all machines. */
static SPECDEC__UNUSED void specdec__sample_copy_settings_as_words(specdec_sampling *s, uint32_t *word, int loads)
{
    static const struct {
        size_t at;
        int words;
    } members[] = {
#define SPECDEC__SAMPLE_MEMBER(member, words) {offsetof(specdec_sampling, member), words},
        SPECDEC__SAMPLE_MEMBERS(SPECDEC__SAMPLE_MEMBER)
#undef SPECDEC__SAMPLE_MEMBER
    };
    size_t i;
    int k;

    for (i = 0; i < SPECDEC__COUNT(members); i++)
        for (k = 0; k < members[i].words; k++, word++) {
            unsigned char *at = (unsigned char *)s + members[i].at + 4 * k;

            if (members[i].words > 1 && loads)
                specdec__store_u32(at, *word);
            else if (members[i].words > 1)
                *word = specdec__load_u32(at);
            else
                memcpy(loads ? (void *)at : (void *)word, loads ? (void *)word : (void *)at, 4);
        }
}

SPECDEC__FOR_SPEED

/* Returns the part of the noise that depends on seed and position only: it is the same for all tokens of a row of
   logits. */
SPECDEC__INLINE uint64_t specdec__sample_noise_of_position(uint64_t seed, uint64_t position)
{
    uint64_t key = specdec__mix_bits(seed + 0x9e3779b97f4a7c15u);

    return specdec__mix_bits(key ^ specdec__mix_bits(position * 0xd1342543de82ef95u + 0x632be59bd9b4e019u));
}

/* Returns 32 random bits, a function of (seed, position, token) that is the same on all machines. Token ids are below
   2^31; uniform random numbers use the ids above. */
static SPECDEC__UNUSED uint32_t specdec__noise_bits(uint64_t seed, uint64_t position, uint32_t token)
{
    return (uint32_t)(specdec__noise_bits_of_token(specdec__sample_noise_of_position(seed, position), token) >> 32);
}

/* Turns 32 random bits into Gumbel noise: -log(-log(u)) with u = (bits + 1) / (2^32 + 1), in [-3.1,
   SPECDEC__NOISE_MAXIMUM]. Near u = 1 it is computed from 1 - u. */
static float specdec__sample_gumbel_of_bits(uint32_t bits)
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
    row = specdec__sample_noise_of_position(source->seed, source->position);
    bits = specdec__noise_bits_of_token(row, 0x80000000u | source->decision++);
    return ((double)(bits >> 12) + 0.5) * (1.0 / 4503599627370496.0); /* 2^52 */
}

/* Returns whether candidate a comes before b: the higher logit comes first, of equal logits the lower token. */
SPECDEC__INLINE int specdec__sample_comes_before(specdec_candidate a, specdec_candidate b)
{
    return a.logit > b.logit || (!(a.logit < b.logit) && a.token < b.token);
}

/* Returns whether candidate a comes before b: as specdec__sample_comes_before, or, with a center, the logit nearer to
   it comes first. */
SPECDEC__INLINE int specdec__sample_comes_before_by_center(const float *center, specdec_candidate a,
                                                           specdec_candidate b)
{
    float from_a, from_b;

    if (!center)
        return specdec__sample_comes_before(a, b);
    from_a = a.logit > *center ? a.logit - *center : *center - a.logit;
    from_b = b.logit > *center ? b.logit - *center : *center - b.logit;
    return from_a < from_b || (!(from_a > from_b) && specdec__sample_comes_before(a, b));
}

SPECDEC__HEAP(specdec__sample_sink, specdec_candidate, float, specdec__sample_comes_before_by_center)

/* Moves the first k of items (count), in the order of specdec__sample_comes_before_by_center, to the front, sorted;
   0 < k <= count. O(count) for small k. */
static void specdec__sample_move_first_to_front(const float *center, specdec_candidate *items, int count, int k)
{
    specdec_candidate moving;
    int i;

    for (i = k / 2 - 1; i >= 0; i--)
        specdec__sample_sink(items, center, k, i);
    for (i = k; i < count; i++) {
        if (specdec__sample_comes_before_by_center(center, items[i], items[0])) {
            moving = items[i];
            items[i] = items[0];
            items[0] = moving;
            specdec__sample_sink(items, center, k, 0);
        }
    }
    for (i = k - 1; i > 0; i--) {
        moving = items[i];
        items[i] = items[0];
        items[0] = moving;
        specdec__sample_sink(items, center, i, 0);
    }
}

/* Returns a logit that can be compared: NaN becomes -infinity, +infinity the largest float. */
SPECDEC__INLINE float specdec__sample_comparable_logit(float logit)
{
    if (!(logit >= -SPECDEC__SAMPLE_LARGEST_FLOAT))
        return specdec__float_from_bits(0xff800000u);
    return logit > SPECDEC__SAMPLE_LARGEST_FLOAT ? SPECDEC__SAMPLE_LARGEST_FLOAT : logit;
}

/* Inserts a candidate into the sorted list best[held], of which the k best candidates are kept. Returns the new number
   of candidates. */
static int specdec__sample_insert_into_best(specdec_candidate *best, int held, int k, specdec_candidate candidate)
{
    int at = held < k ? held : k - 1;

    if (held == k && !specdec__sample_comes_before(candidate, best[k - 1]))
        return held;
    for (; at > 0 && specdec__sample_comes_before(candidate, best[at - 1]); at--)
        best[at] = best[at - 1];
    best[at] = candidate;
    return held < k ? held + 1 : held;
}

/* Returns the largest Gumbel noise that 32 random bits which begin with these bits can give: ln 2 (rounded up to
   710/1024, so that the product is exact) for each leading 1 bit, and once more. */
SPECDEC__INLINE float specdec__sample_largest_gumbel(uint32_t bits)
{
    return (float)((__builtin_clz(~bits | 1u) + 1) * 710) * 0.0009765625f;
}

/* Adds Gumbel noise to a candidate's logit and puts the candidate into best[held], the list of the k best. row: the
   position's row of noise. A candidate is passed over only where no noise, or none that its leading random bits allow,
   could lift it to the k best: so the result is exact. Returns the new number of candidates in the list. */
static int specdec__sample_insert_with_noise(specdec_candidate *best, int held, int k, specdec_candidate candidate,
                                             uint64_t row)
{
    float worst = held == k ? best[k - 1].logit : specdec__float_from_bits(0xff800000u);
    uint32_t bits;

    if (candidate.logit + SPECDEC__NOISE_MAXIMUM < worst)
        return held;
    bits = (uint32_t)(specdec__noise_bits_of_token(row, (uint32_t)candidate.token) >> 32);
    if (candidate.logit + specdec__sample_largest_gumbel(bits) < worst)
        return held;
    candidate.logit = candidate.logit + specdec__sample_gumbel_of_bits(bits);
    return specdec__sample_insert_into_best(best, held, k, candidate);
}

int specdec_sample_top(const specdec_candidates *candidates, uint64_t seed, uint64_t position, int k,
                       specdec_candidate *best)
{
    uint64_t row = specdec__sample_noise_of_position(seed, position);
    int i, held = 0;

    if (!candidates || !candidates->items || !best || k < 1)
        return 0;
    for (i = 0; i < candidates->count && !candidates->greedy; i++)
        held = specdec__sample_insert_with_noise(best, held, k, candidates->items[i], row);
    for (i = 0; i < candidates->count && candidates->greedy; i++)
        if (held < k || candidates->items[i].logit >= best[k - 1].logit)
            held = specdec__sample_insert_into_best(best, held, k, candidates->items[i]);
    return held;
}

/* Returns the token that the noise of (seed, position) chooses among candidates; the best candidate if they are
   greedy. */
static SPECDEC__UNUSED int32_t specdec__sample_choose_token(const specdec_candidates *candidates, uint64_t seed,
                                                            uint64_t position)
{
    specdec_candidate best;

    best.token = 0;
    specdec_sample_top(candidates, seed, position, 1, &best);
    return best.token;
}

/* Writes the k best tokens of a row of logits (vocab) to `best`, best first, without memory for a list: as samplers at
   temperature 0 without penalties, but logits are not shifted. Blocks of tokens that cannot be among the best are
   skipped. Returns how many it writes. */
static SPECDEC__UNUSED int specdec__sample_best_tokens(const specdec__kernels *kernels, const float *logits, int vocab,
                                                       int k, specdec_candidate *best)
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
            candidate.logit = specdec__sample_comparable_logit(logits[i]);
            held = specdec__sample_insert_into_best(best, held, k, candidate);
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
        p[specdec__sample_choose_token(candidates, 0, 0)] = 1.0f;
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
