/* =====================================================================================================================
 * >>speculation/ngram_file: the n-gram index as a file.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "recycle.h"
#include "ngram.h"

SPECDEC__FOR_SIZE

#define SPECDEC__NGRAM_FILE_HEAD_BYTES  24 /* bytes of an n-gram file before its tokens */
#define SPECDEC__NGRAM_FILE_ENTRY_BYTES 40 /* bytes in an n-gram file of a context and its most probable tokens */

/* Where the parts of an n-gram file lie: the tokens, and the entries of the table of most probable tokens. */
typedef struct specdec__ngram_file {
    const unsigned char *tokens, *entries; /* addresses at which the tokens and the entries begin */
    size_t count, entry_count; /* number of tokens; number of entries */
} specdec__ngram_file;

/* Returns how many entries of the table of most probable tokens are in use. */
static size_t specdec__ngram_count_used_entries(const specdec__recycle_table *r)
{
    size_t count = 0;
    uint32_t i;

    for (i = 0; i < r->count; i++)
        count += r->entries[i].share[0] > 0;
    return count;
}

/* Returns how many tokens and end marks the file has that specdec__ngram_save_file writes. */
static size_t specdec__ngram_count_file_tokens(const specdec__ngram *index)
{
    size_t tokens = (size_t)index->history_count;
    int i;

    for (i = 0; i < index->size.readers; i++)
        if (index->readers[i].length > index->readers[i].from)
            tokens += (size_t)(index->readers[i].length - index->readers[i].from) + 1;
    return tokens;
}

/* Writes the counted tokens of an open sequence, and an end mark, to `to`. Returns the address behind them. */
static unsigned char *specdec__ngram_save_sequence(const specdec__ngram_reader *reader, unsigned char *to)
{
    int i;

    for (i = reader->from; i < reader->length; i++, to += 4)
        specdec__store_u32(to, (uint32_t)reader->text[i]);
    if (i == reader->from)
        return to;
    specdec__store_u32(to, (uint32_t)SPECDEC__NGRAM_END_MARK);
    return to + 4;
}

/* Writes the entries of the table of most probable tokens to `to`. Returns the address behind them. */
static unsigned char *specdec__ngram_save_table(const specdec__recycle_table *r, unsigned char *to)
{
    uint32_t i;
    int k;

    for (i = 0; i < r->count; i++) {
        const specdec__recycle_entry *entry = &r->entries[i];

        if (!entry->share[0])
            continue;
        specdec__store_u32(to, entry->tag);
        for (k = 0; k < SPECDEC__RECYCLE_TOKENS; k++) {
            specdec__store_u16(to + 4 + 2 * k, entry->share[k]);
            specdec__store_u32(to + 4 + 2 * SPECDEC__RECYCLE_TOKENS + 4 * k, (uint32_t)entry->tokens[k]);
        }
        to += SPECDEC__NGRAM_FILE_ENTRY_BYTES;
    }
    return to;
}

/* Writes the tokens that the index counts, of the history and then of the live sequences, and the table of likely
   tokens, as a file into data[room]. *bytes: the size of the file; data NULL: only that. All numbers are little-endian:
     8 bytes  "SPECSEEN"
     4        version: 2
     4        count
     8        vocabulary: a fingerprint, by which specdec__ngram_load_file knows files for another tokenizer
     4 each   count tokens; 0xffffffff is the end of a text
     4        entries of the table of likely tokens
     40 each  4 bytes the context's hash, 6 times 2 bytes shares of 32768, falling, 6 times 4 bytes tokens
     8        FNV-1a of all bytes before
   A file of version 1 has no table: its tokens are followed by the hash. O(bytes). Errors: SPECDEC_ERROR_BUFFER. */
static specdec_result specdec__ngram_save_file(const specdec__ngram *index, uint64_t vocabulary, void *data,
                                               size_t room, size_t *bytes, specdec_error *error)
{
    const size_t count = specdec__ngram_count_file_tokens(index);
    const size_t entries = specdec__ngram_count_used_entries(&index->recycling);
    unsigned char *file = (unsigned char *)data, *to;
    int i;

    *bytes = SPECDEC__NGRAM_FILE_HEAD_BYTES + 4 * count + 4 + SPECDEC__NGRAM_FILE_ENTRY_BYTES * entries + 8;
    if (!data)
        return SPECDEC_OK;
    if (*bytes > room)
        return specdec__fail(error, SPECDEC_ERROR_BUFFER, "%zu bytes are needed, there is room for %zu", *bytes, room);
    memcpy(file, "SPECSEEN", 8);
    specdec__store_u32(file + 8, 2);
    specdec__store_u32(file + 12, (uint32_t)count);
    specdec__store_u64(file + 16, vocabulary);
    to = file + SPECDEC__NGRAM_FILE_HEAD_BYTES;
    for (i = 0; i < index->history_count; i++, to += 4)
        specdec__store_u32(to, (uint32_t)*specdec__ngram_history_token_address(index, i));
    for (i = 0; i < index->size.readers; i++)
        to = specdec__ngram_save_sequence(&index->readers[i], to);
    specdec__store_u32(to, (uint32_t)entries);
    to = specdec__ngram_save_table(&index->recycling, to + 4);
    specdec__store_u64(to, specdec__hash(SPECDEC__EMPTY_HASH, file, *bytes - 8));
    return SPECDEC_OK;
}

/* Finds the parts of an n-gram file. Returns 0 if the file's size is not that of its parts, else 1. */
static int specdec__ngram_find_file_parts(specdec__ngram_file *f, const unsigned char *data, size_t size)
{
    size_t left = size - SPECDEC__NGRAM_FILE_HEAD_BYTES - 8;

    f->count = specdec__load_u32(data + 12);
    f->tokens = data + SPECDEC__NGRAM_FILE_HEAD_BYTES;
    f->entry_count = 0;
    if (f->count > left / 4)
        return 0;
    left -= 4 * f->count;
    f->entries = f->tokens + 4 * f->count;
    if (specdec__load_u32(data + 8) == 1)
        return !left;
    if (left < 4)
        return 0;
    f->entry_count = specdec__load_u32(f->entries);
    f->entries += 4;
    return !((left - 4) % SPECDEC__NGRAM_FILE_ENTRY_BYTES) &&
           (left - 4) / SPECDEC__NGRAM_FILE_ENTRY_BYTES == f->entry_count;
}

/* Reads an entry of the table of most probable tokens. Returns 0 if its shares or tokens cannot be right, else 1.
   tokens: size of the vocabulary. */
static int specdec__ngram_load_entry(specdec__recycle_entry *entry, const unsigned char *from, int tokens)
{
    int k;

    entry->tag = specdec__load_u32(from);
    for (k = 0; k < SPECDEC__RECYCLE_TOKENS; k++) {
        const uint32_t token = specdec__load_u32(from + 4 + 2 * SPECDEC__RECYCLE_TOKENS + 4 * k);

        entry->share[k] = specdec__load_u16(from + 4 + 2 * k);
        entry->tokens[k] = (int32_t)token;
        if (token >= (uint32_t)tokens || entry->share[k] > (k ? entry->share[k - 1] : 32768) || !entry->share[0])
            return 0;
    }
    return 1;
}

/* Checks that data[size] is an n-gram file, as specdec__ngram_save_file writes it, for this vocabulary, and finds its
   parts. tokens: size of the vocabulary. */
static specdec_result specdec__ngram_check_file(specdec__ngram_file *f, const unsigned char *data, size_t size,
                                                uint64_t vocabulary, int tokens, specdec_error *error)
{
    specdec__recycle_entry entry;
    size_t i;

    if (size < SPECDEC__NGRAM_FILE_HEAD_BYTES + 8 || memcmp(data, "SPECSEEN", 8) != 0)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "not a file of what was seen");
    if (specdec__load_u32(data + 8) - 1 > 1)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "what was seen is of version %u (1 and 2 are read)",
                             specdec__load_u32(data + 8));
    if (!specdec__ngram_find_file_parts(f, data, size) ||
        specdec__hash(SPECDEC__EMPTY_HASH, data, size - 8) != specdec__load_u64(data + size - 8))
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "the file of what was seen is damaged");
    if (specdec__load_u64(data + 16) != vocabulary)
        return specdec__fail(error, SPECDEC_ERROR_MISMATCH, "what was seen belongs to another vocabulary");
    for (i = 0; i < f->count; i++) {
        uint32_t token = specdec__load_u32(f->tokens + i * 4);

        if (token != (uint32_t)SPECDEC__NGRAM_END_MARK && (token >= (uint32_t)tokens || i + 1 == f->count))
            return specdec__fail(error, SPECDEC_ERROR_FORMAT, "token %zu of what was seen is out of range", i);
    }
    for (i = 0; i < f->entry_count; i++)
        if (!specdec__ngram_load_entry(&entry, f->entries + i * SPECDEC__NGRAM_FILE_ENTRY_BYTES, tokens))
            return specdec__fail(error, SPECDEC_ERROR_FORMAT, "entry %zu of what was seen is out of range", i);
    return SPECDEC_OK;
}

/* Appends the sequences of an n-gram file (specdec__ngram_save_file) to the history, as if they ended now; the oldest
   tokens are dropped where there is no room. Entries of most probable tokens are stored where the table has none.
   tokens: size of the vocabulary. Every byte is checked before any is used, so a file that is refused changes nothing.
   O(size). Errors: SPECDEC_ERROR_FORMAT, SPECDEC_ERROR_UNSUPPORTED, SPECDEC_ERROR_MISMATCH; SPECDEC_ERROR_ARGUMENT:
   this index has no history. */
static specdec_result specdec__ngram_load_file(specdec__ngram *index, uint64_t vocabulary, int tokens,
                                               const void *data, size_t size, specdec_error *error)
{
    const size_t room = (size_t)index->size.history;
    specdec__ngram_file f = {NULL, NULL, 0, 0};
    specdec__recycle_entry entry;
    specdec_result result = specdec__ngram_check_file(&f, (const unsigned char *)data, size, vocabulary, tokens, error);
    size_t i;

    if (result)
        return result;
    if (!room)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "there is no room for what was seen");
    for (i = f.count > room ? f.count - room : 0; i < f.count; i++) {
        int32_t token = (int32_t)specdec__load_u32(f.tokens + i * 4);

        specdec__ngram_make_room_for_token(index);
        specdec__ngram_count_history_token(index, token);
        specdec__ngram_append_history(index, token);
    }
    for (i = 0; i < f.entry_count && index->recycling.count; i++) {
        specdec__ngram_load_entry(&entry, f.entries + i * SPECDEC__NGRAM_FILE_ENTRY_BYTES, tokens);
        if (!specdec__recycle_entry_of_tag(&index->recycling, entry.tag)->share[0])
            *specdec__recycle_entry_of_tag(&index->recycling, entry.tag) = entry;
    }
    return SPECDEC_OK;
}

SPECDEC__FOR_SPEED
