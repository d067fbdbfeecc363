/* specdec-bench - what a step costs, against what this machine could do at best: bandwidth and integer peak of the
   same run. */
#define _DEFAULT_SOURCE 1 /* POSIX, also under -std=c99 */
#include "specdec.h"
#include "tools/program.h"
#include "tools/json.h"
#include "tools/measure.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#ifdef __x86_64__
/* gcc 12 sees uninitialised variables in its own AVX-512 header when it compiles C++ (GCC bug 105593). */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#endif
#ifdef __ARM_NEON
#include <arm_neon.h>
#endif

#define DRAFTER_NAME(NAME, kind, name) , name
#define MAX_MODELS 8
#define MAX_WIDTHS 16
#define MAX_REPEATS 101
#define MAX_PREFILLS 4
#define MAX_STREAMS 64

enum { FORMAT_MD, FORMAT_JSON, FORMAT_SVG };

typedef struct options {
    const char *models[MAX_MODELS], *draft, *kv, *isa, *chat_format, *width_list;
    int model_count, threads, widths[MAX_WIDTHS], width_count, context, repeats, tokens, in_place, prefill, format;
    const char *prompts, *temperatures; /* of --compare */
    int compare, positions, steps, chat;
    const char *stream_list;            /* of --sequences */
    int streams[MAX_WIDTHS], stream_count, spec, wait;
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
    int vocabulary, threads;
    double weight_bytes, kv_bytes, macs, output_macs, load_seconds, decode_tok_s, first_token_ms;
    double state_bytes; /* of recurrent layers, and their inputs, that a step of decoding reads and writes */
    double attention_macs; /* of a token, for each token before it; output_macs: of its row of logits */
    step_result steps[MAX_WIDTHS];
    int prefill_tokens[MAX_PREFILLS], prefill_count;
    double prefill_tok_s[MAX_PREFILLS], prefill_share[MAX_PREFILLS];
    const char *spec_mode[2];
    double spec_tok_s[2], spec_tokens_per_step[2];
    int spec_count;
} model_result;

/* --- the machine -------------------------------------------------------------------------------------------------- */

#define READ_BYTES ((size_t)512 << 20)
#define READ_AHEAD 4096 /* bytes fetched ahead of the reading: some CPUs reach their bandwidth only so */
#define PEAK_ROUNDS 4000000L

/* Threads that do one thing side by side. Those who wait for the others look at a word, as the engine's do. */
typedef struct machine {
    int threads, arrived;
    unsigned phase; /* bumped when all have arrived */
    void (*function)(struct machine *m, int thread);
    double seconds;     /* that the last run took */
    unsigned char *memory;
    const char *isa;
    int streams;        /* that a thread reads side by side */
    uint64_t sink;      /* so that nothing is left out */
} machine;

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* All threads meet here. */
static void meet(machine *m)
{
    unsigned phase = __atomic_load_n(&m->phase, __ATOMIC_ACQUIRE);
    int i;

    if (__atomic_fetch_add(&m->arrived, 1, __ATOMIC_ACQ_REL) == __atomic_load_n(&m->threads, __ATOMIC_RELAXED) - 1) {
        __atomic_store_n(&m->arrived, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&m->phase, phase + 1, __ATOMIC_RELEASE);
        return;
    }
    for (i = 0; __atomic_load_n(&m->phase, __ATOMIC_ACQUIRE) == phase; i++)
        if (i % 64 == 63)
            sched_yield(); /* the thread that is waited for may want this very core */
        else
            relax();
}

/* A thread and its number. */
typedef struct worker {
    machine *m;
    int number;
    pthread_t thread;
} worker;

/* Takes part in a run; thread 0 looks at the clock when all are there and when all are done. */
static void *work(void *argument)
{
    worker *w = (worker *)argument;
    double start;

    meet(w->m);
    start = program_seconds();
    w->m->function(w->m, w->number);
    meet(w->m);
    if (!w->number)
        w->m->seconds = program_seconds() - start;
    return NULL;
}

/* Seconds of a function on all threads. Threads that cannot be had are done without, for good. */
static double timed(machine *m, void (*function)(machine *m, int thread))
{
    worker workers[SPECDEC_MAX_THREADS];
    int i, wanted = m->threads;

    m->function = function;
    m->threads = INT_MAX; /* nobody goes on before it is known how many there are */
    for (i = 0; i < wanted; i++) {
        workers[i].m = m;
        workers[i].number = i;
        if (i && pthread_create(&workers[i].thread, NULL, work, &workers[i]))
            break;
    }
    wanted = i;
    while (__atomic_load_n(&m->arrived, __ATOMIC_ACQUIRE) < wanted - 1)
        sched_yield();
    __atomic_store_n(&m->threads, wanted, __ATOMIC_RELAXED);
    work(&workers[0]);
    for (i = 1; i < wanted; i++)
        pthread_join(workers[i].thread, NULL);
    return m->seconds;
}

/* Keeps what was computed from being left out. */
static void keep(machine *m, uint64_t value) { __atomic_fetch_add(&m->sink, value, __ATOMIC_RELAXED); }

/* For loops whose count is known: all of it in a row. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__) && __GNUC__ >= 8
#define UNROLL _Pragma("GCC unroll 16")
#else
#define UNROLL
#endif

/* Adds up a cache line, into four sums that do not wait for each other. */
#ifdef __ARM_NEON
typedef uint64x2_t read_sum;

static inline void read_line(const uint64_t *line, read_sum *sums)
{
    int i;

    UNROLL
    for (i = 0; i < 4; i++)
        sums[i] = veorq_u64(sums[i], vld1q_u64(line + 2 * i));
}

static inline uint64_t read_total(read_sum sum) { return vgetq_lane_u64(sum, 0) + vgetq_lane_u64(sum, 1); }
#else
typedef uint64_t read_sum;

static inline void read_line(const uint64_t *line, read_sum *sums)
{
    int i;

    UNROLL
    for (i = 0; i < 4; i++)
        sums[i] += line[2 * i] ^ line[2 * i + 1];
}

static inline uint64_t read_total(read_sum sum) { return sum; }
#endif

static void read_worker(machine *m, int thread)
{
    size_t part = READ_BYTES / (size_t)m->threads / (size_t)m->streams / 64 * 64, i;
    const unsigned char *from = m->memory + part * (size_t)(thread * m->streams);
    read_sum sums[4];
    int k;

    memset(sums, 0, sizeof sums);
    for (i = 0; i < part; i += 64)
        for (k = 0; k < m->streams; k++) {
            const uint64_t *line = (const uint64_t *)(const void *)(from + (size_t)k * part + i);

            __builtin_prefetch(line + READ_AHEAD / 8);
            read_line(line, sums);
        }
    keep(m, read_total(sums[0]) + read_total(sums[1]) + read_total(sums[2]) + read_total(sums[3]));
}

#ifdef __x86_64__
__attribute__((target("avx512f,avx512bw,avx512vnni"))) static uint64_t peak_avx512(void)
{
    __m512i s[12], x = _mm512_set1_epi8(3);
    long i;
    int j, k;

    for (j = 0; j < 12; j++)
        s[j] = _mm512_set1_epi32(j);
    for (i = 0; i < PEAK_ROUNDS / 4; i++) {
        UNROLL
        for (k = 0; k < 4; k++)
            UNROLL
            for (j = 0; j < 12; j++)
                s[j] = _mm512_dpbusd_epi32(s[j], x, x);
    }
    for (j = 1; j < 12; j++)
        s[0] = _mm512_add_epi32(s[0], s[j]);
    return (uint64_t)(uint32_t)_mm_cvtsi128_si32(_mm512_castsi512_si128(s[0]));
}

__attribute__((target("avx2"))) static uint64_t peak_avx2(void)
{
    __m256i s[6], y[6], x = _mm256_set1_epi8(3), ones = _mm256_set1_epi16(1);
    long i;
    int j;

    for (j = 0; j < 6; j++) {
        s[j] = _mm256_set1_epi32(j);
        y[j] = _mm256_set1_epi8((char)j);
    }
    for (i = 0; i < PEAK_ROUNDS; i++) {
        __asm__ volatile("" : "+x"(x)); /* or the products would be made once */
        UNROLL
        for (j = 0; j < 6; j++)
            s[j] = _mm256_add_epi32(s[j], _mm256_madd_epi16(_mm256_maddubs_epi16(x, y[j]), ones));
    }
    for (j = 1; j < 6; j++)
        s[0] = _mm256_add_epi32(s[0], s[j]);
    return (uint64_t)(uint32_t)_mm_cvtsi128_si32(_mm256_castsi256_si128(s[0]));
}

__attribute__((target("sse4.1"))) static uint64_t peak_sse41(void)
{
    __m128i s[6], y[6], x = _mm_set1_epi8(3), ones = _mm_set1_epi16(1);
    long i;
    int j;

    for (j = 0; j < 6; j++) {
        s[j] = _mm_set1_epi32(j);
        y[j] = _mm_set1_epi8((char)j);
    }
    for (i = 0; i < PEAK_ROUNDS; i++) {
        __asm__ volatile("" : "+x"(x));
        UNROLL
        for (j = 0; j < 6; j++)
            s[j] = _mm_add_epi32(s[j], _mm_madd_epi16(_mm_maddubs_epi16(x, y[j]), ones));
    }
    for (j = 1; j < 6; j++)
        s[0] = _mm_add_epi32(s[0], s[j]);
    return (uint64_t)(uint32_t)_mm_cvtsi128_si32(s[0]);
}

#if (defined(__clang__) && __clang_major__ >= 12) || (!defined(__clang__) && __GNUC__ >= 11)
#define WITH_AVXVNNI
__attribute__((target("avx2,avxvnni"))) static uint64_t peak_avxvnni(void)
{
    __m256i s[12], x = _mm256_set1_epi8(3);
    long i;
    int j;

    for (j = 0; j < 12; j++)
        s[j] = _mm256_set1_epi32(j);
    for (i = 0; i < PEAK_ROUNDS; i++) {
        UNROLL
        for (j = 0; j < 12; j++)
            s[j] = _mm256_dpbusd_avx_epi32(s[j], x, x);
    }
    for (j = 1; j < 12; j++)
        s[0] = _mm256_add_epi32(s[0], s[j]);
    return (uint64_t)(uint32_t)_mm_cvtsi128_si32(_mm256_castsi256_si128(s[0]));
}
#endif
#endif

#ifdef __ARM_NEON
/* A loop over 12 sums that nothing but the instruction's own latency slows down. */
#define ARM_PEAK(name, attributes, SUM, ADD) \
    attributes static uint64_t peak_##name(void) \
    { \
        const int8x16_t x = vdupq_n_s8(3); \
        SUM s[12]; \
        long i; \
        int j; \
        memset(s, 0, sizeof s); \
        for (i = 0; i < PEAK_ROUNDS; i++) { \
            UNROLL \
            for (j = 0; j < 12; j++) \
                ADD; \
        } \
        for (j = 1; j < 12; j++) \
            s[0] = s[0] + s[j]; \
        return (uint64_t)s[0][0]; \
    }

/* Sums of 16 bits, with nothing to make wider ones of them: more than kernels can reach. */
#ifndef __aarch64__
ARM_PEAK(neon, , int16x8_t, __asm__ volatile("vmlal.s8 %q0, %e1, %e1" : "+w"(s[j]) : "w"(x)))
#else
ARM_PEAK(neon, , int16x8_t, __asm__ volatile("smlal %0.8h, %1.8b, %1.8b" : "+w"(s[j]) : "w"(x)))
#ifdef __clang__
#define ARM_TARGET(feature) __attribute__((target(#feature)))
#else
#define ARM_TARGET(feature) __attribute__((target("arch=armv8.2-a+" #feature)))
#endif
ARM_PEAK(dotprod, ARM_TARGET(dotprod), int32x4_t,
         __asm__ volatile("sdot %0.4s, %1.16b, %1.4b[0]" : "+w"(s[j]) : "w"(x)))
ARM_PEAK(i8mm, ARM_TARGET(i8mm), int32x4_t, __asm__ volatile("smmla %0.4s, %1.16b, %1.16b" : "+w"(s[j]) : "w"(x)))
#endif
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
#ifdef __x86_64__
    {"avx512", peak_avx512, 12 * 64},
    {"avx2", peak_avx2, 6 * 32},
#ifdef WITH_AVXVNNI
    {"avxvnni", peak_avxvnni, 12 * 32},
#endif
    {"sse41", peak_sse41, 6 * 16},
#endif
#ifdef __aarch64__
    {"i8mm", peak_i8mm, 12 * 32},
    {"dotprod", peak_dotprod, 12 * 16},
    {"neon", peak_neon, 12 * 8},
#elif defined(__ARM_NEON)
    {"scalar", peak_neon, 12 * 8}, /* what the processor could do; kernels for it there are none */
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

static void peak_worker(machine *m, int thread)
{
    (void)thread;
    keep(m, find_peak(m->isa)->run());
}

/* GB/s: the best of one, two and four streams a thread. */
static double measure_bandwidth(machine *m)
{
    double best = 0, rate;

    for (m->streams = 1; m->streams <= 4; m->streams *= 2) {
        rate = (double)READ_BYTES / timed(m, read_worker) / 1e9;
        best = rate > best ? rate : best;
    }
    return best;
}

#define MEETINGS 2000

static void meet_worker(machine *m, int thread)
{
    int i;

    (void)thread;
    for (i = 0; i < MEETINGS; i++)
        meet(m);
}

/* Microseconds for all threads to meet, as an engine's do around every operator. */
static double measure_meeting(machine *m) { return timed(m, meet_worker) * 1e6 / MEETINGS; }

/* GMAC/s */
static double measure_peak(machine *m)
{
    return find_peak(m->isa)->macs * (double)PEAK_ROUNDS * m->threads / timed(m, peak_worker) / 1e9;
}

/* --- statistics --------------------------------------------------------------------------------------------------- */

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

/* --- one model ---------------------------------------------------------------------------------------------------- */

typedef struct bench {
    const options *o;
    machine *m;
    double read_gbps[MAX_REPEATS], int8_gmacs[MAX_REPEATS], meeting_us[MAX_REPEATS]; /* of the last model's repeats */
    int repeats;
} bench;

/* The configuration of all engines. */
static void configure(const options *o, specdec_config *config)
{
    memset(config, 0, sizeof *config);
    config->threads = o->threads;
    config->context = o->context + 1024;
    config->kv = o->kv;
    config->isa = o->isa;
    config->weights_in_place = o->in_place;
    config->settings.max_tokens = o->tokens;
}

/* The model of a file, prepared for all its engines; NULL after saying what went wrong. */
static specdec_model *open_model(const options *o, const char *path, void **memory)
{
    specdec_model *model = NULL;
    specdec_config config;
    specdec_error error;
    size_t bytes;

    configure(o, &config);
    config.target.path = path;
    error.text[0] = 0;
    if (specdec_model_memory_needed(&config, &bytes, &error) || (*memory = malloc(bytes)) == NULL ||
        specdec_model_init(&model, &config, *memory, bytes, &error))
        program_failed("", error.text[0] ? error.text : "out of memory");
    return model;
}

/* An engine; NULL after saying what went wrong. */
static specdec *start_engine(const specdec_config *config, void **memory)
{
    specdec_error error;
    specdec *engine = NULL;
    size_t bytes;

    error.text[0] = 0;
    if (specdec_memory_needed(config, &bytes, &error) || (*memory = malloc(bytes)) == NULL ||
        specdec_init(&engine, config, *memory, bytes, &error))
        program_failed("", error.text[0] ? error.text : "out of memory");
    return engine;
}

static specdec *open_engine(const options *o, const specdec_model *model, specdec_drafting drafting, const char *draft,
                            void **memory)
{
    specdec_config config;

    configure(o, &config);
    config.target.model = model;
    config.draft.path = draft;
    config.drafting = drafting;
    return start_engine(&config, memory);
}

/* Fills a chain of tokens: parents[i] = i - 1. */
static void make_chain(int32_t *tokens, int32_t *parents, int count, int vocabulary)
{
    int i;

    for (i = 0; i < count; i++) {
        tokens[i] = (int32_t)((100 + i % 64 * 7) % vocabulary);
        parents[i] = i - 1;
    }
}

/* Seconds of a step of n tokens in a row, the text's last one included, with a row of logits for each. */
static double step_seconds(specdec *e, int n, int vocabulary)
{
    int32_t tokens[64], parents[64];
    double start;

    make_chain(tokens, parents, n - 1, vocabulary);
    start = program_seconds();
    specdec_logits(e, tokens, parents, n - 1, NULL);
    return program_seconds() - start;
}

/* Makes the text one of so many tokens. Returns the seconds that reading them took. */
static double fill_context(specdec *e, int count, int vocabulary)
{
    int32_t *tokens = (int32_t *)malloc(2 * (size_t)count * sizeof *tokens);
    double start;

    if (!tokens)
        return 0;
    make_chain(tokens, tokens + count, count, vocabulary);
    specdec_rewind(e, 0);
    start = program_seconds();
    if (specdec_prompt_tokens(e, tokens, count))
        program_failed("", specdec_error_text(e));
    start = program_seconds() - start;
    free(tokens);
    return start;
}

/* Multiply-adds of a step of so many tokens in a row, weights and attention. */
static double step_macs(const model_result *r, int context, int width)
{
    return width * (r->macs + (context + 0.5 * (width + 1)) * r->attention_macs);
}

/* And of a prompt, of which the last token alone gets a row of logits. */
static double prefill_macs(const model_result *r, int count)
{
    return step_macs(r, 0, count) - (count - 1) * r->output_macs;
}

/* What the machine can do, in this repeat. */
static void measure_machine(bench *b, int i)
{
    b->read_gbps[i] = measure_bandwidth(b->m);
    b->int8_gmacs[i] = measure_peak(b->m);
    b->meeting_us[i] = measure_meeting(b->m);
}

/* Seconds that a step takes at best, by what the machine could do in a repeat. */
static double roofline(const bench *b, int i, double bytes, double macs)
{
    const double memory = bytes / b->read_gbps[i] / 1e9, integer = macs / b->int8_gmacs[i] / 1e9;

    return memory > integer ? memory : integer;
}

static spread milliseconds(const double *seconds, int count)
{
    spread s = spread_of(seconds, count);

    s.min *= 1e3;
    s.median *= 1e3;
    s.max *= 1e3;
    return s;
}

/* Widths, bandwidth and peak in turn, so that a slow minute hits all of them. */
static void measure_steps(bench *b, specdec *e, model_result *r)
{
    static double seconds[MAX_WIDTHS][MAX_REPEATS], share[MAX_WIDTHS][MAX_REPEATS];
    int i, w;

    fill_context(e, b->o->context + 1, r->vocabulary); /* the last token is part of every step */
    for (i = 0; i < b->repeats; i++) {
        measure_machine(b, i);
        for (w = 0; w < b->o->width_count; w++) {
            seconds[w][i] = step_seconds(e, b->o->widths[w], r->vocabulary);
            share[w][i] = roofline(b, i, r->weight_bytes + r->kv_bytes, step_macs(r, b->o->context, b->o->widths[w])) /
                          seconds[w][i];
        }
    }
    for (w = 0; w < b->o->width_count; w++) {
        step_result *s = &r->steps[w];

        s->width = b->o->widths[w];
        s->ms = milliseconds(seconds[w], b->repeats);
        s->share = spread_of(share[w], b->repeats).median;
    }
}

static void measure_prefill(bench *b, specdec *e, model_result *r)
{
    static const int tokens[] = {128, 512};
    double seconds[MAX_REPEATS], peak = spread_of(b->int8_gmacs, b->repeats).median;
    int i, k;

    for (k = 0; k < 2; k++) {
        for (i = 0; i < 3; i++)
            seconds[i] = fill_context(e, tokens[k], r->vocabulary);
        r->prefill_tokens[k] = tokens[k];
        r->prefill_tok_s[k] = tokens[k] / spread_of(seconds, 3).median;
        r->prefill_share[k] = prefill_macs(r, tokens[k]) / spread_of(seconds, 3).median / 1e9 / peak;
        r->prefill_count = k + 1;
    }
    specdec_rewind(e, 0);
}

/* Text end to end. Returns 0 when it failed. */
static int measure_text(specdec *e, double *tok_s, double *per_step, double *first_ms)
{
    static const char prompt[] = "Once upon a time, in a small village by the sea, there lived an old man who";
    specdec_stats stats;
    specdec_text piece;
    specdec_result result;

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

/* The type that holds most of the weights of a model's layers. */
static const char *main_type(const specdec_gguf *gguf)
{
    double bytes[SPECDEC_TYPE_NUMBERS] = {0};
    specdec_gguf_tensor tensor;
    specdec_type type;
    uint32_t i, best = 0;
    size_t place = 0;

    while (specdec_gguf_next_tensor(gguf, &place, &tensor))
        if (tensor.dimensions > 1 && tensor.type < SPECDEC_TYPE_NUMBERS && tensor.name.size > 4 &&
            !memcmp(tensor.name.data, "blk.", 4))
            bytes[tensor.type] += (double)tensor.size;
    for (i = 0; i < SPECDEC_TYPE_NUMBERS; i++)
        if (bytes[i] > bytes[best])
            best = i;
    return specdec_type_by_number(best, &type) ? type.name : "";
}

/* Bytes of a key and its value in one layer. */
static double kv_bytes(const char *kv, int heads, int head_size)
{
    static const struct { const char *name; int multiple; double each; } kinds[] = {
        {"f16", 16, 2}, {"f32", 16, 4}, {"q8_0", 32, 34 / 32.0}};
    int i = 0, multiple;

    while (i < 2 && strcmp(kinds[i].name, kv) != 0)
        i++;
    multiple = kinds[i].multiple; /* that a head is padded to */
    return 2.0 * heads * ((head_size + multiple - 1) / multiple * multiple) * kinds[i].each;
}

/* What a step has to read and to multiply. */
static void describe(const options *o, specdec *e, model_result *r)
{
    specdec_model_info model;
    specdec_info info;
    int windowed;

    specdec_get_model_info(specdec_get_model(e), &model);
    specdec_get_info(e, &info);
    r->type = main_type(model.gguf);
    r->vocabulary = model.vocabulary;
    r->weight_bytes = (double)model.weight_bytes;
    r->macs = (double)model.products_per_token;
    r->output_macs = (double)model.vocabulary * model.embedding;
    r->threads = info.threads;
    for (windowed = 0; windowed < 2; windowed++) {
        const double keys = windowed && model.window < o->context ? model.window : o->context;
        const double layers = windowed ? model.window_layers : model.layers - model.window_layers;

        r->kv_bytes += layers * keys * kv_bytes(info.kv, model.kv_heads, model.head_size);
        r->attention_macs += 2 * layers * model.heads * model.head_size * keys / o->context;
    }
}

/* Plain decoding: text, steps, prefill. Returns 0 when it failed. */
static int measure_plain(bench *b, const specdec_model *model, double start, model_result *r)
{
    void *memory = NULL;
    specdec *e = open_engine(b->o, model, SPECDEC_DRAFT_OFF, NULL, &memory);
    specdec_info info;
    specdec_stats stats;
    double unused;
    int ok = e != NULL;

    if (ok) {
        r->load_seconds = program_seconds() - start;
        describe(b->o, e, r);
        specdec_get_info(e, &info);
        b->m->isa = info.isa;
        b->m->threads = info.threads; /* the roofline is that of as many */
        r->state_bytes = -(double)info.state_traffic;
        ok = measure_text(e, &r->decode_tok_s, &unused, &r->first_token_ms);
        specdec_get_info(e, &info);
        specdec_get_stats(e, &stats);
        r->state_bytes += (double)info.state_traffic;
        r->state_bytes /= stats.steps ? (double)stats.steps : 1;
    }
    if (ok) {
        measure_steps(b, e, r);
        if (b->o->prefill)
            measure_prefill(b, e, r);
    }
    specdec_deinit(e);
    free(memory);
    return ok;
}

/* Text with the draft model. Returns 0 when it failed. */
static int measure_speculation(const options *o, const specdec_model *model, model_result *r)
{
    static const specdec_drafting modes[] = {SPECDEC_DRAFT_AUTO, SPECDEC_DRAFT_MODEL};
    static const char *const names[] = {"auto", "draft"};
    double unused;
    int ok = 1;

    for (; ok && r->spec_count < 2; r->spec_count++) {
        const int at = r->spec_count;
        void *memory = NULL;
        specdec *e = open_engine(o, model, modes[at], o->draft, &memory);

        ok = e != NULL && measure_text(e, &r->spec_tok_s[at], &r->spec_tokens_per_step[at], &unused);
        r->spec_mode[at] = names[at];
        specdec_deinit(e);
        free(memory);
    }
    return ok;
}

static int measure_model(bench *b, const char *path, model_result *r)
{
    double start = program_seconds();
    void *memory = NULL;
    specdec_model *model = open_model(b->o, path, &memory);
    int ok;

    r->file = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    ok = model && measure_plain(b, model, start, r) && (!b->o->draft || measure_speculation(b->o, model, r));
    specdec_model_deinit(model);
    free(memory);
    return ok;
}

/* --- output ------------------------------------------------------------------------------------------------------- */

static void print_md_machine(const bench *b)
{
    printf("%s, %d threads, context %d, read bandwidth %.1f GB/s, int8 peak %.0f GMAC/s, threads meet in %.1f us; "
           "medians of %d\n", b->m->isa, b->m->threads, b->o->context, spread_of(b->read_gbps, b->repeats).median,
           spread_of(b->int8_gmacs, b->repeats).median, spread_of(b->meeting_us, b->repeats).median, b->repeats);
}

static void print_md(const bench *b, const model_result *results, int count)
{
    char ratio[32];
    int i, k;

    print_md_machine(b);
    for (i = 0; i < count; i++) {
        const model_result *r = &results[i];

        printf("\n%s (%s, %.0f MB of weights, %.2f GMAC a token, %d threads): loaded in %.2f s, first token %.0f ms, %.1f tok/s plain\n\n", r->file,
               r->type, r->weight_bytes / 1e6, r->macs / 1e9, r->threads, r->load_seconds, r->first_token_ms, r->decode_tok_s);
        if (b->o->widths[0] == 1)
            snprintf(ratio, sizeof ratio, "t(n)");
        else
            snprintf(ratio, sizeof ratio, "over width %d", b->o->widths[0]);
        printf("| width | ms (min) | ms (median) | ms (max) | %s | roofline share |\n|---:|---:|---:|---:|---:|---:|\n", ratio);
        for (k = 0; k < b->o->width_count; k++)
            printf("| %d | %.2f | %.2f | %.2f | %.2f | %.2f |\n", r->steps[k].width, r->steps[k].ms.min, r->steps[k].ms.median, r->steps[k].ms.max,
                   r->steps[k].ms.median / r->steps[0].ms.median, r->steps[k].share);
        for (k = 0; k < r->prefill_count; k++)
            printf("%sprefill %d: %.0f tok/s, %.2f of the integer peak\n", k ? "" : "\n", r->prefill_tokens[k], r->prefill_tok_s[k], r->prefill_share[k]);
        for (k = 0; k < r->spec_count; k++)
            printf("speculation (%s): %.1f tok/s, %.2f tokens a step\n", r->spec_mode[k], r->spec_tok_s[k], r->spec_tokens_per_step[k]);
    }
}

static void print_json_step(json_writer *j, const step_result *s)
{
    json_gap(j, "\n  ");
    json_object(j, NULL);
    json_integer(j, "width", s->width);
    json_number(j, "ms_min", "%.3f", s->ms.min);
    json_number(j, "ms_median", "%.3f", s->ms.median);
    json_number(j, "ms_max", "%.3f", s->ms.max);
    json_number(j, "roofline_share", "%.3f", s->share);
    json_close(j);
}

static void print_json_prefill(json_writer *j, const model_result *r, int k)
{
    json_object(j, NULL);
    json_integer(j, "tokens", r->prefill_tokens[k]);
    json_number(j, "tok_s", "%.1f", r->prefill_tok_s[k]);
    json_number(j, "peak_share", "%.3f", r->prefill_share[k]);
    json_close(j);
}

static void print_json_speculation(json_writer *j, const model_result *r, int k)
{
    json_object(j, NULL);
    json_text(j, "mode", r->spec_mode[k]);
    json_number(j, "tok_s", "%.2f", r->spec_tok_s[k]);
    json_number(j, "tokens_per_step", "%.3f", r->spec_tokens_per_step[k]);
    json_close(j);
}

static void print_json_model(json_writer *j, const model_result *r, int widths)
{
    int k;

    json_gap(j, "\n");
    json_object(j, NULL);
    json_text(j, "file", r->file);
    json_text(j, "type", r->type);
    json_number(j, "weight_bytes", "%.0f", r->weight_bytes);
    json_number(j, "macs_per_token", "%.0f", r->macs);
    json_number(j, "state_bytes", "%.0f", r->state_bytes);
    json_integer(j, "threads", r->threads);
    json_number(j, "load_s", "%.3f", r->load_seconds);
    json_number(j, "first_token_ms", "%.1f", r->first_token_ms);
    json_number(j, "decode_tok_s", "%.2f", r->decode_tok_s);
    json_gap(j, "\n ");
    json_array(j, "steps");
    for (k = 0; k < widths; k++)
        print_json_step(j, &r->steps[k]);
    json_close(j);
    json_gap(j, "\n ");
    json_array(j, "prefill");
    for (k = 0; k < r->prefill_count; k++)
        print_json_prefill(j, r, k);
    json_close(j);
    json_gap(j, "\n ");
    json_array(j, "speculative");
    for (k = 0; k < r->spec_count; k++)
        print_json_speculation(j, r, k);
    json_close(j);
    json_close(j);
}

/* Begins an object with what the machine can do. */
static void print_json_machine(const bench *b, json_writer *j)
{
    json_begin(j, stdout);
    json_object(j, NULL);
    json_integer(j, "threads", b->m->threads);
    json_text(j, "isa", b->m->isa);
    json_integer(j, "context", b->o->context);
    json_number(j, "read_gbps", "%.2f", spread_of(b->read_gbps, b->repeats).median);
    json_number(j, "int8_gmacs", "%.1f", spread_of(b->int8_gmacs, b->repeats).median);
    json_number(j, "meeting_us", "%.2f", spread_of(b->meeting_us, b->repeats).median);
}

static void print_json(const bench *b, const model_result *results, int count)
{
    json_writer j;
    int i;

    print_json_machine(b, &j);
    json_array(&j, "models");
    for (i = 0; i < count; i++)
        print_json_model(&j, &results[i], b->o->width_count);
    json_close(&j);
    json_close(&j);
}

/* Lines over widths, both axes doubling. */
typedef struct chart {
    const int *x;      /* (n) */
    int n, lines;      /* lines that have been named */
    double low, high;  /* of the values */
} chart;

static const char *const chart_colours[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd",
                                            "#ff7f0e", "#8c564b", "#e377c2", "#17becf"};

#define CHART_LEFT   64
#define CHART_TOP    48
#define CHART_WIDTH  560
#define CHART_HEIGHT 320

static double chart_x(const chart *c, int index)
{
    return CHART_LEFT + (c->n > 1 ? (double)CHART_WIDTH * index / (c->n - 1) : CHART_WIDTH / 2.0);
}

static double chart_y(const chart *c, double value)
{
    return CHART_TOP + CHART_HEIGHT - CHART_HEIGHT * log(value / c->low) / log(c->high / c->low);
}

/* Values that are to be seen. */
static void chart_hold(chart *c, double value)
{
    if (!(value > 0))
        return;
    c->low = c->high <= 0 || value * 0.7 < c->low ? value * 0.7 : c->low;
    c->high = value * 1.2 > c->high ? value * 1.2 : c->high;
}

/* What stands around the lines. */
static void chart_begin(const chart *c, const bench *b, const char *title)
{
    int k;

    printf("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 860 440\" font-family=\"sans-serif\" "
           "font-size=\"13\">\n<rect width=\"860\" height=\"440\" fill=\"white\"/>\n<text x=\"%d\" y=\"24\" font-size=\"15\">%s</text>\n"
           "<text x=\"%d\" y=\"424\" fill=\"#555\">%s, %d threads, context %d, %.1f GB/s, %.0f GMAC/s (int8)</text>\n",
           CHART_LEFT, title, CHART_LEFT, b->m->isa, b->m->threads, b->o->context,
           spread_of(b->read_gbps, b->repeats).median, spread_of(b->int8_gmacs, b->repeats).median);
    for (k = 0; k < c->n; k++)
        printf("<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#eee\"/>"
               "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%d</text>\n",
               chart_x(c, k), CHART_TOP, chart_x(c, k), CHART_TOP + CHART_HEIGHT, chart_x(c, k),
               CHART_TOP + CHART_HEIGHT + 20, c->x[k]);
    for (k = 0; k < 20; k++) {
        double value = (double)(1 << k);

        if (value >= c->low && value <= c->high)
            printf("<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#eee\"/>"
                   "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.0f</text>\n",
                   CHART_LEFT, chart_y(c, value), CHART_LEFT + CHART_WIDTH, chart_y(c, value), CHART_LEFT - 8,
                   chart_y(c, value) + 4, value);
    }
}

/* A line through values[n]; what lies below the chart lies on its edge. */
static void chart_line(const chart *c, const double *values, int colour, int dashed)
{
    int k;

    printf("<polyline fill=\"none\" stroke=\"%s\" %s points=\"", chart_colours[colour % 8],
           dashed ? "stroke-dasharray=\"5 4\"" : "stroke-width=\"2.5\"");
    for (k = 0; k < c->n; k++)
        printf("%.1f,%.1f ", chart_x(c, k), chart_y(c, values[k] > c->low ? values[k] : c->low));
    printf("\"/>\n");
}

/* Names the next line, beside the chart. */
static void chart_name(chart *c, const char *colour, const char *name)
{
    printf("<text x=\"%d\" y=\"%d\" fill=\"%s\">%s</text>\n", CHART_LEFT + CHART_WIDTH + 14,
           CHART_TOP + 20 + 22 * c->lines, colour, name);
    c->lines++;
}

/* Step time over width: a flat line is a step that costs the same at every width. */
static void print_svg(const bench *b, const model_result *results, int count)
{
    const double gbps = spread_of(b->read_gbps, b->repeats).median, gmacs = spread_of(b->int8_gmacs, b->repeats).median;
    chart c = {NULL, 0, 0, 0, 0};
    double values[MAX_WIDTHS];
    char name[64];
    int i, k, n = b->o->width_count, named = n > 3 ? 3 : n - 1; /* of the widths */

    c.x = b->o->widths;
    c.n = n;
    for (i = 0; i < count; i++)
        for (k = 0; k < n; k++)
            chart_hold(&c, results[i].steps[k].ms.median);
    chart_begin(&c, b, "Time of one step (ms) over its width in tokens; dashed: the roofline of this machine");
    for (i = 0; i < count; i++) {
        const model_result *r = &results[i];

        for (k = 0; k < n; k++)
            values[k] = r->steps[k].ms.median;
        chart_line(&c, values, i, 0);
        for (k = 0; k < n; k++) {
            double memory = (r->weight_bytes + r->kv_bytes) / gbps / 1e6;
            double integer = step_macs(r, b->o->context, b->o->widths[k]) / gmacs / 1e6;

            values[k] = memory > integer ? memory : integer;
        }
        chart_line(&c, values, i, 1);
        snprintf(name, sizeof name, "%s: %.2f at %d", r->type, r->steps[named].ms.median / r->steps[0].ms.median,
                 c.x[named]);
        chart_name(&c, chart_colours[i % 8], name);
    }
    snprintf(name, sizeof name, "(time over that at %d)", c.x[0]);
    chart_name(&c, "#555", name);
    printf("</svg>\n");
}

/* --- many texts --------------------------------------------------------------------------------------------------- */

#define CROWD_TOKENS 24 /* that each text writes, if -n does not say otherwise */
#define CROWD_RUNS   3  /* at most; -r may ask for fewer */
#define CROWD_ROOM   1000 /* tokens of context for prompts of words and what is written */
#define WAIT_TOKENS  2000
#define WAIT_SIDE    50 /* steps alone, before the long prompt comes in, and as many when it has been read */
#define WAIT_GAPS    (3 * WAIT_TOKENS) /* steps in which it has been read; a busy machine has some that read nothing */
#define WAIT_RANKS   4  /* of what was measured: in the middle, nine in ten, 99 in 100, all */

/* Texts of one engine. */
typedef struct crowd {
    specdec *texts[MAX_STREAMS];
    int prompted[MAX_STREAMS]; /* tokens */
    int count, tokens;         /* tokens: that each text writes in a run, in the middle */
    float temperature;
    void *memory;
} crowd;

typedef struct stream_result {
    int streams;
    spread ms;             /* of a step that writes a token of each text */
    double share;          /* of the roofline */
    double tree_ms, tree_share; /* those of a tree of as many nodes, in turn with the steps above */
    double tok_s[2];       /* of all texts together: plain, with --spec */
    double tokens_per_step; /* of a text, with --spec */
} stream_result;

/* What a text feels of a long prompt that comes in beside it. */
typedef struct wait_result {
    double alone_ms;             /* its step alone, in the middle */
    double alone[WAIT_RANKS];    /* between two tokens, in such steps: as long at most as that many take alone, */
    double beside[WAIT_RANKS];   /* and while the prompt is read */
    double seconds;              /* until the prompt is read */
} wait_result;

typedef struct crowd_result {
    model_result model;
    stream_result streams[MAX_WIDTHS];
    wait_result wait;
} crowd_result;

static void close_crowd(crowd *c)
{
    specdec_deinit(c->texts[0]);
    free(c->memory);
}

/* An engine and its texts. Returns 0 after saying what went wrong. */
static int open_crowd(const options *o, const specdec_model *model, specdec_drafting drafting, int context, crowd *c)
{
    specdec_config config;
    int i, ok;

    configure(o, &config);
    config.target.model = model;
    config.draft.path = drafting == SPECDEC_DRAFT_OFF ? NULL : o->draft;
    config.drafting = drafting;
    config.sequences = c->count;
    config.fork_token = ""; /* a child would take a place that a text is meant for */
    config.context = context;
    config.settings.max_tokens = 0;
    c->tokens = o->tokens;
    c->texts[0] = start_engine(&config, &c->memory);
    ok = c->texts[0] != NULL;
    for (i = 1; ok && i < c->count; i++)
        ok = !specdec_open(c->texts[0], &c->texts[i]);
    return ok;
}

static int crowd_failed(const specdec *text) { return program_failed("", specdec_error_text(text)), 0; }

/* Sets a text back behind its prompt; it may write so many tokens (0: as many as there is room for). */
static void crowd_rewind(const crowd *c, int i, int limit)
{
    specdec_settings settings;

    memset(&settings, 0, sizeof settings);
    settings.max_tokens = limit;
    settings.sampling.temperature = c->temperature;
    settings.sampling.seed = (uint64_t)i + 1;
    specdec_rewind(c->texts[i], c->prompted[i]);
    specdec_set(c->texts[i], &settings);
}

/* Lets the first n texts write, from their prompts' ends on. The others have written one token, and rest. */
static void crowd_wake(const crowd *c, int n)
{
    int i;

    for (i = 0; i < c->count; i++)
        crowd_rewind(c, i, 1);
    while (!specdec_work(c->texts[0]))
        continue;
    for (i = 0; i < n; i++) {
        specdec_text piece;

        while (!specdec_take(c->texts[i], &piece)) /* it would be there without a step */
            continue;
        crowd_rewind(c, i, 0);
    }
}

/* Takes what the first n texts have ready; one that has ended begins its answer anew. Returns how many tokens these
   were, or -1 after saying what went wrong. */
static long crowd_take(const crowd *c, int n)
{
    long tokens = 0;
    int i, before, now;

    for (i = 0; i < n; i++) {
        specdec_result result;
        specdec_text piece;

        specdec_tokens(c->texts[i], NULL, &before);
        do
            result = specdec_take(c->texts[i], &piece);
        while (!result);
        specdec_tokens(c->texts[i], NULL, &now);
        tokens += now - before;
        if (result != SPECDEC_DONE && result != SPECDEC_PENDING)
            return crowd_failed(c->texts[i]), -1;
        if (result == SPECDEC_DONE)
            specdec_rewind(c->texts[i], c->prompted[i]);
    }
    return tokens;
}

/* Prompts a text with tokens of its own. Returns 0 after saying what went wrong. */
static int crowd_prompt_tokens(crowd *c, int text, int count, int salt, int vocabulary)
{
    int32_t *tokens = (int32_t *)malloc((size_t)count * sizeof *tokens);
    int i, ok = tokens != NULL;

    for (i = 0; ok && i < count; i++)
        tokens[i] = (int32_t)((100 + i % 64 * 7 + salt * 31) % vocabulary);
    ok = ok && (!specdec_prompt_tokens(c->texts[text], tokens, count) || crowd_failed(c->texts[text]));
    c->prompted[text] = count;
    free(tokens);
    return ok;
}

/* Prompts a text with words of its own. Returns 0 after saying what went wrong. */
static int crowd_prompt_words(crowd *c, int text)
{
    static const char *const places[] = {
        "Once upon a time, in a small village by the sea,", "In the old town behind the mill,",
        "On a farm far away from any road,", "One winter, when the lake was frozen,", "At the edge of the forest,",
        "In a house with a red door,", "Many years ago, on a ship,", "In the last summer before school,"};
    static const char *const people[] = {"an old man", "a little girl", "a doctor", "two brothers",
                                         "a king", "a young cook", "a cat", "a teacher"};
    char words[160];

    snprintf(words, sizeof words, "%s there lived %s who", places[text % 8], people[(text / 8 + text) % 8]);
    if (specdec_prompt(c->texts[text], words, SPECDEC_WHOLE_STRING))
        return crowd_failed(c->texts[text]);
    specdec_tokens(c->texts[text], NULL, &c->prompted[text]);
    return 1;
}

/* Steps of so many texts, and of trees with as many nodes, in turn with what the machine can do. Every text has
   o->context tokens before the one that is computed. Returns 0 when it failed. */
static int measure_crowd_steps(bench *b, crowd *c, crowd_result *r)
{
    static double seconds[4][MAX_WIDTHS][MAX_REPEATS]; /* of texts, of trees; shares of the roofline of the two */
    const model_result *m = &r->model;
    const options *o = b->o;
    int i, w;

    for (i = 0; i < b->repeats; i++) {
        measure_machine(b, i);
        for (w = 0; w < o->stream_count; w++) {
            const int n = o->streams[w];
            double start;

            crowd_wake(c, n);
            specdec_work(c->texts[0]);
            if (crowd_take(c, n) < 0)
                return 0;
            start = program_seconds();
            specdec_work(c->texts[0]);
            seconds[0][w][i] = program_seconds() - start;
            seconds[1][w][i] = step_seconds(c->texts[0], n, m->vocabulary);
            seconds[2][w][i] = roofline(b, i, m->weight_bytes + n * m->kv_bytes, n * step_macs(m, o->context, 1)) /
                               seconds[0][w][i];
            seconds[3][w][i] = roofline(b, i, m->weight_bytes + m->kv_bytes, step_macs(m, o->context, n)) /
                               seconds[1][w][i];
        }
    }
    for (w = 0; w < o->stream_count; w++) {
        r->streams[w].streams = o->streams[w];
        r->streams[w].ms = milliseconds(seconds[0][w], b->repeats);
        r->streams[w].tree_ms = milliseconds(seconds[1][w], b->repeats).median;
        r->streams[w].share = spread_of(seconds[2][w], b->repeats).median;
        r->streams[w].tree_share = spread_of(seconds[3][w], b->repeats).median;
    }
    return 1;
}

/* Lets n texts write. Returns tokens a second, 0 when it failed; *per_step: tokens of a text in a step. */
static double run_crowd(const crowd *c, int n, double *per_step)
{
    double start;
    long tokens = 0, more, steps;

    crowd_wake(c, n);
    start = program_seconds();
    for (steps = 0; tokens < (long)n * c->tokens; steps++) {
        specdec_work(c->texts[0]);
        more = crowd_take(c, n);
        if (more < 0)
            return 0;
        tokens += more;
    }
    *per_step = (double)tokens / (double)steps / n;
    return (double)tokens / (program_seconds() - start);
}

/* Tokens a second of texts that begin with words, into tok_s[at] of every row. Returns 0 when it failed. */
static int measure_crowd_runs(bench *b, crowd *c, crowd_result *r, int at)
{
    static double tok_s[MAX_WIDTHS][CROWD_RUNS], per_step[MAX_WIDTHS][CROWD_RUNS];
    const int runs = program_least(b->repeats, CROWD_RUNS);
    int i, w;

    c->temperature = 0.8f;
    for (i = 0; i < c->count; i++)
        if (specdec_rewind(c->texts[i], 0) || !crowd_prompt_words(c, i))
            return 0;
    for (i = 0; i < runs; i++)
        for (w = 0; w < b->o->stream_count; w++) {
            tok_s[w][i] = run_crowd(c, b->o->streams[w], &per_step[w][i]);
            if (!(tok_s[w][i] > 0))
                return 0;
        }
    for (w = 0; w < b->o->stream_count; w++) {
        r->streams[w].tok_s[at] = spread_of(tok_s[w], runs).median;
        r->streams[w].tokens_per_step = spread_of(per_step[w], runs).median;
    }
    return 1;
}

/* What its steps have to read and to multiply, and with which instructions. */
static void describe_crowd(bench *b, const crowd *c, crowd_result *r)
{
    const char *file = r->model.file;
    specdec_info info;

    memset(&r->model, 0, sizeof r->model);
    r->model.file = file;
    describe(b->o, c->texts[0], &r->model);
    specdec_get_info(c->texts[0], &info);
    b->m->isa = info.isa;
    b->m->threads = info.threads;
}

/* Texts side by side: steps, runs without and with speculation. Returns 0 when it failed. */
static int measure_streams(bench *b, const specdec_model *model, crowd_result *r)
{
    const options *o = b->o;
    int i, at, ok = 1;

    for (at = 0; ok && at < (o->spec == SPECDEC_DRAFT_OFF ? 1 : 2); at++) {
        crowd c;

        memset(&c, 0, sizeof c);
        for (i = 0; i < o->stream_count; i++)
            c.count = o->streams[i] > c.count ? o->streams[i] : c.count;
        ok = open_crowd(o, model, at ? (specdec_drafting)o->spec : SPECDEC_DRAFT_OFF, o->context + CROWD_ROOM, &c);
        if (ok && !at) {
            describe_crowd(b, &c, r);
            for (i = 0; ok && i < c.count; i++)
                ok = crowd_prompt_tokens(&c, i, o->context, i, r->model.vocabulary);
            ok = ok && measure_crowd_steps(b, &c, r);
        }
        ok = ok && measure_crowd_runs(b, &c, r, at);
        close_crowd(&c);
    }
    return ok;
}

/* Works until the first text has a token. Returns the seconds since *last, which becomes now; -1 when it failed. */
static double wait_token(const crowd *c, double *last)
{
    const double before = *last;
    long tokens;

    do {
        specdec_work(c->texts[0]);
        tokens = crowd_take(c, 1);
    } while (!tokens);
    *last = program_seconds();
    return tokens < 0 ? -1 : *last - before;
}

/* Seconds between the tokens of the first text, gaps[WAIT_GAPS], while the second reads a long prompt. Returns how
   many there are, 0 when it failed. */
static int wait_gaps(crowd *c, int salt, int vocabulary, double *gaps)
{
    specdec_result result = SPECDEC_PENDING;
    specdec_text piece;
    double last = program_seconds();
    int count;

    if (!crowd_prompt_tokens(c, 1, WAIT_TOKENS, salt, vocabulary))
        return 0;
    for (count = 0; result == SPECDEC_PENDING && count < WAIT_GAPS; count++) {
        gaps[count] = wait_token(c, &last);
        if (gaps[count] < 0)
            return 0;
        result = specdec_take(c->texts[1], &piece);
    }
    if (result == SPECDEC_PENDING)
        return program_failed("", "a prompt was not read in three times as many steps as it has tokens"), 0;
    return result == SPECDEC_OK || result == SPECDEC_DONE ? count : crowd_failed(c->texts[1]);
}

/* Sorts values, and tells how long the middle one is, nine in ten, 99 in 100 and all of them at most. */
static void wait_ranks(double *values, int count, double *ranks)
{
    ranks[0] = measure_median(values, count); /* they are sorted now */
    ranks[1] = values[count * 9 / 10];
    ranks[2] = values[count * 99 / 100];
    ranks[3] = values[count - 1];
}

/* Seconds between the tokens of the first text, alone, into alone[WAIT_SIDE]; then each of them in the median, which is
   returned; -1 when it failed. */
static double wait_alone(const crowd *c, double *alone)
{
    double last = program_seconds(), sorted[WAIT_SIDE], step;
    int k;

    for (k = 0; k < WAIT_SIDE; k++)
        if ((alone[k] = wait_token(c, &last)) < 0)
            return -1;
    memcpy(sorted, alone, sizeof sorted);
    step = measure_median(sorted, WAIT_SIDE);
    for (k = 0; k < WAIT_SIDE; k++)
        alone[k] /= step;
    return step;
}

/* One run: steps alone into alone[2 * WAIT_SIDE], half of them before the first text writes beside a prompt that is read,
   half behind that; steps beside it into gaps[WAIT_GAPS], in steps alone, which grow with the text. *step, *seconds: of a
   step alone, of the prompt. Returns how many gaps there are, 0 when it failed. */
static int wait_run(crowd *c, int salt, int vocabulary, double *alone, double *gaps, double *step, double *seconds)
{
    double last = program_seconds(), before, after;
    int k, count;

    c->prompted[1] = 0;
    crowd_rewind(c, 1, 1);
    crowd_wake(c, 1);
    if (wait_token(c, &last) < 0)
        return 0;
    before = wait_alone(c, alone);
    count = before < 0 ? 0 : wait_gaps(c, salt, vocabulary, gaps);
    c->prompted[1] = 1;
    crowd_rewind(c, 1, 1);
    after = count ? wait_alone(c, alone + WAIT_SIDE) : -1;
    if (after < 0)
        return 0;
    *step = (before + after) / 2;
    for (k = 0, *seconds = 0; k < count; k++) {
        *seconds += gaps[k];
        gaps[k] /= before + (after - before) * (k + 0.5) / count;
    }
    return count;
}

/* A text alone, then beside a prompt that is read, in all runs. Returns 0 when it failed. */
static int measure_wait(bench *b, const specdec_model *model, crowd_result *r)
{
    static double alone[CROWD_RUNS * 2 * WAIT_SIDE], gaps[CROWD_RUNS * WAIT_GAPS];
    double steps[CROWD_RUNS], seconds[CROWD_RUNS];
    const int run_count = program_least(b->repeats, CROWD_RUNS);
    int i, more, count = 0, ok;
    crowd c;

    memset(&c, 0, sizeof c);
    c.count = 2;
    ok = open_crowd(b->o, model, SPECDEC_DRAFT_OFF, b->o->context + WAIT_TOKENS + CROWD_ROOM, &c);
    if (ok)
        describe_crowd(b, &c, r);
    for (i = 0; ok && !b->o->stream_count && i < b->repeats; i++)
        measure_machine(b, i);
    ok = ok && crowd_prompt_tokens(&c, 0, b->o->context, 0, r->model.vocabulary);
    for (i = 0; ok && i < run_count; i++) {
        more = wait_run(&c, i + 1, r->model.vocabulary, alone + i * 2 * WAIT_SIDE, gaps + count, &steps[i], &seconds[i]);
        ok = more > 0;
        count += more;
    }
    if (ok) {
        r->wait.alone_ms = 1e3 * measure_median(steps, run_count);
        r->wait.seconds = measure_median(seconds, run_count);
        wait_ranks(alone, run_count * 2 * WAIT_SIDE, r->wait.alone);
        wait_ranks(gaps, count, r->wait.beside);
    }
    close_crowd(&c);
    return ok;
}

/* The name behind --spec. */
static const char *drafting_name(int drafting)
{
    static const char *const names[] = {"auto", "off" SPECDEC_DRAFTERS(DRAFTER_NAME)};

    return names[drafting];
}

static void print_md_streams(const options *o, const crowd_result *r)
{
    const int spec = o->spec != SPECDEC_DRAFT_OFF;
    int k;

    printf("\n| streams | ms (min) | ms (median) | ms (max) | roofline share | of a tree | tok/s |%s\n"
           "|---:|---:|---:|---:|---:|---:|---:|%s\n", spec ? " tok/s with --spec | tokens a step |" : "",
           spec ? "---:|---:|" : "");
    for (k = 0; k < o->stream_count; k++) {
        const stream_result *s = &r->streams[k];

        printf("| %d | %.2f | %.2f | %.2f | %.2f | %.2f | %.1f |", s->streams, s->ms.min, s->ms.median, s->ms.max,
               s->share, s->tree_share, s->tok_s[0]);
        if (spec)
            printf(" %.1f | %.2f |", s->tok_s[1], s->tokens_per_step);
        printf("\n");
    }
}

static void print_md_crowds(const bench *b, const crowd_result *results, int count)
{
    const options *o = b->o;
    int i;

    print_md_machine(b);
    if (o->stream_count)
        printf("\nstreams: texts of one engine. ms: a step that writes a token of each, behind %d tokens. Of a tree: the\n"
               "share of a step of one text with as many nodes. tok/s: of all texts together, %d tokens each after short\n"
               "prompts, temperature 0.8; --spec %s.\n", o->context, o->tokens, drafting_name(o->spec));
    for (i = 0; i < count; i++) {
        const crowd_result *r = &results[i];

        printf("\n%s (%s, %.0f MB of weights, %.2f GMAC a token)\n", r->model.file, r->model.type,
               r->model.weight_bytes / 1e6, r->model.macs / 1e9);
        if (o->stream_count)
            print_md_streams(o, r);
        if (o->wait)
            printf("\nwhile a prompt of %d tokens is read, in %.1f s, a text waits for its next token, in steps alone\n"
                   "(%.2f ms each): %.2f in the middle, nine times in ten %.2f at most, 99 in 100 %.2f, always %.2f;\n"
                   "without it: %.2f, %.2f, %.2f\n", WAIT_TOKENS, r->wait.seconds, r->wait.alone_ms, r->wait.beside[0], r->wait.beside[1],
                   r->wait.beside[2], r->wait.beside[3], r->wait.alone[1], r->wait.alone[2], r->wait.alone[3]);
    }
}

static void print_json_stream(json_writer *j, const options *o, const stream_result *s)
{
    json_gap(j, "\n  ");
    json_object(j, NULL);
    json_integer(j, "sequences", s->streams);
    json_number(j, "ms_min", "%.3f", s->ms.min);
    json_number(j, "ms_median", "%.3f", s->ms.median);
    json_number(j, "ms_max", "%.3f", s->ms.max);
    json_number(j, "roofline_share", "%.3f", s->share);
    json_number(j, "tree_ms_median", "%.3f", s->tree_ms);
    json_number(j, "tree_roofline_share", "%.3f", s->tree_share);
    json_number(j, "tok_s", "%.2f", s->tok_s[0]);
    if (o->spec != SPECDEC_DRAFT_OFF) {
        json_number(j, "spec_tok_s", "%.2f", s->tok_s[1]);
        json_number(j, "spec_tokens_per_step", "%.3f", s->tokens_per_step);
    }
    json_close(j);
}

static void print_json_wait(json_writer *j, const wait_result *w)
{
    static const char *const names[2][WAIT_RANKS] = {{"steps_median", "steps_p90", "steps_p99", "steps_max"},
                                                     {"alone_median", "alone_p90", "alone_p99", "alone_max"}};
    int i;

    json_gap(j, "\n ");
    json_object(j, "wait");
    json_integer(j, "prompt_tokens", WAIT_TOKENS);
    json_number(j, "prompt_s", "%.3f", w->seconds);
    json_number(j, "step_ms", "%.3f", w->alone_ms);
    for (i = 0; i < WAIT_RANKS; i++)
        json_number(j, names[0][i], "%.3f", w->beside[i]);
    for (i = 0; i < WAIT_RANKS; i++)
        json_number(j, names[1][i], "%.3f", w->alone[i]);
    json_close(j);
}

static void print_json_crowds(const bench *b, const crowd_result *results, int count)
{
    const options *o = b->o;
    json_writer j;
    int i, k;

    print_json_machine(b, &j);
    json_text(&j, "spec", drafting_name(o->spec));
    json_array(&j, "models");
    for (i = 0; i < count; i++) {
        const crowd_result *r = &results[i];

        json_gap(&j, "\n");
        json_object(&j, NULL);
        json_text(&j, "file", r->model.file);
        json_text(&j, "type", r->model.type);
        json_number(&j, "weight_bytes", "%.0f", r->model.weight_bytes);
        json_number(&j, "macs_per_token", "%.0f", r->model.macs);
        json_array(&j, "sequences");
        for (k = 0; k < o->stream_count; k++)
            print_json_stream(&j, o, &r->streams[k]);
        json_close(&j);
        if (o->wait)
            print_json_wait(&j, &r->wait);
        json_close(&j);
    }
    json_close(&j);
    json_close(&j);
}

/* Tokens a second over streams. */
static void print_svg_crowds(const bench *b, const crowd_result *results, int count)
{
    const double gbps = spread_of(b->read_gbps, b->repeats).median, gmacs = spread_of(b->int8_gmacs, b->repeats).median;
    const options *o = b->o;
    double values[3][MAX_WIDTHS]; /* plain, with --spec, the roofline */
    chart c = {NULL, 0, 0, 0, 0};
    char name[96];
    int i, k, line;

    c.x = o->streams;
    c.n = o->stream_count;
    for (i = 0; i < count; i++)
        for (k = 0; k < c.n; k++) {
            chart_hold(&c, results[i].streams[k].tok_s[0]);
            chart_hold(&c, results[i].streams[k].tok_s[1]);
        }
    chart_begin(&c, b, "Tokens a second of all texts together, over streams; dashed: the roofline");
    for (i = 0; i < count; i++) {
        const model_result *m = &results[i].model;

        for (k = 0; k < c.n; k++) {
            const int n = o->streams[k];
            const double memory = (m->weight_bytes + n * m->kv_bytes) / gbps;
            const double integer = n * step_macs(m, o->context, 1) / gmacs;

            values[0][k] = results[i].streams[k].tok_s[0];
            values[1][k] = results[i].streams[k].tok_s[1];
            values[2][k] = 1e9 * n / (memory > integer ? memory : integer);
        }
        for (line = 0; line < 3; line++) {
            if (line == 1 && o->spec == SPECDEC_DRAFT_OFF)
                continue;
            chart_line(&c, values[line], 2 * i + (line == 1), line == 2);
            if (line == 2)
                continue;
            snprintf(name, sizeof name, "%s, --spec %s: %.1f", m->type,
                     drafting_name(line ? o->spec : SPECDEC_DRAFT_OFF), values[line][c.n - 1]);
            chart_name(&c, chart_colours[(2 * i + line) % 8], name);
        }
    }
    printf("</svg>\n");
}

/* Many texts, for every model. */
static int run_crowds(bench *b)
{
    static void (*const print[])(const bench *, const crowd_result *, int) = {print_md_crowds, print_json_crowds,
                                                                              print_svg_crowds};
    static crowd_result results[MAX_MODELS];
    int i, ok;

    for (i = 0; i < b->o->model_count; i++) {
        const char *path = b->o->models[i];
        void *memory = NULL;
        specdec_model *model = open_model(b->o, path, &memory);

        results[i].model.file = program_last_name(path);
        ok = model && (!b->o->stream_count || measure_streams(b, model, &results[i])) &&
             (!b->o->wait || measure_wait(b, model, &results[i]));
        specdec_model_deinit(model);
        free(memory);
        if (!ok)
            return PROGRAM_FAILED;
    }
    print[b->o->format](b, results, b->o->model_count);
    return program_finish(PROGRAM_OK);
}

/* --- comparison: tree shapes and verifiers ------------------------------------------------------------------------ */

#define MAX_NODES  512
#define ANSWER     64  /* tokens behind each prompt that acceptance is measured on */
#define DRAWS      2   /* decisions at each of them */
#define RUN_WIDTHS 4   /* trees that are run, too: the first of these sizes */

static const int sizes[] = {8, 16, 32, 64, 128, 256, 512};

#define SIZES ((int)PROGRAM_COUNT(sizes))

/* Expected tokens a step of every shape for one acceptance vector. */
typedef struct shape_scores {
    double sequoia[PROGRAM_COUNT(sizes)], chain[PROGRAM_COUNT(sizes)], chains[PROGRAM_COUNT(sizes)];
    double full[PROGRAM_COUNT(sizes)];
    int full_k[PROGRAM_COUNT(sizes)];
} shape_scores;

/* All that is compared. */
typedef struct comparison {
    const options *o;
    measure m;
    measure_rates rates[MEASURE_TEMPERATURES];
    shape_scores scores[MEASURE_TEMPERATURES][2]; /* of coupled and sequoia */
    int count, run_at;                            /* temperatures; the one that trees were run at */
    measure_run runs[RUN_WIDTHS][2];              /* the Sequoia tree, the chain */
} comparison;

/* n nodes in chains below the root (at most `chains`), or in a tree of k children a node, filled level by level. */
static double score_shape(const double *p, int n, int chains, int k)
{
    static int32_t parents[MAX_NODES], ranks[MAX_NODES];
    specdec_tree tree = {parents, ranks, MAX_NODES, 0};
    double score = 0;
    int i;

    parents[0] = -1;
    ranks[0] = 0;
    for (i = 1; i < n; i++) {
        parents[i] = chains ? (i <= chains ? 0 : i - chains) : (i - 1) / k;
        ranks[i] = chains ? (i <= chains ? i : 1) : (i - 1) % k + 1;
    }
    tree.n = n;
    specdec_tree_score(&score, &tree, p, MEASURE_RANKS, NULL);
    return score;
}

/* Returns 0 when memory ran out. */
static int score_shapes(const double *p, shape_scores *s)
{
    const int d = SPECDEC_TREE_MAX_DEPTH;
    const size_t bytes = specdec_tree_memory(MAX_NODES, d, MEASURE_RANKS);
    double *grid = (double *)malloc((MAX_NODES + 1) * (size_t)(d + 1) * sizeof(double));
    void *memory = malloc(bytes);
    int i, k, ok = grid && memory && !specdec_tree_grid(grid, p, MEASURE_RANKS, MAX_NODES, d, memory, bytes, NULL);

    for (i = 0; ok && i < SIZES; i++) {
        s->sequoia[i] = grid[(size_t)sizes[i] * (size_t)(d + 1) + (size_t)d];
        s->chain[i] = score_shape(p, sizes[i], 1, 0);
        s->chains[i] = score_shape(p, sizes[i], 16, 0);
        for (k = 2; k <= MEASURE_RANKS; k++) {
            double score = score_shape(p, sizes[i], 0, k);

            if (score > s->full[i]) {
                s->full[i] = score;
                s->full_k[i] = k;
            }
        }
    }
    free(grid);
    free(memory);
    return ok;
}

/* Real steps with the Sequoia tree and the chain of each size in turn, coupled, behind two prompts. A chain has no more
   tokens than an engine's trees have levels. */
static int run_shapes(comparison *c, const measure_prompts *prompts)
{
    static int32_t parents[MEASURE_NODES], ranks[MEASURE_NODES];
    const size_t bytes = specdec_tree_memory(MEASURE_NODES, SPECDEC_TREE_MAX_DEPTH, MEASURE_RANKS);
    specdec_tree tree = {parents, ranks, MEASURE_NODES, 0};
    void *memory = malloc(bytes);
    double p[MEASURE_RANKS];
    int i, j, shape, size, levels, ok = memory != NULL, count = program_least(prompts->count, 2);

    measure_vector(&c->rates[c->run_at], MEASURE_COUPLED, p);
    for (i = 0; ok && i < count; i++) {
        int ready = measure_prompt(&c->m, prompts->texts[i], ANSWER);

        ok = ready != 0;
        for (j = 0; ready > 0 && ok && j < 2 * RUN_WIDTHS; j++) {
            program_progress(NULL, "runs", i * 2 * RUN_WIDTHS + j, count * 2 * RUN_WIDTHS);
            shape = j % 2;
            size = sizes[j / 2];
            levels = program_least(size, SPECDEC_TREE_MAX_DEPTH);
            ok = !(shape ? specdec_tree_chains(&tree, 1, levels - 1, NULL)
                         : specdec_tree_best(&tree, NULL, p, MEASURE_RANKS, size, levels, memory, bytes, NULL)) &&
                 measure_use(&c->m, &tree, c->rates[c->run_at].temperature, (uint64_t)i + 1) &&
                 measure_go(&c->m, 0, (c->o->steps + count - 1) / count, &c->runs[j / 2][shape]);
        }
    }
    program_progress(NULL, "runs", 1, 1);
    free(memory);
    return ok;
}

static double tokens_a_step(const measure_run *run) { return run->steps ? (double)run->tokens / (double)run->steps : 0; }

/* At temperature 0 all rules are the same. */
static int rule_count(const measure_rates *r, int all) { return r->temperature > 0 ? all : 1; }

static const char *rule_name(const measure_rates *r, int rule) { return r->temperature > 0 ? measure_rule_names[rule] : "greedy"; }

static double share(const measure_rates *r, long count) { return r->decisions ? (double)count / (double)r->decisions : 0; }

static void print_md_shapes(const comparison *c, int at, int rule)
{
    const shape_scores *s = &c->scores[at][rule];
    int i;

    printf("\nTemperature %.2g, %s: tokens a step expected, F(T) of specdec_tree_score with the measured acceptance vector", (double)c->rates[at].temperature,
           rule_name(&c->rates[at], rule));
    printf(at == c->run_at && rule == 0 ? "; run: measured with the engine, %d steps each\n\n" : "\n\n", c->o->steps);
    printf("| n | Sequoia tree | chain | 16 chains | best k-ary | k | Sequoia / 16 chains |%s\n|---:|---:|---:|---:|---:|---:|---:|%s\n",
           at == c->run_at && rule == 0 ? " Sequoia tree, run | chain, run |" : "", at == c->run_at && rule == 0 ? "---:|---:|" : "");
    for (i = 0; i < SIZES; i++) {
        printf("| %d | %.3f | %.3f | %.3f | %.3f | %d | %.3f |", sizes[i], s->sequoia[i], s->chain[i], s->chains[i], s->full[i], s->full_k[i],
               s->sequoia[i] / s->chains[i]);
        if (at == c->run_at && rule == 0 && i < RUN_WIDTHS)
            printf(" %.2f | %.2f |", tokens_a_step(&c->runs[i][0]), tokens_a_step(&c->runs[i][1]));
        else if (at == c->run_at && rule == 0)
            printf(" | |");
        printf("\n");
    }
}

static void print_md_verifiers(const comparison *c)
{
    int i, j, k;

    printf("\nShare of positions at which one of k children is accepted, by teacher forcing on the target's own text; 1 - TV is the most that any rule\n"
           "reaches with one child drawn from the draft (top-k's is its most probable token).\n\n"
           "| temperature | k | coupled | sequoia | specinfer | spectr | top-k | 1 - TV | decisions |\n|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n");
    for (i = 0; i < c->count; i++) {
        const measure_rates *r = &c->rates[i];

        for (k = 0; k < 4; k++) {
            printf("| %.2g | %d |", (double)r->temperature, measure_children[k]);
            for (j = 0; j < MEASURE_RULES; j++)
                printf(" %.3f |", share(r, r->within[j][k]));
            if (r->temperature > 0 && k == 0)
                printf(" %.3f |", r->positions ? r->overlap / (double)r->positions : 0);
            else
                printf(" |");
            printf(" %ld |\n", r->decisions);
        }
    }
}

static void print_md_comparison(const comparison *c)
{
    int i, j;

    printf("%s with %s; prompts: %s\n", c->o->models[0], c->o->draft, c->o->prompts);
    print_md_verifiers(c);
    for (i = 0; i < c->count; i++)
        for (j = 0; j < rule_count(&c->rates[i], 2); j++)
            print_md_shapes(c, i, j);
}

/* What is expected of every shape for one rule's acceptance. */
static void print_json_shapes(json_writer *j, const comparison *c, int at, int rule)
{
    const shape_scores *s = &c->scores[at][rule];
    double values[MEASURE_RANKS];

    json_gap(j, rule ? "\n    " : "");
    json_object(j, rule_name(&c->rates[at], rule));
    measure_vector(&c->rates[at], (measure_rule)rule, values);
    json_numbers(j, "acceptance", "%.6g", values, MEASURE_RANKS);
    json_numbers(j, "sequoia", "%.6g", s->sequoia, SIZES);
    json_numbers(j, "chain", "%.6g", s->chain, SIZES);
    json_numbers(j, "chains16", "%.6g", s->chains, SIZES);
    json_numbers(j, "kary", "%.6g", s->full, SIZES);
    json_close(j);
}

static void print_json_rates(json_writer *j, const comparison *c, int at)
{
    const measure_rates *r = &c->rates[at];
    double values[4];
    int i, k;

    json_gap(j, "\n  ");
    json_object(j, NULL);
    json_number(j, "temperature", "%g", (double)r->temperature);
    json_integer(j, "positions", r->positions);
    json_integer(j, "decisions", r->decisions);
    json_gap(j, "\n   ");
    json_object(j, "accepted");
    for (i = 0; i < rule_count(r, MEASURE_RULES); i++) {
        for (k = 0; k < 4; k++)
            values[k] = share(r, r->within[i][k]);
        json_numbers(j, rule_name(r, i), "%.6g", values, 4);
    }
    json_close(j);
    json_gap(j, "\n   ");
    json_object(j, "expected");
    for (i = 0; i < rule_count(r, 2); i++)
        print_json_shapes(j, c, at, i);
    json_close(j);
    json_close(j);
}

static void print_json_comparison(const comparison *c)
{
    static const int32_t children[] = {1, 2, 4, 8};
    int32_t widths[PROGRAM_COUNT(sizes)];
    json_writer j;
    int i;

    for (i = 0; i < SIZES; i++)
        widths[i] = sizes[i];
    json_begin(&j, stdout);
    json_object(&j, NULL);
    json_integers(&j, "children", children, 4);
    json_integers(&j, "n", widths, SIZES);
    json_gap(&j, "\n ");
    json_array(&j, "temperatures");
    for (i = 0; i < c->count; i++)
        print_json_rates(&j, c, i);
    json_gap(&j, "\n ");
    json_close(&j);
    json_gap(&j, "\n ");
    json_array(&j, "runs");
    for (i = 0; i < RUN_WIDTHS; i++) {
        json_object(&j, NULL);
        json_integer(&j, "n", sizes[i]);
        json_number(&j, "temperature", "%g", (double)c->rates[c->run_at].temperature);
        json_number(&j, "sequoia", "%.4f", tokens_a_step(&c->runs[i][0]));
        json_number(&j, "chain", "%.4f", tokens_a_step(&c->runs[i][1]));
        json_close(&j);
    }
    json_close(&j);
    json_close(&j);
}

static int run_comparison(const options *o)
{
    static comparison c;
    float temperatures[MEASURE_TEMPERATURES];
    double p[MEASURE_RANKS];
    specdec_config config;
    measure_prompts prompts;
    measure_plan plan;
    int i, j;

    c.o = o;
    c.count = measure_read_temperatures(o->temperatures, temperatures);
    if (!c.count)
        return program_misused("--temp takes up to 8 temperatures with commas between, not ", o->temperatures);
    memset(&config, 0, sizeof config);
    config.target.path = o->models[0];
    config.draft.path = o->draft;
    config.threads = o->threads;
    config.kv = o->kv;
    config.isa = o->isa;
    config.weights_in_place = o->in_place;
    config.chat_format = o->chat_format;
    plan.prompts = &prompts;
    plan.tokens = ANSWER;
    plan.positions = o->positions;
    plan.draws = DRAWS;
    plan.all = 1;
    if (!measure_read_prompts(&prompts, o->prompts, 1000) || !measure_open(&c.m, &config))
        return PROGRAM_FAILED;
    c.m.chat = o->chat;
    for (i = 0; i < c.count; i++) {
        c.rates[i].temperature = temperatures[i];
        c.run_at = temperatures[i] > 0.59f && temperatures[i] < 0.61f ? i : c.run_at;
    }
    if (!measure_acceptance(&c.m, c.rates, c.count, &plan))
        return PROGRAM_FAILED;
    for (i = 0; i < c.count; i++)
        for (j = 0; j < 2; j++) {
            measure_vector(&c.rates[i], (measure_rule)j, p);
            if (!score_shapes(p, &c.scores[i][j]))
                return program_failed("out of memory", "");
        }
    if (o->steps && !run_shapes(&c, &prompts))
        return PROGRAM_FAILED;
    (o->format == FORMAT_JSON ? print_json_comparison : print_md_comparison)(&c);
    measure_close(&c.m);
    return program_finish(PROGRAM_OK);
}

/* --- command line ------------------------------------------------------------------------------------------------- */

/* Reads "1,2,4" into list[MAX_WIDTHS]: numbers of 1 to 64. Returns how many, or 0 when they are none. */
static int parse_widths(const char *text, int *list)
{
    int count = 0;

    while (*text) {
        char *end;
        long n = strtol(text, &end, 10);

        if (end == text || n < 1 || n > 64 || count == MAX_WIDTHS || (*end && *end != ','))
            return 0;
        list[count++] = (int)n;
        text = *end ? end + 1 : end;
    }
    return count;
}

/* Reads the command line. Returns PROGRAM_GO_ON, or an exit status. */
static int parse(options *o, int argc, char **argv)
{
    const program_flag flags[] = {
        {"-m", PROGRAM_TEXTS, (void *)o->models, "FILE", "a model; up to 8 of them, one after the other", 4096, MAX_MODELS},
        {"-md", PROGRAM_TEXT, (void *)&o->draft, "FILE", "a draft model: also measures speculation end to end", 0, 0},
        {"-t", PROGRAM_INTEGER, &o->threads, "N", "threads (all processors, fewer for small models)", 1, SPECDEC_MAX_THREADS},
        {"-w", PROGRAM_TEXT, (void *)&o->width_list, "LIST", "step widths, 1 to 64 (1,2,4,8,16,32,64)", 0, 0},
        {"-c", PROGRAM_INTEGER, &o->context, "N", "context behind every step, in tokens (128)", 1, 1 << 20},
        {"-r", PROGRAM_INTEGER, &o->repeats, "N", "repeats (9)", 1, MAX_REPEATS},
        {"-n", PROGRAM_INTEGER, &o->tokens, "N",
         "tokens that the end-to-end runs write (128; with --sequences 24 for each text)", 1, 800},
        {"--kv", PROGRAM_NAME, (void *)&o->kv, "f16|f32|q8_0", "key and value cache (f16)", 0, 0},
        {"--isa", PROGRAM_ISA, (void *)&o->isa, "NAME", "instruction set (the best of this CPU)", 0, 0},
        {"--in-place", PROGRAM_SWITCH, &o->in_place, NULL, "weights are not repacked", 0, 0},
        {"--no-prefill", PROGRAM_NO, &o->prefill, NULL, "leaves out the prefill of 128 and 512 tokens", 0, 0},
        {"-o", PROGRAM_CHOICE, &o->format, "md|json|svg", "what is written to standard output (md)", 0, 0},
        {"--compare", PROGRAM_SWITCH, &o->compare, NULL, "instead: tree shapes and verifiers, for -m, -md and --prompts; md or json", 0, 0},
        {"--sequences", PROGRAM_TEXT, (void *)&o->stream_list, "LIST",
         "instead: so many texts side by side, 1 to 64: 1,2,4,8,16,32", 0, 0},
        {"--spec", PROGRAM_CHOICE, &o->spec, PROGRAM_DRAFTING, "where draft tokens come from in the second run (auto)", 0, 0},
        {"--wait", PROGRAM_SWITCH, &o->wait, NULL,
         "instead, or with --sequences: how long a text waits while a prompt of 2000 tokens is read", 0, 0},
        {"--prompts", PROGRAM_TEXT, (void *)&o->prompts, "FILE", "JSON lines with \"turns\" or \"prompt\", or text with empty lines between", 0, 0},
        {"--temp", PROGRAM_TEXT, (void *)&o->temperatures, "LIST", "temperatures to compare at (0,0.2,0.6,1)", 0, 0},
        {"--positions", PROGRAM_INTEGER, &o->positions, "N", "positions of text for each of them (500)", 1, 1000000},
        {"--steps", PROGRAM_INTEGER, &o->steps, "N", "steps with each tree that is run (40); 0: none", 0, 100000},
        {"--chat", PROGRAM_SWITCH, &o->chat, NULL, "prompts are messages, in the model's chat format", 0, 0},
        {"--chat-format", PROGRAM_NAME, (void *)&o->chat_format, PROGRAM_CHAT_FORMATS, "how (as the model says)", 0, 0},
        {NULL, PROGRAM_SWITCH, NULL, NULL, NULL, 0, 0}};
    int status = program_read(flags, argc, argv, "specdec-bench", "-m MODEL.gguf [-m MORE.gguf ...] [-md DRAFT.gguf] [options]",
                              "roofline share: max(bytes / read bandwidth, width * multiply-adds / integer peak) / time of the step\n");

    if (status != PROGRAM_GO_ON)
        return status;
    while (o->model_count < MAX_MODELS && o->models[o->model_count])
        o->model_count++;
    if (!o->model_count)
        return program_misused("a model is needed: -m MODEL.gguf", "");
    o->width_count = parse_widths(o->width_list, o->widths);
    if (!o->width_count)
        return program_misused("-w takes up to 16 widths of 1 to 64 with commas between, not ", o->width_list);
    o->stream_count = o->stream_list ? parse_widths(o->stream_list, o->streams) : 0;
    if (o->stream_list && !o->stream_count)
        return program_misused("--sequences takes up to 16 numbers of 1 to 64 with commas between, not ", o->stream_list);
    if (!o->tokens)
        o->tokens = o->stream_count || o->wait ? CROWD_TOKENS : 128;
    if (o->compare && (o->stream_count || o->wait))
        return program_misused("--compare goes without --sequences and --wait", "");
    if (o->wait && !o->stream_count && o->format == FORMAT_SVG)
        return program_misused("--wait has nothing to draw: -o md or json", "");
    if (o->spec == SPECDEC_DRAFT_HEADS)
        return program_misused("--spec heads needs heads, which are not measured here", "");
    if (o->spec == SPECDEC_DRAFT_MODEL && !o->draft)
        return program_misused("--spec draft needs a draft model: -md", "");
    if (o->compare && (o->model_count > 1 || !o->draft || !o->prompts || o->format == FORMAT_SVG))
        return program_misused("--compare takes one -m, -md and --prompts, and writes md or json", "");
    return PROGRAM_GO_ON;
}

int main(int argc, char **argv)
{
    static void (*const print[])(const bench *, const model_result *, int) = {print_md, print_json, print_svg};
    static model_result results[MAX_MODELS];
    static options o;
    static machine m;
    static bench b;
    int i, status;

    o.width_list = "1,2,4,8,16,32,64";
    o.temperatures = "0,0.2,0.6,1";
    o.context = 128;
    o.repeats = 9;
    o.prefill = 1;
    o.positions = 500;
    o.steps = 40;
    status = parse(&o, argc, argv);
    if (status != PROGRAM_GO_ON)
        return status;
    if (o.compare)
        return run_comparison(&o);
    m.threads = o.threads ? o.threads : specdec_processors();
    m.memory = (unsigned char *)malloc(READ_BYTES);
    if (!m.memory)
        return program_failed("no memory", "");
    memset(m.memory, 1, READ_BYTES);
    b.o = &o;
    b.m = &m;
    b.repeats = o.repeats;
    if (o.stream_count || o.wait)
        return run_crowds(&b);
    for (i = 0; i < o.model_count; i++)
        if (!measure_model(&b, o.models[i], &results[i]))
            return PROGRAM_FAILED;
    print[o.format](&b, results, o.model_count);
    free(m.memory);
    return program_finish(PROGRAM_OK);
}
