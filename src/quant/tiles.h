/* =====================================================================================================================
 * >>quant/tiles: repacks rows of a quantised matrix into tiles of 16 interleaved rows, and back.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "types.h"

/* Exchanges the bits of a word (or of each word of a vector) in `mask` with the bits `distance` higher. spare: a
   variable of the same type. */
#define SPECDEC__QUANT_SWAP(word, spare, distance, mask) \
    (spare = (word ^ word >> (distance)) & (mask), word ^= spare ^ spare << (distance))

/* Moves bit 4*i + j of a word to bit 8*j + i (i < 8, j < 4): byte j then holds the high bits of elements 4*i + j, so
   that a lane unpacks 4 neighbouring elements with one shift and one mask. */
#define SPECDEC__QUANT_TRANSPOSE_BITS(word, spare) \
    (SPECDEC__QUANT_SWAP(word, spare, 3, 0x0A0A0A0Au), SPECDEC__QUANT_SWAP(word, spare, 6, 0x00CC00CCu), \
     SPECDEC__QUANT_SWAP(word, spare, 8, 0x0000FF00u), SPECDEC__QUANT_SWAP(word, spare, 4, 0x00F000F0u))

/* The inverse of SPECDEC__QUANT_TRANSPOSE_BITS. */
#define SPECDEC__QUANT_TRANSPOSE_BITS_BACK(word, spare) \
    (SPECDEC__QUANT_SWAP(word, spare, 4, 0x00F000F0u), SPECDEC__QUANT_SWAP(word, spare, 8, 0x0000FF00u), \
     SPECDEC__QUANT_SWAP(word, spare, 6, 0x00CC00CCu), SPECDEC__QUANT_SWAP(word, spare, 3, 0x0A0A0A0Au))

/* Moves pair 4*i + j of a word's bits to pair 4*j + i (i, j < 4): byte j then holds the codes of elements 4*i + j. Its
   own inverse. */
#define SPECDEC__QUANT_TRANSPOSE_PAIRS(word, spare) \
    (SPECDEC__QUANT_SWAP(word, spare, 6, 0x00CC00CCu), SPECDEC__QUANT_SWAP(word, spare, 12, 0x0000F0F0u))

/* Transposes the bits of a field's word, if its unit says so. */
#define SPECDEC__QUANT_TRANSPOSE(unit, word, spare) \
    do { \
        if ((unit) == SPECDEC__QUANT_BITS32) \
            SPECDEC__QUANT_TRANSPOSE_BITS(word, spare); \
        else if ((unit) == SPECDEC__QUANT_PAIRS32) \
            SPECDEC__QUANT_TRANSPOSE_PAIRS(word, spare); \
    } while (0)

/* Copies `count` units of a field, from_step and to_step bytes apart, and transposes the bits of words; back:
   transposes them back. */
SPECDEC__INLINE void specdec__quant_move_units(int unit, int count, int back, const unsigned char *from,
                                               size_t from_step, unsigned char *to, size_t to_step)
{
    int i;

    if (unit == 4)
        for (i = 0; i < count; i++)
            memcpy(to + (size_t)i * to_step, from + (size_t)i * from_step, 4);
    else if (unit == 2)
        for (i = 0; i < count; i++)
            memcpy(to + (size_t)i * to_step, from + (size_t)i * from_step, 2);
    else if (unit == 1)
        for (i = 0; i < count; i++)
            to[(size_t)i * to_step] = from[(size_t)i * from_step];
    else
        for (i = 0; i < count; i++) {
            uint32_t word = specdec__load_u32(from + (size_t)i * from_step), spare;

            if (back && unit == SPECDEC__QUANT_BITS32)
                SPECDEC__QUANT_TRANSPOSE_BITS_BACK(word, spare);
            else
                SPECDEC__QUANT_TRANSPOSE(unit, word, spare);
            specdec__store_u32(to + (size_t)i * to_step, word);
        }
}

/* Loads four words from any address. */
SPECDEC__INLINE specdec__words specdec__quant_load_words(const unsigned char *at)
{
    specdec__words words;

    memcpy(&words, at, sizeof words);
    return words;
}

/* 1: rows are interleaved unit by unit, not as vectors of words: in builds without SIMD, for less machine code; on
   big-endian machines, whose words have another order. */
#if defined(SPECDEC_NO_SIMD) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#define SPECDEC__QUANT_BY_UNITS 1 /* fields are interleaved unit by unit, without vectors of bytes */
#else
#define SPECDEC__QUANT_BY_UNITS 0
#endif

/* Transposes four words of each of 16 rows, `step` bytes apart: words[4 * i + j] holds word i of rows 4 j to 4 j +
   3. */
SPECDEC__INLINE void specdec__quant_transpose_words(const unsigned char *from, size_t step, specdec__words *words)
{
    int row;

    for (row = 0; row < SPECDEC__TILE_ROWS; row += 4, from += 4 * step, words++) {
        specdec__words a = specdec__quant_load_words(from), b = specdec__quant_load_words(from + step);
        specdec__words c = specdec__quant_load_words(from + 2 * step), d = specdec__quant_load_words(from + 3 * step);
        specdec__words ab = SPECDEC__SHUFFLE_WORDS(a, b, 0, 4, 1, 5), cd = SPECDEC__SHUFFLE_WORDS(c, d, 0, 4, 1, 5);

        words[0] = SPECDEC__SHUFFLE_WORDS(ab, cd, 0, 1, 4, 5);
        words[4] = SPECDEC__SHUFFLE_WORDS(ab, cd, 2, 3, 6, 7);
        ab = SPECDEC__SHUFFLE_WORDS(a, b, 2, 6, 3, 7);
        cd = SPECDEC__SHUFFLE_WORDS(c, d, 2, 6, 3, 7);
        words[8] = SPECDEC__SHUFFLE_WORDS(ab, cd, 0, 1, 4, 5);
        words[12] = SPECDEC__SHUFFLE_WORDS(ab, cd, 2, 3, 6, 7);
    }
}

/* Interleaves 16 bytes of each of 16 rows, `step` bytes apart: unit 0 of every row, then unit 1, and so on. to: 256
   bytes. */
SPECDEC__INLINE void specdec__quant_interleave_16_bytes(int unit, const unsigned char *from, size_t step,
                                                        unsigned char *to)
{
    specdec__words words[16], spare, *w = words;
    int i, k;

    specdec__quant_transpose_words(from, step, words);
    for (i = 0; i < 4; i++, w += 4)
        if (unit == 2) {
            specdec__words even = specdec__even_halves(w[0], w[1]), odd = specdec__odd_halves(w[0], w[1]);

            w[1] = specdec__even_halves(w[2], w[3]);
            w[3] = specdec__odd_halves(w[2], w[3]);
            w[0] = even;
            w[2] = odd;
        } else if (unit == 1) {
            specdec__words even = specdec__even_bytes(w[0], w[1]), odd = specdec__odd_bytes(w[0], w[1]);
            specdec__words even2 = specdec__even_bytes(w[2], w[3]), odd2 = specdec__odd_bytes(w[2], w[3]);

            w[0] = specdec__even_bytes(even, even2);
            w[1] = specdec__even_bytes(odd, odd2);
            w[2] = specdec__odd_bytes(even, even2);
            w[3] = specdec__odd_bytes(odd, odd2);
        } else {
            for (k = 0; k < 4; k++)
                SPECDEC__QUANT_TRANSPOSE(unit, w[k], spare);
        }
    memcpy(to, words, sizeof words);
}

/* Interleaves a field that is a single unit of 1 or 2 bytes, of 16 rows. */
SPECDEC__INLINE void specdec__quant_interleave_unit(size_t size, const unsigned char *from, size_t row_bytes,
                                                    unsigned char *to)
{
    size_t row;

    for (row = 0; row < SPECDEC__TILE_ROWS; row++, from += row_bytes, to += size)
        if (size == 1)
            *to = *from;
        else
            memcpy(to, from, 2);
}

/* Interleaves a field of `size` bytes of 16 rows. The block ends `rest` bytes behind the field's beginning, and is at
   least 16 bytes long. No byte outside the block is read. */
SPECDEC__INLINE void specdec__quant_interleave_field(int unit, size_t size, size_t rest, const unsigned char *from,
                                                     size_t row_bytes, unsigned char *to)
{
    unsigned char part[16 * SPECDEC__TILE_ROWS];
    size_t i, left, back;

    if (size <= 2)
        specdec__quant_interleave_unit(size, from, row_bytes, to);
    for (i = 0; size > 2 && i < size; i += left, to += left * SPECDEC__TILE_ROWS) {
        left = size - i < 16 ? size - i : 16;
        back = rest - i < 16 ? 16 - (rest - i) : 0; /* 16 bytes would pass the block's end: begin earlier */
        specdec__quant_interleave_16_bytes(unit, from + i - back, row_bytes, left == 16 ? to : part);
        if (left < 16)
            memcpy(to, part + back * SPECDEC__TILE_ROWS, left * SPECDEC__TILE_ROWS);
    }
}

/* Prefetches the rows of the tile after the next: the cache lines 32 rows behind the 16 rows at `from`, `step` bytes
   apart, if a line begins within the next `bytes` bytes of the first row. Tiles are read in pairs. Any address may be
   prefetched. */
SPECDEC__INLINE void specdec__quant_prefetch(const unsigned char *from, size_t step, size_t bytes)
{
    uintptr_t ahead = (uintptr_t)from + 2 * SPECDEC__TILE_ROWS * step;
    int row;

    if ((uintptr_t)from % 64 < bytes)
        for (row = 0; row < SPECDEC__TILE_ROWS; row++, ahead += step)
            __builtin_prefetch((const void *)ahead, 0, 3);
}

/* Repacks row_count (1..16) rows, row_bytes apart, of `blocks` blocks each into a row of tiles: 16 * bytes for each
   block, block after block. A tile holds, for each field of the block in order and each unit of the field, that unit of
   the 16 rows side by side, so that SIMD lanes are rows. Missing rows are zero bytes. Only bits are permuted. */
typedef void specdec__interleave_function(const specdec__quant_type *type, const unsigned char *rows, size_t row_bytes,
                                          int row_count, size_t blocks, unsigned char *tile_out);

static SPECDEC__UNUSED void specdec__quant_interleave(const specdec__quant_type *type, const unsigned char *rows,
                                                      size_t row_bytes, int row_count, size_t blocks,
                                                      unsigned char *tile_out)
{
    const size_t whole = type->block == 1 ? blocks : 1, bytes = type->bytes * whole; /* floats: one block a row */
    size_t b;

    if (row_count < SPECDEC__TILE_ROWS)
        memset(tile_out, 0, type->bytes * blocks * SPECDEC__TILE_ROWS);
    for (b = 0; b < blocks; b += whole) {
        const unsigned char *from = rows + b * type->bytes;
        unsigned char *to = tile_out + b * type->bytes * SPECDEC__TILE_ROWS;
        size_t rest = bytes, size;
        int f, row;

        for (size = 0; size < bytes && !SPECDEC__QUANT_BY_UNITS; size += 64)
            specdec__quant_prefetch(from + size, row_bytes, bytes - size);
        for (f = 0; f < SPECDEC__QUANT_MAX_FIELDS && type->fields[f].unit; f++) {
            const int unit = type->fields[f].unit;
            const size_t wide = specdec__quant_unit_bytes(unit);

            size = wide * type->fields[f].count * whole;
            if (row_count == SPECDEC__TILE_ROWS && bytes >= 16 && !SPECDEC__QUANT_BY_UNITS)
                specdec__quant_interleave_field(unit, size, rest, from, row_bytes, to);
            else
                for (row = 0; row < row_count; row++)
                    specdec__quant_move_units(unit, (int)(size / wide), 0, from + (size_t)row * row_bytes, wide,
                                              to + (size_t)row * wide, wide * SPECDEC__TILE_ROWS);
            from += size;
            to += size * SPECDEC__TILE_ROWS;
            rest -= size;
        }
    }
}

/* Copies a row's block (bytes) out of the tile of that block: the inverse of specdec__quant_interleave. */
static SPECDEC__UNUSED void specdec__quant_deinterleave_block(const specdec__quant_type *type,
                                                              const unsigned char *tile, int row,
                                                              unsigned char *block_out)
{
    int f;

    for (f = 0; f < SPECDEC__QUANT_MAX_FIELDS && type->fields[f].unit; f++) {
        int unit = type->fields[f].unit, count = type->fields[f].count;
        size_t size = specdec__quant_unit_bytes(unit);

        specdec__quant_move_units(unit, count, 1, tile + (size_t)row * size, size * SPECDEC__TILE_ROWS,
                                  block_out, size);
        block_out += size * (size_t)count;
        tile += size * (size_t)count * SPECDEC__TILE_ROWS;
    }
}
