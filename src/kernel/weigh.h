/* =====================================================================================================================
 * >>kernel/weigh: attention over 8-bit values: the loop of weigh_codes, written once for all instruction sets.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "kernel.h"
#include "scalar.h"

/* Prefetches the part of a page of keys and values that corresponds to the 64 bytes at offset `at` of 8-bit values. */
SPECDEC__UNUSED SPECDEC__INLINE void specdec__weigh_prefetch_page_lines(const unsigned char *page, int at)
{
    if (page) {
        __builtin_prefetch(page + at / 8 * 17, 0, 3); /* 32 keys or values with their scale take 34 bytes */
        __builtin_prefetch(page + at / 8 * 17 + 64, 0, 3);
        __builtin_prefetch(page + at / 8 * 17 + 128, 0, 3);
    }
}

/* Defines specdec__weigh_codes_function by an instruction set's value_sums(values, keys, codes, next, sums). That
   computes sums (column, tile * 16), as floats, of `tiles` tiles of 16 dimensions and `many` (1, 2 or 4) columns.
   lanes: the set whose vectors are used. each: a pragma that unrolls loops, or nothing. */
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

/* Computes the sums over keys of codes times 8-bit values, for 16 dimensions and one query: value_sums of
   SPECDEC__WEIGH_CODES. The integer sums are exact. */
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
