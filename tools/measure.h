/* measure.h - what specdec-tune and specdec-bench share: prompts from a file, an engine that takes any token tree, acceptance by
   child rank along the target's own text, and runs. Include it behind specdec.h with its implementation and program.h. */

static specdec_error failure; /* of the last call that failed before there was an engine */
#ifndef MEASURE_H
#define MEASURE_H

#define MEASURE_RANKS 16       /* children a node that acceptance is told apart for */
#define MEASURE_TEMPERATURES 8 /* at most */
#define MEASURE_NODES 64       /* of a tree that is run */

/* --- prompts -------------------------------------------------------------------------------------------------------- */

typedef struct measure_prompts {
    char **texts; /* [count] */
    int count;
} measure_prompts;

/* Writes a code point as UTF-8; returns what is behind it. */
static char *measure_put_utf8(char *to, unsigned long code)
{
    if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xC0 | code >> 6);
        *to++ = (char)(0x80 | (code & 63));
    } else if (code < 0x10000) {
        *to++ = (char)(0xE0 | code >> 12);
        *to++ = (char)(0x80 | (code >> 6 & 63));
        *to++ = (char)(0x80 | (code & 63));
    } else {
        *to++ = (char)(0xF0 | code >> 18);
        *to++ = (char)(0x80 | (code >> 12 & 63));
        *to++ = (char)(0x80 | (code >> 6 & 63));
        *to++ = (char)(0x80 | (code & 63));
    }
    return to;
}

/* The four digits behind \u; -1 when they are none. */
static long measure_hex4(const char *at)
{
    long code = 0;
    int i;

    for (i = 0; i < 4; i++) {
        const char *digits = "0123456789abcdef0123456789ABCDEF", *digit = at[i] ? strchr(digits, at[i]) : NULL;

        if (!digit)
            return -1;
        code = code * 16 + (long)(digit - digits) % 16;
    }
    return code;
}

/* Decodes a JSON string in place; at stands behind its opening quote. Terminates it and returns what is behind the closing
   quote; NULL when it is no string. A zero byte or half a surrogate pair is no text either. */
static char *measure_json_string(char *at)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    char *to = at;

    while (*at && *at != '"') {
        const char *name;
        long code, low;

        if (*at != '\\') {
            *to++ = *at++;
            continue;
        }
        at++;
        name = *at ? strchr(names, *at) : NULL;
        if (name) {
            *to++ = values[name - names];
            at++;
            continue;
        }
        code = *at == 'u' ? measure_hex4(at + 1) : 0;
        if (code <= 0 || (code >= 0xDC00 && code < 0xE000))
            return NULL;
        at += 5;
        if (code >= 0xD800 && code < 0xDC00) {
            low = at[0] == '\\' && at[1] == 'u' ? measure_hex4(at + 2) : -1;
            if (low < 0xDC00 || low >= 0xE000)
                return NULL;
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
            at += 6;
        }
        to = measure_put_utf8(to, (unsigned long)code);
    }
    if (!*at)
        return NULL;
    *to = 0;
    return at + 1;
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

/* Cuts the next prompt of plain text off, up to an empty line. NULL at the end. */
static char *measure_paragraph(char **rest)
{
    char *at = *rest + strspn(*rest, "\r\n"), *end = at;

    while (*end && !(end[0] == '\n' && (end[1] == '\n' || (end[1] == '\r' && end[2] == '\n'))))
        end++;
    *rest = *end ? end + 1 : end;
    *end = 0;
    return *at ? at : NULL;
}

/* Reads at most limit prompts: JSON by the line, or text with empty lines between. Returns 0 after saying what is wrong. */
static int measure_read_prompts(measure_prompts *prompts, const char *path, int limit)
{
    size_t length;
    char *rest = program_read_file(path, &length), *text, where[64];
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
static int measure_read_temperatures(const char *text, float *out)
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

/* --- the engine ----------------------------------------------------------------------------------------------------- */

typedef enum measure_rule {
    MEASURE_COUPLED,
    MEASURE_SEQUOIA,
    MEASURE_SPECINFER,
    MEASURE_SPECTR,
    MEASURE_TOP_K,
    MEASURE_RULES
} measure_rule;

static const char *const measure_rule_names[MEASURE_RULES] = {"coupled", "sequoia", "specinfer", "spectr", "top-k"};

/* A pair of models, and what measuring needs beside the engine. */
typedef struct measure {
    specdec *e;
    specdec__draft_model *draft;    /* of the engine's only drafter */
    int chat;                       /* prompts are messages */
    int vocab, shared;              /* tokens of the target; of target and draft */
    float *p, *q;                   /* (vocab): distributions of target and draft */
    specdec_candidate *target_items, *draft_items; /* (vocab) */
    int prompt, count;              /* tokens of the text: prompted, and in all */
    int32_t *text;                  /* (context) */
    uint64_t seed;
} measure;

/* Makes an engine with config's target, draft and threads that takes any tree, rule and temperature. Returns 0 after saying what
   went wrong. */
static int measure_open(measure *m, specdec_config *config)
{
    size_t bytes, vocab;
    void *memory;

    memset(m, 0, sizeof *m);
    config->drafting = SPECDEC_DRAFT_AUTO;
    config->rule = SPECDEC_RULE_SEQUOIA; /* reserves what the rejection rules need */
    config->settings.sampling.temperature = 1;
    config->tree_size = MEASURE_NODES;
    config->tree_depth = SPECDEC_TREE_MAX_DEPTH;
    config->hooks.progress = program_progress;
    if (specdec_memory_needed(config, &bytes, &failure))
        return program_failed("", failure.text), 0;
    memory = program_memory(bytes);
    if (!memory)
        return 0;
    if (specdec_init(&m->e, config, memory, bytes, &failure))
        return program_failed("", failure.text), 0;
    m->e->config.hooks.progress = NULL;
    vocab = (size_t)m->e->target_model->vocab_size;
    m->vocab = (int)vocab;
    m->draft = (specdec__draft_model *)m->e->drafters[0].state;
    m->shared = m->draft->vocab;
    m->p = (float *)calloc(2 * vocab, sizeof(float));
    m->target_items = (specdec_candidate *)malloc(2 * vocab * sizeof(specdec_candidate));
    m->text = (int32_t *)malloc((size_t)m->e->context * sizeof(int32_t));
    if (!m->p || !m->target_items || !m->text)
        return program_failed("out of memory", ""), 0;
    m->q = m->p + vocab;
    m->draft_items = m->target_items + vocab;
    return 1;
}

/* What the engine does from now on: this tree at every step (NULL: none), this rule. */
static PROGRAM_UNUSED void measure_use(measure *m, const specdec_tree *tree, measure_rule rule, float temperature, uint64_t seed)
{
    static const specdec_rule rules[MEASURE_RULES] = {SPECDEC_RULE_COUNT, SPECDEC_RULE_SEQUOIA, SPECDEC_RULE_SPECINFER,
                                                      SPECDEC_RULE_SPECTR, SPECDEC_RULE_TOP_K};
    specdec *e = m->e;

    e->config.drafting = tree && tree->n > 1 ? SPECDEC_DRAFT_MODEL : SPECDEC_DRAFT_OFF;
    e->config.settings.sampling.temperature = temperature;
    e->config.settings.sampling.seed = m->seed = seed;
    e->rule = temperature > 0 ? rules[rule] : SPECDEC_RULE_COUNT;
    if (tree) {
        memcpy(e->shape.parents, tree->parents, (size_t)tree->n * sizeof *tree->parents);
        memcpy(e->shape.ranks, tree->ranks, (size_t)tree->n * sizeof *tree->ranks);
        e->shape.n = tree->n;
    }
}

static int measure_failed(const measure *m)
{
    return program_failed("", specdec_error_text(m->e)), 0;
}

/* Back to the prompt's end, its last token being the root of the next step. */
static void measure_rewind(measure *m)
{
    specdec_rewind(m->e, m->prompt);
    m->e->row_ready = 0;
    specdec__view_truncate(&m->e->target.view, &m->e->target.kv, m->prompt - 1);
}

/* Prompts anew. Returns 0 after saying what went wrong; -1 when the prompt and tokens behind it are too long for the context. */
static int measure_prompt(measure *m, const char *prompt, int tokens)
{
    specdec_message message = {SPECDEC_USER, NULL, SPECDEC_WHOLE_STRING};
    specdec_result result;
    const int32_t *text;

    message.text = prompt;
    specdec_rewind(m->e, 0);
    result = m->chat ? specdec_chat(m->e, &message, 1) : specdec_prompt(m->e, prompt, SPECDEC_WHOLE_STRING);
    specdec_tokens(m->e, &text, &m->prompt);
    if (result == SPECDEC_ERROR_CONTEXT || (!result && m->prompt + tokens + MEASURE_NODES >= m->e->context))
        return -1;
    return result ? measure_failed(m) : 1;
}

/* --- acceptance by rank --------------------------------------------------------------------------------------------- */

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
static void measure_vector(const measure_rates *r, measure_rule rule, double *p)
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
static int32_t measure_decide_greedy(measure *m, measure_rates *r, const float *target, const float *draft)
{
    specdec_candidate own = {0, 0}, best[MEASURE_RANKS];
    int count, i;

    specdec__sample_greedy(m->e->kernels, target, m->vocab, 1, &own);
    count = specdec__sample_greedy(m->e->kernels, draft, m->shared, MEASURE_RANKS, best);
    for (i = 0; i < MEASURE_RULES; i++)
        measure_count(r, (measure_rule)i, measure_find(best, count, own.token));
    r->decisions++;
    return own.token;
}

/* All decisions at one position of the text, from rows of logits: draws of them, the first with the text's own noise. all: also
   the rules that are only there for comparison. Returns 0 when the rows do not fit the text. */
static int measure_position(measure *m, measure_rates *r, const float *target, const float *draft, int position, int draws, int all)
{
    const specdec_sampling *s = &m->e->config.settings.sampling;
    specdec_candidates own, guess;
    int i, fits;

    r->positions++;
    if (!(s->temperature > 0))
        return measure_decide_greedy(m, r, target, draft) == m->text[position];
    own.items = m->target_items;
    guess.items = m->draft_items;
    if (specdec_sample_filter(&own, s, target, m->vocab, NULL, 0, NULL) || specdec_sample_distribution(&own, m->vocab, m->p, NULL) ||
        specdec_sample_filter(&guess, s, draft, m->shared, NULL, 0, NULL) || specdec_sample_distribution(&guess, m->shared, m->q, NULL))
        return 0;
    for (i = 0; i < m->shared; i++)
        r->overlap += m->p[i] < m->q[i] ? m->p[i] : m->q[i];
    fits = measure_decide(m, r, &own, &guess, all, m->seed, position) == m->text[position];
    for (i = 1; i < draws; i++)
        measure_decide(m, r, &own, &guess, all, m->seed + (uint64_t)i * 0xd1342543de82ef95u, position);
    return fits;
}

/* Runs text[from, to) through a model behind the from tokens that its view holds, all rows wanted, and commits it. */
static int measure_forward(measure *m, specdec__context *c, int from, int to)
{
    specdec__batch batch = specdec__forward_batch(c, 0, to - from);
    int i;

    for (i = 0; i < to - from; i++) {
        c->tokens[i] = m->text[from + i] < c->model->vocab_size ? m->text[from + i] : 0;
        c->parents[i] = i - 1;
        c->path[i] = i;
    }
    if (specdec__forward(c, &batch, &m->e->error))
        return measure_failed(m);
    specdec__view_commit(&c->view, &c->kv, c->path, to - from);
    return 1;
}

/* Puts a model's view behind the first length tokens of the text. */
static int measure_catch_up(measure *m, specdec__context *c, int length)
{
    if (c->view.length > length)
        specdec__view_truncate(&c->view, &c->kv, length);
    return !specdec__forward_text(c, m->text, length, MEASURE_NODES, 0, NULL, &m->e->error) || measure_failed(m);
}

/* Decides at every position of the written text. The engine is left behind its prompt. */
static int measure_rows(measure *m, measure_rates *r, int draws, int all)
{
    specdec *e = m->e;
    int from, i, fits = 1, ok;

    ok = measure_catch_up(m, &e->target, m->prompt - 1) && measure_catch_up(m, &m->draft->context, m->prompt - 1);
    for (from = m->prompt - 1; ok && from < m->count - 1; from += MEASURE_NODES) {
        int to = specdec__min_int(from + MEASURE_NODES, m->count - 1);

        ok = measure_forward(m, &e->target, from, to) && measure_forward(m, &m->draft->context, from, to);
        for (i = from; ok && i < to; i++)
            fits &= measure_position(m, r, e->target.logits + (size_t)(i - from) * (size_t)m->vocab,
                                     m->draft->context.logits + (size_t)(i - from) * (size_t)m->draft->context.model->vocab_size, i + 1, draws, all);
    }
    specdec__view_truncate(&e->target.view, &e->target.kv, m->prompt - 1);
    specdec__view_truncate(&m->draft->context.view, &m->draft->context.kv, m->prompt - 1);
    return ok && !fits ? (program_failed("the text and its logits disagree: this is a bug", ""), 0) : ok;
}

/* Lets the target write at most tokens behind the prompt, as plain decoding would, into m->text. */
static int measure_write(measure *m, int tokens, float temperature, uint64_t seed)
{
    const int32_t *text;
    int count;

    measure_use(m, NULL, MEASURE_COUPLED, temperature, seed);
    m->e->config.drafting = SPECDEC_DRAFT_AUTO; /* the same text, perhaps sooner */
    measure_rewind(m);
    do {
        specdec_result result = specdec_step(m->e, &text, &count);

        if (result == SPECDEC_DONE)
            break;
        if (result)
            return measure_failed(m);
        specdec_tokens(m->e, &text, &m->count);
    } while (m->count < m->prompt + tokens);
    specdec_tokens(m->e, &text, &m->count);
    m->count = specdec__min_int(m->count, m->prompt + tokens);
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
            if (!measure_write(m, specdec__min_int(plan->tokens, left), rates[t].temperature, (uint64_t)(i + 1) * 1000 + (uint64_t)t) ||
                !measure_rows(m, &rates[t], plan->draws, plan->all))
                return 0;
        }
        if (ready > 0 && !open)
            break;
    }
    program_progress(NULL, "acceptance", 1, 1);
    return done ? 1 : (program_failed("no prompt leaves room in the context for its answer", ""), 0);
}

/* --- runs ----------------------------------------------------------------------------------------------------------- */

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
    int count;
    specdec_result result;

    measure_rewind(m);
    result = specdec_step(m->e, &text, &count);
    specdec_get_stats(m->e, &before);
    for (now = before; !result; specdec_get_stats(m->e, &now)) {
        if ((tokens && now.tokens - before.tokens >= tokens) || (steps && now.steps - before.steps >= steps) ||
            m->e->count + 2 * MEASURE_NODES > m->e->context)
            break;
        result = specdec_step(m->e, &text, &count);
    }
    run->seconds += now.seconds - before.seconds;
    run->draft_seconds += now.draft_seconds - before.draft_seconds;
    run->tokens += (long)(now.tokens - before.tokens);
    run->steps += (long)(now.steps - before.steps);
    return result && result != SPECDEC_DONE ? measure_failed(m) : 1;
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

/* Median seconds of a step of each width behind the prompt: all widths in turn, so that a slow minute hits all of them. */
static PROGRAM_UNUSED int measure_step_times(measure *m, const int32_t *widths, int count, int repeats, double *seconds)
{
    static double times[16][32];
    specdec__context *c = &m->e->target;
    int i, w;

    measure_rewind(m);
    for (i = 0; i < MEASURE_NODES; i++) {
        c->tokens[i] = (100 + i * 7) % m->vocab;
        c->parents[i] = i - 1;
    }
    for (i = 0; i < repeats; i++)
        for (w = 0; w < count; w++) {
            specdec__batch batch = specdec__forward_batch(c, 0, widths[w]);
            double start = program_seconds();

            if (specdec__forward(c, &batch, &m->e->error))
                return measure_failed(m);
            times[w][i] = program_seconds() - start;
        }
    for (w = 0; w < count; w++)
        seconds[w] = measure_median(times[w], repeats);
    measure_rewind(m);
    return 1;
}
#endif
