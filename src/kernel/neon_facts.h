/* =====================================================================================================================
 * >>kernel/neon_facts: 64-bit NEON: facts of types that kernels depend on.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../quant/types.h"
#include "../quant/table.h"
#include "kernel.h"
#include "neon.h"

#if defined(__aarch64__) && defined(__ARM_NEON) && defined(__AARCH64EL__) && !defined(SPECDEC_NO_SIMD)
/* Panels count as types of their own, by granule and minimum (M). */
enum {
    SPECDEC__DOTPROD_PANEL_16 = SPECDEC__TYPE_COUNT, SPECDEC__DOTPROD_PANEL_16M, SPECDEC__DOTPROD_PANEL_32,
    SPECDEC__DOTPROD_PANEL_32M
};

/* The facts that the machine code of a type depends on are constants from the type's row, kept in masks with a bit for
   each type and kind of panel. */
#define SPECDEC__DOTPROD_IS_16(number, name, block, bytes, granule, ...) | (uint64_t)((granule) == 16) << (number)
#define SPECDEC__DOTPROD_IS_WIDE(number, name, block, bytes, granule, bits, ...) | (uint64_t)((bits) == 8) << (number)
#define SPECDEC__DOTPROD_MINIMUM(number, name, block, bytes, granule, bits, minimum, ...) \
    | (uint64_t)(minimum) << (number)
#define SPECDEC__DOTPROD_BIAS(number, name, block, bytes, granule, bits, minimum, ...) \
    case number: return (bits) == 0 || (bits) == 8 ? 0 : specdec__quant_bias(bits, minimum);
#define SPECDEC__DOTPROD_BLOCK_BYTES(number, name, block, bytes, ...) \
    case number: return (bytes) * SPECDEC__ROWS * 32 / (block);
#define SPECDEC__DOTPROD_PANEL(number) (UINT64_C(1) << SPECDEC__DOTPROD_PANEL_##number)

/* Returns the number of values of a type that share a scale. */
SPECDEC__INLINE int specdec__dotprod_values_per_scale(int type)
{
    const uint64_t panels = SPECDEC__DOTPROD_PANEL(16) | SPECDEC__DOTPROD_PANEL(16M);
    const uint64_t mask = panels SPECDEC__QUANT_TYPES(SPECDEC__DOTPROD_IS_16);

    return mask >> type & 1 ? 16 : 32;
}

/* Returns whether a type has the scales and minimums of Q4_K. */
SPECDEC__INLINE int specdec__dotprod_has_q4_k_scales(int type)
{
    return type == SPECDEC__TYPE_Q4_K || type == SPECDEC__TYPE_Q5_K;
}

/* Returns whether a type has minimums besides scales. */
SPECDEC__INLINE int specdec__dotprod_has_minimum(int type)
{
    const uint64_t panels = SPECDEC__DOTPROD_PANEL(16M) | SPECDEC__DOTPROD_PANEL(32M);
    const uint64_t mask = panels SPECDEC__QUANT_TYPES(SPECDEC__DOTPROD_MINIMUM);

    return (int)(mask >> type & 1);
}

/* Returns whether minimums are loaded without their sign, and subtracted. */
SPECDEC__INLINE int specdec__dotprod_subtracts_minimum(int type)
{
    return specdec__dotprod_has_q4_k_scales(type) || type == SPECDEC__TYPE_Q2_K;
}

/* Returns by how many columns a type is multiplied at once without a panel, at most. */
SPECDEC__INLINE int specdec__dotprod_max_columns_without_panel(int type)
{
    const int is_32 = type == SPECDEC__TYPE_Q4_0 || type == SPECDEC__TYPE_Q8_0 || type == SPECDEC__TYPE_Q4_K;

    return type >= SPECDEC__TYPE_COUNT || is_32 || specdec__dotprod_values_per_scale(type) == 16 ? 4 : 2;
}

/* Returns whether a row's sums of codes, one a granule, are stored as floats, which hold any such sum of this type.
   Else each sum is stored in parts, in four bytes. */
SPECDEC__INLINE int specdec__dotprod_has_float_code_sums(int type)
{
    const uint64_t mask = 0 SPECDEC__QUANT_TYPES(SPECDEC__DOTPROD_IS_WIDE);

    return type >= SPECDEC__TYPE_COUNT || (mask >> type & 1);
}

/* Returns whether the codes of a type have one or two bits. */
SPECDEC__INLINE int specdec__dotprod_has_two_bit_codes(int type)
{
    return type == SPECDEC__TYPE_Q1_0 || type == SPECDEC__TYPE_Q2_0 || type == SPECDEC__TYPE_TQ2_0;
}
/* Returns whether specdec__neon_unpack_few_bits_codes unpacks a type: one or two bits, or MXFP4. */
SPECDEC__INLINE int specdec__dotprod_has_few_bit_codes(int type)
{
    return specdec__dotprod_has_two_bit_codes(type) || type == SPECDEC__TYPE_MXFP4;
}

/* Returns the number that was added to a type's codes to make them unsigned. */
SPECDEC__INLINE int specdec__dotprod_bias(int type)
{
    if (type == SPECDEC__TYPE_MXFP4)
        return 0; /* signed codes from a table */
    switch (type) {
    SPECDEC__QUANT_TYPES(SPECDEC__DOTPROD_BIAS)
    default: return 0;
    }
}

/* Returns by how much the sums of a granule's codes, which offsets are multiplied by, are too large: those of Q4_0 and
   Q3_K are sums of unsigned codes; eight codes of five bits make a byte, from which 128 is subtracted to make it
   signed. */
SPECDEC__INLINE int specdec__dotprod_surplus_of_code_sum(int type)
{
    return specdec__dotprod_has_two_bit_codes(type)                         ? 32
           : type == SPECDEC__TYPE_Q4_0                               ? 32 * 8
           : type == SPECDEC__TYPE_Q3_K                               ? 16 * 4
           : type == SPECDEC__TYPE_Q5_1 || type == SPECDEC__TYPE_Q5_K ? -4 * 128
                                                                      : 0;
}

/* Returns whether a granule has two sums of codes. Those of Q6_K are then signed bytes, without subtracting 128: for
   one column without a panel, one more dot product costs less. */
SPECDEC__INLINE int specdec__dotprod_has_two_sums_per_granule(int type, int packed, int columns)
{
    return type == SPECDEC__TYPE_Q6_K && packed && columns == 1;
}

/* Returns the bytes of 32 values of 16 rows in a tile. */
SPECDEC__INLINE size_t specdec__dotprod_block_bytes(int type)
{
    switch (type) {
    SPECDEC__QUANT_TYPES(SPECDEC__DOTPROD_BLOCK_BYTES)
    default: return 0;
    }
}
/* Returns in how many ways blocks of 32 values of a type are unpacked: block b in way b modulo this number, each with
   its own code. */
SPECDEC__INLINE int specdec__dotprod_count_unpack_ways(int type)
{
    return specdec__dotprod_has_q4_k_scales(type)                                                   ? 2
           : type == SPECDEC__TYPE_Q2_K || type == SPECDEC__TYPE_Q3_K || type == SPECDEC__TYPE_Q6_K ? 4
                                                                                                    : 1;
}

/* Returns the offset of d of 16 rows in a tile whose scales are d times small integers; dmin follows it, if there are
   minimums. */
SPECDEC__INLINE size_t specdec__dotprod_offset_of_d(int type)
{
    return type == SPECDEC__TYPE_Q2_K   ? SPECDEC__TILE_AT(q2_k, d)
           : type == SPECDEC__TYPE_Q3_K ? SPECDEC__TILE_AT(q3_k, d)
           : type == SPECDEC__TYPE_Q6_K ? SPECDEC__TILE_AT(q6_k, d)
                                        : 0;
}
/* Returns the number that was added to the factors of scales in specdec__dotprod_run; -1 for types whose scales are
   half floats. */
SPECDEC__INLINE int specdec__dotprod_factor_bias(int type)
{
    return type == SPECDEC__TYPE_Q6_K                                             ? 128
           : type == SPECDEC__TYPE_Q3_K || type == SPECDEC__TYPE_IQ4_XS           ? 32
           : specdec__dotprod_has_q4_k_scales(type) || type == SPECDEC__TYPE_Q2_K ? 0
                                                                                  : -1;
}
#endif /* aarch64 */
