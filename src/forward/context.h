/* =====================================================================================================================
 * >>forward/context: a forward pass: its batch of nodes, buffers, cache and hooks. It knows no speculation: nodes go
 *     in, rows of logits come out.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/pool.h"
#include "../base/op.h"
#include "../kernel/kernel.h"
#include "../model/model.h"
#include "../cache/state.h"
#include "../cache/kv.h"

#define SPECDEC__PASS_COLUMNS 64   /* columns that share one pass over the weights; a wider step takes several passes */
#define SPECDEC__SCORE_COLUMNS 65  /* columns of scores that there is memory for: with 64, rows of scores would be 4096
                                      bytes apart and share a cache set */
#define SPECDEC__STATE_READERS 5   /* readers of hidden states in one step: a caller, and drafters */
#define SPECDEC__STRETCH_BLOCKS 8  /* blocks of 64 keys in a stretch, whose sums are separate until they are merged */

/* The nodes of a step, parents before children. The first done_count nodes were run by an earlier step, since when no
   view has changed: only their keys and values are read. */
typedef struct specdec__batch {
    int n, done_count;             /* all nodes; nodes that an earlier step has run */
    const int32_t *tokens;         /* (n) token id of each node */
    const int32_t *parents;        /* (n) an earlier node of the same view; -1: the last committed token of the view */
    specdec__view *const *views;   /* (n) view of each node: the keys of its sequence */
    const unsigned char *wants_logits; /* (n) 1: a row of logits is computed for the node; NULL: for all nodes that are
                                      run */
    const unsigned char *certain;  /* (n) 1: certain to be committed if the step succeeds, as the tokens of a prompt:
                                      the first nodes of a view, each the parent of the next; read by recurrent layers
                                      only. NULL: none is */
} specdec__batch;

/* A reader of hidden states, for which a step copies them: the residual stream before layer number layers[i] of the
   model; or, with SPECDEC_STATE_FINAL, the state behind the final norm. */
typedef struct specdec__state_reader {
    const int *layers; /* (count) layers before which states are copied, or SPECDEC_STATE_FINAL */
    int count;         /* states of each node */
    int first_node;    /* the first of the step's nodes whose states are copied */
    float *out;        /* (nodes from the first on, count, embedding); NULL: no states are copied */
} specdec__state_reader;

/* Buffers of one thread. dim: the largest padded size of a head. */
typedef struct specdec__scratch {
    specdec__panel *panel;     /* (2) unpacked weights of two tiles */
    unsigned char *tile;       /* (2, 16 rows x 256 values) tiles that are repacked as they are needed, where weights
                                  stay in the file */
    float *sums;               /* (2, 64 columns, 16 rows) products of two tiles */
    float *keys, *values;      /* two pages of one head as floats: (2, dim, 64) and (2, 64, dim); NULL where the cache
                                  has 8-bit codes */
    int page_held[2], slots_held[2]; /* pages that `keys` and `values` hold for the current unit, and how many of their
                                  slots; -1: none */
    float *gathered;           /* (64, dim) values of a block whose slots are in several pages; NULL where the cache has
                                  8-bit codes */
    unsigned char *page_codes; /* keys and values of such a block, as a page would hold them; NULL unless the cache has
                                  8-bit codes */
    float *queries;            /* (4, dim) queries that are made contiguous; or one key */
    float *scores;             /* (4, 64) or, where the cache has 8-bit codes, (4 tiles, SPECDEC__SCORE_COLUMNS, 16
                                  keys) */
    unsigned char *codes;      /* (64 queries, 64 keys) quantised weights of values, where the cache has 8-bit codes; or
                                  (dim) a quantised value */
    float *out;                /* (dim) a key or value, padded with zeros */
    float *layer_embeddings;   /* (layers * width) a token's row of the embeddings for layers */
    float *rope_partner;       /* (dim) for RoPE: each dimension's partner in its pair */
    float *state_copies;       /* (copies, rows, values) copies of the state matrix of a head, for branches of a tree */
    uint64_t state_read, state_written; /* bytes of states and their inputs that this step has read, written */
    int current_half;          /* the half of a layer at work: 2 * layer: attention; 2 * layer + 1: feed-forward
                                  network; -1: embeddings */
} specdec__scratch;

/* Columns [column, column + count), at most SPECDEC__PASS_COLUMNS, that one expert multiplies. */
typedef struct specdec__expert_job {
    int expert, column, count; /* number of the expert, first column, number of columns */
} specdec__expert_job;

/* The experts of each row of a step (mixture of experts). There is a column for each pair of a row and one of its
   experts; the columns of an expert are contiguous. */
typedef struct specdec__expert_routes {
    int *expert;       /* (n, chosen) experts of each row, best first */
    float *weight;     /* (n, chosen) weights of their outputs */
    int *column;       /* (n, chosen) column of each pair of row and expert */
    int *row;          /* (n * chosen) row of each column */
    int *first_column; /* (experts + 1) first column of each expert */
    specdec__expert_job *job; /* (jobs) columns of one expert each */
    int jobs;                 /* number of jobs, each of at most SPECDEC__PASS_COLUMNS columns */
} specdec__expert_routes;

struct specdec__context;

/* Functions that a cluster hooks into each step of a rank's part of a model. */
typedef struct specdec__forward_hooks {
    void (*before_layer)(struct specdec__context *c); /* called before each layer */
    /* Called once a batch is checked, before it changes any recurrent state. Its error is the step's error. NULL:
       none. */
    specdec_result (*begin)(struct specdec__context *c, specdec_error *error); /* called once a batch is checked */
    /* Called behind the last layer of this part with the step's result so far. If that is OK, it runs the layers of
       later ranks and fetches the rows of the batch; else it informs the later ranks and returns the result. NULL:
       none. */
    specdec_result (*after_layers)(struct specdec__context *c, specdec_result result, specdec_error *error);
} specdec__forward_hooks;

/* A row that recurrent layers process in a step: a waiting token, or a node. */
typedef struct specdec__recurrent_row {
    int node;           /* row of the step's buffers; -1: the token was run by an earlier step */
    int input_index;    /* entry of the view's stored inputs (specdec__state_inputs_address); -1: its inputs are not
                           stored */
    int parent;         /* the row of the previous token or parent node; -1: the view's current state */
    int child, sibling; /* first child and next sibling of an uncertain node; -1: none */
    int subtree_nodes;  /* nodes in its subtree that are run, itself included */
} specdec__recurrent_row;

/* One step of the walk through a tree: target_copy of the state is overwritten by source_copy (-1: by the state
   itself), then a row is applied to it. */
typedef struct specdec__recurrent_walk_step {
    int row, source_copy, target_copy; /* row that is applied, copies of the state before and after */
} specdec__recurrent_walk_step;

/* The rows of one view in a step of recurrent layers, and what happens to the view's state. */
typedef struct specdec__recurrent_part {
    specdec__view *view;  /* the view whose state is read and written */
    int read_slot, written_slot; /* slot of the state that is read, -1: zeros; slot that is written, -1: none */
    int first_row;        /* the view's first row */
    int waiting_tokens, certain_nodes; /* how many waiting tokens its first rows are; how many certain nodes its next
                                          ones */
    int base_row;               /* the last of these rows, whose state all other rows follow; first_row - 1: none */
    int first_step, step_count; /* first step, and number of steps, of the walk through the uncertain nodes */
} specdec__recurrent_part;

/* What recurrent layers process in a step: rows by view, and the buffers of these layers. */
typedef struct specdec__recurrent_rows {
    specdec__recurrent_row *row;                     /* (rows) waiting tokens and nodes of all views */
    specdec__recurrent_walk_step *step, *walk_stack; /* (steps) walks through the trees of all parts; (max_nodes) a
                                                        buffer for making them */
    specdec__recurrent_part *part;                   /* (parts) one for each view */
    int rows, steps, parts;        /* how many entries `row`, `step` and `part` have */
    int max_rows;                  /* rows that there is memory for */
    unsigned char *done;           /* (layers, parts, heads + 1) 1: this unit of work is done: see
                                      specdec__recurrent_run_layer */
    int *row_of_node;              /* (max_nodes) row of each node */
    int projected_stride, convolved_stride, output_stride; /* floats between rows of `projected`, of `convolved`, of
                                                              outputs in h */
    float *projected;              /* (n, projected_stride) outputs of a layer's input matrices */
    float *convolved;              /* (rows, convolved_stride) outputs of the convolution; then the decay and the rate
                                      of each head */
    float *zeros;                  /* (channels) zeros: inputs before the first token */
    float *unit_weights;           /* (2, rows) weights of the RMS norms of queries, then keys, of a head: scaled to
                                      length 1 / root(rows), and 1 */
    float *x_plus_output;          /* (max_nodes, e) x plus the output of a recurrent layer, where the same layer also
                                      attends; else NULL */
} specdec__recurrent_rows;

/* What a step computes for its wanted rows: logits; upper bounds of logits (>>forward/screen); nothing, as no row will
   be read. */
enum { SPECDEC__SCREEN_LOGITS, SPECDEC__SCREEN_BOUNDS, SPECDEC__SCREEN_NOTHING };

#define SPECDEC__SCREEN_GROUP 64 /* rows of the output matrix that are passed over together by their largest bound */

/* Whether and how steps screen the output matrix (>>forward/screen), and statistics of it. */
typedef struct specdec__screen {
    int needed;      /* SPECDEC__SCREEN_LOGITS, ..._BOUNDS or ..._NOTHING: the least that all readers of the next step's
                        rows need */
    int computed;    /* what the last step has computed: SPECDEC__SCREEN_LOGITS (0), ... */
    float *norms;    /* (max_rows, SPECDEC__PLANE_PARTS) norms of the columns that the output matrix was multiplied
                        by */
    float *largest;  /* (max_rows, specdec__screen_count_groups) largest bound of each group of 64 rows of the matrix */
    int too_large;   /* 1: some bound of the last step is no number, or so large that it cannot be relied on */
    int pause_steps, pause_left; /* steps without screening after a step whose bounds excluded too few rows; how many of
                                    them are left */
    uint64_t rows, rows_read, rows_whole;  /* rows of logits that were bounds first; rows of the matrix read for them;
                                              rows of logits read whole */
    int64_t saved;   /* bytes of weights that were not read; see specdec_info */
} specdec__screen;

/* A model with its cache and all buffers of a step. Buffers have rows for `max_nodes` nodes; e is the stride of rows of
   the embedding's width. */
typedef struct specdec__context {
    const specdec__model *model;     /* the model that is run */
    const specdec__kernels *kernels; /* functions for the processor's instruction set */
    specdec__pool *pool;       /* threads that run a step together */
    int threads;               /* threads of the pool that take part */
    int checks_values;         /* 1: values that are not finite are recorded; 0 for draft models, whose errors cannot
                                  change the text */
    int any_unsound;           /* 1: some row of the step has a value that is not sound: see `first_unsound` */
    int *first_unsound;        /* (max_nodes) by row: 2 + the half of a layer (see specdec__scratch) whose values were
                                  the first that are not finite; negative: a key or value there was too large for the
                                  cache; 0: all values are sound */
    /* the current step: */
    const specdec__batch *batch; /* the nodes of the step */
    int first_node, n, row_count; /* nodes [first_node, first_node + n) are run: row i of buffers is node first_node +
                                     i; row_count rows have logits */
    /* for all steps: */
    int max_nodes;             /* nodes of a step, at most */
    int max_rows;              /* rows of logits of a step, at most */
    int max_sums;              /* pairs of query and stretch whose sums there is memory for: see
                                  specdec__forward_seen_stretches */
    specdec__scratch *scratch; /* (threads) buffers of each thread */
    const specdec__matrix *embedding, *output; /* the model's, or those of the model that lends them (the target) */
    int e;                     /* floats between rows of the embedding's width: see specdec__forward_stride; in shapes
                                  below, q, k, v and ff are such strides for the widest layer */
    float *x;                  /* (max_nodes, e): residual stream */
    float *h;                  /* (max_nodes, max(e, heads times values, twice e where the layer reads states)) what the
                                  next matrix reads; during attention gates of its heads; after a step hidden states
                                  (row_count, e) */
    float *cosine, *sine;      /* (2, max_nodes, dim) for SPECDEC__ROPE and, if a layer has it,
                                  SPECDEC__ROPE_ALTERNATE */
    float *x_plus_attention;   /* (max_nodes, e) x plus the output of attention, where the feed-forward network reads
                                  the same x as attention; else NULL */
    float *layer_embeddings;   /* (max_nodes, layers * width) embeddings for layers; NULL: the model has none */
    float *streams;            /* (streams - 1, max_nodes, e) all residual streams but x (>>forward/streams); NULL: the
                                  model has one */
    float *predicted;          /* (max_nodes, e) the current layer's prediction of x */
    float *stream_router;      /* (max_nodes, 16) output of the current layer's router of streams */
    float *conv_weights, *conv_output; /* (max_nodes, weights) weights of convolutions over a block, (max_nodes, e)
                                          their output; NULL: the model has none */
    const double *frequency[2]; /* of SPECDEC__ROPE (in long contexts SPECDEC__ROPE_LONG) and of
                                   SPECDEC__ROPE_ALTERNATE: radians a position for each pair */
    /* during attention: */
    float *rotated;            /* (max_nodes, heads, dim) queries after RoPE, scaled and padded as keys are */
    float *queries;            /* (max_nodes, q) queries, and their gates if there are any, before RoPE */
    float *keys, *values;      /* (max_nodes, k), (max_nodes, v) before they are stored in the cache */
    /* for latent attention (>>forward/latent): */
    float *query_latent;       /* (max_nodes, rank of queries) what attn_q_b reads, before its norm */
    float *absorbed;           /* (max_nodes, heads * rank) unrotated parts of queries times attn_k_b */
    float *latent_columns;     /* (heads, n, size) inputs of the matrices of heads: unrotated parts of queries, or
                                  weighted sums of latent rows */
    specdec__attention_sums sums; /* (max_sums) maxima and weighted sums of queries (n, heads), by stretch; in
                                            the memory of `queries` and those behind it */
    /* outside attention, in the same memory: */
    float *hidden;             /* (max_nodes, ff) output of the gate, then the gated product; for experts (max_nodes *
                                  chosen, ff of an expert) */
    float *y;                  /* (max_nodes, max(e, ff, stride of experts)) output of `up`, of a router, or what is to
                                  be added to x */
    float *up, *expert_outputs; /* for experts: output of `up`, as large as hidden; outputs of experts (max_nodes *
                                  chosen, e or latent), then that of the shared expert (max_nodes, e) */
    float *latent;             /* (max_nodes, latent) what experts read, then the sum of their outputs; NULL: experts
                                  read h and add to y */
    float *shared_router;      /* (max_nodes) output of the shared expert's router */
    specdec__expert_routes routes; /* which experts each row goes through */
    specdec__recurrent_rows recurrent; /* rows and buffers of recurrent layers; its `projected` lies in this memory, too
                                          */
    specdec__columns columns;  /* quantised activations: the input of the current matrix */
    specdec__columns rotated_columns; /* rotated queries as quantised columns (kv head, node, query head), where the
                                         cache has 8-bit codes */
    int *slots[SPECDEC__SPANS]; /* (max_nodes) by node: its slot in each span */
    int *key_index, *position;  /* (max_nodes) by node: number of keys before its own; its position for RoPE */
    int *on_chain;              /* (max_nodes) by node: 1: all earlier nodes of its view are its ancestors */
    specdec__key_range stretches[SPECDEC__SPANS]; /* stretches that hold a key which any node sees */
    int *rows;                 /* (row_count) rows of the buffers whose logits are wanted */
    float *logits;             /* (max_rows, output rows) logits, or bounds, of the wanted rows of the last step */
    specdec__screen screen;    /* screening of the output matrix */
    /* arrays for a batch: */
    int32_t *tokens, *parents; /* (max_nodes) memory for these arrays of a specdec__batch */
    specdec__view **views;     /* (max_nodes) memory for this array of a specdec__batch */
    unsigned char *wants_logits; /* (max_nodes) memory for this array of a specdec__batch */
    unsigned char *certain;    /* (max_nodes) memory for this array of a specdec__batch */
    int *path;                 /* (max_nodes): nodes to be committed */
    specdec__state_reader state_readers[SPECDEC__STATE_READERS]; /* readers of hidden states in the next steps: a
                                                                    caller, then drafters */
    float *reads;              /* (n, specdec__forward_states_stride) hidden states of another model that the next step
                                  reads; NULL: x already holds what they give, or the model reads none */
    /* Called by each thread in every layer between the rotation of queries and attention, such as to choose a small
       cache's keys. NULL: not called. */
    void (*before_attention)(struct specdec__context *c, int thread, const specdec__layer *layer);
    void *before_attention_argument;     /* argument of before_attention */
    const specdec__forward_hooks *hooks; /* of a cluster; NULL: none */
    void *hooks_argument;                /* argument of the hooks: the cluster's link */
    specdec__kv kv;                      /* the cache of keys, values and recurrent states */
} specdec__context;

/* Returns how many groups of 64 rows, of which one has a common bound, an output matrix has. */
SPECDEC__INLINE int specdec__screen_count_groups(const specdec__matrix *output)
{
    return (output->rows + SPECDEC__SCREEN_GROUP - 1) / SPECDEC__SCREEN_GROUP;
}

SPECDEC__FOR_SIZE

/* Takes the buffers of all threads from an arena. */
static void specdec__context_take_scratch(specdec__context *c, int threads, specdec__arena *arena)
{
    const specdec__recurrent_sizes *mixing = &c->model->recurrent_sizes;
    specdec__scratch unused, *s;
    int i, copies = 1;

    while (mixing->layers && c->max_nodes >> copies)
        copies++;

    c->scratch = SPECDEC__TAKE(arena, specdec__scratch, threads);
    for (i = 0; i < threads; i++) {
        s = c->scratch ? &c->scratch[i] : &unused;
        s->panel = SPECDEC__TAKE(arena, specdec__panel, 2);
        s->tile = SPECDEC__TAKE(arena, unsigned char, 2 * SPECDEC__PANEL_VALUES * SPECDEC__ROWS * 4);
        s->sums = SPECDEC__TAKE(arena, float, 2 * SPECDEC__PASS_COLUMNS * SPECDEC__ROWS);
        if (specdec__kv_types[c->kv.type].has_codes) {
            s->page_codes = (unsigned char *)specdec__arena_take(arena, 1, c->kv.head_bytes, SPECDEC__CACHE_LINE);
            s->codes = SPECDEC__TAKE(arena, unsigned char,
                                     specdec__max_int(SPECDEC__PASS_COLUMNS * SPECDEC__KEYS, c->kv.dim));
        } else {
            s->keys = SPECDEC__TAKE(arena, float, 2 * c->kv.dim * SPECDEC__KEYS);
            s->values = SPECDEC__TAKE(arena, float, 2 * c->kv.dim * SPECDEC__KEYS);
            s->gathered = SPECDEC__TAKE(arena, float, c->kv.dim * SPECDEC__KEYS);
        }
        s->queries = SPECDEC__TAKE(arena, float, 4 * c->kv.dim);
        s->scores = SPECDEC__TAKE(arena, float,
                                  (size_t)(specdec__kv_types[c->kv.type].has_codes ? SPECDEC__SCORE_COLUMNS : 4) *
                                      SPECDEC__KEYS);
        if (mixing->layers)
            s->state_copies =
                SPECDEC__TAKE(arena, float, (size_t)copies * specdec__recurrent_state_matrix_floats(mixing));
        s->out = SPECDEC__TAKE(arena, float, c->kv.dim);
        s->rope_partner = SPECDEC__TAKE(arena, float, c->kv.dim);
        s->layer_embeddings = SPECDEC__TAKE(arena, float, c->model->layer_embeddings.width * c->model->layers);
    }
}

/* Floats added to each row so that a row is an odd number of cache lines: otherwise rows compete for the same cache
   sets. */
#define SPECDEC__ROW_PADDING 16 /* floats by which rows of activations are longer than a multiple of 32 */

/* Returns the floats between rows of `width` values: a multiple of 32, plus SPECDEC__ROW_PADDING. */
static int specdec__forward_stride(int width) { return specdec__round_up(width, 32) + SPECDEC__ROW_PADDING; }

/* Returns the function that normalises rows of x: RMS norm or LayerNorm. */
SPECDEC__INLINE specdec__norm_function *specdec__forward_norm_function(const specdec__context *c)
{
    return c->model->trait[SPECDEC__LAYER_NORM] ? c->kernels->layer_norm : c->kernels->norm;
}

/* Returns the layout of a layer's keys and values in the cache. */
SPECDEC__INLINE const specdec__kv_layer *specdec__context_kv_layer(const specdec__context *c,
                                                                   const specdec__layer *layer)
{
    return &c->kv.layer[layer->index];
}

/* Returns the floats between rows of the hidden states of another model that a model reads. */
static int specdec__forward_states_stride(const specdec__model *m)
{
    return specdec__forward_stride(m->reads.count * m->reads.width);
}

/* Takes memory for `count` quantised columns of `width` values from an arena. */
static void specdec__columns_take_memory(specdec__columns *columns, size_t count, size_t width, specdec__arena *arena)
{
    columns->codes = SPECDEC__TAKE(arena, int8_t, count * width);
    columns->scale = SPECDEC__TAKE(arena, float, count * (width / 32));
    columns->pair32 = SPECDEC__TAKE(arena, int32_t, count * (width / 32));
    columns->pair16 = SPECDEC__TAKE(arena, int32_t, count * (width / 16));
    columns->sum32 = SPECDEC__TAKE(arena, float, count * (width / 32));
    columns->sum16 = SPECDEC__TAKE(arena, float, count * (width / 16));
}

/* Returns the most columns that a matrix is multiplied by in a step. */
static size_t specdec__context_max_columns(const specdec__context *c)
{
    return (size_t)c->max_nodes * (size_t)(specdec__model_has_experts(c->model) ? c->model->chosen_experts : 1);
}

/* Takes memory for the routes of a mixture of experts from an arena. */
static void specdec__context_take_routes(specdec__context *c, specdec__arena *arena)
{
    const size_t columns = specdec__context_max_columns(c);

    c->routes.expert = SPECDEC__TAKE(arena, int, columns);
    c->routes.weight = SPECDEC__TAKE(arena, float, columns);
    c->routes.column = SPECDEC__TAKE(arena, int, columns);
    c->routes.row = SPECDEC__TAKE(arena, int, columns);
    c->routes.first_column = SPECDEC__TAKE(arena, int, c->model->experts + 1);
    c->routes.job = SPECDEC__TAKE(arena, specdec__expert_job, columns);
}

/* Takes memory for recurrent layers from an arena, except for `projected`, which shares the memory of attention's
   buffers. */
static void specdec__context_take_recurrent_buffers(specdec__context *c, const specdec__kv_demand *room,
                                                    specdec__arena *arena)
{
    const specdec__recurrent_sizes *m = &c->model->recurrent_sizes;
    const size_t waiting = specdec__size_multiply((size_t)specdec__min_int(room->max_views, c->max_nodes),
                                                  (size_t)room->tree_nodes);
    const size_t rows = specdec__size_add((size_t)c->max_nodes, waiting);
    int i;

    c->recurrent.projected_stride = specdec__forward_stride(m->input_width);
    c->recurrent.output_stride = specdec__forward_stride(m->output_width);
    c->recurrent.convolved_stride = specdec__forward_stride(m->channels + 2 * specdec__round_up(m->heads, 16));
    c->recurrent.max_rows = rows < 1 << 30 ? (int)rows : 1 << 30;
    c->recurrent.row = SPECDEC__TAKE(arena, specdec__recurrent_row, rows);
    c->recurrent.step = SPECDEC__TAKE(arena, specdec__recurrent_walk_step, c->max_nodes);
    c->recurrent.walk_stack = SPECDEC__TAKE(arena, specdec__recurrent_walk_step, c->max_nodes);
    c->recurrent.part = SPECDEC__TAKE(arena, specdec__recurrent_part, specdec__min_int(room->max_views, c->max_nodes));
    c->recurrent.done = (unsigned char *)specdec__arena_take(
        arena, specdec__size_multiply((size_t)m->layers, (size_t)specdec__min_int(room->max_views, c->max_nodes)),
        (size_t)m->heads + 1, 1);
    c->recurrent.row_of_node = SPECDEC__TAKE(arena, int, c->max_nodes);
    if (m->layers)
        c->recurrent.convolved = SPECDEC__TAKE(arena, float,
                                               specdec__size_multiply(rows, (size_t)c->recurrent.convolved_stride));
    c->recurrent.zeros = SPECDEC__TAKE(arena, float, m->channels);
    c->recurrent.unit_weights = SPECDEC__TAKE(arena, float, 2 * m->rows);
    if (c->model->trait[SPECDEC__RECURS] == SPECDEC__RECURS_BESIDE_ATTENTION)
        c->recurrent.x_plus_output = SPECDEC__TAKE(
            arena, float, (size_t)c->max_nodes * (size_t)specdec__forward_stride(c->model->embedding));
    for (i = 0; c->recurrent.unit_weights && i < m->rows; i++) {
        c->recurrent.unit_weights[i] = (float)(1.0 / m->rows);
        c->recurrent.unit_weights[m->rows + i] = (float)specdec__inverse_square_root((double)m->rows);
    }
}

/* Takes memory for the residual streams besides x from an arena. n: rows. */
static void specdec__context_take_streams(specdec__context *c, size_t n, specdec__arena *arena)
{
    c->streams = SPECDEC__TAKE(arena, float, (size_t)(c->model->streams.count - 1) * n * (size_t)c->e);
    c->predicted = SPECDEC__TAKE(arena, float, n * (size_t)c->e);
    c->stream_router = SPECDEC__TAKE(arena, float, n * 16);
}

/* Takes memory for buffers that are used during attention, and for buffers used outside it: the two sets share memory.
   In the first set, the sums of attention share the memory of queries, keys and values before RoPE. n: rows. */
static void specdec__context_take_shared_buffers(specdec__context *c, size_t n, specdec__arena *arena)
{
    const specdec__model *m = c->model;
    const size_t heads = (size_t)m->heads, sums = (size_t)c->max_sums, begin = arena->used;
    const size_t columns = specdec__context_max_columns(c);
    const int routed = specdec__forward_stride(m->experts), ff = specdec__forward_stride(m->feed_forward);
    size_t rotated, end, inner;

    c->rotated = SPECDEC__TAKE(arena, float, n * heads * (size_t)c->kv.dim);
    rotated = arena->used;
    c->queries = SPECDEC__TAKE(arena, float, n * (size_t)specdec__forward_stride(m->q_width));
    c->keys = SPECDEC__TAKE(arena, float, n * (size_t)specdec__forward_stride(m->k_width));
    c->values = SPECDEC__TAKE(arena, float, n * (size_t)specdec__forward_stride(m->v_width));
    if (m->latent_attention.rank) {
        c->query_latent = SPECDEC__TAKE(arena, float,
                                        n * (size_t)specdec__forward_stride(m->latent_attention.query_rank));
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
    if (specdec__model_has_experts(m) && inner < columns * (size_t)specdec__forward_stride(m->expert_ff))
        inner = columns * (size_t)specdec__forward_stride(m->expert_ff);
    if (inner <
        n * (size_t)specdec__forward_stride(specdec__max_int(m->layer_embeddings.width, m->trait[SPECDEC__LAUREL])))
        inner = n *
                (size_t)specdec__forward_stride(specdec__max_int(m->layer_embeddings.width, m->trait[SPECDEC__LAUREL]));
    c->hidden = SPECDEC__TAKE(arena, float, inner);
    c->y = SPECDEC__TAKE(arena, float, n * (size_t)specdec__max_int(specdec__max_int(c->e, ff), routed));
    if (specdec__model_has_experts(m)) {
        c->up = SPECDEC__TAKE(arena, float, inner);
        c->expert_outputs = SPECDEC__TAKE(arena, float,
                                          columns * (size_t)specdec__max_int(c->e, specdec__forward_stride(m->latent)));
        c->latent = m->latent ? SPECDEC__TAKE(arena, float, n * (size_t)specdec__forward_stride(m->latent)) : NULL;
        c->shared_router = SPECDEC__TAKE(arena, float, n);
    }
    specdec__arena_skip_to(arena, end);
    end = specdec__arena_rewind(arena, begin);
    if (SPECDEC__HAS_RECURRENT_LAYERS && c->model->recurrent_sizes.layers)
        c->recurrent.projected = SPECDEC__TAKE(arena, float, n * (size_t)c->recurrent.projected_stride);
    specdec__arena_skip_to(arena, end);
}

/* Takes all memory of a context from an arena, for the views and steps of `room` and for max_rows rows of logits.
   lender: the context of the target, whose embedding, output matrix and keys are used where the model has none; NULL:
   the model has them. */
static void specdec__context_init(specdec__context *c, const specdec__model *model, const specdec__context *lender,
                                  const specdec__kernels *kernels, specdec__pool *pool, int threads, int kv_type,
                                  const specdec__kv_demand *room, int most_rows, specdec__arena *arena)
{
    const int is_long = model->rope_frequency[SPECDEC__ROPE_LONG] && room->view_keys > model->rope_original;
    const int beside = model->trait[SPECDEC__READS_STATES] == SPECDEC__BESIDE_EMBEDDINGS || model->reads.is_nextn;
    const int reads = beside ? specdec__forward_stride(2 * model->embedding) : 0;
    size_t n = (size_t)room->step_nodes, widest, ropes;
    size_t heads = 0, wide = 0; /* columns of latent attention, and their width */
    int i, attended;

    memset(c, 0, sizeof *c);
    c->model = model;
    c->embedding = model->token_embedding.type ? &model->token_embedding : lender->embedding;
    c->output = model->output.type ? &model->output : lender->output;
    c->kernels = kernels;
    c->pool = pool;
    c->threads = threads;
    c->max_nodes = room->step_nodes;
    c->max_rows = model->lacks_output ? 0 : most_rows;
    c->max_sums = model->heads * room->step_nodes *
                  (room->view_keys + room->step_nodes > SPECDEC__STRETCH_BLOCKS * SPECDEC__KEYS ? 2 : 1);
    c->frequency[0] = model->rope_frequency[is_long ? SPECDEC__ROPE_LONG : SPECDEC__ROPE];
    c->frequency[1] = model->rope_frequency[SPECDEC__ROPE_ALTERNATE];
    ropes = model->trait[SPECDEC__ALTERNATE_BASE] != 0 ? 2 : 1;
    if (lender && model->trait[SPECDEC__VISIBLE_KEYS] == SPECDEC__SEES_VIEW)
        specdec__kv_borrow_target_cache(&c->kv, &lender->kv, model, arena);
    else
        specdec__kv_init(&c->kv, kv_type, model, room, arena);
    specdec__context_take_scratch(c, threads, arena);
    if (specdec__recurrent_layers_exist(&model->recurrent_sizes))
        specdec__context_take_recurrent_buffers(c, room, arena);
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
    widest = (size_t)specdec__max_int((int)widest, model->reads.count ? specdec__forward_states_stride(model) : 0);
    widest = (size_t)specdec__max_int((int)widest, specdec__forward_stride(model->block.markov_in.columns));
    widest = (size_t)specdec__max_int((int)widest, c->recurrent.output_stride);
    widest = (size_t)specdec__max_int((int)widest, specdec__forward_stride(specdec__max_int(
                                                       model->layer_embeddings.width, model->trait[SPECDEC__LAUREL])));
    c->x = SPECDEC__TAKE(arena, float, n * (size_t)c->e);
    c->h = SPECDEC__TAKE(arena, float,
                         n * (size_t)specdec__max_int(specdec__max_int(c->e, attended),
                                                     specdec__max_int(reads, c->recurrent.output_stride)));
    c->x_plus_attention = model->trait[SPECDEC__PARALLEL] ? SPECDEC__TAKE(arena, float, n * (size_t)c->e) : NULL;
    c->cosine = SPECDEC__TAKE(arena, float, ropes * n * (size_t)c->kv.dim);
    c->sine = SPECDEC__TAKE(arena, float, ropes * n * (size_t)c->kv.dim);
    if (model->layer_embeddings.width)
        c->layer_embeddings = SPECDEC__TAKE(
            arena, float, n * (size_t)specdec__forward_stride(model->layer_embeddings.width * model->layers));
    if (model->streams.count)
        specdec__context_take_streams(c, n, arena);
    if (model->block.taps) {
        const int weights = 2 * model->block.taps * (model->embedding / model->block.group_size);

        c->conv_weights = SPECDEC__TAKE(arena, float, n * (size_t)specdec__forward_stride(weights));
        c->conv_output = SPECDEC__TAKE(arena, float, n * (size_t)c->e);
    }
    specdec__context_take_shared_buffers(c, n, arena);
    if (heads * wide > specdec__context_max_columns(c) * widest) /* both kinds of columns share this memory */
        specdec__columns_take_memory(&c->columns, heads, wide, arena);
    else
        specdec__columns_take_memory(&c->columns, specdec__context_max_columns(c), widest, arena);
    if (specdec__model_has_experts(model))
        specdec__context_take_routes(c, arena);
    if (specdec__kv_types[kv_type].has_codes)
        specdec__columns_take_memory(&c->rotated_columns, n * (size_t)model->heads, (size_t)c->kv.dim, arena);
    for (i = 0; i < SPECDEC__SPANS; i++)
        c->slots[i] = SPECDEC__TAKE(arena, int, n);
    c->key_index = SPECDEC__TAKE(arena, int, n);
    c->position = SPECDEC__TAKE(arena, int, n);
    c->on_chain = SPECDEC__TAKE(arena, int, n);
    c->rows = SPECDEC__TAKE(arena, int, n);
    c->first_unsound = SPECDEC__TAKE(arena, int, n);
    c->logits = SPECDEC__TAKE(arena, float,
                              specdec__size_add(specdec__size_multiply((size_t)c->max_rows, (size_t)c->output->rows),
                                                15));
    c->screen.norms = SPECDEC__TAKE(arena, float, specdec__size_multiply((size_t)c->max_rows, SPECDEC__PLANE_PARTS));
    c->screen.largest =
        SPECDEC__TAKE(arena, float,
                      specdec__size_multiply((size_t)c->max_rows, (size_t)specdec__screen_count_groups(c->output)));
    c->tokens = SPECDEC__TAKE(arena, int32_t, n);
    c->parents = SPECDEC__TAKE(arena, int32_t, n);
    c->wants_logits = SPECDEC__TAKE(arena, unsigned char, n);
    c->certain = SPECDEC__TAKE(arena, unsigned char, n);
    c->path = SPECDEC__TAKE(arena, int, n);
    c->views = SPECDEC__TAKE(arena, specdec__view *, n);
}

/* Makes an empty view for room->view_keys keys and the nodes of a step. kept: 1: a kept view, which has no nodes. */
static void specdec__context_init_view(const specdec__context *c, specdec__view *view, const specdec__kv_demand *room,
                                       int kept, specdec__arena *arena)
{
    specdec__view_init(view, &c->kv, (room->view_keys + 2 * room->step_nodes) / SPECDEC__KEYS + 2,
                       kept ? 0 : room->tree_nodes, arena);
}

SPECDEC__FOR_SPEED
