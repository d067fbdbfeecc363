/* =====================================================================================================================
 * >>speculation/draft: drafters fill a token tree and never see a verifier. A drafter is a row of functions; the trees
 *     of several drafters are merged into one.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/pool.h"
#include "../kernel/kernel.h"
#include "../model/model.h"
#include "../cache/kv.h"
#include "../forward/context.h"
#include "tree.h"
#include "constrained.h"

SPECDEC__FOR_SIZE

#define SPECDEC__MAX_CHILDREN 32   /* children of a node, at most */
#define SPECDEC__NGRAM_LONGEST_CONTEXT 6    /* tokens of the longest context of the n-gram drafter */
#define SPECDEC__NGRAM_SEQUENCE_TOKENS 1024  /* tokens for which the index has room, of each sequence but the first */
#define SPECDEC__NGRAM_RECYCLED_CONTEXTS 16384 /* contexts whose likeliest tokens by the target are stored, at most */
#define SPECDEC__NGRAM_LEAST_PROBABILITY 0.005f /* least probability of a continuation that is proposed */

enum {
    SPECDEC__DRAFTER_KINDS = SPECDEC_DRAFT_COUNT - SPECDEC_DRAFT_OFF - 1,
    SPECDEC__MAX_DRAFTERS = SPECDEC__DRAFTER_KINDS + 1 /* of an engine: one of each kind, and that of forced tokens */
};

/* What is asked of a drafter for one sequence in a step. Written by the scheduler (or by a drafter that owns another
   one); drafters read it. */
typedef struct specdec__draft_request {
    int at;               /* index of the sequence in the engine */
    int32_t *text;        /* (count + levels): the sequence's tokens; drafters may write draft tokens behind them */
    int count;            /* the root is text[count - 1] */
    const specdec_sampling *sampling;  /* of the sequence */
    specdec__constrained *constrained; /* of the sequence; NULL: it has no constraint */
    const specdec__view *view;         /* of the sequence, in the target's cache; NULL while the engine is made */
    int most, levels;     /* nodes and levels of a tree whose shape the drafter chooses, at most */
    specdec_rule rule;    /* the rule of acceptance, for which children are drawn */
    float *distributions; /* (tree size, vocab): where the rule needs it, what the children of a node were drawn from */
    double wait_seconds;  /* seconds that the drafter may wait for draft tokens of a remote rank */
} specdec__draft_request;

/* A drafter's tree of candidates (draft tokens, before some are chosen to be verified). Candidate 0 is the root: the
   sequence's last token. Written by the drafter while it is asked; before and after that by the scheduler, which sets
   the root and the shape of a tree to be filled, and drops trees. */
typedef struct specdec__draft_tree {
    specdec_tree tree;
    int32_t *tokens;      /* (capacity): -1: the drafter has no token for this node */
    int32_t *depth;       /* (capacity): levels below the root, whose depth is 0 */
    float *share;         /* (capacity): the drafter's probability of a candidate behind its parent */
    unsigned char *extended; /* (capacity): 1: the candidate's children are in the tree */
    int extended_count;   /* number of candidates that were extended, without the root */
    int32_t *moved;       /* (capacity): after keep_subtree, the new index of each candidate; -1: it was dropped */
} specdec__draft_tree;

/* How a tree grows: which candidates are extended next. Written by the scheduler. */
typedef struct specdec__draft_frontier {
    int grows;            /* 1: the tree is extended level by level; 0: it is filled at once */
    int shares;           /* 1: the drafter sets `share`; 0: acceptance is estimated by rank */
    float *probability;   /* (capacity): estimated probability that the path from the root is accepted */
    int level;            /* index of the first candidate of the newest level */
    int32_t *chosen;      /* (count, at most the tree size): candidates to be extended next */
    int count;            /* of chosen candidates */
    int valid_at;         /* the tree is kept from an earlier step and valid while request.count is this; 0: not kept */
} specdec__draft_frontier;

/* What becomes of a tree: which candidates the target verifies. Written by this part, and specdec__engine_keep_best. */
typedef struct specdec__draft_outcome {
    int32_t *kept;        /* (tree size): candidates to be verified, parents first, beginning with the root */
    int kept_count; /* number of candidates to be verified */
    int32_t *place;       /* (capacity): the candidate's node in the merged tree; -1: none */
} specdec__draft_outcome;

/* What drafting for a sequence costs. Written by tuning; seconds is reset by specdec__draft_begin_proposal. */
typedef struct specdec__draft_books {
    double begun;         /* clock in seconds when the drafter was asked for draft tokens */
    double seconds;       /* seconds of drafting that count against the drafter */
    int idle_steps;       /* steps since the drafter was last asked for draft tokens */
} specdec__draft_books;

/* What a drafter proposes for one sequence in a step, and all that belongs to it. */
typedef struct specdec__proposal {
    specdec__draft_request request;
    specdec__draft_tree drafts;
    specdec__draft_frontier frontier;
    specdec__draft_outcome outcome;
    specdec__draft_books books;
} specdec__proposal;

/* Arguments of a drafter's init. */
typedef struct specdec__draft_setup {
    const specdec_config *config;    /* defaults filled in */
    const specdec__context *target;
    const specdec__kv_demand *room;  /* how many sequences, and tokens of each, caches have to hold */
    int capacity;                    /* candidates of a proposal, at most */
    int threads;                     /* threads of the pool that the drafter's model uses, at most */
    int window;                      /* last tokens of a sequence that it may use; 0: its model's context */
} specdec__draft_setup;

typedef struct specdec__drafter specdec__drafter;

/* Tokens [from, from + n) of a sequence that the target has run and committed, with its hidden states. */
typedef struct specdec__prefilled {
    int at;              /* index of the sequence in the engine */
    const int32_t *text; /* (count): its tokens */
    int count;           /* of all tokens of the sequence */
    int from, n;         /* the first of the tokens meant here; their number */
    int first;           /* index of the sequence's first node in the step */
    const int *path;     /* (n): the nodes of the tokens, counted from `first`; NULL: 0, 1, 2, ... */
    const float *state;  /* hidden state of the last token; NULL: not computed */
} specdec__prefilled;

/* A verified tree: the target's logits and the accepted path. */
typedef struct specdec__verified {
    int at;                  /* index of the sequence in the engine */
    const int32_t *text;     /* its tokens, those of the step included */
    int count;               /* of them before the step: the root is text[count - 1] */
    const specdec_sampling *sampling;
    const specdec_tree *tree; /* that was verified */
    const int32_t *tokens;   /* (tree->n): its draft tokens */
    const float *logits;     /* (tree->n, vocab); NULL: not computed, as all tokens were forced */
    int vocab;               /* logits of a row */
    const specdec__kernels *kernels;
    const int32_t *path;     /* (length): the root and the accepted nodes */
    int length;              /* of path */
    int whole;               /* 1: all logits are computed; 0: only of nodes on the path, and only those of tokens that
                                can be chosen, the others being -infinity */
} specdec__verified;

/* A kind of drafter: a row of facts and functions. specdec__draft_NAME_kind writes the row of a kind into a struct of
   zeros: the columns in which the kind differs from 0 and NULL. All functions but fill may be NULL; the comment's
   "NULL:" says what that means. Adding a kind: a line in SPECDEC_DRAFTERS, above, its functions, and
   specdec__draft_NAME_kind. `at` is the index of a sequence in the engine. */
typedef struct specdec__drafter_kind {
    size_t source;   /* offset in specdec_config of the specdec_source of its model; 0: it has no model */
    int optional;    /* 1: it can draft without that model, too */
    size_t enabled_by; /* offset in specdec_config of an int: `auto` uses this kind unless that is 0; 0: always */
    int ranks;       /* children of a node that it may propose; 0: any number */
    int draws;       /* 1: children are drawn from a distribution where a rule of rejection needs that */
    int certain;     /* 1: every token that it proposes is accepted */
    int size, depth; /* default size and depth of its trees when it drafts alone */
    /* 1: share_prefix and truncate_sequence also take the indices of ended sequences that are kept (room->kept_views of
       them): index `views` + i is the i-th. 0: it stores nothing of them */
    int keeps_ended;
    int nextn; /* 1: its model is the NextN block in the target's files; 0: see source */
    /* Takes its state from an arena, which may only count. NULL: it has no state. */
    specdec_result (*init)(specdec__drafter *drafter, const specdec__draft_setup *setup, specdec__arena *arena,
                           specdec_error *error);
    /* Proposes a token for each node of drafts->tree, whose levels are stored one behind the other. A drafter without
       cost also chooses the tree and sets the shares. */
    specdec_result (*fill_tree)(specdec__drafter *drafter, const specdec__draft_request *request,
                                specdec__draft_tree *drafts, specdec_error *error);
    /* Appends children, with shares, to each of frontier->chosen, and counts these as extended. The root is extended
       first, alone; each candidate once, after its parent. NULL: its trees do not grow. */
    specdec_result (*extend)(specdec__drafter *drafter, const specdec__draft_request *request,
                             specdec__draft_tree *drafts, const specdec__draft_frontier *frontier,
                             specdec_error *error);
    /* Learns which of its candidates were accepted: path (count), without the root. NULL: it prefills these tokens
       later. */
    void (*commit_path)(specdec__drafter *drafter, int at, const int32_t *path, int count);
    /* The sequence will be cut to its first `length` tokens; text still has all. NULL: the drafter stores nothing of a
       sequence. */
    void (*truncate_sequence)(specdec__drafter *drafter, int at, const int32_t *text, int length);
    /* Sequence `at`, of which nothing is stored, begins with the first `length` tokens of sequence `of`. NULL: it
       prefills them. Indices from the number of sequences on: see keeps_ended. */
    void (*share_prefix)(specdec__drafter *drafter, int at, int of, int length);
    /* The sequence has ended, and its index will be reused. NULL: as truncate to 0. */
    void (*end_sequence)(specdec__drafter *drafter, int at, const int32_t *text);
    /* Estimated cost of a level in plain steps, used until one is timed. NULL: drafting costs nothing. */
    double (*level_cost)(const specdec__drafter *drafter, const specdec__model *target);
    /* How many of the sequence's first `count` tokens it has not prefilled. NULL: it prefills nothing. */
    int (*count_behind)(const specdec__drafter *drafter, int at, int count);
    /* Prefills the first `count` tokens of the request's sequence. NULL: prefilling is part of drafting. */
    specdec_result (*prefill)(specdec__drafter *drafter, const specdec__draft_request *request, int count,
                              specdec_error *error);
    /* Whether it can draft behind the sequence's first `count` tokens. NULL: always. */
    int (*is_ready)(const specdec__drafter *drafter, int at, int count);
    /* Receives tokens that the target has committed, in order, some repeatedly, with the hidden states of
       drafter->taps. NULL: it uses no hidden states. */
    specdec_result (*follow_target)(specdec__drafter *drafter, const specdec__prefilled *committed,
                                    specdec_error *error);
    /* How many of the sequence's tokens follow_target has received: it needs the next one. NULL: it needs the last one
       only. */
    int (*count_followed)(const specdec__drafter *drafter, int at);
    /* The path to candidate `root`, which was extended, was accepted: that candidate becomes the root, and its
       descendants stay. NULL: no candidate can stay. */
    void (*keep_subtree)(specdec__drafter *drafter, int at, specdec__draft_tree *drafts, int root);
    /* From now on it runs on at most `threads` threads of this pool. NULL: always on the engine's. */
    void (*set_threads)(specdec__drafter *drafter, specdec__pool *pool, int threads);
    /* The sequence has `count` tokens and is part of the next step. NULL: it needs no notice. */
    void (*prepare)(specdec__drafter *drafter, int at, const int32_t *text, int count,
                    const specdec_sampling *sampling);
    /* Whether it can append the children of a candidate now, without waiting for a remote rank. NULL: always. */
    int (*can_extend)(const specdec__drafter *drafter, const specdec__draft_request *request, int candidate);
    /* Seconds until it is expected to have more children for request's tree; 0: not known. NULL: it never waits for a
       remote rank. */
    double (*seconds_until_more)(const specdec__drafter *drafter, const specdec__draft_request *request);
    /* Receives the logits of a verified tree. NULL: it does not use them. */
    void (*see_logits)(specdec__drafter *drafter, const specdec__verified *judged);
} specdec__drafter_kind;

/* A drafter's share_prefix; NULL where the library has one sequence only. */
#define SPECDEC__SHARES(function) (SPECDEC__HAS_MANY_SEQUENCES ? (function) : NULL)

/* A drafter of an engine: its kind, its state, its proposals. */
struct specdec__drafter {
    specdec__drafter_kind kind;
    specdec_drafting drafting;     /* the public number of its kind */
    void *state;                   /* private to its kind */
    const specdec__model *model;   /* NULL: it has none */
    size_t kv_bytes;               /* of its cache */
    int levels;                    /* levels that it can draft, without the root, at most */
    specdec__state_reader taps;    /* (nodes, count, width): hidden states that it needs of the target's steps */
    specdec__proposal *proposals;  /* (sequences): for the current step */
};

/* --- any drafter -------------------------------------------------------------------------------------------------- */

/* Takes the arrays of a tree of at most `size` nodes from an arena. */
static void specdec__draft_take_tree(specdec_tree *tree, int size, specdec__arena *arena)
{
    memset(tree, 0, sizeof *tree);
    tree->capacity = size;
    tree->parents = SPECDEC__TAKE(arena, int32_t, size);
    tree->ranks = SPECDEC__TAKE(arena, int32_t, size);
}

/* Takes the arrays of a proposal from an arena: `capacity` candidates, of which at most `size` are verified. */
static void specdec__draft_take_proposal(specdec__proposal *p, int capacity, int size, specdec__arena *arena)
{
    specdec__draft_take_tree(&p->drafts.tree, capacity, arena);
    p->drafts.tokens = SPECDEC__TAKE(arena, int32_t, capacity);
    p->drafts.depth = SPECDEC__TAKE(arena, int32_t, capacity);
    p->drafts.extended = SPECDEC__TAKE(arena, unsigned char, capacity);
    p->drafts.share = SPECDEC__TAKE(arena, float, capacity);
    p->drafts.moved = SPECDEC__TAKE(arena, int32_t, capacity);
    p->frontier.probability = SPECDEC__TAKE(arena, float, capacity);
    p->frontier.chosen = SPECDEC__TAKE(arena, int32_t, size);
    p->outcome.place = SPECDEC__TAKE(arena, int32_t, capacity);
    p->outcome.kept = SPECDEC__TAKE(arena, int32_t, size);
}

/* Resets a proposal before a step to the root alone, the last of `count` tokens. Candidates of a tree that is kept from
   the last step stay in it, but are not to be verified yet. */
static void specdec__draft_begin_proposal(specdec__proposal *p, int32_t *text, int count,
                                          const specdec_sampling *sampling,
                                          specdec_rule rule)
{
    specdec__draft_tree *drafts = &p->drafts;

    p->request.text = text;
    p->request.count = count;
    p->request.sampling = sampling;
    p->request.constrained = NULL;
    p->request.rule = rule;
    p->outcome.kept[0] = 0;
    p->outcome.kept_count = 1;
    p->books.seconds = 0;
    if (p->frontier.valid_at == count)
        return;
    specdec__tree_put_node(&drafts->tree, 0, -1, 0);
    drafts->tree.n = 1;
    drafts->tokens[0] = text[count - 1];
    drafts->depth[0] = drafts->extended[0] = 0;
    drafts->share[0] = 1;
    drafts->extended_count = 0;
    p->frontier.probability[0] = 1;
    p->frontier.chosen[0] = 0;
    p->frontier.count = 1;
    p->frontier.valid_at = 0;
}

/* Marks the first `count` candidates of a proposal as those to be verified. */
static void specdec__draft_keep_first(specdec__proposal *p, int count)
{
    int i;

    for (i = 0; i < count; i++)
        p->outcome.kept[i] = i;
    p->outcome.kept_count = count;
}

/* The tree of a sequence that the target verifies. */
typedef struct specdec__merged {
    specdec_tree tree;
    int32_t *tokens;    /* (capacity) */
    signed char *owner; /* (capacity): which drafter was the first to propose a node; -1: the root */
    float *worth;       /* (capacity): probability that a node is accepted, at most its parent's */
} specdec__merged;

/* Merges the drafters' candidates to be verified into one tree of at most `most` nodes, for sequence `at`. A token that
   an earlier drafter proposed behind the same node is not added again; one that a drafter proposes twice is, as it was
   drawn twice. */
static void specdec__draft_merge_trees(specdec__merged *m, specdec__drafter *drafters, int count, int at, int32_t root,
                                       int most)
{
    specdec_tree *tree = &m->tree;
    int i, j, k;

    tree->n = 1;
    specdec__tree_put_node(tree, 0, -1, 0);
    m->tokens[0] = root;
    m->owner[0] = -1;
    for (i = 0; i < count; i++) {
        const specdec__draft_tree *drafts = &drafters[i].proposals[at].drafts;
        specdec__draft_outcome *outcome = &drafters[i].proposals[at].outcome;
        const int before = tree->n;

        memset(outcome->place, -1, (size_t)drafts->tree.n * sizeof *outcome->place);
        outcome->place[0] = 0;
        for (k = 1; k < outcome->kept_count; k++) {
            const int node = outcome->kept[k], parent = outcome->place[drafts->tree.parents[node]];

            if (parent < 0 || drafts->tokens[node] < 0)
                continue;
            j = specdec__tree_child(tree, parent, parent + 1);
            while (j < before && m->tokens[j] != drafts->tokens[node])
                j = specdec__tree_child(tree, parent, j + 1);
            if (j >= before) {
                if (tree->n >= most)
                    continue;
                j = tree->n++;
                specdec__tree_put_node(tree, j, parent, specdec__tree_next_rank(tree, j, parent));
                m->tokens[j] = drafts->tokens[node];
                m->owner[j] = (signed char)i;
            }
            outcome->place[node] = j;
        }
    }
}

/* The index of the candidate that is node `node` of the merged tree; -1: none is. */
static int specdec__draft_find_candidate(const specdec__draft_outcome *outcome, int node)
{
    int k;

    for (k = 0; k < outcome->kept_count; k++)
        if (outcome->place[outcome->kept[k]] == node)
            return outcome->kept[k];
    return -1;
}

/* Keeps of a merged tree the first `most` draft tokens with worth[i] >= least. Returns how many it keeps. */
static int specdec__draft_prune_tree(specdec__merged *m, specdec__drafter *drafters, int count, int at, float least,
                                     int most)
{
    int32_t now[SPECDEC__MAX_TREE];
    int i, k, kept = 1;

    now[0] = 0;
    for (i = 1; i < m->tree.n; i++) {
        const int parent = now[m->tree.parents[i]];

        now[i] = -1;
        if (kept > most || parent < 0 || m->worth[i] < least)
            continue;
        specdec__tree_put_node(&m->tree, kept, parent, specdec__tree_next_rank(&m->tree, kept, parent));
        m->tokens[kept] = m->tokens[i];
        m->owner[kept] = m->owner[i];
        m->worth[kept] = m->worth[i];
        now[i] = kept++;
    }
    m->tree.n = kept;
    for (i = 0; i < count; i++) {
        const specdec__draft_outcome *outcome = &drafters[i].proposals[at].outcome;

        for (k = 0; k < outcome->kept_count; k++) {
            int32_t *place = &outcome->place[outcome->kept[k]];

            *place = *place >= 0 ? now[*place] : -1;
        }
    }
    return kept - 1;
}

/* Calls a drafter's commit_path with those of its candidates that are on the accepted path (length nodes, the root
   first). */
static void specdec__draft_commit_path(specdec__drafter *d, specdec__proposal *p, const int32_t *path, int length)
{
    int32_t own[SPECDEC__MAX_TREE];
    int i, node;

    for (i = 1; i < length && (node = specdec__draft_find_candidate(&p->outcome, path[i])) >= 0; i++)
        own[i - 1] = node;
    if (d->kind.commit_path && p->drafts.tree.n > 1)
        d->kind.commit_path(d, p->request.at, own, i - 1);
}

SPECDEC__FOR_SPEED
