/* =====================================================================================================================
 * >>speculation/tune: what steps cost and how draft tokens fare, measured while running; which tree pays best now.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "tree.h"
#include "draft.h"

SPECDEC__FOR_SIZE

#define SPECDEC__TUNE_RANKS 8   /* acceptance is told apart for that many ranks */
#define SPECDEC__TUNE_BINS 10   /* and by tenths of what the drafter thought */
#define SPECDEC__TUNE_BEHIND 8  /* tokens of text that a drafter may have to catch up with in a step that times it */
#define SPECDEC__TUNE_MEMORY 0.99 /* what a step leaves of the weight of older ones */
#define SPECDEC__TUNE_STAKE 0.8   /* plain steps that a drafter may lose before it has won any, */
#define SPECDEC__TUNE_SHARE 0.0025 /* and the share of all time that it may lose */
#define SPECDEC__TUNE_DEBT 0.5    /* plain steps of debt at most, and */
#define SPECDEC__TUNE_WEALTH 12.0 /* of credit: what counts is how it goes now */
#define SPECDEC__TUNE_HOPE 0.1    /* plain steps of debt forgiven a step to speculation that promises twice the speed */
#define SPECDEC__TUNE_SHARED 0.9  /* of what changes a width's time, that changes all widths' times alike */
#define SPECDEC__TUNE_WIDER 0.03 /* of a plain step: what a node adds to steps a little wider than those seen often */
#define SPECDEC__TUNE_NAP 4       /* steps between looks at what speculation promises that rests or does not pay */
#define SPECDEC__TUNE_LIGHT 0.05  /* of a plain step: a level of a growing tree that takes less is asked for always */
#define SPECDEC__TUNE_HORIZON 50  /* steps in which catching up with the text must pay */
#define SPECDEC__TUNE_LOAD 0.36 /* of a step of those who write, that reading for others may add to it */
#define SPECDEC__TUNE_BREATH 32   /* steps that read before one that does not, so that this is known as it is now */
#define SPECDEC__TUNE_PATIENCE 0.25 /* of a step: as long a drafter may take that costs nothing, */
#define SPECDEC__TUNE_SMALL (8 << 20) /* bytes of weights of models whose costs are measured before the first step, */
#define SPECDEC__TUNE_TRIAL 0.004     /* for so many seconds: their steps are too short to learn from many of them */

SPECDEC__STATIC_ASSERT(offers_have_ranks, SPECDEC__OFFERS <= SPECDEC__TUNE_RANKS);

/* A running mean of measured times. */
typedef struct specdec__tune_mean {
    double seconds; /* 0: nothing was measured yet */
    double seen;    /* how many measurements, until that no longer matters */
} specdec__tune_mean;

/* What is known of a drafter. Each answers for its own losses. */
typedef struct specdec__tune_drafter {
    double cost;                /* of a level before one was seen, in steps of the target; 0: it costs nothing */
    int ranks;                  /* children of a node, at most, that it may propose */
    int certain;                /* what it proposes is always accepted */
    int at_once;                /* it proposes all levels for the price of one */
    specdec__tune_mean level;   /* of drafting */
    specdec__tune_mean reading; /* a token of text that it catches up with */
    double credit;              /* seconds that it may still lose against plain steps */
    int patience;               /* steps to wait before it is asked again for a text, when it does not pay */
    double offered[SPECDEC__TUNE_RANKS], accepted[SPECDEC__TUNE_RANKS]; /* children, by rank */
    double share[SPECDEC__TUNE_BINS], taken[SPECDEC__TUNE_BINS];        /* sums of shares, and how many of them came */
    /* Of nodes that it chose, by the probability of the path to them: sums of these, and how many were accepted. */
} specdec__tune_drafter;

/* What tokens of prompts add to steps in which others write. */
typedef struct specdec__tune_load {
    double row, key;     /* seconds of a token, and of each key that it sees; 0: nothing was measured yet */
    double usual;        /* key over row, by what the model is made of */
    double rows, keys;   /* tokens in the step under way, and the keys that they see together */
    double alone;        /* seconds of a step without a load, as it is now, of so many nodes */
    int nodes;           /* 0: none was seen */
    int doubted;         /* the last one of these was not believed: 1: too slow, -1: too fast, 0: it was */
    int seen;            /* measurements */
    int most;            /* tokens that a step has read, at most */
    int steps;           /* that have read, since one that has not */
} specdec__tune_load;

typedef struct specdec__tune {
    specdec__tune_load load;
    int count;                                          /* of drafters */
    int beside;                                         /* which of the two that follow */
    specdec__tune_mean steps[2][SPECDEC__MAX_TREE + 1]; /* of the target, by width; [1]: while somebody drafts */
    specdec__tune_drafter drafters[SPECDEC__MAX_DRAFTERS];
} specdec__tune;

/* One more drafter, of which nothing is known but what a level costs, and how many children a node may get (0: any). */
static void specdec__tune_add(specdec__tune *tune, double cost, int ranks)
{
    specdec__tune_drafter *t = &tune->drafters[tune->count++];
    int i;

    memset(t, 0, sizeof *t);
    t->cost = cost;
    t->ranks = ranks ? ranks : SPECDEC__TUNE_RANKS;
    for (i = 0; i < SPECDEC__TUNE_RANKS; i++) { /* a hopeful guess, worth a few observations: losses are bounded */
        t->offered[i] = 4;
        t->accepted[i] = i ? 0.5 : 2.4;
    }
    for (i = 0; i < SPECDEC__TUNE_BINS; i++) {
        t->share[i] = 3 * (i + 0.5) / SPECDEC__TUNE_BINS;
        t->taken[i] = (cost > 0 ? 0.6 : 1) * t->share[i];
    }
    t->patience = 16;
}

/* One more time. Each of the first few counts as much as all before; one outlier moves the mean little. */
static void specdec__tune_see(specdec__tune_mean *mean, double seconds)
{
    const double known = mean->seconds;

    if (mean->seen > 0 && seconds > 2 * known)
        seconds = 2 * known;
    mean->seen = mean->seen < 6 ? mean->seen + 1 : 7;
    mean->seconds = known + (seconds - known) / mean->seen;
}

/* Seconds of a plain step; before one was seen, by the narrowest that was. */
static double specdec__tune_plain(const specdec__tune *tune)
{
    const specdec__tune_mean *step = tune->steps[tune->beside];
    int n = 1;

    while (n < SPECDEC__MAX_TREE && !(step[n].seconds > 0))
        n++;
    return step[n].seconds / (1 + 0.1 * (n - 1));
}

/* times[1..most]: seen widths as they are, others on the line between their neighbours; past the last one, a tenth of a
   step for each node, or the slope seen so far if that is steeper. Up to twice the last one, once that is known well,
   nodes are thought to cost less: else what is never tried would never be known. Never falling. */
static void specdec__tune_times(const specdec__tune *tune, double *times, int most)
{
    const specdec__tune_mean *step = tune->steps[tune->beside];
    int n, known = 1, next = 1;
    double slope, node;

    times[0] = 0;
    times[1] = specdec__tune_plain(tune);
    for (n = 2; n <= most; n++) {
        for (next = specdec__max_int(next, n); next <= SPECDEC__MAX_TREE && !(step[next].seconds > 0); next++)
            continue;
        if (next <= SPECDEC__MAX_TREE) {
            times[n] = times[n - 1] + (step[next].seconds - times[n - 1]) / (next - n + 1);
        } else {
            slope = known > 1 ? (times[known] - times[1]) / (known - 1) : 0;
            node = (n <= 2 * known && step[known].seen >= 6 ? SPECDEC__TUNE_WIDER : 0.1) * times[1];
            times[n] = times[n - 1] + (slope > node || known > 8 ? slope : node);
        }
        if (step[n].seconds > 0)
            known = n;
        if (times[n] < times[n - 1])
            times[n] = times[n - 1];
    }
}

/* The acceptance vector of a drafter: p[k] = accepted at rank k + 1, the ranks before it having failed. */
static void specdec__tune_acceptance(const specdec__tune_drafter *t, double *p)
{
    double left = 0.999;
    int i;

    for (i = 0; i < SPECDEC__TUNE_RANKS; i++) {
        p[i] = left * t->accepted[i] / t->offered[i];
        left -= p[i];
    }
}

SPECDEC__INLINE int specdec__tune_bin(float probability)
{
    return specdec__max_int(0, specdec__min_int(SPECDEC__TUNE_BINS - 1, (int)(probability * SPECDEC__TUNE_BINS)));
}

/* How probable it is that a candidate of this share is accepted, once its parent is. */
static double specdec__tune_offer(const specdec__tune_drafter *t, float share)
{
    int bin = specdec__tune_bin(share);
    double p = (double)share * t->taken[bin] / t->share[bin];

    return t->certain ? 1 : p < 0.999 ? p : 0.999;
}

/* How probable the paths to candidates are that have shares: those from number `from` on. Deeper ones than that
   are not to be verified now. */
static void specdec__tune_paths(const specdec__tune_drafter *t, specdec__proposal *p, int from, int deepest)
{
    int i;

    for (i = from; i < p->tree.n; i++)
        p->probability[i] = p->depth[i] > deepest ? 0 :
            (float)((double)p->probability[p->tree.parents[i]] * specdec__tune_offer(t, p->share[i]));
}

/* Notes how a drafter's candidates behind one that was reached fared, also those that were not verified. node: of the
   merged tree, accepted there, or -1; token: what came. */
static void specdec__tune_note(specdec__tune_drafter *t, const specdec__proposal *p, int reached, int node,
                               int32_t token)
{
    int i, came = 0;

    for (i = specdec__tree_child(&p->tree, reached, reached + 1); i < p->tree.n;
         i = specdec__tree_child(&p->tree, reached, i + 1)) {
        int rank = specdec__min_int(p->tree.ranks[i], SPECDEC__TUNE_RANKS) - 1;
        int hit = p->place[i] >= 0 ? p->place[i] == node : p->tokens[i] == token;

        if (p->tokens[i] < 0)
            continue;
        t->offered[rank] += !came; /* later ranks count when the earlier ones have failed */
        t->accepted[rank] += hit && !came;
        came |= hit;
        if (p->shares) {
            t->share[specdec__tune_bin(p->share[i])] += (double)p->share[i];
            t->taken[specdec__tune_bin(p->share[i])] += hit;
        }
    }
}

/* Pairs of sums lose weight, once the first of them is above `enough`. */
static void specdec__tune_fade_pairs(double *seen, double *came, int count, double enough)
{
    int i;

    for (i = 0; i < count; i++)
        if (seen[i] > enough) {
            seen[i] *= SPECDEC__TUNE_MEMORY;
            came[i] *= SPECDEC__TUNE_MEMORY;
        }
}

/* Older observations lose weight. */
static void specdec__tune_fade(specdec__tune *tune)
{
    int i;

    for (i = 0; i < tune->count; i++) {
        specdec__tune_drafter *t = &tune->drafters[i];

        specdec__tune_fade_pairs(t->offered, t->accepted, SPECDEC__TUNE_RANKS, 2);
        specdec__tune_fade_pairs(t->share, t->taken, SPECDEC__TUNE_BINS, 1);
    }
}

/* What a step may speculate on behind one text. */
typedef struct specdec__plan {
    double others;                       /* tokens that the step brings to other texts */
    double plain, rate; /* tokens a second without guesses of this text, and with those of the drafters asked so far */
    int most;                            /* nodes of the tree */
    int fixed;                           /* the tree is always the same, whatever it costs */
    double times[SPECDEC__MAX_TREE + 1]; /* seconds of the step with so many nodes of this text */
} specdec__plan;

/* How many of count nodes, likeliest first and the root among them, pay best when drafting took `drafting` seconds; 1:
   none. worth (count): the probability that a node is accepted. *rate: tokens a second. */
static int specdec__tune_nodes(const specdec__plan *plan, const double *worth, int count, double drafting, double *rate)
{
    const double *times = plan->times;
    double expected = 1 + plan->others;
    int n, best = 1;

    *rate = expected / (times[1] + drafting);
    for (n = 2; n <= count; n++) {
        expected += worth[n - 1];
        if (expected / (times[n] + drafting) > *rate * 1.01) {
            *rate = expected / (times[n] + drafting);
            best = n;
        }
    }
    return best;
}

/* Puts a value into the falling list worth (count, at most `most`); the last one falls out. Returns how many there
   are. */
static int specdec__tune_insert(double *worth, int count, int most, double value)
{
    int at = count < most ? count : most - 1;

    if (count == most && !(value > worth[at]))
        return count;
    for (; at > 0 && value > worth[at - 1]; at--)
        worth[at] = worth[at - 1];
    worth[at] = value;
    return count < most ? count + 1 : count;
}

/* Seconds that drafting a level takes, where a plain step takes so many; a guess before it was seen. */
SPECDEC__INLINE double specdec__tune_level(const specdec__tune_drafter *t, double plain)
{
    return !(t->cost > 0) ? 0 : t->level.seconds > 0 ? t->level.seconds : (0.02 + t->cost) * plain;
}

/* A guess at a time counts as one measurement of it: so no pause in the first one is believed. */
static void specdec__tune_expect(specdec__tune_mean *mean, double seconds)
{
    if (!(mean->seen > 0) && seconds > 0)
        specdec__tune_see(mean, seconds);
}

/* What drafting of so many levels took a drafter that was `behind` tokens; fresh: some of these are of the prompt.
   Returns how much of it does not count against the drafter: reading the prompt, or a pause that somebody else made. */
static double specdec__tune_drafting(specdec__tune *tune, int drafter, int levels, int behind, int fresh,
                                     double seconds)
{
    specdec__tune_drafter *t = &tune->drafters[drafter];
    const double plain = specdec__tune_plain(tune), level = specdec__tune_level(t, plain);
    double over = seconds - SPECDEC__TUNE_PATIENCE * plain; /* more than this was a pause */

    if (!levels)
        return 0;
    levels = t->at_once ? 1 : levels;
    if (t->cost > 0) {
        over = seconds - levels * level;
        specdec__tune_expect(&t->level, level);
        if (behind > SPECDEC__TUNE_BEHIND && over >= 0) {
            specdec__tune_expect(&t->reading, level / 10);
            specdec__tune_see(&t->reading, over / behind);
            return fresh ? over : 0;
        }
        specdec__tune_see(&t->level, seconds / levels);
        over = seconds - 2 * levels * t->level.seconds;
    }
    return over > 0 ? over : 0;
}

/* A width took so many times what it used to take. Most of that is the machine's doing, once the width is known well:
   all widths change by it, and so stay comparable, those that are seldom seen, too. Twice as long and half as long
   cancel out: else times that vary would let widths that are not seen become dearer for ever. */
static void specdec__tune_drift(specdec__tune *tune, const specdec__tune_mean *step, double times)
{
    const double own = (1 - SPECDEC__TUNE_SHARED * step->seen / 7) / 2;
    int i, k;

    times = times < 2 ? times : 2;
    times = (own + (1 - own) * times) / (1 - own + own * times);
    for (i = 0; i < 2; i++)
        for (k = 1; k <= SPECDEC__MAX_TREE; k++)
            tune->steps[i][k].seconds *= times;
}

/* What a target step of so many nodes took. cold: its buffers may have been, if the width was not seen before; then it
   counts for no more than was expected. */
static void specdec__tune_step(specdec__tune *tune, int width, double seconds, int cold)
{
    specdec__tune_mean *step = &tune->steps[tune->beside][width];
    double times[SPECDEC__MAX_TREE + 1];
    int i;

    if (step->seconds > 0) {
        specdec__tune_drift(tune, step, seconds / step->seconds);
    } else if (specdec__tune_plain(tune) > 0) {
        specdec__tune_times(tune, times, width);
        seconds = !cold || seconds < times[width] ? seconds : times[width];
    } else {
        for (i = 0; i < tune->count; i++)
            tune->drafters[i].credit = SPECDEC__TUNE_STAKE * seconds / (1 + 0.1 * (width - 1));
    }
    specdec__tune_see(step, seconds);
}

/* What of prompts a step may read: tokens, until their costs have used up what is left. */
typedef struct specdec__tune_slice {
    double left;     /* seconds, or tokens, or whatever costs are told in */
    double row, key; /* cost of a token, and of each key that it sees */
    int most;        /* tokens */
    int root;        /* 1: the root that comes behind a prompt counts as one more token of it; 0: it costs nothing */
} specdec__tune_slice;

/* Seconds of a step of so many nodes without a load: as it was seen last, or by what steps have cost so far. */
static double specdec__tune_alone(const specdec__tune *tune, int nodes)
{
    const specdec__tune_load *load = &tune->load;
    double times[SPECDEC__MAX_TREE + 1];

    if (nodes == load->nodes)
        return load->alone;
    specdec__tune_times(tune, times, specdec__max_int(nodes, load->nodes));
    return load->nodes ? load->alone * times[nodes] / times[load->nodes] : times[nodes];
}

/* A step without a load was seen. One that was much faster or slower than those before asks for another one at once: if
   that is like it, the machine has changed; else it counts little. */
static void specdec__tune_breathe(specdec__tune *tune, int nodes, double seconds)
{
    specdec__tune_load *load = &tune->load;
    const double known = load->nodes ? specdec__tune_alone(tune, nodes) : seconds;

    const int off = (seconds > 1.25 * known) - (seconds < 0.75 * known), again = off && off == load->doubted;

    load->steps = 0;
    if (off && !load->doubted) {
        load->doubted = off;
        load->steps = SPECDEC__TUNE_BREATH;
        return;
    }
    seconds = seconds < 1.5 * known ? seconds : 1.5 * known;
    load->alone = known + (seconds - known) / (again ? 2 : 8);
    load->nodes = nodes;
    load->doubted = 0;
}

/* The slice of a step in which so many texts write: what keeps its time within 1 + SPECDEC__TUNE_LOAD of what it would
   be without. At first one token, then at most twice as many as were seen. */
static void specdec__tune_cut(specdec__tune *tune, int roots, specdec__tune_slice *slice)
{
    specdec__tune_load *load = &tune->load;

    if (!load->seen) {
        load->row = 0.1 * specdec__tune_plain(tune);
        load->key = load->row * load->usual;
    }
    slice->left = SPECDEC__TUNE_LOAD * specdec__tune_alone(tune, roots);
    slice->row = load->row;
    slice->key = load->key;
    slice->most = load->steps < SPECDEC__TUNE_BREATH ? specdec__max_int(1, 2 * load->most) : 0;
    slice->root = 1;
}

/* How many of `pending` tokens behind so many keys are read. At least one, if nobody has read in this step: else a
   prompt would wait for ever. */
static int specdec__tune_take(specdec__tune_load *load, specdec__tune_slice *slice, int pending, int keys)
{
    int n = 0;

    for (; n < pending && n < slice->most; n++, keys++) {
        const double cost = slice->row + slice->key * keys;

        if (cost > slice->left && load->rows > 0)
            break;
        slice->left -= cost;
        load->rows++;
        load->keys += keys;
    }
    slice->most -= n;
    return n;
}

/* Seconds that the tokens of the step under way are thought to add to it. */
SPECDEC__INLINE double specdec__tune_loaded(const specdec__tune_load *load)
{
    return load->rows * load->row + load->keys * load->key;
}

/* What a step of `nodes` nodes and the load took. The error moves both costs, each by its share, as normalised least
   mean squares do (Widrow and Hoff 1960); one outlier moves them little. */
static void specdec__tune_weigh(specdec__tune *tune, int nodes, double seconds)
{
    specdec__tune_load *load = &tune->load;
    const double rows = load->rows * load->row, keys = load->keys * load->key, expected = rows + keys;
    const double least = 0.01 * specdec__tune_plain(tune);
    double error = seconds - specdec__tune_alone(tune, nodes) - expected;

    load->steps = error < -expected / 2 && load->steps > 3 ? SPECDEC__TUNE_BREATH /* steps may have become faster */
                                                           : load->steps + 1;
    if (load->seen > 2 && error > expected / 2)
        error = expected / 2;
    if (error < -expected / 2)
        error = -expected / 2;
    load->seen = specdec__min_int(load->seen + 1, 4);
    error /= load->seen * (rows * rows + keys * keys);
    load->row *= 1 + error * rows;
    load->key *= 1 + error * keys;
    load->row = load->row > least ? load->row : least;
    load->key = load->key > least * load->usual ? load->key : least * load->usual;
    load->most = specdec__max_int(load->most, (int)load->rows);
}

/* What came of a step. */
typedef struct specdec__tune_outcome {
    int nodes[SPECDEC__MAX_DRAFTERS], came[SPECDEC__MAX_DRAFTERS]; /* guesses that were verified, and accepted ones */
    double drafting[SPECDEC__MAX_DRAFTERS];                        /* seconds */
    double seconds;                                                /* of the target's step */
    int base, texts;                                               /* nodes that are no guesses; texts that have some */
} specdec__tune_outcome;

/* Settles accounts after a step: an accepted guess saves what a token costs without guesses, the rest of the step's
   time is shared by its guesses. A drafter in debt rests until that is paid back: so it never costs much more than its
   share of the time, whatever goes wrong. */
static void specdec__tune_settle(specdec__tune *tune, const specdec__tune_outcome *outcome)
{
    const double plain = specdec__tune_plain(tune), most = SPECDEC__TUNE_WEALTH * plain,
                 least = -SPECDEC__TUNE_DEBT * plain;
    double times[SPECDEC__MAX_TREE + 1], usual, seconds;
    int i, guesses = 0;

    for (i = 0; i < tune->count; i++)
        guesses += outcome->nodes[i];
    specdec__tune_times(tune, times, guesses + outcome->base);
    usual = times[guesses + outcome->base];
    seconds = outcome->seconds > 0 && outcome->seconds < 2 * usual ? outcome->seconds : usual;
    if (!(plain > 0))
        return;
    for (i = 0; i < tune->count; i++) {
        double credit = tune->drafters[i].credit + SPECDEC__TUNE_SHARE * plain - outcome->drafting[i];

        if (guesses)
            credit += outcome->came[i] * times[outcome->base] / outcome->texts -
                      (seconds - times[outcome->base]) * outcome->nodes[i] / guesses;
        tune->drafters[i].credit = credit > most ? most : credit < least ? least : credit;
        if (outcome->came[i] > 0)
            tune->drafters[i].patience = 1; /* if this was a look at one that did not seem to pay: look again */
    }
}

/* Whether a drafter that promises so many tokens a second has to rest. The more it promises, the sooner it is back. */
static int specdec__tune_rests(specdec__tune *tune, int drafter, const specdec__plan *plan, double rate)
{
    const double once = specdec__tune_plain(tune);
    double *credit = &tune->drafters[drafter].credit;

    if (*credit >= 0 || tune->drafters[drafter].certain)
        return 0;
    *credit += SPECDEC__TUNE_NAP * SPECDEC__TUNE_HOPE * once * (rate / plan->plain - 1);
    return 1;
}

/* Whether a drafter in debt need not even be looked at, with so many tokens of text. */
static int specdec__tune_naps(const specdec__tune *tune, int drafter, int count)
{
    return tune->drafters[drafter].credit < 0 && !tune->drafters[drafter].certain && count % SPECDEC__TUNE_NAP;
}

/* The tree of at most so many levels that pays best with a drafter, and the rate it promises; of one that proposes one
   token behind a node a chain, of any length. Returns 0 when none pays. */
static int specdec__tune_pick(const specdec__tune_drafter *t, specdec_tree *tree, const specdec__plan *plan,
                              int levels, int grows, double level, double *found)
{
    double p[SPECDEC__TUNE_RANKS], expected = 1 + plan->others, worth = 1;
    int n, best = 1;

    specdec__tune_acceptance(t, p);
    if (t->ranks > 1)
        return !specdec__tree_pick(tree, found, p, t->ranks, plan->times, plan->most, levels, grows, level,
                                   plan->others, NULL) && tree->n > 1;
    for (*found = expected / plan->times[1], n = 2; n <= plan->most && n <= levels; n++) {
        expected += worth *= p[0];
        if (expected / (plan->times[n] + n * level) > *found) {
            *found = expected / (plan->times[n] + n * level);
            best = n;
        }
    }
    return !specdec_tree_chains(tree, 1, best - 1, NULL) && best > 1;
}

/* The tree that a drafter shall fill (p->grows: grow) for a text in this step, after others offered plan->rate. Before
   it can be asked, it has to read so many seconds of text. One that does not pay is asked again now and then, for one
   guess, so seldom that asking costs about a hundredth, and at once when that guess has come true. Returns the best
   rate now promised. */
static double specdec__tune_shape(specdec__tune_drafter *t, specdec__proposal *p, const specdec__plan *plan,
                                  double reading)
{
    const double *times = plan->times, rate = plan->rate;
    double found = 0, level = specdec__tune_level(t, times[1]);

    if (p->idle % SPECDEC__TUNE_NAP == 0 &&
        specdec__tune_pick(t, &p->tree, plan, p->levels, p->grows, t->at_once ? level / p->levels : level, &found) &&
        found > rate * 1.02 && reading <= SPECDEC__TUNE_HORIZON * times[1] * (found / rate - 1)) {
        p->idle = 0;
        return found;
    }
    p->tree.n = 1;
    if (++p->idle < t->patience || reading > t->credit)
        return rate;
    specdec_tree_chains(&p->tree, 1, 1, NULL);
    found = (times[2] - times[1] + 3 * level) / times[1];
    t->patience = specdec__max_int(16, specdec__min_int(1024, (int)(100 * found)));
    p->idle = 0;
    return rate;
}

SPECDEC__FOR_SPEED
