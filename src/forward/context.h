/* =====================================================================================================================
 * >>forward/context: what a forward pass works with: its batch, buffers and caches. It knows no speculation: nodes in,
 *     rows of logits out.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/pool.h"
#include "../base/op.h"
#include "../kernel/kernel.h"
#include "../model/model.h"
#include "../cache/state.h"
#include "../cache/kv.h"

#define SPECDEC__COLUMNS 64 /* columns that share one pass over the weights; wider steps take several */
#define SPECDEC__SCORES 65  /* columns with room for their scores of a tile: one more, as 4096 bytes apart are slow */
#define SPECDEC__TAPS 5     /* readers of the states of a step: a caller, and drafters */
#define SPECDEC__STRETCH 8  /* blocks of keys of which sums are kept apart and then merged: 512 keys */

/* The nodes of a step, in topological order. The first `done` of them have been run by an earlier call, since which no
   view has changed: only their keys and values are looked at. */
typedef struct specdec__batch {
    int n, done;
    const int32_t *tokens;         /* (n) */
    const int32_t *parents;        /* (n): an earlier node of the same view, or -1: the view's end */
    specdec__view *const *views;   /* (n) */
    const unsigned char *wanted;   /* (n): rows of logits to compute; NULL: all that are run */
    const unsigned char *certain;  /* (n): of a view the first ones, a chain, which is to be committed whole if the step
                                      succeeds; only recurrent layers ask. NULL: none are */
} specdec__batch;

/* States that a step hands out: layers[i], the residual stream after so many layers; or SPECDEC_STATE_FINAL. */
typedef struct specdec__taps {
    const int *layers; /* (count) */
    int count;
    int first;         /* the first of the nodes that are run whose states are wanted */
    float *out;        /* (wanted nodes, count, embedding); NULL: none are */
} specdec__taps;

/* Buffers of one thread. */
typedef struct specdec__scratch {
    specdec__panel *panel;     /* (2) */
    unsigned char *tile;       /* (2): 16 rows x 256 values, repacked when weights stay in the file */
    float *sums;               /* (2, 64 columns, 16 rows) */
    float *keys, *values;      /* two pages as floats, unless they are tiles: (2, dim, 64) and (2, 64, dim) */
    int page[2], slots[2];     /* which pages of the unit at work those are, as many of their slots; -1: none */
    float *gathered;           /* (64, dim): values of a block that lies in several pages; NULL where they are tiles */
    unsigned char *page_codes; /* such a block of a head as a page would hold it, where they are tiles; else NULL */
    float *queries;            /* (4, dim) */
    float *scores;             /* (4, 64) or, where keys are tiles, (4, SPECDEC__SCORES, 16) */
    unsigned char *codes;      /* the weights of values that are tiles: (64 queries, 64); or (dim) */
    float *out;                /* (dim): a value, padded with zeros */
    float *inputs;             /* (layers * width): a row of embeddings for layers */
    float *partner;            /* (dim) */
    float *states;             /* copies of the matrix of a recurrent layer's head, for branches of trees */
    uint64_t state_read, state_written; /* bytes of states and of inputs, in this step */
    int half;                  /* what it is at work on: 2 * layer, + 1: its feed-forward network; -1: embeddings */
} specdec__scratch;

/* At most SPECDEC__COLUMNS columns that go through one expert. */
typedef struct specdec__job {
    int expert, column, count;
} specdec__job;

/* Which experts the rows of a step go through. Each row is a column for each of its experts; those of an expert lie
   side by side. */
typedef struct specdec__routes {
    int *expert;       /* (n, chosen): of a row, best first */
    float *share;      /* (n, chosen): what they count for */
    int *column;       /* (n, chosen): where they are */
    int *row;          /* (n * chosen): whose a column is */
    int *begin;        /* (experts + 1): the columns of an expert */
    specdec__job *job; /* (n * chosen) */
    int jobs;
} specdec__routes;

struct specdec__context;

/* What is called in each step of a model that is a part of one. */
typedef struct specdec__forward_hooks {
    void (*between)(struct specdec__context *c); /* before each layer */
    /* Before a batch that is prepared changes any state; its error is that of the step. NULL: nothing. */
    specdec_result (*begin)(struct specdec__context *c, specdec_error *error);
    /* Runs the layers behind the last one, and hands out the rows of the batch; or, where that has ended early with a
       result, lets those behind know, and returns that. NULL: nobody does. */
    specdec_result (*beyond)(struct specdec__context *c, specdec_result result, specdec_error *error);
} specdec__forward_hooks;

/* A row of a step of recurrent layers: a token that waits to be applied to the state, or a node. */
typedef struct specdec__mix_row {
    int node;           /* row of the buffers; -1: it was run by an earlier step */
    int place;          /* of what is kept of it; -1: nothing */
    int before;         /* the row before it; -1: the state */
    int child, sibling; /* of nodes that are not certain */
    int weight;         /* nodes that are run, among it and those behind it */
} specdec__mix_row;

/* A row is applied to copy `to` of the state, which is first made of copy `from`; -1: of the state. */
typedef struct specdec__mix_step {
    int row, from, to;
} specdec__mix_step;

/* What a step does with the states of a view. */
typedef struct specdec__mix_part {
    specdec__view *view;
    int from, to;         /* slots of the state that is read, -1: zeros, and written, -1: none is */
    int first;            /* of its rows */
    int waiting, certain; /* rows: first those that wait, then the certain ones, to which `base` is the last */
    int base;
    int walk, walks;      /* steps through the others */
} specdec__mix_part;

/* The rows of a step of recurrent layers, and buffers. */
typedef struct specdec__mixes {
    specdec__mix_row *row;         /* (rows) */
    specdec__mix_step *step, *stack;
    specdec__mix_part *part;       /* (parts) */
    int rows, steps, parts;
    int room;                      /* for rows */
    unsigned char *done;           /* (layers, parts, heads + 1): what a layer's step has done: see forward_mix */
    int *of;                       /* (most): the row of a node */
    int raw_stride, made_stride, inner;
    float *raw;                    /* (n, raw_stride): what the first matrices make */
    float *made;                   /* (rows, made_stride): after the convolution; then decays and rates of heads */
    float *zeros;                  /* (channels) */
    float *unit;                   /* (2, rows of a head): weights by which a norm makes queries and keys of length 1 */
    float *beside;                 /* (most, e): x and what such a layer adds to it, where attention is added, too */
} specdec__mixes;

/* What a step makes of rows of logits: the logits; bounds of them (see >>forward/screen); nothing, as no row will be
   looked at. */
enum { SPECDEC__SCREEN_LOGITS, SPECDEC__SCREEN_BOUNDS, SPECDEC__SCREEN_NOTHING };

typedef struct specdec__screen {
    int asked;       /* the least that will do for whoever reads the rows of the steps to come */
    int bounds;      /* what the last step made: 0: logits */
    float *norms;    /* (most_rows, SPECDEC__PLANE_PARTS): of the columns that the output matrix was multiplied with */
    int pause, left; /* steps that are read whole behind one whose bounds did not help, and those of them to come */
    uint64_t rows, read, whole; /* as in specdec_info */
    int64_t saved;
} specdec__screen;

/* A model with its KV cache and everything a step needs. */
typedef struct specdec__context {
    const specdec__model *model;
    const specdec__kernels *kernels;
    specdec__pool *pool;
    int threads;               /* of the pool's, as many as help */
    int checks;                /* values that are no numbers are noted; those of a draft model only cost time */
    int unsound;               /* whether any row of the step under way has such a value; then */
    int *wrong;                /* (most) by row: the half (see specdec__scratch) where that began, + 2; where it is a
                                  key or value that the cache cannot hold, the same below 0; 0: all are numbers */
    /* the step under way */
    const specdec__batch *batch;
    int first, n, row_count;   /* nodes [first, first + n) are run: row i of the buffers is node first + i */
    /* for all steps */
    int most;                  /* nodes of a step, at most */
    int most_rows;             /* rows of logits of a step, at most */
    int room_for_sums;         /* of how many queries, each in a stretch; see specdec__forward_stretches */
    specdec__scratch *scratch; /* (threads) */
    const specdec__matrix *embedding, *output; /* the model's, or those that it borrows */
    int e;                     /* stride of rows of an embedding's width: see specdec__forward_stride; below, q, k, v
                                  and ff are those of the widest layer */
    float *x;                  /* (most, e): residual stream */
    float *h;                  /* (most, max(e, heads times values, twice e where the layer reads states)): what the
                                  next matrix reads; while a layer attends, gates of its heads; after a step, states:
                                  (row_count, e) */
    float *cosine, *sine;      /* (2, most, dim): of SPECDEC__ROPE, of SPECDEC__ROPE_OTHER if a layer has it */
    float *beside;             /* (most, e): x and what attention adds to it, where the feed-forward network reads the
                                  same x; NULL: it does not */
    float *inputs;             /* (most, layers * width of embeddings for layers); NULL: there are none */
    float *streams;            /* (streams - 1, most, e): all streams but x; NULL: none. See >>forward/streams */
    float *predicted;          /* (most, e): x as the layer at work has predicted it */
    float *stream_router;      /* (most, 16): what the layer's router of streams says */
    float *convs, *mixed;      /* (most, weights), (most, e): of convolutions over a block; NULL: there are none */
    const double *frequency[2];
    /* while a layer attends */
    float *rotated;            /* (most, heads, dim): queries, rotated and scaled, padded as keys are */
    float *queries;            /* (most, q): and their gates, if there are any, until they are rotated */
    float *keys, *values;      /* (most, k), (most, v): until they are stored */
    /* of latent attention: see >>forward/latent */
    float *low;                /* (most, rank of queries): what attn_q_b reads, before its norm */
    float *absorbed;           /* (most, heads * rank) */
    float *latent_columns;     /* (heads, n, rank or what stays still of a query): columns of the heads' matrices */
    specdec__attention_sums sums;        /* then, in that place, (room_for_sums) of queries (n, heads), by stretch */
    /* the rest of the time, in the same place */
    float *hidden;             /* (most, ff): gate, then gated feed-forward; of experts, (most * chosen, their ff) */
    float *y;                  /* (most, max(e, ff, stride of experts)): up; what the router says; what x grows by */
    float *up, *parts;         /* of a mixture: up, as large as hidden; what experts give: (most * chosen, what they
                                  read); what the shared one gives: (most, e) */
    float *latent;             /* (most, latent): what experts read, then the sum of what they give; NULL: these are h
                                  and y */
    float *shared_router;      /* (most): what the shared expert's router says */
    specdec__routes routes;
    specdec__mixes mix;         /* of recurrent layers; raw and made lie in that place, too */
    specdec__columns columns;
    specdec__columns turned;   /* rotated queries as columns (kv head, node, query head), where keys are tiles */
    int *slots[SPECDEC__SPANS]; /* (most) by node */
    int *place, *position;     /* (most) by node: how many keys lie before its own, what RoPE turns it by */
    int *trunk;                /* (most) by node: whether all nodes before it in its view are its ancestors */
    specdec__key_range stretches[SPECDEC__SPANS]; /* those that any node sees a key of */
    int *rows;                 /* (row_count) rows of the buffers whose logits are wanted */
    float *logits;             /* (most_rows, output rows) */
    specdec__screen screen;
    /* room for a batch */
    int32_t *tokens, *parents; /* (most) */
    specdec__view **views;     /* (most) */
    unsigned char *wanted;     /* (most) */
    unsigned char *certain;    /* (most) */
    int *path;                 /* (most): nodes to be committed */
    specdec__taps taps[SPECDEC__TAPS]; /* of the steps to come: a caller's, then those of drafters that read states */
    float *reads;              /* (n, specdec__forward_read_stride) states that the next step reads; NULL: x holds what
                                  comes of them, or it reads none. For architectures that read states */
    /* A thread's part of what is done between the rotation of queries and attention, in every layer; NULL: nothing */
    void (*recall)(struct specdec__context *c, int thread, const specdec__layer *layer);
    void *recalls;             /* what that works on */
    const specdec__forward_hooks *hooks; /* NULL: none */
    void *link;                /* what those work on */
    specdec__kv kv;
} specdec__context;

SPECDEC__FOR_SIZE

static void specdec__context_scratch(specdec__context *c, int threads, specdec__arena *arena)
{
    const specdec__mixing *mixing = &c->model->mixing;
    specdec__scratch unused, *s;
    int i, copies = 1;

    while (mixing->layers && c->most >> copies)
        copies++;

    c->scratch = SPECDEC__TAKE(arena, specdec__scratch, threads);
    for (i = 0; i < threads; i++) {
        s = c->scratch ? &c->scratch[i] : &unused;
        s->panel = SPECDEC__TAKE(arena, specdec__panel, 2);
        s->tile = SPECDEC__TAKE(arena, unsigned char, 2 * SPECDEC__PANEL * SPECDEC__ROWS * 4);
        s->sums = SPECDEC__TAKE(arena, float, 2 * SPECDEC__COLUMNS * SPECDEC__ROWS);
        if (specdec__kv_types[c->kv.type].tiles) {
            s->page_codes = (unsigned char *)specdec__arena_take(arena, 1, c->kv.head_bytes, SPECDEC__CACHE_LINE);
            s->codes = SPECDEC__TAKE(arena, unsigned char,
                                     specdec__max_int(SPECDEC__COLUMNS * SPECDEC__KEYS, c->kv.dim));
        } else {
            s->keys = SPECDEC__TAKE(arena, float, 2 * c->kv.dim * SPECDEC__KEYS);
            s->values = SPECDEC__TAKE(arena, float, 2 * c->kv.dim * SPECDEC__KEYS);
            s->gathered = SPECDEC__TAKE(arena, float, c->kv.dim * SPECDEC__KEYS);
        }
        s->queries = SPECDEC__TAKE(arena, float, 4 * c->kv.dim);
        s->scores = SPECDEC__TAKE(arena, float, (size_t)(specdec__kv_types[c->kv.type].tiles ? SPECDEC__SCORES : 4) *
                                                SPECDEC__KEYS);
        if (mixing->layers)
            s->states = SPECDEC__TAKE(arena, float, (size_t)copies * specdec__mixing_head(mixing));
        s->out = SPECDEC__TAKE(arena, float, c->kv.dim);
        s->partner = SPECDEC__TAKE(arena, float, c->kv.dim);
        s->inputs = SPECDEC__TAKE(arena, float, c->model->inputs.width * c->model->layers);
    }
}

/* Floats between rows that make them an odd number of cache lines: else rows compete for the same sets. */
#define SPECDEC__APART 16

static int specdec__forward_stride(int width) { return specdec__round_up(width, 32) + SPECDEC__APART; }

/* What norms of rows of x are. */
SPECDEC__INLINE specdec__norm_function *specdec__forward_norm(const specdec__context *c)
{
    return c->model->trait[SPECDEC__LAYER_NORM] ? c->kernels->layer_norm : c->kernels->norm;
}

/* Where a layer's keys and values lie in the cache. */
SPECDEC__INLINE const specdec__kv_layer *specdec__context_keys(const specdec__context *c, const specdec__layer *layer)
{
    return &c->kv.layer[layer->index];
}

/* Floats between rows of the states that a model reads. */
static int specdec__forward_read_stride(const specdec__model *m)
{
    return specdec__forward_stride(m->reads.count * m->reads.width);
}

static void specdec__columns_take(specdec__columns *columns, size_t count, size_t width, specdec__arena *arena)
{
    columns->codes = SPECDEC__TAKE(arena, int8_t, count * width);
    columns->scale = SPECDEC__TAKE(arena, float, count * (width / 32));
    columns->pair32 = SPECDEC__TAKE(arena, int32_t, count * (width / 32));
    columns->pair16 = SPECDEC__TAKE(arena, int32_t, count * (width / 16));
    columns->sum32 = SPECDEC__TAKE(arena, float, count * (width / 32));
    columns->sum16 = SPECDEC__TAKE(arena, float, count * (width / 16));
}

/* Columns that matrices of a step are multiplied by, at most. */
static size_t specdec__context_columns(const specdec__context *c)
{
    return (size_t)c->most * (size_t)(specdec__model_mixes(c->model) ? c->model->chosen : 1);
}

static void specdec__context_routes(specdec__context *c, specdec__arena *arena)
{
    const size_t columns = specdec__context_columns(c);

    c->routes.expert = SPECDEC__TAKE(arena, int, columns);
    c->routes.share = SPECDEC__TAKE(arena, float, columns);
    c->routes.column = SPECDEC__TAKE(arena, int, columns);
    c->routes.row = SPECDEC__TAKE(arena, int, columns);
    c->routes.begin = SPECDEC__TAKE(arena, int, c->model->experts + 1);
    c->routes.job = SPECDEC__TAKE(arena, specdec__job, columns);
}

/* What recurrent layers need, but for the rows that lie in the place of others. */
static void specdec__context_mix(specdec__context *c, const specdec__room *room, specdec__arena *arena)
{
    const specdec__mixing *m = &c->model->mixing;
    const size_t waiting = specdec__size_multiply((size_t)specdec__min_int(room->views, c->most), (size_t)room->tree);
    const size_t rows = specdec__size_add((size_t)c->most, waiting);
    int i;

    c->mix.raw_stride = specdec__forward_stride(m->row);
    c->mix.inner = specdec__forward_stride(m->inner);
    c->mix.made_stride = specdec__forward_stride(m->channels + 2 * specdec__round_up(m->heads, 16));
    c->mix.room = rows < 1 << 30 ? (int)rows : 1 << 30;
    c->mix.row = SPECDEC__TAKE(arena, specdec__mix_row, rows);
    c->mix.step = SPECDEC__TAKE(arena, specdec__mix_step, c->most);
    c->mix.stack = SPECDEC__TAKE(arena, specdec__mix_step, c->most);
    c->mix.part = SPECDEC__TAKE(arena, specdec__mix_part, specdec__min_int(room->views, c->most));
    c->mix.done = (unsigned char *)specdec__arena_take(
        arena, specdec__size_multiply((size_t)m->layers, (size_t)specdec__min_int(room->views, c->most)),
        (size_t)m->heads + 1, 1);
    c->mix.of = SPECDEC__TAKE(arena, int, c->most);
    if (m->layers)
        c->mix.made = SPECDEC__TAKE(arena, float, specdec__size_multiply(rows, (size_t)c->mix.made_stride));
    c->mix.zeros = SPECDEC__TAKE(arena, float, m->channels);
    c->mix.unit = SPECDEC__TAKE(arena, float, 2 * m->rows);
    if (c->model->trait[SPECDEC__RECURS] == SPECDEC__BESIDE)
        c->mix.beside = SPECDEC__TAKE(arena, float, (size_t)c->most * (size_t)specdec__forward_stride(
                                                                          c->model->embedding));
    for (i = 0; c->mix.unit && i < m->rows; i++) {
        c->mix.unit[i] = (float)(1.0 / m->rows);
        c->mix.unit[m->rows + i] = (float)specdec__inverse_root((double)m->rows);
    }
}

/* What residual streams beside x need. */
static void specdec__context_streams(specdec__context *c, size_t n, specdec__arena *arena)
{
    c->streams = SPECDEC__TAKE(arena, float, (size_t)(c->model->streams.count - 1) * n * (size_t)c->e);
    c->predicted = SPECDEC__TAKE(arena, float, n * (size_t)c->e);
    c->stream_router = SPECDEC__TAKE(arena, float, n * 16);
}

/* What layers need while they attend, and the rest of the time: never both, so they share memory. So do what is rotated
   or stored and what attention then sums up. */
static void specdec__context_halves(specdec__context *c, size_t n, specdec__arena *arena)
{
    const specdec__model *m = c->model;
    const size_t heads = (size_t)m->heads, sums = (size_t)c->room_for_sums, begin = arena->used;
    const size_t columns = specdec__context_columns(c);
    const int routed = specdec__forward_stride(m->experts), ff = specdec__forward_stride(m->feed_forward);
    size_t rotated, end, inner;

    c->rotated = SPECDEC__TAKE(arena, float, n * heads * (size_t)c->kv.dim);
    rotated = arena->used;
    c->queries = SPECDEC__TAKE(arena, float, n * (size_t)specdec__forward_stride(m->q_width));
    c->keys = SPECDEC__TAKE(arena, float, n * (size_t)specdec__forward_stride(m->k_width));
    c->values = SPECDEC__TAKE(arena, float, n * (size_t)specdec__forward_stride(m->v_width));
    if (m->latent_attention.rank) {
        c->low = SPECDEC__TAKE(arena, float, n * (size_t)specdec__forward_stride(m->latent_attention.query_rank));
        c->absorbed = SPECDEC__TAKE(arena, float, n * (size_t)specdec__forward_stride(m->heads *
                                                                                      m->latent_attention.rank));
    }
    end = specdec__arena_rewind(arena, rotated);
    c->sums.highest = SPECDEC__TAKE(arena, float, sums);
    c->sums.width = 16 + c->kv.dim;
    c->sums.row = SPECDEC__TAKE(arena, float, sums * (size_t)c->sums.width);
    specdec__arena_skip_to(arena, end);
    end = specdec__arena_rewind(arena, begin);
    inner = n * (size_t)ff;
    if (specdec__model_mixes(m) && inner < columns * (size_t)specdec__forward_stride(m->expert_ff))
        inner = columns * (size_t)specdec__forward_stride(m->expert_ff);
    if (inner < n * (size_t)specdec__forward_stride(specdec__max_int(m->inputs.width, m->trait[SPECDEC__LAUREL])))
        inner = n * (size_t)specdec__forward_stride(specdec__max_int(m->inputs.width, m->trait[SPECDEC__LAUREL]));
    c->hidden = SPECDEC__TAKE(arena, float, inner);
    c->y = SPECDEC__TAKE(arena, float, n * (size_t)specdec__max_int(specdec__max_int(c->e, ff), routed));
    if (specdec__model_mixes(m)) {
        c->up = SPECDEC__TAKE(arena, float, inner);
        c->parts = SPECDEC__TAKE(arena, float,
                                 columns * (size_t)specdec__max_int(c->e, specdec__forward_stride(m->latent)));
        c->latent = m->latent ? SPECDEC__TAKE(arena, float, n * (size_t)specdec__forward_stride(m->latent)) : NULL;
        c->shared_router = SPECDEC__TAKE(arena, float, n);
    }
    specdec__arena_skip_to(arena, end);
    end = specdec__arena_rewind(arena, begin);
    if (SPECDEC__RECURRENT && c->model->mixing.layers)
        c->mix.raw = SPECDEC__TAKE(arena, float, n * (size_t)c->mix.raw_stride);
    specdec__arena_skip_to(arena, end);
}

/* Lays out a context for the views and steps that `room` tells of, and most_rows rows of logits. The embedding, the
   output and the keys that a model lacks are the lender's. */
static void specdec__context_init(specdec__context *c, const specdec__model *model, const specdec__context *lender,
                                  const specdec__kernels *kernels, specdec__pool *pool, int threads, int kv_type,
                                  const specdec__room *room, int most_rows, specdec__arena *arena)
{
    const int is_long = model->rope_frequency[SPECDEC__ROPE_LONG] && room->length > model->rope_original;
    const int beside = model->trait[SPECDEC__READS_STATES] == SPECDEC__BESIDE_EMBEDDINGS || model->reads.joined;
    const int reads = beside ? specdec__forward_stride(2 * model->embedding) : 0;
    size_t n = (size_t)room->most, widest, ropes;
    size_t heads = 0, wide = 0; /* columns of heads, and how long they are */
    int i, attended;

    memset(c, 0, sizeof *c);
    c->model = model;
    c->embedding = model->token_embedding.type ? &model->token_embedding : lender->embedding;
    c->output = model->output.type ? &model->output : lender->output;
    c->kernels = kernels;
    c->pool = pool;
    c->threads = threads;
    c->most = room->most;
    c->most_rows = model->bare ? 0 : most_rows;
    c->room_for_sums = model->heads * room->most *
                       (room->length + room->most > SPECDEC__STRETCH * SPECDEC__KEYS ? 2 : 1);
    c->frequency[0] = model->rope_frequency[is_long ? SPECDEC__ROPE_LONG : SPECDEC__ROPE];
    c->frequency[1] = model->rope_frequency[SPECDEC__ROPE_OTHER];
    ropes = model->trait[SPECDEC__OTHER_BASE] != 0 ? 2 : 1;
    if (lender && model->trait[SPECDEC__SIGHT] == SPECDEC__SEES_TEXT)
        specdec__kv_lend(&c->kv, &lender->kv, model, arena);
    else
        specdec__kv_init(&c->kv, kv_type, model, room, arena);
    specdec__context_scratch(c, threads, arena);
    if (specdec__mixing_is(&model->mixing))
        specdec__context_mix(c, room, arena);
    c->e = specdec__forward_stride(model->embedding);
    attended = specdec__forward_stride(model->o_width);
    if (model->latent_attention.rank) {
        const specdec__latent *latent = &model->latent_attention;

        heads = n * (size_t)model->heads;
        attended = specdec__max_int(attended, specdec__forward_stride(latent->query_rank));
        wide = (size_t)specdec__forward_stride(specdec__max_int(latent->rank, latent->key_dim));
        c->latent_columns = SPECDEC__TAKE(arena, float, heads * wide);
    }
    widest = (size_t)specdec__max_int(specdec__max_int(c->e, attended),
                                      specdec__max_int(specdec__forward_stride(model->feed_forward), reads));
    widest = (size_t)specdec__max_int((int)widest, specdec__forward_stride(specdec__max_int(model->expert_ff,
                                                                                            model->latent)));
    widest = (size_t)specdec__max_int((int)widest, model->reads.count ? specdec__forward_read_stride(model) : 0);
    widest = (size_t)specdec__max_int((int)widest, specdec__forward_stride(model->block.markov_in.columns));
    widest = (size_t)specdec__max_int((int)widest, c->mix.inner);
    widest = (size_t)specdec__max_int((int)widest, specdec__forward_stride(specdec__max_int(
                                                       model->inputs.width, model->trait[SPECDEC__LAUREL])));
    c->x = SPECDEC__TAKE(arena, float, n * (size_t)c->e);
    c->h = SPECDEC__TAKE(arena, float, n * (size_t)specdec__max_int(specdec__max_int(c->e, attended),
                                                                    specdec__max_int(reads, c->mix.inner)));
    c->beside = model->trait[SPECDEC__PARALLEL] ? SPECDEC__TAKE(arena, float, n * (size_t)c->e) : NULL;
    c->cosine = SPECDEC__TAKE(arena, float, ropes * n * (size_t)c->kv.dim);
    c->sine = SPECDEC__TAKE(arena, float, ropes * n * (size_t)c->kv.dim);
    if (model->inputs.width)
        c->inputs = SPECDEC__TAKE(arena, float, n * (size_t)specdec__forward_stride(model->inputs.width *
                                                                                    model->layers));
    if (model->streams.count)
        specdec__context_streams(c, n, arena);
    if (model->block.taps) {
        const int weights = 2 * model->block.taps * (model->embedding / model->block.group);

        c->convs = SPECDEC__TAKE(arena, float, n * (size_t)specdec__forward_stride(weights));
        c->mixed = SPECDEC__TAKE(arena, float, n * (size_t)c->e);
    }
    specdec__context_halves(c, n, arena);
    if (heads * wide > specdec__context_columns(c) * widest) /* they take the room of one another */
        specdec__columns_take(&c->columns, heads, wide, arena);
    else
        specdec__columns_take(&c->columns, specdec__context_columns(c), widest, arena);
    if (specdec__model_mixes(model))
        specdec__context_routes(c, arena);
    if (specdec__kv_types[kv_type].tiles)
        specdec__columns_take(&c->turned, n * (size_t)model->heads, (size_t)c->kv.dim, arena);
    for (i = 0; i < SPECDEC__SPANS; i++)
        c->slots[i] = SPECDEC__TAKE(arena, int, n);
    c->place = SPECDEC__TAKE(arena, int, n);
    c->position = SPECDEC__TAKE(arena, int, n);
    c->trunk = SPECDEC__TAKE(arena, int, n);
    c->rows = SPECDEC__TAKE(arena, int, n);
    c->wrong = SPECDEC__TAKE(arena, int, n);
    c->logits = SPECDEC__TAKE(arena, float,
                              specdec__size_add(specdec__size_multiply((size_t)c->most_rows, (size_t)c->output->rows),
                                                15));
    c->screen.norms = SPECDEC__TAKE(arena, float, specdec__size_multiply((size_t)c->most_rows, SPECDEC__PLANE_PARTS));
    c->tokens = SPECDEC__TAKE(arena, int32_t, n);
    c->parents = SPECDEC__TAKE(arena, int32_t, n);
    c->wanted = SPECDEC__TAKE(arena, unsigned char, n);
    c->certain = SPECDEC__TAKE(arena, unsigned char, n);
    c->path = SPECDEC__TAKE(arena, int, n);
    c->views = SPECDEC__TAKE(arena, specdec__view *, n);
}

/* A view of as many keys as room->length says, and of the nodes of a step. kept: of an ended sequence, without nodes.
   */
static void specdec__context_view(const specdec__context *c, specdec__view *view, const specdec__room *room, int kept,
                                  specdec__arena *arena)
{
    specdec__view_init(view, &c->kv, (room->length + 2 * room->most) / SPECDEC__KEYS + 2, kept ? 0 : room->tree,
                       arena);
}

SPECDEC__FOR_SPEED
