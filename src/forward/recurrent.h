/* =====================================================================================================================
 * >>forward/recurrent: recurrent layers: the states of views streamed once a step, and the nodes of trees walked on
 *     copies.
 *
 * Before a step its rows are laid out, view by view: committed tokens that wait to be applied to the state, then nodes,
 * each with the row before it. In a layer, first every row passes the convolution; then a unit of work is one head of
 * one view: what waits and what is certain is applied to its matrix, which is read and written once; the other nodes
 * are walked depth first on copies, at each fork the smaller branches first, so that log2(nodes) copies are enough.
 * Every token is applied by the same update, whenever that is: so a node's bits do not depend on how it came.
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

/* Adds a row to the last part. Returns its number. */
static int specdec__forward_mix_add(specdec__context *c, int node, int place, int before)
{
    specdec__mix_row *row = &c->mix.row[c->mix.rows];

    row->node = node;
    row->place = place;
    row->before = before;
    row->child = row->sibling = -1;
    row->weight = 0;
    return c->mix.rows++;
}

/* Adds the walk through the nodes of a part that are not certain: of the branches of a fork all but the one with most
   nodes on a copy, and before it. first: the first of these rows. */
static void specdec__forward_mix_walk(specdec__context *c, specdec__mix_part *part, int first)
{
    specdec__mixes *m = &c->mix;
    int root = -1, top = 0, i;

    for (i = m->rows - 1; i >= first; i--) {
        specdec__mix_row *row = &m->row[i], *parent = row->before >= first ? &m->row[row->before] : NULL;
        int *list = parent ? &parent->child : &root;

        row->weight += row->node >= 0;
        if (!row->weight)
            continue;
        if (parent)
            parent->weight += row->weight;
        while (*list >= 0 && m->row[*list].weight < row->weight) /* the largest branch last */
            list = &m->row[*list].sibling;
        row->sibling = *list;
        *list = i;
    }
    for (i = root; i >= 0; i = m->row[i].sibling) {
        m->stack[top].row = i;
        m->stack[top].from = -1;
        m->stack[top++].to = 0;
    }
    part->walk = m->steps;
    while (top > 0) {
        const specdec__mix_step step = m->stack[--top];
        const int begin = top;

        m->step[m->steps++] = step;
        for (i = m->row[step.row].child; i >= 0; i = m->row[i].sibling) {
            m->stack[top].row = i;
            m->stack[top].from = step.to;
            m->stack[top++].to = step.to + (m->row[i].sibling >= 0);
        }
        for (i = 0; i < (top - begin) / 2; i++) { /* the first branch on top */
            const specdec__mix_step swapped = m->stack[begin + i];

            m->stack[begin + i] = m->stack[top - 1 - i];
            m->stack[top - 1 - i] = swapped;
        }
    }
    part->walks = m->steps - part->walk;
}

/* Where the state of a part is read and written: in place, or into a slot that kept views may have to give up. Returns
   0 when there is none. */
static int specdec__forward_mix_slots(specdec__context *c, specdec__mix_part *part)
{
    const specdec__states *s = &c->kv.states;

    part->from = specdec__state_now(&part->view->state).slot;
    part->to = -1;
    if (!part->waiting && !part->certain)
        return 1;
    part->to = !part->certain && part->from >= 0 && s->views[part->from] == 1 ? part->from
                                                                               : specdec__kv_take_state(&c->kv);
    return part->to >= 0;
}

/* Lays out the rows of the view of node i, the first of its view, of a batch. Returns 0 when what its state needs is
   not there. */
static int specdec__forward_mix_view(specdec__context *c, const specdec__batch *batch, int i)
{
    specdec__mixes *m = &c->mix;
    specdec__mix_part *part = &m->part[m->parts];
    specdec__view *view = batch->views[i];
    specdec__state *state = &view->state;
    int local = 0, first, k, before = -1;

    if (i >= batch->done)
        specdec__state_unreserve(state, &c->kv.states);
    if (specdec__state_now(state).length + state->waiting != view->length ||
        state->waiting > m->room - m->rows - (batch->n - i))
        return 0;
    part->view = view;
    part->first = m->rows;
    part->waiting = state->waiting;
    part->certain = 0;
    for (k = 0; k < state->waiting; k++)
        before = specdec__forward_mix_add(c, -1, state->place[k], before);
    for (first = m->rows, k = i; k < batch->n; k++) {
        const int done = k < batch->done, certain = !done && batch->certain && batch->certain[k];
        int at;

        if (batch->views[k] != view)
            continue;
        if (certain && part->certain++ < local)
            return 0;
        at = certain ? state->places : state->waiting + local - part->certain;
        if (done && local >= state->nodes)
            return 0;
        m->of[k] = specdec__forward_mix_add(c, done ? -1 : k - batch->done, at < state->places ? state->place[at] : -1,
                                            batch->parents[k] < 0 ? before : m->of[batch->parents[k]]);
        if (certain && m->row[m->of[k]].before != (local ? m->of[k] - 1 : before))
            return 0;
        first += certain;
        local++;
    }
    for (k = first; k < m->rows; k++)
        if (m->row[k].before < (first > part->first ? first - 1 : -1))
            return 0;
    part->base = first - 1;
    state->certain = part->certain;
    state->nodes = specdec__max_int(specdec__min_int(local - part->certain, state->places - state->waiting), 0);
    specdec__forward_mix_walk(c, part, first);
    m->parts += specdec__forward_mix_slots(c, part);
    return part->to >= 0 || !(part->waiting || part->certain);
}

SPECDEC__FOR_SPEED

/* What the state takes in of a row: of a node of the step as its matrices made it, else as it was kept. */
static const float *specdec__forward_mix_inputs(const specdec__context *c, const specdec__mix_part *part, int layer,
                                                const specdec__mix_row *row)
{
    if (row->node >= 0)
        return c->mix.raw + (size_t)row->node * (size_t)c->mix.raw_stride + c->kv.states.mixing.inputs;
    return specdec__state_inputs(&c->kv.states, &part->view->state, row->place, layer);
}

/* The inputs of the convolution's `count` last taps up to a row (-1: up to the state), oldest first: rows, then those
   of the state's window; zeros of an empty one. */
static void specdec__forward_mix_taps(const specdec__context *c, const specdec__mix_part *part, int layer, int at,
                                      int count, const float **taps)
{
    const specdec__states *s = &c->kv.states;
    const specdec__mixing *m = &s->mixing;
    const size_t window = specdec__mixing_window(m), size = specdec__state_layer(m);
    const float *state = part->from < 0 ? c->mix.zeros
                                        : specdec__states_at(s, part->from) + (size_t)layer * size +
                                              (s->half[part->from] ? window : 0);
    int left = m->taps - 1;

    while (count-- > 0) {
        if (at >= 0) {
            taps[count] = specdec__forward_mix_inputs(c, part, layer, &c->mix.row[at]);
            at = c->mix.row[at].before;
        } else {
            taps[count] = state + (part->from < 0 ? 0 : (size_t)--left * (size_t)m->channels);
        }
    }
}

/* log(1 + e^x) */
static float specdec__forward_softplus(float x)
{
    return x > 20 ? x : (float)specdec__log_double(1 + (double)specdec__exp(x));
}

/* The decay and the rate of each head's update, from what the matrices made of a token for it. */
static void specdec__forward_mix_rates(const specdec__context *c, const specdec__layer *layer, const float *made,
                                       float *decay, float *rate)
{
    const specdec__mixing *m = &c->kv.states.mixing;
    const float *a = layer->vector[SPECDEC__MIX_A], *bias = layer->vector[SPECDEC__MIX_DT_BIAS];
    const int each = m->heads / specdec__max_int(m->groups, 1);
    int i;

    for (i = 0; i < m->heads; i++) {
        const int pair = i / each * 2 * each + i % each; /* of matrices that are one, by groups */
        const float step = m->kind == SPECDEC__MAMBA2 ? made[i]
                           : m->paired                ? made[pair + each]
                                                      : made[specdec__round_up(m->heads, 16) + i];
        const float dt = specdec__forward_softplus(step + bias[i]);

        decay[i] = specdec__exp(a[i] * dt);
        rate[i] = m->kind == SPECDEC__MAMBA2 ? dt : 1 / (1 + specdec__exp(-made[m->paired ? pair : i]));
    }
}

/* Channels of a block of the convolution: those of a head where heads are normed, else some. */
static int specdec__forward_mix_block(const specdec__mixing *m) { return m->kind == SPECDEC__DELTA ? m->rows : 64; }

/* Block `block` of a row after the convolution. With block 0, also what the heads' updates need. */
static void specdec__forward_mix_convolve(specdec__context *c, const specdec__mix_part *part,
                                          const specdec__layer *layer, int number, int block)
{
    const specdec__mixing *m = &c->kv.states.mixing;
    const specdec__mix_row *row = &c->mix.row[number];
    const int size = specdec__forward_mix_block(m), at = block * size, count = specdec__min_int(size, m->channels - at);
    const float *taps[SPECDEC__MOST_TAPS], *bias = layer->vector[SPECDEC__MIX_BIAS];
    float *out = c->mix.made + (size_t)number * (size_t)c->mix.made_stride;
    int i;

    specdec__forward_mix_taps(c, part, layer->state, number, m->taps, taps);
    if (!block && m->heads)
        specdec__forward_mix_rates(c, layer, taps[m->taps - 1] + m->channels, out + m->channels,
                                   out + m->channels + specdec__round_up(m->heads, 16));
    for (i = 0; i < m->taps; i++)
        taps[i] += at;
    c->kernels->convolve(taps, layer->vector[m->heads ? SPECDEC__MIX_TAPS : SPECDEC__MIX_SHORT_TAPS] + at,
                         (size_t)m->channels, m->taps, bias ? bias + at : NULL, specdec__mixing_kinds[m->kind].silu,
                         count, out + at);
    if (m->kind == SPECDEC__DELTA && block < 2 * m->groups) /* queries, then keys: of length 1 */
        c->kernels->norm(out + at, c->mix.unit + (block < m->groups ? 0 : m->rows), c->model->epsilon / (float)m->rows,
                         m->rows, 0, m->rows, out + at);
    if (m->kind == SPECDEC__SHORT) {
        const float *gate = c->mix.raw + (size_t)row->node * (size_t)c->mix.raw_stride + m->channels + at;
        float *gated = c->h + (size_t)row->node * (size_t)c->mix.inner + at;

        for (i = 0; i < count; i++)
            gated[i] = gate[i] * out[at + i];
    }
}

/* The part that a row belongs to. */
static const specdec__mix_part *specdec__forward_mix_part(const specdec__context *c, int row)
{
    const specdec__mix_part *part = c->mix.part + c->mix.parts - 1;

    while (part->first > row)
        part--;
    return part;
}

/* Whether a row's inputs are to pass the convolution: it is run, or others of its branch are, or it waits. */
static int specdec__forward_mix_wanted(const specdec__context *c, int number)
{
    const specdec__mix_row *row = &c->mix.row[number];

    return row->node >= 0 || (c->kv.states.mixing.heads &&
                              (row->weight || number < specdec__forward_mix_part(c, number)->first +
                                                           specdec__forward_mix_part(c, number)->waiting));
}

/* Applies a row to the matrix of a head; where it is run, its output goes to h. */
static void specdec__forward_mix_apply(specdec__context *c, const specdec__layer *layer, int head, int number,
                                       float *matrix)
{
    const specdec__mixing *m = &c->kv.states.mixing;
    const float *made = c->mix.made + (size_t)number * (size_t)c->mix.made_stride;
    const int node = c->mix.row[number].node;
    const int group = m->cycles ? head % m->groups : head / (m->heads / m->groups);
    specdec__state_update r;

    r.matrix = matrix;
    r.rows = m->rows;
    r.values = m->values;
    r.corrects = specdec__mixing_kinds[m->kind].corrects;
    r.decay = made[m->channels + head];
    r.rate = made[m->channels + specdec__round_up(m->heads, 16) + head];
    r.key = made + m->key + group * m->rows;
    r.query = node < 0 ? NULL : made + m->query + group * m->rows;
    r.value = made + m->value + head * m->values;
    r.out = node < 0 ? NULL : c->h + (size_t)node * (size_t)c->mix.inner + (size_t)(head * m->values);
    c->kernels->update_state(&r);
    if (r.out && layer->vector[SPECDEC__MIX_D])
        c->kernels->add_scaled(r.out, layer->vector[SPECDEC__MIX_D][head], r.value, m->values);
}

/* Head `head` of a layer for a part: its matrix is read and written once. */
static void specdec__forward_mix_head(specdec__context *c, int thread, const specdec__mix_part *part,
                                      const specdec__layer *layer, int head)
{
    specdec__states *s = &c->kv.states;
    const size_t size = specdec__mixing_head(&s->mixing), bytes = size * sizeof(float);
    const size_t at = (size_t)layer->state * specdec__state_layer(&s->mixing) + 2 * specdec__mixing_window(&s->mixing) +
                      (size_t)head * size;
    float *from = part->from < 0 ? NULL : specdec__states_at(s, part->from) + at, *base = from;
    specdec__scratch *scratch = &c->scratch[thread];
    int i;

    scratch->state_read += from ? bytes : 0;
    if (part->to >= 0) {
        base = specdec__states_at(s, part->to) + at;
        if (from && part->to != part->from)
            memcpy(base, from, bytes);
        else if (!from)
            memset(base, 0, bytes);
        for (i = part->first; i <= part->base; i++)
            specdec__forward_mix_apply(c, layer, head, i, base);
        scratch->state_written += bytes;
    }
    for (i = part->walk; i < part->walk + part->walks; i++) {
        const specdec__mix_step *step = &c->mix.step[i];
        float *copy = scratch->states + (size_t)step->to * size;
        const float *source = step->from < 0 ? base : scratch->states + (size_t)step->from * size;

        if (!source)
            memset(copy, 0, bytes);
        else if (source != copy)
            memcpy(copy, source, bytes);
        specdec__forward_mix_apply(c, layer, head, step->row, copy);
    }
}

/* The window of the convolution of a part, where its state is written; and what is kept of its nodes. */
static void specdec__forward_mix_keep(specdec__context *c, int thread, const specdec__mix_part *part,
                                      const specdec__layer *layer)
{
    specdec__states *s = &c->kv.states;
    const specdec__mixing *m = &s->mixing;
    const size_t row = (size_t)m->channels, inputs = (size_t)m->kept * sizeof(float);
    const int end = part + 1 < c->mix.part + c->mix.parts ? part[1].first : c->mix.rows;
    const float *taps[SPECDEC__MOST_TAPS];
    int i, half;
    float *window;

    if (part->to >= 0) {
        half = part->to == part->from && !s->half[part->to];
        window = specdec__states_at(s, part->to) + (size_t)layer->state * specdec__state_layer(m) +
                 (half ? specdec__mixing_window(m) : 0);
        specdec__forward_mix_taps(c, part, layer->state, part->base < part->first ? -1 : part->base, m->taps - 1, taps);
        for (i = 0; i < m->taps - 1; i++)
            memcpy(window + (size_t)i * row, taps[i], row * sizeof *window);
        c->scratch[thread].state_read += part->from < 0 ? 0 : specdec__mixing_window(m) * sizeof(float);
        c->scratch[thread].state_written += specdec__mixing_window(m) * sizeof(float);
        c->scratch[thread].state_read += (size_t)part->waiting * inputs;
    }
    for (i = specdec__max_int(part->base + 1, part->first); i < end; i++)
        if (c->mix.row[i].node >= 0 && c->mix.row[i].place >= 0) {
            memcpy(specdec__state_inputs(s, &part->view->state, c->mix.row[i].place, layer->state),
                   specdec__forward_mix_inputs(c, part, layer->state, &c->mix.row[i]), inputs);
            c->scratch[thread].state_written += inputs;
        }
}

/* Norms and gates group `group` of what the heads of a row have given. */
static void specdec__forward_mix_gate(specdec__context *c, const specdec__layer *layer, int node, int group, int size)
{
    const specdec__mixing *m = &c->kv.states.mixing;
    const float *norm = layer->vector[m->kind == SPECDEC__DELTA ? SPECDEC__MIX_NORM : SPECDEC__MIX_NORMS];
    float *out = c->h + (size_t)node * (size_t)c->mix.inner + (size_t)group * (size_t)size;
    float *gate = c->mix.raw + (size_t)node * (size_t)c->mix.raw_stride + (size_t)group * (size_t)size;

    if (m->kind == SPECDEC__DELTA)
        c->kernels->norm(out, norm, c->model->epsilon, size, 0, size, out);
    c->kernels->activate[SPECDEC__SILU](gate, out, size);
    if (m->kind == SPECDEC__MAMBA2 && norm)
        c->kernels->norm(gate, norm + group * size, c->model->epsilon, size, 0, size, out);
    else
        memcpy(out, gate, (size_t)size * sizeof *out);
}

/* The convolution of all rows. Of the short kind its inputs are products. Returns 1 when cancelled. */
static int specdec__forward_mix_first(specdec__context *c, int thread, const specdec__layer *layer)
{
    const specdec__mixing *m = &c->kv.states.mixing;
    const int size = specdec__forward_mix_block(m), blocks = (m->channels + size - 1) / size;
    const int items = c->mix.rows * blocks;
    int i, k, from, end = 0;

    if (m->kind == SPECDEC__SHORT) {
        for (i = thread; i < c->n; i += specdec__pool_active(c->pool)) {
            float *row = c->mix.raw + (size_t)i * (size_t)c->mix.raw_stride;

            for (k = 0; k < m->channels; k++)
                row[k] *= row[2 * m->channels + k];
        }
        if (specdec__pool_barrier(c->pool))
            return 1;
    }
    while ((from = specdec__pool_claim(c->pool, items, 1, &end)) < items)
        for (; from < end; from++)
            if (specdec__forward_mix_wanted(c, from / blocks))
                specdec__forward_mix_convolve(c, specdec__forward_mix_part(c, from / blocks), layer, from / blocks,
                                              from % blocks);
    return specdec__pool_barrier(c->pool);
}

/* h = what a recurrent layer makes of c->mix.raw, which its matrices have made. Of units (part, head or what is kept)
   that are done nothing is done again. Returns 1 when cancelled. */
static int specdec__forward_mix(specdec__context *c, int thread, const specdec__layer *layer)
{
    const specdec__mixing *m = &c->kv.states.mixing;
    const int units = m->heads + 1, groups = m->kind == SPECDEC__DELTA ? m->heads : specdec__max_int(m->groups, 1);
    int items = c->mix.parts * units, from, end = 0;
    unsigned char *done = c->mix.done + (size_t)layer->state * (size_t)items;

    if (specdec__forward_mix_first(c, thread, layer))
        return 1;
    while ((from = specdec__pool_claim(c->pool, items, 1, &end)) < items)
        for (; from < end; from++) {
            const specdec__mix_part *part = &c->mix.part[from / units];

            if (done[from])
                continue;
            if (from % units < m->heads)
                specdec__forward_mix_head(c, thread, part, layer, from % units);
            else
                specdec__forward_mix_keep(c, thread, part, layer);
            done[from] = 1;
        }
    if (specdec__pool_barrier(c->pool))
        return 1;
    if (!m->heads)
        return 0;
    items = c->n * groups;
    end = 0;
    while ((from = specdec__pool_claim(c->pool, items, 1, &end)) < items)
        for (; from < end; from++)
            specdec__forward_mix_gate(c, layer, from / groups, from % groups, m->inner / groups);
    return specdec__pool_barrier(c->pool);
}

SPECDEC__FOR_SIZE

static void specdec__forward_mix_settle_layers(void *argument, int thread)
{
    specdec__context *c = (specdec__context *)argument;
    int i;

    for (i = 0; i < c->model->layers; i++)
        if (c->model->layer[i].state >= 0)
            specdec__forward_mix(c, thread, &c->model->layer[i]);
}

/* A step has ended early, or is not run at all: what waited is applied where it was not yet, and nothing else. That
   takes as long as states are read, and is not cancelled. */
static void specdec__forward_mix_settle(specdec__context *c)
{
    specdec__mixes *m = &c->mix;
    int *cancel = c->pool->cancel, never = 0, n = c->n, applies = 0, i, k;

    for (i = 0; i < m->parts; i++) {
        specdec__mix_part *part = &m->part[i];

        if (part->certain) {
            specdec__states_part(&c->kv.states, part->to, -1);
            part->to = -1;
            part->waiting = 0;
        }
        for (k = part->first + part->waiting; k < (i + 1 < m->parts ? part[1].first : m->rows); k++)
            m->row[k].node = -1;
        for (k = part->first; k < (i + 1 < m->parts ? part[1].first : m->rows); k++)
            m->row[k].weight = 0;
        part->walks = 0;
        applies |= part->to >= 0;
    }
    if (!applies || !c->kv.states.mixing.layers)
        return;
    c->n = 0;
    c->pool->cancel = &never;
    specdec__pool_run(c->pool, c->threads, specdec__forward_mix_settle_layers, c);
    c->pool->cancel = cancel;
    c->n = n;
}

/* What comes of a step, for the states of its views: they have what waited, and what is certain if it is done. */
static void specdec__forward_mix_end(specdec__context *c, int done)
{
    specdec__states *s = &c->kv.states;
    int i;

    if (!done)
        specdec__forward_mix_settle(c);
    for (i = 0; i < c->mix.parts; i++) {
        const specdec__mix_part *part = &c->mix.part[i];
        specdec__state *state = &part->view->state;
        specdec__point point;

        if (part->to < 0)
            continue;
        point.length = part->view->length + part->certain;
        point.slot = part->to;
        point.certain = part->certain > 0;
        if (part->certain) {
            state->next = point;
            continue;
        }
        if (part->to == part->from) {
            s->half[part->to] ^= 1;
            state->point[state->count - 1].length = point.length;
        } else {
            specdec__state_advance(state, s, point);
        }
        specdec__state_applied(state);
    }
    c->mix.parts = 0;
    for (i = 0; i < c->threads; i++) {
        s->read += c->scratch[i].state_read;
        s->written += c->scratch[i].state_written;
        c->scratch[i].state_read = c->scratch[i].state_written = 0;
    }
}

/* Lays out the rows of a batch whose views have states. */
static specdec_result specdec__forward_mix_prepare(specdec__context *c, const specdec__batch *batch,
                                                   specdec_error *error)
{
    const specdec__mixing *m = &c->kv.states.mixing;
    int i, k, fine = 1;

    c->mix.rows = c->mix.parts = c->mix.steps = 0;
    for (i = 0; i < batch->n && fine; i++) {
        int fresh = 0;

        for (k = 0; k < i && batch->views[k] != batch->views[i]; k++)
            continue;
        if (k < i)
            continue;
        for (k = i; k < batch->n && !fresh; k++)
            fresh = k >= batch->done && batch->views[k] == batch->views[i];
        fine = !fresh || specdec__forward_mix_view(c, batch, i);
    }
    memset(c->mix.done, 0, (size_t)m->layers * (size_t)c->mix.parts * (size_t)(m->heads + 1));
    if (fine)
        return SPECDEC_OK;
    specdec__forward_mix_end(c, 0);
    return specdec__fail(error, SPECDEC_ERROR_FULL, "the state of a sequence is not there");
}

SPECDEC__FOR_SPEED
