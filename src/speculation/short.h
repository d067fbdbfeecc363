/* =====================================================================================================================
 * >>speculation/short: a short vocabulary of a drafter's own: the rows of its output matrix that are wanted often.
 *
 * A level of a small drafter costs mostly what its output matrix does, of which few rows ever win (FR-Spec: Zhao et al.
 * 2025, arXiv 2502.14856). Copies of some rows lie side by side, to begin with those of the first tokens, since
 * vocabularies list what is frequent first, of single characters, and of ends. A token that a text has, and that they
 * lack, takes the place of a row that was not wanted for long (the clock algorithm). Whether drafts are made with them
 * or with the whole matrix is decided by the measured times of both, and by the share of written tokens that they
 * lacked. No text depends on it.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../quant/types.h"
#include "../quant/tiles.h"
#include "../text/vocabulary.h"
#include "../model/model.h"
#include "../model/tensors.h"

SPECDEC__FOR_SIZE

#define SPECDEC__SHORT_LEAST 8192     /* copied rows by default, at least */
#define SPECDEC__SHORT_SHARE 12       /* copied rows by default: all rows divided by this, if that is more */
#define SPECDEC__SHORT_WORTH 8        /* times that the clock passes over a row that is used often, at most */
#define SPECDEC__SHORT_PROBE 256      /* trees between two timings of the other way */
#define SPECDEC__SHORT_ACCEPTANCE 0.7 /* assumed acceptance of a token of a drafter with all rows */
#define SPECDEC__SHORT_MEMORY 0.998   /* factor, a decoded token, of the weight of older ones */

typedef struct specdec__short {
    const specdec__matrix *full; /* (tokens, columns) */
    specdec__matrix matrix;      /* (rows, columns): copies of some of its rows, in tiles */
    unsigned char *tiles, *side_by_side; /* side_by_side: (16 rows) as in the file */
    int32_t *ids;                /* (rows): the token of a row */
    int32_t *row;                /* (tokens): the row of a token; -1: none */
    unsigned char *worth;        /* (rows): how often the clock (of the replacement) still passes over a row */
    unsigned char *stale;        /* (tiles of 16 rows): 1: to be copied */
    int32_t *counted;            /* (sequences): tokens that were counted */
    int hand;                    /* the row that the clock looks at next, falling */
    int on, trees;               /* 1: the copied rows are in use; trees that were begun */
    int always;                  /* 1: they are always in use */
    double rest;                 /* bytes of weights of a level, without the output matrix */
    double seconds[2];           /* of a level with the whole matrix, with the rows; 0: unknown */
    double levels;               /* of a tree */
    double written, missed;      /* decoded tokens, and how many of these had no row; older ones weigh less */
} specdec__short;

/* How many rows of a drafter's output matrix are to be copied. wanted: 0: as many as pay, -1: none; level: bytes of
   weights of a level. Returns 0 where copies do not pay. */
static int specdec__short_rows(const specdec__matrix *full, int wanted, size_t level)
{
    const int usual = specdec__max_int(SPECDEC__SHORT_LEAST, full->rows / SPECDEC__SHORT_SHARE);
    const int rows = specdec__round_up(wanted > 0 ? specdec__min_int(wanted, full->rows) : usual, SPECDEC__TILE_ROWS);
    const size_t bytes = full->row_bytes * (size_t)full->rows;

    if (wanted < 0 || rows >= full->rows || (!wanted && (rows > full->rows / 2 || bytes < level / 8)))
        return 0;
    return rows;
}

/* Gives row `row` to a token. Returns the token that had it. */
static int32_t specdec__short_put(specdec__short *s, int row, int32_t token, int worth)
{
    const int32_t before = s->ids[row];

    s->row[before] = -1;
    s->row[token] = row;
    s->ids[row] = token;
    s->worth[row] = (unsigned char)worth;
    s->stale[row / SPECDEC__TILE_ROWS] = 1;
    return before;
}

/* Whether a token ends an answer. */
static int specdec__short_ends(const specdec__vocab *vocab, int32_t token)
{
    int i = 0;

    while (i < vocab->end_count && vocab->ends[i] != token)
        i++;
    return i < vocab->end_count;
}

/* Takes the memory for `rows` copied rows of a matrix, and for `texts` sequences. level: bytes of weights of a level
   with all rows. */
static void specdec__short_init(specdec__short *s, const specdec__matrix *full, int rows, int texts, size_t level,
                                const specdec__vocab *vocab, specdec__arena *arena)
{
    const size_t tile_bytes = specdec__matrix_tile_bytes(full), bytes = full->row_bytes * (size_t)full->rows;
    int i;

    s->full = full;
    s->matrix = *full;
    s->matrix.rows = rows;
    s->matrix.bounds = NULL;
    s->tiles = (unsigned char *)specdec__arena_reserve(arena, (size_t)(rows / SPECDEC__TILE_ROWS), tile_bytes,
                                                       SPECDEC__CACHE_LINE);
    s->matrix.tiles = s->tiles;
    s->side_by_side = SPECDEC__TAKE(arena, unsigned char, tile_bytes);
    s->ids = SPECDEC__TAKE(arena, int32_t, rows);
    s->row = SPECDEC__TAKE(arena, int32_t, full->rows);
    s->worth = SPECDEC__TAKE(arena, unsigned char, rows);
    s->stale = SPECDEC__TAKE(arena, unsigned char, rows / SPECDEC__TILE_ROWS);
    s->counted = SPECDEC__TAKE(arena, int32_t, texts);
    s->rest = level > bytes ? (double)(level - bytes) : 0;
    s->hand = rows - 1;
    s->on = 1;
    for (i = 0; s->row && s->ids && i < full->rows; i++)
        s->row[i] = i < rows ? i : -1;
    for (i = 0; s->stale && s->ids && i < rows; i++) {
        s->ids[i] = i;
        s->stale[i / SPECDEC__TILE_ROWS] = 1;
    }
    for (i = rows; s->counted && i < full->rows && i < (int)vocab->count; i++)
        if (s->hand > rows / 2 &&
            (specdec__vocab_token_text(vocab, (uint32_t)i).size == 1 || specdec__short_ends(vocab, i)))
            specdec__short_put(s, s->hand--, i, SPECDEC__SHORT_WORTH);
}

/* Gives a row to a token that has occurred in a sequence. Returns the token that lost its row; -1: none did. */
static int32_t specdec__short_want(specdec__short *s, int32_t token)
{
    const int row = s->row[token];

    if (row >= 0) {
        s->worth[row] = (unsigned char)specdec__min_int(s->worth[row] + 1, SPECDEC__SHORT_WORTH);
        return -1;
    }
    for (; s->worth[s->hand]; s->hand = s->hand ? s->hand - 1 : s->matrix.rows - 1)
        s->worth[s->hand]--;
    return specdec__short_put(s, s->hand, token, 1);
}

/* Counts the new tokens of sequence `at`, up to `count`; those below `vocab` can have rows. whole (vocab): a row of
   logits, in which tokens that lost their rows become -infinity. */
static void specdec__short_read(specdec__short *s, int at, const int32_t *text, int count, int vocab, float *whole)
{
    int i = specdec__min_int(s->counted[at], count);
    const int writes = i && count - i <= SPECDEC_TREE_MAX_DEPTH; /* else it is a prompt */

    for (; i < count; i++) {
        int32_t lost;

        if (text[i] < 0 || text[i] >= s->full->rows || text[i] >= vocab)
            continue;
        if (writes) {
            s->written = SPECDEC__SHORT_MEMORY * s->written + 1;
            s->missed = SPECDEC__SHORT_MEMORY * s->missed + (s->row[text[i]] < 0);
        }
        lost = specdec__short_want(s, text[i]);
        if (lost >= 0 && lost < vocab)
            whole[lost] = specdec__float_from_bits(0xff800000u);
    }
    s->counted[at] = count;
}

/* Copies the rows of all stale tiles. */
static void specdec__short_copy(specdec__short *s)
{
    const specdec__matrix *m = &s->matrix;
    const size_t tile_bytes = specdec__matrix_tile_bytes(m), blocks = (size_t)m->columns / m->type->block;
    int t, i;

    for (t = 0; t < m->rows / SPECDEC__TILE_ROWS; t++) {
        if (!s->stale[t])
            continue;
        for (i = 0; i < SPECDEC__TILE_ROWS; i++)
            memcpy(s->side_by_side + (size_t)i * m->row_bytes,
                   s->full->file + (size_t)s->ids[t * SPECDEC__TILE_ROWS + i] * m->row_bytes, m->row_bytes);
        specdec__quant_interleave(m->type, s->side_by_side, m->row_bytes, SPECDEC__TILE_ROWS, blocks,
                                  s->tiles + (size_t)t * tile_bytes);
        s->stale[t] = 0;
    }
}

/* Seconds of a level with the copied rows (on 1) or with the whole matrix (0): measured, or in proportion to bytes. */
static double specdec__short_seconds(const specdec__short *s, int on)
{
    const double row = (double)s->full->row_bytes;
    const double bytes[2] = {s->rest + row * s->full->rows, s->rest + row * s->matrix.rows};

    return s->seconds[on] > 0 ? s->seconds[on] : s->seconds[!on] * bytes[on] / bytes[!on];
}

/* Expected tokens a second. level: seconds of a level; share: of all tokens, those that have rows; step: seconds of the
   target's step. */
static double specdec__short_promise(const specdec__short *s, double level, double share, double step)
{
    const double depth = s->levels > 1 ? s->levels : 1;
    double tokens = 1, path = 1, i;

    for (i = 0; i < depth; i++)
        tokens += path *= SPECDEC__SHORT_ACCEPTANCE * share;
    return tokens / (step + depth * level);
}

/* Chooses whether the next tree is drafted with the copied rows. step: seconds of the target's step; 0: unknown. */
static void specdec__short_choose(specdec__short *s, double step)
{
    const double share = s->written > 0 ? 1 - s->missed / s->written : 1;
    int on = 1;

    if (s->always)
        return;
    if (s->seconds[0] > 0 || s->seconds[1] > 0)
        on = specdec__short_promise(s, specdec__short_seconds(s, 1), share, step) >=
             specdec__short_promise(s, specdec__short_seconds(s, 0), 1, step);
    if (++s->trees % SPECDEC__SHORT_PROBE == 8) /* so that both are known */
        on = !on;
    s->on = on;
}

/* Adds the seconds of a level to the measured ones. */
static void specdec__short_see(specdec__short *s, double seconds)
{
    double *mean = &s->seconds[s->on];

    if (*mean > 0 && seconds > 2 * *mean)
        seconds = 2 * *mean;
    *mean += (seconds - *mean) / (*mean > 0 ? 8 : 1);
}

SPECDEC__FOR_SPEED
