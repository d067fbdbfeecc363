/* test_modern.c - the models of ../shared/modern: random weights with exact logits, of the architectures, mechanisms and types of
   2026. Each is run at several widths, thread counts and on every instruction set, and writes text with and without n-grams.
   test_modern [NAME]    all of them, or those whose names begin so. SPECDEC_QUICK=1 shortens. */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "check.h"
#include <math.h>

#define FOLDER "modern"
#define ROOM 512 /* tokens of a context */
#define TEXT 96  /* tokens of a text that is written */

/* Beginnings of the names of files that must be read: add those of a row here. */
static const char *const read_names[] = {"apertus", "arcee", "bailingmoe2", "cohere2", "deepseek2", "ernie4_5-moe", "gemma3n", "gemma4", "glm4moe", "gpt-oss-f32", "gpt-oss-q8_0",
                                         "gpt-oss-fused", "hunyuan-dense", "nemotron_h", "qwen2moe", "qwen3next", "lfm2moe", "seed_oss"};

static specdec_error failure;
static int quick;

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

/* Token ids of a file of ../shared. */
static void read_tokens(subject *s, const char *file)
{
    char path[512], *at, *end;
    size_t size = 0;
    unsigned char *text = check_read_file(check_shared(path, sizeof path, file), &size);

    s->count = 0;
    for (at = (char *)text; at && s->count < 256; at = end) {
        long id = strtol(at, &end, 10);

        if (end == at)
            break;
        s->tokens[s->count++] = (int32_t)id;
    }
    free(text);
}

/* An engine that runs a model in some way; NULL: it is refused, as `failure` says. The caller frees *block. */
static specdec *open_model(const subject *s, const way *w, void **block)
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
    *block = NULL;
    if (specdec_memory_needed(&c, &bytes, &failure))
        return NULL;
    *block = malloc(bytes);
    if (!*block || specdec_init(&engine, &c, *block, bytes, &failure))
        return NULL;
    return engine;
}

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

/* The mean KL of rows, but for the `spared` largest ones. */
static double mean_kl(const float *exact, const float *ours, int count, int vocab, int spared)
{
    double kl = 0, row, largest[2] = {0, 0};
    int i, j;

    for (i = 0; i < count; i++, exact += vocab, ours += vocab) {
        const double a = log_total(exact, vocab), b = log_total(ours, vocab);

        for (row = 0, j = 0; j < vocab; j++)
            row += exp((double)exact[j] - a) * ((double)exact[j] - a - (double)ours[j] + b);
        kl += row / count;
        if (row > largest[0]) {
            largest[1] = largest[0];
            largest[0] = row;
        } else {
            largest[1] = row > largest[1] ? row : largest[1];
        }
    }
    while (spared > 0)
        kl -= largest[--spared] / count;
    return kl;
}

/* Rows of a case that are spared. In these, a router's choice is so close that what quantised activations lose decides it:
   then a row's KL is a hundred times that of others. The peer's rows are close elsewhere. */
static int spared_rows(const char *name)
{
    static const char *const cases[] = {"bailingmoe2-q8_0", "deepseek2-k-q4_k_m", "glm4moe-q8_0", "lfm2moe-q8_0", "qwen3next-q8_0"};
    size_t i;

    for (i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(name, cases[i]) == 0)
            return 2;
    return 0;
}

/* Compares a subject's rows with the exact ones of a file, if there is one. */
static void check_exact(const subject *s, const float *rows, int vocab, const char *suffix, double limit)
{
    char path[512], file[128];
    size_t size = 0;
    unsigned char *exact;
    double kl;

    snprintf(file, sizeof file, FOLDER "/%s%s.f32", s->name, suffix);
    exact = check_read_file(check_shared(path, sizeof path, file), &size);
    if (!exact)
        return;
    TEST("mean KL of every modern model is at most 1e-8 in F32 (1e-5 with GELU), else no more than five percent above the peer's");
    CHECK_EQUAL_INT(size, (size_t)s->count * (size_t)vocab * 4);
    if (size == (size_t)s->count * (size_t)vocab * 4) {
        const int spared = spared_rows(s->name);

        kl = mean_kl((const float *)(const void *)exact, rows, s->count, vocab, spared);
        printf("  %s%s: mean KL %.3e of %.3e%s\n", s->name, suffix, kl, limit, spared ? ", but for the two rows where an expert is another" : "");
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
    int32_t plain[TEXT], drafted[TEXT];
    const int count = write_text(s, SPECDEC_DRAFT_OFF, plain);

    TEST("a modern model writes the same text with drafts by n-grams as without");
    CHECK(write_text(s, SPECDEC_DRAFT_NGRAM, drafted) == count && !memcmp(plain, drafted, (size_t)count * sizeof *plain));
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

static void check_case(const char *name, double peer)
{
    const double limit = !strstr(name, "-f32") ? 1.05 * peer : strstr(name, "gemma") ? 1e-5 : 1e-8;
    const way usual = {NULL, 1, 48, SPECDEC_DRAFT_OFF};
    char path[512], file[128];
    subject s;
    float *rows;
    int vocab = 0;

    memset(&s, 0, sizeof s);
    snprintf(s.name, sizeof s.name, "%s", name);
    snprintf(file, sizeof file, FOLDER "/%s.gguf", name);
    s.data = check_read_file(check_shared(path, sizeof path, file), &s.size);
    if (!s.data)
        return; /* kept back */
    read_tokens(&s, "conformance/tokens.txt");
    rows = rows_of(&s, &usual, &vocab);
    if (!rows) {
        TEST("models whose architectures are known are read");
        CHECK(!must_be_read(name));
        snprintf(path, sizeof path, "%s: %s", name, failure.text);
        SKIP(path);
        free(s.data);
        return;
    }
    check_exact(&s, rows, vocab, "", limit);
    check_ways(&s, rows, vocab);
    check_text(&s);
    free(rows);
    read_tokens(&s, FOLDER "/tokens200.txt");
    rows = rows_of(&s, &usual, &vocab);
    CHECK(rows != NULL);
    if (rows)
        check_exact(&s, rows, vocab, "-200", limit);
    free(rows);
    free(s.data);
}

int main(int argc, char **argv)
{
    char path[512], *line, *text;
    size_t size = 0;

    quick = check_depth() == 0;
    TEST("the list of modern models");
    text = (char *)check_read_file(check_shared(path, sizeof path, FOLDER "/peer_error.jsonl"), &size);
    if (!text)
        SKIP("../shared/modern is not there");
    for (line = text; line && *line; line += strcspn(line, "\n"), line += *line == '\n') {
        char name[64];
        double peer;

        CHECK(sscanf(line, "{\"case\": \"%63[^\"]\", \"mean_kl\": %lf", name, &peer) == 2);
        if (argc < 2 || !strncmp(name, argv[1], strlen(argv[1])))
            check_case(name, peer);
    }
    free(text);
    return check_report("test_modern");
}
