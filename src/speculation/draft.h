/* =====================================================================================================================
 * >>speculation/draft: drafters fill a token tree and never see a verifier. A drafter is a row of functions; what
 *     several propose is merged into one tree.
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

#define SPECDEC__MAX_CHILDREN 32   /* of a node */
#define SPECDEC__NGRAM_TOKENS 6    /* the longest context of the n-gram drafter */
#define SPECDEC__NGRAM_SHARE 1024  /* tokens of each further text that the index has room for */
#define SPECDEC__NGRAM_RECYCLED 16384 /* contexts, at most, of which it keeps what the target found likely */
#define SPECDEC__NGRAM_LEAST 0.005f /* a continuation is not proposed that is less probable */

enum {
    SPECDEC__DRAFTER_KINDS = SPECDEC_DRAFT_COUNT - SPECDEC_DRAFT_OFF - 1,
    SPECDEC__MAX_DRAFTERS = SPECDEC__DRAFTER_KINDS + 1 /* of an engine: one of each kind, and one that is in no list */
};

/* What a drafter proposes for one text in a step: a tree of candidates behind the text, the root first. */
typedef struct specdec__proposal {
    int at;               /* which of the engine's texts */
    int32_t *text;        /* (count + levels): tokens so far; drafters may write behind them */
    int count;            /* the root is text[count - 1] */
    const specdec_sampling *sampling; /* of the text */
    specdec__constrained *constrained; /* the same; NULL: anything may follow */
    const specdec__view *view;        /* of the text, in the target's cache; NULL while the engine is made */
    int most, levels;     /* nodes and levels, at most, of a tree whose shape the drafter chooses */
    specdec_rule rule;    /* children are drawn as this rule wants them; coupled: by specdec__choose */
    float *distributions; /* (tree size, vocab): for the rules that ask, what the children of a node were drawn from */
    int grows;            /* the tree is extended level by level, else filled */
    int shares;           /* candidates have shares, which tell how probable they are; else their ranks tell */
    specdec_tree tree;
    int32_t *tokens;      /* (capacity): -1 where nothing is proposed */
    int32_t *depth;       /* (capacity): root 0 */
    unsigned char *extended; /* (capacity): what may follow a candidate is known */
    float *share;         /* (capacity): how probable a candidate is behind its parent, by the drafter */
    float *probability;   /* (capacity): of the path from the root */
    int level;            /* where the newest level of a tree that grows begins */
    int ran;              /* candidates that were extended before, the root aside */
    int stays;            /* the tree was begun behind a shorter text, and holds behind one of so many tokens; 0: not */
    int32_t *chosen;      /* (tree size): candidates to be extended next */
    int32_t *kept;        /* (tree size): candidates that shall be verified, in order; the root is the first of them */
    int kept_count;
    int32_t *place;       /* (capacity): the node of the merged tree that a candidate has become, or -1 */
    double seconds;       /* that this took, without what is not held against the drafter */
    double patience;      /* so many seconds may be waited for what is on its way */
    int idle;             /* steps since the drafter was asked for a tree that pays, or for one guess */
} specdec__proposal;

/* What a drafter may need to know when it is made. */
typedef struct specdec__draft_setup {
    const specdec_config *config;    /* defaults filled in */
    const specdec__context *target;
    const specdec__room *room;       /* texts, and how long they are */
    int capacity;                    /* candidates of a proposal, at most */
    int threads;                     /* of the pool, that its model keeps busy */
    int window;                      /* tokens of a text that it may look at; 0: as many as its model was made for */
} specdec__draft_setup;

typedef struct specdec__drafter specdec__drafter;

/* The target has read tokens [from, from + n) of a text. */
typedef struct specdec__heard {
    int at;              /* which of the engine's texts */
    const int32_t *text; /* (count) what is known of it */
    int count, from, n;
    int first;           /* of the step's nodes the first that is the text's */
    const int *path;     /* (n): which of its nodes became those tokens; NULL: all, in order */
    const float *state;  /* the final one, behind the last of them; NULL: was not computed */
} specdec__heard;

/* The target has run a tree behind a text and chosen a path. */
typedef struct specdec__judged {
    int at;                  /* which of the engine's texts */
    const int32_t *text;     /* its tokens, those chosen along the path included */
    int count;               /* of it before the step: the root is text[count - 1] */
    const specdec_sampling *sampling;
    const specdec_tree *tree;
    const int32_t *tokens;   /* (tree->n) */
    const float *logits;     /* (tree->n, vocab); NULL: nobody had to look at any */
    int vocab;
    const specdec__kernels *kernels;
    const int32_t *path;     /* (length): nodes that were reached, the root first: each has chosen a token */
    int length;
    int whole;               /* 0: nodes that were not reached have no logits; others at least those that matter, all
                                else being -infinity */
} specdec__judged;

/* A kind of drafter. All functions but fill may be missing (NULL); what that means is said behind "Or". Adding a kind:
   a line in SPECDEC_DRAFTERS, above, and in this section its functions and their row. */
typedef struct specdec__drafter_kind {
    size_t source;   /* of its model: a specdec_source, by its place in specdec_config; 0: it needs none */
    int optional;    /* it can do without that model, too */
    size_t asked;    /* an int in specdec_config by its place: if that is 0, auto does without this kind; 0: never */
    int ranks;       /* tokens that it may propose behind a node; 0: any number */
    int draws;       /* children are drawn from a distribution if a rule of rejection wants that */
    int size, depth; /* of its trees, when it drafts alone and the caller does not say */
    /* Takes its state from an arena, which may only count. Or: it has none. */
    specdec_result (*init)(specdec__drafter *drafter, const specdec__draft_setup *setup, specdec__arena *arena,
                           specdec_error *error);
    /* Proposes a token for each node of proposal->tree, whose levels lie one behind the other. A drafter that costs
       nothing also chooses the tree and says how probable each node is behind its parent. */
    specdec_result (*fill)(specdec__drafter *drafter, specdec__proposal *proposal, specdec_error *error);
    /* Appends what may follow each of proposal->chosen[count], with its shares. The root comes first, alone; a
       candidate comes once, after its parent. Or: its trees do not grow. */
    specdec_result (*extend)(specdec__drafter *drafter, specdec__proposal *proposal, int count, specdec_error *error);
    /* path (count): which of its candidates were accepted, the root aside. Or: it reads them in the text. */
    void (*commit)(specdec__drafter *drafter, specdec__proposal *proposal, const int32_t *path, int count);
    /* Text number `at`, unchanged as yet, will be cut to its first length tokens. Or: it remembers none. */
    void (*truncate)(specdec__drafter *drafter, int at, const int32_t *text, int length);
    /* Text number `at`, of which nothing is remembered, begins with the first length tokens of text number `of`. Or: it
       finds out by reading. Numbers behind those of the texts: see keeps. */
    void (*share)(specdec__drafter *drafter, int at, int of, int length);
    /* Text number `at` has ended; its place will be another text's. Or: as if it were cut to nothing. */
    void (*end)(specdec__drafter *drafter, int at, const int32_t *text);
    /* What a level costs, in steps of the target; a guess until one was timed. Or: nothing: it can always be asked. */
    double (*cost)(const specdec__drafter *drafter, const specdec__model *target);
    /* How many of the first count tokens of text number `at` it has not read. Or: it need not read any. */
    int (*behind)(const specdec__drafter *drafter, int at, int count);
    /* Reads the first count tokens of the proposal's text, so that fewer are left for later. Or: it reads fast. */
    specdec_result (*read)(specdec__drafter *drafter, specdec__proposal *proposal, int count, specdec_error *error);
    /* Whether it can propose behind the first count tokens of text number `at`. Or: always. */
    int (*ready)(const specdec__drafter *drafter, int at, int count);
    /* Hears what the target has read, with its states, those of drafter->taps included. Tokens come in order; some come
       again. Or: it does not look at states. */
    specdec_result (*follow)(specdec__drafter *drafter, const specdec__heard *heard, specdec_error *error);
    /* Of how many tokens of text number `at` it has heard: the next one is needed. Or: it needs the last alone. */
    int (*heard)(const specdec__drafter *drafter, int at);
    /* The path to a candidate that was extended was accepted, with it: it becomes the root, what lies behind it stays.
       Or: nothing can stay. */
    void (*keep)(specdec__drafter *drafter, specdec__proposal *proposal, int root);
    /* From now on it runs on so many threads of this pool, or fewer. Or: always on the engine's. */
    void (*move)(specdec__drafter *drafter, specdec__pool *pool, int threads);
    /* Text number `at` has count tokens, and a step is made up that may write behind them. Or: it looks when asked. */
    void (*look)(specdec__drafter *drafter, int at, const int32_t *text, int count, const specdec_sampling *sampling);
    /* Whether it knows by now what may follow a candidate. Or: it always finds out. */
    int (*knows)(const specdec__drafter *drafter, const specdec__proposal *proposal, int candidate);
    /* In so many seconds it is thought to know more; 0: that is not known. Or: it finds out. */
    double (*due)(const specdec__drafter *drafter, const specdec__proposal *proposal);
    /* 1: share and truncate also take the numbers of ended sequences that are kept (room->kept of them): text `views` +
       i is the i-th. 0: it remembers none of these. */
    int keeps;
    int nextn; /* 1: its model is the block of the target's files that only predicts; 0: see source */
    /* Sees the logits of the nodes that were verified. Or: it does not look at them. */
    void (*watch)(specdec__drafter *drafter, const specdec__judged *judged);
} specdec__drafter_kind;

/* What a sequence that begins like another one takes over of it; nothing where there is one sequence. */
#define SPECDEC__SHARES(function) (SPECDEC__SEQUENCES ? (function) : NULL)

struct specdec__drafter {
    const specdec__drafter_kind *kind;
    specdec_drafting drafting;     /* its name to callers */
    void *state;                   /* of its kind */
    const specdec__model *model;   /* of the kind's source; NULL: it needs none */
    size_t kv_bytes;               /* of its cache */
    int levels;                    /* that it can guess, the root aside */
    specdec__taps taps;            /* states that it wants of the target's steps, or none: out (nodes, count, width) */
    specdec__proposal *proposals;  /* (texts): for this step */
};

/* --- any drafter -------------------------------------------------------------------------------------------------- */

/* The arrays of a tree of at most `size` nodes. */
static void specdec__draft_take_tree(specdec_tree *tree, int size, specdec__arena *arena)
{
    memset(tree, 0, sizeof *tree);
    tree->capacity = size;
    tree->parents = SPECDEC__TAKE(arena, int32_t, size);
    tree->ranks = SPECDEC__TAKE(arena, int32_t, size);
}

/* The arrays of a proposal: `capacity` candidates, of which `size` are verified at most. */
static void specdec__draft_take(specdec__proposal *p, int capacity, int size, specdec__arena *arena)
{
    specdec__draft_take_tree(&p->tree, capacity, arena);
    p->tokens = SPECDEC__TAKE(arena, int32_t, capacity);
    p->depth = SPECDEC__TAKE(arena, int32_t, capacity);
    p->extended = SPECDEC__TAKE(arena, unsigned char, capacity);
    p->share = SPECDEC__TAKE(arena, float, capacity);
    p->probability = SPECDEC__TAKE(arena, float, capacity);
    p->place = SPECDEC__TAKE(arena, int32_t, capacity);
    p->chosen = SPECDEC__TAKE(arena, int32_t, size);
    p->kept = SPECDEC__TAKE(arena, int32_t, size);
}

/* Before a step: nothing is proposed but the root, the last of count tokens. What a tree holds that stays is not
   proposed as yet. */
static void specdec__draft_begin(specdec__proposal *p, int32_t *text, int count, const specdec_sampling *sampling,
                                 specdec_rule rule)
{
    p->text = text;
    p->count = count;
    p->sampling = sampling;
    p->constrained = NULL;
    p->rule = rule;
    p->kept[0] = 0;
    p->kept_count = 1;
    p->seconds = 0;
    if (p->stays == count)
        return;
    p->stays = 0;
    specdec__tree_put(&p->tree, 0, -1, 0);
    p->tokens[0] = text[count - 1];
    p->probability[0] = p->share[0] = 1;
    p->depth[0] = p->chosen[0] = p->extended[0] = 0;
    p->tree.n = 1;
    p->ran = 0;
}

/* The first count candidates shall be verified. */
static void specdec__draft_keep(specdec__proposal *p, int count)
{
    for (p->kept_count = 0; p->kept_count < count; p->kept_count++)
        p->kept[p->kept_count] = p->kept_count;
}

/* The tree that is verified. */
typedef struct specdec__merged {
    specdec_tree tree;
    int32_t *tokens;    /* (capacity) */
    signed char *owner; /* (capacity): which drafter was the first to propose a node; -1: the root */
    float *worth;       /* (capacity): how probable it is that a node is accepted; never above its parent's */
} specdec__merged;

/* Merges what the drafters want to have verified of text number `at` into one tree of at most `most` nodes. What an
   earlier drafter has proposed at a node is not doubled; what one drafter proposes twice there, it has drawn twice. */
static void specdec__draft_merge(specdec__merged *m, specdec__drafter *drafters, int count, int at, int32_t root,
                                 int most)
{
    specdec_tree *tree = &m->tree;
    int i, j, k;

    tree->n = 1;
    specdec__tree_put(tree, 0, -1, 0);
    m->tokens[0] = root;
    m->owner[0] = -1;
    for (i = 0; i < count; i++) {
        specdec__proposal *p = &drafters[i].proposals[at];
        const int before = tree->n;

        memset(p->place, -1, (size_t)p->tree.n * sizeof *p->place);
        p->place[0] = 0;
        for (k = 1; k < p->kept_count; k++) {
            const int node = p->kept[k], parent = p->place[p->tree.parents[node]];

            if (parent < 0 || p->tokens[node] < 0)
                continue;
            j = specdec__tree_child(tree, parent, parent + 1);
            while (j < before && m->tokens[j] != p->tokens[node])
                j = specdec__tree_child(tree, parent, j + 1);
            if (j >= before) {
                if (tree->n >= most)
                    continue;
                j = tree->n++;
                specdec__tree_put(tree, j, parent, specdec__tree_rank(tree, j, parent));
                m->tokens[j] = p->tokens[node];
                m->owner[j] = (signed char)i;
            }
            p->place[node] = j;
        }
    }
}

/* The candidate that has become a node of the merged tree; -1: none. */
static int specdec__draft_candidate(const specdec__proposal *p, int node)
{
    int k;

    for (k = 0; k < p->kept_count; k++)
        if (p->place[p->kept[k]] == node)
            return p->kept[k];
    return -1;
}

/* Of a merged tree's guesses, keeps the first `most` that are worth at least `least`. Returns how many these are. */
static int specdec__draft_prune(specdec__merged *m, specdec__drafter *drafters, int count, int at, float least,
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
        specdec__tree_put(&m->tree, kept, parent, specdec__tree_rank(&m->tree, kept, parent));
        m->tokens[kept] = m->tokens[i];
        m->owner[kept] = m->owner[i];
        m->worth[kept] = m->worth[i];
        now[i] = kept++;
    }
    m->tree.n = kept;
    for (i = 0; i < count; i++) {
        specdec__proposal *p = &drafters[i].proposals[at];

        for (k = 0; k < p->kept_count; k++)
            if (p->place[p->kept[k]] >= 0)
                p->place[p->kept[k]] = now[p->place[p->kept[k]]];
    }
    return kept - 1;
}

/* Tells a drafter which of its candidates were accepted: those on the path (length, the root first). */
static void specdec__draft_accept(specdec__drafter *d, specdec__proposal *p, const int32_t *path, int length)
{
    int32_t own[SPECDEC__MAX_TREE];
    int i, node;

    for (i = 1; i < length && (node = specdec__draft_candidate(p, path[i])) >= 0; i++)
        own[i - 1] = node;
    if (d->kind->commit && p->tree.n > 1)
        d->kind->commit(d, p, own, i - 1);
}

SPECDEC__FOR_SPEED
