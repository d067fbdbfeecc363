/* test_model.c - bad input gets a clear error or a working engine, never a crash, a hang or a read beyond the file: models
   cut off, with every number in them broken, contradicting themselves, poisoned; odd configurations. And RoPE frequencies.
   cc -O2 -pthread -I. test_model.c -lm, run from the repository's root; SPECDEC_QUICK=1 shortens. Meant for sanitizers, too. */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "check.h"
#include "gguf_maker.h"
#include "pages.h"
#include <math.h>
#include <time.h>

static specdec_error failure; /* of the last call that failed before there was an engine */

static int quick;

/* --- trying a file ----------------------------------------------------------------------------------------------------- */

/* A copy that ends where a page begins that nobody may read. */
typedef struct guard {
    unsigned char *base, *data;
    size_t length;
} guard;

static guard guard_copy(const void *data, size_t size)
{
    const size_t body = (size + PAGES_SIZE - 1) / PAGES_SIZE * PAGES_SIZE;
    guard g;

    g.length = body + PAGES_SIZE;
    g.base = pages_reserve(g.length);
    if (!g.base || (body && !pages_open(g.base, body)))
        abort();
    g.data = g.base + body - size;
    if (size)
        memcpy(g.data, data, size);
    return g;
}

static void guard_free(guard *g) { pages_release(g->base, g->length); }

static specdec_error last; /* of the last try */

/* Opens, prompts and reads a few tokens with what a configuration says. Returns what the first failing call did. */
static specdec_result try_config(specdec_config *c)
{
    static unsigned char *block;
    static size_t room;
    size_t bytes = 0;
    specdec *engine = NULL;
    specdec_result r;
    clock_t start = clock();
    const char *text = NULL;
    specdec_text piece;

    last.text[0] = 0;
    memset(&failure, 0, sizeof failure); /* calls that succeed leave it alone */
    r = specdec_memory_needed(c, &bytes, &failure);
    if (!r && bytes > ((size_t)1 << 28)) /* fine, but not here */
        return SPECDEC_OK;
    if (!r) {
        if (room < bytes + 1) {
            free(block);
            room = 2 * bytes + 1;
            block = (unsigned char *)malloc(room);
        }
        block[bytes] = 77;
        r = specdec_init(&engine, c, block, bytes, &failure);
        CHECK((r == SPECDEC_OK) == (engine != NULL));
    }
    if (r) {
        text = failure.text;
        CHECK_EQUAL_INT(failure.code, r);
    } else {
        int i;

        r = specdec_prompt(engine, "a bc d", SPECDEC_WHOLE_STRING);
        if (r == SPECDEC_ERROR_CONTEXT) /* a file may say that its context is tiny */
            r = SPECDEC_OK;
        for (i = 0; i < 5 && !r && specdec_next(engine, &piece) == SPECDEC_OK; i++)
            CHECK(piece.length > 0);
        text = r ? specdec_error_text(engine) : NULL;
    }
    if (text)
        snprintf(last.text, sizeof last.text, "%s", text);
    specdec_deinit(engine);
    if (block)
        CHECK(bytes == 0 || bytes >= room || block[bytes] == 77);
    if (r) {
        CHECK(r > SPECDEC_DONE && r < SPECDEC_RESULT_COUNT);
        CHECK(last.text[0] != 0);
    }
    if ((double)(clock() - start) / CLOCKS_PER_SEC > 2)
        fprintf(stderr, "slow: %.1f s\n", (double)(clock() - start) / CLOCKS_PER_SEC);
    CHECK((double)(clock() - start) / CLOCKS_PER_SEC < 2 || quick);
    return r;
}

static specdec_result try_bytes(const void *data, size_t size)
{
    guard g = guard_copy(data, size);
    specdec_config c;
    specdec_result r;

    memset(&c, 0, sizeof c);
    c.target.data = g.data;
    c.target.size = size;
    c.threads = 1;
    c.batch = 4;
    c.context = 64;
    r = try_config(&c);
    guard_free(&g);
    return r;
}

/* Writes what the maker holds and tries it. */
static specdec_result try_maker(maker *m)
{
    maker_write(m);
    return try_bytes(m->file.data, m->file.size);
}

/* The error of the last try names something. */
static int names(const char *word)
{
    if (!strstr(last.text, word))
        fprintf(stderr, "\"%s\" does not name %s\n", last.text, word);
    return strstr(last.text, word) != NULL;
}

static maker *new_maker(const char *architecture, int type)
{
    maker *m = (maker *)malloc(sizeof *m);
    maker_recipe r;

    memset(&r, 0, sizeof r);
    r.architecture = architecture;
    r.types[0] = type + 1;
    r.layers = 1;
    r.seed = 21;
    r.output_type = 1;
    maker_begin(m, &r);
    return m;
}

static void end_maker(maker *m)
{
    maker_free(m);
    free(m);
}

/* --- cut off ------------------------------------------------------------------------------------------------------------ */

static void cut(const unsigned char *data, size_t size, int places)
{
    int i;

    for (i = 0; i < places; i++) {
        specdec_result r = try_bytes(data, size / (size_t)places * (size_t)i + (size_t)i % 7);

        CHECK(r != SPECDEC_OK);
    }
    CHECK(try_bytes(data, size - 1) != SPECDEC_OK);
    CHECK_EQUAL_INT(try_bytes(data, size), SPECDEC_OK);
}

static void test_cut(void)
{
    maker *m = new_maker("llama", 8);
    size_t size, i;
    unsigned char *data;

    TEST("a model that is cut off is an error, wherever the cut is");
    maker_write(m);
    cut(m->file.data, m->file.size, quick ? 50 : 200);
    for (i = 0; i < (size_t)m->fields; i++)
        CHECK(try_bytes(m->file.data, m->field[i].at + 1) != SPECDEC_OK);
    end_maker(m);
    data = check_read_file("examples/models/tiny-stories-draft-q8_0.gguf", &size);
    if (data)
        cut(data, size, quick ? 20 : 200);
    else
        SKIP("examples/models is not here");
    free(data);
}

/* --- broken numbers ------------------------------------------------------------------------------------------------------ */

static void test_fields(void)
{
    static const char *const architectures[] = {"llama", "qwen2", "qwen3", "gemma3", "phi3"};
    uint64_t old, values[16];
    int a, f, v, worked = 0, failed = 0;

    TEST("every count, length, type, dimension, offset and value may be anything");
    for (a = 0; a < (quick ? 1 : (int)SPECDEC__COUNT(architectures)); a++) {
        maker *m = new_maker(architectures[a], a == 1 ? 2 : a == 2 ? 30 : 0);

        maker_write(m);
        for (f = 0; f < m->fields; f++) {
            const maker_field *field = &m->field[f];
            unsigned char saved[8], *at = m->file.data + field->at;
            int i;

            if (field->width > 8)
                continue;
            memcpy(saved, at, (size_t)field->width);
            for (old = 0, i = field->width; i-- > 0; )
                old = old << 8 | at[i];
            values[0] = 0;
            values[1] = UINT64_MAX;
            values[2] = UINT64_C(1) << 31;
            values[3] = UINT64_C(1) << 63;
            values[4] = UINT64_C(0x7FFFFFFF);
            values[5] = old + 1;
            values[6] = old - 1;
            values[7] = 1;
            values[8] = UINT64_MAX - 7;
            values[9] = UINT64_C(1) << 61;
            values[10] = UINT64_C(0xFFFFFFFF);
            values[11] = UINT64_C(0x7FC00000);         /* NaN */
            values[12] = old * 2;
            values[13] = UINT64_C(1) << 20;
            values[14] = old ^ 0x8000;
            values[15] = UINT64_MAX - 31 - (m->file.size & ~(size_t)31);
            for (v = 0; v < 16; v++) {
                specdec_result r;

                for (i = 0; i < field->width; i++)
                    at[i] = (unsigned char)(values[v] >> (8 * i));
                r = try_bytes(m->file.data, m->file.size);
                if (r)
                    failed++;
                else
                    worked++;
                if (!r && (strcmp(field->what, "key length") == 0 || strcmp(field->what, "tensor name length") == 0 || strcmp(field->what, "dimensions") == 0))
                    CHECK(values[v] == old || v == 5 || v == 6);
                memcpy(at, saved, (size_t)field->width);
            }
        }
        CHECK_EQUAL_INT(try_bytes(m->file.data, m->file.size), SPECDEC_OK);
        end_maker(m);
    }
    printf("  %d files refused, %d worked\n", failed, worked);
    CHECK(failed > worked);
}

static void test_wrapping(void)
{
    static const uint64_t shapes[][4] = {
        {UINT64_C(1) << 32, UINT64_C(1) << 32, 1, 1}, {UINT64_C(1) << 63, 2, 1, 1},        {32, UINT64_C(1) << 59, 1, 1},
        {UINT64_MAX, UINT64_MAX, 1, 1},               {UINT64_C(1) << 16, 1 << 16, 1 << 16, 1 << 16}, {64, 64, UINT64_C(1) << 62, 4},
        {UINT64_C(1) << 31, 1, 1, 1},                 {64, 0, 1, 1},                       {64, 96, 1, 1}, {96, 64, 2, 1}};
    int i, j;

    TEST("dimensions whose product wraps are refused");
    for (i = 0; i < (int)(sizeof shapes / sizeof *shapes); i++)
        for (j = 2; j <= 4; j++) {
            maker *m = new_maker("llama", 0);
            maker_tensor *t = maker_find_tensor(m, "blk.0.ffn_up.weight");

            if (!t)
                abort();
            memcpy(t->shape, shapes[i], sizeof t->shape);
            t->dimensions = j;
            CHECK((try_maker(m) == SPECDEC_OK) == (i == 8)); /* a matrix may say that it has 1 of a third dimension */
            end_maker(m);
        }
}

static void test_random(void)
{
    maker *m = new_maker("qwen3", 8);
    uint64_t random = 9;
    int i, j;
    size_t head;

    TEST("random bytes in a header do no harm");
    maker_write(m);
    head = m->field[m->fields - 1].at + 8;
    for (i = 0; i < (quick ? 100 : 1500); i++) {
        unsigned char *copy = (unsigned char *)malloc(m->file.size);

        memcpy(copy, m->file.data, m->file.size);
        for (j = 0; j <= i % 4; j++)
            copy[4 + maker_random(&random) % (head - 4)] = (unsigned char)maker_random(&random);
        try_bytes(copy, m->file.size);
        free(copy);
    }
    end_maker(m);
}

/* --- contradictions ------------------------------------------------------------------------------------------------------ */

static void test_values(void)
{
    static const struct { const char *key; uint32_t value; specdec_result result; } cases[] = {
        {"llama.block_count", 0, SPECDEC_ERROR_FORMAT},           {"llama.block_count", 1000000, SPECDEC_ERROR_FORMAT},
        {"llama.block_count", 2, SPECDEC_ERROR_FORMAT},           {"llama.block_count", 0xFFFFFFFF, SPECDEC_ERROR_FORMAT},
        {"llama.attention.head_count", 0, SPECDEC_ERROR_FORMAT},  {"llama.attention.head_count", 3, SPECDEC_ERROR_FORMAT},
        {"llama.attention.head_count_kv", 0, SPECDEC_ERROR_FORMAT}, {"llama.attention.head_count_kv", 3, SPECDEC_ERROR_FORMAT},
        {"llama.attention.head_count_kv", 8, SPECDEC_ERROR_FORMAT}, {"llama.embedding_length", 0, SPECDEC_ERROR_FORMAT},
        {"llama.embedding_length", 65, SPECDEC_ERROR_FORMAT},     {"llama.feed_forward_length", 0, SPECDEC_ERROR_FORMAT},
        {"llama.feed_forward_length", 100, SPECDEC_ERROR_FORMAT}, {"llama.rope.dimension_count", 15, SPECDEC_ERROR_FORMAT},
        {"llama.rope.dimension_count", 32, SPECDEC_ERROR_FORMAT}, {"llama.context_length", 0, SPECDEC_ERROR_FORMAT},
        {"llama.attention.key_length", 1, SPECDEC_ERROR_UNSUPPORTED}, {"llama.attention.value_length", 8, SPECDEC_ERROR_UNSUPPORTED},
        {"general.alignment", 0, SPECDEC_ERROR_FORMAT},           {"general.alignment", 24, SPECDEC_ERROR_FORMAT},
        {"general.alignment", 0x80000000u, SPECDEC_ERROR_FORMAT}, {"tokenizer.ggml.bos_token_id", 301, SPECDEC_ERROR_FORMAT},
        {"tokenizer.ggml.eos_token_id", 0x7FFFFFFF, SPECDEC_ERROR_FORMAT}};
    size_t i;

    for (i = 0; i < SPECDEC__COUNT(cases); i++) {
        maker *m = new_maker("llama", 0);
        specdec_result r;

        TEST("values that contradict the rest are named");
        maker_u32(m, cases[i].key, cases[i].value);
        r = try_maker(m);
        if (r != cases[i].result)
            fprintf(stderr, "%s = %u: %d %s\n", cases[i].key, cases[i].value, (int)r, last.text);
        CHECK(r != SPECDEC_OK);
        end_maker(m);
    }
    {
        maker *m = new_maker("llama", 0);

        TEST("an architecture that is not known is named");
        maker_text(m, "general.architecture", "mamba");
        CHECK_EQUAL_INT(try_maker(m), SPECDEC_ERROR_UNSUPPORTED);
        CHECK(names("mamba"));
        maker_remove_pair(m, "general.architecture");
        CHECK(try_maker(m) != SPECDEC_OK);
        end_maker(m);
    }
    {
        maker *m = new_maker("llama", 0);

        TEST("a file of the other byte order, and one of another version, are refused as such");
        m->version = 3 << 24;
        CHECK_EQUAL_INT(try_maker(m), SPECDEC_ERROR_UNSUPPORTED);
        CHECK(names("big-endian"));
        m->version = 4;
        CHECK_EQUAL_INT(try_maker(m), SPECDEC_ERROR_UNSUPPORTED);
        CHECK(names("version 4"));
        end_maker(m);
    }
}

/* Every kind of array in every key that has one, and arrays where none belong. */
static void test_arrays(void)
{
    static const char *const keys[] = {"tokenizer.ggml.tokens", "tokenizer.ggml.scores", "tokenizer.ggml.token_type", "tokenizer.ggml.merges",
                                       "llama.block_count", "general.architecture", "llama.rope.freq_base", "general.alignment",
                                       "tokenizer.ggml.bos_token_id", "tokenizer.ggml.model", "llama.attention.head_count_kv"};
    static const uint64_t counts[] = {0, 1, 300, 301, 302};
    static const unsigned char size[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 0, 8, 8, 8};
    size_t k, c;
    uint32_t type;

    TEST("arrays of any type and length, where they belong and where not");
    for (k = 0; k < SPECDEC__COUNT(keys); k++)
        for (type = 0; type < 14; type++)
            for (c = 0; c < SPECDEC__COUNT(counts); c++) {
                maker *m;
                maker_buffer *b;
                uint64_t i;

                if (quick && (k + type + c) % 5)
                    continue;
                m = new_maker("llama", 0);
                b = maker_array(m, keys[k], type, counts[c]);
                for (i = 0; type < 13 && type != 9 && i < counts[c]; i++)
                    maker_put_number(b, 0, size[type]);
                try_maker(m);
                if ((k == 0 && type != 8) || (k == 1 && (type != 6 || counts[c] < 301)) || (k == 2 && counts[c] < 301) || k == 4 || k == 5)
                    CHECK(last.text[0] != 0);
                end_maker(m);
            }
    {
        static const uint32_t types[] = {0, 4, 6, 7, 8, 9, 10, 12, 13, 255};
        size_t p;

        for (p = 0; p < 16; p++)
            for (k = 0; k < SPECDEC__COUNT(types); k++) { /* scalars of any type, too */
                maker *m = new_maker("llama", 0);
                maker_pair *pair = &m->pair[p % (size_t)m->pairs];

                if (pair->type != 9) {
                    pair->type = types[k];
                    maker_put_number(&pair->value, 0, 8);
                    maker_put_number(&pair->value, 0, 8);
                    if (types[k] == 9) {
                        memset(pair->value.data, 0, 16);
                    }
                    try_maker(m);
                }
                end_maker(m);
            }
    }
}

static void test_missing(void)
{
    int a, i;
    char name[64];

    for (a = 0; a < (int)SPECDEC__COUNT(specdec__architectures); a++) {
        const int reads = specdec__architecture_trait(&specdec__architectures[a], SPECDEC__READS_STATES);
        maker *m = new_maker(specdec__architectures[a].name, 0);
        int tensors = m->tensors, pairs = m->pairs;

        end_maker(m);
        for (i = 0; i < tensors; i++) {
            maker_tensor *t;
            specdec_result r;

            TEST("a missing tensor is named");
            m = new_maker(specdec__architectures[a].name, 0);
            t = &m->tensor[i];
            snprintf(name, sizeof name, "%s", t->name);
            t->name[0] = 'X';
            r = try_maker(m);
            if (reads && (strcmp(name, "output.weight") == 0 || (strcmp(name, "token_embd.weight") == 0 && reads != SPECDEC__AS_STREAM) ||
                          strstr(name, "layer_output_scale")))
                CHECK_EQUAL_INT(r, SPECDEC_ERROR_MISMATCH); /* it can only draft */
            else if (strstr(name, "layer_output_scale") || (strstr(name, "attn_v.") && specdec__architecture_trait(&specdec__architectures[a], SPECDEC__NORMED_VALUES)))
                CHECK(r == SPECDEC_ERROR_UNSUPPORTED && names(t->name)); /* there need not be one */
            else if (strcmp(name, "output.weight") == 0)
                CHECK(r == SPECDEC_ERROR_UNSUPPORTED && names("Xutput.weight")); /* the embedding would do */
            else if (strstr(name, "attn_qkv") && !specdec__architecture_trait(&specdec__architectures[a], SPECDEC__RECURRENT_KIND)) /* it holds several, of which the first is missed */
                CHECK(r == SPECDEC_ERROR_FORMAT && names("attn_q.weight"));
            else if (strstr(name, "ffn_up.") && !specdec__architecture_trait(&specdec__architectures[a], SPECDEC__UNGATED) && !maker_find_tensor(m, "blk.0.ffn_gate.weight") && !strstr(name, "exps"))
                CHECK(r == SPECDEC_ERROR_FORMAT && names("ffn_gate.weight"));
            else
                CHECK(r == SPECDEC_ERROR_FORMAT && names(name));
            TEST("a tensor that occurs twice is named");
            snprintf(t->name, sizeof t->name, "%s", name);
            maker_add_tensor(m, name, 0, 32, 1);
            m->tensor[m->tensors - 1].data.data = (unsigned char *)calloc(1, 128);
            m->tensor[m->tensors - 1].data.size = 128;
            CHECK(try_maker(m) == SPECDEC_ERROR_FORMAT && names(name));
            TEST("a tensor of the wrong shape or type is named");
            m->tensors--;
            free(m->tensor[m->tensors].data.data);
            m->tensor[i].shape[0] ^= 32;
            r = try_maker(m);
            CHECK(r == SPECDEC_ERROR_FORMAT && names(name));
            m->tensor[i].shape[0] ^= 32;
            m->tensor[i].type = 4; /* gone from the format */
            r = try_maker(m);
            CHECK(r == SPECDEC_ERROR_UNSUPPORTED && names(name));
            end_maker(m);
        }
        TEST("a missing key is an error or has a default");
        for (i = 0; i < pairs; i++) {
            m = new_maker(specdec__architectures[a].name, 0);
            maker_remove_pair(m, m->pair[i].key);
            try_maker(m);
            end_maker(m);
        }
    }
}

static void test_texts(void)
{
    static const char *const strange[] = {"\xff\xfe\xfd", "\xe2\x96", "\xf4\x90\x80\x80", "\xed\xa0\x80", "", "\xc0\x80", "\x80", "a\xe2", "\n\t\r"};
    static unsigned char text[8192], border[8192];
    size_t i, length, at;
    int k;

    TEST("token texts, keys and names of any bytes do no harm");
    for (i = 0; i < SPECDEC__COUNT(strange); i++) {
        maker *m = new_maker("llama", 0);
        maker_buffer *b = maker_array(m, "tokenizer.ggml.tokens", 8, 301);
        specdec_config c;
        guard g;
        specdec *engine;
        size_t bytes;
        void *block;
        specdec_text piece;

        for (k = 0; k < 301; k++)
            maker_put_string(b, strange[(i + (size_t)k) % (k % 2 ? 1 : SPECDEC__COUNT(strange))], strlen(strange[(i + (size_t)k) % (k % 2 ? 1 : SPECDEC__COUNT(strange))]));
        maker_text(m, strange[i], "value");
        maker_text(m, "tokenizer.chat_template", strange[i]);
        try_maker(m);
        g = guard_copy(m->file.data, m->file.size);
        memset(&c, 0, sizeof c);
        c.target.data = g.data;
        c.target.size = m->file.size;
        c.threads = 1;
        c.context = 100;
        if (!specdec_memory_needed(&c, &bytes, &failure)) {
            block = malloc(bytes);
            if (!specdec_init(&engine, &c, block, bytes, &failure)) {
                for (k = 0; k < (int)SPECDEC__COUNT(strange); k++)
                    specdec_prompt(engine, strange[k], SPECDEC_WHOLE_STRING);
                length = at = 0;
                memset(border, 0, sizeof border);
                while (!specdec_next(engine, &piece)) {
                    CHECK(piece.length > 0 && length + piece.length < sizeof text);
                    memcpy(text + length, piece.bytes, piece.length);
                    length += piece.length;
                    border[length] = 1;
                }
                while (at < length) { /* no border lies inside a character */
                    int n = specdec__utf8_sequence_bytes(text + at, length - at), inside;

                    for (inside = 1; inside < n; inside++)
                        CHECK(!border[at + (size_t)inside]);
                    at += (size_t)(n > 0 ? n : 1);
                }
                specdec_deinit(engine);
            }
            free(block);
        }
        guard_free(&g);
        end_maker(m);
    }
}

static void test_prompts(void)
{
    maker *m = new_maker("llama", 0);
    specdec_config c;
    size_t bytes;
    specdec *engine;
    void *block;
    char *large = (char *)malloc(1 << 20);
    specdec_text piece;

    TEST("empty, long and invalid prompts");
    memset(large, 'q', 1 << 20);
    maker_write(m);
    memset(&c, 0, sizeof c);
    c.target.data = m->file.data;
    c.target.size = m->file.size;
    c.threads = 1;
    c.context = 50;
    CHECK(!specdec_memory_needed(&c, &bytes, &failure));
    block = malloc(bytes);
    CHECK(!specdec_init(&engine, &c, block, bytes, &failure));
    CHECK_EQUAL_INT(specdec_prompt_tokens(engine, NULL, 0), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_prompt(engine, large, 1 << 20), SPECDEC_ERROR_CONTEXT);
    CHECK_EQUAL_INT(specdec_prompt(engine, large, 60), SPECDEC_ERROR_CONTEXT);
    CHECK_EQUAL_INT(specdec_prompt(engine, "", 0), SPECDEC_OK); /* the token that begins texts */
    CHECK_EQUAL_INT(specdec_next(engine, &piece), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_prompt(engine, "", 0), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_prompt(engine, NULL, 0), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_prompt(engine, "\xff\xfe\x80 \xe2\x96", SPECDEC_WHOLE_STRING), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_prompt(engine, "a\0b", 3), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_next(engine, &piece), SPECDEC_OK);
    specdec_deinit(engine);
    maker_remove_pair(m, "tokenizer.ggml.bos_token_id");
    maker_bool(m, "tokenizer.ggml.add_bos_token", 0);
    maker_write(m);
    c.target.data = m->file.data;
    c.target.size = m->file.size;
    CHECK(!specdec_init(&engine, &c, block, bytes, &failure));
    CHECK_EQUAL_INT(specdec_prompt(engine, "", 0), SPECDEC_ERROR_ARGUMENT);
    CHECK(specdec_error_text(engine)[0] != 0);
    specdec_deinit(engine);
    free(block);
    free(large);
    end_maker(m);
}

/* --- pairs --------------------------------------------------------------------------------------------------------------- */

static specdec_result try_pair(maker *target, maker *draft)
{
    specdec_config c;

    maker_write(target);
    maker_write(draft);
    memset(&c, 0, sizeof c);
    c.target.data = target->file.data;
    c.target.size = target->file.size;
    c.draft.data = draft->file.data;
    c.draft.size = draft->file.size;
    c.threads = 1;
    c.context = 64;
    return try_config(&c);
}

static void test_pairs(void)
{
    static const int at[] = {0, 3, 150, 299, 300};
    size_t i;

    TEST("a draft with another vocabulary is refused, and the token is named");
    for (i = 0; i < SPECDEC__COUNT(at); i++) {
        maker *target = new_maker("llama", 0), *draft = new_maker("qwen3", 8);
        maker_buffer *b = &maker_find_pair(draft, "tokenizer.ggml.tokens")->value;
        size_t place = 12;
        int k;
        char number[16];

        CHECK_EQUAL_INT(try_pair(target, draft), SPECDEC_OK);
        for (k = 0; k < at[i]; k++)
            place += 8 + (size_t)specdec__load_u64(b->data + place);
        b->data[place + 8] ^= 1;
        snprintf(number, sizeof number, "token %d", at[i]);
        CHECK(try_pair(target, draft) == SPECDEC_ERROR_MISMATCH && names(number));
        end_maker(target);
        end_maker(draft);
    }
    {
        maker_recipe r;
        maker *target = new_maker("llama", 0), *draft = (maker *)malloc(sizeof *draft);

        TEST("a draft with more words is refused, and the first of them is named");
        memset(&r, 0, sizeof r);
        r.vocab = 305;
        maker_begin(draft, &r);
        CHECK(try_pair(target, draft) == SPECDEC_ERROR_MISMATCH && names("token 301"));
        CHECK(try_pair(draft, target) == SPECDEC_ERROR_MISMATCH && names("token 301"));
        TEST("a broken draft is an error");
        maker_remove_pair(draft, "llama.block_count");
        CHECK(try_pair(target, draft) != SPECDEC_OK);
        end_maker(target);
        end_maker(draft);
    }
}

/* --- poison -------------------------------------------------------------------------------------------------------------- */

/* The first tokens of a text; -1 in [0] when it cannot be had; -3 where values were no numbers. */
static void tokens_of(const maker_buffer *target, const maker_buffer *draft, const specdec_sampling *sampling, int32_t *tokens, int count)
{
    specdec_config c;
    specdec *engine = NULL;
    size_t bytes;
    void *block;
    const int32_t *out;
    int n = 0, i;
    specdec_result r = SPECDEC_OK;
    specdec_text piece;
    specdec_logprob logprob;

    memset(&c, 0, sizeof c);
    c.target.data = target->data;
    c.target.size = target->size;
    if (draft) {
        c.draft.data = draft->data;
        c.draft.size = draft->size;
    }
    c.settings.sampling = *sampling;
    c.threads = 1;
    c.context = 64;
    c.logprobs = 2;
    memset(tokens, 0xFF, (size_t)count * sizeof *tokens);
    if (specdec_memory_needed(&c, &bytes, &failure))
        return;
    block = malloc(bytes);
    if (!specdec_init(&engine, &c, block, bytes, &failure)) {
        r = specdec_prompt(engine, "abc", SPECDEC_WHOLE_STRING);
        while (!r && n < count && (r = specdec_next(engine, &piece)) == SPECDEC_OK)
            specdec_tokens(engine, &out, &n);
        specdec_tokens(engine, &out, &n);
        for (i = 0; i < count; i++)
            tokens[i] = i < n ? out[i] : -2;
        CHECK(r || n < 1 || !specdec_get_logprob(engine, n - 1, &logprob)); /* made, whatever it says */
        if (r > SPECDEC_DONE) {
            CHECK(r == SPECDEC_ERROR_FORMAT || r == SPECDEC_ERROR_UNSUPPORTED);
            CHECK(strstr(specdec_error_text(engine), r == SPECDEC_ERROR_FORMAT ? "no numbers" : "too large for a cache") != NULL);
            if (n < count)
                tokens[n] = -3;
        }
    }
    specdec_deinit(engine);
    free(block);
}

static void test_poison(void)
{
    static const int types[] = {0, 1, 30, 8, 2, 3, 6, 7, 20, 10, 11, 12, 13, 14, 16, 23};
    static const uint16_t halves[] = {0x7E00, 0x7C00, 0xFC00, 0x7BFF, 0xFBFF, 0x0001, 0xFFFF};
    static const specdec_sampling samplings[] = {{.temperature = 0}, {.temperature = 0.8f, .top_k = 40, .top_p = 0.9f, .min_p = 0.05f, .repetition_penalty = 1.1f, .seed = 3}};
    size_t i, h, s;
    int broken = 0, fine = 0;

    TEST("NaN, infinity and the largest scales in weights are an error, or give the same text with a draft, and log-probabilities");
    for (i = 0; i < SPECDEC__COUNT(types); i++)
        for (h = 0; h < SPECDEC__COUNT(halves); h++) {
            maker *m = (maker *)malloc(sizeof *m), *good = new_maker("llama", 0);
            maker_recipe r;
            int k;
            uint64_t random = i * 31 + h;
            int32_t a[30], b[30];

            if (quick && (i + h) % 7) { /* each type once */
                free(m);
                end_maker(good);
                continue;
            }
            memset(&r, 0, sizeof r);
            r.layers = 1;
            r.embedding = r.feed_forward = 256;
            r.heads = 4;
            r.types[0] = types[i] + 1;
            r.output_type = h % 2 ? types[i] + 1 : 0;
            maker_begin(m, &r);
            for (k = 0; k < m->tensors; k++) {
                maker_tensor *t = &m->tensor[k];
                size_t at, step = t->type == 0 ? 4 : 2;

                if (h < 6 && k % 2 == (int)(h & 1)) { /* here and there */
                    for (at = maker_random(&random) % 64 * step; at + 4 <= t->data.size; at += (300 + maker_random(&random) % 4000) * step)
                        if (t->type == 0)
                            specdec__store_u32(t->data.data + at, specdec__bits_from_float(specdec__float_from_f16(halves[h])));
                        else
                            specdec__store_u16(t->data.data + at, halves[h]);
                } else if (h == 6) { /* all of it */
                    memset(t->data.data, 0xFF, t->data.size);
                }
            }
            maker_write(m);
            maker_write(good);
            for (s = 0; s < 2; s++) {
                tokens_of(&m->file, NULL, &samplings[s], a, 30);
                CHECK(a[0] >= 0 || a[0] == -3 || strstr(failure.text, "no number") != NULL); /* of vectors: said at once */
                for (k = 0; k < 30 && a[k] != -3; k++)
                    continue;
                broken += k < 30;
                fine += k == 30;
                tokens_of(&m->file, &good->file, &samplings[s], b, 30);
                CHECK(memcmp(a, b, sizeof a) == 0);
                tokens_of(&m->file, &m->file, &samplings[s], b, 30);
                CHECK(memcmp(a, b, sizeof a) == 0);
                tokens_of(&good->file, NULL, &samplings[s], a, 30);
                tokens_of(&good->file, &m->file, &samplings[s], b, 30); /* a poisoned draft */
                CHECK(b[0] == -1 ? strstr(failure.text, "no number") != NULL : memcmp(a, b, sizeof a) == 0);
            }
            end_maker(m);
            end_maker(good);
        }
    CHECK(broken && fine);
}

/* --- configurations ------------------------------------------------------------------------------------------------------ */

static void test_config(void)
{
#define LIMIT(field, low, high) {#field, offsetof(specdec_config, field), low, high}
    static const struct {
        const char *name;
        size_t at;
        int low, high; /* the first values that are refused */
    } limits[] = {LIMIT(threads, -1, SPECDEC_MAX_THREADS + 1), LIMIT(context, -1, (1 << 24) + 1), LIMIT(batch, -1, 513),
                  LIMIT(sequences, -1, SPECDEC_MAX_SEQUENCES + 1), LIMIT(forks, -1, INT_MAX), LIMIT(fork_depth, -1, 9),
                  LIMIT(cache, -1, (1 << 30) + 1), LIMIT(prefill_chunk, -1, INT_MAX), LIMIT(history, -1, (1 << 24) + 1),
                  LIMIT(logprobs, -1, 65), LIMIT(drafting, -1, SPECDEC_DRAFT_COUNT), LIMIT(rule, -1, SPECDEC_RULE_GREEDY),
                  LIMIT(async, -2, SPECDEC_MAX_THREADS), LIMIT(retrieval, 15, (1 << 24) + 1),
                  LIMIT(retrieval_chunk, -1, 65), LIMIT(policy, -1, SPECDEC_POLICY_COUNT),
                  LIMIT(screening, -1, SPECDEC_SCREENING_COUNT), LIMIT(tree_size, 1, 65),
                  LIMIT(tree_depth, 1, 33)};
    maker *m = new_maker("llama", 0);
    specdec_config good, c;
    int i, k;
    size_t bytes;

    maker_write(m);
    memset(&good, 0, sizeof good);
    good.target.data = m->file.data;
    good.target.size = m->file.size;
    good.threads = 1;
    good.context = 64;
    TEST("configuration values out of range are refused with a text");
    for (i = 0; i < 40; i++) {
        const int low = -1 - i * 1000000;

        c = good;
        switch (i) {
        case 0: c.threads = -1; break;
        case 1: c.threads = SPECDEC_MAX_THREADS + 1; break;
        case 2: c.context = -1; break;
        case 3: c.context = 0x7FFFFFFF; break;
        case 4: c.batch = low; break;
        case 5: c.batch = 513; break;
        case 6: c.settings.max_tokens = low; break;
        case 7: c.tree_size = 1; break;
        case 8: c.tree_size = 65; break;
        case 9: c.tree_size = low; break;
        case 10: c.tree_depth = 1; break;
        case 11: c.tree_depth = 33; break;
        case 12: c.tree_depth = low; break;
        case 13: c.kv = "f64"; break;
        case 14: c.kv = ""; break;
        case 15: c.isa = "mmx"; break;
        case 16: c.isa = ""; break;
        case 17: c.drafting = SPECDEC_DRAFT_COUNT; break;
        case 18: c.rule = SPECDEC_RULE_COUNT; break;
        case 19: c.settings.sampling.temperature = -1; break;
        case 20: c.settings.sampling.temperature = NAN; break;
        case 21: c.settings.sampling.temperature = INFINITY; break;
        case 22: c.settings.sampling.top_k = -1; break;
        case 23: c.settings.sampling.top_p = -0.5f; break;
        case 24: c.settings.sampling.top_p = 1.5f; break;
        case 25: c.settings.sampling.top_p = NAN; break;
        case 26: c.settings.sampling.min_p = 1.5f; break;
        case 27: c.settings.sampling.min_p = NAN; break;
        case 28: c.settings.sampling.repetition_penalty = -1; break;
        case 29: c.settings.sampling.repetition_penalty = NAN; break;
        case 30: c.settings.sampling.repetition_penalty = INFINITY; break;
        case 31: c.settings.sampling.repetition_window = -2; break;
        case 32: c.chat_format = "esperanto"; break;
        case 33: c.settings.stop[0] = ""; break;
        case 34: memset(&c.target, 0, sizeof c.target); break;
        case 35: c.drafting = SPECDEC_DRAFT_MODEL; break;
        case 36: memset(&c.target, 0, sizeof c.target); c.target.path = "/nonexistent/model.gguf"; break;
        case 37: memset(&c.target, 0, sizeof c.target); c.target.path = "/"; break;
        case 38: memset(&c.target, 0, sizeof c.target); c.target.path = ""; break;
        case 39: c.draft.path = "/dev/null"; break;
        }
        if (try_config(&c) == SPECDEC_OK) {
            fprintf(stderr, "configuration %d was accepted\n", i);
            CHECK(i == 33);
        } else {
            CHECK(i < 36 ? failure.code == SPECDEC_ERROR_ARGUMENT || failure.code == SPECDEC_ERROR_UNSUPPORTED : failure.code == SPECDEC_ERROR_FILE);
        }
    }
    TEST("each number of a configuration has its limits, and what is said names it");
    for (i = 0; i < (int)(sizeof limits / sizeof *limits); i++)
        for (k = 0; k < 2; k++) {
            c = good;
            memcpy((char *)&c + limits[i].at, k ? &limits[i].high : &limits[i].low, sizeof(int));
            CHECK_EQUAL_INT(try_config(&c), SPECDEC_ERROR_ARGUMENT);
            CHECK(strncmp(failure.text, "config.", 7) == 0 && strstr(failure.text, limits[i].name) == failure.text + 7);
        }
    TEST("extreme values that are allowed work, or say how much they need");
    for (i = 0; i < 12; i++) {
        c = good;
        switch (i) {
        case 0: c.context = 1; break;
        case 1: c.context = 2; break;
        case 2: c.context = 1 << 24; break;
        case 3: c.batch = 512; break;
        case 4: c.settings.max_tokens = 0x7FFFFFFF; break;
        case 5: c.settings.sampling.temperature = 1e-30f; break;
        case 6: c.settings.sampling.temperature = 1e30f; break;
        case 7: c.settings.sampling.temperature = 1; c.settings.sampling.top_k = 0x7FFFFFFF; break;
        case 8: c.settings.sampling.repetition_penalty = 1e-30f; c.settings.sampling.repetition_window = 0x7FFFFFFF; break;
        case 9: c.settings.sampling.temperature = 1; c.settings.sampling.top_p = 1e-30f; c.settings.sampling.min_p = 1; break;
        case 10: c.settings.sampling.repetition_penalty = 1e30f; c.settings.sampling.temperature = 0.5f; break;
        case 11: c.threads = 0; break;
        }
        if (try_config(&c))
            fprintf(stderr, "configuration %d: %s\n", i, failure.text);
        CHECK(!failure.text[0] || i == 8 || i == 10 || i == 5 || i == 6);
    }
    TEST("a prepared model is checked alike");
    c = good;
    memset(&c.target, 0, sizeof c.target);
    CHECK(specdec_model_memory_needed(&c, &bytes, &failure) != SPECDEC_OK && failure.text[0]);
    c = good;
    c.target.size = 1000;
    CHECK(specdec_model_memory_needed(&c, &bytes, &failure) != SPECDEC_OK && failure.text[0]);
    {
        specdec_model *model = (specdec_model *)(void *)&c;

        CHECK(specdec_model_init(&model, &c, m, sizeof *m, &failure) != SPECDEC_OK);
        CHECK(model == NULL);
        c = good;
        c.threads = -3;
        specdec_model_memory_needed(&c, &bytes, &failure);
        c.threads = 100000;
        specdec_model_memory_needed(&c, &bytes, &failure);
    }
    end_maker(m);
}

/* --- RoPE ---------------------------------------------------------------------------------------------------------------- */

/* Binds what the maker holds, in memory of its own. */
static specdec_result bind(maker *m, specdec__model *model, void **memory)
{
    specdec_source source = {NULL, NULL, 0, NULL, 0};
    specdec__arena arena = {NULL, 0, 0};
    specdec_result r;

    maker_write(m);
    source.data = m->file.data;
    source.size = m->file.size;
    arena.size = (size_t)8 << 20;
    arena.base = (unsigned char *)malloc(arena.size);
    *memory = arena.base;
    r = specdec__model_init(model, &source, 0, NULL, &arena, &last);
    if (r)
        fprintf(stderr, "%s\n", last.text);
    return r;
}

static void check_frequencies_of(maker *m, int which, const double *expected, int pairs, double scale)
{
    specdec__model model;
    void *memory;
    int i;

    CHECK_EQUAL_INT(bind(m, &model, &memory), SPECDEC_OK);
    CHECK_EQUAL_INT(model.rope_dim[which], 2 * pairs);
    CHECK(model.rope_frequency[which] != NULL);
    for (i = 0; i < pairs && model.rope_dim[which] == 2 * pairs && model.rope_frequency[which]; i++) {
        double got = model.rope_frequency[which][i], off = expected[i] != 0 ? fabs(got / expected[i] - 1) : fabs(got);

        if (!(off < 1e-6))
            fprintf(stderr, "pair %d: %.9g, not %.9g\n", i, got, expected[i]);
        CHECK(off < 1e-6);
    }
    CHECK(fabs((double)model.rope_scale[which] - scale) < 1e-5);
    free(memory);
}

static void check_frequencies(maker *m, const double *expected, int pairs, double scale)
{
    check_frequencies_of(m, SPECDEC__ROPE, expected, pairs, scale);
}

static void test_rope(void)
{
    static const struct { float base, factor; int original, dim; float fast, slow; } yarn[] = {
        {10000, 4, 4096, 64, 32, 1}, {1000000, 4, 32768, 128, 32, 1}, {10000, 16, 2048, 16, 32, 1}, {10000, 2, 4096, 64, 16, 2}, {500000, 1.5f, 8192, 80, 32, 1}};
    double expected[512];
    size_t k;
    int i;

    for (k = 0; k < SPECDEC__COUNT(yarn); k++) {
        const int dim = yarn[k].dim, pairs = dim / 2;
        double low = floor(dim * log(yarn[k].original / (yarn[k].fast * 2 * acos(-1.0))) / (2 * log(yarn[k].base)));
        double high = ceil(dim * log(yarn[k].original / (yarn[k].slow * 2 * acos(-1.0))) / (2 * log(yarn[k].base)));
        maker_recipe r;
        maker *m = (maker *)malloc(sizeof *m);

        memset(&r, 0, sizeof r);
        r.layers = 1;
        r.head_dim = dim;
        maker_begin(m, &r);
        maker_f32(m, "llama.rope.freq_base", yarn[k].base);
        TEST("RoPE without scaling: base^(-2i/d)");
        for (i = 0; i < pairs; i++)
            expected[i] = pow((double)yarn[k].base, -2.0 * i / dim);
        check_frequencies(m, expected, pairs, 1);

        TEST("linear RoPE scaling divides by the factor");
        for (i = 0; i < pairs; i++)
            expected[i] = pow((double)yarn[k].base, -2.0 * i / dim) / (double)yarn[k].factor;
        maker_f32(m, "llama.rope.scaling.factor", yarn[k].factor);
        check_frequencies(m, expected, pairs, 1);
        maker_text(m, "llama.rope.scaling.type", "linear");
        check_frequencies(m, expected, pairs, 1);
        maker_remove_pair(m, "llama.rope.scaling.factor");
        maker_remove_pair(m, "llama.rope.scaling.type");
        maker_f32(m, "llama.rope.scale_linear", yarn[k].factor);
        check_frequencies(m, expected, pairs, 1);
        maker_remove_pair(m, "llama.rope.scale_linear");

        TEST("YaRN: by the number of turns over the original context, and the attention factor 1 + 0.1 ln s");
        maker_text(m, "llama.rope.scaling.type", "yarn");
        maker_f32(m, "llama.rope.scaling.factor", yarn[k].factor);
        maker_u32(m, "llama.rope.scaling.original_context_length", (uint32_t)yarn[k].original);
        if (yarn[k].fast < 32) {
            maker_f32(m, "llama.rope.scaling.yarn_beta_fast", yarn[k].fast);
            maker_f32(m, "llama.rope.scaling.yarn_beta_slow", yarn[k].slow);
        }
        low = low < 0 ? 0 : low;
        high = high > dim - 1 ? dim - 1 : high;
        for (i = 0; i < pairs; i++) {
            double plain = pow((double)yarn[k].base, -2.0 * i / dim), ramp = (i - low) / fmax(high - low, 0.001);

            ramp = fmin(fmax(ramp, 0), 1);
            expected[i] = plain * (1 - ramp) + plain / (double)yarn[k].factor * ramp;
        }
        check_frequencies(m, expected, pairs, 1 + 0.1 * log((double)yarn[k].factor));
        maker_remove_pair(m, "llama.rope.scaling.type");
        maker_remove_pair(m, "llama.rope.scaling.factor");

        TEST("Llama 3: every frequency has its divisor in rope_freqs.weight");
        {
            maker_tensor *t = maker_add_tensor(m, "rope_freqs.weight", 0, (uint64_t)pairs, 0);

            for (i = 0; i < pairs; i++) { /* the published smoothing: factor 8, low 1, high 4, original 8192 */
                double plain = pow((double)yarn[k].base, -2.0 * i / dim), wave = 2 * acos(-1.0) / plain;
                double smooth = (8192 / wave - 1) / (4 - 1), divisor = wave < 8192 / 4.0 ? 1 : wave > 8192 ? 8 : 1 / ((1 - smooth) / 8 + smooth);

                maker_put_float(&t->data, (float)divisor);
                expected[i] = plain / divisor;
            }
        }
        check_frequencies(m, expected, pairs, 1);
        end_maker(m);
    }
    {
        static const float wild[] = {1e-45f, 1e-30f, 0, -1, INFINITY, NAN, 3e38f};
        maker *m;

        TEST("wild RoPE values do no harm");
        for (k = 0; k < SPECDEC__COUNT(wild); k++) {
            static const char *const keys[] = {"llama.rope.freq_base", "llama.rope.scaling.factor", "llama.rope.scale_linear", "llama.rope.scaling.attn_factor",
                                               "llama.rope.scaling.yarn_beta_fast", "llama.rope.scaling.yarn_beta_slow", "llama.attention.layer_norm_rms_epsilon"};
            size_t key;

            for (key = 0; key < SPECDEC__COUNT(keys); key++) {
                m = new_maker("llama", 0);
                maker_f32(m, keys[key], wild[k]);
                try_maker(m);
                maker_text(m, "llama.rope.scaling.type", "yarn");
                try_maker(m);
                maker_f32(m, "llama.rope.freq_base", 1);
                try_maker(m);
                maker_f32(m, "llama.rope.freq_base", 1.0000001f);
                try_maker(m);
                end_maker(m);
            }
            m = new_maker("llama", 0);
            maker_add_tensor(m, "rope_freqs.weight", 0, 8, 0);
            for (i = 0; i < 8; i++)
                maker_put_float(&m->tensor[m->tensors - 1].data, wild[k]);
            try_maker(m);
            end_maker(m);
        }
        m = new_maker("llama", 0);
        maker_text(m, "llama.rope.scaling.type", "dynamic");
        CHECK_EQUAL_INT(try_maker(m), SPECDEC_ERROR_UNSUPPORTED);
        CHECK(names("dynamic"));
        end_maker(m);
    }
    {
        uint64_t random = 4;

        TEST("sine and cosine of angles that occur are libm's");
        for (i = 0; i < 20000; i++) {
            double x = (double)maker_random(&random) / (i % 2 ? 4096.0 : 1e9);
            float s, c;

            specdec__sine_cosine(x, &s, &c);
            CHECK(fabs((double)s - sin(x)) < 1e-7 && fabs((double)c - cos(x)) < 1e-7);
        }
    }
}

/* --- sizes ---------------------------------------------------------------------------------------------------------------- */

static void test_many(void)
{
    maker_buffer f;
    char name[64];
    int i, kind;

    for (kind = 0; kind < 3; kind++) {
        TEST("files of very many names are refused or read in time");
        memset(&f, 0, sizeof f);
        maker_put(&f, "GGUF", 4);
        maker_put_number(&f, 3, 4);
        maker_put_number(&f, kind == 0 ? 16384 : 0, 8);
        maker_put_number(&f, kind == 1 ? 65536 : 1, 8);
        if (kind == 2) { /* an array of very many empty strings */
            maker_put_string(&f, "general.architecture", 20);
            maker_put_number(&f, 9, 4);
            maker_put_number(&f, 8, 4);
            maker_put_number(&f, 2000000, 8);
            for (i = 0; i < 2000000; i++)
                maker_put_number(&f, 0, 8);
        }
        for (i = 0; i < (kind == 1 ? 65536 : kind == 0 ? 1 : 0); i++) {
            int n = snprintf(name, sizeof name, "key.%d", i);
            maker_put_string(&f, name, (size_t)n);
            maker_put_number(&f, 4, 4);
            maker_put_number(&f, 1, 4);
        }
        for (i = 0; i < (kind == 0 ? 16384 : 0); i++) {
            int n = snprintf(name, sizeof name, "blk.%d.attn_q.weight", i);
            maker_put_string(&f, name, (size_t)n);
            maker_put_number(&f, 2, 4);
            maker_put_number(&f, 32, 8);
            maker_put_number(&f, 1, 8);
            maker_put_number(&f, 0, 4);
            maker_put_number(&f, 0, 8);
        }
        CHECK(try_bytes(f.data, f.size) != SPECDEC_OK);
        free(f.data);
    }
}

/* --- what files say of layers ------------------------------------------------------------------------------------------ */

static maker_tensor *tensor_of(maker *m, const char *name)
{
    int i;

    for (i = 0; i < m->tensors; i++)
        if (strcmp(m->tensor[i].name, name) == 0)
            return &m->tensor[i];
    abort();
}

/* All values of an F32 tensor become one. */
static void fill(maker *m, const char *name, float value)
{
    maker_buffer *data = &tensor_of(m, name)->data;
    size_t at;

    for (at = 0; at < data->size; at += 4)
        specdec__store_u32(data->data + at, specdec__bits_from_float(value));
}

enum { LOGITS = 3 * 301 };

/* No logits, and those behind two tokens. */
static void logits_of(maker *m, float *logits)
{
    static const int32_t tokens[] = {40, 77}, parents[] = {-1, 0};
    specdec *engine = NULL;
    specdec_config c;
    size_t bytes;
    void *block;

    maker_write(m);
    memset(&c, 0, sizeof c);
    memset(logits, 0, LOGITS * sizeof *logits);
    c.target.data = m->file.data;
    c.target.size = m->file.size;
    c.threads = 1;
    c.context = 64;
    CHECK_EQUAL_INT(specdec_memory_needed(&c, &bytes, &failure), SPECDEC_OK);
    block = malloc(bytes);
    CHECK_EQUAL_INT(specdec_init(&engine, &c, block, bytes, &failure), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_logits(engine, tokens, parents, 2, logits), SPECDEC_OK);
    specdec_deinit(engine);
    free(block);
}

/* Biases of the feed-forward, one after the other, in a layer whose feed-forward is nothing but them. */
static void test_biases(void)
{
    static float plain[LOGITS], one[LOGITS], other[LOGITS];
    maker *m = new_maker("llama", 0);
    double off = 0;
    int i;

    TEST("biases of the feed-forward count: that of down as that of the attention's output");
    fill(m, "blk.0.attn_output.weight", 0);
    fill(m, "blk.0.ffn_down.weight", 0);
    logits_of(m, plain);
    maker_add_tensor(m, "blk.0.attn_output.bias", 0, 64, 0);
    for (i = 0; i < 64; i++)
        maker_put_float(&tensor_of(m, "blk.0.attn_output.bias")->data, .1f * (float)(i % 7) - .3f);
    logits_of(m, one);
    strcpy(tensor_of(m, "blk.0.attn_output.bias")->name, "blk.0.ffn_down.bias");
    logits_of(m, other);
    CHECK(memcmp(plain, one, sizeof one) != 0);
    CHECK(memcmp(other, one, sizeof one) == 0);
    TEST("those of gate and up are activated and multiplied: 20 and 0.125 as 2.5 of down with weights of 1 / 96");
    fill(m, "blk.0.ffn_down.bias", 2.5f);
    logits_of(m, one);
    fill(m, "blk.0.ffn_down.bias", 0);
    fill(m, "blk.0.ffn_down.weight", 1.0f / 96);
    fill(m, "blk.0.ffn_gate.weight", 0);
    fill(m, "blk.0.ffn_up.weight", 0);
    maker_add_tensor(m, "blk.0.ffn_gate.bias", 0, 96, 0);
    maker_add_tensor(m, "blk.0.ffn_up.bias", 0, 96, 0);
    for (i = 0; i < 96; i++) {
        maker_put_float(&tensor_of(m, "blk.0.ffn_gate.bias")->data, 20);
        maker_put_float(&tensor_of(m, "blk.0.ffn_up.bias")->data, .125f);
    }
    logits_of(m, other);
    for (i = 0; i < LOGITS; i++)
        off = fmax(off, fabs((double)(one[i] - other[i])));
    CHECK(off < 1e-3);
    end_maker(m);
}

/* The gates of 4 heads of 16 get this bias, those of head `own` another one, in a layer with gate rows of zeros. */
static void bias_gates(maker *m, float all, int own, float other)
{
    maker_buffer *rows = &tensor_of(m, "blk.1.attn_q.weight")->data, *bias = &tensor_of(m, "blk.1.attn_q.bias")->data;
    int i;

    bias->size = 0;
    for (i = 0; i < 128; i++) {
        maker_put_float(bias, i % 32 < 16 ? 0 : i / 32 == own ? other : all);
        if (i % 32 >= 16)
            memset(rows->data + i * 64 * 4, 0, 64 * 4);
    }
}

/* Scales columns [from, to) of 64 of a matrix. */
static void scale_columns(maker *m, const char *name, int from, int to, float factor)
{
    maker_buffer *b = &tensor_of(m, name)->data;
    size_t i;

    for (i = 0; i < b->size / 4; i++)
        if ((int)(i % 64) >= from && (int)(i % 64) < to)
            specdec__store_u32(b->data + i * 4, specdec__bits_from_float(factor * specdec__float_from_bits(specdec__load_u32(b->data + i * 4))));
}

static void test_gates(void)
{
    static float one[LOGITS], other[LOGITS];
    static const char *const parts[] = {"blk.1.attn_q.weight", "blk.1.attn_k.weight", "blk.1.attn_v.weight"};
    maker *m = new_maker("qwen35", 0);
    maker_tensor *fused;
    double off = 0;
    int i;

    TEST("attention is multiplied by the sigmoid of its gates: 0 halves it");
    maker_add_tensor(m, "blk.1.attn_q.bias", 0, 128, 0);
    bias_gates(m, 0, -1, 0);
    logits_of(m, one);
    bias_gates(m, 80, -1, 0);
    logits_of(m, other);
    CHECK(memcmp(one, other, sizeof one) != 0);
    scale_columns(m, "blk.1.attn_output.weight", 0, 64, 0.5f);
    logits_of(m, other);
    CHECK(memcmp(one, other, sizeof one) == 0);
    TEST("each head has its own gates, behind the rows of its query");
    bias_gates(m, 80, 2, -80);
    logits_of(m, one);
    bias_gates(m, 80, -1, 0);
    scale_columns(m, "blk.1.attn_output.weight", 32, 48, 0);
    logits_of(m, other);
    for (i = 0; i < LOGITS; i++)
        off = fmax(off, fabs((double)(one[i] - other[i])));
    CHECK(off < 1e-5);
    TEST("queries with their gates, keys and values in one matrix are what they are in three");
    tensor_of(m, "blk.1.attn_q.bias")->data.size = 0;
    for (i = 0; i < 128; i++)
        maker_put_float(&tensor_of(m, "blk.1.attn_q.bias")->data, 0.1f * (float)(i % 5));
    logits_of(m, one);
    fused = maker_add_tensor(m, "blk.1.attn_qkv.weight", 0, 64, 128 + 2 * 32);
    for (i = 0; i < 3; i++) {
        maker_tensor *t = tensor_of(m, parts[i]);

        maker_put(&fused->data, t->data.data, t->data.size);
    }
    for (i = 0; i < 3; i++) { /* the last tensor takes the place of each */
        maker_tensor *t = tensor_of(m, parts[i]);

        free(t->data.data);
        *t = m->tensor[--m->tensors];
        memset(&m->tensor[m->tensors], 0, sizeof *t);
    }
    logits_of(m, other);
    CHECK(memcmp(one, other, sizeof one) == 0);
    end_maker(m);
}

/* A pair with a count for each of two layers. */
static void put_counts(maker *m, const char *key, int first, int second)
{
    maker_buffer *b = maker_array(m, key, 5, 2);

    maker_put_number(b, (uint64_t)first, 4);
    maker_put_number(b, (uint64_t)second, 4);
}

static void test_layers(void)
{
    static const char *const keys[] = {"llama.attention.head_count_kv", "llama.attention.head_count", "llama.feed_forward_length"};
    static const int counts[] = {2, 4, 96};
    static float plain[LOGITS], other[LOGITS];
    size_t k;

    TEST("a list with a number for each layer is checked against that layer's tensors; one of another length is refused");
    for (k = 0; k < SPECDEC__COUNT(keys); k++) {
        maker *m = (maker *)malloc(sizeof *m);
        maker_recipe r;

        memset(&r, 0, sizeof r);
        maker_begin(m, &r);
        logits_of(m, plain);
        maker_remove_pair(m, keys[k]);
        put_counts(m, keys[k], counts[k], counts[k]);
        logits_of(m, other);
        CHECK(memcmp(plain, other, sizeof plain) == 0);
        maker_remove_pair(m, keys[k]);
        put_counts(m, keys[k], counts[k], counts[k] / 2);
        CHECK_EQUAL_INT(try_maker(m), SPECDEC_ERROR_FORMAT);
        CHECK(names("blk.1."));
        put_counts(m, keys[k], counts[k], 0);
        CHECK_EQUAL_INT(try_maker(m), SPECDEC_ERROR_FORMAT);
        CHECK(names(keys[k]));
        maker_remove_pair(m, keys[k]);
        maker_put_number(maker_array(m, keys[k], 5, 1), (uint64_t)counts[k], 4);
        CHECK_EQUAL_INT(try_maker(m), SPECDEC_ERROR_FORMAT);
        end_maker(m);
    }
}

/* Whether all layers of a Gemma 3 rotate alike, and see the whole text. */
static int is_whole(maker *m)
{
    specdec__model model;
    void *memory;
    int i, whole = 1;

    CHECK_EQUAL_INT(bind(m, &model, &memory), SPECDEC_OK);
    for (i = 0; i < model.layers; i++)
        whole &= model.layer[i].shape.span == SPECDEC__WHOLE && model.layer[i].shape.rope == SPECDEC__ROPE;
    free(memory);
    return whole;
}

static void test_windowless(void)
{
    maker *m = (maker *)malloc(sizeof *m);
    maker_recipe r;

    TEST("a Gemma 3 whose file has no window, or one of 0, has layers that see the whole text, and rotate so");
    memset(&r, 0, sizeof r);
    r.architecture = "gemma3";
    maker_begin(m, &r);
    CHECK(!is_whole(m));
    maker_remove_pair(m, "gemma3.attention.sliding_window");
    CHECK(is_whole(m));
    maker_u32(m, "gemma3.attention.sliding_window", 0);
    CHECK(is_whole(m));
    end_maker(m);
}

/* Which of a model's four layers rotate, as bits. */
static unsigned turning(const char *architecture, int window)
{
    maker *m = (maker *)malloc(sizeof *m);
    specdec__model model;
    maker_recipe r;
    void *memory;
    unsigned bits = 0;
    int i;

    memset(&r, 0, sizeof r);
    r.architecture = architecture;
    r.layers = 4;
    r.window = window;
    maker_begin(m, &r);
    CHECK_EQUAL_INT(bind(m, &model, &memory), SPECDEC_OK);
    for (i = 0; i < model.layers; i++)
        bits |= (unsigned)(model.rope_frequency[model.layer[i].shape.rope][0] > 0) << i;
    free(memory);
    end_maker(m);
    return bits;
}

static void test_resting(void)
{
    TEST("layers without a window do not rotate where the others have one, if the architecture says so");
    CHECK_EQUAL_INT(turning("cohere2", 8), 7);
    CHECK_EQUAL_INT(turning("exaone4", 8), 7);
    TEST("an EXAONE 4 without windows rotates everywhere");
    CHECK_EQUAL_INT(turning("exaone4", 1 << 30), 15);
    CHECK_EQUAL_INT(turning("smollm3", 0), 7);
}

/* A model with experts whose key is set to this; value < 0: has no such key. */
static specdec_result with_experts(const char *key, int value)
{
    maker *m = new_maker("qwen3moe", 0);
    specdec_result result;

    if (value < 0)
        maker_remove_pair(m, key);
    else
        maker_u32(m, key, (uint32_t)value);
    result = try_maker(m);
    end_maker(m);
    return result;
}

/* Multiply-adds, or bytes, of a token that visits so many of six experts. */
static size_t weigh(int chosen, int products)
{
    maker *m = (maker *)malloc(sizeof *m);
    specdec__model model;
    maker_recipe r;
    void *memory;

    memset(&r, 0, sizeof r);
    r.architecture = "qwen3moe";
    r.experts = 6;
    r.chosen = chosen;
    maker_begin(m, &r);
    CHECK_EQUAL_INT(bind(m, &model, &memory), SPECDEC_OK);
    free(memory);
    end_maker(m);
    return products ? (size_t)model.weight_products : model.weight_bytes;
}

static void test_experts(void)
{
    static const char *const tensors[] = {"blk.0.ffn_gate_inp.weight", "blk.0.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight",
                                          "blk.0.ffn_down_exps.weight"};
    maker *m;
    size_t i;

    TEST("mixtures of experts are refused by name where they are not known, or are of an unknown kind");
    m = new_maker("qwen3", 0);
    maker_u32(m, "qwen3.expert_count", 8);
    CHECK_EQUAL_INT(try_maker(m), SPECDEC_ERROR_UNSUPPORTED);
    CHECK(names("experts") && names("qwen3"));
    end_maker(m);
    CHECK_EQUAL_INT(with_experts("qwen3moe.expert_shared_feed_forward_length", 64), SPECDEC_ERROR_FORMAT);
    CHECK(names("shexp"));
    TEST("groups of experts that are none, do not divide them or hold fewer than are chosen are refused");
    CHECK_EQUAL_INT(with_experts("qwen3moe.expert_group_count", 1), SPECDEC_OK);
    CHECK(with_experts("qwen3moe.expert_group_count", 0) == SPECDEC_ERROR_FORMAT && names("expert_group_count"));
    CHECK(with_experts("qwen3moe.expert_group_count", 6) == SPECDEC_ERROR_FORMAT && names("expert_group_count"));
    CHECK(with_experts("qwen3moe.expert_group_count", 5) == SPECDEC_ERROR_FORMAT && names("expert_group_used_count is missing"));
    for (i = 0; i < 7; i++) {
        m = new_maker("qwen3moe", 0);
        maker_u32(m, "qwen3moe.expert_group_count", 5);
        maker_u32(m, "qwen3moe.expert_group_used_count", (uint32_t)i);
        CHECK_EQUAL_INT(try_maker(m), i < 2 || i > 5 ? SPECDEC_ERROR_FORMAT : SPECDEC_OK);
        CHECK((i > 1 && i < 6) || names("group"));
        maker_u32(m, "qwen3moe.expert_group_count", 2);
        CHECK(try_maker(m) == SPECDEC_ERROR_FORMAT && names("group"));
        end_maker(m);
    }
    TEST("so are more leading layers than there are, routers of unknown kinds and scales out of range");
    CHECK(with_experts("qwen3moe.leading_dense_block_count", 2) == SPECDEC_ERROR_FORMAT && names("leading_dense_block_count"));
    CHECK(with_experts("qwen3moe.leading_dense_block_count", 1) == SPECDEC_ERROR_FORMAT && names("ffn_gate.weight"));
    CHECK(with_experts("qwen3moe.interleave_moe_layer_step", 0) == SPECDEC_ERROR_FORMAT && names("interleave_moe_layer_step"));
    CHECK(with_experts("qwen3moe.expert_gating_func", 4) == SPECDEC_ERROR_FORMAT && names("expert_gating_func"));
    CHECK(with_experts("qwen3moe.moe_latent_size", 24) == SPECDEC_ERROR_UNSUPPORTED && names("24"));
    CHECK(with_experts("qwen3moe.moe_latent_size", 32) == SPECDEC_ERROR_FORMAT && names("32"));
    CHECK(with_experts("qwen3moe.expert_shared_count", 1025) == SPECDEC_ERROR_FORMAT && names("expert_shared_count"));
    CHECK(with_experts("qwen3moe.expert_shared_count", 1) == SPECDEC_ERROR_FORMAT && names("shexp"));
    for (i = 0; i < 3; i++) {
        static const float scale[] = {1, 2.5f, -1};

        m = new_maker("qwen3moe", 0);
        maker_f32(m, "qwen3moe.expert_weights_scale", scale[i]);
        CHECK_EQUAL_INT(try_maker(m), i < 2 ? SPECDEC_OK : SPECDEC_ERROR_FORMAT);
        CHECK(i < 2 || names("expert_weights_scale"));
        end_maker(m);
    }
    TEST("experts: counts and shapes that do not fit");
    CHECK_EQUAL_INT(with_experts("qwen3moe.expert_used_count", -1), SPECDEC_ERROR_FORMAT);
    CHECK_EQUAL_INT(with_experts("qwen3moe.expert_used_count", 0), SPECDEC_ERROR_FORMAT);
    CHECK_EQUAL_INT(with_experts("qwen3moe.expert_used_count", 6), SPECDEC_ERROR_FORMAT);
    CHECK_EQUAL_INT(with_experts("qwen3moe.expert_used_count", 5), SPECDEC_OK);
    CHECK_EQUAL_INT(with_experts("qwen3moe.expert_count", 4), SPECDEC_ERROR_FORMAT);
    CHECK_EQUAL_INT(with_experts("qwen3moe.expert_count", 1 << 20), SPECDEC_ERROR_FORMAT);
    CHECK_EQUAL_INT(with_experts("qwen3moe.expert_feed_forward_length", 64), SPECDEC_ERROR_FORMAT);
    CHECK_EQUAL_INT(with_experts("qwen3moe.expert_feed_forward_length", 8), SPECDEC_ERROR_UNSUPPORTED);
    CHECK_EQUAL_INT(with_experts("qwen3moe.expert_feed_forward_length", -1), SPECDEC_OK); /* as feed_forward_length says */
    for (i = 0; i < SPECDEC__COUNT(tensors); i++) {
        m = new_maker("qwen3moe", 0);
        maker_find_tensor(m, tensors[i])->name[6] = 'x';
        CHECK_EQUAL_INT(try_maker(m), SPECDEC_ERROR_FORMAT);
        CHECK(names(tensors[i]));
        end_maker(m);
    }
    TEST("what a token reads of a model with experts is those that it visits");
    CHECK_EQUAL_INT(weigh(3, 1) - weigh(1, 1), 2 * 2 * 3 * 64 * 96); /* layers, experts, matrices */
    CHECK_EQUAL_INT(weigh(3, 0) - weigh(1, 0), 4 * 2 * 2 * 3 * 64 * 96);
}

#define LAYERS 7

/* Which layers have a window, and rotate as layers with one do: bit i for layer i. */
static unsigned windowed(maker *m)
{
    specdec__model model;
    void *memory;
    unsigned bits = 0;
    int i, own = 0;

    CHECK_EQUAL_INT(bind(m, &model, &memory), SPECDEC_OK);
    for (i = 0; i < model.layers; i++) {
        const int other = model.layer[i].shape.span == SPECDEC__WINDOW;

        bits |= (unsigned)other << i;
        CHECK_EQUAL_INT(model.layer[i].shape.rope, other == !model.trait[SPECDEC__BASE_OF_REGULAR] && model.trait[SPECDEC__ALTERNATE_BASE] ? SPECDEC__ROPE_ALTERNATE : SPECDEC__ROPE);
        own += other;
    }
    CHECK_EQUAL_INT(model.span_layers[SPECDEC__WINDOW], own);
    free(memory);
    return bits;
}

static void test_windowed(void)
{
    static const struct { const char *architecture; unsigned usual; } kinds[] = {{"gemma2", 0x55}, {"gemma3", 0x5F}, {"phi3", 0x7F}, {"cohere2", 0x77}, {"exaone4", 0x77}};
    static const uint32_t types[] = {7, 0, 4, 5, 10}; /* bool, u8, u32, i32, u64 */
    static const int widths[] = {1, 1, 4, 4, 8};
    maker *m = (maker *)malloc(sizeof *m);
    maker_buffer *b;
    maker_recipe r;
    char key[64];
    size_t k, type;
    int n, i;

    for (k = 0; k < SPECDEC__COUNT(kinds); k++) {
        memset(&r, 0, sizeof r);
        r.architecture = kinds[k].architecture;
        r.layers = LAYERS;
        maker_begin(m, &r);
        snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", r.architecture);
        TEST("which layers have a window: the architecture's, unless the file says that all but the last of every n have one");
        CHECK_EQUAL_INT(windowed(m), kinds[k].usual);
        for (n = 0; n < 9; n++) {
            unsigned expected = 0;

            for (i = 0; i < LAYERS; i++)
                expected |= (unsigned)(n == 0 || (i + 1) % n != 0) << i;
            maker_u32(m, key, (uint32_t)n);
            CHECK_EQUAL_INT(windowed(m), expected);
            CHECK_EQUAL_INT(try_maker(m), SPECDEC_OK);
        }
        TEST("or those that a list marks, of any type of integers");
        for (type = 0; type < SPECDEC__COUNT(types); type++) {
            const unsigned marked = (0x2Cu + 17 * (unsigned)type) & 0x7F;

            b = maker_array(m, key, types[type], LAYERS);
            for (i = 0; i < LAYERS; i++)
                maker_put_number(b, marked >> i & 1, widths[type]);
            CHECK_EQUAL_INT(windowed(m), marked);
            CHECK_EQUAL_INT(try_maker(m), SPECDEC_OK);
        }
        TEST("a list of another length, and what are no integers, are refused");
        for (n = LAYERS - 1; n <= LAYERS + 1; n += 2) {
            b = maker_array(m, key, 7, (uint64_t)n);
            for (i = 0; i < n; i++)
                maker_put_number(b, 1, 1);
            CHECK_EQUAL_INT(try_maker(m), SPECDEC_ERROR_FORMAT);
            CHECK(names(key));
        }
        maker_array(m, key, 7, 0);
        CHECK_EQUAL_INT(try_maker(m), SPECDEC_ERROR_FORMAT);
        maker_f32(m, key, 2);
        CHECK_EQUAL_INT(try_maker(m), SPECDEC_ERROR_FORMAT);
        maker_text(m, key, "2");
        CHECK_EQUAL_INT(try_maker(m), SPECDEC_ERROR_FORMAT);
        maker_put_number(&maker_pair_of(m, key, 5)->value, (uint64_t)-1, 4);
        CHECK(try_maker(m) == SPECDEC_ERROR_FORMAT && names(key));
        maker_remove_pair(m, key);
        CHECK_EQUAL_INT(windowed(m), kinds[k].usual);
        if (k + 1 < SPECDEC__COUNT(kinds)) {
            end_maker(m);
            m = (maker *)malloc(sizeof *m);
        }
    }
    end_maker(m);
}

static void test_demands(void)
{
    static const struct { const char *suffix; uint32_t done, asked; } keys[] = {
        {".attention.causal", 1, 0}, {".attention.key_length_swa", 16, 8}, {".attention.value_length_swa", 16, 8},
        {".rope.dimension_count_swa", 16, 8}};
    static const char *const architectures[] = {"llama", "gemma3"};
    size_t i, k;

    TEST("keys that ask for what is not done are refused by name, with the values that are done they are not");
    for (i = 0; i < SPECDEC__COUNT(architectures); i++) {
        for (k = 0; k < (i ? 1 : SPECDEC__COUNT(keys)); k++) { /* a Gemma 3 has windows, and may say other sizes */
            maker *m = new_maker(architectures[i], 0);
            char key[64];

            snprintf(key, sizeof key, "%s%s", architectures[i], keys[k].suffix);
            maker_u32(m, key, keys[k].done);
            CHECK_EQUAL_INT(try_maker(m), SPECDEC_OK);
            if (k == 0)
                maker_bool(m, key, 0);
            else
                maker_u32(m, key, keys[k].asked);
            CHECK_EQUAL_INT(try_maker(m), SPECDEC_ERROR_UNSUPPORTED);
            CHECK(names(key));
            maker_text(m, key, "so");
            CHECK_EQUAL_INT(try_maker(m), SPECDEC_ERROR_FORMAT);
            end_maker(m);
        }
    }
}

static void test_standing(void)
{
    static const double still[8] = {0};
    maker *m = new_maker("granite", 0);
    double turning[8];
    int i;

    TEST("a Granite whose RoPE is not finetuned does not rotate, whatever its scaling");
    for (i = 0; i < 8; i++)
        turning[i] = pow(10000, -i / 8.0);
    check_frequencies(m, turning, 8, 1);
    maker_bool(m, "granite.rope.scaling.finetuned", 1);
    check_frequencies(m, turning, 8, 1);
    maker_f32(m, "granite.rope.scaling.attn_factor", 1.5f);
    check_frequencies(m, turning, 8, 1.5);
    maker_bool(m, "granite.rope.scaling.finetuned", 0);
    check_frequencies(m, still, 8, 1);
    maker_text(m, "granite.rope.scaling.type", "yarn");
    maker_f32(m, "granite.rope.scaling.factor", 4);
    check_frequencies(m, still, 8, 1);
    CHECK_EQUAL_INT(try_maker(m), SPECDEC_OK);
    maker_text(m, "granite.rope.scaling.finetuned", "no");
    CHECK(try_maker(m) == SPECDEC_ERROR_FORMAT && names("granite.rope.scaling.finetuned"));
    end_maker(m);
    TEST("in other architectures that key says nothing");
    m = new_maker("llama", 0);
    maker_bool(m, "llama.rope.scaling.finetuned", 0);
    check_frequencies(m, turning, 8, 1);
    end_maker(m);
}

/* YaRN of DeepSeek V2 Lite and V3: factor, original context, yarn_log_multiplier (0.1 mscale_all_dim). */
static void test_sharpened(void)
{
    static const struct { float factor, sharpens; int original; } known[] = {{40, 0.0707f, 4096}, {40, 0.1f, 4096}, {4, 0, 64}, {8, 0.2f, 16}};
    size_t k;

    TEST("YaRN of DeepSeek makes scores larger, twice by 1 + L ln f, and neither cosine nor sine; without L it is as for other architectures");
    for (k = 0; k < SPECDEC__COUNT(known); k++) {
        maker *m = new_maker("deepseek2", 0);
        const double f = (double)known[k].factor, sharper = 1 + (double)known[k].sharpens * log(f);
        double expected[64], low, high, base, plain;
        specdec__model model;
        void *memory;
        int dim, i;

        CHECK_EQUAL_INT(bind(m, &model, &memory), SPECDEC_OK);
        dim = model.rope_dim[SPECDEC__ROPE];
        base = (double)model.rope_base;
        plain = (double)model.layer[0].query_scale;
        CHECK(fabs(plain * sqrt((double)model.latent_attention.key_dim) - 1) < 1e-6);
        free(memory);
        low = fmax(0, floor(dim * log(known[k].original / (32 * 2 * acos(-1.0))) / (2 * log(base))));
        high = fmin(dim - 1, ceil(dim * log(known[k].original / (2 * acos(-1.0))) / (2 * log(base))));
        for (i = 0; i < dim / 2; i++) {
            const double r = 1 - fmin(1, fmax(0, (i - low) / fmax(0.001, high - low))), angle = pow(base, -2.0 * i / dim);

            expected[i] = angle / f * (1 - r) + angle * r;
        }
        maker_text(m, "deepseek2.rope.scaling.type", "yarn");
        maker_f32(m, "deepseek2.rope.scaling.factor", known[k].factor);
        maker_u32(m, "deepseek2.rope.scaling.original_context_length", (uint32_t)known[k].original);
        if (known[k].sharpens > 0)
            maker_f32(m, "deepseek2.rope.scaling.yarn_log_multiplier", known[k].sharpens);
        check_frequencies(m, expected, dim / 2, known[k].sharpens > 0 ? 1 : 1 + 0.1 * log(f));
        CHECK_EQUAL_INT(bind(m, &model, &memory), SPECDEC_OK);
        CHECK(fabs((double)model.layer[0].query_scale / plain / (sharper * sharper) - 1) < 1e-6);
        free(memory);
        CHECK_EQUAL_INT(try_maker(m), SPECDEC_OK);
        end_maker(m);
    }
}

/* What RoPE's factors are called. */
static const char *const factor_names[2] = {"rope_factors_short.weight", "rope_factors_long.weight"};

static void add_factors(maker *m, int which, const float *factors, int count)
{
    maker_tensor *t = maker_add_tensor(m, factor_names[which], 0, (uint64_t)count, 0);
    int i;

    for (i = 0; i < count; i++)
        maker_put_float(&t->data, factors[i]);
}

static void test_factors(void)
{
    static const float factors[2][8] = {{1, 1.25f, 1.5f, 2, 2, 2.5f, 3, 4}, {1, 2, 4, 8, 12, 20, 30, 40}};
    double plain[2][8], yarn[2][8];
    maker *m = new_maker("phi3", 0);
    int i, k;

    /* 64 tokens make 32 turns up to dimension 16 ln(64 / (64 pi)) / (2 ln 10000) < 0, one turn up to 2.02: ramp 0 to 3 */
    for (k = 0; k < 2; k++) {
        for (i = 0; i < 8; i++) {
            double ramp = i < 3 ? i / 3.0 : 1;

            plain[k][i] = pow(10000, -i / 8.0) / (double)factors[k][i];
            yarn[k][i] = plain[k][i] * (1 - ramp) + plain[k][i] / 4 * ramp;
        }
        add_factors(m, k, factors[k], 8);
    }
    maker_u32(m, "phi3.rope.scaling.original_context_length", 64);
    check_frequencies_of(m, SPECDEC__ROPE, plain[0], 8, 1);
    check_frequencies_of(m, SPECDEC__ROPE_LONG, plain[1], 8, 1);
    TEST("factors for short contexts count without those for long ones, too, and those without them");
    for (k = 0; k < 2; k++) {
        maker *one = new_maker("phi3", 0);
        double none[8];

        for (i = 0; i < 8; i++)
            none[i] = pow(10000, -i / 8.0);
        add_factors(one, k, factors[k], 8);
        check_frequencies_of(one, k ? SPECDEC__ROPE : SPECDEC__ROPE_LONG, none, 8, 1);
        check_frequencies_of(one, k ? SPECDEC__ROPE_LONG : SPECDEC__ROPE, plain[k], 8, 1);
        end_maker(one);
    }
    TEST("YaRN is for both kinds of factors");
    maker_text(m, "phi3.rope.scaling.type", "yarn");
    maker_f32(m, "phi3.rope.scaling.factor", 4);
    check_frequencies_of(m, SPECDEC__ROPE, yarn[0], 8, 1 + 0.1 * log(4));
    check_frequencies_of(m, SPECDEC__ROPE_LONG, yarn[1], 8, 1 + 0.1 * log(4));
    end_maker(m);
}

static void test_scalings(void)
{
    static const struct { const char *type; float factor, old; int divided; } scalings[] = {
        {NULL, 4, 2, 4}, {"linear", 4, 2, 4}, {"longrope", 4, 2, 4}, {"none", 4, 2, 1}, {NULL, 0, 2, 1},
        {"linear", 0, 2, 1}, {NULL, -2, 0, -1}, {NULL, -2, 4, -1}};
    double expected[8];
    size_t k;
    int i;

    TEST("what RoPE's frequencies are divided by: the factor; 0 is none, the old key only counts without the new one");
    for (k = 0; k < SPECDEC__COUNT(scalings); k++) {
        maker *m = new_maker("llama", 0);

        if (scalings[k].type)
            maker_text(m, "llama.rope.scaling.type", scalings[k].type);
        maker_f32(m, "llama.rope.scaling.factor", scalings[k].factor);
        maker_f32(m, "llama.rope.scale_linear", scalings[k].old);
        for (i = 0; i < 8; i++)
            expected[i] = pow(10000, -i / 8.0) / scalings[k].divided;
        if (scalings[k].divided > 0)
            check_frequencies(m, expected, 8, 1);
        else
            CHECK_EQUAL_INT(try_maker(m), SPECDEC_ERROR_FORMAT);
        end_maker(m);
    }
}

static void test_others(void)
{
    static const char *const architectures[] = {"gemma2", "phi3"};
    static const float wild[] = {0, -1, 0.5f, 1e12f, NAN};
    double expected[8];
    maker *m = new_maker("gemma3", 0);
    char key[64];
    size_t k;
    int i;

    TEST("layers with a window rotate by a base of their own, not scaled, but for the attention factor that the file names");
    for (i = 0; i < 8; i++)
        expected[i] = pow(10000, -i / 8.0);
    maker_f32(m, "gemma3.rope.freq_base", 1e6f);
    maker_f32(m, "gemma3.rope.scaling.factor", 8);
    check_frequencies_of(m, SPECDEC__ROPE_ALTERNATE, expected, 8, 1);
    maker_text(m, "gemma3.rope.scaling.type", "yarn");
    check_frequencies_of(m, SPECDEC__ROPE_ALTERNATE, expected, 8, 1);
    maker_f32(m, "gemma3.rope.scaling.attn_factor", 1.25f);
    check_frequencies_of(m, SPECDEC__ROPE_ALTERNATE, expected, 8, 1.25);
    for (i = 0; i < 8; i++)
        expected[i] = pow(500, -i / 8.0);
    maker_f32(m, "gemma3.rope.freq_base_swa", 500);
    check_frequencies_of(m, SPECDEC__ROPE_ALTERNATE, expected, 8, 1.25);
    for (k = 0; k < SPECDEC__COUNT(wild); k++) {
        maker_f32(m, "gemma3.rope.freq_base_swa", wild[k]);
        CHECK(try_maker(m) == SPECDEC_ERROR_FORMAT && names("rope.freq_base_swa"));
    }
    end_maker(m);
    TEST("layers that do not rotate are not scaled, either");
    m = new_maker("smollm3", 0);
    for (i = 0; i < 8; i++)
        expected[i] = 0;
    maker_f32(m, "smollm3.rope.scaling.attn_factor", 1.25f);
    check_frequencies_of(m, SPECDEC__ROPE_ALTERNATE, expected, 8, 1);
    end_maker(m);
    TEST("where they rotate as all others do, a base of their own is refused");
    for (k = 0; k < SPECDEC__COUNT(architectures); k++) {
        m = new_maker(architectures[k], 0);
        snprintf(key, sizeof key, "%s.rope.freq_base_swa", architectures[k]);
        maker_f32(m, key, 10000);
        CHECK_EQUAL_INT(try_maker(m), SPECDEC_OK);
        maker_f32(m, key, 500);
        CHECK_EQUAL_INT(try_maker(m), SPECDEC_ERROR_UNSUPPORTED);
        CHECK(names("rope.freq_base_swa"));
        end_maker(m);
    }
}

static void test_refused(void)
{
    maker *m = new_maker("llama", 0);
    maker_heads_recipe h;
    specdec__gguf gguf;
    specdec__bytes file;
    specdec_config config;
    size_t bytes;
    int tensors;
    static const struct { const char *architecture, *tensor; specdec_result result; } strangers[] = {
        {"llama", "output.bias", SPECDEC_ERROR_UNSUPPORTED}, {"llama", "output_norm.bias", SPECDEC_ERROR_UNSUPPORTED},
        {"llama", "blk.0.attn_norm.bias", SPECDEC_ERROR_UNSUPPORTED}, {"llama", "blk.0.attn_sinks.weight", SPECDEC_ERROR_UNSUPPORTED},
        {"llama", "blk.0.attn_output.scale", SPECDEC_ERROR_FORMAT /* one value, not 64 */}, {"llama", "blk.0.rope_freqs.weight", SPECDEC_ERROR_UNSUPPORTED},
        {"llama", "blk.1.attn_norm.weight", SPECDEC_ERROR_UNSUPPORTED}, {"llama", "blk.00.attn_nor.weight", SPECDEC_ERROR_UNSUPPORTED},
        {"llama", "blk.99999999999999.attn_norm.weight", SPECDEC_ERROR_UNSUPPORTED}, {"llama", "blk.0", SPECDEC_ERROR_UNSUPPORTED},
        {"llama", "blk.0.", SPECDEC_ERROR_UNSUPPORTED}, {"llama", "blk.", SPECDEC_ERROR_UNSUPPORTED}, {"llama", "", SPECDEC_ERROR_UNSUPPORTED},
        {"llama", "blk.0.attn_qkv.weight", SPECDEC_ERROR_UNSUPPORTED}, {"llama", "blk.0.attn_norm_2.weight", SPECDEC_ERROR_UNSUPPORTED},
        {"phi3", "blk.0.attn_qkv.bias", SPECDEC_ERROR_FORMAT /* as long as the rows of the matrix */}, {"gemma3", "v.blk.0.attn_q.weight", SPECDEC_ERROR_UNSUPPORTED},
        {"llama", "blk.0.attn_norm.scale", SPECDEC_ERROR_UNSUPPORTED}, {"llama", "blk.0.attn_q.input_scale", SPECDEC_OK},
        {"qwen3", "cls.output.weight", SPECDEC_OK}, {"eagle3", "t2d", SPECDEC_ERROR_MISMATCH /* as without it: it can only draft */}};
    size_t k;

    TEST("tensors that nobody reads are refused by name");
    for (k = 0; k < SPECDEC__COUNT(strangers); k++) {
        maker *stranger = new_maker(strangers[k].architecture, 0);
        int i;

        maker_add_tensor(stranger, strangers[k].tensor, 0, 64, 0);
        for (i = 0; i < 64; i++)
            maker_put_float(&stranger->tensor[stranger->tensors - 1].data, 1);
        CHECK_EQUAL_INT(try_maker(stranger), strangers[k].result);
        CHECK((strangers[k].result != SPECDEC_ERROR_UNSUPPORTED && strangers[k].result != SPECDEC_ERROR_FORMAT) || names(strangers[k].tensor));
        end_maker(stranger);
    }
    TEST("biases that would be left out are refused by name");
    CHECK_EQUAL_INT(try_maker(m), SPECDEC_OK);
    {
        maker_tensor *t = maker_add_tensor(m, "output.bias", 0, 301, 0);
        int i;

        for (i = 0; i < 301; i++)
            maker_put_float(&t->data, 0);
    }
    CHECK_EQUAL_INT(try_maker(m), SPECDEC_ERROR_UNSUPPORTED);
    CHECK(names("output.bias"));
    end_maker(m);
    TEST("a file of a vocabulary alone is one to tokenise with, and no model");
    m = new_maker("llama", 0);
    tensors = m->tensors;
    m->tensors = 0;
    CHECK_EQUAL_INT(try_maker(m), SPECDEC_ERROR_FORMAT);
    memset(&config, 0, sizeof config);
    config.target.data = m->file.data;
    config.target.size = m->file.size;
    config.vocabulary_only = 1;
    CHECK_EQUAL_INT(specdec_model_memory_needed(&config, &bytes, &failure), SPECDEC_OK);
    m->tensors = tensors;
    end_maker(m);
    m = new_maker("llama", 0);
    TEST("a file that holds only a part of a model is refused as such");
    maker_put_number(&maker_pair_of(m, "split.count", 2)->value, 1, 2);
    CHECK_EQUAL_INT(try_maker(m), SPECDEC_OK);
    maker_put_number(&maker_pair_of(m, "split.count", 2)->value, 3, 2);
    m->tensor[0].name[0] = 'X';
    CHECK_EQUAL_INT(try_maker(m), SPECDEC_ERROR_UNSUPPORTED);
    CHECK(names("split into 3 files"));
    m->tensor[0].name[0] = 't';
    end_maker(m);
    TEST("token ids that would lie behind the end of the file are not looked for there");
    m = (maker *)malloc(sizeof *m);
    memset(&h, 0, sizeof h);
    h.rows = 100;
    maker_begin_heads(m, &h);
    m->tensors = 1;
    m->alignment = 4096;
    maker_u32(m, "general.alignment", 4096);
    maker_write(m);
    file.data = m->file.data;
    file.size = m->file.size;
    CHECK_EQUAL_INT(specdec__gguf_open(&gguf, file, &last), SPECDEC_OK);
    CHECK_EQUAL_INT(try_bytes(file.data, gguf.tensors_end), SPECDEC_ERROR_FORMAT);
    CHECK(names("reaches beyond the end"));
    m->tensors = 1;
    end_maker(m);
}

static const struct { const char *name; void (*run)(void); } tests[] = {
    {"rope", test_rope}, {"config", test_config}, {"cut", test_cut}, {"wrapping", test_wrapping}, {"values", test_values}, {"arrays", test_arrays},
    {"missing", test_missing}, {"texts", test_texts}, {"prompts", test_prompts}, {"pairs", test_pairs}, {"many", test_many},
    {"biases", test_biases}, {"gates", test_gates}, {"layers", test_layers}, {"windowless", test_windowless}, {"resting", test_resting}, {"sharpened", test_sharpened}, {"windowed", test_windowed},
    {"experts", test_experts}, {"refused", test_refused}, {"demands", test_demands}, {"standing", test_standing}, {"factors", test_factors}, {"scalings", test_scalings}, {"others", test_others},
    {"fields", test_fields}, {"random", test_random}, {"poison", test_poison}};

int main(int argc, char **argv)
{
    size_t i;

    quick = getenv("SPECDEC_QUICK") != NULL;
    for (i = 0; i < SPECDEC__COUNT(tests); i++) { /* all, or the one named */
        double start = specdec__os_monotonic_seconds();

        if (argc > 1 && strcmp(argv[1], tests[i].name) != 0)
            continue;
        tests[i].run();
        printf("  %-12s %.1f s\n", tests[i].name, specdec__os_monotonic_seconds() - start);
        fflush(stdout);
    }
    return check_report("test_model");
}
