/* json.h - the one writer of JSON: commas come by themselves, strings are escaped, what is no number is null.
   Include it behind program.h. */
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

/* A string: what JSON does not allow in one is escaped, bytes that are no UTF-8 become U+FFFD. */
static PROGRAM_UNUSED void json_quote(FILE *file, const char *text)
{
    int size;

    putc('"', file);
    for (; *text; text += size) {
        unsigned char c = (unsigned char)*text;

        size = json_sequence(text);
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
        json_quote(j->file, name);
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

static PROGRAM_UNUSED void json_text(json_writer *j, const char *name, const char *text)
{
    json_item(j, name);
    json_quote(j->file, text);
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
#endif
