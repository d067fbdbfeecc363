/* =====================================================================================================================
 * >>speculation/draft_forced: forced tokens of a constraint as a drafter.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "tree.h"
#include "constrained.h"
#include "draft.h"

SPECDEC__FOR_SIZE

/* Proposes the tokens that the constraint forces behind the sequence: a chain, which is always accepted. */
static specdec_result specdec__draft_forced_fill(specdec__drafter *d, specdec__proposal *p, specdec_error *error)
{
    int length = p->count;
    int32_t token;

    (void)d;
    (void)error;
    p->tree.n = 1;
    while (specdec__constrained_is(p->constrained) && p->tree.n < p->most && p->tree.n < p->levels &&
           (token = specdec__constrained_forced(p->constrained, p->text, length)) >= 0) {
        const int node = p->tree.n++;

        specdec__tree_put(&p->tree, node, node - 1, 1);
        p->tokens[node] = p->text[length++] = token;
        p->share[node] = 1;
    }
    return SPECDEC_OK;
}

/* Tokens that a constraint forces. */
static void specdec__draft_forced_kind(specdec__drafter_kind *kind)
{
    kind->enabled_by = offsetof(specdec_config, constraints);
    kind->certain = 1;
    kind->ranks = 1;
    kind->size = 16;
    kind->depth = 12;
    kind->fill = specdec__draft_forced_fill;
}

SPECDEC__FOR_SPEED
