/* test_sample.c - noise, filters and sampling keep their promises. */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "sample_oracle.h"
#include "check.h"
#include "statistics.h"
#include <time.h>

static uint64_t state = 7;

static double uniform(void)
{
    return statistics_random(&state);
}

/* Noise with the standard Gumbel distribution, for one token. */
static float gumbel(uint64_t seed, uint64_t position, uint32_t token)
{
    return specdec__sample_gumbel_of_bits(specdec__noise_bits(seed, position, token));
}

static void test_noise(void)
{
    long counts[256], pairs[256], flips = 0, total = 0, i, n = statistics_draws();
    double even[256], x;
    int axis, b;

    TEST("noise is the same number everywhere");
    CHECK_EQUAL_INT(specdec__noise_bits(0, 0, 0), 2237031616u);
    CHECK_EQUAL_INT(specdec__noise_bits(1, 2, 3), 997310745u);
    CHECK_EQUAL_INT(specdec__noise_bits(UINT64_MAX, UINT64_MAX, UINT32_MAX), 1558142428u);

    TEST("noise is uniform, and independent between neighbouring tokens, positions and seeds");
    for (b = 0; b < 256; b++)
        even[b] = 1.0 / 256;
    for (axis = 0; axis < 3; axis++) {
        memset(counts, 0, sizeof counts);
        memset(pairs, 0, sizeof pairs);
        flips = total = 0;
        for (i = 0; i < n; i++) {
            uint64_t seed = axis == 2 ? (uint64_t)i : 5, position = axis == 1 ? (uint64_t)i : 9;
            uint32_t token = axis == 0 ? (uint32_t)i : 11;
            uint32_t a = specdec__noise_bits(seed, position, token);
            uint32_t c = specdec__noise_bits(seed + (axis == 2), position + (axis == 1), token + (axis == 0));

            counts[a >> 24]++;
            pairs[(a >> 28) << 4 | c >> 28]++;
            flips += __builtin_popcount(a ^ c);
            total += 32;
        }
        CHECK(statistics_p_value(counts, even, 256) > 1e-6);
        CHECK(statistics_p_value(pairs, even, 256) > 1e-6);
        x = ((double)flips - (double)total / 2) / sqrt((double)total / 4);
        CHECK(fabs(x) < 5);
    }
}

static void test_gumbel(void)
{
    static const double edges[15] = {-2, -1.5, -1, -.5, 0, .5, 1, 1.5, 2, 2.5, 3, 4, 5, 7, 9};
    long counts[16], i, n = statistics_draws();
    double p[16], below = 0;
    uint64_t digest = 0;
    int b, at, wrong = 0, loose = 0;

    TEST("a Gumbel value is bounded, monotone in its bits up to rounding, and within float accuracy of the double "
         "value");
    CHECK(specdec__sample_gumbel_of_bits(UINT32_MAX) <= SPECDEC__NOISE_MAXIMUM);
    CHECK(specdec__sample_gumbel_of_bits(UINT32_MAX) > 22.18f);
    CHECK(specdec__sample_gumbel_of_bits(0) > -3.1001f && specdec__sample_gumbel_of_bits(0) < -3.0f);
    for (i = 0; i < 400000; i++) {
        uint32_t bits = (uint32_t)(specdec__mix_bits((uint64_t)i) >> 32),
                 fold = i & 1 ? bits >> (i >> 1 & 31) : ~(bits >> (i >> 1 & 31));
        double u = ((double)fold + 1) / 4294967297.0;
        double exact = -log(-(fold < 0x80000000u ? log(u) : log1p(-((4294967296.0 - (double)fold) / 4294967297.0))));
        double off = fabs((double)specdec__sample_gumbel_of_bits(fold) - exact);

        wrong += off > 4e-7 * (fabs(exact) > 1 ? fabs(exact) : 1);
        loose += specdec__sample_gumbel_of_bits(fold) > specdec__sample_largest_gumbel(fold);
    }
    CHECK_EQUAL_INT(wrong, 0);
    CHECK_EQUAL_INT(loose, 0);
    for (b = 0; b < 32; b++) {
        uint32_t top = b ? ~(uint32_t)0 << (32 - b) : 0, most = top | (b < 31 ? 0x7fffffffu >> b : 0);
        CHECK(specdec__sample_gumbel_of_bits(most) <= specdec__sample_largest_gumbel(most));
    }

    TEST("Gumbel noise has the same bits on every machine");
    for (i = 0; i < 100000; i++)
        digest =
            specdec__mix_bits(digest ^ specdec__bits_from_float(gumbel(1, (uint64_t)i, (uint32_t)i * 77u)));
    CHECK_EQUAL_INT(digest >> 32, 3297546629u);

    TEST("Gumbel noise has the Gumbel distribution");
    memset(counts, 0, sizeof counts);
    for (b = 0; b < 16; b++) {
        double upto = b < 15 ? exp(-exp(-edges[b])) : 1;

        p[b] = upto - below;
        below = upto;
    }
    for (i = 0; i < n; i++) {
        double g = (double)gumbel(3, (uint64_t)(i / 1000), (uint32_t)(i % 1000));

        for (at = 0; at < 15 && g > edges[at]; at++)
            continue;
        counts[at]++;
    }
    CHECK(statistics_p_value(counts, p, 16) > 1e-6);
}

/* The filter again, by sorting everything in double; keep[] becomes 1 for what stays. Returns how many. */
static int naive_filter(int *keep, double *logit, const specdec_sampling *s, const float *row, int vocab,
                        const int32_t *recent, int recent_count)
{
    static int order[512];
    int i, j, count = 0, window = s->repetition_window ? s->repetition_window : 64;
    double sum = 0, reached = 0, best;

    for (i = 0; i < vocab; i++) {
        logit[i] = isnan(row[i]) ? -INFINITY : (double)row[i];
        for (j = window < 0 || window > recent_count ? 0 : recent_count - window; j < recent_count; j++) {
            if (recent[j] == i && s->repetition_penalty > 0 && logit[i] > -INFINITY) {
                float value = (float)logit[i];
                logit[i] = (double)(value > 0 ? value / s->repetition_penalty : value * s->repetition_penalty);
                break;
            }
        }
        keep[i] = 0;
        if (logit[i] > -INFINITY)
            order[count++] = i;
    }
    for (i = 1; i < count; i++) {
        int moving = order[i];
        for (j = i; j > 0 && logit[order[j - 1]] < logit[moving]; j--)
            order[j] = order[j - 1];
        order[j] = moving;
    }
    best = logit[order[0]];
    if (s->top_k && s->top_k < count)
        count = s->top_k;
    for (i = 0; i < count; i++)
        sum += exp(logit[order[i]] - best);
    if (s->top_p > 0 && s->top_p < 1) {
        for (i = 0; i < count; i++) {
            reached += exp(logit[order[i]] - best);
            if (fabs(reached - (double)s->top_p * sum) < 1e-5 * sum)
                return -1; /* too close to call in float */
            if (reached >= (double)s->top_p * sum)
                count = i + 1;
        }
    }
    for (i = 0; i < count; i++) {
        if (s->min_p > 0 && fabs(logit[order[i]] - best - log((double)s->min_p)) < 1e-5)
            return -1;
        if (s->min_p > 0 && logit[order[i]] - best < log((double)s->min_p))
            count = i;
    }
    for (i = 0; i < count; i++)
        keep[order[i]] = 1;
    return count;
}

static void random_row(float *row, int vocab, int kind)
{
    int i;

    for (i = 0; i < vocab; i++) {
        row[i] = (float)((uniform() - .5) * (kind == 0 ? 20 : kind == 1 ? 2 : 200));
        if (kind == 3)
            row[i] = (float)(int)(uniform() * 4);
        if (kind == 4 && uniform() < .3)
            row[i] = uniform() < .5 ? NAN : -INFINITY;
    }
}

static void test_filter(void)
{
    static float row[300];
    static specdec_candidate items[300];
    static int keep[300];
    static double logit[300];
    specdec_candidates c;
    int round, i, wrong = 0, compared = 0;

    TEST("the filters keep exactly what sorting the whole row would keep");
    memset(&c, 0, sizeof c);
    c.items = items;
    for (round = 0; round < 20000; round++) {
        int vocab = 1 + (int)(uniform() * 299), expected, recent_count = (int)(uniform() * 100);
        int32_t recent[100];
        specdec_sampling s;

        memset(&s, 0, sizeof s);
        s.temperature = (float)(.1 + 2 * uniform());
        s.top_k = uniform() < .5 ? 0 : 1 + (int)(uniform() * 60);
        s.top_p = uniform() < .5 ? 0 : (float)uniform();
        s.min_p = uniform() < .5 ? 0 : (float)(uniform() * .3);
        s.repetition_penalty = uniform() < .5 ? 0 : (float)(.7 + uniform());
        s.repetition_window = uniform() < .3 ? 0 : uniform() < .5 ? -1 : 1 + (int)(uniform() * 90);
        random_row(row, vocab, round % 5);
        for (i = 0; i < recent_count; i++)
            recent[i] = (int32_t)(uniform() * (vocab + 2)) - 1;
        expected = naive_filter(keep, logit, &s, row, vocab, recent, recent_count);
        for (i = 0; i < vocab && !(row[i] > -INFINITY); i++)
            continue;
        if (expected < 0 || i == vocab)
            continue;
        compared++;
        if (specdec_sample_filter(&c, &s, row, vocab, recent, recent_count, NULL) || c.count != expected)
            wrong++;
        for (i = 0; i < c.count; i++)
            wrong += !keep[items[i].token];
    }
    CHECK_EQUAL_INT(wrong, 0);
    CHECK(compared > 15000);
}

static void test_exact_skip(void)
{
    static float row[2000];
    static specdec_candidate items[2000];
    specdec_candidates c;
    int round, i, j, wrong = 0;

    TEST("skipping hopeless tokens changes no sample: the k best are those of a full evaluation, in order");
    memset(&c, 0, sizeof c);
    c.items = items;
    for (round = 0; round < 600; round++) {
        int vocab = 1 + (int)(uniform() * 1999), k = 1 + round % 9, held;
        specdec_sampling s;
        specdec_candidate best[9];
        uint64_t position = (uint64_t)round;

        memset(&s, 0, sizeof s);
        s.temperature = (float)pow(10, -6 + 8 * uniform());
        random_row(row, vocab, round % 5);
        specdec_sample_filter(&c, &s, row, vocab, NULL, 0, NULL);
        held = specdec_sample_top(&c, 42, position, k, best);
        wrong += held != (k < c.count ? k : c.count);
        for (j = 0; j < held; j++) {
            int better = 0, exact = 0;

            for (i = 0; i < c.count; i++) {
                specdec_candidate one = items[i];

                one.logit += gumbel(42, position, (uint32_t)one.token);
                better += specdec__sample_comes_before(one, best[j]);
                exact += one.token == best[j].token && !(one.logit < best[j].logit) && !(one.logit > best[j].logit);
            }
            wrong += better != j || exact != 1;
        }
        wrong += held && specdec__sample_choose_token(&c, 42, position) != best[0].token;
    }
    CHECK_EQUAL_INT(wrong, 0);
}

static void test_distribution(void)
{
    float row[6] = {1.0f, -.5f, 2.0f, .3f, -1.0f, 1.5f}, p[6], total = 0;
    specdec_candidate items[6], best[3];
    specdec_candidates c;
    specdec_sampling s;
    long first[6], ordered[216], i, n = statistics_draws();
    double p1[6], p3[216];
    int a, b, d;

    TEST("the first of the k best is a sample from the distribution; all k are samples without replacement");
    memset(&s, 0, sizeof s);
    s.temperature = .8f;
    memset(&c, 0, sizeof c);
    c.items = items;
    CHECK_EQUAL_INT(specdec_sample_filter(&c, &s, row, 6, NULL, 0, NULL), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_sample_distribution(&c, 6, p, NULL), SPECDEC_OK);
    for (a = 0; a < 6; a++) {
        total += p[a];
        p1[a] = (double)p[a];
        CHECK(fabs((double)(p[a] / p[0]) - exp(((double)row[a] - (double)row[0]) / .8)) < 1e-4);
    }
    CHECK(fabs((double)total - 1) < 1e-6);
    for (i = 0; i < 216; i++) {
        a = (int)i / 36, b = (int)i / 6 % 6, d = (int)i % 6;
        p3[i] = a == b || b == d || a == d ? 0 : p1[a] * p1[b] / (1 - p1[a]) * p1[d] / (1 - p1[a] - p1[b]);
    }
    memset(first, 0, sizeof first);
    memset(ordered, 0, sizeof ordered);
    for (i = 0; i < n; i++) {
        specdec_sample_top(&c, 1, (uint64_t)i, 3, best);
        first[best[0].token]++;
        ordered[best[0].token * 36 + best[1].token * 6 + best[2].token]++;
    }
    CHECK(statistics_p_value(first, p1, 6) > 1e-6);
    CHECK(statistics_p_value(ordered, p3, 216) > 1e-6);
}

static void test_edges(void)
{
    float ties[5] = {1, 3, 3, 3, 2}, bad[4] = {NAN, NAN, -INFINITY, NAN}, mixed[4] = {NAN, INFINITY, 1, INFINITY}, p[5];
    static float many[1000];
    static specdec__kernels kernels;
    specdec_candidate items[5], best[8], one;
    specdec_candidates c;
    specdec_sampling s;
    specdec_error error;
    int32_t recent[2] = {1, 1};
    int i;

    memset(&s, 0, sizeof s);
    memset(&c, 0, sizeof c);
    c.items = items;
    CHECK(!specdec__kernels_init(&kernels, NULL, NULL));
    TEST("greedy takes the lowest of equal tokens, in order");
    CHECK_EQUAL_INT(specdec_sample_filter(&c, &s, ties, 5, NULL, 0, NULL), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_sample_top(&c, 0, 0, 8, best), 5);
    CHECK(best[0].token == 1 && best[1].token == 2 && best[2].token == 3 && best[3].token == 4 && best[4].token == 0);
    CHECK_EQUAL_INT(specdec__sample_best_tokens(&kernels, ties, 5, 3, best), 3);
    CHECK(best[0].token == 1 && best[1].token == 2 && best[2].token == 3);
    CHECK_EQUAL_INT(specdec_sample_distribution(&c, 5, p, NULL), SPECDEC_OK);
    CHECK(p[1] == 1 && p[0] == 0 && p[2] == 0);

    TEST("the repetition penalty counts a token once, and holds for greedy decoding too");
    s.repetition_penalty = 1.25f;
    CHECK_EQUAL_INT(specdec_sample_filter(&c, &s, ties, 5, recent, 2, NULL), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec__sample_choose_token(&c, 0, 0), 2);
    CHECK(fabs((double)items[1].logit - (3 / 1.25 - 3)) < 1e-6);

    TEST("NaN counts as -infinity, infinity as the largest number, and a row of nothing gives token 0");
    CHECK_EQUAL_INT(specdec_sample_filter(&c, &s, bad, 4, NULL, 0, NULL), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec__sample_choose_token(&c, 0, 0), 0);
    CHECK_EQUAL_INT(specdec__sample_best_tokens(&kernels, bad, 4, 1, best), 1);
    CHECK_EQUAL_INT(best[0].token, 0);
    s.temperature = 1;
    CHECK_EQUAL_INT(specdec_sample_filter(&c, &s, bad, 4, NULL, 0, NULL), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec__sample_choose_token(&c, 0, 0), 0);
    CHECK_EQUAL_INT(specdec_sample_filter(&c, &s, mixed, 4, NULL, 0, NULL), SPECDEC_OK);
    CHECK_EQUAL_INT(c.count, 3);
    i = specdec__sample_choose_token(&c, 0, 0);
    CHECK(i == 1 || i == 3);
    CHECK_EQUAL_INT(specdec__sample_best_tokens(&kernels, mixed, 4, 1, best), 1);
    CHECK_EQUAL_INT(best[0].token, 1);

    TEST("greedy finds in long rows what looking at every token finds");
    for (i = 0; i < 1000; i++)
        many[i] = (float)(i * 7919 % 601) * (i % 13 ? 1 : -1);
    for (i = 1; i <= 1000; i += 37) {
        const int k = 1 + i % 8, found = specdec__sample_best_tokens(&kernels, many, i, k, best);
        int held = 0, j, token;

        for (token = 0; token < i; token++) {
            one.token = token;
            one.logit = many[token];
            held = specdec__sample_insert_into_best(items, held, 5, one);
        }
        CHECK_EQUAL_INT(found, k < i ? k : i);
        for (j = 0; j < found && j < held; j++)
            CHECK_EQUAL_INT(best[j].token, items[j].token);
    }

    TEST("settings out of range are errors that say which");
#define REFUSED(field, value, word) \
    do { \
        specdec_sampling wrong = s; \
        wrong.field = (value); \
        error.text[0] = 0; \
        CHECK_EQUAL_INT(specdec_sample_filter(&c, &wrong, ties, 5, NULL, 0, &error), SPECDEC_ERROR_ARGUMENT); \
        CHECK(strstr(error.text, word) != NULL); \
    } while (0)
    REFUSED(temperature, -1.0f, "temperature");
    REFUSED(temperature, NAN, "temperature");
    REFUSED(top_k, -1, "top_k");
    REFUSED(top_p, 1.5f, "top_p");
    REFUSED(min_p, NAN, "min_p");
    REFUSED(repetition_penalty, -2.0f, "repetition_penalty");
    REFUSED(repetition_window, -2, "repetition_window");
    CHECK_EQUAL_INT(specdec_sample_filter(&c, &s, ties, 0, NULL, 0, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_sample_filter(&c, &s, NULL, 5, NULL, 0, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_sample_filter(&c, &s, ties, 5, NULL, 3, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_sample_filter(NULL, &s, ties, 5, NULL, 0, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_sample_distribution(&c, 2, p, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_sample_top(&c, 0, 0, 0, best), 0);
}

static void test_uniform(void)
{
    long counts[100], i, n = statistics_draws();
    double p[100];
    specdec_uniform a, b;

    TEST("uniform numbers are uniform, strictly inside (0,1), and a function of seed, position and decision");
    memset(counts, 0, sizeof counts);
    for (i = 0; i < 100; i++)
        p[i] = .01;
    for (i = 0; i < n; i++) {
        double u;

        a.seed = 8;
        a.position = (uint64_t)i / 7;
        a.decision = (uint32_t)(i % 7);
        b = a;
        u = specdec_uniform_next(&a);
        CHECK(u > 0 && u < 1 && u <= specdec_uniform_next(&b) && a.decision == b.decision);
        counts[(int)(u * 100)]++;
    }
    CHECK(statistics_p_value(counts, p, 100) > 1e-6);
}

enum { WIDE = 262144 };
static float wide_row[WIDE];
static specdec_candidate wide_items[WIDE], wide_oracle[WIDE];

/* Rows of models: most tokens far below a few; flat ones; ones of a single token; ties; ones with what is no number. */
static void wide_fill(float *row, int vocab, int kind)
{
    static const double spread[] = {1, 3, 2, 4, 6, 3, 0.1, 3};
    int i;

    for (i = 0; i < vocab; i++) {
        row[i] = (float)(spread[kind] * sqrt(-2 * log(uniform())) * cos(6.2831853 * uniform()));
        if (kind == 2)
            row[i] = (float)(int)(2 * row[i]);
        if (kind == 3 && uniform() < 3e-5)
            row[i] += 18;
        if (kind == 5 && uniform() < .1)
            row[i] = uniform() < .2 ? NAN : -INFINITY;
        if (kind == 7)
            row[i] = (float)-log(uniform()) * 8 - 100;
    }
}

static void wide_sampling(specdec_sampling *s)
{
    static const float top_p[] = {.95f, .5f, .9f, .999f, .01f, .8f};

    memset(s, 0, sizeof *s);
    s->temperature = uniform() < .3 ? 1 : (float)(.2 + 1.5 * uniform());
    s->top_k = uniform() < .6 ? 0 : 1 + (int)(pow(10, 4 * uniform()));
    s->top_p = uniform() < .4 ? 0 : top_p[(int)(uniform() * 6)];
    s->min_p = uniform() < .6 ? 0 : (float)pow(10, -4 * uniform());
    s->repetition_penalty = uniform() < .7 ? 0 : (float)(.7 + uniform());
}

static void test_bounds(void)
{
    static float p[2][WIDE];
    static specdec__kernels kernels;
    specdec_candidates list;
    specdec__chooser chooser;
    int round, i, k, wrong = 0, rounds = statistics_draws() > 100000 ? 400 : 60;

    TEST("tokens that bounds pass over change nothing: the same choices, bit for bit, and the same set as lists of all give");
    CHECK(!specdec__kernels_init(&kernels, NULL, NULL));
    memset(&chooser, 0, sizeof chooser);
    chooser.kernels = &kernels;
    chooser.items = wide_items;
    for (round = 0; round < rounds; round++) {
        const int vocab = round % 4 == 0 ? WIDE : 1 + (int)pow(10, 1 + 4 * uniform());
        int32_t recent[50];
        specdec_candidate best[2][8];
        specdec_sampling s;
        specdec__row row;
        int found, recent_count = (int)(uniform() * 50);

        wide_fill(wide_row, vocab, round / 2 % 8);
        wide_sampling(&s);
        for (i = 0; i < recent_count; i++)
            recent[i] = (int32_t)(uniform() * vocab);
        chooser.sampling = &s;
        list.items = wide_oracle;
        oracle_filter(&list, &s, wide_row, vocab, recent, recent_count);
        for (k = 1; k <= 8; k += 7) {
            specdec__row_init(&row, &chooser, wide_row, vocab, recent, recent_count);
            found = specdec_sample_top(&list, 5, (uint64_t)round, k, best[0]);
            wrong += specdec__row_best_tokens(&row, 5, (uint64_t)round, k, best[1]) != found;
            for (i = 0; i < found; i++)
                wrong += best[0][i].token != best[1][i].token ||
                         specdec__bits_from_float(best[0][i].logit) != specdec__bits_from_float(best[1][i].logit);
        }
        specdec__row_init(&row, &chooser, wide_row, vocab, recent, recent_count);
        specdec__row_write_weights(&row, p[1]);
        if (row.temperature > 0)
            continue; /* all tokens: see test_conformance */
        specdec_sample_distribution(&list, vocab, p[0], NULL);
        wrong += row.candidates.count != list.count;
        for (i = 0; i < vocab; i++)
            wrong += fabs((double)(p[0][i] - p[1][i])) > 1e-7 * (double)p[0][i];
    }
    CHECK_EQUAL_INT(wrong, 0);
}

/* One sampler each. */
static void one_sampler(int kind, specdec_sampling *s)
{
    memset(s, 0, sizeof *s);
    s->temperature = 1;
    s->seed = 9;
    s->frequency_penalty = kind == 0 ? 0.8f : 0;
    s->presence_penalty = kind == 0 ? 0.3f : 0;
    s->dry_multiplier = kind == 1 ? 1.0f : 0;
    s->top_n_sigma = kind == 2 ? 1.2f : 0;
    s->typical_p = kind == 3 ? 0.7f : 0;
    s->xtc_probability = kind == 4 ? 0.4f : 0;
    s->xtc_threshold = kind == 4 ? 0.05f : 0;
    s->temperature_range = kind == 5 ? 0.6f : 0;
    s->mirostat_tau = kind == 6 ? 1.5f : 0;
}

static void test_samplers(void)
{
    static const int32_t text[] = {1, 2, 3, 1, 2};
    float row[6] = {0, 2, 1, 3, 2.5f, -1}, p[6];
    specdec_candidate items[6];
    specdec_candidates c;
    specdec_sampling s;
    int i;

    memset(&c, 0, sizeof c);
    c.items = items;
    TEST("frequency and presence penalties are taken from logits, for greedy decoding, too");
    one_sampler(0, &s);
    s.temperature = 0;
    CHECK_EQUAL_INT(specdec_sample_filter(&c, &s, row, 6, text, 5, NULL), SPECDEC_OK);
    CHECK(fabs((double)items[3].logit - (3 - .8 - .3 - 2.5)) < 1e-5 && fabs((double)items[1].logit - (2 - 1.6 - .3 - 2.5)) < 1e-5);
    CHECK_EQUAL_INT(specdec__sample_choose_token(&c, 0, 0), 4);

    TEST("DRY takes from what would lengthen a repetition, and from nothing else");
    one_sampler(1, &s);
    CHECK_EQUAL_INT(specdec_sample_filter(&c, &s, row, 6, text, 5, NULL), SPECDEC_OK);
    for (i = 0; i < 6; i++)
        CHECK(fabs((double)items[i].logit - ((double)row[i] - (i == 3 ? 1 : 0) - 2.5)) < 1e-5);
    s.dry_allowed_length = 3;
    CHECK_EQUAL_INT(specdec_sample_filter(&c, &s, row, 6, text, 5, NULL), SPECDEC_OK);
    CHECK(items[3].logit >= 0);

    TEST("XTC keeps the least of the probable tokens, and what is below");
    one_sampler(4, &s);
    s.xtc_probability = 1;
    s.xtc_threshold = 0.15f; /* tokens 3, 4 and 1 are above that */
    CHECK_EQUAL_INT(specdec_sample_filter(&c, &s, row, 6, NULL, 0, NULL), SPECDEC_OK);
    CHECK_EQUAL_INT(c.count, 4);
    CHECK_EQUAL_INT(specdec__sample_choose_token(&c, 0, 0) == 3 || specdec__sample_choose_token(&c, 0, 0) == 4, 0);

    TEST("samplers act in the order of their list, and those that are not in it not at all");
    memset(&s, 0, sizeof s);
    s.temperature = 4;
    s.top_p = 0.6f;
    s.top_k = 1;
    s.samplers[0] = SPECDEC_SAMPLER_TOP_P;
    CHECK_EQUAL_INT(specdec_sample_filter(&c, &s, row, 6, NULL, 0, NULL), SPECDEC_OK);
    CHECK_EQUAL_INT(c.count, 2);
    CHECK_EQUAL_INT(specdec_sample_distribution(&c, 6, p, NULL), SPECDEC_OK);
    CHECK(fabs((double)(p[4] / p[3]) - exp(-.5)) < 1e-5);
    s.samplers[0] = SPECDEC_SAMPLER_TEMPERATURE;
    s.samplers[1] = SPECDEC_SAMPLER_TOP_P;
    CHECK_EQUAL_INT(specdec_sample_filter(&c, &s, row, 6, NULL, 0, NULL), SPECDEC_OK);
    CHECK_EQUAL_INT(c.count, 3);
    s.samplers[2] = SPECDEC_SAMPLER_TOP_P;
    CHECK_EQUAL_INT(specdec_sample_filter(&c, &s, row, 6, NULL, 0, NULL), SPECDEC_ERROR_ARGUMENT);
    s.samplers[2] = SPECDEC_SAMPLER_COUNT;
    CHECK_EQUAL_INT(specdec_sample_filter(&c, &s, row, 6, NULL, 0, NULL), SPECDEC_ERROR_ARGUMENT);
}

enum { SMALL = 12, DRAWS = 20000 };

/* A token by a rule from the target's row, the children being drawn from the draft's. */
static int32_t ruled(specdec_rule rule, const specdec_sampling *s, const float *target, const float *draft, const int32_t *text, int count)
{
    specdec_candidate items[2][SMALL], best[2];
    specdec_candidates c[2];
    float p[2][SMALL];
    int32_t children[2];
    specdec_uniform random;
    specdec_choice choice;
    specdec_verdict verdict;
    int i, k = 2;

    for (i = 0; i < 2; i++) {
        c[i].items = items[i];
        specdec_sample_filter(&c[i], s, i ? draft : target, SMALL, text, count, NULL);
        specdec_sample_distribution(&c[i], SMALL, p[i], NULL);
    }
    if (rule == SPECDEC_RULE_SEQUOIA)
        k = specdec_sample_top(&c[1], s->seed ^ 77, (uint64_t)count, 2, best);
    for (i = 0; i < 2 && rule != SPECDEC_RULE_SEQUOIA; i++)
        specdec_sample_top(&c[1], s->seed ^ (1000 + (uint64_t)i) << 32, (uint64_t)count, 1, &best[i]);
    for (i = 0; i < k; i++)
        children[i] = best[i].token;
    memset(&choice, 0, sizeof choice);
    random.seed = s->seed;
    random.position = (uint64_t)count;
    random.decision = 0;
    choice.target = p[0];
    choice.draft = p[1];
    choice.children = children;
    choice.child_count = k;
    choice.vocab = SMALL;
    choice.random = &random;
    verdict.token = -1;
    CHECK_EQUAL_INT(specdec_verify(rule, &choice, &verdict, NULL), SPECDEC_OK);
    return verdict.token;
}

static void test_rules(void)
{
    static int32_t text[DRAWS + 8];
    static const int rules[] = {SPECDEC_RULE_SEQUOIA, SPECDEC_RULE_SPECINFER, SPECDEC_RULE_SPECTR, SPECDEC_RULE_TOP_K};
    float target[SMALL], draft[SMALL];
    int kind, r, i, j;

    TEST("with every sampler, every rule draws from the distribution that the sampler leaves (chi-square)");
    for (i = 0; i < SMALL; i++) {
        target[i] = (float)(3 * uniform());
        draft[i] = target[i] + (float)uniform();
    }
    for (i = 0; i < DRAWS + 8; i++)
        text[i] = "\1\2\3\5\7\2\3\4"[i % 8];
    for (kind = 0; kind < 7; kind++) {
        specdec_candidate items[SMALL];
        specdec_candidates c;
        specdec_sampling s, with;
        double mix[SMALL] = {0};
        float p[SMALL];

        one_sampler(kind, &s);
        c.items = items;
        for (j = 0; j < 2; j++) { /* XTC acts, or not */
            with = s;
            with.xtc_probability = kind == 4 && j ? 1.0f : 0;
            specdec_sample_filter(&c, &with, target, SMALL, text, 8, NULL);
            specdec_sample_distribution(&c, SMALL, p, NULL);
            for (i = 0; i < SMALL; i++)
                mix[i] += (double)p[i] * (kind == 4 ? (j ? 0.4 : 0.6) : 0.5);
        }
        for (r = 0; r < 4; r++) {
            long counts[SMALL] = {0};

            for (i = 0; i < DRAWS; i++) { /* penalties and DRY read the text: another seed, not another position */
                s.seed = kind < 2 ? (uint64_t)i * 31 + 5 : 9;
                counts[ruled((specdec_rule)rules[r], &s, target, draft, text, kind < 2 ? 8 : 8 + i)]++;
            }
            CHECK(statistics_p_value(counts, mix, SMALL) > 1e-6);
        }
    }
}

/* Every instruction set by its name. */
static const char *const sets[] = {"scalar", "sse41", "avx2", "avxvnni", "avx512", "neon", "dotprod", "i8mm", "neon32", "rvv"};

/* Whether one of the tokens that a kernel passes over reaches `wanted` after all, by the noise itself. */
static int passes_over_wrongly(const specdec__kernels *kernels, int count, float inverse, float wanted, uint64_t noise, uint32_t first)
{
    int over = kernels->count_unreachable(wide_row, count, 0, inverse, wanted, noise, first), i;

    if (over < 0 || over > count || (over < count && over % 64))
        return 1;
    for (i = 0; i < over; i++)
        if (wide_row[i] * inverse +
            specdec__sample_gumbel_of_bits((uint32_t)(specdec__noise_bits_of_token(noise, first + (uint32_t)i) >> 32)) >= wanted)
            return 1;
    return 0;
}

static void test_outdone(void)
{
    static specdec__kernels kernels;
    size_t set;

    TEST("every instruction set passes over tokens only when their noise cannot lift them, and makes the same random bits");
    for (set = 0; set < sizeof sets / sizeof *sets; set++) {
        int round, wrong = 0;
        long passed = 0;

        if (specdec__kernels_init(&kernels, sets[set], NULL))
            continue;
        for (round = 0; round < 400; round++) {
            const int count = 1 + (int)(uniform() * 1500);
            const float inverse = (float)(.5 + 2 * uniform()), wanted = (float)(2 + 20 * uniform());
            const uint64_t noise = (uint64_t)(uniform() * 1e18);
            const uint32_t first = (uint32_t)(uniform() * 300000);
            int i;

            wide_fill(wide_row, count, round % 8);
            for (i = 0; i < count; i++)
                wide_row[i] -= 6;
            wrong += passes_over_wrongly(&kernels, count, inverse, wanted, noise, first);
            passed += kernels.count_unreachable(wide_row, count, 0, inverse, wanted, noise, first);
        }
        CHECK_EQUAL_INT(wrong, 0);
        CHECK(passed > 400 * 750 / 4);
    }
}

static double seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

/* Milliseconds a choice from wide_row with filters of a kind. */
static double choosing(const specdec__kernels *kernels, int kind)
{
    specdec__chooser chooser;
    specdec_sampling s;
    specdec_candidate best;
    double start = seconds();
    int i;

    memset(&s, 0, sizeof s);
    memset(&chooser, 0, sizeof chooser);
    chooser.kernels = kernels;
    chooser.items = wide_items;
    s.temperature = .8f;
    s.top_k = kind == 1 || kind == 4 ? 40 : 0;
    s.top_p = kind == 2 || kind == 4 ? .95f : 0;
    s.min_p = kind == 3 || kind == 4 ? .05f : 0;
    chooser.sampling = &s;
    for (i = 0; i < 50; i++) {
        specdec__row row;

        specdec__row_init(&row, &chooser, wide_row, WIDE, NULL, 0);
        specdec__row_best_tokens(&row, 1, (uint64_t)i, 1, &best);
    }
    return (seconds() - start) * 20;
}

/* Prints what choosing from a row of 262144 logits costs, drawn from flat rows and from rows as models have them; a
   promise only of not being absurd. */
static void test_speed(void)
{
    static const char *const names[5] = {"no filter", "top-k 40", "top-p 0.95", "min-p 0.05", "all three"};
    static specdec__kernels kernels;
    int kind, peaked;
    size_t set;

    TEST("a token of 262144 is chosen in milliseconds");
    for (set = 0; set < sizeof sets / sizeof *sets; set++) {
        if (specdec__kernels_init(&kernels, sets[set], NULL))
            continue;
        for (peaked = 0; peaked < 2; peaked++) {
            wide_fill(wide_row, WIDE, peaked ? 3 : 1);
            printf("  %s, %s row:", sets[set], peaked ? "peaked" : "flat");
            for (kind = 0; kind < 5; kind++) {
                const double took = choosing(&kernels, kind);

                printf(" %s %.3f ms%s", names[kind], took, kind < 4 ? "," : "\n");
                CHECK(took < 200);
            }
        }
    }
}

int main(void)
{
    test_noise();
    test_gumbel();
    test_filter();
    test_exact_skip();
    test_distribution();
    test_edges();
    test_uniform();
    test_samplers();
    test_rules();
    test_bounds();
    test_outdone();
    test_speed();
    return check_report("test_sample");
}
