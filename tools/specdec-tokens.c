/* specdec-tokens - token ids of a text, and back. */
#define SPECDEC_NO_SIMD /* no kernels are run: builds in a third of the time */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include <stdio.h>
#include <stdlib.h>

static const char usage[] =
    "usage: specdec-tokens -m MODEL.gguf (-f FILE | -p TEXT | --decode ID,ID,...) [--no-bos] [--special]\n"
    "\n"
    "  -m FILE        a GGUF file with a vocabulary\n"
    "  -f FILE        prints the token ids of this file on one line; - reads standard input\n"
    "  -p TEXT        prints the token ids of this text\n"
    "  --decode IDS   prints the bytes of these tokens (separated by commas or spaces)\n"
    "  --no-bos       without the token that begins a text\n"
    "  --special      control tokens written in the text become tokens; with --decode: they are shown\n"
    "  --help         this text\n"
    "\n"
    "exit status: 0 done, 1 failed, 2 wrong usage\n";

typedef struct options {
    const char *model, *file, *text, *decode;
    int no_bos, special;
} options;

static int wrong_usage(const char *what, const char *argument)
{
    fprintf(stderr, "specdec-tokens: %s%s\n\n%s", what, argument, usage);
    return 2;
}

/* Returns 0, or 2 after saying what is wrong. */
static int parse(options *o, int argc, char **argv)
{
    int i;

    memset(o, 0, sizeof *o);
    for (i = 1; i < argc; i++) {
        const char **value = strcmp(argv[i], "-m") == 0   ? &o->model
                             : strcmp(argv[i], "-f") == 0 ? &o->file
                             : strcmp(argv[i], "-p") == 0 ? &o->text
                             : strcmp(argv[i], "--decode") == 0 ? &o->decode : NULL;

        if (value) {
            if (++i == argc)
                return wrong_usage("a value is missing behind ", argv[i - 1]);
            *value = argv[i];
        } else if (strcmp(argv[i], "--no-bos") == 0) {
            o->no_bos = 1;
        } else if (strcmp(argv[i], "--special") == 0) {
            o->special = 1;
        } else {
            return wrong_usage("unknown argument ", argv[i]);
        }
    }
    if (!o->model)
        return wrong_usage("-m is missing", "");
    if (!!o->file + !!o->text + !!o->decode != 1)
        return wrong_usage("exactly one of -f, -p and --decode is needed", "");
    return 0;
}

static int failed(const char *what)
{
    fprintf(stderr, "specdec-tokens: %s\n", what);
    return 1;
}

/* Reads a whole stream; NULL when that fails. */
static char *read_all(FILE *file, size_t *length)
{
    size_t room = 1 << 16, got;
    char *data = (char *)malloc(room), *grown;

    *length = 0;
    while (data && (got = fread(data + *length, 1, room - *length, file)) > 0) {
        *length += got;
        if (*length < room)
            continue;
        grown = (char *)realloc(data, room *= 2);
        if (!grown)
            free(data);
        data = grown;
    }
    if (data && ferror(file)) {
        free(data);
        data = NULL;
    }
    return data;
}

static int print_tokens(const specdec__vocab *v, const options *o, const char *text, size_t length)
{
    int flags = (o->no_bos ? 0 : SPECDEC__TOKENIZE_ADD_BOS) | (o->special ? SPECDEC__TOKENIZE_PARSE_SPECIAL : 0);
    size_t capacity, scratch_size, count = 0, i;
    specdec_error error;
    int32_t *tokens;
    void *scratch;
    int status = 0;

    if (length > SPECDEC__TEXT_MAX_BYTES / 16)
        return failed("the text is too long");
    capacity = 4 * length + 8; /* a byte becomes at most 4 tokens */
    scratch_size = specdec__tokenize_scratch(v, length);
    tokens = (int32_t *)malloc(capacity * sizeof *tokens);
    scratch = malloc(scratch_size);
    if (!tokens || !scratch)
        status = failed("out of memory");
    else if (specdec__tokenize(v, text, length, flags, tokens, capacity, &count, scratch, scratch_size, &error))
        status = failed(error.text);
    for (i = 0; i < count && !status; i++)
        printf(i ? " %d" : "%d", (int)tokens[i]);
    if (!status)
        printf("\n");
    free(tokens);
    free(scratch);
    return status;
}

static int print_bytes(const specdec__vocab *v, const options *o)
{
    size_t room = (size_t)v->longest + 3, written;
    unsigned char *out = (unsigned char *)malloc(room);
    specdec__text_stream stream;
    specdec_error error;
    const char *at = o->decode;

    if (!out)
        return failed("out of memory");
    specdec__text_stream_begin(&stream, v, -1, o->special);
    while (*at) {
        char *end;
        long id = strtol(at, &end, 10);

        if (end == at || (*end && *end != ',' && *end != ' ')) {
            free(out);
            return wrong_usage("not a list of ids: ", o->decode);
        }
        if (id < 0 || id > INT32_MAX)
            id = -1;
        if (specdec__text_stream_push(&stream, v, (int32_t)id, out, room, &written, &error)) {
            free(out);
            return failed(error.text);
        }
        fwrite(out, 1, written, stdout);
        for (at = end; *at == ',' || *at == ' ';)
            at++;
    }
    fwrite(out, 1, specdec__text_stream_end(&stream, out), stdout);
    free(out);
    return 0;
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
    FILE *file;
    char *text;
    int status;

    if (o->decode)
        return print_bytes(v, o);
    if (o->text)
        return print_tokens(v, o, o->text, strlen(o->text));
    file = strcmp(o->file, "-") == 0 ? stdin : fopen(o->file, "rb");
    text = file ? read_all(file, &length) : NULL;
    if (file && file != stdin)
        fclose(file);
    if (!text) {
        fprintf(stderr, "specdec-tokens: cannot read %s\n", o->file);
        return 1;
    }
    status = print_tokens(v, o, text, length);
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
    int i, status;

    for (i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(usage, stdout);
            return 0;
        }
    status = parse(&o, argc, argv);
    if (status)
        return status;
    memory = open_model(o.model, &file, &gguf, &v, &error);
    status = memory ? run(&o, &v) : failed(error.text);
    free(memory);
    specdec__os_unmap(&file);
    if (fflush(stdout) || ferror(stdout))
        return failed("cannot write the output");
    return status;
}
