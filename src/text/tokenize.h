/* =====================================================================================================================
 * >>text/tokenize: text to tokens.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "vocabulary.h"
#include "lookup.h"
#include "load.h"
#include "merge.h"

SPECDEC__FOR_SIZE

/* A part of a text in which some special tokens are still to be searched: from v->specials[next_special] on. */
typedef struct specdec__tokenize_frame {
    uint32_t end;          /* byte offset in the text at which the part ends */
    uint32_t next_special; /* index in v->specials of the next special token to be searched */
} specdec__tokenize_frame;

/* Returns the bytes of scratch memory with which specdec__tokenize takes any text of `length` bytes: about 13 for each.
   Less is enough when the longest word (BPE) or the longest part without spaces (SPM) is shorter than the text. */
static SPECDEC__UNUSED size_t specdec__tokenize_scratch_bytes(const specdec__vocab *v, size_t length)
{
    size_t frames = (v->special_count < length ? v->special_count : length) + 1;

    return specdec__size_add(specdec__size_add(specdec__text_merge_scratch_bytes(specdec__size_add(length, 1)),
                                               specdec__size_multiply(frames, sizeof(specdec__tokenize_frame))),
                             3 * sizeof(uint32_t)); /* for alignment */
}

/* Tokenizes a text without special tokens, and appends the tokens to `sink`. prefix: 1 to put a space in front of the
   text, else 0. */
static specdec_result specdec__text_tokenize_plain(const specdec__vocab *v, const unsigned char *text, size_t length,
                                                   size_t prefix, specdec__token_sink *sink, uint32_t *scratch,
                                                   size_t scratch_size, specdec_error *error)
{
    while (length) {
        specdec__text_stretch run;
        size_t size = specdec__text_first_stretch_bytes(v, text, length);
        specdec_result result;

        run.text = text;
        run.prefix = prefix;
        run.length = size + prefix;
        result = specdec__text_tokenize_stretch(v, &run, sink, scratch, scratch_size, error);
        if (result)
            return result;
        text += size;
        length -= size;
        prefix = 0;
    }
    return SPECDEC_OK;
}

/* Returns the first offset in [from, end) at which a text contains the text of a token; end: there is none. */
static size_t specdec__text_find_token_text(const unsigned char *text, size_t from, size_t end, specdec__bytes what)
{
    while (end - from >= what.size) {
        const unsigned char *at = (const unsigned char *)memchr(text + from, what.data[0], end - from - what.size + 1);

        if (!at)
            return end;
        from = (size_t)(at - text);
        if (memcmp(at, what.data, what.size) == 0)
            return from;
        from++;
    }
    return end;
}

/* Returns the first offset in [from, end) of a text at which the special token `id` is recognised; end: there is none.
   Bytes whose bit in plain is 1 (NULL: no bytes) only spell user-defined tokens. */
static size_t specdec__text_find_special_token(const specdec__vocab *v, uint32_t id, const unsigned char *text,
                                               size_t from, size_t end, int flags, const unsigned char *plain)
{
    const int anywhere = specdec__vocab_token_type(v, id) == SPECDEC__TOKEN_USER_DEFINED;
    const specdec__bytes what = specdec__vocab_token_text(v, id);
    size_t i;

    if (!anywhere && !(flags & SPECDEC_TOKENIZE_SPECIAL))
        return end;
    for (;; from++) {
        from = specdec__text_find_token_text(text, from, end, what);
        for (i = from; plain && !anywhere && i < from + what.size && from < end; i++)
            if (plain[i / 8] >> i % 8 & 1)
                break;
        if (from == end || !plain || anywhere || i == from + what.size)
            return from;
    }
}

/* Splits a text at special tokens, the longest one first, then the next longest in the remaining parts, and tokenizes
   the parts between them. plain: see specdec__text_find_special_token. Frames grow from the beginning of scratch; the
   memory behind them is for merging. */
static specdec_result specdec__text_tokenize_with_specials(const specdec__vocab *v, const unsigned char *text,
                                                           size_t length, int flags, const unsigned char *plain,
                                                           specdec__token_sink *sink, uint32_t *scratch, size_t words,
                                                           specdec_error *error)
{
    specdec__tokenize_frame *frames = (specdec__tokenize_frame *)(void *)scratch;
    size_t depth = 1, at = 0, room = words * sizeof(uint32_t) / sizeof *frames;
    int after_special = !(flags & SPECDEC_TOKENIZE_INSIDE);

    if (!room)
        return specdec__fail(error, SPECDEC_ERROR_MEMORY, "the scratch memory is too small");
    frames[0].end = (uint32_t)length;
    frames[0].next_special = 0;
    while (depth) {
        specdec__tokenize_frame *frame = &frames[depth - 1];

        if (at == frame->end) {
            depth--;
        } else if (frame->next_special == v->special_count) {
            size_t prefix = !SPECDEC__VOCAB_IS_BPE(v->model) && v->add_space_prefix && after_special;
            specdec_result result =
                specdec__text_tokenize_plain(v, text + at, frame->end - at, prefix, sink, scratch + 2 * depth,
                                             (room - depth) * sizeof *frames, error);
            if (result)
                return result;
            at = frame->end;
            after_special = 0;
        } else {
            uint32_t id = v->specials[frame->next_special];
            specdec__bytes what = specdec__vocab_token_text(v, id);
            size_t found = specdec__text_find_special_token(v, id, text, at, frame->end, flags, plain);

            if (found == frame->end) {
                frame->next_special++;
            } else if (found == at) {
                specdec__text_append_token(sink, (int32_t)id);
                at += what.size;
                while (at < frame->end && specdec__vocab_token_strips_space(v, what) &&
                       memchr(" \t\r\n\v\f", text[at], 6))
                    at++;
                after_special = 1;
            } else if (depth == room) {
                return specdec__fail(error, SPECDEC_ERROR_MEMORY, "the scratch memory is too small");
            } else {
                frames[depth].end = (uint32_t)found;
                frames[depth++].next_special = frame->next_special + 1;
            }
        }
    }
    return SPECDEC_OK;
}

/* Internal flags beside SPECDEC_TOKENIZE_...: write the beginning-of-text token, or do not, whatever add_bos_token
   says. */
enum { SPECDEC__TOKENIZE_ADD_BOS = 32, SPECDEC__TOKENIZE_NO_BOS = 64 };

/* Tokenizes a text, which may contain any bytes. flags: SPECDEC_TOKENIZE_... plain: a bit for each byte, 1: it is part
   of no control token; NULL: all bytes may be. *count: the number of tokens, at most 4 a byte and 5 more, also when it
   is above capacity (BUFFER; then only the first ones are written). scratch: see specdec__tokenize_scratch_bytes;
   MEMORY when it is too small. Takes n log n time. Implements SentencePiece (Kudo and Richardson 2018) and byte-level
   BPE (Radford et al. 2019) as llama.cpp does; invalid UTF-8 counts as characters that are neither letter, number nor
   space. */
static SPECDEC__UNUSED specdec_result specdec__tokenize(const specdec__vocab *v, const char *text, size_t length,
                                                        int flags, const unsigned char *plain, int32_t *tokens,
                                                        size_t capacity, size_t *count, void *scratch,
                                                        size_t scratch_size, specdec_error *error)
{
    size_t skip = (size_t)(0 - (uintptr_t)scratch) & (sizeof(uint32_t) - 1);
    size_t words = scratch && scratch_size > skip ? (scratch_size - skip) / sizeof(uint32_t) : 0;
    uint32_t *aligned = words ? (uint32_t *)(void *)((unsigned char *)scratch + skip) : NULL;
    specdec__token_sink sink;
    specdec_result result = SPECDEC_OK;

    sink.tokens = tokens;
    sink.capacity = capacity;
    sink.count = 0;
    sink.after_unknown = 0;
    *count = 0;
    if (length > SPECDEC__TEXT_MAX_BYTES)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "a text of %zu bytes is too long", length);
    if (((flags & SPECDEC_TOKENIZE_BEGIN && v->add_bos) || flags & SPECDEC__TOKENIZE_ADD_BOS) && v->bos >= 0 &&
        !(flags & SPECDEC__TOKENIZE_NO_BOS))
        specdec__text_append_token(&sink, v->bos);
    if (length)
        result = specdec__text_tokenize_with_specials(v, (const unsigned char *)text, length, flags, plain, &sink,
                                                      aligned, words, error);
    if (result)
        return result;
    if ((flags & SPECDEC_TOKENIZE_END) && v->add_eos && v->eos >= 0)
        specdec__text_append_token(&sink, v->eos);
    *count = sink.count;
    if (sink.count > capacity)
        return specdec__fail(error, SPECDEC_ERROR_BUFFER, "the text has %zu tokens, there is room for %zu", sink.count,
                             capacity);
    return SPECDEC_OK;
}

SPECDEC__FOR_SPEED
