/* gguf_maker.h - writes tiny GGUF models into memory, for tests: random weights of any shape and type, a small vocabulary that
   can spell every byte, and a note of where every count, length, dimension and offset lies, for those who want to break it.
   The same recipe gives the same bytes on every machine. Include behind specdec.h's implementation. */
#ifndef GGUF_MAKER_H
#define GGUF_MAKER_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What to make. {0} is a llama with two layers; zero means the default in brackets. */
typedef struct maker_recipe {
    const char *architecture; /* of specdec__architectures [llama]; its row says which tensors a model has */
    int layers, embedding, feed_forward, heads, kv_heads; /* [2, 64, 96, 4, 2] */
    int experts, chosen;      /* of architectures that can have them; experts -1: none [5, 2, of llama none] */
    int shared, leading, groups, latent; /* of experts: width of the shared one, layers without them, groups, of which all but
                                            one are chosen from, what experts read [what the architecture must have] */
    int head_dim;             /* [embedding / heads] */
    int rope_dim;             /* [head_dim] */
    int vocab;                /* tokens, at least 260 [301] */
    int context;              /* [512] */
    int window;               /* where the architecture has one [24] */
    int long_rope;            /* not 0: short and long factors, long from this context on */
    int scales;               /* not 0: scales and caps of its own */
    int apart;                /* not 0: where an architecture's files have fused tensors, single ones instead */
    int types[4];             /* of matrices, in turn: GGML type + 1, so that 0 ends the list [F32] */
    int embedding_type;       /* + 1 [the first of types] */
    int output_type;          /* + 1; 0: tied to the embedding */
    int vector_type;          /* + 1 [F32] */
    int alignment;            /* [32] */
    int version;              /* [3] */
    uint32_t seed;
    float noise;              /* float weights move by this share, from another stream: a draft that often agrees */
    float gain;               /* of the weights [1] */
    int may_end;              /* not 0: the end token is as likely as any other; else it hardly ever comes */
    /* of an architecture that reads states */
    int reads[4];             /* after how many layers of the target, + 1, so that 0 ends the list [0, 1, 2] */
    int target_embedding;     /* [embedding] */
    int borrows;              /* not 0: it has no embedding; it has an output if output_type says so */
    int short_rows;           /* of d2t: every other token, that many; 0: there is no d2t */
    int norm_first, norm_states; /* norm_before_residual, norm_before_fc */
    int block, anchored;      /* tokens of a block, where the architecture drafts such [6]; whether its first row is a draft */
    int markov, trusts;       /* rank of a Markov head, 0: none; whether there is a confidence head, too */
    int selector, conv;       /* candidates of a selector, taps of convolutions; 0: none */
    int centroids, nearest;   /* of an assistant: parts of the vocabulary, 0: none; those that are looked at */
    int sinks, causal;        /* a block's layers have attention sinks; its rows do not see those behind them */
    int varied;               /* not 0: sizes differ from layer to layer: see maker_shape */
    int sharing;              /* layers that read the keys of others, where the architecture has such */
    int nextn;                /* not 0: a block behind the layers that predicts; 2: with an embedding, a norm and an output of its own */
    int layer_inputs;         /* width of embeddings for layers, where the architecture has such; -1: none [32, or 256] */
} maker_recipe;

typedef struct maker_buffer {
    unsigned char *data;
    size_t size, capacity;
} maker_buffer;

typedef struct maker_pair {
    char key[80];
    uint32_t type;      /* as in the file; 9: value begins with item type and count */
    maker_buffer value;
} maker_pair;

typedef struct maker_tensor {
    char name[64];
    int dimensions;
    uint64_t shape[4];
    uint32_t type;
    maker_buffer data;
} maker_tensor;

/* A number in the finished file: what it is, where, how wide. */
typedef struct maker_field {
    const char *what;
    size_t at;
    int width;
} maker_field;

#define MAKER_MOST 256
#define MAKER_GROUP 16 /* dimensions that share weights of a convolution over a block */
#define MAKER_FIELDS 4096

typedef struct maker {
    maker_pair pair[MAKER_MOST];
    maker_tensor tensor[MAKER_MOST];
    int pairs, tensors, fields;
    int alignment, version;
    maker_field field[MAKER_FIELDS];
    maker_buffer file; /* of maker_write */
} maker;

static inline void maker_put(maker_buffer *b, const void *bytes, size_t count)
{
    if (b->size + count > b->capacity) {
        b->capacity = (b->size + count) * 2 + 64;
        b->data = (unsigned char *)realloc(b->data, b->capacity);
        if (!b->data)
            abort();
    }
    if (count)
        memcpy(b->data + b->size, bytes, count);
    b->size += count;
}

static inline void maker_put_number(maker_buffer *b, uint64_t value, int width)
{
    unsigned char bytes[8];
    int i;

    for (i = 0; i < width; i++)
        bytes[i] = (unsigned char)(value >> (8 * i));
    maker_put(b, bytes, (size_t)width);
}

static inline void maker_put_float(maker_buffer *b, float value)
{
    uint32_t bits;

    memcpy(&bits, &value, 4);
    maker_put_number(b, bits, 4);
}

static inline void maker_put_string(maker_buffer *b, const char *text, size_t length)
{
    maker_put_number(b, length, 8);
    maker_put(b, text, length);
}

/* --- pairs ---------------------------------------------------------------------------------------------------------- */

static inline maker_pair *maker_find_pair(maker *m, const char *key)
{
    int i;

    for (i = 0; i < m->pairs; i++)
        if (strcmp(m->pair[i].key, key) == 0)
            return &m->pair[i];
    return NULL;
}

/* The pair of this key, emptied; a new one when there is none. */
static inline maker_pair *maker_pair_of(maker *m, const char *key, uint32_t type)
{
    maker_pair *p = maker_find_pair(m, key);

    if (!p) {
        if (m->pairs == MAKER_MOST)
            abort();
        p = &m->pair[m->pairs++];
        snprintf(p->key, sizeof p->key, "%s", key);
    }
    p->type = type;
    p->value.size = 0;
    return p;
}

static inline void maker_u32(maker *m, const char *key, uint32_t value) { maker_put_number(&maker_pair_of(m, key, 4)->value, value, 4); }
static inline void maker_u64(maker *m, const char *key, uint64_t value) { maker_put_number(&maker_pair_of(m, key, 10)->value, value, 8); }
static inline void maker_f32(maker *m, const char *key, float value) { maker_put_float(&maker_pair_of(m, key, 6)->value, value); }
static inline void maker_bool(maker *m, const char *key, int value) { maker_put_number(&maker_pair_of(m, key, 7)->value, (uint64_t)value, 1); }
static inline void maker_text(maker *m, const char *key, const char *text) { maker_put_string(&maker_pair_of(m, key, 8)->value, text, strlen(text)); }

/* An empty array; its items are put behind. */
static inline maker_buffer *maker_array(maker *m, const char *key, uint32_t type, uint64_t count)
{
    maker_buffer *b = &maker_pair_of(m, key, 9)->value;

    maker_put_number(b, type, 4);
    maker_put_number(b, count, 8);
    return b;
}

static inline void maker_remove_pair(maker *m, const char *key)
{
    maker_pair *p = maker_find_pair(m, key);

    if (p) {
        free(p->value.data);
        memmove(p, p + 1, (size_t)(m->pair + --m->pairs - p) * sizeof *p);
        memset(&m->pair[m->pairs], 0, sizeof *p);
    }
}

/* "llama" + suffix; static memory. */
static inline const char *maker_key(const maker_recipe *r, const char *suffix)
{
    static char key[80];

    snprintf(key, sizeof key, "%s%s", r->architecture ? r->architecture : "llama", suffix);
    return key;
}

/* --- tensors -------------------------------------------------------------------------------------------------------- */

static inline uint32_t maker_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));

    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (uint32_t)((z ^ (z >> 31)) >> 16);
}

/* Uniform in [-1, 1). */
static inline float maker_uniform(uint64_t *state) { return (float)((int32_t)(maker_random(state) >> 8) - (1 << 23)) / (float)(1 << 23); }

static inline maker_tensor *maker_find_tensor(maker *m, const char *name)
{
    int i;

    for (i = 0; i < m->tensors; i++)
        if (strcmp(m->tensor[i].name, name) == 0)
            return &m->tensor[i];
    return NULL;
}

static inline maker_tensor *maker_add_tensor(maker *m, const char *name, uint32_t type, uint64_t columns, uint64_t rows)
{
    maker_tensor *t;

    if (m->tensors == MAKER_MOST)
        abort();
    t = &m->tensor[m->tensors++];
    memset(t, 0, sizeof *t);
    snprintf(t->name, sizeof t->name, "%.63s", name);
    t->type = type;
    t->dimensions = rows ? 2 : 1;
    t->shape[0] = columns;
    t->shape[1] = rows;
    return t;
}

/* Where a block has its scale and its minimum, by type; the size of its codes times scales; the minimum that centres them. */
typedef struct maker_block {
    uint32_t type;
    int values, bytes, scale_at, minimum_at;
    float size, minimum;
} maker_block;

static const maker_block maker_blocks[] = {
    {2, 32, 18, 0, -1, 4.6f, 0},     {3, 32, 20, 0, 2, 4.6f, -7.5f},    {6, 32, 22, 0, -1, 9.2f, 0},
    {7, 32, 24, 0, 2, 9.2f, -15.5f}, {8, 32, 34, 0, -1, 74, 0},         {10, 256, 84, 80, 82, 12, 1.5f},
    {11, 256, 110, 108, -1, 43, 0},  {12, 256, 144, 0, 2, 220, 7.5f},   {13, 256, 176, 0, 2, 440, 15.5f},
    {14, 256, 210, 208, -1, 1370, 0}, {16, 256, 66, 0, -1, 55, 0},      {20, 32, 18, 0, -1, 70, 0},
    {23, 256, 136, 0, -1, 1300, 0}, {18, 256, 98, 0, -1, 150, 0}, {21, 256, 110, 0, -1, 165, 0},
    {17, 256, 74, 0, -1, 55, 0}, {22, 256, 82, 0, -1, 55, 0}, {19, 256, 50, 0, -1, 7.5f, 0},
    {29, 256, 56, 48, -1, 7.5f, 0}, {34, 256, 54, 52, -1, 0.8f, 0}, {35, 256, 66, 64, -1, 1.2f, 0},
    {39, 32, 17, 0, -1, 2.9f, 0}, {40, 64, 36, 0, -1, 2.9f, 0}, {41, 128, 18, 0, -1, 1, 0}, {42, 64, 18, 0, -1, 1.2f, 0}};

#define MAKER_BLOCKS ((int)(sizeof maker_blocks / sizeof maker_blocks[0]))

/* Writes the scale of a block of a type: a half float, but of IQ1_M one in the highest bits of four words, of MXFP4 an exponent, of
   NVFP4 an 8-bit float (0 to 0x7E) for each quarter. */
static inline void maker_put_scale(uint32_t type, unsigned char *at, float scale)
{
    const uint16_t half = specdec__f16_from_float(scale);
    int i, byte = 0;

    if (type == 39) {
        *at = (unsigned char)(specdec__bits_from_float(scale) >> 23 & 255);
    } else if (type == 40) {
        while (byte < 0x7E && 2 * specdec__quant_e4m3_divided_by_2((unsigned)byte + 1) <= scale)
            byte++;
        memset(at, byte, 4);
    } else if (type == 29) {
        for (i = 0; i < 4; i++)
            at[2 * i + 1] = (unsigned char)((at[2 * i + 1] & 15) | (half >> (4 * i) & 15) << 4);
    } else {
        specdec__store_u16(at, half);
    }
}

/* One row of a matrix: values of a root mean square of about `size`; zero for `size` 0. */
static inline void maker_row(maker_buffer *b, uint32_t type, int columns, float size, float noise, uint64_t *state, uint64_t *other)
{
    int i, j;

    for (i = 0; i < MAKER_BLOCKS && maker_blocks[i].type != type; i++)
        ;
    if (i == MAKER_BLOCKS) { /* a float type */
        for (i = 0; i < columns; i++) {
            float value = 1.732f * size * (maker_uniform(state) + noise * maker_uniform(other));

            if (type == 0)
                maker_put_float(b, value);
            else
                maker_put_number(b, type == 1 ? specdec__f16_from_float(value) : specdec__bf16_from_float(value), 2);
        }
        return;
    }
    {
        const maker_block *k = &maker_blocks[i];
        unsigned char block[256];

        for (i = 0; i < columns / k->values; i++) {
            float scale = size / k->size * (1 + 0.5f * maker_uniform(state));

            for (j = 0; j < k->bytes; j++)
                block[j] = (unsigned char)(size > 0 ? maker_random(state) : 0);
            maker_put_scale(type, block + k->scale_at, scale);
            if (k->minimum_at >= 0)
                specdec__store_u16(block + k->minimum_at, specdec__f16_from_float(scale * k->minimum));
            maker_put(b, block, (size_t)k->bytes);
        }
    }
}

/* size: root mean square of a row's values; row zero_row is all zeros (-1: none). */
static inline void maker_matrix(maker *m, const maker_recipe *r, const char *name, int type, int columns, int rows, float size, int zero_row)
{
    maker_tensor *t = maker_add_tensor(m, name, (uint32_t)type, (uint64_t)columns, (uint64_t)rows);
    uint64_t state = r->seed * UINT64_C(0x1234567) + (uint64_t)m->tensors, other = ~state;
    int i;

    for (i = 0; i < rows; i++)
        maker_row(&t->data, t->type, columns, i == zero_row ? 0 : r->gain * size, r->noise, &state, &other);
}

/* Gives the newest matrix a third dimension: its rows are those of so many matrices. */
static inline void maker_third(maker *m, uint64_t matrices)
{
    maker_tensor *t = &m->tensor[m->tensors - 1];

    t->shape[1] /= matrices;
    t->shape[2] = matrices;
    t->dimensions = 3;
}

/* Values around middle. */
static inline void maker_vector(maker *m, const maker_recipe *r, const char *name, int count, float middle, float spread)
{
    maker_tensor *t = maker_add_tensor(m, name, r->vector_type ? (uint32_t)r->vector_type - 1 : 0, (uint64_t)count, 0);
    uint64_t state = r->seed * UINT64_C(0x7654321) + (uint64_t)m->tensors;
    int i;

    for (i = 0; i < count; i++) {
        float value = middle + spread * maker_uniform(&state);

        if (t->type == 0)
            maker_put_float(&t->data, value);
        else
            maker_put_number(&t->data, t->type == 1 ? specdec__f16_from_float(value) : specdec__bf16_from_float(value), 2);
    }
}

/* --- a whole model -------------------------------------------------------------------------------------------------- */

/* The text of token id: three control tokens, 256 bytes, then words of letters, half of them behind a space. */
static inline int maker_token(int id, char *text, size_t size)
{
    static const char *const control[] = {"<unk>", "<s>", "</s>"};
    int at = 0, n;
    char word[16];

    if (id < 3)
        return snprintf(text, size, "%s", control[id]);
    if (id < 259)
        return snprintf(text, size, "<0x%02X>", (unsigned)(id - 3));
    if (id == 259)
        return snprintf(text, size, "\xe2\x96\x81");
    n = (id - 260) / 2 + 1;
    for (; n > 0; n = (n - 1) / 26)
        word[at++] = (char)('a' + (n - 1) % 26);
    word[at] = 0;
    return snprintf(text, size, "%s%s", (id - 260) % 2 ? "" : "\xe2\x96\x81", word);
}

static inline void maker_vocab(maker *m, int vocab)
{
    maker_buffer *b;
    char text[64];
    int i;

    maker_text(m, "tokenizer.ggml.model", "llama");
    b = maker_array(m, "tokenizer.ggml.tokens", 8, (uint64_t)vocab);
    for (i = 0; i < vocab; i++) {
        int length = maker_token(i, text, sizeof text);
        maker_put_string(b, text, (size_t)length);
    }
    b = maker_array(m, "tokenizer.ggml.scores", 6, (uint64_t)vocab);
    for (i = 0; i < vocab; i++)
        maker_put_float(b, (float)-i);
    b = maker_array(m, "tokenizer.ggml.token_type", 5, (uint64_t)vocab);
    for (i = 0; i < vocab; i++)
        maker_put_number(b, i == 0 ? 2 : i < 3 ? 3 : i < 259 ? 6 : 1, 4);
    maker_u32(m, "tokenizer.ggml.unknown_token_id", 0);
    maker_u32(m, "tokenizer.ggml.bos_token_id", 1);
    maker_u32(m, "tokenizer.ggml.eos_token_id", 2);
    maker_bool(m, "tokenizer.ggml.add_bos_token", 1);
}

/* Gives a token another text and type. */
static inline void maker_name_token(maker *m, int id, const char *text, int type)
{
    maker_buffer *texts = &maker_find_pair(m, "tokenizer.ggml.tokens")->value;
    maker_pair *types = maker_find_pair(m, "tokenizer.ggml.token_type");
    maker_buffer rest = {NULL, 0, 0};
    size_t at = 12;
    int i;

    for (i = 0; i < id; i++)
        at += 8 + (size_t)specdec__load_u64(texts->data + at);
    maker_put(&rest, texts->data + at + 8 + specdec__load_u64(texts->data + at),
              texts->size - at - 8 - (size_t)specdec__load_u64(texts->data + at));
    texts->size = at;
    maker_put_string(texts, text, strlen(text));
    maker_put(texts, rest.data, rest.size);
    free(rest.data);
    if (types)
        specdec__store_u32(types->value.data + 12 + 4 * (size_t)id, (uint32_t)type);
}

/* The control tokens of all chat formats. */
static const char *const maker_chat_texts[] = {
    "<|im_start|>", "<|im_end|>", "<|im_sep|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
    "<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>",
    "<start_of_turn>", "<end_of_turn>", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[INST]", "[/INST]",
    "<\xef\xbd\x9c" "User\xef\xbd\x9c>", "<\xef\xbd\x9c" "Assistant\xef\xbd\x9c>"};

/* Names tokens from id on as those of all chat formats; returns how many. */
static inline int maker_name_chat_tokens(maker *m, int id, int type)
{
    size_t i;

    for (i = 0; i < SPECDEC__COUNT(maker_chat_texts); i++)
        maker_name_token(m, id + (int)i, maker_chat_texts[i], type);
    return (int)i;
}

/* The row of an architecture. */
static inline const specdec__architecture *maker_architecture(const maker_recipe *r)
{
    size_t i;

    for (i = 0; i < SPECDEC__COUNT(specdec__architectures); i++)
        if (strcmp(specdec__architectures[i].name, r->architecture) == 0)
            return &specdec__architectures[i];
    abort();
}

/* The key of the epsilon of an architecture's norms. */
static inline const char *maker_epsilon(const maker_recipe *r)
{
    return specdec__architecture_trait(maker_architecture(r), SPECDEC__LAYER_NORM) ? ".attention.layer_norm_epsilon" : ".attention.layer_norm_rms_epsilon";
}

/* Sizes of latent attention; all 0 where the architecture has none. */
static inline specdec__latent maker_latent(const maker_recipe *r)
{
    const int each = r->embedding % 256 ? 32 : 256;
    specdec__latent latent;

    memset(&latent, 0, sizeof latent);
    if (!specdec__architecture_trait(maker_architecture(r), SPECDEC__LATENT))
        return latent;
    latent.rank = each == 32 ? 64 : 256;
    latent.query_rank = r->layers % 2 ? 0 : 3 * each;
    latent.key_dim = each + 16;
    latent.value_dim = each;
    return latent;
}

static inline void maker_defaults(maker_recipe *r)
{
    r->architecture = r->architecture ? r->architecture : "llama";
    r->layers = r->layers ? r->layers : strcmp(r->architecture, "eagle3") ? 2 : 1;
    r->layers += r->layers == 1 && specdec__architecture_trait(maker_architecture(r), SPECDEC__RECURRENT_KIND); /* one of each kind */
    r->embedding = r->embedding ? r->embedding : 64;
    r->feed_forward = r->feed_forward ? r->feed_forward : 96;
    r->heads = r->heads ? r->heads : 4;
    r->kv_heads = r->kv_heads ? r->kv_heads : 2;
    r->head_dim = r->head_dim ? r->head_dim : r->embedding / r->heads;
    r->rope_dim = r->rope_dim ? r->rope_dim : r->head_dim;
    if (maker_latent(r).rank) {
        r->kv_heads = 1;
        r->rope_dim = 16;
        r->head_dim = maker_latent(r).rank + 16;
    }
    r->vocab = r->vocab ? r->vocab : 301;
    r->context = r->context ? r->context : 512;
    r->types[0] = r->types[0] ? r->types[0] : 1;
    r->embedding_type = r->embedding_type ? r->embedding_type : r->types[0];
    r->experts = r->experts ? r->experts : specdec__architecture_trait(maker_architecture(r), SPECDEC__EXPERT_SHARES) && !specdec__architecture_trait(maker_architecture(r), SPECDEC__DENSE_BESIDE_EXPERTS) && strcmp(r->architecture, "llama") ? 5 : -1;
    r->chosen = r->chosen ? r->chosen : 2;
    r->shared = r->experts < 0 ? 0 : r->shared || !specdec__architecture_trait(maker_architecture(r), SPECDEC__SHARED_GATE) ? r->shared : r->feed_forward;
    r->layer_inputs = !specdec__architecture_trait(maker_architecture(r), SPECDEC__LAYER_INPUTS) || r->layer_inputs < 0 ? 0 : r->layer_inputs ? r->layer_inputs : r->embedding % 256 ? 32 : 256;
    r->gain = r->gain > 0 ? r->gain : 1;
}

/* Sizes of a layer. Where they are varied, every other layer, or of an architecture with windows those without one, have half
   the kv heads and a wider feed-forward network, and those with a window have heads of half the size. */
typedef struct maker_widths {
    int kv_heads, head_dim, feed_forward;
    int reads; /* it reads the keys of another one */
} maker_widths;

static inline maker_widths maker_shape(const maker_recipe *r, int layer)
{
    const specdec__architecture *a = maker_architecture(r);
    const int windows = specdec__architecture_trait(a, SPECDEC__WINDOW_KEYS) >= 0, period = specdec__architecture_trait(a, SPECDEC__PERIOD);
    const int windowed = windows && specdec__architecture_trait(a, SPECDEC__ALTERNATES) >> layer % period & 1;
    const int other = r->varied && (windows ? !windowed : layer % 2);
    maker_widths s;

    s.kv_heads = other ? (r->kv_heads + 1) / 2 : r->kv_heads;
    s.feed_forward = other && (r->experts < 0 || specdec__architecture_trait(a, SPECDEC__DENSE_BESIDE_EXPERTS)) ? r->feed_forward + 64 : r->feed_forward;
    s.head_dim = r->varied && windowed ? r->head_dim / 2 : r->head_dim;
    s.reads = (r->sharing && layer >= r->layers - r->sharing) || specdec__architecture_trait(a, SPECDEC__VISIBLE_KEYS) == SPECDEC__SEES_VIEW;
    return s;
}

/* The keys of sizes that differ from layer to layer. */
static inline void maker_lists(maker *m, const maker_recipe *r)
{
    maker_buffer *b;
    int i;

    b = maker_array(m, maker_key(r, ".attention.head_count_kv"), 5, (uint64_t)r->layers);
    for (i = 0; i < r->layers; i++)
        maker_put_number(b, (uint64_t)maker_shape(r, i).kv_heads, 4);
    b = maker_array(m, maker_key(r, ".feed_forward_length"), 4, (uint64_t)r->layers);
    for (i = 0; i < r->layers; i++)
        maker_put_number(b, (uint64_t)maker_shape(r, i).feed_forward, 4);
    if (specdec__architecture_trait(maker_architecture(r), SPECDEC__WINDOW_KEYS) < 0)
        return;
    maker_u32(m, maker_key(r, ".attention.key_length_swa"), (uint32_t)(r->head_dim / 2));
    maker_u32(m, maker_key(r, ".attention.value_length_swa"), (uint32_t)(r->head_dim / 2));
    maker_u32(m, maker_key(r, ".rope.dimension_count_swa"), (uint32_t)(r->head_dim / 2));
}

/* Architectures that can write texts: they come first. */
static inline size_t maker_writers(void)
{
    size_t count = SPECDEC__COUNT(specdec__architectures);

    while (specdec__architecture_trait(&specdec__architectures[count - 1], SPECDEC__READS_STATES))
        count--;
    return count;
}

/* What an assistant needs. */
static inline void maker_assistant(maker *m, const maker_recipe *r)
{
    const int width = r->target_embedding ? r->target_embedding : r->embedding;

    maker_u32(m, maker_key(r, ".embedding_length_out"), (uint32_t)width);
    maker_u32(m, maker_key(r, ".nextn_predict_layers"), (uint32_t)r->layers);
    maker_matrix(m, r, "nextn.pre_projection.weight", r->types[0] - 1, 2 * width, r->embedding, (float)specdec__inverse_square_root(2 * width), -1);
    maker_matrix(m, r, "nextn.post_projection.weight", r->types[0] - 1, r->embedding, width, (float)specdec__inverse_square_root(r->embedding), -1);
}

/* What an architecture needs that drafts blocks, beside what it reads. */
static inline void maker_blocks_of(maker *m, const maker_recipe *r)
{
    const int rank = r->markov ? r->markov : 32, type = r->types[0] - 1, rows = r->short_rows ? r->short_rows : r->vocab;

    maker_u32(m, maker_key(r, ".block_size"), (uint32_t)(r->block ? r->block : 6));
    maker_u32(m, "tokenizer.ggml.mask_token_id", 3);
    maker_vector(m, r, "enc.output_norm.weight", r->embedding, 1, 0.3f);
    if (r->anchored)
        maker_bool(m, maker_key(r, ".sample_from_anchor"), 1);
    if (r->causal)
        maker_bool(m, maker_key(r, ".attention.causal"), 1);
    if (r->markov) {
        maker_matrix(m, r, "markov_w1.weight", type, rank, r->vocab, 1, -1);
        maker_matrix(m, r, "markov_w2.weight", type, rank, rows, (float)specdec__inverse_square_root(rank), -1);
    }
    if (r->trusts) {
        maker_bool(m, maker_key(r, ".has_confidence_head"), 1);
        maker_matrix(m, r, "conf_proj.weight", type, r->embedding + rank, 1, 0.2f, -1);
        maker_vector(m, r, "conf_proj.bias", 1, 0.5f, 0.1f);
    }
    if (r->selector) {
        maker_u32(m, maker_key(r, ".selector_rank"), (uint32_t)rank);
        maker_u32(m, maker_key(r, ".selector_top_k"), (uint32_t)r->selector);
        maker_matrix(m, r, "selector_predecessor.weight", type, rank, r->vocab, 1, -1);
        maker_matrix(m, r, "selector_successor.weight", type, rank, rows, 0.5f, -1);
        maker_matrix(m, r, "selector_hidden.weight", type, r->embedding, rank, (float)specdec__inverse_square_root(r->embedding), -1);
    }
    if (r->conv) {
        maker_u32(m, maker_key(r, ".conv_kernel_size"), (uint32_t)r->conv);
        maker_u32(m, maker_key(r, ".conv_group_size"), MAKER_GROUP);
    }
}

/* What an architecture needs that reads states. */
static inline void maker_reads(maker *m, const maker_recipe *r)
{
    static const int usual[4] = {1, 2, 3, 0};
    const int *reads = r->reads[0] ? r->reads : usual;
    int count = 0, width = r->target_embedding ? r->target_embedding : r->embedding, i;
    maker_buffer *list;

    if (specdec__architecture_trait(maker_architecture(r), SPECDEC__READS_STATES) == SPECDEC__AS_STREAM) {
        maker_assistant(m, r);
        return;
    }
    if (specdec__architecture_trait(maker_architecture(r), SPECDEC__READS_STATES) == SPECDEC__AS_KEYS)
        maker_blocks_of(m, r);
    while (count < 4 && reads[count])
        count++;
    list = maker_array(m, maker_key(r, ".target_layers"), 5, (uint64_t)count);
    for (i = 0; i < count; i++)
        maker_put_number(list, (uint64_t)reads[i] - 1, 4);
    maker_u32(m, maker_key(r, ".target_hidden_size"), (uint32_t)width);
    maker_bool(m, maker_key(r, ".norm_before_residual"), r->norm_first != 0);
    if (r->norm_states) {
        maker_bool(m, maker_key(r, ".norm_before_fc"), 1);
        maker_vector(m, r, "enc.output_norm.weight", count * width, 1, 0.3f);
    }
    maker_matrix(m, r, "fc.weight", r->types[0] - 1, count * width, r->embedding, (float)specdec__inverse_square_root(count * width), -1);
    if (r->short_rows) {
        maker_tensor *t = maker_add_tensor(m, "d2t", 27, (uint64_t)r->short_rows, 0);

        for (i = 0; i < r->short_rows; i++)
            maker_put_number(&t->data, (uint64_t)(2 * i % r->vocab), 8);
    }
}

/* Pairs and vectors of what only some architectures have. */
static inline void maker_facts(maker *m, const maker_recipe *r)
{
    static const float scale[SPECDEC__FACTS] = {3, 0.2f, 0.7f, 1.25f, 2, 5};
    const specdec__architecture *a = maker_architecture(r);
    const specdec__latent latent = maker_latent(r);
    int i;

    if (latent.rank) {
        maker_u32(m, maker_key(r, ".attention.kv_lora_rank"), (uint32_t)latent.rank);
        if (latent.query_rank)
            maker_u32(m, maker_key(r, ".attention.q_lora_rank"), (uint32_t)latent.query_rank);
        maker_u32(m, maker_key(r, ".attention.key_length_mla"), (uint32_t)latent.key_dim);
        maker_u32(m, maker_key(r, ".attention.value_length_mla"), (uint32_t)latent.value_dim);
    }
    if (specdec__architecture_trait(a, SPECDEC__WINDOW_KEYS) >= 0)
        maker_u32(m, maker_key(r, ".attention.sliding_window"), (uint32_t)(r->window ? r->window : 24));
    for (i = 0; i < SPECDEC__FACTS; i++)
        if (r->scales || specdec__architecture_trait(a, SPECDEC__REQUIRED_FACTS) >> i & 1)
            maker_f32(m, maker_key(r, specdec__fact_table[i]), r->scales || specdec__architecture_trait(a, SPECDEC__ROPE_VARIANT) != SPECDEC__ROPE_OPTIONAL ? scale[i] : 1);
    if (r->experts > 0) {
        maker_u32(m, maker_key(r, ".expert_count"), (uint32_t)r->experts);
        maker_u32(m, maker_key(r, ".expert_used_count"), (uint32_t)r->chosen);
        maker_u32(m, maker_key(r, ".expert_feed_forward_length"), (uint32_t)r->feed_forward);
        if (r->shared)
            maker_u32(m, maker_key(r, ".expert_shared_feed_forward_length"), (uint32_t)r->shared);
        if (r->shared && specdec__architecture_trait(a, SPECDEC__SHARED_EACH))
            maker_u32(m, maker_key(r, ".expert_shared_count"), 1);
        if (r->leading)
            maker_u32(m, maker_key(r, ".leading_dense_block_count"), (uint32_t)r->leading);
        if (r->latent)
            maker_u32(m, maker_key(r, ".moe_latent_size"), (uint32_t)r->latent);
        if (r->groups) {
            maker_u32(m, maker_key(r, ".expert_group_count"), (uint32_t)r->groups);
            maker_u32(m, maker_key(r, ".expert_group_used_count"), (uint32_t)r->groups - 1);
        }
    }
    if (specdec__architecture_trait(a, SPECDEC__ACTIVATION) == SPECDEC__XIELU) {
        static const char *const keys[] = {"xielu.alpha_p", "xielu.alpha_n", "xielu.beta", "xielu.eps"};
        static const float middle[] = {0.8f, 0.8f, 0.5f, -1e-6f};
        int k;

        for (k = 0; k < 4; k++) {
            maker_buffer *b = maker_array(m, keys[k], 6, (uint64_t)r->layers);

            for (i = 0; i < r->layers; i++)
                maker_put_float(b, middle[k] * (1 + 0.1f * (float)i));
        }
    }
    if (specdec__architecture_trait(a, SPECDEC__ROPE_VARIANT) == SPECDEC__ROPE_QUERIES_GROW) {
        maker_text(m, maker_key(r, ".rope.scaling.type"), "yarn");
        maker_f32(m, maker_key(r, ".rope.scaling.factor"), 8);
        maker_u32(m, maker_key(r, ".rope.scaling.original_context_length"), 16);
        maker_f32(m, maker_key(r, ".rope.scaling.yarn_log_multiplier"), 1);
        maker_f32(m, maker_key(r, ".attention.temperature_scale"), 0.1f);
    }
    if (r->long_rope) {
        maker_u32(m, maker_key(r, ".rope.scaling.original_context_length"), (uint32_t)r->long_rope);
        maker_vector(m, r, "rope_factors_short.weight", r->rope_dim / 2, 1.5f, 0.4f);
        maker_vector(m, r, "rope_factors_long.weight", r->rope_dim / 2, 4, 2);
    }
}

/* Whether an architecture's files have fused tensors of this kind. */
static inline int maker_fused(const maker_recipe *r, int f)
{
    const int phi3 = strcmp(r->architecture, "phi3") == 0;

    return !r->apart && ((f == 0 && phi3) || (f == 3 && (phi3 || strcmp(r->architecture, "glm4") == 0)));
}

/* Sizes of an architecture's recurrent layers: a few heads of 16 x 16. */
static inline specdec__recurrent_sizes maker_mixing(const maker_recipe *r)
{
    specdec__recurrent_sizes x;

    memset(&x, 0, sizeof x);
    x.kind = specdec__architecture_trait(maker_architecture(r), SPECDEC__RECURRENT_KIND);
    if (!x.kind)
        return x;
    x.taps = x.kind == SPECDEC__SHORT_CONVOLUTION ? 3 : 4;
    x.heads = x.kind == SPECDEC__SHORT_CONVOLUTION ? 0 : r->embedding % 256 ? 4 : 16; /* for types with blocks of 256 */
    x.rows = x.values = x.kind == SPECDEC__SHORT_CONVOLUTION ? 0 : 16;
    x.groups = x.kind == SPECDEC__SHORT_CONVOLUTION ? 0 : 2;
    x.beta_alpha_joined = x.kind == SPECDEC__GATED_DELTA &&
                          !specdec__architecture_trait(maker_architecture(r), SPECDEC__KEYS_BY_MODULO);
    x.output_width = x.kind == SPECDEC__SHORT_CONVOLUTION ? r->embedding : 16 * x.heads;
    x.channels = x.output_width + (x.kind == SPECDEC__SHORT_CONVOLUTION ? 0 : 64);
    x.input_width = 3 * r->embedding; /* of the short one */
    return x;
}

/* Whether layer i of a made model is recurrent; whether it has attention, and a feed-forward network. */
static inline int maker_recurs(const maker_recipe *r, int i, int *attends, int *feeds)
{
    const specdec__architecture *a = maker_architecture(r);
    const int recurs = specdec__architecture_trait(a, SPECDEC__RECURS);

    *attends = *feeds = 1;
    if (i >= r->layers) /* a block that predicts */
        return 0;
    if (!specdec__architecture_trait(a, SPECDEC__RECURRENT_KIND) || recurs == SPECDEC__RECURS_BESIDE_ATTENTION)
        return recurs == SPECDEC__RECURS_BESIDE_ATTENTION;
    if (recurs == SPECDEC__RECURS_ALONE) {
        *attends = i % 3 == 1;
        *feeds = i % 3 == 2;
        return i % 3 == 0;
    }
    *attends = i % 2;
    return !*attends;
}

/* Pairs of an architecture with recurrent layers. */
static inline void maker_states(maker *m, const maker_recipe *r)
{
    const specdec__recurrent_sizes x = maker_mixing(r);
    const int recurs = specdec__architecture_trait(maker_architecture(r), SPECDEC__RECURS);
    maker_buffer *heads, *ff;
    int i, attends, feeds;

    if (x.kind == SPECDEC__SHORT_CONVOLUTION) {
        maker_u32(m, maker_key(r, ".shortconv.l_cache"), (uint32_t)x.taps);
    } else {
        maker_u32(m, maker_key(r, ".ssm.conv_kernel"), (uint32_t)x.taps);
        maker_u32(m, maker_key(r, ".ssm.state_size"), (uint32_t)x.rows);
        maker_u32(m, maker_key(r, ".ssm.group_count"), (uint32_t)x.groups);
        maker_u32(m, maker_key(r, ".ssm.time_step_rank"), (uint32_t)x.heads);
        maker_u32(m, maker_key(r, ".ssm.inner_size"), (uint32_t)x.output_width);
    }
    if (recurs == SPECDEC__RECURS_AS_LISTED)
        maker_u32(m, maker_key(r, ".full_attention_interval"), 2);
    if (recurs == SPECDEC__RECURS_WITHOUT_ATTENTION || recurs == SPECDEC__RECURS_ALONE) {
        heads = maker_array(m, maker_key(r, ".attention.head_count_kv"), 5, (uint64_t)r->layers);
        for (i = 0; i < r->layers; i++) {
            maker_recurs(r, i, &attends, &feeds);
            maker_put_number(heads, attends ? (uint64_t)r->kv_heads : 0, 4);
        }
    }
    if (recurs == SPECDEC__RECURS_ALONE) {
        ff = maker_array(m, maker_key(r, ".feed_forward_length"), 5, (uint64_t)r->layers);
        for (i = 0; i < r->layers; i++) {
            maker_recurs(r, i, &attends, &feeds);
            maker_put_number(ff, feeds ? (uint64_t)r->feed_forward : 0, 4);
        }
    }
}

/* Gives the newest vector the shape that files have: rows of so many values. */
static inline void maker_fold(maker *m, int row)
{
    maker_tensor *t = &m->tensor[m->tensors - 1];

    t->shape[1] = t->shape[0] / (uint64_t)row;
    t->shape[0] = (uint64_t)row;
    t->dimensions = 2;
}

/* The dimensions of the tensors of layer i. */
static inline void maker_sizes(const maker_recipe *r, int i, int *size)
{
    const specdec__architecture *a = maker_architecture(r);
    const maker_widths s = maker_shape(r, i);
    const int q = r->heads * s.head_dim, kv = s.kv_heads * s.head_dim, mixes = r->experts > 0 && i >= r->leading;
    const int whole = specdec__architecture_trait(a, SPECDEC__JOINT_NORMS), gates = !specdec__architecture_trait(a, SPECDEC__UNGATED);
    const int latent = mixes ? r->latent : 0;

    memset(size, 0, SPECDEC__DIM_COUNT * sizeof *size);
    size[SPECDEC__DIM_EMBEDDING] = r->embedding;
    size[SPECDEC__DIM_Q] = size[SPECDEC__DIM_O] = q;
    size[SPECDEC__DIM_Q_ROWS] = q * (1 + specdec__architecture_trait(a, SPECDEC__QUERY_GATES));
    size[SPECDEC__DIM_K] = size[SPECDEC__DIM_V] = kv;
    size[SPECDEC__DIM_HEADS] = r->heads;
    size[SPECDEC__DIM_Q_NORM] = whole ? q : s.head_dim;
    size[SPECDEC__DIM_K_NORM] = whole ? kv : s.head_dim;
    size[SPECDEC__DIM_READ] = r->embedding * (specdec__architecture_trait(a, SPECDEC__READS_STATES) == SPECDEC__BESIDE_EMBEDDINGS ? 2 : 1);
    size[SPECDEC__DIM_CONV] = 2 * r->conv * (r->embedding / MAKER_GROUP);
    size[SPECDEC__DIM_CONV_BASE] = 2 * r->conv * r->embedding;
    size[SPECDEC__DIM_FF] = mixes && !specdec__architecture_trait(a, SPECDEC__DENSE_BESIDE_EXPERTS) ? r->shared : s.feed_forward;
    size[SPECDEC__DIM_GATE] = gates * size[SPECDEC__DIM_FF];
    size[SPECDEC__DIM_EXPERTS] = mixes ? r->experts : 0;
    size[SPECDEC__DIM_EXPERT_INPUT] = mixes ? latent ? latent : r->embedding : 0;
    size[SPECDEC__DIM_EXPERT_FF] = mixes ? r->feed_forward : 0;
    size[SPECDEC__DIM_EXPERT_GATE] = gates * size[SPECDEC__DIM_EXPERT_FF];
    size[SPECDEC__DIM_LATENT] = latent;
    size[SPECDEC__DIM_SHARED] = mixes && r->shared;
    size[SPECDEC__DIM_DENSE_BESIDE] = mixes && specdec__architecture_trait(a, SPECDEC__DENSE_BESIDE_EXPERTS) ? r->embedding : 0;
    size[SPECDEC__DIM_INPUT] = r->layer_inputs;
    size[SPECDEC__DIM_AFTER_INPUT] = r->layer_inputs ? r->embedding : 0;
    size[SPECDEC__DIM_SCALE] = specdec__architecture_trait(a, SPECDEC__SCALES_OUTPUT);
    specdec__model_compute_stream_dimensions(specdec__architecture_trait(a, SPECDEC__ALTUP), r->embedding,
                                             specdec__architecture_trait(a, SPECDEC__LAUREL), size);
    size[SPECDEC__DIM_SHARED_GATE] = size[SPECDEC__DIM_SHARED] && specdec__architecture_trait(a, SPECDEC__SHARED_GATE);
}

/* Tensors of layer i; *made: how many matrices there are. */
static inline void maker_layer(maker *m, const maker_recipe *r, int i, int type_count, int *made)
{
    const specdec__architecture *a = maker_architecture(r);
    const maker_widths s = maker_shape(r, i);
    specdec__recurrent_sizes mixing = maker_mixing(r);
    specdec__model model;
    specdec__shape shape;
    char name[80];
    int size[SPECDEC__DIM_COUNT], j, k, f, rows, attends, feeds;

    memset(&model, 0, sizeof model);
    model.embedding = r->embedding;
    mixing.kind = maker_recurs(r, i, &attends, &feeds) ? mixing.kind : SPECDEC__NO_STATE;
    maker_sizes(r, i, size);
    specdec__model_compute_recurrent_dimensions(&model, &mixing, size);
    model.latent_attention = maker_latent(r);
    memset(&shape, 0, sizeof shape);
    shape.heads = r->heads;
    shape.key_dim = r->head_dim;
    shape.rope_dim = r->rope_dim;
    if (model.latent_attention.rank)
        specdec__model_compute_latent_dimensions(&model, &shape, size);
    for (j = 0; j < SPECDEC__DIM_COUNT; j++)
        size[j] *= (attends || (j != SPECDEC__DIM_Q && j != SPECDEC__DIM_Q_ROWS && j != SPECDEC__DIM_HEADS && j != SPECDEC__DIM_K && j != SPECDEC__DIM_V && j != SPECDEC__DIM_O &&
                                j != SPECDEC__DIM_Q_NORM && j != SPECDEC__DIM_K_NORM)) && (feeds || (j != SPECDEC__DIM_FF && j != SPECDEC__DIM_GATE && j != SPECDEC__DIM_EXPERTS && j != SPECDEC__DIM_EXPERT_INPUT && j != SPECDEC__DIM_EXPERT_FF &&
                              j != SPECDEC__DIM_EXPERT_GATE && j != SPECDEC__DIM_LATENT && j != SPECDEC__DIM_SHARED && j != SPECDEC__DIM_SHARED_GATE));
    for (j = 0; j < SPECDEC__MATRICES; j += k) {
        const int columns = size[specdec__matrix_table[j].columns], each = specdec__matrix_table[j].each;
        const int pieces = each == SPECDEC__EACH_HEAD ? r->heads : each ? r->experts : 1;

        k = 1;
        rows = size[specdec__matrix_table[j].rows];
        if (!rows || !columns || (s.reads && SPECDEC__HAS_BIT(specdec__key_tensors[0], j)))
            continue;
        snprintf(name, sizeof name, "blk.%d.%s", i,
                 size[SPECDEC__DIM_SHARED] && specdec__matrix_table[j].shared ? specdec__matrix_table[j].shared : specdec__matrix_table[j].suffix);
        for (f = 0; f < (int)SPECDEC__COUNT(specdec__fused_table); f++)
            if (maker_fused(r, f) && specdec__fused_table[f].matrix == j) {
                snprintf(name, sizeof name, "blk.%d.%s", i, specdec__fused_table[f].weight);
                for (; k < specdec__fused_table[f].count; k++)
                    rows += size[specdec__matrix_table[j + k].rows];
            }
        maker_matrix(m, r, name, j == SPECDEC__SHARED_ROUTER || (j >= SPECDEC__STREAM_ROUTER && j <= SPECDEC__LAUREL_UP) ? 0 : r->types[*made % type_count] - 1, columns, rows * pieces,
                     (float)specdec__inverse_square_root(columns), -1);
        if (each)
            maker_third(m, (uint64_t)pieces);
        ++*made;
    }
    for (j = 0; j < SPECDEC__VECTORS; j++) {
        const int is_bias = (j >= SPECDEC__Q_BIAS && j < SPECDEC__FFN_NORM_BARE) || j == SPECDEC__RECURRENT_DT_BIAS;
        const int is_sum = j == SPECDEC__PREDICTIONS || j == SPECDEC__CORRECTIONS; /* of streams */
        const int is_taps = j == SPECDEC__RECURRENT_SHORT_TAPS || j == SPECDEC__RECURRENT_TAPS,
                  is_base = j == SPECDEC__ATTENTION_CONV_BASE || j == SPECDEC__FFN_CONV_BASE;
        const int needs = SPECDEC__HAS_BIT(specdec__architecture_trait(a, SPECDEC__NEEDS), j) || j == SPECDEC__OUTPUT_SCALE || (r->sinks && j == SPECDEC__SINKS);
        const int each = specdec__vector_table[j].each ? r->experts : 1, count = size[specdec__vector_table[j].size];

        if (!count || (s.reads && SPECDEC__HAS_BIT(specdec__key_tensors[1], j)) || (specdec__vector_table[j].wanted != SPECDEC__REQUIRED && !needs) || SPECDEC__HAS_BIT(specdec__architecture_trait(a, SPECDEC__LACKS), j))
            continue;
        k = j == SPECDEC__FFN_NORM ? specdec__architecture_trait(a, SPECDEC__FFN_NORM_AS) : 0;
        snprintf(name, sizeof name, "blk.%d.%s", i, specdec__vector_table[k ? k : j].suffix);
        if (maker_find_tensor(m, name)) /* one norm under two names */
            continue;
        maker_vector(m, r, name, count * each,
                     is_bias || is_sum || is_base ? 0
                     : is_taps                    ? 0.1f
                     : j == SPECDEC__RECURRENT_A  ? -0.5f
                                                  : 1,
                     is_bias || is_taps || is_base ? 0.5f
                     : is_sum                      ? 3
                                                   : 0.3f);
        if (is_base)
            maker_fold(m, r->embedding);
        if (is_sum)
            maker_fold(m, size[SPECDEC__DIM_STREAMS]);
        if (is_taps)
            maker_fold(m, mixing.taps);
        if (each > 1) {
            m->tensor[m->tensors - 1].shape[0] = (uint64_t)count;
            m->tensor[m->tensors - 1].shape[1] = (uint64_t)each;
            m->tensor[m->tensors - 1].dimensions = 2;
        }
    }
}

/* The block behind the layers that predicts. */
static inline void maker_nextn(maker *m, const maker_recipe *r, int type_count, int *made)
{
    static const char *const norms[] = {"enorm", "hnorm", "shared_head_norm"}, *const own[] = {"embed_tokens", "shared_head_head"};
    char name[80];
    int i;

    maker_u32(m, maker_key(r, ".nextn_predict_layers"), 1);
    maker_u32(m, maker_key(r, ".block_count"), (uint32_t)r->layers + 1);
    maker_layer(m, r, r->layers, type_count, made);
    snprintf(name, sizeof name, "blk.%d.nextn.eh_proj.weight", r->layers);
    maker_matrix(m, r, name, r->types[*made % type_count] - 1, 2 * r->embedding, r->embedding, (float)specdec__inverse_square_root(2 * r->embedding), -1);
    for (i = 0; i < 2 + (r->nextn > 1); i++) {
        snprintf(name, sizeof name, "blk.%d.nextn.%s.weight", r->layers, norms[i]);
        maker_vector(m, r, name, r->embedding, 1, 0.3f);
    }
    for (i = 0; i < 2 && r->nextn > 1; i++) {
        snprintf(name, sizeof name, "blk.%d.nextn.%s.weight", r->layers, own[i]);
        maker_matrix(m, r, name, r->embedding_type - 1, r->embedding, r->vocab, i ? 3 * (float)specdec__inverse_square_root(r->embedding) : 0.5f, -1);
    }
}

/* Lists the pairs and tensors of a model; they may be changed before maker_write. */
static inline void maker_begin(maker *m, const maker_recipe *recipe)
{
    maker_recipe r = *recipe;
    int type_count = 0, i, made = 0;

    maker_defaults(&r);
    memset(m, 0, sizeof *m);
    m->alignment = r.alignment ? r.alignment : 32;
    m->version = r.version ? r.version : 3;
    while (type_count < 4 && r.types[type_count])
        type_count++;
    maker_text(m, "general.architecture", r.architecture);
    if (r.alignment)
        maker_u32(m, "general.alignment", (uint32_t)r.alignment);
    maker_u32(m, maker_key(&r, ".block_count"), (uint32_t)r.layers);
    maker_u32(m, maker_key(&r, ".embedding_length"), (uint32_t)r.embedding);
    maker_u32(m, maker_key(&r, ".feed_forward_length"), (uint32_t)r.feed_forward);
    maker_u32(m, maker_key(&r, ".context_length"), (uint32_t)r.context);
    maker_u32(m, maker_key(&r, ".attention.head_count"), (uint32_t)r.heads);
    maker_u32(m, maker_key(&r, ".attention.head_count_kv"), (uint32_t)r.kv_heads);
    maker_u32(m, maker_key(&r, ".attention.key_length"), (uint32_t)r.head_dim);
    maker_u32(m, maker_key(&r, ".attention.value_length"), (uint32_t)(maker_latent(&r).rank ? maker_latent(&r).rank : r.head_dim));
    maker_u32(m, maker_key(&r, ".rope.dimension_count"), (uint32_t)r.rope_dim);
    maker_f32(m, maker_key(&r, maker_epsilon(&r)), 1e-5f);
    maker_f32(m, maker_key(&r, ".rope.freq_base"), 10000.0f);
    if (r.varied)
        maker_lists(m, &r);
    if (r.sharing)
        maker_u32(m, maker_key(&r, ".attention.shared_kv_layers"), (uint32_t)r.sharing);
    maker_facts(m, &r);
    if (specdec__architecture_trait(maker_architecture(&r), SPECDEC__RECURRENT_KIND))
        maker_states(m, &r);
    maker_vocab(m, r.vocab);

    if (specdec__architecture_trait(maker_architecture(&r), SPECDEC__READS_STATES))
        maker_reads(m, &r);
    if (!r.borrows)
        maker_matrix(m, &r, "token_embd.weight", r.embedding_type - 1, r.embedding, r.vocab, 0.5f, r.may_end ? -1 : 2);
    if (r.layer_inputs) {
        maker_u32(m, maker_key(&r, ".embedding_length_per_layer_input"), (uint32_t)r.layer_inputs);
        maker_matrix(m, &r, "per_layer_token_embd.weight", r.embedding_type - 1, r.layers * r.layer_inputs, r.vocab, 0.5f, -1);
        maker_matrix(m, &r, "per_layer_model_proj.weight", r.types[0] - 1, r.embedding, r.layers * r.layer_inputs, (float)specdec__inverse_square_root(r.embedding), -1);
        maker_vector(m, &r, "per_layer_proj_norm.weight", r.layer_inputs, 1, 0.3f);
    }
    if (specdec__architecture_trait(maker_architecture(&r), SPECDEC__ALTUP))
        for (i = 0; i < 2; i++) {
            const int others = specdec__architecture_trait(maker_architecture(&r), SPECDEC__ALTUP) - 1;

            maker_matrix(m, &r, i ? "altup_unembd_proj.weight" : "altup_proj.weight", 0, r.embedding, others * r.embedding,
                         (float)specdec__inverse_square_root(r.embedding), -1);
            maker_third(m, (uint64_t)others);
        }
    for (i = 0; i < r.layers; i++)
        maker_layer(m, &r, i, type_count, &made);
    maker_vector(m, &r, specdec__architecture_trait(maker_architecture(&r), SPECDEC__EMBEDDING_NORM) ? "token_embd_norm.weight" : "output_norm.weight",
                 r.embedding, 1, 0.3f);
    if (r.output_type)
        maker_matrix(m, &r, "output.weight", r.output_type - 1, r.embedding, r.short_rows ? r.short_rows : r.vocab, 3 * (float)specdec__inverse_square_root(r.embedding),
                     r.may_end ? -1 : 2);
    if (r.centroids) {
        maker_tensor *t;

        maker_matrix(m, &r, "nextn.centroids.weight", r.types[0] - 1, r.embedding, r.centroids, (float)specdec__inverse_square_root(r.embedding), -1);
        maker_u32(m, maker_key(&r, ".centroid_intermediate_top_k"), (uint32_t)r.nearest);
        t = maker_add_tensor(m, "nextn.token_ordering", 26, (uint64_t)r.vocab, 0);
        for (i = 0; i < r.vocab; i++)
            maker_put_number(&t->data, (uint64_t)(i * 5 % r.vocab), 4);
    }
    if (r.nextn) /* behind all others, which are as without it */
        maker_nextn(m, &r, type_count, &made);
}

/* What heads to make. {0} is an MLP speculator of three heads for the target that a recipe of zeros makes; zero means the
   default in brackets. */
typedef struct maker_heads_recipe {
    int medusa;             /* not 0: Medusa heads */
    int vocab, embedding, inner, guesses; /* [301, 64, 96, 3] */
    int tied, scaled;
    int rows;               /* of a short vocabulary: every third token, that many; 0: all */
    int type;               /* of matrices: GGML type + 1 [F32] */
    uint32_t seed;
} maker_heads_recipe;

/* "speculator.head" + [".1"] + ".weight" and the like; static memory. head < 0: no number. */
static inline const char *maker_head_name(const char *front, int head, const char *behind)
{
    static char name[80];

    if (head < 0)
        snprintf(name, sizeof name, "%s%s", front, behind);
    else
        snprintf(name, sizeof name, "%s.%d%s", front, head, behind);
    return name;
}

/* Lists the pairs and tensors of a file of heads. */
static inline void maker_begin_heads(maker *m, const maker_heads_recipe *recipe)
{
    maker_heads_recipe h = *recipe;
    maker_recipe r;
    int i, rows;

    h.vocab = h.vocab ? h.vocab : 301;
    h.embedding = h.embedding ? h.embedding : 64;
    h.inner = h.medusa ? h.embedding : h.inner ? h.inner : 96;
    h.guesses = h.guesses ? h.guesses : 3;
    h.type = h.type ? h.type - 1 : 0;
    rows = h.rows ? h.rows : h.vocab;
    memset(&r, 0, sizeof r);
    r.architecture = h.medusa ? "medusa" : "mlp_speculator";
    r.gain = 1;
    r.seed = h.seed;
    memset(m, 0, sizeof *m);
    m->alignment = 32;
    m->version = 3;
    maker_text(m, "general.architecture", r.architecture);
    maker_u32(m, maker_key(&r, ".vocab_size"), (uint32_t)h.vocab);
    maker_u32(m, maker_key(&r, ".embedding_length"), (uint32_t)h.embedding);
    maker_u32(m, maker_key(&r, ".n_predict"), (uint32_t)h.guesses);
    if (!h.medusa) {
        maker_u32(m, maker_key(&r, ".inner_length"), (uint32_t)h.inner);
        maker_bool(m, maker_key(&r, ".tie_weights"), h.tied);
        maker_bool(m, maker_key(&r, ".scale_input"), h.scaled);
    }
    if (h.rows) {
        maker_tensor *t = maker_add_tensor(m, "speculator.tokens", 26, (uint64_t)h.rows, 0);

        for (i = 0; i < h.rows; i++)
            maker_put_number(&t->data, (uint64_t)(3 * i % h.vocab), 4);
    }
    for (i = 0; i < h.guesses; i++) {
        const int wide = i && !h.medusa ? h.inner : h.embedding, own = h.tied ? -1 : i;
        const float in = (float)specdec__inverse_square_root(wide), out = 3 * (float)specdec__inverse_square_root(h.inner);

        if (!h.tied || i < 2)
            maker_matrix(m, &r, h.medusa ? maker_head_name("medusa", i, ".block.0.weight") : maker_head_name("speculator.proj", i, ".weight"),
                         h.type, wide, h.inner, in, -1);
        if (h.tied && i)
            continue;
        maker_matrix(m, &r, h.medusa ? maker_head_name("medusa", i, ".head.weight") : maker_head_name("speculator.head", own, ".weight"),
                     h.type, h.inner, rows, out, -1);
        maker_vector(m, &r, h.medusa ? maker_head_name("medusa", i, ".block.0.bias") : maker_head_name("speculator.ln", own, ".bias"),
                     h.inner, 0, 0.3f);
        if (h.medusa)
            continue;
        maker_vector(m, &r, maker_head_name("speculator.ln", own, ".weight"), h.inner, 1, 0.3f);
        maker_matrix(m, &r, maker_head_name("speculator.emb", own, ".weight"), h.type, h.inner, h.vocab, 0.3f, -1);
    }
}

static inline void maker_note(maker *m, const char *what, int width)
{
    if (m->fields < MAKER_FIELDS) {
        m->field[m->fields].what = what;
        m->field[m->fields].at = m->file.size;
        m->field[m->fields++].width = width;
    }
}

/* Writes a pair and notes its lengths, types and counts; of string arrays the first and the last length. */
static inline void maker_write_pair(maker *m, const maker_pair *p)
{
    maker_buffer *f = &m->file;
    size_t at, start;

    maker_note(m, "key length", 8);
    maker_put_string(f, p->key, strlen(p->key));
    maker_note(m, "value type", 4);
    maker_put_number(f, p->type, 4);
    start = f->size;
    if (p->type == 9) {
        maker_note(m, "array type", 4);
        f->size += 4;
        maker_note(m, "array count", 8);
        f->size += 8;
        if (specdec__load_u32(p->value.data) == 8) {
            size_t last = 12;

            for (at = 12; at < p->value.size; at += 8 + (size_t)specdec__load_u64(p->value.data + at))
                last = at;
            f->size = start + 12;
            maker_note(m, "string length", 8);
            f->size = start + last;
            maker_note(m, "last string length", 8);
        }
    } else {
        maker_note(m, p->type == 8 ? "string length" : "value", p->type == 8 ? 8 : (int)p->value.size);
    }
    f->size = start;
    maker_put(f, p->value.data, p->value.size);
}

/* The finished file, in m->file; valid until maker_free. Tensors begin at multiples of the alignment. */
static inline maker_buffer *maker_write(maker *m)
{
    maker_buffer *f = &m->file;
    const size_t align = (size_t)m->alignment;
    size_t offset = 0;
    int i, j;

    f->size = 0;
    m->fields = 0;
    maker_put(f, "GGUF", 4);
    maker_note(m, "version", 4);
    maker_put_number(f, (uint64_t)m->version, 4);
    maker_note(m, "tensor count", 8);
    maker_put_number(f, (uint64_t)m->tensors, 8);
    maker_note(m, "pair count", 8);
    maker_put_number(f, (uint64_t)m->pairs, 8);
    for (i = 0; i < m->pairs; i++)
        maker_write_pair(m, &m->pair[i]);
    for (i = 0; i < m->tensors; i++) {
        const maker_tensor *t = &m->tensor[i];

        maker_note(m, "tensor name length", 8);
        maker_put_string(f, t->name, strlen(t->name));
        maker_note(m, "dimensions", 4);
        maker_put_number(f, (uint64_t)t->dimensions, 4);
        for (j = 0; j < t->dimensions; j++) {
            maker_note(m, "dimension", 8);
            maker_put_number(f, t->shape[j], 8);
        }
        maker_note(m, "tensor type", 4);
        maker_put_number(f, t->type, 4);
        maker_note(m, "tensor offset", 8);
        maker_put_number(f, offset, 8);
        offset += (t->data.size + align - 1) / align * align;
    }
    for (i = 0; i < m->tensors; i++) {
        while (f->size % align)
            maker_put_number(f, 0, 1);
        maker_put(f, m->tensor[i].data.data, m->tensor[i].data.size);
    }
    return f;
}

static inline void maker_free(maker *m)
{
    int i;

    for (i = 0; i < m->pairs; i++)
        free(m->pair[i].value.data);
    for (i = 0; i < m->tensors; i++)
        free(m->tensor[i].data.data);
    free(m->file.data);
    memset(m, 0, sizeof *m);
}

/* A finished model in memory that the caller frees. */
static inline unsigned char *maker_model_or_heads(const maker_recipe *recipe, const maker_heads_recipe *heads, size_t *size)
{
    maker *m = (maker *)malloc(sizeof *m);
    unsigned char *data;

    if (!m)
        abort();
    if (recipe)
        maker_begin(m, recipe);
    else
        maker_begin_heads(m, heads);
    maker_write(m);
    *size = m->file.size;
    data = (unsigned char *)malloc(*size);
    if (!data)
        abort();
    memcpy(data, m->file.data, *size);
    maker_free(m);
    free(m);
    return data;
}

static inline unsigned char *maker_model(const maker_recipe *recipe, size_t *size) { return maker_model_or_heads(recipe, NULL, size); }
static inline unsigned char *maker_heads(const maker_heads_recipe *recipe, size_t *size) { return maker_model_or_heads(NULL, recipe, size); }
#endif
