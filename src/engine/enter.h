/* =====================================================================================================================
 * >>engine/enter: the API's calls on engines: one thread at a time.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "../base/pool.h"
#include "engine.h"
#include "sequences.h"
#include "../schedule/stop.h"
#include "../schedule/work.h"
#include "api.h"
#include "api_chat.h"
#include "api_functions.h"
#include "save.h"

SPECDEC__FOR_SIZE

/* Begins a call of the API on an engine. Returns 0, and changes nothing, if the call is an error: another thread is in
   a call, the call comes from one of the engine's own hooks, or the engine has ended. Otherwise returns 1. */
static SPECDEC__NOINLINE int specdec__enter_call(specdec *t)
{
    int seen = 0;

    return t && !t->engine->ended && SPECDEC__SWAP(&t->engine->busy, &seen, 1);
}

/* Ends a call of the API on an engine, so that the next one may begin. result: that of the call. Returns `result`. */
static specdec_result specdec__leave_call(specdec *t, specdec_result result)
{
    SPECDEC__STORE(&t->engine->busy, 0);
    return result;
}

/* Begins a call of the API that appends a prompt, as specdec__enter_call does. A cancellation made before such a call
   was meant for an earlier call: it is cleared, but set again if the call fails. */
static SPECDEC__NOINLINE int specdec__enter_prompt_call(specdec *t)
{
    if (!specdec__enter_call(t))
        return 0;
    t->cancelled_before_prompt = SPECDEC__LOAD(&t->cancel);
    if (t->cancelled_before_prompt)
        SPECDEC__STORE(&t->cancel, 0);
    return 1;
}

/* Ends a call of the API that appends a prompt. result: that of the call. Returns `result`. */
static SPECDEC__NOINLINE specdec_result specdec__leave_prompt_call(specdec *t, specdec_result result)
{
    if (t->cancelled_before_prompt && result && result != SPECDEC_ERROR_CANCELLED)
        SPECDEC__STORE(&t->cancel, 1);
    return specdec__leave_call(t, result);
}

specdec_result specdec_serve(specdec *t)
{
    return specdec__enter_call(t) ? specdec__leave_call(t, specdec__call_serve(t)) : SPECDEC_ERROR_ARGUMENT;
}

specdec_result specdec_open(specdec *t, specdec **opened)
{
    if (opened)
        *opened = NULL;
    return specdec__enter_call(t) ? specdec__leave_call(t, specdec__call_open(t, 0, opened)) : SPECDEC_ERROR_ARGUMENT;
}

specdec_result specdec_fork(specdec *t, specdec **fork)
{
    if (fork)
        *fork = NULL;
    return specdec__enter_call(t) ? specdec__leave_call(t, specdec__call_fork(t, fork)) : SPECDEC_ERROR_ARGUMENT;
}

specdec_result specdec_join_forks(specdec *t, char *bytes, size_t room, size_t *length)
{
    return specdec__enter_call(t) ? specdec__leave_call(t, specdec__call_join_forks(t, bytes, room, length))
                             : SPECDEC_ERROR_ARGUMENT;
}

specdec_result specdec_save_history(specdec *t, void *data, size_t room, size_t *bytes)
{
    return specdec__enter_call(t) ? specdec__leave_call(t, specdec__call_save_history(t, data, room, bytes))
                             : SPECDEC_ERROR_ARGUMENT;
}

specdec_result specdec_load_history(specdec *t, const void *data, size_t size)
{
    return specdec__enter_call(t) ? specdec__leave_call(t, specdec__call_load_history(t, data, size))
                                  : SPECDEC_ERROR_ARGUMENT;
}

specdec_result specdec_set(specdec *t, const specdec_settings *settings)
{
    return specdec__enter_call(t) ? specdec__leave_call(t, specdec__call_set(t, settings)) : SPECDEC_ERROR_ARGUMENT;
}

specdec_result specdec_prompt(specdec *t, const char *text, size_t length)
{
    return specdec__enter_prompt_call(t) ? specdec__leave_prompt_call(t, specdec__call_prompt(t, text, length))
                                    : SPECDEC_ERROR_ARGUMENT;
}

specdec_result specdec_prompt_special(specdec *t, const char *text, size_t length)
{
    return specdec__enter_prompt_call(t) ? specdec__leave_prompt_call(t, specdec__call_prompt_special(t, text, length))
                                    : SPECDEC_ERROR_ARGUMENT;
}

specdec_result specdec_prompt_tokens(specdec *t, const int32_t *tokens, int count)
{
    return specdec__enter_prompt_call(t) ? specdec__leave_prompt_call(t, specdec__call_prompt_tokens(t, tokens, count))
                                    : SPECDEC_ERROR_ARGUMENT;
}

specdec_result specdec_prompt_logits(specdec *t, const int32_t *tokens, int count, float *logits)
{
    if (!specdec__enter_prompt_call(t))
        return SPECDEC_ERROR_ARGUMENT;
    return specdec__leave_prompt_call(t, specdec__call_prompt_logits(t, tokens, count, logits));
}

specdec_result specdec_prompt_states(specdec *t, const int32_t *tokens, int count, const int *layers, int layer_count,
                                     float *states)
{
    if (!specdec__enter_prompt_call(t))
        return SPECDEC_ERROR_ARGUMENT;
    return specdec__leave_prompt_call(t, specdec__call_prompt_states(t, tokens, count, layers, layer_count, states));
}

specdec_result specdec_chat(specdec *t, const specdec_message *messages, int count)
{
    return specdec__enter_prompt_call(t) ? specdec__leave_prompt_call(t, specdec__call_chat(t, messages, count))
                                    : SPECDEC_ERROR_ARGUMENT;
}

specdec_result specdec_chat_messages(specdec *t, const specdec_chat_input *input)
{
    return specdec__enter_prompt_call(t) ? specdec__leave_prompt_call(t, specdec__call_chat_messages(t, input))
                                    : SPECDEC_ERROR_ARGUMENT;
}

specdec_result specdec_chat_json(specdec *t, const char *json, size_t length)
{
    return specdec__enter_prompt_call(t) ? specdec__leave_prompt_call(t, specdec__call_chat_json(t, json, length))
                                    : SPECDEC_ERROR_ARGUMENT;
}

specdec_result specdec_next_part(specdec *t, specdec_part *part)
{
    return specdec__enter_call(t) ? specdec__leave_call(t, specdec__call_next_part(t, 1, part))
                                  : SPECDEC_ERROR_ARGUMENT;
}

specdec_result specdec_take_part(specdec *t, specdec_part *part)
{
    return specdec__enter_call(t) ? specdec__leave_call(t, specdec__call_next_part(t, 0, part))
                                  : SPECDEC_ERROR_ARGUMENT;
}

specdec_result specdec_work(specdec *t)
{
    return specdec__enter_call(t) ? specdec__leave_call(t, specdec__call_work(t)) : SPECDEC_ERROR_ARGUMENT;
}

specdec_result specdec_step(specdec *t, const int32_t **tokens, int *count)
{
    return specdec__enter_call(t) ? specdec__leave_call(t, specdec__call_step(t, tokens, count))
                                  : SPECDEC_ERROR_ARGUMENT;
}

specdec_result specdec_next(specdec *t, specdec_text *piece)
{
    return specdec__enter_call(t) ? specdec__leave_call(t, specdec__call_next(t, piece)) : SPECDEC_ERROR_ARGUMENT;
}

specdec_result specdec_take(specdec *t, specdec_text *piece)
{
    return specdec__enter_call(t) ? specdec__leave_call(t, specdec__call_take(t, piece)) : SPECDEC_ERROR_ARGUMENT;
}

specdec_result specdec_cut_stop(specdec *t)
{
    return specdec__enter_call(t) ? specdec__leave_call(t, specdec__call_cut_stop(t)) : SPECDEC_ERROR_ARGUMENT;
}

specdec_result specdec_rewind(specdec *t, int count)
{
    return specdec__enter_call(t) ? specdec__leave_call(t, specdec__call_rewind(t, count)) : SPECDEC_ERROR_ARGUMENT;
}

specdec_result specdec_get_logprob(specdec *t, int at, specdec_logprob *logprob)
{
    return specdec__enter_call(t) ? specdec__leave_call(t, specdec__call_get_logprob(t, at, logprob))
                                  : SPECDEC_ERROR_ARGUMENT;
}

specdec_result specdec_logits(specdec *t, const int32_t *tokens, const int32_t *parents, int count, float *logits)
{
    return specdec__enter_call(t) ? specdec__leave_call(t, specdec__call_logits(t, tokens, parents, count, logits))
                             : SPECDEC_ERROR_ARGUMENT;
}

specdec_result specdec_score(specdec *t, const char *const *labels, int count, double *scores)
{
    return specdec__enter_call(t) ? specdec__leave_call(t, specdec__call_score(t, labels, count, scores))
                             : SPECDEC_ERROR_ARGUMENT;
}

specdec_result specdec_set_tree(specdec *t, const specdec_tree *tree)
{
    return specdec__enter_call(t) ? specdec__leave_call(t, specdec__call_set_tree(t, tree)) : SPECDEC_ERROR_ARGUMENT;
}

specdec_result specdec_save(specdec *t, void *data, size_t room, size_t *bytes)
{
    return specdec__enter_call(t) ? specdec__leave_call(t, specdec__call_save(t, data, room, bytes))
                                  : SPECDEC_ERROR_ARGUMENT;
}

specdec_result specdec_load(specdec *t, const void *data, size_t size)
{
    return specdec__enter_call(t) ? specdec__leave_call(t, specdec__call_load(t, data, size)) : SPECDEC_ERROR_ARGUMENT;
}

void specdec_close(specdec *t)
{
    if (!specdec__enter_call(t))
        return;
    if (t->open) {
        specdec__engine_drop_children(t, 0);
        specdec__engine_close_sequence(t);
    }
    specdec__leave_call(t, SPECDEC_OK);
}

void specdec_drop_prefixes(specdec *t)
{
    int i;

    if (!specdec__enter_call(t))
        return;
    specdec__async_drop_drafts(t, t->count);   /* ends what a lane does */
    for (i = 0; i < t->engine->room.kept_views; i++)
        specdec__engine_drop_kept_sequence(t->engine, i);
    specdec__leave_call(t, SPECDEC_OK);
}

void specdec_deinit(specdec *t)
{
    int i;

    if (!specdec__enter_call(t))
        return;
    specdec__async_drop_drafts(t, 0);
    if (SPECDEC__PIPE && t->engine->remote)
        t->engine->remote->disconnect(t->engine);
    specdec__pool_deinit(&t->engine->pool);
    specdec__engine_close_models(t->engine);
    for (i = 0; i < t->engine->room.max_views; i++)
        t->engine->sequences[i].open = 0;
    t->engine->ended = 1; /* for calls that come all the same, as long as the block lies there */
    specdec__leave_call(t, SPECDEC_OK);
}

SPECDEC__FOR_SPEED
