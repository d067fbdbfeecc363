/* test_block.c - drafts that come with a model: assistants, which read its keys, and block drafters (DFlash, DFlash2, DSpark). They
   never change a text; what they propose is what they would propose after reading the whole text anew, whatever happened before,
   in the same bits everywhere; files that do not fit are refused in words. What they compute is in test_modern.
   cc -O2 -pthread -I. test_block.c -lm, run from the repository's root; SPECDEC_QUICK=1 shortens. */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "check.h"
#include "gguf_maker.h"
#include "machine.h"

enum { CONTEXT_TOKENS = 130, VOCAB = 301, NODES = 8, PROMPT = 40, TEXTS = 5 };

static int quick;

/* --- files and engines ------------------------------------------------------------------------------------------------ */

/* A target and its draft. */
typedef struct pair {
    const char *name, *target;
    int layers, sharing, varied; /* of the target */
    maker_recipe draft;
} pair;

/* Fields of a recipe in an order of their own. */
static maker_recipe draft_of(const char *architecture, int layers, int type, int varied)
{
    maker_recipe r;

    memset(&r, 0, sizeof r);
    r.architecture = architecture;
    r.layers = layers;
    r.types[0] = type;
    r.varied = varied;
    r.target_embedding = 64;
    r.window = 20;
    r.seed = 5;
    return r;
}

enum { PAIRS = 9 };
static pair pairs[PAIRS];

static void make_block(int i, const char *name, int type)
{
    static const int reads[] = {2, 3, 0};

    pairs[i].name = name;
    pairs[i].target = i % 2 ? "qwen3" : "llama";
    pairs[i].layers = 3;
    pairs[i].draft = draft_of("dflash", 2, type, 0);
    pairs[i].draft.borrows = 1;
    memcpy(pairs[i].draft.reads, reads, sizeof reads);
}

static void make_pairs(void)
{
    maker_recipe *r;

    make_block(0, "dflash", 0);
    make_block(1, "dspark", 0);
    pairs[1].draft.anchored = pairs[1].draft.trusts = 1;
    pairs[1].draft.markov = 64;
    pairs[1].draft.block = 5;
    make_block(2, "dspark, a short vocabulary, sinks", 3); /* Q4_0 */
    r = &pairs[2].draft;
    r->markov = 32;
    r->short_rows = 120;
    r->output_type = r->sinks = 1;
    make_block(3, "dflash2", 0);
    pairs[3].draft.selector = 6;
    pairs[3].draft.conv = 3;
    make_block(4, "dflash2, a short vocabulary, embeddings of its own", 9); /* Q8_0 */
    r = &pairs[4].draft;
    r->selector = 4;
    r->conv = 2;
    r->short_rows = 150;
    r->output_type = 9;
    r->borrows = 0;
    r->embedding = 96;
    pairs[5].name = "assistant";
    pairs[5].target = "gemma3";
    pairs[5].layers = 6;
    pairs[5].draft = draft_of("gemma4-assistant", 6, 0, 0);
    pairs[6].name = "assistant, narrower, of layers that share keys";
    pairs[6].target = "gemma4";
    pairs[6].layers = 12;
    pairs[6].sharing = 3;
    pairs[6].varied = 1;
    pairs[6].draft = draft_of("gemma4-assistant", 6, 9, 1);
    pairs[6].draft.embedding = 32;
    pairs[6].draft.head_dim = 16;
    pairs[8] = pairs[5];
    pairs[8].name = "assistant whose centroids choose tokens";
    pairs[8].draft.centroids = 7; /* 301 is 7 * 43 */
    pairs[8].draft.nearest = 3;
    make_block(7, "dspark, whose rows see what is before them", 0);
    pairs[7].draft.causal = 1;
    pairs[7].draft.markov = 256; /* wider than anything else */
}

static file make_target(const pair *p)
{
    maker_recipe r;

    memset(&r, 0, sizeof r);
    r.architecture = p->target;
    r.layers = p->layers;
    r.sharing = p->sharing;
    r.varied = p->varied;
    r.window = 24;
    r.layer_inputs = -1;
    r.output_type = 1;
    r.seed = 31;
    return random_file(&r);
}

static file make_draft(const pair *p) { return random_file(&p->draft); }

static specdec_config config_of(const file *target, const file *draft)
{
    specdec_config c;

    memset(&c, 0, sizeof c);
    c.target = source_of(target);
    if (draft)
        c.draft = source_of(draft);
    c.threads = 1;
    c.context = CONTEXT_TOKENS;
    c.drafting = draft ? SPECDEC_DRAFT_MODEL : SPECDEC_DRAFT_OFF;
    return c;
}

/* --- what is proposed ------------------------------------------------------------------------------------------------- */

/* What a draft says behind a text: tokens of a tree, the logits of the root. */
typedef struct guess {
    int32_t tokens[NODES];
    float root[VOCAB];
} guess;

/* Asks an engine's draft what follows the first count tokens of a text, of which the target has read all but the last, in a tree
   that is always the same. Returns 0 when it is not ready. */
static int ask(specdec *t, const int32_t *text, int count, const specdec_sampling *sampling, guess *g)
{
    static const int32_t parents[NODES] = {-1, 0, 0, 1, 1, 2, 3, 6}, ranks[NODES] = {0, 1, 2, 1, 2, 1, 1, 1};
    static const int32_t depth[NODES] = {0, 1, 1, 2, 2, 2, 3, 4};
    static int32_t copy[CONTEXT_TOKENS + 80];
    specdec__drafter *d = &t->engine->drafters[0];
    specdec__level_state *m = (specdec__level_state *)d->state;
    specdec__proposal *p = &d->proposals[t->at];
    const int rows = d->model->id_count ? d->model->id_count : VOCAB;

    memset(g, 0, sizeof *g);
    t->engine->pool.cancel = &t->engine->never_cancelled;
    if (!d->kind.can_draft(d, t->at, count))
        return 0;
    memcpy(copy, text, (size_t)count * sizeof *copy);
    specdec__draft_begin_proposal(p, copy, count, sampling, SPECDEC_RULE_COUPLED);
    m->chooser.sampling = p->request.sampling;
    CHECK_EQUAL_INT(m->begin_tree(d, &p->request, &p->drafts, &failure), SPECDEC_OK);
    memcpy(g->root, m->logits, (size_t)rows * sizeof *g->root);
    memcpy(p->drafts.tree.parents, parents, sizeof parents);
    memcpy(p->drafts.tree.ranks, ranks, sizeof ranks);
    memcpy(p->drafts.depth, depth, sizeof depth);
    for (p->drafts.tree.n = NODES; p->drafts.depth[p->drafts.tree.n - 1] >= p->request.max_levels;)
        p->drafts.tree.n--;
    CHECK_EQUAL_INT(d->kind.fill_tree(d, &p->request, &p->drafts, &failure), SPECDEC_OK);
    memcpy(g->tokens, p->drafts.tokens, (size_t)p->drafts.tree.n * sizeof *g->tokens);
    return 1;
}

static int asked, unready;

/* Compares that with what an engine proposes that has just read the whole text. */
static void check_guess(specdec *t, specdec *fresh)
{
    static guess got, wanted;

    if (t->count < 3 || t->view.length != t->count - 1)
        return;
    if (!ask(t, t->tokens, t->count, &t->settings.sampling, &got)) { /* a step without a guess brings what is missing */
        unready++;
        return;
    }
    asked++;
    CHECK_EQUAL_INT(specdec_rewind(fresh, 0), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_prompt_tokens(fresh, t->tokens, t->count - 1), SPECDEC_OK);
    CHECK(ask(fresh, t->tokens, t->count, &t->settings.sampling, &wanted));
    CHECK(memcmp(&got, &wanted, sizeof got) == 0);
}

/* --- texts ------------------------------------------------------------------------------------------------------------ */

static void prompt_of(int i, int32_t *prompt)
{
    int k;

    for (k = 0; k < PROMPT; k++) /* they begin alike */
        prompt[k] = 3 + (k < 28 ? k * k * 5 : k * (i + 3)) % 290;
}

/* Something that may happen to a text and leaves it as it is. */
static void disturb(specdec *t, uint64_t *random)
{
    static float row[2 * VOCAB];
    const int32_t parent = -1, *tokens;
    int32_t token = 70, copy[5];
    specdec_settings settings;
    specdec_text piece;
    specdec_result result;
    int count;

    specdec_get_settings(t, &settings);
    settings.max_tokens = 0; /* the limit is the context's */
    specdec_tokens(t, &tokens, &count);
    switch (maker_random(random) % 12) {
    case 0:
        CHECK_EQUAL_INT(specdec_set(t, &settings), SPECDEC_OK);
        break;
    case 1:
        specdec_cancel(t);
        while ((result = specdec_next(t, &piece)) == SPECDEC_OK) /* what is in stock comes first */
            continue;
        CHECK(result == SPECDEC_ERROR_CANCELLED || result == SPECDEC_DONE);
        t->cancel = 0;
        break;
    case 2:
        CHECK_EQUAL_INT(specdec_logits(t, &token, &parent, 1, row), SPECDEC_OK);
        break;
    case 3:
        if (count > CONTEXT_TOKENS - 2 || specdec_stopped(t, NULL) != SPECDEC_STOP_NONE)
            break;
        memcpy(copy, tokens + count - 5, sizeof copy);
        CHECK_EQUAL_INT(specdec_rewind(t, count - 5), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_set(t, &settings), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_prompt_tokens(t, copy, 5), SPECDEC_OK);
        break;
    case 4: /* some of it is written again */
        if (count > PROMPT + 5) {
            CHECK_EQUAL_INT(specdec_rewind(t, count - 5), SPECDEC_OK);
            CHECK_EQUAL_INT(specdec_set(t, &settings), SPECDEC_OK);
        }
        break;
    }
}

/* Writes texts at once until they end; the first that is drafted for forks in the middle, if there is room, is saved and loaded. */
static void write_texts(specdec *first, specdec *fresh, int count, int32_t plain[TEXTS][CONTEXT_TOKENS], const int *lengths,
                        uint64_t *random)
{
    specdec *texts[TEXTS], *fork = NULL;
    int32_t prompt[PROMPT];
    const int32_t *tokens;
    specdec_text piece;
    int i, length, busy = 1;

    texts[0] = first;
    CHECK_EQUAL_INT(specdec_rewind(first, 0), SPECDEC_OK);
    for (i = 0; i < count; i++) {
        if (i)
            CHECK_EQUAL_INT(specdec_open(first, &texts[i]), SPECDEC_OK);
        prompt_of(i, prompt);
        CHECK_EQUAL_INT(specdec_prompt_tokens(texts[i], prompt, PROMPT), SPECDEC_OK);
    }
    while (busy) {
        busy = specdec_work(first) == SPECDEC_OK;
        for (i = 0; i < count; i++) {
            while (specdec_take(texts[i], &piece) == SPECDEC_OK)
                busy = 1;
            if (random && maker_random(random) % 4 == 0)
                disturb(texts[i], random);
            if (maker_random(random) % 6 == 0)
                check_guess(texts[i], fresh);
            if (count > 1 && i == 1 && !fork && texts[1]->handed_out > lengths[1] / 2) {
                CHECK_EQUAL_INT(specdec_fork(texts[1], &fork), SPECDEC_OK);
                check_guess(fork, fresh);
            }
        }
    }
    for (i = 0; i <= count; i++) {
        specdec *t = i < count ? texts[i] : fork;
        const int of = i < count ? i : 1;

        if (!t)
            continue;
        while (specdec_next(t, &piece) == SPECDEC_OK)
            continue;
        check_guess(t, fresh);
        specdec_tokens(t, &tokens, &length);
        CHECK_EQUAL_INT(length, lengths[of]);
        CHECK(memcmp(tokens, plain[of], (size_t)length * sizeof *tokens) == 0);
        if (i)
            specdec_close(t);
    }
    CHECK(count == 1 || fork);
}

/* The texts without drafts. */
static int write_plain(const specdec_config *c, int32_t plain[TEXTS][CONTEXT_TOKENS], int *lengths)
{
    int32_t prompt[PROMPT];
    const int32_t *tokens;
    specdec_text piece;
    machine m;
    int i;

    if (!open_machine(&m, c))
        return 0;
    for (i = 0; i < TEXTS; i++) {
        prompt_of(i, prompt);
        CHECK_EQUAL_INT(specdec_rewind(m.first, 0), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, prompt, PROMPT), SPECDEC_OK);
        while (specdec_next(m.first, &piece) == SPECDEC_OK)
            continue;
        specdec_tokens(m.first, &tokens, &lengths[i]);
        memcpy(plain[i], tokens, (size_t)lengths[i] * sizeof *tokens);
    }
    close_machine(&m);
    return 1;
}

static void test_texts(void)
{
    static const char *const caches[] = {"f16", "f32", "q8_0"};
    static int32_t plain[TEXTS][CONTEXT_TOKENS];
    int lengths[TEXTS], k, run, i;
    long long accepted = 0;
    uint64_t random = 4;

    TEST("assistants and block drafters change no text of one or five, forked, cut or cancelled, and propose what they would anew");
    asked = unready = 0;
    for (k = 0; k < PAIRS; k++)
        for (run = 0; run < 8; run++) { /* greedy, coupled; static, grown trees; one text, five */
            const int warm = run % 2, many = run / 4;
            file target, draft;
            specdec_config c;
            machine m, fresh;

            if (quick && (run + k) % 3)
                continue;
            target = make_target(&pairs[k]);
            draft = make_draft(&pairs[k]);
            c = config_of(&target, NULL);
            c.kv = caches[(k + run) % 3];
            c.settings.sampling.temperature = warm ? 4.0f : 0;
            c.settings.sampling.seed = 77;
            if (!write_plain(&c, plain, lengths))
                return;
            c.draft = source_of(&draft);
            c.drafting = SPECDEC_DRAFT_MODEL;
            c.tree_depth = 5;
            c.context = CONTEXT_TOKENS + 20; /* a full text can be read anew */
            if (!open_machine(&fresh, &c))
                return;
            c.context = CONTEXT_TOKENS;
            c.policy = run / 2 % 2 ? SPECDEC_POLICY_DYNAMIC : SPECDEC_POLICY_STATIC;
            c.batch = 1 + 30 * (k % 3);
            c.threads = 1 + k % 2;
            c.drafting = k % 3 ? SPECDEC_DRAFT_MODEL : SPECDEC_DRAFT_AUTO;
            c.sequences = many ? TEXTS + 1 : 1;
            c.prefill_chunk = many * 5;
            if (!open_machine(&m, &c))
                return;
            for (i = 0; i < (quick ? 2 : 4); i++)
                write_texts(m.first, fresh.first, many ? TEXTS : 1, plain, lengths, &random);
            CHECK(c.drafting == SPECDEC_DRAFT_AUTO || m.first->stats.steps_by_drafter[SPECDEC_DRAFT_MODEL] > 0);
            accepted += m.first->stats.accepted;
            close_machine(&m);
            close_machine(&fresh);
            free(target.data);
            free(draft.data);
        }
    printf("  %d guesses compared, %d times unready, %lld accepted\n", asked, unready, accepted);
    CHECK(asked > 100);
    CHECK(accepted > 100);
    CHECK(unready < asked / 5);
}

/* --- bits ------------------------------------------------------------------------------------------------------------- */

static void test_bits(void)
{
    static const int batches[] = {1, 5, 64};
    static specdec_sampling greedy;
    int k, isa, threads, b;

    TEST("proposals have the same bits with every instruction set, number of threads and width");
    for (k = 0; k < PAIRS; k++) {
        file target = make_target(&pairs[k]), draft = make_draft(&pairs[k]);
        static guess first, got;
        int32_t text[81];
        int count = 0, i;

        for (isa = 0; specdec_isa_name(isa); isa++)
            for (threads = 1; threads <= 3; threads += 2)
                for (b = 0; b < 3; b++) {
                    specdec_config c = config_of(&target, &draft);
                    machine m;

                    if (quick && (isa + threads / 2 + b) % 3)
                        continue;
                    c.isa = specdec_isa_name(isa);
                    c.threads = threads;
                    c.batch = batches[b];
                    c.weights_in_place = b == 1;
                    if (!open_machine(&m, &c))
                        return;
                    for (i = 0; i < 81; i++)
                        text[i] = 3 + (i * i * 11) % 290;
                    CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, text, 80), SPECDEC_OK);
                    CHECK(ask(m.first, text, 81, &greedy, count++ ? &got : &first));
                    CHECK(count == 1 || memcmp(&got, &first, sizeof got) == 0);
                    close_machine(&m);
                }
        free(target.data);
        free(draft.data);
    }
}

/* --- rules ------------------------------------------------------------------------------------------------------------ */

static void test_rules(void)
{
    static const int32_t prompt[] = {5, 9, 70};
    int rule, k;

    TEST("every rule of verification drafts with them");
    for (k = 0; k < PAIRS; k++)
        for (rule = SPECDEC_RULE_COUPLED; rule < SPECDEC_RULE_GREEDY; rule++) {
            file target = make_target(&pairs[k]), draft = make_draft(&pairs[k]);
            specdec_config c = config_of(&target, &draft);
            int count, seed;
            const int32_t *tokens;
            machine m;

            c.rule = (specdec_rule)rule;
            c.settings.sampling.temperature = 4;
            if (!open_machine(&m, &c))
                return;
            for (seed = 0; seed < 2; seed++) { /* what is hot agrees seldom */
                c.settings.sampling.seed = (uint64_t)seed;
                CHECK_EQUAL_INT(specdec_rewind(m.first, 0), SPECDEC_OK);
                CHECK_EQUAL_INT(specdec_set(m.first, &c.settings), SPECDEC_OK);
                CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, prompt, 3), SPECDEC_OK);
                while (specdec_step(m.first, &tokens, &count) == SPECDEC_OK)
                    continue;
            }
            CHECK(m.first->stats.drafted > 100);
            CHECK(m.first->stats.accepted > 0);
            close_machine(&m);
            free(target.data);
            free(draft.data);
        }
}

/* --- what does not fit ------------------------------------------------------------------------------------------------ */

/* A draft with something wrong. */
typedef struct flaw {
    const char *what;
    int pair;
    const char *key;    /* set to value, or removed: value < 0 */
    int value;
    const char *tensor; /* left out */
    specdec_result result;
    const char *words;
} flaw;

static const flaw flaws[] = {
    {"no size of a block", 0, "dflash.block_size", -1, NULL, SPECDEC_ERROR_FORMAT, "dflash.block_size is missing"},
    {"a block of one", 0, "dflash.block_size", 1, NULL, SPECDEC_ERROR_FORMAT, "dflash.block_size"},
    {"a block too large", 0, "dflash.block_size", 65, NULL, SPECDEC_ERROR_FORMAT, "dflash.block_size"},
    {"no mask", 0, "tokenizer.ggml.mask_token_id", -1, NULL, SPECDEC_ERROR_FORMAT, "mask_token_id is missing"},
    {"a mask that is no token", 0, "tokenizer.ggml.mask_token_id", VOCAB, NULL, SPECDEC_ERROR_FORMAT, "mask_token_id 301"},
    {"no layers that are read", 0, "dflash.target_layers", -1, NULL, SPECDEC_ERROR_FORMAT, "dflash.target_layers is missing"},
    {"no fc", 0, NULL, 0, "fc.weight", SPECDEC_ERROR_FORMAT, "fc.weight is missing"},
    {"no norm of it", 0, NULL, 0, "enc.output_norm.weight", SPECDEC_ERROR_FORMAT, "enc.output_norm.weight is missing"},
    {"states of another width", 0, "dflash.target_hidden_size", 96, NULL, SPECDEC_ERROR_FORMAT, "fc.weight"},
    {"half a Markov head", 1, NULL, 0, "markov_w2.weight", SPECDEC_ERROR_FORMAT, "markov_w2.weight is missing"},
    {"no confidence head", 1, NULL, 0, "conf_proj.weight", SPECDEC_ERROR_FORMAT, "conf_proj.weight is missing"},
    {"no rank of a selector", 3, "dflash.selector_rank", -1, NULL, SPECDEC_ERROR_FORMAT, "dflash.selector_rank is missing"},
    {"another rank of it", 3, "dflash.selector_rank", 64, NULL, SPECDEC_ERROR_FORMAT, "selector_predecessor.weight"},
    {"half a selector", 3, NULL, 0, "selector_successor.weight", SPECDEC_ERROR_FORMAT, "selector_successor.weight is missing"},
    {"groups that do not divide it", 3, "dflash.conv_group_size", 48, NULL, SPECDEC_ERROR_FORMAT, "conv_group_size 48 of 64"},
    {"convolutions of another size", 3, "dflash.conv_kernel_size", 4, NULL, SPECDEC_ERROR_FORMAT, "attn_conv_proj.weight"},
    {"no base of a convolution", 3, NULL, 0, "blk.1.ffn_conv_base", SPECDEC_ERROR_FORMAT, "blk.1.ffn_conv_base is missing"},
    {"no way into an assistant", 5, NULL, 0, "nextn.pre_projection.weight", SPECDEC_ERROR_FORMAT, "nextn.pre_projection.weight is missing"},
    {"no way out of it", 5, NULL, 0, "nextn.post_projection.weight", SPECDEC_ERROR_FORMAT, "nextn.post_projection.weight is missing"},
    {"no width of its states", 5, "gemma4-assistant.embedding_length_out", -1, NULL, SPECDEC_ERROR_FORMAT,
     "embedding_length_out is missing"},
    {"no embedding of its own", 5, NULL, 0, "token_embd.weight", SPECDEC_ERROR_FORMAT, "token_embd.weight is missing"},
    {"another number of kv heads", 5, "gemma4-assistant.attention.head_count_kv", 4, NULL, SPECDEC_ERROR_MISMATCH,
     "layer 0 of the draft reads 4 heads of 16 keys and 16 values, the target's layer 4 has 2 of 16 and 16"},
    {"a window too wide", 5, "gemma4-assistant.attention.sliding_window", 25, NULL, SPECDEC_ERROR_MISMATCH,
     "layer 0 of the draft sees a window of 25 keys, the target's layer 4 one of 24"}};

/* Another target than the one that a draft was made for. */
static void check_other_target(int k, const char *architecture, int layers, int embedding, int vocab, const char *words)
{
    maker_recipe r;
    file target, draft = make_draft(&pairs[k]);
    specdec_config c;

    memset(&r, 0, sizeof r);
    r.architecture = architecture;
    r.layers = layers;
    r.embedding = embedding;
    r.vocab = vocab;
    target = random_file(&r);
    c = config_of(&target, &draft);
    refused(words, &c, SPECDEC_ERROR_MISMATCH, words);
    free(target.data);
    free(draft.data);
}

static void test_flaws(void)
{
    static maker m;
    size_t i;

    TEST("drafts that are damaged or made for another target are refused, and the error names what differs");
    for (i = 0; i < sizeof flaws / sizeof flaws[0]; i++) {
        file target = make_target(&pairs[flaws[i].pair]), f;
        specdec_config c;

        maker_begin(&m, &pairs[flaws[i].pair].draft);
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
        free(target.data);
    }
    check_other_target(0, "qwen3", 1, 64, VOCAB, "states after 2 layers, the target has 1");
    check_other_target(0, "qwen3", 3, 96, VOCAB, "the draft reads states of 64, the target has states of 96");
    check_other_target(0, "qwen3", 3, 64, 280, "the draft model has another vocabulary: 301 tokens, the target 280");
    check_other_target(5, "gemma3", 6, 96, VOCAB, "the draft reads states of 64, the target has states of 96");
    check_other_target(5, "gemma3", 6, 64, 280, "the draft model has another vocabulary: 301 tokens, the target 280");
    check_other_target(5, "gemma3", 5, 64, VOCAB, "the target's layer 4 one of 24 (0: all keys)");
    check_other_target(5, "llama", 6, 64, VOCAB, "the target's layer 4 one of 0 (0: all keys)");
    check_other_target(5, "lfm2", 6, 64, VOCAB, "the draft reads the keys of the target's last two layers");
}

/* Files with some numbers changed, or cut off. */
static void test_damage(void)
{
    static maker m;
    uint64_t random = 21;
    int k, i, run = 0, tries = quick ? 40 : 400;

    TEST("a damaged draft is refused in words, or drafts, and changes no text");
    for (k = 0; k < PAIRS; k++) {
        file target = make_target(&pairs[k]), f;
        static const int32_t prompt[] = {5, 9, 70, 12};
        int32_t plain[8], got[8];
        specdec_config c = config_of(&target, NULL);
        size_t size;
        machine t;
        int fields;

        if (!open_machine(&t, &c))
            return;
        CHECK_EQUAL_INT(specdec_prompt_tokens(t.first, prompt, 4), SPECDEC_OK);
        for (i = 0; i < 8; i++) {
            const int32_t *tokens;
            int count;

            CHECK_EQUAL_INT(specdec_step(t.first, &tokens, &count), SPECDEC_OK);
            plain[i] = tokens[0];
        }
        close_machine(&t);
        maker_begin(&m, &pairs[k].draft);
        maker_write(&m);
        fields = m.fields;
        f.size = size = m.file.size;
        f.data = (unsigned char *)malloc(size);
        memcpy(f.data, m.file.data, size);
        c = config_of(&target, &f);
        for (i = 0; i < tries; i++) {
            const maker_field *field = &m.field[maker_random(&random) % (uint64_t)fields];
            unsigned char old[8];
            size_t bytes = 0;
            void *block = NULL;
            specdec *e = NULL;
            int n = 0, byte;

            const size_t place = size - 4 - maker_random(&random) % (size / 2) / 4 * 4;
            unsigned char weight[4];

            memcpy(weight, f.data + place, 4);
            if (i % 3 == 1)
                memset(f.data + place, 0xff, 4); /* a float that is none */
            memcpy(old, f.data + field->at, (size_t)field->width);
            for (byte = 0; byte < field->width; byte++)
                f.data[field->at + (size_t)byte] ^= (unsigned char)(maker_random(&random) % 3 ? 0 : 1u << maker_random(&random) % 8);
            c.draft.size = i % 8 ? size : (size_t)(maker_random(&random) % size);
            failure.text[0] = 0;
            if (!specdec_memory_needed(&c, &bytes, &failure) && bytes < (size_t)1 << 28 && (block = malloc(bytes)) != NULL &&
                !specdec_init(&e, &c, block, bytes, &failure)) {
                run++;
                CHECK_EQUAL_INT(specdec_prompt_tokens(e, prompt, 4), SPECDEC_OK);
                while (n < 8) {
                    const int32_t *tokens;
                    int count, j;

                    if (specdec_step(e, &tokens, &count))
                        break;
                    for (j = 0; j < count && n < 8; j++)
                        got[n++] = tokens[j];
                }
                CHECK(n == 8 && !memcmp(got, plain, sizeof got));
                specdec_deinit(e);
            } else {
                CHECK(failure.text[0] || bytes >= (size_t)1 << 28);
            }
            free(block);
            memcpy(f.data + field->at, old, (size_t)field->width);
            memcpy(f.data + place, weight, 4);
        }
        free(f.data);
        free(target.data);
        maker_free(&m);
    }
    printf("  %d damaged files drafted\n", run);
}

/* Logits of an assistant behind a text. */
static void root_of(const maker_recipe *r, guess *g)
{
    static specdec_sampling greedy;
    file target = make_target(&pairs[5]), draft = random_file(r);
    const specdec_config c = config_of(&target, &draft);
    int32_t text[31];
    machine m;
    int i;

    for (i = 0; i < 31; i++)
        text[i] = 3 + i * i * 11 % 290;
    if (open_machine(&m, &c)) {
        CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, text, 30), SPECDEC_OK);
        CHECK(ask(m.first, text, 31, &greedy, g));
        close_machine(&m);
    }
    free(target.data);
    free(draft.data);
}

static void test_centroids(void)
{
    maker_recipe r = pairs[8].draft;
    static guess all, most, few;
    int i, kept = 0, other = 0;

    TEST("an assistant's centroids leave the logits as they are of the tokens that they choose, and of the others none");
    root_of(&pairs[8].draft, &few);
    r.nearest = 7;
    root_of(&r, &most);
    r.centroids = 0;
    root_of(&r, &all);
    for (i = 0; i < VOCAB; i++) {
        CHECK(fabs((double)all.root[i] - (double)most.root[i]) < 1e-3);
        kept += few.root[i] > -1e30f;
        other += few.root[i] > -1e30f && memcmp(&few.root[i], &most.root[i], sizeof *few.root) != 0;
    }
    CHECK_EQUAL_INT(kept, 3 * 43);
    CHECK_EQUAL_INT(other, 0);
    CHECK(memcmp(all.tokens, most.tokens, sizeof all.tokens) == 0);
}

static const struct {
    const char *name;
    void (*run)(void);
} tests[] = {{"texts", test_texts}, {"bits", test_bits}, {"rules", test_rules}, {"flaws", test_flaws}, {"damage", test_damage}, {"centroids", test_centroids}};

int main(int argc, char **argv)
{
    size_t i;

    quick = getenv("SPECDEC_QUICK") != NULL;
    make_pairs();
    for (i = 0; i < sizeof tests / sizeof tests[0]; i++)
        if (argc < 2 || strcmp(argv[1], tests[i].name) == 0)
            tests[i].run();
    return check_report("test_block");
}
