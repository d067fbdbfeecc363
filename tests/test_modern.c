/* test_modern.c - the models and drafters of ../shared/modern: random weights with exact logits, of the architectures, mechanisms and
   types of 2026. Each model is run at several widths, thread counts and on every instruction set, and writes text with and without
   n-grams; drafters are compared with their reference rows and chains.
   test_modern [FOLDER] [NAME]    all cases of a folder that is laid out like ../shared/modern (a path with a "/"; none: that folder),
   or those whose names begin so. SPECDEC_QUICK=1 shortens. */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "check.h"
#include <dirent.h>
#include <math.h>

#define CASES 512 /* files of a folder */
#define ROOM 512 /* tokens of a context */
#define TEXT 96  /* tokens of a text that is written */

/* Beginnings of the names of files that must be read: add those of a row here. */
static const char *const read_names[] = {"apertus", "arcee", "bailingmoe2", "cohere2", "deepseek2", "ernie4_5-moe", "gemma3n", "gemma4", "glm4moe", "gpt-oss-f32", "gpt-oss-q8_0",
                                         "gpt-oss-fused", "hunyuan-dense", "nemotron_h", "qwen2moe", "qwen3next", "lfm2moe", "seed_oss"};

static specdec_error failure;
static int quick;
static char folder[400]; /* where the cases lie */

/* One way to run a model. */
typedef struct way {
    const char *isa;
    int threads, width;
    specdec_drafting drafting;
} way;

/* A model in memory, and the tokens whose logits are known. */
typedef struct subject {
    char name[64];
    unsigned char *data;
    size_t size;
    int32_t tokens[256];
    int count;
} subject;

/* Reads a file of the folder; NULL: it is not there. The caller frees it. */
static unsigned char *read_case(const char *name, const char *suffix, size_t *size)
{
    char path[512];

    *size = 0;
    snprintf(path, sizeof path, "%s/%s%s", folder, name, suffix);
    return check_read_file(path, size);
}

/* The same of little-endian floats; *count: how many. */
static float *read_floats(const char *name, const char *suffix, size_t *count)
{
    unsigned char *data = read_case(name, suffix, count);
    size_t i;

    *count /= 4;
    for (i = 0; data && i < *count; i++) {
        const float value = specdec__load_f32(data + 4 * i);

        memcpy(data + 4 * i, &value, 4);
    }
    return (float *)(void *)data;
}

/* Token ids of a case: the 200 of the folder, or the 48 that lie in it, beside it or in ../shared. */
static void read_tokens(subject *s, int many)
{
    char path[512], *at, *end;
    size_t size = 0;
    unsigned char *text = read_case(many ? "tokens200" : "tokens", ".txt", &size);

    if (!text && !many)
        text = read_case("../conformance/tokens", ".txt", &size);
    if (!text && !many)
        text = check_read_file(check_shared(path, sizeof path, "conformance/tokens.txt"), &size);
    s->count = 0;
    for (at = (char *)text; at && s->count < 256; at = end) {
        long id = strtol(at, &end, 10);

        if (end == at)
            break;
        s->tokens[s->count++] = (int32_t)id;
    }
    free(text);
}

/* An engine that runs a model in some way, with a draft or NULL; NULL: it is refused, as `failure` says. The caller frees *block. */
static specdec *open_pair(const subject *s, const subject *draft, const way *w, void **block)
{
    specdec_config c;
    specdec *engine = NULL;
    size_t bytes;

    memset(&c, 0, sizeof c);
    c.target.data = s->data;
    c.target.size = s->size;
    c.context = ROOM;
    c.batch = w->width;
    c.threads = w->threads;
    c.kv = "f32";
    c.isa = w->isa;
    c.drafting = w->drafting;
    if (draft) {
        c.draft.data = draft->data;
        c.draft.size = draft->size;
        c.tree_size = c.tree_depth = 32;
    }
    *block = NULL;
    if (specdec_memory_needed(&c, &bytes, &failure))
        return NULL;
    *block = malloc(bytes);
    if (!*block || specdec_init(&engine, &c, *block, bytes, &failure))
        return NULL;
    return engine;
}

static specdec *open_model(const subject *s, const way *w, void **block) { return open_pair(s, NULL, w, block); }

/* Rows of logits (count, vocab) of a subject's tokens; NULL: it is refused. */
static float *rows_of(const subject *s, const way *w, int *vocab)
{
    void *block;
    specdec *engine = open_model(s, w, &block);
    specdec_info info;
    float *rows = NULL;
    int i, n;

    if (engine) {
        specdec_get_info(engine, &info);
        *vocab = info.vocabulary;
        rows = (float *)malloc((size_t)s->count * (size_t)*vocab * sizeof *rows);
        for (i = 0; rows && i < s->count; i += n) {
            n = s->count - i < w->width ? s->count - i : w->width;
            CHECK_EQUAL_INT(specdec_prompt_logits(engine, s->tokens + i, n, rows + (size_t)i * (size_t)*vocab), SPECDEC_OK);
        }
        specdec_deinit(engine);
    }
    free(block);
    return rows;
}

/* The log of the sum of exp of a row. */
static double log_total(const float *row, int vocab)
{
    double high = -1e300, sum = 0;
    int i;

    for (i = 0; i < vocab; i++)
        high = fmax(high, (double)row[i]);
    for (i = 0; i < vocab; i++)
        sum += exp((double)row[i] - high);
    return high + log(sum);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The mean KL of rows, but for the `spared` largest ones, as far as they are ten times the middle one; *left: how many these are. */
static double mean_kl(const float *exact, const float *ours, int count, int vocab, int spared, int *left)
{
    double kl = 0, rows[256] = {0}, middle;
    int i, j;

    for (i = 0; i < count; i++, exact += vocab, ours += vocab) {
        const double a = log_total(exact, vocab), b = log_total(ours, vocab);

        for (j = 0; j < vocab; j++)
            rows[i] += exp((double)exact[j] - a) * ((double)exact[j] - a - (double)ours[j] + b);
    }
    qsort(rows, (size_t)count, sizeof *rows, by_size);
    middle = rows[count / 2];
    for (*left = 0; *left < spared && rows[count - 1 - *left] > 10 * middle; ++*left)
        continue;
    for (i = 0; i < count - *left; i++)
        kl += rows[i] / count;
    return kl;
}

/* Whether a model's file holds a tensor whose name ends so. */
static int holds(const subject *s, const char *ending)
{
    const size_t length = strlen(ending);
    size_t i;

    for (i = 0; i + length <= s->size; i++)
        if (!memcmp(s->data + i, ending, length))
            return 1;
    return 0;
}

/* In mixtures of experts a router's two best scores at the edge of a choice can be closer than what quantised activations lose before it
   (gaps of .01 to 2.8 times the mean error of a score, measured): then a row goes through another expert, and its KL is ten to a hundred
   times that of others. The peer's rows are close elsewhere. So two such rows of a quantised mixture do not count. */
/* Compares a subject's rows with the exact ones of a file, if there is one. */
static void check_exact(const subject *s, const float *rows, int vocab, const char *suffix, double limit)
{
    const int spared = strstr(s->name, "-f32") || !holds(s, "ffn_gate_inp.weight") ? 0 : 2;
    int left = 0;
    size_t count = 0;
    float *exact = read_floats(s->name, suffix, &count);
    double kl;

    if (!exact)
        return;
    TEST("mean KL of every modern model is at most 1e-8 in F32 (1e-5 with GELU), else no more than five percent above the peer's");
    CHECK_EQUAL_INT(count, (size_t)s->count * (size_t)vocab);
    if (count == (size_t)s->count * (size_t)vocab) {
        kl = mean_kl(exact, rows, s->count, vocab, spared, &left);
        printf("  %s%.*s: mean KL %.3e of %.3e%s\n", s->name, (int)(strlen(suffix) - 4), suffix, kl, limit,
               left ? ", but for the rows where an expert is another" : "");
        CHECK(kl <= limit);
    }
    free(exact);
}

/* Every instruction set, at several widths and with one thread and two: the same bits. */
static void check_ways(const subject *s, const float *expected, int vocab)
{
    static const int widths[] = {1, 3, 8, 48};
    static unsigned turn;
    const char *isa;
    int i, k, other;
    way w;

    TEST("a modern model's logits are the same bits at every width, with one thread and two, on every instruction set");
    memset(&w, 0, sizeof w);
    w.drafting = SPECDEC_DRAFT_OFF;
    for (i = 0; (isa = specdec_isa_name(i)) != NULL; i++)
        for (k = 0; k < 4; k++)
            for (w.threads = 1; w.threads <= 2; w.threads++) {
                float *rows;

                w.isa = isa;
                w.width = widths[k];
                if (turn++ % (quick ? 7 : 1))
                    continue;
                rows = rows_of(s, &w, &other);
                CHECK(rows && !memcmp(rows, expected, (size_t)s->count * (size_t)vocab * 4));
                if (rows && memcmp(rows, expected, (size_t)s->count * (size_t)vocab * 4))
                    fprintf(stderr, "%s: isa %s, width %d, threads %d\n", s->name, isa, w.width, w.threads);
                free(rows);
            }
}

/* The tokens that a model writes behind a prompt; returns how many. */
static int write_text(const subject *s, specdec_drafting drafting, int32_t *out)
{
    const int32_t *tokens;
    way w = {NULL, 1, 48, SPECDEC_DRAFT_OFF};
    void *block;
    specdec *engine;
    int count = 0, all = 0;

    w.drafting = drafting;
    engine = open_model(s, &w, &block);
    CHECK(engine != NULL);
    if (engine) {
        CHECK_EQUAL_INT(specdec_prompt_tokens(engine, s->tokens, s->count < 24 ? s->count : 24), SPECDEC_OK);
        while (all < TEXT && !specdec_step(engine, &tokens, &count)) {
            count = count < TEXT - all ? count : TEXT - all;
            memcpy(out + all, tokens, (size_t)count * sizeof *out);
            all += count;
        }
        specdec_deinit(engine);
    }
    free(block);
    return all;
}

static void check_text(const subject *s)
{
    static const specdec_drafting draftings[] = {SPECDEC_DRAFT_NGRAM, SPECDEC_DRAFT_MTP};
    int32_t plain[TEXT], drafted[TEXT];
    const int count = write_text(s, SPECDEC_DRAFT_OFF, plain);
    int i;

    TEST("a modern model writes the same text with drafts by n-grams, and by its own block that predicts, as without");
    for (i = 0; i < 1 + holds(s, "nextn.eh_proj.weight"); i++)
        CHECK(write_text(s, draftings[i], drafted) == count && !memcmp(plain, drafted, (size_t)count * sizeof *plain));
}

/* Whether a case is one that must be read. */
static int must_be_read(const char *name)
{
    size_t i;

    for (i = 0; i < SPECDEC__COUNT(read_names); i++)
        if (!strncmp(name, read_names[i], strlen(read_names[i])))
            return 1;
    return 0;
}

/* Opens a model of the folder, with the 48 tokens. Returns 0 when it is not there. */
static int open_case(subject *s, const char *name)
{
    memset(s, 0, sizeof *s);
    snprintf(s->name, sizeof s->name, "%s", name);
    s->data = read_case(name, ".gguf", &s->size);
    if (s->data)
        read_tokens(s, 0);
    return s->data != NULL;
}

/* A model, and what the peer loses against its exact logits. */
static void check_case(const char *name, double peer)
{
    const double limit = !strstr(name, "-f32") ? 1.05 * peer : strstr(name, "gemma") ? 1e-5 : 1e-8;
    const way usual = {NULL, 1, 48, SPECDEC_DRAFT_OFF};
    char words[512];
    subject s;
    float *rows;
    int vocab = 0;

    if (!open_case(&s, name))
        return; /* kept back */
    rows = rows_of(&s, &usual, &vocab);
    if (!rows) {
        TEST("models whose architectures are known are read");
        CHECK(!must_be_read(name));
        snprintf(words, sizeof words, "%s: %s", name, failure.text);
        SKIP(words);
        free(s.data);
        return;
    }
    check_exact(&s, rows, vocab, ".f32", limit);
    check_ways(&s, rows, vocab);
    check_text(&s);
    free(rows);
    read_tokens(&s, 1);
    rows = s.count ? rows_of(&s, &usual, &vocab) : NULL;
    CHECK(!s.count || rows);
    if (rows)
        check_exact(&s, rows, vocab, "-200.f32", limit);
    free(rows);
    free(s.data);
}

/* --- drafters --------------------------------------------------------------------------------------------------------- */

/* A drafter's reference: NAME-ref.txt names tokens, NAME-ref.f32 holds rows in the order that its kind has. */
typedef struct reference {
    char name[64];
    const char *text;  /* of the one, */
    const float *next; /* and what has not been read of the other: */
    size_t left;       /* so many floats */
    subject target;
} reference;

/* The next rows of a reference; NULL, and a failed check, when there are fewer. */
static const float *next_rows(reference *r, int rows, int width)
{
    const size_t count = (size_t)rows * (size_t)width;
    const float *at = r->next;

    CHECK(count <= r->left);
    if (count > r->left)
        return NULL;
    r->next += count;
    r->left -= count;
    return at;
}

/* The numbers behind a word of a reference's text, at most `most`. Returns how many. */
static int numbers_behind(const reference *r, const char *word, int32_t *out, int most)
{
    const char *at = strstr(r->text, word);
    int count = 0, used;

    for (at = at ? at + strlen(word) : ""; count < most && sscanf(at, " %d%n", &out[count], &used) == 1; count++)
        at += used;
    return count;
}

#define READ 24  /* tokens of a reference's prompt */
#define CHAIN 4  /* tokens of its greedy chain */

/* Makes a drafter of levels ready to say what follows a text; row 0 of its logits is that of the text's last token. */
static specdec__level_state *ask_drafter(specdec *t)
{
    specdec__drafter *d = &t->engine->drafters[0];
    specdec__level_state *m = (specdec__level_state *)d->state;
    specdec__proposal *p = &d->proposals[0];

    t->engine->pool.cancel = &t->engine->never_cancelled;
    CHECK(d->kind.can_draft(d, 0, t->count));
    specdec__draft_begin_proposal(p, t->tokens, t->count, &t->settings.sampling, SPECDEC_RULE_COUPLED);
    CHECK_EQUAL_INT(m->begin_tree(d, &p->request, &p->drafts, &failure), SPECDEC_OK);
    return m;
}

/* Rows of logits of an MTP block: behind each token of the prompt, then along the chain, whose tokens go to `chain`. */
static void draft_rows(specdec *t, const int32_t *tokens, int32_t last, int vocab, float *rows, int32_t *chain)
{
    specdec__drafter *d = &t->engine->drafters[0];
    specdec__proposal *p = &d->proposals[0];
    const size_t bytes = (size_t)vocab * sizeof *rows;
    specdec__level_state *m = NULL;
    int32_t i;

    for (i = 0; i <= READ; i++, rows += vocab) {
        CHECK_EQUAL_INT(specdec_prompt_tokens(t, i < READ ? tokens + i : &last, 1), SPECDEC_OK);
        m = ask_drafter(t);
        CHECK_EQUAL_INT(m->stride, vocab);
        memcpy(rows, m->logits, bytes);
    }
    CHECK_EQUAL_INT(specdec_tree_chains(&p->drafts.tree, 1, CHAIN, NULL), SPECDEC_OK);
    for (i = 0; i <= CHAIN; i++)
        p->drafts.depth[i] = i;
    CHECK_EQUAL_INT(d->kind.fill_tree(d, &p->request, &p->drafts, &failure), SPECDEC_OK);
    memcpy(chain, p->drafts.tokens + 1, CHAIN * sizeof *chain);
    ask_drafter(t);
    CHECK_EQUAL_INT(specdec_tree_chains(&p->drafts.tree, 1, CHAIN, NULL), SPECDEC_OK);
    for (i = 1; i < CHAIN; i++, rows += vocab) {
        p->drafts.depth[i] = i;
        p->drafts.tokens[i] = chain[i - 1];
        CHECK_EQUAL_INT(specdec__draft_run_candidates(d, &p->request, &p->drafts, &i, i - 1, 1, &failure), SPECDEC_OK);
        memcpy(rows, m->logits, bytes);
    }
}

/* The trunk's states behind the prompt against those of a reference. */
static void check_states(specdec *t, const subject *s, const float *exact, int width)
{
    static const int final = SPECDEC_STATE_FINAL;
    float *states = (float *)malloc((size_t)READ * (size_t)width * sizeof *states);
    double worst = 0;
    int i;

    CHECK_EQUAL_INT(specdec_prompt_states(t, s->tokens, READ, &final, 1, states), SPECDEC_OK);
    for (i = 0; i < READ * width; i++)
        worst = fmax(worst, fabs((double)states[i] - (double)exact[i]) / fmax(1, fabs((double)exact[i])));
    CHECK(worst < 1e-4);
    CHECK_EQUAL_INT(specdec_rewind(t, 0), SPECDEC_OK);
    free(states);
}

/* MTP blocks: states of the trunk, rows of logits behind each token of the prompt and along a greedy chain. */
static void check_mtp(reference *r)
{
    static const way ways[] = {{NULL, 1, 1, SPECDEC_DRAFT_MTP}, {NULL, 2, 8, SPECDEC_DRAFT_MTP}, {"scalar", 1, 48, SPECDEC_DRAFT_MTP}};
    int32_t last = 0, wanted[CHAIN], chain[CHAIN];
    const float *states, *exact;
    float *rows[2] = {NULL, NULL};
    int i, width = 0, vocab = 0;
    int left;
    double kl[2];

    if (!holds(&r->target, "nextn.eh_proj.weight")) {
        printf("  %s: the model of this folder has no such block\n", r->name);
        return;
    }
    CHECK_EQUAL_INT(numbers_behind(r, "last", &last, 1), 1);
    CHECK_EQUAL_INT(numbers_behind(r, "chain", wanted, CHAIN), CHAIN);
    for (i = 0; i < (int)SPECDEC__COUNT(ways); i++) {
        void *block;
        specdec *engine = open_model(&r->target, &ways[i], &block);
        specdec_info info;

        CHECK(engine != NULL);
        if (!engine) {
            fprintf(stderr, "%s: %s\n", r->name, failure.text);
            return;
        }
        specdec_get_info(engine, &info);
        width = info.embedding;
        vocab = info.vocabulary;
        if (!i) {
            states = next_rows(r, READ, width);
            if (states)
                check_states(engine, &r->target, states, width);
        }
        rows[i > 0] = (float *)realloc(rows[i > 0], (size_t)(READ + CHAIN) * (size_t)vocab * sizeof **rows);
        draft_rows(engine, r->target.tokens, last, vocab, rows[i > 0], chain);
        CHECK(!memcmp(chain, wanted, sizeof chain));
        CHECK(!i || !memcmp(rows[0], rows[1], (size_t)(READ + CHAIN) * (size_t)vocab * sizeof **rows));
        specdec_deinit(engine);
        free(block);
    }
    exact = next_rows(r, READ + CHAIN, vocab);
    if (exact) {
        kl[0] = mean_kl(exact, rows[0], READ, vocab, 0, &left);
        kl[1] = mean_kl(exact + READ * vocab, rows[0] + READ * vocab, CHAIN, vocab, 0, &left);
        printf("  %s: mean KL %.3e of 1e-8, of the chain %.3e\n", r->name, kl[0], kl[1]);
        CHECK(kl[0] <= 1e-8 && kl[1] <= 1e-8);
        CHECK_EQUAL_INT(r->left, 0);
    }
    free(rows[0]);
    free(rows[1]);
}

/* --- assistants and block drafters ------------------------------------------------------------------------------------ */

/* A drafter at work behind a text. */
typedef struct asked {
    specdec *t;
    specdec__engine *e;
    void *block;
    specdec__drafter *drafter;
    specdec__level_state *levels;
    specdec__proposal *p;
    int32_t text[64];
    int vocab;
} asked;

/* Opens a pair in some way. Returns 0, and fails a check, when it is refused. */
static int open_asked(asked *a, const reference *r, const subject *draft, const way *w)
{
    memset(a, 0, sizeof *a);
    a->t = open_pair(&r->target, draft, w, &a->block);
    if (!a->t)
        fprintf(stderr, "%s: %s\n", r->name, failure.text);
    CHECK(a->t != NULL);
    if (!a->t)
        return 0;
    a->e = a->t->engine;
    a->drafter = &a->e->drafters[0];
    a->levels = (specdec__level_state *)a->drafter->state;
    a->p = &a->drafter->proposals[0];
    a->vocab = a->e->target_model->vocab_size;
    memcpy(a->text, r->target.tokens, sizeof a->text);
    return 1;
}

/* Reads the first count tokens of the text, and asks for a chain of so many levels behind the token after them. Returns 0, and fails
   a check, when that fails. */
static int ask_chain(asked *a, int count, int levels)
{
    specdec__proposal *p = a->p;
    int i;

    CHECK_EQUAL_INT(specdec_rewind(a->t, 0), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_prompt_tokens(a->t, a->text, count), SPECDEC_OK);
    a->e->pool.cancel = &a->e->never_cancelled;
    CHECK(a->drafter->kind.can_draft(a->drafter, 0, count + 1));
    specdec__draft_begin_proposal(p, a->text, count + 1, &a->t->settings.sampling, SPECDEC_RULE_COUPLED);
    CHECK_EQUAL_INT(specdec_tree_chains(&p->drafts.tree, 1, levels, NULL), SPECDEC_OK);
    for (i = 0; i <= levels; i++)
        p->drafts.depth[i] = i;
    i = (int)a->drafter->kind.fill_tree(a->drafter, &p->request, &p->drafts, &failure);
    CHECK_EQUAL_INT(i, SPECDEC_OK);
    return !i;
}

/* Row `level` of a chain that was asked for, with all tokens; the first is the root's. */
static const float *chain_row(asked *a, int level)
{
    int32_t node = level;

    if (!level)
        CHECK_EQUAL_INT(a->levels->begin_tree(a->drafter, &a->p->request, &a->p->drafts, &failure), SPECDEC_OK);
    else
        CHECK_EQUAL_INT(specdec__draft_run_candidates(a->drafter, &a->p->request, &a->p->drafts, &node, level - 1, 1, &failure), SPECDEC_OK);
    return specdec__draft_logits_of_all_tokens(a->levels, 0);
}

/* KL of a row from the exact one, where tokens without a logit have none in both. */
static double row_kl(const float *exact, const float *ours, int vocab)
{
    const double a = log_total(exact, vocab), b = log_total(ours, vocab);
    double kl = 0;
    int i;

    for (i = 0; i < vocab; i++)
        if (exact[i] > -1e29f)
            kl += exp((double)exact[i] - a) * ((double)exact[i] - a - (double)ours[i] + b);
    return kl;
}

/* Opens NAME-draft-f32. Returns 0, and fails a check, when it is not there. */
static int open_draft(const reference *r, subject *draft)
{
    char name[160];

    snprintf(name, sizeof name, "%.64s-draft-f32", r->name);
    CHECK(open_case(draft, name));
    return draft->data != NULL;
}

static const way draft_ways[] = {{NULL, 1, 1, SPECDEC_DRAFT_MODEL}, {NULL, 2, 8, SPECDEC_DRAFT_MODEL}, {"scalar", 1, 48, SPECDEC_DRAFT_MODEL}};

/* An assistant: logits behind each token of the prompt and the target's next one, then along a greedy chain. */
static void check_assistant(reference *r)
{
    int32_t last = 0, wanted[CHAIN];
    const float *exact = NULL;
    double kl[2] = {0, 0};
    subject draft;
    asked a;
    int i, w;

    CHECK_EQUAL_INT(numbers_behind(r, "last", &last, 1), 1);
    CHECK_EQUAL_INT(numbers_behind(r, "chain", wanted, CHAIN), CHAIN);
    if (!open_draft(r, &draft))
        return;
    for (w = 0; w < (int)SPECDEC__COUNT(draft_ways) && open_asked(&a, r, &draft, &draft_ways[w]); w++) {
        if (!w) {
            exact = next_rows(r, READ, a.e->target_model->embedding);
            if (exact)
                check_states(a.t, &r->target, exact, a.e->target_model->embedding);
            exact = next_rows(r, READ + CHAIN - 1, a.vocab);
            CHECK_EQUAL_INT(r->left, 0);
        }
        for (i = 1; i <= READ && exact; i++) {
            a.text[READ] = last;
            if (ask_chain(&a, i, i < READ ? 1 : CHAIN))
                kl[0] = fmax(kl[0], row_kl(exact + (i - 1) * a.vocab, chain_row(&a, 0), a.vocab));
            if (i < READ)
                a.text[i] = r->target.tokens[i];
        }
        CHECK(!memcmp(a.p->drafts.tokens + 1, wanted, sizeof wanted));
        for (i = 1; i < CHAIN && exact; i++)
            kl[1] = fmax(kl[1], row_kl(exact + (READ + i - 1) * a.vocab, chain_row(&a, i), a.vocab));
        specdec_deinit(a.t);
        free(a.block);
    }
    printf("  %s: largest KL %.3e of 1e-8, of the chain %.3e\n", r->name, kl[0], kl[1]);
    CHECK(kl[0] <= 1e-8 && kl[1] <= 1e-8);
    free(draft.data);
}

/* How far candidates of a selector, and their scores behind each candidate of the row before, are from those of a reference;
   chain: of tokens, the root first. */
static double check_selector(asked *a, const float *exact, const int32_t *chain, int level, int first)
{
    specdec__draft_block *m = (specdec__draft_block *)a->drafter->state;
    const specdec__model *model = a->drafter->model;
    const int k = model->block.candidates;
    double worst = 0;
    int i, j;

    exact += (level + first) * (k + k * k);
    for (i = 0; i < k; i++) {
        const int out = m->best[level * k + i].token;
        const int32_t before = level ? m->best[(level - 1) * k + i].token : chain[0];

        CHECK_EQUAL_INT(model->ids ? model->ids[out] : out, (int)exact[i]);
        specdec__draft_block_compute_candidate_logits(m, level, level && model->ids ? &model->ids[before] : &before, 1);
        for (j = 0; j < k; j++)
            worst = fmax(worst, fabs((double)m->rows[m->best[level * k + j].token] - (double)exact[k + i * k + j]));
    }
    return worst;
}

/* One round of a block drafter: its features, logits, confidences and scores, and the greedy chain. */
static void check_round(reference *r, asked *a, int round, double *worst)
{
    const specdec__block_model *b = &a->drafter->model->block;
    const specdec__reads *reads = &a->drafter->model->reads;
    const int width = reads->count * reads->width, rows = b->size - b->draft_row, fresh = round ? 3 : READ;
    const float *features = next_rows(r, fresh, width), *exact = next_rows(r, b->size, a->vocab);
    const float *trust = b->confidence.type ? next_rows(r, b->size, 1) : NULL;
    const float *scores = b->candidates ? next_rows(r, b->size * b->candidates, b->candidates + 1) : NULL;
    int32_t at[2] = {0, 0}, wanted[64], chain[65];
    char word[32];
    reference own = *r;
    float *states;
    int i;

    snprintf(word, sizeof word, "round %d: position", round);
    CHECK_EQUAL_INT(numbers_behind(r, word, at, 1), 1);
    own.text = strstr(r->text, word) ? strstr(r->text, word) : "";
    CHECK_EQUAL_INT(numbers_behind(&own, "anchor", at + 1, 1), 1);
    CHECK_EQUAL_INT(numbers_behind(&own, "draft", wanted, 64), rows);
    if (!features || !exact || at[0] < fresh || at[0] > 48)
        return;
    a->text[at[0]] = at[1];
    states = (float *)malloc((size_t)at[0] * (size_t)width * sizeof *states);
    CHECK_EQUAL_INT(specdec_rewind(a->t, 0), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_prompt_states(a->t, a->text, at[0], reads->layers, reads->count, states), SPECDEC_OK);
    for (i = 0; i < fresh * width; i++)
        worst[0] = fmax(worst[0], fabs((double)states[(at[0] - fresh) * width + i] - (double)features[i]) / fmax(1, fabs((double)features[i])));
    free(states);
    if (!ask_chain(a, at[0], rows))
        return;
    memcpy(chain, a->p->drafts.tokens, (size_t)(rows + 1) * sizeof *chain);
    CHECK(!memcmp(chain + 1, wanted, (size_t)rows * sizeof *wanted));
    for (i = 0; i < rows; i++) {
        if (b->candidates) { /* its logits are those before the selector */
            specdec__draft_block *m = (specdec__draft_block *)a->drafter->state;
            specdec__level_state before = *a->levels;

            before.logits = specdec__draft_block_logits_row(m, i);
            worst[1] = fmax(worst[1],
                            row_kl(exact + (i + b->draft_row) * a->vocab,
                                   specdec__draft_logits_of_all_tokens(&before, 0), a->vocab));
            if (scores)
                worst[2] = fmax(worst[2], check_selector(a, scores, chain, i, b->draft_row));
            continue;
        }
        worst[1] = fmax(worst[1], row_kl(exact + (i + b->draft_row) * a->vocab, chain_row(a, i), a->vocab));
        if (trust)
            worst[2] = fmax(worst[2], fabs((double)a->levels->trust[0] - (double)trust[i + b->draft_row]));
    }
    a->text[at[0] + 1] = chain[1]; /* the next round takes two of them */
    a->text[at[0] + 2] = chain[2];
}

/* DFlash, DFlash2, DSpark: two rounds. */
static void check_block(reference *r)
{
    double worst[3] = {0, 0, 0};
    const float *next = r->next;
    const size_t left = r->left;
    subject draft;
    asked a;
    int w, round;

    if (!open_draft(r, &draft))
        return;
    for (w = 0; w < (int)SPECDEC__COUNT(draft_ways) && open_asked(&a, r, &draft, &draft_ways[w]); w++) {
        r->next = next;
        r->left = left;
        for (round = 0; round < 2; round++)
            check_round(r, &a, round, worst);
        CHECK_EQUAL_INT(r->left, 0);
        specdec_deinit(a.t);
        free(a.block);
    }
    printf("  %s: features off by %.1e, largest KL %.3e of 1e-8, scores and confidences off by %.1e\n", r->name, worst[0], worst[1], worst[2]);
    CHECK(worst[0] < 1e-4 && worst[1] <= 1e-8 && worst[2] < 1e-3);
    free(draft.data);
}

/* Kinds of drafters: what is in their names, the file of the target, with their names' beginning for "#" (several: the first that
   is there), and what checks a reference. */
static const struct {
    const char *word;
    const char *targets[3];
    void (*check)(reference *r);
} reference_kinds[] = {{"-mtp", {"#-mtp-f32", "#-f32", NULL}, check_mtp},
                       {"-assistant", {"#-dense-f32", "#-e2b-f32", "#-f32"}, check_assistant},
                       {"dflash", {"qwen3-target-f32", NULL, NULL}, check_block},
                       {"dspark", {"qwen3-target-f32", NULL, NULL}, check_block}};

/* Whether the target's most probable token behind the prompt is that of a reference. */
static int leads_on(const reference *r)
{
    const way usual = {NULL, 1, 48, SPECDEC_DRAFT_OFF};
    int32_t next = -1;
    int vocab = 0, i, best = 0;
    float *rows;

    if (!numbers_behind(r, "last", &next, 1) && !numbers_behind(r, "anchor", &next, 1))
        return 1;
    rows = rows_of(&r->target, &usual, &vocab);
    for (i = 1; rows && i < vocab; i++)
        best = rows[(READ - 1) * vocab + i] > rows[(READ - 1) * vocab + best] ? i : best;
    free(rows);
    return best == next;
}

/* Opens the target of a reference whose name begins so. Returns 0 when it is not there. */
static int open_target(reference *r, const char *const *targets, int begin)
{
    char name[160];
    int i;

    for (i = 0; i < 3 && targets[i]; i++) {
        const char *rest = targets[i] + (*targets[i] == '#');

        snprintf(name, sizeof name, "%.*s%s", rest > targets[i] ? begin : 0, r->name, rest);
        if (!open_case(&r->target, name))
            continue;
        if (leads_on(r))
            return 1;
        free(r->target.data);
        r->target.data = NULL;
    }
    return 0;
}

/* A reference, by the kind that its name says. */
static void check_reference(const char *name)
{
    reference r;
    size_t i, size;
    float *rows;
    char *text = (char *)read_case(name, "-ref.txt", &size);
    int known = 0;

    memset(&r, 0, sizeof r);
    rows = read_floats(name, "-ref.f32", &r.left);
    snprintf(r.name, sizeof r.name, "%s", name);
    TEST("what drafters say, and their greedy chains, are those of the references: mean KL at most 1e-8, chains exactly");
    CHECK(rows && text);
    for (i = 0; rows && text && i < SPECDEC__COUNT(reference_kinds) && !known; i++) {
        const char *word = strstr(name, reference_kinds[i].word);

        if (!word)
            continue;
        known = 1;
        r.text = text;
        r.next = rows;
        if (open_target(&r, reference_kinds[i].targets, (int)(word - name)))
            reference_kinds[i].check(&r);
        else
            printf("  %s: its target is not there\n", name);
        free(r.target.data);
    }
    if (!known)
        SKIP(name);
    free(rows);
    free(text);
}

/* --- the folder ------------------------------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b) { return strcmp((const char *)a, (const char *)b); }

/* Names of files in the folder that end so, without the ending, in order. Returns how many. */
static int list_names(const char *ending, char names[CASES][64])
{
    DIR *all = opendir(folder);
    const size_t behind = strlen(ending);
    struct dirent *entry;
    int count = 0;

    while (all && count < CASES && (entry = readdir(all)) != NULL) {
        const size_t length = strlen(entry->d_name);

        if (length > behind && length - behind < sizeof names[0] && !strcmp(entry->d_name + length - behind, ending))
            snprintf(names[count++], sizeof names[0], "%.*s", (int)(length - behind), entry->d_name);
    }
    if (all)
        closedir(all);
    qsort(names, (size_t)count, sizeof names[0], by_name);
    return count;
}

/* What the peer loses in a case, by peer_error.jsonl; a case that it does not name may lose a hundredth. */
static double peer_of(const char *list, const char *name)
{
    char key[320];
    const char *at;
    double peer = 0.01;

    snprintf(key, sizeof key, "{\"case\": \"%.255s\", \"mean_kl\": ", name);
    at = list ? strstr(list, key) : NULL;
    if (at)
        sscanf(at + strlen(key), "%lf", &peer);
    return peer;
}

int main(int argc, char **argv)
{
    static char names[CASES][64];
    const int given = argc > 1 && strchr(argv[1], '/') != NULL;
    const char *begin = argc > 1 + given ? argv[1 + given] : "";
    size_t size = 0;
    char *peers;
    int i, count;

    quick = check_depth() == 0;
    if (given)
        snprintf(folder, sizeof folder, "%s", argv[1]);
    else
        check_shared(folder, sizeof folder, "modern");
    TEST("the list of modern models");
    count = list_names(".gguf", names);
    if (!count)
        SKIP("../shared/modern is not there");
    CHECK(count || !given);
    peers = (char *)read_case("peer_error", ".jsonl", &size);
    for (i = 0; i < count; i++) {
        float *exact = strncmp(names[i], begin, strlen(begin)) ? NULL : read_floats(names[i], ".f32", &size);

        if (exact)
            check_case(names[i], peer_of(peers, names[i]));
        free(exact);
    }
    count = list_names("-ref.txt", names);
    for (i = 0; i < count; i++)
        if (!strncmp(names[i], begin, strlen(begin)))
            check_reference(names[i]);
    free(peers);
    return check_report("test_modern");
}
