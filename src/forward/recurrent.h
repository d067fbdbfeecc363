/* =====================================================================================================================
 * >>forward/recurrent: recurrent layers: a step reads and writes the state of each view once, and walks the nodes of a
 *     tree on copies of it.
 *
 * Before a step its rows are laid out, view by view: waiting tokens (committed, not yet in the state), then nodes, each
 * row with the number of its parent. In a layer, every row first passes the convolution. Then a unit of work is one
 * head of one view: waiting tokens and certain nodes are applied to its matrix, which is read and written once; the
 * other nodes are walked depth first on copies, smaller branches first, so that log2(nodes) copies are enough. Every
 * token is applied by the same update, now or in a later step, so the bits of a node are always the same.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/pool.h"
#include "../base/op.h"
#include "../kernel/kernel.h"
#include "../model/mixing.h"
#include "../model/model.h"
#include "../cache/state.h"
#include "../cache/kv.h"
#include "../cache/reserve.h"
#include "context.h"
#include "rows.h"

SPECDEC__FOR_SIZE

/* Appends a row to the part of the last view. node, place, before: node, input_index and parent of
   specdec__recurrent_row. Returns the number of the row. */
static int specdec__recurrent_add_row(specdec__context *c, int node, int place, int before)
{
    specdec__recurrent_row *row = &c->recurrent.row[c->recurrent.rows];

    row->node = node;
    row->input_index = place;
    row->parent = before;
    row->child = row->sibling = -1;
    row->subtree_nodes = 0;
    return c->recurrent.rows++;
}

/* Plans the walk through the uncertain nodes of a part, depth first: at a fork the branch with most nodes comes last,
   on the same copy of the state; the other branches get a copy of their own. first: the first of these rows. */
static void specdec__recurrent_plan_walk(specdec__context *c, specdec__recurrent_part *part, int first)
{
    specdec__recurrent_rows *m = &c->recurrent;
    int root = -1, top = 0, i;

    for (i = m->rows - 1; i >= first; i--) {
        specdec__recurrent_row *row = &m->row[i], *parent = row->parent >= first ? &m->row[row->parent] : NULL;
        int *list = parent ? &parent->child : &root;

        row->subtree_nodes += row->node >= 0;
        if (!row->subtree_nodes)
            continue;
        if (parent)
            parent->subtree_nodes += row->subtree_nodes;
        while (*list >= 0 && m->row[*list].subtree_nodes < row->subtree_nodes) /* the largest branch last */
            list = &m->row[*list].sibling;
        row->sibling = *list;
        *list = i;
    }
    for (i = root; i >= 0; i = m->row[i].sibling) {
        m->walk_stack[top].row = i;
        m->walk_stack[top].source_copy = -1;
        m->walk_stack[top++].target_copy = 0;
    }
    part->first_step = m->steps;
    while (top > 0) {
        const specdec__recurrent_walk_step step = m->walk_stack[--top];
        const int begin = top;

        m->step[m->steps++] = step;
        for (i = m->row[step.row].child; i >= 0; i = m->row[i].sibling) {
            m->walk_stack[top].row = i;
            m->walk_stack[top].source_copy = step.target_copy;
            m->walk_stack[top++].target_copy = step.target_copy + (m->row[i].sibling >= 0);
        }
        for (i = 0; i < (top - begin) / 2; i++) { /* the first branch on top */
            const specdec__recurrent_walk_step swapped = m->walk_stack[begin + i];

            m->walk_stack[begin + i] = m->walk_stack[top - 1 - i];
            m->walk_stack[top - 1 - i] = swapped;
        }
    }
    part->step_count = m->steps - part->first_step;
}

/* Chooses the slots that the state of a part (one view's rows in the step) is read from and written to: the same slot
   if no other view refers to it, else a new one, for which kept views may be evicted. Returns 0 if there is no slot. */
static int specdec__recurrent_choose_slots(specdec__context *c, specdec__recurrent_part *part)
{
    const specdec__states *s = &c->kv.states;

    part->read_slot = specdec__state_current_point(&part->view->state).slot;
    part->written_slot = -1;
    if (!part->waiting_tokens && !part->certain_nodes)
        return 1;
    part->written_slot = !part->certain_nodes && part->read_slot >= 0 && s->references[part->read_slot] == 1
                             ? part->read_slot
                             : specdec__kv_take_state_slot(&c->kv);
    return part->written_slot >= 0;
}

/* Lays out the rows of one view of a batch, from node i on, which is its first. Returns 0 if the view's state or stored
   inputs do not suffice, or if there is no slot to write the state to. */
static int specdec__recurrent_lay_out_view(specdec__context *c, const specdec__batch *batch, int i)
{
    specdec__recurrent_rows *m = &c->recurrent;
    specdec__recurrent_part *part = &m->part[m->parts];
    specdec__view *view = batch->views[i];
    specdec__state *state = &view->state;
    int local = 0, first, k, before = -1;

    if (i >= batch->done_count)
        specdec__state_free_node_inputs(state, &c->kv.states);
    if (specdec__state_current_point(state).length + state->waiting_tokens != view->length ||
        state->waiting_tokens > m->max_rows - m->rows - (batch->n - i))
        return 0;
    part->view = view;
    part->first_row = m->rows;
    part->waiting_tokens = state->waiting_tokens;
    part->certain_nodes = 0;
    for (k = 0; k < state->waiting_tokens; k++)
        before = specdec__recurrent_add_row(c, -1, state->input_row[k], before);
    for (first = m->rows, k = i; k < batch->n; k++) {
        const int done = k < batch->done_count, certain = !done && batch->certain && batch->certain[k];
        int at;

        if (batch->views[k] != view)
            continue;
        if (certain && part->certain_nodes++ < local)
            return 0;
        at = certain ? state->max_inputs : state->waiting_tokens + local - part->certain_nodes;
        if (done && local >= state->stored_nodes)
            return 0;
        m->row_of_node[k] = specdec__recurrent_add_row(
            c, done ? -1 : k - batch->done_count, at < state->max_inputs ? state->input_row[at] : -1,
            batch->parents[k] < 0 ? before : m->row_of_node[batch->parents[k]]);
        if (certain && m->row[m->row_of_node[k]].parent != (local ? m->row_of_node[k] - 1 : before))
            return 0;
        first += certain;
        local++;
    }
    for (k = first; k < m->rows; k++)
        if (m->row[k].parent < (first > part->first_row ? first - 1 : -1))
            return 0;
    part->base_row = first - 1;
    state->certain_nodes = part->certain_nodes;
    state->stored_nodes = specdec__max_int(
        specdec__min_int(local - part->certain_nodes, state->max_inputs - state->waiting_tokens), 0);
    specdec__recurrent_plan_walk(c, part, first);
    m->parts += specdec__recurrent_choose_slots(c, part);
    return part->written_slot >= 0 || !(part->waiting_tokens || part->certain_nodes);
}

SPECDEC__FOR_SPEED

/* Returns what a row gives to the state of a recurrent layer: the outputs of the layer's input matrices that were just
   computed for a node, or were stored for a waiting token. */
static const float *specdec__recurrent_row_inputs(const specdec__context *c, const specdec__recurrent_part *part,
                                                  int layer, const specdec__recurrent_row *row)
{
    if (row->node >= 0)
        return c->recurrent.projected + (size_t)row->node * (size_t)c->recurrent.projected_stride +
               c->kv.states.recurrent_sizes.first_input;
    return specdec__state_inputs_address(&c->kv.states, &part->view->state, row->input_index, layer);
}

/* Finds the convolution's inputs at its last `count` taps up to row `at` (-1: up to the state), oldest first: inputs of
   rows, before these the state's window, before the first token zeros. */
static void specdec__recurrent_find_taps(const specdec__context *c, const specdec__recurrent_part *part, int layer,
                                         int at, int count, const float **taps)
{
    const specdec__states *s = &c->kv.states;
    const specdec__recurrent_sizes *m = &s->recurrent_sizes;
    const size_t window = specdec__recurrent_conv_window_floats(m), size = specdec__state_slot_floats_per_layer(m);
    const float *state = part->read_slot < 0 ? c->recurrent.zeros
                                             : specdec__states_slot_address(s, part->read_slot) + (size_t)layer * size +
                                                   (s->current_window[part->read_slot] ? window : 0);
    int left = m->taps - 1;

    while (count-- > 0) {
        if (at >= 0) {
            taps[count] = specdec__recurrent_row_inputs(c, part, layer, &c->recurrent.row[at]);
            at = c->recurrent.row[at].parent;
        } else {
            taps[count] = state + (part->read_slot < 0 ? 0 : (size_t)--left * (size_t)m->channels);
        }
    }
}

/* Returns log(1 + e^x). */
static float specdec__forward_softplus(float x)
{
    return x > 20 ? x : (float)specdec__log_double(1 + (double)specdec__exp(x));
}

/* Computes the decay and the rate of each head's update for one token. made: the numbers that the input matrices have
   given for the heads. */
static void specdec__recurrent_compute_decay_and_rate(const specdec__context *c, const specdec__layer *layer,
                                                      const float *made, float *decay, float *rate)
{
    const specdec__recurrent_sizes *m = &c->kv.states.recurrent_sizes;
    const float *a = layer->vector[SPECDEC__RECURRENT_A], *bias = layer->vector[SPECDEC__RECURRENT_DT_BIAS];
    const int each = m->heads / specdec__max_int(m->groups, 1);
    int i;

    for (i = 0; i < m->heads; i++) {
        const int pair = i / each * 2 * each + i % each; /* index in a joined matrix of rates and decays, by groups */
        const float step = m->kind == SPECDEC__MAMBA2 ? made[i]
                           : m->beta_alpha_joined                ? made[pair + each]
                                                      : made[specdec__round_up(m->heads, 16) + i];
        const float dt = specdec__forward_softplus(step + bias[i]);

        decay[i] = specdec__exp(a[i] * dt);
        rate[i] = m->kind == SPECDEC__MAMBA2 ? dt : 1 / (1 + specdec__exp(-made[m->beta_alpha_joined ? pair : i]));
    }
}

/* Returns the number of channels that one unit of work of the convolution computes: those of one head where heads are
   normalised, else 64. */
static int specdec__recurrent_channels_per_work_unit(const specdec__recurrent_sizes *m)
{
    return m->kind == SPECDEC__GATED_DELTA ? m->rows : 64;
}

/* Computes the convolution of one row for a block of channels, with the norms of queries and keys; for block 0 also the
   decays and rates of all heads. Of the short kind, writes the gated output to h. */
static void specdec__recurrent_convolve_row(specdec__context *c, const specdec__recurrent_part *part,
                                            const specdec__layer *layer, int number, int block)
{
    const specdec__recurrent_sizes *m = &c->kv.states.recurrent_sizes;
    const specdec__recurrent_row *row = &c->recurrent.row[number];
    const int size = specdec__recurrent_channels_per_work_unit(m), at = block * size;
    const int count = specdec__min_int(size, m->channels - at);
    const float *taps[SPECDEC__MAX_TAPS], *bias = layer->vector[SPECDEC__RECURRENT_BIAS];
    float *out = c->recurrent.convolved + (size_t)number * (size_t)c->recurrent.convolved_stride;
    int i;

    specdec__recurrent_find_taps(c, part, layer->recurrent_index, number, m->taps, taps);
    if (!block && m->heads)
        specdec__recurrent_compute_decay_and_rate(c, layer, taps[m->taps - 1] + m->channels, out + m->channels,
                                                  out + m->channels + specdec__round_up(m->heads, 16));
    for (i = 0; i < m->taps; i++)
        taps[i] += at;
    c->kernels->convolve(taps, layer->vector[m->heads ? SPECDEC__RECURRENT_TAPS : SPECDEC__RECURRENT_SHORT_TAPS] + at,
                         (size_t)m->channels, m->taps, bias ? bias + at : NULL, specdec__recurrent_kinds[m->kind].silu,
                         count, out + at);
    if (m->kind == SPECDEC__GATED_DELTA && block < 2 * m->groups) /* queries, then keys: of length 1 */
        c->kernels->norm(out + at, c->recurrent.unit_weights + (block < m->groups ? 0 : m->rows),
                         c->model->epsilon / (float)m->rows, m->rows, 0, m->rows, out + at);
    if (m->kind == SPECDEC__SHORT_CONVOLUTION) {
        const float *gate = c->recurrent.projected + (size_t)row->node * (size_t)c->recurrent.projected_stride +
                            m->channels + at;
        float *gated = c->h + (size_t)row->node * (size_t)c->recurrent.output_stride + at;

        for (i = 0; i < count; i++)
            gated[i] = gate[i] * out[at + i];
    }
}

/* Returns the part, the rows of one view, that holds a row. */
static const specdec__recurrent_part *specdec__recurrent_find_part(const specdec__context *c, int row)
{
    const specdec__recurrent_part *part = c->recurrent.part + c->recurrent.parts - 1;

    while (part->first_row > row)
        part--;
    return part;
}

/* Whether the convolution of a row is needed: the row is a node that is run, has such a node in its subtree, or is a
   waiting token. */
static int specdec__recurrent_needs_convolution(const specdec__context *c, int number)
{
    const specdec__recurrent_row *row = &c->recurrent.row[number];

    return row->node >= 0 ||
           (c->kv.states.recurrent_sizes.heads &&
            (row->subtree_nodes || number < specdec__recurrent_find_part(c, number)->first_row +
                                                specdec__recurrent_find_part(c, number)->waiting_tokens));
}

/* Applies a row to the matrix of a head; if the row is a node that is run, writes the head's output to h. */
static void specdec__recurrent_apply_row(specdec__context *c, const specdec__layer *layer, int head, int number,
                                         float *matrix)
{
    const specdec__recurrent_sizes *m = &c->kv.states.recurrent_sizes;
    const float *made = c->recurrent.convolved + (size_t)number * (size_t)c->recurrent.convolved_stride;
    const int node = c->recurrent.row[number].node;
    const int group = m->keys_by_modulo ? head % m->groups : head / (m->heads / m->groups);
    specdec__state_update r;

    r.matrix = matrix;
    r.rows = m->rows;
    r.values = m->values;
    r.corrects = specdec__recurrent_kinds[m->kind].delta_rule;
    r.decay = made[m->channels + head];
    r.rate = made[m->channels + specdec__round_up(m->heads, 16) + head];
    r.key = made + m->key_channel + group * m->rows;
    r.query = node < 0 ? NULL : made + m->query_channel + group * m->rows;
    r.value = made + m->value_channel + head * m->values;
    r.out = node < 0 ? NULL : c->h + (size_t)node * (size_t)c->recurrent.output_stride + (size_t)(head * m->values);
    c->kernels->update_state(&r);
    if (r.out && layer->vector[SPECDEC__RECURRENT_D])
        c->kernels->add_scaled(r.out, layer->vector[SPECDEC__RECURRENT_D][head], r.value, m->values);
}

/* Computes one head of a layer for one part: applies waiting tokens and certain nodes to its matrix, then walks the
   other nodes on copies. The matrix is read and written once. */
static void specdec__recurrent_run_head(specdec__context *c, int thread, const specdec__recurrent_part *part,
                                        const specdec__layer *layer, int head)
{
    specdec__states *s = &c->kv.states;
    const size_t size = specdec__recurrent_state_matrix_floats(&s->recurrent_sizes), bytes = size * sizeof(float);
    const size_t at = (size_t)layer->recurrent_index * specdec__state_slot_floats_per_layer(&s->recurrent_sizes) +
                      2 * specdec__recurrent_conv_window_floats(&s->recurrent_sizes) + (size_t)head * size;
    float *from = part->read_slot < 0 ? NULL : specdec__states_slot_address(s, part->read_slot) + at, *base = from;
    specdec__scratch *scratch = &c->scratch[thread];
    int i;

    scratch->state_read += from ? bytes : 0;
    if (part->written_slot >= 0) {
        base = specdec__states_slot_address(s, part->written_slot) + at;
        if (from && part->written_slot != part->read_slot)
            memcpy(base, from, bytes);
        else if (!from)
            memset(base, 0, bytes);
        for (i = part->first_row; i <= part->base_row; i++)
            specdec__recurrent_apply_row(c, layer, head, i, base);
        scratch->state_written += bytes;
    }
    for (i = part->first_step; i < part->first_step + part->step_count; i++) {
        const specdec__recurrent_walk_step *step = &c->recurrent.step[i];
        float *copy = scratch->state_copies + (size_t)step->target_copy * size;
        const float *source = step->source_copy < 0 ? base : scratch->state_copies + (size_t)step->source_copy * size;

        if (!source)
            memset(copy, 0, bytes);
        else if (source != copy)
            memcpy(copy, source, bytes);
        specdec__recurrent_apply_row(c, layer, head, step->row, copy);
    }
}

/* Writes the window of the convolution of a part, if the part's state is written, and stores the inputs of its
   nodes. */
static void specdec__recurrent_store_inputs(specdec__context *c, int thread, const specdec__recurrent_part *part,
                                            const specdec__layer *layer)
{
    specdec__states *s = &c->kv.states;
    const specdec__recurrent_sizes *m = &s->recurrent_sizes;
    const size_t row = (size_t)m->channels, inputs = (size_t)m->input_count * sizeof(float);
    const int end = part + 1 < c->recurrent.part + c->recurrent.parts ? part[1].first_row : c->recurrent.rows;
    const float *taps[SPECDEC__MAX_TAPS];
    int i, half;
    float *window;

    if (part->written_slot >= 0) {
        half = part->written_slot == part->read_slot && !s->current_window[part->written_slot];
        window = specdec__states_slot_address(s, part->written_slot) +
                 (size_t)layer->recurrent_index * specdec__state_slot_floats_per_layer(m) +
                 (half ? specdec__recurrent_conv_window_floats(m) : 0);
        specdec__recurrent_find_taps(c, part, layer->recurrent_index,
                                     part->base_row < part->first_row ? -1 : part->base_row, m->taps - 1, taps);
        for (i = 0; i < m->taps - 1; i++)
            memcpy(window + (size_t)i * row, taps[i], row * sizeof *window);
        c->scratch[thread].state_read += part->read_slot < 0 ? 0
                                                             : specdec__recurrent_conv_window_floats(m) * sizeof(float);
        c->scratch[thread].state_written += specdec__recurrent_conv_window_floats(m) * sizeof(float);
        c->scratch[thread].state_read += (size_t)part->waiting_tokens * inputs;
    }
    for (i = specdec__max_int(part->base_row + 1, part->first_row); i < end; i++)
        if (c->recurrent.row[i].node >= 0 && c->recurrent.row[i].input_index >= 0) {
            memcpy(specdec__state_inputs_address(s, &part->view->state, c->recurrent.row[i].input_index,
                                                 layer->recurrent_index),
                   specdec__recurrent_row_inputs(c, part, layer->recurrent_index, &c->recurrent.row[i]), inputs);
            c->scratch[thread].state_written += inputs;
        }
}

/* Applies norm and gate to one group of the outputs of heads in a row of h, of `size` values. For Mamba-2 the gate
   comes before the norm. */
static void specdec__recurrent_apply_gate(specdec__context *c, const specdec__layer *layer, int node, int group,
                                          int size)
{
    const specdec__recurrent_sizes *m = &c->kv.states.recurrent_sizes;
    const float *norm =
        layer->vector[m->kind == SPECDEC__GATED_DELTA ? SPECDEC__RECURRENT_NORM : SPECDEC__RECURRENT_NORMS];
    float *out = c->h + (size_t)node * (size_t)c->recurrent.output_stride + (size_t)group * (size_t)size;
    float *gate = c->recurrent.projected + (size_t)node * (size_t)c->recurrent.projected_stride +
                  (size_t)group * (size_t)size;

    if (m->kind == SPECDEC__GATED_DELTA)
        c->kernels->norm(out, norm, c->model->epsilon, size, 0, size, out);
    c->kernels->activate[SPECDEC__SILU](gate, out, size);
    if (m->kind == SPECDEC__MAMBA2 && norm)
        c->kernels->norm(gate, norm + group * size, c->model->epsilon, size, 0, size, out);
    else
        memcpy(out, gate, (size_t)size * sizeof *out);
}

/* Computes a thread's share of the convolution of all rows. Of the short kind, its inputs are first multiplied by a
   gate. Returns 1 when cancelled. */
static int specdec__recurrent_convolve_rows(specdec__context *c, int thread, const specdec__layer *layer)
{
    const specdec__recurrent_sizes *m = &c->kv.states.recurrent_sizes;
    const int size = specdec__recurrent_channels_per_work_unit(m), blocks = (m->channels + size - 1) / size;
    const int items = c->recurrent.rows * blocks;
    int i, k, from, end = 0;

    if (m->kind == SPECDEC__SHORT_CONVOLUTION) {
        for (i = thread; i < c->n; i += specdec__pool_active(c->pool)) {
            float *row = c->recurrent.projected + (size_t)i * (size_t)c->recurrent.projected_stride;

            for (k = 0; k < m->channels; k++)
                row[k] *= row[2 * m->channels + k];
        }
        if (specdec__pool_barrier(c->pool))
            return 1;
    }
    while ((from = specdec__pool_claim_items(c->pool, items, 1, &end)) < items)
        for (; from < end; from++)
            if (specdec__recurrent_needs_convolution(c, from / blocks))
                specdec__recurrent_convolve_row(c, specdec__recurrent_find_part(c, from / blocks), layer, from / blocks,
                                                from % blocks);
    return specdec__pool_barrier(c->pool);
}

/* Computes a thread's share of a recurrent layer: h (n, inner) from c->recurrent.projected, the outputs of its input
   matrices. Units of work (part and head, or part and what is stored of it) marked in c->recurrent.done are skipped.
   Returns 1 when cancelled. */
static int specdec__recurrent_run_layer(specdec__context *c, int thread, const specdec__layer *layer)
{
    const specdec__recurrent_sizes *m = &c->kv.states.recurrent_sizes;
    const int units = m->heads + 1,
              groups = m->kind == SPECDEC__GATED_DELTA ? m->heads : specdec__max_int(m->groups, 1);
    int items = c->recurrent.parts * units, from, end = 0;
    unsigned char *done = c->recurrent.done + (size_t)layer->recurrent_index * (size_t)items;

    if (specdec__recurrent_convolve_rows(c, thread, layer))
        return 1;
    while ((from = specdec__pool_claim_items(c->pool, items, 1, &end)) < items)
        for (; from < end; from++) {
            const specdec__recurrent_part *part = &c->recurrent.part[from / units];

            if (done[from])
                continue;
            if (from % units < m->heads)
                specdec__recurrent_run_head(c, thread, part, layer, from % units);
            else
                specdec__recurrent_store_inputs(c, thread, part, layer);
            done[from] = 1;
        }
    if (specdec__pool_barrier(c->pool))
        return 1;
    if (!m->heads)
        return 0;
    items = c->n * groups;
    end = 0;
    while ((from = specdec__pool_claim_items(c->pool, items, 1, &end)) < items)
        for (; from < end; from++)
            specdec__recurrent_apply_gate(c, layer, from / groups, from % groups, m->output_width / groups);
    return specdec__pool_barrier(c->pool);
}

SPECDEC__FOR_SIZE

/* Runs all recurrent layers for the rows of specdec__recurrent_apply_waiting_tokens, a function of the thread pool. */
static void specdec__recurrent_apply_waiting_on_thread(void *argument, int thread)
{
    specdec__context *c = (specdec__context *)argument;
    int i;

    for (i = 0; i < c->model->layers; i++)
        if (c->model->layer[i].recurrent_index >= 0)
            specdec__recurrent_run_layer(c, thread, &c->model->layer[i]);
}

/* Finishes the states of a step that has ended early or is not run: applies the waiting tokens where they are not
   applied yet, and no other rows. It takes as long as reading the states, and cannot be cancelled. */
static void specdec__recurrent_apply_waiting_tokens(specdec__context *c)
{
    specdec__recurrent_rows *m = &c->recurrent;
    int *cancel = c->pool->cancel, never = 0, n = c->n, applies = 0, i, k;

    for (i = 0; i < m->parts; i++) {
        specdec__recurrent_part *part = &m->part[i];

        if (part->certain_nodes) {
            specdec__states_add_reference(&c->kv.states, part->written_slot, -1);
            part->written_slot = -1;
            part->waiting_tokens = 0;
        }
        for (k = part->first_row + part->waiting_tokens; k < (i + 1 < m->parts ? part[1].first_row : m->rows); k++)
            m->row[k].node = -1;
        for (k = part->first_row; k < (i + 1 < m->parts ? part[1].first_row : m->rows); k++)
            m->row[k].subtree_nodes = 0;
        part->step_count = 0;
        applies |= part->written_slot >= 0;
    }
    if (!applies || !c->kv.states.recurrent_sizes.layers)
        return;
    c->n = 0;
    c->pool->cancel = &never;
    specdec__pool_run(c->pool, c->threads, specdec__recurrent_apply_waiting_on_thread, c);
    c->pool->cancel = cancel;
    c->n = n;
}

/* Ends a step for the states of its views: the states include the waiting tokens now, and a state with the certain
   nodes becomes state->uncommitted. done: 0: the step has ended early. */
static void specdec__recurrent_end_step(specdec__context *c, int done)
{
    specdec__states *s = &c->kv.states;
    int i;

    if (!done)
        specdec__recurrent_apply_waiting_tokens(c);
    for (i = 0; i < c->recurrent.parts; i++) {
        const specdec__recurrent_part *part = &c->recurrent.part[i];
        specdec__state *state = &part->view->state;
        specdec__point point;

        if (part->written_slot < 0)
            continue;
        point.length = part->view->length + part->certain_nodes;
        point.slot = part->written_slot;
        point.ends_prompt = part->certain_nodes > 0;
        if (part->certain_nodes) {
            state->uncommitted = point;
            continue;
        }
        if (part->written_slot == part->read_slot) {
            s->current_window[part->written_slot] ^= 1;
            state->point[state->count - 1].length = point.length;
        } else {
            specdec__state_make_point_current(state, s, point);
        }
        specdec__state_free_waiting_inputs(state);
    }
    c->recurrent.parts = 0;
    for (i = 0; i < c->threads; i++) {
        s->bytes_read += c->scratch[i].state_read;
        s->bytes_written += c->scratch[i].state_written;
        c->scratch[i].state_read = c->scratch[i].state_written = 0;
    }
}

/* Lays out the rows of a batch for the recurrent layers. Errors: FULL (a state, its inputs or a free slot is
   missing). */
static specdec_result specdec__recurrent_prepare_step(specdec__context *c, const specdec__batch *batch,
                                                      specdec_error *error)
{
    const specdec__recurrent_sizes *m = &c->kv.states.recurrent_sizes;
    int i, k, fine = 1;

    c->recurrent.rows = c->recurrent.parts = c->recurrent.steps = 0;
    for (i = 0; i < batch->n && fine; i++) {
        int fresh = 0;

        for (k = 0; k < i && batch->views[k] != batch->views[i]; k++)
            continue;
        if (k < i)
            continue;
        for (k = i; k < batch->n && !fresh; k++)
            fresh = k >= batch->done_count && batch->views[k] == batch->views[i];
        fine = !fresh || specdec__recurrent_lay_out_view(c, batch, i);
    }
    memset(c->recurrent.done, 0, (size_t)m->layers * (size_t)c->recurrent.parts * (size_t)(m->heads + 1));
    if (fine)
        return SPECDEC_OK;
    specdec__recurrent_end_step(c, 0);
    return specdec__fail(error, SPECDEC_ERROR_FULL, "the state of a sequence is not there");
}

SPECDEC__FOR_SPEED
