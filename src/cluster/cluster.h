/* =====================================================================================================================
 * >>cluster/cluster: the table of functions by which an engine uses a cluster; nothing else of this room is called.
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

/* Replaces the functions of a draft model's drafter by those of a remote one, on rank 0 of a cluster with a draft
   rank. */
static void specdec__cluster_use_remote_drafter(const specdec_config *c, specdec_drafting drafting,
                                                specdec__drafter_kind *kind)
{
    if (drafting == SPECDEC_DRAFT_MODEL && !c->cluster->rank && specdec__cluster_draft_rank_number(c->cluster))
        specdec__drafter_write_kind(kind, specdec__draft_remote_write_kind);
}

/* Takes the memory of this rank's link and of rank 0's lane from the arena, and sets both up. */
static void specdec__cluster_lay_out(specdec__engine *e, specdec__arena *arena)
{
    const specdec_cluster *cluster = e->config.cluster;
    specdec__link *link = specdec__link_lay_out(cluster, &e->target, &e->room, arena);
    specdec__ranks *ranks = SPECDEC__TAKE(arena, specdec__ranks, 1);
    const int candidates = e->drafter_count ? specdec__engine_candidate_limit(e, &e->drafters[0].kind) : 0;
    int32_t *node = SPECDEC__TAKE(arena, int32_t, candidates);
    int i;

    e->link = link;
    if (e->remote->only_drafts)
        specdec__draft_rank_lay_out(e, arena);
    if (!link || arena->used == SIZE_MAX)
        return;
    link->hooks = &e->config.hooks;
    link->drafts.fingerprint = specdec__link_draft_fingerprint(&e->target_model->vocab, e->room.max_views,
                                                              e->config.context);
    link->fingerprint = e->remote->only_drafts ? link->drafts.fingerprint : link->fingerprint;
    if (e->remote->only_drafts) {
        specdec__draft_model_get_context(&e->drafters[0])->hooks_argument = link; /* sends ALIVE between layers */
        specdec__draft_model_get_context(&e->drafters[0])->hooks = &specdec__link_hooks[0];
    }
    for (i = 0; i < e->room.max_views; i++) {
        link->views.view[i] = &e->sequences[i].view;
        link->views.cancel[i] = &e->sequences[i].cancel;
    }
    link->ranks = ranks;
    ranks->link = link;
    ranks->stage.context = &e->target;
    ranks->pipe.node = node;
    /* one more run than ranks with layers, which travels between ranks */
    ranks->pipe.depth = specdec__min_int(cluster->ranks + !link->drafts.rank, SPECDEC__PIPE_RUNS);
}

/* The progress hook of an engine while weights are repacked: sends ALIVE to the other ranks, then calls the caller's
   hook. Returns what the caller's hook returns. */
static int specdec__cluster_report_loading(void *user_data, const char *what, int done, int total)
{
    const specdec__engine *e = (const specdec__engine *)user_data;
    const specdec_hooks *hooks = &e->config.hooks;

    if (e->link)
        specdec__link_report_loading(e->link);
    return hooks->progress && hooks->progress(hooks->user_data, what, done, total);
}

/* Connects the ranks, after loading. Rank 0 gets a lane for several runs if any other rank has layers. */
static specdec_result specdec__cluster_connect_ranks(specdec__engine *e, specdec_error *error)
{
    specdec__link *link = e->link;

    link->ranks->pipe.kind = &specdec__ranks_kind;
    e->pipe = link->cluster.rank || !specdec__link_last_stage(link) ? NULL : &link->ranks->pipe;
    return specdec__link_connect_ranks(link, &e->config.hooks, error);
}

/* Sets the cancel flag of the sequence whose caller waits for a step: the step ends if it is set, even where the
   sequence does not take part. */
static void specdec__cluster_set_caller_cancel(specdec__engine *e, int *cancel) { e->link->caller_cancel = cancel; }

/* Serves rank 0 with orders and runs until the cluster ends, and stores counts in the sequence's statistics. */
static specdec_result specdec__cluster_serve(specdec *t)
{
    specdec__engine *e = t->engine;
    specdec__link *link = e->link;
    specdec_result result;

    e->pool.cancel = &link->own.cancel;
    link->serving_cancel = &t->cancel;
    result = link->draft_rank ? specdec__draft_rank_serve(e) : specdec__link_serve(link);
    t->stats.steps = link->counts.runs;
    t->stats.drafted = link->counts.nodes;
    t->stats.accepted = link->counts.kept_nodes;
    t->stats.seconds = link->counts.seconds;
    return result == SPECDEC_DONE ? result : specdec__fail(&t->error, result, "%s", link->failed.text);
}

/* Ends the cluster of an engine: see specdec__link_end_cluster. */
static void specdec__cluster_end(specdec__engine *e) { specdec__link_end_cluster(e->link); }

/* Sets the functions (specdec__remote) of a rank. only_drafts: 1: the rank holds the draft model alone; obeys: 1: the
   rank obeys rank 0. */
static void specdec__cluster_set_remote_functions(specdec__remote *remote, int only_drafts, int obeys)
{
    memset(remote, 0, sizeof *remote);
    remote->only_drafts = only_drafts;
    remote->remove_remote_layers = only_drafts ? NULL : specdec__cluster_choose_layers;
    remote->replace_drafter_kind = specdec__cluster_use_remote_drafter;
    remote->allocate = specdec__cluster_lay_out;
    remote->report_progress = specdec__cluster_report_loading;
    remote->connect = specdec__cluster_connect_ranks;
    remote->set_cancel_flag = specdec__cluster_set_caller_cancel;
    remote->obey_rank_0 = obeys ? specdec__cluster_serve : NULL;
    remote->disconnect = specdec__cluster_end;
}

/* Checks config.cluster, adapts the rest of the configuration to this rank, and sets its functions. */
static specdec_result specdec__cluster_configure_rank(specdec__engine *e, specdec_error *error)
{
    const specdec_cluster *cluster = e->config.cluster;
    specdec_result result = cluster ? specdec__cluster_check(&e->config, error) : SPECDEC_OK;

    if (!result && e->config.cluster) {
        specdec__cluster_set_remote_functions(&e->cluster_functions, specdec__cluster_is_draft_rank(cluster),
                                              cluster->rank > 0);
        e->remote = &e->cluster_functions;
    }
    return result;
}

SPECDEC__FOR_SPEED
