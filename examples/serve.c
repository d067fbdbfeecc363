/* serve - a model behind HTTP, as OpenAI's clients expect it, and a page to talk to it. One engine, many sequences: one
   thread calls the engine and makes one step for all of them (serve/engine.h); libmicrohttpd's thread takes requests and
   sends replies (serve/http.h); between them is a queue. make serve builds it; docs/serve.md says how it is used. */
#define _GNU_SOURCE 1 /* POLLRDHUP, and POSIX under -std=c99 */
#if defined(__has_include)
#if !__has_include(<microhttpd.h>) || !__has_include(<jansson.h>)
#define SERVE_LACKS_LIBRARIES
#endif
#endif
#ifdef SERVE_LACKS_LIBRARIES /* make serve does not build this: it is for those who check all examples at once */
#include <stdio.h>

int main(void) { return fputs("serve: built without libmicrohttpd and jansson\n", stderr) < 0 ? 2 : 1; }
#else
#include "specdec.h"
#include "tools/program.h"
#include "tools/settings.h"
#include <arpa/inet.h>
#include <jansson.h>
#include <math.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <strings.h>
#include <sys/socket.h>

extern const char *const page_html[], *const page_css[], *const page_js[]; /* lines of the page's files: make writes them */

#include "serve/write.h"
#include "serve/server.h"
#include "serve/request.h"
#include "serve/reply.h"
#include "serve/engine.h"
#include "serve/metrics.h"
#include "serve/http.h"

enum { HISTORY = 65536 /* tokens of closed sequences that n-grams draft from */, LOGPROBS = 20 /* best, as OpenAI has it */ };

static specdec_error failure;

/* specdec_hooks.progress: a bar while the model is loaded. */
static int on_progress(void *user_data, const char *what, int done, int total)
{
    return strcmp(what, "repack") == 0 ? program_progress(user_data, what, done, total) : 0;
}

/* --- the model ---------------------------------------------------------------------------------------------------- */

/* What the model is called: --name, else its file's name. */
static void name_model(server *s)
{
    size_t length;

    snprintf(s->model, sizeof s->model, "%s", s->o->name ? s->o->name : program_last_name(s->o->config.target.path));
    length = strlen(s->model);
    if (!s->o->name && length > 5 && strcmp(s->model + length - 5, ".gguf") == 0)
        s->model[length - 5] = 0;
}

/* Whether embeddings are the last token's state: as told, else as the model's file says (mean: 1, last: 3). */
static int pools_last(const options *o, const specdec_model_info *model)
{
    char key[160];
    int64_t kind = 1;

    if (o->pooling)
        return strcmp(o->pooling, "last") == 0;
    snprintf(key, sizeof key, "%s.pooling_type", model->architecture ? model->architecture : "");
    specdec_gguf_get_integer(model->gguf, key, 0, 4, &kind, NULL);
    return kind == 3;
}

/* How answers are sampled that say nothing else: as people expect, as the model's file recommends, as flags say. */
static void settle(server *s)
{
    specdec_model_info model;
    int taken = 0;

    s->settings = s->o->config.settings;
    s->settings.sampling.temperature = 0.8f;
    s->settings.sampling.top_k = 40;
    s->settings.sampling.top_p = 0.95f;
    s->settings.sampling.min_p = 0.05f;
    if (!specdec_get_model_info(specdec_get_model(s->engine), &model)) {
        taken = settings_from_file(&s->settings, model.gguf);
        s->last_pooling = pools_last(s->o, &model);
        s->calls = model.call_format;
    }
    settings_take(&s->settings, &s->o->config.settings, s->o->given);
    settings_tell(&s->settings, taken ? "as the model's file says:" : "samples as with");
}

/* The engine, without an open sequence. Returns a status. */
static int make_engine(server *s)
{
    size_t bytes;
    void *memory;

    if (specdec_memory_needed(&s->o->config, &bytes, &failure))
        return program_failed("", failure.text);
    memory = program_memory(bytes, PROGRAM_LESS);
    if (!memory)
        return PROGRAM_FAILED;
    if (specdec_init(&s->engine, &s->o->config, memory, bytes, &failure))
        return program_failed("", failure.text);
    specdec_close(s->engine);
    specdec_get_info(s->engine, &s->info);
    return PROGRAM_OK;
}

/* --- history ------------------------------------------------------------------------------------------------------ */

/* Loads what n-grams drafted from before. Returns a status. */
static int load_history(const server *s)
{
    size_t size;
    int absent = 0;
    char *data = s->o->history ? program_read_regular(s->o->history, &size, &absent) : NULL;
    specdec_result result = data ? specdec_load_history(s->engine, data, size) : SPECDEC_OK;

    free(data);
    if (s->o->history && !data && !absent)
        return PROGRAM_FAILED;
    return result ? program_refused(s->o->history, specdec_error_text(s->engine)) : PROGRAM_OK;
}

static int save_history(const server *s, program_output *out)
{
    size_t size = 0;
    char *data;
    int status;

    specdec_save_history(s->engine, NULL, 0, &size);
    data = (char *)malloc(size + 1);
    if (!data)
        return program_failed("out of memory", "");
    status = specdec_save_history(s->engine, data, size, &size) ? program_failed("", specdec_error_text(s->engine)) : PROGRAM_OK;
    if (!status)
        program_output_write(out, data, size);
    free(data);
    return status ? status : program_output_end(out);
}

/* --- running ------------------------------------------------------------------------------------------------------ */

/* The next signal that ends the program, or 0 after so many seconds without one. */
static int next_signal(const sigset_t *signals, double seconds)
{
    struct timespec wait;
    int number;

    wait.tv_sec = (time_t)seconds;
    wait.tv_nsec = (long)((seconds - (double)wait.tv_sec) * 1e9);
    number = sigtimedwait(signals, NULL, &wait);
    return number > 0 ? number : 0;
}

/* Waits for a signal; then until all requests are answered, for --drain seconds at most, or for a second signal. Returns
   the socket that listened: the daemon's thread may still look at it, so it is closed only after that thread has ended. */
static MHD_socket serve_until_told(server *s, struct MHD_Daemon *daemon, const sigset_t *signals)
{
    MHD_socket listener;
    double begun;
    int open;

    while (!next_signal(signals, 0.5))
        http_sweep(s);
    fprintf(stderr, "%s: ends when all requests are answered, or at a second signal\n", program_name);
    server_lock(s);
    s->draining = 1;
    server_unlock(s);
    listener = MHD_quiesce_daemon(daemon); /* no new connections */
    if (listener != MHD_INVALID_SOCKET)
        shutdown(listener, SHUT_RDWR); /* Linux refuses new clients from here on; other systems let them wait */
    begun = serve_clock();
    do {
        http_sweep(s);
        server_lock(s);
        open = s->open;
        server_unlock(s);
        open |= serve_clock() < begun + 0.2; /* what was sent just before is still to be refused */
    } while (open && serve_clock() < begun + s->o->drain && !next_signal(signals, 0.05));
    return listener;
}

/* Ends the engine's thread: what is still at work is given up. */
static void stop_engine(server *s, pthread_t engine)
{
    connection *c;

    server_lock(s);
    s->stopping = 1;
    for (c = s->connections; c; c = c->next) /* their requests are then seen to be gone */
        if (c->fd >= 0)
            shutdown(c->fd, SHUT_RDWR);
    pthread_cond_signal(&s->wake);
    server_unlock(s);
    pthread_join(engine, NULL);
}

/* Listens, answers, ends. Returns a status. */
static int serve(server *s)
{
    MHD_socket listener = MHD_INVALID_SOCKET;
    struct MHD_Daemon *daemon;
    pthread_t engine;
    sigset_t signals;

    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* in all threads to come, too: the main one waits for them */
    if (pthread_create(&engine, NULL, engine_run, s))
        return program_failed("no thread for the engine", "");
    daemon = http_start(s);
    if (daemon) {
        fprintf(stderr, "%s: %s at http://%s%s%s:%d/ (%d slots of %d tokens)\n", program_name, s->model, strchr(s->o->host, ':') ? "[" : "",
                s->o->host, strchr(s->o->host, ':') ? "]" : "", s->o->port, s->o->slots, s->info.context);
        if (!s->loopback && !s->o->key)
            fprintf(stderr, "%s: whoever reaches this address may use it: --api-key asks for a key\n", program_name);
        listener = serve_until_told(s, daemon, &signals);
    }
    stop_engine(s, engine);
    if (daemon)
        MHD_stop_daemon(daemon);
    if (listener != MHD_INVALID_SOCKET)
        close(listener);
    free(s->watched);
    return daemon ? PROGRAM_OK : PROGRAM_FAILED;
}

/* --- the command line --------------------------------------------------------------------------------------------- */

/* What the table of flags cannot check. */
static int check(options *o)
{
    specdec_config *c = &o->config;
    const int status = settings_check_models(c, o->spec);

    if (status != PROGRAM_GO_ON)
        return status;
    if (o->history && o->spec != SPECDEC_DRAFT_AUTO && o->spec != SPECDEC_DRAFT_NGRAM)
        return program_misused("--history goes with --spec auto and ngram only", "");
    if (!o->key)
        o->key = getenv("SPECDEC_API_KEY");
    if (o->key && !*o->key)
        return program_misused("--api-key is empty", "");
    c->drafting = (specdec_drafting)o->spec;
    c->sequences = o->slots > 1 ? o->slots : 2; /* with several, prompts are read by steps */
    c->fork_token = "";                     /* a child would take a slot */
    return PROGRAM_GO_ON;
}

static int read_options(options *o, int argc, char **argv)
{
    specdec_config *c = &o->config;
    const program_flag flags[] = {
        MODEL_FLAGS(c),
        {"--host", PROGRAM_TEXT, &o->host, "ADDRESS", "where to listen (127.0.0.1: this machine alone)", 0, 0},
        {"--port", PROGRAM_INTEGER, &o->port, "N", "(8080)", 1, 65535},
        {"--api-key", PROGRAM_TEXT, &o->key, "KEY", "requests must bring it; also from SPECDEC_API_KEY, which others cannot see in a list of processes (none)", 0, 0},
        {"--cors", PROGRAM_TEXT, &o->cors, "ORIGIN", "pages of this site may use the server, such as https://example.org; * is all (none)", 0, 0},
        {"--slots", PROGRAM_INTEGER, &o->slots, "N", "sequences at a time (4)", 1, 256},
        {"--queue", PROGRAM_INTEGER, &o->queue, "N", "requests that may wait for a slot; more are refused with 429 (64)", 0, 1 << 16},
        {"--connections", PROGRAM_INTEGER, &o->connections, "N", "at a time (512)", 1, 1 << 16},
        {"--max-body", PROGRAM_INTEGER, &o->max_body, "BYTES", "of a request; more is refused with 413 (8388608)", 1024, 1 << 30},
        {"--timeout", PROGRAM_INTEGER, &o->timeout, "SECONDS", "until an answer must be complete (600)", 1, 1 << 20},
        {"--drain", PROGRAM_INTEGER, &o->drain, "SECONDS", "that SIGTERM leaves to requests under way (30)", 0, 1 << 20},
        {"--history", PROGRAM_TEXT, &o->history, "FILE", "what was written is kept here, and drafted from the next time", 0, 0},
        {"--name", PROGRAM_TEXT, &o->name, "TEXT", "what the model is called (its file's name)", 0, 0},
        {"--pooling", PROGRAM_NAME, &o->pooling, "mean|last", "which states make an embedding (as the model's file says, else mean)", 0, 0},
        {"-t", PROGRAM_FIELD, c, "threads", NULL, 0, 0},
        {"-c", PROGRAM_FIELD, c, "context", NULL, 0, 0},
        {"--cache", PROGRAM_FIELD, c, "cache", NULL, 0, 0},
        {"-n", PROGRAM_INTEGER, &c->settings.max_tokens, "N", "tokens of an answer, at most; 0: as many as the context holds (0)", 0, 1 << 24},
        {"--temp", PROGRAM_REAL, &c->settings.sampling.temperature, "F", "of requests that name none", 0, 1e6},
        SAMPLING_FLAGS(c),
        {"--spec", PROGRAM_CHOICE, &o->spec, PROGRAM_DRAFTING, "where draft tokens come from: whatever pays; nowhere; -md; -mh; MTP layers of the model;\n"
         "a part of a long text, read by the model itself; repetition (auto)", 0, 0},
        {"--chat-format", PROGRAM_NAME, &c->chat_format, PROGRAM_CHAT_FORMATS, "how a conversation is put (as the model says)", 0, 0},
        {"--kv", PROGRAM_FIELD, c, "kv", NULL, 0, 0},
        {"--in-place", PROGRAM_FIELD, c, "weights_in_place", NULL, 0, 0},
        {NULL, PROGRAM_SWITCH, NULL, NULL, NULL, 0, 0}};
    int status;

    o->host = "127.0.0.1";
    o->port = 8080;
    o->slots = 4;
    o->queue = 64;
    o->connections = 512;
    o->max_body = 8 << 20;
    o->timeout = 600;
    o->drain = 30;
    c->history = HISTORY;
    c->logprobs = LOGPROBS;
    c->constraints = 1;
    c->hooks.progress = on_progress;
    c->hooks.log = program_warn;
    status = program_read(flags, argc, argv, "serve", "-m MODEL.gguf [-md DRAFT.gguf] [flags]",
                          "Answers HTTP as OpenAI's clients expect it: /v1/chat/completions, /v1/completions, /v1/embeddings,\n"
                          "/v1/models, /health, /metrics; at / is a page to talk to the model. SIGTERM and Ctrl-C: no new\n"
                          "requests, those under way are answered.\n");
    o->given = settings_given(flags);
    return status == PROGRAM_GO_ON ? check(o) : status;
}

int main(int argc, char **argv)
{
    static options o;
    static server s;
    program_output history = PROGRAM_NO_OUTPUT;
    const char *inputs[4] = {NULL, NULL, NULL, NULL};
    int status = read_options(&o, argc, argv), count = 0;

    if (status != PROGRAM_GO_ON)
        return status;
    signal(SIGPIPE, SIG_IGN);
    inputs[count++] = o.config.target.path;
    if (o.config.draft.path)
        inputs[count++] = o.config.draft.path;
    if (o.config.heads.path)
        inputs[count++] = o.config.heads.path;
    json_object_seed(0);
    s.o = &o;
    s.inbox_end = &s.inbox;
    s.active_end = &s.active;
    s.salt = program_clock_seed();
    s.started = (long long)time(NULL);
    pthread_mutex_init(&s.lock, NULL);
    pthread_cond_init(&s.wake, NULL);
    name_model(&s);
    status = make_engine(&s);
    if (!status)
        status = load_history(&s);
    if (!status && o.history)
        status = program_output_open(&history, o.history, inputs);
    if (!status) {
        settle(&s);
        status = serve(&s);
    }
    if (!status && o.history)
        status = save_history(&s, &history);
    if (s.engine)
        specdec_deinit(s.engine);
    return program_finish(status);
}
#endif
