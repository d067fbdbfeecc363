/* =====================================================================================================================
 * >>text/template_parse: chat templates are compiled into instructions, in one pass over their text.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "template.h"
#include "template_filter.h"
#include "template_token.h"

SPECDEC__FOR_SIZE

/* ---- Expressions, by levels of precedence: 0 (a if b else c), 1 or, 2 and, 3 not, 4 comparisons, 5 + -, 6 ~, 7 * / //
   %, 8 **. */

static void specdec__template_compile_expression(specdec__template *t, int level);

/* Compiles expressions between commas, up to the token `end`. Returns their number; *comma: 1 if there was a comma. */
static int specdec__template_compile_expression_list(specdec__template *t, int level, int end, int *comma)
{
    int count = 0;

    *comma = 0;
    while (!t->failed && t->token.kind != end && t->token.kind != SPECDEC__TEMPLATE_TAG_END && t->token.kind != '=') {
        specdec__template_compile_expression(t, level);
        count++;
        if (!specdec__template_accept_operator(t, ','))
            break;
        *comma = 1;
    }
    return count;
}

/* Compiles an expression up to the token `end`, or several between commas as a tuple. */
static void specdec__template_compile_tuple(specdec__template *t, int level, int end)
{
    int comma;
    const int count = specdec__template_compile_expression_list(t, level, end, &comma);

    if (comma || (!count && end == ')'))
        specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_MAKE_TUPLE, count);
    else if (!count)
        specdec__template_fail_syntax(t, "an expression is missing");
}

/* Compiles the members of a dict, behind its opening brace. */
static void specdec__template_compile_dict(specdec__template *t)
{
    int count = 0;

    while (!t->failed && t->token.kind != '}') {
        specdec__template_compile_expression(t, 0);
        specdec__template_expect_operator(t, ':');
        specdec__template_compile_expression(t, 0);
        count++;
        if (!specdec__template_accept_operator(t, ','))
            break;
    }
    specdec__template_expect_operator(t, '}');
    specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_MAKE_DICT, count);
}

/* Compiles the arguments of a call in parentheses: positional values, then a name and a value for each named one.
   Returns both numbers, 8 bits each, and bits that say whether the call has *arguments and **arguments. */
static int32_t specdec__template_compile_arguments(specdec__template *t)
{
    int32_t count = 0, names = 0, stars = 0;
    specdec__template_value name;

    specdec__template_expect_operator(t, '(');
    while (!t->failed && t->token.kind != ')') {
        if (t->token.kind == ('*' << 8 | '*')) {
            specdec__template_lex_token(t);
            specdec__template_compile_expression(t, 0);
            stars |= SPECDEC__TEMPLATE_STARS;
        } else if (specdec__template_accept_operator(t, '*')) {
            specdec__template_compile_expression(t, 0);
            stars |= SPECDEC__TEMPLATE_STAR;
        } else if (stars) {
            specdec__template_fail_syntax(t, "arguments behind *arguments are not known");
        } else if (t->token.kind == SPECDEC__TEMPLATE_NAME && specdec__template_peek_token(t).kind == '=') {
            name = specdec__template_intern_name(t, t->token.value);
            name.kind = SPECDEC__TEMPLATE_KEYWORD;
            specdec__template_emit_constant(t, name);
            specdec__template_lex_token(t);
            specdec__template_lex_token(t);
            specdec__template_compile_expression(t, 0);
            names++;
        } else if (names) {
            specdec__template_fail_syntax(t, "an argument without a name is behind one with a name");
        } else {
            specdec__template_compile_expression(t, 0);
            count++;
        }
        if (!specdec__template_accept_operator(t, ','))
            break;
    }
    specdec__template_expect_operator(t, ')');
    if (count > 255 || names > 255)
        specdec__template_fail_syntax(t, "it has too many arguments");
    return count | names << 8 | stars;
}

/* Compiles an index or slice, between [ and ], of the value in front of it. */
static void specdec__template_compile_subscript(specdec__template *t)
{
    int part, slice = 0;

    if (t->token.kind != ':')
        specdec__template_compile_expression(t, 0);
    else
        specdec__template_emit_constant(t, specdec__template_none_value());
    for (part = 0; part < 2 && specdec__template_accept_operator(t, ':'); part++) {
        slice = 1;
        if (t->token.kind != ':' && t->token.kind != ']')
            specdec__template_compile_expression(t, 0);
        else
            specdec__template_emit_constant(t, specdec__template_none_value());
    }
    if (slice && part < 2)
        specdec__template_emit_constant(t, specdec__template_none_value());
    if (slice)
        specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_MAKE_SLICE, 3);
    specdec__template_expect_operator(t, ']');
    specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_ITEM, 0);
}

/* Compiles the attributes, items and calls behind a value. */
static void specdec__template_compile_postfix_operators(specdec__template *t)
{
    while (!t->failed) {
        if (t->token.kind == '(') {
            const int32_t arguments = specdec__template_compile_arguments(t);

            specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_CALL, arguments);
        } else if (specdec__template_accept_operator(t, '[')) {
            specdec__template_compile_subscript(t);
        } else if (specdec__template_accept_operator(t, '.')) {
            if (t->token.kind == SPECDEC__TEMPLATE_NAME) {
                specdec__template_emit_name(t, SPECDEC__TEMPLATE_ATTRIBUTE, t->token.value);
            } else if (t->token.kind == SPECDEC__TEMPLATE_LITERAL) {
                specdec__template_emit_constant(t, t->token.value);
                specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_ITEM, 0);
            } else {
                specdec__template_fail_syntax(t, "the name of an attribute is missing");
            }
            specdec__template_lex_token(t);
        } else {
            return;
        }
    }
}

/* Compiles a name, a literal, or an expression in brackets. */
static void specdec__template_compile_operand(specdec__template *t)
{
    specdec__template_value value = t->token.value;
    int comma;

    if (t->token.kind == SPECDEC__TEMPLATE_NAME) {
        if (specdec__template_token_is_name(t, "true") || specdec__template_token_is_name(t, "True")) {
            specdec__template_emit_constant(t, specdec__template_bool_value(1));
        } else if (specdec__template_token_is_name(t, "false") || specdec__template_token_is_name(t, "False")) {
            specdec__template_emit_constant(t, specdec__template_bool_value(0));
        } else if (specdec__template_token_is_name(t, "none") || specdec__template_token_is_name(t, "None")) {
            specdec__template_emit_constant(t, specdec__template_none_value());
        } else {
            specdec__template_emit_name(t, SPECDEC__TEMPLATE_LOAD, value);
            if (t->macro) {
                t->macro->caller |= specdec__template_token_is_name(t, "caller");
                t->macro->varargs |= specdec__template_token_is_name(t, "varargs");
                t->macro->kwargs |= specdec__template_token_is_name(t, "kwargs");
            }
        }
        specdec__template_lex_token(t);
    } else if (t->token.kind == SPECDEC__TEMPLATE_QUOTED) {
        specdec__template_lex_token(t);
        specdec__template_emit_constant(t, value);
        while (!t->failed && t->token.kind == SPECDEC__TEMPLATE_QUOTED) { /* neighbouring strings are one */
            specdec__template_emit_constant(t, t->token.value);
            specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_CONCATENATE, 0);
            specdec__template_lex_token(t);
        }
    } else if (t->token.kind == SPECDEC__TEMPLATE_LITERAL) {
        specdec__template_lex_token(t);
        specdec__template_emit_constant(t, value);
    } else if (specdec__template_accept_operator(t, '(')) {
        specdec__template_compile_tuple(t, 0, ')');
        specdec__template_expect_operator(t, ')');
    } else if (specdec__template_accept_operator(t, '[')) {
        const int count = specdec__template_compile_expression_list(t, 0, ']', &comma);

        specdec__template_expect_operator(t, ']');
        specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_MAKE_LIST, count);
    } else if (specdec__template_accept_operator(t, '{')) {
        specdec__template_compile_dict(t);
    } else {
        specdec__template_fail_syntax(t, "an expression is not understood");
    }
}

/* Compiles a filter of a value, from the filter's name on. */
static void specdec__template_compile_filter(specdec__template *t)
{
    const int which = specdec__template_find_filter_row(&t->token.value);
    const size_t source = t->token.from;
    int32_t arguments = 0, made;

    if (t->token.kind != SPECDEC__TEMPLATE_NAME) {
        specdec__template_fail_syntax(t, "the name of a filter is missing");
        return;
    }
    specdec__template_lex_token(t);
    if (t->token.kind == '(')
        arguments = specdec__template_compile_arguments(t);
    made = specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_FILTER,
                                              arguments | which << SPECDEC__TEMPLATE_ROW_SHIFT);
    if (!t->failed)
        t->code[made].source = (uint32_t)source & 0xffffffu;
}

/* Compiles a test of a value, behind the word `is`. */
static void specdec__template_compile_test(specdec__template *t)
{
    const int negated = specdec__template_accept_name(t, "not");
    const int which = specdec__template_find_test_row(&t->token.value);
    int32_t arguments = 0;

    if (t->token.kind != SPECDEC__TEMPLATE_NAME) {
        specdec__template_fail_syntax(t, "the name of a test is missing");
        return;
    }
    specdec__template_lex_token(t);
    if (t->token.kind == '(') {
        arguments = specdec__template_compile_arguments(t);
    } else if ((t->token.kind == SPECDEC__TEMPLATE_NAME && !specdec__template_token_is_name(t, "else") &&
                !specdec__template_token_is_name(t, "or") && !specdec__template_token_is_name(t, "and") &&
                !specdec__template_token_is_name(t, "is") && !specdec__template_token_is_name(t, "if") &&
                !specdec__template_token_is_name(t, "not") && !specdec__template_token_is_name(t, "in")) ||
               t->token.kind == SPECDEC__TEMPLATE_QUOTED || t->token.kind == SPECDEC__TEMPLATE_LITERAL ||
               t->token.kind == '[' || t->token.kind == '{') {
        specdec__template_compile_operand(t);
        specdec__template_compile_postfix_operators(t);
        arguments = 1;
    } else if (specdec__template_token_is_name(t, "is")) {
        specdec__template_fail_syntax(t, "a test is behind another one");
    }
    specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_TEST, arguments | which << SPECDEC__TEMPLATE_ROW_SHIFT);
    if (negated)
        specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_NOT, 0);
}

/* Compiles a value with signs in front, and attributes and calls behind it; filters = 1: also filters and tests. */
static void specdec__template_compile_unary_expression(specdec__template *t, int filters)
{
    char signs[SPECDEC__TEMPLATE_MAX_BRACKETS];
    int count = 0;

    while (!t->failed && (t->token.kind == '-' || t->token.kind == '+')) {
        if (count == SPECDEC__TEMPLATE_MAX_BRACKETS) {
            specdec__template_fail_syntax(t, "it has too many signs");
            return;
        }
        signs[count++] = (char)t->token.kind;
        specdec__template_lex_token(t);
    }
    specdec__template_compile_operand(t);
    specdec__template_compile_postfix_operators(t);
    while (count > 0)
        specdec__template_emit_instruction(t, signs[--count] == '-' ? SPECDEC__TEMPLATE_NEGATE : SPECDEC__TEMPLATE_PLUS,
                                           0);
    while (filters && !t->failed) {
        if (specdec__template_accept_operator(t, '|')) {
            specdec__template_compile_filter(t);
        } else if (specdec__template_accept_name(t, "is")) {
            specdec__template_compile_test(t);
        } else if (t->token.kind == '(') {
            const int32_t arguments = specdec__template_compile_arguments(t);

            specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_CALL, arguments);
        } else {
            return;
        }
    }
}

/* Returns the precedence level of the operator that the current token begins; *op: its instruction. 0: the token begins
   no operator. */
static int specdec__template_operator_level(specdec__template *t, int *op)
{
    static const struct { short kind; char level, op; } operators[] = {
        {'=' << 8 | '=', 4, SPECDEC__TEMPLATE_EQUAL}, {'!' << 8 | '=', 4, SPECDEC__TEMPLATE_UNEQUAL},
        {'<', 4, SPECDEC__TEMPLATE_LESS}, {'<' << 8 | '=', 4, SPECDEC__TEMPLATE_AT_MOST},
        {'>', 4, SPECDEC__TEMPLATE_GREATER}, {'>' << 8 | '=', 4, SPECDEC__TEMPLATE_AT_LEAST},
        {'+', 5, SPECDEC__TEMPLATE_ADD}, {'-', 5, SPECDEC__TEMPLATE_SUBTRACT}, {'~', 6, SPECDEC__TEMPLATE_CONCATENATE},
        {'*', 7, SPECDEC__TEMPLATE_MULTIPLY}, {'/', 7, SPECDEC__TEMPLATE_DIVIDE}, {'%', 7, SPECDEC__TEMPLATE_MODULO},
        {'/' << 8 | '/', 7, SPECDEC__TEMPLATE_FLOOR}, {'*' << 8 | '*', 8, SPECDEC__TEMPLATE_POWER}};
    size_t i;

    if (t->token.kind == SPECDEC__TEMPLATE_NAME) {
        *op = specdec__template_token_is_name(t, "or") ? SPECDEC__TEMPLATE_KEEP_TRUE : SPECDEC__TEMPLATE_KEEP_FALSE;
        if (*op == SPECDEC__TEMPLATE_KEEP_TRUE || specdec__template_token_is_name(t, "and"))
            return *op == SPECDEC__TEMPLATE_KEEP_TRUE ? 1 : 2;
        *op = SPECDEC__TEMPLATE_IN;
        if (specdec__template_token_is_name(t, "in"))
            return 4;
        *op = SPECDEC__TEMPLATE_NOT_IN;
        if (specdec__template_token_is_name(t, "not")) {
            const specdec__template_token next = specdec__template_peek_token(t);

            return next.kind == SPECDEC__TEMPLATE_NAME && specdec__template_string_equals(&next.value, "in") ? 4 : 0;
        }
        return 0;
    }
    for (i = 0; i < SPECDEC__COUNT(operators); i++)
        if (t->token.kind == operators[i].kind) {
            *op = operators[i].op;
            return operators[i].level;
        }
    return 0;
}

/* Compiles comparisons behind a value; in a chain such as a < b < c, all must hold. op: instruction of the first
   comparison. */
static void specdec__template_compile_comparison(specdec__template *t, int op)
{
    int32_t ends = -1;
    int next = 0, more = 1;

    while (!t->failed && more) {
        if (op == SPECDEC__TEMPLATE_NOT_IN)
            specdec__template_lex_token(t);
        specdec__template_lex_token(t);
        specdec__template_compile_expression(t, 5);
        more = specdec__template_operator_level(t, &next) == 4;
        if (more)
            specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_ROTATE, 0);
        specdec__template_emit_instruction(t, op, 0);
        if (more)
            ends = specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_KEEP_FALSE, ends);
        op = next;
    }
    if (ends < 0)
        return;
    specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_JUMP, 1);
    specdec__template_set_chain_target(t, ends);
    specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_DROP_BELOW, 0);
}

/* Compiles "if b else c" behind a value whose instructions begin at `begin`; these are moved behind those of b. */
static void specdec__template_compile_conditional_expression(specdec__template *t, int32_t begin)
{
    int32_t middle = (int32_t)t->code_count, no, end;

    specdec__template_compile_expression(t, 1);
    no = specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_JUMP_FALSE, 0) - middle + begin;
    specdec__template_swap_code_ranges(t, begin, middle);
    end = specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_JUMP, 0);
    specdec__template_set_jump_target(t, no);
    if (specdec__template_accept_name(t, "else"))
        specdec__template_compile_expression(t, 0);
    else
        specdec__template_emit_constant(t, specdec__template_undefined_value());
    specdec__template_set_jump_target(t, end);
}

/* Compiles an expression of operators of at least the precedence `level`. */
static void specdec__template_compile_expression(specdec__template *t, int level)
{
    const int32_t begin = (int32_t)t->code_count;
    int32_t jump;
    int found, op;

    if (++t->depth > 2 * SPECDEC__TEMPLATE_MAX_BRACKETS)
        specdec__template_fail_syntax(t, "an expression is too deep");
    if (t->failed)
        return;
    if (level <= 3 && specdec__template_accept_name(t, "not")) {
        specdec__template_compile_expression(t, 3);
        specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_NOT, 0);
    } else {
        specdec__template_compile_unary_expression(t, 1);
    }
    while (!t->failed && (found = specdec__template_operator_level(t, &op)) != 0 && found >= level) {
        if (found == 4) {
            specdec__template_compile_comparison(t, op);
            continue;
        }
        specdec__template_lex_token(t);
        jump = found < 3 ? specdec__template_emit_instruction(t, op, 0) : -1;
        specdec__template_compile_expression(t, found + 1);
        specdec__template_set_jump_target(t, jump);
        if (jump < 0)
            specdec__template_emit_instruction(t, op, 0);
    }
    while (level == 0 && specdec__template_accept_name(t, "if"))
        specdec__template_compile_conditional_expression(t, begin);
    t->depth--;
}

/* ---- Statements. */

/* Opens a block of the current statement, such as {% if %}. NULL: too many blocks are open. */
static specdec__template_block *specdec__template_open_block(specdec__template *t, int kind)
{
    specdec__template_block *block = &t->block[t->open_blocks];

    if (t->open_blocks == SPECDEC__TEMPLATE_MAX_BLOCKS) {
        specdec__template_fail_syntax(t, "its blocks are too deep");
        return NULL;
    }
    t->open_blocks++;
    memset(block, 0, sizeof *block);
    block->kind = kind;
    block->begin = block->middle = block->end_jumps = block->break_jumps = -1;
    block->source = t->token.from;
    block->macro = t->macro;
    return block;
}

/* Returns the innermost open block, if it is of a kind; else NULL and an error. */
static specdec__template_block *specdec__template_innermost_block(specdec__template *t, int kind)
{
    if (!t->failed && t->open_blocks && t->block[t->open_blocks - 1].kind == kind)
        return &t->block[t->open_blocks - 1];
    specdec__template_fail_syntax(t, "it ends a block that has not begun");
    return NULL;
}

/* Compiles the tag {% if %} with its condition. */
static void specdec__template_compile_if(specdec__template *t)
{
    specdec__template_block *block = specdec__template_open_block(t, 'i');

    specdec__template_compile_tuple(t, 0, SPECDEC__TEMPLATE_TAG_END);
    if (block)
        block->begin = specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_JUMP_FALSE, 0);
}

/* Compiles the tag {% elif %} with its condition. */
static void specdec__template_compile_elif(specdec__template *t)
{
    specdec__template_block *block = specdec__template_innermost_block(t, 'i');

    if (!block || block->begin < 0) {
        specdec__template_fail_syntax(t, "it has an elif behind else");
        return;
    }
    block->end_jumps = specdec__template_add_jump_to_chain(t, block->end_jumps);
    specdec__template_set_jump_target(t, block->begin);
    specdec__template_compile_tuple(t, 0, SPECDEC__TEMPLATE_TAG_END);
    block->begin = specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_JUMP_FALSE, 0);
}

/* Compiles the end of a loop's iterations; the instructions of the loop's `else` follow. */
static void specdec__template_compile_loop_end(specdec__template *t, specdec__template_block *block)
{
    specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_RAN, 0);
    specdec__template_jump_back(t, block->middle);
    specdec__template_set_jump_target(t, block->begin);
    specdec__template_set_chain_target(t, block->break_jumps);
    block->begin = specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_END_FOR, 0);
    block->kind = 'e';
}

/* Compiles the tag {% else %} of an if or a for. */
static void specdec__template_compile_else(specdec__template *t)
{
    specdec__template_block *block = &t->block[t->open_blocks ? t->open_blocks - 1 : 0];

    if (t->open_blocks && block->kind == 'f') {
        specdec__template_compile_loop_end(t, block);
        return;
    }
    block = specdec__template_innermost_block(t, 'i');
    if (!block || block->begin < 0) {
        specdec__template_fail_syntax(t, "it has a second else");
        return;
    }
    block->end_jumps = specdec__template_add_jump_to_chain(t, block->end_jumps);
    specdec__template_set_jump_target(t, block->begin);
    block->begin = -1;
}

/* Compiles the tag {% endif %}: ends the block of the if. */
static void specdec__template_compile_endif(specdec__template *t)
{
    specdec__template_block *block = specdec__template_innermost_block(t, 'i');

    if (!block)
        return;
    specdec__template_set_jump_target(t, block->begin);
    specdec__template_set_chain_target(t, block->end_jumps);
    t->open_blocks--;
}

/* Compiles the assignment of the value on the stack to a target: a, or a.b, or a, b, or (a, b). */
static void specdec__template_compile_assignment(specdec__template *t, int attributes)
{
    specdec__template_value names[2];
    const int32_t begin = (int32_t)t->code_count;
    int count = 0, comma = 0;
    int32_t unpack;

    if (++t->depth > SPECDEC__TEMPLATE_MAX_BRACKETS)
        specdec__template_fail_syntax(t, "names are too deep");
    while (!t->failed && !specdec__template_token_is_name(t, "in")) {
        if (specdec__template_accept_operator(t, '(')) {
            specdec__template_compile_assignment(t, attributes);
            specdec__template_expect_operator(t, ')');
        } else if (t->token.kind == SPECDEC__TEMPLATE_NAME) {
            names[0] = specdec__template_intern_name(t, t->token.value);
            specdec__template_lex_token(t);
            if (attributes && specdec__template_accept_operator(t, '.')) {
                names[1] = specdec__template_intern_name(t, t->token.value);
                specdec__template_expect_operator(t, SPECDEC__TEMPLATE_NAME);
                specdec__template_emit_values(t, SPECDEC__TEMPLATE_STORE_ATTRIBUTE, names, 2);
            } else {
                specdec__template_emit_values(t, SPECDEC__TEMPLATE_STORE, names, 1);
            }
        } else {
            break;
        }
        count++;
        if (!specdec__template_accept_operator(t, ','))
            break;
        comma = 1;
    }
    t->depth--;
    if (!count)
        specdec__template_fail_syntax(t, "a name is missing");
    if (!comma)
        return;
    unpack = (int32_t)t->code_count;
    specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_UNPACK, count);
    specdec__template_swap_code_ranges(t, begin, unpack);
}

/* Compiles the tag {% for TARGET in LIST [if CONDITION] %}. A condition gives two loops: the first one filters the
   list. */
static void specdec__template_compile_for(specdec__template *t)
{
    specdec__template_block *block = specdec__template_open_block(t, 'f');
    const int32_t begin = (int32_t)t->code_count;
    int32_t middle, next;

    specdec__template_compile_assignment(t, 0);
    middle = (int32_t)t->code_count;
    if (!specdec__template_accept_name(t, "in"))
        specdec__template_fail_syntax(t, "a loop has no in");
    specdec__template_compile_tuple(t, 1, SPECDEC__TEMPLATE_TAG_END);
    if (specdec__template_accept_name(t, "if")) {
        specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_CHOOSE, 0);
        next = specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_NEXT, 0);
        specdec__template_copy_code(t, begin, middle);
        specdec__template_compile_expression(t, 0);
        specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_CHOSEN, 0);
        specdec__template_jump_back(t, next);
        specdec__template_set_jump_target(t, next);
        specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_END_CHOOSE, 0);
    }
    specdec__template_accept_name(t, "recursive"); /* accepted; calls of such a loop are refused */
    specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_FOR, 0);
    next = specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_NEXT, 0) - middle + begin;
    specdec__template_swap_code_ranges(t, begin, middle);
    if (block)
        block->begin = block->middle = next;
}

/* Compiles the tag {% endfor %}: ends the block of the loop. */
static void specdec__template_compile_endfor(specdec__template *t)
{
    specdec__template_block *block = &t->block[t->open_blocks ? t->open_blocks - 1 : 0];

    if (t->open_blocks && block->kind == 'f')
        specdec__template_compile_loop_end(t, block);
    block = specdec__template_innermost_block(t, 'e');
    if (!block)
        return;
    specdec__template_set_jump_target(t, block->begin);
    t->open_blocks--;
}

/* Compiles a tag {% break %} (breaks = 1) or {% continue %} (0): leaves the scopes and captured blocks within the loop,
   and jumps. */
static void specdec__template_compile_loop_exit(specdec__template *t, int breaks)
{
    int i = t->open_blocks - 1, inner = 0;

    for (; i >= 0 && t->block[i].kind != 'f' && t->block[i].kind != 'm' && t->block[i].kind != 'c'; i--)
        inner += t->block[i].kind != 'i' && t->block[i].kind != 'e';
    if (i < 0 || t->block[i].kind != 'f') {
        specdec__template_fail_syntax(t, "it leaves a loop outside of one");
        return;
    }
    if (inner)
        specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_LEAVE, inner);
    if (breaks)
        t->block[i].break_jumps = specdec__template_add_jump_to_chain(t, t->block[i].break_jumps);
    else
        specdec__template_jump_back(t, t->block[i].middle);
}

/* Compiles the tag {% break %}: ends the innermost loop. */
static void specdec__template_compile_break(specdec__template *t) { specdec__template_compile_loop_exit(t, 1); }
/* Compiles the tag {% continue %}: ends the iteration of the innermost loop. */
static void specdec__template_compile_continue(specdec__template *t) { specdec__template_compile_loop_exit(t, 0); }

/* Begins a block whose output is captured. The instructions from index `begin` on, which use the captured text, are
   skipped here and repeated at the end of the block. */
static void specdec__template_begin_capture(specdec__template *t, int kind, int32_t begin)
{
    specdec__template_block *block = specdec__template_open_block(t, kind);
    const int32_t middle = (int32_t)t->code_count;

    if (block) {
        specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_JUMP, middle - begin);
        specdec__template_swap_code_ranges(t, begin, middle);
        block->begin = begin + 1;
        block->middle = middle + 1;
        specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_CAPTURE, 0);
    }
}

/* Ends a block of a kind whose output is captured: appends the instructions that use the captured text. */
static void specdec__template_end_capture(specdec__template *t, int kind)
{
    specdec__template_block *block = specdec__template_innermost_block(t, kind);

    if (!block)
        return;
    specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_END_CAPTURE, 0);
    specdec__template_copy_code(t, block->begin, block->middle);
    t->open_blocks--;
}

/* Compiles the tag {% set TARGET = VALUE %}, or {% set TARGET [| FILTERS] %} as a block. */
static void specdec__template_compile_set(specdec__template *t)
{
    const int32_t begin = (int32_t)t->code_count;
    int32_t end;

    specdec__template_compile_assignment(t, 1);
    end = (int32_t)t->code_count;
    if (specdec__template_accept_operator(t, '=')) {
        specdec__template_compile_tuple(t, 0, SPECDEC__TEMPLATE_TAG_END);
        specdec__template_swap_code_ranges(t, begin, end);
        return;
    }
    while (specdec__template_accept_operator(t, '|'))
        specdec__template_compile_filter(t);
    specdec__template_swap_code_ranges(t, begin, end);
    specdec__template_begin_capture(t, 's', begin);
}

/* Compiles the tag {% endset %}: ends the block whose output becomes a variable. */
static void specdec__template_compile_endset(specdec__template *t) { specdec__template_end_capture(t, 's'); }

/* Compiles the tag {% filter FILTERS %}: a block whose output is filtered. */
static void specdec__template_compile_filter_block(specdec__template *t)
{
    const int32_t begin = (int32_t)t->code_count;

    do
        specdec__template_compile_filter(t);
    while (specdec__template_accept_operator(t, '|'));
    specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_EMIT, 0);
    specdec__template_begin_capture(t, 'l', begin);
}

/* Compiles the tag {% endfilter %}: ends the block whose output is filtered. */
static void specdec__template_compile_endfilter(specdec__template *t) { specdec__template_end_capture(t, 'l'); }

/* Compiles the parameters of a macro, with their defaults, which are computed at the beginning of the macro. Returns
   the list of the parameters' names. */
static specdec__template_value specdec__template_compile_parameters(specdec__template *t)
{
    const int from = t->value_count;
    specdec__template_value *own = NULL;
    int count;

    specdec__template_expect_operator(t, '(');
    while (!t->failed && t->token.kind != ')') {
        const specdec__template_value name = specdec__template_intern_name(t, t->token.value);
        int32_t given;

        if (t->value_count == SPECDEC__TEMPLATE_MAX_VALUES)
            specdec__template_fail_syntax(t, "it has too many parameters");
        specdec__template_expect_operator(t, SPECDEC__TEMPLATE_NAME);
        if (t->failed)
            break;
        t->stack[t->value_count++] = name;
        specdec__template_emit_values(t, SPECDEC__TEMPLATE_MISSING, &name, 1);
        given = specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_JUMP, 0);
        if (specdec__template_accept_operator(t, '='))
            specdec__template_compile_expression(t, 0);
        else
            specdec__template_emit_constant(t, specdec__template_undefined_value());
        specdec__template_emit_values(t, SPECDEC__TEMPLATE_STORE, &name, 1);
        specdec__template_set_jump_target(t, given);
        if (!specdec__template_accept_operator(t, ','))
            break;
    }
    specdec__template_expect_operator(t, ')');
    count = t->value_count - from;
    own = (specdec__template_value *)specdec__template_take_permanent_memory(t, (size_t)count * sizeof *own);
    if (own && count)
        memcpy(own, t->stack + from, (size_t)count * sizeof *own);
    t->value_count = from;
    return specdec__template_sized_value(SPECDEC__TEMPLATE_LIST, own, own ? (size_t)count : 0);
}

/* Compiles the definition of a macro with a name, whose body follows. Returns the macro; NULL: failed. */
static specdec__template_macro *specdec__template_compile_macro_definition(specdec__template *t,
                                                                           specdec__template_value name)
{
    specdec__template_macro *macro = (specdec__template_macro *)specdec__template_take_permanent_memory(t,
                                                                                                        sizeof *macro);

    if (!macro)
        return NULL;
    memset(macro, 0, sizeof *macro);
    macro->name = specdec__template_intern_name(t, name);
    macro->parameters = specdec__template_sized_value(SPECDEC__TEMPLATE_LIST, NULL, 0);
    specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_DEFINE,
                                       (int32_t)(((unsigned char *)macro - t->memory) / 8));
    return macro;
}

/* Compiles the tag {% macro NAME(PARAMETERS) %}: the block becomes a macro. */
static void specdec__template_compile_macro(specdec__template *t)
{
    specdec__template_block *block = specdec__template_open_block(t, 'm');
    const specdec__template_value name = t->token.value;
    specdec__template_macro *macro;

    specdec__template_expect_operator(t, SPECDEC__TEMPLATE_NAME);
    macro = specdec__template_compile_macro_definition(t, name);
    if (!block || !macro)
        return;
    block->name = macro->name;
    block->begin = specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_JUMP, 0);
    t->macro = macro;
    macro->parameters = specdec__template_compile_parameters(t);
}

/* Compiles the tag {% endmacro %}: ends the body of the macro. */
static void specdec__template_compile_endmacro(specdec__template *t)
{
    specdec__template_block *block = specdec__template_innermost_block(t, 'm');

    if (!block)
        return;
    specdec__template_accept_operator(t, SPECDEC__TEMPLATE_NAME);
    specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_RETURN, 0);
    specdec__template_set_jump_target(t, block->begin);
    specdec__template_emit_values(t, SPECDEC__TEMPLATE_STORE, &block->name, 1);
    t->macro = block->macro;
    t->open_blocks--;
}

/* Compiles the tag {% call [(PARAMETERS)] CALL %}: the block becomes a macro, which the call gets as argument `caller`.
   Order of the instructions: arguments of the call, macro, call. */
static void specdec__template_compile_call_block(specdec__template *t)
{
    specdec__template_block *block = specdec__template_open_block(t, 'm');
    specdec__template_value parameters = specdec__template_sized_value(SPECDEC__TEMPLATE_LIST, NULL, 0), keyword;
    const int32_t begin = (int32_t)t->code_count;
    int32_t jump = -1, last;
    specdec__template_macro *macro;

    if (t->token.kind == '(') {
        jump = specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_JUMP, 0);
        parameters = specdec__template_compile_parameters(t);
        specdec__template_set_jump_target(t, jump);
    }
    last = (int32_t)t->code_count;
    specdec__template_compile_expression(t, 0);
    if (t->failed || !block)
        return;
    if (t->code[t->code_count - 1].op != SPECDEC__TEMPLATE_CALL || t->code[t->code_count - 1].argument >> 16) {
        specdec__template_fail_syntax(t, "a call block has no call");
        return;
    }
    block->end_jumps = t->code[--t->code_count].argument + (1 << 8); /* one more named argument: caller */
    t->used -= sizeof *t->code;
    keyword = specdec__template_intern_name(t, specdec__template_string_value("caller"));
    block->name = keyword;
    keyword.kind = SPECDEC__TEMPLATE_KEYWORD;
    specdec__template_emit_constant(t, keyword);
    macro = specdec__template_compile_macro_definition(t, specdec__template_string_value("caller"));
    if (!macro)
        return;
    block->kind = 'c';
    block->begin = specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_JUMP, 0);
    t->macro = macro;
    macro->parameters = parameters;
    if (jump >= 0)
        specdec__template_copy_code(t, begin + 1, last);
}

/* Compiles the tag {% endcall %}: ends the block of {% call %}, and calls. */
static void specdec__template_compile_endcall(specdec__template *t)
{
    specdec__template_block *block = specdec__template_innermost_block(t, 'c');

    if (!block)
        return;
    specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_RETURN, 0);
    specdec__template_set_jump_target(t, block->begin);
    specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_CALL, block->end_jumps);
    specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_EMIT, 0);
    t->macro = block->macro;
    t->open_blocks--;
}

/* Compiles the tag {% generation %}: a block with a scope of its own. */
static void specdec__template_compile_generation_block(specdec__template *t)
{
    if (specdec__template_open_block(t, 'w'))
        specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_SCOPE, 0);
}

/* Compiles the tag {% with NAME = VALUE, ... %}: a block with variables of its own. */
static void specdec__template_compile_with(specdec__template *t)
{
    specdec__template_compile_generation_block(t);
    while (!t->failed && t->token.kind == SPECDEC__TEMPLATE_NAME) {
        const specdec__template_value name = specdec__template_intern_name(t, t->token.value);

        specdec__template_lex_token(t);
        specdec__template_expect_operator(t, '=');
        specdec__template_compile_expression(t, 0);
        specdec__template_emit_values(t, SPECDEC__TEMPLATE_STORE, &name, 1);
        specdec__template_accept_operator(t, ',');
    }
}

/* Compiles the tag {% block NAME %}: a block with a scope of its own. */
static void specdec__template_compile_block(specdec__template *t)
{
    specdec__template_compile_generation_block(t);
    while (specdec__template_accept_operator(t, SPECDEC__TEMPLATE_NAME))
        ;
}

/* Compiles the tag that ends a block with a scope of its own: {% endwith %} and others. */
static void specdec__template_compile_scope_end(specdec__template *t)
{
    if (specdec__template_innermost_block(t, 'w')) {
        while (specdec__template_accept_operator(t, SPECDEC__TEMPLATE_NAME))
            ;
        specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_LEAVE, 1);
        t->open_blocks--;
    }
}

/* Compiles the tag {{ EXPRESSION }}, which writes a value to the output. */
static void specdec__template_compile_print(specdec__template *t)
{
    specdec__template_compile_tuple(t, 0, SPECDEC__TEMPLATE_TAG_END);
    specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_EMIT, 0);
}

/* Compiles the statement of a tag {% %} by its name. */
static void specdec__template_compile_statement(specdec__template *t)
{
    static const struct { const char *name; void (*compile)(specdec__template *t);
    } statements[] = {{"if", specdec__template_compile_if},
                      {"elif", specdec__template_compile_elif},
                      {"else", specdec__template_compile_else},
                      {"endif", specdec__template_compile_endif},
                      {"for", specdec__template_compile_for},
                      {"endfor", specdec__template_compile_endfor},
                      {"set", specdec__template_compile_set},
                      {"endset", specdec__template_compile_endset},
                      {"break", specdec__template_compile_break},
                      {"continue", specdec__template_compile_continue},
                      {"macro", specdec__template_compile_macro},
                      {"endmacro", specdec__template_compile_endmacro},
                      {"call", specdec__template_compile_call_block},
                      {"endcall", specdec__template_compile_endcall},
                      {"filter", specdec__template_compile_filter_block},
                      {"endfilter", specdec__template_compile_endfilter},
                      {"generation", specdec__template_compile_generation_block},
                      {"endgeneration", specdec__template_compile_scope_end},
                      {"with", specdec__template_compile_with},
                      {"endwith", specdec__template_compile_scope_end},
                      {"block", specdec__template_compile_block},
                      {"endblock", specdec__template_compile_scope_end},
                      {"print", specdec__template_compile_print}};
    size_t i;

    for (i = 0; i < SPECDEC__COUNT(statements); i++)
        if (specdec__template_token_is_name(t, statements[i].name)) {
            specdec__template_lex_token(t);
            statements[i].compile(t);
            return;
        }
    specdec__template_fail_syntax(t, "a statement is not known");
}

/* ---- Text between tags. */

/* Returns the offset at which the white space in front of offset `at` of the template's text begins, at least
   `from`. */
static size_t specdec__template_offset_of_space_begin(const specdec__template *t, size_t from, size_t at)
{
    while (at > from) {
        size_t c = at - 1;

        while (c > from && at - c < 4 && t->text.data[c] >= 0x80 && t->text.data[c] < 0xc0)
            c--;
        if (!specdec__template_is_space(specdec__template_code_point((const char *)t->text.data, at, c)))
            break;
        at = c;
    }
    return at;
}

/* Returns the offset behind the white space that begins at offset `at` of the template's text. */
static size_t specdec__template_offset_behind_space(const specdec__template *t, size_t at)
{
    const char *text = (const char *)t->text.data;

    while (at < t->text.size && specdec__template_is_space(specdec__template_code_point(text, t->text.size, at)))
        at += specdec__template_character_bytes(text, t->text.size, at);
    return at;
}

/* Returns the offset at which the text in front of a tag ends: without white space if the tag begins with '-', or if a
   statement or comment is the first of its line (lstrip_blocks). */
static size_t specdec__template_offset_of_text_end(const specdec__template *t, size_t from, size_t tag, int lines)
{
    const int sign = specdec__template_text_byte(t, tag + 2);
    size_t line = tag, space;

    if (sign == '-')
        return specdec__template_offset_of_space_begin(t, from, tag);
    if (sign == '+' || specdec__template_text_byte(t, tag + 1) == '{')
        return tag;
    while (line > from && t->text.data[line - 1] != '\n')
        line--;
    space = specdec__template_offset_of_space_begin(t, line, tag);
    return space == line && (line > from || lines) ? line : tag;
}

/* Compiles the text between two tags: an instruction that writes the bytes [from, to) of the template's text. */
static void specdec__template_compile_text(specdec__template *t, size_t from, size_t to)
{
    const specdec__template_value value = specdec__template_sized_value(SPECDEC__TEMPLATE_STRING, t->text.data + from,
                                                                        to - from);

    if (to > from)
        specdec__template_emit_values(t, SPECDEC__TEMPLATE_TEXT, &value, 1);
}

/* Matches the rest of a tag {% raw %} or {% endraw %} (name) at offset `at` of the template's text. Returns the offset
   behind it; 0: no match. *strip: white space to drop behind it, as in strip_behind. */
static size_t specdec__template_match_raw_tag(const specdec__template *t, size_t at, const char *name, int *strip)
{
    const size_t size = strlen(name);
    int sign;

    at = specdec__template_offset_behind_space(t, at);
    if (t->text.size - at < size || memcmp(t->text.data + at, name, size) != 0)
        return 0;
    at = specdec__template_offset_behind_space(t, at + size);
    sign = specdec__template_text_byte(t, at);
    at += sign == '-' || (sign == '+' && size > 3);
    if (specdec__template_text_byte(t, at) != '%' || specdec__template_text_byte(t, at + 1) != '}')
        return 0;
    *strip = sign == '-' ? 2 : sign != '+' && size > 3;
    return at + 2;
}

/* Compiles the text of a block {% raw %} from offset `from` on. Returns the offset behind its end tag. */
static size_t specdec__template_compile_raw_block(specdec__template *t, size_t from)
{
    size_t at, end;

    if (t->strip_behind == 2)
        from = specdec__template_offset_behind_space(t, from);
    for (at = from; at + 1 < t->text.size; at++) {
        const int sign = specdec__template_text_byte(t, at + 2);

        if (t->text.data[at] != '{' || t->text.data[at + 1] != '%')
            continue;
        end = specdec__template_match_raw_tag(t, at + 2 + (sign == '-' || sign == '+'), "endraw", &t->strip_behind);
        if (end) {
            specdec__template_compile_text(t, from, specdec__template_offset_of_text_end(t, from, at, 0));
            return end;
        }
    }
    specdec__template_fail_syntax(t, "a raw block has no end");
    return t->text.size;
}

/* Skips a comment {# #} of the template, from the offset `at` of its text on. Returns the offset behind it. */
static size_t specdec__template_skip_comment(specdec__template *t, size_t at)
{
    for (; at + 1 < t->text.size; at++)
        if (t->text.data[at] == '#' && t->text.data[at + 1] == '}') {
            const int sign = t->text.data[at - 1];

            t->strip_behind = sign == '-' ? 2 : sign != '+';
            return at + 2;
        }
    specdec__template_fail_syntax(t, "a comment has no end");
    return t->text.size;
}

/* Compiles the tag at offset `tag` of the template's text. Returns the offset behind it. */
static size_t specdec__template_compile_tag(specdec__template *t, size_t tag)
{
    const int sign = specdec__template_text_byte(t, tag + 2);
    const size_t inside = tag + 2 + (sign == '-' || sign == '+');
    size_t raw;

    t->token.from = tag;
    if (t->text.data[tag + 1] == '#')
        return specdec__template_skip_comment(t, tag + 2);
    t->tag = t->text.data[tag + 1];
    raw = t->tag == '%' ? specdec__template_match_raw_tag(t, inside, "raw", &t->strip_behind) : 0;
    if (raw)
        return specdec__template_compile_raw_block(t, raw);
    t->parsed = inside;
    t->brackets = t->depth = 0;
    t->token.kind = 0;
    specdec__template_lex_token(t);
    if (t->tag == '{')
        specdec__template_compile_print(t);
    else
        specdec__template_compile_statement(t);
    if (!t->failed && t->token.kind != SPECDEC__TEMPLATE_TAG_END)
        specdec__template_fail_syntax(t, "a tag has no end where it must have one");
    return t->parsed;
}

/* Copies the template's text into its memory, with \r\n and \r replaced by \n. */
static void specdec__template_normalise_lines(specdec__template *t)
{
    unsigned char *out;
    size_t i, size = 0;

    if (t->text.size && memchr(t->text.data, '\r', t->text.size)) {
        out = (unsigned char *)specdec__template_take_permanent_memory(t, t->text.size);
        for (i = 0; out && i < t->text.size; i++)
            if (t->text.data[i] != '\r')
                out[size++] = t->text.data[i];
            else if (specdec__template_text_byte(t, i + 1) != '\n')
                out[size++] = '\n';
        t->text = specdec__template_as_bytes(out, out ? size : 0);
    }
    t->text.size -= t->text.size && t->text.data[t->text.size - 1] == '\n';
}

/* Compiles the whole template to instructions in t->code. */
static void specdec__template_compile(specdec__template *t)
{
    size_t at = 0, tag, from;
    int lines;

    if (t->text.size > SPECDEC__TEMPLATE_MAX_BYTES) {
        specdec__template_fail(t, "it is too long");
        return;
    }
    specdec__template_normalise_lines(t);
    t->code = (specdec__template_instruction *)specdec__template_take_memory(t, 1, 0);
    while (!t->failed && at < t->text.size) {
        from = t->strip_behind == 2 ? specdec__template_offset_behind_space(t, at)
               : t->strip_behind == 1 && specdec__template_text_byte(t, at) == '\n' ? at + 1
                                                                                    : at;
        lines = from ? t->text.data[from - 1] == '\n' : 1;
        t->strip_behind = 0;
        for (tag = from; tag + 1 < t->text.size; tag++)
            if (t->text.data[tag] == '{' &&
                (t->text.data[tag + 1] == '{' || t->text.data[tag + 1] == '%' || t->text.data[tag + 1] == '#'))
                break;
        t->token.from = from;
        if (tag + 1 >= t->text.size) {
            specdec__template_compile_text(t, from, t->text.size);
            break;
        }
        specdec__template_count_work(t, tag - from);
        specdec__template_compile_text(t, from, specdec__template_offset_of_text_end(t, from, tag, lines));
        at = specdec__template_compile_tag(t, tag);
    }
    if (!t->failed && t->open_blocks) {
        t->token.from = t->block[t->open_blocks - 1].source;
        specdec__template_fail_syntax(t, "a block has no end");
    }
    specdec__template_emit_instruction(t, SPECDEC__TEMPLATE_HALT, 0);
}

SPECDEC__FOR_SPEED
