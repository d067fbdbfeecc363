/* specdec-tokens - token ids of a text, and back. */
#define SPECDEC_NO_SIMD /* no kernels are run: builds in a third of the time */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "program.h"

typedef struct options {
    const char *model, *file, *text, *decode;
    int no_bos, special;
} options;

/* Reads the command line. Returns PROGRAM_GO_ON, or an exit status. */
static int read_options(options *o, int argc, char **argv)
{
    const program_flag flags[] = {
        {"-m", PROGRAM_TEXT, (void *)&o->model, "FILE", "a GGUF file with a vocabulary", 0, 0},
        {"-f", PROGRAM_TEXT, (void *)&o->file, "FILE",
         "prints the token ids of this file on one line; - is standard input", 0, 0},
        {"-p", PROGRAM_TEXT, (void *)&o->text, "TEXT", "prints the token ids of this text", 0, 0},
        {"--decode", PROGRAM_TEXT, (void *)&o->decode, "ID,ID,...",
         "prints the bytes of these tokens (separated by commas or spaces)", 0, 0},
        {"--no-bos", PROGRAM_SWITCH, &o->no_bos, NULL, "without the token that begins a text", 0, 0},
        {"--special", PROGRAM_SWITCH, &o->special, NULL,
         "control tokens in the text become tokens; with --decode: they are shown", 0, 0},
        {NULL, PROGRAM_SWITCH, NULL, NULL, NULL, 0, 0}};
    int status;

    memset(o, 0, sizeof *o);
    status = program_read(flags, argc, argv, "specdec-tokens",
                          "-m MODEL.gguf (-f FILE | -p TEXT | --decode ID,ID,...) [flags]", "");
    if (status != PROGRAM_GO_ON)
        return status;
    if (!o->model)
        return program_misused("-m is missing: which model?", "");
    if (!!o->file + !!o->text + !!o->decode != 1)
        return program_misused("exactly one of -f, -p and --decode is needed", "");
    return PROGRAM_GO_ON;
}

static int print_tokens(const specdec__vocab *v, const options *o, const char *text, size_t length)
{
    int flags = (o->no_bos ? 0 : SPECDEC_TOKENIZE_BEGIN) | (o->special ? SPECDEC_TOKENIZE_SPECIAL : 0);
    size_t capacity, scratch_size, count = 0, i;
    specdec_error error;
    int32_t *tokens;
    void *scratch;
    int status = 0;

    if (length > SPECDEC__TEXT_MAX_BYTES / 16)
        return program_failed("the text is too long", "");
    capacity = 4 * length + 8; /* a byte becomes at most 4 tokens */
    scratch_size = specdec__tokenize_scratch(v, length);
    tokens = (int32_t *)malloc(capacity * sizeof *tokens);
    scratch = malloc(scratch_size);
    if (!tokens || !scratch)
        status = program_failed("out of memory", "");
    else if (specdec__tokenize(v, text, length, flags, tokens, capacity, &count, scratch, scratch_size, &error))
        status = program_failed("", error.text);
    for (i = 0; i < count && !status; i++)
        printf(i ? " %d" : "%d", (int)tokens[i]);
    if (!status)
        printf("\n");
    free(tokens);
    free(scratch);
    return status;
}

/* The id at the beginning of a list; -1 after saying that there is none, or none of this vocabulary. *end: behind. */
static int32_t read_id(const specdec__vocab *v, const char *at, char **end, int *status)
{
    long id = strtol(at, end, 10);
    char what[96];

    if (*end == at || (**end && **end != ',' && **end != ' ')) {
        *status = program_misused("not a list of ids from here on: ", at);
        return -1;
    }
    if (id >= 0 && id < (long)v->count)
        return (int32_t)id;
    snprintf(what, sizeof what, "token %.*s is not in the vocabulary of %u", (int)(*end - at < 40 ? *end - at : 40),
             at, (unsigned)v->count);
    *status = program_failed(what, "");
    return -1;
}

/* Prints the bytes of a list of tokens. Returns a status. */
static int print_bytes(const specdec__vocab *v, const options *o)
{
    size_t room = (size_t)v->longest + 3, written;
    unsigned char *out = (unsigned char *)malloc(room);
    specdec__text_stream stream;
    specdec_error error;
    const char *at = o->decode;
    int status = out ? PROGRAM_OK : program_failed("out of memory", "");
    char *end;

    specdec__text_stream_begin(&stream, v, -1, o->special);
    while (!status && *at) {
        int32_t id = read_id(v, at, &end, &status);

        if (!status && specdec__text_stream_push(&stream, v, id, out, room, &written, &error))
            status = program_failed("", error.text);
        if (status)
            break;
        fwrite(out, 1, written, stdout);
        for (at = end; *at == ',' || *at == ' ';)
            at++;
    }
    if (!status)
        fwrite(out, 1, specdec__text_stream_end(&stream, out), stdout);
    free(out);
    return status;
}

/* The vocabulary of a model. Returns the memory of its indexes, or NULL and an error text. */
static void *open_model(const char *path, specdec__bytes *file, specdec__gguf *gguf, specdec__vocab *v,
                        specdec_error *error)
{
    specdec__arena arena;
    void *memory;

    memset(&arena, 0, sizeof arena);
    if (specdec__os_map(file, path, error))
        return NULL;
    if (specdec__gguf_open(gguf, *file, error) || specdec__vocab_init(v, gguf, &arena, error))
        return NULL;
    memory = malloc(arena.used);
    if (!memory) {
        specdec__fail(error, SPECDEC_ERROR_MEMORY, "out of memory");
        return NULL;
    }
    arena.base = (unsigned char *)memory;
    arena.size = arena.used;
    arena.used = 0;
    if (!specdec__vocab_init(v, gguf, &arena, error))
        return memory;
    free(memory);
    return NULL;
}

static int run(const options *o, const specdec__vocab *v)
{
    size_t length = 0;
    char *text;
    int status;

    if (o->decode)
        return print_bytes(v, o);
    if (o->text)
        return print_tokens(v, o, o->text, strlen(o->text));
    text = program_read_file(o->file, &length);
    status = text ? print_tokens(v, o, text, length) : PROGRAM_FAILED;
    free(text);
    return status;
}

int main(int argc, char **argv)
{
    static specdec__gguf gguf;
    static specdec__vocab v;
    specdec__bytes file = {NULL, 0};
    specdec_error error;
    options o;
    void *memory;
    int status = read_options(&o, argc, argv);

    if (status != PROGRAM_GO_ON)
        return status;
    memory = open_model(o.model, &file, &gguf, &v, &error);
    status = memory ? run(&o, &v) : program_failed("", error.text);
    free(memory);
    specdec__os_unmap(&file);
    return program_flush() ? PROGRAM_FAILED : status;
}
