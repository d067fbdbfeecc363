/* =====================================================================================================================
 * >>text/stages: pre-tokenizers of several stages, and the table of all pre-tokenizers.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../model/gguf.h"
#include "unicode.h"
#include "words.h"

SPECDEC__FOR_SIZE

/* Some tokenizers split a text by several regular expressions, one stage after the other: each stage splits the pieces
   of the stage before into matches and the text between matches ("isolated" in Hugging Face's tokenizers). A stage is a
   function that returns the bytes of its match at the beginning of a text (length > 0), 0: no match. */
typedef size_t specdec__text_match_function(const unsigned char *text, size_t length);
/* A stage of a pre-tokenizer: one regular expression by which text is split. */
typedef struct specdec__text_stage {
    specdec__text_match_function *match; /* matches the stage's regular expression; NULL: end of the list of stages */
    int lookahead;                       /* how far it looks behind a match: SPECDEC__STAGE_PLAIN to _ENDS */
} specdec__text_stage;

/* Lookahead: how far a stage's regular expression looks behind a match, so that a part of a text can be split without
   the rest. EXACT: one character; PLAIN: white space and one character; FAR: also numbers; CASED: also letters; ENDS:
   as PLAIN, but white space that does not match is never split. */
enum { SPECDEC__STAGE_PLAIN, SPECDEC__STAGE_EXACT, SPECDEC__STAGE_FAR, SPECDEC__STAGE_CASED, SPECDEC__STAGE_ENDS };

/* Does a character belong to a class of characters? */
typedef int specdec__text_class_function(const specdec__text_character *c);

/* Returns the offset behind the run of characters of a class that begins at offset `at` of a text. */
static size_t specdec__text_end_of_class_run(const unsigned char *text, size_t length, size_t at,
                                             specdec__text_class_function *belongs)
{
    for (;;) {
        const specdec__text_character c = specdec__text_character_at(text, length, at);

        if (!c.size || !belongs(&c))
            return at;
        at += (size_t)c.size;
    }
}

/* Returns the number of bytes of \s?X+ at the beginning of a text, for a class X of characters; 0: no match. */
static size_t specdec__text_spaced_run_bytes(const unsigned char *text, size_t length,
                                             specdec__text_class_function *belongs)
{
    const specdec__text_character c = specdec__text_character_at(text, length, 0);
    const size_t from = c.kind == SPECDEC__TEXT_SPACE ? (size_t)c.size : 0;
    const size_t end = specdec__text_end_of_class_run(text, length, from, belongs);

    return end > from ? end : from ? specdec__text_end_of_class_run(text, length, 0, belongs) : 0;
}

/* Is a character in \p{L}? This and the next functions test classes; [regular expressions] define them. */
static int specdec__text_is_letter(const specdec__text_character *c) { return c->kind == SPECDEC__TEXT_LETTER; }
/* Is a character in [\p{P}]? */
static int specdec__text_is_punctuation(const specdec__text_character *c)
{
    return (c->properties & SPECDEC__TEXT_PUNCTUATION) != 0;
}
/* Is a character in [\p{P}\p{S}]? */
static int specdec__text_is_punctuation_or_symbol(const specdec__text_character *c)
{
    return (c->properties & (SPECDEC__TEXT_PUNCTUATION | SPECDEC__TEXT_SYMBOL)) != 0;
}
/* Is a character in [\p{L}\p{M}]? */
static int specdec__text_is_letter_or_mark(const specdec__text_character *c)
{
    return c->kind == SPECDEC__TEXT_LETTER || c->properties & SPECDEC__TEXT_MARK;
}
/* Is a character in [^\s\p{L}\p{M}\p{N}]? */
static int specdec__text_is_no_letter_number_space(const specdec__text_character *c)
{
    return c->kind == SPECDEC__TEXT_OTHER && !(c->properties & SPECDEC__TEXT_MARK);
}
/* Is a character in [A-Za-z]? */
static int specdec__text_is_latin(const specdec__text_character *c)
{
    return (c->code | 32) >= 'a' && (c->code | 32) <= 'z';
}
/* Is a character in [\r\n]? */
static int specdec__text_is_newline(const specdec__text_character *c) { return c->code == '\r' || c->code == '\n'; }
/* Is a character in [\p{P}$+<=>^~|`] (Falcon)? */
static int specdec__text_is_falcon_punctuation(const specdec__text_character *c)
{
    return specdec__text_is_punctuation(c) || (c->code < 128 && c->properties & SPECDEC__TEXT_SYMBOL);
}
/* Is a character one that does not end a word in the expression of Poro and Viking? */
static int specdec__text_is_poro_letter(const specdec__text_character *c)
{
    static const specdec__text_range marks[] = {{'!', '!'}, {'(', ')'}, {',', ','}, {'.', '.'}, {'?', '?'}, {'|', '|'},
        {0x60C, 0x60C}, {0x6D4, 0x6D4}, {0x964, 0x964}, {0x2026, 0x2026}, {0x3001, 0x3002}, {0xFF0C, 0xFF0C}};

    return c->kind != SPECDEC__TEXT_SPACE && !specdec__text_in_ranges(marks, SPECDEC__COUNT(marks), c->code);
}
/* Is a character Chinese or a Japanese syllable, as DeepSeek V3 lists them? */
static int specdec__text_is_east_asian(const specdec__text_character *c)
{
    return (c->code >= 0x4E00 && c->code <= 0x9FA5) || (c->code >= 0x3040 && c->code <= 0x30FF);
}
/* Is a character Chinese, Japanese, Korean or of nearly any other Asian script, as DeepSeek LLM lists them? */
static int specdec__text_is_asian(const specdec__text_character *c)
{
    return (c->code >= 0x800 && c->code <= 0x9FA5) || (c->code >= 0xAC00 && c->code <= 0xD7FF);
}
/* Is a character a letter with upper or lower case, as DeepSeek LLM lists them? */
static int specdec__text_is_deepseek_llm_letter(const specdec__text_character *c)
{
    static const specdec__text_range letters[] = {
    {0x41, 0x5a}, {0x61, 0x7a}, {0xb5, 0xb5}, {0xc0, 0xd6}, {0xd8, 0xf6}, {0xf8, 0x1ba}, {0x1bc, 0x1bf}, {0x1c4, 0x293},
    {0x295, 0x2af}, {0x370, 0x373}, {0x376, 0x376}, {0x377, 0x377}, {0x37b, 0x37d}, {0x37f, 0x37f}, {0x386, 0x386},
    {0x388, 0x38a}, {0x38c, 0x38c}, {0x38e, 0x3a1}, {0x3a3, 0x3f5}, {0x3f7, 0x481}, {0x48a, 0x52f}, {0x531, 0x556},
    {0x10a0, 0x10c5}, {0x13a0, 0x13f5}, {0x13f8, 0x13fd}, {0x1c90, 0x1cba}, {0x1cbd, 0x1cbf}, {0x1d00, 0x1d2b},
    {0x1d6b, 0x1d77}, {0x1d79, 0x1d9a}, {0x1e00, 0x1f15}, {0x1f18, 0x1f1d}, {0x1f20, 0x1f45}, {0x1f48, 0x1f4d},
    {0x1f50, 0x1f57}, {0x1f59, 0x1f59}, {0x1f5b, 0x1f5b}, {0x1f5d, 0x1f5d}, {0x1f5f, 0x1f7d}, {0x1f80, 0x1fb4},
    {0x1fb6, 0x1fbc}, {0x1fbe, 0x1fbe}, {0x1fc2, 0x1fc4}, {0x1fc6, 0x1fcc}, {0x1fd0, 0x1fd3}, {0x1fd6, 0x1fdb},
    {0x1fe0, 0x1fec}, {0x1ff2, 0x1ff4}, {0x1ff6, 0x1ffc}, {0x2102, 0x2102}, {0x2107, 0x2107}, {0x210a, 0x2113},
    {0x2115, 0x2115}, {0x2119, 0x211d}, {0x2124, 0x2124}, {0x2126, 0x2126}, {0x2128, 0x2128}, {0x212a, 0x212d},
    {0x212f, 0x2134}, {0x2139, 0x2139}, {0x213c, 0x213f}, {0x2145, 0x2149}, {0x214e, 0x214e}, {0x2183, 0x2183},
    {0x2184, 0x2184}, {0x2c00, 0x2c7b}, {0x2c7e, 0x2ce4}, {0x2ceb, 0x2cee}, {0x2cf2, 0x2cf2}, {0x2cf3, 0x2cf3},
    {0xa640, 0xa66d}, {0xa680, 0xa69b}, {0xa722, 0xa76f}, {0xa771, 0xa787}, {0xa78b, 0xa78e}, {0xab70, 0xabbf},
    {0xfb00, 0xfb06}, {0xfb13, 0xfb17}, {0xff21, 0xff3a}, {0xff41, 0xff5a}, {0x10400, 0x1044f}, {0x104b0, 0x104d3},
    {0x104d8, 0x104fb}, {0x10c80, 0x10cb2}, {0x10cc0, 0x10cf2}, {0x118a0, 0x118df}, {0x1e900, 0x1e943}};

    return specdec__text_in_ranges(letters, SPECDEC__COUNT(letters), c->code);
}
/* Is a character punctuation or another sign, as DeepSeek LLM lists them? */
static int specdec__text_is_deepseek_llm_sign(const specdec__text_character *c)
{
    static const specdec__text_range signs[] = {{'!', '/'}, {':', '~'}, {0x2018, 0x201F}, {0x3000, 0x3002},
                                                {0xFF01, 0xFF0F}, {0xFF1A, 0xFF5E}};

    return specdec__text_in_ranges(signs, SPECDEC__COUNT(signs), c->code);
}

/* Defines a stage's function, which returns the bytes of its match at the beginning of a text. The regular expressions
   above the following lines are in the order of the functions. */
#define SPECDEC__TEXT_STAGE(name, expression) \
    static size_t specdec__text_match_stage_##name(const unsigned char *text, size_t length) { return expression; }
/* [\r\n]; \p{N}; \p{N}{1,3}; \p{N}+ */
SPECDEC__TEXT_STAGE(newline, length && (text[0] == '\r' || text[0] == '\n'))
SPECDEC__TEXT_STAGE(number, specdec__text_end_of_kind_run(text, length, 0, SPECDEC__TEXT_NUMBER, 1))
SPECDEC__TEXT_STAGE(numbers3, specdec__text_end_of_kind_run(text, length, 0, SPECDEC__TEXT_NUMBER, 3))
SPECDEC__TEXT_STAGE(numbers, specdec__text_end_of_kind_run(text, length, 0, SPECDEC__TEXT_NUMBER, SIZE_MAX))
/* \s?\p{L}+; \s?\p{P}+; [\p{P}$+<=>^~|`]+; \s?[letters]+; \s?[signs]+; \s+$ */
SPECDEC__TEXT_STAGE(letters, specdec__text_spaced_run_bytes(text, length, specdec__text_is_letter))
SPECDEC__TEXT_STAGE(punctuation, specdec__text_spaced_run_bytes(text, length, specdec__text_is_punctuation))
SPECDEC__TEXT_STAGE(falcon_signs, specdec__text_end_of_class_run(text, length, 0, specdec__text_is_falcon_punctuation))
SPECDEC__TEXT_STAGE(deepseek_llm_letters,
                    specdec__text_spaced_run_bytes(text, length, specdec__text_is_deepseek_llm_letter))
SPECDEC__TEXT_STAGE(deepseek_llm_signs,
                    specdec__text_spaced_run_bytes(text, length, specdec__text_is_deepseek_llm_sign))
SPECDEC__TEXT_STAGE(trailing_space,
                    specdec__text_end_of_kind_run(text, length, 0, SPECDEC__TEXT_SPACE, SIZE_MAX) == length
                        ? length
                        : 0)
/* [\u4E00-\u9FA5\u3040-\u30FF]+; [\u0800-\u9FA5\uAC00-\uD7FF]+ */
SPECDEC__TEXT_STAGE(east_asian, specdec__text_end_of_class_run(text, length, 0, specdec__text_is_east_asian))
SPECDEC__TEXT_STAGE(asian, specdec__text_end_of_class_run(text, length, 0, specdec__text_is_asian))
/* Whole pre-tokenizers as stages: GPT-2's; Llama 3's with numbers of any length; GPT-4o's with numbers of 1 or 3
   digits. */
SPECDEC__TEXT_STAGE(gpt2, specdec__text_word_bytes_gpt2(text, length, 0))
SPECDEC__TEXT_STAGE(llama3, specdec__text_word_bytes_llama3(text, length, SIZE_MAX))
SPECDEC__TEXT_STAGE(gpt4o_1, specdec__text_word_bytes_gpt4o(text, length, 1))
SPECDEC__TEXT_STAGE(gpt4o_3, specdec__text_word_bytes_gpt4o(text, length, 3))

/* Matches [0-9]{3} at the beginning of a text. Returns the number of bytes; 0: no match. */
static size_t specdec__text_match_stage_three_digits(const unsigned char *text, size_t length)
{
    size_t at;

    for (at = 0; at < 3 && at < length && text[at] >= '0' && text[at] <= '9'; at++) {
    }
    return at == 3 ? 3 : 0;
}

/* Matches  ?[^(\s|.,!?\u2026\u3002\uFF0C\u3001\u0964\u06D4\u060C)]+ (Poro, Viking) at the beginning of a text. Returns
   the number of bytes; 0: no match. */
static size_t specdec__text_match_stage_poro(const unsigned char *text, size_t length)
{
    const size_t from = text[0] == ' ',
                 end = specdec__text_end_of_class_run(text, length, from, specdec__text_is_poro_letter);

    return end > from ? end : 0;
}

/* Is a character a Korean letter, as Youtu lists them? */
static int specdec__text_is_korean(const specdec__text_character *c)
{
    return (c->code >= 0xAC00 && c->code <= 0xD7A3) || (c->code >= 0x3131 && c->code <= 0x318E);
}
/* Is a character a sign of Chinese texts, as Youtu lists them? */
static int specdec__text_is_youtu_sign(const specdec__text_character *c)
{
    static const specdec__text_range signs[] = {{0x2014, 0x2014}, {0x2018, 0x2019}, {0x201C, 0x201D}, {0x2026, 0x2026},
        {0x3001, 0x303F}, {0xFE30, 0xFE4F}, {0xFF01, 0xFF01}, {0xFF0C, 0xFF0C}, {0xFF1A, 0xFF1B}};

    return specdec__text_in_ranges(signs, SPECDEC__COUNT(signs), c->code);
}
/* Is a character Bopomofo, as Youtu lists it? */
static int specdec__text_is_bopomofo(const specdec__text_character *c)
{
    return c->code >= 0x3105 && c->code <= 0x312F;
}

/* Matches a run of Korean, Bopomofo, or Chinese and Japanese letters, or of signs of Chinese texts (Youtu). Returns the
   number of bytes; 0: no match. */
static size_t specdec__text_match_stage_youtu(const unsigned char *text, size_t length)
{
    static specdec__text_class_function *const classes[4] = {specdec__text_is_korean, specdec__text_is_youtu_sign,
                                                             specdec__text_is_bopomofo, specdec__text_is_east_asian};
    size_t i, end = 0;

    for (i = 0; i < 4 && !end; i++)
        end = specdec__text_end_of_class_run(text, length, 0, classes[i]);
    return end;
}

/* Matches [!-/:-@[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
   (DeepSeek V3) at the beginning of a text. Returns the number of bytes; 0: no match. */
static size_t specdec__text_match_stage_deepseek_v3(const unsigned char *text, size_t length)
{
    const specdec__text_character c = specdec__text_character_at(text, length, 0);
    const int bare = c.kind == SPECDEC__TEXT_LETTER || specdec__text_is_punctuation_or_symbol(&c) ||
                     specdec__text_is_newline(&c);
    size_t from = c.code < 128 && specdec__text_is_punctuation_or_symbol(&c),
           end = specdec__text_end_of_class_run(text, length, from, specdec__text_is_latin);

    if (from && end > from)
        return end;
    from = bare ? 0 : (size_t)c.size;
    end = specdec__text_end_of_class_run(text, length, from, specdec__text_is_letter_or_mark);
    if (end > from || (c.properties & SPECDEC__TEXT_MARK))
        return end;
    from = text[0] == ' ';
    end = specdec__text_end_of_class_run(text, length, from, specdec__text_is_punctuation_or_symbol);
    if (end > from)
        return specdec__text_end_of_class_run(text, length, end, specdec__text_is_newline);
    return specdec__text_word_bytes_of_white_space(text, length);
}

/* Returns the number of bytes of the first word of a text by
   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|
   \s+(?!\S)|\s+ (Qwen 3.5). */
static size_t specdec__text_word_bytes_qwen35(const unsigned char *text, size_t length, size_t digits)
{
    const specdec__text_character c = specdec__text_character_at(text, length, 0);
    size_t from = specdec__text_letter_prefix_bytes(c), end = specdec__text_contraction_bytes(text, length, 1);

    if (end)
        return end;
    end = specdec__text_end_of_class_run(text, length, from, specdec__text_is_letter_or_mark);
    if (end > from || (c.properties & SPECDEC__TEXT_MARK))
        return end;
    end = specdec__text_end_of_kind_run(text, length, 0, SPECDEC__TEXT_NUMBER, digits);
    if (end)
        return end;
    from = text[0] == ' ';
    end = specdec__text_end_of_class_run(text, length, from, specdec__text_is_no_letter_number_space);
    if (end > from)
        return specdec__text_end_of_class_run(text, length, end, specdec__text_is_newline);
    return specdec__text_word_bytes_of_white_space(text, length);
}

/* Returns the number of bytes of the first word of a text by
   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+ (Seed):
   Qwen 2's expression, except that signs do not include line ends behind them. */
static size_t specdec__text_word_bytes_seed(const unsigned char *text, size_t length, size_t digits)
{
    size_t end = specdec__text_word_bytes_llama3(text, length, digits);

    while (end > 1 && specdec__text_character_at(text, length, text[0] == ' ').kind == SPECDEC__TEXT_OTHER &&
           (text[end - 1] == '\r' || text[end - 1] == '\n'))
        end--;
    return end;
}

/* Returns the number of bytes of the first word of a text by [^\n]+|\n+ (Gemma 4). */
static size_t specdec__text_word_bytes_gemma4(const unsigned char *text, size_t length, size_t digits)
{
    const unsigned char *end = (const unsigned char *)memchr(text, '\n', length);
    size_t at = 0;

    (void)digits;
    if (text[0] != '\n')
        return end ? (size_t)(end - text) : length;
    while (at < length && text[at] == '\n')
        at++;
    return at;
}

#define SPECDEC__TEXT_LONGEST_NUMBER 192 /* digits of a longer run are grouped from its beginning, not its end */

/* Returns the number of digits in front of the groups of three that end a run of digits; *count: digits of the run. */
static size_t specdec__text_digits_before_groups(const unsigned char *text, size_t length, size_t *count)
{
    size_t at = 0, next;

    for (*count = 0; *count < SPECDEC__TEXT_LONGEST_NUMBER; ++*count, at = next) {
        next = specdec__text_end_of_kind_run(text, length, at, SPECDEC__TEXT_NUMBER, 1);
        if (next == at)
            break;
    }
    return *count % 3;
}

/* Matches \d{1,3}(?=(?:\d{3})*\b) (Tiny Aya) at the beginning of a text: groups of three digits from the end of a
   number that no letter follows. Returns the number of bytes; 0: no match. */
static size_t specdec__text_match_stage_tiny_aya_digits(const unsigned char *text, size_t length)
{
    size_t count, first = specdec__text_digits_before_groups(text, length, &count), end;
    specdec__text_character c;

    if (!count)
        return 0;
    end = specdec__text_end_of_kind_run(text, length, 0, SPECDEC__TEXT_NUMBER, count);
    c = specdec__text_character_at(text, length, end);
    if (c.kind == SPECDEC__TEXT_LETTER || c.properties & SPECDEC__TEXT_MARK || c.code == '_')
        return 0;
    return specdec__text_end_of_kind_run(text, length, 0, SPECDEC__TEXT_NUMBER, first ? first : 3);
}

/* Matches (?=(\d{3})+(?!\d)) behind \p{N}+ (SuperBPE): groups of three digits from the end of a number, whatever
   follows. Returns the number of bytes; 0: no match. */
static size_t specdec__text_match_stage_superbpe_digits(const unsigned char *text, size_t length)
{
    size_t count, first = specdec__text_digits_before_groups(text, length, &count);

    return specdec__text_end_of_kind_run(text, length, 0, SPECDEC__TEXT_NUMBER, first ? first : count ? 3 : 0);
}

/* Returns the number of bytes of the first piece of a text after one stage: its match, or the text in front of a match.
   *exact becomes 1 when the piece ends there whatever follows the text. */
static size_t specdec__text_first_piece_bytes_of_stage(const specdec__text_stage *stage, const unsigned char *text,
                                                       size_t length, int *exact)
{
    size_t at = 0, size = 0, seen;

    while (at < length) {
        specdec__text_character c;

        size = stage->match(text + at, length - at);
        if (size)
            break;
        c = specdec__text_character_at(text, length, at);
        if (c.kind == SPECDEC__TEXT_SPACE && stage->lookahead == SPECDEC__STAGE_ENDS)
            at = specdec__text_end_of_kind_run(text, length, at, SPECDEC__TEXT_SPACE, SIZE_MAX);
        else
            at += (size_t)c.size;
    }
    if (!size || stage->lookahead == SPECDEC__STAGE_ENDS)
        return at ? at : size;
    seen = at + (stage->lookahead == SPECDEC__STAGE_FAR ? 4 * SPECDEC__TEXT_LONGEST_NUMBER + 4 : at ? 12 : size + 4);
    if (seen <= length && (at || stage->lookahead == SPECDEC__STAGE_EXACT || stage->lookahead == SPECDEC__STAGE_FAR))
        *exact = 1; /* three characters decide whether there is a match */
    return at ? at : size;
}

/* Returns the number of bytes of the first word of a text (length > 0): its first piece after all stages. As a text may
   be long and its first stage match nowhere, only a part of the text is split first, and a longer part if its end could
   matter: no expression looks further than to the first character behind a word that is not white space (or number or
   letter: FAR, CASED). */
static size_t specdec__text_word_bytes_by_stages(const specdec__text_stage *stages, const unsigned char *text,
                                                 size_t length)
{
    size_t window, limit, end, at;
    int i, exact, reaches = 0, cased = 0;

    for (window = 16;; window = specdec__size_multiply(window, 2)) {
        limit = window < length ? window : length;
        for (i = 0, exact = 0, end = limit; stages[i].match; i++) {
            end = specdec__text_first_piece_bytes_of_stage(stages + i, text, end, &exact);
            reaches |= stages[i].lookahead == SPECDEC__STAGE_FAR;
            cased |= stages[i].lookahead == SPECDEC__STAGE_CASED;
        }
        if (limit == length || exact)
            return end;
        for (at = end; at + 4 <= limit;) {
            const specdec__text_character c = specdec__text_character_at(text, limit, at);

            if (c.kind != SPECDEC__TEXT_SPACE && !(reaches && c.kind == SPECDEC__TEXT_NUMBER) &&
                !(cased && c.properties & SPECDEC__TEXT_HEAD))
                return end;
            at += (size_t)c.size;
        }
    }
}

/* Returns the number of bytes of the first word of a text by \p{Han}+, or GPT-4o's expression for other characters,
   without [/]* behind signs (Kimi K2). */
static size_t specdec__text_word_bytes_kimi(const unsigned char *text, size_t length, size_t digits)
{
    size_t end = specdec__text_end_of_class_run(text, length, 0, specdec__text_is_han);

    if (end)
        return end;
    end = specdec__text_cased_word_bytes(text, length, 1);
    return end ? end + specdec__text_contraction_bytes(text + end, length - end, 1)
               : specdec__text_word_bytes_without_letters(text, length, digits, 0);
}

/* A row of a list of stages. The lists below belong to pre-tokenizers of several stages. */
#define SPECDEC__STAGE(name, kind) {specdec__text_match_stage_##name, SPECDEC__STAGE_##kind}
static const specdec__text_stage specdec__text_deepseek_llm[] = {
    SPECDEC__STAGE(newline, EXACT), SPECDEC__STAGE(deepseek_llm_letters, EXACT),
    SPECDEC__STAGE(deepseek_llm_signs, EXACT), SPECDEC__STAGE(trailing_space, ENDS), SPECDEC__STAGE(asian, EXACT),
    SPECDEC__STAGE(numbers, EXACT), {NULL, 0}};
static const specdec__text_stage specdec__text_deepseek_coder[] = {
    SPECDEC__STAGE(newline, EXACT), SPECDEC__STAGE(letters, EXACT), SPECDEC__STAGE(punctuation, EXACT),
    SPECDEC__STAGE(asian, EXACT), SPECDEC__STAGE(number, EXACT), {NULL, 0}};
static const specdec__text_stage specdec__text_deepseek_v3[] = {
    SPECDEC__STAGE(numbers3, EXACT), SPECDEC__STAGE(east_asian, EXACT), SPECDEC__STAGE(deepseek_v3, PLAIN), {NULL, 0}};
static const specdec__text_stage specdec__text_falcon[] = {
    SPECDEC__STAGE(falcon_signs, EXACT), SPECDEC__STAGE(gpt2, PLAIN), SPECDEC__STAGE(three_digits, EXACT), {NULL, 0}};
static const specdec__text_stage specdec__text_minicpm5[] = {
    SPECDEC__STAGE(numbers3, EXACT), SPECDEC__STAGE(llama3, PLAIN), {NULL, 0}};
static const specdec__text_stage specdec__text_youtu[] = {
    SPECDEC__STAGE(youtu, EXACT), SPECDEC__STAGE(gpt4o_1, CASED), {NULL, 0}};
static const specdec__text_stage specdec__text_tiny_aya[] = {
    SPECDEC__STAGE(tiny_aya_digits, FAR), SPECDEC__STAGE(gpt4o_3, CASED), {NULL, 0}};
static const specdec__text_stage specdec__text_superbpe[] = {
    SPECDEC__STAGE(numbers, EXACT), SPECDEC__STAGE(superbpe_digits, FAR), {NULL, 0}};
static const specdec__text_stage specdec__text_poro[] = {SPECDEC__STAGE(poro, EXACT), {NULL, 0}};
static const specdec__text_stage specdec__text_viking[] = {
    SPECDEC__STAGE(poro, EXACT), SPECDEC__STAGE(number, EXACT), {NULL, 0}};

/* Which words become one token without merging when the vocabulary has them as tokens: none, all, or those of line
   ends. */
enum { SPECDEC__WORDS_MERGED, SPECDEC__WORDS_WHOLE, SPECDEC__WORDS_LINE_ENDS };

/* A pre-tokenizer: how BPE splits text into words, by the value of tokenizer.ggml.pre. */
typedef struct specdec__pre_tokenizer {
    const char *name;                        /* value of tokenizer.ggml.pre */
    specdec__text_word_function *first_word; /* returns the bytes of a text's first word; NULL: see stages */
    size_t digits;                           /* most digits of a number in one word */
    int whole_words;                         /* SPECDEC__WORDS_...: words that skip merging */
    int add_bos;                             /* default of add_bos_token; 2: overrides the file */
    const specdec__text_stage *stages;       /* list of stages that split text instead of first_word; NULL: none */
} specdec__pre_tokenizer;

/* All pre-tokenizers. Models of some names: "smaug-bpe" SmolLM3; "dbrx" Phi-4, Granite 4, OLMo 2; "refact" Granite 3;
   "starcoder" StarCoder and StarCoder 2; "gpt-4o" Phi-4-mini; "tekken" Mistral Nemo and later. */
static const specdec__pre_tokenizer specdec__pre_tokenizers[] = {
    {"gpt-2", specdec__text_word_bytes_gpt2, 0, 0, 0, NULL},
    {"olmo", specdec__text_word_bytes_gpt2, 0, 0, 0, NULL},
    {"exaone4", specdec__text_word_bytes_gpt2, 0, 0, 0, NULL},
    {"a.x-4.0", specdec__text_word_bytes_gpt2, 0, 0, 0, NULL},
    {"trillion", specdec__text_word_bytes_gpt2, 0, 0, 0, NULL},
    {"llama-bpe", specdec__text_word_bytes_llama3, 3, 1, 1, NULL},
    {"llama3", specdec__text_word_bytes_llama3, 3, 1, 1, NULL},
    {"llama-v3", specdec__text_word_bytes_llama3, 3, 1, 1, NULL},
    {"falcon3", specdec__text_word_bytes_llama3, 3, 1, 1, NULL},
    {"pixtral", specdec__text_word_bytes_llama3, 3, 1, 1, NULL},
    {"midm-2.0", specdec__text_word_bytes_llama3, 3, 1, 1, NULL},
    {"smaug-bpe", specdec__text_word_bytes_llama3, 3, 0, 0, NULL},
    {"dbrx", specdec__text_word_bytes_llama3, 3, 0, 0, NULL},
    {"glm4", specdec__text_word_bytes_llama3, 3, 0, 0, NULL},
    {"chatglm-bpe", specdec__text_word_bytes_llama3, 3, 0, 0, NULL},
    {"qwen2", specdec__text_word_bytes_llama3, 1, 0, 0, NULL},
    {"deepseek-r1-qwen", specdec__text_word_bytes_llama3, 1, 0, 0, NULL},
    {"megrez", specdec__text_word_bytes_llama3, 1, 0, 0, NULL},
    {"gpt-4o", specdec__text_word_bytes_gpt4o, 3, 0, 0, NULL},
    {"llama4", specdec__text_word_bytes_gpt4o, 3, 0, 0, NULL},
    {"kanana2", specdec__text_word_bytes_gpt4o, 3, 0, 0, NULL},
    {"tekken", specdec__text_word_bytes_tekken, 1, 1, 1, NULL},
    {"smollm", specdec__text_word_bytes_gpt2_digits, 1, 0, 0, NULL},
    {"starcoder", specdec__text_word_bytes_gpt2_digits, 1, 0, 0, NULL},
    {"exaone", specdec__text_word_bytes_gpt2_digits, 1, 0, 0, NULL},
    {"minerva-7b", specdec__text_word_bytes_gpt2_digits, 1, 0, 0, NULL},
    {"refact", specdec__text_word_bytes_gpt2_digits, 1, 0, 0, NULL},
    {"command-r", specdec__text_word_bytes_gpt2_digits, 1, 0, 0, NULL},
    {"codeshell", specdec__text_word_bytes_gpt2_digits, 1, 0, 0, NULL},
    {"mellum2", specdec__text_word_bytes_gpt2_digits, 1, 0, 0, NULL},
    {"phi-2", specdec__text_word_bytes_gpt2, 0, 0, 0, NULL},
    {"mpt", specdec__text_word_bytes_gpt2, 0, 0, 0, NULL},
    {"jais", specdec__text_word_bytes_gpt2, 0, 0, 0, NULL},
    {"mellum", specdec__text_word_bytes_gpt2, 0, 0, 0, NULL},
    {"gigachat", specdec__text_word_bytes_gpt2, 0, 0, 0, NULL},
    {"granite-docling", specdec__text_word_bytes_gpt2, 0, 0, 0, NULL},
    {"lfm2", specdec__text_word_bytes_llama3, 3, 1, 1, NULL},
    {"falcon-h1", specdec__text_word_bytes_llama3, 3, 1, 1, NULL},
    {"hunyuan", specdec__text_word_bytes_llama3, 1, 0, 0, NULL},
    {"solar-open", specdec__text_word_bytes_llama3, 1, 0, 0, NULL},
    {"stablelm2", specdec__text_word_bytes_llama3, 1, 0, 0, NULL},
    {"grok-2", specdec__text_word_bytes_llama3, 1, 0, 0, NULL},
    {"kormo", specdec__text_word_bytes_llama3, 1, 0, 0, NULL},
    {"bailingmoe", specdec__text_word_bytes_llama3, 1, 0, 0, NULL},
    {"bailingmoe2", specdec__text_word_bytes_llama3, 1, 0, 0, NULL},
    {"llada-moe", specdec__text_word_bytes_llama3, 1, 0, 0, NULL},
    {"qwen35", specdec__text_word_bytes_qwen35, 1, 0, 0, NULL},
    {"seed-coder", specdec__text_word_bytes_seed, 1, 0, 0, NULL},
    {"minimax-m2", specdec__text_word_bytes_gpt4o, 3, 0, 0, NULL},
    {"talkie", specdec__text_word_bytes_gpt4o, 3, 0, 0, NULL},
    {"kimi-k2", specdec__text_word_bytes_kimi, 3, 0, 0, NULL},
    {"gemma4", specdec__text_word_bytes_gemma4, 0, SPECDEC__WORDS_LINE_ENDS, 2, NULL},
    {"deepseek-llm", NULL, 0, 0, 0, specdec__text_deepseek_llm},
    {"deepseek-coder", NULL, 0, 0, 0, specdec__text_deepseek_coder},
    {"deepseek-v3", NULL, 0, 0, 0, specdec__text_deepseek_v3},
    {"hunyuan-dense", NULL, 0, 0, 0, specdec__text_deepseek_v3},
    {"joyai-llm", NULL, 0, 0, 0, specdec__text_deepseek_v3},
    {"hy_v4", NULL, 0, 0, 0, specdec__text_deepseek_v3},
    {"falcon", NULL, 0, 0, 0, specdec__text_falcon},
    {"minicpm5", NULL, 0, 1, 0, specdec__text_minicpm5},
    {"youtu", NULL, 0, 1, 0, specdec__text_youtu},
    {"tiny_aya", NULL, 0, 0, 0, specdec__text_tiny_aya},
    {"cohere2moe", NULL, 0, 0, 0, specdec__text_tiny_aya},
    {"superbpe", NULL, 0, 0, 0, specdec__text_superbpe},
    {"poro-chat", NULL, 0, 0, 0, specdec__text_poro},
    {"bloom", NULL, 0, 0, 0, specdec__text_poro},
    {"gpt3-finnish", NULL, 0, 0, 0, specdec__text_poro},
    {"viking", NULL, 0, 0, 0, specdec__text_viking}};

/* Pre-tokenizers of known vocabularies, for files without tokenizer.ggml.pre. Fine-tunes add and rename tokens that are
   never merged; so a vocabulary is recognised by its number of merges and by a token that training its tokenizer gave
   (or, where no file was at hand, by a special token). Some of these pre-tokenizers are not supported: files are then
   refused with their name. */
static const struct {
    uint32_t merges, id;      /* number of merges; id of the token */
    const char *text, *words; /* text of the token; name of the pre-tokenizer */
} specdec__known_vocabularies[] = {{280147, 100000, "IClient", "llama-bpe"},
                                   {151387, 10000, "\xc4\xa0rise", "qwen2"},
                                   {50000, 50255, "\xc4\xa0gazed", "gpt-2"},
                                   {48900, 10000, "\xc4\xa0surrounded", "smollm"},
                                   {48872, 30000, "(\"+", "starcoder"},
                                   {48891, 30000, "tracing", "refact"},
                                   {50009, 0, "<|endoftext|>", "olmo"},
                                   {269443, 3, "[INST]", "tekken"},
                                   {100000, 100257, "<|endoftext|>", "dbrx"},
                                   {199742, 199999, "<|endoftext|>", "gpt-4o"},
                                   {446189, 199998, "<|startoftext|>", "gpt-4o"},
                                   {318088, 151329, "<|endoftext|>", "glm4"},
                                   {31757, 10000, "IGN", "deepseek-coder"}};

/* Returns the number of bytes of the first word of a text (length > 0) by a pre-tokenizer. */
static size_t specdec__pre_tokenizer_first_word(const specdec__pre_tokenizer *words, const unsigned char *text,
                                                size_t length)
{
    return words->stages ? specdec__text_word_bytes_by_stages(words->stages, text, length)
                         : words->first_word(text, length, words->digits);
}

/* Returns the row of specdec__pre_tokenizers with a name; NULL: no row has it. */
static const specdec__pre_tokenizer *specdec__pre_tokenizer_find(specdec__bytes name)
{
    size_t i;

    for (i = 0; i < SPECDEC__COUNT(specdec__pre_tokenizers); i++)
        if (specdec__bytes_equal_string(name, specdec__pre_tokenizers[i].name))
            return &specdec__pre_tokenizers[i];
    return NULL;
}

/* Returns the known pre-tokenizer's name that is most similar to a name, for an error text, if at most a third of its
   letters differ; "": no name is similar. */
static SPECDEC__UNUSED const char *specdec__pre_tokenizer_similar_name(specdec__bytes name)
{
    size_t i, least = specdec__name_max_distance(name);
    const char *nearest = "";

    for (i = 0; i < SPECDEC__COUNT(specdec__pre_tokenizers); i++)
        specdec__name_update_nearest(name, specdec__pre_tokenizers[i].name, &least, &nearest);
    return nearest;
}

SPECDEC__FOR_SPEED
