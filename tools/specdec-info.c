/* specdec-info - what a GGUF file holds, and what an engine made from it needs. */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "program.h"

static specdec_error failure; /* of the last call that failed before there was an engine */

enum { MAX_TYPES = 64 };

typedef struct options {
    specdec_config config;
    int memory_only, tensors, spec, policy;
} options;

/* A text from a file: what could upset a terminal becomes a question mark. */
static void print_bytes(specdec__bytes text, size_t most)
{
    size_t i;

    for (i = 0; i < text.size && i < most; i++)
        putchar(text.data[i] < 32 || text.data[i] == 127 ? '?' : text.data[i]);
}

static void print_label(const char *label)
{
    printf("%-18s", label);
}

static void print_size(const char *label, double bytes, const char *what)
{
    print_label(label);
    printf("%.0f bytes (%.1f MB)%s\n", bytes, bytes / 1e6, what);
}

static const char *type_name(uint32_t type, char *buffer, size_t size)
{
    const specdec__quant_type *known = specdec__quant_find(type);

    if (!known)
        snprintf(buffer, size, "type %u (not read)", type);
    return known ? known->name : buffer;
}

/* Every tensor: name, type, shape, bytes. */
static void print_tensor(const specdec__gguf_tensor *tensor)
{
    char buffer[40];
    int d;

    printf("  ");
    print_bytes(tensor->name, 128);
    printf(" %s ", type_name(tensor->type, buffer, sizeof buffer));
    for (d = 0; d < tensor->dimensions; d++)
        printf(d ? " x %llu" : "%llu", (unsigned long long)tensor->shape[d]);
    printf(", %zu bytes\n", tensor->size);
}

/* One line for every type: how many tensors, how many bytes. all: one line for every tensor before that. */
static int print_tensors(const specdec__gguf *gguf, int all)
{
    uint64_t tensors[MAX_TYPES] = {0}, bytes[MAX_TYPES] = {0}, i;
    specdec__cursor at = specdec__gguf_cursor(gguf, gguf->tensors_at);
    specdec__gguf_tensor tensor;
    uint32_t type;
    char buffer[40];

    print_label("tensors");
    printf("%llu\n", (unsigned long long)gguf->tensor_count);
    for (i = 0; i < gguf->tensor_count; i++) {
        const char *wrong = specdec__gguf_read_tensor(gguf, &at, &tensor);

        if (wrong)
            return program_failed("a tensor ", wrong);
        if (all)
            print_tensor(&tensor);
        if (tensor.type < MAX_TYPES) {
            tensors[tensor.type]++;
            bytes[tensor.type] += tensor.size;
        }
    }
    for (type = 0; type < MAX_TYPES; type++)
        if (tensors[type]) {
            print_label("");
            printf("%s: %llu tensors, %llu bytes\n", type_name(type, buffer, sizeof buffer), (unsigned long long)tensors[type],
                   (unsigned long long)bytes[type]);
        }
    return PROGRAM_OK;
}

static void print_model(const specdec__model *m)
{
    const specdec__bytes template_text = m->chat_template;
    const specdec__chat_format *chat = template_text.data ? specdec__chat_find((const char *)template_text.data, template_text.size) : NULL;
    int spm = m->vocab.model == SPECDEC__VOCAB_SPM;

    print_label("architecture");
    printf("%s: %d layers, embedding %d, feed-forward %d\n", m->architecture->name, m->layers, m->embedding, m->feed_forward);
    print_label("attention");
    printf("%d heads of %d, %d of keys and values\n", m->heads, m->head_dim, m->kv_heads);
    if (m->window) {
        print_label("window");
        printf("%d tokens, in %d of %d layers\n", m->window, m->span_layers[SPECDEC__WINDOW], m->layers);
    }
    print_label("trained context");
    printf("%d tokens\n", m->context);
    print_label("vocabulary");
    printf("%d tokens, %s%s\n", m->vocab_size, spm ? "SPM" : "byte-level BPE, pre-tokenizer ", spm ? "" : m->vocab.words->name);
    print_label("chat format");
    printf("%s\n", chat ? chat->name : template_text.data ? "not known; --chat-format chooses one" : "none");
    print_size("matrices a token", (double)m->weight_bytes, "");
    print_label("products a token");
    printf("%llu\n", (unsigned long long)m->weight_products);
}

/* What lies in a file. Returns a status; *size grows by the file's. */
static int print_file(const char *role, const char *path, int tensors, size_t *size)
{
    specdec_source source = {NULL, NULL, 0, NULL, 0};
    specdec__arena arena = {NULL, 0, 0};
    specdec__bytes file = {NULL, 0}, name = {NULL, 0};
    specdec__model model;
    specdec__gguf gguf;
    specdec_error error;
    int status;

    if (specdec__os_map(&file, path, &error) || specdec__gguf_open(&gguf, file, &error)) {
        specdec__os_unmap(&file);
        return program_failed("", error.text);
    }
    print_label(role);
    printf("%s\n", path);
    print_size("file", (double)file.size, "");
    if (!specdec__gguf_get_string(&gguf, "general.name", &name, &error) && name.data) {
        print_label("name");
        print_bytes(name, 100);
        printf("\n");
    }
    status = print_tensors(&gguf, tensors);
    source.data = file.data;
    source.size = file.size;
    if (!status && specdec__model_init(&model, &source, 0, &arena, &error))
        status = program_failed("", error.text);
    if (!status)
        print_model(&model);
    *size += file.size;
    specdec__os_unmap(&file);
    return status;
}

static void print_instruction_sets(const specdec_config *c)
{
    specdec__kernels kernels;
    specdec_error error;
    size_t i;

    if (!specdec__kernels_init(&kernels, c->isa, &error)) {
        print_label("instruction set");
        printf("%s; here:", kernels.name);
    }
    for (i = 0; i < SPECDEC__COUNT(specdec__isas); i++)
        if (specdec__isas[i].present())
            printf(" %s", specdec__isas[i].name);
    printf("\n");
}

/* What is in the files, and what a configuration needs. */
static int run(options *o)
{
    specdec_config *c = &o->config, used;
    specdec_error error;
    size_t mapped = 0, bytes;
    int status = PROGRAM_OK;

    if (!o->memory_only) {
        status = print_file("model", c->target.path, o->tensors, &mapped);
        if (!status && c->draft.path) {
            printf("\n");
            status = print_file("draft", c->draft.path, o->tensors, &mapped);
        }
        if (!status)
            printf("\n");
    }
    if (status)
        return status;
    if (specdec_memory_needed(c, &bytes, &failure))
        return program_failed("", failure.text);
    if (o->memory_only)
        return printf("%zu\n", bytes), PROGRAM_OK;
    used = *c;
    if (specdec__engine_config(&used, &error))
        return program_failed("", error.text);
    print_instruction_sets(c);
    print_label("configuration");
    printf("%d threads, keys and values in %s, trees up to %d, weights %s\n", used.threads, used.kv, c->drafting ==
           SPECDEC_DRAFT_OFF ? 1 : used.tree_size, c->weights_in_place ? "in place" : "repacked");
    print_size("memory", (double)bytes, ": exactly what specdec_init asks for");
    print_size("peak", (double)bytes + (double)mapped, ": the memory and the mapped files");
    return PROGRAM_OK;
}

static int read_options(options *o, int argc, char **argv)
{
    specdec_config *c = &o->config;
    const program_flag flags[] = {
        {"-m", PROGRAM_TEXT, &c->target.path, "FILE", "the model: a GGUF file", 0, 0},
        {"-md", PROGRAM_TEXT, &c->draft.path, "FILE", "a draft model", 0, 0},
        {"-c", PROGRAM_INTEGER, &c->context, "N", "tokens of context; 0: the model's own, at most 4096 (0)", 0, 1 << 24},
        {"-t", PROGRAM_INTEGER, &c->threads, "N", "threads; 0: all processors (0)", 0, SPECDEC_MAX_THREADS},
        {"-b", PROGRAM_INTEGER, &c->batch, "N", "tokens of the prompt that are read at once; 0: 64 (0)", 0, 512},
        {"--kv", PROGRAM_TEXT, &c->kv, "f16|f32|q8_0", "how keys and values are kept (f16)", 0, 0},
        {"--isa", PROGRAM_TEXT, &c->isa, "NAME", "instruction set (the best)", 0, 0},
        {"--spec", PROGRAM_CHOICE, &o->spec, PROGRAM_DRAFTING, "where guesses come from (auto)", 0, 0},
        {"--policy", PROGRAM_CHOICE, &o->policy, "static|dynamic", "the draft model's trees (static)", 0, 0},
        {"--tree-size", PROGRAM_INTEGER, &c->tree_size, "N", "tokens of the speculated tree; 0: the default of --spec (0)", 0, 64},
        {"--tree-depth", PROGRAM_INTEGER, &c->tree_depth, "D", "its levels; 0: the default of --spec (0)", 0, 32},
        {"--in-place", PROGRAM_SWITCH, &c->weights_in_place, NULL, "weights stay in the file", 0, 0},
        {"--tensors", PROGRAM_SWITCH, &o->tensors, NULL, "every tensor, too", 0, 0},
        {"--memory", PROGRAM_SWITCH, &o->memory_only, NULL, "only the number of bytes that specdec_init asks for", 0, 0},
        {NULL, PROGRAM_SWITCH, NULL, NULL, NULL, 0, 0}};
    int status;

    memset(o, 0, sizeof *o);
    status = program_read(flags, argc, argv, "specdec-info", "-m MODEL.gguf [-md DRAFT.gguf] [flags]", "");
    if (status == PROGRAM_GO_ON && !c->target.path)
        return program_misused("-m is missing: which model?", "");
    c->drafting = (specdec_drafting)o->spec;
    c->policy = (specdec_policy)o->policy;
    return status;
}

int main(int argc, char **argv)
{
    options o;
    int status = read_options(&o, argc, argv);

    if (status == PROGRAM_GO_ON)
        status = run(&o);
    return program_flush() ? PROGRAM_FAILED : status;
}
