/* write.h - text that grows, and JSON that is written into it: commas come by themselves, strings are escaped, bytes that
   are no UTF-8 become U+FFFD. (tools/json.h writes to files, and has names that are jansson's, too.) */
#ifndef SERVE_WRITE_H
#define SERVE_WRITE_H

/* Bytes that grow, with a zero byte behind them. broken: memory ran out, and some are missing. */
typedef struct text {
    char *bytes;
    size_t length, room;
    int broken;
} text;

#define NO_TEXT {NULL, 0, 0, 0}

static void text_add(text *t, const char *bytes, size_t length)
{
    if (!t->bytes || t->room - t->length <= length) {
        const size_t room = 2 * (t->length + length) + 128;
        char *grown = (char *)realloc(t->bytes, room);

        if (!grown) {
            t->broken = 1;
            return;
        }
        t->bytes = grown;
        t->room = room;
    }
    if (length)
        memcpy(t->bytes + t->length, bytes, length);
    t->length += length;
    t->bytes[t->length] = 0;
}

static void text_say(text *t, const char *words) { text_add(t, words, strlen(words)); }

static void text_print(text *t, const char *format, ...)
{
    char line[512];
    va_list list;
    int length;

    va_start(list, format);
    length = vsnprintf(line, sizeof line, format, list);
    va_end(list);
    if (length > 0)
        text_add(t, line, (size_t)length < sizeof line ? (size_t)length : sizeof line - 1);
}

static void text_free(text *t)
{
    free(t->bytes);
    memset(t, 0, sizeof *t);
}

enum { WRITER_DEPTH = 16 }; /* objects and arrays inside each other, at most */

typedef struct writer {
    text *out;
    int depth;
    char close[WRITER_DEPTH];
    int items[WRITER_DEPTH];
} writer;

static writer write_to(text *out)
{
    writer w;

    memset(&w, 0, sizeof w);
    w.out = out;
    return w;
}

/* Bytes of the UTF-8 character at the beginning of some, 0 when that begins none (Unicode, table 3-7). */
static size_t utf8_character(const unsigned char *at, size_t length)
{
    const size_t size = at[0] < 0x80 ? 1 : at[0] < 0xC2 ? 0 : at[0] < 0xE0 ? 2 : at[0] < 0xF0 ? 3 : at[0] < 0xF5 ? 4 : 0;
    size_t i;

    if (!size || size > length)
        return 0;
    for (i = 1; i < size; i++)
        if ((at[i] & 0xC0) != 0x80)
            return 0;
    if ((at[0] == 0xE0 && at[1] < 0xA0) || (at[0] == 0xED && at[1] >= 0xA0) || (at[0] == 0xF0 && at[1] < 0x90) ||
        (at[0] == 0xF4 && at[1] >= 0x90))
        return 0;
    return size;
}

/* How many bytes at the beginning of some end with no character that is cut. */
static size_t utf8_whole(const char *bytes, size_t length)
{
    size_t at = length;

    while (at && length - at < 3 && ((unsigned char)bytes[at - 1] & 0xC0) == 0x80)
        at--;
    if (!at || (unsigned char)bytes[at - 1] < 0xC2)
        return length;
    at--; /* a character begins here */
    return length - at < ((unsigned char)bytes[at] < 0xE0 ? 2u : (unsigned char)bytes[at] < 0xF0 ? 3u : 4u) ? at : length;
}

static void put_quote(text *out, const char *bytes, size_t length)
{
    size_t from = 0, i = 0;

    text_add(out, "\"", 1);
    while (i < length) {
        const unsigned char c = (unsigned char)bytes[i];
        const size_t size = utf8_character((const unsigned char *)bytes + i, length - i);

        if (size && c >= ' ' && c != '"' && c != '\\' && c != 127) {
            i += size;
            continue;
        }
        text_add(out, bytes + from, i - from);
        if (!size)
            text_say(out, "\xEF\xBF\xBD");
        else if (c == '\n')
            text_say(out, "\\n");
        else if (c == '"' || c == '\\')
            text_print(out, "\\%c", c);
        else
            text_print(out, "\\u%04x", (unsigned)c);
        from = ++i;
    }
    text_add(out, bytes + from, length - from);
    text_add(out, "\"", 1);
}

/* What stands before an item: a comma, its name. name is NULL in an array. */
static void put_item(writer *w, const char *name)
{
    if (w->items[w->depth]++)
        text_add(w->out, ",", 1);
    if (name) {
        put_quote(w->out, name, strlen(name));
        text_add(w->out, ":", 1);
    }
}

static void put_open(writer *w, const char *name, const char *brackets)
{
    put_item(w, name);
    text_add(w->out, brackets, 1);
    if (w->depth + 1 < WRITER_DEPTH)
        w->depth++;
    w->close[w->depth] = brackets[1];
    w->items[w->depth] = 0;
}

static void put_object(writer *w, const char *name) { put_open(w, name, "{}"); }
static void put_array(writer *w, const char *name) { put_open(w, name, "[]"); }

/* Ends the innermost object or array. */
static void put_close(writer *w) { text_add(w->out, &w->close[w->depth--], 1); }

static void put_bytes(writer *w, const char *name, const char *bytes, size_t length)
{
    put_item(w, name);
    put_quote(w->out, length ? bytes : "", length);
}

static void put_text(writer *w, const char *name, const char *bytes) { put_bytes(w, name, bytes, strlen(bytes)); }

static void put_integer(writer *w, const char *name, long long value)
{
    put_item(w, name);
    text_print(w->out, "%lld", value);
}

/* A number as a printf format for doubles writes it; null when it is infinite or none. */
static void put_number(writer *w, const char *name, int digits, double value)
{
    put_item(w, name);
    if (value - value == 0)
        text_print(w->out, "%.*g", digits, value);
    else
        text_say(w->out, "null");
}

/* A value that is JSON already. */
static void put_raw(writer *w, const char *name, const char *value, size_t length)
{
    put_item(w, name);
    text_add(w->out, value, length);
}

static void put_null(writer *w, const char *name) { put_raw(w, name, "null", 4); }
static void put_truth(writer *w, const char *name, int value) { put_raw(w, name, value ? "true" : "false", value ? 4 : 5); }
#endif
