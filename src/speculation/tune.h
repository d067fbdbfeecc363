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
#define SPECDEC__TUNE_BUDGET 0.0025      /* share of all time that a drafter may lose against plain steps */
#define SPECDEC__TUNE_FIRST_CREDIT 0.8   /* a drafter's credit before its first step, in plain steps */
#define SPECDEC__TUNE_LEAST_CREDIT 0.5   /* lowest credit, in plain steps below 0: a drafter is asked again soon */
#define SPECDEC__TUNE_MOST_CREDIT 12.0   /* highest credit, in plain steps: old gains do not hide present losses */
#define SPECDEC__TUNE_REST_CREDIT 0.1 /* plain steps of credit a step for a resting drafter at twice the plain rate */
#define SPECDEC__TUNE_REST_ESTIMATE_STEPS 4       /* steps between two estimates of the rate of a drafter that rests */
#define SPECDEC__TUNE_RANKS 8 /* ranks of children (1: most probable) whose acceptance is measured separately */
#define SPECDEC__TUNE_PROBABILITY_RANGES 10 /* ranges of a drafter's probability, each with its measured acceptance */
#define SPECDEC__TUNE_DECAY 0.99         /* factor, at each step, of the weight of older observations of acceptance */
#define SPECDEC__TUNE_DRIFT_SHARE 0.9   /* share of a change of one step width's time that applies to all widths */
#define SPECDEC__TUNE_NEXT_NODE_COST 0.03 /* assumed plain steps that a node beyond the widest measured step costs */
#define SPECDEC__TUNE_CHEAP_LEVEL 0.05 /* a drafter whose level costs fewer plain steps drafts at every step */
#define SPECDEC__TUNE_CATCH_UP_TOKENS 8 /* tokens that a drafter may lack without prefilling them before it drafts */
#define SPECDEC__TUNE_PAYBACK_STEPS 50   /* steps within which the prefilling that a drafter needs must pay */
#define SPECDEC__TUNE_WAIT_SHARE 0.25 /* most plain steps that a wait for a drafter, or a drafter without cost, takes */
#define SPECDEC__TUNE_PREFILL_SHARE 0.36 /* share by which prefilling may lengthen a step in which sequences decode */
#define SPECDEC__TUNE_PREFILL_STEPS 32   /* steps with prefilling before one without, whose time is measured */
#define SPECDEC__TUNE_SMALL_BYTES (8 << 20)  /* bytes of weights: smaller models are timed before the first step */
#define SPECDEC__TUNE_TRIAL_SECONDS 0.004    /* seconds that timing small models may take */

SPECDEC__STATIC_ASSERT(offers_have_ranks, SPECDEC__GROWN_CHILDREN <= SPECDEC__TUNE_RANKS);

/* A running mean of measured times. */
typedef struct specdec__tune_mean {
    double seconds; /* the mean, in seconds; 0: nothing was measured yet */
    double seen;    /* number of measurements, up to 7: from then on each new one has a weight of 1/7 */
} specdec__tune_mean;

/* What was measured of a drafter: its costs, the acceptance of its draft tokens, and its credit. */
typedef struct specdec__tune_drafter {
    double cost;                /* estimated cost of drafting a level, in plain steps, used until one is timed; 0:
                                   drafting costs nothing */
    int ranks;                  /* children of a node that the drafter may propose, at most */
    int certain;                /* 1: its draft tokens are always accepted */
    int at_once;                /* 1: drafting all levels together costs as much as drafting one */
    specdec__tune_mean level;   /* measured seconds of drafting a level */
    specdec__tune_mean token_prefill; /* measured seconds of prefilling a token */
    double credit;              /* seconds that the drafter may still lose against plain steps */
    int retry_steps;            /* steps until a drafter that does not pay is asked for one draft token again */
    double offered[SPECDEC__TUNE_RANKS];  /* by rank: children of accepted nodes that the drafter proposed, and whose
                                             siblings of lower rank were not accepted */
    double accepted[SPECDEC__TUNE_RANKS]; /* by rank: how many of these children were accepted */
    double share[SPECDEC__TUNE_PROBABILITY_RANGES];     /* by range of probability: sum of the drafter's probabilities
                                                           for children of accepted nodes */
    double hits[SPECDEC__TUNE_PROBABILITY_RANGES];      /* by range of probability: how many of these children were
                                                           accepted */
} specdec__tune_drafter;

/* Measured seconds that the load adds to a step. The load: prompt tokens that are prefilled in steps in which other
   sequences decode. */
typedef struct specdec__tune_load {
    double row, key;     /* seconds that a prompt token adds to a step, and seconds of each key that it attends to; 0:
                            not measured */
    double key_ratio;    /* key / row before both were measured, by the shape of the model */
    double rows, keys;   /* prompt tokens in the current step; keys that all of them attend to together */
    double seconds;      /* running mean seconds of a step without a load, with `nodes` nodes */
    int nodes;           /* nodes of the last measured step without a load; 0: none was measured */
    int outlier;         /* 1: the last step without a load was unexpectedly slow and is unused; -1: fast; 0: used */
    int seen;            /* number of measurements of row and key, up to 4 */
    int most_rows;       /* most prompt tokens that a measured step had */
    int steps;           /* steps with a load since the last step without one */
} specdec__tune_load;

/* All measurements of an engine by which token trees are chosen. */
typedef struct specdec__tune {
    specdec__tune_load load;                            /* cost of prompt tokens in steps that decode */
    int count;                                          /* number of drafters */
    int async;                                          /* index into `steps`: 1: a drafter drafts while the target runs
                                                           a step; 0: none does */
    specdec__tune_mean steps[2][SPECDEC__MAX_TREE_NODES + 1]; /* seconds of the target's steps, by async and by number
                                                                 of nodes */
    specdec__tune_drafter drafters[SPECDEC__MAX_DRAFTERS];  /* (count): what was measured of each drafter */
} specdec__tune;

/* Adds a drafter to the measurements. cost: estimated cost of a level, in plain steps; ranks: children of a node that
   it may propose, at most (0: any number). */
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
    for (i = 0; i < SPECDEC__TUNE_PROBABILITY_RANGES; i++) {
        t->share[i] = 3 * (i + 0.5) / SPECDEC__TUNE_PROBABILITY_RANGES;
        t->hits[i] = (cost > 0 ? 0.6 : 1) * t->share[i];
    }
    t->retry_steps = 16;
}

/* Adds a measured time to a running mean: its weight is 1, 1/2, ... 1/7, then 1/7. A time above twice the mean counts
   as twice the mean. */
static void specdec__tune_add_time_to_mean(specdec__tune_mean *mean, double seconds)
{
    const double known = mean->seconds;

    if (mean->seen > 0 && seconds > 2 * known)
        seconds = 2 * known;
    mean->seen = mean->seen < 6 ? mean->seen + 1 : 7;
    mean->seconds = known + (seconds - known) / mean->seen;
}

/* Returns the seconds of a plain step; before one was measured, an estimate from the narrowest measured step; 0 if none
   was measured. */
static double specdec__tune_plain_step_seconds(const specdec__tune *tune)
{
    const specdec__tune_mean *step = tune->steps[tune->async];
    int n = 1;

    while (n < SPECDEC__MAX_TREE_NODES && !(step[n].seconds > 0))
        n++;
    return step[n].seconds / (1 + 0.1 * (n - 1));
}

/* Estimates times[1..most]: the seconds of a step of the target by its number of nodes (width). Measured widths have
   their means, widths between two of them are interpolated. Each node beyond the widest measured width adds a tenth of
   a plain step, or the mean slope if that is steeper. Up to twice a widest width that was measured often, a node adds
   only SPECDEC__TUNE_NEXT_NODE_COST: at a higher estimate wider steps would never be tried. times never falls. */
static void specdec__tune_estimate_times(const specdec__tune *tune, double *times, int most)
{
    const specdec__tune_mean *step = tune->steps[tune->async];
    int n, known = 1, next = 1;
    double slope, node;

    times[0] = 0;
    times[1] = specdec__tune_plain_step_seconds(tune);
    for (n = 2; n <= most; n++) {
        for (next = specdec__max_int(next, n); next <= SPECDEC__MAX_TREE_NODES && !(step[next].seconds > 0); next++)
            continue;
        if (next <= SPECDEC__MAX_TREE_NODES) {
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

/* Writes p[k]: the measured probability that a drafter's child of rank k + 1 is accepted and those of lower ranks are
   not. */
static void specdec__tune_acceptance_by_rank(const specdec__tune_drafter *t, double *p)
{
    double left = 0.999;
    int i;

    for (i = 0; i < SPECDEC__TUNE_RANKS; i++) {
        p[i] = left * t->accepted[i] / t->offered[i];
        left -= p[i];
    }
}

/* Returns which range of probabilities a draft token belongs to, by the drafter's probability for it. */
SPECDEC__INLINE int specdec__tune_probability_range(float probability)
{
    return specdec__max_int(0, specdec__min_int(SPECDEC__TUNE_PROBABILITY_RANGES - 1,
                                                (int)(probability * SPECDEC__TUNE_PROBABILITY_RANGES)));
}

/* Returns the measured probability that a draft token is accepted once its parent is. share: the drafter's own
   probability for it. */
static double specdec__tune_acceptance_by_share(const specdec__tune_drafter *t, float share)
{
    int bin = specdec__tune_probability_range(share);
    double p = (double)share * t->hits[bin] / t->share[bin];

    return t->certain ? 1 : p < 0.999 ? p : 0.999;
}

/* Computes frontier.probability, the probability that the path from the root is accepted, for all draft tokens from
   index `from` on, by their shares. Tokens deeper than `deepest` levels get 0: they are not verified in this step. */
static void specdec__tune_set_path_probabilities(const specdec__tune_drafter *t, const specdec__draft_tree *drafts,
                                                 specdec__draft_frontier *frontier, int from, int deepest)
{
    float *probability = frontier->probability;
    int i;

    for (i = from; i < drafts->tree.n; i++)
        probability[i] = drafts->depth[i] > deepest ? 0 :
            (float)((double)probability[drafts->tree.parents[i]] *
                    specdec__tune_acceptance_by_share(t, drafts->share[i]));
}

/* Counts which children of an accepted draft token (index `reached`) the target chose, verified or not. node: the
   accepted child in the merged tree, or -1; token: the token that the target chose. */
static void specdec__tune_count_accepted_children(specdec__tune_drafter *t, const specdec__proposal *p, int reached,
                                                  int node, int32_t token)
{
    int i, came = 0;

    for (i = specdec__tree_next_child(&p->drafts.tree, reached, reached + 1); i < p->drafts.tree.n;
         i = specdec__tree_next_child(&p->drafts.tree, reached, i + 1)) {
        int rank = specdec__min_int(p->drafts.tree.ranks[i], SPECDEC__TUNE_RANKS) - 1;
        int hit = p->outcome.merged_node[i] >= 0 ? p->outcome.merged_node[i] == node : p->drafts.tokens[i] == token;

        if (p->drafts.tokens[i] < 0)
            continue;
        t->offered[rank] += !came; /* a rank counts when the lower ones were not accepted */
        t->accepted[rank] += hit && !came;
        came |= hit;
        if (p->frontier.shares) {
            t->share[specdec__tune_probability_range(p->drafts.share[i])] += (double)p->drafts.share[i];
            t->hits[specdec__tune_probability_range(p->drafts.share[i])] += hit;
        }
    }
}

/* Multiplies the counts seen[i] and accepted[i] (count) by SPECDEC__TUNE_DECAY where seen[i] is above `enough`. */
static void specdec__tune_decay_counts(double *seen, double *accepted, int count, double enough)
{
    int i;

    for (i = 0; i < count; i++)
        if (seen[i] > enough) {
            seen[i] *= SPECDEC__TUNE_DECAY;
            accepted[i] *= SPECDEC__TUNE_DECAY;
        }
}

/* Reduces the weight of all older observations of acceptance. It is called once a step. */
static void specdec__tune_decay_acceptance(specdec__tune *tune)
{
    int i;

    for (i = 0; i < tune->count; i++) {
        specdec__tune_drafter *t = &tune->drafters[i];

        specdec__tune_decay_counts(t->offered, t->accepted, SPECDEC__TUNE_RANKS, 2);
        specdec__tune_decay_counts(t->share, t->hits, SPECDEC__TUNE_PROBABILITY_RANGES, 1);
    }
}

/* The limits and costs by which the token tree of one sequence is chosen in a step. */
typedef struct specdec__tree_plan {
    double other_tokens;                 /* expected tokens of the step's other sequences */
    double plain_rate;                   /* tokens a second of the step if this sequence's tree is the root alone */
    double rate;                         /* best tokens a second that the drafters asked so far expect, at least
                                            plain_rate */
    int most;                            /* nodes of the tree, the root included, at most */
    int fixed;                           /* 1: the configuration fixes the tree, whatever it costs; 0: it does not */
    double times[SPECDEC__MAX_TREE_NODES + 1]; /* seconds of the whole step, by the number of nodes of this tree */
} specdec__tree_plan;

/* Returns how many nodes, the root and the most probable draft tokens, at most `count`, give the most expected tokens a
   second (*rate). worth (count): probabilities of acceptance, falling; drafting: seconds of drafting. 1: the root alone
   is best. */
static int specdec__tune_best_node_count(const specdec__tree_plan *plan, const double *worth, int count,
                                         double drafting, double *rate)
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

/* Inserts a value into the falling list worth (count), of which the `most` largest values are kept. Returns the new
   count. */
static int specdec__tune_insert_into_largest(double *worth, int count, int most, double value)
{
    int at = count < most ? count : most - 1;

    if (count == most && !(value > worth[at]))
        return count;
    for (; at > 0 && value > worth[at - 1]; at--)
        worth[at] = worth[at - 1];
    worth[at] = value;
    return count < most ? count + 1 : count;
}

/* Returns the seconds of drafting a level; before one was timed, an estimate from the drafter's cost. plain: seconds of
   a plain step. */
SPECDEC__INLINE double specdec__tune_draft_level_seconds(const specdec__tune_drafter *t, double plain)
{
    return !(t->cost > 0) ? 0 : t->level.seconds > 0 ? t->level.seconds : (0.02 + t->cost) * plain;
}

/* Sets an empty mean to an estimate, so that an outlier in the first measurement counts little. */
static void specdec__tune_set_mean_to_estimate(specdec__tune_mean *mean, double seconds)
{
    if (!(mean->seen > 0) && seconds > 0)
        specdec__tune_add_time_to_mean(mean, seconds);
}

/* Adds the seconds of drafting `levels` levels to a drafter's means. behind: tokens that the drafter prefilled before;
   fresh: 1 if some of these are of the prompt. Returns the seconds that are not charged to the drafter: those of
   prefilling the prompt, or those above twice the expected time, as other programs then had the processor. */
static double specdec__tune_add_drafting_time(specdec__tune *tune, int drafter, int levels, int behind, int fresh,
                                              double seconds)
{
    specdec__tune_drafter *t = &tune->drafters[drafter];
    const double plain = specdec__tune_plain_step_seconds(tune), level = specdec__tune_draft_level_seconds(t, plain);
    double over = seconds - SPECDEC__TUNE_WAIT_SHARE * plain; /* outside the drafter */

    if (!levels)
        return 0;
    levels = t->at_once ? 1 : levels;
    if (t->cost > 0) {
        over = seconds - levels * level;
        specdec__tune_set_mean_to_estimate(&t->level, level);
        if (behind > SPECDEC__TUNE_CATCH_UP_TOKENS && over >= 0) {
            specdec__tune_set_mean_to_estimate(&t->token_prefill, level / 10);
            specdec__tune_add_time_to_mean(&t->token_prefill, over / behind);
            return fresh ? over : 0;
        }
        specdec__tune_add_time_to_mean(&t->level, seconds / levels);
        over = seconds - 2 * levels * t->level.seconds;
    }
    return over > 0 ? over : 0;
}

/* Starts the clock of a drafter that is asked for draft tokens. */
static void specdec__tune_start_draft_clock(specdec__draft_cost *cost)
{
    cost->begun = specdec__os_monotonic_seconds();
}

/* Stops the clock of a drafter and adds its seconds to its means. levels: levels that it drafted; 0: it drafted
   nothing. behind, fresh: as for specdec__tune_add_drafting_time. */
static void specdec__tune_stop_draft_clock(specdec__tune *tune, int drafter, specdec__draft_cost *cost, int levels,
                                           int behind, int fresh)
{
    const double seconds = specdec__os_monotonic_seconds() - cost->begun;

    cost->seconds = seconds - specdec__tune_add_drafting_time(tune, drafter, levels, behind, fresh, seconds);
}

/* Multiplies the mean times of steps of all widths (numbers of nodes) by a power of `times`: the newly measured time of
   one width over its mean, `step`. A change of a width that was measured often mostly comes from the machine and holds
   for all widths, so seldom measured widths stay comparable. The factors of times and 1/times cancel out; otherwise
   noise would make unmeasured widths dearer. */
static void specdec__tune_scale_step_times(specdec__tune *tune, const specdec__tune_mean *step, double times)
{
    const double own = (1 - SPECDEC__TUNE_DRIFT_SHARE * step->seen / 7) / 2;
    int i, k;

    times = times < 2 ? times : 2;
    times = (own + (1 - own) * times) / (1 - own + own * times);
    for (i = 0; i < 2; i++)
        for (k = 1; k <= SPECDEC__MAX_TREE_NODES; k++)
            tune->steps[i][k].seconds *= times;
}

/* Adds the seconds of a target's step of `width` nodes to the mean of that width. cold: 1 if the first step of a width
   may run on cold buffers: then it counts as at most its estimate. */
static void specdec__tune_add_step_time(specdec__tune *tune, int width, double seconds, int cold)
{
    specdec__tune_mean *step = &tune->steps[tune->async][width];
    double times[SPECDEC__MAX_TREE_NODES + 1];
    int i;

    if (step->seconds > 0) {
        specdec__tune_scale_step_times(tune, step, seconds / step->seconds);
    } else if (specdec__tune_plain_step_seconds(tune) > 0) {
        specdec__tune_estimate_times(tune, times, width);
        seconds = !cold || seconds < times[width] ? seconds : times[width];
    } else {
        for (i = 0; i < tune->count; i++)
            tune->drafters[i].credit = SPECDEC__TUNE_FIRST_CREDIT * seconds / (1 + 0.1 * (width - 1));
    }
    specdec__tune_add_time_to_mean(step, seconds);
}

/* How much of prompts a step may still prefill: tokens, until their costs reach the budget. */
typedef struct specdec__tune_prefill {
    double budget;   /* costs that are left in this step, in seconds; or in tokens, where row is 1 and key is 0 */
    double row, key; /* cost of a token, and cost of each key that it attends to, in the budget's unit */
    int most_tokens; /* prompt tokens that are left in this step, at most */
    int root;        /* 1: a prompt that is prefilled to its end needs one more token, for its root; 0: it does not */
} specdec__tune_prefill;

/* Returns the seconds of a step of `nodes` nodes without a load: measured, or scaled from a step with another number of
   nodes. */
static double specdec__tune_unloaded_step_seconds(const specdec__tune *tune, int nodes)
{
    const specdec__tune_load *load = &tune->load;
    double times[SPECDEC__MAX_TREE_NODES + 1];

    if (nodes == load->nodes)
        return load->seconds;
    specdec__tune_estimate_times(tune, times, specdec__max_int(nodes, load->nodes));
    return load->nodes ? load->seconds * times[nodes] / times[load->nodes] : times[nodes];
}

/* Adds the seconds of a step of `nodes` nodes without a load. A time that is off by a quarter is not used, but the next
   step has no load, either: if that is off in the same direction, the machine has changed, and its time counts by
   half. */
static void specdec__tune_add_unloaded_step_time(specdec__tune *tune, int nodes, double seconds)
{
    specdec__tune_load *load = &tune->load;
    const double known = load->nodes ? specdec__tune_unloaded_step_seconds(tune, nodes) : seconds;

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

/* Writes the limits of prefilling in a step in which `roots` sequences decode to *slice: the step's time may grow by
   SPECDEC__TUNE_PREFILL_SHARE. One token before anything was measured, later up to twice the most tokens of a measured
   step. */
static void specdec__tune_set_prefill_limits(specdec__tune *tune, int roots, specdec__tune_prefill *slice)
{
    specdec__tune_load *load = &tune->load;

    if (!load->seen) {
        load->row = 0.1 * specdec__tune_plain_step_seconds(tune);
        load->key = load->row * load->key_ratio;
    }
    slice->budget = SPECDEC__TUNE_PREFILL_SHARE * specdec__tune_unloaded_step_seconds(tune, roots);
    slice->row = load->row;
    slice->key = load->key;
    slice->most_tokens = load->steps < SPECDEC__TUNE_PREFILL_STEPS ? specdec__max_int(1, 2 * load->most_rows) : 0;
    slice->root = 1;
}

/* Returns how many of `pending` prompt tokens, behind `keys` keys, are prefilled in this step; the limits shrink by
   them. The first call of a step gets at least one token, whatever it costs: otherwise a prompt might wait for ever. */
static int specdec__tune_admit_prompt_tokens(specdec__tune_load *load, specdec__tune_prefill *slice, int pending,
                                             int keys)
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

/* Returns the expected seconds that the load, its prompt tokens, adds to the current step. */
SPECDEC__INLINE double specdec__tune_seconds_added_by_load(const specdec__tune_load *load)
{
    return load->rows * load->row + load->keys * load->key;
}

/* Adds the seconds of a step of `nodes` nodes with a load to the measurements. The error of the expected time corrects
   load->row and load->key, each by its part of that time: normalised least mean squares (Widrow and Hoff 1960). Errors
   above half of that time are cut. */
static void specdec__tune_add_loaded_step_time(specdec__tune *tune, int nodes, double seconds)
{
    specdec__tune_load *load = &tune->load;
    const double rows = load->rows * load->row, keys = load->keys * load->key, expected = rows + keys;
    const double least = 0.01 * specdec__tune_plain_step_seconds(tune);
    double error = seconds - specdec__tune_unloaded_step_seconds(tune, nodes) - expected;

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

/* What a step has cost, and which draft tokens it has accepted. */
typedef struct specdec__tune_outcome {
    int nodes[SPECDEC__MAX_DRAFTERS];       /* verified draft tokens of each drafter */
    int accepted[SPECDEC__MAX_DRAFTERS];    /* accepted draft tokens of each drafter */
    double drafting[SPECDEC__MAX_DRAFTERS]; /* seconds of drafting of each drafter */
    double seconds;                         /* seconds of the target's run */
    int base, sequences;                    /* nodes of the run that are no draft tokens; sequences that decode */
} specdec__tune_outcome;

/* Updates each drafter's credit after a step: plus its budget, plus for each accepted draft token the time of a token
   in plain steps, minus its seconds of drafting, minus its part, by nodes, of the time that draft tokens added to the
   step. A drafter below 0 rests until its credit is back, so its losses stay near the budget. */
static void specdec__tune_update_credit(specdec__tune *tune, const specdec__tune_outcome *outcome)
{
    const double plain = specdec__tune_plain_step_seconds(tune), most = SPECDEC__TUNE_MOST_CREDIT * plain,
                 least = -SPECDEC__TUNE_LEAST_CREDIT * plain;
    double times[SPECDEC__MAX_TREE_NODES + 1], usual, seconds;
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

/* Returns whether a drafter has to rest, as its credit is below 0; in that case it gets some credit back. rate: tokens
   a second that the drafter expects; the higher it is, the more credit it gets back. */
static int specdec__tune_drafter_must_rest(specdec__tune *tune, int drafter, const specdec__tree_plan *plan,
                                           double rate)
{
    const double once = specdec__tune_plain_step_seconds(tune);
    double *credit = &tune->drafters[drafter].credit;

    if (*credit >= 0 || tune->drafters[drafter].certain)
        return 0;
    *credit += SPECDEC__TUNE_REST_ESTIMATE_STEPS * SPECDEC__TUNE_REST_CREDIT * once * (rate / plan->plain_rate - 1);
    return 1;
}

/* Returns whether a drafter rests in this step without its rate being estimated. count: tokens of the sequence. */
static int specdec__tune_drafter_skips_rate_estimate(const specdec__tune *tune, int drafter, int count)
{
    return tune->drafters[drafter].credit < 0 && !tune->drafters[drafter].certain &&
           count % SPECDEC__TUNE_REST_ESTIMATE_STEPS;
}

/* Builds the tree of at most `levels` levels with the most tokens a second (*found) for a drafter; a chain for a
   drafter that proposes one child a node. level: seconds of drafting a level. Returns 0 if the root alone is best, else
   1. */
static int specdec__tune_pick_tree(const specdec__tune_drafter *t, specdec_tree *tree, const specdec__tree_plan *plan,
                                   int levels, int grows, double level, double *found)
{
    double p[SPECDEC__TUNE_RANKS], expected = 1 + plan->other_tokens, worth = 1;
    specdec__tree_step step;
    int n, best = 1;

    specdec__tune_acceptance_by_rank(t, p);
    step.times = plan->times;
    step.n = plan->most;
    step.levels = levels;
    step.undrafted = grows;
    step.draft_time = level;
    step.others = plan->other_tokens;
    if (t->ranks > 1)
        return !specdec__tree_pick_default_tree(tree, found, p, t->ranks, &step, NULL) && tree->n > 1;
    for (*found = expected / plan->times[1], n = 2; n <= plan->most && n <= levels; n++) {
        expected += worth *= p[0];
        if (expected / (plan->times[n] + n * level) > *found) {
            *found = expected / (plan->times[n] + n * level);
            best = n;
        }
    }
    return !specdec_tree_chains(tree, 1, best - 1, NULL) && best > 1;
}

/* Builds the tree that a drafter is to fill (frontier.grows: to extend) in this step, after other drafters that expect
   plan->rate tokens a second. reading: seconds of prefilling that the drafter needs before. A drafter that does not pay
   is asked for one draft token every retry_steps steps, which costs about a hundredth of all time, and again at once
   when that token was accepted. Returns the best expected tokens a second. */
static double specdec__tune_shape_tree(specdec__tune_drafter *t, specdec__proposal *p, const specdec__tree_plan *plan,
                                       double reading)
{
    const double *times = plan->times, rate = plan->rate;
    double found = 0, level = specdec__tune_draft_level_seconds(t, times[1]);

    if (p->cost.idle_steps % SPECDEC__TUNE_REST_ESTIMATE_STEPS == 0 &&
        specdec__tune_pick_tree(t, &p->drafts.tree, plan, p->request.max_levels, p->frontier.grows,
                                t->at_once ? level / p->request.max_levels : level, &found) &&
        found > rate * 1.02 && reading <= SPECDEC__TUNE_PAYBACK_STEPS * times[1] * (found / rate - 1)) {
        p->cost.idle_steps = 0;
        return found;
    }
    p->drafts.tree.n = 1;
    if (++p->cost.idle_steps < t->retry_steps || reading > t->credit)
        return rate;
    specdec_tree_chains(&p->drafts.tree, 1, 1, NULL);
    found = (times[2] - times[1] + 3 * level) / times[1];
    t->retry_steps = specdec__max_int(16, specdec__min_int(1024, (int)(100 * found)));
    p->cost.idle_steps = 0;
    return rate;
}

SPECDEC__FOR_SPEED
