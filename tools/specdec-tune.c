/* specdec-tune - which token tree pays: measured for a pair of models and a file of prompts on this machine; computed for an
   acceptance vector; and the header's default family of trees. */
#define _DEFAULT_SOURCE 1 /* POSIX, also under -std=c99 */
#include "specdec.h"
#include "tools/program.h"
#include "tools/json.h"
#include "tools/measure.h"

#include <math.h>

/* --- the default family: the lines between BEGIN and END GENERATED TREES in >>tree -------------------------------- */

#define FAMILY_RANKS  8
#define FAMILY_LEVELS 16
#define FAMILY_NODES  64

/* Acceptance in 1/10000 by child rank: p_1 = a, and after k children the rejected rest is (1 - a) k^-b with
   b = 0.2 + 1.2 a^3, a power law as in Chen et al. 2024 that passes near the two vectors published with it. */
static const int profiles[][FAMILY_RANKS] = {
    {2000, 1082, 564, 372, 273, 214, 175, 147}, {3500, 1040, 529, 344, 250, 194, 157, 132},
    {5000, 1077, 519, 326, 231, 176, 140, 116}, {6200, 1087, 485, 291, 199, 147, 115, 93},
    {7300, 999, 403, 227, 148, 106, 80, 63},    {8300, 780, 278, 145, 89, 61, 44, 34},
    {9100, 481, 151, 73, 43, 28, 19, 14},       {9700, 178, 50, 22, 13, 8, 5, 4},
};

static const int family_widths[] = {2, 4, 8, 16, 32, 64};
static const double draft_times[] = {0.02, 0.1, 0.3}; /* a draft pass over a step of the target */

typedef struct shape {
    int n, d;
    char children[FAMILY_NODES + 1];
} shape;

static shape shapes[PROGRAM_COUNT(profiles) * PROGRAM_COUNT(family_widths) * PROGRAM_COUNT(draft_times)];
static int shape_count;

/* Notes a tree, unless it is there already. */
static void note(const specdec_tree *tree)
{
    shape s;
    int i, counts[FAMILY_NODES] = {0}, end = tree->n;

    for (i = 1; i < tree->n; i++)
        counts[tree->parents[i]]++;
    while (end > 0 && counts[end - 1] == 0)
        end--;
    memset(&s, 0, sizeof s);
    s.n = tree->n;
    s.d = specdec_tree_depth(tree, NULL);
    for (i = 0; i < end; i++)
        s.children[i] = "0123456789abcdefghijklmnopqrstuvwxyz"[counts[i]];
    for (i = 0; i < shape_count; i++)
        if (shapes[i].n == s.n && !strcmp(shapes[i].children, s.children))
            return;
    shapes[shape_count++] = s;
}

/* Notes the best trees of one width for one profile, each at its best depth. */
static void build(const double *p, const double *grid, int n, void *memory, size_t bytes)
{
    static int32_t parents[FAMILY_NODES], ranks[FAMILY_NODES];
    specdec_tree tree = {parents, ranks, FAMILY_NODES, 0};
    const double one = 1.0;
    const int32_t width = n;
    size_t c;

    for (c = 0; c < PROGRAM_COUNT(draft_times); c++) {
        int best_n = 0, d = 0;

        if (specdec_tree_choose(&best_n, &d, NULL, grid, FAMILY_NODES, FAMILY_LEVELS, &width, &one, 1, draft_times[c], NULL) ||
            specdec_tree_best(&tree, NULL, p, FAMILY_RANKS, n, d, memory, bytes, NULL))
            continue;
        note(&tree);
    }
}

/* Fills shapes with the whole family: the same on every machine. Returns 0 when memory ran out. */
static int build_family(void)
{
    static double grid[(FAMILY_NODES + 1) * (FAMILY_LEVELS + 1)];
    size_t bytes = specdec_tree_memory(FAMILY_NODES, FAMILY_LEVELS, FAMILY_RANKS), w, i;
    void *memory = malloc(bytes);
    double p[FAMILY_RANKS];
    int k;

    for (w = 0; memory && w < PROGRAM_COUNT(family_widths); w++) {
        for (i = 0; i < PROGRAM_COUNT(profiles); i++) {
            for (k = 0; k < FAMILY_RANKS; k++)
                p[k] = profiles[i][k] / 10000.0;
            if (!specdec_tree_grid(grid, p, FAMILY_RANKS, FAMILY_NODES, FAMILY_LEVELS, memory, bytes, NULL))
                build(p, grid, family_widths[w], memory, bytes);
        }
    }
    w = memory != NULL;
    free(memory);
    return (int)w;
}

static void print_family(FILE *file)
{
    int i;

    for (i = 0; i < shape_count; i++)
        fprintf(file, "    {%d, %d, \"%s\"},\n", shapes[i].n, shapes[i].d, shapes[i].children);
}

/* The line behind the one that holds a mark, or its beginning; NULL when there is none. */
static char *find_mark(char *text, const char *mark, int behind)
{
    char *at = strstr(text, mark);

    if (at && behind)
        return strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL;
    while (at && at > text && at[-1] != '\n')
        at--;
    return at;
}

/* Writes the family between the marks of a header, which is replaced when all went well. */
static int refresh_header(const char *path)
{
    const int standard = strcmp(path, "-") == 0;
    size_t length = 0;
    char *text = standard ? program_read_file(path, &length) : program_read_regular(path, &length, NULL), *from, *to;
    program_output out = PROGRAM_NO_OUTPUT;
    int status;

    text = program_as_text(text, length, path);
    if (!text)
        return PROGRAM_FAILED;
    from = find_mark(text, "/* BEGIN GENERATED TREES */", 1);
    to = from ? find_mark(from, "/* END GENERATED TREES */", 0) : NULL;
    status = to ? program_output_open(&out, path, NULL) : program_failed("no BEGIN and END GENERATED TREES in ", path);
    if (!status) {
        fwrite(text, 1, (size_t)(from - text), out.file);
        print_family(out.file);
        fputs(to, out.file);
        status = program_output_end(&out);
    }
    free(text);
    return program_finish(status);
}

/* specdec-tune --defaults [HEADER] */
static int run_defaults(const char *header)
{
    if (!build_family())
        return program_failed("out of memory", "");
    if (header)
        return refresh_header(header);
    print_family(stdout);
    return program_finish(PROGRAM_OK);
}

/* --- the best tree for a vector ----------------------------------------------------------------------------------- */

#define MAX_VECTOR 256 /* entries that are read; the library says how many it takes */

/* Reads numbers with commas between. Returns how many, or -1. */
static int read_numbers(const char *text, double *out, int most)
{
    int count = 0;

    for (;;) {
        char *end;

        if (count == most)
            return -1;
        out[count++] = strtod(text, &end);
        if (end == text || (*end && *end != ','))
            return -1;
        if (!*end)
            return count;
        text = end + 1;
    }
}

/* specdec-tune --tree P1,P2,... -n N -d D: the tree that scores highest, as JSON. */
static int run_tree(const char *list, int n, int d)
{
    static int32_t parents[SPECDEC_TREE_MAX_NODES], ranks[SPECDEC_TREE_MAX_NODES];
    specdec_tree tree = {parents, ranks, SPECDEC_TREE_MAX_NODES, 0};
    double p[MAX_VECTOR], score;
    int width = read_numbers(list, p, MAX_VECTOR);
    size_t bytes;
    void *memory;
    specdec_error error;
    json_writer j;

    if (width < 0)
        return program_misused("--tree takes numbers with commas between, not ", list);
    bytes = specdec_tree_memory(n, d, width);
    memory = malloc(bytes ? bytes : 1);
    error.text[0] = 0;
    if (!memory)
        return program_failed("out of memory", "");
    if (specdec_tree_best(&tree, &score, p, width, n, d, memory, bytes, &error)) {
        free(memory);
        return program_failed("", error.text);
    }
    free(memory);
    json_begin(&j, stdout);
    json_object(&j, NULL);
    json_number(&j, "G", "%.12g", score);
    json_integer(&j, "n", tree.n);
    json_integer(&j, "d", specdec_tree_depth(&tree, NULL));
    json_integers(&j, "parents", parents, tree.n);
    json_integers(&j, "ranks", ranks, tree.n);
    json_close(&j);
    return program_finish(PROGRAM_OK);
}

/* --- measuring a pair --------------------------------------------------------------------------------------------- */

#define MAX_CANDIDATES 4  /* trees that are run, and the header's own one */
#define STEP_REPEATS   7
#define DRAFT_REPEATS  9
#define LEVELS         SPECDEC_TREE_MAX_DEPTH

static const int32_t step_widths[] = {1, 2, 4, 8, 16, 32, 64};

#define STEP_WIDTHS ((int)PROGRAM_COUNT(step_widths))

/* A tree, what is expected of it, and what it did. */
typedef struct candidate {
    int32_t parents[MEASURE_NODES], ranks[MEASURE_NODES];
    int n, d, family;              /* nodes, levels; one of the header's trees */
    double score, predicted;       /* tokens a step; speed-up over plain decoding */
    measure_run run;
} candidate;

/* One temperature. */
typedef struct tuning {
    measure_rates rates;
    candidate candidates[MAX_CANDIDATES + 1], sequoia; /* for coupled, most promising first; for sequoia, never run */
    int count;
    measure_run plain;
} tuning;

enum { FORMAT_MD, FORMAT_JSON, FORMAT_SVG, FORMAT_C };

typedef struct options {
    specdec_config config;
    const char *prompts, *temperatures, *tree, *header;
    int n, d, limit, runs, chat, format, defaults;
} options;

/* All that was measured. */
typedef struct report {
    const options *o;
    measure m;
    tuning tunings[MEASURE_TEMPERATURES];
    int count;
    double seconds[8];               /* by step_widths */
    double times[MEASURE_NODES + 1]; /* t(n), t(1) being 1; straight lines between the widths */
    double draft;                    /* c: a level of drafting, t(1) being 1 */
} report;

static specdec_tree tree_of(candidate *c)
{
    specdec_tree tree = {NULL, NULL, MEASURE_NODES, 0};

    tree.parents = c->parents;
    tree.ranks = c->ranks;
    tree.n = c->n;
    return tree;
}

/* Makes a candidate of one node; the tree to fill. */
static specdec_tree blank(candidate *c)
{
    memset(c, 0, sizeof *c);
    c->n = 1;
    return tree_of(c);
}

/* Measured tokens a second, a step, and the speed-up over plain decoding; 0: not run. */
static double speed(const measure_run *run) { return run->seconds > 0 ? (double)run->tokens / run->seconds : 0; }
static double tokens_a_step(const measure_run *run) { return run->steps ? (double)run->tokens / (double)run->steps : 0; }

static double speedup(const tuning *t, const candidate *c)
{
    return speed(&t->plain) > 0 ? speed(&c->run) / speed(&t->plain) : 0;
}

/* The candidate that measured fastest, or the most promising one when none was run; -1: plain decoding is faster. */
static int fastest(const tuning *t)
{
    int i, best = -1;
    double highest = 1;

    for (i = 0; i < t->count; i++) {
        double gain = t->plain.steps ? speedup(t, &t->candidates[i]) : t->candidates[i].predicted;

        if (gain > highest) {
            highest = gain;
            best = i;
        }
    }
    return best;
}

/* c in seconds: the median of what a level of drafting took in steps with a small tree. */
static int measure_draft(report *r, double *seconds)
{
    double each[DRAFT_REPEATS];
    candidate c;
    specdec_tree tree = blank(&c);
    measure_run run = {0, 0, 0, 0};
    int i, levels;

    specdec_tree_chains(&tree, 3, 4, NULL);
    levels = specdec_tree_depth(&tree, NULL);
    if (!measure_use(&r->m, &tree, 0.6f, 1))
        return 0;
    for (i = 0; i < DRAFT_REPEATS; i++) {
        double before = run.draft_seconds;

        if (!measure_go(&r->m, 0, 1, &run))
            return 0;
        each[i] = run.draft_seconds - before;
    }
    *seconds = measure_median(each, DRAFT_REPEATS) / levels;
    return 1;
}

/* Prompts the first text that leaves room for steps. Returns 0 after saying what went wrong. */
static int prompt_any(report *r, const measure_prompts *prompts)
{
    int i, fits = -1;

    for (i = 0; i < prompts->count && fits < 0; i++)
        fits = measure_prompt(&r->m, prompts->texts[i], MEASURE_NODES);
    if (fits < 0)
        program_failed("no prompt leaves room for steps", " (-c sets the context)");
    return fits > 0;
}

/* t(n) for every n, and c, behind one of the prompts. */
static int measure_costs(report *r, const measure_prompts *prompts)
{
    int i, n;

    if (!prompt_any(r, prompts) || !measure_draft(r, &r->draft) ||
        !measure_step_times(&r->m, step_widths, STEP_WIDTHS, STEP_REPEATS, r->seconds))
        return 0;
    for (i = 1, r->times[1] = 1; i < STEP_WIDTHS; i++)
        for (n = step_widths[i - 1] + 1; n <= step_widths[i]; n++)
            r->times[n] = (r->seconds[i - 1] + (r->seconds[i] - r->seconds[i - 1]) * (n - step_widths[i - 1]) /
                                                   (step_widths[i] - step_widths[i - 1])) / r->seconds[0];
    r->draft /= r->seconds[0];
    return 1;
}

/* What a tree promises. */
static void predict(const report *r, candidate *c, const specdec_tree *tree, const double *p)
{
    c->n = tree->n;
    c->d = specdec_tree_depth(tree, NULL);
    c->score = 1;
    specdec_tree_score(&c->score, tree, p, MEASURE_RANKS, NULL);
    c->predicted = c->n > 1 ? c->score / (r->times[c->n] + c->d * r->draft) : 1;
}

/* Puts a candidate into a list of at most `most`, the most promising first. Returns how many there are. */
static int insert(candidate *list, int count, int most, const candidate *c)
{
    int at = count < most ? count : most;

    for (; at > 0 && list[at - 1].predicted < c->predicted; at--)
        if (at < most)
            list[at] = list[at - 1];
    if (at < most)
        list[at] = *c;
    return program_least(count + 1, most);
}

/* The best trees for a rule's acceptance: of each width the one at its best depth; the `most` most promising. Returns how many. */
static int propose(const report *r, const measure_rates *rates, measure_rule rule, candidate *list, int most)
{
    static double grid[(MEASURE_NODES + 1) * (LEVELS + 1)];
    const size_t bytes = specdec_tree_memory(MEASURE_NODES, LEVELS, MEASURE_RANKS);
    void *memory = malloc(bytes);
    double p[MEASURE_RANKS];
    int i, n, d, count = 0;

    measure_vector(rates, rule, p);
    if (memory && !specdec_tree_grid(grid, p, MEASURE_RANKS, MEASURE_NODES, LEVELS, memory, bytes, NULL))
        for (i = 1; i < STEP_WIDTHS; i++) {
            candidate c;
            specdec_tree tree = blank(&c);

            if (specdec_tree_choose(&n, &d, NULL, grid, MEASURE_NODES, LEVELS, &step_widths[i], &r->times[step_widths[i]], 1, r->draft,
                                    NULL) ||
                specdec_tree_best(&tree, NULL, p, MEASURE_RANKS, n, d, memory, bytes, NULL))
                continue;
            predict(r, &c, &tree, p);
            count = insert(list, count, most, &c);
        }
    free(memory);
    return count;
}

/* Fills in what is promised: the best trees for these numbers, and the header's best one. */
static void plan(const report *r, tuning *t)
{
    candidate *family;
    specdec_tree tree;
    double p[MEASURE_RANKS];

    propose(r, &t->rates, MEASURE_SEQUOIA, &t->sequoia, 1);
    t->count = propose(r, &t->rates, MEASURE_COUPLED, t->candidates, MAX_CANDIDATES);
    family = &t->candidates[t->count];
    tree = tree_of(family);
    measure_vector(&t->rates, MEASURE_COUPLED, p);
    if (specdec_tree_pick(&tree, NULL, p, MEASURE_RANKS, r->times, MEASURE_NODES, r->draft, NULL) || tree.n < 2)
        return;
    predict(r, family, &tree, p);
    family->family = 1;
    t->count++;
}

/* Runs every candidate and plain decoding in turn, behind each of the first prompts. */
static int run_candidates(report *r, const measure_prompts *prompts)
{
    int i, j, k, runs = program_least(r->o->runs, prompts->count);

    for (i = 0; i < runs; i++) {
        int ready = measure_prompt(&r->m, prompts->texts[i], r->o->n);

        program_progress(NULL, "runs", i, runs);
        if (!ready)
            return 0;
        for (j = 0; ready > 0 && j < r->count; j++) {
            tuning *t = &r->tunings[j];

            for (k = -1; k < t->count; k++) {
                specdec_tree tree = tree_of(&t->candidates[k < 0 ? 0 : k]);

                if (!measure_use(&r->m, k < 0 ? NULL : &tree, t->rates.temperature,
                                 (uint64_t)(i + 1) * 1000 + (uint64_t)j) ||
                    !measure_go(&r->m, r->o->n, 0, k < 0 ? &t->plain : &t->candidates[k].run))
                    return 0;
            }
        }
    }
    program_progress(NULL, "runs", 1, 1);
    return 1;
}

/* --- output ------------------------------------------------------------------------------------------------------- */

static const char *base_name(const char *path)
{
    return strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
}

/* The rules worth a row: at temperature 0 they are all the same. */
static int rule_rows(const tuning *t) { return t->rates.temperature > 0 ? 2 : 1; }

static const char *rule_name(const tuning *t, int row)
{
    return t->rates.temperature > 0 ? measure_rule_names[row] : "greedy";
}

static void print_md_acceptance(const report *r)
{
    int i, j, k;

    printf("p_k: the probability that the k-th child is accepted and those before it are not, by teacher forcing on the target's own text.\n\n"
           "| temperature | rule | positions |");
    for (k = 1; k <= MEASURE_RANKS; k++)
        printf(" p%d |", k);
    printf(" sum |\n|---:|---|---:|");
    for (k = 0; k <= MEASURE_RANKS; k++)
        printf("---:|");
    printf("\n");
    for (i = 0; i < r->count; i++)
        for (j = 0; j < rule_rows(&r->tunings[i]); j++) {
            double p[MEASURE_RANKS], sum = 0;

            measure_vector(&r->tunings[i].rates, (measure_rule)j, p);
            printf("| %.2g | %s | %ld |", (double)r->tunings[i].rates.temperature, rule_name(&r->tunings[i], j), r->tunings[i].rates.positions);
            for (k = 0; k < MEASURE_RANKS; k++) {
                printf(" %.3f |", p[k]);
                sum += p[k];
            }
            printf(" %.3f |\n", sum);
        }
}

static void print_md_candidate(const tuning *t, const candidate *c, const char *rule, const char *remark)
{
    printf("| %.2g | %s | %d | %d | %.2f | %.2f | ", (double)t->rates.temperature, rule, c->n, c->d, c->score, c->predicted);
    if (c->run.steps)
        printf("%.2f | %.1f | %.2f | %s |\n", tokens_a_step(&c->run), speed(&c->run), speedup(t, c), remark);
    else
        printf("| | | %s |\n", remark);
}

static void print_md(report *r)
{
    int i, j;

    printf("%s with %s: %d threads, %s; prompts: %s\n\n", base_name(r->o->config.target.path), base_name(r->o->config.draft.path),
           r->m.info.threads, r->m.info.isa, base_name(r->o->prompts));
    print_md_acceptance(r);
    printf("\n| width n | ms a step | t(n) |\n|---:|---:|---:|\n");
    for (i = 0; i < STEP_WIDTHS; i++)
        printf("| %d | %.2f | %.2f |\n", (int)step_widths[i], r->seconds[i] * 1e3, r->seconds[i] / r->seconds[0]);
    printf("\nA level of drafting: %.2f ms, c = %.3f.\n\n", r->draft * r->seconds[0] * 1e3, r->draft);
    printf("Trees: G tokens a step expected, speed-up predicted G/(t(n) + d c), and measured on %d prompts, %d tokens each.\n\n"
           "| temperature | rule | n | d | G | predicted | tokens a step | tokens/s | speed-up | |\n"
           "|---:|---|---:|---:|---:|---:|---:|---:|---:|---|\n", r->o->runs, r->o->n);
    for (i = 0; i < r->count; i++) {
        const tuning *t = &r->tunings[i];

        if (t->plain.steps)
            printf("| %.2g | plain | 1 | 1 | 1.00 | 1.00 | %.2f | %.1f | 1.00 | %s |\n", (double)t->rates.temperature, tokens_a_step(&t->plain),
                   speed(&t->plain), fastest(t) < 0 ? "fastest" : "");
        for (j = 0; j < t->count; j++)
            print_md_candidate(t, &t->candidates[j], rule_name(t, 0), j == fastest(t) ? "fastest" : t->candidates[j].family ? "header's" : "");
        if (t->rates.temperature > 0)
            print_md_candidate(t, &t->sequoia, "sequoia", "");
    }
}

static void print_json_candidate(json_writer *j, const char *name, const tuning *t, const candidate *c)
{
    json_object(j, name);
    json_integer(j, "n", c->n);
    json_integer(j, "d", c->d);
    json_truth(j, "header", c->family);
    json_number(j, "G", "%.4f", c->score);
    json_number(j, "predicted", "%.4f", c->predicted);
    if (c->run.steps) {
        json_number(j, "tokens_per_step", "%.4f", tokens_a_step(&c->run));
        json_number(j, "tok_s", "%.3f", speed(&c->run));
        json_number(j, "speedup", "%.4f", speedup(t, c));
    }
    json_integers(j, "parents", c->parents, c->n);
    json_integers(j, "ranks", c->ranks, c->n);
    json_close(j);
}

/* One temperature: acceptance by rule, and the trees. */
static void print_json_tuning(json_writer *j, const tuning *t)
{
    double p[MEASURE_RANKS];
    int i;

    json_gap(j, "\n  ");
    json_object(j, NULL);
    json_number(j, "temperature", "%g", (double)t->rates.temperature);
    json_integer(j, "positions", t->rates.positions);
    json_object(j, "acceptance");
    for (i = 0; i < rule_rows(t); i++) {
        measure_vector(&t->rates, (measure_rule)i, p);
        json_numbers(j, rule_name(t, i), "%.6g", p, MEASURE_RANKS);
    }
    json_close(j);
    json_number(j, "plain_tok_s", "%.3f", speed(&t->plain));
    json_integer(j, "fastest", fastest(t));
    json_gap(j, "\n   ");
    json_array(j, "trees");
    for (i = 0; i < t->count; i++) {
        json_gap(j, "\n    ");
        print_json_candidate(j, NULL, t, &t->candidates[i]);
    }
    json_close(j);
    json_gap(j, "\n   ");
    if (t->rates.temperature > 0)
        print_json_candidate(j, "sequoia", t, &t->sequoia);
    json_gap(j, "");
    json_close(j);
}

static void print_json(report *r)
{
    json_writer j;
    int i;

    json_begin(&j, stdout);
    json_object(&j, NULL);
    json_text(&j, "target", base_name(r->o->config.target.path));
    json_text(&j, "draft", base_name(r->o->config.draft.path));
    json_integer(&j, "threads", r->m.info.threads);
    json_text(&j, "isa", r->m.info.isa);
    json_gap(&j, "\n ");
    json_integers(&j, "widths", step_widths, STEP_WIDTHS);
    json_numbers(&j, "seconds", "%.6g", r->seconds, STEP_WIDTHS);
    json_number(&j, "c", "%.6g", r->draft);
    json_gap(&j, "\n ");
    json_array(&j, "temperatures");
    for (i = 0; i < r->count; i++)
        print_json_tuning(&j, &r->tunings[i]);
    json_gap(&j, "\n ");
    json_close(&j);
    json_close(&j);
}

/* A name for a C comment or for XML: only what is harmless there. */
static void print_harmless(const char *name)
{
    for (; *name; name++)
        putchar((unsigned char)*name < 32 || strchr("*/<>&\"\\\177", *name) ? '?' : *name);
}

static void print_integers(const int32_t *values, int count)
{
    int i;

    for (i = 0; i < count; i++)
        printf("%s%d", i ? "," : "", (int)values[i]);
}

/* A C table: acceptance, costs and the fastest tree of each temperature; a tree of one node is plain decoding. */
static void print_c(report *r)
{
    static const int32_t root = -1, first = 0;
    int i, k;

    printf("/* Made by specdec-tune: ");
    print_harmless(base_name(r->o->config.target.path));
    printf(" with ");
    print_harmless(base_name(r->o->config.draft.path));
    printf(". For #include behind specdec.h. */\n");
    printf("#define TUNED_TEMPERATURES %d\n#define TUNED_RANKS %d\n#define TUNED_NODES %d\n\n", r->count, MEASURE_RANKS, MEASURE_NODES);
    printf("/* t(n), the time of a step of n nodes, and that of a level of drafting, over the time of plain decoding's step */\n"
           "static const double tuned_step_times[TUNED_NODES + 1] = {");
    for (i = 0; i <= MEASURE_NODES; i++)
        printf("%s%.4g", i % 12 ? ", " : i ? ",\n    " : "\n    ", r->times[i]);
    printf("\n};\nstatic const double tuned_draft_time = %.4g;\n\n", r->draft);
    printf("static const struct tuned {\n    double temperature;\n    double acceptance[TUNED_RANKS]; /* of the coupled rule */\n"
           "    int n; /* nodes of the fastest tree; 1: plain decoding */\n    int32_t parents[TUNED_NODES], ranks[TUNED_NODES];\n"
           "} tuned[TUNED_TEMPERATURES] = {\n");
    for (i = 0; i < r->count; i++) {
        const tuning *t = &r->tunings[i];
        const candidate *c = fastest(t) < 0 ? NULL : &t->candidates[fastest(t)];
        double p[MEASURE_RANKS];

        measure_vector(&t->rates, MEASURE_COUPLED, p);
        printf("    {%g, {", (double)t->rates.temperature);
        for (k = 0; k < MEASURE_RANKS; k++)
            printf("%s%.4g", k ? ", " : "", p[k]);
        printf("}, %d,\n     {", c ? c->n : 1);
        print_integers(c ? c->parents : &root, c ? c->n : 1);
        printf("}, {");
        print_integers(c ? c->ranks : &first, c ? c->n : 1);
        printf("}},\n");
    }
    printf("};\n");
}

static const char *const colours[MEASURE_TEMPERATURES] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#e377c2", "#17becf"};

/* Acceptance by rank, on a logarithmic axis from 0.001 to 1; dashed: sequoia. */
static void print_svg_acceptance(const report *r)
{
    static const char *const labels[] = {"1", "0.1", "0.01", "0.001"};
    const double left = 60, top = 60, width = 340, height = 300;
    int i, j, k;

    printf("<text x=\"%.0f\" y=\"36\" font-size=\"15\">Acceptance by child rank (dashed: sequoia)</text>\n", left);
    for (k = 0; k <= 3; k++)
        printf("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#e5e5e5\"/><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", left,
               top + height * k / 3, left + width, top + height * k / 3, left - 8, top + height * k / 3 + 4, labels[k]);
    for (k = 1; k <= MEASURE_RANKS; k *= 2)
        printf("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%d</text>\n", left + width * (k - 1) / (MEASURE_RANKS - 1), top + height + 20, k);
    for (i = 0; i < r->count; i++)
        for (j = 0; j < rule_rows(&r->tunings[i]); j++) {
            double p[MEASURE_RANKS];

            measure_vector(&r->tunings[i].rates, (measure_rule)j, p);
            printf("<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s points=\"", colours[i], j ? " stroke-dasharray=\"5 4\"" : "");
            for (k = 0; k < MEASURE_RANKS; k++) {
                double down = p[k] > 0.001 ? -log(p[k]) / log(1000) : 1;

                printf("%.1f,%.1f ", left + width * k / (MEASURE_RANKS - 1), top + height * down);
            }
            printf("\"/>\n");
        }
    for (i = 0; i < r->count; i++)
        printf("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\" fill=\"%s\">temperature %.2g</text>\n", left + width, top + 14 + 18 * i, colours[i],
               (double)r->tunings[i].rates.temperature);
}

/* Speed-up: predicted to the right, measured upwards. */
static void print_svg_speed(const report *r)
{
    const double left = 500, top = 60, size = 300;
    double high = 1.2, tick;
    int i, j;

    for (i = 0; i < r->count; i++)
        for (j = 0; j < r->tunings[i].count; j++) {
            const candidate *c = &r->tunings[i].candidates[j];

            high = c->predicted * 1.1 > high ? c->predicted * 1.1 : high;
            high = speedup(&r->tunings[i], c) * 1.1 > high ? speedup(&r->tunings[i], c) * 1.1 : high;
        }
    printf("<text x=\"%.0f\" y=\"36\" font-size=\"14\">Speed-up measured (up) and predicted (nodes,levels)</text>\n"
           "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#aaa\" stroke-dasharray=\"4 4\"/>\n", left, left, top + size, left + size, top);
    for (tick = 0; tick <= high; tick += high > 4 ? 1 : 0.5)
        printf("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#e5e5e5\"/><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.1f</text>"
               "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%.1f</text>\n", left, top + size - size * tick / high, left + size,
               top + size - size * tick / high, left - 8, top + size - size * tick / high + 4, tick, left + size * tick / high, top + size + 20, tick);
    for (i = 0; i < r->count; i++)
        for (j = 0; j < r->tunings[i].count; j++) {
            const candidate *c = &r->tunings[i].candidates[j];
            double x = left + size * c->predicted / high, y = top + size - size * speedup(&r->tunings[i], c) / high;

            if (c->run.steps)
                printf("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"%s/><text x=\"%.1f\" y=\"%.1f\" font-size=\"11\" fill=\"%s\">%d,%d</text>\n", x, y,
                       c->family ? "none" : colours[i], c->family ? " stroke=\"black\"" : "", x + 6, y + 4 - 10 * c->family, colours[i], c->n, c->d);
        }
    printf("<text x=\"%.0f\" y=\"%.0f\" fill=\"#555\">ring: the header's tree</text>\n", left + 10, top + 14);
}

static void print_svg(report *r)
{
    printf("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 900 440\" font-family=\"sans-serif\" font-size=\"13\">\n"
           "<rect width=\"900\" height=\"440\" fill=\"white\"/>\n");
    print_svg_acceptance(r);
    print_svg_speed(r);
    printf("<text x=\"60\" y=\"424\" fill=\"#555\">");
    print_harmless(base_name(r->o->config.target.path));
    printf(" with ");
    print_harmless(base_name(r->o->config.draft.path));
    printf(", %d threads, c = %.3f</text>\n</svg>\n", r->m.info.threads, r->draft);
}

/* --- command line ------------------------------------------------------------------------------------------------- */

static int run_tuning(options *o)
{
    static void (*const print[])(report *) = {print_md, print_json, print_svg, print_c};
    static report r;
    static measure_rates rates[MEASURE_TEMPERATURES];
    float temperatures[MEASURE_TEMPERATURES];
    measure_prompts prompts;
    measure_plan plan_of = {NULL, 0, 0, 1, 0};
    int i;

    r.o = o;
    r.count = measure_read_temperatures(o->temperatures, temperatures);
    if (!r.count)
        return program_misused("--temp takes up to 8 temperatures with commas between, not ", o->temperatures);
    for (i = 0; i < r.count; i++)
        rates[i].temperature = temperatures[i];
    if (!measure_read_prompts(&prompts, o->prompts, o->limit) || !measure_open(&r.m, &o->config))
        return PROGRAM_FAILED;
    plan_of.prompts = &prompts;
    plan_of.tokens = o->n;
    r.m.chat = o->chat;
    if (!measure_acceptance(&r.m, rates, r.count, &plan_of) || !measure_costs(&r, &prompts))
        return PROGRAM_FAILED;
    o->runs = program_least(o->runs, prompts.count);
    for (i = 0; i < r.count; i++) {
        r.tunings[i].rates = rates[i];
        plan(&r, &r.tunings[i]);
    }
    if (!run_candidates(&r, &prompts))
        return PROGRAM_FAILED;
    print[o->format](&r);
    measure_close(&r.m);
    return program_finish(PROGRAM_OK);
}

int main(int argc, char **argv)
{
    static options o;
    static const program_flag flags[] = {
        {"-m", PROGRAM_TEXT, (void *)&o.config.target.path, "FILE", "the target model", 0, 0},
        {"-md", PROGRAM_TEXT, (void *)&o.config.draft.path, "FILE", "the draft model", 0, 0},
        {"--prompts", PROGRAM_TEXT, (void *)&o.prompts, "FILE", "JSON lines with \"turns\" or \"prompt\", or text with empty lines between", 0, 0},
        {"-n", PROGRAM_INTEGER, &o.n, "N", "tokens behind each prompt (64); with --tree: nodes", -1e9, 1e9},
        {"--limit", PROGRAM_INTEGER, &o.limit, "N", "prompts that are used (8)", 1, 100000},
        {"--runs", PROGRAM_INTEGER, &o.runs, "N", "prompts that trees are run on (3); 0: predictions only", 0, 100000},
        {"--temp", PROGRAM_TEXT, (void *)&o.temperatures, "LIST", "temperatures (0,0.6,1)", 0, 0},
        {"--chat", PROGRAM_SWITCH, &o.chat, NULL, "prompts are messages, in the model's chat format", 0, 0},
        {"--chat-format", PROGRAM_NAME, (void *)&o.config.chat_format, PROGRAM_CHAT_FORMATS, "how (as the model says)", 0, 0},
        {"-t", PROGRAM_INTEGER, &o.config.threads, "N", "threads (all processors, fewer for small models)", 1, SPECDEC_MAX_THREADS},
        {"-c", PROGRAM_INTEGER, &o.config.context, "N", "context in tokens (the model's, at most 4096)", 1, 1 << 24},
        {"-o", PROGRAM_CHOICE, &o.format, "md|json|svg|c", "what is written to standard output (md); c is for #include", 0, 0},
        {"--tree", PROGRAM_TEXT, (void *)&o.tree, "P1,P2,...", "only: the best tree of -n nodes and -d levels for this acceptance, as JSON", 0, 0},
        {"-d", PROGRAM_INTEGER, &o.d, "N", "levels for --tree, the root's included", -1e9, 1e9},
        {"--defaults", PROGRAM_SWITCH, &o.defaults, NULL, "only: the default trees", 0, 0},
        {"HEADER", PROGRAM_WORD, (void *)&o.header, NULL,
         "with --defaults: the file whose marks the trees go between; -: from standard input\n"
         "to standard output", 0, 0},
        {NULL, PROGRAM_SWITCH, NULL, NULL, NULL, 0, 0}};
    int status;

    o.n = 64;
    o.limit = 8;
    o.runs = 3;
    o.temperatures = "0,0.6,1";
    status = program_read(flags, argc, argv, "specdec-tune", "-m TARGET.gguf -md DRAFT.gguf --prompts FILE [options]",
                          "Measures which token tree pays for a pair of models on this machine.\n");
    if (status != PROGRAM_GO_ON)
        return status;
    if (o.header && !o.defaults)
        return program_misused("what is this for? ", o.header);
    if (o.defaults)
        return run_defaults(o.header);
    if (o.tree)
        return run_tree(o.tree, o.n, o.d);
    if (!o.config.target.path || !o.config.draft.path || !o.prompts)
        return program_misused("two models and prompts are needed: -m TARGET.gguf -md DRAFT.gguf --prompts FILE", "");
    if (o.n < 1 || o.n > 4096)
        return program_misused("-n takes 1 to 4096 tokens", "");
    return run_tuning(&o);
}
