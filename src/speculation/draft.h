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

#define SPECDEC__MAX_CHILDREN 32   /* children of a node of a token tree, at most */
#define SPECDEC__NGRAM_LONGEST_CONTEXT 6    /* tokens of the longest context of the n-gram drafter */
#define SPECDEC__NGRAM_SEQUENCE_TOKENS 1024  /* tokens of each further sequence that the n-gram index has room for */
#define SPECDEC__NGRAM_RECYCLED_CONTEXTS 16384 /* most contexts whose likeliest next tokens are stored */
#define SPECDEC__NGRAM_LEAST_PROBABILITY 0.005f /* the n-gram drafter proposes no less probable continuation */

enum {
    SPECDEC__DRAFTER_KINDS = SPECDEC_DRAFT_COUNT - SPECDEC_DRAFT_OFF - 1,
    SPECDEC__MAX_DRAFTERS = SPECDEC__DRAFTER_KINDS + 1 /* drafters of an engine, at most: one of each kind, and that of
                                                          forced tokens */
};

/* What the scheduler asks of a drafter for one sequence in a step. The scheduler writes the request (or a drafter that
   has another drafter of its own does); drafters only read it. */
typedef struct specdec__draft_request {
    int at;               /* index of the sequence in the engine */
    int32_t *text;        /* (count + max_levels): the sequence's tokens; drafters may write draft tokens behind them */
    int count;            /* tokens of the sequence; the root of the tree is text[count - 1] */
    const specdec_sampling *sampling;  /* the sequence's settings of sampling */
    specdec__constrained *constrained; /* the sequence's constraint; NULL: it has none */
    const specdec__view *view;         /* the sequence's keys and values in the target's cache; NULL while the engine is
                                          made */
    int max_nodes, max_levels; /* nodes and levels of a tree whose shape the drafter chooses, at most */
    specdec_rule rule;    /* the rule of verification, for which children are drawn */
    float *distributions; /* (tree size, vocab): where the rule needs it, the distribution that each node's children
                             were drawn from */
    double wait_seconds;  /* seconds that the drafter may wait for draft tokens of a remote rank */
} specdec__draft_request;

/* A drafter's tree of candidates (draft tokens, before some are chosen to be verified). Candidate 0 is the root: the
   sequence's last token. Written by the drafter while it is asked; before and after that by the scheduler, which sets
   the root and the shape of a tree to be filled, and drops trees. */
typedef struct specdec__draft_tree {
    specdec_tree tree;    /* parents and ranks of the candidates */
    int32_t *tokens;      /* (capacity): token of each candidate; -1: the drafter has none for it */
    int32_t *depth;       /* (capacity): levels of each candidate below the root, whose depth is 0 */
    float *share;         /* (capacity): the drafter's probability of each candidate once its parent is accepted */
    unsigned char *extended; /* (capacity): 1: the candidate's children are in the tree */
    int extended_count;   /* number of candidates that were extended, without the root */
    int32_t *moved;       /* (capacity): the new index of each candidate after keep_subtree; -1: it was dropped */
} specdec__draft_tree;

/* How a draft tree grows: which of its candidates get children next. Written by the scheduler. */
typedef struct specdec__draft_frontier {
    int grows;            /* 1: the tree grows level by level; 0: the drafter fills the whole tree at once */
    int shares;           /* 1: the drafter gives each candidate a probability, drafts.share; 0: acceptance is estimated
                             by rank */
    float *probability;   /* (capacity): estimated probability that the whole path from the root to a candidate is
                             accepted */
    int level;            /* index of the first candidate of the tree's newest level */
    int32_t *chosen;      /* (count, at most the tree size): candidates that get children next */
    int count;            /* number of chosen candidates */
    int valid_at;         /* the tree is kept from an earlier step, and valid while request.count is this; 0: it is not
                             kept */
} specdec__draft_frontier;

/* Which candidates of a draft tree the target verifies. Written by this part and by specdec__engine_keep_best_nodes. */
typedef struct specdec__draft_outcome {
    int32_t *kept;        /* (tree size): candidates to be verified, parents first, beginning with the root */
    int kept_count; /* number of candidates to be verified */
    int32_t *merged_node;  /* (capacity): index of each candidate's node in the merged tree; -1: it has none */
} specdec__draft_outcome;

/* What drafting for one sequence costs. Written by tuning; specdec__draft_begin_proposal sets `seconds` to 0. */
typedef struct specdec__draft_cost {
    double begun;         /* clock in seconds when the drafter was asked for draft tokens */
    double seconds;       /* seconds of drafting that count against the drafter */
    int idle_steps;       /* steps since the drafter was last asked for draft tokens */
} specdec__draft_cost;

/* All that a drafter proposes for one sequence in a step: the request, the tree of candidates, and what is done with
   it. */
typedef struct specdec__proposal {
    specdec__draft_request request;    /* what the scheduler asks for */
    specdec__draft_tree drafts;        /* the drafter's tree of candidates */
    specdec__draft_frontier frontier;  /* the candidates that get children next */
    specdec__draft_outcome outcome;  /* the candidates that are verified */
    specdec__draft_cost cost;  /* the seconds that drafting takes */
} specdec__proposal;

/* Arguments of a drafter's function init. */
typedef struct specdec__draft_setup {
    const specdec_config *config;    /* the caller's configuration, defaults filled in */
    const specdec__context *target;  /* the target's context */
    const specdec__kv_demand *room;  /* numbers of sequences, and of tokens of each, that caches have to hold */
    int capacity;                    /* candidates of a proposal, at most */
    int threads;                     /* threads of the pool that runs the drafter's model, at most */
    int window;                      /* newest tokens of a sequence that the drafter may use; 0: as many as its model's
                                        context has */
} specdec__draft_setup;

typedef struct specdec__drafter specdec__drafter;

/* Tokens [from, from + n) of a sequence, which the target has run and committed, with their hidden states. */
typedef struct specdec__committed_tokens {
    int at;              /* index of the sequence in the engine */
    const int32_t *text; /* (count): the sequence's tokens */
    int count;           /* number of all tokens of the sequence */
    int from, n;         /* index of the first committed token; number of committed tokens */
    int first;           /* index of the sequence's first node in the step's run */
    const int *path;     /* (n): the nodes of the committed tokens, counted from `first`; NULL: 0, 1, 2, ... */
    const float *state;  /* (width): hidden state of the last committed token; NULL: it was not computed */
} specdec__committed_tokens;

/* A verified tree of a sequence: the target's logits of its nodes, and the accepted path. */
typedef struct specdec__verified_tree {
    int at;                  /* index of the sequence in the engine */
    const int32_t *text;     /* the sequence's tokens, those that the step has added included */
    int count;               /* number of tokens before the step: the root is text[count - 1] */
    const specdec_sampling *sampling;  /* the sequence's settings of sampling */
    const specdec_tree *tree; /* the tree that was verified */
    const int32_t *tokens;   /* (tree->n): the tree's draft tokens */
    const float *logits;     /* (tree->n, vocab): the target's logits; NULL: not computed, as all tokens were forced */
    int vocab;               /* logits of a row: size of the target's vocabulary */
    const specdec__kernels *kernels;  /* functions of the instruction set in use */
    const int32_t *path;     /* (length): nodes of the accepted path, the root first */
    int length;              /* number of nodes on the path */
    int whole;               /* 1: all logits are computed; 0: only of nodes on the path, and only those of tokens that
                                can be chosen, the others being -infinity */
} specdec__verified_tree;

/* A kind of drafter: a row of facts and functions. specdec__draft_NAME_write_kind writes the row of a kind into a
   struct of zeros: the columns in which the kind differs from 0 and NULL. All functions but fill_tree may be NULL; the
   comment's "NULL:" says what that means. Adding a kind takes a line in SPECDEC_DRAFTERS, its functions, and
   specdec__draft_NAME_write_kind. In all functions `at` is the index of a sequence in the engine. */
typedef struct specdec__drafter_kind {
    size_t source;   /* offset in specdec_config of the specdec_source of its model; 0: it has no model */
    int optional;    /* 1: the kind can draft without that model, too */
    size_t enabled_by; /* offset in specdec_config of an int: `auto` uses this kind unless that is 0; 0: always */
    int ranks;       /* children of a node that the kind may propose, at most; 0: any number */
    int draws;       /* 1: children are drawn from a distribution where a rule of rejection needs that */
    int certain;     /* 1: every token that the kind proposes is accepted */
    int size, depth; /* default number of nodes and levels of its trees when no other kind drafts */
    int keeps_ended_sequences; /* 1: the kind also stores room->kept_views ended sequences, which later ones can share;
                                  their indices in share_prefix and truncate_sequence follow those of the `views` open
                                  sequences. 0: it does not */
    int nextn; /* 1: the kind's model is the NextN block in the target's files (multi-token prediction); 0: see
                  source */
    /* Initialises the drafter: takes the memory of its state from an arena, which may only count bytes. NULL: it has no
       state. */
    specdec_result (*init)(specdec__drafter *drafter, const specdec__draft_setup *setup, specdec__arena *arena,
                           specdec_error *error);
    /* Proposes a token for each node of drafts->tree, whose levels are stored one behind the other. A drafter without
       level_cost also chooses the tree and sets the shares. */
    specdec_result (*fill_tree)(specdec__drafter *drafter, const specdec__draft_request *request,
                                specdec__draft_tree *drafts, specdec_error *error);
    /* Appends the children of all candidates in frontier->chosen, with their shares, to the tree, and counts these
       candidates as extended. The root is extended first, alone; each candidate once, after its parent. NULL: the
       kind's trees do not grow. */
    specdec_result (*extend_tree)(specdec__drafter *drafter, const specdec__draft_request *request,
                                  specdec__draft_tree *drafts, const specdec__draft_frontier *frontier,
                                  specdec_error *error);
    /* Tells the drafter which of its candidates were accepted: path (count), without the root. NULL: the drafter
       prefills these tokens later. */
    void (*commit_path)(specdec__drafter *drafter, int at, const int32_t *path, int count);
    /* Drops what the drafter stores of a sequence behind its first `length` tokens, before it is cut to these; text
       still has all tokens. NULL: the drafter stores nothing of a sequence. */
    void (*truncate_sequence)(specdec__drafter *drafter, int at, const int32_t *text, int length);
    /* Makes sequence `at`, of which nothing is stored, begin with the first `length` tokens of sequence `of`. Indices
       from the number of open sequences on are those of kept ones. NULL: the drafter prefills these tokens. */
    void (*share_prefix)(specdec__drafter *drafter, int at, int of, int length);
    /* Drops what the drafter stores of a sequence that has ended; its index will be reused. NULL: as truncate_sequence
       with length 0. */
    void (*end_sequence)(specdec__drafter *drafter, int at, const int32_t *text);
    /* Returns the estimated cost of drafting a level, in plain steps; it is used until one is timed. NULL: drafting
       costs nothing. */
    double (*level_cost)(const specdec__drafter *drafter, const specdec__model *target);
    /* Returns how many of the sequence's first `count` tokens the drafter has not prefilled. NULL: it prefills
       nothing. */
    int (*count_unprefilled)(const specdec__drafter *drafter, int at, int count);
    /* Prefills the first `count` tokens of the request's sequence. NULL: prefilling is part of drafting. */
    specdec_result (*prefill)(specdec__drafter *drafter, const specdec__draft_request *request, int count,
                              specdec_error *error);
    /* Returns whether the drafter can draft behind the sequence's first `count` tokens. NULL: it always can. */
    int (*can_draft)(const specdec__drafter *drafter, int at, int count);
    /* Gives the drafter tokens that the target has committed, in order, some repeatedly, with the hidden states of
       drafter->taps. NULL: it uses no hidden states. */
    specdec_result (*receive_states)(specdec__drafter *drafter, const specdec__committed_tokens *committed,
                                     specdec_error *error);
    /* Returns of how many of the sequence's tokens the drafter has received hidden states: it needs those of the next
       token. NULL: it needs those of the last token only. */
    int (*count_received_states)(const specdec__drafter *drafter, int at);
    /* Makes candidate `root`, which was extended and accepted with the path to it, the root of the tree; its
       descendants stay. NULL: no candidate can stay. */
    void (*keep_subtree)(specdec__drafter *drafter, int at, specdec__draft_tree *drafts, int root);
    /* Makes the drafter run on at most `threads` threads of this pool from now on. NULL: it always runs on the engine's
       pool. */
    void (*set_threads)(specdec__drafter *drafter, specdec__pool *pool, int threads);
    /* Tells the drafter that the sequence, of `count` tokens, is part of the next step. NULL: the drafter need not
       know. */
    void (*prepare_sequence)(specdec__drafter *drafter, int at, const int32_t *text, int count,
                             const specdec_sampling *sampling);
    /* Returns whether the drafter can append the children of a candidate now, without waiting for a remote rank. NULL:
       it always can. */
    int (*can_extend)(const specdec__drafter *drafter, const specdec__draft_request *request, int candidate);
    /* Returns the seconds until the drafter is expected to have more children for the request's tree; 0: unknown. NULL:
       it never waits for a remote rank. */
    double (*seconds_until_more_children)(const specdec__drafter *drafter, const specdec__draft_request *request);
    /* Gives the drafter the target's logits of a verified tree. NULL: it does not use them. */
    void (*receive_logits)(specdec__drafter *drafter, const specdec__verified_tree *judged);
} specdec__drafter_kind;

/* A drafter's function share_prefix; NULL in a build in which an engine has one sequence only. */
#define SPECDEC__SHARES(function) (SPECDEC__HAS_MANY_SEQUENCES ? (function) : NULL)

/* A drafter of an engine: its kind, its state, and its proposals for each sequence. */
struct specdec__drafter {
    specdec__drafter_kind kind;    /* functions and facts of its kind */
    specdec_drafting drafting;     /* the public number of its kind */
    void *state;                   /* the drafter's state, whose type only its kind knows */
    const specdec__model *model;   /* the model that drafts; NULL: there is none */
    size_t kv_bytes;               /* bytes of the drafter's cache of keys and values */
    int levels;                    /* levels of a tree below the root that the drafter can draft, at most */
    specdec__state_reader taps;    /* (nodes, count, width): the hidden states that it needs of the target's runs */
    specdec__proposal *proposals;  /* (sequences): its proposals for the current step */
};

/* --- any drafter -------------------------------------------------------------------------------------------------- */

/* Takes the memory of a token tree of at most `size` nodes from an arena. */
static void specdec__draft_allocate_tree(specdec_tree *tree, int size, specdec__arena *arena)
{
    memset(tree, 0, sizeof *tree);
    tree->capacity = size;
    tree->parents = SPECDEC__TAKE(arena, int32_t, size);
    tree->ranks = SPECDEC__TAKE(arena, int32_t, size);
}

/* Takes the memory of a proposal from an arena: `capacity` candidates, of which at most `size` are verified. */
static void specdec__draft_allocate_proposal(specdec__proposal *p, int capacity, int size, specdec__arena *arena)
{
    specdec__draft_allocate_tree(&p->drafts.tree, capacity, arena);
    p->drafts.tokens = SPECDEC__TAKE(arena, int32_t, capacity);
    p->drafts.depth = SPECDEC__TAKE(arena, int32_t, capacity);
    p->drafts.extended = SPECDEC__TAKE(arena, unsigned char, capacity);
    p->drafts.share = SPECDEC__TAKE(arena, float, capacity);
    p->drafts.moved = SPECDEC__TAKE(arena, int32_t, capacity);
    p->frontier.probability = SPECDEC__TAKE(arena, float, capacity);
    p->frontier.chosen = SPECDEC__TAKE(arena, int32_t, size);
    p->outcome.merged_node = SPECDEC__TAKE(arena, int32_t, capacity);
    p->outcome.kept = SPECDEC__TAKE(arena, int32_t, size);
}

/* Resets a proposal before a step: its tree is the root alone, the last of `count` tokens. Candidates of a tree that is
   kept from the last step stay in it, but are not to be verified yet. */
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
    p->cost.seconds = 0;
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
static void specdec__draft_select_first_candidates(specdec__proposal *p, int count)
{
    int i;

    for (i = 0; i < count; i++)
        p->outcome.kept[i] = i;
    p->outcome.kept_count = count;
}

/* The token tree of a sequence that the target verifies: the trees of all drafters, merged into one. */
typedef struct specdec__merged_tree {
    specdec_tree tree;  /* parents and ranks of the nodes */
    int32_t *tokens;    /* (capacity): token of each node */
    signed char *owner; /* (capacity): index of the drafter that was the first to propose each node; -1: the root */
    float *worth;       /* (capacity): probability that each node is accepted, at most its parent's */
} specdec__merged_tree;

/* Merges the drafters' candidates that are to be verified into one tree of at most `most` nodes, for sequence `at`. A
   token that an earlier drafter proposed behind the same node is not added again; a token that one drafter proposes
   twice is added twice, as it was drawn twice. */
static void specdec__draft_merge_trees(specdec__merged_tree *m, specdec__drafter *drafters, int count, int at,
                                       int32_t root, int most)
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

        memset(outcome->merged_node, -1, (size_t)drafts->tree.n * sizeof *outcome->merged_node);
        outcome->merged_node[0] = 0;
        for (k = 1; k < outcome->kept_count; k++) {
            const int node = outcome->kept[k], parent = outcome->merged_node[drafts->tree.parents[node]];

            if (parent < 0 || drafts->tokens[node] < 0)
                continue;
            j = specdec__tree_next_child(tree, parent, parent + 1);
            while (j < before && m->tokens[j] != drafts->tokens[node])
                j = specdec__tree_next_child(tree, parent, j + 1);
            if (j >= before) {
                if (tree->n >= most)
                    continue;
                j = tree->n++;
                specdec__tree_put_node(tree, j, parent, specdec__tree_next_rank(tree, j, parent));
                m->tokens[j] = drafts->tokens[node];
                m->owner[j] = (signed char)i;
            }
            outcome->merged_node[node] = j;
        }
    }
}

/* Returns the index of the candidate that is node `node` of the merged tree; -1: no candidate is. */
static int specdec__draft_candidate_of_node(const specdec__draft_outcome *outcome, int node)
{
    int k;

    for (k = 0; k < outcome->kept_count; k++)
        if (outcome->merged_node[outcome->kept[k]] == node)
            return outcome->kept[k];
    return -1;
}

/* Prunes a merged tree to the root and the first `most` draft tokens with worth[i] >= least. Returns how many draft
   tokens are left. */
static int specdec__draft_prune_tree(specdec__merged_tree *m, specdec__drafter *drafters, int count, int at,
                                     float least, int most)
{
    int32_t now[SPECDEC__MAX_TREE_NODES];
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
            int32_t *place = &outcome->merged_node[outcome->kept[k]];

            *place = *place >= 0 ? now[*place] : -1;
        }
    }
    return kept - 1;
}

/* Calls a drafter's commit_path with those of its candidates that are on the accepted path of the merged tree (length
   nodes, the root first). */
static void specdec__draft_commit_path(specdec__drafter *d, specdec__proposal *p, const int32_t *path, int length)
{
    int32_t own[SPECDEC__MAX_TREE_NODES];
    int i, node;

    for (i = 1; i < length && (node = specdec__draft_candidate_of_node(&p->outcome, path[i])) >= 0; i++)
        own[i - 1] = node;
    if (d->kind.commit_path && p->drafts.tree.n > 1)
        d->kind.commit_path(d, p->request.at, own, i - 1);
}

SPECDEC__FOR_SPEED
