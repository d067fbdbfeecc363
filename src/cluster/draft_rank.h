/* =====================================================================================================================
 * >>cluster/draft_rank: a rank that has only the draft model: obeys rank 0, drafts, and sends draft tokens.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "wire.h"
#include "link.h"
#include "../speculation/samplers.h"
#include "../speculation/tree.h"
#include "../speculation/draft.h"
#include "../speculation/tune.h"
#include "../engine/engine.h"
#include "../engine/layout.h"
#include "../schedule/ahead.h"

#define SPECDEC__DRAFT_RANK_LEAST_SHARE 0.02f /* probability behind the parent below which draft tokens are left out */
#define SPECDEC__DRAFT_RANK_MAX_EXPANDED 32   /* expanded draft tokens of a sequence that rank 0 may still accept */

/* A sequence of rank 0, on the draft rank. */
typedef struct specdec__draft_rank_sequence {
    uint32_t *numbers; /* (candidates) the number of each candidate's draft token on rank 0; 0: not sent */
    uint32_t epoch;    /* epoch of rank 0's last order; a new epoch cancels all draft tokens of the sequence */
    int root_unsent;   /* 1: the root was not sent to rank 0 yet */
    int full_at;       /* token count at which the cache had no room for draft tokens */
} specdec__draft_rank_sequence;

/* The state of a rank that only drafts. */
typedef struct specdec__draft_rank {
    specdec__draft_rank_sequence *sequences; /* draft tokens of each sequence of the engine, by its index */
    uint32_t number;         /* the number that the next draft token gets, by which rank 0 knows it */
    specdec *sequence;       /* the sequence whose tree lies in the draft model's context; NULL: no tree */
    int runs;                /* draft runs for this sequence since it was chosen */
} specdec__draft_rank;

SPECDEC__FOR_SIZE

/* Takes the memory of a rank that only drafts from an arena, and sets it up. */
static void specdec__draft_rank_lay_out(specdec__engine *e, specdec__arena *arena)
{
    const int candidates = specdec__engine_candidate_limit(e, &e->drafters[0].kind);
    specdec__draft_rank *draft_rank = SPECDEC__TAKE(arena, specdec__draft_rank, 1);
    specdec__draft_rank_sequence *sequences = SPECDEC__TAKE(arena, specdec__draft_rank_sequence, e->room.max_views);
    int i;

    for (i = 0; i < e->room.max_views; i++) {
        uint32_t *numbers = SPECDEC__TAKE(arena, uint32_t, candidates);

        if (sequences)
            sequences[i].numbers = numbers;
    }
    if (!draft_rank)
        return;
    draft_rank->sequences = sequences;
    draft_rank->number = 1;
    e->link->draft_rank = draft_rank;
}

/* Returns a sequence's proposal, the token tree of the draft model. */
static specdec__proposal *specdec__draft_rank_proposal(const specdec *t)
{
    return &t->engine->drafters[0].proposals[t->at];
}

/* Truncates a sequence to its first `count` tokens, and removes all its draft tokens. */
static void specdec__draft_rank_truncate(specdec *t, int count)
{
    specdec__drafter *d = &t->engine->drafters[0];
    specdec__proposal *p = specdec__draft_rank_proposal(t);

    if (count < t->count)
        d->kind.truncate_sequence(d, t->at, t->tokens, count);
    p->frontier.valid_at = p->request.count = 0;
    t->count = count;
    t->engine->link->draft_rank->sequences[t->at].full_at = 0;
}

/* Begins a tree of draft tokens behind the sequence's last token, or continues with the draft tokens that were kept. */
static void specdec__draft_rank_begin_tree(specdec *t)
{
    specdec__engine *e = t->engine;
    specdec__proposal *p = specdec__draft_rank_proposal(t);

    specdec__draft_begin_proposal(p, t->tokens, t->count, &t->settings.sampling, SPECDEC_RULE_COUPLED);
    specdec__tune_set_path_probabilities(&e->tune->drafters[0], &p->drafts, &p->frontier, 1, e->async_drafting->levels);
    e->link->draft_rank->sequences[t->at].root_unsent = !p->frontier.valid_at;
    p->frontier.grows = p->frontier.shares = 1;
}

/* Accepts the draft tokens that are equal to the n tokens that a sequence has just received from rank 0, keeps the
   draft tokens behind them, and measures the acceptance. */
static void specdec__draft_rank_accept_tokens(specdec *t, int n)
{
    specdec__engine *e = t->engine;
    specdec__proposal *p = specdec__draft_rank_proposal(t);
    uint32_t *numbers = e->link->draft_rank->sequences[t->at].numbers;
    const int32_t *tokens = t->tokens + t->count - n;
    const int known = p->drafts.tree.n;
    int32_t path[SPECDEC__MAX_TREE_NODES + 1];
    const int length = specdec__async_find_path_of_tokens(&p->drafts.tree, p->drafts.tokens, tokens, n, path);
    int i;

    memset(p->outcome.merged_node, -1, (size_t)known * sizeof *p->outcome.merged_node);
    for (i = 0; i < n && i <= length; i++)
        specdec__tune_count_accepted_children(&e->tune->drafters[0], p, i ? path[i - 1] : 0, -1, tokens[i]);
    specdec__tune_decay_acceptance(e->tune);
    if (e->link->draft_rank->sequence == t)
        specdec__async_move_root(t, tokens, n);
    else if (p->drafts.extended[0])
        e->drafters[0].kind.commit_path(&e->drafters[0], t->at, path, length);
    for (i = 0; p->frontier.valid_at && i < known; i++) /* candidates that stay have moved to the front */
        if (p->drafts.moved[i] >= 0)
            numbers[p->drafts.moved[i]] = numbers[i];
    p->request.count = 0;
    if (p->frontier.valid_at)
        specdec__draft_rank_begin_tree(t);
}

/* Obeys rank 0's order (from, tokens...): the tokens of a sequence from number `from` on. Returns 0 if the order is not
   valid. */
static int specdec__draft_rank_obey_tokens_order(specdec *t, specdec__wire_reader *in)
{
    const specdec__proposal *p = specdec__draft_rank_proposal(t);
    const int from = specdec__wire_read_int(in, 0, t->count), n = in->left, vocab = t->engine->target_model->vocab_size;
    int i;

    if (in->bad || n > t->context - from)
        return 0;
    if (from < t->count)
        specdec__draft_rank_truncate(t, from);
    for (i = 0; i < n; i++) { /* the target may have tokens that the draft model has not */
        const uint32_t token = specdec__wire_read_word(in);

        t->tokens[t->count++] = token < (uint32_t)vocab ? (int32_t)token : 0;
    }
    if (n && p->request.count && p->request.count == from)
        specdec__draft_rank_accept_tokens(t, n);
    return 1;
}

/* Obeys rank 0's order that sets the sampling of a sequence. Returns 0 if the order is not valid. */
static int specdec__draft_rank_obey_sampling_order(specdec *t, specdec__wire_reader *in)
{
    uint32_t words[SPECDEC__SAMPLE_WORDS];
    specdec_sampling s;
    int i;

    memset(&s, 0, sizeof s);
    s.temperature = specdec__float_from_bits(specdec__wire_read_word(in));
    s.top_k = (int32_t)specdec__wire_read_word(in);
    s.top_p = specdec__float_from_bits(specdec__wire_read_word(in));
    s.min_p = specdec__float_from_bits(specdec__wire_read_word(in));
    s.repetition_penalty = specdec__float_from_bits(specdec__wire_read_word(in));
    s.repetition_window = (int32_t)specdec__wire_read_word(in);
    s.seed = specdec__wire_read_word(in);
    s.seed |= (uint64_t)specdec__wire_read_word(in) << 32;
    for (i = 0; i < SPECDEC__SAMPLE_WORDS; i++)
        words[i] = specdec__wire_read_word(in);
    specdec__sample_copy_settings_as_words(&s, words, 1);
    if (in->bad || in->left || specdec__sample_check_settings(&s, NULL))
        return 0;
    t->settings.sampling = s;
    return 1;
}

/* Obeys rank 0's order (other, count): a sequence begins with the first `count` tokens of another one. Returns 0 if the
   order is not valid. */
static int specdec__draft_rank_obey_fork_order(specdec *t, specdec__wire_reader *in)
{
    specdec__drafter *d = &t->engine->drafters[0];
    const specdec *other = &t->engine->sequences[specdec__wire_read_int(in, 0, t->engine->room.max_views - 1)];
    const int count = specdec__wire_read_int(in, 0, other->count);

    if (in->bad || in->left || other == t)
        return 0;
    specdec__draft_rank_truncate(t, 0);
    if (d->kind.share_prefix)
        d->kind.share_prefix(d, t->at, other->at, count);
    memcpy(t->tokens, other->tokens, (size_t)count * sizeof *t->tokens);
    t->count = count;
    return 1;
}

/* Functions that obey the orders of rank 0, by kind, from SPECDEC__WIRE_ORDER_TOKENS on: each returns 0 if its order is
   not valid. */
static const struct {
    int (*obey)(specdec *t, specdec__wire_reader *in);
} specdec__draft_rank_table[] = {{specdec__draft_rank_obey_tokens_order}, {specdec__draft_rank_obey_sampling_order},
                                 {specdec__draft_rank_obey_fork_order}};

/* Obeys the order of rank 0 that was received into link->messages.in; an order that is not valid ends the cluster. */
static void specdec__draft_rank_obey_order(specdec__engine *e)
{
    specdec__link *link = e->link;
    specdec__wire_reader in = {link->messages.in + 4 * SPECDEC__WIRE_HEADER_WORDS, 0, 0};
    const uint32_t rows = specdec__wire_get_word(link->messages.in, SPECDEC__WIRE_ROWS);
    uint32_t head, kind, epoch;
    int view, valid;

    in.left = (int)specdec__wire_get_word(link->messages.in, SPECDEC__WIRE_ORDER_WORDS);
    head = specdec__wire_read_word(&in);
    kind = head & 255;
    valid = !rows && !in.bad && head >> 8 == (uint32_t)in.left;
    view = specdec__wire_read_int(&in, 0, e->room.max_views - 1);
    epoch = specdec__wire_read_word(&in);
    if (valid && !in.bad && kind >= SPECDEC__WIRE_ORDER_TOKENS && kind <= SPECDEC__WIRE_ORDER_FORK) {
        if (e->link->draft_rank->sequences[view].epoch != epoch)
            specdec__draft_rank_truncate(&e->sequences[view], e->sequences[view].count);
        e->link->draft_rank->sequences[view].epoch = epoch;
        valid = specdec__draft_rank_table[kind - SPECDEC__WIRE_ORDER_TOKENS].obey(&e->sequences[view], &in);
    } else {
        valid &= !in.bad && kind == SPECDEC__WIRE_ORDER_END;
        link->ended |= valid;
    }
    if (!valid)
        specdec__link_reject_message(link, 0, "orders that make no sense");
}

/* Keeps, of the candidates of a tree from number `from` on, each parent's first child and all children that are
   probable enough. The other candidates are neither sent nor extended. */
static void specdec__draft_rank_prune_candidates(specdec__draft_tree *drafts, int from)
{
    int i, n = from;

    for (i = from; i < drafts->tree.n; i++) {
        if (drafts->tree.ranks[i] > 1 && drafts->share[i] < SPECDEC__DRAFT_RANK_LEAST_SHARE)
            continue;
        specdec__tree_put_node(&drafts->tree, n, drafts->tree.parents[i], drafts->tree.ranks[i]);
        drafts->tokens[n] = drafts->tokens[i];
        drafts->depth[n] = drafts->depth[i];
        drafts->share[n] = drafts->share[i];
        drafts->extended[n++] = 0;
    }
    drafts->tree.n = n;
}

/* Sends rank 0 the children of the `count` chosen candidates. These children are the candidates from `from` on. */
static void specdec__draft_rank_send_children(specdec *t, int count, int from)
{
    specdec__engine *e = t->engine;
    const specdec__proposal *p = specdec__draft_rank_proposal(t);
    specdec__draft_rank *g = e->link->draft_rank;
    specdec__draft_rank_sequence *own = &g->sequences[t->at];
    unsigned char message[4 * SPECDEC__WIRE_URGENT_WORDS], *words = message + 4 * SPECDEC__WIRE_HEADER_WORDS, *head;
    int i, k, n, at = 4;

    memset(message, 0, sizeof message);
    if (own->root_unsent)
        own->numbers[0] = g->number++;
    specdec__wire_put_word(words, 0, (uint32_t)t->at);
    specdec__wire_put_word(words, 1, own->epoch);
    specdec__wire_put_word(words, 2, own->root_unsent ? (uint32_t)t->count : 0);
    specdec__wire_put_word(words, 3, g->number);
    own->root_unsent = 0;
    for (i = 0; i < count; i++) {
        const uint32_t back = g->number - own->numbers[p->frontier.chosen[i]];

        head = words + 4 * (size_t)at;
        for (k = from, n = 0; k < p->drafts.tree.n; k++) {
            if (p->drafts.tree.parents[k] != p->frontier.chosen[i])
                continue;
            own->numbers[k] = g->number++;
            specdec__wire_put_word(head, ++n,
                                   (uint32_t)p->drafts.tokens[k] | (uint32_t)(255 * p->drafts.share[k] + 0.5f) << 24);
        }
        if (n)
            specdec__wire_put_word(head, 0, back << 4 | (uint32_t)n);
        at += n ? 1 + n : 0;
    }
    specdec__link_send(e->link, 0, SPECDEC__WIRE_DRAFT_TOKENS, message, at, 0, 0);
}

/* Expands the most probable draft tokens of a sequence by a draft run, and sends their children to rank 0. Returns 0 if
   no draft token is probable enough, or there is no room. */
static int specdec__draft_rank_extend_tree(specdec *t)
{
    specdec__engine *e = t->engine;
    specdec__async_drafting *a = e->async_drafting;
    specdec__proposal *p = specdec__draft_rank_proposal(t);
    specdec__draft_rank_sequence *own = &e->link->draft_rank->sequences[t->at];
    const specdec__tune_drafter *known = &e->tune->drafters[0];
    specdec_result result;
    int i, count, from, expanded = 0;

    if (!t->count || own->full_at == t->count)
        return 0;
    if (p->request.count != t->count)
        specdec__draft_rank_begin_tree(t);
    for (i = 1; i < p->drafts.tree.n; i++)
        expanded += p->drafts.extended[i];
    if (expanded + a->width > specdec__min_int(SPECDEC__DRAFT_RANK_MAX_EXPANDED, a->nodes))
        return 0;
    a->cutoff = SPECDEC__ASYNC_CUTOFF;
    count = specdec__async_choose_draft_tokens(a, p, 1);
    from = p->drafts.tree.n;
    if (!count)
        return 0;
    result = specdec__async_extend_draft_tokens(a, p, known, count, &t->error);
    if (result) {
        own->full_at = result == SPECDEC_ERROR_CANCELLED ? 0 : t->count;
        p->frontier.valid_at = p->request.count = 0;
        return 0;
    }
    specdec__draft_rank_prune_candidates(&p->drafts, from);
    specdec__tune_set_path_probabilities(known, &p->drafts, &p->frontier, from, a->levels);
    specdec__draft_rank_send_children(t, count, from);
    return 1;
}

/* Returns the next sequence, after the current one, whose root was not expanded yet; NULL: there is none. */
static specdec *specdec__draft_rank_find_unexpanded_sequence(const specdec__engine *e)
{
    const specdec__draft_rank *g = e->link->draft_rank;
    const int first = g->sequence ? g->sequence->at + 1 : 0;
    int i;

    for (i = 0; i < e->room.max_views; i++) {
        specdec *t = &e->sequences[(first + i) % e->room.max_views];

        if (t != g->sequence && t->count && specdec__draft_rank_proposal(t)->request.count != t->count &&
            g->sequences[t->at].full_at != t->count)
            return t;
    }
    return NULL;
}

/* Makes a draft run for the current sequence; for another sequence if one waits and the current one has had tree_depth
   runs. Returns 0 if no sequence has draft tokens to expand. */
static int specdec__draft_rank_make_draft_run(specdec__engine *e)
{
    specdec__draft_rank *g = e->link->draft_rank;
    specdec *next = g->sequence && g->runs < e->config.tree_depth ? NULL
                    : specdec__draft_rank_find_unexpanded_sequence(e);
    int drafted = g->sequence && !next && specdec__draft_rank_extend_tree(g->sequence);

    next = drafted || next ? next : specdec__draft_rank_find_unexpanded_sequence(e);
    if (next) {
        if (g->sequence) /* its tree is given up */
            specdec__draft_rank_proposal(g->sequence)->frontier.valid_at = 0;
        g->sequence = next;
        g->runs = 0;
        drafted = specdec__draft_rank_extend_tree(next);
    }
    g->runs += drafted;
    e->link->counts.runs += drafted;
    return drafted;
}

/* Serves rank 0: drafts for its sequences until it ends, or an error. */
static specdec_result specdec__draft_rank_serve(specdec__engine *e)
{
    specdec__link *link = e->link;

    while (!link->ended) {
        const double start = specdec__os_monotonic_seconds();

        specdec__link_handle_urgent_messages(link);
        if (link->failed.code)
            return link->failed.code;
        SPECDEC__STORE(&link->own.cancel, 0);
        if (specdec__link_receive_message(link, 0, SPECDEC__WIRE_ORDERS))
            specdec__draft_rank_obey_order(e);
        else if (!link->failed.code && specdec__draft_rank_make_draft_run(e))
            link->counts.seconds += specdec__os_monotonic_seconds() - start;
        else if (!link->failed.code)
            specdec__link_wait_for_message(link, SPECDEC__WIRE_WAIT_SECONDS);
    }
    return SPECDEC_DONE;
}

SPECDEC__FOR_SPEED
