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

/* Whether this build has each kind of drafter: 1 or 0. */
#define SPECDEC__WITH_MODEL 1 /* every build can draft with a draft model */
#define SPECDEC__WITH_HEADS SPECDEC__HAS_STATE_DRAFTERS
#define SPECDEC__WITH_MTP SPECDEC__HAS_STATE_DRAFTERS
#define SPECDEC__WITH_NGRAM SPECDEC__HAS_NGRAM_DRAFTERS
#define SPECDEC__WITH_FORCED SPECDEC__HAS_CONSTRAINTS
#define SPECDEC__WITH_TRIFORCE SPECDEC__HAS_TRIFORCE

/* A function specdec__draft_NAME_write_kind, which writes the columns of a drafter kind's row that differ from 0 and
   NULL. */
typedef void (*specdec__drafter_row)(specdec__drafter_kind *kind);

/* The table of drafter kinds, in the order of specdec_drafting. A kind earlier in the list gets room in the tree first,
   and is asked later. */
static const struct {
    const char *name; /* the name by which callers choose the kind */
    specdec__drafter_row row; /* writes the row of the kind; NULL: the kind is left out of this build */
} specdec__drafter_list[SPECDEC__DRAFTER_KINDS] = {
#define SPECDEC__DRAFTER(NAME, kind, name) {name, SPECDEC__WITH_##NAME ? specdec__draft_##kind##_write_kind : NULL},
    SPECDEC_DRAFTERS(SPECDEC__DRAFTER)
#undef SPECDEC__DRAFTER
};

/* The kinds of drafters whose models read the target's hidden states, by the way in which a model reads them. */
static const specdec__drafter_row specdec__drafter_state_readers[] = {
    NULL, SPECDEC__HAS_STATE_DRAFTERS ? specdec__draft_layer_write_kind : NULL,
    SPECDEC__HAS_STATE_DRAFTERS ? specdec__draft_assistant_write_kind : NULL,
    SPECDEC__HAS_STATE_DRAFTERS ? specdec__draft_block_write_kind : NULL};

/* Writes the row of a kind of drafter to *kind. Returns 0 if there is none, else 1. */
static int specdec__drafter_write_kind(specdec__drafter_kind *kind, specdec__drafter_row row)
{
    memset(kind, 0, sizeof *kind);
    if (row)
        row(kind);
    return row != NULL;
}

/* Replaces the kind of drafter that the caller has named by the one that drafts with files like the model's. A kind
   that can draft without a model stays. */
static void specdec__drafter_set_kind_for_model(specdec__drafter_kind *kind, const specdec__model *model)
{
    const specdec__drafter_row row = model ? specdec__drafter_state_readers[model->trait[SPECDEC__READS_STATES]] : NULL;

    if (row && !kind->optional)
        specdec__drafter_write_kind(kind, row);
}

/* Writes the row of the kind of drafter that a caller has named to *kind. Returns 0 for "auto" and "off", and for a
   kind that is left out of this build; else 1. */
static int specdec__drafter_write_named_kind(specdec__drafter_kind *kind, specdec_drafting drafting)
{
    return specdec__drafter_write_kind(kind, drafting > SPECDEC_DRAFT_OFF
                                            ? specdec__drafter_list[drafting - SPECDEC_DRAFT_OFF - 1].row : NULL);
}

SPECDEC__FOR_SPEED
