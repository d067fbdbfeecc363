/* =====================================================================================================================
 * >>text/conversation: whole conversations, with thoughts, tools and calls: read from JSON, checked, rendered.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "json.h"
#include "vocabulary.h"
#include "template.h"
#include "template_method.h"
#include "template_run.h"
#include "answer.h"
#include "splitter.h"
#include "chat.h"

SPECDEC__FOR_SIZE

/* The bytes of a caller's text, whose length may be SPECDEC_WHOLE_STRING; empty for a NULL pointer. */
static specdec__bytes specdec__text_bytes(specdec_text text)
{
    return specdec__template_as_bytes(text.bytes, !text.bytes ? 0 : text.length == SPECDEC_WHOLE_STRING
                                                                     ? strlen(text.bytes) : text.length);
}

/* ---- From JSON, as in requests of the OpenAI API, to a specdec_chat_input. */

/* A JSON text that is being read into a specdec_chat_input, whose parts are put into the arena. */
typedef struct specdec__reader {
    specdec__json json;
    specdec__arena *arena;
    specdec_error *error;
    int message;          /* number of the message being read, for errors; -1: none */
    specdec_result failed; /* the first error; SPECDEC_OK: none */
} specdec__reader;

/* Stores an error, unless an earlier one is stored. */
static void specdec__reader_fail(specdec__reader *r, const char *why)
{
    if (!r->failed && r->message < 0)
        r->failed = specdec__fail(r->error, SPECDEC_ERROR_FORMAT, "%s", why);
    else if (!r->failed)
        r->failed = specdec__fail(r->error, SPECDEC_ERROR_FORMAT, "message %d: %s", r->message, why);
}

/* Takes zeroed memory from the arena; NULL, and stores an error: the arena is full. */
static void *specdec__reader_take_memory(specdec__reader *r, size_t count, size_t size)
{
    void *room = specdec__arena_take(r->arena, count, size, 8);

    if (!room && !r->failed)
        r->failed = specdec__fail(r->error, SPECDEC_ERROR_CONTEXT, "the conversation is too long for this context");
    return room;
}

/* The node of an object's member; 0: the member is absent or null. */
static size_t specdec__reader_find_member(const specdec__reader *r, size_t object, const char *name)
{
    const size_t node = specdec__json_find_member(&r->json, object, name);

    return node && r->json.nodes[node].kind != SPECDEC__JSON_NULL ? node : 0;
}

/* The value of a JSON string, copied with a terminating zero; empty for node 0. what: its name for errors. */
static specdec_text specdec__reader_read_string(specdec__reader *r, size_t node, const char *what)
{
    specdec_text text = {NULL, 0};
    size_t most;
    char *bytes;

    if (!node)
        return text;
    if (r->json.nodes[node].kind != SPECDEC__JSON_STRING) {
        specdec__reader_fail(r, what);
        return text;
    }
    most = r->json.nodes[node].to - r->json.nodes[node].from;
    bytes = (char *)specdec__reader_take_memory(r, most, 1);
    if (bytes) {
        text.bytes = bytes;
        text.length = specdec__json_string_value(&r->json, node, bytes, most - 1);
    }
    return text;
}

/* A value as it is spelled in the JSON text. */
static specdec_text specdec__reader_raw_text(const specdec__reader *r, size_t node)
{
    specdec_text text = {NULL, 0};
    specdec__bytes raw;

    if (!node)
        return text;
    raw = specdec__json_raw_text(&r->json, node);
    text.bytes = (const char *)raw.data;
    text.length = raw.size;
    return text;
}

/* The content of a message: a string, or the texts of its parts joined with line ends. */
static specdec_text specdec__reader_read_content(specdec__reader *r, size_t node)
{
    static const char wrong[] = "its content is no text: only parts of type \"text\" are read";
    const specdec__json_node *nodes = r->json.nodes;
    specdec_text text = {NULL, 0};
    size_t part = node + 1, room;
    uint32_t i;
    char *bytes;

    if (!node || nodes[node].kind != SPECDEC__JSON_ARRAY)
        return specdec__reader_read_string(r, node, wrong);
    bytes = (char *)specdec__reader_take_memory(r, (size_t)nodes[node].to - nodes[node].from, 1);
    for (i = 0; bytes && i < nodes[node].count && !r->failed; i++, part = nodes[part].next) {
        const size_t type = specdec__json_find_member(&r->json, part, "type"),
                     say = specdec__json_find_member(&r->json, part, "text");

        room = nodes[node].to - nodes[node].from - text.length;
        if (!say || nodes[say].kind != SPECDEC__JSON_STRING ||
            (type && !specdec__json_string_equals(&r->json, type, "text", 4))) {
            specdec__reader_fail(r, wrong);
            break;
        }
        if (i)
            bytes[text.length++] = '\n';
        text.length += specdec__json_string_value(&r->json, say, bytes + text.length, room - 1);
    }
    text.bytes = bytes;
    return text;
}

/* Reads the tool_calls of an assistant's message. */
static void specdec__reader_read_calls(specdec__reader *r, size_t node, specdec_chat_message *message)
{
    const specdec__json_node *nodes = r->json.nodes;
    specdec_tool_call *calls;
    size_t call = node + 1;
    uint32_t i;

    if (!node)
        return;
    if (nodes[node].kind != SPECDEC__JSON_ARRAY) {
        specdec__reader_fail(r, "its tool_calls are no list");
        return;
    }
    calls = (specdec_tool_call *)specdec__reader_take_memory(r, nodes[node].count, sizeof *calls);
    for (i = 0; calls && i < nodes[node].count && !r->failed; i++, call = nodes[call].next) {
        const size_t inner = specdec__reader_find_member(r, call, "function"), of = inner ? inner : call;
        const size_t arguments = specdec__reader_find_member(r, of, "arguments"),
                     name = specdec__json_find_member(&r->json, of, "name");

        if (!name)
            specdec__reader_fail(r, "a call has no name");
        calls[i].id = specdec__reader_read_string(r, specdec__reader_find_member(r, call, "id"),
                                                  "the id of a call is no text");
        calls[i].name = specdec__reader_read_string(r, name, "the name of a call is no text");
        calls[i].arguments = arguments && nodes[arguments].kind == SPECDEC__JSON_OBJECT
                                 ? specdec__reader_raw_text(r, arguments)
                                 : specdec__reader_read_string(r, arguments, "the arguments of a call are no text");
    }
    message->calls = calls;
    message->call_count = (int)nodes[node].count;
}

/* Reads a message of the conversation from its JSON object. */
static void specdec__reader_read_message(specdec__reader *r, size_t node, specdec_chat_message *message)
{
    size_t thoughts = specdec__reader_find_member(r, node, "reasoning_content");

    if (r->json.nodes[node].kind != SPECDEC__JSON_OBJECT) {
        specdec__reader_fail(r, "it is no object");
        return;
    }
    thoughts = thoughts ? thoughts : specdec__reader_find_member(r, node, "reasoning");
    message->role =
        specdec__reader_read_string(r, specdec__reader_find_member(r, node, "role"), "its role is no text").bytes;
    message->content = specdec__reader_read_content(r, specdec__reader_find_member(r, node, "content"));
    message->thoughts = specdec__reader_read_string(r, thoughts, "its reasoning_content is no text");
    message->call_id = specdec__reader_read_string(r, specdec__reader_find_member(r, node, "tool_call_id"),
                                                   "its tool_call_id is no text");
    message->name = specdec__reader_read_string(r, specdec__reader_find_member(r, node, "name"), "its name is no text");
    specdec__reader_read_calls(r, specdec__reader_find_member(r, node, "tool_calls"), message);
}

/* Reads tool_choice: "auto", "none", "required", or {"type": "function", "function": {"name": NAME}}. */
static void specdec__reader_read_tool_choice(specdec__reader *r, size_t node, specdec_chat_input *input)
{
    static const char *const words[] = {"auto", "none", "required"};
    const size_t inner = node ? specdec__reader_find_member(r, node, "function") : 0;
    int i;

    if (!node)
        return;
    for (i = 0; i < 3; i++)
        if (specdec__json_string_equals(&r->json, node, words[i], strlen(words[i]))) {
            input->tool_choice = (specdec_tool_choice)i;
            return;
        }
    input->tool_choice = SPECDEC_TOOLS_REQUIRED;
    input->tool = specdec__reader_read_string(r, inner ? specdec__reader_find_member(r, inner, "name") : 0,
                                              "the tool of tool_choice is no text");
    if (!input->tool.bytes)
        specdec__reader_fail(r, "tool_choice names no tool");
}

/* Reads all members of a request that matter to a conversation. */
static void specdec__reader_read_members(specdec__reader *r, specdec_chat_input *input)
{
    const size_t list = specdec__reader_find_member(r, 0, "messages");
    const size_t continues = specdec__reader_find_member(r, 0, "continue_final_message");
    specdec_chat_message *messages;
    size_t node = list + 1;

    if (!list || r->json.nodes[list].kind != SPECDEC__JSON_ARRAY) {
        specdec__reader_fail(r, "there is no list of messages");
        return;
    }
    messages = (specdec_chat_message *)specdec__reader_take_memory(r, r->json.nodes[list].count, sizeof *messages);
    for (r->message = 0; messages && r->message < (int)r->json.nodes[list].count && !r->failed;
         r->message++, node = r->json.nodes[node].next)
        specdec__reader_read_message(r, node, &messages[r->message]);
    input->messages = messages;
    input->count = (int)r->json.nodes[list].count;
    r->message = -1;
    input->tools = specdec__reader_raw_text(r, specdec__reader_find_member(r, 0, "tools"));
    input->arguments = specdec__reader_raw_text(r, specdec__reader_find_member(r, 0, "chat_template_kwargs"));
    input->continues = continues && r->json.nodes[continues].kind == SPECDEC__JSON_TRUE;
    specdec__reader_read_tool_choice(r, specdec__reader_find_member(r, 0, "tool_choice"), input);
}

/* Reads a conversation from JSON. Its texts lie in the arena and in the JSON text. Errors: FORMAT, CONTEXT. */
static SPECDEC__UNUSED specdec_result specdec__conversation_read(const char *text, size_t size, specdec__arena *arena,
                                                                 specdec_chat_input *input, specdec_error *error)
{
    specdec__reader r;

    memset(&r, 0, sizeof r);
    memset(input, 0, sizeof *input);
    r.arena = arena;
    r.error = error;
    r.message = -1;
    r.json.text = (const unsigned char *)text;
    r.json.size = size;
    if (!specdec__json_parse(&r.json))
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "the conversation is no JSON: byte %zu: %s", r.json.error_at,
                             r.json.failed);
    r.json.room = r.json.count;
    r.json.nodes = (specdec__json_node *)specdec__reader_take_memory(&r, r.json.room, sizeof *r.json.nodes);
    if (r.json.nodes && specdec__json_parse(&r.json))
        specdec__reader_read_members(&r, input);
    return r.failed;
}

/* ---- Checking a conversation. */

/* Is a text absent, or JSON whose value is of a kind? */
static int specdec__conversation_check_json(specdec_text text, int kind)
{
    const specdec__bytes bytes = specdec__text_bytes(text);
    specdec__json_node node;
    specdec__json j;

    memset(&j, 0, sizeof j);
    j.text = bytes.data;
    j.size = bytes.size;
    j.nodes = &node;
    j.room = 1;
    return !bytes.data || (specdec__json_parse(&j) && node.kind == kind);
}

/* Checks roles, texts and JSON of a conversation. most: bytes that a text may have. */
static SPECDEC__UNUSED specdec_result specdec__conversation_check(const specdec_chat_input *input, size_t most,
                                                                  specdec_error *error)
{
    size_t all = specdec__size_add(specdec__text_bytes(input->tools).size, specdec__text_bytes(input->arguments).size);
    int i, k;

    if (!input->messages || input->count < 1)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "%d messages", input->messages ? input->count : 0);
    if ((unsigned)input->tool_choice > SPECDEC_TOOLS_REQUIRED)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "tool_choice is %d", (int)input->tool_choice);
    for (i = 0; i < input->count; i++) {
        const specdec_chat_message *m = &input->messages[i];

        if (!m->role || m->call_count < 0 || (m->call_count && !m->calls))
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "message %d has no role, or no calls", i);
        all = specdec__size_add(all, specdec__size_add(specdec__text_bytes(m->content).size,
                                                       specdec__text_bytes(m->thoughts).size));
        for (k = 0; k < m->call_count; k++)
            if (!m->calls[k].name.bytes)
                return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "message %d: call %d has no name", i, k);
            else
                all = specdec__size_add(all, specdec__text_bytes(m->calls[k].arguments).size);
    }
    if (!specdec__conversation_check_json(input->tools, SPECDEC__JSON_ARRAY) ||
        !specdec__conversation_check_json(input->arguments, SPECDEC__JSON_OBJECT))
        return specdec__fail(error, SPECDEC_ERROR_FORMAT,
                             "tools are no JSON array, or the template's arguments no JSON object");
    if (all > most)
        return specdec__fail(error, SPECDEC_ERROR_CONTEXT,
                             "a conversation of %zu bytes; with this context, %zu are the most", all, most);
    if (input->continues && strcmp(input->messages[input->count - 1].role, "assistant"))
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "only a last message of the assistant can be continued");
    return SPECDEC_OK;
}

/* ---- A conversation as the values of a template. */

/* Ways to present a conversation to a template, tried until one succeeds, as templates differ. Bit EMPTY: missing
   content is "" instead of none; bit TEXT: arguments of calls are strings instead of dicts. */
enum { SPECDEC__CONVERSATION_EMPTY = 1, SPECDEC__CONVERSATION_TEXT = 2, SPECDEC__CONVERSATION_WAYS = 4 };

/* A dict that is being filled. */
typedef struct specdec__dict {
    specdec__template_value *items;
    size_t count;
} specdec__dict;

/* Adds a member to a dict. */
static void specdec__dict_add_member(specdec__dict *m, const char *name, specdec__template_value value)
{
    if (!m->items)
        return;
    m->items[2 * m->count] = specdec__template_string_value(name);
    m->items[2 * m->count++ + 1] = value;
}

/* A string value whose bytes are marked as a message's. */
static specdec__template_value specdec__conversation_string_value(specdec__template *t, specdec_text text)
{
    const specdec__bytes bytes = specdec__text_bytes(text);

    return specdec__template_marked_string(t, bytes.data ? (const void *)bytes.data : "", bytes.size);
}

/* The arguments of a call as a value: a dict if they are JSON, unless the way asks for text. */
static specdec__template_value specdec__conversation_arguments_value(specdec__template *t, specdec_text arguments,
                                                                     int way)
{
    specdec__bytes bytes = specdec__text_bytes(arguments);
    specdec__json j;

    memset(&j, 0, sizeof j);
    if (!bytes.size)
        bytes = specdec__template_as_bytes("{}", 2);
    j.text = bytes.data;
    j.size = bytes.size;
    if (!(way & SPECDEC__CONVERSATION_TEXT) && specdec__json_parse(&j))
        return specdec__template_read_json(t, bytes);
    return specdec__template_marked_string(t, bytes.data, bytes.size);
}

/* The tool calls of a message as a list of dicts. */
static specdec__template_value specdec__conversation_calls_value(specdec__template *t,
                                                                 const specdec_chat_message *message, int way)
{
    specdec__template_value *list = specdec__template_new_list(t, (size_t)message->call_count);
    specdec__dict call, function;
    int i;

    for (i = 0; list && i < message->call_count && !t->failed; i++) {
        const specdec_tool_call *of = &message->calls[i];

        memset(&call, 0, sizeof call);
        memset(&function, 0, sizeof function);
        call.items = specdec__template_new_list(t, 6);
        function.items = specdec__template_new_list(t, 4);
        if (of->id.bytes)
            specdec__dict_add_member(&call, "id", specdec__conversation_string_value(t, of->id));
        specdec__dict_add_member(&call, "type", specdec__template_string_value("function"));
        specdec__dict_add_member(&function, "name", specdec__conversation_string_value(t, of->name));
        specdec__dict_add_member(&function, "arguments", specdec__conversation_arguments_value(t, of->arguments, way));
        specdec__dict_add_member(&call, "function",
                                 specdec__template_sized_value(SPECDEC__TEMPLATE_DICT, function.items, function.count));
        list[i] = specdec__template_sized_value(SPECDEC__TEMPLATE_DICT, call.items, call.count);
    }
    return specdec__template_list_value(list, list ? (size_t)message->call_count : 0);
}

/* A message of the conversation as a template's dict. */
static specdec__template_value specdec__conversation_message_value(specdec__template *t,
                                                                   const specdec_chat_message *message, int way)
{
    const char *known = specdec__template_known_role(message->role, strlen(message->role));
    specdec__dict m;

    memset(&m, 0, sizeof m);
    m.items = specdec__template_new_list(t, 12);
    specdec__dict_add_member(&m, "role", known ? specdec__template_string_value(known)
                                           : specdec__template_marked_string(t, message->role, strlen(message->role)));
    specdec__dict_add_member(&m, "content", message->content.bytes || way & SPECDEC__CONVERSATION_EMPTY
                                            ? specdec__conversation_string_value(t, message->content)
                                            : specdec__template_none_value());
    if (message->thoughts.bytes)
        specdec__dict_add_member(&m, "reasoning_content", specdec__conversation_string_value(t, message->thoughts));
    if (message->call_count)
        specdec__dict_add_member(&m, "tool_calls", specdec__conversation_calls_value(t, message, way));
    if (message->call_id.bytes)
        specdec__dict_add_member(&m, "tool_call_id", specdec__conversation_string_value(t, message->call_id));
    if (message->name.bytes)
        specdec__dict_add_member(&m, "name", specdec__conversation_string_value(t, message->name));
    return specdec__template_sized_value(SPECDEC__TEMPLATE_DICT, m.items, m.items ? m.count : 0);
}

/* Defines the names of a template's input: the first `count` messages, tools, documents and other variables. */
static void specdec__conversation_define_names(specdec__template *t, const specdec_chat_input *input, int count,
                                               int way)
{
    specdec__template_value *list = specdec__template_new_list(t, (size_t)count), arguments, tools;
    int i;

    for (i = 0; list && i < count && !t->failed; i++)
        list[i] = specdec__conversation_message_value(t, &input->messages[i], way);
    specdec__template_define_name(t, specdec__template_string_value("messages"),
                                  specdec__template_list_value(list, list ? (size_t)count : 0));
    tools = specdec__template_none_value();
    if (input->tool_choice != SPECDEC_TOOLS_NONE)
        tools = specdec__template_read_json(t, specdec__text_bytes(input->tools));
    if (tools.kind == SPECDEC__TEMPLATE_LIST && !tools.size)
        tools = specdec__template_none_value();
    specdec__template_define_name(t, specdec__template_string_value("tools"), tools);
    arguments = specdec__template_read_json(t, specdec__text_bytes(input->arguments));
    if (arguments.kind == SPECDEC__TEMPLATE_DICT)
        for (i = 0; i < (int)arguments.size; i++)
            specdec__template_define_name(t, specdec__template_list_items(&arguments)[2 * i],
                                          specdec__template_list_items(&arguments)[2 * i + 1]);
}

/* Cuts off the text that the template wrote behind the content of the last message, so that the model continues that
   message, as Hugging Face's transformers does. Trailing white space that the template dropped stays dropped. */
static specdec_result specdec__conversation_cut_end(specdec_text content, specdec__chat_text *out, specdec_error *error)
{
    specdec_message message;
    specdec__bytes text, left;
    size_t at, found = SIZE_MAX;

    memset(&message, 0, sizeof message);
    message.text = content.bytes ? content.bytes : "";
    message.length = content.bytes ? content.length : 0;
    text = specdec__chat_trim_message(&message, 3);
    left = specdec__chat_trim_message(&message, 1);
    for (at = 0; text.size && text.size <= out->needed && at <= out->needed - text.size; at++)
        if (memcmp(out->text + at, text.data, text.size) == 0 && out->plain[at / 8] >> at % 8 & 1)
            found = at;
    if (found == SIZE_MAX)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                             "the model's chat template does not write the last message so that it can be continued");
    at = left.size <= out->needed - found && memcmp(out->text + found, left.data, left.size) == 0 ? left.size
                                                                                                  : text.size;
    out->needed = found + at;
    return SPECDEC_OK;
}

/* Input for rendering by a template: vocabulary, template, clock and memory[bytes], aligned for pointers. */
typedef struct specdec__conversation_work {
    const specdec__vocab *vocab;
    specdec__bytes text;  /* text of the template */
    unsigned char *memory;
    size_t memory_bytes;
    int64_t local_time; /* seconds since 1970, for strftime_now */
} specdec__conversation_work;

/* Renders a conversation by a template, with the beginning of the model's turn. Errors: ARGUMENT (the template refuses
   the conversation), CONTEXT, FORMAT, UNSUPPORTED. */
static SPECDEC__UNUSED SPECDEC__NOINLINE specdec_result
specdec__conversation_render(const specdec__conversation_work *w, const specdec_chat_input *input,
                             specdec__chat_text *out, specdec_error *error)
{
    const specdec_chat_message *last = &input->messages[input->count - 1];
    const int empty = input->continues && !specdec__text_bytes(last->content).size;
    const int open = input->continues && !empty, count = input->count - empty;
    const size_t used = (sizeof(specdec__template) + 7) & ~(size_t)7;
    specdec__template *t = (specdec__template *)(void *)w->memory;
    specdec_result result = SPECDEC_OK;
    int way;

    if (w->memory_bytes < used)
        return specdec__fail(error, SPECDEC_ERROR_CONTEXT, "the conversation is too long for this context");
    for (way = 0; way < SPECDEC__CONVERSATION_WAYS; way++) {
        specdec__template_begin(t, w->text, w->memory + used, w->memory_bytes - used, out->text, out->plain, out->size);
        t->local_time = w->local_time;
        specdec__chat_define_names(t, specdec__chat_token_text(w->vocab, w->vocab->bos),
                                   specdec__chat_token_text(w->vocab, w->vocab->eos), !open);
        specdec__conversation_define_names(t, input, count, way);
        specdec__template_render(t);
        if (!t->failed)
            break;
        if (!result)
            result = specdec__chat_template_error(t, error);
        if (t->raised || t->output_full)
            return result;
    }
    if (t->failed)
        return result;
    out->needed = t->output_bytes;
    return open ? specdec__conversation_cut_end(last->content, out, error) : SPECDEC_OK;
}

/* ---- Finding out which marks the models of a template write. */

/* A question and a tool call that the template is made to write, to see which row of specdec__call_table parses the
   call. */
static const char specdec__conversation_question[] = "specdec-question", specdec__conversation_name[] = "get_weather",
                  specdec__conversation_call_arguments[] = "{\"city\":\"Par\\\"is\",\"days\":3}";

/* The offset behind the last occurrence of a word in a text; 0: it does not occur. */
static size_t specdec__conversation_after_last(specdec__bytes text, const char *word)
{
    const size_t size = strlen(word);
    size_t at = text.size >= size ? text.size - size + 1 : 0;

    while (at-- > 0)
        if (memcmp(text.data + at, word, size) == 0)
            return at + size;
    return 0;
}

/* Does a splitter with this row find the known call in a text, exactly once? */
static int specdec__conversation_row_parses_call(const specdec__calls *row, const char *text, size_t size)
{
    const char *want = specdec__conversation_call_arguments, *section = SPECDEC__CALL_TEXT(row, SECTION);
    size_t named = 0, matched = 0, i;
    int good = 1, whole = 0;
    specdec_splitter s;
    specdec_part part;

    if (row->flags & SPECDEC__CALLS_BARE) {
        const size_t at = specdec__conversation_after_last(specdec__template_as_bytes(text, size), "{\"name\":");

        if (!at)
            return 0;
        text += at - 8;
        size -= at - 8;
    }
    if (section && !specdec__conversation_after_last(specdec__template_as_bytes(text, size), section))
        return 0;
    specdec__answer_begin_splitter(&s, row, NULL, 0);
    specdec__answer_push_bytes(&s, text, size);
    while (good && specdec__answer_next_part(&s, &part)) {
        for (i = 0; i < part.text.length && part.kind == SPECDEC_PART_NAME; i++, named++)
            good = good && named < sizeof specdec__conversation_name - 1 &&
                   part.text.bytes[i] == specdec__conversation_name[named];
        for (i = 0; i < part.text.length && part.kind == SPECDEC_PART_ARGUMENTS; i++)
            if (part.text.bytes[i] != ' ')
                good = good && want[matched] && part.text.bytes[i] == want[matched++];
        whole += part.kind == SPECDEC_PART_END;
        good = good && (part.call <= 0);
    }
    return good && whole == 1 && named == sizeof specdec__conversation_name - 1 && matched == strlen(want);
}

/* Does a text contain a mark? NULL: no. */
static int specdec__conversation_contains_mark(specdec__bytes text, const char *mark)
{
    return mark && specdec__conversation_after_last(text, mark) > 0;
}

/* The row whose marks occur in the template's text, for templates that write no calls; else a row whose mark is a token
   of the vocabulary. */
static const specdec__calls *specdec__conversation_find_row(specdec__bytes text, const specdec__vocab *v)
{
    specdec__cursor c = specdec__cursor_at_start(v->texts, v->texts_size);
    size_t k;
    uint32_t id;

    for (k = 0; k < SPECDEC__COUNT(specdec__call_table); k++)
        if (specdec__call_table[k].form != SPECDEC__CALLS_CHANNEL &&
            specdec__conversation_contains_mark(text, SPECDEC__CALL_TEXT(&specdec__call_table[k], MARK)))
            return &specdec__call_table[k];
    for (id = 0; id < v->count; id++) {
        const specdec__bytes token = specdec__cursor_string(&c);

        for (k = 0; k < SPECDEC__COUNT(specdec__call_table) && token.size > 4; k++)
            if ((specdec__call_table[k].form == SPECDEC__CALLS_JSON ||
                 specdec__call_table[k].form == SPECDEC__CALLS_PYTHON) &&
                specdec__bytes_are(token, SPECDEC__CALL_TEXT(&specdec__call_table[k], MARK)))
                return &specdec__call_table[k];
    }
    return NULL;
}

/* Finds how models with this template write tool calls and thoughts, from the text that it writes for a known call. The
   result is in w->found. */
static SPECDEC__UNUSED SPECDEC__NOINLINE void specdec__conversation_find_format(specdec__chat_work *w,
                                                                                specdec__bytes text,
                                                                                const specdec__vocab *v)
{
    static const char tools[] =
        "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"description\": \"Weather.\", "
        "\"parameters\": {\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\", "
        "\"description\": \"City.\"}, \"days\": {\"type\": \"integer\", \"description\": \"Days.\"}}, "
        "\"required\": [\"city\"]}}}]";
    specdec__chat *const chat = &w->found->chat;
    specdec_chat_message messages[2];
    specdec_tool_call call;
    specdec_chat_input input;
    specdec__bytes written;
    size_t i, from;
    int way, writes = 0;

    memset(messages, 0, sizeof messages);
    memset(&call, 0, sizeof call);
    memset(&input, 0, sizeof input);
    messages[0].role = "user";
    messages[0].content.bytes = specdec__conversation_question;
    messages[0].content.length = SPECDEC_WHOLE_STRING;
    messages[1].role = "assistant";
    messages[1].calls = &call;
    messages[1].call_count = 1;
    call.id.bytes = "call00001";
    call.name.bytes = specdec__conversation_name;
    call.arguments.bytes = specdec__conversation_call_arguments;
    call.id.length = call.name.length = call.arguments.length = SPECDEC_WHOLE_STRING;
    input.messages = messages;
    input.count = 2;
    input.tools.bytes = tools;
    input.tools.length = sizeof tools - 1;
    for (way = 0; way < SPECDEC__CONVERSATION_WAYS && !chat->calls; way++) {
        specdec__template_begin(&w->running_template, text, w->memory, w->memory_bytes, w->output, w->plain,
                                sizeof w->output);
        w->running_template.local_time = 0;
        specdec__chat_define_names(&w->running_template, specdec__chat_token_text(v, v->bos),
                                   specdec__chat_token_text(v, v->eos), 0);
        specdec__conversation_define_names(&w->running_template, &input, 2, way);
        specdec__template_render(&w->running_template);
        written = specdec__template_as_bytes(w->output, w->running_template.output_bytes);
        from = w->running_template.failed ? 0
                                          : specdec__conversation_after_last(written, specdec__conversation_question);
        writes |= from && specdec__conversation_after_last(written, specdec__conversation_name) > from;
        for (i = 0; from && !chat->calls && i < SPECDEC__COUNT(specdec__call_table); i++)
            if (specdec__conversation_row_parses_call(&specdec__call_table[i], w->output + from, written.size - from))
                chat->calls = &specdec__call_table[i];
    }
    if (!chat->calls && !writes && specdec__conversation_contains_mark(text, "tool"))
        chat->calls = specdec__conversation_find_row(text, v);
    for (i = 0; i < SPECDEC__COUNT(specdec__thought_table) && !chat->thoughts; i++)
        if (specdec__conversation_contains_mark(text, specdec__thought_table[i].close) &&
            (!i || specdec__conversation_contains_mark(text, specdec__thought_table[i].open)))
            chat->thoughts = &specdec__thought_table[i];
}

/* ---- Known formats, for models without a template and builds that run none. */

/* Converts a conversation to messages for specdec__chat_render, in an arena. Errors: CONTEXT; UNSUPPORTED: it has tools
   or other input that no known format writes. */
static SPECDEC__UNUSED specdec_result specdec__conversation_to_messages(const specdec_chat_input *input,
                                                                        specdec__arena *arena,
                                                                        const specdec_message **out,
                                                                        specdec_error *error)
{
    static const char *const roles[] = {"system", "user", "assistant"};
    specdec_message *messages = (specdec_message *)specdec__arena_take(arena, (size_t)input->count, sizeof *messages,
                                                                       8);
    int i, role;

    *out = messages;
    if (!messages)
        return specdec__fail(error, SPECDEC_ERROR_CONTEXT, "the conversation is too long for this context");
    for (i = 0; i < input->count; i++) {
        const specdec_chat_message *m = &input->messages[i];
        const specdec__bytes content = specdec__text_bytes(m->content);

        for (role = 0; role < 3 && strcmp(m->role, roles[role]); role++)
            ;
        if (role == 3 || m->call_count)
            return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                                 "message %d: this chat format knows system, user and assistant alone, without calls",
                                 i);
        messages[i].role = (specdec_role)role;
        messages[i].text = content.data ? (const char *)content.data : "";
        messages[i].length = content.size;
        messages[i].special = input->special;
    }
    return SPECDEC_OK;
}

SPECDEC__FOR_SPEED
