/* test_files_types.c - the promises of what programs beside an engine need. Files and types: every getter gives what
   the file holds; what is damaged is refused with a sentence and then counts as empty; a NULL is an error and no
   crash; every type that can be written comes back. Then tokens as text, and trees that are the caller's.
   cc -O2 -pthread -I. test_files_types.c specdec.o -lm */
#include "specdec.h"
#include "check.h"

/* --- a small file ------------------------------------------------------------------------------------------------- */

static unsigned char image[4096];
static size_t image_size;

/* A little-endian number of so many bytes. */
static void put(uint64_t value, int bytes)
{
    for (; bytes; bytes--, value >>= 8)
        image[image_size++] = (unsigned char)value;
}

static void put_text(const char *text)
{
    put(strlen(text), 8);
    memcpy(image + image_size, text, strlen(text));
    image_size += strlen(text);
}

/* A pair of a number: its type, its bits, its bytes. */
static void put_pair(const char *key, specdec_gguf_type type, uint64_t bits, int bytes)
{
    put_text(key);
    put((uint64_t)type, 4);
    put(bits, bytes);
}

static uint64_t float_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static uint64_t double_bits(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void put_tensor(const char *name, uint32_t type, uint64_t columns, uint64_t rows, uint64_t offset)
{
    put_text(name);
    put(rows ? 2 : 1, 4);
    put(columns, 8);
    if (rows)
        put(rows, 8);
    put(type, 4);
    put(offset, 8);
}

enum { PAIRS = 17, TENSORS = 3 };

/* A file with a pair of every type, and three tensors: F32, Q8_0, and one of a type that nobody knows. */
static void make_image(void)
{
    static const char *const strings[] = {"a", "", "longer"};
    int i;

    image_size = 0;
    memcpy(image, "GGUF", 4);
    image_size = 4;
    put(3, 4);
    put(TENSORS, 8);
    put(PAIRS, 8);
    put_pair("u8", SPECDEC_GGUF_U8, 200, 1);
    put_pair("i8", SPECDEC_GGUF_I8, (uint64_t)-3, 1);
    put_pair("u16", SPECDEC_GGUF_U16, 60000, 2);
    put_pair("i16", SPECDEC_GGUF_I16, (uint64_t)-300, 2);
    put_pair("u32", SPECDEC_GGUF_U32, 4000000000u, 4);
    put_pair("i32", SPECDEC_GGUF_I32, (uint64_t)-70000, 4);
    put_pair("u64", SPECDEC_GGUF_U64, UINT64_MAX, 8);
    put_pair("i64", SPECDEC_GGUF_I64, (uint64_t)INT64_MIN, 8);
    put_pair("f32", SPECDEC_GGUF_F32, float_bits(0.5f), 4);
    put_pair("f64", SPECDEC_GGUF_F64, double_bits(-0.1), 8);
    put_pair("nan", SPECDEC_GGUF_F32, 0x7fc00000u, 4);
    put_pair("bool", SPECDEC_GGUF_BOOL, 1, 1);
    put_text("string");
    put(SPECDEC_GGUF_STRING, 4);
    put_text("some text");
    put_text("numbers");
    put(SPECDEC_GGUF_ARRAY, 4);
    put(SPECDEC_GGUF_I16, 4);
    put(3, 8);
    for (i = 0; i < 3; i++)
        put((uint64_t)(i - 1), 2);
    put_text("strings");
    put(SPECDEC_GGUF_ARRAY, 4);
    put(SPECDEC_GGUF_STRING, 4);
    put(3, 8);
    for (i = 0; i < 3; i++)
        put_text(strings[i]);
    put_text("nothing");
    put(SPECDEC_GGUF_ARRAY, 4);
    put(SPECDEC_GGUF_F32, 4);
    put(0, 8);
    put_pair("general.alignment", SPECDEC_GGUF_U32, 64, 4);
    put_tensor("floats", 0, 2, 3, 0);
    put_tensor("blocks", 8, 32, 0, 64);
    put_tensor("unknown", 99, 5, 0, 128);
    while (image_size % 64)
        put(0, 1);
    for (i = 0; i < 6; i++)
        put(float_bits((float)i), 4);
    while (image_size % 64)
        put(0, 1);
    put(0x3c00, 2); /* a scale of 1 */
    for (i = 0; i < 32; i++)
        put((uint64_t)(i - 16), 1);
    while (image_size % 64)
        put(0, 1);
    put(7, 8);
}

static int is(specdec_bytes name, const char *text)
{
    return name.size == strlen(text) && memcmp(name.data, text, name.size) == 0;
}

/* --- what a file holds -------------------------------------------------------------------------------------------- */

static void test_numbers(const specdec_gguf *gguf)
{
    static const struct { const char *key; int64_t value; } integers[] = {
        {"u8", 200}, {"i8", -3}, {"u16", 60000}, {"i16", -300}, {"u32", 4000000000}, {"i32", -70000},
        {"u64", INT64_MAX}, {"i64", INT64_MIN}, {"bool", 1}};
    specdec_gguf_value value;
    specdec_error error;
    int64_t integer;
    double real;
    float number = 3;
    size_t i;

    TEST("every type of integer is read by its key, and as a real number");
    for (i = 0; i < sizeof integers / sizeof *integers; i++) {
        integer = 7;
        CHECK(!specdec_gguf_get_integer(gguf, integers[i].key, INT64_MIN, INT64_MAX, &integer, &error));
        CHECK(integer == integers[i].value);
        CHECK(specdec_gguf_find(gguf, integers[i].key, &value) && !value.is_array && value.count == 1);
        CHECK(specdec_gguf_integer(&value, 0, &integer) && integer == integers[i].value);
        CHECK(specdec_gguf_real(&value, 0, &real));
        CHECK(real == (strcmp(integers[i].key, "u64") ? (double)integers[i].value : (double)UINT64_MAX));
        CHECK(!specdec_gguf_integer(&value, 1, &integer) && !specdec_gguf_real(&value, 1, &real));
    }
    TEST("floats are read");
    CHECK(!specdec_gguf_get_float(gguf, "f32", &number, &error) && number == 0.5f);
    CHECK(specdec_gguf_find(gguf, "f64", &value) && specdec_gguf_real(&value, 0, &real) && real == -0.1);
    CHECK(!specdec_gguf_integer(&value, 0, &integer));
    CHECK(specdec_gguf_find(gguf, "f32", &value) && specdec_gguf_real(&value, 0, &real) && real == 0.5);
    TEST("an absent key leaves the caller's value");
    integer = 11;
    CHECK(!specdec_gguf_get_integer(gguf, "absent", 0, 1, &integer, &error) && integer == 11);
    CHECK(!specdec_gguf_get_float(gguf, "absent", &number, &error) && number == 0.5f);
    CHECK(!specdec_gguf_find(gguf, "absent", &value) && !specdec_gguf_find(gguf, "u", &value));
    TEST("a value of another type or out of range is an error that names the key");
    CHECK(specdec_gguf_get_integer(gguf, "u8", 0, 199, &integer, &error) == SPECDEC_ERROR_FORMAT &&
          strstr(error.text, "u8"));
    CHECK(specdec_gguf_get_integer(gguf, "f32", 0, 9, &integer, &error) == SPECDEC_ERROR_FORMAT &&
          strstr(error.text, "f32"));
    CHECK(specdec_gguf_get_integer(gguf, "numbers", 0, 9, &integer, &error) == SPECDEC_ERROR_FORMAT);
    CHECK(specdec_gguf_get_float(gguf, "f64", &number, &error) == SPECDEC_ERROR_FORMAT);
    CHECK(specdec_gguf_get_float(gguf, "nan", &number, &error) == SPECDEC_ERROR_FORMAT && strstr(error.text, "nan"));
    CHECK(integer == 11 && number == 0.5f);
}

static void test_strings(const specdec_gguf *gguf)
{
    specdec_bytes text = {NULL, 0};
    specdec_gguf_value value;
    specdec_error error;
    int64_t integer;
    size_t place = 0;
    int i;

    TEST("a string is read, and nothing but a string");
    CHECK(!specdec_gguf_get_string(gguf, "string", &text, &error) && is(text, "some text"));
    CHECK(!specdec_gguf_get_string(gguf, "absent", &text, &error) && is(text, "some text"));
    CHECK(specdec_gguf_get_string(gguf, "u8", &text, &error) == SPECDEC_ERROR_FORMAT && is(text, "some text"));
    CHECK(specdec_gguf_find(gguf, "string", &value) && !specdec_gguf_integer(&value, 0, &integer));
    CHECK(!specdec_gguf_next_string(&value, &place, &text));
    TEST("items of an array are read by number");
    CHECK(specdec_gguf_find(gguf, "numbers", &value) && value.is_array && value.count == 3 &&
          value.type == SPECDEC_GGUF_I16);
    for (i = 0; i < 3; i++)
        CHECK(specdec_gguf_integer(&value, (uint64_t)i, &integer) && integer == i - 1);
    CHECK(!specdec_gguf_integer(&value, 3, &integer) && !specdec_gguf_integer(&value, UINT64_MAX, &integer));
    CHECK(!specdec_gguf_next_string(&value, &place, &text));
    CHECK(specdec_gguf_find(gguf, "nothing", &value) && value.count == 0 && !specdec_gguf_integer(&value, 0, &integer));
    TEST("strings of an array are read one after the other");
    CHECK(specdec_gguf_find(gguf, "strings", &value) && value.count == 3);
    CHECK(specdec_gguf_next_string(&value, &place, &text) && is(text, "a"));
    CHECK(specdec_gguf_next_string(&value, &place, &text) && is(text, ""));
    CHECK(specdec_gguf_next_string(&value, &place, &text) && is(text, "longer"));
    CHECK(!specdec_gguf_next_string(&value, &place, &text) && !specdec_gguf_next_string(&value, &place, &text));
}

static void test_walks(const specdec_gguf *gguf)
{
    size_t place = 0, at = gguf->pairs_at, i;
    specdec_gguf_tensor tensor;
    specdec_gguf_pair pair;
    int count = 0;

    TEST("all pairs come in the file's order; their records make up the whole");
    while (specdec_gguf_next_pair(gguf, &place, &pair)) {
        CHECK(pair.record.data == gguf->file.data + at);
        at += pair.record.size;
        count++;
    }
    CHECK(count == PAIRS && at == gguf->tensors_at && is(pair.key, "general.alignment"));
    TEST("all tensors come in the file's order");
    for (count = 0, place = 0; specdec_gguf_next_tensor(gguf, &place, &tensor); count++)
        CHECK(is(tensor.name, count == 0 ? "floats" : count == 1 ? "blocks" : "unknown"));
    CHECK_EQUAL_INT(count, TENSORS);
    TEST("a tensor is found by its name, with its shape, type, data and bytes");
    CHECK(specdec_gguf_find_tensor(gguf, "floats", &tensor) == 1 && tensor.type == 0 && tensor.dimensions == 2);
    CHECK(tensor.shape[0] == 2 && tensor.shape[1] == 3 && tensor.shape[2] == 1 && tensor.size == 24);
    CHECK((size_t)(tensor.data - gguf->file.data) % 64 == 0);
    CHECK(specdec_gguf_find_tensor(gguf, "blocks", &tensor) == 1 && tensor.type == 8 && tensor.size == 34);
    CHECK(specdec_gguf_find_tensor(gguf, "unknown", &tensor) == 1 && tensor.type == 99 && tensor.size == 0);
    CHECK(specdec_gguf_find_tensor(gguf, "absent", &tensor) == 0);
    TEST("a place that nobody gave reads nothing outside the file");
    for (i = 0; i < gguf->file.size + 9; i++) {
        place = i;
        count = specdec_gguf_next_pair(gguf, &place, &pair);
        CHECK(!count || place <= gguf->tensors_at);
        place = i;
        count = specdec_gguf_next_tensor(gguf, &place, &tensor);
        CHECK(!count || (place <= gguf->tensors_end && tensor.data + tensor.size <= gguf->file.data + gguf->file.size));
    }
    place = SIZE_MAX;
    CHECK(!specdec_gguf_next_pair(gguf, &place, &pair) && !specdec_gguf_next_tensor(gguf, &place, &tensor));
}

/* Looks at everything that a file shows; sums up bytes, so that tools that watch memory see every read. */
static unsigned look_at_all(const specdec_gguf *gguf)
{
    specdec_gguf_tensor tensor;
    specdec_gguf_pair pair;
    specdec_bytes text;
    size_t place = 0, inner, i;
    unsigned sum = 0;
    int64_t integer;
    uint64_t k;
    double real;

    while (specdec_gguf_next_pair(gguf, &place, &pair)) {
        for (i = 0; i < pair.record.size; i++)
            sum += pair.record.data[i];
        for (inner = 0; specdec_gguf_next_string(&pair.value, &inner, &text);)
            sum += text.size ? text.data[text.size - 1] : 0u;
        for (k = 0; k < pair.value.count && specdec_gguf_integer(&pair.value, k, &integer); k++)
            sum += (unsigned)integer + (unsigned)specdec_gguf_real(&pair.value, k, &real);
    }
    for (place = 0; specdec_gguf_next_tensor(gguf, &place, &tensor);)
        for (i = 0; i < tensor.size; i++)
            sum += tensor.data[i];
    return sum;
}

static void test_damage(void)
{
    unsigned char *copy = (unsigned char *)malloc(sizeof image);
    specdec_gguf gguf;
    specdec_gguf_tensor tensor;
    specdec_gguf_value value;
    specdec_error error;
    size_t cut, i, opened = 0;
    unsigned sum = 0;

    TEST("a file that is cut off anywhere is refused with a sentence, and counts as empty");
    for (cut = 0; copy && cut + 64 < image_size; cut++) {
        unsigned char *exact = (unsigned char *)malloc(cut ? cut : 1); /* so that reading on is seen */

        memcpy(exact, image, cut);
        error.text[0] = 0;
        CHECK(specdec_gguf_open(&gguf, exact, cut, &error) != SPECDEC_OK && strlen(error.text) > 8);
        CHECK(gguf.pair_count == 0 && !specdec_gguf_find(&gguf, "u8", &value) &&
              !specdec_gguf_find_tensor(&gguf, "floats", &tensor));
        CHECK(look_at_all(&gguf) == 0);
        free(exact);
    }
    TEST("a file with any one byte changed is refused, or all that it shows lies inside it");
    for (i = 0; copy && i < image_size; i++) {
        static const unsigned char changes[] = {0xff, 0x80, 0x01, 0x10};
        size_t k;

        for (k = 0; k < sizeof changes; k++) {
            memcpy(copy, image, image_size);
            copy[i] = (unsigned char)(copy[i] ^ changes[k]);
            error.text[0] = 0;
            if (specdec_gguf_open(&gguf, copy, image_size, &error))
                CHECK(strlen(error.text) > 8);
            else
                opened++;
            sum += look_at_all(&gguf);
        }
    }
    CHECK(opened > 0 && sum != 0);
    TEST("another version is not supported, and said so");
    memcpy(copy, image, image_size);
    copy[4] = 4;
    CHECK(specdec_gguf_open(&gguf, copy, image_size, &error) == SPECDEC_ERROR_UNSUPPORTED &&
          strstr(error.text, "version 4"));
    free(copy);
}

static void test_null(const specdec_gguf *gguf)
{
    const float values[32] = {0};
    unsigned char block[34];
    specdec_gguf_tensor tensor;
    specdec_model_info info;
    specdec_gguf_value value;
    specdec_gguf_pair pair;
    specdec_gguf other;
    specdec_bytes text;
    specdec_error error;
    float out[32];
    double real;
    int64_t integer;
    size_t place = 0;

    TEST("a NULL is an error, not a crash; the error itself may be NULL");
    CHECK(specdec_gguf_open(NULL, image, image_size, &error) == SPECDEC_ERROR_ARGUMENT && strstr(error.text, "NULL"));
    CHECK(specdec_gguf_open(&other, NULL, 100, &error) == SPECDEC_ERROR_ARGUMENT && strstr(error.text, "NULL"));
    CHECK(specdec_gguf_open(&other, "no GGUF", 7, NULL) == SPECDEC_ERROR_FORMAT);
    CHECK(!specdec_gguf_find(NULL, "u8", &value) && !specdec_gguf_find(gguf, NULL, &value) &&
          !specdec_gguf_find(gguf, "u8", NULL));
    CHECK(!specdec_gguf_find_tensor(NULL, "a", &tensor) && !specdec_gguf_find_tensor(gguf, NULL, &tensor) &&
          !specdec_gguf_find_tensor(gguf, "floats", NULL));
    CHECK(!specdec_gguf_next_pair(NULL, &place, &pair) && !specdec_gguf_next_pair(gguf, NULL, &pair) &&
          !specdec_gguf_next_pair(gguf, &place, NULL));
    CHECK(!specdec_gguf_next_tensor(NULL, &place, &tensor) && !specdec_gguf_next_tensor(gguf, NULL, &tensor) &&
          !specdec_gguf_next_tensor(gguf, &place, NULL));
    CHECK(specdec_gguf_find(gguf, "strings", &value));
    CHECK(!specdec_gguf_next_string(NULL, &place, &text) && !specdec_gguf_next_string(&value, NULL, &text) &&
          !specdec_gguf_next_string(&value, &place, NULL));
    CHECK(!specdec_gguf_integer(NULL, 0, &integer) && !specdec_gguf_real(NULL, 0, &real));
    CHECK(specdec_gguf_find(gguf, "u8", &value) && !specdec_gguf_integer(&value, 0, NULL) &&
          !specdec_gguf_real(&value, 0, NULL));
    CHECK(specdec_gguf_get_integer(NULL, "u8", 0, 9, &integer, &error) &&
          specdec_gguf_get_integer(gguf, NULL, 0, 9, &integer, &error) &&
          specdec_gguf_get_integer(gguf, "u8", 0, 999, NULL, &error) == SPECDEC_ERROR_ARGUMENT);
    CHECK(specdec_gguf_get_float(NULL, "f32", out, &error) && specdec_gguf_get_float(gguf, NULL, out, NULL) &&
          specdec_gguf_get_float(gguf, "f32", NULL, &error) == SPECDEC_ERROR_ARGUMENT);
    CHECK(specdec_gguf_get_string(NULL, "string", &text, &error) && specdec_gguf_get_string(gguf, NULL, &text, NULL) &&
          specdec_gguf_get_string(gguf, "string", NULL, &error) == SPECDEC_ERROR_ARGUMENT);
    CHECK(!specdec_type_by_number(0, NULL) && !specdec_type_by_name(NULL, NULL) && !specdec_type_by_name("F32", NULL));
    CHECK(specdec_type_bytes(0, 1, NULL, &error) == SPECDEC_ERROR_ARGUMENT);
    CHECK(specdec_type_to_float(8, NULL, 32, out, &error) == SPECDEC_ERROR_ARGUMENT && strstr(error.text, "NULL"));
    CHECK(specdec_type_to_float(8, block, 32, NULL, &error) == SPECDEC_ERROR_ARGUMENT && strstr(error.text, "NULL"));
    CHECK(specdec_type_from_float(8, NULL, 32, block, NULL) && specdec_type_from_float(8, values, 32, NULL, NULL));
    CHECK(specdec_get_model_info(NULL, &info) == SPECDEC_ERROR_ARGUMENT);
    CHECK(specdec_isa_name(-1) == NULL && specdec_isa_name(1000) == NULL);
}

/* --- types -------------------------------------------------------------------------------------------------------- */

/* Values of a wave, whose square error through a type must be below a share of theirs. */
static void round_trip(const specdec_type *type, double share)
{
    float values[512], back[512];
    unsigned char data[2048 + 1];
    double wrong = 0, all = 0;
    size_t bytes = 0;
    int i;

    for (i = 0; i < 512; i++)
        values[i] = sinf((float)i * 0.37f) * (1 + (float)(i % 7));
    CHECK(!specdec_type_bytes(type->number, 512, &bytes, NULL) &&
          bytes == 512 / (size_t)type->block * (size_t)type->bytes);
    data[bytes] = 0xa5;
    CHECK(!specdec_type_from_float(type->number, values, 512, data, NULL) && data[bytes] == 0xa5);
    CHECK(!specdec_type_to_float(type->number, data, 512, back, NULL));
    for (i = 0; i < 512; i++) {
        wrong += ((double)values[i] - back[i]) * ((double)values[i] - back[i]);
        all += (double)values[i] * values[i];
    }
    CHECK(wrong <= share * all);
}

static void test_types(void)
{
    static const struct { const char *name; int block; double share; } known[] = {
        {"F32", 1, 0},      {"F16", 1, 1e-6},   {"BF16", 1, 1e-4},  {"Q4_0", 32, 0.02},
        {"Q4_1", 32, 0.02}, {"Q5_0", 32, 0.005}, {"Q5_1", 32, 0.005},
        {"Q8_0", 32, 1e-4}, {"Q4_K", 256, 0.02}, {"Q5_K", 256, 0.005}, {"Q6_K", 256, 1e-3},
        {"MXFP4", 32, 0.02}, {"Q2_0", 64, 0.2}, {"TQ1_0", 256, 0.25}, {"TQ2_0", 256, 0.25}, {"Q1_0", 128, 0.4}};
    float out[256];
    unsigned char data[300];
    specdec_type type, same;
    specdec_error error;
    size_t bytes = 1, i;
    uint32_t number;
    int count = 0, writable = 0;

    TEST("every type is found by number and by name");
    for (number = 0; number < SPECDEC_TYPE_NUMBERS; number++) {
        if (!specdec_type_by_number(number, &type))
            continue;
        count++;
        writable += type.writable;
        CHECK(type.number == number && type.block >= 1 && type.bytes >= 1);
        CHECK(specdec_type_by_name(type.name, &same) && same.number == number);
    }
    CHECK(count >= 7 && !specdec_type_by_number(SPECDEC_TYPE_NUMBERS, &type) &&
          !specdec_type_by_number(UINT32_MAX, &type));
    CHECK(!specdec_type_by_name("Q4", &type) && !specdec_type_by_name("", &type));
    TEST("a type that is not read is known by name and size, with the nearest one that is");
    CHECK(!specdec_type_not_read(0, &type) && !specdec_type_not_read(99, &type) && !specdec_type_not_read(9, NULL));
    CHECK(specdec_type_not_read(9, &type) && strcmp(type.name, "Q8_1") == 0 && type.block == 32 && type.bytes == 36 && !type.writable);
    TEST("every type that is writable comes back from its bytes");
    for (i = 0; i < sizeof known / sizeof *known; i++) {
        CHECK(specdec_type_by_name(known[i].name, &type) && type.writable && type.block == known[i].block);
        round_trip(&type, known[i].share);
    }
    CHECK_EQUAL_INT(writable, (int)i);
    TEST("half blocks, unknown types and sizes beyond all memory are refused, with words");
    CHECK(specdec_type_bytes(8, 33, &bytes, &error) == SPECDEC_ERROR_ARGUMENT &&
          strstr(error.text, "33 values of Q8_0"));
    CHECK(specdec_type_bytes(99, 32, &bytes, &error) == SPECDEC_ERROR_ARGUMENT && strstr(error.text, "type 99"));
    CHECK(specdec_type_bytes(0, UINT64_MAX, &bytes, &error) == SPECDEC_ERROR_ARGUMENT &&
          strstr(error.text, "too many"));
    CHECK(bytes == 1 && !specdec_type_bytes(8, 0, &bytes, &error) && bytes == 0);
    CHECK(specdec_type_to_float(12, data, 255, out, &error) == SPECDEC_ERROR_ARGUMENT);
    CHECK(specdec_type_from_float(12, out, 1, data, &error) == SPECDEC_ERROR_ARGUMENT);
    CHECK(!specdec_type_to_float(8, NULL, 0, NULL, &error));
    TEST("a type that is only read says so");
    CHECK(specdec_type_by_name("Q3_K", &type) && !type.writable);
    CHECK(specdec_type_from_float(type.number, out, 256, data, &error) == SPECDEC_ERROR_UNSUPPORTED &&
          strstr(error.text, "Q3_K"));
    TEST("a known block is read as its format says");
    memset(data, 0, sizeof data);
    data[1] = 0x3c; /* Q8_0: a scale of 1 */
    data[2] = 0xfe;
    data[33] = 5;
    CHECK(!specdec_type_to_float(8, data, 32, out, &error) && out[0] == -2 && out[1] == 0 && out[31] == 5);
}

/* --- machine and models ------------------------------------------------------------------------------------------- */

static void test_machine(void)
{
    int count = 0;

    TEST("the instruction sets of this machine are named, the plainest first");
    while (specdec_isa_name(count))
        count++;
    CHECK(count >= 1 && strcmp(specdec_isa_name(0), "scalar") == 0);
    CHECK(specdec_processors() >= 1 && specdec_processors() <= SPECDEC_MAX_THREADS);
}

static void test_model_info(void)
{
    size_t bytes = 0, size = 0;
    unsigned char *data = check_read_file("examples/models/tiny-stories-draft-q8_0.gguf", &size);
    specdec_gguf_tensor tensor;
    specdec_model *model = NULL;
    specdec_model_info info;
    specdec_config config;
    void *memory;
    int64_t layers = 0;

    TEST("a prepared model says what it is, and shows its file");
    memset(&config, 0, sizeof config);
    config.target.data = data;
    config.target.size = size;
    config.threads = config.weights_in_place = 1;
    CHECK(data && !specdec_model_memory_needed(&config, &bytes, NULL));
    memory = malloc(bytes);
    CHECK(memory && !specdec_model_init(&model, &config, memory, bytes, NULL));
    CHECK(!specdec_get_model_info(model, &info) && specdec_get_model_info(model, NULL) == SPECDEC_ERROR_ARGUMENT);
    CHECK(info.gguf && !specdec_gguf_get_integer(info.gguf, "llama.block_count", 1, 99, &layers, NULL));
    CHECK(info.layers == (int)layers && strcmp(info.architecture, "llama") == 0 && info.vocabulary == 4096);
    CHECK(info.heads * info.head_size == info.embedding && info.kv_heads >= 1 && info.window == 0 &&
          info.feed_forward > 0);
    CHECK(info.weight_bytes > 0 && info.weight_bytes < size && info.products_per_token > 0);
    CHECK(specdec_gguf_find_tensor(info.gguf, "output_norm.weight", &tensor) == 1 &&
          tensor.shape[0] == (uint64_t)info.embedding);
    specdec_model_deinit(model);
    free(memory);
    free(data);
}

/* --- text of tokens, trees of the caller's ------------------------------------------------------------------------ */

static void *take(size_t bytes) { return malloc(bytes ? bytes : 1); }

static void test_text_of_tokens(void)
{
    static const char story[] = "Once upon a time, there was a caf\303\251.";
    specdec_model *model = NULL;
    specdec_model_info info;
    specdec_config config;
    specdec_error error;
    int32_t tokens[200], outside = 1 << 20;
    char text[400];
    size_t bytes = 0, room = 0, length = 0;
    void *memory, *scratch;
    int count = 0;

    TEST("tokens become the text that they were made of, also without weights");
    memset(&config, 0, sizeof config);
    config.target.path = "examples/models/tiny-stories-draft-q8_0.gguf";
    config.vocabulary_only = 1;
    CHECK(!specdec_model_memory_needed(&config, &bytes, NULL));
    memory = take(bytes);
    CHECK(!specdec_model_init(&model, &config, memory, bytes, &error));
    CHECK(!specdec_get_model_info(model, &info) && info.vocabulary == 4096);
    bytes = specdec_tokenize_memory(model, sizeof story);
    scratch = take(bytes);
    CHECK(!specdec_tokenize(model, story, sizeof story - 1, SPECDEC_TOKENIZE_BEGIN, tokens, 200, &count, scratch, bytes, &error));
    CHECK(!specdec_detokenize(model, tokens, count, 0, text, sizeof text, &length, &error));
    CHECK(length == sizeof story - 1 && memcmp(text, story, length) == 0);
    TEST("control tokens are shown on request only");
    CHECK(!specdec_detokenize(model, tokens, count, SPECDEC_TOKENIZE_SPECIAL, text, sizeof text, &bytes, &error) &&
          bytes > length);
    TEST("too little room is told, with how much is enough");
    CHECK(specdec_detokenize(model, tokens, count, 0, NULL, 0, &room, &error) == SPECDEC_ERROR_BUFFER &&
          room >= length);
    CHECK(specdec_detokenize(model, tokens, count, 0, text, room - 1, &bytes, &error) == SPECDEC_ERROR_BUFFER &&
          bytes == room);
    CHECK(!specdec_detokenize(model, tokens, count, 0, text, room, &bytes, &error) && bytes == length);
    TEST("what is no token, or NULL, is an error");
    CHECK(specdec_detokenize(model, &outside, 1, 0, text, sizeof text, &length, &error) == SPECDEC_ERROR_ARGUMENT);
    CHECK(strstr(error.text, "1048576") && length == 0);
    CHECK(specdec_detokenize(NULL, tokens, 1, 0, text, 9, &length, NULL) &&
          specdec_detokenize(model, NULL, 1, 0, text, 9, &length, NULL));
    CHECK(specdec_detokenize(model, tokens, 1, 0, text, 9, NULL, NULL) &&
          specdec_detokenize(model, tokens, 1, 0, NULL, 9, &length, NULL));
    CHECK(!specdec_detokenize(model, NULL, 0, 0, text, sizeof text, &length, NULL) && length == 0);
    specdec_model_deinit(model);
    free(scratch);
    free(memory);
}

/* Writes 60 tokens of a story. Returns a number that two texts hardly share. */
static uint64_t story(specdec *e)
{
    const int32_t *tokens;
    uint64_t sum = 0;
    int count = 0, i;

    specdec_rewind(e, 0);
    CHECK(!specdec_prompt(e, "Once upon a time", SPECDEC_WHOLE_STRING));
    while (count < 60 && !specdec_step(e, &tokens, &i))
        specdec_tokens(e, &tokens, &count);
    for (i = 0; i < 60 && i < count; i++)
        sum = sum * 31 + (uint64_t)tokens[i];
    return sum;
}

static void test_set_tree(void)
{
    int32_t parents[40], ranks[40];
    specdec_tree tree = {NULL, NULL, 40, 0};
    specdec_stats before, after;
    specdec_config config;
    specdec *e = NULL;
    size_t bytes = 0;
    uint64_t plain;
    void *memory;
    size_t i;

    TEST("a tree that is set is the one of every step, and changes no text");
    tree.parents = parents;
    tree.ranks = ranks;
    memset(&config, 0, sizeof config);
    config.target.path = "examples/models/tiny-stories-target-q8_0.gguf";
    config.draft.path = "examples/models/tiny-stories-draft-q8_0.gguf";
    config.drafting = SPECDEC_DRAFT_MODEL;
    config.threads = 1;
    config.context = 200;
    config.tree_size = 16;
    config.tree_depth = 8;
    CHECK(!specdec_memory_needed(&config, &bytes, NULL));
    memory = take(bytes);
    CHECK(!specdec_init(&e, &config, memory, bytes, NULL));
    CHECK(!specdec_tree_chains(&tree, 0, 0, NULL) && !specdec_set_tree(e, &tree));
    specdec_get_stats(e, &before);
    plain = story(e);
    specdec_get_stats(e, &after);
    CHECK(after.drafted == before.drafted && after.steps > before.steps);
    CHECK(!specdec_tree_chains(&tree, 3, 4, NULL) && tree.n == 13 && !specdec_set_tree(e, &tree));
    memset(parents, 0, sizeof parents); /* it has been copied */
    CHECK(story(e) == plain);
    before = after;
    specdec_get_stats(e, &after);
    CHECK(after.drafted - before.drafted > 0 && after.steps - before.steps < 50);
    CHECK((after.trees[0].nodes == 13 && after.trees[0].levels == 5) || (after.trees[1].nodes == 13 &&
          after.trees[1].levels == 5));
    TEST("a tree that is too large, too deep or none is refused, with words");
    CHECK(!specdec_tree_chains(&tree, 4, 4, NULL) && specdec_set_tree(e, &tree) == SPECDEC_ERROR_ARGUMENT);
    CHECK(strstr(specdec_error_text(e), "17 nodes") != NULL);
    CHECK(!specdec_tree_chains(&tree, 1, 9, NULL) && specdec_set_tree(e, &tree) == SPECDEC_ERROR_ARGUMENT);
    parents[1] = 7;
    CHECK(specdec_set_tree(e, &tree) == SPECDEC_ERROR_ARGUMENT && specdec_set_tree(e, NULL) &&
          specdec_set_tree(NULL, &tree));
    CHECK(story(e) == plain);
    specdec_deinit(e);
    free(memory);
    TEST("a tree of two levels may be as wide as the engine takes, and stays in its block");
    config.tree_size = 40;
    config.tree_depth = 2;
    config.weights_in_place = 1; /* then trees lie at the end of the block */
    CHECK(!specdec_memory_needed(&config, &bytes, NULL));
    memory = take(bytes + 1000);
    memset((char *)memory + bytes, 0x5A, 1000);
    CHECK(!specdec_init(&e, &config, memory, bytes, NULL));
    CHECK(!specdec_tree_chains(&tree, 39, 1, NULL) && tree.n == 40 && !specdec_set_tree(e, &tree));
    CHECK(story(e) == plain);
    for (i = 0; i < 1000 && ((char *)memory)[bytes + i] == 0x5A; i++)
        continue;
    CHECK_EQUAL_INT(i, 1000);
    specdec_get_stats(e, &after);
    CHECK(after.trees[0].nodes > 30 && after.trees[0].levels == 2); /* no more children than are drawn behind a node */
    specdec_deinit(e);
    free(memory);
    config.tree_size = 16;
    config.tree_depth = 8;
    config.weights_in_place = 0;
    TEST("a tree is set as well between steps during which the draft model goes on");
    config.async = 1;
    config.threads = 2;
    CHECK(!specdec_memory_needed(&config, &bytes, NULL));
    memory = take(bytes);
    CHECK(!specdec_init(&e, &config, memory, bytes, NULL));
    CHECK(story(e) == plain);
    specdec_get_stats(e, &after);
    CHECK(after.steps_beside > 0);
    CHECK(!specdec_tree_chains(&tree, 1, 3, NULL));
    CHECK_EQUAL_INT(specdec_set_tree(e, &tree), SPECDEC_OK);
    CHECK(story(e) == plain);
    specdec_deinit(e);
    free(memory);
    config.async = 0;
    config.threads = 1;
    TEST("a tree is refused where trees are chosen by what was measured");
    config.drafting = SPECDEC_DRAFT_AUTO;
    CHECK(!specdec_memory_needed(&config, &bytes, NULL));
    memory = take(bytes);
    CHECK(!specdec_init(&e, &config, memory, bytes, NULL));
    CHECK(!specdec_tree_chains(&tree, 1, 3, NULL) && specdec_set_tree(e, &tree) == SPECDEC_ERROR_ARGUMENT);
    specdec_deinit(e);
    free(memory);
}

int main(void)
{
    specdec_gguf gguf;
    specdec_error error;

    TEST("a sound file opens");
    make_image();
    error.text[0] = 0;
    CHECK_EQUAL_INT(specdec_gguf_open(&gguf, image, image_size, &error), SPECDEC_OK);
    CHECK(gguf.pair_count == PAIRS && gguf.tensor_count == TENSORS && gguf.alignment == 64);
    test_numbers(&gguf);
    test_strings(&gguf);
    test_walks(&gguf);
    test_damage();
    test_null(&gguf);
    test_types();
    test_machine();
    test_model_info();
    test_text_of_tokens();
    test_set_tree();
    return check_report("test_files_types");
}
