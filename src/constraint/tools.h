/* =====================================================================================================================
 * >>constraint/tools: compiles the constraint of tool calls: of any of the tools, in a model's form of calls.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../text/json.h"
#include "../text/answer.h"
#include "automaton.h"
#include "build.h"
#include "expression.h"
#include "finish.h"
#include "strings.h"
#include "schema.h"
#include "values.h"
#include "objects.h"

SPECDEC__FOR_SIZE

/* Appends a literal part of JSON to the concatenation `all`. Where white space is allowed, it may stand around all
   punctuation outside strings; else only where the text has a space. */
static void specdec__tools_append_json(specdec__schema *s, uint32_t all, const char *text)
{
    int string = 0;

    for (; *text && !s->build->failed; text++) {
        const int punctuation = !string && strchr("{}[],:", *text) != NULL;

        if (!string && specdec__answer_is_space((unsigned char)*text)) { /* a space that some models leave out */
            specdec__syntax_prepend_child(
                s->build, all, specdec__syntax_add_node(s->build, SPECDEC__SYNTAX_REPEAT, s->space_tree, 0, 1));
            continue;
        }
        if (punctuation)
            specdec__literal_append_space(s, all);
        specdec__literal_append_byte(s, all, (unsigned char)*text);
        if (punctuation)
            specdec__literal_append_space(s, all);
        string ^= *text == '"';
    }
}

/* Returns the JSON node of the schema of a tool's arguments; 0: it has none, so its arguments are {}. *name: node of
   the tool's name. */
static uint32_t specdec__tools_arguments_schema(specdec__schema *s, uint32_t tool, uint32_t *name)
{
    uint32_t function = specdec__schema_get_member(s, tool, "function"), parameters;

    function = function ? function : tool;
    *name = specdec__schema_get_member(s, function, "name");
    if (!*name || specdec__schema_json_node(s, *name)->kind != SPECDEC__JSON_STRING)
        specdec__schema_fail_keyword(s, tool, "name", SPECDEC_ERROR_FORMAT, "a tool has no name");
    parameters = specdec__schema_get_member(s, function, "parameters");
    return parameters && specdec__schema_json_node(s, parameters)->kind == SPECDEC__JSON_OBJECT &&
                   specdec__schema_json_node(s, parameters)->count
               ? parameters : 0;
}

/* Does this form of calls write arguments in a style other than JSON? */
static int specdec__tools_arguments_are_not_json(const specdec__calls *row)
{
    return row->form == SPECDEC__CALLS_PAIRS || row->form == SPECDEC__CALLS_PYTHON ||
           row->form == SPECDEC__CALLS_BRACES;
}

/* Is the tool whose name is at a JSON node among the chosen ones? Without choices all are. */
static int specdec__tools_is_chosen(const specdec__schema *s, uint32_t name, const char *const *choices, int count)
{
    int i;

    for (i = 0; i < count; i++)
        if (specdec__json_string_equals(&s->json, name, choices[i], strlen(choices[i])))
            return 1;
    return !count;
}

/* Appends a literal text to the concatenation `all`, a syntax tree. */
static void specdec__tools_append_text(specdec__schema *s, uint32_t all, const char *text)
{
    specdec__syntax_prepend_child(s->build, all,
                                  specdec__syntax_add_text(s->build, (const unsigned char *)text, strlen(text)));
}

/* Appends the tree of a regular expression to the concatenation `all`. */
static void specdec__tools_append_regex(specdec__schema *s, uint32_t all, const char *expression)
{
    specdec__source source;
    specdec__vector none;

    memset(&source, 0, sizeof source);
    memset(&none, 0, sizeof none);
    source.text = (const unsigned char *)expression;
    source.size = strlen(expression);
    specdec__syntax_prepend_child(s->build, all, specdec__regex_parse(s->build, &source, &none, 1));
}

/* Appends up to two characters of white space to the concatenation `all`. */
static void specdec__tools_append_space(specdec__schema *s, uint32_t all)
{
    specdec__syntax_prepend_child(s->build, all,
                                  specdec__syntax_add_node(s->build, SPECDEC__SYNTAX_REPEAT, s->space_tree, 0, 2));
}

/* Appends the text that a form of calls has between its mark and the name of the tool to the concatenation `all`. */
static void specdec__tools_append_text_before_name(specdec__schema *s, uint32_t all)
{
    const specdec__calls *row = s->calls;
    const char *behind_id = SPECDEC__CALL_TEXT(row, ID_END);

    if (behind_id) { /* an identifier of the call */
        specdec__tools_append_regex(s, all, "[^<]{1,40}");
        specdec__tools_append_text(s, all, behind_id);
    }
    if (row->flags & SPECDEC__CALLS_PATH)
        specdec__tools_append_text(s, all, "functions.");
    if (row->form == SPECDEC__CALLS_PYTHON)
        specdec__tools_append_regex(s, all, "(\\[[ \\n]?)?");
}

/* Appends the text that a form of calls has between the name of the tool and its arguments to the concatenation
   `all`. */
static void specdec__tools_append_text_before_arguments(specdec__schema *s, uint32_t all)
{
    const specdec__calls *row = s->calls;

    if (row->flags & SPECDEC__CALLS_PATH)
        specdec__tools_append_regex(s, all, ":\\d{1,4}");
    if (row->form == SPECDEC__CALLS_CHANNEL) /* the rest of the header */
        specdec__tools_append_regex(s, all, "( ?<\\|channel\\|>commentary)?( ?<\\|constrain\\|>json| json)?");
    specdec__tools_append_text(s, all, SPECDEC__CALL_TEXT(row, NAME_END));
    if (row->form == SPECDEC__CALLS_PAIRS || row->form == SPECDEC__CALLS_NAMED)
        specdec__tools_append_space(s, all);
}

/* Appends the text that a form of calls has behind the arguments to the concatenation `all`. */
static void specdec__tools_append_text_behind_arguments(specdec__schema *s, uint32_t all)
{
    const specdec__calls *row = s->calls;

    if (row->form == SPECDEC__CALLS_PAIRS) {
        specdec__tools_append_space(s, all);
        specdec__tools_append_text(s, all, SPECDEC__CALL_TEXT(row, END));
    } else if (row->form == SPECDEC__CALLS_PYTHON || row->form == SPECDEC__CALLS_BRACES) {
        specdec__literal_append_byte(s, all, row->form == SPECDEC__CALLS_PYTHON ? ')' : '}');
    } else if (row->form == SPECDEC__CALLS_CHANNEL) { /* the message may end with its mark */
        const uint32_t mark = specdec__syntax_add_node(s->build, SPECDEC__SYNTAX_ALL, 0, 0, 0);

        specdec__tools_append_text(s, mark, SPECDEC__CALL_TEXT(row, END));
        specdec__syntax_prepend_child(s->build, all,
                                      specdec__syntax_add_node(s->build, SPECDEC__SYNTAX_REPEAT, mark, 0, 1));
    }
}

/* Returns the syntax tree of a call of a tool, from behind the mark that begins calls to the end of the arguments.
   rule: that of the arguments, 0: the tool has none. */
static uint32_t specdec__tools_call_tree(specdec__schema *s, uint32_t name, uint32_t rule)
{
    specdec__build *b = s->build;
    const specdec__calls *row = s->calls;
    const uint32_t all = specdec__syntax_add_node(b, SPECDEC__SYNTAX_ALL, 0, 0, 0);
    const specdec__bytes raw = specdec__json_value_text(&s->json, name);
    const int json = row->form == SPECDEC__CALLS_JSON;

    if (json) {
        specdec__tools_append_json(s, all, strchr(SPECDEC__CALL_TEXT(row, WRITTEN_BEGIN), '{'));
        specdec__syntax_prepend_child(b, all, specdec__syntax_add_text(b, raw.data + 1, raw.size - 2));
        specdec__literal_append_byte(s, all, '"');
        specdec__tools_append_json(s, all, SPECDEC__CALL_TEXT(row, WRITTEN_MIDDLE) + 1);
    } else {
        size_t size;
        const unsigned char *text;

        b->raw_strings = 1;
        text = specdec__schema_spell_string(s, name, &size);
        b->raw_strings = 0;
        specdec__tools_append_text_before_name(s, all);
        if (text)
            specdec__syntax_prepend_child(b, all, specdec__syntax_add_text(b, text, size));
        specdec__tools_append_text_before_arguments(s, all);
    }
    if (rule)
        specdec__syntax_prepend_child(b, all, specdec__syntax_add_node(b, SPECDEC__SYNTAX_RULE, 0, rule, 0));
    else if (!specdec__tools_arguments_are_not_json(row))
        specdec__tools_append_json(s, all, "{}");
    if (json)
        specdec__tools_append_json(s, all, "}");
    else
        specdec__tools_append_text_behind_arguments(s, all);
    return all;
}

/* Does a form of calls write them as a JSON list, whose bracket is opened before the first object? */
static int specdec__tools_calls_are_list(const specdec__calls *row)
{
    const char *mark = SPECDEC__CALL_TEXT(row, BEGIN), *begin = SPECDEC__CALL_TEXT(row, WRITTEN_BEGIN);
    const size_t size = row->form == SPECDEC__CALLS_JSON ? strlen(mark) : 0;
    const char *from = begin, *object;

    while (strlen(from) >= size && memcmp(from, mark, size) != 0)
        from++;
    from = strlen(from) >= size ? from + size : begin;
    object = strchr(from, '{');
    return row->form == SPECDEC__CALLS_JSON && object && memchr(from, '[', (size_t)(object - from)) != NULL;
}

/* Writes the kinds of all tool arguments (1: string, 2: other JSON, 0: unknown) into the constraint. */
static void specdec__tools_store_argument_kinds(specdec__schema *s)
{
    specdec__build *b = s->build;
    const uint32_t count = s->argument_kinds.count / (SPECDEC__ARGUMENT_KIND_WORDS + 1);
    const uint32_t at = count ? specdec__build_add_words(b, count * SPECDEC__ARGUMENT_KIND_WORDS) : 0;
    uint32_t i;

    for (i = 0; i < count && !b->failed; i++) {
        memcpy(b->words + at + i * SPECDEC__ARGUMENT_KIND_WORDS,
               s->argument_kinds.data + i * (SPECDEC__ARGUMENT_KIND_WORDS + 1), 8);
        b->words[at + i * SPECDEC__ARGUMENT_KIND_WORDS + 2] = specdec__tool_argument_stored_kind(
            s, i * (SPECDEC__ARGUMENT_KIND_WORDS + 1));
    }
    b->argument_kinds = at;
    b->argument_kind_count = b->failed ? 0 : count;
}

/* Gives a splitter the kinds of arguments that a constraint has stored; NULL: none. */
static SPECDEC__UNUSED void specdec__tools_set_splitter_argument_kinds(specdec_splitter *splitter,
                                                                       const specdec_constraint *calls)
{
    splitter->kinds_known = calls ? specdec__constraint_words(calls) + calls->argument_kinds : NULL;
    splitter->kind_count = calls ? (int)calls->argument_kind_count : 0;
}

/* Builds the constraint of tool calls. source->text: a JSON array of tools as in requests of the OpenAI API. */
static void specdec__tools_compile(specdec__schema *s, specdec__build *b, const specdec_constraint_source *source,
                                   size_t size)
{
    const specdec__calls *row = source->calls ? specdec__answer_find_call_row_by_name(source->calls) : NULL;
    uint32_t tool = 0, name, root, any, all, i = 0;
    specdec__vector rules;

    if (!specdec__schema_begin_build(s, b, (const unsigned char *)source->text, size, source->compact))
        return;
    if (!row) {
        specdec__schema_fail_keyword(s, 0, "tools", SPECDEC_ERROR_UNSUPPORTED, "there are no calls of this form");
        return;
    }
    s->calls = row;
    if (specdec__schema_json_node(s, 0)->kind != SPECDEC__JSON_ARRAY || !specdec__schema_json_node(s, 0)->count) {
        specdec__schema_fail_keyword(s, 0, "tools", SPECDEC_ERROR_FORMAT, "there is no list of tools");
        return;
    }
    memset(&rules, 0, sizeof rules);
    root = specdec__build_add_rule(b);
    while (specdec__schema_next_child(s, 0, &tool) && !b->failed) {
        uint32_t schema = specdec__tools_arguments_schema(s, tool, &name), term = schema << 1;

        if (!b->failed && schema && specdec__tools_is_chosen(s, name, source->choices, source->choice_count)) {
            specdec__vector_push(b, &s->documents, schema);
            s->child_style = specdec__tools_arguments_are_not_json(row) ? SPECDEC__STYLE_ARGUMENTS
                             : SPECDEC__STYLE_JSON;
            s->tool = name;
            specdec__vector_push(b, &rules, specdec__schema_conjunction_rule(s, &term, 1));
        } else {
            specdec__vector_push(b, &rules, 0);
        }
    }
    if (b->failed || !specdec__schema_build_conjunctions(s))
        return;
    any = specdec__syntax_add_node(b, SPECDEC__SYNTAX_ANY, 0, 0, 0);
    for (tool = 0; specdec__schema_next_child(s, 0, &tool) && !b->failed; i++) {
        specdec__tools_arguments_schema(s, tool, &name);
        if (specdec__tools_is_chosen(s, name, source->choices, source->choice_count))
            specdec__syntax_prepend_child(b, any, specdec__tools_call_tree(s, name, rules.data[i]));
    }
    if (!b->failed && !b->tree.data[any + SPECDEC__SYNTAX_CHILD]) {
        specdec__build_fail(b, SPECDEC_ERROR_FORMAT, "no tool has such a name");
        return;
    }
    all = specdec__syntax_add_node(b, SPECDEC__SYNTAX_ALL, 0, 0, 0);
    if (row->form != SPECDEC__CALLS_CHANNEL)
        specdec__tools_append_space(s, all);
    if (specdec__tools_calls_are_list(row)) { /* already open before a second call */
        const uint32_t bracket = specdec__syntax_add_node(b, SPECDEC__SYNTAX_ALL, 0, 0, 0);

        specdec__literal_append_byte(s, bracket, '[');
        specdec__literal_append_space(s, bracket);
        specdec__syntax_prepend_child(b, all, specdec__syntax_add_node(b, SPECDEC__SYNTAX_REPEAT, bracket, 0, 1));
    }
    specdec__syntax_prepend_child(b, all, any);
    specdec__syntax_prepend_child(b, all,
                                  specdec__syntax_add_node(b, SPECDEC__SYNTAX_REPEAT, s->space_tree, 0, UINT32_MAX));
    specdec__tools_store_argument_kinds(s);
    if (specdec__build_rule_from_tree(b, root, all))
        specdec__build_finish(b, root, s->allows_space);
}

SPECDEC__FOR_SPEED
