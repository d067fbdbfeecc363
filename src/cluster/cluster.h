/* =====================================================================================================================
 * >>cluster/cluster: the table by which an engine reaches the other ranks: all that the rest of the library calls here.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../speculation/draft.h"
#include "../speculation/draft_model.h"
#include "../speculation/drafters.h"
#include "../schedule/lane.h"
#include "../engine/stream.h"
#include "../engine/engine.h"
#include "../engine/layout.h"
#include "config.h"
#include "wire.h"
#include "link.h"
#include "orders.h"
#include "rank.h"
#include "meet.h"
#include "ranks.h"
#include "draft_remote.h"
#include "draft_rank.h"

SPECDEC__FOR_SIZE

/* A draft model is remote where a rank has it alone. */
static void specdec__cluster_kind(const specdec_config *c, specdec_drafting drafting, specdec__drafter_kind *kind)
{
    if (drafting == SPECDEC_DRAFT_MODEL && !c->cluster->rank && specdec__cluster_drafter(c->cluster))
        specdec__drafter_write(kind, specdec__draft_remote_kind);
}

/* The link of a rank, and the lane of rank 0. */
static void specdec__cluster_lay_out(specdec__engine *e, specdec__arena *arena)
{
    const specdec_cluster *cluster = e->config.cluster;
    specdec__link *link = specdec__link_take(cluster, &e->target, &e->room, arena);
    specdec__ranks *ranks = SPECDEC__TAKE(arena, specdec__ranks, 1);
    const int candidates = e->drafter_count ? specdec__engine_candidates(e, &e->drafters[0].kind) : 0;
    int32_t *node = SPECDEC__TAKE(arena, int32_t, candidates);
    int i;

    e->link = link;
    if (e->remote->drafts)
        specdec__draft_rank_take(e, arena);
    if (!link || arena->used == SIZE_MAX)
        return;
    link->hooks = &e->config.hooks;
    link->draft_fingerprint = specdec__link_draft_fingerprint(&e->target_model->vocab, e->room.max_views,
                                                              e->config.context);
    link->fingerprint = e->remote->drafts ? link->draft_fingerprint : link->fingerprint;
    if (e->remote->drafts) {
        specdec__draft_model_context(&e->drafters[0])->hooks_argument = link; /* others hear of it while it reads */
        specdec__draft_model_context(&e->drafters[0])->hooks = &specdec__link_hooks[0];
    }
    for (i = 0; i < e->room.max_views; i++) {
        link->views[i] = &e->sequences[i].view;
        link->cancels[i] = &e->sequences[i].cancel;
    }
    link->ranks = ranks;
    ranks->link = link;
    ranks->stage.context = &e->target;
    ranks->pipe.node = node;
    ranks->pipe.depth = specdec__min_int(cluster->ranks + !link->drafter, SPECDEC__PIPE_RUNS); /* one on the links */
}

/* While weights are repacked, the other ranks hear that this one goes on. */
static int specdec__cluster_loads(void *user_data, const char *what, int done, int total)
{
    const specdec__engine *e = (const specdec__engine *)user_data;
    const specdec_hooks *hooks = &e->config.hooks;

    if (e->link)
        specdec__link_load(e->link);
    return hooks->progress && hooks->progress(hooks->user_data, what, done, total);
}

/* Rank 0 finds the others, and has a lane when any of them has layers; the others say that they are ready. */
static specdec_result specdec__cluster_start(specdec__engine *e, specdec_error *error)
{
    specdec__link *link = e->link;

    link->ranks->pipe.kind = &specdec__ranks_kind;
    e->pipe = link->cluster.rank || !specdec__link_last(link) ? NULL : &link->ranks->pipe;
    return specdec__link_meet(link, &e->config.hooks, error);
}

/* In a cluster a sequence that waits for a step may be cancelled, whether it takes part or not. */
static void specdec__cluster_wait(specdec__engine *e, int *cancel) { e->link->caller = cancel; }

/* Obeys rank 0 until that ends; counts what was done. */
static specdec_result specdec__cluster_serve(specdec *t)
{
    specdec__engine *e = t->engine;
    specdec__link *link = e->link;
    specdec_result result;

    e->pool.cancel = &link->stop;
    link->cancel = &t->cancel;
    result = link->draft_rank ? specdec__draft_rank_serve(e) : specdec__link_serve(link);
    t->stats.steps = link->runs;
    t->stats.drafted = link->run_nodes;
    t->stats.accepted = link->kept_nodes;
    t->stats.seconds = link->working;
    return result == SPECDEC_DONE ? result : specdec__fail(&t->error, result, "%s", link->failed.text);
}

static void specdec__cluster_end(specdec__engine *e) { specdec__link_end(e->link); }

/* Of rank 0, of the others that have layers, of one that only drafts. */
static const specdec__remote specdec__cluster_remotes[] = {
    {0, specdec__cluster_cut, specdec__cluster_kind, specdec__cluster_lay_out, specdec__cluster_loads,
     specdec__cluster_start, specdec__cluster_wait, NULL, specdec__cluster_end},
    {0, specdec__cluster_cut, specdec__cluster_kind, specdec__cluster_lay_out, specdec__cluster_loads,
     specdec__cluster_start, specdec__cluster_wait, specdec__cluster_serve, specdec__cluster_end},
    {1, NULL, specdec__cluster_kind, specdec__cluster_lay_out, specdec__cluster_loads,
     specdec__cluster_start, specdec__cluster_wait, specdec__cluster_serve, specdec__cluster_end}};

/* Checks config.cluster, fits the rest of the configuration to this rank, and chooses the table. */
static specdec_result specdec__cluster_join(specdec__engine *e, specdec_error *error)
{
    const specdec_cluster *cluster = e->config.cluster;
    specdec_result result = cluster ? specdec__cluster_check(&e->config, error) : SPECDEC_OK;

    if (!result && e->config.cluster)
        e->remote = &specdec__cluster_remotes[specdec__cluster_drafts(cluster) ? 2 : cluster->rank > 0];
    return result;
}

SPECDEC__FOR_SPEED
