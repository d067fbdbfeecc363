/* =====================================================================================================================
 * >>cluster/draft_rank: the loop of a rank that only drafts.
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

#define SPECDEC__DRAFT_RANK_SHARE 0.02f /* draft tokens less probable behind their parent are left out */
#define SPECDEC__DRAFT_RANK_LIVE 32 /* draft tokens that a draft rank has expanded and that may be accepted, at most */

/* A sequence of rank 0, on the rank that only drafts. */
typedef struct specdec__draft_rank_text {
    uint32_t *numbers; /* (candidates): their numbers on rank 0; 0: not sent */
    uint32_t epoch;    /* of rank 0's last order: it changes when draft tokens are dropped */
    int fresh;         /* 1: the root was not sent to rank 0 yet */
    int full;          /* count at which the cache had no room for draft tokens */
} specdec__draft_rank_text;

/* The state of a rank that only drafts. */
typedef struct specdec__draft_rank {
    specdec__draft_rank_text *sequences; /* (texts) */
    uint32_t number;         /* of the next draft token */
    specdec *text;           /* whose tree the draft model's context holds; NULL: no tree */
    int runs;                /* draft runs for the sequence since it was chosen */
} specdec__draft_rank;

SPECDEC__FOR_SIZE

/* Takes the memory of a rank that only drafts from an arena. */
static void specdec__draft_rank_take(specdec__engine *e, specdec__arena *arena)
{
    const int candidates = specdec__engine_candidates(e, &e->drafters[0].kind);
    specdec__draft_rank *draft_rank = SPECDEC__TAKE(arena, specdec__draft_rank, 1);
    specdec__draft_rank_text *texts = SPECDEC__TAKE(arena, specdec__draft_rank_text, e->room.max_views);
    int i;

    for (i = 0; i < e->room.max_views; i++) {
        uint32_t *numbers = SPECDEC__TAKE(arena, uint32_t, candidates);

        if (texts)
            texts[i].numbers = numbers;
    }
    if (!draft_rank)
        return;
    draft_rank->sequences = texts;
    draft_rank->number = 1;
    e->link->draft_rank = draft_rank;
}

static specdec__proposal *specdec__draft_rank_proposal(const specdec *t)
{
    return &t->engine->drafters[0].proposals[t->at];
}

/* Drops all draft tokens of a sequence, and its tokens behind the first `count`. */
static void specdec__draft_rank_cut(specdec *t, int count)
{
    specdec__drafter *d = &t->engine->drafters[0];
    specdec__proposal *p = specdec__draft_rank_proposal(t);

    if (count < t->count)
        d->kind.truncate(d, t->at, t->tokens, count);
    p->frontier.valid_at = p->request.count = 0;
    t->count = count;
    t->engine->link->draft_rank->sequences[t->at].full = 0;
}

/* Begins a tree behind the sequence, or continues with the draft tokens that were kept. */
static void specdec__draft_rank_begin(specdec *t)
{
    specdec__engine *e = t->engine;
    specdec__proposal *p = specdec__draft_rank_proposal(t);

    specdec__draft_begin(p, t->tokens, t->count, &t->settings.sampling, SPECDEC_RULE_COUPLED);
    specdec__tune_paths(&e->tune->drafters[0], &p->drafts, &p->frontier, 1, e->ahead->levels);
    e->link->draft_rank->sequences[t->at].fresh = !p->frontier.valid_at;
    p->frontier.grows = p->frontier.shares = 1;
}

/* The sequence has got its last n tokens from rank 0: keeps the draft tokens behind them, and counts which draft tokens
   were accepted. */
static void specdec__draft_rank_settle(specdec *t, int n)
{
    specdec__engine *e = t->engine;
    specdec__proposal *p = specdec__draft_rank_proposal(t);
    uint32_t *numbers = e->link->draft_rank->sequences[t->at].numbers;
    const int32_t *tokens = t->tokens + t->count - n;
    const int known = p->drafts.tree.n;
    int32_t path[SPECDEC__MAX_TREE + 1];
    const int length = specdec__ahead_path(&p->drafts.tree, p->drafts.tokens, tokens, n, path);
    int i;

    memset(p->outcome.place, -1, (size_t)known * sizeof *p->outcome.place);
    for (i = 0; i < n && i <= length; i++)
        specdec__tune_note(&e->tune->drafters[0], p, i ? path[i - 1] : 0, -1, tokens[i]);
    specdec__tune_decay(e->tune);
    if (e->link->draft_rank->text == t)
        specdec__ahead_settle(t, tokens, n);
    else if (p->drafts.extended[0])
        e->drafters[0].kind.commit(&e->drafters[0], t->at, path, length);
    for (i = 0; p->frontier.valid_at && i < known; i++) /* candidates that stay have moved to the front */
        if (p->drafts.moved[i] >= 0)
            numbers[p->drafts.moved[i]] = numbers[i];
    p->request.count = 0;
    if (p->frontier.valid_at)
        specdec__draft_rank_begin(t);
}

/* Obeys the order (from, tokens...): tokens of a sequence. Returns 0 if the order is not valid. */
static int specdec__draft_rank_hear_text(specdec *t, specdec__wire_reader *in)
{
    const specdec__proposal *p = specdec__draft_rank_proposal(t);
    const int from = specdec__wire_int(in, 0, t->count), n = in->left, vocab = t->engine->target_model->vocab_size;
    int i;

    if (in->bad || n > t->context - from)
        return 0;
    if (from < t->count)
        specdec__draft_rank_cut(t, from);
    for (i = 0; i < n; i++) { /* the target may have tokens that the draft model has not */
        const uint32_t token = specdec__wire_word(in);

        t->tokens[t->count++] = token < (uint32_t)vocab ? (int32_t)token : 0;
    }
    if (n && p->request.count && p->request.count == from)
        specdec__draft_rank_settle(t, n);
    return 1;
}

/* Obeys the order that sets the sampling of a sequence. Returns 0 if the order is not valid. */
static int specdec__draft_rank_hear_sampling(specdec *t, specdec__wire_reader *in)
{
    uint32_t words[SPECDEC__SAMPLE_WORDS];
    specdec_sampling s;
    int i;

    memset(&s, 0, sizeof s);
    s.temperature = specdec__float_from_bits(specdec__wire_word(in));
    s.top_k = (int32_t)specdec__wire_word(in);
    s.top_p = specdec__float_from_bits(specdec__wire_word(in));
    s.min_p = specdec__float_from_bits(specdec__wire_word(in));
    s.repetition_penalty = specdec__float_from_bits(specdec__wire_word(in));
    s.repetition_window = (int32_t)specdec__wire_word(in);
    s.seed = specdec__wire_word(in);
    s.seed |= (uint64_t)specdec__wire_word(in) << 32;
    for (i = 0; i < SPECDEC__SAMPLE_WORDS; i++)
        words[i] = specdec__wire_word(in);
    specdec__sample_convert_words(&s, words, 1);
    if (in->bad || in->left || specdec__sample_check(&s, NULL))
        return 0;
    t->settings.sampling = s;
    return 1;
}

/* Obeys the order (other, count): a sequence begins with the first tokens of another one. Returns 0 if the order is not
   valid. */
static int specdec__draft_rank_hear_branch(specdec *t, specdec__wire_reader *in)
{
    specdec__drafter *d = &t->engine->drafters[0];
    const specdec *other = &t->engine->sequences[specdec__wire_int(in, 0, t->engine->room.max_views - 1)];
    const int count = specdec__wire_int(in, 0, other->count);

    if (in->bad || in->left || other == t)
        return 0;
    specdec__draft_rank_cut(t, 0);
    if (d->kind.share)
        d->kind.share(d, t->at, other->at, count);
    memcpy(t->tokens, other->tokens, (size_t)count * sizeof *t->tokens);
    t->count = count;
    return 1;
}

static const struct {
    int (*hear)(specdec *t, specdec__wire_reader *in);
} specdec__draft_rank_table[] = {{specdec__draft_rank_hear_text}, {specdec__draft_rank_hear_sampling},
                                 {specdec__draft_rank_hear_branch}};

/* Obeys an order of rank 0. */
static void specdec__draft_rank_obey(specdec__engine *e)
{
    specdec__link *link = e->link;
    specdec__wire_reader in = {link->in + 4 * SPECDEC__WIRE_HEAD, 0, 0};
    const uint32_t rows = specdec__wire_get(link->in, SPECDEC__WIRE_ROWS);
    uint32_t head, kind, epoch;
    int view, sane;

    in.left = (int)specdec__wire_get(link->in, SPECDEC__WIRE_WORDS);
    head = specdec__wire_word(&in);
    kind = head & 255;
    sane = !rows && !in.bad && head >> 8 == (uint32_t)in.left;
    view = specdec__wire_int(&in, 0, e->room.max_views - 1);
    epoch = specdec__wire_word(&in);
    if (sane && !in.bad && kind >= SPECDEC__WIRE_TEXT && kind <= SPECDEC__WIRE_BRANCH) {
        if (e->link->draft_rank->sequences[view].epoch != epoch)
            specdec__draft_rank_cut(&e->sequences[view], e->sequences[view].count);
        e->link->draft_rank->sequences[view].epoch = epoch;
        sane = specdec__draft_rank_table[kind - SPECDEC__WIRE_TEXT].hear(&e->sequences[view], &in);
    } else {
        sane &= !in.bad && kind == SPECDEC__WIRE_END;
        link->ended |= sane;
    }
    if (!sane)
        specdec__link_nonsense(link, 0, "orders that make no sense");
}

/* Of the children from candidate `from` on, keeps the first child of each parent and those that are probable enough.
   The others are not sent, and will not be extended. */
static void specdec__draft_rank_prune(specdec__draft_tree *drafts, int from)
{
    int i, n = from;

    for (i = from; i < drafts->tree.n; i++) {
        if (drafts->tree.ranks[i] > 1 && drafts->share[i] < SPECDEC__DRAFT_RANK_SHARE)
            continue;
        specdec__tree_put(&drafts->tree, n, drafts->tree.parents[i], drafts->tree.ranks[i]);
        drafts->tokens[n] = drafts->tokens[i];
        drafts->depth[n] = drafts->depth[i];
        drafts->share[n] = drafts->share[i];
        drafts->extended[n++] = 0;
    }
    drafts->tree.n = n;
}

/* Sends to rank 0 the children of the `count` chosen candidates, which begin at candidate `from`. */
static void specdec__draft_rank_send(specdec *t, int count, int from)
{
    specdec__engine *e = t->engine;
    const specdec__proposal *p = specdec__draft_rank_proposal(t);
    specdec__draft_rank *g = e->link->draft_rank;
    specdec__draft_rank_text *own = &g->sequences[t->at];
    unsigned char message[4 * SPECDEC__WIRE_URGENT], *words = message + 4 * SPECDEC__WIRE_HEAD, *head;
    int i, k, n, at = 4;

    memset(message, 0, sizeof message);
    if (own->fresh)
        own->numbers[0] = g->number++;
    specdec__wire_put(words, 0, (uint32_t)t->at);
    specdec__wire_put(words, 1, own->epoch);
    specdec__wire_put(words, 2, own->fresh ? (uint32_t)t->count : 0);
    specdec__wire_put(words, 3, g->number);
    own->fresh = 0;
    for (i = 0; i < count; i++) {
        const uint32_t back = g->number - own->numbers[p->frontier.chosen[i]];

        head = words + 4 * (size_t)at;
        for (k = from, n = 0; k < p->drafts.tree.n; k++) {
            if (p->drafts.tree.parents[k] != p->frontier.chosen[i])
                continue;
            own->numbers[k] = g->number++;
            specdec__wire_put(head, ++n,
                              (uint32_t)p->drafts.tokens[k] | (uint32_t)(255 * p->drafts.share[k] + 0.5f) << 24);
        }
        if (n)
            specdec__wire_put(head, 0, back << 4 | (uint32_t)n);
        at += n ? 1 + n : 0;
    }
    specdec__link_send(e->link, 0, SPECDEC__WIRE_GUESSES, message, at, 0, 0);
}

/* Extends the most probable draft tokens of a sequence. Returns 0 if none is probable enough, or there is no room. */
static int specdec__draft_rank_extend(specdec *t)
{
    specdec__engine *e = t->engine;
    specdec__ahead *a = e->ahead;
    specdec__proposal *p = specdec__draft_rank_proposal(t);
    specdec__draft_rank_text *own = &e->link->draft_rank->sequences[t->at];
    const specdec__tune_drafter *known = &e->tune->drafters[0];
    specdec_result result;
    int i, count, from, live = 0;

    if (!t->count || own->full == t->count)
        return 0;
    if (p->request.count != t->count)
        specdec__draft_rank_begin(t);
    for (i = 1; i < p->drafts.tree.n; i++)
        live += p->drafts.extended[i];
    if (live + a->width > specdec__min_int(SPECDEC__DRAFT_RANK_LIVE, a->nodes))
        return 0;
    a->cutoff = SPECDEC__AHEAD_CUTOFF;
    count = specdec__ahead_choose(a, p, 1);
    from = p->drafts.tree.n;
    if (!count)
        return 0;
    result = specdec__ahead_extend(a, p, known, count, &t->error);
    if (result) {
        own->full = result == SPECDEC_ERROR_CANCELLED ? 0 : t->count;
        p->frontier.valid_at = p->request.count = 0;
        return 0;
    }
    specdec__draft_rank_prune(&p->drafts, from);
    specdec__tune_paths(known, &p->drafts, &p->frontier, from, a->levels);
    specdec__draft_rank_send(t, count, from);
    return 1;
}

/* The next sequence whose root was not extended yet; NULL: there is none. */
static specdec *specdec__draft_rank_next(const specdec__engine *e)
{
    const specdec__draft_rank *g = e->link->draft_rank;
    const int first = g->text ? g->text->at + 1 : 0;
    int i;

    for (i = 0; i < e->room.max_views; i++) {
        specdec *t = &e->sequences[(first + i) % e->room.max_views];

        if (t != g->text && t->count && specdec__draft_rank_proposal(t)->request.count != t->count &&
            g->sequences[t->at].full != t->count)
            return t;
    }
    return NULL;
}

/* Makes a draft run for a sequence; for another one if that waits and this one has had its runs. Returns 0 if there is
   nothing to draft. */
static int specdec__draft_rank_work(specdec__engine *e)
{
    specdec__draft_rank *g = e->link->draft_rank;
    specdec *next = g->text && g->runs < e->config.tree_depth ? NULL : specdec__draft_rank_next(e);
    int went = g->text && !next && specdec__draft_rank_extend(g->text);

    next = went || next ? next : specdec__draft_rank_next(e);
    if (next) {
        if (g->text) /* its tree is left behind */
            specdec__draft_rank_proposal(g->text)->frontier.valid_at = 0;
        g->text = next;
        g->runs = 0;
        went = specdec__draft_rank_extend(next);
    }
    g->runs += went;
    e->link->runs += went;
    return went;
}

/* Drafts for the sequences of rank 0 until rank 0 ends, or an error. */
static specdec_result specdec__draft_rank_serve(specdec__engine *e)
{
    specdec__link *link = e->link;

    while (!link->ended) {
        const double start = specdec__os_seconds();

        specdec__link_poll(link);
        if (link->failed.code)
            return link->failed.code;
        SPECDEC__STORE(&link->stop, 0);
        if (specdec__link_receive(link, 0, SPECDEC__WIRE_ORDERS))
            specdec__draft_rank_obey(e);
        else if (!link->failed.code && specdec__draft_rank_work(e))
            link->working += specdec__os_seconds() - start;
        else if (!link->failed.code)
            specdec__link_wait(link, SPECDEC__WIRE_PAUSE);
    }
    return SPECDEC_DONE;
}

SPECDEC__FOR_SPEED
