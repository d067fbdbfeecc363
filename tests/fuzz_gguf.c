/* fuzz_gguf.c - a GGUF of any bytes: a clear error, or an engine that writes a few tokens; never a crash.
   clang -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -pthread tests/fuzz_gguf.c -o fuzz_gguf
   FUZZ_SEEDS=corpus ./fuzz_gguf -runs=0; ./fuzz_gguf -max_len=40000 corpus
   (the first call writes tiny models of every architecture and several types into the folder corpus, which must exist) */
#define SPECDEC_IMPLEMENTATION
#include "../specdec.h"
#include "gguf_maker.h"

static specdec_error failure; /* of the last call that failed before there was an engine */

#define ROOM ((size_t)64 << 20) /* larger engines are left alone */

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const int types[] = {0, 1, 8, 2, 6, 7, 20, 30};
    const char *folder = getenv("FUZZ_SEEDS");
    int i;

    (void)argc;
    (void)argv;
    for (i = 0; folder && i < 8; i++) {
        maker_recipe r;
        unsigned char *data;
        size_t size;
        char path[512];
        FILE *file;

        memset(&r, 0, sizeof r);
        r.architecture = specdec__architectures[i % (int)SPECDEC__COUNT(specdec__architectures)].name;
        r.types[0] = types[i] + 1;
        r.layers = 1;
        r.embedding = r.feed_forward = 32;
        r.heads = 2;
        r.kv_heads = 1 + i % 2;
        r.vocab = 262;
        r.version = 2 + i % 2;
        r.output_type = i % 4 ? 0 : types[i] + 1;
        r.may_end = 1;
        data = maker_model(&r, &size);
        snprintf(path, sizeof path, "%s/seed-%d.gguf", folder, i);
        file = fopen(path, "wb");
        if (!file || fwrite(data, 1, size, file) != size)
            perror(path);
        if (file)
            fclose(file);
        free(data);
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned char *block;
    specdec_config c;
    specdec *engine;
    specdec_text piece;
    size_t bytes = 0;
    int i;

    if (!block)
        block = (unsigned char *)malloc(ROOM);
    memset(&c, 0, sizeof c);
    c.target.data = data;
    c.target.size = size;
    if (size % 3 == 0)
        c.draft = c.target;
    c.threads = 1;
    c.batch = 8;
    c.context = 48;
    c.weights_in_place = (int)(size & 1);
    c.settings.sampling.temperature = size % 5 ? 0.0f : 0.9f;
    if (specdec_memory_needed(&c, &bytes, &failure)) {
        if (!failure.text[0])
            abort();
        return 0;
    }
    if (bytes > ROOM)
        return 0;
    if (specdec_init(&engine, &c, block, bytes, &failure)) {
        if (!failure.text[0] || engine)
            abort();
        return 0;
    }
    if (!specdec_prompt(engine, "ab c\xff", SPECDEC_WHOLE_STRING))
        for (i = 0; i < 12 && !specdec_next(engine, &piece); i++)
            if (!piece.length)
                abort();
    specdec_deinit(engine);
    return 0;
}
