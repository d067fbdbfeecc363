/* =====================================================================================================================
 * >>text/template: the values of chat templates, and strings whose bytes are marked where they come from messages.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "json.h"
#include "unicode.h"

SPECDEC__FOR_SIZE

/* Jinja (Pallets, version 3.1) as Hugging Face's transformers configures it: trim_blocks, lstrip_blocks, loop controls,
   immutable sandbox. A template is compiled into instructions, which are then run, in memory of the caller; both each
   time, as they take less time than decoding a token. Only the compiler recurses, to a fixed depth. */

/* Kinds of a template's values. */
enum {
    SPECDEC__TEMPLATE_UNDEFINED, SPECDEC__TEMPLATE_NONE, SPECDEC__TEMPLATE_BOOL, SPECDEC__TEMPLATE_INTEGER,
    SPECDEC__TEMPLATE_DOUBLE,
    SPECDEC__TEMPLATE_STRING,   /* (size) bytes */
    SPECDEC__TEMPLATE_LIST,     /* (size) values */
    SPECDEC__TEMPLATE_TUPLE,
    SPECDEC__TEMPLATE_VIEW,     /* keys, values or items of a dict */
    SPECDEC__TEMPLATE_ITERATOR, /* result of a filter: values over which a loop can run once */
    SPECDEC__TEMPLATE_DICT,     /* (size) names, each followed by a value */
    SPECDEC__TEMPLATE_NAMESPACE,    /* a namespace; its attributes are bindings */
    SPECDEC__TEMPLATE_LOOP, SPECDEC__TEMPLATE_MACRO,
    SPECDEC__TEMPLATE_FUNCTION, /* row of the table of functions */
    SPECDEC__TEMPLATE_METHOD,   /* (size) row of the table of methods; `at`: the value that it belongs to */
    SPECDEC__TEMPLATE_SLICE,    /* three values: from, to, step */
    SPECDEC__TEMPLATE_KEYWORD   /* the name of an argument, in front of its value */
};

/* Limits of a chat template. */
enum {
    SPECDEC__TEMPLATE_MAX_VALUES = 192,       /* values on the stack of operands */
    SPECDEC__TEMPLATE_MAX_FRAMES = 96,       /* loops, macros and captured blocks within each other, at run time */
    SPECDEC__TEMPLATE_MAX_BLOCKS = 48,       /* blocks within each other in the text */
    SPECDEC__TEMPLATE_MAX_BRACKETS = 24,        /* brackets within each other in the text */
    SPECDEC__TEMPLATE_MAX_NESTED = 48,       /* lists and dicts within each other that are written */
    SPECDEC__TEMPLATE_MAX_BYTES = 1 << 20, /* bytes of a template */
    SPECDEC__TEMPLATE_MAX_WORK = 4000000    /* work: instructions, and each 16 bytes that are compared or written */
};

#define SPECDEC__TEMPLATE_NO_CLOCK INT64_MIN /* no clock: templates that use the date are refused */

/* A value of a template: a number, string, list, dict, function, or another kind of SPECDEC__TEMPLATE_... */
typedef struct specdec__template_value {
    uint8_t kind;   /* SPECDEC__TEMPLATE_UNDEFINED to _KEYWORD */
    uint8_t safe;   /* 1: a string from the filter `safe`: text appended to it is escaped */
    uint16_t spare; /* unused */
    uint32_t size;  /* bytes of a string; items of a list; members of a dict; see the kinds */
    union {
        int64_t integer;  /* of an integer or bool */
        double real;      /* of a double */
        const void *data; /* of other kinds: bytes, values, or the object itself */
    } as;                 /* the value as its kind stores it */
} specdec__template_value;

/* A variable of a scope, or an attribute of a namespace: a list of names and values. */
typedef struct specdec__template_binding {
    struct specdec__template_binding *next; /* the next one of the same scope or namespace; NULL: none */
    specdec__template_value name, value;    /* a string; the value of the variable or attribute */
} specdec__template_binding;

/* A scope: variables of a loop's iteration, of a macro or of the template. Names are looked up in it, then in its
   parents. */
typedef struct specdec__template_scope {
    struct specdec__template_scope *parent;   /* the scope around this one; NULL: none */
    specdec__template_binding *first_binding; /* list of the scope's variables; NULL: none */
} specdec__template_scope;

/* A loop over a list, with the variables of Jinja's `loop`. */
typedef struct specdec__template_loop {
    const specdec__template_value *items; /* (count) items of the list */
    size_t index, count;                  /* number of the iteration, from 0; number of iterations */
    size_t depth;                         /* always 1, as recursive loops are not supported */
    specdec__template_value *kept_items;  /* (kept_count) items that met the condition, in a loop that only filters */
    size_t kept_count;                    /* items that met the condition so far */
    int completed;                        /* 1: an iteration was completed, so the loop's `else` is skipped */
    int changed_called;                   /* 1: loop.changed was called */
    specdec__template_value last_changed; /* the arguments of the last call of loop.changed */
} specdec__template_loop;

/* An instruction of a compiled template. op: SPECDEC__TEMPLATE_TEXT to _HALT; source: byte offset in the template's
   text (for errors); argument: a number, the length of a jump, or the place of a constant in memory, in units of 8
   bytes. */
typedef struct specdec__template_instruction {
    uint32_t op : 8, source : 24; /* operation; byte offset in the template's text */
    int32_t argument;             /* number, length of a jump, or place of a constant */
} specdec__template_instruction;

/* A name in the template's text; equal names are stored once (interned). */
typedef struct specdec__template_name {
    specdec__template_value value;       /* the name as a string */
    struct specdec__template_name *next; /* the next name of the same entry of the hash table; NULL: none */
} specdec__template_name;

/* A compiled macro: its parameters, and whether its body uses caller, varargs or kwargs. */
typedef struct specdec__template_macro {
    specdec__template_value name, parameters; /* parameters: a list of names */
    int caller, varargs, kwargs;              /* 1: the macro's body uses the name caller, varargs, kwargs */
} specdec__template_macro;

/* A macro as a value: its code, and the scope in which it was defined. */
typedef struct specdec__template_closure {
    const specdec__template_macro *macro; /* the compiled macro */
    specdec__template_scope *scope;       /* the scope in which it was defined */
    size_t entry;                         /* index of the macro's first instruction */
} specdec__template_closure;

/* A frame at run time: a loop, a macro, a captured block or a scope. */
typedef struct specdec__template_frame {
    int kind;                             /* 'f': loop, 'm': macro, 'c': captured block, 's': scope */
    size_t return_instruction;            /* of a macro: index of the instruction to return to */
    size_t memory_base;                   /* bytes of memory in use when the frame began */
    size_t memory_floor;                  /* bytes of memory in use with the frame's variables */
    size_t output_base;                   /* of a macro or captured block: bytes of output when the frame began */
    size_t stack_base;                    /* values on the stack when the frame began */
    specdec__template_scope *outer_scope; /* scope to return to */
    specdec__template_loop *loop;         /* of a loop: its list and iteration; else NULL */
} specdec__template_frame;

/* A block of the template's text that is being compiled, until its end tag (see text/template_parse). */
typedef struct specdec__template_block {
    int kind;                       /* the letter of its statement, such as 'i': if, 'f': for */
    int32_t begin, middle;          /* indices of its first instruction, and of one within, such as that of `else` */
    int32_t end_jumps, break_jumps; /* last jumps to its end, from `break`: each names the one before; -1: none */
    size_t source;                  /* byte offset of the statement in the template's text */
    specdec__template_macro *macro; /* the macro around the block; NULL: none */
    specdec__template_value name, attribute; /* name of the macro or variable; attribute of a namespace that is set */
} specdec__template_block;

/* A token of Jinja within a tag {{ }} or {% %}. */
typedef struct specdec__template_token {
    int kind;                      /* SPECDEC__TEMPLATE_TAG_END to _QUOTED, or an operator's characters */
    size_t from, to;               /* byte offsets of its beginning and end in the template's text */
    specdec__template_value value; /* of a name or literal */
} specdec__template_token;

/* A chat template that is being compiled and run. Its memory is taken from both ends: values from the front,
   instructions and names from the back. */
typedef struct specdec__template {
    specdec__bytes text;              /* the template's text */
    unsigned char *memory;            /* (size) values from the front, instructions and names from the back */
    unsigned char *marks;             /* a bit for each byte of memory, 1: the byte comes from a message */
    size_t size, used, limit;         /* bytes of memory: all; bytes below `used` and from `limit` on are in use */
    size_t kept_bytes, input_end;     /* bytes of memory kept after each statement; bytes that hold the input values */
    char *output;                     /* (output_room) the text that the template writes */
    unsigned char *output_marks;      /* a bit for each byte of output, as in marks; NULL: not recorded */
    size_t output_room, output_bytes; /* bytes that output has room for; bytes written so far */
    size_t work;                      /* work so far, at most SPECDEC__TEMPLATE_MAX_WORK */
    int64_t local_time;               /* local time in seconds since 1970; SPECDEC__TEMPLATE_NO_CLOCK: none */
    /* the error that stopped compiling or running: */
    const char *failed;      /* text of the error; NULL: none */
    specdec__bytes culprit;  /* the part of the template that caused the error, or the text that the template raised */
    size_t source;           /* byte offset of the failed instruction or tag in the template's text */
    int line, column;        /* of the error in the template's text, from 1 */
    int raised, output_full; /* 1: the template called raise_exception; 1: output has no room left */
    /* compiling and running: */
    specdec__template_instruction *code; /* (code_count) the instructions of the compiled template */
    size_t code_count;             /* number of instructions */
    size_t parsed;                 /* bytes of the template's text that were parsed */
    int tag, brackets, depth;      /* kind of the current tag: '{' or '%'; open brackets; nesting of expressions */
    int strip_behind;              /* white space to drop behind the tag: 0: none, 1: a line end, 2: all */
    specdec__template_token token; /* the current token of the tag */
    specdec__template_macro *macro;    /* the macro that is being compiled */
    specdec__template_name *names[64]; /* hash table of interned names */
    int open_blocks, frame_count, value_count; /* numbers of items in block, frame and stack */
    specdec__template_scope *scope;            /* the innermost scope */
    specdec__template_scope root;              /* the scope of the whole template */
    specdec__template_block block[SPECDEC__TEMPLATE_MAX_BLOCKS]; /* (open_blocks) blocks that have no end tag yet */
    specdec__template_frame frame[SPECDEC__TEMPLATE_MAX_FRAMES]; /* (frame_count) frames, the innermost one last */
    specdec__template_value stack[SPECDEC__TEMPLATE_MAX_VALUES]; /* (value_count) operands of instructions */
} specdec__template;

/* Arguments of a call in a template: positional ones, and named ones. */
typedef struct specdec__template_call {
    const specdec__template_value *positional, *named; /* values; named: each behind its name */
    int positional_count, named_count;                 /* numbers of positional and of named arguments */
} specdec__template_call;

/* Returns `size` bytes at a pointer as specdec__bytes. */
static specdec__bytes specdec__template_as_bytes(const void *at, size_t size)
{
    specdec__bytes out;

    out.data = (const unsigned char *)at;
    out.size = size;
    return out;
}

/* ---- Making values. */

/* Returns a template's value of a kind that holds an integer. */
static specdec__template_value specdec__template_number_value(int kind, int64_t number)
{
    specdec__template_value value;

    memset(&value, 0, sizeof value);
    value.kind = (uint8_t)kind;
    value.as.integer = number;
    return value;
}

/* Returns Jinja's undefined as a template's value. */
static specdec__template_value specdec__template_undefined_value(void)
{
    return specdec__template_number_value(SPECDEC__TEMPLATE_UNDEFINED, 0);
}

/* Returns Jinja's none as a template's value. */
static specdec__template_value specdec__template_none_value(void)
{
    return specdec__template_number_value(SPECDEC__TEMPLATE_NONE, 0);
}

/* Returns true (truth not 0) or false as a template's value. */
static specdec__template_value specdec__template_bool_value(int truth)
{
    return specdec__template_number_value(SPECDEC__TEMPLATE_BOOL, truth != 0);
}

/* Returns an integer as a template's value. */
static specdec__template_value specdec__template_integer_value(int64_t number)
{
    return specdec__template_number_value(SPECDEC__TEMPLATE_INTEGER, number);
}

/* Returns a double as a template's value. */
static specdec__template_value specdec__template_double_value(double number)
{
    specdec__template_value value = specdec__template_number_value(SPECDEC__TEMPLATE_DOUBLE, 0);

    value.as.real = number;
    return value;
}

/* Returns a template's value of a kind that points to `size` bytes or values, such as a string or list. */
static specdec__template_value specdec__template_sized_value(int kind, const void *at, size_t size)
{
    specdec__template_value value = specdec__template_number_value(kind, 0);

    value.as.data = at;
    value.size = (uint32_t)size;
    return value;
}

/* Returns a terminated string as a template's value. */
static specdec__template_value specdec__template_string_value(const char *text)
{
    return specdec__template_sized_value(SPECDEC__TEMPLATE_STRING, text, strlen(text));
}

/* Returns the bytes of a string value. */
static const char *specdec__template_string_bytes(const specdec__template_value *value)
{
    return (const char *)value->as.data;
}

/* Returns the items of a list or tuple, or the members of a dict, as an array of values. */
static const specdec__template_value *specdec__template_list_items(const specdec__template_value *value)
{
    return (const specdec__template_value *)value->as.data;
}

/* ---- Errors; memory. */

/* Stores a template's error, unless an earlier one is stored; then the template stops. culprit: text for the message.
   Returns an undefined value. */
static specdec__template_value specdec__template_fail_with_culprit(specdec__template *t, const char *why,
                                                                   specdec__bytes culprit)
{
    if (!t->failed) {
        t->failed = why;
        t->culprit = culprit;
    }
    return specdec__template_undefined_value();
}

/* Stores a template's error without further text. Returns an undefined value. */
static specdec__template_value specdec__template_fail(specdec__template *t, const char *why)
{
    return specdec__template_fail_with_culprit(t, why, specdec__template_as_bytes(NULL, 0));
}

/* Counts an instruction that reads or writes `bytes` bytes as work of the template; too much work is an error. */
static void specdec__template_count_work(specdec__template *t, size_t bytes)
{
    t->work += bytes / 16 + 1;
    if (t->work > SPECDEC__TEMPLATE_MAX_WORK)
        specdec__template_fail(t, "it takes too long");
}

/* Takes memory for `count` items of `size` bytes from the front of the template's memory; NULL, and an error is stored,
   when there is not enough. */
static void *specdec__template_take_memory(specdec__template *t, size_t count, size_t size)
{
    const size_t at = (t->used + 7) & ~(size_t)7, bytes = specdec__size_multiply(count, size);

    if (at > t->limit || bytes > t->limit - at || bytes > UINT32_MAX) {
        specdec__template_fail(t, "it needs too much memory");
        return NULL;
    }
    specdec__template_count_work(t, bytes);
    t->used = at + bytes;
    return t->memory + at;
}

/* Takes `size` bytes from the back of the template's memory, for instructions and names that stay until the template
   ends; NULL, and an error is stored, when there is not enough. */
static void *specdec__template_take_permanent_memory(specdec__template *t, size_t size)
{
    size_t at = t->limit;

    size = specdec__size_add(size, 7) & ~(size_t)7;
    if (t->limit < t->used || t->limit - t->used < size) {
        specdec__template_fail(t, "it needs too much memory");
        return NULL;
    }
    t->limit = at -= size;
    memset(t->marks + at / 8, 0, size / 8); /* at and size are multiples of 8 */
    return t->memory + at;
}

/* Returns bit `at` of an array of bits. */
static int specdec__template_get_bit(const unsigned char *bits, size_t at) { return bits[at / 8] >> at % 8 & 1; }

/* Sets or clears bit `at` of an array of bits. */
static void specdec__template_set_bit(unsigned char *bits, size_t at, int value)
{
    bits[at / 8] = (unsigned char)((bits[at / 8] & ~(1u << at % 8)) | (value ? 1u << at % 8 : 0));
}

/* Returns the offset of a pointer in t->memory; SIZE_MAX: it points elsewhere, to text of the template. */
static size_t specdec__template_memory_offset(const specdec__template *t, const void *at)
{
    const uintptr_t place = (uintptr_t)at - (uintptr_t)t->memory;

    return place < t->size ? (size_t)place : SIZE_MAX;
}

/* Copies the marks of `size` bytes at `from` to bits, from bit `to` on. */
static void specdec__template_copy_marks(const specdec__template *t, unsigned char *bits, size_t to, const void *from,
                                         size_t size)
{
    const size_t place = specdec__template_memory_offset(t, from);
    size_t i;

    for (i = 0; i < size; i++)
        specdec__template_set_bit(bits, to + i, place != SIZE_MAX && specdec__template_get_bit(t->marks, place + i));
}

/* ---- Building strings: bytes are appended at the end of the memory in use; no other memory is taken until the string
   is complete. */

/* Appends bytes with their marks (which of them come from messages) to the string that is being built. */
static void specdec__template_append_bytes(specdec__template *t, const void *from, size_t size)
{
    specdec__template_count_work(t, size);
    if (t->failed || !size)
        return;
    if (t->used > t->limit || size > t->limit - t->used) {
        specdec__template_fail(t, "it needs too much memory");
        return;
    }
    memmove(t->memory + t->used, from, size);
    specdec__template_copy_marks(t, t->marks, t->used, from, size);
    t->used += size;
}

/* Appends a terminated string to the string that is being built; its bytes are not marked. */
static void specdec__template_append_text(specdec__template *t, const char *text)
{
    specdec__template_append_bytes(t, text, strlen(text));
}

/* Appends bytes to the string that is being built; marked = 1: they come from a message, 0: from the template. */
static void specdec__template_append_marked(specdec__template *t, const void *from, size_t size, int marked)
{
    const size_t at = t->used;
    size_t i;

    specdec__template_append_bytes(t, from, size);
    for (i = at; i < t->used; i++)
        specdec__template_set_bit(t->marks, i, marked);
}

/* Returns the string that was built, as a value. from: bytes of memory in use before it. */
static specdec__template_value specdec__template_finish_string(const specdec__template *t, size_t from)
{
    return specdec__template_sized_value(SPECDEC__TEMPLATE_STRING, t->memory + from, t->failed ? 0 : t->used - from);
}

/* Does string a end where the memory in use ends, so that it can be extended in place? */
static int specdec__template_is_last_string(const specdec__template *t, const specdec__template_value *a)
{
    const size_t place = specdec__template_memory_offset(t, a->as.data);

    return place != SIZE_MAX && place + a->size == t->used && place >= t->kept_bytes;
}

/* Returns the concatenation of two strings as a value. */
static specdec__template_value specdec__template_concatenate_strings(specdec__template *t,
                                                                     const specdec__template_value *a,
                                                                     const specdec__template_value *b)
{
    const int behind = specdec__template_is_last_string(t, a);
    const size_t from = behind ? specdec__template_memory_offset(t, a->as.data) : t->used;

    if (!behind)
        specdec__template_append_bytes(t, a->as.data, a->size);
    specdec__template_append_bytes(t, b->as.data, b->size);
    return specdec__template_finish_string(t, from);
}

/* ---- Characters. */

/* Returns the number of bytes of the character at byte offset `at` of a text, 1 to 4, also in invalid UTF-8. at <
   size. */
static size_t specdec__template_character_bytes(const char *text, size_t size, size_t at)
{
    const int found = specdec__utf8_sequence_bytes((const unsigned char *)text + at, size - at);

    return found > 0 ? (size_t)found : 1;
}

/* Returns the number of characters of a string. */
static size_t specdec__template_count_characters(const specdec__template_value *string)
{
    const char *text = specdec__template_string_bytes(string);
    size_t at = 0, count = 0;

    for (; at < string->size; count++)
        at += (unsigned char)text[at] < 128 ? 1 : specdec__template_character_bytes(text, string->size, at);
    return count;
}

/* Returns the byte offset of character `number` of a string; the string's size, if it is shorter. */
static size_t specdec__template_character_offset(const specdec__template_value *string, size_t number)
{
    const char *text = specdec__template_string_bytes(string);
    size_t at = 0;

    while (at < string->size && number--)
        at += specdec__template_character_bytes(text, string->size, at);
    return at;
}

/* Returns the bytes [from, to) of a string as a value. */
static specdec__template_value specdec__template_substring(const specdec__template_value *string, size_t from,
                                                           size_t to)
{
    specdec__template_value out = *string;

    out.as.data = specdec__template_string_bytes(string) + from;
    out.size = (uint32_t)(to - from);
    return out;
}

/* Returns the code point of the character at byte offset `at` of a text. */
static uint32_t specdec__template_code_point(const char *text, size_t size, size_t at)
{
    return specdec__text_character_at((const unsigned char *)text, size, at).code;
}

/* Is a code point white space for Python's str.strip? */
static int specdec__template_is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/* Returns the byte offset of the first occurrence of string `what` in string `in`, from `from` on; in->size + 1:
   none. */
static size_t specdec__template_find_string(const specdec__template_value *in, size_t from,
                                            const specdec__template_value *what)
{
    const char *text = specdec__template_string_bytes(in);

    for (; what->size <= in->size && from <= in->size - what->size; from++) {
        if (!what->size)
            return from;
        if (text[from] == *specdec__template_string_bytes(what) && memcmp(text + from, what->as.data, what->size) == 0)
            return from;
    }
    return (size_t)in->size + 1;
}

/* Is a value a string equal to this text? */
static int specdec__template_string_equals(const specdec__template_value *value, const char *text)
{
    return value->kind == SPECDEC__TEMPLATE_STRING && value->size == strlen(text) &&
           memcmp(value->as.data, text, value->size) == 0;
}

/* ---- Comparing values. */

/* Is a value a list, tuple, view or iterator, whose items are at value->as.data? */
static int specdec__template_is_list_like(const specdec__template_value *value)
{
    return value->kind >= SPECDEC__TEMPLATE_LIST && value->kind <= SPECDEC__TEMPLATE_ITERATOR;
}

/* Is a value an integer, double or boolean? */
static int specdec__template_is_number(const specdec__template_value *value)
{
    return value->kind >= SPECDEC__TEMPLATE_BOOL && value->kind <= SPECDEC__TEMPLATE_DOUBLE;
}

/* Returns the value of a number as a double. */
static double specdec__template_as_double(const specdec__template_value *value)
{
    return value->kind == SPECDEC__TEMPLATE_DOUBLE ? value->as.real : (double)value->as.integer;
}

/* Is a value true, as in Python: not zero, not empty? */
static int specdec__template_is_true(const specdec__template_value *value)
{
    switch (value->kind) {
    case SPECDEC__TEMPLATE_UNDEFINED: case SPECDEC__TEMPLATE_NONE: return 0;
    case SPECDEC__TEMPLATE_BOOL: case SPECDEC__TEMPLATE_INTEGER: return value->as.integer != 0;
    case SPECDEC__TEMPLATE_DOUBLE: return value->as.real != 0;
    case SPECDEC__TEMPLATE_STRING: case SPECDEC__TEMPLATE_LIST: case SPECDEC__TEMPLATE_TUPLE:
    case SPECDEC__TEMPLATE_VIEW: case SPECDEC__TEMPLATE_DICT: return value->size > 0;
    default: return 1;
    }
}

static const specdec__template_value *specdec__template_find_member(specdec__template *t,
                                                                    const specdec__template_value *dict,
                                                                    const specdec__template_value *name);

static int specdec__template_values_equal(specdec__template *t, const specdec__template_value *a,
                                          const specdec__template_value *b, int depth);

/* Do two dicts have equal members, in any order? depth: levels of nesting that may still be compared. */
static int specdec__template_dicts_equal(specdec__template *t, const specdec__template_value *a,
                                         const specdec__template_value *b, int depth)
{
    size_t i;

    for (i = 0; i < a->size && !t->failed; i++) {
        const specdec__template_value *own = specdec__template_list_items(a) + 2 * i;
        const specdec__template_value *other = specdec__template_find_member(t, b, own);

        if (!other || !specdec__template_values_equal(t, own + 1, other, depth - 1))
            return 0;
    }
    return 1;
}

/* Are two values equal, by Python's ==? depth: levels of nesting that may still be compared. */
static int specdec__template_values_equal(specdec__template *t, const specdec__template_value *a,
                                          const specdec__template_value *b, int depth)
{
    size_t i;

    specdec__template_count_work(t, 0);
    if (specdec__template_is_number(a) && specdec__template_is_number(b))
        return a->kind == SPECDEC__TEMPLATE_DOUBLE || b->kind == SPECDEC__TEMPLATE_DOUBLE
                   ? !(specdec__template_as_double(a) < specdec__template_as_double(b)) &&
                         !(specdec__template_as_double(a) > specdec__template_as_double(b))
                   : a->as.integer == b->as.integer;
    if (a->kind != b->kind)
        return 0;
    if (a->kind <= SPECDEC__TEMPLATE_NONE)
        return 1;
    if (a->kind == SPECDEC__TEMPLATE_STRING || a->kind == SPECDEC__TEMPLATE_LIST ||
        a->kind == SPECDEC__TEMPLATE_TUPLE || a->kind == SPECDEC__TEMPLATE_DICT) {
        if (a->size != b->size)
            return 0;
    } else {
        return a->as.data == b->as.data;
    }
    if (!a->size || a->as.data == b->as.data)
        return 1;
    if (a->kind == SPECDEC__TEMPLATE_STRING) {
        specdec__template_count_work(t, a->size);
        return memcmp(a->as.data, b->as.data, a->size) == 0;
    }
    if (!depth) {
        specdec__template_fail(t, "it compares what is too deep");
        return 0;
    }
    if (a->kind == SPECDEC__TEMPLATE_DICT)
        return specdec__template_dicts_equal(t, a, b, depth);
    for (i = 0; i < a->size && !t->failed; i++)
        if (!specdec__template_values_equal(t, specdec__template_list_items(a) + i, specdec__template_list_items(b) + i,
                                            depth - 1))
            return 0;
    return 1;
}

enum { SPECDEC__TEMPLATE_MAX_COMPARED = 12 }; /* levels of lists within each other that are compared, at most */

/* Returns the value of the member of a dict with a name; NULL: there is none. */
static const specdec__template_value *specdec__template_find_member(specdec__template *t,
                                                                    const specdec__template_value *dict,
                                                                    const specdec__template_value *name)
{
    size_t i;

    for (i = dict->size; i-- > 0;) {
        const specdec__template_value *own = specdec__template_list_items(dict) + 2 * i;

        if (own->kind == SPECDEC__TEMPLATE_STRING && name->kind == SPECDEC__TEMPLATE_STRING) {
            if (own->size == name->size && (!own->size || memcmp(own->as.data, name->as.data, own->size) == 0))
                return own + 1;
        } else if (specdec__template_values_equal(t, own, name, 4)) {
            return own + 1;
        }
    }
    specdec__template_count_work(t, 16 * (size_t)dict->size);
    return NULL;
}

/* Compares two values as Python's < does. Returns -1, 0 or 1 where a is below, equal to or above b; values without an
   order are an error. depth: levels of nesting that may still be compared. */
static int specdec__template_compare_values(specdec__template *t, const specdec__template_value *a,
                                            const specdec__template_value *b, int depth)
{
    const size_t common = a->size < b->size ? a->size : b->size;
    size_t i;
    int order = 0;

    specdec__template_count_work(t, a->kind == SPECDEC__TEMPLATE_STRING ? common : 0);
    if (specdec__template_is_number(a) && specdec__template_is_number(b)) {
        const double x = specdec__template_as_double(a), y = specdec__template_as_double(b);

        if (a->kind != SPECDEC__TEMPLATE_DOUBLE && b->kind != SPECDEC__TEMPLATE_DOUBLE)
            return a->as.integer < b->as.integer ? -1 : a->as.integer > b->as.integer;
        return x < y ? -1 : x > y;
    }
    if (a->kind == SPECDEC__TEMPLATE_STRING && b->kind == SPECDEC__TEMPLATE_STRING) {
        order = common ? memcmp(a->as.data, b->as.data, common) : 0;
        return order ? (order < 0 ? -1 : 1) : a->size < b->size ? -1 : a->size > b->size;
    }
    if (a->kind != b->kind || (a->kind != SPECDEC__TEMPLATE_LIST && a->kind != SPECDEC__TEMPLATE_TUPLE) || !depth) {
        specdec__template_fail(t, "it compares values that have no order");
        return 0;
    }
    for (i = 0; i < common && !order && !t->failed; i++)
        order = specdec__template_compare_values(t, specdec__template_list_items(a) + i,
                                                 specdec__template_list_items(b) + i, depth - 1);
    return order ? order : a->size < b->size ? -1 : a->size > b->size;
}

SPECDEC__FOR_SPEED
