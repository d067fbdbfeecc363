/* =====================================================================================================================
 * >>text/template: what a chat template computes with: values, strings that know which of their bytes come from
 *     messages, and how values are compared and written.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "json.h"
#include "unicode.h"

SPECDEC__FOR_SIZE

/* Jinja (Pallets, version 3.1, as transformers sets it up: trim_blocks, lstrip_blocks, loop controls, an immutable
   sandbox). A template is compiled into instructions, and these are run, in memory that the caller gives; every time,
   as that takes less time than reading a token. Nothing but the compiler recurses, to a fixed depth. */

enum {
    SPECDEC__TEMPLATE_UNDEFINED, SPECDEC__TEMPLATE_NONE, SPECDEC__TEMPLATE_BOOL, SPECDEC__TEMPLATE_INTEGER,
    SPECDEC__TEMPLATE_DOUBLE,
    SPECDEC__TEMPLATE_STRING,   /* (size) bytes */
    SPECDEC__TEMPLATE_LIST,     /* (size) values */
    SPECDEC__TEMPLATE_TUPLE,
    SPECDEC__TEMPLATE_VIEW,     /* of a dict: its keys, values or items */
    SPECDEC__TEMPLATE_ITERATOR, /* what filters give: values that are there once */
    SPECDEC__TEMPLATE_DICT,     /* (size) names, each with a value behind it */
    SPECDEC__TEMPLATE_SPACE,    /* a namespace: its bindings */
    SPECDEC__TEMPLATE_LOOP, SPECDEC__TEMPLATE_MACRO,
    SPECDEC__TEMPLATE_FUNCTION, /* a row of the table of functions */
    SPECDEC__TEMPLATE_METHOD,   /* (size) a row of the table of methods, of the value at `at` */
    SPECDEC__TEMPLATE_SLICE,    /* three values: from, to, step */
    SPECDEC__TEMPLATE_KEYWORD   /* the name of an argument, before its value */
};

enum {
    SPECDEC__TEMPLATE_STACK = 192,       /* values that are being computed with */
    SPECDEC__TEMPLATE_FRAMES = 96,       /* loops, macros and captured blocks in each other */
    SPECDEC__TEMPLATE_BLOCKS = 48,       /* blocks in each other in the text */
    SPECDEC__TEMPLATE_DEPTH = 24,        /* brackets in each other in the text */
    SPECDEC__TEMPLATE_NESTED = 48,       /* lists and dicts in each other that are written */
    SPECDEC__TEMPLATE_LONGEST = 1 << 20, /* bytes of a template */
    SPECDEC__TEMPLATE_STEPS = 4000000    /* instructions, and each 16 bytes that are compared or written */
};

#define SPECDEC__TEMPLATE_NO_CLOCK INT64_MIN /* templates that ask for the date are refused */

typedef struct specdec__template_value {
    uint8_t kind;
    uint8_t safe;  /* a string that the filter `safe` gave: what is added to it is escaped */
    uint16_t spare;
    uint32_t size;
    union {
        int64_t integer;
        double real;
        const void *at;
    } of;
} specdec__template_value;

/* A variable of a scope, or an attribute of a namespace. */
typedef struct specdec__template_binding {
    struct specdec__template_binding *next;
    specdec__template_value name, value;
} specdec__template_binding;

/* Where names are looked up: the scope of a loop's round, a macro or the template; then its parent's. */
typedef struct specdec__template_scope {
    struct specdec__template_scope *parent;
    specdec__template_binding *first;
} specdec__template_scope;

typedef struct specdec__template_loop {
    const specdec__template_value *items;
    size_t index, count;      /* the round, from 0; rounds */
    size_t depth;             /* 1, as there are no recursive loops */
    specdec__template_value *chosen; /* (choices) of a loop that only chooses */
    size_t choices;
    int ran;                  /* a round has come to its end: there is no `else` */
    int changes;              /* loop.changed was asked: */
    specdec__template_value last;
} specdec__template_loop;

/* One instruction: what, at which byte of the template, with what: a number, a jump's length, or the place of a
   constant in memory, counted in 8 bytes. */
typedef struct specdec__template_code {
    uint32_t op : 8, source : 24;
    int32_t argument;
} specdec__template_code;

/* A name of the text: every one is there once. */
typedef struct specdec__template_name {
    specdec__template_value value;
    struct specdec__template_name *next;
} specdec__template_name;

/* A macro as it is compiled: its parameters, and whether it names what else it is given. */
typedef struct specdec__template_macro {
    specdec__template_value name, parameters; /* a list of names */
    int caller, varargs, kwargs;
} specdec__template_macro;

/* A macro where it is defined. */
typedef struct specdec__template_closure {
    const specdec__template_macro *macro;
    specdec__template_scope *scope;
    size_t entry;
} specdec__template_closure;

/* A loop, macro, captured block or scope that is being run. */
typedef struct specdec__template_frame {
    int kind;             /* 'f', 'm', 'c', 's' */
    size_t back;          /* 'm': the instruction behind the call */
    size_t base, floor;   /* bytes of memory in use: when it began; behind what its variables need */
    size_t written;       /* 'm', 'c': bytes of output before it */
    size_t stack;         /* values on the stack before it */
    specdec__template_scope *outer; /* the scope to return to */
    specdec__template_loop *loop;
} specdec__template_frame;

/* A block of the text that is not at its end (see text/template_parse). */
typedef struct specdec__template_block {
    int kind;
    int32_t begin, middle;   /* instructions */
    int32_t ends, breaks;    /* the last of a chain of jumps, each naming the one before it; -1: none */
    size_t source;
    specdec__template_macro *macro;
    specdec__template_value name, attribute;
} specdec__template_block;

typedef struct specdec__template_token {
    int kind;       /* see text/template_parse */
    size_t from, to;
    specdec__template_value value;
} specdec__template_token;

/* A template, being compiled and run. */
typedef struct specdec__template {
    specdec__bytes text;
    unsigned char *memory, *marks; /* (size) and a bit for each of these bytes, 1: it comes from a message */
    size_t size, used, limit;      /* in use: those below `used`, and from `limit` on */
    size_t kept, start;            /* kept: below it nothing is given back; start: behind what is given */
    char *output;                  /* (room) */
    unsigned char *plain;          /* a bit for each byte of it, as marks; NULL: not noted */
    size_t room, written;
    size_t steps;
    int64_t now;                   /* seconds since 1970 of the local clock */

    const char *failed;            /* why it ended early */
    specdec__bytes culprit;        /* on what; or what the template says itself (raised) */
    size_t source;                 /* at which byte of the text */
    int line, column;              /* the same, once it has failed */
    int raised, full;              /* by raise_exception; as there was no room for output */

    specdec__template_code *code;
    size_t codes;
    size_t at;                     /* bytes of the text that are read */
    int tag, brackets, depth;      /* the tag that is read: '{', '%'; brackets that are open; expressions in it */
    int strip;                     /* what goes of the text behind it: 0 nothing, 1 a line's end, 2 all white space */
    specdec__template_token token;
    specdec__template_macro *macro; /* that is compiled */
    specdec__template_name *names[64];
    int blocks, frames, values;
    specdec__template_scope *scope;
    specdec__template_scope root;
    specdec__template_block block[SPECDEC__TEMPLATE_BLOCKS];
    specdec__template_frame frame[SPECDEC__TEMPLATE_FRAMES];
    specdec__template_value stack[SPECDEC__TEMPLATE_STACK];
} specdec__template;

/* Arguments of a call: those without a name, and pairs of a name and a value. */
typedef struct specdec__template_call {
    const specdec__template_value *value, *named;
    int count, names;
} specdec__template_call;

static specdec__bytes specdec__template_bytes(const void *at, size_t size)
{
    specdec__bytes out;

    out.data = (const unsigned char *)at;
    out.size = size;
    return out;
}

/* ---- Making values. */

static specdec__template_value specdec__template_number(int kind, int64_t number)
{
    specdec__template_value value;

    memset(&value, 0, sizeof value);
    value.kind = (uint8_t)kind;
    value.of.integer = number;
    return value;
}

static specdec__template_value specdec__template_undefined(void)
{
    return specdec__template_number(SPECDEC__TEMPLATE_UNDEFINED, 0);
}

static specdec__template_value specdec__template_none(void)
{
    return specdec__template_number(SPECDEC__TEMPLATE_NONE, 0);
}

static specdec__template_value specdec__template_bool(int truth)
{
    return specdec__template_number(SPECDEC__TEMPLATE_BOOL, truth != 0);
}

static specdec__template_value specdec__template_integer(int64_t number)
{
    return specdec__template_number(SPECDEC__TEMPLATE_INTEGER, number);
}

static specdec__template_value specdec__template_double(double number)
{
    specdec__template_value value = specdec__template_number(SPECDEC__TEMPLATE_DOUBLE, 0);

    value.of.real = number;
    return value;
}

static specdec__template_value specdec__template_of(int kind, const void *at, size_t size)
{
    specdec__template_value value = specdec__template_number(kind, 0);

    value.of.at = at;
    value.size = (uint32_t)size;
    return value;
}

static specdec__template_value specdec__template_string(const char *text)
{
    return specdec__template_of(SPECDEC__TEMPLATE_STRING, text, strlen(text));
}

static const char *specdec__template_text(const specdec__template_value *value)
{
    return (const char *)value->of.at;
}

static const specdec__template_value *specdec__template_items(const specdec__template_value *value)
{
    return (const specdec__template_value *)value->of.at;
}

/* ---- Ending early; memory. */

/* Ends the run. Returns an undefined value. */
static specdec__template_value specdec__template_fail(specdec__template *t, const char *why, specdec__bytes culprit)
{
    if (!t->failed) {
        t->failed = why;
        t->culprit = culprit;
    }
    return specdec__template_undefined();
}

static specdec__template_value specdec__template_refuse(specdec__template *t, const char *why)
{
    return specdec__template_fail(t, why, specdec__template_bytes(NULL, 0));
}

/* Counts a step that reads or writes so many bytes. */
static void specdec__template_step(specdec__template *t, size_t bytes)
{
    t->steps += bytes / 16 + 1;
    if (t->steps > SPECDEC__TEMPLATE_STEPS)
        specdec__template_refuse(t, "it takes too long");
}

/* Memory for values; NULL, and the run has ended, when there is none left. */
static void *specdec__template_take(specdec__template *t, size_t count, size_t size)
{
    const size_t at = (t->used + 7) & ~(size_t)7, bytes = specdec__size_multiply(count, size);

    if (at > t->limit || bytes > t->limit - at || bytes > UINT32_MAX) {
        specdec__template_refuse(t, "it needs too much memory");
        return NULL;
    }
    specdec__template_step(t, bytes);
    t->used = at + bytes;
    return t->memory + at;
}

/* The same for what stays as long as the template runs. */
static void *specdec__template_take_top(specdec__template *t, size_t size)
{
    size_t at = t->limit;

    size = specdec__size_add(size, 7) & ~(size_t)7;
    if (t->limit < t->used || t->limit - t->used < size) {
        specdec__template_refuse(t, "it needs too much memory");
        return NULL;
    }
    t->limit = at -= size;
    memset(t->marks + at / 8, 0, size / 8); /* at and size are multiples of 8 */
    return t->memory + at;
}

static int specdec__template_bit(const unsigned char *bits, size_t at) { return bits[at / 8] >> at % 8 & 1; }

static void specdec__template_set_bit(unsigned char *bits, size_t at, int value)
{
    bits[at / 8] = (unsigned char)((bits[at / 8] & ~(1u << at % 8)) | (value ? 1u << at % 8 : 0));
}

/* Where bytes lie in memory; SIZE_MAX: elsewhere, so that they are the template's. */
static size_t specdec__template_place(const specdec__template *t, const void *at)
{
    const uintptr_t place = (uintptr_t)at - (uintptr_t)t->memory;

    return place < t->size ? (size_t)place : SIZE_MAX;
}

/* Writes the marks of bytes that were copied from one place to bits. */
static void specdec__template_mark(const specdec__template *t, unsigned char *bits, size_t to, const void *from,
                                   size_t size)
{
    const size_t place = specdec__template_place(t, from);
    size_t i;

    for (i = 0; i < size; i++)
        specdec__template_set_bit(bits, to + i, place != SIZE_MAX && specdec__template_bit(t->marks, place + i));
}

/* ---- Building strings: bytes are put behind each other where memory begins that is not in use. Nothing else is taken
   meanwhile. */

static void specdec__template_put(specdec__template *t, const void *from, size_t size)
{
    specdec__template_step(t, size);
    if (t->failed || !size)
        return;
    if (t->used > t->limit || size > t->limit - t->used) {
        specdec__template_refuse(t, "it needs too much memory");
        return;
    }
    memmove(t->memory + t->used, from, size);
    specdec__template_mark(t, t->marks, t->used, from, size);
    t->used += size;
}

static void specdec__template_put_text(specdec__template *t, const char *text)
{
    specdec__template_put(t, text, strlen(text));
}

/* Bytes that come from a message (marked), or from the template. */
static void specdec__template_put_marked(specdec__template *t, const void *from, size_t size, int marked)
{
    const size_t at = t->used;
    size_t i;

    specdec__template_put(t, from, size);
    for (i = at; i < t->used; i++)
        specdec__template_set_bit(t->marks, i, marked);
}

/* The string that was put since memory in use ended at a byte. */
static specdec__template_value specdec__template_built(const specdec__template *t, size_t from)
{
    return specdec__template_of(SPECDEC__TEMPLATE_STRING, t->memory + from, t->failed ? 0 : t->used - from);
}

/* Does the string a end where memory in use ends, so that it can be extended there? */
static int specdec__template_last(const specdec__template *t, const specdec__template_value *a)
{
    const size_t place = specdec__template_place(t, a->of.at);

    return place != SIZE_MAX && place + a->size == t->used && place >= t->kept;
}

/* Two strings, one behind the other. */
static specdec__template_value specdec__template_join(specdec__template *t, const specdec__template_value *a,
                                                      const specdec__template_value *b)
{
    const int behind = specdec__template_last(t, a);
    const size_t from = behind ? specdec__template_place(t, a->of.at) : t->used;

    if (!behind)
        specdec__template_put(t, a->of.at, a->size);
    specdec__template_put(t, b->of.at, b->size);
    return specdec__template_built(t, from);
}

/* ---- Characters. */

/* Bytes of the character at a place of a string, whatever its bytes are: 1..4. at < size. */
static size_t specdec__template_character(const char *text, size_t size, size_t at)
{
    const int found = specdec__text_sequence((const unsigned char *)text + at, size - at);

    return found > 0 ? (size_t)found : 1;
}

/* How many characters a string has. */
static size_t specdec__template_length(const specdec__template_value *string)
{
    const char *text = specdec__template_text(string);
    size_t at = 0, count = 0;

    for (; at < string->size; count++)
        at += (unsigned char)text[at] < 128 ? 1 : specdec__template_character(text, string->size, at);
    return count;
}

/* Where a string's character of this number begins; its size: there are not so many. */
static size_t specdec__template_offset(const specdec__template_value *string, size_t number)
{
    const char *text = specdec__template_text(string);
    size_t at = 0;

    while (at < string->size && number--)
        at += specdec__template_character(text, string->size, at);
    return at;
}

static specdec__template_value specdec__template_part(const specdec__template_value *string, size_t from, size_t to)
{
    specdec__template_value out = *string;

    out.of.at = specdec__template_text(string) + from;
    out.size = (uint32_t)(to - from);
    return out;
}

static uint32_t specdec__template_code_at(const char *text, size_t size, size_t at)
{
    return specdec__text_character_at((const unsigned char *)text, size, at).code;
}

/* White space as Python's str.strip has it. */
static int specdec__template_is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/* Where a string has another one, at or behind a place; its size + 1: nowhere. */
static size_t specdec__template_search(const specdec__template_value *in, size_t from,
                                       const specdec__template_value *what)
{
    const char *text = specdec__template_text(in);

    for (; what->size <= in->size && from <= in->size - what->size; from++) {
        if (!what->size)
            return from;
        if (text[from] == *specdec__template_text(what) && memcmp(text + from, what->of.at, what->size) == 0)
            return from;
    }
    return (size_t)in->size + 1;
}

static int specdec__template_is(const specdec__template_value *value, const char *text)
{
    return value->kind == SPECDEC__TEMPLATE_STRING && value->size == strlen(text) &&
           memcmp(value->of.at, text, value->size) == 0;
}

/* ---- Comparing. */

/* Lists, tuples and what filters give: their values are at value->of.at. */
static int specdec__template_listed(const specdec__template_value *value)
{
    return value->kind >= SPECDEC__TEMPLATE_LIST && value->kind <= SPECDEC__TEMPLATE_ITERATOR;
}

static int specdec__template_numeric(const specdec__template_value *value)
{
    return value->kind >= SPECDEC__TEMPLATE_BOOL && value->kind <= SPECDEC__TEMPLATE_DOUBLE;
}

static double specdec__template_real(const specdec__template_value *value)
{
    return value->kind == SPECDEC__TEMPLATE_DOUBLE ? value->of.real : (double)value->of.integer;
}

static int specdec__template_truth(const specdec__template_value *value)
{
    switch (value->kind) {
    case SPECDEC__TEMPLATE_UNDEFINED: case SPECDEC__TEMPLATE_NONE: return 0;
    case SPECDEC__TEMPLATE_BOOL: case SPECDEC__TEMPLATE_INTEGER: return value->of.integer != 0;
    case SPECDEC__TEMPLATE_DOUBLE: return value->of.real != 0;
    case SPECDEC__TEMPLATE_STRING: case SPECDEC__TEMPLATE_LIST: case SPECDEC__TEMPLATE_TUPLE:
    case SPECDEC__TEMPLATE_VIEW: case SPECDEC__TEMPLATE_DICT: return value->size > 0;
    default: return 1;
    }
}

static const specdec__template_value *specdec__template_member(specdec__template *t,
                                                               const specdec__template_value *dict,
                                                               const specdec__template_value *name);

static int specdec__template_equal(specdec__template *t, const specdec__template_value *a,
                                   const specdec__template_value *b, int depth);

/* Has a dict the same members as another one? */
static int specdec__template_equal_dicts(specdec__template *t, const specdec__template_value *a,
                                         const specdec__template_value *b, int depth)
{
    size_t i;

    for (i = 0; i < a->size && !t->failed; i++) {
        const specdec__template_value *own = specdec__template_items(a) + 2 * i;
        const specdec__template_value *other = specdec__template_member(t, b, own);

        if (!other || !specdec__template_equal(t, own + 1, other, depth - 1))
            return 0;
    }
    return 1;
}

/* Are two values equal, as Python's == has it? depth: how deep they may be. */
static int specdec__template_equal(specdec__template *t, const specdec__template_value *a,
                                   const specdec__template_value *b, int depth)
{
    size_t i;

    specdec__template_step(t, 0);
    if (specdec__template_numeric(a) && specdec__template_numeric(b))
        return a->kind == SPECDEC__TEMPLATE_DOUBLE || b->kind == SPECDEC__TEMPLATE_DOUBLE
                   ? !(specdec__template_real(a) < specdec__template_real(b)) &&
                         !(specdec__template_real(a) > specdec__template_real(b))
                   : a->of.integer == b->of.integer;
    if (a->kind != b->kind)
        return 0;
    if (a->kind <= SPECDEC__TEMPLATE_NONE)
        return 1;
    if (a->kind == SPECDEC__TEMPLATE_STRING || a->kind == SPECDEC__TEMPLATE_LIST ||
        a->kind == SPECDEC__TEMPLATE_TUPLE || a->kind == SPECDEC__TEMPLATE_DICT) {
        if (a->size != b->size)
            return 0;
    } else {
        return a->of.at == b->of.at;
    }
    if (!a->size || a->of.at == b->of.at)
        return 1;
    if (a->kind == SPECDEC__TEMPLATE_STRING) {
        specdec__template_step(t, a->size);
        return memcmp(a->of.at, b->of.at, a->size) == 0;
    }
    if (!depth) {
        specdec__template_refuse(t, "it compares what is too deep");
        return 0;
    }
    if (a->kind == SPECDEC__TEMPLATE_DICT)
        return specdec__template_equal_dicts(t, a, b, depth);
    for (i = 0; i < a->size && !t->failed; i++)
        if (!specdec__template_equal(t, specdec__template_items(a) + i, specdec__template_items(b) + i, depth - 1))
            return 0;
    return 1;
}

enum { SPECDEC__TEMPLATE_COMPARED = 12 }; /* lists in each other that can be compared */

/* The value that a dict has for a name; NULL: none. */
static const specdec__template_value *specdec__template_member(specdec__template *t,
                                                               const specdec__template_value *dict,
                                                               const specdec__template_value *name)
{
    size_t i;

    for (i = dict->size; i-- > 0;) {
        const specdec__template_value *own = specdec__template_items(dict) + 2 * i;

        if (own->kind == SPECDEC__TEMPLATE_STRING && name->kind == SPECDEC__TEMPLATE_STRING) {
            if (own->size == name->size && (!own->size || memcmp(own->of.at, name->of.at, own->size) == 0))
                return own + 1;
        } else if (specdec__template_equal(t, own, name, 4)) {
            return own + 1;
        }
    }
    specdec__template_step(t, 16 * (size_t)dict->size);
    return NULL;
}

/* -1, 0, 1: the order of two values; the run has ended where they have none. */
static int specdec__template_order(specdec__template *t, const specdec__template_value *a,
                                   const specdec__template_value *b, int depth)
{
    const size_t common = a->size < b->size ? a->size : b->size;
    size_t i;
    int order = 0;

    specdec__template_step(t, a->kind == SPECDEC__TEMPLATE_STRING ? common : 0);
    if (specdec__template_numeric(a) && specdec__template_numeric(b)) {
        const double x = specdec__template_real(a), y = specdec__template_real(b);

        if (a->kind != SPECDEC__TEMPLATE_DOUBLE && b->kind != SPECDEC__TEMPLATE_DOUBLE)
            return a->of.integer < b->of.integer ? -1 : a->of.integer > b->of.integer;
        return x < y ? -1 : x > y;
    }
    if (a->kind == SPECDEC__TEMPLATE_STRING && b->kind == SPECDEC__TEMPLATE_STRING) {
        order = common ? memcmp(a->of.at, b->of.at, common) : 0;
        return order ? (order < 0 ? -1 : 1) : a->size < b->size ? -1 : a->size > b->size;
    }
    if (a->kind != b->kind || (a->kind != SPECDEC__TEMPLATE_LIST && a->kind != SPECDEC__TEMPLATE_TUPLE) || !depth) {
        specdec__template_refuse(t, "it compares values that have no order");
        return 0;
    }
    for (i = 0; i < common && !order && !t->failed; i++)
        order = specdec__template_order(t, specdec__template_items(a) + i, specdec__template_items(b) + i, depth - 1);
    return order ? order : a->size < b->size ? -1 : a->size > b->size;
}

SPECDEC__FOR_SPEED
