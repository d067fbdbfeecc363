/* =====================================================================================================================
 * >>text/splitter: answers of a model split into content, thoughts and tool calls, byte by byte.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "json.h"
#include "answer.h"

SPECDEC__FOR_SIZE

/* States of a splitter: what the next byte of the answer belongs to. */
enum {
    SPECDEC__ANSWER_TEXT,     /* content, or a thought (flag ANSWER_IN_THOUGHT) */
    SPECDEC__ANSWER_BETWEEN,  /* in front of a call, between calls, or behind one */
    SPECDEC__ANSWER_OBJECT,   /* a JSON object with name and arguments of a call */
    SPECDEC__ANSWER_NAME, SPECDEC__ANSWER_ARGUMENTS, /* the name of a call; its arguments, which are JSON */
    SPECDEC__ANSWER_PAIRS,    /* in front of an argument that is written as name and value between marks */
    SPECDEC__ANSWER_KEY, SPECDEC__ANSWER_VALUE_BEGIN, SPECDEC__ANSWER_VALUE, /* its name; up to its value; its value */
    SPECDEC__ANSWER_LITERAL,  /* arguments in a syntax other than JSON */
    SPECDEC__ANSWER_HEADER, SPECDEC__ANSWER_BODY /* header and text of a message (gpt-oss's Harmony format) */
};

/* Flags of a splitter. Emitting: appending to the parts that specdec__answer_next_part returns. */
enum {
    SPECDEC__ANSWER_IN_THOUGHT = 1,   /* inside a thought */
    SPECDEC__ANSWER_SKIP_SPACE = 2,     /* white space is dropped until another byte comes */
    SPECDEC__ANSWER_ONLY_SPACE = 4,    /* only white space has come so far */
    SPECDEC__ANSWER_IN_STRING = 8,   /* inside a string */
    SPECDEC__ANSWER_AFTER_BACKSLASH = 16,  /* inside a string, behind a backslash */
    SPECDEC__ANSWER_QUOTED_ARGUMENTS = 32,  /* the arguments are spelled inside a JSON string */
    SPECDEC__ANSWER_VALUE_BEGUN = 64,   /* the value has begun */
    SPECDEC__ANSWER_NEEDS_COMMA = 128,  /* a comma must be written before the next item */
    SPECDEC__ANSWER_MESSAGE_IS_CALL = 256,/* the message (Harmony) is a call */
    SPECDEC__ANSWER_MEMBER_NAME = 512  /* the name of a member comes next, or is being read */
};

/* 32-bit words of a stored argument's kind: 2 of a hash of the names of tool and argument, then the kind: 1: string, 2:
   other JSON, 0: unknown. Most bytes of an argument's name. */
enum { SPECDEC__ARGUMENT_KIND_WORDS = 3, SPECDEC__ANSWER_ARGUMENT_NAME_MOST = 96 };

/* Most bytes of a name or value that is collected in `note`; room for bytes and for parts that are emitted and not
   returned yet. */
enum {
    SPECDEC__ANSWER_NOTE_MOST = 160,
    SPECDEC__ANSWER_OUT_BYTES = 1200,
    SPECDEC__ANSWER_QUEUED_PARTS = 12
};

/* Does the mark around an argument's name tell whether its value is a string, as DeepSeek's does? */
static int specdec__answer_mark_tells_argument_kind(const specdec__calls *row)
{
    const char *begin = SPECDEC__CALL_TEXT(row, KEY_BEGIN);
    const size_t size = begin ? strlen(begin) : 0;

    return size && begin[size - 1] == '"' && SPECDEC__CALL_TEXT(row, KEY_END)[0] != '"';
}

/* Returns the hash of a tool's argument, from the hash of the tool's name and the argument's name. */
static uint64_t specdec__answer_argument_hash(uint64_t tool, const unsigned char *name, size_t size)
{
    return specdec__hash(specdec__hash(tool, (const unsigned char *)"\1", 1), name, size);
}

/* Returns the row of specdec__call_table by which a splitter reads tool calls; NULL: it reads none. */
static const specdec__calls *specdec__answer_current_call_row(const specdec_splitter *s)
{
    return (const specdec__calls *)s->calls;
}

/* Initialises a splitter for an answer that is written with these marks of calls and thoughts. inside = 1: the prompt
   has already opened a thought. */
static SPECDEC__UNUSED void specdec__answer_begin_splitter(specdec_splitter *s, const specdec__calls *calls,
                                                           const specdec__thoughts *thoughts, int inside)
{
    memset(s, 0, sizeof *s);
    s->calls = calls;
    s->thoughts = thoughts;
    s->call = -1;
    s->state = calls && calls->form == SPECDEC__CALLS_CHANNEL ? SPECDEC__ANSWER_HEADER : SPECDEC__ANSWER_TEXT;
    s->flags = inside ? SPECDEC__ANSWER_IN_THOUGHT | SPECDEC__ANSWER_SKIP_SPACE : SPECDEC__ANSWER_ONLY_SPACE;
}

/* Appends bytes to the parts that specdec__answer_next_part returns; a new part begins where the kind or the call
   changes. kind: SPECDEC_PART_... */
static void specdec__answer_emit_bytes(specdec_splitter *s, int kind, const char *bytes, size_t count)
{
    const int call = kind >= SPECDEC_PART_NAME ? s->call : -1;
    const int last = s->queued - 1;

    if (count > (size_t)(SPECDEC__ANSWER_OUT_BYTES - s->out))
        count = (size_t)(SPECDEC__ANSWER_OUT_BYTES - s->out); /* cannot happen: see specdec__answer_next_part */
    if (last < 0 || s->kinds[last] != kind || s->numbers[last] != call || kind == SPECDEC_PART_END) {
        if (s->queued == SPECDEC__ANSWER_QUEUED_PARTS)
            return; /* cannot happen */
        s->kinds[s->queued] = (unsigned char)kind;
        s->numbers[s->queued++] = call;
    }
    if (count)
        memcpy(s->bytes + s->out, bytes, count);
    s->out += (int)count;
    s->ends[s->queued - 1] = s->out;
}

/* Emits a terminated string as a part, or the end of one. kind: SPECDEC_PART_... */
static void specdec__answer_emit_string(specdec_splitter *s, int kind, const char *text)
{
    specdec__answer_emit_bytes(s, kind, text, strlen(text));
}

/* Is a byte white space? */
static int specdec__answer_is_space(int c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

/* Emits a byte of a string value as a part of the arguments, escaped as in a JSON string. */
static void specdec__answer_emit_escaped(specdec_splitter *s, int c)
{
    static const char names[] = "nrtbf", meant[] = "\n\r\t\b\f", hex[] = "0123456789abcdef";
    const char *known = c ? strchr(meant, c) : NULL;
    char out[7] = "\\u00";
    const char plain = (char)c;

    if (c == '"' || c == '\\' || known) {
        out[1] = known ? names[known - meant] : plain;
        specdec__answer_emit_bytes(s, SPECDEC_PART_ARGUMENTS, out, 2);
    } else if (c < 32) {
        out[4] = hex[c >> 4];
        out[5] = hex[c & 15];
        specdec__answer_emit_bytes(s, SPECDEC_PART_ARGUMENTS, out, 6);
    } else {
        specdec__answer_emit_bytes(s, SPECDEC_PART_ARGUMENTS, &plain, 1);
    }
}

/* Most bytes of white space that are held back in front of a mark; of more, the first become text. Together with the
   longest mark they fit into `hold`. */
enum { SPECDEC__ANSWER_SPACES_MOST = 47 };

/* Compares the held bytes with a mark, behind white space if `spaces`. Returns 2: the mark is complete; 1: it may
   become complete; 0: it does not match. */
static int specdec__answer_match_mark(const specdec_splitter *s, const char *mark, int spaces)
{
    int skip = 0, size;

    while (spaces && skip < s->held && skip < SPECDEC__ANSWER_SPACES_MOST && mark &&
           specdec__answer_is_space((unsigned char)s->hold[skip]) && s->hold[skip] != mark[0])
        skip++;
    if (!mark || !*mark)
        return 0;
    size = (int)strlen(mark);
    if (s->held - skip < size)
        return memcmp(s->hold + skip, mark, (size_t)(s->held - skip)) == 0;
    return s->held - skip == size && memcmp(s->hold + skip, mark, (size_t)size) == 0 ? 2 : 0;
}

/* Finds which of `count` marks the held bytes are. Returns its index; -1: a mark may become complete; -2: none
   matches. */
static int specdec__answer_match_marks(const specdec_splitter *s, const char *const *marks, int count, int spaces)
{
    int i, found = -2;

    for (i = 0; i < count; i++) {
        const int fits = specdec__answer_match_mark(s, marks[i], spaces);

        if (fits == 2)
            return i;
        if (fits)
            found = -1;
    }
    return found;
}

/* Removes the first of the bytes that the splitter holds back and returns it. */
static int specdec__answer_remove_first_held_byte(specdec_splitter *s)
{
    const int c = (unsigned char)s->hold[0];

    memmove(s->hold, s->hold + 1, (size_t)--s->held);
    return c;
}

/* Appends a byte to the name or value that is collected in `note`. Returns 0 when there is no room for it. */
static int specdec__answer_collect_byte(specdec_splitter *s, int c)
{
    if (s->noted == SPECDEC__ANSWER_NOTE_MOST)
        return 0;
    s->note[s->noted++] = (char)c;
    return 1;
}

/* ---- Beginning and ending calls. */

/* Enters a state of the splitter (SPECDEC__ANSWER_TEXT ...), with nothing held back or collected. */
static void specdec__answer_enter_state(specdec_splitter *s, int state)
{
    s->state = state;
    s->held = s->noted = s->depth = s->phase = 0;
    s->flags &= SPECDEC__ANSWER_IN_THOUGHT;
}

/* Begins a tool call of the answer, and enters the splitter's state `state`. */
static void specdec__answer_begin_call(specdec_splitter *s, int state)
{
    specdec__answer_enter_state(s, state);
    s->flags = 0;
    s->call = s->calls_begun++;
}

/* Records where the constraint of a call begins: behind the mark (how = 1), or with the object of a call without mark
   (how = 2 + the index of its beginning). */
static void specdec__answer_record_constraint_start(specdec_splitter *s, int how)
{
    s->started = how;
    s->since = 0;
}

/* Ends a tool call of the answer; text or another call follows. */
static void specdec__answer_end_call(specdec_splitter *s)
{
    s->started = 0;
    specdec__answer_emit_bytes(s, SPECDEC_PART_END, NULL, 0);
    specdec__answer_enter_state(s, SPECDEC__ANSWER_BETWEEN);
}

/* Emits the name of the call that was collected; arguments follow. */
static void specdec__answer_emit_call_name(specdec_splitter *s)
{
    static const char path[] = "functions.";
    const specdec__calls *row = specdec__answer_current_call_row(s);
    int from = 0, end = s->noted;

    while (end && specdec__answer_is_space((unsigned char)s->note[end - 1]))
        end--;
    while (from < end && specdec__answer_is_space((unsigned char)s->note[from]))
        from++;
    if (row->flags & SPECDEC__CALLS_PATH) {
        if ((size_t)(end - from) >= sizeof path - 1 && memcmp(s->note + from, path, sizeof path - 1) == 0)
            from += (int)sizeof path - 1;
        while (end > from && s->note[end - 1] >= '0' && s->note[end - 1] <= '9')
            end--;
        if (end > from && s->note[end - 1] == ':')
            end--;
        else
            end = s->noted;
    }
    specdec__answer_emit_bytes(s, SPECDEC_PART_NAME, s->note + from, (size_t)(end - from));
    s->tool = specdec__hash(SPECDEC__EMPTY_HASH, (const unsigned char *)s->note + from, (size_t)(end - from));
    specdec__answer_enter_state(s, row->form == SPECDEC__CALLS_NAMED   ? SPECDEC__ANSWER_ARGUMENTS
                             : row->form == SPECDEC__CALLS_PAIRS ? SPECDEC__ANSWER_PAIRS
                                                                 : SPECDEC__ANSWER_LITERAL);
    if (row->form == SPECDEC__CALLS_NAMED)
        return;
    specdec__answer_emit_string(s, SPECDEC_PART_ARGUMENTS, "{");
    s->stack = 1;
    s->flags = SPECDEC__ANSWER_MEMBER_NAME;
}

/* ---- Calls and arguments as JSON. */

/* Emits a byte of arguments that are JSON, and counts open brackets in s->depth. Returns 1 when the arguments end with
   this byte. */
static int specdec__answer_read_json_byte(specdec_splitter *s, int c)
{
    const char byte = (char)c;

    if (!(s->flags & SPECDEC__ANSWER_IN_STRING) && specdec__answer_is_space(c) && !s->depth)
        return 0;
    specdec__answer_emit_bytes(s, SPECDEC_PART_ARGUMENTS, &byte, 1);
    s->flags |= SPECDEC__ANSWER_VALUE_BEGUN;
    if (s->flags & SPECDEC__ANSWER_AFTER_BACKSLASH) {
        s->flags &= ~SPECDEC__ANSWER_AFTER_BACKSLASH;
    } else if (s->flags & SPECDEC__ANSWER_IN_STRING) {
        s->flags ^= c == '\\' ? SPECDEC__ANSWER_AFTER_BACKSLASH : c == '"' ? SPECDEC__ANSWER_IN_STRING : 0;
    } else {
        s->flags |= c == '"' ? SPECDEC__ANSWER_IN_STRING : 0;
        s->depth += (c == '{' || c == '[') - (c == '}' || c == ']');
    }
    return !s->depth && !(s->flags & SPECDEC__ANSWER_IN_STRING) && (c == '}' || c == ']' || c == '"');
}

/* Emits a byte of arguments that are spelled inside a JSON string, unescaped. Returns 1 at the end of the string. */
static int specdec__answer_read_quoted_byte(specdec_splitter *s, int c)
{
    static const char names[] = "nrtbf", meant[] = "\n\r\t\b\f";
    const char *known;
    char byte = (char)c;

    if (s->flags & SPECDEC__ANSWER_AFTER_BACKSLASH) {
        known = strchr(names, c);
        byte = known && c ? meant[known - names] : byte;
        if (c == 'u')
            specdec__answer_emit_string(s, SPECDEC_PART_ARGUMENTS, "\\");
        s->flags &= ~SPECDEC__ANSWER_AFTER_BACKSLASH;
    } else if (c == '\\' || c == '"') {
        s->flags |= c == '\\' ? SPECDEC__ANSWER_AFTER_BACKSLASH : 0;
        return c == '"';
    }
    specdec__answer_emit_bytes(s, SPECDEC_PART_ARGUMENTS, &byte, 1);
    return 0;
}

/* Returns the role of a call's member by its name, which was collected: 1: name of the call, 2: arguments, 3: an object
   with both, 0: ignored. */
static int specdec__answer_role_of_call_member(const specdec_splitter *s)
{
    static const struct { const char *name; int role; } members[] = {
        {"name", 1}, {"tool_name", 1}, {"function", 3}, {"arguments", 2}, {"parameters", 2}, {"args", 2}};
    size_t i;

    if (specdec__answer_current_call_row(s)->flags & SPECDEC__CALLS_KEYED)
        return 2;
    for (i = 0; i < SPECDEC__COUNT(members); i++)
        if (strlen(members[i].name) == (size_t)s->noted && memcmp(members[i].name, s->note, (size_t)s->noted) == 0)
            return members[i].role;
    return 0;
}

/* Reads a byte of the value of a member of a call (s->phase is 3 + the member's role). Returns 1 when the byte is
   behind the value. */
static int specdec__answer_read_member_byte(specdec_splitter *s, int c)
{
    const int role = s->phase - 3, string = s->flags & SPECDEC__ANSWER_IN_STRING;
    const char byte = (char)c;

    if (s->flags & SPECDEC__ANSWER_QUOTED_ARGUMENTS) {
        if (specdec__answer_read_quoted_byte(s, c)) {
            s->flags &= ~SPECDEC__ANSWER_QUOTED_ARGUMENTS;
            s->phase = 3;
        }
        return 0;
    }
    if (!string && !s->depth && (c == ',' || c == '}'))
        return 1;
    if (role == 2 && !(s->flags & SPECDEC__ANSWER_VALUE_BEGUN) && c == '"') {
        s->flags |= SPECDEC__ANSWER_QUOTED_ARGUMENTS | SPECDEC__ANSWER_VALUE_BEGUN;
    } else if (role == 2) {
        specdec__answer_read_json_byte(s, c);
    } else if (s->flags & SPECDEC__ANSWER_AFTER_BACKSLASH) {
        s->flags &= ~SPECDEC__ANSWER_AFTER_BACKSLASH;
        if (role == 1 || role == 3)
            specdec__answer_emit_bytes(s, SPECDEC_PART_NAME, &byte, 1);
    } else if (string) {
        s->flags ^= c == '\\' ? SPECDEC__ANSWER_AFTER_BACKSLASH : c == '"' ? SPECDEC__ANSWER_IN_STRING : 0;
        if ((role == 1 || role == 3) && c != '"' && c != '\\')
            specdec__answer_emit_bytes(s, SPECDEC_PART_NAME, &byte, 1);
    } else {
        s->flags |= c == '"' ? SPECDEC__ANSWER_IN_STRING : 0;
        s->depth += (c == '{' || c == '[') - (c == '}' || c == ']');
    }
    return 0;
}

/* Reads a byte of a JSON object that is a call. s->phase: 0: in front of a member, 1: in its name, 2: behind the name,
   3 + role of the member: in its value. */
static void specdec__answer_read_object_byte(specdec_splitter *s, int c)
{
    if (s->phase >= 3) {
        if (s->phase == 6 && c == '{' && !s->depth && !(s->flags & SPECDEC__ANSWER_IN_STRING)) {
            s->phase = 0; /* the nested object that holds name and arguments */
            s->stack++;
            return;
        }
        if (!specdec__answer_read_member_byte(s, c))
            return;
        s->phase = 0;
        s->flags = 0;
    }
    if (s->phase == 1 && s->flags & SPECDEC__ANSWER_AFTER_BACKSLASH) {
        s->flags = 0;
        specdec__answer_collect_byte(s, c);
    } else if (s->phase == 1 && c == '"') {
        s->phase = 2;
        if (specdec__answer_current_call_row(s)->flags & SPECDEC__CALLS_KEYED)
            specdec__answer_emit_bytes(s, SPECDEC_PART_NAME, s->note, (size_t)s->noted);
    } else if (s->phase == 1) {
        s->flags = c == '\\' ? SPECDEC__ANSWER_AFTER_BACKSLASH : 0;
        if (c != '\\')
            specdec__answer_collect_byte(s, c);
    } else if (s->phase == 2 && c == ':') {
        s->phase = 3 + specdec__answer_role_of_call_member(s);
        s->depth = 0;
    } else if (s->phase == 0 && c == '"') {
        s->phase = 1;
        s->noted = 0;
    } else if (s->phase == 0 && c == '}') {
        if (s->stack)
            s->stack--;
        else
            specdec__answer_end_call(s);
    }
}

/* ---- Calls whose arguments are names and values between marks. */

/* Updates the flags IN_STRING and AFTER_BACKSLASH by a byte of JSON. */
static void specdec__answer_update_string_flags(specdec_splitter *s, int c)
{
    if (s->flags & SPECDEC__ANSWER_AFTER_BACKSLASH)
        s->flags &= ~SPECDEC__ANSWER_AFTER_BACKSLASH;
    else if (c == '"' || (c == '\\' && s->flags & SPECDEC__ANSWER_IN_STRING))
        s->flags ^= c == '"' ? SPECDEC__ANSWER_IN_STRING : SPECDEC__ANSWER_AFTER_BACKSLASH;
}

/* Is the collected value JSON, but not a string? */
static int specdec__answer_collected_is_json(const specdec_splitter *s)
{
    specdec__json_node node;
    specdec__json j;

    memset(&j, 0, sizeof j);
    j.text = (const unsigned char *)s->note;
    j.size = (size_t)s->noted;
    j.nodes = &node;
    j.room = 1;
    return specdec__json_parse(&j) && node.kind != SPECDEC__JSON_STRING;
}

/* Returns the kind of the argument whose name was collected, as the constraint of calls has stored it: 1: string, 2:
   other JSON, 0: unknown. size: bytes of the name. */
static int specdec__answer_argument_kind(const specdec_splitter *s, int size)
{
    int tries, i;

    for (tries = 0; tries < 2; tries++, size = 0) {
        const uint64_t hash = specdec__answer_argument_hash(s->tool, (const unsigned char *)s->note, (size_t)size);

        for (i = 0; i < s->kind_count; i++) {
            const uint32_t *known = s->kinds_known + (size_t)i * SPECDEC__ARGUMENT_KIND_WORDS;

            if (known[0] == (uint32_t)hash && known[1] == (uint32_t)(hash >> 32))
                return (int)known[2];
        }
    }
    return 0;
}

/* Emits the collected name of an argument. In DeepSeek's form, text behind a quotation mark tells whether its value is
   a string. */
static void specdec__answer_emit_argument_name(specdec_splitter *s)
{
    const char *quote = (const char *)memchr(s->note, '"', (size_t)s->noted);
    const int size = quote ? (int)(quote - s->note) : s->noted;
    const int json = quote && s->noted > 6 && memcmp(s->note + s->noted - 6, "false\"", 6) == 0;
    const int kind = specdec__answer_argument_kind(s, size);
    int i;

    specdec__answer_emit_string(s, SPECDEC_PART_ARGUMENTS, s->flags & SPECDEC__ANSWER_NEEDS_COMMA ? ", \"" : "\"");
    for (i = 0; i < size; i++)
        specdec__answer_emit_escaped(s, (unsigned char)s->note[i]);
    specdec__answer_emit_string(s, SPECDEC_PART_ARGUMENTS, "\": ");
    specdec__answer_enter_state(s, SPECDEC__CALL_TEXT(specdec__answer_current_call_row(s), VALUE_BEGIN)
                                       ? SPECDEC__ANSWER_VALUE_BEGIN
                                                                             : SPECDEC__ANSWER_VALUE);
    s->flags = SPECDEC__ANSWER_NEEDS_COMMA;
    s->phase = !quote ? kind : json ? 2 : 1;
    if (s->phase == 1)
        specdec__answer_emit_string(s, SPECDEC_PART_ARGUMENTS, "\"");
}

/* Can the collected bytes only be the beginning of an object, a list or a long number? */
static int specdec__answer_collected_begins_json(const specdec_splitter *s)
{
    int from = 0, i;

    while (from < s->noted && specdec__answer_is_space((unsigned char)s->note[from]))
        from++;
    for (i = from; i < s->noted && s->note[i] && strchr("+-.eE0123456789", s->note[i]); i++)
        ;
    return from < s->noted && (s->note[from] == '{' || s->note[from] == '[' || i == s->noted);
}

/* Reads a byte of an argument's value between marks. s->phase: 0: its kind is still unknown, 1: string, 2: other
   JSON. */
static void specdec__answer_read_value_byte(specdec_splitter *s, int c)
{
    const char byte = (char)c;
    int i;

    if (!(s->flags & SPECDEC__ANSWER_VALUE_BEGUN)) {
        s->flags |= SPECDEC__ANSWER_VALUE_BEGUN;
        if (c == '\n' && specdec__answer_current_call_row(s)->flags & SPECDEC__CALLS_LINES)
            return;
    }
    if (s->phase == 0) { /* with known schemas, no string begins like an object or list */
        const int room = s->noted < 64;

        if (room)
            specdec__answer_collect_byte(s, c);
        if (room && (!s->kind_count || (c != '{' && c != '[') || !specdec__answer_collected_begins_json(s)))
            return;
        s->phase = specdec__answer_collected_begins_json(s) ? 2 : 1;
        if (s->phase == 1)
            specdec__answer_emit_string(s, SPECDEC_PART_ARGUMENTS, "\"");
        for (i = 0; i < s->noted; i++)
            specdec__answer_read_value_byte(s, (unsigned char)s->note[i]);
        if (room)
            return;
    }
    if (s->phase == 1) {
        specdec__answer_emit_escaped(s, c);
        return;
    }
    specdec__answer_emit_bytes(s, SPECDEC_PART_ARGUMENTS, &byte, 1);
    specdec__answer_update_string_flags(s, c);
}

/* Ends an argument's value between marks; one of unknown kind is JSON if it parses as JSON, else a string. */
static void specdec__answer_end_argument_value(specdec_splitter *s)
{
    int i;

    if (s->phase == 0 && specdec__answer_collected_is_json(s)) {
        specdec__answer_emit_bytes(s, SPECDEC_PART_ARGUMENTS, s->note, (size_t)s->noted);
    } else if (s->phase == 0) {
        specdec__answer_emit_string(s, SPECDEC_PART_ARGUMENTS, "\"");
        for (i = 0; i < s->noted; i++)
            specdec__answer_emit_escaped(s, (unsigned char)s->note[i]);
        s->phase = 1;
    }
    if (s->phase == 1)
        specdec__answer_emit_string(s, SPECDEC_PART_ARGUMENTS, "\"");
    specdec__answer_enter_state(s, SPECDEC__ANSWER_PAIRS);
    s->flags = SPECDEC__ANSWER_NEEDS_COMMA;
}

/* ---- Values in Python's and Gemma's syntax. s->stack: a bit for each open bracket, 1: a dict. */

/* Emits the comma in front of an item or member, if one must be written. */
static void specdec__answer_emit_comma(specdec_splitter *s)
{
    if (s->flags & SPECDEC__ANSWER_NEEDS_COMMA)
        specdec__answer_emit_string(s, SPECDEC_PART_ARGUMENTS, ", ");
    s->flags &= ~SPECDEC__ANSWER_NEEDS_COMMA;
}

/* Emits a collected word, which has ended: a member's name, a number, or a constant such as True. */
static void specdec__answer_emit_literal_word(specdec_splitter *s)
{
    static const char *const words[] = {"True", "true", "False", "false", "None", "null"};
    int i;

    if (s->flags & SPECDEC__ANSWER_VALUE_BEGUN) { /* the last part of a long number */
        specdec__answer_emit_bytes(s, SPECDEC_PART_ARGUMENTS, s->note, (size_t)s->noted);
        s->flags &= ~SPECDEC__ANSWER_VALUE_BEGUN;
        s->noted = 0;
    }
    if (!s->noted)
        return;
    specdec__answer_emit_comma(s);
    for (i = 0; i < 6 && !(s->flags & SPECDEC__ANSWER_MEMBER_NAME); i += 2)
        if (strlen(words[i]) == (size_t)s->noted && memcmp(words[i], s->note, (size_t)s->noted) == 0) {
            specdec__answer_emit_string(s, SPECDEC_PART_ARGUMENTS, words[i + 1]);
            s->noted = 0;
            return;
        }
    if (!(s->flags & SPECDEC__ANSWER_MEMBER_NAME) && specdec__answer_collected_is_json(s)) {
        specdec__answer_emit_bytes(s, SPECDEC_PART_ARGUMENTS, s->note, (size_t)s->noted);
    } else {
        specdec__answer_emit_string(s, SPECDEC_PART_ARGUMENTS, "\"");
        for (i = 0; i < s->noted && i < 100; i++)
            specdec__answer_emit_escaped(s, (unsigned char)s->note[i]);
        specdec__answer_emit_string(s, SPECDEC_PART_ARGUMENTS, "\"");
    }
    s->noted = 0;
}

/* Reads a byte inside a string between quotation marks; s->phase: the quotation mark. */
static void specdec__answer_read_string_byte(specdec_splitter *s, int c)
{
    static const char names[] = "nrtbf", meant[] = "\n\r\t\b\f";
    const char *known = c ? strchr(names, c) : NULL;

    if (s->flags & SPECDEC__ANSWER_AFTER_BACKSLASH) {
        s->flags &= ~SPECDEC__ANSWER_AFTER_BACKSLASH;
        if (c == 'u' || c == 'x')
            specdec__answer_emit_string(s, SPECDEC_PART_ARGUMENTS, c == 'u' ? "\\u" : "\\u00");
        else
            specdec__answer_emit_escaped(s, known ? meant[known - names] : c);
    } else if (c == '\\') {
        s->flags |= SPECDEC__ANSWER_AFTER_BACKSLASH;
    } else if (c == s->phase) {
        specdec__answer_emit_string(s, SPECDEC_PART_ARGUMENTS, "\"");
        s->flags &= ~SPECDEC__ANSWER_IN_STRING;
    } else {
        specdec__answer_emit_escaped(s, c);
    }
}

/* Reads an opening (open = 1) or closing bracket of arguments in Python's or Gemma's syntax. dict = 1: of a dict. */
static void specdec__answer_read_literal_bracket(specdec_splitter *s, int open, int dict)
{
    if (open) {
        specdec__answer_emit_comma(s);
        specdec__answer_emit_string(s, SPECDEC_PART_ARGUMENTS, dict ? "{" : "[");
        s->depth += s->depth < 30;
        s->stack = (s->stack & ~(1u << s->depth)) | (dict ? 1u << s->depth : 0);
        s->flags = dict ? s->flags | SPECDEC__ANSWER_MEMBER_NAME : s->flags & ~SPECDEC__ANSWER_MEMBER_NAME;
        return;
    }
    s->flags &= ~SPECDEC__ANSWER_NEEDS_COMMA;
    if (!s->depth) {
        specdec__answer_emit_string(s, SPECDEC_PART_ARGUMENTS, "}");
        specdec__answer_end_call(s);
        return;
    }
    specdec__answer_emit_string(s, SPECDEC_PART_ARGUMENTS, s->stack >> s->depth & 1 ? "}" : "]");
    s->depth--;
}

/* Reads a byte of arguments in Python's or Gemma's syntax, outside strings. */
static void specdec__answer_read_literal_byte(specdec_splitter *s, int c)
{
    const int python = specdec__answer_current_call_row(s)->form == SPECDEC__CALLS_PYTHON;
    const int member = s->flags & SPECDEC__ANSWER_MEMBER_NAME;

    if (python && (c == '"' || c == '\'')) {
        specdec__answer_emit_comma(s);
        specdec__answer_emit_string(s, SPECDEC_PART_ARGUMENTS, "\"");
        s->flags |= SPECDEC__ANSWER_IN_STRING;
        s->phase = c;
    } else if (member && (c == ':' || (c == '=' && !s->depth))) {
        specdec__answer_emit_literal_word(s);
        specdec__answer_emit_string(s, SPECDEC_PART_ARGUMENTS, ": ");
        s->flags &= ~SPECDEC__ANSWER_MEMBER_NAME;
    } else if (c == ',') {
        specdec__answer_emit_literal_word(s);
        s->flags |= SPECDEC__ANSWER_NEEDS_COMMA | (s->stack >> s->depth & 1 ? SPECDEC__ANSWER_MEMBER_NAME : 0);
    } else if (c == '[' || c == '{' || (c == '(' && python)) {
        specdec__answer_read_literal_bracket(s, 1, c == '{');
    } else if (c == ']' || c == '}' || (c == ')' && python)) {
        specdec__answer_emit_literal_word(s);
        specdec__answer_read_literal_bracket(s, 0, 0);
    } else if (!specdec__answer_is_space(c)) {
        if (s->noted == SPECDEC__ANSWER_ARGUMENT_NAME_MOST && !member && /* a long number is handed out in parts */
            (s->flags & SPECDEC__ANSWER_VALUE_BEGUN || specdec__answer_collected_begins_json(s))) {
            specdec__answer_emit_comma(s);
            specdec__answer_emit_bytes(s, SPECDEC_PART_ARGUMENTS, s->note, (size_t)s->noted);
            s->flags |= SPECDEC__ANSWER_VALUE_BEGUN;
            s->noted = 0;
        }
        specdec__answer_collect_byte(s, c);
    }
}

/* ---- Messages with headers: gpt-oss's Harmony format. */

/* Returns the value behind a word of a Harmony message's header, up to a space or the next mark, and its number of
   bytes in *size; NULL: the word is absent. */
static const char *specdec__answer_harmony_header_value(const specdec_splitter *s, const char *word, int *size)
{
    const int length = (int)strlen(word);
    int i;

    for (i = 0; i + length <= s->noted; i++)
        if (memcmp(s->note + i, word, (size_t)length) == 0) {
            for (*size = 0; i + length + *size < s->noted && s->note[i + length + *size] != ' ' &&
                            s->note[i + length + *size] != '<';)
                ++*size;
            return s->note + i + length;
        }
    return NULL;
}

/* Decides by the header of a Harmony message, which has ended, what the message is: content, a thought or a call. */
static void specdec__answer_end_harmony_header(specdec_splitter *s)
{
    int size = 0, channel_size = 0;
    const char *to = specdec__answer_harmony_header_value(s, "to=functions.", &size);
    const char *channel = specdec__answer_harmony_header_value(s, "<|channel|>", &channel_size);
    const int thought = channel && channel_size == 8 && memcmp(channel, "analysis", 8) == 0;

    s->flags = 0;
    if (to) {
        s->call = s->calls_begun++;
        specdec__answer_emit_bytes(s, SPECDEC_PART_NAME, to, (size_t)size);
        s->flags = SPECDEC__ANSWER_MESSAGE_IS_CALL;
    } else if (thought) {
        s->flags = SPECDEC__ANSWER_IN_THOUGHT;
    }
    s->state = SPECDEC__ANSWER_BODY;
    s->held = s->noted = 0;
}

/* ---- Reading bytes. */

/* Emits the bytes that were held back, as text: they turned out to be no mark. */
static void specdec__answer_emit_held_bytes(specdec_splitter *s)
{
    const int c = specdec__answer_remove_first_held_byte(s);
    const char byte = (char)c;

    if (specdec__answer_is_space(c) && s->flags & SPECDEC__ANSWER_SKIP_SPACE)
        return;
    s->flags &= ~(specdec__answer_is_space(c) ? SPECDEC__ANSWER_SKIP_SPACE
                                              : SPECDEC__ANSWER_SKIP_SPACE | SPECDEC__ANSWER_ONLY_SPACE);
    specdec__answer_emit_bytes(s, s->flags & SPECDEC__ANSWER_IN_THOUGHT ? SPECDEC_PART_THOUGHT : SPECDEC_PART_CONTENT,
                               &byte, 1);
}

/* Are all bytes that the splitter holds back white space, which may stand in front of a mark? */
static int specdec__answer_holds_only_space(const specdec_splitter *s)
{
    int i;

    for (i = 0; i < s->held; i++)
        if (!specdec__answer_is_space((unsigned char)s->hold[i]))
            return 0;
    return s->held > 0 && s->held <= SPECDEC__ANSWER_SPACES_MOST;
}

/* Enters the splitter's state behind a mark that begins a call or, if section = 1, all calls of the answer. */
static void specdec__answer_enter_state_behind_mark(specdec_splitter *s, int section)
{
    const specdec__calls *row = specdec__answer_current_call_row(s);

    if (section)
        specdec__answer_enter_state(s, SPECDEC__ANSWER_BETWEEN);
    else if (row->form == SPECDEC__CALLS_JSON || row->form == SPECDEC__CALLS_PYTHON)
        specdec__answer_enter_state(s, SPECDEC__ANSWER_BETWEEN);
    else
        specdec__answer_begin_call(s, SPECDEC__ANSWER_NAME);
    if (!section)
        specdec__answer_record_constraint_start(s, 1);
    s->flags = 0;
}

/* Beginnings of an answer that is a tool call without a mark. */
static const char *const specdec__answer_unmarked_call_beginnings[] = {
    "{\"name\":", "{ \"name\":", "{\"type\": \"function\", \"name\":"};

/* Reads content or a thought from the held bytes, and looks for marks in it. */
static void specdec__answer_read_content_or_thought(specdec_splitter *s)
{
    const specdec__calls *row = specdec__answer_current_call_row(s);
    const specdec__thoughts *thoughts = (const specdec__thoughts *)s->thoughts;
    const int inside = s->flags & SPECDEC__ANSWER_IN_THOUGHT,
              bare = row && row->flags & SPECDEC__CALLS_BARE && s->flags & SPECDEC__ANSWER_ONLY_SPACE;
    const char *marks[11];
    char begun[40];
    int i, found;

    memset(marks, 0, sizeof marks);
    if (thoughts) {
        marks[0] = thoughts->open;
        marks[1] = thoughts->close;
        for (i = 0; i < 4; i++)
            marks[4 + i] = thoughts->content_marks[i];
    }
    if (row && !inside) {
        marks[2] = SPECDEC__CALL_TEXT(row, SECTION_BEGIN);
        marks[3] = SPECDEC__CALL_TEXT(row, BEGIN);
    }
    for (i = 0; bare && i < 3; i++)
        marks[8 + i] = specdec__answer_unmarked_call_beginnings[i];
    while (s->held) {
        found = specdec__answer_match_marks(s, marks, 11, 1);
        if (found == -1 || (found == -2 && specdec__answer_holds_only_space(s)))
            return;
        if (found == -2) {
            specdec__answer_emit_held_bytes(s);
            continue;
        }
        s->held = 0;
        if (found == 2 || found == 3) {
            specdec__answer_enter_state_behind_mark(s, found == 2);
        } else if (found < 2 || found < 8) {
            s->flags = found ? SPECDEC__ANSWER_SKIP_SPACE : SPECDEC__ANSWER_SKIP_SPACE | SPECDEC__ANSWER_IN_THOUGHT;
        } else {
            memcpy(begun, marks[found], strlen(marks[found]) + 1);
            specdec__answer_begin_call(s, SPECDEC__ANSWER_OBJECT);
            specdec__answer_record_constraint_start(s, found - 6);
            s->stack = 0;
            for (i = 1; begun[i]; i++)
                specdec__answer_read_object_byte(s, (unsigned char)begun[i]);
        }
    }
}

/* Reads marks and separators in front of calls, between them and behind them from the held bytes; other text is
   content. */
static void specdec__answer_read_between_calls(specdec_splitter *s)
{
    const specdec__calls *row = specdec__answer_current_call_row(s);
    const int list = row->form == SPECDEC__CALLS_JSON || row->form == SPECDEC__CALLS_PYTHON;
    const char *marks[4];
    int found, c;

    marks[0] = SPECDEC__CALL_TEXT(row, END);
    marks[1] = SPECDEC__CALL_TEXT(row, SECTION_END);
    marks[2] = SPECDEC__CALL_TEXT(row, BEGIN);
    marks[3] = SPECDEC__CALL_TEXT(row, SECTION_BEGIN);
    while (s->held && s->state == SPECDEC__ANSWER_BETWEEN) {
        c = (unsigned char)s->hold[0];
        found = specdec__answer_match_marks(s, marks, 4, 0);
        if (found == -1)
            return;
        if (found >= 0) {
            s->held = 0;
            if (found >= 2) {
                specdec__answer_enter_state_behind_mark(s, found == 3);
            } else if (found == 1 || !marks[1]) {
                s->state = SPECDEC__ANSWER_TEXT;
                s->flags = SPECDEC__ANSWER_SKIP_SPACE;
            }
            return;
        }
        if (specdec__answer_is_space(c) || (list && (c == ',' || c == '[' || c == ']' || c == ';'))) {
            specdec__answer_remove_first_held_byte(s);
        } else if (row->form == SPECDEC__CALLS_JSON && c == '{') {
            if (!s->started) { /* the next object of a list */
                specdec__answer_record_constraint_start(s, 1);
                s->since = 1;
            }
            specdec__answer_begin_call(s, SPECDEC__ANSWER_OBJECT);
            s->stack = 0;
        } else if (row->form == SPECDEC__CALLS_PYTHON && (c == '_' || ((c | 32) >= 'a' && (c | 32) <= 'z'))) {
            if (!s->started) {
                specdec__answer_record_constraint_start(s, 1);
                s->since = 1;
            }
            specdec__answer_begin_call(s, SPECDEC__ANSWER_NAME);
            specdec__answer_collect_byte(s, c);
        } else {
            s->state = SPECDEC__ANSWER_TEXT;
            s->flags = SPECDEC__ANSWER_SKIP_SPACE;
            s->started = 0;
            specdec__answer_read_content_or_thought(s);
        }
    }
}

/* Turns the text behind a mark back into content, as it names no known tool and nothing of the call was emitted. */
static void specdec__answer_turn_call_into_text(specdec_splitter *s)
{
    const int name = s->state == SPECDEC__ANSWER_NAME, object = s->state == SPECDEC__ANSWER_OBJECT && s->phase < 3;

    s->started = 0;
    if (name || object) {
        s->calls_begun--;
        s->call = -1;
        if (name)
            specdec__answer_emit_bytes(s, SPECDEC_PART_CONTENT, s->note, (size_t)s->noted);
    } else if (s->state != SPECDEC__ANSWER_BETWEEN) {
        return;
    }
    specdec__answer_enter_state(s, SPECDEC__ANSWER_TEXT);
}

/* Reads the name of a call, up to the mark behind it, from the held bytes. */
static void specdec__answer_read_call_name(specdec_splitter *s)
{
    const specdec__calls *row = specdec__answer_current_call_row(s);
    const char *marks[2];
    int found, c;

    marks[0] = SPECDEC__CALL_TEXT(row, NAME_END);
    marks[1] = SPECDEC__CALL_TEXT(row, ID_END);
    while (s->held && s->state == SPECDEC__ANSWER_NAME) {
        c = (unsigned char)s->hold[0];
        if (!s->noted && specdec__answer_is_space(c)) { /* white space in front of a name is dropped */
            specdec__answer_remove_first_held_byte(s);
            continue;
        }
        if (!*marks[0] && s->noted && (specdec__answer_is_space(c) || c == '<')) {
            char next = (char)c;

            specdec__answer_emit_call_name(s);
            s->hold[0] = next;
            s->held = 1;
            return;
        }
        found = specdec__answer_match_marks(s, marks, 2, 0);
        if (found == -1)
            return;
        if (found == 0 && !s->noted) {
            specdec__answer_turn_call_into_text(s);
        } else if (found == 0) {
            specdec__answer_emit_call_name(s);
        } else if (found == 1) {
            s->held = s->noted = 0;
        } else if (!specdec__answer_collect_byte(s, specdec__answer_remove_first_held_byte(s))) {
            const char last = (char)c;

            specdec__answer_emit_bytes(s, SPECDEC_PART_NAME, s->note, (size_t)s->noted);
            specdec__answer_emit_bytes(s, SPECDEC_PART_NAME, &last, 1);
            s->noted = 0;
        }
    }
}

/* Reads names and values of arguments, and the marks around them, from the held bytes. */
static void specdec__answer_read_argument_pairs(specdec_splitter *s)
{
    const specdec__calls *row = specdec__answer_current_call_row(s);
    const char *marks[2];
    char line[48];
    int found, space = s->state == SPECDEC__ANSWER_PAIRS || s->state == SPECDEC__ANSWER_VALUE_BEGIN;

    marks[0] = s->state == SPECDEC__ANSWER_PAIRS         ? SPECDEC__CALL_TEXT(row, KEY_BEGIN)
               : s->state == SPECDEC__ANSWER_KEY         ? SPECDEC__CALL_TEXT(row, KEY_END)
               : s->state == SPECDEC__ANSWER_VALUE_BEGIN ? SPECDEC__CALL_TEXT(row, VALUE_BEGIN)
                                                         : SPECDEC__CALL_TEXT(row, VALUE_END);
    marks[1] = s->state == SPECDEC__ANSWER_PAIRS ? SPECDEC__CALL_TEXT(row, END) : NULL;
    if (s->state == SPECDEC__ANSWER_VALUE && row->flags & SPECDEC__CALLS_LINES) {
        line[0] = '\n';
        memcpy(line + 1, marks[0], strlen(marks[0]) + 1);
        marks[1] = line;
    }
    while (s->held) {
        found = s->flags & SPECDEC__ANSWER_IN_STRING ? -2 : specdec__answer_match_marks(s, marks, 2, space);
        if (found == -1 || (space && found == -2 && specdec__answer_holds_only_space(s)))
            return;
        if (found == -2) {
            const int c = specdec__answer_remove_first_held_byte(s);

            if (s->state == SPECDEC__ANSWER_KEY)
                specdec__answer_collect_byte(s, c);
            else if (s->state == SPECDEC__ANSWER_VALUE)
                specdec__answer_read_value_byte(s, c);
            continue;
        }
        s->held = 0;
        if (s->state == SPECDEC__ANSWER_PAIRS && found == 1) {
            specdec__answer_emit_string(s, SPECDEC_PART_ARGUMENTS, "}");
            specdec__answer_end_call(s);
        } else if (s->state == SPECDEC__ANSWER_PAIRS) {
            s->state = SPECDEC__ANSWER_KEY;
            s->noted = 0;
        } else if (s->state == SPECDEC__ANSWER_KEY) {
            specdec__answer_emit_argument_name(s);
        } else if (s->state == SPECDEC__ANSWER_VALUE_BEGIN) {
            s->state = SPECDEC__ANSWER_VALUE;
        } else {
            specdec__answer_end_argument_value(s);
        }
        return;
    }
}

/* Reads arguments in Python's or Gemma's syntax from the held bytes; Gemma's strings stand between marks. */
static void specdec__answer_read_literal_arguments(specdec_splitter *s)
{
    const char *quote = SPECDEC__CALL_TEXT(specdec__answer_current_call_row(s), VALUE_BEGIN);
    int fits;

    while (s->held && s->state == SPECDEC__ANSWER_LITERAL) {
        fits = specdec__answer_match_mark(s, quote, 0);
        if (fits == 1)
            return;
        if (fits == 2) {
            s->held = 0;
            if (!(s->flags & SPECDEC__ANSWER_IN_STRING))
                specdec__answer_emit_comma(s);
            specdec__answer_emit_string(s, SPECDEC_PART_ARGUMENTS, "\"");
            s->flags ^= SPECDEC__ANSWER_IN_STRING;
            continue;
        }
        if (s->flags & SPECDEC__ANSWER_IN_STRING && quote)
            specdec__answer_emit_escaped(s, specdec__answer_remove_first_held_byte(s));
        else if (s->flags & SPECDEC__ANSWER_IN_STRING)
            specdec__answer_read_string_byte(s, specdec__answer_remove_first_held_byte(s));
        else
            specdec__answer_read_literal_byte(s, specdec__answer_remove_first_held_byte(s));
    }
}

/* Reads arguments that are JSON from the held bytes. */
static void specdec__answer_read_json_arguments(specdec_splitter *s)
{
    const int c = (unsigned char)s->hold[0];

    if (!(s->flags & SPECDEC__ANSWER_VALUE_BEGUN) && !specdec__answer_is_space(c) && c != '{' && c != '[') {
        s->state = SPECDEC__ANSWER_BETWEEN; /* the call has no arguments */
        s->started = 0;
        specdec__answer_emit_bytes(s, SPECDEC_PART_END, NULL, 0);
        specdec__answer_read_between_calls(s);
        return;
    }
    if (specdec__answer_read_json_byte(s, specdec__answer_remove_first_held_byte(s)))
        specdec__answer_end_call(s);
}

/* Reads headers and texts of Harmony messages (gpt-oss) from the held bytes. */
static void specdec__answer_read_harmony_messages(specdec_splitter *s)
{
    static const char *const marks[] = {"<|message|>", "<|start|>", "<|end|>", "<|call|>", "<|return|>"};
    int found;

    while (s->held) { /* constrained arguments are JSON, whose strings may contain marks */
        found = s->flags & SPECDEC__ANSWER_IN_STRING ? -2 : specdec__answer_match_marks(s, marks, 5, 0);
        if (found == -1)
            return;
        if (found == -2) {
            const char byte = s->hold[0];
            const int c = specdec__answer_remove_first_held_byte(s);

            if (s->state == SPECDEC__ANSWER_BODY) {
                if (s->flags & SPECDEC__ANSWER_MESSAGE_IS_CALL && !(s->flags & SPECDEC__ANSWER_VALUE_BEGUN)) {
                    if (specdec__answer_is_space(c))
                        continue; /* white space in front of arguments */
                    s->flags |= SPECDEC__ANSWER_VALUE_BEGUN;
                }
                specdec__answer_emit_bytes(s,
                                           s->flags & SPECDEC__ANSWER_MESSAGE_IS_CALL ? SPECDEC_PART_ARGUMENTS
                                           : s->flags & SPECDEC__ANSWER_IN_THOUGHT    ? SPECDEC_PART_THOUGHT
                                                                                      : SPECDEC_PART_CONTENT,
                                           &byte, 1);
                if (s->kinds_known && s->flags & SPECDEC__ANSWER_MESSAGE_IS_CALL)
                    specdec__answer_update_string_flags(s, c);
            } else if (specdec__answer_collect_byte(s, c)) {
                if (s->noted >= 13 && memcmp(s->note + s->noted - 13, "to=functions.", 13) == 0)
                    specdec__answer_record_constraint_start(s, 1);
            } else {
                specdec__answer_emit_bytes(s, SPECDEC_PART_CONTENT, s->note, (size_t)s->noted); /* the message has no
                                                                                             header */
                specdec__answer_emit_bytes(s, SPECDEC_PART_CONTENT, &byte, 1);
                s->state = SPECDEC__ANSWER_BODY;
                s->flags = s->noted = 0;
            }
            continue;
        }
        s->held = 0;
        if (!found && s->state == SPECDEC__ANSWER_HEADER) {
            specdec__answer_end_harmony_header(s);
        } else if (found) {
            if (s->state == SPECDEC__ANSWER_BODY && s->flags & SPECDEC__ANSWER_MESSAGE_IS_CALL && found != 1)
                specdec__answer_emit_bytes(s, SPECDEC_PART_END, NULL, 0);
            s->state = SPECDEC__ANSWER_HEADER;
            s->flags = s->noted = s->started = 0;
        }
    }
}

/* Processes the bytes that the splitter holds back, after a byte was added to them. */
static void specdec__answer_process_held_bytes(specdec_splitter *s)
{
    switch (s->state) {
    case SPECDEC__ANSWER_TEXT: specdec__answer_read_content_or_thought(s); break;
    case SPECDEC__ANSWER_BETWEEN: specdec__answer_read_between_calls(s); break;
    case SPECDEC__ANSWER_OBJECT: specdec__answer_read_object_byte(s, specdec__answer_remove_first_held_byte(s)); break;
    case SPECDEC__ANSWER_NAME: specdec__answer_read_call_name(s); break;
    case SPECDEC__ANSWER_ARGUMENTS: specdec__answer_read_json_arguments(s); break;
    case SPECDEC__ANSWER_LITERAL: specdec__answer_read_literal_arguments(s); break;
    case SPECDEC__ANSWER_HEADER: case SPECDEC__ANSWER_BODY: specdec__answer_read_harmony_messages(s); break;
    default: specdec__answer_read_argument_pairs(s); break;
    }
}

/* Ends the answer: the bytes that are held back become a part of the kind that they look like. */
static void specdec__answer_finish_answer(specdec_splitter *s)
{
    while (s->held && (s->state == SPECDEC__ANSWER_TEXT || s->state == SPECDEC__ANSWER_BODY)) {
        if (s->state == SPECDEC__ANSWER_TEXT) {
            specdec__answer_emit_held_bytes(s);
        } else {
            const char byte = s->hold[0];

            specdec__answer_remove_first_held_byte(s);
            specdec__answer_emit_bytes(s,
                                       s->flags & SPECDEC__ANSWER_MESSAGE_IS_CALL ? SPECDEC_PART_ARGUMENTS
                                       : s->flags & SPECDEC__ANSWER_IN_THOUGHT    ? SPECDEC_PART_THOUGHT
                                                                                  : SPECDEC_PART_CONTENT,
                                       &byte, 1);
        }
    }
    if (s->state == SPECDEC__ANSWER_NAME && s->noted)
        specdec__answer_emit_bytes(s, SPECDEC_PART_NAME, s->note, (size_t)s->noted);
    if (s->state == SPECDEC__ANSWER_HEADER && s->noted)
        specdec__answer_emit_bytes(s, SPECDEC_PART_CONTENT, s->note, (size_t)s->noted);
    s->held = s->noted = 0;
}

/* ---- Interface of the splitter. */

/* Gives the splitter the next `length` bytes of the answer; NULL: the answer has ended. */
static SPECDEC__UNUSED void specdec__answer_push_bytes(specdec_splitter *s, const char *bytes, size_t length)
{
    s->input = bytes;
    s->length = bytes ? length : 0;
    s->ended = !bytes;
}

/* Writes the next part of the answer to *part. Returns 0 when there is none yet. Each step emits less than 1,000 bytes
   (a name or value, each byte as an escape) and few parts, so that nothing overflows. */
static SPECDEC__UNUSED int specdec__answer_next_part(specdec_splitter *s, specdec_part *part)
{
    int from;

    if (s->taken == s->queued) {
        s->taken = s->queued = s->out = 0;
        while (s->length && (s->out < 64 || (*s->input & 0xc0) == 0x80) && s->out < 128 && s->queued < 4) {
            if (s->held == (int)sizeof s->hold) /* longer than any mark */
                specdec__answer_emit_held_bytes(s);
            s->hold[s->held++] = *s->input++;
            s->length--;
            s->since++;
            specdec__answer_process_held_bytes(s);
        }
        if (s->ended && !s->length && !s->queued) {
            s->ended = 0;
            specdec__answer_finish_answer(s);
        }
    }
    if (s->taken == s->queued)
        return 0;
    from = s->taken ? s->ends[s->taken - 1] : 0;
    part->kind = (specdec_part_kind)s->kinds[s->taken];
    part->call = s->numbers[s->taken];
    part->text.bytes = s->bytes + from;
    part->text.length = (size_t)(s->ends[s->taken++] - from);
    return 1;
}

/* Does the text of a control token occur in a mark? NULL: no. */
static int specdec__answer_mark_contains_token(const char *mark, specdec__bytes token)
{
    const size_t length = mark ? strlen(mark) : 0;
    size_t at;

    for (at = 0; length && at + token.size <= length; at++)
        if (memcmp(mark + at, token.data, token.size) == 0)
            return 1;
    return 0;
}

/* Does the text of a control token occur in the marks that a splitter looks for, so that it must be shown? */
static SPECDEC__UNUSED int specdec__answer_marks_contain_token(const specdec_splitter *s, specdec__bytes token)
{
    const specdec__calls *row = specdec__answer_current_call_row(s);
    const specdec__thoughts *thoughts = (const specdec__thoughts *)s->thoughts;
    const char *text;
    int shows = 0, i;

    if (!token.size)
        return 0;
    for (text = row ? row->texts : ""; *text && !shows; text += strlen(text) + 1)
        shows = specdec__answer_mark_contains_token(text + 1, token);
    if (row && row->form == SPECDEC__CALLS_CHANNEL)
        shows |= specdec__answer_mark_contains_token("<|start|><|channel|><|return|>", token);
    if (thoughts)
        shows |= specdec__answer_mark_contains_token(thoughts->open, token) |
                 specdec__answer_mark_contains_token(thoughts->close, token);
    for (i = 0; thoughts && i < (int)SPECDEC__COUNT(thoughts->content_marks); i++)
        shows |= specdec__answer_mark_contains_token(thoughts->content_marks[i], token);
    return shows;
}

/* Does the text of a prompt end inside a thought? */
static SPECDEC__UNUSED int specdec__answer_prompt_opens_thought(const specdec__thoughts *thoughts, const char *text,
                                                                size_t length)
{
    size_t size;

    if (!thoughts)
        return 0;
    size = strlen(thoughts->open);
    while (size && specdec__answer_is_space(thoughts->open[size - 1]))
        size--;
    while (length && specdec__answer_is_space((unsigned char)text[length - 1]))
        length--;
    return length >= size && memcmp(text + length - size, thoughts->open, size) == 0;
}

SPECDEC__FOR_SPEED
