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

#define SPECDEC__GUESSER_SHARE 0.02f /* what is less likely behind its parent is not guessed by a draft rank */
#define SPECDEC__GUESSER_LIVE 32 /* guesses that a draft rank has gone on from and that may come true, at most */

/* What a rank that only drafts knows of a text. */
typedef struct specdec__guesser_text {
    uint32_t *numbers; /* (candidates): by which rank 0 knows them; 0: was not told */
    uint32_t epoch;    /* that rank 0 is in */
    int fresh;         /* the root is one of which rank 0 was not told yet */
    int full;          /* there was no room for guesses behind so many tokens */
} specdec__guesser_text;

/* What a rank has that only drafts. */
typedef struct specdec__guesser {
    specdec__guesser_text *sequences; /* (texts) */
    uint32_t number;         /* of the next guess */
    specdec *text;           /* the draft model's context holds the nodes of its tree alone; NULL: of none */
    int runs;                /* that were made for it since its turn came */
} specdec__guesser;

SPECDEC__FOR_SIZE

/* What a rank needs that only drafts. */
static void specdec__guesser_take(specdec__engine *e, specdec__arena *arena)
{
    const int candidates = specdec__engine_candidates(e, e->drafters[0].kind);
    specdec__guesser *guesser = SPECDEC__TAKE(arena, specdec__guesser, 1);
    specdec__guesser_text *texts = SPECDEC__TAKE(arena, specdec__guesser_text, e->room.views);
    int i;

    for (i = 0; i < e->room.views; i++) {
        uint32_t *numbers = SPECDEC__TAKE(arena, uint32_t, candidates);

        if (texts)
            texts[i].numbers = numbers;
    }
    if (!guesser)
        return;
    guesser->sequences = texts;
    guesser->number = 1;
    e->link->guesser = guesser;
}

static specdec__proposal *specdec__guesser_proposal(const specdec *t)
{
    return &t->engine->drafters[0].proposals[t->at];
}

/* Nothing that was guessed behind a text holds. Its first count tokens stay. */
static void specdec__guesser_cut(specdec *t, int count)
{
    specdec__drafter *d = &t->engine->drafters[0];
    specdec__proposal *p = specdec__guesser_proposal(t);

    if (count < t->count)
        d->kind->truncate(d, t->at, t->tokens, count);
    p->valid_at = p->count = 0;
    t->count = count;
    t->engine->link->guesser->sequences[t->at].full = 0;
}

/* Guesses begin behind the text, or go on where some stayed. */
static void specdec__guesser_begin(specdec *t)
{
    specdec__engine *e = t->engine;
    specdec__proposal *p = specdec__guesser_proposal(t);

    specdec__draft_begin(p, t->tokens, t->count, &t->settings.sampling, SPECDEC_RULE_COUPLED);
    specdec__tune_paths(&e->tune->drafters[0], p, 1, e->ahead->levels);
    e->link->guesser->sequences[t->at].fresh = !p->valid_at;
    p->grows = p->shares = 1;
}

/* The text has got its last n tokens: what was guessed behind them stays. How the guesses fared is noted. */
static void specdec__guesser_settle(specdec *t, int n)
{
    specdec__engine *e = t->engine;
    specdec__proposal *p = specdec__guesser_proposal(t);
    uint32_t *numbers = e->link->guesser->sequences[t->at].numbers;
    const int32_t *tokens = t->tokens + t->count - n;
    const int known = p->tree.n;
    int32_t path[SPECDEC__MAX_TREE + 1];
    const int length = specdec__ahead_path(&p->tree, p->tokens, tokens, n, path);
    int i;

    memset(p->place, -1, (size_t)known * sizeof *p->place);
    for (i = 0; i < n && i <= length; i++)
        specdec__tune_note(&e->tune->drafters[0], p, i ? path[i - 1] : 0, -1, tokens[i]);
    specdec__tune_decay(e->tune);
    if (e->link->guesser->text == t)
        specdec__ahead_settle(t, tokens, n);
    else if (p->extended[0])
        e->drafters[0].kind->commit(&e->drafters[0], p, path, length);
    for (i = 0; p->valid_at && i < known; i++) /* candidates that stay have moved to the front */
        if (p->place[i] >= 0)
            numbers[p->place[i]] = numbers[i];
    p->count = 0;
    if (p->valid_at)
        specdec__guesser_begin(t);
}

/* A text goes on: (from, tokens...). Returns 0 when that makes no sense. */
static int specdec__guesser_hear_text(specdec *t, specdec__wire_reader *in)
{
    const specdec__proposal *p = specdec__guesser_proposal(t);
    const int from = specdec__wire_int(in, 0, t->count), n = in->left, vocab = t->engine->target_model->vocab_size;
    int i;

    if (in->bad || n > t->context - from)
        return 0;
    if (from < t->count)
        specdec__guesser_cut(t, from);
    for (i = 0; i < n; i++) { /* the target may have tokens that the draft model has not */
        const uint32_t token = specdec__wire_word(in);

        t->tokens[t->count++] = token < (uint32_t)vocab ? (int32_t)token : 0;
    }
    if (n && p->count && p->count == from)
        specdec__guesser_settle(t, n);
    return 1;
}

/* How the tokens of a text are chosen. Returns 0 when that makes no sense. */
static int specdec__guesser_hear_sampling(specdec *t, specdec__wire_reader *in)
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

/* A text begins as another one does: (other, count). Returns 0 when that makes no sense. */
static int specdec__guesser_hear_branch(specdec *t, specdec__wire_reader *in)
{
    specdec__drafter *d = &t->engine->drafters[0];
    const specdec *other = &t->engine->sequences[specdec__wire_int(in, 0, t->engine->room.views - 1)];
    const int count = specdec__wire_int(in, 0, other->count);

    if (in->bad || in->left || other == t)
        return 0;
    specdec__guesser_cut(t, 0);
    if (d->kind->share)
        d->kind->share(d, t->at, other->at, count);
    memcpy(t->tokens, other->tokens, (size_t)count * sizeof *t->tokens);
    t->count = count;
    return 1;
}

static const struct {
    int (*hear)(specdec *t, specdec__wire_reader *in);
} specdec__guesser_table[] = {{specdec__guesser_hear_text}, {specdec__guesser_hear_sampling},
                              {specdec__guesser_hear_branch}};

/* Obeys a message of rank 0, which is one order. */
static void specdec__guesser_obey(specdec__engine *e)
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
    view = specdec__wire_int(&in, 0, e->room.views - 1);
    epoch = specdec__wire_word(&in);
    if (sane && !in.bad && kind >= SPECDEC__WIRE_TEXT && kind <= SPECDEC__WIRE_BRANCH) {
        if (e->link->guesser->sequences[view].epoch != epoch)
            specdec__guesser_cut(&e->sequences[view], e->sequences[view].count);
        e->link->guesser->sequences[view].epoch = epoch;
        sane = specdec__guesser_table[kind - SPECDEC__WIRE_TEXT].hear(&e->sequences[view], &in);
    } else {
        sane &= !in.bad && kind == SPECDEC__WIRE_END;
        link->ended |= sane;
    }
    if (!sane)
        specdec__link_nonsense(link, 0, "orders that make no sense");
}

/* Of what may follow candidates, which lies from candidate `from` on, leaves the first behind each and those that are
   likely enough: nobody but rank 0 can go on from others, and it does not hear of them. */
static void specdec__guesser_prune(specdec__proposal *p, int from)
{
    int i, n = from;

    for (i = from; i < p->tree.n; i++) {
        if (p->tree.ranks[i] > 1 && p->share[i] < SPECDEC__GUESSER_SHARE)
            continue;
        specdec__tree_put(&p->tree, n, p->tree.parents[i], p->tree.ranks[i]);
        p->tokens[n] = p->tokens[i];
        p->depth[n] = p->depth[i];
        p->share[n] = p->share[i];
        p->probability[n] = p->probability[i];
        p->extended[n++] = 0;
    }
    p->tree.n = n;
}

/* Sends what may follow the count chosen candidates: that lies from candidate `from` on. */
static void specdec__guesser_send(specdec *t, int count, int from)
{
    specdec__engine *e = t->engine;
    const specdec__proposal *p = specdec__guesser_proposal(t);
    specdec__guesser *g = e->link->guesser;
    specdec__guesser_text *own = &g->sequences[t->at];
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
        const uint32_t back = g->number - own->numbers[p->chosen[i]];

        head = words + 4 * (size_t)at;
        for (k = from, n = 0; k < p->tree.n; k++) {
            if (p->tree.parents[k] != p->chosen[i])
                continue;
            own->numbers[k] = g->number++;
            specdec__wire_put(head, ++n, (uint32_t)p->tokens[k] | (uint32_t)(255 * p->share[k] + 0.5f) << 24);
        }
        if (n)
            specdec__wire_put(head, 0, back << 4 | (uint32_t)n);
        at += n ? 1 + n : 0;
    }
    specdec__link_send(e->link, 0, SPECDEC__WIRE_GUESSES, message, at, 0, 0);
}

/* Goes on from the likeliest guesses behind a text. Returns 0 when none is likely enough, or there is no room. */
static int specdec__guesser_extend(specdec *t)
{
    specdec__engine *e = t->engine;
    specdec__ahead *a = e->ahead;
    specdec__proposal *p = specdec__guesser_proposal(t);
    specdec__guesser_text *own = &e->link->guesser->sequences[t->at];
    const specdec__tune_drafter *known = &e->tune->drafters[0];
    specdec_result result;
    int i, count, from, live = 0;

    if (!t->count || own->full == t->count)
        return 0;
    if (p->count != t->count)
        specdec__guesser_begin(t);
    for (i = 1; i < p->tree.n; i++)
        live += p->extended[i];
    if (live + a->width > specdec__min_int(SPECDEC__GUESSER_LIVE, a->nodes))
        return 0;
    a->cutoff = SPECDEC__AHEAD_CUTOFF;
    count = specdec__ahead_choose(a, p, 1);
    from = p->tree.n;
    if (!count)
        return 0;
    result = specdec__ahead_extend(a, p, known, count, &t->error);
    if (result) {
        own->full = result == SPECDEC_ERROR_CANCELLED ? 0 : t->count;
        p->valid_at = p->count = 0;
        return 0;
    }
    specdec__guesser_prune(p, from);
    specdec__guesser_send(t, count, from);
    return 1;
}

/* The next text behind whose last token nothing was guessed yet; NULL: there is none. */
static specdec *specdec__guesser_next(const specdec__engine *e)
{
    const specdec__guesser *g = e->link->guesser;
    const int first = g->text ? g->text->at + 1 : 0;
    int i;

    for (i = 0; i < e->room.views; i++) {
        specdec *t = &e->sequences[(first + i) % e->room.views];

        if (t != g->text && t->count && specdec__guesser_proposal(t)->count != t->count &&
            g->sequences[t->at].full != t->count)
            return t;
    }
    return NULL;
}

/* Goes on with a text: another one when that waits and this one had its turn. Returns 0 when there is none. */
static int specdec__guesser_work(specdec__engine *e)
{
    specdec__guesser *g = e->link->guesser;
    specdec *next = g->text && g->runs < e->config.tree_depth ? NULL : specdec__guesser_next(e);
    int went = g->text && !next && specdec__guesser_extend(g->text);

    next = went || next ? next : specdec__guesser_next(e);
    if (next) {
        if (g->text) /* its tree is left behind */
            specdec__guesser_proposal(g->text)->valid_at = 0;
        g->text = next;
        g->runs = 0;
        went = specdec__guesser_extend(next);
    }
    g->runs += went;
    e->link->runs += went;
    return went;
}

/* Guesses what follows the texts that rank 0 tells of, until that ends or something fails. */
static specdec_result specdec__guesser_serve(specdec__engine *e)
{
    specdec__link *link = e->link;

    while (!link->ended) {
        const double start = specdec__os_seconds();

        specdec__link_poll(link);
        if (link->failed.code)
            return link->failed.code;
        SPECDEC__STORE(&link->stop, 0);
        if (specdec__link_receive(link, 0, SPECDEC__WIRE_ORDERS))
            specdec__guesser_obey(e);
        else if (!link->failed.code && specdec__guesser_work(e))
            link->working += specdec__os_seconds() - start;
        else if (!link->failed.code)
            specdec__link_wait(link, SPECDEC__WIRE_PAUSE);
    }
    return SPECDEC_DONE;
}

SPECDEC__FOR_SPEED
