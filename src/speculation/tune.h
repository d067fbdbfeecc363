/* =====================================================================================================================
 * >>speculation/tune: what steps cost and how draft tokens fare, measured while running; which tree pays best now.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "tree.h"
#include "draft.h"

SPECDEC__FOR_SIZE

/* The policy has one idea: a drafter may lose at most SPECDEC__TUNE_BUDGET of all time to exploring (drafting and
   verifying what is not accepted). Its credit is that exploration budget in seconds: each step adds the budget and what
   accepted draft tokens saved, and takes what they cost. Below 0 the drafter rests. A plain step is a target step of
   one node, without drafting. */
#define SPECDEC__TUNE_BUDGET 0.0025      /* of all time: what a drafter may lose against plain steps */
#define SPECDEC__TUNE_FIRST_CREDIT 0.8   /* plain steps: a drafter's credit before its first step */
#define SPECDEC__TUNE_LEAST_CREDIT 0.5   /* plain steps below 0: lowest credit, so that a drafter is back soon */
#define SPECDEC__TUNE_MOST_CREDIT 12.0   /* plain steps: highest credit, so that old gains do not hide present losses */
#define SPECDEC__TUNE_REST_CREDIT 0.1 /* plain steps a step: credit of a resting drafter that expects twice the rate */
#define SPECDEC__TUNE_REST_STEPS 4       /* steps between two estimates of the rate of a drafter that rests */
#define SPECDEC__TUNE_RANKS 8            /* ranks of children whose acceptance is measured separately */
#define SPECDEC__TUNE_BINS 10            /* ranges of a draft token's share whose acceptance is measured separately */
#define SPECDEC__TUNE_DECAY 0.99         /* factor, a step, of the weight of older observations of acceptance */
#define SPECDEC__TUNE_DRIFT_SHARE 0.9   /* of a change of one width's time: the share that applies to all widths */
#define SPECDEC__TUNE_NEXT_NODE_COST 0.03 /* plain steps: assumed cost of a node beyond the widest measured step */
#define SPECDEC__TUNE_CHEAP_LEVEL 0.05         /* plain steps: a drafter whose level takes less drafts at every step */
#define SPECDEC__TUNE_CATCH_UP_TOKENS 8         /* tokens: a drafter that is further behind prefills before it drafts */
#define SPECDEC__TUNE_PAYBACK_STEPS 50   /* steps within which a drafter's catching up must pay */
#define SPECDEC__TUNE_WAIT_SHARE 0.25    /* plain steps: longest time of a drafter without cost, or wait for one */
#define SPECDEC__TUNE_PREFILL_SHARE 0.36 /* of a step in which sequences decode: time that prefilling others may add */
#define SPECDEC__TUNE_PREFILL_STEPS 32   /* steps with prefilling before one without, whose time is measured */
#define SPECDEC__TUNE_SMALL_BYTES (8 << 20)  /* bytes of weights: smaller models are timed before the first step */
#define SPECDEC__TUNE_TRIAL_SECONDS 0.004    /* seconds that timing them may take */

SPECDEC__STATIC_ASSERT(offers_have_ranks, SPECDEC__GROWN_CHILDREN <= SPECDEC__TUNE_RANKS);

/* A running mean of measured times. */
typedef struct specdec__tune_mean {
    double seconds; /* 0: nothing was measured yet */
    double seen;    /* number of measurements, up to 7: each later one has a weight of 1/7 */
} specdec__tune_mean;

/* Measured costs and acceptance of a drafter, and its credit. */
typedef struct specdec__tune_drafter {
    double cost;                /* estimate, in plain steps, of a level before one was timed; 0: none */
    int ranks;                  /* children of a node that it may propose, at most */
    int certain;                /* 1: its draft tokens are always accepted */
    int at_once;                /* 1: all levels together cost as much as one */
    specdec__tune_mean level;   /* seconds of drafting a level */
    specdec__tune_mean token_prefill; /* seconds of prefilling a token */
    double credit;              /* seconds that the drafter may still lose against plain steps */
    int retry_steps;            /* steps until a drafter that does not pay is asked for one draft token again */
    double offered[SPECDEC__TUNE_RANKS];  /* children of accepted nodes, by rank, the ranks before not being accepted */
    double accepted[SPECDEC__TUNE_RANKS]; /* how many of these were accepted */
    double share[SPECDEC__TUNE_BINS];     /* sums of the drafter's probabilities for children of accepted nodes */
    double hits[SPECDEC__TUNE_BINS];      /* how many of these children were accepted */
} specdec__tune_drafter;

/* The load: prompt tokens in steps in which other sequences decode, and what they cost. */
typedef struct specdec__tune_load {
    double row, key;     /* seconds that a prompt token adds, and each key that it attends to; 0: not measured */
    double key_ratio;    /* key / row before both are measured, by the shape of the model */
    double rows, keys;   /* prompt tokens in the current step, and the keys that they attend to together */
    double seconds;      /* running mean of steps without a load, of `nodes` nodes */
    int nodes;           /* of the last measured step without a load; 0: none */
    int outlier;         /* 1: the last step without a load was unexpectedly slow and is unused; -1: fast; 0: used */
    int seen;            /* number of measurements of row and key, up to 4 */
    int most_rows;       /* prompt tokens of a measured step, at most */
    int steps;           /* steps with a load since the last one without */
} specdec__tune_load;

/* All measurements of an engine by which trees are chosen. */
typedef struct specdec__tune {
    specdec__tune_load load;
    int count;                                          /* of drafters */
    int async;                                          /* first index of steps: 1: a drafter runs during steps */
    specdec__tune_mean steps[2][SPECDEC__MAX_TREE + 1]; /* seconds of the target's steps, by async and by nodes */
    specdec__tune_drafter drafters[SPECDEC__MAX_DRAFTERS];
} specdec__tune;

/* Adds a drafter to the measurements. cost: estimate of a level, in plain steps; ranks: children that it may propose
   behind a node (0: any number). */
static void specdec__tune_add_drafter(specdec__tune *tune, double cost, int ranks)
{
    specdec__tune_drafter *t = &tune->drafters[tune->count++];
    int i;

    memset(t, 0, sizeof *t);
    t->cost = cost;
    t->ranks = ranks ? ranks : SPECDEC__TUNE_RANKS;
    for (i = 0; i < SPECDEC__TUNE_RANKS; i++) { /* prior: a high acceptance, weighted as 4 observations */
        t->offered[i] = 4;
        t->accepted[i] = i ? 0.5 : 2.4;
    }
    for (i = 0; i < SPECDEC__TUNE_BINS; i++) {
        t->share[i] = 3 * (i + 0.5) / SPECDEC__TUNE_BINS;
        t->hits[i] = (cost > 0 ? 0.6 : 1) * t->share[i];
    }
    t->retry_steps = 16;
}

/* Adds a measured time to a mean: weights 1, 1/2, ... 1/7, then 1/7. A time above twice the mean counts as that. */
static void specdec__tune_add_time(specdec__tune_mean *mean, double seconds)
{
    const double known = mean->seconds;

    if (mean->seen > 0 && seconds > 2 * known)
        seconds = 2 * known;
    mean->seen = mean->seen < 6 ? mean->seen + 1 : 7;
    mean->seconds = known + (seconds - known) / mean->seen;
}

/* Seconds of a plain step; before one was measured, estimated from the narrowest measured step; 0 if none was. */
static double specdec__tune_plain_seconds(const specdec__tune *tune)
{
    const specdec__tune_mean *step = tune->steps[tune->async];
    int n = 1;

    while (n < SPECDEC__MAX_TREE && !(step[n].seconds > 0))
        n++;
    return step[n].seconds / (1 + 0.1 * (n - 1));
}

/* Estimates times[1..most]: seconds of a target's step by its nodes. Measured widths have their means, widths between
   two of them are interpolated; each node beyond the widest adds a tenth of a plain step, or the mean slope if that is
   steeper. Up to twice a widest width that was measured often, a node adds SPECDEC__TUNE_NEXT_NODE_COST: at a higher
   estimate wider steps would never be tried. times never falls. */
static void specdec__tune_estimate_times(const specdec__tune *tune, double *times, int most)
{
    const specdec__tune_mean *step = tune->steps[tune->async];
    int n, known = 1, next = 1;
    double slope, node;

    times[0] = 0;
    times[1] = specdec__tune_plain_seconds(tune);
    for (n = 2; n <= most; n++) {
        for (next = specdec__max_int(next, n); next <= SPECDEC__MAX_TREE && !(step[next].seconds > 0); next++)
            continue;
        if (next <= SPECDEC__MAX_TREE) {
            times[n] = times[n - 1] + (step[next].seconds - times[n - 1]) / (next - n + 1);
        } else {
            slope = known > 1 ? (times[known] - times[1]) / (known - 1) : 0;
            node = (n <= 2 * known && step[known].seen >= 6 ? SPECDEC__TUNE_NEXT_NODE_COST : 0.1) * times[1];
            times[n] = times[n - 1] + (slope > node || known > 8 ? slope : node);
        }
        if (step[n].seconds > 0)
            known = n;
        if (times[n] < times[n - 1])
            times[n] = times[n - 1];
    }
}

/* Writes p[k]: the probability that a drafter's child of rank k + 1 is accepted and those of lower ranks are not. */
static void specdec__tune_acceptance(const specdec__tune_drafter *t, double *p)
{
    double left = 0.999;
    int i;

    for (i = 0; i < SPECDEC__TUNE_RANKS; i++) {
        p[i] = left * t->accepted[i] / t->offered[i];
        left -= p[i];
    }
}

/* The index of the bin to which a draft token's share belongs. */
SPECDEC__INLINE int specdec__tune_share_bin(float probability)
{
    return specdec__max_int(0, specdec__min_int(SPECDEC__TUNE_BINS - 1, (int)(probability * SPECDEC__TUNE_BINS)));
}

/* The measured probability that a draft token is accepted once its parent is; share: the drafter's own estimate. */
static double specdec__tune_share_probability(const specdec__tune_drafter *t, float share)
{
    int bin = specdec__tune_share_bin(share);
    double p = (double)share * t->hits[bin] / t->share[bin];

    return t->certain ? 1 : p < 0.999 ? p : 0.999;
}

/* Sets frontier.probability, the probability that the path from the root is accepted, for all draft tokens from index
   `from` on, by their shares. Tokens deeper than `deepest` levels get 0: they are not verified in this step. */
static void specdec__tune_set_paths(const specdec__tune_drafter *t, const specdec__draft_tree *drafts,
                                    specdec__draft_frontier *frontier, int from, int deepest)
{
    float *probability = frontier->probability;
    int i;

    for (i = from; i < drafts->tree.n; i++)
        probability[i] = drafts->depth[i] > deepest ? 0 :
            (float)((double)probability[drafts->tree.parents[i]] *
                    specdec__tune_share_probability(t, drafts->share[i]));
}

/* Counts which children of an accepted draft token (index `reached`) the target chose, verified or not. node: the child
   that was accepted, in the merged tree, or -1; token: the target's choice. */
static void specdec__tune_count_children(specdec__tune_drafter *t, const specdec__proposal *p, int reached, int node,
                                         int32_t token)
{
    int i, came = 0;

    for (i = specdec__tree_child(&p->drafts.tree, reached, reached + 1); i < p->drafts.tree.n;
         i = specdec__tree_child(&p->drafts.tree, reached, i + 1)) {
        int rank = specdec__min_int(p->drafts.tree.ranks[i], SPECDEC__TUNE_RANKS) - 1;
        int hit = p->outcome.place[i] >= 0 ? p->outcome.place[i] == node : p->drafts.tokens[i] == token;

        if (p->drafts.tokens[i] < 0)
            continue;
        t->offered[rank] += !came; /* a rank counts when the lower ones were not accepted */
        t->accepted[rank] += hit && !came;
        came |= hit;
        if (p->frontier.shares) {
            t->share[specdec__tune_share_bin(p->drafts.share[i])] += (double)p->drafts.share[i];
            t->hits[specdec__tune_share_bin(p->drafts.share[i])] += hit;
        }
    }
}

/* Multiplies seen[i] and accepted[i] by SPECDEC__TUNE_DECAY where seen[i] is above `enough`. */
static void specdec__tune_decay_pairs(double *seen, double *accepted, int count, double enough)
{
    int i;

    for (i = 0; i < count; i++)
        if (seen[i] > enough) {
            seen[i] *= SPECDEC__TUNE_DECAY;
            accepted[i] *= SPECDEC__TUNE_DECAY;
        }
}

/* Reduces the weight of all observations of acceptance; called once a step. */
static void specdec__tune_decay(specdec__tune *tune)
{
    int i;

    for (i = 0; i < tune->count; i++) {
        specdec__tune_drafter *t = &tune->drafters[i];

        specdec__tune_decay_pairs(t->offered, t->accepted, SPECDEC__TUNE_RANKS, 2);
        specdec__tune_decay_pairs(t->share, t->hits, SPECDEC__TUNE_BINS, 1);
    }
}

/* The limits and prices by which the tree of one sequence is chosen. */
typedef struct specdec__plan {
    double other_tokens;                 /* expected tokens of the other sequences in the step */
    double plain_rate;                   /* tokens a second of the step with the root alone */
    double rate;                         /* best rate that the drafters asked so far expect, at least plain_rate */
    int most;                            /* nodes of the tree, the root included */
    int fixed;                           /* 1: the configuration fixes the tree, whatever it costs */
    double times[SPECDEC__MAX_TREE + 1]; /* seconds of the whole step, by the nodes of this tree */
} specdec__plan;

/* The number of nodes, of at most `count`, with the highest expected tokens a second (*rate): the root and the most
   probable draft tokens. worth (count): probabilities of acceptance, falling; drafting: seconds. 1: the root alone is
   best. */
static int specdec__tune_best_nodes(const specdec__plan *plan, const double *worth, int count, double drafting,
                                    double *rate)
{
    const double *times = plan->times;
    double expected = 1 + plan->other_tokens;
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

/* Inserts a value into worth (count, falling), of which the `most` largest values are kept. Returns the new count. */
static int specdec__tune_insert_value(double *worth, int count, int most, double value)
{
    int at = count < most ? count : most - 1;

    if (count == most && !(value > worth[at]))
        return count;
    for (; at > 0 && value > worth[at - 1]; at--)
        worth[at] = worth[at - 1];
    worth[at] = value;
    return count < most ? count + 1 : count;
}

/* Seconds of drafting a level; before one was timed, an estimate from its cost. plain: seconds of a plain step. */
SPECDEC__INLINE double specdec__tune_level_seconds(const specdec__tune_drafter *t, double plain)
{
    return !(t->cost > 0) ? 0 : t->level.seconds > 0 ? t->level.seconds : (0.02 + t->cost) * plain;
}

/* Starts an empty mean with an estimate, so that an outlier in the first measurement counts little. */
static void specdec__tune_add_estimate(specdec__tune_mean *mean, double seconds)
{
    if (!(mean->seen > 0) && seconds > 0)
        specdec__tune_add_time(mean, seconds);
}

/* Adds the seconds of drafting `levels` levels to a drafter's means. behind: tokens that it prefilled before; fresh: 1
   if some of these are of the prompt. Returns the seconds that are not charged to the drafter: for prefilling the
   prompt, or above twice the expected time, as other programs then had the processor. */
static double specdec__tune_add_drafting(specdec__tune *tune, int drafter, int levels, int behind, int fresh,
                                         double seconds)
{
    specdec__tune_drafter *t = &tune->drafters[drafter];
    const double plain = specdec__tune_plain_seconds(tune), level = specdec__tune_level_seconds(t, plain);
    double over = seconds - SPECDEC__TUNE_WAIT_SHARE * plain; /* outside the drafter */

    if (!levels)
        return 0;
    levels = t->at_once ? 1 : levels;
    if (t->cost > 0) {
        over = seconds - levels * level;
        specdec__tune_add_estimate(&t->level, level);
        if (behind > SPECDEC__TUNE_CATCH_UP_TOKENS && over >= 0) {
            specdec__tune_add_estimate(&t->token_prefill, level / 10);
            specdec__tune_add_time(&t->token_prefill, over / behind);
            return fresh ? over : 0;
        }
        specdec__tune_add_time(&t->level, seconds / levels);
        over = seconds - 2 * levels * t->level.seconds;
    }
    return over > 0 ? over : 0;
}

/* Starts the clock of a drafter that is asked for draft tokens. */
static void specdec__tune_begin_drafting(specdec__draft_books *books) { books->begun = specdec__os_seconds(); }

/* Stops the clock of a drafter and adds its time; the other arguments are those of specdec__tune_add_drafting. levels
   0: nothing was drafted. */
static void specdec__tune_end_drafting(specdec__tune *tune, int drafter, specdec__draft_books *books, int levels,
                                       int behind, int fresh)
{
    const double seconds = specdec__os_seconds() - books->begun;

    books->seconds = seconds - specdec__tune_add_drafting(tune, drafter, levels, behind, fresh, seconds);
}

/* Multiplies the means of all widths by a power of `times`, the measured time of one width over its mean. Changes of a
   width that was measured often mostly come from the machine and hold for all widths, so seldom measured ones stay
   comparable. The factors of times and 1/times cancel out; otherwise noise would make unmeasured widths dearer. */
static void specdec__tune_scale_widths(specdec__tune *tune, const specdec__tune_mean *step, double times)
{
    const double own = (1 - SPECDEC__TUNE_DRIFT_SHARE * step->seen / 7) / 2;
    int i, k;

    times = times < 2 ? times : 2;
    times = (own + (1 - own) * times) / (1 - own + own * times);
    for (i = 0; i < 2; i++)
        for (k = 1; k <= SPECDEC__MAX_TREE; k++)
            tune->steps[i][k].seconds *= times;
}

/* Adds the time of a target step of `width` nodes. cold: 1 if a first step of a width may run on cold buffers: it then
   counts as at most its estimate. */
static void specdec__tune_add_step(specdec__tune *tune, int width, double seconds, int cold)
{
    specdec__tune_mean *step = &tune->steps[tune->async][width];
    double times[SPECDEC__MAX_TREE + 1];
    int i;

    if (step->seconds > 0) {
        specdec__tune_scale_widths(tune, step, seconds / step->seconds);
    } else if (specdec__tune_plain_seconds(tune) > 0) {
        specdec__tune_estimate_times(tune, times, width);
        seconds = !cold || seconds < times[width] ? seconds : times[width];
    } else {
        for (i = 0; i < tune->count; i++)
            tune->drafters[i].credit = SPECDEC__TUNE_FIRST_CREDIT * seconds / (1 + 0.1 * (width - 1));
    }
    specdec__tune_add_time(step, seconds);
}

/* How much of prompts a step may prefill: tokens, until their costs reach the budget. */
typedef struct specdec__tune_prefill {
    double budget;   /* left in this step: seconds, or tokens where row is 1 and key is 0 */
    double row, key; /* cost of a token, and of each key that it attends to, in the budget's unit */
    int most_tokens; /* left in this step */
    int root;        /* 1: a prompt that is prefilled to its end needs one more token, for its root; 0: it does not */
} specdec__tune_prefill;

/* Seconds of a step of `nodes` nodes without a load: measured, or scaled from another width. */
static double specdec__tune_unloaded_seconds(const specdec__tune *tune, int nodes)
{
    const specdec__tune_load *load = &tune->load;
    double times[SPECDEC__MAX_TREE + 1];

    if (nodes == load->nodes)
        return load->seconds;
    specdec__tune_estimate_times(tune, times, specdec__max_int(nodes, load->nodes));
    return load->nodes ? load->seconds * times[nodes] / times[load->nodes] : times[nodes];
}

/* Adds the time of a step of `nodes` nodes without a load. A time that is off by a quarter is not used, but the next
   step has no load, too: if that is off in the same direction, the machine has changed, and it counts by half. */
static void specdec__tune_add_unloaded_step(specdec__tune *tune, int nodes, double seconds)
{
    specdec__tune_load *load = &tune->load;
    const double known = load->nodes ? specdec__tune_unloaded_seconds(tune, nodes) : seconds;

    const int off = (seconds > 1.25 * known) - (seconds < 0.75 * known), again = off && off == load->outlier;

    load->steps = 0;
    if (off && !load->outlier) {
        load->outlier = off;
        load->steps = SPECDEC__TUNE_PREFILL_STEPS;
        return;
    }
    seconds = seconds < 1.5 * known ? seconds : 1.5 * known;
    load->seconds = known + (seconds - known) / (again ? 2 : 8);
    load->nodes = nodes;
    load->outlier = 0;
}

/* Writes the limits of prefilling in a step in which `roots` sequences decode to *slice: its time may grow by
   SPECDEC__TUNE_PREFILL_SHARE. One token before anything was measured, later up to twice the most tokens of a measured
   step. */
static void specdec__tune_prefill_limits(specdec__tune *tune, int roots, specdec__tune_prefill *slice)
{
    specdec__tune_load *load = &tune->load;

    if (!load->seen) {
        load->row = 0.1 * specdec__tune_plain_seconds(tune);
        load->key = load->row * load->key_ratio;
    }
    slice->budget = SPECDEC__TUNE_PREFILL_SHARE * specdec__tune_unloaded_seconds(tune, roots);
    slice->row = load->row;
    slice->key = load->key;
    slice->most_tokens = load->steps < SPECDEC__TUNE_PREFILL_STEPS ? specdec__max_int(1, 2 * load->most_rows) : 0;
    slice->root = 1;
}

/* Returns how many of `pending` prompt tokens, behind `keys` keys, are prefilled in this step; the limits shrink by
   them. The first call of a step gets at least one token, whatever it costs: otherwise a prompt might wait for ever. */
static int specdec__tune_admit_tokens(specdec__tune_load *load, specdec__tune_prefill *slice, int pending, int keys)
{
    int n = 0;

    for (; n < pending && n < slice->most_tokens; n++, keys++) {
        const double cost = slice->row + slice->key * keys;

        if (cost > slice->budget && load->rows > 0)
            break;
        slice->budget -= cost;
        load->rows++;
        load->keys += keys;
    }
    slice->most_tokens -= n;
    return n;
}

/* Expected seconds that the load adds to the current step. */
SPECDEC__INLINE double specdec__tune_load_seconds(const specdec__tune_load *load)
{
    return load->rows * load->row + load->keys * load->key;
}

/* Adds the time of a step of `nodes` nodes with a load. The error of the expected time corrects load->row and
   load->key, each by its part of that time: normalised least mean squares (Widrow and Hoff 1960). Errors above half of
   that time are cut. */
static void specdec__tune_add_loaded_step(specdec__tune *tune, int nodes, double seconds)
{
    specdec__tune_load *load = &tune->load;
    const double rows = load->rows * load->row, keys = load->keys * load->key, expected = rows + keys;
    const double least = 0.01 * specdec__tune_plain_seconds(tune);
    double error = seconds - specdec__tune_unloaded_seconds(tune, nodes) - expected;

    load->steps = error < -expected / 2 && load->steps > 3 ? SPECDEC__TUNE_PREFILL_STEPS /* measure one without */
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
    load->key = load->key > least * load->key_ratio ? load->key : least * load->key_ratio;
    load->most_rows = specdec__max_int(load->most_rows, (int)load->rows);
}

/* What a step cost, and which draft tokens it accepted. */
typedef struct specdec__tune_outcome {
    int nodes[SPECDEC__MAX_DRAFTERS];       /* verified draft tokens of each drafter */
    int accepted[SPECDEC__MAX_DRAFTERS];    /* how many of these were accepted */
    double drafting[SPECDEC__MAX_DRAFTERS]; /* seconds */
    double seconds;                         /* of the target's step */
    int base, sequences;                    /* nodes that are no draft tokens; sequences that decode */
} specdec__tune_outcome;

/* Updates each drafter's credit after a step: plus its budget, plus for each accepted draft token the time of a token
   in plain steps, minus its seconds of drafting, minus its part, by nodes, of the time that draft tokens added to the
   step. A drafter below 0 rests until its credit is back, so its losses stay near the budget. */
static void specdec__tune_update_credit(specdec__tune *tune, const specdec__tune_outcome *outcome)
{
    const double plain = specdec__tune_plain_seconds(tune), most = SPECDEC__TUNE_MOST_CREDIT * plain,
                 least = -SPECDEC__TUNE_LEAST_CREDIT * plain;
    double times[SPECDEC__MAX_TREE + 1], usual, seconds;
    int i, guesses = 0;

    for (i = 0; i < tune->count; i++)
        guesses += outcome->nodes[i];
    specdec__tune_estimate_times(tune, times, guesses + outcome->base);
    usual = times[guesses + outcome->base];
    seconds = outcome->seconds > 0 && outcome->seconds < 2 * usual ? outcome->seconds : usual;
    if (!(plain > 0))
        return;
    for (i = 0; i < tune->count; i++) {
        double credit = tune->drafters[i].credit + SPECDEC__TUNE_BUDGET * plain - outcome->drafting[i];

        if (guesses)
            credit += outcome->accepted[i] * times[outcome->base] / outcome->sequences -
                      (seconds - times[outcome->base]) * outcome->nodes[i] / guesses;
        tune->drafters[i].credit = credit > most ? most : credit < least ? least : credit;
        if (outcome->accepted[i] > 0)
            tune->drafters[i].retry_steps = 1; /* ask a drafter that did not pay for one more draft token */
    }
}

/* Whether a drafter has to rest, as its credit is below 0; then it gets some credit back. rate: tokens a second that it
   expects; the higher it is, the more credit it gets. */
static int specdec__tune_must_rest(specdec__tune *tune, int drafter, const specdec__plan *plan, double rate)
{
    const double once = specdec__tune_plain_seconds(tune);
    double *credit = &tune->drafters[drafter].credit;

    if (*credit >= 0 || tune->drafters[drafter].certain)
        return 0;
    *credit += SPECDEC__TUNE_REST_STEPS * SPECDEC__TUNE_REST_CREDIT * once * (rate / plan->plain_rate - 1);
    return 1;
}

/* Whether a drafter rests, and its rate is not even estimated in this step, of a sequence of `count` tokens. */
static int specdec__tune_skips_estimate(const specdec__tune *tune, int drafter, int count)
{
    return tune->drafters[drafter].credit < 0 && !tune->drafters[drafter].certain && count % SPECDEC__TUNE_REST_STEPS;
}

/* Builds the tree of at most `levels` levels with the most tokens a second (*found) for a drafter; a chain for one that
   proposes one child a node. level: seconds of drafting one. Returns 0 if the root alone is best. */
static int specdec__tune_pick_tree(const specdec__tune_drafter *t, specdec_tree *tree, const specdec__plan *plan,
                                   int levels, int grows, double level, double *found)
{
    double p[SPECDEC__TUNE_RANKS], expected = 1 + plan->other_tokens, worth = 1;
    specdec__tree_step step;
    int n, best = 1;

    specdec__tune_acceptance(t, p);
    step.times = plan->times;
    step.n = plan->most;
    step.levels = levels;
    step.undrafted = grows;
    step.draft_time = level;
    step.others = plan->other_tokens;
    if (t->ranks > 1)
        return !specdec__tree_pick(tree, found, p, t->ranks, &step, NULL) && tree->n > 1;
    for (*found = expected / plan->times[1], n = 2; n <= plan->most && n <= levels; n++) {
        expected += worth *= p[0];
        if (expected / (plan->times[n] + n * level) > *found) {
            *found = expected / (plan->times[n] + n * level);
            best = n;
        }
    }
    return !specdec_tree_chains(tree, 1, best - 1, NULL) && best > 1;
}

/* Builds the tree that a drafter is to fill (frontier.grows: to extend) in this step, after other drafters expected
   plan->rate tokens a second. reading: seconds of prefilling that it needs before. A drafter that does not pay is asked
   for one draft token every retry_steps steps, which costs about a hundredth of all time, and again at once when that
   was accepted. Returns the best expected rate. */
static double specdec__tune_shape_tree(specdec__tune_drafter *t, specdec__proposal *p, const specdec__plan *plan,
                                       double reading)
{
    const double *times = plan->times, rate = plan->rate;
    double found = 0, level = specdec__tune_level_seconds(t, times[1]);

    if (p->books.idle_steps % SPECDEC__TUNE_REST_STEPS == 0 &&
        specdec__tune_pick_tree(t, &p->drafts.tree, plan, p->request.levels, p->frontier.grows,
                                t->at_once ? level / p->request.levels : level, &found) &&
        found > rate * 1.02 && reading <= SPECDEC__TUNE_PAYBACK_STEPS * times[1] * (found / rate - 1)) {
        p->books.idle_steps = 0;
        return found;
    }
    p->drafts.tree.n = 1;
    if (++p->books.idle_steps < t->retry_steps || reading > t->credit)
        return rate;
    specdec_tree_chains(&p->drafts.tree, 1, 1, NULL);
    found = (times[2] - times[1] + 3 * level) / times[1];
    t->retry_steps = specdec__max_int(16, specdec__min_int(1024, (int)(100 * found)));
    p->books.idle_steps = 0;
    return rate;
}

SPECDEC__FOR_SPEED
