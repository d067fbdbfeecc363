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

#define SPECDEC__SHORT_LEAST 8192     /* rows, where the configuration does not say how many, */
#define SPECDEC__SHORT_SHARE 12       /* or such a part of all, where that is more */
#define SPECDEC__SHORT_WORTH 8        /* times that the clock passes over a row which is wanted again and again */
#define SPECDEC__SHORT_PROBE 256      /* trees between looks at what the other way takes */
#define SPECDEC__SHORT_ACCEPTANCE 0.7 /* of a token that a drafter with all rows proposes */
#define SPECDEC__SHORT_MEMORY 0.998   /* what a written token leaves of the weight of older ones */

typedef struct specdec__short {
    const specdec__matrix *full; /* (tokens, columns) */
    specdec__matrix matrix;      /* (rows, columns): copies of some of its rows, in tiles */
    unsigned char *tiles, *side_by_side; /* side_by_side: (16 rows) as in the file */
    int32_t *ids;                /* (rows): whose they are */
    int32_t *row;                /* (tokens): the row of a token; -1: none */
    unsigned char *worth;        /* (rows): how often the clock passes over them */
    unsigned char *stale;        /* (tiles of 16 rows): 1: to be copied */
    int32_t *counted;            /* (texts): tokens that were looked at */
    int hand;                    /* the row that the clock looks at next, falling */
    int on, trees;               /* whether the rows are in use; trees that were begun */
    int always;                  /* they are in any case */
    double rest;                 /* bytes of weights of a level, but for those of the output */
    double seconds[2];           /* of a level with the whole matrix, with the rows; 0: unknown */
    double levels;               /* of a tree */
    double written, missed;      /* tokens that were written, and those of them that had no row */
} specdec__short;

/* Rows that a drafter's output matrix, of so many bytes in all of a level, is to have copies of. wanted: 0: as pays,
   -1: none. Returns 0 where there are none: where so few would be left out, or read at all, that it does not pay. */
static int specdec__short_rows(const specdec__matrix *full, int wanted, size_t level)
{
    const int usual = specdec__max_int(SPECDEC__SHORT_LEAST, full->rows / SPECDEC__SHORT_SHARE);
    const int rows = specdec__round_up(wanted > 0 ? specdec__min_int(wanted, full->rows) : usual, SPECDEC__QUANT_ROWS);
    const size_t bytes = full->row_bytes * (size_t)full->rows;

    if (wanted < 0 || rows >= full->rows || (!wanted && (rows > full->rows / 2 || bytes < level / 8)))
        return 0;
    return rows;
}

/* Row `row` becomes a token's. Returns whose it was. */
static int32_t specdec__short_put(specdec__short *s, int row, int32_t token, int worth)
{
    const int32_t before = s->ids[row];

    s->row[before] = -1;
    s->row[token] = row;
    s->ids[row] = token;
    s->worth[row] = (unsigned char)worth;
    s->stale[row / SPECDEC__QUANT_ROWS] = 1;
    return before;
}

/* Whether a token ends a text. */
static int specdec__short_ends(const specdec__vocab *vocab, int32_t token)
{
    int i = 0;

    while (i < vocab->end_count && vocab->ends[i] != token)
        i++;
    return i < vocab->end_count;
}

/* Takes what so many rows of a matrix need, for so many texts; level: bytes of weights of a level with all of them. */
static void specdec__short_init(specdec__short *s, const specdec__matrix *full, int rows, int texts, size_t level,
                                const specdec__vocab *vocab, specdec__arena *arena)
{
    const size_t tile_bytes = specdec__matrix_tile_bytes(full), bytes = full->row_bytes * (size_t)full->rows;
    int i;

    s->full = full;
    s->matrix = *full;
    s->matrix.rows = rows;
    s->matrix.bounds = NULL;
    s->tiles = (unsigned char *)specdec__arena_reserve(arena, (size_t)(rows / SPECDEC__QUANT_ROWS), tile_bytes,
                                                       SPECDEC__CACHE_LINE);
    s->matrix.tiles = s->tiles;
    s->side_by_side = SPECDEC__TAKE(arena, unsigned char, tile_bytes);
    s->ids = SPECDEC__TAKE(arena, int32_t, rows);
    s->row = SPECDEC__TAKE(arena, int32_t, full->rows);
    s->worth = SPECDEC__TAKE(arena, unsigned char, rows);
    s->stale = SPECDEC__TAKE(arena, unsigned char, rows / SPECDEC__QUANT_ROWS);
    s->counted = SPECDEC__TAKE(arena, int32_t, texts);
    s->rest = level > bytes ? (double)(level - bytes) : 0;
    s->hand = rows - 1;
    s->on = 1;
    for (i = 0; s->row && s->ids && i < full->rows; i++)
        s->row[i] = i < rows ? i : -1;
    for (i = 0; s->stale && s->ids && i < rows; i++) {
        s->ids[i] = i;
        s->stale[i / SPECDEC__QUANT_ROWS] = 1;
    }
    for (i = rows; s->counted && i < full->rows && i < (int)vocab->count; i++)
        if (s->hand > rows / 2 && (specdec__vocab_text(vocab, (uint32_t)i).size == 1 || specdec__short_ends(vocab, i)))
            specdec__short_put(s, s->hand--, i, SPECDEC__SHORT_WORTH);
}

/* A text has a token: it gets a row. Returns the token that has lost its own; -1: none has. */
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

/* Looks at what is new in text number `at`: its tokens up to count, of which those below `vocab` can have rows. whole
   (vocab): logits of all tokens, which become -infinity for those that have lost their rows. */
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

/* Copies the rows of all tiles that are stale. */
static void specdec__short_copy(specdec__short *s)
{
    const specdec__matrix *m = &s->matrix;
    const size_t tile_bytes = specdec__matrix_tile_bytes(m), blocks = (size_t)m->columns / m->type->block;
    int t, i;

    for (t = 0; t < m->rows / SPECDEC__QUANT_ROWS; t++) {
        if (!s->stale[t])
            continue;
        for (i = 0; i < SPECDEC__QUANT_ROWS; i++)
            memcpy(s->side_by_side + (size_t)i * m->row_bytes,
                   s->full->file + (size_t)s->ids[t * SPECDEC__QUANT_ROWS + i] * m->row_bytes, m->row_bytes);
        specdec__quant_interleave(m->type, s->side_by_side, m->row_bytes, SPECDEC__QUANT_ROWS, blocks,
                                  s->tiles + (size_t)t * tile_bytes);
        s->stale[t] = 0;
    }
}

/* Seconds of a level with the rows (1) or with the whole matrix (0): measured, or in proportion to bytes. */
static double specdec__short_seconds(const specdec__short *s, int on)
{
    const double row = (double)s->full->row_bytes;
    const double bytes[2] = {s->rest + row * s->full->rows, s->rest + row * s->matrix.rows};

    return s->seconds[on] > 0 ? s->seconds[on] : s->seconds[!on] * bytes[on] / bytes[!on];
}

/* Tokens a second that trees promise whose levels take so long, when such a share of the tokens has rows; step: seconds
   that the target takes for each. */
static double specdec__short_promise(const specdec__short *s, double level, double share, double step)
{
    const double depth = s->levels > 1 ? s->levels : 1;
    double tokens = 1, path = 1, i;

    for (i = 0; i < depth; i++)
        tokens += path *= SPECDEC__SHORT_ACCEPTANCE * share;
    return tokens / (step + depth * level);
}

/* Decides how the next tree is drafted; step: seconds of a step of the target, 0: unknown. */
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

/* A level took so long. */
static void specdec__short_see(specdec__short *s, double seconds)
{
    double *mean = &s->seconds[s->on];

    if (*mean > 0 && seconds > 2 * *mean)
        seconds = 2 * *mean;
    *mean += (seconds - *mean) / (*mean > 0 ? 8 : 1);
}

SPECDEC__FOR_SPEED
