/* =====================================================================================================================
 * >>text/words: pre-tokenizers: how text is cut into words before BPE merges.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../model/gguf.h"
#include "unicode.h"

SPECDEC__FOR_SIZE

/* Returns the offset behind the run of characters of a kind (SPECDEC__TEXT_LETTER ...) that begins at offset `at` of a
   text, at most `limit` characters. */
static size_t specdec__text_end_of_kind_run(const unsigned char *text, size_t length, size_t at, int kind, size_t limit)
{
    while (limit--) {
        specdec__text_character c = specdec__text_character_at(text, length, at);

        if (c.kind != kind)
            break;
        at += (size_t)c.size;
    }
    return at;
}

/* Returns the number of bytes of a contraction ('s 't 'm 'd 're 've 'll) at the beginning of a text; 0: none. fold:
   also in upper case. */
static size_t specdec__text_contraction_bytes(const unsigned char *text, size_t length, int fold)
{
    int a = length > 1 && text[0] == '\'' ? text[1] : 0, b = length > 2 ? text[2] : 0;

    if (fold) {
        a |= 32;
        b |= 32;
    }
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* Returns the number of bytes of \s+(?!\S)|\s+ at the beginning of a text: white space, but its last character belongs
   to a following word. */
static size_t specdec__text_white_space_bytes(const unsigned char *text, size_t length)
{
    size_t at = 0, last = 0;

    for (;;) {
        specdec__text_character c = specdec__text_character_at(text, length, at);

        if (c.kind != SPECDEC__TEXT_SPACE)
            return at == length || !last ? at : last;
        last = at;
        at += (size_t)c.size;
    }
}

/* A pre-tokenizer of one regular expression: returns the bytes of the first word of a text (length > 0). digits: most
   digits in one word. */
typedef size_t specdec__text_word_function(const unsigned char *text, size_t length, size_t digits);

/* Returns the number of bytes of the first word of a text by
   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ (GPT-2). */
static size_t specdec__text_word_bytes_gpt2(const unsigned char *text, size_t length, size_t digits)
{
    size_t contraction = specdec__text_contraction_bytes(text, length, 0), from = text[0] == ' ';
    specdec__text_character c;

    (void)digits;
    if (contraction)
        return contraction;
    c = specdec__text_character_at(text, length, from);
    if (c.kind == SPECDEC__TEXT_SPACE || c.kind == SPECDEC__TEXT_END)
        return specdec__text_white_space_bytes(text, length);
    return specdec__text_end_of_kind_run(text, length, from, c.kind, SIZE_MAX);
}

/* Returns the number of bytes of the first word of a text by GPT-2's expression, after a first split where every digit
   is a piece (StarCoder, SmolLM). */
static size_t specdec__text_word_bytes_gpt2_digits(const unsigned char *text, size_t length, size_t digits)
{
    size_t at = specdec__text_end_of_kind_run(text, length, 0, SPECDEC__TEXT_NUMBER, 1), end;

    if (at)
        return at;
    end = specdec__text_word_bytes_gpt2(text, length, digits);
    while (at < length) {
        specdec__text_character c = specdec__text_character_at(text, length, at);

        if (c.kind == SPECDEC__TEXT_NUMBER)
            return specdec__text_word_bytes_gpt2(text, at, digits);
        if (at >= end && c.kind != SPECDEC__TEXT_SPACE)
            break;
        at += (size_t)c.size;
    }
    return end;
}

/* Returns the number of bytes of \s*[\r\n]+|\s+(?!\S)|\s+ at the beginning of a text; 0: no match. */
static size_t specdec__text_word_bytes_of_white_space(const unsigned char *text, size_t length)
{
    size_t end;

    for (end = specdec__text_end_of_kind_run(text, length, 0, SPECDEC__TEXT_SPACE, SIZE_MAX); end; end--)
        if (text[end - 1] == '\r' || text[end - 1] == '\n')
            return end;
    return specdec__text_white_space_bytes(text, length);
}

/* Returns the number of bytes of \p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ at the beginning of
   a text that no letters begin. slashes = 1: [\r\n/]* instead of [\r\n]*. */
static size_t specdec__text_word_bytes_without_letters(const unsigned char *text, size_t length, size_t digits,
                                                       int slashes)
{
    size_t from = text[0] == ' ', end = specdec__text_end_of_kind_run(text, length, 0, SPECDEC__TEXT_NUMBER, digits);

    if (end)
        return end;
    end = specdec__text_end_of_kind_run(text, length, from, SPECDEC__TEXT_OTHER, SIZE_MAX);
    if (end > from) {
        while (end < length && (text[end] == '\r' || text[end] == '\n' || (slashes && text[end] == '/')))
            end++;
        return end;
    }
    return specdec__text_word_bytes_of_white_space(text, length);
}

/* Returns the number of bytes of [^\r\n\p{L}\p{N}]? at the beginning of a text: a character that may precede the
   letters of a word. */
static size_t specdec__text_letter_prefix_bytes(specdec__text_character c)
{
    return c.kind == SPECDEC__TEXT_LETTER || c.kind == SPECDEC__TEXT_NUMBER || c.code == '\r' || c.code == '\n'
               ? 0
               : (size_t)c.size;
}

/* Returns the number of bytes of the first word of a text by (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+| and
   the alternatives of specdec__text_word_bytes_without_letters (Llama 3: digits 3, Qwen 2: digits 1). */
static size_t specdec__text_word_bytes_llama3(const unsigned char *text, size_t length, size_t digits)
{
    size_t contraction = specdec__text_contraction_bytes(text, length, 1);
    size_t from = specdec__text_letter_prefix_bytes(specdec__text_character_at(text, length, 0));
    size_t end = specdec__text_end_of_kind_run(text, length, from, SPECDEC__TEXT_LETTER, SIZE_MAX);

    if (contraction)
        return contraction;
    return end > from ? end : specdec__text_word_bytes_without_letters(text, length, digits, 0);
}

/* A range of code points, both ends included; the ranges of a class are in order. */
typedef struct specdec__text_range {
    uint32_t first, last; /* first and last code point of the range */
} specdec__text_range;

/* Does a code point lie in one of `count` ranges? */
static int specdec__text_in_ranges(const specdec__text_range *ranges, size_t count, uint32_t code)
{
    size_t i;

    for (i = 0; i < count && code >= ranges[i].first; i++)
        if (code <= ranges[i].last)
            return 1;
    return 0;
}

/* Is a character in \p{Han}? */
static int specdec__text_is_han(const specdec__text_character *c)
{
    static const specdec__text_range han[] = {{0x2E80, 0x2E99}, {0x2E9B, 0x2EF3}, {0x2F00, 0x2FD5}, {0x3005, 0x3005},
        {0x3007, 0x3007}, {0x3021, 0x3029}, {0x3038, 0x303B}, {0x3400, 0x4DBF}, {0x4E00, 0x9FFF}, {0xF900, 0xFA6D},
        {0xFA70, 0xFAD9}, {0x16FE2, 0x16FE3}, {0x16FF0, 0x16FF1}, {0x20000, 0x2A6DF}, {0x2A700, 0x2EE5D},
        {0x2F800, 0x2FA1D}, {0x30000, 0x3347F}};

    return specdec__text_in_ranges(han, SPECDEC__COUNT(han), c->code);
}
/* Has a character one of the properties in `properties` (bits SPECDEC__TEXT_HEAD and _TAIL)? han = 1: characters of
   \p{Han} have none. */
static int specdec__text_has_property(const specdec__text_character *c, int properties, int han)
{
    return c->properties & properties && !(han && specdec__text_is_han(c));
}

/* Returns the offset behind the longest HEAD*TAIL+ (see SPECDEC__TEXT_HEAD: upper-case letters, then lower-case ones)
   that begins at offset `at` of a text; `at` itself: no match. */
static size_t specdec__text_cased_letters_end(const unsigned char *text, size_t length, size_t at, int han)
{
    specdec__text_character c = specdec__text_character_at(text, length, at);
    size_t end = at;

    for (; specdec__text_has_property(&c, SPECDEC__TEXT_HEAD, han); c = specdec__text_character_at(text, length, at)) {
        at += (size_t)c.size;
        if (c.properties & SPECDEC__TEXT_TAIL)
            end = at; /* as a tail of one character, unless a longer match follows */
    }
    for (; specdec__text_has_property(&c, SPECDEC__TEXT_TAIL, han); c = specdec__text_character_at(text, length, at))
        end = at += (size_t)c.size;
    return end;
}

/* Returns the number of bytes of [^\r\n\p{L}\p{N}]?HEAD*TAIL+|[^\r\n\p{L}\p{N}]?HEAD+TAIL* at the beginning of a text;
   0: no match. The second alternative only matches upper case. */
static size_t specdec__text_cased_word_bytes(const unsigned char *text, size_t length, int han)
{
    specdec__text_character c = specdec__text_character_at(text, length, 0);
    size_t from = specdec__text_letter_prefix_bytes(c), end = specdec__text_cased_letters_end(text, length, from, han);
    int mark = from && c.properties & SPECDEC__TEXT_MARK; /* a mark may be a word by itself */

    if (end == from && !mark)
        for (c = specdec__text_character_at(text, length, end); specdec__text_has_property(&c, SPECDEC__TEXT_HEAD, han);
             c = specdec__text_character_at(text, length, end))
            end += (size_t)c.size;
    return end > from || mark ? end : 0;
}

/* Returns the number of bytes of the first word of a text: words of cased letters (specdec__text_cased_word_bytes), and
   specdec__text_word_bytes_without_letters with slashes (Tekken: digits 1). */
static size_t specdec__text_word_bytes_tekken(const unsigned char *text, size_t length, size_t digits)
{
    size_t end = specdec__text_cased_word_bytes(text, length, 0);

    return end ? end : specdec__text_word_bytes_without_letters(text, length, digits, 1);
}

/* Returns the number of bytes of the first word of a text: words of cased letters (specdec__text_cased_word_bytes) with
   (?i:'s|'t|'re|'ve|'m|'ll|'d) behind them, and specdec__text_word_bytes_without_letters (GPT-4o: digits 3). */
static size_t specdec__text_word_bytes_gpt4o(const unsigned char *text, size_t length, size_t digits)
{
    size_t end = specdec__text_cased_word_bytes(text, length, 0);

    return end ? end + specdec__text_contraction_bytes(text + end, length - end, 1)
               : specdec__text_word_bytes_without_letters(text, length, digits, 1);
}

SPECDEC__FOR_SPEED
