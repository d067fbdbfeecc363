/* fuzz_gguf.c - a GGUF of any bytes: a clear error, or an engine that writes a few tokens; never a crash.
   clang -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -pthread tests/fuzz_gguf.c -o fuzz_gguf
   FUZZ_SEEDS=corpus ./fuzz_gguf -runs=0; ./fuzz_gguf -max_len=40000 corpus
   (the first call writes tiny models of every architecture and several types into the folder corpus, which must exist) */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
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
    for (i = 0; folder && i < 10; i++) {
        maker_heads_recipe h;
        maker_recipe r;
        unsigned char *data;
        size_t size;
        char path[512];
        FILE *file;

        memset(&r, 0, sizeof r);
        r.architecture = specdec__architectures[i % (int)SPECDEC__COUNT(specdec__architectures)].name;
        r.types[0] = types[i % 8] + 1;
        r.layers = 1;
        r.embedding = r.feed_forward = 32;
        r.heads = 2;
        r.kv_heads = 1 + i % 2;
        r.vocab = 262;
        r.version = 2 + i % 2;
        r.output_type = i % 4 ? 0 : types[i % 8] + 1;
        r.may_end = 1;
        memset(&h, 0, sizeof h);
        h.medusa = i % 2;
        h.embedding = h.inner = 32;
        h.vocab = 262;
        h.guesses = 2;
        h.rows = 20;
        data = i < 8 ? maker_model(&r, &size) : maker_heads(&h, &size);
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

/* Reads all that the public reader shows of a file: it must lie inside. */
static void read_all(const uint8_t *data, size_t size)
{
    unsigned sum = 0;
    specdec_gguf gguf;
    specdec_gguf_pair pair;
    specdec_gguf_tensor tensor;
    specdec_bytes text;
    float values[256];
    size_t place, inner;
    uint64_t i;
    double real;

    failure.text[0] = 0;
    if (specdec_gguf_open(&gguf, data, size, &failure) && !failure.text[0])
        abort();
    for (place = 0; specdec_gguf_next_pair(&gguf, &place, &pair);) {
        for (inner = 0; specdec_gguf_next_string(&pair.value, &inner, &text);)
            sum += text.size ? text.data[text.size - 1] : 0u;
        for (i = 0; i < 1000 && specdec_gguf_real(&pair.value, i, &real); i++)
            sum += real > 0;
        sum += pair.record.data[pair.record.size - 1];
    }
    for (place = 0; specdec_gguf_next_tensor(&gguf, &place, &tensor);)
        if (!specdec_type_bytes(tensor.type, 256, &inner, NULL) && inner <= tensor.size &&
            !specdec_type_to_float(tensor.type, tensor.data, 256, values, NULL))
            sum += values[0] > 0;
    if (sum == 0xffffffffu) /* it is looked at */
        puts("so many");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned char *block;
    specdec_config c;
    specdec *engine;
    specdec_text piece;
    size_t bytes = 0;
    int i;

    read_all(data, size);
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
