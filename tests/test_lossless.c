/* test_lossless.c - speculation by a rejection rule writes texts of the same distribution as plain sampling does: many short
   continuations of one prompt, drawn both ways from different seeds, compared token by token and pair by pair.

   test_lossless                       the pair in examples/models, 1000 draws, sequoia
   test_lossless TARGET DRAFT [DRAWS [RULE [TEMPERATURE [PROMPT [triforce]]]]]
                                       any pair, of a draft model or of heads; rules: coupled sequoia specinfer spectr top-k;
                                       triforce: two levels, the prompt long enough for them */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "check.h"
#include "statistics.h"

static specdec_error failure; /* of the last call that failed before there was an engine */

#define LENGTH 6       /* tokens of a continuation */
#define ENDED  INT32_MAX /* behind the end of the text */

static const char *const rule_names[] = {"coupled", "sequoia", "specinfer", "spectr", "top-k"};

/* What is compared: tokens, or pairs of them. */
typedef struct drawn {
    int64_t *values[2]; /* plain, speculated: [draws], sorted */
    int draws;
} drawn;

static int compare_values(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? -1 : x > y;
}

/* Chi-square of two samples of equal size: were they drawn from one distribution? What was seen less than 10 times in both
   together is pooled. */
static double two_sample_p(const drawn *d)
{
    double chi = 0, pool[2] = {0, 0};
    int at[2] = {0, 0}, freedom = -1, i;

    while (at[0] < d->draws || at[1] < d->draws) {
        double seen[2] = {0, 0};
        int64_t value = at[1] >= d->draws || (at[0] < d->draws && d->values[0][at[0]] < d->values[1][at[1]]) ? d->values[0][at[0]]
                                                                                                            : d->values[1][at[1]];

        for (i = 0; i < 2; i++)
            for (; at[i] < d->draws && d->values[i][at[i]] == value; at[i]++)
                seen[i]++;
        if (seen[0] + seen[1] < 10) {
            pool[0] += seen[0];
            pool[1] += seen[1];
            continue;
        }
        chi += (seen[0] - seen[1]) * (seen[0] - seen[1]) / (seen[0] + seen[1]);
        freedom++;
    }
    if (pool[0] + pool[1] >= 10) {
        chi += (pool[0] - pool[1]) * (pool[0] - pool[1]) / (pool[0] + pool[1]);
        freedom++;
    }
    return freedom < 1 ? 1 : statistics_chi_square_tail(chi, freedom);
}

/* One continuation of the first `prompt` tokens, without leaving them: the engine goes back there. */
static int draw(specdec *e, int prompt, uint64_t seed, int32_t *out)
{
    const int32_t *tokens;
    int count, written = 0;

    specdec_rewind(e, prompt);
    e->settings.sampling.seed = seed;
    while (written < LENGTH) {
        specdec_result result = specdec_step(e, &tokens, &count);
        int i;

        if (result == SPECDEC_DONE)
            break;
        if (result)
            return 0;
        for (i = 0; i < count && written < LENGTH; i++)
            out[written++] = tokens[i];
    }
    while (written < LENGTH)
        out[written++] = ENDED;
    return 1;
}

/* Draws from both and prints a p-value for every token and pair. Returns the lowest, or -1 when something failed. */
static double compare(specdec *e, int draws)
{
    int32_t *texts = (int32_t *)malloc(2 * (size_t)draws * LENGTH * sizeof(int32_t));
    drawn d;
    const int32_t *tokens;
    int i, way, at, prompt, second = 0;
    specdec_drafting drafting = e->engine->config.drafting;
    double lowest = 1, speculated = 0;

    d.draws = draws;
    for (way = 0; way < 2; way++)
        d.values[way] = (int64_t *)malloc((size_t)draws * sizeof(int64_t));
    specdec_tokens(e, &tokens, &prompt);
    for (way = 0; way < 2; way++) {
        specdec_stats before, now;

        e->engine->config.drafting = way ? drafting : SPECDEC_DRAFT_OFF;
        specdec_get_stats(e, &before);
        for (i = 0; i < draws; i++)
            if (!texts || !draw(e, prompt, (uint64_t)(way * draws + i + 1), texts + ((size_t)way * (size_t)draws + (size_t)i) * LENGTH))
                lowest = -1;
        specdec_get_stats(e, &now);
        speculated = (double)(now.tokens - before.tokens) / (double)(now.steps - before.steps);
    }
    for (at = 0; lowest >= 0 && at < 2 * LENGTH - 1; at++) {
        double p;

        second = at >= LENGTH;
        for (way = 0; way < 2; way++) {
            for (i = 0; i < draws; i++) {
                const int32_t *text = texts + ((size_t)way * (size_t)draws + (size_t)i) * LENGTH + at % LENGTH;

                d.values[way][i] = second ? (int64_t)text[0] << 32 | text[1] : text[0];
            }
            qsort(d.values[way], (size_t)draws, sizeof(int64_t), compare_values);
        }
        p = two_sample_p(&d);
        if (second)
            printf("  tokens %d and %d: p = %.4g\n", at % LENGTH + 1, at % LENGTH + 2, p);
        else
            printf("  token %d: p = %.4g\n", at + 1, p);
        lowest = p < lowest ? p : lowest;
    }
    printf("  %d draws each way, %.2f tokens a step\n", draws, speculated);
    free(d.values[0]);
    free(d.values[1]);
    free(texts);
    return lowest;
}

/* Whether a file holds a language model, which has tokens, or heads. */
static int is_model(const char *path)
{
    specdec_gguf_value unused;
    specdec_gguf g;
    size_t size;
    unsigned char *data = check_read_file(path, &size);
    int is = !data || specdec_gguf_open(&g, data, size, NULL) || specdec_gguf_find(&g, "tokenizer.ggml.tokens", &unused);

    free(data);
    return is;
}

/* What continuations obey, if anything: words without a capital letter, of which the model would write some. */
static const specdec_constraint *constraint;

static void make_constraint(void)
{
    specdec_constraint_source source;

    memset(&source, 0, sizeof source);
    source.kind = SPECDEC_CONSTRAINT_REGEX;
    source.text = " ([b-km-z][a-z]{0,9}[ ,.]{1,2})*";
    source.length = SPECDEC_WHOLE_STRING;
    if (specdec_constraint_init(&constraint, &source, malloc(1 << 20), 1 << 20, &failure))
        printf("%s\n", failure.text);
}

/* Returns compare's value. */
static double run(const char *target, const char *draft, const char *prompt, int draws, int rule, float temperature, int two_levels)
{
    specdec_config config;
    specdec *e = NULL;
    size_t bytes = 0;
    void *memory = NULL;
    double lowest = -1;

    memset(&config, 0, sizeof config);
    config.target.path = target;
    config.drafting = is_model(draft) ? SPECDEC_DRAFT_MODEL : SPECDEC_DRAFT_HEADS;
    (config.drafting == SPECDEC_DRAFT_MODEL ? &config.draft : &config.heads)->path = draft;
    if (two_levels) {
        config.drafting = SPECDEC_DRAFT_TRIFORCE;
        config.retrieval = 16;
        config.tree_size = config.tree_depth = 5;
    }
    config.rule = (specdec_rule)rule;
    config.policy = SPECDEC_POLICY_DYNAMIC; /* trees grow for coupled and top-k; those of the other rules must stay static */
    config.context = 256;
    config.settings.sampling.temperature = temperature;
    config.constraints = constraint != NULL;
    config.settings.constraint = constraint;
    if (!specdec_memory_needed(&config, &bytes, &failure) && (memory = malloc(bytes)) != NULL && !specdec_init(&e, &config, memory, bytes, &failure) &&
        !specdec_prompt(e, prompt, SPECDEC_WHOLE_STRING))
        lowest = compare(e, draws);
    else
        printf("%s\n", e ? specdec_error_text(e) : failure.text);
    specdec_deinit(e);
    free(memory);
    return lowest;
}

int main(int argc, char **argv)
{
    const char *target = argc > 2 ? argv[1] : "examples/models/tiny-stories-target-q8_0.gguf";
    const char *draft = argc > 2 ? argv[2] : "examples/models/tiny-stories-draft-q8_0.gguf";
    const char *prompt = argc > 6 ? argv[6] : "Once upon a time, there was a";
    int draws = argc > 3 ? atoi(argv[3]) : getenv("SPECDEC_QUICK") ? 200 : 1000, rule = 1, i;
    float temperature = argc > 5 ? (float)atof(argv[5]) : 0.8f;

    for (i = 0; argc > 4 && i < (int)(sizeof rule_names / sizeof *rule_names); i++)
        if (strcmp(argv[4], rule_names[i]) == 0)
            rule = i;
    if (argc == 2 || draws < 1 || !(temperature > 0) || (argc > 4 && strcmp(argv[4], rule_names[rule]))) {
        fprintf(stderr, "usage: test_lossless [TARGET DRAFT [DRAWS [coupled|sequoia|specinfer|spectr|top-k [TEMPERATURE [PROMPT [triforce]]]]]]\n");
        return 2;
    }
    printf("%s:\n", rule_names[rule]);
    TEST("speculated texts have the distribution of plain sampling (11 p-values; the lowest must be above 1e-5)");
    CHECK(run(target, draft, prompt, draws, rule, temperature, argc > 7) > 1e-5);
    if (argc == 1) {
        TEST("so have those of two levels");
        CHECK(run(target, draft, "Once upon a time, there was a little girl named Lily. She had a big red ball and a small white dog. One day she went to "
                  "the park with her mom. The dog ran after the ball and", draws, rule, temperature, 1) > 1e-5);
        TEST("so have those that obey a constraint, which forbids some of what the model would write");
        make_constraint();
        CHECK(constraint && run(target, draft, prompt, draws, rule, temperature, 0) > 1e-5);
    }
    return check_report("test_lossless");
}
