/* test_constrained.c - sequences that obey a constraint: answers match, speculation changes nothing, and no distribution. */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "check.h"
#include "gguf_maker.h"
#include "machine.h"
#include "statistics.h"

enum { CONTEXT_TOKENS = 160, KINDS = 6, SLOTS = 3, ROOM = 24 << 20 };

static int quick;
static file target, noisy, heads, layer, large;

/* --- constraints ---------------------------------------------------------------------------------------------------- */

static const char *const words[] = {"yes", "no", "perhaps", "nobody knows", "none of these"};

static const specdec_constraint_source sources[KINDS] = {
    {SPECDEC_CONSTRAINT_SCHEMA, "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":9},\"kind\":{\"enum\":[\"small\",\"large\",\"larger\"]},"
     "\"count\":{\"type\":\"integer\",\"minimum\":3,\"maximum\":250}},\"required\":[\"name\",\"kind\",\"count\"],\"additionalProperties\":false}",
     SPECDEC_WHOLE_STRING, NULL, 0, NULL, 1},
    {SPECDEC_CONSTRAINT_GBNF, "root ::= \"The \" (animal | \"old \" animal) \" \" verb (\" and \" verb)* \".\"\nanimal ::= \"cat\" | \"cow\" | \"crow\"\nverb ::= \"sings\" | \"sits\" | [a-c]{1,12}",
     SPECDEC_WHOLE_STRING, NULL, 0, NULL, 0},
    {SPECDEC_CONSTRAINT_REGEX, "[0-9]{4}-(0[1-9]|1[0-2])( at noon| at night)?", SPECDEC_WHOLE_STRING, NULL, 0, NULL, 0},
    {SPECDEC_CONSTRAINT_CHOICES, NULL, 0, words, 5, NULL, 0},
    {SPECDEC_CONSTRAINT_SCHEMA, "{\"type\":\"array\",\"items\":{\"type\":[\"boolean\",\"null\"]},\"maxItems\":12}", SPECDEC_WHOLE_STRING, NULL, 0, NULL, 0},
    {SPECDEC_CONSTRAINT_REGEX, "(a[^ ]|b){3,40}", SPECDEC_WHOLE_STRING, NULL, 0, NULL, 0},
};

static const specdec_constraint *constraints[KINDS]; /* each in memory of its own */
static void *constraint_memory[KINDS];

static void compile_all(void)
{
    unsigned char *room = (unsigned char *)malloc(ROOM);
    const specdec_constraint *c;
    int i;

    for (i = 0; i < KINDS; i++) {
        CHECK_EQUAL_INT(specdec_constraint_init(&c, &sources[i], room, ROOM, &failure), SPECDEC_OK);
        constraint_memory[i] = malloc(specdec_constraint_bytes(c));
        memcpy(constraint_memory[i], c, specdec_constraint_bytes(c));
        constraints[i] = (const specdec_constraint *)constraint_memory[i];
    }
    free(room);
}

/* How much of bytes[length] a constraint takes; *complete: whether the text is whole then. */
static size_t taken(const specdec_constraint *c, const char *bytes, size_t length, int *complete)
{
    specdec_constraint_state state;
    size_t count;

    specdec_constraint_begin(c, &state, sizeof state);
    count = specdec_constraint_advance(c, &state, bytes, length);
    *complete = specdec_constraint_complete(c, &state);
    return count;
}

/* Every third token is forbidden, another third of them behind each token. */
static void thirds(void *user_data, const int32_t *tokens, int count, uint32_t *mask)
{
    int i;

    for (i = (count ? (int)tokens[count - 1] : 0) % 3; i < 301; i += 3)
        if (i != 2 || *(const int *)user_data)
            mask[i / 32] &= ~(1u << i % 32);
}

static int forbids_end;

/* --- engines ---------------------------------------------------------------------------------------------------------- */

static specdec_config config_of(int drafting, specdec_rule rule)
{
    specdec_config c;

    memset(&c, 0, sizeof c);
    c.target = source_of(&target);
    c.threads = 1;
    c.context = CONTEXT_TOKENS;
    c.constraints = 1;
    c.drafting = (specdec_drafting)drafting;
    c.rule = rule;
    if (drafting == SPECDEC_DRAFT_AUTO || drafting == SPECDEC_DRAFT_MODEL)
        c.draft = source_of(&noisy);
    if (drafting == SPECDEC_DRAFT_HEADS)
        c.heads = source_of(&heads);
    return c;
}

/* Every drafter, EAGLE-3 behind the others. */
static specdec_config turn_of(int turn)
{
    specdec_config c = config_of(turn % (SPECDEC_DRAFT_COUNT + 1) == SPECDEC_DRAFT_COUNT ? SPECDEC_DRAFT_HEADS
                                                                                       : turn % (SPECDEC_DRAFT_COUNT + 1),
                                 SPECDEC_RULE_COUPLED);

    if (turn % (SPECDEC_DRAFT_COUNT + 1) == SPECDEC_DRAFT_COUNT)
        c.heads = source_of(&layer);
    if (c.drafting == SPECDEC_DRAFT_TRIFORCE)
        c.retrieval = 16;
    if (turn % 3 == 0)
        c.async = 1;
    return c;
}

/* Settings by number. */
static specdec_settings settings_of(int i)
{
    specdec_settings s;

    memset(&s, 0, sizeof s);
    s.sampling.temperature = i % 3 ? 1.0f : 0;
    s.sampling.seed = (uint64_t)(i / 7);
    s.sampling.top_k = i % 5 == 1 ? 20 : 0;
    s.sampling.top_p = i % 5 == 2 ? 0.8f : 0;
    s.sampling.min_p = i % 5 == 3 ? 0.05f : 0;
    s.sampling.repetition_penalty = i % 4 == 3 ? 1.3f : 0;
    if (i % (KINDS + 1) < KINDS)
        s.constraint = constraints[i % (KINDS + 1)];
    if (i % (KINDS + 1) == KINDS || i % 11 == 0) {
        s.allow = i % (KINDS + 1) == KINDS ? thirds : NULL;
        s.allow_data = &forbids_end;
    }
    return s;
}

/* --- answers ---------------------------------------------------------------------------------------------------------- */

typedef struct answer {
    char bytes[4096];
    size_t length;
    specdec_stop stop;
} answer;

/* The whole answer to a prompt of a few tokens. */
static specdec_result ask(specdec *t, const specdec_settings *s, int prompt, answer *a)
{
    int32_t tokens[9];
    specdec_text piece;
    specdec_result result;
    int i;

    for (i = 0; i < 9; i++)
        tokens[i] = 3 + (prompt * 31 + i * i * 7) % 290;
    a->length = 0;
    if ((result = specdec_rewind(t, 0)) != SPECDEC_OK || (result = specdec_set(t, s)) != SPECDEC_OK ||
        (result = specdec_prompt_tokens(t, tokens, 9)) != SPECDEC_OK)
        return result;
    do {
        result = specdec_next(t, &piece);
        if (a->length + piece.length < sizeof a->bytes)
            memcpy(a->bytes + a->length, piece.bytes, piece.length);
        a->length += piece.length;
    } while (!result);
    a->stop = specdec_stopped(t, NULL);
    return result == SPECDEC_DONE ? SPECDEC_OK : result;
}

static void test_answers(void)
{
    const int asks = quick ? 40 : 200;
    specdec_config c = config_of(SPECDEC_DRAFT_OFF, SPECDEC_RULE_COUPLED);
    int turn, i, ended = 0, closed = 0, complete;
    answer plain, speculated;
    machine own, oracle;

    TEST("answers obey: each is complete where it ends by itself, and the beginning of one that is where it is cut");
    if (!open_machine(&oracle, &c))
        return;
    for (i = 0; i < asks; i++) {
        const specdec_settings s = settings_of(i);
        size_t count;

        CHECK_EQUAL_INT(ask(oracle.first, &s, i, &plain), SPECDEC_OK);
        if (!s.constraint)
            continue;
        count = taken(s.constraint, plain.bytes, plain.length, &complete);
        CHECK_EQUAL_INT((int)count, (int)plain.length);
        CHECK(complete || plain.stop == SPECDEC_STOP_CONTEXT);
        ended += plain.stop == SPECDEC_STOP_END;
        closed += plain.stop == SPECDEC_STOP_CONSTRAINT;
    }
    CHECK(ended > 0 && closed > 0);
    TEST("greedy and coupled: an answer that obeys is that of plain decoding, byte for byte, whoever drafts");
    for (turn = 2; turn <= SPECDEC_DRAFT_COUNT + 1; turn++) {
        long long steps = 0, tokens = 0;
        specdec_stats stats;

        c = turn_of(turn);
        if (!open_machine(&own, &c))
            continue;
        for (i = 0; i < asks; i++) {
            const specdec_settings s = settings_of(i);

            CHECK_EQUAL_INT(ask(oracle.first, &s, i, &plain), SPECDEC_OK);
            CHECK_EQUAL_INT(ask(own.first, &s, i, &speculated), SPECDEC_OK);
            CHECK(plain.length == speculated.length && !memcmp(plain.bytes, speculated.bytes, plain.length));
            CHECK_EQUAL_INT(plain.stop, speculated.stop);
        }
        specdec_get_stats(own.first, &stats);
        steps = stats.steps;
        tokens = stats.tokens;
        printf("drafter %d: %.2f tokens a step\n", (int)c.drafting, (double)tokens / (double)steps);
        close_machine(&own);
    }
    close_machine(&oracle);
}

/* A model whose output matrix may lie in planes: 2,000 tokens. */
static file large_model(void)
{
    maker_recipe r;

    memset(&r, 0, sizeof r);
    r.seed = 15;
    r.vocab = 2000;
    r.embedding = 64;
    r.layers = 1;
    r.output_type = 9; /* Q8_0 */
    r.may_end = 1;
    return random_file(&r);
}

static void test_bounds(void)
{
    static const int draftings[] = {SPECDEC_DRAFT_OFF, SPECDEC_DRAFT_FORCED, SPECDEC_DRAFT_NGRAM};
    const int asks = quick ? 60 : 300;
    specdec_config c = config_of(SPECDEC_DRAFT_OFF, SPECDEC_RULE_COUPLED);
    machine own, oracle;
    answer plain, bounded;
    size_t k;
    int i;

    TEST("bounds in place of logits change no answer that obeys, greedy or by noise");
    c.target = source_of(&large);
    c.screening = SPECDEC_SCREENING_OFF;
    if (!open_machine(&oracle, &c))
        return;
    for (k = 0; k < sizeof draftings / sizeof *draftings; k++) {
        c.drafting = (specdec_drafting)draftings[k];
        c.screening = SPECDEC_SCREENING_ALWAYS;
        if (!open_machine(&own, &c))
            break;
        for (i = 0; i < asks; i++) {
            specdec_settings s = settings_of(i);

            s.max_tokens = 40;
            s.min_tokens = i % 13 == 12 ? 5 : 0;
            s.ignore_end = i % 17 == 16;
            if (i % 2)
                s.sampling.repetition_penalty = s.sampling.top_p = s.sampling.min_p = 0;
            CHECK_EQUAL_INT(ask(oracle.first, &s, i, &plain), SPECDEC_OK);
            CHECK_EQUAL_INT(ask(own.first, &s, i, &bounded), SPECDEC_OK);
            CHECK(plain.length == bounded.length && !memcmp(plain.bytes, bounded.bytes, plain.length));
            CHECK_EQUAL_INT(plain.stop, bounded.stop);
        }
        printf("drafter %d: bounds of %lld rows, of which %lld steps were read whole\n", draftings[k], (long long)own.first->engine->target.screen.rows,
               (long long)own.first->engine->target.screen.rows_whole);
        CHECK(own.first->engine->target.screen.rows > own.first->engine->target.screen.rows_whole);
        close_machine(&own);
    }
    TEST("steps whose next token is forced leave the output matrix out, also where nothing is screened");
    CHECK_EQUAL_INT((int)oracle.first->engine->target.screen.rows, 0);
    CHECK(oracle.first->engine->target.screen.saved > 0);
    close_machine(&oracle);
}

/* --- schedules -------------------------------------------------------------------------------------------------------- */

/* A sequence, and where its answer began. */
typedef struct slot {
    specdec *text;
    specdec_settings settings;
    int from, prompted;
} slot;

typedef struct world {
    machine own, other; /* other: saved sequences go there and back */
    slot slots[SLOTS];
    uint64_t random;
    int saves, slides;
} world;

static machine alone;

static int dice(world *w, int n) { return (int)(maker_random(&w->random) % (uint64_t)n); }

/* What a sequence has written behind its prompt is what plain decoding writes. */
static void check_slot(slot *s)
{
    const int32_t *tokens;
    int count;

    specdec_tokens(s->text, &tokens, &count);
    if (s->prompted)
        check_written(&alone, tokens, s->from, count, &s->settings);
}

/* A sequence is saved, and loaded into another engine; from there it comes back. */
static void send_around(world *w, slot *s)
{
    static const int32_t some[] = {9, 8, 7};
    specdec_settings none, other;
    size_t bytes = 0;
    void *data;

    if (!s->prompted || specdec_save(s->text, NULL, 0, &bytes))
        return;
    data = malloc(bytes);
    CHECK_EQUAL_INT(specdec_save(s->text, data, bytes, &bytes), SPECDEC_OK);
    memset(&none, 0, sizeof none);
    CHECK_EQUAL_INT(specdec_rewind(w->other.first, 0), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_set(w->other.first, &none), SPECDEC_OK);
    if (s->settings.constraint) {
        other = s->settings;
        other.constraint = constraints[s->settings.constraint == constraints[0]];
        CHECK_EQUAL_INT(specdec_load(w->other.first, data, bytes), SPECDEC_ERROR_MISMATCH);
        CHECK_EQUAL_INT(specdec_set(w->other.first, &other), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_load(w->other.first, data, bytes), SPECDEC_ERROR_MISMATCH);
    }
    CHECK_EQUAL_INT(specdec_set(w->other.first, &s->settings), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_prompt_tokens(w->other.first, some, 3), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_load(w->other.first, data, bytes), SPECDEC_OK);
    if (dice(w, 2)) {
        const int32_t *tokens;
        int count, i;

        for (i = 0; i < 3; i++)
            specdec_step(w->other.first, &tokens, &count);
        free(data);
        CHECK_EQUAL_INT(specdec_save(w->other.first, NULL, 0, &bytes), SPECDEC_OK);
        data = malloc(bytes);
        CHECK_EQUAL_INT(specdec_save(w->other.first, data, bytes, &bytes), SPECDEC_OK);
    }
    CHECK_EQUAL_INT(specdec_load(s->text, data, bytes), SPECDEC_OK);
    w->saves++;
    free(data);
}

static void act(world *w)
{
    slot *s = &w->slots[dice(w, SLOTS)], *of = &w->slots[dice(w, SLOTS)];
    const int32_t *tokens;
    int32_t prompt[24];
    specdec_text piece;
    specdec_result result = SPECDEC_OK;
    int count, i, n = 1 + dice(w, 20), what = dice(w, 16);

    if (what < 2 && s != of && of->prompted) { /* a copy */
        check_slot(s);
        specdec_close(s->text);
        *s = *of;
        CHECK_EQUAL_INT(specdec_fork(of->text, &s->text), SPECDEC_OK);
    } else if (what < 5) { /* another answer */
        check_slot(s);
        if (dice(w, 3))
            CHECK_EQUAL_INT(specdec_rewind(s->text, 0), SPECDEC_OK);
        s->settings = settings_of(dice(w, 1000));
        specdec_set(s->text, &s->settings);
        for (i = 0; i < n; i++)
            prompt[i] = 3 + dice(w, 290);
        specdec_tokens(s->text, &tokens, &count);
        result = specdec_prompt_tokens(s->text, prompt, n);
        s->prompted = !result;
        s->from = count + n;
    } else if (what < 6 && s->prompted) { /* an answer anew, or from somewhere inside of it on */
        check_slot(s);
        specdec_tokens(s->text, &tokens, &count);
        s->from += dice(w, 2) * dice(w, count - s->from + 1);
        CHECK_EQUAL_INT(specdec_rewind(s->text, s->from), SPECDEC_OK);
    } else if (what < 7 && s->prompted) { /* other settings from here on */
        check_slot(s);
        specdec_tokens(s->text, &tokens, &s->from);
        s->settings = settings_of(dice(w, 1000));
        CHECK_EQUAL_INT(specdec_set(s->text, &s->settings), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_rewind(s->text, s->from), SPECDEC_OK); /* an answer may begin with the same constraint */
    } else if (what < 8) {
        specdec_cancel(s->text);
    } else if (what < 9) {
        send_around(w, s);
    } else if (what < 12) {
        result = specdec_work(s->text);
        CHECK(result == SPECDEC_OK || result == SPECDEC_DONE);
    } else {
        for (i = 0; i < 1 + n / 3 && !result; i++)
            result = what % 2 ? specdec_next(s->text, &piece) : specdec_step(s->text, &tokens, &count);
    }
}

static void test_schedules(void)
{
    const int schedules = quick ? 27 : 135;
    specdec_config c;
    int i, k, saves = 0;

    TEST("sequences with different constraints are each what it is alone: forks, saves, rewinds, cancellations, settings");
    c = config_of(SPECDEC_DRAFT_OFF, SPECDEC_RULE_COUPLED);
    if (!open_machine(&alone, &c))
        return;
    for (i = 0; i < schedules; i++) {
        world w;

        memset(&w, 0, sizeof w);
        w.random = (uint64_t)i + 1 + check_seed() * 1000003;
        c = turn_of(i);
        CHECK(open_machine(&w.other, &c));
        c.sequences = SLOTS;
        CHECK(open_machine(&w.own, &c));
        w.slots[0].text = w.own.first;
        for (k = 1; k < SLOTS; k++)
            CHECK_EQUAL_INT(specdec_open(w.own.first, &w.slots[k].text), SPECDEC_OK);
        for (k = 0; k < 200; k++)
            act(&w);
        for (k = 0; k < SLOTS; k++)
            check_slot(&w.slots[k]);
        saves += w.saves;
        close_machine(&w.own);
        close_machine(&w.other);
    }
    CHECK(saves > 0);
    close_machine(&alone);
}

/* --- what slides ------------------------------------------------------------------------------------------------------ */

static void test_slide(void)
{
    static const specdec_constraint_source source = {SPECDEC_CONSTRAINT_REGEX, "(abc)*d", SPECDEC_WHOLE_STRING, NULL, 0, NULL, 0};
    static const specdec_bias biases[] = {{3 + 'd', -90}, {266, -90}, {267, -90}}; /* so that it goes on */
    void *room = malloc(ROOM);
    const specdec_constraint *constraint = NULL;
    specdec_config c = config_of(SPECDEC_DRAFT_AUTO, SPECDEC_RULE_COUPLED);
    specdec_settings s;
    specdec_stats stats;
    answer a, b;
    size_t bytes;
    int complete;
    machine m;

    TEST("an answer obeys beyond its context: what has slid out of that still counts");
    CHECK_EQUAL_INT(specdec_constraint_init(&constraint, &source, room, ROOM, &failure), SPECDEC_OK);
    memset(&s, 0, sizeof s);
    s.constraint = constraint;
    s.slide = 4;
    s.max_tokens = 700;
    s.sampling.biases = biases;
    s.sampling.bias_count = 3;
    c.context = 64;
    if (!open_machine(&m, &c))
        return;
    CHECK_EQUAL_INT(ask(m.first, &s, 1, &a), SPECDEC_OK);
    specdec_get_stats(m.first, &stats);
    CHECK(stats.slid > 0);
    CHECK(a.length > 150);
    CHECK_EQUAL_INT((int)taken(constraint, a.bytes, a.length, &complete), (int)a.length);
    CHECK_EQUAL_INT(specdec_save(m.first, NULL, 0, &bytes), SPECDEC_ERROR_UNSUPPORTED);
    close_machine(&m);
    c.drafting = SPECDEC_DRAFT_OFF;
    if (!open_machine(&m, &c))
        return;
    CHECK_EQUAL_INT(ask(m.first, &s, 1, &b), SPECDEC_OK);
    CHECK(a.length == b.length && !memcmp(a.bytes, b.bytes, a.length));
    close_machine(&m);
    free(room);
}

/* --- distributions ---------------------------------------------------------------------------------------------------- */

enum { VOCAB = 301, LETTERS = 40, PROMPT = 5 };
static const int32_t prompt_tokens[PROMPT] = {1, 270, 281, 264, 290};

/* The letters a to t: each is a byte token and a word. */
static int32_t letter(int i) { return i < 20 ? 3 + 'a' + i : 261 + 2 * (i - 20); }

/* The place of a token among them; -1: it is none of them. */
static int letter_of(int32_t token)
{
    int i;

    for (i = 0; i < LETTERS; i++)
        if (letter(i) == token)
            return i;
    return -1;
}

/* p[LETTERS] becomes what plain sampling draws from, by a row of logits, when nothing but letters may follow. */
static void masked(const float *logits, const specdec_sampling *s, double *p)
{
    double best = -1e30, total = 0;
    int i, k;

    for (i = 0; i < LETTERS; i++) {
        int above = 0;

        for (k = 0; k < LETTERS; k++)
            above += logits[letter(k)] > logits[letter(i)];
        p[i] = !s->top_k || above < s->top_k ? (double)logits[letter(i)] / (double)s->temperature : -1e30;
        best = p[i] > best ? p[i] : best;
    }
    for (i = 0; i < LETTERS; i++)
        total += p[i] = p[i] > -1e29 ? exp(p[i] - best) : 0;
    for (i = 0; i < LETTERS; i++)
        p[i] /= total;
}

/* p[LETTERS * LETTERS]: the probabilities of two letters, with the word between them or nothing. */
static void enumerate(specdec *t, const specdec_sampling *s, const int32_t *between, int count, double *p)
{
    static float rows[4 * VOCAB];
    static const int32_t parents[3] = {-1, 0, 1};
    double first[LETTERS];
    int32_t nodes[3];
    int i, k;

    CHECK_EQUAL_INT(specdec_logits(t, NULL, NULL, 0, rows), SPECDEC_OK);
    masked(rows, s, first);
    for (i = 0; i < LETTERS; i++) {
        nodes[0] = letter(i);
        for (k = 0; k < count; k++)
            nodes[k + 1] = between[k];
        CHECK_EQUAL_INT(specdec_logits(t, nodes, parents, count + 1, rows), SPECDEC_OK);
        masked(rows + (count + 1) * VOCAB, s, p + i * LETTERS);
        for (k = 0; k < LETTERS; k++)
            p[i * LETTERS + k] *= first[i];
    }
}

/* The probability that draws of an engine differ so much from what was enumerated, or more. */
static double drawn(specdec *t, const double *p, int between, long draws)
{
    static long counts[LETTERS * LETTERS];
    long i;

    memset(counts, 0, sizeof counts);
    for (i = 0; i < draws; i++) {
        const int32_t *tokens;
        int count;

        specdec_rewind(t, PROMPT);
        t->settings.sampling.seed = (uint64_t)i + 77;
        while (!specdec_step(t, &tokens, &count))
            continue;
        specdec_tokens(t, &tokens, &count);
        if (count != PROMPT + 2 + between || letter_of(tokens[PROMPT]) < 0 || letter_of(tokens[count - 1]) < 0)
            return -1;
        counts[letter_of(tokens[PROMPT]) * LETTERS + letter_of(tokens[count - 1])]++;
    }
    return statistics_p_value(counts, p, LETTERS * LETTERS);
}

static void test_distributions(void)
{
    static const specdec_constraint_source shapes[2] = {
        {SPECDEC_CONSTRAINT_REGEX, "[a-t][a-t]", SPECDEC_WHOLE_STRING, NULL, 0, NULL, 0},
        {SPECDEC_CONSTRAINT_REGEX, "[a-t]uk[a-t]", SPECDEC_WHOLE_STRING, NULL, 0, NULL, 0}};
    static const int32_t between[2] = {3 + 'u', 261 + 2 * 10};
    static double p[LETTERS * LETTERS];
    void *room = malloc(ROOM);
    int rule, shape, filter, way;

    TEST("every rule draws from the constrained, renormalised distribution: by exact enumeration, trees of 8, forced tokens");
    for (shape = 0; shape < 2; shape++) {
        const specdec_constraint *constraint = NULL;

        CHECK_EQUAL_INT(specdec_constraint_init(&constraint, &shapes[shape], room, ROOM, &failure), SPECDEC_OK);
        for (rule = 0; rule < SPECDEC_RULE_GREEDY; rule++) {
            for (way = 0; way < 4; way++) { /* the draft model alone, always the same tree; or all drafters */
                specdec_config c = config_of(way / 2 ? SPECDEC_DRAFT_AUTO : SPECDEC_DRAFT_MODEL, (specdec_rule)rule);
                specdec_stats stats;
                machine m;
                double found;

                filter = way % 2;
                c.tree_size = 8;
                c.policy = SPECDEC_POLICY_STATIC;
                c.settings.constraint = constraint;
                c.settings.sampling.temperature = 0.8f;
                c.settings.sampling.top_k = filter ? 12 : 0;
                if (!open_machine(&m, &c))
                    return;
                CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, prompt_tokens, PROMPT), SPECDEC_OK);
                enumerate(m.first, &c.settings.sampling, between, 2 * shape, p);
                found = drawn(m.first, p, 2 * shape, statistics_draws() / 4);
                specdec_get_stats(m.first, &stats);
                printf("rule %d, %s, %s, top-k %d: p %.4f, %lld of %lld draft tokens accepted\n", rule, shapes[shape].text,
                       way / 2 ? "all drafters" : "the draft model", (int)c.settings.sampling.top_k, found, (long long)stats.accepted, (long long)stats.drafted);
                CHECK(found > 1e-5);
                CHECK(stats.accepted > 0 || way > 1);
                close_machine(&m);
            }
        }
    }
    free(room);
}

/* --- what is refused ---------------------------------------------------------------------------------------------------- */

static void test_refusals(void)
{
    specdec_config c = config_of(SPECDEC_DRAFT_OFF, SPECDEC_RULE_COUPLED);
    unsigned char rubbish[256] = {0};
    specdec_settings s, before;
    size_t with, without;
    machine m;

    TEST("engines without constraints pay nothing and refuse them; what is no constraint is refused");
    CHECK_EQUAL_INT(specdec_memory_needed(&c, &with, &failure), SPECDEC_OK);
    c.constraints = 0;
    CHECK_EQUAL_INT(specdec_memory_needed(&c, &without, &failure), SPECDEC_OK);
    CHECK(with > without + 301 * 20);
    c.settings.constraint = constraints[0];
    CHECK_EQUAL_INT(specdec_memory_needed(&c, &without, &failure), SPECDEC_OK);
    CHECK(with == without);
    c.settings.constraint = (const specdec_constraint *)(const void *)rubbish;
    refused("rubbish", &c, SPECDEC_ERROR_ARGUMENT, "no constraint");
    c.settings.constraint = NULL;
    if (!open_machine(&m, &c))
        return;
    memset(&s, 0, sizeof s);
    s.constraint = constraints[0];
    CHECK_EQUAL_INT(specdec_set(m.first, &s), SPECDEC_ERROR_ARGUMENT);
    CHECK(strstr(specdec_error_text(m.first), "config.constraints") != NULL);
    specdec_get_settings(m.first, &before);
    CHECK(!before.constraint);
    close_machine(&m);
}

/* --- labels ------------------------------------------------------------------------------------------------------------ */

static void test_scores(void)
{
    static const char *const labels[] = {" a", "bc", "a", "hello you"}, *const empty[] = {"a", ""};
    static float rows[64 * VOCAB];
    specdec_config c = config_of(SPECDEC_DRAFT_OFF, SPECDEC_RULE_COUPLED);
    char memory[1 << 14];
    double scores[4];
    int i, k, n, before;
    machine m;

    TEST("scores of labels are sums of log-probabilities, whatever the other labels are, and change nothing");
    if (!open_machine(&m, &c))
        return;
    CHECK_EQUAL_INT(specdec_score(m.first, labels, 4, scores), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, prompt_tokens, PROMPT), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_score(m.first, empty, 2, scores), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_score(m.first, labels, 4, scores), SPECDEC_OK);
    for (i = 0; i < 4; i++) {
        int32_t tokens[32], parents[32];
        double sum = 0;

        CHECK_EQUAL_INT(specdec_tokenize(specdec_get_model(m.first), labels[i], SPECDEC_WHOLE_STRING, SPECDEC_TOKENIZE_INSIDE, tokens, 32, &n,
                                         memory, sizeof memory, &failure), SPECDEC_OK);
        for (k = 0; k < n; k++)
            parents[k] = k - 1;
        CHECK_EQUAL_INT(specdec_logits(m.first, tokens, parents, n, rows), SPECDEC_OK);
        for (k = 0; k < n; k++) {
            double total = 0;
            int j;

            for (j = 0; j < VOCAB; j++)
                total += exp((double)rows[k * VOCAB + j]);
            sum += (double)rows[k * VOCAB + tokens[k]] - log(total);
        }
        CHECK(fabs(sum - scores[i]) < 1e-4);
    }
    specdec_tokens(m.first, NULL, &before);
    CHECK_EQUAL_INT(before, PROMPT);
    close_machine(&m);
}

int main(void)
{
    quick = getenv("SPECDEC_QUICK") != NULL;
    target = random_predicting(1, 1);
    noisy = random_model(1, 0.25f, 1);
    heads = random_heads();
    layer = random_layer();
    compile_all();
    large = large_model();
    test_answers();
    test_bounds();
    test_schedules();
    test_slide();
    test_distributions();
    test_refusals();
    test_scores();
    return check_report("test_constrained");
}
