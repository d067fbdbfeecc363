/* talk - a conversation whose temperature changes while it runs, and that says why each answer ended.

   talk MODEL.gguf [DRAFT.gguf [CHAT-FORMAT]]
   A line is a question; "/temp 0.8", "/seed 7" and "/limit 50" change settings, "/forget" begins anew. */
#include "specdec.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TYPED = 4095 }; /* bytes of a line that a terminal hands over, at most */

static int failed(const char *text)
{
    fprintf(stderr, "talk: %s\n", text);
    return 1;
}

/* Carries out a line that begins with '/'. Returns 0 when there is no such command, or its number is refused. */
static int command(specdec *engine, const char *line)
{
    specdec_settings settings;
    char more[2]; /* behind a number there is nothing */

    specdec_get_settings(engine, &settings);
    if (!strcmp(line, "/forget"))
        return specdec_rewind(engine, 0) == SPECDEC_OK;
    if (sscanf(line, "/temp %f %1s", &settings.sampling.temperature, more) != 1 &&
        sscanf(line, "/seed %" SCNu64 " %1s", &settings.sampling.seed, more) != 1 &&
        sscanf(line, "/limit %d %1s", &settings.max_tokens, more) != 1)
        return 0;
    return specdec_set(engine, &settings) == SPECDEC_OK;
}

/* Asks, and writes the answer as it comes. */
static specdec_result answer(specdec *engine, const char *question)
{
    const specdec_message message = {SPECDEC_USER, question, SPECDEC_WHOLE_STRING, 0};
    specdec_result result = specdec_chat(engine, &message, 1);
    specdec_text piece;

    while (!result && (result = specdec_next(engine, &piece)) != SPECDEC_DONE && !result) {
        fwrite(piece.bytes, 1, piece.length, stdout);
        fflush(stdout);
    }
    if (result == SPECDEC_DONE)
        fwrite(piece.bytes, 1, piece.length, stdout); /* what was held back */
    return result;
}

int main(int argc, char **argv)
{
    static const char *const why[] = {"", "by itself", "at a stop string", "at the limit", "with the context", "cancelled", "by its constraint"};
    specdec_config config = {0};
    specdec_error error;
    specdec *engine;
    size_t bytes, end;
    void *memory;
    char line[1 << 14];
    int status = 0;

    if (argc == 2 && strcmp(argv[1], "--help") == 0)
        return printf("usage: talk MODEL.gguf [DRAFT.gguf [CHAT-FORMAT]]\n"
                      "A line of standard input is a question. /temp 0.8, /seed 7 and /limit 50 change settings, /forget begins anew.\n"), 0;
    if (argc < 2)
        return fprintf(stderr, "usage: talk MODEL.gguf [DRAFT.gguf [CHAT-FORMAT]]\n"), 2;
    config.target.path = argv[1];
    config.draft.path = argc > 2 ? argv[2] : NULL;
    config.chat_format = argc > 3 ? argv[3] : NULL; /* as the model says */
    config.settings.stop[0] = "\nUser:"; /* should the model begin to ask itself */
    if (specdec_memory_needed(&config, &bytes, &error))
        return failed(error.text);
    memory = malloc(bytes);
    if (specdec_init(&engine, &config, memory, bytes, &error))
        return free(memory), failed(error.text);
    while (fgets(line, sizeof line, stdin)) {
        end = strcspn(line, "\n");
        if (!line[end] && !feof(stdin))
            return failed("a line is too long, or holds a zero byte");
        if (end == TYPED)
            failed("a line of 4095 bytes: if it was typed, the terminal may have cut its end");
        line[end - (end && line[end - 1] == '\r')] = 0;
        if (line[0] == '/' ? !command(engine, line) : answer(engine, line) != SPECDEC_DONE)
            status = failed(line[0] == '/' ? "no such command, or not with that number" : specdec_error_text(engine));
        else if (line[0] != '/')
            printf("\n[ended %s]\n", why[specdec_stopped(engine, NULL)]);
    }
    specdec_deinit(engine);
    free(memory);
    if (ferror(stdin))
        return failed("the questions cannot be read");
    return fflush(stdout) ? failed("the answers cannot be written") : status;
}
