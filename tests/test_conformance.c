/* test_conformance.c - the same bits, and the right ones: logits of models of every type against exact ones, and against
   each other at every width, thread count, tree shape, placement in the cache, weight layout and instruction set; single
   kernels of every instruction set on what models seldom hold.
   cc -O2 -pthread -I.. test_conformance.c; SPECDEC_QUICK=1 shortens, SPECDEC_FULL=1 runs every combination. With an argument
   only the part of that name runs: see main. */
#include "../src/model/open.h"
#include "../src/forward/step.h"
#include "../src/speculation/row.h"
#include "check.h"
#include "gguf_maker.h"
#include "pages.h"
#include <math.h>

#define NODES 128   /* of a step */
#define ROOM 1024   /* tokens of a context */

enum { CHAIN, TREE, SCATTERED, SHAPES };

/* One way to compute the rows. */
typedef struct way {
    const struct specdec__isa *isa;
    int threads, width, kv, repacked, shape;
} way;

static int quick, full, emulated; /* emulated: a quarter of the ways of quick ones */

/* A model opened on the heap. */
typedef struct subject {
    const unsigned char *data;
    size_t size;
    const char *name;
    const int32_t *tokens;
    int count;
} subject;

/* The next batch: `width` tokens of the text, in a tree among siblings and their children that have other tokens. */
static int batch_of(const subject *s, const way *w, int from, int width, int vocab, int32_t *tokens, int32_t *parents, int *path)
{
    int n = 0, j;

    for (j = 0; j < width; j++) {
        int parent = j ? path[j - 1] : -1;

        if (w->shape != CHAIN && n + 2 * (width - j) < NODES) {
            tokens[n] = (s->tokens[from + j] + 17) % vocab;
            parents[n++] = parent;
            if (j % 2 && n + 2 * (width - j) < NODES) {
                tokens[n] = 5;
                parents[n] = n - 1;
                n++;
            }
        }
        tokens[n] = s->tokens[from + j];
        parents[n] = parent;
        path[j] = n++;
    }
    return n;
}

/* Rows of logits (count, vocab) into rows. Returns 0 when the model cannot be run. */
static int run(const subject *s, const way *w, specdec__model *m, float *rows)
{
    static int32_t tokens[NODES], parents[NODES];
    static specdec__view *views[NODES];
    specdec_hooks hooks;
    specdec_source source = {NULL, NULL, 0, NULL, 0};
    specdec_error error = {SPECDEC_OK, ""};
    specdec__kernels kernels;
    specdec__pool pool;
    specdec__context c;
    specdec__kv_demand room = {1, ROOM, ROOM, NODES, 2 * NODES, 0, NODES, 0};
    specdec__view view;
    specdec__arena arena = {NULL, 0, 0};
    int cancel = 0, path[NODES], i, j, pass, good = 1, width, n;
    void *block = NULL;

    memset(&hooks, 0, sizeof hooks);
    source.data = s->data;
    source.size = s->size;
    if (specdec__kernels_init(&kernels, w->isa->name, &error))
        return 0;
    for (pass = 0; pass < 2 && good; pass++) { /* count, then lay out */
        if (pass) {
            arena.size = arena.used;
            block = pages_take(arena.used);
            if (!block)
                return 0;
            arena.base = (unsigned char *)block;
            arena.used = 0;
        }
        good = !specdec__pool_init(&pool, w->threads, &cancel, NULL, &arena, &error) &&
               !specdec__model_init(m, &source, 0, NULL, &arena, &error) &&
               (!w->repacked || !specdec__model_repack_matrices(m, 0, &arena, &pool, &hooks, &error));
        if (good)
            specdec__context_init(&c, m, NULL, &kernels, &pool, w->threads, w->kv, &room, NODES, &arena);
        if (good)
            specdec__context_init_view(&c, &view, &room, 0, &arena);
    }
    if (!good || arena.used == SIZE_MAX) {
        fprintf(stderr, "%s: %s\n", s->name, error.text);
        return 0;
    }
    for (i = 0; i < NODES; i++)
        views[i] = &view;
    for (i = 0; i < s->count && good; i += width) {
        specdec__batch batch;

        width = specdec__min_int(w->width, s->count - i);
        memset(&batch, 0, sizeof batch);
        batch.tokens = tokens;
        batch.parents = parents;
        batch.views = views;
        if (w->shape == SCATTERED && i % 48 < width) { /* other tokens come and go first, so that pages are handed out in another order */
            for (j = 0; j < 70; j++) {
                tokens[j] = j;
                parents[j] = j - 1;
                path[j] = j;
            }
            batch.n = 70;
            good = !specdec__forward(&c, &batch, &error);
            specdec__view_commit(&view, &c.kv, path, i % 2 ? 70 : 3);
            specdec__view_truncate(&view, &c.kv, i);
        }
        batch.n = n = batch_of(s, w, i, width, m->vocab_size, tokens, parents, path);
        if (n > 3 && w->shape == TREE) { /* level by level, as drafters do: the first half alone, then the rest */
            batch.n = n / 2;
            good = good && !specdec__forward(&c, &batch, &error);
            for (j = 0; j < width && path[j] < n / 2; j++)
                memcpy(rows + (size_t)(i + j) * (size_t)m->vocab_size, c.logits + (size_t)path[j] * (size_t)m->vocab_size, (size_t)m->vocab_size * 4);
            batch.done_count = n / 2;
            batch.n = n;
        } else {
            j = 0;
        }
        good = good && !specdec__forward(&c, &batch, &error);
        for (; j < width; j++)
            memcpy(rows + (size_t)(i + j) * (size_t)m->vocab_size, c.logits + (size_t)(path[j] - batch.done_count) * (size_t)m->vocab_size, (size_t)m->vocab_size * 4);
        specdec__view_commit(&view, &c.kv, path, width);
    }
    if (!good)
        fprintf(stderr, "%s: %s\n", s->name, error.text);
    specdec__pool_deinit(&pool);
    pages_free(arena.base);
    return good;
}

static int same_rows(const subject *s, const way *w, const float *expected, float *rows, int vocab)
{
    specdec__model model;
    size_t i, count = (size_t)s->count * (size_t)vocab;

    if (!run(s, w, &model, rows))
        return 0;
    for (i = 0; i < count; i++)
        if (memcmp(&rows[i], &expected[i], 4) != 0) {
            fprintf(stderr, "%s: isa %s threads %d width %d kv %s repacked %d shape %d: row %d logit %d is %a, not %a\n", s->name,
                    w->isa->name, w->threads, w->width, specdec__kv_types[w->kv].name, w->repacked, w->shape, (int)(i / (size_t)vocab),
                    (int)(i % (size_t)vocab), (double)rows[i], (double)expected[i]);
            return 0;
        }
    return 1;
}

/* The scalar rows, with weights in place, in one go as wide as fits: the reference. NULL when they cannot be computed. */
static float *reference(const subject *s, int kv, int *vocab)
{
    specdec__model model;
    way w;
    float *rows = (float *)malloc((size_t)s->count * 4096 * 4);

    memset(&w, 0, sizeof w);
    w.isa = &specdec__isas[0];
    w.threads = 1;
    w.width = 48;
    w.kv = kv;
    if (!run(s, &w, &model, rows)) {
        free(rows);
        return NULL;
    }
    *vocab = model.vocab_size;
    return rows;
}

/* Every combination in full runs; else every stride-th of them, which in time reaches all as it has no
   divisor in common with their number, 84; scalar ones (slow) more seldom. */
static void check_ways(const subject *s, int kv, const float *expected, int vocab, int stride)
{
    static const int widths[] = {1, 2, 3, 5, 8, 16, 48};
    float *rows = (float *)malloc((size_t)s->count * (size_t)vocab * 4);
    static unsigned turn;
    size_t isa, i;
    way w;

    memset(&w, 0, sizeof w);
    w.kv = kv;
    for (isa = 0; isa < SPECDEC__COUNT(specdec__isas); isa++) {
        w.isa = &specdec__isas[isa];
        if (!w.isa->present())
            continue;
        for (i = 0; i < SPECDEC__COUNT(widths); i++)
            for (w.threads = 1; w.threads <= 2; w.threads++)
                for (w.shape = 0; w.shape < SHAPES; w.shape++)
                    for (w.repacked = 0; w.repacked < 2; w.repacked++) {
                        w.width = widths[i];
                        if (!full && turn++ % (unsigned)(isa ? stride : 11 * stride))
                            continue;
                        CHECK(same_rows(s, &w, expected, rows, vocab));
                    }
    }
    free(rows);
}

/* --- the models of ../shared/conformance and of its folder more ---------------------------------------------------------------------------- */

static double row_kl(const float *exact, const float *ours, int vocab)
{
    double high_a = -1e300, high_b = -1e300, sum_a = 0, sum_b = 0, kl = 0;
    int i;

    for (i = 0; i < vocab; i++) {
        high_a = fmax(high_a, (double)exact[i]);
        high_b = fmax(high_b, (double)ours[i]);
    }
    for (i = 0; i < vocab; i++) {
        sum_a += exp((double)exact[i] - high_a);
        sum_b += exp((double)ours[i] - high_b);
    }
    for (i = 0; i < vocab; i++) {
        double a = (double)exact[i] - high_a - log(sum_a), b = (double)ours[i] - high_b - log(sum_b);
        kl += exp(a) * (a - b);
    }
    return kl;
}

static double mean_kl(const float *exact, const float *ours, int count, int vocab)
{
    double kl = 0;
    int i;

    for (i = 0; i < count; i++)
        kl += row_kl(exact + (size_t)i * (size_t)vocab, ours + (size_t)i * (size_t)vocab, vocab) / count;
    return kl;
}

/* Whether the architecture of a model has a row. */
static int is_supported(const unsigned char *data, size_t size)
{
    specdec__bytes file, name;
    specdec__gguf gguf;
    specdec_error error;
    size_t i;

    file.data = data;
    file.size = size;
    if (specdec__gguf_open(&gguf, file, &error) || specdec__gguf_get_string(&gguf, "general.architecture", &name, &error))
        return 0;
    for (i = 0; i < maker_writers(); i++)
        if (specdec__bytes_equal(name, specdec__architectures[i].name, strlen(specdec__architectures[i].name)))
            return 1;
    return 0;
}

/* Mean KL of the scalar rows with a type of cache; huge where there are none. */
static double kl_with(const subject *s, int kv, const float *exact)
{
    int vocab = 0;
    float *rows = reference(s, kv, &vocab);
    const double kl = rows ? mean_kl(exact, rows, s->count, vocab) : 1e9;

    free(rows);
    return kl;
}

/* The keys of qwen2-f16 have large biases. Codes of keys and values alone, with all else in floats, come to .00115. */
static void check_eight_bits(const subject *s, const float *exact)
{
    const double half = kl_with(s, SPECDEC__KV_F16, exact), eight = kl_with(s, SPECDEC__KV_Q8_0, exact);
    const double limit = strcmp(s->name, "qwen2-f16") ? 2 * half + 0.001 : 0.002;

    TEST("mean KL with an 8-bit cache of keys and values is at most twice that with a half-float one plus 0.001");
    if (!(eight <= limit))
        fprintf(stderr, "%s: mean KL %.3g with an 8-bit cache, %.3g with half floats\n", s->name, eight, half);
    CHECK(eight <= limit);
    printf("  %-14s mean KL %.3e with an 8-bit cache, %.3e with half floats\n", s->name, eight, half);
}

static void check_case(const char *folder, const char *name, double peer, const int32_t *tokens, int count)
{
    char path[512], file[128];
    size_t size = 0, exact_size = 0;
    unsigned char *data, *exact;
    subject s;
    float *expected;
    double kl = 0, limit = strstr(name, "-f32") ? 1e-9 : strstr(name, "f16") ? 3e-6 : 1.05 * peer;
    int vocab = 0;

    snprintf(file, sizeof file, "%s/%s.gguf", folder, name);
    data = check_read_file(check_shared(path, sizeof path, file), &size);
    snprintf(file, sizeof file, "%s/%s.f32", folder, name);
    exact = check_read_file(check_shared(path, sizeof path, file), &exact_size);
    CHECK(data || strcmp(folder, "modern") == 0); /* not all of those that are listed lie there */
    CHECK(!data || exact);
    if (data && !is_supported(data, size)) {
        TEST("conformance models of every architecture");
        SKIP(name);
    }
    if (!data || !exact || !is_supported(data, size)) {
        free(data);
        free(exact);
        return;
    }
    s.data = data;
    s.size = size;
    s.name = name;
    s.tokens = tokens;
    s.count = count;
    TEST("mean KL of every conformance model is no more than five percent above the peer's");
    expected = reference(&s, SPECDEC__KV_F32, &vocab);
    CHECK(expected != NULL);
    if (expected) {
        CHECK_EQUAL_INT(exact_size, (size_t)count * (size_t)vocab * 4);
        if (exact_size == (size_t)count * (size_t)vocab * 4)
            kl = mean_kl((const float *)(const void *)exact, expected, count, vocab);
        if (!(kl <= limit))
            fprintf(stderr, "%s: mean KL %.3g, the limit is %.3g\n", name, kl, limit);
        CHECK(kl <= limit);
        printf("  %-14s mean KL %.3e of %.3e\n", name, kl, limit);
        TEST("a conformance model's logits are the same bits whatever the width, threads, tree, layout and instruction set");
        check_ways(&s, SPECDEC__KV_F32, expected, vocab, quick ? emulated ? 401 : 67 : 11);
        free(expected);
        if (exact_size == (size_t)count * (size_t)vocab * 4)
            check_eight_bits(&s, (const float *)(const void *)exact);
    }
    free(data);
    free(exact);
}

/* Every case that a folder's list of the peer's errors names, of those whose names begin so. */
static void check_folder(const char *folder, const char *begin, const int32_t *tokens, int count)
{
    char path[512], file[128], *line, *text;
    size_t size = 0;
    int found = 0;

    TEST("a folder of conformance models lists the peer's errors");
    snprintf(file, sizeof file, "%s/peer_error.jsonl", folder);
    text = (char *)check_read_file(check_shared(path, sizeof path, file), &size);
    CHECK(text != NULL);
    for (line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        char name[64];
        double kl;

        if (sscanf(line, "{\"case\": \"%63[^\"]\", \"mean_kl\": %lf", name, &kl) == 2 &&
            strncmp(name, begin, strlen(begin)) == 0 && !(quick && *begin && found++ % 3)) /* test_modern has them all */
            check_case(folder, name, kl, tokens, count);
    }
    free(text);
}

static void test_shared(void)
{
    char path[512], *line, *text;
    static const char *const modern[] = {"lfm2-", "qwen35-", "granitehybrid-f", "granitehybrid-q", "granitehybrid-k", "falcon-h1-", "nemotron_h"};
    int32_t tokens[64];
    size_t size = 0, i;
    int count = 0, taken = 0;

    TEST("conformance");
    text = (char *)check_read_file(check_shared(path, sizeof path, "conformance/tokens.txt"), &size);
    if (!text) {
        SKIP("no shared conformance models");
        return;
    }
    for (line = text; count < 64 && sscanf(line, "%d%n", &tokens[count], &taken) == 1; line += taken)
        count++;
    free(text);
    check_folder("conformance", "", tokens, count);
    check_folder("conformance/more", "", tokens, count);
    check_folder("modern", "llama-", tokens, count); /* types of four bits and fewer */
    for (i = 0; i < SPECDEC__COUNT(modern); i++)
        check_folder("modern", modern[i], tokens, count);
    check_folder("modern", "qwen3-nvfp4", tokens, count);
}

/* --- generated models ------------------------------------------------------------------------------------------------ */

#define NUMBER(number, ...) number,
static const int all_types[] = {SPECDEC__QUANT_TYPES(NUMBER)};

static void check_recipe(const maker_recipe *recipe, const char *name, int kv, int count, int stride)
{
    static int32_t tokens[ROOM];
    subject s;
    unsigned char *data;
    float *expected;
    uint64_t state = 7;
    int vocab = 0, i;
    float spread = 0;

    s.data = data = maker_model(recipe, &s.size);
    s.name = name;
    s.tokens = tokens;
    s.count = count;
    for (i = 0; i < count; i++)
        tokens[i] = (int32_t)(maker_random(&state) % 260);
    expected = reference(&s, kv, &vocab);
    CHECK(expected != NULL);
    if (expected) {
        for (i = 0; i < vocab; i++) {
            float last = expected[(size_t)(count - 1) * (size_t)vocab + (size_t)i];
            CHECK(last > -1e4f && last < 1e4f);
            spread = last > spread ? last : spread;
        }
        CHECK(spread > 0.01f);
        check_ways(&s, kv, expected, vocab, stride);
        free(expected);
    }
    free(data);
}

static void test_types(void)
{
    size_t i;
    char name[64];

    for (i = 0; i < SPECDEC__COUNT(all_types); i++) {
        const specdec__quant_type *type = specdec__quant_find_type((uint32_t)all_types[i]);
        maker_recipe r;
        int kv;

        for (kv = 0; kv < SPECDEC__KV_TYPES; kv++) {
            if (quick && kv != (int)(i % SPECDEC__KV_TYPES)) /* one of them for each type of weights */
                continue;
            TEST("weights of every type give the same bits in every way, with every cache type");
            memset(&r, 0, sizeof r);
            r.seed = 100 + (uint32_t)i;
            r.types[0] = all_types[i] + 1;
            r.output_type = i % 2 ? all_types[i] + 1 : 0;
            r.architecture = specdec__architectures[(3 * i + (size_t)kv) % maker_writers()].name;
            r.scales = kv == 1;
            r.long_rope = 4096;
            if (type->block > 32) {
                r.layers = 1;
                r.embedding = r.feed_forward = 256;
                r.heads = 16;
                r.kv_heads = 1;
                r.head_dim = 48;
            }
            snprintf(name, sizeof name, "%s-type-%d", r.architecture, all_types[i]);
            check_recipe(&r, name, kv, type->block > 32 ? 70 : 150, quick ? emulated ? 241 : 61 : type->block > 32 ? 23 : 13);
        }
    }
}

/* Mixtures of every kind: shared experts, leading layers without, groups, latent experts, biases. */
static void test_mixtures(void)
{
    static const struct { const char *architecture; int experts, chosen, shared, leading, groups, latent; } kinds[] = {
        {"bailingmoe2", 12, 3, 64, 1, 4, 0}, {"qwen2moe", 6, 2, 96, 0, 0, 0}, {"glm4moe", 8, 4, 32, 2, 2, 0},
        {"ernie4_5-moe", 9, 4, 0, 1, 3, 32}, {"gpt-oss", 7, 3, 0, 0, 0, 0}, {"qwen3moe", 5, 2, 32, 0, 5, 96}};
    size_t i;

    for (i = 0; i < SPECDEC__COUNT(kinds); i++) {
        maker_recipe r;

        TEST("mixtures of experts of every kind give the same bits in every way");
        memset(&r, 0, sizeof r);
        r.seed = 300 + (uint32_t)i;
        r.architecture = kinds[i].architecture;
        r.experts = kinds[i].experts;
        r.chosen = kinds[i].chosen;
        r.shared = kinds[i].shared;
        r.leading = kinds[i].leading;
        r.groups = kinds[i].groups;
        r.latent = kinds[i].latent;
        r.layers = 3;
        r.types[0] = i % 2 ? 9 : 1;
        check_recipe(&r, r.architecture, i % 2 ? SPECDEC__KV_Q8_0 : SPECDEC__KV_F32, 100, quick ? emulated ? 241 : 61 : 13);
    }
}

/* Architectures without a conformance model, and models with experts: logits of tokens 7, 57, 107 ... behind the last of 80
   tokens, as llama.cpp of September 2026 computes them for the same files, with F32 weights and cache. */
static void test_peers(void)
{
    static const struct { const char *architecture; int rope_dim, experts, chosen, kv_heads; float last[6]; } peer[] = {
        {"llama", 0, 8, 2, 2, {-3.0015f, 8.9446f, -2.5253f, -1.4702f, -1.2946f, -1.2299f}},
        {"granitemoe", 0, 7, 3, 2, {2.4075f, 1.6326f, -0.4304f, -0.5742f, -0.9048f, 1.8121f}},
        {"qwen3moe", 0, 40, 8, 2, {1.8893f, 0.9065f, -0.4407f, -2.1147f, 2.4038f, 3.0002f}},
        {"qwen3vlmoe", 0, 16, 4, 2, {4.5610f, 0.4979f, -1.8266f, 0.9756f, 3.1747f, 2.0269f}},
        {"olmoe", 0, 12, 5, 4, {1.5798f, -0.9658f, 3.0105f, 3.7637f, -1.0430f, 0.0633f}},
        {"mistral3", 0, 0, 0, 2, {-0.3759f, 0.9090f, -2.5091f, 2.4530f, -2.6215f, -0.9133f}},
        {"ernie4_5", 0, 0, 0, 2, {-1.9118f, 0.9179f, -5.1986f, 0.1721f, -2.5606f, -3.4846f}},
        {"minicpm", 0, 0, 0, 2, {-0.1863f, 1.5170f, -0.8729f, -2.1571f, 0.7594f, 0.0356f}},
        {"internlm2", 0, 0, 0, 2, {-1.9118f, 0.9179f, -5.1986f, 0.1721f, -2.5606f, -3.4846f}},
        {"qwen2vl", 0, 0, 0, 2, {4.6996f, 0.5960f, -8.8431f, 2.2511f, 2.5554f, 2.8373f}},
        {"qwen3vl", 0, 0, 0, 2, {3.5363f, 2.4989f, -4.0673f, 0.6873f, 4.0681f, -3.2647f}},
        {"glm4", 16, 0, 0, 2, {2.8890f, -4.0905f, 4.5267f, -0.1006f, 1.4415f, -1.3411f}},
        {"exaone", 0, 0, 0, 2, {-1.5045f, 0.0964f, -7.6451f, 2.2741f, -2.8520f, -1.6736f}},
        {"exaone4", 0, 0, 0, 2, {6.2414f, -0.6986f, -3.7278f, 1.2533f, 1.7861f, 0.1147f}},
        {"olmo2", 0, 0, 0, 2, {4.5179f, 1.1829f, -1.1565f, 0.2528f, 5.2256f, 2.2603f}}};
    enum { TOKENS = 80 };
    int32_t tokens[TOKENS];
    uint64_t state = 7;
    size_t i;
    int k;

    for (k = 0; k < TOKENS; k++)
        tokens[k] = (int32_t)(maker_random(&state) % 260);
    for (i = 0; i < SPECDEC__COUNT(peer); i++) {
        maker_recipe r;
        subject s;
        unsigned char *data;
        float *rows;
        int vocab = 0;

        TEST("logits of every architecture are those of llama.cpp");
        memset(&r, 0, sizeof r);
        r.architecture = peer[i].architecture;
        r.rope_dim = peer[i].rope_dim;
        r.experts = peer[i].experts;
        r.chosen = peer[i].chosen;
        r.kv_heads = peer[i].kv_heads;
        r.window = strcmp(r.architecture, "exaone4") ? 0 : 1 << 30; /* its small models have none */
        r.layers = 5;
        r.embedding = 128;
        r.feed_forward = 160;
        r.head_dim = 32;
        r.output_type = 1;
        r.seed = 7;
        s.data = data = maker_model(&r, &s.size);
        s.name = peer[i].architecture;
        s.tokens = tokens;
        s.count = TOKENS;
        rows = reference(&s, SPECDEC__KV_F32, &vocab);
        CHECK(rows != NULL && vocab == 301);
        for (k = 0; rows && k < 6; k++) {
            const float got = rows[(TOKENS - 1) * vocab + 7 + 50 * k];

            CHECK(fabsf(got - peer[i].last[k]) < 1e-3f);
        }
        free(rows);
        free(data);
    }
}

static void test_shapes(void)
{
    static const struct { const char *architecture; int embedding, feed_forward, heads, kv_heads, head_dim, rope_dim, vocab, alignment, version, layers, window; } shape[] = {
        {"llama", 96, 160, 2, 1, 48, 0, 303, 0, 2, 2, 0},     {"qwen2", 64, 32, 4, 2, 80, 0, 511, 64, 3, 2, 0},
        {"qwen3", 64, 96, 16, 1, 16, 0, 260, 1, 3, 2, 0},     {"llama", 32, 64, 32, 4, 2, 0, 299, 8, 3, 2, 0},
        {"llama", 96, 96, 3, 3, 32, 20, 777, 4096, 2, 2, 0},  {"qwen3", 32, 320, 2, 2, 80, 64, 401, 2, 3, 2, 0},
        {"qwen2", 64, 64, 32, 32, 18, 0, 301, 0, 3, 2, 0},    {"llama", 64, 64, 14, 7, 144, 0, 353, 0, 3, 2, 0},
        {"qwen3", 32, 32, 2, 1, 1024, 0, 301, 0, 3, 2, 0},    {"llama", 64, 96, 12, 2, 24, 8, 1025, 32, 3, 2, 0},
        {"deepseek2", 64, 96, 3, 1, 0, 0, 301, 32, 3, 3, 0},  {"deepseek2", 96, 64, 5, 1, 0, 0, 333, 0, 3, 2, 0},
        {"gemma3", 64, 96, 4, 1, 48, 0, 301, 32, 3, 7, 1},    {"gemma2", 96, 64, 2, 2, 80, 0, 299, 32, 3, 3, 63},
        {"phi3", 64, 96, 4, 2, 24, 18, 401, 32, 3, 3, 64},    {"smollm3", 64, 32, 8, 4, 16, 0, 303, 32, 3, 5, 0},
        {"granite", 32, 64, 2, 1, 32, 0, 511, 32, 3, 2, 0},   {"gemma3", 32, 64, 3, 1, 64, 0, 267, 32, 3, 6, 65}};
    static const int mixture[] = {8, 2, 30, 6, 20, 0, 1, 7, 3, 8};
    char name[64];
    size_t i;

    TEST("models of odd shapes give the same bits in every way");
    for (i = 0; i < SPECDEC__COUNT(shape); i++) {
        maker_recipe r;

        memset(&r, 0, sizeof r);
        r.seed = 900 + (uint32_t)i;
        r.architecture = shape[i].architecture;
        r.embedding = shape[i].embedding;
        r.feed_forward = shape[i].feed_forward;
        r.heads = shape[i].heads;
        r.kv_heads = shape[i].kv_heads;
        r.head_dim = shape[i].head_dim;
        r.rope_dim = shape[i].rope_dim;
        r.vocab = shape[i].vocab;
        r.alignment = shape[i].alignment;
        r.version = shape[i].version;
        r.layers = shape[i].layers;
        r.window = shape[i].window;
        r.scales = i % 2 == 1;
        r.long_rope = i % 4 == 0 ? 64 : 0;
        r.types[0] = mixture[i % 10] + 1;
        r.types[1] = mixture[(i + 1) % 10] + 1;
        r.types[2] = mixture[(i + 2) % 10] + 1;
        r.output_type = i % 2 ? mixture[(i + 3) % 10] + 1 : 0;
        r.vector_type = (int)(i % 3) == 2 ? 31 : (int)(i % 3) + 1;
        snprintf(name, sizeof name, "shape-%d", (int)i);
        check_recipe(&r, name, (int)(i % SPECDEC__KV_TYPES), 140, quick ? emulated ? 241 : 61 : 17);
    }
}

static void test_varied(void)
{
    static const struct { const char *architecture; int layers, kv_heads, head_dim, shared, inputs, window, experts; } varied[] = {
        {"llama", 3, 2, 16, 0, 0, 0, 0},   {"gemma3", 7, 2, 32, 0, 0, 24, 0},   {"gemma4", 8, 2, 32, 0, 0, 65, 0},
        {"gemma4", 12, 4, 16, 5, 32, 24, 0}, {"gemma4", 7, 1, 80, 1, 64, 300, 0}, {"qwen3", 4, 4, 24, 0, 0, 0, 0},
        {"gemma4", 6, 2, 32, 0, 0, 24, 5}};
    char name[64];
    size_t i;
    int kv;

    TEST("models whose layers differ in heads, widths and kinds, and share keys, give the same bits in every way");
    for (i = 0; i < SPECDEC__COUNT(varied); i++)
        for (kv = 0; kv < SPECDEC__KV_TYPES; kv++) {
            maker_recipe r;

            if (quick && (int)(i % SPECDEC__KV_TYPES) != kv)
                continue;
            memset(&r, 0, sizeof r);
            r.seed = 1900 + (uint32_t)i;
            r.architecture = varied[i].architecture;
            r.layers = varied[i].layers;
            r.kv_heads = varied[i].kv_heads;
            r.head_dim = varied[i].head_dim;
            r.sharing = varied[i].shared;
            r.layer_inputs = varied[i].inputs ? varied[i].inputs : -1;
            r.window = varied[i].window;
            r.experts = varied[i].experts;
            r.varied = 1;
            r.types[0] = i % 2 ? 9 : 1;
            snprintf(name, sizeof name, "varied-%d-%s", (int)i, specdec__kv_types[kv].name);
            check_recipe(&r, name, kv, 140, quick ? emulated ? 241 : 61 : 17);
        }
}

/* --- views ------------------------------------------------------------------------------------------------------------ */

/* A context of its own and two views. */
typedef struct rig {
    unsigned char *data, *memory;
    size_t size;
    int cancel;
    specdec__kernels kernels;
    specdec__pool pool;
    specdec__model model;
    specdec__context context;
    specdec__view view, other;
} rig;

static int open_rig_on(rig *g, int threads, const maker_recipe *recipe, int kv, int length, int most)
{
    specdec_error error = {SPECDEC_OK, ""};
    specdec_source source = {NULL, NULL, 0, NULL, 0};
    specdec__arena arena = {NULL, 0, 0};
    specdec__kv_demand room;
    int good;

    memset(g, 0, sizeof *g);
    source.data = g->data = maker_model(recipe, &g->size);
    source.size = g->size;
    arena.size = (size_t)64 << 20;
    arena.base = g->memory = (unsigned char *)malloc(arena.size);
    good = !specdec__kernels_init(&g->kernels, NULL, &error) && !specdec__pool_init(&g->pool, threads, &g->cancel, NULL, &arena, &error) &&
           !specdec__model_init(&g->model, &source, 0, NULL, &arena, &error);
    if (!good)
        fprintf(stderr, "%s\n", error.text);
    CHECK(good);
    if (good) {
        memset(&room, 0, sizeof room);
        room.max_views = 1;
        room.view_keys = room.all_keys = length;
        room.step_nodes = room.tree_nodes = most;
        room.reserved_nodes = 2 * most;
        specdec__context_init(&g->context, &g->model, NULL, &g->kernels, &g->pool, threads, kv, &room, most, &arena);
        specdec__context_init_view(&g->context, &g->view, &room, 0, &arena);
        specdec__view_init(&g->other, &g->context.kv, 64, most, &arena);
    }
    CHECK(arena.used != SIZE_MAX);
    return good && arena.used != SIZE_MAX;
}

static int open_rig(rig *g, const maker_recipe *recipe, int kv, int length, int most)
{
    return open_rig_on(g, 2, recipe, kv, length, most);
}

static void close_rig(rig *g)
{
    specdec__pool_deinit(&g->pool);
    free(g->memory);
    free(g->data);
}

/* Runs count tokens of a text as a chain in a view and commits the first `keep` of them. Rows of logits are in the context. */
static void run_chain(rig *g, specdec__view *view, const int32_t *text, int count, int keep)
{
    static int32_t parents[NODES];
    static int path[NODES];
    static specdec__view *views[NODES];
    specdec_error error = {SPECDEC_OK, ""};
    specdec__batch batch;
    int i;

    for (i = 0; i < count; i++) {
        parents[i] = i - 1;
        path[i] = i;
        views[i] = view;
    }
    memset(&batch, 0, sizeof batch);
    batch.n = count;
    batch.tokens = text;
    batch.parents = parents;
    batch.views = views;
    CHECK_EQUAL_INT(specdec__forward(&g->context, &batch, &error), SPECDEC_OK);
    specdec__view_commit(view, &g->context.kv, path, keep);
}

static int free_pages(const rig *g)
{
    return g->context.kv.span[0].free_count + g->context.kv.span[1].free_count;
}

static int all_pages(const rig *g)
{
    return g->context.kv.span[0].count + g->context.kv.span[1].count;
}

static void random_text(int32_t *tokens, int count, uint64_t seed)
{
    int i;

    for (i = 0; i < count; i++)
        tokens[i] = (int32_t)(maker_random(&seed) % 260);
}

/* Rows of logits of a text, by a rig's model alone in the scalar way. */
static float *rows_alone(const rig *g, const int32_t *tokens, int count, int kv, int *vocab)
{
    subject s;

    s.data = g->data;
    s.size = g->size;
    s.name = "rig";
    s.tokens = tokens;
    s.count = count;
    return reference(&s, kv, vocab);
}

/* Four more tokens of two texts in one step: node 2i is the first view's, 2i + 1 the other's. */
static void run_both(rig *g, const int32_t *first, const int32_t *other)
{
    int32_t tokens[8], parents[8];
    specdec_error error = {SPECDEC_OK, ""};
    specdec__view *views[8];
    specdec__batch batch;
    int i;

    for (i = 0; i < 8; i++) {
        views[i] = i % 2 ? &g->other : &g->view;
        tokens[i] = (i % 2 ? other : first)[views[i]->length + i / 2];
        parents[i] = i < 2 ? -1 : i - 2;
    }
    memset(&batch, 0, sizeof batch);
    batch.n = 8;
    batch.tokens = tokens;
    batch.parents = parents;
    batch.views = views;
    CHECK_EQUAL_INT(specdec__forward(&g->context, &batch, &error), SPECDEC_OK);
}

static void commit_both(rig *g)
{
    static const int path[] = {0, 1, 2, 3};

    specdec__view_commit(&g->view, &g->context.kv, path, 4);
    specdec__view_commit(&g->other, &g->context.kv, path, 4);
}

/* Two streams in the steps of one context: each gives what it gives alone. */
static void test_views(void)
{
    enum { COUNT = 100 };
    static int32_t tokens[2][COUNT];
    maker_recipe r;
    float *expected[2];
    int vocab = 0, i, j, good;
    rig g;

    TEST("streams that share steps give the same bits as alone");
    memset(&r, 0, sizeof r);
    r.types[0] = 9;
    good = open_rig(&g, &r, SPECDEC__KV_F16, 1024, 8);
    for (i = 0; i < 2; i++) {
        random_text(tokens[i], COUNT, 3 + (uint64_t)i);
        expected[i] = rows_alone(&g, tokens[i], COUNT, SPECDEC__KV_F16, &vocab);
    }
    for (j = 0; j + 4 <= COUNT && good; j += 4) {
        run_both(&g, tokens[0], tokens[1]);
        for (i = 0; i < 8; i++)
            good &= memcmp(g.context.logits + (size_t)i * (size_t)vocab, expected[i % 2] + (size_t)(j + i / 2) * (size_t)vocab, (size_t)vocab * 4) == 0;
        CHECK(good);
        commit_both(&g);
    }
    free(expected[0]);
    free(expected[1]);
    close_rig(&g);
}

/* A view that begins with the pages of another: what either writes later is its own. */
static void check_fork(const char *architecture, int kv, int shared)
{
    enum { COUNT = 160 };
    static int32_t tokens[2][COUNT];
    maker_recipe r;
    float *expected[2];
    int vocab = 0, i, n;
    rig g;

    memset(&r, 0, sizeof r);
    r.architecture = architecture;
    r.layers = strcmp(architecture, "gemma3") == 0 ? 6 : 2;
    r.embedding = r.feed_forward = 32;
    r.window = 40;
    if (!open_rig(&g, &r, kv, 1024, 40))
        return;
    random_text(tokens[0], COUNT, 5);
    random_text(tokens[1], COUNT, 6);
    memcpy(tokens[1], tokens[0], (size_t)shared * sizeof tokens[0][0]);
    for (i = 0; i < 2; i++)
        expected[i] = rows_alone(&g, tokens[i], COUNT, kv, &vocab);
    for (i = 0; i < 100; i += 20)
        run_chain(&g, &g.view, tokens[0] + i, 20, 20);
    n = free_pages(&g);
    CHECK(specdec__view_share_keys(&g.other, &g.context.kv, &g.view, 0, shared));
    CHECK_EQUAL_INT(g.other.next_position, shared);
    CHECK_EQUAL_INT(free_pages(&g), n); /* no page for a fork alone */
    for (i = 1; g.other.length < COUNT || g.view.length < COUNT; i = !i) {
        specdec__view *view = i ? &g.other : &g.view;
        const int from = view->length;

        n = specdec__min_int(7, COUNT - from);
        if (n > 0) {
            run_chain(&g, view, tokens[i] + from, n, n);
            CHECK(memcmp(g.context.logits, expected[i] + (size_t)from * (size_t)vocab, (size_t)(n * vocab) * 4) == 0);
        }
    }
    specdec__view_truncate(&g.view, &g.context.kv, 0);
    CHECK(free_pages(&g) < all_pages(&g));
    specdec__view_truncate(&g.other, &g.context.kv, COUNT - 1); /* the other one lives on */
    run_chain(&g, &g.other, tokens[1] + COUNT - 1, 1, 0);
    CHECK(memcmp(g.context.logits, expected[1] + (size_t)(COUNT - 1) * (size_t)vocab, (size_t)vocab * 4) == 0);
    specdec__view_truncate(&g.other, &g.context.kv, 0);
    CHECK_EQUAL_INT(free_pages(&g), all_pages(&g));
    free(expected[0]);
    free(expected[1]);
    close_rig(&g);
}

/* Keys of a text in parts: the first, some from the middle of a page, the last. With one layer a key depends on its token
   and position alone, so a text of those tokens at those positions gives the same bits. */
static void check_parts(int kv)
{
    enum { COUNT = 150 };
    static const struct { int from, count; } part[] = {{0, 4}, {37, 11}, {60, 8}, {113, 37}};
    static int32_t tokens[COUNT + 1];
    float *row;
    maker_recipe r;
    int at, i, vocab;
    rig g;

    memset(&r, 0, sizeof r);
    r.layers = 1;
    if (!open_rig(&g, &r, kv, 1024, 64))
        return;
    vocab = g.model.vocab_size;
    random_text(tokens, COUNT + 1, 8);
    for (at = 0; at < COUNT; at += 50)
        run_chain(&g, &g.view, tokens + at, 50, 50);
    for (i = 0; i < 4; i++)
        CHECK(specdec__view_share_keys(&g.other, &g.context.kv, &g.view, part[i].from, part[i].count));
    CHECK_EQUAL_INT(g.other.length, 60);
    CHECK_EQUAL_INT(g.other.next_position, COUNT);
    run_chain(&g, &g.other, tokens + COUNT, 1, 1);
    row = (float *)malloc((size_t)vocab * sizeof *row);
    memcpy(row, g.context.logits, (size_t)vocab * sizeof *row);
    specdec__view_truncate(&g.other, &g.context.kv, 0);
    for (i = 0; i < 4; i++) {
        g.other.next_position = part[i].from;
        run_chain(&g, &g.other, tokens + part[i].from, part[i].count, part[i].count);
    }
    CHECK_EQUAL_INT(g.other.next_position, COUNT);
    run_chain(&g, &g.other, tokens + COUNT, 1, 1);
    CHECK(memcmp(row, g.context.logits, (size_t)vocab * sizeof *row) == 0);
    specdec__view_truncate(&g.view, &g.context.kv, COUNT - 1);
    run_chain(&g, &g.view, tokens + COUNT, 1, 1);
    CHECK(memcmp(row, g.context.logits, (size_t)vocab * sizeof *row) != 0); /* all keys, or another position, give others */
    free(row);
    close_rig(&g);
}

/* Two views in one step: the one far ahead commits first, and so leaves a page that the other one ends in. */
static void check_left_page(void)
{
    enum { SHARED = 100, AHEAD = 372 /* by four more tokens it leaves its second page */ };
    static int32_t tokens[AHEAD + 4];
    maker_recipe r;
    float *expected;
    int vocab, i;
    rig g;

    memset(&r, 0, sizeof r);
    r.architecture = "gemma3";
    r.layers = 6;
    r.window = 20;
    if (!open_rig(&g, &r, SPECDEC__KV_F32, 1024, 100)) /* pages for both */
        return;
    random_text(tokens, AHEAD + 4, 5);
    expected = rows_alone(&g, tokens, SHARED + 8, SPECDEC__KV_F32, &vocab);
    for (i = 0; i < SHARED; i += 20)
        run_chain(&g, &g.view, tokens + i, 20, 20);
    CHECK(specdec__view_share_keys(&g.other, &g.context.kv, &g.view, 0, SHARED));
    for (; i < AHEAD; i += 4)
        run_chain(&g, &g.view, tokens + i, 4, 4);
    run_both(&g, tokens, tokens);
    commit_both(&g);
    run_chain(&g, &g.other, tokens + SHARED + 4, 4, 4);
    CHECK(memcmp(g.context.logits, expected + (size_t)(SHARED + 4) * (size_t)vocab, (size_t)(4 * vocab) * 4) == 0);
    specdec__view_truncate(&g.other, &g.context.kv, 0);
    CHECK(!specdec__view_share_keys(&g.other, &g.context.kv, &g.view, 0, 60)); /* its window's keys are gone */
    specdec__view_truncate(&g.other, &g.context.kv, 0);
    specdec__view_truncate(&g.view, &g.context.kv, 0);
    CHECK_EQUAL_INT(free_pages(&g), all_pages(&g));
    free(expected);
    close_rig(&g);
}

static void test_parts(void)
{
    int kv;

    TEST("a view that leaves a page moves no reserved node of another one that ends there; what a window needs is shared or refused");
    check_left_page();
    for (kv = 0; kv < SPECDEC__KV_TYPES; kv++) {
        TEST("a view that shares the pages of another gives the bits of its own text, and pages come back when the last leaves them");
        check_fork("llama", kv, 100);
        check_fork("llama", kv, 64);
        check_fork("qwen3", kv, 83);
        check_fork("gemma3", kv, 97);
        check_fork("phi3", kv, 100);
        TEST("a view of parts of another's keys gives the bits of a text of those tokens at those positions");
        check_parts(kv);
    }
}

/* --- windows ---------------------------------------------------------------------------------------------------------- */

/* With one layer and a window, a row is that of the window's tokens alone, but for rounding: RoPE is relative. */
static void check_reach(int window)
{
    enum { COUNT = 700 };
    static int32_t tokens[COUNT];
    maker_recipe r;
    float *row, lacking = 0, whole = 0;
    int vocab, at, i, more;
    rig g;

    memset(&r, 0, sizeof r);
    r.architecture = "gemma3";
    r.layers = 1;
    r.window = window;
    if (!open_rig(&g, &r, SPECDEC__KV_F32, COUNT, 100))
        return;
    vocab = g.model.vocab_size;
    random_text(tokens, COUNT, 9);
    for (at = 0; at < COUNT; at += 50)
        run_chain(&g, &g.view, tokens + at, 50, 50);
    row = (float *)malloc((size_t)vocab * sizeof *row);
    memcpy(row, g.context.logits + 49 * (size_t)vocab, (size_t)vocab * sizeof *row);
    for (more = 0; more < 2; more++) { /* the window's tokens; one less */
        specdec__view_truncate(&g.other, &g.context.kv, 0);
        run_chain(&g, &g.other, tokens + COUNT - window + more, window - more, 0);
        for (i = 0; i < vocab; i++) {
            float *off = more ? &lacking : &whole, d = fabsf(row[i] - g.context.logits[(size_t)(window - more - 1) * (size_t)vocab + (size_t)i]);

            *off = d > *off ? d : *off;
        }
    }
    if (!(whole < 1e-4f && lacking > 10 * whole))
        fprintf(stderr, "window %d: off by %g, and with a key less by %g\n", window, (double)whole, (double)lacking);
    CHECK(whole < 1e-4f && lacking > 10 * whole);
    free(row);
    close_rig(&g);
}

/* Pages in use while a text grows, is rewound a little, and far. */
static void check_pages(void)
{
    enum { MOST = 4000, WINDOW = 512 };
    static int32_t tokens[MOST];
    const int count = quick ? 1500 : MOST;
    const specdec__prefill_rows rows = specdec__prefill_rows_with_logits_from(count - 1);
    specdec_error error = {SPECDEC_OK, ""};
    const specdec__pages *whole, *window;
    maker_recipe r;
    float *row;
    rig g;

    memset(&r, 0, sizeof r);
    r.architecture = "gemma3";
    r.layers = 6;
    r.embedding = r.feed_forward = 32;
    r.heads = 2;
    r.kv_heads = 1;
    r.window = WINDOW;
    r.context = count;
    if (!open_rig(&g, &r, SPECDEC__KV_F16, count, 64))
        return;
    random_text(tokens, count, 10);
    CHECK_EQUAL_INT(specdec__forward_prefill(&g.context, &g.view, tokens, count, 64, &rows, NULL, &error), SPECDEC_OK);
    row = (float *)malloc((size_t)g.model.vocab_size * sizeof *row);
    memcpy(row, g.context.logits, (size_t)g.model.vocab_size * sizeof *row);
    whole = &g.context.kv.span[SPECDEC__WHOLE];
    window = &g.context.kv.span[SPECDEC__WINDOW];
    printf("  %d tokens: %d pages of %d layer(s), %d of %d layers with a window of %d\n", count, whole->count - whole->free_count,
           g.model.span_layers[SPECDEC__WHOLE], window->count - window->free_count, g.model.span_layers[SPECDEC__WINDOW], WINDOW);
    CHECK_EQUAL_INT(g.model.span_layers[SPECDEC__WINDOW], 5);
    CHECK(window->bytes == 5 * whole->bytes);
    CHECK(whole->count - whole->free_count >= count / 64);
    CHECK(window->count - window->free_count <= (WINDOW + SPECDEC__REWIND_KEYS) / 64 + 2);
    CHECK(window->count <= (WINDOW + SPECDEC__REWIND_KEYS + 64) / 64 + 2);
    specdec__view_truncate(&g.view, &g.context.kv, count - 200);
    CHECK_EQUAL_INT(g.view.length, count - 200); /* near enough: its keys are still there */
    CHECK_EQUAL_INT(specdec__forward_prefill(&g.context, &g.view, tokens, count, 64, &rows, NULL, &error), SPECDEC_OK);
    CHECK(memcmp(row, g.context.logits, (size_t)g.model.vocab_size * sizeof *row) == 0);
    specdec__view_truncate(&g.view, &g.context.kv, count - 900);
    CHECK_EQUAL_INT(g.view.length, 0); /* what the window would see is gone: the text has to be read again */
    CHECK_EQUAL_INT(free_pages(&g), all_pages(&g));
    CHECK_EQUAL_INT(specdec__forward_prefill(&g.context, &g.view, tokens, count, 64, &rows, NULL, &error), SPECDEC_OK);
    CHECK(memcmp(row, g.context.logits, (size_t)g.model.vocab_size * sizeof *row) == 0);
    free(row);
    close_rig(&g);
}

static void test_windows(void)
{
    maker_recipe r;
    int kv;

    TEST("a layer with a window sees that many keys, no more and no less");
    check_reach(1 + 1);
    check_reach(63);
    check_reach(64);
    check_reach(90);
    TEST("pages that no window reaches are returned, and a text may be rewound all the same");
    check_pages();
    for (kv = 0; kv < (quick ? 1 : SPECDEC__KV_TYPES); kv++) {
        TEST("long texts with windows give the same bits in every way");
        memset(&r, 0, sizeof r);
        r.architecture = kv == 1 ? "gemma2" : "gemma3";
        r.layers = kv == 1 ? 2 : 6;
        r.window = 30 + 40 * kv;
        r.embedding = r.feed_forward = 32;
        check_recipe(&r, "long-window", kv, quick ? 400 : 700, quick ? emulated ? 283 : 71 : 37);
    }
}

/* --- stretches of keys ------------------------------------------------------------------------------------------------ */

enum { WHOLE_TEXT = 1560, FIRST_PART = 1500 }; /* a text that is read, and its first part; the fourth stretch begins between */

/* The last rows of a text: as many steps of one width as it takes, from token FIRST_PART on. Returns 1 if they are `expected`. */
static int same_ends(rig *g, specdec__view *view, const int32_t *tokens, int width, const float *expected)
{
    const size_t vocab = (size_t)g->model.vocab_size;
    const int from = view->length;
    int i, n, good = 1;

    for (i = 0; i < WHOLE_TEXT - FIRST_PART && good; i += n) {
        n = specdec__min_int(width, WHOLE_TEXT - FIRST_PART - i);
        run_chain(g, view, tokens + FIRST_PART + i, n, n);
        good = memcmp(g->context.logits, expected + (size_t)i * vocab, (size_t)n * vocab * sizeof *expected) == 0;
    }
    if (!good)
        fprintf(stderr, "%d threads, width %d, from key %d on: other bits\n", g->pool.threads, width, from);
    specdec__view_truncate(view, &g->context.kv, from);
    CHECK_EQUAL_INT(view->length, from);
    return good;
}

/* The same with a view that lacks some keys in the middle, and begins in the middle of pages there. */
static int share_most(rig *g)
{
    return specdec__view_share_keys(&g->other, &g->context.kv, &g->view, 0, 100) &&
           specdec__view_share_keys(&g->other, &g->context.kv, &g->view, 110, FIRST_PART - 110);
}

/* Rows behind a long text, and behind a view of parts of it, at any width. expected (2, WHOLE_TEXT - FIRST_PART, vocab): of the text and of
   the view; computed by one thread. */
static void check_stretches(const maker_recipe *recipe, int kv, int threads, const int32_t *tokens, float **expected)
{
    static const int widths[] = {64, 1, 2, 3, 5, 8, 16, 33};
    const int parts = !recipe->window;
    size_t bytes, w;
    rig g;
    int i;

    if (!open_rig_on(&g, threads, recipe, kv, WHOLE_TEXT, 64))
        return;
    bytes = (size_t)(WHOLE_TEXT - FIRST_PART) * (size_t)g.model.vocab_size * sizeof(float);
    for (i = 0; i < FIRST_PART; i += 20)
        run_chain(&g, &g.view, tokens + i, 20, 20);
    for (i = 0; i <= parts; i++) {
        specdec__view *view = i ? &g.other : &g.view;

        if (i)
            CHECK(share_most(&g));
        if (threads == 1) {
            expected[i] = (float *)malloc(bytes);
            run_chain(&g, view, tokens + FIRST_PART, WHOLE_TEXT - FIRST_PART, 0);
            memcpy(expected[i], g.context.logits, bytes);
            specdec__view_truncate(view, &g.context.kv, view->length);
        }
        for (w = 0; w < SPECDEC__COUNT(widths); w++)
            CHECK(same_ends(&g, view, tokens, widths[w], expected[i]));
    }
    close_rig(&g);
}

/* What one query gets from the keys and values of a view that its window shows it, step by step as >>forward says. */
static void plain_attention(const rig *g, const specdec__layer *layer, int kv_head, int place, const float *query, float *out)
{
    const specdec__kv *kv = &g->context.kv;
    const specdec__kv_layer *at = &kv->layer[layer->index];
    const int dim = kv->dim, window = kv->span[layer->shape.span].window, first = window ? specdec__max_int(place + 1 - window, 0) : 0;
    float *sums = (float *)calloc((size_t)(2 * dim), sizeof *sums), *own = sums + dim, total[16] = {0}, highest = -3e38f;
    int stretch, block, slots[64], j, d, i;

    for (stretch = first / 512; stretch <= place / 512; stretch++) {
        float top_here = -3e38f, total_here[16] = {0}, less;

        memset(own, 0, (size_t)dim * sizeof *own);
        for (block = stretch * 8; block < stretch * 8 + 8; block++) {
            const int from = specdec__max_int(block * 64, first), to = specdec__min_int(block * 64 + 64, place + 1);
            float score[64], top = -3e38f, factor;

            if (from >= to)
                continue;
            specdec__view_find_slots_of_positions(&g->view.span[layer->shape.span], from, to - from, slots);
            for (j = from; j < to; j++) {
                const float *keys = (const float *)(const void *)specdec__kv_keys_address(kv, at, slots[j - from] / 64, kv_head);

                for (score[j % 64] = 0, d = 0; d < dim; d++)
                    score[j % 64] = specdec__fma(query[d], keys[d * 64 + slots[j - from] % 64], score[j % 64]);
                top = score[j % 64] > top ? score[j % 64] : top;
            }
            if (top > top_here) {
                factor = top_here > -1e38f ? specdec__exp(top_here - top) : 0;
                for (i = 0; i < 16; i++)
                    total_here[i] *= factor;
                for (d = 0; d < dim; d++)
                    own[d] *= factor;
                top_here = top;
            }
            for (j = from; j < to; j++) {
                const float *values = (const float *)(const void *)(specdec__kv_keys_address(kv, at, slots[j - from] / 64, kv_head) + at->key_bytes);
                const float weight = specdec__exp(score[j % 64] - top_here);

                total_here[j % 16] += weight;
                for (d = 0; d < dim; d++)
                    own[d] = specdec__fma(weight, values[slots[j - from] % 64 * dim + d], own[d]);
            }
        }
        less = highest < -1e38f ? 0 : top_here > highest ? specdec__exp(highest - top_here) : specdec__exp(top_here - highest);
        for (i = 0; i < 16; i++)
            total[i] = top_here > highest ? specdec__fma(total[i], less, total_here[i]) : specdec__fma(total_here[i], less, total[i]);
        for (d = 0; d < dim; d++)
            sums[d] = top_here > highest ? specdec__fma(sums[d], less, own[d]) : specdec__fma(own[d], less, sums[d]);
        highest = top_here > highest ? top_here : highest;
    }
    for (i = 8; i; i /= 2)
        for (j = 0; j < i; j++)
            total[j] += total[j + i];
    for (d = 0; d < dim; d++)
        out[d] = sums[d] * (1 / total[0]);
    free(sums);
}

typedef struct attention {
    specdec__context *context;
    const specdec__layer *layer;
} attention;

static void attend(void *argument, int thread)
{
    const attention *a = (const attention *)argument;

    specdec__forward_run_attention(a->context, thread, a->layer);
}

/* Attention alone, of nodes that follow a long text, with made queries, against the plain one: the same bits with every
   instruction set. */
static void check_attention(int threads, int window, int n)
{
    static int32_t tokens[WHOLE_TEXT], parents[NODES];
    static specdec__view *views[NODES];
    specdec_error error = {SPECDEC_OK, ""};
    specdec__batch batch;
    maker_recipe r;
    attention a;
    float *out;
    uint64_t state = 21;
    rig g;
    int i, j, bad = 0;

    memset(&r, 0, sizeof r);
    r.architecture = window ? "phi3" : "llama";
    r.heads = 6;
    r.kv_heads = 2;
    r.head_dim = 48;
    r.window = window;
    random_text(tokens, WHOLE_TEXT, 4);
    if (!open_rig_on(&g, threads, &r, SPECDEC__KV_F32, WHOLE_TEXT, 64))
        return;
    for (i = 0; i < FIRST_PART; i += 20)
        run_chain(&g, &g.view, tokens + i, 20, 20);
    for (i = 0; i < n; i++) {
        parents[i] = i - 1;
        views[i] = &g.view;
    }
    memset(&batch, 0, sizeof batch);
    batch.n = n;
    batch.tokens = tokens;
    batch.parents = parents;
    batch.views = views;
    CHECK_EQUAL_INT(specdec__forward(&g.context, &batch, &error), SPECDEC_OK); /* for the keys and values of these nodes */
    for (i = 0; i < n; i++)
        parents[i] = i;
    specdec__view_commit(&g.view, &g.context.kv, parents, n);
    for (i = 0; i < n * 6 * g.context.kv.dim; i++)
        g.context.rotated[i] = 2 * maker_uniform(&state);
    a.context = &g.context;
    out = (float *)malloc((size_t)g.context.kv.dim * sizeof *out);
    for (j = 0; j < (int)SPECDEC__COUNT(specdec__isas) * g.model.layers; j++) {
        const struct specdec__isa *isa = &specdec__isas[j / g.model.layers];

        if (!isa->present() || specdec__kernels_init(&g.kernels, isa->name, &error))
            continue;
        a.layer = &g.model.layer[j % g.model.layers];
        CHECK(!specdec__pool_run(&g.pool, threads, attend, &a));
        for (i = 0; i < n * 6; i++) {
            plain_attention(&g, a.layer, i % 6 / 3, FIRST_PART + i / 6, g.context.rotated + i * g.context.kv.dim, out);
            bad += memcmp(out, g.context.h + (size_t)(i / 6) * (size_t)specdec__forward_stride(6 * 48) + (size_t)(i % 6 * 48), 48 * sizeof *out) != 0;
        }
    }
    CHECK_EQUAL_INT(bad, 0);
    free(out);
    close_rig(&g);
}

static void test_stretches(void)
{
    static int32_t tokens[WHOLE_TEXT];
    maker_recipe r;
    float *expected[2];
    int kv, window, threads, step = emulated ? 15 : quick ? 5 : 1;

    TEST("attention over several stretches of keys is the plain one, bit for bit");
    for (threads = 1; threads <= 16; threads += step * 3) {
        check_attention(threads, 0, 1);
        check_attention(threads, 0, 7);
        check_attention(threads, 700, 3);
        check_attention(threads, 512, quick ? 19 : 64);
    }
    random_text(tokens, WHOLE_TEXT, 14);
    for (kv = emulated ? SPECDEC__KV_Q8_0 : 0; kv < SPECDEC__KV_TYPES; kv++)
        for (window = 0; window <= (emulated ? 0 : 600); window += 600) {
            if (quick && !emulated && kv % 2 != (window > 0))
                continue; /* half of them */
            TEST("long texts give the same bits at 1 to 16 threads and any width, with windows and in views of parts");
            memset(&r, 0, sizeof r);
            r.architecture = window ? "gemma2" : "llama";
            r.layers = 2;
            r.embedding = r.feed_forward = 32;
            r.head_dim = 32;
            r.kv_heads = window ? 1 : 2;
            r.window = window;
            expected[0] = expected[1] = NULL;
            for (threads = 1; threads <= 16; threads += threads == 1 ? 1 : step)
                check_stretches(&r, kv, threads, tokens, expected);
            free(expected[0]);
            free(expected[1]);
        }
}

/* --- states ----------------------------------------------------------------------------------------------------------- */

static void test_states(void)
{
    static int32_t tokens[20];
    maker_recipe r;
    int row, i, j;
    rig g;

    TEST("the states that a step hands out are what its logits come from");
    memset(&r, 0, sizeof r);
    r.output_type = 1;
    if (!open_rig(&g, &r, SPECDEC__KV_F32, 100, 20))
        return;
    random_text(tokens, 20, 12);
    run_chain(&g, &g.view, tokens, 20, 20);
    for (row = 0; row < 20; row++) {
        const float *state = g.context.h + (size_t)row * (size_t)g.context.e;
        double worst = 0;

        for (i = 0; i < g.model.vocab_size; i++) {
            double sum = 0;

            for (j = 0; j < g.model.embedding; j++)
                sum += (double)specdec__load_f32(g.model.output.file + ((size_t)i * (size_t)g.model.embedding + (size_t)j) * 4) * (double)state[j];
            worst = fmax(worst, fabs(sum - (double)g.context.logits[(size_t)row * (size_t)g.model.vocab_size + (size_t)i]));
        }
        CHECK(worst < 1e-4);
    }
    close_rig(&g);
}

/* --- single kernels --------------------------------------------------------------------------------------------------- */

/* Equal bits, or both NaN: which NaN is left to the machine. */
static int same_float(float a, float b)
{
    return memcmp(&a, &b, 4) == 0 || (isnan(a) && isnan(b));
}

/* a * b + c of any bits, or (half of them) with a * b so near to half a unit in the last place of c that double cannot tell. */
static void hard_sum(uint64_t *state, float *a, float *b, float *c)
{
    const float step = 1.0f / 8388608;
    uint32_t r = maker_random(state);

    *a = specdec__float_from_bits(maker_random(state));
    *b = specdec__float_from_bits(maker_random(state));
    *c = specdec__float_from_bits(maker_random(state));
    if (r & 1 && isfinite(*c)) {
        int exponent = *c != 0 ? specdec__max_int(ilogbf(*c), -126) : -126, part = exponent / 2 - 12 + (int)(r >> 1 & 7);

        *a = ldexpf(1 + (float)(r >> 4 & 3) * step, part);
        *b = ldexpf(1 - (float)(r >> 6 & 3) * step, exponent - 24 - part);
        if (r >> 8 & 1)
            *a = -*a;
    }
}

static void check_fused(const specdec__kernels *kernels)
{
    enum { COUNT = 64 };
    float a[COUNT], b[COUNT], c[COUNT], one[COUNT], exact[COUNT];
    uint64_t state = 11;
    int i, turn, bad = 0;

    for (turn = 0; turn < (quick ? 2000 : 20000); turn++) {
        for (i = 0; i < COUNT; i++) {
            hard_sum(&state, &a[i], &b[i], &c[i]);
            one[i] = 1;
            exact[i] = fmaf(a[i], b[i], c[i]);
            bad += !same_float(specdec__fma(a[i], b[i], c[i]), exact[i]);
        }
        kernels->rotate(a, c, b, one, COUNT); /* a * b + c * 1 */
        for (i = 0; i < COUNT; i++)
            bad += !same_float(a[i], exact[i]);
    }
    if (check_fmaf())
        CHECK_EQUAL_INT(bad, 0);
    else
        SKIP("the C library's fmaf rounds twice");
}

static int same_half(uint16_t a, uint16_t b)
{
    return a == b || ((a & 0x7FFF) > 0x7C00 && (b & 0x7FFF) > 0x7C00);
}

/* Whether the processor takes subnormal floats for 0; where the compiler has a word for that. */
static void flush_denormals(int on)
{
#ifdef __SSE2__
    const unsigned bits = 0x8040;

    __builtin_ia32_ldmxcsr(on ? __builtin_ia32_stmxcsr() | bits : __builtin_ia32_stmxcsr() & ~bits);
#else
    (void)on;
#endif
}

static void check_halves(const specdec__kernels *kernels)
{
    static const int steps[16] = {0, 1, -1, 0xFFF, 0x1000, 0x1001, -0xFFF, -0x1000, -0x1001, 2, -2, 0x800, 0x1FFF, -0x1FFF, 0x2000, -0x2000};
    uint32_t half;
    int i, bad = 0;

    for (half = 0; half < 65536; half++) {
        float value = specdec__float_from_f16((uint16_t)half), values[16], back[16];
        uint16_t halves[16];

        for (i = 0; i < 16; i++) {
            values[i] = specdec__float_from_bits(specdec__bits_from_float(value) + (uint32_t)steps[i]);
            specdec__store_u16(&halves[i], (uint16_t)(half ^ (uint32_t)i));
        }
        flush_denormals(half % 2); /* as some hosts want it: halves that are subnormal are none as floats */
        kernels->f16_to_float(halves, 16, back);
        flush_denormals(0);
        for (i = 0; i < 16; i++)
            bad += !same_float(back[i], specdec__float_from_f16((uint16_t)(half ^ (uint32_t)i)));
        kernels->float_to_f16(values, 16, halves);
        for (i = 0; i < 16; i++)
            bad += !same_half(specdec__load_u16(&halves[i]), specdec__f16_from_float(values[i]));
    }
    CHECK_EQUAL_INT(bad, 0);
}

/* One and two tiles of random bytes and of the lowest codes, times columns of which some have no codes but the outermost,
   some are so small that what comes out is below 2^-126, where some processors would take it for 0, and some have NaNs.
   Every way to read weights. */
static void check_multiply(const specdec__kernels *scalar, const specdec__kernels *kernels)
{
    enum { K = 512, N = 9 };
    static unsigned char tile[2][K * 16 * 4];
    static float values[N * K], scale[N * K / 32], sum32[N * K / 32], sum16[N * K / 16], expected[2][N * 16], sums[2][N * 16];
    static int32_t pair32[N * K / 32], pair16[N * K / 16];
    static int8_t codes[N * K];
    static specdec__panel panels[2];
    static const specdec__weight_reading readings[3] = {{0, SPECDEC__PREFETCH_BYTES}, {1, 0}, {0, SPECDEC__PREFETCH_L1_BYTES}};
    specdec__kernels reading = *kernels;
    uint64_t state = 5;
    specdec__columns x;
    size_t t;
    int i, c, turn, bad = 0;

    memset(&x, 0, sizeof x);
    x.n = N;
    x.codes = codes;
    x.scale = scale;
    x.pair32 = pair32;
    x.pair16 = pair16;
    x.sum32 = sum32;
    x.sum16 = sum16;
    x.values = values;
    x.stride = K;
    for (t = 0; t < SPECDEC__COUNT(all_types); t++)
        for (turn = 0; turn < 12; turn++) {
            const specdec__quant_type *type = specdec__quant_find_type((uint32_t)all_types[t]);
            int count = 1 + (int)(t + (size_t)turn) % N, column = turn % (N - count + 1);
            float *to[2][2];
            specdec__tiles tiles;

            for (i = 0; i < (int)sizeof tile; i++)
                tile[i % 2][i / 2] = turn % 3 == 2 ? 0x80 : (unsigned char)maker_random(&state);
            for (c = 0; c < N; c++) {
                for (i = 0; i < K; i++) {
                    float unit = maker_uniform(&state);
                    values[c * K + i] = c % 3 == 0 ? unit : c % 3 == 1 ? unit < 0 ? -1.0f : 1.0f : 1 + unit;
                    if (turn % 4 == 3 && (c % 2 || i / 32 % 3))
                        values[c * K + i] = ldexpf(values[c * K + i], -60 - 8 * c);
                    if (turn % 4 == 1 && type->granule && maker_random(&state) % 30 == 0) /* any NaN */
                        values[c * K + i] = specdec__float_from_bits(0x7FC00000u | (uint32_t)(maker_random(&state) & 0xFF));
                }
                scalar->quantise(values + c * K, 0, K / 32, c, &x);
            }
            memset(expected, 0, sizeof expected);
            memset(sums, 0, sizeof sums);
            tiles.type = type;
            for (i = 0; i < 2; i++) {
                tiles.tile[i] = tiles.next[i] = i && turn % 2 ? NULL : tile[i];
                to[0][i] = expected[i];
                to[1][i] = sums[i];
            }
            specdec__kernels_multiply(scalar, &tiles, K / 32, panels, &x, 0, column, count, to[0]);
            reading.reading = readings[turn / 2 % 3];
            specdec__kernels_multiply(&reading, &tiles, K / 32, panels, &x, 0, column, count, to[1]);
            for (i = 0; i < 2 * N * 16; i++)
                bad += !same_float(sums[i % 2][i / 2], expected[i % 2][i / 2]);
        }
    CHECK_EQUAL_INT(bad, 0);
}

/* Rows of any bytes as they lie in a file times the only column, against tiles that are made of them. The last row ends
   where its bytes do, so that the address sanitizer sees what reads on. */
static void check_rows(const specdec__kernels *scalar, const specdec__kernels *kernels)
{
    enum { K = 512 * 11, ROWS = 32, BYTES = K / 32 * 34 };
    static unsigned char file[ROWS * BYTES], tile[2][BYTES * 16], room[2 * SPECDEC__PANEL_VALUES * SPECDEC__ROWS * 4];
    static float values[K], scale[K / 32], sum32[K / 32], sum16[K / 16], sums[2][2][16];
    static int32_t pair32[K / 32], pair16[K / 16];
    static int8_t codes[K];
    static specdec__panel panels[2];
    uint64_t state = 6;
    specdec__columns x;
    uint32_t number;
    int i, turn, bad = 0;

    memset(&x, 0, sizeof x);
    x.n = 1;
    x.codes = codes;
    x.scale = scale;
    x.pair32 = pair32;
    x.pair16 = pair16;
    x.sum32 = sum32;
    x.sum16 = sum16;
    x.values = values;
    x.stride = K;
    for (number = 0; number < SPECDEC__TYPE_COUNT; number++)
        for (turn = 0; kernels->rows[number] && turn < 12; turn++) {
            const specdec__quant_type *type = specdec__quant_find_type(number);
            const int blocks = (1 + turn % 11) * 16, count = 1 + turn % 2;
            const size_t row_bytes = (size_t)blocks * 32 / type->block * type->bytes;
            const unsigned char *from = file + sizeof file - row_bytes * 16 * (size_t)count;
            float *to[2][2];
            specdec__tiles tiles;

            for (i = 0; i < (int)sizeof file; i++)
                file[i] = turn % 4 == 3 ? 0x80 : (unsigned char)maker_random(&state);
            for (i = 0; i < blocks * 32; i++)
                values[i] = turn % 3 ? maker_uniform(&state) + (float)(turn % 3 - 1) : 1.0f;
            scalar->quantise(values, 0, blocks, 0, &x);
            memset(sums, 0x55, sizeof sums);
            tiles.type = type;
            for (i = 0; i < 2; i++) {
                tiles.tile[i] = tiles.next[i] = i < count ? tile[i] : NULL;
                to[0][i] = sums[0][i];
                to[1][i] = sums[1][i];
                if (i < count)
                    scalar->interleave(type, from + (size_t)i * 16 * row_bytes, row_bytes, 16,
                                       (size_t)blocks * 32 / type->block, tile[i]);
            }
            specdec__kernels_multiply(scalar, &tiles, blocks, panels, &x, 0, 0, 1, to[0]);
            for (i = 0; i < count; i++)
                tiles.tile[i] = from + (size_t)i * 16 * row_bytes;
            kernels->rows[number](&tiles, row_bytes, blocks, &x, room, to[1]);
            for (i = 0; i < 32; i++)
                bad += !same_float(sums[0][i / 16][i % 16], sums[1][i / 16][i % 16]);
        }
    CHECK_EQUAL_INT(bad, 0);
}

/* A logit; now and then one that is rare. */
static float any_logit(uint64_t *state)
{
    static const float rare[6] = {3e38f, -3e38f, 0.0f, -0.0f, 1e-40f, 20.0f};
    uint32_t dice = maker_random(state);

    if (dice % 50 < 3)
        return dice % 50 == 0 ? NAN : -INFINITY;
    return dice % 4000 < 400 ? rare[dice / 4000 % 6] : 5 * maker_uniform(state);
}

/* Rows of logits of any length: what the kernels say of a row, and the tokens that are drawn from it without a list. */
static void check_vocabulary(const specdec__kernels *scalar, const specdec__kernels *kernels)
{
    enum { MOST = 700 };
    static float logits[MOST], draft[MOST], p[2][MOST];
    static specdec_candidate items[MOST];
    uint64_t state = 11;
    int round, i, bad = 0, whole = 0;

    for (round = 0; round < 3000; round++) {
        int vocab = 1 + (int)(maker_random(&state) % MOST), k = 1 + round % 7, found;
        double sums[2][32] = {{0}}, share = (double)(1 + maker_uniform(&state)), low = (double)maker_uniform(&state) * 1e-8;
        specdec_candidate best[2][8];
        specdec_candidates list;
        specdec_sampling s;
        specdec__chooser chooser;
        specdec__row row;

        memset(&s, 0, sizeof s);
        memset(&chooser, 0, sizeof chooser);
        s.temperature = (float)pow(10, 2 * (double)maker_uniform(&state) - round % 3);
        for (i = 0; i < vocab; i++) {
            logits[i] = round % 4 ? 5 * maker_uniform(&state) : any_logit(&state);
            draft[i] = 1 + maker_uniform(&state);
        }
        bad += !same_float(scalar->largest(logits, vocab), kernels->largest(logits, vocab));
        list.items = items;
        bad += specdec_sample_filter(&list, &s, logits, vocab, NULL, 0, NULL) != SPECDEC_OK;
        found = specdec_sample_top(&list, 3, (uint64_t)round, k, best[0]);
        chooser.kernels = kernels;
        chooser.sampling = &s;
        chooser.items = items;
        specdec__row_init(&row, &chooser, logits, vocab, NULL, 0);
        whole += row.temperature > 0;
        bad += specdec__row_best_tokens(&row, 3, (uint64_t)round, k, best[1]) != found;
        for (i = 0; i < found; i++)
            bad += best[0][i].token != best[1][i].token || !same_float(best[0][i].logit, best[1][i].logit);
        scalar->token_weights(logits, vocab, row.highest, s.temperature, p[0]);
        kernels->token_weights(logits, vocab, row.highest, s.temperature, p[1]);
        for (i = 0; i < vocab; i++)
            bad += !same_float(p[0][i], p[1][i]) || !(p[1][i] >= 0 || !(row.temperature > 0));
        scalar->add_residuals(draft, p[0], vocab, (double)(float)share, (double)(float)low, share * 0.01, sums[0], sums[0] + 16);
        kernels->add_residuals(draft, p[0], vocab, (double)(float)share, (double)(float)low, share * 0.01, sums[1], sums[1] + 16);
        scalar->add_weights(logits, vocab, row.highest, -(float)(round % 9), sums[0]);
        kernels->add_weights(logits, vocab, row.highest, -(float)(round % 9), sums[1]);
        for (i = 0; i < 32; i++)
            bad += memcmp(&sums[0][i], &sums[1][i], sizeof sums[0][i]) != 0;
    }
    CHECK_EQUAL_INT(bad, 0);
    CHECK(whole > 2000);
}

/* The tables of all instruction sets that were compiled, whether this processor has them or not. */
static void test_tables(void)
{
    specdec__kernels table;
    size_t i, type;

    TEST("every instruction set's table has an unpacker and a dot for every type and every float loop");
    for (i = 0; i < SPECDEC__COUNT(specdec__isas); i++) {
        if (!specdec__isas[i].fill)
            continue; /* left out of this build */
        memset(&table, 0, sizeof table);
        specdec__isas[i].fill(&table);
        CHECK(table.name && strcmp(table.name, specdec__isas[i].name) == 0);
        for (type = 0; type < SPECDEC__TYPE_COUNT; type++) {
            int known = specdec__quant_find_type((uint32_t)type) != NULL;

            CHECK((table.unpack[type] != NULL) == known && (table.dot[type] != NULL) == known);
            CHECK(known || !table.multiply[type]);
        }
#define CHECK_LOOP(isa, name, result, parameters) CHECK(table.name != NULL);
        SPECDEC__KERNEL_LOOPS(CHECK_LOOP, )
#undef CHECK_LOOP
    }
}

/* x from -60 to 0 in uneven steps; further down what weights takes off, e^-87, shows. */
static void check_exp(const specdec__kernels *kernels)
{
    float x[64], p[64];
    uint32_t bits;
    int i, bad = 0;

    for (bits = 0x80000000u; bits < specdec__bits_from_float(-60.0f); bits += 64 * 4999) {
        for (i = 0; i < 64; i++)
            x[i] = specdec__float_from_bits(bits + (uint32_t)i * 4999 < specdec__bits_from_float(-60.0f)
                                                ? bits + (uint32_t)i * 4999 : bits);
        kernels->token_weights(x, 64, 0, 1, p);
        for (i = 0; i < 64; i++)
            bad += specdec__bits_from_float(p[i]) != specdec__bits_from_float(specdec__exp(x[i]));
    }
    CHECK_EQUAL_INT(bad, 0);
}

/* Rows of random bytes into tiles, against moving one unit after the other. Rows end where the last block does, so that
   the address sanitizer sees what reads on. */
static void check_interleave(const specdec__kernels *kernels)
{
    enum { BLOCKS = 9, FLOATS = 64, GAP = 5, ROW = BLOCKS * SPECDEC__QUANT_MAX_BYTES + GAP };
    static unsigned char rows[16 * ROW], tile[16 * ROW], wanted[16 * ROW];
    uint64_t state = 5;
    uint32_t number;
    size_t i;

    for (i = 0; i < sizeof rows; i++)
        rows[i] = (unsigned char)maker_random(&state);
    for (number = 0; number < SPECDEC__TYPE_COUNT; number++) {
        const specdec__quant_type *type = specdec__quant_find_type(number);
        const int blocks = !type ? 0 : type->block == 1 ? FLOATS : BLOCKS - (int)(number & 1);
        int count, gap, b, f, row, wrong = 0;

        for (count = 1; type && count <= 16; count++)
            for (gap = 0; gap <= GAP; gap += GAP) {
                const size_t bytes = (size_t)blocks * type->bytes, step = bytes + (size_t)gap;
                const unsigned char *from = rows + sizeof rows - (size_t)(count - 1) * step - bytes;
                unsigned char *to = wanted;

                memset(wanted, 0, 16 * bytes);
                memset(tile, 1, 16 * bytes);
                kernels->interleave(type, from, step, count, (size_t)blocks, tile);
                for (b = 0; b < blocks; b++)
                    for (f = 0; f < SPECDEC__QUANT_MAX_FIELDS && type->fields[f].unit; f++) {
                        const int unit = type->fields[f].unit, units = type->fields[f].count;
                        const size_t size = specdec__quant_unit_bytes(unit);

                        for (row = 0; row < count; row++)
                            specdec__quant_move_units(unit, units, 0, from + (size_t)row * step, size,
                                                      to + (size_t)row * size, 16 * size);
                        from += size * (size_t)units;
                        to += 16 * size * (size_t)units;
                    }
                wrong += memcmp(tile, wanted, 16 * bytes) != 0;
            }
        CHECK_EQUAL_INT(wrong, 0);
    }
}

static void test_kernels(void)
{
    specdec_error error = {SPECDEC_OK, ""};
    specdec__kernels scalar, kernels;
    size_t i;

    CHECK_EQUAL_INT(specdec__kernels_init(&scalar, "scalar", &error), SPECDEC_OK);
    for (i = 0; i < SPECDEC__COUNT(specdec__isas); i++)
        if (specdec__isas[i].present()) {
            CHECK_EQUAL_INT(specdec__kernels_init(&kernels, specdec__isas[i].name, &error), SPECDEC_OK);
            TEST("a product and a sum are rounded once, as the C library does it, with every instruction set");
            check_fused(&kernels);
            TEST("half floats become floats, and floats half floats, the same way with every instruction set");
            check_halves(&kernels);
            TEST("tiles of any bytes times columns give the same bits with every instruction set");
            check_multiply(&scalar, &kernels);
            TEST("so do they without the kernels that are made for one type");
            if (kernels.multiply[SPECDEC__TYPE_Q8_0]) {
                memset(kernels.multiply, 0, sizeof kernels.multiply);
                check_multiply(&scalar, &kernels);
            }
            TEST("rows that are multiplied where they lie give the bits of tiles");
            check_rows(&scalar, &kernels);
            TEST("rows become the same tiles with every instruction set");
            check_interleave(&kernels);
            TEST("there is one exp: that of the lanes gives the bits of the scalar one");
            check_exp(&kernels);
            TEST("rows of logits are sampled from in the same way with every instruction set");
            check_vocabulary(&scalar, &kernels);
        }
}

int main(int argc, char **argv)
{
    static const struct { const char *name; void (*run)(void); } parts[] = {
        {"tables", test_tables}, {"kernels", test_kernels}, {"views", test_views}, {"parts", test_parts}, {"windows", test_windows},
        {"stretches", test_stretches},
        {"states", test_states}, {"types", test_types}, {"mixtures", test_mixtures}, {"peers", test_peers}, {"shapes", test_shapes}, {"varied", test_varied}, {"shared", test_shared}};
    size_t i;

    quick = getenv("SPECDEC_QUICK") != NULL;
    emulated = getenv("TEST_WRAPPER") != NULL;
    full = getenv("SPECDEC_FULL") != NULL;
    for (i = 0; i < SPECDEC__COUNT(parts); i++)
        if (argc < 2 || strcmp(argv[1], parts[i].name) == 0)
            parts[i].run();
    return check_report("test_conformance");
}
