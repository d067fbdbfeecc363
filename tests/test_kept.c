/* test_kept.c - beginnings of ended texts are kept in what room the cache has, and are not read again: a load of requests over a
   few system prompts, texts that are what they are alone, room that open texts always get. */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
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
    c.sequences = texts;
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
    CHECK_EQUAL_INT(info.open_sequences, 0);
    CHECK_EQUAL_INT(info.cache_free, info.cache);
    specdec_drop_prefixes(first);
    specdec_get_info(first, &info);
    CHECK_EQUAL_INT(info.cache_prefixes, 0);
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
    alone.sequences = 1;
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
            kept += stats.cached_tokens;
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

/* --- one by one ------------------------------------------------------------------------------------------------------- */

/* Closes the only open text and opens another. */
static specdec *next_text(specdec *t)
{
    specdec *opened;

    specdec_close(t);
    CHECK_EQUAL_INT(specdec_open(t, &opened), SPECDEC_OK);
    return opened;
}

static int64_t kept_of(const specdec *t)
{
    specdec_stats stats;

    specdec_get_stats(t, &stats);
    return stats.cached_tokens;
}

/* How text and places go on: closed, rewound, loaded over; within the last page; longer, shorter and equal beginnings. */
static void test_ways(void)
{
    specdec_config c = config_of(&plain, 400, 2);
    int32_t prompt[MOST], first[20], again[20];
    machine m;
    specdec *t;
    void *data;
    size_t bytes;
    int i;

    TEST("a beginning is found again when its text was closed, rewound or loaded over, to the token");
    c.cache = 3200;
    make_prompt(prompt, 300, 300, 1, 1);
    if (!open_machine(&m, &c))
        return;
    t = m.first;
    CHECK_EQUAL_INT(answer(t, prompt, 300, first, 20), 20);
    t = next_text(t);
    CHECK_EQUAL_INT(answer(t, prompt, 300, again, 20), 20);
    CHECK_EQUAL_INT(kept_of(t), 299);
    CHECK(memcmp(first, again, sizeof first) == 0);
    CHECK_EQUAL_INT(specdec_rewind(t, 0), SPECDEC_OK); /* prompted anew with something else, then as before */
    CHECK_EQUAL_INT(answer(t, prompt + 7, 90, again, 20), 20);
    t = next_text(t);
    for (i = 0; i < 2; i++) { /* both are there */
        t = next_text(t);
        answer(t, prompt + 7 * i, 90, again, 20);
        CHECK_EQUAL_INT(kept_of(t), 89);
    }
    t = next_text(t);
    make_prompt(prompt, 300, 133, 1, 2); /* parts in the middle of a page */
    answer(t, prompt, 300, first, 20);
    CHECK_EQUAL_INT(kept_of(t), 133);
    CHECK_EQUAL_INT(specdec_save(t, NULL, 0, &bytes), SPECDEC_OK);
    data = malloc(bytes);
    CHECK_EQUAL_INT(specdec_save(t, data, bytes, &bytes), SPECDEC_OK);
    t = next_text(t);
    answer(t, prompt + 50, 200, again, 5);
    CHECK_EQUAL_INT(specdec_load(t, data, bytes), SPECDEC_OK);
    CHECK_EQUAL_INT(answer(t, prompt + 1, 1, again, 5), 5); /* goes on behind what was loaded */
    t = next_text(t);
    answer(t, prompt + 50, 200, again, 5);
    CHECK_EQUAL_INT(kept_of(t), 199); /* that over which was loaded */
    free(data);
    specdec_close(t);
    nothing_leaks(m.first);
    close_machine(&m);
}

/* Open texts get all the room there is, whatever is kept; and kept ones survive where there is room. */
static void test_room(void)
{
    enum { CONTEXT = 256 };
    int32_t prompt[MOST], out[8];
    specdec *t[3];
    machine m;
    int way, i, n;

    TEST("open texts are never refused for want of room that kept ones hold");
    for (way = 0; way < 3; way++) {
        specdec_config c = config_of(way == 2 ? &windowed : &plain, CONTEXT, 3);

        c.cache = way == 1 ? 512 : 0;
        c.drafting = SPECDEC_DRAFT_MODEL;
        c.draft = source_of(way == 2 ? &windowed : &noisy);
        if (!open_machine(&m, &c))
            return;
        t[0] = m.first;
        for (i = 0; i < 40; i++) { /* fills the cache with beginnings, one of them in the middle of a page */
            make_prompt(prompt, 100 + i % 90, 40 + i % 30, i % 4, i);
            answer(t[0], prompt, 100 + i % 90, out, 3);
            t[0] = next_text(t[0]);
        }
        for (i = 1; i < 3; i++)
            CHECK_EQUAL_INT(specdec_open(t[0], &t[i]), SPECDEC_OK);
        for (i = 0; i < (way == 1 ? 2 : 3); i++) { /* each fills its context */
            const int32_t *tokens;
            specdec_result result;

            make_prompt(prompt, 200, 40 + i, i, 100 + i);
            CHECK_EQUAL_INT(specdec_prompt_tokens(t[i], prompt, 200), SPECDEC_OK);
            do
                result = specdec_step(t[i], &tokens, &n);
            while (result == SPECDEC_OK);
            CHECK_EQUAL_INT(result, SPECDEC_DONE);
            specdec_tokens(t[i], NULL, &n);
            CHECK_EQUAL_INT(n, CONTEXT);
        }
        for (i = 0; i < 3; i++)
            specdec_close(t[i]);
        nothing_leaks(m.first);
        close_machine(&m);
    }
}

/* An engine for one text keeps others' beginnings beside it where config.cache is more than its context; the table may be
   set, and is counted in the memory that is asked for. */
static void test_table(void)
{
    specdec_config c = config_of(&plain, 256, 1);
    int32_t prompt[MOST], out[8];
    size_t none, few, many;
    specdec_error error;
    machine m;
    int i;

    TEST("one text with a larger cache keeps beginnings, too; the table's size is the caller's");
    c.cache = 2048;
    c.prefixes = -1;
    CHECK_EQUAL_INT(specdec_memory_needed(&c, &none, &error), SPECDEC_OK);
    c.prefixes = 4;
    CHECK_EQUAL_INT(specdec_memory_needed(&c, &few, &error), SPECDEC_OK);
    c.prefixes = 20;
    CHECK_EQUAL_INT(specdec_memory_needed(&c, &many, &error), SPECDEC_OK);
    CHECK(few > none && many > few + 12 * 256 * sizeof(int32_t) && many < few + 20 * 256 * 6);
    c.prefixes = 1 << 17;
    CHECK_EQUAL_INT(specdec_memory_needed(&c, &many, &error), SPECDEC_ERROR_ARGUMENT);
    c.prefixes = 8;
    if (!open_machine(&m, &c))
        return;
    for (i = 0; i < 12; i++) {
        make_prompt(prompt, 200, 150, i % 3, i);
        CHECK_EQUAL_INT(specdec_rewind(m.first, 0), SPECDEC_OK);
        answer(m.first, prompt, 200, out, 4);
        CHECK_EQUAL_INT(kept_of(m.first), i < 3 ? 0 : 150 * (i - 2));
    }
    CHECK_EQUAL_INT(specdec_rewind(m.first, 0), SPECDEC_OK);
    specdec_drop_prefixes(m.first);
    make_prompt(prompt, 200, 150, 0, 0);
    answer(m.first, prompt, 200, out, 4);
    CHECK_EQUAL_INT(kept_of(m.first), 150 * 9);
    specdec_close(m.first);
    nothing_leaks(m.first);
    close_machine(&m);
    c.prefixes = -1;
    if (!open_machine(&m, &c))
        return;
    for (i = 0; i < 2; i++) {
        answer(m.first, prompt, 200, out, 4);
        CHECK_EQUAL_INT(specdec_rewind(m.first, 0), SPECDEC_OK);
    }
    CHECK_EQUAL_INT(kept_of(m.first), 0);
    specdec_drop_prefixes(m.first);
    specdec_drop_prefixes(NULL);
    close_machine(&m);
}

/* Drafters that remember texts find their part of what is kept, or read it again: they draft as before, and what is written is
   what it is without them. Layers with windows share where all keys of a window are there. */
static void test_drafters(void)
{
    static const specdec_drafting draftings[] = {SPECDEC_DRAFT_MODEL, SPECDEC_DRAFT_HEADS, SPECDEC_DRAFT_NGRAM, SPECDEC_DRAFT_AUTO,
                                                 SPECDEC_DRAFT_TRIFORCE};
    int32_t prompt[MOST], out[64], wanted[64];
    specdec_stats stats;
    machine m, oracle;
    specdec *t;
    int way, i, windows;

    TEST("what is kept serves every drafter, and models with windows");
    for (way = 0; way < 10; way++) {
        specdec_config c, alone;

        windows = way >= 5;
        c = alone = config_of(windows ? &windowed : &plain, 500, 4);
        c.drafting = draftings[way % 5];
        if (windows && c.drafting == SPECDEC_DRAFT_TRIFORCE)
            continue;
        c.draft = source_of(windows ? &windowed : &noisy);
        c.heads = source_of(&layer);
        c.kv = way % 2 ? "q8_0" : NULL;
        c.policy = SPECDEC_POLICY_DYNAMIC;
        c.settings.sampling.temperature = way % 3 ? 0 : 0.8f;
        c.retrieval = c.drafting == SPECDEC_DRAFT_TRIFORCE ? 32 : 0;
        alone.settings = c.settings;
        alone.kv = c.kv;
        alone.sequences = 1;
        if (!open_machine(&m, &c) || !open_machine(&oracle, &alone))
            return;
        t = m.first;
        for (i = 0; i < 6; i++) {
            make_prompt(prompt, 280, i == 5 ? 280 : 250, i % 2, i);
            CHECK_EQUAL_INT(answer(t, prompt, 280, out, 64), 64);
            CHECK_EQUAL_INT(specdec_rewind(oracle.first, 0), SPECDEC_OK);
            CHECK_EQUAL_INT(answer(oracle.first, prompt, 280, wanted, 64), 64);
            CHECK(memcmp(out, wanted, sizeof out) == 0);
            specdec_get_stats(t, &stats);
            CHECK(i < 2 ? !stats.cached_tokens : stats.cached_tokens >= 249 && stats.cached_tokens <= 279);
            CHECK(stats.cached_tokens + stats.prefilled_tokens >= 279 && stats.cached_tokens + stats.prefilled_tokens <= 280 + 32);
            CHECK(stats.drafted > 0 || c.drafting == SPECDEC_DRAFT_NGRAM || c.drafting == SPECDEC_DRAFT_AUTO);
            t = next_text(t);
        }
        specdec_close(t);
        nothing_leaks(m.first);
        close_machine(&m);
        close_machine(&oracle);
    }
}

/* Kept ones are not in the way of forks, children, cancelled prompts and failed ones. */
static void test_cancelled(void)
{
    specdec_config c = config_of(&plain, 400, 3);
    int32_t prompt[MOST], out[8];
    specdec *t, *fork;
    machine m;
    specdec_text piece;

    TEST("a prompt that is cancelled behind what it has taken over changes nothing");
    make_prompt(prompt, 380, 300, 1, 1);
    if (!open_machine(&m, &c))
        return;
    answer(m.first, prompt, 300, out, 4);
    t = next_text(m.first);
    CHECK_EQUAL_INT(specdec_prompt_tokens(t, prompt, 380), SPECDEC_OK);
    specdec_cancel(t);
    CHECK_EQUAL_INT(specdec_next(t, &piece), SPECDEC_ERROR_CANCELLED);
    CHECK_EQUAL_INT(specdec_fork(t, &fork), SPECDEC_OK);
    CHECK(specdec_next(t, &piece) != SPECDEC_ERROR_CANCELLED);
    CHECK(specdec_next(fork, &piece) != SPECDEC_ERROR_CANCELLED);
    CHECK_EQUAL_INT(kept_of(t), 300);
    specdec_close(t);
    specdec_close(fork);
    nothing_leaks(m.first);
    close_machine(&m);
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
        test_ways();
        test_room();
        test_table();
        test_drafters();
        test_cancelled();
        test_load();
    }
    free(plain.data);
    free(noisy.data);
    free(windowed.data);
    free(layer.data);
    return check_report("test_kept");
}
