/* test_broken_files.c - files that contradict themselves are refused in words, and what files may spell in several ways is read
   alike: tensors that overlap, names that occur twice, facts that are missing, fused tensors, types and architectures that are
   not read. cc -O2 -pthread -I. test_broken_files.c -lm, run from the repository's root; writes a few files below /tmp. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "skipping_clock.h"
#define SPECDEC_CLUSTER
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "check.h"
#include "gguf_maker.h"
#include "ranks.h"
#include <math.h>
#include <unistd.h>

static specdec_error failure; /* of the last call that failed */

/* The error names something. */
static int names(const char *word)
{
    if (!strstr(failure.text, word))
        fprintf(stderr, "\"%s\" does not name %s\n", failure.text, word);
    return strstr(failure.text, word) != NULL;
}

/* A llama-like model of two layers of F32. */
static maker *new_maker(const char *architecture)
{
    maker *m = (maker *)malloc(sizeof *m);
    maker_recipe r;

    memset(&r, 0, sizeof r);
    r.architecture = architecture;
    r.apart = 1;
    r.output_type = 1;
    r.seed = 5;
    maker_begin(m, &r);
    return m;
}

static void end_maker(maker *m)
{
    maker_free(m);
    free(m);
}

enum { VOCAB = 301, NODES = 6 };

static const char *isa; /* NULL: the best */
static int threads = 1;

/* Logits (NODES + 1, VOCAB) of a model in memory: first none, as there is no text, then those behind each token. */
static specdec_result logits_with(const unsigned char *data, size_t size, const char *kv, int in_place, float *logits)
{
    static const int32_t tokens[NODES] = {40, 77, 262, 280, 275, 290}, parents[NODES] = {-1, 0, 1, 2, 3, 4};
    specdec_config c;
    specdec *engine = NULL;
    specdec_result r;
    size_t bytes = 0;
    void *block = NULL;

    memset(&c, 0, sizeof c);
    c.target.data = data;
    c.target.size = size;
    c.threads = threads;
    c.context = 64;
    c.kv = kv;
    c.weights_in_place = in_place;
    c.isa = isa;
    memset(logits, 0, VOCAB * (NODES + 1) * sizeof *logits);
    r = specdec_memory_needed(&c, &bytes, &failure);
    if (!r) {
        block = malloc(bytes);
        r = block ? specdec_init(&engine, &c, block, bytes, &failure) : SPECDEC_ERROR_MEMORY;
    }
    if (!r) {
        r = specdec_logits(engine, tokens, parents, NODES, logits);
        if (r)
            snprintf(failure.text, sizeof failure.text, "%s", specdec_error_text(engine));
    }
    specdec_deinit(engine);
    free(block);
    return r;
}

/* Those of what the maker has written. */
static specdec_result logits_of(const maker *m, float *logits)
{
    return logits_with(m->file.data, m->file.size, NULL, 0, logits);
}

/* Whether the maker's file is refused with this error. */
static int refused(maker *m, specdec_result result)
{
    static float logits[VOCAB * (NODES + 1)];

    maker_write(m);
    return logits_of(m, logits) == result;
}

static maker_tensor *tensor_of(maker *m, const char *name)
{
    maker_tensor *t = maker_find_tensor(m, name);

    if (!t)
        abort();
    return t;
}

/* --- neighbours ------------------------------------------------------------------------------------------------------ */

/* The place in the finished file where the offset of tensor `index` is written. */
static unsigned char *offset_at(maker *m, int index)
{
    int i;

    for (i = 0; i < m->fields; i++)
        if (strcmp(m->field[i].what, "tensor offset") == 0 && !index--)
            return m->file.data + m->field[i].at;
    abort();
}

static void test_overlaps(void)
{
    static float logits[VOCAB * (NODES + 1)];
    maker *m = new_maker("llama");
    maker_tensor *t;
    size_t size;
    int i;

    TEST("a tensor whose data are shorter than its type and shape say is refused by name, and so is the one behind it named");
    t = tensor_of(m, "blk.0.ffn_up.weight");
    size = t->data.size;
    t->data.size /= 2;
    CHECK(refused(m, SPECDEC_ERROR_FORMAT) && names("blk.0.ffn_up.weight") && names("reaches into tensor blk.0.ffn_down.weight"));
    t->data.size -= 32; /* one alignment short */
    t->data.size = size - 32;
    CHECK(refused(m, SPECDEC_ERROR_FORMAT) && names("blk.0.ffn_up.weight"));
    TEST("so is one whose data are longer");
    t->data.size = size;
    maker_put_number(&t->data, 0, 1);
    CHECK(refused(m, SPECDEC_ERROR_FORMAT) && names("blk.0.ffn_up.weight"));
    t->data.size = size;
    TEST("a type that does not fit the data, either way, and a shape");
    t->type = 1;
    CHECK(refused(m, SPECDEC_ERROR_FORMAT) && names("blk.0.ffn_up.weight"));
    t->type = 28;
    CHECK(refused(m, SPECDEC_ERROR_FORMAT) && names("blk.0.ffn_up.weight"));
    t->type = 0;
    t->shape[1] += 16;
    CHECK(refused(m, SPECDEC_ERROR_FORMAT) && names("blk.0.ffn_up.weight"));
    t->shape[1] -= 16;
    TEST("two tensors at one place, and data that do not begin the file's");
    maker_write(m);
    memcpy(offset_at(m, 5), offset_at(m, 4), 8);
    CHECK(logits_of(m, logits) == SPECDEC_ERROR_FORMAT && names(m->tensor[5].name) && names(m->tensor[4].name));
    m->tensor[0].data.size -= 32; /* the last of all that it has */
    CHECK(refused(m, SPECDEC_ERROR_FORMAT) && names(m->tensor[0].name));
    m->tensor[0].data.size += 32;
    TEST("data in another order than their records are read as before");
    maker_write(m);
    CHECK_EQUAL_INT(logits_of(m, logits), SPECDEC_OK);
    {
        static float other[VOCAB * (NODES + 1)];
        maker_tensor first = m->tensor[0];

        for (i = 0; i + 1 < m->tensors; i++)
            m->tensor[i] = m->tensor[i + 1];
        m->tensor[i] = first;
        maker_write(m); /* the records' order changes with the data's; then only the records' is changed back */
        CHECK_EQUAL_INT(logits_of(m, other), SPECDEC_OK);
        CHECK(memcmp(logits, other, sizeof other) == 0);
    }
    end_maker(m);
}

/* Swaps the data of two tensors of the same size in a finished file, with their offsets. */
static void test_order(void)
{
    static float logits[VOCAB * (NODES + 1)], other[VOCAB * (NODES + 1)];
    maker *m = new_maker("llama");
    const char *const a = "blk.0.ffn_up.weight", *const b = "blk.1.ffn_gate.weight";
    unsigned char eight[8], *of_a, *of_b, *room;
    size_t size = tensor_of(m, a)->data.size;
    specdec_gguf gguf;
    specdec_gguf_tensor at_a, at_b;

    TEST("records whose data lie in another order are read alike");
    maker_write(m);
    CHECK_EQUAL_INT(logits_of(m, logits), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_gguf_open(&gguf, m->file.data, m->file.size, &failure), SPECDEC_OK);
    CHECK(specdec_gguf_find_tensor(&gguf, a, &at_a) && specdec_gguf_find_tensor(&gguf, b, &at_b));
    of_a = offset_at(m, (int)(tensor_of(m, a) - m->tensor));
    of_b = offset_at(m, (int)(tensor_of(m, b) - m->tensor));
    memcpy(eight, of_a, 8);
    memcpy(of_a, of_b, 8);
    memcpy(of_b, eight, 8);
    room = (unsigned char *)malloc(size);
    memcpy(room, at_a.data, size);
    memcpy(m->file.data + (at_a.data - m->file.data), at_b.data, size);
    memcpy(m->file.data + (at_b.data - m->file.data), room, size);
    CHECK_EQUAL_INT(logits_of(m, other), SPECDEC_OK);
    CHECK(memcmp(logits, other, sizeof other) == 0);
    free(room);
    end_maker(m);
}

static void test_twice(void)
{
    maker *m = new_maker("llama");
    char name[64];
    int i;

    TEST("a key that occurs twice is named, next to the other one, far behind it, and with the same value");
    m->pair[m->pairs] = m->pair[2];
    memset(&m->pair[m->pairs].value, 0, sizeof m->pair[0].value);
    maker_put_number(&m->pair[m->pairs++].value, 64, 4);
    CHECK(refused(m, SPECDEC_ERROR_FORMAT) && names(m->pair[2].key) && names("occurs twice"));
    for (i = 0; i < 150; i++) {
        snprintf(name, sizeof name, "some.key.%d", i);
        maker_u32(m, name, 1);
    }
    CHECK(refused(m, SPECDEC_ERROR_FORMAT) && names(m->pair[2].key) && names("occurs twice"));
    snprintf(m->pair[2].key, sizeof m->pair[2].key, "some.key.149");
    CHECK(refused(m, SPECDEC_ERROR_FORMAT) && names("some.key.149") && names("occurs twice"));
    snprintf(m->pair[2].key, sizeof m->pair[2].key, "other");
    CHECK(refused(m, SPECDEC_OK));
    TEST("so is a tensor, though nobody would look for it");
    for (i = 0; i < 150; i++) {
        snprintf(name, sizeof name, "blk.0.some.%d", i % 149);
        maker_add_tensor(m, name, 0, 32, 0);
        m->tensor[m->tensors - 1].data.data = (unsigned char *)calloc(1, 128);
        m->tensor[m->tensors - 1].data.size = 128;
    }
    CHECK(refused(m, SPECDEC_ERROR_FORMAT) && names("tensor blk.0.some.0 occurs twice"));
    end_maker(m);
}

/* --- facts ----------------------------------------------------------------------------------------------------------- */

/* The second of two layers has no window. */
static void put_pattern(maker *m)
{
    maker_buffer *list = maker_array(m, "gemma3.attention.sliding_window_pattern", 7, 2);

    maker_put_number(list, 1, 2);
}

static void test_facts(void)
{
    static float one[VOCAB * (NODES + 1)], other[VOCAB * (NODES + 1)];
    maker *m;
    char key[80];
    size_t a;

    for (a = 0; a < maker_writers(); a++) {
        const specdec__architecture *row = &specdec__architectures[a];

        TEST("a file without an epsilon is refused by name");
        m = new_maker(row->name);
        snprintf(key, sizeof key, "%s.attention.layer_norm_%sepsilon", row->name, specdec__architecture_trait(row, SPECDEC__LAYER_NORM) ? "" : "rms_");
        maker_remove_pair(m, key);
        CHECK(refused(m, SPECDEC_ERROR_FORMAT) && names(key) && names("is missing"));
        maker_f32(m, key, 1e-5f);
        TEST("one without the base of RoPE is, too, or it has that of the architecture's row");
        maker_write(m);
        CHECK_EQUAL_INT(logits_of(m, one), SPECDEC_OK);
        snprintf(key, sizeof key, "%s.rope.freq_base", row->name);
        maker_remove_pair(m, key);
        maker_write(m);
        if (specdec__architecture_trait(row, SPECDEC__ROPE_BASE) > 0)
            CHECK(logits_of(m, other) == SPECDEC_OK && memcmp(one, other, sizeof one) == 0);
        else
            CHECK(logits_of(m, other) == SPECDEC_ERROR_FORMAT && names(key) && names("is missing"));
        snprintf(key, sizeof key, "%s.context_length", row->name);
        maker_remove_pair(m, key);
        CHECK(refused(m, SPECDEC_ERROR_FORMAT));
        end_maker(m);
        if (strncmp(row->name, "granite", 7))
            continue;
        TEST("so is one of granite's without the scale of its logits");
        m = new_maker(row->name);
        snprintf(key, sizeof key, "%s.logit_scale", row->name);
        maker_remove_pair(m, key);
        CHECK(refused(m, SPECDEC_ERROR_FORMAT) && names("logit_scale is missing"));
        end_maker(m);
    }
    TEST("the bases as Ollama spells them");
    m = new_maker("gemma3");
    put_pattern(m);
    maker_f32(m, "gemma3.rope.freq_base", 1e6f);
    maker_f32(m, "gemma3.rope.freq_base_swa", 500);
    maker_write(m);
    CHECK_EQUAL_INT(logits_of(m, one), SPECDEC_OK);
    maker_remove_pair(m, "gemma3.rope.freq_base");
    maker_remove_pair(m, "gemma3.rope.freq_base_swa");
    maker_f32(m, "gemma3.rope.global.freq_base", 1e6f);
    maker_f32(m, "gemma3.rope.local.freq_base", 500);
    maker_write(m);
    CHECK(logits_of(m, other) == SPECDEC_OK && memcmp(one, other, sizeof one) == 0);
    maker_f32(m, "gemma3.rope.global.freq_base", 1e5f);
    maker_write(m);
    CHECK(logits_of(m, other) == SPECDEC_OK && memcmp(one, other, sizeof one) != 0);
    maker_remove_pair(m, "gemma3.attention.layer_norm_rms_epsilon"); /* as in ../shared/cases/missing-rope-base-and-epsilon */
    CHECK(refused(m, SPECDEC_ERROR_FORMAT) && names("gemma3.attention.layer_norm_rms_epsilon is missing"));
    end_maker(m);
}

/* --- fused tensors --------------------------------------------------------------------------------------------------- */

/* Makes one tensor of those of a layer that are called so, of experts those of each side by side. Returns 0 where there are
   not all of them. */
static int fuse(maker *m, int layer, const char *fused, const char *const *parts, int count)
{
    maker_tensor *t[3], whole;
    char name[64];
    uint64_t expert, experts;
    int i, kept;

    for (i = 0; i < count; i++) {
        snprintf(name, sizeof name, "blk.%d.%s", layer, parts[i]);
        t[i] = maker_find_tensor(m, name);
        if (!t[i])
            return 0;
    }
    whole = *t[0];
    memset(&whole.data, 0, sizeof whole.data);
    snprintf(whole.name, sizeof whole.name, "blk.%d.%s", layer, fused);
    experts = whole.dimensions == 3 ? whole.shape[2] : 1;
    for (i = 1; i < count; i++)
        whole.shape[whole.dimensions > 1] += t[i]->shape[whole.dimensions > 1];
    for (expert = 0; expert < experts; expert++)
        for (i = 0; i < count; i++)
            maker_put(&whole.data, t[i]->data.data + t[i]->data.size / experts * expert, t[i]->data.size / experts);
    free(t[0]->data.data);
    *t[0] = whole;
    for (i = 1; i < count; i++) {
        free(t[i]->data.data);
        t[i]->name[0] = 0;
    }
    for (i = 0, kept = 0; i < m->tensors; i++)
        if (m->tensor[i].name[0])
            m->tensor[kept++] = m->tensor[i];
    m->tensors = kept;
    return 1;
}

static const struct { const char *fused, *parts[3]; int count; } fusions[] = {
    {"attn_qkv.weight", {"attn_q.weight", "attn_k.weight", "attn_v.weight"}, 3},
    {"attn_qkv.bias", {"attn_q.bias", "attn_k.bias", "attn_v.bias"}, 3},
    {"ffn_gate_up.weight", {"ffn_gate.weight", "ffn_up.weight", NULL}, 2},
    {"ffn_up.weight", {"ffn_gate.weight", "ffn_up.weight", NULL}, 2},
    {"ffn_gate_up_exps.weight", {"ffn_gate_exps.weight", "ffn_up_exps.weight", NULL}, 2}};

static void test_fused(void)
{
    static float one[VOCAB * (NODES + 1)], other[VOCAB * (NODES + 1)];
    static const int types[] = {0, 8, 30};
    size_t a, k, fused = 0;
    int t, layer;

    TEST("fused tensors give the same bits as single ones, in every architecture, repacked or not");
    for (a = 0; a < maker_writers(); a++)
        for (t = 0; t < 3; t++)
            for (k = 0; k < SPECDEC__COUNT(fusions); k++) {
                maker *m = (maker *)malloc(sizeof *m);
                maker_recipe r;
                int done = 0;

                memset(&r, 0, sizeof r);
                r.architecture = specdec__architectures[a].name;
                r.apart = 1;
                r.types[0] = types[t] + 1;
                maker_begin(m, &r);
                maker_write(m);
                CHECK_EQUAL_INT(logits_of(m, one), SPECDEC_OK);
                for (layer = 0; layer < 2 - (int)(k % 2); layer++) /* of both layers, or of one */
                    done += fuse(m, layer, fusions[k].fused, fusions[k].parts, fusions[k].count);
                maker_write(m);
                if (done) {
                    const specdec_result result = logits_of(m, other);

                    if (result)
                        fprintf(stderr, "%s, %s: %s\n", r.architecture, fusions[k].fused, failure.text);
                    CHECK_EQUAL_INT(result, SPECDEC_OK);
                    CHECK(memcmp(one, other, sizeof one) == 0);
                    CHECK_EQUAL_INT(logits_with(m->file.data, m->file.size, NULL, 1, other), SPECDEC_OK);
                    CHECK(memcmp(one, other, sizeof one) == 0);
                    fused++;
                }
                end_maker(m);
            }
    CHECK(fused > 3 * maker_writers() * 2);
}

static void test_half_fused(void)
{
    maker *m = new_maker("llama");
    maker_tensor *t = maker_add_tensor(m, "blk.0.attn_qkv.weight", 0, 64, 128);

    TEST("a fused tensor beside a single one of the same matrices is refused by name");
    t->data.data = (unsigned char *)calloc(1, t->data.size = 64 * 128 * 4);
    CHECK(refused(m, SPECDEC_ERROR_UNSUPPORTED) && names("blk.0.attn_qkv.weight"));
    snprintf(tensor_of(m, "blk.0.attn_q.weight")->name, 64, "blk.0.attn_norm_2.weight");
    CHECK(refused(m, SPECDEC_ERROR_UNSUPPORTED));
    m->tensors--;
    TEST("what is missing is named as a single one; a fused one of another size is named itself");
    CHECK(refused(m, SPECDEC_ERROR_FORMAT) && names("blk.0.attn_q.weight is missing"));
    m->tensors++;
    t->shape[1] = 96;
    t->data.size = 64 * 96 * 4;
    CHECK(refused(m, SPECDEC_ERROR_FORMAT) && names("blk.0.attn_qkv.weight is 64 x 96"));
    end_maker(m);
}

/* --- names ----------------------------------------------------------------------------------------------------------- */

static void test_names(void)
{
    static const struct { const char *architecture, *words[2]; } unknown[] = {
        {"qwen39moe", {"\"qwen39moe\" is not known", "qwen3moe"}}, {"llama4", {"\"llama4\"", "family: llama"}},
        {"gemma9", {"\"gemma9\"", "gemma3"}}, {"mamba2", {"\"mamba2\"", "none of its family"}}, {"", {"\"\"", "none"}},
        {"7", {"\"7\"", "none"}}};
    static const struct { uint32_t type; const char *words[2]; } types[] = {
        {9, {"Q8_1", "Q8_0"}}, {15, {"Q8_K", "(Q8_0 is)"}}, {36, {"IQ4_NL_4_4", "IQ4_NL"}}, {4, {"Q4_2", "Q4_0"}},
        {28, {"F64", "F32"}}, {77, {"type 77", "not known"}}};
    maker *m = new_maker("llama");
    maker_tensor *t = tensor_of(m, "blk.0.ffn_up.weight");
    size_t k, size = t->data.size;

    TEST("architectures that are not known are named with those of their family");
    for (k = 0; k < SPECDEC__COUNT(unknown); k++) {
        maker_text(m, "general.architecture", unknown[k].architecture);
        CHECK(refused(m, SPECDEC_ERROR_UNSUPPORTED) && names(unknown[k].words[0]) && names(unknown[k].words[1]));
    }
    maker_text(m, "general.architecture", "llama");
    TEST("types that are not read are named, with what is nearest");
    for (k = 0; k < SPECDEC__COUNT(types); k++) {
        const size_t bytes = specdec__quant_tensor_bytes(types[k].type, 256 * 96, 256);

        t->type = types[k].type;
        t->shape[0] = 256; /* whole blocks of every type */
        maker_put(&t->data, "", 0);
        while (t->data.size < bytes)
            maker_put_number(&t->data, 0, 8);
        t->data.size = bytes ? bytes : size;
        CHECK(refused(m, SPECDEC_ERROR_UNSUPPORTED) && names("blk.0.ffn_up.weight") && names(types[k].words[0]) && names(types[k].words[1]));
    }
    end_maker(m);
}

/* --- values that are no numbers --------------------------------------------------------------------------------------- */

static const float not_a_number = NAN, infinite = INFINITY;

/* A model of Q8_0 with vectors of F32. */
static maker *new_quantised(const char *architecture)
{
    maker *m = (maker *)malloc(sizeof *m);
    maker_recipe r;

    memset(&r, 0, sizeof r);
    r.architecture = architecture;
    r.apart = 1;
    r.types[0] = 9;
    r.seed = 8;
    maker_begin(m, &r);
    return m;
}

/* Puts a value, or a half float as the scale of a block, into the tensor of a name. */
static void spoil(maker *m, const char *name, size_t place, float value)
{
    maker_tensor *t = tensor_of(m, name);
    const size_t experts = t->dimensions == 3 ? (size_t)t->shape[2] : 1;
    size_t i;

    for (i = 0; i < experts; i++) { /* of every expert, as not all are chosen */
        unsigned char *data = t->data.data + t->data.size / experts * i;

        if (t->type == 0)
            specdec__store_u32(data + 4 * place, specdec__bits_from_float(value));
        else
            specdec__store_u16(data + 34 * place, specdec__f16_from_float(value));
    }
}

/* The error of every instruction set is the same, and of weights in place; it names this. */
static int spoilt(maker *m, specdec_result result, const char *words)
{
    static float logits[VOCAB * (NODES + 1)];
    char first[SPECDEC_ERROR_TEXT_SIZE];
    int i, good = 1;

    maker_write(m);
    for (i = 0; specdec_isa_name(i); i++) {
        isa = specdec_isa_name(i);
        good &= logits_with(m->file.data, m->file.size, NULL, i % 2, logits) == result && names(words);
        if (i)
            good &= strcmp(first, failure.text) == 0;
        else
            memcpy(first, failure.text, sizeof first);
    }
    isa = NULL;
    return good;
}

static void test_not_numbers(void)
{
    static const struct { const char *tensor; size_t place; const char *words; } cases[] = {
        {"output_norm.weight", 3, "tensor output_norm.weight"}, {"output.weight", 40, "logits"}, {"token_embd.weight", 2 * 77 + 1, "embeddings"},
        {"blk.0.attn_norm.weight", 63, "tensor blk.0.attn_norm.weight"}, {"blk.1.ffn_norm.weight", 0, "tensor blk.1.ffn_norm.weight"},
        {"blk.0.attn_q.weight", 5, "layer 0 on, its attention"}, {"blk.1.attn_k.weight", 7, "layer 1 on, its attention"},
        {"blk.1.attn_v.weight", 2, "layer 1 on, its attention"}, {"blk.0.attn_output.weight", 9, "layer 0 on, its attention"},
        {"blk.1.ffn_gate.weight", 11, "layer 1 on, its feed-forward"}, {"blk.0.ffn_up.weight", 1, "layer 0 on, its feed-forward"},
        {"blk.0.ffn_down.weight", 17, "layer 0 on, its feed-forward"}, {"blk.1.ffn_gate_exps.weight", 11, "layer 1 on, its feed-forward"},
        {"blk.0.ffn_gate_inp.weight", 3, "layer 0 on, its feed-forward"}, {"blk.0.attn_k_norm.weight", 1, "tensor blk.0.attn_k_norm.weight"}};
    static const char *const architectures[] = {"llama", "qwen3", "qwen3moe", "olmoe", "gemma2"};
    static float logits[VOCAB * (NODES + 1)];
    size_t k, a, tried = 0;

    TEST("weights that are no numbers, or infinite, are an error that names the first layer, on every instruction set");
    for (a = 0; a < SPECDEC__COUNT(architectures); a++)
        for (k = 0; k < SPECDEC__COUNT(cases); k++) {
            const int quantised = (int)(k + a) % 2;
            maker *m = quantised ? new_quantised(architectures[a]) : new_maker(architectures[a]);

            threads = a ? 1 : 2;
            if (maker_find_tensor(m, cases[k].tensor)) {
                size_t place = cases[k].place;

                if (!quantised && strcmp(cases[k].tensor, "token_embd.weight") == 0)
                    place = 77 * 64 + 5;
                spoil(m, cases[k].tensor, place, not_a_number);
                CHECK(spoilt(m, SPECDEC_ERROR_FORMAT, cases[k].words));
                spoil(m, cases[k].tensor, place, infinite);
                CHECK(spoilt(m, SPECDEC_ERROR_FORMAT, cases[k].words));
                tried++;
            }
            end_maker(m);
        }
    threads = 1;
    CHECK(tried > 50);
    {
        maker *m = new_maker("llama");

        TEST("a token whose embedding is none hurts only who reads it");
        spoil(m, "token_embd.weight", 200 * 64, not_a_number);
        maker_write(m);
        CHECK_EQUAL_INT(logits_of(m, logits), SPECDEC_OK);
        end_maker(m);
    }
}

/* Multiplies all values of an F32 tensor. */
static void grow(maker *m, const char *name, float factor)
{
    maker_buffer *data = &tensor_of(m, name)->data;
    size_t at;

    for (at = 0; at < data->size; at += 4)
        specdec__store_u32(data->data + at, specdec__bits_from_float(factor * specdec__load_f32(data->data + at)));
}

static void test_cache_sizes(void)
{
    static const char *const tensors[] = {"blk.1.attn_k.weight", "blk.1.attn_v.weight", "blk.0.attn_v.weight"};
    static float logits[VOCAB * (NODES + 1)];
    size_t k;
    int i;

    for (k = 0; k < SPECDEC__COUNT(tensors); k++) {
        maker *m = new_maker("llama");

        TEST("keys and values beyond half floats are an error in a cache of half floats, which says what to do");
        grow(m, tensors[k], 3e5f);
        maker_write(m);
        CHECK_EQUAL_INT(logits_with(m->file.data, m->file.size, "f16", 0, logits), SPECDEC_ERROR_UNSUPPORTED);
        CHECK(names(k < 2 ? "layer 1" : "layer 0") && names("\"f32\"") && names("f16"));
        TEST("in one of floats they are read");
        CHECK_EQUAL_INT(logits_with(m->file.data, m->file.size, "f32", 0, logits), SPECDEC_OK);
        for (i = 0; i < VOCAB * (NODES + 1); i++)
            CHECK(logits[i] - logits[i] == 0);
        CHECK_EQUAL_INT(logits_with(m->file.data, m->file.size, "q8_0", 0, logits), SPECDEC_OK);
        TEST("beyond what a row of floats can be measured by, they are none");
        grow(m, tensors[k], 1e14f);
        maker_write(m);
        CHECK_EQUAL_INT(logits_with(m->file.data, m->file.size, "f32", 0, logits), SPECDEC_ERROR_FORMAT);
        CHECK(names(k < 2 ? "layer 1" : "layer 0"));
        end_maker(m);
    }
}

/* A token that brings NaN is written by one of two sequences: the other one writes on, what came before stands. */
static void test_sequences(void)
{
    maker *m = new_maker("llama");
    specdec_config c;
    specdec *first = NULL, *second = NULL;
    specdec_result r;
    specdec_text piece;
    size_t bytes;
    void *block;
    int32_t seen[64];
    const int32_t *tokens;
    int drafting, count = 0, kept, n, i;

    maker_write(m);
    memset(&c, 0, sizeof c);
    c.threads = 1;
    c.context = 128;
    c.sequences = 2;
    for (drafting = 0; drafting < 2; drafting++) {
        c.target.data = m->file.data;
        c.target.size = m->file.size;
        c.drafting = drafting ? SPECDEC_DRAFT_NGRAM : SPECDEC_DRAFT_OFF;
        CHECK_EQUAL_INT(specdec_memory_needed(&c, &bytes, &failure), SPECDEC_OK);
        block = malloc(bytes);
        CHECK_EQUAL_INT(specdec_init(&first, &c, block, bytes, &failure), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_prompt(first, "a bc d", SPECDEC_WHOLE_STRING), SPECDEC_OK);
        if (!drafting) { /* what it writes; then a token of that, seen for the first time, is spoilt */
            TEST("a token that brings NaN ends its text with an error; tokens before it stand");
            for (n = 0; n < 40 && specdec_next(first, &piece) == SPECDEC_OK; )
                specdec_tokens(first, &tokens, &n);
            CHECK(n > 20);
            memcpy(seen, tokens, (size_t)n * sizeof *seen);
            for (count = 12; count < n; count++) {
                for (i = 0; i < count && seen[i] != seen[count]; i++)
                    continue;
                if (i == count)
                    break;
            }
            CHECK(count < n);
            spoil(m, "token_embd.weight", (size_t)seen[count] * 64, not_a_number);
            maker_write(m);
            specdec_deinit(first);
            free(block);
            c.target.data = m->file.data;
            CHECK_EQUAL_INT(specdec_memory_needed(&c, &bytes, &failure), SPECDEC_OK);
            block = malloc(bytes);
            CHECK_EQUAL_INT(specdec_init(&first, &c, block, bytes, &failure), SPECDEC_OK);
            CHECK_EQUAL_INT(specdec_prompt(first, "a bc d", SPECDEC_WHOLE_STRING), SPECDEC_OK);
        }
        CHECK_EQUAL_INT(specdec_open(first, &second), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_prompt(second, "zz", SPECDEC_WHOLE_STRING), SPECDEC_OK);
        while ((r = specdec_next(first, &piece)) == SPECDEC_OK)
            continue;
        CHECK_EQUAL_INT(r, SPECDEC_ERROR_FORMAT);
        CHECK(strstr(specdec_error_text(first), "no numbers") != NULL);
        specdec_tokens(first, &tokens, &kept);
        CHECK_EQUAL_INT(kept, count + 1); /* the token itself was written by good numbers */
        CHECK(memcmp(tokens, seen, (size_t)specdec__min_int(kept, count + 1) * sizeof *seen) == 0);
        CHECK_EQUAL_INT(specdec_next(first, &piece), SPECDEC_ERROR_FORMAT);
        TEST("the other text goes on, unless it comes to that token, too");
        for (i = 0; i < 10 && (r = specdec_next(second, &piece)) == SPECDEC_OK; i++)
            continue;
        CHECK(i > 2);
        TEST("a text without the token can be prompted again");
        CHECK_EQUAL_INT(specdec_rewind(first, 4), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_next(first, &piece), SPECDEC_OK);
        specdec_deinit(first);
        free(block);
    }
    end_maker(m);
}

/* Ranks of a cluster, of which one has values that are no numbers, all end, with the same words. */
static void test_ranks(void)
{
    static const struct { const char *tensor, *words; } cases[] = {
        {"blk.0.ffn_up.weight", "layer 0 on, its feed-forward"}, {"blk.1.attn_v.weight", "layer 1 on, its attention"},
        {"blk.2.attn_q.weight", "layer 2 on, its attention"}, {"output.weight", "logits are no numbers"}};
    size_t k;

    for (k = 0; k < SPECDEC__COUNT(cases); k++) {
        maker *m = (maker *)malloc(sizeof *m);
        party *c = (party *)calloc(1, sizeof *c);
        maker_recipe r;
        specdec_config config;
        specdec_result result;
        specdec_text piece;
        const char *words;

        TEST("a rank with values that are no numbers ends the answer with an error that names the layer");
        memset(&r, 0, sizeof r);
        r.layers = 3;
        r.output_type = 1;
        maker_begin(m, &r);
        spoil(m, cases[k].tensor, 7, not_a_number);
        maker_write(m);
        memset(&config, 0, sizeof config);
        config.target.data = m->file.data;
        config.target.size = m->file.size;
        config.threads = 1;
        config.context = 64;
        c->count = 3;
        c->layers[0] = c->layers[1] = c->layers[2] = 1;
        CHECK(start_cluster(c, &config, 5));
        if (c->ranks[0].text) {
            result = specdec_prompt(c->ranks[0].text, "a bc d", SPECDEC_WHOLE_STRING);
            while (!result)
                result = specdec_next(c->ranks[0].text, &piece);
            words = specdec_error_text(c->ranks[0].text);
            CHECK(result == SPECDEC_ERROR_FORMAT || result == SPECDEC_ERROR_PEER);
            snprintf(failure.text, sizeof failure.text, "%s", words);
            CHECK(names(cases[k].words));
        }
        end_cluster(c);
        end_maker(m);
        free(c);
    }
}

/* --- several files ---------------------------------------------------------------------------------------------------- */

static char stem[200]; /* of the paths of parts */

static const char *part_path(int part, int count)
{
    static char path[256];

    snprintf(path, sizeof path, "%s-%05d-of-%05d.gguf", stem, part, count);
    return path;
}

static void put_file(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");

    CHECK(file != NULL && fwrite(data, 1, size, file) == size);
    if (file)
        fclose(file);
}

static void put_split(maker *part, int number, int count, int tensors)
{
    maker_put_number(&maker_pair_of(part, "split.no", 2)->value, (uint64_t)number, 2);
    maker_put_number(&maker_pair_of(part, "split.count", 2)->value, (uint64_t)count, 2);
    maker_put_number(&maker_pair_of(part, "split.tensors.count", 5)->value, (uint64_t)tensors, 4);
}

/* Writes a model in so many files: all pairs and, unless `bare`, the first tensors go to the first one. */
static void split(maker *m, int count, int bare)
{
    maker *part = (maker *)malloc(sizeof *part);
    int i, from = 0, to;

    for (i = 0; i < count; i++, from = to) {
        to = bare ? m->tensors * i / (count - 1) : m->tensors * (i + 1) / count;
        *part = *m;
        part->pairs = i ? 0 : m->pairs;
        memset(part->pair + part->pairs, 0, (MAKER_MOST - (size_t)part->pairs) * sizeof part->pair[0]);
        memset(&part->file, 0, sizeof part->file);
        memmove(part->tensor, m->tensor + from, (size_t)(to - from) * sizeof part->tensor[0]);
        part->tensors = to - from;
        put_split(part, i, count, m->tensors);
        maker_write(part);
        put_file(part_path(i + 1, count), part->file.data, part->file.size);
        free(part->file.data);
        for (; part->pairs > (i ? 0 : m->pairs); part->pairs--)
            free(part->pair[part->pairs - 1].value.data);
    }
    free(part);
}

/* Logits of the model at a path. */
static specdec_result logits_at(const char *path, int copy, int in_place, float *logits)
{
    static const int32_t tokens[NODES] = {40, 77, 262, 280, 275, 290}, parents[NODES] = {-1, 0, 1, 2, 3, 4};
    specdec_config c;
    specdec *engine = NULL;
    specdec_result r;
    size_t bytes = 0;
    void *block = NULL;

    memset(&c, 0, sizeof c);
    c.target.path = path;
    c.target.copy = copy;
    c.threads = 1;
    c.context = 64;
    c.weights_in_place = in_place;
    memset(logits, 0, VOCAB * (NODES + 1) * sizeof *logits);
    failure.text[0] = 0;
    r = specdec_memory_needed(&c, &bytes, &failure);
    if (!r) {
        block = malloc(bytes);
        r = block ? specdec_init(&engine, &c, block, bytes, &failure) : SPECDEC_ERROR_MEMORY;
    }
    if (!r)
        r = specdec_logits(engine, tokens, parents, NODES, logits);
    specdec_deinit(engine);
    free(block);
    return r;
}

static void remove_parts(int count)
{
    int i;

    for (i = 1; i <= count; i++)
        remove(part_path(i, count));
}

static void test_parts(void)
{
    static float one[VOCAB * (NODES + 1)], other[VOCAB * (NODES + 1)];
    static const char *const architectures[] = {"llama", "gemma3", "qwen3moe", "phi3"};
    static const int counts[] = {2, 3, 7, 20};
    size_t a, k;

    for (a = 0; a < SPECDEC__COUNT(architectures); a++) {
        maker *m = new_maker(architectures[a]);

        maker_write(m);
        CHECK_EQUAL_INT(logits_of(m, one), SPECDEC_OK);
        TEST("a model in several files gives the same bits as in one: mapped, copied, repacked or in place");
        for (k = 0; k < SPECDEC__COUNT(counts); k++) {
            int way;

            split(m, counts[k], (int)(k + a) % 2);
            for (way = 0; way < 4; way++) {
                CHECK_EQUAL_INT(logits_at(part_path(1, counts[k]), way & 1, way >> 1, other), SPECDEC_OK);
                CHECK(memcmp(one, other, sizeof one) == 0);
            }
            remove_parts(counts[k]);
        }
        end_maker(m);
    }
}

static void test_parts_wrong(void)
{
    static float logits[VOCAB * (NODES + 1)];
    static unsigned char bytes[1 << 20];
    maker *m = new_maker("llama");
    specdec_model *model = NULL;
    specdec_config c;
    size_t size;
    FILE *file;
    void *block;
    char name[64];

    TEST("a missing part is named by its file's name");
    split(m, 3, 0);
    remove(part_path(2, 3));
    CHECK(logits_at(part_path(1, 3), 0, 0, logits) == SPECDEC_ERROR_FILE && names("-00002-of-00003.gguf"));
    split(m, 3, 0);
    remove(part_path(3, 3));
    CHECK(logits_at(part_path(1, 3), 1, 0, logits) == SPECDEC_ERROR_FILE && names("-00003-of-00003.gguf"));
    TEST("another part than the first is refused, and the first one named");
    split(m, 3, 0);
    CHECK(logits_at(part_path(2, 3), 0, 0, logits) == SPECDEC_ERROR_UNSUPPORTED && names("part 2 of") && names("-00001-of-00003.gguf"));
    TEST("so is one in memory, and a first part whose name is no part's");
    file = fopen(part_path(1, 3), "rb");
    size = file ? fread(bytes, 1, sizeof bytes, file) : 0;
    if (file)
        fclose(file);
    CHECK(logits_with(bytes, size, NULL, 0, logits) == SPECDEC_ERROR_UNSUPPORTED && names("split into 3 files"));
    snprintf(name, sizeof name, "%.50s-other.gguf", stem);
    put_file(name, bytes, size);
    CHECK(logits_at(name, 0, 0, logits) == SPECDEC_ERROR_FORMAT && names("-00001-of-00003.gguf"));
    remove(name);
    TEST("a vocabulary alone needs the first part only");
    remove(part_path(2, 3));
    memset(&c, 0, sizeof c);
    c.target.path = part_path(1, 3);
    c.vocabulary_only = 1;
    CHECK_EQUAL_INT(specdec_model_memory_needed(&c, &size, &failure), SPECDEC_OK);
    block = malloc(size);
    CHECK_EQUAL_INT(specdec_model_init(&model, &c, block, size, &failure), SPECDEC_OK);
    specdec_model_deinit(model);
    free(block);
    TEST("a part of another split, one cut short, one of other tensors");
    split(m, 3, 0);
    put_file(part_path(2, 3), bytes, 0);
    CHECK(logits_at(part_path(1, 3), 0, 0, logits) == SPECDEC_ERROR_FORMAT && names("-00002-of-00003.gguf"));
    file = fopen(part_path(3, 3), "rb");
    size = file ? fread(bytes, 1, sizeof bytes, file) : 0;
    if (file)
        fclose(file);
    put_file(part_path(2, 3), bytes, size);
    CHECK(logits_at(part_path(1, 3), 0, 0, logits) == SPECDEC_ERROR_FORMAT && names("part 3 of 3, by its keys"));
    split(m, 3, 0);
    put_file(part_path(3, 3), bytes, size - 100);
    CHECK(logits_at(part_path(1, 3), 0, 0, logits) == SPECDEC_ERROR_FORMAT && names("-00003-of-00003.gguf") && names("complete"));
    snprintf(m->tensor[m->tensors - 1].name, 64, "%s", m->tensor[0].name);
    split(m, 3, 0);
    CHECK(logits_at(part_path(1, 3), 0, 0, logits) == SPECDEC_ERROR_FORMAT && names(m->tensor[0].name) && names("occurs twice"));
    snprintf(m->tensor[m->tensors - 1].name, 64, "blk.7.attn_norm.weight");
    split(m, 3, 0);
    CHECK(logits_at(part_path(1, 3), 0, 0, logits) != SPECDEC_OK);
    remove_parts(3);
    end_maker(m);
}

int main(void)
{
    snprintf(stem, sizeof stem, "/tmp/specdec-parts-%d", (int)getpid());

    test_overlaps();
    test_order();
    test_twice();
    test_facts();
    test_fused();
    test_half_fused();
    test_names();
    test_not_numbers();
    test_cache_sizes();
    test_sequences();
    test_ranks();
    test_parts();
    test_parts_wrong();
    return check_report("test_broken_files");
}
