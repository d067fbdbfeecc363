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

/* 1 for each kind of drafter that this build has. */
#define SPECDEC__WITH_MODEL 1
#define SPECDEC__WITH_HEADS SPECDEC__HAS_STATE_DRAFTERS
#define SPECDEC__WITH_MTP SPECDEC__HAS_STATE_DRAFTERS
#define SPECDEC__WITH_NGRAM SPECDEC__HAS_NGRAM_DRAFTERS
#define SPECDEC__WITH_FORCED SPECDEC__HAS_CONSTRAINTS
#define SPECDEC__WITH_TRIFORCE SPECDEC__HAS_TRIFORCE

/* A specdec__draft_NAME_kind: writes the columns of a row that differ from 0 and NULL. */
typedef void (*specdec__drafter_row)(specdec__drafter_kind *kind);

/* In the order of specdec_drafting. Who comes first in the list gets room in the tree first, and is asked last. */
static const struct {
    const char *name; /* by which callers name the kind */
    specdec__drafter_row row; /* NULL: it is left out of this build */
} specdec__drafter_list[SPECDEC__DRAFTER_KINDS] = {
#define SPECDEC__DRAFTER(NAME, kind, name) {name, SPECDEC__WITH_##NAME ? specdec__draft_##kind##_kind : NULL},
    SPECDEC_DRAFTERS(SPECDEC__DRAFTER)
#undef SPECDEC__DRAFTER
};

/* The kinds that draft with models that read states, by how these do. */
static const specdec__drafter_row specdec__drafter_state_readers[] = {
    NULL, SPECDEC__HAS_STATE_DRAFTERS ? specdec__draft_layer_kind : NULL,
    SPECDEC__HAS_STATE_DRAFTERS ? specdec__draft_assistant_kind : NULL,
    SPECDEC__HAS_STATE_DRAFTERS ? specdec__draft_block_kind : NULL};

/* Writes the row of a kind of drafter to *kind. Returns 0 if there is none, else 1. */
static int specdec__drafter_write_kind(specdec__drafter_kind *kind, specdec__drafter_row row)
{
    memset(kind, 0, sizeof *kind);
    if (row)
        row(kind);
    return row != NULL;
}

/* Replaces the kind that the caller has named by the one that drafts with files like the model's. A kind that can draft
   without its model stays. */
static void specdec__drafter_fit_kind(specdec__drafter_kind *kind, const specdec__model *model)
{
    const specdec__drafter_row row = model ? specdec__drafter_state_readers[model->trait[SPECDEC__READS_STATES]] : NULL;

    if (row && !kind->optional)
        specdec__drafter_write_kind(kind, row);
}

/* The kind that a caller names. Returns 0 for "auto" and "off", and for a kind that is left out of this build. */
static int specdec__drafter_named_kind(specdec__drafter_kind *kind, specdec_drafting drafting)
{
    return specdec__drafter_write_kind(kind, drafting > SPECDEC_DRAFT_OFF
                                            ? specdec__drafter_list[drafting - SPECDEC_DRAFT_OFF - 1].row : NULL);
}

SPECDEC__FOR_SPEED
