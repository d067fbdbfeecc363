/* =====================================================================================================================
 * >>constraint/compile: compiles constraints from sources of all kinds, and writes the texts of their errors.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../text/json.h"
#include "automaton.h"
#include "build.h"
#include "expression.h"
#include "finish.h"
#include "gbnf.h"
#include "schema.h"
#include "objects.h"
#include "tools.h"

SPECDEC__FOR_SIZE

/* Builds the constraint of a regular expression that the whole text must match. */
static void specdec__compile_regex(specdec__build *b, const unsigned char *text, size_t size)
{
    specdec__source s;
    specdec__vector trees;
    uint32_t rule, tree;

    memset(&s, 0, sizeof s);
    memset(&trees, 0, sizeof trees);
    s.text = text;
    s.size = size;
    b->repeat_limit = 256;
    rule = specdec__build_add_rule(b);
    specdec__vector_push(b, &trees, 0);
    tree = specdec__regex_parse(b, &s, &trees, 1);
    if (b->failed)
        return;
    trees.data[rule] = tree;
    specdec__build_rules(b, &trees);
    if (!b->failed)
        specdec__build_finish(b, rule, 0);
}

/* Builds the constraint of a list of texts, of which one must be written, byte by byte. */
static void specdec__compile_choices(specdec__build *b, const char *const *choices, int count)
{
    uint32_t start, any = UINT32_MAX, at, rule = specdec__build_add_rule(b);
    specdec__dfa d;
    int i;

    start = specdec__nfa_add_state(b, SPECDEC__NFA_ACCEPT, 1, 0);
    for (i = 0; i < count && !b->failed; i++) {
        size_t k;

        for (at = start, k = strlen(choices[i]); k-- > 0 && !b->failed;)
            at = specdec__nfa_add_state(b, SPECDEC__NFA_BYTE | (uint32_t)(unsigned char)choices[i][k] * 0x10100u, at,
                                        0);
        any = specdec__nfa_add_split(b, any, at);
    }
    if (b->failed || !specdec__dfa_build(b, &d, any))
        return;
    at = specdec__dfa_write_records(b, &d, NULL, NULL);
    if (b->failed)
        return;
    b->rules.data[rule] = at;
    specdec__build_finish(b, rule, 0);
}

/* Writes the error of a source to `error`, with its line and column. */
static specdec_result specdec__compile_fail_at_byte(const specdec__build *b, const unsigned char *text, size_t size,
                                                    specdec_error *error)
{
    size_t i, line = 1, column = 1;

    for (i = 0; i < b->error_at && i < size; i++) {
        line += text[i] == '\n';
        column = text[i] == '\n' ? 1 : column + ((text[i] & 0xc0) != 0x80);
    }
    return specdec__fail(error, (specdec_result)b->failed, "line %zu, column %zu: %s", line, column, b->error_text);
}

/* Writes the error of a JSON schema to `error`: the keyword, and the JSON pointer (RFC 6901) of its schema. */
static specdec_result specdec__compile_fail_at_keyword(const specdec__schema *s, specdec_error *error)
{
    char path[160];
    size_t used = 0;
    uint32_t at = 0;
    const specdec__build *b = s->build;

    path[used++] = '#';
    while (at < s->error_node && used < sizeof path - 24) { /* from the root down to the node, name by name */
        uint32_t child = 0, number = 0;

        while (specdec__schema_next_child(s, at, &child)) {
            const uint32_t value = specdec__schema_json_node(s, at)->kind == SPECDEC__JSON_OBJECT ? child + 1 : child;

            if (specdec__schema_json_node(s, value)->next > s->error_node)
                break;
            number++;
        }
        if (!child)
            break;
        path[used++] = '/';
        if (specdec__schema_json_node(s, at)->kind == SPECDEC__JSON_OBJECT) {
            const specdec__bytes raw = specdec__json_value_text(&s->json, child);
            const size_t room = sizeof path - 24 - used, size = raw.size - 2 < room ? raw.size - 2 : room;

            memcpy(path + used, raw.data + 1, size);
            used += size;
            at = child + 1;
        } else {
            specdec__writer w = specdec__writer_to(path + used, 12);

            specdec__write_number(&w, number, 0);
            used += strlen(path + used);
            at = child;
        }
    }
    path[used] = 0;
    return specdec__fail(error, (specdec_result)b->failed, "%s%s%s: %s", s->error_key ? s->error_key : "the schema",
                         " at ", path, b->error_text);
}

/* Compiles a constraint from its source into the caller's block. The reason of a failure is written to `error`. */
static SPECDEC__UNUSED specdec_result specdec__compile_constraint(specdec__build *b,
                                                                  const specdec_constraint_source *source, void *memory,
                                                                  size_t bytes, specdec_error *error)
{
    const unsigned char *text = (const unsigned char *)source->text;
    const size_t size = !text ? 0 : source->length == SPECDEC_WHOLE_STRING ? strlen(source->text) : source->length;
    specdec__schema *s = NULL;

    if (specdec__build_begin(b, memory, bytes)) {
        switch ((int)source->kind) {
        case SPECDEC_CONSTRAINT_GBNF: specdec__gbnf_build(b, text, size); break;
        case SPECDEC_CONSTRAINT_REGEX: specdec__compile_regex(b, text, size); break;
        case SPECDEC_CONSTRAINT_CHOICES: specdec__compile_choices(b, source->choices, source->choice_count); break;
        default:
            s = (specdec__schema *)(void *)specdec__build_reserve_scratch(b, sizeof *s / 4 + 1);
            if (s && source->kind == SPECDEC_CONSTRAINT_TOOLS)
                specdec__tools_compile(s, b, source, size);
            else if (s)
                specdec__schema_compile(s, b, source->kind == SPECDEC_CONSTRAINT_SCHEMA ? text : NULL, size,
                                        source->compact);
        }
    }
    if (!b->failed)
        return SPECDEC_OK;
    if (b->failed == SPECDEC_ERROR_MEMORY)
        return specdec__fail(error, SPECDEC_ERROR_MEMORY, "%zu bytes are too few to compile this in", bytes);
    if (s && s->error_key)
        return specdec__compile_fail_at_keyword(s, error);
    if (s && (b->error_at || !s->json.nodes || s->json.failed))
        return specdec__compile_fail_at_byte(b, text, size, error);
    if (s && s->error_node)
        return specdec__compile_fail_at_keyword(s, error);
    if (text && b->error_at)
        return specdec__compile_fail_at_byte(b, text, size, error);
    return specdec__fail(error, (specdec_result)b->failed, "%s", b->error_text);
}

SPECDEC__FOR_SPEED
