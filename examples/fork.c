/* fork - an answer that writes its parts side by side: where the model forks, a child writes the part while the answer goes on.

   fork MODEL.gguf PROMPT [TOKENS [TEMPERATURE]]
   The model marks forks by its tokens [Fork] and [Child]; with one that has none, every line that ends with ':' forks. On a
   terminal the answer is drawn anew as it grows, else it is written when it is whole. */
#include "specdec.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int failed(const char *text)
{
    fprintf(stderr, "fork: %s\n", text);
    return 1;
}

/* The rule for models without fork tokens: behind a token that ends with ':' a child goes on in a new line. */
typedef struct rule {
    const specdec_model *model;
    int32_t newline[SPECDEC_FORK_TOKENS];
    int count;
} rule;

static int colons(void *user_data, const int32_t *tokens, int count, int32_t *child)
{
    const rule *r = (const rule *)user_data;
    char text[64];
    size_t length;

    if (!r->model || specdec_token_text(r->model, tokens[count - 1], text, sizeof text, &length, NULL) || !length || text[length - 1] != ':')
        return 0;
    memcpy(child, r->newline, sizeof r->newline);
    return r->count;
}

/* Sets the rule up: how the model spells a new line. */
static void make_rule(rule *r, const specdec_model *model)
{
    size_t bytes = specdec_tokenize_memory(model, 1);
    void *memory = malloc(bytes);

    if (!specdec_tokenize(model, "\n", 1, 0, r->newline, SPECDEC_FORK_TOKENS, &r->count, memory, bytes, NULL))
        r->model = model;
    free(memory);
}

/* Takes what a text and its children have written, so that it can go on. Returns what went wrong with one of them. */
static specdec_result take(specdec *text)
{
    specdec_result result;
    specdec_text piece;
    specdec *child;
    int i;

    while ((result = specdec_take(text, &piece)) == SPECDEC_OK)
        continue;
    result = result == SPECDEC_DONE || result == SPECDEC_PENDING ? SPECDEC_OK : result;
    for (i = 0; !result && (child = specdec_child(text, i)) != NULL; i++)
        result = take(child);
    return result;
}

static void show(specdec *text, char *answer, size_t room, int redraw)
{
    size_t length;

    if (specdec_join_forks(text, answer, room, &length))
        return;
    printf("%s%.*s", redraw ? "\0338\033[J" : "", (int)length, answer); /* back to where it began */
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static char answer[1 << 18], more[2]; /* behind a number there is nothing */
    const int terminal = isatty(1);
    specdec_config config = {0};
    rule r = {0};
    specdec_error error;
    specdec_result result;
    specdec_info info;
    specdec *text;
    size_t bytes;
    void *memory;

    if (argc == 2 && strcmp(argv[1], "--help") == 0)
        return printf("usage: fork MODEL.gguf PROMPT [TOKENS [TEMPERATURE]]\n"
                      "Writes on behind PROMPT in several texts at a time, where the model forks or writes a list.\n"), 0;
    if (argc < 3)
        return fprintf(stderr, "usage: fork MODEL.gguf PROMPT [TOKENS [TEMPERATURE]]\n"), 2;
    config.target.path = argv[1];
    config.settings.max_tokens = 200;
    if ((argc > 3 && sscanf(argv[3], "%d%1s", &config.settings.max_tokens, more) != 1) ||
        (argc > 4 && sscanf(argv[4], "%f%1s", &config.settings.sampling.temperature, more) != 1))
        return fprintf(stderr, "fork: TOKENS and TEMPERATURE are numbers\n"), 2;
    config.sequences = 16; /* at once, at most */
    config.hooks.user_data = &r;
    config.hooks.fork = colons;
    if (specdec_memory_needed(&config, &bytes, &error))
        return failed(error.text);
    memory = malloc(bytes);
    if (specdec_init(&text, &config, memory, bytes, &error))
        return free(memory), failed(error.text);
    specdec_get_info(text, &info);
    if (info.fork_token < 0)
        make_rule(&r, specdec_get_model(text));
    result = specdec_prompt(text, argv[2], SPECDEC_WHOLE_STRING);
    if (terminal)
        printf("\0337");
    while (!result && (result = specdec_work(text)) == SPECDEC_OK) {
        result = take(text);
        if (terminal)
            show(text, answer, sizeof answer, 1);
    }
    show(text, answer, sizeof answer, terminal);
    printf("\n");
    if (result != SPECDEC_DONE)
        failed(specdec_error_text(text));
    specdec_deinit(text);
    free(memory);
    if (result != SPECDEC_DONE)
        return 1;
    return fflush(stdout) ? failed("the text cannot be written") : 0;
}
