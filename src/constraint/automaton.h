/* =====================================================================================================================
 * >>constraint/automaton: a constraint as a pushdown automaton over bytes, and the states of texts in it.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"

/* A compiled constraint is a set of rules; a rule is an automaton over the bytes of a text. Each state of a rule is a
   record in one array of 32-bit words; the number of a state is the index of its record's first word, 0: no state.
   Within a rule a byte leads to at most one state. A state may also call other rules, and several alternatives may be
   open at once: then the state of a text consists of several threads (as in R. Pike's matcher of regular expressions).
   A thread is a state and a node of a stack; threads share stack nodes.

   Word 0 of a record is its header: kind, flags, stack need, number of edges, live kinds of bytes. The words behind the
   header, for each kind of record:
   PLAIN         number of calls; edges {low | high << 8, target}; calls {rule, state behind the call, 0: the caller's}
   KEY           object; first leaf | number of leaves << 16; state that reads unlisted keys, or 0; edges
   SET           next state; index of the next property, or SPECDEC__OBJECT_UNLISTED: the key is not listed
   OBJECT, AFTER_MEMBER                      object
   ARRAY, AFTER_ITEM, BEFORE_ITEM            array
   REPEAT, AFTER_REPEAT                      body's state; least; most (UINT32_MAX: no limit); the state AFTER_REPEAT
   The word OTHER of an object is a SET, or, where only some unlisted keys are allowed, the state that reads such keys.
   States named AFTER_... keep the stack node that returned to them, as the node holds their counter. */
enum {
    SPECDEC__RECORD_PLAIN, SPECDEC__RECORD_KEY, SPECDEC__RECORD_SET, SPECDEC__RECORD_OBJECT,
    SPECDEC__RECORD_AFTER_MEMBER,
    SPECDEC__RECORD_ARRAY, SPECDEC__RECORD_AFTER_ITEM, SPECDEC__RECORD_BEFORE_ITEM, SPECDEC__RECORD_REPEAT,
    SPECDEC__RECORD_AFTER_REPEAT
};

/* Flags in a record's header. MAY_END: the rule may end in this state. IN_STRING: the state is inside a JSON string
   without length limits, and every character without an escape leads back to it. COUNTED_STRING: of an AFTER_REPEAT,
   the counted body is one character of a JSON string; of a PLAIN, the state lies in front of such a repetition: it has
   one call, and perhaps an edge for the quote. */
#define SPECDEC__RECORD_MAY_END 16u        /* flag of a state: the rule may end here */
#define SPECDEC__RECORD_IN_STRING 32u      /* flag of a state inside a JSON string without length limits */
#define SPECDEC__RECORD_COUNTED_STRING 64u /* flag of a state at a JSON string whose characters are counted */
#define SPECDEC__RECORD_KIND(header) ((header) & 15u)
/* The stack need in a record's header: levels of the stack that a text takes from this state to the end of its rule;
   255: the rule cannot end. */
#define SPECDEC__RECORD_STACK_NEED(header) ((header) >> 8 & 255u)
#define SPECDEC__RECORD_EDGES(header) ((header) >> 16 & 511)

/* Kinds of bytes, one bit each: a-z, A-Z, 0-9, _, -, other ASCII that needs no escape in a JSON string, whole
   characters beyond ASCII; bit 7: all other bytes, and <, with which the marks of tool calls begin. The live kinds in a
   record's header: any SPECDEC__LIVE_KINDS_BYTES bytes of these kinds, in any order, may follow in the state. */
#define SPECDEC__RECORD_LIVE_KINDS(header) ((header) >> 25)
#define SPECDEC__RECORD_LIVE_SHIFT 25    /* bits of a record's header below the live kinds */
#define SPECDEC__LIVE_KINDS_BYTES 40     /* how many bytes of live kinds may follow in a state, in any order */
#define SPECDEC__BYTE_KINDS_PLAIN 127u   /* the bits of all kinds of bytes but BYTE_KIND_OTHER */
#define SPECDEC__BYTE_KIND_NON_ASCII 64u /* the bit of whole characters beyond ASCII */
#define SPECDEC__BYTE_KIND_OTHER 128u    /* the bit of bytes that belong to no other kind */

/* Returns the kind of a byte, one bit; bytes of characters beyond ASCII are BYTE_KIND_OTHER here. */
SPECDEC__INLINE uint32_t specdec__byte_kind(uint32_t byte)
{
    if (byte >= 'a' && byte <= 'z')
        return 1;
    if (byte >= 'A' && byte <= 'Z')
        return 2;
    if (byte >= '0' && byte <= '9')
        return 4;
    if (byte < 0x20 || byte == '"' || byte == '\\' || byte == '<' || byte > 0x7f)
        return SPECDEC__BYTE_KIND_OTHER;
    return byte == '_' ? 8 : byte == '-' ? 16 : 32;
}

/* Words that describe the objects of a rule (JSON). LEAST, MOST: numbers of members; KEYS, COMMA: states in front of
   the first key, and behind a comma; OTHER: state for unlisted keys; END: state behind the closing brace; AFTER: state
   AFTER_MEMBER; COUNTS: 1 if members are counted. Arrays behind these words: (count + 1) index of the first required
   property from i on, (count) SET states of the properties, (leaves) properties in the order of the tree of keys. */
enum {
    SPECDEC__OBJECT_COUNT, SPECDEC__OBJECT_LEAST, SPECDEC__OBJECT_MOST, SPECDEC__OBJECT_KEYS, SPECDEC__OBJECT_COMMA,
    SPECDEC__OBJECT_OTHER, SPECDEC__OBJECT_END, SPECDEC__OBJECT_AFTER, SPECDEC__OBJECT_COUNTS_MEMBERS,
    SPECDEC__OBJECT_WORDS
};
#define SPECDEC__OBJECT_UNLISTED UINT32_MAX /* a property's index in a SET record: the schema lists no such key */

/* Words that describe the arrays of a rule (JSON). LEAST, MOST: numbers of items; CAP: the counter stops here; END:
   state behind the closing bracket; AFTER, BEFORE: states AFTER_ITEM, BEFORE_ITEM. Behind these words: (count + 1)
   rules of the items; the last one is the rule of all further items, UINT32_MAX: no further items. */
enum {
    SPECDEC__ARRAY_COUNT, SPECDEC__ARRAY_LEAST, SPECDEC__ARRAY_MOST, SPECDEC__ARRAY_CAP, SPECDEC__ARRAY_END,
    SPECDEC__ARRAY_AFTER, SPECDEC__ARRAY_BEFORE, SPECDEC__ARRAY_WORDS
};

/* Limits of the automaton of a constraint. */
enum {
    SPECDEC__AUTOMATON_THREADS = 32, /* most threads of a text's state; further alternatives are left out */
    SPECDEC__STACK_NODES = 64,  /* most stack nodes of a state */
    SPECDEC__STACK_NEW = 32,    /* most stack nodes that reading one byte may add */
    SPECDEC__STACK_HEIGHT = 48, /* levels of the stack: how deep a text may nest */
    SPECDEC__BYTE_VISITS = 64   /* most pairs of state and node that reading one byte may visit */
};

/* A rule of a constraint, as the automaton runs it. */
typedef struct specdec__rule {
    uint32_t start, stack_need; /* first state; levels of the stack until the rule ends, 255: it cannot end */
    uint32_t first[8];          /* (256 bits) bytes with which a text of the rule may begin */
} specdec__rule;

/* A compiled constraint: this header, then rules, then words. */
struct specdec_constraint {
    uint64_t magic, hash; /* SPECDEC__CONSTRAINT_MAGIC; hash of all words, stored in saved sequences */
    size_t bytes;         /* bytes of the whole constraint, this header included */
    uint32_t rule_count, word_count, root_rule; /* numbers of rules and of words; index of the rule of a whole text */
    uint32_t allows_space;                      /* 1: JSON's white space is allowed between the tokens of JSON */
    uint32_t argument_kinds;                    /* index among the words of the kinds of tool arguments */
    uint32_t argument_kind_count;               /* number of these kinds; each has SPECDEC__ARGUMENT_KIND_WORDS words */
};

/* A thread: one of the alternatives that are open in a text, a state with its stack. */
typedef struct specdec__automaton_thread {
    uint32_t state, node; /* a state of a rule; number of the stack's top node, 0: the stack is empty */
} specdec__automaton_thread;

/* A level of a stack: a rule was called, or an object, array or repetition is open. */
typedef struct specdec__stack_node {
    uint32_t return_state; /* the state to which the called rule returns */
    uint32_t counter;      /* repetitions or items so far; for an object: next property | members so far << 16 */
    uint16_t parent, height; /* number of the node of the level below; levels of the stack up to this one */
} specdec__stack_node;

/* The state of a text in a constraint. It holds no pointers, so a copy of it is a state of its own. */
struct specdec_constraint_state {
    uint16_t thread_count, node_count; /* numbers of threads and of stack nodes; node[0] is never used */
    uint32_t dropped;                  /* not 0: alternatives were left out for lack of room */
    specdec__automaton_thread thread[SPECDEC__AUTOMATON_THREADS]; /* (thread_count) the open alternatives */
    specdec__stack_node node[SPECDEC__STACK_NODES]; /* (node_count) the stacks of all threads */
};

/* The working memory of reading one byte: stack nodes of the state, and behind them the nodes that are new. */
typedef struct specdec__automaton {
    const specdec_constraint *constraint;    /* the constraint whose automaton this is */
    const uint32_t *words;                   /* (constraint->word_count) records of all states, objects and arrays */
    const specdec__rule *rules;              /* (constraint->rule_count) the constraint's rules */
    const specdec__stack_node *state_nodes;  /* (state_node_count) stack nodes of the state */
    specdec__stack_node *new_nodes;          /* (new_node_count of new_node_room) nodes behind those of the state */
    specdec__automaton_thread *next_threads; /* (next_count) threads behind the byte */
    specdec__automaton_thread *visits;       /* (visit_count of SPECDEC__BYTE_VISITS) states that the byte visits */
    uint32_t state_node_count, new_node_count; /* numbers of stack nodes of the state, and of new ones */
    uint32_t first_new_node, new_node_room;    /* new nodes of earlier bytes; new nodes that there is room for */
    uint32_t next_count, visit_count;        /* numbers of threads behind the byte, and of visited states */
    uint32_t dropped;                        /* not 0: an alternative was left out for lack of room */
} specdec__automaton;

/* Returns the rules of a constraint, which lie behind its header. */
SPECDEC__INLINE const specdec__rule *specdec__constraint_rules(const specdec_constraint *c)
{
    return (const specdec__rule *)(const void *)(c + 1);
}

/* Returns a constraint's array of words, which lies behind its rules. */
SPECDEC__INLINE const uint32_t *specdec__constraint_words(const specdec_constraint *c)
{
    return (const uint32_t *)(const void *)(specdec__constraint_rules(c) + c->rule_count);
}

/* Returns a stack node by its number; new nodes are numbered behind those of the text's state. */
SPECDEC__INLINE const specdec__stack_node *specdec__automaton_node(const specdec__automaton *m, uint32_t node)
{
    return node < m->state_node_count ? &m->state_nodes[node] : &m->new_nodes[node - m->state_node_count];
}

/* Returns the number of levels of the stack whose top is a node; 0: an empty stack. */
SPECDEC__INLINE uint32_t specdec__automaton_stack_height(const specdec__automaton *m, uint32_t node)
{
    return node ? specdec__automaton_node(m, node)->height : 0;
}

/* Pushes a stack node on top of the node `parent` and returns its number; UINT32_MAX: no room. Equal nodes that one
   byte adds are shared. */
static uint32_t specdec__automaton_push_node(specdec__automaton *m, uint32_t back, uint32_t counter, uint32_t parent)
{
    const uint32_t height = specdec__automaton_stack_height(m, parent) + 1;
    specdec__stack_node *node;
    uint32_t i;

    for (i = m->first_new_node; i < m->new_node_count; i++)
        if (m->new_nodes[i].return_state == back && m->new_nodes[i].counter == counter &&
            m->new_nodes[i].parent == parent)
            return m->state_node_count + i;
    if (height > SPECDEC__STACK_HEIGHT || m->new_node_count - m->first_new_node == SPECDEC__STACK_NEW ||
        m->new_node_count == m->new_node_room) {
        m->dropped = 1;
        return UINT32_MAX;
    }
    node = &m->new_nodes[m->new_node_count];
    node->return_state = back;
    node->counter = counter;
    node->parent = (uint16_t)parent;
    node->height = (uint16_t)height;
    return m->state_node_count + m->new_node_count++;
}

/* Adds a state and its stack node to the list of pairs that the current byte visits, unless they are in it. */
static void specdec__automaton_visit_state(specdec__automaton *m, uint32_t state, uint32_t node)
{
    uint32_t i;

    if (node == UINT32_MAX)
        return;
    for (i = 0; i < m->visit_count; i++)
        if (m->visits[i].state == state && m->visits[i].node == node)
            return;
    if (m->visit_count == SPECDEC__BYTE_VISITS) {
        m->dropped = 1;
        return;
    }
    m->visits[m->visit_count].state = state;
    m->visits[m->visit_count++].node = node;
}

/* Does the state with this header keep the stack node that returned to it, as its counter lies there? */
SPECDEC__INLINE int specdec__record_keeps_stack_node(uint32_t header)
{
    const uint32_t kind = SPECDEC__RECORD_KIND(header);

    return kind == SPECDEC__RECORD_AFTER_MEMBER || kind == SPECDEC__RECORD_AFTER_ITEM ||
           kind == SPECDEC__RECORD_AFTER_REPEAT;
}

/* Can a rule do nothing but end in this state: has its record no edges and no calls? */
SPECDEC__INLINE int specdec__record_can_only_end(const uint32_t *record)
{
    return (record[0] & ~(255u << 8)) == (SPECDEC__RECORD_PLAIN | SPECDEC__RECORD_MAY_END) && !record[1];
}

/* Can a rule continue only by an edge in this state: has its record no calls, and may it not end? */
SPECDEC__INLINE int specdec__record_has_only_edges(const uint32_t *record)
{
    return SPECDEC__RECORD_KIND(record[0]) == SPECDEC__RECORD_PLAIN && !record[1] &&
           !(record[0] & SPECDEC__RECORD_MAY_END);
}

/* Adds a thread behind the byte to m->next_threads, unless the stack would be too high for its rule to end. States in
   which a rule can only end are replaced by the state that the rule returns to. */
static void specdec__automaton_add_thread(specdec__automaton *m, uint32_t state, uint32_t node)
{
    uint32_t i;

    if (specdec__automaton_stack_height(m, node) + SPECDEC__RECORD_STACK_NEED(m->words[state]) > SPECDEC__STACK_HEIGHT)
        return;
    while (node && specdec__record_can_only_end(m->words + state)) {
        const specdec__stack_node *top = specdec__automaton_node(m, node);

        state = top->return_state;
        node = specdec__record_keeps_stack_node(m->words[state]) ? node : top->parent;
    }
    for (i = 0; i < m->next_count; i++)
        if (m->next_threads[i].state == state && m->next_threads[i].node == node)
            return;
    if (m->next_count == SPECDEC__AUTOMATON_THREADS) {
        m->dropped = 1;
        return;
    }
    m->next_threads[m->next_count].state = state;
    m->next_threads[m->next_count++].node = node;
}

/* Ends the rule that a stack node has called: visits the state to which the rule returns. Returns 0 when the stack is
   empty. */
static int specdec__automaton_end_rule(specdec__automaton *m, uint32_t node)
{
    const specdec__stack_node *top;

    if (!node)
        return 0;
    top = specdec__automaton_node(m, node);
    specdec__automaton_visit_state(m, top->return_state,
                                   specdec__record_keeps_stack_node(m->words[top->return_state]) ? node : top->parent);
    return 1;
}

/* Returns the edge for a byte, by binary search among `count` edges in order of their bytes; NULL: there is none. */
SPECDEC__INLINE const uint32_t *specdec__record_find_edge(const uint32_t *edge, uint32_t count, uint32_t byte)
{
    while (count > 4) { /* invariant: the edge, if there is one, is among the `count` edges from `edge` on */
        const uint32_t half = count / 2;

        if ((edge[2 * half] & 255) <= byte) {
            edge += 2 * half;
            count -= half;
        } else {
            count = half;
        }
    }
    for (; count; count--, edge += 2)
        if (byte >= (edge[0] & 255) && byte <= edge[0] >> 8)
            return edge;
    return NULL;
}

/* May a listed property be the next member of an object, by the counter of the object's stack node? `height`: levels of
   the stack; the property's value must have room there. */
static int specdec__object_allows_property(const specdec__automaton *m, const uint32_t *object, uint32_t property,
                                           uint32_t counter, uint32_t height)
{
    const uint32_t count = object[SPECDEC__OBJECT_COUNT], next = counter & 0xffff, seen = counter >> 16;
    const uint32_t *first = object + SPECDEC__OBJECT_WORDS, *states = first + count + 1;

    if (property < next || property > first[next] || seen >= object[SPECDEC__OBJECT_MOST])
        return 0;
    if (height + SPECDEC__RECORD_STACK_NEED(m->words[states[property]]) > SPECDEC__STACK_HEIGHT)
        return 0;
    if (seen + 1 + (count - property - 1) < object[SPECDEC__OBJECT_LEAST] && !object[SPECDEC__OBJECT_OTHER])
        return 0;
    if (object[SPECDEC__OBJECT_COUNTS_MEMBERS]) { /* required properties behind this one must fit below MOST */
        uint32_t i, required = 0;

        for (i = property + 1; i < count && first[i] < count; i = first[i] + 1)
            required++;
        if (seen + 1 + required > object[SPECDEC__OBJECT_MOST])
            return 0;
    }
    return 1;
}

/* May an unlisted key be the next member of an object? counter, height: as in specdec__object_allows_property. */
static int specdec__object_allows_unlisted(const specdec__automaton *m, const uint32_t *object, uint32_t counter,
                                           uint32_t height)
{
    const uint32_t count = object[SPECDEC__OBJECT_COUNT], other = object[SPECDEC__OBJECT_OTHER];
    uint32_t need;

    if (!other || object[SPECDEC__OBJECT_WORDS + (counter & 0xffff)] < count ||
        counter >> 16 >= object[SPECDEC__OBJECT_MOST])
        return 0;
    need = SPECDEC__RECORD_STACK_NEED(m->words[other]);
    return height + (need < 1 ? 1 : need) <= SPECDEC__STACK_HEIGHT;
}

/* May any key of an object follow whose first bytes lead to this KEY state? */
static int specdec__object_allows_key(const specdec__automaton *m, uint32_t key, uint32_t node)
{
    const uint32_t *record = m->words + key, *object = m->words + record[1];
    const uint32_t counter = node ? specdec__automaton_node(m, node)->counter : 0;
    const uint32_t height = specdec__automaton_stack_height(m, node);
    const uint32_t first = SPECDEC__OBJECT_WORDS + 2 * object[SPECDEC__OBJECT_COUNT] + 1 + (record[2] & 0xffff);
    const uint32_t *leaves = object + first;
    uint32_t i, count = record[2] >> 16;

    for (i = 0; i < count; i++)
        if (specdec__object_allows_property(m, object, leaves[i], counter, height))
            return 1;
    return record[3] && height + SPECDEC__RECORD_STACK_NEED(m->words[record[3]]) <= SPECDEC__STACK_HEIGHT &&
           specdec__object_allows_unlisted(m, object, counter, height);
}

/* Reads a byte of an object's key: along the tree of listed keys, or, where the byte leaves the tree, as an unlisted
   key. */
static void specdec__automaton_read_byte_in_key_state(specdec__automaton *m, const specdec__automaton_thread *at,
                                                      uint32_t byte)
{
    const uint32_t *record = m->words + at->state, *object = m->words + record[1];
    const specdec__stack_node *node = specdec__automaton_node(m, at->node);
    const uint32_t *edge = specdec__record_find_edge(record + 4, SPECDEC__RECORD_EDGES(record[0]), byte);

    if (edge) {
        const uint32_t target = edge[1], *to = m->words + target;

        if (SPECDEC__RECORD_KIND(to[0]) == SPECDEC__RECORD_KEY
                ? specdec__object_allows_key(m, target, at->node)
                : specdec__object_allows_property(m, object, to[2] - 1, node->counter, node->height))
            specdec__automaton_add_thread(m, target, at->node);
    } else if (record[3] && specdec__object_allows_unlisted(m, object, node->counter, node->height)) {
        const uint32_t other = object[SPECDEC__OBJECT_OTHER];

        /* Where all unlisted keys are allowed, the states of any JSON string read them and then return here. */
        if (SPECDEC__RECORD_KIND(m->words[other]) == SPECDEC__RECORD_SET)
            specdec__automaton_visit_state(m, record[3], specdec__automaton_push_node(m, other, 0, at->node));
        else
            specdec__automaton_visit_state(m, record[3], at->node);
    }
}

/* Is this byte white space that the constraint allows between the tokens of JSON? */
SPECDEC__INLINE int specdec__automaton_skips_space(const specdec__automaton *m, uint32_t byte)
{
    return m->constraint->allows_space && (byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r');
}

/* Reads a byte at the beginning of an object or behind a member: white space, a quote or comma, or the closing
   brace. */
static void specdec__automaton_read_byte_in_object_state(specdec__automaton *m, const specdec__automaton_thread *at,
                                                         uint32_t byte)
{
    const uint32_t *record = m->words + at->state, *object = m->words + record[1];
    const int begins = SPECDEC__RECORD_KIND(record[0]) == SPECDEC__RECORD_OBJECT;
    const uint32_t keys = object[SPECDEC__OBJECT_KEYS];
    uint32_t node = at->node, counter;

    if (specdec__automaton_skips_space(m, byte)) {
        specdec__automaton_add_thread(m, at->state, node);
        return;
    }
    if (byte != '}' && byte != (begins ? '"' : ','))
        return;
    counter = begins ? 0 : specdec__automaton_node(m, node)->counter;
    if (byte == '}') {
        if (object[SPECDEC__OBJECT_WORDS + (counter & 0xffff)] == object[SPECDEC__OBJECT_COUNT] &&
            counter >> 16 >= object[SPECDEC__OBJECT_LEAST])
            specdec__automaton_add_thread(m, object[SPECDEC__OBJECT_END],
                                          begins ? node : specdec__automaton_node(m, node)->parent);
        return;
    }
    if (begins && (node = specdec__automaton_push_node(m, object[SPECDEC__OBJECT_AFTER], 0, node)) == UINT32_MAX)
        return;
    if (specdec__object_allows_key(m, keys, node))
        specdec__automaton_add_thread(m, begins ? keys : object[SPECDEC__OBJECT_COMMA], node);
}

/* Returns the rule of item i of an array; UINT32_MAX: the array ends before it. */
SPECDEC__INLINE uint32_t specdec__array_item_rule(const uint32_t *array, uint32_t i)
{
    const uint32_t count = array[SPECDEC__ARRAY_COUNT];

    return i >= array[SPECDEC__ARRAY_MOST] ? UINT32_MAX : array[SPECDEC__ARRAY_WORDS + (i < count ? i : count)];
}

/* Reads a byte between the items of an array: white space, the closing bracket, a comma, or the first byte of an
   item. */
static void specdec__automaton_read_byte_in_array_state(specdec__automaton *m, const specdec__automaton_thread *at,
                                                        uint32_t byte)
{
    const uint32_t *record = m->words + at->state, *array = m->words + record[1];
    const uint32_t kind = SPECDEC__RECORD_KIND(record[0]);
    const uint32_t items = kind == SPECDEC__RECORD_ARRAY ? 0 : specdec__automaton_node(m, at->node)->counter;
    const uint32_t parent = kind == SPECDEC__RECORD_ARRAY ? at->node : specdec__automaton_node(m, at->node)->parent;
    const uint32_t rule = specdec__array_item_rule(array, items);
    const uint32_t height = specdec__automaton_stack_height(m, parent) + 1;
    const int room = rule != UINT32_MAX && height + m->rules[rule].stack_need <= SPECDEC__STACK_HEIGHT;

    if (specdec__automaton_skips_space(m, byte)) {
        specdec__automaton_add_thread(m, at->state, at->node);
        return;
    }
    if (byte == ']' && kind != SPECDEC__RECORD_BEFORE_ITEM && items >= array[SPECDEC__ARRAY_LEAST])
        specdec__automaton_add_thread(m, array[SPECDEC__ARRAY_END], parent);
    if (kind == SPECDEC__RECORD_AFTER_ITEM) {
        if (byte == ',' && room)
            specdec__automaton_add_thread(m, array[SPECDEC__ARRAY_BEFORE], at->node);
    } else if (room && m->rules[rule].first[byte >> 5] >> (byte & 31) & 1) {
        const uint32_t more = items < array[SPECDEC__ARRAY_CAP] ? items + 1 : items;

        specdec__automaton_visit_state(m, m->rules[rule].start,
                                       specdec__automaton_push_node(m, array[SPECDEC__ARRAY_AFTER], more, parent));
    }
}

/* Visits the states that may follow in a counted repetition: its body once more, and, after enough repetitions, the
   state behind it. */
static void specdec__automaton_visit_repetition(specdec__automaton *m, const specdec__automaton_thread *at)
{
    const uint32_t *record = m->words + at->state;
    const int begins = SPECDEC__RECORD_KIND(record[0]) == SPECDEC__RECORD_REPEAT;
    const uint32_t done = begins ? 0 : specdec__automaton_node(m, at->node)->counter;
    const uint32_t parent = begins ? at->node : specdec__automaton_node(m, at->node)->parent;
    const uint32_t after = record[4];

    if (done < record[3]) { /* without a limit, counts above the least are not told apart */
        const uint32_t more = record[3] == UINT32_MAX && done >= record[2] ? done : done + 1;

        specdec__automaton_visit_state(m, record[1], specdec__automaton_push_node(m, after, more, parent));
    }
    if (done >= record[2])
        specdec__automaton_end_rule(m, parent);
}

/* Reads a byte in a PLAIN state: by its edges, in the rules that it calls, or behind the end of its rule. */
static void specdec__automaton_read_byte_in_plain_state(specdec__automaton *m, const specdec__automaton_thread *at,
                                                        uint32_t byte)
{
    const uint32_t *record = m->words + at->state, edges = SPECDEC__RECORD_EDGES(record[0]);
    const uint32_t *edge = specdec__record_find_edge(record + 2, edges, byte), *call = record + 2 + 2 * edges;
    uint32_t i;

    if (edge)
        specdec__automaton_add_thread(m, edge[1], at->node);
    for (i = 0; i < record[1]; i++, call += 2) {
        const specdec__rule *rule = &m->rules[call[0]];
        uint32_t height;

        if (!(rule->first[byte >> 5] >> (byte & 31) & 1))
            continue;
        height = specdec__automaton_stack_height(m, at->node);
        if (!call[1])
            specdec__automaton_visit_state(m, rule->start, at->node);
        else if (height + 1 + rule->stack_need <= SPECDEC__STACK_HEIGHT &&
                 height + SPECDEC__RECORD_STACK_NEED(m->words[call[1]]) <= SPECDEC__STACK_HEIGHT)
            specdec__automaton_visit_state(m, rule->start, specdec__automaton_push_node(m, call[1], 0, at->node));
    }
    if (record[0] & SPECDEC__RECORD_MAY_END)
        specdec__automaton_end_rule(m, at->node);
}

/* Counts the object's member whose key was read, in a new stack node of the object, then visits the state behind the
   key. */
static void specdec__automaton_count_member(specdec__automaton *m, const specdec__automaton_thread *at)
{
    const uint32_t *record = m->words + at->state;
    const specdec__stack_node *node = specdec__automaton_node(m, at->node);
    const uint32_t *object = m->words + m->words[node->return_state + 1];
    uint32_t index = record[2] == SPECDEC__OBJECT_UNLISTED ? object[SPECDEC__OBJECT_COUNT] : record[2];
    uint32_t seen = node->counter >> 16;

    if (object[SPECDEC__OBJECT_COUNTS_MEMBERS] && seen < 0xffff)
        seen++;
    specdec__automaton_visit_state(
        m, record[1], specdec__automaton_push_node(m, node->return_state, index | seen << 16, node->parent));
}

/* Reads a byte with `count` threads; the threads behind the byte are written to m->next_threads. */
static void specdec__automaton_read_byte(specdec__automaton *m, const specdec__automaton_thread *threads,
                                         uint32_t count, uint32_t byte)
{
    uint32_t i;

    m->next_count = m->visit_count = 0;
    m->first_new_node = m->new_node_count;
    for (i = 0; i < count; i++)
        specdec__automaton_visit_state(m, threads[i].state, threads[i].node);
    for (i = 0; i < m->visit_count; i++) {
        const specdec__automaton_thread at = m->visits[i];

        switch (SPECDEC__RECORD_KIND(m->words[at.state])) {
        case SPECDEC__RECORD_PLAIN: specdec__automaton_read_byte_in_plain_state(m, &at, byte); break;
        case SPECDEC__RECORD_KEY: specdec__automaton_read_byte_in_key_state(m, &at, byte); break;
        case SPECDEC__RECORD_SET: specdec__automaton_count_member(m, &at); break;
        case SPECDEC__RECORD_OBJECT:
        case SPECDEC__RECORD_AFTER_MEMBER: specdec__automaton_read_byte_in_object_state(m, &at, byte); break;
        case SPECDEC__RECORD_REPEAT:
        case SPECDEC__RECORD_AFTER_REPEAT: specdec__automaton_visit_repetition(m, &at); break;
        default: specdec__automaton_read_byte_in_array_state(m, &at, byte);
        }
    }
}

/* Marks the stack nodes that `count` threads use: live[node] becomes 1, all others 0. Returns how many are marked. */
static uint32_t specdec__automaton_mark_used_nodes(const specdec__automaton *m,
                                                   const specdec__automaton_thread *threads, uint32_t count,
                                                   unsigned char *live)
{
    uint32_t i, node, marked = 0;

    memset(live, 0, m->state_node_count + m->new_node_count);
    for (i = 0; i < count; i++)
        for (node = threads[i].node; node && !live[node]; node = specdec__automaton_node(m, node)->parent) {
            live[node] = 1;
            marked++;
        }
    return marked;
}

/* Removes the last of m->next_threads until the stack nodes of the others fit into a text's state. */
static void specdec__automaton_remove_excess_threads(specdec__automaton *m, unsigned char *live)
{
    while (specdec__automaton_mark_used_nodes(m, m->next_threads, m->next_count, live) >= SPECDEC__STACK_NODES) {
        m->next_count--;
        m->dropped = 1;
    }
}

/* Stores m->next_threads and their stack nodes as a text's state, which may be the one that was read. */
static void specdec__automaton_store_state(specdec__automaton *m, specdec_constraint_state *state)
{
    unsigned char live[SPECDEC__STACK_NODES + SPECDEC__STACK_NEW];
    uint16_t place[SPECDEC__STACK_NODES + SPECDEC__STACK_NEW];
    uint32_t i, kept = 1;

    if (m->new_node_count || m->state_node_count > 1) {
        specdec__automaton_remove_excess_threads(m, live);
        place[0] = 0;
        for (i = 1; i < m->state_node_count + m->new_node_count; i++) {
            specdec__stack_node node;

            if (!live[i])
                continue;
            node = *specdec__automaton_node(m, i);
            node.parent = place[node.parent];
            place[i] = (uint16_t)kept;
            state->node[kept++] = node;
        }
        for (i = 0; i < m->next_count; i++)
            m->next_threads[i].node = place[m->next_threads[i].node];
    }
    memcpy(state->thread, m->next_threads, m->next_count * sizeof *m->next_threads);
    state->thread_count = (uint16_t)m->next_count;
    state->node_count = (uint16_t)kept;
    state->dropped |= m->dropped;
}

/* Fills in the working memory for reading a byte after a text whose state is given. */
static void specdec__automaton_load_state(specdec__automaton *m, const specdec_constraint *c,
                                          const specdec_constraint_state *state)
{
    memset(m, 0, sizeof *m);
    m->constraint = c;
    m->words = specdec__constraint_words(c);
    m->rules = specdec__constraint_rules(c);
    m->state_nodes = state->node;
    m->state_node_count = state->node_count;
}

/* Is the text with this state complete, so that it may end? */
static int specdec__constraint_is_complete(const specdec_constraint *c, const specdec_constraint_state *state)
{
    specdec__stack_node fresh[SPECDEC__STACK_NEW];
    specdec__automaton_thread items[SPECDEC__BYTE_VISITS];
    specdec__automaton m;
    uint32_t i;

    specdec__automaton_load_state(&m, c, state);
    m.new_nodes = fresh;
    m.new_node_room = SPECDEC__STACK_NEW;
    m.visits = items;
    for (i = 0; i < state->thread_count; i++)
        specdec__automaton_visit_state(&m, state->thread[i].state, state->thread[i].node);
    for (i = 0; i < m.visit_count; i++) {
        const specdec__automaton_thread at = items[i];
        const uint32_t *record = m.words + at.state, kind = SPECDEC__RECORD_KIND(record[0]);

        if (kind == SPECDEC__RECORD_PLAIN && record[0] & SPECDEC__RECORD_MAY_END &&
            !specdec__automaton_end_rule(&m, at.node))
            return 1;
        if (kind == SPECDEC__RECORD_AFTER_REPEAT && m.state_nodes[at.node].counter >= record[2] &&
            !specdec__automaton_end_rule(&m, m.state_nodes[at.node].parent))
            return 1;
        if (kind == SPECDEC__RECORD_REPEAT && !record[2] && !specdec__automaton_end_rule(&m, at.node))
            return 1;
    }
    return 0;
}

/* Reads a byte of a text: the state becomes that behind the byte. Returns 0, and changes nothing, when the byte may not
   follow. */
static int specdec__constraint_read_byte(const specdec_constraint *c, specdec_constraint_state *state,
                                         unsigned char byte)
{
    specdec__stack_node fresh[SPECDEC__STACK_NEW];
    specdec__automaton_thread out[SPECDEC__AUTOMATON_THREADS], items[SPECDEC__BYTE_VISITS];
    specdec__automaton m;

    if (state->thread_count == 1) { /* fast path inside strings and words: one thread, whose stack does not change */
        const uint32_t *words = specdec__constraint_words(c), *record = words + state->thread[0].state;

        if (specdec__record_has_only_edges(record)) {
            const uint32_t *edge = specdec__record_find_edge(record + 2, SPECDEC__RECORD_EDGES(record[0]), byte);
            const uint32_t node = state->thread[0].node, height = node ? state->node[node].height : 0;

            if (!edge || height + SPECDEC__RECORD_STACK_NEED(words[edge[1]]) > SPECDEC__STACK_HEIGHT)
                return 0;
            if (!node || !specdec__record_can_only_end(words + edge[1])) {
                state->thread[0].state = edge[1];
                return 1;
            }
        }
    }
    specdec__automaton_load_state(&m, c, state);
    m.new_nodes = fresh;
    m.new_node_room = SPECDEC__STACK_NEW;
    m.next_threads = out;
    m.visits = items;
    specdec__automaton_read_byte(&m, state->thread, state->thread_count, byte);
    if (!m.next_count)
        return 0;
    specdec__automaton_store_state(&m, state);
    return 1;
}

/* Writes the state of an empty text: one thread at the start of the root rule. */
static SPECDEC__UNUSED void specdec__constraint_first_state(const specdec_constraint *c,
                                                            specdec_constraint_state *state)
{
    memset(state, 0, sizeof *state);
    state->thread_count = state->node_count = 1;
    state->thread[0].state = specdec__constraint_rules(c)[c->root_rule].start;
}

/* Adds the bytes that may follow in a state of a rule to a set of 256 bits; some of them may then be refused. */
static void specdec__record_add_first_bytes(const specdec__automaton *m, uint32_t state, uint32_t set[8])
{
    const uint32_t *record = m->words + state, kind = SPECDEC__RECORD_KIND(record[0]);
    const uint32_t edges = SPECDEC__RECORD_EDGES(record[0]);
    uint32_t i, j, at = kind == SPECDEC__RECORD_KEY ? 4 : 2;

    if (kind == SPECDEC__RECORD_PLAIN || kind == SPECDEC__RECORD_KEY) {
        for (i = 0; i < edges; i++, at += 2)
            for (j = record[at] & 255; j <= record[at] >> 8; j++)
                set[j >> 5] |= 1u << (j & 31);
        for (i = 0; kind == SPECDEC__RECORD_PLAIN && i < record[1]; i++, at += 2)
            for (j = 0; j < 8; j++)
                set[j] |= m->rules[record[at]].first[j];
        if (kind == SPECDEC__RECORD_KEY && record[3])
            specdec__record_add_first_bytes(m, record[3], set); /* the state that reads unlisted keys is PLAIN */
    } else {
        for (j = 0; j < 8; j++)
            set[j] = UINT32_MAX;
    }
}
