/* test_screen.c - output matrices that are read in part (screening): bounds hold, and tokens are chosen as from all logits, on
   every instruction set, with matrices made to mislead. cc -O2 -pthread -I. test_screen.c; test_screen [SECONDS]: so long with
   each instruction set; SPECDEC_QUICK=1 shortens. */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "check.h"
#include <stdlib.h>

#define MOST_ROWS 1200
#define MOST_COLUMNS 192
#define MOST 8 /* positions of a step */

static uint64_t state;

static uint32_t roll(uint32_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return n ? (uint32_t)(state >> 33) % n : 0;
}

static float unit(void) { return (float)(int)(roll(2000001) - 1000000) * 1e-6f; }

/* An output matrix twice, as tiles and as planes, and what a step needs to be multiplied with it. */
typedef struct bench {
    unsigned char *file;          /* (rows, 34 * columns / 32) */
    unsigned char *memory;
    float x[MOST * (MOST_COLUMNS + 32 + SPECDEC__ROW_PADDING)], h[MOST * (MOST_COLUMNS + 32 + SPECDEC__ROW_PADDING)];
    float norm[MOST_COLUMNS], logits[2][MOST * MOST_ROWS + 16], sums[2 * SPECDEC__PASS_COLUMNS * SPECDEC__ROWS];
    float norms[MOST * SPECDEC__PLANE_PARTS], largest[MOST * (MOST_ROWS / SPECDEC__SCREEN_GROUP + 1)];
    specdec_candidate items[MOST_ROWS];
    int order[MOST], wrong[MOST];
    specdec__model model[2];
    specdec__context context[2];
    specdec__scratch scratch;
    specdec__kernels kernels;
    specdec__pool pool;
    int cancel, rows, columns;
} bench;

typedef struct counts {
    double positions, settled, bounds;
} counts;

static bench b;

/* Row i of Q8_0 by kind: at random; all alike; alike but for one code; remainders along the column; zeros; scales that
   are huge, tiny, vanish or are no numbers. */
static void make_row(int kind, int i, const float *x)
{
    const int blocks = b.columns / 32;
    unsigned char *row = b.file + (size_t)i * (size_t)blocks * 34, *first = b.file;
    int k, j;

    for (k = 0; k < blocks; k++, row += 34, first += 34) {
        uint16_t d = (uint16_t)(0x2000 + roll(0x600));

        if (kind == 5)
            d = (uint16_t)(roll(2) ? 0x7BFF : 1 + roll(8));
        if (kind == 6)
            d = (uint16_t)roll(0x7C00);
        if (kind == 7 && roll(64) == 0)
            d = (uint16_t)(roll(2) ? 0x7C00 : 0x7E00);
        if (kind == 8)
            d = (uint16_t)roll(3);
        memcpy(row, &d, 2);
        for (j = 0; j < 32; j++) {
            int code = (int)roll(255) - 127;

            if (kind == 3) /* the lower bits pull along the column, or against it */
                code = ((code + 128) & ~7) - 128 + ((x[k * 32 + j] > 0) == (i % 2) ? 7 : 0);
            if (kind == 4)
                code = i % 3 ? 0 : code;
            row[2 + j] = (unsigned char)(int8_t)code;
        }
        if ((kind == 1 || kind == 2) && i)
            memcpy(row, first, 34);
    }
    if (kind == 2 && i && roll(4)) { /* one step of one code, which may be less than an ulp of the logit */
        row -= 34;
        row[2 + roll(32)] ^= 1;
    }
}

static void make_states(int kind, int n)
{
    const int stride = specdec__forward_stride(b.columns);
    int i, k;

    memset(b.x, 0, sizeof b.x);
    for (k = 0; k < b.columns; k++)
        b.norm[k] = kind == 9 ? (roll(16) ? 0.01f : 20.0f) : kind == 10 ? 1e-30f : kind == 11 ? 1e25f : 1 + unit() / 2;
    for (i = 0; i < n; i++)
        for (k = 0; k < b.columns; k++)
            b.x[i * stride + k] = kind == 12 ? (k == i ? 1.0f : 0.0f) : kind == 13 ? 0 : unit();
}

/* Makes both of a matrix of this kind. */
static int make(int kind, int n)
{
    static specdec_hooks hooks;
    specdec_error error;
    int i, k;

    b.rows = kind % 2 ? 512 + (int)roll(600) : 256 + (int)roll(40);
    b.columns = 32 * (1 + (int)roll(6));
    make_states(kind, n);
    for (i = 0; i < b.rows; i++)
        make_row(kind, i, b.x);
    for (k = 0; k < 2; k++) {
        specdec__model *m = &b.model[k];
        specdec__context *c = &b.context[k];
        specdec__arena arena = {NULL, 0, 0};

        memset(m, 0, sizeof *m);
        m->output.type = specdec__quant_find_type(SPECDEC__TYPE_Q8_0);
        m->output.rows = b.rows;
        m->output.columns = b.columns;
        m->output.row_bytes = (size_t)b.columns / 32 * 34;
        m->output.file = b.file;
        m->output_norm = b.norm;
        m->embedding = b.columns;
        m->epsilon = 1e-30f;
        m->fact[SPECDEC__LOGIT_SCALE] = k ? b.model[0].fact[SPECDEC__LOGIT_SCALE] : roll(2) ? 1 : 0.37f;
        m->fact[SPECDEC__LOGIT_CAP] = k ? b.model[0].fact[SPECDEC__LOGIT_CAP] : roll(3) ? 0 : 0.01f + 30 * unit() * unit();
        specdec__model_count_whole_matrix(m, &m->output);
        arena.base = b.memory + (size_t)k * (1 << 20);
        arena.size = 1 << 20;
        if (specdec__model_repack_matrices(m, k ? 2 : 0, &arena, &b.pool, &hooks, &error))
            return 0;
        c->model = m;
        c->kernels = &b.kernels;
        c->pool = &b.pool;
        c->threads = 1;
        c->checks_values = 1;
        c->scratch = &b.scratch;
        c->output = &m->output;
        c->e = specdec__forward_stride(b.columns);
        c->x = b.x;
        c->h = b.h;
        c->logits = b.logits[k];
        c->rows = b.order;
        c->first_unsound = b.wrong;
        c->row_count = n;
        c->screen.norms = b.norms;
        c->screen.largest = b.largest;
        c->columns.n = 0;
    }
    return (b.model[1].output.bounds != NULL) == 1 && !b.model[0].output.bounds;
}

static void sampling_of(specdec_sampling *s, specdec_bias *biases)
{
    memset(s, 0, sizeof *s);
    s->seed = roll(1000);
    if (roll(2))
        s->temperature = roll(3) ? 0.1f * (float)(1 + roll(20)) : 1e-3f;
    if (roll(3) == 0)
        s->top_k = 1 + (int32_t)roll(14);
    if (s->top_k && roll(2))
        s->top_p = 0.5f + 0.02f * (float)roll(25);
    if (s->top_k && roll(2))
        s->min_p = 0.05f;
    if (roll(4) == 0)
        s->repetition_penalty = roll(2) ? 1.2f : 0.8f;
    if (roll(8) == 0)
        s->frequency_penalty = unit();
    if (roll(8) == 0)
        s->presence_penalty = unit();
    if (roll(8) == 0)
        s->dry_multiplier = 0.8f;
    if (roll(8) == 0)
        s->typical_p = 0.9f;
    if (roll(8) == 0)
        s->xtc_probability = 0.5f;
    if (roll(8) == 0)
        s->temperature_range = 0.3f;
    if (roll(8) == 0) {
        s->samplers[0] = (unsigned char)(1 + roll(SPECDEC_SAMPLER_COUNT - 1));
        s->samplers[1] = (unsigned char)(s->samplers[0] % (SPECDEC_SAMPLER_COUNT - 1) + 1);
    }
    if (roll(4) == 0) {
        s->bias_count = 1 + (int)roll(3);
        s->biases = biases;
    }
}

/* The text before a row: any tokens, or those with the largest logits, so that all that lead are altered. */
static void recent_of(const float *logits, int32_t recent[24])
{
    const int best = roll(4) == 0;
    specdec_candidate items[24], one;
    int i, held = 0;

    for (i = 0; i < b.rows && best; i++) {
        one.token = i;
        one.logit = logits[i];
        held = specdec__sample_insert_into_best(items, held, 24, one);
    }
    for (i = 0; i < 24; i++)
        recent[i] = best ? items[i].token : (int32_t)roll((uint32_t)b.rows);
}

/* Fills mask with tokens that may follow, one at least: most, few, or hardly any. The logits of all others become
   -infinity. */
static void allow(uint32_t mask[(MOST_ROWS + 31) / 32], float *logits)
{
    const uint32_t share = roll(3) ? 2 + roll(50) : 400;
    const int sure = (int)roll((uint32_t)b.rows);
    int i;

    memset(mask, 0, (MOST_ROWS + 31) / 32 * sizeof *mask);
    for (i = 0; i < b.rows; i++)
        if (i == sure || (share < 20 ? roll(share) : !roll(share)))
            mask[i / 32] |= 1u << i % 32;
        else
            logits[i] = -INFINITY;
}

/* A row is settled and sampled from; the same of all logits. */
static void compare(int column, counts *done, const char *isa, int kind)
{
    const size_t at = (size_t)column * (size_t)b.rows;
    specdec__context *c = &b.context[1];
    const double whole = (double)c->screen.rows_whole;
    specdec__settle_list lists[2];
    specdec__settle_need need;
    specdec__chooser chooser;
    specdec_candidate best[2];
    specdec_sampling s;
    specdec_bias biases[3];
    int32_t recent[24];
    uint32_t mask[(MOST_ROWS + 31) / 32];
    int i;

    recent_of(b.logits[0] + at, recent);
    for (i = 0; i < 3; i++) {
        biases[i].token = (int32_t)roll((uint32_t)b.rows);
        biases[i].bias = roll(3) ? unit() * 5 : roll(2) ? -INFINITY : 1e30f;
    }
    sampling_of(&s, biases);
    need = specdec__settle_needed_logits(&s, 24);
    if (!need.k)
        return;
    if (!need.by_noise && roll(2) && c->screen.computed) {
        allow(mask, b.logits[0] + at);
        need.allowed = mask;
    }
    lists[0].tokens = recent + 24 - need.altered;
    lists[0].stride_bytes = 4;
    lists[0].count = need.altered;
    lists[1].tokens = &biases->token;
    lists[1].stride_bytes = sizeof *biases;
    lists[1].count = s.bias_count;
    memset(&chooser, 0, sizeof chooser);
    chooser.kernels = &b.kernels;
    chooser.sampling = &s;
    chooser.items = b.items;
    if (c->screen.computed)
        specdec__settle_compute_needed_logits(c, column, &need, specdec__sample_noise_of_position(s.seed, 24), lists, 2,
                                              b.items);
    best[0].token = best[1].token = -1;
    for (i = 0; i < b.rows && need.allowed && !c->screen.computed; i++) /* it was read whole: the engine masks it then */
        if (!(mask[i / 32] >> i % 32 & 1))
            b.logits[1][at + (size_t)i] = -INFINITY;
    specdec__choose_best_tokens(&chooser, b.logits[0] + at, b.rows, recent, 24, 1, &best[0]);
    specdec__choose_best_tokens(&chooser, b.logits[1] + at, b.rows, recent, 24, 1, &best[1]);
    if (best[0].token != best[1].token)
        printf("  %s, kind %d, rows %d, columns %d, temperature %g, top_k %d, penalty %g, biases %d\n", isa, kind, b.rows,
               b.columns, (double)s.temperature, (int)s.top_k, (double)s.repetition_penalty, s.bias_count);
    CHECK_EQUAL_INT(best[1].token, best[0].token);
    done->positions++;
    done->settled += (double)c->screen.rows_whole - whole < 0.5;
}

/* A step: its bounds, then its tokens. */
static void step(int kind, int n, counts *done, const char *isa)
{
    specdec__context *c = b.context;
    size_t i, all = (size_t)n * (size_t)b.rows, low = 0;
    int column;

    memset(b.wrong, 0, sizeof b.wrong);
    c[0].any_unsound = c[1].any_unsound = c[1].screen.needed = 0;
    specdec__pool_run(&b.pool, 1, specdec__forward_compute_logits, &c[0]);
    specdec__pool_run(&b.pool, 1, specdec__forward_compute_logits, &c[1]);
    CHECK(memcmp(b.logits[0], b.logits[1], all * sizeof(float)) == 0);
    CHECK_EQUAL_INT(c[1].any_unsound, c[0].any_unsound);
    c[1].screen.needed = SPECDEC__SCREEN_BOUNDS;
    specdec__pool_run(&b.pool, 1, specdec__forward_compute_logits, &c[1]);
    CHECK(c[1].screen.computed);
    for (i = 0; i < all; i++) {
        const size_t groups = (size_t)specdec__screen_count_groups(c[1].output), row = i / (size_t)b.rows;

        low += b.logits[1][i] < b.logits[0][i];
        low += b.largest[row * groups + i % (size_t)b.rows / SPECDEC__SCREEN_GROUP] < b.logits[1][i];
        done->bounds++;
    }
    CHECK_EQUAL_INT(low, 0);
    for (column = 0; column < n; column++)
        compare(column, done, isa, kind);
}

static void run_isa(const char *isa, double seconds)
{
    specdec_error error;
    counts done = {0, 0, 0}, kinds;
    const double end = specdec__os_monotonic_seconds() + seconds;
    int kind, turn = 0, i;

    if (specdec__kernels_init(&b.kernels, isa, &error))
        return;
    do
        for (kind = 0; kind < 14; kind++) {
            const int n = 1 + (int)roll(MOST);

            memset(&kinds, 0, sizeof kinds);
            CHECK(make(kind, n));
            for (i = 0; i < 8; i++) {
                make_states(kind == 9 || kind > 9 ? kind : 0, n);
                if (kind == 9) /* parts of bounds follow the norm: those of the matrix were made with another */
                    memset(b.x, 0, 4);
                step(kind, n, &kinds, isa);
            }
            done.positions += kinds.positions;
            done.settled += kinds.settled;
            done.bounds += kinds.bounds;
        }
    while (++turn, specdec__os_monotonic_seconds() < end);
    CHECK(done.settled > 0);
    printf("  %s: %.0f positions, of which %.0f were settled by bounds; %.0f bounds\n", isa, done.positions, done.settled,
           done.bounds);
}

static void test_all(double seconds)
{
    static const char *const names[] = {"scalar", "sse41", "avx2", "avxvnni", "avx512", "neon", "dotprod", "i8mm",
                                        "neon32", "rvv"};
    size_t i;

    TEST("rows that are read in part give the token of all logits, whatever the matrix, and no bound is too low");
    for (i = 0; i < sizeof names / sizeof *names; i++)
        run_isa(names[i], seconds);
}

int main(int argc, char **argv)
{
    const int quick = getenv("SPECDEC_QUICK") != NULL;
    static specdec__panel panels[2];
    static unsigned char tile[2 * SPECDEC__PANEL_VALUES * SPECDEC__ROWS * 4], memory[1 << 20];
    specdec__arena arena = {NULL, 0, 0};
    static specdec_hooks hooks;
    specdec_error error;
    int i;

    arena.base = memory;
    arena.size = sizeof memory;
    state = 20261129;
    b.file = (unsigned char *)malloc((size_t)MOST_ROWS * MOST_COLUMNS / 32 * 34);
    b.memory = (unsigned char *)malloc(2 << 20);
    b.scratch.panel = panels;
    b.scratch.tile = tile;
    b.scratch.sums = b.sums;
    for (i = 0; i < MOST; i++)
        b.order[i] = i;
    if (!b.file || !b.memory || specdec__pool_init(&b.pool, 1, &b.cancel, &hooks, &arena, &error))
        return 1;
    for (i = 0; i < 2; i++)
        specdec__columns_take_memory(&b.context[i].columns, MOST, MOST_COLUMNS, &arena);
    test_all(argc > 1 ? atof(argv[1]) : quick ? 0.3 : 3);
    specdec__pool_deinit(&b.pool);
    free(b.file);
    free(b.memory);
    return check_report("test_screen");
}
