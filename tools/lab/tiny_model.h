/* tiny_model.h - a model of one layer whose weights are all 0, in memory: for a program that simulates what models take and
   never asks one. GGUF: ggml/docs/gguf.md. Include it behind program.h. */
#ifndef TINY_MODEL_H
#define TINY_MODEL_H

enum { TINY_WIDTH = 32, TINY_BYTES = 1 << 18 };

typedef struct tiny_model {
    unsigned char bytes[TINY_BYTES];
    size_t size;
} tiny_model;

static void tiny_u32(tiny_model *m, uint32_t value)
{
    program_put_u32(m->bytes + m->size, value);
    m->size += 4;
}

static void tiny_u64(tiny_model *m, uint64_t value)
{
    tiny_u32(m, (uint32_t)value);
    tiny_u32(m, (uint32_t)(value >> 32));
}

static void tiny_text(tiny_model *m, const char *text)
{
    tiny_u64(m, strlen(text));
    memcpy(m->bytes + m->size, text, strlen(text));
    m->size += strlen(text);
}

/* A pair of metadata: 4 is an integer, 6 a float by its bits. */
static void tiny_pair(tiny_model *m, const char *key, uint32_t type, uint32_t bits)
{
    tiny_text(m, key);
    tiny_u32(m, type);
    tiny_u32(m, bits);
}

static void tiny_pair_text(tiny_model *m, const char *key, const char *value)
{
    tiny_text(m, key);
    tiny_u32(m, 8);
    tiny_text(m, value);
}

/* Begins a pair that is an array of `count` items. */
static void tiny_array(tiny_model *m, const char *key, uint32_t type, uint64_t count)
{
    tiny_text(m, key);
    tiny_u32(m, 9);
    tiny_u32(m, type);
    tiny_u64(m, count);
}

/* A vocabulary: an unknown token, one that begins and one that ends texts, and words. */
static void tiny_vocabulary(tiny_model *m, int tokens)
{
    static const char *const names[] = {"<unk>", "<s>", "</s>"};
    char name[16];
    int i;

    tiny_pair_text(m, "tokenizer.ggml.model", "llama");
    tiny_array(m, "tokenizer.ggml.tokens", 8, (uint64_t)tokens);
    for (i = 0; i < tokens; i++) {
        snprintf(name, sizeof name, "w%d", i);
        tiny_text(m, i < 3 ? names[i] : name);
    }
    tiny_array(m, "tokenizer.ggml.scores", 6, (uint64_t)tokens);
    for (i = 0; i < tokens; i++)
        tiny_u32(m, 0);
    tiny_array(m, "tokenizer.ggml.token_type", 4, (uint64_t)tokens);
    for (i = 0; i < tokens; i++)
        tiny_u32(m, i == 0 ? 2 : i < 3 ? 3 : 1);
    tiny_pair(m, "tokenizer.ggml.bos_token_id", 4, 1);
    tiny_pair(m, "tokenizer.ggml.eos_token_id", 4, 2);
}

/* A model of so many tokens, and of a context; NULL when there is no memory. Its size: *size. */
static unsigned char *tiny_model_make(int tokens, int context, size_t *size)
{
    static const char *const matrices[] = {"token_embd.weight", "blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight",
                                           "blk.0.attn_output.weight", "blk.0.ffn_gate.weight", "blk.0.ffn_up.weight",
                                           "blk.0.ffn_down.weight"};
    static const char *const vectors[] = {"output_norm.weight", "blk.0.attn_norm.weight", "blk.0.ffn_norm.weight"};
    tiny_model *m = (tiny_model *)calloc(1, sizeof *m); /* tensors are zeros */
    uint64_t at = 0;
    int i;

    if (!m)
        return NULL;
    memcpy(m->bytes, "GGUF", 4);
    m->size = 4;
    tiny_u32(m, 3);
    tiny_u64(m, sizeof matrices / sizeof *matrices + sizeof vectors / sizeof *vectors);
    tiny_u64(m, 13);
    tiny_pair_text(m, "general.architecture", "llama");
    tiny_pair(m, "llama.block_count", 4, 1);
    tiny_pair(m, "llama.context_length", 4, (uint32_t)context);
    tiny_pair(m, "llama.embedding_length", 4, TINY_WIDTH);
    tiny_pair(m, "llama.feed_forward_length", 4, TINY_WIDTH);
    tiny_pair(m, "llama.attention.head_count", 4, 1);
    tiny_pair(m, "llama.attention.layer_norm_rms_epsilon", 6, 0x3727c5ac); /* 1e-5 */
    tiny_vocabulary(m, tokens);
    for (i = 0; i < (int)(sizeof matrices / sizeof *matrices); i++) {
        tiny_text(m, matrices[i]);
        tiny_u32(m, 2);
        tiny_u64(m, TINY_WIDTH);
        tiny_u64(m, (uint64_t)(i ? (int)TINY_WIDTH : tokens));
        tiny_u32(m, 0);
        tiny_u64(m, at);
        at += 4 * TINY_WIDTH * (uint64_t)(i ? (int)TINY_WIDTH : tokens);
    }
    for (i = 0; i < (int)(sizeof vectors / sizeof *vectors); i++, at += 4 * TINY_WIDTH) {
        tiny_text(m, vectors[i]);
        tiny_u32(m, 1);
        tiny_u64(m, TINY_WIDTH);
        tiny_u32(m, 0);
        tiny_u64(m, at);
    }
    *size = (m->size + 31) / 32 * 32 + (size_t)at;
    return *size <= TINY_BYTES ? m->bytes : NULL;
}
#endif
