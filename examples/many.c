/* many - many texts in one engine: lines of JSON with prompts in, lines with their continuations out. One step writes a
   token or more of all texts under way; each text is the same to the byte as alone. */
#define _DEFAULT_SOURCE 1 /* POSIX, also under -std=c99 */
#include "specdec.h"
#include "tools/program.h"
#include "tools/json.h"
#include "tools/settings.h"
#include "tools/grammar.h"

enum { HISTORY = 65536 }; /* tokens of finished texts that are drafted from */

typedef struct options {
    specdec_config config;
    const char *file, *seen;
    unsigned given; /* settings that are flags: see settings_given */
    int limit, spec, in_order, ids, special;
    grammar_flags grammar;
} options;

/* A line of the input, and what becomes of it. */
typedef struct job {
    const char *line, *id; /* id: as it stands in the line; NULL: it has none */
    size_t length, id_length;
    int number;            /* of the line, from 1 */
    specdec *text;         /* while it is being written */
    void *constraint;      /* what that obeys by its line; NULL: nothing */
    char *answer;          /* (room): bytes and a zero byte */
    size_t bytes, room;
    int limit;             /* tokens of its answer, at most; -1: no limit of its own */
    int prompted, tokens;  /* tokens of the prompt, of the answer */
    int32_t *ids;          /* all of them, one behind the other, if asked for */
    const char *stop;      /* why the answer ended */
    char error[SPECDEC_ERROR_TEXT_SIZE]; /* why there is none, or "" */
    int done;
} job;

/* All jobs. Those before `first` are done, those from `last` on were never begun; `next` is the next one to look at. */
typedef struct work {
    const options *o;
    specdec *engine;
    specdec_settings settings; /* of lines that say nothing else */
    job *jobs;             /* (count) */
    char *copy;            /* of a line, to be decoded in place */
    char *seen;            /* what was seen before: seen_size bytes; NULL: nothing */
    size_t seen_size;
    int count, first, next, last;
    int streams, running;  /* texts at a time: at most, now */
    int done, failed;      /* jobs */
    int lost;              /* errno of standard output; 0: it takes lines */
    long long tokens, prompted, prefilled; /* of answers, of prompts, and how many of these were read */
} work;

static volatile sig_atomic_t interrupted;

/* Ctrl-C, once: ends the texts where they are. Twice: the program. */
static void on_interrupt(int number)
{
    if (interrupted)
        program_die(number);
    interrupted = 1;
    signal(SIGINT, on_interrupt); /* Windows forgets it */
}

/* specdec_hooks.progress: a bar while the engine is made. */
static int on_progress(void *user_data, const char *what, int done, int total)
{
    if (strcmp(what, "repack") == 0)
        program_progress(user_data, what, done, total);
    return interrupted;
}

/* --- lines out ---------------------------------------------------------------------------------------------------- */

/* Writes a job's line and forgets its answer. */
static void write_line(work *w, job *j)
{
    json_writer out;

    json_begin(&out, stdout);
    json_object(&out, NULL);
    if (j->id)
        json_raw(&out, "id", j->id, j->id_length);
    else
        json_integer(&out, "line", j->number);
    if (j->error[0]) {
        json_text(&out, "error", j->error);
    } else {
        json_bytes(&out, "text", j->bytes ? j->answer : "", j->bytes);
        json_integer(&out, "tokens", j->tokens);
        json_text(&out, "stop", j->stop);
        if (j->ids)
            json_integers(&out, "ids", j->ids, j->prompted + j->tokens);
    }
    json_close(&out);
    if ((fflush(stdout) || ferror(stdout)) && !w->lost)
        w->lost = errno ? errno : EIO;
    free(j->answer);
    free(j->ids);
    j->answer = NULL;
    j->ids = NULL;
}

/* Keeps the tokens of a job's text. Returns 0 when memory ran out. */
static int keep_ids(job *j)
{
    const int32_t *tokens;
    int count;

    specdec_tokens(j->text, &tokens, &count);
    j->ids = (int32_t *)malloc(((size_t)count + 1) * sizeof *j->ids);
    if (j->ids)
        memcpy(j->ids, tokens, (size_t)count * sizeof *j->ids);
    return j->ids != NULL;
}

/* Gives a job's text back. */
static void close_text(work *w, job *j)
{
    specdec_stats stats;

    specdec_get_stats(j->text, &stats);
    w->prompted += stats.prompt_tokens;
    w->prefilled += stats.prefilled_tokens;
    specdec_close(j->text);
    free(j->constraint);
    j->constraint = NULL;
    j->text = NULL;
    w->running--;
}

/* A job is done: its answer is complete, or error says why there is none. */
static void finish(work *w, job *j, const char *error)
{
    if (!error && w->o->ids && !keep_ids(j))
        error = "out of memory";
    snprintf(j->error, sizeof j->error, "%s", error ? error : "");
    close_text(w, j);
    j->done = 1;
    w->done++;
    w->failed += error != NULL;
    w->tokens += j->tokens;
    if (!w->o->in_order)
        write_line(w, j);
    for (; w->first < w->count && w->jobs[w->first].done; w->first++)
        if (w->o->in_order)
            write_line(w, &w->jobs[w->first]);
    if (!isatty(STDOUT_FILENO))
        program_progress(NULL, "texts", w->done, w->count);
}

/* --- lines in ----------------------------------------------------------------------------------------------------- */

/* The text of the string at a place, decoded in place; NULL when there is none. */
static const char *string_at(char *place, size_t *length)
{
    return place && *place == '"' && json_decode(place + 1, length) ? place + 1 : NULL;
}

/* Prompts a text with the messages of an array. Returns NULL, or what is wrong with them. */
static const char *prompt_messages(specdec *text, char *array)
{
    static const char *const roles[] = {"system", "user", "assistant"};
    specdec_message *messages = (specdec_message *)malloc((strlen(array) / 16 + 1) * sizeof *messages);
    const char *wrong = messages ? NULL : "out of memory";
    int count = 0;
    char *place;

    while (!wrong && (place = json_next(&array, NULL)) != NULL) {
        specdec_message *m = &messages[count++];
        char *role = json_member(place, "role"), *content = json_member(place, "content");
        int i = 0;

        while (i < 3 && !(role && json_is(role, roles[i])))
            i++;
        m->role = (specdec_role)i;
        m->special = 0;
        m->text = string_at(content, &m->length);
        if (i == 3 || !m->text)
            wrong = "a message needs a \"role\" (system, user or assistant) and a text as \"content\"";
    }
    if (!wrong && specdec_chat(text, messages, count))
        wrong = specdec_error_text(text);
    free(messages);
    return wrong;
}

enum { TOLD = 64 }; /* members whose names are told, at most */

/* Says, once for each name, that a member of a line means nothing; key: its place. */
static void note_unknown(const char *key, int number)
{
    static char told[TOLD][64];
    static int count;
    const int length = program_least((int)strcspn(key + 1, "\""), (int)sizeof told[0] - 1);
    int i = 0;

    while (i < count && (strncmp(told[i], key + 1, (size_t)length) != 0 || told[i][length]))
        i++;
    if (i < count || count == TOLD)
        return;
    snprintf(told[count++], sizeof told[0], "%.*s", length, key + 1);
    program_erase_bar();
    fprintf(stderr, "%s: line %d: \"%.*s\" counts for nothing, here and in other lines\n", program_name, number, length, key + 1);
}

/* Notes the members of a line that mean nothing. */
static void find_unknown(char *object, int number)
{
    static const char *const others[] = {"id", "prompt", "messages", "max_tokens", "max_completion_tokens", "stop", "schema"};
    char *key;
    size_t i, k;

    while (json_next(&object, &key)) {
        for (i = 0; i < PROGRAM_COUNT(others) && !json_is(key, others[i]); i++)
            continue;
        for (k = 0; k < SETTINGS && !(settings_table[k].member && json_is(key, settings_table[k].member)); k++)
            continue;
        if (i == PROGRAM_COUNT(others) && k == SETTINGS)
            note_unknown(key, number);
    }
}

/* The place of a member's value; NULL when there is none, or null. */
static char *given_member(char *object, const char *name)
{
    char *value = json_member(object, name);

    return value && *value == 'n' ? NULL : value;
}

/* The number at a place. Returns 0 when there is none. */
static int number_at(const char *place, double *value)
{
    if (*place != '-' && (*place < '0' || *place > '9'))
        return 0;
    *value = strtod(place, NULL);
    return 1;
}

/* The seed at a place, -1: from the clock, and said. Returns 0 when there is none. */
static int seed_at(const char *place, uint64_t *seed, int number)
{
    char *end;

    errno = 0;
    *seed = strtoull(place, &end, 10);
    if (strncmp(place, "-1", 2) == 0 && !strchr("0123456789.eE", place[2])) {
        *seed = program_clock_seed() + (uint64_t)number;
        program_erase_bar();
        fprintf(stderr, "%s: line %d: seed %llu\n", program_name, number, (unsigned long long)*seed);
        return 1;
    }
    return *place >= '0' && *place <= '9' && errno != ERANGE && !strchr(".eE", *end);
}

/* Takes the stop strings of a line in the place of others: a text, or an array of them. They are decoded in place.
   Returns NULL, or what is wrong. */
static const char *read_stops(specdec_settings *settings, char *place)
{
    char *one = *place == '[' ? NULL : place;
    size_t length;
    int count = 0;

    memset(settings->stop, 0, sizeof settings->stop);
    for (; one || (*place == '[' || *place == ','); one = NULL) {
        char *value = one ? one : json_next(&place, NULL);
        const char *text = value ? string_at(value, &length) : NULL;

        if (!value)
            break;
        if (!text || !length || strlen(text) != length)
            return "\"stop\" is a text or an array of texts, of one byte or more, without zero bytes";
        if (count == SPECDEC_STOP_STRINGS)
            return "\"stop\" holds too many texts";
        settings->stop[count++] = text;
        if (one)
            break;
    }
    return NULL;
}

/* Takes the settings of a line: see the help. Stop strings are decoded in place. Returns NULL, or what is wrong. */
static const char *read_settings(specdec_settings *settings, job *j, char *object)
{
    static char wrong[160];
    char *stop = given_member(object, "stop"), *most = given_member(object, "max_completion_tokens"), *at;
    double value;
    int i;

    for (i = 0; i < SETTINGS; i++) {
        const setting *s = &settings_table[i];

        at = s->member ? given_member(object, s->member) : NULL;
        if (!at || (s->kind == SETTING_SEED ? seed_at(at, &settings->sampling.seed, j->number)
                                            : number_at(at, &value) && setting_put(settings, s, value)))
            continue;
        if (s->kind == SETTING_SEED)
            return "\"seed\" is no whole number from 0 to 18446744073709551615, and not -1";
        snprintf(wrong, sizeof wrong, "\"%s\" is no %s from %.0f to %.0f", s->member,
                 s->kind == SETTING_INTEGER ? "whole number" : "number", s->low, s->high);
        return wrong;
    }
    at = given_member(object, "max_tokens");
    most = at ? at : most;
    if (most && (!number_at(most, &value) || !(value >= -1 && value <= 1 << 24) || value < (int)value || value > (int)value))
        return "\"max_tokens\" is no whole number from -1 to 16777216";
    j->limit = most ? (int)value : j->limit;
    settings->max_tokens = j->limit > 0 ? j->limit : 0;
    return stop ? read_stops(settings, stop) : NULL;
}

/* Compiles the schema at a place into memory of the job's. Returns NULL, or what is wrong. */
static const char *read_schema(const options *o, specdec_settings *settings, job *j, const char *place)
{
    static specdec_error failure;
    specdec_constraint_source source;
    size_t bytes;
    void *less;

    memset(&source, 0, sizeof source);
    source.kind = SPECDEC_CONSTRAINT_SCHEMA;
    source.compact = !o->grammar.space;
    source.text = place;
    source.length = (size_t)(json_skip((char *)(uintptr_t)place, JSON_NESTED) - place);
    if (specdec_constraint_needed(&source, &bytes, &failure))
        return failure.text;
    j->constraint = malloc(bytes);
    if (!j->constraint)
        return "out of memory";
    if (specdec_constraint_init(&settings->constraint, &source, j->constraint, bytes, &failure))
        return failure.text;
    less = malloc(specdec_constraint_bytes(settings->constraint)); /* a copy is as good, and smaller */
    if (less) {
        memcpy(less, settings->constraint, specdec_constraint_bytes(settings->constraint));
        free(j->constraint);
        j->constraint = less;
        settings->constraint = (const specdec_constraint *)less;
    }
    return NULL;
}

/* Prompts a job's text with plain text, or with one that may spell control tokens. Returns NULL, or what is wrong. */
static const char *prompt_text(const options *o, const job *j, const char *text, size_t length)
{
    char where[40];

    snprintf(where, sizeof where, "line %d: ", j->number);
    if (!o->special)
        program_note_control(specdec_get_model(j->text), text, length, where);
    return (o->special ? specdec_prompt_special : specdec_prompt)(j->text, text, length) ? specdec_error_text(j->text)
                                                                                        : NULL;
}

/* Prompts a job's text with what stands in a copy of its line. Returns NULL, or what is wrong with the line. */
static const char *prompt_line(const work *w, job *j, char *line)
{
    specdec_settings settings = w->settings;
    char *object = json_space(line), *behind = json_skip(object, JSON_NESTED);
    char *id, *prompt, *messages, *schema;
    const char *text, *wrong;
    size_t length;

    if (*object != '{' || !behind || *json_space(behind) || strlen(line) != j->length)
        return "this line is no JSON object";
    id = json_member(object, "id");
    j->id = id ? j->line + (id - line) : NULL;
    j->id_length = id ? (size_t)(json_skip(id, JSON_NESTED) - id) : 0;
    prompt = given_member(object, "prompt");
    messages = given_member(object, "messages");
    schema = given_member(object, "schema"); /* before strings of the line are written over */
    if (!prompt == !messages)
        return "a line needs either \"prompt\" or \"messages\"";
    find_unknown(object, j->number);
    wrong = read_settings(&settings, j, object);
    if (!wrong && schema)
        wrong = read_schema(w->o, &settings, j, j->line + (schema - line));
    if (wrong)
        return wrong;
    if (specdec_set(j->text, &settings))
        return specdec_error_text(j->text);
    if (messages)
        return *messages == '[' ? prompt_messages(j->text, messages) : "\"messages\" is no array";
    text = string_at(prompt, &length);
    if (!text)
        return "\"prompt\" is no text";
    return prompt_text(w->o, j, text, length);
}

/* Opens a text for a job and prompts it. What Ctrl-C stops here is not begun. */
static void begin(work *w, job *j)
{
    const char *wrong;

    if (specdec_open(w->engine, &j->text)) /* there are as many as texts run at a time */
        return;
    w->running++;
    memcpy(w->copy, j->line, j->length);
    w->copy[j->length] = 0;
    j->limit = w->o->limit;
    wrong = prompt_line(w, j, w->copy);
    specdec_tokens(j->text, NULL, &j->prompted);
    j->stop = "limit";
    if (wrong && interrupted)
        close_text(w, j);
    else if (wrong || !j->limit)
        finish(w, j, wrong);
}

/* --- the texts ---------------------------------------------------------------------------------------------------- */

/* Appends a piece to a job's answer. Returns 0 when memory ran out. */
static int append(job *j, specdec_text piece)
{
    if (j->bytes + piece.length >= j->room) {
        const size_t room = 2 * (j->bytes + piece.length) + 64;
        char *grown = (char *)realloc(j->answer, room);

        if (!grown)
            return 0;
        j->answer = grown;
        j->room = room;
    }
    memcpy(j->answer + j->bytes, piece.bytes, piece.length);
    j->bytes += piece.length;
    j->answer[j->bytes] = 0;
    return 1;
}

/* The cache has no room for so many texts: from now on there is one less at a time, and this one begins anew later. */
static void put_back(work *w, job *j)
{
    close_text(w, j);
    w->streams = w->running;
    j->bytes = 0;
    w->next = program_least(w->next, (int)(j - w->jobs));
}

/* Takes what a text has ready. */
static void collect(work *w, job *j)
{
    static const char *const stops[] = {"none", "end", "string", "limit", "context", "cancelled", "constraint"};
    specdec_text piece;
    specdec_result result;

    do {
        result = specdec_take(j->text, &piece);
        if ((!result || result == SPECDEC_DONE) && !append(j, piece)) {
            finish(w, j, "out of memory");
            return;
        }
    } while (!result);
    specdec_tokens(j->text, NULL, &j->tokens);
    j->tokens -= j->prompted;
    j->stop = stops[result == SPECDEC_DONE ? specdec_stopped(j->text, NULL) : SPECDEC_STOP_CANCELLED];
    if (result == SPECDEC_DONE || interrupted)
        finish(w, j, NULL);
    else if (result == SPECDEC_ERROR_FULL && w->running > 1)
        put_back(w, j);
    else if (result != SPECDEC_PENDING)
        finish(w, j, specdec_error_text(j->text));
}

/* Keeps as many texts busy as there may be, until all are done, Ctrl-C, or nobody reads the lines any more. */
static void run(work *w)
{
    int i;

    while (w->first < w->count && !w->lost && !(interrupted && !w->running)) {
        for (; w->next < w->count && w->running < w->streams && !interrupted; w->next++)
            if (!w->jobs[w->next].done && !w->jobs[w->next].text)
                begin(w, &w->jobs[w->next]);
        w->last = w->last < w->next ? w->next : w->last;
        specdec_work(w->engine);
        for (i = w->first; i < w->last; i++)
            if (w->jobs[i].text)
                collect(w, &w->jobs[i]);
    }
}

/* --- files -------------------------------------------------------------------------------------------------------- */

/* Cuts the input into jobs, a line each; lines of white space are none. Returns a status. */
static int read_jobs(work *w, char *input, size_t length)
{
    char *line = input, *end = input + length, *stop;
    size_t longest = 0, lines = 1;
    int number;

    for (stop = input; (stop = (char *)memchr(stop, '\n', (size_t)(end - stop))) != NULL; stop++)
        lines++;
    w->jobs = lines > INT_MAX ? NULL : (job *)calloc(lines, sizeof *w->jobs);
    for (number = 1; w->jobs && line < end; number++, line = stop + 1) {
        job *j = &w->jobs[w->count];

        stop = (char *)memchr(line, '\n', (size_t)(end - line));
        stop = stop ? stop : end;
        line += program_mark(line, (size_t)(stop - line));
        *stop = 0;
        j->line = line;
        j->length = (size_t)(stop - line);
        j->number = number;
        longest = longest < j->length ? j->length : longest;
        w->count += json_space(line) < stop;
    }
    w->copy = (char *)malloc(longest + 1);
    return w->jobs && w->copy ? PROGRAM_OK : program_failed("out of memory", "");
}

/* Loads what was seen before. Returns a status. */
static int load_seen(const work *w)
{
    if (!w->seen || !specdec_load_history(w->engine, w->seen, w->seen_size))
        return PROGRAM_OK;
    return program_refused(w->o->seen, specdec_error_text(w->engine));
}

/* Writes what was seen. Returns a status. */
static int save_seen(specdec *engine, program_output *out)
{
    size_t size = 0;
    char *data;
    int status;

    specdec_save_history(engine, NULL, 0, &size);
    data = (char *)malloc(size + 1);
    if (!data)
        return program_failed("out of memory", "");
    status = specdec_save_history(engine, data, size, &size) ? program_failed("", specdec_error_text(engine)) : PROGRAM_OK;
    if (!status)
        program_output_write(out, data, size);
    free(data);
    return status ? status : program_output_end(out);
}

/* --- the program -------------------------------------------------------------------------------------------------- */

/* The engine for all jobs, with no text open; NULL after saying what went wrong. */
static specdec *make_engine(specdec_config *c)
{
    specdec *engine = NULL;
    specdec_error failure;
    size_t bytes;
    void *memory;

    if (specdec_memory_needed(c, &bytes, &failure))
        return program_failed("", failure.text), (specdec *)NULL;
    memory = program_memory(bytes, PROGRAM_LESS);
    if (!memory)
        return NULL;
    if (specdec_init(&engine, c, memory, bytes, &failure)) {
        program_erase_bar();
        return interrupted ? NULL : (program_failed("", failure.text), (specdec *)NULL);
    }
    specdec_close(engine);
    return engine;
}

/* The settings of lines that say nothing else: flags, else what the model's file recommends, which is said. */
static void settle(work *w)
{
    specdec_model_info model;
    int taken = 0;

    w->settings = w->o->config.settings;
    if (!specdec_get_model_info(specdec_get_model(w->engine), &model))
        taken = settings_from_file(&w->settings, model.gguf);
    settings_take(&w->settings, &w->o->config.settings, w->o->given);
    if (taken)
        settings_tell(&w->settings, "as the model's file says:");
}

/* Does all jobs. Returns a status; a job without an answer is no failure of the others. */
static int many(options *o, work *w, program_output *seen)
{
    double start;
    int status, i;

    for (i = 0; i < w->count && !o->config.constraints; i++)
        o->config.constraints = strstr(w->jobs[i].line, "\"schema\"") != NULL;
    o->config.sequences = w->streams = program_least(o->config.sequences, w->count ? w->count : 1);
    w->o = o;
    w->engine = make_engine(&o->config);
    if (!w->engine)
        return interrupted ? 128 + SIGINT : PROGRAM_FAILED;
    status = load_seen(w);
    settle(w);
    start = program_seconds();
    if (!status)
        run(w);
    program_progress(NULL, "texts", 1, 1);
    if (!status && isatty(STDERR_FILENO))
        fprintf(stderr, "[%d lines, %d without an answer; %lld tokens, %.1f a second; %lld of %lld tokens of prompts were read]\n",
                w->done, w->failed, w->tokens, (double)w->tokens / (program_seconds() - start), w->prefilled, w->prompted);
    if (w->lost)
        status = w->lost == EPIPE ? PROGRAM_FAILED : program_failed("cannot write the lines: ", strerror(w->lost));
    if (!status && o->seen)
        status = save_seen(w->engine, seen);
    specdec_deinit(w->engine);
    return !status && interrupted ? 128 + SIGINT : status;
}

static int read_options(options *o, int argc, char **argv)
{
    specdec_config *c = &o->config;
    specdec_sampling *s = &c->settings.sampling;
    const program_flag flags[] = {
        MODEL_FLAGS(c),
        {"-f", PROGRAM_TEXT, &o->file, "FILE", "the lines are in this file; - is standard input", 0, 0},
        {"--sequences", PROGRAM_INTEGER, &c->sequences, "N", "texts that are written at a time (8)", 1, SPECDEC_MAX_SEQUENCES},
        {"--in-order", PROGRAM_SWITCH, &o->in_order, NULL,
         "answers come in the order of the lines, not as they are done", 0, 0},
        {"--parse-special", PROGRAM_SWITCH, &o->special, NULL,
         "control tokens that prompts spell, such as <|fim_prefix|>, are read as such", 0, 0},
        {"--ids", PROGRAM_SWITCH, &o->ids, NULL, "lines hold the token ids of prompt and answer, too", 0, 0},
        {"--seen", PROGRAM_TEXT, &o->seen, "FILE",
         "what was written is kept here, and drafted from the next time", 0, 0},
        {"-n", PROGRAM_INTEGER, &o->limit, "N",
         "tokens of an answer, at most; -1: until it ends or the context is full (-1)", -1, 1 << 24},
        {"-t", PROGRAM_INTEGER, &c->threads, "N", "threads; 0: all processors, fewer for small models (0)", 0, SPECDEC_MAX_THREADS},
        {"-c", PROGRAM_INTEGER, &c->context, "N",
         "tokens of context for each text; 0: the model's own, at most 4096 (0)", 0, 1 << 24},
        {"--cache", PROGRAM_INTEGER, &c->cache, "N",
         "tokens of all texts at a time; 0: streams times context (0)", 0, 1 << 30},
        {"--temp", PROGRAM_REAL, &s->temperature, "F",
         "temperature; 0: greedy, always the most probable token (0)", 0, 1e6},
        {"--top-k", PROGRAM_INTEGER, &s->top_k, "N", "sample among the N best tokens; 0: off (0)", 0, 1 << 24},
        {"--top-p", PROGRAM_REAL, &s->top_p, "F", "sample among the best that hold this probability; 0 or 1: off (1)", 0, 1},
        {"--min-p", PROGRAM_REAL, &s->min_p, "F",
         "not below this share of the best one's probability; 0: off (0)", 0, 1},
        {"--repeat-penalty", PROGRAM_REAL, &s->repetition_penalty, "F", "against repetition; 0 or 1: off (1)", 0, 1e6},
        {"--repeat-last-n", PROGRAM_INTEGER, &s->repetition_window, "N",
         "tokens it looks back; -1: all (64)", -1, 1 << 24},
        SETTINGS_FLAGS(c),
        {"--seed", PROGRAM_SEED, &s->seed, "S", "a text is a function of prompt, models, flags and seed; -1: from the clock, and said (0)", 0, 0},
        {"--spec", PROGRAM_CHOICE, &o->spec, PROGRAM_DRAFTING,
         "where draft tokens come from: whatever pays; nowhere; -md; -mh; MTP layers of the model;\n"
         "a part of a long text, read by the model itself; repetition; what a grammar leaves no\n"
         "choice about (auto)", 0, 0},
        GRAMMAR_FLAGS(&o->grammar),
        {"--chat-format", PROGRAM_NAME, &c->chat_format, PROGRAM_CHAT_FORMATS, "of lines with messages (as the model says)", 0, 0},
        {"--stop", PROGRAM_TEXTS, c->settings.stop, "TEXT", "ends a text, and is not part of it; up to 32 times. That of a control token ends it, too", 256, SPECDEC_STOP_STRINGS},
        {"--kv", PROGRAM_NAME, &c->kv, "f16|f32|q8_0", "how keys and values are kept (f16)", 0, 0},
        {NULL, PROGRAM_SWITCH, NULL, NULL, NULL, 0, 0}};
    int status;

    o->limit = -1;
    c->sequences = 8;
    c->history = HISTORY;
    c->fork_token = ""; /* a child would take a place that a line is meant for */
    c->hooks.progress = on_progress;
    c->hooks.log = program_warn;
    status = program_read(flags, argc, argv, "many", "-m MODEL.gguf [-md DRAFT.gguf] -f FILE.jsonl [flags]",
                          "Lines in: {\"id\": any, \"prompt\": \"...\"}, or with \"messages\": [{\"role\": \"user\",\n"
                          "\"content\": \"...\"}] in place of the prompt. Lines out: {\"id\", \"text\", \"tokens\", \"stop\"}, or\n"
                          "{\"id\", \"error\"}; \"line\", its number, stands for an id that is missing. A line may have\n"
                          "settings of its own, which go before flags: \"temperature\", \"top_k\", \"top_p\", \"min_p\",\n"
                          "\"seed\", \"repeat_penalty\", \"repeat_last_n\", \"max_tokens\" (for -n), \"stop\" (a text or an\n"
                          "array), \"schema\" (a JSON schema that the answer obeys); other members are named once on standard error. Ctrl-C ends all texts early (status\n"
                          "130). A line with an error: status 1, when the others are done.\n");
    o->given = settings_given(flags);
    if (status == PROGRAM_GO_ON)
        status = settings_check_models(c, o->spec);
    if (status != PROGRAM_GO_ON)
        return status;
    if (!o->file)
        return program_misused("-f is missing: which lines?", "");
    if (o->seen && o->spec != SPECDEC_DRAFT_AUTO && o->spec != SPECDEC_DRAFT_NGRAM)
        return program_misused("--seen goes with --spec auto and ngram only", "");
    if (o->seen && strcmp(o->seen, "-") == 0)
        return program_misused("--seen needs a file: lines go to standard output", "");
    c->drafting = (specdec_drafting)o->spec;
    c->settings.max_tokens = o->limit > 0 ? o->limit : 0;
    status = grammar_of(&o->grammar, &c->settings.constraint);
    return status ? status : PROGRAM_GO_ON;
}

int main(int argc, char **argv)
{
    static options o;
    static work w;
    program_output seen = PROGRAM_NO_OUTPUT;
    const char *inputs[5] = {NULL, NULL, NULL, NULL, NULL};
    int count = 0, absent = 0;
    char *input;
    size_t length;
    int status = read_options(&o, argc, argv);

    if (status != PROGRAM_GO_ON)
        return status;
#ifdef SIGPIPE
    signal(SIGPIPE, SIG_IGN);
#endif
    inputs[count++] = o.config.target.path;
    inputs[count++] = o.file;
    if (o.config.draft.path)
        inputs[count++] = o.config.draft.path;
    if (o.config.heads.path)
        inputs[count++] = o.config.heads.path;
    input = program_read_file(o.file, &length);
    status = input ? read_jobs(&w, input, length) : PROGRAM_FAILED;
    w.seen = !status && o.seen ? program_read_regular(o.seen, &w.seen_size, &absent) : NULL;
    if (!status && o.seen && !w.seen && !absent)
        status = PROGRAM_FAILED;
    if (!status && o.seen)
        status = program_output_open(&seen, o.seen, inputs);
    program_on_interrupt(on_interrupt);
    if (!status)
        status = many(&o, &w, &seen);
    status = program_finish(status);
    free(w.jobs);
    free(w.copy);
    free(w.seen);
    free(input);
    return !status && w.failed ? PROGRAM_FAILED : status;
}
