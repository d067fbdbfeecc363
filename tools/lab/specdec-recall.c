/* specdec-recall - how often a model drafts its own next token when it sees only a part of a long text: which part is chosen by
   one policy or another (tools/lab/policies.h). A prompt is read and answered plainly; then, at each token of the answer, every
   small cache drafts the next token. It includes the header's implementation, as tests do: caches are not public.
   Chunks are chosen as the drafter "triforce" does it, anew for every few draft tokens; draft tokens follow the answer itself, in chains
   of up to 8 tokens. Counts, which are the same on every machine. */
#define _DEFAULT_SOURCE 1 /* POSIX, also under -std=c99 */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "tools/program.h"
#include "tools/json.h"
#include "tools/measure.h"
#include "tools/lab/policies.h"

enum { MAX_PROMPTS = 64, BUDGETS = 4, TEMPERATURES = 2, STEP = 8, BATCH = 64, STAGES = 3 };
enum { LEAST = 2 * SPECDEC__KEYS }; /* tokens of a prompt */

typedef struct options {
    const char *model, *prompts, *shares;
    specdec_config config;
    float temperature;
    uint64_t seed;
    int first, limit, chunk, chat;
    int share[BUDGETS], share_count; /* of the prompt: one part in so many tokens is kept */
} options;

/* One small cache, and the tokens that it drafted behind the prompts. */
typedef struct level {
    const policy *kind;
    int share; /* one token in so many of the prompt's is kept */
    specdec__retrieval cache;
    int right[TEMPERATURES][MAX_PROMPTS];
    int since;                                /* where the chain began */
    int stage_right[STAGES], stage[STAGES];   /* of draft tokens 1 and 2, 3 and 4, 5 to 8 of chains */
} level;

typedef struct recall {
    const options *o;
    specdec *e;
    specdec__context *target;
    policy_watch watch;
    specdec__chooser chooser;
    specdec_sampling sampling;
    int32_t *text;              /* (context) */
    int prompt, count;          /* tokens of it: of the prompt, in all */
    float *prompt_sums;         /* what watch->sums were behind the prompt */
    level levels[BUDGETS * POLICIES];
    int level_count;
    specdec__arena arena;       /* of the caches, which are laid out for each prompt */
    int prompts, tokens[MAX_PROMPTS], draft_tokens[TEMPERATURES][MAX_PROMPTS];
} recall;

/* --- one prompt --------------------------------------------------------------------------------------------------- */

static int32_t chosen(const recall *r, const float *row, int count)
{
    specdec_candidate best;

    best.token = 0;
    specdec__choose_best_tokens(&r->chooser, row, r->target->model->vocab_size, r->text, count, 1, &best);
    return best.token;
}

/* Runs text[view length, count) through the target. Returns 0 after saying what went wrong. */
static int run_target(recall *r, int count, int watched)
{
    const specdec__prefill_rows rows = specdec__prefill_rows_with_logits_from(count - 1);
    specdec__view *view = &r->e->view;
    specdec_error error;

    r->target->before_attention = watched ? policy_gather : NULL;
    if (specdec__forward_prefill(r->target, view, r->text, count, BATCH, &rows, NULL, &error))
        return program_failed("", error.text), 0;
    if (watched)
        r->watch.counted = specdec__max_int(r->watch.counted, count);
    r->target->before_attention = NULL;
    return 1;
}

/* Writes the answer plainly. Returns 0 after saying what went wrong. */
static int answer(recall *r)
{
    int32_t token = -1;

    for (r->count = r->prompt;
         r->count < r->prompt + r->o->limit && !specdec__vocab_is_end_token(&r->target->model->vocab, token);) {
        if (r->e->view.length < r->count && !run_target(r, r->count, 0))
            return 0;
        token = r->text[r->count] = chosen(r, r->target->logits, r->count);
        r->count++;
    }
    specdec__view_truncate(&r->e->view, &r->target->kv, r->prompt - 1);
    return 1;
}

/* Counts the draft token behind token `at` of the text. */
static int note(level *l, int at, int right)
{
    const int behind = at - l->since, stage = behind < 4 ? behind / 2 : 2;

    l->stage[stage]++;
    l->stage_right[stage] += right;
    return right;
}

/* The next n tokens of the text as a step of a small cache, whose view ends at token `at`: how many of the tokens that it
   chooses behind them are those of the text; -1 after saying what went wrong. */
static int draft_step(recall *r, level *l, int at, int n)
{
    specdec__view *view = &l->cache.sequences[0].view;
    specdec__context *c = specdec__retrieve_context_with_small_cache(&l->cache);
    specdec__batch batch;
    specdec_error error;
    int i, right = 0;

    if (c->before_attention && l->kind->recall)
        c->before_attention = l->kind->recall;
    for (i = 0; i < n; i++) {
        c->tokens[i] = r->text[at + i];
        c->parents[i] = i - 1;
    }
    batch = specdec__forward_make_view_batch(c, view, 0, n);
    if (specdec__forward(c, &batch, &error))
        return program_failed("", error.text), -1;
    specdec__view_commit(view, &c->kv, l->cache.path, n);
    for (i = 0; i < n; i++)
        right += note(l, at + i, chosen(r, c->logits + (size_t)i * (size_t)c->output->rows, at + i + 1) ==
                                 r->text[at + i + 1]);
    return right;
}

/* A chain of n draft tokens behind the committed tokens, in steps as long as chunks stay; as draft_step. */
static int draft_chain(recall *r, level *l, int n)
{
    const int end = r->e->view.length + n;
    int at, some, right = 0, count;

    if (!policy_begin(&l->cache, l->kind, &r->e->view))
        return program_failed("", "no room in a small cache"), -1;
    l->since = end - n;
    for (at = l->since; at < end; at += some) {
        some = specdec__min_int(l->kind->recall ? n : SPECDEC__RETRIEVE_CHOICE_TOKENS, end - at);
        count = draft_step(r, l, at, some);
        if (count < 0)
            return -1;
        right += count;
    }
    return right;
}

/* Every small cache drafts along the answer. Returns 0 after saying what went wrong. */
static int follow(recall *r, int temperature, int index)
{
    const specdec__model *m = r->target->model;
    int i, n, right;

    memcpy(r->watch.sums, r->prompt_sums, (size_t)m->layers * (size_t)m->kv_heads * (size_t)r->watch.context *
                                          sizeof(float));
    r->watch.counted = r->prompt;
    while ((n = specdec__min_int(STEP, r->count - 1 - r->e->view.length)) > 0) {
        for (i = 0; i < r->level_count; i++) {
            right = draft_chain(r, &r->levels[i], n);
            if (right < 0)
                return 0;
            r->levels[i].right[temperature][index] += right;
        }
        r->draft_tokens[temperature][index] += n;
        if (!run_target(r, r->e->view.length + n, 1))
            return 0;
    }
    specdec__view_truncate(&r->e->view, &r->target->kv, r->prompt - 1);
    for (i = 0; i < r->level_count; i++)
        specdec__retrieve_drop_sequence(&r->levels[i].cache, 0);
    return 1;
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

/* A cache for each budget and policy; one that keeps all is there once. */
static void list_levels(recall *r)
{
    int i, k;

    for (i = 0; i < r->o->share_count; i++)
        for (k = 0; k < POLICIES; k++)
            if (!policies[k].recall || !i) {
                r->levels[r->level_count].share = r->o->share[i];
                r->levels[r->level_count++].kind = &policies[k];
            }
}

/* Small caches for a prompt of so many tokens. */
static void lay_out(recall *r, int prompt)
{
    int i;

    r->arena.used = 0;
    for (i = 0; i < r->level_count; i++) {
        level *l = &r->levels[i];

        policy_init(&l->cache, l->kind, r->target, &r->e->engine->room, prompt / l->share, r->o->chunk, STEP, &r->arena);
    }
}

/* The tokens of a prompt, as the engine reads it. Returns 0 when it is too long or too short, -1 after saying what went
   wrong. */
static int tokenize(recall *r, const char *prompt)
{
    specdec_message message = {SPECDEC_USER, NULL, SPECDEC_WHOLE_STRING, 0};
    const int32_t *tokens;
    specdec_result result;

    message.text = prompt;
    specdec_rewind(r->e, 0);
    r->watch.counted = 0;
    r->target->before_attention = policy_gather;
    result = r->o->chat ? specdec_chat(r->e, &message, 1) : specdec_prompt(r->e, prompt, SPECDEC_WHOLE_STRING);
    r->target->before_attention = NULL;
    if (result == SPECDEC_ERROR_CONTEXT)
        return 0;
    if (result)
        return measure_failed(r->e) - 1;
    specdec_tokens(r->e, &tokens, &r->prompt);
    if (r->prompt + r->o->limit > r->watch.context || r->prompt < LEAST)
        return 0;
    memcpy(r->text, tokens, (size_t)r->prompt * sizeof *tokens);
    return 1;
}

/* Returns 0 after saying what went wrong. */
static int run_prompt(recall *r, const char *prompt)
{
    const specdec__model *m = r->target->model;
    const size_t sums = (size_t)m->layers * (size_t)m->kv_heads * (size_t)r->watch.context;
    int i, result;

    memset(r->watch.sums, 0, sums * sizeof(float));
    result = tokenize(r, prompt);
    if (result <= 0) {
        if (!result)
            fprintf(stderr, "%s: a prompt is too long or too short: left out\n", program_name);
        return !result;
    }
    if (!run_target(r, r->prompt - 1, 1)) /* what of it has not been read yet */
        return 0;
    specdec__view_truncate(&r->e->view, &r->target->kv, r->prompt - 1);
    memcpy(r->prompt_sums, r->watch.sums, sums * sizeof(float));
    lay_out(r, r->prompt);
    for (i = 0; i < TEMPERATURES; i++) {
        r->sampling.temperature = i ? r->o->temperature : 0;
        if (!answer(r) || !follow(r, i, r->prompts))
            return 0;
    }
    r->tokens[r->prompts++] = r->prompt;
    return 1;
}

/* Makes the engine and room for everything. Returns 0 after saying what went wrong. */
static int begin(recall *r, const options *o)
{
    specdec_config config = o->config;
    const specdec__model *m;
    size_t sums;

    r->o = o;
    config.target.path = o->model;
    config.drafting = SPECDEC_DRAFT_OFF;
    config.batch = BATCH;
    config.hooks.progress = program_progress;
    r->e = program_engine(&config, PROGRAM_LESS);
    if (!r->e)
        return 0;
    r->target = &r->e->engine->target;
    if (r->target->kv.span[SPECDEC__WINDOW].bytes)
        return program_failed(o->model, ": all layers must see the whole text, and some see a window of it"), 0;
    m = r->target->model;
    sums = (size_t)m->layers * (size_t)m->kv_heads * (size_t)r->e->context;
    r->sampling.seed = o->seed;
    r->chooser.kernels = r->target->kernels;
    r->chooser.sampling = &r->sampling;
    r->chooser.items = (specdec_candidate *)malloc((size_t)m->vocab_size * sizeof *r->chooser.items);
    r->text = (int32_t *)malloc((size_t)r->e->context * sizeof *r->text);
    r->prompt_sums = (float *)malloc(sums * sizeof(float));
    if (!policy_watch_init(&r->watch, r->target, r->e->context) || !r->chooser.items || !r->text || !r->prompt_sums)
        return program_failed("out of memory", ""), 0;
    r->target->before_attention_argument = &r->watch;
    list_levels(r);
    lay_out(r, r->e->context);
    r->arena.size = r->arena.used;
    r->arena.base = (unsigned char *)program_memory(r->arena.size, PROGRAM_LESS);
    return r->arena.base != NULL;
}

static void end(recall *r)
{
    policy_watch_end(&r->watch);
    specdec_deinit(r->e);
    free(r->chooser.items);
    free(r->text);
    free(r->prompt_sums);
}

static void print_line(const recall *r, const level *l)
{
    int i, k;

    for (i = 0; i < TEMPERATURES; i++) {
        int right = 0, draft_tokens = 0;

        for (k = 0; k < r->prompts; k++) {
            right += l->right[i][k];
            draft_tokens += r->draft_tokens[i][k];
        }
        printf(" %.3f (", (double)right / (draft_tokens ? draft_tokens : 1));
        for (k = 0; k < r->prompts; k++)
            printf("%s%.2f", k ? " " : "", (double)l->right[i][k] / (r->draft_tokens[i][k] ? r->draft_tokens[i][k] : 1));
        printf(") |");
    }
    for (i = 0; i < STAGES; i++)
        printf(l->stage[i] ? " %.2f" : " -", (double)l->stage_right[i] / (l->stage[i] ? l->stage[i] : 1));
    printf(" |\n");
}

static void print_table(const recall *r)
{
    const options *o = r->o;
    int i, k, draft_tokens[TEMPERATURES] = {0, 0};

    printf("prompts of");
    for (k = 0; k < r->prompts; k++) {
        printf(" %d", r->tokens[k]);
        for (i = 0; i < TEMPERATURES; i++)
            draft_tokens[i] += r->draft_tokens[i][k];
    }
    printf(" tokens, chunks of %d; draft tokens: %d greedy, %d at %g\n\n", o->chunk, draft_tokens[0], draft_tokens[1], (double)o->temperature);
    printf("| kept | by | greedy (each prompt) | at %g | draft tokens 1-2, 3-4, 5-8 of a chain |\n|---|---|---|---|---|\n",
           (double)o->temperature);
    for (i = 0; i < r->level_count; i++) {
        const level *l = &r->levels[i];

        if (l->kind->recall)
            printf("| all | %s |", l->kind->name);
        else
            printf("| 1/%d | %s |", l->share, l->kind->name);
        print_line(r, l);
    }
}

/* --- the program -------------------------------------------------------------------------------------------------- */

/* "4,8,16". Returns how many, or 0 when they are none. */
static int read_shares(const char *text, int *out)
{
    int count = 0;

    for (;;) {
        char *end;
        const long value = strtol(text, &end, 10);

        if (end == text || (*end && *end != ',') || value < 2 || value > 1024 || count == BUDGETS)
            return 0;
        out[count++] = (int)value;
        if (!*end)
            return count;
        text = end + 1;
    }
}

static int read_options(options *o, int argc, char **argv)
{
    const program_flag flags[] = {
        {"-m", PROGRAM_TEXT, (void *)&o->model, "FILE", "the model; all of its layers must see the whole text", 0, 0},
        {"-f", PROGRAM_TEXT, (void *)&o->prompts, "FILE",
         "JSON lines with \"turns\" or \"prompt\", or text with empty lines between", 0, 0},
        {"--chat", PROGRAM_SWITCH, &o->chat, NULL, "prompts are messages, in the model's chat format", 0, 0},
        {"--chat-format", PROGRAM_NAME, (void *)&o->config.chat_format, PROGRAM_CHAT_FORMATS, "how (as the model says)", 0, 0},
        {"--first", PROGRAM_INTEGER, &o->first, "N", "so many prompts (3)", 1, MAX_PROMPTS},
        {"--keep", PROGRAM_TEXT, (void *)&o->shares, "LIST", "one token in so many of the prompt's is kept (4,8,16)", 0, 0},
        {"--chunk", PROGRAM_INTEGER, &o->chunk, "N", "tokens that are chosen together (8)", 1, SPECDEC__KEYS},
        {"-n", PROGRAM_INTEGER, &o->limit, "N", "tokens of an answer (96)", 2, 4000},
        {"-c", PROGRAM_INTEGER, &o->config.context, "N", "tokens of prompt and answer (as the model was trained)", 64, 1 << 20},
        {"-t", PROGRAM_INTEGER, &o->config.threads, "N", "threads; 0: all processors, fewer for small models (0)", 0, SPECDEC_MAX_THREADS},
        {"--temp", PROGRAM_REAL, &o->temperature, "F", "temperature of the second answer (0.8)", 0, 100},
        {"--seed", PROGRAM_SEED, &o->seed, "S", "its seed (0)", 0, 0},
        {NULL, PROGRAM_SWITCH, NULL, NULL, NULL, 0, 0}};
    int status;

    memset(o, 0, sizeof *o);
    o->first = 3;
    o->shares = "4,8,16";
    o->chunk = 8;
    o->limit = 96;
    o->temperature = 0.8f;
    status = program_read(flags, argc, argv, "specdec-recall", "-m MODEL.gguf -f PROMPTS [options]",
                          "How often a model that sees a part of a long text chooses the token that it chooses when it\n"
                          "sees all of it: greedily, and at a temperature with the same noise.\n");
    if (status != PROGRAM_GO_ON)
        return status;
    if (!o->model || !o->prompts)
        return program_misused("-m and -f are needed", "");
    o->share_count = read_shares(o->shares, o->share);
    return o->share_count ? PROGRAM_GO_ON : program_misused("--keep takes up to 4 numbers with commas between, not ", o->shares);
}

int main(int argc, char **argv)
{
    static options o;
    static recall r;
    measure_prompts prompts;
    int status = read_options(&o, argc, argv), i, ok;

    if (status != PROGRAM_GO_ON)
        return status;
    if (!measure_read_prompts(&prompts, o.prompts, o.first))
        return PROGRAM_FAILED;
    ok = begin(&r, &o);
    for (i = 0; i < prompts.count && ok; i++)
        ok = run_prompt(&r, prompts.texts[i]);
    if (ok && r.prompts)
        print_table(&r);
    else if (ok)
        ok = program_failed("no prompt fits the context: ", o.prompts) == PROGRAM_OK;
    end(&r);
    return program_finish(ok ? PROGRAM_OK : PROGRAM_FAILED);
}
