/* =====================================================================================================================
 * >>engine/api_model: bodies of the API: prepared models, tokens.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "../base/pool.h"
#include "../kernel/kernel.h"
#include "../kernel/dispatch.h"
#include "../text/vocabulary.h"
#include "../text/load.h"
#include "../text/tokenize.h"
#include "../text/decode.h"
#include "../model/open.h"
#include "layout.h"
#include "api.h"

SPECDEC__FOR_SIZE

/* Opens config->target as *m, and lays out its memory in an arena, which may only count: its indexes, the threads that
   repack its weights (*pool, which has ended when this returns), and the repacked weights. */
static specdec_result specdec__model_open_and_lay_out(const specdec_config *config, specdec_model *m,
                                                      specdec__pool *pool, specdec__arena *arena, specdec_error *error)
{
    int threads = config->threads ? config->threads : specdec__os_count_processors(), cancel = 0;
    specdec__kernels unused;
    specdec_result result;

    memset(pool, 0, sizeof *pool);
    memset(m, 0, sizeof *m);
    if ((result = specdec__engine_check_config_integers(config, 1, error)) != SPECDEC_OK ||
        (result = specdec__kernels_init(&unused, config->isa, error)) != SPECDEC_OK)
        return result;
    result = specdec__model_init(m, &config->target, config->vocabulary_only, NULL, arena, error);
    if (result || config->vocabulary_only)
        return result;
    threads = specdec__min_int(threads, SPECDEC_MAX_THREADS);
    result = specdec__pool_init(pool, threads, &cancel, &config->hooks, arena, error);
    if (!result && !config->weights_in_place)
        result = specdec__model_repack_matrices(m, specdec__engine_output_planes_mode(config, &unused), arena, pool,
                                                &config->hooks, error);
    specdec__pool_deinit(pool);
    return result;
}

specdec_result specdec_model_memory_needed(const specdec_config *config, size_t *bytes, specdec_error *error)
{
    specdec__arena arena = {NULL, 0, 0};
    specdec__pool pool;
    specdec_model model;
    specdec_result result;

    if (!config || !bytes)
        return specdec__fail_missing_argument(error);
    memset(&model, 0, sizeof model);
    SPECDEC__TAKE(&arena, specdec_model, 1);
    result = specdec__model_open_and_lay_out(config, &model, &pool, &arena, error);
    if (!result)
        result = specdec__counted_block_bytes(&arena, bytes, error);
    specdec__model_deinit(&model);
    return result;
}

specdec_result specdec_model_init(specdec_model **model, const specdec_config *config, void *memory, size_t bytes,
                                  specdec_error *error)
{
    specdec__arena arena;
    specdec__pool pool;
    size_t needed;
    specdec_model *m;
    specdec_result result;

    if (!model)
        return specdec__fail_missing_argument(error);
    *model = NULL;
    result = specdec_model_memory_needed(config, &needed, error);
    if (result)
        return result;
    if (!memory || bytes < needed)
        return specdec__fail_small_block(memory ? bytes : 0, needed, error);
    arena = specdec__block_arena(memory, needed);
    m = SPECDEC__TAKE(&arena, specdec_model, 1);
    result = specdec__model_open_and_lay_out(config, m, &pool, &arena, error);
    if (!result && arena.used == SIZE_MAX)
        result = specdec__fail_small_block(bytes, needed, error);
    if (result) {
        specdec__model_deinit(m);
        return result;
    }
    specdec__vocab_log_assumptions(&m->vocab, &config->hooks);
    *model = m;
    return SPECDEC_OK;
}

void specdec_model_deinit(specdec_model *model)
{
    if (model)
        specdec__model_deinit(model);
}

size_t specdec_tokenize_memory(const specdec_model *model, size_t length)
{
    return model ? specdec__tokenize_scratch_bytes(&model->vocab, length) : 0;
}

specdec_result specdec_tokenize(const specdec_model *model, const char *text, size_t length, int flags, int32_t *tokens,
                                int capacity, int *count, void *memory, size_t bytes, specdec_error *error)
{
    size_t all = 0;
    specdec_result result;

    if (!model || (!text && length) || !count || (capacity > 0 && !tokens))
        return specdec__fail_missing_argument(error);
    length = length == SPECDEC_WHOLE_STRING ? strlen(text) : length;
    if (!model->vocab.count)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "a file of heads has no vocabulary");
    if (length > SPECDEC__TEXT_MAX_BYTES / 4) /* so that tokens can be counted by an int */
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "a text of %zu bytes is too long", length);
    result = specdec__tokenize(&model->vocab, text, length,
                               flags & (SPECDEC_TOKENIZE_BEGIN | SPECDEC_TOKENIZE_END | SPECDEC_TOKENIZE_SPECIAL |
                                        SPECDEC_TOKENIZE_INSIDE),
                               NULL, tokens, (size_t)specdec__max_int(capacity, 0), &all, memory, bytes, error);
    *count = (int)all;
    return result;
}

/* Finds the chat format of a conversation (*chat), and renders its messages into *out, as far as out->size bytes have
   room. out->needed becomes the number of bytes of the whole text. */
static specdec_result specdec__conversation_count_bytes(const specdec_model *model, const specdec_conversation *c,
                                                        specdec__chat *chat, specdec__chat_text *out,
                                                        specdec_error *error)
{
    const specdec__vocab *v = &model->vocab;
    specdec_result result;

    if (!v->count)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "a file of heads has no vocabulary");
    if ((result = specdec__chat_choose_format(chat, model->chat, v, c->chat_format, error)) != SPECDEC_OK)
        return result;
    if (!SPECDEC__HAS_CHAT_FORMATS || !chat->format)
        return specdec__chat_refuse_unknown_format(chat, error);
    if (c->count < 1 || !c->messages)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "%d messages", c->messages ? c->count : 0);
    out->needed = 0;
    result = specdec__chat_render(chat, specdec__chat_token_text(v, v->eos), 0, c->messages, c->count, out, error);
    if (out->needed > SPECDEC__TEXT_MAX_BYTES / 4)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "a text of %zu bytes is too long", out->needed);
    return result == SPECDEC_ERROR_BUFFER && !out->size ? SPECDEC_OK : result;
}

size_t specdec_chat_tokens_memory(const specdec_model *model, const specdec_conversation *conversation)
{
    specdec__chat chat;
    specdec__chat_text out;

    memset(&out, 0, sizeof out);
    if (!model || !conversation || specdec__conversation_count_bytes(model, conversation, &chat, &out, NULL))
        return 0;
    return specdec__size_add(out.needed + out.needed / 8 + 1,
                             specdec__tokenize_scratch_bytes(&model->vocab, out.needed));
}

specdec_result specdec_chat_tokens(const specdec_model *model, const specdec_conversation *conversation,
                                   int32_t *tokens, int capacity, int *count, void *memory, size_t bytes,
                                   specdec_error *error)
{
    specdec__chat chat;
    specdec__chat_text out;
    specdec_result result;
    size_t all = 0, own;

    if (!model || !conversation || !count || (capacity > 0 && !tokens) || (bytes && !memory))
        return specdec__fail_missing_argument(error);
    *count = 0;
    memset(&out, 0, sizeof out);
    result = specdec__conversation_count_bytes(model, conversation, &chat, &out, error);
    if (result)
        return result;
    own = out.needed + out.needed / 8 + 1;
    if (bytes < own)
        return specdec__fail(error, SPECDEC_ERROR_MEMORY, "%zu bytes of working memory are too few", bytes);
    out.text = (char *)memory;
    out.marks = (unsigned char *)memory + out.needed;
    out.size = out.needed;
    result = specdec__conversation_count_bytes(model, conversation, &chat, &out, error);
    if (!result)
        result = specdec__tokenize(&model->vocab, out.text, out.needed,
                                   SPECDEC_TOKENIZE_BEGIN | specdec__chat_tokenize_flags(&chat, &model->vocab, &out, 0),
                                   out.marks, tokens, (size_t)specdec__max_int(capacity, 0), &all,
                                   (unsigned char *)memory + own, bytes - own, error);
    *count = (int)all;
    return result;
}

int specdec_token_kind(const specdec_model *model, int32_t token)
{
    static const unsigned char kinds[] = {0, 0, SPECDEC_TOKEN_UNKNOWN, SPECDEC_TOKEN_CONTROL,
                                          SPECDEC_TOKEN_USER_DEFINED, SPECDEC_TOKEN_UNUSED, SPECDEC_TOKEN_BYTE};
    const specdec__vocab *v;

    if (!model || token < 0 || (uint32_t)token >= model->vocab.count)
        return -1;
    v = &model->vocab;
    return kinds[specdec__vocab_token_type(v, (uint32_t)token)] |
           (specdec__vocab_is_end_token(v, token) ? SPECDEC_TOKEN_END : 0) |
           (token == v->bos ? SPECDEC_TOKEN_BEGIN : 0);
}

specdec_result specdec_token_text(const specdec_model *model, int32_t token, char *bytes, size_t size, size_t *length,
                                  specdec_error *error)
{
    if (!model || !length || (size && !bytes))
        return specdec__fail_missing_argument(error);
    return specdec__token_write_bytes(&model->vocab, token, 1, (unsigned char *)bytes, size, length, error);
}

/* Sets *room to the bytes that the text of tokens[count] has, at most: those of all tokens, and three of an unfinished
   character behind them. special 1: control tokens are spelled. */
static specdec_result specdec__detokenize_max_bytes(const specdec_model *model, const int32_t *tokens, int count,
                                                    int special, size_t *room, specdec_error *error)
{
    size_t more;
    int i;

    for (*room = 3, i = 0; i < count; i++) {
        specdec_result result = specdec__token_write_bytes(&model->vocab, tokens[i], special, NULL, 0, &more, error);

        if (result && result != SPECDEC_ERROR_BUFFER)
            return result;
        *room = specdec__size_add(*room, more);
    }
    return SPECDEC_OK;
}

specdec_result specdec_detokenize(const specdec_model *model, const int32_t *tokens, int count, int flags, char *bytes,
                                  size_t size, size_t *length, specdec_error *error)
{
    const int special = (flags & SPECDEC_TOKENIZE_SPECIAL) != 0;
    unsigned char *out = (unsigned char *)bytes;
    specdec__text_decoder stream;
    specdec_result result;
    size_t room, more, at = 0;
    int i;

    if (!model || !length || (count > 0 && !tokens) || (size && !bytes))
        return specdec__fail_missing_argument(error);
    if (count < 0)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "%d tokens", count);
    result = specdec__detokenize_max_bytes(model, tokens, count, special, &room, error);
    *length = result ? 0 : room;
    if (result)
        return result;
    if (room > size)
        return specdec__fail(error, SPECDEC_ERROR_BUFFER, "%zu bytes are needed, there is room for %zu", room, size);
    specdec__text_decoder_begin(&stream, &model->vocab, -1, special);
    for (i = 0; i < count; i++) {
        result = specdec__text_decoder_push(&stream, &model->vocab, tokens[i], out + at, size - at, &more, error);
        if (result)
            return result;
        at += more;
    }
    *length = at + specdec__text_decoder_end(&stream, out + at);
    return SPECDEC_OK;
}

SPECDEC__FOR_SPEED
