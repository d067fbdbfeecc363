/* =====================================================================================================================
 * >>cache/state: states of recurrent layers: slots that views share, and stored inputs of tokens that the states lack.
 *
 * A slot holds the states of all recurrent layers after some tokens of a sequence. Committed tokens that the slot does
 * not include yet are waiting tokens: only their inputs are stored, as those of nodes are. The next step applies the
 * waiting tokens to the state: in place, or into a new slot if another view refers to the slot. Then it walks the nodes
 * on copies of the state. So a rejected node costs nothing, and a step reads and writes a state once, whatever its
 * width. Certain nodes, those of a prompt, are applied at once, into a new slot that becomes the state when they are
 * committed. A step that ends early has applied the waiting tokens and no others. So the lengths of states depend on
 * which steps were begun, not on where they ended, and are the same on all ranks of a cluster.
 *
 * A slot that a view no longer changes stays as a checkpoint for a while: the view can be cut to its length, and other
 * views can share it.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../model/mixing.h"

/* The slots for recurrent states of a cache. */
typedef struct specdec__states {
    specdec__recurrent_sizes recurrent_sizes; /* sizes of the recurrent layers */
    int count, free_count; /* all slots, free slots; 0: the model has no recurrent layers */
    size_t bytes;          /* bytes of a slot: for each layer on this rank two windows (taps - 1, channels) and matrices
                              (heads, rows, values) */
    unsigned char *memory; /* (count, bytes) the slots */
    int *free_slots;       /* (free_count) numbers of the free slots */
    int *references;       /* (count) how many references views have to each slot */
    unsigned char *current_window; /* (count) which of the two windows is the current one: 0 or 1 */
    int checkpoint_distance; /* tokens between two checkpoints, at least */
    int max_checkpoints;   /* checkpoints of one view, at most */
    size_t input_floats;   /* floats of the stored inputs of one token: (layers, input_count) */
    uint64_t bytes_read, bytes_written; /* bytes of states and inputs that all steps so far have read and written */
} specdec__states;

/* A slot and the number of tokens that its states include. slot -1: none, the initial state, all zeros. */
typedef struct specdec__point {
    int length, slot; /* tokens that the states include; number of the slot */
    int ends_prompt;  /* 1: the last of these tokens was a certain node of a step, as at the end of a prompt */
} specdec__point;

/* The recurrent states of one view: points in slots, and the stored inputs of tokens behind the last point. */
typedef struct specdec__state {
    specdec__point *point; /* (count) by rising length; the last point is the current state, the others are
                              checkpoints */
    int count, max_points; /* points, and how many there is memory for */
    specdec__point uncommitted; /* state that the last step has written for certain nodes, not committed yet; slot -1:
                              none */
    int waiting_tokens;         /* committed tokens that the current state does not include yet */
    int stored_nodes;           /* uncommitted nodes whose inputs are stored */
    int certain_nodes;          /* certain nodes of this view in the last step: its first ones */
    int max_inputs;        /* how many tokens inputs can be stored for */
    int *input_row;        /* (max_inputs) rows of `inputs`: first those of waiting tokens, then those of nodes, then
                              free ones */
    float *inputs;         /* (max_inputs, input_floats) stored inputs */
} specdec__state;

SPECDEC__FOR_SIZE

/* Returns the floats of one layer in a slot: two windows, and the matrices of all heads. */
static size_t specdec__state_slot_floats_per_layer(const specdec__recurrent_sizes *m)
{
    return 2 * specdec__recurrent_conv_window_floats(m) + (size_t)m->heads * specdec__recurrent_state_matrix_floats(m);
}

/* Returns the bytes of one slot: the states of all recurrent layers for one sequence. */
static size_t specdec__state_slot_bytes(const specdec__recurrent_sizes *m)
{
    return specdec__size_multiply(specdec__state_slot_floats_per_layer(m) * sizeof(float), (size_t)m->layers);
}

/* Takes slots from an arena for `views` views of at most `length` tokens: for each the state that a step reads, the
   state that it writes, and checkpoints, at least `every` tokens apart; every 0: a default distance. */
static void specdec__states_init(specdec__states *s, const specdec__recurrent_sizes *mixing, int views, int length,
                                 int every, specdec__arena *arena)
{
    int i;

    memset(s, 0, sizeof *s);
    s->recurrent_sizes = *mixing;
    if (!specdec__recurrent_layers_exist(mixing))
        return;
    s->checkpoint_distance = every ? every : specdec__max_int(256, (length + 3) / 4);
    s->max_checkpoints = specdec__min_int(length / s->checkpoint_distance, 1 << 12);
    s->count = (int)specdec__min_int(views, (1 << 30) / (s->max_checkpoints + 2)) * (s->max_checkpoints + 2);
    s->bytes = specdec__state_slot_bytes(mixing);
    s->input_floats = (size_t)mixing->layers * (size_t)mixing->input_count;
    s->memory = (unsigned char *)specdec__arena_reserve(arena, (size_t)s->count, s->bytes, SPECDEC__CACHE_LINE);
    s->free_slots = SPECDEC__TAKE(arena, int, s->count);
    s->references = SPECDEC__TAKE(arena, int, s->count);
    s->current_window = SPECDEC__TAKE(arena, unsigned char, s->count);
    for (i = 0; s->free_slots && i < s->count; i++)
        s->free_slots[s->free_count++] = s->count - 1 - i;
}

/* Takes memory from an arena for the points of a view, and for the inputs of up to 2 * nodes waiting tokens and
   nodes. */
static void specdec__state_init(specdec__state *state, const specdec__states *s, int nodes, specdec__arena *arena)
{
    int i;

    memset(state, 0, sizeof *state);
    state->uncommitted.slot = -1;
    if (!specdec__recurrent_layers_exist(&s->recurrent_sizes))
        return;
    state->max_points = s->max_checkpoints + 2;
    state->point = SPECDEC__TAKE(arena, specdec__point, state->max_points);
    state->max_inputs = 2 * nodes;
    state->input_row = SPECDEC__TAKE(arena, int, state->max_inputs);
    state->inputs = SPECDEC__TAKE(arena, float, specdec__size_multiply((size_t)state->max_inputs, s->input_floats));
    for (i = 0; state->input_row && i < state->max_inputs; i++)
        state->input_row[i] = i;
}

/* Whether a cache has slots for recurrent states. */
SPECDEC__INLINE int specdec__states_exist(const specdec__states *s)
{
    return SPECDEC__HAS_RECURRENT_LAYERS && s->count;
}

/* Returns the last point of a view, its current state; a point of length 0 without a slot if the view has none. */
SPECDEC__INLINE specdec__point specdec__state_current_point(const specdec__state *state)
{
    static const specdec__point none = {0, -1, 0};

    return state->count ? state->point[state->count - 1] : none;
}

/* Returns the address of a slot: the recurrent states of all layers for one view. */
SPECDEC__INLINE float *specdec__states_slot_address(const specdec__states *s, int slot)
{
    return (float *)(void *)(s->memory + (size_t)slot * s->bytes);
}

/* Returns the stored inputs (input_count) of one token for one recurrent layer. place: an entry of state->input_row. */
SPECDEC__INLINE float *specdec__state_inputs_address(const specdec__states *s, const specdec__state *state, int place,
                                                     int layer)
{
    return state->inputs + (size_t)place * s->input_floats + (size_t)layer * (size_t)s->recurrent_sizes.input_count;
}

/* Adds a view's reference to a slot of recurrent states (by = 1) or removes one (by = -1). A slot without references
   becomes free. */
static void specdec__states_add_reference(specdec__states *s, int slot, int by)
{
    if (slot < 0)
        return;
    s->references[slot] += by;
    if (!s->references[slot])
        s->free_slots[s->free_count++] = slot;
}

/* Takes a free slot for a recurrent state, with one reference. Returns its number; -1: no slot is free. */
static int specdec__states_take_slot(specdec__states *s)
{
    int slot;

    if (!s->free_count)
        return -1;
    slot = s->free_slots[--s->free_count];
    s->references[slot] = 1;
    s->current_window[slot] = 0;
    return slot;
}

/* Frees the slot of the state that a step has written for certain nodes of a view, as these were not committed. */
static void specdec__state_free_uncommitted_slot(specdec__state *state, specdec__states *s)
{
    specdec__states_add_reference(s, state->uncommitted.slot, -1);
    state->uncommitted.slot = -1;
}

/* Frees the stored inputs of all uncommitted nodes of a view. */
static void specdec__state_free_node_inputs(specdec__state *state, specdec__states *s)
{
    specdec__state_free_uncommitted_slot(state, s);
    state->stored_nodes = state->certain_nodes = 0;
}

/* Moves an entry of state->input_row from index `from` to a lower index `to`; the entries between them move up by
   one. */
static void specdec__state_move_input_row(specdec__state *state, int from, int to)
{
    const int place = state->input_row[from];

    memmove(state->input_row + to + 1, state->input_row + to, (size_t)(from - to) * sizeof *state->input_row);
    state->input_row[to] = place;
}

/* Frees the stored inputs of a view's waiting tokens, once the view's current state includes these tokens. */
static void specdec__state_free_waiting_inputs(specdec__state *state)
{
    int i;

    for (i = state->waiting_tokens; i > 0; i--) { /* to the end, where the free ones are */
        const int place = state->input_row[0];

        memmove(state->input_row, state->input_row + 1, (size_t)(state->max_inputs - 1) * sizeof *state->input_row);
        state->input_row[state->max_inputs - 1] = place;
    }
    state->waiting_tokens = 0;
}

/* Frees one checkpoint of a view: the one without which the distances between the others are the most even. */
static void specdec__state_free_checkpoint(specdec__state *state, specdec__states *s)
{
    int i, gap, best = 0, least = 1 << 30;

    for (i = 0; i + 1 < state->count; i++) {
        gap = state->point[i + 1].length - (i ? state->point[i - 1].length : 0);
        if (gap <= least) {
            least = gap;
            best = i;
        }
    }
    specdec__states_add_reference(s, state->point[best].slot, -1);
    memmove(state->point + best, state->point + best + 1, (size_t)(--state->count - best) * sizeof *state->point);
}

/* Makes point `to` the current state of a view. The previous point stays as a checkpoint if it is checkpoint_distance
   or more tokens behind the last checkpoint, or if it ends a prompt. */
static void specdec__state_make_point_current(specdec__state *state, specdec__states *s, specdec__point to)
{
    const specdec__point now = specdec__state_current_point(state);
    const int before = state->count > 1 ? state->point[state->count - 2].length : 0;

    if (state->count && (now.length - before < s->checkpoint_distance &&
                         (!now.ends_prompt || to.ends_prompt || now.length == before))) {
        specdec__states_add_reference(s, now.slot, -1);
        state->count--;
    }
    state->point[state->count++] = to;
    while (state->count > s->max_checkpoints + 1)
        specdec__state_free_checkpoint(state, s);
}

/* Commits nodes path[0 .. count) of a view: they become waiting tokens. The next `stay` entries of path become nodes 0,
   1, ...; with stay = -1 all uncommitted nodes stay. Returns 0 if the inputs of one of these nodes were not stored. */
static int specdec__state_commit(specdec__state *state, specdec__states *s, const int *path, int count, int stay)
{
    const int certain = state->uncommitted.slot >= 0 ? state->certain_nodes : 0, left = specdec__max_int(stay, 0);
    int i;

    if (state->certain_nodes && !certain)
        return 0;
    if (certain) {
        if (count < certain || path[certain - 1] != certain - 1)
            return 0;
        specdec__state_free_waiting_inputs(state);
        specdec__state_make_point_current(state, s, state->uncommitted);
        state->uncommitted.slot = -1;
        state->certain_nodes = 0;
    }
    for (i = certain; i < count + left; i++) {
        if (path[i] - certain >= state->stored_nodes)
            return 0;
        specdec__state_move_input_row(state, state->waiting_tokens + path[i] - certain,
                                      state->waiting_tokens + i - certain);
    }
    state->waiting_tokens += count - certain;
    state->stored_nodes = stay < 0 ? state->stored_nodes - (count - certain) : stay;
    return 1;
}

/* Returns the index of the last point of a view that includes at most `length` tokens; -1: there is none. */
static int specdec__state_find_point(const specdec__state *state, int length)
{
    int i = state->count - 1;

    while (i >= 0 && state->point[i].length > length)
        i--;
    return i;
}

/* Returns the largest number of tokens, at most `length`, for which a view still has the state. */
static int specdec__state_longest_cut_length(const specdec__state *state, int length)
{
    const int now = specdec__state_current_point(state).length, i = specdec__state_find_point(state, length);

    if (length >= now)
        return specdec__min_int(length, now + state->waiting_tokens);
    return i < 0 ? 0 : state->point[i].length;
}

/* Cuts the recurrent states of a view to its first `length` tokens. length: as specdec__state_longest_cut_length has
   returned it. */
static void specdec__state_cut(specdec__state *state, specdec__states *s, int length)
{
    const int now = specdec__state_current_point(state).length;

    specdec__state_free_node_inputs(state, s);
    state->waiting_tokens = specdec__max_int(length - now, 0);
    while (state->count && state->point[state->count - 1].length > length)
        specdec__states_add_reference(s, state->point[--state->count].slot, -1);
}

/* Makes a slot, which holds the state after `length` tokens, the current state of an empty view. */
static void specdec__state_make_slot_current(specdec__state *state, specdec__states *s, int length, int slot)
{
    specdec__state_cut(state, s, 0);
    state->point[0].length = length;
    state->point[0].slot = slot;
    state->point[0].ends_prompt = 1;
    state->count = 1;
}

/* Returns how many of another view's first `length` tokens a view can share: those the other view has a state for,
   including waiting tokens as far as this view can store their inputs. */
static int specdec__state_count_shareable_tokens(const specdec__state *state, const specdec__state *other, int length)
{
    const int reach = specdec__state_longest_cut_length(other, length),
              now = specdec__state_current_point(other).length;

    return reach <= now ? reach : now + specdec__min_int(reach - now, state->max_inputs / 2);
}

/* Copies references to another view's points, and the inputs of its waiting tokens, for the other view's first `length`
   tokens; this view has no states yet. length: as specdec__state_count_shareable_tokens has returned it. */
static void specdec__state_share_points(specdec__state *state, specdec__states *s, const specdec__state *other,
                                        int length)
{
    int i;

    specdec__state_cut(state, s, 0);
    for (i = 0; i < other->count && other->point[i].length <= length; i++) {
        state->point[state->count++] = other->point[i];
        specdec__states_add_reference(s, other->point[i].slot, 1);
    }
    state->waiting_tokens = length - specdec__state_current_point(state).length;
    for (i = 0; i < state->waiting_tokens; i++)
        memcpy(specdec__state_inputs_address(s, state, state->input_row[i], 0),
               specdec__state_inputs_address(s, other, other->input_row[i], 0), s->input_floats * sizeof(float));
}

SPECDEC__FOR_SPEED
