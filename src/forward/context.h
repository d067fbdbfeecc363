/* =====================================================================================================================
 * >>forward/context: what a forward pass works with: its batch, buffers and caches. It knows no speculation: nodes in,
 *     rows of logits out.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/pool.h"
#include "../kernel/kernel.h"
#include "../model/model.h"
#include "../cache/kv.h"

#define SPECDEC__COLUMNS 64 /* columns that share one pass over the weights; wider steps take several */
#define SPECDEC__SCORES 65  /* columns with room for their scores of a tile: one more, as 4096 bytes apart are slow */
#define SPECDEC__STRETCH 8  /* blocks of keys of which sums are kept apart and then merged: 512 keys */

/* The nodes of a step, in topological order. The first `done` of them have been run by an earlier call, since which no
   view has changed: only their keys and values are looked at. */
typedef struct specdec__batch {
    int n, done;
    const int32_t *tokens;         /* (n) */
    const int32_t *parents;        /* (n): an earlier node of the same view, or -1: the view's end */
    specdec__view *const *views;   /* (n) */
    const unsigned char *wanted;   /* (n): rows of logits to compute; NULL: all that are run */
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
    /* Runs the layers behind the last one, and hands out the rows of the batch. NULL: nobody does. */
    specdec_result (*beyond)(struct specdec__context *c, specdec_error *error);
} specdec__forward_hooks;

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
    const double *frequency[2];
    /* while a layer attends */
    float *rotated;            /* (most, heads, dim): queries, rotated and scaled, padded as keys are */
    float *queries;            /* (most, q): and their gates, if there are any, until they are rotated */
    float *keys, *values;      /* (most, k), (most, v): until they are stored */
    specdec__sums sums;        /* then, in that place, (room_for_sums) of queries (n, heads), stretch by stretch */
    /* the rest of the time, in the same place */
    float *hidden;             /* (most, ff): gate, then gated feed-forward */
    float *y;                  /* (most, max(e, ff, stride of experts)): up; what the router says; what x grows by */
    float *up, *parts;         /* of experts, hidden is (most * chosen, ff), as is up; (most * chosen, e): what they
                                  give */
    specdec__routes routes;
    specdec__columns columns;
    specdec__columns turned;   /* rotated queries as columns (kv head, node, query head), where keys are tiles */
    int *slots[SPECDEC__SPANS]; /* (most) by node */
    int *place, *position;     /* (most) by node: how many keys lie before its own, what RoPE turns it by */
    int *trunk;                /* (most) by node: whether all nodes before it in its view are its ancestors */
    specdec__range stretches[SPECDEC__SPANS]; /* those that any node sees a key of */
    int *rows;                 /* (row_count) rows of the buffers whose logits are wanted */
    float *logits;             /* (most_rows, output rows) */
    /* room for a batch */
    int32_t *tokens, *parents; /* (most) */
    specdec__view **views;     /* (most) */
    unsigned char *wanted;     /* (most) */
    int *path;                 /* (most): nodes to be committed */
    specdec__taps taps[2];     /* of the steps to come: a caller's, the drafters' */
    float *reads;              /* (n, specdec__forward_read_stride) states that the next step reads; NULL: x holds what
                                  comes of them. For architectures that read states */
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
    specdec__scratch unused, *s;
    int i;

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

/* What layers need while they attend, and the rest of the time: never both, so they share memory. So do what is rotated
   or stored and what attention then sums up. */
static void specdec__context_halves(specdec__context *c, size_t n, specdec__arena *arena)
{
    const specdec__model *m = c->model;
    const size_t heads = (size_t)m->heads, sums = (size_t)c->room_for_sums, begin = arena->used;
    const size_t columns = specdec__context_columns(c);
    const int routed = specdec__forward_stride(m->experts), ff = specdec__forward_stride(m->feed_forward);
    size_t rotated, end;

    c->rotated = SPECDEC__TAKE(arena, float, n * heads * (size_t)c->kv.dim);
    rotated = arena->used;
    c->queries = SPECDEC__TAKE(arena, float, n * (size_t)specdec__forward_stride(m->q_width));
    c->keys = SPECDEC__TAKE(arena, float, n * (size_t)specdec__forward_stride(m->k_width));
    c->values = SPECDEC__TAKE(arena, float, n * (size_t)specdec__forward_stride(m->v_width));
    end = specdec__arena_again(arena, rotated);
    c->sums.highest = SPECDEC__TAKE(arena, float, sums);
    c->sums.width = 16 + c->kv.dim;
    c->sums.row = SPECDEC__TAKE(arena, float, sums * (size_t)c->sums.width);
    specdec__arena_beyond(arena, end);
    end = specdec__arena_again(arena, begin);
    c->hidden = SPECDEC__TAKE(arena, float, columns * (size_t)specdec__max_int(
                                                          ff, specdec__forward_stride(m->inputs.width)));
    c->y = SPECDEC__TAKE(arena, float, n * (size_t)specdec__max_int(specdec__max_int(c->e, ff), routed));
    if (specdec__model_mixes(m)) {
        c->up = SPECDEC__TAKE(arena, float, columns * (size_t)ff);
        c->parts = SPECDEC__TAKE(arena, float, columns * (size_t)c->e);
    }
    specdec__arena_beyond(arena, end);
}

/* Lays out a context for the views and steps that `room` tells of, and most_rows rows of logits. The embedding and the
   output that a model lacks are the lender's. */
static void specdec__context_init(specdec__context *c, const specdec__model *model, const specdec__model *lender,
                                  const specdec__kernels *kernels, specdec__pool *pool, int threads, int kv_type,
                                  const specdec__room *room, int most_rows, specdec__arena *arena)
{
    const int is_long = model->rope_frequency[SPECDEC__ROPE_LONG] && room->length > model->rope_original;
    const int reads = model->trait[SPECDEC__READS_STATES] ? specdec__forward_stride(2 * model->embedding) : 0;
    size_t n = (size_t)room->most, widest, ropes;
    int i, attended;

    memset(c, 0, sizeof *c);
    c->model = model;
    c->embedding = model->token_embedding.type ? &model->token_embedding : &lender->token_embedding;
    c->output = model->output.type ? &model->output : &lender->output;
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
    specdec__kv_init(&c->kv, kv_type, model, room, arena);
    specdec__context_scratch(c, threads, arena);
    c->e = specdec__forward_stride(model->embedding);
    attended = specdec__forward_stride(model->o_width);
    widest = (size_t)specdec__max_int(specdec__max_int(c->e, attended),
                                      specdec__max_int(specdec__forward_stride(model->feed_forward), reads));
    widest = (size_t)specdec__max_int((int)widest, reads ? specdec__forward_read_stride(model)
                                                         : specdec__forward_stride(model->inputs.width));
    c->x = SPECDEC__TAKE(arena, float, n * (size_t)c->e);
    c->h = SPECDEC__TAKE(arena, float, n * (size_t)specdec__max_int(specdec__max_int(c->e, attended), reads));
    c->beside = model->trait[SPECDEC__PARALLEL] ? SPECDEC__TAKE(arena, float, n * (size_t)c->e) : NULL;
    c->cosine = SPECDEC__TAKE(arena, float, ropes * n * (size_t)c->kv.dim);
    c->sine = SPECDEC__TAKE(arena, float, ropes * n * (size_t)c->kv.dim);
    if (model->inputs.width)
        c->inputs = SPECDEC__TAKE(arena, float, n * (size_t)specdec__forward_stride(model->inputs.width *
                                                                                    model->layers));
    specdec__context_halves(c, n, arena);
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
    c->tokens = SPECDEC__TAKE(arena, int32_t, n);
    c->parents = SPECDEC__TAKE(arena, int32_t, n);
    c->wanted = SPECDEC__TAKE(arena, unsigned char, n);
    c->path = SPECDEC__TAKE(arena, int, n);
    c->views = SPECDEC__TAKE(arena, specdec__view *, n);
}

/* A view of as many keys as room->length says, and of the nodes of a step. */
static void specdec__context_view(specdec__view *view, const specdec__room *room, specdec__arena *arena)
{
    specdec__view_init(view, (room->length + 2 * room->most) / SPECDEC__KEYS + 2, arena);
}

SPECDEC__FOR_SPEED
