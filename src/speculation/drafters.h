/* =====================================================================================================================
 * >>speculation/drafters: the table of drafters.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "draft.h"
#include "draft_model.h"
#include "draft_heads.h"
#include "draft_layer.h"
#include "draft_assistant.h"
#include "draft_block.h"
#include "draft_ngram.h"
#include "draft_forced.h"
#include "draft_recall.h"

SPECDEC__FOR_SIZE

#define SPECDEC__WITH_MODEL 1
#define SPECDEC__WITH_HEADS SPECDEC__HEADS
#define SPECDEC__WITH_MTP SPECDEC__HEADS
#define SPECDEC__WITH_NGRAM SPECDEC__NGRAMS
#define SPECDEC__WITH_FORCED SPECDEC__CONSTRAINTS
#define SPECDEC__WITH_TRIFORCE SPECDEC__TRIFORCE

/* In the order of specdec_drafting. Who comes first in the list gets room in the tree first, and is asked last. */
static const struct {
    const char *name;
    const specdec__drafter_kind *kind;
} specdec__drafter_list[SPECDEC__DRAFTER_KINDS] = {
#define SPECDEC__DRAFTER(NAME, kind, name) {name, SPECDEC__WITH_##NAME ? &specdec__draft_##kind##_kind : NULL},
    SPECDEC_DRAFTERS(SPECDEC__DRAFTER)
#undef SPECDEC__DRAFTER
};

/* The kinds that draft with models that read states, by how they do. */
static const specdec__drafter_kind *const specdec__drafter_files[] = {
    NULL, SPECDEC__HEADS ? &specdec__draft_layer_kind : NULL, SPECDEC__HEADS ? &specdec__draft_assistant_kind : NULL,
    SPECDEC__HEADS ? &specdec__draft_block_kind : NULL};

/* The kind that drafts with a model, whichever kind the caller has named: that follows from the file. */
static const specdec__drafter_kind *specdec__drafter_of(const specdec__drafter_kind *named, const specdec__model *model)
{
    const specdec__drafter_kind *kind = model ? specdec__drafter_files[model->trait[SPECDEC__READS_STATES]] : NULL;

    return kind && named != &specdec__draft_recall_kind ? kind : named;
}

/* The kind that a caller names; NULL for "auto" and "off", and for one that was left out. */
static const specdec__drafter_kind *specdec__drafter_kind_of(specdec_drafting drafting)
{
    return drafting > SPECDEC_DRAFT_OFF ? specdec__drafter_list[drafting - SPECDEC_DRAFT_OFF - 1].kind : NULL;
}

SPECDEC__FOR_SPEED
