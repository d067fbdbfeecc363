/* =====================================================================================================================
 * >>engine/api_chat: bodies of the API: whole conversations, answers in parts.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../text/answer.h"
#include "stream.h"
#include "engine.h"
#include "api.h"

SPECDEC__FOR_SIZE

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
