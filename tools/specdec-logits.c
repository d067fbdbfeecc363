/* specdec-logits - logits of given tokens, row by row, in steps of exactly as many tokens as asked for. */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "program.h"

enum { MAX_WIDTH = 512, DISTRACTIONS = 2 };

typedef struct options {
    const char *model, *tokens, *tokens_file, *kv, *isa, *output;
    int width, threads, tree, in_place;
} options;

typedef struct tool {
    specdec__kernels kernels;
    specdec__pool pool;
    specdec__model model;
    specdec__context context;
    int32_t *tokens;
    int count, kv;
    int32_t *batch_tokens, *batch_parents;
    specdec__view **views;
    int *path;          /* (width) node of every token of a step */
    unsigned char *row; /* one row as it is written */
    int cancel;         /* never set */
} tool;

/* Ids separated by commas or white space. Returns a status. */
static int read_tokens(tool *t, const char *list)
{
    const char *at = list + strspn(list, ", \t\r\n");
    char *end, what[64];
    long id;

    t->tokens = (int32_t *)malloc((strlen(list) / 2 + 1) * sizeof *t->tokens);
    if (!t->tokens)
        return program_failed("out of memory", "");
    for (; *at; at = end + strspn(end, ", \t\r\n")) {
        id = strtol(at, &end, 10);
        if (end == at || (*end && !strchr(", \t\r\n", *end)) || id < 0 || id > INT32_MAX) {
            snprintf(what, sizeof what, "%.*s", 40, at);
            return program_misused("not a list of token ids from here on: ", what);
        }
        t->tokens[t->count++] = (int32_t)id;
    }
    return t->count ? PROGRAM_OK : program_misused("no token ids", "");
}

/* Everything that lives in the block: counts its bytes while the arena has no memory. */
static specdec_result lay_out(tool *t, const options *o, specdec__arena *arena, specdec_error *error)
{
    const int nodes = o->width * (o->tree ? 1 + DISTRACTIONS : 1);
    int threads = o->threads ? o->threads : specdec__os_processors();
    specdec_hooks hooks = {NULL, program_progress, NULL};
    specdec_source source = {NULL, NULL, 0, o->model, 0};
    specdec_result r;

    if ((r = specdec__pool_init(&t->pool, threads, &t->cancel, arena, error)) != SPECDEC_OK ||
        (r = specdec__model_init(&t->model, &source, 0, arena, error)) != SPECDEC_OK)
        return r;
    specdec__context_init(&t->context, &t->model, &t->kernels, &t->pool, threads, t->kv, t->count + nodes, nodes, nodes, arena);
    t->batch_tokens = SPECDEC__TAKE(arena, int32_t, nodes);
    t->batch_parents = SPECDEC__TAKE(arena, int32_t, nodes);
    t->views = SPECDEC__TAKE(arena, specdec__view *, nodes);
    t->path = SPECDEC__TAKE(arena, int, o->width);
    t->row = SPECDEC__TAKE(arena, unsigned char, 4 * (size_t)t->model.vocab_size);
    return o->in_place ? SPECDEC_OK : specdec__model_repack(&t->model, arena, &t->pool, &hooks, error);
}

/* Adds a node to the step and returns its number. */
static int add_node(tool *t, specdec__batch *batch, int32_t token, int parent)
{
    t->batch_tokens[batch->n] = token;
    t->batch_parents[batch->n] = parent;
    t->views[batch->n] = &t->context.view;
    return batch->n++;
}

/* The step that holds tokens [from, from + count) as a chain; as a tree, every one of them has an elder sibling and a nephew
   that say something else. */
static void build_step(tool *t, specdec__batch *batch, int from, int count, int tree)
{
    const int vocab = t->model.vocab_size;
    int i, parent = -1;

    batch->n = batch->done = 0;
    batch->tokens = t->batch_tokens;
    batch->parents = t->batch_parents;
    batch->views = t->views;
    batch->wanted = NULL;
    for (i = 0; i < count; i++) {
        int32_t token = t->tokens[from + i];

        if (tree)
            add_node(t, batch, (token + 7) % vocab, add_node(t, batch, (token + 1) % vocab, parent));
        t->path[i] = parent = add_node(t, batch, token, parent);
    }
}

static void write_row(tool *t, const float *logits, program_output *out)
{
    int i;

    for (i = 0; i < t->model.vocab_size; i++)
        specdec__store_u32(t->row + 4 * (size_t)i, specdec__bits_from_float(logits[i]));
    program_output_write(out, t->row, 4 * (size_t)t->model.vocab_size);
}

static int write_rows(tool *t, const options *o, program_output *out, specdec_error *error)
{
    specdec_result result;
    specdec__batch batch;
    int from, count, i;

    for (from = 0; from < t->count && !ferror(out->file); from += count) {
        count = specdec__min_int(o->width, t->count - from);
        build_step(t, &batch, from, count, o->tree);
        result = specdec__forward(&t->context, &batch, error);
        if (result)
            return program_failed("", error->text);
        for (i = 0; i < count; i++)
            write_row(t, t->context.logits + (size_t)t->path[i] * (size_t)t->model.vocab_size, out);
        specdec__view_commit(&t->context.view, &t->context.kv, t->path, count);
        program_progress(NULL, "logits", from + count, t->count);
    }
    return PROGRAM_OK;
}

static int run(tool *t, const options *o, program_output *out)
{
    specdec__arena arena = {NULL, 0, 0};
    specdec_error error;
    void *memory;
    int status;

    if (specdec__kernels_init(&t->kernels, o->isa, &error) || lay_out(t, o, &arena, &error))
        return program_failed("", error.text);
    if (arena.used == SIZE_MAX)
        return program_failed("that needs more than all memory", "");
    specdec__model_deinit(&t->model);
    memory = program_memory(arena.used);
    if (!memory)
        return PROGRAM_FAILED;
    arena.base = (unsigned char *)memory;
    arena.size = arena.used;
    arena.used = 0;
    if (lay_out(t, o, &arena, &error))
        return program_failed("", error.text);
    status = write_rows(t, o, out, &error);
    specdec__pool_deinit(&t->pool);
    specdec__model_deinit(&t->model);
    return status;
}

static int read_options(options *o, int argc, char **argv)
{
    const program_flag flags[] = {
        {"-m", PROGRAM_TEXT, &o->model, "FILE", "the model: a GGUF file", 0, 0},
        {"--tokens", PROGRAM_TEXT, &o->tokens, "ID,ID,...", "token ids; no others are put before them", 0, 0},
        {"--tokens-file", PROGRAM_TEXT, &o->tokens_file, "FILE", "token ids, separated by white space or commas; - is standard input", 0, 0},
        {"-w", PROGRAM_INTEGER, &o->width, "WIDTH", "tokens a step (64); the last step may be shorter", 1, MAX_WIDTH},
        {"-t", PROGRAM_INTEGER, &o->threads, "N", "threads; 0: all processors (0)", 0, SPECDEC_MAX_THREADS},
        {"--isa", PROGRAM_TEXT, &o->isa, "NAME", "instruction set, see specdec-info (the best)", 0, 0},
        {"--kv", PROGRAM_TEXT, &o->kv, "f16|f32|q8_0", "how keys and values are kept (f16)", 0, 0},
        {"--tree", PROGRAM_SWITCH, &o->tree, NULL, "every step is a tree in which each token has an elder sibling and a\nnephew that say something else; the rows stay the same", 0, 0},
        {"--in-place", PROGRAM_SWITCH, &o->in_place, NULL, "weights stay in the file", 0, 0},
        {"-o", PROGRAM_TEXT, &o->output, "OUT.f32", "where the rows go; - is standard output", 0, 0},
        {NULL, PROGRAM_SWITCH, NULL, NULL, NULL, 0, 0}};
    int status;

    memset(o, 0, sizeof *o);
    o->width = 64;
    status = program_read(flags, argc, argv, "specdec-logits", "-m MODEL.gguf (--tokens ID,ID,... | --tokens-file FILE) -o OUT.f32 [flags]",
                          "One row of logits for every token: raw little-endian float32, as many as the vocabulary has tokens.\n"
                          "The bytes are the same for every -w, -t, --isa and --tree.\n");
    if (status != PROGRAM_GO_ON)
        return status;
    if (!o->model)
        return program_misused("-m is missing: which model?", "");
    if (!o->output)
        return program_misused("-o is missing: where do the rows go?", "");
    if (!o->tokens == !o->tokens_file)
        return program_misused("one of --tokens and --tokens-file is needed", "");
    return PROGRAM_GO_ON;
}

int main(int argc, char **argv)
{
    static tool t;
    program_output out = PROGRAM_NO_OUTPUT;
    const char *inputs[] = {NULL, NULL, NULL};
    size_t length;
    options o;
    int status = read_options(&o, argc, argv);

    if (status != PROGRAM_GO_ON)
        return status;
    t.kv = specdec__kv_find_type(o.kv ? o.kv : "f16");
    if (t.kv < 0)
        return program_misused("--kv takes f16, f32 or q8_0, not ", o.kv);
    if (o.tokens_file) {
        o.tokens = program_read_file(o.tokens_file, &length);
        if (!o.tokens)
            return PROGRAM_FAILED;
    }
    status = read_tokens(&t, o.tokens);
    inputs[0] = o.model;
    inputs[1] = o.tokens_file;
    if (status || program_output_open(&out, o.output, inputs))
        return status ? status : PROGRAM_FAILED;
    status = run(&t, &o, &out);
    if (status)
        program_output_drop(&out);
    return status ? status : program_output_close(&out);
}
