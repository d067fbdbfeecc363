/* fuzz_template.c - libFuzzer target for >>text/template: any template over any messages, in bounded time and memory.
 *
 * clang -g -O1 -fsanitize=fuzzer,address,undefined -I. tests/fuzz_template.c -o build/fuzz_template
 * build/fuzz_template -max_len=65536 -timeout=10 CORPUS_FOLDER
 *
 * Input: a template, a zero byte, and a JSON object whose members the template may use, and which is also read as a
 * request with messages and tools. Real templates with the messages of their cases make a good corpus. */
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
    specdec__template_init(t, specdec__template_as_bytes(text, length), memory, bytes, output, plain, OUTPUT);
    values = specdec__template_read_json(t, specdec__template_as_bytes(given, given_size));
    for (i = 0; values.kind == SPECDEC__TEMPLATE_DICT && i < values.size; i++)
        specdec__template_define_variable(t, specdec__template_list_items(&values)[2 * i],
                                          specdec__template_list_items(&values)[2 * i + 1]);
    t->local_time = 1000000000;
    specdec__template_render(t);
    if (t->output_bytes > OUTPUT || t->work > SPECDEC__TEMPLATE_MAX_WORK + (1 << 24) || (t->failed && t->line < 1))
        abort();
    free(plain);
    free(output);
    free(memory);
    free(t);
}

/* Reads the JSON as a request, renders it, and takes what was written apart as if it were an answer. */
static void fuzz_conversation(const uint8_t *text, size_t length, const uint8_t *given, size_t given_size, size_t bytes)
{
    unsigned char *memory = (unsigned char *)malloc(bytes), *plain = (unsigned char *)calloc(1, OUTPUT / 8);
    char *output = (char *)malloc(OUTPUT);
    specdec__conversation_work work;
    specdec_chat_input input;
    specdec__chat_text out;
    specdec__arena arena;
    specdec__vocab v;
    specdec_error error;
    specdec_splitter splitter;
    specdec_part part;
    size_t i, parts;

    if (!memory || !output || !plain)
        abort();
    memset(&v, 0, sizeof v);
    v.bos = v.eos = -1;
    arena.base = memory;
    arena.size = bytes;
    arena.used = 0;
    out.text = output;
    out.marks = plain;
    out.size = OUTPUT;
    out.needed = 0;
    if (!specdec__conversation_read((const char *)given, given_size, &arena, &input, &error) &&
        !specdec__conversation_check_input(&input, OUTPUT, &error)) {
        arena.used = (arena.used + 63) & ~(size_t)63;
        work.vocab = &v;
        work.text = specdec__template_as_bytes(text, length);
        work.memory = memory + arena.used;
        work.memory_bytes = arena.used < bytes ? bytes - arena.used : 0;
        work.local_time = 1000000000;
        if (!specdec__conversation_render(&work, &input, &out, &error) && out.needed > OUTPUT)
            abort();
    }
    for (i = 0; i < SPECDEC__COUNT(specdec__call_table); i++) {
        specdec__answer_begin_splitter(&splitter, &specdec__call_table[i],
                                       &specdec__thought_table[i % SPECDEC__COUNT(specdec__thought_table)],
                                       (int)(i & 1));
        specdec__answer_push_bytes(&splitter, (const char *)given, given_size);
        for (parts = 0; specdec__answer_next_part(&splitter, &part); parts++)
            if (part.text.length > sizeof splitter.bytes || parts > 4 * given_size + 8)
                abort();
        specdec__answer_push_bytes(&splitter, NULL, 0);
        while (specdec__answer_next_part(&splitter, &part))
            ;
    }
    free(plain);
    free(output);
    free(memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size ? (const uint8_t *)memchr(data, 0, size) : NULL;
    const size_t length = zero ? (size_t)(zero - data) : size;

    fuzz_template(data, length, zero ? zero + 1 : NULL, zero ? size - length - 1 : 0, MEMORY);
    fuzz_template(data, length, zero ? zero + 1 : NULL, zero ? size - length - 1 : 0, 4096 + length);
    if (zero)
        fuzz_conversation(data, length, zero + 1, size - length - 1, MEMORY);
    return 0;
}
