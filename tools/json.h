/* json.h - the one writer of JSON: commas come by themselves, strings are escaped, what is no number is null. And the
   one reader: text is checked, members are found, strings are decoded in place. Include it behind program.h. */
#ifndef JSON_H
#define JSON_H

#define JSON_DEPTH 16 /* objects and arrays inside each other */

typedef struct json_writer {
    FILE *file;
    const char *gap;        /* white space before the next item; "" for most */
    int depth;
    char close[JSON_DEPTH]; /* what ends each of them */
    int items[JSON_DEPTH];  /* so far */
} json_writer;

static PROGRAM_UNUSED void json_begin(json_writer *j, FILE *file)
{
    memset(j, 0, sizeof *j);
    j->file = file;
    j->gap = "";
}

/* Bytes of the UTF-8 sequence at the beginning of a string, 0 when that begins none (Unicode, table 3-7). */
static int json_sequence(const char *text)
{
    static const unsigned char forms[][5] = { /* first byte from, to; bytes; second byte from, to */
        {0x01, 0x7f, 1, 0, 0}, {0xc2, 0xdf, 2, 0x80, 0xbf}, {0xe0, 0xe0, 3, 0xa0, 0xbf}, {0xe1, 0xec, 3, 0x80, 0xbf},
        {0xed, 0xed, 3, 0x80, 0x9f}, {0xee, 0xef, 3, 0x80, 0xbf}, {0xf0, 0xf0, 4, 0x90, 0xbf}, {0xf1, 0xf3, 4, 0x80, 0xbf},
        {0xf4, 0xf4, 4, 0x80, 0x8f}};
    const unsigned char *at = (const unsigned char *)text;
    int i = 0, k;

    while (i < 8 && (at[0] < forms[i][0] || at[0] > forms[i][1]))
        i++;
    if (at[0] < forms[i][0] || at[0] > forms[i][1] || (forms[i][2] > 1 && (at[1] < forms[i][3] || at[1] > forms[i][4])))
        return 0;
    for (k = 2; k < forms[i][2]; k++)
        if (at[k] < 0x80 || at[k] > 0xbf)
            return 0;
    return forms[i][2];
}

/* A string of so many bytes, and a zero byte behind them: what JSON does not allow in one is escaped, bytes that are no
   UTF-8 become U+FFFD. */
static PROGRAM_UNUSED void json_quote(FILE *file, const char *text, size_t length)
{
    const char *end = text + length;
    int size;

    putc('"', file);
    for (; text < end; text += size) {
        unsigned char c = (unsigned char)*text;

        size = c ? json_sequence(text) : 1;
        if (size < 1)
            fprintf(file, "\\ufffd");
        else if (c < 32 || c == 127)
            fprintf(file, "\\u%04x", (unsigned)c);
        else
            fprintf(file, "%s%.*s", c == '"' || c == '\\' ? "\\" : "", size, text);
        size = size < 1 ? 1 : size;
    }
    putc('"', file);
}

/* Puts the next item's white space before it; empty again behind it. */
static PROGRAM_UNUSED void json_gap(json_writer *j, const char *gap) { j->gap = gap; }

/* What stands before an item: a comma, white space, its name. name is NULL in an array. */
static void json_item(json_writer *j, const char *name)
{
    if (j->items[j->depth]++)
        putc(',', j->file);
    fputs(j->gap, j->file);
    j->gap = "";
    if (name) {
        json_quote(j->file, name, strlen(name));
        putc(':', j->file);
    }
}

static void json_open(json_writer *j, const char *name, const char *brackets)
{
    json_item(j, name);
    putc(brackets[0], j->file);
    if (j->depth + 1 < JSON_DEPTH)
        j->depth++;
    j->close[j->depth] = brackets[1];
    j->items[j->depth] = 0;
}

static PROGRAM_UNUSED void json_object(json_writer *j, const char *name) { json_open(j, name, "{}"); }
static PROGRAM_UNUSED void json_array(json_writer *j, const char *name) { json_open(j, name, "[]"); }

/* Ends the innermost object or array; behind the outermost, the line. */
static PROGRAM_UNUSED void json_close(json_writer *j)
{
    fputs(j->gap, j->file);
    j->gap = "";
    putc(j->close[j->depth--], j->file);
    if (!j->depth)
        putc('\n', j->file);
}

/* A number as a printf format for doubles writes it; null when it is infinite or none. */
static PROGRAM_UNUSED void json_number(json_writer *j, const char *name, const char *format, double value)
{
    json_item(j, name);
    if (value - value == 0)
        fprintf(j->file, format, value);
    else
        fputs("null", j->file);
}

static PROGRAM_UNUSED void json_integer(json_writer *j, const char *name, long long value)
{
    json_item(j, name);
    fprintf(j->file, "%lld", value);
}

static PROGRAM_UNUSED void json_truth(json_writer *j, const char *name, int value)
{
    json_item(j, name);
    fputs(value ? "true" : "false", j->file);
}

/* A text of so many bytes, and a zero byte behind them. */
static PROGRAM_UNUSED void json_bytes(json_writer *j, const char *name, const char *text, size_t length)
{
    json_item(j, name);
    json_quote(j->file, text, length);
}

static PROGRAM_UNUSED void json_text(json_writer *j, const char *name, const char *text)
{
    json_bytes(j, name, text, strlen(text));
}

/* A value that is JSON already. */
static PROGRAM_UNUSED void json_raw(json_writer *j, const char *name, const char *value, size_t length)
{
    json_item(j, name);
    fwrite(value, 1, length, j->file);
}

static PROGRAM_UNUSED void json_numbers(json_writer *j, const char *name, const char *format, const double *values,
                                        int count)
{
    int i;

    json_array(j, name);
    for (i = 0; i < count; i++)
        json_number(j, NULL, format, values[i]);
    json_close(j);
}

static PROGRAM_UNUSED void json_integers(json_writer *j, const char *name, const int32_t *values, int count)
{
    int i;

    json_array(j, name);
    for (i = 0; i < count; i++)
        json_integer(j, NULL, values[i]);
    json_close(j);
}

/* --- reading ------------------------------------------------------------------------------------------------------

   Text with a zero byte behind it. Places are pointers into it: a value begins there. */

#define JSON_NESTED 64 /* objects and arrays inside each other that are read */

static char *json_space(char *at) { return at + strspn(at, " \t\r\n"); }

/* The four digits behind \u; -1 when they are none. */
static long json_hex4(const char *at)
{
    long code = 0;
    int i;

    for (i = 0; i < 4; i++) {
        const char *digits = "0123456789abcdef0123456789ABCDEF", *digit = at[i] ? strchr(digits, at[i]) : NULL;

        if (!digit)
            return -1;
        code = code * 16 + (long)(digit - digits) % 16;
    }
    return code;
}

/* What is behind a string; NULL when it is none. */
static char *json_skip_string(char *at)
{
    if (*at++ != '"')
        return NULL;
    while (*at != '"') {
        int size = (unsigned char)*at < 32 ? 0 : json_sequence(at);

        if (*at == '\\')
            size = at[1] == 'u' ? (json_hex4(at + 2) < 0 ? 0 : 6) : at[1] && strchr("\"\\/bfnrt", at[1]) ? 2 : 0;
        if (!size)
            return NULL;
        at += size;
    }
    return at + 1;
}

/* What is behind a number, or behind true, false or null; NULL when it is none. */
static char *json_skip_word(char *at)
{
    static const char *const words[] = {"true", "false", "null"};
    static const char digits[] = "0123456789";
    size_t whole, i;

    for (i = 0; i < 3; i++)
        if (strncmp(at, words[i], strlen(words[i])) == 0)
            return at + strlen(words[i]);
    at += *at == '-';
    whole = strspn(at, digits);
    if (!whole || (*at == '0' && whole > 1))
        return NULL;
    at += whole;
    if (*at == '.') {
        whole = strspn(++at, digits);
        at += whole;
    }
    if (whole && (*at == 'e' || *at == 'E')) {
        at += at[1] == '+' || at[1] == '-' ? 2 : 1;
        whole = strspn(at, digits);
        at += whole;
    }
    return whole ? at : NULL;
}

/* What is behind a value, of at most so many objects and arrays inside each other; NULL when it is none. */
static char *json_skip(char *at, int nested)
{
    const char close = *at == '{' ? '}' : ']';

    if (*at == '"')
        return json_skip_string(at);
    if (*at != '{' && *at != '[')
        return json_skip_word(at);
    if (!nested)
        return NULL;
    at = json_space(at + 1);
    if (*at == close)
        return at + 1;
    for (;; at = json_space(at + 1)) {
        if (close == '}') {
            at = json_skip_string(at);
            if (!at || *(at = json_space(at)) != ':')
                return NULL;
            at = json_space(at + 1);
        }
        at = json_skip(at, nested - 1);
        if (!at)
            return NULL;
        at = json_space(at);
        if (*at != ',')
            return *at == close ? at + 1 : NULL;
    }
}

/* Goes through an object or array that json_skip has passed: *at is its place, then what the call before has left
   there. Returns the place of the next value, in an object also that of its name; NULL at the end. */
static PROGRAM_UNUSED char *json_next(char **at, char **name)
{
    char *value = json_space(*at + 1);

    if (**at == '}' || **at == ']' || *value == '}' || *value == ']')
        return NULL;
    if (name) {
        *name = value;
        value = json_space(json_space(json_skip_string(value)) + 1);
    }
    *at = json_space(json_skip(value, JSON_NESTED));
    return value;
}

/* Is the string at a place exactly this text? One that is spelled with escapes is not. */
static PROGRAM_UNUSED int json_is(const char *at, const char *text)
{
    const size_t length = strlen(text);

    return *at == '"' && strncmp(at + 1, text, length) == 0 && at[1 + length] == '"';
}

/* The place of a member's value, of the last one with that name; NULL when there is none, or this is no object. */
static PROGRAM_UNUSED char *json_member(char *at, const char *name)
{
    char *found = NULL, *value, *key;

    while ((*at == '{' || *at == ',') && (value = json_next(&at, &key)) != NULL)
        if (json_is(key, name))
            found = value;
    return found;
}

/* Writes a code point as UTF-8; returns what is behind it. */
static char *json_put_utf8(char *to, unsigned long code)
{
    if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xC0 | code >> 6);
        *to++ = (char)(0x80 | (code & 63));
    } else if (code < 0x10000) {
        *to++ = (char)(0xE0 | code >> 12);
        *to++ = (char)(0x80 | (code >> 6 & 63));
        *to++ = (char)(0x80 | (code & 63));
    } else {
        *to++ = (char)(0xF0 | code >> 18);
        *to++ = (char)(0x80 | (code >> 12 & 63));
        *to++ = (char)(0x80 | (code >> 6 & 63));
        *to++ = (char)(0x80 | (code & 63));
    }
    return to;
}

/* Decodes a string in place; at stands behind its opening quote. Terminates it with a zero byte that *length does not
   count, and returns what is behind the closing quote; NULL when it is no string. Half a surrogate pair is no text. */
static PROGRAM_UNUSED char *json_decode(char *at, size_t *length)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    char *to = at;
    const char *from = at;

    while (*at && *at != '"') {
        const char *name;
        long code, low;

        if (*at != '\\') {
            *to++ = *at++;
            continue;
        }
        at++;
        name = *at ? strchr(names, *at) : NULL;
        if (name) {
            *to++ = values[name - names];
            at++;
            continue;
        }
        code = *at == 'u' ? json_hex4(at + 1) : -1;
        if (code < 0 || (code >= 0xDC00 && code < 0xE000))
            return NULL;
        at += 5;
        if (code >= 0xD800 && code < 0xDC00) {
            low = at[0] == '\\' && at[1] == 'u' ? json_hex4(at + 2) : -1;
            if (low < 0xDC00 || low >= 0xE000)
                return NULL;
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
            at += 6;
        }
        to = json_put_utf8(to, (unsigned long)code);
    }
    if (!*at)
        return NULL;
    *to = 0;
    *length = (size_t)(to - from);
    return at + 1;
}
#endif
