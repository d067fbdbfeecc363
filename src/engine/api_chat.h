/* =====================================================================================================================
 * >>engine/api_chat: bodies of the API: whole conversations, answers in parts.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "../text/vocabulary.h"
#include "../text/load.h"
#include "../text/tokenize.h"
#include "../text/chat.h"
#include "../text/answer.h"
#include "../model/model.h"
#include "stream.h"
#include "engine.h"
#include "sequences.h"
#include "prefill.h"
#include "api.h"

SPECDEC__FOR_SIZE

/* Writes what the format has behind an answer and the text still lacks: all of it when a limit or a stop string ended
   the answer, the part behind the end token otherwise. last: the answer's last token. */
static void specdec__chat_end_turn(const specdec *t, int32_t last, specdec__chat_text *out)
{
    const specdec__chat_format *format = t->engine->chat.format;
    const specdec__vocab *v = &t->model->vocab;
    const char *after = format->after[SPECDEC_ASSISTANT];
    size_t size = strlen(after), from;
    specdec__bytes end;

    if (!specdec__vocab_is_end(v, last)) {
        specdec__chat_close(format, SPECDEC_ASSISTANT, specdec__chat_token(v, v->eos), out);
        return;
    }
    end = specdec__vocab_text(v, (uint32_t)last);
    from = end.size ? specdec__text_search((const unsigned char *)after, 0, size, end) : size;
    from = from < size ? from + end.size : 0;
    specdec__chat_append(out, after + from, size - from, 0);
}

/* Refuses a message that is longer than all that a prompt may have, before it is looked at. */
static specdec_result specdec__chat_lengths(specdec *t, const specdec_message *messages, int count)
{
    const size_t most = t->engine->chat_bytes;
    int i;

    for (i = 0; i < count; i++)
        if (messages[i].length > most && messages[i].length != SPECDEC_WHOLE_STRING)
            return specdec__fail(&t->error, SPECDEC_ERROR_CONTEXT,
                                 "message %d has %zu bytes; with this context, %zu are the most", i,
                                 messages[i].length, most);
    return SPECDEC_OK;
}

/* The text of messages in the model's chat format, or as its template writes them, with the rest of the turn before,
   which ended with the token `last`; -1: there is none. */
static specdec_result specdec__chat_text_of(specdec *t, int32_t last, const specdec_message *messages, int count,
                                            specdec__chat_text *out)
{
    const specdec__vocab *v = &t->model->vocab;
    const int begun = last >= 0;

    if (SPECDEC__TEMPLATES && !t->engine->chat.format)
        return specdec__chat_by_template(v, t->model->chat_template, begun,
                                         begun && specdec__vocab_is_end(v, last) ? last : -1, messages, count,
                                         t->engine->scratch, t->engine->scratch_bytes, specdec__os_date(), out,
                                         &t->error);
    if (begun)
        specdec__chat_end_turn(t, last, out);
    return specdec__chat_render(&t->engine->chat, specdec__chat_token(v, v->eos), begun, messages, count, out,
                                &t->error);
}

/* Room for a rendered conversation, still empty. */
static specdec__chat_text specdec__chat_room(const specdec *t)
{
    specdec__chat_text out;

    out.text = t->engine->chat_text;
    out.plain = t->engine->chat_plain;
    out.size = t->engine->chat_bytes;
    out.needed = 0;
    return out;
}

static specdec_result specdec__call_chat(specdec *t, const specdec_message *messages, int count)
{
    specdec_result result = specdec__check_call(t, messages != NULL);
    const specdec__vocab *v;
    specdec__chat_text out;
    specdec__head head;
    int32_t last;

    if (result)
        return result;
    if (!SPECDEC__CHATS || (!t->engine->chat.format && !(SPECDEC__TEMPLATES && t->engine->chat.runs)))
        return specdec__chat_unknown(&t->engine->chat, &t->error);
    if (count < 1)
        return specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, "%d messages", count);
    if ((result = specdec__chat_lengths(t, messages, count)) != SPECDEC_OK ||
        (result = specdec__cut_head(t, &head)) != SPECDEC_OK)
        return result;
    v = &t->model->vocab;
    last = specdec__head_last(t, head);
    out = specdec__chat_room(t);
    result = specdec__chat_text_of(t, last, messages, count, &out);
    if (result == SPECDEC_ERROR_BUFFER)
        return specdec__fail(&t->error, SPECDEC_ERROR_CONTEXT,
                             "a conversation of %zu bytes; with this context, %zu are the most", out.needed, out.size);
    if (result)
        return result;
    if (last >= 0 && specdec__vocab_strips(v, specdec__vocab_text(v, (uint32_t)last)))
        specdec__chat_strip(&out); /* the last token takes the white space behind it with it */
    return specdec__prompt_text(t, head, out.text, out.needed,
                                specdec__chat_flags(&t->engine->chat, v, &out, last >= 0), out.plain);
}

static specdec_result specdec__call_chat_messages(specdec *t, const specdec_chat_input *input)
{
    specdec_result result = specdec__check_call(t, input != NULL);

    return result ? result : specdec__fail(&t->error, SPECDEC_ERROR_UNSUPPORTED, "this is not there yet");
}

static specdec_result specdec__call_chat_json(specdec *t, const char *json, size_t length)
{
    specdec_result result = specdec__check_call(t, json || !length);

    return result ? result : specdec__fail(&t->error, SPECDEC_ERROR_UNSUPPORTED, "this is not there yet");
}

static specdec_result specdec__call_part(specdec *t, int work, specdec_part *part)
{
    specdec_result result = specdec__check_call(t, part != NULL);

    (void)work;
    return result ? result : specdec__fail(&t->error, SPECDEC_ERROR_UNSUPPORTED, "this is not there yet");
}

specdec_result specdec_splitter_begin(specdec_splitter *splitter, const char *calls, const char *thoughts, int inside)
{
    (void)calls;
    (void)thoughts;
    (void)inside;
    if (splitter)
        memset(splitter, 0, sizeof *splitter);
    return SPECDEC_ERROR_UNSUPPORTED;
}

void specdec_splitter_push(specdec_splitter *splitter, const char *bytes, size_t length)
{
    (void)splitter;
    (void)bytes;
    (void)length;
}

int specdec_splitter_next(specdec_splitter *splitter, specdec_part *part)
{
    (void)splitter;
    (void)part;
    return 0;
}

SPECDEC__FOR_SPEED
