/* =====================================================================================================================
 * >>engine/api: bodies of the API: engines, sequences, prompts, pieces of text.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "../base/op.h"
#include "../base/pool.h"
#include "../kernel/kernel.h"
#include "../kernel/dispatch.h"
#include "../text/vocabulary.h"
#include "../text/load.h"
#include "../text/tokenize.h"
#include "../text/decode.h"
#include "../text/stop.h"
#include "../text/chat.h"
#include "../model/model.h"
#include "../cache/state.h"
#include "../cache/kv.h"
#include "../cache/reserve.h"
#include "../forward/context.h"
#include "../forward/step.h"
#include "../speculation/sample.h"
#include "../speculation/constrained.h"
#include "../speculation/ngram.h"
#include "../speculation/ngram_file.h"
#include "../speculation/draft.h"
#include "../speculation/draft_ngram.h"
#include "stream.h"
#include "engine.h"
#include "layout.h"
#include "sequences.h"
#include "start.h"
#include "prefill.h"
#include "slide.h"
#include "../schedule/plan.h"
#include "../cluster/cluster.h"
#include "../schedule/stop.h"
#include "../schedule/work.h"

SPECDEC__FOR_SIZE

const char *specdec_result_text(specdec_result result)
{
    static const char *const texts[SPECDEC_RESULT_COUNT] = {
#define SPECDEC__RESULT(name, text) text,
        SPECDEC_RESULTS(SPECDEC__RESULT)
#undef SPECDEC__RESULT
    };

    return (unsigned)result < SPECDEC_RESULT_COUNT ? texts[result] : "unknown result";
}

const char *specdec_version(void) { return SPECDEC_VERSION; }

const char *specdec_error_text(const specdec *engine) { return engine ? engine->error.text : ""; }

/* Returns the size in bytes of a memory block, of any alignment, that has room for a layout of `used` bytes. */
static size_t specdec__block_bytes(size_t used) { return specdec__size_add(used, SPECDEC__CACHE_LINE - 1); }

/* Returns an arena over the caller's memory block, from the block's first aligned byte on. The arena has room for a
   layout exactly if the block has specdec__block_bytes of the layout. */
static specdec__arena specdec__block_arena(void *memory, size_t bytes)
{
    specdec__arena arena;
    size_t skip = (size_t)(-(uintptr_t)memory & (SPECDEC__CACHE_LINE - 1));

    arena.base = (unsigned char *)memory + skip;
    arena.size = bytes < SPECDEC__CACHE_LINE - 1 ? 0 : bytes - (SPECDEC__CACHE_LINE - 1);
    arena.used = 0;
    return arena;
}

/* Sets *bytes to the size of a block that holds what an arena has counted. After an error *bytes is unchanged. */
static specdec_result specdec__counted_block_bytes(const specdec__arena *arena, size_t *bytes, specdec_error *error)
{
    size_t needed = specdec__block_bytes(arena->used);

    if (needed == SIZE_MAX)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "the configuration needs more than all memory");
    *bytes = needed;
    return SPECDEC_OK;
}

/* Returns the error of a call whose memory block has `bytes` bytes where `needed` are needed. */
static specdec_result specdec__fail_small_block(size_t bytes, size_t needed, specdec_error *error)
{
    return specdec__fail(error, SPECDEC_ERROR_MEMORY, "the block has %zu bytes, %zu are needed", bytes, needed);
}

/* Returns the error of a call in which a required pointer is NULL. */
static specdec_result specdec__fail_missing_argument(specdec_error *error)
{
    return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "an argument is NULL");
}

/* Checks the arguments of a call of the API: returns an error if the sequence t is NULL or closed, or only serves a
   cluster, or if a required argument is missing. given 1: all required arguments are there. */
static specdec_result specdec__check_call_arguments(specdec *t, int given)
{
    if (!t)
        return SPECDEC_ERROR_ARGUMENT;
    if (!t->open)
        return specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, "this text is closed");
    if (SPECDEC__PIPE && t->engine->remote && t->engine->remote->obey_rank_0)
        return specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, "this rank only serves");
    return given ? SPECDEC_OK : specdec__fail_missing_argument(&t->error);
}

/* Checks config.settings, the settings that sequences of an engine begin with. The 2 KB of a scan for stop strings are
   on the stack only in this function. */
static SPECDEC__NOINLINE specdec_result specdec__engine_check_settings(const specdec_config *c, specdec_error *error)
{
    specdec__stop_scan stop;
    specdec_result result = specdec__stream_check_logprobs(&c->settings, c->logprobs, error);

    result = result ? result : specdec__stream_check_constraint(&c->settings, 1, error);
    return result ? result : specdec__stream_check_settings(&c->settings, &stop, error);
}

/* Makes the engine a rank of the configuration's cluster. */
static specdec_result specdec__engine_join_cluster(specdec__engine *e, specdec_error *error)
{
    if (!SPECDEC__HAS_CLUSTER && e->config.cluster)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "a cluster needs a build with SPECDEC_CLUSTER");
    return SPECDEC__HAS_CLUSTER ? specdec__cluster_configure_rank(e, error) : SPECDEC_OK;
}

/* Lays out all that an engine needs in an arena; e->config is set. */
static specdec_result specdec__engine_lay_out_from_config(specdec__engine *e, specdec__arena *arena,
                                                          specdec_error *error)
{
    specdec_result result;

    specdec__engine_allocate_large_members(e, arena);
    if ((result = specdec__engine_fill_config(e, error)) == SPECDEC_OK &&
        (result = specdec__engine_join_cluster(e, error)) == SPECDEC_OK &&
        (result = specdec__kernels_init(e->kernels, e->config.isa, error)) == SPECDEC_OK &&
        (result = specdec__engine_check_settings(&e->config, error)) == SPECDEC_OK &&
        (result = specdec__engine_lay_out(e, arena, error)) == SPECDEC_OK &&
        (result = specdec__stream_check_slide(e->target_model, &e->config.settings, e->room.view_keys, error)) ==
            SPECDEC_OK &&
        (result = specdec__engine_find_fork_tokens(e, error)) == SPECDEC_OK &&
        (result = specdec__chat_choose_format(&e->chat, e->target_model->chat, &e->target_model->vocab,
                                              e->config.chat_format, error)) == SPECDEC_OK)
        result = specdec__engine_repack_weights(e, arena, error);
    return result;
}

/* Sets *bytes to the size of the block of an engine with this configuration, by laying the engine out without memory.
   own, kernels, drafters: large members of that engine, which lie on the stack in the frames of the callers, as no
   frame may be large. */
static SPECDEC__NOINLINE specdec_result specdec__count_memory(const specdec_config *config, specdec__model **own,
                                                              specdec__kernels *kernels, specdec__drafter *drafters,
                                                              size_t *bytes, specdec_error *error)
{
    specdec__arena arena = {NULL, 0, 0};
    specdec__engine engine;
    specdec_result result;

    memset(&engine, 0, sizeof engine);
    engine.config = *config;
    memcpy(engine.opened_models, own, sizeof engine.opened_models);
    engine.kernels = kernels;
    engine.drafters = drafters;
    SPECDEC__TAKE(&arena, specdec__engine, 1);
    result = specdec__engine_lay_out_from_config(&engine, &arena, error);
    if (!result)
        result = specdec__counted_block_bytes(&arena, bytes, error);
    specdec__engine_close_models(&engine);
    return result;
}

/* As specdec__count_memory; the kernels lie in the stack frame of this function. */
static SPECDEC__NOINLINE specdec_result specdec__count_memory_with_kernels_on_stack(const specdec_config *config,
                                                                                    specdec__model **own,
                                                                                    specdec__drafter *drafters,
                                                                                    size_t *bytes, specdec_error *error)
{
    specdec__kernels kernels;

    return specdec__count_memory(config, own, &kernels, drafters, bytes, error);
}

/* As specdec__count_memory; the drafters lie in the stack frame of this function. */
static SPECDEC__NOINLINE specdec_result specdec__count_memory_with_drafters_on_stack(const specdec_config *config,
                                                                                     specdec__model **own,
                                                                                     size_t *bytes,
                                                                                     specdec_error *error)
{
    specdec__drafter drafters[SPECDEC__MAX_DRAFTERS];

    memset(drafters, 0, sizeof drafters);
    return specdec__count_memory_with_kernels_on_stack(config, own, drafters, bytes, error);
}

/* As specdec__count_memory. One of the models that the engine opens lies in the stack frame of this function, which
   calls itself for the `left` - 1 other models. own (SPECDEC__MAX_MODELS): receives the addresses of the models. */
static SPECDEC__NOINLINE specdec_result specdec__count_memory_with_models_on_stack(const specdec_config *config,
                                                                                   specdec__model **own, int left,
                                                                                   size_t *bytes, specdec_error *error)
{
    specdec__model model;

    memset(&model, 0, sizeof model);
    own[left - 1] = &model;
    return left > 1 ? specdec__count_memory_with_models_on_stack(config, own, left - 1, bytes, error)
                    : specdec__count_memory_with_drafters_on_stack(config, own, bytes, error);
}

/* Returns whether the engine itself opens the model of a source: the source is given and has no prepared model. */
static int specdec__source_is_opened(const specdec_source *s) { return specdec__source_is_given(s) && !s->model; }

specdec_result specdec_memory_needed(const specdec_config *config, size_t *bytes, specdec_error *error)
{
    specdec__model *own[SPECDEC__MAX_MODELS] = {NULL};
    int models = 1; /* that of the target, or the place of one that is missing */

    if (!config || !bytes)
        return specdec__fail_missing_argument(error);
    models += specdec__source_is_opened(&config->draft) + specdec__source_is_opened(&config->heads);
    models += SPECDEC__HAS_STATE_DRAFTERS &&
              (config->drafting == SPECDEC_DRAFT_AUTO || config->drafting == SPECDEC_DRAFT_MTP);
    return specdec__count_memory_with_models_on_stack(config, own, models, bytes, error);
}

specdec_result specdec_init(specdec **engine, const specdec_config *config, void *memory, size_t bytes,
                            specdec_error *error)
{
    specdec__arena arena;
    specdec__engine *e;
    size_t needed;
    specdec_result result;

    if (!engine)
        return specdec__fail_missing_argument(error);
    *engine = NULL;
    result = specdec_memory_needed(config, &needed, error);
    if (result)
        return result;
    if (!memory || bytes < needed)
        return specdec__fail_small_block(memory ? bytes : 0, needed, error);
    arena = specdec__block_arena(memory, needed);
    e = SPECDEC__TAKE(&arena, specdec__engine, 1);
    e->config = *config;
    e->memory_bytes = needed;
    result = specdec__engine_lay_out_from_config(e, &arena, error);
    if (!result)
        result = arena.used == SIZE_MAX ? specdec__fail_small_block(bytes, needed, error) /* a file has changed */
                                        : specdec__engine_start(e, error);
    if (result) {
        specdec__pool_deinit(&e->pool);
        specdec__engine_close_models(e);
        return result;
    }
    *engine = &e->sequences[0];
    return SPECDEC_OK;
}

/* The body of specdec_serve: obeys rank 0 of the cluster until it ends. */
static specdec_result specdec__call_serve(specdec *t)
{
    const specdec__remote *remote = t ? t->engine->remote : NULL;

    if (!t)
        return SPECDEC_ERROR_ARGUMENT;
    return SPECDEC__PIPE && remote && remote->obey_rank_0
               ? remote->obey_rank_0(t)
               : specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, "only ranks above 0 of a cluster serve");
}

/* The body of specdec_open: opens an empty sequence in t's engine, or (fork: 1) a copy of the sequence t. */
static specdec_result specdec__call_open(specdec *t, int fork, specdec **opened)
{
    if (!t || !opened)
        return t ? specdec__fail_missing_argument(&t->error) : SPECDEC_ERROR_ARGUMENT;
    *opened = NULL;
    if (!SPECDEC__HAS_MANY_SEQUENCES)
        return specdec__fail(&t->error, SPECDEC_ERROR_UNSUPPORTED,
                             "SPECDEC_NO_SEQUENCES leaves several texts and forks out of this build");
    *opened = fork ? specdec__engine_fork_sequence(t) : specdec__engine_open_sequence(t);
    return *opened ? SPECDEC_OK : SPECDEC_ERROR_MEMORY;
}

/* The body of specdec_fork: opens a copy of a sequence, *fork. */
static specdec_result specdec__call_fork(specdec *t, specdec **fork)
{
    specdec_result result = specdec__check_call_arguments(t, fork != NULL);

    if (fork)
        *fork = NULL;
    if (result || (result = specdec__call_open(t, 1, fork)) != SPECDEC_OK || !SPECDEC__HAS_MANY_SEQUENCES)
        return result;
    specdec__engine_discard_pending_if_forked(*fork); /* the copy decodes pending tokens again, for children of its
                                                         own */
    return SPECDEC_OK;
}

specdec *specdec_child(specdec *t, int i)
{
    specdec *found = NULL;
    int at = t ? t->answer_from : 0, k;

    /* each round: the next fork behind `at` */
    for (; SPECDEC__HAS_MANY_SEQUENCES && t && t->open && i >= 0; i--, at = found->fork_at) {
        found = NULL;
        for (k = 0; k < t->engine->room.max_views; k++) {
            specdec *x = &t->engine->sequences[k];

            if (x->open && x->parent == t && x->fork_at > at && (!found || x->fork_at < found->fork_at))
                found = x;
        }
        if (!found)
            break;
    }
    return found;
}

/* Appends from[count] to the text that specdec_join_forks writes to out[room], as far as there is room. *length: bytes
   of the text so far, also of those without room. */
static void specdec__join_append_bytes(const unsigned char *from, size_t count, char *out, size_t room, size_t *length)
{
    if (*length < room)
        memcpy(out + *length, from, count < room - *length ? count : room - *length);
    *length += count;
}

/* Returns how many bytes of a sequence's own answer, without its children's answers, were returned to the caller. No
   stop string can end the answer within them. stream: a decoder at the answer's begin. */
static size_t specdec__join_count_returned_bytes(const specdec *t, specdec__text_decoder stream)
{
    const size_t back = t->stop.stopped ? t->stop.taken_bytes : t->stop.held;
    size_t known = 0, more;
    int i;

    for (i = t->answer_from; i < t->handed_out; i++, known += more)
        specdec__stream_decode_token(t, &stream, t->tokens[i], &more, NULL);
    if (stream.held_count > t->stream.held_count)
        known += (size_t)(stream.held_count - t->stream.held_count); /* the beginning of a character at the end */
    return known < back ? 0 : known - back;
}

/* The state of specdec_join_forks for one sequence, whose answer is written behind the text that is joined so far: the
   answer of the sequence on which the function was called, with its children's answers at their forks. */
typedef struct specdec__answer_join {
    unsigned char *piece;    /* (2 * text room + stop room): working memory for a piece of text */
    char *out;               /* (room): the caller's buffer, which receives the joined text */
    size_t room;             /* bytes of the buffer */
    size_t *length;          /* bytes of the joined text so far, also of those that the buffer has no room for */
    size_t returned_left;    /* next bytes of this answer that the caller has had already: they are not searched for
                                stop strings */
    specdec__stop_scan stop; /* searches the bytes behind returned_left for stop strings */
} specdec__answer_join;

/* Appends the first `count` bytes of t->token_text to the joined text, up to a stop string that ends the answer. */
static void specdec__join_token_text(specdec *t, specdec__answer_join *r, size_t count)
{
    const size_t plain = r->returned_left < count ? r->returned_left : count;
    size_t written;

    r->returned_left -= plain;
    specdec__join_append_bytes(t->token_text, plain, r->out, r->room, r->length);
    r->stop.stopped = t->stop.taken_bytes && plain < count;
    specdec__stop_push_bytes(&r->stop, t->token_text + plain, count - plain, r->piece, 2 * t->text_room, &written,
                             NULL);
    specdec__join_append_bytes(r->piece, written, r->out, r->room, r->length);
}

/* Appends the bytes that the scan for stop strings holds back to the joined text, as the answer, or its part before a
   fork, ends here. */
static void specdec__join_append_held_bytes(specdec__answer_join *r)
{
    if (!r->stop.stopped)
        specdec__join_append_bytes(r->piece, specdec__stop_write_held_bytes(&r->stop, r->piece), r->out, r->room,
                                   r->length);
}

/* Appends a sequence's answer to the joined text out[room], of which *length bytes are written, with the answers of its
   children at their forks. A stop string ends an answer, but not across a fork. piece: memory for a piece of text. */
static void specdec__join_append_forked_answers(specdec *t, unsigned char *piece, char *out, size_t room,
                                                size_t *length)
{
    specdec *child = specdec_child(t, 0);
    specdec__text_decoder stream;
    specdec__answer_join r;
    size_t more;
    int i, k = 0;

    r.piece = piece;
    r.out = out;
    r.room = room;
    r.length = length;
    specdec__stream_check_settings(&t->settings, &r.stop, NULL);
    specdec__text_decoder_begin(&stream, &t->model->vocab, t->answer_from ? t->tokens[t->answer_from - 1] : -1,
                                t->settings.show_special);
    r.returned_left = specdec__join_count_returned_bytes(t, stream);
    for (i = t->answer_from; i < t->count && !r.stop.stopped; i++) {
        if (i >= t->handed_out && specdec__stream_end_reason(t, i))
            break; /* by settings that were set later */
        specdec__stream_decode_token(t, &stream, t->tokens[i], &more, NULL);
        specdec__join_token_text(t, &r, more);
        if (child && child->fork_at == i + 1 && !r.stop.stopped) {
            specdec__join_append_held_bytes(&r);
            specdec__join_append_forked_answers(child, piece, out, room, length);
            child = specdec_child(t, ++k);
        }
    }
    if (!r.stop.stopped)
        specdec__join_token_text(t, &r, specdec__text_decoder_end(&stream, t->token_text));
    specdec__join_append_held_bytes(&r);
}

/* The body of specdec_join_forks: writes a sequence's answer, joined with its children's answers, to bytes[room]. */
static specdec_result specdec__call_join_forks(specdec *t, char *bytes, size_t room, size_t *length)
{
    specdec_result result = specdec__check_call_arguments(t, length && (bytes || !room));

    if (result)
        return result;
    *length = 0;
    specdec__join_append_forked_answers(t, t->piece + t->released_bytes, bytes, room, length);
    return *length <= room ? SPECDEC_OK
                           : specdec__fail(&t->error, SPECDEC_ERROR_BUFFER, "the answer has %zu bytes, there is room "
                                           "for %zu", *length, room);
}

/* Returns the n-gram index from which the engine drafts; NULL, with an error in t->error: the engine has none. */
static specdec__ngram *specdec__find_ngram_index(specdec *t)
{
    const specdec__engine *e = t->engine;
    int i;

    for (i = 0; SPECDEC__HAS_NGRAM_DRAFTERS && i < e->drafter_count; i++)
        if (e->drafters[i].drafting == SPECDEC_DRAFT_NGRAM)
            return (specdec__ngram *)e->drafters[i].state;
    specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, "this engine does not draft from n-grams");
    return NULL;
}

/* The body of specdec_save_history: writes the engine's n-gram index to data[room]. */
static specdec_result specdec__call_save_history(specdec *t, void *data, size_t room, size_t *bytes)
{
    const specdec__ngram *index;

    if (!t || !bytes)
        return t ? specdec__fail_missing_argument(&t->error) : SPECDEC_ERROR_ARGUMENT;
    index = specdec__find_ngram_index(t);
    if (!SPECDEC__HAS_NGRAM_DRAFTERS || !index)
        return SPECDEC_ERROR_ARGUMENT;
    return specdec__ngram_save_file(index, specdec__draft_ngram_hash_vocabulary(&t->model->vocab), data, room, bytes,
                                    &t->error);
}

/* The body of specdec_load_history: adds a saved n-gram index, data[size], to the engine's. */
static specdec_result specdec__call_load_history(specdec *t, const void *data, size_t size)
{
    specdec__ngram *index;

    if (!t || !data)
        return t ? specdec__fail_missing_argument(&t->error) : SPECDEC_ERROR_ARGUMENT;
    index = specdec__find_ngram_index(t);
    if (!SPECDEC__HAS_NGRAM_DRAFTERS || !index)
        return SPECDEC_ERROR_ARGUMENT;
    return specdec__ngram_load_file(index, specdec__draft_ngram_hash_vocabulary(&t->model->vocab), t->model->vocab_size,
                                    data,
                                    size, &t->error);
}

/* The body of specdec_set: sets the settings of a sequence. */
static specdec_result specdec__call_set(specdec *t, const specdec_settings *settings)
{
    specdec_result result = specdec__check_call_arguments(t, settings != NULL);
    unsigned char held[SPECDEC__STOP_MAX_BYTES];
    specdec__stop_scan stop;
    size_t count = 0;

    if (result || (result = specdec__stream_check_settings(settings, &stop, &t->error)) != SPECDEC_OK ||
        (result = specdec__stream_check_slide(t->model, settings, t->context, &t->error)) != SPECDEC_OK ||
        (result = specdec__stream_check_logprobs(settings, t->best_count, &t->error)) != SPECDEC_OK ||
        (result = specdec__stream_check_constraint(settings, t->constrained.masker != NULL, &t->error)) != SPECDEC_OK)
        return result;
    if (t->handed_out < t->count && (settings->top_logprobs != t->settings.top_logprobs ||
                                     !specdec__stream_keeps_constraint(t, settings) ||
                                     !specdec__stream_samples_alike(settings, &t->settings)))
        specdec__engine_discard_pending(t);
    specdec__engine_discard_pending_if_forked(t); /* children that fork later have the new settings */
    if (!t->stop.stopped) { /* bytes that the last call freed may begin a stop string of the new settings */
        count = t->released_bytes;
        memcpy(held, t->piece, count);
        t->released_bytes = 0;
    }
    count += specdec__stop_write_held_bytes(&t->stop, held + count);
    specdec__async_drop_drafts(t, t->count);
    specdec__stream_set_settings(t, settings, &stop);
    specdec__stream_rescan_held_bytes(t, &stop, held, count);
    t->stream.show_special = settings->show_special;
    return SPECDEC_OK;
}

void specdec_get_settings(const specdec *t, specdec_settings *settings)
{
    if (t && settings)
        *settings = t->settings;
}

/* The tokens of a sequence to which a prompt is appended. */
typedef struct specdec__prompt_head {
    int keep;  /* number of the sequence's first tokens that are kept */
    int fresh; /* number of tokens that then follow, behind the sequence in its buffer: they spell the returned part of
                  a token within which a stop string begins */
} specdec__prompt_head;

/* Returns the head that a prompt is appended to: all tokens of the sequence that were prompted or returned. Pending
   tokens are dropped by a prompt. */
static specdec__prompt_head specdec__prompt_head_all_returned(const specdec *t)
{
    specdec__prompt_head head;

    head.keep = t->handed_out;
    head.fresh = 0;
    return head;
}

/* Returns the last token of the head that a prompt is appended to; -1: the head is empty. */
static int32_t specdec__prompt_head_last_token(const specdec *t, specdec__prompt_head head)
{
    return head.fresh ? t->tokens[t->count + head.fresh - 1] : head.keep ? t->tokens[head.keep - 1] : -1;
}

/* Tokenizes a prompt's text, which follows `head`, into the sequence's token buffer, behind the head's `fresh` tokens.
   special: flags of the tokenizer; plain (length bits, or NULL): 1: the byte is never part of a control token. *read
   becomes the number of tokens. Errors: CONTEXT. */
static specdec_result specdec__prompt_tokenize(specdec *t, specdec__prompt_head head, const char *text, size_t length,
                                               int special, const unsigned char *plain, int *read)
{
    const specdec__vocab *v = &t->model->vocab;
    const int32_t last = specdec__prompt_head_last_token(t, head);
    const int flags = last < 0                                                             ? SPECDEC_TOKENIZE_BEGIN
                      : specdec__vocab_type_is_special(specdec__vocab_token_type(v, (uint32_t)last)) ? 0
                                                                                           : SPECDEC_TOKENIZE_INSIDE;
    size_t count, room = (size_t)specdec__max_int(t->context - head.keep - head.fresh, 0);
    specdec_result result;

    length = length == SPECDEC_WHOLE_STRING ? strlen(text) : length;
    if (length > t->engine->chat_bytes)
        return specdec__fail(&t->error, SPECDEC_ERROR_CONTEXT,
                             "a text of %zu bytes; with this context, %zu are the most", length, t->engine->chat_bytes);
    result = specdec__tokenize(v, text, length, flags | special, plain, t->tokens + t->count + head.fresh, room, &count,
                               t->engine->scratch, t->engine->scratch_bytes, &t->error);
    if (result == SPECDEC_ERROR_BUFFER)
        return specdec__fail(&t->error, SPECDEC_ERROR_CONTEXT, "the prompt has %zu tokens, the context has room for %d",
                             count, specdec__max_int((int)room - 1, 0));
    *read = (int)count;
    return result;
}

/* Appends a prompt's text to `head`: tokenizes it as specdec__prompt_tokenize does, and prefills its tokens. */
static specdec_result specdec__prompt_append(specdec *t, specdec__prompt_head head, const char *text, size_t length,
                                             int special, const unsigned char *plain)
{
    int count = 0;
    specdec_result result = specdec__prompt_tokenize(t, head, text, length, special, plain, &count);

    if (result)
        return result;
    result = specdec__engine_replace_tokens(t, head.keep, t->tokens + t->count, head.fresh + count, NULL);
    if (!result)
        t->stats.prompt_tokens -= head.fresh;
    return specdec__engine_clear_cancellation(t, result);
}

/* The body of specdec_prompt: appends a text to a sequence, and prefills its tokens. */
static specdec_result specdec__call_prompt(specdec *t, const char *text, size_t length)
{
    specdec_result result = specdec__check_call_arguments(t, text || !length);

    return result ? result : specdec__prompt_append(t, specdec__prompt_head_all_returned(t), text, length, 0, NULL);
}

/* The body of specdec_prompt_special: as specdec_prompt, but control tokens in the text count. */
static specdec_result specdec__call_prompt_special(specdec *t, const char *text, size_t length)
{
    specdec_result result = specdec__check_call_arguments(t, text || !length);

    return result ? result
                  : specdec__prompt_append(t, specdec__prompt_head_all_returned(t), text, length,
                                           SPECDEC_TOKENIZE_SPECIAL, NULL);
}

/* The body of specdec_prompt_tokens: appends tokens[count] to a sequence, and prefills them. */
static specdec_result specdec__call_prompt_tokens(specdec *t, const int32_t *tokens, int count)
{
    specdec_result result = specdec__check_call_arguments(t, 1);

    return result ? result
                  : specdec__engine_clear_cancellation(t, specdec__engine_append_prompt(t, tokens, count, NULL));
}

/* The body of specdec_prompt_logits: as specdec_prompt_tokens; also stores the logits (count, vocab) of each token. */
static specdec_result specdec__call_prompt_logits(specdec *t, const int32_t *tokens, int count, float *logits)
{
    specdec_result result = specdec__check_call_arguments(t, logits || count <= 0);
    specdec__prefill_rows wanted = specdec__prefill_rows_with_logits_from(0);

    wanted.logits = logits;
    return result ? result
                  : specdec__engine_clear_cancellation(t, specdec__engine_append_prompt(t, tokens, count, &wanted));
}

/* The body of specdec_prompt_states: as specdec_prompt_tokens; also stores the hidden states after layers[layer_count].
   */
static specdec_result specdec__call_prompt_states(specdec *t, const int32_t *tokens, int count, const int *layers,
                                                  int layer_count, float *states)
{
    specdec_result result = specdec__check_call_arguments(t, layers && layer_count > 0 && states);
    specdec__prefill_rows wanted = specdec__prefill_rows_with_logits_from(0);
    int i;

    if (!result && specdec__in_cluster(&t->engine->config))
        return specdec__fail(&t->error, SPECDEC_ERROR_UNSUPPORTED, "a cluster's target has its states on other ranks");
    for (i = 0; !result && i < layer_count; i++)
        if (layers[i] < SPECDEC_STATE_FINAL || layers[i] > t->model->layers)
            return specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, "states after %d layers: the target has %d",
                                 layers[i], t->model->layers);
    wanted.state_reader.layers = layers;
    wanted.state_reader.count = layer_count;
    wanted.state_reader.out = states;
    return result ? result
                  : specdec__engine_clear_cancellation(t, specdec__engine_append_prompt(t, tokens, count, &wanted));
}

/* Returns the index of the token in which the stop string begins that has ended an answer. back: bytes from there to
   the answer's end. *part becomes the number of bytes that the token has before the stop string; they lie in
   t->token_text. */
static int specdec__find_token_of_stop_string(specdec *t, size_t back, size_t *part)
{
    specdec__text_decoder stream;
    size_t all = 0, sure, more, held;
    int i, pass;

    for (pass = 0, sure = SIZE_MAX; pass < 2; pass++) {
        specdec__text_decoder_begin(&stream, &t->model->vocab, t->answer_from ? t->tokens[t->answer_from - 1] : -1,
                                    t->settings.show_special);
        for (i = t->answer_from, all = 0; i < t->handed_out; i++, all += more) {
            held = (size_t)stream.held_count;
            specdec__stream_decode_token(t, &stream, t->tokens[i], &more, NULL);
            memcpy(t->token_text + more, stream.held, (size_t)stream.held_count);
            if (all + more + (size_t)stream.held_count <= sure)
                continue;
            *part = sure - (all + held);
            memmove(t->token_text, t->token_text + held, *part);
            return i;
        }
        all += (size_t)(stream.held_count - t->stream.held_count); /* bytes that were scanned as text end there */
        sure = all < back ? 0 : all - back;
    }
    *part = 0;
    return t->handed_out;
}

/* Sets *head to the tokens of a sequence before the stop string that has ended its answer: the returned part of a token
   within which the stop string begins is tokenized anew. Without a stop string: all returned tokens. Errors: CONTEXT,
   MEMORY. */
static specdec_result specdec__prompt_head_before_stop(specdec *t, specdec__prompt_head *head)
{
    const specdec__vocab *v = &t->model->vocab;
    specdec_result result;
    size_t part, count = 0;
    int after_special;

    *head = specdec__prompt_head_all_returned(t);
    if (!t->stop.stopped || !t->stop.taken_bytes)
        return SPECDEC_OK;
    head->keep = specdec__find_token_of_stop_string(t, t->stop.taken_bytes, &part);
    after_special = head->keep &&
                    specdec__vocab_type_is_special(specdec__vocab_token_type(v, (uint32_t)t->tokens[head->keep - 1]));
    result = specdec__tokenize(v, (const char *)t->token_text, part, after_special ? 0 : SPECDEC_TOKENIZE_INSIDE, NULL,
                               t->tokens + t->count, (size_t)(t->context - head->keep), &count, t->engine->scratch,
                               t->engine->scratch_bytes, &t->error);
    if (result == SPECDEC_ERROR_BUFFER)
        return specdec__fail(&t->error, SPECDEC_ERROR_CONTEXT, "no room to read the end of the answer anew");
    head->fresh = (int)count;
    return result;
}

/* The body of specdec_cut_stop: removes the stop string that has ended the answer, and all tokens behind it, from the
   sequence. */
static specdec_result specdec__call_cut_stop(specdec *t)
{
    specdec_result result = specdec__check_call_arguments(t, 1);
    specdec__prompt_head head;
    int i;

    if (result || !t->stop.stopped || !t->stop.taken_bytes ||
        (result = specdec__prompt_head_before_stop(t, &head)) != SPECDEC_OK)
        return result;
    specdec__engine_drop_children(t, head.keep);
    specdec__engine_drop_state_of_tokens(t, head.keep);
    memmove(t->tokens + head.keep, t->tokens + t->count, (size_t)head.fresh * sizeof *t->tokens);
    t->count = t->handed_out = head.keep + head.fresh;
    for (i = head.keep; t->logprobs && i < t->count; i++)
        t->logprobs[i] = 1;
    t->from_row = 0;
    t->stop.taken_bytes = 0;
    return SPECDEC_OK;
}

/* Makes steps until a token of sequence t is pending. work 0: makes no step, and returns PENDING where one is needed.
   Returns DONE if the answer has ended. */
static specdec_result specdec__decode_next_token(specdec *t, int work)
{
    specdec_result result;
    int gone;

    if (!t->count)
        return specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, "nothing was prompted");
    t->cancelled = 0;
    for (;;) {
        if (specdec__stream_end_reason(t, t->handed_out) == SPECDEC_STOP_CONTEXT &&
            (gone = specdec__engine_count_tokens_to_slide(t)) > 0)
            specdec__engine_slide_sequence(t, gone);
        t->finished = specdec__stream_end_reason(t, t->handed_out) != SPECDEC_STOP_NONE;
        if (t->finished) {
            specdec__engine_discard_pending_if_forked(t); /* the sequence ends before the forks of these children */
            return SPECDEC_DONE;
        }
        if (t->handed_out < t->count)
            return SPECDEC_OK;
        result = t->failed;
        t->failed = SPECDEC_OK;
        if (result && t->error.code != result) /* another call has failed since */
            return specdec__fail(&t->error, result, "%s", specdec_result_text(result));
        if (!result && !work)
            return SPECDEC_PENDING;
        if (!result)
            result = specdec__engine_step(t->engine, t);
        if (result)
            return specdec__engine_clear_cancellation(t, result);
    }
}

/* The body of specdec_work: makes one step of the engine. */
static specdec_result specdec__call_work(specdec *t)
{
    if (!t)
        return SPECDEC_ERROR_ARGUMENT;
    if (t->engine->room.max_views > 1)
        return specdec__engine_step(t->engine, NULL);
    if (!specdec__engine_prepare_sequence(t)) /* the only sequence */
        return SPECDEC_DONE;
    t->failed = specdec__engine_step(t->engine, t);
    if (t->failed == SPECDEC_ERROR_CANCELLED) /* the next call returns this error, and no other call */
        SPECDEC__STORE(&t->cancel, 0);
    return SPECDEC_OK;
}

/* The body of specdec_step: returns the pending tokens of a sequence, after a step if there are none. */
static specdec_result specdec__call_step(specdec *t, const int32_t **tokens, int *count)
{
    specdec_result result = specdec__check_call_arguments(t, tokens && count);
    int from;

    if (result)
        return result;
    t->before.count = 0;
    result = specdec__decode_next_token(t, 1);
    if (result && result != SPECDEC_DONE)
        specdec__engine_undo_slide(t);
    from = t->handed_out;
    *tokens = t->tokens + from;
    *count = 0;
    if (result)
        return result;
    while (t->handed_out < t->count && !specdec__stream_end_reason(t, t->handed_out))
        t->handed_out++;
    *count = t->handed_out - from;
    return SPECDEC_OK;
}

/* Decodes tokens of a sequence until their text is not empty, and writes that text, *written bytes, to t->piece. work:
   as for specdec__decode_next_token. */
static specdec_result specdec__decode_next_piece(specdec *t, int work, size_t *written)
{
    specdec_result result;
    size_t more;

    do {
        int was_finished = t->finished;
        unsigned char rest[3];

        result = specdec__decode_next_token(t, work);
        if (result == SPECDEC_DONE && !was_finished && !t->stop.stopped) { /* what was held back */
            more = specdec__text_decoder_end(&t->stream, rest);
            specdec__stop_push_bytes(&t->stop, rest, more, t->piece, 2 * t->text_room, written, &t->error);
            if (!t->stop.stopped)
                *written += specdec__stop_write_held_bytes(&t->stop, t->piece + *written);
        }
        if (result)
            return result;
        result = specdec__stream_decode_token(t, &t->stream, t->tokens[t->handed_out], &more, &t->error);
        if (result)
            return result;
        t->handed_out++;
        result = specdec__stop_push_bytes(&t->stop, t->token_text, more, t->piece,
                                          2 * t->text_room + SPECDEC__STOP_MAX_BYTES, written, &t->error);
    } while (!result && !*written);
    return result;
}

/* Returns the next piece of a sequence's text to the caller, for specdec_next (work 1) and specdec_take (work 0:
   without a step). */
static specdec_result specdec__return_piece(specdec *t, int work, specdec_text *piece)
{
    specdec_result result = specdec__check_call_arguments(t, piece != NULL);
    specdec__text_decoder stream;
    specdec__stop_scan stop;
    int handed_out;

    if (result)
        return result;
    piece->bytes = (const char *)t->piece;
    piece->length = t->released_bytes;
    t->released_bytes = 0;
    if (piece->length)
        return SPECDEC_OK;
    stream = t->stream;
    stop = t->stop;
    handed_out = t->handed_out;
    t->before.count = 0;
    result = specdec__decode_next_piece(t, work, &piece->length);
    if (result != SPECDEC_OK && result != SPECDEC_DONE && result != SPECDEC_PENDING) {
        specdec__engine_undo_slide(t);
        t->stream = stream; /* tokens whose bytes were held back are pending again */
        t->stop = stop;
        t->handed_out = handed_out;
        piece->length = 0;
    }
    return result;
}

/* The body of specdec_next: returns the next piece of a sequence's text, after as many steps as it needs. */
static specdec_result specdec__call_next(specdec *t, specdec_text *piece) { return specdec__return_piece(t, 1, piece); }

/* The body of specdec_take: returns the next piece of a sequence's text if it needs no step. */
static specdec_result specdec__call_take(specdec *t, specdec_text *piece) { return specdec__return_piece(t, 0, piece); }

specdec_stop specdec_stopped(const specdec *t, int *which)
{
    specdec_stop stop = SPECDEC_STOP_NONE;

    if (t && t->finished)
        stop = specdec__stream_end_reason(t, t->handed_out);
    else if (t && t->cancelled)
        stop = SPECDEC_STOP_CANCELLED;
    if (which)
        *which = stop == SPECDEC_STOP_STRING ? t->stop.stopped - 1
                 : stop == SPECDEC_STOP_END  ? t->tokens[t->handed_out - 1]
                                             : -1;
    return stop;
}

void specdec_tokens(const specdec *t, const int32_t **tokens, int *count)
{
    if (tokens)
        *tokens = t ? t->tokens : NULL;
    if (count)
        *count = t ? t->handed_out : 0;
}

/* The body of specdec_rewind: drops all tokens of a sequence behind the first `count`. */
static specdec_result specdec__call_rewind(specdec *t, int count)
{
    specdec_result result = specdec__check_call_arguments(t, 1);

    if (result)
        return result;
    if (count < 0 || count > t->handed_out)
        return specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, "cannot keep %d of %d tokens", count, t->handed_out);
    if (count < t->handed_out) { /* else the stock stays */
        specdec__engine_drop_children(t, count);
        if (t->view.length - count >= SPECDEC__KEYS) /* less is not worth an entry of the table */
            specdec__engine_keep_prefix(t);
        specdec__engine_drop_state_of_tokens(t, count);
        t->count = t->handed_out = count;
        t->from_row = 0;
    } else if ((t->handed_out < t->count && specdec__stream_sampling_depends_on_begin(&t->settings)) ||
               (t->count > count && specdec__constrained_limits_tokens(&t->constrained))) {
        specdec__engine_discard_pending(t); /* an answer that begins here is counted, and constrained, from here */
    }
    t->cancelled = 0;
    if (t->failed != SPECDEC_ERROR_CANCELLED)
        t->failed = SPECDEC_OK;
    specdec__stream_begin_answer(t);
    return SPECDEC_OK;
}

void specdec_cancel(specdec *t)
{
    if (t)
        SPECDEC__STORE(&t->cancel, 1);
}

void specdec_get_stats(const specdec *t, specdec_stats *stats)
{
    specdec_tree_count *trees, moving;
    int i, j;

    if (!t || !stats)
        return;
    *stats = t->stats;
    trees = stats->trees;
    for (i = 1; i < SPECDEC_STATS_TREES; i++) {
        moving = trees[i];
        for (j = i; j > 0 && trees[j - 1].steps < moving.steps; j--)
            trees[j] = trees[j - 1];
        trees[j] = moving;
    }
}

void specdec_get_info(const specdec *t, specdec_info *info)
{
    const specdec__model *m;
    const specdec__pages *pages;
    int i;

    if (!t || !info)
        return;
    m = t->model;
    memset(info, 0, sizeof *info);
    info->isa = t->engine->kernels->name;
    info->kv = t->engine->config.kv;
    info->chat_format = t->engine->chat.format ? t->engine->chat.format->name : NULL;
    info->threads = SPECDEC__HAS_THREADS ? t->engine->config.threads : 1; /* the pool has lent the lane's */
    info->context = t->context;
    info->vocabulary = m->vocab_size;
    info->layers = m->layers;
    info->embedding = m->embedding;
    info->sequences = t->engine->room.max_views;
    for (i = 0; i < info->sequences; i++)
        info->open_sequences += t->engine->sequences[i].open;
    pages = &t->engine->target.kv.span[m->span_layers[SPECDEC__WHOLE] ? SPECDEC__WHOLE : SPECDEC__WINDOW];
    info->fork_token = t->engine->fork_token;
    info->child_token = t->engine->child_token;
    info->cache = pages->count * SPECDEC__KEYS;
    info->cache_free = (pages->free_count + pages->only_kept) * SPECDEC__KEYS;
    info->cache_prefixes = pages->only_kept * SPECDEC__KEYS;
    info->memory_bytes = t->engine->memory_bytes;
    info->weight_bytes = m->weight_bytes;
    info->kv_bytes = specdec__kv_total_bytes(&t->engine->target.kv);
    info->state_bytes = specdec__state_slot_bytes(&m->recurrent_sizes);
    info->state_traffic = t->engine->target.kv.states.bytes_read + t->engine->target.kv.states.bytes_written;
    info->screened_rows = t->engine->target.screen.rows;
    info->screened_read = t->engine->target.screen.rows_read;
    info->screened_whole = t->engine->target.screen.rows_whole;
    info->screened_bytes = t->engine->target.screen.saved;
    for (i = 0; i < t->engine->drafter_count; i++)
        info->kv_bytes += t->engine->drafters[i].kv_bytes;
    info->products_per_token = m->weight_products;
}

const specdec_model *specdec_get_model(const specdec *t) { return t && !t->engine->ended ? t->model : NULL; }

/* The body of specdec_get_logprob: returns the log-probability of the token at index `at` of a sequence. */
static specdec_result specdec__call_get_logprob(specdec *t, int at, specdec_logprob *logprob)
{
    specdec_result result = specdec__check_call_arguments(t, logprob != NULL);
    int most;

    if (result)
        return result;
    if (!t->logprobs || at < 0 || at >= t->handed_out || t->logprobs[at] > 0)
        return specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, "token %d of %d: %s", at, t->handed_out,
                             t->logprobs ? "it was not written, or without a log-probability" : "config.logprobs is 0");
    logprob->token = t->tokens[at];
    logprob->logprob = t->logprobs[at];
    logprob->best = t->best + (size_t)at * (size_t)t->best_count;
    most = specdec__min_int(t->best_count, t->model->vocab_size);
    for (logprob->count = 0; logprob->count < most && logprob->best[logprob->count].token >= 0;)
        logprob->count++;
    return SPECDEC_OK;
}

/* Checks the caller's nodes, tokens[count] with parents[count] (-1: the sequence's last token), that are to be run
   behind a sequence. */
static specdec_result specdec__caller_nodes_check(specdec *t, const int32_t *tokens, const int32_t *parents, int count)
{
    const int vocab = t->model->vocab_size;
    int i;

    if (count < 0 || count > t->engine->target.max_nodes - 1 || (!count && !t->handed_out))
        return specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, "%d nodes (%d to %d are possible)", count,
                             !t->handed_out, t->engine->target.max_nodes - 1);
    for (i = 0; i < count; i++)
        if (parents[i] < -1 || parents[i] >= i)
            return specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, "node %d has the parent %d", i, (int)parents[i]);
        else if (tokens[i] < 0 || tokens[i] >= vocab)
            return specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, "token id %d, the vocabulary has %d",
                                 (int)tokens[i], vocab);
    return SPECDEC_OK;
}

/* Begins a step of the caller's nodes, which leaves the sequence unchanged: prefills the tokens that lack keys, and
   makes the sequence's last token, if there is one, node 0. */
static specdec_result specdec__caller_nodes_begin_step(specdec *t)
{
    specdec__context *c = &t->engine->target;
    const specdec__prefill_rows none = specdec__prefill_rows_with_logits_from(t->handed_out);
    specdec_result result = SPECDEC_OK;

    specdec__engine_drop_root_keys(t, t->handed_out);
    if (t->view.length < t->handed_out - 1)
        result = specdec__engine_clear_cancellation(t, specdec__engine_prefill(t, t->handed_out - 1, &none));
    if (!result && t->handed_out) {
        c->tokens[0] = t->tokens[t->handed_out - 1];
        c->parents[0] = -1;
    }
    return result;
}

/* Runs n nodes of the caller's, node 0 included. Their logits then lie in the target's context. The sequence is
   unchanged. */
static specdec_result specdec__caller_nodes_run(specdec *t, int n)
{
    specdec__context *c = &t->engine->target;
    specdec__batch batch = specdec__forward_make_view_batch(c, &t->view, 0, n);
    specdec_result result;

    t->engine->pool.cancel = &t->cancel;
    t->engine->row_0_sequence = NULL;
    result = specdec__engine_clear_cancellation(t, specdec__forward(c, &batch, &t->error));
    if (!result)
        result = specdec__forward_check_step(c, 0, n, &t->error);
    specdec__view_free_reserved_slots(&t->view, &c->kv);
    return result;
}

/* The body of specdec_logits: computes the logits (count + 1, vocab) of a sequence's last token and of the caller's
   nodes behind it. */
static specdec_result specdec__call_logits(specdec *t, const int32_t *tokens, const int32_t *parents, int count,
                                           float *logits)
{
    specdec_result result = specdec__check_call_arguments(t, count <= 0 || (tokens && parents));
    specdec__context *c;
    size_t row;
    int i, root;

    if (result || (result = specdec__caller_nodes_check(t, tokens, parents, count)) != SPECDEC_OK)
        return result;
    c = &t->engine->target;
    root = t->handed_out > 0;
    if ((result = specdec__caller_nodes_begin_step(t)) != SPECDEC_OK)
        return result;
    for (i = 0; i < count; i++) {
        c->tokens[root + i] = tokens[i];
        c->parents[root + i] = parents[i] < 0 ? root - 1 : parents[i] + root;
    }
    result = specdec__caller_nodes_run(t, count + root);
    if (result || !logits)
        return result;
    row = (size_t)t->model->vocab_size;
    if (!root)
        memset(logits, 0, row * sizeof *logits);
    memcpy(logits + (root ? 0 : row), c->logits, (size_t)(count + root) * row * sizeof *logits);
    return SPECDEC_OK;
}

/* Tokenizes the `count` labels of specdec_score into nodes of a step: node 0 is the sequence's last token, each label
   is a chain of nodes behind it. *nodes becomes the number of nodes, node 0 included. */
static specdec_result specdec__score_tokenize_labels(specdec *t, const char *const *labels, int count, int *nodes)
{
    const specdec__vocab *v = &t->model->vocab;
    const uint32_t last = (uint32_t)t->tokens[t->handed_out - 1];
    const int flags = specdec__vocab_type_is_special(specdec__vocab_token_type(v, last)) ? 0 : SPECDEC_TOKENIZE_INSIDE;
    specdec__context *c = &t->engine->target;
    specdec_result result;
    size_t length, n, k;
    int i;

    for (i = 0, *nodes = 1; i < count; i++) {
        length = strlen(labels[i]);
        n = 0;
        if (!length || length > t->engine->chat_bytes)
            return specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, "label %d has %zu bytes", i, length);
        result = specdec__tokenize(v, labels[i], length, flags, NULL, c->tokens + *nodes,
                                   (size_t)(c->max_nodes - *nodes), &n, t->engine->scratch, t->engine->scratch_bytes,
                                   &t->error);
        if (result == SPECDEC_ERROR_BUFFER || !n)
            return specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, n ? "the labels have more than the %d tokens of a "
                                 "step" : "there is a label without one of the %d tokens of a step", c->max_nodes - 1);
        if (result)
            return result;
        for (k = 0; k < n; k++)
            c->parents[*nodes + (int)k] = k ? *nodes + (int)k - 1 : 0;
        *nodes += (int)n;
    }
    return SPECDEC_OK;
}

/* Returns the log-probability of a token, from a row of logits (vocab). */
static double specdec__score_log_probability(const float *logits, int vocab, int32_t token,
                                             const specdec__kernels *kernels)
{
    const float highest = kernels->largest(logits, vocab);
    double total = 0;
    int i;

    for (i = 0; i < vocab; i++)
        total += (double)specdec__exp(logits[i] - highest);
    return (double)(specdec__sample_comparable_logit(logits[token]) - highest) - specdec__log_double(total);
}

/* The body of specdec_score: computes the log-probability of each label behind a sequence. */
static specdec_result specdec__call_score(specdec *t, const char *const *labels, int count, double *scores)
{
    specdec_result result = specdec__check_call_arguments(t, labels && scores);
    specdec__context *c;
    int i, node, nodes, label = -1;

    for (i = 0; !result && i < count; i++)
        result = labels[i] ? SPECDEC_OK : specdec__fail_missing_argument(&t->error);
    if (result)
        return result;
    if (count < 1 || !t->handed_out)
        return specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, "%d labels behind a text of %d tokens", count,
                             t->handed_out);
    if ((result = specdec__caller_nodes_begin_step(t)) != SPECDEC_OK ||
        (result = specdec__score_tokenize_labels(t, labels, count, &nodes)) != SPECDEC_OK ||
        (result = specdec__caller_nodes_run(t, nodes)) != SPECDEC_OK)
        return result;
    c = &t->engine->target;
    for (node = 1; node < nodes; node++) {
        if (!c->parents[node])
            scores[++label] = 0;
        scores[label] += specdec__score_log_probability(c->logits +
                                                         (size_t)c->parents[node] * (size_t)t->model->vocab_size,
                                                        t->model->vocab_size, c->tokens[node], t->engine->kernels);
    }
    return SPECDEC_OK;
}

SPECDEC__FOR_SPEED
