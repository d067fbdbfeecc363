/* =====================================================================================================================
 * >>cluster/orders: orders, as rank 0 gives them.
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

/* Sends the stored orders, with rows of x behind them. */
static void specdec__link_flush(specdec__link *link, int rows)
{
    const specdec__context *c = link->context;
    const int floats = rows ? c->model->embedding : 0;
    unsigned char *at = link->out + 4 * (SPECDEC__WIRE_HEAD + (size_t)link->words);
    int i;

    for (i = 0; i < rows; i++, at += 4 * (size_t)floats)
        specdec__wire_pack(at, c->x + (size_t)i * (size_t)c->e, floats);
    if (link->words && !link->failed.code) {
        specdec__wire_put(link->out, SPECDEC__WIRE_RUN, link->run);
        specdec__link_send(link, specdec__link_stage_at(link, specdec__link_rank(link), 1), SPECDEC__WIRE_ORDERS,
                           link->out, link->words, rows, floats);
    }
    link->words = 0;
}

/* Begins an order of `count` words; sends the stored orders first if there is no room. Returns the address of the
   order's words. */
static unsigned char *specdec__link_order(specdec__link *link, int kind, int count)
{
    unsigned char *at;

    if (link->words + 1 + count > link->most_words)
        specdec__link_flush(link, 0);
    at = link->out + 4 * (SPECDEC__WIRE_HEAD + (size_t)link->words);
    specdec__wire_put(at, 0, (uint32_t)kind | (uint32_t)count << 8);
    link->words += 1 + count;
    return at + 4;
}

/* The number of a view. */
static int specdec__link_view(const specdec__link *link, const specdec__view *view)
{
    int i = 0;

    while (i < link->view_count - 1 && link->views[i] != view)
        i++;
    return i;
}

/* Stores an order for a change of a view of the target's cache, so that all ranks make the same change. */
static void specdec__link_tell(void *listener, const specdec__kv_event *news)
{
    specdec__link *link = (specdec__link *)listener;
    const int commits = news->kind == SPECDEC__KV_COMMIT;
    const int count = commits ? news->first_number + specdec__max_int(news->second_number, 0) : 0;
    unsigned char *to = specdec__link_order(link, news->kind, 5 + count);
    int i;

    specdec__wire_put(to, 0, (uint32_t)specdec__link_view(link, news->view));
    specdec__wire_put(to, 1, news->source_view ? (uint32_t)specdec__link_view(link, news->source_view) : 0xffffffffu);
    specdec__wire_put(to, 2, (uint32_t)news->first_number);
    specdec__wire_put(to, 3, (uint32_t)news->second_number);
    specdec__wire_put(to, 4, (uint32_t)(commits ? link->renumbers : 0));
    for (i = 0; i < count; i++)
        specdec__wire_put(to, 5 + i, (uint32_t)news->path[i]);
    link->renumbers = commits ? 0 : link->renumbers;
}

/* Tells the other ranks that a run is cancelled. */
static void specdec__link_doom(specdec__link *link, specdec__wire_flight *flight)
{
    if (!flight->back && !flight->cancelled)
        specdec__link_urgent_all(link, SPECDEC__WIRE_DOOM, flight->run, NULL);
    flight->cancelled = 1;
}

static void specdec__link_land(specdec__link *link)
{
    memmove(link->flights, link->flights + 1, (size_t)--link->flight_count * sizeof *link->flights);
}

/* Removes the oldest runs that have returned, or failed, and whose rows are not awaited. */
static void specdec__link_sweep(specdec__link *link)
{
    while (link->flight_count && link->flights[0].left && (link->flights[0].back || link->failed.code))
        specdec__link_land(link);
}

/* Marks a run as not awaited any more. */
static void specdec__link_leave(specdec__link *link, specdec__wire_flight *flight)
{
    specdec__link_doom(link, flight);
    flight->left = 1;
    specdec__link_sweep(link);
}

/* Receives the answer to the oldest run. Returns 0 if it has not arrived. */
static int specdec__link_answer(specdec__link *link)
{
    specdec__wire_flight *flight = &link->flights[0];
    const int last = specdec__link_last(link);
    double longest;
    uint32_t rows;

    specdec__link_sweep(link);
    if (!link->flight_count || flight->back || !specdec__link_receive(link, last, SPECDEC__WIRE_STATES))
        return 0;
    rows = specdec__wire_get(link->in, SPECDEC__WIRE_ROWS);
    if (specdec__wire_get(link->in, SPECDEC__WIRE_RUN) != flight->run ||
        specdec__wire_get(link->in, SPECDEC__WIRE_WORDS) != 1 ||
        (rows ? rows != (uint32_t)flight->rows : flight->rows && !flight->cancelled) ||
        (rows && specdec__wire_get(link->in, SPECDEC__WIRE_FLOATS) != (uint32_t)link->context->model->embedding)) {
        specdec__link_nonsense(link, last, "states that were not asked for");
        return 0;
    }
    longest = 1e-6 * specdec__wire_get(link->in, SPECDEC__WIRE_HEAD);
    flight->slowest_seconds = longest > flight->slowest_seconds ? longest : flight->slowest_seconds;
    flight->back = 1;
    flight->result = rows ? SPECDEC_OK : SPECDEC_ERROR_CANCELLED;
    if (!flight->rows)
        specdec__link_land(link);
    specdec__link_sweep(link);
    return 1;
}

/* Computes the logits of the oldest run's rows, which have returned. This takes no longer than the output of a step on
   one machine, and is not cancelled. */
static void specdec__link_output(specdec__link *link)
{
    specdec__context *c = link->context;
    const int count = link->flights[0].rows, width = c->model->embedding;
    const unsigned char *from = link->in + 4 * (SPECDEC__WIRE_HEAD + 1);
    int *cancel = c->pool->cancel, never = 0, i;

    for (i = 0; i < count; i++, from += 4 * (size_t)width) {
        specdec__wire_unpack(c->x + (size_t)i * (size_t)c->e, from, width);
        c->rows[i] = i;
    }
    c->row_count = count;
    c->pool->cancel = &never;
    specdec__pool_run(c->pool, c->threads, specdec__forward_compute_logits, c);
    c->pool->cancel = cancel;
}

/* Takes the oldest run, which has returned: its rows become logits. */
static specdec_result specdec__link_take_in(specdec__link *link, specdec_error *error)
{
    const specdec__wire_flight flight = link->flights[0];
    specdec_result result = flight.cancelled ? SPECDEC_ERROR_CANCELLED : flight.result;

    if (!result) {
        specdec__link_output(link);
        result = specdec__forward_check_step(link->context, 0, flight.rows, error);
    } else {
        specdec__fail(error, result, "cancelled");
    }
    specdec__link_land(link);
    return result;
}

/* Whether a sequence was cancelled that is in the context's batch, or waits for it. */
static int specdec__link_cancelled(const specdec__link *link)
{
    const specdec__batch *batch = link->context->batch;
    int i;

    if (SPECDEC__LOAD(link->context->pool->cancel) || (link->caller && SPECDEC__LOAD(link->caller)))
        return 1;
    for (i = batch->done_count; i < batch->n; i++)
        if ((i == batch->done_count || batch->views[i] != batch->views[i - 1]) &&
            SPECDEC__LOAD(link->cancels[specdec__link_view(link, batch->views[i])]))
            return 1;
    return 0;
}

/* Whether any sequence was cancelled. */
static int specdec__link_any_cancelled(const specdec__link *link)
{
    int i, any = SPECDEC__LOAD(link->context->pool->cancel);

    for (i = 0; i < link->view_count; i++)
        any |= SPECDEC__LOAD(link->cancels[i]);
    return any;
}

/* Waits until a run with rows has returned, failed, or was cancelled; a cancelled run is not awaited further. Earlier
   runs, which are not awaited, are removed. */
static specdec_result specdec__link_await(specdec__link *link, uint32_t run, specdec_error *error)
{
    specdec__wire_flight *last;

    for (;;) {
        while (link->flight_count && !link->flights[0].back && specdec__link_answer(link))
            continue;
        specdec__link_poll(link);
        if (link->failed.code)
            return specdec__fail(error, link->failed.code, "%s", link->failed.text);
        if (!link->flight_count || link->flights[0].run > run)
            return SPECDEC_OK;
        last = &link->flights[link->flight_count - 1];
        if (link->flights[0].run == run && link->flights[0].back)
            break;
        if (specdec__link_cancelled(link)) {
            if (last->run == run && last->rows)
                specdec__link_leave(link, last);
            return specdec__fail(error, SPECDEC_ERROR_CANCELLED, "cancelled");
        }
        specdec__link_wait(link, SPECDEC__WIRE_PAUSE);
    }
    return specdec__link_take_in(link, error);
}

/* Stores the order to run the context's batch. */
static void specdec__link_play(specdec__link *link, int cancelled)
{
    const specdec__context *c = link->context;
    const specdec__batch *batch = c->batch;
    unsigned char *to = specdec__link_order(link, SPECDEC__WIRE_PLAY, 5 + 3 * c->n);
    int i;

    specdec__wire_put(to, 0, ++link->run);
    specdec__wire_put(to, 1, (uint32_t)cancelled);
    specdec__wire_put(to, 2, 0);
    specdec__wire_put(to, 3, (uint32_t)batch->done_count);
    specdec__wire_put(to, 4, (uint32_t)c->n);
    for (i = batch->done_count, to += 20; i < batch->n; i++, to += 12) {
        const int wanted = !batch->wants_logits || batch->wants_logits[i];
        const int certain = batch->certain && batch->certain[i];

        specdec__wire_put(to, 0, (uint32_t)batch->tokens[i]);
        specdec__wire_put(to, 1, (uint32_t)batch->parents[i]);
        specdec__wire_put(to, 2, (uint32_t)(specdec__link_view(link, batch->views[i]) * 4 + certain * 2 + wanted));
    }
}

/* Waits until the batch of the context may be sent: until at most `ranks + 1` runs, cancelled ones included, are on
   their way. Errors: CANCELLED, or the error by which the cluster has ended. */
static specdec_result specdec__link_begin(specdec__context *c, specdec_error *error)
{
    specdec__link *link = (specdec__link *)c->hooks_argument;
    const int most = specdec__min_int(link->cluster.ranks + 1, SPECDEC__WIRE_FLIGHTS / 2 - 2);

    while (!link->failed.code && !link->flying && link->flight_count > most && !specdec__link_cancelled(link))
        specdec__link_await(link, link->flights[0].run, NULL);
    if (link->failed.code)
        return specdec__fail(error, link->failed.code, "%s", link->failed.text);
    return !link->flying && specdec__link_cancelled(link) ? specdec__fail(error, SPECDEC_ERROR_CANCELLED, "cancelled")
                                                          : SPECDEC_OK;
}

/* The hook behind rank 0's last layer: sends a batch to the next rank. Its rows are awaited and become logits, unless
   several runs are on their way, or it has no wanted rows. A batch that ended early is sent as a cancelled one. */
static specdec_result specdec__link_run(specdec__context *c, specdec_result result, specdec_error *error)
{
    specdec__link *link = (specdec__link *)c->hooks_argument;
    specdec__wire_flight *flight = &link->flights[link->flight_count++];
    const double now = specdec__os_seconds();

    if (!result && !link->flying && specdec__link_cancelled(link))
        result = specdec__fail(error, SPECDEC_ERROR_CANCELLED, "cancelled");
    specdec__link_play(link, result != SPECDEC_OK);
    specdec__link_flush(link, c->model->layers && !result ? c->n : 0);
    if (!result && link->failed.code)
        result = specdec__fail(error, link->failed.code, "%s", link->failed.text);
    memset(flight, 0, sizeof *flight);
    flight->run = link->run;
    flight->rows = c->row_count;
    flight->cancelled = result != SPECDEC_OK;
    flight->left = result && !link->flying;
    link->free_at = (now > link->free_at ? now : link->free_at) + (result ? 0 : link->stage);
    return result || link->flying || !c->row_count ? result : specdec__link_await(link, link->run, error);
}

/* Hooks of the last rank, and of rank 0. */
static const specdec__forward_hooks specdec__link_hooks[] = {
    {specdec__link_between, NULL, NULL}, {specdec__link_between, specdec__link_begin, specdec__link_run}};

SPECDEC__FOR_SPEED
