/* =====================================================================================================================
 * >>text/json: JSON texts (RFC 8259) as flat arrays of nodes.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "unicode.h"

SPECDEC__FOR_SIZE

enum { SPECDEC__JSON_DEPTH = 128 }; /* most arrays and objects of a JSON text within each other */

/* Kinds of JSON values. */
enum {
    SPECDEC__JSON_NULL, SPECDEC__JSON_FALSE, SPECDEC__JSON_TRUE, SPECDEC__JSON_NUMBER, SPECDEC__JSON_STRING,
    SPECDEC__JSON_ARRAY, SPECDEC__JSON_OBJECT
};

/* A JSON value, or the name of a member. Nodes are in the order of the text: an array is followed by its items, an
   object by its members, each a name (a string) and a value. `next` is the index of the first node behind all these. */
typedef struct specdec__json_node {
    uint32_t from, to; /* byte offsets of the value's text, a string's quotes included */
    uint32_t next;     /* index of the first node behind this value and all values in it */
    uint32_t count;    /* items of an array; members of an object */
    uint8_t kind;      /* SPECDEC__JSON_NULL to _OBJECT */
    uint8_t escaped;   /* 1: a string with escapes, or a number with a fraction or an exponent */
} specdec__json_node;

/* A JSON text and its nodes; node 0 is the whole value. */
typedef struct specdec__json {
    const unsigned char *text; /* (size) bytes of the JSON text */
    size_t size;               /* bytes of text */
    specdec__json_node *nodes; /* (room) nodes in the order of the text; NULL: nodes are only counted */
    size_t room, count;        /* nodes that there is room for; nodes of the text, which may be more */
    const char *failed;        /* why the text is not JSON; NULL: it is */
    size_t error_at;           /* byte offset of the error */
} specdec__json;

/* Stores why a JSON text is invalid and the byte offset of the error, for the first error only. Returns 0. */
static int specdec__json_fail(specdec__json *j, size_t at, const char *why)
{
    j->failed = why;
    j->error_at = at;
    return 0;
}

/* Returns the number that the four hexadecimal digits at `at` spell; -1: they are not all there. */
static int32_t specdec__json_read_hex4(const unsigned char *at, const unsigned char *end)
{
    int32_t code = 0;
    int i;

    if (end - at < 4)
        return -1;
    for (i = 0; i < 4; i++) {
        const int c = at[i], letter = c | 32;

        if (c >= '0' && c <= '9')
            code = code * 16 + c - '0';
        else if (letter >= 'a' && letter <= 'f')
            code = code * 16 + letter - 'a' + 10;
        else
            return -1;
    }
    return code;
}

/* Writes a code point as UTF-8 to out. Returns the number of bytes, 1 to 4. */
static size_t specdec__json_encode_utf8(uint32_t code, unsigned char out[4])
{
    const size_t size = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    size_t i;

    for (i = size; --i > 0; code >>= 6)
        out[i] = (unsigned char)(0x80 | (code & 63));
    out[0] = (unsigned char)(size == 1 ? code : (0xf00u >> size & 0xffu) | code);
    return size;
}

/* Reads the next character between the quotes of a JSON string: its UTF-8 bytes go to out, and *at moves behind it.
   Returns their number; 0: a control character, invalid UTF-8, an invalid escape or half a surrogate pair. *at <
   end. */
static size_t specdec__json_read_character(const unsigned char **at, const unsigned char *end, unsigned char out[4])
{
    static const char names[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const unsigned char *c = *at;
    const char *known;
    int32_t code, low;
    int size;

    if (c[0] != '\\') {
        size = c[0] < 32 ? 0 : specdec__utf8_sequence_bytes(c, (size_t)(end - c));
        if (size <= 0)
            return 0;
        memcpy(out, c, (size_t)size);
        *at += size;
        return (size_t)size;
    }
    if (end - c < 2)
        return 0;
    known = (const char *)memchr(names, c[1], sizeof names - 1);
    if (known) {
        out[0] = (unsigned char)meant[known - names];
        *at += 2;
        return 1;
    }
    code = c[1] == 'u' ? specdec__json_read_hex4(c + 2, end) : -1;
    size = 6;
    if (code >= 0xd800 && code < 0xdc00) {
        low = end - c >= 12 && c[6] == '\\' && c[7] == 'u' ? specdec__json_read_hex4(c + 8, end) : -1;
        code = low >= 0xdc00 && low < 0xe000 ? 0x10000 + (code - 0xd800) * 1024 + low - 0xdc00 : -1;
        size = 12;
    } else if (code >= 0xdc00 && code < 0xe000) {
        code = -1;
    }
    if (code < 0)
        return 0;
    *at += size;
    return specdec__json_encode_utf8((uint32_t)code, out);
}

/* ---- Parsing. */

/* Returns the offset of the first byte from `at` on that is not white space. */
static size_t specdec__json_skip_space(const specdec__json *j, size_t at)
{
    while (at < j->size && (j->text[at] == ' ' || j->text[at] == '\t' || j->text[at] == '\r' || j->text[at] == '\n'))
        at++;
    return at;
}

/* Parses the JSON string at byte `at`, from its opening to its closing quote, into *node. Returns 0 when it is
   invalid. */
static int specdec__json_parse_string(specdec__json *j, size_t at, specdec__json_node *node)
{
    const unsigned char *c = j->text + at + 1, *const end = j->text + j->size;
    unsigned char bytes[4];

    node->kind = SPECDEC__JSON_STRING;
    while (c < end && *c != '"') {
        node->escaped |= *c == '\\';
        if (*c >= 32 && *c < 128 && *c != '\\')
            c++;
        else if (!specdec__json_read_character(&c, end, bytes))
            return specdec__json_fail(j, (size_t)(c - j->text), *c == '\\' ? "an escape that is not allowed"
                                                              : *c < 32    ? "a control character in a string"
                                                                           : "a string that is not UTF-8");
    }
    if (c == end)
        return specdec__json_fail(j, at, "a string without an end");
    node->to = (uint32_t)(c + 1 - j->text);
    return 1;
}

/* Returns the offset of the first byte from `at` on that is no digit. */
static size_t specdec__json_skip_digits(const specdec__json *j, size_t at)
{
    while (at < j->size && j->text[at] >= '0' && j->text[at] <= '9')
        at++;
    return at;
}

/* Parses the JSON number at byte `at`, -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?, into *node. Returns 0
   when it is invalid. */
static int specdec__json_parse_number(specdec__json *j, size_t at, specdec__json_node *node)
{
    const size_t from = at + (j->text[at] == '-');
    size_t end = specdec__json_skip_digits(j, from), digits;

    node->kind = SPECDEC__JSON_NUMBER;
    if (end == from || (end - from > 1 && j->text[from] == '0'))
        return specdec__json_fail(j, from, "a number that is not allowed");
    if (end < j->size && j->text[end] == '.') {
        node->escaped = 1;
        digits = end + 1;
        end = specdec__json_skip_digits(j, digits);
        if (end == digits)
            return specdec__json_fail(j, end, "a number without digits behind its point");
    }
    if (end < j->size && (j->text[end] | 32) == 'e') {
        node->escaped = 1;
        digits = end + 1;
        digits += digits < j->size && (j->text[digits] == '+' || j->text[digits] == '-');
        end = specdec__json_skip_digits(j, digits);
        if (end == digits)
            return specdec__json_fail(j, end, "a number without digits in its exponent");
    }
    node->to = (uint32_t)end;
    return 1;
}

/* Parses the JSON value at byte `at` into *node: a whole string, number or word, but only the opening bracket of an
   array or object. Returns 0 when it is invalid. */
static int specdec__json_parse_value(specdec__json *j, size_t at, specdec__json_node *node)
{
    static const char *const words[] = {"null", "false", "true"};
    const int c = at < j->size ? j->text[at] : 0;
    int i;

    memset(node, 0, sizeof *node);
    node->from = (uint32_t)at;
    node->to = (uint32_t)at + 1;
    if (c == '"')
        return specdec__json_parse_string(j, at, node);
    if (c == '-' || (c >= '0' && c <= '9'))
        return specdec__json_parse_number(j, at, node);
    if (c == '[' || c == '{') {
        node->kind = c == '[' ? SPECDEC__JSON_ARRAY : SPECDEC__JSON_OBJECT;
        return 1;
    }
    for (i = 0; i < 3; i++) {
        const size_t size = strlen(words[i]);

        if (j->size - at >= size && memcmp(j->text + at, words[i], size) == 0) {
            node->kind = (uint8_t)(SPECDEC__JSON_NULL + i);
            node->to = (uint32_t)(at + size);
            return 1;
        }
    }
    return specdec__json_fail(j, at, at < j->size ? "no value where one must be" : "it ends too early");
}

/* An array or object whose closing bracket has not been parsed yet. */
typedef struct specdec__json_open {
    uint32_t node, count; /* index of the array's or object's node; its items or members so far */
    int object;           /* 1: an object, 0: an array */
} specdec__json_open;

/* Counts a node of a JSON text, and stores it while there is room. */
static void specdec__json_store_node(specdec__json *j, const specdec__json_node *node)
{
    if (j->count < j->room) {
        j->nodes[j->count] = *node;
        j->nodes[j->count].next = (uint32_t)j->count + 1;
    }
    j->count++;
}

/* Closes the arrays and objects that end at byte `at`, and reads the comma behind them, or the end of the text. open[0]
   is the text itself, *depth the index of the innermost open one. Returns the offset behind what was read. */
static size_t specdec__json_close_brackets(specdec__json *j, size_t at, specdec__json_open *open, int *depth)
{
    for (;;) {
        const specdec__json_open *inner = &open[*depth];
        const int c = at < j->size ? j->text[at] : 0;

        if (!*depth) {
            if (at < j->size)
                specdec__json_fail(j, at, "something behind the value");
            return at;
        }
        if (c == ',' && inner->count)
            return at + 1;
        if (c != (inner->object ? '}' : ']')) {
            specdec__json_fail(j, at, at < j->size ? "no comma or bracket where one must be" : "it ends too early");
            return at;
        }
        if (inner->node < j->room) {
            j->nodes[inner->node].next = (uint32_t)j->count;
            j->nodes[inner->node].count = inner->count;
            j->nodes[inner->node].to = (uint32_t)at + 1;
        }
        --*depth;
        at = specdec__json_skip_space(j, at + 1);
    }
}

/* Parses the name of an object's member and the colon behind it. Returns the offset of the member's value. */
static size_t specdec__json_parse_name(specdec__json *j, size_t at)
{
    specdec__json_node name;

    at = specdec__json_skip_space(j, at);
    if (at >= j->size || j->text[at] != '"') {
        specdec__json_fail(j, at, at < j->size ? "no name where one must be" : "it ends too early");
        return at;
    }
    if (!specdec__json_parse_value(j, at, &name))
        return at;
    specdec__json_store_node(j, &name);
    at = specdec__json_skip_space(j, name.to);
    if (at >= j->size || j->text[at] != ':')
        specdec__json_fail(j, at, "no colon behind a name");
    return at + 1;
}

/* Parses a JSON text in linear time: stores as many nodes as there is room for, and counts all. Returns whether it is
   JSON; if not, j->failed and j->error_at say why and where. */
static SPECDEC__UNUSED int specdec__json_parse(specdec__json *j)
{
    specdec__json_open open[SPECDEC__JSON_DEPTH + 1];
    size_t at = 0;
    int depth = 0;

    j->count = 0;
    j->failed = NULL;
    j->room = j->nodes ? j->room : 0;
    if (j->size >= UINT32_MAX)
        return specdec__json_fail(j, 0, "it is too long");
    do {
        specdec__json_node node;

        if (depth) {
            open[depth].count++;
            if (open[depth].object)
                at = specdec__json_parse_name(j, at);
        }
        if (j->failed)
            return 0;
        at = specdec__json_skip_space(j, at);
        if (!specdec__json_parse_value(j, at, &node))
            return 0;
        specdec__json_store_node(j, &node);
        at = specdec__json_skip_space(j, node.to);
        if (node.kind < SPECDEC__JSON_ARRAY) {
            at = specdec__json_close_brackets(j, at, open, &depth);
            continue;
        }
        if (depth == SPECDEC__JSON_DEPTH)
            return specdec__json_fail(j, node.from, "too many brackets in each other");
        open[++depth].node = (uint32_t)j->count - 1;
        open[depth].count = 0;
        open[depth].object = node.kind == SPECDEC__JSON_OBJECT;
        if (at < j->size && j->text[at] == (open[depth].object ? '}' : ']'))
            at = specdec__json_close_brackets(j, at, open, &depth);
    } while (!j->failed && depth);
    if (!j->failed && at < j->size)
        specdec__json_fail(j, at, "something behind the value");
    return !j->failed;
}

/* ---- Reading values. */

/* Returns the bytes of a value as the JSON text spells it; a string's with its quotes and escapes. */
static SPECDEC__UNUSED specdec__bytes specdec__json_value_text(const specdec__json *j, size_t node)
{
    specdec__bytes out;

    out.data = j->text + j->nodes[node].from;
    out.size = j->nodes[node].to - j->nodes[node].from;
    return out;
}

/* Writes the value of a JSON string, escapes decoded, to out[room], as many of its bytes as fit, without a terminating
   zero. Returns the number of all its bytes. */
static SPECDEC__UNUSED size_t specdec__json_string_value(const specdec__json *j, size_t node, char *out, size_t room)
{
    const specdec__bytes raw = specdec__json_value_text(j, node);
    const unsigned char *at = raw.data + 1, *const end = raw.data + raw.size - 1;
    size_t size = 0, i;

    while (at < end) {
        unsigned char bytes[4];
        const size_t count = specdec__json_read_character(&at, end, bytes);

        if (!count)
            break;
        for (i = 0; i < count && size + i < room; i++)
            out[size + i] = (char)bytes[i];
        size += count;
    }
    return size;
}

/* Is a node a JSON string whose value is text[size]? */
static SPECDEC__UNUSED int specdec__json_string_equals(const specdec__json *j, size_t node, const char *text,
                                                       size_t size)
{
    const specdec__bytes raw = specdec__json_value_text(j, node);
    const unsigned char *at = raw.data + 1, *const end = raw.data + raw.size - 1;

    if (j->nodes[node].kind != SPECDEC__JSON_STRING)
        return 0;
    if (!j->nodes[node].escaped)
        return raw.size - 2 == size && (!size || memcmp(at, text, size) == 0);
    while (at < end) {
        unsigned char bytes[4];
        const size_t count = specdec__json_read_character(&at, end, bytes);

        if (!count || count > size || memcmp(bytes, text, count) != 0)
            return 0;
        text += count;
        size -= count;
    }
    return !size;
}

/* Returns the node of the value of an object's member, the last one where the name occurs twice, as in Python; 0: there
   is none, or the node `object` is no object. */
static SPECDEC__UNUSED size_t specdec__json_find_member(const specdec__json *j, size_t object, const char *name)
{
    const size_t size = strlen(name);
    size_t node = object + 1, found = 0;
    uint32_t i;

    if (j->nodes[object].kind != SPECDEC__JSON_OBJECT)
        return 0;
    for (i = 0; i < j->nodes[object].count; i++) {
        if (specdec__json_string_equals(j, node, name, size))
            found = node + 1;
        node = j->nodes[node + 1].next;
    }
    return found;
}

/* Reads a JSON number as *digits * 10^*exponent, where *digits is an integer without sign. Returns whether that is
   exact: only 19 digits fit, and the exponent stays within 9,999. */
static int specdec__json_read_decimal(specdec__bytes raw, uint64_t *digits, int *exponent)
{
    size_t i = raw.data[0] == '-';
    int point = 0, exact = 1, written = 0, sign = 1;

    *digits = 0;
    *exponent = 0;
    for (; i < raw.size && (raw.data[i] | 32) != 'e'; i++) {
        const unsigned digit = (unsigned)raw.data[i] - '0';

        if (raw.data[i] == '.') {
            point = 1;
        } else if (*digits <= (UINT64_MAX - digit) / 10) {
            *digits = *digits * 10 + digit;
            *exponent -= point;
        } else {
            exact &= !digit;
            *exponent += !point;
        }
    }
    if (i < raw.size) {
        i++;
        sign = raw.data[i] == '-' ? -1 : 1;
        for (i += raw.data[i] == '-' || raw.data[i] == '+'; i < raw.size; i++)
            written = written < 100000 ? written * 10 + (raw.data[i] - '0') : written;
        exact &= written < 10000;
        *exponent += sign * written;
    }
    return exact;
}

/* Reads the JSON number at a node whose value is an integer ("1e3" and "2.0", too) into *out. Returns 0 when it is
   none, or does not fit. */
static SPECDEC__UNUSED int specdec__json_read_integer(const specdec__json *j, size_t node, int64_t *out)
{
    const int negative = j->text[j->nodes[node].from] == '-';
    uint64_t digits;
    int exponent;

    if (j->nodes[node].kind != SPECDEC__JSON_NUMBER)
        return 0;
    if (!specdec__json_read_decimal(specdec__json_value_text(j, node), &digits, &exponent))
        return 0;
    for (; digits && exponent < 0 && digits % 10 == 0; exponent++)
        digits /= 10;
    for (; digits && exponent > 0 && digits <= UINT64_MAX / 10; exponent--)
        digits *= 10;
    if ((digits && exponent) || digits > (uint64_t)INT64_MAX + (uint64_t)negative)
        return 0;
    *out = !negative ? (int64_t)digits : digits ? -(int64_t)(digits - 1) - 1 : 0;
    return 1;
}

/* Reads the JSON number at a node as a double into *out. Returns whether the double is the nearest one: guaranteed for
   at most 15 digits and powers of ten up to 22 (W. Clinger, 1990); others may be off by a few units in the last
   place. */
static SPECDEC__UNUSED int specdec__json_read_double(const specdec__json *j, size_t node, double *out)
{
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    uint64_t digits;
    int exponent, exact;

    *out = 0;
    if (j->nodes[node].kind != SPECDEC__JSON_NUMBER)
        return 0;
    exact = specdec__json_read_decimal(specdec__json_value_text(j, node), &digits, &exponent);
    for (; digits && exponent < 0 && digits % 10 == 0; exponent++)
        digits /= 10;
    exponent = digits ? exponent : 0;
    exact &= digits <= 1ull << 53 && exponent >= -22 && exponent <= 22;
    *out = (double)digits;
    for (; exponent > 0 && *out <= 1e300; exponent -= exponent < 22 ? exponent : 22)
        *out *= powers[exponent < 22 ? exponent : 22];
    if (exponent > 0)
        *out *= exponent > 22 ? 1e300 : powers[exponent]; /* may become infinite */
    for (; exponent < 0 && *out > 0; exponent += exponent > -22 ? -exponent : 22)
        *out /= powers[exponent > -22 ? -exponent : 22];
    if (j->text[j->nodes[node].from] == '-')
        *out = -*out;
    return exact;
}

SPECDEC__FOR_SPEED
