/* test_triforce.c - the promises of two levels of speculation: the retrieval cache keeps what the published code keeps; its
   chunks are those that the queries attend to most; with nothing left out it guesses what the target writes; texts stay
   those of plain decoding, whatever is retrieved; each level is lossless by itself; a draft model reads no more than it was
   trained on. SPECDEC_QUICK=1 shortens.

   test_triforce [golden|scores|texts|levels|window|refusals] */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "check.h"
#include "gguf_maker.h"
#include "machine.h"
#include "statistics.h"
#include "../tools/lab/policies.h"

#define TARGET "examples/models/tiny-stories-target-q8_0.gguf"
#define DRAFT  "examples/models/tiny-stories-draft-q8_0.gguf"

static int quick;

static specdec_config config_of(const char *draft, int context)
{
    specdec_config c;

    memset(&c, 0, sizeof c);
    c.target.path = TARGET;
    c.draft.path = draft;
    c.context = context;
    c.threads = 2;
    return c;
}

/* A text of count tokens that says nothing twice in the same words. */
static void make_tokens(int32_t *tokens, int count, uint64_t seed)
{
    int i;

    for (i = 0; i < count; i++)
        tokens[i] = 100 + (int32_t)(maker_random(&seed) % 900);
}

static specdec__draft_recall *recall_of(const machine *m)
{
    return (specdec__draft_recall *)m->first->engine->drafters[0].state;
}

/* Lets a text write so many tokens behind its prompt. Returns how many came. */
static int write_tokens(specdec *t, int count, int32_t *out)
{
    const int32_t *tokens;
    int written = 0, n, i;

    while (written < count && !specdec_step(t, &tokens, &n))
        for (i = 0; i < n && written < count; i++)
            out[written++] = tokens[i];
    return written;
}

/* --- against the published code ------------------------------------------------------------------------------------- */

static void test_golden(void)
{
    enum { HEADS = 4 /* of both layers */, CHUNKS = 8, CHUNK = 4, KEPT = 4, NEW = 5 };
    const specdec__kernels *kernels;
    specdec__kernels table;
    char path[512];
    size_t size;
    char *json = (char *)check_read_file(check_shared(path, sizeof path, "refdata/triforce/retrieval_golden.json"), &size);
    const char *scores_at, *built_at, *later_at;
    int head, i;

    TEST("the chunks that are kept are those of the published retrieval cache, and new tokens displace the same ones");
    if (!json) {
        SKIP("refdata/triforce/retrieval_golden.json is not there");
        return;
    }
    CHECK_EQUAL_INT(specdec__kernels_init(&table, NULL, NULL), SPECDEC_OK);
    kernels = &table;
    scores_at = check_behind(json, "\"chunk_scores\":");
    built_at = check_behind(json, "\"slot_token_index_after_build\":");
    later_at = check_behind(json, "\"slot_token_index_after_5_generated\":");
    for (head = 0; head < HEADS; head++) {
        specdec_candidate chosen[KEPT];
        float scores[CHUNKS];

        for (i = 0; i < CHUNKS; i++)
            scores[i] = (float)check_next_number(&scores_at);
        specdec__retrieve_choose_chunks(kernels, scores, CHUNKS, KEPT, chosen);
        for (i = 0; i < KEPT * CHUNK; i++) {
            CHECK_EQUAL_INT(chosen[i / CHUNK].token * CHUNK + i % CHUNK, (int)check_next_number(&built_at));
            if (i >= KEPT * CHUNK - NEW) /* 32, 33, ...: what was written since */
                CHECK_EQUAL_INT((int)check_next_number(&later_at), CHUNKS * CHUNK + i - (KEPT * CHUNK - NEW));
            else
                CHECK_EQUAL_INT((int)check_next_number(&later_at), chosen[i / CHUNK].token * CHUNK + i % CHUNK);
        }
    }
    free(json);
}

/* --- what is chosen ------------------------------------------------------------------------------------------------- */

static int scored;
static double worst_score;

/* Dimension d of a key in a cache. */
static float key_at(const specdec__kv *kv, const specdec__layer *layer, int head, int slot, int d)
{
    const unsigned char *keys = specdec__kv_keys_address(kv, &kv->layer[layer->index], slot / SPECDEC__KEYS, head);
    float key;

    if (specdec__kv_types[kv->type].has_codes) {
        const unsigned char *block = keys + specdec__kv_key_block_offset(&kv->layer[layer->index], slot, d);

        return specdec__float_from_f16(specdec__load_u16(block + slot % 16 * 2)) *
               (float)(int8_t)block[32 + d % 32 / 4 * 64 + slot % 16 * 4 + d % 4];
    }
    if (kv->type == SPECDEC__KV_F16)
        return specdec__float_from_f16(specdec__load_u16(keys + ((size_t)d * SPECDEC__KEYS + (size_t)(slot % SPECDEC__KEYS)) * 2));
    memcpy(&key, keys + ((size_t)d * SPECDEC__KEYS + (size_t)(slot % SPECDEC__KEYS)) * 4, 4);
    return key;
}

/* What a query (dim) attends to, (count), among the keys in these slots of a cache of floats or codes: in double precision,
   by the dimensions of which `used` says so; NULL: all. */
static void attend(const float *query, const unsigned char *used, const specdec__kv *kv, const specdec__layer *layer, int head,
                   const int *slots, int count, double *weight)
{
    double highest = -1e30, sum = 0;
    int k, d;

    for (k = 0; k < count; k++) {
        for (weight[k] = d = 0; d < kv->dim; d++)
            if (!used || used[d])
                weight[k] += (double)query[d] * (double)key_at(kv, layer, head, slots[k], d);
        highest = fmax(highest, weight[k]);
    }
    for (k = 0; k < count; k++)
        sum += weight[k] = exp(weight[k] - highest);
    for (k = 0; k < count; k++)
        weight[k] /= sum;
}

static const float *query_of(const specdec__context *c, int row, int head)
{
    return c->rotated + ((size_t)row * (size_t)c->model->heads + (size_t)head) * (size_t)c->kv.dim;
}

/* used (dim): the quarter of the dimensions, or 16, in which the queries of a head in row 0 are largest, found by counting
   those that come before each one. All of them where keys are tiles. */
static void use_largest(const specdec__context *c, int head, unsigned char *used)
{
    const int group = c->model->heads / c->model->kv_heads, dim = c->kv.dim, few = dim / 4 > 16 ? dim / 4 : 16;
    float sizes[256] = {0};
    int q, d, i, before;

    for (d = 0; d < dim; d++)
        for (q = 0; q < group; q++)
            sizes[d] += fabsf(query_of(c, 0, head * group + q)[d]);
    for (d = 0; d < dim; d++) {
        for (before = i = 0; i < dim; i++)
            before += sizes[i] > sizes[d] || (sizes[i] == sizes[d] && i < d);
        used[d] = before < few || specdec__kv_types[c->kv.type].has_codes;
    }
}

/* Scores, and the same another way. */
static void check_scores(specdec__context *c, const struct specdec__retrieval *r, int thread, const specdec__layer *layer, int head,
                         float *scores)
{
    const int group = c->model->heads / c->model->kv_heads;
    double weight[600], worth[600] = {0};
    unsigned char used[256];
    int i, k, q, slots[600];

    specdec__retrieve_score_chunks(c, r, thread, layer, head, scores);
    specdec__view_find_slots_of_positions(&r->whole->span[SPECDEC__WHOLE], 0, r->whole->length, slots);
    use_largest(c, head, used);
    for (q = 0; q < group; q++) {
        attend(query_of(c, 0, head * group + q), used, &r->target->kv, layer, head, slots, r->whole->length, weight);
        for (k = 0; k < r->source_chunks * r->chunk; k++)
            worth[k / r->chunk] += weight[k];
    }
    for (i = 0; i < r->source_chunks; i++) {
        worst_score = fmax(worst_score, fabs(worth[i] - (double)scores[i]));
        scored++;
    }
}

/* limit: what the scores may be off by; those of 8-bit keys are of 8-bit queries, too. */
static void check_kind(const char *kv, double limit)
{
    specdec_config c = config_of(DRAFT, 600);
    int32_t tokens[301], out[40];
    machine m;

    scored = 0;
    worst_score = 0;
    c.drafting = SPECDEC_DRAFT_TRIFORCE;
    c.kv = kv;
    c.threads = 1;
    c.retrieval = 64;
    make_tokens(tokens, 301, 3);
    if (!open_machine(&m, &c))
        return;
    recall_of(&m)->cache.score_chunks = check_scores;
    CHECK_EQUAL_INT(recall_of(&m)->cache.few_dimensions, strcmp(kv, "q8_0") ? 16 : 0);
    CHECK(m.first->engine->target.kv.dim > 16);
    CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, tokens, 301), SPECDEC_OK);
    CHECK_EQUAL_INT(write_tokens(m.first, 40, out), 40);
    CHECK(scored > 100 && worst_score < limit);
    printf("  %d chunks, keys %s, off by %.1e at most\n", scored, kv, worst_score);
    close_machine(&m);
}

static void test_scores(void)
{
    TEST("a chunk is worth the attention that it gets from the queries of a kv head, by their largest dimensions");
    check_kind("f32", 1e-5);
    check_kind("f16", 1e-5);
    check_kind("q8_0", 0.05);
}

enum { WATCHED = 150 };

static double watched[WATCHED]; /* what the keys of the last layer and head got */

/* What policy_gather adds up, and the same another way. */
static void check_gather(specdec__context *c, int thread, const specdec__layer *layer)
{
    const int group = c->model->heads / c->model->kv_heads, head = c->model->kv_heads - 1;
    const specdec__view *view = c->batch->views[c->first_node];
    double weight[WATCHED];
    int slots[WATCHED], i, q, k;

    policy_gather(c, thread, layer);
    if (layer != &c->model->layer[c->model->layers - 1])
        return;
    specdec__view_find_slots_of_positions(&view->span[SPECDEC__WHOLE], 0, view->length, slots);
    for (i = 0; i < c->n; i++) {
        slots[view->length + i] = c->slots[SPECDEC__WHOLE][c->first_node + i];
        for (q = 0; q < group; q++) {
            attend(query_of(c, i, head * group + q), NULL, &c->kv, layer, head, slots, view->length + i + 1, weight);
            for (k = 0; k <= view->length + i; k++)
                watched[k] += weight[k];
        }
    }
}

static void test_heavy(void)
{
    static const struct { const char *kv; double limit; } kinds[] = {{"f32", 1e-4}, {"f16", 1e-4}, {"q8_0", 0.1}};
    int32_t tokens[WATCHED];
    int i, k;

    TEST("H2O's sums are all the attention that each key got");
    make_tokens(tokens, WATCHED, 4);
    for (i = 0; i < 3; i++) {
        specdec_config c = config_of(NULL, 200);
        specdec__context *target;
        double off = 0, all = 0;
        policy_watch w;
        machine m;

        c.drafting = SPECDEC_DRAFT_OFF;
        c.kv = kinds[i].kv;
        c.threads = 1;
        c.batch = 40;
        if (!open_machine(&m, &c))
            return;
        target = &m.first->engine->target;
        memset(watched, 0, sizeof watched);
        CHECK(policy_watch_init(&w, target, 200));
        target->before_attention_argument = &w;
        target->before_attention = check_gather;
        CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, tokens, WATCHED), SPECDEC_OK);
        for (k = 0; k < WATCHED; k++) {
            const float sum = policy_sums(&w, &target->model->layer[target->model->layers - 1],
                                          target->model->kv_heads - 1)[k];

            off = fmax(off, fabs(watched[k] - (double)sum));
            all += (double)sum;
        }
        CHECK(off < kinds[i].limit);
        CHECK(fabs(all - (double)m.first->view.length * target->model->heads / target->model->kv_heads) < 1e-2);
        printf("  keys %s, %.3f in all, off by %.1e at most\n", kinds[i].kv, all, off);
        policy_watch_end(&w);
        close_machine(&m);
    }
}

/* What the chunks of a small cache were worth: a sum of the bits of all scores, by layer and head, which one thread at a
   time adds to. */
enum { WATCHED_HEADS = 64 };
static uint64_t score_bits[WATCHED_HEADS];
static long chosen_times[WATCHED_HEADS];

static void watch_scores(specdec__context *c, const struct specdec__retrieval *r, int thread, const specdec__layer *layer, int head,
                         float *scores)
{
    const int at = layer->index * c->model->kv_heads + head;
    int i;

    specdec__retrieve_score_chunks(c, r, thread, layer, head, scores);
    for (i = 0; i < r->source_chunks && at < WATCHED_HEADS; i++)
        score_bits[at] = score_bits[at] * 31 + specdec__bits_from_float(scores[i]);
    chosen_times[at % WATCHED_HEADS]++;
}

static void test_same_bits(void)
{
    static const char *const kinds[] = {"f16", "f32", "q8_0"};
    static const struct { int threads; const char *isa; } ways[] = {{1, NULL}, {2, NULL}, {5, NULL}, {2, "scalar"}};
    int32_t tokens[250], first[40], out[40];
    int k, i, at;

    TEST("chunks are worth the same, bit for bit, at every thread count and instruction set");
    make_tokens(tokens, 250, 6);
    for (k = 0; k < 3; k++) {
        uint64_t bits[WATCHED_HEADS];
        long times[WATCHED_HEADS];

        for (i = 0; i < 4; i++) {
            specdec_config c = config_of(k ? DRAFT : NULL, 600);
            machine m;

            c.drafting = SPECDEC_DRAFT_TRIFORCE;
            c.kv = kinds[k];
            c.threads = ways[i].threads;
            c.isa = ways[i].isa;
            c.retrieval = 64;
            c.settings.sampling.temperature = 0.9f;
            c.tree_size = c.tree_depth = 9; /* a chain, whatever steps cost */
            if (!open_machine(&m, &c))
                return;
            memset(score_bits, 0, sizeof score_bits);
            memset(chosen_times, 0, sizeof chosen_times);
            recall_of(&m)->cache.score_chunks = watch_scores;
            CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, tokens, 250), SPECDEC_OK);
            CHECK_EQUAL_INT(write_tokens(m.first, 40, i ? out : first), 40);
            if (i) {
                CHECK(memcmp(first, out, sizeof first) == 0);
                for (at = 0; at < WATCHED_HEADS; at++) {
                    CHECK(bits[at] == score_bits[at]);
                    CHECK_EQUAL_INT(times[at], chosen_times[at]);
                }
            }
            memcpy(bits, score_bits, sizeof bits);
            memcpy(times, chosen_times, sizeof times);
            close_machine(&m);
        }
        CHECK(times[0] > 8);
    }
}

static int chosen_at[64], choices; /* tokens at which chunks were chosen, and how often */

/* A cache that keeps every chunk, in order, must guess right every time: the sums differ in their order alone. */
static void keep_order(specdec__context *c, const struct specdec__retrieval *r, int thread, const specdec__layer *layer, int head,
                       float *scores)
{
    int i;

    (void)thread;
    if (layer == &c->model->layer[0] && !head && choices < 64)
        chosen_at[choices++] = r->view->next_position;
    for (i = 0; i < r->source_chunks; i++)
        scores[i] = (float)-i;
}

/* In a chain of so many guesses behind token `first` chunks are chosen for the first guess, and then for the first one
   of a step that is far enough behind. */
static void check_choices(int first, int chain)
{
    int i;

    CHECK(choices > chain / (SPECDEC__RETRIEVE_CHOICE_TOKENS + SPECDEC__RECALL_TREE_NODES));
    CHECK(choices <= (chain + SPECDEC__RETRIEVE_CHOICE_TOKENS - 1) / SPECDEC__RETRIEVE_CHOICE_TOKENS);
    for (i = 0; i < choices; i++) {
        const int behind = i ? chosen_at[i] - chosen_at[i - 1] : 0;

        CHECK(i || chosen_at[0] == first);
        CHECK(!i || (behind >= SPECDEC__RETRIEVE_CHOICE_TOKENS &&
                     behind < SPECDEC__RETRIEVE_CHOICE_TOKENS + SPECDEC__RECALL_TREE_NODES));
    }
}

static void test_whole(void)
{
    enum { PROMPT = 200, CHAIN = 12 };
    static const char *const kinds[] = {"f16", "f32", "q8_0"};
    int32_t tokens[PROMPT];
    int k, i;

    TEST("with nothing left out, what is guessed is what the target writes; chunks are chosen anew for every few guesses");
    make_tokens(tokens, PROMPT, 5);
    for (k = 0; k < 3; k++) {
        specdec_config c = config_of(k ? DRAFT : NULL, 600);
        int32_t guessed[CHAIN + 1], written[CHAIN + 1];
        specdec__draft_recall *d;
        specdec__proposal *p;
        int done = 0;
        machine m;

        c.drafting = SPECDEC_DRAFT_TRIFORCE;
        c.kv = kinds[k];
        c.retrieval = 600;
        c.retrieval_chunk = 1;
        if (!open_machine(&m, &c))
            return;
        d = recall_of(&m);
        d->cache.score_chunks = keep_order;
        d->cache.chunks = PROMPT; /* all */
        d->cache.recent = 0;
        CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, tokens, PROMPT), SPECDEC_OK);
        specdec__engine_decode_first_token(m.first);
        guessed[0] = m.first->tokens[PROMPT];
        p = &m.first->engine->drafters[0].proposals[0];
        choices = 0;
        CHECK(specdec__retrieve_begin_chain(&d->cache, 0, &m.first->view));
        specdec__draft_begin_proposal(p, m.first->tokens, m.first->count, &m.first->settings.sampling,
                                      SPECDEC_RULE_COUPLED);
        specdec_tree_chains(&p->drafts.tree, 1, CHAIN, NULL);
        specdec_tree_depth(&p->drafts.tree, p->drafts.depth);
        d->level_state.chooser.sampling = p->request.sampling;
        d->sampling = *p->request.sampling;
        while (done < CHAIN) {
            CHECK_EQUAL_INT(specdec__draft_recall_run_first_level(d, &p->request, &p->drafts, done, NULL), SPECDEC_OK);
            specdec__draft_recall_verify_first_level(d, &p->request, &p->drafts, &done);
        }
        check_choices(PROMPT, CHAIN);
        memcpy(guessed + 1, p->drafts.tokens + 1, CHAIN * sizeof *guessed);
        m.first->engine->config.drafting = SPECDEC_DRAFT_OFF;
        CHECK_EQUAL_INT(write_tokens(m.first, CHAIN + 1, written), CHAIN + 1);
        for (i = 0; i <= CHAIN; i++)
            CHECK_EQUAL_INT(guessed[i], written[i]);
        close_machine(&m);
    }
}

/* --- texts ---------------------------------------------------------------------------------------------------------- */

/* One prompt, written plainly and with two levels. Returns how many nodes the second level accepted of those offered. */
static double same_text(const specdec_config *config, const int32_t *tokens, int count, int length)
{
    int32_t *plain = (int32_t *)malloc(2 * (size_t)length * sizeof *plain), *guessed = plain + length;
    specdec_config off = *config;
    specdec_stats stats;
    double rate = 0;
    int n = 0, k = 0;
    machine m;

    off.drafting = SPECDEC_DRAFT_OFF;
    if (open_machine(&m, &off)) {
        CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, tokens, count), SPECDEC_OK);
        n = write_tokens(m.first, length, plain);
        close_machine(&m);
    }
    if (open_machine(&m, config)) {
        CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, tokens, count), SPECDEC_OK);
        k = write_tokens(m.first, length, guessed);
        specdec_get_stats(m.first, &stats);
        CHECK(stats.steps_by_drafter[SPECDEC_DRAFT_TRIFORCE] > 0);
        rate = (double)stats.accepted_by_rank[0] / (double)(stats.offered_by_rank[0] ? stats.offered_by_rank[0] : 1);
        close_machine(&m);
    }
    CHECK_EQUAL_INT(k, n);
    CHECK(n > 0 && memcmp(plain, guessed, (size_t)n * sizeof *plain) == 0);
    free(plain);
    return rate;
}

/* Those of 8,000 and 16,000 tokens take minutes, and are written when these texts alone are asked for. */
static void test_texts(int count)
{
    static const char *const kinds[] = {"f16", "f32", "q8_0"};
    static const int lengths[] = {1000, 2000, 4000, 8000, 16000};
    int32_t *tokens = (int32_t *)malloc(16000 * sizeof *tokens);
    int i;

    TEST("two levels write the text of plain decoding: greedily and sampled, at 1,000 to 16,000 tokens, on every kind of cache");
    make_tokens(tokens, 16000, 9);
    for (i = 0; i < count; i++) {
        const int length = lengths[count < 12 ? 0 : i / 4];
        specdec_config c = config_of(i % 2 ? DRAFT : NULL, length + 200);
        double rate;

        c.drafting = SPECDEC_DRAFT_TRIFORCE;
        c.kv = kinds[i % 3];
        c.settings.sampling.temperature = i / 2 % 2 ? 0.9f : 0;
        c.settings.sampling.seed = (uint64_t)i;
        c.retrieval = i % 4 < 2 ? 128 : 0;
        c.retrieval_chunk = i % 5 == 4 ? 3 : 0;
        c.tree_size = i % 4 == 2 ? 3 : 0; /* below that of the first level's trees, here by n-grams */
        rate = same_text(&c, tokens, length, 100);
        printf("  %d tokens, %s, temperature %.1f, %s: %.2f of guesses right\n", length, c.kv,
               (double)c.settings.sampling.temperature, c.draft.path ? "draft model" : "n-grams", rate);
    }
    free(tokens);
}

/* Tokens that do not fill a chunk are copied as they are, up to a chunk less one on top of the newest. */
static void test_chunks(void)
{
    static const int chunks[] = {10, 13, 32, 64};
    int32_t tokens[300];
    int i, k;

    TEST("chunks that are long for the small cache: texts stay, and all that is copied has its place");
    make_tokens(tokens, 300, 21);
    for (i = 0; i < 4; i++)
        for (k = 0; k < 2; k++) {
            specdec_config c = config_of(NULL, 400);
            machine m;

            c.drafting = SPECDEC_DRAFT_TRIFORCE;
            c.retrieval = k ? 64 : 16;
            c.retrieval_chunk = chunks[i];
            if (open_machine(&m, &c)) {
                CHECK(recall_of(&m)->cache.recent + chunks[i] - 1 <= recall_of(&m)->cache.most);
                close_machine(&m);
            }
            same_text(&c, tokens, 190 + chunks[i], 70);
        }
}

/* How often the first level's drafter is asked, and what for. */
static struct {
    specdec__drafter_kind kind;
    const specdec__proposal *outer;
    int asked, in_vain, branched, guessed;
} inner;

static specdec_result inner_fill(specdec__drafter *d, const specdec__draft_request *request, specdec__draft_tree *drafts, specdec_error *error)
{
    const int left = inner.outer->drafts.tree.n - 1 - (request->count - inner.outer->request.count);
    const specdec_result result = inner.kind.fill_tree(d, request, drafts, error);
    int i;

    inner.asked++;
    inner.in_vain += left < 2 || specdec_tree_depth(&drafts->tree, NULL) > left;
    for (i = 1; i < inner.outer->drafts.tree.n; i++)
        inner.branched += inner.outer->drafts.tree.parents[i] != i - 1;
    return result;
}

/* Writes behind a prompt with two levels and watches the first. */
static void watch_inner(machine *m, const int32_t *tokens, int count, int length)
{
    int32_t *out = (int32_t *)malloc((size_t)length * sizeof *out);
    specdec__draft_recall *r = recall_of(m);
    specdec_stats stats;

    memset(&inner, 0, sizeof inner);
    inner.outer = &m->first->engine->drafters[0].proposals[0];
    inner.kind = r->first_drafter.kind;
    r->first_drafter.kind.fill_tree = inner_fill;
    CHECK_EQUAL_INT(specdec_prompt_tokens(m->first, tokens, count), SPECDEC_OK);
    CHECK_EQUAL_INT(write_tokens(m->first, length, out), length);
    specdec_get_stats(m->first, &stats);
    inner.guessed = (int)stats.drafted;
    free(out);
}

static void test_first_level(void)
{
    double rates[2] = {0, 0};
    int32_t tokens[400];
    int i;

    make_tokens(tokens, 400, 31);
    TEST("the first level guesses what the second wants: with the top-k rule, the small cache's likeliest tokens");
    for (i = 0; i < 2; i++) {
        specdec_config c = config_of(TARGET, 700); /* its own draft model, but for what the cache lacks */
        machine m;

        c.drafting = SPECDEC_DRAFT_TRIFORCE;
        c.retrieval = 300;
        c.rule = SPECDEC_RULE_TOP_K;
        c.settings.sampling.temperature = i ? 1.0f : 0;
        if (!open_machine(&m, &c))
            return;
        watch_inner(&m, tokens, 400, 150);
        rates[i] = (double)inner.guessed / inner.asked;
        printf("  temperature %d: %.2f of its tokens a step\n", i, rates[i]);
        close_machine(&m);
    }
    CHECK(rates[1] > 0.9 * rates[0]);
}

/* Occurrences that an index of n-grams counts, as it was told of them. */
static int counted(const specdec__ngram *index)
{
    int i, sum = 0;

    for (i = 1; i < index->count; i++)
        sum += index->runs[i].depth == 1 ? index->runs[i].count : 0;
    return sum;
}

static void test_chains(void)
{
    static const struct { int size, depth, chain; } trees[] = {{16, 4, 4}, {16, 0, 13}, {8, 8, 8}, {32, 6, 6}};
    int32_t tokens[400];
    specdec__tune tune;
    specdec__tree_plan plan;
    int i, k, n;

    make_tokens(tokens, 400, 32);
    for (k = 200; k < 400; k++) /* there is something to be found */
        tokens[k] = tokens[k - 200];
    TEST("two levels draft chains, whatever the tree's size and depth, and n-grams count what was written");
    for (i = 0; i < 4; i++) {
        specdec_config c = config_of(NULL, 700);
        const specdec__ngram *index;
        machine m;

        c.drafting = SPECDEC_DRAFT_TRIFORCE;
        c.retrieval = 64;
        c.tree_size = trees[i].size;
        c.tree_depth = trees[i].depth;
        if (!open_machine(&m, &c))
            return;
        CHECK_EQUAL_INT(m.first->engine->fixed_tree.n, trees[i].chain);
        watch_inner(&m, tokens, 400, 100);
        CHECK_EQUAL_INT(inner.branched, 0);
        index = (const specdec__ngram *)recall_of(&m)->first_drafter.state;
        CHECK_EQUAL_INT(counted(index), index->readers[0].length);
        close_machine(&m);
    }
    TEST("the first level guesses no further than the chain has places");
    for (i = 0; i < 2; i++) {
        specdec_config c = config_of(i ? DRAFT : NULL, 700);
        machine m;

        c.drafting = SPECDEC_DRAFT_TRIFORCE;
        c.retrieval = 64;
        c.tree_size = c.tree_depth = 4;
        if (!open_machine(&m, &c))
            return;
        watch_inner(&m, tokens, 400, 150);
        printf("  %d guesses, %d times somebody guessed for them\n", inner.guessed, inner.asked);
        CHECK_EQUAL_INT(inner.in_vain, 0);
        close_machine(&m);
    }
    TEST("what auto lets them draft is the chain that pays best");
    memset(&plan, 0, sizeof plan);
    plan.most = 32;
    for (k = 0; k <= 32; k++)
        plan.times[k] = 1 + 0.02 * (k - 1);
    for (i = 1; i < 20; i++) {
        int32_t parents[32], ranks[32], best = 1;
        double p[SPECDEC__TUNE_RANKS], expected = 1, rate, found = 1, node = 1;
        specdec__proposal q;

        memset(&tune, 0, sizeof tune);
        memset(&q, 0, sizeof q);
        specdec__tune_add_drafter(&tune, 0.1, 1);
        tune.drafters[0].accepted[0] = tune.drafters[0].offered[0] * i / 20;
        specdec__tune_acceptance_by_rank(&tune.drafters[0], p);
        q.drafts.tree.parents = parents;
        q.drafts.tree.ranks = ranks;
        q.drafts.tree.capacity = 32;
        q.request.max_levels = 12;
        plan.rate = plan.plain_rate = 1;
        specdec__tune_shape_tree(&tune.drafters[0], &q, &plan, 0);
        for (n = 2; n <= 12; n++) { /* a level costs .02 + .1 */
            expected += node *= p[0];
            rate = expected / (plan.times[n] + 0.12 * n);
            best = rate > found ? n : best;
            found = rate > found ? rate : found;
        }
        CHECK_EQUAL_INT(q.drafts.tree.n, found > 1.02 ? best : 1);
        for (n = 1; n < q.drafts.tree.n; n++)
            CHECK_EQUAL_INT(parents[n], n - 1);
    }
}

/* --- each level is lossless ----------------------------------------------------------------------------------------- */

/* A token drawn from a distribution over two, with noise of this seed. */
static int32_t drawn(const float *p, uint64_t seed, uint64_t position)
{
    specdec_candidate items[2], best;
    specdec_candidates c;
    int i;

    memset(&c, 0, sizeof c);
    c.items = items;
    c.count = 2;
    for (i = 0; i < 2; i++) {
        items[i].token = i;
        items[i].logit = (float)log((double)p[i]);
    }
    specdec_sample_top(&c, seed, position, 1, &best);
    return best.token;
}

/* How far counts of two outcomes are from a probability, in standard deviations. */
static double off(long count, long all, double p) { return fabs((double)count - (double)all * p) / sqrt((double)all * p * (1 - p)); }

static void test_levels(void)
{
    static const float draft[2] = {0.9f, 0.1f}, middle[2] = {0.5f, 0.5f}, target[2] = {0.2f, 0.8f};
    static const specdec_rule rules[] = {SPECDEC_RULE_COUPLED, SPECDEC_RULE_SEQUOIA, SPECDEC_RULE_SPECINFER, SPECDEC_RULE_SPECTR,
                                         SPECDEC_RULE_TOP_K};
    const long draws = statistics_draws();
    int k;

    TEST("(.9, .1) guessed for (.5, .5), and that for (.2, .8): what is written is (.2, .8), by every rule");
    for (k = 0; k < 5; k++) {
        specdec_sampling s;
        long first = 0, written = 0, hits[2] = {0, 0}, i;

        memset(&s, 0, sizeof s);
        s.seed = 77;
        for (i = 0; i < draws; i++) {
            const uint64_t seed = rules[k] == SPECDEC_RULE_COUPLED ? s.seed : specdec__draft_child_seed(&s, rules[k], 1);
            const int32_t guess = drawn(draft, seed, (uint64_t)i), chain = drawn(middle, seed, (uint64_t)i);
            specdec_verdict verdict;
            specdec_uniform random;
            specdec_choice choice;

            memset(&verdict, 0, sizeof verdict);
            hits[0] += guess == chain;
            first += chain == 0;
            random.seed = s.seed;
            random.position = (uint64_t)i;
            random.decision = 0;
            choice.target = target;
            choice.draft = middle;
            choice.children = &chain;
            choice.vocab = 2;
            choice.child_count = 1;
            choice.random = &random;
            if (rules[k] == SPECDEC_RULE_COUPLED)
                specdec_verify_match(&verdict, &chain, 1, drawn(target, s.seed, (uint64_t)i));
            else
                CHECK_EQUAL_INT(specdec_verify(rules[k], &choice, &verdict, NULL), SPECDEC_OK);
            hits[1] += verdict.child == 0;
            written += verdict.token == 0;
        }
        CHECK(off(first, draws, 0.5) < 4.5);
        CHECK(off(written, draws, 0.2) < 4.5);
        CHECK(hits[0] > draws / 2 && hits[1] > draws / 3);
        printf("  rule %d: %.4f of the first token; %.3f and %.3f of guesses accepted\n", (int)rules[k],
               (double)written / (double)draws, (double)hits[0] / (double)draws, (double)hits[1] / (double)draws);
    }
}

/* --- a draft model's window ------------------------------------------------------------------------------------------ */

static void test_window(void)
{
    specdec_config c = config_of(DRAFT, 2000);
    int32_t *tokens = (int32_t *)malloc(1500 * sizeof *tokens), *short_text = (int32_t *)malloc(1500 * sizeof *tokens), out[64];
    machine long_one, fresh;
    int i, checked = 0;

    TEST("behind the length it was trained on, a draft model guesses as behind the text's first and last tokens alone");
    make_tokens(tokens, 1500, 21);
    c.drafting = SPECDEC_DRAFT_MODEL;
    if (open_machine(&long_one, &c) && open_machine(&fresh, &c)) {
        specdec__drafter *d[2];
        specdec__draft_model *m[2];

        d[0] = &long_one.first->engine->drafters[0];
        d[1] = &fresh.first->engine->drafters[0];
        m[0] = (specdec__draft_model *)d[0]->state;
        m[1] = (specdec__draft_model *)d[1]->state;
        CHECK_EQUAL_INT(m[0]->window, 512 - 5); /* less a tree */
        CHECK(m[0]->views[0].max_segments < 20);
        for (i = 400; i < 1500; i += 1 + i % 7) {
            specdec__proposal *p = &d[0]->proposals[0], *q = &d[1]->proposals[0];
            const specdec_sampling *s = &long_one.first->settings.sampling;
            int kept;

            if (i % 3 == 0)
                specdec__draft_model_truncate_sequence(d[0], 0, tokens, i - 3);
            specdec__draft_begin_proposal(p, tokens, i, s, SPECDEC_RULE_COUPLED);
            CHECK_EQUAL_INT(specdec__draft_model_begin_tree(d[0], &p->request, &p->drafts, NULL), SPECDEC_OK);
            kept = i - m[0]->skipped[0];
            CHECK(kept <= m[0]->window && m[0]->views[0].length == kept);
            CHECK_EQUAL_INT(specdec__draft_model_count_unprefilled(d[0], 0, i + 1), i + 1 - m[0]->skipped[0] > m[0]->window ? (507 + 16) / 2 : 1);
            memcpy(short_text, tokens, SPECDEC__DRAFT_SINKS * sizeof *tokens);
            memcpy(short_text + SPECDEC__DRAFT_SINKS, tokens + SPECDEC__DRAFT_SINKS + m[0]->skipped[0],
                   (size_t)(kept - SPECDEC__DRAFT_SINKS) * sizeof *tokens);
            specdec__draft_model_truncate_sequence(d[1], 0, tokens, 0);
            specdec__draft_begin_proposal(q, short_text, kept, s, SPECDEC_RULE_COUPLED);
            CHECK_EQUAL_INT(specdec__draft_model_begin_tree(d[1], &q->request, &q->drafts, NULL), SPECDEC_OK);
            CHECK(memcmp(m[0]->level_state.logits, m[1]->level_state.logits, m[0]->level_state.stride * sizeof(float)) == 0);
            checked += m[0]->skipped[0] > 0;
        }
        CHECK(checked > 100);
        specdec__draft_model_truncate_sequence(d[0], 0, tokens, 200); /* what was left out counts again */
        CHECK_EQUAL_INT(m[0]->skipped[0], 0);
        CHECK(m[0]->views[0].length <= SPECDEC__DRAFT_SINKS);
    }
    close_machine(&long_one);
    close_machine(&fresh);
    free(tokens);
    free(short_text);

    TEST("a text far longer than the draft model's own context is that of plain decoding");
    tokens = (int32_t *)malloc(700 * sizeof *tokens);
    make_tokens(tokens, 700, 22);
    for (i = 0; i < 2; i++) {
        specdec_config off = config_of(NULL, 1000);
        int32_t plain[64];

        off.drafting = SPECDEC_DRAFT_OFF;
        c = config_of(DRAFT, 1000);
        c.drafting = i ? SPECDEC_DRAFT_AUTO : SPECDEC_DRAFT_MODEL;
        if (open_machine(&fresh, &off)) {
            CHECK_EQUAL_INT(specdec_prompt_tokens(fresh.first, tokens, 700), SPECDEC_OK);
            CHECK_EQUAL_INT(write_tokens(fresh.first, 64, plain), 64);
            close_machine(&fresh);
        }
        if (open_machine(&fresh, &c)) {
            CHECK_EQUAL_INT(specdec_prompt_tokens(fresh.first, tokens, 700), SPECDEC_OK);
            CHECK_EQUAL_INT(write_tokens(fresh.first, 64, out), 64);
            CHECK(memcmp(plain, out, sizeof plain) == 0);
            close_machine(&fresh);
        }
    }
    free(tokens);
}

static void test_refusals(void)
{
    specdec_config c = config_of(DRAFT, 400);

    TEST("retrieval out of range is refused, in words");
    c.retrieval = 15;
    refused("too few tokens", &c, SPECDEC_ERROR_ARGUMENT, "config.retrieval is 15 ");
    c.retrieval = -1;
    refused("a negative number of tokens", &c, SPECDEC_ERROR_ARGUMENT, "config.retrieval is -1 ");
    c.retrieval = 64;
    c.retrieval_chunk = 65;
    refused("a chunk of more than a page", &c, SPECDEC_ERROR_ARGUMENT, "config.retrieval_chunk is 65 ");
}

int main(int argc, char **argv)
{
    const char *only = argc > 1 ? argv[1] : "";

    quick = getenv("SPECDEC_QUICK") != NULL;
    if (!*only || !strcmp(only, "golden"))
        test_golden();
    if (!*only || !strcmp(only, "scores")) {
        test_scores();
        test_heavy();
        test_whole();
        test_same_bits();
    }
    if (!*only || !strcmp(only, "texts")) {
        test_texts(*only ? 20 : quick ? 6 : 12);
        test_chunks();
        test_first_level();
        test_chains();
    }
    if (!*only || !strcmp(only, "levels"))
        test_levels();
    if (!*only || !strcmp(only, "window"))
        test_window();
    if (!*only || !strcmp(only, "refusals"))
        test_refusals();
    return check_report("test_triforce");
}
