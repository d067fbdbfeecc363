/* server.h - what the threads of serve share: requests on their way, connections, counters. */
#ifndef SERVE_SERVER_H
#define SERVE_SERVER_H

enum { SERVE_CHOICES = 128, SERVE_BUCKETS = 14, SERVE_ENDPOINTS = 8 };

/* A call of a tool, as far as it was written. */
typedef struct tool_call {
    text name, arguments;
} tool_call;

typedef enum request_kind { REQUEST_CHAT, REQUEST_COMPLETION, REQUEST_EMBEDDING } request_kind;

typedef enum choice_state { CHOICE_WAITING, CHOICE_RUNNING, CHOICE_DONE } choice_state;

/* One answer of a request, or one input of an embedding request. Belongs to the engine's thread. */
typedef struct choice {
    choice_state state;
    int prompt;             /* which of the request's prompts */
    specdec *sequence;      /* while running */
    int prompted, tokens;   /* tokens of the prompt; of the answer that were handed out */
    int skip;               /* tokens that were delivered before the sequence began anew (see engine_put_back) */
    int64_t accepted;       /* draft tokens that were accepted, up to the last step */
    int step_from, drafted; /* answer tokens before this step, and how many of this step's were draft tokens */
    double began, last;     /* when it was prompted, when its last piece came; seconds */
    const char *finish;     /* why it ended, in OpenAI's words */
    text content, thoughts; /* the answer, where it is not streamed */
    tool_call *calls;       /* (call_count) */
    int call_count;
    int called;  /* the one call that is wanted is whole */
    char cut[4]; /* (cut_count) bytes of a character of a call whose others are still to come */
    int cut_count;
    text logprobs;       /* JSON items, for "content" of logprobs, or NULL */
    text tokens_json[3]; /* completions: items of "tokens", "token_logprobs", "top_logprobs" */
    text offsets;        /* and of "text_offset" */
    size_t offset;       /* bytes of the answer so far */
    specdec_stats stats; /* at its end */
    int32_t *input;      /* embeddings: (prompted) tokens, of which `tokens` have been read */
    float *sum;          /* embeddings: of states, then the embedding */
} choice;

/* A request, from its headers to the last byte of its reply. What is not said to be otherwise is written by the thread
   that holds it: first that of HTTP, which parses; then, once it is in the queue, the engine's. */
typedef struct request {
    struct request *next; /* in the queue, or among those at work */
    struct server *owner;
    struct MHD_Connection *connection;
    int fd, endpoint;
    text body;
    size_t received; /* bytes of the body */
    int asked;       /* the body is complete */

    request_kind kind;
    json_t *json; /* the body; what settings point to lies in it */
    specdec_settings settings;
    specdec_bias *biases;
    void *constraint, *calls; /* what settings.constraint and settings.calls lie in */
    int one_call;             /* an answer ends behind its first call of a tool */
    int seeded, stream, usage_wanted, marks_wanted, logprobs, top_logprobs, base64, n;
    int prompts, count; /* prompts, choices */
    choice *choices;    /* (count) */
    double arrived, deadline;
    char id[40];
    long long created;
    int started; /* a choice has begun */

    /* Under the server's lock: */
    int holders;   /* HTTP, engine: the last one frees it */
    int gone;      /* its client is; nobody wants the reply any more */
    int suspended; /* its connection waits for resume */
    int status;    /* of the reply; 0: none yet */
    int complete;  /* no more will be added to the reply */
    text out;      /* the reply, or what is streamed and was not sent yet: out[sent ..] */
    size_t sent;
} request;

/* A TCP connection and until when its client must have done what is to be done. Under the server's lock. */
typedef struct connection {
    struct connection *next, **back;
    int fd;
    double deadline;
} connection;

/* What /metrics tells. Under the server's lock. */
typedef struct metrics {
    long long requests[SERVE_ENDPOINTS][6]; /* by endpoint, by status / 100 */
    long long refused_full, cancelled, timed_out;
    long long prompt_tokens, shared_tokens, tokens, steps, drafted, accepted;
    long long accepted_by[SPECDEC_DRAFT_COUNT + 1];                /* by drafter; last: of trees that several filled */
    long long waits[SERVE_BUCKETS + 1], firsts[SERVE_BUCKETS + 1]; /* histograms: between pieces; until the first */
    double waits_sum, firsts_sum;
    int running, cache, cache_free, cache_prefixes;
} metrics;

/* Upper ends of the buckets of both histograms, seconds. */
static const double serve_buckets[SERVE_BUCKETS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                    0.25,  0.5,    1,     2.5,  5,     10,   30};

typedef struct options {
    specdec_config config;
    const char *host, *key, *cors, *history, *name, *pooling;
    int port, slots, queue, max_body, timeout, spec, connections, drain;
    unsigned given; /* settings that are flags: see settings_given */
} options;

typedef struct server {
    const options *o;
    specdec *engine;
    specdec_settings settings; /* of requests that say nothing else */
    specdec_info info;
    char model[128];   /* what the model is called */
    const char *calls; /* how the model writes calls of tools; NULL: not known */
    int last_pooling;  /* embeddings are the last token's state, not the mean */
    int loopback;      /* only this machine is listened to */
    uint64_t salt;     /* of ids */
    long long started;

    pthread_mutex_t lock;
    pthread_cond_t wake;         /* the engine's thread: there is something to do */
    request *inbox, **inbox_end; /* requests that the engine has not taken yet */
    int waiting;                 /* requests none of whose choices has begun */
    int open;                    /* requests whose reply is not sent yet */
    int draining, stopping;
    long long numbered;
    connection *connections;
    metrics m;

    request *active, **active_end; /* the engine's thread alone: requests at work, the oldest first */
    int running;                   /* sequences that are open */
    int moved, stalled;            /* the last step has read or written; how many did not */
    int crowded;                   /* the cache had no room for one: no other begins until one ends */
    struct pollfd *watched;
    int watched_room;
} server;

static double serve_clock(void) { return program_seconds(); }

static void server_lock(server *s) { pthread_mutex_lock(&s->lock); }
static void server_unlock(server *s) { pthread_mutex_unlock(&s->lock); }

static void choice_free(choice *c)
{
    int i;

    for (i = 0; i < c->call_count; i++) {
        text_free(&c->calls[i].name);
        text_free(&c->calls[i].arguments);
    }
    free(c->calls);
    text_free(&c->content);
    text_free(&c->thoughts);
    for (i = 0; i < 3; i++)
        text_free(&c->tokens_json[i]);
    text_free(&c->logprobs);
    text_free(&c->offsets);
    free(c->input);
    free(c->sum);
}

/* One of its two holders lets a request go. Without the lock. */
static void request_release(server *s, request *r)
{
    int i, holders;

    server_lock(s);
    holders = --r->holders;
    server_unlock(s);
    if (holders)
        return;
    for (i = 0; i < r->count; i++)
        choice_free(&r->choices[i]);
    free(r->choices);
    free(r->biases);
    free(r->constraint);
    free(r->calls);
    text_free(&r->body);
    text_free(&r->out);
    json_decref(r->json);
    free(r);
}

/* Wakes the connection of a request, which waits for more of its reply. Under the lock. */
static void request_resume(request *r)
{
    if (r->suspended) {
        r->suspended = 0;
        MHD_resume_connection(r->connection);
    }
}

/* Adds to a reply. */
static void request_send(server *s, request *r, const char *bytes, size_t length)
{
    server_lock(s);
    if (!r->gone) {
        text_add(&r->out, bytes, length);
        if (r->stream)
            request_resume(r);
    }
    server_unlock(s);
}

/* Ends a reply with a status, which counts where none was sent yet. */
static void request_end(server *s, request *r, int status)
{
    server_lock(s);
    if (!r->status)
        r->status = status;
    r->complete = 1;
    request_resume(r);
    server_unlock(s);
}

/* An error as OpenAI's clients expect it. */
static void error_json(text *out, int status, const char *code, const char *message)
{
    writer w = write_to(out);

    put_object(&w, NULL);
    put_object(&w, "error");
    put_text(&w, "message", message);
    put_text(&w, "type",
             status == 401   ? "authentication_error"
             : status == 429 ? "rate_limit_error"
             : status >= 500 ? "server_error"
                             : "invalid_request_error");
    put_null(&w, "param");
    if (code)
        put_text(&w, "code", code);
    else
        put_null(&w, "code");
    put_close(&w);
    put_close(&w);
}

/* Ends a request with an error: as its reply, or, where a stream has begun, as its last event. */
static void request_fail(server *s, request *r, int status, const char *code, const char *message)
{
    text json = NO_TEXT;

    error_json(&json, status, code, message);
    server_lock(s);
    if (!r->status)
        text_free(&r->out);
    else
        text_say(&r->out, "data: ");
    text_add(&r->out, json.bytes ? json.bytes : "", json.length);
    text_say(&r->out, r->status ? "\n\n" : "\n");
    server_unlock(s);
    text_free(&json);
    request_end(s, r, status);
}
#endif
