/* =====================================================================================================================
 * >>engine/step: the step: nodes reserved, run, verified, committed.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "../base/op.h"
#include "../text/vocabulary.h"
#include "../cache/reserve.h"
#include "../forward/context.h"
#include "../forward/step.h"
#include "../speculation/sample.h"
#include "../speculation/row.h"
#include "../speculation/settle.h"
#include "../speculation/tree.h"
#include "../speculation/constrained.h"
#include "../speculation/verify.h"
#include "../speculation/draft.h"
#include "../speculation/levels.h"
#include "../speculation/tune.h"
#include "stream.h"
#include "engine.h"
#include "layout.h"
#include "../schedule/lane.h"
#include "../schedule/stop.h"
#include "sequences.h"
#include "prefill.h"
#include "../schedule/plan.h"
#include "../schedule/ahead.h"
#include "../schedule/trees.h"

SPECDEC__FOR_SIZE

/* Reserves slots of the target's cache for the nodes of all sequences in the step: first for prompt tokens and roots,
   then for draft tokens. A sequence fails where there is no room for the former; its tree is pruned to the root where
   there is none for the latter. */
static void specdec__engine_reserve_slots(specdec__engine *e)
{
    int i, kept = 0;

    for (i = 0; i < e->member_count; i++) {
        specdec *t = e->members[i];
        const int needed = t->prefill_count + t->decodes;

        if (!t->decodes)
            t->merged.tree.n = 0;
        if (specdec__view_reserve_and_notify(&t->view, &e->target.kv, needed)) {
            e->members[kept++] = t;
            continue;
        }
        specdec__engine_fail_sequence(
            t, specdec__fail(&t->error, SPECDEC_ERROR_FULL,
                             "no room in the cache, which all texts share, for %d more tokens", needed));
        specdec__engine_remove_sequence_from_step_totals(e, t);
    }
    e->member_count = kept;
    for (i = 0; i < e->member_count; i++) {
        specdec *t = e->members[i];

        if (!specdec__view_reserve_and_notify(&t->view, &e->target.kv, t->prefill_count + t->merged.tree.n)) {
            specdec__view_free_reserved_slots(&t->view, &e->target.kv);
            specdec__draft_prune_tree(&t->merged, e->drafters, e->drafter_count, t->at, 2, 0);
            /* of the slots just given back */
            specdec__view_reserve_and_notify(&t->view, &e->target.kv, t->prefill_count + 1);
        }
    }
}

/* Returns the batch of a step's run: for each sequence in the step the nodes of its prompt tokens, then those of its
   tree. Sets t->first and t->row of these sequences. */
static specdec__batch specdec__engine_make_batch(specdec__engine *e)
{
    specdec__context *c = &e->target;
    specdec__batch batch;
    int i, k, n = 0, rows = 0;

    for (k = 0; k < e->member_count; k++) {
        specdec *t = e->members[k];
        const specdec_tree *tree = &t->merged.tree;
        const int root = n + t->prefill_count;

        t->first = n;
        t->row = rows;
        rows += tree->n;
        for (; n < root + tree->n; n++) {
            c->views[n] = &t->view;
            c->wants_logits[n] = n >= root;
            c->certain[n] = n < root;
        }
        for (i = t->first; i < root; i++) {
            c->tokens[i] = t->tokens[t->view.length + i - t->first];
            c->parents[i] = i > t->first ? i - 1 : -1;
        }
        for (i = 0; i < tree->n; i++) {
            c->tokens[root + i] = t->merged.tokens[i];
            c->parents[root + i] = i ? root + tree->parents[i] : t->prefill_count ? root - 1 : -1;
        }
    }
    batch = specdec__forward_make_batch(c, 0, n);
    batch.wants_logits = c->wants_logits;
    batch.certain = c->certain;
    return batch;
}

/* Counts the children of an accepted node, and which of them is accepted, in the statistics of the sequence and in the
   measured acceptance of drafters. child: index of the accepted child; -1: none is accepted. token: the token that the
   target has chosen behind the node. */
static void specdec__engine_record_child_acceptance(specdec *t, int node, int child, int32_t token)
{
    specdec__engine *e = t->engine;
    const specdec_tree *tree = &t->merged.tree;
    int i, accepted = -1;

    for (i = specdec__tree_next_child(tree, node, node + 1); i < tree->n;
         i = specdec__tree_next_child(tree, node, i + 1)) {
        int rank = specdec__min_int(tree->ranks[i], (int)SPECDEC__COUNT(t->stats.offered_by_rank)) - 1;
        int hit = child-- == 0;

        t->stats.offered_by_rank[rank]++;
        t->stats.accepted_by_rank[rank] += hit;
        accepted = hit ? i : accepted;
    }
    for (i = 0; i < e->drafter_count; i++) {
        const specdec__proposal *p = &e->drafters[i].proposals[t->at];
        int candidate = specdec__draft_candidate_of_node(&p->outcome, node);

        if (candidate >= 0)
            specdec__tune_count_accepted_children(&e->tune->drafters[i], p, candidate, accepted, token);
    }
}

/* Sets the engine's chooser of tokens for the next token of a sequence: sampling, constraint, mirostat's limit. Returns
   the chooser. */
static const specdec__chooser *specdec__engine_set_chooser(specdec *t)
{
    specdec__chooser *chooser = &t->engine->chooser;

    chooser->sampling = &t->settings.sampling;
    chooser->constrained = specdec__stream_get_constrained(t);
    chooser->surprise = specdec__stream_answer_length(t) > 0 ? t->surprise[t->count - 1] : 0;
    return chooser;
}

/* Verifies the draft tokens children[count] of a node by the engine's rule of rejection. logits (vocab): the node's
   row. *verdict receives the accepted child, or none, and the token that the sequence gets. */
static void specdec__engine_verify_by_rejection(specdec *t, int node, const float *logits, const int32_t *children,
                                                int count, specdec_verdict *verdict)
{
    specdec__engine *e = t->engine;
    const int vocab = e->target_model->vocab_size;
    const specdec__proposal *p = &e->drafters[0].proposals[t->at]; /* all others draft forced tokens only */
    const int candidate = count ? specdec__draft_candidate_of_node(&p->outcome, node) : -1;
    const int drawn = candidate >= 0 && (!specdec__constrained_limits_tokens(&t->constrained) ||
                                         specdec__constrained_forced_token(&t->constrained, t->tokens, t->count) < 0);
    specdec_uniform uniform;
    specdec_choice choice;
    specdec__row row;

    specdec__chooser_prepare_row(specdec__engine_set_chooser(t), &row, logits, vocab, t->tokens, t->count);
    specdec__row_write_weights(&row, e->target_distribution);
    uniform.seed = t->settings.sampling.seed;
    uniform.position = (uint64_t)t->count;
    uniform.decision = 0;
    choice.target = e->target_distribution;
    choice.draft = NULL;
    if (drawn && e->rule != SPECDEC_RULE_TOP_K)
        choice.draft = p->request.distributions + (size_t)candidate * (size_t)vocab;
    choice.children = children;
    choice.vocab = vocab;
    choice.child_count = count;
    choice.random = &uniform;
    verdict->token = 0;
    specdec__verify_rules[drawn ? e->rule : SPECDEC_RULE_TOP_K].verify(e->kernels->add_residuals, &choice, verdict);
}

/* Stores the log-probabilities of a sequence's next token, and of the most probable tokens in its place, from its row
   of logits (vocab). */
static void specdec__engine_store_logprobs(specdec *t, const float *logits, int32_t token)
{
    specdec__engine *e = t->engine;
    const int vocab = e->target_model->vocab_size, k = specdec__stream_logprob_count(t);
    specdec_candidate *best = t->best + (size_t)t->count * (size_t)t->best_count;
    double total = 0;
    float highest;
    int i;

    if (!k) {
        t->logprobs[t->count] = 1;
        return;
    }
    if (k < t->best_count)
        best[k].token = -1;
    specdec__sample_best_tokens(e->kernels, logits, vocab, k, best);
    highest = best[0].logit;
    e->kernels->token_weights(logits, vocab, highest, 1.0f, e->target_distribution);
    for (i = 0; i < vocab; i++)
        total += (double)e->target_distribution[i];
    total = specdec__log_double(total);
    for (i = 0; i < k; i++)
        best[i].logit = (float)((double)(best[i].logit - highest) - total);
    t->logprobs[t->count] = (float)((double)(specdec__sample_comparable_logit(logits[token]) - highest) - total);
}

/* Appends a token, which was chosen from a row of logits (vocab), to the sequence, with its log-probability where those
   are kept, and advances the sequence's constraint. */
static void specdec__engine_append_token(specdec *t, const float *logits, int32_t token)
{
    if (t->logprobs)
        specdec__engine_store_logprobs(t, logits, token);
    t->tokens[t->count++] = token;
    if (!specdec__constrained_limits_tokens(&t->constrained) || specdec__stream_is_end(t, token))
        return;
    specdec__constrained_commit_state(&t->constrained, t->tokens, t->count);
    if (specdec__constrained_only_end_may_follow(&t->constrained, t->tokens, t->count))
        t->complete_at = t->count;
}

/* Returns whether a sequence of `count` tokens may fork: it has a fork left, and its child has room for a token. */
static int specdec__engine_may_fork(const specdec *t, int count)
{
    const specdec_config *c = &t->engine->config;

    return SPECDEC__HAS_MANY_SEQUENCES && t->forks < c->forks && t->depth < c->fork_depth && count + 1 < t->context;
}

/* Tokens that must not be chosen from a row of logits, and their logits, which the row gets back afterwards. */
typedef struct specdec__forbidden_tokens {
    int count;  /* number of forbidden tokens */
    int32_t token[2 + SPECDEC__STREAM_MAX_ENDS + SPECDEC__VOCAB_MAX_END_TOKENS]; /* (count): ids of the tokens */
    float logit[2 + SPECDEC__STREAM_MAX_ENDS + SPECDEC__VOCAB_MAX_END_TOKENS]; /* (count): their logits by the model */
} specdec__forbidden_tokens;

/* Forbids tokens[count] in a row of logits (vocab): sets their logits to -infinity, and adds the tokens and their
   former logits to *own. Ids outside the vocabulary are skipped. */
static void specdec__engine_forbid_listed_tokens(const specdec *t, float *logits, const int32_t *tokens, int count,
                                                 specdec__forbidden_tokens *own)
{
    int i;

    for (i = 0; i < count; i++) {
        if (tokens[i] < 0 || tokens[i] >= t->model->vocab_size)
            continue;
        own->token[own->count] = tokens[i];
        own->logit[own->count++] = logits[tokens[i]];
        logits[tokens[i]] = specdec__float_from_bits(0xff800000u);
    }
}

/* Forbids, in a row of logits (vocab), the tokens that must not be the sequence's next one: the child token, the fork
   token where no fork is possible, and end tokens while the answer is shorter than settings.min_tokens or ignores them.
   *own becomes the list of these tokens. */
static void specdec__engine_forbid_tokens(const specdec *t, float *logits, specdec__forbidden_tokens *own)
{
    const specdec__engine *e = t->engine;
    const specdec__vocab *v = &t->model->vocab;
    const int brief = specdec__stream_answer_length(t) < t->settings.min_tokens;

    own->count = 0;
    if (brief)
        specdec__engine_forbid_listed_tokens(t, logits, t->ends, t->end_count, own);
    if (brief || t->settings.ignore_end)
        specdec__engine_forbid_listed_tokens(t, logits, v->end_tokens, v->end_token_count, own);
    if (!SPECDEC__HAS_MANY_SEQUENCES || e->fork_token < 0)
        return;
    specdec__engine_forbid_listed_tokens(t, logits, &e->child_token, 1, own);
    if (!specdec__engine_may_fork(t, t->count + 1) ||
        specdec__vocab_token_type(v, (uint32_t)t->tokens[t->count - 1]) == SPECDEC__TOKEN_CONTROL)
        specdec__engine_forbid_listed_tokens(t, logits, &e->fork_token, 1, own);
}

/* Restores the model's logits of forbidden tokens in their row, as log-probabilities are those of the model. */
static void specdec__engine_restore_logits(float *logits, const specdec__forbidden_tokens *own)
{
    int i;

    for (i = own->count; i-- > 0;)
        logits[own->token[i]] = own->logit[i];
}

/* Sets the first tokens of a child if the sequence forks behind its last token. Returns 1 if it forks, else 0. A fork
   token may be chosen although it is forbidden, where all other tokens are forbidden, too. */
static int specdec__engine_prepare_fork(specdec *t)
{
    const specdec__engine *e = t->engine;
    const specdec_hooks *hooks = &e->config.hooks;
    int i, count = 0;

    if (!specdec__engine_may_fork(t, t->count))
        return 0;
    if (t->tokens[t->count - 1] == e->fork_token) {
        t->forced[0] = e->child_token;
        count = 1;
    } else if (hooks->fork) {
        count = hooks->fork(hooks->user_data, t->tokens, t->count, t->forced);
        count = count <= SPECDEC_FORK_TOKENS && t->count + count + 1 < t->context ? count : 0;
    }
    for (i = 0; i < count; i++)
        if (t->forced[i] < 0 || t->forced[i] >= t->model->vocab_size)
            count = 0;
    t->forced_count = specdec__max_int(count, 0);
    return count > 0;
}

/* Returns mirostat's limit of surprise behind a token that was chosen from a row of logits, in bits; 0: mirostat is
   off. */
static float specdec__engine_mirostat_limit(specdec *t, const float *logits, int32_t token)
{
    const specdec_sampling *s = &t->settings.sampling;
    const specdec__chooser *chooser;
    specdec__row row;
    float most;

    if (!(s->mirostat_tau > 0) || !(s->temperature > 0))
        return 0;
    chooser = specdec__engine_set_chooser(t);
    most = chooser->surprise > 0 || chooser->surprise < 0 ? chooser->surprise : 2 * s->mirostat_tau;
    specdec__chooser_prepare_row(chooser, &row, logits, t->model->vocab_size, t->tokens, t->count);
    most = most - (s->mirostat_rate > 0 ? s->mirostat_rate : 0.1f) *
                      (specdec__row_token_surprise(&row, token) - s->mirostat_tau);
    return most > 0 || most < 0 ? most : 1e-30f;
}

/* Chooses a sequence's next token from a row of logits (vocab), without draft tokens or with coupled verification. */
static int32_t specdec__engine_choose_token(specdec *t, const float *logits)
{
    specdec__engine *e = t->engine;
    specdec_candidate best;

    best.token = 0;
    specdec__choose_best_tokens(specdec__engine_set_chooser(t), logits, e->target_model->vocab_size, t->tokens,
                                t->count, 1, &best);
    return best.token;
}

/* Returns whether a step decodes nothing more behind the sequence's last token: the answer ends there, or the sequence
   forks there. Tokens beyond max_tokens are kept, as the limit may be raised, unless they may be forks. */
static int specdec__engine_sequence_ends_or_forks(specdec *t)
{
    const specdec__engine *e = t->engine;
    const specdec_stop why = specdec__stream_end_reason(t, t->count);

    if (why == SPECDEC_STOP_NONE)
        return specdec__engine_prepare_fork(t);
    return why == SPECDEC_STOP_END || why == SPECDEC_STOP_CONSTRAINT || e->fork_token >= 0 || e->config.hooks.fork;
}

/* Returns whether the next token of a sequence can be chosen from upper bounds of the logits, of which only the largest
   are then computed exactly, instead of all logits of the row: there is no constraint, or nothing but the constraint
   forbids tokens or alters their logits. */
static int specdec__engine_logit_bounds_suffice(const specdec *t)
{
    return !specdec__constrained_limits_tokens(&t->constrained) ||
           (!t->constrained.allow && t->engine->fork_token < 0 && !t->settings.min_tokens && !t->settings.ignore_end &&
            !specdec__sampler_chain_alters_logits(&t->settings.sampling));
}

/* Returns whether a step needs no logits for a sequence: the step only prefills it, or its constraint forces the next
   token. */
static int specdec__engine_needs_no_logits(specdec *t)
{
    return !t->merged.tree.n || (t->merged.tree.n == 1 && !(t->settings.sampling.mirostat_tau > 0) &&
                                 specdec__constrained_limits_tokens(specdec__stream_get_constrained(t)) &&
                                 specdec__constrained_forced_token(&t->constrained, t->tokens, t->count) >= 0);
}

/* Returns what a step's run computes of its rows of logits: SPECDEC__SCREEN_NOTHING, _BOUNDS (upper bounds of the
   logits, see >>speculation/settle) or _LOGITS (all). */
static int specdec__engine_needed_logits_mode(specdec__engine *e)
{
    int i, forced = 1, bounds = e->config.screening != SPECDEC_SCREENING_OFF && e->target.output->bounds;

    if (e->run_target != specdec__forward || e->target.hooks)
        return SPECDEC__SCREEN_LOGITS;
    for (i = 0; i < e->member_count; i++) {
        specdec *t = e->members[i];

        if ((SPECDEC__HAS_DISTRIBUTION_VERIFIERS && specdec__engine_verification_rule(e, t) != SPECDEC_RULE_COUPLED) ||
            t->logprobs)
            return SPECDEC__SCREEN_LOGITS;
        forced = forced && specdec__engine_needs_no_logits(t);
        bounds = bounds && specdec__engine_logit_bounds_suffice(t) &&
                 specdec__settle_needed_logits(&t->settings.sampling, t->count).k;
    }
    if (forced)
        return SPECDEC__SCREEN_NOTHING;
    if (!bounds)
        return SPECDEC__SCREEN_LOGITS;
    e->target.screen.pause_left -= e->target.screen.pause_left > 0;
    return e->target.screen.pause_left ? SPECDEC__SCREEN_LOGITS : SPECDEC__SCREEN_BOUNDS;
}

/* Returns whether the sequence's constraint allows the most probable token of a row of logits: row `column` of the last
   run. */
static int specdec__engine_best_token_is_allowed(specdec *t, int column)
{
    const specdec__engine *e = t->engine;
    const float *logits = e->target.logits + (size_t)column * (size_t)e->target_model->vocab_size;
    specdec_candidate best;
    const int count = specdec__choose_best_unconstrained_tokens(specdec__engine_set_chooser(t), logits,
                                                                e->target_model->vocab_size, t->tokens, t->count, 1,
                                                                &best);

    return specdec__constrained_keep_allowed_candidates(&t->constrained, t->tokens, t->count, count, 1, &best);
}

/* Turns a row of upper bounds of logits, row `column` of the last run, into a row from which the sequence's next token
   is chosen: the logits that may decide are computed exactly. Nothing is done where a constraint forces that token.
   Otherwise its mask is applied first, except where noise alone chooses: then only the best token is checked, and all
   logits of the row are computed if the constraint forbids it. */
static void specdec__engine_refine_logit_bounds(specdec *t, int column)
{
    specdec__engine *e = t->engine;
    const specdec_sampling *s = &t->settings.sampling;
    const int obeys = specdec__constrained_limits_tokens(specdec__stream_get_constrained(t));
    specdec__settle_need need = specdec__settle_needed_logits(s, t->count);
    int32_t forks[2];
    const specdec__settle_list lists[] = {
        {forks, sizeof *forks, e->fork_token < 0 ? 0 : 2}, /* these and the next two lists may be forbidden */
        {t->ends, sizeof *t->ends, t->end_count},
        {t->model->vocab.end_tokens, sizeof *t->model->vocab.end_tokens, t->model->vocab.end_token_count},
        {t->tokens + t->count - need.altered, sizeof *t->tokens, need.altered},
        {s->bias_count ? &s->biases->token : NULL, sizeof *s->biases, s->bias_count}};

    if (obeys && specdec__constrained_forced_token(&t->constrained, t->tokens, t->count) >= 0)
        return;
    if (obeys && !need.by_noise) {
        specdec__constrained_compute_mask(&t->constrained, t->tokens, t->count);
        need.allowed = t->constrained.masker->mask;
    }
    forks[0] = e->child_token;
    forks[1] = e->fork_token;
    specdec__settle_compute_needed_logits(&e->target, column, &need,
                                          specdec__sample_noise_of_position(s->seed, (uint64_t)t->count), lists,
                                          (int)SPECDEC__COUNT(lists), e->chooser.items);
    if (obeys && need.by_noise && e->target.screen.computed && !specdec__engine_best_token_is_allowed(t, column))
        specdec__settle_compute_all_logits(&e->target);
}

/* The engine's specdec_verify_node: verifies node `node` of a sequence's tree, coupled, greedy, or by a rule of
   rejection, and appends the chosen token to the sequence. text: the sequence. */
static specdec_result specdec__engine_verify_node(void *text, int node, const int32_t *children, int count,
                                                  specdec_verdict *verdict)
{
    specdec *t = (specdec *)text;
    const specdec__engine *e = t->engine;
    float *logits = e->target.logits + (size_t)(t->row + node) * (size_t)e->target_model->vocab_size;
    const int row = t->first + t->prefill_count + node;
    specdec_result result;
    specdec__forbidden_tokens own;

    if (e->target.screen.computed)
        specdec__engine_refine_logit_bounds(t, t->row + node);
    result = specdec__forward_check_step(&e->target, row, row + 1, &t->error);
    if (result)
        return result;
    specdec__engine_forbid_tokens(t, logits, &own);
    if (!SPECDEC__HAS_DISTRIBUTION_VERIFIERS || specdec__engine_verification_rule(e, t) == SPECDEC_RULE_COUPLED)
        specdec_verify_match(verdict, children, count, specdec__engine_choose_token(t, logits));
    else
        specdec__engine_verify_by_rejection(t, node, logits, children, count, verdict);
    t->surprise[t->count] = specdec__engine_mirostat_limit(t, logits, verdict->token);
    specdec__engine_restore_logits(logits, &own);
    specdec__engine_record_child_acceptance(t, node, verdict->child, verdict->token);
    specdec__engine_append_token(t, logits, verdict->token);
    if (specdec__engine_sequence_ends_or_forks(t))
        verdict->child = -1;
    return SPECDEC_OK;
}

/* Counts a step in the statistics' table of token trees, by the numbers of nodes and levels of its tree. A new shape of
   tree replaces the rarest one where the table is full. */
static void specdec__engine_count_tree_shape(specdec_stats *stats, int nodes, int levels)
{
    specdec_tree_count *trees = stats->trees, *at = trees;
    int i;

    for (i = 0; i < SPECDEC_STATS_TREES; i++) {
        if (trees[i].nodes == nodes && trees[i].levels == levels) {
            trees[i].steps++;
            return;
        }
        at = trees[i].steps < at->steps ? &trees[i] : at;
    }
    stats->steps_other_trees += at->steps;
    at->nodes = nodes;
    at->levels = levels;
    at->steps = 1;
}

/* Makes a sequence fail with the error `result`, as a row of its logits has values that are no numbers. The keys of the
   step are dropped. Tokens accepted before that row stay, and are run again. before: number of tokens of the sequence
   before the step. */
static void specdec__engine_fail_bad_logits(specdec *t, int before, specdec_result result)
{
    if (specdec__async_is_drafting(t->engine, NULL))
        specdec__async_drop_drafts(t, t->count);
    t->stats.tokens += t->count - before;
    t->length = t->merged.tree.n = 0;
    specdec__engine_fail_sequence(t, result);
}

/* Passes the verified tree of a sequence, with its rows of logits, to the drafters that use logits. before: number of
   tokens of the sequence before the step. */
static void specdec__engine_pass_logits_to_drafters(specdec *t, int before)
{
    specdec__engine *e = t->engine;
    specdec__verified_tree judged;
    int i;

    judged.at = t->at;
    judged.text = t->tokens;
    judged.count = before;
    judged.sampling = &t->settings.sampling;
    judged.tree = &t->merged.tree;
    judged.tokens = t->merged.tokens;
    judged.vocab = e->target_model->vocab_size;
    judged.logits = e->target.screen.computed == SPECDEC__SCREEN_NOTHING
                        ? NULL : e->target.logits + (size_t)t->row * (size_t)judged.vocab;
    judged.kernels = e->kernels;
    judged.path = t->path;
    judged.length = t->length;
    judged.whole = !e->target.screen.computed;
    for (i = 0; t->length && i < e->drafter_count; i++)
        if (e->drafters[i].kind.receive_logits)
            e->drafters[i].kind.receive_logits(&e->drafters[i], &judged);
}

/* Verifies the token tree of a sequence: appends accepted tokens, sets t->path, commits keys and values of prompt
   tokens and accepted nodes, and reports these to the drafters. */
static void specdec__engine_verify_tree(specdec *t)
{
    specdec__engine *e = t->engine;
    const int before = t->count, from = t->view.length;
    int32_t accepted[SPECDEC__MAX_TREE_NODES];
    specdec_result result;
    int i;

    t->length = 0;
    t->path[0] = 0;
    result = specdec__forward_check_step(&e->target, t->first, t->first + t->prefill_count, &t->error);
    if (!result && t->merged.tree.n)
        result = specdec_verify_walk(t->path + 1, accepted, &t->length, &t->merged.tree, t->merged.tokens,
                                     specdec__engine_verify_node, t, &t->error);
    if (result) {
        specdec__engine_fail_bad_logits(t, before, result);
        return;
    }
    for (i = 0; i < t->prefill_count; i++)
        e->target.path[i] = i;
    for (i = 0; i < t->length; i++)
        e->target.path[t->prefill_count + i] = t->prefill_count + t->path[i];
    specdec__view_commit(&t->view, &e->target.kv, e->target.path, t->prefill_count + t->length);
    specdec__view_free_reserved_slots(&t->view, &e->target.kv);
    for (i = 0; t->length && i < e->drafter_count; i++)
        if (specdec__async_is_drafting(e, &e->drafters[i]))
            specdec__async_finish_lane(t, t->tokens + before, t->count - before);
        else
            specdec__draft_commit_path(&e->drafters[i], &e->drafters[i].proposals[t->at], t->path, t->length);
    specdec__engine_pass_logits_to_drafters(t, before);
    specdec__engine_report_committed_to_drafters(t, from, t->prefill_count + t->length, t->first, e->target.path,
                                                 t->length ? t->row + t->path[t->length - 1] : -1);
    t->stats.tokens += t->count - before;
    t->stats.prefilled_tokens += t->prefill_count;
}

/* Adds to *outcome each drafter's part in a sequence's verified tree: its nodes, its accepted nodes, and the seconds of
   its drafting. */
static void specdec__engine_count_accepted_nodes(specdec *t, specdec__tune_outcome *outcome)
{
    specdec__engine *e = t->engine;
    int nodes[SPECDEC__MAX_DRAFTERS] = {0}, i, at = 1;

    for (i = 1; i < t->merged.tree.n; i++) {
        const int owner = t->merged.owner[i];
        int came = at < t->length && t->path[at] == i;

        at += came;
        nodes[owner]++;
        outcome->nodes[owner]++;
        outcome->accepted[owner] += came;
    }
    for (i = 0; i < e->drafter_count; i++) {
        const specdec__drafter *d = &e->drafters[i];

        if (d->kind.level_cost || nodes[i]) /* drafting without cost that found nothing is free */
            outcome->drafting[i] += d->proposals[t->at].cost.seconds;
        t->stats.steps_by_drafter[d->drafting] += nodes[i] > 0;
    }
}

/* Adds the seconds of a step's run, of `width` nodes, to the measured times, and updates the drafters' credit. */
static SPECDEC__NOINLINE void specdec__engine_record_run_seconds(specdec__engine *e, int width, double seconds)
{
    specdec__tune_load *load = &e->tune->load;
    const int loaded = (int)load->rows, nodes = width - loaded;
    specdec__tune_outcome outcome;
    int i;

    if (!e->roots || width > SPECDEC__MAX_TREE_NODES || nodes < 1)
        return;
    if (SPECDEC__HAS_THREADS && e->async_drafting->probe) { /* a probe is no usual step */
        specdec__async_measure_slowdown(e, width, seconds);
        return;
    }
    memset(&outcome, 0, sizeof outcome);
    seconds = seconds > 0 ? seconds : 1 + 0.1 * (width - 1);
    outcome.seconds = seconds - specdec__tune_seconds_added_by_load(load);
    outcome.base = e->roots + e->prefill_nodes - loaded;
    outcome.sequences = e->roots;
    if (loaded) {
        specdec__tune_add_loaded_step_time(e->tune, nodes, seconds);
    } else {
        specdec__tune_add_step_time(e->tune, nodes, seconds, 1);
        if (SPECDEC__HAS_MANY_SEQUENCES && e->room.max_views > 1)
            specdec__tune_add_unloaded_step_time(e->tune, nodes, seconds);
    }
    for (i = 0; i < e->member_count; i++)
        specdec__engine_count_accepted_nodes(e->members[i], &outcome);
    specdec__tune_decay_acceptance(e->tune);
    specdec__tune_update_credit(e->tune, &outcome);
}

/* Counts a step in the statistics of a sequence in it. width: nodes of the run; seconds: time of the step; drafting,
   verifying: the parts of it before the run, and of the run. */
static void specdec__engine_count_step_in_statistics(specdec *t, int width, double seconds, double drafting,
                                                     double verifying)
{
    const int nodes = t->merged.tree.n;
    int i;

    if (!nodes) {
        t->stats.prompt_seconds += seconds;
        return;
    }
    for (i = 0; 1 << i < width && i < (int)SPECDEC__COUNT(t->stats.steps_by_width) - 1; i++)
        continue;
    t->stats.steps_by_width[i]++;
    specdec__engine_count_tree_shape(&t->stats, nodes, specdec_tree_depth(&t->merged.tree, NULL));
    t->stats.drafted += nodes - 1;
    t->stats.accepted += t->length - 1;
    t->stats.draft_seconds += drafting;
    t->stats.verify_seconds += verifying;
    t->stats.seconds += seconds;
    t->stats.steps++;
}

/* Sets the statistic first_token_seconds, if the answer's first token is decoded at the clock time `now`. */
static void specdec__engine_record_first_token_time(specdec *t, double now)
{
    if (t->prompted_at > 0)
        t->stats.first_token_seconds = now - t->prompted_at;
    t->prompted_at = 0;
}

/* Ends a step for a sequence in it: makes its pending fork, and releases the caches of a child whose answer has
   ended. */
static void specdec__engine_finish_step(specdec *t, double now)
{
    if (t->length)
        specdec__engine_record_first_token_time(t, now);
    if (SPECDEC__HAS_MANY_SEQUENCES && t->forced_count)
        specdec__engine_fork_child(t);
    if (t->parent && specdec__stream_end_reason(t, t->count))
        specdec__engine_release_sequence(t);
}

/* Ends a step whose run has failed with `error`. The step's first sequence gets the error; an error CANCELLED goes to
   the sequences that were cancelled (in a cluster a step for several sequences can be). The others take part in the
   next step. */
static void specdec__engine_fail_step(specdec__engine *e, const specdec_error *error)
{
    int i;

    specdec__async_drop_drafts(e->members[0], e->members[0]->count);
    for (i = 0; i < e->member_count; i++) {
        specdec *t = e->members[i];

        if (error->code == SPECDEC_ERROR_CANCELLED ? SPECDEC__LOAD(&t->cancel) : !i)
            specdec__engine_fail_sequence(t, specdec__fail(&t->error, error->code, "%s", error->text));
        else
            specdec__view_free_reserved_slots(&t->view, &e->target.kv);
    }
}

/* Runs the token trees of all sequences in the step as one batch of the target, while the drafter's lane may extend one
   of them. The run has returned when this function returns. */
static void specdec__engine_run_trees(specdec__engine *e, specdec__step *s)
{
    specdec__batch batch;

    s->drafted = specdec__os_monotonic_seconds();
    s->expected_tokens =
        specdec__async_engine_chooses_mode(e) ? specdec__engine_expected_tokens_of_sequence(e->members[0]) : 0;
    batch = specdec__engine_make_batch(e);
    s->nodes = batch.n;
    e->pool.cancel = e->member_count == 1 ? &e->members[0]->cancel : &e->never_cancelled;
    e->row_0_sequence = NULL;
    e->target.threads = e->config.threads - (specdec__async_is_drafting(e, NULL) ? e->async_drafting->threads : 0);
    if (specdec__async_is_drafting(e, NULL))
        specdec__async_start_lane(e->members[0]);
    e->target.screen.needed = specdec__engine_needed_logits_mode(e);
    s->result = e->run_target(&e->target, &batch, &s->error);
    if (e->target.screen.needed == SPECDEC__SCREEN_NOTHING && e->target.row_count)
        e->target.screen.saved += (int64_t)e->target.output->rows * (int64_t)e->target.output->row_bytes;
    else if (e->target.screen.needed == SPECDEC__SCREEN_BOUNDS && e->target.screen.computed)
        e->target.screen.saved += specdec__screen_plane_bytes(&e->target, SPECDEC__PLANE_LOWER);
    e->target.screen.needed = SPECDEC__SCREEN_LOGITS;
    e->target.threads = e->config.threads;
}

/* Verifies the token trees of all sequences in the step by the logits of the run that has returned, and measures the
   step. */
static void specdec__engine_verify_trees(specdec__engine *e, specdec__step *s)
{
    double verified, now;
    int i;

    if (s->result) {
        specdec__engine_fail_step(e, &s->error);
        return;
    }
    verified = specdec__os_monotonic_seconds();
    e->pool.cancel = &e->never_cancelled; /* drafters' prefilling is not cancelled */
    for (i = 0; i < e->member_count; i++)
        specdec__engine_verify_tree(e->members[i]);
    specdec__engine_record_run_seconds(e, s->nodes, verified - s->drafted);
    now = specdec__os_monotonic_seconds();
    if (SPECDEC__HAS_THREADS && e->async_drafting->drafter)
        specdec__async_record_step(e, now - s->start, s->drafted - s->start,
                                   0.5 * (s->expected_tokens + e->members[0]->length));
    e->tune->async = 0;
    for (i = 0; i < e->member_count; i++) {
        specdec *t = e->members[i];

        specdec__engine_count_step_in_statistics(t, s->nodes, now - s->start, s->drafted - s->start,
                                                 verified - s->drafted);
        t->stats.steps_beside += e->async_drafting->active;
        specdec__engine_finish_step(t, now);
    }
}

/* Chooses a sequence's next token from a row of logits (vocab), without draft tokens or with coupled verification, and
   appends it to the sequence. Returns the token. */
static int32_t specdec__engine_decode_from_logits(specdec *t, float *logits)
{
    specdec__forbidden_tokens own;
    int32_t token;

    specdec__engine_forbid_tokens(t, logits, &own);
    token = specdec__engine_choose_token(t, logits);
    t->surprise[t->count] = specdec__engine_mirostat_limit(t, logits, token);
    specdec__engine_restore_logits(logits, &own);
    specdec__engine_append_token(t, logits, token);
    return token;
}

/* Decodes the first token of a sequence's answer from the logits of the prompt's last token. */
static void specdec__engine_decode_first_token(specdec *t)
{
    double start = specdec__os_monotonic_seconds();

    specdec__engine_decode_from_logits(t, t->engine->target.logits);
    if (specdec__engine_sequence_ends_or_forks(t) && SPECDEC__HAS_MANY_SEQUENCES && t->forced_count)
        specdec__engine_fork_child(t);
    t->from_row = 0;
    t->engine->row_0_sequence = NULL;
    specdec__engine_count_tree_shape(&t->stats, 1, 1);
    t->stats.tokens++;
    t->stats.steps++;
    t->stats.seconds += specdec__os_monotonic_seconds() - start;
    specdec__engine_record_first_token_time(t, specdec__os_monotonic_seconds());
}

SPECDEC__FOR_SPEED
