/* =====================================================================================================================
 * >>cluster/link: messages sent and received, and a rank that fails.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "../forward/context.h"
#include "wire.h"

SPECDEC__FOR_SIZE

/* Returns the number of this rank in the cluster. */
static int specdec__link_rank(const specdec__link *link) { return link->cluster.rank; }

/* Returns the rank with layers of the target that is next to `rank`: behind it (step 1) or before it (step -1). */
static int specdec__link_adjacent_stage(const specdec__link *link, int rank, int step)
{
    return rank + step + (link->drafts.rank && rank + step == link->drafts.rank ? step : 0);
}

/* The rank behind rank 0 that has layers. */
static specdec__link_peer *specdec__link_first_stage_peer(specdec__link *link)
{
    return &link->peers[specdec__link_adjacent_stage(link, 0, 1)];
}

/* Returns the last rank with layers of the target. */
static int specdec__link_last_stage(const specdec__link *link)
{
    return specdec__link_adjacent_stage(link, link->cluster.ranks, -1);
}

static void specdec__link_send_urgent_all(specdec__link *link, int kind, uint32_t run, const char *text);

/* Sends the error link->failed, which ends the cluster, to all ranks, and ends the run under way. */
static void specdec__link_send_failed(specdec__link *link)
{
    SPECDEC__STORE(&link->own.cancel, 1);
    specdec__link_send_urgent_all(link, SPECDEC__WIRE_FAILED, 0, link->failed.text);
}

static void specdec__link_send_urgent(specdec__link *link, int to, int kind, uint32_t run, uint64_t words,
                                      const char *text);

/* If `rank` is the draft rank and the cluster has begun, drops the draft rank instead of ending the cluster: sends it
   FAILED with the reason and logs that. Returns whether it has. */
static int specdec__link_drop_draft_rank(specdec__link *link, int rank, const char *why)
{
    const int own = specdec__link_rank(link);

    if (!rank || rank != link->drafts.rank || own == rank || (!own && !link->connected))
        return 0;
    if (link->drafts.lost)
        return 1;
    link->drafts.lost = 1;
    if (!own) {
        specdec__log_line(link->hooks, "rank %d drafts no more: %s", rank, why);
        specdec__link_send_urgent(link, rank, SPECDEC__WIRE_FAILED, 0, 0, why);
    }
    link->drafts.lost = 2;
    return 1;
}

/* Sends a message of `words` words of orders and `rows` rows of `floats` floats, after filling in its header. If the
   rank cannot be reached, the cluster ends, or continues without its draft rank. */
static void specdec__link_send(specdec__link *link, int to, int kind, unsigned char *message, int words, int rows,
                               int floats)
{
    const size_t count = SPECDEC__WIRE_HEADER_WORDS + (size_t)words + (size_t)rows * (size_t)floats;
    const int urgent = kind >= SPECDEC__WIRE_READY;

    specdec__wire_put_word(message, SPECDEC__WIRE_MAGIC_WORD, SPECDEC__WIRE_MAGIC);
    specdec__wire_put_word(message, SPECDEC__WIRE_KIND,
                           SPECDEC__WIRE_VERSION | (uint32_t)kind << 8 | (uint32_t)specdec__link_rank(link) << 16);
    specdec__wire_put_word(message, SPECDEC__WIRE_SERIAL, urgent ? 0 : link->peers[to].sent_count++);
    specdec__wire_put_word(message, SPECDEC__WIRE_ORDER_WORDS, (uint32_t)words);
    specdec__wire_put_word(message, SPECDEC__WIRE_ROWS, (uint32_t)rows);
    specdec__wire_put_word(message, SPECDEC__WIRE_ROW_FLOATS, (uint32_t)floats);
    specdec__wire_put_word(message, SPECDEC__WIRE_CHECKSUM, specdec__wire_message_checksum(message, count));
    if ((link->drafts.lost == 2 && to == link->drafts.rank) ||
        link->cluster.send(link->cluster.user_data, to, urgent, message, 4 * count) || link->failed.code ||
        specdec__link_drop_draft_rank(link, to, "it cannot be reached"))
        return;
    specdec__fail(&link->failed, SPECDEC_ERROR_PEER, "rank %d cannot be reached from rank %d", to,
                  specdec__link_rank(link));
    specdec__link_send_failed(link);
}

/* Sends an urgent message to a rank, with two words, or with a string and its length. */
static void specdec__link_send_urgent(specdec__link *link, int to, int kind, uint32_t run, uint64_t words,
                                      const char *text)
{
    unsigned char message[4 * SPECDEC__WIRE_URGENT_WORDS];
    const size_t length = text ? strlen(text) : 0;

    memset(message, 0, sizeof message);
    specdec__wire_put_word(message, SPECDEC__WIRE_RUN, run);
    specdec__store_u64(message + 4 * SPECDEC__WIRE_HEADER_WORDS, text ? length : words);
    if (text)
        memcpy(message + 4 * (SPECDEC__WIRE_HEADER_WORDS + 2), text, length);
    specdec__link_send(link, to, kind, message, 2 + (int)(length + 3) / 4, 0, 0);
}

/* Sends this rank's progress (the message ALIVE) to a rank. Until rank 0 has answered, it is sent READY instead. */
static void specdec__link_send_alive(specdec__link *link, int to)
{
    const uint32_t loading = link->model_loaded ? 0 : SPECDEC__WIRE_LOADING_FLAG;

    if (!to && link->model_loaded && !link->peers[0].progress.started)
        specdec__link_send_urgent(link, 0, SPECDEC__WIRE_READY, 0, link->fingerprint, NULL);
    else
        specdec__link_send_urgent(link, to, SPECDEC__WIRE_ALIVE, link->own.run,
                                  loading | link->own.layer | (uint64_t)link->peers[to].sent_count << 32, NULL);
}

/* Sends this rank's progress (the message ALIVE) to all other ranks. */
static void specdec__link_send_alive_all(specdec__link *link)
{
    int i;

    for (i = 0; i < link->cluster.ranks; i++)
        if (i != specdec__link_rank(link))
            specdec__link_send_alive(link, i);
}

/* Sends an urgent message to all other ranks; CANCEL only to ranks with layers. */
static void specdec__link_send_urgent_all(specdec__link *link, int kind, uint32_t run, const char *text)
{
    int i;

    for (i = 0; i < link->cluster.ranks; i++)
        if (i != specdec__link_rank(link) && (kind != SPECDEC__WIRE_CANCEL || i != link->drafts.rank))
            specdec__link_send_urgent(link, i, kind, run, 0, text);
}

/* Ends the cluster with an error: rank `rank` has sent a message that is not valid. what: names the message. */
static void specdec__link_reject_message(specdec__link *link, int rank, const char *what)
{
    if (link->failed.code || specdec__link_drop_draft_rank(link, rank, what))
        return;
    specdec__fail(&link->failed, SPECDEC_ERROR_PEER, "rank %d has sent %s to rank %d", rank, what,
                  specdec__link_rank(link));
    specdec__link_send_failed(link);
}

/* Handles the message CANCEL: marks a run as cancelled. If this rank computes the run, it ends between two layers. */
static void specdec__link_handle_cancel_message(specdec__link *link, uint32_t run)
{
    link->own.cancelled_runs[run % SPECDEC__WIRE_MAX_RUNS] = run;
    if (run == link->own.run)
        SPECDEC__STORE(&link->own.cancel, 1);
}

/* Handles the message FAILED: another rank has ended with an error. */
static void specdec__link_handle_failed_message(specdec__link *link, int rank, const unsigned char *words, int count)
{
    const uint32_t length = specdec__wire_get_word(words, 0);

    if (link->failed.code || specdec__link_drop_draft_rank(link, rank, "it has given up"))
        return;
    specdec__fail(&link->failed, SPECDEC_ERROR_PEER, "rank %d: %.*s", rank,
                  length <= 4 * (uint32_t)count - 8 ? (int)length : 0, (const char *)words + 8);
    SPECDEC__STORE(&link->own.cancel, 1);
}

/* Marks a sequence as having no valid draft tokens: the draft rank begins again behind the next tokens it is sent. */
static void specdec__remote_draft_invalidate_sequence(specdec__remote_sequence *sequence)
{
    sequence->epoch++;
    sequence->epoch_unsent = 1;
}

/* Returns the draft token with a number; NULL: it is not stored, or was overwritten. */
static specdec__remote_draft *specdec__remote_draft_find_by_number(const specdec__link *link, uint32_t number)
{
    specdec__remote_draft *draft = &link->drafts.tokens[number % (uint32_t)link->drafts.token_count];

    return number && draft->number == number ? draft : NULL;
}

/* Stores a draft token of the draft rank in the ring, over an old one. word: token | share << 24. */
static void specdec__remote_draft_store(specdec__link *link, uint32_t number, uint32_t word)
{
    specdec__remote_draft *draft = &link->drafts.tokens[number % (uint32_t)link->drafts.token_count];

    memset(draft, 0, sizeof *draft);
    draft->number = number;
    draft->token = (int32_t)(word & 0xffffff);
    draft->share = (unsigned char)(word >> 24);
}

/* Adds a measured time to an exponential mean, in seconds. A time above four times the mean counts as four times the
   mean. */
static void specdec__remote_draft_add_arrival_time(double *mean, double seconds)
{
    seconds = *mean > 0 && seconds > 4 * *mean ? 4 * *mean : seconds;
    *mean += (seconds - *mean) * (*mean > 0 ? 0.25 : 1);
}

/* Measures the time until draft tokens arrive: from the sequence's last sent token (first_count: the number of tokens
   before these draft tokens, the first behind it), or, first_count 0, from the last message of draft tokens. */
static void specdec__remote_draft_measure_arrival(specdec__link *link, const specdec__remote_sequence *sequence,
                                                  int first_count)
{
    const double now = specdec__os_monotonic_seconds();

    if (first_count && first_count == sequence->sent_count)
        specdec__remote_draft_add_arrival_time(&link->drafts.latency, now - sequence->sent_at);
    if (!first_count)
        specdec__remote_draft_add_arrival_time(&link->drafts.interval, now - link->drafts.arrived_at);
    link->drafts.arrived_at = now;
}

/* Stores the draft tokens of a message from the draft rank. Draft tokens of an earlier epoch, repeated ones and late
   ones are ignored. If a parent is missing, the draft rank is asked to begin a new tree. Returns 0 if the message is
   not valid. */
static int specdec__remote_draft_receive_message(specdec__link *link, const unsigned char *words, int count)
{
    specdec__wire_reader in = {words, count, 0};
    const int view = specdec__wire_read_int(&in, 0, link->views.count - 1);
    const uint32_t epoch = specdec__wire_read_word(&in);
    const int first_count = specdec__wire_read_int(&in, 0, 1 << 30);
    uint32_t number = specdec__wire_read_word(&in);
    specdec__remote_sequence *sequence = &link->drafts.sequences[view];
    const int late = (int32_t)(number - link->drafts.next_number) < 0;
    const int valid = !in.bad && !late && epoch == sequence->epoch && first_count <= sequence->sent_count;
    int lost = 0;

    if (valid)
        specdec__remote_draft_measure_arrival(link, sequence, first_count);
    if (valid && first_count) {
        sequence->root = number - 1;
        sequence->count = first_count;
        specdec__remote_draft_store(link, sequence->root, 0);
    }
    while (!in.bad && in.left) {
        const uint32_t head = specdec__wire_read_word(&in), first = number;
        int children = (int)(head & 15);
        specdec__remote_draft *parent = specdec__remote_draft_find_by_number(link, number - (head >> 4));

        in.bad |= !children || children > in.left || !(head >> 4);
        for (; !in.bad && children; children--, number++) {
            const uint32_t word = specdec__wire_read_word(&in);

            if (valid && parent)
                specdec__remote_draft_store(link, number, word);
        }
        if (valid && parent && parent->number == first - (head >> 4)) {
            parent->first = first;
            parent->count = (unsigned char)(number - first);
        }
        lost |= !parent;
    }
    link->drafts.next_number = late ? link->drafts.next_number : number;
    if (valid && lost)
        specdec__remote_draft_invalidate_sequence(sequence);
    link->drafts.arrived |= valid;
    return !in.bad;
}

/* Handles the message ALIVE: stores a rank's progress. Progress beyond the runs that rank 0 has sent is ignored, so
   that a faulty rank cannot make rank 0 wait for ever. */
static void specdec__link_handle_alive_message(specdec__link *link, int rank, uint32_t run, const unsigned char *words)
{
    specdec__wire_progress *p = &link->peers[rank].progress;
    const uint32_t first = specdec__wire_get_word(words, 0), layer = first & ~SPECDEC__WIRE_LOADING_FLAG;
    const uint32_t sent = specdec__wire_get_word(words, 1);
    const uint32_t most = first & SPECDEC__WIRE_LOADING_FLAG ? 1 << 16 : (uint32_t)link->cluster.layers[rank];
    const int further = run == p->run ? layer > p->layer : (int32_t)(run - p->run) > 0;

    p->started |= !(first & SPECDEC__WIRE_LOADING_FLAG);
    if ((int32_t)(sent - p->sent) > 0)
        p->sent = sent;
    if (specdec__link_rank(link) || !further || layer > most || (int32_t)(link->own.run - run) < 0)
        return;
    p->run = run;
    p->layer = layer;
    link->waits.stalled_seconds = 0;
}

/* Handles an urgent message of any kind. */
static void specdec__link_handle_urgent_message(specdec__link *link, const unsigned char *message)
{
    const uint32_t kind = specdec__wire_get_word(message, SPECDEC__WIRE_KIND);
    const uint32_t run = specdec__wire_get_word(message, SPECDEC__WIRE_RUN);
    const int rank = (int)(kind >> 16), words = (int)specdec__wire_get_word(message, SPECDEC__WIRE_ORDER_WORDS);
    const unsigned char *first = message + 4 * SPECDEC__WIRE_HEADER_WORDS;
    const int is_draft_rank = rank && rank == link->drafts.rank;
    const uint64_t fingerprint = is_draft_rank ? link->drafts.fingerprint : link->fingerprint;

    link->peers[rank].heard_at = specdec__os_monotonic_seconds();
    if (words < 2) {
        specdec__link_reject_message(link, rank, "an urgent message without words");
        return;
    }
    link->peers[rank].progress.started |= (kind >> 8 & 255) != SPECDEC__WIRE_ALIVE;
    switch (kind >> 8 & 255) {
    case SPECDEC__WIRE_ALIVE: specdec__link_handle_alive_message(link, rank, run, first); break;
    case SPECDEC__WIRE_READY:
        link->waits.stalled_seconds = link->peers[rank].ready ? link->waits.stalled_seconds : 0;
        link->ready_count += !link->peers[rank].ready;
        link->peers[rank].ready = 1;
        if (specdec__load_u64(first) != fingerprint && !link->failed.code) {
            specdec__fail(&link->failed, SPECDEC_ERROR_MISMATCH, "rank %d has another model or configuration than rank "
                          "%d", rank, specdec__link_rank(link));
            specdec__link_send_failed(link);
        }
        break;
    case SPECDEC__WIRE_CANCEL: specdec__link_handle_cancel_message(link, run); break;
    case SPECDEC__WIRE_DONE:
        link->peers[rank].done_run = run;
        link->peers[rank].done_seconds = 1e-6 * specdec__wire_get_word(first, 0);
        break;
    case SPECDEC__WIRE_FAILED: specdec__link_handle_failed_message(link, rank, first, words); break;
    case SPECDEC__WIRE_DRAFT_TOKENS:
        if (!link->drafts.tokens || !is_draft_rank || !specdec__remote_draft_receive_message(link, first, words))
            specdec__link_reject_message(link, rank, "draft tokens that make no sense");
        break;
    default: break;
    }
}

/* Ends the cluster if nothing has arrived from a rank for too long. A rank that loads its model, or has sent nothing
   yet, gets SPECDEC__WIRE_LOAD_SILENCES times as long. */
static void specdec__link_fail_if_rank_is_silent(specdec__link *link, int rank, double now)
{
    const double since = link->peers[rank].heard_at > 0 ? link->peers[rank].heard_at : link->waits.listening_since;
    const double most = link->cluster.silence * (link->peers[rank].progress.started ? 1 : SPECDEC__WIRE_LOAD_SILENCES);

    if (rank == specdec__link_rank(link) || !(now - since > most) ||
        specdec__link_drop_draft_rank(link, rank, "it was not heard of for too long"))
        return;
    specdec__fail(&link->failed, SPECDEC_ERROR_PEER, "rank %d was not heard of for %d ms", rank,
                  (int)(1000 * (now - since)));
    specdec__link_send_failed(link);
}

/* Sends ALIVE eight times per specdec_cluster.silence, and checks that no rank has been silent for longer than that. */
static void specdec__link_keep_alive(specdec__link *link)
{
    const double now = specdec__os_monotonic_seconds(), silence = link->cluster.silence;
    int i;

    if (!(silence > 0) || link->failed.code)
        return;
    link->waits.listening_since = link->waits.listening_since > 0 ? link->waits.listening_since : now;
    if (now - link->waits.alive_sent_at > silence / 8) {
        link->waits.alive_sent_at = now;
        specdec__link_send_alive_all(link);
    }
    for (i = 0; i < link->cluster.ranks && !link->failed.code; i++)
        specdec__link_fail_if_rank_is_silent(link, i, now);
}

/* Ends a rank that serves with an error once specdec_cancel was called on its sequence. */
static void specdec__link_fail_if_cancelled(specdec__link *link)
{
    if (!link->serving_cancel || !SPECDEC__LOAD(link->serving_cancel) || link->failed.code)
        return;
    specdec__fail(&link->failed, SPECDEC_ERROR_CANCELLED, "cancelled");
    specdec__link_send_failed(link);
}

/* Receives and handles all urgent messages that have arrived, then does the periodic checks. */
static void specdec__link_handle_urgent_messages(specdec__link *link)
{
    unsigned char message[4 * SPECDEC__WIRE_URGENT_WORDS];
    size_t size;

    while ((size = link->cluster.receive(link->cluster.user_data, -1, message, sizeof message)) != 0) {
        if (link->failed.code)
            return;
        if (specdec__wire_check_message(message, size, sizeof message, link->cluster.ranks)) {
            specdec__link_handle_urgent_message(link, message);
        } else if (!specdec__link_drop_draft_rank(link, specdec__wire_message_sender(message, size),
                                                  "an urgent message that is none")) {
            specdec__fail(&link->failed, SPECDEC_ERROR_PEER, "rank %d was sent an urgent message that is none",
                          specdec__link_rank(link));
            specdec__link_send_failed(link);
        }
    }
    specdec__link_fail_if_cancelled(link);
    specdec__link_keep_alive(link);
}

/* Returns the rank from which this rank receives messages that are not urgent. */
static int specdec__link_previous_rank(const specdec__link *link)
{
    const int own = specdec__link_rank(link);

    if (!own)
        return specdec__link_last_stage(link);
    return own == link->drafts.rank ? 0 : specdec__link_adjacent_stage(link, own, -1);
}

/* Returns whether this rank waits for a message: rank 0 for READY of other ranks or the answer to a run, another rank
   for a message that ALIVE says was sent. */
static int specdec__link_expects_message(const specdec__link *link)
{
    if (specdec__link_rank(link))
        return (int32_t)(link->peers[specdec__link_previous_rank(link)].progress.sent -
                         link->messages.received_count) > 0;
    return link->connected ? link->sent.count && !link->sent.runs[0].returned
                           : link->ready_count < link->cluster.ranks - 1;
}

/* Returns the rank for which rank 0 waits. *what: set to a verb, the step that this rank has not made. */
static int specdec__link_find_stalled_rank(const specdec__link *link, const char **what)
{
    const int last = link->connected ? specdec__link_last_stage(link) : link->cluster.ranks - 1;
    int i;

    for (i = 1; i < last; i = link->connected ? specdec__link_adjacent_stage(link, i, 1) : i + 1)
        if (link->connected ? i != link->drafts.rank &&
            (int32_t)(link->peers[i].progress.run - link->sent.runs[0].number) < 0
                            : !link->peers[i].ready)
            break;
    *what = !link->connected ? "become ready" : i < last ? "gone on" : "answered";
    return i;
}

/* Ends the cluster with an error: the awaited run has made no progress for too long, although all ranks send
   messages. */
static void specdec__link_fail_stalled(specdec__link *link)
{
    const int own = specdec__link_rank(link), ms = (int)(1000 * link->waits.stalled_seconds);
    const char *what;
    int rank;

    if (own) {
        specdec__fail(&link->failed, SPECDEC_ERROR_PEER, "a message of rank %d to rank %d has not come for %d ms",
                      specdec__link_previous_rank(link), own, ms);
    } else {
        rank = specdec__link_find_stalled_rank(link, &what);
        specdec__fail(&link->failed, SPECDEC_ERROR_PEER, "rank %d has not %s for %d ms, though it is heard", rank, what,
                      ms);
    }
    specdec__link_send_failed(link);
}

/* Waits for a message of any rank, at most `seconds`, and adds the time to link->waits.stalled_seconds if a message is
   expected. A wait counts at most two SPECDEC__WIRE_WAIT_SECONDS, so that a machine that was suspended does not end the
   cluster. */
static void specdec__link_wait_for_message(specdec__link *link, double seconds)
{
    specdec__link_waits *waits = &link->waits;
    const int awaits = specdec__link_expects_message(link);
    const double most = SPECDEC__WIRE_LOAD_SILENCES * link->cluster.silence;
    double now, took;

    link->cluster.wait(link->cluster.user_data, seconds);
    now = specdec__os_monotonic_seconds();
    took = now - waits->ended_at;
    waits->ended_at = now;
    took = took < 2 * SPECDEC__WIRE_WAIT_SECONDS ? took : 2 * SPECDEC__WIRE_WAIT_SECONDS;
    waits->stalled_seconds = awaits ? waits->stalled_seconds + took : 0;
    if (most > 0 && waits->stalled_seconds > most && !link->failed.code)
        specdec__link_fail_stalled(link);
}

/* Counts a matrix that was repacked while the model loads, and sends ALIVE when it is due. */
static void specdec__link_report_loading(specdec__link *link)
{
    link->own.layer++;
    specdec__link_handle_urgent_messages(link);
}

/* The hook of a forward pass between two layers: handles urgent messages, among them the one that cancels the run. */
static void specdec__link_handle_messages_between_layers(specdec__context *c)
{
    specdec__link *link = (specdec__link *)c->hooks_argument;

    if (link->cluster.layer)
        link->cluster.layer(link->cluster.user_data, c->n);
    link->own.layer++;
    specdec__link_handle_urgent_messages(link);
}

/* Receives the next message of a rank into link->messages.in. Returns 0 if none has arrived. */
static int specdec__link_receive_message(specdec__link *link, int rank, int kind)
{
    const size_t size = link->cluster.receive(link->cluster.user_data, rank, link->messages.in, link->messages.bytes);
    uint32_t is;

    if (!size || link->failed.code)
        return 0;
    is = specdec__wire_check_message(link->messages.in, size, link->messages.bytes, link->cluster.ranks)
             ? specdec__wire_get_word(link->messages.in, SPECDEC__WIRE_KIND)
             : SPECDEC__WIRE_KINDS << 8;
    link->peers[rank].heard_at = specdec__os_monotonic_seconds();
    if ((is >> 8 & 255) == (uint32_t)kind && is >> 16 == (uint32_t)rank &&
        specdec__wire_get_word(link->messages.in, SPECDEC__WIRE_SERIAL) == link->messages.received_count++) {
        link->peers[rank].progress.started = 1;
        link->waits.stalled_seconds = 0;
        return 1;
    }
    specdec__link_reject_message(link, rank, "a message that is none, or not the next one,");
    return 0;
}

SPECDEC__FOR_SPEED
