/* =====================================================================================================================
 * >>text/chat: chat formats: recognised by name or template, and rendered.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../model/gguf.h"
#include "vocabulary.h"
#include "tokenize.h"
#include "answer.h"
#include "template.h"
#include "template_method.h"
#include "template_run.h"

SPECDEC__FOR_SIZE

/* Number of roles of messages (system, user, assistant); most special tokens that one chat format may require. */
enum { SPECDEC__CHAT_ROLES = SPECDEC_ASSISTANT + 1, SPECDEC__CHAT_TOKENS = 5 };

/* Texts of a row of specdec__chat_formats; without one of them, it is "" unless another text takes its place. */
#define SPECDEC__CHAT_TOKEN(text) SPECDEC__ROW_TEXT("t", text)   /* must be one token of the vocabulary; several */
#define SPECDEC__CHAT_OPENING(text) SPECDEC__ROW_TEXT("o", text) /* in front of a system message, or of a user message
                                                                    without one */
#define SPECDEC__CHAT_LATER_OPENING(text) SPECDEC__ROW_TEXT("l", text) /* in front of all but the first of these, in the
                                                                          place of OPENING */
#define SPECDEC__CHAT_BEFORE_SYSTEM(text) SPECDEC__ROW_TEXT("a", text) /* in front of a message of a role; letters by
                                                                          specdec_role */
#define SPECDEC__CHAT_BEFORE_USER(text) SPECDEC__ROW_TEXT("b", text)
#define SPECDEC__CHAT_BEFORE_ASSISTANT(text) SPECDEC__ROW_TEXT("c", text)
#define SPECDEC__CHAT_AFTER(text) SPECDEC__ROW_TEXT("m", text)         /* behind a message of any role */
#define SPECDEC__CHAT_AFTER_SYSTEM(text) SPECDEC__ROW_TEXT("x", text)  /* behind a message of a role, in the place of
                                                                          AFTER; letters by specdec_role */
#define SPECDEC__CHAT_AFTER_USER(text) SPECDEC__ROW_TEXT("y", text)
#define SPECDEC__CHAT_AFTER_ASSISTANT(text) SPECDEC__ROW_TEXT("z", text)
#define SPECDEC__CHAT_TURN(text) SPECDEC__ROW_TEXT("g", text) /* begins the model's turn, in the place of
                                                                 BEFORE_ASSISTANT */

/* A chat format: how the messages of a conversation are written as text. Special tokens are spelled out, so the text is
   tokenized with PARSE_SPECIAL. The beginning-of-text token is not a part of it. */
typedef struct specdec__chat_format {
    const char *name;    /* name of the chat format, such as "chatml" */
    int trim_roles;      /* bit 1 << role: white space around messages of the role is dropped */
    int end_token_roles; /* bit 1 << role: the end-of-text token stands between a message and the text behind it */
    const char *texts;   /* texts around messages of each role, and required tokens: SPECDEC__CHAT_TOKEN to _TURN */
} specdec__chat_format;

/* Values of trim_roles and end_token_roles of a specdec__chat_format: sets of roles, a bit for each. TRIM_END_ONLY: of
   user messages behind system messages, only the white space at the end is dropped. */
enum {
    SPECDEC__CHAT_ASSISTANT_ONLY = 1 << SPECDEC_ASSISTANT,
    SPECDEC__CHAT_ALL_ROLES = (1 << SPECDEC__CHAT_ROLES) - 1,
    SPECDEC__CHAT_TRIM_END_ONLY = 1 << SPECDEC__CHAT_ROLES
};

/* Texts of DeepSeek's tokens in front of user and assistant messages, with full-width bars. */
#define SPECDEC__DEEPSEEK_USER      "<\xef\xbd\x9c" "User\xef\xbd\x9c>"
#define SPECDEC__DEEPSEEK_ASSISTANT "<\xef\xbd\x9c" "Assistant\xef\xbd\x9c>"

/* All chat formats. A name may have several rows: a template gets the first row that writes the same text as the
   template; a name without a template gets the first row. "llama2": with "<s>" in front of every question, or of the
   first one. "mistral": formats older than v3, with or without spaces around answers; the tokenizer adds the space in
   front of "[INST]". "deepseek-r1": with "<think>" in the prompt, or written by the model. Marks that are no tokens (of
   zephyr, tulu, llama2) are tokenized like any text. */
static const specdec__chat_format specdec__chat_formats[] = {
    {"phi4-mini", 0, 0,
     SPECDEC__CHAT_TOKEN("<|system|>") SPECDEC__CHAT_TOKEN("<|user|>") SPECDEC__CHAT_TOKEN("<|assistant|>")
     SPECDEC__CHAT_TOKEN("<|end|>") SPECDEC__CHAT_BEFORE_SYSTEM("<|system|>") SPECDEC__CHAT_BEFORE_USER("<|user|>")
     SPECDEC__CHAT_BEFORE_ASSISTANT("<|assistant|>") SPECDEC__CHAT_AFTER("<|end|>")},
    {"phi3", 0, 0,
     SPECDEC__CHAT_TOKEN("<|system|>") SPECDEC__CHAT_TOKEN("<|user|>") SPECDEC__CHAT_TOKEN("<|assistant|>")
     SPECDEC__CHAT_TOKEN("<|end|>") SPECDEC__CHAT_BEFORE_SYSTEM("<|system|>\n") SPECDEC__CHAT_BEFORE_USER("<|user|>\n")
     SPECDEC__CHAT_BEFORE_ASSISTANT("<|assistant|>\n") SPECDEC__CHAT_AFTER("<|end|>\n")},
    {"tulu", 0, SPECDEC__CHAT_ASSISTANT_ONLY,
     SPECDEC__CHAT_BEFORE_SYSTEM("<|system|>\n") SPECDEC__CHAT_BEFORE_USER("<|user|>\n")
     SPECDEC__CHAT_BEFORE_ASSISTANT("<|assistant|>\n") SPECDEC__CHAT_AFTER("\n")},
    {"zephyr", 0, SPECDEC__CHAT_ALL_ROLES,
     SPECDEC__CHAT_BEFORE_SYSTEM("<|system|>\n") SPECDEC__CHAT_BEFORE_USER("<|user|>\n")
     SPECDEC__CHAT_BEFORE_ASSISTANT("<|assistant|>\n") SPECDEC__CHAT_AFTER("\n")},
    {"phi4", 0, 0,
     SPECDEC__CHAT_TOKEN("<|im_start|>") SPECDEC__CHAT_TOKEN("<|im_sep|>") SPECDEC__CHAT_TOKEN("<|im_end|>")
     SPECDEC__CHAT_BEFORE_SYSTEM("<|im_start|>system<|im_sep|>") SPECDEC__CHAT_BEFORE_USER("<|im_start|>user<|im_sep|>")
     SPECDEC__CHAT_BEFORE_ASSISTANT("<|im_start|>assistant<|im_sep|>") SPECDEC__CHAT_AFTER("<|im_end|>")},
    {"chatml-think", 0, 0,
     SPECDEC__CHAT_TOKEN("<|im_start|>") SPECDEC__CHAT_TOKEN("<|im_end|>")
     SPECDEC__CHAT_BEFORE_SYSTEM("<|im_start|>system\n") SPECDEC__CHAT_BEFORE_USER("<|im_start|>user\n")
     SPECDEC__CHAT_BEFORE_ASSISTANT("<|im_start|>assistant\n") SPECDEC__CHAT_AFTER("<|im_end|>\n")
     SPECDEC__CHAT_TURN("<|im_start|>assistant\n<think>\n")},
    {"chatml", 0, 0,
     SPECDEC__CHAT_TOKEN("<|im_start|>") SPECDEC__CHAT_TOKEN("<|im_end|>")
     SPECDEC__CHAT_BEFORE_SYSTEM("<|im_start|>system\n") SPECDEC__CHAT_BEFORE_USER("<|im_start|>user\n")
     SPECDEC__CHAT_BEFORE_ASSISTANT("<|im_start|>assistant\n") SPECDEC__CHAT_AFTER("<|im_end|>\n")},
    {"llama3", SPECDEC__CHAT_ALL_ROLES, 0,
     SPECDEC__CHAT_TOKEN("<|start_header_id|>") SPECDEC__CHAT_TOKEN("<|end_header_id|>")
     SPECDEC__CHAT_TOKEN("<|eot_id|>") SPECDEC__CHAT_BEFORE_SYSTEM("<|start_header_id|>system<|end_header_id|>\n\n")
     SPECDEC__CHAT_BEFORE_USER("<|start_header_id|>user<|end_header_id|>\n\n")
     SPECDEC__CHAT_BEFORE_ASSISTANT("<|start_header_id|>assistant<|end_header_id|>\n\n")
     SPECDEC__CHAT_AFTER("<|eot_id|>")},
    {"granite", 0, 0,
     SPECDEC__CHAT_TOKEN("<|start_of_role|>") SPECDEC__CHAT_TOKEN("<|end_of_role|>")
     SPECDEC__CHAT_TOKEN("<|end_of_text|>") SPECDEC__CHAT_BEFORE_SYSTEM("<|start_of_role|>system<|end_of_role|>")
     SPECDEC__CHAT_BEFORE_USER("<|start_of_role|>user<|end_of_role|>")
     SPECDEC__CHAT_BEFORE_ASSISTANT("<|start_of_role|>assistant<|end_of_role|>")
     SPECDEC__CHAT_AFTER("<|end_of_text|>\n")},
    {"deepseek-r1", 0, SPECDEC__CHAT_ASSISTANT_ONLY,
     SPECDEC__CHAT_TOKEN(SPECDEC__DEEPSEEK_USER) SPECDEC__CHAT_TOKEN(SPECDEC__DEEPSEEK_ASSISTANT)
     SPECDEC__CHAT_BEFORE_USER(SPECDEC__DEEPSEEK_USER) SPECDEC__CHAT_BEFORE_ASSISTANT(SPECDEC__DEEPSEEK_ASSISTANT)
     SPECDEC__CHAT_TURN(SPECDEC__DEEPSEEK_ASSISTANT "<think>\n")},
    {"deepseek-r1", 0, SPECDEC__CHAT_ASSISTANT_ONLY,
     SPECDEC__CHAT_TOKEN(SPECDEC__DEEPSEEK_USER) SPECDEC__CHAT_TOKEN(SPECDEC__DEEPSEEK_ASSISTANT)
     SPECDEC__CHAT_BEFORE_USER(SPECDEC__DEEPSEEK_USER) SPECDEC__CHAT_BEFORE_ASSISTANT(SPECDEC__DEEPSEEK_ASSISTANT)},
    {"mistral-v7", 0, 0,
     SPECDEC__CHAT_TOKEN("[SYSTEM_PROMPT]") SPECDEC__CHAT_TOKEN("[/SYSTEM_PROMPT]") SPECDEC__CHAT_TOKEN("[INST]")
     SPECDEC__CHAT_TOKEN("[/INST]") SPECDEC__CHAT_TOKEN("</s>") SPECDEC__CHAT_BEFORE_SYSTEM("[SYSTEM_PROMPT] ")
     SPECDEC__CHAT_BEFORE_USER("[INST] ") SPECDEC__CHAT_BEFORE_ASSISTANT(" ")
     SPECDEC__CHAT_AFTER_SYSTEM("[/SYSTEM_PROMPT]") SPECDEC__CHAT_AFTER_USER("[/INST]")
     SPECDEC__CHAT_AFTER_ASSISTANT("</s>") SPECDEC__CHAT_TURN("")},
    {"mistral-v3", SPECDEC__CHAT_ASSISTANT_ONLY, 0,
     SPECDEC__CHAT_TOKEN("[INST]") SPECDEC__CHAT_TOKEN("[/INST]") SPECDEC__CHAT_TOKEN("</s>")
     SPECDEC__CHAT_OPENING("[INST] ") SPECDEC__CHAT_BEFORE_ASSISTANT(" ") SPECDEC__CHAT_AFTER_SYSTEM("\n\n")
     SPECDEC__CHAT_AFTER_USER("[/INST]") SPECDEC__CHAT_AFTER_ASSISTANT("</s>") SPECDEC__CHAT_TURN("")},
    {"mistral", 0, 0,
     SPECDEC__CHAT_TOKEN("</s>") SPECDEC__CHAT_OPENING("[INST] ") SPECDEC__CHAT_AFTER_SYSTEM("\n\n")
     SPECDEC__CHAT_AFTER_USER(" [/INST]") SPECDEC__CHAT_AFTER_ASSISTANT("</s>")},
    {"mistral", 0, 0,
     SPECDEC__CHAT_TOKEN("</s>") SPECDEC__CHAT_OPENING("[INST] ") SPECDEC__CHAT_BEFORE_ASSISTANT(" ")
     SPECDEC__CHAT_AFTER_SYSTEM("\n\n") SPECDEC__CHAT_AFTER_USER(" [/INST]") SPECDEC__CHAT_AFTER_ASSISTANT("</s>")
     SPECDEC__CHAT_TURN("")},
    {"mistral", 0, 0,
     SPECDEC__CHAT_TOKEN("</s>") SPECDEC__CHAT_OPENING("[INST] ") SPECDEC__CHAT_AFTER_SYSTEM("\n\n")
     SPECDEC__CHAT_AFTER_USER(" [/INST]") SPECDEC__CHAT_AFTER_ASSISTANT("</s> ")},
    {"mistral", 0, 0,
     SPECDEC__CHAT_TOKEN("</s>") SPECDEC__CHAT_OPENING("[INST] ") SPECDEC__CHAT_BEFORE_ASSISTANT(" ")
     SPECDEC__CHAT_AFTER_SYSTEM("\n\n") SPECDEC__CHAT_AFTER_USER(" [/INST]") SPECDEC__CHAT_AFTER_ASSISTANT(" </s>")
     SPECDEC__CHAT_TURN("")},
    {"llama2", SPECDEC__CHAT_ALL_ROLES, 0,
     SPECDEC__CHAT_TOKEN("<s>") SPECDEC__CHAT_TOKEN("</s>") SPECDEC__CHAT_OPENING("[INST] ")
     SPECDEC__CHAT_LATER_OPENING("<s>[INST] ") SPECDEC__CHAT_BEFORE_SYSTEM("<<SYS>>\n")
     SPECDEC__CHAT_BEFORE_ASSISTANT(" ") SPECDEC__CHAT_AFTER_SYSTEM("\n<</SYS>>\n\n")
     SPECDEC__CHAT_AFTER_USER(" [/INST]") SPECDEC__CHAT_AFTER_ASSISTANT(" </s>") SPECDEC__CHAT_TURN("")},
    {"llama2", SPECDEC__CHAT_ALL_ROLES, 0,
     SPECDEC__CHAT_TOKEN("<s>") SPECDEC__CHAT_TOKEN("</s>") SPECDEC__CHAT_OPENING("[INST] ")
     SPECDEC__CHAT_BEFORE_SYSTEM("<<SYS>>\n") SPECDEC__CHAT_BEFORE_ASSISTANT(" ")
     SPECDEC__CHAT_AFTER_SYSTEM("\n<</SYS>>\n\n") SPECDEC__CHAT_AFTER_USER(" [/INST]")
     SPECDEC__CHAT_AFTER_ASSISTANT(" </s>") SPECDEC__CHAT_TURN("")},
    {"gemma", SPECDEC__CHAT_ALL_ROLES, 0,
     SPECDEC__CHAT_TOKEN("<start_of_turn>") SPECDEC__CHAT_TOKEN("<end_of_turn>")
     SPECDEC__CHAT_OPENING("<start_of_turn>user\n") SPECDEC__CHAT_BEFORE_ASSISTANT("<start_of_turn>model\n")
     SPECDEC__CHAT_AFTER_SYSTEM("\n\n") SPECDEC__CHAT_AFTER_USER("<end_of_turn>\n")
     SPECDEC__CHAT_AFTER_ASSISTANT("<end_of_turn>\n")}};

/* How conversations with a model are written: by a chat format, or by the model's chat template; with properties of the
   template that were found by running it. */
typedef struct specdec__chat {
    const specdec__chat_format *format; /* the chat format by which messages are written; NULL: none is known */
    int trim_roles;                     /* as in specdec__chat_format; the template may differ from the format here */
    int writes_bos;                     /* 1: the beginning-of-text token is written, whatever add_bos_token says */
    int runs_template;                  /* 1: no format is known; the template is run for each conversation */
    int refuses_system;                 /* 1: system messages are refused: no format writes them as the template does */
    const specdec__calls *calls;        /* how tool calls are written; NULL: unknown */
    const specdec__thoughts *thoughts;  /* how thoughts are written; NULL: the model writes none */
    specdec__bytes default_system;      /* system message of conversations without one; data NULL: none */
    specdec__bytes system_prefix;       /* text that the template puts in front of the first system message */
    const char *failed;                 /* why the template matches no format; NULL: it matches one, or is absent */
    specdec__bytes culprit;             /* the part of the template that caused the failure */
} specdec__chat;

/* Sizes of buffers for recognising a chat template, in bytes. */
enum {
    SPECDEC__CHAT_OUTPUT_BYTES = 8192, /* bytes that a template may write while it is compared with formats */
    SPECDEC__CHAT_KEPT_BYTES = 4096    /* bytes of text that are copied from what the template writes */
};

/* The result of recognising a chat template, with the texts that its specdec__chat points to. */
typedef struct specdec__chat_recognition {
    specdec__chat chat;                       /* how conversations are written */
    char kept_text[SPECDEC__CHAT_KEPT_BYTES]; /* texts copied from what the template wrote, such as a system message */
} specdec__chat_recognition;

/* Working memory for recognising a chat template. */
typedef struct specdec__chat_work {
    specdec__template running_template;        /* the template that is compiled and run */
    char output[SPECDEC__CHAT_OUTPUT_BYTES];   /* text that the template writes */
    char expected[SPECDEC__CHAT_OUTPUT_BYTES]; /* text that a chat format writes, to be compared with output */
    unsigned char output_marks[SPECDEC__CHAT_OUTPUT_BYTES / 8]; /* a bit for each byte of output, 1: from a message */
    specdec__chat_recognition *found;                           /* receives how the template writes */
    void *memory;                                               /* (memory_bytes) for running the template */
    size_t memory_bytes;                                        /* bytes of memory */
    int64_t local_time;                                         /* local time, seconds since 1970, for strftime_now */
} specdec__chat_work;

/* A rendered conversation: its text, and which bytes of the text come from messages. */
typedef struct specdec__chat_text {
    char *text;           /* (size) bytes of the rendered conversation */
    unsigned char *marks; /* a bit for each byte of text, 1: it comes from a message; NULL: not recorded */
    size_t size, needed;  /* bytes that text has room for; bytes of the whole conversation, which may be more */
} specdec__chat_text;

/* A text of a format; in its place the text of another column, or "". */
static const char *specdec__chat_format_text_or_other(const specdec__chat_format *format, char column, char otherwise)
{
    const char *text = specdec__row_text_of_column(format->texts, column, 0);

    text = text ? text : specdec__row_text_of_column(format->texts, otherwise, 0);
    return text ? text : "";
}

/* The text in front of a system message, or of a user message without one; begun: 1: it is not the first. */
static const char *specdec__chat_opening_text(const specdec__chat_format *format, int begun)
{
    const char opening = SPECDEC__ROW_COLUMN(SPECDEC__CHAT_OPENING);

    return specdec__chat_format_text_or_other(
        format, begun ? SPECDEC__ROW_COLUMN(SPECDEC__CHAT_LATER_OPENING) : opening, opening);
}

/* The text in front of a message of a role. */
static const char *specdec__chat_text_before_message(const specdec__chat_format *format, int role)
{
    const char column = (char)(SPECDEC__ROW_COLUMN(SPECDEC__CHAT_BEFORE_SYSTEM) + role);

    return specdec__chat_format_text_or_other(format, column, column);
}

/* The text behind a message of a role. */
static const char *specdec__chat_text_behind_message(const specdec__chat_format *format, int role)
{
    return specdec__chat_format_text_or_other(format, (char)(SPECDEC__ROW_COLUMN(SPECDEC__CHAT_AFTER_SYSTEM) + role),
                                              SPECDEC__ROW_COLUMN(SPECDEC__CHAT_AFTER));
}

/* Bytes in front of the first system message. */
static size_t specdec__chat_offset_of_system_text(const specdec__chat_format *format)
{
    return strlen(specdec__chat_opening_text(format, 0)) +
           strlen(specdec__chat_text_before_message(format, SPECDEC_SYSTEM));
}

/* Text number i that must be one token of the vocabulary; NULL: there are no more. */
static const char *specdec__chat_required_token_text(const specdec__chat_format *format, int i)
{
    return specdec__row_text_of_column(format->texts, SPECDEC__ROW_COLUMN(SPECDEC__CHAT_TOKEN), i);
}

/* Returns the first chat format with a name; NULL: no format has it. */
static SPECDEC__UNUSED const specdec__chat_format *specdec__chat_find_format_by_name(const char *name)
{
    size_t i;

    for (i = 0; SPECDEC__HAS_CHAT_FORMATS && i < SPECDEC__COUNT(specdec__chat_formats); i++)
        if (strcmp(specdec__chat_formats[i].name, name) == 0)
            return &specdec__chat_formats[i];
    return NULL;
}

/* Returns the text of the first token that a chat format requires and a vocabulary lacks; NULL: none is missing. The
   vocabulary needs no index. */
static SPECDEC__UNUSED const char *specdec__chat_find_missing_token_text(const specdec__chat_format *format,
                                                                         const specdec__vocab *v)
{
    specdec__cursor c = specdec__cursor_begin_at_start(v->texts, v->texts_size);
    const char *tokens[SPECDEC__CHAT_TOKENS];
    int missing = 0, i;
    uint32_t id;

    for (i = 0; i < SPECDEC__CHAT_TOKENS; i++) {
        tokens[i] = specdec__chat_required_token_text(format, i);
        missing |= tokens[i] ? 1 << i : 0;
    }
    for (id = 0; id < v->count && missing; id++) {
        const specdec__bytes text = specdec__cursor_read_string(&c);

        for (i = 0; i < SPECDEC__CHAT_TOKENS; i++)
            if (missing >> i & 1 && specdec__bytes_equal_string(text, tokens[i]))
                missing &= ~(1 << i);
    }
    for (i = 0; i < SPECDEC__CHAT_TOKENS; i++)
        if (missing >> i & 1)
            return tokens[i];
    return NULL;
}

/* Appends `length` bytes of text (SPECDEC_WHOLE_STRING: up to its terminating zero) to a rendered conversation, as far
   as there is room; all of them are counted in out->needed. plain = 1: the bytes come from a message. */
static void specdec__chat_append_text(specdec__chat_text *out, const char *text, size_t length, int plain)
{
    size_t i;

    if (length == SPECDEC_WHOLE_STRING)
        length = strlen(text);
    if (length && out->needed <= out->size && length <= out->size - out->needed) {
        memcpy(out->text + out->needed, text, length);
        for (i = out->needed; out->marks && i < out->needed + length; i++)
            out->marks[i / 8] = (unsigned char)((out->marks[i / 8] & ~(1u << i % 8)) | (plain ? 1u << i % 8 : 0));
    }
    out->needed = specdec__size_add(out->needed, length);
}

/* Returns a message's text without white space at its ends. ends: bit 1: at the left end, bit 2: at the right end. */
static specdec__bytes specdec__chat_trim_message(const specdec_message *message, int ends)
{
    const char *text = message->text;
    size_t length = message->length == SPECDEC_WHOLE_STRING ? strlen(text) : message->length;
    specdec__bytes out;

    while (ends & 2 && length && memchr(" \t\r\n\v\f", text[length - 1], 6))
        length--;
    for (; ends & 1 && length && memchr(" \t\r\n\v\f", text[0], 6); length--)
        text++;
    out.data = (const unsigned char *)text;
    out.size = length;
    return out;
}

/* Appends the text that a format writes behind a message of a role. end: text of the vocabulary's end-of-text token. */
static void specdec__chat_append_message_end(const specdec__chat_format *format, int role, specdec__bytes end,
                                             specdec__chat_text *out)
{
    if (format->end_token_roles >> role & 1)
        specdec__chat_append_text(out, (const char *)end.data, end.size, 0);
    specdec__chat_append_text(out, specdec__chat_text_behind_message(format, role), SPECDEC_WHOLE_STRING, 0);
}

/* Appends a message with a valid role to a rendered conversation. end: text of the end-of-text token; begun: 1: text
   precedes the message; previous: role of the message before it. */
static void specdec__chat_append_message(const specdec__chat *chat, specdec__bytes end, int begun, int previous,
                                         const specdec_message *message, specdec__chat_text *out)
{
    const specdec__chat_format *format = chat->format;
    const int role = (int)message->role, behind = role == SPECDEC_USER && previous == SPECDEC_SYSTEM;
    const int half = behind && chat->trim_roles & SPECDEC__CHAT_TRIM_END_ONLY;
    const specdec__bytes text = specdec__chat_trim_message(message, half ? 2 : chat->trim_roles >> role & 1 ? 3 : 0);

    if (role != SPECDEC_ASSISTANT && previous != SPECDEC_SYSTEM)
        specdec__chat_append_text(out, specdec__chat_opening_text(format, begun), SPECDEC_WHOLE_STRING, 0);
    specdec__chat_append_text(out, specdec__chat_text_before_message(format, role), SPECDEC_WHOLE_STRING, 0);
    if (role == SPECDEC_SYSTEM && !begun)
        specdec__chat_append_text(out, (const char *)chat->system_prefix.data, chat->system_prefix.size, 0);
    specdec__chat_append_text(out, (const char *)text.data, text.size, !message->special);
    specdec__chat_append_message_end(format, role, end, out);
}

/* Renders messages in the model's chat format, then the beginning of the model's turn. begun: 1: the conversation
   already has messages. end: text of the end-of-text token. Writes no terminating zero. Errors: ARGUMENT; BUFFER,
   without an error text, when out->needed is above out->size. */
static SPECDEC__UNUSED specdec_result specdec__chat_render(const specdec__chat *chat, specdec__bytes end, int begun,
                                                           const specdec_message *messages, int count,
                                                           specdec__chat_text *out, specdec_error *error)
{
    int i, previous = SPECDEC_ASSISTANT;
    specdec_message own;

    for (i = 0; i < count; i++)
        if ((int)messages[i].role < 0 || (int)messages[i].role >= SPECDEC__CHAT_ROLES ||
            (!messages[i].text && messages[i].length))
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "message %d has an unknown role, or no text", i);
        else if (chat->refuses_system && messages[i].role == SPECDEC_SYSTEM)
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT,
                                 "message %d: the model's template writes system messages in a way of its own", i);
    if (!begun && count && messages[0].role != SPECDEC_SYSTEM && chat->default_system.data) {
        memset(&own, 0, sizeof own);
        own.text = (const char *)chat->default_system.data;
        own.length = chat->default_system.size;
        own.special = 1;
        specdec__chat_append_message(chat, end, 0, previous, &own, out);
        previous = SPECDEC_SYSTEM;
        begun = 1;
    }
    for (i = 0; i < count; i++) {
        specdec__chat_append_message(chat, end, begun, previous, &messages[i], out);
        begun |= messages[i].role != SPECDEC_ASSISTANT;
        previous = (int)messages[i].role;
    }
    specdec__chat_append_text(out,
                              specdec__chat_format_text_or_other(chat->format, SPECDEC__ROW_COLUMN(SPECDEC__CHAT_TURN),
                                                                 SPECDEC__ROW_COLUMN(SPECDEC__CHAT_BEFORE_ASSISTANT)),
                              SPECDEC_WHOLE_STRING, 0);
    return out->needed > out->size ? SPECDEC_ERROR_BUFFER : SPECDEC_OK;
}

/* Removes the white space at the beginning of a rendered conversation. */
static SPECDEC__UNUSED void specdec__chat_drop_leading_space(specdec__chat_text *out)
{
    size_t drop = 0, i;

    while (drop < out->needed && memchr(" \t\r\n\v\f", out->text[drop], 6))
        drop++;
    out->needed -= drop;
    for (i = 0; i < out->needed; i++) {
        const unsigned plain = (unsigned)out->marks[(i + drop) / 8] >> (i + drop) % 8 & 1u;

        out->text[i] = out->text[i + drop];
        out->marks[i / 8] = (unsigned char)((out->marks[i / 8] & ~(1u << i % 8)) | plain << i % 8);
    }
}

/* Returns the text of a token of the vocabulary; empty for id -1. */
static specdec__bytes specdec__chat_token_text(const specdec__vocab *v, int32_t id)
{
    return id < 0 ? specdec__template_as_bytes("", 0) : specdec__vocab_token_text(v, (uint32_t)id);
}

/* Does a text begin with the text of a token? */
static int specdec__chat_text_begins_with_token(specdec__bytes text, specdec__bytes token)
{
    return token.size && text.size >= token.size && memcmp(text.data, token.data, token.size) == 0;
}

/* Returns the flags, SPECDEC_TOKENIZE_..., for tokenizing a rendered conversation. begun: 1: tokens precede it. The
   beginning-of-text token is written once, where the template or the tokenizer asks for it. */
static SPECDEC__UNUSED int specdec__chat_tokenize_flags(const specdec__chat *chat, const specdec__vocab *v,
                                                        const specdec__chat_text *out, int begun)
{
    const specdec__bytes text = specdec__template_as_bytes(out->text, out->needed);

    if (begun)
        return SPECDEC_TOKENIZE_SPECIAL;
    if (specdec__chat_text_begins_with_token(text, specdec__chat_token_text(v, v->bos)) && !(out->marks[0] & 1))
        return (int)SPECDEC_TOKENIZE_SPECIAL | (int)SPECDEC__TOKENIZE_NO_BOS;
    return SPECDEC_TOKENIZE_SPECIAL | (chat->writes_bos ? (int)SPECDEC__TOKENIZE_ADD_BOS : 0);
}

/* ---- Recognising a chat template: the text that it writes is compared with the texts of all chat formats. */

/* Does a chat format write, for `count` messages, the same text as the template has written? */
static int specdec__chat_format_matches_template(specdec__chat_work *w, const specdec__chat *chat, specdec__bytes end,
                                                 specdec__bytes written, const specdec_message *messages, int count)
{
    specdec__chat_text out;

    memset(&out, 0, sizeof out);
    out.text = w->expected;
    out.size = sizeof w->expected;
    return specdec__chat_render(chat, end, 0, messages, count, &out, NULL) == SPECDEC_OK &&
           out.needed == written.size && memcmp(w->expected, written.data, written.size) == 0;
}

/* Returns messages as a value for a template: a list of dicts with role and content. Bytes of message texts are marked
   as such, unless the caller allows the message to spell control tokens. */
static specdec__template_value specdec__chat_messages_value(specdec__template *t, const specdec_message *messages,
                                                            int count)
{
    static const char *const roles[] = {"system", "user", "assistant"};
    specdec__template_value *list = specdec__template_new_list(t, (size_t)count), *members;
    int i;

    for (i = 0; list && i < count && !t->failed; i++) {
        const char *text = messages[i].text ? messages[i].text : "";
        const size_t size = messages[i].length == SPECDEC_WHOLE_STRING ? strlen(text) : messages[i].length;

        members = specdec__template_new_list(t, 4);
        if (!members)
            break;
        members[0] = specdec__template_string_value("role");
        members[1] = specdec__template_string_value(roles[messages[i].role]);
        members[2] = specdec__template_string_value("content");
        members[3] = messages[i].special ? specdec__template_sized_value(SPECDEC__TEMPLATE_STRING, text, size)
                                         : specdec__template_marked_string(t, text, size);
        list[i] = specdec__template_sized_value(SPECDEC__TEMPLATE_DICT, members, 2);
    }
    return specdec__template_list_value(list, (size_t)count);
}

/* Defines the names that every chat template may use: bos_token, eos_token, add_generation_prompt and more. */
static void specdec__chat_define_template_names(specdec__template *t, specdec__bytes bos, specdec__bytes eos,
                                                int generate)
{
    specdec__template_define_variable(t, specdec__template_string_value("bos_token"),
                                      specdec__template_sized_value(SPECDEC__TEMPLATE_STRING, bos.data, bos.size));
    specdec__template_define_variable(t, specdec__template_string_value("eos_token"),
                                      specdec__template_sized_value(SPECDEC__TEMPLATE_STRING, eos.data, eos.size));
    specdec__template_define_variable(t, specdec__template_string_value("add_generation_prompt"),
                                      specdec__template_bool_value(generate));
}

/* Compiles and runs a chat template for `count` messages; the text that it writes is in w->output. */
static void specdec__chat_run_template(specdec__chat_work *w, specdec__bytes text, specdec__bytes bos,
                                       specdec__bytes eos, const specdec_message *messages, int count)
{
    specdec__template_init(&w->running_template, text, w->memory, w->memory_bytes, w->output, w->output_marks,
                           sizeof w->output);
    w->running_template.local_time = w->local_time;
    specdec__chat_define_template_names(&w->running_template, bos, eos, 1);
    specdec__template_define_variable(&w->running_template, specdec__template_string_value("tools"),
                                      specdec__template_none_value());
    specdec__template_define_variable(&w->running_template, specdec__template_string_value("messages"),
                                      specdec__chat_messages_value(&w->running_template, messages, count));
    specdec__template_render(&w->running_template);
}

/* Returns the text that the template writes for messages, without the beginning-of-text token if chat->writes_bos is
   set; data NULL: the template failed. */
static specdec__bytes specdec__chat_template_output(specdec__chat_work *w, specdec__chat *chat, specdec__bytes text,
                                                    const specdec__vocab *v, const specdec_message *messages, int count)
{
    const specdec__bytes bos = specdec__chat_token_text(v, v->bos);
    specdec__bytes written = {NULL, 0};

    specdec__chat_run_template(w, text, bos, specdec__chat_token_text(v, v->eos), messages, count);
    chat->failed = w->running_template.failed;
    chat->culprit = w->running_template.culprit;
    if (chat->failed)
        return written;
    written = specdec__template_as_bytes(w->running_template.output, w->running_template.output_bytes);
    if (chat->writes_bos && specdec__chat_text_begins_with_token(written, bos)) {
        written.data += bos.size;
        written.size -= bos.size;
    }
    return written;
}

/* Copies bytes of the template's output to w->found->kept_text, from its offset `at` on. Returns the copy; data NULL:
   no room; empty bytes have data. */
static specdec__bytes specdec__chat_keep_output(specdec__chat_work *w, size_t at, const unsigned char *data,
                                                size_t size)
{
    specdec__bytes out = {NULL, 0};

    if (at <= SPECDEC__CHAT_KEPT_BYTES && size <= SPECDEC__CHAT_KEPT_BYTES - at) {
        out = specdec__template_as_bytes(w->found->kept_text + at, size);
        if (size)
            memcpy(w->found->kept_text + at, data, size);
    }
    return out;
}

/* Finds the text that a template puts in front of the caller's text in a system message, and stores it as
   chat->system_prefix. */
static void specdec__chat_find_system_prefix(specdec__chat_work *w, specdec__chat *chat, specdec__bytes written,
                                             const specdec_message *system)
{
    const size_t head = specdec__chat_offset_of_system_text(chat->format);
    specdec__template_value in = specdec__template_sized_value(SPECDEC__TEMPLATE_STRING, written.data, written.size),
                            what;
    size_t at;

    what = specdec__template_sized_value(SPECDEC__TEMPLATE_STRING, system->text, system->length);
    at = specdec__template_find_string(&in, 0, &what);
    chat->system_prefix = specdec__template_as_bytes(NULL, 0);
    if (at < written.size && at > head)
        chat->system_prefix = specdec__chat_keep_output(w, 0, written.data + head, at - head);
}

/* Finds the system message that a template writes for a conversation without one, and stores it as
   chat->default_system. Returns 0 when the template writes other text that the chat format does not have. */
static int specdec__chat_find_default_system(specdec__chat_work *w, specdec__chat *chat, specdec__bytes end,
                                             specdec__bytes written, const specdec_message *messages, int count)
{
    const size_t head = specdec__chat_offset_of_system_text(chat->format) +
                        chat->system_prefix.size;
    specdec__chat_text out;

    if (specdec__chat_format_matches_template(w, chat, end, written, messages, count))
        return 1;
    chat->default_system = specdec__template_as_bytes("", 0);
    memset(&out, 0, sizeof out);
    out.text = w->expected;
    out.size = sizeof w->expected;
    if (specdec__chat_render(chat, end, 0, messages, count, &out, NULL) || out.needed > written.size ||
        head > out.needed)
        return 0;
    chat->default_system = specdec__chat_keep_output(w, chat->system_prefix.size, written.data + head,
                                                     written.size - out.needed);
    return chat->default_system.data && specdec__chat_format_matches_template(w, chat, end, written, messages, count);
}

/* Finds the value of chat->trim_roles with which a chat format writes the same as the template, for a conversation
   without its system message and (has_system = 1) with it. Returns 0 when no value does. */
static int specdec__chat_find_trim_roles(specdec__chat_work *w, specdec__chat *chat, specdec__bytes text,
                                         const specdec__vocab *v, const specdec_message *messages, int count,
                                         int has_system)
{
    const specdec__bytes end = specdec__chat_token_text(v, v->eos);
    int fits = 2 * SPECDEC__CHAT_TRIM_END_ONLY, trims, from, known = (1 << fits) - 1;

    for (from = 1; from >= !has_system; from--) {
        const specdec__bytes written = specdec__chat_template_output(w, chat, text, v, messages + from, count - from);

        for (trims = 0; trims < 2 * SPECDEC__CHAT_TRIM_END_ONLY; trims++) {
            chat->trim_roles = trims;
            if (!written.data ||
                !specdec__chat_format_matches_template(w, chat, end, written, messages + from, count - from))
                known &= ~(1 << trims);
        }
    }
    for (fits = 0; fits < 2 * SPECDEC__CHAT_TRIM_END_ONLY && !(known >> fits & 1); fits++)
        ;
    chat->trim_roles = fits;
    return known != 0;
}

/* Conversations for which a chat format must write the same text as a template: without and with white space at the
   ends of messages. */
static const specdec_message specdec__chat_plain_messages[] = {
    {SPECDEC_SYSTEM, "Be brief.", 9, 0},    {SPECDEC_USER, "What is a fjord?", 16, 0},
    {SPECDEC_ASSISTANT, "A valley.", 9, 0}, {SPECDEC_USER, "And a cape?", 11, 0},
    {SPECDEC_ASSISTANT, "Land.", 5, 0},     {SPECDEC_USER, "Thanks", 6, 0}};
static const specdec_message specdec__chat_spaced_messages[] = {
    {SPECDEC_SYSTEM, "\n Tell\n ", 8, 0},   {SPECDEC_USER, " \nHello \n", 9, 0},
    {SPECDEC_ASSISTANT, "\n\nHm \n", 6, 0}, {SPECDEC_USER, "\n Why? ", 7, 0}};

/* Finds the chat format that writes the same text as the template, for the test messages from number `from` on (0: with
   the system message). Returns whether the template wrote anything. */
static int specdec__chat_find_matching_format(specdec__chat_work *w, specdec__chat *chat, specdec__bytes text,
                                              const specdec__vocab *v, int from)
{
    const specdec_message *messages = specdec__chat_plain_messages + from;
    const specdec__bytes end = specdec__chat_token_text(v, v->eos);
    const specdec__bytes written = specdec__chat_template_output(w, chat, text, v, messages, 6 - from);
    size_t i;

    chat->system_prefix = specdec__template_as_bytes(NULL, 0);
    for (i = 0; written.data && i < SPECDEC__COUNT(specdec__chat_formats); i++) {
        chat->format = &specdec__chat_formats[i];
        if (!from)
            specdec__chat_find_system_prefix(w, chat, written, messages);
        if (specdec__chat_format_matches_template(w, chat, end, written, messages, 6 - from))
            return 1;
    }
    chat->format = NULL;
    chat->system_prefix = specdec__template_as_bytes(NULL, 0);
    return written.data != NULL;
}

/* Finds the chat format that a template writes, with the current value of chat->writes_bos. When a template refuses
   system messages, the format decides where to put them. */
static void specdec__chat_match_template_to_formats(specdec__chat *chat, specdec__chat_work *w, specdec__bytes text,
                                                    const specdec__vocab *v)
{
    const specdec__bytes end = specdec__chat_token_text(v, v->eos);
    const specdec_message *question = specdec__chat_plain_messages + 1;
    specdec__bytes written;
    const int takes = specdec__chat_find_matching_format(w, chat, text, v, 0), has_system = chat->format != NULL;

    if (!has_system)
        specdec__chat_find_matching_format(w, chat, text, v, 1);
    if (!chat->format)
        return;
    chat->refuses_system = takes && !has_system;
    written = specdec__chat_template_output(w, chat, text, v, question, 1);
    if (!written.data || !specdec__chat_find_default_system(w, chat, end, written, question, 1) ||
        !specdec__chat_find_trim_roles(w, chat, text, v, specdec__chat_spaced_messages, 4, has_system))
        chat->format = NULL;
}

/* Recognises a chat template: finds the chat format that writes the same text for several conversations, with and
   without system message, answers and white space. Results are in *w->found. The vocabulary must be indexed. */
static SPECDEC__UNUSED void specdec__chat_recognise_template(specdec__chat_work *w, specdec__bytes text,
                                                             const specdec__vocab *v)
{
    specdec__chat *const chat = &w->found->chat;
    const specdec__bytes bos = specdec__chat_token_text(v, v->bos), none = {NULL, 0};
    const specdec_message *question = specdec__chat_plain_messages + 1;
    specdec__bytes written;
    size_t without;
    int spells;

    memset(chat, 0, sizeof *chat);
    w->local_time = SPECDEC__TEMPLATE_NO_CLOCK;
    specdec__chat_run_template(w, text, none, specdec__chat_token_text(v, v->eos), question, 1);
    without = w->running_template.output_bytes;
    written = specdec__chat_template_output(w, chat, text, v, question, 1);
    spells = specdec__chat_text_begins_with_token(written, bos);
    chat->writes_bos = spells && written.size > without; /* else the format itself begins with the token */
    if (written.data)
        specdec__chat_match_template_to_formats(chat, w, text, v);
    if (!chat->format && spells && !chat->writes_bos) {
        chat->writes_bos = 1;
        specdec__chat_match_template_to_formats(chat, w, text, v);
        chat->writes_bos = chat->format != NULL;
    }
    if (!chat->format && !chat->failed)
        chat->failed = "it writes what no known format does";
    if (chat->format)
        return;
    chat->culprit = specdec__chat_keep_output(w, 0, chat->culprit.data,
                                              chat->culprit.size < 64 ? chat->culprit.size : 64);
    w->local_time = 0;
    specdec__chat_run_template(w, text, bos, specdec__chat_token_text(v, v->eos), question, 1);
    chat->runs_template = !w->running_template.failed && w->running_template.output_bytes > 0;
}

/* ---- Running a template that matches no format. */

/* Text in place of the model's previous answer in messages given to a template; only what the template writes behind it
   is used. */
static const char specdec__chat_placeholder[] = "\xe2\x80\xa2specdec-answer\xe2\x80\xa2";

/* Returns the bytes of memory that specdec__chat_render_by_template needs, for a template of `text` bytes and messages
   of `conversation` bytes. */
static SPECDEC__UNUSED size_t specdec__chat_template_memory_bytes(size_t text, size_t conversation)
{
    return specdec__size_add(sizeof(specdec__template) + specdec__template_memory_needed(text) + SPECDEC__CACHE_LINE,
                             specdec__size_multiply(conversation, 13));
}

/* Writes the reason why a chat template could not be run to `error`. Returns the error's code. */
static specdec_result specdec__chat_template_error(const specdec__template *t, specdec_error *error)
{
    const int size = (int)(t->culprit.size < 80 ? t->culprit.size : 80);
    const char *culprit = size ? (const char *)t->culprit.data : "";

    if (t->output_full || !strcmp(t->failed, "it needs too much memory"))
        return specdec__fail(error, SPECDEC_ERROR_CONTEXT, "the conversation is too long: with this context, %zu bytes "
                             "are the most", t->output_room);
    if (t->raised)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "the model's chat template refuses the conversation: %.*s",
                             size, culprit);
    return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "the model's chat template, line %d, column %d: %s%s%.*s",
                         t->line, t->column, t->failed, size ? ": " : "", size, culprit);
}

/* Removes from a rendered conversation all text up to the placeholder answer, and the end-of-text token (`end`) behind
   it, which the answer's own tokens already have. end empty: they do not have it. */
static void specdec__chat_drop_before_placeholder(specdec__bytes end, specdec__chat_text *out)
{
    const size_t size = sizeof specdec__chat_placeholder - 1;
    size_t at = 0, from = 0, i;

    for (i = 0; i + size <= out->needed; i++)
        if (memcmp(out->text + i, specdec__chat_placeholder, size) == 0 && !(out->marks[i / 8] >> i % 8 & 1))
            from = i + size;
    while (from + at < out->needed && at < 2 && memchr(" \n", out->text[from + at], 2))
        at++;
    if (end.size && out->needed - from - at >= end.size && memcmp(out->text + from + at, end.data, end.size) == 0)
        from += at + end.size;
    out->needed -= from;
    for (i = 0; i < out->needed; i++) {
        const int plain = out->marks[(i + from) / 8] >> (i + from) % 8 & 1;

        out->text[i] = out->text[i + from];
        specdec__template_set_bit(out->marks, i, plain);
    }
}

/* Renders messages by the model's chat template, with the beginning of the model's turn. begun: 1: the conversation has
   earlier messages. last: token that ended the previous answer; -1: no such token, or the conversation begins. memory:
   (bytes) see specdec__chat_template_memory_bytes. Errors: ARGUMENT, CONTEXT, UNSUPPORTED. */
static SPECDEC__UNUSED SPECDEC__NOINLINE specdec_result
specdec__chat_render_by_template(const specdec__vocab *v, specdec__bytes text, int begun, int32_t last,
                                 const specdec_message *messages, int count, void *memory, size_t bytes, int64_t now,
                                 specdec__chat_text *out, specdec_error *error)
{
    const specdec_message before[] = {
        {SPECDEC_USER, "...", 3, 1},
        {SPECDEC_ASSISTANT, specdec__chat_placeholder, sizeof specdec__chat_placeholder - 1, 1}};
    const size_t skip = (size_t)(0 - (uintptr_t)memory) & (SPECDEC__CACHE_LINE - 1);
    specdec__template *t = (specdec__template *)(void *)((unsigned char *)memory + skip);
    const size_t used = skip + (sizeof *t + SPECDEC__CACHE_LINE - 1) / SPECDEC__CACHE_LINE * SPECDEC__CACHE_LINE;
    const specdec__bytes none = {NULL, 0};
    specdec__template_value list, earlier;
    int i;

    for (i = 0; i < count; i++)
        if ((int)messages[i].role < 0 || (int)messages[i].role >= SPECDEC__CHAT_ROLES ||
            (!messages[i].text && messages[i].length))
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "message %d has an unknown role, or no text", i);
    if (bytes < used)
        return specdec__fail(error, SPECDEC_ERROR_MEMORY, "%zu bytes of working memory are too few", bytes);
    specdec__template_init(t, text, (unsigned char *)memory + used, bytes - used, out->text, out->marks, out->size);
    t->local_time = now;
    specdec__chat_define_template_names(t, specdec__chat_token_text(v, v->bos), specdec__chat_token_text(v, v->eos), 1);
    specdec__template_define_variable(t, specdec__template_string_value("tools"), specdec__template_none_value());
    list = specdec__chat_messages_value(t, messages, count);
    if (begun) {
        earlier = specdec__chat_messages_value(t, before, 2);
        list = specdec__template_add(t, &earlier, &list);
    }
    specdec__template_define_variable(t, specdec__template_string_value("messages"), list);
    specdec__template_render(t);
    if (t->failed)
        return specdec__chat_template_error(t, error);
    out->needed = t->output_bytes;
    if (begun)
        specdec__chat_drop_before_placeholder(last < 0 ? none : specdec__vocab_token_text(v, (uint32_t)last), out);
    return SPECDEC_OK;
}

/* Chooses the chat format with a name (NULL: that of the model's template, `own`, which may be NULL), and checks that
   the vocabulary has its tokens. Where a template matches no format, chat->format is NULL, and chat->failed says why.
   Errors: ARGUMENT (unknown name), MISMATCH (a token is missing). */
static SPECDEC__UNUSED specdec_result specdec__chat_choose_format(specdec__chat *chat, const specdec__chat *own,
                                                                  const specdec__vocab *v, const char *name,
                                                                  specdec_error *error)
{
    const char *missing;

    memset(chat, 0, sizeof *chat);
    if (own)
        *chat = *own;
    if (name && !(chat->format && strcmp(chat->format->name, name) == 0)) {
        memset(chat, 0, sizeof *chat);
        chat->format = specdec__chat_find_format_by_name(name);
        if (!chat->format)
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "chat format \"%s\" is not known", name);
        chat->trim_roles = chat->format->trim_roles;
        chat->writes_bos = own && own->writes_bos;
        chat->thoughts = own ? own->thoughts : NULL;
    }
    missing = chat->format ? specdec__chat_find_missing_token_text(chat->format, v) : NULL;
    if (missing && name)
        return specdec__fail(error, SPECDEC_ERROR_MISMATCH,
                             "chat format \"%s\" needs %s, which is no token of this vocabulary", name, missing);
    if (missing) {
        chat->format = NULL;
        chat->failed = "a token that it writes is not in the vocabulary";
        chat->culprit = specdec__template_as_bytes(missing, strlen(missing));
    }
    return SPECDEC_OK;
}

/* Returns the error UNSUPPORTED, as the model's chat format is unknown; the error text says why. */
static SPECDEC__UNUSED specdec_result specdec__chat_refuse_unknown_format(const specdec__chat *chat,
                                                                          specdec_error *error)
{
    if (!SPECDEC__HAS_CHAT_FORMATS)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                             "SPECDEC_NO_CHAT leaves chat formats out of this build");
    if (!chat->failed)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                             "the model has no chat template that is read: config.chat_format chooses a chat format");
    return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                         "the model's chat template is of no known format (%s%s%.*s): config.chat_format chooses one",
                         chat->failed, chat->culprit.size ? ": " : "",
                         (int)(chat->culprit.size < 40 ? chat->culprit.size : 40),
                         chat->culprit.size ? (const char *)chat->culprit.data : "");
}

SPECDEC__FOR_SPEED
