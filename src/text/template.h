/* =====================================================================================================================
 * >>text/template: what a chat template computes with: values, text of expressions, variables. Enough of Jinja to
 *     recognise a format by what its template renders for a few messages.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../model/gguf.h"

SPECDEC__FOR_SIZE

/* The subset of Jinja (Pallets, version 3, as transformers sets it up: trim_blocks and lstrip_blocks) that chat
   templates use for plain conversations: if, for, set, macro; strings, lists, namespaces. All else ends the run: so a
   template that is not understood is refused, never guessed at. Nothing is parsed beforehand: loops read their text
   again. */

enum {
    SPECDEC__TEMPLATE_UNDEFINED, SPECDEC__TEMPLATE_NONE, SPECDEC__TEMPLATE_BOOL, SPECDEC__TEMPLATE_INTEGER,
    SPECDEC__TEMPLATE_STRING,  /* (size) bytes */
    SPECDEC__TEMPLATE_LIST,    /* (size) values */
    SPECDEC__TEMPLATE_MESSAGE, /* a specdec_message */
    SPECDEC__TEMPLATE_LOOP,    /* (size) values, of which the loop is at `number` */
    SPECDEC__TEMPLATE_SPACE,   /* a namespace, by number */
    SPECDEC__TEMPLATE_MACRO    /* its parameters begin at `number`, and end at `size`, where its body begins */
};

enum {
    SPECDEC__TEMPLATE_VARIABLES = 64, SPECDEC__TEMPLATE_BLOCKS = 16, SPECDEC__TEMPLATE_ARGUMENTS = 24,
    SPECDEC__TEMPLATE_DEPTH = 24,    /* of operators, brackets and macros in each other; each takes of the stack: */
    SPECDEC__TEMPLATE_BRACKET = 3, SPECDEC__TEMPLATE_CALL = 8, /* so many times what an operator takes */
    SPECDEC__TEMPLATE_STEPS = 20000, /* tags, operands, and each 64 bytes that are read or compared */
    SPECDEC__TEMPLATE_LONGEST = 1 << 20, /* bytes of a template */
    SPECDEC__TEMPLATE_ROOM = 8192    /* bytes for strings and lists, and as many for what is written */
};

typedef struct specdec__template_value {
    int kind;
    int64_t number;
    size_t size;
    const void *at;
} specdec__template_value;

typedef struct specdec__template_variable {
    specdec__bytes name;
    int space; /* number of the namespace that has it; 0: none */
    specdec__template_value value;
} specdec__template_variable;

/* A block that is not at its end. */
typedef struct specdec__template_block {
    int kind; /* 'i': if, 'f': for, 'e': what a loop over nothing has instead, 's': set */
    specdec__bytes name;
    specdec__template_value list;
    size_t body, written; /* where its text begins; bytes of output before it */
    int index, variables;
} specdec__template_block;

/* Arguments of a call, or items of a list. */
typedef struct specdec__template_arguments {
    specdec__template_value *value; /* (count) */
    specdec__bytes *name;           /* (count) empty: it has none */
    int count;
} specdec__template_arguments;

/* A run of a template. */
typedef struct specdec__template {
    specdec__bytes text;
    size_t at, end, after; /* in the tag that is read; its end; where the text behind it begins */
    int strip;             /* what goes of that text: 0 nothing, 1 a line's end, 2 all white space */
    int line;              /* that text stands at the beginning of a line */
    int skip;              /* not 0: expressions are passed over */
    int depth, steps, spaces, from;       /* from: variables below it belong to whoever called a macro */
    int variables, blocks, arguments;
    int sets;                             /* how often anything was assigned */
    const char *failed;                   /* why it ended early */
    specdec__bytes culprit;               /* on what */
    size_t used, written;                 /* bytes of room; of output */
    specdec__template_variable variable[SPECDEC__TEMPLATE_VARIABLES];
    specdec__template_block block[SPECDEC__TEMPLATE_BLOCKS];
    specdec__template_value argument[SPECDEC__TEMPLATE_ARGUMENTS]; /* of calls that are being read, or made */
    specdec__bytes argument_name[SPECDEC__TEMPLATE_ARGUMENTS];
    union {
        char bytes[SPECDEC__TEMPLATE_ROOM];
        specdec__template_value aligned;
    } room;
    char output[SPECDEC__TEMPLATE_ROOM];
} specdec__template;

static specdec__bytes specdec__template_bytes(const void *at, size_t size)
{
    specdec__bytes out;

    out.data = (const unsigned char *)at;
    out.size = size;
    return out;
}

static specdec__template_value specdec__template_number(int kind, int64_t number)
{
    specdec__template_value value;

    value.kind = kind;
    value.number = number;
    value.size = 0;
    value.at = NULL;
    return value;
}

static specdec__template_value specdec__template_of(int kind, const void *at, size_t size)
{
    specdec__template_value value = specdec__template_number(kind, 0);

    value.at = at;
    value.size = size;
    return value;
}

static specdec__template_value specdec__template_string(const char *text)
{
    return specdec__template_of(SPECDEC__TEMPLATE_STRING, text, strlen(text));
}

/* Ends the run. Returns an undefined value. */
static specdec__template_value specdec__template_fail(specdec__template *t, const char *why, specdec__bytes culprit)
{
    if (!t->failed && !t->skip) {
        t->failed = why;
        t->culprit = culprit;
    }
    return specdec__template_number(SPECDEC__TEMPLATE_UNDEFINED, 0);
}

/* Ends the run where the text of an expression is not understood, though it may be passed over. */
static void specdec__template_garbled(specdec__template *t)
{
    const int skip = t->skip;

    t->skip = 0;
    specdec__template_fail(t, "it has an expression that is not understood",
                           specdec__template_bytes(t->text.data + t->at, t->end - t->at < 24 ? t->end - t->at : 24));
    t->skip = skip;
}

/* Counts a step that reads so many bytes. */
static void specdec__template_step(specdec__template *t, size_t bytes)
{
    bytes = bytes / 64 + 1;
    t->steps += bytes < SPECDEC__TEMPLATE_STEPS ? (int)bytes : (int)SPECDEC__TEMPLATE_STEPS;
    if (t->steps > SPECDEC__TEMPLATE_STEPS && !t->failed)
        t->failed = "it takes too long";
}

/* Memory for strings and lists; NULL, and the run has ended, when there is none left. */
static void *specdec__template_take(specdec__template *t, size_t size)
{
    const size_t at = (t->used + sizeof(void *) - 1) / sizeof(void *) * sizeof(void *);

    if (size > sizeof t->room.bytes || at > sizeof t->room.bytes - size) {
        specdec__template_fail(t, "it needs too much memory", specdec__template_bytes(NULL, 0));
        return NULL;
    }
    t->used = at + size;
    return t->room.bytes + at;
}

static int specdec__template_is(const specdec__template_value *value, const char *text)
{
    return value->kind == SPECDEC__TEMPLATE_STRING && value->size == strlen(text) &&
           memcmp(value->at, text, value->size) == 0;
}

static int specdec__template_truth(const specdec__template_value *value)
{
    switch (value->kind) {
    case SPECDEC__TEMPLATE_UNDEFINED: case SPECDEC__TEMPLATE_NONE: return 0;
    case SPECDEC__TEMPLATE_BOOL: case SPECDEC__TEMPLATE_INTEGER: return value->number != 0;
    case SPECDEC__TEMPLATE_STRING: case SPECDEC__TEMPLATE_LIST: return value->size > 0;
    default: return 1;
    }
}

static int specdec__template_equal(const specdec__template_value *a, const specdec__template_value *b)
{
    const int numbers = a->kind >= SPECDEC__TEMPLATE_BOOL && a->kind <= SPECDEC__TEMPLATE_INTEGER;

    if (numbers && b->kind >= SPECDEC__TEMPLATE_BOOL && b->kind <= SPECDEC__TEMPLATE_INTEGER)
        return a->number == b->number;
    if (a->kind != b->kind || a->size != b->size)
        return 0;
    if (a->kind == SPECDEC__TEMPLATE_STRING)
        return !a->size || memcmp(a->at, b->at, a->size) == 0;
    return a->at == b->at && a->number == b->number;
}

/* Where a string has another one, at or behind a place; its size: nowhere. */
static size_t specdec__template_search(const specdec__template_value *in, size_t from,
                                       const specdec__template_value *what)
{
    for (; what->size <= in->size && from <= in->size - what->size; from++)
        if (!what->size || memcmp((const char *)in->at + from, what->at, what->size) == 0)
            return from;
    return in->size;
}

/* Two strings, one behind the other. What is not defined is an empty one. */
static specdec__template_value specdec__template_join(specdec__template *t, specdec__template_value a,
                                                      specdec__template_value b)
{
    const size_t first = a.kind == SPECDEC__TEMPLATE_STRING ? a.size : 0;
    const size_t second = b.kind == SPECDEC__TEMPLATE_STRING ? b.size : 0;
    char *out;

    if ((a.kind != SPECDEC__TEMPLATE_STRING && a.kind != SPECDEC__TEMPLATE_UNDEFINED) ||
        (b.kind != SPECDEC__TEMPLATE_STRING && b.kind != SPECDEC__TEMPLATE_UNDEFINED))
        return specdec__template_fail(t, "it writes what is no string", specdec__template_bytes(NULL, 0));
    out = (char *)specdec__template_take(t, first + second);
    if (!out)
        return specdec__template_number(SPECDEC__TEMPLATE_UNDEFINED, 0);
    if (first)
        memcpy(out, a.at, first);
    if (second)
        memcpy(out + first, b.at, second);
    return specdec__template_of(SPECDEC__TEMPLATE_STRING, out, first + second);
}

/* Part of a list or string: those of its items from one place to another, in this order or (step -1) the other. */
static specdec__template_value specdec__template_slice(specdec__template *t, const specdec__template_value *of,
                                                       int64_t from, int64_t to, int64_t step)
{
    const int64_t size = (int64_t)of->size;
    const specdec__template_value *items = (const specdec__template_value *)of->at;
    specdec__template_value *out;
    int64_t i;

    from = from < 0 ? from + size : from;
    to = to < 0 ? to + size : to;
    from = from < 0 ? 0 : from > size ? size : from;
    to = to < from ? from : to > size ? size : to;
    if (of->kind == SPECDEC__TEMPLATE_STRING && step == 1)
        return specdec__template_of(of->kind, (const char *)of->at + from, (size_t)(to - from));
    if (of->kind != SPECDEC__TEMPLATE_LIST || (step != 1 && step != -1))
        return specdec__template_fail(t, "it takes apart what is no list", specdec__template_bytes(NULL, 0));
    out = (specdec__template_value *)specdec__template_take(t, (size_t)(to - from) * sizeof *out);
    for (i = from; out && i < to; i++)
        out[step > 0 ? i - from : to - 1 - i] = items[i];
    return specdec__template_of(SPECDEC__TEMPLATE_LIST, out, out ? (size_t)(to - from) : 0);
}

/* ---- Text of expressions. */

static int specdec__template_letter(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* The next character of an expression behind white space; 0: there is none. */
static int specdec__template_next(specdec__template *t)
{
    while (t->at < t->end && memchr(" \t\r\n", t->text.data[t->at], 4))
        t->at++;
    return t->at < t->end ? t->text.data[t->at] : 0;
}

/* Takes an operator, or a word, if it stands there. */
static int specdec__template_accept(specdec__template *t, const char *what)
{
    const size_t size = strlen(what);

    specdec__template_next(t);
    if (t->end - t->at < size || memcmp(t->text.data + t->at, what, size) != 0 ||
        (specdec__template_letter(what[0]) && t->end - t->at > size &&
         specdec__template_letter(t->text.data[t->at + size])))
        return 0;
    t->at += size;
    return 1;
}

/* A name; empty: there is none. */
static specdec__bytes specdec__template_name(specdec__template *t)
{
    const int digit = specdec__template_next(t) >= '0' && t->text.data[t->at] <= '9';
    size_t from = t->at;

    while (!digit && t->at < t->end && specdec__template_letter(t->text.data[t->at]))
        t->at++;
    specdec__template_step(t, t->at - from);
    return specdec__template_bytes(t->text.data + from, t->at - from);
}

/* A string between quotes, whose first is here. */
static SPECDEC__NOINLINE specdec__template_value specdec__template_quoted(specdec__template *t)
{
    const unsigned char quote = t->text.data[t->at++];
    const size_t from = t->at;
    size_t size = 0;
    char *out;

    while (t->at < t->end && t->text.data[t->at] != quote)
        t->at += t->text.data[t->at] == '\\' ? 2 : 1;
    if (t->at >= t->end)
        return specdec__template_fail(t, "a string has no end", specdec__template_bytes(NULL, 0));
    specdec__template_step(t, t->at - from);
    out = t->skip || t->failed ? NULL : (char *)specdec__template_take(t, t->at - from);
    t->at++;
    if (out) {
        size_t i;

        for (i = from; i + 1 < t->at; i++) {
            char c = (char)t->text.data[i];

            if (c == '\\') {
                static const char names[] = "nrt\\'\"", meant[] = "\n\r\t\\'\"";
                const char *known = strchr(names, t->text.data[++i]);

                if (!known || !*known)
                    return specdec__template_fail(t, "it has an escape that is not known",
                                                  specdec__template_bytes(t->text.data + i - 1, 2));
                c = meant[known - names];
            }
            out[size++] = c;
        }
    }
    return specdec__template_of(SPECDEC__TEMPLATE_STRING, out, size);
}

/* ---- Variables. */

static specdec__template_variable *specdec__template_find(specdec__template *t, specdec__bytes name, int space)
{
    int i;

    for (i = t->variables - 1; i >= 0; i--)
        if (t->variable[i].space == space &&
            specdec__bytes_equal(t->variable[i].name, (const char *)name.data, name.size))
            return &t->variable[i];
    return NULL;
}

/* Makes a new variable. */
static void specdec__template_bind(specdec__template *t, specdec__bytes name, specdec__template_value value)
{
    specdec__template_variable *variable = &t->variable[t->variables];

    if (t->variables == SPECDEC__TEMPLATE_VARIABLES) {
        specdec__template_fail(t, "it has too many variables", name);
        return;
    }
    t->variables++;
    variable->name = name;
    variable->space = 0;
    variable->value = value;
}

/* Assigns in the innermost scope, or to a namespace's attribute wherever that is. */
static void specdec__template_set(specdec__template *t, specdec__bytes name, int space, specdec__template_value value)
{
    specdec__template_variable *variable = specdec__template_find(t, name, space);
    int scope = t->from, i;

    for (i = 0; i < t->blocks; i++)
        if (t->block[i].kind == 'f')
            scope = specdec__max_int(scope, t->block[i].variables);
    t->sets++;
    if (!variable || (!space && variable - t->variable < scope)) {
        specdec__template_bind(t, name, value);
        t->variable[t->variables - 1].space = space;
    } else {
        variable->value = value;
    }
}

static void specdec__template_set_name(specdec__template *t, const char *name, specdec__template_value value)
{
    specdec__template_set(t, specdec__template_bytes(name, strlen(name)), 0, value);
}

SPECDEC__FOR_SPEED
