/* http.h - libmicrohttpd's side: routes, limits, keys, origins, replies. Its threads never wait for the engine: a
   connection whose reply is not there yet is suspended, and woken by the engine's thread. */
#ifndef SERVE_HTTP_H
#define SERVE_HTTP_H

enum { HTTP_BLOCK = 16384, HTTP_HEADERS = 32768, HTTP_READ_SECONDS = 30, HTTP_SEND_SECONDS = 60 };

static const char page_policy[] = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
                                  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
                                  "require-trusted-types-for 'script'; trusted-types 'none'";

typedef enum route_kind { ROUTE_PAGE, ROUTE_STYLE, ROUTE_SCRIPT, ROUTE_HEALTH, ROUTE_METRICS, ROUTE_MODELS, ROUTE_ANSWER } route_kind;

static const struct route {
    const char *path, *method;
    route_kind kind;
    request_kind request;
    int open;              /* no key is needed */
} routes[SERVE_ENDPOINTS + 1] = {
    {"/v1/chat/completions", "POST", ROUTE_ANSWER, REQUEST_CHAT, 0},
    {"/v1/completions", "POST", ROUTE_ANSWER, REQUEST_COMPLETION, 0},
    {"/v1/embeddings", "POST", ROUTE_ANSWER, REQUEST_EMBEDDING, 0},
    {"/v1/models", "GET", ROUTE_MODELS, REQUEST_CHAT, 0},
    {"/health", "GET", ROUTE_HEALTH, REQUEST_CHAT, 1},
    {"/metrics", "GET", ROUTE_METRICS, REQUEST_CHAT, 0},
    {"/", "GET", ROUTE_PAGE, REQUEST_CHAT, 1},
    {"/page.css", "GET", ROUTE_STYLE, REQUEST_CHAT, 1},
    {"/page.js", "GET", ROUTE_SCRIPT, REQUEST_CHAT, 1}};

enum { ROUTES = (int)(sizeof routes / sizeof *routes) };

/* --- connections that must not linger ------------------------------------------------------------------------------ */

/* Until when the client of a connection must have done its part. */
static void http_deadline(server *s, struct MHD_Connection *c, double seconds)
{
    const union MHD_ConnectionInfo *about = MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    connection *own = about ? (connection *)about->socket_context : NULL;

    server_lock(s);
    if (own)
        own->deadline = serve_clock() + seconds;
    server_unlock(s);
}

/* A connection begins, or ends. */
static void on_connection(void *data, struct MHD_Connection *c, void **context, enum MHD_ConnectionNotificationCode code)
{
    server *s = (server *)data;
    const union MHD_ConnectionInfo *about = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    connection *own = (connection *)*context;

    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        *context = own = (connection *)calloc(1, sizeof *own);
        if (!own)
            return;
        own->fd = about ? about->connect_fd : -1;
        own->deadline = serve_clock() + HTTP_READ_SECONDS;
        server_lock(s);
        own->next = s->connections;
        own->back = &s->connections;
        if (own->next)
            own->next->back = &own->next;
        s->connections = own;
        server_unlock(s);
    } else if (own) {
        server_lock(s);
        *own->back = own->next;
        if (own->next)
            own->next->back = own->back;
        server_unlock(s);
        free(own);
        *context = NULL;
    }
}

/* Ends connections whose clients are too slow: with headers, with a body, with taking the reply. (libmicrohttpd's own
   timeout begins anew with every byte.) */
static void http_sweep(server *s)
{
    const double now = serve_clock();
    connection *c;

    server_lock(s);
    for (c = s->connections; c; c = c->next)
        if (now > c->deadline && c->fd >= 0)
            shutdown(c->fd, SHUT_RDWR);
    server_unlock(s);
}

/* --- replies ------------------------------------------------------------------------------------------------------ */

static void http_headers(const server *s, struct MHD_Response *response, const char *type)
{
    MHD_add_response_header(response, "Content-Type", type);
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "Cache-Control", "no-store");
    if (s->o->cors) {
        MHD_add_response_header(response, "Access-Control-Allow-Origin", s->o->cors);
        MHD_add_response_header(response, "Vary", "Origin");
    }
}

static void http_count(server *s, int endpoint, int status)
{
    server_lock(s);
    if (endpoint < SERVE_ENDPOINTS)
        s->m.requests[endpoint][status / 100]++;
    server_unlock(s);
}

/* Queues a reply of bytes, which are freed. */
static enum MHD_Result http_reply(server *s, struct MHD_Connection *c, int endpoint, int status, const char *type, text *body)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(body->length, body->bytes ? body->bytes : (void *)"",
                                                                    body->bytes ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
    enum MHD_Result result;

    memset(body, 0, sizeof *body);
    if (!response)
        return MHD_NO;
    http_headers(s, response, type);
    if (status == 429 || status == 503)
        MHD_add_response_header(response, "Retry-After", status == 429 ? "1" : "5");
    if (status == 401)
        MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
    if (status == 405)
        MHD_add_response_header(response, "Allow", "GET, HEAD, POST, OPTIONS");
    if (endpoint < ROUTES && (routes[endpoint].kind == ROUTE_PAGE || routes[endpoint].kind == ROUTE_STYLE ||
                              routes[endpoint].kind == ROUTE_SCRIPT)) {
        MHD_add_response_header(response, "Content-Security-Policy", page_policy);
        MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
    }
    http_deadline(s, c, HTTP_SEND_SECONDS);
    http_count(s, endpoint, status);
    result = MHD_queue_response(c, (unsigned)status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result http_refuse(server *s, struct MHD_Connection *c, int endpoint, int status, const char *code,
                                   const char *message)
{
    text body = NO_TEXT;

    error_json(&body, status, code, message);
    text_say(&body, "\n");
    return http_reply(s, c, endpoint, status, "application/json", &body);
}

/* Hands out a stream: as much as there is, or waits for more. */
static ssize_t on_read(void *data, uint64_t position, char *to, size_t room)
{
    request *r = (request *)data;
    server *s = r->owner;
    ssize_t count;

    (void)position;
    server_lock(s);
    if (r->gone || r->out.broken) {
        count = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (r->sent < r->out.length) {
        count = (ssize_t)(r->out.length - r->sent < room ? r->out.length - r->sent : room);
        memcpy(to, r->out.bytes + r->sent, (size_t)count);
        r->sent += (size_t)count;
        if (r->sent == r->out.length)
            r->sent = r->out.length = 0;
    } else if (r->complete) {
        count = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        count = 0;
        r->suspended = 1;
        MHD_suspend_connection(r->connection);
    }
    server_unlock(s);
    return count;
}

static enum MHD_Result http_stream(server *s, request *r)
{
    struct MHD_Response *response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, HTTP_BLOCK, on_read, r, NULL);
    enum MHD_Result result;

    if (!response)
        return MHD_NO;
    http_headers(s, response, "text/event-stream");
    MHD_add_response_header(response, "X-Accel-Buffering", "no");
    http_deadline(s, r->connection, s->o->timeout + HTTP_SEND_SECONDS);
    http_count(s, r->endpoint, 200);
    result = MHD_queue_response(r->connection, 200, response);
    MHD_destroy_response(response);
    return result;
}

/* A connection was woken: the reply's beginning, or all of it, is there. */
static enum MHD_Result http_resumed(server *s, request *r)
{
    text body = NO_TEXT;
    int status, stream, gone;

    server_lock(s);
    gone = r->gone;
    status = r->status;
    stream = r->stream && status == 200;
    if (!gone && !status) { /* not yet */
        r->suspended = 1;
        MHD_suspend_connection(r->connection);
    } else if (!stream) {
        body = r->out;
        memset(&r->out, 0, sizeof r->out);
    }
    server_unlock(s);
    if (gone || body.broken) {
        text_free(&body);
        return MHD_NO;
    }
    if (!status)
        return MHD_YES;
    return stream ? http_stream(s, r) : http_reply(s, r->connection, r->endpoint, status, "application/json", &body);
}

/* --- what is answered without the engine --------------------------------------------------------------------------- */

static void health_json(server *s, text *out)
{
    writer w = write_to(out);

    server_lock(s);
    put_object(&w, NULL);
    put_text(&w, "status", s->draining ? "draining" : "ok");
    put_integer(&w, "slots", s->o->slots);
    put_integer(&w, "running", s->m.running);
    put_integer(&w, "waiting", s->waiting);
    put_close(&w);
    server_unlock(s);
}

static void models_json(const server *s, text *out, int one)
{
    writer w = write_to(out);

    if (!one) {
        put_object(&w, NULL);
        put_text(&w, "object", "list");
        put_array(&w, "data");
    }
    put_object(&w, NULL);
    put_text(&w, "id", s->model);
    put_text(&w, "object", "model");
    put_integer(&w, "created", s->started);
    put_text(&w, "owned_by", "specdec");
    put_integer(&w, "context", s->info.context);
    put_close(&w);
    if (!one) {
        put_close(&w);
        put_close(&w);
    }
}

/* A file of the page: lines of C strings. */
static void page_text(text *out, const char *const *lines)
{
    for (; *lines; lines++)
        text_say(out, *lines);
}

static enum MHD_Result http_get(server *s, struct MHD_Connection *c, int endpoint, int one)
{
    const char *type = "application/json";
    text body = NO_TEXT;

    switch (routes[endpoint].kind) {
    case ROUTE_HEALTH:
        health_json(s, &body);
        break;
    case ROUTE_MODELS:
        models_json(s, &body, one);
        break;
    case ROUTE_METRICS:
        type = "text/plain; version=0.0.4";
        metrics_text(s, &body);
        break;
    case ROUTE_PAGE:
        type = "text/html; charset=utf-8";
        page_text(&body, page_html);
        break;
    case ROUTE_STYLE:
        type = "text/css; charset=utf-8";
        page_text(&body, page_css);
        break;
    default:
        type = "text/javascript; charset=utf-8";
        page_text(&body, page_js);
    }
    return http_reply(s, c, endpoint, routes[endpoint].kind == ROUTE_HEALTH && s->draining ? 503 : 200, type, &body);
}

/* --- who may ask -------------------------------------------------------------------------------------------------- */

/* Compares in a time that does not depend on where they differ. */
static int keys_equal(const char *a, const char *b)
{
    const size_t length_a = strlen(a), length_b = strlen(b);
    volatile unsigned different = length_a != length_b;
    size_t i;

    for (i = 0; i < length_a; i++)
        different |= (unsigned)((unsigned char)a[i] ^ (unsigned char)b[length_b ? i % length_b : 0]);
    return !different;
}

static int has_key(const server *s, struct MHD_Connection *c)
{
    const char *given = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Authorization");

    return !s->o->key || (given && strncmp(given, "Bearer ", 7) == 0 && keys_equal(given + 7, s->o->key));
}

/* Is a name, with a port or not, this machine's own? */
static int is_local(const char *host)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    size_t i, length;

    for (i = 0; i < PROGRAM_COUNT(names); i++) {
        length = strlen(names[i]);
        if (strncasecmp(host, names[i], length) == 0 && (!host[length] || host[length] == ':'))
            return 1;
    }
    return 0;
}

/* Pages of other sites must not use a server that their readers can reach: the Host must be this machine (unless a key
   protects the server, or it was told to listen elsewhere), the Origin this page, or what --cors allows. */
static int is_stranger(const server *s, struct MHD_Connection *c)
{
    const char *host = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Host");
    const char *origin = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Origin");
    const char *behind = origin ? strstr(origin, "://") : NULL;

    if (s->loopback && !s->o->key && host && !is_local(host))
        return 1;
    if (!origin || (s->o->cors && (strcmp(s->o->cors, "*") == 0 || strcmp(s->o->cors, origin) == 0)))
        return 0;
    return !behind || !host || strcasecmp(behind + 3, host) != 0;
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

/* The route of a path; one of a single model, too. ROUTES: there is none. */
static int find_route(const server *s, const char *path, int *one)
{
    static const char models[] = "/v1/models/";
    int i = 0;

    *one = strncmp(path, models, sizeof models - 1) == 0 && strcmp(path + sizeof models - 1, s->model) == 0;
    if (*one)
        path = "/v1/models";
    while (i < ROUTES && strcmp(path, routes[i].path) != 0)
        i++;
    return i;
}

/* The reply to a browser that asks what another site may do. */
static enum MHD_Result http_options(server *s, struct MHD_Connection *c, int endpoint)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(0, (void *)"", MHD_RESPMEM_PERSISTENT);
    enum MHD_Result result;

    if (!response)
        return MHD_NO;
    http_headers(s, response, "text/plain");
    if (s->o->cors) {
        MHD_add_response_header(response, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
        MHD_add_response_header(response, "Access-Control-Allow-Headers", "Authorization, Content-Type");
        MHD_add_response_header(response, "Access-Control-Max-Age", "600");
    }
    http_count(s, endpoint, 204);
    result = MHD_queue_response(c, 204, response);
    MHD_destroy_response(response);
    return result;
}

/* Is a body announced that is too long? */
static int is_too_long(const server *s, struct MHD_Connection *c)
{
    const char *length = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Content-Length");

    return length && strtoull(length, NULL, 10) > (unsigned long long)s->o->max_body;
}

/* A new request, for a body that will come. */
static enum MHD_Result http_begin(server *s, struct MHD_Connection *c, int endpoint, void **context)
{
    const union MHD_ConnectionInfo *about = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    request *r = (request *)calloc(1, sizeof *r);

    if (!r)
        return MHD_NO;
    r->owner = s;
    r->connection = c;
    r->fd = about ? about->connect_fd : -1;
    r->endpoint = endpoint;
    r->kind = routes[endpoint].request;
    r->holders = 1;
    r->arrived = serve_clock();
    *context = r;
    http_deadline(s, c, HTTP_READ_SECONDS);
    server_lock(s);
    s->open++;
    server_unlock(s);
    return MHD_YES;
}

/* A request's headers are there. */
static enum MHD_Result http_first(server *s, struct MHD_Connection *c, const char *path, const char *method, void **context)
{
    int one;
    const int endpoint = find_route(s, path, &one);
    const int post = strcmp(method, "POST") == 0, get = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;

    if (is_stranger(s, c))
        return http_refuse(s, c, endpoint, 403, NULL, "requests from other sites are not answered (--cors, --api-key)");
    if (endpoint == ROUTES)
        return http_refuse(s, c, endpoint, 404, NULL, "there is nothing at this path");
    if (strcmp(method, "OPTIONS") == 0)
        return http_options(s, c, endpoint);
    if (!routes[endpoint].open && !has_key(s, c))
        return http_refuse(s, c, endpoint, 401, "invalid_api_key", "the key is missing or wrong (Authorization: Bearer KEY)");
    if (routes[endpoint].method[0] == 'P' ? !post : !get)
        return http_refuse(s, c, endpoint, 405, NULL, "this path has another method");
    if (get)
        return http_get(s, c, endpoint, one);
    if (is_too_long(s, c))
        return http_refuse(s, c, endpoint, 413, NULL, "the body is too long (--max-body)");
    return http_begin(s, c, endpoint, context);
}

/* Takes a part of a body. What is too long is read on for a while, so that the client gets to the reply. */
static enum MHD_Result http_body(const server *s, request *r, const char *bytes, size_t *length)
{
    r->received += *length;
    if (r->received > (size_t)s->o->max_body) {
        text_free(&r->body);
        if (r->received > 2 * (size_t)s->o->max_body)
            return MHD_NO;
    } else {
        text_add(&r->body, bytes, *length);
    }
    *length = 0;
    return MHD_YES;
}

/* Puts a request into the queue. Returns 0, and why, when it is not taken. */
static int http_queue(server *s, request *r, refusal *why)
{
    int taken = 0;

    server_lock(s);
    if (s->draining) {
        refuse(why, 503, NULL, "the server is about to end");
    } else if (s->waiting >= s->o->queue) {
        s->m.refused_full++;
        refuse(why, 429, NULL, "%d requests wait already (--queue)", s->waiting);
    } else {
        taken = 1;
        snprintf(r->id, sizeof r->id, "%s-%08llx%08llx", r->kind == REQUEST_CHAT ? "chatcmpl" : "cmpl",
                 (unsigned long long)(s->salt & 0xFFFFFFFF), (unsigned long long)++s->numbered);
        if (!r->seeded)
            r->settings.sampling.seed = (s->salt + (uint64_t)s->numbered * 1000) & 0xFFFFFFFF;
        r->created = (long long)time(NULL);
        r->deadline = serve_clock() + s->o->timeout;
        r->holders = 2;
        r->next = NULL;
        *s->inbox_end = r;
        s->inbox_end = &r->next;
        s->waiting++;
        r->suspended = 1;
        MHD_suspend_connection(r->connection);
        pthread_cond_signal(&s->wake);
    }
    server_unlock(s);
    return taken;
}

/* A request's body is complete. */
static enum MHD_Result http_asked(server *s, request *r)
{
    refusal why;

    r->asked = 1;
    http_deadline(s, r->connection, s->o->timeout + HTTP_SEND_SECONDS);
    if (r->received > (size_t)s->o->max_body)
        return http_refuse(s, r->connection, r->endpoint, 413, NULL, "the body is too long (--max-body)");
    if (r->body.broken)
        return http_refuse(s, r->connection, r->endpoint, 500, NULL, "out of memory");
    if (request_parse(s, r, &why) && http_queue(s, r, &why))
        return MHD_YES;
    return http_refuse(s, r->connection, r->endpoint, why.status, why.code, why.text);
}

static request http_no_body; /* stands for requests that have none */

/* libmicrohttpd's call for headers, for parts of a body, for its end, and when a connection was woken. */
static enum MHD_Result on_request(void *data, struct MHD_Connection *c, const char *path, const char *method,
                                  const char *version, const char *bytes, size_t *length, void **context)
{
    server *s = (server *)data;
    request *r = (request *)*context;

    (void)version;
    if (!r && strcmp(method, "POST") != 0) { /* a reply to the first call would end the connection */
        *context = &http_no_body;
        return MHD_YES;
    }
    if (!r || r == &http_no_body)
        return http_first(s, c, path, method, context);
    if (*length)
        return http_body(s, r, bytes, length);
    return r->asked ? http_resumed(s, r) : http_asked(s, r);
}

/* A request is over: its reply was sent, or its client is gone. */
static void on_completed(void *data, struct MHD_Connection *c, void **context, enum MHD_RequestTerminationCode code)
{
    server *s = (server *)data;
    request *r = (request *)*context;

    (void)code;
    http_deadline(s, c, HTTP_READ_SECONDS);
    *context = NULL;
    if (!r || r == &http_no_body)
        return;
    server_lock(s);
    r->gone = 1;
    r->suspended = 0;
    s->open--;
    server_unlock(s);
    request_release(s, r);
}

/* Begins to listen. NULL after saying what went wrong. */
static struct MHD_Daemon *http_start(server *s)
{
    struct addrinfo hints, *found = NULL;
    struct MHD_Daemon *daemon = NULL;
    char port[16];
    int wrong;

    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    snprintf(port, sizeof port, "%d", s->o->port);
    wrong = getaddrinfo(s->o->host, port, &hints, &found);
    if (wrong)
        return program_failed("--host: ", gai_strerror(wrong)), (struct MHD_Daemon *)NULL;
    s->loopback = found->ai_family == AF_INET6
                      ? IN6_IS_ADDR_LOOPBACK(&((struct sockaddr_in6 *)(void *)found->ai_addr)->sin6_addr)
                      : ntohl(((struct sockaddr_in *)(void *)found->ai_addr)->sin_addr.s_addr) >> 24 == 127;
    daemon = MHD_start_daemon(MHD_USE_AUTO_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME |
                                  (found->ai_family == AF_INET6 ? MHD_USE_IPv6 : 0),
                              (uint16_t)s->o->port, NULL, NULL, on_request, s, MHD_OPTION_SOCK_ADDR, found->ai_addr,
                              MHD_OPTION_NOTIFY_CONNECTION, on_connection, s, MHD_OPTION_NOTIFY_COMPLETED, on_completed, s,
                              MHD_OPTION_CONNECTION_LIMIT, (unsigned)s->o->connections, MHD_OPTION_CONNECTION_TIMEOUT,
                              (unsigned)HTTP_READ_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_HEADERS,
                              MHD_OPTION_LISTENING_ADDRESS_REUSE, 1u, MHD_OPTION_END);
    freeaddrinfo(found);
    if (!daemon)
        program_failed("cannot listen there: ", errno ? strerror(errno) : "--host, --port");
    return daemon;
}
#endif
