/* =====================================================================================================================
 * >>text/vocabulary: the vocabulary: what a token is, and which tokens end a text.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../model/gguf.h"

/* Tokenizers, by the value of tokenizer.ggml.model. */
enum {
    SPECDEC__VOCAB_SPM, /* "llama": sentencepiece BPE, best score first */
    SPECDEC__VOCAB_BPE, /* "gpt2": byte-level BPE, lowest merge rank first */
    SPECDEC__VOCAB_BPE_OF_CHARACTERS /* "gemma4": BPE of characters, spelled like SentencePiece */
};

#if defined(SPECDEC_NO_SPM) && defined(SPECDEC_NO_BPE)
#error "specdec.h: SPECDEC_NO_SPM and SPECDEC_NO_BPE together leave no tokenizer."
#endif

/* IS_BPE: is the tokenizer BPE? IS_BYTES: do its tokens spell bytes, not characters? In a build with only one tokenizer
   both are constants, so that the compiler drops the code of the other one. */
#if defined(SPECDEC_NO_SPM)
#define SPECDEC__VOCAB_IS_BPE(model) ((void)(model), 1)
#define SPECDEC__VOCAB_IS_BYTES(model) ((model) == SPECDEC__VOCAB_BPE)
#elif defined(SPECDEC_NO_BPE)
#define SPECDEC__VOCAB_IS_BPE(model) ((void)(model), 0)
#define SPECDEC__VOCAB_IS_BYTES(model) ((void)(model), 0)
#else
#define SPECDEC__VOCAB_IS_BPE(model) ((model) != SPECDEC__VOCAB_SPM)
#define SPECDEC__VOCAB_IS_BYTES(model) ((model) == SPECDEC__VOCAB_BPE)
#endif

/* Types of tokens, as in tokenizer.ggml.token_type. */
enum {
    SPECDEC__TOKEN_UNDEFINED, SPECDEC__TOKEN_NORMAL, SPECDEC__TOKEN_UNKNOWN, SPECDEC__TOKEN_CONTROL,
    SPECDEC__TOKEN_USER_DEFINED, SPECDEC__TOKEN_UNUSED, SPECDEC__TOKEN_BYTE
};

#define SPECDEC__VOCAB_MAX_TOKENS (1 << 24) /* tokens of a vocabulary, at most */
#define SPECDEC__VOCAB_MAX_END_TOKENS 64         /* end-of-text tokens of a vocabulary, at most */
#define SPECDEC__TEXT_MAX_BYTES (1u << 30) /* longer texts are refused: offsets in a text have 32 bits */
#define SPECDEC__TEXT_NONE UINT32_MAX      /* in place of an index of a token, a merge or a key: there is none */
#define SPECDEC__TEXT_MERGE_BLOCK 16       /* symbols of a block of the merger's tournament tree */

/* Marks: what the text of a token says about the token's type, whatever type the file gives, as in llama.cpp. */
enum {
    SPECDEC__MARK_NONE,    /* nothing: the file decides */
    SPECDEC__MARK_CONTROL, /* a control token */
    SPECDEC__MARK_ENDS,    /* a control token that ends a text */
    SPECDEC__MARK_TURN,    /* as ENDS; but user-defined in a vocabulary with a CALL token and a RETURN or FLUSH token */
    SPECDEC__MARK_CLOSES,  /* as ENDS; but plain text in a vocabulary that ends texts by a tool's mark */
    SPECDEC__MARK_SHOWN    /* user-defined: always recognised, always shown */
};

/* Bits of specdec__vocab.marks_present: tokens whose presence in a vocabulary changes the marks of other texts. */
enum { SPECDEC__MARK_RETURN = 1, SPECDEC__MARK_CALL = 2, SPECDEC__MARK_FLUSH = 4, SPECDEC__MARK_TOOL = 8 };

/* Purposes of the tokens of fill-in-the-middle prompts: text before the gap, behind it, in it; padding; borders of
   repositories and files. If the file names a token for a purpose, texts tell nothing about that purpose. */
enum {
    SPECDEC__FIM_NONE, SPECDEC__FIM_PREFIX, SPECDEC__FIM_SUFFIX, SPECDEC__FIM_MIDDLE, SPECDEC__FIM_PAD,
    SPECDEC__FIM_REPOSITORY, SPECDEC__FIM_FILE, SPECDEC__FIM_COUNT
};

/* The table of well-known texts of tokens: the mark of each text, and its purpose in fill-in-the-middle prompts. */
static const struct specdec__vocab_known_text {
    const char *text;        /* text of the token */
    unsigned char kind;      /* mark of the text: SPECDEC__MARK_NONE to _SHOWN */
    unsigned char presence;  /* the bit that the token sets in specdec__vocab.marks_present; 0: none */
    unsigned char fim;       /* purpose in fill-in-the-middle prompts: SPECDEC__FIM_... */
} specdec__vocab_known_texts[] = {
    {"<|im_end|>", SPECDEC__MARK_ENDS, 0, 0},
    {"<|eot_id|>", SPECDEC__MARK_ENDS, 0, 0},
    {"<|eom_id|>", SPECDEC__MARK_ENDS, 0, 0},
    {"<|end|>", SPECDEC__MARK_TURN, 0, 0},
    {"<|end_of_text|>", SPECDEC__MARK_ENDS, 0, 0},
    {"<|endoftext|>", SPECDEC__MARK_ENDS, 0, 0},
    {"<end_of_turn>", SPECDEC__MARK_ENDS, 0, 0},
    {"<end_of_utterance>", SPECDEC__MARK_ENDS, 0, 0},
    {"<eos>", SPECDEC__MARK_ENDS, 0, 0},
    {"</s>", SPECDEC__MARK_CLOSES, 0, 0},
    {"<EOT>", SPECDEC__MARK_ENDS, 0, 0},
    {"_<EOT>", SPECDEC__MARK_ENDS, 0, 0},
    {"[EOT]", SPECDEC__MARK_ENDS, 0, 0},
    {"[EOS]", SPECDEC__MARK_ENDS, 0, 0},
    {"[e~[", SPECDEC__MARK_ENDS, 0, 0},
    {"<turn|>", SPECDEC__MARK_ENDS, 0, 0},
    {"<|tool_response>", SPECDEC__MARK_ENDS, SPECDEC__MARK_TOOL, 0},
    {"<|return|>", SPECDEC__MARK_ENDS, SPECDEC__MARK_RETURN, 0},
    {"<|call|>", SPECDEC__MARK_ENDS, SPECDEC__MARK_CALL, 0},
    {"<|calls|>", SPECDEC__MARK_ENDS, SPECDEC__MARK_CALL, 0},
    {"<|flush|>", SPECDEC__MARK_ENDS, SPECDEC__MARK_FLUSH, 0},
    {"<\xef\xbd\x9c" "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>", SPECDEC__MARK_ENDS, 0, 0},
    /* of fill-in-the-middle prompts */
    {"<|fim_pad|>", SPECDEC__MARK_ENDS, 0, SPECDEC__FIM_PAD},
    {"<fim-pad>", SPECDEC__MARK_ENDS, 0, SPECDEC__FIM_PAD},
    {"<fim_pad>", SPECDEC__MARK_ENDS, 0, SPECDEC__FIM_PAD},
    {"<PAD>", SPECDEC__MARK_ENDS, 0, SPECDEC__FIM_PAD},
    {"[PAD]", SPECDEC__MARK_ENDS, 0, SPECDEC__FIM_PAD},
    {"<|fim_repo|>", SPECDEC__MARK_ENDS, 0, SPECDEC__FIM_REPOSITORY},
    {"<|repo_name|>", SPECDEC__MARK_ENDS, 0, SPECDEC__FIM_REPOSITORY},
    {"<fim-repo>", SPECDEC__MARK_ENDS, 0, SPECDEC__FIM_REPOSITORY},
    {"<REPO>", SPECDEC__MARK_ENDS, 0, SPECDEC__FIM_REPOSITORY},
    {"<reponame>", SPECDEC__MARK_ENDS, 0, SPECDEC__FIM_REPOSITORY},
    {"<|file_sep|>", SPECDEC__MARK_ENDS, 0, SPECDEC__FIM_FILE},
    {"<|fim_prefix|>", SPECDEC__MARK_CONTROL, 0, SPECDEC__FIM_PREFIX},
    {"<fim-prefix>", SPECDEC__MARK_CONTROL, 0, SPECDEC__FIM_PREFIX},
    {"<fim_prefix>", SPECDEC__MARK_CONTROL, 0, SPECDEC__FIM_PREFIX},
    {"<\xef\xbd\x9c" "fim\xe2\x96\x81" "begin\xef\xbd\x9c>", SPECDEC__MARK_CONTROL, 0, SPECDEC__FIM_PREFIX},
    {"<PRE>", SPECDEC__MARK_CONTROL, 0, SPECDEC__FIM_PREFIX},
    {"\xe2\x96\x81<PRE>", SPECDEC__MARK_CONTROL, 0, SPECDEC__FIM_PREFIX},
    {"<|code_prefix|>", SPECDEC__MARK_CONTROL, 0, SPECDEC__FIM_PREFIX},
    {"<|prefix|>", SPECDEC__MARK_CONTROL, 0, SPECDEC__FIM_PREFIX},
    {"<|fim_suffix|>", SPECDEC__MARK_CONTROL, 0, SPECDEC__FIM_SUFFIX},
    {"<fim-suffix>", SPECDEC__MARK_CONTROL, 0, SPECDEC__FIM_SUFFIX},
    {"<fim_suffix>", SPECDEC__MARK_CONTROL, 0, SPECDEC__FIM_SUFFIX},
    {"<\xef\xbd\x9c" "fim\xe2\x96\x81hole\xef\xbd\x9c>", SPECDEC__MARK_CONTROL, 0, SPECDEC__FIM_SUFFIX},
    {"<SUF>", SPECDEC__MARK_CONTROL, 0, SPECDEC__FIM_SUFFIX},
    {"\xe2\x96\x81<SUF>", SPECDEC__MARK_CONTROL, 0, SPECDEC__FIM_SUFFIX},
    {"<|code_suffix|>", SPECDEC__MARK_CONTROL, 0, SPECDEC__FIM_SUFFIX},
    {"<|suffix|>", SPECDEC__MARK_CONTROL, 0, SPECDEC__FIM_SUFFIX},
    {"<|fim_middle|>", SPECDEC__MARK_CONTROL, 0, SPECDEC__FIM_MIDDLE},
    {"<fim-middle>", SPECDEC__MARK_CONTROL, 0, SPECDEC__FIM_MIDDLE},
    {"<fim_middle>", SPECDEC__MARK_CONTROL, 0, SPECDEC__FIM_MIDDLE},
    {"<\xef\xbd\x9c" "fim\xe2\x96\x81" "end\xef\xbd\x9c>", SPECDEC__MARK_CONTROL, 0, SPECDEC__FIM_MIDDLE},
    {"<MID>", SPECDEC__MARK_CONTROL, 0, SPECDEC__FIM_MIDDLE},
    {"\xe2\x96\x81<MID>", SPECDEC__MARK_CONTROL, 0, SPECDEC__FIM_MIDDLE},
    {"<|code_middle|>", SPECDEC__MARK_CONTROL, 0, SPECDEC__FIM_MIDDLE},
    {"<|middle|>", SPECDEC__MARK_CONTROL, 0, SPECDEC__FIM_MIDDLE},
    /* of chat formats: as control tokens, so that answers end, and a user cannot write them */
    {"<|im_start|>", SPECDEC__MARK_CONTROL, 0, 0},
    {"<|im_sep|>", SPECDEC__MARK_CONTROL, 0, 0},
    {"<|start_header_id|>", SPECDEC__MARK_CONTROL, 0, 0},
    {"<|end_header_id|>", SPECDEC__MARK_CONTROL, 0, 0},
    {"<|start_of_role|>", SPECDEC__MARK_CONTROL, 0, 0},
    {"<|end_of_role|>", SPECDEC__MARK_CONTROL, 0, 0},
    {"<|system|>", SPECDEC__MARK_CONTROL, 0, 0},
    {"<|user|>", SPECDEC__MARK_CONTROL, 0, 0},
    {"<|assistant|>", SPECDEC__MARK_CONTROL, 0, 0},
    {"<start_of_turn>", SPECDEC__MARK_CONTROL, 0, 0},
    {"[SYSTEM_PROMPT]", SPECDEC__MARK_CONTROL, 0, 0},
    {"[/SYSTEM_PROMPT]", SPECDEC__MARK_CONTROL, 0, 0},
    {"[INST]", SPECDEC__MARK_CONTROL, 0, 0},
    {"[/INST]", SPECDEC__MARK_CONTROL, 0, 0},
    {"<\xef\xbd\x9c" "User\xef\xbd\x9c>", SPECDEC__MARK_CONTROL, 0, 0},
    {"<\xef\xbd\x9c" "Assistant\xef\xbd\x9c>", SPECDEC__MARK_CONTROL, 0, 0},
    /* gpt-oss */
    {"<|channel|>", SPECDEC__MARK_SHOWN, 0, 0},
    {"<|message|>", SPECDEC__MARK_SHOWN, 0, 0},
    {"<|start|>", SPECDEC__MARK_SHOWN, 0, 0},
    {"<|constrain|>", SPECDEC__MARK_SHOWN, 0, 0}};

/* A vocabulary. Texts, scores and types stay in the mapped file; only indexes are in memory. */
typedef struct specdec__vocab {
    int model;                                          /* tokenizer: SPECDEC__VOCAB_SPM to _BPE_OF_CHARACTERS */
    const struct specdec__pre_tokenizer *pre_tokenizer; /* how text is split into words; BPE only, else NULL */
    uint32_t count;                                     /* number of tokens */
    uint32_t longest_bytes;                             /* bytes of the longest token's text */
    int32_t bos, eos, eot, eom, unknown;                /* ids of special tokens; -1: none */
    int32_t fim[SPECDEC__FIM_COUNT];            /* ids that the file names for fill-in-the-middle; -1: none */
    int32_t add_bos, add_eos, add_space_prefix; /* flags of the file: 1 or 0 */
    int marks_present;                          /* bits SPECDEC__MARK_RETURN to _TOOL: which of these tokens exist */
    int pre_tokenizer_source;                   /* BPE: 1: the file names it; 0: recognised; -1: unknown, GPT-2's */
    int strips_space;                           /* 1: tokenizing drops white space behind most special tokens */
    int no_merge_crosses_space;                 /* SPM: 1: no token has U+2581 behind another character */
    const unsigned char *texts;                 /* (texts_size) the tokens' texts: the string array of the file */
    size_t texts_size;                          /* bytes of texts */
    const unsigned char *scores; /* (count) f32 of the file: scores of the tokens; SPM only */
    const unsigned char *types;  /* (count) i32 of the file: types of the tokens; NULL: the file has none */
    uint32_t *text_offset;       /* (count) offset of each token in texts */
    uint32_t *token_table;       /* (token_table_mask + 1) hash table of plain tokens: id + 1; 0: empty */
    uint32_t token_table_mask;   /* entries of token_table - 1 */
    uint32_t *merges;            /* (merge_count, 2) ids of left and right token by rank; count: unusable merge */
    uint32_t *merge_table;       /* (merge_table_mask + 1) hash table of merges: rank + 1; 0: empty */
    uint32_t merge_count;        /* BPE: number of merges */
    uint32_t merge_table_mask;   /* entries of merge_table - 1 */
    uint32_t *specials;          /* (special_count) ids of unknown, control, user-defined tokens, longest text first */
    uint32_t special_count;      /* number of unknown, control and user-defined tokens */
    int32_t *byte_token;         /* (256) id of the token that stands for one byte; -1: none */
    int32_t *end_tokens;         /* (end_token_count) ids of end-of-text tokens */
    int end_token_count;         /* end-of-text tokens, at most SPECDEC__VOCAB_MAX_END_TOKENS */
} specdec__vocab;

/* Returns the text of a token, as it is in the GGUF file. */
static specdec__bytes specdec__vocab_token_text(const specdec__vocab *v, uint32_t id)
{
    const unsigned char *at = v->texts + v->text_offset[id];
    specdec__bytes out;

    out.size = (size_t)specdec__load_u64(at);
    out.data = at + 8;
    return out;
}

/* Returns the byte that a token's text names, <0x00> to <0xFF>; -1: the text is not of that form. */
static int specdec__vocab_byte_of_hex_text(specdec__bytes text)
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
/* Returns the row of specdec__vocab_known_texts that has a text; NULL: none has it. Nearly all texts are ruled out by
   their first and last bytes. */
static const struct specdec__vocab_known_text *specdec__vocab_find_known_token_text(specdec__bytes text)
{
    size_t i;

    if (text.size < 4 || text.size > 40 || !memchr("<[_\xe2", text.data[0], 4) ||
        !memchr(">][", text.data[text.size - 1], 3))
        return NULL;
    for (i = 0; i < SPECDEC__COUNT(specdec__vocab_known_texts); i++)
        if (specdec__bytes_equal_string(text, specdec__vocab_known_texts[i].text))
            return &specdec__vocab_known_texts[i];
    return NULL;
}

/* Returns the mark, SPECDEC__MARK_NONE to _SHOWN, of a token with this text in this vocabulary. */
static int specdec__vocab_mark_of_token_text(const specdec__vocab *v, specdec__bytes text)
{
    const struct specdec__vocab_known_text *row = specdec__vocab_find_known_token_text(text);
    const int other = v->marks_present & (SPECDEC__MARK_RETURN | SPECDEC__MARK_FLUSH);

    if (!row || (row->fim && v->fim[row->fim] >= 0))
        return SPECDEC__MARK_NONE;
    if (row->kind == SPECDEC__MARK_TURN && v->marks_present & SPECDEC__MARK_CALL && other)
        return SPECDEC__MARK_SHOWN;
    return row->kind;
}

/* Returns whether a token with this text is an end-of-text token of the vocabulary. */
static int specdec__vocab_text_is_end_token(const specdec__vocab *v, specdec__bytes text)
{
    const int mark = specdec__vocab_mark_of_token_text(v, text);

    return mark == SPECDEC__MARK_CLOSES ? !(v->marks_present & SPECDEC__MARK_TOOL)
                                        : mark == SPECDEC__MARK_ENDS || mark == SPECDEC__MARK_TURN;
}

/* Returns the type, SPECDEC__TOKEN_..., of the token `id` with this text: by the mark of the text, else by the file's
   types; in a file without types it is guessed from id and text. */
static int specdec__vocab_type_of_text(const specdec__vocab *v, uint32_t id, specdec__bytes text)
{
    const int mark = specdec__vocab_mark_of_token_text(v, text);
    int32_t i = (int32_t)id;

    if (mark == SPECDEC__MARK_SHOWN)
        return SPECDEC__TOKEN_USER_DEFINED;
    if (mark == SPECDEC__MARK_CLOSES && v->marks_present & SPECDEC__MARK_TOOL)
        return SPECDEC__TOKEN_NORMAL;
    if (mark)
        return SPECDEC__TOKEN_CONTROL;
    if (v->types) {
        uint32_t type = specdec__load_u32(v->types + (size_t)id * 4);

        return type <= SPECDEC__TOKEN_BYTE ? (int)type : (int)SPECDEC__TOKEN_UNDEFINED;
    }
    if (i == v->bos || i == v->eos || i == v->eot || i == v->eom)
        return SPECDEC__TOKEN_CONTROL;
    if (i == v->unknown)
        return SPECDEC__TOKEN_UNKNOWN;
    if (!SPECDEC__VOCAB_IS_BYTES(v->model) && specdec__vocab_byte_of_hex_text(text) >= 0)
        return SPECDEC__TOKEN_BYTE;
    return SPECDEC__TOKEN_NORMAL;
}

/* Returns the type, SPECDEC__TOKEN_..., of the token `id` of the vocabulary. */
static int specdec__vocab_token_type(const specdec__vocab *v, uint32_t id)
{
    return specdec__vocab_type_of_text(v, id, specdec__vocab_token_text(v, id));
}

/* Returns whether a token type is UNKNOWN, CONTROL or USER_DEFINED. The texts of tokens of these types are searched for
   in a text before it is tokenized. */
static int specdec__vocab_type_is_special(int type)
{
    return type == SPECDEC__TOKEN_UNKNOWN || type == SPECDEC__TOKEN_CONTROL || type == SPECDEC__TOKEN_USER_DEFINED;
}

/* Returns the text of the next token, in the order of ids. *at: byte offset in v->texts, 0 before the first token. Does
   not need v->text_offset. */
static specdec__bytes specdec__vocab_next_token_text(const specdec__vocab *v, size_t *at)
{
    specdec__bytes out;

    out.size = (size_t)specdec__load_u64(v->texts + *at);
    out.data = v->texts + *at + 8;
    *at += 8 + out.size;
    return out;
}

/* Returns the id of the token whose text is `name`, else the token whose id `name` is in decimal digits; -1: there is
   none. */
static int32_t specdec__vocab_find_token(const specdec__vocab *v, const char *name)
{
    const size_t length = strlen(name);
    size_t i, at = 0;
    uint32_t id;
    int64_t number = 0;

    for (id = 0; id < v->count; id++) {
        specdec__bytes text = specdec__vocab_next_token_text(v, &at);

        if (text.size == length && memcmp(text.data, name, length) == 0)
            return (int32_t)id;
    }
    for (i = 0; i < length && name[i] >= '0' && name[i] <= '9' && number < v->count; i++)
        number = number * 10 + (name[i] - '0');
    return length && i == length && number < v->count ? (int32_t)number : -1;
}

/* Returns whether the token `id` is an end-of-text token; 0 for ids outside the vocabulary. */
static SPECDEC__UNUSED int specdec__vocab_is_end_token(const specdec__vocab *v, int32_t id)
{
    int i;

    for (i = 0; i < v->end_token_count; i++)
        if (v->end_tokens[i] == id)
            return 1;
    return 0;
}

SPECDEC__FOR_SPEED
