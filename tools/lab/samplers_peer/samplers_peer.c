/* samplers_peer.c - every sampler beside llama.cpp's of the same name, on random rows: the same candidates stay, with the
   same logits. It loads llama.cpp's library at run time, which npm's @node-llama-cpp/linux-x64 brings:

     cc -O2 -I. tools/lab/samplers_peer/samplers_peer.c -o samplers_peer -ldl -lm -pthread
     cd package/bins/linux-x64 && LD_LIBRARY_PATH=. samplers_peer libllama.v0.5.0.so VOCAB.gguf [ROWS [all]] */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is used of llama.h. */
typedef struct peer_data { int32_t id; float logit, p; } peer_data;
typedef struct peer_array { peer_data *data; size_t size; int64_t selected; unsigned char sorted; } peer_array;
typedef struct peer_params { unsigned char bytes[512]; } peer_params;
typedef void peer_sampler;

static struct {
    peer_sampler *(*top_k)(int32_t);
    peer_sampler *(*top_p)(float, size_t);
    peer_sampler *(*min_p)(float, size_t);
    peer_sampler *(*typical)(float, size_t);
    peer_sampler *(*top_n_sigma)(float);
    peer_sampler *(*xtc)(float, float, size_t, uint32_t);
    peer_sampler *(*temp_ext)(float, float, float);
    peer_sampler *(*penalties)(int32_t, int32_t, float, float, float); /* tokens of the vocabulary first */
    peer_sampler *(*dry)(const void *, float, float, int32_t, int32_t, const char **, size_t);
    peer_sampler *(*mirostat)(uint32_t, float, float);
    void (*apply)(peer_sampler *, peer_array *);
    void (*accept)(peer_sampler *, int32_t);
    void (*release)(peer_sampler *);
    void (*reset)(peer_sampler *);
    peer_params (*params)(void);
    void *(*load)(const char *, peer_params);
    const void *(*vocab)(const void *);
    void (*log)(void *, void *);
    void (*backends)(const char *);
} peer;

static uint64_t dice = 12345;

static double uniform(void)
{
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    return (double)(dice >> 11) / 9007199254740992.0;
}

static void quiet(int level, const char *text, void *data)
{
    (void)level;
    (void)text;
    (void)data;
}

static void *symbol(void *library, const char *name)
{
    void *at = dlsym(library, name);

    if (!at) {
        fprintf(stderr, "no %s in the library\n", name);
        exit(1);
    }
    return at;
}

/* A function's address, which ISO C does not make of an object's. */
#define GET(member, name) \
    do { \
        void *at = symbol(library, name); \
        memcpy(&peer.member, &at, sizeof at); \
    } while (0)

static void connect(const char *path)
{
    void *library = dlopen(path, RTLD_NOW);

    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    GET(top_k, "llama_sampler_init_top_k");
    GET(top_p, "llama_sampler_init_top_p");
    GET(min_p, "llama_sampler_init_min_p");
    GET(typical, "llama_sampler_init_typical");
    GET(top_n_sigma, "llama_sampler_init_top_n_sigma");
    GET(xtc, "llama_sampler_init_xtc");
    GET(temp_ext, "llama_sampler_init_temp_ext");
    GET(penalties, "llama_sampler_init_penalties");
    GET(dry, "llama_sampler_init_dry");
    GET(mirostat, "llama_sampler_init_mirostat_v2");
    GET(apply, "llama_sampler_apply");
    GET(accept, "llama_sampler_accept");
    GET(release, "llama_sampler_free");
    GET(reset, "llama_sampler_reset");
    GET(params, "llama_model_default_params");
    GET(load, "llama_model_load_from_file");
    GET(vocab, "llama_model_get_vocab");
    GET(log, "llama_log_set");
    GET(backends, "ggml_backend_load_all_from_path");
    peer.backends(".");
}

enum { MOST = 2000, RECENT = 200, KINDS = 10, KEPT = 100 /* rows of one DRY sampler, which is slow to make */ };
static const char *const names[KINDS] = {"penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature", "mirostat 2"};

/* What both are asked: random settings of one sampler, as both take them. */
static peer_sampler *ask(int kind, specdec_sampling *s, const void *vocab)
{
    static const char *breakers[] = {"\n", ":", "\"", "*"};

    memset(s, 0, sizeof *s);
    s->temperature = 1;
    s->samplers[0] = (unsigned char)(kind < KINDS - 1 ? kind + 1 : 0);
    switch (kind) {
    case 0:
        s->repetition_window = 1 + (int)(uniform() * RECENT);
        s->repetition_penalty = (float)(.8 + .5 * uniform());
        s->frequency_penalty = (float)(uniform() - .5);
        s->presence_penalty = (float)(uniform() - .5);
        return peer.penalties(MOST, s->repetition_window, s->repetition_penalty, s->frequency_penalty, s->presence_penalty);
    case 1:
        s->dry_multiplier = (float)(.1 + uniform());
        s->dry_base = (float)(1 + uniform());
        s->dry_allowed_length = 1 + (int)(uniform() * 4);
        s->dry_window = uniform() < .5 ? 0 : 1 + (int)(uniform() * RECENT);
        return peer.dry(vocab, s->dry_multiplier, s->dry_base, s->dry_allowed_length, s->dry_window ? s->dry_window : 4096, breakers, 4);
    case 2: return peer.top_n_sigma(s->top_n_sigma = (float)(.1 + 3 * uniform()));
    case 3: return peer.top_k(s->top_k = 1 + (int)(uniform() * 300));
    case 4: return peer.typical(s->typical_p = (float)(.05 + .94 * uniform()), 1);
    case 5: return peer.top_p(s->top_p = (float)(.05 + .94 * uniform()), 1);
    case 6: return peer.min_p(s->min_p = (float)pow(10, -3 * uniform()), 1);
    case 7: return peer.xtc(s->xtc_probability = 1, s->xtc_threshold = (float)(.5 * uniform() * uniform()), 1, 1);
    case 8:
        s->temperature = (float)(.2 + 2 * uniform());
        s->temperature_range = uniform() < .3 ? 0 : (float)uniform();
        s->temperature_exponent = (float)(.3 + 2 * uniform());
        return peer.temp_ext(s->temperature, s->temperature_range, s->temperature_exponent);
    default:
        s->mirostat_tau = (float)(.5 + 6 * uniform());
        return peer.mirostat(7, s->mirostat_tau, .1f);
    }
}

/* --- where the sets differ: whose is the exact one ---------------------------------------------------------------- */

static long double apart[MOST]; /* |log p - the mean of log p| */

static int by_distance(const void *a, const void *b)
{
    const long double x = apart[*(const int *)a], y = apart[*(const int *)b];

    return x < y ? -1 : x > y;
}

/* What top_n_sigma or typ_p keeps of a row in exact arithmetic: keep (size). */
static void exactly(int kind, const specdec_sampling *s, const float *row, int size, int *keep)
{
    static int order[MOST];
    long double best = row[0], mean = 0, variance = 0, total = 0, sum = 0;
    int i;

    for (i = 0; i < size; i++) {
        mean += (long double)row[i] / size;
        best = row[i] > best ? (long double)row[i] : best;
    }
    for (i = 0; i < size; i++) {
        variance += (row[i] - mean) * (row[i] - mean) / size;
        total += expl(row[i] - best);
    }
    for (i = 0; kind == 2 && i < size; i++)
        keep[i] = row[i] >= best - (long double)s->top_n_sigma * sqrtl(variance);
    for (mean = 0, i = 0; i < size; i++)
        mean += expl(row[i] - best) / total * (row[i] - best - logl(total));
    for (i = 0; i < size; i++) {
        apart[i] = fabsl(row[i] - best - logl(total) - mean);
        order[i] = i;
    }
    qsort(order, (size_t)size, sizeof *order, by_distance);
    for (i = 0; kind != 2 && i < size; i++) {
        keep[order[i]] = sum <= (long double)s->typical_p;
        sum += expl(row[order[i]] - best) / total;
    }
}

/* Tokens that one keeps and the other does not. */
static int differ(const float *kept, const int *keep, int size)
{
    int i, count = 0;

    for (i = 0; i < size; i++)
        count += (kept[i] > -INFINITY) != keep[i];
    return count;
}

int main(int argc, char **argv)
{
    static float row[MOST], mine[MOST], theirs[MOST];
    static specdec_candidate items[MOST];
    static peer_data data[MOST];
    const int rows = argc > 3 ? atoi(argv[3]) : 10000;
    peer_params params;
    specdec_config config;
    specdec_model *own;
    specdec_error error;
    const void *vocab;
    size_t bytes;
    void *model, *silent;
    int kind, round, i, bad = 0;
    void (*say)(int, const char *, void *) = quiet;

    if (argc < 3)
        return 2;
    connect(argv[1]);
    memcpy(&silent, &say, sizeof silent);
    peer.log(silent, NULL);
    params = peer.params();
    for (i = 64; i < 128 && !params.bytes[i];)
        i++;
    params.bytes[i / 8 * 8] = 1; /* vocab_only, the first of its switches, of which others are 1 */
    model = peer.load(argv[2], params);
    if (!model)
        return 1;
    vocab = peer.vocab(model);
    memset(&config, 0, sizeof config);
    config.target.path = argv[2];
    config.vocabulary_only = 1;
    if (specdec_model_memory_needed(&config, &bytes, &error) || specdec_model_init(&own, &config, malloc(bytes), bytes, &error)) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    for (kind = 0; kind < KINDS; kind++) {
        int sets = 0, logits = 0, near = 0, kept = 0, exact = 0;
        peer_sampler *sampler = NULL;
        specdec_sampling s;

        for (round = 0; round < rows; round++) {
            const int size = 2 + (int)(uniform() * (MOST - 2)), few = 2 + (int)(uniform() * 40), recent_count = (int)(uniform() * RECENT);
            const double spread = .3 + 5 * uniform();
            specdec__sampler_input in;
            specdec_candidates list;
            peer_array array;
            int32_t recent[RECENT];
            int set = 0, far = 0;
            double least = 1e9;
            float shift;

            for (i = 0; i < size; i++) {
                row[i] = (float)(spread * sqrt(-2 * log(1 - uniform())) * cos(6.2831853 * uniform()));
                data[i].id = i;
                data[i].logit = row[i];
                data[i].p = 0;
                mine[i] = theirs[i] = -INFINITY;
            }
            for (i = 0; i < recent_count; i++)
                recent[i] = i > 4 && uniform() < .7 ? recent[i - 3] : (int32_t)(uniform() * (few < size ? few : size));
            if (!kept) {
                sampler = ask(kind, &s, vocab);
                kept = kind == 1 ? KEPT : 1;
            }
            kept--;
            for (i = 0; i < recent_count; i++)
                peer.accept(sampler, recent[i]);
            memset(&in, 0, sizeof in);
            in.sampling = &s;
            in.vocab = &own->vocab;
            in.size = size;
            in.recent = recent;
            in.recent_count = recent_count;
            list.items = items;
            specdec__sample_apply_samplers(&list, &in, row);
            array.data = data;
            array.size = (size_t)size;
            array.selected = -1;
            array.sorted = 0;
            peer.apply(sampler, &array);
            if (kept)
                peer.reset(sampler);
            else
                peer.release(sampler);
            for (i = 0; i < list.count; i++)
                mine[items[i].token] = items[i].logit;
            for (i = 0; i < (int)array.size; i++)
                theirs[array.data[i].id] = array.data[i].logit;
            { /* logits but for a shift */
                float best = -INFINITY;

                shift = 0;
                for (i = 0; i < size; i++)
                    best = theirs[i] > best ? theirs[i] : best;
                shift = best;
                for (i = 0; i < size; i++) {
                    set += (mine[i] > -INFINITY) != (theirs[i] > -INFINITY);
                    far += mine[i] > -INFINITY && theirs[i] > -INFINITY && fabs((double)(mine[i] - (theirs[i] - best))) > 1e-3 * (1 + fabs((double)mine[i]));
                    if (mine[i] > -INFINITY && (double)mine[i] < least)
                        least = (double)mine[i];
                }
            }
            if (set && (kind == 2 || kind == 4)) {
                static int keep[MOST];

                exactly(kind, &s, row, size, keep);
                exact += !differ(mine, keep, size);
                printf("%s: row %d of %d tokens: %d tokens differ; in exact arithmetic %d of ours and %d of theirs would\n", names[kind], round,
                       size, set, differ(mine, keep, size), differ(theirs, keep, size));
            }
            near += set == 1;
            sets += set > 0;
            logits += far > 0;
            if ((set > 1 || far) && argc > 4)
                printf("%s: row %d of %d: %d tokens differ, %d logits; kept %d and %d\n", names[kind], round, size, set, far, list.count, (int)array.size);
            if (far && argc > 5) {
                for (i = 0; i < recent_count; i++)
                    printf(" %d", (int)recent[i]);
                printf("\nmultiplier %g base %g allowed %d window %d:", (double)s.dry_multiplier, (double)s.dry_base, (int)s.dry_allowed_length, (int)s.dry_window);
                for (i = 0; i < size; i++)
                    if (fabs((double)(mine[i] - theirs[i] + shift)) > 1e-3 * (1 + fabs((double)mine[i])))
                        printf(" %d (%g, %g)", i, (double)(mine[i] + shift), (double)theirs[i]);
                printf("\n");
            }
        }
        printf("%-12s %d rows: %d other sets (%d of these by one token, %d where ours is the exact set), %d with other logits\n", names[kind], rows, sets, near, exact, logits);
        fflush(stdout);
        bad += sets - near + logits > 0;
    }
    return bad > 0;
}
