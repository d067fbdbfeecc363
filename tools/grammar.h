/* grammar.h - flags by which an answer obeys a grammar or a schema, and what they are compiled to. Include it behind
   program.h. */
#ifndef GRAMMAR_H
#define GRAMMAR_H

typedef struct grammar_flags {
    const char *file, *text, *schema; /* GBNF in a file, on the command line; a schema: a file, or a text */
    int json, space;
} grammar_flags;

/* Rows of a table of flags, for grammar_flags *g. */
#define GRAMMAR_FLAGS(g) \
    {"--grammar", PROGRAM_TEXT, &(g)->file, "FILE", "the answer obeys the grammar in this file (GBNF, as llama.cpp has it)", 0, 0}, \
    {"--grammar-text", PROGRAM_TEXT, &(g)->text, "TEXT", "the same, on the command line", 0, 0}, \
    {"--json-schema", PROGRAM_TEXT, &(g)->schema, "FILE|TEXT", "the answer is JSON that this schema accepts: a file, or a text that begins with {", 0, 0}, \
    {"--json", PROGRAM_SWITCH, &(g)->json, NULL, "the answer is JSON, of any kind", 0, 0}, \
    {"--json-space", PROGRAM_SWITCH, &(g)->space, NULL, "with white space wherever JSON may have it", 0, 0}

/* Compiles into memory that is never freed. Returns NULL, and has said why, when that fails. */
static PROGRAM_UNUSED const specdec_constraint *grammar_compile(const specdec_constraint_source *source)
{
    const specdec_constraint *constraint;
    specdec_error error;
    size_t bytes;
    void *memory;

    if (specdec_constraint_needed(source, &bytes, &error))
        return program_failed("", error.text), (const specdec_constraint *)NULL;
    memory = malloc(bytes);
    if (!memory || specdec_constraint_init(&constraint, source, memory, bytes, &error)) {
        program_failed(source->kind == SPECDEC_CONSTRAINT_GBNF ? "the grammar: " : "the schema: ",
                       memory ? error.text : "out of memory");
        free(memory);
        return NULL;
    }
    return constraint;
}

/* A schema: the text itself, if it begins with {, or what the file of that name holds. */
static PROGRAM_UNUSED const specdec_constraint *grammar_schema(const char *schema, int space)
{
    specdec_constraint_source source;
    const specdec_constraint *constraint;
    char *read = NULL;

    memset(&source, 0, sizeof source);
    source.kind = SPECDEC_CONSTRAINT_SCHEMA;
    source.compact = !space;
    source.text = schema;
    source.length = SPECDEC_WHOLE_STRING;
    if (schema[strspn(schema, " \t\r\n")] != '{') {
        source.text = read = program_read_file(schema, &source.length);
        if (!read)
            return NULL;
    }
    constraint = grammar_compile(&source);
    free(read);
    return constraint;
}

/* What the flags ask for; *constraint stays as it is when they ask for nothing. Returns a status. */
static PROGRAM_UNUSED int grammar_of(const grammar_flags *g, const specdec_constraint **constraint)
{
    const int given = !!g->file + !!g->text + !!g->schema + !!g->json;
    specdec_constraint_source source;
    char *read = NULL;

    if (given > 1)
        return program_misused("--grammar, --grammar-text, --json-schema and --json: one at a time", "");
    if (!given)
        return PROGRAM_OK;
    memset(&source, 0, sizeof source);
    source.kind = g->json ? SPECDEC_CONSTRAINT_JSON : SPECDEC_CONSTRAINT_GBNF;
    source.compact = !g->space;
    source.text = g->text;
    source.length = SPECDEC_WHOLE_STRING;
    if (g->file) {
        source.text = read = program_read_file(g->file, &source.length);
        if (!read)
            return PROGRAM_FAILED;
    }
    *constraint = g->schema ? grammar_schema(g->schema, g->space) : grammar_compile(&source);
    free(read);
    return *constraint ? PROGRAM_OK : PROGRAM_FAILED;
}
#endif
