/* =====================================================================================================================
 * >>text/vocabulary: the vocabulary: what a token is, and which tokens end a text.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../model/gguf.h"

/* The tokenizers, by tokenizer.ggml.model. */
enum {
    SPECDEC__VOCAB_SPM, /* "llama": sentencepiece BPE, best score first */
    SPECDEC__VOCAB_BPE  /* "gpt2": byte-level BPE, lowest merge rank first */
};

#if defined(SPECDEC_NO_SPM) && defined(SPECDEC_NO_BPE)
#error "specdec.h: SPECDEC_NO_SPM and SPECDEC_NO_BPE together leave no tokenizer."
#endif

/* Is the tokenizer BPE? In a build with only one of the two the answer is a constant, and the compiler leaves out what
   only the other one needs. */
#if defined(SPECDEC_NO_SPM)
#define SPECDEC__VOCAB_IS_BPE(model) ((void)(model), 1)
#elif defined(SPECDEC_NO_BPE)
#define SPECDEC__VOCAB_IS_BPE(model) ((void)(model), 0)
#else
#define SPECDEC__VOCAB_IS_BPE(model) ((model) == SPECDEC__VOCAB_BPE)
#endif

/* Token types as tokenizer.ggml.token_type has them. */
enum {
    SPECDEC__TOKEN_UNDEFINED, SPECDEC__TOKEN_NORMAL, SPECDEC__TOKEN_UNKNOWN, SPECDEC__TOKEN_CONTROL,
    SPECDEC__TOKEN_USER_DEFINED, SPECDEC__TOKEN_UNUSED, SPECDEC__TOKEN_BYTE
};

#define SPECDEC__VOCAB_MAX_TOKENS (1 << 24)
#define SPECDEC__VOCAB_MAX_ENDS 16
#define SPECDEC__TEXT_MAX_BYTES (1u << 30) /* a longer text is refused; places in a text are 32 bits wide */
#define SPECDEC__TEXT_NONE UINT32_MAX
#define SPECDEC__TEXT_BLOCK 16             /* symbols that are searched one by one for the best pair */

/* Tokens that end a text wherever they exist as control or user-defined tokens. The latter count as control tokens,
   as llama.cpp has it: what ends an answer is no part of its text. */
static const char *const specdec__vocab_end_texts[] = {
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|end_of_text|>", "<|endoftext|>", "<end_of_turn>", "<eos>"};

/* Tokens of chat formats. They count as control tokens whatever their type: else an answer runs over its end, and what
   a user writes is taken for a message. */
static const char *const specdec__vocab_chat_texts[] = {
    "<|im_start|>", "<|im_end|>", "<|im_sep|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
    "<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>",
    "<start_of_turn>", "<end_of_turn>", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[INST]", "[/INST]",
    "<\xef\xbd\x9c" "User\xef\xbd\x9c>", "<\xef\xbd\x9c" "Assistant\xef\xbd\x9c>"};

/* A vocabulary. Texts, scores and types stay in the mapped file; only indexes are built. */
typedef struct specdec__vocab {
    int model;                    /* SPECDEC__VOCAB_... */
    const struct specdec__vocab_words *words; /* BPE only */
    uint32_t count;               /* tokens */
    uint32_t longest;             /* bytes of the longest token text */
    int32_t bos, eos, eot, eom, unknown; /* ids, -1: none */
    int32_t add_bos, add_eos, add_space_prefix; /* flags */
    int strips_space;             /* white space behind most special tokens is dropped */
    int cuts_at_space;            /* SPM: no token has U+2581 behind anything else: no merge crosses that border */
    const unsigned char *texts;   /* the string array in the file */
    size_t texts_size;
    const unsigned char *scores;  /* (count) f32, SPM only */
    const unsigned char *types;   /* (count) i32 or NULL */
    uint32_t *text_at;            /* (count) offsets into texts */
    uint32_t *slots;              /* (slot_mask + 1) open hash of id + 1; 0: empty */
    uint32_t slot_mask;
    uint32_t *merges;             /* (merge_count, 2) left and right id in order of rank; count: an unusable one */
    uint32_t *merge_slots;        /* (merge_mask + 1) open hash of rank + 1 */
    uint32_t merge_count, merge_mask;
    uint32_t *specials;           /* (special_count) unknown, control and user-defined tokens, longest text first */
    uint32_t special_count;
    int32_t *byte_token;          /* (256) id that stands for one byte, -1: none */
    int32_t ends[SPECDEC__VOCAB_MAX_ENDS];
    int end_count;
} specdec__vocab;

/* The bytes of a token as the file has them. */
static specdec__bytes specdec__vocab_text(const specdec__vocab *v, uint32_t id)
{
    const unsigned char *at = v->texts + v->text_at[id];
    specdec__bytes out;

    out.size = (size_t)specdec__load_u64(at);
    out.data = at + 8;
    return out;
}

/* The byte that a text <0x00> .. <0xFF> names, else -1. */
static int specdec__vocab_byte_of(specdec__bytes text)
{
    int value = 0, i;

    if (text.size != 6 || memcmp(text.data, "<0x", 3) != 0 || text.data[5] != '>')
        return -1;
    for (i = 3; i < 5; i++) {
        int c = text.data[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;

        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

SPECDEC__FOR_SIZE
/* Is this text one of those that end texts? */
static int specdec__vocab_is_end_text(specdec__bytes text)
{
    size_t i;

    for (i = 0; i < SPECDEC__COUNT(specdec__vocab_end_texts); i++)
        if (specdec__bytes_are(text, specdec__vocab_end_texts[i]))
            return 1;
    return 0;
}

/* Is this text a token of a chat format? */
static int specdec__vocab_is_chat_text(specdec__bytes text)
{
    size_t i;

    if (!SPECDEC__CHATS || text.size < 5 || (text.data[0] != '<' && text.data[0] != '['))
        return 0;
    for (i = 0; i < SPECDEC__COUNT(specdec__vocab_chat_texts); i++)
        if (specdec__bytes_are(text, specdec__vocab_chat_texts[i]))
            return 1;
    return 0;
}

/* SPECDEC__TOKEN_... of a token with this text; in a file without types it is guessed from id and text. */
static int specdec__vocab_type_of(const specdec__vocab *v, uint32_t id, specdec__bytes text)
{
    int32_t i = (int32_t)id;

    if (specdec__vocab_is_chat_text(text))
        return SPECDEC__TOKEN_CONTROL;
    if (v->types) {
        uint32_t type = specdec__load_u32(v->types + (size_t)id * 4);

        if (type == SPECDEC__TOKEN_USER_DEFINED && specdec__vocab_is_end_text(text))
            return SPECDEC__TOKEN_CONTROL;
        return type <= SPECDEC__TOKEN_BYTE ? (int)type : (int)SPECDEC__TOKEN_UNDEFINED;
    }
    if (i == v->bos || i == v->eos || i == v->eot || i == v->eom)
        return SPECDEC__TOKEN_CONTROL;
    if (i == v->unknown)
        return SPECDEC__TOKEN_UNKNOWN;
    if (!SPECDEC__VOCAB_IS_BPE(v->model) && specdec__vocab_byte_of(text) >= 0)
        return SPECDEC__TOKEN_BYTE;
    return SPECDEC__TOKEN_NORMAL;
}

static int specdec__vocab_type(const specdec__vocab *v, uint32_t id)
{
    return specdec__vocab_type_of(v, id, specdec__vocab_text(v, id));
}

static int specdec__vocab_is_special(int type)
{
    return type == SPECDEC__TOKEN_UNKNOWN || type == SPECDEC__TOKEN_CONTROL || type == SPECDEC__TOKEN_USER_DEFINED;
}

/* The token that is spelled so, or has this decimal id; -1: there is none. */
static int32_t specdec__vocab_named(const specdec__vocab *v, const char *name)
{
    const size_t length = strlen(name);
    uint32_t id;
    int64_t number = 0;
    size_t i;

    for (id = 0; id < v->count; id++) {
        specdec__bytes text = specdec__vocab_text(v, id);

        if (text.size == length && memcmp(text.data, name, length) == 0)
            return (int32_t)id;
    }
    for (i = 0; i < length && name[i] >= '0' && name[i] <= '9' && number < v->count; i++)
        number = number * 10 + (name[i] - '0');
    return length && i == length && number < v->count ? (int32_t)number : -1;
}

/* Does this token end the text? Ids outside the vocabulary do not. */
static SPECDEC__UNUSED int specdec__vocab_is_end(const specdec__vocab *v, int32_t id)
{
    int i;

    for (i = 0; i < v->end_count; i++)
        if (v->ends[i] == id)
            return 1;
    return 0;
}

SPECDEC__FOR_SPEED
