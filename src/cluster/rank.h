/* =====================================================================================================================
 * >>cluster/rank: ranks behind rank 0 that have layers: each obeys orders, computes its layers and passes them on.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "../model/model.h"
#include "../cache/kv.h"
#include "../cache/reserve.h"
#include "../forward/context.h"
#include "../forward/step.h"
#include "wire.h"
#include "link.h"
#include "orders.h"

SPECDEC__FOR_SIZE

/* Reserves n->first_number slots in a view of the cache. Returns 0 if rank 0 has reserved another number of slots
   (n->second_number). */
static int specdec__obey_reserve_slots(specdec__link *link, const specdec__kv_event *n)
{
    return n->first_number <= link->context->max_nodes &&
           specdec__view_reserve_and_notify(n->view, &link->context->kv, n->first_number) == n->second_number;
}

/* Frees the reserved slots of a view of the cache. Returns 1. */
static int specdec__obey_free_reserved_slots(specdec__link *link, const specdec__kv_event *n)
{
    specdec__view_free_reserved_slots(n->view, &link->context->kv);
    link->own.node_count = 0;
    return 1;
}

/* Commits the first n->first_number nodes of a path. If n->renumbered is not 0, nodes of the next run may descend from
   the other nodes of the path. Returns 0 if the order is not valid. */
static int specdec__obey_commit_nodes(specdec__link *link, const specdec__kv_event *n)
{
    specdec__context *c = link->context;
    const int count = n->first_number + specdec__max_int(n->second_number, 0), known = n->renumbered;
    int i;

    for (i = 0; i < count; i++)
        if (n->path[i] <= (i ? n->path[i - 1] : -1))
            return 0;
    if (n->first_number > link->views.capacity - n->view->length ||
        (count && n->path[count - 1] >= (known ? known : specdec__view_count_reserved_slots(n->view, &c->kv))))
        return 0;
    if (known ? known != link->own.node_count || !n->first_number || link->own.node_view < 0 ||
                    link->views.view[link->own.node_view] != n->view
              : n->second_number)
        return 0;
    if (!known)
        specdec__view_commit(n->view, &c->kv, n->path, n->first_number);
    link->own.node_count = !known ? 0
                                  : specdec__forward_commit_and_keep_nodes(c, n->view, n->path, n->first_number,
                                                                           n->second_number, known);
    return 1;
}

/* Truncates a view of the cache to n->first_number keys. Returns 1. */
static int specdec__obey_truncate_view(specdec__link *link, const specdec__kv_event *n)
{
    specdec__view_truncate(n->view, &link->context->kv, n->first_number);
    link->own.node_count = 0;
    return 1;
}

/* Lets an empty view share the first n->second_number keys of another view. Returns 0 if the order is not valid. */
static int specdec__obey_share_keys(specdec__link *link, const specdec__kv_event *n)
{
    if (!n->source_view || n->source_view == n->view || n->view->length || n->first_number ||
        n->second_number > n->source_view->length)
        return 0;
    /* fails where rank 0's has failed, too */
    specdec__view_share_keys(n->view, &link->context->kv, n->source_view, n->first_number, n->second_number);
    link->own.node_count = 0;
    return 1;
}

/* Functions that obey an order to change a view, by kind: each returns 0 if the order is not valid. */
static const struct {
    int (*obey)(specdec__link *link, const specdec__kv_event *news);
} specdec__obey_table[SPECDEC__KV_EVENTS] = {{specdec__obey_reserve_slots}, {specdec__obey_free_reserved_slots},
                                             {specdec__obey_commit_nodes},
                                             {specdec__obey_truncate_view}, {specdec__obey_share_keys}};

/* Obeys the order of a message that changes a view of the cache. Returns 0 if the order is not valid. */
static int specdec__obey_kv_order(specdec__link *link, int kind, specdec__wire_reader *in)
{
    specdec__context *c = link->context;
    const int commits = kind == SPECDEC__KV_COMMIT;
    specdec__kv_event news;
    int other, count, i;

    news.kind = kind;
    news.view = link->views.view[specdec__wire_read_int(in, 0, link->views.count - 1)];
    other = specdec__wire_read_int(in, -1, link->views.count - 1);
    news.source_view = other < 0 ? NULL : link->views.view[other];
    news.first_number = specdec__wire_read_int(in, 0, commits ? c->max_nodes : 1 << 30);
    news.second_number = specdec__wire_read_int(in, commits ? -1 : 0, commits ? c->max_nodes : 1 << 30);
    news.renumbered = specdec__wire_read_int(in, 0, c->max_nodes);
    news.path = c->path;
    count = commits ? news.first_number + specdec__max_int(news.second_number, 0) : 0;
    if (in->bad || in->left != count || count > c->max_nodes)
        return 0;
    for (i = 0; i < count; i++)
        c->path[i] = specdec__wire_read_int(in, 0, c->max_nodes - 1);
    return !in->bad && specdec__obey_table[kind].obey(link, &news);
}

/* Returns whether nodes of a run may descend from a node of an earlier run: the node and its ancestors were
   computed. */
static int specdec__link_node_is_computed(const specdec__link *link, const specdec__view *view, int node)
{
    const specdec__context *c = link->context;

    for (; node >= 0; node = c->parents[node]) {
        const int parent = c->parents[node];

        if (parent >= node || c->key_index[node] != (parent < 0 ? view->length : c->key_index[parent] + 1))
            return 0;
    }
    return 1;
}

/* Reads nodes done .. done + n - 1 of a run into the context. Returns 0 if they are not valid. */
static int specdec__link_read_nodes(specdec__link *link, int done, int n, specdec__wire_reader *in)
{
    specdec__context *c = link->context;
    int i, mixed = 0, view = 0;

    for (i = done; i < done + n; i++) {
        c->tokens[i] = specdec__wire_read_int(in, 0, c->model->vocab_size - 1);
        c->parents[i] = specdec__wire_read_int(in, -1, i - 1);
        view = specdec__wire_read_int(in, 0, 4 * link->views.count - 1);
        c->wants_logits[i] = (unsigned char)(view & 1);
        c->certain[i] = (unsigned char)(view >> 1 & 1);
        view >>= 2;
        c->views[i] = link->views.view[view];
        mixed |= i > done && c->views[i] != c->views[i - 1];
        if (in->bad || (done && (mixed || view != link->own.node_view)) ||
            (c->parents[i] >= 0 && c->parents[i] < done &&
             !specdec__link_node_is_computed(link, c->views[i], c->parents[i])))
            return 0;
    }
    for (i = 0; i < done; i++)
        c->views[i] = link->views.view[view];
    link->own.node_view = mixed ? -1 : view;
    return 1;
}

/* Runs a batch through this rank's layers. x: the received rows of activations, or NULL on the first rank with layers
   and for a cancelled run. *empty: 1 if the run is cancelled and has no result. Returns 0 if the cluster has failed. */
static int specdec__link_run_layers(specdec__link *link, const specdec__batch *batch, const unsigned char *x,
                                    int *empty)
{
    specdec__context *c = link->context;
    const int width = c->model->embedding, n = batch->n - batch->done_count;
    const double start = specdec__os_monotonic_seconds();
    specdec_error error;
    specdec_result result;
    int i;

    *empty = (!x && !specdec__model_has_first_layer(c->model)) ||
             link->own.cancelled_runs[link->own.run % SPECDEC__WIRE_MAX_RUNS] == link->own.run;
    for (i = 0; x && i < n; i++, x += 4 * (size_t)width)
        specdec__wire_get_floats(c->x + (size_t)i * (size_t)c->e, x, width);
    SPECDEC__STORE(&link->own.cancel, 0);
    result = *empty ? specdec__forward_skip_batch(c, batch, &error) : specdec__forward(c, batch, &error);
    if (!result && !*empty)
        result = specdec__forward_check_step(c, 0, n, &error);
    *empty |= result == SPECDEC_ERROR_CANCELLED;
    if (result && result != SPECDEC_ERROR_CANCELLED && !link->failed.code) {
        link->failed = error;
        specdec__link_send_failed(link);
    }
    if (link->failed.code)
        return 0;
    link->counts.runs++;
    link->counts.nodes += n;
    link->counts.kept_nodes += *empty ? 0 : n;
    link->own.layer = (uint32_t)c->model->layers;
    link->own.seconds = specdec__os_monotonic_seconds() - start;
    if (link->own.seconds > link->own.slowest_seconds)
        link->own.slowest_seconds = link->own.seconds;
    return 1;
}

/* Obeys the order to run a batch: reads its nodes and computes this rank's layers. rows: received rows of activations.
   *empty: as in specdec__link_run_layers. Returns 0 if the order is not valid. */
static int specdec__obey_run_order(specdec__link *link, specdec__wire_reader *in, int rows, int *empty)
{
    specdec__context *c = link->context;
    const unsigned char *x;
    const uint32_t run = specdec__wire_read_word(in);
    const int cancelled = specdec__wire_read_int(in, 0, 1), longest = specdec__wire_read_int(in, 0, 1 << 30);
    const int done = specdec__wire_read_int(in, 0, link->own.node_count);
    const int n = specdec__wire_read_int(in, 1, c->max_nodes - done);
    specdec__batch batch;

    if (in->bad || in->left != 3 * n || run != link->own.run + 1 || (rows && rows != n) ||
        (rows > 0) != (!cancelled && !specdec__model_has_first_layer(c->model)) ||
        !specdec__link_read_nodes(link, done, n, in))
        return 0;
    link->own.run = run;
    link->own.layer = 0;
    link->own.slowest_seconds = 1e-6 * longest;
    link->own.node_count = done + n;
    if (cancelled)
        specdec__link_handle_cancel_message(link, run);
    x = rows ? in->at : NULL;
    batch = specdec__forward_make_batch(c, done, done + n);
    batch.wants_logits = c->wants_logits;
    batch.certain = c->certain;
    return specdec__link_run_layers(link, &batch, x, empty);
}

/* Returns how long the run under way took on the slowest rank so far, in microseconds, at most 10^9. */
static uint32_t specdec__link_slowest_microseconds(const specdec__link *link)
{
    return link->own.slowest_seconds < 1000 ? (uint32_t)(1e6 * link->own.slowest_seconds) : 1000000000u;
}

/* Sends rank 0 the answer of the last rank to a run: the wanted rows, or none if the run is empty. */
static void specdec__link_send_answer(specdec__link *link, int empty)
{
    const specdec__context *c = link->context;
    const int rows = empty ? 0 : c->row_count, width = c->model->embedding;
    unsigned char *to = link->messages.out + 4 * (SPECDEC__WIRE_HEADER_WORDS + 1);
    int i;

    for (i = 0; i < rows; i++, to += 4 * (size_t)width)
        specdec__wire_put_floats(to, c->x + (size_t)c->rows[i] * (size_t)c->e, width);
    specdec__wire_put_word(link->messages.out, SPECDEC__WIRE_RUN, link->own.run);
    specdec__wire_put_word(link->messages.out, SPECDEC__WIRE_HEADER_WORDS, specdec__link_slowest_microseconds(link));
    specdec__link_send(link, 0, SPECDEC__WIRE_STATES, link->messages.out, 1, rows, rows ? width : 0);
}

/* Sends the orders of the received message to the next rank, with the rows that this rank has computed; the last rank
   answers rank 0 instead. run_at: word index of the order to run a batch; -1: the message has none. empty: 1 if that
   run was cancelled. */
static void specdec__link_pass_message_on(specdec__link *link, int run_at, int empty)
{
    specdec__context *c = link->context;
    const int words = (int)specdec__wire_get_word(link->messages.in, SPECDEC__WIRE_ORDER_WORDS);
    unsigned char *orders = link->messages.out + 4 * SPECDEC__WIRE_HEADER_WORDS;

    if (!specdec__model_has_last_layer(c->model)) {
        memcpy(orders, link->messages.in + 4 * SPECDEC__WIRE_HEADER_WORDS, 4 * (size_t)words);
        if (run_at >= 0) {
            specdec__wire_put_word(orders, run_at + 2, (uint32_t)empty);
            specdec__wire_put_word(orders, run_at + 3, specdec__link_slowest_microseconds(link));
        }
        link->messages.order_words = words;
        specdec__link_send_orders(link, run_at >= 0 && !empty ? c->n : 0);
    } else if (run_at >= 0) {
        specdec__link_send_answer(link, empty);
    }
    if (run_at >= 0 && specdec__link_rank(link) == specdec__link_adjacent_stage(link, 0, 1))
        specdec__link_send_urgent(link, 0, SPECDEC__WIRE_DONE, link->own.run, (uint64_t)(1e6 * link->own.seconds),
                                  NULL);
}

/* Obeys the order at word `at` of a received message of `words` words. An order to run a batch must be the last one:
   *run_at becomes its word index. Returns the number of words of the order; 0 if it is not valid. */
static int specdec__link_obey_order(specdec__link *link, int at, int words, int *run_at, int *empty)
{
    const unsigned char *order = link->messages.in + 4 * (SPECDEC__WIRE_HEADER_WORDS + (size_t)at);
    const uint32_t head = specdec__wire_get_word(order, 0), kind = head & 255;
    const int rows = (int)specdec__wire_get_word(link->messages.in, SPECDEC__WIRE_ROWS);
    specdec__wire_reader in;
    int valid = 1;

    in.at = order + 4;
    in.left = (int)(head >> 8);
    in.bad = 0;
    if (in.left >= words - at || kind > SPECDEC__WIRE_ORDER_END)
        return 0;
    at += 1 + in.left;
    if (kind == SPECDEC__WIRE_ORDER_RUN) {
        *run_at = at - 1 - in.left;
        valid = at == words && specdec__obey_run_order(link, &in, rows, empty);
    } else if (kind == SPECDEC__WIRE_ORDER_END) {
        link->ended = 1;
    } else {
        valid = specdec__obey_kv_order(link, (int)kind, &in);
    }
    return valid ? 1 + (int)(head >> 8) : 0;
}

/* Obeys all orders of the received message, and passes the message on. */
static void specdec__link_obey_message(specdec__link *link)
{
    const int words = (int)specdec__wire_get_word(link->messages.in, SPECDEC__WIRE_ORDER_WORDS);
    const int rows = (int)specdec__wire_get_word(link->messages.in, SPECDEC__WIRE_ROWS);
    const int floats = (int)specdec__wire_get_word(link->messages.in, SPECDEC__WIRE_ROW_FLOATS);
    int at = 0, took = words <= link->messages.order_capacity && (!rows || floats == link->context->model->embedding);
    int run_at = -1, empty = 0;

    for (; took && at < words; at += took)
        took = specdec__link_obey_order(link, at, words, &run_at, &empty);
    if (!took || (rows && run_at < 0))
        specdec__link_reject_message(link, specdec__link_adjacent_stage(link, specdec__link_rank(link), -1),
                                     "orders that make no sense");
    else
        specdec__link_pass_message_on(link, run_at, empty);
}

/* Serves as a rank with layers: obeys messages of the rank before this one until the cluster ends, or an error. */
static specdec_result specdec__link_serve(specdec__link *link)
{
    const int before = specdec__link_adjacent_stage(link, specdec__link_rank(link), -1);
    double start;

    while (!link->ended) {
        specdec__link_handle_urgent_messages(link);
        if (link->failed.code)
            return link->failed.code;
        if (!specdec__link_receive_message(link, before, SPECDEC__WIRE_ORDERS)) {
            if (!link->failed.code)
                specdec__link_wait_for_message(link, SPECDEC__WIRE_WAIT_SECONDS);
            continue;
        }
        start = specdec__os_monotonic_seconds();
        specdec__link_obey_message(link);
        link->counts.seconds += specdec__os_monotonic_seconds() - start;
    }
    return SPECDEC_DONE;
}

SPECDEC__FOR_SPEED
