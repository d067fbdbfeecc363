/* =====================================================================================================================
 * >>text/decode: tokens to text, whole UTF-8 characters at a time.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "vocabulary.h"
#include "unicode.h"

SPECDEC__FOR_SIZE

/* Converts a token's text to the bytes that it stands for: the inverse of specdec__text_spell_byte_in_token. Returns
   the number of bytes; out may be NULL. model: SPECDEC__VOCAB_SPM to _BPE_OF_CHARACTERS. */
static size_t specdec__text_token_to_bytes(int model, specdec__bytes text, unsigned char *out)
{
    size_t at = 0, count = 0;

    while (at < text.size) {
        size_t size = 1, i;
        int byte = -1;

        if (!SPECDEC__VOCAB_IS_BYTES(model)) {
            if (text.size - at >= 3 && memcmp(text.data + at, "\xe2\x96\x81", 3) == 0) {
                byte = ' ';
                size = 3;
            }
        } else {
            specdec__text_character c = specdec__text_character_at(text.data, text.size, at);
            byte = specdec__text_code_to_byte(c.code);
            size = (size_t)c.size;
        }
        for (i = 0; i < (byte < 0 ? size : 1); i++, count++)
            if (out)
                out[count] = byte < 0 ? text.data[at + i] : (unsigned char)byte;
        at += size;
    }
    return count;
}

/* Writes the bytes that a token stands for to out[size]. Unknown and control tokens have none unless show_special is
   set. *needed: number of these bytes, at most v->longest_bytes; if it is above size, out is untouched (BUFFER). Error:
   ARGUMENT for an id outside the vocabulary. */
static SPECDEC__UNUSED specdec_result specdec__token_write_bytes(const specdec__vocab *v, int32_t id, int show_special,
                                                                 unsigned char *out, size_t size, size_t *needed,
                                                                 specdec_error *error)
{
    specdec__bytes text;
    int type, byte;

    *needed = 0;
    if (id < 0 || (uint32_t)id >= v->count)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "token %d is not in the vocabulary of %u", (int)id,
                             v->count);
    text = specdec__vocab_token_text(v, (uint32_t)id);
    type = specdec__vocab_token_type(v, (uint32_t)id);
    byte = type == SPECDEC__TOKEN_BYTE ? specdec__vocab_byte_of_hex_text(text) : -1;
    if (specdec__vocab_type_is_special(type))
        *needed = type == SPECDEC__TOKEN_USER_DEFINED || show_special ? text.size : 0;
    else
        *needed = byte >= 0 ? 1 : specdec__text_token_to_bytes(v->model, text, NULL);
    if (*needed > size)
        return specdec__fail(error, SPECDEC_ERROR_BUFFER, "token %d has %zu bytes, there is room for %zu", (int)id,
                             *needed,
                             size);
    if (!*needed)
        return SPECDEC_OK;
    if (byte >= 0)
        out[0] = (unsigned char)byte;
    else if (specdec__vocab_type_is_special(type))
        memcpy(out, text.data, text.size);
    else
        specdec__text_token_to_bytes(v->model, text, out);
    return SPECDEC_OK;
}

/* A decoder of tokens to text in whole UTF-8 characters: an incomplete character is held back until the next token. */
typedef struct specdec__text_decoder {
    unsigned char held[3]; /* (held_count) first bytes of an incomplete character, held back */
    int held_count;        /* number of bytes that are held back, 0 to 3 */
    int drop_space;        /* 1: the next plain token begins a text: the space that SPM put in front of it is dropped */
    int show_special;      /* 1: control tokens are written as they are spelled */
} specdec__text_decoder;

/* Initialises a decoder for a text. previous: the token in front of the first one to be decoded; -1: none. */
static SPECDEC__UNUSED void specdec__text_decoder_begin(specdec__text_decoder *decoder, const specdec__vocab *v,
                                                        int32_t previous, int show_special)
{
    memset(decoder, 0, sizeof *decoder);
    decoder->show_special = show_special;
    decoder->drop_space = previous < 0 || (uint32_t)previous >= v->count ||
                         specdec__vocab_type_is_special(specdec__vocab_token_type(v, (uint32_t)previous));
}

/* Returns the number of bytes at the end of a text that may be the beginning of an incomplete character, 0 to 3. */
static size_t specdec__text_incomplete_bytes(const unsigned char *text, size_t length)
{
    size_t back;

    for (back = 1; back <= 3 && back <= length; back++)
        if (specdec__utf8_sequence_bytes(text + length - back, back) < 0)
            return back;
    return 0;
}

/* Decodes a token: writes *written bytes of text to out, for which v->longest_bytes + 3 bytes of room are always
   enough. Bytes that cannot become valid UTF-8 are written as they are. Errors as specdec__token_write_bytes; a failed
   call changes nothing. */
static SPECDEC__UNUSED specdec_result specdec__text_decoder_push(specdec__text_decoder *decoder,
                                                                 const specdec__vocab *v, int32_t id,
                                                                 unsigned char *out, size_t size, size_t *written,
                                                                 specdec_error *error)
{
    size_t held = (size_t)decoder->held_count, count, incomplete;
    specdec_result result;
    int type;

    *written = 0;
    if (size < held)
        return specdec__fail(error, SPECDEC_ERROR_BUFFER, "%zu bytes are ready, there is room for %zu", held, size);
    result = specdec__token_write_bytes(v, id, decoder->show_special, out + held, size - held, &count, error);
    if (result)
        return result;
    type = specdec__vocab_token_type(v, (uint32_t)id);
    if (decoder->drop_space && !SPECDEC__VOCAB_IS_BPE(v->model) && v->add_space_prefix && count && out[held] == ' ' &&
        !specdec__vocab_type_is_special(type) && type != SPECDEC__TOKEN_BYTE)
        memmove(out + held, out + held + 1, --count);
    decoder->drop_space = specdec__vocab_type_is_special(type);
    memcpy(out, decoder->held, held);
    count += held;
    incomplete = specdec__text_incomplete_bytes(out, count);
    memcpy(decoder->held, out + count - incomplete, incomplete);
    decoder->held_count = (int)incomplete;
    *written = count - incomplete;
    return SPECDEC_OK;
}

/* Writes the bytes that the decoder still holds back, at most 3, to out. Returns their number. */
static SPECDEC__UNUSED size_t specdec__text_decoder_end(specdec__text_decoder *decoder, unsigned char out[3])
{
    size_t count = (size_t)decoder->held_count;

    memcpy(out, decoder->held, count);
    decoder->held_count = 0;
    return count;
}

SPECDEC__FOR_SPEED
