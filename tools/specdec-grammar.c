/* specdec-grammar - checks texts against grammars and JSON schemas, says what may follow, and times it. */
#define _DEFAULT_SOURCE 1 /* POSIX, also under -std=c99 */
#include "specdec.h"
#include "program.h"

typedef struct options {
    const char *model, *grammar, *grammar_text, *schema, *regex, *file, *text, *suite, *texts;
    int json, compact, verbose, check, limit;
} options;

static int read_options(options *o, int argc, char **argv)
{
    const program_flag flags[] = {
        {"--grammar", PROGRAM_TEXT, (void *)&o->grammar, "FILE", "a grammar (GBNF)", 0, 0},
        {"--grammar-text", PROGRAM_TEXT, (void *)&o->grammar_text, "TEXT", "the same, on the command line", 0, 0},
        {"--json-schema", PROGRAM_TEXT, (void *)&o->schema, "FILE|TEXT", "a JSON schema: a file, or a text that begins with {", 0, 0},
        {"--regex", PROGRAM_TEXT, (void *)&o->regex, "TEXT", "a regular expression", 0, 0},
        {"--json", PROGRAM_SWITCH, &o->json, NULL, "any JSON value", 0, 0},
        {"--compact", PROGRAM_SWITCH, &o->compact, NULL, "JSON without white space", 0, 0},
        {"-f", PROGRAM_TEXT, (void *)&o->file, "FILE", "does this file match? - is standard input", 0, 0},
        {"-p", PROGRAM_TEXT, (void *)&o->text, "TEXT", "does this text match?", 0, 0},
        {"-m", PROGRAM_TEXT, (void *)&o->model, "FILE", "a GGUF file with a vocabulary: tokens that may follow, and times", 0, 0},
        {"--suite", PROGRAM_TEXT, (void *)&o->suite, "FILE",
         "lines of {\"name\",\"schema\",\"tests\":[{\"valid\",\"data\"}]}: which compile, what is accepted; ends with a line of\n"
         "JSON", 0, 0},
        {"--texts", PROGRAM_TEXT, (void *)&o->texts, "FILE",
         "writes the suite's texts as they were tried, without white space: line of the suite, valid (1, 0), text; tabs\n"
         "between them", 0, 0},
        {"--limit", PROGRAM_INTEGER, &o->limit, "N", "lines of the suite that are read; 0: all (0)", 0, 1 << 30},
        {"--check", PROGRAM_SWITCH, &o->check, NULL, "masks are compared with questions, token by token: slow", 0, 0},
        {"-v", PROGRAM_SWITCH, &o->verbose, NULL, "says which of the suite's schemas and texts go wrong", 0, 0},
        {NULL, PROGRAM_SWITCH, NULL, NULL, NULL, 0, 0}};
    int status;

    memset(o, 0, sizeof *o);
    status = program_read(flags, argc, argv, "specdec-grammar",
                          "(--grammar FILE | --json-schema FILE | --regex TEXT | --json) [-f FILE | -p TEXT] [-m VOCAB.gguf]\n"
                          "       specdec-grammar -m VOCAB.gguf --suite FILE.jsonl", "");
    if (status != PROGRAM_GO_ON)
        return status;
    if (o->suite ? !o->model : !!o->grammar + !!o->grammar_text + !!o->schema + !!o->regex + !!o->json != 1)
        return program_misused(o->suite ? "--suite needs -m: which vocabulary?"
                                        : "exactly one of --grammar, --grammar-text, --json-schema, --regex and --json is needed", "");
    return PROGRAM_GO_ON;
}

/* ---- A vocabulary, a constraint, a text. */

typedef struct vocabulary {
    specdec_model *model;
    const specdec_token_trie *trie;
    void *memory, *trie_memory;
    uint32_t *mask;
    int size;
} vocabulary;

static int open_vocabulary(vocabulary *v, const char *path)
{
    specdec_config config;
    specdec_model_info info;
    specdec_error error;
    size_t bytes;

    memset(v, 0, sizeof *v);
    if (!path)
        return PROGRAM_OK;
    memset(&config, 0, sizeof config);
    config.target.path = path;
    config.threads = config.vocabulary_only = 1;
    config.hooks.log = program_warn;
    if (specdec_model_memory_needed(&config, &bytes, &error))
        return program_failed("", error.text);
    v->memory = malloc(bytes);
    if (!v->memory || specdec_model_init(&v->model, &config, v->memory, bytes, &error))
        return program_failed("", v->memory ? error.text : "out of memory");
    specdec_get_model_info(v->model, &info);
    v->size = info.vocabulary;
    if (specdec_token_trie_needed(v->model, &bytes, &error))
        return program_failed("", error.text);
    v->trie_memory = malloc(bytes);
    v->mask = (uint32_t *)calloc((size_t)v->size / 32 + 1, 4);
    if (!v->mask || !v->trie_memory || specdec_token_trie_init(&v->trie, v->model, v->trie_memory, bytes, &error))
        return program_failed("", v->trie_memory && v->mask ? error.text : "out of memory");
    return PROGRAM_OK;
}

static void close_vocabulary(vocabulary *v)
{
    specdec_model_deinit(v->model);
    free(v->memory);
    free(v->trie_memory);
    free(v->mask);
}

/* A constraint in memory that grows with what is compiled in it. */
typedef struct compiled {
    const specdec_constraint *constraint;
    specdec_constraint_state *state;
    void *memory, *state_memory, *scratch;
    size_t bytes, scratch_bytes;
    double seconds;
} compiled;

static specdec_result compile(compiled *c, const specdec_constraint_source *source, specdec_error *error)
{
    size_t bytes;
    specdec_result result = specdec_constraint_needed(source, &bytes, error);
    double from;

    if (result)
        return result;
    if (bytes > c->bytes) {
        free(c->memory);
        c->memory = malloc(bytes);
        c->bytes = c->memory ? bytes : 0;
    }
    from = program_seconds();
    result = specdec_constraint_init(&c->constraint, source, c->memory, c->bytes, error);
    c->seconds = program_seconds() - from;
    if (result)
        return result;
    if (!c->state_memory) {
        c->scratch_bytes = specdec_constraint_mask_memory(c->constraint);
        c->scratch = malloc(c->scratch_bytes);
        c->state_memory = malloc(specdec_constraint_state_bytes(c->constraint));
    }
    c->state = specdec_constraint_begin(c->constraint, c->state_memory, specdec_constraint_state_bytes(c->constraint));
    return c->state && c->scratch ? SPECDEC_OK : SPECDEC_ERROR_MEMORY;
}

static void forget(compiled *c)
{
    free(c->memory);
    free(c->state_memory);
    free(c->scratch);
}

/* Times of single tokens. */
typedef struct timings {
    float *seconds;
    size_t count, room;
    double questions, slow; /* slow: tokens that take longer are told; 0: none are */
} timings;

static void note_time(timings *t, double seconds)
{
    if (t->count == t->room) {
        float *more = (float *)realloc(t->seconds, (t->room = 2 * t->room + 1024) * sizeof *more);

        if (!more)
            return;
        t->seconds = more;
    }
    t->seconds[t->count++] = (float)seconds;
}

static int compare_floats(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

/* Compares a mask with the answers to single questions. Returns how many differ. */
static int check_mask(const compiled *c, const vocabulary *v)
{
    int token, wrong = 0;

    for (token = 0; token < v->size; token++)
        wrong += specdec_constraint_token(c->constraint, c->state, v->trie, token) != (int)(v->mask[token / 32] >> token % 32 & 1);
    return wrong;
}

/* The tokens of a text; NULL: there is no memory. */
static int32_t *tokens_of(const vocabulary *v, const char *text, size_t length, int *count)
{
    const size_t bytes = specdec_tokenize_memory(v->model, length);
    const int capacity = (int)(4 * length + 8);
    int32_t *tokens = (int32_t *)malloc((size_t)capacity * sizeof *tokens);
    void *memory = malloc(bytes);

    if (tokens && (!memory || specdec_tokenize(v->model, text, length, SPECDEC_TOKENIZE_INSIDE, tokens, capacity, count, memory,
                                               bytes, NULL))) {
        free(tokens);
        tokens = NULL;
    }
    free(memory);
    return tokens;
}

/* Is a text accepted, as bytes? */
static int accepts(compiled *c, const char *text, size_t length)
{
    specdec_constraint_begin(c->constraint, c->state_memory, specdec_constraint_state_bytes(c->constraint));
    return specdec_constraint_advance(c->constraint, c->state, text, length) == length &&
           specdec_constraint_complete(c->constraint, c->state);
}

/* Reads a text token by token with a full mask in front of each. Returns 0 when a token that the bytes allow is not in
   its mask, or with check when any bit of a mask is wrong. */
static int time_tokens(compiled *c, const vocabulary *v, const char *text, size_t length, timings *t, int check)
{
    int count = 0, i, good = 1;
    int32_t *tokens = tokens_of(v, text, length, &count);
    char bytes[1024];
    size_t size;

    specdec_constraint_begin(c->constraint, c->state_memory, specdec_constraint_state_bytes(c->constraint));
    for (i = 0; tokens && i < count; i++) {
        double from, between;

        if (specdec_token_text(v->model, tokens[i], bytes, sizeof bytes, &size, NULL))
            continue;
        from = program_seconds();
        specdec_constraint_token(c->constraint, c->state, v->trie, tokens[i]);
        between = program_seconds();
        t->questions += between - from;
        specdec_constraint_mask(c->constraint, c->state, v->trie, v->mask, c->scratch, c->scratch_bytes);
        if (check && check_mask(c, v)) {
            if (good)
                fprintf(stderr, "mask and questions differ at token %d of %.*s\n", i, (int)(length < 200 ? length : 200), text);
            good = 0;
        }
        if (!(v->mask[tokens[i] / 32] >> tokens[i] % 32 & 1)) {
            fprintf(stderr, "token %d (%.*s) is not in its mask: %.*s\n", i, (int)size, bytes, (int)(length < 200 ? length : 200), text);
            good = 0;
        }
        if (check)
            between = program_seconds();
        specdec_constraint_advance(c->constraint, c->state, bytes, size);
        between = program_seconds() - between;
        note_time(t, between);
        if (t->slow > 0 && between > t->slow)
            printf("slow: %.2f ms in front of token %d (%.*s) of %.*s\n", between * 1e3, i, (int)size, bytes,
                   (int)(length < 160 ? length : 160), text);
    }
    free(tokens);
    return good;
}

/* ---- JSON, read into nodes. */

typedef struct value {
    const char *from, *to;   /* the text that spells it */
    char kind;               /* its first byte; 't', 'f', 'n', '0' for numbers */
    struct value *key;       /* of a member */
    struct value *child, *next;
} value;

typedef struct reader {
    const char *at, *end;
    value *room;
    size_t used, count;
} reader;

static void skip_space(reader *r)
{
    while (r->at < r->end && strchr(" \t\r\n", *r->at) && *r->at)
        r->at++;
}

static value *read_value(reader *r, int depth)
{
    value *v, **last, *key = NULL;

    skip_space(r);
    if (r->used == r->count || r->at >= r->end || depth > 200)
        return NULL;
    v = &r->room[r->used++];
    memset(v, 0, sizeof *v);
    v->from = r->at;
    v->kind = *r->at;
    last = &v->child;
    if (v->kind == '"') {
        for (r->at++; r->at < r->end && *r->at != '"'; r->at++)
            r->at += *r->at == '\\';
        r->at++;
    } else if (v->kind == '{' || v->kind == '[') {
        r->at++;
        for (skip_space(r); r->at < r->end && *r->at != '}' && *r->at != ']'; skip_space(r)) {
            if (v->kind == '{') {
                if ((key = read_value(r, depth + 1)) == NULL)
                    return NULL;
                skip_space(r);
                r->at++;
            }
            if ((*last = read_value(r, depth + 1)) == NULL)
                return NULL;
            (*last)->key = key;
            last = &(*last)->next;
            skip_space(r);
            r->at += r->at < r->end && *r->at == ',';
        }
        r->at++;
    } else {
        v->kind = strchr("tfn", v->kind) ? v->kind : '0';
        while (r->at < r->end && !strchr(",]} \t\r\n", *r->at))
            r->at++;
    }
    v->to = r->at;
    return v;
}

static int same_text(const value *a, const char *text, size_t size)
{
    return (size_t)(a->to - a->from) == size + 2 && memcmp(a->from + 1, text, size) == 0;
}

static value *member(const value *object, const char *name)
{
    value *v = object && object->kind == '{' ? object->child : NULL, *found = NULL;

    for (; v; v = v->next)
        if (same_text(v->key, name, strlen(name)))
            found = v;
    return found;
}

/* ---- Texts in the order of the schema's properties. */

#define SCHEMAS 256

typedef struct schemas {
    const value *list[SCHEMAS];
    int count;
} schemas;

static void add_schema(schemas *s, const value *v)
{
    int i;

    for (i = 0; i < s->count; i++)
        if (s->list[i] == v)
            return;
    if (v && v->kind == '{' && s->count < SCHEMAS)
        s->list[s->count++] = v;
}

/* What a local reference names. */
static const value *target(const value *root, const value *ref)
{
    const char *at = ref->from + 1, *end = ref->to - 1;
    const value *v = root;

    while (at < end && *at != '#')
        at++;
    for (at++; at < end && v;) {
        char name[256];
        size_t n = 0;

        if (*at++ != '/')
            return NULL;
        for (; at < end && *at != '/' && n < sizeof name - 1; at++) {
            int c = *at;

            if (c == '%' && end - at > 2) {
                char hex[3] = {at[1], at[2], 0};
                c = (int)strtol(hex, NULL, 16);
                at += 2;
            } else if (c == '~' && end - at > 1) {
                c = *++at == '0' ? '~' : '/';
            }
            name[n++] = (char)c;
        }
        name[n] = 0;
        if (v->kind == '[') {
            long i = strtol(name, NULL, 10);

            for (v = v->child; v && i > 0; i--)
                v = v->next;
        } else {
            v = member(v, name);
        }
    }
    return v;
}

/* Does an object have all members that a schema requires? */
static int fits(const value *object, const value *root, const value *schema)
{
    const value *ref = member(schema, "$ref"), *list, *name;

    if (ref && ref->kind == '"')
        schema = target(root, ref);
    list = member(schema, "required");
    for (name = list && list->kind == '[' ? list->child : NULL; name; name = name->next) {
        const value *m = object->kind == '{' ? object->child : NULL;

        while (m && !same_text(m->key, name->from + 1, (size_t)(name->to - name->from) - 2))
            m = m->next;
        if (!m)
            return 0;
    }
    return 1;
}

/* All schemas that may say something of a value: what is sure first, then alternatives, beginning at one of them; of
   these first those that the value has the members of. */
static void spread(schemas *s, const value *object, const value *root, int turn)
{
    static const char *const sure[] = {"allOf"}, *const perhaps[] = {"anyOf", "oneOf"}, *const single[] = {"if", "then", "else", "not"};
    int done = 0, branched = 0;
    size_t k;

    while (done < s->count || branched < s->count) {
        if (done < s->count) {
            const value *v = s->list[done++], *m;

            for (m = v->child; m; m = m->next) { /* in the order of the text */
                const value *one;

                if (same_text(m->key, "$ref", 4) && m->kind == '"')
                    add_schema(s, target(root, m));
                for (k = 0; k < 1; k++)
                    if (same_text(m->key, sure[k], strlen(sure[k])))
                        for (one = m->child; one; one = one->next)
                            add_schema(s, one);
            }
        } else {
            const value *v = s->list[branched++], *m, *one;

            for (k = 0; k < 2; k++)
                if ((m = member(v, perhaps[k])) != NULL && m->kind == '[') {
                    int i = 0;

                    for (one = m->child; one; one = one->next)
                        if (i++ >= turn && fits(object, root, one))
                            add_schema(s, one);
                    for (one = m->child; one; one = one->next)
                        add_schema(s, one);
                }
            for (k = 0; k < 4; k++)
                add_schema(s, member(v, single[k]));
            if ((m = member(v, "dependencies")) != NULL || (m = member(v, "dependentSchemas")) != NULL)
                for (one = m->child; one; one = one->next)
                    add_schema(s, one);
        }
    }
}

typedef struct output {
    char *text;
    size_t size, room;
} output;

static void put(output *out, const char *text, size_t size)
{
    if (size > out->room - out->size) {
        out->room = 2 * out->room + size + 1024;
        out->text = (char *)realloc(out->text, out->room);
        if (!out->text)
            exit(program_failed("out of memory", ""));
    }
    memcpy(out->text + out->size, text, size);
    out->size += size;
}

static void write_value(output *out, const value *v, const value *root, schemas *s, int spaced, int turn);

/* Schemas of a member, of those of its object. */
static void member_schemas(schemas *out, const schemas *s, const value *key)
{
    int i;

    out->count = 0;
    for (i = 0; i < s->count; i++) {
        const value *p = member(s->list[i], "properties"), *v = p && p->kind == '{' ? p->child : NULL;

        for (; v; v = v->next)
            if (same_text(v->key, key->from + 1, (size_t)(key->to - key->from) - 2))
                add_schema(out, v);
        if ((p = member(s->list[i], "patternProperties")) != NULL)
            for (v = p->child; v; v = v->next)
                add_schema(out, v);
        add_schema(out, member(s->list[i], "additionalProperties"));
    }
}

static void write_object(output *out, const value *v, const value *root, const schemas *s, int spaced, int turn)
{
    schemas *inner = (schemas *)malloc(sizeof *inner);
    const value *m;
    char *written;
    int i, first = 1, count = 0, k;

    for (m = v->child; m; m = m->next)
        count++;
    written = (char *)calloc((size_t)count + 1, 1);
    if (!inner || !written)
        exit(program_failed("out of memory", ""));
    put(out, "{", 1);
    for (i = 0; i <= s->count; i++) {
        const value *p = i < s->count ? member(s->list[i], "properties") : NULL, *list = i < s->count ? p ? p->child : NULL : v->child;

        if (p && p->kind != '{')
            continue;
        for (; list; list = list->next)
            for (k = 0, m = v->child; m; m = m->next, k++)
                if (!written[k] && same_text(m->key, list->key->from + 1, (size_t)(list->key->to - list->key->from) - 2)) {
                    written[k] = 1;
                    put(out, ", ", first ? 0 : spaced ? 2 : 1);
                    put(out, m->key->from, (size_t)(m->key->to - m->key->from));
                    put(out, ": ", spaced ? 2 : 1);
                    member_schemas(inner, s, m->key);
                    write_value(out, m, root, inner, spaced, turn);
                    first = 0;
                }
    }
    put(out, "}", 1);
    free(written);
    free(inner);
}

static void write_value(output *out, const value *v, const value *root, schemas *s, int spaced, int turn)
{
    const value *item;

    if (v->kind != '{' && v->kind != '[') {
        put(out, v->from, (size_t)(v->to - v->from));
        return;
    }
    spread(s, v, root, turn);
    if (v->kind == '{') {
        write_object(out, v, root, s, spaced, turn);
        return;
    }
    put(out, "[", 1);
    for (item = v->child; item; item = item->next) {
        schemas *inner = (schemas *)malloc(sizeof *inner);
        int i;

        if (!inner)
            exit(program_failed("out of memory", ""));
        inner->count = 0;
        for (i = 0; i < s->count; i++) {
            static const char *const keys[] = {"items", "prefixItems", "additionalItems"};
            size_t k;

            for (k = 0; k < 3; k++) {
                const value *items = member(s->list[i], keys[k]), *one = items && items->kind == '[' ? items->child : NULL;

                add_schema(inner, items);
                for (; one; one = one->next)
                    add_schema(inner, one);
            }
        }
        if (item != v->child)
            put(out, ", ", spaced ? 2 : 1);
        write_value(out, item, root, inner, spaced, turn);
        free(inner);
    }
    put(out, "]", 1);
}

/* ---- The suite. */

#define TURNS 4 /* orders of properties that are tried where alternatives have several */

typedef struct score {
    int schemas, compiled, valid, refused, invalid, accepted, wrong_masks;
    float *compile_times;
    timings times;
    FILE *texts; /* or NULL */
} score;

/* One instance. valid: it must be accepted in some order, with and without white space; else refused in all. */
static void run_instance(score *r, compiled *c, const vocabulary *v, const options *o, const value *line, const value *test)
{
    const value *data = member(test, "data"), *valid = member(test, "valid"), *name = member(line, "name");
    const value *schema = member(line, "schema");
    output out = {NULL, 0, 0};
    int spaced, turn, all = 1, any = 0;

    if (!data || !valid)
        return;
    for (spaced = 0; spaced < (o->compact ? 1 : 2); spaced++) {
        int one = 0;

        for (turn = 0; turn < TURNS && !one; turn++) {
            schemas s;

            s.count = 0;
            add_schema(&s, schema);
            out.size = 0;
            write_value(&out, data, schema, &s, spaced, turn);
            one = accepts(c, out.text, out.size);
            if (one && valid->kind == 't' && !spaced && !time_tokens(c, v, out.text, out.size, &r->times, o->check))
                r->wrong_masks++;
        }
        all &= one;
        any |= one;
        if (!spaced && r->texts)
            fprintf(r->texts, "%d\t%d\t%.*s\n", r->schemas, valid->kind == 't', (int)out.size, out.text);
    }
    if (valid->kind == 't') {
        r->valid++;
        r->refused += !all;
    } else {
        r->invalid++;
        r->accepted += any;
    }
    if (o->verbose && (valid->kind == 't' ? !all : any)) {
        size_t taken;

        specdec_constraint_begin(c->constraint, c->state_memory, specdec_constraint_state_bytes(c->constraint));
        taken = specdec_constraint_advance(c->constraint, c->state, out.text, out.size);
        printf("%s %.*s: %.*s\n  taken %zu of %zu: ...%.*s\n", valid->kind == 't' ? "REFUSED" : "ACCEPTED",
               (int)(name->to - name->from), name->from, (int)(out.size < 400 ? out.size : 400), out.text, taken, out.size,
               (int)(out.size - taken < 60 ? out.size - taken : 60), out.text + taken);
    }
    free(out.text);
}

static void run_line(score *r, compiled *c, const vocabulary *v, const options *o, const char *at, const char *end)
{
    reader read;
    const value *line, *schema, *test, *name;
    specdec_constraint_source source;
    specdec_error error;

    memset(&read, 0, sizeof read);
    read.at = at;
    read.end = end;
    read.count = (size_t)(end - at) / 2 + 2;
    read.room = (value *)malloc(read.count * sizeof *read.room);
    line = read.room ? read_value(&read, 0) : NULL;
    schema = member(line, "schema");
    name = member(line, "name");
    if (schema) {
        r->schemas++;
        memset(&source, 0, sizeof source);
        source.kind = SPECDEC_CONSTRAINT_SCHEMA;
        source.text = schema->from;
        source.length = (size_t)(schema->to - schema->from);
        source.compact = o->compact;
        error.text[0] = 0;
        if (compile(c, &source, &error)) {
            if (o->verbose)
                printf("not compiled: %.*s: %s\n", name ? (int)(name->to - name->from) : 0, name ? name->from : "", error.text);
        } else {
            if (o->verbose && c->seconds > 0.02)
                printf("%.*s: compiled in %.1f ms\n", (int)(name->to - name->from), name->from, c->seconds * 1e3);
            r->compile_times[r->compiled++] = (float)c->seconds;
            for (test = member(line, "tests") ? member(line, "tests")->child : NULL; test; test = test->next)
                run_instance(r, c, v, o, line, test);
        }
    }
    free(read.room);
}

static int run_suite(const options *o, const vocabulary *v)
{
    size_t length = 0, i;
    char *text = program_read_file(o->suite, &length), *at = text;
    score r;
    compiled c;
    double sum = 0;

    memset(&r, 0, sizeof r);
    memset(&c, 0, sizeof c);
    if (!text)
        return PROGRAM_FAILED;
    r.times.slow = o->verbose ? 2e-3 : 0;
    if (o->texts && (r.texts = fopen(o->texts, "wb")) == NULL)
        return program_failed("cannot write ", o->texts);
    for (i = 0; i < length; i++)
        r.schemas += text[i] == '\n';
    r.compile_times = (float *)calloc((size_t)r.schemas + 1, sizeof *r.compile_times);
    r.schemas = 0;
    while (at < text + length && r.compile_times && (!o->limit || r.schemas < o->limit)) {
        char *end = (char *)memchr(at, '\n', (size_t)(text + length - at));

        end = end ? end : text + length;
        run_line(&r, &c, v, o, at, end);
        at = end + 1;
    }
    for (i = 0; i < r.times.count; i++)
        sum += r.times.seconds[i];
    qsort(r.times.seconds, r.times.count, sizeof *r.times.seconds, compare_floats);
    qsort(r.compile_times, (size_t)r.compiled, sizeof *r.compile_times, compare_floats);
    printf("%d schemas, %d compiled; of %d valid texts %d refused, of %d invalid ones %d accepted; masks that are wrong: %d\n",
           r.schemas, r.compiled, r.valid, r.refused, r.invalid, r.accepted, r.wrong_masks);
    if (r.times.count)
        printf("%zu tokens: mask and advance %.2f us in the mean, %.1f in the median; a question %.2f us\n", r.times.count,
               sum / (double)r.times.count * 1e6, r.times.seconds[r.times.count / 2] * 1e6,
               r.times.questions / (double)r.times.count * 1e6);
    printf("{\"schemas\":%d,\"compiled\":%d,\"valid_refused\":%d,\"invalid_accepted\":%d,\"us_mean\":%.2f,\"us_p99\":%.2f,"
           "\"compile_ms_median\":%.3f}\n", r.schemas, r.compiled, r.refused, r.accepted,
           r.times.count ? sum / (double)r.times.count * 1e6 : 0,
           r.times.count ? r.times.seconds[r.times.count * 99 / 100] * 1e6 : 0,
           r.compiled ? r.compile_times[r.compiled / 2] * 1e3 : 0);
    if (r.texts && fclose(r.texts))
        return program_failed("cannot write ", o->texts);
    free(r.times.seconds);
    free(r.compile_times);
    forget(&c);
    free(text);
    return r.wrong_masks ? PROGRAM_FAILED : PROGRAM_OK;
}

/* ---- A single text. */

/* Says what may follow. */
static void print_next(compiled *c, const vocabulary *v)
{
    uint32_t mask[8];
    char forced[200];
    size_t size = specdec_constraint_forced(c->constraint, c->state, forced, sizeof forced);
    int i, from = -1, count = specdec_constraint_next(c->constraint, c->state, mask);

    printf("%d bytes may follow:", count);
    for (i = 0; i <= 256; i++) {
        const int set = i < 256 && mask[i >> 5] >> (i & 31) & 1;

        if (set && from < 0)
            from = i;
        if (!set && from >= 0) {
            printf(from > 32 && from < 127 ? " %c" : " %02x", from);
            if (i - 1 > from)
                printf(i - 1 > 32 && i - 1 < 127 ? "-%c" : "-%02x", i - 1);
            from = -1;
        }
    }
    printf("\n");
    if (size)
        printf("these must: %.*s\n", (int)size, forced);
    if (v->trie && specdec_constraint_mask(c->constraint, c->state, v->trie, v->mask, c->scratch, c->scratch_bytes)) {
        for (i = count = 0; i < v->size; i++)
            count += (int)(v->mask[i / 32] >> i % 32 & 1);
        printf("%d of %d tokens may follow\n", count, v->size);
    }
}

static int run_text(const options *o, const vocabulary *v)
{
    specdec_constraint_source source;
    specdec_error error;
    compiled c;
    timings t;
    char *grammar = NULL, *text = NULL;
    const char *in = o->text;
    size_t length = 0, taken;
    int status = PROGRAM_OK;

    memset(&source, 0, sizeof source);
    memset(&c, 0, sizeof c);
    memset(&t, 0, sizeof t);
    source.kind = o->grammar || o->grammar_text ? SPECDEC_CONSTRAINT_GBNF : o->schema ? SPECDEC_CONSTRAINT_SCHEMA
                  : o->regex ? SPECDEC_CONSTRAINT_REGEX : SPECDEC_CONSTRAINT_JSON;
    source.text = o->grammar_text ? o->grammar_text : o->regex ? o->regex : o->schema;
    source.length = SPECDEC_WHOLE_STRING;
    source.compact = o->compact;
    if (o->grammar || (o->schema && o->schema[strspn(o->schema, " \t\r\n")] != '{')) {
        source.text = grammar = program_read_file(o->grammar ? o->grammar : o->schema, &source.length);
        if (!grammar)
            return PROGRAM_FAILED;
    }
    if (compile(&c, &source, &error))
        status = program_failed("", error.text);
    else
        printf("compiled in %.3f ms, %zu bytes; %zu for a state\n", c.seconds * 1e3, specdec_constraint_bytes(c.constraint),
               specdec_constraint_state_bytes(c.constraint));
    if (!status && o->file) {
        in = text = program_read_file(o->file, &length);
        status = text ? PROGRAM_OK : PROGRAM_FAILED;
    } else if (in) {
        length = strlen(in);
    }
    if (!status && in) {
        taken = specdec_constraint_advance(c.constraint, c.state, in, length);
        if (taken < length)
            printf("it does not match: byte %zu of %zu may not stand there\n", taken, length);
        else
            printf(specdec_constraint_complete(c.constraint, c.state) ? "it matches\n" : "it is not whole yet\n");
        status = taken < length || !specdec_constraint_complete(c.constraint, c.state) ? PROGRAM_FAILED : PROGRAM_OK;
    }
    if (c.constraint)
        print_next(&c, v);
    if (!status && in && v->model && length && time_tokens(&c, v, in, length, &t, o->check) && t.count) {
        double sum = 0;
        size_t i;

        for (i = 0; i < t.count; i++)
            sum += t.seconds[i];
        printf("%zu tokens: mask and advance %.2f us in the mean; a question %.2f us\n", t.count, sum / (double)t.count * 1e6,
               t.questions / (double)t.count * 1e6);
    }
    free(t.seconds);
    free(text);
    free(grammar);
    forget(&c);
    return status;
}

int main(int argc, char **argv)
{
    options o;
    vocabulary v;
    int status = read_options(&o, argc, argv);

    if (status != PROGRAM_GO_ON)
        return status;
    status = open_vocabulary(&v, o.model);
    if (!status)
        status = o.suite ? run_suite(&o, &v) : run_text(&o, &v);
    close_vocabulary(&v);
    return program_finish(status);
}
