/* =====================================================================================================================
 * >>engine/api_functions: bodies of the API: trees of the caller's, files and types.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "../quant/types.h"
#include "../quant/table.h"
#include "../quant/encode.h"
#include "../kernel/dispatch.h"
#include "../model/gguf.h"
#include "../text/vocabulary.h"
#include "../text/chat.h"
#include "../model/mixing.h"
#include "../model/model.h"
#include "../cache/state.h"
#include "../speculation/tree.h"
#include "engine.h"
#include "layout.h"
#include "api.h"

SPECDEC__FOR_SIZE

/* The body of specdec_set_tree: sets the token tree that every step drafts. */
static specdec_result specdec__call_set_tree(specdec *t, const specdec_tree *tree)
{
    specdec_result result = specdec__check_call_arguments(t, tree != NULL);
    specdec__engine *e;

    if (result)
        return result;
    e = t->engine;
    if (e->config.drafting != SPECDEC_DRAFT_MODEL || specdec__engine_trees_grow_by_level(&e->config))
        return specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, "a tree is set for static SPECDEC_DRAFT_MODEL only");
    result = specdec_tree_check(tree, &t->error);
    if (result)
        return result;
    if (tree->n > e->config.tree_size || specdec_tree_depth(tree, NULL) > e->config.tree_depth)
        return specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT,
                             "a tree of %d nodes and %d levels; the engine takes %d and %d", tree->n,
                             specdec_tree_depth(tree, NULL), e->config.tree_size, e->config.tree_depth);
    memcpy(e->fixed_tree.parents, tree->parents, (size_t)tree->n * sizeof *tree->parents);
    memcpy(e->fixed_tree.ranks, tree->ranks, (size_t)tree->n * sizeof *tree->ranks);
    e->fixed_tree.n = tree->n;
    return SPECDEC_OK;
}

/* --- files and types ---------------------------------------------------------------------------------------------- */

specdec_result specdec_gguf_open(specdec_gguf *gguf, const void *data, size_t size, specdec_error *error)
{
    specdec__bytes file;
    specdec_result result;

    if (!gguf || !data)
        return specdec__fail_missing_argument(error);
    file.data = (const unsigned char *)data;
    file.size = size;
    result = specdec__gguf_open(gguf, file, error);
    if (result)
        memset(gguf, 0, sizeof *gguf); /* nothing of it was checked */
    return result;
}

int specdec_gguf_find(const specdec_gguf *gguf, const char *key, specdec_gguf_value *value)
{
    return gguf && key && value && specdec__gguf_find_value(gguf, key, value);
}

int specdec_gguf_find_tensor(const specdec_gguf *gguf, const char *name, specdec_gguf_tensor *tensor)
{
    return gguf && name && tensor ? specdec__gguf_find_tensor(gguf, name, tensor) : 0;
}

/* Returns a cursor at byte `place` of a GGUF file; place 0 stands for byte `from`. The cursor is bad if the place is
   not below `to`. */
static specdec__cursor specdec__gguf_cursor_at(const specdec_gguf *gguf, size_t place, size_t from, size_t to)
{
    specdec__cursor c = specdec__cursor_begin_at_start(gguf->file.data, to);

    c.offset = place < from ? from : place;
    c.is_bad = c.offset >= to;
    return c;
}

int specdec_gguf_next_pair(const specdec_gguf *gguf, size_t *place, specdec_gguf_pair *pair)
{
    specdec__cursor c;
    size_t from;

    if (!gguf || !place || !pair)
        return 0;
    c = specdec__gguf_cursor_at(gguf, *place, gguf->pairs_at, gguf->tensors_at);
    if (c.is_bad) /* none left */
        return 0;
    from = c.offset;
    pair->key = specdec__cursor_read_string(&c);
    pair->value = specdec__cursor_read_value(&c);
    if (c.is_bad)
        return 0;
    pair->record.data = gguf->file.data + from;
    pair->record.size = c.offset - from;
    *place = c.offset;
    return 1;
}

int specdec_gguf_next_tensor(const specdec_gguf *gguf, size_t *place, specdec_gguf_tensor *tensor)
{
    specdec__cursor c;

    if (!gguf || !place || !tensor)
        return 0;
    c = specdec__gguf_cursor_at(gguf, *place, gguf->tensors_at, gguf->tensors_end);
    if (c.is_bad || specdec__gguf_read_tensor(gguf, &c, tensor))
        return 0;
    *place = c.offset;
    return 1;
}

int specdec_gguf_next_string(const specdec_gguf_value *array, size_t *place, specdec_bytes *string)
{
    specdec__cursor c;

    if (!array || !place || !string || !array->is_array || array->type != SPECDEC_GGUF_STRING || *place >= array->bytes)
        return 0;
    c.data = array->items;
    c.size = array->bytes;
    c.offset = *place;
    c.is_bad = 0;
    *string = specdec__cursor_read_string(&c);
    *place = c.is_bad ? *place : c.offset;
    return !c.is_bad;
}

/* Returns the address of item i of a metadata value; NULL: the value has no such item, or its items have no fixed
   size. */
static const unsigned char *specdec__gguf_item_address(const specdec_gguf_value *value, uint64_t i)
{
    size_t size = value && value->type < SPECDEC_GGUF_TYPES ? specdec__gguf_type_size[value->type] : 0;

    return size && i < value->bytes / size ? value->items + (size_t)i * size : NULL;
}

int specdec_gguf_integer(const specdec_gguf_value *value, uint64_t i, int64_t *out)
{
    const unsigned char *at = specdec__gguf_item_address(value, i);

    return at && out && specdec__gguf_read_integer(value->type, at, out);
}

int specdec_gguf_real(const specdec_gguf_value *value, uint64_t i, double *out)
{
    const unsigned char *at = specdec__gguf_item_address(value, i);
    uint64_t bits;
    int64_t integer;

    if (!at || !out)
        return 0;
    if (value->type == SPECDEC_GGUF_F32) {
        *out = (double)specdec__load_f32(at);
    } else if (value->type == SPECDEC_GGUF_F64) {
        bits = specdec__load_u64(at);
        memcpy(out, &bits, sizeof bits);
    } else if (specdec__gguf_read_integer(value->type, at, &integer)) {
        *out = value->type == SPECDEC_GGUF_U64 ? (double)specdec__load_u64(at) : (double)integer;
    } else {
        return 0;
    }
    return 1;
}

specdec_result specdec_gguf_get_integer(const specdec_gguf *gguf, const char *key, int64_t low, int64_t high,
                                        int64_t *out, specdec_error *error)
{
    if (!gguf || !key || !out)
        return specdec__fail_missing_argument(error);
    return specdec__gguf_get_integer(gguf, key, 0, low, high, out, error);
}

specdec_result specdec_gguf_get_float(const specdec_gguf *gguf, const char *key, float *out, specdec_error *error)
{
    if (!gguf || !key || !out)
        return specdec__fail_missing_argument(error);
    return specdec__gguf_get_float(gguf, key, out, error);
}

specdec_result specdec_gguf_get_string(const specdec_gguf *gguf, const char *key, specdec_bytes *out,
                                       specdec_error *error)
{
    specdec__bytes found;
    specdec_result result;

    if (!gguf || !key || !out)
        return specdec__fail_missing_argument(error);
    result = specdec__gguf_get_string(gguf, key, &found, error);
    *out = result || !found.data ? *out : found;
    return result;
}

/* Writes the public description of the quantisation type `known` to *type. Returns 0, and changes nothing, if either
   pointer is NULL; else 1. */
static int specdec__type_describe(const specdec__quant_type *known, specdec_type *type)
{
    if (!known || !type)
        return 0;
    type->number = known->number;
    type->name = known->name;
    type->block = known->block;
    type->bytes = known->bytes;
    type->writable = !known->granule || specdec__quant_find_encoder(known);
    return 1;
}

int specdec_type_by_number(uint32_t number, specdec_type *type)
{
    return specdec__type_describe(specdec__quant_find_type(number), type);
}

const char *specdec_type_not_read(uint32_t number, specdec_type *type)
{
    const specdec__quant_unsupported *unsupported = specdec__quant_find_unsupported(number);

    if (!unsupported || !type)
        return NULL;
    type->number = number;
    type->name = unsupported->name;
    type->block = unsupported->block;
    type->bytes = unsupported->bytes;
    type->writable = 0;
    return unsupported->nearest;
}

int specdec_type_by_name(const char *name, specdec_type *type)
{
    uint32_t number = 0;
    const specdec__quant_type *known = NULL;

    for (; name && number < SPECDEC__TYPE_COUNT; number++) {
        known = specdec__quant_find_type(number);
        if (known && strcmp(known->name, name) == 0)
            break;
    }
    return number < SPECDEC__TYPE_COUNT && specdec__type_describe(known, type);
}

SPECDEC__STATIC_ASSERT(type_numbers_are_public, SPECDEC_TYPE_NUMBERS == SPECDEC__TYPE_COUNT);

/* Returns the quantisation type with a number. *bytes becomes the size of `values` values of the type, which must be
   whole blocks. NULL, with an error: there is no such type, or the blocks are not whole. */
static const specdec__quant_type *specdec__quant_type_for_values(uint32_t number, uint64_t values, size_t *bytes,
                                                                 specdec_error *error)
{
    const specdec__quant_type *type = specdec__quant_find_type(number);

    *bytes = specdec__quant_tensor_bytes(number, values, values);
    if (type && *bytes != SIZE_MAX)
        return type;
    if (!type)
        specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "type %u is not known", (unsigned)number);
    else
        specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "%llu values of %s, which come in blocks of %d, %s",
                      (unsigned long long)values, type->name, type->block,
                      values % type->block ? "are no whole blocks" : "are too many");
    return NULL;
}

specdec_result specdec_type_bytes(uint32_t number, uint64_t values, size_t *bytes, specdec_error *error)
{
    size_t size;

    if (!bytes)
        return specdec__fail_missing_argument(error);
    if (!specdec__quant_type_for_values(number, values, &size, error))
        return SPECDEC_ERROR_ARGUMENT;
    *bytes = size;
    return SPECDEC_OK;
}

specdec_result specdec_type_to_float(uint32_t number, const void *data, size_t values, float *out, specdec_error *error)
{
    size_t size;
    const specdec__quant_type *type = specdec__quant_type_for_values(number, values, &size, error);

    if (!type || (values && (!data || !out)))
        return type ? specdec__fail_missing_argument(error) : SPECDEC_ERROR_ARGUMENT;
    if (specdec__quant_is_left_out(type))
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "type %s is left out of this build by SPECDEC_TYPES",
                             type->name);
    specdec__quant_to_float(type, data, values, out);
    return SPECDEC_OK;
}

specdec_result specdec_type_from_float(uint32_t number, const float *values, size_t count, void *out,
                                       specdec_error *error)
{
    size_t size;
    const specdec__quant_type *type = specdec__quant_type_for_values(number, count, &size, error);
    specdec_type about;

    if (!specdec__type_describe(type, &about) || (count && (!values || !out)))
        return type ? specdec__fail_missing_argument(error) : SPECDEC_ERROR_ARGUMENT;
    if (!about.writable)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "%s is only read", about.name);
    specdec__quant_from_float(type, values, count, out);
    return SPECDEC_OK;
}

const char *specdec_isa_name(int index)
{
    size_t i;

    for (i = 0; index >= 0 && i < SPECDEC__COUNT(specdec__isas); i++)
        if (specdec__isas[i].fill && specdec__isas[i].present() && index-- == 0)
            return specdec__isas[i].name;
    return NULL;
}

int specdec_processors(void) { return specdec__os_count_processors(); }

specdec_result specdec_get_model_info(const specdec_model *model, specdec_model_info *info)
{
    const specdec_model *m = model;
    specdec__chat chat;

    if (!m || !info)
        return SPECDEC_ERROR_ARGUMENT;
    memset(info, 0, sizeof *info);
    if (m->vocab.count)
        specdec__chat_choose_format(&chat, m->chat, &m->vocab, NULL, NULL);
    info->architecture = m->architecture ? m->architecture->name : m->speculator ? m->speculator->name : NULL;
    info->chat_format = m->vocab.count && chat.format ? chat.format->name : NULL;
    info->has_template = m->chat_template.data != NULL;
    info->call_format = m->chat && m->chat->calls ? m->chat->calls->name : NULL;
    info->thought_format = m->chat && m->chat->thoughts ? m->chat->thoughts->name : NULL;
    info->tokenizer = m->vocab.model == SPECDEC__VOCAB_SPM   ? "SPM"
                      : m->vocab.model == SPECDEC__VOCAB_BPE ? "byte-level BPE"
                                                             : "BPE";
    info->words = m->vocab.pre_tokenizer ? m->vocab.pre_tokenizer->name : NULL;
    info->context = m->context;
    info->vocabulary = m->vocab_size ? m->vocab_size : (int)m->vocab.count; /* the latter without weights */
    info->layers = m->layers;
    info->embedding = m->embedding;
    info->feed_forward = m->experts ? m->expert_ff : m->feed_forward;
    info->heads = m->heads;
    info->kv_heads = m->kv_heads;
    info->head_size = m->head_dim;
    info->experts = m->experts;
    info->chosen = m->chosen_experts;
    if (specdec__recurrent_layers_exist(&m->recurrent_sizes))
        info->recurrent = specdec__recurrent_kinds[m->recurrent_sizes.kind].name;
    info->recurrent_layers = m->recurrent_sizes.layers;
    info->drafts = specdec__model_draft_kind(m);
    info->block = m->block.size;
    info->state_bytes = specdec__state_slot_bytes(&m->recurrent_sizes);
    info->window = m->window;
    info->window_layers = m->span_layers[SPECDEC__WINDOW];
    info->weight_bytes = m->weight_bytes;
    info->products_per_token = m->weight_products;
    info->gguf = &m->gguf;
    return SPECDEC_OK;
}

SPECDEC__FOR_SPEED
