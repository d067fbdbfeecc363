/* test_convert.c - the promises of tools/specdec-convert: every tensor arrives, the model computes what llama2.c
   computes, and what is no checkpoint is refused without leaving anything behind.
   cc -O2 -pthread -I. test_convert.c -lm; writes a few files below /tmp. */
#define SPECDEC_IMPLEMENTATION
#define main convert_main
#include "../tools/specdec-convert.c"
#undef main
#include "check.h"
#include "gguf_maker.h"
#include <math.h>

static specdec_error failure; /* of the last call that failed before there was an engine */

/* A small model with everything different: 3 layers, 4 heads of 8 that share 2 of keys and values. */
enum { DIM = 32, MLP = 64, DEPTH = 3, QUERIES = 4, SHARED = 2, HEAD = DIM / QUERIES, KEYS = SHARED * HEAD };
enum { WORDS = 301, LONG = 32 };
enum { LAYER_FLOATS = 2 * DIM * DIM + 2 * DIM * KEYS + 3 * DIM * MLP + 2 * DIM };
enum { FLOATS = 2 * WORDS * DIM + DEPTH * LAYER_FLOATS + DIM + LONG * HEAD };

/* llama2.c's TransformerWeights: where every tensor lies, written down again after run.c. */
typedef struct weights {
    const float *token_embedding, *rms_att, *wq, *wk, *wv, *wo, *rms_ffn, *w1, *w2, *w3, *rms_final, *wcls;
} weights;

static char folder[64], checkpoint[96], vocabulary[96], output[96], unfinished[96];
static unsigned char image[4 * 7 + 4 * FLOATS + 64];
static float values[FLOATS];
static weights model;
static size_t image_size;

static const float *take(size_t *at, int count)
{
    *at += (size_t)count;
    return values + *at - count;
}

/* Makes a checkpoint of random weights in `image`; own: with an output matrix of its own. */
static void make_checkpoint(int own)
{
    const int numbers[7] = {DIM, MLP, DEPTH, QUERIES, SHARED, own ? -WORDS : WORDS, LONG};
    uint64_t state = 7;
    size_t at = 0, i;

    for (i = 0; i < 7; i++)
        specdec__store_u32(image + 4 * i, (uint32_t)numbers[i]);
    for (i = 0; i < FLOATS; i++)
        values[i] = 0.5f * maker_uniform(&state);
    model.token_embedding = take(&at, WORDS * DIM);
    model.rms_att = take(&at, DEPTH * DIM);
    model.wq = take(&at, DEPTH * DIM * DIM);
    model.wk = take(&at, DEPTH * DIM * KEYS);
    model.wv = take(&at, DEPTH * DIM * KEYS);
    model.wo = take(&at, DEPTH * DIM * DIM);
    model.rms_ffn = take(&at, DEPTH * DIM);
    model.w1 = take(&at, DEPTH * DIM * MLP);
    model.w2 = take(&at, DEPTH * DIM * MLP);
    model.w3 = take(&at, DEPTH * DIM * MLP);
    model.rms_final = take(&at, DIM);
    take(&at, LONG * HEAD); /* cosines and sines */
    model.wcls = own ? take(&at, WORDS * DIM) : model.token_embedding;
    for (i = 0; i < at; i++)
        specdec__store_u32(image + 28 + 4 * i, specdec__bits_from_float(values[i]));
    image_size = 28 + 4 * at;
}

static void write_file(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");

    CHECK(file && fwrite(data, 1, size, file) == size);
    if (file)
        fclose(file);
}

/* Converts `image`, which has size bytes, and says what the program returned. Its messages go to a file. */
static int convert_into(size_t size, char *out)
{
    char program[] = "specdec-convert", a[] = "--checkpoint", b[] = "--vocabulary", c[] = "-o";
    char d[] = "--name", e[] = "tiny";
    char *words[] = {program, a, checkpoint, b, vocabulary, c, out, d, e, NULL};
    char messages[96];
    int status, kept = dup(STDERR_FILENO);

    write_file(checkpoint, image, size);
    snprintf(messages, sizeof messages, "%s/messages", folder);
    CHECK(freopen(messages, "w", stderr) != NULL);
    status = convert_main(9, words);
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(kept);
    return status;
}

static int convert(size_t size)
{
    remove(output);
    return convert_into(size, output);
}

/* Whether the last message has these words. */
static int said(const char *words)
{
    char path[96];
    size_t size;
    char *text;
    int found;

    snprintf(path, sizeof path, "%s/messages", folder);
    text = (char *)check_read_file(path, &size);
    found = text && strstr(text, words) != NULL;
    free(text);
    return found;
}

static int exists(const char *path)
{
    struct stat about;

    return stat(path, &about) == 0;
}

/* Does the model hold this tensor, of these values? */
static int holds(const specdec__gguf *gguf, const char *name, const float *expected, int columns, int rows)
{
    specdec__gguf_tensor tensor;

    return specdec__gguf_find_tensor(gguf, name, &tensor) == 1 && tensor.type == SPECDEC__TYPE_F32 &&
           tensor.shape[0] == (uint64_t)columns && tensor.shape[1] == (uint64_t)rows &&
           tensor.dimensions == (rows > 1 ? 2 : 1) &&
           memcmp(tensor.data, image + 28 + 4 * (expected - values), 4 * (size_t)columns * (size_t)rows) == 0;
}

static int holds_in_layer(const specdec__gguf *gguf, const char *name, const float *first, int columns, int rows,
                          int layer)
{
    char full[64];

    snprintf(full, sizeof full, "blk.%d.%s.weight", layer, name);
    return holds(gguf, full, first + (size_t)layer * (size_t)columns * (size_t)rows, columns, rows);
}

static void test_tensors(int own)
{
    specdec__bytes file, name;
    specdec__gguf gguf;
    specdec_error error;
    int layer;

    TEST("every tensor arrives, byte for byte, under its name");
    make_checkpoint(own);
    CHECK_EQUAL_INT(convert(image_size), PROGRAM_OK);
    CHECK(!exists(unfinished));
    file.data = check_read_file(output, &file.size);
    CHECK(file.data && !specdec__gguf_open(&gguf, file, &error));
    if (!file.data)
        return;
    CHECK_EQUAL_INT(gguf.tensor_count, 2 + 9 * DEPTH + own);
    CHECK(holds(&gguf, "token_embd.weight", model.token_embedding, DIM, WORDS));
    CHECK(holds(&gguf, "output_norm.weight", model.rms_final, DIM, 1));
    CHECK(holds(&gguf, "output.weight", model.wcls, DIM, WORDS) == own);
    for (layer = 0; layer < DEPTH; layer++) {
        CHECK(holds_in_layer(&gguf, "attn_norm", model.rms_att, DIM, 1, layer));
        CHECK(holds_in_layer(&gguf, "attn_q", model.wq, DIM, DIM, layer));
        CHECK(holds_in_layer(&gguf, "attn_k", model.wk, DIM, KEYS, layer));
        CHECK(holds_in_layer(&gguf, "attn_v", model.wv, DIM, KEYS, layer));
        CHECK(holds_in_layer(&gguf, "attn_output", model.wo, DIM, DIM, layer));
        CHECK(holds_in_layer(&gguf, "ffn_norm", model.rms_ffn, DIM, 1, layer));
        CHECK(holds_in_layer(&gguf, "ffn_gate", model.w1, DIM, MLP, layer));
        CHECK(holds_in_layer(&gguf, "ffn_down", model.w2, MLP, DIM, layer));
        CHECK(holds_in_layer(&gguf, "ffn_up", model.w3, DIM, MLP, layer));
    }
    CHECK(!specdec__gguf_get_string(&gguf, "general.name", &name, &error) && specdec__bytes_equal(name, "tiny", 4));
    free((void *)(uintptr_t)file.data);
}

/* --- llama2.c's forward, in doubles ------------------------------------------------------------------------------- */

static void norm(double *out, const double *x, const float *weight)
{
    double sum = 0;
    int i;

    for (i = 0; i < DIM; i++)
        sum += x[i] * x[i];
    for (i = 0; i < DIM; i++)
        out[i] = x[i] / sqrt(sum / DIM + 1e-5) * (double)weight[i];
}

/* out[rows] = w[rows][columns] x, or added to it */
static void multiply(double *out, const double *x, const float *w, int columns, int rows, int add)
{
    int i, j;

    for (i = 0; i < rows; i++) {
        double sum = 0;

        for (j = 0; j < columns; j++)
            sum += (double)w[i * columns + j] * x[j];
        out[i] = (add ? out[i] : 0) + sum;
    }
}

/* Rotates pairs (2i, 2i + 1) of every head. */
static void rotate(double *x, int size, int position)
{
    int i;

    for (i = 0; i < size; i += 2) {
        double angle = position * pow(10000.0, -(double)(i % HEAD) / HEAD), a = x[i], b = x[i + 1];

        x[i] = a * cos(angle) - b * sin(angle);
        x[i + 1] = a * sin(angle) + b * cos(angle);
    }
}

/* Adds one layer's attention to x. keys and values: (LONG, KEYS), filled below position. */
static void attend(double *x, int layer, int position, double *keys, double *cached)
{
    double normed[DIM], q[DIM], mixed[DIM], score[LONG];
    int h, t, i;

    norm(normed, x, model.rms_att + layer * DIM);
    multiply(q, normed, model.wq + layer * DIM * DIM, DIM, DIM, 0);
    multiply(keys + position * KEYS, normed, model.wk + layer * DIM * KEYS, DIM, KEYS, 0);
    multiply(cached + position * KEYS, normed, model.wv + layer * DIM * KEYS, DIM, KEYS, 0);
    rotate(q, DIM, position);
    rotate(keys + position * KEYS, KEYS, position);
    memset(mixed, 0, sizeof mixed);
    for (h = 0; h < QUERIES; h++) {
        const int group = h / (QUERIES / SHARED) * HEAD;
        double total = 0;

        for (t = 0; t <= position; t++) {
            for (score[t] = 0, i = 0; i < HEAD; i++)
                score[t] += q[h * HEAD + i] * keys[t * KEYS + group + i];
            total += score[t] = exp(score[t] / sqrt((double)HEAD));
        }
        for (t = 0; t <= position; t++)
            for (i = 0; i < HEAD; i++)
                mixed[h * HEAD + i] += score[t] / total * cached[t * KEYS + group + i];
    }
    multiply(x, mixed, model.wo + layer * DIM * DIM, DIM, DIM, 1);
}

/* The logits after every token, in rows of WORDS. */
static void llama2c(const int32_t *tokens, int count, double *logits)
{
    static double keys[DEPTH][LONG * KEYS], cached[DEPTH][LONG * KEYS];
    double x[DIM], normed[DIM], gate[MLP], up[MLP];
    int position, layer, i;

    for (position = 0; position < count; position++) {
        for (i = 0; i < DIM; i++)
            x[i] = (double)model.token_embedding[tokens[position] * DIM + i];
        for (layer = 0; layer < DEPTH; layer++) {
            attend(x, layer, position, keys[layer], cached[layer]);
            norm(normed, x, model.rms_ffn + layer * DIM);
            multiply(gate, normed, model.w1 + layer * DIM * MLP, DIM, MLP, 0);
            multiply(up, normed, model.w3 + layer * DIM * MLP, DIM, MLP, 0);
            for (i = 0; i < MLP; i++)
                gate[i] *= up[i] / (1 + exp(-gate[i]));
            multiply(x, gate, model.w2 + layer * DIM * MLP, MLP, DIM, 1);
        }
        norm(normed, x, model.rms_final);
        multiply(logits + position * WORDS, normed, model.wcls, DIM, WORDS, 0);
    }
}

/* Logits of `count` tokens from the converted model. */
static int engine_logits(const int32_t *tokens, int count, float *logits)
{
    specdec_config config;
    specdec *engine = NULL;
    size_t bytes;
    void *block;
    int ok;

    memset(&config, 0, sizeof config);
    config.target.path = output;
    config.threads = 1;
    config.kv = "f32";
    if (specdec_memory_needed(&config, &bytes, &failure)) {
        fprintf(stderr, "%s\n", failure.text);
        return 0;
    }
    block = malloc(bytes);
    ok = block && !specdec_init(&engine, &config, block, bytes, &failure) &&
         !specdec_prompt_logits(engine, tokens, count, logits);
    specdec_deinit(engine);
    free(block);
    return ok;
}

#if defined(__GNUC__) && !defined(__clang__)
__attribute__((optimize("no-tree-vectorize"))) /* gcc 12 for aarch64 fails here, with an internal error */
#endif
static void test_logits(int own)
{
    static double expected[20 * WORDS];
    static float logits[20 * WORDS];
    int32_t tokens[20];
    double worst = 0, largest = 0;
    int i;

    TEST("the converted model computes what llama2.c computes");
    make_checkpoint(own);
    CHECK_EQUAL_INT(convert(image_size), PROGRAM_OK);
    for (i = 0; i < 20; i++)
        tokens[i] = (1 + 37 * i) % WORDS;
    llama2c(tokens, 20, expected);
    CHECK(engine_logits(tokens, 20, logits));
    for (i = 0; i < 20 * WORDS; i++) {
        worst = fmax(worst, fabs((double)logits[i] - expected[i]));
        largest = fmax(largest, fabs(expected[i]));
    }
    CHECK(largest > 0.5);
    CHECK(worst < 1e-4 * largest);
}

/* --- what is refused ---------------------------------------------------------------------------------------------- */

/* Refused, with words that say why, and nothing is left behind. */
static void refused(size_t size, const char *why)
{
    CHECK_EQUAL_INT(convert(size), PROGRAM_FAILED);
    CHECK(said(why));
    CHECK(!exists(output) && !exists(unfinished));
}

static void test_headers(void)
{
    static const struct { int field; uint32_t value; const char *why; } bad[] = {
        {0, 0, "dim"}, {0, 0x80000000u, "dim"}, {0, 0x7fffffffu, "dim"}, {0, 26, "heads"}, {0, 4, "heads"},
        {0, DIM * 2, "bytes"}, {1, 0, "hidden_dim"}, {1, 0xffffffffu, "hidden_dim"}, {1, MLP + 1, "bytes"},
        {2, 0, "n_layers"}, {2, 401, "n_layers"}, {2, 0x7fffffffu, "n_layers"}, {2, DEPTH + 1, "bytes"},
        {3, 0, "n_heads"}, {3, 5, "heads"}, {3, 0xfffffffcu, "n_heads"},
        {4, 0, "n_kv_heads"}, {4, 3, "heads"}, {4, 8, "heads"},
        {5, 0, "vocab_size"}, {5, 0x80000000u, "vocab_size"}, {5, WORDS + 1, "bytes"},
        {6, 0, "seq_len"}, {6, LONG - 1, "bytes"}, {6, 0x7fffffffu, "seq_len"}, {0, 0x616b3432u, "version 1"}};
    size_t i;

    TEST("numbers that do not fit together, or not to the size of the file, are refused");
    for (i = 0; i < SPECDEC__COUNT(bad); i++) {
        make_checkpoint(0);
        specdec__store_u32(image + 4 * bad[i].field, bad[i].value);
        refused(image_size, bad[i].why);
    }
    TEST("the largest numbers of all fields together do not wrap around");
    for (i = 0; i < FIELDS; i++)
        specdec__store_u32(image + 4 * i, (uint32_t)limits[i].most);
    refused(image_size, "bytes");
}

static void test_same_file(void)
{
    TEST("no input is overwritten");
    make_checkpoint(0);
    CHECK_EQUAL_INT(convert_into(image_size, vocabulary), PROGRAM_FAILED);
    CHECK(said("same file") && exists(vocabulary));
}

static void test_files(void)
{
    const size_t sizes[] = {1, 27, 28, 1000};
    maker_recipe recipe;
    unsigned char *other;
    size_t i, size;

    TEST("a file that is cut off or goes on behind its end is refused");
    make_checkpoint(0);
    for (i = 0; i < SPECDEC__COUNT(sizes); i++)
        refused(sizes[i], sizes[i] < 28 ? "too short" : "bytes");
    refused(image_size - 1, "bytes");
    refused(image_size + 1, "bytes");

    TEST("weights that are no numbers are refused by the tensor's name");
    specdec__store_u32(image + 28 + 4 * (model.w2 + DIM * MLP + 5 - values), 0x7fc00000u);
    refused(image_size, "blk.1.ffn_down.weight");
    make_checkpoint(0);
    specdec__store_u32(image + image_size - 4, 0x7f800000u); /* a sine: it is not used */
    CHECK_EQUAL_INT(convert(image_size), PROGRAM_OK);

    TEST("a vocabulary of another size, or none, is refused");
    make_checkpoint(0);
    memset(&recipe, 0, sizeof recipe);
    recipe.vocab = WORDS + 1;
    other = maker_model(&recipe, &size);
    write_file(vocabulary, other, size);
    refused(image_size, "302 tokens");
    write_file(vocabulary, other, size / 2);
    refused(image_size, "vocabulary.gguf");
    write_file(vocabulary, image, image_size);
    refused(image_size, "not a GGUF file");
    free(other);
    remove(vocabulary);
    refused(image_size, "vocabulary.gguf");
}

int main(void)
{
    static const char *const names[] = {"checkpoint.bin", "vocabulary.gguf", "output.gguf", "output.gguf.part",
                                        "messages"};
    maker_recipe recipe;
    unsigned char *words;
    char path[96];
    size_t size, i;

    snprintf(folder, sizeof folder, "/tmp/specdec-convert-%d", (int)getpid());
    if (mkdir(folder, 0700) != 0)
        perror(folder);
    snprintf(checkpoint, sizeof checkpoint, "%s/%s", folder, names[0]);
    snprintf(vocabulary, sizeof vocabulary, "%s/%s", folder, names[1]);
    snprintf(output, sizeof output, "%s/%s", folder, names[2]);
    snprintf(unfinished, sizeof unfinished, "%s/%s", folder, names[3]);
    memset(&recipe, 0, sizeof recipe);
    words = maker_model(&recipe, &size);
    write_file(vocabulary, words, size);
    free(words);
    test_tensors(0);
    test_tensors(1);
    test_logits(0);
    test_logits(1);
    test_headers();
    test_same_file();
    test_files();
    for (i = 0; i < SPECDEC__COUNT(names); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        remove(path);
    }
    rmdir(folder);
    return check_report("test_convert");
}
