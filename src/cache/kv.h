/* =====================================================================================================================
 * >>cache/kv: pages of 64 slots, and views: ordered lists of segments.
 *
 * A page holds 64 slots of every kv head of the layers of one span, those that see all keys or those that see a window:
 * so a view can return the pages that no window reaches any more. A layer has the heads, and the sizes of these, that
 * its shape says. A page may be part of several views: it counts them.
 * Keys are transposed, (dim, 64), so that the lanes of a score are keys and its sum runs over dimensions in order,
 * wherever a key lies; values are rows, (64, dim). Keys are stored rotated. 8-bit keys are tiles of a Q8_0 matrix, 16
 * keys each, which the kernels for weights multiply by quantised queries. 8-bit values are codes (dim/16, 64/4, 16, 4),
 * with 4 slots of a dimension side by side, behind one float scale for each slot, (64).
 *
 * Some views are kept: they hold the beginnings of sequences that have ended, for others that begin alike, and give
 * their pages up as soon as a live view finds none.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../kernel/kernel.h"
#include "../model/model.h"
#include "../model/facts.h"
#include "state.h"

/* How keys and values are stored. Elements are f32, f16, or 8-bit codes with one scale for 32 dimensions of a key (f16)
   or all of a value (f32). */
typedef struct specdec__kv_type {
    const char *name;
    int multiple;                    /* dim is padded to a multiple of this */
    int bytes_per_32;                /* bytes of 32 elements, scales of keys included */
    int tiles;                       /* 1: keys and values are tiles of codes, 0: floats of some size */
    int halves;                      /* 1: half floats */
    float key_fits, value_fits;      /* keys and values are stored as they are if they are finite times this */
} specdec__kv_type;

/* A float times this is finite if it is no larger than 1e16: the squares of a row of 2^20 such values have a finite
   sum. */
#define SPECDEC__SOUND 3.4e22f

enum { SPECDEC__KV_F16, SPECDEC__KV_F32, SPECDEC__KV_Q8_0, SPECDEC__KV_TYPES };
static const specdec__kv_type specdec__kv_types[SPECDEC__KV_TYPES] = {
    {"f16", 16, 64, 0, 1, 5.1945e33f, 5.1945e33f /* 65504 stays finite, 65520 does not */},
    {"f32", 16, 128, 0, 0, SPECDEC__SOUND, SPECDEC__SOUND},
    {"q8_0", 32, 34, 1, 0, 4.09e31f /* 127 times that */, SPECDEC__SOUND}};

typedef struct specdec__segment {
    int page, from, length; /* slots [from, from + length) of a page */
    int start;              /* logical position of the first */
} specdec__segment;

typedef struct specdec__segments {
    specdec__segment *at; /* capacity of them; those past count name spare pages */
    int count, spare;
    int room;              /* slots behind the last one, in its page, that are the view's to reserve */
} specdec__segments;

/* What a query attends to, in logical order. Reserved slots follow the last segment: first the rest of its page if
   that is the view's own, then spare pages. */
typedef struct specdec__view {
    specdec__segments span[SPECDEC__SPANS];
    int capacity; /* segments, in each span */
    int length;   /* committed keys */
    int position; /* what RoPE turns the next one by: length, if no keys were left out */
    specdec__state state; /* of recurrent layers */
    /* of a kept view */
    int kept;                   /* 1: it is one */
    int shared;                 /* keys that live views have taken over, at most; 0: nobody has */
    uint64_t used;              /* by the clock of the cache: when it was made or last shared */
    struct specdec__view *next; /* another kept view of the cache */
} specdec__view;

/* Pages of the layers of a span. */
typedef struct specdec__pages {
    int window;         /* keys that a query sees; 0: all */
    int count, free_count; /* count 0: the model has no such layers */
    size_t bytes;       /* of a page */
    unsigned char *memory; /* (count, bytes); of a part of a model that has none of the layers: nothing */
    int *free;          /* (free_count) pages that no view has */
    int *views;         /* (count) how many views have a part in it, */
    int *kept;          /* (count) and how many of these are kept */
    int idle;           /* pages that kept views alone have a part in */
    int touched;        /* pages that were ever handed out: the first ones, as fresh ones go in order */
} specdec__pages;

/* What has been done to a view, so that others may do the same to theirs. */
enum {
    SPECDEC__KV_RESERVE,   /* for a nodes; b: that went well */
    SPECDEC__KV_UNRESERVE,
    SPECDEC__KV_COMMIT,    /* of nodes path[a]; path[a + b] stay nodes; b: -1: all behind them */
    SPECDEC__KV_TRUNCATE,  /* to a keys */
    SPECDEC__KV_SHARE,     /* b keys of another view, from a on */
    SPECDEC__KV_KINDS
};

typedef struct specdec__kv_news {
    int kind;
    specdec__view *view;
    specdec__view *other;       /* NULL: none */
    int a, b;
    const int *path;
    int renumbers;              /* COMMIT, as it comes from another rank: of so many nodes; 0: none is known any more */
} specdec__kv_news;

/* Where the keys and values of a layer lie in the pages of its span. */
typedef struct specdec__kv_layer {
    int span;
    int owns;           /* 0: they are another layer's, or the layer has no attention, and then no kv heads */
    int kv_heads;
    int dim, value_dim; /* sizes of a head's keys and values, padded */
    size_t key_bytes;   /* keys of one page and head: its values lie behind them */
    size_t head_bytes;  /* both */
    size_t at;          /* of the first head, in a page */
} specdec__kv_layer;

typedef struct specdec__kv {
    int type;
    int layers;
    specdec__kv_layer *layer; /* (layers) */
    int dim;                  /* padded head size of keys or values, whichever are larger, in any layer */
    size_t head_bytes;        /* keys and values of one page and head, at most */
    specdec__pages span[SPECDEC__SPANS];
    specdec__states states; /* of recurrent layers */
    specdec__view *kept; /* the first of the kept views; NULL: there are none */
    uint64_t clock;      /* counts what happens to them */
    void (*tell)(void *listener, const specdec__kv_news *news); /* NULL: nobody listens */
    void *listener;
} specdec__kv;

#define SPECDEC__BEHIND 256 /* keys behind a window that stay, so that a text can be rewound a little */

static int specdec__kv_find_type(const char *name)
{
    int i;

    for (i = 0; i < SPECDEC__KV_TYPES; i++)
        if (strcmp(specdec__kv_types[i].name, name) == 0)
            return i;
    return -1;
}

SPECDEC__FOR_SIZE
static void specdec__pages_init(specdec__pages *pages, int count, specdec__arena *arena)
{
    int i;

    pages->count = count;
    pages->memory = (unsigned char *)specdec__arena_reserve(arena, (size_t)count, pages->bytes, SPECDEC__CACHE_LINE);
    pages->free = SPECDEC__TAKE(arena, int, count);
    pages->views = SPECDEC__TAKE(arena, int, count);
    pages->kept = SPECDEC__TAKE(arena, int, count);
    for (i = 0; pages->free && i < count; i++)
        pages->free[pages->free_count++] = count - 1 - i;
}

/* How many views of how many keys there is to be room for. */
typedef struct specdec__room {
    int views;
    int length; /* keys of a view, at most */
    int keys;   /* of all views, at most */
    int most;   /* nodes of a step */
    int nodes;  /* that all views together have slots for behind their keys, at most */
    int kept;   /* kept views, beside them, which have no room of their own */
    int tree;   /* nodes of a view that are not certain to be committed, at most */
    int every;  /* tokens between two checkpoints of a state; 0: as is good */
} specdec__room;

/* Pages that a span needs, so that every view finds room to its end. Of each view the last page may be partly used, and
   of one that returns the pages behind its window the first, too: a view of k keys and nodes takes (k + 63) / 64 pages,
   (k + 126) / 64 where it may begin anywhere. The floors of these quotients add up to no more than the floor of their
   sum. A window never needs more than all keys do. */
static int specdec__kv_pages(const specdec__pages *pages, const specdec__room *room)
{
    const int64_t views = room->views, slack = SPECDEC__KEYS - 1;
    int64_t keys = views * slack + (views > 1 || room->kept ? room->keys : room->length);

    if (pages->window && keys > views * (pages->window - 1 + (int64_t)SPECDEC__BEHIND + 2 * slack))
        keys = views * (pages->window - 1 + (int64_t)SPECDEC__BEHIND + 2 * slack);
    return (int)((keys + room->nodes) / SPECDEC__KEYS);
}

/* How much room a layer of this shape needs in a page. */
static specdec__kv_layer specdec__kv_layer_of(int type, const specdec__shape *shape)
{
    const specdec__kv_type *t = &specdec__kv_types[type];
    specdec__kv_layer l;

    memset(&l, 0, sizeof l);
    l.span = shape->span;
    l.kv_heads = shape->kv_heads;
    if (!l.kv_heads)
        return l;
    l.owns = 1;
    l.dim = specdec__round_up(shape->key_dim, t->multiple);
    l.value_dim = specdec__round_up(shape->value_dim, t->multiple);
    l.key_bytes = (size_t)l.dim * SPECDEC__KEYS / 32 * (size_t)t->bytes_per_32;
    l.head_bytes = l.key_bytes + (size_t)l.value_dim * SPECDEC__KEYS / 32 * (size_t)t->bytes_per_32;
    if (t->tiles)
        l.head_bytes = l.key_bytes + SPECDEC__KEYS * (sizeof(float) + (size_t)l.value_dim);
    return l;
}

/* Lays out the pages: the layers of a span lie one behind the other in each of its pages. */
static void specdec__kv_place_layers(specdec__kv *kv, const specdec__model *model, specdec__arena *arena)
{
    int i;

    kv->layers = model->layers;
    kv->layer = SPECDEC__TAKE(arena, specdec__kv_layer, kv->layers);
    for (i = 0; i < kv->layers; i++) {
        const specdec__shape shape = specdec__model_layer_shape(model, model->first + i);
        specdec__kv_layer l = specdec__kv_layer_of(kv->type, &shape);
        size_t *end = &kv->span[l.span].bytes;

        l.at = *end;
        if (shape.keys_of >= 0) {
            if (kv->layer)
                l = kv->layer[shape.keys_of - model->first];
            l.owns = 0;
        }
        if (l.owns)
            *end = specdec__size_add(*end, specdec__size_multiply(l.head_bytes, (size_t)l.kv_heads));
        if (kv->layer)
            kv->layer[i] = l;
    }
}

static void specdec__kv_init(specdec__kv *kv, int type, const specdec__model *model, const specdec__room *room,
                             specdec__arena *arena)
{
    specdec__shape widest;
    int span;

    memset(kv, 0, sizeof *kv);
    memset(&widest, 0, sizeof widest);
    kv->type = type;
    widest.kv_heads = 1;
    widest.key_dim = widest.value_dim = model->head_dim;
    kv->dim = specdec__kv_layer_of(type, &widest).dim;
    kv->head_bytes = specdec__kv_layer_of(type, &widest).head_bytes;
    specdec__kv_place_layers(kv, model, arena);
    for (span = 0; span < SPECDEC__SPANS; span++) {
        specdec__pages *pages = &kv->span[span];

        pages->window = span == SPECDEC__WINDOW ? model->window : 0;
        if (model->span_used[span])
            specdec__pages_init(pages, specdec__kv_pages(pages, room), arena);
    }
    specdec__states_init(&kv->states, &model->mixing, room->views, room->length, room->every, arena);
}

/* The pages of another model's cache, for a model whose layers all read keys of that one: those with a window the keys
   of its last layer but one, the others those of its last. */
static void specdec__kv_lend(specdec__kv *kv, const specdec__kv *other, const specdec__model *model,
                             specdec__arena *arena)
{
    int i;

    *kv = *other;
    memset(&kv->states, 0, sizeof kv->states);
    kv->kept = NULL;
    kv->tell = NULL;
    kv->span[SPECDEC__WINDOW].window = model->window;
    kv->layers = model->layers;
    kv->layer = SPECDEC__TAKE(arena, specdec__kv_layer, kv->layers);
    for (i = 0; kv->layer && i < kv->layers; i++) {
        const int windowed = specdec__model_layer_shape(model, i).span == SPECDEC__WINDOW;

        kv->layer[i] = other->layer[specdec__max_int(other->layers - 1 - windowed, 0)];
        kv->layer[i].owns = 0;
    }
}

/* All its pages, and states. */
static size_t specdec__kv_bytes(const specdec__kv *kv)
{
    size_t bytes = (size_t)kv->states.count * kv->states.bytes;
    int span;

    for (span = 0; span < SPECDEC__SPANS; span++)
        bytes += (size_t)kv->span[span].count * kv->span[span].bytes;
    return bytes;
}

/* The keys of a layer's head in a page; its values lie key_bytes behind them. */
SPECDEC__INLINE unsigned char *specdec__kv_keys(const specdec__kv *kv, const specdec__kv_layer *layer, int page,
                                                int head)
{
    const specdec__pages *pages = &kv->span[layer->span];

    return pages->memory + (size_t)page * pages->bytes + layer->at + (size_t)head * layer->head_bytes;
}

/* Tells who listens what was done to a view. */
SPECDEC__INLINE void specdec__kv_tell(const specdec__kv *kv, int kind, specdec__view *view, specdec__view *other,
                                      int a, int b, const int *path)
{
    specdec__kv_news news;

    if (!SPECDEC__PIPE || !kv->tell)
        return;
    news.kind = kind;
    news.view = view;
    news.other = other;
    news.a = a;
    news.b = b;
    news.path = path;
    kv->tell(kv->listener, &news);
}

/* A view gets a part in a page (by 1), or has none any more (by -1). A page that no view has a part in is free. */
static void specdec__pages_part(specdec__pages *pages, int page, const specdec__view *view, int by)
{
    pages->idle -= pages->kept[page] && pages->kept[page] == pages->views[page];
    pages->views[page] += by;
    pages->kept[page] += view->kept ? by : 0;
    pages->idle += pages->kept[page] && pages->kept[page] == pages->views[page];
    if (!pages->views[page])
        pages->free[pages->free_count++] = page;
}

/* tree: nodes that are not certain to be committed. */
static void specdec__view_init(specdec__view *view, const specdec__kv *kv, int capacity, int tree,
                               specdec__arena *arena)
{
    int span;

    memset(view, 0, sizeof *view);
    view->capacity = capacity;
    for (span = 0; span < SPECDEC__SPANS; span++)
        view->span[span].at = SPECDEC__TAKE(arena, specdec__segment, capacity);
    specdec__state_init(&view->state, &kv->states, tree, arena);
}

/* A view becomes one of the kept views of a cache, which is not counted only. */
static void specdec__kv_add_kept(specdec__kv *kv, specdec__view *view)
{
    view->kept = 1;
    view->next = kv->kept;
    kv->kept = view;
}

SPECDEC__FOR_SPEED
