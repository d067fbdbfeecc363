/* =====================================================================================================================
 * >>cache/bytes: how keys, values and recurrent states are stored in the cache, and copied to and from a file.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../quant/types.h"
#include "../quant/tiles.h"
#include "../model/mixing.h"
#include "../kernel/kernel.h"
#include "state.h"
#include "kv.h"
#include "reserve.h"

SPECDEC__FOR_SIZE

/* A position in a saved file, and the direction of the copy: into the cache (a load) or into the file (a save). */
typedef struct specdec__kv_file {
    unsigned char *next_byte; /* the next byte of the file; a load only reads it */
    int loads;                /* 1: bytes go from the file into the cache; 0: from the cache into the file */
} specdec__kv_file;

/* Copies `count` units of 1, 2 or 4 bytes between a file and a page of the cache. Units are contiguous in the file, and
   `step` bytes apart in the page. */
static void specdec__kv_copy_units_from_or_to_file(specdec__kv_file *file, int unit, int count, unsigned char *page,
                                                   size_t step)
{
    if (file->loads)
        specdec__quant_move_units(unit, count, 0, file->next_byte, (size_t)unit, page, step);
    else
        specdec__quant_move_units(unit, count, 0, page, step, file->next_byte, (size_t)unit);
    file->next_byte += (size_t)unit * (size_t)count;
}

/* Copies `count` floats between a file, where they are contiguous and little-endian, and a page of the cache, where
   they are `step` bytes apart and in the machine's byte order. */
static void specdec__kv_copy_floats_from_or_to_file(specdec__kv_file *file, int count, unsigned char *page, size_t step)
{
    uint32_t bits;
    int i;

    for (i = 0; i < count; i++, file->next_byte += 4, page += step) {
        memcpy(&bits, page, sizeof bits);
        if (file->loads)
            bits = specdec__load_u32(file->next_byte);
        else
            specdec__store_u32(file->next_byte, bits);
        memcpy(page, &bits, sizeof bits);
    }
}

/* Copies one key and its value between a file and slot `at` of a page. k: the page's keys for one layer and head. type:
   the type of the cache, SPECDEC__KV_... */
static void specdec__kv_copy_slot_from_or_to_file(int type, const specdec__kv_layer *layer, unsigned char *k, int at,
                                                  specdec__kv_file *file)
{
    const size_t row = (size_t)at * (size_t)layer->value_dim;
    unsigned char *v = k + layer->key_bytes;
    int d;

    switch (type) {
    case SPECDEC__KV_F32:
        specdec__kv_copy_floats_from_or_to_file(file, layer->dim, k + (size_t)at * 4, 4 * SPECDEC__KEYS);
        specdec__kv_copy_floats_from_or_to_file(file, layer->value_dim, v + row * 4, 4);
        break;
    case SPECDEC__KV_F16:
        specdec__kv_copy_units_from_or_to_file(file, 2, layer->dim, k + (size_t)at * 2, 2 * SPECDEC__KEYS);
        specdec__kv_copy_units_from_or_to_file(file, 2, layer->value_dim, v + row * 2, 2);
        break;
    default:
        for (d = 0; d < layer->dim; d += 32) {
            unsigned char *own = k + specdec__kv_key_block_offset(layer, at, d);

            specdec__kv_copy_units_from_or_to_file(file, 2, 1, own + at % SPECDEC__ROWS * 2, 2);
            specdec__kv_copy_units_from_or_to_file(file, 4, 8, own + 32 + at % SPECDEC__ROWS * 4, 4 * SPECDEC__ROWS);
        }
        specdec__kv_copy_floats_from_or_to_file(file, 1, v + (size_t)at * 4, 4);
        for (d = 0; d < layer->value_dim; d += SPECDEC__ROWS)
            specdec__kv_copy_units_from_or_to_file(file, 1, SPECDEC__ROWS, v + specdec__kv_value_code_offset(at, d), 4);
        break;
    }
}

/* Returns the bytes that the keys and values of `count` positions take in a file, for the layers of one span. */
static size_t specdec__kv_bytes_in_file(const specdec__kv *kv, int span, int count)
{
    return specdec__size_multiply(kv->span[span].bytes / SPECDEC__KEYS, (size_t)count);
}

/* Copies the keys and values of logical positions [from, end) of a view between the cache and a file. The file's order:
   64 positions at a time; for these layer by layer; within a layer head by head. */
static void specdec__view_copy_keys_from_or_to_file(const specdec__view *view, const specdec__kv *kv, int span,
                                                    int from, int end, specdec__kv_file *file)
{
    int slots[SPECDEC__KEYS], count, layer, head, i;

    for (; from < end && kv->span[span].bytes; from += count) {
        count = specdec__min_int(SPECDEC__KEYS - from % SPECDEC__KEYS, end - from);
        specdec__view_find_slots_of_positions(&view->span[span], from, count, slots);
        for (layer = 0; layer < kv->layers; layer++) {
            const specdec__kv_layer *l = &kv->layer[layer];

            for (head = 0; l->span == span && l->owns_keys && head < l->kv_heads; head++)
                for (i = 0; i < count; i++)
                    specdec__kv_copy_slot_from_or_to_file(
                        kv->type, l, specdec__kv_keys_address(kv, l, slots[i] / SPECDEC__KEYS, head),
                        slots[i] % SPECDEC__KEYS, file);
        }
    }
}

/* Returns the bytes that a recurrent state takes in a file: the bytes of its slot, with one of the two windows per
   layer. */
static size_t specdec__state_bytes_in_file(const specdec__states *s)
{
    return s->bytes - specdec__recurrent_conv_window_floats(&s->recurrent_sizes) * sizeof(float) *
                          (size_t)s->recurrent_sizes.layers;
}

/* Copies the recurrent state in a slot between the cache and a file: for each layer the window of its convolution, then
   the matrices of its heads. */
static void specdec__state_copy_slot_from_or_to_file(const specdec__states *s, int slot, specdec__kv_file *file)
{
    const size_t window = specdec__recurrent_conv_window_floats(&s->recurrent_sizes),
                 layer = specdec__state_slot_floats_per_layer(&s->recurrent_sizes);
    const size_t matrices = layer - 2 * window;
    int i;

    for (i = 0; i < s->recurrent_sizes.layers; i++) {
        float *at = specdec__states_slot_address(s, slot) + (size_t)i * layer;

        specdec__kv_copy_floats_from_or_to_file(file, (int)window,
                                                (unsigned char *)(at + (s->current_window[slot] ? window : 0)), 4);
        specdec__kv_copy_floats_from_or_to_file(file, (int)matrices, (unsigned char *)(at + 2 * window), 4);
    }
}

/* Whether a span has enough pages for logical positions [from, end) of a view. Free pages count, and so do pages that
   only kept views or this view hold, as these would be freed. */
static int specdec__view_has_free_pages(const specdec__view *view, const specdec__kv *kv, int span, int from, int end)
{
    const specdec__pages *pages = &kv->span[span];
    const specdec__segments *s = &view->span[span];
    const int needed = (end + SPECDEC__KEYS - 1) / SPECDEC__KEYS - from / SPECDEC__KEYS;
    int i, room = pages->free_count + pages->only_kept;

    for (i = 0; i < s->count + s->spare_pages; i++)
        room += pages->view_counts[s->segment[i].page] == 1 + pages->kept_counts[s->segment[i].page];
    return !pages->count || (needed <= room && needed <= view->max_segments);
}

/* Gives an empty view slots for logical positions [from, end) of a span. The caller has checked with
   specdec__view_has_free_pages that there are enough pages. */
static void specdec__view_assign_slots(specdec__view *view, specdec__kv *kv, int span, int from, int end)
{
    specdec__segments *s = &view->span[span];

    for (; from < end && kv->span[span].count; from += s->segment[s->count++].length) {
        specdec__segment *at = &s->segment[s->count];

        at->page = specdec__pages_take_page(kv, span);
        at->start = from;
        at->from = from % SPECDEC__KEYS;
        at->length = specdec__min_int(SPECDEC__KEYS - at->from, end - from);
    }
}

SPECDEC__FOR_SPEED

/* Quantises one key and one value to 8-bit codes and stores them in slot `at` of a page; arguments as for
   specdec__kv_store_key_and_value. */
static void specdec__kv_store_key_and_value_as_codes(const specdec__kv_layer *layer, const specdec__kernels *kernels,
                                                     unsigned char *k, int at, const float *key, const float *value,
                                                     int8_t *codes)
{
    unsigned char *v = k + layer->key_bytes;
    float scale = kernels->float_to_codes(value, layer->value_dim, codes);
    int8_t row[32];
    int d;

    memcpy(v + (size_t)at * 4, &scale, 4);
    for (d = 0; d < layer->value_dim; d++)
        v[specdec__kv_value_code_offset(at, d)] = (unsigned char)codes[d];
    for (d = 0; d < layer->dim; d += 32) {
        unsigned char *own = k + specdec__kv_key_block_offset(layer, at, d);

        scale = kernels->float_to_codes(key + d, 32, row);
        specdec__store_u16(own + at % SPECDEC__ROWS * 2, specdec__f16_from_float(scale));
        specdec__quant_move_units(4, 8, 0, (const unsigned char *)row, 4, own + 32 + at % SPECDEC__ROWS * 4,
                                  4 * SPECDEC__ROWS);
    }
}

/* Stores one key and one value in slot `at` of a page. k: the page's keys for one layer and head; its values lie
   key_bytes behind them. key (dim): rotated and padded with zeros. value (value_dim): padded with zeros. codes
   (value_dim): a buffer. type: the type of the cache, SPECDEC__KV_... */
static void specdec__kv_store_key_and_value(int type, const specdec__kv_layer *layer, const specdec__kernels *kernels,
                                            unsigned char *k, int at, const float *key, const float *value,
                                            int8_t *codes)
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
    default: specdec__kv_store_key_and_value_as_codes(layer, kernels, k, at, key, value, codes); break;
    }
}

/* Returns the keys (dim, 64) of a page of an f32 or f16 cache as floats, valid at least for the first `slots` slots: in
   place for f32, converted into `buffer` for f16. page: the page's keys for one layer and head. */
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

/* Returns the values (64, value_dim) of a page of an f32 or f16 cache as floats, valid at least for the first `slots`
   slots: in place for f32, converted into `buffer` for f16. page: the page's values for one layer and head. */
static const float *specdec__kv_values_as_floats(int type, const specdec__kv_layer *layer,
                                                 const specdec__kernels *kernels, const unsigned char *half, int slots,
                                                 float *buffer)
{
    if (type == SPECDEC__KV_F32)
        return (const float *)(const void *)half;
    kernels->f16_to_float(half, layer->value_dim * slots, buffer);
    return buffer;
}
