/* =====================================================================================================================
 * >>text/template_token: the tokens of chat templates, and the instructions that they become.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "json.h"
#include "template.h"

SPECDEC__FOR_SIZE

/* Instructions of a compiled template. Instructions may be moved or copied by the compiler, so jumps are relative to
   the instruction behind them. */
enum {
    /* write text of the template; write the value on the stack; push a constant; push the value of a name */
    SPECDEC__TEMPLATE_TEXT, SPECDEC__TEMPLATE_EMIT, SPECDEC__TEMPLATE_CONSTANT, SPECDEC__TEMPLATE_LOAD,
    /* set a variable; set an attribute of a namespace; push the items of a list */
    SPECDEC__TEMPLATE_STORE, SPECDEC__TEMPLATE_STORE_ATTRIBUTE, SPECDEC__TEMPLATE_UNPACK,
    SPECDEC__TEMPLATE_ROTATE,     /* for a < b < c: stack a b becomes b a b */
    SPECDEC__TEMPLATE_DROP_BELOW, /* stack a b becomes b */
    SPECDEC__TEMPLATE_JUMP, SPECDEC__TEMPLATE_JUMP_FALSE,
    SPECDEC__TEMPLATE_KEEP_FALSE, SPECDEC__TEMPLATE_KEEP_TRUE, /* jump and keep the value on the stack, or drop it and
                                                                  go on */
    SPECDEC__TEMPLATE_NOT, SPECDEC__TEMPLATE_NEGATE, SPECDEC__TEMPLATE_PLUS,
    SPECDEC__TEMPLATE_ADD, SPECDEC__TEMPLATE_SUBTRACT, SPECDEC__TEMPLATE_MULTIPLY, SPECDEC__TEMPLATE_DIVIDE,
    SPECDEC__TEMPLATE_FLOOR, SPECDEC__TEMPLATE_MODULO, SPECDEC__TEMPLATE_POWER, SPECDEC__TEMPLATE_CONCATENATE,
    SPECDEC__TEMPLATE_EQUAL, SPECDEC__TEMPLATE_UNEQUAL, SPECDEC__TEMPLATE_LESS, SPECDEC__TEMPLATE_AT_MOST,
    SPECDEC__TEMPLATE_GREATER, SPECDEC__TEMPLATE_AT_LEAST, SPECDEC__TEMPLATE_IN, SPECDEC__TEMPLATE_NOT_IN,
    SPECDEC__TEMPLATE_ATTRIBUTE, SPECDEC__TEMPLATE_ITEM, SPECDEC__TEMPLATE_MAKE_SLICE, SPECDEC__TEMPLATE_MAKE_LIST,
    SPECDEC__TEMPLATE_MAKE_TUPLE, SPECDEC__TEMPLATE_MAKE_DICT,
    SPECDEC__TEMPLATE_CALL, SPECDEC__TEMPLATE_FILTER, SPECDEC__TEMPLATE_TEST, /* arguments as packed by
                                                                                 specdec__template_compile_arguments */
    /* begin a loop; begin its next iteration, or jump when there is none; record that one is complete; end the loop */
    SPECDEC__TEMPLATE_FOR, SPECDEC__TEMPLATE_NEXT, SPECDEC__TEMPLATE_RAN, SPECDEC__TEMPLATE_END_FOR,
    SPECDEC__TEMPLATE_CHOOSE,     /* begin a loop that keeps the items whose condition is true */
    SPECDEC__TEMPLATE_CHOSEN, SPECDEC__TEMPLATE_END_CHOOSE, /* keep the item if the condition is true; end the loop */
    SPECDEC__TEMPLATE_DEFINE,     /* a macro; its body begins behind the following jump */
    SPECDEC__TEMPLATE_MISSING,    /* skips the following jump when a parameter was not given */
    SPECDEC__TEMPLATE_RETURN,     /* from a macro */
    /* begin a scope; begin to capture the output; end that; leave frames */
    SPECDEC__TEMPLATE_SCOPE, SPECDEC__TEMPLATE_CAPTURE, SPECDEC__TEMPLATE_END_CAPTURE, SPECDEC__TEMPLATE_LEAVE,
    SPECDEC__TEMPLATE_HALT
};

/* Kinds of Jinja's tokens; an operator's kind is its character, or its first character << 8 | the second. */
enum { SPECDEC__TEMPLATE_TAG_END = 1, SPECDEC__TEMPLATE_NAME, SPECDEC__TEMPLATE_LITERAL, SPECDEC__TEMPLATE_QUOTED };

/* Bits of the argument of the instructions CALL, FILTER and TEST. */
enum {
    SPECDEC__TEMPLATE_STAR = 1 << 16, SPECDEC__TEMPLATE_STARS = 1 << 17, /* the call has *arguments, **arguments */
    SPECDEC__TEMPLATE_ROW_SHIFT = 18 /* bits below the row of a filter or test */
};

/* ---- Tokens. */

/* May a byte be in a name of Jinja? */
static int specdec__template_is_name_byte(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c > 127;
}

/* Returns byte `at` of the template's text; 0 behind its end. */
static int specdec__template_text_byte(const specdec__template *t, size_t at)
{
    return at < t->text.size ? t->text.data[at] : 0;
}

/* Stores a syntax error at the current byte of the template's text. */
static void specdec__template_fail_syntax(specdec__template *t, const char *why)
{
    const size_t from = t->token.from < t->text.size ? t->token.from : t->text.size, left = t->text.size - from;

    t->source = from;
    specdec__template_fail_with_culprit(t, why, specdec__template_as_bytes(t->text.data + from, left < 24 ? left : 24));
}

/* Reads an escape of a string literal, behind its backslash, into out[4]. Returns the number of bytes; *at moves behind
   the escape. */
static size_t specdec__template_read_escape(const specdec__template *t, size_t *at, unsigned char out[4])
{
    static const char names[] = "nrtabfv\\'\"", meant[] = "\n\r\t\a\b\f\v\\'\"";
    const int c = specdec__template_text_byte(t, (*at)++);
    const char *known = c ? strchr(names, c) : NULL;
    int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0, base = 16, i;
    uint32_t code = 0;

    if (known) {
        out[0] = (unsigned char)meant[known - names];
        return 1;
    }
    if (c == '\n')
        return 0;
    if (c >= '0' && c <= '7') {
        digits = 3;
        base = 8;
        --*at;
    }
    for (i = 0; i < digits; i++) {
        const int digit = specdec__template_text_byte(t, *at), letter = digit | 32;
        const int value = digit >= '0' && digit <= '9'     ? digit - '0'
                          : letter >= 'a' && letter <= 'f' ? letter - 'a' + 10
                                                           : base;
        if (value >= base)
            break;
        code = code * (uint32_t)base + (uint32_t)value;
        ++*at;
    }
    if (digits && (i == digits || base == 8))
        return specdec__json_encode_utf8(code < 0x110000 && (code < 0xd800 || code > 0xdfff) ? code : 0xfffd, out);
    *at -= (size_t)i;
    out[0] = '\\';
    out[1] = (unsigned char)c;
    return c ? 2 : 1;
}

/* Reads a string literal, from its quote at t->parsed on, into t->token. */
static void specdec__template_lex_string(specdec__template *t)
{
    const int quote = specdec__template_text_byte(t, t->parsed);
    const size_t from = t->parsed + 1;
    size_t end = from, escapes = 0, size = 0, at, count;
    unsigned char bytes[4], *out;

    while (end < t->text.size && t->text.data[end] != quote) {
        escapes += t->text.data[end] == '\\';
        end += t->text.data[end] == '\\' ? 2 : 1;
    }
    if (end >= t->text.size) {
        specdec__template_fail_syntax(t, "a string has no end");
        return;
    }
    t->token.kind = SPECDEC__TEMPLATE_QUOTED;
    t->token.value = specdec__template_sized_value(SPECDEC__TEMPLATE_STRING, t->text.data + from, end - from);
    t->parsed = end + 1;
    if (!escapes)
        return;
    out = (unsigned char *)specdec__template_take_permanent_memory(t, 2 * (end - from)); /* only \N grows */
    for (at = from; out && at < end;) {
        count = 1;
        bytes[0] = t->text.data[at++];
        if (bytes[0] == '\\')
            count = specdec__template_read_escape(t, &at, bytes);
        memcpy(out + size, bytes, count);
        size += count;
    }
    t->token.value = specdec__template_sized_value(SPECDEC__TEMPLATE_STRING, out, out ? size : 0);
}

/* Reads a number literal into t->token: decimal digits, perhaps with fraction and exponent; or 0x, 0o, 0b. */
static void specdec__template_lex_number(specdec__template *t)
{
    specdec__json number;
    specdec__json_node node;
    size_t at = t->parsed;
    int64_t integer = 0;
    double real = 0;
    const int letter = specdec__template_text_byte(t, at + 1) | 32;
    const int base = specdec__template_text_byte(t, at) != '0' ? 10
                     : letter == 'x'                      ? 16
                     : letter == 'o'                      ? 8
                     : letter == 'b'                      ? 2
                                                          : 10;
    t->token.kind = SPECDEC__TEMPLATE_LITERAL;
    for (at += base != 10 ? 2 : 0;; at++) {
        const int c = specdec__template_text_byte(t, at), low = c | 32;
        const int digit = c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : 99;

        if (c == '_')
            continue;
        if (digit >= base)
            break;
        if (integer > (INT64_MAX - digit) / base) {
            specdec__template_fail_syntax(t, "a number is too large");
            return;
        }
        integer = integer * base + digit;
    }
    memset(&number, 0, sizeof number);
    memset(&node, 0, sizeof node);
    number.text = t->text.data;
    number.size = t->text.size;
    if (specdec__template_text_byte(t, at) == '.' && specdec__json_skip_digits(&number, at + 1) > at + 1)
        node.escaped = 1;
    if (node.escaped)
        at = specdec__json_skip_digits(&number, at + 1);
    if (base == 10 && (specdec__template_text_byte(t, at) | 32) == 'e') {
        size_t digits = at + 1;

        digits += specdec__template_text_byte(t, digits) == '+' || specdec__template_text_byte(t, digits) == '-';
        if (specdec__json_skip_digits(&number, digits) > digits) {
            at = specdec__json_skip_digits(&number, digits);
            node.escaped = 1;
        }
    }
    t->token.value = specdec__template_integer_value(integer);
    if (node.escaped) {
        number.nodes = &node;
        node.kind = SPECDEC__JSON_NUMBER;
        node.from = (uint32_t)t->parsed;
        node.to = (uint32_t)at;
        specdec__json_read_double(&number, 0, &real);
        t->token.value = specdec__template_double_value(real);
    }
    t->parsed = at;
}

/* Reads the end of the current tag, such as -%}, if it is here, and sets t->strip_behind. Returns whether it is
   here. */
static int specdec__template_lex_tag_end(specdec__template *t)
{
    const int c = specdec__template_text_byte(t, t->parsed);
    const int marked = c == '-' || (c == '+' && t->tag == '%');
    const size_t at = t->parsed + (size_t)marked;

    if (t->brackets || specdec__template_text_byte(t, at) != (t->tag == '{' ? '}' : '%') ||
        specdec__template_text_byte(t, at + 1) != '}')
        return 0;
    t->strip_behind = marked ? (c == '-' ? 2 : 0) : t->tag != '{';
    t->parsed = at + 2;
    t->token.kind = SPECDEC__TEMPLATE_TAG_END;
    return 1;
}

/* Reads the next token of the current tag into t->token. */
static void specdec__template_lex_token(specdec__template *t)
{
    static const char doubles[] = "==!=<=>=//**"; /* operators of two characters */
    int c, i, next;

    if (t->token.kind == SPECDEC__TEMPLATE_TAG_END)
        return;
    while (t->parsed < t->text.size && t->text.data[t->parsed] < 128 &&
           specdec__template_is_space(t->text.data[t->parsed]))
        t->parsed++;
    t->token.from = t->parsed;
    specdec__template_count_work(t, 0);
    c = specdec__template_text_byte(t, t->parsed);
    if (t->parsed >= t->text.size) {
        specdec__template_fail_syntax(t, "a tag has no end");
        t->token.kind = SPECDEC__TEMPLATE_TAG_END;
    } else if (specdec__template_lex_tag_end(t)) {
        return;
    } else if (c == '"' || c == '\'') {
        specdec__template_lex_string(t);
    } else if (c >= '0' && c <= '9') {
        specdec__template_lex_number(t);
    } else if (specdec__template_is_name_byte(c)) {
        t->token.kind = SPECDEC__TEMPLATE_NAME;
        while (specdec__template_is_name_byte(specdec__template_text_byte(t, t->parsed)))
            t->parsed++;
        t->token.value = specdec__template_sized_value(SPECDEC__TEMPLATE_STRING, t->text.data + t->token.from,
                                                       t->parsed - t->token.from);
    } else {
        next = specdec__template_text_byte(t, ++t->parsed);
        t->token.kind = c;
        for (i = 0; i < 12; i += 2)
            if (c == doubles[i] && next == doubles[i + 1])
                t->token.kind = c << 8 | next;
        t->parsed += t->token.kind > 255;
        if (!strchr("=<>!+-/*%~[](){}.:|,;", c) || c == 0 || t->token.kind == '!')
            specdec__template_fail_syntax(t, "a character is not understood");
        t->brackets += c == '(' || c == '[' || c == '{';
        t->brackets -= (c == ')' || c == ']' || c == '}') && t->brackets > 0;
    }
}

/* Returns the token behind the current one, which stays current. */
static specdec__template_token specdec__template_peek_token(specdec__template *t)
{
    const specdec__template_token now = t->token;
    const size_t at = t->parsed, limit = t->limit;
    const int brackets = t->brackets, strip = t->strip_behind;
    specdec__template_token next;

    specdec__template_lex_token(t);
    next = t->token;
    t->token = now;
    t->parsed = at;
    t->limit = limit; /* releases the memory of an escaped string */
    t->brackets = brackets;
    t->strip_behind = strip;
    return next;
}

/* Is the current token of the tag this name? */
static int specdec__template_token_is_name(const specdec__template *t, const char *name)
{
    return t->token.kind == SPECDEC__TEMPLATE_NAME && specdec__template_string_equals(&t->token.value, name);
}

/* Reads the next token if the current one is this operator. Returns whether it was. */
static int specdec__template_accept_operator(specdec__template *t, int kind)
{
    if (t->failed || t->token.kind != kind)
        return 0;
    specdec__template_lex_token(t);
    return 1;
}

/* Reads the next token if the current one is this name. Returns whether it was. */
static int specdec__template_accept_name(specdec__template *t, const char *name)
{
    if (t->failed || !specdec__template_token_is_name(t, name))
        return 0;
    specdec__template_lex_token(t);
    return 1;
}

/* Reads the next token behind an operator; a current token that is not this operator is an error. */
static void specdec__template_expect_operator(specdec__template *t, int kind)
{
    if (!specdec__template_accept_operator(t, kind))
        specdec__template_fail_syntax(t, "it is not understood");
}

/* ---- Appending instructions. */

/* Returns the interned copy of a name, which all equal names of the template share. */
static specdec__template_value specdec__template_intern_name(specdec__template *t, specdec__template_value name)
{
    specdec__template_name **head, *own;
    uint32_t hash = 0;
    size_t i;

    for (i = 0; i < name.size; i++)
        hash = hash * 31 + (unsigned char)specdec__template_string_bytes(&name)[i];
    head = &t->names[(hash ^ hash >> 6) % SPECDEC__COUNT(t->names)];
    for (own = *head; own; own = own->next)
        if (own->value.size == name.size && memcmp(own->value.as.data, name.as.data, name.size) == 0)
            return own->value;
    own = (specdec__template_name *)specdec__template_take_permanent_memory(t, sizeof *own);
    if (!own)
        return name;
    own->value = name;
    own->next = *head;
    *head = own;
    return name;
}

/* Appends an instruction to the compiled template. Returns its index. */
static int32_t specdec__template_emit_instruction(specdec__template *t, int op, int32_t argument)
{
    specdec__template_instruction *code = &t->code[t->code_count];

    if (t->failed || t->limit - t->used < sizeof *code) {
        specdec__template_fail(t, "it needs too much memory");
        return 0;
    }
    t->used += sizeof *code;
    code->op = (unsigned)op & 255u;
    code->source = (uint32_t)t->token.from & 0xffffffu;
    code->argument = argument;
    return (int32_t)t->code_count++;
}

/* Appends an instruction whose constant is an array of `count` values. */
static void specdec__template_emit_values(specdec__template *t, int op, const specdec__template_value *values,
                                          int count)
{
    void *own = specdec__template_take_permanent_memory(t, (size_t)count * sizeof *values);

    if (!own)
        return;
    memcpy(own, values, (size_t)count * sizeof *values);
    specdec__template_emit_instruction(t, op, (int32_t)(((unsigned char *)own - t->memory) / 8));
}

/* Appends an instruction that pushes a constant value onto the stack. */
static void specdec__template_emit_constant(specdec__template *t, specdec__template_value value)
{
    specdec__template_emit_values(t, SPECDEC__TEMPLATE_CONSTANT, &value, 1);
}

/* Appends an instruction whose constant is an interned name. */
static void specdec__template_emit_name(specdec__template *t, int op, specdec__template_value name)
{
    name = specdec__template_intern_name(t, name);
    specdec__template_emit_values(t, op, &name, 1);
}

/* Makes the instruction `jump` jump to the instruction that is appended next. */
static void specdec__template_set_jump_target(specdec__template *t, int32_t jump)
{
    if (!t->failed && jump >= 0)
        t->code[jump].argument = (int32_t)t->code_count - jump - 1;
}

/* Appends a jump to a chain of jumps with one target, which is set later. last: the last jump of the chain; -1: none.
   Returns the index of the new one. */
static int32_t specdec__template_add_jump_to_chain(specdec__template *t, int32_t last)
{
    return specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_JUMP, last);
}

/* Makes all jumps of a chain jump to the instruction that is appended next. last: the last jump of the chain. */
static void specdec__template_set_chain_target(specdec__template *t, int32_t last)
{
    while (!t->failed && last >= 0) {
        const int32_t before = t->code[last].argument;

        specdec__template_set_jump_target(t, last);
        last = before;
    }
}

/* Appends a jump to the earlier instruction `to`. */
static void specdec__template_jump_back(specdec__template *t, int32_t to)
{
    const int32_t jump = specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_JUMP, 0);

    if (!t->failed)
        t->code[jump].argument = to - jump - 1;
}

/* Appends copies of the instructions [from, to) of the compiled template. */
static void specdec__template_copy_code(specdec__template *t, int32_t from, int32_t to)
{
    for (; from < to && !t->failed; from++) {
        const int32_t made = specdec__template_emit_instruction(t, 0, 0);

        if (!t->failed)
            t->code[made] = t->code[from];
    }
}

/* Reverses the order of the instructions [from, to) of the compiled template. */
static void specdec__template_reverse_code(specdec__template *t, int32_t from, int32_t to)
{
    for (; from < --to; from++) {
        const specdec__template_instruction code = t->code[from];

        t->code[from] = t->code[to];
        t->code[to] = code;
    }
}

/* Exchanges the instructions [from, middle) of the compiled template with those from middle to the end. */
static void specdec__template_swap_code_ranges(specdec__template *t, int32_t from, int32_t middle)
{
    if (t->failed)
        return;
    specdec__template_count_work(t, 8 * (t->code_count - (size_t)from));
    specdec__template_reverse_code(t, from, middle);
    specdec__template_reverse_code(t, middle, (int32_t)t->code_count);
    specdec__template_reverse_code(t, from, (int32_t)t->code_count);
}

SPECDEC__FOR_SPEED
