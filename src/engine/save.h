/* =====================================================================================================================
 * >>engine/save: a sequence as the bytes of a file, and back; bodies of specdec_save and specdec_load.
 *
 * All numbers are little-endian:
 *   8 bytes  "SPECTEXT"
 *   4        version: 3
 *   4        how keys and values are stored: 0 f16, 1 f32, 2 q8_0
 *   8        the model: a fingerprint
 *   4 each   the fields below
 *            bytes that are ready to be handed out, then those that may begin a stop string
 *            stop strings, a zero byte behind each
 *   4 each   tokens
 *            keys and values, span by span: see specdec__view_copy_keys_from_or_to_file; of a recurrent model, if there
 *            are any, the state behind them: see specdec__state_copy_slot_from_or_to_file
 *   8        FNV-1a of all bytes before
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../text/stop.h"
#include "../model/model.h"
#include "../cache/state.h"
#include "../cache/kv.h"
#include "../cache/reserve.h"
#include "../cache/bytes.h"
#include "../forward/context.h"
#include "../speculation/sample.h"
#include "../speculation/constrained.h"
#include "../speculation/draft_ngram.h"
#include "stream.h"
#include "engine.h"
#include "layout.h"
#include "sequences.h"
#include "api.h"
#include "api_functions.h"

#define SPECDEC__SAVE_HEAD_BYTES 24   /* bytes of a sequence's file before the fields */
#define SPECDEC__SAVE_SAMPLE_BYTES 64 /* bytes of a tensor that the model's fingerprint hashes, at each of three
                                         places */

/* The fields of a saved sequence: X(name, largest value). Floats are stored as bits; settings of sampling are checked
   like a caller's. */
#define SPECDEC__SAVE_FIELDS(X) \
    X(LONG, 1)                /* RoPE is that of long contexts */ \
    X(COUNT, 1u << 24)        /* tokens */ \
    X(KEYS, 1u << 24)         /* of these, the first ones whose keys and values are there, */ \
    X(FROM, 1u << 24)         /* in layers that see a window from this one on */ \
    X(ANSWER_FROM, 1u << 24) \
    X(SLID, 1u << 30) \
    X(FROM_ROW, 1) \
    X(FINISHED, 1) \
    X(DROP_SPACE, 1) \
    X(HALF, 3)                /* bytes of a character that is not complete, */ \
    X(HALF_BYTES, 0xffffffu)  /* and which */ \
    X(FREED, 256)             /* bytes that are ready to be handed out */ \
    X(HELD, 256)              /* bytes that may begin a stop string */ \
    X(STOPPED, SPECDEC_STOP_STRINGS) \
    X(CUT, 1u << 30)          /* bytes taken from where the stop string begins that was found */ \
    X(STOPS, SPECDEC_STOP_STRINGS) /* stop strings, */ \
    X(STOP_BYTES, SPECDEC__STOP_COPY_BYTES) /* of so many bytes with those behind them */ \
    X(ENDS, SPECDEC_END_TOKENS) /* tokens that end the answer: the first ones of these */ \
    X(END_0, 0xffffffffu) \
    X(END_1, 0xffffffffu) \
    X(END_2, 0xffffffffu) \
    X(END_3, 0xffffffffu) \
    X(END_4, 0xffffffffu) \
    X(END_5, 0xffffffffu) \
    X(END_6, 0xffffffffu) \
    X(END_7, 0xffffffffu) \
    X(FORKS, 1u << 24) \
    X(DEPTH, 8) \
    X(MAX_TOKENS, 0x7fffffffu) \
    X(SLIDE, 0x7fffffffu) \
    X(SPECIAL, 1) \
    X(TEMPERATURE, 0xffffffffu) \
    X(TOP_K, 0x7fffffffu) \
    X(TOP_P, 0xffffffffu) \
    X(MIN_P, 0xffffffffu) \
    X(PENALTY, 0xffffffffu) \
    X(WINDOW, 0x80000000u)    /* one more than repetition_window */ \
    X(SEED_LOW, 0xffffffffu) \
    X(SEED_HIGH, 0xffffffffu) \
    X(MIN_TOKENS, 0x7fffffffu) \
    X(IGNORE_END, 1) \
    X(SURPRISE, 0xffffffffu)  /* mirostat: the largest behind the last token */ \
    X(CONSTRAINT_LOW, 0xffffffffu) /* what the answer obeys, by its hash; 0: nothing */ \
    X(CONSTRAINT_HIGH, 0xffffffffu) \
    X(CONSTRAINED_FROM, 1u << 24) /* from this token on */

enum {
#define SPECDEC__SAVE_FIELD(name, most) SPECDEC__SAVE_##name,
    SPECDEC__SAVE_FIELDS(SPECDEC__SAVE_FIELD)
#undef SPECDEC__SAVE_FIELD
    SPECDEC__SAVE_NAMED,
    SPECDEC__SAVE_FIELD_COUNT = SPECDEC__SAVE_NAMED + SPECDEC__SAMPLE_WORDS /* the rest of sampling */
};

static const uint32_t specdec__save_field_limits[SPECDEC__SAVE_NAMED] = {
#define SPECDEC__SAVE_FIELD(name, most) most,
    SPECDEC__SAVE_FIELDS(SPECDEC__SAVE_FIELD)
#undef SPECDEC__SAVE_FIELD
};

SPECDEC__FOR_SIZE

/* The fields of a saved sequence's file. */
typedef struct specdec__saved_fields {
    uint32_t field[SPECDEC__SAVE_FIELD_COUNT]; /* by SPECDEC__SAVE_LONG ..., then sampling's other words */
} specdec__saved_fields;

/* Updates the hash of a model with some of a tensor's values: bytes of its beginning, its middle and its end. Returns
   the new hash. */
static uint64_t specdec__save_hash_tensor(uint64_t hash, const specdec_gguf_tensor *tensor)
{
    const size_t count = tensor->size < SPECDEC__SAVE_SAMPLE_BYTES ? tensor->size : SPECDEC__SAVE_SAMPLE_BYTES;
    const size_t last = tensor->size - count;

    hash = specdec__hash(hash, tensor->data, count);
    hash = specdec__hash(hash, tensor->data + last / 2, count);
    return specdec__hash(hash, tensor->data + last, count);
}

/* Returns a hash that identifies the model of a saved sequence: of the vocabulary, the metadata of the architecture,
   each tensor's name, type and shape, and some of each tensor's bytes. So it differs between fine-tunes of one
   model. */
static uint64_t specdec__save_fingerprint(const specdec__model *m)
{
    const char *name = m->architecture->name;
    const size_t length = strlen(name);
    uint64_t hash = specdec__draft_ngram_hash_vocabulary(&m->vocab);
    unsigned char numbers[5 * 8];
    specdec_gguf_tensor tensor;
    specdec_gguf_pair pair;
    size_t place = 0;
    int i;

    while (specdec_gguf_next_pair(&m->gguf, &place, &pair))
        if (pair.key.size > length && memcmp(pair.key.data, name, length) == 0 && pair.key.data[length] == '.')
            hash = specdec__hash(hash, pair.record.data, pair.record.size);
    for (place = 0; specdec_gguf_next_tensor(&m->gguf, &place, &tensor);) {
        specdec__store_u64(numbers, tensor.type);
        for (i = 0; i < 4; i++)
            specdec__store_u64(numbers + 8 * (i + 1), tensor.shape[i]);
        hash = specdec__hash(hash, tensor.name.data, tensor.name.size);
        hash = specdec__hash(hash, numbers, sizeof numbers);
        hash = specdec__save_hash_tensor(hash, &tensor);
    }
    return hash;
}

/* Returns the index of the first token of a sequence whose keys are saved, in layers that attend to the whole context
   or, by span, to a sliding window. */
static int specdec__save_first_token_with_keys(const specdec__saved_fields *saved, int span)
{
    return span == SPECDEC__WINDOW ? (int)saved->field[SPECDEC__SAVE_FROM] : 0;
}

/* Returns the size in bytes of the file of a sequence with these fields; SIZE_MAX: more than a size_t can hold. */
static size_t specdec__save_file_bytes(const specdec__saved_fields *saved, const specdec__kv *kv)
{
    const uint32_t *field = saved->field;
    size_t size = SPECDEC__SAVE_HEAD_BYTES + sizeof saved->field + 8 + field[SPECDEC__SAVE_FREED] +
                  field[SPECDEC__SAVE_HELD] + field[SPECDEC__SAVE_STOP_BYTES];
    int span;

    size = specdec__size_add(size, specdec__size_multiply(field[SPECDEC__SAVE_COUNT], 4));
    for (span = 0; span < SPECDEC__SPANS; span++)
        size = specdec__size_add(
            size, specdec__kv_bytes_in_file(kv, span, (int)field[SPECDEC__SAVE_KEYS] -
                                                   specdec__save_first_token_with_keys(saved, span)));
    if (specdec__states_exist(&kv->states) && field[SPECDEC__SAVE_KEYS])
        size = specdec__size_add(size, specdec__state_bytes_in_file(&kv->states));
    return size;
}

/* Returns which RoPE frequencies the sequence's keys were rotated by, where the model has two sets: 1: those for long
   contexts; 0: those for short ones. The value of the field LONG. */
static uint32_t specdec__save_uses_long_rope(const specdec *t)
{
    const specdec__context *c = &t->engine->target;

    return c->frequency[0] == c->model->rope_frequency[SPECDEC__ROPE_LONG];
}

/* Stores a sequence's settings in the fields of its file. */
static void specdec__save_store_settings_fields(const specdec_settings *settings, uint32_t *field)
{
    const specdec_sampling *s = &settings->sampling;
    specdec_sampling others;
    int i;

    for (i = 0; i < SPECDEC_STOP_STRINGS && settings->stop[i]; i++)
        field[SPECDEC__SAVE_STOP_BYTES] += (uint32_t)strlen(settings->stop[i]) + 1;
    field[SPECDEC__SAVE_STOPS] = (uint32_t)i;
    field[SPECDEC__SAVE_ENDS] = (uint32_t)settings->end_token_count;
    for (i = 0; i < settings->end_token_count; i++)
        field[SPECDEC__SAVE_END_0 + i] = (uint32_t)settings->end_tokens[i];
    field[SPECDEC__SAVE_MAX_TOKENS] = (uint32_t)settings->max_tokens;
    field[SPECDEC__SAVE_SLIDE] = (uint32_t)settings->slide;
    field[SPECDEC__SAVE_SPECIAL] = settings->show_special != 0;
    field[SPECDEC__SAVE_TEMPERATURE] = specdec__bits_from_float(s->temperature);
    field[SPECDEC__SAVE_TOP_K] = (uint32_t)s->top_k;
    field[SPECDEC__SAVE_TOP_P] = specdec__bits_from_float(s->top_p);
    field[SPECDEC__SAVE_MIN_P] = specdec__bits_from_float(s->min_p);
    field[SPECDEC__SAVE_PENALTY] = specdec__bits_from_float(s->repetition_penalty);
    field[SPECDEC__SAVE_WINDOW] = (uint32_t)s->repetition_window + 1;
    field[SPECDEC__SAVE_SEED_LOW] = (uint32_t)s->seed;
    field[SPECDEC__SAVE_SEED_HIGH] = (uint32_t)(s->seed >> 32);
    field[SPECDEC__SAVE_MIN_TOKENS] = (uint32_t)settings->min_tokens;
    field[SPECDEC__SAVE_IGNORE_END] = settings->ignore_end != 0;
    others = *s;
    specdec__sample_copy_settings_as_words(&others, field + SPECDEC__SAVE_NAMED, 0);
}

/* Sets a sequence's settings from the fields of its file. stops: the stop strings in the file. Biases are not changed.
   Returns 0 if the stop strings do not agree with the fields, else 1. */
static int specdec__load_settings_from_fields(uint32_t *field, const unsigned char *stops, specdec_settings *settings)
{
    specdec_sampling *s = &settings->sampling;
    const unsigned char *at = stops, *end = stops + field[SPECDEC__SAVE_STOP_BYTES];
    int i;

    memset(settings->stop, 0, sizeof settings->stop);
    for (i = 0; i < (int)field[SPECDEC__SAVE_STOPS] && at < end; i++) {
        settings->stop[i] = (const char *)at;
        at = (const unsigned char *)memchr(at, 0, (size_t)(end - at));
        if (!at++)
            return 0;
    }
    if (i < (int)field[SPECDEC__SAVE_STOPS] || at != end)
        return 0;
    settings->end_token_count = (int)field[SPECDEC__SAVE_ENDS];
    for (i = 0; i < SPECDEC_END_TOKENS; i++)
        settings->end_tokens[i] = (int32_t)field[SPECDEC__SAVE_END_0 + i];
    settings->max_tokens = (int)field[SPECDEC__SAVE_MAX_TOKENS];
    settings->slide = (int)field[SPECDEC__SAVE_SLIDE];
    settings->show_special = (int)field[SPECDEC__SAVE_SPECIAL];
    s->temperature = specdec__float_from_bits(field[SPECDEC__SAVE_TEMPERATURE]);
    s->top_k = (int32_t)field[SPECDEC__SAVE_TOP_K];
    s->top_p = specdec__float_from_bits(field[SPECDEC__SAVE_TOP_P]);
    s->min_p = specdec__float_from_bits(field[SPECDEC__SAVE_MIN_P]);
    s->repetition_penalty = specdec__float_from_bits(field[SPECDEC__SAVE_PENALTY]);
    s->repetition_window = (int32_t)((int64_t)field[SPECDEC__SAVE_WINDOW] - 1);
    s->seed = (uint64_t)field[SPECDEC__SAVE_SEED_HIGH] << 32 | field[SPECDEC__SAVE_SEED_LOW];
    settings->min_tokens = (int)field[SPECDEC__SAVE_MIN_TOKENS];
    settings->ignore_end = (int)field[SPECDEC__SAVE_IGNORE_END];
    specdec__sample_copy_settings_as_words(s, field + SPECDEC__SAVE_NAMED, 1);
    return 1;
}

/* Sets the fields KEYS and FROM, which say of which tokens keys and values are saved: of all before the last returned
   token, which becomes a root again. KEYS is 0 if pages of a sliding window that they need are free already. */
static void specdec__save_choose_tokens_with_keys(const specdec *t, uint32_t *field)
{
    const specdec__kv *kv = &t->engine->target.kv;
    const specdec__segments *s = &t->view.span[SPECDEC__WINDOW];
    int keys = specdec__min_int(t->view.length, specdec__max_int(t->handed_out - 1, 0)), span;
    const int point = specdec__state_find_point(&t->view.state, keys);

    if (specdec__states_exist(&kv->states))
        keys = point < 0 ? 0 : t->view.state.point[point].length;

    for (span = 0; span < SPECDEC__SPANS; span++)
        if (!specdec__view_has_keys(&t->view, kv, span, 0, keys))
            keys = 0;
    field[SPECDEC__SAVE_KEYS] = (uint32_t)keys;
    field[SPECDEC__SAVE_FROM] = (uint32_t)(keys && s->count ? s->segment[0].start : 0);
}

/* Sets all fields of a sequence's file. held (SPECDEC__STOP_MAX_BYTES): receives the bytes of the answer that may begin
   a stop string. */
static void specdec__save_fill_fields(const specdec *t, specdec__saved_fields *saved, unsigned char *held)
{
    specdec__stop_scan stop = t->stop;
    uint32_t *field = saved->field;
    int i;

    memset(saved, 0, sizeof *saved);
    field[SPECDEC__SAVE_LONG] = specdec__save_uses_long_rope(t);
    field[SPECDEC__SAVE_COUNT] = (uint32_t)t->handed_out;
    specdec__save_choose_tokens_with_keys(t, field);
    field[SPECDEC__SAVE_ANSWER_FROM] = (uint32_t)t->answer_from;
    field[SPECDEC__SAVE_SLID] = (uint32_t)t->slid;
    field[SPECDEC__SAVE_FROM_ROW] = (uint32_t)t->from_row;
    field[SPECDEC__SAVE_FINISHED] = (uint32_t)t->finished;
    field[SPECDEC__SAVE_CONSTRAINT_LOW] = (uint32_t)t->constrained.hash;
    field[SPECDEC__SAVE_CONSTRAINT_HIGH] = (uint32_t)(t->constrained.hash >> 32);
    field[SPECDEC__SAVE_CONSTRAINED_FROM] = (uint32_t)(t->constrained.hash ? t->constrained.from : 0);
    field[SPECDEC__SAVE_DROP_SPACE] = t->stream.drop_space != 0;
    field[SPECDEC__SAVE_HALF] = (uint32_t)t->stream.held_count;
    for (i = 0; i < t->stream.held_count; i++)
        field[SPECDEC__SAVE_HALF_BYTES] |= (uint32_t)t->stream.held[i] << 8 * i;
    field[SPECDEC__SAVE_FREED] = (uint32_t)t->released_bytes;
    field[SPECDEC__SAVE_STOPPED] = (uint32_t)t->stop.stopped;
    field[SPECDEC__SAVE_CUT] = (uint32_t)t->stop.taken_bytes;
    field[SPECDEC__SAVE_HELD] = (uint32_t)specdec__stop_write_held_bytes(&stop, held);
    field[SPECDEC__SAVE_FORKS] = (uint32_t)(t->forks - specdec__engine_count_forks_behind(t, t->handed_out));
    field[SPECDEC__SAVE_DEPTH] = (uint32_t)t->depth;
    if (t->slid + t->handed_out > t->answer_from)
        field[SPECDEC__SAVE_SURPRISE] = specdec__bits_from_float(t->surprise[t->handed_out - 1]);
    specdec__save_store_settings_fields(&t->settings, field);
}

/* Writes the file of a sequence to data[specdec__save_file_bytes]. held: the bytes that may begin a stop string. */
static void specdec__save_write_file(const specdec *t, const specdec__saved_fields *saved, const unsigned char *held,
                                     unsigned char *data)
{
    const specdec__kv *kv = &t->engine->target.kv;
    const uint32_t *field = saved->field;
    specdec__kv_file file;
    int i;

    memcpy(data, "SPECTEXT", 8);
    specdec__store_u32(data + 8, 3);
    specdec__store_u32(data + 12, (uint32_t)kv->type);
    specdec__store_u64(data + 16, specdec__save_fingerprint(t->model));
    file.next_byte = data + SPECDEC__SAVE_HEAD_BYTES;
    file.loads = 0;
    for (i = 0; i < SPECDEC__SAVE_FIELD_COUNT; i++, file.next_byte += 4)
        specdec__store_u32(file.next_byte, field[i]);
    memcpy(file.next_byte, t->piece, t->released_bytes);
    file.next_byte += t->released_bytes;
    memcpy(file.next_byte, held, field[SPECDEC__SAVE_HELD]);
    file.next_byte += field[SPECDEC__SAVE_HELD];
    memcpy(file.next_byte, t->stop_bytes, field[SPECDEC__SAVE_STOP_BYTES]);
    file.next_byte += field[SPECDEC__SAVE_STOP_BYTES];
    for (i = 0; i < t->handed_out; i++, file.next_byte += 4)
        specdec__store_u32(file.next_byte, (uint32_t)t->tokens[i]);
    for (i = 0; i < SPECDEC__SPANS; i++)
        specdec__view_copy_keys_from_or_to_file(&t->view, kv, i, specdec__save_first_token_with_keys(saved, i),
                                                (int)field[SPECDEC__SAVE_KEYS], &file);
    if (specdec__states_exist(&kv->states) && field[SPECDEC__SAVE_KEYS]) {
        i = specdec__state_find_point(&t->view.state, (int)field[SPECDEC__SAVE_KEYS]);
        specdec__state_copy_slot_from_or_to_file(&kv->states, t->view.state.point[i].slot, &file);
    }
    specdec__store_u64(file.next_byte, specdec__hash(SPECDEC__EMPTY_HASH, data, (size_t)(file.next_byte - data)));
}

/* Checks the arguments of specdec_save and specdec_load as specdec__check_call_arguments does. Also returns an error in
   a cluster, and in a build without saving. */
static specdec_result specdec__save_check_arguments(specdec *t, int given)
{
    specdec_result result = specdec__check_call_arguments(t, given);

    if (!result && specdec__in_cluster(&t->engine->config))
        return specdec__fail(&t->error, SPECDEC_ERROR_UNSUPPORTED, "a cluster's target has its keys on other ranks");
    return result || SPECDEC__HAS_SAVING ? result
                                         : specdec__fail(&t->error, SPECDEC_ERROR_UNSUPPORTED,
                                                         "SPECDEC_NO_SAVE leaves saved texts out of this build");
}

/* The body of specdec_save: writes a sequence's file to data[room]; *bytes: its size. */
static specdec_result specdec__call_save(specdec *t, void *data, size_t room, size_t *bytes)
{
    specdec_result result = specdec__save_check_arguments(t, bytes != NULL);
    unsigned char held[SPECDEC__STOP_MAX_BYTES];
    specdec__saved_fields saved;

    if (result || !SPECDEC__HAS_SAVING)
        return result;
    if (t->forced_count && t->handed_out == t->count)
        return specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, "a fork of this text waits for a place");
    if (specdec__constrained_limits_tokens(&t->constrained) && t->constrained.anchored)
        return specdec__fail(&t->error, SPECDEC_ERROR_UNSUPPORTED, "what this text's constraint has read has slid out "
                             "of its context");
    specdec__save_fill_fields(t, &saved, held);
    *bytes = specdec__save_file_bytes(&saved, &t->engine->target.kv);
    if (!data)
        return SPECDEC_OK;
    if (*bytes > room)
        return specdec__fail(&t->error, SPECDEC_ERROR_BUFFER, "%zu bytes are needed, there is room for %zu", *bytes,
                             room);
    specdec__save_write_file(t, &saved, held, (unsigned char *)data);
    return SPECDEC_OK;
}

/* Checks that data[size] is a complete file of a sequence, with keys and values of this engine's type and model. */
static specdec_result specdec__load_check_file(specdec *t, const unsigned char *data, size_t size)
{
    const specdec__kv *kv = &t->engine->target.kv;
    const uint32_t version = size < 12 ? 3 : specdec__load_u32(data + 8);

    if (size < SPECDEC__SAVE_HEAD_BYTES + sizeof(specdec__saved_fields) + 8 || memcmp(data, "SPECTEXT", 8) != 0)
        return specdec__fail(&t->error, SPECDEC_ERROR_FORMAT, "not a saved text");
    if (version != 3)
        return specdec__fail(&t->error, SPECDEC_ERROR_UNSUPPORTED, "the saved text is of version %u (3 is read)",
                             version);
    if (specdec__hash(SPECDEC__EMPTY_HASH, data, size - 8) != specdec__load_u64(data + size - 8))
        return specdec__fail(&t->error, SPECDEC_ERROR_FORMAT, "the saved text is damaged");
    if (specdec__load_u32(data + 12) != (uint32_t)kv->type)
        return specdec__fail(&t->error, SPECDEC_ERROR_MISMATCH, "the saved text does not have its keys as %s",
                             specdec__kv_types[kv->type].name);
    if (specdec__load_u64(data + 16) != specdec__save_fingerprint(t->model))
        return specdec__fail(&t->error, SPECDEC_ERROR_MISMATCH, "the saved text is of another model");
    return SPECDEC_OK;
}

/* Reads the fields of a sequence's file data[size] into *saved, and checks that they fit each other and the engine. */
static specdec_result specdec__load_read_fields(specdec *t, const unsigned char *data, size_t size,
                                                specdec__saved_fields *saved)
{
    const specdec__kv *kv = &t->engine->target.kv;
    uint32_t *field = saved->field;
    int i, bad = 0, window = kv->span[SPECDEC__WINDOW].bytes ? kv->span[SPECDEC__WINDOW].window : 0;

    for (i = 0; i < SPECDEC__SAVE_FIELD_COUNT; i++) {
        field[i] = specdec__load_u32(data + SPECDEC__SAVE_HEAD_BYTES + 4 * i);
        bad |= i < SPECDEC__SAVE_NAMED && field[i] > specdec__save_field_limits[i];
    }
    if (bad || (field[SPECDEC__SAVE_KEYS] && field[SPECDEC__SAVE_KEYS] >= field[SPECDEC__SAVE_COUNT]) ||
        field[SPECDEC__SAVE_ANSWER_FROM] > field[SPECDEC__SAVE_COUNT] ||
        field[SPECDEC__SAVE_FREED] + field[SPECDEC__SAVE_HELD] > SPECDEC__STOP_MAX_BYTES ||
        ((field[SPECDEC__SAVE_FROM_ROW] || field[SPECDEC__SAVE_SLID]) && !field[SPECDEC__SAVE_COUNT]) ||
        (field[SPECDEC__SAVE_FROM] &&
         (!window || (int)field[SPECDEC__SAVE_FROM] > (int)field[SPECDEC__SAVE_KEYS] + 1 - window)) ||
        size != specdec__save_file_bytes(saved, kv))
        return specdec__fail(&t->error, SPECDEC_ERROR_FORMAT, "the saved text contradicts itself");
    if (field[SPECDEC__SAVE_LONG] != specdec__save_uses_long_rope(t))
        return specdec__fail(&t->error, SPECDEC_ERROR_MISMATCH, "the saved text is of a %s context, by its model",
                             field[SPECDEC__SAVE_LONG] ? "long" : "short");
    if (field[SPECDEC__SAVE_COUNT] > (uint32_t)t->context)
        return specdec__fail(&t->error, SPECDEC_ERROR_CONTEXT, "the saved text has %u tokens, the context %d",
                             field[SPECDEC__SAVE_COUNT], t->context);
    return SPECDEC_OK;
}

/* Returns the hash of a saved sequence's constraint; 0: it has no constraint. */
static uint64_t specdec__load_constraint_hash(const uint32_t *field)
{
    return (uint64_t)field[SPECDEC__SAVE_CONSTRAINT_HIGH] << 32 | field[SPECDEC__SAVE_CONSTRAINT_LOW];
}

/* Checks that a saved sequence can be loaded into t: its settings are valid, its constraint is t's, its tokens (4 bytes
   each) are in the vocabulary, and the cache has pages for its keys. *stop becomes a scan of its text for its stop
   strings. */
static specdec_result specdec__load_check_contents(specdec *t, const specdec__saved_fields *saved,
                                                   const unsigned char *tokens, const specdec_settings *settings,
                                                   specdec__stop_scan *stop)
{
    const uint32_t *field = saved->field;
    uint32_t i;
    int span;

    if (specdec__stream_check_settings(settings, stop, NULL))
        return specdec__fail(&t->error, SPECDEC_ERROR_FORMAT, "the settings of the saved text are out of range");
    if (specdec__load_constraint_hash(field) != t->constrained.hash)
        return specdec__fail(&t->error, SPECDEC_ERROR_MISMATCH, "%s", !t->constrained.hash
                             ? "the saved text has a constraint, this one has none"
                             : "the saved text has another constraint than this one, or none");
    if (field[SPECDEC__SAVE_CONSTRAINED_FROM] > field[SPECDEC__SAVE_COUNT])
        return specdec__fail(&t->error, SPECDEC_ERROR_FORMAT, "the saved text contradicts itself");
    if (specdec__stream_check_slide(t->model, settings, t->context, NULL))
        return specdec__fail(&t->error, SPECDEC_ERROR_CONTEXT, "the saved text keeps its first %d tokens when it "
                             "slides, the context has %d", settings->slide, t->context);
    for (i = 0; i < field[SPECDEC__SAVE_COUNT]; i++)
        if (specdec__load_u32(tokens + (size_t)i * 4) >= (uint32_t)t->model->vocab_size)
            return specdec__fail(&t->error, SPECDEC_ERROR_FORMAT, "token %u of the saved text is out of range", i);
    for (span = 0; span < SPECDEC__SPANS; span++) /* a view has room for a state in any case */
        if (!specdec__view_has_free_pages(&t->view, &t->engine->target.kv, span,
                                          specdec__save_first_token_with_keys(saved, span),
                                          (int)field[SPECDEC__SAVE_KEYS]))
            return specdec__fail(&t->error, SPECDEC_ERROR_FULL, "no room in the cache, which all texts share, for "
                                 "the %u tokens of the saved text", field[SPECDEC__SAVE_KEYS]);
    return SPECDEC_OK;
}

/* Sets the tokens of an empty sequence, and their keys and values, from the sequence's file. tokens: the file's bytes
   from the tokens on. */
static void specdec__load_tokens(specdec *t, const specdec__saved_fields *saved, const unsigned char *tokens)
{
    specdec__kv *kv = &t->engine->target.kv;
    const int keys = (int)saved->field[SPECDEC__SAVE_KEYS];
    specdec__kv_file file;
    int i;

    t->count = t->handed_out = (int)saved->field[SPECDEC__SAVE_COUNT];
    for (i = 0; i < t->count; i++) {
        t->tokens[i] = (int32_t)specdec__load_u32(tokens + (size_t)i * 4);
        if (t->logprobs)
            t->logprobs[i] = 1;
    }
    file.next_byte = (unsigned char *)(uintptr_t)(tokens + (size_t)t->count * 4);
    file.loads = 1;
    for (i = 0; i < SPECDEC__SPANS; i++) {
        specdec__view_assign_slots(&t->view, kv, i, specdec__save_first_token_with_keys(saved, i), keys);
        specdec__view_copy_keys_from_or_to_file(&t->view, kv, i, specdec__save_first_token_with_keys(saved, i), keys,
                                                &file);
    }
    if (specdec__states_exist(&kv->states) && keys)
        specdec__state_make_slot_current(&t->view.state, &kv->states, keys, specdec__kv_take_state_slot(kv));
    if (specdec__states_exist(&kv->states) && keys)
        specdec__state_copy_slot_from_or_to_file(&kv->states, t->view.state.point[0].slot, &file);
    t->view.length = t->view.next_position = keys;
    specdec__view_update_tail_slots(&t->view, kv);
}

/* Sets the number of forks of a loaded sequence, and their places in it. Places are not saved: those behind the last
   fork tokens are taken; places where a fork hook forked are not known. */
static void specdec__load_forks(specdec *t, int forks)
{
    const specdec__engine *e = t->engine;
    int at, left = e->config.hooks.fork ? 0 : specdec__min_int(forks, e->config.forks);

    t->forks = forks;
    for (at = t->count; SPECDEC__HAS_MANY_SEQUENCES && at > 0 && left > 0; at--)
        left -= t->tokens[at - 1] == e->fork_token;
    for (; SPECDEC__HAS_MANY_SEQUENCES && at < t->count; at++)
        if (t->tokens[at] == e->fork_token)
            t->fork_places[t->placed++] = at + 1;
}

/* Sets the state of a loaded sequence's answer, once its settings and tokens are set. held: the answer's bytes that are
   ready to be returned, then those that may begin a stop string, which are scanned again. */
static void specdec__load_answer_state(specdec *t, const uint32_t *field, specdec__stop_scan *stop,
                                       const unsigned char *held)
{
    int i;

    specdec__stream_begin_answer(t);
    t->answer_from = (int)field[SPECDEC__SAVE_ANSWER_FROM];
    t->slid = (int)field[SPECDEC__SAVE_SLID];
    t->from_row = (int)field[SPECDEC__SAVE_FROM_ROW];
    t->finished = (int)field[SPECDEC__SAVE_FINISHED];
    specdec__load_forks(t, (int)field[SPECDEC__SAVE_FORKS]);
    t->depth = (int)field[SPECDEC__SAVE_DEPTH];
    if (t->count)
        t->surprise[t->count - 1] = specdec__float_from_bits(field[SPECDEC__SAVE_SURPRISE]);
    t->stream.drop_space = (int)field[SPECDEC__SAVE_DROP_SPACE];
    t->stream.held_count = (int)field[SPECDEC__SAVE_HALF];
    for (i = 0; i < 3; i++)
        t->stream.held[i] = (unsigned char)(field[SPECDEC__SAVE_HALF_BYTES] >> 8 * i);
    t->released_bytes = field[SPECDEC__SAVE_FREED];
    memcpy(t->piece, held, t->released_bytes);
    t->stop.stopped = (int)field[SPECDEC__SAVE_STOPPED];
    t->stop.taken_bytes = field[SPECDEC__SAVE_CUT];
    specdec__stream_rescan_held_bytes(t, stop, held + t->released_bytes, field[SPECDEC__SAVE_HELD]);
    t->cancelled = t->forced_count = 0;
    t->prompt_in_thought = t->parts = t->in_call = 0;
    t->failed = SPECDEC_OK;
    t->prompted_at = 0;
    specdec__constrained_begin_behind(&t->constrained, (int)field[SPECDEC__SAVE_CONSTRAINED_FROM]);
    if (t->count > t->constrained.from && specdec__constrained_limits_tokens(&t->constrained) &&
        !specdec__stream_is_end(t, t->tokens[t->count - 1]) &&
        specdec__constrained_only_end_may_follow(&t->constrained, t->tokens, t->count))
        t->complete_at = t->count;
}

/* The body of specdec_load: makes t the saved sequence of the file data[size]. */
static specdec_result specdec__call_load(specdec *t, const void *data, size_t size)
{
    specdec_result result = specdec__save_check_arguments(t, data != NULL);
    const unsigned char *held, *tokens;
    specdec_settings settings;
    specdec__stop_scan stop;
    specdec__saved_fields saved;

    if (result || !SPECDEC__HAS_SAVING)
        return result;
    if (t->parent)
        return specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, "this text is a child");
    if ((result = specdec__load_check_file(t, (const unsigned char *)data, size)) != SPECDEC_OK ||
        (result = specdec__load_read_fields(t, (const unsigned char *)data, size, &saved)) != SPECDEC_OK)
        return result;
    settings = t->settings;
    held = (const unsigned char *)data + SPECDEC__SAVE_HEAD_BYTES + sizeof saved;
    tokens = held + saved.field[SPECDEC__SAVE_FREED] + saved.field[SPECDEC__SAVE_HELD];
    if (!specdec__load_settings_from_fields(saved.field, tokens, &settings))
        return specdec__fail(&t->error, SPECDEC_ERROR_FORMAT, "the saved text contradicts itself");
    tokens += saved.field[SPECDEC__SAVE_STOP_BYTES];
    if ((result = specdec__load_check_contents(t, &saved, tokens, &settings, &stop)) != SPECDEC_OK)
        return result;
    specdec__engine_drop_children(t, 0);
    specdec__engine_keep_prefix(t);
    specdec__engine_drop_state_of_tokens(t, 0);
    t->in_call = 0;
    specdec__stream_set_settings(t, &settings, &stop);
    specdec__load_tokens(t, &saved, tokens);
    specdec__load_answer_state(t, saved.field, &stop, held);
    return SPECDEC_OK;
}

SPECDEC__FOR_SPEED
