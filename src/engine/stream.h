/* =====================================================================================================================
 * >>engine/stream: a sequence: tokens, its view in the target's cache, settings, the decoder
 *     of its text, counters. What it decodes never depends on other sequences.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../text/vocabulary.h"
#include "../text/decode.h"
#include "../text/stop.h"
#include "../text/answer.h"
#include "../text/splitter.h"
#include "../model/model.h"
#include "../cache/kv.h"
#include "../forward/context.h"
#include "../speculation/samplers.h"
#include "../speculation/tree.h"
#include "../speculation/constrained.h"
#include "../speculation/draft.h"
#include "../constraint/automaton.h"
#include "../constraint/finish.h"

#define SPECDEC__TOKEN_TEXT_EXTRA 1024 /* bytes for a token's text, besides those of the vocabulary's longest token */
/* end tokens that settings can name, at most */
#define SPECDEC__STREAM_MAX_ENDS (SPECDEC_END_TOKENS + SPECDEC_STOP_STRINGS)
#define SPECDEC__PENDING_TOKENS 8 /* decoded tokens not yet returned with which a sequence takes no part in steps */

struct specdec__engine;

/* A sequence: the tokens of a prompt and its answer, and all state that belongs to them. */
struct specdec {
    struct specdec__engine *engine; /* the engine that the sequence belongs to */
    const specdec__model *model; /* the target's model */
    int at;                      /* index of the sequence in the engine's table of sequences */
    int open;                    /* 1: the sequence is open; 0: its entry in the table of sequences is free */
    int cancel;                  /* 1: specdec_cancel was called, and no call has ended because of it yet */
    int cancelled_before_prompt; /* 1: specdec_cancel was called before the current call, which appends a prompt */
    specdec_result failed;       /* error of a step that was made for another sequence: the next call on this sequence
                                    returns it */

    int context;                 /* tokens of the sequence, at most */
    int room;                    /* items of arrays that have one for each token: context + tree depth + 1 */
    int32_t *tokens;             /* (2 * room): the sequence's tokens; behind them those of a prompt, or tokens that
                                    have slid out */
    int count;                   /* number of the sequence's tokens */
    int handed_out;              /* number of tokens that were prompted, or returned to the caller; the rest is
                                    pending */
    int from_row;                /* 1: the answer's first token is chosen from the logits of the prompt's last token,
                                    without a step */
    int answer_from;             /* index of the answer's first token */
    int slid;                    /* number of the answer's tokens that have slid out of the context */
    struct {                     /* what a slide in the current call has changed, in case that it is undone */
        int count;               /* tokens that slid out in this call; 0: none */
        int answer_from, slid, placed; /* the sequence's values before that */
    } before;
    int finished;                /* 1: the answer has ended; 0: it goes on */
    int complete_at;             /* number of tokens at which the constraint allows nothing but an end; 0: not
                                    reached */
    int cancelled;               /* 1: the last call was cancelled */

    unsigned char *token_text, *piece; /* (text room): bytes of a token; (2 * text room + stop room): bytes of a piece
                                          of text */
    size_t text_room;            /* bytes of the text of a token, at most */
    unsigned char *part_bytes;   /* (2 * text room + stop room): the piece of text that the splitter divides */
    int prompt_in_thought;       /* 1: the prompt ends within a thought of the model */
    int parts;                   /* 1: the caller takes the answer in parts; 2: the splitter has received all of it; 0:
                                    neither */
    int in_call;                 /* 1: a tool call is being decoded, which settings.calls constrains */
    size_t released_bytes;       /* bytes of `piece` that were held back for stop strings which new settings have
                                    replaced */

    float *logprobs;             /* (room): log-probability of each token; 1: the token was prompted */
    specdec_candidate *best;     /* (room, best_count): the most probable tokens in place of each token, with their
                                    log-probabilities */
    int best_count;              /* number of most probable tokens in `best` for each token: config.logprobs */
    float *surprise;             /* (room): mirostat's limit of surprise behind each token, in bits; 0: the limit at an
                                    answer's begin */

    /* forks */
    specdec *parent;             /* the sequence that this one was forked from as a child; NULL: it is no child */
    int fork_at;                 /* number of the parent's tokens at the fork */
    int depth;                   /* number of forks between this sequence and one without a parent */
    int forks;                   /* number of times that the sequence has forked a child since its prompt */
    int32_t *fork_places;        /* (placed): number of the sequence's tokens at each of its latest forks; at the
                                    array's end (before.placed): those before it slid */
    int placed;                  /* number of forks in fork_places */
    int forced_count;            /* number of tokens in `forced`; 0: no fork is pending */
    int32_t forced[SPECDEC_FORK_TOKENS]; /* (forced_count): the first tokens of the child that is to be forked */

    /* Large members come last, in all structures: x86 instructions encode offsets below 128 in a byte. */
    specdec_error error;         /* error of the sequence's last call that failed */
    specdec_splitter splitter;   /* divides the answer into parts, where `parts` is set */
    specdec__text_decoder stream; /* decodes the answer's tokens to text; holds bytes of unfinished characters */
    specdec__view view;          /* the sequence's keys and values in the target's cache */
    specdec_settings settings;   /* the sequence's settings, whose stop strings lie in stop_bytes */
    specdec__stop_scan stop;     /* searches the answer's text for stop strings, which lie in stop_bytes, too */
    unsigned char *stop_bytes;   /* (SPECDEC__STOP_COPY_BYTES): the stop strings of the settings */
    int32_t *ends;               /* (end_count, at most SPECDEC__STREAM_MAX_ENDS): end tokens that the settings name */
    int end_count;               /* number of end tokens in `ends` */
    specdec__constrained constrained; /* the sequence's constraint, and its state */
    specdec_stats stats;              /* counts and times since the sequence was opened */
    double prompted_at;          /* clock in seconds of the last call that appended a prompt; 0: the answer has tokens
                                    since */

    /* the sequence's part in the current step */
    int prefill_count;           /* number of the sequence's tokens that the step prefills */
    int decodes;                 /* 1: the step verifies a tree behind these tokens; 0: it only prefills them */
    int load_count;              /* number of prefilled tokens that count as the step's load (speculation/tune) */
    int first;                   /* index of the sequence's first node in the step's run */
    int row;                     /* index of the root's row among the run's rows of logits */
    specdec__merged_tree merged;      /* the token tree that the step verifies */
    int length;                  /* number of nodes on the accepted path, the root included */
    int32_t path[SPECDEC__MAX_TREE_NODES + 1]; /* (length): nodes of the accepted path, the root first */
};

SPECDEC__FOR_SIZE

/* Returns how many fork places a sequence has room for, at most config.forks: one for each token, before it slides and
   after that. room: tokens. */
static int specdec__stream_fork_limit(const specdec_config *c, int room)
{
    return SPECDEC__HAS_MANY_SEQUENCES ? specdec__min_int(c->forks, 2 * room) : 0;
}

/* Takes the memory of a sequence's arrays, for room->length tokens, from an arena. t: NULL where the arena only counts
   bytes, as a sequence is too large for the stack. */
static void specdec__stream_lay_out_arrays(specdec *t, const specdec__context *target, const specdec_config *c,
                                           const specdec__kv_demand *room, specdec__arena *arena)
{
    const size_t tokens = (size_t)room->view_keys + (size_t)c->tree_depth + 1;
    const specdec__model *model = target->model;
    const size_t text_room = (size_t)model->vocab.longest_bytes + SPECDEC__TOKEN_TEXT_EXTRA;
    const size_t noted = c->logprobs ? tokens : 0;
    specdec_candidate *best;
    specdec__merged_tree merged;
    specdec_constraint_state *states;
    specdec__view view;
    int32_t *text, *ends, *places;
    unsigned char *stop_bytes, *token_text, *piece, *parts;
    float *logprobs, *surprise;

    specdec__context_init_view(target, &view, room, 0, arena);
    text = SPECDEC__TAKE(arena, int32_t, 2 * tokens);
    stop_bytes = SPECDEC__TAKE(arena, unsigned char, SPECDEC__STOP_COPY_BYTES);
    ends = SPECDEC__TAKE(arena, int32_t, SPECDEC__STREAM_MAX_ENDS);
    places = SPECDEC__TAKE(arena, int32_t, specdec__stream_fork_limit(c, (int)tokens));
    token_text = SPECDEC__TAKE(arena, unsigned char, text_room);
    piece = SPECDEC__TAKE(arena, unsigned char, 2 * text_room + SPECDEC__STOP_MAX_BYTES);
    parts = SPECDEC__TAKE(arena, unsigned char, 2 * text_room + SPECDEC__STOP_MAX_BYTES);
    specdec__draft_allocate_tree(&merged.tree, c->tree_size, arena);
    merged.tokens = SPECDEC__TAKE(arena, int32_t, c->tree_size);
    merged.owner = SPECDEC__TAKE(arena, signed char, c->tree_size);
    merged.worth = SPECDEC__TAKE(arena, float, c->tree_size);
    logprobs = SPECDEC__TAKE(arena, float, noted);
    best = SPECDEC__TAKE(arena, specdec_candidate, noted * (size_t)c->logprobs);
    surprise = SPECDEC__TAKE(arena, float, tokens);
    states = SPECDEC__TAKE(arena, specdec_constraint_state, c->constraints ? 2 : 0);
    if (!t)
        return;
    t->model = model;
    t->context = room->view_keys;
    t->room = (int)tokens;
    t->view = view;
    t->tokens = text;
    t->stop_bytes = stop_bytes;
    t->ends = ends;
    t->fork_places = places;
    t->text_room = text_room;
    t->token_text = token_text;
    t->piece = piece;
    t->part_bytes = parts;
    t->merged = merged;
    t->logprobs = noted ? logprobs : NULL;
    t->best = noted ? best : NULL;
    t->best_count = c->logprobs;
    t->surprise = surprise;
    t->constrained.state = states;
}

/* Checks a sequence's settings, except slide, log-probabilities and constraints. *stop becomes a scan of text for their
   stop strings. */
static specdec_result specdec__stream_check_settings(const specdec_settings *settings, specdec__stop_scan *stop,
                                                     specdec_error *error)
{
    specdec_result result;
    int i;

    memset(stop, 0, sizeof *stop);
    if (settings->max_tokens < 0 || settings->slide < 0 || settings->min_tokens < 0)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "settings.max_tokens is %d, settings.slide %d, "
                             "settings.min_tokens %d: 0 or more", settings->max_tokens, settings->slide,
                             settings->min_tokens);
    if (settings->end_token_count < 0 || settings->end_token_count > SPECDEC_END_TOKENS)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "settings.end_token_count is %d: 0 to %d",
                             settings->end_token_count, SPECDEC_END_TOKENS);
    for (i = 0; i < SPECDEC_STOP_STRINGS && settings->stop[i]; i++)
        if ((result = specdec__stop_add_string(stop, settings->stop[i], strlen(settings->stop[i]), error)) !=
            SPECDEC_OK)
            return result;
    return specdec__sample_check_settings(&settings->sampling, error);
}

/* Checks settings.slide, the number of first tokens that stay when a sequence slides: it is less than the context,
   which has at least two tokens more, of which one slides out. */
static specdec_result specdec__stream_check_slide(const specdec__model *model, const specdec_settings *settings,
                                                  int context, specdec_error *error)
{
    if (settings->slide && specdec__recurrent_layers_exist(&model->recurrent_sizes))
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "settings.slide is %d: a text of %s does not slide, as "
                             "what its recurrent layers have read stays in their states", settings->slide,
                             model->architecture->name);
    if (!settings->slide || settings->slide < context - 1)
        return SPECDEC_OK;
    return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "settings.slide is %d: a context of %d tokens keeps at most %d "
                         "first ones", settings->slide, context, specdec__max_int(context - 2, 0));
}

/* Returns how many of the most probable tokens are stored in place of each decoded token, with log-probabilities; 0: no
   log-probabilities are stored. */
static int specdec__stream_logprob_count(const specdec *t)
{
    const int wanted = t->settings.top_logprobs ? specdec__max_int(t->settings.top_logprobs, 0) : t->best_count;

    return specdec__min_int(specdec__min_int(wanted, t->best_count), t->model->vocab_size);
}

/* Checks settings.top_logprobs. most: its largest value, config.logprobs. */
static specdec_result specdec__stream_check_logprobs(const specdec_settings *settings, int most, specdec_error *error)
{
    if (settings->top_logprobs >= -1 && settings->top_logprobs <= most)
        return SPECDEC_OK;
    return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "settings.top_logprobs is %d: -1 to config.logprobs, which is "
                         "%d", settings->top_logprobs, most);
}

/* Checks the constraints of settings. room: 1: the engine has memory for constraints. */
static specdec_result specdec__stream_check_constraint(const specdec_settings *settings, int room,
                                                       specdec_error *error)
{
    if (!settings->constraint && !settings->calls && !settings->allow)
        return SPECDEC_OK;
    if (!SPECDEC__HAS_CONSTRAINTS)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "built without constraints (SPECDEC_NO_CONSTRAINTS)");
    if ((settings->constraint && settings->constraint->magic != SPECDEC__CONSTRAINT_MAGIC) ||
        (settings->calls && settings->calls->magic != SPECDEC__CONSTRAINT_MAGIC))
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "settings.constraint or settings.calls is no constraint");
    if (!room)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "a constraint, though config.constraints is 0");
    return SPECDEC_OK;
}

/* Returns the constraint that settings give a sequence's next token: within a tool call settings.calls, else
   settings.constraint. */
SPECDEC__INLINE const specdec_constraint *specdec__stream_constraint(const specdec *t, const specdec_settings *settings)
{
    return t->in_call ? settings->calls : settings->constraint;
}

/* Returns the hash of the constraint that settings give a sequence's next token, specdec__stream_constraint; 0: they
   give none. */
SPECDEC__INLINE uint64_t specdec__stream_constraint_hash(const specdec *t, const specdec_settings *settings)
{
    const specdec_constraint *wanted = specdec__stream_constraint(t, settings);

    return SPECDEC__HAS_CONSTRAINTS && wanted ? wanted->hash | 1 : 0;
}

/* Returns whether settings give a sequence's next token the constraint that the sequence has now. */
static int specdec__stream_keeps_constraint(const specdec *t, const specdec_settings *settings)
{
    return settings->allow == t->constrained.allow && settings->allow_data == t->constrained.allow_data &&
           specdec__stream_constraint_hash(t, settings) == t->constrained.hash;
}

/* Returns the state of a sequence's constraint; NULL: the sequence has no constraint. */
static specdec__constrained *specdec__stream_get_constrained(specdec *t)
{
    return specdec__constrained_limits_tokens(&t->constrained) ? &t->constrained : NULL;
}

/* Sets the constraint of a sequence from settings. A new constraint begins with the next token that is returned. */
static void specdec__stream_set_constraint(specdec *t, const specdec_settings *settings)
{
    specdec__constrained *c = &t->constrained;

    if (!SPECDEC__HAS_CONSTRAINTS || !c->masker)
        return;
    if (!specdec__stream_keeps_constraint(t, settings)) {
        specdec__constrained_begin_behind(c, t->handed_out);
        t->complete_at = 0;
    }
    c->constraint = specdec__stream_constraint(t, settings);
    c->hash = specdec__stream_constraint_hash(t, settings);
    c->allow = settings->allow;
    c->allow_data = settings->allow_data;
    c->ends = t->ends;
    if (c->constraint)
        specdec__masker_build_trie(c->masker);
}

/* Copies the stop strings of a scan to stop_bytes[SPECDEC__STOP_COPY_BYTES], and points scan and settings to the
   copies. */
static void specdec__stream_copy_stop_strings(specdec_settings *settings, specdec__stop_scan *stop,
                                              unsigned char *stop_bytes)
{
    int i;

    specdec__stop_copy_strings(stop, stop_bytes);
    for (i = 0; i < SPECDEC_STOP_STRINGS; i++)
        settings->stop[i] = i < stop->count ? (const char *)stop->strings[i].data : NULL;
}

/* Returns the control token whose text is `spelled`; -1: the vocabulary has none. */
static int32_t specdec__stream_find_control_token(const specdec__vocab *v, specdec__bytes spelled)
{
    uint32_t i;

    for (i = 0; i < v->special_count; i++)
        if (specdec__bytes_equal(specdec__vocab_token_text(v, v->specials[i]), (const char *)spelled.data,
                                 spelled.size) &&
            specdec__vocab_token_type(v, v->specials[i]) != SPECDEC__TOKEN_USER_DEFINED)
            return (int32_t)v->specials[i];
    return -1;
}

/* Sets the settings of a sequence, which were checked. stop: the scan of text for their stop strings. */
static void specdec__stream_set_settings(specdec *t, const specdec_settings *settings, specdec__stop_scan *stop)
{
    int i;

    specdec__stream_set_constraint(t, settings);
    t->settings = *settings;
    specdec__stream_copy_stop_strings(&t->settings, stop, t->stop_bytes);
    t->end_count = 0;
    for (i = 0; i < settings->end_token_count; i++)
        t->ends[t->end_count++] = settings->end_tokens[i];
    for (i = 0; i < stop->count; i++)
        t->ends[t->end_count++] = specdec__stream_find_control_token(&t->model->vocab, stop->strings[i]);
    t->constrained.end_count = t->end_count;
}

/* Returns whether a token ends the sequence's answer: it is an end token of the settings or of the vocabulary. */
static int specdec__stream_is_end(const specdec *t, int32_t token)
{
    int i;

    for (i = 0; i < t->end_count; i++)
        if (t->ends[i] == token)
            return 1;
    return specdec__vocab_is_end_token(&t->model->vocab, token);
}

/* Returns how many tokens the sequence's answer has, pending ones and those that have slid out included. */
SPECDEC__INLINE int specdec__stream_answer_length(const specdec *t)
{
    return t->slid + t->count - t->answer_from;
}

/* Returns whether sampling by these settings depends on where the answer began. */
static int specdec__stream_sampling_depends_on_begin(const specdec_settings *settings)
{
    return settings->min_tokens > 0 || settings->sampling.mirostat_tau > 0;
}

/* Returns 1 if two settings choose the same tokens from the same logits; 0: they may choose others, as where biases or
   end tokens may differ. */
static int specdec__stream_samples_alike(const specdec_settings *a, const specdec_settings *b)
{
    return !a->sampling.bias_count && !b->sampling.bias_count && !a->min_tokens && !b->min_tokens &&
           !a->ignore_end == !b->ignore_end && memcmp(&a->sampling, &b->sampling, sizeof a->sampling) == 0;
}

/* Replaces the scan of a sequence's text for stop strings. Bytes held[count], which the former scan held back, are
   scanned again; those that the new scan does not hold back lie at the front of t->piece, for specdec_next. */
static void specdec__stream_rescan_held_bytes(specdec *t, specdec__stop_scan *stop, const unsigned char *held,
                                              size_t count)
{
    size_t freed;

    stop->stopped = t->stop.stopped;
    stop->taken_bytes = t->stop.taken_bytes;
    t->stop = *stop;
    specdec__stop_push_bytes(&t->stop, held, count, t->piece + t->released_bytes, 2 * t->text_room, &freed, NULL);
    t->released_bytes += freed;
}

/* Begins a sequence's answer behind the tokens that were returned. */
static void specdec__stream_begin_answer(specdec *t)
{
    t->answer_from = t->handed_out;
    t->slid = 0;
    t->finished = 0;
    t->complete_at = 0;
    t->prompt_in_thought = t->parts = 0;
    if (t->in_call) {
        t->in_call = 0;
        specdec__stream_set_constraint(t, &t->settings);
    }
    specdec__constrained_begin_behind(&t->constrained, t->handed_out);
    t->stop.stopped = 0;
    t->stop.held = t->stop.taken_bytes = 0;
    t->released_bytes = 0;
    specdec__text_decoder_begin(&t->stream, &t->model->vocab, t->handed_out ? t->tokens[t->handed_out - 1] : -1,
                               t->settings.show_special);
}

/* Returns why the answer ends with the first `count` tokens of the sequence; SPECDEC_STOP_NONE: it does not end
   there. */
static specdec_stop specdec__stream_end_reason(const specdec *t, int count)
{
    const int limit = t->settings.max_tokens, length = t->slid + count - t->answer_from;

    if (t->stop.stopped)
        return SPECDEC_STOP_STRING;
    if (length > 0 && specdec__stream_is_end(t, t->tokens[count - 1]))
        return SPECDEC_STOP_END;
    if (t->complete_at && count >= t->complete_at)
        return SPECDEC_STOP_CONSTRAINT;
    if (limit && length >= limit)
        return SPECDEC_STOP_LIMIT;
    return count >= t->context ? SPECDEC_STOP_CONTEXT : SPECDEC_STOP_NONE;
}

/* Decodes a token of the answer to its text in t->token_text, *more bytes. Control tokens are spelled where settings
   say so, and where the splitter of parts needs them. */
static specdec_result specdec__stream_decode_token(const specdec *t, specdec__text_decoder *stream, int32_t token,
                                                   size_t *more, specdec_error *error)
{
    const specdec__vocab *v = &t->model->vocab;
    const int mark = t->parts && !t->settings.show_special &&
                     specdec__vocab_type_is_special(specdec__vocab_token_type(v, (uint32_t)token)) &&
                     specdec__answer_marks_contain_token(&t->splitter, specdec__vocab_token_text(v, (uint32_t)token));

    stream->show_special = t->settings.show_special || mark;
    return specdec__text_decoder_push(stream, v, token, t->token_text, t->text_room, more, error);
}

/* Reverses the order of the `count` items of an array; size: bytes of an item. */
static void specdec__stream_reverse_items(unsigned char *items, size_t size, int count)
{
    unsigned char *last = items + (size_t)specdec__max_int(count - 1, 0) * size;
    size_t i;

    for (; items < last; items += size, last -= size)
        for (i = 0; i < size; i++) {
            unsigned char byte = items[i];

            items[i] = last[i];
            last[i] = byte;
        }
}

/* Exchanges, in an array of items of `size` bytes, the first `count` items with the `behind` items behind them. */
static void specdec__stream_rotate_items(void *items, size_t size, int count, int behind)
{
    unsigned char *first = (unsigned char *)items;

    if (!count || !behind)
        return;
    specdec__stream_reverse_items(first, size, count);
    specdec__stream_reverse_items(first + (size_t)count * size, size, behind);
    specdec__stream_reverse_items(first, size, count + behind);
}

/* As specdec__stream_rotate_items, for a sequence's tokens from index `from` on: exchanges the first `count` with the
   `behind` tokens behind them, and their log-probabilities and mirostat's limits likewise. */
static void specdec__stream_rotate_tokens(specdec *t, int from, int count, int behind)
{
    specdec__stream_rotate_items(t->tokens + from, sizeof *t->tokens, count, behind);
    specdec__stream_rotate_items(t->surprise + from, sizeof *t->surprise, count, behind);
    if (!t->logprobs)
        return;
    specdec__stream_rotate_items(t->logprobs + from, sizeof *t->logprobs, count, behind);
    specdec__stream_rotate_items(t->best + (size_t)from * (size_t)t->best_count,
                                 (size_t)t->best_count * sizeof *t->best, count, behind);
}

/* Checks a prompt's tokens[count], which are to be appended to the first `keep` tokens of a sequence. */
static specdec_result specdec__stream_check_prompt(specdec *t, int keep, const int32_t *tokens, int count)
{
    int i;

    if (count < 0 || (count && !tokens) || (!count && !keep))
        return specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, "the prompt is empty");
    if (count >= t->context - keep)
        return specdec__fail(&t->error, SPECDEC_ERROR_CONTEXT, "the prompt has %d tokens, the context has room for %d",
                             count, specdec__max_int(t->context - keep - 1, 0));
    for (i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= t->model->vocab_size)
            return specdec__fail(&t->error, SPECDEC_ERROR_ARGUMENT, "token id %d, the vocabulary has %d",
                                 (int)tokens[i], t->model->vocab_size);
    return SPECDEC_OK;
}

/* Returns how many tokens of a sequence and of tokens[most] agree, from the first one on. */
static int specdec__stream_count_common_tokens(const specdec *t, const int32_t *tokens, int most)
{
    int i = 0;

    while (i < most && t->tokens[i] == tokens[i])
        i++;
    return i;
}

SPECDEC__FOR_SPEED
