#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    specdec_config config = {0}; /* zero means "the good default", everywhere */
    size_t bytes;
    specdec *engine;
    specdec_text piece;
    specdec_error error;
    specdec_result result;

    if (argc < 2)
        return fprintf(stderr, "usage: hello MODEL.gguf [DRAFT.gguf]\n"), 2;
    config.target.path = argv[1];
    config.draft.path = argc > 2 ? argv[2] : NULL; /* optional: a small model with the same vocabulary */
    config.settings.max_tokens = 200;
    if (specdec_memory_needed(&config, &bytes, &error) || specdec_init(&engine, &config, malloc(bytes), bytes, &error))
        return fprintf(stderr, "hello: %s\n", error.text), 1;

    if (specdec_prompt(engine, "Once upon a time", SPECDEC_WHOLE_STRING))
        return fprintf(stderr, "hello: %s\n", specdec_error_text(engine)), 1;
    printf("Once upon a time");
    do {
        result = specdec_next(engine, &piece); /* a step verifies several tokens, next hands them out one by one */
        fwrite(piece.bytes, 1, piece.length, stdout);
    } while (result == SPECDEC_OK);
    printf("\n");
    specdec_deinit(engine);
    return result != SPECDEC_DONE;
}
