/* test_kept.c - beginnings of ended texts are kept in what room the cache has, and are not read again: a load of requests over a
   few system prompts, texts that are what they are alone, room that open texts always get. */
#define SPECDEC_IMPLEMENTATION
#include "../specdec.h"
#include "check.h"
#include "gguf_maker.h"
#include "machine.h"

enum { VOCAB = 301, MOST = 1400 };

static int quick;
static file plain, noisy, windowed, layer;

static void make_models(void)
{
    plain = random_model(1, 0, 0);
    noisy = random_model(1, 0.25f, 0);
    windowed = random_windowed(0);
    layer = random_layer();
}

static specdec_config config_of(const file *target, int context, int texts)
{
    specdec_config c;

    memset(&c, 0, sizeof c);
    c.target = source_of(target);
    c.context = context;
    c.texts = texts;
    c.threads = 1;
    c.drafting = SPECDEC_DRAFT_OFF;
    return c;
}

/* count tokens of prompt number `which`; the first `common` are those of prompt `group`. */
static void make_prompt(int32_t *tokens, int count, int common, int group, int which)
{
    int i;

    for (i = 0; i < count; i++) {
        const unsigned seed = (unsigned)(i < common ? 1000003 * (group + 1) : 7919 * (which + 1));

        tokens[i] = (int32_t)(5 + (seed + (unsigned)i * 2654435761u) / 97 % (VOCAB - 10));
    }
}

static int free_pages_lack(const specdec *t)
{
    const specdec__kv *kv = &t->engine->target.kv;
    int span, lack = 0;

    for (span = 0; span < SPECDEC__SPANS; span++)
        lack += kv->span[span].count - kv->span[span].free_count;
    return lack;
}

/* All pages come back when all texts are closed and what is kept is dropped. first: may be closed already. */
static void nothing_leaks(specdec *first)
{
    specdec_info info;

    specdec_get_info(first, &info);
    CHECK_EQUAL_INT(info.open_texts, 0);
    CHECK_EQUAL_INT(info.cache_free, info.cache);
    specdec_drop_kept(first);
    specdec_get_info(first, &info);
    CHECK_EQUAL_INT(info.cache_kept, 0);
    CHECK_EQUAL_INT(free_pages_lack(first), 0);
}

/* What a text writes for a prompt, `count` tokens at most. Returns how many. */
static int answer(specdec *t, const int32_t *prompt, int length, int32_t *out, int count)
{
    const int32_t *tokens;
    specdec_result result = specdec_prompt_tokens(t, prompt, length);
    int n = 0, more, i;

    CHECK_EQUAL_INT(result, SPECDEC_OK);
    while (n < count && (result = specdec_step(t, &tokens, &more)) == SPECDEC_OK)
        for (i = 0; i < more && n < count; i++)
            out[n++] = tokens[i];
    CHECK(result == SPECDEC_OK || result == SPECDEC_DONE);
    return n;
}

/* --- a load ----------------------------------------------------------------------------------------------------------- */

enum { PROMPTS = 20, SYSTEM = 700, OWN = 30, ANSWER = 12, AT_ONCE = 8 };

typedef struct load {
    int requests, cache, windows;
    const char *path; /* of the target; NULL: a small random one */
    specdec_drafting drafting;
} load;

/* Requests over PROMPTS system prompts, AT_ONCE at a time: each text is what it is alone, and little of prompts is read. */
static void run_load(const load *l)
{
    specdec_config c = config_of(l->windows ? &windowed : &plain, 1024, AT_ONCE), alone;
    int32_t prompt[MOST], wanted[ANSWER];
    int64_t prompted = 0, prefilled = 0, kept = 0, shared = 0;
    struct {
        specdec *text;
        int number, count;
        int32_t out[ANSWER];
    } job[AT_ONCE];
    machine m, oracle;
    int begun = 0, done = 0, i, k;
    uint64_t random = 5;
    int *group = (int *)malloc((size_t)l->requests * sizeof *group);

    if (l->path) {
        memset(&c.target, 0, sizeof c.target);
        c.target.path = l->path;
    }
    c.cache = l->cache;
    c.drafting = l->drafting;
    if (l->drafting == SPECDEC_DRAFT_MODEL)
        c.draft = source_of(l->windows ? &windowed : &noisy);
    c.settings.max_tokens = ANSWER;
    alone = c;
    alone.texts = 1;
    alone.cache = 0;
    alone.drafting = SPECDEC_DRAFT_OFF;
    for (i = 0; i < l->requests; i++)
        group[i] = (int)(maker_random(&random) % PROMPTS);
    if (!open_machine(&m, &c) || !open_machine(&oracle, &alone))
        return;
    memset(job, 0, sizeof job);
    job[0].text = m.first;
    specdec_close(m.first);
    job[0].text = NULL;
    while (done < l->requests) {
        for (i = 0; i < AT_ONCE; i++) {
            specdec_stats stats;
            const int32_t *tokens;
            int more;
            specdec_result result;

            if (!job[i].text && begun < l->requests) {
                CHECK_EQUAL_INT(specdec_open(m.first, &job[i].text), SPECDEC_OK);
                job[i].number = begun++;
                job[i].count = 0;
                make_prompt(prompt, SYSTEM + OWN, SYSTEM, group[job[i].number], job[i].number);
                CHECK_EQUAL_INT(specdec_prompt_tokens(job[i].text, prompt, SYSTEM + OWN), SPECDEC_OK);
            }
            if (!job[i].text)
                continue;
            result = specdec_step(job[i].text, &tokens, &more);
            CHECK(result == SPECDEC_OK || result == SPECDEC_DONE);
            for (k = 0; k < more && job[i].count < ANSWER; k++)
                job[i].out[job[i].count++] = tokens[k];
            if (result == SPECDEC_OK)
                continue;
            if (job[i].number % (quick ? 16 : 8) == 0) {
                make_prompt(prompt, SYSTEM + OWN, SYSTEM, group[job[i].number], job[i].number);
                CHECK_EQUAL_INT(specdec_rewind(oracle.first, 0), SPECDEC_OK);
                CHECK_EQUAL_INT(answer(oracle.first, prompt, SYSTEM + OWN, wanted, ANSWER), job[i].count);
                CHECK(memcmp(wanted, job[i].out, (size_t)job[i].count * sizeof *wanted) == 0);
            }
            specdec_get_stats(job[i].text, &stats);
            prompted += stats.prompt_tokens;
            prefilled += stats.prefilled_tokens;
            kept += stats.kept_tokens;
            shared += stats.shared_tokens;
            specdec_close(job[i].text);
            job[i].text = NULL;
            done++;
        }
    }
    printf("  %d requests%s, cache %d: %lld tokens of prompts, %lld read (a %.1fth), %lld from ended texts, %lld from open ones\n",
           l->requests, l->windows ? ", windows" : l->path ? ", a story model" : "", c.cache, (long long)prompted, (long long)prefilled,
           (double)prompted / (double)prefilled, (long long)kept, (long long)shared);
    CHECK(l->requests < 1000 || l->windows || prefilled * 10 <= prompted);
    CHECK(prefilled < prompted);
    CHECK(prompted <= prefilled + kept + shared + l->requests);
    nothing_leaks(m.first);
    close_machine(&m);
    close_machine(&oracle);
    free(group);
}

static void test_load(void)
{
    static const load loads[] = {
        {1000, 24576, 0, NULL, SPECDEC_DRAFT_OFF},
        {1000, 32768, 0, NULL, SPECDEC_DRAFT_NGRAM},
        {300, 20000, 0, NULL, SPECDEC_DRAFT_MODEL},
        {200, 6400, 0, NULL, SPECDEC_DRAFT_OFF},  /* far less than all prompts */
        {100, 32768, 1, NULL, SPECDEC_DRAFT_OFF},
    };
    size_t i;

    TEST("requests over a few system prompts: these are read once, texts are what they are alone, nothing leaks");
    for (i = 0; i < sizeof loads / sizeof *loads; i++)
        if (!quick || i % 2 == 0)
            run_load(&loads[i]);
}

int main(int argc, char **argv)
{
    quick = getenv("SPECDEC_QUICK") != NULL;
    make_models();
    if (argc > 2) { /* a model's file, a number of requests */
        load l = {0, 32768, 0, NULL, SPECDEC_DRAFT_OFF};

        l.path = argv[1];
        l.requests = atoi(argv[2]);
        run_load(&l);
    } else {
        test_load();
    }
    free(plain.data);
    free(noisy.data);
    free(windowed.data);
    free(layer.data);
    return check_report("test_kept");
}
