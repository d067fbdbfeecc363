/* =====================================================================================================================
 * >>cluster/meet: begins and ends a cluster: memory, fingerprints that must be equal, the first and last messages.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../text/vocabulary.h"
#include "../cache/kv.h"
#include "../forward/context.h"
#include "config.h"
#include "wire.h"
#include "link.h"
#include "orders.h"
#include "draft_tokens.h"

SPECDEC__FOR_SIZE

/* Returns a hash of the facts that must be equal on all ranks with layers: the model's properties and some bytes of its
   weights; type and number of keys; distance of checkpoints; the layers of each rank. */
static uint64_t specdec__link_fingerprint(const specdec__context *c, const specdec__kv_demand *room,
                                          const specdec_cluster *cluster)
{
    const specdec__bytes file = c->model->gguf.file;
    const size_t head = c->model->gguf.data_at < file.size ? c->model->gguf.data_at : file.size;
    const size_t step = (file.size - head) / 256 + 1;
    uint64_t hash = specdec__hash(SPECDEC__EMPTY_HASH, file.data, head);
    unsigned char numbers[8 * 4];
    size_t at;
    int i;

    for (at = head; at < file.size; at += step)
        hash = specdec__hash(hash, file.data + at, 1);
    specdec__wire_put_word(numbers, 0, (uint32_t)c->kv.type);
    specdec__wire_put_word(numbers, 1, (uint32_t)room->max_views);
    specdec__wire_put_word(numbers, 2, (uint32_t)room->view_keys);
    specdec__wire_put_word(numbers, 3, (uint32_t)room->all_keys);
    specdec__wire_put_word(numbers, 4, (uint32_t)room->step_nodes);
    specdec__wire_put_word(numbers, 5, (uint32_t)cluster->ranks);
    specdec__wire_put_word(numbers, 6, (uint32_t)room->tree_nodes);
    specdec__wire_put_word(numbers, 7, (uint32_t)room->checkpoint_distance);
    hash = specdec__hash(hash, numbers, sizeof numbers);
    for (i = 0; i < cluster->ranks; i++) {
        specdec__wire_put_word(numbers, 0, (uint32_t)cluster->layers[i]);
        hash = specdec__hash(hash, numbers, 4);
    }
    return hash;
}

/* Returns a hash of the facts that must be equal on rank 0 and the draft rank: number and length of sequences, as
   configured, and the vocabulary's tokens up to the largest power of two (tokens behind that may be padding). */
static uint64_t specdec__link_draft_fingerprint(const specdec__vocab *vocab, int sequences, int length)
{
    unsigned char numbers[2 * 4];
    uint64_t hash;
    uint32_t id, most = 1;

    specdec__wire_put_word(numbers, 0, (uint32_t)sequences);
    specdec__wire_put_word(numbers, 1, (uint32_t)length);
    hash = specdec__hash(SPECDEC__EMPTY_HASH, numbers, sizeof numbers);
    while (most <= vocab->count / 2)
        most *= 2;
    for (id = 0; id < most && id < vocab->count; id++) {
        const specdec__bytes text = specdec__vocab_token_text(vocab, id);

        hash = specdec__hash(hash, text.data, text.size);
    }
    return hash;
}

/* Takes rank 0's memory for draft tokens that the draft rank sends from the arena. */
static void specdec__link_lay_out_draft_tokens(specdec__link *link, const specdec__kv_demand *room,
                                               specdec__arena *arena)
{
    const int count = SPECDEC__REMOTE_DRAFTS_PER_SEQUENCE * specdec__min_int(room->max_views, 8);
    specdec__remote_sequence *sequences = SPECDEC__TAKE(arena, specdec__remote_sequence, room->max_views);
    specdec__remote_draft *drafts = SPECDEC__TAKE(arena, specdec__remote_draft, count);

    if (!link)
        return;
    link->drafts.sequences = sequences;
    link->drafts.tokens = drafts;
    link->drafts.token_count = count;
}

/* Takes a rank's memory, besides its context, from the arena, and connects it with the context. The caller enters views
   and cancel flags later. Returns NULL while the arena counts, or is full. */
static specdec__link *specdec__link_lay_out(const specdec_cluster *cluster, specdec__context *c,
                                            const specdec__kv_demand *room, specdec__arena *arena)
{
    const int most_words = 2 * (8 + 3 * room->step_nodes) + 256;
    const size_t floats = (size_t)room->step_nodes * (size_t)c->model->embedding;
    const size_t bytes = 4 * (SPECDEC__WIRE_HEADER_WORDS + (size_t)most_words + floats);
    specdec__link *link = SPECDEC__TAKE(arena, specdec__link, 1);
    specdec__view **views = SPECDEC__TAKE(arena, specdec__view *, room->max_views);
    int **cancels = SPECDEC__TAKE(arena, int *, room->max_views);
    unsigned char *in = SPECDEC__TAKE(arena, unsigned char, bytes), *out = SPECDEC__TAKE(arena, unsigned char, bytes);
    const int drafter = specdec__cluster_draft_rank_number(cluster);

    if (!cluster->rank && drafter)
        specdec__link_lay_out_draft_tokens(link, room, arena);
    if (!arena->base || arena->used == SIZE_MAX)
        return NULL;
    link->drafts.rank = drafter;
    link->cluster = *cluster;
    link->context = c;
    link->views.view = views;
    link->views.cancel = cancels;
    link->views.count = room->max_views;
    link->views.capacity = room->view_keys;
    link->messages.in = in;
    link->messages.out = out;
    link->messages.bytes = bytes;
    link->messages.order_capacity = most_words;
    link->fingerprint = specdec__link_fingerprint(c, room, cluster);
    c->hooks_argument = link;
    c->hooks = &specdec__link_hooks[!cluster->rank && specdec__link_last_stage(link)];
    if (c->hooks->after_layers) {
        c->kv.notify = specdec__link_store_kv_order;
        c->kv.listener = link;
    }
    return link;
}

/* Connects the ranks: rank 0 waits until all other ranks are ready; these send READY until rank 0 has answered. */
static specdec_result specdec__link_connect_ranks(specdec__link *link, const specdec_hooks *hooks, specdec_error *error)
{
    const int others = link->cluster.ranks - 1;

    link->model_loaded = 1;
    link->own.layer = 0;
    if (specdec__link_rank(link)) {
        specdec__link_send_urgent(link, 0, SPECDEC__WIRE_READY, 0, link->fingerprint, NULL);
    } else {
        while (link->ready_count < others && !link->failed.code) {
            specdec__link_handle_urgent_messages(link);
            specdec__link_wait_for_message(link, SPECDEC__WIRE_WAIT_SECONDS);
            if (hooks->progress && hooks->progress(hooks->user_data, "ranks", link->ready_count, others))
                specdec__fail(&link->failed, SPECDEC_ERROR_CANCELLED, "cancelled while waiting for ranks");
        }
        if (link->failed.code == SPECDEC_ERROR_CANCELLED)
            specdec__link_send_failed(link);
        specdec__link_send_alive_all(link);
        link->connected = 1;
    }
    return link->failed.code ? specdec__fail(error, link->failed.code, "%s", link->failed.text) : SPECDEC_OK;
}

/* Ends the cluster: rank 0 orders all other ranks to end; another rank that ends by itself sends FAILED. */
static void specdec__link_end_cluster(specdec__link *link)
{
    if (link->failed.code || link->ended)
        return;
    if (specdec__link_rank(link)) {
        specdec__fail(&link->failed, SPECDEC_ERROR_PEER, "it has ended");
        specdec__link_send_failed(link);
    } else {
        if (link->drafts.rank)
            specdec__remote_draft_send_order(link, SPECDEC__WIRE_ORDER_END, 0, NULL, 0);
        if (specdec__link_last_stage(link))
            specdec__link_begin_order(link, SPECDEC__WIRE_ORDER_END, 0);
        specdec__link_send_orders(link, 0);
    }
    link->ended = 1;
}

SPECDEC__FOR_SPEED
