/* =====================================================================================================================
 * >>constraint/schema: JSON schemas: keywords, references, and what a conjunction of schemas allows.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../text/json.h"
#include "../text/answer.h"
#include "automaton.h"
#include "build.h"
#include "expression.h"
#include "strings.h"
#include "numbers.h"

SPECDEC__FOR_SIZE

/* A value is described by a conjunction of terms; a term is a schema, as it stands or negated (node << 1 | negated). To
   build the rule of a conjunction, its terms are taken apart into facts, one keyword each. Keywords with alternatives
   (anyOf, oneOf, not, if ...) become branches. A shape is the set of facts that one choice of an option in every branch
   gives; all combinations are tried in turn. */

/* Types of JSON values, a bit each: null, false and true are types of their own, and so are numbers with a fraction. */
#define SPECDEC__JSON_TYPE_NULL 1u      /* bit of null in a set of types of JSON values */
#define SPECDEC__JSON_TYPE_FALSE 2u     /* bit of false */
#define SPECDEC__JSON_TYPE_TRUE 4u      /* bit of true */
#define SPECDEC__JSON_TYPE_INTEGER 8u   /* bit of numbers that are integers */
#define SPECDEC__JSON_TYPE_FRACTION 16u /* bit of numbers that are no integers */
#define SPECDEC__JSON_TYPE_STRING 32u   /* bit of strings */
#define SPECDEC__JSON_TYPE_ARRAY 64u    /* bit of arrays */
#define SPECDEC__JSON_TYPE_OBJECT 128u  /* bit of objects */
#define SPECDEC__JSON_TYPE_ALL 255u     /* the bits of all types */
#define SPECDEC__JSON_TYPE_NUMBER (SPECDEC__JSON_TYPE_INTEGER | SPECDEC__JSON_TYPE_FRACTION)

/* Kinds of keywords: facts of a shape, branches, and notes, which say nothing about values. */
enum {
    SPECDEC__KEY_NOTE, SPECDEC__KEY_TYPE, SPECDEC__KEY_ENUM, SPECDEC__KEY_CONST, SPECDEC__KEY_MINIMUM,
    SPECDEC__KEY_MAXIMUM, SPECDEC__KEY_ABOVE, SPECDEC__KEY_BELOW, SPECDEC__KEY_MULTIPLE, SPECDEC__KEY_MIN_LENGTH,
    SPECDEC__KEY_MAX_LENGTH, SPECDEC__KEY_PATTERN, SPECDEC__KEY_FORMAT, SPECDEC__KEY_ITEMS,
    SPECDEC__KEY_ADDITIONAL_ITEMS, SPECDEC__KEY_MIN_ITEMS, SPECDEC__KEY_MAX_ITEMS, SPECDEC__KEY_UNIQUE,
    SPECDEC__KEY_PROPERTIES,
    SPECDEC__KEY_MEMBERS, /* patternProperties and additionalProperties, handled together with properties */
    SPECDEC__KEY_REQUIRED, SPECDEC__KEY_MIN_PROPERTIES, SPECDEC__KEY_MAX_PROPERTIES, SPECDEC__KEY_NAMES,
    SPECDEC__KEY_REF, SPECDEC__KEY_ALL, SPECDEC__KEY_ANY, SPECDEC__KEY_ONE, SPECDEC__KEY_NOT, SPECDEC__KEY_IF,
    SPECDEC__KEY_BRANCH, /* then and else, handled together with if */
    SPECDEC__KEY_DEPENDENT, SPECDEC__KEY_NEVER,
    /* kinds of facts without a keyword of their own */
    SPECDEC__FACT_ABSENT, /* an object has no member whose name is at this node */
    SPECDEC__FACT_MEMBER, /* the member whose name is at this node obeys a term */
    SPECDEC__FACT_PRESENT /* an object has a member whose name is at this node */
};

/* Keywords, with the types of values that they restrict. Schemas with a keyword of kind NEVER are refused. */
static const struct specdec__keyword {
    const char *name;          /* as schemas spell the keyword */
    unsigned char kind, types; /* SPECDEC__KEY_...; bits SPECDEC__JSON_TYPE_... of the values that it restricts */
} specdec__keywords[] = {
    {"type", SPECDEC__KEY_TYPE, 255}, {"enum", SPECDEC__KEY_ENUM, 255}, {"const", SPECDEC__KEY_CONST, 255},
    {"minimum", SPECDEC__KEY_MINIMUM, SPECDEC__JSON_TYPE_NUMBER},
    {"maximum", SPECDEC__KEY_MAXIMUM, SPECDEC__JSON_TYPE_NUMBER},
    {"exclusiveMinimum", SPECDEC__KEY_ABOVE, SPECDEC__JSON_TYPE_NUMBER},
    {"exclusiveMaximum", SPECDEC__KEY_BELOW, SPECDEC__JSON_TYPE_NUMBER},
    {"multipleOf", SPECDEC__KEY_MULTIPLE, SPECDEC__JSON_TYPE_NUMBER},
    {"divisibleBy", SPECDEC__KEY_NOTE, SPECDEC__JSON_TYPE_NUMBER},
    {"minLength", SPECDEC__KEY_MIN_LENGTH, SPECDEC__JSON_TYPE_STRING},
    {"maxLength", SPECDEC__KEY_MAX_LENGTH, SPECDEC__JSON_TYPE_STRING},
    {"pattern", SPECDEC__KEY_PATTERN, SPECDEC__JSON_TYPE_STRING},
    {"format", SPECDEC__KEY_FORMAT, SPECDEC__JSON_TYPE_STRING},
    {"items", SPECDEC__KEY_ITEMS, SPECDEC__JSON_TYPE_ARRAY},
    {"prefixItems", SPECDEC__KEY_ITEMS, SPECDEC__JSON_TYPE_ARRAY},
    {"additionalItems", SPECDEC__KEY_ADDITIONAL_ITEMS, SPECDEC__JSON_TYPE_ARRAY},
    {"minItems", SPECDEC__KEY_MIN_ITEMS, SPECDEC__JSON_TYPE_ARRAY},
    {"maxItems", SPECDEC__KEY_MAX_ITEMS, SPECDEC__JSON_TYPE_ARRAY},
    {"uniqueItems", SPECDEC__KEY_UNIQUE, SPECDEC__JSON_TYPE_ARRAY},
    {"contains", SPECDEC__KEY_NEVER, SPECDEC__JSON_TYPE_ARRAY},
    {"unevaluatedItems", SPECDEC__KEY_NEVER, SPECDEC__JSON_TYPE_ARRAY},
    {"properties", SPECDEC__KEY_PROPERTIES, SPECDEC__JSON_TYPE_OBJECT},
    {"patternProperties", SPECDEC__KEY_MEMBERS, SPECDEC__JSON_TYPE_OBJECT},
    {"additionalProperties", SPECDEC__KEY_MEMBERS, SPECDEC__JSON_TYPE_OBJECT},
    {"unevaluatedProperties", SPECDEC__KEY_NEVER, SPECDEC__JSON_TYPE_OBJECT},
    {"required", SPECDEC__KEY_REQUIRED, SPECDEC__JSON_TYPE_OBJECT},
    {"minProperties", SPECDEC__KEY_MIN_PROPERTIES, SPECDEC__JSON_TYPE_OBJECT},
    {"maxProperties", SPECDEC__KEY_MAX_PROPERTIES, SPECDEC__JSON_TYPE_OBJECT},
    {"propertyNames", SPECDEC__KEY_NAMES, SPECDEC__JSON_TYPE_OBJECT},
    {"$ref", SPECDEC__KEY_REF, 255}, {"allOf", SPECDEC__KEY_ALL, 255}, {"anyOf", SPECDEC__KEY_ANY, 255},
    {"oneOf", SPECDEC__KEY_ONE, 255}, {"not", SPECDEC__KEY_NOT, 255}, {"if", SPECDEC__KEY_IF, 255},
    {"then", SPECDEC__KEY_BRANCH, 255}, {"else", SPECDEC__KEY_BRANCH, 255},
    {"dependencies", SPECDEC__KEY_DEPENDENT, SPECDEC__JSON_TYPE_OBJECT},
    {"dependentRequired", SPECDEC__KEY_DEPENDENT, SPECDEC__JSON_TYPE_OBJECT},
    {"dependentSchemas", SPECDEC__KEY_DEPENDENT, SPECDEC__JSON_TYPE_OBJECT},
    {"$dynamicRef", SPECDEC__KEY_NEVER, 255}, {"$recursiveRef", SPECDEC__KEY_NEVER, 255},
    {"extends", SPECDEC__KEY_NEVER, 255}, {"disallow", SPECDEC__KEY_NEVER, 255}};

/* Styles: how the values of a conjunction are written, as JSON or as arguments of tool calls. */
enum {
    SPECDEC__STYLE_JSON,
    SPECDEC__STYLE_ARGUMENTS, /* an object as the arguments of a call, without brackets around it */
    SPECDEC__STYLE_TEXT,      /* a raw string, and the mark behind it */
    SPECDEC__STYLE_REST,      /* JSON, but no string */
    SPECDEC__STYLE_LITERAL    /* JSON with Python's True, False, None; or strings between marks and names without
                                 quotes */
};

/* Words of a conjunction: index of its first term, number of terms, rule, style, node of the name of the tool whose
   arguments it describes. */
enum {
    SPECDEC__CONJUNCTION_FIRST, SPECDEC__CONJUNCTION_COUNT, SPECDEC__CONJUNCTION_RULE, SPECDEC__CONJUNCTION_STYLE,
    SPECDEC__CONJUNCTION_TOOL, SPECDEC__CONJUNCTION_WORDS
};

/* Most branches within each other; most shapes of a conjunction; most patternProperties of an object. */
enum { SPECDEC__BRANCH_DEPTH_MOST = 48, SPECDEC__SHAPES_MOST = 512, SPECDEC__PATTERNS_MOST = 12 };

/* A fact: a keyword of a schema, or its negation, that the values of a shape must obey. */
typedef struct specdec__fact {
    uint32_t kind;  /* the keyword: SPECDEC__KEY_..., or SPECDEC__FACT_... */
    uint32_t node;  /* JSON node of the keyword's value */
    uint32_t owner; /* JSON node of the schema that has the keyword */
    uint32_t more;  /* 1: the keyword is negated. Of FACT_MEMBER and branches: the term of the member or branch */
} specdec__fact;

/* JSON schemas that are being compiled: their parsed text, the conjunctions found so far, the shape that is being
   made. */
typedef struct specdec__schema {
    specdec__build *build; /* the constraint that is being built */
    specdec__json json;    /* the parsed text of the schemas */
    int legacy_refs;       /* 1: JSON Schema up to draft 7: keywords beside $ref are ignored */
    int allows_space;      /* 1: white space is allowed between the tokens of JSON */
    uint32_t error_node;   /* JSON node of the schema that has caused the error */
    const char *error_key; /* keyword that has caused the error */
    specdec__vector terms;                       /* terms of all conjunctions, one after the other */
    specdec__vector conjunctions;                /* SPECDEC__CONJUNCTION_WORDS words for each conjunction */
    specdec__vector facts, branches;             /* of the current shape; 4 words each, as specdec__fact */
    specdec__vector pending_terms, split_terms;  /* terms of the current shape: to be split into facts; already split */
    uint32_t types;                              /* SPECDEC__JSON_TYPE_... bits that the current shape allows */
    uint32_t branch_index, depth; /* the branch whose options are tried; branches within each other */
    uint32_t shapes;              /* shapes of the current conjunction so far */
    uint32_t keywords_seen;       /* bits of keywords of the current schema that are handled together */
    /* the rule that is being built: */
    uint32_t free_types;          /* SPECDEC__JSON_TYPE_... bits of types that a shape allows without restriction */
    specdec__vector literals;     /* JSON nodes of listed values (enum, const) */
    specdec__vector alternatives; /* first state of each alternative of the rule */
    uint32_t number_rule, integer_rule; /* rules of any JSON number, any integer */
    specdec__dfa string_dfa;            /* DFA of any JSON string, between its quotes */
    uint32_t *string_states;      /* state of the constraint for each state of string_dfa */
    uint32_t space_tree;          /* syntax tree of white space between tokens of JSON */
    uint32_t end_state;           /* a state in which a rule can only end */
    specdec__vector documents;    /* nodes of schemas that are documents of their own: references in them begin there */
    specdec__vector value_states; /* for each rule, states behind and in front of the colon before a value; 0: none */
    /* tool calls in forms other than JSON: */
    const specdec__calls *calls;       /* how the model writes tool calls */
    uint32_t style, child_style, tool; /* style of the current conjunction, of its members and items; its tool's name */
    uint32_t raw_string_rule;          /* rule of any raw string with its marks; 0: not built yet */
    int ambiguous, may_be_empty;       /* 1: a string could be read as another value; 1: a call may have no arguments */
    specdec__vector argument_kinds;    /* SPECDEC__ARGUMENT_KIND_WORDS words for each argument, and its strings' rule */
} specdec__schema;

/* Refuses the schema at JSON node owner because of a keyword: stores the error. Returns 0. */
static int specdec__schema_fail_keyword(specdec__schema *s, uint32_t owner, const char *key, int code, const char *why)
{
    if (!s->build->failed) {
        s->error_node = owner;
        s->error_key = key;
    }
    return specdec__build_fail(s->build, code, why);
}

/* Returns a JSON node of the schema's text by its index. */
static const specdec__json_node *specdec__schema_json_node(const specdec__schema *s, uint32_t node)
{
    return &s->json.nodes[node];
}

/* Returns the JSON node of the value of an object's member; 0: there is no such member. */
static uint32_t specdec__schema_get_member(const specdec__schema *s, uint32_t object, const char *name)
{
    return (uint32_t)specdec__json_find_member(&s->json, object, name);
}

/* Steps *at to the next name of a JSON object or the next item of an array; *at is 0 before the first. Returns its
   node; 0 behind the last. */
static uint32_t specdec__schema_next_child(const specdec__schema *s, uint32_t parent, uint32_t *at)
{
    const specdec__json_node *node = specdec__schema_json_node(s, parent);

    if (!*at)
        *at = parent + 1;
    else
        *at = specdec__schema_json_node(s, node->kind == SPECDEC__JSON_OBJECT ? *at + 1 : *at)->next;
    return *at < node->next ? *at : 0;
}

/* Are the values at two JSON nodes equal by the rules of JSON Schema? Numbers are compared by value, objects in any
   order. */
static int specdec__json_equal(specdec__schema *s, uint32_t a, uint32_t c)
{
    const specdec__json_node *x = specdec__schema_json_node(s, a), *y = specdec__schema_json_node(s, c);
    uint32_t i, p = a + 1, q = c + 1;

    if (x->kind != y->kind || !specdec__build_count_work(s->build, 1))
        return 0;
    if (x->kind == SPECDEC__JSON_NUMBER) {
        specdec__decimal one, two;

        if (!specdec__decimal_read(specdec__json_value_text(&s->json, a), &one) ||
            !specdec__decimal_read(specdec__json_value_text(&s->json, c), &two))
            return 0;
        return !specdec__decimal_compare(&one, &two);
    }
    if (x->kind == SPECDEC__JSON_STRING) {
        char *text;
        size_t size;

        if (!x->escaped)
            return specdec__json_string_equals(&s->json, c, (const char *)s->json.text + x->from + 1,
                                               x->to - x->from - 2u);
        text = (char *)specdec__build_reserve_scratch(s->build, (x->to - x->from) / 4 + 1);
        if (!text)
            return 0;
        size = specdec__json_string_value(&s->json, a, text, x->to - x->from);
        return specdec__json_string_equals(&s->json, c, text, size);
    }
    if (x->kind < SPECDEC__JSON_NUMBER)
        return 1;
    if (x->count != y->count)
        return 0;
    for (i = 0; i < x->count; i++) {
        if (x->kind == SPECDEC__JSON_ARRAY) {
            if (!specdec__json_equal(s, p, q))
                return 0;
            p = specdec__schema_json_node(s, p)->next;
            q = specdec__schema_json_node(s, q)->next;
            continue;
        }
        for (q = c + 1; q < y->next && !specdec__json_equal(s, p, q); q = specdec__schema_json_node(s, q + 1)->next)
            if (!specdec__build_count_work(s->build, 1))
                return 0;
        if (q >= y->next || !specdec__json_equal(s, p + 1, q + 1))
            return 0;
        p = specdec__schema_json_node(s, p + 1)->next;
    }
    return 1;
}

/* Returns the JSON node of the value of an object's member whose name equals the string at node `name`; 0: there is no
   such member. */
static uint32_t specdec__schema_find_equal_member(specdec__schema *s, uint32_t object, uint32_t name)
{
    uint32_t at = 0, found = 0;

    if (!object || specdec__schema_json_node(s, object)->kind != SPECDEC__JSON_OBJECT)
        return 0;
    while (specdec__schema_next_child(s, object, &at) && specdec__build_count_work(s->build, 1))
        if (at == name || specdec__json_equal(s, at, name))
            found = at + 1;
    return found;
}

/* Returns the count in a fact, such as maxItems, at most UINT32_MAX - 1. A value that is no count, or negative, is an
   error. */
static uint32_t specdec__schema_read_count(specdec__schema *s, const specdec__fact *fact)
{
    int64_t value;

    if (!specdec__json_read_integer(&s->json, fact->node, &value) || value < 0) {
        specdec__schema_fail_keyword(s, fact->node, NULL, SPECDEC_ERROR_FORMAT, "this must be a number of things");
        return 0;
    }
    return value < UINT32_MAX - 1 ? (uint32_t)value : UINT32_MAX - 1;
}

/* Returns the SPECDEC__JSON_TYPE_... bit of the value at a JSON node. */
static uint32_t specdec__schema_type_bit_of_value(specdec__schema *s, uint32_t node)
{
    static const unsigned char types[] = {1, 2, 4, 0, 32, 64, 128};
    const uint32_t kind = specdec__schema_json_node(s, node)->kind;
    specdec__decimal d;

    if (kind != SPECDEC__JSON_NUMBER)
        return types[kind];
    return specdec__decimal_read(specdec__json_value_text(&s->json, node), &d) && d.fraction
               ? SPECDEC__JSON_TYPE_FRACTION
               : SPECDEC__JSON_TYPE_INTEGER;
}

/* Returns the SPECDEC__JSON_TYPE_... bits of the type's name, or list of such names, at a JSON node. */
static uint32_t specdec__schema_read_type_bits(specdec__schema *s, uint32_t node)
{
    static const char *const names[] = {"null", "boolean", "integer", "number", "string", "array", "object", "any"};
    static const unsigned char types[] = {1, 6, 8, 24, 32, 64, 128, 255};
    uint32_t i, at = 0, all = 0;

    if (specdec__schema_json_node(s, node)->kind == SPECDEC__JSON_ARRAY) {
        while (specdec__schema_next_child(s, node, &at) && !s->build->failed)
            all |= specdec__schema_json_node(s, at)->kind == SPECDEC__JSON_STRING
                       ? specdec__schema_read_type_bits(s, at)
                       : (uint32_t)specdec__schema_fail_keyword(s, node, NULL, SPECDEC_ERROR_FORMAT,
                                                                "a type that is not known");
        return all;
    }
    for (i = 0; i < 8; i++)
        if (specdec__json_string_equals(&s->json, node, names[i], strlen(names[i])))
            return types[i];
    return (uint32_t)specdec__schema_fail_keyword(s, node, NULL, SPECDEC_ERROR_FORMAT, "a type that is not known");
}

/* ---- References. */

/* Follows a JSON pointer (RFC 6901), percent-encoded as in a URI, from the schema at a JSON node. Returns the node that
   it leads to; *found: 0 when it leads nowhere. */
static uint32_t specdec__schema_follow_pointer(specdec__schema *s, uint32_t node, const unsigned char *at, size_t size,
                                               int *found)
{
    char name[512];

    *found = 1;
    while (size) {
        size_t count = 0;
        uint32_t item = 0, i;

        if (*at != '/')
            return (uint32_t)(*found = 0);
        for (at++, size--; size && *at != '/'; at++, size--) {
            int c = *at;

            if (c == '%' && size > 2 && specdec__hex_digit_value(at[1]) >= 0 && specdec__hex_digit_value(at[2]) >= 0) {
                c = specdec__hex_digit_value(at[1]) * 16 + specdec__hex_digit_value(at[2]);
                at += 2;
                size -= 2;
            }
            if (c == '~' && size > 1 && (at[1] == '0' || at[1] == '1')) {
                c = at[1] == '0' ? '~' : '/';
                at++;
                size--;
            }
            if (count == sizeof name)
                return (uint32_t)(*found = 0);
            name[count++] = (char)c;
        }
        if (specdec__schema_json_node(s, node)->kind == SPECDEC__JSON_OBJECT) {
            uint32_t place = 0;

            while (specdec__schema_next_child(s, node, &place))
                if (specdec__json_string_equals(&s->json, place, name, count))
                    item = place + 1;
        } else if (specdec__schema_json_node(s, node)->kind == SPECDEC__JSON_ARRAY) {
            uint32_t number = 0;

            for (i = 0; i < count && name[i] >= '0' && name[i] <= '9' && number < 1u << 20; i++)
                number = number * 10 + (uint32_t)(name[i] - '0');
            if (i == count && number < specdec__schema_json_node(s, node)->count)
                for (item = node + 1; number; number--)
                    item = specdec__schema_json_node(s, item)->next;
        }
        if (!item || !specdec__build_count_work(s->build, 8))
            return (uint32_t)(*found = 0);
        node = item;
    }
    return node;
}

/* Returns the JSON node of a schema's $id (or id); 0: it has none. */
static uint32_t specdec__schema_get_id(const specdec__schema *s, uint32_t node)
{
    uint32_t id = specdec__schema_get_member(s, node, "$id");

    if (!id)
        id = specdec__schema_get_member(s, node, "id");
    return id && specdec__schema_json_node(s, id)->kind == SPECDEC__JSON_STRING ? id : 0;
}

/* Returns the JSON node of the schema whose $id ends like a reference (its last path segment), or (anchor) whose
   $anchor is the text; 0: there is none. */
static uint32_t specdec__schema_find_id(specdec__schema *s, const unsigned char *text, size_t size, int anchor)
{
    uint32_t node, best = UINT32_MAX;
    size_t from = size;

    while (!anchor && from && text[from - 1] != '/')
        from--;
    for (node = 0; node < s->json.count && specdec__build_count_work(s->build, 1); node++) {
        uint32_t id, name;
        specdec__bytes raw;

        if (specdec__schema_json_node(s, node)->kind != SPECDEC__JSON_OBJECT)
            continue;
        name = anchor ? specdec__schema_get_member(s, node, "$anchor") : 0;
        if (name && specdec__json_string_equals(&s->json, name, (const char *)text, size))
            return node;
        id = specdec__schema_get_id(s, node);
        if (!id)
            continue;
        raw = specdec__json_value_text(&s->json, id);
        raw.data++;
        raw.size -= 2;
        if (raw.size && raw.data[raw.size - 1] == '#')
            raw.size--;
        if (anchor) {
            if (raw.size == size + 1 && raw.data[0] == '#' && memcmp(raw.data + 1, text, size) == 0)
                return node;
        } else if (raw.size == size && memcmp(raw.data, text, size) == 0) {
            return node;
        } else if (raw.size >= size - from && size > from &&
                   memcmp(raw.data + raw.size - (size - from), text + from, size - from) == 0 &&
                   (raw.size == size - from || raw.data[raw.size - (size - from) - 1] == '/') && best == UINT32_MAX &&
                   (!from || raw.size == size - from)) {
            best = node;
        }
    }
    return best;
}

/* Is a schema a document of its own within the text, such as the parameters of a tool? */
static int specdec__schema_is_document(const specdec__schema *s, uint32_t node)
{
    uint32_t i;

    for (i = 0; i < s->documents.count; i++)
        if (s->documents.data[i] == node)
            return 1;
    return 0;
}

/* Returns the innermost schema around a JSON node that has an $id or is a document of its own, where fragments of
   references begin; 0: the whole text. */
static uint32_t specdec__schema_find_resource(specdec__schema *s, uint32_t node)
{
    uint32_t at, base = 0;

    for (at = 0; at < node && specdec__build_count_work(s->build, 1); at++)
        if (specdec__schema_json_node(s, at)->next > node &&
            specdec__schema_json_node(s, at)->kind == SPECDEC__JSON_OBJECT && at != 0) {
            const uint32_t id = specdec__schema_get_id(s, at);

            if ((id && s->json.text[specdec__schema_json_node(s, id)->from + 1] != '#') ||
                specdec__schema_is_document(s, at))
                base = at;
        } else if (specdec__schema_json_node(s, at)->next <= node &&
                   specdec__schema_json_node(s, at)->kind >= SPECDEC__JSON_ARRAY) {
            at = specdec__schema_json_node(s, at)->next - 1; /* passes over values that do not contain the node */
        }
    return base;
}

/* Returns the JSON node of the schema that a $ref names. */
static uint32_t specdec__schema_find_ref(specdec__schema *s, uint32_t owner, uint32_t ref)
{
    const specdec__bytes raw = specdec__json_value_text(&s->json, ref);
    const unsigned char *text = raw.data + 1;
    size_t size = raw.size - 2, hash = 0;
    uint32_t node;
    int found = 1;

    if (specdec__schema_json_node(s, ref)->kind != SPECDEC__JSON_STRING)
        return (uint32_t)specdec__schema_fail_keyword(s, owner, "$ref", SPECDEC_ERROR_FORMAT, "it is no string");
    while (hash < size && text[hash] != '#')
        hash++;
    node = hash ? specdec__schema_find_id(s, text, hash, 0) : specdec__schema_find_resource(s, owner);
    if (node != UINT32_MAX && hash < size) {
        const unsigned char *fragment = text + hash + 1;
        const size_t rest = size - hash - 1;
        const uint32_t base = node;

        if (!rest || *fragment == '/') {
            node = specdec__schema_follow_pointer(s, base, fragment, rest, &found);
            if (!found && base)
                node = specdec__schema_follow_pointer(s, 0, fragment, rest, &found);
        } else {
            node = specdec__schema_find_id(s, fragment, rest, 1);
        }
    }
    if (node == UINT32_MAX || !found)
        return (uint32_t)specdec__schema_fail_keyword(s, owner, "$ref", SPECDEC_ERROR_UNSUPPORTED,
                                                      "it leads nowhere in this text");
    return node;
}

/* ---- Facts, branches and terms of a shape. */

/* Appends a fact or branch, four words, to a vector. */
static void specdec__schema_push_fact(specdec__schema *s, specdec__vector *v, uint32_t kind, uint32_t node,
                                      uint32_t owner, uint32_t more)
{
    const uint32_t at = specdec__vector_extend(s->build, v, 4);

    if (at == UINT32_MAX)
        return;
    v->data[at] = kind;
    v->data[at + 1] = node;
    v->data[at + 2] = owner;
    v->data[at + 3] = more;
}

/* Adds a fact to the current shape. */
static void specdec__schema_add_fact(specdec__schema *s, uint32_t kind, uint32_t node, uint32_t owner, uint32_t more)
{
    specdec__schema_push_fact(s, &s->facts, kind, node, owner, more);
}

/* Returns fact or branch number i of a vector. */
static specdec__fact specdec__schema_get_fact(const specdec__vector *v, uint32_t i)
{
    specdec__fact fact;

    fact.kind = v->data[4 * i];
    fact.node = v->data[4 * i + 1];
    fact.owner = v->data[4 * i + 2];
    fact.more = v->data[4 * i + 3];
    return fact;
}

/* Adds a schema, or its negation, to the terms of the shape that are still to be split into facts. */
static void specdec__schema_add_term(specdec__schema *s, uint32_t node, uint32_t negated)
{
    specdec__vector_push(s->build, &s->pending_terms, node << 1 | negated);
}

/* Returns the row of specdec__keywords whose name is at a JSON node; NULL: the name is no keyword but a note. */
static const struct specdec__keyword *specdec__schema_find_keyword(const specdec__schema *s, uint32_t name)
{
    const specdec__bytes raw = specdec__json_value_text(&s->json, name);
    size_t i;

    for (i = 0; i < SPECDEC__COUNT(specdec__keywords); i++) {
        const char *known = specdec__keywords[i].name;

        if (raw.data[1] == (unsigned char)known[0] && raw.size - 2 == strlen(known) &&
            memcmp(raw.data + 1, known, raw.size - 2) == 0)
            return &specdec__keywords[i];
    }
    return NULL;
}

/* Does a schema by itself allow every value? */
static int specdec__schema_allows_everything(const specdec__schema *s, uint32_t node)
{
    uint32_t at = 0;

    if (specdec__schema_json_node(s, node)->kind == SPECDEC__JSON_TRUE)
        return 1;
    if (specdec__schema_json_node(s, node)->kind != SPECDEC__JSON_OBJECT)
        return 0;
    while (specdec__schema_next_child(s, node, &at)) {
        const struct specdec__keyword *key = specdec__schema_find_keyword(s, at);

        if (key && key->kind != SPECDEC__KEY_NOTE)
            return 0;
    }
    return 1;
}

/* Turns a keyword of a schema that must hold into a fact, a branch, a term, or types of the shape. */
static void specdec__schema_apply_keyword(specdec__schema *s, uint32_t owner, uint32_t name,
                                          const struct specdec__keyword *key)
{
    const uint32_t node = name + 1;
    const uint32_t value = specdec__schema_json_node(s, node)->kind;
    uint32_t at = 0;

    switch (key->kind) {
    case SPECDEC__KEY_NOTE: case SPECDEC__KEY_BRANCH: break;
    case SPECDEC__KEY_TYPE: s->types &= specdec__schema_read_type_bits(s, node); break;
    case SPECDEC__KEY_REF: specdec__schema_add_term(s, specdec__schema_find_ref(s, owner, node), 0); break;
    case SPECDEC__KEY_NOT: specdec__schema_add_term(s, node, 1); break;
    case SPECDEC__KEY_ALL:
        if (value != SPECDEC__JSON_ARRAY)
            specdec__schema_fail_keyword(s, owner, key->name, SPECDEC_ERROR_FORMAT, "it is no array");
        while (!s->build->failed && specdec__schema_next_child(s, node, &at))
            specdec__schema_add_term(s, at, 0);
        break;
    case SPECDEC__KEY_ANY: case SPECDEC__KEY_ONE:
        if (value != SPECDEC__JSON_ARRAY || !specdec__schema_json_node(s, node)->count)
            specdec__schema_fail_keyword(s, owner, key->name, SPECDEC_ERROR_FORMAT, "it is no array of schemas");
        specdec__schema_push_fact(s, &s->branches, key->kind, node, owner, 0);
        break;
    case SPECDEC__KEY_IF:
        if (specdec__schema_get_member(s, owner, "then") || specdec__schema_get_member(s, owner, "else"))
            specdec__schema_push_fact(s, &s->branches, key->kind, node, owner, 0);
        break;
    case SPECDEC__KEY_DEPENDENT:
        if (value != SPECDEC__JSON_OBJECT)
            specdec__schema_fail_keyword(s, owner, key->name, SPECDEC_ERROR_FORMAT, "it is no object");
        while (!s->build->failed && specdec__schema_next_child(s, node, &at))
            specdec__schema_push_fact(s, &s->branches, key->kind, at, owner, 0);
        break;
    case SPECDEC__KEY_ENUM:
        if (value != SPECDEC__JSON_ARRAY)
            specdec__schema_fail_keyword(s, owner, key->name, SPECDEC_ERROR_FORMAT, "it is no array");
        specdec__schema_add_fact(s, key->kind, node, owner, 0);
        break;
    case SPECDEC__KEY_PROPERTIES: case SPECDEC__KEY_MEMBERS: /* one fact for all three keywords of a schema */
        if (key->name[0] != 'a' && value != SPECDEC__JSON_OBJECT)
            specdec__schema_fail_keyword(s, owner, key->name, SPECDEC_ERROR_FORMAT, "it is no object");
        if (!(s->keywords_seen & 1))
            specdec__schema_add_fact(s, SPECDEC__KEY_PROPERTIES, node, owner, 0);
        s->keywords_seen |= 1;
        break;
    case SPECDEC__KEY_ITEMS: case SPECDEC__KEY_ADDITIONAL_ITEMS:
        if (!(s->keywords_seen & 2))
            specdec__schema_add_fact(s, SPECDEC__KEY_ITEMS, node, owner, 0);
        s->keywords_seen |= 2;
        break;
    default: specdec__schema_add_fact(s, key->kind, node, owner, 0);
    }
}

/* Splits a term into the facts, branches and terms of its keywords. A negated schema becomes a branch, whose options
   negate one of its keywords each. */
static void specdec__schema_split_term(specdec__schema *s, uint32_t term)
{
    const uint32_t node = term >> 1, negated = term & 1, kind = specdec__schema_json_node(s, node)->kind;
    uint32_t at = 0, i, ref;

    for (i = 0; i < s->split_terms.count; i++)
        if (s->split_terms.data[i] == term)
            return;
    specdec__vector_push(s->build, &s->split_terms, term);
    if (kind == SPECDEC__JSON_TRUE || kind == SPECDEC__JSON_FALSE) {
        if ((kind == SPECDEC__JSON_FALSE) != (negated != 0))
            s->types = 0;
        return;
    }
    if (kind != SPECDEC__JSON_OBJECT) {
        specdec__schema_fail_keyword(s, node, NULL, SPECDEC_ERROR_FORMAT, "a schema is an object, true or false");
        return;
    }
    if (negated) {
        specdec__schema_push_fact(s, &s->branches, SPECDEC__KEY_NOT, node, node, 0);
        return;
    }
    ref = s->legacy_refs ? specdec__schema_get_member(s, node, "$ref") : 0;
    if (ref) {
        specdec__schema_add_term(s, specdec__schema_find_ref(s, node, ref), 0);
        return;
    }
    s->keywords_seen = 0;
    while (!s->build->failed && specdec__schema_next_child(s, node, &at) && specdec__build_count_work(s->build, 4)) {
        const struct specdec__keyword *key = specdec__schema_find_keyword(s, at);

        if (key)
            specdec__schema_apply_keyword(s, node, at, key);
    }
}

/* ---- Branches. A function applies option i of a branch: it adds the terms and facts that the option needs, and
   returns 1; it returns 0 when there are fewer options. An option that no value can meet sets s->types = 0. */

/* Applies option i of a branch: schema i of an array must hold, as it stands or negated (anyOf; not allOf). */
static int specdec__schema_apply_any_of(specdec__schema *s, uint32_t array, uint32_t i, uint32_t negated)
{
    uint32_t at = 0;

    do {
        if (!specdec__schema_next_child(s, array, &at))
            return 0;
    } while (i--);
    specdec__schema_add_term(s, at, negated);
    return 1;
}

static int specdec__schema_is_disjoint(specdec__schema *s, uint32_t a, uint32_t c, int depth);

/* Applies option i of oneOf: schema i holds, and all others are negated, except those that can never hold together with
   it. */
static int specdec__schema_apply_one_of(specdec__schema *s, const specdec__fact *branch, uint32_t i)
{
    uint32_t at = 0, mine = 0, k = 0;

    while (specdec__schema_next_child(s, branch->node, &at))
        if (k++ == i)
            mine = at;
    if (!mine)
        return 0;
    specdec__schema_add_term(s, mine, 0);
    for (at = 0, k = 0; specdec__schema_next_child(s, branch->node, &at) && !s->build->failed; k++)
        if (k != i && !specdec__schema_is_disjoint(s, mine, at, 0))
            specdec__schema_add_term(s, at, 1);
    return 1;
}

/* Applies option i of if, then and else. Option 0: the schema of `if` holds, and `then`; option 1: `if` is negated, and
   `else` holds. negated: `then` or `else` is negated. */
static int specdec__schema_apply_if(specdec__schema *s, const specdec__fact *branch, uint32_t i, uint32_t negated)
{
    const uint32_t then = specdec__schema_get_member(s, branch->owner, i ? "else" : "then");

    if (i > 1)
        return 0;
    specdec__schema_add_term(s, branch->node, i);
    if (then)
        specdec__schema_add_term(s, then, negated);
    else if (negated)
        s->types = 0;
    return 1;
}

/* Applies option i of a keyword by which a member requires other members or a schema. Option 0: the member is absent;
   1: its requirements hold. negated: the member is present, and a requirement does not hold. */
static int specdec__schema_apply_dependent(specdec__schema *s, const specdec__fact *branch, uint32_t i,
                                           uint32_t negated)
{
    const uint32_t value = branch->node + 1, array = specdec__schema_json_node(s, value)->kind == SPECDEC__JSON_ARRAY;
    uint32_t at = 0;

    if (negated) { /* option i: required name i is absent */
        s->types &= SPECDEC__JSON_TYPE_OBJECT;
        specdec__schema_add_fact(s, SPECDEC__FACT_PRESENT, branch->node, branch->owner, 0);
        if (!array) {
            specdec__schema_add_term(s, value, 1);
            return !i;
        }
        do {
            if (!specdec__schema_next_child(s, value, &at))
                return 0;
        } while (i--);
        specdec__schema_add_fact(s, SPECDEC__FACT_ABSENT, at, branch->owner, 0);
        return 1;
    }
    if (!i) {
        specdec__schema_add_fact(s, SPECDEC__FACT_ABSENT, branch->node, branch->owner, 0);
        return 1;
    }
    s->types &= SPECDEC__JSON_TYPE_OBJECT; /* other types are in option 0 */
    specdec__schema_add_fact(s, SPECDEC__FACT_PRESENT, branch->node, branch->owner, 0);
    if (array)
        while (specdec__schema_next_child(s, value, &at))
            specdec__schema_add_fact(s, SPECDEC__FACT_PRESENT, at, branch->owner, 0);
    else if (specdec__schema_json_node(s, value)->kind == SPECDEC__JSON_STRING)
        specdec__schema_add_fact(s, SPECDEC__FACT_PRESENT, value, branch->owner, 0);
    else
        specdec__schema_add_term(s, value, 0);
    return i == 1;
}

/* Applies option i of a negated oneOf. Option 0: no schema holds; others: two schemas hold, one option for each
   pair. */
static int specdec__schema_apply_not_one_of(specdec__schema *s, uint32_t array, uint32_t i)
{
    const uint32_t count = specdec__schema_json_node(s, array)->count;
    uint32_t at = 0, k, l;

    if (!i) {
        while (specdec__schema_next_child(s, array, &at))
            specdec__schema_add_term(s, at, 1);
        return 1;
    }
    for (i--, k = 0; k < count && i >= count - 1 - k; k++)
        i -= count - 1 - k;
    if (k >= count)
        return 0;
    for (l = 0; specdec__schema_next_child(s, array, &at); l++)
        if (l == k || l == k + 1 + i)
            specdec__schema_add_term(s, at, 0);
    return 1;
}

/* Adds alternative i of a keyword's negation to the shape that is being made: the facts and terms that a value must
   obey so that it contradicts the keyword. owner: the schema's node; name: the node of the keyword's name. Returns 0 if
   the negation has fewer alternatives. */
static int specdec__schema_apply_negated_option(specdec__schema *s, uint32_t owner, uint32_t name,
                                                const struct specdec__keyword *key, uint32_t i)
{
    const uint32_t node = name + 1;
    specdec__fact branch;
    uint32_t at = 0;
    int64_t number;

    branch.kind = key->kind;
    branch.node = node;
    branch.owner = owner;
    branch.more = 0;
    s->types &= key->types;
    switch (key->kind) {
    case SPECDEC__KEY_TYPE: s->types &= ~specdec__schema_read_type_bits(s, node); return !i;
    case SPECDEC__KEY_REF: specdec__schema_add_term(s, specdec__schema_find_ref(s, owner, node), 1); return !i;
    case SPECDEC__KEY_NOT: specdec__schema_add_term(s, node, 0); return !i;
    case SPECDEC__KEY_ALL: return specdec__schema_apply_any_of(s, node, i, 1);
    case SPECDEC__KEY_ANY:
        while (specdec__schema_next_child(s, node, &at))
            specdec__schema_add_term(s, at, 1);
        return !i;
    case SPECDEC__KEY_ONE: return specdec__schema_apply_not_one_of(s, node, i);
    case SPECDEC__KEY_IF: return specdec__schema_apply_if(s, &branch, i, 1);
    case SPECDEC__KEY_DEPENDENT:
        while (specdec__schema_next_child(s, node, &at)) { /* the options of its members, one after the other */
            const uint32_t value = at + 1;
            const uint32_t options = specdec__schema_json_node(s, value)->kind == SPECDEC__JSON_ARRAY
                                         ? specdec__schema_json_node(s, value)->count : 1;

            branch.node = at;
            if (i < options)
                return specdec__schema_apply_dependent(s, &branch, i, 1);
            i -= options;
        }
        return 0;
    case SPECDEC__KEY_REQUIRED:
        if (specdec__schema_json_node(s, node)->kind != SPECDEC__JSON_ARRAY)
            return 0;
        do {
            if (!specdec__schema_next_child(s, node, &at))
                return 0;
        } while (i--);
        specdec__schema_add_fact(s, SPECDEC__FACT_ABSENT, at, owner, 0);
        return 1;
    case SPECDEC__KEY_PROPERTIES:
        do {
            if (!specdec__schema_next_child(s, node, &at))
                return 0;
        } while (i--);
        specdec__schema_add_fact(s, SPECDEC__FACT_PRESENT, at, owner, 0);
        specdec__schema_add_fact(s, SPECDEC__FACT_MEMBER, at, owner, (at + 1) << 1 | 1);
        return 1;
    case SPECDEC__KEY_MEMBERS: case SPECDEC__KEY_ADDITIONAL_ITEMS: case SPECDEC__KEY_ITEMS: case SPECDEC__KEY_NAMES:
        if (i)
            return 0;
        if (specdec__schema_allows_everything(s, node))
            s->types = 0;
        else if (key->name[0] == 'p' && specdec__schema_json_node(s, node)->kind != SPECDEC__JSON_OBJECT)
            s->types = 0;
        else
            specdec__schema_add_fact(s, SPECDEC__KEY_NEVER, node, owner, 1);
        return 1;
    case SPECDEC__KEY_MINIMUM: case SPECDEC__KEY_MAXIMUM: case SPECDEC__KEY_ABOVE: case SPECDEC__KEY_BELOW:
    case SPECDEC__KEY_ENUM: case SPECDEC__KEY_CONST: case SPECDEC__KEY_MULTIPLE: case SPECDEC__KEY_PATTERN:
    case SPECDEC__KEY_FORMAT:
        specdec__schema_add_fact(s, key->kind, node, owner, 1);
        return !i;
    case SPECDEC__KEY_UNIQUE:
        if (specdec__schema_json_node(s, node)->kind != SPECDEC__JSON_TRUE)
            s->types = 0;
        specdec__schema_add_fact(s, SPECDEC__KEY_NEVER, node, owner, 1);
        return !i;
    case SPECDEC__KEY_MIN_LENGTH: case SPECDEC__KEY_MIN_ITEMS: case SPECDEC__KEY_MIN_PROPERTIES:
        if (specdec__json_read_integer(&s->json, node, &number) && number <= 0)
            s->types = 0;
        specdec__schema_add_fact(s, key->kind, node, owner, 1);
        return !i;
    case SPECDEC__KEY_MAX_LENGTH: case SPECDEC__KEY_MAX_ITEMS: case SPECDEC__KEY_MAX_PROPERTIES:
        specdec__schema_add_fact(s, key->kind, node, owner, 1);
        return !i;
    default: specdec__schema_add_fact(s, SPECDEC__KEY_NEVER, node, owner, 1); return !i;
    }
}

/* Applies option i of a negated schema: one of its keywords is negated. The options of all keywords come one after the
   other. */
static int specdec__schema_apply_negated_schema(specdec__schema *s, uint32_t owner, uint32_t i)
{
    uint32_t at = 0;

    while (specdec__schema_next_child(s, owner, &at) && specdec__build_count_work(s->build, 4)) {
        const struct specdec__keyword *key = specdec__schema_find_keyword(s, at);
        const uint32_t facts = s->facts.count, pending = s->pending_terms.count, types = s->types;
        uint32_t option;

        if (!key || key->kind == SPECDEC__KEY_NOTE || key->kind == SPECDEC__KEY_BRANCH ||
            (s->legacy_refs && key->kind != SPECDEC__KEY_REF && specdec__schema_get_member(s, owner, "$ref")))
            continue;
        /* The number of a keyword's options is found by trying: few keywords have more than two. */
        for (option = 0; !s->build->failed; option++) {
            s->facts.count = facts;
            s->pending_terms.count = pending;
            s->types = types;
            if (!specdec__schema_apply_negated_option(s, owner, at, key, option))
                break;
            if (!i--)
                return 1;
        }
        s->facts.count = facts;
        s->pending_terms.count = pending;
        s->types = types;
    }
    return 0;
}

/* Applies option i of a branch to the shape that is being made. Returns 0 when the branch has fewer options. */
static int specdec__schema_apply_option(specdec__schema *s, const specdec__fact *branch, uint32_t i)
{
    switch (branch->kind) {
    case SPECDEC__KEY_ANY: return specdec__schema_apply_any_of(s, branch->node, i, 0);
    case SPECDEC__KEY_ONE: return specdec__schema_apply_one_of(s, branch, i);
    case SPECDEC__KEY_IF: return specdec__schema_apply_if(s, branch, i, 0);
    case SPECDEC__KEY_DEPENDENT: return i < 2 && (specdec__schema_apply_dependent(s, branch, i, 0) || i == 1);
    default: return specdec__schema_apply_negated_schema(s, branch->node, i);
    }
}

/* ---- Disjoint schemas, as far as a quick look shows: fewer negated schemas then have to be built. */

/* Returns the SPECDEC__JSON_TYPE_... bits that a schema allows at most. */
static uint32_t specdec__schema_allowed_type_bits(specdec__schema *s, uint32_t node, int depth)
{
    const uint32_t kind = specdec__schema_json_node(s, node)->kind;
    uint32_t types = SPECDEC__JSON_TYPE_ALL, at = 0, value, listed = 0;

    if (kind != SPECDEC__JSON_OBJECT || depth > 8 || !specdec__build_count_work(s->build, 4))
        return kind == SPECDEC__JSON_FALSE ? 0 : SPECDEC__JSON_TYPE_ALL;
    if ((value = specdec__schema_get_member(s, node, "type")) != 0)
        types &= specdec__schema_read_type_bits(s, value);
    if ((value = specdec__schema_get_member(s, node, "$ref")) != 0 && !s->build->failed)
        types &= specdec__schema_allowed_type_bits(s, specdec__schema_find_ref(s, node, value), depth + 1);
    if ((value = specdec__schema_get_member(s, node, "const")) != 0)
        types &= specdec__schema_type_bit_of_value(s, value);
    if ((value = specdec__schema_get_member(s, node, "enum")) != 0) {
        while (specdec__schema_next_child(s, value, &at))
            listed |= specdec__schema_type_bit_of_value(s, at);
        types &= listed;
    }
    return types;
}

/* Returns the schema at the end of a chain of $ref, followed as long as a schema has no other keyword. */
static uint32_t specdec__schema_follow_refs(specdec__schema *s, uint32_t node)
{
    int i;

    for (i = 0; i < 8 && !s->build->failed; i++) {
        const uint32_t ref = specdec__schema_json_node(s, node)->kind == SPECDEC__JSON_OBJECT
                                 ? specdec__schema_get_member(s, node, "$ref") : 0;

        if (!ref)
            break;
        node = specdec__schema_find_ref(s, node, ref);
    }
    return node;
}

/* Is a value in a schema's enum or const? Returns 1 also when the schema has neither of them. */
static int specdec__schema_lists_value(specdec__schema *s, uint32_t node, uint32_t value)
{
    const uint32_t single = specdec__schema_get_member(s, node, "const"),
                   list = specdec__schema_get_member(s, node, "enum");
    uint32_t at = 0;

    if (single)
        return specdec__json_equal(s, single, value);
    if (!list)
        return 1;
    while (specdec__schema_next_child(s, list, &at) && specdec__build_count_work(s->build, 1))
        if (specdec__json_equal(s, at, value))
            return 1;
    return 0;
}

/* Does a schema require a member with this name? */
static int specdec__schema_requires_member(specdec__schema *s, uint32_t node, uint32_t name)
{
    const uint32_t list = specdec__schema_get_member(s, node, "required");
    uint32_t at = 0;

    if (!list || specdec__schema_json_node(s, list)->kind != SPECDEC__JSON_ARRAY)
        return 0;
    while (specdec__schema_next_child(s, list, &at) && specdec__build_count_work(s->build, 1))
        if (specdec__json_equal(s, at, name))
            return 1;
    return 0;
}

/* Does one of two schemas require a member that the other schema forbids? */
static int specdec__schema_forbids_required_member(specdec__schema *s, uint32_t a, uint32_t c)
{
    const uint32_t other = specdec__schema_get_member(s, c, "additionalProperties");
    const uint32_t list = specdec__schema_get_member(s, a, "required");
    const uint32_t properties = specdec__schema_get_member(s, c, "properties");
    uint32_t at = 0;

    if (!other || specdec__schema_json_node(s, other)->kind != SPECDEC__JSON_FALSE || !list ||
        specdec__schema_get_member(s, c, "patternProperties") ||
        specdec__schema_json_node(s, list)->kind != SPECDEC__JSON_ARRAY)
        return 0;
    while (specdec__schema_next_child(s, list, &at) && specdec__build_count_work(s->build, 1))
        if (!specdec__schema_find_equal_member(s, properties, at))
            return 1;
    return 0;
}

/* Is it certain that no value obeys both of two schemas? 0: unknown. */
static int specdec__schema_is_disjoint(specdec__schema *s, uint32_t a, uint32_t c, int depth)
{
    const uint32_t types = specdec__schema_allowed_type_bits(s, a, 0) & specdec__schema_allowed_type_bits(s, c, 0);
    uint32_t listed, one, two, at = 0;

    if (!types || s->build->failed || !specdec__build_count_work(s->build, 8))
        return !types;
    a = specdec__schema_follow_refs(s, a);
    c = specdec__schema_follow_refs(s, c);
    if (s->build->failed || specdec__schema_json_node(s, a)->kind != SPECDEC__JSON_OBJECT ||
        specdec__schema_json_node(s, c)->kind != SPECDEC__JSON_OBJECT)
        return 0;
    if ((listed = specdec__schema_get_member(s, a, "const")) != 0 && !specdec__schema_lists_value(s, c, listed))
        return 1;
    if ((listed = specdec__schema_get_member(s, a, "enum")) != 0 && (specdec__schema_get_member(s, c, "enum") ||
                                                                     specdec__schema_get_member(s, c, "const"))) {
        while (specdec__schema_next_child(s, listed, &at) && !specdec__schema_lists_value(s, c, at))
            ;
        if (at >= specdec__schema_json_node(s, listed)->next)
            return 1;
    }
    one = specdec__schema_get_member(s, a, "properties");
    two = specdec__schema_get_member(s, c, "properties");
    if (types != SPECDEC__JSON_TYPE_OBJECT || depth > 2)
        return 0;
    if (specdec__schema_forbids_required_member(s, a, c) || specdec__schema_forbids_required_member(s, c, a))
        return 1;
    at = 0;
    while (one && two && specdec__schema_json_node(s, one)->kind == SPECDEC__JSON_OBJECT &&
           specdec__schema_next_child(s, one, &at) && !s->build->failed) {
        const uint32_t other = specdec__schema_find_equal_member(s, two, at);

        if (other && (specdec__schema_requires_member(s, a, at) || specdec__schema_requires_member(s, c, at)) &&
            specdec__schema_is_disjoint(s, at + 1, other, depth + 1))
            return 1;
    }
    return 0;
}

/* ---- Conjunctions. */

/* Returns the words, SPECDEC__CONJUNCTION_FIRST ..., of conjunction number i. */
static const uint32_t *specdec__schema_conjunction_words(const specdec__schema *s, uint32_t i)
{
    return s->conjunctions.data + (size_t)i * SPECDEC__CONJUNCTION_WORDS;
}

/* Returns the number of conjunctions that were found so far. */
static uint32_t specdec__schema_conjunction_count(const specdec__schema *s)
{
    return s->conjunctions.count / SPECDEC__CONJUNCTION_WORDS;
}

/* Returns the rule of a conjunction of `count` terms in the style s->child_style. A new conjunction is added to the
   list, and built later. Sorts the terms in place. */
static uint32_t specdec__schema_conjunction_rule(specdec__schema *s, uint32_t *term, uint32_t count)
{
    const uint32_t tool = s->child_style == SPECDEC__STYLE_ARGUMENTS ? s->tool : 0;
    uint32_t i, j, k, rule, first;

    for (i = j = 0; i < count; i++) { /* sorts terms; drops duplicates and schemas that allow every value */
        const uint32_t one = term[i];

        if (!(one & 1) && specdec__schema_allows_everything(s, one >> 1))
            continue;
        for (k = 0; k < j && term[k] < one; k++)
            ;
        if (k < j && term[k] == one)
            continue;
        memmove(term + k + 1, term + k, (size_t)(j - k) * sizeof *term);
        term[k] = one;
        j++;
    }
    count = j;
    for (i = 0; i < specdec__schema_conjunction_count(s) && specdec__build_count_work(s->build, 1); i++) {
        const uint32_t *known = specdec__schema_conjunction_words(s, i);

        if (known[SPECDEC__CONJUNCTION_COUNT] == count && known[SPECDEC__CONJUNCTION_STYLE] == s->child_style &&
            known[SPECDEC__CONJUNCTION_TOOL] == tool &&
            (!count || memcmp(s->terms.data + known[0], term, (size_t)count * 4) == 0))
            return known[SPECDEC__CONJUNCTION_RULE];
    }
    rule = specdec__build_add_rule(s->build);
    first = s->terms.count;
    for (i = 0; i < count; i++)
        specdec__vector_push(s->build, &s->terms, term[i]);
    specdec__vector_push(s->build, &s->conjunctions, first);
    specdec__vector_push(s->build, &s->conjunctions, count);
    specdec__vector_push(s->build, &s->conjunctions, rule);
    specdec__vector_push(s->build, &s->conjunctions, s->child_style);
    specdec__vector_push(s->build, &s->conjunctions, tool);
    return s->build->failed ? 0 : rule;
}

SPECDEC__FOR_SPEED
