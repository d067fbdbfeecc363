/* =====================================================================================================================
 * >>constraint/objects: builds the rules of objects, of shapes and of conjunctions, and so the constraint of a schema.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../text/json.h"
#include "../text/answer.h"
#include "../text/splitter.h"
#include "automaton.h"
#include "build.h"
#include "expression.h"
#include "finish.h"
#include "strings.h"
#include "numbers.h"
#include "schema.h"
#include "values.h"

SPECDEC__FOR_SIZE

/* Most terms of the conjunction of a member's value; most properties of an object that a schema may list. */
enum { SPECDEC__TERMS_MOST = 64, SPECDEC__PROPERTIES_MOST = 20000 };

/* The members of an object, collected from all facts of a shape. */
typedef struct specdec__members {
    specdec__vector names;    /* JSON nodes of the listed names, in order of the schema */
    specdec__vector required; /* (names) for each listed name, not 0: the member is required */
    specdec__vector texts;    /* (2 * names) offset in text, and size, of the spelled names */
    specdec__vector sorted;   /* (names) indices of names, in order of their bytes */
    unsigned char *text;      /* the spelled names, one after the other */
    uint32_t patterns;                              /* number of patternProperties */
    uint32_t pattern_name[SPECDEC__PATTERNS_MOST];  /* JSON node of each pattern */
    uint32_t pattern_owner[SPECDEC__PATTERNS_MOST]; /* JSON node of the schema that has each pattern */
    specdec__dfa pattern[SPECDEC__PATTERNS_MOST];   /* DFA of each pattern */
    specdec__dfa allowed;                           /* DFA of the names that propertyNames allows */
    int names_limited;           /* 1: propertyNames refuses some names */
    uint32_t least, most, owner; /* numbers of members, at least and most; JSON node of the schema that errors name */
} specdec__members;

/* Finds the name at a JSON node among an object's listed names. Returns 1 + the name's index; 0: it is not listed. */
static uint32_t specdec__members_find_name(specdec__schema *s, const specdec__members *m, uint32_t name)
{
    const specdec__json_node *node = specdec__schema_json_node(s, name);
    uint32_t i;

    for (i = 0; i < m->names.count && specdec__build_count_work(s->build, 1); i++) {
        const specdec__json_node *other = specdec__schema_json_node(s, m->names.data[i]);

        if (m->names.data[i] == name)
            return i + 1;
        if (!node->escaped && !other->escaped) {
            if (node->to - node->from == other->to - other->from &&
                memcmp(s->json.text + node->from, s->json.text + other->from, node->to - node->from) == 0)
                return i + 1;
        } else if (specdec__json_equal(s, m->names.data[i], name)) {
            return i + 1;
        }
    }
    return 0;
}

/* Adds a name to an object's listed names, if it is new; required = 1: the member is required. */
static void specdec__members_add_name(specdec__schema *s, specdec__members *m, uint32_t name, uint32_t required)
{
    const uint32_t known = specdec__members_find_name(s, m, name);

    if (s->build->failed)
        return;
    if (specdec__schema_json_node(s, name)->kind != SPECDEC__JSON_STRING) {
        specdec__schema_fail_keyword(s, name, NULL, SPECDEC_ERROR_FORMAT, "this must be a name");
        return;
    }
    if (known) {
        m->required.data[known - 1] |= required;
        return;
    }
    if (m->names.count == SPECDEC__PROPERTIES_MOST)
        specdec__schema_fail_keyword(s, m->owner, "properties", SPECDEC_ERROR_UNSUPPORTED, "too many");
    specdec__vector_push(s->build, &m->names, name);
    specdec__vector_push(s->build, &m->required, required);
}

/* Builds the DFA of the strings that a schema in propertyNames allows. Returns 0 when it allows none. */
static int specdec__members_build_allowed_names_dfa(specdec__schema *s, uint32_t node, specdec__dfa *d, int depth)
{
    uint32_t length[4] = {0, UINT32_MAX, 0, UINT32_MAX}, at = 0;
    specdec__dfa one;
    int any = 0;

    if (!specdec__strings_length_dfa(s->build, d, 0, UINT32_MAX))
        return 0;
    any = 1;
    if (specdec__schema_json_node(s, node)->kind == SPECDEC__JSON_FALSE)
        return specdec__schema_build_listed_strings_dfa(s, d, node, 0); /* the empty list: no string is allowed */
    if (specdec__schema_json_node(s, node)->kind != SPECDEC__JSON_OBJECT)
        return 1;
    while (specdec__schema_next_child(s, node, &at) && !s->build->failed) {
        const struct specdec__keyword *key = specdec__schema_find_keyword(s, at);
        specdec__fact fact;

        if (!key || key->kind == SPECDEC__KEY_NOTE)
            continue;
        fact.kind = key->kind;
        fact.node = at + 1;
        fact.owner = node;
        fact.more = 0;
        if (key->kind == SPECDEC__KEY_TYPE && specdec__schema_read_type_bits(s, at + 1) & SPECDEC__JSON_TYPE_STRING)
            continue;
        if ((key->kind == SPECDEC__KEY_REF || key->kind == SPECDEC__KEY_NOT) && depth < 8) {
            const uint32_t other = key->kind == SPECDEC__KEY_REF ? specdec__schema_find_ref(s, node, at + 1) : at + 1;

            if (!s->build->failed && specdec__members_build_allowed_names_dfa(s, other, &one, depth + 1))
                specdec__strings_intersect(s->build, d, &any, &one, key->kind == SPECDEC__KEY_NOT);
        } else if (key->types == SPECDEC__JSON_TYPE_STRING || key->kind == SPECDEC__KEY_ENUM ||
                   key->kind == SPECDEC__KEY_CONST) {
            specdec__schema_apply_string_fact(s, &fact, d, &any, length);
        } else if (key->types & SPECDEC__JSON_TYPE_STRING) {
            specdec__schema_fail_keyword(s, node, "propertyNames", SPECDEC_ERROR_UNSUPPORTED,
                                         "a keyword in it is not supported");
        }
    }
    length[2] = 0;
    length[3] = UINT32_MAX;
    specdec__schema_limit_length(s, d, &any, length, node);
    return !s->build->failed;
}

/* Builds the DFAs of the patternProperties of a schema (JSON node owner). */
static void specdec__members_build_patterns(specdec__schema *s, specdec__members *m, uint32_t owner)
{
    const uint32_t patterns = specdec__schema_get_member(s, owner, "patternProperties");
    uint32_t at = 0;

    while (patterns && specdec__schema_next_child(s, patterns, &at) && !s->build->failed) {
        specdec__fact fact;
        uint32_t tree;

        if (m->patterns == SPECDEC__PATTERNS_MOST) {
            specdec__schema_fail_keyword(s, owner, "patternProperties", SPECDEC_ERROR_UNSUPPORTED, "too many");
            return;
        }
        fact.kind = SPECDEC__KEY_PATTERN;
        fact.node = at;
        fact.owner = owner;
        fact.more = 0;
        tree = specdec__schema_parse_pattern(s, &fact, 0);
        m->pattern_name[m->patterns] = at;
        m->pattern_owner[m->patterns] = owner;
        if (!s->build->failed && specdec__strings_tree_dfa(s->build, &m->pattern[m->patterns], tree))
            m->patterns++;
    }
}

/* Collects the members of an object from all facts about objects. Returns 0 when no object obeys the facts. */
static int specdec__members_collect(specdec__schema *s, specdec__members *m)
{
    specdec__dfa one;
    uint32_t i, count;

    m->most = UINT32_MAX;
    for (i = 0; i < s->facts.count / 4 && !s->build->failed; i++) {
        const specdec__fact fact = specdec__schema_get_fact(&s->facts, i);
        const uint32_t value = fact.node ? specdec__schema_json_node(s, fact.node)->kind : 0;
        uint32_t at = 0, list;

        if (fact.kind >= SPECDEC__KEY_PROPERTIES && fact.kind <= SPECDEC__KEY_NAMES)
            m->owner = fact.owner;
        switch (fact.kind) {
        case SPECDEC__KEY_PROPERTIES:
            list = specdec__schema_get_member(s, fact.owner, "properties");
            while (list && specdec__schema_next_child(s, list, &at) && !s->build->failed)
                specdec__members_add_name(s, m, at, 0);
            specdec__members_build_patterns(s, m, fact.owner);
            break;
        case SPECDEC__KEY_MIN_PROPERTIES: case SPECDEC__KEY_MAX_PROPERTIES:
            count = specdec__schema_read_count(s, &fact);
            if ((fact.kind == SPECDEC__KEY_MIN_PROPERTIES) != (fact.more != 0))
                m->least = count + fact.more > m->least ? count + fact.more : m->least;
            else
                m->most = count - fact.more < m->most ? count - fact.more : m->most;
            break;
        case SPECDEC__KEY_NAMES:
            if (specdec__members_build_allowed_names_dfa(s, fact.node, &one, 0))
                specdec__strings_intersect(s->build, &m->allowed, &m->names_limited, &one, 0);
            break;
        case SPECDEC__FACT_MEMBER: case SPECDEC__FACT_ABSENT: specdec__members_add_name(s, m, fact.node, 0); break;
        default: (void)value; break;
        }
    }
    for (i = 0; i < s->facts.count / 4 && !s->build->failed; i++) { /* required names behind the listed ones, in their
                                                                   order */
        const specdec__fact fact = specdec__schema_get_fact(&s->facts, i);
        uint32_t at = 0;

        if (fact.kind == SPECDEC__FACT_PRESENT)
            specdec__members_add_name(s, m, fact.node, 1);
        if (fact.kind == SPECDEC__KEY_REQUIRED && specdec__schema_json_node(s, fact.node)->kind == SPECDEC__JSON_ARRAY)
            while (specdec__schema_next_child(s, fact.node, &at) && !s->build->failed)
                specdec__members_add_name(s, m, at, 1);
    }
    return !s->build->failed && m->least <= m->most;
}

/* Spells all listed names of an object as in a JSON string, into m->text. */
static void specdec__members_spell_names(specdec__schema *s, specdec__members *m)
{
    uint32_t i;

    for (i = 0; i < m->names.count && !s->build->failed; i++) {
        size_t size;
        unsigned char *text = specdec__schema_spell_string(s, m->names.data[i], &size);

        if (!text)
            return;
        specdec__vector_push(s->build, &m->texts, (uint32_t)(text - s->build->base));
        specdec__vector_push(s->build, &m->texts, (uint32_t)size);
    }
    m->text = s->build->base;
}

/* Does the listed name number a come before number c, in order of their bytes? */
static int specdec__members_name_is_before(const specdec__members *m, uint32_t a, uint32_t c)
{
    const uint32_t one = m->texts.data[2 * a + 1], two = m->texts.data[2 * c + 1];
    const int order = memcmp(m->text + m->texts.data[2 * a], m->text + m->texts.data[2 * c], one < two ? one : two);

    return order ? order < 0 : one < two;
}

SPECDEC__HEAP(specdec__members_sink, uint32_t, specdec__members, specdec__members_name_is_before)

/* Sorts the listed names of an object by their bytes into m->sorted (heap sort). */
static void specdec__members_sort_names(specdec__schema *s, specdec__members *m)
{
    uint32_t i, count = m->names.count;

    for (i = 0; i < count; i++)
        specdec__vector_push(s->build, &m->sorted, i);
    if (s->build->failed || !specdec__build_count_work(s->build, count))
        return;
    for (i = count / 2; i-- > 0;)
        specdec__members_sink(m->sorted.data, m, (int)count, (int)i);
    while (count > 1) {
        const uint32_t last = m->sorted.data[0];

        m->sorted.data[0] = m->sorted.data[--count];
        m->sorted.data[count] = last;
        specdec__members_sink(m->sorted.data, m, (int)count, 0);
    }
    /* The root of the heap is the last name: it has filled the list from the end. */
}

/* Returns the rule of a member's value: the conjunction of all schemas that apply to its name. place: index of the
   name; UINT32_MAX: an unlisted name that matches the patterns in the bits of `matched`. UINT32_MAX: the member is
   forbidden. */
static uint32_t specdec__members_value_rule(specdec__schema *s, const specdec__members *m, uint32_t place,
                                            uint32_t matched)
{
    uint32_t term[SPECDEC__TERMS_MOST], count = 0, f, i;
    const uint32_t name = place == UINT32_MAX ? 0 : m->names.data[place];

    if (name) {
        const unsigned char *text = m->text + m->texts.data[2 * place];
        const size_t size = m->texts.data[2 * place + 1];

        for (i = 0; i < m->patterns; i++)
            if (m->pattern[i].states > 1 &&
                m->pattern[i].label.data[specdec__dfa_read_text(&m->pattern[i], 1, text, size)])
                matched |= 1u << i;
        if (m->names_limited && !m->allowed.label.data[specdec__dfa_read_text(&m->allowed, 1, text, size)])
            return UINT32_MAX;
    }
    for (f = 0; f < s->facts.count / 4 && !s->build->failed; f++) {
        const specdec__fact fact = specdec__schema_get_fact(&s->facts, f);
        uint32_t before = count, other;

        if (count > (int)SPECDEC__TERMS_MOST - (int)SPECDEC__PATTERNS_MOST - 2) {
            specdec__schema_fail_keyword(s, fact.owner, "properties", SPECDEC_ERROR_UNSUPPORTED, "too complex");
            break;
        }
        if (name && fact.kind == SPECDEC__FACT_ABSENT && specdec__json_equal(s, fact.node, name))
            return UINT32_MAX;
        if (name && fact.kind == SPECDEC__FACT_MEMBER && specdec__json_equal(s, fact.node, name))
            term[count++] = fact.more;
        if (fact.kind != SPECDEC__KEY_PROPERTIES)
            continue;
        other = name ? specdec__schema_find_equal_member(s, specdec__schema_get_member(s, fact.owner, "properties"),
                                                         name)
                     : 0;
        if (other)
            term[count++] = other << 1;
        for (i = 0; i < m->patterns; i++)
            if (m->pattern_owner[i] == fact.owner && matched >> i & 1)
                term[count++] = (m->pattern_name[i] + 1) << 1;
        other = specdec__schema_get_member(s, fact.owner, "additionalProperties");
        if (count == before && other)
            term[count++] = other << 1;
    }
    if (s->build->failed)
        return 0;
    for (i = 0; i < count; i++)
        if (specdec__schema_json_node(s, term[i] >> 1)->kind == SPECDEC__JSON_FALSE && !(term[i] & 1))
            return UINT32_MAX;
    return specdec__schema_conjunction_rule(s, term, count);
}

/* Adds a SET state, behind the closing quote of a key: it counts the member, and leads to the state in front of its
   value. rule UINT32_MAX: the member is forbidden, so the state leads nowhere. Returns the state. */
static uint32_t specdec__members_add_state_behind_key(specdec__schema *s, uint32_t index, uint32_t rule)
{
    const uint32_t before = rule == UINT32_MAX ? specdec__build_add_state(s->build, SPECDEC__RECORD_PLAIN, 2)
                                               : specdec__schema_get_state_before_value(s, rule, 1);
    const uint32_t state = specdec__build_add_state(s->build, SPECDEC__RECORD_SET, 3);

    if (s->build->failed)
        return 0;
    s->build->words[state + 1] = before;
    s->build->words[state + 2] = index;
    return state;
}

/* Builds the states that read unlisted keys of an object. Returns the word OTHER of the object. *d and *place: the DFA
   that reads such keys from their first byte on, and its states. */
static uint32_t specdec__members_add_unlisted_key_states(specdec__schema *s, specdec__members *m, specdec__dfa *d,
                                                         uint32_t **place)
{
    specdec__build *b = s->build;
    uint32_t ends[32], matched[32], kinds = 0, i, k, none = 1;
    specdec__dfa old, listed;
    int any = 1;

    if (!m->patterns && !m->names_limited) {
        const uint32_t rule = specdec__members_value_rule(s, m, UINT32_MAX, 0);

        *d = s->string_dfa;
        *place = s->string_states;
        return rule == UINT32_MAX || b->failed ? 0
               : specdec__members_add_state_behind_key(s, SPECDEC__OBJECT_UNLISTED, rule);
    }
    if (!specdec__strings_length_dfa(b, d, 0, UINT32_MAX))
        return 0;
    if (m->names_limited && !specdec__strings_intersect(b, d, &any, &m->allowed, 0))
        return 0;
    for (i = 0; i < m->names.count && !b->failed; i++) { /* keys that are listed have states of their own */
        if (specdec__schema_build_listed_strings_dfa(s, &listed, m->names.data[i], 0))
            specdec__strings_intersect(b, d, &any, &listed, 1);
    }
    for (i = 0; i < d->states && !b->failed; i++)
        d->label.data[i] = d->label.data[i] ? 1u << 31 : 0;
    for (i = 0; i < m->patterns && !b->failed; i++) {
        for (k = 0; k < m->pattern[i].states; k++)
            m->pattern[i].label.data[k] = m->pattern[i].label.data[k] ? 1u << i : 0;
        old = *d;
        if (!specdec__dfa_product(b, d, &old, &m->pattern[i], SPECDEC__DFA_EITHER))
            return 0;
    }
    for (i = 1; i < d->states && !b->failed; i++) { /* each set of patterns becomes one label */
        const uint32_t label = d->label.data[i];

        if (!(label >> 31)) {
            d->label.data[i] = 0;
            continue;
        }
        for (k = 0; k < kinds && matched[k] != (label & 0x7fffffff); k++)
            ;
        if (k == 31) {
            specdec__schema_fail_keyword(s, m->owner, "patternProperties", SPECDEC_ERROR_UNSUPPORTED, "too complex");
            return 0;
        }
        if (k == kinds) {
            const uint32_t rule = specdec__members_value_rule(s, m, UINT32_MAX, label & 0x7fffffff);

            matched[kinds] = label & 0x7fffffff;
            ends[kinds++] = rule == UINT32_MAX || b->failed
                                ? 0
                                : specdec__members_add_state_behind_key(s, SPECDEC__OBJECT_UNLISTED, rule);
            none &= !ends[k];
        }
        d->label.data[i] = ends[k] ? 1u << k : 0;
    }
    if (b->failed || none || !specdec__dfa_remove_dead_states(b, d))
        return 0;
    return specdec__dfa_write_records(b, d, ends, place);
}

/* Words of a node of the tree of an object's listed keys: byte; first child; next sibling; first leaf; number of
   leaves; 1 + the leaf that ends here; state of the DFA of unlisted keys; KEY state of the node. */
enum {
    SPECDEC__NAME_TREE_BYTE, SPECDEC__NAME_TREE_CHILD, SPECDEC__NAME_TREE_NEXT, SPECDEC__NAME_TREE_FIRST,
    SPECDEC__NAME_TREE_LEAVES, SPECDEC__NAME_TREE_END, SPECDEC__NAME_TREE_UNLISTED, SPECDEC__NAME_TREE_KEY_STATE,
    SPECDEC__NAME_TREE_WORDS
};

/* Adds a node for a byte of listed keys to their tree. from: first leaf; other: state of the DFA of unlisted keys.
   Returns its index. */
static uint32_t specdec__members_add_name_node(specdec__schema *s, specdec__vector *tree, unsigned byte, uint32_t from,
                                               uint32_t other)
{
    const uint32_t at = specdec__vector_extend(s->build, tree, SPECDEC__NAME_TREE_WORDS);

    if (at == UINT32_MAX)
        return 0;
    memset(tree->data + at, 0, SPECDEC__NAME_TREE_WORDS * 4);
    tree->data[at + SPECDEC__NAME_TREE_BYTE] = byte;
    tree->data[at + SPECDEC__NAME_TREE_FIRST] = from;
    tree->data[at + SPECDEC__NAME_TREE_UNLISTED] = other;
    return at;
}

/* Builds the tree of an object's listed keys. Names come in sorted order, so a new byte is always behind the last
   child. */
static void specdec__members_build_name_tree(specdec__schema *s, const specdec__members *m, const specdec__dfa *other,
                                             specdec__vector *tree)
{
    uint32_t i, k;

    specdec__members_add_name_node(s, tree, 0, 0, other ? 1 : 0);
    for (i = 0; i < m->sorted.count && !s->build->failed; i++) {
        const uint32_t name = m->sorted.data[i], size = m->texts.data[2 * name + 1];
        const unsigned char *text = m->text + m->texts.data[2 * name];
        uint32_t at = 0;

        for (k = 0; k <= size && specdec__build_count_work(s->build, 1); k++) {
            uint32_t child, last = 0;

            tree->data[at + SPECDEC__NAME_TREE_LEAVES]++;
            if (k == size) {
                tree->data[at + SPECDEC__NAME_TREE_END] = i + 1;
                break;
            }
            child = tree->data[at + SPECDEC__NAME_TREE_CHILD];
            for (; child; child = tree->data[child + SPECDEC__NAME_TREE_NEXT])
                last = child;
            if (!last || tree->data[last + SPECDEC__NAME_TREE_BYTE] != text[k]) {
                const uint32_t from = tree->data[at + SPECDEC__NAME_TREE_UNLISTED];

                child = specdec__members_add_name_node(s, tree, text[k], i,
                                                       from ? specdec__dfa_read_text(other, from, text + k, 1) : 0);
                if (s->build->failed)
                    return;
                tree->data[last ? last + SPECDEC__NAME_TREE_NEXT : at + SPECDEC__NAME_TREE_CHILD] = child;
                last = child;
            }
            at = last;
        }
    }
}

/* Builds the KEY states of the tree of an object's listed keys. sets: (names) SET state of each. Returns the first KEY
   state. */
static uint32_t specdec__members_add_key_states(specdec__schema *s, const specdec__members *m, uint32_t object,
                                                specdec__vector *tree, const uint32_t *sets, const uint32_t *place)
{
    specdec__build *b = s->build;
    uint32_t at, child;

    for (at = 0; at < tree->count && !b->failed; at += SPECDEC__NAME_TREE_WORDS) {
        uint32_t edges = tree->data[at + SPECDEC__NAME_TREE_END] != 0;

        for (child = tree->data[at + SPECDEC__NAME_TREE_CHILD]; child;
             child = tree->data[child + SPECDEC__NAME_TREE_NEXT])
            edges++;
        child = specdec__build_add_state(b, SPECDEC__RECORD_KEY | edges << 16, 4 + 2 * edges);
        tree->data[at + SPECDEC__NAME_TREE_KEY_STATE] = child;
    }
    for (at = 0; at < tree->count && !b->failed; at += SPECDEC__NAME_TREE_WORDS) {
        uint32_t *node = tree->data + at, *record = b->words + node[SPECDEC__NAME_TREE_KEY_STATE], *edge = record + 4;
        uint32_t end = node[SPECDEC__NAME_TREE_END];

        record[1] = object;
        record[2] = node[SPECDEC__NAME_TREE_FIRST] | node[SPECDEC__NAME_TREE_LEAVES] << 16;
        record[3] = place && node[SPECDEC__NAME_TREE_UNLISTED] ? place[node[SPECDEC__NAME_TREE_UNLISTED]] : 0;
        for (child = node[SPECDEC__NAME_TREE_CHILD]; child || end; edge += 2) {
            if (end && (!child || tree->data[child + SPECDEC__NAME_TREE_BYTE] > '"')) {
                edge[0] = '"' | '"' << 8;
                edge[1] = sets[m->sorted.data[end - 1]];
                end = 0;
                continue;
            }
            edge[0] = tree->data[child + SPECDEC__NAME_TREE_BYTE] * 257;
            edge[1] = tree->data[child + SPECDEC__NAME_TREE_KEY_STATE];
            child = tree->data[child + SPECDEC__NAME_TREE_NEXT];
        }
    }
    return b->failed ? 0 : b->words ? tree->data[SPECDEC__NAME_TREE_KEY_STATE] : 0;
}

/* ---- Members in the style of tool arguments that are no JSON, in the order in which the schema lists them. */

/* Can the name of a tool's argument be written without quotes and escapes? */
static int specdec__tool_argument_name_needs_no_quotes(const specdec__schema *s, const unsigned char *text, size_t size)
{
    const int pairs = s->style == SPECDEC__STYLE_ARGUMENTS && s->calls->form == SPECDEC__CALLS_PAIRS;
    size_t i;

    for (i = 0; i < size; i++) {
        const uint32_t kind = specdec__byte_kind(text[i]);

        if (pairs ? text[i] < ' ' || text[i] == '"' || text[i] == '<' || text[i] == '>'
                  : !(kind & 31) && text[i] != '.' && text[i] != '$')
            return 0;
    }
    return size > 0 && size <= SPECDEC__ANSWER_ARGUMENT_NAME_MOST;
}

/* Returns the kind of an argument's value by the schemas of its rule: 1: a string, 2: any value but a string, 0:
   unknown. */
static uint32_t specdec__tool_argument_kind_of_rule(specdec__schema *s, uint32_t rule)
{
    uint32_t types = SPECDEC__JSON_TYPE_ALL, i, k;

    for (i = 0; i < specdec__schema_conjunction_count(s); i++) {
        const uint32_t *found = specdec__schema_conjunction_words(s, i);

        for (k = 0; found[SPECDEC__CONJUNCTION_RULE] == rule && k < found[SPECDEC__CONJUNCTION_COUNT]; k++) {
            const uint32_t term = s->terms.data[found[SPECDEC__CONJUNCTION_FIRST] + k];

            types &= term & 1 ? SPECDEC__JSON_TYPE_ALL : specdec__schema_allowed_type_bits(s, term >> 1, 0);
        }
    }
    return !(types & ~SPECDEC__JSON_TYPE_STRING) ? 1 : !(types & SPECDEC__JSON_TYPE_STRING) ? 2 : 0;
}

/* Stores the kind (1: string, 2: other JSON) of an argument of the current tool, for the splitter, which reads answers.
   size 0: the kind of all arguments that the schema does not list. */
static void specdec__tool_argument_store_kind(specdec__schema *s, const unsigned char *name, size_t size, uint32_t kind,
                                              uint32_t rule)
{
    size_t length;
    const unsigned char *tool = specdec__schema_spell_string(s, s->tool, &length);
    uint64_t hash;

    if (!tool || s->build->failed)
        return;
    hash = specdec__answer_argument_hash(specdec__hash(SPECDEC__EMPTY_HASH, tool, length), name, size);
    specdec__vector_push(s->build, &s->argument_kinds, (uint32_t)hash);
    specdec__vector_push(s->build, &s->argument_kinds, (uint32_t)(hash >> 32));
    specdec__vector_push(s->build, &s->argument_kinds, kind);
    specdec__vector_push(s->build, &s->argument_kinds, rule);
}

/* Returns the kind of a stored argument (1: string, 2: other JSON); 0 where another argument with its hash has another
   kind. note: index of the argument in s->argument_kinds. */
static uint32_t specdec__tool_argument_stored_kind(specdec__schema *s, uint32_t note)
{
    const uint32_t *own = s->argument_kinds.data + note;
    uint32_t i, kind = own[2];

    for (i = 0; i < s->argument_kinds.count && specdec__build_count_work(s->build, 1);
         i += SPECDEC__ARGUMENT_KIND_WORDS + 1)
        if (s->argument_kinds.data[i] == own[0] && s->argument_kinds.data[i + 1] == own[1] &&
            s->argument_kinds.data[i + 2] != own[2])
            kind = 0;
    return kind;
}

/* Could a reader take a string of this rule for a number, array or other value, as the argument's kind is unknown? */
static int specdec__tool_argument_string_is_ambiguous(specdec__schema *s, uint32_t rule)
{
    uint32_t i;

    for (i = 0; i < s->argument_kinds.count && !s->build->failed; i += SPECDEC__ARGUMENT_KIND_WORDS + 1)
        if (s->argument_kinds.data[i + SPECDEC__ARGUMENT_KIND_WORDS] == rule &&
            !specdec__tool_argument_stored_kind(s, i))
            return 1;
    return 0;
}

/* Appends a literal text to the concatenation `all`, a syntax tree. */
static void specdec__tool_argument_append_text(specdec__schema *s, uint32_t all, const char *text)
{
    specdec__syntax_prepend_child(s->build, all,
                                  specdec__syntax_add_text(s->build, (const unsigned char *)text, strlen(text)));
}

/* Appends up to two characters of white space, which some models write here, to the concatenation `all`. */
static void specdec__tool_argument_append_space(specdec__schema *s, uint32_t all)
{
    specdec__syntax_prepend_child(s->build, all,
                                  specdec__syntax_add_node(s->build, SPECDEC__SYNTAX_REPEAT, s->space_tree, 0, 2));
}

/* Appends the marks behind an argument's name and around its value, which is a raw string (rule text) or other JSON
   (rule rest), to the concatenation `all`. */
static void specdec__tool_argument_append_value(specdec__schema *s, uint32_t all, uint32_t text, uint32_t rest)
{
    specdec__build *b = s->build;
    const specdec__calls *row = s->calls;
    const char *value_begin = SPECDEC__CALL_TEXT(row, VALUE_BEGIN);
    const int says = specdec__answer_mark_tells_argument_kind(row);
    const uint32_t any = specdec__syntax_add_node(b, SPECDEC__SYNTAX_ANY, 0, 0, 0);
    uint32_t i;

    for (i = 0; i < 2; i++) {
        const uint32_t one = specdec__syntax_add_node(b, SPECDEC__SYNTAX_ALL, 0, 0, 0);

        if (says)
            specdec__tool_argument_append_text(s, one, i ? "\" string=\"false\"" : "\" string=\"true\"");
        specdec__tool_argument_append_text(s, one, SPECDEC__CALL_TEXT(row, KEY_END));
        if (value_begin) {
            specdec__tool_argument_append_space(s, one);
            specdec__tool_argument_append_text(s, one, value_begin);
        }
        if (i && row->flags & SPECDEC__CALLS_LINES)
            specdec__syntax_prepend_child(b, one,
                                          specdec__syntax_add_node(b, SPECDEC__SYNTAX_REPEAT,
                                                                   specdec__syntax_add_character(b, '\n', '\n'), 0, 1));
        specdec__syntax_prepend_child(b, one, specdec__syntax_add_node(b, SPECDEC__SYNTAX_RULE, 0, i ? rest : text, 0));
        if (i && row->flags & SPECDEC__CALLS_LINES)
            specdec__syntax_prepend_child(b, one,
                                          specdec__syntax_add_node(b, SPECDEC__SYNTAX_REPEAT,
                                                                   specdec__syntax_add_character(b, '\n', '\n'), 0, 1));
        if (i)
            specdec__tool_argument_append_text(s, one, SPECDEC__CALL_TEXT(row, VALUE_END));
        specdec__syntax_prepend_child(b, any, one);
    }
    specdec__syntax_prepend_child(b, all, any);
}

/* Builds the rule of an argument, with its name and marks. place: as in specdec__members_value_rule. Returns the rule;
   0: the argument may not be written. */
static uint32_t specdec__tool_argument_build_rule(specdec__schema *s, specdec__members *m, uint32_t place)
{
    specdec__build *b = s->build;
    const int listed = place != UINT32_MAX;
    const int pairs = s->style == SPECDEC__STYLE_ARGUMENTS && s->calls->form == SPECDEC__CALLS_PAIRS;
    const unsigned char *name = listed ? m->text + m->texts.data[2 * place] : (const unsigned char *)"";
    const size_t size = listed ? m->texts.data[2 * place + 1] : 0;
    const uint32_t all = specdec__syntax_add_node(b, SPECDEC__SYNTAX_ALL, 0, 0, 0);
    uint32_t rule, text;

    if (listed && !specdec__tool_argument_name_needs_no_quotes(s, name, size))
        return 0;
    s->child_style = pairs ? SPECDEC__STYLE_TEXT : SPECDEC__STYLE_LITERAL;
    text = specdec__members_value_rule(s, m, place, 0);
    if (b->failed || text == UINT32_MAX)
        return 0;
    if (pairs) {
        specdec__tool_argument_append_space(s, all);
        specdec__tool_argument_append_text(s, all, SPECDEC__CALL_TEXT(s->calls, KEY_BEGIN));
    }
    if (listed) {
        specdec__syntax_prepend_child(b, all, specdec__syntax_add_text(b, name, size));
    } else {
        specdec__source source;
        specdec__vector none;

        memset(&source, 0, sizeof source);
        memset(&none, 0, sizeof none);
        source.text = (const unsigned char *)"[a-zA-Z_][a-zA-Z0-9_]{0,31}";
        source.size = strlen((const char *)source.text);
        specdec__syntax_prepend_child(b, all, specdec__regex_parse(b, &source, &none, 1));
    }
    if (pairs) {
        if (!specdec__answer_mark_tells_argument_kind(s->calls))
            specdec__tool_argument_store_kind(s, name, size, specdec__tool_argument_kind_of_rule(s, text), text);
        s->child_style = SPECDEC__STYLE_REST;
        specdec__tool_argument_append_value(s, all, text, specdec__members_value_rule(s, m, place, 0));
    } else {
        const int equals = s->style == SPECDEC__STYLE_ARGUMENTS && s->calls->form == SPECDEC__CALLS_PYTHON;

        specdec__literal_append_byte(s, all, equals ? '=' : ':');
        specdec__syntax_prepend_child(b, all, specdec__syntax_add_node(b, SPECDEC__SYNTAX_RULE, 0, text, 0));
    }
    rule = specdec__build_add_rule(b);
    return specdec__build_rule_from_tree(b, rule, all) ? rule : 0;
}

/* Returns the syntax tree of an argument behind another one: a comma where the form of calls has commas, then the rule
   `member`. */
static uint32_t specdec__tool_argument_tree_with_comma(specdec__schema *s, uint32_t member)
{
    specdec__build *b = s->build;
    const uint32_t all = specdec__syntax_add_node(b, SPECDEC__SYNTAX_ALL, 0, 0, 0);

    if (s->style != SPECDEC__STYLE_ARGUMENTS || s->calls->form != SPECDEC__CALLS_PAIRS) {
        specdec__literal_append_byte(s, all, ',');
        specdec__syntax_prepend_child(b, all, specdec__syntax_add_node(b, SPECDEC__SYNTAX_REPEAT, s->space_tree, 0, 1));
    }
    specdec__syntax_prepend_child(b, all, specdec__syntax_add_node(b, SPECDEC__SYNTAX_RULE, 0, member, 0));
    return all;
}

/* Returns the syntax tree of the members of an object. Required ones must be written; unlisted names may be written
   only where no name is listed. *empty: an object without members is allowed. 0: there is no such object. */
static uint32_t specdec__tool_argument_members_tree(specdec__schema *s, specdec__members *m, int *empty)
{
    specdec__build *b = s->build;
    uint32_t first = specdec__syntax_add_node(b, SPECDEC__SYNTAX_ANY, 0, 0, 0), rest = 0, i, required = 0;

    *empty = 1;
    if (!m->names.count && !m->patterns && !m->names_limited && m->most) {
        const uint32_t member = specdec__tool_argument_build_rule(s, m, UINT32_MAX);

        if (member) {
            const uint32_t all = specdec__syntax_add_node(b, SPECDEC__SYNTAX_ALL, 0, 0, 0);

            specdec__syntax_prepend_child(b, all, specdec__syntax_add_node(b, SPECDEC__SYNTAX_RULE, 0, member, 0));
            specdec__syntax_prepend_child(b, all,
                                          specdec__syntax_add_node(b, SPECDEC__SYNTAX_REPEAT,
                                                                   specdec__tool_argument_tree_with_comma(s, member), 0,
                                                                   UINT32_MAX));
            specdec__syntax_prepend_child(b, first, all);
        }
    }
    for (i = m->names.count; i-- > 0 && !b->failed;) {
        const uint32_t member = specdec__tool_argument_build_rule(s, m, i);
        const uint32_t all = specdec__syntax_add_node(b, SPECDEC__SYNTAX_ALL, 0, 0, 0);
        const uint32_t behind = specdec__syntax_add_node(b, SPECDEC__SYNTAX_ALL, 0, 0, 0);
        const uint32_t next = member ? specdec__tool_argument_tree_with_comma(s, member) : 0,
                       least = m->required.data[i] != 0;
        uint32_t rule;

        required += least;
        if (!member && least)
            return 0;
        if (!member)
            continue;
        if (least) { /* members behind a required one are never the first */
            first = specdec__syntax_add_node(b, SPECDEC__SYNTAX_ANY, 0, 0, 0);
            *empty = 0;
        }
        specdec__syntax_prepend_child(b, all, specdec__syntax_add_node(b, SPECDEC__SYNTAX_RULE, 0, member, 0));
        specdec__syntax_prepend_child(b, behind, specdec__syntax_add_node(b, SPECDEC__SYNTAX_REPEAT, next, least, 1));
        if (rest) {
            specdec__syntax_prepend_child(b, all, specdec__syntax_add_node(b, SPECDEC__SYNTAX_RULE, 0, rest, 0));
            specdec__syntax_prepend_child(b, behind, specdec__syntax_add_node(b, SPECDEC__SYNTAX_RULE, 0, rest, 0));
        }
        specdec__syntax_prepend_child(b, first, all);
        rule = specdec__build_add_rule(b);
        if (!specdec__build_rule_from_tree(b, rule, behind))
            return 0;
        b->nullable.data[rule] = !least && (!rest || b->nullable.data[rest]);
        rest = rule;
    }
    if (m->least == 1)
        *empty = 0;
    if (m->least > (required > 1 ? required : 1) || m->most < m->names.count) {
        specdec__schema_fail_keyword(s, m->owner, m->least > required ? "minProperties" : "maxProperties",
                                     SPECDEC_ERROR_UNSUPPORTED, "it is not supported where calls are no JSON");
        return 0;
    }
    return b->failed || (!b->tree.data[first + SPECDEC__SYNTAX_CHILD] && !*empty) ? 0 : first;
}

/* Adds the objects of a style other than JSON to the current rule: arguments of a call, or objects within them. */
static void specdec__tool_argument_add_objects(specdec__schema *s, specdec__members *m)
{
    specdec__build *b = s->build;
    const int braces = s->style == SPECDEC__STYLE_LITERAL;
    const uint32_t all = specdec__syntax_add_node(b, SPECDEC__SYNTAX_ALL, 0, 0, 0);
    int empty = 0;
    uint32_t rule, members = specdec__tool_argument_members_tree(s, m, &empty);

    if (b->failed || !members)
        return;
    if (braces)
        specdec__literal_append_byte(s, all, '{');
    if (b->tree.data[members + SPECDEC__SYNTAX_CHILD])
        specdec__syntax_prepend_child(b, all, specdec__syntax_add_node(b, SPECDEC__SYNTAX_REPEAT, members, !empty, 1));
    if (braces)
        specdec__literal_append_byte(s, all, '}');
    rule = specdec__build_add_rule(b);
    if (!specdec__build_rule_from_tree(b, rule, all))
        return;
    s->may_be_empty |= empty && !braces;
    specdec__schema_add_alternative(s, b->rules.data[rule]);
}

/* Adds the JSON objects that obey all facts of the shape to the current rule. */
static void specdec__schema_add_objects(specdec__schema *s)
{
    specdec__build *b = s->build;
    specdec__members *m = (specdec__members *)(void *)specdec__build_reserve_scratch(b, sizeof *m / 4 + 1);
    specdec__dfa *d = (specdec__dfa *)(void *)specdec__build_reserve_scratch(b, sizeof *d / 4 + 1);
    specdec__vector tree;
    uint32_t i, count, object, start, after, other, keys, required = 0, *sets, *place = NULL;

    if (!m || !d)
        return;
    memset(m, 0, sizeof *m);
    memset(&tree, 0, sizeof tree);
    if (!specdec__members_collect(s, m))
        return;
    specdec__members_spell_names(s, m);
    if (b->raw_strings) {
        specdec__tool_argument_add_objects(s, m);
        return;
    }
    specdec__members_sort_names(s, m);
    count = m->names.count;
    sets = specdec__build_reserve_scratch(b, 2 * (size_t)count + 1);
    object = specdec__build_add_words(b, SPECDEC__OBJECT_WORDS + 3 * count + 1);
    start = specdec__build_add_state(b, SPECDEC__RECORD_OBJECT, 2);
    after = specdec__build_add_state(b, SPECDEC__RECORD_AFTER_MEMBER, 2);
    for (i = 0; i < count && !b->failed; i++) {
        const uint32_t rule = specdec__members_value_rule(s, m, i, 0);

        required += m->required.data[i] != 0;
        if (rule == UINT32_MAX && m->required.data[i])
            return; /* a required member is forbidden */
        sets[i] = specdec__members_add_state_behind_key(s, i + 1, rule);
    }
    other = specdec__members_add_unlisted_key_states(s, m, d, &place);
    if (b->failed)
        return;
    if (other && m->least > required + 1) {
        specdec__schema_fail_keyword(s, m->owner, "minProperties", SPECDEC_ERROR_UNSUPPORTED,
                                     "names that are free may come twice, and would not count");
        return;
    }
    specdec__members_build_name_tree(s, m, other ? d : NULL, &tree);
    keys = specdec__members_add_key_states(s, m, object, &tree, sets, other ? place : NULL);
    i = specdec__schema_add_state_with_space(s, '"', keys);
    if (b->failed)
        return;
    b->words[start + 1] = b->words[after + 1] = object;
    b->words[object + SPECDEC__OBJECT_COUNT] = count;
    b->words[object + SPECDEC__OBJECT_LEAST] = m->least > required ? m->least : 0;
    b->words[object + SPECDEC__OBJECT_MOST] = m->most;
    b->words[object + SPECDEC__OBJECT_KEYS] = keys;
    b->words[object + SPECDEC__OBJECT_COMMA] = i;
    b->words[object + SPECDEC__OBJECT_OTHER] = other;
    b->words[object + SPECDEC__OBJECT_END] = s->end_state;
    b->words[object + SPECDEC__OBJECT_AFTER] = after;
    b->words[object + SPECDEC__OBJECT_COUNTS_MEMBERS] = m->least > required || m->most != UINT32_MAX;
    for (i = count + 1; i-- > 0;) {
        uint32_t *first = b->words + object + SPECDEC__OBJECT_WORDS;

        first[i] = i < count ? m->required.data[i] ? i : first[i + 1] : count;
        if (i < count) {
            first[count + 1 + i] = b->words[sets[i] + 1];
            first[2 * count + 1 + i] = m->sorted.data[i];
        }
    }
    specdec__schema_add_alternative(s, specdec__schema_add_state_with_byte(s, '{', start));
}

/* ---- Shapes. */

/* Refuses the schema if a keyword that is not supported applies to a type that the shape still allows. */
static void specdec__schema_refuse_unsupported_keywords(specdec__schema *s)
{
    uint32_t i;

    for (i = 0; i < s->facts.count / 4 && !s->build->failed; i++) {
        const specdec__fact fact = specdec__schema_get_fact(&s->facts, i);
        const struct specdec__keyword *key;

        if (fact.kind != SPECDEC__KEY_NEVER)
            continue;
        key = specdec__schema_find_keyword(s, fact.node - 1);
        if (key && key->types & s->types)
            specdec__schema_fail_keyword(s, fact.owner, key->name, SPECDEC_ERROR_UNSUPPORTED,
                                         fact.more ? "its opposite is not supported" : "it is not supported");
    }
}

/* Adds the values of a shape, whose facts are complete, to the current rule. */
static void specdec__schema_add_shape_values(specdec__schema *s)
{
    uint32_t i, at;

    if (++s->shapes > SPECDEC__SHAPES_MOST) {
        specdec__build_fail(s->build, SPECDEC_ERROR_UNSUPPORTED, "too complex");
        return;
    }
    for (i = 0; i < s->facts.count / 4 && !s->build->failed; i++) {
        const specdec__fact fact = specdec__schema_get_fact(&s->facts, i);
        const int list = fact.kind == SPECDEC__KEY_ENUM;

        if (!list && fact.kind != SPECDEC__KEY_CONST)
            continue;
        at = 0;
        if (fact.more) { /* negated values: null, false and true are taken out of the types, others when their rules are
                            built */
            while (!list || specdec__schema_next_child(s, fact.node, &at)) {
                const uint32_t type = specdec__schema_type_bit_of_value(s, list ? at : fact.node);

                if (type & s->types && type >= SPECDEC__JSON_TYPE_ARRAY)
                    specdec__schema_fail_keyword(s, fact.owner, list ? "enum" : "const", SPECDEC_ERROR_UNSUPPORTED,
                                                 "the opposite of an array or object is not supported");
                if (type <= SPECDEC__JSON_TYPE_TRUE)
                    s->types &= ~type;
                if (!list)
                    break;
            }
            continue;
        }
        if (!list && specdec__schema_value_obeys_facts(s, fact.node))
            specdec__vector_push(s->build, &s->literals, fact.node);
        while (list && specdec__schema_next_child(s, fact.node, &at) && !s->build->failed)
            if (specdec__schema_value_obeys_facts(s, at))
                specdec__vector_push(s->build, &s->literals, at);
        return;
    }
    specdec__schema_refuse_unsupported_keywords(s);
    s->free_types |= s->types & (SPECDEC__JSON_TYPE_NULL | SPECDEC__JSON_TYPE_FALSE | SPECDEC__JSON_TYPE_TRUE);
    if (s->types & SPECDEC__JSON_TYPE_NUMBER && !s->build->failed)
        specdec__schema_add_numbers(s);
    if (s->types & SPECDEC__JSON_TYPE_STRING && !s->build->failed)
        specdec__schema_add_strings(s);
    if (s->types & SPECDEC__JSON_TYPE_ARRAY && !s->build->failed)
        specdec__schema_add_arrays(s);
    if (s->types & SPECDEC__JSON_TYPE_OBJECT && !s->build->failed)
        specdec__schema_add_objects(s);
}

/* Removes the type object from a shape whose facts both require and forbid a member. */
static void specdec__schema_prune_types(specdec__schema *s)
{
    uint32_t i, k;

    if (!(s->types & SPECDEC__JSON_TYPE_OBJECT))
        return;
    for (i = 0; i < s->facts.count / 4 && specdec__build_count_work(s->build, 1); i++) {
        const specdec__fact absent = specdec__schema_get_fact(&s->facts, i);

        for (k = 0; absent.kind == SPECDEC__FACT_ABSENT && k < s->facts.count / 4; k++) {
            const specdec__fact fact = specdec__schema_get_fact(&s->facts, k);
            uint32_t at = 0;

            if (fact.kind == SPECDEC__FACT_PRESENT && specdec__json_equal(s, fact.node, absent.node))
                s->types &= ~SPECDEC__JSON_TYPE_OBJECT;
            if (fact.kind == SPECDEC__KEY_REQUIRED &&
                specdec__schema_json_node(s, fact.node)->kind == SPECDEC__JSON_ARRAY)
                while (specdec__schema_next_child(s, fact.node, &at) && specdec__build_count_work(s->build, 1))
                    if (specdec__json_equal(s, at, absent.node))
                        s->types &= ~SPECDEC__JSON_TYPE_OBJECT;
        }
    }
}

/* Takes pending terms apart into facts and branches, then tries the options of each branch, depth-first. Each
   combination of options is a shape. */
static void specdec__schema_expand_terms_to_shapes(specdec__schema *s)
{
    uint32_t i, facts, branches, seen, types;
    specdec__fact branch;

    for (i = 0; i < s->pending_terms.count && s->types && !s->build->failed; i++)
        specdec__schema_split_term(s, s->pending_terms.data[i]);
    s->pending_terms.count = 0;
    specdec__schema_prune_types(s);
    if (!s->types || s->build->failed || !specdec__build_count_work(s->build, 16))
        return;
    if (s->branch_index == s->branches.count / 4) {
        specdec__schema_add_shape_values(s);
        return;
    }
    branch = specdec__schema_get_fact(&s->branches, s->branch_index);
    if (++s->depth > SPECDEC__BRANCH_DEPTH_MOST) {
        specdec__schema_fail_keyword(s, branch.owner, NULL, SPECDEC_ERROR_UNSUPPORTED,
                                     "too many alternatives in each other");
        return;
    }
    s->branch_index++;
    facts = s->facts.count;
    branches = s->branches.count;
    seen = s->split_terms.count;
    types = s->types;
    for (i = 0; !s->build->failed && specdec__schema_apply_option(s, &branch, i); i++) {
        specdec__schema_expand_terms_to_shapes(s);
        s->facts.count = facts;
        s->branches.count = branches;
        s->split_terms.count = seen;
        s->pending_terms.count = 0;
        s->types = types;
    }
    s->facts.count = facts;
    s->pending_terms.count = 0;
    s->types = types;
    s->branch_index--;
    s->depth--;
}

/* Builds the states of all listed values, null, false and true of the current rule. Returns the first state; 0: the
   rule has none. */
static uint32_t specdec__schema_add_listed_values(specdec__schema *s)
{
    specdec__build *b = s->build;
    const uint32_t any = specdec__syntax_add_node(b, SPECDEC__SYNTAX_ANY, 0, 0, 0);
    uint32_t i, rule;

    for (i = 0; i < 3; i++)
        if (s->free_types >> i & 1)
            specdec__syntax_prepend_child(b, any, specdec__literal_null_or_boolean_tree(s, i));
    for (i = 0; i < s->literals.count && !b->failed; i++) {
        const uint32_t node = s->literals.data[i];
        const uint32_t tree = b->raw_strings && specdec__schema_json_node(s, node)->kind == SPECDEC__JSON_STRING
                                  ? 0 : specdec__literal_value_tree(s, node);

        if (tree)
            specdec__syntax_prepend_child(b, any, tree);
    }
    if (b->failed || !b->tree.data[any + SPECDEC__SYNTAX_CHILD])
        return 0;
    rule = specdec__build_add_rule(b);
    return specdec__build_rule_from_tree(b, rule, any) ? b->rules.data[rule] : 0;
}

/* Adds the listed strings to the current rule, in styles where strings are raw. */
static void specdec__schema_add_listed_raw_strings(specdec__schema *s)
{
    specdec__build *b = s->build;
    const uint32_t any = specdec__syntax_add_node(b, SPECDEC__SYNTAX_ANY, 0, 0, 0);
    specdec__dfa d;
    uint32_t i;

    for (i = 0; b->raw_strings && i < s->literals.count && !b->failed; i++) {
        size_t size;
        const unsigned char *text = specdec__schema_json_node(s, s->literals.data[i])->kind == SPECDEC__JSON_STRING
                                        ? specdec__schema_spell_string(s, s->literals.data[i], &size) : NULL;

        if (text)
            specdec__syntax_prepend_child(b, any, specdec__syntax_add_text(b, text, size));
    }
    if (!b->failed && b->tree.data[any + SPECDEC__SYNTAX_CHILD] && specdec__strings_tree_dfa(b, &d, any) &&
        (!s->ambiguous || specdec__raw_string_remove_matches(s, &d, specdec__raw_ambiguous_regex)) &&
        specdec__raw_string_add_marks(s, &d))
        specdec__schema_add_alternative(s, specdec__dfa_write_records(b, &d, NULL, NULL));
}

/* Sets the types and the spelling of strings that a conjunction's style has, before the conjunction is built. */
static void specdec__schema_set_style_of_conjunction(specdec__schema *s, const uint32_t *conjunction)
{
    static const uint32_t types[] = {SPECDEC__JSON_TYPE_ALL, SPECDEC__JSON_TYPE_OBJECT, SPECDEC__JSON_TYPE_STRING,
                                     SPECDEC__JSON_TYPE_ALL & ~SPECDEC__JSON_TYPE_STRING, SPECDEC__JSON_TYPE_ALL};
    const uint32_t style = conjunction[SPECDEC__CONJUNCTION_STYLE];

    s->style = style;
    s->tool = conjunction[SPECDEC__CONJUNCTION_TOOL];
    s->types = types[style];
    s->child_style = style == SPECDEC__STYLE_LITERAL ? style : (uint32_t)SPECDEC__STYLE_JSON;
    s->build->raw_strings = style == SPECDEC__STYLE_ARGUMENTS || style == SPECDEC__STYLE_TEXT ||
                (style == SPECDEC__STYLE_LITERAL && s->calls->form == SPECDEC__CALLS_BRACES);
    s->ambiguous = style == SPECDEC__STYLE_TEXT &&
                   specdec__tool_argument_string_is_ambiguous(s, conjunction[SPECDEC__CONJUNCTION_RULE]);
    s->may_be_empty = 0;
}

/* Builds the rule of a conjunction: of all its shapes. */
static void specdec__schema_build_conjunction(specdec__schema *s, uint32_t conjunction)
{
    specdec__build *b = s->build;
    const uint32_t *words = specdec__schema_conjunction_words(s, conjunction);
    const uint32_t first = words[SPECDEC__CONJUNCTION_FIRST], count = words[SPECDEC__CONJUNCTION_COUNT];
    const uint32_t rule = words[SPECDEC__CONJUNCTION_RULE];
    uint32_t i, start;

    s->facts.count = s->branches.count = s->pending_terms.count = s->split_terms.count = 0;
    s->branch_index = s->depth = s->shapes = s->free_types = 0;
    s->literals.count = s->alternatives.count = 0;
    specdec__schema_set_style_of_conjunction(s, words);
    for (i = 0; i < count; i++)
        specdec__vector_push(b, &s->pending_terms, s->terms.data[first + i]);
    specdec__schema_expand_terms_to_shapes(s);
    if (b->failed)
        return;
    specdec__schema_add_alternative(s, specdec__schema_add_listed_values(s));
    specdec__schema_add_listed_raw_strings(s);
    if (s->free_types & SPECDEC__JSON_TYPE_STRING)
        specdec__schema_add_alternative(s, b->raw_strings ? b->rules.data[specdec__raw_string_any_rule(s)]
                                                          : b->string_quote);
    if (s->free_types & SPECDEC__JSON_TYPE_FRACTION)
        specdec__schema_add_alternative(s, b->rules.data[s->number_rule]);
    else if (s->free_types & SPECDEC__JSON_TYPE_INTEGER)
        specdec__schema_add_alternative(s, b->rules.data[s->integer_rule]);
    if (b->failed)
        return;
    b->nullable.data[rule] = s->may_be_empty != 0;
    if (s->alternatives.count == 1) {
        b->rules.data[rule] = s->alternatives.data[0];
        return;
    }
    start = specdec__build_add_state(b, SPECDEC__RECORD_PLAIN | (s->may_be_empty ? SPECDEC__RECORD_MAY_END : 0),
                                     2 + 2 * s->alternatives.count);
    for (i = 0; i < s->alternatives.count && !b->failed; i++) {
        const uint32_t state = s->alternatives.data[i];
        uint32_t called = state == b->string_quote && !b->raw_strings ? 0
                          : state == b->rules.data[s->number_rule]    ? s->number_rule
                          : state == b->rules.data[s->integer_rule]   ? s->integer_rule
                                                                      : specdec__build_add_rule(b);

        if (b->failed)
            return;
        b->rules.data[called] = state;
        b->words[start + 2 + 2 * i] = called;
    }
    if (b->failed)
        return;
    b->words[start + 1] = s->alternatives.count;
    b->rules.data[rule] = start;
}

/* Sets the keyword and, as schema, the first one of a conjunction in an error that names no keyword yet. */
static void specdec__schema_set_error_keyword(specdec__schema *s, uint32_t conjunction, const char *key)
{
    const uint32_t *words = specdec__schema_conjunction_words(s, conjunction);

    if (s->error_key || s->error_node || !words[SPECDEC__CONJUNCTION_COUNT])
        return;
    s->error_node = s->terms.data[words[SPECDEC__CONJUNCTION_FIRST]] >> 1;
    s->error_key = key;
}

/* Parses the JSON of the schemas (text NULL: any value), and builds the rules that all conjunctions use. compact: no
   white space is allowed. Returns 0 when it failed. */
static int specdec__schema_begin_build(specdec__schema *s, specdec__build *b, const unsigned char *text, size_t size,
                                       int compact)
{
    static const unsigned char anything[] = "true";
    uint32_t i, from;
    size_t nodes;

    memset(s, 0, sizeof *s);
    s->build = b;
    s->allows_space = !compact;
    s->json.text = text ? text : anything;
    s->json.size = text ? size : 4;
    if (s->json.size < UINT32_MAX / 64)
        specdec__json_parse(&s->json);
    nodes = s->json.count;
    s->json.nodes = (specdec__json_node *)(void *)specdec__build_reserve_scratch(b,
                                                                                 nodes * (sizeof *s->json.nodes / 4));
    if (b->failed)
        return 0;
    s->json.room = nodes;
    if (!specdec__json_parse(&s->json)) {
        b->error_at = s->json.error_at;
        return specdec__build_fail(b, SPECDEC_ERROR_FORMAT, s->json.failed ? s->json.failed : "it is too long");
    }
    i = specdec__schema_get_member(s, 0, "$schema");
    if (i) {
        const specdec__bytes raw = specdec__json_value_text(&s->json, i);
        size_t k;

        for (k = 0; k + 8 < raw.size; k++)
            s->legacy_refs |= memcmp(raw.data + k, "draft-0", 7) == 0;
    }
    specdec__strings_add_any_string_states(b, &s->string_dfa, &s->string_states);
    s->number_rule = specdec__schema_build_regex_rule(s, "-?(0|[1-9]\\d*)(\\.\\d+)?([eE][+-]?\\d+)?");
    s->integer_rule = specdec__schema_build_regex_rule(s, "-?(0|[1-9]\\d*)");
    s->end_state = specdec__build_add_state(b, SPECDEC__RECORD_PLAIN | SPECDEC__RECORD_MAY_END, 2);
    from = b->ranges.count;
    specdec__syntax_add_range(b, 9, 10);
    specdec__syntax_add_range(b, 13, 13);
    specdec__syntax_add_range(b, ' ', ' ');
    s->space_tree = specdec__syntax_add_set(b, from);
    return !b->failed;
}

/* Builds the rules of all conjunctions; building one may add more conjunctions, which are built, too. Returns 0 when it
   failed. */
static int specdec__schema_build_conjunctions(specdec__schema *s)
{
    specdec__build *b = s->build;
    uint32_t i;

    for (i = 0; i < specdec__schema_conjunction_count(s) && !b->failed; i++)
        specdec__schema_build_conjunction(s, i);
    b->raw_strings = 0;
    if (b->failed) {
        if (i && b->failed != SPECDEC_ERROR_MEMORY)
            specdec__schema_set_error_keyword(
                s, i - 1, b->failed == SPECDEC_ERROR_UNSUPPORTED ? "anyOf, oneOf or not" : "the schema");
        return 0;
    }
    return 1;
}

/* Builds the constraint of a JSON schema. text NULL: any JSON value; compact: no white space is allowed. */
static void specdec__schema_compile(specdec__schema *s, specdec__build *b, const unsigned char *text, size_t size,
                                    int compact)
{
    uint32_t i, root, term = 0;

    if (!specdec__schema_begin_build(s, b, text, size, compact))
        return;
    root = specdec__schema_conjunction_rule(s, &term, 1);
    if (!specdec__schema_build_conjunctions(s))
        return;
    specdec__build_finish(b, root, s->allows_space);
    for (i = 0; b->crowded_state && i < specdec__schema_conjunction_count(s); i++)
        if (b->rules.data[specdec__schema_conjunction_words(s, i)[SPECDEC__CONJUNCTION_RULE]] == b->crowded_state)
            specdec__schema_set_error_keyword(s, i, "anyOf, oneOf or not");
}

SPECDEC__FOR_SPEED
