/* =====================================================================================================================
 * >>text/chat: chat formats: recognised by name or template, and rendered.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"

SPECDEC__FOR_SIZE

enum { SPECDEC__CHAT_ROLES = SPECDEC_ASSISTANT + 1, SPECDEC__CHAT_HAS = 3 };

/* A chat format is recognised by what its template contains; the template itself is never run. The token that begins a
   text is left to specdec__tokenize; special tokens are written as text, so PARSE_SPECIAL belongs to it. */
typedef struct specdec__chat_format {
    const char *name;
    const char *has[SPECDEC__CHAT_HAS], *lacks; /* in the template; NULL: does not matter */
    int trims;                           /* of roles (1 << role): white space around messages is dropped */
    int ends;                            /* of roles: the token that ends a text stands before `after` */
    const char *opening;                 /* before system messages, and before user ones that follow no system one: */
    const char *reopening;               /* the first, all others */
    const char *before[SPECDEC__CHAT_ROLES], *after[SPECDEC__CHAT_ROLES];
    const char *generate;                /* what makes the model answer */
} specdec__chat_format;

enum { SPECDEC__CHAT_ANSWERS = 1 << SPECDEC_ASSISTANT, SPECDEC__CHAT_ALL = (1 << SPECDEC__CHAT_ROLES) - 1 };

/* DeepSeek's tokens, with wide bars. */
#define SPECDEC__CHAT_USER      "<\xef\xbd\x9c" "User\xef\xbd\x9c>"
#define SPECDEC__CHAT_ASSISTANT "<\xef\xbd\x9c" "Assistant\xef\xbd\x9c>"

/* "tulu" has two rows: Tulu 2 and Tulu 3; so has "llama2": with "<s>" before every question, or before the first. So
   has "mistral", which is that before v3: older templates have no space before answers; the one before "[INST]" is the
   tokenizer's. What has none behind it (tekken) is none of the three. So has "deepseek-r1": older templates leave it to
   the model to begin with "<think>", as "chatml" does. What a row lacks tells others from it: Apriel from Phi-3,
   SmolVLM from ChatML, Functionary from Llama 3. */
static const specdec__chat_format specdec__chat_formats[] = {
    {"phi4-mini", {"|>' + message", "<|end|>", NULL}, NULL, 0, 0, "", "",
     {"<|system|>", "<|user|>", "<|assistant|>"}, {"<|end|>", "<|end|>", "<|end|>"}, "<|assistant|>"},
    {"phi3", {"<|assistant|>", "<|end|>", NULL}, "\\n<|end|>", 0, 0, "", "",
     {"<|system|>\n", "<|user|>\n", "<|assistant|>\n"}, {"<|end|>\n", "<|end|>\n", "<|end|>\n"}, "<|assistant|>\n"},
    {"tulu", {"<|user|>", "eos_token", "'content'] }}"}, "<|end|>", 0, SPECDEC__CHAT_ANSWERS, "", "",
     {"<|system|>\n", "<|user|>\n", "<|assistant|>\n"}, {"\n", "\n", "\n"}, "<|assistant|>\n"},
    {"tulu", {"<|user|>", "eos_token", "not loop.last"}, "<|end|>", 0, SPECDEC__CHAT_ANSWERS, "", "",
     {"<|system|>\n", "<|user|>\n", "<|assistant|>\n"}, {"\n", "\n", "\n"}, "<|assistant|>\n"},
    {"zephyr", {"<|user|>", "eos_token", NULL}, "<|end|>", 0, SPECDEC__CHAT_ALL, "", "",
     {"<|system|>\n", "<|user|>\n", "<|assistant|>\n"}, {"\n", "\n", "\n"}, "<|assistant|>\n"},
    {"phi4", {"<|im_start|>", "<|im_sep|>", NULL}, NULL, 0, 0, "", "",
     {"<|im_start|>system<|im_sep|>", "<|im_start|>user<|im_sep|>", "<|im_start|>assistant<|im_sep|>"},
     {"<|im_end|>", "<|im_end|>", "<|im_end|>"}, "<|im_start|>assistant<|im_sep|>"},
    {"chatml-think", {"<|im_start|>", "assistant\\n<think>", NULL}, NULL, 0, 0, "", "",
     {"<|im_start|>system\n", "<|im_start|>user\n", "<|im_start|>assistant\n"},
     {"<|im_end|>\n", "<|im_end|>\n", "<|im_end|>\n"}, "<|im_start|>assistant\n<think>\n"},
    {"chatml", {"<|im_start|>", NULL, NULL}, "<end_of_utterance>", 0, 0, "", "",
     {"<|im_start|>system\n", "<|im_start|>user\n", "<|im_start|>assistant\n"},
     {"<|im_end|>\n", "<|im_end|>\n", "<|im_end|>\n"}, "<|im_start|>assistant\n"},
    {"llama3", {"<|start_header_id|>", NULL, NULL}, ">>>", SPECDEC__CHAT_ALL, 0, "", "",
     {"<|start_header_id|>system<|end_header_id|>\n\n", "<|start_header_id|>user<|end_header_id|>\n\n",
      "<|start_header_id|>assistant<|end_header_id|>\n\n"},
     {"<|eot_id|>", "<|eot_id|>", "<|eot_id|>"}, "<|start_header_id|>assistant<|end_header_id|>\n\n"},
    {"granite", {"<|start_of_role|>", NULL, NULL}, NULL, 0, 0, "", "",
     {"<|start_of_role|>system<|end_of_role|>", "<|start_of_role|>user<|end_of_role|>",
      "<|start_of_role|>assistant<|end_of_role|>"},
     {"<|end_of_text|>\n", "<|end_of_text|>\n", "<|end_of_text|>\n"}, "<|start_of_role|>assistant<|end_of_role|>"},
    {"deepseek-r1", {"'" SPECDEC__CHAT_ASSISTANT "' + content", "><think>", NULL}, NULL, 0, SPECDEC__CHAT_ANSWERS, "",
     "", {"", SPECDEC__CHAT_USER, SPECDEC__CHAT_ASSISTANT}, {"", "", ""}, SPECDEC__CHAT_ASSISTANT "<think>\n"},
    {"deepseek-r1", {"'" SPECDEC__CHAT_ASSISTANT "' + content", NULL, NULL}, NULL, 0, SPECDEC__CHAT_ANSWERS, "", "",
     {"", SPECDEC__CHAT_USER, SPECDEC__CHAT_ASSISTANT}, {"", "", ""}, SPECDEC__CHAT_ASSISTANT},
    {"llama2", {"[INST]", "<<SYS>>", NULL}, "{{ '[INST] '", SPECDEC__CHAT_ALL, 0, "[INST] ", "<s>[INST] ",
     {"<<SYS>>\n", "", " "}, {"\n<</SYS>>\n\n", " [/INST]", " </s>"}, ""},
    {"llama2", {"[INST]", "<<SYS>>", NULL}, NULL, SPECDEC__CHAT_ALL, 0, "[INST] ", "[INST] ",
     {"<<SYS>>\n", "", " "}, {"\n<</SYS>>\n\n", " [/INST]", " </s>"}, ""},
    {"mistral-v7", {"[INST] ", "[SYSTEM_PROMPT] ", NULL}, NULL, 0, 0, "", "",
     {"[SYSTEM_PROMPT] ", "[INST] ", " "}, {"[/SYSTEM_PROMPT]", "[/INST]", "</s>"}, ""},
    {"mistral-v3", {"[INST] ", NULL, NULL}, " [/INST]", SPECDEC__CHAT_ANSWERS, 0, "[INST] ", "[INST] ",
     {"", "", " "}, {"\n\n", "[/INST]", "</s>"}, ""},
    {"mistral", {"[INST] ", NULL, NULL}, " [INST] ", 0, 0, "[INST] ", "[INST] ",
     {"", "", ""}, {"\n\n", " [/INST]", "</s>"}, ""},
    {"mistral", {"[INST] ", NULL, NULL}, NULL, 0, 0, "[INST] ", "[INST] ",
     {"", "", " "}, {"\n\n", " [/INST]", "</s>"}, ""},
    {"gemma", {"<start_of_turn>", NULL, NULL}, NULL, SPECDEC__CHAT_ALL, 0, "<start_of_turn>user\n",
     "<start_of_turn>user\n",
     {"", "", "<start_of_turn>model\n"}, {"\n\n", "<end_of_turn>\n", "<end_of_turn>\n"}, "<start_of_turn>model\n"}};

/* Does a text contain a string? */
static int specdec__chat_contains(const char *text, size_t length, const char *what)
{
    size_t size = strlen(what), i;

    for (i = 0; i + size <= length; i++)
        if (memcmp(text + i, what, size) == 0)
            return 1;
    return 0;
}

/* The chat format of this name, or the one that a template (tokenizer.chat_template) is recognised as; NULL: none. No
   name contains what templates are recognised by. */
static SPECDEC__UNUSED const specdec__chat_format *specdec__chat_find(const char *name_or_template, size_t length)
{
    size_t i;

    for (i = 0; SPECDEC__CHATS && i < SPECDEC__COUNT(specdec__chat_formats); i++) {
        const specdec__chat_format *format = &specdec__chat_formats[i];
        int fits = !format->lacks || !specdec__chat_contains(name_or_template, length, format->lacks), j;

        for (j = 0; j < SPECDEC__CHAT_HAS && format->has[j] && fits; j++)
            fits = specdec__chat_contains(name_or_template, length, format->has[j]);
        if (fits || (strlen(format->name) == length && memcmp(format->name, name_or_template, length) == 0))
            return format;
    }
    return NULL;
}

/* Appends bytes, or a string (SPECDEC_WHOLE_STRING), while there is room and counts them in any case. */
static void specdec__chat_append(char *out, size_t size, size_t *needed, const char *text, size_t length)
{
    if (length == SPECDEC_WHOLE_STRING)
        length = strlen(text);
    if (length && *needed <= size && length <= size - *needed)
        memcpy(out + *needed, text, length);
    *needed = specdec__size_add(*needed, length);
}

static specdec__bytes specdec__chat_trim(const specdec_message *message, int trims)
{
    const char *text = message->text;
    size_t length = message->length == SPECDEC_WHOLE_STRING ? strlen(text) : message->length;
    size_t kinds = trims ? 6 : 0; /* of white space */
    specdec__bytes out;

    while (length && memchr(" \t\r\n\v\f", text[length - 1], kinds))
        length--;
    for (; length && memchr(" \t\r\n\v\f", text[0], kinds); length--)
        text++;
    out.data = (const unsigned char *)text;
    out.size = length;
    return out;
}

/* Appends what stands behind a message of this role. end: the text of the token that ends a text. */
static void specdec__chat_close(const specdec__chat_format *format, int role, specdec__bytes end, char *out,
                                size_t size, size_t *needed)
{
    if (format->ends >> role & 1)
        specdec__chat_append(out, size, needed, (const char *)end.data, end.size);
    specdec__chat_append(out, size, needed, format->after[role], SPECDEC_WHOLE_STRING);
}

/* Appends a conversation as the model was trained to read it, with what makes the model answer. begun: the text holds
   messages already. end: see specdec__chat_close. *needed becomes the length of all that was appended; no terminating
   zero is written. Errors: ARGUMENT; BUFFER, without words, when that is above size. */
static SPECDEC__UNUSED specdec_result specdec__chat_render(const specdec__chat_format *format, specdec__bytes end,
                                                           int begun, const specdec_message *messages, int count,
                                                           char *out, size_t size, size_t *needed,
                                                           specdec_error *error)
{
    int i, previous = SPECDEC_ASSISTANT;

    for (i = 0; i < count; i++) {
        const int role = (int)messages[i].role;
        specdec__bytes text;

        if (role < 0 || role >= SPECDEC__CHAT_ROLES || (!messages[i].text && messages[i].length))
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "message %d has an unknown role, or no text", i);
        text = specdec__chat_trim(&messages[i], format->trims >> role & 1);
        if (role != SPECDEC_ASSISTANT && previous != SPECDEC_SYSTEM) {
            specdec__chat_append(out, size, needed, begun ? format->reopening : format->opening,
                                 SPECDEC_WHOLE_STRING);
            begun = 1;
        }
        specdec__chat_append(out, size, needed, format->before[role], SPECDEC_WHOLE_STRING);
        specdec__chat_append(out, size, needed, (const char *)text.data, text.size);
        specdec__chat_close(format, role, end, out, size, needed);
        previous = role;
    }
    specdec__chat_append(out, size, needed, format->generate, SPECDEC_WHOLE_STRING);
    return *needed > size ? SPECDEC_ERROR_BUFFER : SPECDEC_OK;
}
SPECDEC__FOR_SPEED
