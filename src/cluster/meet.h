/* =====================================================================================================================
 * >>cluster/meet: ranks find each other, compare their files and part.
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
#include "guesses.h"

SPECDEC__FOR_SIZE

/* A hash of what all ranks must have in common: the model's facts and some bytes of its weights; type and number of
   keys; distance of checkpoints; which rank has which layers. */
static uint64_t specdec__link_fingerprint(const specdec__context *c, const specdec__kv_demand *room,
                                          const specdec_cluster *cluster)
{
    const specdec__bytes file = c->model->gguf.file;
    const size_t head = c->model->gguf.data_at < file.size ? c->model->gguf.data_at : file.size;
    const size_t step = (file.size - head) / 256 + 1;
    uint64_t hash = specdec__hash(SPECDEC__HASH, file.data, head);
    unsigned char numbers[8 * 4];
    size_t at;
    int i;

    for (at = head; at < file.size; at += step)
        hash = specdec__hash(hash, file.data + at, 1);
    specdec__wire_put(numbers, 0, (uint32_t)c->kv.type);
    specdec__wire_put(numbers, 1, (uint32_t)room->max_views);
    specdec__wire_put(numbers, 2, (uint32_t)room->view_keys);
    specdec__wire_put(numbers, 3, (uint32_t)room->all_keys);
    specdec__wire_put(numbers, 4, (uint32_t)room->step_nodes);
    specdec__wire_put(numbers, 5, (uint32_t)cluster->ranks);
    specdec__wire_put(numbers, 6, (uint32_t)room->tree_nodes);
    specdec__wire_put(numbers, 7, (uint32_t)room->checkpoint_distance);
    hash = specdec__hash(hash, numbers, sizeof numbers);
    for (i = 0; i < cluster->ranks; i++) {
        specdec__wire_put(numbers, 0, (uint32_t)cluster->layers[i]);
        hash = specdec__hash(hash, numbers, 4);
    }
    return hash;
}

/* A hash of what the draft rank must have in common with rank 0: number and length of sequences, where the
   configuration sets them, and the tokens of the vocabulary, without those behind a power of two, which may be padding.
   */
static uint64_t specdec__link_draft_fingerprint(const specdec__vocab *vocab, int texts, int length)
{
    unsigned char numbers[2 * 4];
    uint64_t hash;
    uint32_t id, most = 1;

    specdec__wire_put(numbers, 0, (uint32_t)texts);
    specdec__wire_put(numbers, 1, (uint32_t)length);
    hash = specdec__hash(SPECDEC__HASH, numbers, sizeof numbers);
    while (most <= vocab->count / 2)
        most *= 2;
    for (id = 0; id < most && id < vocab->count; id++) {
        const specdec__bytes text = specdec__vocab_token_text(vocab, id);

        hash = specdec__hash(hash, text.data, text.size);
    }
    return hash;
}

/* Takes rank 0's memory for draft tokens of the draft rank. */
static void specdec__link_take_guesses(specdec__link *link, const specdec__kv_demand *room, specdec__arena *arena)
{
    const int count = SPECDEC__REMOTE_DRAFTS * specdec__min_int(room->max_views, 8);
    specdec__remote_sequence *guessed = SPECDEC__TAKE(arena, specdec__remote_sequence, room->max_views);
    specdec__remote_draft *guesses = SPECDEC__TAKE(arena, specdec__remote_draft, count);

    if (!link)
        return;
    link->guessed = guessed;
    link->guesses = guesses;
    link->guess_count = count;
}

/* Takes a rank's memory, besides its context, from an arena. Views and their cancel flags are entered later. */
static specdec__link *specdec__link_take(const specdec_cluster *cluster, specdec__context *c,
                                         const specdec__kv_demand *room, specdec__arena *arena)
{
    const int most_words = 2 * (8 + 3 * room->step_nodes) + 256;
    const size_t floats = (size_t)room->step_nodes * (size_t)c->model->embedding;
    const size_t bytes = 4 * (SPECDEC__WIRE_HEAD + (size_t)most_words + floats);
    specdec__link *link = SPECDEC__TAKE(arena, specdec__link, 1);
    specdec__view **views = SPECDEC__TAKE(arena, specdec__view *, room->max_views);
    int **cancels = SPECDEC__TAKE(arena, int *, room->max_views);
    unsigned char *in = SPECDEC__TAKE(arena, unsigned char, bytes), *out = SPECDEC__TAKE(arena, unsigned char, bytes);
    const int drafter = specdec__cluster_drafter(cluster);

    if (!cluster->rank && drafter)
        specdec__link_take_guesses(link, room, arena);
    if (!arena->base || arena->used == SIZE_MAX)
        return NULL;
    link->drafter = drafter;
    link->cluster = *cluster;
    link->context = c;
    link->views = views;
    link->cancels = cancels;
    link->view_count = room->max_views;
    link->length = room->view_keys;
    link->in = in;
    link->out = out;
    link->room = bytes;
    link->most_words = most_words;
    link->fingerprint = specdec__link_fingerprint(c, room, cluster);
    c->hooks_argument = link;
    c->hooks = &specdec__link_hooks[!cluster->rank && specdec__link_last(link)];
    if (c->hooks->after_layers) {
        c->kv.notify = specdec__link_tell;
        c->kv.listener = link;
    }
    return link;
}

/* Connects the ranks: rank 0 waits until all others are ready; these send READY until rank 0 has answered. */
static specdec_result specdec__link_meet(specdec__link *link, const specdec_hooks *hooks, specdec_error *error)
{
    const int others = link->cluster.ranks - 1;

    link->loaded = 1;
    link->layer = 0;
    if (specdec__link_rank(link)) {
        specdec__link_urgent(link, 0, SPECDEC__WIRE_READY, 0, link->fingerprint, NULL);
    } else {
        while (link->ready < others && !link->failed.code) {
            specdec__link_poll(link);
            specdec__link_wait(link, SPECDEC__WIRE_PAUSE);
            if (hooks->progress && hooks->progress(hooks->user_data, "ranks", link->ready, others))
                specdec__fail(&link->failed, SPECDEC_ERROR_CANCELLED, "cancelled while waiting for ranks");
        }
        if (link->failed.code == SPECDEC_ERROR_CANCELLED)
            specdec__link_give_up(link);
        specdec__link_alive_all(link);
        link->met = 1;
    }
    return link->failed.code ? specdec__fail(error, link->failed.code, "%s", link->failed.text) : SPECDEC_OK;
}

/* Ends the cluster: rank 0 tells all others to end; another rank that ends by itself tells them, too. */
static void specdec__link_end(specdec__link *link)
{
    if (link->failed.code || link->ended)
        return;
    if (specdec__link_rank(link)) {
        specdec__fail(&link->failed, SPECDEC_ERROR_PEER, "it has ended");
        specdec__link_give_up(link);
    } else {
        if (link->drafter)
            specdec__remote_draft_order(link, SPECDEC__WIRE_END, 0, NULL, 0);
        if (specdec__link_last(link))
            specdec__link_order(link, SPECDEC__WIRE_END, 0);
        specdec__link_flush(link, 0);
    }
    link->ended = 1;
}

SPECDEC__FOR_SPEED
