/* test_eagle.c - drafts of one layer that reads the target's states next to embeddings (EAGLE-3, and blocks of the target's own files,
   MTP): EAGLE-3 computes what the reference says (test_modern has those of MTP); drafts never change a text; what it proposes is what it would propose after reading the whole text anew, whatever happened
   before; files that do not fit are refused in words.
   cc -O2 -pthread -I. test_eagle.c -lm, run from the repository's root; SPECDEC_QUICK=1 shortens. */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "check.h"
#include "gguf_maker.h"
#include "machine.h"

enum { CONTEXT_TOKENS = 130, VOCAB = 301, NODES = 8, PROMPT = 57 /* tokens of the longest */ };

static int quick;

/* --- files and engines ------------------------------------------------------------------------------------------------ */

/* What drafts differ in. */
typedef struct kind {
    int borrows, own_output, short_rows, norm_first, norm_states, type, embedding;
    int reads[4];       /* layers + 1 */
    const char *target; /* of a block of the target's file: its architecture; NULL: a file of its own */
    int nextn;          /* as in a recipe */
} kind;

static const kind kinds[] = {
    {0, 1, 0, 0, 0, 0, 0, {1, 2, 3, 0}, NULL, 0}, {1, 0, 0, 0, 0, 0, 0, {2, 3, 4, 0}, NULL, 0}, {1, 1, 120, 0, 0, 9, 0, {2, 3, 4, 0}, NULL, 0},
    {0, 0, 0, 1, 0, 3, 0, {4, 0, 0, 0}, NULL, 0}, {1, 1, 90, 1, 1, 0, 0, {4, 1, 2, 3}, NULL, 0}, {0, 1, 150, 0, 1, 0, 96, {3, 3, 0, 0}, NULL, 0},
    {0, 0, 0, 0, 0, 0, 0, {0, 0, 0, 0}, "qwen35", 1}, {0, 0, 0, 0, 0, 9, 0, {0, 0, 0, 0}, "glm4moe", 2},
    {0, 0, 0, 0, 0, 0, 0, {0, 0, 0, 0}, "deepseek2", 1}, {0, 0, 0, 0, 0, 0, 0, {0, 0, 0, 0}, "qwen35moe", 1},
    {0, 0, 0, 0, 0, 3, 0, {0, 0, 0, 0}, "gemma3", 2}};

/* Targets are of three layers, and of this architecture unless the draft is a block of a certain one. */
static file make_target(const char *architecture, const kind *k)
{
    maker_recipe r;

    memset(&r, 0, sizeof r);
    r.architecture = k && k->target ? k->target : architecture;
    r.layers = 3;
    r.output_type = 1;
    r.seed = 31;
    r.nextn = k ? k->nextn : 0;
    r.types[0] = k && k->target ? k->type : 0;
    return random_file(&r);
}

enum { KINDS = (int)(sizeof kinds / sizeof kinds[0]) };

static maker_recipe recipe_of(const kind *k)
{
    maker_recipe r;

    memset(&r, 0, sizeof r);
    r.architecture = "eagle3";
    r.borrows = k->borrows;
    r.output_type = k->own_output ? 1 : 0;
    r.short_rows = k->short_rows;
    r.norm_first = k->norm_first;
    r.norm_states = k->norm_states;
    r.types[0] = k->type;
    r.embedding = k->embedding;
    r.target_embedding = 64;
    memcpy(r.reads, k->reads, sizeof r.reads);
    r.seed = 5;
    return r;
}

/* The file of a draft; of one that is a block of the target's, none. */
static file make_draft(const kind *k)
{
    const maker_recipe r = recipe_of(k);
    const file none = {NULL, 0};

    return k->target ? none : random_file(&r);
}

/* Names the draft: a file, or the block of the target's. */
static void draft_with(specdec_config *c, const file *draft)
{
    c->drafting = draft->data ? SPECDEC_DRAFT_HEADS : SPECDEC_DRAFT_MTP;
    if (draft->data)
        c->heads = source_of(draft);
}

static specdec_config config_of(const file *target, const file *draft)
{
    specdec_config c;

    memset(&c, 0, sizeof c);
    c.target = source_of(target);
    c.threads = 1;
    c.context = CONTEXT_TOKENS;
    c.settings.max_tokens = 60;
    c.drafting = SPECDEC_DRAFT_OFF;
    if (draft)
        draft_with(&c, draft);
    return c;
}

/* --- what is proposed ------------------------------------------------------------------------------------------------- */

/* What a draft says behind a text: tokens of a tree, the logits of the root, those of the first of the last level. */
typedef struct guess {
    int32_t tokens[NODES];
    float root[VOCAB], last[VOCAB];
} guess;

/* Asks the draft of a text for a tree that is always the same. Returns 0 when it is not ready. */
static int ask(specdec *t, guess *g)
{
    static const int32_t parents[NODES] = {-1, 0, 0, 1, 1, 2, 3, 6}, ranks[NODES] = {0, 1, 2, 1, 2, 1, 1, 1};
    static const int32_t depth[NODES] = {0, 1, 1, 2, 2, 2, 3, 4};
    specdec__drafter *d = &t->engine->drafters[0];
    specdec__draft_layer *m = (specdec__draft_layer *)d->state;
    specdec__proposal *p = &d->proposals[t->at];
    const size_t bytes = (size_t)m->context.output->rows * sizeof(float);

    memset(g, 0, sizeof *g);
    t->engine->pool.cancel = &t->engine->never_cancelled;
    if (!d->kind.can_draft(d, t->at, t->count))
        return 0;
    specdec__draft_begin_proposal(p, t->tokens, t->count, &t->settings.sampling, SPECDEC_RULE_COUPLED);
    p->drafts.tree.n = 1;
    m->level_state.chooser.sampling = p->request.sampling;
    CHECK_EQUAL_INT(m->level_state.begin_tree(d, &p->request, &p->drafts, &failure), SPECDEC_OK);
    memcpy(g->root, m->context.logits, bytes);
    p->drafts.tree.n = NODES;
    memcpy(p->drafts.tree.parents, parents, sizeof parents);
    memcpy(p->drafts.tree.ranks, ranks, sizeof ranks);
    memcpy(p->drafts.depth, depth, sizeof depth);
    CHECK_EQUAL_INT(d->kind.fill_tree(d, &p->request, &p->drafts, &failure), SPECDEC_OK);
    memcpy(g->last, m->context.logits, bytes);
    memcpy(g->tokens, p->drafts.tokens, sizeof g->tokens);
    specdec__view_free_reserved_slots(&m->sequences[t->at].view, &m->context.kv);
    return 1;
}

/* What an engine that has just read the whole text would propose. */
static void ask_anew(specdec *fresh, const specdec *t, guess *g)
{
    specdec_settings settings = t->settings;

    CHECK_EQUAL_INT(specdec_set(fresh, &settings), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_rewind(fresh, 0), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_prompt_tokens(fresh, t->tokens, t->count), SPECDEC_OK);
    CHECK(ask(fresh, g));
}

static int asked, unready;

/* Compares the two, where the target has read all but the last token. The draft must have heard of all before the root. */
static void check_guess(specdec *t, specdec *fresh)
{
    static guess got, wanted;
    int same;

    if (t->count < 2 || t->view.length < t->count - 1)
        return;
    if (!ask(t, &got)) { /* the root's state may be gone when a text was cut: one step without a guess brings the next */
        const specdec__draft_layer *m = (const specdec__draft_layer *)t->engine->drafters[0].state;
        const specdec__draft_pairs *pairs = &m->sequences[t->at];

        CHECK(pairs->from == t->count - 1 + m->leading_pairs && pairs->from + pairs->count >= t->count - 1 + m->leading_pairs);
        unready++;
        return;
    }
    asked++;
    ask_anew(fresh, t, &wanted);
    same = memcmp(&got, &wanted, sizeof got) == 0;
    CHECK(same);
}

/* --- the reference ---------------------------------------------------------------------------------------------------- */

static double kl(const float *wanted, const float *got, int count)
{
    double high[2] = {-1e30, -1e30}, total[2] = {0, 0}, sum = 0;
    int i;

    for (i = 0; i < count; i++) {
        high[0] = fmax(high[0], (double)wanted[i]);
        high[1] = fmax(high[1], (double)got[i]);
    }
    for (i = 0; i < count; i++) {
        total[0] += exp((double)wanted[i] - high[0]);
        total[1] += exp((double)got[i] - high[1]);
    }
    for (i = 0; i < count; i++)
        sum += exp((double)wanted[i] - high[0]) / total[0] *
               ((double)wanted[i] - high[0] - log(total[0]) - ((double)got[i] - high[1] - log(total[1])));
    return sum;
}

enum { ROWS = 47, CHAIN = 5, WIDE = 256, WORDS = 1024 };

/* How far a row over the short vocabulary is from a row of the reference. */
static double off(const specdec__draft_layer *m, const float *row, const float *wanted, double *divergence)
{
    static float whole[WORDS];
    const specdec__model *model = m->context.model;
    double worst = 0;
    int i, missing = 0;

    for (i = 0; i < model->id_count; i++) {
        whole[i] = wanted[model->ids[i]];
        worst = fmax(worst, fabs((double)row[i] - (double)whole[i]));
    }
    for (i = 0; i < WORDS; i++)
        missing += wanted[i] < -1e30f;
    CHECK_EQUAL_INT(missing, WORDS - model->id_count);
    *divergence += kl(whole, row, model->id_count) / ROWS;
    return worst;
}

/* How far two rows of floats are apart. */
static double farthest(const float *a, const float *b)
{
    double worst = 0;
    int i;

    for (i = 0; i < WIDE; i++) {
        const double apart = fabs((double)a[i] - (double)b[i]);

        if (apart > worst) /* not fmax: gcc 12 for aarch64 fails on that */
            worst = apart;
    }
    return worst;
}

/* All rows of the layer over states of the target, in steps of `most`; what it reads and its logits against the reference. */
static void check_rows(specdec *t, const int32_t *tokens, const float *wanted, int most)
{
    static float states[48 * 3 * WIDE], reads[48 * (3 * WIDE + SPECDEC__ROW_PADDING)], g[ROWS * WIDE], logits[ROWS * WORDS];
    specdec__drafter *d = &t->engine->drafters[0];
    specdec__draft_layer *m = (specdec__draft_layer *)d->state;
    const int stride = specdec__forward_states_stride(d->model), first = 0;
    specdec__prefill_rows rows = specdec__prefill_rows_with_logits_from(0);
    double worst = 0, worst_g = 0, divergence = 0;
    int i;

    CHECK_EQUAL_INT(specdec_rewind(t, 0), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_prompt_states(t, tokens, 48, d->model->reads.layers, 3, states), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_rewind(t, 0), SPECDEC_OK);
    for (i = 0; i < 48; i++)
        memcpy(reads + i * stride, states + i * 3 * WIDE, 3 * WIDE * sizeof *reads);
    rows.reads = reads;
    rows.logits = logits;
    rows.state_reader.layers = &first;
    rows.state_reader.count = 1;
    rows.state_reader.out = g;
    CHECK_EQUAL_INT(specdec__forward_prefill(&m->context, &m->sequences[0].view, tokens + 1, ROWS, most, &rows, NULL, &failure), SPECDEC_OK);
    for (i = 0; i < ROWS; i++)
        worst_g = fmax(worst_g, farthest(g + i * WIDE, wanted + i * WIDE));
    for (i = 0; i < ROWS; i++)
        worst = fmax(worst, off(m, logits + i * d->model->id_count, wanted + ROWS * WIDE + i * WORDS, &divergence));
    specdec__view_truncate(&m->sequences[0].view, &m->context.kv, 0);
    printf("  steps of %d: g off by %.1e, logits by %.1e, mean KL %.1e\n", most, worst_g, worst, divergence);
    CHECK(worst_g < 1e-4);
    CHECK(worst < 1e-4);
    CHECK(fabs(divergence) <= 1e-9);
}

/* The greedy chain behind the text, level by level. */
static void check_chain(specdec *t, const int32_t *tokens, const float *wanted)
{
    static const int32_t chain[1 + CHAIN] = {0, 576, 646, 156, 156, 156};
    specdec__drafter *d = &t->engine->drafters[0];
    specdec__draft_layer *m = (specdec__draft_layer *)d->state;
    specdec__proposal *p = &d->proposals[0];
    double worst = 0, unused = 0;
    int32_t i;

    CHECK_EQUAL_INT(specdec_rewind(t, 0), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_prompt_tokens(t, tokens, 48), SPECDEC_OK);
    specdec__draft_begin_proposal(p, t->tokens, 48, &t->settings.sampling, SPECDEC_RULE_COUPLED);
    CHECK(d->kind.can_draft(d, 0, 48));
    CHECK_EQUAL_INT(specdec_tree_chains(&p->drafts.tree, 1, CHAIN, NULL), SPECDEC_OK);
    for (i = 0; i <= CHAIN; i++)
        p->drafts.depth[i] = i;
    CHECK_EQUAL_INT(m->level_state.begin_tree(d, &p->request, &p->drafts, &failure), SPECDEC_OK);
    worst = off(m, m->context.logits, wanted + ROWS * WIDE + (ROWS - 1) * WORDS, &unused);
    for (i = 1; i <= CHAIN; i++) {
        p->drafts.tokens[i] = chain[i];
        CHECK_EQUAL_INT(specdec__draft_run_candidates(d, &p->request, &p->drafts, &i, i - 1, 1, &failure), SPECDEC_OK);
        worst = fmax(worst, off(m, m->context.logits, wanted + ROWS * WIDE + (ROWS + i - 1) * WORDS, &unused));
    }
    CHECK_EQUAL_INT(d->kind.fill_tree(d, &p->request, &p->drafts, &failure), SPECDEC_OK);
    CHECK(memcmp(p->drafts.tokens + 1, chain + 1, CHAIN * sizeof *chain) == 0);
    printf("  the chain: logits off by %.1e\n", worst);
    CHECK(worst < 1e-4);
}

static void test_reference(void)
{
    char path[512];
    size_t size = 0, list_size;
    float *wanted = (float *)(void *)check_read_file(check_shared(path, sizeof path, "refdata/eagle3/eagle3.f32"), &size);
    char *list = (char *)check_read_file(check_shared(path, sizeof path, "conformance/tokens.txt"), &list_size), *at = list;
    int32_t tokens[48];
    file target, draft;
    specdec_config c;
    machine m;
    int i;

    TEST("what is read, the logits of all rows and a greedy chain are those of the reference");
    target.data = check_read_file(check_shared(path, sizeof path, "refdata/eagle3/eagle3-target-f16.gguf"), &target.size);
    draft.data = check_read_file(check_shared(path, sizeof path, "refdata/eagle3/eagle3-draft-f32.gguf"), &draft.size);
    if (!wanted || !list || !target.data || !draft.data) {
        SKIP("refdata/eagle3 is not there");
        return;
    }
    CHECK_EQUAL_INT(size, (ROWS * WIDE + (ROWS + CHAIN) * WORDS) * 4);
    for (i = 0; i < 48; i++, at += strspn(at, ", \n"))
        tokens[i] = (int32_t)strtol(at, &at, 10);
    c = config_of(&target, &draft);
    c.kv = "f32";
    for (i = 1; i <= 2; i++) {
        c.threads = i;
        if (!open_machine(&m, &c))
            return;
        check_rows(m.first, tokens, wanted, 1);
        check_rows(m.first, tokens, wanted, NODES);
        check_chain(m.first, tokens, wanted);
        close_machine(&m);
    }
    free(wanted);
    free(list);
    free(target.data);
    free(draft.data);
}

/* --- texts ------------------------------------------------------------------------------------------------------------ */

/* Something that may happen to a text and leaves it as it is. */
static void disturb(specdec *t, uint64_t *random)
{
    static float row[2 * VOCAB], states[CONTEXT_TOKENS * 64];
    static const int layers[] = {2};
    const int32_t parent = -1, *tokens;
    int32_t token = 70, copy[CONTEXT_TOKENS];
    specdec_settings settings;
    specdec_text piece;
    specdec_result result;
    int count;

    specdec_get_settings(t, &settings);
    specdec_tokens(t, &tokens, &count);
    switch (maker_random(random) % 14) {
    case 0:
        CHECK_EQUAL_INT(specdec_set(t, &settings), SPECDEC_OK);
        break;
    case 1:
        specdec_cancel(t);
        while ((result = specdec_next(t, &piece)) == SPECDEC_OK) /* what is in stock comes first */
            continue;
        CHECK(result == SPECDEC_ERROR_CANCELLED || result == SPECDEC_DONE);
        t->cancel = 0; /* a text that has ended runs nothing that could be cancelled */
        break;
    case 2:
        CHECK_EQUAL_INT(specdec_logits(t, &token, &parent, 1, row), SPECDEC_OK);
        break;
    case 3: /* forwards again with what it held, and states of it wanted at the same time */
        if (count > CONTEXT_TOKENS - 2 || specdec_stopped(t, NULL) != SPECDEC_STOP_NONE)
            break;
        memcpy(copy, tokens, sizeof copy);
        CHECK_EQUAL_INT(specdec_rewind(t, count - 5), SPECDEC_OK);
        settings.max_tokens = 0; /* the answer begins anew: the limit is the context's */
        CHECK_EQUAL_INT(specdec_set(t, &settings), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_prompt_states(t, copy + count - 5, 5, layers, 1, states), SPECDEC_OK);
        break;
    case 4: /* some of it is written again */
        if (count > PROMPT + 5) {
            CHECK_EQUAL_INT(specdec_rewind(t, count - 5), SPECDEC_OK);
            settings.max_tokens = 0;
            CHECK_EQUAL_INT(specdec_set(t, &settings), SPECDEC_OK);
        }
        break;
    }
}

/* Writes until the context is full; the text lies in `text`. */
static int answer(specdec *t, specdec *fresh, uint64_t *random, int32_t *text)
{
    const int32_t *tokens;
    int32_t prompt[40];
    specdec_text piece;
    int count, i;

    for (i = 0; i < 40; i++)
        prompt[i] = 3 + (i * i * 7) % 290;
    CHECK_EQUAL_INT(specdec_rewind(t, 0), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_prompt_tokens(t, prompt, 40), SPECDEC_OK);
    if (fresh)
        check_guess(t, fresh);
    while (specdec_next(t, &piece) == SPECDEC_OK) {
        if (random)
            disturb(t, random);
        if (fresh && (!random || maker_random(random) % 5 == 0))
            check_guess(t, fresh);
    }
    specdec_tokens(t, &tokens, &count);
    memcpy(text, tokens, (size_t)count * sizeof *text);
    return count;
}

static void test_texts(void)
{
    static const char *const architectures[] = {"qwen3", "llama"}, *const caches[] = {"f16", "f32", "q8_0"};
    static int32_t plain[CONTEXT_TOKENS], got[CONTEXT_TOKENS];
    uint64_t random = 4;
    long long accepted = 0;
    int k, run;

    TEST("an EAGLE-3 draft, or a block of the target that predicts, changes no text, and proposes what it would after reading all of it anew, disturbed or not");
    for (k = 0; k < KINDS; k++)
        for (run = quick ? k % 2 : 0; run < 4; run += 1 + quick) { /* greedy, coupled; static, grown trees */
            const int warm = run % 2;
            file target = make_target(architectures[(k + run) % 2], &kinds[k]), draft = make_draft(&kinds[k]);
            specdec_config c = config_of(&target, NULL);
            machine m, fresh;
            int count, i;

            c.kv = caches[(k + run) % 3];
            c.settings.max_tokens = 0;
            c.settings.sampling.temperature = warm ? 4.0f : 0;
            c.settings.sampling.seed = 77;
            if (!open_machine(&m, &c))
                return;
            count = answer(m.first, NULL, NULL, plain);
            close_machine(&m);
            draft_with(&c, &draft);
            c.tree_depth = 5;
            c.batch = 16;
            c.context = CONTEXT_TOKENS + 20; /* a full text can be read anew */
            if (!open_machine(&fresh, &c))
                return;
            c.context = CONTEXT_TOKENS;
            c.policy = run / 2 ? SPECDEC_POLICY_DYNAMIC : SPECDEC_POLICY_STATIC;
            c.batch = 1 + 30 * (k % 3);
            c.threads = 1 + k % 2;
            c.drafting = k % 3 ? c.drafting : SPECDEC_DRAFT_AUTO;
            if (!open_machine(&m, &c))
                return;
            for (i = 0; i < (quick ? 2 : 6); i++) {
                CHECK_EQUAL_INT(answer(m.first, fresh.first, i ? &random : NULL, got), count);
                CHECK(memcmp(got, plain, (size_t)count * sizeof *got) == 0);
            }
            CHECK(c.drafting == SPECDEC_DRAFT_AUTO || m.first->stats.steps_by_drafter[c.drafting] > 0);
            accepted += m.first->stats.accepted;
            close_machine(&m);
            close_machine(&fresh);
            free(target.data);
            free(draft.data);
        }
    printf("  %d guesses compared, %lld accepted\n", asked, accepted);
    CHECK(asked > 200);
    CHECK(accepted > 100);
    CHECK(unready < asked / 20);
}

enum { TEXTS = 4 };

static void prompt_of(int i, int32_t *prompt, int *count)
{
    int k;

    *count = 30 + 9 * i;
    for (k = 0; k < *count; k++) /* they begin alike */
        prompt[k] = 3 + (k < 28 ? k * k * 5 : k * (i + 3)) % 290;
}

/* Ends a prompt after so many batches. */
static int stop_after(void *user, const char *what, int done, int total)
{
    int *left = (int *)user;

    (void)what, (void)done, (void)total;
    return (*left)-- == 0;
}

static void check_prompts(const kind *k)
{
    file target = make_target("qwen3", k), draft = make_draft(k);
    specdec_config c = config_of(&target, &draft);
    int32_t prompt[100];
    int left, i;
    machine m, fresh;

    if (!open_machine(&fresh, &c))
        return;
    c.batch = 7;
    c.hooks.progress = stop_after;
    c.hooks.user_data = &left;
    left = -1;
    if (!open_machine(&m, &c))
        return;
    for (i = 0; i < 14; i++) {
        prompt_of(2 + i % 2, prompt, &left);
        left = i;
        CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, prompt, 40), i < 6 ? SPECDEC_ERROR_CANCELLED : SPECDEC_OK);
        check_guess(m.first, fresh.first);
        CHECK_EQUAL_INT(specdec_rewind(m.first, i < 6 ? 0 : i % 2 ? 20 : 36 + i % 3), SPECDEC_OK);
    }
    close_machine(&m);
    close_machine(&fresh);
    free(target.data);
    free(draft.data);
}

static void test_prompts(void)
{
    TEST("a prompt that is cancelled in the middle leaves nothing behind in the draft");
    check_prompts(&kinds[2]);
    check_prompts(&kinds[7]);
}

/* --- several texts ---------------------------------------------------------------------------------------------------- */

/* Writes four texts at once, forks the first in the middle, closes and opens again. */
static void write_together(specdec *first, specdec *fresh, int32_t plain[TEXTS][CONTEXT_TOKENS], const int *lengths, uint64_t *random)
{
    specdec *texts[TEXTS], *fork = NULL;
    int32_t prompt[CONTEXT_TOKENS];
    const int32_t *tokens;
    specdec_text piece;
    int i, count, steps;

    texts[0] = first;
    CHECK_EQUAL_INT(specdec_rewind(first, 0), SPECDEC_OK);
    for (i = 0; i < TEXTS; i++) {
        if (i)
            CHECK_EQUAL_INT(specdec_open(first, &texts[i]), SPECDEC_OK);
        prompt_of(i, prompt, &count);
        CHECK_EQUAL_INT(specdec_prompt_tokens(texts[i], prompt, count), SPECDEC_OK);
        for (steps = 0; steps < 12 && i == 1; steps++) /* the next ones share what has been read */
            specdec_work(first);
    }
    for (steps = 0; specdec_work(first) == SPECDEC_OK || steps < 3; steps++)
        for (i = 0; i < TEXTS; i++) {
            while (specdec_take(texts[i], &piece) == SPECDEC_OK)
                continue;
            if (maker_random(random) % 4 == 0)
                disturb(texts[i], random);
            if (maker_random(random) % 10 == 0)
                check_guess(texts[i], fresh);
            if (i == 2 && !fork && texts[2]->handed_out > lengths[2] / 2) {
                CHECK_EQUAL_INT(specdec_fork(texts[2], &fork), SPECDEC_OK);
                check_guess(fork, fresh);
            }
        }
    for (i = 0; i <= TEXTS; i++) {
        specdec *t = i < TEXTS ? texts[i] : fork;

        if (!t)
            continue;
        while (specdec_next(t, &piece) == SPECDEC_OK)
            continue;
        check_guess(t, fresh);
        specdec_tokens(t, &tokens, &count);
        CHECK_EQUAL_INT(count, lengths[i < TEXTS ? i : 2]);
        CHECK(memcmp(tokens, plain[i < TEXTS ? i : 2], (size_t)count * sizeof *tokens) == 0);
        if (i)
            specdec_close(t);
    }
    CHECK(fork != NULL);
}

static void test_together(void)
{
    static int32_t plain[TEXTS][CONTEXT_TOKENS];
    int lengths[TEXTS], k, warm, i;
    uint64_t random = 9;

    TEST("several texts, forks, shared beginnings and prompts read in slices: the same texts and the same proposals");
    asked = unready = 0;
    for (k = 0; k < KINDS; k += quick ? 2 : 1)
        for (warm = 0; warm < 2; warm++) {
            file target = make_target("qwen3", &kinds[k]), draft = make_draft(&kinds[k]);
            specdec_config c = config_of(&target, NULL);
            int32_t prompt[CONTEXT_TOKENS];
            const int32_t *tokens;
            specdec_text piece;
            machine m, fresh;
            int count;

            c.settings.max_tokens = 0;
            c.settings.sampling.temperature = warm ? 4.0f : 0;
            c.settings.sampling.seed = 7;
            if (!open_machine(&m, &c))
                return;
            for (i = 0; i < TEXTS; i++) {
                prompt_of(i, prompt, &count);
                CHECK_EQUAL_INT(specdec_rewind(m.first, 0), SPECDEC_OK);
                CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, prompt, count), SPECDEC_OK);
                while (specdec_next(m.first, &piece) == SPECDEC_OK)
                    continue;
                specdec_tokens(m.first, &tokens, &lengths[i]);
                memcpy(plain[i], tokens, (size_t)lengths[i] * sizeof *tokens);
            }
            close_machine(&m);
            draft_with(&c, &draft);
            c.context = CONTEXT_TOKENS + 20;
            if (!open_machine(&fresh, &c))
                return;
            c.context = CONTEXT_TOKENS;
            c.sequences = TEXTS + 1;
            c.prefill_chunk = 5;
            c.policy = k % 2 ? SPECDEC_POLICY_DYNAMIC : SPECDEC_POLICY_STATIC;
            c.drafting = k % 3 ? c.drafting : SPECDEC_DRAFT_AUTO;
            if (!open_machine(&m, &c))
                return;
            for (i = 0; i < (quick ? 1 : 3); i++)
                write_together(m.first, fresh.first, plain, lengths, &random);
            close_machine(&m);
            close_machine(&fresh);
            free(target.data);
            free(draft.data);
        }
    printf("  %d guesses compared\n", asked);
    CHECK(asked > 100);
    CHECK(unready < asked / 20);
}

/* --- bits ------------------------------------------------------------------------------------------------------------- */

static void test_bits(void)
{
    static const int batches[] = {1, 5, 64};
    int k, isa, threads, b;

    TEST("proposals have the same bits with every instruction set, number of threads and width");
    for (k = 0; k < KINDS; k++) {
        file target = make_target("qwen3", &kinds[k]), draft = make_draft(&kinds[k]);
        static guess first, got;
        int32_t text[CONTEXT_TOKENS];
        int count = 0, i;

        for (isa = 0; specdec_isa_name(isa); isa++)
            for (threads = 1; threads <= 3; threads += 2)
                for (b = 0; b < 3; b++) {
                    specdec_config c = config_of(&target, &draft);
                    machine m;

                    c.isa = specdec_isa_name(isa);
                    c.threads = threads;
                    c.batch = batches[b];
                    c.weights_in_place = b == 1;
                    if (!open_machine(&m, &c))
                        return;
                    for (i = 0; i < 50; i++)
                        text[i] = 3 + (i * i * 11) % 290;
                    CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, text, 50), SPECDEC_OK);
                    CHECK(ask(m.first, count++ ? &got : &first));
                    CHECK(count == 1 || memcmp(&got, &first, sizeof got) == 0);
                    close_machine(&m);
                }
        free(target.data);
        free(draft.data);
    }
}

/* --- rules ------------------------------------------------------------------------------------------------------------ */

static void check_rules(const kind *k)
{
    static const int32_t prompt[] = {5, 9, 70};
    file target = make_target("llama", k), draft = make_draft(k);
    int rule, i;

    for (rule = SPECDEC_RULE_COUPLED; rule < SPECDEC_RULE_GREEDY; rule++) {
        specdec_config c = config_of(&target, &draft);
        const specdec__proposal *p;
        int odd = 0, drafted = 0, count, seed;
        const int32_t *tokens;
        long long accepted = 0;
        machine m;

        c.rule = (specdec_rule)rule;
        c.settings.max_tokens = 0;
        c.settings.sampling.temperature = k->target ? 30.0f : 3.0f; /* what it says is seldom likely */
        if (!open_machine(&m, &c))
            return;
        p = &m.first->engine->drafters[0].proposals[0];
        for (seed = 0; seed < 4; seed++) { /* what is hot agrees seldom */
            c.settings.sampling.seed = (uint64_t)seed;
            CHECK_EQUAL_INT(specdec_rewind(m.first, 0), SPECDEC_OK);
            CHECK_EQUAL_INT(specdec_set(m.first, &c.settings), SPECDEC_OK);
            CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, prompt, 3), SPECDEC_OK);
            while (specdec_step(m.first, &tokens, &count) == SPECDEC_OK)
                for (i = 1; i < p->drafts.tree.n; i++) {
                    drafted += p->drafts.tokens[i] >= 0;
                    odd += p->drafts.tokens[i] >= 0 && k->short_rows && (p->drafts.tokens[i] % 2 || p->drafts.tokens[i] >= 2 * k->short_rows);
                }
            accepted += m.first->stats.accepted;
        }
        CHECK(drafted > 100);
        CHECK_EQUAL_INT(odd, 0);
        CHECK(accepted > 0);
        close_machine(&m);
    }
    free(target.data);
    free(draft.data);
}

static void test_rules(void)
{
    TEST("every rule of verification drafts with it, and nothing is proposed that the short vocabulary lacks");
    check_rules(&kinds[4]);
    check_rules(&kinds[6]);
    check_rules(&kinds[8]);
}

/* --- what does not fit ------------------------------------------------------------------------------------------------ */

/* A draft with something wrong. */
typedef struct flaw {
    const char *what;
    kind made;
    const char *key;    /* set to value, or removed: value < 0 */
    int value;
    const char *tensor; /* left out */
    specdec_result result;
    const char *words;
} flaw;

#define GOOD {0, 1, 120, 0, 0, 0, 0, {1, 2, 3, 0}, NULL, 0}

static const flaw flaws[] = {
    {"states of another width", GOOD, "eagle3.target_hidden_size", 96, NULL, SPECDEC_ERROR_FORMAT, "fc.weight"},
    {"a layer too many", {0, 1, 0, 0, 0, 0, 0, {1, 5, 0, 0}, NULL, 0}, NULL, 0, NULL, SPECDEC_ERROR_MISMATCH, "after 4 layers, the target has 3"},
    {"a layer far out", {0, 1, 0, 0, 0, 0, 0, {1, 1 << 30, 0, 0}, NULL, 0}, NULL, 0, NULL, SPECDEC_ERROR_FORMAT, "target_layers"},
    {"no list of layers", GOOD, "eagle3.target_layers", -1, NULL, SPECDEC_ERROR_FORMAT, "eagle3.target_layers is missing"},
    {"a number as the list of layers", GOOD, "eagle3.target_layers", 2, NULL, SPECDEC_ERROR_UNSUPPORTED, "target_layers"},
    {"no fc", GOOD, NULL, 0, "fc.weight", SPECDEC_ERROR_FORMAT, "fc.weight is missing"},
    {"no norm of what is read", GOOD, NULL, 0, "blk.0.attn_norm_2.weight", SPECDEC_ERROR_FORMAT, "attn_norm_2.weight is missing"},
    {"no norm before fc", GOOD, "eagle3.norm_before_fc", 1, NULL, SPECDEC_ERROR_FORMAT, "enc.output_norm.weight is missing"},
    {"no output for a short vocabulary", GOOD, NULL, 0, "output.weight", SPECDEC_ERROR_FORMAT, "output.weight is missing"},
    {"no output norm", GOOD, NULL, 0, "output_norm.weight", SPECDEC_ERROR_FORMAT, "output_norm.weight is missing"},
    {"two layers", GOOD, "eagle3.block_count", 2, NULL, SPECDEC_ERROR_FORMAT, "blk.1."},
    {"an embedding borrowed that is of another width", {1, 1, 0, 0, 0, 0, 96, {1, 2, 0, 0}, NULL, 0}, NULL, 0, NULL, SPECDEC_ERROR_MISMATCH,
     "token_embd.weight"},
    {"an output borrowed that is of another width", {0, 0, 0, 0, 0, 0, 96, {1, 2, 0, 0}, NULL, 0}, NULL, 0, NULL, SPECDEC_ERROR_MISMATCH,
     "output.weight"}};

static void test_flaws(void)
{
    static maker m;
    machine m2;
    const kind good = GOOD;
    file target = make_target("qwen3", NULL), f;
    maker_recipe r;
    specdec_config c;
    size_t i;

    TEST("drafts that do not fit are refused, and the error names what is wrong");
    for (i = 0; i < sizeof flaws / sizeof flaws[0]; i++) {
        r = recipe_of(&flaws[i].made);
        maker_begin(&m, &r);
        if (flaws[i].key && flaws[i].value < 0)
            maker_remove_pair(&m, flaws[i].key);
        else if (flaws[i].key)
            maker_u32(&m, flaws[i].key, (uint32_t)flaws[i].value);
        if (flaws[i].tensor)
            maker_find_tensor(&m, flaws[i].tensor)->name[0] = 'x';
        f = finish(&m);
        c = config_of(&target, &f);
        refused(flaws[i].what, &c, flaws[i].result, flaws[i].words);
        free(f.data);
    }
    r = recipe_of(&good);
    r.target_embedding = 96;
    f = random_file(&r);
    c = config_of(&target, &f);
    refused("another target", &c, SPECDEC_ERROR_MISMATCH, "states of 96, the target has states of 64");
    free(f.data);
    r = recipe_of(&good);
    r.vocab = 280;
    f = random_file(&r);
    c = config_of(&target, &f);
    refused("another vocabulary", &c, SPECDEC_ERROR_MISMATCH, "another vocabulary");
    free(f.data);
    maker_begin(&m, &r);
    specdec__store_u32(maker_find_tensor(&m, "d2t")->data.data + 8 * 60, 280);
    f = finish(&m);
    c = config_of(&target, &f);
    refused("a token out of range", &c, SPECDEC_ERROR_FORMAT, "d2t names a token at 60");
    free(f.data);
    f = make_draft(&good);
    c = config_of(&f, NULL);
    refused("a target that only drafts", &c, SPECDEC_ERROR_MISMATCH, "can only draft");
    c = config_of(&target, NULL);
    c.draft = source_of(&f);
    c.drafting = SPECDEC_DRAFT_MODEL;
    CHECK(open_machine(&m2, &c)); /* as config.heads would */
    CHECK(m2.first->engine->drafters[0].kind.init == specdec__draft_layer_init);
    close_machine(&m2);
    free(f.data);
    free(target.data);
}

/* A block of the target with something wrong. */
static const struct {
    const char *architecture, *tensor, *words;
    int value; /* of the tensor's first dimension; 0: it is left out */
} block_flaws[] = {{"qwen35", "blk.3.nextn.eh_proj.weight", "blk.3.nextn.eh_proj.weight is missing", 0},
                   {"qwen35", "blk.3.nextn.hnorm.weight", "blk.3.nextn.hnorm.weight is missing", 0},
                   {"qwen35", "blk.3.attn_k.weight", "blk.3.attn_k.weight is missing", 0},
                   {"qwen35", "blk.3.attn_q_norm.weight", "blk.3.attn_q_norm.weight is missing", 0},
                   {"deepseek2", "blk.3.attn_kv_a_norm.weight", "blk.3.attn_kv_a_norm.weight is missing", 0},
                   {"qwen35moe", "blk.3.ffn_down_exps.weight", "blk.3.ffn_down_exps.weight is missing", 0},
                   {"glm4moe", "blk.3.nextn.eh_proj.weight", "blk.3.nextn.eh_proj.weight is 64 x 128", 64},
                   {"glm4moe", "blk.3.nextn.enorm.weight", "blk.3.nextn.enorm.weight is 32 x 2", 32},
                   {"glm4moe", "blk.3.nextn.embed_tokens.weight", "blk.3.nextn.embed_tokens.weight is 32 x", 32},
                   {"glm4moe", "blk.3.nextn.shared_head_head.weight", "blk.3.nextn.shared_head_head.weight is 32 x", 32}};

static void test_blocks(void)
{
    static maker m;
    specdec_config c;
    maker_recipe r;
    size_t i;
    file f;

    TEST("a block of the target that is damaged is refused, and the error names the tensor; without it, nothing is drafted with it");
    for (i = 0; i <= sizeof block_flaws / sizeof block_flaws[0]; i++) {
        const int whole = i == sizeof block_flaws / sizeof block_flaws[0];

        memset(&r, 0, sizeof r);
        r.architecture = whole ? "qwen3" : block_flaws[i].architecture;
        r.layers = 3;
        r.nextn = whole ? 0 : 2;
        maker_begin(&m, &r);
        if (whole)
            maker_u32(&m, "qwen3.nextn_predict_layers", 1); /* says so, but lacks it: the last layer is one that predicts */
        else if (block_flaws[i].value) {
            maker_tensor *t = maker_find_tensor(&m, block_flaws[i].tensor);

            t->shape[1] = t->shape[0] * (t->shape[1] + !t->shape[1]) / (uint64_t)block_flaws[i].value;
            t->shape[0] = (uint64_t)block_flaws[i].value;
            t->dimensions = 2;
        } else
            strcpy(maker_find_tensor(&m, block_flaws[i].tensor)->name, "blk.3.nextn.other");
        f = finish(&m);
        c = config_of(&f, NULL);
        c.drafting = SPECDEC_DRAFT_MTP;
        refused(whole ? "no block" : block_flaws[i].tensor, &c, whole ? SPECDEC_ERROR_ARGUMENT : SPECDEC_ERROR_FORMAT,
                whole ? "nextn" : block_flaws[i].words);
        c.drafting = SPECDEC_DRAFT_AUTO;
        if (!whole)
            refused(block_flaws[i].tensor, &c, SPECDEC_ERROR_FORMAT, block_flaws[i].words);
        free(f.data);
    }
}

static const struct {
    const char *name;
    void (*run)(void);
} tests[] = {{"reference", test_reference}, {"texts", test_texts}, {"prompts", test_prompts}, {"together", test_together},
             {"bits", test_bits}, {"rules", test_rules}, {"flaws", test_flaws}, {"blocks", test_blocks}};

int main(int argc, char **argv)
{
    size_t i;

    quick = getenv("SPECDEC_QUICK") != NULL;
    for (i = 0; i < sizeof tests / sizeof tests[0]; i++)
        if (argc < 2 || strcmp(argv[1], tests[i].name) == 0)
            tests[i].run();
    return check_report("test_eagle");
}
