/* =====================================================================================================================
 * >>kernel/weigh: attention over 8-bit values: weighted sums of codes, written once for every instruction set.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "kernel.h"
#include "scalar.h"

/* Of a page of keys and values, the part that goes with the 64 bytes of values which lie `at` bytes on. */
SPECDEC__UNUSED SPECDEC__INLINE void specdec__weigh_fetch(const unsigned char *page, int at)
{
    if (page) {
        __builtin_prefetch(page + at / 8 * 17, 0, 3); /* 32 values, or keys with their scale, take 34 bytes */
        __builtin_prefetch(page + at / 8 * 17 + 64, 0, 3);
        __builtin_prefetch(page + at / 8 * 17 + 128, 0, 3);
    }
}

/* specdec__weigh_codes_function from an instruction set's value_sums(values, keys, codes, next, sums), which computes
   the sums of `tiles` tiles of 16 dimensions and `many` columns, sums (column, tile * 16) as floats; many is 1, 2 or
   4. lanes: whose vectors they are. each: what unrolls loops over them, where that pays. */
#define SPECDEC__WEIGH_CODES(isa, lanes, target, tiles, many, each) \
    target static void specdec__##isa##_weigh_codes(const int8_t *values, int dim, int keys, const uint8_t *codes, \
                                                    const float *scales, int count, const unsigned char *next, \
                                                    float *const *out) \
    { \
        enum { VECTOR = sizeof(specdec__##lanes##_v) / sizeof(float), VECTORS = (tiles) * SPECDEC__ROWS / VECTOR }; \
        specdec__##lanes##_v sums[(many) * VECTORS]; \
        int d, c, from, i; \
        \
        for (from = 0; from < count; from += (many), next = NULL) \
            for (d = 0; d < dim; d += (tiles) * SPECDEC__ROWS) { \
                specdec__##isa##_value_sums(values + d * SPECDEC__KEYS, keys, codes + from * SPECDEC__KEYS, \
                                            next ? next + d * SPECDEC__KEYS / 8 * 17 : NULL, sums); \
                each \
                for (c = 0; c < (many); c++) { \
                    const specdec__##lanes##_v scale = specdec__##lanes##_set(scales[from + c]); \
                    float *to = out[from + c] + d; \
                    \
                    each \
                    for (i = 0; i < VECTORS; i++) \
                        specdec__##lanes##_store(to + i * VECTOR, specdec__##lanes##_madd(scale, \
                            sums[c * VECTORS + i], specdec__##lanes##_load(to + i * VECTOR))); \
                } \
            } \
    }

/* One tile, one column: the canonical sums. */
static void specdec__scalar_value_sums(const int8_t *values, int keys, const uint8_t *codes, const unsigned char *next,
                                       float *sums)
{
    int row, key;

    (void)next;
    for (row = 0; row < SPECDEC__ROWS; row++) {
        int32_t sum = 0;

        for (key = 0; key < keys; key++)
            sum += codes[key] * values[(key / 4 * SPECDEC__ROWS + row) * 4 + key % 4];
        sums[row] = (float)sum;
    }
}

SPECDEC__WEIGH_CODES(scalar, scalar, , 1, 1, )
