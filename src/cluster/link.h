/* =====================================================================================================================
 * >>cluster/link: messages sent and received, and a rank that fails.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "../forward/context.h"
#include "wire.h"

SPECDEC__FOR_SIZE

static int specdec__link_rank(const specdec__link *link) { return link->cluster.rank; }

/* The next (step 1) or previous (step -1) rank with layers, from a rank. */
static int specdec__link_stage_at(const specdec__link *link, int rank, int step)
{
    return rank + step + (link->drafter && rank + step == link->drafter ? step : 0);
}

/* The last rank with layers. */
static int specdec__link_last(const specdec__link *link)
{
    return specdec__link_stage_at(link, link->cluster.ranks, -1);
}

static void specdec__link_urgent_all(specdec__link *link, int kind, uint32_t run, const char *text);

/* Ends the cluster with the error link->failed, and sends it to all ranks. */
static void specdec__link_give_up(specdec__link *link)
{
    SPECDEC__STORE(&link->stop, 1);
    specdec__link_urgent_all(link, SPECDEC__WIRE_FAILED, 0, link->failed.text);
}

static void specdec__link_urgent(specdec__link *link, int to, int kind, uint32_t run, uint64_t words, const char *text);

/* If `rank` is the draft rank, and the cluster has begun, continues without it, and tells it so. Returns whether it
   does. */
static int specdec__link_lose_rank(specdec__link *link, int rank, const char *why)
{
    const int own = specdec__link_rank(link);

    if (!rank || rank != link->drafter || own == rank || (!own && !link->met))
        return 0;
    if (link->lost)
        return 1;
    link->lost = 1;
    if (!own) {
        specdec__tell(link->hooks, "rank %d drafts no more: %s", rank, why);
        specdec__link_urgent(link, rank, SPECDEC__WIRE_FAILED, 0, 0, why);
    }
    link->lost = 2;
    return 1;
}

/* Sends a message; fills in its header. */
static void specdec__link_send(specdec__link *link, int to, int kind, unsigned char *message, int words, int rows,
                               int floats)
{
    const size_t count = SPECDEC__WIRE_HEAD + (size_t)words + (size_t)rows * (size_t)floats;
    const int urgent = kind >= SPECDEC__WIRE_READY;

    specdec__wire_put(message, SPECDEC__WIRE_SIGN, SPECDEC__WIRE_MAGIC);
    specdec__wire_put(message, SPECDEC__WIRE_KIND,
                      SPECDEC__WIRE_VERSION | (uint32_t)kind << 8 | (uint32_t)specdec__link_rank(link) << 16);
    specdec__wire_put(message, SPECDEC__WIRE_NUMBER, urgent ? 0 : link->sent[to]++);
    specdec__wire_put(message, SPECDEC__WIRE_WORDS, (uint32_t)words);
    specdec__wire_put(message, SPECDEC__WIRE_ROWS, (uint32_t)rows);
    specdec__wire_put(message, SPECDEC__WIRE_FLOATS, (uint32_t)floats);
    specdec__wire_put(message, SPECDEC__WIRE_SUM, specdec__wire_sum(message, count));
    if ((link->lost == 2 && to == link->drafter) ||
        link->cluster.send(link->cluster.user_data, to, urgent, message, 4 * count) || link->failed.code ||
        specdec__link_lose_rank(link, to, "it cannot be reached"))
        return;
    specdec__fail(&link->failed, SPECDEC_ERROR_PEER, "rank %d cannot be reached from rank %d", to,
                  specdec__link_rank(link));
    specdec__link_give_up(link);
}

/* Sends an urgent message to a rank, with up to two words or a string. */
static void specdec__link_urgent(specdec__link *link, int to, int kind, uint32_t run, uint64_t words, const char *text)
{
    unsigned char message[4 * SPECDEC__WIRE_URGENT];
    const size_t length = text ? strlen(text) : 0;

    memset(message, 0, sizeof message);
    specdec__wire_put(message, SPECDEC__WIRE_RUN, run);
    specdec__store_u64(message + 4 * SPECDEC__WIRE_HEAD, text ? length : words);
    if (text)
        memcpy(message + 4 * (SPECDEC__WIRE_HEAD + 2), text, length);
    specdec__link_send(link, to, kind, message, 2 + (int)(length + 3) / 4, 0, 0);
}

/* Sends ALIVE to a rank: the progress of this rank. To rank 0 READY instead, until rank 0 has answered. */
static void specdec__link_alive(specdec__link *link, int to)
{
    const uint32_t loading = link->loaded ? 0 : SPECDEC__WIRE_LOADING;

    if (!to && link->loaded && !link->progress[0].started)
        specdec__link_urgent(link, 0, SPECDEC__WIRE_READY, 0, link->fingerprint, NULL);
    else
        specdec__link_urgent(link, to, SPECDEC__WIRE_ALIVE, link->run,
                             loading | link->layer | (uint64_t)link->sent[to] << 32, NULL);
}

/* Sends ALIVE to all other ranks. */
static void specdec__link_alive_all(specdec__link *link)
{
    int i;

    for (i = 0; i < link->cluster.ranks; i++)
        if (i != specdec__link_rank(link))
            specdec__link_alive(link, i);
}

/* Sends an urgent message to all other ranks that need it. */
static void specdec__link_urgent_all(specdec__link *link, int kind, uint32_t run, const char *text)
{
    int i;

    for (i = 0; i < link->cluster.ranks; i++)
        if (i != specdec__link_rank(link) && (kind != SPECDEC__WIRE_DOOM || i != link->drafter))
            specdec__link_urgent(link, i, kind, run, 0, text);
}

/* Ends the cluster with an error: a rank has sent a message that is not valid. */
static void specdec__link_nonsense(specdec__link *link, int rank, const char *what)
{
    if (link->failed.code || specdec__link_lose_rank(link, rank, what))
        return;
    specdec__fail(&link->failed, SPECDEC_ERROR_PEER, "rank %d has sent %s to rank %d", rank, what,
                  specdec__link_rank(link));
    specdec__link_give_up(link);
}

/* Marks a run as cancelled; if this rank computes it, it ends between two layers. */
static void specdec__link_hear_doom(specdec__link *link, uint32_t run)
{
    link->cancelled[run % SPECDEC__WIRE_FLIGHTS] = run;
    if (run == link->run)
        SPECDEC__STORE(&link->stop, 1);
}

/* Handles FAILED: another rank has ended with an error. */
static void specdec__link_hear_failed(specdec__link *link, int rank, const unsigned char *words, int count)
{
    const uint32_t length = specdec__wire_get(words, 0);

    if (link->failed.code || specdec__link_lose_rank(link, rank, "it has given up"))
        return;
    specdec__fail(&link->failed, SPECDEC_ERROR_PEER, "rank %d: %.*s", rank,
                  length <= 4 * (uint32_t)count - 8 ? (int)length : 0, (const char *)words + 8);
    SPECDEC__STORE(&link->stop, 1);
}

/* Marks a sequence as having no valid draft tokens: the draft rank begins again behind the next tokens it is sent. */
static void specdec__remote_draft_forget(specdec__remote_sequence *known)
{
    known->epoch++;
    known->news = 1;
}

/* The draft token with a number; NULL: it is not stored, or was overwritten. */
static specdec__remote_draft *specdec__remote_draft_at(const specdec__link *link, uint32_t number)
{
    specdec__remote_draft *guess = &link->guesses[number % (uint32_t)link->guess_count];

    return number && guess->number == number ? guess : NULL;
}

/* Stores a draft token in its place in the ring, over an old one. */
static void specdec__remote_draft_put(specdec__link *link, uint32_t number, uint32_t word)
{
    specdec__remote_draft *guess = &link->guesses[number % (uint32_t)link->guess_count];

    memset(guess, 0, sizeof *guess);
    guess->number = number;
    guess->token = (int32_t)(word & 0xffffff);
    guess->share = (unsigned char)(word >> 24);
}

/* Adds a measured time to a mean; outliers count little. */
static void specdec__remote_draft_see(double *mean, double seconds)
{
    seconds = *mean > 0 && seconds > 4 * *mean ? 4 * *mean : seconds;
    *mean += (seconds - *mean) * (*mean > 0 ? 0.25 : 1);
}

/* Measures how long draft tokens that have just arrived took; begun: the sequence's count if they are the first behind
   it, else 0. */
static void specdec__remote_draft_time(specdec__link *link, const specdec__remote_sequence *text, int begun)
{
    const double now = specdec__os_seconds();

    if (begun && begun == text->told)
        specdec__remote_draft_see(&link->late, now - text->told_at);
    if (!begun)
        specdec__remote_draft_see(&link->pace, now - link->guessed_at);
    link->guessed_at = now;
}

/* Stores draft tokens that have arrived. Those behind tokens that were dropped since, repeated ones and late ones are
   ignored. If some were lost, the draft rank is asked to begin again. Returns 0 if the message is not valid. */
static int specdec__remote_draft_hear(specdec__link *link, const unsigned char *words, int count)
{
    specdec__wire_reader in = {words, count, 0};
    const int view = specdec__wire_int(&in, 0, link->view_count - 1);
    const uint32_t epoch = specdec__wire_word(&in);
    const int begun = specdec__wire_int(&in, 0, 1 << 30);
    uint32_t number = specdec__wire_word(&in);
    specdec__remote_sequence *text = &link->guessed[view];
    const int late = (int32_t)(number - link->guess_next) < 0;
    const int counts = !in.bad && !late && epoch == text->epoch && begun <= text->told;
    int lost = 0;

    if (counts)
        specdec__remote_draft_time(link, text, begun);
    if (counts && begun) {
        text->root = number - 1;
        text->count = begun;
        specdec__remote_draft_put(link, text->root, 0);
    }
    while (!in.bad && in.left) {
        const uint32_t head = specdec__wire_word(&in), first = number;
        int children = (int)(head & 15);
        specdec__remote_draft *parent = specdec__remote_draft_at(link, number - (head >> 4));

        in.bad |= !children || children > in.left || !(head >> 4);
        for (; !in.bad && children; children--, number++) {
            const uint32_t word = specdec__wire_word(&in);

            if (counts && parent)
                specdec__remote_draft_put(link, number, word);
        }
        if (counts && parent && parent->number == first - (head >> 4)) {
            parent->first = first;
            parent->count = (unsigned char)(number - first);
        }
        lost |= !parent;
    }
    link->guess_next = late ? link->guess_next : number;
    if (counts && lost)
        specdec__remote_draft_forget(text);
    link->fresh |= counts;
    return !in.bad;
}

/* Handles ALIVE: stores a rank's progress. Progress beyond the runs that rank 0 has sent is ignored, so that a faulty
   rank cannot make rank 0 wait for ever. */
static void specdec__link_hear_alive(specdec__link *link, int rank, uint32_t run, const unsigned char *words)
{
    specdec__wire_progress *p = &link->progress[rank];
    const uint32_t first = specdec__wire_get(words, 0), layer = first & ~SPECDEC__WIRE_LOADING;
    const uint32_t sent = specdec__wire_get(words, 1);
    const uint32_t most = first & SPECDEC__WIRE_LOADING ? 1 << 16 : (uint32_t)link->cluster.layers[rank];
    const int further = run == p->run ? layer > p->layer : (int32_t)(run - p->run) > 0;

    p->started |= !(first & SPECDEC__WIRE_LOADING);
    if ((int32_t)(sent - p->sent) > 0)
        p->sent = sent;
    if (specdec__link_rank(link) || !further || layer > most || (int32_t)(link->run - run) < 0)
        return;
    p->run = run;
    p->layer = layer;
    link->waited = 0;
}

/* Handles an urgent message. */
static void specdec__link_hear(specdec__link *link, const unsigned char *message)
{
    const uint32_t kind = specdec__wire_get(message, SPECDEC__WIRE_KIND);
    const uint32_t run = specdec__wire_get(message, SPECDEC__WIRE_RUN);
    const int rank = (int)(kind >> 16), words = (int)specdec__wire_get(message, SPECDEC__WIRE_WORDS);
    const unsigned char *first = message + 4 * SPECDEC__WIRE_HEAD;

    link->heard[rank] = specdec__os_seconds();
    if (words < 2) {
        specdec__link_nonsense(link, rank, "an urgent message of no words");
        return;
    }
    link->progress[rank].started |= (kind >> 8 & 255) != SPECDEC__WIRE_ALIVE;
    switch (kind >> 8 & 255) {
    case SPECDEC__WIRE_ALIVE: specdec__link_hear_alive(link, rank, run, first); break;
    case SPECDEC__WIRE_READY:
        link->waited = link->is_ready[rank] ? link->waited : 0;
        link->ready += !link->is_ready[rank];
        link->is_ready[rank] = 1;
        if (specdec__load_u64(first) != (rank && rank == link->drafter ? link->draft_fingerprint : link->fingerprint) &&
            !link->failed.code) {
            specdec__fail(&link->failed, SPECDEC_ERROR_MISMATCH, "rank %d has another model or configuration than rank "
                          "%d", rank, specdec__link_rank(link));
            specdec__link_give_up(link);
        }
        break;
    case SPECDEC__WIRE_DOOM: specdec__link_hear_doom(link, run); break;
    case SPECDEC__WIRE_DONE:
        link->done = run;
        link->stage = 1e-6 * specdec__wire_get(first, 0);
        break;
    case SPECDEC__WIRE_FAILED: specdec__link_hear_failed(link, rank, first, words); break;
    case SPECDEC__WIRE_GUESSES:
        if (!link->guesses || rank != link->drafter || !specdec__remote_draft_hear(link, first, words))
            specdec__link_nonsense(link, rank, "guesses that make no sense");
        break;
    default: break;
    }
}

/* Ends the cluster if a rank has been silent for too long. A rank that loads its model, or has sent nothing yet, gets
   more time. */
static void specdec__link_listen(specdec__link *link, int rank, double now)
{
    const double since = link->heard[rank] > 0 ? link->heard[rank] : link->begun;
    const double most = link->cluster.silence * (link->progress[rank].started ? 1 : SPECDEC__WIRE_PATIENCE);

    if (rank == specdec__link_rank(link) || !(now - since > most) ||
        specdec__link_lose_rank(link, rank, "it was not heard of for too long"))
        return;
    specdec__fail(&link->failed, SPECDEC_ERROR_PEER, "rank %d was not heard of for %d ms", rank,
                  (int)(1000 * (now - since)));
    specdec__link_give_up(link);
}

/* Sends ALIVE when it is time, and checks that no rank has been silent for too long. */
static void specdec__link_watch(specdec__link *link)
{
    const double now = specdec__os_seconds(), silence = link->cluster.silence;
    int i;

    if (!(silence > 0) || link->failed.code)
        return;
    link->begun = link->begun > 0 ? link->begun : now;
    if (now - link->beaten > silence / 8) {
        link->beaten = now;
        specdec__link_alive_all(link);
    }
    for (i = 0; i < link->cluster.ranks && !link->failed.code; i++)
        specdec__link_listen(link, i, now);
}

/* Ends a rank that serves, once specdec_cancel was called on it. */
static void specdec__link_heed(specdec__link *link)
{
    if (!link->cancel || !SPECDEC__LOAD(link->cancel) || link->failed.code)
        return;
    specdec__fail(&link->failed, SPECDEC_ERROR_CANCELLED, "cancelled");
    specdec__link_give_up(link);
}

/* Receives and handles all urgent messages. */
static void specdec__link_poll(specdec__link *link)
{
    unsigned char message[4 * SPECDEC__WIRE_URGENT];
    size_t size;

    while ((size = link->cluster.receive(link->cluster.user_data, -1, message, sizeof message)) != 0) {
        if (link->failed.code)
            return;
        if (specdec__wire_check(message, size, sizeof message, link->cluster.ranks)) {
            specdec__link_hear(link, message);
        } else if (!specdec__link_lose_rank(link, specdec__wire_sender(message, size),
                                            "an urgent message that is none")) {
            specdec__fail(&link->failed, SPECDEC_ERROR_PEER, "rank %d was sent an urgent message that is none",
                          specdec__link_rank(link));
            specdec__link_give_up(link);
        }
    }
    specdec__link_heed(link);
    specdec__link_watch(link);
}

/* The rank from which this one receives messages that are not urgent. */
static int specdec__link_before(const specdec__link *link)
{
    const int own = specdec__link_rank(link);

    if (!own)
        return specdec__link_last(link);
    return own == link->drafter ? 0 : specdec__link_stage_at(link, own, -1);
}

/* Whether a message is due: on rank 0 READY of other ranks, or the answer to a run; on others a message that ALIVE says
   was sent. */
static int specdec__link_awaits(const specdec__link *link)
{
    if (specdec__link_rank(link))
        return (int32_t)(link->progress[specdec__link_before(link)].sent - link->received) > 0;
    return link->met ? link->flight_count && !link->flights[0].back : link->ready < link->cluster.ranks - 1;
}

/* The rank for which rank 0 waits, and what it has not done. */
static int specdec__link_culprit(const specdec__link *link, const char **what)
{
    const int last = link->met ? specdec__link_last(link) : link->cluster.ranks - 1;
    int i;

    for (i = 1; i < last; i = link->met ? specdec__link_stage_at(link, i, 1) : i + 1)
        if (link->met ? i != link->drafter && (int32_t)(link->progress[i].run - link->flights[0].run) < 0
                      : !link->is_ready[i])
            break;
    *what = !link->met ? "become ready" : i < last ? "gone on" : "answered";
    return i;
}

/* Ends the cluster with an error: the awaited run has made no progress for too long, although all ranks send
   messages. */
static void specdec__link_stall(specdec__link *link)
{
    const int own = specdec__link_rank(link), ms = (int)(1000 * link->waited);
    const char *what;
    int rank;

    if (own) {
        specdec__fail(&link->failed, SPECDEC_ERROR_PEER, "a message of rank %d to rank %d has not come for %d ms",
                      specdec__link_before(link), own, ms);
    } else {
        rank = specdec__link_culprit(link, &what);
        specdec__fail(&link->failed, SPECDEC_ERROR_PEER, "rank %d has not %s for %d ms, though it is heard", rank, what,
                      ms);
    }
    specdec__link_give_up(link);
}

/* Waits for a message, at most `seconds`. Counts the time without progress of the awaited run; pauses of this rank
   itself count little. */
static void specdec__link_wait(specdec__link *link, double seconds)
{
    const int awaits = specdec__link_awaits(link);
    double now, took;

    link->cluster.wait(link->cluster.user_data, seconds);
    now = specdec__os_seconds();
    took = now - link->waited_at;
    link->waited_at = now;
    link->waited = awaits ? link->waited + (took < 2 * SPECDEC__WIRE_PAUSE ? took : 2 * SPECDEC__WIRE_PAUSE) : 0;
    if (link->cluster.silence > 0 && link->waited > SPECDEC__WIRE_PATIENCE * link->cluster.silence &&
        !link->failed.code)
        specdec__link_stall(link);
}

/* Sends ALIVE while the model loads, after each repacked matrix. */
static void specdec__link_load(specdec__link *link)
{
    link->layer++;
    specdec__link_poll(link);
}

/* The hook between two layers: handles urgent messages, and ends a cancelled run. */
static void specdec__link_between(specdec__context *c)
{
    specdec__link *link = (specdec__link *)c->hooks_argument;

    if (link->cluster.layer)
        link->cluster.layer(link->cluster.user_data, c->n);
    link->layer++;
    specdec__link_poll(link);
}

/* Receives the next message of a rank into link->in. Returns 0 if there is none yet. */
static int specdec__link_receive(specdec__link *link, int rank, int kind)
{
    const size_t size = link->cluster.receive(link->cluster.user_data, rank, link->in, link->room);
    uint32_t is;

    if (!size || link->failed.code)
        return 0;
    is = specdec__wire_check(link->in, size, link->room, link->cluster.ranks)
             ? specdec__wire_get(link->in, SPECDEC__WIRE_KIND)
             : SPECDEC__WIRE_KINDS << 8;
    link->heard[rank] = specdec__os_seconds();
    if ((is >> 8 & 255) == (uint32_t)kind && is >> 16 == (uint32_t)rank &&
        specdec__wire_get(link->in, SPECDEC__WIRE_NUMBER) == link->received++) {
        link->progress[rank].started = 1;
        link->waited = 0;
        return 1;
    }
    specdec__link_nonsense(link, rank, "a message that is none, or not the next one,");
    return 0;
}

SPECDEC__FOR_SPEED
