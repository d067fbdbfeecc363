/* specdec - the main job: a GGUF model and a prompt in, text out, as fast as a draft model allows and the same to the byte
   as without it. */
#define _DEFAULT_SOURCE 1 /* POSIX, also under -std=c99 */
#include "specdec.h"
#include "tools/program.h"
#include "tools/json.h"
#include "tools/settings.h"
#include "tools/grammar.h"
#include "tools/terminal.h"

static specdec_error failure; /* of the last call that failed before there was an engine */

enum { VERIFY_GREEDY = 1 }; /* its place in the words behind --verify */

typedef struct options {
    specdec_config config;
    const char *prompt, *file, *system, *stats, *save, *load;
    int limit, chat, echo, spec, verify, policy, async, special;
    int typed;      /* a conversation on a terminal, which terminal.h reads */
    grammar_flags grammar;
    unsigned given; /* settings that are flags of the command line: see settings_given */
} options;

static specdec *volatile running; /* the engine that Ctrl-C cancels; NULL: Ctrl-C ends the program */
static volatile sig_atomic_t interrupted;
static program_energy energy;      /* of reading prompts and writing answers */
static int written;                /* tokens of all answers */
static char last_byte = '\n';      /* that went to standard output */

/* A text that grows. */
typedef struct text {
    char *bytes;
    size_t length, room;
} text;

/* A message and its answer. */
typedef struct exchange {
    text question, answer;
} exchange;

/* Exchanges that are remembered. */
enum { TALK_MOST = 31 };

/* A conversation, and what is remembered of it: the youngest exchanges. */
typedef struct talk {
    specdec *engine;
    const options *o;
    exchange exchanges[TALK_MOST]; /* [count], oldest first */
    int count;
    int loaded; /* the text begins with what --load brought */
    int began;  /* tokens before the last question; -1: not known, as the conversation began anew with it */
    int typed;  /* messages are read by terminal.h */
} talk;

/* Once: ends the work under way. Twice, or when nothing is under way: the program. */
static void on_interrupt(int number)
{
    if (!running || interrupted)
        program_die(number);
    interrupted = 1;
    specdec_cancel(running);
}

/* Hands an engine to Ctrl-C, or takes it away. */
static void interruptible(specdec *engine)
{
    interrupted = 0;
    running = engine;
    program_on_interrupt(on_interrupt);
}

/* Writes text at once. Returns 0 when nobody takes it any more. */
static int put(const char *bytes, size_t length)
{
    if (length)
        last_byte = bytes[length - 1];
    return fwrite(bytes, 1, length, stdout) == length && fflush(stdout) == 0;
}

/* Standard output is gone: no words about a reader who has had enough, but a full disk is worth some. */
static int output_lost(void)
{
    return errno == EPIPE ? PROGRAM_FAILED : program_failed("cannot write the text: ", strerror(errno));
}

static int interrupted_status(void)
{
    program_erase_bar();
    return 128 + SIGINT;
}

/* Appends bytes. Returns 0, and the text stays as it was, when memory ran out. */
static int append(text *t, const char *bytes, size_t length)
{
    size_t needed = t->length + length;

    if (needed > t->room) {
        char *grown = needed < length || needed > SIZE_MAX / 2 ? NULL : (char *)realloc(t->bytes, 2 * needed);

        if (!grown)
            return 0;
        t->bytes = grown;
        t->room = 2 * needed;
    }
    if (length)
        memcpy(t->bytes + t->length, bytes, length);
    t->length = needed;
    return 1;
}

/* Tokens of all prompts and answers, those that slid out of the context included. */
static int64_t all_tokens_of(const specdec *engine)
{
    specdec_stats s;
    int count;

    specdec_get_stats(engine, &s);
    specdec_tokens(engine, NULL, &count);
    return s.slid + count;
}

/* Tokens of the text so far. */
static int tokens_of(const specdec *engine)
{
    const int32_t *tokens;
    int count;

    specdec_tokens(engine, &tokens, &count);
    return count;
}

static int context_of(const specdec *engine)
{
    specdec_info info;

    specdec_get_info(engine, &info);
    return info.context;
}

/* Streams the answer to what was prompted; keep gets it, too, if not NULL. Returns PROGRAM_OK, also when Ctrl-C ended
   it, or an exit status. */
static int answer(specdec *engine, text *keep)
{
    const int64_t before = all_tokens_of(engine);
    specdec_text piece;
    specdec_result result;

    do {
        result = specdec_next(engine, &piece);
        program_energy_poll(&energy);
        if (result != SPECDEC_OK && result != SPECDEC_DONE)
            break;
        if (!put(piece.bytes, piece.length))
            return output_lost();
        if (keep && !append(keep, piece.bytes, piece.length))
            return program_failed("out of memory", "");
    } while (result == SPECDEC_OK);
    written += (int)(all_tokens_of(engine) - before);
    return result == SPECDEC_DONE || result == SPECDEC_ERROR_CANCELLED ? PROGRAM_OK
                                                                           : program_engine_failed(engine, result);
}

/* One prompt, one continuation; without a prompt that of the saved text. */
static int complete(specdec *engine, const options *o, const char *prompt, size_t length)
{
    int status = PROGRAM_OK;
    specdec_result result;

    if (prompt && !o->special)
        program_note_control(specdec_get_model(engine), prompt, length, "");
    interruptible(engine);
    result = !prompt      ? specdec_prompt_tokens(engine, NULL, 0)
             : o->special ? specdec_prompt_special(engine, prompt, length)
                          : specdec_prompt(engine, prompt, length);
    if (result && interrupted)
        program_say_how_far();
    if (result)
        return interrupted ? interrupted_status() : program_engine_failed(engine, result);
    if (prompt && o->echo && !put(prompt, length))
        return output_lost();
    if (o->limit != 0)
        status = answer(engine, NULL);
    if (!status && isatty(STDOUT_FILENO) && !put("\n", 1))
        return output_lost();
    return status ? status : interrupted ? interrupted_status() : PROGRAM_OK;
}

static void add_message(specdec_message *messages, int *count, specdec_role role, const char *bytes, size_t length)
{
    messages[*count].role = role;
    messages[*count].special = 0;
    messages[*count].text = bytes ? bytes : "";
    messages[(*count)++].length = length;
}

/* Prompts a line. An empty engine is told the system message and the exchanges from `from` on before. */
static specdec_result ask(talk *t, int from, const char *line, size_t length)
{
    specdec_message messages[2 * TALK_MOST + 2];
    specdec_result result;
    int i, count = 0;

    if (!tokens_of(t->engine)) {
        if (t->o->system)
            add_message(messages, &count, SPECDEC_SYSTEM, t->o->system, SPECDEC_WHOLE_STRING);
        for (i = from; i < t->count; i++) {
            add_message(messages, &count, SPECDEC_USER, t->exchanges[i].question.bytes,
                        t->exchanges[i].question.length);
            add_message(messages, &count, SPECDEC_ASSISTANT, t->exchanges[i].answer.bytes,
                        t->exchanges[i].answer.length);
        }
    }
    add_message(messages, &count, SPECDEC_USER, line, length);
    result = specdec_chat(t->engine, messages, count);
    if (result == SPECDEC_ERROR_CANCELLED && !interrupted) /* by a Ctrl-C that came just behind the last answer */
        result = specdec_chat(t->engine, messages, count);
    return result;
}

/* Is there room for an answer: for -n tokens, or for a quarter of the context? */
static int has_room(const talk *t)
{
    int context = context_of(t->engine), wanted = context / 4;

    if (t->o->limit >= 0 && t->o->limit < wanted)
        wanted = t->o->limit;
    return context - tokens_of(t->engine) >= wanted;
}

/* Could the context hold a line, were it alone? The format's own tokens are not counted. */
static int fits_alone(const talk *t, const char *line, size_t length)
{
    const specdec_model *model = specdec_get_model(t->engine);
    const size_t bytes = specdec_tokenize_memory(model, length);
    void *memory = length <= (size_t)context_of(t->engine) * 16 ? malloc(bytes) : NULL;
    int count = 0;

    specdec_tokenize(model, line, length, SPECDEC_TOKENIZE_SPECIAL, NULL, 0, &count, memory, bytes, NULL);
    free(memory);
    return memory && count < context_of(t->engine);
}

/* Forgets the oldest exchanges. */
static void forget(talk *t, int count)
{
    int i;

    for (i = 0; i < count; i++) {
        free(t->exchanges[i].question.bytes);
        free(t->exchanges[i].answer.bytes);
    }
    t->count -= count;
    memmove(t->exchanges, t->exchanges + count, (size_t)t->count * sizeof *t->exchanges);
}

/* Says what a full context made the conversation forget, so many exchanges among it. Without any it was what was
   loaded, or a message that Ctrl-C left unanswered. */
static void say_forgotten(const talk *t, int exchanges)
{
    fprintf(stderr, "%s: the context is full: ", program_name);
    if (t->loaded || !exchanges)
        fprintf(stderr, "what was %s is forgotten%s", t->loaded ? "loaded" : "not answered", exchanges ? ", and " : "\n");
    if (exchanges)
        fprintf(stderr, "%d of %d exchanges forgotten, the oldest\n", exchanges, t->count);
    if (t->loaded && !t->o->system)
        fprintf(stderr, "%s: so is its system message, if it had one: --system gives it again\n", program_name);
}

/* Begins the text anew with as many exchanges as leave room, and prompts a line. What was loaded goes first. When the
   line does not fit even alone, the text becomes what it was before: its first `before` tokens. */
static specdec_result ask_anew(talk *t, int before, const char *line, size_t length)
{
    size_t bytes = (size_t)before * sizeof(int32_t);
    int32_t *saved = (int32_t *)malloc(bytes + 1);
    const int32_t *tokens;
    specdec_result result;
    int from = t->loaded ? -1 : 0, count;

    specdec_tokens(t->engine, &tokens, &count);
    if (saved)
        memcpy(saved, tokens, bytes);
    do {
        specdec_rewind(t->engine, 0);
        result = ask(t, ++from, line, length);
    } while (from < t->count && (result == SPECDEC_ERROR_CONTEXT || (!result && !has_room(t))));
    if (!result) {
        from = program_least(from, t->count);
        say_forgotten(t, from);
        forget(t, from);
        t->loaded = 0;
    } else if (result == SPECDEC_ERROR_CONTEXT && saved && before) {
        specdec_prompt_tokens(t->engine, saved, before); /* if it fails, ask begins anew next time */
    }
    free(saved);
    return result;
}

/* Notes an exchange; when there are too many, the oldest is forgotten. Returns where it stands; NULL when memory ran
   out. */
static exchange *remember(talk *t, const char *line, size_t length)
{
    exchange *e;

    if (t->count == TALK_MOST)
        forget(t, 1);
    e = &t->exchanges[t->count];
    memset(e, 0, sizeof *e);
    if (!append(&e->question, line, length))
        return NULL;
    t->count++;
    return e;
}

/* With --special an answer shows the token that ended it; the chat format has it anyway. */
static void drop_end_token(specdec *engine, text *answer_text)
{
    const int32_t *tokens;
    char end[256];
    size_t length;
    int count;

    specdec_tokens(engine, &tokens, &count);
    if (!specdec_token_text(specdec_get_model(engine), tokens[count - 1], end, sizeof end, &length, NULL) && length <= answer_text->length &&
        memcmp(answer_text->bytes + answer_text->length - length, end, length) == 0)
        answer_text->length -= length;
}

/* Answers what was asked; says so when the context ended the answer. Returns a status. */
static int answer_in_talk(talk *t, exchange *e)
{
    int status = answer(t->engine, &e->answer);
    specdec_stop why = specdec_stopped(t->engine, NULL);

    if (status || interrupted)
        return status;
    if (why == SPECDEC_STOP_CONTEXT)
        fprintf(stderr, "%s: the context of %d tokens (-c) is full: the answer is cut off\n", program_name, context_of(t->engine));
    else if (why == SPECDEC_STOP_END && t->o->config.settings.show_special)
        drop_end_token(t->engine, &e->answer);
    return PROGRAM_OK;
}

/* One turn of a conversation. A line that the context cannot hold is left out and said; with `only` it is a failure.
   Returns a status; PROGRAM_OK also when Ctrl-C ended the turn. */
static int turn(talk *t, const char *line, size_t length, int only)
{
    int before = tokens_of(t->engine);
    specdec_result result;
    exchange *e;

    interruptible(t->engine);
    result = ask(t, 0, line, length);
    t->began = before;
    if ((before || t->count) && (result == SPECDEC_ERROR_CONTEXT ? fits_alone(t, line, length) : !result && !has_room(t))) {
        result = ask_anew(t, before, line, length);
        t->began = -1;
    }
    if (result == SPECDEC_ERROR_CONTEXT && !only)
        return fprintf(stderr, "%s: this line does not fit into the context of %d tokens (-c)%s: left out\n",
                       program_name, context_of(t->engine), t->o->system ? " behind --system" : ""), PROGRAM_OK;
    if (result == SPECDEC_ERROR_UNSUPPORTED)
        return program_failed(specdec_error_text(t->engine), " (--chat-format)");
    if (result && interrupted)
        program_say_how_far();
    if (result)
        return interrupted ? PROGRAM_OK : program_engine_failed(t->engine, result);
    e = remember(t, line, length);
    if (!e)
        return program_failed("out of memory", "");
    return t->o->limit ? answer_in_talk(t, e) : PROGRAM_OK;
}

static int save(specdec *engine, program_output *out);
static void report(const specdec *engine);

/* --- commands of a conversation ----------------------------------------------------------------------------------- */

/* /regen: answers the last question again, by another seed. Returns a status. */
static int answer_again(talk *t, const char *rest)
{
    specdec_settings settings;
    text question = {NULL, 0, 0};
    int status;

    (void)rest;
    if (!t->count || (t->began < 0 && t->loaded))
        return fprintf(stderr, "%s: there is no question to answer again\n", program_name), PROGRAM_OK;
    specdec_get_settings(t->engine, &settings);
    settings.sampling.seed++;
    question = t->exchanges[--t->count].question;
    free(t->exchanges[t->count].answer.bytes);
    specdec_rewind(t->engine, t->began < 0 ? 0 : t->began);
    specdec_set(t->engine, &settings);
    status = turn(t, question.bytes, question.length, 0);
    free(question.bytes);
    return status ? status : put("\n", 1) ? PROGRAM_OK : output_lost();
}

/* /clear: begins anew, with the system message alone. */
static int clear_talk(talk *t, const char *rest)
{
    (void)rest;
    forget(t, t->count);
    specdec_rewind(t->engine, 0);
    t->loaded = 0;
    fprintf(stderr, "%s: all is forgotten\n", program_name);
    return PROGRAM_OK;
}

/* /save FILE: the conversation, for --load. */
static int save_talk(talk *t, const char *rest)
{
    const char *inputs[2] = {t->o->config.target.path, NULL};
    program_output out = PROGRAM_NO_OUTPUT;

    if (!*rest || strcmp(rest, "-") == 0)
        fprintf(stderr, "%s: /save needs the name of a file\n", program_name);
    else if (!program_output_open(&out, rest, inputs) && !save(t->engine, &out) && !program_output_name(&out))
        fprintf(stderr, "%s: saved; --load %s goes on from here\n", program_name, rest);
    return PROGRAM_OK; /* what went wrong was said */
}

static int tell_stats(talk *t, const char *rest)
{
    (void)rest;
    report(t->engine);
    fprintf(stderr, "[%d of %d tokens of context]\n", tokens_of(t->engine), context_of(t->engine));
    return PROGRAM_OK;
}

static int tell_commands(talk *t, const char *rest)
{
    (void)t;
    (void)rest;
    fprintf(stderr, "/regen      answers the last question again, by another seed\n"
                    "/clear      begins a new conversation\n"
                    "/save FILE  keeps this one, for --load\n"
                    "/stats      how fast it was, and how full the context is\n"
                    "/help       this list\n"
                    "\"\"\"         begins and ends a message of several lines; so does pasting, or Alt-Enter\n"
                    "Ctrl-C      ends the answer; Ctrl-D, the conversation\n");
    return PROGRAM_OK;
}

/* Is a message that was typed a command? Then does it, and *status is what came of it. */
static int command(talk *t, const text *line, int *status)
{
    static const struct {
        const char *name;
        int (*run)(talk *t, const char *rest);
    } commands[] = {{"/help", tell_commands}, {"/clear", clear_talk}, {"/save", save_talk}, {"/regen", answer_again},
                    {"/stats", tell_stats}};
    char words[4096];
    size_t i, length;

    if (line->length >= sizeof words || !line->length || line->bytes[0] != '/' || memchr(line->bytes, '\n', line->length))
        return 0;
    memcpy(words, line->bytes, line->length);
    words[line->length] = 0;
    length = strcspn(words, " ");
    for (i = 0; i < PROGRAM_COUNT(commands); i++)
        if (strlen(commands[i].name) == length && memcmp(words, commands[i].name, length) == 0) {
            *status = commands[i].run(t, words + length + strspn(words + length, " "));
            return 1;
        }
    return 0;
}

/* Reads one line without its end into an empty text. Bytes beyond what any context can hold are dropped. Returns 0 at
   the end of the input, or when that or memory failed. */
static int read_line(FILE *file, text *line)
{
    int c, any = 0;

    line->length = 0;
    while ((c = getc(file)) != EOF && c != '\n') {
        char byte = (char)c;

        any = 1;
        if (line->length <= PROGRAM_MOST_BYTES && !append(line, &byte, 1))
            return 0;
    }
    if (line->length && line->bytes[line->length - 1] == '\r')
        line->length--;
    if (line->length && program_mark(line->bytes, line->length)) {
        line->length -= 3;
        memmove(line->bytes, line->bytes + 3, line->length);
    }
    return any || c != EOF;
}

/* Reads on where a line begins with """: the message ends where these come again, at a line's end, or with the input.
   Returns 0 when memory ran out. */
static int read_quoted(text *line)
{
    static const char mark[] = "\"\"\"";
    text more = {NULL, 0, 0};
    int good = 1, done;

    if (line->length < 3 || memcmp(line->bytes, mark, 3) != 0)
        return 1;
    line->length -= 3;
    memmove(line->bytes, line->bytes + 3, line->length);
    do {
        done = line->length >= 3 && memcmp(line->bytes + line->length - 3, mark, 3) == 0;
        line->length -= done ? 3 : 0;
        if (done || !read_line(stdin, &more))
            break;
        good = (!line->length || append(line, "\n", 1)) && append(line, more.bytes, more.length);
    } while (good);
    while (line->length && line->bytes[line->length - 1] == '\n')
        line->length--;
    free(more.bytes);
    return good;
}

/* Reads the next message: a line of standard input, or what is typed or pasted on a terminal. Returns PROGRAM_GO_ON, or a
   status: the input has ended, or cannot be read. */
static int read_message(const talk *t, text *line)
{
    if (t->typed)
        return terminal_read(&line->bytes, &line->length, &line->room) ? PROGRAM_GO_ON : PROGRAM_OK;
    if (isatty(STDIN_FILENO))
        fputs("> ", stderr);
    if (read_line(stdin, line))
        return read_quoted(line) ? PROGRAM_GO_ON : program_failed("out of memory", "");
    return feof(stdin) ? PROGRAM_OK : program_failed("cannot read standard input: ", strerror(errno));
}

/* A conversation: every line of standard input is a message. */
static int converse(talk *t)
{
    int status = PROGRAM_OK;
    text line = {NULL, 0, 0};

    while (!status) {
        interruptible(NULL);
        program_energy_look(&energy);
        status = read_message(t, &line);
        if (status != PROGRAM_GO_ON)
            break;
        status = PROGRAM_OK;
        program_energy_skip(&energy);
        if (line.length && isatty(STDIN_FILENO) && command(t, &line, &status))
            continue;
        if (line.length)
            status = turn(t, line.bytes, line.length, 0);
        if (line.length && !status && !put("\n", 1))
            status = output_lost();
        if (interrupted && !status && !isatty(STDIN_FILENO))
            status = interrupted_status();
    }
    free(line.bytes);
    return status;
}

/* One message, one answer. */
static int reply(talk *t, const char *prompt, size_t length)
{
    int status = turn(t, prompt, length, 1);

    if (!status && isatty(STDOUT_FILENO) && !put("\n", 1))
        return output_lost();
    return status ? status : interrupted ? interrupted_status() : PROGRAM_OK;
}

/* A conversation from its first line or message to its end. */
static int chat(specdec *engine, const options *o, const char *prompt, size_t length)
{
    static talk t;
    int status;

    t.engine = engine;
    t.o = o;
    t.loaded = o->load && tokens_of(engine) > 0;
    t.typed = o->typed;
    status = prompt ? reply(&t, prompt, length) : converse(&t);
    forget(&t, t.count);
    return status;
}

static double ratio(double a, double b) { return b > 0 ? a / b : 0; }

/* How many steps had which width, and which tree. */
static void write_steps(json_writer *j, const specdec_stats *s)
{
    int i;

#define STEPS(NAME, kind, name) json_integer(j, "steps_" #kind, s->steps_by_drafter[SPECDEC_DRAFT_##NAME]);
    SPECDEC_DRAFTERS(STEPS)
    json_array(j, "steps_by_width");
    for (i = 0; i < (int)(sizeof s->steps_by_width / sizeof *s->steps_by_width); i++)
        json_integer(j, NULL, s->steps_by_width[i]);
    json_close(j);
    json_array(j, "trees");
    for (i = 0; i < SPECDEC_STATS_TREES && s->trees[i].steps; i++) {
        json_object(j, NULL);
        json_integer(j, "nodes", s->trees[i].nodes);
        json_integer(j, "levels", s->trees[i].levels);
        json_integer(j, "steps", s->trees[i].steps);
        json_close(j);
    }
    json_close(j);
    json_integer(j, "steps_other_trees", s->steps_other_trees);
}

static int write_stats(const specdec *engine, program_output *out)
{
    specdec_stats s;
    specdec_settings settings;
    specdec_info info;
    double other;
    int ranks = 8, i;
    char seed[24];
    json_writer j;

    specdec_get_stats(engine, &s);
    other = s.seconds - s.draft_seconds - s.verify_seconds;
    while (ranks && !s.offered_by_rank[ranks - 1])
        ranks--;
    if (out->standard && last_byte != '\n')
        putc('\n', out->file);
    json_begin(&j, out->file);
    json_object(&j, NULL);
    json_integer(&j, "tokens", written);
    json_number(&j, "seconds", "%.6f", s.seconds);
    json_number(&j, "tok_s", "%.3f", ratio(written, s.seconds));
    json_number(&j, "ttft_ms", "%.3f", 1000 * s.first_token_seconds);
    json_integer(&j, "steps", s.steps);
    json_number(&j, "tokens_per_step", "%.4f", ratio(written, (double)s.steps));
    json_array(&j, "acceptance_by_rank");
    for (i = 0; i < ranks; i++)
        json_number(&j, NULL, "%.4f", ratio((double)s.accepted_by_rank[i], (double)s.offered_by_rank[i]));
    json_close(&j);
    json_number(&j, "draft_s", "%.6f", s.draft_seconds);
    json_number(&j, "verify_s", "%.6f", s.verify_seconds);
    json_number(&j, "other_s", "%.6f", other > 0 ? other : 0);
    specdec_get_settings(engine, &settings);
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)settings.sampling.seed);
    json_raw(&j, "seed", seed, strlen(seed));
    json_integer(&j, "steps_beside", s.steps_beside);
    json_number(&j, "beside_s", "%.6f", s.beside_seconds);
    json_integer(&j, "drafted", s.drafted);
    json_integer(&j, "accepted", s.accepted);
    specdec_get_info(engine, &info);
    json_integer(&j, "screened_rows", (int64_t)info.screened_rows);
    json_number(&j, "screened_left", "%.1f", ratio((double)info.screened_read, (double)info.screened_rows));
    json_integer(&j, "screened_whole", (int64_t)info.screened_whole);
    json_integer(&j, "screened_bytes", info.screened_bytes);
    write_steps(&j, &s);
    if (energy.known) {
        json_number(&j, "energy_j", "%.3f", energy.joules);
        json_number(&j, "energy_j_token", "%.4f", ratio(energy.joules, written));
    }
    json_close(&j);
    return program_output_end(out);
}

/* How fast it was, for people who watch. */
static void report(const specdec *engine)
{
    specdec_stats s;
    specdec_info info;

    specdec_get_stats(engine, &s);
    specdec_get_info(engine, &info);
    fprintf(stderr, "\n[%d tokens, %.1f a second, %.2f a step; prompt %lld tokens, %.1f a second; ", written,
            ratio(written, s.seconds), ratio(written, (double)s.steps), (long long)s.prompt_tokens,
            ratio((double)s.prompt_tokens, s.prompt_seconds));
    if (energy.known)
        fprintf(stderr, "%.2f J a token; ", ratio(energy.joules, written));
    fprintf(stderr, "%d threads, %s]\n", info.threads, info.isa);
}

/* Puts the text of a file in the engine's, with its settings. Returns a status. */
static int load(specdec *engine, const options *o)
{
    specdec_bytes saved;
    int status = program_map_file(&saved, o->load);
    specdec_settings free_of;
    specdec_result result = status ? SPECDEC_OK : specdec_load(engine, saved.data, saved.size);

    if (result == SPECDEC_ERROR_MISMATCH && o->config.settings.constraint) { /* perhaps it has none: then what follows has */
        specdec_get_settings(engine, &free_of);
        free_of.constraint = NULL;
        result = specdec_set(engine, &free_of);
        result = result ? result : specdec_load(engine, saved.data, saved.size);
    }
    if (result) {
        fprintf(stderr, "%s: cannot load %s: %s\n", program_name, o->load, specdec_error_text(engine));
        return PROGRAM_FAILED;
    }
    if (!status && o->system)
        fprintf(stderr, "%s: --system counts when what was loaded is forgotten\n", program_name);
    return status;
}

/* How people expect a conversation to be sampled. */
static void chat_settings(specdec_settings *s)
{
    s->sampling.temperature = 0.8f;
    s->sampling.top_k = 40;
    s->sampling.top_p = 0.95f;
    s->sampling.min_p = 0.05f;
}

/* Sets how the text goes on: as it was saved; else as the model's file recommends and, in a chat, as people expect. Flags
   go before all that. What nobody asked for on this command line is said. Returns a status. */
static int settle(specdec *engine, const options *o)
{
    specdec_settings s, before;
    specdec_model_info model;
    int taken = 0;

    specdec_get_settings(engine, &s); /* the flags, or what was loaded */
    if (!o->load && o->chat)
        chat_settings(&s);
    if (!o->load && !specdec_get_model_info(specdec_get_model(engine), &model))
        taken = settings_from_file(&s, model.gguf);
    before = s;
    settings_take(&s, &o->config.settings, o->given);
    if (o->load && o->config.settings.stop[0]) {
        memcpy(s.stop, o->config.settings.stop, sizeof s.stop);
        if (before.stop[0])
            fprintf(stderr, "%s: --stop in place of the saved stop strings\n", program_name);
    }
    s.max_tokens = o->config.settings.max_tokens; /* of this run */
    s.constraint = o->config.settings.constraint;
    if (o->load)
        settings_tell_changes(&before, &s);
    else if ((o->chat || taken) && (s.sampling.temperature > 0 || !(o->given & SETTINGS_TEMPERATURE)))
        settings_tell(&s, taken ? "as the model's file says:" : "samples as with");
    return specdec_set(engine, &s) ? program_engine_failed(engine, SPECDEC_OK) : PROGRAM_OK;
}

/* Writes the engine's text to a file. Returns a status. */
static int save(specdec *engine, program_output *out)
{
    size_t bytes = 0;
    void *data = specdec_save(engine, NULL, 0, &bytes) ? NULL : program_memory(bytes, "");

    if (!bytes || (data && specdec_save(engine, data, bytes, &bytes)))
        return program_engine_failed(engine, SPECDEC_OK);
    if (!data)
        return PROGRAM_FAILED;
    program_output_write(out, data, bytes);
    return program_output_end(out);
}

/* Says when -c asks for more than the model was made for: it runs, but what it writes there may be no text. */
static void look_at_context(const specdec *engine, const options *o)
{
    specdec_model_info model;

    if (!specdec_get_model_info(specdec_get_model(engine), &model) && o->config.context > model.context)
        fprintf(stderr, "%s: -c %d: the model was made for %d tokens\n", program_name, o->config.context,
                model.context);
}

static int run(options *o, const char *prompt, size_t length, program_output *stats, program_output *saved)
{
    specdec *engine;
    size_t bytes;
    void *memory;
    int status;

    interruptible(NULL);
    if (specdec_memory_needed(&o->config, &bytes, &failure))
        return program_failed("", failure.text);
    memory = program_memory(bytes, PROGRAM_LESS);
    if (!memory)
        return PROGRAM_FAILED;
    if (specdec_init(&engine, &o->config, memory, bytes, &failure))
        return program_failed("", failure.text);
    look_at_context(engine, o);
    if ((o->load && load(engine, o)) || settle(engine, o))
        return specdec_deinit(engine), PROGRAM_FAILED;
    program_energy_begin(&energy, PROGRAM_ENERGY);
    status = (o->chat ? chat : complete)(engine, o, prompt, length);
    program_energy_look(&energy);
    interruptible(NULL);
    if (saved->file && status != PROGRAM_FAILED && save(engine, saved))
        status = PROGRAM_FAILED;
    if (stats->file && status != PROGRAM_FAILED && write_stats(engine, stats))
        status = PROGRAM_FAILED;
    if (isatty(STDERR_FILENO) && status != PROGRAM_FAILED)
        report(engine);
    specdec_deinit(engine);
    return status;
}

/* What the table of flags cannot check. */
static int check(options *o)
{
    static const specdec_rule rules[] = {SPECDEC_RULE_COUPLED, SPECDEC_RULE_COUPLED, SPECDEC_RULE_SEQUOIA,
                                         SPECDEC_RULE_SPECINFER, SPECDEC_RULE_SPECTR, SPECDEC_RULE_TOP_K};
    specdec_config *c = &o->config;
    const int status = settings_check_models(c, o->spec);

    if (status != PROGRAM_GO_ON)
        return status;
    if (o->prompt && o->file)
        return program_misused("-p and -f are both prompts: one is enough", "");
    if (!o->prompt && !o->file && !o->chat && !o->load)
        return program_misused("a prompt is missing: -p, -f, --chat or --load", "");
    if (o->verify == VERIFY_GREEDY && c->settings.sampling.temperature > 0)
        return program_misused("--verify greedy goes with --temp 0 only", "");
    if (o->special && o->chat)
        return program_misused("--parse-special goes without --chat: a message is text", "");
    if ((o->system || c->chat_format) && !o->chat)
        return program_misused("--system and --chat-format go with --chat only", "");
    if (o->policy == SPECDEC_POLICY_DYNAMIC && o->verify > VERIFY_GREEDY && rules[o->verify] != SPECDEC_RULE_TOP_K)
        return program_misused("--policy dynamic goes with --verify coupled, greedy and top-k only", "");
    if (o->save && o->stats && strcmp(o->save, o->stats) == 0)
        return program_misused("--save and --stats are the same file: ", o->save);
    if (o->save && strcmp(o->save, "-") == 0)
        return program_misused("--save needs a file: the text goes to standard output", "");
    if (c->tree_size == 1 || c->tree_depth == 1)
        return program_misused("--tree-size and --tree-depth are 2 or more, or 0", "");
    if (c->retrieval > 0 && c->retrieval < 16)
        return program_misused("--retrieval is 16 or more, or 0", "");
    c->drafting = (specdec_drafting)o->spec;
    c->rule = rules[o->verify];
    c->policy = (specdec_policy)o->policy;
    c->async = o->async == 1 ? -1 : o->async == 2;
    c->settings.max_tokens = o->limit > 0 ? o->limit : 0;
    c->draft.copy = c->heads.copy = c->target.copy;
    c->hooks.progress = program_progress;
    c->hooks.log = program_warn;
    return PROGRAM_GO_ON;
}

static int read_options(options *o, int argc, char **argv)
{
    specdec_config *c = &o->config;
    const program_flag flags[] = {
        MODEL_FLAGS(c),
        {"-p", PROGRAM_TEXT, &o->prompt, "TEXT", "the prompt", 0, 0},
        {"-f", PROGRAM_TEXT, &o->file, "FILE", "the prompt is in this file; - is standard input. One newline at its end is dropped", 0, 0},
        {"--parse-special", PROGRAM_SWITCH, &o->special, NULL, "control tokens that -p and -f spell, such as <|fim_prefix|>, are read as such", 0, 0},
        {"-n", PROGRAM_INTEGER, &o->limit, "N", "tokens to write in this run, at most; -1: until the text ends or the context is full (-1)", -1, 1 << 24},
        {"-t", PROGRAM_FIELD, c, "threads", NULL, 0, 0},
        {"-c", PROGRAM_FIELD, c, "context", NULL, 0, 0},
        {"-b", PROGRAM_FIELD, c, "batch", NULL, 0, 0},
        {"--temp", PROGRAM_REAL, &c->settings.sampling.temperature, "F", "temperature; 0: greedy, always the most probable token (0)", 0, 1e6},
        SAMPLING_FLAGS(c),
        SETTINGS_FLAGS(c),
        {"--seed", PROGRAM_SEED, &c->settings.sampling.seed, "S", "the text is a function of prompt, models, flags and seed; -1: from the clock, and said (0)", 0, 0},
        {"--spec", PROGRAM_CHOICE, &o->spec, PROGRAM_DRAFTING, "where draft tokens come from: whatever pays; nowhere; -md; -mh; MTP layers of the model;\n"
         "a part of a long text, read by the model itself; repetition; what a grammar leaves no\n"
         "choice about (auto)", 0, 0},
        {"--retrieval", PROGRAM_FIELD, c, "retrieval", NULL, 0, 0},
        {"--retrieval-chunk", PROGRAM_FIELD, c, "retrieval_chunk", NULL, 0, 0},
        {"--draft-vocabulary", PROGRAM_FIELD, c, "draft_vocabulary", NULL, 0, 0},
        {"--tree-size", PROGRAM_FIELD, c, "tree_size", NULL, 0, 0},
        {"--tree-depth", PROGRAM_FIELD, c, "tree_depth", NULL, 0, 0},
        {"--verify", PROGRAM_CHOICE, &o->verify, "coupled|greedy|sequoia|specinfer|spectr|top-k",
         "how draft tokens are accepted (coupled: the very text of --spec off; greedy: the same, at\n"
         "--temp 0; the others: texts of the same distribution, of -md, -mh or two levels alone)", 0, 0},
        {"--policy", PROGRAM_CHOICE, &o->policy, "auto|static|dynamic",
         "trees of a draft: from tables, or grown from its probabilities (--verify coupled, greedy\n"
         "and top-k only); auto: grown with --spec auto (auto)", 0, 0},
        {"--async", PROGRAM_CHOICE, &o->async, "auto|off|on",
         "one thread goes on drafting with -md while the others verify; auto: where that was seen\n"
         "to be faster (auto)", 0, 0},
        {"--chat", PROGRAM_SWITCH, &o->chat, NULL, "a conversation: lines from standard input (on a terminal pasted lines are one message), or one message by -p or -f", 0, 0},
        {"--chat-format", PROGRAM_NAME, &c->chat_format, PROGRAM_CHAT_FORMATS, "how (as the model says)", 0, 0},
        {"--system", PROGRAM_TEXT, &o->system, "TEXT", "what a conversation begins with; behind --load: when what was loaded is forgotten", 0, 0},
        {"--stop", PROGRAM_TEXTS, c->settings.stop, "TEXT", "ends the text, and is not part of it; up to 32 times. That of a control token ends it, too", 256, SPECDEC_STOP_STRINGS},
        GRAMMAR_FLAGS(&o->grammar),
        {"--special", PROGRAM_FIELD, c, "show_special", NULL, 0, 0},
        {"--no-echo", PROGRAM_NO, &o->echo, NULL, "the prompt is not written before its continuation", 0, 0},
        {"--kv", PROGRAM_FIELD, c, "kv", NULL, 0, 0},
        {"--isa", PROGRAM_ISA, &c->isa, "NAME", "instruction set, see specdec-info; the text is the same with all (the best)", 0, 0},
        {"--in-place", PROGRAM_FIELD, c, "weights_in_place", NULL, 0, 0},
        {"--no-mmap", PROGRAM_FIELD, c, "target.copy", NULL, 0, 0},
        {"--slide", PROGRAM_FIELD, c, "slide", NULL, 0, 0},
        {"--save", PROGRAM_TEXT, &o->save, "FILE", "where the text goes in the end, with what was computed for it", 0, 0},
        {"--load", PROGRAM_TEXT, &o->load, "FILE", "a text that was saved: the prompt follows it, without one it goes on", 0, 0},
        {"--stats", PROGRAM_TEXT, &o->stats, "FILE", "times and counts as JSON", 0, 0},
        {NULL, PROGRAM_SWITCH, NULL, NULL, NULL, 0, 0}};
    int status;

    memset(o, 0, sizeof *o);
    o->limit = -1;
    o->echo = 1;
    status = program_read(flags, argc, argv, "specdec", "-m MODEL.gguf [-md DRAFT.gguf] (-p TEXT | -f FILE | --chat | --load FILE) [flags]",
                          "The text goes to standard output as it is found: the prompt and its continuation, with --chat the answers.\n"
                          "Settings without a flag are those of the saved text (--load), else what the model's file recommends\n"
                          "(general.sampling.*), else with --chat --temp 0.8 --top-k 40 --top-p 0.95 --min-p 0.05.\n"
                          "Ctrl-C ends it early (status 130; --save and --stats are written), in a conversation on a terminal the\n"
                          "answer alone; there /help lists what else there is. Lines between \"\"\" and \"\"\" are one message.\n");
    o->given = settings_given(flags) | (o->verify == VERIFY_GREEDY ? SETTINGS_TEMPERATURE : 0); /* --temp 0 */
    return status == PROGRAM_GO_ON ? check(o) : status;
}

/* Opens the outputs of --stats and --save. What is saved may take the place of what was loaded. Returns a status. */
static int open_outputs(const options *o, program_output *stats, program_output *saved)
{
    const char *inputs[6] = {NULL, NULL, NULL, NULL, NULL, NULL};
    int count = 0, status = PROGRAM_OK;

    inputs[count++] = o->config.target.path;
    if (o->config.draft.path)
        inputs[count++] = o->config.draft.path;
    if (o->config.heads.path)
        inputs[count++] = o->config.heads.path;
    if (o->file || !o->prompt)
        inputs[count++] = o->file ? o->file : "-";
    if (o->save)
        status = program_output_open(saved, o->save, inputs);
    if (o->load)
        inputs[count++] = o->load;
    return !status && o->stats ? program_output_open(stats, o->stats, inputs) : status;
}

int main(int argc, char **argv)
{
    program_output stats = PROGRAM_NO_OUTPUT, saved = PROGRAM_NO_OUTPUT;
    const char *prompt;
    char *from_file = NULL;
    size_t length;
    options o;
    int status = read_options(&o, argc, argv);

    if (status != PROGRAM_GO_ON)
        return status;
#ifdef SIGPIPE
    signal(SIGPIPE, SIG_IGN);
#endif
    prompt = o.prompt;
    length = prompt ? strlen(prompt) : 0;
    if (o.file) {
        prompt = from_file = program_read_file(o.file, &length);
        if (!prompt)
            return PROGRAM_FAILED;
        if (length && prompt[length - 1] == '\n')
            length -= length > 1 && prompt[length - 2] == '\r' ? 2 : 1;
    }
    status = grammar_of(&o.grammar, &o.config.settings.constraint);
    if (!status)
        status = open_outputs(&o, &stats, &saved);
    if (!status && o.chat && !prompt)
        o.typed = terminal_begin(); /* before the model is loaded: what is typed meanwhile waits */
    if (!status)
        status = run(&o, prompt, length, &stats, &saved);
    free(from_file);
    return program_finish(status);
}
