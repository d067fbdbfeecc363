#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    specdec_config config = {0}; /* zero means "the good default", everywhere */
    size_t bytes;
    void *memory;
    specdec *engine;
    specdec_text piece;
    specdec_error error;
    specdec_result result;

    if (argc < 2)
        return fprintf(stderr, "usage: hello MODEL.gguf [DRAFT.gguf]\n"), 2;
    config.target.path = argv[1];
    config.draft.path = argc > 2 ? argv[2] : NULL; /* optional: a small model with the same vocabulary */
    config.settings.max_tokens = 200;
    if (specdec_memory_needed(&config, &bytes, &error))
        return fprintf(stderr, "hello: %s\n", error.text), 1;
    memory = malloc(bytes); /* all that there will ever be */
    if (specdec_init(&engine, &config, memory, bytes, &error))
        return fprintf(stderr, "hello: %s\n", error.text), free(memory), 1;

    printf("Once upon a time");
    result = specdec_prompt(engine, "Once upon a time", SPECDEC_WHOLE_STRING);
    while (result == SPECDEC_OK) {
        result = specdec_next(engine, &piece); /* a step verifies several tokens, next hands them out one by one */
        if (result == SPECDEC_OK || result == SPECDEC_DONE)
            fwrite(piece.bytes, 1, piece.length, stdout);
    }
    printf("\n");
    if (result != SPECDEC_DONE)
        fprintf(stderr, "hello: %s\n", specdec_error_text(engine));
    specdec_deinit(engine);
    free(memory);
    return result != SPECDEC_DONE || fflush(stdout) != 0;
}
