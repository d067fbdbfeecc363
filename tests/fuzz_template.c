/* fuzz_template.c - libFuzzer target for >>text/template: any template over any messages, in bounded time and memory.
 *
 * clang -g -O1 -fsanitize=fuzzer,address,undefined -I. tests/fuzz_template.c -o build/fuzz_template
 * build/fuzz_template -max_len=65536 -timeout=10 CORPUS_FOLDER
 *
 * Input: a template, a zero byte, and a JSON object whose members the template may use. Real templates with the messages
 * of their cases make a good corpus. */
#define SPECDEC_NO_SIMD /* no kernels are run: builds in a third of the time */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include <stdlib.h>

#ifdef __cplusplus
extern "C"
#endif
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MEMORY = 1 << 20, OUTPUT = 1 << 16 };

/* Renders with so much memory, all of it on the heap, so that sanitizers see its ends. */
static void fuzz_template(const uint8_t *text, size_t length, const uint8_t *given, size_t given_size, size_t bytes)
{
    specdec__template *t = (specdec__template *)malloc(sizeof *t);
    void *memory = malloc(bytes);
    char *output = (char *)malloc(OUTPUT);
    unsigned char *plain = (unsigned char *)calloc(1, OUTPUT / 8);
    specdec__template_value values;
    size_t i;

    if (!t || !memory || !output || !plain)
        abort();
    specdec__template_begin(t, specdec__template_bytes(text, length), memory, bytes, output, plain, OUTPUT);
    values = specdec__template_read_json(t, specdec__template_bytes(given, given_size));
    for (i = 0; values.kind == SPECDEC__TEMPLATE_DICT && i < values.size; i++)
        specdec__template_give(t, specdec__template_items(&values)[2 * i], specdec__template_items(&values)[2 * i + 1]);
    t->now = 1000000000;
    specdec__template_render(t);
    if (t->written > OUTPUT || t->steps > SPECDEC__TEMPLATE_STEPS + (1 << 24) || (t->failed && t->line < 1))
        abort();
    free(plain);
    free(output);
    free(memory);
    free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size ? (const uint8_t *)memchr(data, 0, size) : NULL;
    const size_t length = zero ? (size_t)(zero - data) : size;

    fuzz_template(data, length, zero ? zero + 1 : NULL, zero ? size - length - 1 : 0, MEMORY);
    fuzz_template(data, length, zero ? zero + 1 : NULL, zero ? size - length - 1 : 0, 4096 + length);
    return 0;
}
