/* =====================================================================================================================
 * >>cluster/config: checks a cluster's configuration, and chooses the layers of the target that a rank has.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "../model/model.h"
#include "../model/facts.h"
#include "../engine/layout.h"
#include "wire.h"

SPECDEC__FOR_SIZE

/* Returns the number of a cluster's draft rank, which has the draft model alone: the last rank but 0 without layers; 0:
   there is none. */
static int specdec__cluster_draft_rank_number(const specdec_cluster *cluster)
{
    int i = cluster->ranks - 1;

    while (i > 0 && cluster->layers[i])
        i--;
    return i;
}

/* Returns whether this rank is the draft rank of the cluster. */
static int specdec__cluster_is_draft_rank(const specdec_cluster *cluster)
{
    return cluster->rank && cluster->rank == specdec__cluster_draft_rank_number(cluster);
}

/* Refuses layers [from, end) of the model for a rank if one of them reads the keys of a layer before `from`. */
static specdec_result specdec__cluster_refuse_keys_of_other_ranks(const specdec__model *m, int from, int end,
                                                                  specdec_error *error)
{
    int i;

    for (i = from; i < end; i++) {
        const int keys_of = specdec__model_layer_shape(m, i).key_layer;

        if (keys_of >= 0 && keys_of < from)
            return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                                 "layer %d reads the keys of layer %d: the same rank has to have both", i, keys_of);
    }
    return SPECDEC_OK;
}

/* Reduces a model to the layers of this rank, after checking that the ranks' layers add up to all. */
static specdec_result specdec__cluster_choose_layers(specdec__model *m, const specdec_cluster *cluster,
                                                     specdec_error *error)
{
    const int drafter = specdec__cluster_draft_rank_number(cluster);
    int i, sum = 0;

    if (m->trait[SPECDEC__READS_STATES])
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "a model that reads states cannot be split over ranks");
    if (m->layer_embeddings.width || m->streams.count)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                             "a model with embeddings for each layer or several streams cannot be split");
    for (i = 0; i < cluster->ranks; i++) {
        m->first_layer += i < cluster->rank ? cluster->layers[i] : 0;
        sum += cluster->layers[i] >= (i && i != drafter) && cluster->layers[i] <= m->all_layers
                   ? cluster->layers[i]
                   : m->all_layers + 1;
        if (sum > m->all_layers || (i == cluster->ranks - 1 && sum < m->all_layers))
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "rank %d cannot have %d layers of the %d (only rank 0 "
                                 "and one that drafts may have none, all together have all)", i, cluster->layers[i],
                                 m->all_layers);
        if (specdec__cluster_refuse_keys_of_other_ranks(m, sum - cluster->layers[i], sum, error))
            return SPECDEC_ERROR_UNSUPPORTED;
    }
    m->layers = cluster->layers[cluster->rank];
    m->lacks_output = cluster->rank > 0;
    return SPECDEC_OK;
}

/* Turns the configuration of rank 0 into that of the draft rank: the draft model takes the place of the target, and no
   other drafter is left. */
static specdec_result specdec__cluster_configure_draft_rank(specdec_config *c, specdec_error *error)
{
    if (!specdec__source_is_given(&c->draft))
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "rank %d has no layers of the target: it needs a draft "
                             "model to draft with (only rank 0 and one that drafts may have none)", c->cluster->rank);
    c->target = c->draft;
    c->drafting = SPECDEC_DRAFT_MODEL;
    c->rule = SPECDEC_RULE_COUPLED;
    c->policy = SPECDEC_POLICY_DYNAMIC;
    c->async = c->logprobs = 0;
    memset(&c->heads, 0, sizeof c->heads);
    return SPECDEC_OK;
}

/* Checks the options that a cluster with a draft rank requires: threads, and the coupled rule. */
static specdec_result specdec__cluster_check_draft_rank(const specdec_config *c, specdec_error *error)
{
    if (!SPECDEC__HAS_THREADS)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "a rank that drafts needs a build with threads");
    if (c->rule != SPECDEC_RULE_COUPLED)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "rule %d needs the draft's distributions, and a draft "
                             "rank sends tokens alone: only the coupled rule works with one", (int)c->rule);
    return SPECDEC_OK;
}

/* Checks a cluster's configuration. Clears the drafters of ranks other than 0, and the cluster if rank 0 is its only
   rank. */
static specdec_result specdec__cluster_check(specdec_config *c, specdec_error *error)
{
    const specdec_cluster *cluster = c->cluster;
    specdec_result result;

    if (cluster->ranks < 1 || cluster->ranks > SPECDEC__WIRE_MAX_RANKS || cluster->rank < 0 ||
        cluster->rank >= cluster->ranks || !cluster->layers || !cluster->send || !cluster->receive || !cluster->wait)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "rank %d of a cluster of %d (1 to %d are possible), or no "
                             "layers or functions", cluster->rank, cluster->ranks, SPECDEC__WIRE_MAX_RANKS);
    if (specdec__cluster_draft_rank_number(cluster) &&
        (result = specdec__cluster_check_draft_rank(c, error)) != SPECDEC_OK)
        return result;
    if (specdec__cluster_is_draft_rank(cluster))
        return specdec__cluster_configure_draft_rank(c, error);
    if (c->target.model || c->target.copy)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "a cluster's target comes from a path or from data, as "
                             "each rank opens its part of it");
    if (c->retrieval || c->drafting == SPECDEC_DRAFT_TRIFORCE)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "retrieval needs the target's keys, which are not here "
                             "in a cluster");
    if (cluster->rank) {
        c->drafting = SPECDEC_DRAFT_OFF;
        memset(&c->draft, 0, sizeof c->draft);
        memset(&c->heads, 0, sizeof c->heads);
    }
    if (cluster->ranks == 1) /* has all layers */
        c->cluster = NULL;
    return SPECDEC_OK;
}

SPECDEC__FOR_SPEED
