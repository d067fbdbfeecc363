/* fuzz_text.c - libFuzzer target for >>text: damaged vocabularies, any text, tokens back to text, stop strings.
 *
 * clang -g -O1 -fsanitize=fuzzer,address,undefined -I. tests/fuzz_text.c -o build/fuzz_text
 * build/fuzz_text -max_len=65536 CORPUS_FOLDER
 *
 * Input: two bytes of length, then that many bytes of text, then a GGUF file. Copies of small vocabulary files with two
 * zero bytes in front make a good corpus. */
#define SPECDEC_NO_SIMD /* no kernels are run: builds in a third of the time */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include <stdlib.h>

#ifdef __cplusplus
extern "C"
#endif
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Tokenizes a text, brings the tokens back and sends them through a stop scan. */
static void fuzz_text(const specdec__vocab *v, const char *text, size_t length, int flags)
{
    size_t scratch_size = specdec__tokenize_scratch_bytes(v, length), count = 0, i, written, room = (size_t)v->longest_bytes + 3;
    int32_t *tokens = (int32_t *)malloc((4 * length + 8) * sizeof *tokens);
    unsigned char *out = (unsigned char *)malloc(room);
    unsigned char *passed = (unsigned char *)malloc(room + SPECDEC__STOP_MAX_BYTES);
    void *scratch = malloc(scratch_size);
    specdec__text_decoder stream;
    specdec__stop_scan scan;

    memset(&scan, 0, sizeof scan);
    if (length)
        specdec__stop_add_string(&scan, text, length < 8 ? length : 8, NULL);
    if (specdec__tokenize(v, text, length, flags, NULL, tokens, 4 * length + 8, &count, scratch, scratch_size, NULL))
        abort();
    specdec__text_decoder_begin(&stream, v, -1, flags & 1);
    for (i = 0; i < count; i++) {
        if (specdec__text_decoder_push(&stream, v, tokens[i], out, room, &written, NULL) || written > room)
            abort();
        if (specdec__stop_push_bytes(&scan, out, written, passed, room + SPECDEC__STOP_MAX_BYTES, &written, NULL))
            abort();
    }
    free(tokens);
    free(out);
    free(passed);
    free(scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t length = size < 2 ? 0 : specdec__load_u16(data);
    specdec__bytes file;
    specdec__gguf gguf;
    specdec__vocab v;
    specdec__arena arena;
    int flags;

    if (size < 2 || length > size - 2)
        return 0;
    file.data = data + 2 + length;
    file.size = size - 2 - length;
    memset(&arena, 0, sizeof arena);
    if (specdec__gguf_open(&gguf, file, NULL) || specdec__vocab_init(&v, &gguf, &arena, NULL))
        return 0;
    arena.base = (unsigned char *)malloc(arena.size = arena.used);
    arena.used = 0;
    if (!arena.base || specdec__vocab_init(&v, &gguf, &arena, NULL) || arena.used != arena.size)
        abort();
    for (flags = 0; flags < 8; flags++)
        fuzz_text(&v, (const char *)data + 2, length, flags);
    free(arena.base);
    return 0;
}
