/* test_verify.c - the acceptance rules keep the target's distribution. SPECDEC_TEST_DRAWS: draws a case (100000). */
#define SPECDEC_NO_SIMD /* no kernels are run: builds in a third of the time */
#include "../src/speculation/verify.h"
#include "../src/kernel/dispatch.h"
#include "check.h"
#include "statistics.h"

#define V       64

static const char *const rule_names[] = {"coupled", "sequoia", "specinfer", "spectr", "top-k", "greedy"};
static uint64_t state = 99;

/* ---- Distributions, and children drawn from them as each rule asks. ---- */

enum { PEAKED, FLAT, MIXED, ZEROS, KINDS };

static void random_distribution(float *p, int vocab, int kind)
{
    double weights[V], sum = 0;
    int i;

    for (i = 0; i < vocab; i++) {
        double u = statistics_random(&state);

        weights[i] = kind == PEAKED ? exp(-12 * u) : kind == FLAT ? .9 + .2 * u : -log(u);
        if (kind == ZEROS && statistics_random(&state) < .5)
            weights[i] = 0;
        sum += weights[i];
    }
    if (!(sum > 0))
        sum = weights[0] = 1;
    for (i = 0; i < vocab; i++)
        p[i] = (float)(weights[i] / sum);
}

/* The candidates whose distribution is p: logits that are its logarithms. */
static void candidates_from(specdec_candidates *c, const float *p, int vocab)
{
    int i;

    c->greedy = 0;
    for (i = c->count = 0; i < vocab; i++) {
        if (p[i] > 0) {
            c->items[c->count].token = i;
            c->items[c->count++].logit = specdec__log(p[i]);
        }
    }
}

/* k children without replacement; once the draft's support is used up, uniformly from the other tokens. */
static void draw_without(int32_t *children, int k, const float *q, int vocab, uint64_t seed, uint64_t position)
{
    specdec_candidate items[V], best[V];
    specdec_candidates c;
    int i, held, token;

    c.items = items;
    candidates_from(&c, q, vocab);
    held = specdec_sample_top(&c, seed, position, k, best);
    for (i = 0; i < held; i++)
        children[i] = best[i].token;
    if (held == k)
        return;
    for (token = c.count = 0; token < vocab; token++) {
        if (!(q[token] > 0)) {
            c.items[c.count].token = token;
            c.items[c.count++].logit = 0;
        }
    }
    specdec_sample_top(&c, seed, position, k - held, best);
    for (i = 0; i < k - held; i++)
        children[held + i] = best[i].token;
}

static void draw_with(int32_t *children, int k, const float *q, int vocab, specdec_uniform *random)
{
    specdec_choice choice;
    specdec_verdict verdict;
    int i;

    memset(&choice, 0, sizeof choice);
    choice.target = q;
    choice.vocab = vocab;
    choice.random = random;
    for (i = 0; i < k; i++) {
        specdec_verify(SPECDEC_RULE_TOP_K, &choice, &verdict, NULL);
        children[i] = verdict.token;
    }
}

static void draw_best(int32_t *children, int k, const float *q, int vocab)
{
    static specdec__kernels kernels;
    specdec_candidate best[V];
    int i;

    if (!kernels.name)
        specdec__kernels_init(&kernels, NULL, NULL);
    specdec__sample_best_tokens(&kernels, q, vocab, k, best);
    for (i = 0; i < k; i++)
        children[i] = best[i].token;
}

static void draw(specdec_rule rule, int32_t *children, int k, const float *q, int vocab, uint64_t position,
                 uint32_t node)
{
    specdec_uniform random;

    random.seed = 1234;
    random.position = position;
    random.decision = node * 64;
    if (rule == SPECDEC_RULE_SEQUOIA)
        draw_without(children, k, q, vocab, 1234, position);
    else if (rule == SPECDEC_RULE_COUPLED)
        draw_without(children, k, q, vocab, 777, position);
    else if (rule == SPECDEC_RULE_SPECINFER || rule == SPECDEC_RULE_SPECTR)
        draw_with(children, k, q, vocab, &random);
    else
        draw_best(children, k, q, vocab);
}

/* One decision; the coupled rule takes the target's own sample. Returns the verdict. */
static specdec_verdict decide(specdec_rule rule, const float *p, const float *q, int vocab, const int32_t *children,
                              int k, uint64_t position)
{
    specdec_candidate items[V];
    specdec_candidates c;
    specdec_uniform random;
    specdec_choice choice;
    specdec_verdict verdict;

    verdict.child = -9;
    verdict.token = -9;
    if (rule == SPECDEC_RULE_COUPLED) {
        c.items = items;
        candidates_from(&c, p, vocab);
        specdec_verify_match(&verdict, children, k, specdec__sample_choose_token(&c, 777, position));
        return verdict;
    }
    random.seed = 777;
    random.position = position;
    random.decision = 0;
    choice.target = p;
    choice.draft = q;
    choice.vocab = vocab;
    choice.children = children;
    choice.child_count = k;
    choice.random = &random;
    if (specdec_verify(rule, &choice, &verdict, NULL))
        verdict.token = -1;
    return verdict;
}

/* ---- One decision at a time. ---- */

static double total_variation(const float *p, const float *q, int vocab)
{
    double sum = 0;
    int i;

    for (i = 0; i < vocab; i++)
        sum += fabs((double)p[i] - (double)q[i]) / 2;
    return sum < 1 ? sum : 1;
}

static double lowest_p_value = 1;

static void check_case(specdec_rule rule, const float *p, const float *q, int vocab, int k, long n, int salt)
{
    long counts[V], i, accepted = 0, wrong = 0;
    double exact[V], value, share, sigma;

    memset(counts, 0, sizeof counts);
    for (i = 0; i < vocab; i++)
        exact[i] = (double)p[i];
    for (i = 0; i < n; i++) {
        int32_t children[V];
        uint64_t position = (uint64_t)salt << 32 | (uint64_t)i;
        specdec_verdict verdict;

        draw(rule, children, k, q, vocab, position, 0);
        verdict = decide(rule, p, q, vocab, children, k, position);
        if (verdict.token < 0 || verdict.token >= vocab || verdict.child >= k ||
            (verdict.child >= 0 && children[verdict.child] != verdict.token)) {
            wrong++;
            continue;
        }
        counts[verdict.token]++;
        accepted += verdict.child >= 0;
    }
    CHECK_EQUAL_INT(wrong, 0);
    value = statistics_p_value(counts, exact, vocab);
    lowest_p_value = value < lowest_p_value ? value : lowest_p_value;
    CHECK(value > 1e-6);
    if (value <= 1e-6)
        printf("  %s: vocabulary %d, k %d: p-value %.2e\n", rule_names[rule], vocab, k, value);
    if (k == 1 && rule != SPECDEC_RULE_COUPLED && rule <= SPECDEC_RULE_SPECTR) {
        share = 1 - total_variation(p, q, vocab);
        sigma = sqrt(share * (1 - share) / (double)n) + 1e-7;
        CHECK(fabs((double)accepted / (double)n - share) < 4.5 * sigma);
    }
}

static void test_distributions(void)
{
    static const int vocabs[4] = {4, 7, 24, 64}, widths[4] = {1, 2, 4, 6};
    static const specdec_rule rules[5] = {SPECDEC_RULE_SEQUOIA, SPECDEC_RULE_SPECINFER, SPECDEC_RULE_SPECTR,
                                          SPECDEC_RULE_TOP_K, SPECDEC_RULE_COUPLED};
    long n = statistics_draws();
    int r, round, i;

    for (r = 0; r < 5; r++) {
        lowest_p_value = 1;
        TEST("whatever the draft, the tokens have the target's distribution; one child is accepted with probability 1 "
             "- TV");
        for (round = 0; round < 16; round++) {
            int vocab = vocabs[round % 4], k = specdec__min_int(widths[(round / 4 + round) % 4], vocab);
            float p[V], q[V];

            random_distribution(p, vocab, round % KINDS);
            random_distribution(q, vocab, (round / 4 + r) % KINDS);
            if (round == 3)
                memcpy(q, p, sizeof q);
            if (round == 7 || round == 10) { /* no token in common */
                for (i = 0; i < vocab; i++) {
                    p[i] = i % 2 ? 0 : 2.0f / (float)((vocab + 1) / 2 * 2);
                    q[i] = i % 2 ? 1.0f / (float)(vocab / 2) : 0;
                }
            }
            check_case(rules[r], p, q, vocab, k, n, r * 16 + round);
        }
        printf("  %-9s 16 cases of %ld draws, lowest p-value %.4f\n", rule_names[rules[r]], n, lowest_p_value);
    }
}

static void test_acceptance(void)
{
    static const specdec_rule rules[3] = {SPECDEC_RULE_SEQUOIA, SPECDEC_RULE_SPECINFER, SPECDEC_RULE_SPECTR};
    long n = statistics_draws(), i, accepted;
    int r, round;
    double worst = 0;

    TEST("with one child, the rejection rules accept with probability 1 - TV(P,Q), within 3 sigma but for 1 case in "
         "100");
    for (round = 0; round < 8; round++) {
        float p[V], q[V];
        int vocab = 4 + 8 * round, off = 0;

        random_distribution(p, vocab, round % KINDS);
        random_distribution(q, vocab, (round + 1 + round / 4) % KINDS);
        for (r = 0; r < 3; r++) {
            double share = 1 - total_variation(p, q, vocab), sigma = sqrt(share * (1 - share) / (double)n) + 1e-7, z;

            for (i = accepted = 0; i < n; i++) {
                int32_t child;
                uint64_t position = (uint64_t)(1000 + round * 3 + r) << 32 | (uint64_t)i;

                draw(rules[r], &child, 1, q, vocab, position, 0);
                accepted += decide(rules[r], p, q, vocab, &child, 1, position).child == 0;
            }
            z = fabs((double)accepted / (double)n - share) / sigma;
            worst = z > worst ? z : worst;
            off += z > 3;
        }
        CHECK(off == 0);
    }
    printf("  24 cases, largest distance %.2f sigma\n", worst);
}

static void test_covering(void)
{
    int round, i, rejected = 0;

    TEST("when the k tokens of Q's support cover P, one of k children without replacement is always accepted");
    for (round = 0; round < 20000; round++) {
        int vocab = 4 + round % 30, k = 1 + round % specdec__min_int(vocab, 8);
        float p[V], q[V];
        int32_t children[V];

        random_distribution(p, vocab, round / 4 % KINDS);
        random_distribution(q, vocab, round % 3);
        for (i = 0; i < vocab; i++) {
            int covered = (i + round) % vocab < k;

            q[i] = covered ? q[i] + 1e-6f : 0;
            p[i] = covered ? p[i] : 0;
        }
        p[(vocab - round % vocab) % vocab] += 1e-3f;
        draw(SPECDEC_RULE_SEQUOIA, children, k, q, vocab, (uint64_t)round, 0);
        rejected += decide(SPECDEC_RULE_SEQUOIA, p, q, vocab, children, k, (uint64_t)round).child < 0;
    }
    CHECK_EQUAL_INT(rejected, 0);
}

/* ---- Traps. ---- */

static void test_traps(void)
{
    float p[4] = {1, 0, 0, 0}, q[4] = {1, 1e-30f, 0, 0}, even[4] = {.25f, .25f, .25f, .25f}, far[4] = {0, 0, 0, 1},
          near[4];
    int32_t one = 1, all[4] = {0, 1, 2, 3}, twice[3] = {0, 0, 0}, odd[2] = {3, 0};
    int i, wrong = 0;

    TEST("a residual of zero falls back to P");
    for (i = 0; i < 1000; i++) {
        specdec_verdict verdict = decide(SPECDEC_RULE_SEQUOIA, p, q, 4, &one, 1, (uint64_t)i);

        wrong += verdict.child != -1 || verdict.token != 0;
        verdict = decide(SPECDEC_RULE_SPECINFER, p, q, 4, &one, 1, (uint64_t)i);
        wrong += verdict.child != -1 || verdict.token != 0;
        verdict = decide(SPECDEC_RULE_SPECTR, p, q, 4, &one, 1, (uint64_t)i);
        wrong += verdict.child != -1 || verdict.token != 0;
    }
    CHECK_EQUAL_INT(wrong, 0);

    TEST("equal distributions, also of unequal sums, always accept the first child");
    for (i = 0; i < 4; i++)
        near[i] = .75f * even[i];
    for (i = 0; i < 4000; i++) {
        wrong += decide(SPECDEC_RULE_SEQUOIA, even, even, 4, all + i % 4, 1, (uint64_t)i).child != 0;
        wrong += decide(SPECDEC_RULE_SEQUOIA, even, near, 4, all + i % 4, 1, (uint64_t)i).child != 0;
        wrong += decide(SPECDEC_RULE_SPECINFER, near, even, 4, all + i % 4, 1, (uint64_t)i).child != 0;
        wrong += decide(SPECDEC_RULE_SPECTR, near, even, 4, all + i % 4, 1, (uint64_t)i).child != 0;
    }
    CHECK_EQUAL_INT(wrong, 0);

    TEST("children beyond the draft's support are taken as uniform draws; with all tokens as children one is accepted");
    for (i = 0; i < 2000; i++) {
        int32_t children[4];

        draw(SPECDEC_RULE_SEQUOIA, children, 4, far, 4, (uint64_t)i, 0);
        wrong += children[0] != 3 || decide(SPECDEC_RULE_SEQUOIA, even, far, 4, children, 4, (uint64_t)i).child < 0;
    }
    CHECK_EQUAL_INT(wrong, 0);

    TEST("a child drawn twice without replacement, or never by this draft, changes nothing");
    for (i = 0; i < 2000; i++) {
        specdec_verdict a = decide(SPECDEC_RULE_SEQUOIA, even, p, 4, twice, 1, (uint64_t)i);
        specdec_verdict b = decide(SPECDEC_RULE_SEQUOIA, p, far, 4, odd + 1, 1, (uint64_t)i);

        wrong += (a.child < 0) != (decide(SPECDEC_RULE_SPECINFER, even, p, 4, twice, 1, (uint64_t)i).child < 0);
        wrong += b.child != -1 || b.token != 0;
    }
    CHECK_EQUAL_INT(wrong, 0);

    TEST("greedy takes the target's best token, the lowest of equals");
    CHECK_EQUAL_INT(decide(SPECDEC_RULE_GREEDY, even, NULL, 4, odd, 2, 0).child, 1);
    CHECK_EQUAL_INT(decide(SPECDEC_RULE_GREEDY, far, NULL, 4, odd + 1, 1, 0).token, 3);
    CHECK_EQUAL_INT(decide(SPECDEC_RULE_GREEDY, far, NULL, 4, odd, 2, 0).child, 0);
}

static void test_bad_input(void)
{
    float p[3] = {.5f, .5f, 0}, nan_p[3] = {.5f, NAN, 0}, minus[3] = {1, -.1f, .1f}, zero[3] = {0, 0, 0};
    int32_t children[2] = {0, 1}, outside[2] = {0, 3};
    specdec_uniform random;
    specdec_choice good, bad;
    specdec_verdict verdict;
    specdec_error error;

    specdec_verify_match(NULL, children, 2, 1); /* does nothing */
    specdec_verify_match(&verdict, NULL, 2, 1);
    CHECK(verdict.child == -1 && verdict.token == 1);
    CHECK_EQUAL_INT(specdec_tree_depth(NULL, NULL), 0);
    CHECK(specdec_uniform_next(NULL) == 0);
    memset(&random, 0, sizeof random);
    good.target = p;
    good.draft = p;
    good.children = children;
    good.vocab = 3;
    good.child_count = 2;
    good.random = &random;
#define REFUSED(rule, change) \
    do { \
        bad = good; \
        change; \
        error.text[0] = 0; \
        CHECK_EQUAL_INT(specdec_verify(rule, &bad, &verdict, &error), SPECDEC_ERROR_ARGUMENT); \
        CHECK(error.text[0] != 0); \
    } while (0)
    TEST("what is no decision is refused");
    CHECK_EQUAL_INT(specdec_verify(SPECDEC_RULE_SEQUOIA, &good, &verdict, NULL), SPECDEC_OK);
    REFUSED(SPECDEC_RULE_SEQUOIA, bad.target = nan_p);
    REFUSED(SPECDEC_RULE_SEQUOIA, bad.target = minus);
    REFUSED(SPECDEC_RULE_SEQUOIA, bad.target = zero);
    REFUSED(SPECDEC_RULE_SEQUOIA, bad.target = NULL);
    REFUSED(SPECDEC_RULE_SPECINFER, bad.draft = nan_p);
    REFUSED(SPECDEC_RULE_SPECTR, bad.draft = zero);
    REFUSED(SPECDEC_RULE_SPECTR, bad.draft = NULL);
    REFUSED(SPECDEC_RULE_TOP_K, bad.children = outside);
    REFUSED(SPECDEC_RULE_TOP_K, bad.children = NULL);
    REFUSED(SPECDEC_RULE_TOP_K, bad.random = NULL);
    REFUSED(SPECDEC_RULE_GREEDY, bad.vocab = 0);
    REFUSED(SPECDEC_RULE_GREEDY, bad.child_count = -1);
    REFUSED(SPECDEC_RULE_COUNT, (void)0);
    REFUSED(SPECDEC_RULE_COUPLED, (void)0);
    CHECK_EQUAL_INT(specdec_verify(SPECDEC_RULE_GREEDY, NULL, &verdict, NULL), SPECDEC_ERROR_ARGUMENT);
}

/* ---- Whole trees: three tokens of a little language, many times. ---- */

#define WORDS 4

static float target_rows[1 + WORDS + WORDS * WORDS][WORDS], draft_rows[1 + WORDS + WORDS * WORDS][WORDS];

/* The row after the first count tokens of a text. */
static int row_after(const int32_t *text, int count)
{
    return count == 0 ? 0 : count == 1 ? 1 + text[0] : 1 + WORDS + text[0] * WORDS + text[1];
}

typedef struct walk_state {
    specdec_rule rule;
    const specdec_tree *tree;
    const int32_t *tokens;
    int32_t text[16]; /* committed so far */
    int count;
    uint64_t base;
} walk_state;

/* The text up to and including a node; returns its length. */
static int text_at(const walk_state *w, int node, int32_t *text)
{
    int32_t reversed[8];
    int depth = 0, count = w->count, i;

    for (; node > 0; node = w->tree->parents[node])
        reversed[depth++] = w->tokens[node];
    memcpy(text, w->text, (size_t)count * sizeof *text);
    for (i = depth; i > 0; i--)
        text[count++] = reversed[i - 1];
    return count;
}

static specdec_result verify_node(void *user_data, int node, const int32_t *children, int child_count,
                                  specdec_verdict *verdict)
{
    walk_state *w = (walk_state *)user_data;
    int32_t text[24];
    int count = text_at(w, node, text), row;

    if (count >= 3) { /* past the end of the little language: any bonus token ends the step */
        verdict->child = -1;
        verdict->token = 0;
        return SPECDEC_OK;
    }
    row = row_after(text, count);
    *verdict =
        decide(w->rule, target_rows[row], draft_rows[row], WORDS, children, child_count, w->base + (uint64_t)count);
    return verdict->token < 0 ? SPECDEC_ERROR_ARGUMENT : SPECDEC_OK;
}

/* Fills the tree's tokens from the draft, level by level. */
static void fill_tree(walk_state *w, int32_t *tokens)
{
    int node, i;

    tokens[0] = 0;
    for (node = 0; node < w->tree->n; node++) {
        int32_t text[24], children[8];
        int count = text_at(w, node, text), k = 0, at = 0;

        for (i = node + 1; i < w->tree->n; i++)
            k += w->tree->parents[i] == node;
        if (count < 3 && k)
            draw(w->rule, children, k, draft_rows[row_after(text, count)], WORDS, w->base + (uint64_t)count,
                 (uint32_t)node);
        for (i = node + 1; i < w->tree->n; i++)
            if (w->tree->parents[i] == node)
                tokens[i] = count < 3 ? children[at++] : -1;
    }
}

static void test_joint(void)
{
    static const specdec_rule rules[6] = {
        SPECDEC_RULE_SEQUOIA, SPECDEC_RULE_SPECINFER, SPECDEC_RULE_SPECTR, SPECDEC_RULE_TOP_K, SPECDEC_RULE_COUPLED,
        SPECDEC_RULE_GREEDY};
    static int32_t odd_parents[9] = {-1, 0, 0, 0, 1, 1, 2, 4, 4}, odd_ranks[9] = {0, 1, 2, 3, 1, 2, 1, 1, 2};
    int32_t parents[32], ranks[32], tokens[32], path[32], accepted[32];
    specdec_tree full = {parents, ranks, 32, 0}, odd = {odd_parents, odd_ranks, 9, 9}, chain = {parents, ranks, 32, 0};
    long n = statistics_draws(), i, counts[WORDS * WORDS * WORDS], differs, tokens_made, steps;
    double exact[WORDS * WORDS * WORDS];
    int r, t, a;

    for (a = 0; a < 1 + WORDS + WORDS * WORDS; a++) {
        random_distribution(target_rows[a], WORDS, MIXED);
        random_distribution(draft_rows[a], WORDS, a % KINDS);
    }
    for (a = 0; a < WORDS * WORDS * WORDS; a++)
        exact[a] = (double)target_rows[0][a / 16] * (double)target_rows[1 + a / 16][a / 4 % 4] *
                   (double)target_rows[1 + WORDS + a / 4][a % 4];
    TEST("three tokens generated by trees, step after step, have exactly the target's joint distribution");
    for (r = 0; r < 6; r++) {
        for (t = 0; t < 3; t++) {
            walk_state w;

            if (t == 0)
                specdec_tree_full(&full, 2, 3, NULL);
            if (t == 2)
                specdec_tree_chains(&chain, 1, 3, NULL);
            memset(counts, 0, sizeof counts);
            memset(&w, 0, sizeof w);
            w.rule = rules[r];
            w.tree = t == 0 ? &full : t == 1 ? &odd : &chain;
            w.tokens = tokens;
            for (i = differs = tokens_made = steps = 0; i < n; i++) {
                w.base = (uint64_t)(r * 3 + t) << 40 | (uint64_t)i << 4;
                for (w.count = 0; w.count < 3;) {
                    int made = 0, j;

                    fill_tree(&w, tokens);
                    if (specdec_verify_walk(path, accepted, &made, w.tree, tokens, verify_node, &w, NULL) || made < 1) {
                        differs++;
                        break;
                    }
                    for (j = 0; j + 1 < made; j++)
                        differs += tokens[path[j]] != accepted[j] || w.tree->parents[path[j]] != (j ? path[j - 1] : 0);
                    for (j = 0; j < made; j++)
                        w.text[w.count++] = accepted[j];
                    steps++;
                }
                if (rules[r] == SPECDEC_RULE_COUPLED || rules[r] == SPECDEC_RULE_GREEDY) { /* the very text of plain decoding */
                    for (a = 0; a < 3; a++)
                        differs += decide(rules[r], target_rows[row_after(w.text, a)], NULL, WORDS, NULL, 0,
                                          w.base + (uint64_t)a)
                                       .token != w.text[a];
                }
                counts[w.text[0] * 16 + w.text[1] * 4 + w.text[2]]++;
                tokens_made += 3;
            }
            CHECK_EQUAL_INT(differs, 0);
            if (rules[r] != SPECDEC_RULE_GREEDY) {
                double value = statistics_p_value(counts, exact, WORDS * WORDS * WORDS);

                CHECK(value > 1e-6);
                printf("  %-9s tree %d: p-value %.4f, %.3f tokens a step\n", rule_names[rules[r]], t, value,
                       (double)tokens_made / (double)steps);
            }
        }
    }
}

static specdec_result lie(void *user_data, int node, const int32_t *children, int child_count, specdec_verdict *verdict)
{
    (void)node;
    (void)children;
    verdict->child = child_count;
    return *(const int *)user_data ? SPECDEC_ERROR_CANCELLED : SPECDEC_OK;
}

static specdec_result accept_last(void *user_data, int node, const int32_t *children, int child_count,
                                  specdec_verdict *verdict)
{
    (void)user_data;
    (void)node;
    (void)children;
    verdict->child = child_count - 1;
    verdict->token = 500;
    return SPECDEC_OK;
}

static void test_walk(void)
{
    int32_t parents[7], ranks[7], tokens[7] = {0, 11, 12, -1, 14, 15, 16}, path[7], accepted[7];
    specdec_tree tree = {parents, ranks, 7, 0};
    int count, cancelled = 0;

    TEST("the walk follows accepted children, skips empty nodes and ends with the bonus token");
    specdec_tree_full(&tree, 2, 3, NULL);
    CHECK_EQUAL_INT(specdec_verify_walk(path, accepted, &count, &tree, tokens, accept_last, NULL, NULL), SPECDEC_OK);
    CHECK(count == 3 && path[0] == 2 && path[1] == 6 && accepted[0] == 12 && accepted[1] == 16 && accepted[2] == 500);
    tokens[2] = -1;
    CHECK_EQUAL_INT(specdec_verify_walk(path, accepted, &count, &tree, tokens, accept_last, NULL, NULL), SPECDEC_OK);
    CHECK(count == 3 && path[0] == 1 && path[1] == 4 && accepted[1] == 14);
    TEST("a rule that fails or lies ends the walk with an error; broken trees are refused");
    CHECK_EQUAL_INT(specdec_verify_walk(path, accepted, &count, &tree, tokens, lie, &cancelled, NULL),
                    SPECDEC_ERROR_ARGUMENT);
    cancelled = 1;
    CHECK_EQUAL_INT(specdec_verify_walk(path, accepted, &count, &tree, tokens, lie, &cancelled, NULL),
                    SPECDEC_ERROR_CANCELLED);
    CHECK_EQUAL_INT(specdec_verify_walk(path, accepted, &count, &tree, NULL, lie, &cancelled, NULL),
                    SPECDEC_ERROR_ARGUMENT);
    parents[3] = 5;
    CHECK_EQUAL_INT(specdec_verify_walk(path, accepted, &count, &tree, tokens, lie, &cancelled, NULL),
                    SPECDEC_ERROR_ARGUMENT);
}

int main(void)
{
    test_distributions();
    test_acceptance();
    test_covering();
    test_traps();
    test_bad_input();
    test_walk();
    test_joint();
    return check_report("test_verify");
}
