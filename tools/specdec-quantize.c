/* specdec-quantize: rewrites a GGUF model in another number format.

   specdec-quantize IN.gguf OUT.gguf TYPE

   Reads any type that specdec.h reads, writes GGUF v3. Metadata pairs are copied byte for byte, except
   general.file_type (set) and general.quantization_version (added when absent). One-dimensional tensors and those whose
   name does not end in "weight" become F32; a tensor that has its type already is copied. The matrices follow
   llama.cpp's types of the same names, but for attn_qkv:
     Q4_0, Q4_1, Q5_0, Q5_1  that type, but the output matrix (or the embedding that serves as one) Q6_K
     Q4_K_M, Q5_K_M          Q4_K or Q5_K, but Q6_K for the output matrix, and for attn_v (or attn_qkv) and ffn_down in the
                             first and the last eighth of the layers and in every third layer between
   Tensors of integers are copied. --draft-vocab N writes a draft model with a short vocabulary: of the output matrix only
   the rows of the N tokens that occur most often in --counts, and a tensor d2t that names these tokens.

   Rows that are no multiple of 256 fall back from Q4_K to Q5_0 or Q4_1, from Q5_K to Q5_1, Q5_0 or Q4_1, whichever gives
   rows of the tensor back best, and from Q6_K to Q8_0; those that are no multiple of 32 to F16. The summary counts them.
   Memory: the mapped input, two rows of floats a thread and a few MB of output. */

#define _DEFAULT_SOURCE 1 /* POSIX, also under -std=c99 */
#include "specdec.h"
#include "program.h"
#include "gguf_writer.h"

#include <math.h>
#include <pthread.h>

enum { CHUNK_BYTES = 2 << 20, INTEGERS_32 = 26, INTEGERS_64 = 27 /* numbers of types */ };

/* For a loop that gcc does not vectorise at -O2. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#define VECTORISED __attribute__((optimize("tree-vectorize", "vect-cost-model=dynamic")))
#else
#define VECTORISED
#endif

typedef struct output_type {
    const char *name;
    const char *type, *output_type; /* of most matrices, of the output matrix */
    const char *embedding_type;     /* of the embedding, where it is not the output matrix, too */
    uint32_t file_type;             /* general.file_type */
    int is_mixed;                   /* some layers' attn_v and ffn_down are of output_type, too */
} output_type;

static const output_type output_types[] = {
    {"Q8_0", "Q8_0", "Q8_0", "Q8_0", 7, 0},     {"Q4_0", "Q4_0", "Q6_K", "Q4_0", 2, 0},
    {"Q4_1", "Q4_1", "Q6_K", "Q4_1", 3, 0},     {"Q5_0", "Q5_0", "Q6_K", "Q5_0", 8, 0},
    {"Q5_1", "Q5_1", "Q6_K", "Q5_1", 9, 0},     {"Q4_K_M", "Q4_K", "Q6_K", "Q4_K", 15, 1},
    {"Q5_K_M", "Q5_K", "Q6_K", "Q5_K", 17, 1},  {"MXFP4", "MXFP4", "Q8_0", "Q8_0", 38, 0},
    {"Q2_0", "Q2_0", "Q6_K", "Q4_K", 41, 0},    {"TQ2_0", "TQ2_0", "Q6_K", "Q4_K", 37, 0},
    {"TQ1_0", "TQ1_0", "Q6_K", "Q4_K", 36, 0},  {"Q1_0", "Q1_0", "Q6_K", "Q1_0", 40, 0},
    {"F16", "F16", "F16", "F16", 1, 0},         {"F32", "F32", "F32", "F32", 0, 0},
};
#define TYPE_NAMES "Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K_M, Q5_K_M, MXFP4, Q2_0, TQ2_0, TQ1_0, Q1_0, F16 or F32"

/* What a type falls back to when rows are no whole number of its blocks: the type that gives the tensor back best of those
   whose blocks fit. */
static const struct { const char *name, *instead[4]; } fallbacks[] = {
    {"Q4_K", {"Q5_0", "Q4_1", "F16", NULL}}, {"Q5_K", {"Q5_1", "Q5_0", "Q4_1", "F16"}}, {"Q6_K", {"Q8_0", "F16", NULL, NULL}},
    {"Q4_0", {"F16", NULL, NULL, NULL}},     {"Q4_1", {"F16", NULL, NULL, NULL}},       {"Q5_0", {"F16", NULL, NULL, NULL}},
    {"Q5_1", {"F16", NULL, NULL, NULL}},     {"Q8_0", {"F16", NULL, NULL, NULL}},       {"MXFP4", {"F16", NULL, NULL, NULL}},
    {"Q2_0", {"Q4_0", "F16", NULL, NULL}},   {"TQ2_0", {"Q2_0", "Q4_0", "F16", NULL}},  {"TQ1_0", {"Q2_0", "Q4_0", "F16", NULL}},
    {"Q1_0", {"Q4_0", "F16", NULL, NULL}}};

/* One tensor: where it comes from, what becomes of it. */
typedef struct job {
    specdec_gguf_tensor tensor;
    specdec_type from, to;
    specdec_type wanted; /* of which `to` takes the place when rows are no whole number of its blocks */
    uint64_t rows;
    const int32_t *kept;     /* (rows) which rows of the tensor these are; NULL: all */
    size_t from_row, to_row; /* bytes of a row */
    size_t size;             /* bytes of the result */
} job;

typedef struct options {
    const char *input, *output, *type_name;
    const output_type *type;
    const char *counts;
    int threads, draft_vocab;
} options;

typedef struct tool {
    options given;
    specdec_bytes file;
    specdec_gguf gguf;
    job *jobs;
    uint64_t job_count;
    int32_t *ids; /* (given.draft_vocab) of a short vocabulary, rising */
    int64_t layers;
    int has_output;    /* the model has an output matrix of its own */
    int embeds_output; /* the embedding serves as one, in what is written, too */
    gguf_writer out;
    float *floats;  /* (threads, 2, longest row) */
    size_t floats_a_thread;
    unsigned char *chunk; /* converted rows: (2, chunk_size), one chunk filled while the other one is written */
    size_t chunk_size;
    uint64_t bytes_done, bytes_all; /* for the progress bar */
} tool;


/* Says what went wrong. Returns 0, so that a check reads `return failed(...)`. */
static int failed(const char *what, specdec_bytes name, const char *why)
{
    fprintf(stderr, "specdec-quantize: %s%.*s%s\n", what, (int)name.size, (const char *)name.data, why);
    return 0;
}

static int failed_text(const char *what, const char *why)
{
    program_failed(what, why);
    return 0;
}

static int equal_ignoring_case(const char *a, const char *b)
{
    for (; *a && *b; a++, b++) {
        int x = *a >= 'a' && *a <= 'z' ? *a - 32 : *a, y = *b >= 'a' && *b <= 'z' ? *b - 32 : *b;
        if (x != y)
            return 0;
    }
    return *a == *b;
}

/* Reads the command line. Returns PROGRAM_GO_ON, or an exit status. */
static int read_options(options *o, int argc, char **argv)
{
    const program_flag flags[] = {
        {"IN.gguf", PROGRAM_WORD, (void *)&o->input, NULL, "the model", 0, 0},
        {"OUT.gguf", PROGRAM_WORD, (void *)&o->output, NULL,
         "the new one, which gets this name when it is complete; - is standard output", 0, 0},
        {"TYPE", PROGRAM_WORD, (void *)&o->type_name, NULL, TYPE_NAMES " (any case)", 0, 0},
        {"--draft-vocab", PROGRAM_INTEGER, &o->draft_vocab, "N",
         "write a draft model that proposes only the N most frequent tokens of\n"
         "--counts, so that a large vocabulary does not eat the gain", 1, 1 << 24},
        {"--counts", PROGRAM_TEXT, (void *)&o->counts, "FILE",
         "token ids of text like what will be written, as specdec-tokens gives\n"
         "them; - is standard input", 0, 0},
        {"-t", PROGRAM_INTEGER, &o->threads, "N", "threads; 0: all processors (0)", 0, SPECDEC_MAX_THREADS},
        {NULL, PROGRAM_SWITCH, NULL, NULL, NULL, 0, 0}};
    int status = program_read(flags, argc, argv, "specdec-quantize", "[flags] IN.gguf OUT.gguf TYPE",
                              "Vectors become F32. The output matrix of four and five bits is Q6_K; Q4_K_M and Q5_K_M keep attn_v and\n"
                              "ffn_down of some layers in Q6_K. Rows that are no multiple of 256 fall back from Q4_K to Q5_0 or Q4_1,\n"
                              "from Q5_K to Q5_1, from Q6_K to Q8_0, and if no multiple of 32 to F16; the summary says how many did.\n");
    size_t k;

    if (status != PROGRAM_GO_ON)
        return status;
    if (!o->type_name)
        return program_misused("three words are needed: IN.gguf OUT.gguf TYPE", "");
    for (k = 0; k < PROGRAM_COUNT(output_types); k++)
        if (equal_ignoring_case(o->type_name, output_types[k].name))
            o->type = &output_types[k];
    if (!o->draft_vocab != !o->counts)
        return program_misused("--draft-vocab and --counts belong together", "");
    if (!o->type)
        return program_misused("TYPE must be " TYPE_NAMES ", not ", o->type_name);
    if (!o->threads)
        o->threads = specdec_processors();
    return PROGRAM_GO_ON;
}

static int ends_with(specdec_bytes name, const char *end)
{
    size_t length = strlen(end);

    return name.size >= length && memcmp(name.data + name.size - length, end, length) == 0;
}

/* Layer number of a name like "blk.12.attn_v.weight", -1 when there is none. */
static int64_t layer_of(specdec_bytes name)
{
    int64_t layer = 0;
    size_t i;

    if (name.size < 5 || memcmp(name.data, "blk.", 4) != 0)
        return -1;
    for (i = 4; i < name.size && name.data[i] >= '0' && name.data[i] <= '9' && layer < 1000000; i++)
        layer = layer * 10 + (name.data[i] - '0');
    return i > 4 ? layer : -1;
}

/* Whether a mixed type spends more bits on attn_v, or attn_qkv, and ffn_down of layer i of n. */
static int wants_more_bits(int64_t i, int64_t n)
{
    return i >= 0 && (i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2);
}

/* The name of the type that a tensor should get, were its rows long enough. */
static const char *wanted_type(const tool *t, const specdec_gguf_tensor *tensor)
{
    const output_type *type = t->given.type;
    specdec_bytes name = tensor->name;

    if (tensor->dimensions < 2 || !ends_with(name, "weight"))
        return "F32";
    if (program_is(name, "output.weight") || (t->embeds_output && program_is(name, "token_embd.weight")))
        return type->output_type;
    if (program_is(name, "token_embd.weight"))
        return type->embedding_type;
    if (type->is_mixed && wants_more_bits(layer_of(name), t->layers) &&
        (ends_with(name, ".attn_v.weight") || ends_with(name, ".attn_qkv.weight") || ends_with(name, ".ffn_down.weight")))
        return type->output_type;
    return type->type;
}

/* The squared error of a tensor's rows once they were of a type, summed over at most 64 of them; the order of the sums,
   and with it the choice that hangs on them, is the same on every machine. -1 when there is no memory. */
static double squared_error(const job *j, const specdec_type *to)
{
    const size_t row = (size_t)j->tensor.shape[0];
    const uint64_t step = j->rows / 64 + 1;
    float *values = (float *)malloc(row * 2 * sizeof *values), *back = values + row;
    unsigned char *encoded = (unsigned char *)malloc(row * sizeof(float));
    double error = 0;
    uint64_t i;
    size_t k;

    for (i = 0; values && encoded && i < j->rows; i += step) {
        specdec_type_to_float(j->from.number, j->tensor.data + (size_t)i * j->from_row, row, values, NULL);
        specdec_type_from_float(to->number, values, row, encoded, NULL);
        specdec_type_to_float(to->number, encoded, row, back, NULL);
        for (k = 0; k < row; k++) {
            float difference = values[k] - back[k];
            error += (double)difference * (double)difference; /* exact, so that fused sums are no others */
        }
    }
    if (!values || !encoded)
        error = -1;
    free(values);
    free(encoded);
    return error;
}

/* The type that a tensor gets: the wanted one, or where rows are no whole number of its blocks, of the types that may
   take its place the one that loses least, of equals the smallest. F16 is for rows that no blocks fit. */
static int choose_type(job *j, const char *wanted)
{
    const uint64_t row = j->tensor.shape[0];
    double least = 0;
    size_t i, k;

    specdec_type_by_name(wanted, &j->wanted);
    j->to = j->wanted;
    for (i = 0; row % (uint64_t)j->wanted.block && i < PROGRAM_COUNT(fallbacks); i++)
        for (k = 0; k < 4 && fallbacks[i].instead[k] && strcmp(fallbacks[i].name, wanted) == 0; k++) {
            specdec_type type;
            double error;

            specdec_type_by_name(fallbacks[i].instead[k], &type);
            if (row % (uint64_t)type.block || (type.block == 1 && row % (uint64_t)j->to.block == 0))
                continue;
            error = type.number == j->from.number ? 0 : squared_error(j, &type);
            if (error < 0)
                return 0;
            if (row % (uint64_t)j->to.block || error < least || (error == least && type.bytes < j->to.bytes)) {
                j->to = type;
                least = error;
            }
        }
    return 1;
}

/* A tensor of integers is copied. */
static int plan_integers(const tool *t, job *j, uint64_t elements)
{
    const size_t width = j->tensor.type == INTEGERS_32 ? 4 : 8;

    memset(&j->to, 0, sizeof j->to);
    j->from.number = j->to.number = j->tensor.type;
    if (elements > (size_t)(t->file.data + t->file.size - j->tensor.data) / width)
        return failed("", j->tensor.name, " reaches beyond the end of the file");
    j->size = (size_t)elements * width;
    return 1;
}

/* Decides what becomes of one tensor. */
static int plan_tensor(tool *t, job *j)
{
    const specdec_gguf_tensor *tensor = &j->tensor;
    uint64_t row = tensor->shape[0], elements = row * tensor->shape[1] * tensor->shape[2] * tensor->shape[3];
    const char *wanted = wanted_type(t, tensor);

    if (tensor->type == INTEGERS_32 || tensor->type == INTEGERS_64)
        return plan_integers(t, j, elements);
    if (!specdec_type_by_number(tensor->type, &j->from)) {
        fprintf(stderr, "specdec-quantize: %.*s has type %u, which is not read\n", (int)tensor->name.size,
                (const char *)tensor->name.data, (unsigned)tensor->type);
        return 0;
    }
    j->rows = elements / row;
    if (specdec_type_bytes(j->from.number, row, &j->from_row, NULL) || row > SIZE_MAX / 16)
        return failed("", j->tensor.name, " would be too large");
    if (!choose_type(j, wanted))
        return failed_text("out of memory", "");
    if (specdec_type_bytes(j->to.number, row, &j->to_row, NULL) ||
        specdec_type_bytes(j->to.number, elements, &j->size, NULL))
        return failed("", tensor->name, " would be too large");
    return 1;
}

/* Room for rows of so many floats on every thread, and for two chunks. */
static int take_room(tool *t, uint64_t longest)
{
    if (longest > SIZE_MAX / 16 / (uint64_t)t->given.threads)
        return failed_text("out of memory", "");
    t->floats_a_thread = (size_t)longest;
    t->chunk_size = (size_t)CHUNK_BYTES > (size_t)longest * 4 ? (size_t)CHUNK_BYTES : (size_t)longest * 4;
    t->floats = (float *)malloc((size_t)t->given.threads * 8 * (size_t)longest);
    t->chunk = (unsigned char *)malloc(t->chunk_size * 2);
    return t->floats && t->chunk ? 1 : failed_text("out of memory", "");
}

/* Opens the input and finds how many layers the model has. */
static int open_input(tool *t)
{
    specdec_bytes architecture = {NULL, 0};
    specdec_gguf_tensor unused;
    specdec_error error;
    int64_t parts = 1;
    char key[96];

    error.text[0] = 0;
    if (program_map_file(&t->file, t->given.input))
        return 0;
    if (specdec_gguf_open(&t->gguf, t->file.data, t->file.size, &error) ||
        specdec_gguf_get_string(&t->gguf, "general.architecture", &architecture, &error))
        return program_refused(t->given.input, error.text), 0;
    snprintf(key, sizeof key, "%.*s.block_count", (int)(architecture.size < 64 ? architecture.size : 64),
             architecture.data ? (const char *)architecture.data : "");
    if (specdec_gguf_get_integer(&t->gguf, key, 0, 1000000, &t->layers, &error))
        return program_refused(t->given.input, error.text), 0;
    if (specdec_gguf_get_integer(&t->gguf, "split.count", 0, 65535, &parts, &error))
        return program_refused(t->given.input, error.text), 0;
    if (parts > 1)
        return program_refused(t->given.input, "one part of a model in several files: join them first (llama-gguf-split "
                                               "--merge)"), 0;
    t->has_output = specdec_gguf_find_tensor(&t->gguf, "output.weight", &unused) != 0;
    t->embeds_output = !t->has_output && !t->given.draft_vocab;
    return 1;
}

/* A token and how often it occurs. */
typedef struct tally {
    int32_t token, count;
} tally;

/* The most frequent first, of equals the lower id. */
static int compare_tallies(const void *a, const void *b)
{
    const tally *x = (const tally *)a, *y = (const tally *)b;

    return x->count != y->count ? (x->count < y->count) - (x->count > y->count) : x->token - y->token;
}

static int compare_ids(const void *a, const void *b) { return *(const int32_t *)a - *(const int32_t *)b; }

/* Counts the tokens of a list of ids; all are below vocab. */
static int count_tokens(const tool *t, tally *tallies, int32_t vocab, const char *list)
{
    const char *at = list + strspn(list, ", \t\r\n");
    char *end;
    long id;

    if (!*at)
        return failed_text("--counts holds no tokens: ", t->given.counts);
    for (; *at; at = end + strspn(end, ", \t\r\n")) {
        id = strtol(at, &end, 10);
        if (end == at || id < 0 || id >= vocab)
            return failed_text("--counts holds what is no token of the model: ", t->given.counts);
        tallies[id].count += tallies[id].count < INT32_MAX;
    }
    return 1;
}

/* Finds the ids of a short vocabulary: the most frequent tokens, and the one that ends texts. */
static int choose_ids(tool *t, int32_t vocab)
{
    int n = t->given.draft_vocab, i;
    int64_t end = -1;
    char *list = program_read_text(t->given.counts);
    tally *tallies = (tally *)calloc((size_t)vocab, sizeof *tallies);
    int good = list != NULL;

    t->ids = (int32_t *)malloc((size_t)n * sizeof *t->ids);
    if (!tallies || !t->ids)
        good = failed_text("out of memory", "");
    for (i = 0; good && i < vocab; i++)
        tallies[i].token = i;
    specdec_gguf_get_integer(&t->gguf, "tokenizer.ggml.eos_token_id", -1, vocab - 1, &end, NULL);
    if (good && (good = count_tokens(t, tallies, vocab, list)) != 0) {
        if (end >= 0)
            tallies[end].count = INT32_MAX;
        qsort(tallies, (size_t)vocab, sizeof *tallies, compare_tallies);
        for (i = 0; i < n; i++)
            t->ids[i] = tallies[i].token;
        qsort(t->ids, (size_t)n, sizeof *t->ids, compare_ids);
    }
    free(list);
    free(tallies);
    return good;
}

/* Replaces the output matrix by its rows for a short vocabulary, and adds the tensor that names their tokens. */
static int plan_short(tool *t, job *last)
{
    static const char output[] = "output.weight", names[] = "d2t";
    job *j, *from = NULL;

    for (j = t->jobs; j < last; j++) {
        if (program_is(j->tensor.name, names))
            return failed_text("the vocabulary is short already", "");
        if (program_is(j->tensor.name, t->has_output ? output : "token_embd.weight"))
            from = j;
    }
    if (!from || from->rows > 1 << 24 || (uint64_t)t->given.draft_vocab >= from->rows)
        return failed_text("--draft-vocab must be below the number of tokens", "");
    if (!choose_ids(t, (int32_t)from->rows))
        return 0;
    j = from;
    if (!t->has_output) {
        *last = *from;
        j = last++;
        j->tensor.name.data = (const unsigned char *)output;
        j->tensor.name.size = sizeof output - 1;
        if (!plan_tensor(t, j))
            return 0;
    }
    t->bytes_all -= t->has_output ? j->size : 0;
    j->rows = j->tensor.shape[1] = (uint64_t)t->given.draft_vocab;
    j->kept = t->ids;
    j->size = (size_t)j->rows * j->to_row;
    t->bytes_all += j->size + 4 * (uint64_t)j->rows;
    memset(last, 0, sizeof *last);
    last->tensor.name.data = (const unsigned char *)names;
    last->tensor.name.size = sizeof names - 1;
    last->tensor.type = last->from.number = last->to.number = INTEGERS_32;
    last->tensor.dimensions = 1;
    last->tensor.shape[0] = j->rows;
    last->size = 4 * (size_t)j->rows;
    t->job_count = (uint64_t)(last + 1 - t->jobs);
    return 1;
}

/* Opens the input and plans every tensor. */
static int plan(tool *t)
{
    uint64_t longest = 1;
    size_t place = 0;
    job *j;

    if (!open_input(t))
        return 0;
    t->jobs = (job *)calloc((size_t)t->gguf.tensor_count + 3, sizeof(job));
    if (!t->jobs)
        return failed_text("out of memory", "");
    for (j = t->jobs; specdec_gguf_next_tensor(&t->gguf, &place, &j->tensor); j++) {
        if (!plan_tensor(t, j))
            return 0;
        longest = j->tensor.shape[0] > longest ? j->tensor.shape[0] : longest;
        t->bytes_all += j->size;
    }
    t->job_count = t->gguf.tensor_count;
    return take_room(t, longest) && (!t->given.draft_vocab || plan_short(t, j));
}

/* Copies the pairs but general.file_type, or with count_only counts them. */
static uint64_t copy_pairs(tool *t, int count_only)
{
    specdec_gguf_pair pair;
    uint64_t count = 0;
    size_t place = 0;

    while (specdec_gguf_next_pair(&t->gguf, &place, &pair)) {
        if (program_is(pair.key, "general.file_type"))
            continue;
        count++;
        if (!count_only)
            gguf_put(&t->out, pair.record.data, pair.record.size);
    }
    return count;
}

/* Everything before the tensor data. */
static void write_head(tool *t)
{
    specdec_gguf_value unused;
    int add_version = !specdec_gguf_find(&t->gguf, "general.quantization_version", &unused);
    const uint64_t alignment = t->out.alignment = t->gguf.alignment;
    uint64_t i, offset = 0;
    int k;

    gguf_put(&t->out, "GGUF", 4);
    gguf_put_u32(&t->out, 3);
    gguf_put_u64(&t->out, t->job_count);
    gguf_put_u64(&t->out, copy_pairs(t, 1) + 1 + (uint64_t)add_version);
    copy_pairs(t, 0);
    gguf_put_pair(&t->out, "general.file_type", SPECDEC_GGUF_U32, t->given.type->file_type);
    if (add_version)
        gguf_put_pair(&t->out, "general.quantization_version", SPECDEC_GGUF_U32, 2);
    for (i = 0; i < t->job_count; i++) {
        const job *j = &t->jobs[i];

        gguf_put_text(&t->out, j->tensor.name.data, j->tensor.name.size);
        gguf_put_u32(&t->out, (uint32_t)j->tensor.dimensions);
        for (k = 0; k < j->tensor.dimensions; k++)
            gguf_put_u64(&t->out, j->tensor.shape[k]);
        gguf_put_u32(&t->out, j->to.number);
        gguf_put_u64(&t->out, offset);
        offset += (j->size + alignment - 1) / alignment * alignment;
    }
    gguf_put_padding(&t->out);
}

static void show_progress(const tool *t)
{
    program_progress(NULL, "writing the model", t->bytes_all ? (int)(t->bytes_done * 1000 / t->bytes_all) : 1000, 1000);
}

/* Rows [first, end) of a tensor, which threads take one by one. */
typedef struct row_range {
    const job *of;
    uint64_t first, end, next;
    unsigned char *out; /* of row first */
    int bad;            /* a value that the type cannot hold */
} row_range;

/* One thread and its room for two rows. */
typedef struct worker {
    row_range *all;
    float *floats;
} worker;

/* The bits of the largest magnitude of so many floats: those of an infinity, or more, if one of them is not finite. */
VECTORISED static int32_t largest_bits(const float *values, size_t count)
{
    int32_t largest = 0;
    size_t i;

    for (i = 0; i < count; i++) { /* the bits of magnitudes are ordered as these are */
        int32_t bits = (int32_t)(program_float_bits(values[i]) & 0x7FFFFFFFu);
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

/* Whether a type could hold a row (count): nothing of it was, or became, infinite or no number. Half floats, of which
   scales are, hold what is below 32768 in any case; what is beyond is read back. room: count floats. */
static int holds(const specdec_type *type, const float *values, size_t count, const unsigned char *encoded, float *room)
{
    const int32_t largest = largest_bits(values, count);

    if (largest < (int32_t)program_float_bits(32768.0f))
        return 1;
    if (largest >= (int32_t)program_float_bits(INFINITY))
        return 0;
    specdec_type_to_float(type->number, encoded, count, room, NULL);
    return largest_bits(room, count) < (int32_t)program_float_bits(INFINITY);
}

/* Converts rows until none is left. */
static void *convert_rows(void *user)
{
    worker *w = (worker *)user;
    row_range *all = w->all;
    const job *j = all->of;
    size_t row = (size_t)j->tensor.shape[0];
    uint64_t i;

    while ((i = __atomic_fetch_add(&all->next, 1, __ATOMIC_RELAXED)) < all->end) {
        unsigned char *out = all->out + (size_t)(i - all->first) * j->to_row;

        specdec_type_to_float(j->from.number, j->tensor.data + (size_t)(j->kept ? (uint64_t)j->kept[i] : i) * j->from_row, row, w->floats, NULL);
        specdec_type_from_float(j->to.number, w->floats, row, out, NULL);
        if (j->to.bytes != 4 * j->to.block && !holds(&j->to, w->floats, row, out, w->floats + row)) /* F32 holds all */
            __atomic_store_n(&all->bad, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

/* Converts rows [first, first + count) into the chunk at out, on all threads, while this one first writes the chunk
   before it (bytes of the other one). A thread that cannot be had is done without. */
static int convert_chunk(tool *t, const job *j, uint64_t first, uint64_t count, unsigned char *out, size_t bytes)
{
    worker workers[SPECDEC_MAX_THREADS];
    pthread_t threads[SPECDEC_MAX_THREADS];
    row_range all;
    int i, n = t->given.threads, started[SPECDEC_MAX_THREADS];

    all.of = j;
    all.first = all.next = first;
    all.end = first + count;
    all.out = out;
    all.bad = 0;
    for (i = 0; i < n; i++) {
        workers[i].all = &all;
        workers[i].floats = t->floats + (size_t)i * 2 * t->floats_a_thread;
        started[i] = i > 0 && (uint64_t)i < count && !pthread_create(&threads[i], NULL, convert_rows, &workers[i]);
    }
    gguf_put(&t->out, out == t->chunk ? t->chunk + t->chunk_size : t->chunk, bytes);
    convert_rows(&workers[0]);
    for (i = 0; i < n; i++)
        if (started[i])
            pthread_join(threads[i], NULL);
    return !all.bad;
}

/* Writes bytes of the input by way of our own memory: there, a file that has become shorter is told as such. */
static void put_mapped(tool *t, const unsigned char *bytes, size_t count)
{
    while (count && !ferror(t->out.output.file)) {
        size_t part = count < t->chunk_size ? count : t->chunk_size;

        memcpy(t->chunk, bytes, part);
        gguf_put(&t->out, t->chunk, part);
        bytes += part;
        count -= part;
    }
}

/* Writes the data of one tensor. */
static int write_tensor(tool *t, const job *j)
{
    uint64_t first;
    unsigned char *out = t->chunk;
    size_t bytes = 0; /* in the other chunk, not yet written */

    if (!j->tensor.data) {
        for (first = 0; first < j->tensor.shape[0]; first++)
            gguf_put_u32(&t->out, (uint32_t)t->ids[first]);
        t->bytes_done += j->size;
    } else if (j->from.number == j->to.number) {
        for (first = 0; j->kept && first < j->rows; first++)
            put_mapped(t, j->tensor.data + (size_t)j->kept[first] * j->from_row, j->from_row);
        if (!j->kept)
            put_mapped(t, j->tensor.data, j->size);
        t->bytes_done += j->size;
    } else {
        const uint64_t step = t->chunk_size / j->to_row;

        for (first = 0; first < j->rows && !ferror(t->out.output.file); first += step) {
            uint64_t count = j->rows - first < step ? j->rows - first : step;
            show_progress(t);
            if (!convert_chunk(t, j, first, count, out, bytes)) {
                char why[96];

                snprintf(why, sizeof why, " holds values that are infinite, no numbers or too large for %s", j->to.name);
                return failed("", j->tensor.name, why);
            }
            bytes = (size_t)count * j->to_row;
            out = out == t->chunk ? t->chunk + t->chunk_size : t->chunk;
            t->bytes_done += bytes;
        }
        gguf_put(&t->out, out == t->chunk ? t->chunk + t->chunk_size : t->chunk, bytes);
    }
    gguf_put_padding(&t->out);
    show_progress(t);
    return 1;
}

/* Writes the whole output file. Returns 1 when it is complete. */
static int write_all(tool *t)
{
    const char *inputs[] = {NULL, NULL, NULL};
    uint64_t i;

    inputs[0] = t->given.input;
    inputs[1] = t->given.counts;
    if (program_output_open(&t->out.output, t->given.output, inputs))
        return 0;
    write_head(t);
    for (i = 0; i < t->job_count && !ferror(t->out.output.file); i++)
        if (!write_tensor(t, &t->jobs[i]))
            return 0;
    return !program_output_end(&t->out.output);
}

/* Says, for every type that tensors fell back from and to, how many did and how many bytes more that took. */
static void report_fallbacks(const tool *t, FILE *to)
{
    size_t i, k;
    uint64_t n;

    for (i = 0; i < PROGRAM_COUNT(fallbacks); i++)
        for (k = 0; k < 4 && fallbacks[i].instead[k]; k++) {
            uint64_t count = 0;
            double more = 0;
            int block = 0;

            for (n = 0; n < t->job_count; n++) {
                const job *j = &t->jobs[n];

                if (!j->wanted.name || strcmp(j->wanted.name, fallbacks[i].name) != 0 ||
                    strcmp(j->to.name, fallbacks[i].instead[k]) != 0)
                    continue;
                block = j->wanted.block;
                count++;
                more += (double)j->size - (double)(j->rows * j->tensor.shape[0]) / block * j->wanted.bytes;
            }
            if (count)
                fprintf(to, "%s instead of %s: %llu tensor%s whose rows are no multiple of %d, %.1f MB more\n",
                        fallbacks[i].instead[k], fallbacks[i].name, (unsigned long long)count, count > 1 ? "s" : "", block,
                        more / 1e6);
        }
}

/* The whole job after the options. Returns 1 when the output is complete. What is said goes to standard error when
   the model goes to standard output. */
static int run(tool *t)
{
    FILE *to;
    double start = program_seconds();

    if (!plan(t) || !write_all(t))
        return 0;
    to = t->out.output.standard ? stderr : stdout;
    fprintf(to, "%s: %s, %llu tensors, %.1f MB of weights, %.1f s\n",
            t->given.output, t->given.type->name, (unsigned long long)t->job_count, (double)t->bytes_all / 1e6,
            program_seconds() - start);
    report_fallbacks(t, to);
    return 1;
}

int main(int argc, char **argv)
{
    static tool t;
    int status = read_options(&t.given, argc, argv);

    if (status != PROGRAM_GO_ON)
        return status;
    status = program_finish(run(&t) ? PROGRAM_OK : PROGRAM_FAILED);
    free(t.jobs);
    free(t.ids);
    free(t.floats);
    free(t.chunk);
    return status;
}
