/* =====================================================================================================================
 * >>model/gguf: checks and reads GGUF files, versions 2 and 3, in place; any bytes may come; format: ggml/docs/gguf.md.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../quant/table.h"

SPECDEC__FOR_SIZE
#define SPECDEC__MAX_NAME_BYTES 32 /* longest name that is compared, in bytes */

/* Returns the edit distance of two names (Levenshtein 1966): the fewest bytes that must be replaced, inserted or
   deleted to make one name of the other. SPECDEC__MAX_NAME_BYTES if one of them is too long. */
static SPECDEC__UNUSED size_t specdec__name_distance(specdec__bytes a, const char *b)
{
    unsigned char row[SPECDEC__MAX_NAME_BYTES]; /* row[j]: the distance of a's first i bytes and b's first j */
    const size_t width = strlen(b);
    size_t i, j;

    if (a.size >= SPECDEC__MAX_NAME_BYTES || width >= SPECDEC__MAX_NAME_BYTES)
        return SPECDEC__MAX_NAME_BYTES;
    for (j = 0; j <= width; j++)
        row[j] = (unsigned char)j;
    for (i = 1; i <= a.size; i++) {
        int before = row[0]++;

        for (j = 1; j <= width; j++) {
            int best = specdec__min_int(before + (a.data[i - 1] != (unsigned char)b[j - 1]), row[j] + 1);

            before = row[j];
            row[j] = (unsigned char)specdec__min_int(best, row[j - 1] + 1);
        }
    }
    return row[width];
}

/* Compares an unknown name with a known one: if their distance is below *least, *least becomes the distance and
   *nearest the known name. *least begins as specdec__name_max_distance returns it. */
static SPECDEC__UNUSED void specdec__name_update_nearest(specdec__bytes name, const char *known, size_t *least,
                                                         const char **nearest)
{
    const size_t distance = specdec__name_distance(name, known);

    if (distance < *least) {
        *least = distance;
        *nearest = known;
    }
}

/* Returns the distance at which a known name is no longer similar to `name`: a third of its bytes, plus one. */
static SPECDEC__UNUSED size_t specdec__name_max_distance(specdec__bytes name) { return (name.size + 2) / 3 + 1; }

/* Bytes of a value of each GGUF type; 0: strings and arrays. */
static const unsigned char specdec__gguf_type_size[SPECDEC_GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
static const char *const specdec__gguf_type_name[SPECDEC_GGUF_TYPES] = {
    "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"};

#define SPECDEC__GGUF_MAX_TENSORS 4096 /* more than any model has; bounds the time that a hostile file can take */
#define SPECDEC__GGUF_MAX_PAIRS 16384 /* metadata pairs, at most, for the same reason */

typedef specdec_gguf specdec__gguf;
typedef specdec_gguf_value specdec__gguf_value;
typedef specdec_gguf_tensor specdec__gguf_tensor;

/* A read position in a file, which only moves forward. After the first read beyond the end it is bad for good. */
typedef struct specdec__cursor {
    const unsigned char *data; /* the file */
    size_t size, offset;       /* bytes of the file; offset of the next byte */
    int is_bad;                /* 1: a read went beyond the end */
} specdec__cursor;

/* Returns a cursor at the beginning of `size` bytes. */
static specdec__cursor specdec__cursor_begin_at_start(const unsigned char *data, size_t size)
{
    specdec__cursor c;

    c.data = data;
    c.size = size;
    c.offset = 0;
    c.is_bad = 0;
    return c;
}

/* Moves a cursor past some bytes and returns their address; NULL: the end is nearer, and the cursor becomes bad. */
static const unsigned char *specdec__cursor_skip(specdec__cursor *c, uint64_t bytes)
{
    const unsigned char *from = c->data + c->offset;

    if (c->is_bad || bytes > c->size - c->offset) {
        c->is_bad = 1;
        return NULL;
    }
    c->offset += (size_t)bytes;
    return from;
}

/* Reads a little-endian 32-bit integer at a cursor; 0 if the cursor is bad or becomes so. */
static uint32_t specdec__cursor_read_u32(specdec__cursor *c)
{
    const unsigned char *at = specdec__cursor_skip(c, 4);

    return at ? specdec__load_u32(at) : 0;
}

/* Reads a little-endian 64-bit integer at a cursor; 0 if the cursor is bad or becomes so. */
static uint64_t specdec__cursor_read_u64(specdec__cursor *c)
{
    const unsigned char *at = specdec__cursor_skip(c, 8);

    return at ? specdec__load_u64(at) : 0;
}

/* Reads a GGUF string: its length in 64 bits, then its bytes. NULL and 0 if the cursor is or becomes bad. */
static specdec__bytes specdec__cursor_read_string(specdec__cursor *c)
{
    uint64_t size = specdec__cursor_read_u64(c);
    specdec__bytes out;

    out.data = specdec__cursor_skip(c, size);
    out.size = out.data ? (size_t)size : 0;
    return out;
}

/* Reads a metadata value. The cursor becomes bad for unknown types, arrays of arrays and values that reach beyond the
   end of the file. */
static specdec__gguf_value specdec__cursor_read_value(specdec__cursor *c)
{
    specdec__gguf_value value;
    size_t from;

    memset(&value, 0, sizeof value);
    value.type = specdec__cursor_read_u32(c);
    value.count = 1;
    if (value.type == SPECDEC_GGUF_ARRAY) {
        value.is_array = 1;
        value.type = specdec__cursor_read_u32(c);
        value.count = specdec__cursor_read_u64(c);
    }
    if (c->is_bad || value.type >= SPECDEC_GGUF_TYPES || value.type == SPECDEC_GGUF_ARRAY) {
        c->is_bad = 1;
        return value;
    }
    from = c->offset;
    value.items = c->data + from;
    if (value.type != SPECDEC_GGUF_STRING) {
        size_t item = specdec__gguf_type_size[value.type];
        specdec__cursor_skip(c, value.count > UINT64_MAX / item ? UINT64_MAX : value.count * item);
    } else if (value.is_array) {
        uint64_t i;
        for (i = 0; i < value.count && !c->is_bad; i++)
            specdec__cursor_read_string(c);
    } else {
        specdec__bytes text = specdec__cursor_read_string(c);
        value.items = text.data;
        value.count = text.size;
        value.bytes = text.size;
        return value;
    }
    value.bytes = c->offset - from;
    return value;
}

/* Whether some bytes equal text[0 .. length). */
static int specdec__bytes_equal(specdec__bytes a, const char *text, size_t length)
{
    return a.size == length && memcmp(a.data, text, length) == 0;
}

/* Whether some bytes equal a string that ends with a zero byte, without this byte. */
static int specdec__bytes_equal_string(specdec__bytes a, const char *text)
{
    return specdec__bytes_equal(a, text, strlen(text));
}

/* Reads one tensor record and checks it. Returns NULL, or an error text that follows the tensor's name. */
static const char *specdec__gguf_read_tensor(const specdec__gguf *gguf, specdec__cursor *c, specdec__gguf_tensor *out)
{
    uint64_t elements = 1, offset;
    uint32_t dimensions, i;
    size_t room = gguf->data_at <= gguf->file.size ? gguf->file.size - gguf->data_at : 0;

    memset(out, 0, sizeof *out);
    out->name = specdec__cursor_read_string(c);
    dimensions = specdec__cursor_read_u32(c);
    if (c->is_bad)
        return "is cut off";
    if (dimensions < 1 || dimensions > 4)
        return "has an impossible number of dimensions";
    out->dimensions = (int)dimensions;
    for (i = 0; i < 4; i++) {
        out->shape[i] = i < dimensions ? specdec__cursor_read_u64(c) : 1;
        if (!c->is_bad &&
            (out->shape[i] < 1 || out->shape[i] > (1u << 30) || elements > ((uint64_t)1 << 42) / out->shape[i]))
            return "has an impossible dimension";
        elements *= c->is_bad ? 1 : out->shape[i];
    }
    out->type = specdec__cursor_read_u32(c);
    offset = specdec__cursor_read_u64(c);
    if (c->is_bad)
        return "is cut off";
    if (!gguf->data_at)
        return NULL; /* first pass: where the data begins is not known yet */
    if (offset % gguf->alignment)
        return "is not aligned";
    if (gguf->data_at > gguf->file.size || offset > room)
        return "reaches beyond the end of the file: is it complete?";
    out->data = gguf->file.data + gguf->data_at + (size_t)offset;
    out->size = specdec__quant_tensor_bytes(out->type, elements, out->shape[0]);
    if (out->size == SIZE_MAX)
        return "has rows that are no multiple of its block size";
    if (out->size > room - (size_t)offset)
        return "reaches beyond the end of the file: is it complete?";
    return NULL;
}

/* Reads the value of a metadata pair in a checked file; long arrays of strings are skipped at once, by
   gguf->strings. */
static specdec__gguf_value specdec__gguf_read_value(const specdec__gguf *gguf, specdec__cursor *c)
{
    int i;

    for (i = 0; i < gguf->strings_count; i++)
        if (gguf->strings[i].from == c->offset) {
            specdec__gguf_value value;

            memset(&value, 0, sizeof value);
            value.type = SPECDEC_GGUF_STRING;
            value.is_array = 1;
            value.count = specdec__load_u64(c->data + c->offset + 8);
            value.items = c->data + c->offset + 16;
            value.bytes = gguf->strings[i].to - c->offset - 16;
            c->offset = gguf->strings[i].to;
            return value;
        }
    return specdec__cursor_read_value(c);
}

/* Finds a metadata value by its key in a checked file. Returns 1 when found. */
static int specdec__gguf_find_value(const specdec__gguf *gguf, const char *key, specdec__gguf_value *out)
{
    specdec__cursor c = specdec__cursor_begin_at_start(gguf->file.data, gguf->file.size);
    uint64_t i;

    c.offset = gguf->pairs_at;
    for (i = 0; i < gguf->pair_count; i++) {
        const int found = specdec__bytes_equal_string(specdec__cursor_read_string(&c), key);
        const specdec__gguf_value value = specdec__gguf_read_value(gguf, &c);

        if (found) {
            *out = value;
            return 1;
        }
    }
    return 0;
}

/* Returns the error that the value of a key has another type than expected. kind, wanted: the type expected, such as
   "an array of " and "u32". */
static specdec_result specdec__gguf_refuse_type(const char *key, const char *kind, const char *wanted,
                                                const specdec__gguf_value *value, specdec_error *error)
{
    return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s should be %s%s, the file has %s%s", key, kind, wanted,
                         value->is_array ? "an array of " : "", specdec__gguf_type_name[value->type]);
}

/* Reads an integer of a GGUF type at an address; one that is too large for int64_t becomes INT64_MAX. Returns 0 if the
   type is not an integer type. */
static int specdec__gguf_read_integer(uint32_t type, const unsigned char *at, int64_t *out)
{
    uint64_t wide;

    switch (type) {
    case SPECDEC_GGUF_U8: case SPECDEC_GGUF_BOOL: *out = at[0]; return 1;
    case SPECDEC_GGUF_I8: *out = (int8_t)at[0]; return 1;
    case SPECDEC_GGUF_U16: *out = specdec__load_u16(at); return 1;
    case SPECDEC_GGUF_I16: *out = (int16_t)specdec__load_u16(at); return 1;
    case SPECDEC_GGUF_U32: *out = specdec__load_u32(at); return 1;
    case SPECDEC_GGUF_I32: *out = (int32_t)specdec__load_u32(at); return 1;
    case SPECDEC_GGUF_I64: *out = (int64_t)specdec__load_u64(at); return 1;
    case SPECDEC_GGUF_U64:
        wide = specdec__load_u64(at);
        *out = wide > (uint64_t)INT64_MAX ? INT64_MAX : (int64_t)wide;
        return 1;
    default: return 0;
    }
}

/* Reads an integer metadata value of any width in [low, high], or an array of `copies` equal ones; *out keeps its value
   if the file lacks the key. Errors: FORMAT, UNSUPPORTED (the array's items differ). */
static SPECDEC__UNUSED specdec_result specdec__gguf_get_integer(const specdec__gguf *gguf, const char *key, int copies,
                                                                int64_t low, int64_t high,
                                                                int64_t *out, specdec_error *error)
{
    specdec__gguf_value v;
    size_t size, i;
    int64_t value;

    if (!specdec__gguf_find_value(gguf, key, &v))
        return SPECDEC_OK;
    size = specdec__gguf_type_size[v.type];
    if ((v.is_array && (!copies || v.count != (uint64_t)copies)) ||
        !specdec__gguf_read_integer(v.type, v.items, &value))
        return specdec__gguf_refuse_type(key, "an ", "integer", &v, error);
    for (i = 1; v.is_array && i < (size_t)copies; i++)
        if (memcmp(v.items, v.items + i * size, size) != 0)
            return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "%s differs from layer to layer", key);
    if (value < low || value > high)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s is out of range", key);
    *out = value;
    return SPECDEC_OK;
}

/* Reads a finite f32 metadata value; *out keeps its value if the file lacks the key. Errors: FORMAT. */
static SPECDEC__UNUSED specdec_result specdec__gguf_get_float(const specdec__gguf *gguf, const char *key, float *out,
                                                              specdec_error *error)
{
    specdec__gguf_value v;
    float value;

    if (!specdec__gguf_find_value(gguf, key, &v))
        return SPECDEC_OK;
    if (v.is_array || v.type != SPECDEC_GGUF_F32)
        return specdec__gguf_refuse_type(key, "", "f32", &v, error);
    value = specdec__load_f32(v.items);
    if (!(value - value == 0))
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s is not finite", key);
    *out = value;
    return SPECDEC_OK;
}

/* Reads a string metadata value; out->data is NULL if the file lacks the key. Errors: FORMAT. */
static SPECDEC__UNUSED specdec_result specdec__gguf_get_string(const specdec__gguf *gguf, const char *key,
                                                               specdec__bytes *out,
                                                               specdec_error *error)
{
    specdec__gguf_value v;

    out->data = NULL;
    out->size = 0;
    if (!specdec__gguf_find_value(gguf, key, &v))
        return SPECDEC_OK;
    if (v.is_array || v.type != SPECDEC_GGUF_STRING)
        return specdec__gguf_refuse_type(key, "a ", "string", &v, error);
    out->data = v.items;
    out->size = v.bytes;
    return SPECDEC_OK;
}

/* Reads an array metadata value with items of one type; out->items is NULL if the file lacks the key. Items are read
   with specdec__load_..., strings one after the other with specdec__cursor_read_string over (items, bytes). Errors:
   FORMAT. */
static SPECDEC__UNUSED specdec_result specdec__gguf_get_array(const specdec__gguf *gguf, const char *key, uint32_t type,
                                                              specdec__gguf_value *out, specdec_error *error)
{
    memset(out, 0, sizeof *out);
    if (!specdec__gguf_find_value(gguf, key, out))
        return SPECDEC_OK;
    if (!out->is_array || out->type != type)
        return specdec__gguf_refuse_type(key, "an array of ", specdec__gguf_type_name[type], out, error);
    return SPECDEC_OK;
}

/* Checks bounds and types of all metadata pairs, and records where long arrays of strings end. */
static specdec_result specdec__gguf_check_pairs(specdec__gguf *gguf, specdec__cursor *c, specdec_error *error)
{
    uint64_t i;

    for (i = 0; i < gguf->pair_count; i++) {
        specdec__bytes key = specdec__cursor_read_string(c);
        const size_t from = c->offset;
        specdec__gguf_value value;

        memset(&value, 0, sizeof value);
        if (!c->is_bad)
            value = specdec__cursor_read_value(c);
        if (c->is_bad)
            return specdec__fail(error, SPECDEC_ERROR_FORMAT,
                                 "metadata pair %llu (%.*s) is cut off or of an unknown type", (unsigned long long)i,
                                 (int)(key.size < 64 ? key.size : 64), key.data ? (const char *)key.data : "");
        if (value.is_array && value.type == SPECDEC_GGUF_STRING && gguf->strings_count < SPECDEC_GGUF_LONG) {
            gguf->strings[gguf->strings_count].from = from;
            gguf->strings[gguf->strings_count++].to = c->offset;
        }
    }
    return SPECDEC_OK;
}

/* Checks all tensor records of a file. Called twice: before gguf->data_at is known, which lies behind the last record,
   and afterwards. Errors: FORMAT, UNSUPPORTED. */
static specdec_result specdec__gguf_check_tensors(specdec__gguf *gguf, specdec__cursor *c, specdec_error *error)
{
    specdec__gguf_tensor tensor;
    uint64_t i;

    for (i = 0; i < gguf->tensor_count; i++) {
        const char *wrong = specdec__gguf_read_tensor(gguf, c, &tensor);

        if (wrong)
            return specdec__fail(error, SPECDEC_ERROR_FORMAT, "tensor %llu (%.*s) %s", (unsigned long long)i,
                                 (int)(tensor.name.size < 64 ? tensor.name.size : 64),
                                 tensor.name.data ? (const char *)tensor.name.data : "", wrong);
    }
    return SPECDEC_OK;
}

/* Moves a cursor past a record of a checked file, and returns the tensor's name (tensors = 1) or the pair's key (0). */
static specdec__bytes specdec__gguf_skip_record(const specdec__gguf *gguf, specdec__cursor *c, int tensors)
{
    const specdec__bytes name = specdec__cursor_read_string(c);
    uint32_t dimensions;

    if (!tensors) {
        specdec__gguf_read_value(gguf, c);
        return name;
    }
    dimensions = specdec__cursor_read_u32(c);
    c->offset += (size_t)dimensions * 8 + 12;
    return name;
}

/* The next 64 records of a file, sorted by a number that each record has; equal numbers in the order of the file. There
   is no memory for all records: each walk over the file gives the next 64. */
#define SPECDEC__GGUF_ORDER_RECORDS 64 /* records that an order holds */
typedef struct specdec__gguf_order {
    uint64_t number[SPECDEC__GGUF_ORDER_RECORDS]; /* (count) numbers that records are sorted by, rising */
    size_t record[SPECDEC__GGUF_ORDER_RECORDS];   /* offsets of the records */
    int count;                             /* records in the order, at most 64 */
} specdec__gguf_order;

/* Whether a record with number a at offset a_at comes before one with number b at offset b_at. */
SPECDEC__INLINE int specdec__gguf_comes_before(uint64_t a, size_t a_at, uint64_t b, size_t b_at)
{
    return a < b || (a == b && a_at < b_at);
}

/* Inserts a record into an order, unless the order already holds 64 records that come before it. */
static void specdec__gguf_order_insert(specdec__gguf_order *order, uint64_t number, size_t at)
{
    int i = order->count, last = SPECDEC__GGUF_ORDER_RECORDS - 1;

    if (i > last && !specdec__gguf_comes_before(number, at, order->number[last], order->record[last]))
        return;
    for (i = specdec__min_int(i, last);
         i > 0 && specdec__gguf_comes_before(number, at, order->number[i - 1], order->record[i - 1]); i--) {
        order->number[i] = order->number[i - 1];
        order->record[i] = order->record[i - 1];
    }
    order->number[i] = number;
    order->record[i] = at;
    order->count = specdec__min_int(order->count + 1, last + 1);
}

/* What records are sorted by: pairs by a hash of their keys; tensors by a hash of their names, or by the offset of
   their data. */
enum { SPECDEC__GGUF_BY_KEY, SPECDEC__GGUF_BY_NAME, SPECDEC__GGUF_BY_OFFSET };

/* Inserts all records of a file that come after (number, at) into an order; (0, 0) comes before all. Offsets count from
   `origin`, as a model may have several files in memory. */
static void specdec__gguf_sort_records(const specdec__gguf *gguf, const unsigned char *origin, int by, uint64_t number,
                               size_t at, specdec__gguf_order *order)
{
    const size_t from = (size_t)(gguf->file.data - origin);
    const uint64_t count = by == SPECDEC__GGUF_BY_KEY ? gguf->pair_count : gguf->tensor_count;
    specdec__cursor c = specdec__cursor_begin_at_start(gguf->file.data, gguf->file.size);
    uint64_t i;

    c.offset = by == SPECDEC__GGUF_BY_KEY ? gguf->pairs_at : gguf->tensors_at;
    for (i = 0; i < count; i++) {
        const size_t record = from + c.offset;
        const specdec__bytes name = specdec__gguf_skip_record(gguf, &c, by != SPECDEC__GGUF_BY_KEY);
        const uint64_t own = by == SPECDEC__GGUF_BY_OFFSET ? specdec__load_u64(c.data + c.offset - 8)
                                                           : specdec__hash(SPECDEC__EMPTY_HASH, name.data, name.size);

        if (specdec__gguf_comes_before(number, at, own, record))
            specdec__gguf_order_insert(order, own, record);
    }
}

/* Returns the name that a checked record begins with. */
static specdec__bytes specdec__gguf_record_name(const unsigned char *record)
{
    specdec__bytes name;

    name.size = (size_t)specdec__load_u64(record);
    name.data = record + 8;
    return name;
}

/* Returns how many bytes of a name an error text shows: 64 at most. */
static int specdec__gguf_shown_bytes(specdec__bytes name) { return (int)(name.size < 64 ? name.size : 64); }

/* Returns an error if records a and b have the same name. by: SPECDEC__GGUF_BY_KEY, ... Errors: FORMAT. */
static specdec_result specdec__gguf_check_duplicate(int by, const unsigned char *a, const unsigned char *b,
                                                    specdec_error *error)
{
    const specdec__bytes name = specdec__gguf_record_name(a), other = specdec__gguf_record_name(b);

    if (name.size != other.size || memcmp(name.data, other.data, name.size) != 0)
        return SPECDEC_OK;
    return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s %.*s occurs twice",
                         by == SPECDEC__GGUF_BY_KEY ? "key" : "tensor", specdec__gguf_shown_bytes(name),
                         (const char *)name.data);
}

/* Returns an error if the data of a tensor do not end where the data of the next tensor begin, up to the alignment: its
   type or shape contradicts the offsets. before: offset of its record; 0: there is none, the next tensor is the first.
   Errors: FORMAT. */
static specdec_result specdec__gguf_check_gap(const specdec__gguf *gguf, size_t before, size_t next,
                                              uint64_t next_offset, specdec_error *error)
{
    const specdec__bytes next_name = specdec__gguf_record_name(gguf->file.data + next);
    specdec__cursor c = specdec__cursor_begin_at_start(gguf->file.data, gguf->file.size);
    specdec__gguf_tensor tensor;
    uint64_t end = 0, padded;

    memset(&tensor, 0, sizeof tensor);
    if (before) {
        c.offset = before;
        specdec__gguf_read_tensor(gguf, &c, &tensor);
        if (!tensor.size) /* of an unknown type */
            return SPECDEC_OK;
        end = (uint64_t)(tensor.data - gguf->file.data) - gguf->data_at + tensor.size;
    }
    padded = (end + gguf->alignment - 1) & ~(uint64_t)(gguf->alignment - 1);
    if (next_offset < end)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT,
                             "tensor %.*s needs %llu bytes and so reaches into tensor %.*s",
                             specdec__gguf_shown_bytes(tensor.name), (const char *)tensor.name.data,
                             (unsigned long long)tensor.size,
                             specdec__gguf_shown_bytes(next_name), (const char *)next_name.data);
    if (next_offset > padded)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT,
                             "%llu bytes between tensor %.*s and tensor %.*s: type or shape do not fit the data",
                             (unsigned long long)(next_offset - end), specdec__gguf_shown_bytes(tensor.name),
                             tensor.name.data ? (const char *)tensor.name.data : "",
                             specdec__gguf_shown_bytes(next_name), (const char *)next_name.data);
    return SPECDEC_OK;
}

/* Checks each record against the previous one in an order: equal names, or gaps between the data of tensors. */
static SPECDEC__NOINLINE specdec_result specdec__gguf_check_neighbours(const specdec__gguf *gguf, int by,
                                                                       specdec_error *error)
{
    specdec__gguf_order order;
    uint64_t number = 0;
    size_t at = 0;
    int i;

    do {
        order.count = 0;
        specdec__gguf_sort_records(gguf, gguf->file.data, by, number, at, &order);
        for (i = 0; i < order.count; i++) {
            specdec_result result = SPECDEC_OK;

            if (by == SPECDEC__GGUF_BY_OFFSET)
                result = specdec__gguf_check_gap(gguf, at, order.record[i], order.number[i], error);
            else if (at && number == order.number[i])
                result = specdec__gguf_check_duplicate(by, gguf->file.data + at, gguf->file.data + order.record[i],
                                                       error);
            if (result)
                return result;
            number = order.number[i];
            at = order.record[i];
        }
    } while (order.count == SPECDEC__GGUF_ORDER_RECORDS);
    return SPECDEC_OK;
}

/* Finds the sections of a GGUF file in memory and checks each record alone. Errors: FORMAT, UNSUPPORTED (version,
   big-endian). */
static specdec_result specdec__gguf_find_sections(specdec__gguf *gguf, specdec__bytes file, specdec_error *error)
{
    specdec__cursor c;
    specdec_result result;
    int64_t alignment = 32;
    uint32_t version;

    memset(gguf, 0, sizeof *gguf);
    gguf->file = file;
    c = specdec__cursor_begin_at_start(file.data, file.size);
    if (file.size < 24 || memcmp(file.data, "GGUF", 4) != 0)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "not a GGUF file");
    c.offset = 4;
    version = specdec__cursor_read_u32(&c);
    if (version && !(version & 0xFFFF))
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "a big-endian GGUF file (little-endian ones are read)");
    if (version != 2 && version != 3)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "GGUF version %u (2 and 3 are read)", version);
    gguf->tensor_count = specdec__cursor_read_u64(&c);
    gguf->pair_count = specdec__cursor_read_u64(&c);
    if (gguf->tensor_count > SPECDEC__GGUF_MAX_TENSORS || gguf->pair_count > SPECDEC__GGUF_MAX_PAIRS)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "impossible counts: %llu tensors, %llu metadata pairs",
                             (unsigned long long)gguf->tensor_count, (unsigned long long)gguf->pair_count);
    gguf->pairs_at = c.offset;
    result = specdec__gguf_check_pairs(gguf, &c, error);
    if (result)
        return result;
    result = specdec__gguf_get_integer(gguf, "general.alignment", 0, 1, 1 << 20, &alignment, error);
    if (result)
        return result;
    if (alignment & (alignment - 1))
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "general.alignment is no power of two");
    gguf->alignment = (size_t)alignment;
    gguf->tensors_at = c.offset;
    result = specdec__gguf_check_tensors(gguf, &c, error);
    if (result)
        return result;
    gguf->tensors_end = c.offset;
    gguf->data_at = specdec__size_add(c.offset, gguf->alignment - 1) & ~(gguf->alignment - 1);
    return SPECDEC_OK;
}

/* Checks a whole GGUF file in memory, each record alone and against its neighbours; afterwards every offset in it may
   be trusted. Errors: FORMAT, UNSUPPORTED. */
static SPECDEC__UNUSED specdec_result specdec__gguf_open(specdec__gguf *gguf, specdec__bytes file, specdec_error *error)
{
    specdec_result result = specdec__gguf_find_sections(gguf, file, error);
    specdec__cursor c = specdec__cursor_begin_at_start(file.data, file.size);
    int by;

    c.offset = gguf->tensors_at;
    if (!result)
        result = specdec__gguf_check_tensors(gguf, &c, error);
    for (by = SPECDEC__GGUF_BY_KEY; !result && by <= SPECDEC__GGUF_BY_OFFSET; by++)
        result = specdec__gguf_check_neighbours(gguf, by, error);
    return result;
}

/* Returns the bytes of a checked file up to the end of its last tensor. */
static SPECDEC__UNUSED size_t specdec__gguf_used_bytes(const specdec__gguf *gguf)
{
    specdec__cursor c = specdec__cursor_begin_at_start(gguf->file.data, gguf->file.size);
    size_t extent = gguf->data_at < gguf->file.size ? gguf->data_at : gguf->file.size;
    specdec__gguf_tensor tensor;
    uint64_t i;

    c.offset = gguf->tensors_at;
    for (i = 0; i < gguf->tensor_count; i++) {
        size_t end;

        specdec__gguf_read_tensor(gguf, &c, &tensor);
        end = (size_t)(tensor.data - gguf->file.data) + tensor.size;
        extent = end > extent ? end : extent;
    }
    return extent;
}

/* Finds the record of a tensor in a checked file by its name. Returns 1 when found. */
static SPECDEC__UNUSED int specdec__gguf_find_tensor(const specdec__gguf *gguf, const char *name,
                                                     specdec__gguf_tensor *out)
{
    specdec__cursor c = specdec__cursor_begin_at_start(gguf->file.data, gguf->file.size);
    uint64_t i;

    c.offset = gguf->tensors_at;
    for (i = 0; i < gguf->tensor_count; i++) {
        const size_t record = c.offset;

        if (specdec__bytes_equal_string(specdec__gguf_skip_record(gguf, &c, 1), name)) {
            c.offset = record;
            specdec__gguf_read_tensor(gguf, &c, out);
            return 1;
        }
    }
    return 0;
}

SPECDEC__FOR_SPEED
