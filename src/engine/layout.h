/* =====================================================================================================================
 * >>engine/layout: a configuration checked, and the block laid out.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "../base/pool.h"
#include "../base/lane.h"
#include "../kernel/kernel.h"
#include "../text/tokenize.h"
#include "../model/model.h"
#include "../model/bind.h"
#include "../model/nextn.h"
#include "../model/open.h"
#include "../cache/kv.h"
#include "../forward/context.h"
#include "../speculation/settle.h"
#include "../speculation/tree.h"
#include "../speculation/constrained.h"
#include "../speculation/row.h"
#include "../speculation/draft.h"
#include "../speculation/draft_model.h"
#include "../speculation/draft_forced.h"
#include "../speculation/drafters.h"
#include "../speculation/tune.h"
#include "../schedule/lane.h"
#include "stream.h"
#include "engine.h"

SPECDEC__FOR_SIZE
/* --- layout ------------------------------------------------------------------------------------------------------- */

/* Rows of the table of ranges that a configuration is checked with: one for each field that is an integer or an
   enumeration. The first row is checked for prepared models, too. */
#define SPECDEC__ENGINE_LIMIT_INTEGER(member, low, high) \
    {#member, (int)offsetof(specdec_config, member), low, high},
#define SPECDEC__ENGINE_LIMIT_CHOICE(member, low, high) SPECDEC__ENGINE_LIMIT_INTEGER(member, low, high)
#define SPECDEC__ENGINE_LIMIT_SWITCH(member, low, high)
#define SPECDEC__ENGINE_LIMIT_NAME(member, low, high)
#define SPECDEC__ENGINE_LIMIT_WORD(member, low, high)
#define SPECDEC__ENGINE_LIMIT_FILE(member, low, high)
#define SPECDEC__ENGINE_LIMIT_POINTER(member, low, high)
#define SPECDEC__ENGINE_LIMIT(name, member, kind, low, high, words, help) \
    SPECDEC__ENGINE_LIMIT_##kind(member, low, high)

SPECDEC__STATIC_ASSERT(fields_know_the_limits, SPECDEC__KEYS == 64 && SPECDEC__MAX_TREE_NODES == 64);

/* Returns an error if an integer of a configuration is out of its range. for_model 1: checks only the first row of the
   table of ranges. */
static specdec_result specdec__engine_check_config_integers(const specdec_config *c, int for_model,
                                                            specdec_error *error)
{
    static const struct {
        const char *name;
        int at, least, most; /* at: bytes from the configuration's first */
    } limits[] = {
        SPECDEC_CONFIG_FIELDS(SPECDEC__ENGINE_LIMIT)
    };
    int i, value;

    for (i = 0; i < (for_model ? 1 : (int)SPECDEC__COUNT(limits)); i++) {
        memcpy(&value, (const char *)c + limits[i].at, sizeof value); /* enums are as large as an int */
        if (value && (value < limits[i].least || value > limits[i].most))
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "config.%s is %d (%d to %d are possible; 0: the "
                                 "default)", limits[i].name, value, limits[i].least, limits[i].most);
    }
    return SPECDEC_OK;
}

SPECDEC__STATIC_ASSERT(enums_are_ints, sizeof(specdec_drafting) == sizeof(int) && sizeof(specdec_rule) == sizeof(int) &&
                                           sizeof(specdec_policy) == sizeof(int));

/* Returns whether the caller has set a source of a model: a prepared model, a file in memory or a path. */
static int specdec__source_is_given(const specdec_source *s) { return s->model || s->data || s->path; }

/* Returns whether the engine is a rank of a cluster: then the target verifies on other machines while this one
   drafts. */
static int specdec__in_cluster(const specdec_config *c) { return SPECDEC__PIPE && c->cluster; }

/* Returns whether this rank of a cluster holds the draft model alone. */
static int specdec__engine_only_drafts(const specdec__engine *e)
{
    return SPECDEC__PIPE && e->remote && e->remote->only_drafts;
}

/* Returns the configuration's source of the model that a kind of drafter drafts with; NULL: the kind has no model. */
static const specdec_source *specdec__engine_drafter_source(const specdec_config *c, const specdec__drafter_kind *kind)
{
    return kind->source ? (const specdec_source *)(const void *)((const char *)c + kind->source) : NULL;
}

/* Sets *kind to the kind of drafter with the public number SPECDEC_DRAFT_..., or to the kind that replaces it where
   another rank drafts. Returns 0 if the kind is not compiled in, else 1. */
static int specdec__engine_find_drafter_kind(const specdec__engine *e, int drafting, specdec__drafter_kind *kind)
{
    const int found = specdec__drafter_write_named_kind(kind, (specdec_drafting)drafting);

    if (SPECDEC__PIPE && e->remote)
        e->remote->replace_drafter_kind(&e->config, (specdec_drafting)drafting, kind);
    return found;
}

/* Returns whether the configuration has the model that a kind of drafter needs, or the kind needs none. */
static int specdec__engine_has_drafter_model(const specdec__engine *e, const specdec__drafter_kind *kind)
{
    const specdec_source *source = specdec__engine_drafter_source(&e->config, kind);

    return kind->nextn ? specdec__nextn_exists(e->target_model)
                       : !source || kind->optional || specdec__source_is_given(source);
}

/* Returns whether the configuration wants a drafter, SPECDEC_DRAFT_...: it names the drafter, or is `auto` and has the
   model that the drafter needs. */
static int specdec__engine_wants_drafter(const specdec__engine *e, int drafting)
{
    const specdec_config *c = &e->config;
    specdec__drafter_kind kind;
    int value = 1;

    if ((int)c->drafting == drafting || c->drafting != SPECDEC_DRAFT_AUTO ||
        !specdec__engine_find_drafter_kind(e, drafting, &kind))
        return (int)c->drafting == drafting;
    if (kind.enabled_by)
        memcpy(&value, (const char *)c + kind.enabled_by, sizeof value);
    return value && specdec__engine_has_drafter_model(e, &kind) && !(kind.nextn && specdec__in_cluster(c));
}

/* Sets the default number of nodes and levels of token trees: those of the only drafter, or of all drafters together;
   the root alone where nothing drafts. Ranks other than 0 do not know the drafters of rank 0, and take the largest. */
static void specdec__engine_set_tree_size(specdec__engine *e)
{
    specdec_config *c = &e->config;
    specdec__drafter_kind kind;
    const int alone = specdec__drafter_write_named_kind(&kind, c->drafting);
    int i, drafters = specdec__in_cluster(c);

    for (i = SPECDEC_DRAFT_OFF + 1; !drafters && i < SPECDEC_DRAFT_COUNT; i++)
        drafters += specdec__engine_wants_drafter(e, i);
    if (!c->tree_size)
        c->tree_size = alone ? kind.size : drafters ? 32 : 1;
    c->tree_depth = specdec__min_int(c->tree_depth ? c->tree_depth : alone ? kind.depth : 12, c->tree_size);
}

/* Fills in the defaults of a configuration and checks it. */
static specdec_result specdec__engine_fill_config(specdec__engine *e, specdec_error *error)
{
    specdec_config *c = &e->config;
    int kv = specdec__kv_find_type(c->kv ? c->kv : "f16");

    if (kv < 0)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "kv type \"%s\" (f16, f32 and q8_0 are known)", c->kv);
    c->kv = specdec__kv_types[kv].name;
    if (specdec__engine_check_config_integers(c, 0, error))
        return SPECDEC_ERROR_ARGUMENT;
    if (c->vocabulary_only)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "an engine needs more than a vocabulary");
    if (!SPECDEC__HAS_MANY_SEQUENCES && (c->sequences > 1 || c->hooks.fork || (c->fork_token && *c->fork_token)))
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                             "SPECDEC_NO_SEQUENCES leaves several texts and forks out of this build");
    if (!SPECDEC__HAS_DISTRIBUTION_VERIFIERS && c->rule != SPECDEC_RULE_COUPLED)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED,
                             "rule %d is left out of this build by SPECDEC_NO_VERIFIERS", (int)c->rule);
#ifdef SPECDEC_NO_THREADS
    c->threads = 1;
#endif
    c->batch = c->batch ? c->batch : 64;
    c->sequences = c->sequences ? c->sequences : 1;
    c->forks = c->forks ? c->forks : 16;
    c->fork_depth = c->fork_depth ? c->fork_depth : 2;
    c->constraints = SPECDEC__HAS_CONSTRAINTS &&
                     (c->constraints || c->settings.constraint || c->settings.calls || c->settings.allow);
    if (c->policy == SPECDEC_POLICY_AUTO)
        c->policy = c->drafting == SPECDEC_DRAFT_AUTO ? SPECDEC_POLICY_DYNAMIC : SPECDEC_POLICY_STATIC;
    if (specdec__in_cluster(c)) /* before drafting is switched off on ranks other than 0: all ranks have as many rows */
        specdec__engine_set_tree_size(e);
    return SPECDEC_OK;
}

/* Sets *out to the model of a source: the one that the caller has prepared, or one that the engine opens. */
static specdec_result specdec__engine_open_model(specdec__engine *e, const specdec_source *source,
                                                 const specdec__model **out, specdec__arena *arena,
                                                 specdec_error *error)
{
    specdec__layer_choice cut = {NULL, NULL};

    *out = source->model ? source->model : e->opened_models[specdec__min_int(e->opened_count, SPECDEC__MAX_MODELS - 1)];
    if (source->model && !source->model->weight_bytes)
        return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "this model was prepared for its vocabulary only");
    if (source->model)
        return SPECDEC_OK;
    if (e->opened_count == SPECDEC__MAX_MODELS)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "more than the %d models that an engine opens",
                             SPECDEC__MAX_MODELS);
    if (SPECDEC__PIPE && e->remote && out == &e->target_model)
        cut.choose = e->remote->remove_remote_layers;
    cut.cluster = e->config.cluster;
    return specdec__model_init(e->opened_models[e->opened_count++], source, 0, cut.choose ? &cut : NULL, arena, error);
}

/* Returns whether draft trees grow level by level. Then the children of a node, and whether they are extended, depend
   on drawn tokens. Coupled and top-k verification stay exact, as they draw the target's token without the children.
   Rules of rejection would not: a child that is proposed because it is probable is no draw from the draft's
   distribution; their trees are static. */
static int specdec__engine_trees_grow_by_level(const specdec_config *c)
{
    return c->policy == SPECDEC_POLICY_DYNAMIC && (c->rule == SPECDEC_RULE_COUPLED || c->rule == SPECDEC_RULE_TOP_K);
}

/* Returns the rule that verifies the draft tokens of a sequence. At temperature 0 all rules are the same. */
static specdec_rule specdec__engine_verification_rule(const specdec__engine *e, const specdec *t)
{
    return t->settings.sampling.temperature > 0 ? e->rule : SPECDEC_RULE_COUPLED;
}

/* Returns whether every step has the same tree: one drafter with a cost was chosen, and the policy is static. */
static int specdec__engine_tree_is_fixed(const specdec__engine *e)
{
    return e->config.drafting > SPECDEC_DRAFT_OFF && e->drafter_count && e->drafters[0].kind.level_cost;
}

/* Returns the number of threads of a lane on which a kind of drafter drafts while the target verifies; 0: it drafts
   before each step. A static tree is given up for that only if config.async asks for it, as asynchronous trees depend
   on drawn tokens. */
static int specdec__engine_async_draft_threads(const specdec_config *c, const specdec__drafter_kind *kind)
{
    const int threads = specdec__in_cluster(c) ? 1 : specdec__min_int(c->async ? c->async : 1, c->threads - 1);

    if (!SPECDEC__HAS_THREADS || c->async < 0 || threads < 1 || !kind->keep_subtree ||
        c->rule != SPECDEC_RULE_COUPLED ||
        (!c->async && c->drafting != SPECDEC_DRAFT_AUTO && c->policy == SPECDEC_POLICY_STATIC))
        return 0;
    return threads;
}

/* Returns how many candidates, the root included, a drafter's proposal has room for. */
static int specdec__engine_candidate_limit(const specdec__engine *e, const specdec__drafter_kind *kind)
{
    if (specdec__engine_async_draft_threads(&e->config, kind))
        return 1 + (e->room.step_nodes + 1) * SPECDEC__GROWN_CHILDREN;
    return kind->extend_tree && specdec__engine_trees_grow_by_level(&e->config)
               ? 1 + e->config.tree_size * SPECDEC__GROWN_CHILDREN
               : e->config.tree_size;
}

/* Takes the memory of a drafter's proposals, one for each sequence, from an arena. */
static void specdec__engine_lay_out_proposals(specdec__engine *e, specdec__drafter *d, specdec__arena *arena)
{
    const int size = e->config.tree_size;
    specdec__proposal counted, *p;
    int i;

    d->proposals = SPECDEC__TAKE(arena, specdec__proposal, e->room.max_views);
    for (i = 0; i < e->room.max_views; i++) {
        p = d->proposals ? &d->proposals[i] : &counted;
        p->request.at = i;
        specdec__draft_allocate_proposal(p, specdec__engine_candidate_limit(e, &d->kind), size, arena);
        if (e->rule != SPECDEC_RULE_COUPLED && d->kind.draws)
            p->request.distributions = SPECDEC__TAKE(arena, float, (size_t)size * (size_t)e->target_model->vocab_size);
    }
}

/* Makes the tree of every step, where the tree is fixed: a chain, or the best tree of its size and depth for a typical
   acceptance. */
static specdec_result specdec__engine_make_fixed_tree(specdec__engine *e, specdec__arena *arena, specdec_error *error)
{
    static const double acceptance[] = {0.62, 0.13, 0.06, 0.03, 0.02, 0.015, 0.01, 0.008};
    const int levels = e->drafter_count ? e->drafters[0].levels + 1 : SPECDEC_TREE_MAX_DEPTH;
    const int depth = specdec__min_int(e->config.tree_depth, levels), width = (int)SPECDEC__COUNT(acceptance);
    const int chain = e->drafter_count && e->drafters[0].kind.ranks == 1;
    const int size = chain ? depth : depth > 2 ? e->config.tree_size : specdec__min_int(e->config.tree_size, width + 1);
    size_t bytes = specdec_tree_memory(size, depth, width);
    void *memory = specdec__arena_take(arena, bytes, 1, SPECDEC__CACHE_LINE);

    /* specdec_set_tree may ask for a wider one */
    specdec__draft_allocate_tree(&e->fixed_tree, e->config.tree_size, arena);
    if (!arena->base || arena->used == SIZE_MAX)
        return SPECDEC_OK;
    return depth == size
               ? specdec_tree_chains(&e->fixed_tree, 1, size - 1, error)
               : specdec_tree_best(&e->fixed_tree, NULL, acceptance, width, size, depth, memory, bytes, error);
}

/* Takes the memory for constraints from an arena, if sequences may have any. */
static void specdec__engine_lay_out_masker(specdec__engine *e, specdec__arena *arena)
{
    if (!SPECDEC__HAS_CONSTRAINTS || !e->config.constraints)
        return;
    e->masker = SPECDEC__TAKE(arena, specdec__masker, 1);
    specdec__masker_lay_out(e->masker, &e->target_model->vocab, e->target_model->vocab_size, arena);
}

/* Takes the buffers that all sequences share from an arena. A prompt with more bytes than its context can hold is an
   error before it is tokenized. Large buffers that are written before they are read are not zeroed: 200 bytes for each
   token of the context. */
static void specdec__engine_lay_out_buffers(specdec__engine *e, specdec__arena *arena)
{
    e->chooser.items = SPECDEC__TAKE(arena, specdec_candidate, e->target_model->vocab_size);
    if (e->rule != SPECDEC_RULE_COUPLED || e->config.logprobs)
        e->target_distribution = SPECDEC__TAKE(arena, float, e->target_model->vocab_size);
    e->chat_bytes = specdec__size_multiply((size_t)e->room.view_keys, SPECDEC__PROMPT_BYTES_A_TOKEN);
    e->chat_text = (char *)specdec__arena_reserve(arena, e->chat_bytes, 1, SPECDEC__CACHE_LINE);
    e->chat_plain = SPECDEC__HAS_CHAT_FORMATS
                        ? (unsigned char *)specdec__arena_reserve(arena, e->chat_bytes / 8 + 1, 1, 1)
                        : NULL;
    e->scratch_bytes = specdec__tokenize_scratch_bytes(&e->target_model->vocab, e->chat_bytes);
    if (SPECDEC__HAS_CHAT_TEMPLATES && e->target_model->chat_template.data) {
        const size_t most = specdec__chat_template_memory_bytes(e->target_model->chat_template.size, e->chat_bytes);

        e->scratch_bytes = e->scratch_bytes > most ? e->scratch_bytes : most;
    }
    e->scratch = specdec__arena_reserve(arena, e->scratch_bytes, 1, SPECDEC__CACHE_LINE);
}

/* Takes the memory of the table of sequences from an arena. All entries are free. */
static void specdec__engine_lay_out_sequences(specdec__engine *e, specdec__arena *arena)
{
    int i;

    e->sequences = SPECDEC__TAKE(arena, specdec, e->room.max_views);
    e->members = SPECDEC__TAKE(arena, specdec *, e->room.max_views);
    for (i = 0; i < e->room.max_views; i++) {
        specdec__stream_lay_out_arrays(e->sequences ? &e->sequences[i] : NULL, &e->target, &e->config, &e->room, arena);
        if (!e->sequences)
            continue;
        e->sequences[i].engine = e;
        e->sequences[i].constrained.masker = e->masker;
        e->sequences[i].at = i;
    }
}

/* Takes the memory of the table of kept sequences from an arena. All entries are empty. */
static void specdec__engine_lay_out_kept_sequences(specdec__engine *e, specdec__arena *arena)
{
    specdec__kept_sequence counted, *kept;
    int i;

    e->kept = SPECDEC__TAKE(arena, specdec__kept_sequence, e->room.kept_views);
    for (i = 0; i < e->room.kept_views; i++) {
        kept = e->kept ? &e->kept[i] : &counted;
        specdec__context_init_view(&e->target, &kept->view, &e->room, 1, arena);
        kept->tokens = SPECDEC__TAKE(arena, int32_t, e->room.view_keys);
        if (e->kept)
            specdec__kv_add_kept_view(&e->target.kv, &kept->view);
    }
}

/* Points the drafters' proposals to the sequences' views of the target's cache. */
static void specdec__engine_set_proposal_views(specdec__engine *e)
{
    int i, k;

    for (i = 0; i < e->drafter_count; i++)
        for (k = 0; e->sequences && e->drafters[i].proposals && k < e->room.max_views; k++)
            e->drafters[i].proposals[k].request.view = &e->sequences[k].view;
}

/* Returns how many of `threads` threads pay for steps of a model: those that have enough weights to read between two
   barriers. */
static int specdec__engine_count_useful_threads(const specdec__model *model, int threads)
{
    size_t busy = 1 + model->weight_bytes / SPECDEC__WEIGHT_BYTES_A_THREAD;

    return busy < (size_t)threads ? (int)busy : threads;
}

/* Takes the memory of a drafter that drafts while the target verifies from an arena, and sets the threads of its
   lane. */
static void specdec__engine_lay_out_async(specdec__engine *e, specdec__drafter *d, specdec__arena *arena)
{
    specdec__async_drafting *a = e->async_drafting;
    const int levels = specdec__min_int(2 * e->config.tree_depth, SPECDEC_TREE_MAX_DEPTH) - 1;
    const size_t room = (size_t)e->room.view_keys + (size_t)e->config.tree_depth + (size_t)levels;
    int32_t *tokens = SPECDEC__TAKE(arena, int32_t, room);

    if (!a)
        return;
    a->tokens = tokens;
    a->drafter = d;
    a->threads = specdec__engine_async_draft_threads(&e->config, &d->kind);
    a->levels = levels;
    a->nodes = e->room.step_nodes;
    a->width = specdec__min_int(SPECDEC__ASYNC_RUN_NODES, e->config.tree_size); /* rows of logits that drafters have */
    a->first_cutoff = SPECDEC__ASYNC_CUTOFF;
    a->steps_left = a->steps_between = SPECDEC__ASYNC_TRIAL_STEPS;
    specdec__lane_init(&a->lane, &e->pool, a->threads);
}

/* Opens the NextN block in the target's files (multi-token prediction) as a model of the engine. */
static specdec_result specdec__engine_open_nextn(specdec__engine *e, const specdec__model **out, specdec__arena *arena,
                                                 specdec_error *error)
{
    if (e->opened_count == SPECDEC__MAX_MODELS)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "more than the %d models that an engine opens",
                             SPECDEC__MAX_MODELS);
    *out = e->opened_models[e->opened_count];
    return specdec__nextn_init(e->opened_models[e->opened_count++], e->target_model, arena, error);
}

/* Adds a drafter to the engine's table, which has room for it: its model, if it has one, its proposals, its state. */
static specdec_result specdec__engine_add_drafter(specdec__engine *e, const specdec__drafter_kind *named,
                                                  specdec_drafting drafting, specdec__arena *arena,
                                                  specdec_error *error)
{
    specdec__drafter *d = &e->drafters[e->drafter_count++];
    specdec__drafter_kind *kind = &d->kind;
    const specdec_source *source = specdec__engine_drafter_source(&e->config, named);
    specdec__draft_setup setup;
    specdec_result result;
    int i;

    memset(&setup, 0, sizeof setup);
    *kind = *named;
    d->drafting = drafting;
    d->levels = SPECDEC_TREE_MAX_DEPTH;
    if (specdec__engine_only_drafts(e))
        d->model = e->target_model;
    for (i = 0; source && i < e->drafter_count - 1; i++)
        if (specdec__engine_drafter_source(&e->config, &e->drafters[i].kind) == source)
            d->model = e->drafters[i].model;
    if (source && !d->model && specdec__source_is_given(source) &&
        (result = specdec__engine_open_model(e, source, &d->model, arena, error)) != SPECDEC_OK)
        return result;
    if (SPECDEC__HAS_STATE_DRAFTERS && kind->nextn &&
        (result = specdec__engine_open_nextn(e, &d->model, arena, error)) != SPECDEC_OK)
        return result;
    specdec__drafter_set_kind_for_model(kind, d->model);
    if (specdec__in_cluster(&e->config) && d->model && d->model->reads.count)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "a drafter that reads states of the target's layers, "
                             "which are not here in a cluster");
    if (d->model)
        setup.threads = specdec__engine_count_useful_threads(d->model, e->config.threads);
    setup.config = &e->config;
    setup.target = &e->target;
    setup.room = &e->room;
    specdec__engine_lay_out_proposals(e, d, arena);
    setup.capacity = specdec__engine_candidate_limit(e, kind);
    result = kind->init ? kind->init(d, &setup, arena, error) : SPECDEC_OK;
    if (e->tune && !result) {
        specdec__tune_add_drafter(e->tune, kind->level_cost ? kind->level_cost(d, e->target_model) : 0, kind->ranks);
        e->tune->drafters[e->tune->count - 1].certain = kind->certain;
        e->tune->drafters[e->tune->count - 1].at_once = d->model && d->model->block.size > 0;
    }
    for (i = 1; d->taps.count && i < SPECDEC__STATE_READERS && e->target.state_readers[i].count; i++)
        continue;
    if (d->taps.count && i < SPECDEC__STATE_READERS)
        e->target.state_readers[i] = d->taps;
    for (i = 0; d->proposals && i < e->room.max_views; i++)
        d->proposals[i].request.max_levels = specdec__min_int(e->config.tree_depth, d->levels + 1);
    if (SPECDEC__HAS_THREADS && specdec__engine_async_draft_threads(&e->config, kind))
        specdec__engine_lay_out_async(e, d, arena);
    return result;
}

/* Adds the drafter that the configuration names, or all drafters whose models are there, and sets the rule of
   verification. Where no drafter draws children from a distribution, the rule is top-k: the target draws its own
   token. */
static specdec_result specdec__engine_add_drafters(specdec__engine *e, specdec__arena *arena, specdec_error *error)
{
    const specdec_config *c = &e->config;
    specdec__drafter_kind kind;
    specdec_result result;
    int i;

    e->rule = c->rule;
    for (i = SPECDEC_DRAFT_OFF + 1; i < SPECDEC_DRAFT_COUNT; i++) {
        if (!specdec__engine_wants_drafter(e, i))
            continue;
        if (!specdec__engine_find_drafter_kind(e, i, &kind))
            return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "drafting \"%s\" is left out of this build",
                                 specdec__drafter_list[i - SPECDEC_DRAFT_OFF - 1].name);
        if (!specdec__engine_has_drafter_model(e, &kind))
            return specdec__fail(error, SPECDEC_ERROR_ARGUMENT, "drafting \"%s\" needs %s",
                                 specdec__drafter_list[i - SPECDEC_DRAFT_OFF - 1].name,
                                 kind.nextn ? "a model whose file has layers that predict (nextn)"
                                            : "a model to draft with");
        if (e->drafter_count && e->rule != SPECDEC_RULE_COUPLED && !kind.certain)
            continue; /* rules of rejection want the children of a node from one distribution */
        if ((result = specdec__engine_add_drafter(e, &kind, (specdec_drafting)i, arena, error)) != SPECDEC_OK)
            return result;
    }
    if (e->rule != SPECDEC_RULE_COUPLED && (!e->drafter_count || !e->drafters[0].kind.draws))
        e->rule = SPECDEC_RULE_TOP_K;
    return SPECDEC_OK;
}

/* Returns how many ended sequences are kept, at most: config.prefixes, else four for each sequence, 64 to 256, but not
   more than the cache has pages. 0 where the cache has room for one sequence, and in a cluster. */
static int specdec__engine_kept_sequence_limit(const specdec_config *c, const specdec__kv_demand *room)
{
    const int most = c->prefixes ? c->prefixes : specdec__min_int(specdec__max_int(4 * room->max_views, 64), 256);

    if (!SPECDEC__HAS_MANY_SEQUENCES || c->prefixes < 0 || specdec__in_cluster(c) || room->all_keys <= room->view_keys)
        return 0;
    return specdec__min_int(most, room->all_keys / SPECDEC__KEYS);
}

/* Computes e->room: the number of sequences, their tokens, and the nodes of a step: those of a prompt's batch, of a
   tree, or a root of each sequence, and the root that specdec_logits puts before them. */
static void specdec__engine_set_capacity(specdec__engine *e)
{
    const specdec_config *c = &e->config;
    specdec__kv_demand *room = &e->room;

    room->max_views = c->sequences;
    room->view_keys = c->context                  ? c->context
                      : specdec__engine_only_drafts(e) ? 4096
                                                  : specdec__min_int(e->target_model->context, 4096);
    room->all_keys = c->cache ? c->cache
                              : specdec__min_int(room->view_keys, (1 << 30) / room->max_views) * room->max_views;
    room->step_nodes = specdec__max_int(specdec__max_int(c->batch, c->tree_size),
                                        specdec__min_int(c->sequences, SPECDEC__MAX_TREE_NODES)) +
                       1;
    room->reserved_nodes = SPECDEC__PIPE ? 2 * room->step_nodes : room->step_nodes;
    room->kept_views = specdec__engine_kept_sequence_limit(c, room);
    /* in a cluster nodes of several runs are known */
    room->tree_nodes = specdec__in_cluster(c) ? room->step_nodes : c->tree_size;
    room->checkpoint_distance = c->checkpoint;
}

/* Returns e->room as the target's context needs it: next to nothing on a rank that only drafts, where the target never
   runs. */
static specdec__kv_demand specdec__engine_target_capacity(const specdec__engine *e)
{
    static const specdec__kv_demand none = {1, 1, 1, 1, 2, 0, 1, 0};

    return specdec__engine_only_drafts(e) ? none : e->room;
}

/* Returns how many threads lanes need besides the target's. */
static int specdec__engine_count_lane_threads(const specdec_config *c)
{
    specdec__drafter_kind kind;

    return !specdec__in_cluster(c) && specdec__source_is_given(&c->draft) &&
           specdec__drafter_write_named_kind(&kind, SPECDEC_DRAFT_MODEL) &&
           specdec__engine_async_draft_threads(c, &kind) &&
           (c->drafting == SPECDEC_DRAFT_AUTO || c->drafting == SPECDEC_DRAFT_MODEL);
}

/* Lays an engine out in an arena, which may only count bytes: all of the engine's memory is taken here. */
static specdec_result specdec__engine_lay_out(specdec__engine *e, specdec__arena *arena, specdec_error *error)
{
    specdec_config *c = &e->config;
    int kv = specdec__kv_find_type(c->kv);
    specdec__kv_demand room;
    specdec_result r;

    if ((r = specdec__engine_open_model(e, &c->target, &e->target_model, arena, error)) != SPECDEC_OK)
        return r;
    if (!specdec__model_can_decode(e->target_model) || e->target_model->id_count)
        return specdec__fail(error, SPECDEC_ERROR_MISMATCH, "the target is a %s: that can only draft",
                             specdec__model_can_decode(e->target_model) ? "model of a short vocabulary"
                             : "file of heads");
    specdec__engine_set_tree_size(e);
    c->threads = c->threads ? c->threads
                            : specdec__engine_count_useful_threads(e->target_model, specdec__os_count_processors());
    r = specdec__pool_init(&e->pool, c->threads + specdec__engine_count_lane_threads(c), &e->never_cancelled, &c->hooks,
                           arena, error);
    if (r)
        return r;
    e->pool.threads = specdec__min_int(e->pool.threads, c->threads); /* the lane's own thread is not among them */
    specdec__engine_set_capacity(e);
    room = specdec__engine_target_capacity(e);
    specdec__context_init(&e->target, e->target_model, NULL, e->kernels, &e->pool, c->threads, kv, &room,
                          room.step_nodes, arena);
    e->target.checks_values = 1;
    if ((r = specdec__engine_add_drafters(e, arena, error)) != SPECDEC_OK)
        return r;
    e->chooser.kernels = e->kernels;
    e->chooser.vocab = &e->target_model->vocab;
    if (!SPECDEC__PIPE || !e->remote || !e->remote->obey_rank_0)
        specdec__engine_lay_out_buffers(e, arena);
    specdec__engine_lay_out_masker(e, arena);
    specdec__engine_lay_out_sequences(e, arena);
    specdec__engine_lay_out_kept_sequences(e, arena);
    specdec__engine_set_proposal_views(e);
    if (SPECDEC__PIPE && e->remote)
        e->remote->allocate(e, arena);
    return specdec__engine_make_fixed_tree(e, arena, error);
}

/* Takes those members of an engine from an arena that are too large for the stack. While memory is counted, the engine
   itself lies on the stack. */
static void specdec__engine_allocate_large_members(specdec__engine *e, specdec__arena *arena)
{
    specdec__kernels *kernels = SPECDEC__TAKE(arena, specdec__kernels, 1);
    specdec__model *own = SPECDEC__TAKE(arena, specdec__model, SPECDEC__MAX_MODELS);
    specdec__drafter *drafters = SPECDEC__TAKE(arena, specdec__drafter, SPECDEC__MAX_DRAFTERS);
    int i;

    if (arena->base) {
        e->kernels = kernels;
        for (i = 0; i < SPECDEC__MAX_MODELS; i++)
            e->opened_models[i] = &own[i];
        e->drafters = drafters;
    }
    e->tune = SPECDEC__TAKE(arena, specdec__tune, 1);
    e->async_drafting = SPECDEC__TAKE(arena, specdec__async_drafting, 1);
    e->stop_bytes = SPECDEC__TAKE(arena, unsigned char, SPECDEC__STOP_COPY_BYTES);
}

/* Returns whether the target's output matrix is repacked in planes, from which upper bounds of logits are computed: 0:
   no; 1: if the matrix is large; 2: always. By default only where the instruction set has kernels for bounds and
   config.settings allow bounds, as planes take longer to read whole. */
static int specdec__engine_output_planes_mode(const specdec_config *c, const specdec__kernels *kernels)
{
    return c->screening == SPECDEC_SCREENING_OFF      ? 0
           : c->screening == SPECDEC_SCREENING_ALWAYS ? 2
           : c->logprobs || c->rule != SPECDEC_RULE_COUPLED || c->cluster || c->settings.allow ||
                   !specdec__settle_needed_logits(&c->settings.sampling, 0).k
               ? 0
               : kernels->multiply_upper_plane != NULL;
}

/* Repacks the weights of all models into tiles, which lie behind the rest of the engine's block. */
static specdec_result specdec__engine_repack_weights(specdec__engine *e, specdec__arena *arena, specdec_error *error)
{
    specdec_hooks hooks = e->config.hooks;
    specdec_result r = SPECDEC_OK;
    int i;

    if (SPECDEC__PIPE && e->remote) {
        hooks.progress = e->remote->report_progress;
        hooks.user_data = e;
    }
    for (i = 0; !r && !e->config.weights_in_place && i < e->opened_count; i++)
        r = specdec__model_repack_matrices(e->opened_models[i],
                                           e->opened_models[i] == e->target_model
                                           ? specdec__engine_output_planes_mode(&e->config, e->kernels) : 0,
                                           arena, &e->pool, &hooks, error);
    return r;
}

/* Closes the models that the engine itself has opened. */
static void specdec__engine_close_models(specdec__engine *e)
{
    while (e->opened_count)
        specdec__model_deinit(e->opened_models[--e->opened_count]);
}

SPECDEC__FOR_SPEED
