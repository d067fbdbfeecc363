/* =====================================================================================================================
 * >>speculation/verify: the acceptance rules, one small function each, and the walk down a token tree.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../kernel/scalar.h"
#include "sample.h"
#include "tree.h"

SPECDEC__FOR_SIZE
/* Writes a verdict on a node's children: child: index of the accepted child, -1: none is accepted; token: the next
   token. */
static void specdec__verify_set_verdict(specdec_verdict *verdict, int child, int32_t token)
{
    verdict->child = child;
    verdict->token = token;
}

void specdec_verify_match(specdec_verdict *verdict, const int32_t *children, int child_count, int32_t token)
{
    int i;

    if (!verdict)
        return;
    specdec__verify_set_verdict(verdict, -1, token);
    for (i = 0; children && i < child_count && verdict->child < 0; i++)
        if (children[i] == token)
            verdict->child = i;
}

#if SPECDEC__HAS_DISTRIBUTION_VERIFIERS
/* What is left of the target's distribution P and the draft's distribution Q after some children were rejected. Neither
   is ever overwritten: the residual of token x is max(P[x] - draft_share * Q[x] - uniform_share, 0), since max(max(a -
   b, 0) - c, 0) = max(a - b - c, 0) for b, c >= 0. */
typedef struct specdec__verify_state {
    specdec__add_residuals_function *residuals;  /* adds up residuals; of the instruction set in use */
    const specdec_choice *choice;  /* P, Q, the node's children and the random numbers */
    float share_high, share_low; /* draft_share as a sum of two numbers, so that products with a float are exact in
                                    double */
    double draft_share; /* factor with which Q has been subtracted from P so far */
    double uniform_share; /* what rejected uniform draws have subtracted from each token's probability */
    double target_total; /* sum of the residuals of all tokens */
    double draft_total;  /* sum of the draft's weights of the tokens that are left */
    int excluded;        /* children before this one are used up, where the draft draws without replacement */
    int uniform_from;    /* children from this one on are uniform draws, as Q is used up; INT32_MAX: none is */
} specdec__verify_state;

/* Returns the residual of one token, which is not normalised. */
SPECDEC__INLINE double specdec__verify_residual_of_token(const specdec__verify_state *state, int token)
{
    double q = state->choice->draft ? (double)state->choice->draft[token] : 0.0;
    double rest = (double)state->choice->target[token] - (double)state->share_high * q;

    rest = rest - (double)state->share_low * q;
    rest = rest - state->uniform_share;
    return rest > 0.0 ? rest : 0.0;
}

/* Returns whether rejecting child i uses up its token, that is whether the draft could have drawn it. */
SPECDEC__INLINE int specdec__verify_rejection_uses_up_token(const specdec__verify_state *state, int i)
{
    return i >= state->uniform_from || state->choice->draft[state->choice->children[i]] > 0.0f;
}

/* Returns the smallest used-up token that is not below `from`; the size of the vocabulary if there is none. */
static int specdec__verify_next_used_up_token(const specdec__verify_state *state, int from)
{
    int i, next = state->choice->vocab;

    for (i = 0; i < state->excluded; i++) {
        int token = state->choice->children[i];

        if (token >= from && token < next && specdec__verify_rejection_uses_up_token(state, i))
            next = token;
    }
    return next;
}

#define SPECDEC__VERIFY_PARTIAL_SUMS 16 /* partial sums over the vocabulary: token t belongs to sum t % 16 */
#define SPECDEC__VERIFY_SUMMED_TOKENS 512  /* tokens whose residuals are added before their sum is compared */

/* Adds the residuals and the draft's weights of tokens [from, to) to their partial sums. Without a draft its share is 0
   and the target's probabilities stand in for the draft's; the weights are not used then. */
static void specdec__verify_add_partial_sums(const specdec__verify_state *state, int from, int to, double *residuals,
                                             double *weights)
{
    const float *target = state->choice->target, *draft = state->choice->draft ? state->choice->draft : target;

    for (; from < to && (from % SPECDEC__VERIFY_PARTIAL_SUMS || to - from < SPECDEC__VERIFY_PARTIAL_SUMS); from++) {
        residuals[from % SPECDEC__VERIFY_PARTIAL_SUMS] += specdec__verify_residual_of_token(state, from);
        weights[from % SPECDEC__VERIFY_PARTIAL_SUMS] += (double)draft[from];
    }
    if (from < to)
        state->residuals(target + from, draft + from, to - from, (double)state->share_high, (double)state->share_low,
                         state->uniform_share, residuals, weights);
}

/* Returns the sum of the partial sums, added in order. */
static double specdec__verify_total_partial_sums(const double *lanes)
{
    double total = 0.0;
    int i;

    for (i = 0; i < SPECDEC__VERIFY_PARTIAL_SUMS; i++)
        total += lanes[i];
    return total;
}

/* Computes target_total and draft_total: the sums of the residuals and of the draft's weights of all tokens that are
   left. */
static void specdec__verify_sum_residuals(specdec__verify_state *state)
{
    double residuals[SPECDEC__VERIFY_PARTIAL_SUMS] = {0}, weights[SPECDEC__VERIFY_PARTIAL_SUMS] = {0};
    int from, end, left = 0;

    for (from = 0; from < state->choice->vocab; from = end + 1) {
        end = specdec__verify_next_used_up_token(state, from);
        left += end - from;
        specdec__verify_add_partial_sums(state, from, end, residuals, weights);
    }
    state->target_total = specdec__verify_total_partial_sums(residuals);
    state->draft_total = state->uniform_from < INT32_MAX ? (double)left : specdec__verify_total_partial_sums(weights);
}

/* Draws a token with a probability in proportion to its residual, and returns it. uniform: a random number in (0,
   1). */
static int32_t specdec__verify_draw_token(const specdec__verify_state *state, double uniform)
{
    double wanted = uniform * state->target_total, reached = 0.0;
    int from, end, token;
    int32_t last = 0;

    for (from = 0; from < state->choice->vocab; from = end) {
        double residuals[SPECDEC__VERIFY_PARTIAL_SUMS] = {0}, weights[SPECDEC__VERIFY_PARTIAL_SUMS] = {0}, run;
        int used = specdec__verify_next_used_up_token(state, from);

        if (used == from) {
            end = from + 1;
            continue;
        }
        end = specdec__min_int(used, from + SPECDEC__VERIFY_SUMMED_TOKENS);
        specdec__verify_add_partial_sums(state, from, end, residuals, weights);
        run = specdec__verify_total_partial_sums(residuals);
        if (run > 0.0 && (reached + run > wanted || end >= state->choice->vocab)) {
            double within = reached;

            for (token = from; token < end; token++) {
                double rest = specdec__verify_residual_of_token(state, token);

                last = rest > 0.0 ? (int32_t)token : last;
                within += rest;
                if (rest > 0.0 && within > wanted)
                    return last;
            }
        } else if (run > 0.0) {
            for (token = end - 1; token >= from && !(specdec__verify_residual_of_token(state, token) > 0.0); token--)
                continue;
            last = token;
        }
        reached += run;
    }
    return last;
}

/* Begins the verification of a node's children, or begins it again, with the whole of target P and draft Q. */
static void specdec__verify_start_choice(specdec__verify_state *state, specdec__add_residuals_function *residuals,
                                         const specdec_choice *choice)
{
    memset(state, 0, sizeof *state);
    state->residuals = residuals;
    state->choice = choice;
    state->uniform_from = INT32_MAX;
    specdec__verify_sum_residuals(state);
}

/* Subtracts the draft's distribution D from the residual R after a rejection: R <- max(R - D, 0), unnormalised. */
static void specdec__verify_subtract_draft_distribution(specdec__verify_state *state)
{
    if (state->uniform_from < INT32_MAX) {
        state->uniform_share += state->target_total / state->draft_total;
        return;
    }
    state->draft_share += state->target_total / state->draft_total;
    state->share_high = (float)state->draft_share;
    state->share_low = (float)(state->draft_share - (double)state->share_high);
}

/* Draws the bonus token, as no child is accepted: from the residual, or from P if nothing is left of that. */
static void specdec__verify_draw_bonus(specdec__verify_state *state, specdec_verdict *verdict)
{
    if (!(state->target_total > 0.0))
        specdec__verify_start_choice(state, state->residuals, state->choice);
    verdict->child = -1;
    verdict->token = specdec__verify_draw_token(state, specdec_uniform_next(state->choice->random));
}

/* Returns whether a child is accepted, with probability min(1, R[x] / D[x]), where R is the residual and D[x] = weight
   / draft_total. */
static int specdec__verify_accepts_child(const specdec__verify_state *state, int32_t token, double weight)
{
    double uniform = specdec_uniform_next(state->choice->random);

    return uniform * weight * state->target_total < specdec__verify_residual_of_token(state,
                                                                                      token) * state->draft_total;
}

/* Verifies a node's children by Sequoia's rule, for children drawn without replacement: Chen et al. 2024, arXiv
   2402.12374, algorithm 1. Children that the draft could not have drawn are passed over. */
static void specdec__verify_sequoia(specdec__add_residuals_function *residuals, const specdec_choice *choice,
                                    specdec_verdict *verdict)
{
    specdec__verify_state state;
    int i;

    specdec__verify_start_choice(&state, residuals, choice);
    for (i = 0; i < choice->child_count && state.target_total > 0.0; i++) {
        int32_t token = choice->children[i];
        double weight = state.uniform_from < INT32_MAX ? 1.0 : (double)choice->draft[token];

        if (!(weight > 0.0) || specdec__verify_next_used_up_token(&state, token) == token)
            continue;
        if (specdec__verify_accepts_child(&state, token, weight)) {
            specdec__verify_set_verdict(verdict, i, token);
            return;
        }
        specdec__verify_subtract_draft_distribution(&state);
        state.excluded = i + 1;
        specdec__verify_sum_residuals(&state);
        if (!(state.draft_total > 0.0) && state.uniform_from == INT32_MAX) {
            state.uniform_from = i + 1;
            specdec__verify_sum_residuals(&state);
        }
    }
    specdec__verify_draw_bonus(&state, verdict);
}

/* Verifies a node's children by SpecInfer's rule, for children drawn with replacement: Miao et al. 2024, arXiv
   2305.09781. */
static void specdec__verify_specinfer(specdec__add_residuals_function *residuals, const specdec_choice *choice,
                                      specdec_verdict *verdict)
{
    specdec__verify_state state;
    int i;

    specdec__verify_start_choice(&state, residuals, choice);
    for (i = 0; i < choice->child_count && state.target_total > 0.0; i++) {
        int32_t token = choice->children[i];
        double weight = (double)choice->draft[token];

        if (!(weight > 0.0))
            continue;
        if (specdec__verify_accepts_child(&state, token, weight)) {
            specdec__verify_set_verdict(verdict, i, token);
            return;
        }
        specdec__verify_subtract_draft_distribution(&state);
        specdec__verify_sum_residuals(&state);
    }
    specdec__verify_draw_bonus(&state, verdict);
}

/* Returns one minus the probability that none of k draws is accepted, each being accepted with probability beta. */
static double specdec__verify_probability_of_any_accepted(double beta, int k)
{
    double none = 1.0;
    int i;

    for (i = 0; i < k; i++)
        none *= 1.0 - beta;
    return 1.0 - none;
}

/* Returns the probability that SpecTr's k-sequential selection with divisor rho accepts a given draw. */
static double specdec__verify_spectr_acceptance_probability(const specdec__verify_state *state, double rho)
{
    double sum = 0.0;
    int token;

    for (token = 0; token < state->choice->vocab; token++) {
        double p = (double)state->choice->target[token] / (rho * state->target_total);
        double q = (double)state->choice->draft[token] / state->draft_total;

        sum += p < q ? p : q;
    }
    return sum > 1.0 ? 1.0 : sum;
}

/* Returns the least divisor rho in [1, k] of SpecTr for which the residual is a distribution, from above: every larger
   one is lossless, too. */
static double specdec__verify_spectr_divisor(const specdec__verify_state *state, int k)
{
    double low = 1.0, high = k;
    int i;

    for (i = 0; i < 30 && high - low > 1e-9; i++) {
        double rho = 0.5 * low + 0.5 * high;
        double beta = specdec__verify_spectr_acceptance_probability(state, rho);

        if (specdec__verify_probability_of_any_accepted(beta, k) > rho * beta)
            low = rho;
        else
            high = rho;
    }
    return high;
}

/* Draws a token from SpecTr's residual P - min(Q, P/rho) * share, all of them normalised, and returns it. */
static int32_t specdec__verify_spectr_draw_token(const specdec__verify_state *state, double rho, double share)
{
    double total = 0.0, wanted = 2.0; /* the first pass sums, the second stops at the wanted place */
    int pass, token;
    int32_t last = 0;

    for (pass = 0; pass < 2; pass++) {
        double reached = 0.0;

        for (token = 0; token < state->choice->vocab; token++) {
            double p = (double)state->choice->target[token] / state->target_total;
            double q = (double)state->choice->draft[token] / state->draft_total;
            double taken = (p / rho < q ? p / rho : q) * share;

            if (p > taken) {
                reached += p - taken;
                last = token;
                if (reached > wanted)
                    return last;
            }
        }
        total = reached;
        if (!(total > 0.0))
            break;
        wanted = pass ? wanted : total * specdec_uniform_next(state->choice->random);
    }
    return total > 0.0 ? last : specdec__verify_draw_token(state, specdec_uniform_next(state->choice->random));
}

/* Verifies a node's children by SpecTr's k-sequential selection, for children drawn with replacement: Sun et al. 2023,
   arXiv 2310.15141. */
static void specdec__verify_spectr(specdec__add_residuals_function *residuals, const specdec_choice *choice,
                                   specdec_verdict *verdict)
{
    specdec__verify_state state;
    double rho, beta;
    int i;

    specdec__verify_start_choice(&state, residuals, choice);
    if (choice->child_count == 0) {
        specdec__verify_draw_bonus(&state, verdict);
        return;
    }
    rho = specdec__verify_spectr_divisor(&state, choice->child_count);
    for (i = 0; i < choice->child_count; i++) {
        int32_t token = choice->children[i];
        double p = (double)choice->target[token] * state.draft_total;
        double q = (double)choice->draft[token] * state.target_total;

        if (q > 0.0 && specdec_uniform_next(choice->random) * rho * q < p) {
            specdec__verify_set_verdict(verdict, i, token);
            return;
        }
    }
    beta = specdec__verify_spectr_acceptance_probability(&state, rho);
    verdict->child = -1;
    verdict->token = specdec__verify_spectr_draw_token(
        &state, rho, beta > 0.0 ? specdec__verify_probability_of_any_accepted(beta, choice->child_count) / beta : 0.0);
}

/* Verifies a node's children by the top-k rule: the target draws its token by itself; a child that equals that token is
   accepted. */
static void specdec__verify_top_k(specdec__add_residuals_function *residuals, const specdec_choice *choice,
                                  specdec_verdict *verdict)
{
    specdec__verify_state state;
    specdec_choice target = *choice;

    target.draft = NULL;
    target.child_count = 0;
    specdec__verify_start_choice(&state, residuals, &target);
    specdec_verify_match(verdict, choice->children, choice->child_count,
                         specdec__verify_draw_token(&state, specdec_uniform_next(choice->random)));
}

#define SPECDEC__VERIFIER(name) specdec__verify_##name
#else
#define SPECDEC__VERIFIER(name) NULL /* left out */
#endif

/* Verifies a node's children greedily: a child that equals the target's most probable token (of equals the lowest) is
   accepted. */
static void specdec__verify_greedy(specdec__add_residuals_function *residuals, const specdec_choice *choice,
                                   specdec_verdict *verdict)
{
    int token, best = 0;

    (void)residuals;
    for (token = 1; token < choice->vocab; token++)
        if (choice->target[token] > choice->target[best])
            best = token;
    specdec_verify_match(verdict, choice->children, choice->child_count, best);
}

/* The table of rules of verification, in the order of specdec_rule. */
static const struct specdec__verify_rule {
    /* verifies a node's children by the rule; NULL: by specdec_verify_match, or left out of this build */
    void (*verify)(specdec__add_residuals_function *residuals, const specdec_choice *choice, specdec_verdict *verdict);
    int needs_draft, needs_random; /* 1: it needs the draft's distribution; random numbers */
} specdec__verify_rules[SPECDEC_RULE_COUNT] = {
    {NULL, 0, 0},                         /* SPECDEC_RULE_COUPLED: specdec_verify_match */
    {SPECDEC__VERIFIER(sequoia), 1, 1},   /* SPECDEC_RULE_SEQUOIA */
    {SPECDEC__VERIFIER(specinfer), 1, 1}, /* SPECDEC_RULE_SPECINFER */
    {SPECDEC__VERIFIER(spectr), 1, 1},    /* SPECDEC_RULE_SPECTR */
    {SPECDEC__VERIFIER(top_k), 0, 1},     /* SPECDEC_RULE_TOP_K */
    {specdec__verify_greedy, 0, 0},    /* SPECDEC_RULE_GREEDY */
};

/* Counts the weights that are not numbers of at least 0, in *bad, and those above 0, in *positive. */
SPECDEC__VECTORISE static void specdec__verify_count_bad_weights(const float *weights, int vocab, int *bad,
                                                                 int *positive)
{
    int token, no_weights = 0, above = 0;

    for (token = 0; token < vocab; token++) {
        no_weights += !(weights[token] >= 0.0f) | !(weights[token] <= 1e30f);
        above += weights[token] > 0.0f;
    }
    *bad = no_weights;
    *positive = above;
}

/* Checks that weights[vocab] can be normalised: numbers of at least 0, not all of them 0. */
static specdec_result specdec__verify_check_weights(const float *weights, int vocab, const char *whose,
                                                    specdec_error *error)
{
    int token = 0, bad, positive;

    specdec__verify_count_bad_weights(weights, vocab, &bad, &positive);
    if (bad) {
        while (weights[token] >= 0.0f && weights[token] <= 1e30f)
            token++;
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                             "the %s's probability of token %d is not a number of at least 0", whose, token);
    }
    if (!positive)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "the %s's probabilities are all 0", whose);
    return SPECDEC_OK;
}

specdec_result specdec_verify(specdec_rule rule, const specdec_choice *choice, specdec_verdict *verdict,
                              specdec_error *error)
{
    specdec_result result;
    int i;

    if ((int)rule <= SPECDEC_RULE_COUPLED || (int)rule >= SPECDEC_RULE_COUNT || !choice || !verdict)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                             "verifying needs a rule that decides by distributions, a choice and a verdict");
    if (!choice->target || choice->vocab < 1 || choice->child_count < 0 || (choice->child_count && !choice->children))
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                             "verifying needs the target's probabilities of at least one token, and the children");
    if (!specdec__verify_rules[rule].verify)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                             "SPECDEC_NO_VERIFIERS leaves this rule out of this build");
    if (!choice->random && specdec__verify_rules[rule].needs_random)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "this rule needs a source of uniform numbers");
    for (i = 0; i < choice->child_count; i++)
        if (choice->children[i] < 0 || choice->children[i] >= choice->vocab)
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "token %d is not in the vocabulary of %u",
                                 (int)choice->children[i], (unsigned)choice->vocab);
    result = specdec__verify_check_weights(choice->target, choice->vocab, "target", error);
    if (!result && specdec__verify_rules[rule].needs_draft && choice->child_count) {
        if (!choice->draft)
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "this rule needs the draft's probabilities");
        result = specdec__verify_check_weights(choice->draft, choice->vocab, "draft", error);
    }
    if (!result)
        specdec__verify_rules[rule].verify(specdec__scalar_add_residuals, choice, verdict);
    return result;
}

/* Gathers the children of a node that hold a token: their nodes and tokens, in order of rank. Returns how many there
   are. */
static int specdec__verify_list_children(const specdec_tree *tree, const int32_t *tokens, int node, int32_t *nodes,
                                         int32_t *children)
{
    int i, count = 0;

    for (i = specdec__tree_next_child(tree, node, node + 1); i < tree->n;
         i = specdec__tree_next_child(tree, node, i + 1)) {
        if (tokens[i] >= 0) {
            nodes[count] = i;
            children[count++] = tokens[i];
        }
    }
    return count;
}

specdec_result specdec_verify_walk(int32_t *path, int32_t *accepted, int *accepted_count, const specdec_tree *tree,
                                   const int32_t *tokens, specdec_verify_node verify, void *user_data,
                                   specdec_error *error)
{
    specdec_result result = specdec_tree_check(tree, error);
    int node = 0, depth = 0;

    if (result)
        return result;
    if (!path || !accepted || !accepted_count || !tokens || !verify)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                             "walking a tree needs its tokens, a rule, and room for the path and the text");
    for (;;) {
        int count = specdec__verify_list_children(tree, tokens, node, path + depth, accepted + depth);
        specdec_verdict verdict;

        specdec__verify_set_verdict(&verdict, -1, -1);
        result = verify(user_data, node, accepted + depth, count, &verdict);
        if (result)
            return result;
        if (verdict.child >= count)
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "child %d of node %d was accepted; it has %d",
                                 verdict.child, node, count);
        accepted[depth] = verdict.child < 0 ? verdict.token : accepted[depth + verdict.child];
        if (verdict.child < 0)
            break;
        node = path[depth + verdict.child];
        path[depth++] = node;
    }
    *accepted_count = depth + 1;
    return SPECDEC_OK;
}
SPECDEC__FOR_SPEED
