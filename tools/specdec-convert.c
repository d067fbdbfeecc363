/* specdec-convert: makes a GGUF model of a llama2.c checkpoint (Karpathy's run.c and its TinyStories models).

   specdec-convert --checkpoint stories15M.bin --vocabulary tinyllama.gguf -o stories15m.gguf

   A checkpoint is seven int32 (see `field`), then f32 tensors (see `parts`), all little-endian. Nothing else says what
   the file is, so its size must be exactly what the seven numbers ask for. It holds no vocabulary: the tokenizer's
   pairs are copied from a GGUF with the same one (any model with Llama's 32000 tokens). Both sides rotate adjacent
   pairs (2i, 2i + 1): the matrices of queries and keys are copied as they are. The tables of cosines and sines are
   dropped. The result is F32; specdec-quantize makes it smaller. */

#define _DEFAULT_SOURCE 1 /* POSIX, also under -std=c99 */
#include "specdec.h"
#include "program.h"
#include "gguf_writer.h"

/* The header's numbers, in the file's order; what follows from them. */
typedef enum field {
    EMBEDDING, HIDDEN, LAYERS, HEADS, KV_HEADS, VOCABULARY, CONTEXT_LENGTH,
    FIELDS,
    KV = FIELDS, /* columns of keys and values */
    HEAD_SIZE,   /* columns of one head */
    ONE,
    NUMBERS
} field;

enum { HEADER_BYTES = 4 * FIELDS, ALIGNMENT = 32, F32 = 0 /* of ggml_type */ };
enum { MOST_LAYERS = 400 }; /* specdec.h reads no GGUF of more than 4096 tensors */

static const struct { const char *name; int64_t most; } limits[FIELDS] = {
    {"dim", 1 << 20}, {"hidden_dim", 1 << 20}, {"n_layers", MOST_LAYERS}, {"n_heads", 4096}, {"n_kv_heads", 4096},
    {"vocab_size", 1 << 24}, {"seq_len", 1 << 24}};

/* What the file holds, in its order; for every layer: all of the first, then all of the second... */
typedef struct part {
    const char *name; /* NULL: not copied */
    int columns, rows; /* fields; a vector has ONE row */
    int every_layer;
} part;

static const part parts[] = {
    {"token_embd.weight", EMBEDDING, VOCABULARY, 0},
    {"attn_norm.weight", EMBEDDING, ONE, 1},
    {"attn_q.weight", EMBEDDING, EMBEDDING, 1},
    {"attn_k.weight", EMBEDDING, KV, 1},
    {"attn_v.weight", EMBEDDING, KV, 1},
    {"attn_output.weight", EMBEDDING, EMBEDDING, 1},
    {"ffn_norm.weight", EMBEDDING, ONE, 1},
    {"ffn_gate.weight", EMBEDDING, HIDDEN, 1},
    {"ffn_down.weight", HIDDEN, EMBEDDING, 1},
    {"ffn_up.weight", EMBEDDING, HIDDEN, 1},
    {"output_norm.weight", EMBEDDING, ONE, 0},
    {NULL, HEAD_SIZE, CONTEXT_LENGTH, 0}, /* the cosines, then the sines, of half a head each */
    {"output.weight", EMBEDDING, VOCABULARY, 0}, /* absent when vocab_size is positive: the embedding serves as one */
};

enum { PARTS = (int)PROGRAM_COUNT(parts) };

typedef struct tool {
    const char *checkpoint, *vocabulary, *output, *name;
    specdec_bytes file;
    specdec_bytes vocabulary_file;
    specdec_gguf gguf; /* of the vocabulary */
    int64_t number[NUMBERS];
    int part_count;     /* PARTS, or one less without an output matrix */
    size_t at[PARTS];   /* where a part begins in the checkpoint; its bytes in one layer */
    size_t bytes[PARTS];
    uint64_t tensors;   /* of the output */
    uint64_t offset;    /* of the next tensor's values */
    gguf_writer out;
} tool;

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* Reads the seven numbers and what follows from them. Returns a status. */
static int read_header(tool *t)
{
    int64_t *n = t->number;
    char why[160];
    int i;

    if (t->file.size < HEADER_BYTES)
        return program_failed(t->checkpoint, ": too short for a llama2.c checkpoint");
    if (program_get_u32(t->file.data) == 0x616b3432)
        return program_failed(t->checkpoint, ": a llama2.c checkpoint of version 1 or later; only version 0 is read");
    for (i = 0; i < FIELDS; i++)
        n[i] = (int32_t)program_get_u32(t->file.data + 4 * i);
    t->part_count = n[VOCABULARY] < 0 ? PARTS : PARTS - 1;
    n[VOCABULARY] = n[VOCABULARY] < 0 ? -n[VOCABULARY] : n[VOCABULARY];
    for (i = 0; i < FIELDS; i++)
        if (n[i] < 1 || n[i] > limits[i].most) {
            snprintf(why, sizeof why, ": no llama2.c checkpoint: its %s would be %lld", limits[i].name,
                     (long long)n[i]);
            return program_failed(t->checkpoint, why);
        }
    if (n[EMBEDDING] % n[HEADS] || n[HEADS] % n[KV_HEADS] || n[EMBEDDING] / n[HEADS] % 2) {
        snprintf(why, sizeof why, ": no llama2.c checkpoint: %d heads and %d of keys and values in a dim of %d",
                 (int)n[HEADS], (int)n[KV_HEADS], (int)n[EMBEDDING]);
        return program_failed(t->checkpoint, why);
    }
    n[HEAD_SIZE] = n[EMBEDDING] / n[HEADS];
    n[KV] = n[HEAD_SIZE] * n[KV_HEADS];
    n[ONE] = 1;
    return PROGRAM_OK;
}

/* a + b * c; SIZE_MAX instead of more than that. */
static size_t add_product(size_t a, size_t b, size_t c)
{
    return b && c > (SIZE_MAX - a) / b ? SIZE_MAX : a + b * c;
}

/* Finds every part and checks that they fill the file. A size that is too large becomes SIZE_MAX. Returns a status. */
static int place_parts(tool *t)
{
    size_t at = HEADER_BYTES;
    char why[160];
    int i;

    for (i = 0; i < t->part_count; i++) {
        const part *p = &parts[i];

        t->at[i] = at;
        t->bytes[i] = add_product(0, 4 * (size_t)t->number[p->columns], (size_t)t->number[p->rows]);
        at = add_product(at, t->bytes[i], p->every_layer ? (size_t)t->number[LAYERS] : 1);
    }
    if (at == t->file.size)
        return PROGRAM_OK;
    snprintf(why, sizeof why, ": %zu bytes, but a llama2.c checkpoint of its numbers has %zu", t->file.size, at);
    return program_failed(t->checkpoint, why);
}

/* Opens both files and checks all that is copied from them but the values of the weights. Returns a status. */
static int read_files(tool *t)
{
    specdec_gguf_value tokens = {0, 0, 0, NULL, 0};
    specdec_error error;
    char why[160];
    int status;

    if (program_map_file(&t->file, t->checkpoint) || program_map_file(&t->vocabulary_file, t->vocabulary))
        return PROGRAM_FAILED;
    status = read_header(t);
    if (status == PROGRAM_OK)
        status = place_parts(t);
    if (status)
        return status;
    if (specdec_gguf_open(&t->gguf, t->vocabulary_file.data, t->vocabulary_file.size, &error))
        return program_refused(t->vocabulary, error.text);
    if (specdec_gguf_find(&t->gguf, "tokenizer.ggml.tokens", &tokens) &&
        (!tokens.is_array || tokens.type != SPECDEC_GGUF_STRING))
        return program_failed(t->vocabulary, ": tokenizer.ggml.tokens should be an array of strings");
    if (tokens.items && tokens.count == (uint64_t)t->number[VOCABULARY])
        return PROGRAM_OK;
    snprintf(why, sizeof why, ": a vocabulary of %llu tokens, the checkpoint's has %lld",
             (unsigned long long)tokens.count, (long long)t->number[VOCABULARY]);
    return program_failed(t->vocabulary, why);
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

/* A metadata pair that holds a text. */
static void put_pair_text(tool *t, const char *key, const char *text)
{
    gguf_put_text(&t->out, key, strlen(key));
    gguf_put_u32(&t->out, SPECDEC_GGUF_STRING);
    gguf_put_text(&t->out, text, strlen(text));
}

/* Copies the vocabulary's pairs, or with count_only counts them. A chat template belongs to the other model. */
static uint64_t copy_vocabulary(tool *t, int count_only)
{
    specdec_gguf_pair pair;
    uint64_t count = 0;
    size_t place = 0;

    while (specdec_gguf_next_pair(&t->gguf, &place, &pair)) {
        if (pair.key.size < 15 || memcmp(pair.key.data, "tokenizer.ggml.", 15) != 0)
            continue;
        count++;
        if (!count_only)
            gguf_put(&t->out, pair.record.data, pair.record.size);
    }
    return count;
}

/* The model's own pairs, then the vocabulary's. */
static void put_pairs(tool *t)
{
    static const struct { const char *key; field number; } shape[] = {
        {"llama.context_length", CONTEXT_LENGTH}, {"llama.embedding_length", EMBEDDING}, {"llama.block_count", LAYERS},
        {"llama.feed_forward_length", HIDDEN}, {"llama.attention.head_count", HEADS},
        {"llama.attention.head_count_kv", KV_HEADS}, {"llama.vocab_size", VOCABULARY}};
    const size_t shapes = PROGRAM_COUNT(shape);
    size_t i;

    gguf_put_u64(&t->out, 5 + shapes + (t->name != NULL) + copy_vocabulary(t, 1));
    put_pair_text(t, "general.architecture", "llama");
    if (t->name)
        put_pair_text(t, "general.name", t->name);
    gguf_put_pair(&t->out, "general.file_type", SPECDEC_GGUF_U32, 0); /* F32 */
    for (i = 0; i < shapes; i++)
        gguf_put_pair(&t->out, shape[i].key, SPECDEC_GGUF_U32, (uint32_t)t->number[shape[i].number]);
    gguf_put_pair(&t->out, "llama.rope.dimension_count", SPECDEC_GGUF_U32, (uint32_t)t->number[HEAD_SIZE]);
    gguf_put_pair(&t->out, "llama.rope.freq_base", SPECDEC_GGUF_F32, program_float_bits(10000.0f));
    gguf_put_pair(&t->out, "llama.attention.layer_norm_rms_epsilon", SPECDEC_GGUF_F32, program_float_bits(1e-5f));
    copy_vocabulary(t, 0);
}

/* What is done with one tensor: part i of a layer. Returns a status. */
typedef int (*tensor_call)(tool *t, int i, const char *name, int layer);

/* Calls `call` for every tensor in the order of the output: layer by layer. Returns the first status that is not OK. */
static int for_tensors(tool *t, tensor_call call)
{
    int first, end, layer, i, status = PROGRAM_OK;
    char prefix[24], name[64];

    for (first = 0; first < t->part_count && !status; first = end) {
        int layers = parts[first].every_layer ? (int)t->number[LAYERS] : 1;

        for (end = first; end < t->part_count && parts[end].every_layer == parts[first].every_layer; end++)
            continue;
        for (layer = 0; layer < layers; layer++)
            for (i = first; i < end && !status; i++) {
                if (!parts[i].name)
                    continue;
                snprintf(prefix, sizeof prefix, "blk.%d.", layer);
                snprintf(name, sizeof name, "%s%s", parts[i].every_layer ? prefix : "", parts[i].name);
                status = call(t, i, name, layer);
            }
    }
    return status;
}

/* tensor_call: checks that the values are numbers. */
static int check_tensor(tool *t, int i, const char *name, int layer)
{
    const unsigned char *data = t->file.data + t->at[i] + (size_t)layer * t->bytes[i];
    size_t at;

    for (at = 0; at < t->bytes[i]; at += 4)
        if ((program_get_u32(data + at) & 0x7f800000) == 0x7f800000)
            return program_failed(name, " holds values that are infinite or no numbers");
    t->tensors++;
    return PROGRAM_OK;
}

/* tensor_call: writes a tensor's record. */
static int put_record(tool *t, int i, const char *name, int layer)
{
    (void)layer;
    gguf_put_text(&t->out, name, strlen(name));
    gguf_put_u32(&t->out, parts[i].rows == ONE ? 1 : 2);
    gguf_put_u64(&t->out, (uint64_t)t->number[parts[i].columns]);
    if (parts[i].rows != ONE)
        gguf_put_u64(&t->out, (uint64_t)t->number[parts[i].rows]);
    gguf_put_u32(&t->out, F32);
    gguf_put_u64(&t->out, t->offset);
    t->offset += (t->bytes[i] + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return PROGRAM_OK;
}

/* tensor_call: writes a tensor's values. */
static int put_values(tool *t, int i, const char *name, int layer)
{
    (void)name;
    gguf_put(&t->out, t->file.data + t->at[i] + (size_t)layer * t->bytes[i], t->bytes[i]);
    gguf_put_padding(&t->out);
    return PROGRAM_OK;
}

static int run(tool *t)
{
    const char *inputs[] = {t->checkpoint, t->vocabulary, NULL};
    int status = read_files(t);

    if (status == PROGRAM_OK)
        status = for_tensors(t, check_tensor);
    if (status || program_output_open(&t->out.output, t->output, inputs))
        return PROGRAM_FAILED;
    t->out.alignment = ALIGNMENT;
    gguf_put(&t->out, "GGUF", 4);
    gguf_put_u32(&t->out, 3);
    gguf_put_u64(&t->out, t->tensors);
    put_pairs(t);
    for_tensors(t, put_record);
    gguf_put_padding(&t->out);
    for_tensors(t, put_values);
    return PROGRAM_OK;
}

int main(int argc, char **argv)
{
    tool t;
    const program_flag flags[] = {
        {"--checkpoint", PROGRAM_TEXT, &t.checkpoint, "FILE", "the checkpoint, for instance stories15M.bin", 0, 0},
        {"--vocabulary", PROGRAM_TEXT, &t.vocabulary, "FILE", "a GGUF file with its vocabulary, of any model", 0, 0},
        {"--name", PROGRAM_TEXT, &t.name, "TEXT", "what the model calls itself", 0, 0},
        {"-o", PROGRAM_TEXT, &t.output, "OUT.gguf", "where the model goes; - is standard output", 0, 0},
        {NULL, PROGRAM_SWITCH, NULL, NULL, NULL, 0, 0}};
    int status;

    memset(&t, 0, sizeof t);
    status = program_read(flags, argc, argv, "specdec-convert", "--checkpoint FILE --vocabulary FILE -o OUT.gguf",
                          "Makes a GGUF model, F32, of a llama2.c checkpoint; specdec-quantize makes it smaller.\n");
    if (status != PROGRAM_GO_ON)
        return status;
    if (!t.checkpoint || !t.vocabulary || !t.output)
        return program_misused("--checkpoint, --vocabulary and -o are needed", "");
    return program_finish(run(&t));
}
