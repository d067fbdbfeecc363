/* specdec-logits - logits or states of given tokens, row by row, in steps of exactly as many tokens as asked for. */
#define _DEFAULT_SOURCE 1 /* POSIX, also under -std=c99 */
#include "specdec.h"
#include "program.h"

enum { MAX_WIDTH = 512, DISTRACTIONS = 2, MAX_LAYERS = 16 };
enum { MAX_TREE = MAX_WIDTH / (1 + DISTRACTIONS) }; /* tokens of a step that is a tree */

typedef struct options {
    const char *model, *tokens, *tokens_file, *kv, *isa, *output;
    const char *state_layers;
    int width, threads, tree, in_place, state, lines;
} options;

typedef struct tool {
    specdec *engine;
    int vocab;
    int layers[MAX_LAYERS], layer_count; /* whose states are asked for; none: logits */
    int row_values;                      /* floats of a row */
    int32_t *tokens;
    char *begins;                        /* (count): whether a text begins here */
    int count, longest;                  /* tokens, and those of the longest text */
    int32_t nodes[MAX_WIDTH], parents[MAX_WIDTH]; /* of a step that is a tree */
    int path[MAX_WIDTH], node_count;              /* the node of every token of it */
    float *rows;        /* of a step */
    unsigned char *row; /* one as it is written */
} tool;

/* Ids separated by commas or white space; with lines, every line is a text of its own. Returns a status. */
static int read_tokens(tool *t, const char *list, int lines)
{
    const char *at = list + strspn(list, ", \t\r\n");
    char *end, what[64];
    int begins = 1, length = 0;
    long id;

    t->tokens = (int32_t *)malloc((strlen(list) / 2 + 1) * sizeof *t->tokens);
    t->begins = (char *)malloc(strlen(list) / 2 + 1);
    if (!t->tokens || !t->begins)
        return program_failed("out of memory", "");
    for (; *at; at = end + strspn(end, ", \t\r\n")) {
        id = strtol(at, &end, 10);
        if (end == at || (*end && !strchr(", \t\r\n", *end)) || id < 0 || id > INT32_MAX) {
            snprintf(what, sizeof what, "%.*s", 40, at);
            return program_misused("not a list of token ids from here on: ", what);
        }
        t->tokens[t->count] = (int32_t)id;
        t->begins[t->count++] = (char)begins;
        length = begins ? 1 : length + 1;
        t->longest = t->longest < length ? length : t->longest;
        begins = lines && memchr(end, '\n', strspn(end, ", \t\r\n")) != NULL;
    }
    return t->count ? PROGRAM_OK : program_misused("no token ids", "");
}

/* Which states are asked for. Returns a status. */
static int read_layers(tool *t, const options *o)
{
    const char *at = o->state_layers;
    char *end;
    long layer;

    if (o->state)
        t->layers[t->layer_count++] = SPECDEC_STATE_FINAL;
    for (; at; at = *end ? end + 1 : NULL) {
        layer = strtol(at, &end, 10);
        if (end == at || (*end && *end != ',') || layer < 0 || layer > 1 << 20 || t->layer_count == MAX_LAYERS)
            return program_misused("--state-layers takes up to 15 numbers of layers, 0,1,..., not ", o->state_layers);
        t->layers[t->layer_count++] = (int)layer;
    }
    return PROGRAM_OK;
}

/* Makes the engine, whose steps have so many nodes, and room for their rows. Returns a status. */
static int open_engine(tool *t, const options *o, int nodes)
{
    specdec_config config;
    specdec_info info;
    specdec_error error;
    size_t bytes, row;
    void *memory;

    memset(&config, 0, sizeof config);
    config.target.path = o->model;
    config.context = t->longest + nodes;
    config.batch = nodes;
    config.threads = o->threads ? o->threads : specdec_processors();
    config.kv = o->kv;
    config.isa = o->isa;
    config.weights_in_place = o->in_place;
    config.drafting = SPECDEC_DRAFT_OFF;
    config.hooks.progress = program_progress;
    if (specdec_memory_needed(&config, &bytes, &error))
        return program_failed("", error.text);
    memory = program_memory(bytes, "");
    if (!memory)
        return PROGRAM_FAILED;
    if (specdec_init(&t->engine, &config, memory, bytes, &error))
        return program_failed("", error.text);
    specdec_get_info(t->engine, &info);
    t->vocab = info.vocabulary;
    t->row_values = t->layer_count ? t->layer_count * info.embedding : t->vocab;
    row = 4 * (size_t)t->row_values;
    t->row = (unsigned char *)malloc(row);
    t->rows = (float *)malloc(((size_t)nodes + 1) * row);
    return t->row && t->rows ? PROGRAM_OK : program_failed("out of memory", "");
}

/* Adds a node to the step and returns its number. */
static int add_node(tool *t, int32_t token, int parent)
{
    t->nodes[t->node_count] = token;
    t->parents[t->node_count] = parent;
    return t->node_count++;
}

/* The step that holds tokens [from, from + count) of a text: every one of them has an elder sibling and a nephew that
   say something else. */
static void build_tree(tool *t, int from, int count)
{
    int i, parent = -1;

    t->node_count = 0;
    for (i = 0; i < count; i++) {
        int32_t token = t->tokens[from + i], elder = (int32_t)(((int64_t)token + 1) % t->vocab);

        add_node(t, (int32_t)(((int64_t)token + 7) % t->vocab), add_node(t, elder, parent));
        t->path[i] = parent = add_node(t, token, parent);
    }
}

static void write_row(tool *t, const float *values, program_output *out)
{
    int i;

    for (i = 0; i < t->row_values; i++)
        program_put_u32(t->row + 4 * (size_t)i, program_float_bits(values[i]));
    program_output_write(out, t->row, 4 * (size_t)t->row_values);
}

/* Computes the rows of a step that is a tree, and goes on in the text. The row of token i is that of node path[i]. */
static specdec_result step_tree(tool *t, int from, int count)
{
    specdec_result result;

    build_tree(t, from, count);
    result = specdec_logits(t->engine, t->nodes, t->parents, t->node_count, t->rows);
    return result ? result : specdec_prompt_tokens(t->engine, t->tokens + from, count);
}

/* How many of the tokens from `from` on are of one text, at most width. */
static int text_part(const tool *t, int from, int width)
{
    int count = 1;

    while (count < width && from + count < t->count && !t->begins[from + count])
        count++;
    return count;
}

/* The same for a step that is a run of tokens; their rows may be states. */
static specdec_result step_run(tool *t, int from, int count)
{
    return t->layer_count ? specdec_prompt_states(t->engine, t->tokens + from, count, t->layers, t->layer_count, t->rows)
                          : specdec_prompt_logits(t->engine, t->tokens + from, count, t->rows);
}

static int write_rows(tool *t, int width, int tree, program_output *out)
{
    int from, count, i;

    for (from = 0; from < t->count && !ferror(out->file); from += count) {
        count = text_part(t, from, width);
        if (t->begins[from] && from)
            specdec_rewind(t->engine, 0);
        if (tree ? step_tree(t, from, count) : step_run(t, from, count))
            return program_failed("", specdec_error_text(t->engine));
        for (i = 0; i < count; i++)
            write_row(t, t->rows + (size_t)(tree ? 1 + t->path[i] : i) * (size_t)t->row_values, out);
        program_progress(NULL, t->layer_count ? "states" : "logits", from + count, t->count);
    }
    return PROGRAM_OK;
}

static int run(tool *t, const options *o, program_output *out)
{
    int width = o->tree ? program_least(o->width, MAX_TREE) : o->width;
    int status = open_engine(t, o, o->tree ? width * (1 + DISTRACTIONS) : width);

    if (status == PROGRAM_OK)
        status = write_rows(t, width, o->tree, out);
    specdec_deinit(t->engine);
    free(t->rows);
    free(t->row);
    return status;
}

static int read_options(options *o, int argc, char **argv)
{
    const program_flag flags[] = {
        {"-m", PROGRAM_TEXT, &o->model, "FILE", "the model: a GGUF file", 0, 0},
        {"--tokens", PROGRAM_TEXT, &o->tokens, "ID,ID,...", "token ids; no others are put before them", 0, 0},
        {"--tokens-file", PROGRAM_TEXT, &o->tokens_file, "FILE", "token ids, separated by white space or commas; - is standard input", 0, 0},
        {"--lines", PROGRAM_SWITCH, &o->lines, NULL, "every line of the file is a text of its own", 0, 0},
        {"-w", PROGRAM_INTEGER, &o->width, "WIDTH", "tokens a step (64); the last step may be shorter", 1, MAX_WIDTH},
        {"-t", PROGRAM_INTEGER, &o->threads, "N", "threads; 0: all processors, fewer for small models (0)", 0, SPECDEC_MAX_THREADS},
        {"--isa", PROGRAM_ISA, &o->isa, "NAME", "instruction set, see specdec-info (the best)", 0, 0},
        {"--kv", PROGRAM_NAME, &o->kv, "f16|f32|q8_0", "how keys and values are kept (f16)", 0, 0},
        {"--tree", PROGRAM_SWITCH, &o->tree, NULL,
         "every step is a tree in which each token (of at most 170) has an elder\n"
         "sibling and a nephew that say something else; the rows stay the same", 0, 0},
        {"--state", PROGRAM_SWITCH, &o->state, NULL,
         "states instead of logits: what the last layer gives, after the norm;\n"
         "embedding_length floats a token", 0, 0},
        {"--state-layers", PROGRAM_TEXT, &o->state_layers, "N,N,...",
         "also, or alone: the states after so many layers, one behind the other", 0, 0},
        {"--in-place", PROGRAM_SWITCH, &o->in_place, NULL, "weights stay in the file", 0, 0},
        {"-o", PROGRAM_TEXT, &o->output, "OUT.f32", "where the rows go; - is standard output", 0, 0},
        {NULL, PROGRAM_SWITCH, NULL, NULL, NULL, 0, 0}};
    int status;

    memset(o, 0, sizeof *o);
    o->width = 64;
    status = program_read(flags, argc, argv, "specdec-logits", "-m MODEL.gguf (--tokens ID,ID,... | --tokens-file FILE) -o OUT.f32 [flags]",
                          "One row of logits, or of states, for every token: raw little-endian float32, as many as the vocabulary\n"
                          "has tokens.\n"
                          "The bytes are the same for every -w, -t, --isa and --tree.\n");
    if (status != PROGRAM_GO_ON)
        return status;
    if (!o->model)
        return program_misused("-m is missing: which model?", "");
    if (!o->output)
        return program_misused("-o is missing: where do the rows go?", "");
    if (o->tree && (o->state || o->state_layers))
        return program_misused("--tree gives logits, no states", "");
    if (!o->tokens == !o->tokens_file)
        return program_misused("one of --tokens and --tokens-file is needed", "");
    return PROGRAM_GO_ON;
}

int main(int argc, char **argv)
{
    static tool t;
    program_output out = PROGRAM_NO_OUTPUT;
    const char *inputs[] = {NULL, NULL, NULL};
    options o;
    int status = read_options(&o, argc, argv);

    if (status != PROGRAM_GO_ON)
        return status;
    if (o.kv && program_choice("f16|f32|q8_0", o.kv) < 0)
        return program_misused("--kv takes f16, f32 or q8_0, not ", o.kv);
    if (o.tokens_file) {
        o.tokens = program_read_text(o.tokens_file);
        if (!o.tokens)
            return PROGRAM_FAILED;
    }
    status = read_tokens(&t, o.tokens, o.lines);
    status = status ? status : read_layers(&t, &o);
    inputs[0] = o.model;
    inputs[1] = o.tokens_file;
    if (status || program_output_open(&out, o.output, inputs))
        return status ? status : PROGRAM_FAILED;
    return program_finish(run(&t, &o, &out));
}
