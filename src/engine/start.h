/* =====================================================================================================================
 * >>engine/start: an engine begins: what steps cost is measured, chat format and fork tokens are found.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "../base/pool.h"
#include "../kernel/kernel.h"
#include "../kernel/dispatch.h"
#include "../text/vocabulary.h"
#include "../text/load.h"
#include "../text/chat.h"
#include "../model/model.h"
#include "../model/tensors.h"
#include "../cache/reserve.h"
#include "../forward/context.h"
#include "../forward/multiply.h"
#include "../forward/step.h"
#include "../speculation/tree.h"
#include "../speculation/draft.h"
#include "../speculation/drafters.h"
#include "../speculation/tune.h"
#include "../schedule/lane.h"
#include "stream.h"
#include "engine.h"
#include "layout.h"
#include "sequences.h"

SPECDEC__FOR_SIZE

/* Makes a run of the target with n tokens, or, if d is not NULL, makes that drafter draft one level behind one token.
   The caches are left as they were. */
static specdec_result specdec__engine_make_trial_run(specdec__engine *e, specdec__drafter *d, int n)
{
    specdec *t = &e->sequences[0];
    specdec__batch batch = specdec__forward_make_view_batch(&e->target, &t->view, 0, n);
    specdec__proposal *p;
    specdec_result result;

    if (!d) {
        result = specdec__forward(&e->target, &batch, NULL);
        specdec__view_free_reserved_slots(&t->view, &e->target.kv);
        return result;
    }
    p = &d->proposals[t->at];
    specdec__draft_begin_proposal(p, t->tokens, 1, &t->settings.sampling, specdec__engine_verification_rule(e, t));
    specdec_tree_chains(&p->drafts.tree, 1, 1, NULL);
    p->drafts.depth[1] = 1;
    result = d->kind.fill_tree(d, &p->request, &p->drafts, NULL);
    if (d->kind.truncate_sequence)
        d->kind.truncate_sequence(d, t->at, t->tokens, 0);
    return result;
}

/* Returns the seconds of specdec__engine_make_trial_run: the least of three tries, as buffers are cold at first and
   other programs may use the processor. Only one try is made once the clock is past `end`. 0: it failed. */
static double specdec__engine_time_trial_run(specdec__engine *e, specdec__drafter *d, int n, double end)
{
    double least = 0;
    int i;

    for (i = 0; i < n; i++) {
        e->target.tokens[i] = 0;
        e->target.parents[i] = i - 1;
    }
    for (i = 0; i < 3 && (!i || specdec__os_monotonic_seconds() < end); i++) {
        double start = specdec__os_monotonic_seconds(), seconds;

        if (specdec__engine_make_trial_run(e, d, n))
            break;
        seconds = specdec__os_monotonic_seconds() - start;
        least = i && least < seconds ? least : seconds;
    }
    return least;
}

/* Times the steps and drafts of small models before the first sequence is prompted. Without a clock it does nothing. */
static void specdec__engine_time_steps(specdec__engine *e)
{
    const double now = specdec__os_monotonic_seconds(), end = now + SPECDEC__TUNE_TRIAL_SECONDS;
    size_t bytes = e->target_model->weight_bytes;
    double seconds;
    int i, n;

    for (i = 0; i < e->drafter_count; i++)
        bytes += e->drafters[i].model ? e->drafters[i].model->weight_bytes : 0;
    if (!e->drafter_count || specdec__engine_tree_is_fixed(e) || bytes > SPECDEC__TUNE_SMALL_BYTES || !(now > 0))
        return;
    for (i = 0; i < e->drafter_count; i++)
        if (e->drafters[i].kind.level_cost &&
            (seconds = specdec__engine_time_trial_run(e, &e->drafters[i], 0, end)) > 0)
            specdec__tune_add_time_to_mean(&e->tune->drafters[i].level, seconds);
    for (n = 1; n <= 16 && n <= e->config.tree_size && specdec__os_monotonic_seconds() < end; n *= 2)
        if ((seconds = specdec__engine_time_trial_run(e, NULL, n, end)) > 0)
            specdec__tune_add_step_time(e->tune, n, seconds, 0);
}

/* Chooses the faster of two orders of reading weights, kernels->reading and kernels->other_reading, by timing slices of
   weights alternately with all threads; a slice counts as at most twice the least time. kernels->reading is kept unless
   the other one is clearly faster, and for weights that may lie in caches or are not repacked. Results do not depend on
   the order. */
static void specdec__engine_time_weight_reading(specdec__engine *e)
{
    const specdec__model *m = e->target_model;
    const specdec__weight_reading usual = e->kernels->reading, other = e->kernels->other_reading;
    double sum[2] = {0, 0}, least = 1, begin = specdec__os_monotonic_seconds(), now = begin, last = begin;
    const int columns = e->target.columns.n;
    specdec__slices slices;
    int i, better;

    if (!SPECDEC__HAS_READINGS || !(other.one_tile || other.l1_bytes) || m->tile_bytes < SPECDEC__READING_LEAST_BYTES ||
        !m->layers || !m->layer->matrix[SPECDEC__UP].tiles)
        return;
    slices.context = &e->target;
    e->target.columns.n = 1;
    e->target.columns.values = e->target.h;
    for (i = 0; i < SPECDEC__READING_MOST_SLICES && now < begin + SPECDEC__READING_TRIAL_SECONDS; i++, last = now) {
        slices.matrix = &m->layer[i % m->layers].matrix[SPECDEC__UP];
        slices.number = i / m->layers;
        slices.pairs = 1 + (int)(SPECDEC__READING_SLICE_BYTES / specdec__matrix_tile_bytes(slices.matrix));
        e->kernels->reading = i % 2 ? other : usual;
        specdec__pool_run(e->target.pool, e->target.threads, specdec__forward_multiply_slice, &slices);
        now = specdec__os_monotonic_seconds();
        least = now - last < least ? now - last : least;
        sum[i % 2] += now - last < 2 * least ? now - last : 2 * least;
    }
    e->target.columns.n = columns;
    better = sum[1] < SPECDEC__READING_SWITCH_SHARE * sum[0];
    e->kernels->reading = better ? other : usual;
    specdec__log_line(&e->config.hooks, "reading weights: the %s way; %d us, the other %d, for %d slices each",
                      better ? "other" : "usual", (int)(sum[0] * 1e6), (int)(sum[1] * 1e6), i / 2);
}

/* Writes the chat format to the log, and its tokens that count as control tokens although the file says otherwise. */
static void specdec__engine_log_chat_format(const specdec__engine *e)
{
    const specdec_hooks *hooks = &e->config.hooks;
    const specdec__chat *chat = &e->chat;
    const specdec__vocab *v = &e->target_model->vocab;
    specdec_error words;
    const char *token;
    int i, type;
    int32_t id;

    if (!SPECDEC__HAS_CHAT_FORMATS || (!chat->format && !e->target_model->chat_template.data))
        return;
    if (!chat->format && chat->runs_template) {
        specdec__log_line(hooks, "chat: the model's template is run");
        return;
    }
    if (!chat->format) {
        specdec__chat_refuse_unknown_format(chat, &words);
        specdec__log_line(hooks, "%s", words.text);
        return;
    }
    specdec__log_line(hooks, "chat format: %s, as %s; %s, and a system message of %zu bytes where there is none",
                  chat->format->name, e->config.chat_format ? "config.chat_format says" : "the model's template says",
                  v->bos >= 0 && (chat->writes_bos || v->add_bos) ? "behind the token that begins texts"
                                                                  : "from the start",
                  chat->default_system.size);
    for (i = 0; (token = specdec__chat_required_token_text(chat->format, i)) != NULL; i++) {
        id = specdec__vocab_find_token(v, token);
        type = id < 0 || !v->types ? SPECDEC__TOKEN_UNDEFINED : (int)specdec__load_u32(v->types + (size_t)id * 4);
        if (type != SPECDEC__TOKEN_CONTROL)
            specdec__log_line(hooks, "chat format: %s counts as a control token, though its type in the file is %d",
                              token, type);
    }
}

/* Sets the engine's fork_token and child_token, by which sequences fork: those that the configuration names, or those
   that are called [Fork] and [Child]. */
static specdec_result specdec__engine_find_fork_tokens(specdec__engine *e, specdec_error *error)
{
    const specdec__vocab *vocab = &e->target_model->vocab;
    const char *fork = e->config.fork_token, *child = e->config.child_token;
    const int named = fork && *fork;

    e->fork_token = e->child_token = -1;
    if (!SPECDEC__HAS_MANY_SEQUENCES || (fork && !*fork) || (!named && e->config.sequences == 1))
        return SPECDEC_OK;
    e->fork_token = specdec__vocab_find_token(vocab, named ? fork : "[Fork]");
    e->child_token = specdec__vocab_find_token(vocab, child ? child : "[Child]");
    if (e->fork_token >= 0 && e->child_token >= 0 && e->fork_token != e->child_token)
        return SPECDEC_OK;
    e->fork_token = e->child_token = -1;
    return named ? specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "no two tokens \"%s\" and \"%s\" in the vocabulary",
                                 fork, child ? child : "[Child]")
                 : SPECDEC_OK;
}

/* Writes the target, the drafters and the engine's sizes to the log. */
static void specdec__engine_log_sizes(const specdec__engine *e)
{
    const specdec_hooks *hooks = &e->config.hooks;
    const specdec__model *m = e->target_model;
    int i;

    specdec__log_line(hooks, "target: %s, %d layers of %d, a vocabulary of %d, %zu bytes of weights a step",
                  m->architecture->name, m->layers, m->embedding, m->vocab_size, m->weight_bytes);
    specdec__vocab_log_assumptions(&m->vocab, hooks);
    if (e->room.view_keys > m->context)
        specdec__log_line(hooks, "a context of %d tokens, though the model was made for %d", e->room.view_keys,
                          m->context);
    for (i = 0; i < e->drafter_count; i++)
        specdec__log_line(hooks, "drafter: %s, %zu bytes of weights a level",
                      specdec__drafter_list[e->drafters[i].drafting - SPECDEC_DRAFT_OFF - 1].name,
                      e->drafters[i].model ? e->drafters[i].model->weight_bytes : 0);
    specdec__log_line(hooks, "engine: %s, %d threads, a context of %d tokens in %s, a block of %zu bytes",
                      e->kernels->name, e->pool.threads, e->room.view_keys, e->config.kv, e->memory_bytes);
}

/* Copies the stop strings of config.settings into the engine's block, so that the caller's are not needed after
   specdec_init. */
static void specdec__engine_copy_stop_strings(specdec__engine *e)
{
    specdec__stop_scan stop;

    specdec__stream_check_settings(&e->config.settings, &stop, NULL);
    specdec__stream_copy_stop_strings(&e->config.settings, &stop, e->stop_bytes);
}

/* Starts an engine that is laid out: connects to other ranks, and times steps. */
static specdec_result specdec__engine_start(specdec__engine *e, specdec_error *error)
{
    const specdec__model *m = e->target_model;
    specdec_result result = SPECDEC_OK;

    specdec__engine_copy_stop_strings(e);
    e->run_target = specdec__forward;
    e->tune->load.key_ratio = 12.0 * m->layers * m->heads * m->head_dim / (double)m->weight_bytes;
    specdec__engine_reset_sequence(&e->sequences[0]);
    specdec__engine_log_sizes(e);
    specdec__engine_log_chat_format(e);
    if (SPECDEC__PIPE && e->remote)
        result = e->remote->connect(e, error);
    if (!result)
        specdec__engine_time_steps(e);
    if (!result)
        specdec__engine_time_weight_reading(e);
    return result;
}

SPECDEC__FOR_SPEED
