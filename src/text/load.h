/* =====================================================================================================================
 * >>text/load: a vocabulary read from a GGUF file, and two vocabularies compared.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../model/gguf.h"
#include "vocabulary.h"
#include "unicode.h"
#include "words.h"
#include "stages.h"
#include "lookup.h"

SPECDEC__FOR_SIZE

/* The arrays of a vocabulary in the GGUF file, checked, before indexes are built from them. */
typedef struct specdec__vocab_source {
    specdec__gguf_value tokens, scores; /* tokenizer.ggml.tokens, tokenizer.ggml.scores */
    specdec__gguf_value types, merges;  /* tokenizer.ggml.token_type, tokenizer.ggml.merges */
} specdec__vocab_source;

/* Reads the token id under a key of the GGUF file, or -1, into *out, which keeps its default when the key is absent; a
   default beyond the vocabulary becomes -1. Errors: FORMAT. */
static specdec_result specdec__vocab_read_id(const specdec__vocab *v, const specdec__gguf *gguf, const char *key,
                                             int32_t *out, specdec_error *error)
{
    int64_t id = *out < (int64_t)v->count ? *out : -1;
    specdec_result result = specdec__gguf_get_integer(gguf, key, 0, INT64_MIN, INT64_MAX, &id, error);

    if (result)
        return result;
    if (id == UINT32_MAX)
        id = -1; /* some converters write "no token" as 2^32 - 1 */
    if (id < -1 || id >= (int64_t)v->count)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s is not a token of this vocabulary of %u", key, v->count);
    *out = (int32_t)id;
    return SPECDEC_OK;
}

/* Reads tokenizer.ggml.model into v->model, and sets that tokenizer's defaults of special tokens and flags. */
static specdec_result specdec__vocab_read_tokenizer_model(specdec__vocab *v, const specdec__gguf *gguf,
                                                          specdec_error *error)
{
    specdec__bytes model;
    specdec_result result = specdec__gguf_get_string(gguf, "tokenizer.ggml.model", &model, error);

    if (result)
        return result;
    if (!model.data)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s is missing", "tokenizer.ggml.model");
    v->bos = v->eos = v->eot = v->eom = v->unknown = -1;
    memset(v->fim, 0xff, sizeof v->fim); /* -1 */
#if defined(SPECDEC_NO_SPM) || defined(SPECDEC_NO_BPE)
    if (specdec__bytes_equal_string(model, SPECDEC__VOCAB_IS_BPE(0) ? "llama" : "gpt2"))
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                             "tokenizer.ggml.model is %.*s, which %s leaves out of this build", (int)model.size,
                             (const char *)model.data, SPECDEC__VOCAB_IS_BPE(0) ? "SPECDEC_NO_SPM" : "SPECDEC_NO_BPE");
#endif
    if (!SPECDEC__VOCAB_IS_BPE(SPECDEC__VOCAB_SPM) && specdec__bytes_equal_string(model, "llama")) {
        v->model = SPECDEC__VOCAB_SPM;
        v->unknown = 0;
        v->bos = 1;
        v->eos = 2;
        v->add_bos = v->add_space_prefix = 1;
        return SPECDEC_OK;
    }
    if (SPECDEC__VOCAB_IS_BPE(SPECDEC__VOCAB_BPE) && specdec__bytes_equal_string(model, "gemma4"))
        v->model = SPECDEC__VOCAB_BPE_OF_CHARACTERS;
    else if (SPECDEC__VOCAB_IS_BPE(SPECDEC__VOCAB_BPE) && specdec__bytes_equal_string(model, "gpt2"))
        v->model = SPECDEC__VOCAB_BPE;
    else
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                             "tokenizer.ggml.model is %.*s (llama, gpt2 and gemma4 are read)",
                             (int)(model.size < 64 ? model.size : 64), (const char *)model.data);
    return SPECDEC_OK;
}

/* Returns the text of token `id` by a walk over the texts of all tokens before it, as long as there is no index. */
static specdec__bytes specdec__vocab_find_text_without_index(const specdec__vocab *v, uint32_t id)
{
    specdec__cursor c = specdec__cursor_begin_at_start(v->texts, v->texts_size);

    while (id--)
        specdec__cursor_read_string(&c);
    return specdec__cursor_read_string(&c);
}

/* Returns the name of a vocabulary's pre-tokenizer, recognised by the number of merges and the text of one token; NULL:
   unknown. */
static const char *specdec__vocab_recognise_pre_tokenizer(const specdec__vocab *v, uint64_t merges)
{
    size_t i;

    for (i = 0; i < SPECDEC__COUNT(specdec__known_vocabularies); i++)
        if (specdec__known_vocabularies[i].merges == merges && specdec__known_vocabularies[i].id < v->count &&
            specdec__bytes_equal_string(specdec__vocab_find_text_without_index(v, specdec__known_vocabularies[i].id),
                                        specdec__known_vocabularies[i].text))
            return specdec__known_vocabularies[i].words;
    return NULL;
}

/* Reads tokenizer.ggml.pre, the name of the pre-tokenizer, into v->pre_tokenizer. Older converters left it out, or
   wrote "default": then it is recognised from the vocabulary, or GPT-2's is used, with a note for the log. */
static specdec_result specdec__vocab_read_pre_tokenizer(specdec__vocab *v, const specdec__gguf *gguf,
                                                        specdec_error *error)
{
    specdec__gguf_value merges;
    specdec__bytes words;
    specdec_result result = specdec__gguf_get_string(gguf, "tokenizer.ggml.pre", &words, error);
    const char *known;

    if (result || !SPECDEC__VOCAB_IS_BPE(v->model))
        return result;
    v->pre_tokenizer_source = words.data && !specdec__bytes_equal_string(words, "default");
    if (v->model == SPECDEC__VOCAB_BPE_OF_CHARACTERS) { /* this tokenizer has only one pre-tokenizer */
        words.data = (const unsigned char *)"gemma4";
        words.size = strlen("gemma4");
        v->pre_tokenizer_source = 1;
    }
    if (!v->pre_tokenizer_source) {
        result = specdec__gguf_get_array(gguf, "tokenizer.ggml.merges", SPECDEC_GGUF_STRING, &merges, error);
        if (result)
            return result;
        known = specdec__vocab_recognise_pre_tokenizer(v, merges.items ? merges.count : 0);
        v->pre_tokenizer_source = known ? 0 : -1;
        words.data = (const unsigned char *)(known ? known : "gpt-2");
        words.size = strlen(known ? known : "gpt-2");
    }
    v->pre_tokenizer = specdec__pre_tokenizer_find(words);
    if (!v->pre_tokenizer)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                             "tokenizer.ggml.pre is %.*s, a way to cut text into words that is not known%s%s",
                             (int)(words.size < 64 ? words.size : 64), (const char *)words.data,
                             *specdec__pre_tokenizer_similar_name(words) ? "; near: " : "",
                             specdec__pre_tokenizer_similar_name(words));
    if (v->model == SPECDEC__VOCAB_BPE && v->pre_tokenizer->first_word == specdec__text_word_bytes_gemma4)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "tokenizer.ggml.pre is %s, of a byte-level BPE",
                             v->pre_tokenizer->name);
    v->add_bos = v->pre_tokenizer->add_bos != 0;
    return SPECDEC_OK;
}

/* Is the model of the file Phi-3? Its own tokenizer drops white space behind special tokens. The GGUF file does not say
   so; only the model's name ("Phi3", "phi-3-mini", "Phi 3.5") tells. */
static int specdec__vocab_is_phi3(const specdec__gguf *gguf)
{
    specdec__bytes name;
    size_t i;

    if (specdec__gguf_get_string(gguf, "general.name", &name, NULL) || !name.data)
        return 0;
    for (i = 0; i + 4 <= name.size; i++) {
        const unsigned char *at = name.data + i;
        int dash = i + 5 <= name.size && (at[3] == '-' || at[3] == ' ' || at[3] == '_');

        if ((at[0] | 32) == 'p' && (at[1] | 32) == 'h' && (at[2] | 32) == 'i' && at[3 + dash] == '3')
            return 1;
    }
    return 0;
}

/* Does tokenizing drop the white space behind the special token with this text? */
static int specdec__vocab_token_strips_space(const specdec__vocab *v, specdec__bytes text)
{
    return v->strips_space && !specdec__bytes_equal_string(text, "<unk>") &&
           !specdec__bytes_equal_string(text, "<s>") && !specdec__bytes_equal_string(text, "<|endoftext|>");
}

/* The byte offset of a fill-in-the-middle token's id in specdec__vocab. */
#define SPECDEC__VOCAB_FIM_OFFSET(name) (offsetof(specdec__vocab, fim) + SPECDEC__FIM_##name * sizeof(int32_t))

/* GGUF keys of special tokens' ids and of flags, and the byte offsets of their values in specdec__vocab. */
static const struct {
    const char *key;       /* key of the GGUF file */
    unsigned short at;     /* byte offset of the value in specdec__vocab */
    unsigned char is_flag; /* 1: the value is 0 or 1; 0: it is a token's id */
} specdec__vocab_id_table[] = {
    {"tokenizer.ggml.bos_token_id", offsetof(specdec__vocab, bos), 0},
    {"tokenizer.ggml.eos_token_id", offsetof(specdec__vocab, eos), 0},
    {"tokenizer.ggml.eot_token_id", offsetof(specdec__vocab, eot), 0},
    {"tokenizer.ggml.eom_token_id", offsetof(specdec__vocab, eom), 0},
    {"tokenizer.ggml.unknown_token_id", offsetof(specdec__vocab, unknown), 0},
    {"tokenizer.ggml.prefix_token_id", SPECDEC__VOCAB_FIM_OFFSET(PREFIX), 0},
    {"tokenizer.ggml.suffix_token_id", SPECDEC__VOCAB_FIM_OFFSET(SUFFIX), 0},
    {"tokenizer.ggml.middle_token_id", SPECDEC__VOCAB_FIM_OFFSET(MIDDLE), 0},
    {"tokenizer.ggml.fim_pre_token_id", SPECDEC__VOCAB_FIM_OFFSET(PREFIX), 0},
    {"tokenizer.ggml.fim_suf_token_id", SPECDEC__VOCAB_FIM_OFFSET(SUFFIX), 0},
    {"tokenizer.ggml.fim_mid_token_id", SPECDEC__VOCAB_FIM_OFFSET(MIDDLE), 0},
    {"tokenizer.ggml.fim_pad_token_id", SPECDEC__VOCAB_FIM_OFFSET(PAD), 0},
    {"tokenizer.ggml.fim_rep_token_id", SPECDEC__VOCAB_FIM_OFFSET(REPOSITORY), 0},
    {"tokenizer.ggml.fim_sep_token_id", SPECDEC__VOCAB_FIM_OFFSET(FILE), 0},
    {"tokenizer.ggml.add_bos_token", offsetof(specdec__vocab, add_bos), 1},
    {"tokenizer.ggml.add_eos_token", offsetof(specdec__vocab, add_eos), 1},
    {"tokenizer.ggml.add_space_prefix", offsetof(specdec__vocab, add_space_prefix), 1}};

/* Reads the ids of special tokens and the flags of specdec__vocab_id_table. */
static specdec_result specdec__vocab_read_special_ids(specdec__vocab *v, const specdec__gguf *gguf,
                                                      specdec_error *error)
{
    size_t i;

    for (i = 0; i < SPECDEC__COUNT(specdec__vocab_id_table); i++) {
        const char *key = specdec__vocab_id_table[i].key;
        int32_t *out = (int32_t *)(void *)((unsigned char *)v + specdec__vocab_id_table[i].at);
        specdec_result result;
        int64_t flag = *out;

        if (specdec__vocab_id_table[i].is_flag) {
            result = specdec__gguf_get_integer(gguf, key, 0, 0, 1, &flag, error);
            *out = (int32_t)flag;
        } else {
            result = specdec__vocab_read_id(v, gguf, key, out, error);
        }
        if (result)
            return result;
    }
    if (v->pre_tokenizer && v->pre_tokenizer->add_bos == 2)
        v->add_bos = 1;
    return SPECDEC_OK;
}

/* Returns the error FORMAT: the array under a key of the GGUF file has too few items for the vocabulary's tokens. */
static specdec_result specdec__vocab_fail_array_count(const char *key, uint64_t items, uint32_t tokens,
                                                      specdec_error *error)
{
    return specdec__fail(error, SPECDEC_ERROR_FORMAT, "%s has %llu items for %u tokens", key, (unsigned long long)items,
                         tokens);
}

/* Reads a vocabulary's arrays of scores (SPM), token types and merges (BPE) from the GGUF file, and checks their
   presence, types and lengths. */
static specdec_result specdec__vocab_read_arrays(specdec__vocab *v, const specdec__gguf *gguf,
                                                 specdec__vocab_source *source, specdec_error *error)
{
    specdec_result result;
    uint32_t i;

    result = specdec__gguf_get_array(gguf, "tokenizer.ggml.scores", SPECDEC_GGUF_F32, &source->scores, error);
    if (!result && !(specdec__gguf_find_value(gguf, "tokenizer.ggml.token_type", &source->types) &&
                     source->types.is_array && source->types.type == SPECDEC_GGUF_U32))
        result = specdec__gguf_get_array(gguf, "tokenizer.ggml.token_type", SPECDEC_GGUF_I32, &source->types, error);
    if (!result)
        result = specdec__gguf_get_array(gguf, "tokenizer.ggml.merges", SPECDEC_GGUF_STRING, &source->merges, error);
    if (result)
        return result;
    if (source->types.items && source->types.count < v->count)
        return specdec__vocab_fail_array_count("tokenizer.ggml.token_type", source->types.count, v->count, error);
    v->types = source->types.items;
    if (SPECDEC__VOCAB_IS_BPE(v->model)) {
        if (!source->merges.items || source->merges.count > SPECDEC__VOCAB_MAX_TOKENS)
            return specdec__fail(error, SPECDEC_ERROR_FORMAT, "tokenizer.ggml.merges is %s",
                                 source->merges.items ? "impossibly long" : "missing");
        v->merge_count = (uint32_t)source->merges.count;
        return SPECDEC_OK;
    }
    if (!source->scores.items || source->scores.count < v->count)
        return specdec__vocab_fail_array_count("tokenizer.ggml.scores", source->scores.count, v->count, error);
    v->scores = source->scores.items;
    for (i = 0; i < v->count; i++)
        if ((specdec__load_u32(v->scores + (size_t)i * 4) & 0x7fffffffu) > 0x7f800000u)
            return specdec__fail(error, SPECDEC_ERROR_FORMAT, "the score of token %u is not a number", i);
    return SPECDEC_OK;
}

/* Does a token's text have U+2581 (a space in SPM) behind any other character? */
static int specdec__vocab_has_inner_space(specdec__bytes text)
{
    size_t i;
    int was_space = 1;

    for (i = 0; i < text.size; i++) {
        int is_space = i + 3 <= text.size && memcmp(text.data + i, "\xe2\x96\x81", 3) == 0;

        if (is_space && !was_space)
            return 1;
        was_space = is_space;
        i += is_space ? 2 : 0;
    }
    return 0;
}

/* Returns the single byte that a token with this text stands for; -1: it stands for more or less than one. Byte-level
   BPE spells it as one character, other tokenizers as <0x41>. */
static int specdec__vocab_single_byte_of_text(const specdec__vocab *v, specdec__bytes text)
{
    specdec__text_character c;

    if (!SPECDEC__VOCAB_IS_BYTES(v->model))
        return specdec__vocab_byte_of_hex_text(text);
    c = specdec__text_character_at(text.data, text.size, 0);
    return c.size && (size_t)c.size == text.size ? specdec__text_code_to_byte(c.code) : -1;
}

/* Walks over the texts of all tokens twice, and sets the fields of v that need no index: marks_present, longest_bytes,
   no_merge_crosses_space, special_count. The first walk finds tokens on which the types of other tokens depend. */
static void specdec__vocab_set_fields_from_texts(specdec__vocab *v)
{
    specdec__cursor c = specdec__cursor_begin_at_start(v->texts, v->texts_size);
    uint32_t id;

    for (id = 0; id < v->count; id++) {
        const specdec__bytes text = specdec__cursor_read_string(&c);
        const struct specdec__vocab_known_text *row = specdec__vocab_find_known_token_text(text);

        v->marks_present |= row ? row->presence : 0;
    }
    c = specdec__cursor_begin_at_start(v->texts, v->texts_size);
    v->no_merge_crosses_space = 1;
    for (id = 0; id < v->count; id++) {
        specdec__bytes text = specdec__cursor_read_string(&c);

        if (text.size > v->longest_bytes)
            v->longest_bytes = (uint32_t)text.size;
        if (specdec__vocab_has_inner_space(text))
            v->no_merge_crosses_space = 0;
        v->special_count += text.size && specdec__vocab_type_is_special(specdec__vocab_type_of_text(v, id, text));
    }
}

/* Returns the mask (size - 1) of a hash table of a power of two of entries that `count` items fill to three quarters at
   most. */
static uint32_t specdec__vocab_hash_table_mask(uint32_t count)
{
    uint32_t size = 16;

    while (size / 4 * 3 < count)
        size *= 2;
    return size - 1;
}

/* Takes the memory of a vocabulary's indexes (text offsets, hash tables, lists of tokens) from an arena. */
static specdec_result specdec__vocab_reserve_indexes(specdec__vocab *v, specdec__arena *arena, specdec_error *error)
{
    v->token_table_mask = specdec__vocab_hash_table_mask(v->count);
    v->byte_token = SPECDEC__TAKE(arena, int32_t, 256);
    v->end_tokens = SPECDEC__TAKE(arena, int32_t, SPECDEC__VOCAB_MAX_END_TOKENS);
    v->text_offset = SPECDEC__TAKE(arena, uint32_t, v->count);
    v->token_table = SPECDEC__TAKE(arena, uint32_t, v->token_table_mask + 1);
    v->specials = SPECDEC__TAKE(arena, uint32_t, v->special_count);
    if (SPECDEC__VOCAB_IS_BPE(v->model)) {
        v->merge_table_mask = specdec__vocab_hash_table_mask(v->merge_count);
        v->merges = SPECDEC__TAKE(arena, uint32_t, (size_t)v->merge_count * 2);
        v->merge_table = SPECDEC__TAKE(arena, uint32_t, v->merge_table_mask + 1);
    }
    if (arena->used == SIZE_MAX)
        return specdec__fail(error, SPECDEC_ERROR_MEMORY, "no room for a vocabulary of %u tokens", v->count);
    return SPECDEC_OK;
}

/* Fills in byte_token, text_offset, the hash table of plain tokens (the first of equal texts wins) and the list of
   special tokens, unsorted. Unknown, control and byte tokens are not in the hash table, as plain text never yields
   them. Returns 0 when too many hashes collide. */
static int specdec__vocab_index_tokens(specdec__vocab *v)
{
    specdec__cursor c = specdec__cursor_begin_at_start(v->texts, v->texts_size);
    uint32_t id, specials = 0;

    memset(v->byte_token, 0xff, 256 * sizeof *v->byte_token);
    for (id = 0; id < v->count; id++) {
        specdec__bytes text;
        int type, byte;

        v->text_offset[id] = (uint32_t)c.offset;
        text = specdec__cursor_read_string(&c);
        type = specdec__vocab_type_of_text(v, id, text);
        byte = specdec__vocab_single_byte_of_text(v, text);
        if (byte >= 0 && v->byte_token[byte] < 0)
            v->byte_token[byte] = (int32_t)id;
        if (text.size && specdec__vocab_type_is_special(type))
            v->specials[specials++] = id;
        if (!text.size || type == SPECDEC__TOKEN_UNKNOWN || type == SPECDEC__TOKEN_CONTROL ||
            (type == SPECDEC__TOKEN_BYTE && !SPECDEC__VOCAB_IS_BYTES(v->model)) ||
            specdec__vocab_find_token_by_file_text(v, text, NULL) >= 0)
            continue;
        if (!specdec__vocab_store_in_hash_table(v->token_table, v->token_table_mask,
                                                specdec__vocab_hash_finish(specdec__vocab_hash_bytes(0, text)), id + 1))
            return 0;
    }
    return 1;
}

/* Sorts the list of special tokens by the length of their texts, longest first, then by id (Shell's sort). */
static void specdec__vocab_sort_specials(specdec__vocab *v)
{
    uint32_t gap, i;

    for (gap = v->special_count / 2; gap; gap = gap == 2 ? 1 : (uint32_t)((uint64_t)gap * 5 / 11))
        for (i = gap; i < v->special_count; i++) {
            uint32_t id = v->specials[i], j = i;
            size_t size = specdec__vocab_token_text(v, id).size;

            for (; j >= gap; j -= gap) {
                uint32_t other = v->specials[j - gap];
                size_t other_size = specdec__vocab_token_text(v, other).size;

                if (other_size > size || (other_size == size && other < id))
                    break;
                v->specials[j] = other;
            }
            v->specials[j] = id;
        }
}

/* Adds a token to the list of end-of-text tokens, unless its text shows that it does not end texts. */
static void specdec__vocab_add_end_token(specdec__vocab *v, int32_t id)
{
    const struct specdec__vocab_known_text *row = id < 0 ? NULL
                                                         : specdec__vocab_find_known_token_text(
                                                               specdec__vocab_token_text(v, (uint32_t)id));

    if (id < 0 || specdec__vocab_is_end_token(v, id) || v->end_token_count == SPECDEC__VOCAB_MAX_END_TOKENS ||
        (row && (row->kind == SPECDEC__MARK_TURN || row->kind == SPECDEC__MARK_CLOSES) &&
         !specdec__vocab_text_is_end_token(v, specdec__vocab_token_text(v, (uint32_t)id))))
        return;
    v->end_tokens[v->end_token_count++] = id;
}

/* Lists the end-of-text tokens of a vocabulary: those that the file names, and well-known ones. */
static void specdec__vocab_find_end_tokens(specdec__vocab *v)
{
    uint32_t i;

    specdec__vocab_add_end_token(v, v->eos);
    specdec__vocab_add_end_token(v, v->eot);
    specdec__vocab_add_end_token(v, v->eom);
    for (i = SPECDEC__FIM_PAD; i < SPECDEC__FIM_COUNT; i++)
        specdec__vocab_add_end_token(v, v->fim[i]);
    for (i = 0; i < v->special_count; i++)
        if (specdec__vocab_text_is_end_token(v, specdec__vocab_token_text(v, v->specials[i])))
            specdec__vocab_add_end_token(v, (int32_t)v->specials[i]);
}

/* Fills in the hash table of merges, each "left right" in the GGUF file, in order of rank. A merge with a text that is
   no token is skipped; of equal merges the first counts. Returns 0 when too many hashes collide. */
static int specdec__vocab_index_merges(specdec__vocab *v, const specdec__gguf_value *merges)
{
    specdec__cursor c = specdec__cursor_begin_at_start(merges->items, merges->bytes);
    uint32_t rank;

    for (rank = 0; rank < v->merge_count; rank++) {
        specdec__bytes text = specdec__cursor_read_string(&c), left = text, right = text;
        const unsigned char *space = NULL;
        uint32_t *pair = v->merges + 2 * (size_t)rank;
        int32_t a = -1, b = -1;

        if (text.size > 1)
            space = (const unsigned char *)memchr(text.data + 1, ' ', text.size - 1);
        if (space) {
            left.size = (size_t)(space - text.data);
            right.data = space + 1;
            right.size = text.size - left.size - 1;
            a = specdec__vocab_find_token_by_file_text(v, left, NULL);
            b = specdec__vocab_find_token_by_file_text(v, right, NULL);
        }
        pair[0] = pair[1] = v->count;
        if (a < 0 || b < 0 || specdec__vocab_find_token_by_file_text(v, left, &right) < 0 ||
            specdec__vocab_merge_rank(v, (uint32_t)a, (uint32_t)b) != SPECDEC__TEXT_NONE)
            continue;
        pair[0] = (uint32_t)a;
        pair[1] = (uint32_t)b;
        if (!specdec__vocab_store_in_hash_table(v->merge_table, v->merge_table_mask,
                                                specdec__vocab_pair_hash(pair[0], pair[1]), rank + 1))
            return 0;
    }
    return 1;
}

/* Reads and checks the vocabulary of a GGUF file, and builds its indexes in the arena. The file must outlive v. If the
   arena only counts, all checks are made, but v cannot be used. Errors: FORMAT, UNSUPPORTED (another tokenizer),
   MEMORY. */
static SPECDEC__UNUSED specdec_result specdec__vocab_init(specdec__vocab *v, const specdec__gguf *gguf,
                                                          specdec__arena *arena, specdec_error *error)
{
    specdec__vocab_source source;
    specdec_result result;

    memset(v, 0, sizeof *v);
    memset(&source, 0, sizeof source);
    result = specdec__vocab_read_tokenizer_model(v, gguf, error);
    if (!result)
        result = specdec__gguf_get_array(gguf, "tokenizer.ggml.tokens", SPECDEC_GGUF_STRING, &source.tokens, error);
    if (result)
        return result;
    if (!source.tokens.items || source.tokens.count < 1 || source.tokens.count > SPECDEC__VOCAB_MAX_TOKENS ||
        source.tokens.bytes > UINT32_MAX)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "tokenizer.ggml.tokens is %s",
                             !source.tokens.items || source.tokens.count < 1 ? "missing or empty" : "impossibly long");
    v->count = (uint32_t)source.tokens.count;
    v->texts = source.tokens.items;
    v->texts_size = source.tokens.bytes;
    v->strips_space = specdec__vocab_is_phi3(gguf);
    result = specdec__vocab_read_pre_tokenizer(v, gguf, error);
    if (!result)
        result = specdec__vocab_read_special_ids(v, gguf, error);
    if (!result)
        result = specdec__vocab_read_arrays(v, gguf, &source, error);
    if (result)
        return result;
    specdec__vocab_set_fields_from_texts(v);
    result = specdec__vocab_reserve_indexes(v, arena, error);
    if (result || !arena->base)
        return result;
    if (!specdec__vocab_index_tokens(v) ||
        (SPECDEC__VOCAB_IS_BPE(v->model) && !specdec__vocab_index_merges(v, &source.merges)))
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "the tokens of this vocabulary are made to collide");
    specdec__vocab_sort_specials(v);
    specdec__vocab_find_end_tokens(v);
    return SPECDEC_OK;
}

/* Logs what was assumed about a vocabulary because its file does not state it. */
static SPECDEC__UNUSED void specdec__vocab_log_assumptions(const specdec__vocab *v, const specdec_hooks *hooks)
{
    if (v->pre_tokenizer && v->pre_tokenizer_source < 0)
        specdec__log_line(hooks, "warning: tokenizer.ggml.pre is missing, and the vocabulary is not a known one: text "
                          "is cut as gpt-2 cuts it, maybe not as the model was trained");
    else if (v->pre_tokenizer && !v->pre_tokenizer_source)
        specdec__log_line(hooks, "tokenizer.ggml.pre is missing: by its vocabulary it is %s", v->pre_tokenizer->name);
}

/* Results of specdec__vocab_compare, which compares two vocabularies. */
enum { SPECDEC__VOCAB_DIFFERENT, SPECDEC__VOCAB_PADDED, SPECDEC__VOCAB_SAME };

/* Does a token with this text only pad the vocabulary to a round size? */
static int specdec__vocab_is_padding_token(const specdec__vocab *v, uint32_t id, specdec__bytes text)
{
    static const char *const begins[] = {"[PAD",   "<pad",    "[unused",    "<unused",
                                         "<dummy", "<|dummy", "<|reserved", "<extra_id"};
    size_t i;

    if (!text.size || specdec__vocab_type_of_text(v, id, text) == SPECDEC__TOKEN_UNUSED)
        return 1;
    for (i = 0; i < SPECDEC__COUNT(begins); i++)
        if (text.size >= strlen(begins[i]) && memcmp(text.data, begins[i], strlen(begins[i])) == 0)
            return 1;
    return 0;
}

/* Can a draft model with vocabulary a serve a target with vocabulary b? SAME: equal tokenizers, texts and counts.
   PADDED: the longer one only has padding tokens at its end; *first_different is the count of the shorter one.
   DIFFERENT: *first_different is the first id whose tokens differ (0 when the tokenizers are of different kinds). Works
   without indexes. */
static SPECDEC__UNUSED int specdec__vocab_compare(const specdec__vocab *a, const specdec__vocab *b,
                                                  uint32_t *first_different)
{
    const specdec__vocab *longer = a->count > b->count ? a : b, *shorter = longer == a ? b : a;
    const uint32_t shared = shorter->count;
    size_t at = 0, other_at = 0;
    uint32_t id;

    *first_different = 0;
    if (a->model != b->model)
        return SPECDEC__VOCAB_DIFFERENT;
    for (id = 0; id < longer->count; id++) {
        const specdec__bytes text = specdec__vocab_next_token_text(longer, &at);

        *first_different = id;
        if (id < shared) {
            const specdec__bytes other = specdec__vocab_next_token_text(shorter, &other_at);

            if (!specdec__bytes_equal(text, (const char *)other.data, other.size))
                return SPECDEC__VOCAB_DIFFERENT;
        } else if (!specdec__vocab_is_padding_token(longer, id, text)) {
            return SPECDEC__VOCAB_DIFFERENT;
        }
    }
    *first_different = shared;
    return a->count == b->count ? SPECDEC__VOCAB_SAME : SPECDEC__VOCAB_PADDED;
}

/* Returns the number of bytes of the first stretch of a text (length > 0), across whose end no merge of two symbols can
   reach. */
static size_t specdec__text_first_stretch_bytes(const specdec__vocab *v, const unsigned char *text, size_t length)
{
    size_t at = 0;
    int was_space = 1;

    if (SPECDEC__VOCAB_IS_BPE(v->model))
        length = specdec__pre_tokenizer_first_word(v->pre_tokenizer, text, length);
    if (SPECDEC__VOCAB_IS_BYTES(v->model))
        return length;
    if (!v->no_merge_crosses_space)
        return length;
    while (at < length) {
        size_t size = text[at] == ' ' ? 1 : length - at >= 3 && memcmp(text + at, "\xe2\x96\x81", 3) == 0 ? 3 : 0;

        if (size && !was_space)
            break;
        was_space = size > 0;
        at += size ? size : 1;
    }
    return at;
}

SPECDEC__FOR_SPEED
