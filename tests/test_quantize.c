/* test_quantize.c - the promises of tools/specdec-quantize about values and types: what a type can hold is written, what it
   cannot is refused; rows that blocks of 256 do not fit get a type of about the same size; and the summary says so.
   cc -O2 -pthread -I. test_quantize.c -lm; writes a few files below /tmp. */
#define SPECDEC_IMPLEMENTATION
#define main quantize_main
#include "../tools/specdec-quantize.c"
#undef main
#include "check.h"
#include "gguf_maker.h"
#include <sys/wait.h>

static char folder[64], input[96], output[96], messages[96];
static maker made;

/* Writes `made` to the input file. */
static void write_input(void)
{
    maker_buffer *image = maker_write(&made);
    FILE *file = fopen(input, "wb");

    CHECK(file && fwrite(image->data, 1, image->size, file) == image->size);
    if (file)
        fclose(file);
}

/* Quantises the input in a process of its own; all that it says goes to a file. Returns its exit status. */
static int quantize(const char *type)
{
    char program[] = "specdec-quantize", name[16];
    char *words[] = {program, input, output, name, NULL};
    int status = -1;
    pid_t child;

    snprintf(name, sizeof name, "%s", type);
    remove(output);
    fflush(NULL);
    child = fork();
    if (child == 0) {
        if (!freopen(messages, "w", stdout) || dup2(STDOUT_FILENO, STDERR_FILENO) < 0)
            _exit(99);
        status = quantize_main(4, words);
        fflush(NULL);
        _exit(status);
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Whether the last run said these words. */
static int said(const char *words)
{
    size_t size;
    char *text = (char *)check_read_file(messages, &size);
    int found = text && strstr(text, words) != NULL;

    free(text);
    return found;
}

/* A tensor of the output: count values of it, and whether it is the input's byte for byte, where these are asked for. Returns
   the number of its type, or -1. */
static int read_output(const char *name, float *values, size_t count, int *is_copy)
{
    specdec_bytes file = {NULL, 0};
    specdec_gguf gguf;
    specdec_gguf_tensor tensor;
    maker_tensor *origin = maker_find_tensor(&made, name);
    int type = -1;

    file.data = check_read_file(output, &file.size);
    if (file.data && !specdec_gguf_open(&gguf, file.data, file.size, NULL) && specdec_gguf_find_tensor(&gguf, name, &tensor)) {
        type = (int)tensor.type;
        if (values)
            specdec_type_to_float(tensor.type, tensor.data, count, values, NULL);
        if (is_copy)
            *is_copy = origin && origin->type == tensor.type && memcmp(origin->data.data, tensor.data, origin->data.size) == 0;
    }
    free((void *)(uintptr_t)file.data);
    return type;
}

static int number_of(const char *name)
{
    specdec_type type;

    return specdec_type_by_name(name, &type) ? (int)type.number : -2;
}

/* Row 0 of a matrix of F32 becomes `first` at place 0, the rest as small as a hundredth of it. */
static void set_row(const char *name, float first)
{
    maker_tensor *t = maker_find_tensor(&made, name);
    uint64_t i;

    for (i = 0; i < t->shape[0]; i++)
        specdec__store_u32(t->data.data + 4 * i, specdec__bits_from_float(i ? first / 100 * (float)(i % 7) : first));
}

static void test_large_values(void)
{
    static const char name[] = "blk.0.ffn_up.weight";
    static const struct { const char *type; float value; int holds; } cases[] = {
        {"Q8_0", 1e6f, 1}, {"Q8_0", -8e6f, 1}, {"Q8_0", 1e7f, 0}, {"Q4_0", 4e5f, 1}, {"Q4_0", 1e6f, 0},
        {"Q4_1", 60000, 1}, {"Q4_1", 3e5f, 1}, {"Q4_1", -3e5f, 0}, {"Q5_0", 9e5f, 1}, {"Q5_0", 2e6f, 0}, {"Q5_1", 1e6f, 1},
        {"Q4_K_M", 1e7f, 1}, {"Q4_K_M", 3e38f, 0}, {"F16", 65504, 1}, {"F16", 65530, 0}, {"F16", 1e6f, 0}, {"F32", 3e38f, 1},
        {"Q8_0", 3e38f, 0}, {"Q8_0", INFINITY, 0}, {"Q4_0", -INFINITY, 0}, {"Q5_1", NAN, 0}, {"F16", NAN, 0}};
    maker_recipe recipe;
    float values[256];
    size_t i;

    memset(&recipe, 0, sizeof recipe);
    recipe.embedding = 256;
    recipe.heads = 4;
    recipe.layers = 8; /* so that ffn_up of layer 0 is Q4_K in Q4_K_M */
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        TEST("a weight is refused only if its type cannot hold it");
        maker_begin(&made, &recipe);
        set_row(name, cases[i].value);
        write_input();
        if ((quantize(cases[i].type) == PROGRAM_OK) != cases[i].holds) {
            fprintf(stderr, "%s, %g\n", cases[i].type, (double)cases[i].value);
            CHECK(0);
        } else if (cases[i].holds) {
            CHECK(read_output(name, values, 256, NULL) >= 0);
            CHECK(fabsf(values[0] - cases[i].value) <= 0.03f * fabsf(cases[i].value));
        } else {
            TEST("what is refused is named, with its type, and no file is left");
            CHECK(said(name) && said("too large for"));
            CHECK(access(output, F_OK) != 0);
        }
        maker_free(&made);
    }
}

/* Makes a model of three layers with rows that long; type: of its matrices, + 1; 0: F32. */
static void make_rows(int embedding, int feed_forward, int type)
{
    maker_recipe recipe;

    memset(&recipe, 0, sizeof recipe);
    recipe.embedding = embedding;
    recipe.feed_forward = feed_forward;
    recipe.heads = 1;
    recipe.kv_heads = 1;
    recipe.head_dim = 32;
    recipe.layers = 3;
    recipe.types[0] = type;
    maker_begin(&made, &recipe);
}

/* Matrices of F32 become what they would be after a type: values that it gives back exactly. */
static void pass_through(const char *type)
{
    float values[1024];
    unsigned char row[4096];
    uint64_t i, k;
    int n;

    for (n = 0; n < made.tensors; n++)
        for (i = 0; made.tensor[n].dimensions == 2 && i < made.tensor[n].shape[1]; i++) {
            size_t count = (size_t)made.tensor[n].shape[0];
            unsigned char *at = made.tensor[n].data.data + 4 * i * count;

            specdec_type_to_float(SPECDEC__TYPE_F32, at, count, values, NULL);
            specdec_type_from_float((uint32_t)number_of(type), values, count, row, NULL);
            specdec_type_to_float((uint32_t)number_of(type), row, count, values, NULL);
            for (k = 0; k < count; k++)
                specdec__store_u32(at + 4 * k, specdec__bits_from_float(values[k]));
        }
}

static void test_fallbacks(void)
{
    static const char up[] = "blk.1.ffn_up.weight", down[] = "blk.1.ffn_down.weight", v[] = "blk.2.attn_v.weight";
    int same = 0;

    TEST("Q4_K falls back to Q5_0, Q6_K to Q8_0, where rows are no multiple of 256; other matrices do not");
    make_rows(96, 512, 0);
    write_input();
    CHECK_EQUAL_INT(quantize("q4_k_m"), PROGRAM_OK);
    CHECK_EQUAL_INT(read_output(up, NULL, 0, NULL), number_of("Q5_0"));
    CHECK_EQUAL_INT(read_output(v, NULL, 0, NULL), number_of("Q8_0"));
    CHECK_EQUAL_INT(read_output(down, NULL, 0, NULL), number_of("Q4_K"));
    CHECK_EQUAL_INT(read_output("blk.2.ffn_down.weight", NULL, 0, NULL), number_of("Q6_K"));
    TEST("the summary counts them, and what they cost");
    CHECK(said("Q5_0 instead of Q4_K: 17 tensors whose rows are no multiple of 256, 0.0 MB more"));
    CHECK(said("Q8_0 instead of Q6_K: 2 tensors"));
    CHECK(!said("F16") && !said("Q4_1"));
    maker_free(&made);

    TEST("weights that were Q4_1 stay so: that is smaller and loses nothing");
    make_rows(288, 576, number_of("Q4_1") + 1);
    write_input();
    CHECK_EQUAL_INT(quantize("Q4_K_M"), PROGRAM_OK);
    CHECK_EQUAL_INT(read_output(up, NULL, 0, &same), number_of("Q4_1"));
    CHECK(same == 1 && said("Q4_1 instead of Q4_K"));
    CHECK_EQUAL_INT(quantize("Q5_K_M"), PROGRAM_OK);
    CHECK_EQUAL_INT(read_output(up, NULL, 0, &same), number_of("Q4_1"));
    CHECK(same == 1 && said("Q4_1 instead of Q5_K"));
    maker_free(&made);

    TEST("also if they came by way of F32");
    make_rows(160, 320, 0);
    pass_through("Q4_1");
    write_input();
    CHECK_EQUAL_INT(quantize("Q4_K_M"), PROGRAM_OK);
    CHECK_EQUAL_INT(read_output(up, NULL, 0, NULL), number_of("Q4_1"));
    maker_free(&made);

    TEST("Q5_K falls back to Q5_1");
    make_rows(96, 512, 0);
    write_input();
    CHECK_EQUAL_INT(quantize("Q5_K_M"), PROGRAM_OK);
    CHECK_EQUAL_INT(read_output(up, NULL, 0, NULL), number_of("Q5_1"));
    CHECK_EQUAL_INT(read_output(v, NULL, 0, NULL), number_of("Q8_0"));
    CHECK_EQUAL_INT(read_output(down, NULL, 0, NULL), number_of("Q5_K"));
    CHECK(said("Q5_1 instead of Q5_K: 17 tensors") && said("Q8_0 instead of Q6_K: 2 tensors"));
    maker_free(&made);

    TEST("weights that were Q5_0 stay so");
    make_rows(160, 320, 0);
    pass_through("Q5_0");
    write_input();
    CHECK_EQUAL_INT(quantize("Q4_K_M"), PROGRAM_OK);
    CHECK_EQUAL_INT(read_output(up, NULL, 0, NULL), number_of("Q5_0"));
    maker_free(&made);
}

static void test_short_rows(void)
{
    static const char *const types[] = {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K_M", "Q5_K_M"};
    static const char name[] = "blk.0.ffn_down.weight"; /* rows of 48, which no blocks fit */
    size_t i;

    TEST("rows that no blocks fit are F16, whatever was wanted");
    make_rows(64, 48, 0);
    write_input();
    for (i = 0; i < sizeof types / sizeof *types; i++) {
        CHECK_EQUAL_INT(quantize(types[i]), PROGRAM_OK);
        CHECK_EQUAL_INT(read_output(name, NULL, 0, NULL), number_of("F16"));
        CHECK(said(i < 5 ? "F16 instead of" : "F16 instead of Q6_K: 1 tensor whose") && said(i < 5 ? types[i] : i == 5 ? "Q4_K" : "Q5_K"));
    }
    maker_free(&made);
}

static void test_types(void)
{
    static const char *const types[] = {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "F16", "F32"};
    static const char name[] = "blk.1.ffn_up.weight";
    size_t i;

    TEST("every type can be asked for; vectors stay F32");
    make_rows(256, 512, 0);
    write_input();
    for (i = 0; i < sizeof types / sizeof *types; i++) {
        CHECK_EQUAL_INT(quantize(types[i]), PROGRAM_OK);
        CHECK_EQUAL_INT(read_output(name, NULL, 0, NULL), number_of(types[i]));
        CHECK_EQUAL_INT(read_output("blk.1.ffn_norm.weight", NULL, 0, NULL), number_of("F32"));
        CHECK(!said("instead"));
    }
    maker_free(&made);
}

int main(void)
{
    snprintf(folder, sizeof folder, "/tmp/specdec-quantize-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    snprintf(input, sizeof input, "%s/in.gguf", folder);
    snprintf(output, sizeof output, "%s/out.gguf", folder);
    snprintf(messages, sizeof messages, "%s/messages", folder);
    test_large_values();
    test_fallbacks();
    test_short_rows();
    test_types();
    remove(input);
    remove(output);
    remove(messages);
    rmdir(folder);
    return check_report("test_quantize");
}
