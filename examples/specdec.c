/* specdec - the main job: a GGUF model and a prompt in, text out, as fast as a draft model allows and the same to the byte
   as without it. */
#define _DEFAULT_SOURCE 1 /* POSIX, also under -std=c99 */
#include "specdec.h"
#include "tools/program.h"
#include <signal.h>

enum { VERIFY_GREEDY = 1 }; /* places in the words behind --verify and --spec */
enum { SPEC_DRAFT = 2 };

typedef struct options {
    specdec_config config;
    const char *prompt, *file, *system, *stats;
    int limit, chat, echo, spec, verify, policy;
} options;

static specdec *volatile running; /* the engine that Ctrl-C cancels; NULL: Ctrl-C ends the program */
static volatile sig_atomic_t interrupted;
static program_energy energy;      /* of reading prompts and writing answers */

/* Once: ends the work under way. Twice, or when nothing is under way: the program. */
static void on_interrupt(int number)
{
    signal(number, SIG_DFL);
    if (!running || interrupted) {
        raise(number);
        return;
    }
    interrupted = 1;
    specdec_cancel(running);
}

/* Hands an engine to Ctrl-C, or takes it away. */
static void interruptible(specdec *engine)
{
    interrupted = 0;
    running = engine;
    signal(SIGINT, on_interrupt);
}

/* Writes text at once. Returns 0 when nobody takes it any more. */
static int put(const char *bytes, size_t length)
{
    return fwrite(bytes, 1, length, stdout) == length && fflush(stdout) == 0;
}

/* Standard output is gone: no words about a reader who has had enough, but a full disk is worth some. */
static int output_lost(void)
{
    return errno == EPIPE ? PROGRAM_FAILED : program_failed("cannot write the text: ", strerror(errno));
}

static int engine_failed(const specdec *engine)
{
    return program_failed("", specdec_error_text(engine));
}

static int interrupted_status(void)
{
    return 128 + SIGINT;
}

/* Streams the answer to what was prompted. Returns PROGRAM_OK, also when Ctrl-C ended it, or an exit status. */
static int answer(specdec *engine)
{
    specdec_text piece;
    specdec_result result;

    do {
        result = specdec_next(engine, &piece);
        program_energy_poll(&energy);
        if ((result == SPECDEC_OK || result == SPECDEC_DONE) && !put(piece.bytes, piece.length))
            return output_lost();
    } while (result == SPECDEC_OK);
    if (result != SPECDEC_OK && result != SPECDEC_DONE && result != SPECDEC_ERROR_CANCELLED)
        return engine_failed(engine);
    return PROGRAM_OK;
}

/* One prompt, one continuation. */
static int complete(specdec *engine, const options *o, const char *prompt, size_t length)
{
    int status = PROGRAM_OK;

    interruptible(engine);
    if (specdec_prompt(engine, prompt, length))
        return interrupted ? interrupted_status() : engine_failed(engine);
    if (o->echo && !put(prompt, length))
        return output_lost();
    if (o->limit != 0)
        status = answer(engine);
    if (!status && isatty(STDOUT_FILENO) && !put("\n", 1))
        return output_lost();
    return status ? status : interrupted ? interrupted_status() : PROGRAM_OK;
}

/* One turn of a conversation; the first one brings the system message along. */
static int turn(specdec *engine, const options *o, int first, const char *text, size_t length)
{
    specdec_message messages[2];
    specdec_result result;
    size_t count = 0;

    if (first && o->system) {
        messages[count].role = SPECDEC_SYSTEM;
        messages[count].text = o->system;
        messages[count++].length = SPECDEC_WHOLE_STRING;
    }
    messages[count].role = SPECDEC_USER;
    messages[count].text = text;
    messages[count++].length = length;
    interruptible(engine);
    result = specdec_chat(engine, messages, count);
    if (result == SPECDEC_ERROR_CANCELLED && !interrupted) /* by a Ctrl-C that came just behind the last answer */
        result = specdec_chat(engine, messages, count);
    if (result)
        return interrupted ? PROGRAM_OK : engine_failed(engine);
    return o->limit ? answer(engine) : PROGRAM_OK;
}

/* Reads one line without its end; NULL at the end of the input. The caller frees it. */
static char *read_line(FILE *file, size_t *length)
{
    size_t room = 256;
    char *line = (char *)malloc(room);
    int c = EOF;

    *length = 0;
    while (line && (c = getc(file)) != EOF && c != '\n') {
        if (*length + 1 == room) {
            char *grown = (char *)realloc(line, room *= 2);

            if (!grown)
                free(line);
            line = grown;
        }
        if (line)
            line[(*length)++] = (char)c;
    }
    if (line && c == EOF && !*length) {
        free(line);
        line = NULL;
    }
    return line;
}

/* A conversation: every line of standard input is a message. */
static int converse(specdec *engine, const options *o)
{
    int status = PROGRAM_OK, first = 1;
    size_t length;
    char *line;

    for (;;) {
        interruptible(NULL);
        if (isatty(STDIN_FILENO))
            fputs("> ", stderr);
        program_energy_look(&energy);
        line = read_line(stdin, &length);
        program_energy_skip(&energy);
        if (!line)
            break;
        if (length) {
            status = turn(engine, o, first, line, length);
            if (!status && !put("\n", 1))
                status = output_lost();
            first = first && interrupted;
        }
        free(line);
        if (status)
            return status;
    }
    return PROGRAM_OK;
}

/* One message, one answer. */
static int reply(specdec *engine, const options *o, const char *prompt, size_t length)
{
    int status = turn(engine, o, 1, prompt, length);

    if (!status && isatty(STDOUT_FILENO) && !put("\n", 1))
        return output_lost();
    return status ? status : interrupted ? interrupted_status() : PROGRAM_OK;
}

/* Tokens that were handed out, and the seconds and steps they took. */
static int written_tokens(const specdec *engine, specdec_stats *stats)
{
    const int32_t *tokens;
    int count;

    specdec_get_stats(engine, stats);
    specdec_tokens(engine, &tokens, &count);
    return count - (int)stats->prompt_tokens;
}

static double ratio(double a, double b) { return b > 0 ? a / b : 0; }

static int write_stats(const specdec *engine, program_output *out)
{
    specdec_stats s;
    int tokens = written_tokens(engine, &s), ranks = 8, i;

    while (ranks && !s.offered_by_rank[ranks - 1])
        ranks--;
    fprintf(out->file, "{\"tokens\":%d,\"seconds\":%.6f,\"tok_s\":%.3f,\"ttft_ms\":%.3f,\"steps\":%lld,\"tokens_per_step\":%.4f,\"acceptance_by_rank\":[",
            tokens, s.seconds, ratio(tokens, s.seconds), 1000 * s.first_token_seconds, (long long)s.steps, ratio(tokens, (double)s.steps));
    for (i = 0; i < ranks; i++)
        fprintf(out->file, i ? ",%.4f" : "%.4f", ratio((double)s.accepted_by_rank[i], (double)s.offered_by_rank[i]));
    fprintf(out->file, "],\"draft_s\":%.6f,\"verify_s\":%.6f,\"other_s\":%.6f,\"drafted\":%lld,\"accepted\":%lld,"
            "\"steps_model\":%lld,\"steps_ngram\":%lld,\"steps_by_width\":[", s.draft_seconds, s.verify_seconds,
            s.seconds > s.draft_seconds + s.verify_seconds ? s.seconds - s.draft_seconds - s.verify_seconds : 0, (long long)s.drafted,
            (long long)s.accepted, (long long)s.steps_model, (long long)s.steps_ngram);
    for (i = 0; i < (int)(sizeof s.steps_by_width / sizeof *s.steps_by_width); i++)
        fprintf(out->file, i ? ",%lld" : "%lld", (long long)s.steps_by_width[i]);
    fprintf(out->file, "],\"trees\":[");
    for (i = 0; i < SPECDEC_STATS_TREES && s.trees[i].steps; i++)
        fprintf(out->file, "%s{\"nodes\":%d,\"levels\":%d,\"steps\":%lld}", i ? "," : "", (int)s.trees[i].nodes, (int)s.trees[i].levels,
                (long long)s.trees[i].steps);
    fprintf(out->file, "],\"steps_other_trees\":%lld", (long long)s.steps_other_trees);
    if (energy.known)
        fprintf(out->file, ",\"energy_j\":%.3f,\"energy_j_token\":%.4f", energy.joules, ratio(energy.joules, tokens));
    fprintf(out->file, "}\n");
    return program_output_close(out);
}

/* How fast it was, for people who watch. */
static void report(const specdec *engine)
{
    specdec_stats s;
    specdec_info info;
    int tokens = written_tokens(engine, &s);

    specdec_get_info(engine, &info);
    fprintf(stderr, "\n[%d tokens, %.1f a second, %.2f a step; prompt %lld tokens, %.1f a second; ", tokens, ratio(tokens, s.seconds),
            ratio(tokens, (double)s.steps), (long long)s.prompt_tokens, ratio((double)s.prompt_tokens, s.prompt_seconds));
    if (energy.known)
        fprintf(stderr, "%.2f J a token; ", ratio(energy.joules, tokens));
    fprintf(stderr, "%d threads, %s]\n", info.threads, info.isa);
}

static int run(options *o, const char *prompt, size_t length, program_output *stats)
{
    specdec *engine;
    size_t bytes;
    void *memory;
    int status;

    if (specdec_memory_needed(&o->config, &bytes))
        return program_failed("", specdec_last_error(&o->config));
    memory = program_memory(bytes);
    if (!memory)
        return PROGRAM_FAILED;
    if (specdec_init(&engine, &o->config, memory, bytes))
        return program_failed("", specdec_last_error(&o->config));
    program_energy_begin(&energy, PROGRAM_ENERGY);
    status = !o->chat ? complete(engine, o, prompt, length) : prompt ? reply(engine, o, prompt, length) : converse(engine, o);
    program_energy_look(&energy);
    interruptible(NULL);
    if (stats->file && write_stats(engine, stats) && !status)
        status = PROGRAM_FAILED;
    if (isatty(STDERR_FILENO) && status != PROGRAM_FAILED)
        report(engine);
    specdec_deinit(engine);
    return status;
}

/* What the table of flags cannot check. */
static int check(options *o)
{
    static const specdec_drafting drafting[] = {SPECDEC_DRAFT_AUTO, SPECDEC_DRAFT_OFF, SPECDEC_DRAFT_MODEL, SPECDEC_DRAFT_NGRAM};
    static const specdec_verifier verifier[] = {SPECDEC_VERIFY_COUPLED, SPECDEC_VERIFY_COUPLED, SPECDEC_VERIFY_SEQUOIA,
                                                SPECDEC_VERIFY_SPECINFER, SPECDEC_VERIFY_SPECTR, SPECDEC_VERIFY_TOP_K};
    specdec_config *c = &o->config;

    if (!c->target.path)
        return program_misused("-m is missing: which model?", "");
    if (o->prompt && o->file)
        return program_misused("-p and -f are both prompts: one is enough", "");
    if (!o->prompt && !o->file && !o->chat)
        return program_misused("a prompt is missing: -p, -f or --chat", "");
    if (o->spec == SPEC_DRAFT && !c->draft.path)
        return program_misused("--spec draft needs a draft model: -md", "");
    if (o->verify == VERIFY_GREEDY && c->sampling.temperature > 0)
        return program_misused("--verify greedy goes with --temp 0 only", "");
    if ((o->system || c->chat_format) && !o->chat)
        return program_misused("--system and --chat-format go with --chat only", "");
    c->drafting = drafting[o->spec];
    c->verifier = verifier[o->verify];
    c->policy = (specdec_policy)o->policy;
    c->max_tokens = o->limit > 0 ? o->limit : 0;
    c->hooks.progress = program_progress;
    return PROGRAM_GO_ON;
}

static int read_options(options *o, int argc, char **argv)
{
    specdec_config *c = &o->config;
    const program_flag flags[] = {
        {"-m", PROGRAM_TEXT, &c->target.path, "FILE", "the model: a GGUF file", 0, 0},
        {"-md", PROGRAM_TEXT, &c->draft.path, "FILE", "a small draft model with the same vocabulary", 0, 0},
        {"-p", PROGRAM_TEXT, &o->prompt, "TEXT", "the prompt", 0, 0},
        {"-f", PROGRAM_TEXT, &o->file, "FILE", "the prompt is in this file; - is standard input. One newline at its end is dropped", 0, 0},
        {"-n", PROGRAM_INTEGER, &o->limit, "N", "tokens to write, at most; -1: until the text ends or the context is full (-1)", -1, 1 << 24},
        {"-t", PROGRAM_INTEGER, &c->threads, "N", "threads; 0: all processors (0)", 0, SPECDEC_MAX_THREADS},
        {"-c", PROGRAM_INTEGER, &c->context, "N", "tokens of context; 0: the model's own, at most 4096 (0)", 0, 1 << 24},
        {"-b", PROGRAM_INTEGER, &c->batch, "N", "tokens of the prompt that are read at once; 0: 64 (0)", 0, 512},
        {"--temp", PROGRAM_REAL, &c->sampling.temperature, "F", "temperature; 0: greedy, always the most probable token (0)", 0, 1e6},
        {"--top-k", PROGRAM_INTEGER, &c->sampling.top_k, "N", "sample among the N best tokens; 0: off (0)", 0, 1 << 24},
        {"--top-p", PROGRAM_REAL, &c->sampling.top_p, "F", "sample among the best that hold this probability; 1: off (1)", 0, 1},
        {"--min-p", PROGRAM_REAL, &c->sampling.min_p, "F", "not below this share of the best one's probability; 0: off (0)", 0, 1},
        {"--repeat-penalty", PROGRAM_REAL, &c->sampling.repetition_penalty, "F", "against repetition; 1: off (1)", 0, 1e6},
        {"--repeat-last-n", PROGRAM_INTEGER, &c->sampling.repetition_window, "N", "tokens it looks back; -1: all (64)", -1, 1 << 24},
        {"--seed", PROGRAM_SEED, &c->sampling.seed, "S", "the text is a function of prompt, models, flags and seed (0)", 0, 0},
        {"--spec", PROGRAM_CHOICE, &o->spec, "auto|off|draft|ngram", "where guesses come from: whatever pays; nowhere; always -md; repetition (auto)", 0, 0},
        {"--tree-size", PROGRAM_INTEGER, &c->tree_size, "N", "tokens of the speculated tree, the last known one included; 0: 8, auto: up to 32 (0)", 0, 64},
        {"--tree-depth", PROGRAM_INTEGER, &c->tree_depth, "D", "its levels; D = N is a chain; 0: 5, auto: up to 12 (0)", 0, 32},
        {"--verify", PROGRAM_CHOICE, &o->verify, "coupled|greedy|sequoia|specinfer|spectr|top-k",
         "how guesses are accepted (coupled: the very text of --spec off; greedy: the same, at\n"
         "--temp 0; the others: texts of the same distribution, from the draft model alone)", 0, 0},
        {"--policy", PROGRAM_CHOICE, &o->policy, "static|dynamic",
         "the draft model's trees: from tables, or grown from its probabilities (--verify coupled,\n"
         "greedy and top-k only) (static)", 0, 0},
        {"--chat", PROGRAM_SWITCH, &o->chat, NULL, "a conversation: lines from standard input, or one message by -p or -f", 0, 0},
        {"--chat-format", PROGRAM_TEXT, &c->chat_format, "NAME", "zephyr chatml llama2 llama3 mistral gemma (as the model says)", 0, 0},
        {"--system", PROGRAM_TEXT, &o->system, "TEXT", "what a conversation begins with", 0, 0},
        {"--stop", PROGRAM_TEXTS, c->stop, "TEXT", "ends the text, and is not part of it; up to 8 times", 0, 8},
        {"--special", PROGRAM_SWITCH, &c->show_special, NULL, "control tokens are written, too", 0, 0},
        {"--no-echo", PROGRAM_NO, &o->echo, NULL, "the prompt is not written before its continuation", 0, 0},
        {"--kv", PROGRAM_TEXT, &c->kv, "f16|f32|q8_0", "how keys and values are kept (f16)", 0, 0},
        {"--isa", PROGRAM_TEXT, &c->isa, "NAME", "instruction set, see specdec-info; the text is the same with all (the best)", 0, 0},
        {"--in-place", PROGRAM_SWITCH, &c->weights_in_place, NULL, "weights stay in the file: half the memory, slower", 0, 0},
        {"--stats", PROGRAM_TEXT, &o->stats, "FILE", "times and counts as JSON", 0, 0},
        {NULL, PROGRAM_SWITCH, NULL, NULL, NULL, 0, 0}};
    int status;

    memset(o, 0, sizeof *o);
    o->limit = -1;
    o->echo = 1;
    status = program_read(flags, argc, argv, "specdec", "-m MODEL.gguf [-md DRAFT.gguf] (-p TEXT | -f FILE | --chat) [flags]",
                          "The text goes to standard output as it is found: the prompt and its continuation, with --chat the answers.\n"
                          "Ctrl-C ends it early (status 130).\n");
    return status == PROGRAM_GO_ON ? check(o) : status;
}

int main(int argc, char **argv)
{
    program_output stats = {NULL, NULL, NULL};
    const char *prompt;
    char *text = NULL;
    size_t length;
    options o;
    int status = read_options(&o, argc, argv);

    if (status != PROGRAM_GO_ON)
        return status;
    signal(SIGPIPE, SIG_IGN);
    prompt = o.prompt;
    length = prompt ? strlen(prompt) : 0;
    if (o.file) {
        prompt = text = program_read_file(o.file, &length);
        if (!text)
            return PROGRAM_FAILED;
        if (length && text[length - 1] == '\n')
            length--;
    }
    if (o.stats && program_output_open(&stats, o.stats))
        return PROGRAM_FAILED;
    status = run(&o, prompt, length, &stats);
    program_output_drop(&stats);
    free(text);
    return status;
}
