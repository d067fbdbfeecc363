/* specdec-chat-template.c - renders conversations by chat templates, to compare with what is expected of them.
   cc -O2 -pthread -I. tools/lab/specdec-chat-template.c */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "tools/program.h"

enum { MEMORY = 32 << 20, OUTPUT = 4 << 20, NODES = 1 << 20 };

static const char usage[] =
    "usage: specdec-chat-template --suite FILE [--requests] [-v]\n\n"
    "FILE has a JSON object a line: template (a file beside it), messages, tools, add_generation_prompt, bos_token,\n"
    "eos_token, kwargs, and expected (what must be written), raises or fails (the template must refuse). The last line\n"
    "that is written counts the cases. Dates are those of 2026-11-28, or of \"now\" (seconds since 1970) of the case.\n"
    "  --requests    a case is read as a request (messages, tools, chat_template_kwargs), as specdec_chat_json does\n"
    "  -v            says of each case that differs where\n";

#if SPECDEC__HAS_CHAT_TEMPLATES
/* What a suite needs, once. */
typedef struct suite {
    specdec__template run;
    specdec__json json;
    char *output, *expected;
    unsigned char *plain;
    void *memory;
    int cases, equal, raised, differ, verbose, requests;
} suite;

/* A whole file, with a zero byte behind it; NULL. */
static char *read_whole(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    long length;

    if (!file)
        return NULL;
    if (!fseek(file, 0, SEEK_END) && (length = ftell(file)) >= 0 && !fseek(file, 0, SEEK_SET)) {
        text = (char *)malloc((size_t)length + 1);
        *size = text ? fread(text, 1, (size_t)length, file) : 0;
        if (text)
            text[*size] = 0;
    }
    fclose(file);
    return text;
}

/* A member of the case as it is spelled; none where it is missing or null. */
static specdec__bytes spelled(const specdec__json *j, const char *name)
{
    const size_t node = specdec__json_find_member(j, 0, name);
    specdec__bytes none = {NULL, 0};

    return node && j->nodes[node].kind != SPECDEC__JSON_NULL ? specdec__json_value_text(j, node) : none;
}

/* A member that is a string, without a zero byte behind it: its bytes; 0 where there is none. */
static size_t words(const specdec__json *j, const char *name, char *out, size_t room)
{
    const size_t node = specdec__json_find_member(j, 0, name);
    size_t size;

    if (!node || j->nodes[node].kind != SPECDEC__JSON_STRING)
        return 0;
    size = specdec__json_string_value(j, node, out, room);
    return size < room ? size : room;
}

/* Gives the template what the case has. */
static void give(suite *s, char bos[256], char eos[256])
{
    static const char *const names[] = {"messages", "tools"};
    specdec__template *t = &s->run;
    const size_t prompt = specdec__json_find_member(&s->json, 0, "add_generation_prompt"),
                 bos_size = words(&s->json, "bos_token", bos, 256), eos_size = words(&s->json, "eos_token", eos, 256),
                 now = specdec__json_find_member(&s->json, 0, "now");
    const specdec__template_value arguments = specdec__template_read_json(t, spelled(&s->json, "kwargs"));
    size_t i;

    t->local_time = 20785ll * 86400;
    if (now)
        specdec__json_read_integer(&s->json, now, &t->local_time);
    specdec__chat_define_template_names(t, specdec__template_as_bytes(bos, bos_size),
                                        specdec__template_as_bytes(eos, eos_size),
                                        prompt && s->json.nodes[prompt].kind == SPECDEC__JSON_TRUE);
    for (i = 0; i < 2; i++)
        specdec__template_define_variable(t, specdec__template_string_value(names[i]),
                                          specdec__template_read_json(t, spelled(&s->json, names[i])));
    for (i = 0; arguments.kind == SPECDEC__TEMPLATE_DICT && i < arguments.size; i++)
        specdec__template_define_variable(t, specdec__template_list_items(&arguments)[2 * i],
                                          specdec__template_list_items(&arguments)[2 * i + 1]);
}

/* Renders the case as a request. */
static void request(suite *s, const char *line, size_t size, specdec__bytes text)
{
    specdec__conversation_work work;
    specdec_chat_input input;
    specdec__chat_text out;
    specdec__arena arena;
    specdec__vocab v;
    static specdec_error error;

    memset(&v, 0, sizeof v);
    v.bos = v.eos = -1;
    memset(&s->run, 0, sizeof s->run);
    arena.base = (unsigned char *)s->memory;
    arena.size = MEMORY;
    arena.used = 0;
    out.text = s->output;
    out.marks = s->plain;
    out.size = OUTPUT;
    out.needed = 0;
    if (!specdec__conversation_read(line, size, &arena, &input, &error)) {
        arena.used = (arena.used + 63) & ~(size_t)63;
        work.vocab = &v;
        work.text = text;
        work.memory = arena.base + arena.used;
        work.memory_bytes = MEMORY - arena.used;
        work.local_time = 20785ll * 86400;
        if (!specdec__conversation_check_input(&input, OUTPUT, &error) &&
            !specdec__conversation_render(&work, &input, &out, &error)) {
            s->run.output_bytes = out.needed;
            return;
        }
    }
    s->run.failed = "refused:";
    s->run.culprit = specdec__template_as_bytes(error.text, strlen(error.text));
}

/* Compares what was written with what is expected. */
static void judge(suite *s, const char *name, size_t length)
{
    const specdec__template *t = &s->run;
    const size_t node = specdec__json_find_member(&s->json, 0, "expected");
    const size_t size = node ? specdec__json_string_value(&s->json, node, s->expected, OUTPUT) : 0;
    char words_of[128];
    size_t at = 0;

    s->cases++;
    if (node && !t->failed && size == t->output_bytes && memcmp(s->expected, s->output, size) == 0) {
        s->equal++;
        return;
    }
    if (!node && t->failed) {
        s->raised++;
        return;
    }
    s->differ++;
    if (!s->verbose)
        return;
    while (at < size && at < t->output_bytes && s->expected[at] == s->output[at])
        at++;
    printf("%s, %.*s: ", name, (int)words(&s->json, "case", words_of, sizeof words_of), words_of);
    (void)length;
    if (t->failed)
        printf("line %d, column %d: %s %.*s\n", t->line, t->column, t->failed, (int)t->culprit.size,
               t->culprit.size ? (const char *)t->culprit.data : "");
    else
        printf("differs at byte %lu, where \"%.*s\" is written\n", (unsigned long)at,
               (int)(t->output_bytes - at < 60 ? t->output_bytes - at : 60), s->output + at);
}

/* One line of a suite. folder: where the suite's file lies, with a slash. */
static void run_case(suite *s, const char *folder, const char *line, size_t size)
{
    char name[256], path[1024], bos[256], eos[256], *text;
    size_t length, text_size = 0;

    s->json.text = (const unsigned char *)line;
    s->json.size = size;
    s->json.room = NODES;
    if (!specdec__json_parse(&s->json) || s->json.count > NODES) {
        fprintf(stderr, "a case is no JSON: byte %lu: %s\n", (unsigned long)s->json.error_at,
                s->json.failed ? s->json.failed : "too long");
        s->cases++;
        s->differ++;
        return;
    }
    length = words(&s->json, "template", name, sizeof name - 1);
    name[length] = 0;
    snprintf(path, sizeof path, "%s%s", folder, name);
    text = read_whole(path, &text_size);
    if (!text)
        fprintf(stderr, "%s cannot be read\n", path);
    if (s->requests) {
        request(s, line, size, specdec__template_as_bytes(text, text_size));
    } else {
        specdec__template_init(&s->run, specdec__template_as_bytes(text, text_size), s->memory, MEMORY, s->output,
                               s->plain, OUTPUT);
        give(s, bos, eos);
        specdec__template_render(&s->run);
    }
    judge(s, name, length);
    free(text);
}

/* Every line of a file. Returns whether all cases are as expected. */
static int run_suite(suite *s, const char *path)
{
    const char *slash = strrchr(path, '/');
    char folder[512];
    size_t size = 0, from, to;
    char *all = read_whole(path, &size);

    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash + 1 - path) : 0, path);
    if (!all) {
        fprintf(stderr, "%s cannot be read\n", path);
        return 0;
    }
    for (from = 0; from < size; from = to + 1) {
        const char *end = (const char *)memchr(all + from, '\n', size - from);

        to = end ? (size_t)(end - all) : size;
        if (to > from)
            run_case(s, folder, all + from, to - from);
    }
    free(all);
    printf("{\"cases\":%d,\"equal\":%d,\"raised\":%d,\"differ\":%d,\"crashed\":0}\n", s->cases, s->equal, s->raised, s->differ);
    return !s->differ;
}

int main(int argc, char **argv)
{
    static suite s;
    const char *path = NULL;
    int i, good;

    for (i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--suite") && i + 1 < argc) {
            path = argv[++i];
        } else if (!strcmp(argv[i], "-v")) {
            s.verbose = 1;
        } else if (!strcmp(argv[i], "--requests")) {
            s.requests = 1;
        } else {
            fputs(usage, strcmp(argv[i], "--help") && strcmp(argv[i], "-h") ? stderr : stdout);
            return strcmp(argv[i], "--help") && strcmp(argv[i], "-h") ? 2 : 0;
        }
    }
    if (!path) {
        fputs(usage, stderr);
        return 2;
    }
    s.memory = malloc(MEMORY);
    s.output = (char *)malloc(OUTPUT);
    s.expected = (char *)malloc(OUTPUT);
    s.plain = (unsigned char *)malloc(OUTPUT / 8);
    s.json.nodes = (specdec__json_node *)malloc(NODES * sizeof *s.json.nodes);
    good = s.memory && s.output && s.expected && s.plain && s.json.nodes && run_suite(&s, path);
    free(s.memory);
    free(s.output);
    free(s.expected);
    free(s.plain);
    free(s.json.nodes);
    return !good;
}
#else
int main(void)
{
    fputs("SPECDEC_NO_TEMPLATES leaves templates out of this build\n", stderr);
    return 2;
}
#endif
