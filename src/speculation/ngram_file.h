/* =====================================================================================================================
 * >>speculation/ngram_file: the n-gram index as a file.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "ngram.h"

SPECDEC__FOR_SIZE

/* The bytes of a file that specdec__ngram_save writes. */
static size_t specdec__ngram_file_size(const specdec__ngram *index)
{
    size_t tokens = (size_t)index->remembered;
    int i;

    for (i = 0; i < index->size.readers; i++)
        if (index->readers[i].length > index->readers[i].from)
            tokens += (size_t)(index->readers[i].length - index->readers[i].from) + 1;
    return SPECDEC__NGRAM_HEAD + tokens * 4 + 8;
}

/* Writes the counted tokens of a live sequence and an end mark. Returns the address behind them. */
static unsigned char *specdec__ngram_save_text(const specdec__ngram_reader *reader, unsigned char *to)
{
    int i;

    for (i = reader->from; i < reader->length; i++, to += 4)
        specdec__store_u32(to, (uint32_t)reader->text[i]);
    if (i == reader->from)
        return to;
    specdec__store_u32(to, (uint32_t)SPECDEC__NGRAM_END);
    return to + 4;
}

/* Writes the tokens that the index counts, of the history and then of the live sequences, as a file into data[room].
   *bytes: the size of the file; data NULL: only that. All numbers are little-endian:
     8 bytes  "SPECSEEN"
     4        version: 1
     4        count
     8        vocabulary: a fingerprint, by which specdec__ngram_load knows files for another tokenizer
     4 each   count tokens; 0xffffffff is the end of a text
     8        FNV-1a of all bytes before
   O(bytes). Errors: SPECDEC_ERROR_BUFFER. */
static specdec_result specdec__ngram_save(const specdec__ngram *index, uint64_t vocabulary, void *data,
                                          size_t room, size_t *bytes, specdec_error *error)
{
    unsigned char *file = (unsigned char *)data, *to;
    int i;

    *bytes = specdec__ngram_file_size(index);
    if (!data)
        return SPECDEC_OK;
    if (*bytes > room)
        return specdec__fail(error, SPECDEC_ERROR_BUFFER, "%zu bytes are needed, there is room for %zu", *bytes, room);
    memcpy(file, "SPECSEEN", 8);
    specdec__store_u32(file + 8, 1);
    specdec__store_u32(file + 12, (uint32_t)((*bytes - SPECDEC__NGRAM_HEAD - 8) / 4));
    specdec__store_u64(file + 16, vocabulary);
    to = file + SPECDEC__NGRAM_HEAD;
    for (i = 0; i < index->remembered; i++, to += 4)
        specdec__store_u32(to, (uint32_t)*specdec__ngram_history_at(index, i));
    for (i = 0; i < index->size.readers; i++)
        to = specdec__ngram_save_text(&index->readers[i], to);
    specdec__store_u64(to, specdec__hash(SPECDEC__HASH, file, *bytes - 8));
    return SPECDEC_OK;
}

/* Checks that data[size] is a file of specdec__ngram_save for this vocabulary; tokens: the size of the vocabulary. */
static specdec_result specdec__ngram_check(const unsigned char *data, size_t size, uint64_t vocabulary, int tokens,
                                           specdec_error *error)
{
    size_t count, i;

    if (size < SPECDEC__NGRAM_HEAD + 8 || memcmp(data, "SPECSEEN", 8) != 0)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "not a file of what was seen");
    if (specdec__load_u32(data + 8) != 1)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "what was seen is of version %u (1 is read)",
                             specdec__load_u32(data + 8));
    count = specdec__load_u32(data + 12);
    if ((size - SPECDEC__NGRAM_HEAD - 8) / 4 != count || size % 4 ||
        specdec__hash(SPECDEC__HASH, data, size - 8) != specdec__load_u64(data + size - 8))
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "the file of what was seen is damaged");
    if (specdec__load_u64(data + 16) != vocabulary)
        return specdec__fail(error, SPECDEC_ERROR_MISMATCH, "what was seen belongs to another vocabulary");
    for (i = 0; i < count; i++) {
        uint32_t token = specdec__load_u32(data + SPECDEC__NGRAM_HEAD + i * 4);

        if (token != (uint32_t)SPECDEC__NGRAM_END && (token >= (uint32_t)tokens || i + 1 == count))
            return specdec__fail(error, SPECDEC_ERROR_FORMAT, "token %zu of what was seen is out of range", i);
    }
    return SPECDEC_OK;
}

/* Reads the sequences of a file of specdec__ngram_save into the history, as if they ended now; the oldest tokens are
   dropped where there is no room. tokens: of the vocabulary. Every byte is checked before any counts. O(size). A file
   that is refused changes nothing. Errors: SPECDEC_ERROR_FORMAT, SPECDEC_ERROR_UNSUPPORTED, SPECDEC_ERROR_MISMATCH;
   SPECDEC_ERROR_ARGUMENT: this index has no history. */
static specdec_result specdec__ngram_load(specdec__ngram *index, uint64_t vocabulary, int tokens,
                                          const void *data, size_t size, specdec_error *error)
{
    const unsigned char *file = (const unsigned char *)data;
    const size_t room = (size_t)index->size.history;
    specdec_result result = specdec__ngram_check(file, size, vocabulary, tokens, error);
    size_t count, i;

    if (result)
        return result;
    if (!room)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "there is no room for what was seen");
    count = specdec__load_u32(file + 12);
    for (i = count > room ? count - room : 0; i < count; i++) {
        int32_t token = (int32_t)specdec__load_u32(file + SPECDEC__NGRAM_HEAD + i * 4);

        specdec__ngram_make_room(index);
        specdec__ngram_replay(index, token);
        specdec__ngram_remember(index, token);
    }
    return SPECDEC_OK;
}

SPECDEC__FOR_SPEED
