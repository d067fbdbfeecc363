/* =====================================================================================================================
 * >>quant/table: the table of quantised types: looks types up, computes sizes, converts rows of any type to floats.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "types.h"
#include "decode.h"

/* The table row of each type. */
#define SPECDEC__QUANT_TABLE_ROW(number, name, block, bytes, granule, bits, has_minimum, decode, ...) \
    {number, #name, block, bytes, granule, bits, has_minimum, \
     SPECDEC__HAS(name) ? (specdec__quant_decoder *)(decode) : NULL, {__VA_ARGS__}},
static const specdec__quant_type specdec__quant_types[] = {SPECDEC__QUANT_TYPES(SPECDEC__QUANT_TABLE_ROW)};

/* Returns the row of a type by its number in files. NULL for types without a row. */
static SPECDEC__UNUSED const specdec__quant_type *specdec__quant_find_type(uint32_t number)
{
    size_t i;

    for (i = 0; i < SPECDEC__COUNT(specdec__quant_types); i++)
        if (specdec__quant_types[i].number == number)
            return &specdec__quant_types[i];
    return NULL;
}

/* Returns whether SPECDEC_TYPES leaves a type out. */
SPECDEC__INLINE int specdec__quant_is_left_out(const specdec__quant_type *type)
{
    return type->granule && !type->decode;
}

/* A type of GGUF that this library does not support. */
typedef struct specdec__quant_unsupported {
    unsigned short number;       /* the type's number in files */
    unsigned short block, bytes; /* elements and bytes of a block; bytes 0: the type was removed from the format */
    const char *name;            /* the type's name in llama.cpp */
    const char *nearest;         /* name of the most similar supported type */
} specdec__quant_unsupported;

/* All unsupported types. */
static const specdec__quant_unsupported specdec__quant_unsupported_types[] = {
    {4, 1, 0, "Q4_2", "Q4_0"},          {5, 1, 0, "Q4_3", "Q4_1"},          {9, 32, 36, "Q8_1", "Q8_0"},
    {15, 256, 292, "Q8_K", "Q8_0"},     {24, 1, 1, "I8", "F32"},            {25, 1, 2, "I16", "F32"},
    {26, 1, 4, "I32", "F32"},           {27, 1, 8, "I64", "F32"},           {28, 1, 8, "F64", "F32"},
    {31, 1, 0, "Q4_0_4_4", "Q4_0"},     {32, 1, 0, "Q4_0_4_8", "Q4_0"},     {33, 1, 0, "Q4_0_8_8", "Q4_0"},
    {36, 1, 0, "IQ4_NL_4_4", "IQ4_NL"}, {37, 1, 0, "IQ4_NL_4_8", "IQ4_NL"}, {38, 1, 0, "IQ4_NL_8_8", "IQ4_NL"}};

/* Returns the row of an unsupported type by its number in files. NULL for unknown numbers. */
static SPECDEC__UNUSED const specdec__quant_unsupported *specdec__quant_find_unsupported(uint32_t number)
{
    size_t i;

    for (i = 0; i < SPECDEC__COUNT(specdec__quant_unsupported_types); i++)
        if (specdec__quant_unsupported_types[i].number == number)
            return &specdec__quant_unsupported_types[i];
    return NULL;
}

/* Returns the bytes of a tensor of `elements` elements in rows of `row` elements. SIZE_MAX if a row is no multiple of
   the block, or the size overflows; 0 for types whose size is not known. */
static SPECDEC__UNUSED size_t specdec__quant_tensor_bytes(uint32_t number, uint64_t elements, uint64_t row)
{
    const specdec__quant_type *type = specdec__quant_find_type(number);
    const specdec__quant_unsupported *unsupported = type ? NULL : specdec__quant_find_unsupported(number);
    const size_t block = type ? (size_t)type->block : unsupported ? unsupported->block : 1,
                 bytes = type ? (size_t)type->bytes : unsupported ? unsupported->bytes : 0;

    if (!bytes)
        return 0;
    if (row % block || elements % block || elements / block > (uint64_t)(SIZE_MAX / bytes))
        return SIZE_MAX;
    return (size_t)(elements / block) * bytes;
}

/* Converts a quantised block to floats, out (block). Granules are multiples of 16 elements. */
SPECDEC__VECTORISE static void specdec__quant_block_to_float(const specdec__quant_type *type,
                                                             const unsigned char *block, float *out)
{
    int8_t codes[SPECDEC__QUANT_MAX_BLOCK];
    float scale[SPECDEC__QUANT_MAX_GRANULES], minimum[SPECDEC__QUANT_MAX_GRANULES];
    int i, k;

    type->decode(block, codes, scale, minimum);
    for (i = 0; i < type->block; i += 16) {
        float s = scale[i / type->granule], m = type->has_minimum ? minimum[i / type->granule] : 0;

        if (type->has_minimum)
            for (k = 0; k < 16; k++)
                out[i + k] = s * (float)codes[i + k] + m;
        else
            for (k = 0; k < 16; k++)
                out[i + k] = s * (float)codes[i + k];
    }
}

/* Converts a row of elements (a multiple of the block) of any type to floats, out (elements). */
SPECDEC__VECTORISE static SPECDEC__UNUSED void specdec__quant_to_float(const specdec__quant_type *type,
                                                                       const void *row, size_t elements, float *out)
{
    const unsigned char *at = (const unsigned char *)row;
    size_t i;

    if (type->number == SPECDEC__TYPE_F32)
        for (i = 0; i < elements; i++)
            out[i] = specdec__load_f32(at + 4 * i);
    else if (type->number == SPECDEC__TYPE_F16)
        for (i = 0; i < elements; i++)
            out[i] = specdec__load_f16(at + 2 * i);
    else if (type->number == SPECDEC__TYPE_BF16)
        for (i = 0; i < elements; i++)
            out[i] = specdec__float_from_bf16(specdec__load_u16(at + 2 * i));
    else
        for (i = 0; i < elements / type->block; i++)
            specdec__quant_block_to_float(type, at + i * type->bytes, out + i * type->block);
}
