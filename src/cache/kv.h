/* =====================================================================================================================
 * >>cache/kv: pages of 64 slots, and views: ordered lists of segments.
 *
 * Layers belong to one of two spans: layers that attend to all keys, and layers that attend to a sliding window. A page
 * has 64 slots for the layers and kv heads of one span, so a view can free the pages that no window reaches any more.
 * Several views may hold the same page; pages are reference-counted.
 * Keys are stored after RoPE and transposed, (dim, 64): vector lanes are keys, and a score sums over dimensions in
 * order, whatever slot a key has. Values are rows, (64, dim). 8-bit keys are tiles of a Q8_0 matrix, 16 keys each; the
 * kernels for weights multiply them by quantised queries. 8-bit values are one float scale for each slot, (64), then
 * codes (dim/16, 64/4, 16, 4): the codes of 4 slots for one dimension are contiguous.
 *
 * A kept view holds the keys and values of a sequence that has ended, so that a new sequence with the same first tokens
 * can share them (prefix caching). Kept views lose their pages as soon as a live view finds no free page.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../kernel/kernel.h"
#include "../model/model.h"
#include "../model/facts.h"
#include "state.h"

/* A storage type of the cache, such as config.kv = "q8_0". Elements are f32, f16, or 8-bit codes with scales: one f16
   scale for 32 dimensions of a key, one f32 scale for a whole value. */
typedef struct specdec__kv_type {
    const char *name;                /* as in config.kv */
    int dim_multiple;                /* head sizes are padded to a multiple of this */
    int bytes_per_32;                /* bytes of 32 elements, scales of keys included */
    int has_codes;                   /* 1: keys and values are 8-bit codes, keys in tiles of 16; 0: they are floats */
    int is_f16;                      /* 1: elements are half floats (f16) */
    float key_factor, value_factor;  /* a key (value) x can be stored if x times this factor is finite */
} specdec__kv_type;

/* A float x has |x| <= 1e16 if x times this factor is finite. The squares of a row of 2^20 such floats have a finite
   sum. */
#define SPECDEC__FINITE_FACTOR 3.4e22f /* a value is too large for any cache if its product with this is not finite:
                                          above 1e16 */

enum { SPECDEC__KV_F16, SPECDEC__KV_F32, SPECDEC__KV_Q8_0, SPECDEC__KV_TYPES };
static const specdec__kv_type specdec__kv_types[SPECDEC__KV_TYPES] = {
    {"f16", 16, 64, 0, 1, 5.1945e33f, 5.1945e33f /* 65504 stays finite, 65520 does not */},
    {"f32", 16, 128, 0, 0, SPECDEC__FINITE_FACTOR, SPECDEC__FINITE_FACTOR},
    {"q8_0", 32, 34, 1, 0, 4.09e31f /* 127 times that */, SPECDEC__FINITE_FACTOR}};

/* A stretch of consecutive logical positions of a view whose slots are consecutive in one page. */
typedef struct specdec__segment {
    int page, from, length; /* slots [from, from + length) of page number `page` */
    int start;              /* the logical position of slot `from` */
} specdec__segment;

/* The segments of a view in one span, by logical position, then the view's spare pages. */
typedef struct specdec__segments {
    specdec__segment *segment; /* (max_segments of the view); entries behind `count` name the spare pages */
    int count, spare_pages;    /* how many segments; how many spare pages, all of whose slots are reserved */
    int tail_slots;            /* reserved slots in the last segment's page, behind its last key; 0: other views hold
                                  the page */
} specdec__segments;

/* The keys of one sequence, in logical order. Slots reserved for the nodes of a step follow the last segment: first the
   free slots of the last page if no other view holds it, then the slots of spare pages. */
typedef struct specdec__view {
    specdec__segments span[SPECDEC__SPANS]; /* segments for layers of each span */
    int max_segments;                       /* segments that there is memory for, in each span */
    int length;                             /* committed keys */
    int next_position;                      /* RoPE position of the next token: `length`, unless keys were left out */
    specdec__state state;                   /* states of the recurrent layers after this view's tokens */
    /* only for kept views: */
    int is_kept;                /* 1: this is a kept view */
    int shared_keys;            /* the most keys that any live view has shared with this one; 0: none has */
    uint64_t last_use;          /* value of the cache's clock when this view was made or last shared */
    struct specdec__view *next_kept; /* the next kept view of the cache */
} specdec__view;

/* The pages of one span. */
typedef struct specdec__pages {
    int window;         /* keys that a query of this span sees; 0: all */
    int count, free_count; /* all pages, free pages; count 0: no layer is of this span */
    size_t bytes;          /* bytes of one page */
    unsigned char *memory; /* (count, bytes); bytes is 0 where all layers of this span are on other ranks */
    int *free_pages;    /* (free_count) numbers of the free pages */
    int *view_counts;   /* (count) how many views hold each page */
    int *kept_counts;   /* (count) how many of these are kept views */
    int only_kept;      /* pages that only kept views hold */
    int cleared;        /* pages that were ever taken and so cleared once: numbers [0, cleared) */
} specdec__pages;

/* Kinds of changes of a view, of which a listener is notified, so that the ranks of a cluster can repeat them. */
enum {
    SPECDEC__KV_RESERVE,   /* slots were reserved for first_number nodes; second_number: 1 if there were enough pages */
    SPECDEC__KV_UNRESERVE, /* all reserved slots were freed */
    SPECDEC__KV_COMMIT,    /* the next first_number entries of path were committed; then second_number entries stay
                              nodes (-1: all later nodes) */
    SPECDEC__KV_TRUNCATE,  /* the view was cut to its first first_number keys */
    SPECDEC__KV_SHARE,     /* second_number keys of source_view, from first_number on, were appended */
    SPECDEC__KV_EVENTS
};

/* A change of a view, as its listener receives it. */
typedef struct specdec__kv_event {
    int kind;                        /* what has changed: SPECDEC__KV_RESERVE (slots), ... */
    specdec__view *view;             /* the changed view */
    specdec__view *source_view;      /* the view whose keys were shared; NULL: none */
    int first_number, second_number; /* numbers of the change: see SPECDEC__KV_RESERVE and the other kinds */
    const int *path;                 /* committed nodes, in order; then nodes that stay; NULL: none */
    int renumbered;                  /* only for a COMMIT from another rank: how many nodes are renumbered; 0: all nodes
                                        are gone */
} specdec__kv_event;

/* The layout of a layer's keys and values in the pages of its span. */
typedef struct specdec__kv_layer {
    int span;           /* the span to which the layer belongs: SPECDEC__WHOLE or SPECDEC__WINDOW */
    int owns_keys;      /* 1: the layer has keys of its own; 0: it reads another layer's, or has no attention */
    int kv_heads;       /* heads of keys and values; 0: the layer has no attention */
    int dim, value_dim; /* sizes of a key and of a value of one head, padded */
    size_t key_bytes;   /* bytes of the keys of one head in a page; its values lie behind them */
    size_t head_bytes;  /* bytes of the keys and values of one head in a page */
    size_t offset;      /* offset of the first head in a page */
} specdec__kv_layer;

/* The cache of one context: pages of keys and values, slots of recurrent states, and the list of kept views. */
typedef struct specdec__kv {
    int type;                 /* storage type of keys and values: SPECDEC__KV_F16, ... */
    int layers;               /* layers on this rank */
    specdec__kv_layer *layer; /* (layers) layout of each layer's keys and values */
    int dim;                  /* the largest size of a key or value of any layer, padded */
    size_t head_bytes;        /* the most bytes that the keys and values of one head take in a page, over all layers */
    specdec__pages span[SPECDEC__SPANS]; /* pages for layers of each span */
    specdec__states states;              /* slots for states of the recurrent layers */
    specdec__view *first_kept; /* first kept view of a linked list; NULL: there is none */
    uint64_t use_clock;       /* counts the uses of kept views; orders them by last use */
    void (*notify)(void *listener, const specdec__kv_event *news); /* called with each change of a view; NULL: no
                                                                   listener */
    void *listener;           /* argument of notify */
} specdec__kv;

#define SPECDEC__REWIND_KEYS 256 /* keys older than a sliding window that stay: a sequence can be rewound so far */

/* Returns the number of a storage type by name, SPECDEC__KV_...; -1: there is no such type. */
static int specdec__kv_find_type(const char *name)
{
    int i;

    for (i = 0; i < SPECDEC__KV_TYPES; i++)
        if (strcmp(specdec__kv_types[i].name, name) == 0)
            return i;
    return -1;
}

SPECDEC__FOR_SIZE
/* Takes memory for `count` pages from an arena; all are free. */
static void specdec__pages_init(specdec__pages *pages, int count, specdec__arena *arena)
{
    int i;

    pages->count = count;
    pages->memory = (unsigned char *)specdec__arena_reserve(arena, (size_t)count, pages->bytes, SPECDEC__CACHE_LINE);
    pages->free_pages = SPECDEC__TAKE(arena, int, count);
    pages->view_counts = SPECDEC__TAKE(arena, int, count);
    pages->kept_counts = SPECDEC__TAKE(arena, int, count);
    for (i = 0; pages->free_pages && i < count; i++)
        pages->free_pages[pages->free_count++] = count - 1 - i;
}

/* What the cache and a context must have room for. */
typedef struct specdec__kv_demand {
    int max_views;  /* live views */
    int view_keys;  /* keys of one view, at most */
    int all_keys;   /* keys of all views together, at most */
    int step_nodes; /* nodes of one step, at most */
    int reserved_nodes; /* slots that all views together reserve for nodes, at most */
    int kept_views; /* kept views; they have no pages of their own */
    int tree_nodes; /* nodes of one view whose commitment is uncertain, at most */
    int checkpoint_distance; /* tokens between two checkpoints of a recurrent state; 0: a default */
} specdec__kv_demand;

/* Returns how many pages a span needs so that every view finds room for all its keys and nodes. The last page of a view
   may be partly used; in a span with a window, so may the first. A view of k keys and nodes takes at most (k + 63) / 64
   pages, or (k + 126) / 64 where its first key may have any slot. The floors of these quotients add up to no more than
   the floor of their sum. A window needs no more pages than a span that sees all keys. */
static int specdec__kv_count_pages(const specdec__pages *pages, const specdec__kv_demand *room)
{
    const int64_t views = room->max_views, slack = SPECDEC__KEYS - 1;
    int64_t keys = views * slack + (views > 1 || room->kept_views ? room->all_keys : room->view_keys);

    if (pages->window && keys > views * (pages->window - 1 + (int64_t)SPECDEC__REWIND_KEYS + 2 * slack))
        keys = views * (pages->window - 1 + (int64_t)SPECDEC__REWIND_KEYS + 2 * slack);
    return (int)((keys + room->reserved_nodes) / SPECDEC__KEYS);
}

/* Returns the layout of a layer of this shape: sizes of a key and a value, and the bytes they take in a page. */
static specdec__kv_layer specdec__kv_layer_layout(int type, const specdec__shape *shape)
{
    const specdec__kv_type *t = &specdec__kv_types[type];
    specdec__kv_layer l;

    memset(&l, 0, sizeof l);
    l.span = shape->span;
    l.kv_heads = shape->kv_heads;
    if (!l.kv_heads)
        return l;
    l.owns_keys = 1;
    l.dim = specdec__round_up(shape->key_dim, t->dim_multiple);
    l.value_dim = specdec__round_up(shape->value_dim, t->dim_multiple);
    l.key_bytes = (size_t)l.dim * SPECDEC__KEYS / 32 * (size_t)t->bytes_per_32;
    l.head_bytes = l.key_bytes + (size_t)l.value_dim * SPECDEC__KEYS / 32 * (size_t)t->bytes_per_32;
    if (t->has_codes)
        l.head_bytes = l.key_bytes + SPECDEC__KEYS * (sizeof(float) + (size_t)l.value_dim);
    return l;
}

/* Computes the layout of all layers and the bytes of a page for each span. In a page, the layers of its span are
   contiguous. */
static void specdec__kv_lay_out_layers(specdec__kv *kv, const specdec__model *model, specdec__arena *arena)
{
    int i;

    kv->layers = model->layers;
    kv->layer = SPECDEC__TAKE(arena, specdec__kv_layer, kv->layers);
    for (i = 0; i < kv->layers; i++) {
        const specdec__shape shape = specdec__model_layer_shape(model, model->first_layer + i);
        specdec__kv_layer l = specdec__kv_layer_layout(kv->type, &shape);
        size_t *end = &kv->span[l.span].bytes;

        l.offset = *end;
        if (shape.key_layer >= 0) {
            if (kv->layer)
                l = kv->layer[shape.key_layer - model->first_layer];
            l.owns_keys = 0;
        }
        if (l.owns_keys)
            *end = specdec__size_add(*end, specdec__size_multiply(l.head_bytes, (size_t)l.kv_heads));
        if (kv->layer)
            kv->layer[i] = l;
    }
}

/* Makes an empty cache for a model, with memory from an arena for all views, nodes and states that `room` asks for. */
static void specdec__kv_init(specdec__kv *kv, int type, const specdec__model *model, const specdec__kv_demand *room,
                             specdec__arena *arena)
{
    specdec__shape widest;
    int span;

    memset(kv, 0, sizeof *kv);
    memset(&widest, 0, sizeof widest);
    kv->type = type;
    widest.kv_heads = 1;
    widest.key_dim = widest.value_dim = model->head_dim;
    kv->dim = specdec__kv_layer_layout(type, &widest).dim;
    kv->head_bytes = specdec__kv_layer_layout(type, &widest).head_bytes;
    specdec__kv_lay_out_layers(kv, model, arena);
    for (span = 0; span < SPECDEC__SPANS; span++) {
        specdec__pages *pages = &kv->span[span];

        pages->window = span == SPECDEC__WINDOW ? model->window : 0;
        if (model->span_used[span])
            specdec__pages_init(pages, specdec__kv_count_pages(pages, room), arena);
    }
    specdec__states_init(&kv->states, &model->recurrent_sizes, room->max_views, room->view_keys,
                         room->checkpoint_distance, arena);
}

/* Gives a model without keys of its own (an assistant) the cache of the target. Its layers with a window read the keys
   of the target's last layer but one, the other layers those of the target's last layer. */
static void specdec__kv_borrow_target_cache(specdec__kv *kv, const specdec__kv *other, const specdec__model *model,
                                            specdec__arena *arena)
{
    int i;

    *kv = *other;
    memset(&kv->states, 0, sizeof kv->states);
    kv->first_kept = NULL;
    kv->notify = NULL;
    kv->span[SPECDEC__WINDOW].window = model->window;
    kv->layers = model->layers;
    kv->layer = SPECDEC__TAKE(arena, specdec__kv_layer, kv->layers);
    for (i = 0; kv->layer && i < kv->layers; i++) {
        const int windowed = specdec__model_layer_shape(model, i).span == SPECDEC__WINDOW;

        kv->layer[i] = other->layer[specdec__max_int(other->layers - 1 - windowed, 0)];
        kv->layer[i].owns_keys = 0;
    }
}

/* Returns the bytes of all pages and all recurrent states. */
static size_t specdec__kv_total_bytes(const specdec__kv *kv)
{
    size_t bytes = (size_t)kv->states.count * kv->states.bytes;
    int span;

    for (span = 0; span < SPECDEC__SPANS; span++)
        bytes += (size_t)kv->span[span].count * kv->span[span].bytes;
    return bytes;
}

/* Returns the address of the keys of one layer and head in a page. The values lie key_bytes behind them. */
SPECDEC__INLINE unsigned char *specdec__kv_keys_address(const specdec__kv *kv, const specdec__kv_layer *layer, int page,
                                                        int head)
{
    const specdec__pages *pages = &kv->span[layer->span];

    return pages->memory + (size_t)page * pages->bytes + layer->offset + (size_t)head * layer->head_bytes;
}

/* Notifies the listener, if there is one, of a change of a view. The meaning of a and b depends on the kind: see
   SPECDEC__KV_RESERVE. */
SPECDEC__INLINE void specdec__kv_notify(const specdec__kv *kv, int kind, specdec__view *view, specdec__view *other,
                                        int a, int b, const int *path)
{
    specdec__kv_event news;

    if (!SPECDEC__PIPE || !kv->notify)
        return;
    news.kind = kind;
    news.view = view;
    news.source_view = other;
    news.first_number = a;
    news.second_number = b;
    news.path = path;
    kv->notify(kv->listener, &news);
}

/* Adds a view to the holders of a page (by = 1), or removes it (by = -1). A page without holders becomes free. */
static void specdec__pages_add_holder(specdec__pages *pages, int page, const specdec__view *view, int by)
{
    pages->only_kept -= pages->kept_counts[page] && pages->kept_counts[page] == pages->view_counts[page];
    pages->view_counts[page] += by;
    pages->kept_counts[page] += view->is_kept ? by : 0;
    pages->only_kept += pages->kept_counts[page] && pages->kept_counts[page] == pages->view_counts[page];
    if (!pages->view_counts[page])
        pages->free_pages[pages->free_count++] = page;
}

/* Makes an empty view with room for `capacity` segments in each span, and for the recurrent inputs of `tree` uncertain
   nodes. */
static void specdec__view_init(specdec__view *view, const specdec__kv *kv, int capacity, int tree,
                               specdec__arena *arena)
{
    int span;

    memset(view, 0, sizeof *view);
    view->max_segments = capacity;
    for (span = 0; span < SPECDEC__SPANS; span++)
        view->span[span].segment = SPECDEC__TAKE(arena, specdec__segment, capacity);
    specdec__state_init(&view->state, &kv->states, tree, arena);
}

/* Adds a view to the cache's list of kept views. Called only once views have memory, not while an arena counts. */
static void specdec__kv_add_kept_view(specdec__kv *kv, specdec__view *view)
{
    view->is_kept = 1;
    view->next_kept = kv->first_kept;
    kv->first_kept = view;
}

SPECDEC__FOR_SPEED
