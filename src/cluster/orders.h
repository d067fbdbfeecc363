/* =====================================================================================================================
 * >>cluster/orders: rank 0's side of orders and runs: sends them to the next rank and receives the answers.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "../base/pool.h"
#include "../cache/kv.h"
#include "../forward/context.h"
#include "../forward/step.h"
#include "wire.h"
#include "link.h"

SPECDEC__FOR_SIZE

/* Sends the orders stored in link->messages.out to the next rank with layers, followed by the first `rows` rows of x,
   the activations. */
static void specdec__link_send_orders(specdec__link *link, int rows)
{
    const specdec__context *c = link->context;
    const int floats = rows ? c->model->embedding : 0;
    unsigned char *at = link->messages.out + 4 * (SPECDEC__WIRE_HEADER_WORDS + (size_t)link->messages.order_words);
    int i;

    for (i = 0; i < rows; i++, at += 4 * (size_t)floats)
        specdec__wire_put_floats(at, c->x + (size_t)i * (size_t)c->e, floats);
    if (link->messages.order_words && !link->failed.code) {
        specdec__wire_put_word(link->messages.out, SPECDEC__WIRE_RUN, link->own.run);
        specdec__link_send(link, specdec__link_adjacent_stage(link, specdec__link_rank(link), 1), SPECDEC__WIRE_ORDERS,
                           link->messages.out, link->messages.order_words, rows, floats);
    }
    link->messages.order_words = 0;
}

/* Begins an order of `count` words in link->messages.out; sends the stored orders first if there is no room. Returns
   the address of the order's words. */
static unsigned char *specdec__link_begin_order(specdec__link *link, int kind, int count)
{
    unsigned char *at;

    if (link->messages.order_words + 1 + count > link->messages.order_capacity)
        specdec__link_send_orders(link, 0);
    at = link->messages.out + 4 * (SPECDEC__WIRE_HEADER_WORDS + (size_t)link->messages.order_words);
    specdec__wire_put_word(at, 0, (uint32_t)kind | (uint32_t)count << 8);
    link->messages.order_words += 1 + count;
    return at + 4;
}

/* Returns the number of a view of the target's cache. */
static int specdec__link_view_number(const specdec__link *link, const specdec__view *view)
{
    int i = 0;

    while (i < link->views.count - 1 && link->views.view[i] != view)
        i++;
    return i;
}

/* Stores an order to change a view of the target's cache as rank 0 has changed it. */
static void specdec__link_store_kv_order(void *listener, const specdec__kv_event *news)
{
    specdec__link *link = (specdec__link *)listener;
    const int commits = news->kind == SPECDEC__KV_COMMIT;
    const int count = commits ? news->first_number + specdec__max_int(news->second_number, 0) : 0;
    unsigned char *to = specdec__link_begin_order(link, news->kind, 5 + count);
    int i;

    specdec__wire_put_word(to, 0, (uint32_t)specdec__link_view_number(link, news->view));
    specdec__wire_put_word(to, 1,
                           news->source_view ? (uint32_t)specdec__link_view_number(link, news->source_view)
                                             : 0xffffffffu);
    specdec__wire_put_word(to, 2, (uint32_t)news->first_number);
    specdec__wire_put_word(to, 3, (uint32_t)news->second_number);
    specdec__wire_put_word(to, 4, (uint32_t)(commits ? link->sent.renumbered_nodes : 0));
    for (i = 0; i < count; i++)
        specdec__wire_put_word(to, 5 + i, (uint32_t)news->path[i]);
    link->sent.renumbered_nodes = commits ? 0 : link->sent.renumbered_nodes;
}

/* Sends the other ranks CANCEL for a run that has not returned. */
static void specdec__link_cancel_run(specdec__link *link, specdec__wire_run *run)
{
    if (!run->returned && !run->cancelled)
        specdec__link_send_urgent_all(link, SPECDEC__WIRE_CANCEL, run->number, NULL);
    run->cancelled = 1;
}

/* Removes the oldest of the runs that rank 0 has sent from link->sent_runs. */
static void specdec__link_remove_oldest_run(specdec__link *link)
{
    memmove(link->sent.runs, link->sent.runs + 1, (size_t)--link->sent.count * sizeof *link->sent.runs);
}

/* Removes the oldest runs that are abandoned and have returned, or can return no more as the cluster has failed. */
static void specdec__link_remove_abandoned_runs(specdec__link *link)
{
    while (link->sent.count && link->sent.runs[0].abandoned && (link->sent.runs[0].returned || link->failed.code))
        specdec__link_remove_oldest_run(link);
}

/* Cancels a run and marks it as abandoned: its rows are not awaited. */
static void specdec__link_abandon_run(specdec__link *link, specdec__wire_run *run)
{
    specdec__link_cancel_run(link, run);
    run->abandoned = 1;
    specdec__link_remove_abandoned_runs(link);
}

/* Receives the answer to the oldest sent run that has none. Returns 0 if it has not arrived. */
static int specdec__link_receive_answer(specdec__link *link)
{
    specdec__wire_run *run = &link->sent.runs[0];
    const int last = specdec__link_last_stage(link);
    double longest;
    uint32_t rows;

    specdec__link_remove_abandoned_runs(link);
    if (!link->sent.count || run->returned || !specdec__link_receive_message(link, last, SPECDEC__WIRE_STATES))
        return 0;
    rows = specdec__wire_get_word(link->messages.in, SPECDEC__WIRE_ROWS);
    if (specdec__wire_get_word(link->messages.in, SPECDEC__WIRE_RUN) != run->number ||
        specdec__wire_get_word(link->messages.in, SPECDEC__WIRE_ORDER_WORDS) != 1 ||
        (rows ? rows != (uint32_t)run->rows : run->rows && !run->cancelled) ||
        (rows && specdec__wire_get_word(link->messages.in, SPECDEC__WIRE_ROW_FLOATS) !=
                 (uint32_t)link->context->model->embedding)) {
        specdec__link_reject_message(link, last, "states that were not asked for");
        return 0;
    }
    longest = 1e-6 * specdec__wire_get_word(link->messages.in, SPECDEC__WIRE_HEADER_WORDS);
    run->slowest_seconds = longest > run->slowest_seconds ? longest : run->slowest_seconds;
    run->returned = 1;
    run->result = rows ? SPECDEC_OK : SPECDEC_ERROR_CANCELLED;
    if (!run->rows)
        specdec__link_remove_oldest_run(link);
    specdec__link_remove_abandoned_runs(link);
    return 1;
}

/* Computes the logits of the rows in link->messages.in, the answer to the oldest run. This takes no longer than the
   output of a step on one machine, and is not cancelled. */
static void specdec__link_compute_logits(specdec__link *link)
{
    specdec__context *c = link->context;
    const int count = link->sent.runs[0].rows, width = c->model->embedding;
    const unsigned char *from = link->messages.in + 4 * (SPECDEC__WIRE_HEADER_WORDS + 1);
    int *cancel = c->pool->cancel, never = 0, i;

    for (i = 0; i < count; i++, from += 4 * (size_t)width) {
        specdec__wire_get_floats(c->x + (size_t)i * (size_t)c->e, from, width);
        c->rows[i] = i;
    }
    c->row_count = count;
    c->pool->cancel = &never;
    specdec__pool_run(c->pool, c->threads, specdec__forward_compute_logits, c);
    c->pool->cancel = cancel;
}

/* Removes the oldest run, which has returned, and computes its logits. Errors: CANCELLED; FORMAT for logits that are
   not finite. */
static specdec_result specdec__link_take_run(specdec__link *link, specdec_error *error)
{
    const specdec__wire_run run = link->sent.runs[0];
    specdec_result result = run.cancelled ? SPECDEC_ERROR_CANCELLED : run.result;

    if (!result) {
        specdec__link_compute_logits(link);
        result = specdec__forward_check_step(link->context, 0, run.rows, error);
    } else {
        specdec__fail(error, result, "cancelled");
    }
    specdec__link_remove_oldest_run(link);
    return result;
}

/* Returns whether a sequence of the context's batch was cancelled, or the sequence whose caller waits for the step. */
static int specdec__link_step_is_cancelled(const specdec__link *link)
{
    const specdec__batch *batch = link->context->batch;
    int i;

    if (SPECDEC__LOAD(link->context->pool->cancel) || (link->caller_cancel && SPECDEC__LOAD(link->caller_cancel)))
        return 1;
    for (i = batch->done_count; i < batch->n; i++)
        if ((i == batch->done_count || batch->views[i] != batch->views[i - 1]) &&
            SPECDEC__LOAD(link->views.cancel[specdec__link_view_number(link, batch->views[i])]))
            return 1;
    return 0;
}

/* Returns whether any sequence of the engine was cancelled. */
static int specdec__link_any_sequence_cancelled(const specdec__link *link)
{
    int i, any = SPECDEC__LOAD(link->context->pool->cancel);

    for (i = 0; i < link->views.count; i++)
        any |= SPECDEC__LOAD(link->views.cancel[i]);
    return any;
}

/* Waits until run number `run` has returned, failed, or was cancelled, and takes its logits. A cancelled run is
   abandoned; earlier runs, which are abandoned, are removed. */
static specdec_result specdec__link_await_run(specdec__link *link, uint32_t run, specdec_error *error)
{
    specdec__wire_run *last;

    for (;;) {
        while (link->sent.count && !link->sent.runs[0].returned && specdec__link_receive_answer(link))
            continue;
        specdec__link_handle_urgent_messages(link);
        if (link->failed.code)
            return specdec__fail(error, link->failed.code, "%s", link->failed.text);
        if (!link->sent.count || link->sent.runs[0].number > run)
            return SPECDEC_OK;
        last = &link->sent.runs[link->sent.count - 1];
        if (link->sent.runs[0].number == run && link->sent.runs[0].returned)
            break;
        if (specdec__link_step_is_cancelled(link)) {
            if (last->number == run && last->rows)
                specdec__link_abandon_run(link, last);
            return specdec__fail(error, SPECDEC_ERROR_CANCELLED, "cancelled");
        }
        specdec__link_wait_for_message(link, SPECDEC__WIRE_WAIT_SECONDS);
    }
    return specdec__link_take_run(link, error);
}

/* Stores the order to run the context's batch, as a cancelled run if `cancelled`. */
static void specdec__link_store_run_order(specdec__link *link, int cancelled)
{
    const specdec__context *c = link->context;
    const specdec__batch *batch = c->batch;
    unsigned char *to = specdec__link_begin_order(link, SPECDEC__WIRE_ORDER_RUN, 5 + 3 * c->n);
    int i;

    specdec__wire_put_word(to, 0, ++link->own.run);
    specdec__wire_put_word(to, 1, (uint32_t)cancelled);
    specdec__wire_put_word(to, 2, 0);
    specdec__wire_put_word(to, 3, (uint32_t)batch->done_count);
    specdec__wire_put_word(to, 4, (uint32_t)c->n);
    for (i = batch->done_count, to += 20; i < batch->n; i++, to += 12) {
        const int wanted = !batch->wants_logits || batch->wants_logits[i];
        const int certain = batch->certain && batch->certain[i];
        const int view = specdec__link_view_number(link, batch->views[i]);

        specdec__wire_put_word(to, 0, (uint32_t)batch->tokens[i]);
        specdec__wire_put_word(to, 1, (uint32_t)batch->parents[i]);
        specdec__wire_put_word(to, 2, (uint32_t)(view * 4 + certain * 2 + wanted));
    }
}

/* The hook before rank 0's first layer: waits until at most `ranks + 1` runs are unanswered, cancelled ones included.
   Errors: CANCELLED, or the error that has ended the cluster. */
static specdec_result specdec__link_begin_run(specdec__context *c, specdec_error *error)
{
    specdec__link *link = (specdec__link *)c->hooks_argument;
    const int most = specdec__min_int(link->cluster.ranks + 1, SPECDEC__WIRE_MAX_RUNS / 2 - 2);

    while (!link->failed.code && !link->sent.overlap && link->sent.count > most &&
           !specdec__link_step_is_cancelled(link))
        specdec__link_await_run(link, link->sent.runs[0].number, NULL);
    if (link->failed.code)
        return specdec__fail(error, link->failed.code, "%s", link->failed.text);
    return !link->sent.overlap && specdec__link_step_is_cancelled(link)
               ? specdec__fail(error, SPECDEC_ERROR_CANCELLED, "cancelled")
               : SPECDEC_OK;
}

/* The hook behind rank 0's last layer: sends the batch to the next rank, waits for its wanted rows and computes their
   logits. It does not wait if several runs may overlap, or no row is wanted. A batch that ended early is sent as a
   cancelled run. */
static specdec_result specdec__link_send_run(specdec__context *c, specdec_result result, specdec_error *error)
{
    specdec__link *link = (specdec__link *)c->hooks_argument;
    specdec__wire_run *run = &link->sent.runs[link->sent.count++];
    const double now = specdec__os_monotonic_seconds();

    if (!result && !link->sent.overlap && specdec__link_step_is_cancelled(link))
        result = specdec__fail(error, SPECDEC_ERROR_CANCELLED, "cancelled");
    specdec__link_store_run_order(link, result != SPECDEC_OK);
    specdec__link_send_orders(link, c->model->layers && !result ? c->n : 0);
    if (!result && link->failed.code)
        result = specdec__fail(error, link->failed.code, "%s", link->failed.text);
    memset(run, 0, sizeof *run);
    run->number = link->own.run;
    run->rows = c->row_count;
    run->cancelled = result != SPECDEC_OK;
    run->abandoned = result && !link->sent.overlap;
    link->sent.first_rank_free_at = now > link->sent.first_rank_free_at ? now : link->sent.first_rank_free_at;
    link->sent.first_rank_free_at += result ? 0 : specdec__link_first_stage_peer(link)->done_seconds;
    return result || link->sent.overlap || !c->row_count ? result : specdec__link_await_run(link, link->own.run, error);
}

/* The hooks of a forward pass in a cluster: of ranks that serve, and of rank 0 if it is not the only rank with
   layers. */
static const specdec__forward_hooks specdec__link_hooks[] = {
    {specdec__link_handle_messages_between_layers, NULL, NULL},
    {specdec__link_handle_messages_between_layers, specdec__link_begin_run, specdec__link_send_run}};

SPECDEC__FOR_SPEED
