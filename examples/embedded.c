/* embedded - as in firmware: one thread, no files, no heap. The model is linked into the program, the memory is an array.

   The build hands over MODEL_FILE, CONTEXT, and MEMORY_BYTES: what  specdec-info -c CONTEXT -t 1 --in-place --memory  printed. */
#define SPECDEC_NO_THREADS
#define SPECDEC_NO_FILES
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include <stdio.h>

static specdec_error failure; /* of the last call that failed before there was an engine */

#if defined(__APPLE__)
#define READ_ONLY ".const_data"
#define READ_ONLY_END ".text"
#else
#define READ_ONLY ".section .rodata"
#define READ_ONLY_END ".previous"
#endif

/* The bytes of a file between two symbols, in memory that is only read: flash, on a microcontroller. */
__asm__(READ_ONLY "\n"
        ".balign 64\n"
        "model_begin:\n"
        ".incbin \"" MODEL_FILE "\"\n"
        "model_end:\n"
        ".byte 0\n" READ_ONLY_END "\n");
extern const unsigned char model_begin[] __asm__("model_begin"), model_end[] __asm__("model_end");

static unsigned char memory[MEMORY_BYTES];

int main(void)
{
    static specdec_config config; /* all zero */
    specdec *engine;
    specdec_text piece;
    specdec_result result;

    config.target.data = model_begin;
    config.target.size = (size_t)(model_end - model_begin);
    config.weights_in_place = 1;
    config.context = CONTEXT;
    config.settings.max_tokens = 60;
    if (specdec_init(&engine, &config, memory, sizeof memory, &failure)) {
        fprintf(stderr, "embedded: %s\n", failure.text);
        return 1;
    }
    printf("Once upon a time");
    result = specdec_prompt(engine, "Once upon a time", SPECDEC_WHOLE_STRING);
    if (!result)
        while ((result = specdec_next(engine, &piece)) == SPECDEC_OK)
            fwrite(piece.bytes, 1, piece.length, stdout);
    printf("\n");
    if (result != SPECDEC_DONE)
        fprintf(stderr, "embedded: %s\n", specdec_error_text(engine));
    specdec_deinit(engine);
    return result != SPECDEC_DONE;
}
