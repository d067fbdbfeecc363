/* =====================================================================================================================
 * >>speculation/draft_forced: forced tokens of a constraint as a drafter.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "tree.h"
#include "constrained.h"
#include "draft.h"

SPECDEC__FOR_SIZE

/* Proposes the tokens that the sequence's constraint forces behind it: a chain, which is always accepted. */
static specdec_result specdec__draft_forced_fill_tree(specdec__drafter *d, const specdec__draft_request *request,
                                                      specdec__draft_tree *drafts, specdec_error *error)
{
    int length = request->count;
    int32_t token;

    (void)d;
    (void)error;
    drafts->tree.n = 1;
    while (specdec__constrained_limits_tokens(request->constrained) && drafts->tree.n < request->max_nodes &&
           drafts->tree.n < request->max_levels &&
           (token = specdec__constrained_forced_token(request->constrained, request->text, length)) >= 0) {
        const int node = drafts->tree.n++;

        specdec__tree_put_node(&drafts->tree, node, node - 1, 1);
        drafts->tokens[node] = request->text[length++] = token;
        drafts->share[node] = 1;
    }
    return SPECDEC_OK;
}

/* Writes the row of the kind of drafter that proposes the tokens which a constraint forces. */
static void specdec__draft_forced_write_kind(specdec__drafter_kind *kind)
{
    kind->enabled_by = offsetof(specdec_config, constraints);
    kind->certain = 1;
    kind->ranks = 1;
    kind->size = 16;
    kind->depth = 12;
    kind->fill_tree = specdec__draft_forced_fill_tree;
}

SPECDEC__FOR_SPEED
