/* =====================================================================================================================
 * >>text/template_method: attributes and items of values, and the methods of strings, lists and dicts, as Python has
 *     them.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "template.h"
#include "template_write.h"

SPECDEC__FOR_SIZE

/* Returns the argument of a call at position `index` or with a name; NULL: it was not given. */
static const specdec__template_value *specdec__template_get_argument(const specdec__template_call *call, int index,
                                                                     const char *name)
{
    int i;

    if (index >= 0 && index < call->positional_count)
        return &call->positional[index];
    for (i = 0; name && i < call->named_count; i++)
        if (call->named[2 * i].size == strlen(name) &&
            memcmp(call->named[2 * i].as.data, name, call->named[2 * i].size) == 0)
            return &call->named[2 * i + 1];
    return NULL;
}

/* Returns 1 if an argument of a call is true, else 0. otherwise: the result for an absent argument. */
static int specdec__template_flag_argument(const specdec__template_call *call, int index, const char *name,
                                           int otherwise)
{
    const specdec__template_value *value = specdec__template_get_argument(call, index, name);

    return value ? specdec__template_is_true(value) : otherwise;
}

/* Returns the integer of an argument of a call. otherwise: the result for an absent argument. Another type is an
   error. */
static int64_t specdec__template_integer_argument(specdec__template *t, const specdec__template_call *call, int index,
                                                  const char *name, int64_t otherwise)
{
    const specdec__template_value *value = specdec__template_get_argument(call, index, name);

    if (!value || value->kind == SPECDEC__TEMPLATE_NONE)
        return otherwise;
    if (value->kind != SPECDEC__TEMPLATE_INTEGER && value->kind != SPECDEC__TEMPLATE_BOOL)
        specdec__template_fail(t, "an argument is no integer");
    return value->as.integer;
}

/* Returns the string of an argument of a call. otherwise: the result for an absent argument; NULL: a string of size
   0. */
static specdec__template_value specdec__template_string_argument(specdec__template *t,
                                                                 const specdec__template_call *call, int index,
                                                                 const char *name, const char *otherwise)
{
    const specdec__template_value *value = specdec__template_get_argument(call, index, name);

    if (!value || (!otherwise && value->kind == SPECDEC__TEMPLATE_NONE))
        return otherwise ? specdec__template_string_value(otherwise) : specdec__template_none_value();
    if (value->kind != SPECDEC__TEMPLATE_STRING)
        return specdec__template_fail(t, "an argument is no string");
    return *value;
}

/* Takes memory for a list of at most `most` values, which the caller fills in. NULL: no memory is left. */
static specdec__template_value *specdec__template_new_list(specdec__template *t, size_t most)
{
    return (specdec__template_value *)specdec__template_take_memory(t, most, sizeof(specdec__template_value));
}

/* Returns `count` items, which the caller has stored, as a list. */
static specdec__template_value specdec__template_list_value(const specdec__template_value *items, size_t count)
{
    return specdec__template_sized_value(SPECDEC__TEMPLATE_LIST, items, items ? count : 0);
}

/* Returns the items over which a loop over a value runs, as a list; a value without items is an error. */
static specdec__template_value specdec__template_items_to_iterate(specdec__template *t,
                                                                  const specdec__template_value *value)
{
    specdec__template_value *out;
    size_t at, next, count = 0;

    if (specdec__template_is_list_like(value))
        return specdec__template_list_value(specdec__template_list_items(value), value->size);
    if (value->kind == SPECDEC__TEMPLATE_UNDEFINED)
        return specdec__template_list_value(NULL, 0);
    if (value->kind == SPECDEC__TEMPLATE_DICT) {
        out = specdec__template_new_list(t, value->size);
        for (; out && count < value->size; count++)
            out[count] = specdec__template_list_items(value)[2 * count];
        return specdec__template_list_value(out, count);
    }
    if (value->kind != SPECDEC__TEMPLATE_STRING)
        return specdec__template_fail(t, "it goes through what is no list");
    out = specdec__template_new_list(t, specdec__template_count_characters(value));
    for (at = 0; out && at < value->size; at = next) {
        next = at + specdec__template_character_bytes(specdec__template_string_bytes(value), value->size, at);
        out[count++] = specdec__template_substring(value, at, next);
    }
    return specdec__template_list_value(out, count);
}

/* ---- Strings. */

/* Returns the upper case of a code point, for scripts in use whose cases pair one to one; other code points stay. */
static uint32_t specdec__template_to_upper(uint32_t c)
{
    if (c < 128)
        return c >= 'a' && c <= 'z' ? c - 32 : c;
    if ((c >= 0xe0 && c <= 0xfe && c != 0xf7) || (c >= 0x3b1 && c <= 0x3c9 && c != 0x3c2) || (c >= 0x430 && c <= 0x44f))
        return c - 32;
    if (c == 0xff)
        return 0x178;
    if (c == 0x3c2)
        return 0x3a3;
    if (c >= 0x450 && c <= 0x45f)
        return c - 80;
    if ((c >= 0x100 && c <= 0x137 && c != 0x131) || (c >= 0x14a && c <= 0x177) || (c >= 0x460 && c <= 0x481) ||
        (c >= 0x48a && c <= 0x4bf) || (c >= 0x4d0 && c <= 0x52f) || (c >= 0x1e00 && c <= 0x1e95) ||
        (c >= 0x1ea0 && c <= 0x1eff))
        return c & ~1u;
    if ((c >= 0x139 && c <= 0x148) || (c >= 0x179 && c <= 0x17e))
        return c % 2 ? c : c - 1;
    if (c >= 0x561 && c <= 0x586)
        return c - 48;
    return c == 0x131 ? 'I' : c == 0x3ac ? 0x386 : c >= 0x3ad && c <= 0x3af ? c - 37 : c == 0x3cc ? 0x38c : c;
}

/* Returns the lower case of a code point, for scripts in use whose cases pair one to one; other code points stay. */
static uint32_t specdec__template_to_lower(uint32_t c)
{
    if (c < 128)
        return c >= 'A' && c <= 'Z' ? c + 32 : c;
    if ((c >= 0xc0 && c <= 0xde && c != 0xd7) || (c >= 0x391 && c <= 0x3a9 && c != 0x3a2) || (c >= 0x410 && c <= 0x42f))
        return c + 32;
    if (c == 0x178)
        return 0xff;
    if (c >= 0x400 && c <= 0x40f)
        return c + 80;
    if (c >= 0x531 && c <= 0x556)
        return c + 48;
    if (c == 0x386 || c == 0x38c)
        return c == 0x386 ? 0x3ac : 0x3cc;
    if (c >= 0x388 && c <= 0x38a)
        return c + 37;
    if (specdec__template_to_upper(c + 1) == c && specdec__template_to_upper(c) == c)
        return c + 1;
    return c;
}

/* Has a code point upper or lower case? */
static int specdec__template_is_letter(uint32_t c)
{
    const int kind = specdec__text_class_properties[specdec__text_character_class(c)].kind;

    return kind == SPECDEC__TEXT_LETTER;
}

/* Ways to convert the case of a string's letters. */
enum {
    SPECDEC__TEMPLATE_TO_LOWER, SPECDEC__TEMPLATE_TO_UPPER, SPECDEC__TEMPLATE_TO_CAPITAL, SPECDEC__TEMPLATE_TO_TITLE,
    SPECDEC__TEMPLATE_TO_WORDS, /* the filter `title` */
    SPECDEC__TEMPLATE_TO_SWAPPED
};

/* Returns a string converted to another case. to: SPECDEC__TEMPLATE_TO_LOWER to _SWAPPED. */
static specdec__template_value specdec__template_change_case(specdec__template *t, const specdec__template_value *self,
                                                             int to)
{
    const char *text = specdec__template_string_bytes(self);
    const size_t from = t->used;
    specdec__template_value cased_string;
    size_t at, size;
    int first = 1;
    unsigned char bytes[4];

    for (at = 0; at < self->size && !t->failed; at += size) {
        const uint32_t code = specdec__template_code_point(text, self->size, at);
        const size_t place = specdec__template_memory_offset(t, text + at);
        const int up = to == SPECDEC__TEMPLATE_TO_UPPER || (first && to >= SPECDEC__TEMPLATE_TO_CAPITAL);
        uint32_t cased = up ? specdec__template_to_upper(code) : specdec__template_to_lower(code);

        size = specdec__template_character_bytes(text, self->size, at);
        if (to == SPECDEC__TEMPLATE_TO_SWAPPED)
            cased = specdec__template_to_upper(code) != code ? specdec__template_to_upper(code)
                                                          : specdec__template_to_lower(code);
        if (code == 0xdf && up)
            specdec__template_append_marked(t, to == SPECDEC__TEMPLATE_TO_UPPER ? "SS" : "Ss", 2,
                                            place != SIZE_MAX && specdec__template_get_bit(t->marks, place));
        else if (cased == code)
            specdec__template_append_bytes(t, text + at, size);
        else
            specdec__template_append_marked(t, bytes, specdec__json_encode_utf8(cased, bytes),
                                            place != SIZE_MAX && specdec__template_get_bit(t->marks, place));
        first = to == SPECDEC__TEMPLATE_TO_TITLE ? !specdec__template_is_letter(code)
                : to == SPECDEC__TEMPLATE_TO_WORDS
                    ? specdec__template_is_space(code) || (code < 128 && code && strchr("-({[<", (int)code))
                    : 0;
    }
    cased_string = specdec__template_finish_string(t, from);
    cased_string.safe = self->safe;
    return cased_string;
}

/* Is the character of `size` bytes at byte offset `at` of a string one to strip: in chars, or (chars NULL) white
   space? */
static int specdec__template_is_stripped(const specdec__template_value *self, size_t at, size_t size,
                                         const specdec__template_value *chars)
{
    const char *text = specdec__template_string_bytes(self) + at;
    specdec__template_value character = specdec__template_sized_value(SPECDEC__TEMPLATE_STRING, text, size);

    if (chars->kind == SPECDEC__TEMPLATE_STRING)
        return specdec__template_find_string(chars, 0, &character) <= chars->size;
    return specdec__template_is_space(specdec__template_code_point(text, size, 0));
}

/* Returns a string without the characters to strip at its ends. ends: bit 1: at the left end, bit 2: at the right end;
   chars: see specdec__template_is_stripped. */
static specdec__template_value specdec__template_strip_string(specdec__template *t, const specdec__template_value *self,
                                                              const specdec__template_value *chars, int ends)
{
    const char *text = specdec__template_string_bytes(self);
    size_t from = 0, to = self->size, at;

    while (ends & 1 && from < to) {
        const size_t size = specdec__template_character_bytes(text, self->size, from);

        if (!specdec__template_is_stripped(self, from, size, chars))
            break;
        from += size;
    }
    while (ends & 2 && from < to) {
        for (at = to - 1; at > from && to - at < 4 && ((unsigned char)text[at] & 0xc0) == 0x80; at--)
            ;
        if (at + specdec__template_character_bytes(text, to, at) != to)
            at = to - 1;
        if (!specdec__template_is_stripped(self, at, to - at, chars))
            break;
        to = at;
    }
    specdec__template_count_work(t, self->size - (to - from));
    return specdec__template_substring(self, from, to);
}

/* Methods strip(chars) (ends = 3), lstrip (1), rstrip (2) of a string. */
static specdec__template_value specdec__template_method_strip(specdec__template *t, const specdec__template_value *self,
                                                              const specdec__template_call *call, int ends)
{
    const specdec__template_value chars = specdec__template_string_argument(t, call, 0, "chars", NULL);

    return specdec__template_strip_string(t, self, &chars, ends);
}

/* Returns a string in which `by` replaces the first `count` occurrences (-1: all) of the string `old`. */
static specdec__template_value specdec__template_replace_string(specdec__template *t,
                                                                const specdec__template_value *self,
                                                                const specdec__template_value *old,
                                                                const specdec__template_value *by, int64_t count)
{
    const size_t from = t->used;
    size_t at = 0, found, size;

    for (; count != 0 && !t->failed; count--) {
        found = specdec__template_find_string(self, at, old);
        if (found > self->size)
            break;
        specdec__template_append_bytes(t, specdec__template_string_bytes(self) + at, found - at);
        specdec__template_append_bytes(t, by->as.data, by->size);
        at = found + old->size;
        if (!old->size) { /* an empty string occurs between all characters */
            if (found == self->size)
                break;
            size = specdec__template_character_bytes(specdec__template_string_bytes(self), self->size, found);
            specdec__template_append_bytes(t, specdec__template_string_bytes(self) + found, size);
            at = found + size;
        }
    }
    if (at < self->size)
        specdec__template_append_bytes(t, specdec__template_string_bytes(self) + at, self->size - at);
    specdec__template_count_work(t, self->size);
    return specdec__template_finish_string(t, from);
}

/* Method replace(old, new, count) of a string. */
static specdec__template_value specdec__template_method_replace(specdec__template *t,
                                                                const specdec__template_value *self,
                                                                const specdec__template_call *call, int unused)
{
    const specdec__template_value old = specdec__template_string_argument(t, call, 0, "old", "");
    const specdec__template_value by = specdec__template_string_argument(t, call, 1, "new", "");

    (void)unused;
    if (call->positional_count < 2 && call->named_count == 0)
        return specdec__template_fail(t, "replace needs two strings");
    return specdec__template_replace_string(t, self, &old, &by,
                                            specdec__template_integer_argument(t, call, 2, "count", -1));
}

/* Returns the byte offset of the last occurrence of string `what` in string `in` that ends at or before `to`; in->size
   + 1: none. */
static size_t specdec__template_find_last_string(const specdec__template_value *in, size_t to,
                                                 const specdec__template_value *what)
{
    size_t at;

    for (at = to >= what->size ? to - what->size + 1 : 0; at-- > 0;)
        if (!what->size || memcmp(specdec__template_string_bytes(in) + at, what->as.data, what->size) == 0)
            return at;
    return (size_t)in->size + 1;
}

/* Splits a string at white space, at most `most` times (-1: always), from its beginning or (right = 1) from its end, as
   Python's split and rsplit do. Returns the list of its parts. */
static specdec__template_value
specdec__template_split_at_space(specdec__template *t, const specdec__template_value *self, int64_t most, int right)
{
    const specdec__template_value none = specdec__template_none_value();
    specdec__template_value *out = specdec__template_new_list(t, self->size / 2 + 1);
    specdec__template_value left = specdec__template_strip_string(t, self, &none, right ? 2 : 1);
    size_t count = 0, i;

    for (; out && left.size && !t->failed; count++) {
        const char *text = specdec__template_string_bytes(&left);
        size_t at = right ? left.size : 0, size = 1;

        if (most-- == 0) {
            out[count++] = specdec__template_strip_string(t, &left, &none, right ? 2 : 1);
            break;
        }
        if (right) {
            while (at > 0 && !specdec__template_is_space((unsigned char)text[at - 1]))
                at--;
            out[count] = specdec__template_substring(&left, at, left.size);
            left = specdec__template_substring(&left, 0, at);
        } else {
            for (; at < left.size; at += size) {
                size = specdec__template_character_bytes(text, left.size, at);
                if (specdec__template_is_stripped(&left, at, size, &none))
                    break;
            }
            out[count] = specdec__template_substring(&left, 0, at);
            left = specdec__template_substring(&left, at, left.size);
        }
        left = specdec__template_strip_string(t, &left, &none, right ? 2 : 1);
        specdec__template_count_work(t, out[count].size);
    }
    for (i = 0; right && i < count / 2; i++) {
        const specdec__template_value other = out[i];

        out[i] = out[count - 1 - i];
        out[count - 1 - i] = other;
    }
    return specdec__template_list_value(out, count);
}

/* Methods split(sep, maxsplit) (right = 0), rsplit (1) of a string: a list of strings. */
static specdec__template_value specdec__template_method_split(specdec__template *t, const specdec__template_value *self,
                                                              const specdec__template_call *call, int right)
{
    const specdec__template_value by = specdec__template_string_argument(t, call, 0, "sep", NULL);
    const int64_t most = specdec__template_integer_argument(t, call, 1, "maxsplit", -1);
    specdec__template_value *out;
    size_t parts = 1, at = 0, found, k;

    if (by.kind != SPECDEC__TEMPLATE_STRING)
        return specdec__template_split_at_space(t, self, most, right);
    if (!by.size)
        return specdec__template_fail(t, "it splits at an empty string");
    for (found = 0; (most < 0 || (int64_t)parts <= most) &&
                    (found = specdec__template_find_string(self, found, &by)) <= self->size;
         found += by.size)
        parts++;
    specdec__template_count_work(t, self->size);
    out = specdec__template_new_list(t, parts);
    if (!out)
        return specdec__template_undefined_value();
    for (k = 0; !right && k + 1 < parts; k++) {
        found = specdec__template_find_string(self, at, &by);
        out[k] = specdec__template_substring(self, at, found);
        at = found + by.size;
    }
    if (!right)
        out[parts - 1] = specdec__template_substring(self, at, self->size);
    for (at = self->size, k = parts; right && k-- > 0;) {
        found = k ? specdec__template_find_last_string(self, at, &by) : 0;
        if (found > self->size)
            return specdec__template_fail(t, "it splits what it cannot");
        out[k] = specdec__template_substring(self, k ? found + by.size : 0, at);
        at = found;
    }
    return specdec__template_list_value(out, parts);
}

/* Returns the byte offset at which the line that begins at offset `at` of a string ends; *next: the beginning of the
   next line. */
static size_t specdec__template_offset_of_line_end(const specdec__template_value *self, size_t at, size_t *next)
{
    const char *text = specdec__template_string_bytes(self);

    while (at < self->size) {
        const size_t size = specdec__template_character_bytes(text, self->size, at);
        const uint32_t c = specdec__template_code_point(text, self->size, at);

        if ((c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029) {
            *next = at + size + (c == 13 && at + 1 < self->size && text[at + 1] == '\n');
            return at;
        }
        at += size;
    }
    *next = self->size;
    return self->size;
}

/* Method splitlines(keepends) of a string: a list of lines. */
static specdec__template_value specdec__template_method_splitlines(specdec__template *t,
                                                                   const specdec__template_value *self,
                                                                   const specdec__template_call *call, int unused)
{
    const int keep = specdec__template_flag_argument(call, 0, "keepends", 0);
    specdec__template_value *out;
    size_t count = 0, at, next, end;

    (void)unused;
    for (at = 0; at < self->size; at = next, count++)
        specdec__template_offset_of_line_end(self, at, &next);
    specdec__template_count_work(t, 2 * (size_t)self->size);
    out = specdec__template_new_list(t, count);
    for (at = 0, count = 0; out && at < self->size; at = next, count++) {
        end = specdec__template_offset_of_line_end(self, at, &next);
        out[count] = specdec__template_substring(self, at, keep ? next : end);
    }
    return specdec__template_list_value(out, count);
}

/* Methods startswith (end = 0), endswith (1) of a string, for a string or any string of a tuple. */
static specdec__template_value specdec__template_method_startswith(specdec__template *t,
                                                                   const specdec__template_value *self,
                                                                   const specdec__template_call *call, int end)
{
    const specdec__template_value *what = specdec__template_get_argument(call, 0, NULL);
    size_t i, count;

    if (!what || (what->kind != SPECDEC__TEMPLATE_STRING && what->kind != SPECDEC__TEMPLATE_TUPLE))
        return specdec__template_fail(t, "a string cannot begin or end with that");
    count = what->kind == SPECDEC__TEMPLATE_TUPLE ? what->size : 1;
    what = what->kind == SPECDEC__TEMPLATE_TUPLE ? specdec__template_list_items(what) : what;
    for (i = 0; i < count; i++) {
        specdec__template_count_work(t, what[i].size);
        if (what[i].kind == SPECDEC__TEMPLATE_STRING && what[i].size <= self->size &&
            (!what[i].size || memcmp(specdec__template_string_bytes(self) + (end ? self->size - what[i].size : 0),
                                     what[i].as.data, what[i].size) == 0))
            return specdec__template_bool_value(1);
    }
    return specdec__template_bool_value(0);
}

/* Methods find (how = 0), rfind (1), index (2), rindex (3), count (4) of a string: where, or how often, another string
   occurs in it. */
static specdec__template_value specdec__template_method_find(specdec__template *t, const specdec__template_value *self,
                                                             const specdec__template_call *call, int how)
{
    const specdec__template_value what = specdec__template_string_argument(t, call, 0, NULL, "");
    const size_t from = specdec__template_character_offset(
        self, (size_t)specdec__template_integer_argument(t, call, 1, NULL, 0));
    specdec__template_value head = *self;
    size_t at, count = 0;

    if (call->positional_count < 1)
        return specdec__template_fail(t, "it looks for nothing");
    specdec__template_count_work(t, self->size);
    if (how == 4) {
        for (at = from; (at = specdec__template_find_string(self, at, &what)) <= self->size; count++)
            at += what.size ? what.size : 1;
        return specdec__template_integer_value((int64_t)count);
    }
    at = how % 2 ? specdec__template_find_last_string(self, self->size, &what)
                 : specdec__template_find_string(self, from, &what);
    if (at > self->size || at < from)
        return how < 2 ? specdec__template_integer_value(-1)
                       : specdec__template_fail(t, "a string has not what is looked for");
    head.size = (uint32_t)at;
    return specdec__template_integer_value((int64_t)specdec__template_count_characters(&head));
}

/* Returns the strings of a list as one string, with the string `between` between them; any = 1: values that are no
   strings are converted. */
static specdec__template_value specdec__template_join_list(specdec__template *t, const specdec__template_value *list,
                                                           const specdec__template_value *between, int any)
{
    const specdec__template_write_form form = specdec__template_default_write_form(0);
    const size_t from = t->used;
    size_t i;

    for (i = 0; i < list->size && !t->failed; i++) {
        const specdec__template_value *item = specdec__template_list_items(list) + i;

        if (i)
            specdec__template_append_bytes(t, between->as.data, between->size);
        if (item->kind == SPECDEC__TEMPLATE_STRING)
            specdec__template_append_bytes(t, item->as.data, item->size);
        else if (!any)
            specdec__template_fail(t, "it joins what are no strings");
        else if (item->kind != SPECDEC__TEMPLATE_UNDEFINED)
            specdec__template_append_value(t, item, &form);
    }
    return specdec__template_finish_string(t, from);
}

/* Method join(list) of a string: the list's strings with this string between them. */
static specdec__template_value specdec__template_method_join(specdec__template *t, const specdec__template_value *self,
                                                             const specdec__template_call *call, int unused)
{
    const specdec__template_value nothing = specdec__template_undefined_value();
    const specdec__template_value *of = specdec__template_get_argument(call, 0, NULL);
    const specdec__template_value list = specdec__template_items_to_iterate(t, of ? of : &nothing);

    (void)unused;
    return specdec__template_join_list(t, &list, self, 0);
}

/* Methods lower, upper, capitalize, title, swapcase of a string: the string in another case. */
static specdec__template_value specdec__template_method_change_case(specdec__template *t,
                                                                    const specdec__template_value *self,
                                                                    const specdec__template_call *call, int to)
{
    (void)call;
    return specdec__template_change_case(t, self, to);
}

/* Methods isspace (what = 0), isdigit (1), isalpha (2), isalnum (3), islower (4), isupper (5) of a string: are all
   characters so, and is there at least one? */
static specdec__template_value specdec__template_method_all_characters(specdec__template *t,
                                                                       const specdec__template_value *self,
                                                                       const specdec__template_call *call, int what)
{
    const char *text = specdec__template_string_bytes(self);
    size_t at;
    int cased = 0;

    (void)call;
    specdec__template_count_work(t, self->size);
    for (at = 0; at < self->size; at += specdec__template_character_bytes(text, self->size, at)) {
        const uint32_t c = specdec__template_code_point(text, self->size, at);
        const int kind = specdec__text_class_properties[specdec__text_character_class(c)].kind;
        const int lower = specdec__template_to_upper(c) != c, upper = specdec__template_to_lower(c) != c;

        if ((what == 0 && !specdec__template_is_space(c)) || (what == 1 && kind != SPECDEC__TEXT_NUMBER) ||
            (what == 2 && kind != SPECDEC__TEXT_LETTER) ||
            (what == 3 && kind != SPECDEC__TEXT_LETTER && kind != SPECDEC__TEXT_NUMBER) || (what == 4 && upper) ||
            (what == 5 && lower))
            return specdec__template_bool_value(0);
        cased |= lower || upper;
    }
    return specdec__template_bool_value(self->size > 0 && (what < 4 || cased));
}

/* Methods removeprefix (end = 0), removesuffix (1) of a string: the string without a text at its beginning or end. */
static specdec__template_value specdec__template_method_remove_affix(specdec__template *t,
                                                                     const specdec__template_value *self,
                                                                     const specdec__template_call *call, int end)
{
    const specdec__template_value what = specdec__template_string_argument(t, call, 0, NULL, "");
    const specdec__template_value has = specdec__template_method_startswith(t, self, call, end);

    if (!specdec__template_is_true(&has))
        return *self;
    return end ? specdec__template_substring(self, 0, self->size - what.size)
               : specdec__template_substring(self, what.size, self->size);
}

/* Methods partition(sep) (right = 0), rpartition(sep) (1) of a string: a tuple of the text in front of a separator, the
   separator, and the text behind it. */
static specdec__template_value specdec__template_method_partition(specdec__template *t,
                                                                  const specdec__template_value *self,
                                                                  const specdec__template_call *call, int right)
{
    const specdec__template_value by = specdec__template_string_argument(t, call, 0, NULL, "");
    specdec__template_value *out = specdec__template_new_list(t, 3);
    size_t at;

    if (!by.size || !out)
        return specdec__template_fail(t, "it splits at an empty string");
    at = right ? specdec__template_find_last_string(self, self->size, &by)
               : specdec__template_find_string(self, 0, &by);
    out[0] = out[1] = out[2] = specdec__template_string_value("");
    if (at <= self->size) {
        out[0] = specdec__template_substring(self, 0, at);
        out[1] = specdec__template_substring(self, at, at + by.size);
        out[2] = specdec__template_substring(self, at + by.size, self->size);
    } else {
        out[right ? 2 : 0] = *self;
    }
    return specdec__template_sized_value(SPECDEC__TEMPLATE_TUPLE, out, 3);
}

/* Methods ljust (how = 0), rjust (1), center (2), zfill (3): a string padded to a width. */
static specdec__template_value specdec__template_method_pad_to_width(specdec__template *t,
                                                                     const specdec__template_value *self,
                                                                     const specdec__template_call *call, int how)
{
    const int64_t width = specdec__template_integer_argument(t, call, 0, "width", how == 2 ? 80 : 0);
    const int64_t left = width - (int64_t)specdec__template_count_characters(self);
    const specdec__template_value fill = specdec__template_string_argument(t, call, how < 3 ? 1 : -1, NULL,
                                                                           how < 3 ? " " : "0");
    const int64_t before = how == 0 ? 0 : how == 2 ? left / 2 + (left & width & 1) : left;
    const size_t from = t->used;
    const int sign = how == 3 && self->size && strchr("+-", *specdec__template_string_bytes(self)) != NULL;

    if (left <= 0)
        return *self;
    specdec__template_append_bytes(t, self->as.data, (size_t)sign);
    specdec__template_append_repeated(t, &fill, before);
    specdec__template_append_bytes(t, specdec__template_string_bytes(self) + sign, self->size - (size_t)sign);
    specdec__template_append_repeated(t, &fill, left - before);
    return specdec__template_finish_string(t, from);
}

/* Method format of a string: its {fields}, without conversion and format specification, filled in. */
static specdec__template_value specdec__template_method_format(specdec__template *t,
                                                               const specdec__template_value *self,
                                                               const specdec__template_call *call, int unused)
{
    const specdec__template_write_form form = specdec__template_default_write_form(0);
    const char *text = specdec__template_string_bytes(self);
    const size_t from = t->used;
    size_t at, end;
    int next = 0;

    (void)unused;
    for (at = 0; at < self->size && !t->failed; at++) {
        const specdec__template_value *value = NULL;
        int i, number = 0;

        if ((text[at] != '{' && text[at] != '}') || (at + 1 < self->size && text[at + 1] == text[at])) {
            specdec__template_append_bytes(t, text + at, 1);
            at += text[at] == '{' || text[at] == '}';
            continue;
        }
        for (end = at + 1; end < self->size && text[end] != '}'; end++)
            number = text[end] >= '0' && text[end] <= '9' && number < 1000 ? 10 * number + text[end] - '0' : -100000;
        if (end == at + 1)
            number = next++;
        if (number >= 0)
            value = specdec__template_get_argument(call, number, NULL);
        for (i = 0; number < 0 && i < call->named_count; i++)
            if (call->named[2 * i].size == end - at - 1 &&
                memcmp(call->named[2 * i].as.data, text + at + 1, end - at - 1) == 0)
                value = &call->named[2 * i + 1];
        if (text[at] == '}' || end >= self->size || !value)
            return specdec__template_fail(t, "a field of a format is not known");
        if (value->kind == SPECDEC__TEMPLATE_STRING)
            specdec__template_append_bytes(t, value->as.data, value->size);
        else if (value->kind != SPECDEC__TEMPLATE_UNDEFINED)
            specdec__template_append_value(t, value, &form);
        at = end;
    }
    return specdec__template_finish_string(t, from);
}

/* ---- Dicts and lists. */

/* Returns the keys (what = 0), values (1) or items (2) of a dict as a view. */
static specdec__template_value specdec__template_dict_view(specdec__template *t, const specdec__template_value *self,
                                                           int what)
{
    specdec__template_value *out = specdec__template_new_list(t, (size_t)self->size * (what == 2 ? 3 : 1)), view;
    size_t i;

    for (i = 0; out && i < self->size; i++) {
        const specdec__template_value *own = specdec__template_list_items(self) + 2 * i;

        if (what < 2) {
            out[i] = own[what];
            continue;
        }
        out[self->size + 2 * i] = own[0];
        out[self->size + 2 * i + 1] = own[1];
        out[i] = specdec__template_sized_value(SPECDEC__TEMPLATE_TUPLE, out + self->size + 2 * i, 2);
    }
    view = specdec__template_sized_value(SPECDEC__TEMPLATE_VIEW, out, out ? self->size : 0);
    view.spare = (uint16_t)what;
    return view;
}

/* Methods keys (what = 0), values (1), items (2) of a dict: a view of it. */
static specdec__template_value specdec__template_method_dict_view(specdec__template *t,
                                                                  const specdec__template_value *self,
                                                                  const specdec__template_call *call, int what)
{
    (void)call;
    return specdec__template_dict_view(t, self, what);
}

/* Method get(name, default) of a dict: the value of a member, or the default. */
static specdec__template_value specdec__template_method_get(specdec__template *t, const specdec__template_value *self,
                                                            const specdec__template_call *call, int unused)
{
    const specdec__template_value *name = specdec__template_get_argument(call, 0, NULL), *found;
    const specdec__template_value *otherwise = specdec__template_get_argument(call, 1, NULL);

    (void)unused;
    if (!name)
        return specdec__template_fail(t, "get needs a name");
    found = specdec__template_find_member(t, self, name);
    return found ? *found : otherwise ? *otherwise : specdec__template_none_value();
}

/* Method copy of a dict or list, which is the value itself, as values never change. */
static specdec__template_value specdec__template_method_copy(specdec__template *t, const specdec__template_value *self,
                                                             const specdec__template_call *call, int unused)
{
    (void)t;
    (void)call;
    (void)unused;
    return *self;
}

/* Methods index(value) (counts = 0), count(value) (1) of a list: where the value is, or how often. */
static specdec__template_value specdec__template_method_list_index(specdec__template *t,
                                                                   const specdec__template_value *self,
                                                                   const specdec__template_call *call, int counts)
{
    const specdec__template_value *what = specdec__template_get_argument(call, 0, NULL);
    int64_t count = 0;
    size_t i;

    for (i = 0; what && i < self->size && !t->failed; i++)
        if (specdec__template_values_equal(t, specdec__template_list_items(self) + i, what,
                                           SPECDEC__TEMPLATE_MAX_COMPARED)) {
            if (!counts)
                return specdec__template_integer_value((int64_t)i);
            count++;
        }
    return counts ? specdec__template_integer_value(count)
                  : specdec__template_fail(t, "a list has not what is looked for");
}

/* Methods that would change a value: each call is an error, as the sandbox is immutable. */
static specdec__template_value specdec__template_method_fail_as_immutable(specdec__template *t,
                                                                          const specdec__template_value *self,
                                                                          const specdec__template_call *call,
                                                                          int unused)
{
    (void)self;
    (void)call;
    (void)unused;
    return specdec__template_fail(t, "it changes a list or dict, which is not allowed");
}

/* A method of Python's strings, lists and dicts. */
typedef struct specdec__template_method {
    const char *name; /* name of the method */
    int kinds;        /* kinds of values that have the method: bits 1 << SPECDEC__TEMPLATE_... */
    int how;          /* the last argument of call(), for functions of several methods */
    specdec__template_value (*call)(specdec__template *t, const specdec__template_value *self,
                                    const specdec__template_call *call, int how);
} specdec__template_method;

/* Kinds of values that have a method: bits of specdec__template_method.kinds. */
#define SPECDEC__TEMPLATE_KINDS_STRING (1 << SPECDEC__TEMPLATE_STRING) /* a method of strings */
#define SPECDEC__TEMPLATE_KINDS_LIST (1 << SPECDEC__TEMPLATE_LIST)     /* a method of lists */
#define SPECDEC__TEMPLATE_KINDS_LIST_TUPLE (1 << SPECDEC__TEMPLATE_LIST | 1 << SPECDEC__TEMPLATE_TUPLE) /* of both */
#define SPECDEC__TEMPLATE_KINDS_DICT (1 << SPECDEC__TEMPLATE_DICT)     /* a method of dicts */

/* All methods by name and kind of value. */
static const specdec__template_method specdec__template_methods[] = {
    {"strip", SPECDEC__TEMPLATE_KINDS_STRING, 3, specdec__template_method_strip},
    {"lstrip", SPECDEC__TEMPLATE_KINDS_STRING, 1, specdec__template_method_strip},
    {"rstrip", SPECDEC__TEMPLATE_KINDS_STRING, 2, specdec__template_method_strip},
    {"split", SPECDEC__TEMPLATE_KINDS_STRING, 0, specdec__template_method_split},
    {"rsplit", SPECDEC__TEMPLATE_KINDS_STRING, 1, specdec__template_method_split},
    {"splitlines", SPECDEC__TEMPLATE_KINDS_STRING, 0, specdec__template_method_splitlines},
    {"startswith", SPECDEC__TEMPLATE_KINDS_STRING, 0, specdec__template_method_startswith},
    {"endswith", SPECDEC__TEMPLATE_KINDS_STRING, 1, specdec__template_method_startswith},
    {"replace", SPECDEC__TEMPLATE_KINDS_STRING, 0, specdec__template_method_replace},
    {"lower", SPECDEC__TEMPLATE_KINDS_STRING, SPECDEC__TEMPLATE_TO_LOWER, specdec__template_method_change_case},
    {"casefold", SPECDEC__TEMPLATE_KINDS_STRING, SPECDEC__TEMPLATE_TO_LOWER, specdec__template_method_change_case},
    {"upper", SPECDEC__TEMPLATE_KINDS_STRING, SPECDEC__TEMPLATE_TO_UPPER, specdec__template_method_change_case},
    {"capitalize", SPECDEC__TEMPLATE_KINDS_STRING, SPECDEC__TEMPLATE_TO_CAPITAL, specdec__template_method_change_case},
    {"title", SPECDEC__TEMPLATE_KINDS_STRING, SPECDEC__TEMPLATE_TO_TITLE, specdec__template_method_change_case},
    {"swapcase", SPECDEC__TEMPLATE_KINDS_STRING, SPECDEC__TEMPLATE_TO_SWAPPED, specdec__template_method_change_case},
    {"find", SPECDEC__TEMPLATE_KINDS_STRING, 0, specdec__template_method_find},
    {"rfind", SPECDEC__TEMPLATE_KINDS_STRING, 1, specdec__template_method_find},
    {"index", SPECDEC__TEMPLATE_KINDS_STRING, 2, specdec__template_method_find},
    {"rindex", SPECDEC__TEMPLATE_KINDS_STRING, 3, specdec__template_method_find},
    {"count", SPECDEC__TEMPLATE_KINDS_STRING, 4, specdec__template_method_find},
    {"join", SPECDEC__TEMPLATE_KINDS_STRING, 0, specdec__template_method_join},
    {"isspace", SPECDEC__TEMPLATE_KINDS_STRING, 0, specdec__template_method_all_characters},
    {"isdigit", SPECDEC__TEMPLATE_KINDS_STRING, 1, specdec__template_method_all_characters},
    {"isnumeric", SPECDEC__TEMPLATE_KINDS_STRING, 1, specdec__template_method_all_characters},
    {"isdecimal", SPECDEC__TEMPLATE_KINDS_STRING, 1, specdec__template_method_all_characters},
    {"isalpha", SPECDEC__TEMPLATE_KINDS_STRING, 2, specdec__template_method_all_characters},
    {"isalnum", SPECDEC__TEMPLATE_KINDS_STRING, 3, specdec__template_method_all_characters},
    {"islower", SPECDEC__TEMPLATE_KINDS_STRING, 4, specdec__template_method_all_characters},
    {"isupper", SPECDEC__TEMPLATE_KINDS_STRING, 5, specdec__template_method_all_characters},
    {"removeprefix", SPECDEC__TEMPLATE_KINDS_STRING, 0, specdec__template_method_remove_affix},
    {"removesuffix", SPECDEC__TEMPLATE_KINDS_STRING, 1, specdec__template_method_remove_affix},
    {"partition", SPECDEC__TEMPLATE_KINDS_STRING, 0, specdec__template_method_partition},
    {"rpartition", SPECDEC__TEMPLATE_KINDS_STRING, 1, specdec__template_method_partition},
    {"ljust", SPECDEC__TEMPLATE_KINDS_STRING, 0, specdec__template_method_pad_to_width},
    {"rjust", SPECDEC__TEMPLATE_KINDS_STRING, 1, specdec__template_method_pad_to_width},
    {"center", SPECDEC__TEMPLATE_KINDS_STRING, 2, specdec__template_method_pad_to_width},
    {"zfill", SPECDEC__TEMPLATE_KINDS_STRING, 3, specdec__template_method_pad_to_width},
    {"format", SPECDEC__TEMPLATE_KINDS_STRING, 0, specdec__template_method_format},
    {"get", SPECDEC__TEMPLATE_KINDS_DICT, 0, specdec__template_method_get},
    {"keys", SPECDEC__TEMPLATE_KINDS_DICT, 0, specdec__template_method_dict_view},
    {"values", SPECDEC__TEMPLATE_KINDS_DICT, 1, specdec__template_method_dict_view},
    {"items", SPECDEC__TEMPLATE_KINDS_DICT, 2, specdec__template_method_dict_view},
    {"copy", SPECDEC__TEMPLATE_KINDS_DICT | SPECDEC__TEMPLATE_KINDS_LIST, 0, specdec__template_method_copy},
    {"index", SPECDEC__TEMPLATE_KINDS_LIST_TUPLE, 0, specdec__template_method_list_index},
    {"count", SPECDEC__TEMPLATE_KINDS_LIST_TUPLE, 1, specdec__template_method_list_index},
    {"pop", SPECDEC__TEMPLATE_KINDS_DICT | SPECDEC__TEMPLATE_KINDS_LIST, 0, specdec__template_method_fail_as_immutable},
    {"clear", SPECDEC__TEMPLATE_KINDS_DICT | SPECDEC__TEMPLATE_KINDS_LIST, 0,
     specdec__template_method_fail_as_immutable},
    {"update", SPECDEC__TEMPLATE_KINDS_DICT, 0, specdec__template_method_fail_as_immutable},
    {"setdefault", SPECDEC__TEMPLATE_KINDS_DICT, 0, specdec__template_method_fail_as_immutable},
    {"popitem", SPECDEC__TEMPLATE_KINDS_DICT, 0, specdec__template_method_fail_as_immutable},
    {"fromkeys", SPECDEC__TEMPLATE_KINDS_DICT, 0, specdec__template_method_fail_as_immutable},
    {"append", SPECDEC__TEMPLATE_KINDS_LIST, 0, specdec__template_method_fail_as_immutable},
    {"extend", SPECDEC__TEMPLATE_KINDS_LIST, 0, specdec__template_method_fail_as_immutable},
    {"insert", SPECDEC__TEMPLATE_KINDS_LIST, 0, specdec__template_method_fail_as_immutable},
    {"remove", SPECDEC__TEMPLATE_KINDS_LIST, 0, specdec__template_method_fail_as_immutable},
    {"reverse", SPECDEC__TEMPLATE_KINDS_LIST, 0, specdec__template_method_fail_as_immutable},
    {"sort", SPECDEC__TEMPLATE_KINDS_LIST, 0, specdec__template_method_fail_as_immutable}};

/* ---- Attributes and items. */

/* Returns an undefined value that keeps its name, for error texts. */
static specdec__template_value specdec__template_undefined_value_of_name(const specdec__template_value *name)
{
    specdec__template_value out = specdec__template_undefined_value();

    if (name->kind == SPECDEC__TEMPLATE_STRING) {
        out.as.data = name->as.data;
        out.size = name->size;
    }
    return out;
}

/* Stores the error that an undefined value was used. Returns an undefined value. */
static specdec__template_value specdec__template_fail_undefined(specdec__template *t,
                                                                const specdec__template_value *value)
{
    return specdec__template_fail_with_culprit(
        t, "it uses what is not defined", specdec__template_as_bytes(value->as.data, value->as.data ? value->size : 0));
}

/* Returns the method of a value with a name, bound to the value; undefined: the value has no method of this name. */
static specdec__template_value specdec__template_bind_method(specdec__template *t, const specdec__template_value *self,
                                                             const specdec__template_value *name)
{
    specdec__template_value *own;
    size_t i;

    for (i = 0; i < SPECDEC__COUNT(specdec__template_methods); i++)
        if (specdec__template_methods[i].kinds >> self->kind & 1 &&
            specdec__template_string_equals(name, specdec__template_methods[i].name)) {
            own = specdec__template_new_list(t, 1);
            if (!own)
                break;
            *own = *self;
            return specdec__template_sized_value(SPECDEC__TEMPLATE_METHOD, own, i);
        }
    return specdec__template_undefined_value_of_name(name);
}

/* Returns the attribute of Jinja's `loop` with a name, such as loop.index; undefined: it has none. */
static specdec__template_value specdec__template_loop_attribute(const specdec__template_value *self,
                                                                const specdec__template_value *name)
{
    const specdec__template_loop *loop = (const specdec__template_loop *)self->as.data;
    const int64_t index = (int64_t)loop->index, count = (int64_t)loop->count;
    const struct { const char *name; int64_t value; } numbers[] = {
        {"index", index + 1}, {"index0", index}, {"revindex", count - index}, {"revindex0", count - index - 1},
        {"length", count}, {"depth", (int64_t)loop->depth}, {"depth0", (int64_t)loop->depth - 1}};
    size_t i;

    for (i = 0; i < SPECDEC__COUNT(numbers); i++)
        if (specdec__template_string_equals(name, numbers[i].name))
            return specdec__template_integer_value(numbers[i].value);
    if (specdec__template_string_equals(name, "first"))
        return specdec__template_bool_value(!index);
    if (specdec__template_string_equals(name, "last"))
        return specdec__template_bool_value(index + 1 == count);
    if (specdec__template_string_equals(name, "previtem") && index > 0)
        return loop->items[index - 1];
    if (specdec__template_string_equals(name, "nextitem") && index + 1 < count)
        return loop->items[index + 1];
    if (specdec__template_string_equals(name, "cycle") || specdec__template_string_equals(name, "changed"))
        return specdec__template_sized_value(SPECDEC__TEMPLATE_METHOD, self->as.data,
                                             specdec__template_string_equals(name, "cycle") ? UINT32_MAX
                                                                                            : UINT32_MAX - 1);
    return specdec__template_undefined_value_of_name(name);
}

/* Returns what Jinja looks up in a value by a name: for a.b a method, then a member; for a['b'] (items = 1) a member,
   then a method. */
static specdec__template_value specdec__template_get_attribute(specdec__template *t,
                                                               const specdec__template_value *self,
                                                               const specdec__template_value *name, int items)
{
    const specdec__template_value *found = NULL;
    specdec__template_value method;
    const specdec__template_binding *binding;

    if (self->kind == SPECDEC__TEMPLATE_UNDEFINED)
        return specdec__template_fail_undefined(t, self);
    if (self->kind == SPECDEC__TEMPLATE_DICT && items) {
        found = specdec__template_find_member(t, self, name);
        if (found)
            return *found;
    }
    if (name->kind != SPECDEC__TEMPLATE_STRING)
        return specdec__template_undefined_value_of_name(name);
    if (self->kind == SPECDEC__TEMPLATE_NAMESPACE) {
        for (binding = ((const specdec__template_scope *)self->as.data)->first_binding; binding;
             binding = binding->next)
            if (binding->name.size == name->size && memcmp(binding->name.as.data, name->as.data, name->size) == 0)
                return binding->value;
        return specdec__template_undefined_value_of_name(name);
    }
    if (self->kind == SPECDEC__TEMPLATE_LOOP)
        return specdec__template_loop_attribute(self, name);
    if (self->kind == SPECDEC__TEMPLATE_MACRO && specdec__template_string_equals(name, "name"))
        return ((const specdec__template_closure *)self->as.data)->macro->name;
    method = specdec__template_bind_method(t, self, name);
    if (method.kind != SPECDEC__TEMPLATE_UNDEFINED || self->kind != SPECDEC__TEMPLATE_DICT || items)
        return method;
    found = specdec__template_find_member(t, self, name);
    return found ? *found : method;
}

/* Computes the beginning, end and step of a slice of `count` items, as Python does. Returns 0 for a step of 0. */
static int specdec__template_slice_bounds(specdec__template *t, const specdec__template_value *slice, int64_t count,
                                          int64_t bounds[3])
{
    const specdec__template_value *part = specdec__template_list_items(slice);
    int i;

    for (i = 0; i < 3; i++)
        if (part[i].kind != SPECDEC__TEMPLATE_NONE && part[i].kind != SPECDEC__TEMPLATE_INTEGER &&
            part[i].kind != SPECDEC__TEMPLATE_BOOL) {
            specdec__template_fail(t, "the bounds of a slice are no integers");
            return 0;
        }
    bounds[2] = part[2].kind == SPECDEC__TEMPLATE_NONE ? 1 : part[2].as.integer;
    if (!bounds[2]) {
        specdec__template_fail(t, "a slice has steps of nothing");
        return 0;
    }
    for (i = 0; i < 2; i++) {
        const int64_t least = bounds[2] < 0 ? -1 : 0, most = bounds[2] < 0 ? count - 1 : count;

        if (part[i].kind == SPECDEC__TEMPLATE_NONE) {
            bounds[i] = (i == 0) == (bounds[2] > 0) ? least : most;
        } else {
            bounds[i] = part[i].as.integer < 0 ? (part[i].as.integer < -count ? least : part[i].as.integer + count)
                                               : part[i].as.integer;
            bounds[i] = bounds[i] < least ? least : bounds[i] > most ? most : bounds[i];
        }
    }
    return 1;
}

/* Returns Python's self[from:to:step]: a part of a string, list or tuple. */
static specdec__template_value specdec__template_get_slice(specdec__template *t, const specdec__template_value *self,
                                                           const specdec__template_value *slice)
{
    const int string = self->kind == SPECDEC__TEMPLATE_STRING;
    specdec__template_value *out, list;
    int64_t bounds[3], count, i;
    size_t size = 0;

    if (self->kind == SPECDEC__TEMPLATE_UNDEFINED)
        return specdec__template_fail_undefined(t, self);
    if (!string && self->kind != SPECDEC__TEMPLATE_LIST && self->kind != SPECDEC__TEMPLATE_TUPLE)
        return specdec__template_fail(t, "it slices what is no list and no string");
    count = string ? (int64_t)specdec__template_count_characters(self) : (int64_t)self->size;
    specdec__template_count_work(t, string ? self->size : 0);
    if (!specdec__template_slice_bounds(t, slice, count, bounds))
        return specdec__template_undefined_value();
    if (string && bounds[2] == 1) {
        const size_t from = specdec__template_character_offset(self, (size_t)bounds[0]);

        return specdec__template_substring(
            self, from, bounds[1] > bounds[0] ? specdec__template_character_offset(self, (size_t)bounds[1]) : from);
    }
    list = specdec__template_items_to_iterate(t, self);
    out = specdec__template_new_list(t, (size_t)count);
    for (i = bounds[0]; out && !t->failed && (bounds[2] > 0 ? i < bounds[1] : i > bounds[1]); size++) {
        out[size] = specdec__template_list_items(&list)[i];
        if (bounds[2] > 0 ? bounds[2] > count - i : bounds[2] < -1 - i)
            i = bounds[1];
        else
            i += bounds[2];
    }
    list = specdec__template_list_value(out, size);
    if (string) {
        const specdec__template_value nothing = specdec__template_string_value("");

        return specdec__template_join_list(t, &list, &nothing, 0);
    }
    list.kind = self->kind;
    return list;
}

/* Returns Python's self[key]: an item of a list or tuple, a character, or a member. */
static specdec__template_value specdec__template_get_item(specdec__template *t, const specdec__template_value *self,
                                                          const specdec__template_value *key)
{
    const int string = self->kind == SPECDEC__TEMPLATE_STRING;
    int64_t count, index = key->as.integer;
    size_t at;

    if (key->kind == SPECDEC__TEMPLATE_SLICE)
        return specdec__template_get_slice(t, self, key);
    if ((key->kind != SPECDEC__TEMPLATE_INTEGER && key->kind != SPECDEC__TEMPLATE_BOOL) ||
        (!string && self->kind != SPECDEC__TEMPLATE_LIST && self->kind != SPECDEC__TEMPLATE_TUPLE))
        return specdec__template_get_attribute(t, self, key, 1);
    count = string ? (int64_t)specdec__template_count_characters(self) : (int64_t)self->size;
    specdec__template_count_work(t, string ? self->size : 0);
    index += index < 0 ? count : 0;
    if (index < 0 || index >= count)
        return specdec__template_undefined_value();
    if (!string)
        return specdec__template_list_items(self)[index];
    at = specdec__template_character_offset(self, (size_t)index);
    return specdec__template_substring(
        self, at, at + specdec__template_character_bytes(specdec__template_string_bytes(self), self->size, at));
}

SPECDEC__FOR_SPEED
