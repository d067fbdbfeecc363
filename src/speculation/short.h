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

#define SPECDEC__SHORT_LEAST_ROWS 8192     /* default number of copied rows of the output matrix, at least */
#define SPECDEC__SHORT_ROWS_DIVISOR 12 /* default number of copied rows: all rows of the output matrix over this */
#define SPECDEC__SHORT_MOST_PASSES 8        /* times that the clock spares a copied row that is wanted often, at most */
#define SPECDEC__SHORT_TRIAL_TREES 256      /* trees between two that are drafted with the other matrix, to time it */
#define SPECDEC__SHORT_ACCEPTANCE 0.7 /* assumed probability that a draft token is accepted when all rows are used */
#define SPECDEC__SHORT_DECAY 0.998   /* factor of the counts of older tokens at each decoded token */

/* A short vocabulary of a drafter: copies of some rows of its output matrix, which tokens these rows belong to, and
   what a level costs with the copies and with the whole matrix. */
typedef struct specdec__short_vocabulary {
    const specdec__matrix *full_matrix; /* (tokens, columns): the output matrix with all rows */
    specdec__matrix matrix;      /* (rows, columns): the copied rows, in tiles */
    unsigned char *tiles;        /* memory of `matrix`: tiles of 16 rows, interleaved */
    unsigned char *side_by_side; /* (16 rows): scratch: the rows of a tile as they lie in the file */
    int32_t *ids;                /* (rows): the token of each copied row */
    int32_t *row_of_token;                /* (tokens): index of each token's copied row; -1: it has none */
    unsigned char *passes_left;        /* (rows): how often the clock still passes over each copied row before it
                                          replaces the row */
    unsigned char *stale_tiles;        /* (tiles of 16 rows): 1: the tile's rows have to be copied again */
    int32_t *noted_tokens;            /* (sequences): number of tokens of each sequence whose rows were wanted
                                         already */
    int clock_hand;                    /* index of the copied row that the clock looks at next; it falls */
    int in_use;                      /* 1: the current tree is drafted with the copied rows; 0: with the whole matrix */
    int tree_count;                   /* number of draft trees that were begun */
    int always_in_use;                  /* 1: all trees are drafted with the copied rows, as the caller has asked for
                                           it */
    double rest_bytes;                 /* bytes of weights that a level reads besides the output matrix */
    double seconds[2];           /* mean seconds of a level with the whole matrix [0], with the copied rows [1]; 0: not
                                    measured */
    double mean_levels;               /* mean number of levels of a draft tree */
    double written_tokens, missed_tokens; /* decoded tokens; those of them without a copied row; older ones weigh
                                             less */
} specdec__short_vocabulary;

/* Returns how many rows of a drafter's output matrix are to be copied; 0 where copies do not pay. wanted: the number
   that the caller asks for (0: as many as pay, -1: none); level: bytes of weights that a level reads. */
static int specdec__short_vocabulary_count_rows_to_copy(const specdec__matrix *full, int wanted, size_t level)
{
    const int usual = specdec__max_int(SPECDEC__SHORT_LEAST_ROWS, full->rows / SPECDEC__SHORT_ROWS_DIVISOR);
    const int rows = specdec__round_up(wanted > 0 ? specdec__min_int(wanted, full->rows) : usual, SPECDEC__TILE_ROWS);
    const size_t bytes = full->row_bytes * (size_t)full->rows;

    if (wanted < 0 || rows >= full->rows || (!wanted && (rows > full->rows / 2 || bytes < level / 8)))
        return 0;
    return rows;
}

/* Gives copied row `row` to a token. worth: how often the clock passes over the row at first. Returns the token that
   had the row. */
static int32_t specdec__short_vocabulary_set_row_token(specdec__short_vocabulary *s, int row, int32_t token, int worth)
{
    const int32_t before = s->ids[row];

    s->row_of_token[before] = -1;
    s->row_of_token[token] = row;
    s->ids[row] = token;
    s->passes_left[row] = (unsigned char)worth;
    s->stale_tiles[row / SPECDEC__TILE_ROWS] = 1;
    return before;
}

/* Returns whether a token ends an answer. */
static int specdec__short_vocabulary_token_ends_answer(const specdec__vocab *vocab, int32_t token)
{
    int i = 0;

    while (i < vocab->end_token_count && vocab->end_tokens[i] != token)
        i++;
    return i < vocab->end_token_count;
}

/* Takes the memory for `rows` copied rows of a matrix, and for `texts` sequences, from an arena. level: bytes of
   weights that a level reads with all rows. */
static void specdec__short_vocabulary_init(specdec__short_vocabulary *s, const specdec__matrix *full, int rows,
                                           int texts, size_t level, const specdec__vocab *vocab, specdec__arena *arena)
{
    const size_t tile_bytes = specdec__matrix_tile_bytes(full), bytes = full->row_bytes * (size_t)full->rows;
    int i;

    s->full_matrix = full;
    s->matrix = *full;
    s->matrix.rows = rows;
    s->matrix.bounds = NULL;
    s->tiles = (unsigned char *)specdec__arena_reserve(arena, (size_t)(rows / SPECDEC__TILE_ROWS), tile_bytes,
                                                       SPECDEC__CACHE_LINE);
    s->matrix.tiles = s->tiles;
    s->side_by_side = SPECDEC__TAKE(arena, unsigned char, tile_bytes);
    s->ids = SPECDEC__TAKE(arena, int32_t, rows);
    s->row_of_token = SPECDEC__TAKE(arena, int32_t, full->rows);
    s->passes_left = SPECDEC__TAKE(arena, unsigned char, rows);
    s->stale_tiles = SPECDEC__TAKE(arena, unsigned char, rows / SPECDEC__TILE_ROWS);
    s->noted_tokens = SPECDEC__TAKE(arena, int32_t, texts);
    s->rest_bytes = level > bytes ? (double)(level - bytes) : 0;
    s->clock_hand = rows - 1;
    s->in_use = 1;
    for (i = 0; s->row_of_token && s->ids && i < full->rows; i++)
        s->row_of_token[i] = i < rows ? i : -1;
    for (i = 0; s->stale_tiles && s->ids && i < rows; i++) {
        s->ids[i] = i;
        s->stale_tiles[i / SPECDEC__TILE_ROWS] = 1;
    }
    for (i = rows; s->noted_tokens && i < full->rows && i < (int)vocab->count; i++)
        if (s->clock_hand > rows / 2 &&
            (specdec__vocab_token_text(vocab, (uint32_t)i).size == 1 ||
             specdec__short_vocabulary_token_ends_answer(vocab, i)))
            specdec__short_vocabulary_set_row_token(s, s->clock_hand--, i, SPECDEC__SHORT_MOST_PASSES);
}

/* Notes that a token has occurred in a sequence, and gives it a copied row if it has none. Returns the token that lost
   its row; -1: no token did. */
static int32_t specdec__short_vocabulary_note_token(specdec__short_vocabulary *s, int32_t token)
{
    const int row = s->row_of_token[token];

    if (row >= 0) {
        s->passes_left[row] = (unsigned char)specdec__min_int(s->passes_left[row] + 1, SPECDEC__SHORT_MOST_PASSES);
        return -1;
    }
    for (; s->passes_left[s->clock_hand]; s->clock_hand = s->clock_hand ? s->clock_hand - 1 : s->matrix.rows - 1)
        s->passes_left[s->clock_hand]--;
    return specdec__short_vocabulary_set_row_token(s, s->clock_hand, token, 1);
}

/* Notes the new tokens of sequence `at`, up to text[count]. Tokens from id `vocab` on get no rows. whole (vocab): a row
   of logits, in which tokens that lose their rows become -infinity. */
static void specdec__short_vocabulary_note_new_tokens(specdec__short_vocabulary *s, int at, const int32_t *text,
                                                      int count, int vocab, float *whole)
{
    int i = specdec__min_int(s->noted_tokens[at], count);
    const int writes = i && count - i <= SPECDEC_TREE_MAX_DEPTH; /* else it is a prompt */

    for (; i < count; i++) {
        int32_t lost;

        if (text[i] < 0 || text[i] >= s->full_matrix->rows || text[i] >= vocab)
            continue;
        if (writes) {
            s->written_tokens = SPECDEC__SHORT_DECAY * s->written_tokens + 1;
            s->missed_tokens = SPECDEC__SHORT_DECAY * s->missed_tokens + (s->row_of_token[text[i]] < 0);
        }
        lost = specdec__short_vocabulary_note_token(s, text[i]);
        if (lost >= 0 && lost < vocab)
            whole[lost] = specdec__float_from_bits(0xff800000u);
    }
    s->noted_tokens[at] = count;
}

/* Copies the rows of all tiles that are marked in stale_tiles from the file's matrix into these tiles. */
static void specdec__short_vocabulary_copy_rows(specdec__short_vocabulary *s)
{
    const specdec__matrix *m = &s->matrix;
    const size_t tile_bytes = specdec__matrix_tile_bytes(m), blocks = (size_t)m->columns / m->type->block;
    int t, i;

    for (t = 0; t < m->rows / SPECDEC__TILE_ROWS; t++) {
        if (!s->stale_tiles[t])
            continue;
        for (i = 0; i < SPECDEC__TILE_ROWS; i++)
            memcpy(s->side_by_side + (size_t)i * m->row_bytes,
                   s->full_matrix->file + (size_t)s->ids[t * SPECDEC__TILE_ROWS + i] * m->row_bytes, m->row_bytes);
        specdec__quant_interleave(m->type, s->side_by_side, m->row_bytes, SPECDEC__TILE_ROWS, blocks,
                                  s->tiles + (size_t)t * tile_bytes);
        s->stale_tiles[t] = 0;
    }
}

/* Returns the seconds of a level with the copied rows (on 1) or with the whole matrix (on 0): measured, or in
   proportion to bytes. */
static double specdec__short_vocabulary_level_seconds(const specdec__short_vocabulary *s, int on)
{
    const double row = (double)s->full_matrix->row_bytes;
    const double bytes[2] = {s->rest_bytes + row * s->full_matrix->rows, s->rest_bytes + row * s->matrix.rows};

    return s->seconds[on] > 0 ? s->seconds[on] : s->seconds[!on] * bytes[on] / bytes[!on];
}

/* Returns the expected tokens a second of a step with a draft tree. level: seconds of a level; share: the part of all
   tokens that have copied rows; step: seconds of the target's step. */
static double specdec__short_vocabulary_token_rate(const specdec__short_vocabulary *s, double level, double share,
                                                   double step)
{
    const double depth = s->mean_levels > 1 ? s->mean_levels : 1;
    double tokens = 1, path = 1, i;

    for (i = 0; i < depth; i++)
        tokens += path *= SPECDEC__SHORT_ACCEPTANCE * share;
    return tokens / (step + depth * level);
}

/* Chooses whether the next tree is drafted with the copied rows or with the whole matrix. step: seconds of the target's
   step; 0: unknown. */
static void specdec__short_vocabulary_choose_matrix(specdec__short_vocabulary *s, double step)
{
    const double share = s->written_tokens > 0 ? 1 - s->missed_tokens / s->written_tokens : 1;
    int on = 1;

    if (s->always_in_use)
        return;
    if (s->seconds[0] > 0 || s->seconds[1] > 0)
        on = specdec__short_vocabulary_token_rate(s, specdec__short_vocabulary_level_seconds(s, 1), share, step) >=
             specdec__short_vocabulary_token_rate(s, specdec__short_vocabulary_level_seconds(s, 0), 1, step);
    if (++s->tree_count % SPECDEC__SHORT_TRIAL_TREES == 8) /* so that both are known */
        on = !on;
    s->in_use = on;
}

/* Adds the measured seconds of a level to the mean of the matrix in use. */
static void specdec__short_vocabulary_add_level_seconds(specdec__short_vocabulary *s, double seconds)
{
    double *mean = &s->seconds[s->in_use];

    if (*mean > 0 && seconds > 2 * *mean)
        seconds = 2 * *mean;
    *mean += (seconds - *mean) / (*mean > 0 ? 8 : 1);
}

SPECDEC__FOR_SPEED
