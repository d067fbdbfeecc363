/* specdec-bench - what a step costs, against what this machine could do at best: bandwidth and integer peak of the same run. */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include <stdio.h>
#include <stdlib.h>

#define MAX_MODELS 8
#define MAX_WIDTHS 16
#define MAX_REPEATS 101
#define MAX_PREFILLS 4

static const char usage[] =
    "usage: specdec-bench -m MODEL.gguf [-m MORE.gguf ...] [-md DRAFT.gguf] [options]\n"
    "\n"
    "  -m FILE        a model; up to 8 of them, one after the other\n"
    "  -md FILE       a draft model: also measures speculation end to end\n"
    "  -t N           threads (default: all processors)\n"
    "  -w LIST        step widths (default 1,2,4,8,16,32,64)\n"
    "  -c N           context behind every step, in tokens (default 128)\n"
    "  -r N           repeats (default 9)\n"
    "  -n N           tokens that the end-to-end runs write (default 128)\n"
    "  --kv NAME      key and value cache: f16, f32, q8_0 (default f16)\n"
    "  --isa NAME     instruction set (default: the best of this CPU)\n"
    "  --in-place     weights are not repacked\n"
    "  --no-prefill   leaves out the prefill of 128 and 512 tokens\n"
    "  -o FORMAT      md, json or svg (default md)\n"
    "  --help         this text\n"
    "\n"
    "roofline share: max(bytes / read bandwidth, width * multiply-adds / integer peak) / time of the step\n"
    "exit status: 0 done, 1 failed, 2 wrong usage\n";

typedef struct options {
    const char *models[MAX_MODELS], *draft, *kv, *isa, *format;
    int model_count, threads, widths[MAX_WIDTHS], width_count, context, repeats, tokens, in_place, no_prefill;
} options;

typedef struct spread {
    double min, median, max;
} spread;

typedef struct step_result {
    int width;
    spread ms;
    double share;
} step_result;

typedef struct model_result {
    const char *file, *type;
    double weight_bytes, kv_bytes, macs, load_seconds, decode_tok_s, first_token_ms;
    step_result steps[MAX_WIDTHS];
    int prefill_tokens[MAX_PREFILLS], prefill_count;
    double prefill_tok_s[MAX_PREFILLS], prefill_share[MAX_PREFILLS];
    const char *spec_mode[2];
    double spec_tok_s[2], spec_tokens_per_step[2];
    int spec_count;
} model_result;

/* --- the machine ----------------------------------------------------------------------------------------------------- */

#define READ_BYTES ((size_t)512 << 20)
#define PEAK_ROUNDS 400000L

typedef struct machine {
    specdec__pool pool;
    int never;
    unsigned char *memory;
    const char *isa;
    volatile uint64_t sink;
    double macs_per_round;
} machine;

static void read_worker(void *argument, int thread)
{
    machine *m = (machine *)argument;
    size_t part = READ_BYTES / (size_t)m->pool.threads / 64 * 64, i;
    const uint64_t *p = (const uint64_t *)(const void *)(m->memory + part * (size_t)thread);
    uint64_t a = 0, b = 0, c = 0, d = 0;

    for (i = 0; i < part / 8; i += 8) {
        a += p[i] ^ p[i + 1];
        b += p[i + 2] ^ p[i + 3];
        c += p[i + 4] ^ p[i + 5];
        d += p[i + 6] ^ p[i + 7];
    }
    m->sink += a + b + c + d;
}

#ifdef SPECDEC__AVX512
SPECDEC__AVX512 static uint64_t peak_avx512(void)
{
    __m512i s[12], x = _mm512_set1_epi8(3);
    long i;
    int j;

    for (j = 0; j < 12; j++)
        s[j] = _mm512_set1_epi32(j);
    for (i = 0; i < PEAK_ROUNDS; i++) {
        SPECDEC__UNROLL
        for (j = 0; j < 12; j++)
            s[j] = _mm512_dpbusd_epi32(s[j], x, x);
    }
    for (j = 1; j < 12; j++)
        s[0] = _mm512_add_epi32(s[0], s[j]);
    return (uint64_t)(uint32_t)_mm_cvtsi128_si32(_mm512_castsi512_si128(s[0]));
}
#endif

#if defined(__x86_64__) && !defined(SPECDEC_NO_SIMD)
__attribute__((target("avx2"))) static uint64_t peak_avx2(void)
{
    __m256i s[8], x = _mm256_set1_epi8(3), ones = _mm256_set1_epi16(1), y = _mm256_set1_epi8(2);
    long i;
    int j;

    for (j = 0; j < 8; j++)
        s[j] = _mm256_set1_epi32(j);
    for (i = 0; i < PEAK_ROUNDS; i++) {
        __asm__ volatile("" : "+x"(x));
        SPECDEC__UNROLL
        for (j = 0; j < 8; j++)
            s[j] = _mm256_add_epi32(s[j], _mm256_madd_epi16(_mm256_maddubs_epi16(x, _mm256_xor_si256(y, s[j])), ones));
    }
    for (j = 1; j < 8; j++)
        s[0] = _mm256_add_epi32(s[0], s[j]);
    return (uint64_t)(uint32_t)_mm_cvtsi128_si32(_mm256_castsi256_si128(s[0]));
}
#endif

static uint64_t peak_scalar(void)
{
    static volatile int8_t seed = 3;
    int32_t s[8] = {0}, x = seed;
    long i;
    int j;

    for (i = 0; i < PEAK_ROUNDS; i++)
        for (j = 0; j < 8; j++)
            s[j] += x * (x ^ s[j]);
    return (uint64_t)(uint32_t)(s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7]);
}

/* The multiply-add loop of an instruction set, and its multiply-adds a round. */
static const struct peak {
    const char *isa;
    uint64_t (*run)(void);
    double macs;
} peaks[] = {
#ifdef SPECDEC__AVX512
    {"avx512", peak_avx512, 12 * 64},
#endif
#if defined(__x86_64__) && !defined(SPECDEC_NO_SIMD)
    {"avx2", peak_avx2, 8 * 32},
#endif
    {"", peak_scalar, 8},
};

static const struct peak *find_peak(const char *isa)
{
    size_t i = 0;

    while (peaks[i].isa[0] && strcmp(peaks[i].isa, isa) != 0)
        i++;
    return &peaks[i];
}

static void peak_worker(void *argument, int thread)
{
    machine *m = (machine *)argument;

    (void)thread;
    m->sink += find_peak(m->isa)->run();
}

static double timed(machine *m, specdec__team_function *function)
{
    double start = specdec__os_seconds();

    specdec__pool_run(&m->pool, m->pool.threads, function, m);
    return specdec__os_seconds() - start;
}

/* GB/s */
static double measure_bandwidth(machine *m) { return (double)READ_BYTES / timed(m, read_worker) / 1e9; }

/* GMAC/s */
static double measure_peak(machine *m)
{
    return find_peak(m->isa)->macs * (double)PEAK_ROUNDS * m->pool.threads / timed(m, peak_worker) / 1e9;
}

/* --- statistics ------------------------------------------------------------------------------------------------------ */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static spread spread_of(const double *values, int count)
{
    double sorted[MAX_REPEATS];
    spread s;

    memcpy(sorted, values, (size_t)count * sizeof *values);
    qsort(sorted, (size_t)count, sizeof *sorted, compare_doubles);
    s.min = sorted[0];
    s.median = sorted[count / 2];
    s.max = sorted[count - 1];
    return s;
}

/* --- one model ------------------------------------------------------------------------------------------------------- */

typedef struct bench {
    const options *o;
    machine *m;
    double read_gbps[MAX_REPEATS], int8_gmacs[MAX_REPEATS]; /* of the last model's repeats */
    int repeats;
} bench;

static specdec *open_engine(const options *o, const char *path, specdec_drafting drafting, const char *draft, void **memory)
{
    specdec_config config;
    specdec *engine;
    size_t bytes;

    memset(&config, 0, sizeof config);
    config.target.path = path;
    config.draft.path = draft;
    config.drafting = drafting;
    config.threads = o->threads;
    config.context = o->context + 1024;
    config.kv = o->kv;
    config.isa = o->isa;
    config.weights_in_place = o->in_place;
    config.max_tokens = o->tokens;
    if (specdec_memory_needed(&config, &bytes) || (*memory = malloc(bytes)) == NULL || specdec_init(&engine, &config, *memory, bytes)) {
        fprintf(stderr, "specdec-bench: %s: %s\n", path, specdec_last_error(&config));
        return NULL;
    }
    return engine;
}

static double step_seconds(specdec__context *c, const specdec__batch *batch)
{
    double start = specdec__os_seconds();

    specdec__forward(c, batch, NULL);
    return specdec__os_seconds() - start;
}

/* A chain of n nodes behind the context, all rows of logits wanted, or the last one only. */
static void make_chain(specdec *e, specdec__batch *batch, int n, int last_only)
{
    int i;

    for (i = 0; i < n; i++) {
        e->batch_tokens[i] = (int32_t)(100 + i * 7) % e->target_model->vocab_size;
        e->batch_parents[i] = i - 1;
        e->wanted[i] = (unsigned char)(!last_only || i == n - 1);
        e->path[i] = i;
    }
    batch->n = n;
    batch->done = 0;
    batch->tokens = e->batch_tokens;
    batch->parents = e->batch_parents;
    batch->views = e->views;
    batch->wanted = e->wanted;
}

static void fill_context(specdec *e, int tokens)
{
    specdec__batch batch;

    specdec__view_truncate(&e->target.view, &e->target.kv, 0);
    while (tokens > 0) {
        int n = specdec__min_int(tokens, e->config.batch);

        make_chain(e, &batch, n, 1);
        specdec__forward(&e->target, &batch, NULL);
        specdec__view_commit(&e->target.view, &e->target.kv, e->path, n);
        tokens -= n;
    }
}

/* Widths, bandwidth and peak in turn, so that a slow minute hits all of them. */
static void measure_steps(bench *b, specdec *e, model_result *r)
{
    static double seconds[MAX_WIDTHS][MAX_REPEATS], share[MAX_WIDTHS][MAX_REPEATS];
    int i, w;

    fill_context(e, b->o->context);
    for (i = 0; i < b->repeats; i++) {
        b->read_gbps[i] = measure_bandwidth(b->m);
        b->int8_gmacs[i] = measure_peak(b->m);
        for (w = 0; w < b->o->width_count; w++) {
            specdec__batch batch;
            double memory = (r->weight_bytes + r->kv_bytes) / b->read_gbps[i] / 1e9, integer;

            make_chain(e, &batch, b->o->widths[w], 0);
            integer = b->o->widths[w] * r->macs / b->int8_gmacs[i] / 1e9;
            seconds[w][i] = step_seconds(&e->target, &batch);
            share[w][i] = (memory > integer ? memory : integer) / seconds[w][i];
        }
    }
    for (w = 0; w < b->o->width_count; w++) {
        step_result *s = &r->steps[w];

        s->width = b->o->widths[w];
        s->ms = spread_of(seconds[w], b->repeats);
        s->ms.min *= 1e3;
        s->ms.median *= 1e3;
        s->ms.max *= 1e3;
        s->share = spread_of(share[w], b->repeats).median;
    }
}

static void measure_prefill(bench *b, specdec *e, model_result *r)
{
    static const int tokens[] = {128, 512};
    double seconds[MAX_REPEATS], peak = spread_of(b->int8_gmacs, b->repeats).median;
    int i, k;

    for (k = 0; k < 2; k++) {
        for (i = 0; i < 3; i++) {
            double start = specdec__os_seconds();

            fill_context(e, tokens[k]);
            seconds[i] = specdec__os_seconds() - start;
        }
        r->prefill_tokens[k] = tokens[k];
        r->prefill_tok_s[k] = tokens[k] / spread_of(seconds, 3).median;
        r->prefill_share[k] = r->prefill_tok_s[k] * r->macs / 1e9 / peak;
        r->prefill_count = k + 1;
    }
    specdec__view_truncate(&e->target.view, &e->target.kv, 0);
}

/* Text end to end. Returns 0 when it failed. */
static int measure_text(const options *o, specdec *e, double *tok_s, double *per_step, double *first_ms)
{
    static const char prompt[] = "Once upon a time, in a small village by the sea, there lived an old man who";
    specdec_stats stats;
    specdec_text piece;
    specdec_result result;

    (void)o;
    if (specdec_prompt(e, prompt, SPECDEC_WHOLE_STRING)) {
        fprintf(stderr, "specdec-bench: %s\n", specdec_error_text(e));
        return 0;
    }
    while ((result = specdec_next(e, &piece)) == SPECDEC_OK)
        continue;
    if (result != SPECDEC_DONE) {
        fprintf(stderr, "specdec-bench: %s\n", specdec_error_text(e));
        return 0;
    }
    specdec_get_stats(e, &stats);
    *tok_s = stats.seconds > 0 ? (double)stats.tokens / stats.seconds : 0;
    *per_step = stats.steps ? (double)stats.tokens / (double)stats.steps : 0;
    *first_ms = stats.first_token_seconds * 1e3;
    return 1;
}

/* The type that holds most of a model's weights. */
static const char *main_type(const specdec__model *m)
{
    size_t bytes[SPECDEC__TYPE_COUNT] = {0};
    int i, best = 0;

    for (i = 0; i < m->layers * SPECDEC__MATRICES; i++) {
        const specdec__matrix *matrix = &m->layer[i / SPECDEC__MATRICES].matrix[i % SPECDEC__MATRICES];
        bytes[matrix->type->number] += matrix->row_bytes * (size_t)matrix->rows;
    }
    for (i = 0; i < SPECDEC__TYPE_COUNT; i++)
        if (bytes[i] > bytes[best])
            best = i;
    return specdec__quant_find((uint32_t)best)->name;
}

static int measure_model(bench *b, const char *path, model_result *r)
{
    const options *o = b->o;
    double start = specdec__os_seconds(), unused;
    void *memory = NULL;
    specdec *e = open_engine(o, path, SPECDEC_DRAFT_OFF, NULL, &memory);
    int ok;

    if (!e) {
        free(memory);
        return 0;
    }
    r->file = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    r->load_seconds = specdec__os_seconds() - start;
    r->type = main_type(e->target_model);
    r->weight_bytes = (double)e->target_model->weight_bytes;
    r->macs = (double)e->target_model->weight_products;
    r->kv_bytes = (double)e->target.kv.page_bytes / SPECDEC__KEYS * o->context;
    b->m->isa = e->kernels.name;
    ok = measure_text(o, e, &r->decode_tok_s, &unused, &r->first_token_ms);
    if (ok) {
        measure_steps(b, e, r);
        if (!o->no_prefill)
            measure_prefill(b, e, r);
    }
    specdec_deinit(e);
    free(memory);
    if (ok && o->draft) {
        e = open_engine(o, path, SPECDEC_DRAFT_MODEL, o->draft, &memory);
        ok = e != NULL && measure_text(o, e, &r->spec_tok_s[0], &r->spec_tokens_per_step[0], &unused);
        r->spec_mode[0] = "draft";
        r->spec_count = 1;
        specdec_deinit(e);
        free(memory);
    }
    return ok;
}

/* --- output ---------------------------------------------------------------------------------------------------------- */

static void print_md(const bench *b, const model_result *results, int count)
{
    int i, k;

    printf("%s, %d threads, context %d, read bandwidth %.1f GB/s, int8 peak %.0f GMAC/s; medians of %d\n", b->m->isa, b->m->pool.threads,
           b->o->context, spread_of(b->read_gbps, b->repeats).median, spread_of(b->int8_gmacs, b->repeats).median, b->repeats);
    for (i = 0; i < count; i++) {
        const model_result *r = &results[i];

        printf("\n%s (%s, %.0f MB of weights, %.2f GMAC a token): loaded in %.2f s, first token %.0f ms, %.1f tok/s plain\n\n", r->file, r->type,
               r->weight_bytes / 1e6, r->macs / 1e9, r->load_seconds, r->first_token_ms, r->decode_tok_s);
        printf("| width | ms (min) | ms (median) | ms (max) | t(n) | roofline share |\n|---:|---:|---:|---:|---:|---:|\n");
        for (k = 0; k < b->o->width_count; k++)
            printf("| %d | %.2f | %.2f | %.2f | %.2f | %.2f |\n", r->steps[k].width, r->steps[k].ms.min, r->steps[k].ms.median, r->steps[k].ms.max,
                   r->steps[k].ms.median / r->steps[0].ms.median, r->steps[k].share);
        for (k = 0; k < r->prefill_count; k++)
            printf("%sprefill %d: %.0f tok/s, %.2f of the integer peak\n", k ? "" : "\n", r->prefill_tokens[k], r->prefill_tok_s[k], r->prefill_share[k]);
        for (k = 0; k < r->spec_count; k++)
            printf("speculation (%s): %.1f tok/s, %.2f tokens a step\n", r->spec_mode[k], r->spec_tok_s[k], r->spec_tokens_per_step[k]);
    }
}

static void print_json(const bench *b, const model_result *results, int count)
{
    int i, k;

    printf("{\"threads\":%d,\"isa\":\"%s\",\"context\":%d,\"read_gbps\":%.2f,\"int8_gmacs\":%.1f,\"models\":[", b->m->pool.threads, b->m->isa,
           b->o->context, spread_of(b->read_gbps, b->repeats).median, spread_of(b->int8_gmacs, b->repeats).median);
    for (i = 0; i < count; i++) {
        const model_result *r = &results[i];

        printf("%s\n{\"file\":\"%s\",\"type\":\"%s\",\"weight_bytes\":%.0f,\"macs_per_token\":%.0f,\"load_s\":%.3f,\"first_token_ms\":%.1f,"
               "\"decode_tok_s\":%.2f,\n \"steps\":[", i ? "," : "", r->file, r->type, r->weight_bytes, r->macs, r->load_seconds, r->first_token_ms,
               r->decode_tok_s);
        for (k = 0; k < b->o->width_count; k++)
            printf("%s\n  {\"width\":%d,\"ms_min\":%.3f,\"ms_median\":%.3f,\"ms_max\":%.3f,\"roofline_share\":%.3f}", k ? "," : "", r->steps[k].width,
                   r->steps[k].ms.min, r->steps[k].ms.median, r->steps[k].ms.max, r->steps[k].share);
        printf("],\n \"prefill\":[");
        for (k = 0; k < r->prefill_count; k++)
            printf("%s{\"tokens\":%d,\"tok_s\":%.1f,\"peak_share\":%.3f}", k ? "," : "", r->prefill_tokens[k], r->prefill_tok_s[k], r->prefill_share[k]);
        printf("],\n \"speculative\":[");
        for (k = 0; k < r->spec_count; k++)
            printf("%s{\"mode\":\"%s\",\"tok_s\":%.2f,\"tokens_per_step\":%.3f}", k ? "," : "", r->spec_mode[k], r->spec_tok_s[k], r->spec_tokens_per_step[k]);
        printf("]}");
    }
    printf("]}\n");
}

/* Step time over width, both on doubling axes: a flat line is a step that costs the same at every width. */
static void print_svg(const bench *b, const model_result *results, int count)
{
    static const char *const colours[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#e377c2", "#17becf"};
    const double left = 64, top = 48, width = 560, height = 320, gbps = spread_of(b->read_gbps, b->repeats).median;
    const double gmacs = spread_of(b->int8_gmacs, b->repeats).median;
    double low = 1e30, high = 0, octaves;
    int i, k, n = b->o->width_count;

#define X_OF(index) (left + (n > 1 ? width * (index) / (n - 1) : width / 2))
#define Y_OF(ms) (top + height - height * log2_of((ms) / low) / octaves)
    for (i = 0; i < count; i++)
        for (k = 0; k < n; k++) {
            low = results[i].steps[k].ms.median < low ? results[i].steps[k].ms.median : low;
            high = results[i].steps[k].ms.median > high ? results[i].steps[k].ms.median : high;
        }
    low *= 0.7;
    octaves = specdec__log_double(high * 1.2 / low) / specdec__log_double(2);
#define log2_of(x) (specdec__log_double(x) / specdec__log_double(2))
    printf("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 860 440\" font-family=\"sans-serif\" font-size=\"13\">\n"
           "<rect width=\"860\" height=\"440\" fill=\"white\"/>\n"
           "<text x=\"%.0f\" y=\"24\" font-size=\"15\">Time of one step (ms) over its width in tokens; dashed: the roofline of this machine</text>\n"
           "<text x=\"%.0f\" y=\"424\" fill=\"#555\">%s, %d threads, context %d, %.1f GB/s, %.0f GMAC/s (int8)</text>\n", left, left, b->m->isa,
           b->m->pool.threads, b->o->context, gbps, gmacs);
    for (k = 0; k < n; k++)
        printf("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#eee\"/><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%d</text>\n", X_OF(k),
               top, X_OF(k), top + height, X_OF(k), top + height + 20, b->o->widths[k]);
    for (k = 0; k < 16; k++) {
        double ms = (double)(1 << k);

        if (ms >= low && ms <= high * 1.2)
            printf("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#eee\"/><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.0f</text>\n", left,
                   Y_OF(ms), left + width, Y_OF(ms), left - 8, Y_OF(ms) + 4, ms);
    }
    for (i = 0; i < count; i++) {
        const model_result *r = &results[i];

        printf("<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2.5\" points=\"", colours[i]);
        for (k = 0; k < n; k++)
            printf("%.1f,%.1f ", X_OF(k), Y_OF(r->steps[k].ms.median));
        printf("\"/>\n<polyline fill=\"none\" stroke=\"%s\" stroke-dasharray=\"5 4\" points=\"", colours[i]);
        for (k = 0; k < n; k++) {
            double memory = (r->weight_bytes + r->kv_bytes) / gbps / 1e6, integer = b->o->widths[k] * r->macs / gmacs / 1e6;
            double ms = memory > integer ? memory : integer;

            printf("%.1f,%.1f ", X_OF(k), Y_OF(ms > low ? ms : low));
        }
        printf("\"/>\n<text x=\"%.0f\" y=\"%.0f\" fill=\"%s\">%s: %.2f at 8</text>\n", left + width + 14, top + 20 + 22 * i, colours[i], r->type,
               r->steps[n > 3 ? 3 : n - 1].ms.median / r->steps[0].ms.median);
    }
    printf("<text x=\"%.0f\" y=\"%.0f\" fill=\"#555\">(time over that of one token)</text>\n</svg>\n", left + width + 14, top + 20 + 22.0 * count);
#undef X_OF
#undef Y_OF
#undef log2_of
}

/* --- command line ---------------------------------------------------------------------------------------------------- */

static int wrong_usage(const char *what, const char *argument)
{
    fprintf(stderr, "specdec-bench: %s%s\n\n%s", what, argument, usage);
    return 2;
}

static int parse_widths(options *o, const char *text)
{
    o->width_count = 0;
    while (*text) {
        char *end;
        long n = strtol(text, &end, 10);

        if (end == text || n < 1 || n > 64 || o->width_count == MAX_WIDTHS || (*end && *end != ','))
            return 0;
        o->widths[o->width_count++] = (int)n;
        text = *end ? end + 1 : end;
    }
    return o->width_count > 0;
}

static int parse_number(const char *text, int low, int high, int *out)
{
    char *end;
    long n = strtol(text, &end, 10);

    if (end == text || *end || n < low || n > high)
        return 0;
    *out = (int)n;
    return 1;
}

/* Returns 0, or 2 after saying what is wrong. */
static int parse(options *o, int argc, char **argv)
{
    int i;

    for (i = 1; i < argc; i++) {
        const char *flag = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        int ok = 1;

        if (strcmp(flag, "--in-place") == 0) {
            o->in_place = 1;
            continue;
        }
        if (strcmp(flag, "--no-prefill") == 0) {
            o->no_prefill = 1;
            continue;
        }
        if (!strchr("mtwcrno-", flag[0] == '-' ? flag[1] : 0) || flag[0] != '-')
            return wrong_usage("unknown argument ", flag);
        if (!value)
            return wrong_usage("a value is missing after ", flag);
        if (strcmp(flag, "-m") == 0 && o->model_count < MAX_MODELS)
            o->models[o->model_count++] = value;
        else if (strcmp(flag, "-md") == 0)
            o->draft = value;
        else if (strcmp(flag, "-t") == 0)
            ok = parse_number(value, 1, SPECDEC_MAX_THREADS, &o->threads);
        else if (strcmp(flag, "-w") == 0)
            ok = parse_widths(o, value);
        else if (strcmp(flag, "-c") == 0)
            ok = parse_number(value, 1, 1 << 20, &o->context);
        else if (strcmp(flag, "-r") == 0)
            ok = parse_number(value, 1, MAX_REPEATS, &o->repeats);
        else if (strcmp(flag, "-n") == 0)
            ok = parse_number(value, 1, 800, &o->tokens);
        else if (strcmp(flag, "--kv") == 0)
            o->kv = value;
        else if (strcmp(flag, "--isa") == 0)
            o->isa = value;
        else if (strcmp(flag, "-o") == 0)
            o->format = value;
        else
            return wrong_usage("unknown flag ", flag);
        if (!ok)
            return wrong_usage("not a sensible value for ", flag);
        i++;
    }
    if (!o->model_count)
        return wrong_usage("a model is needed: -m MODEL.gguf", "");
    if (strcmp(o->format, "md") && strcmp(o->format, "json") && strcmp(o->format, "svg"))
        return wrong_usage("unknown output format ", o->format);
    return 0;
}

int main(int argc, char **argv)
{
    static model_result results[MAX_MODELS];
    static options o;
    static machine m;
    static bench b;
    specdec__arena arena;
    int i;

    for (i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0)
            return fputs(usage, stdout), 0;
    o.format = "md";
    o.context = 128;
    o.repeats = 9;
    o.tokens = 128;
    parse_widths(&o, "1,2,4,8,16,32,64");
    if (parse(&o, argc, argv))
        return 2;
    arena.size = (size_t)SPECDEC_MAX_THREADS * SPECDEC__STACK + (1 << 16);
    arena.base = (unsigned char *)malloc(arena.size);
    arena.used = 0;
    m.memory = (unsigned char *)malloc(READ_BYTES);
    if (!arena.base || !m.memory || specdec__pool_init(&m.pool, o.threads ? o.threads : specdec__os_processors(), &m.never, &arena, NULL))
        return fprintf(stderr, "specdec-bench: no memory or no threads\n"), 1;
    memset(m.memory, 1, READ_BYTES);
    b.o = &o;
    b.m = &m;
    b.repeats = o.repeats;
    for (i = 0; i < o.model_count; i++)
        if (!measure_model(&b, o.models[i], &results[i]))
            return 1;
    (strcmp(o.format, "json") == 0 ? print_json : strcmp(o.format, "svg") == 0 ? print_svg : print_md)(&b, results, o.model_count);
    specdec__pool_deinit(&m.pool);
    free(m.memory);
    free(arena.base);
    return 0;
}
