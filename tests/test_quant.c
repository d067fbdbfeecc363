/* Tests of the parts in src/quant: block formats, float conversions, tiles, encoders. */
#define SPECDEC_NO_SIMD /* no kernels are run: builds in a third of the time */
#include "../src/quant/encode.h"
#include "../src/quant/tiles.h"
#include "../src/model/gguf.h"
#include "check.h"
#include "plain_quant.h"

static uint64_t random_state = 88172645463325252u;

static uint32_t random_u32(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 32);
}

/* About normally distributed, standard deviation 1. */
static float random_normal(void)
{
    double sum = 0;
    int i;

    for (i = 0; i < 12; i++)
        sum += random_u32() / 4294967296.0;
    return (float)(sum - 6);
}

static void random_bytes(unsigned char *out, size_t count)
{
    while (count--)
        *out++ = (unsigned char)random_u32();
}

/* sum of (a - b)^2 over sum of a^2 */
static double relative_square(const float *a, const float *b, size_t count)
{
    double error = 0, all = 0;
    size_t i;

    for (i = 0; i < count; i++) {
        error += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        all += (double)a[i] * (double)a[i];
    }
    return all > 0 ? error / all : error;
}

/* A block written by hand: bytes at offsets, and what elements must come out. */
typedef struct known_block {
    uint32_t type;
    int byte_count; /* TWO, below, is two of them */
    struct { int offset, value; } bytes[16];
    int element_count;
    struct { int index; float value; } elements[8];
} known_block;

#define TWO(offset, word) {offset, (word) & 255}, {(offset) + 1, (word) >> 8}
enum { HALF = 0x3800, ONE = 0x3C00, DOUBLE = 0x4000, QUARTER = 0x3400, MINUS_ONE = 0xBC00 };

static const known_block known_blocks[] = {
    {SPECDEC__TYPE_Q4_0, 4, {TWO(0, HALF), {2, 0xF0}, {17, 0x3A}},
     5, {{0, -4}, {16, 3.5f}, {15, 1}, {31, -2.5f}, {1, -4}}},
    {SPECDEC__TYPE_Q4_1, 5, {TWO(0, HALF), TWO(2, DOUBLE), {4, 0xF1}}, 3, {{0, 2.5f}, {16, 9.5f}, {1, 2}}},
    {SPECDEC__TYPE_Q5_0, 6, {TWO(0, ONE), {2, 0x01}, {5, 0x80}, {6, 0x02}, {21, 0xF0}},
     4, {{0, 2}, {16, -16}, {31, 15}, {15, -16}}},
    {SPECDEC__TYPE_Q5_1, 6, {TWO(0, QUARTER), TWO(2, MINUS_ONE), {4, 0x10}, {12, 0x57}},
     3, {{4, 4.75f}, {20, 0.25f}, {0, -1}}},
    {SPECDEC__TYPE_Q8_0, 5, {TWO(0, DOUBLE), {2, 0x80}, {3, 0xFF}, {33, 0x7F}},
     4, {{0, -256}, {1, -2}, {31, 254}, {2, 0}}},
    {SPECDEC__TYPE_Q2_K, 9, {{0, 0x21}, {2, 0x0F}, {9, 0x53}, {16, 0xE4}, {64, 0x02}, TWO(80, HALF), TWO(82, QUARTER)},
     5, {{0, -0.5f}, {32, 7.5f}, {144, 1.75f}, {145, -1.25f}, {64, 0}}},
    {SPECDEC__TYPE_Q3_K, 10, {{0, 0x01}, {31, 0x80}, {32, 0x03}, {95, 0x40}, {96, 0x05}, {103, 0xC0}, {104, 0x02},
     {107, 0x80}, TWO(108, ONE)}, 4, {{0, 15}, {1, -20}, {128, 128}, {255, 12}}},
    {SPECDEC__TYPE_Q4_K, 9, {TWO(0, HALF), TWO(2, QUARTER), {4, 0x43}, {8, 0x85}, {12, 0x72}, {16, 0xC9}, {80, 0x01}},
     4, {{0, 12.25f}, {1, -1.25f}, {32, 0}, {128, -0.75f}}},
    {SPECDEC__TYPE_Q5_K, 10, {TWO(0, HALF), TWO(2, QUARTER), {4, 0x43}, {8, 0x85}, {12, 0x72}, {16, 0x11}, {48, 0xC9},
     {112, 0x01}}, 4, {{0, 36.25f}, {1, -1.25f}, {32, 0}, {128, 143.25f}}},
    {SPECDEC__TYPE_Q6_K, 8, {{0, 0x05}, {127, 0x70}, {128, 0x03}, {191, 0x80}, {192, 0x02}, {207, 0x80},
     TWO(208, HALF)}, 4, {{0, 21}, {1, -32}, {255, -448}, {64, 0}}},
    {SPECDEC__TYPE_IQ4_NL, 3, {TWO(0, HALF), {2, 0xF8}}, 3, {{0, 0.5f}, {16, 56.5f}, {1, -63.5f}}},
    {SPECDEC__TYPE_IQ4_XS, 7, {TWO(0, HALF), TWO(2, 0x8002), {4, 0x03}, {7, 0x10}, {8, 0xF8}},
     4, {{0, 1.5f}, {16, 169.5f}, {255, -63.5f}, {32, 2032}}},
    {SPECDEC__TYPE_IQ2_XXS, 6, {TWO(0, ONE), {2, 1}, {3, 255}, {6, 0x01}, {9, 0x30}},
     8, {{0, -37.625f}, {1, 7}, {7, -7}, {8, 7}, {9, 21.875f}, {15, 37.625f}, {32, 1}, {255, 1}}},
    {SPECDEC__TYPE_IQ3_XXS, 6, {TWO(0, ONE), {2, 1}, {3, 255}, {66, 0x01}, {69, 0x30}},
     8, {{0, -35}, {1, 7}, {5, 49}, {6, 91}, {7, -108.5f}, {8, 7}, {32, 1}, {255, 1}}},
    {SPECDEC__TYPE_IQ3_S, 6, {TWO(0, ONE), {2, 2}, {66, 0x01}, {74, 0x81}, {106, 0x53}},
     8, {{0, -77}, {1, 49}, {2, 63}, {3, 35}, {4, 7}, {7, -7}, {8, 7}, {32, 11}}},
    {SPECDEC__TYPE_IQ2_XS, 5, {TWO(0, ONE), TWO(2, 0x3FF), {66, 0x21}},
     6, {{0, -16.125f}, {1, 16.125f}, {7, -16.125f}, {8, 3}, {16, 5}, {32, 1}}},
    {SPECDEC__TYPE_IQ2_S, 6, {TWO(0, ONE), {2, 255}, {34, 0x80}, {66, 0x03}, {74, 0x21}},
     6, {{0, 16.125f}, {7, -16.125f}, {8, 3}, {15, 3}, {16, 5}, {32, 1}}},
    {SPECDEC__TYPE_MXFP4, 4, {{0, 129}, {1, 0xF1}, {2, 0x92}, {16, 0x07}},
     7, {{0, 2}, {16, -24}, {1, 4}, {17, -2}, {15, 24}, {31, 0}, {2, 0}}},
    {SPECDEC__TYPE_NVFP4, 7, {{0, 0x38}, {1, 0x7F}, {2, 0x01}, {3, 0x41}, {4, 0xF1}, {12, 0x77}, {35, 0x20}},
     6, {{0, 0.5f}, {8, -6}, {16, 0}, {55, 0}, {63, 2.25f}, {1, 0}}},
    {SPECDEC__TYPE_Q1_0, 4, {TWO(0, HALF), {2, 0x81}, {17, 0x40}}, 5, {{0, 0.5f}, {1, -0.5f}, {7, 0.5f}, {126, 0.5f}, {127, -0.5f}}},
    {SPECDEC__TYPE_Q2_0, 4, {TWO(0, HALF), {2, 0xE4}, {17, 0x80}},
     6, {{0, -0.5f}, {1, 0}, {2, 0.5f}, {3, 1}, {63, 0.5f}, {62, -0.5f}}},
    {SPECDEC__TYPE_TQ2_0, 4, {{0, 0xE4}, {63, 0x20}, TWO(64, HALF)},
     6, {{0, -0.5f}, {32, 0}, {64, 0.5f}, {96, 1}, {223, 0.5f}, {255, -0.5f}}},
    {SPECDEC__TYPE_TQ1_0, 6, {{0, 0x80}, {32, 0xFF}, {51, 0x80}, {47, 0x56}, TWO(52, DOUBLE)},
     8, {{0, 0}, {32, 0}, {128, 0}, {160, 2}, {224, 2}, {243, 0}, {175, 0}, {191, -2}}},
    {SPECDEC__TYPE_IQ1_S, 8, {TWO(0, ONE), {2, 1}, {33, 0xFF}, TWO(34, 0x2000), TWO(48, 0x8E00)},
     8, {{0, 5.625f}, {1, -4.375f}, {7, -4.375f}, {8, -4.375f}, {32, -0.875f}, {248, 0.875f}, {255, 0.875f}, {224, -1.125f}}},
    {SPECDEC__TYPE_IQ1_M, 8, {{0, 1}, {31, 0xFF}, {32, 0x08}, {47, 0x70}, {49, 0x00}, {51, 0x00}, {53, 0xC0}, {55, 0x3E}},
     6, {{0, 0.875f}, {1, -1.125f}, {8, -0.875f}, {248, 16.875f}, {255, 16.875f}, {16, -0.875f}}},
};

static void test_known_blocks(void)
{
    size_t i;
    int k;

    TEST("blocks written by hand decode to the values of the format");
    for (i = 0; i < SPECDEC__COUNT(known_blocks); i++) {
        const known_block *known = &known_blocks[i];
        const specdec__quant_type *type = specdec__quant_find_type(known->type);
        unsigned char block[SPECDEC__QUANT_MAX_BYTES];
        float values[SPECDEC__QUANT_MAX_BLOCK];

        memset(block, 0, sizeof block);
        for (k = 0; k < known->byte_count; k++)
            block[known->bytes[k].offset] = (unsigned char)known->bytes[k].value;
        specdec__quant_to_float(type, block, type->block, values);
        for (k = 0; k < known->element_count; k++)
            if (!check_note(values[known->elements[k].index] == known->elements[k].value))
                fprintf(stderr, "%s element %d: %g, expected %g\n", type->name, known->elements[k].index,
                        (double)values[known->elements[k].index], (double)known->elements[k].value);
    }
}

static void test_table(void)
{
    uint32_t number;
    int known = 0;

    TEST("the table of types is consistent");
    for (number = 0; number < 64; number++) {
        const specdec__quant_type *type = specdec__quant_find_type(number);
        int i, sum = 0;

        if (!type)
            continue;
        known++;
        for (i = 0; i < SPECDEC__QUANT_MAX_FIELDS && type->fields[i].unit; i++)
            sum += (int)specdec__quant_unit_bytes(type->fields[i].unit) * type->fields[i].count;
        CHECK_EQUAL_INT(sum, type->bytes);
        CHECK(type->number < SPECDEC__TYPE_COUNT);
        CHECK(type->block <= SPECDEC__QUANT_MAX_BLOCK && type->bytes <= SPECDEC__QUANT_MAX_BYTES);
        CHECK((type->decode == NULL) == (type->granule == 0));
        if (type->granule)
            CHECK(type->block % type->granule == 0 && (type->granule == 16 || type->granule == 32) &&
                  type->block / type->granule <= SPECDEC__QUANT_MAX_GRANULES);
        CHECK(type->bits <= (type->has_minimum ? 5 : 8));
    }
    CHECK_EQUAL_INT(known, SPECDEC__COUNT(specdec__quant_types));
}

/* Grids: points in order, each 8 magnitudes of 3 kinds or 4 of 8. */
static const struct { const uint16_t *points; int count, magnitudes; } grids[] = {
    {specdec__quant_iq2_xxs_grid, SPECDEC__COUNT(specdec__quant_iq2_xxs_grid), 3},
    {specdec__quant_iq3_xxs_grid, SPECDEC__COUNT(specdec__quant_iq3_xxs_grid), 8},
    {specdec__quant_iq3_s_grid, SPECDEC__COUNT(specdec__quant_iq3_s_grid), 8},
    {specdec__quant_iq2_xs_grid, SPECDEC__COUNT(specdec__quant_iq2_xs_grid), 3},
    {specdec__quant_iq2_s_grid, SPECDEC__COUNT(specdec__quant_iq2_s_grid), 3},
    {specdec__quant_iq1_grid, SPECDEC__COUNT(specdec__quant_iq1_grid), 3},
};

static void test_grids(void)
{
    size_t i;
    int k;

    TEST("grids are ascending and hold three magnitudes only, or eight");
    for (i = 0; i < SPECDEC__COUNT(grids); i++)
        for (k = 0; k < grids[i].count; k++) {
            unsigned point = grids[i].points[k];

            CHECK((grids[i].magnitudes == 3 ? point & point >> 1 & 0x5555 : point & 0x8888) == 0);
            CHECK(k == 0 || point > grids[i].points[k - 1]);
        }
}

static void test_sizes(void)
{
    uint64_t huge = ~(uint64_t)0 - 255;

    TEST("tensor sizes are exact, and never wrap");
    CHECK(specdec__quant_tensor_bytes(SPECDEC__TYPE_Q4_0, 64, 32) == 36);
    CHECK(specdec__quant_tensor_bytes(SPECDEC__TYPE_Q6_K, 512, 256) == 420);
    CHECK(specdec__quant_tensor_bytes(SPECDEC__TYPE_F32, 7, 7) == 28);
    CHECK(specdec__quant_tensor_bytes(SPECDEC__TYPE_BF16, 7, 7) == 14);
    CHECK(specdec__quant_tensor_bytes(SPECDEC__TYPE_Q4_0, 0, 0) == 0);
    CHECK(specdec__quant_tensor_bytes(SPECDEC__TYPE_Q4_0, 64, 16) == SIZE_MAX);
    CHECK(specdec__quant_tensor_bytes(SPECDEC__TYPE_Q4_0, 48, 48) == SIZE_MAX);
    CHECK(specdec__quant_tensor_bytes(SPECDEC__TYPE_Q8_0, huge, 32) == SIZE_MAX);
    CHECK(specdec__quant_tensor_bytes(SPECDEC__TYPE_F32, huge, 1) == SIZE_MAX);
    CHECK(specdec__quant_tensor_bytes(4, 64, 32) == 0);
    CHECK(specdec__quant_tensor_bytes(0xFFFFFFFFu, huge, 1) == 0);
}

/* The value of a half float by its definition. */
static double half_value(unsigned half)
{
    double value = (half & 0x3FF) / 1024.0;
    int exponent = (int)(half >> 10 & 31), i;

    value = exponent ? value + 1 : value;
    for (i = 15; i > (exponent ? exponent : 1); i--)
        value /= 2;
    for (i = 15; i < exponent; i++)
        value *= 2;
    return half & 0x8000 ? -value : value;
}

static void test_half_floats(void)
{
    uint32_t h;
    int wrong = 0;

    TEST("every half float converts exactly, and back");
    for (h = 0; h < 65536; h++) {
        float f = specdec__float_from_f16((uint16_t)h);
        if ((h & 0x7C00) != 0x7C00)
            wrong += (double)f != half_value(h);
        else if (h & 0x3FF)
            wrong += f == f || !(specdec__f16_from_float(f) == (h | 0x200));
        else
            wrong += f - f == 0 || (f < 0) != (h >> 15 != 0);
        if ((h & 0x7FFF) <= 0x7C00)
            wrong += specdec__f16_from_float(f) != h;
    }
    CHECK_EQUAL_INT(wrong, 0);
    TEST("floats round to the nearest half float, ties to even");
    for (h = 0; h < 0x7C00; h++) {
        double above = h == 0x7BFF ? 65536.0 : half_value(h + 1);
        float middle = (float)((half_value(h) + above) / 2);
        uint32_t bits = specdec__bits_from_float(middle);

        wrong += specdec__f16_from_float(middle) != (h & 1 ? h + 1 : h);
        wrong += specdec__f16_from_float(-middle) != ((h & 1 ? h + 1 : h) | 0x8000);
        wrong += specdec__f16_from_float(specdec__float_from_bits(bits - 1)) != h;
        wrong += specdec__f16_from_float(specdec__float_from_bits(bits + 1)) != h + 1;
    }
    CHECK_EQUAL_INT(wrong, 0);
    CHECK(specdec__f16_from_float(specdec__float_from_bits(1)) == 0);
    CHECK(specdec__f16_from_float(1e30f) == 0x7C00 && specdec__f16_from_float(-1e30f) == 0xFC00);
    CHECK((specdec__f16_from_float(specdec__float_from_bits(0x7F800001u)) & 0x7FFF) > 0x7C00);
}

static void test_brain_floats(void)
{
    uint32_t b;
    int wrong = 0;

    TEST("every bfloat16 converts exactly, and floats round to the nearest one, ties to even");
    for (b = 0; b < 65536; b++) {
        float f = specdec__float_from_bf16((uint16_t)b);
        wrong += specdec__bits_from_float(f) != b << 16;
        if ((b & 0x7FFF) > 0x7F80) {
            wrong += specdec__bf16_from_float(f) != (b | 0x40);
            continue;
        }
        wrong += specdec__bf16_from_float(f) != b;
        if ((b & 0x7FFF) == 0x7F80)
            continue;
        wrong += specdec__bf16_from_float(specdec__float_from_bits(b << 16 | 0x7FFF)) != b;
        wrong += specdec__bf16_from_float(specdec__float_from_bits(b << 16 | 0x8000)) != (b & 1 ? b + 1 : b);
        wrong += specdec__bf16_from_float(specdec__float_from_bits(b << 16 | 0x8001)) != b + 1;
    }
    CHECK_EQUAL_INT(wrong, 0);
    CHECK((specdec__bf16_from_float(specdec__float_from_bits(0x7F800001u)) & 0x7FFF) > 0x7F80);
}

static void test_tiles(void)
{
    static const int row_counts[3] = {1, 5, 16};
    enum { BLOCKS = 3, GAP = 7, ROW = BLOCKS * SPECDEC__QUANT_MAX_BYTES + GAP };
    static unsigned char rows[16 * ROW], tile[16 * BLOCKS * SPECDEC__QUANT_MAX_BYTES];
    uint32_t number;
    int k, row;

    TEST("every block comes back out of its tile unchanged; missing rows are zero");
    for (number = 0; number < SPECDEC__TYPE_COUNT; number++) {
        const specdec__quant_type *type = specdec__quant_find_type(number);
        size_t row_bytes, b;
        int wrong = 0;

        if (!type)
            continue;
        row_bytes = (size_t)type->bytes * BLOCKS + GAP;
        for (k = 0; k < 3; k++) {
            random_bytes(rows, sizeof rows);
            random_bytes(tile, sizeof tile);
            specdec__quant_interleave(type, rows, row_bytes, row_counts[k], BLOCKS, tile);
            for (b = 0; b < BLOCKS; b++)
                for (row = 0; row < 16; row++) {
                    unsigned char block[SPECDEC__QUANT_MAX_BYTES], zero[SPECDEC__QUANT_MAX_BYTES] = {0};
                    const unsigned char *from = rows + (size_t)row * row_bytes + b * type->bytes;
                    specdec__quant_deinterleave_block(type, tile + b * type->bytes * 16, row, block);
                    wrong += memcmp(block, row < row_counts[k] ? from : zero, type->bytes) != 0;
                }
        }
        CHECK_EQUAL_INT(wrong, 0);
    }
}

static void test_tile_layout(void)
{
    unsigned char rows[16 * 22], tile[16 * 22];
    const specdec__quant_type *type = specdec__quant_find_type(SPECDEC__TYPE_Q5_0);
    int row, i, j, u, wrong = 0;

    TEST("a tile holds the units of 16 rows side by side, high bits transposed");
    random_bytes(rows, sizeof rows);
    specdec__quant_interleave(type, rows, 22, 16, 1, tile);
    for (row = 0; row < 16; row++) {
        const unsigned char *block = rows + 22 * row;
        uint32_t high = specdec__load_u32(block + 2), stored = specdec__load_u32(tile + 32 + 4 * row);

        wrong += memcmp(tile + 2 * row, block, 2) != 0;
        for (i = 0; i < 8; i++)
            for (j = 0; j < 4; j++)
                wrong += (stored >> (8 * j + i) & 1) != (high >> (4 * i + j) & 1);
        for (u = 0; u < 4; u++)
            wrong += memcmp(tile + 96 + 64 * u + 4 * row, block + 6 + 4 * u, 4) != 0;
    }
    CHECK_EQUAL_INT(wrong, 0);
}

/* The nearest half float. */
static float half_of(float value)
{
    unsigned char bytes[2];

    specdec__store_u16(bytes, specdec__f16_from_float(value));
    return specdec__load_f16(bytes);
}

static void test_encoders(void)
{
    static const struct { uint32_t type; double bound; } bounds[] = {
        {SPECDEC__TYPE_F32, 0}, {SPECDEC__TYPE_F16, 0.0003}, {SPECDEC__TYPE_BF16, 0.0024}, {SPECDEC__TYPE_Q8_0, 0.0065},
        {SPECDEC__TYPE_Q4_0, 0.087}, {SPECDEC__TYPE_Q4_1, 0.078}, {SPECDEC__TYPE_Q5_0, 0.044}, {SPECDEC__TYPE_Q5_1, 0.037},
        {SPECDEC__TYPE_Q4_K, 0.078}, {SPECDEC__TYPE_Q5_K, 0.037}, {SPECDEC__TYPE_Q6_K, 0.020},
        {SPECDEC__TYPE_MXFP4, 0.118}, {SPECDEC__TYPE_Q2_0, 0.40}, {SPECDEC__TYPE_TQ1_0, 0.44}, {SPECDEC__TYPE_TQ2_0, 0.44},
        {SPECDEC__TYPE_Q1_0, 0.605}};
    enum { COUNT = 64 * 256 };
    static float values[COUNT], back[COUNT];
    static unsigned char row[COUNT * 4];
    size_t i, k;

    TEST("normally distributed weights come back within the error of the format");
    for (i = 0; i < COUNT; i++)
        values[i] = 0.02f * random_normal();
    for (k = 0; k < SPECDEC__COUNT(bounds); k++) {
        const specdec__quant_type *type = specdec__quant_find_type(bounds[k].type);
        specdec__quant_from_float(type, values, COUNT, row);
        specdec__quant_to_float(type, row, COUNT, back);
        CHECK(relative_square(values, back, COUNT) <= bounds[k].bound * bounds[k].bound);
    }
    TEST("weights that were Q4_1, Q5_0 or Q5_1 before come back as they were, but for a few");
    for (k = 0; k < 3; k++) {
        static const uint32_t numbers[3] = {SPECDEC__TYPE_Q4_1, SPECDEC__TYPE_Q5_0, SPECDEC__TYPE_Q5_1};
        const specdec__quant_type *type = specdec__quant_find_type(numbers[k]);
        static float again[COUNT];
        int wrong = 0;

        for (i = 0; i < COUNT; i++)
            values[i] = 0.02f * random_normal() + 0.3f * (float)(i / 32 % 3) - 0.3f; /* also blocks of one sign */
        specdec__quant_from_float(type, values, COUNT, row);
        specdec__quant_to_float(type, row, COUNT, back);
        specdec__quant_from_float(type, back, COUNT, row);
        specdec__quant_to_float(type, row, COUNT, again);
        for (i = 0; i < COUNT; i++)
            wrong += back[i] != again[i];
        CHECK(wrong <= COUNT / 100);
        CHECK(relative_square(back, again, COUNT) <= 1e-6);
    }
    TEST("weights that were of one or two bits, or 4-bit floats, before come back as they were");
    for (k = 0; k < 5; k++) {
        static const uint32_t numbers[5] = {SPECDEC__TYPE_Q1_0, SPECDEC__TYPE_Q2_0, SPECDEC__TYPE_TQ1_0, SPECDEC__TYPE_TQ2_0, SPECDEC__TYPE_MXFP4};
        const specdec__quant_type *type = specdec__quant_find_type(numbers[k]);
        static const float fp4[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
        int wrong = 0;

        for (i = 0; i < COUNT; i++) { /* of every block, one value of the largest magnitude */
            const float scale = k == 4 ? 0.0078125f : half_of(0.01f * (float)(1 + i / 256));
            const int at = i % 32 ? (int)(random_u32() % (k == 4 ? 8 : k == 1 ? 4 : 3)) : k == 4 ? 7 : k == 1 ? 3 : 2;

            values[i] = k == 4 ? (random_u32() & 1 ? -fp4[at] : fp4[at]) * scale : k ? scale * (float)(at - 1) : random_u32() & 1 ? scale : -scale;
        }
        specdec__quant_from_float(type, values, COUNT, row);
        specdec__quant_to_float(type, row, COUNT, back);
        for (i = 0; i < COUNT; i++)
            wrong += !(values[i] - back[i] == 0);
        CHECK_EQUAL_INT(wrong, 0);
    }
    TEST("IQ2_XXS weights survive Q4_0 almost unchanged");
    for (i = 0; i < 64; i++) {
        unsigned char block[66];
        random_bytes(block, sizeof block);
        specdec__store_u16(block, (uint16_t)(0x1C00 + random_u32() % 0x800));
        specdec__quant_to_float(specdec__quant_find_type(SPECDEC__TYPE_IQ2_XXS), block, 256, values + 256 * i);
    }
    specdec__quant_from_float(specdec__quant_find_type(SPECDEC__TYPE_Q4_0), values, COUNT, row);
    specdec__quant_to_float(specdec__quant_find_type(SPECDEC__TYPE_Q4_0), row, COUNT, back);
    CHECK(relative_square(values, back, COUNT) <= 0.04 * 0.04);
}

static void test_encoders_at_the_edges(void)
{
    static const float odd[6] = {0, 1e-30f, -1e-6f, 65504, 1e38f, -0.5f}; /* half floats end at 65504, near 6e-8 */
    uint32_t number;
    float values[256], back[256];
    unsigned char block[1024];
    int i, k, wrong;

    for (number = 0; number < SPECDEC__TYPE_COUNT; number++) {
        const specdec__quant_type *type = specdec__quant_find_type(number);

        if (!type || (type->decode && !specdec__quant_find_encoder(type)))
            continue;
        TEST("equal values come back nearly equal, zeros exactly");
        for (k = 0; k < 6; k++) {
            for (i = 0; i < 256; i++)
                values[i] = odd[k];
            specdec__quant_from_float(type, values, 256, block);
            specdec__quant_to_float(type, block, 256, back);
            for (i = 0, wrong = 0; i < 256 && odd[k] < 1e38f; i++) {
                float error = back[i] - odd[k], size = odd[k] < 0 ? -odd[k] : odd[k];
                wrong += !((error < 0 ? -error : error) <= (odd[k] != 0 ? 4e-6f : 0) + 0.01f * size);
            }
            CHECK_EQUAL_INT(wrong, 0);
        }
        TEST("infinities and NaNs are encoded without undefined behaviour");
        for (k = 0; k < 64; k++) {
            for (i = 0; i < 256; i++)
                values[i] = specdec__float_from_bits(random_u32() | (k & 1 ? 0x7F000000u : 0));
            specdec__quant_from_float(type, values, 256, block);
            specdec__quant_to_float(type, block, 256, back);
        }
        CHECK(1);
    }
}

/* One value of a row of the given kind. */
static float odd_value(int kind)
{
    static const float iq2[4] = {8, 25, 43, 0}, specials[8] = {0, 65504, 65520, 1e38f, 3e38f, 1e-38f, 1e-45f, 1};
    float sign = random_u32() & 1 ? -1.0f : 1.0f;

    switch (kind) {
    case 0: return 0.02f * random_normal();
    case 1: return sign * iq2[random_u32() % 3] * 0.0003f;                         /* what IQ2_XXS holds */
    case 2: return 0.5f * (float)((int)(random_u32() % 64) - 32);                  /* ties */
    case 3: return sign * 3;                                                       /* two peaks of one size */
    case 4: return -1 - (float)(random_u32() % 100);                               /* nothing above 0 */
    case 5: return random_u32() % 32 ? 0 : random_normal();                        /* mostly 0, whole groups of it */
    case 6: return sign * specials[random_u32() % 8];
    case 7: return specdec__float_from_bits(random_u32() & 0x807FFFFFu);           /* denormal */
    case 8: return specdec__float_from_bits(random_u32());                         /* anything, NaNs among it */
    case 9: return specdec__float_from_bits(random_u32() & 0xBFFFFFFFu);           /* up to 2 */
    case 10: return random_u32() % 64 ? random_normal() : sign * specdec__float_from_bits(0x7F800000u);
    case 11: return random_u32() % 64 ? random_normal() : specdec__float_from_bits(0x7FC00000u);
    case 12: return specdec__float_from_bits(0x80000000u & random_u32());          /* zeros of both signs */
    case 13: return sign * 3.4e38f * (float)(random_u32() % 3);                    /* infinite once squared */
    case 14: return 1 + (float)random_u32() / 4294967296.0f;                       /* nothing below 1 */
    default: return sign * specdec__float_from_bits((random_u32() & 0x7FFFFFu) | (107 + random_u32() % 40) << 23);
    }
}

static void test_plain_encoders(void)
{
    enum { KINDS = 16, REPEATS = 200, ROW = 512 };
    static float values[ROW];
    static unsigned char fast[ROW * 4], plain[ROW * 4];
    size_t e, i, repeat;
    int kind;

    TEST("encoders write the bits of the plain ones, whatever the values");
    for (e = 0; e < SPECDEC__COUNT(plain_encoders); e++)
        for (kind = 0; kind < KINDS; kind++) {
            const specdec__quant_type *type = specdec__quant_find_type(plain_encoders[e].type);
            int wrong = 0;

            for (repeat = 0; repeat < REPEATS; repeat++) {
                /* any number of blocks: rows need be no multiple of 256 */
                size_t blocks = 1 + random_u32() % (ROW / type->block), count = blocks * type->block;

                for (i = 0; i < count; i++)
                    values[i] = odd_value(kind);
                memset(fast, 0xA5, sizeof fast);
                memset(plain, 0xA5, sizeof plain);
                specdec__quant_from_float(type, values, count, fast);
                for (i = 0; i < blocks; i++)
                    plain_encoders[e].encode(values + i * type->block, plain + i * type->bytes);
                wrong += memcmp(fast, plain, sizeof fast) != 0;
            }
            if (wrong)
                fprintf(stderr, "%s, values of kind %d\n", type->name, kind);
            CHECK_EQUAL_INT(wrong, 0);
        }
}

static void test_plain_half_floats(void)
{
    uint32_t bits = 0;
    int wrong = 0;

    TEST("floats become the half floats that a case for each range gives");
    do {
        float value = specdec__float_from_bits(bits);
        wrong += specdec__f16_from_float(value) != plain_f16_from_float(value);
        bits += 997;
    } while (bits >= 997);
    CHECK_EQUAL_INT(wrong, 0);
}

static void test_plain_decoders(void)
{
    enum { BLOCKS = 3 };
    static unsigned char row[BLOCKS * SPECDEC__QUANT_MAX_BYTES];
    static float values[BLOCKS * SPECDEC__QUANT_MAX_BLOCK];
    uint32_t number;
    int repeat, b, i, wrong;

    for (number = 0; number < SPECDEC__TYPE_COUNT; number++) {
        const specdec__quant_type *type = specdec__quant_find_type(number);
        plain_decoder *decode;
        size_t plain;
        int lowest;

        if (!type || !type->decode)
            continue;
        decode = type->decode;
        for (plain = 0; plain < SPECDEC__COUNT(plain_decoders); plain++)
            decode = plain_decoders[plain].type == number ? plain_decoders[plain].decode : decode;
        lowest = -specdec__quant_bias(type->bits, type->has_minimum);
        TEST("a row of blocks becomes scale * code + minimum, element for element, with codes of so many bits");
        for (repeat = 0, wrong = 0; repeat < 100; repeat++) {
            random_bytes(row, sizeof row);
            specdec__quant_to_float(type, row, (size_t)type->block * BLOCKS, values);
            for (b = 0; b < BLOCKS; b++) {
                int8_t codes[SPECDEC__QUANT_MAX_BLOCK];
                float scale[SPECDEC__QUANT_MAX_GRANULES], minimum[SPECDEC__QUANT_MAX_GRANULES];

                decode(row + b * type->bytes, codes, scale, minimum);
                for (i = 0; i < type->block; i++) {
                    float product = scale[i / type->granule] * (float)codes[i];
                    float value = type->has_minimum ? product + minimum[i / type->granule] : product;
                    float got = values[b * type->block + i];
                    wrong += codes[i] < lowest || codes[i] >= lowest + (1 << type->bits);
                    wrong += !(got == value || (got != got && value != value));
                }
            }
        }
        CHECK_EQUAL_INT(wrong, 0);
    }
}

/* Opens a model of the shared folder; returns 0 when it is absent. */
static int open_model(const char *name, specdec__bytes *file, specdec__gguf *gguf)
{
    char path[512], relative[128];
    specdec_error error;

    snprintf(relative, sizeof relative, "conformance/llama-%s.gguf", name);
    if (specdec__os_map_whole_file(file, check_shared(path, sizeof path, relative), &error))
        return 0;
    if (specdec__gguf_open(gguf, *file, &error)) {
        fprintf(stderr, "%s: %s\n", path, error.text);
        check_note(0);
        return 0;
    }
    return 1;
}

/* Compares all tensors of one type with the originals: their own error, and that of our encoder on the originals. */
static void compare_models(specdec__gguf *original, specdec__gguf *quantised, uint32_t number, double *theirs,
                           double *ours)
{
    const specdec__quant_type *type = specdec__quant_find_type(number);
    specdec__cursor c = specdec__cursor_begin_at_start(quantised->file.data, quantised->file.size);
    double their_sum = 0, our_sum = 0, count = 0;
    uint64_t i;

    c.offset = quantised->tensors_at;
    for (i = 0; i < quantised->tensor_count; i++) {
        specdec__gguf_tensor tensor, reference;
        char name[128];
        float *a, *b;
        unsigned char *encoded;
        size_t elements;

        specdec__gguf_read_tensor(quantised, &c, &tensor);
        snprintf(name, sizeof name, "%.*s", (int)tensor.name.size, (const char *)tensor.name.data);
        if (tensor.type != number || specdec__gguf_find_tensor(original, name, &reference) != 1)
            continue;
        elements = (size_t)(tensor.shape[0] * tensor.shape[1]);
        a = (float *)malloc(elements * 4);
        b = (float *)malloc(elements * 4);
        encoded = (unsigned char *)malloc(tensor.size);
        specdec__quant_to_float(specdec__quant_find_type(reference.type), reference.data, elements, a);
        specdec__quant_to_float(type, tensor.data, elements, b);
        their_sum += relative_square(a, b, elements);
        if (specdec__quant_find_encoder(type) || !type->decode) {
            specdec__quant_from_float(type, a, elements, encoded);
            specdec__quant_to_float(type, encoded, elements, b);
            our_sum += relative_square(a, b, elements);
        }
        count++;
        free(a);
        free(b);
        free(encoded);
    }
    *theirs = count > 0 ? their_sum / count : -1;
    *ours = our_sum / (count > 0 ? count : 1);
}

static void test_models(void)
{
    static const struct { const char *name; uint32_t type; double bound; } models[] = {
        {"bf16", SPECDEC__TYPE_BF16, 0.0024}, {"f16", SPECDEC__TYPE_F16, 0.0003}, {"q8_0", SPECDEC__TYPE_Q8_0, 0.007},
        {"q4_0", SPECDEC__TYPE_Q4_0, 0.11}, {"q4_1", SPECDEC__TYPE_Q4_1, 0.1}, {"q5_0", SPECDEC__TYPE_Q5_0, 0.055},
        {"q5_1", SPECDEC__TYPE_Q5_1, 0.05}, {"q2_k", SPECDEC__TYPE_Q2_K, 0.35}, {"q3_k_m", SPECDEC__TYPE_Q3_K, 0.18},
        {"q4_k_m", SPECDEC__TYPE_Q4_K, 0.085}, {"q5_k_m", SPECDEC__TYPE_Q5_K, 0.045},
        {"q6_k", SPECDEC__TYPE_Q6_K, 0.022}, {"iq4_nl", SPECDEC__TYPE_IQ4_NL, 0.1},
        {"iq4_xs", SPECDEC__TYPE_IQ4_XS, 0.1}};
    specdec__bytes original_file, file;
    specdec__gguf original, gguf;
    double theirs, ours;
    size_t i;

    TEST("models of every type decode near their float originals, and our encoders lose no more than ggml's");
    if (!open_model("f32", &original_file, &original)) {
        SKIP("no ../shared/conformance");
        return;
    }
    for (i = 0; i < SPECDEC__COUNT(models); i++) {
        if (!open_model(models[i].name, &file, &gguf)) {
            SKIP(models[i].name);
            continue;
        }
        compare_models(&original, &gguf, models[i].type, &theirs, &ours);
        CHECK(theirs >= 0 && theirs <= models[i].bound * models[i].bound);
        CHECK(ours <= theirs * 1.05);
        specdec__os_unmap_file(&file);
    }
    specdec__os_unmap_file(&original_file);
}

int main(void)
{
    test_table();
    test_grids();
    test_sizes();
    test_known_blocks();
    test_half_floats();
    test_brain_floats();
    test_tiles();
    test_tile_layout();
    test_encoders();
    test_encoders_at_the_edges();
    test_plain_encoders();
    test_plain_half_floats();
    test_plain_decoders();
    test_models();
    return check_report("test_quant");
}
