/* =====================================================================================================================
 * >>engine/api_chat: bodies of the API: whole conversations, answers in parts.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "../text/vocabulary.h"
#include "../text/load.h"
#include "../text/tokenize.h"
#include "../text/decode.h"
#include "../text/template.h"
#include "../text/chat.h"
#include "../text/conversation.h"
#include "../text/answer.h"
#include "../text/splitter.h"
#include "../constraint/automaton.h"
#include "../constraint/tools.h"
#include "../model/model.h"
#include "../speculation/constrained.h"
#include "stream.h"
#include "engine.h"
#include "sequences.h"
#include "prefill.h"
#include "api.h"

SPECDEC__FOR_SIZE

/* Appends to *out the text that the chat format has behind an answer, as far as the sequence lacks it: all of that text
   if a limit or a stop string ended the answer, else what follows the end token. last: the answer's last token. */
static void specdec__chat_append_turn_end(const specdec *t, int32_t last, specdec__chat_text *out)
{
    const specdec__chat_format *format = t->engine->chat.format;
    const specdec__vocab *v = &t->model->vocab;
    const char *after = specdec__chat_text_behind_message(format, SPECDEC_ASSISTANT);
    size_t size = strlen(after), from;
    specdec__bytes end;

    if (!specdec__vocab_is_end_token(v, last)) {
        specdec__chat_append_message_end(format, SPECDEC_ASSISTANT, specdec__chat_token_text(v, v->eos), out);
        return;
    }
    end = specdec__vocab_token_text(v, (uint32_t)last);
    from = end.size ? specdec__text_find_token_text((const unsigned char *)after, 0, size, end) : size;
    from = from < size ? from + end.size : 0;
    specdec__chat_append_text(out, after + from, size - from, 0);
}

/* Returns an error for messages that have more bytes than a prompt may have. */
static specdec_result specdec__chat_check_lengths(specdec *t, const specdec_message *messages, int count)
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

/* Renders messages[count] into *out, in the model's chat format or by its template, behind the end of the turn before.
   last: the last token of that turn; -1: there is none. */
static specdec_result specdec__chat_render_messages(specdec *t, int32_t last, const specdec_message *messages,
                                                    int count, specdec__chat_text *out)
{
    const specdec__vocab *v = &t->model->vocab;
    const int begun = last >= 0;

    if (SPECDEC__HAS_CHAT_TEMPLATES && !t->engine->chat.format)
        return specdec__chat_render_by_template(
            v, t->model->chat_template, begun, begun && specdec__vocab_is_end_token(v, last) ? last : -1, messages,
            count, t->engine->scratch, t->engine->scratch_bytes, specdec__os_seconds_since_1970(), out, &t->error);
    if (begun)
        specdec__chat_append_turn_end(t, last, out);
    return specdec__chat_render(&t->engine->chat, specdec__chat_token_text(v, v->eos), begun, messages, count, out,
                                &t->error);
}

/* Returns the engine's buffer for the text of a rendered conversation, with nothing written to it yet. */
static specdec__chat_text specdec__chat_empty_text(const specdec *t)
{
    specdec__chat_text out;

    out.text = t->engine->chat_text;
    out.marks = t->engine->chat_plain;
    out.size = t->engine->chat_bytes;
    out.needed = 0;
    return out;
}

/* The body of specdec_chat: appends messages[count], rendered in the model's chat format, to a sequence. */
static specdec_result specdec__call_chat(specdec *t, const specdec_message *messages, int count)
{
    specdec_result result = specdec__check_call_arguments(t, messages != NULL);
    const specdec__vocab *v;
    specdec__chat_text out;
    specdec__prompt_head head;
    int32_t last;

    if (result)
        return result;
    if (!SPECDEC__HAS_CHAT_FORMATS ||
        (!t->engine->chat.format && !(SPECDEC__HAS_CHAT_TEMPLATES && t->engine->chat.runs_template)))
        return specdec__chat_refuse_unknown_format(&t->engine->chat, &t->error);
    if (count < 1)
        return specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, "%d messages", count);
    if ((result = specdec__chat_check_lengths(t, messages, count)) != SPECDEC_OK ||
        (result = specdec__prompt_head_before_stop(t, &head)) != SPECDEC_OK)
        return result;
    v = &t->model->vocab;
    last = specdec__prompt_head_last_token(t, head);
    out = specdec__chat_empty_text(t);
    result = specdec__chat_render_messages(t, last, messages, count, &out);
    if (result == SPECDEC_ERROR_BUFFER)
        return specdec__fail(&t->error, SPECDEC_ERROR_CONTEXT,
                             "a conversation of %zu bytes; with this context, %zu are the most", out.needed, out.size);
    if (result)
        return result;
    if (last >= 0 && specdec__vocab_token_strips_space(v, specdec__vocab_token_text(v, (uint32_t)last)))
        specdec__chat_drop_leading_space(&out); /* the last token takes the white space behind it with it */
    result = specdec__prompt_append(t, head, out.text, out.needed,
                                    specdec__chat_tokenize_flags(&t->engine->chat, v, &out, last >= 0), out.marks);
    if (!result)
        t->prompt_in_thought = specdec__answer_prompt_opens_thought(t->engine->chat.thoughts, out.text, out.needed);
    return result;
}

/* ---- Whole conversations. */

/* The common beginning of a sequence's tokens and a new conversation's tokens: as far as they spell the same bytes. */
typedef struct specdec__common_beginning {
    int held;  /* number of the sequence's first tokens that spell the common bytes */
    int fresh; /* number of the conversation's first tokens that spell the same bytes */
} specdec__common_beginning;

/* Compares a sequence's tokens held[held_count] with a conversation's tokens fresh[fresh_count], byte by byte, control
   tokens as tokens: a model may decode other tokens than the tokenizer makes of the same bytes. Returns the last place
   at which a token ends in both lists. room (2 * longest): working memory; longest: bytes of a token, at most. */
static specdec__common_beginning specdec__engine_find_common_beginning(const specdec__vocab *v, const int32_t *held,
                                                                       int held_count, const int32_t *fresh,
                                                                       int fresh_count, unsigned char *room,
                                                                       size_t longest)
{
    unsigned char *bytes[2];
    size_t left[2] = {0, 0}, at[2] = {0, 0}, same;
    specdec__common_beginning now = {0, 0}, common = {0, 0};
    int side, equal = 1;

    bytes[0] = room;
    bytes[1] = room + longest;
    while (equal) {
        if (!left[0] && !left[1]) {
            common = now;
            if (now.held < held_count && now.fresh < fresh_count && held[now.held] == fresh[now.fresh]) {
                now.held++;
                now.fresh++;
                continue;
            }
        }
        for (side = 0; side < 2 && equal; side++) {
            int *const next = side ? &now.fresh : &now.held;
            const int32_t token = *next < (side ? fresh_count : held_count) ? (side ? fresh : held)[*next] : -1;

            if (left[side])
                continue;
            equal = token >= 0 && !specdec__vocab_type_is_special(specdec__vocab_token_type(v, (uint32_t)token)) &&
                    !specdec__token_write_bytes(v, token, 1, bytes[side], longest, &left[side], NULL) && left[side];
            at[side] = 0;
            ++*next;
        }
        same = left[0] < left[1] ? left[0] : left[1];
        equal = equal && memcmp(bytes[0] + at[0], bytes[1] + at[1], same) == 0;
        for (side = 0; side < 2 && equal; side++) {
            at[side] += same;
            left[side] -= same;
        }
    }
    return common;
}

/* Renders a conversation's text into *out: by the model's template, or in the format that the configuration names. */
static specdec_result specdec__conversation_render_text(specdec *t, const specdec_chat_input *input,
                                                        specdec__arena *arena, specdec__chat_text *out)
{
    const specdec__chat *chat = &t->engine->chat;
    const specdec__vocab *v = &t->model->vocab;
    const specdec_message *messages;
    specdec__conversation_work work;
    specdec_result result;

    if (SPECDEC__HAS_CHAT_TEMPLATES && t->model->chat_template.data && !t->engine->config.chat_format) {
        arena->used = (arena->used + 63) & ~(size_t)63;
        work.vocab = v;
        work.text = t->model->chat_template;
        work.memory = arena->base + arena->used;
        work.memory_bytes = arena->used < arena->size ? arena->size - arena->used : 0;
        work.local_time = specdec__os_seconds_since_1970();
        return specdec__conversation_render(&work, input, out, &t->error);
    }
    if (!SPECDEC__HAS_CHAT_FORMATS || !chat->format)
        return specdec__chat_refuse_unknown_format(chat, &t->error);
    if (specdec__conversation_text_bytes(input->tools).size && input->tool_choice != SPECDEC_TOOLS_NONE)
        return specdec__fail(&t->error, SPECDEC_ERROR_UNSUPPORTED, "chat format \"%s\" knows no tools",
                             chat->format->name);
    if ((result = specdec__conversation_to_messages(input, arena, &messages, &t->error)) != SPECDEC_OK ||
        (result = specdec__chat_render(chat, specdec__chat_token_text(v, v->eos), 0, messages, input->count, out,
                                       &t->error)) != SPECDEC_OK || !input->continues)
        return result;
    return specdec__conversation_cut_behind_content(input->messages[input->count - 1].content, out, &t->error);
}

/* Appends to a conversation's text *out the beginning of the tool call that must follow, where input->tool_choice
   requires one. *begun: its bytes, at most SPECDEC__STOP_MAX_BYTES - 1; 0: no call is required. */
static specdec_result specdec__conversation_append_call_beginning(specdec *t, const specdec_chat_input *input,
                                                                  specdec__chat_text *out, size_t *begun)
{
    const specdec__bytes name = specdec__conversation_text_bytes(input->tool);
    const specdec__calls *calls = t->engine->chat.calls;
    const size_t before = out->needed;

    *begun = 0;
    if (input->tool_choice != SPECDEC_TOOLS_REQUIRED)
        return SPECDEC_OK;
    if (!calls || !specdec__conversation_text_bytes(input->tools).size)
        return specdec__fail(&t->error, SPECDEC_ERROR_UNSUPPORTED,
                             calls ? "a tool is required, but there are none"
                                   : "a tool is required, but how this model calls tools is not known");
    specdec__chat_append_text(out, SPECDEC__CALL_TEXT(calls, WRITTEN_BEGIN), SPECDEC_WHOLE_STRING, 0);
    if (name.size) {
        specdec__chat_append_text(out, (const char *)name.data, name.size, 1);
        specdec__chat_append_text(out, SPECDEC__CALL_TEXT(calls, WRITTEN_MIDDLE), SPECDEC_WHOLE_STRING, 0);
    }
    *begun = out->needed - before;
    if (*begun >= SPECDEC__STOP_MAX_BYTES)
        return specdec__fail(&t->error, SPECDEC_ERROR_UNSUPPORTED, "the name of the tool is too long");
    return out->needed > out->size ? SPECDEC_ERROR_BUFFER : SPECDEC_OK;
}

/* Makes a conversation the tokens of a sequence: keeps the tokens that both begin with, and replaces the others. */
static specdec_result specdec__engine_replace_conversation(specdec *t, const specdec_chat_input *input,
                                                           specdec__arena *arena)
{
    const specdec__vocab *v = &t->model->vocab;
    specdec__chat_text out = specdec__chat_empty_text(t);
    specdec_result result = specdec__conversation_check_input(input, t->engine->chat_bytes, &t->error);
    const specdec__prompt_head empty = {0, 0};
    specdec__common_beginning common;
    int count = 0, inside;
    size_t begun = 0;

    if (!result)
        result = specdec__conversation_render_text(t, input, arena, &out);
    if (!result)
        result = specdec__conversation_append_call_beginning(t, input, &out, &begun);
    if (result == SPECDEC_ERROR_BUFFER)
        return specdec__fail(&t->error, SPECDEC_ERROR_CONTEXT,
                             "a conversation of %zu bytes; with this context, %zu are the most", out.needed, out.size);
    if (!result)
        result = specdec__prompt_tokenize(t, empty, out.text, out.needed,
                                          specdec__chat_tokenize_flags(&t->engine->chat, v, &out, 0),
                                          input->special ? NULL : out.marks, &count);
    if (result)
        return result;
    if (!count)
        return specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, "the conversation is empty");
    inside = !begun && specdec__answer_prompt_opens_thought(t->engine->chat.thoughts, out.text, out.needed);
    common = specdec__engine_find_common_beginning(v, t->tokens, t->handed_out, t->tokens + t->count, count,
                                                   (unsigned char *)t->engine->scratch, (size_t)v->longest_bytes + 4);
    result = specdec__engine_replace_tokens(t, common.held, t->tokens + t->count + common.fresh, count - common.fresh,
                                            NULL);
    if (result)
        return specdec__engine_clear_cancellation(t, result);
    t->prompt_in_thought = inside;
    if (begun)
        memcpy(t->piece, out.text + out.needed - begun, begun);
    t->released_bytes = begun;
    return SPECDEC_OK;
}

/* Returns an arena over the engine's working memory, e->scratch. */
static specdec__arena specdec__scratch_arena(const specdec *t)
{
    specdec__arena arena;

    arena.base = (unsigned char *)t->engine->scratch;
    arena.size = t->engine->scratch_bytes;
    arena.used = 0;
    return arena;
}

/* The body of specdec_chat_messages: makes a whole conversation the sequence's prompt. */
static specdec_result specdec__call_chat_messages(specdec *t, const specdec_chat_input *input)
{
    specdec_result result = specdec__check_call_arguments(t, input != NULL);
    specdec__arena arena;

    if (result)
        return result;
    arena = specdec__scratch_arena(t);
    return specdec__engine_replace_conversation(t, input, &arena);
}

/* The body of specdec_chat_json: as specdec_chat_messages, for a conversation in JSON, json[length]. */
static specdec_result specdec__call_chat_json(specdec *t, const char *json, size_t length)
{
    specdec_result result = specdec__check_call_arguments(t, json != NULL);
    specdec_chat_input input;
    specdec__arena arena;

    if (result)
        return result;
    length = length == SPECDEC_WHOLE_STRING ? strlen(json) : length;
    arena = specdec__scratch_arena(t);
    result = specdec__conversation_read(json, length, &arena, &input, &t->error);
    return result ? result : specdec__engine_replace_conversation(t, &input, &arena);
}

/* ---- Answers in parts. */

/* Finds the control tokens by which the model's chat format marks tool calls, and stores them in m->marks
   (m->mark_count). Calls in JSON and in Python have none. */
static void specdec__part_find_call_marks(const specdec *t, specdec__masker *m)
{
    const specdec__vocab *v = &t->model->vocab;
    const int form = specdec__answer_current_call_row(&t->splitter)->form;
    uint32_t i;

    m->mark_count = 0;
    if (form == SPECDEC__CALLS_JSON || form == SPECDEC__CALLS_PYTHON)
        return;
    for (i = 0; i < v->special_count && m->mark_count < SPECDEC__CONSTRAINED_CALL_MARKS; i++)
        if (!specdec__vocab_is_end_token(v, (int32_t)v->specials[i]) && (int)v->specials[i] < m->vocab_size &&
            specdec__answer_marks_contain_token(&t->splitter, specdec__vocab_token_text(v, v->specials[i])))
            m->marks[m->mark_count++] = (int32_t)v->specials[i];
}

/* Switches a sequence's constraint where a tool call begins or ends: settings.calls within a call, from its mark on,
   and settings.constraint behind it. Pending tokens were decoded with the former constraint, and are dropped. */
static void specdec__part_switch_constraint(specdec *t)
{
    specdec_splitter *s = &t->splitter;
    const specdec_constraint *calls = t->settings.calls;
    const char *before = s->started > 1 ? specdec__answer_unmarked_call_beginnings[s->started - 2] : "";
    const size_t since = (size_t)s->since;
    specdec_constraint_state *state = &t->constrained.state[1];

    if (!calls || !t->constrained.masker || (s->started != 0) == t->in_call)
        return;
    if (s->started) { /* what is behind the mark has been read */
        specdec__constraint_first_state(calls, state);
        if (specdec_constraint_advance(calls, state, before, strlen(before)) < strlen(before) ||
            specdec_constraint_advance(calls, state, s->input - since, since) < since) {
            specdec__answer_turn_call_into_text(s);
            return;
        }
    }
    if (t->handed_out < t->count)
        specdec__engine_discard_pending(t);
    t->in_call = s->started != 0;
    specdec__stream_set_constraint(t, &t->settings);
    specdec__constrained_begin_behind(&t->constrained, t->handed_out);
    t->constrained.anchored = t->constrained.spelled = t->in_call;
    if (t->constrained.masker->mark_count < 0)
        specdec__part_find_call_marks(t, t->constrained.masker);
}

/* Returns the next part of the sequence's answer, for specdec_next_part (work 1) and specdec_take_part (work 0: without
   a step). */
static specdec_result specdec__call_next_part(specdec *t, int work, specdec_part *part)
{
    specdec_result result = specdec__check_call_arguments(t, part != NULL);
    specdec_text piece;

    if (result)
        return result;
    memset(part, 0, sizeof *part);
    part->call = -1;
    if (!t->parts) {
        specdec__answer_begin_splitter(&t->splitter, t->engine->chat.calls, t->engine->chat.thoughts,
                                       t->prompt_in_thought);
        t->parts = 1;
    }
    if (SPECDEC__HAS_CONSTRAINTS)
        specdec__tools_set_splitter_argument_kinds(&t->splitter, t->settings.calls);
    for (;;) {
        if (specdec__answer_next_part(&t->splitter, part))
            return SPECDEC_OK;
        if (SPECDEC__HAS_CONSTRAINTS && t->parts == 1)
            specdec__part_switch_constraint(t);
        result = specdec__return_piece(t, work, &piece);
        if (result != SPECDEC_OK && result != SPECDEC_DONE)
            return result;
        if (piece.length) {
            memcpy(t->part_bytes, piece.bytes, piece.length);
            specdec__answer_push_bytes(&t->splitter, (const char *)t->part_bytes, piece.length);
        } else if (t->parts == 1) {
            specdec__answer_push_bytes(&t->splitter, NULL, 0);
            t->parts = 2;
        } else {
            return SPECDEC_DONE;
        }
    }
}

specdec_result specdec_splitter_begin(specdec_splitter *splitter, const char *calls, const char *thoughts, int inside)
{
    const specdec__calls *row = calls ? specdec__answer_find_call_row_by_name(calls) : NULL;
    const specdec__thoughts *thought = thoughts ? specdec__answer_find_thought_row_by_name(thoughts) : NULL;

    if (!splitter || (calls && !row) || (thoughts && !thought))
        return SPECDEC_ERROR_ARGUMENT;
    specdec__answer_begin_splitter(splitter, row, thought, inside);
    return SPECDEC_OK;
}

void specdec_splitter_push(specdec_splitter *splitter, const char *bytes, size_t length)
{
    if (splitter)
        specdec__answer_push_bytes(splitter, bytes, bytes && length == SPECDEC_WHOLE_STRING ? strlen(bytes) : length);
}

int specdec_splitter_next(specdec_splitter *splitter, specdec_part *part)
{
    return splitter && part && specdec__answer_next_part(splitter, part);
}

SPECDEC__FOR_SPEED
