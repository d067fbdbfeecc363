/* measure.h - what specdec-tune and specdec-bench share: prompts from a file, an engine that takes any token tree, acceptance by
   child rank along the target's own text, and runs. Include it behind specdec.h, program.h and json.h. */

#ifndef MEASURE_H
#define MEASURE_H

#define MEASURE_RANKS 16       /* children a node that acceptance is told apart for */
#define MEASURE_TEMPERATURES 8 /* at most */
#define MEASURE_NODES 64       /* of a tree that is run */

/* --- prompts ------------------------------------------------------------------------------------------------------ */

typedef struct measure_prompts {
    char **texts; /* [count] */
    int count;
} measure_prompts;

/* As json_decode; a zero byte is no text either. */
static char *measure_json_string(char *at)
{
    size_t length;
    char *behind = json_decode(at, &length);

    return behind && strlen(at) == length ? behind : NULL;
}

/* The prompt of a line of JSON, decoded in place: the first of "turns", or "prompt". NULL when there is none. */
static char *measure_json_prompt(char *at)
{
    int depth = 0;

    while (*at) {
        char c = *at++, *text = at, *behind;

        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        if (c != '"')
            continue;
        behind = measure_json_string(at);
        if (!behind)
            return NULL;
        at = behind + strspn(behind, " \t");
        if (depth != 1 || *at != ':' || (strcmp(text, "turns") && strcmp(text, "prompt")))
            continue;
        at++;
        at += strspn(at, " \t");
        if (*text == 't') {
            if (*at++ != '[')
                return NULL;
            at += strspn(at, " \t");
        }
        if (*at++ != '"')
            return NULL;
        return measure_json_string(at) ? at : NULL;
    }
    return NULL;
}

/* Cuts the next prompt of plain text off, up to an empty line; the ends of its last line go. NULL at the end. */
static char *measure_paragraph(char **rest)
{
    char *at = *rest + strspn(*rest, "\r\n"), *end = at;

    while (*end && !(end[0] == '\n' && (end[1] == '\n' || (end[1] == '\r' && end[2] == '\n'))))
        end++;
    *rest = *end ? end + 1 : end;
    while (end > at && (end[-1] == '\n' || end[-1] == '\r'))
        end--;
    *end = 0;
    return *at ? at : NULL;
}

/* Reads at most limit prompts: JSON by the line, or text with empty lines between. Returns 0 after saying what is wrong. */
static int measure_read_prompts(measure_prompts *prompts, const char *path, int limit)
{
    char *rest = program_read_text(path), *text, where[64];
    int json, line;

    prompts->count = 0;
    prompts->texts = (char **)malloc((size_t)limit * sizeof *prompts->texts);
    if (!rest || !prompts->texts)
        return 0;
    json = rest[strspn(rest, " \t\r\n")] == '{';
    for (line = 1; prompts->count < limit && *rest; line++) {
        if (!json) {
            text = measure_paragraph(&rest);
            if (!text)
                break;
        } else {
            char *end = rest + strcspn(rest, "\n"), *from = rest;

            rest = *end ? end + 1 : end;
            *end = 0;
            if (!from[strspn(from, " \t\r")])
                continue;
            text = measure_json_prompt(from);
            snprintf(where, sizeof where, ":%d: no \"turns\" and no \"prompt\" there", line);
            if (!text)
                return program_failed(path, where), 0;
        }
        if (*text)
            prompts->texts[prompts->count++] = text;
    }
    return prompts->count ? 1 : (program_failed("no prompts in ", path), 0);
}

/* Reads "0,0.6,1". Returns how many, or 0 when they are no temperatures. */
static PROGRAM_UNUSED int measure_read_temperatures(const char *text, float *out)
{
    int count = 0;

    for (;;) {
        char *end;
        double value = strtod(text, &end);

        if (end == text || (*end && *end != ',') || !(value >= 0 && value <= 100) || count == MEASURE_TEMPERATURES)
            return 0;
        out[count++] = (float)value;
        if (!*end)
            return count;
        text = end + 1;
    }
}

/* --- the engine --------------------------------------------------------------------------------------------------- */

typedef enum measure_rule {
    MEASURE_COUPLED,
    MEASURE_SEQUOIA,
    MEASURE_SPECINFER,
    MEASURE_SPECTR,
    MEASURE_TOP_K,
    MEASURE_RULES
} measure_rule;

static const char *const measure_rule_names[MEASURE_RULES] = {"coupled", "sequoia", "specinfer", "spectr", "top-k"};

/* A pair of models, and what measuring needs beside their engine. */
typedef struct measure {
    specdec *e;
    specdec *draft;                 /* an engine whose target is the draft model: for its rows of logits */
    specdec_model *draft_model;     /* of both */
    specdec_info info;              /* of the first */
    int chat;                       /* prompts are messages */
    int vocab, draft_vocab, shared; /* tokens of the target, of the draft, of both */
    float *rows, *draft_rows;       /* (MEASURE_NODES, vocab), (MEASURE_NODES, draft_vocab) */
    float *p, *q;                   /* (vocab): distributions of target and draft */
    specdec_candidate *target_items, *draft_items; /* (vocab) */
    int prompt, count;              /* tokens of the text: prompted, and in all */
    int32_t *text;                  /* (context) */
    specdec_sampling sampling;
} measure;

/* Prepares the draft model of config, which from then on names it. Returns 0 after saying what went wrong. */
static int measure_share_draft(measure *m, specdec_config *config)
{
    specdec_config only = *config;
    specdec_error error;
    size_t bytes;
    void *memory;

    only.target = config->draft;
    if (specdec_model_memory_needed(&only, &bytes, &error))
        return program_failed("", error.text), 0;
    memory = program_memory(bytes, PROGRAM_LESS);
    if (!memory)
        return 0;
    if (specdec_model_init(&m->draft_model, &only, memory, bytes, &error))
        return program_failed("", error.text), 0;
    config->draft.model = m->draft_model;
    return 1;
}

/* Room for rows, distributions and a text. Returns 0 after saying that there is none. */
static int measure_take_room(measure *m)
{
    const size_t vocab = (size_t)m->vocab, draft_vocab = (size_t)m->draft_vocab;

    m->rows = (float *)malloc(MEASURE_NODES * (vocab + draft_vocab) * sizeof(float));
    m->p = (float *)calloc(2 * vocab, sizeof(float));
    m->target_items = (specdec_candidate *)malloc(2 * vocab * sizeof(specdec_candidate));
    m->text = (int32_t *)malloc((size_t)m->info.context * sizeof(int32_t));
    if (!m->rows || !m->p || !m->target_items || !m->text)
        return program_failed("out of memory", ""), 0;
    m->draft_rows = m->rows + MEASURE_NODES * vocab;
    m->q = m->p + vocab;
    m->draft_items = m->target_items + vocab;
    return 1;
}

/* Makes the engines for config's target, draft and threads: one that takes any tree and temperature, and one of the
   draft model alone. Returns 0 after saying what went wrong. */
static PROGRAM_UNUSED int measure_open(measure *m, const specdec_config *given)
{
    specdec_config config = *given;
    specdec_info draft;

    memset(m, 0, sizeof *m);
    config.drafting = SPECDEC_DRAFT_MODEL;
    config.tree_size = MEASURE_NODES;
    config.tree_depth = SPECDEC_TREE_MAX_DEPTH;
    config.batch = MEASURE_NODES;
    config.hooks.progress = program_progress;
    if (!measure_share_draft(m, &config))
        return 0;
    m->e = program_engine(&config, PROGRAM_LESS);
    if (!m->e)
        return 0;
    specdec_get_info(m->e, &m->info);
    config.drafting = SPECDEC_DRAFT_OFF;
    config.target = config.draft;
    memset(&config.draft, 0, sizeof config.draft);
    config.context = m->info.context;
    m->draft = program_engine(&config, PROGRAM_LESS);
    if (!m->draft)
        return 0;
    specdec_get_info(m->draft, &draft);
    m->vocab = m->info.vocabulary;
    m->draft_vocab = draft.vocabulary;
    m->shared = program_least(m->vocab, m->draft_vocab);
    return measure_take_room(m);
}

/* Ends what measure_open began. */
static PROGRAM_UNUSED void measure_close(measure *m)
{
    specdec_deinit(m->e);
    specdec_deinit(m->draft);
    specdec_model_deinit(m->draft_model);
}

static int measure_failed(const specdec *engine)
{
    return program_failed("", specdec_error_text(engine)), 0;
}

/* What the engine does from now on: this tree at every step (NULL: none), and how it samples. Its rule is the coupled
   one. */
static PROGRAM_UNUSED int measure_use(measure *m, const specdec_tree *tree, float temperature, uint64_t seed)
{
    int32_t root = -1, rank = 0;
    specdec_tree alone = {NULL, NULL, 1, 1};
    specdec_settings settings;

    alone.parents = &root;
    alone.ranks = &rank;
    memset(&settings, 0, sizeof settings);
    settings.sampling.temperature = temperature;
    settings.sampling.seed = seed;
    m->sampling = settings.sampling;
    return (!specdec_set(m->e, &settings) && !specdec_set_tree(m->e, tree ? tree : &alone)) || measure_failed(m->e);
}

/* Back to the prompt's end. */
static void measure_rewind(measure *m) { specdec_rewind(m->e, m->prompt); }

/* Prompts anew. Returns 0 after saying what went wrong; -1 when the prompt and tokens behind it are too long for the context. */
static int measure_prompt(measure *m, const char *prompt, int tokens)
{
    specdec_message message = {SPECDEC_USER, NULL, SPECDEC_WHOLE_STRING, 0};
    specdec_result result;
    const int32_t *text;

    message.text = prompt;
    specdec_rewind(m->e, 0);
    result = m->chat ? specdec_chat(m->e, &message, 1) : specdec_prompt(m->e, prompt, SPECDEC_WHOLE_STRING);
    specdec_tokens(m->e, &text, &m->prompt);
    if (result == SPECDEC_ERROR_CONTEXT || (!result && m->prompt + tokens + MEASURE_NODES >= m->info.context))
        return -1;
    return result ? measure_failed(m->e) : 1;
}

/* --- acceptance by rank ------------------------------------------------------------------------------------------- */

static const int measure_children[] = {1, 2, 4, 8};

/* What the rules did at one temperature. */
typedef struct measure_rates {
    float temperature;
    long positions, decisions;
    long rank[MEASURE_RULES][MEASURE_RANKS]; /* child k was accepted and those before it were not; not of spectr */
    long within[MEASURE_RULES][4];           /* one of 1, 2, 4, 8 children was accepted */
    double overlap;                          /* sum of 1 - TV(P, Q) */
} measure_rates;

/* The acceptance vector p[MEASURE_RANKS] of a rule. */
static PROGRAM_UNUSED void measure_vector(const measure_rates *r, measure_rule rule, double *p)
{
    int k;

    for (k = 0; k < MEASURE_RANKS; k++)
        p[k] = r->decisions ? (double)r->rank[rule][k] / (double)r->decisions : 0;
}

static void measure_count(measure_rates *r, measure_rule rule, int child)
{
    int i;

    if (child < 0)
        return;
    r->rank[rule][child]++;
    for (i = 0; i < 4; i++)
        r->within[rule][i] += child < measure_children[i];
}

/* The child that holds a token; -1: none. */
static int measure_find(const specdec_candidate *best, int count, int32_t token)
{
    int i;

    for (i = 0; i < count; i++)
        if (best[i].token == token)
            return i;
    return -1;
}

/* Asks a rejection rule about children that were drawn from Q. Returns the accepted one, or -1. */
static int measure_ask(measure *m, specdec_rule rule, const specdec_candidate *best, int count, uint64_t seed, int position)
{
    int32_t children[MEASURE_RANKS];
    specdec_uniform uniform = {0, 0, 0};
    specdec_choice choice;
    specdec_verdict verdict;
    int i;

    for (i = 0; i < count; i++)
        children[i] = best[i].token;
    uniform.seed = seed;
    uniform.position = (uint64_t)position;
    choice.target = m->p;
    choice.draft = m->q;
    choice.children = children;
    choice.vocab = m->vocab;
    choice.child_count = count;
    choice.random = &uniform;
    return specdec_verify(rule, &choice, &verdict, NULL) ? -1 : verdict.child;
}

/* Children with replacement: SpecInfer decides about all 8 in order, SpecTr's rule depends on how many there are. */
static void measure_with_replacement(measure *m, measure_rates *r, const specdec_candidates *draft, uint64_t seed, int position)
{
    specdec_candidate best[8];
    int i;

    for (i = 0; i < 8; i++)
        specdec_sample_top(draft, (seed ^ 0x6a09e667f3bcc909u) + (uint64_t)(i + 1) * 0x9e3779b97f4a7c15u, (uint64_t)position, 1, &best[i]);
    measure_count(r, MEASURE_SPECINFER, measure_ask(m, SPECDEC_RULE_SPECINFER, best, 8, seed, position));
    for (i = 0; i < 4; i++)
        r->within[MEASURE_SPECTR][i] += measure_ask(m, SPECDEC_RULE_SPECTR, best, measure_children[i], seed, position) >= 0;
}

/* One decision of every rule after a row of the target and one of the draft. Returns the target's own token. */
static int32_t measure_decide(measure *m, measure_rates *r, const specdec_candidates *target, const specdec_candidates *draft, int all,
                              uint64_t seed, int position)
{
    specdec_candidate own = {0, 0}, best[MEASURE_RANKS];
    specdec_candidates ranked = *draft;
    int count;

    specdec_sample_top(target, seed, (uint64_t)position, 1, &own);
    count = specdec_sample_top(draft, seed, (uint64_t)position, MEASURE_RANKS, best);
    measure_count(r, MEASURE_COUPLED, measure_find(best, count, own.token));
    count = specdec_sample_top(draft, seed ^ 0x6a09e667f3bcc909u, (uint64_t)position, MEASURE_RANKS, best);
    measure_count(r, MEASURE_SEQUOIA, measure_ask(m, SPECDEC_RULE_SEQUOIA, best, count, seed, position));
    r->decisions++;
    if (!all)
        return own.token;
    measure_with_replacement(m, r, draft, seed, position);
    ranked.greedy = 1;
    count = specdec_sample_top(&ranked, seed, (uint64_t)position, MEASURE_RANKS, best);
    measure_count(r, MEASURE_TOP_K, measure_ask(m, SPECDEC_RULE_TOP_K, best, count, seed, position));
    return own.token;
}

/* Temperature 0: all rules accept the target's best token when it is among the draft's best. */
static int32_t measure_decide_greedy(measure_rates *r, const specdec_candidates *target,
                                     const specdec_candidates *draft)
{
    specdec_candidate own = {0, 0}, best[MEASURE_RANKS];
    int count, i;

    specdec_sample_top(target, 0, 0, 1, &own);
    count = specdec_sample_top(draft, 0, 0, MEASURE_RANKS, best);
    for (i = 0; i < MEASURE_RULES; i++)
        measure_count(r, (measure_rule)i, measure_find(best, count, own.token));
    r->decisions++;
    return own.token;
}

/* All decisions at one position of the text, from rows of logits: draws of them, the first with the text's own noise.
   all: also the rules that are only there for comparison. Returns 0 when the rows do not fit the text. */
static int measure_position(measure *m, measure_rates *r, const float *target, const float *draft, int position,
                            int draws, int all)
{
    const specdec_sampling *s = &m->sampling;
    specdec_candidates own, guess;
    int i, fits;

    r->positions++;
    own.items = m->target_items;
    guess.items = m->draft_items;
    if (specdec_sample_filter(&own, s, target, m->vocab, NULL, 0, NULL) ||
        specdec_sample_filter(&guess, s, draft, m->shared, NULL, 0, NULL))
        return 0;
    if (!(s->temperature > 0))
        return measure_decide_greedy(r, &own, &guess) == m->text[position];
    if (specdec_sample_distribution(&own, m->vocab, m->p, NULL) ||
        specdec_sample_distribution(&guess, m->shared, m->q, NULL))
        return 0;
    for (i = 0; i < m->shared; i++)
        r->overlap += m->p[i] < m->q[i] ? m->p[i] : m->q[i];
    fits = measure_decide(m, r, &own, &guess, all, s->seed, position) == m->text[position];
    for (i = 1; i < draws; i++)
        measure_decide(m, r, &own, &guess, all, s->seed + (uint64_t)i * 0xd1342543de82ef95u, position);
    return fits;
}

/* Appends text[from, to) to an engine's, which holds the tokens before; rows may be NULL. */
static int measure_forward(const measure *m, specdec *e, int vocab, int from, int to, float *rows)
{
    int32_t tokens[MEASURE_NODES];
    int i, n;

    for (; from < to; from += n) {
        n = program_least(to - from, MEASURE_NODES);
        for (i = 0; i < n; i++)
            tokens[i] = m->text[from + i] < vocab ? m->text[from + i] : 0;
        if (rows ? specdec_prompt_logits(e, tokens, n, rows) : specdec_prompt_tokens(e, tokens, n))
            return measure_failed(e);
    }
    return 1;
}

/* Decides at every position of the written text. The engine is left behind its prompt. */
static int measure_rows(measure *m, measure_rates *r, int draws, int all)
{
    const int first = m->prompt - 1;
    int from, to, i, fits = 1, ok;

    specdec_rewind(m->e, first);
    specdec_rewind(m->draft, 0);
    ok = measure_forward(m, m->draft, m->draft_vocab, 0, first, NULL);
    for (from = first; ok && from < m->count - 1; from = to) {
        to = program_least(from + MEASURE_NODES, m->count - 1);
        ok = measure_forward(m, m->e, m->vocab, from, to, m->rows) &&
             measure_forward(m, m->draft, m->draft_vocab, from, to, m->draft_rows);
        for (i = from; ok && i < to; i++)
            fits &= measure_position(m, r, m->rows + (size_t)(i - from) * (size_t)m->vocab,
                                     m->draft_rows + (size_t)(i - from) * (size_t)m->draft_vocab, i + 1, draws, all);
    }
    specdec_rewind(m->e, program_least(m->prompt, m->count - 1));
    ok = ok && (m->count > m->prompt || measure_forward(m, m->e, m->vocab, first, m->prompt, NULL));
    return ok && !fits ? (program_failed("the text and its logits disagree: this is a bug", ""), 0) : ok;
}

/* Lets the target write at most tokens behind the prompt, as plain decoding would, into m->text. */
static int measure_write(measure *m, int tokens, float temperature, uint64_t seed)
{
    const int32_t *text;
    int count;

    if (!measure_use(m, NULL, temperature, seed))
        return 0;
    measure_rewind(m);
    do {
        specdec_result result = specdec_step(m->e, &text, &count);

        if (result == SPECDEC_DONE)
            break;
        if (result)
            return measure_failed(m->e);
        specdec_tokens(m->e, &text, &m->count);
    } while (m->count < m->prompt + tokens);
    specdec_tokens(m->e, &text, &m->count);
    m->count = program_least(m->count, m->prompt + tokens);
    memcpy(m->text, text, (size_t)m->count * sizeof *text);
    measure_rewind(m);
    return 1;
}

/* What acceptance is measured on. */
typedef struct measure_plan {
    const measure_prompts *prompts;
    int tokens, positions; /* for each prompt; for each temperature in all, at most; 0: no matter */
    int draws, all;
} measure_plan;

/* Measures rates[count] at their temperatures. Returns 0 after saying what went wrong. */
static PROGRAM_UNUSED int measure_acceptance(measure *m, measure_rates *rates, int count, const measure_plan *plan)
{
    int i, t, done = 0;

    for (i = 0; i < plan->prompts->count; i++) {
        int ready = measure_prompt(m, plan->prompts->texts[i], plan->tokens), open = 0;

        program_progress(NULL, "acceptance", i, plan->prompts->count);
        if (!ready)
            return 0;
        for (t = 0; ready > 0 && t < count; t++) {
            int left = plan->positions ? plan->positions - (int)rates[t].positions : plan->tokens;

            if (left <= 0)
                continue;
            open = done = 1;
            if (!measure_write(m, program_least(plan->tokens, left), rates[t].temperature, (uint64_t)(i + 1) * 1000 + (uint64_t)t) ||
                !measure_rows(m, &rates[t], plan->draws, plan->all))
                return 0;
        }
        if (ready > 0 && !open)
            break;
    }
    program_progress(NULL, "acceptance", 1, 1);
    return done ? 1 : (program_failed("no prompt leaves room in the context for its answer", ""), 0);
}

/* --- runs --------------------------------------------------------------------------------------------------------- */

/* What runs took; added to. */
typedef struct measure_run {
    double seconds, draft_seconds;
    long tokens, steps;
} measure_run;

/* Runs the engine behind its prompt, as measure_use has set it, until there are that many tokens or steps (0: no matter), or
   the context is nearly full. One step before is not counted: it brings the draft model up to date. */
static PROGRAM_UNUSED int measure_go(measure *m, int tokens, int steps, measure_run *run)
{
    specdec_stats before, now;
    const int32_t *text;
    int count, length = m->prompt;
    specdec_result result;

    measure_rewind(m);
    result = specdec_step(m->e, &text, &count);
    specdec_get_stats(m->e, &before);
    for (now = before; !result; specdec_get_stats(m->e, &now)) {
        if ((tokens && now.tokens - before.tokens >= tokens) || (steps && now.steps - before.steps >= steps) ||
            length + 2 * MEASURE_NODES > m->info.context)
            break;
        result = specdec_step(m->e, &text, &count);
        specdec_tokens(m->e, &text, &length);
    }
    run->seconds += now.seconds - before.seconds;
    run->draft_seconds += now.draft_seconds - before.draft_seconds;
    run->tokens += (long)(now.tokens - before.tokens);
    run->steps += (long)(now.steps - before.steps);
    return result && result != SPECDEC_DONE ? measure_failed(m->e) : 1;
}

/* The middle one of values[count], which become sorted. */
static PROGRAM_UNUSED double measure_median(double *values, int count)
{
    int i, j;

    for (i = 1; i < count; i++)
        for (j = i; j > 0 && values[j] < values[j - 1]; j--) {
            double swap = values[j];

            values[j] = values[j - 1];
            values[j - 1] = swap;
        }
    return count ? values[count / 2] : 0;
}

/* Median seconds of a step of each width behind the prompt: all widths in turn, so that a slow minute hits all of them.
   The prompt's last token is part of every step. */
static PROGRAM_UNUSED int measure_step_times(measure *m, const int32_t *widths, int count, int repeats, double *seconds)
{
    static double times[16][32];
    int32_t tokens[MEASURE_NODES], parents[MEASURE_NODES];
    int i, w;

    measure_rewind(m);
    for (i = 0; i < MEASURE_NODES; i++) {
        tokens[i] = (100 + i * 7) % m->vocab;
        parents[i] = i - 1;
    }
    for (i = 0; i < repeats; i++)
        for (w = 0; w < count; w++) {
            double start = program_seconds();

            if (specdec_logits(m->e, tokens, parents, widths[w] - 1, NULL))
                return measure_failed(m->e);
            times[w][i] = program_seconds() - start;
        }
    for (w = 0; w < count; w++)
        seconds[w] = measure_median(times[w], repeats);
    return 1;
}
#endif
