/* =====================================================================================================================
 * >>cache/bytes: keys and values as bytes of a file.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../quant/types.h"
#include "../quant/tiles.h"
#include "../kernel/kernel.h"
#include "kv.h"
#include "reserve.h"

SPECDEC__FOR_SIZE

/* A place in a file, to which keys and values go, or with `loads` from which they come. */
typedef struct specdec__kv_file {
    unsigned char *at; /* only read where they are loaded */
    int loads;
} specdec__kv_file;

/* Moves count units of 1, 2 or 4 bytes, which lie side by side in the file and step bytes apart in a page. */
static void specdec__kv_move(specdec__kv_file *file, int unit, int count, unsigned char *page, size_t step)
{
    if (file->loads)
        specdec__quant_move_units(unit, count, 0, file->at, (size_t)unit, page, step);
    else
        specdec__quant_move_units(unit, count, 0, page, step, file->at, (size_t)unit);
    file->at += (size_t)unit * (size_t)count;
}

/* The same with floats, which are the machine's own in a page and little-endian in the file. */
static void specdec__kv_move_floats(specdec__kv_file *file, int count, unsigned char *page, size_t step)
{
    uint32_t bits;
    int i;

    for (i = 0; i < count; i++, file->at += 4, page += step) {
        memcpy(&bits, page, sizeof bits);
        if (file->loads)
            bits = specdec__load_u32(file->at);
        else
            specdec__store_u32(file->at, bits);
        memcpy(page, &bits, sizeof bits);
    }
}

/* Moves the key at place `at` of the keys k of a page, layer and head, and its value. type: of the cache. */
static void specdec__kv_move_slot(int type, const specdec__kv_layer *layer, unsigned char *k, int at,
                                  specdec__kv_file *file)
{
    const size_t row = (size_t)at * (size_t)layer->value_dim;
    unsigned char *v = k + layer->key_bytes;
    int d;

    switch (type) {
    case SPECDEC__KV_F32:
        specdec__kv_move_floats(file, layer->dim, k + (size_t)at * 4, 4 * SPECDEC__KEYS);
        specdec__kv_move_floats(file, layer->value_dim, v + row * 4, 4);
        break;
    case SPECDEC__KV_F16:
        specdec__kv_move(file, 2, layer->dim, k + (size_t)at * 2, 2 * SPECDEC__KEYS);
        specdec__kv_move(file, 2, layer->value_dim, v + row * 2, 2);
        break;
    default:
        for (d = 0; d < layer->dim; d += 32) {
            unsigned char *own = k + specdec__kv_tile_block(layer, at, d);

            specdec__kv_move(file, 2, 1, own + at % SPECDEC__ROWS * 2, 2);
            specdec__kv_move(file, 4, 8, own + 32 + at % SPECDEC__ROWS * 4, 4 * SPECDEC__ROWS);
        }
        specdec__kv_move_floats(file, 1, v + (size_t)at * 4, 4);
        for (d = 0; d < layer->value_dim; d += SPECDEC__ROWS)
            specdec__kv_move(file, 1, SPECDEC__ROWS, v + specdec__kv_value_code(at, d), 4);
        break;
    }
}

/* Bytes that the keys and values of so many positions of a span take in a file. */
static size_t specdec__kv_file_bytes(const specdec__kv *kv, int span, int count)
{
    return specdec__size_multiply(kv->span[span].bytes / SPECDEC__KEYS, (size_t)count);
}

/* Moves the keys and values of logical positions [from, end), which the view has: 64 positions at a time, of these
   layer by layer, of these head by head. */
static void specdec__view_move(const specdec__view *view, const specdec__kv *kv, int span, int from, int end,
                               specdec__kv_file *file)
{
    int slots[SPECDEC__KEYS], count, layer, head, i;

    for (; from < end && kv->span[span].bytes; from += count) {
        count = specdec__min_int(SPECDEC__KEYS - from % SPECDEC__KEYS, end - from);
        specdec__view_slots(&view->span[span], from, count, slots);
        for (layer = 0; layer < kv->layers; layer++) {
            const specdec__kv_layer *l = &kv->layer[layer];

            for (head = 0; l->span == span && l->owns && head < l->kv_heads; head++)
                for (i = 0; i < count; i++)
                    specdec__kv_move_slot(kv->type, l, specdec__kv_keys(kv, l, slots[i] / SPECDEC__KEYS, head),
                                          slots[i] % SPECDEC__KEYS, file);
        }
    }
}

/* Whether there are pages of a span for logical positions [from, end) of a view that gives up all it has, as kept ones
   do. */
static int specdec__view_fits(const specdec__view *view, const specdec__kv *kv, int span, int from, int end)
{
    const specdec__pages *pages = &kv->span[span];
    const specdec__segments *s = &view->span[span];
    const int needed = (end + SPECDEC__KEYS - 1) / SPECDEC__KEYS - from / SPECDEC__KEYS;
    int i, room = pages->free_count + pages->idle;

    for (i = 0; i < s->count + s->spare; i++)
        room += pages->views[s->at[i].page] == 1 + pages->kept[s->at[i].page];
    return !pages->count || (needed <= room && needed <= view->capacity);
}

/* An empty view gets slots for logical positions [from, end) of a span; there are pages for them. */
static void specdec__view_place(specdec__view *view, specdec__kv *kv, int span, int from, int end)
{
    specdec__segments *s = &view->span[span];

    for (; from < end && kv->span[span].count; from += s->at[s->count++].length) {
        specdec__segment *at = &s->at[s->count];

        at->page = specdec__pages_take(kv, span);
        at->start = from;
        at->from = from % SPECDEC__KEYS;
        at->length = specdec__min_int(SPECDEC__KEYS - at->from, end - from);
    }
}

SPECDEC__FOR_SPEED

/* Stores a key and a value as codes: see specdec__kv_store. */
static void specdec__kv_store_codes(const specdec__kv_layer *layer, const specdec__kernels *kernels, unsigned char *k,
                                    int at, const float *key, const float *value, int8_t *codes)
{
    unsigned char *v = k + layer->key_bytes;
    float scale = kernels->float_to_codes(value, layer->value_dim, codes);
    int8_t row[32];
    int d;

    memcpy(v + (size_t)at * 4, &scale, 4);
    for (d = 0; d < layer->value_dim; d++)
        v[specdec__kv_value_code(at, d)] = (unsigned char)codes[d];
    for (d = 0; d < layer->dim; d += 32) {
        unsigned char *own = k + specdec__kv_tile_block(layer, at, d);

        scale = kernels->float_to_codes(key + d, 32, row);
        specdec__store_u16(own + at % SPECDEC__ROWS * 2, specdec__f16_from_float(scale));
        specdec__quant_move_units(4, 8, 0, (const unsigned char *)row, 4, own + 32 + at % SPECDEC__ROWS * 4,
                                  4 * SPECDEC__ROWS);
    }
}

/* Stores one key (dim floats, rotated, padded with zeros) at k of a page of a cache of this type, and one value
   (value_dim, padded) key_bytes behind, at place `at`. codes: room for (value_dim). */
static void specdec__kv_store(int type, const specdec__kv_layer *layer, const specdec__kernels *kernels,
                              unsigned char *k, int at, const float *key, const float *value, int8_t *codes)
{
    unsigned char *v = k + layer->key_bytes;
    const int dim = layer->dim, value_dim = layer->value_dim;
    unsigned char halves[32];
    int d, i;

    switch (type) {
    case SPECDEC__KV_F32:
        for (d = 0; d < dim; d++)
            memcpy(k + ((size_t)d * SPECDEC__KEYS + (size_t)at) * 4, key + d, 4);
        memcpy(v + (size_t)at * (size_t)value_dim * 4, value, (size_t)value_dim * 4);
        break;
    case SPECDEC__KV_F16:
        for (d = 0; d < dim; d += 16) {
            kernels->float_to_f16(key + d, 16, halves);
            for (i = 0; i < 16; i++)
                memcpy(k + ((size_t)(d + i) * SPECDEC__KEYS + (size_t)at) * 2, halves + i * 2, 2);
        }
        kernels->float_to_f16(value, value_dim, v + (size_t)at * (size_t)value_dim * 2);
        break;
    default: specdec__kv_store_codes(layer, kernels, k, at, key, value, codes); break;
    }
}

/* Keys (dim, 64) of a page that are no tiles as floats, at least those in the first `slots`: in place for f32, else
   converted into buffer. type: of the cache. */
static const float *specdec__kv_keys_as_floats(int type, const specdec__kv_layer *layer,
                                               const specdec__kernels *kernels, const unsigned char *half, int slots,
                                               float *buffer)
{
    int d;

    if (type == SPECDEC__KV_F32)
        return (const float *)(const void *)half;
    if (slots > SPECDEC__KEYS / 2) {
        kernels->f16_to_float(half, layer->dim * SPECDEC__KEYS, buffer);
        return buffer;
    }
    for (d = 0; d < layer->dim; d++)
        kernels->f16_to_float(half + (size_t)d * SPECDEC__KEYS * 2, specdec__round_up(slots, 16),
                              buffer + d * SPECDEC__KEYS);
    return buffer;
}

/* The same for values (64, value_dim). */
static const float *specdec__kv_values_as_floats(int type, const specdec__kv_layer *layer,
                                                 const specdec__kernels *kernels, const unsigned char *half, int slots,
                                                 float *buffer)
{
    if (type == SPECDEC__KV_F32)
        return (const float *)(const void *)half;
    kernels->f16_to_float(half, layer->value_dim * slots, buffer);
    return buffer;
}
