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
    const int spared = spared_rows(s->name);
    size_t count = 0;
    float *exact = read_floats(s->name, suffix, &count);
    double kl;

    if (!exact)
        return;
    TEST("mean KL of every modern model is at most 1e-8 in F32 (1e-5 with GELU), else no more than five percent above the peer's");
    CHECK_EQUAL_INT(count, (size_t)s->count * (size_t)vocab);
    if (count == (size_t)s->count * (size_t)vocab) {
        kl = mean_kl(exact, rows, s->count, vocab, spared);
        printf("  %s%.*s: mean KL %.3e of %.3e%s\n", s->name, (int)(strlen(suffix) - 4), suffix, kl, limit,
               spared ? ", but for the two rows where an expert is another" : "");
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

/* MTP blocks of the model itself. */
static void check_mtp(reference *r)
{
    SKIP(r->name);
}

/* Kinds of drafters: what their names end in, the file of the target, with their names' beginning for "#" (several: the first that
   is there), and what checks a reference. */
static const struct {
    const char *ending;
    const char *targets[3];
    void (*check)(reference *r);
} reference_kinds[] = {{"-mtp", {"#-mtp-f32", "#-f32", NULL}, check_mtp}};

/* Opens the target of a reference whose name begins so. Returns 0 when it is not there. */
static int open_target(reference *r, const char *const *targets, int begin)
{
    char name[160];
    int i;

    for (i = 0; i < 3 && targets[i]; i++) {
        const char *rest = targets[i] + (*targets[i] == '#');

        snprintf(name, sizeof name, "%.*s%s", rest > targets[i] ? begin : 0, r->name, rest);
        if (open_case(&r->target, name))
            return 1;
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
        const size_t ending = strlen(reference_kinds[i].ending), length = strlen(name);

        if (length < ending || strcmp(name + length - ending, reference_kinds[i].ending) != 0)
            continue;
        known = 1;
        r.text = text;
        r.next = rows;
        if (open_target(&r, reference_kinds[i].targets, (int)(length - ending)))
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
    char key[96];
    const char *at;
    double peer = 0.01;

    snprintf(key, sizeof key, "{\"case\": \"%s\", \"mean_kl\": ", name);
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
