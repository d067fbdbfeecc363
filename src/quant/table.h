/* =====================================================================================================================
 * >>quant/table: the table of types: looking up, sizes, rows of any type to floats.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "types.h"
#include "decode.h"

#define SPECDEC__QUANT_ROW(number, name, block, bytes, granule, bits, has_minimum, decode, ...) \
    {number, #name, block, bytes, granule, bits, has_minimum, \
     SPECDEC__HAS(name) ? (specdec__quant_decoder *)(decode) : NULL, {__VA_ARGS__}},
static const specdec__quant_type specdec__quant_types[] = {SPECDEC__QUANT_TYPES(SPECDEC__QUANT_ROW)};

/* The row of a type number, or NULL when it is not read. */
static SPECDEC__UNUSED const specdec__quant_type *specdec__quant_find(uint32_t number)
{
    size_t i;

    for (i = 0; i < SPECDEC__COUNT(specdec__quant_types); i++)
        if (specdec__quant_types[i].number == number)
            return &specdec__quant_types[i];
    return NULL;
}

/* Was a type left out by SPECDEC_TYPES? */
SPECDEC__INLINE int specdec__quant_left_out(const specdec__quant_type *type) { return type->granule && !type->decode; }

/* Bytes of a tensor of so many elements in rows of row elements. SIZE_MAX when rows are no multiple of the block, or
   the size does not fit; 0 for unknown types. */
static SPECDEC__UNUSED size_t specdec__quant_bytes(uint32_t number, uint64_t elements, uint64_t row)
{
    const specdec__quant_type *type = specdec__quant_find(number);

    if (!type)
        return 0;
    if (row % type->block || elements % type->block || elements / type->block > (uint64_t)(SIZE_MAX / type->bytes))
        return SIZE_MAX;
    return (size_t)(elements / type->block) * type->bytes;
}

/* One quantised block to floats, out (block). Granules are multiples of 16. */
SPECDEC__VECTORISE static void specdec__quant_block_to_float(const specdec__quant_type *type,
                                                             const unsigned char *block, float *out)
{
    int8_t codes[SPECDEC__QUANT_BLOCK];
    float scale[SPECDEC__QUANT_GRANULES], minimum[SPECDEC__QUANT_GRANULES];
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

/* A row of elements (a multiple of the block) of any type to floats, out (elements). */
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
