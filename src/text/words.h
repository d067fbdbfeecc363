/* =====================================================================================================================
 * >>text/words: pre-tokenizers: how text is cut into words before BPE merges.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../model/gguf.h"
#include "unicode.h"

SPECDEC__FOR_SIZE

/* Where a run of at most limit characters of one kind ends that begins at a place. */
static size_t specdec__text_skip(const unsigned char *text, size_t length, size_t at, int kind, size_t limit)
{
    while (limit--) {
        specdec__text_character c = specdec__text_character_at(text, length, at);

        if (c.kind != kind)
            break;
        at += (size_t)c.size;
    }
    return at;
}

/* 's 't 'm 'd 're 've 'll at the beginning of a text: its bytes, 0 when there is none. fold: upper case, too. */
static size_t specdec__text_contraction(const unsigned char *text, size_t length, int fold)
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

/* \s+(?!\S)|\s+ at the beginning of a text: white space that leaves its last character to what follows. */
static size_t specdec__text_white(const unsigned char *text, size_t length)
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

/* The ways to cut text into words: functions that give the bytes of the first word of a text (length > 0). digits: of
   a number in one word at most. */
typedef size_t specdec__text_word_function(const unsigned char *text, size_t length, size_t digits);

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ (GPT-2). */
static size_t specdec__text_word_gpt2(const unsigned char *text, size_t length, size_t digits)
{
    size_t contraction = specdec__text_contraction(text, length, 0), from = text[0] == ' ';
    specdec__text_character c;

    (void)digits;
    if (contraction)
        return contraction;
    c = specdec__text_character_at(text, length, from);
    if (c.kind == SPECDEC__TEXT_SPACE || c.kind == SPECDEC__TEXT_END)
        return specdec__text_white(text, length);
    return specdec__text_skip(text, length, from, c.kind, SIZE_MAX);
}

/* The same where every digit is a text of its own, as are the parts between them (StarCoder, SmolLM). */
static size_t specdec__text_word_gpt2_digits(const unsigned char *text, size_t length, size_t digits)
{
    size_t at = specdec__text_skip(text, length, 0, SPECDEC__TEXT_NUMBER, 1), end;

    if (at)
        return at;
    end = specdec__text_word_gpt2(text, length, digits);
    while (at < length) {
        specdec__text_character c = specdec__text_character_at(text, length, at);

        if (c.kind == SPECDEC__TEXT_NUMBER)
            return specdec__text_word_gpt2(text, at, digits);
        if (at >= end && c.kind != SPECDEC__TEXT_SPACE)
            break;
        at += (size_t)c.size;
    }
    return end;
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ at the beginning of a text: its bytes, 0 when there is none. */
static size_t specdec__text_word_spaces(const unsigned char *text, size_t length)
{
    size_t end;

    for (end = specdec__text_skip(text, length, 0, SPECDEC__TEXT_SPACE, SIZE_MAX); end; end--)
        if (text[end - 1] == '\r' || text[end - 1] == '\n')
            return end;
    return specdec__text_white(text, length);
}

/* \p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ at the beginning of a text: what is left when no
   letters begin it. slashes: [\r\n/]* */
static size_t specdec__text_word_rest(const unsigned char *text, size_t length, size_t digits, int slashes)
{
    size_t from = text[0] == ' ', end = specdec__text_skip(text, length, 0, SPECDEC__TEXT_NUMBER, digits);

    if (end)
        return end;
    end = specdec__text_skip(text, length, from, SPECDEC__TEXT_OTHER, SIZE_MAX);
    if (end > from) {
        while (end < length && (text[end] == '\r' || text[end] == '\n' || (slashes && text[end] == '/')))
            end++;
        return end;
    }
    return specdec__text_word_spaces(text, length);
}

/* [^\r\n\p{L}\p{N}]? at the beginning of a text: what letters may have before them, in bytes. */
static size_t specdec__text_before_letters(specdec__text_character c)
{
    return c.kind == SPECDEC__TEXT_LETTER || c.kind == SPECDEC__TEXT_NUMBER || c.code == '\r' || c.code == '\n'
               ? 0
               : (size_t)c.size;
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+| and the rest (Llama 3: digits 3, Qwen 2: digits 1). */
static size_t specdec__text_word_modern(const unsigned char *text, size_t length, size_t digits)
{
    size_t contraction = specdec__text_contraction(text, length, 1);
    size_t from = specdec__text_before_letters(specdec__text_character_at(text, length, 0));
    size_t end = specdec__text_skip(text, length, from, SPECDEC__TEXT_LETTER, SIZE_MAX);

    if (contraction)
        return contraction;
    return end > from ? end : specdec__text_word_rest(text, length, digits, 0);
}

/* First and last code points of the ranges of a class, in order. */
typedef struct specdec__text_range {
    uint32_t first, last;
} specdec__text_range;

/* Does a code point lie in one of count ranges? */
static int specdec__text_in(const specdec__text_range *ranges, size_t count, uint32_t code)
{
    size_t i;

    for (i = 0; i < count && code >= ranges[i].first; i++)
        if (code <= ranges[i].last)
            return 1;
    return 0;
}

/* \p{Han} */
static int specdec__text_is_han(const specdec__text_character *c)
{
    static const specdec__text_range han[] = {{0x2E80, 0x2E99}, {0x2E9B, 0x2EF3}, {0x2F00, 0x2FD5}, {0x3005, 0x3005},
        {0x3007, 0x3007}, {0x3021, 0x3029}, {0x3038, 0x303B}, {0x3400, 0x4DBF}, {0x4E00, 0x9FFF}, {0xF900, 0xFA6D},
        {0xFA70, 0xFAD9}, {0x16FE2, 0x16FE3}, {0x16FF0, 0x16FF1}, {0x20000, 0x2A6DF}, {0x2A700, 0x2EE5D},
        {0x2F800, 0x2FA1D}, {0x30000, 0x3347F}};

    return specdec__text_in(han, SPECDEC__COUNT(han), c->code);
}
/* May a character begin a word of cased letters, or go on with it? han: not if it is \p{Han}. */
static int specdec__text_can(const specdec__text_character *c, int facts, int han)
{
    return c->facts & facts && !(han && specdec__text_is_han(c));
}

/* Where HEAD* TAIL+ ends that begins at a place; the place itself when there is none. */
static size_t specdec__text_head_and_tail(const unsigned char *text, size_t length, size_t at, int han)
{
    specdec__text_character c = specdec__text_character_at(text, length, at);
    size_t end = at;

    for (; specdec__text_can(&c, SPECDEC__TEXT_HEAD, han); c = specdec__text_character_at(text, length, at)) {
        at += (size_t)c.size;
        if (c.facts & SPECDEC__TEXT_TAIL)
            end = at; /* as a tail of one character, if no better one follows */
    }
    for (; specdec__text_can(&c, SPECDEC__TEXT_TAIL, han); c = specdec__text_character_at(text, length, at))
        end = at += (size_t)c.size;
    return end;
}

/* [^\r\n\p{L}\p{N}]?HEAD*TAIL+|[^\r\n\p{L}\p{N}]?HEAD+TAIL* at the beginning of a text: its bytes, 0 when there is
   none. The second one only ever meets upper case. */
static size_t specdec__text_cased(const unsigned char *text, size_t length, int han)
{
    specdec__text_character c = specdec__text_character_at(text, length, 0);
    size_t from = specdec__text_before_letters(c), end = specdec__text_head_and_tail(text, length, from, han);
    int mark = from && c.facts & SPECDEC__TEXT_MARK; /* it can be a word by itself */

    if (end == from && !mark)
        for (c = specdec__text_character_at(text, length, end); specdec__text_can(&c, SPECDEC__TEXT_HEAD, han);
             c = specdec__text_character_at(text, length, end))
            end += (size_t)c.size;
    return end > from || mark ? end : 0;
}

/* These letters, and the rest with slashes (Tekken: digits 1). */
static size_t specdec__text_word_cased(const unsigned char *text, size_t length, size_t digits)
{
    size_t end = specdec__text_cased(text, length, 0);

    return end ? end : specdec__text_word_rest(text, length, digits, 1);
}

/* The same where (?i:'s|'t|'re|'ve|'m|'ll|'d) behind letters is a part of their word (GPT-4o: digits 3). */
static size_t specdec__text_word_contracted(const unsigned char *text, size_t length, size_t digits)
{
    size_t end = specdec__text_cased(text, length, 0);

    return end ? end + specdec__text_contraction(text + end, length - end, 1)
               : specdec__text_word_rest(text, length, digits, 1);
}

SPECDEC__FOR_SPEED
