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

/* Returns the bytes of a caller's text, whose length may be SPECDEC_WHOLE_STRING; empty for a NULL pointer. */
static specdec__bytes specdec__conversation_text_bytes(specdec_text text)
{
    return specdec__template_as_bytes(text.bytes, !text.bytes ? 0 : text.length == SPECDEC_WHOLE_STRING
                                                                     ? strlen(text.bytes) : text.length);
}

/* ---- From JSON, as in requests of the OpenAI API, to a specdec_chat_input. */

/* A request as JSON that is being read into a specdec_chat_input, whose parts are put into the arena. */
typedef struct specdec__request {
    specdec__json json;    /* the parsed text of the request */
    specdec__arena *arena; /* memory for the parts of the specdec_chat_input */
    specdec_error *error;  /* receives the text of the first error */
    int message;           /* number of the message being read, for error texts; -1: none */
    specdec_result failed; /* the first error; SPECDEC_OK: none */
} specdec__request;

/* Stores the error of a request, unless an earlier one is stored. why: the error's text. */
static void specdec__request_fail(specdec__request *r, const char *why)
{
    if (!r->failed && r->message < 0)
        r->failed = specdec__fail(r->error, SPECDEC_ERROR_FORMAT, "%s", why);
    else if (!r->failed)
        r->failed = specdec__fail(r->error, SPECDEC_ERROR_FORMAT, "message %d: %s", r->message, why);
}

/* Takes zeroed memory for `count` items of `size` bytes from the arena. Returns NULL, and stores an error, when the
   arena is full. */
static void *specdec__request_take_memory(specdec__request *r, size_t count, size_t size)
{
    void *room = specdec__arena_take(r->arena, count, size, 8);

    if (!room && !r->failed)
        r->failed = specdec__fail(r->error, SPECDEC_ERROR_CONTEXT, "the conversation is too long for this context");
    return room;
}

/* Returns the JSON node of an object's member; 0: the member is absent or null. */
static size_t specdec__request_find_member(const specdec__request *r, size_t object, const char *name)
{
    const size_t node = specdec__json_find_member(&r->json, object, name);

    return node && r->json.nodes[node].kind != SPECDEC__JSON_NULL ? node : 0;
}

/* Returns the value of the JSON string at a node, copied with a terminating zero; empty for node 0. what: the string's
   name, for error texts. */
static specdec_text specdec__request_read_string(specdec__request *r, size_t node, const char *what)
{
    specdec_text text = {NULL, 0};
    size_t most;
    char *bytes;

    if (!node)
        return text;
    if (r->json.nodes[node].kind != SPECDEC__JSON_STRING) {
        specdec__request_fail(r, what);
        return text;
    }
    most = r->json.nodes[node].to - r->json.nodes[node].from;
    bytes = (char *)specdec__request_take_memory(r, most, 1);
    if (bytes) {
        text.bytes = bytes;
        text.length = specdec__json_string_value(&r->json, node, bytes, most - 1);
    }
    return text;
}

/* Returns the value at a JSON node as it is spelled in the request. */
static specdec_text specdec__request_value_text(const specdec__request *r, size_t node)
{
    specdec_text text = {NULL, 0};
    specdec__bytes raw;

    if (!node)
        return text;
    raw = specdec__json_value_text(&r->json, node);
    text.bytes = (const char *)raw.data;
    text.length = raw.size;
    return text;
}

/* Returns the content of a message: a string, or the texts of its parts joined with line ends. */
static specdec_text specdec__request_read_content(specdec__request *r, size_t node)
{
    static const char wrong[] = "its content is no text: only parts of type \"text\" are read";
    const specdec__json_node *nodes = r->json.nodes;
    specdec_text text = {NULL, 0};
    size_t part = node + 1, room;
    uint32_t i;
    char *bytes;

    if (!node || nodes[node].kind != SPECDEC__JSON_ARRAY)
        return specdec__request_read_string(r, node, wrong);
    bytes = (char *)specdec__request_take_memory(r, (size_t)nodes[node].to - nodes[node].from, 1);
    for (i = 0; bytes && i < nodes[node].count && !r->failed; i++, part = nodes[part].next) {
        const size_t type = specdec__json_find_member(&r->json, part, "type"),
                     say = specdec__json_find_member(&r->json, part, "text");

        room = nodes[node].to - nodes[node].from - text.length;
        if (!say || nodes[say].kind != SPECDEC__JSON_STRING ||
            (type && !specdec__json_string_equals(&r->json, type, "text", 4))) {
            specdec__request_fail(r, wrong);
            break;
        }
        if (i)
            bytes[text.length++] = '\n';
        text.length += specdec__json_string_value(&r->json, say, bytes + text.length, room - 1);
    }
    text.bytes = bytes;
    return text;
}

/* Reads tool_calls of an assistant's message into message->calls. */
static void specdec__request_read_calls(specdec__request *r, size_t node, specdec_chat_message *message)
{
    const specdec__json_node *nodes = r->json.nodes;
    specdec_tool_call *calls;
    size_t call = node + 1;
    uint32_t i;

    if (!node)
        return;
    if (nodes[node].kind != SPECDEC__JSON_ARRAY) {
        specdec__request_fail(r, "its tool_calls are no list");
        return;
    }
    calls = (specdec_tool_call *)specdec__request_take_memory(r, nodes[node].count, sizeof *calls);
    for (i = 0; calls && i < nodes[node].count && !r->failed; i++, call = nodes[call].next) {
        const size_t inner = specdec__request_find_member(r, call, "function"), of = inner ? inner : call;
        const size_t arguments = specdec__request_find_member(r, of, "arguments"),
                     name = specdec__json_find_member(&r->json, of, "name");

        if (!name)
            specdec__request_fail(r, "a call has no name");
        calls[i].id = specdec__request_read_string(r, specdec__request_find_member(r, call, "id"),
                                                   "the id of a call is no text");
        calls[i].name = specdec__request_read_string(r, name, "the name of a call is no text");
        calls[i].arguments = arguments && nodes[arguments].kind == SPECDEC__JSON_OBJECT
                                 ? specdec__request_value_text(r, arguments)
                                 : specdec__request_read_string(r, arguments, "the arguments of a call are no text");
    }
    message->calls = calls;
    message->call_count = (int)nodes[node].count;
}

/* Reads a message of the conversation from its JSON object into *message. */
static void specdec__request_read_message(specdec__request *r, size_t node, specdec_chat_message *message)
{
    size_t thoughts = specdec__request_find_member(r, node, "reasoning_content");

    if (r->json.nodes[node].kind != SPECDEC__JSON_OBJECT) {
        specdec__request_fail(r, "it is no object");
        return;
    }
    thoughts = thoughts ? thoughts : specdec__request_find_member(r, node, "reasoning");
    message->role =
        specdec__request_read_string(r, specdec__request_find_member(r, node, "role"), "its role is no text").bytes;
    message->content = specdec__request_read_content(r, specdec__request_find_member(r, node, "content"));
    message->thoughts = specdec__request_read_string(r, thoughts, "its reasoning_content is no text");
    message->call_id = specdec__request_read_string(r, specdec__request_find_member(r, node, "tool_call_id"),
                                                    "its tool_call_id is no text");
    message->name = specdec__request_read_string(r, specdec__request_find_member(r, node, "name"),
                                                 "its name is no text");
    specdec__request_read_calls(r, specdec__request_find_member(r, node, "tool_calls"), message);
}

/* Reads tool_choice of a request, "auto", "none", "required", or {"type": "function", "function": {"name": NAME}}, into
   *input. */
static void specdec__request_read_tool_choice(specdec__request *r, size_t node, specdec_chat_input *input)
{
    static const char *const words[] = {"auto", "none", "required"};
    const size_t inner = node ? specdec__request_find_member(r, node, "function") : 0;
    int i;

    if (!node)
        return;
    for (i = 0; i < 3; i++)
        if (specdec__json_string_equals(&r->json, node, words[i], strlen(words[i]))) {
            input->tool_choice = (specdec_tool_choice)i;
            return;
        }
    input->tool_choice = SPECDEC_TOOLS_REQUIRED;
    input->tool = specdec__request_read_string(r, inner ? specdec__request_find_member(r, inner, "name") : 0,
                                               "the tool of tool_choice is no text");
    if (!input->tool.bytes)
        specdec__request_fail(r, "tool_choice names no tool");
}

/* Reads all members of a request that matter to a conversation (messages, tools, tool_choice and others) into
   *input. */
static void specdec__request_read_members(specdec__request *r, specdec_chat_input *input)
{
    const size_t list = specdec__request_find_member(r, 0, "messages");
    const size_t continues = specdec__request_find_member(r, 0, "continue_final_message");
    specdec_chat_message *messages;
    size_t node = list + 1;

    if (!list || r->json.nodes[list].kind != SPECDEC__JSON_ARRAY) {
        specdec__request_fail(r, "there is no list of messages");
        return;
    }
    messages = (specdec_chat_message *)specdec__request_take_memory(r, r->json.nodes[list].count, sizeof *messages);
    for (r->message = 0; messages && r->message < (int)r->json.nodes[list].count && !r->failed;
         r->message++, node = r->json.nodes[node].next)
        specdec__request_read_message(r, node, &messages[r->message]);
    input->messages = messages;
    input->count = (int)r->json.nodes[list].count;
    r->message = -1;
    input->tools = specdec__request_value_text(r, specdec__request_find_member(r, 0, "tools"));
    input->arguments = specdec__request_value_text(r, specdec__request_find_member(r, 0, "chat_template_kwargs"));
    input->continues = continues && r->json.nodes[continues].kind == SPECDEC__JSON_TRUE;
    specdec__request_read_tool_choice(r, specdec__request_find_member(r, 0, "tool_choice"), input);
}

/* Reads a conversation from the JSON of a request into *input. Its texts lie in the arena and in the JSON text. Errors:
   FORMAT, CONTEXT. */
static SPECDEC__UNUSED specdec_result specdec__conversation_read(const char *text, size_t size, specdec__arena *arena,
                                                                 specdec_chat_input *input, specdec_error *error)
{
    specdec__request r;

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
    r.json.nodes = (specdec__json_node *)specdec__request_take_memory(&r, r.json.room, sizeof *r.json.nodes);
    if (r.json.nodes && specdec__json_parse(&r.json))
        specdec__request_read_members(&r, input);
    return r.failed;
}

/* ---- Checking a conversation. */

/* Is a text absent, or JSON whose value is of a kind (SPECDEC__JSON_...)? */
static int specdec__conversation_is_json_of_kind(specdec_text text, int kind)
{
    const specdec__bytes bytes = specdec__conversation_text_bytes(text);
    specdec__json_node node;
    specdec__json j;

    memset(&j, 0, sizeof j);
    j.text = bytes.data;
    j.size = bytes.size;
    j.nodes = &node;
    j.room = 1;
    return !bytes.data || (specdec__json_parse(&j) && node.kind == kind);
}

/* Checks roles, texts and JSON of a conversation. most: bytes that a text may have. Errors: ARGUMENT. */
static SPECDEC__UNUSED specdec_result specdec__conversation_check_input(const specdec_chat_input *input, size_t most,
                                                                        specdec_error *error)
{
    size_t all = specdec__size_add(specdec__conversation_text_bytes(input->tools).size,
                                   specdec__conversation_text_bytes(input->arguments).size);
    int i, k;

    if (!input->messages || input->count < 1)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "%d messages", input->messages ? input->count : 0);
    if ((unsigned)input->tool_choice > SPECDEC_TOOLS_REQUIRED)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "tool_choice is %d", (int)input->tool_choice);
    for (i = 0; i < input->count; i++) {
        const specdec_chat_message *m = &input->messages[i];

        if (!m->role || m->call_count < 0 || (m->call_count && !m->calls))
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "message %d has no role, or no calls", i);
        all = specdec__size_add(all, specdec__size_add(specdec__conversation_text_bytes(m->content).size,
                                                       specdec__conversation_text_bytes(m->thoughts).size));
        for (k = 0; k < m->call_count; k++)
            if (!m->calls[k].name.bytes)
                return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "message %d: call %d has no name", i, k);
            else
                all = specdec__size_add(all, specdec__conversation_text_bytes(m->calls[k].arguments).size);
    }
    if (!specdec__conversation_is_json_of_kind(input->tools, SPECDEC__JSON_ARRAY) ||
        !specdec__conversation_is_json_of_kind(input->arguments, SPECDEC__JSON_OBJECT))
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

/* Ways to present a conversation to a chat template, tried in turn until the template succeeds. Bit EMPTY_CONTENT:
   missing content is "" instead of none; bit TEXT_ARGUMENTS: arguments of calls are strings instead of dicts. */
enum {
    SPECDEC__CONVERSATION_EMPTY_CONTENT = 1,
    SPECDEC__CONVERSATION_TEXT_ARGUMENTS = 2,
    SPECDEC__CONVERSATION_PRESENTATIONS = 4
};

/* A dict of a template that is being filled. */
typedef struct specdec__dict {
    specdec__template_value *items; /* (2 * count) names, each followed by its value */
    size_t count;                   /* members so far */
} specdec__dict;

/* Adds a member, a name and its value, to a template's dict that has room for it. */
static void specdec__conversation_add_dict_member(specdec__dict *m, const char *name, specdec__template_value value)
{
    if (!m->items)
        return;
    m->items[2 * m->count] = specdec__template_string_value(name);
    m->items[2 * m->count++ + 1] = value;
}

/* Returns a text of a message as a template's string value; its bytes are marked as a message's. */
static specdec__template_value specdec__conversation_string_value(specdec__template *t, specdec_text text)
{
    const specdec__bytes bytes = specdec__conversation_text_bytes(text);

    return specdec__template_marked_string(t, bytes.data ? (const void *)bytes.data : "", bytes.size);
}

/* Returns the arguments of a tool call as a template's value: a dict if they are JSON, unless `presentation` has the
   bit TEXT_ARGUMENTS. */
static specdec__template_value specdec__conversation_arguments_value(specdec__template *t, specdec_text arguments,
                                                                     int presentation)
{
    specdec__bytes bytes = specdec__conversation_text_bytes(arguments);
    specdec__json j;

    memset(&j, 0, sizeof j);
    if (!bytes.size)
        bytes = specdec__template_as_bytes("{}", 2);
    j.text = bytes.data;
    j.size = bytes.size;
    if (!(presentation & SPECDEC__CONVERSATION_TEXT_ARGUMENTS) && specdec__json_parse(&j))
        return specdec__template_read_json(t, bytes);
    return specdec__template_marked_string(t, bytes.data, bytes.size);
}

/* Returns the tool calls of a message as a template's value: a list of dicts. presentation: see
   SPECDEC__CONVERSATION_PRESENTATIONS. */
static specdec__template_value specdec__conversation_calls_value(specdec__template *t,
                                                                 const specdec_chat_message *message, int presentation)
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
            specdec__conversation_add_dict_member(&call, "id", specdec__conversation_string_value(t, of->id));
        specdec__conversation_add_dict_member(&call, "type", specdec__template_string_value("function"));
        specdec__conversation_add_dict_member(&function, "name", specdec__conversation_string_value(t, of->name));
        specdec__conversation_add_dict_member(&function, "arguments",
                                              specdec__conversation_arguments_value(t, of->arguments, presentation));
        specdec__conversation_add_dict_member(
            &call, "function", specdec__template_sized_value(SPECDEC__TEMPLATE_DICT, function.items, function.count));
        list[i] = specdec__template_sized_value(SPECDEC__TEMPLATE_DICT, call.items, call.count);
    }
    return specdec__template_list_value(list, list ? (size_t)message->call_count : 0);
}

/* Returns a message of the conversation as a template's value: a dict. presentation: see
   SPECDEC__CONVERSATION_PRESENTATIONS. */
static specdec__template_value specdec__conversation_message_value(specdec__template *t,
                                                                   const specdec_chat_message *message,
                                                                   int presentation)
{
    const char *known = specdec__template_constant_of_role(message->role, strlen(message->role));
    specdec__dict m;

    memset(&m, 0, sizeof m);
    m.items = specdec__template_new_list(t, 12);
    specdec__conversation_add_dict_member(
        &m, "role",
        known ? specdec__template_string_value(known)
              : specdec__template_marked_string(t, message->role, strlen(message->role)));
    specdec__conversation_add_dict_member(&m, "content",
                                          message->content.bytes || presentation & SPECDEC__CONVERSATION_EMPTY_CONTENT
                                              ? specdec__conversation_string_value(t, message->content)
                                              : specdec__template_none_value());
    if (message->thoughts.bytes)
        specdec__conversation_add_dict_member(&m, "reasoning_content",
                                              specdec__conversation_string_value(t, message->thoughts));
    if (message->call_count)
        specdec__conversation_add_dict_member(&m, "tool_calls",
                                              specdec__conversation_calls_value(t, message, presentation));
    if (message->call_id.bytes)
        specdec__conversation_add_dict_member(&m, "tool_call_id",
                                              specdec__conversation_string_value(t, message->call_id));
    if (message->name.bytes)
        specdec__conversation_add_dict_member(&m, "name", specdec__conversation_string_value(t, message->name));
    return specdec__template_sized_value(SPECDEC__TEMPLATE_DICT, m.items, m.items ? m.count : 0);
}

/* Defines the names of a chat template's input: the first `count` messages, tools, documents and other variables.
   presentation: see SPECDEC__CONVERSATION_PRESENTATIONS. */
static void specdec__conversation_define_template_names(specdec__template *t, const specdec_chat_input *input,
                                                        int count, int presentation)
{
    specdec__template_value *list = specdec__template_new_list(t, (size_t)count), arguments, tools;
    int i;

    for (i = 0; list && i < count && !t->failed; i++)
        list[i] = specdec__conversation_message_value(t, &input->messages[i], presentation);
    specdec__template_define_variable(t, specdec__template_string_value("messages"),
                                      specdec__template_list_value(list, list ? (size_t)count : 0));
    tools = specdec__template_none_value();
    if (input->tool_choice != SPECDEC_TOOLS_NONE)
        tools = specdec__template_read_json(t, specdec__conversation_text_bytes(input->tools));
    if (tools.kind == SPECDEC__TEMPLATE_LIST && !tools.size)
        tools = specdec__template_none_value();
    specdec__template_define_variable(t, specdec__template_string_value("tools"), tools);
    arguments = specdec__template_read_json(t, specdec__conversation_text_bytes(input->arguments));
    if (arguments.kind == SPECDEC__TEMPLATE_DICT)
        for (i = 0; i < (int)arguments.size; i++)
            specdec__template_define_variable(t, specdec__template_list_items(&arguments)[2 * i],
                                              specdec__template_list_items(&arguments)[2 * i + 1]);
}

/* Removes the text that the template wrote behind the content of the last message, so that the model continues that
   message, as Hugging Face's transformers does. Trailing white space that the template dropped stays dropped. */
static specdec_result specdec__conversation_cut_behind_content(specdec_text content, specdec__chat_text *out,
                                                               specdec_error *error)
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
        if (memcmp(out->text + at, text.data, text.size) == 0 && out->marks[at / 8] >> at % 8 & 1)
            found = at;
    if (found == SIZE_MAX)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                             "the model's chat template does not write the last message so that it can be continued");
    at = left.size <= out->needed - found && memcmp(out->text + found, left.data, left.size) == 0 ? left.size
                                                                                                  : text.size;
    out->needed = found + at;
    return SPECDEC_OK;
}

/* What rendering a conversation by a chat template needs: vocabulary, template, clock and memory. */
typedef struct specdec__conversation_work {
    const specdec__vocab *vocab; /* has the texts of the tokens that the template may write */
    specdec__bytes text;         /* text of the template */
    unsigned char *memory;       /* (memory_bytes) working memory, aligned for pointers */
    size_t memory_bytes;         /* bytes of memory */
    int64_t local_time;          /* local time in seconds since 1970, for strftime_now */
} specdec__conversation_work;

/* Renders a conversation by a chat template, with the beginning of the model's turn. Errors: ARGUMENT (the template
   refuses the conversation), CONTEXT, FORMAT, UNSUPPORTED. */
static SPECDEC__UNUSED SPECDEC__NOINLINE specdec_result
specdec__conversation_render(const specdec__conversation_work *w, const specdec_chat_input *input,
                             specdec__chat_text *out, specdec_error *error)
{
    const specdec_chat_message *last = &input->messages[input->count - 1];
    const int empty = input->continues && !specdec__conversation_text_bytes(last->content).size;
    const int open = input->continues && !empty, count = input->count - empty;
    const size_t used = (sizeof(specdec__template) + 7) & ~(size_t)7;
    specdec__template *t = (specdec__template *)(void *)w->memory;
    specdec_result result = SPECDEC_OK;
    int presentation;

    if (w->memory_bytes < used)
        return specdec__fail(error, SPECDEC_ERROR_CONTEXT, "the conversation is too long for this context");
    for (presentation = 0; presentation < SPECDEC__CONVERSATION_PRESENTATIONS; presentation++) {
        specdec__template_init(t, w->text, w->memory + used, w->memory_bytes - used, out->text, out->marks, out->size);
        t->local_time = w->local_time;
        specdec__chat_define_template_names(t, specdec__chat_token_text(w->vocab, w->vocab->bos),
                                            specdec__chat_token_text(w->vocab, w->vocab->eos), !open);
        specdec__conversation_define_template_names(t, input, count, presentation);
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
    return open ? specdec__conversation_cut_behind_content(last->content, out, error) : SPECDEC_OK;
}

/* ---- Finding out which marks the models of a template write. */

/* A question and a tool call that are given to a template, to see which row of specdec__call_table parses what the
   template writes for the call. */
static const char specdec__conversation_sample_question[] = "specdec-question",
                  specdec__conversation_sample_tool[] = "get_weather",
                  specdec__conversation_sample_arguments[] = "{\"city\":\"Par\\\"is\",\"days\":3}";

/* Returns the offset behind the last occurrence of a word in a text; 0: it does not occur. */
static size_t specdec__conversation_offset_behind_last_match(specdec__bytes text, const char *word)
{
    const size_t size = strlen(word);
    size_t at = text.size >= size ? text.size - size + 1 : 0;

    while (at-- > 0)
        if (memcmp(text.data + at, word, size) == 0)
            return at + size;
    return 0;
}

/* Does a splitter with this row of specdec__call_table find the sample call in a text, exactly once? */
static int specdec__conversation_row_parses_call(const specdec__calls *row, const char *text, size_t size)
{
    const char *want = specdec__conversation_sample_arguments, *section = SPECDEC__CALL_TEXT(row, SECTION_BEGIN);
    size_t named = 0, matched = 0, i;
    int good = 1, whole = 0;
    specdec_splitter s;
    specdec_part part;

    if (row->flags & SPECDEC__CALLS_BARE) {
        const size_t at = specdec__conversation_offset_behind_last_match(specdec__template_as_bytes(text, size),
                                                                         "{\"name\":");

        if (!at)
            return 0;
        text += at - 8;
        size -= at - 8;
    }
    if (section && !specdec__conversation_offset_behind_last_match(specdec__template_as_bytes(text, size), section))
        return 0;
    specdec__answer_begin_splitter(&s, row, NULL, 0);
    specdec__answer_push_bytes(&s, text, size);
    while (good && specdec__answer_next_part(&s, &part)) {
        for (i = 0; i < part.text.length && part.kind == SPECDEC_PART_NAME; i++, named++)
            good = good && named < sizeof specdec__conversation_sample_tool - 1 &&
                   part.text.bytes[i] == specdec__conversation_sample_tool[named];
        for (i = 0; i < part.text.length && part.kind == SPECDEC_PART_ARGUMENTS; i++)
            if (part.text.bytes[i] != ' ')
                good = good && want[matched] && part.text.bytes[i] == want[matched++];
        whole += part.kind == SPECDEC_PART_END;
        good = good && (part.call <= 0);
    }
    return good && whole == 1 && named == sizeof specdec__conversation_sample_tool - 1 && matched == strlen(want);
}

/* Does a text contain a mark? 0 for NULL. */
static int specdec__conversation_contains_mark(specdec__bytes text, const char *mark)
{
    return mark && specdec__conversation_offset_behind_last_match(text, mark) > 0;
}

/* Returns the first row of specdec__call_table whose marks occur in the template's text, for templates that write no
   calls; else a row whose mark is a token of the vocabulary; NULL: no row fits. */
static const specdec__calls *specdec__conversation_find_call_row(specdec__bytes text, const specdec__vocab *v)
{
    specdec__cursor c = specdec__cursor_begin_at_start(v->texts, v->texts_size);
    size_t k;
    uint32_t id;

    for (k = 0; k < SPECDEC__COUNT(specdec__call_table); k++)
        if (specdec__call_table[k].form != SPECDEC__CALLS_CHANNEL &&
            specdec__conversation_contains_mark(text, SPECDEC__CALL_TEXT(&specdec__call_table[k], BEGIN)))
            return &specdec__call_table[k];
    for (id = 0; id < v->count; id++) {
        const specdec__bytes token = specdec__cursor_read_string(&c);

        for (k = 0; k < SPECDEC__COUNT(specdec__call_table) && token.size > 4; k++)
            if ((specdec__call_table[k].form == SPECDEC__CALLS_JSON ||
                 specdec__call_table[k].form == SPECDEC__CALLS_PYTHON) &&
                specdec__bytes_equal_string(token, SPECDEC__CALL_TEXT(&specdec__call_table[k], BEGIN)))
                return &specdec__call_table[k];
    }
    return NULL;
}

/* Finds how models with this chat template write tool calls and thoughts, from the text that the template writes for a
   sample call. The result is in w->found. */
static SPECDEC__UNUSED SPECDEC__NOINLINE void
specdec__conversation_find_call_format(specdec__chat_work *w, specdec__bytes text, const specdec__vocab *v)
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
    int presentation, writes = 0;

    memset(messages, 0, sizeof messages);
    memset(&call, 0, sizeof call);
    memset(&input, 0, sizeof input);
    messages[0].role = "user";
    messages[0].content.bytes = specdec__conversation_sample_question;
    messages[0].content.length = SPECDEC_WHOLE_STRING;
    messages[1].role = "assistant";
    messages[1].calls = &call;
    messages[1].call_count = 1;
    call.id.bytes = "call00001";
    call.name.bytes = specdec__conversation_sample_tool;
    call.arguments.bytes = specdec__conversation_sample_arguments;
    call.id.length = call.name.length = call.arguments.length = SPECDEC_WHOLE_STRING;
    input.messages = messages;
    input.count = 2;
    input.tools.bytes = tools;
    input.tools.length = sizeof tools - 1;
    for (presentation = 0; presentation < SPECDEC__CONVERSATION_PRESENTATIONS && !chat->calls; presentation++) {
        specdec__template_init(&w->running_template, text, w->memory, w->memory_bytes, w->output, w->output_marks,
                               sizeof w->output);
        w->running_template.local_time = 0;
        specdec__chat_define_template_names(&w->running_template, specdec__chat_token_text(v, v->bos),
                                            specdec__chat_token_text(v, v->eos), 0);
        specdec__conversation_define_template_names(&w->running_template, &input, 2, presentation);
        specdec__template_render(&w->running_template);
        written = specdec__template_as_bytes(w->output, w->running_template.output_bytes);
        from = w->running_template.failed
                   ? 0
                   : specdec__conversation_offset_behind_last_match(written, specdec__conversation_sample_question);
        writes |= from &&
                  specdec__conversation_offset_behind_last_match(written, specdec__conversation_sample_tool) > from;
        for (i = 0; from && !chat->calls && i < SPECDEC__COUNT(specdec__call_table); i++)
            if (specdec__conversation_row_parses_call(&specdec__call_table[i], w->output + from, written.size - from))
                chat->calls = &specdec__call_table[i];
    }
    if (!chat->calls && !writes && specdec__conversation_contains_mark(text, "tool"))
        chat->calls = specdec__conversation_find_call_row(text, v);
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
        const specdec__bytes content = specdec__conversation_text_bytes(m->content);

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
