/* embedded - as in firmware: one thread, no files, no heap, one type of weights, one tokenizer, plain C. The model is linked into
   the program, the memory is an array, the stack is painted to see how much of it was needed.

   The build hands over MODEL_FILE, CONTEXT, and MEMORY_BYTES: what  specdec-info -c CONTEXT -t 1 --in-place --memory  printed. */
#define SPECDEC_FREESTANDING
#define SPECDEC_TYPES(X) /* none but F32, F16, BF16 and Q8_0 */
#define SPECDEC_NO_BPE
#define SPECDEC_NO_VERIFIERS
#define SPECDEC_STATIC
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include <stdio.h>

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

enum { STACK_BYTES = 16384, PAINT = 0xA5 };

/* Paints the stack below main, or finds out how many bytes of it were used since. */
static __attribute__((noinline)) int stack(int paint)
{
    volatile unsigned char room[STACK_BYTES];
    int i;

    for (i = 0; paint && i < STACK_BYTES; i++)
        room[i] = PAINT;
    for (i = 0; i < STACK_BYTES && room[i] == PAINT; i++)
        continue;
    return STACK_BYTES - i;
}

int main(void)
{
    static specdec_config config; /* all zero */
    specdec *engine;
    specdec_text piece;
    specdec_error error;
    specdec_result result;

    config.target.data = model_begin;
    config.target.size = (size_t)(model_end - model_begin);
    config.weights_in_place = 1;
    config.context = CONTEXT;
    config.settings.max_tokens = 60;
    stack(1);
    if (specdec_init(&engine, &config, memory, sizeof memory, &error)) {
        fprintf(stderr, "embedded: %s\n", error.text);
        return 1;
    }
    printf("Once upon a time");
    result = specdec_prompt(engine, "Once upon a time", SPECDEC_WHOLE_STRING);
    while (!result) {
        result = specdec_next(engine, &piece);
        fwrite(piece.bytes, 1, piece.length, stdout);
    }
    printf("\n");
    if (result != SPECDEC_DONE)
        fprintf(stderr, "embedded: %s\n", specdec_error_text(engine));
    specdec_deinit(engine);
    fprintf(stderr, "embedded: %d bytes of memory, %d of stack\n", (int)sizeof memory, stack(0));
    return result != SPECDEC_DONE || fflush(stdout);
}
