/* specdec-tokens - token ids of a text, and back. */
#define _DEFAULT_SOURCE 1 /* POSIX, also under -std=c99 */
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

/* Prints the token ids of a text. Returns a status. */
static int print_tokens(const specdec_model *model, const options *o, const char *text, size_t length)
{
    int flags = (o->no_bos ? 0 : SPECDEC_TOKENIZE_BEGIN) | (o->special ? SPECDEC_TOKENIZE_SPECIAL : 0);
    size_t memory_bytes = specdec_tokenize_memory(model, length);
    int capacity, count = 0, i, status = PROGRAM_OK;
    specdec_error error;
    int32_t *tokens;
    void *memory;

    if (length > (INT_MAX - 8) / 4)
        return program_failed("the text is too long", "");
    capacity = 4 * (int)length + 8; /* a byte becomes at most 4 tokens */
    tokens = (int32_t *)malloc((size_t)capacity * sizeof *tokens);
    memory = malloc(memory_bytes);
    if (!tokens || !memory)
        status = program_failed("out of memory", "");
    else if (specdec_tokenize(model, text, length, flags, tokens, capacity, &count, memory, memory_bytes, &error))
        status = program_failed("", error.text);
    for (i = 0; i < count && !status; i++)
        printf(i ? " %d" : "%d", (int)tokens[i]);
    if (!status)
        printf("\n");
    free(tokens);
    free(memory);
    return status;
}

/* Reads a list of ids of this vocabulary. Returns a status; *count: how many were read before what is wrong. */
static int read_ids(int vocabulary, const char *at, int32_t *ids, int *count)
{
    char *end, what[96];

    for (*count = 0; *at;) {
        long id = strtol(at, &end, 10);

        if (end == at || (*end && *end != ',' && *end != ' '))
            return program_misused("not a list of ids from here on: ", at);
        if (id < 0 || id >= vocabulary) {
            snprintf(what, sizeof what, "token %.*s is not in the vocabulary of %d",
                     (int)(end - at < 40 ? end - at : 40), at, vocabulary);
            return program_failed(what, "");
        }
        ids[(*count)++] = (int32_t)id;
        for (at = end; *at == ',' || *at == ' ';)
            at++;
    }
    return PROGRAM_OK;
}

/* Prints the bytes of a list of tokens, up to what is wrong in it. Returns a status. */
static int print_bytes(const specdec_model *model, const options *o)
{
    int32_t *ids = (int32_t *)malloc((strlen(o->decode) / 2 + 1) * sizeof *ids);
    int flags = o->special ? SPECDEC_TOKENIZE_SPECIAL : 0, count = 0, status;
    specdec_model_info info;
    specdec_error error;
    size_t room = 0, length;
    char *out = NULL;

    if (!ids || specdec_get_model_info(model, &info))
        return program_failed("out of memory", "");
    status = read_ids(info.vocabulary, o->decode, ids, &count);
    specdec_detokenize(model, ids, count, flags, NULL, 0, &room, NULL); /* only asks for the room */
    out = (char *)malloc(room);
    if (!out)
        status = program_failed("out of memory", "");
    else if (specdec_detokenize(model, ids, count, flags, out, room, &length, &error))
        status = program_failed("", error.text);
    else
        fwrite(out, 1, length, stdout);
    free(out);
    free(ids);
    return status;
}

/* The vocabulary of a model; NULL after saying what went wrong. *memory is where it lives. */
static specdec_model *open_model(const char *path, void **memory)
{
    specdec_model *model = NULL;
    specdec_config config;
    specdec_error error;
    size_t bytes;

    memset(&config, 0, sizeof config);
    config.target.path = path;
    config.threads = config.vocabulary_only = 1;
    config.hooks.log = program_warn;
    *memory = NULL;
    if (specdec_model_memory_needed(&config, &bytes, &error))
        program_failed("", error.text);
    else if ((*memory = malloc(bytes)) == NULL)
        program_failed("out of memory", "");
    else if (specdec_model_init(&model, &config, *memory, bytes, &error))
        program_failed("", error.text);
    return model;
}

static int run(const options *o, const specdec_model *model)
{
    size_t length = 0;
    char *text;
    int status;

    if (o->decode)
        return print_bytes(model, o);
    if (o->text)
        return print_tokens(model, o, o->text, strlen(o->text));
    text = program_read_file(o->file, &length);
    status = text ? print_tokens(model, o, text, length) : PROGRAM_FAILED;
    free(text);
    return status;
}

int main(int argc, char **argv)
{
    options o;
    void *memory;
    specdec_model *model;
    int status = read_options(&o, argc, argv);

    if (status != PROGRAM_GO_ON)
        return status;
    model = open_model(o.model, &memory);
    status = model ? run(&o, model) : PROGRAM_FAILED;
    specdec_model_deinit(model);
    free(memory);
    return program_finish(status);
}
