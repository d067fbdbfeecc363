/* =====================================================================================================================
 * >>cache/state: states of recurrent layers: slots that views share, and the inputs of nodes that are not in them yet.
 *
 * A slot holds the states of all recurrent layers after some tokens of a sequence. The committed tokens behind them
 * wait: of these, and of nodes, only the inputs are kept. The next step applies what waits, in place or, if others have
 * a part in the slot, into another one; then it walks the nodes on copies. So a node that is rejected costs nothing,
 * and a state is read once and written once a step, whatever the width. Nodes that are certain to be committed (a
 * prompt) are applied at once: into another slot, which counts as soon as they are committed. A step that ends early
 * has applied what waited, and nothing else: so lengths of states depend on which steps were begun, not on where they
 * ended, and are the same on all ranks of a cluster, also on those without recurrent layers.
 *
 * A slot that a view no longer changes stays as a checkpoint for a while: there a view can be cut, and another one can
 * go on from there.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../model/mixing.h"

/* All slots of a cache. */
typedef struct specdec__states {
    specdec__mixing mixing;
    int count, free_count; /* 0: the model has no states */
    size_t bytes;          /* of a slot: of each layer here, two windows (taps - 1, channels), (heads, rows, values) */
    unsigned char *memory; /* (count, bytes) */
    int *free;             /* (free_count) */
    int *views;            /* (count): how often views name a slot */
    unsigned char *half;   /* (count): which of the two windows counts */
    int every;             /* tokens between checkpoints, at least */
    int most;              /* checkpoints of a view */
    size_t node;           /* floats of the kept inputs of a node: (layers, kept) */
    uint64_t read, written; /* bytes of states and inputs, in all steps */
} specdec__states;

/* A slot that holds the states after the first `length` tokens; -1: none, which stands for zeros. */
typedef struct specdec__point {
    int length, slot;
    int certain; /* written by a step with certain nodes */
} specdec__point;

/* The states of a view. */
typedef struct specdec__state {
    specdec__point *point; /* (count): rising; the last is the state, the others are checkpoints */
    int count, room;       /* room: for points */
    specdec__point next;   /* what the last step has written for nodes that are certain; slot -1: nothing */
    int waiting;           /* committed tokens that are not in the state yet */
    int nodes;             /* whose inputs are kept */
    int certain;           /* of the last step, nodes before these */
    int places;            /* for inputs */
    int *place;            /* (places): of tokens that wait, then of nodes, then free ones */
    float *inputs;         /* (places, node) */
} specdec__state;

SPECDEC__FOR_SIZE

/* Floats of a layer in a slot. */
static size_t specdec__state_layer(const specdec__mixing *m)
{
    return 2 * specdec__mixing_window(m) + (size_t)m->heads * specdec__mixing_head(m);
}

/* Bytes of the state of a sequence. */
static size_t specdec__state_bytes(const specdec__mixing *m)
{
    return specdec__size_multiply(specdec__state_layer(m) * sizeof(float), (size_t)m->layers);
}

/* Slots for views of at most `length` tokens, each with what a step reads, what it writes, and checkpoints. every: 0: a
   good distance. */
static void specdec__states_init(specdec__states *s, const specdec__mixing *mixing, int views, int length, int every,
                                 specdec__arena *arena)
{
    int i;

    memset(s, 0, sizeof *s);
    s->mixing = *mixing;
    if (!specdec__mixing_is(mixing))
        return;
    s->every = every ? every : specdec__max_int(256, (length + 3) / 4);
    s->most = specdec__min_int(length / s->every, 1 << 12);
    s->count = (int)specdec__min_int(views, (1 << 30) / (s->most + 2)) * (s->most + 2);
    s->bytes = specdec__state_bytes(mixing);
    s->node = (size_t)mixing->layers * (size_t)mixing->kept;
    s->memory = (unsigned char *)specdec__arena_reserve(arena, (size_t)s->count, s->bytes, SPECDEC__CACHE_LINE);
    s->free = SPECDEC__TAKE(arena, int, s->count);
    s->views = SPECDEC__TAKE(arena, int, s->count);
    s->half = SPECDEC__TAKE(arena, unsigned char, s->count);
    for (i = 0; s->free && i < s->count; i++)
        s->free[s->free_count++] = s->count - 1 - i;
}

/* Room for the points of a view and the inputs of so many nodes. */
static void specdec__state_init(specdec__state *state, const specdec__states *s, int nodes, specdec__arena *arena)
{
    int i;

    memset(state, 0, sizeof *state);
    state->next.slot = -1;
    if (!specdec__mixing_is(&s->mixing))
        return;
    state->room = s->most + 2;
    state->point = SPECDEC__TAKE(arena, specdec__point, state->room);
    state->places = 2 * nodes;
    state->place = SPECDEC__TAKE(arena, int, state->places);
    state->inputs = SPECDEC__TAKE(arena, float, specdec__size_multiply((size_t)state->places, s->node));
    for (i = 0; state->place && i < state->places; i++)
        state->place[i] = i;
}

/* Whether a cache has states. */
SPECDEC__INLINE int specdec__states_are(const specdec__states *s) { return SPECDEC__RECURRENT && s->count; }

/* The last point of a view's state (its token count and slot), or zeros if it has none. */
SPECDEC__INLINE specdec__point specdec__state_now(const specdec__state *state)
{
    static const specdec__point none = {0, -1, 0};

    return state->count ? state->point[state->count - 1] : none;
}

SPECDEC__INLINE float *specdec__states_at(const specdec__states *s, int slot)
{
    return (float *)(void *)(s->memory + (size_t)slot * s->bytes);
}

/* The inputs at a place, of one layer. */
SPECDEC__INLINE float *specdec__state_inputs(const specdec__states *s, const specdec__state *state, int place,
                                             int layer)
{
    return state->inputs + (size_t)place * s->node + (size_t)layer * (size_t)s->mixing.kept;
}

/* A slot is named once more (by 1), or once less. */
static void specdec__states_part(specdec__states *s, int slot, int by)
{
    if (slot < 0)
        return;
    s->views[slot] += by;
    if (!s->views[slot])
        s->free[s->free_count++] = slot;
}

/* A free slot, which is named once; -1: there is none. */
static int specdec__states_take(specdec__states *s)
{
    int slot;

    if (!s->free_count)
        return -1;
    slot = s->free[--s->free_count];
    s->views[slot] = 1;
    s->half[slot] = 0;
    return slot;
}

/* Forgets what a step has written for nodes that were not committed. */
static void specdec__state_drop_next(specdec__state *state, specdec__states *s)
{
    specdec__states_part(s, state->next.slot, -1);
    state->next.slot = -1;
}

/* Nodes have no inputs any more. */
static void specdec__state_unreserve(specdec__state *state, specdec__states *s)
{
    specdec__state_drop_next(state, s);
    state->nodes = state->certain = 0;
}

/* Moves an entry of state->place from index `from` to a lower index `to`; those between move up by one. */
static void specdec__state_move(specdec__state *state, int from, int to)
{
    const int place = state->place[from];

    memmove(state->place + to + 1, state->place + to, (size_t)(from - to) * sizeof *state->place);
    state->place[to] = place;
}

/* Frees the places of waiting tokens, once the state includes them. */
static void specdec__state_applied(specdec__state *state)
{
    int i;

    for (i = state->waiting; i > 0; i--) { /* to the end, where the free ones are */
        const int place = state->place[0];

        memmove(state->place, state->place + 1, (size_t)(state->places - 1) * sizeof *state->place);
        state->place[state->places - 1] = place;
    }
    state->waiting = 0;
}

/* Drops the checkpoint without which the distances between the others are the most even. */
static void specdec__state_thin(specdec__state *state, specdec__states *s)
{
    int i, gap, best = 0, least = 1 << 30;

    for (i = 0; i + 1 < state->count; i++) {
        gap = state->point[i + 1].length - (i ? state->point[i - 1].length : 0);
        if (gap <= least) {
            least = gap;
            best = i;
        }
    }
    specdec__states_part(s, state->point[best].slot, -1);
    memmove(state->point + best, state->point + best + 1, (size_t)(--state->count - best) * sizeof *state->point);
}

/* The state becomes another one; the one before stays as a checkpoint if it is far from the last one, or if it ends a
   prompt. */
static void specdec__state_advance(specdec__state *state, specdec__states *s, specdec__point to)
{
    const specdec__point now = specdec__state_now(state);
    const int before = state->count > 1 ? state->point[state->count - 2].length : 0;

    if (state->count && (now.length - before < s->every && (!now.certain || to.certain || now.length == before))) {
        specdec__states_part(s, now.slot, -1);
        state->count--;
    }
    state->point[state->count++] = to;
    while (state->count > s->most + 1)
        specdec__state_thin(state, s);
}

/* Commits nodes path[count] of a view; the next `stay` of path become nodes from 0 on, with -1 all nodes stay that are
   not committed. Returns 0 where inputs of a node were not kept. */
static int specdec__state_keep(specdec__state *state, specdec__states *s, const int *path, int count, int stay)
{
    const int certain = state->next.slot >= 0 ? state->certain : 0, left = specdec__max_int(stay, 0);
    int i;

    if (state->certain && !certain)
        return 0;
    if (certain) {
        if (count < certain || path[certain - 1] != certain - 1)
            return 0;
        specdec__state_applied(state);
        specdec__state_advance(state, s, state->next);
        state->next.slot = -1;
        state->certain = 0;
    }
    for (i = certain; i < count + left; i++) {
        if (path[i] - certain >= state->nodes)
            return 0;
        specdec__state_move(state, state->waiting + path[i] - certain, state->waiting + i - certain);
    }
    state->waiting += count - certain;
    state->nodes = stay < 0 ? state->nodes - (count - certain) : stay;
    return 1;
}

/* The last point at or before a length; -1: there is none but the beginning. */
static int specdec__state_find(const specdec__state *state, int length)
{
    int i = state->count - 1;

    while (i >= 0 && state->point[i].length > length)
        i--;
    return i;
}

/* The longest beginning, of at most `length` tokens, of which a view still has the state. */
static int specdec__state_reach(const specdec__state *state, int length)
{
    const int now = specdec__state_now(state).length, i = specdec__state_find(state, length);

    if (length >= now)
        return specdec__min_int(length, now + state->waiting);
    return i < 0 ? 0 : state->point[i].length;
}

/* Cuts a view's states to a length that specdec__state_reach has returned. */
static void specdec__state_cut(specdec__state *state, specdec__states *s, int length)
{
    const int now = specdec__state_now(state).length;

    specdec__state_unreserve(state, s);
    state->waiting = specdec__max_int(length - now, 0);
    while (state->count && state->point[state->count - 1].length > length)
        specdec__states_part(s, state->point[--state->count].slot, -1);
}

/* An empty view gets a slot, which is to hold the state after its first `length` tokens. */
static void specdec__state_place(specdec__state *state, specdec__states *s, int length, int slot)
{
    specdec__state_cut(state, s, 0);
    state->point[0].length = length;
    state->point[0].slot = slot;
    state->point[0].certain = 1;
    state->count = 1;
}

/* How many of another view's first `length` tokens a view can take over: the other one's states, and what waits behind
   them, if there is room for that. */
static int specdec__state_shares(const specdec__state *state, const specdec__state *other, int length)
{
    const int reach = specdec__state_reach(other, length), now = specdec__state_now(other).length;

    return reach <= now ? reach : now + specdec__min_int(reach - now, state->places / 2);
}

/* A view without states takes over those of another one for its first `length` tokens, as specdec__state_shares says.
   */
static void specdec__state_share(specdec__state *state, specdec__states *s, const specdec__state *other, int length)
{
    int i;

    specdec__state_cut(state, s, 0);
    for (i = 0; i < other->count && other->point[i].length <= length; i++) {
        state->point[state->count++] = other->point[i];
        specdec__states_part(s, other->point[i].slot, 1);
    }
    state->waiting = length - specdec__state_now(state).length;
    for (i = 0; i < state->waiting; i++)
        memcpy(specdec__state_inputs(s, state, state->place[i], 0),
               specdec__state_inputs(s, other, other->place[i], 0), s->node * sizeof(float));
}

SPECDEC__FOR_SPEED
