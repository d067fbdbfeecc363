/* specdec-info - what a GGUF file holds, and what an engine made from it needs. */
#define _DEFAULT_SOURCE 1 /* POSIX, also under -std=c99 */
#include "specdec.h"
#include "program.h"

static specdec_error failure; /* of the last call that failed */

typedef struct options {
    specdec_config config;
    int memory_only, tensors, fields, spec, policy;
} options;

/* A text from a file: what could upset a terminal becomes a question mark. */
static void print_bytes(specdec_bytes text, size_t most)
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

/* Whether tensors of a type hold integers, such as the ids of a short vocabulary, no weights. */
static int is_integer(uint32_t type) { return type == 26 || type == 27; }

/* The name of a type, and whether it is not read. */
static const char *type_name(uint32_t type, char *buffer, size_t size)
{
    specdec_type known;

    if (specdec_type_by_number(type, &known))
        return known.name;
    if (!specdec_type_not_read(type, &known))
        snprintf(buffer, size, "type %u (not read)", (unsigned)type);
    else
        snprintf(buffer, size, is_integer(type) ? "%s" : "%s (not read)", known.name);
    return buffer;
}

static uint64_t tensor_bytes(const specdec_gguf_tensor *tensor)
{
    specdec_type type;

    return specdec_type_not_read(tensor->type, &type) && type.bytes
               ? tensor->shape[0] * tensor->shape[1] * tensor->shape[2] * tensor->shape[3] / (uint64_t)type.block *
                     (uint64_t)type.bytes
               : tensor->size;
}

/* Every tensor: name, type, shape, bytes. */
static void print_tensor(const specdec_gguf_tensor *tensor)
{
    char buffer[40];
    int d;

    printf("  ");
    print_bytes(tensor->name, 128);
    printf(" %s ", type_name(tensor->type, buffer, sizeof buffer));
    for (d = 0; d < tensor->dimensions; d++)
        printf(d ? " x %llu" : "%llu", (unsigned long long)tensor->shape[d]);
    printf(", %llu bytes\n", (unsigned long long)tensor_bytes(tensor));
}

/* One line for every type: how many tensors, how many bytes. all: one line for every tensor before that. */
static void print_tensors(const specdec_gguf *gguf, int all)
{
    enum { TYPES = 64 };
    uint64_t tensors[TYPES] = {0}, bytes[TYPES] = {0};
    specdec_gguf_tensor tensor;
    size_t place = 0;
    uint32_t type;
    char buffer[40];

    print_label("tensors");
    printf("%llu\n", (unsigned long long)gguf->tensor_count);
    while (specdec_gguf_next_tensor(gguf, &place, &tensor)) {
        if (all)
            print_tensor(&tensor);
        if (tensor.type < TYPES) {
            tensors[tensor.type]++;
            bytes[tensor.type] += tensor_bytes(&tensor);
        }
    }
    for (type = 0; type < TYPES; type++)
        if (tensors[type]) {
            print_label("");
            printf("%s: %llu tensors, %llu bytes\n", type_name(type, buffer, sizeof buffer),
                   (unsigned long long)tensors[type], (unsigned long long)bytes[type]);
        }
}

static void print_model(const specdec_model_info *m)
{
    print_label("architecture");
    printf("%s: %d layers, embedding %d, feed-forward %d\n", m->architecture, m->layers, m->embedding, m->feed_forward);
    if (m->drafts) {
        print_label("only drafts");
        printf("%s", m->drafts);
        if (m->block)
            printf(", %d tokens in one pass", m->block);
        printf("\n");
    }
    if (m->experts) {
        print_label("experts");
        printf("%d in each layer, a token visits %d\n", m->experts, m->chosen);
    }
    if (m->heads) {
        print_label("attention");
        printf("%d heads of %d, %d of keys and values\n", m->heads, m->head_size, m->kv_heads);
    }
    if (m->window) {
        print_label("window");
        printf("%d tokens, in %d of %d layers\n", m->window, m->window_layers, m->layers);
    }
    if (m->recurrent_layers) {
        print_label("recurrent layers");
        printf("%d of %d: %s; the state of a sequence takes %zu bytes\n", m->recurrent_layers, m->layers, m->recurrent,
               m->state_bytes);
    }
    if (m->context) {
        print_label("trained context");
        printf("%d tokens\n", m->context);
    }
    print_label("vocabulary");
    printf("%d tokens, %s%s%s\n", m->vocabulary, m->tokenizer, m->words ? ", pre-tokenizer " : "",
           m->words ? m->words : "");
    print_label("chat format");
    printf("%s\n", m->chat_format ? m->chat_format : m->has_template ? "not known; --chat-format chooses one" : "none");
    print_size("matrices a token", (double)m->weight_bytes, "");
    print_label("products a token");
    printf("%llu\n", (unsigned long long)m->products_per_token);
}

/* The text of the last failure, without the path of the file that it is about. */
static const char *failure_text(const char *path)
{
    const size_t length = strlen(path);

    return strncmp(failure.text, path, length) == 0 && failure.text[length] == ':' ? failure.text + length + 2 : failure.text;
}

/* What a file that is refused would need: types that are not read, another tokenizer, else what the failure names. */
static int print_needs(const char *path, const specdec_gguf *gguf)
{
    const specdec_error why = failure;
    specdec_gguf_tensor tensor;
    specdec_config config;
    specdec_type type;
    uint32_t last = 0;
    size_t place = 0, bytes;
    int found = 0;

    print_label("would need");
    while (specdec_gguf_next_tensor(gguf, &place, &tensor)) {
        const char *nearest = specdec_type_not_read(tensor.type, &type);

        if (!nearest || is_integer(tensor.type) || (found && tensor.type == last))
            continue;
        last = tensor.type;
        printf("%sweights of type %s to be read, or %s in their place", found++ ? "; " : "", type.name, nearest);
    }
    memset(&config, 0, sizeof config);
    config.target.path = path;
    config.threads = config.vocabulary_only = 1;
    if (specdec_model_memory_needed(&config, &bytes, &failure))
        printf("%sanother vocabulary: %s", found++ ? "; " : "", failure_text(path));
    failure = why;
    if (!found)
        printf("what is not known of it: %s", failure_text(path));
    printf("\n");
    return program_failed("", failure.text);
}

/* Prepares the model of a file, as cheaply as that goes, and prints what it is. Returns a status; *drafts: whether it can only
   draft. */
static int print_prepared(const char *path, const specdec_gguf *gguf, int *drafts)
{
    specdec_config config;
    specdec_model_info info;
    specdec_model *model = NULL;
    void *memory = NULL;
    size_t bytes = 0;
    int status = PROGRAM_OK;

    memset(&config, 0, sizeof config);
    config.target.path = path;
    config.threads = config.weights_in_place = 1;
    if (specdec_model_memory_needed(&config, &bytes, &failure))
        return print_needs(path, gguf);
    memory = malloc(bytes);
    if (!memory)
        return program_failed("out of memory", "");
    if (specdec_model_init(&model, &config, memory, bytes, &failure) || specdec_get_model_info(model, &info))
        status = program_failed("", failure.text);
    else {
        print_model(&info);
        *drafts = info.drafts != NULL;
    }
    specdec_model_deinit(model);
    free(memory);
    return status;
}

/* Which part of a model in several files a file is. */
static void print_part(const specdec_gguf *gguf)
{
    int64_t number = 0, count = 1;

    if (specdec_gguf_get_integer(gguf, "split.count", 0, 65535, &count, NULL) || count < 2 ||
        specdec_gguf_get_integer(gguf, "split.no", 0, 65535, &number, NULL))
        return;
    print_label("part");
    printf("%d of %d; tensors and bytes are those of this file\n", (int)number + 1, (int)count);
}

/* What lies in a file. Returns a status; *size grows by the file's; drafts as above. */
static int print_file(const char *role, const char *path, int tensors, size_t *size, int *drafts)
{
    specdec_bytes file = {NULL, 0}, name = {NULL, 0};
    specdec_gguf gguf;
    specdec_error error;

    if (program_map_file(&file, path))
        return PROGRAM_FAILED;
    if (specdec_gguf_open(&gguf, file.data, file.size, &error))
        return program_refused(path, error.text);
    print_label(role);
    printf("%s\n", path);
    print_size("file", (double)file.size, "");
    if (!specdec_gguf_get_string(&gguf, "general.name", &name, NULL) && name.data) {
        print_label("name");
        print_bytes(name, 100);
        printf("\n");
    }
    print_part(&gguf);
    print_tensors(&gguf, tensors);
    *size += file.size;
    return print_prepared(path, &gguf, drafts);
}

/* The one that is used, and all that are here. */
static void print_instruction_sets(const char *given)
{
    const char *best = specdec_isa_name(0), *name;
    int i;

    for (i = 0; (name = specdec_isa_name(i)) != NULL; i++)
        best = name;
    print_label("instruction set");
    printf("%s; here:", given ? given : best);
    for (i = 0; (name = specdec_isa_name(i)) != NULL; i++)
        printf(" %s", name);
    printf("\n");
}

/* Nodes of the largest tree that a configuration verifies. */
static int tree_size(const specdec_config *c)
{
    if (c->drafting == SPECDEC_DRAFT_OFF)
        return 1;
    return c->tree_size ? c->tree_size : c->drafting == SPECDEC_DRAFT_AUTO ? 32 : 8;
}

/* What is in the files, and what a configuration needs. */
static int run(options *o)
{
    specdec_config *c = &o->config;
    const char *const roles[] = {"model", "draft", "heads"};
    const char *const paths[] = {c->target.path, c->draft.path, c->heads.path};
    size_t mapped = 0, bytes, plain;
    specdec_config other;
    int i, status, drafts = 0;

    for (i = 0; i < 3; i++)
        if (!o->memory_only && paths[i]) {
            status = print_file(roles[i], paths[i], o->tensors, &mapped, &drafts);
            if (status || (!i && drafts)) /* no engine is made of it alone */
                return status;
            printf("\n");
        }
    if (specdec_memory_needed(c, &bytes, &failure))
        return program_failed("", failure.text);
    if (o->memory_only)
        return printf("%zu\n", bytes), PROGRAM_OK;
    print_instruction_sets(c->isa);
    print_label("configuration");
    if (c->threads)
        printf("%d threads, ", c->threads);
    else
        printf("threads as it suits the machine, ");
    printf("keys and values in %s, trees up to %d, weights %s\n", c->kv ? c->kv : "f16", tree_size(c),
           c->weights_in_place ? "in place" : "repacked");
    other = *c;
    other.screening = SPECDEC_SCREENING_OFF;
    if (specdec_memory_needed(&other, &plain, &failure))
        return program_failed("", failure.text);
    print_label("screening");
    if (plain < bytes)
        printf("five of eight bits of the output matrix are read, the others of rows that can win: %zu bytes more\n",
               bytes - plain);
    else
        printf("no: the output matrix is read whole\n");
    print_size("memory", (double)bytes, ": exactly what specdec_init asks for");
    print_size("peak", (double)bytes + (double)mapped, ": the memory and the mapped files");
    return PROGRAM_OK;
}

/* Every field of a configuration: its name, what it takes, what it is. Returns a status. */
static int list_fields(void)
{
    const specdec_field *f;
    char range[64];
    int i, k;

    for (i = 0; (f = specdec_get_field(i)) != NULL; i++) {
        const char *takes = f->words                           ? f->words
                            : f->kind == SPECDEC_FIELD_POINTER ? "no text"
                            : f->kind == SPECDEC_FIELD_SWITCH  ? "off|on"
                            : f->kind == SPECDEC_FIELD_SEED    ? "number"
                            : f->kind == SPECDEC_FIELD_FILE    ? "file"
                            : f->kind == SPECDEC_FIELD_LIST    ? "texts"
                            : f->kind == SPECDEC_FIELD_WORD    ? "text"
                            : f->kind == SPECDEC_FIELD_CHARACTERS ? "characters"
                                                               : range;

        snprintf(range, sizeof range, f->low > 0 ? "0, %.0f..%.0f" : "%.0f..%.0f", f->low, f->high);
        printf("%-18s %-16s ", f->name, takes);
        for (k = 0; f->help[k]; k++)
            putchar(f->help[k] == '\n' ? ' ' : f->help[k]);
        putchar('\n');
    }
    return program_flush();
}

static int read_options(options *o, int argc, char **argv)
{
    specdec_config *c = &o->config;
    const program_flag flags[] = {
        {"-m", PROGRAM_TEXT, &c->target.path, "FILE", "the model: a GGUF file", 0, 0},
        {"-md", PROGRAM_TEXT, &c->draft.path, "FILE", "a draft model, or a drafter made for the model", 0, 0},
        {"-mh", PROGRAM_TEXT, &c->heads.path, "FILE", "heads trained for the model: an MLP speculator, Medusa, EAGLE-3", 0, 0},
        {"-c", PROGRAM_FIELD, c, "context", NULL, 0, 0},
        {"-t", PROGRAM_FIELD, c, "threads", NULL, 0, 0},
        {"-b", PROGRAM_FIELD, c, "batch", NULL, 0, 0},
        {"--kv", PROGRAM_FIELD, c, "kv", NULL, 0, 0},
        {"--isa", PROGRAM_ISA, &c->isa, "NAME", "instruction set (the best)", 0, 0},
        {"--spec", PROGRAM_CHOICE, &o->spec, PROGRAM_DRAFTING, "where draft tokens come from (auto)", 0, 0},
        {"--policy", PROGRAM_CHOICE, &o->policy, "auto|static|dynamic", "the draft model's trees (auto)", 0, 0},
        {"--retrieval", PROGRAM_FIELD, c, "retrieval", NULL, 0, 0},
        {"--retrieval-chunk", PROGRAM_FIELD, c, "retrieval_chunk", NULL, 0, 0},
        {"--draft-vocabulary", PROGRAM_FIELD, c, "draft_vocabulary", NULL, 0, 0},
        {"--tree-size", PROGRAM_FIELD, c, "tree_size", NULL, 0, 0},
        {"--tree-depth", PROGRAM_FIELD, c, "tree_depth", NULL, 0, 0},
        {"--in-place", PROGRAM_FIELD, c, "weights_in_place", NULL, 0, 0},
        {"--tensors", PROGRAM_SWITCH, &o->tensors, NULL, "every tensor, too", 0, 0},
        {"--fields", PROGRAM_SWITCH, &o->fields, NULL, "what a configuration has, by the names that specdec_config_set takes; needs no model", 0, 0},
        {"--memory", PROGRAM_SWITCH, &o->memory_only, NULL, "only the number of bytes that specdec_init asks for", 0, 0},
        {NULL, PROGRAM_SWITCH, NULL, NULL, NULL, 0, 0}};
    int status;

    memset(o, 0, sizeof *o);
    status = program_read(flags, argc, argv, "specdec-info", "-m MODEL.gguf [-md DRAFT.gguf] [flags]", "");
    if (status == PROGRAM_GO_ON && o->fields)
        return list_fields();
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
    return program_finish(status);
}
