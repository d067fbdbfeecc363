/* reply.h - answers as OpenAI's clients expect them: events of a stream, or one object. */
#ifndef SERVE_REPLY_H
#define SERVE_REPLY_H

/* --- log-probabilities -------------------------------------------------------------------------------------------- */

enum { TOKEN_BYTES = 512 };

/* A token's text, with a zero byte behind it. Returns its bytes; a longer one is cut. */
static size_t token_text(const server *s, int32_t token, char bytes[TOKEN_BYTES])
{
    size_t length = 0;

    if (specdec_token_text(specdec_get_model(s->engine), token, bytes, TOKEN_BYTES - 1, &length, NULL))
        length = 0;
    bytes[length] = 0;
    return length;
}

/* "token", "logprob" and "bytes". */
static void write_token(writer *j, const server *s, int32_t token, double logprob)
{
    char bytes[TOKEN_BYTES];
    const size_t length = token_text(s, token, bytes);
    size_t i;

    put_bytes(j, "token", bytes, length);
    put_number(j, "logprob", 6, logprob);
    put_array(j, "bytes");
    for (i = 0; i < length; i++)
        put_integer(j, NULL, (unsigned char)bytes[i]);
    put_close(j);
}

/* An item of "content" of a chat's log-probabilities, behind others. */
static void add_chat_logprob(const server *s, const request *r, text *out, const specdec_logprob *l)
{
    writer w = write_to(out);
    int i;

    if (out->length)
        text_say(out, ",");
    put_object(&w, NULL);
    write_token(&w, s, l->token, (double)l->logprob);
    put_array(&w, "top_logprobs");
    for (i = 0; i < l->count && i < r->top_logprobs; i++) {
        put_object(&w, NULL);
        write_token(&w, s, l->best[i].token, (double)l->best[i].logit);
        put_close(&w);
    }
    put_close(&w);
    put_close(&w);
}

/* An item of each of the four arrays of a completion's. */
static void add_completion_logprob(const server *s, const request *r, choice *c, const specdec_logprob *l)
{
    char bytes[TOKEN_BYTES];
    size_t length = token_text(s, l->token, bytes);
    const char *comma = c->offsets.length ? "," : "";
    writer w = write_to(&c->tokens_json[2]);
    int i;

    text_say(&c->tokens_json[0], comma);
    put_quote(&c->tokens_json[0], bytes, length);
    text_print(&c->tokens_json[1], "%s%.6g", comma, (double)l->logprob);
    text_say(&c->tokens_json[2], comma);
    put_object(&w, NULL);
    for (i = 0; i < l->count && i < r->top_logprobs; i++) {
        length = token_text(s, l->best[i].token, bytes);
        if (strlen(bytes) == length)
            put_number(&w, bytes, 6, (double)l->best[i].logit);
    }
    put_close(&w);
    text_print(&c->offsets, "%s%lld", comma, (long long)c->offset);
}

/* Notes the log-probability of an answer's token, at its place in the sequence. */
static void note_logprob(const server *s, const request *r, choice *c, int at)
{
    specdec_logprob l;

    if (!r->logprobs || specdec_get_logprob(c->sequence, at, &l) || !(l.logprob <= 0))
        return;
    if (r->kind == REQUEST_CHAT)
        add_chat_logprob(s, r, &c->logprobs, &l);
    else
        add_completion_logprob(s, r, c, &l);
}

/* What was noted, as "logprobs"; it is then forgotten. */
static void write_logprobs(writer *j, const request *r, choice *c)
{
    static const char *const names[] = {"tokens", "token_logprobs", "top_logprobs"};
    text *all[] = {&c->tokens_json[0], &c->tokens_json[1], &c->tokens_json[2], &c->logprobs, &c->offsets};
    size_t i;

    if (!r->logprobs) {
        put_null(j, "logprobs");
        return;
    }
    put_object(j, "logprobs");
    if (r->kind == REQUEST_CHAT) {
        put_array(j, "content");
        if (c->logprobs.length)
            put_raw(j, NULL, c->logprobs.bytes, c->logprobs.length);
        put_close(j);
    } else {
        for (i = 0; i < 3; i++) {
            put_array(j, names[i]);
            if (c->tokens_json[i].length)
                put_raw(j, NULL, c->tokens_json[i].bytes, c->tokens_json[i].length);
            put_close(j);
        }
        put_array(j, "text_offset");
        if (c->offsets.length)
            put_raw(j, NULL, c->offsets.bytes, c->offsets.length);
        put_close(j);
    }
    put_close(j);
    for (i = 0; i < PROGRAM_COUNT(all); i++)
        all[i]->length = 0;
}

/* --- what every reply has ----------------------------------------------------------------------------------------- */

static void write_head(writer *j, const server *s, const request *r)
{
    put_object(j, NULL);
    put_text(j, "id", r->id);
    put_text(j, "object",
             r->kind == REQUEST_CHAT ? (r->stream ? "chat.completion.chunk" : "chat.completion") : "text_completion");
    put_integer(j, "created", r->created);
    put_text(j, "model", s->model);
}

static void write_usage(writer *j, const request *r)
{
    long long prompted = 0, written = 0, shared = 0;
    int i;

    for (i = 0; i < r->count; i++) {
        const choice *c = &r->choices[i];

        written += c->tokens;
        if (i % r->n == 0) { /* the others have the same prompt */
            prompted += c->prompted;
            shared += c->stats.shared_tokens + c->stats.cached_tokens;
        }
    }
    put_object(j, "usage");
    put_integer(j, "prompt_tokens", prompted);
    put_integer(j, "completion_tokens", written);
    put_integer(j, "total_tokens", prompted + written);
    put_object(j, "prompt_tokens_details");
    put_integer(j, "cached_tokens", shared);
    put_close(j);
    put_close(j);
}

/* What speculation brought for choices [from, to). */
static void write_speculation(writer *j, const request *r, int from, int to)
{
    specdec_stats sum;
    int i;

    memset(&sum, 0, sizeof sum);
    for (i = from; i < to; i++) {
        const specdec_stats *stats = &r->choices[i].stats;

        sum.tokens += stats->tokens;
        sum.steps += stats->steps;
        sum.drafted += stats->drafted;
        sum.accepted += stats->accepted;
#define ADD(NAME, kind, name) \
    sum.steps_by_drafter[SPECDEC_DRAFT_##NAME] += stats->steps_by_drafter[SPECDEC_DRAFT_##NAME];
        SPECDEC_DRAFTERS(ADD)
    }
    put_object(j, "speculation");
    put_integer(j, "steps", sum.steps);
    put_number(j, "tokens_per_step", 4, sum.steps ? (double)sum.tokens / (double)sum.steps : 0);
    put_integer(j, "drafted", sum.drafted);
    put_integer(j, "accepted", sum.accepted);
    put_object(j, "steps_by_drafter");
#define WRITE(NAME, kind, name) put_integer(j, name, sum.steps_by_drafter[SPECDEC_DRAFT_##NAME]);
    SPECDEC_DRAFTERS(WRITE)
    put_close(j);
    put_close(j);
}

/* --- streams ------------------------------------------------------------------------------------------------------ */

/* An event of a stream: a part of a choice's answer; with neither text nor finish, its beginning. draft: whether it
   was a draft token, where that is wanted; -1: nobody asked. */
typedef struct event {
    specdec_part part;
    int draft;
    const char *finish; /* why the answer has ended */
} event;

/* What a call of a tool is known by: the request's number, the choice's, its own. */
static void write_call_id(writer *j, const request *r, const choice *c, int number)
{
    char id[80];

    snprintf(id, sizeof id, "call_%s_%d_%d", r->id + strlen("chatcmpl-"), (int)(c - r->choices), number);
    put_text(j, "id", id);
    put_text(j, "type", "function");
}

/* A piece of a call: its name first, which comes with its id, then its arguments. */
static void write_call_delta(writer *j, const request *r, const choice *c, const specdec_part *part)
{
    put_array(j, "tool_calls");
    put_object(j, NULL);
    put_integer(j, "index", part->call);
    if (part->kind == SPECDEC_PART_NAME)
        write_call_id(j, r, c, part->call);
    put_object(j, "function");
    put_bytes(j, part->kind == SPECDEC_PART_NAME ? "name" : "arguments", part->text.bytes, part->text.length);
    if (part->kind == SPECDEC_PART_NAME)
        put_text(j, "arguments", "");
    put_close(j);
    put_close(j);
    put_close(j);
}

static void write_delta(writer *j, const request *r, const choice *c, const event *e)
{
    const int begins = !e->part.text.length && !e->finish && e->part.call < 0;

    if (r->kind != REQUEST_CHAT) {
        put_bytes(j, "text", e->part.text.bytes, e->part.text.length);
        return;
    }
    put_object(j, "delta");
    if (begins)
        put_text(j, "role", "assistant");
    if (e->part.call >= 0)
        write_call_delta(j, r, c, &e->part);
    else if (begins || e->part.text.length)
        put_bytes(j, e->part.kind == SPECDEC_PART_THOUGHT ? "reasoning_content" : "content", e->part.text.bytes,
                  e->part.text.length);
    put_close(j);
}

static void send_event(server *s, request *r, choice *c, const event *e)
{
    text out = NO_TEXT;
    writer w = write_to(&out);
    const int number = (int)(c - r->choices);

    text_say(&out, "data: ");
    write_head(&w, s, r);
    put_array(&w, "choices");
    put_object(&w, NULL);
    put_integer(&w, "index", number);
    write_delta(&w, r, c, e);
    write_logprobs(&w, r, c);
    if (e->finish)
        put_text(&w, "finish_reason", e->finish);
    else
        put_null(&w, "finish_reason");
    if (e->draft >= 0)
        put_truth(&w, "draft", e->draft);
    put_close(&w);
    put_close(&w);
    if (e->finish)
        write_speculation(&w, r, number, number + 1);
    if (r->usage_wanted)
        put_null(&w, "usage");
    put_close(&w);
    text_say(&out, "\n\n");
    request_send(s, r, out.bytes ? out.bytes : "", out.length);
    text_free(&out);
}

/* The last events of a stream: what was used, where that is wanted, and [DONE]. */
static void end_stream(server *s, request *r)
{
    static const char done[] = "data: [DONE]\n\n";
    text out = NO_TEXT;
    writer w = write_to(&out);

    if (r->usage_wanted) {
        text_say(&out, "data: ");
        write_head(&w, s, r);
        put_array(&w, "choices");
        put_close(&w);
        write_usage(&w, r);
        write_speculation(&w, r, 0, r->count);
        put_close(&w);
        text_say(&out, "\n\n");
    }
    text_add(&out, done, sizeof done - 1);
    request_send(s, r, out.bytes, out.length);
    text_free(&out);
}

/* --- one object --------------------------------------------------------------------------------------------------- */

static void write_calls(writer *j, const request *r, const choice *c)
{
    int i;

    put_array(j, "tool_calls");
    for (i = 0; i < c->call_count; i++) {
        put_object(j, NULL);
        write_call_id(j, r, c, i);
        put_object(j, "function");
        put_bytes(j, "name", c->calls[i].name.bytes, c->calls[i].name.length);
        put_bytes(j, "arguments", c->calls[i].arguments.bytes, c->calls[i].arguments.length);
        put_close(j);
        put_close(j);
    }
    put_close(j);
}

static void write_message(writer *j, const request *r, const choice *c)
{
    put_object(j, "message");
    put_text(j, "role", "assistant");
    if (c->content.length || !c->call_count)
        put_bytes(j, "content", c->content.bytes, c->content.length);
    else
        put_null(j, "content");
    if (c->thoughts.length)
        put_bytes(j, "reasoning_content", c->thoughts.bytes, c->thoughts.length);
    if (c->call_count)
        write_calls(j, r, c);
    put_close(j);
}

static void write_choice(writer *j, const request *r, choice *c)
{
    put_object(j, NULL);
    put_integer(j, "index", c - r->choices);
    if (r->kind == REQUEST_CHAT)
        write_message(j, r, c);
    else
        put_bytes(j, "text", c->content.bytes, c->content.length);
    write_logprobs(j, r, c);
    put_text(j, "finish_reason", c->finish);
    put_close(j);
}

/* The reply of a request that is not streamed. */
static void send_answers(server *s, request *r)
{
    text out = NO_TEXT;
    writer w = write_to(&out);
    int i;

    write_head(&w, s, r);
    put_array(&w, "choices");
    for (i = 0; i < r->count; i++)
        write_choice(&w, r, &r->choices[i]);
    put_close(&w);
    write_usage(&w, r);
    write_speculation(&w, r, 0, r->count);
    put_close(&w);
    text_say(&out, "\n");
    request_send(s, r, out.bytes ? out.bytes : "", out.length);
    text_free(&out);
}

/* Three bytes or fewer in base64 (RFC 4648). */
static void put_base64(text *out, const unsigned char *bytes, size_t count)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint32_t three = (uint32_t)bytes[0] << 16 | (count > 1 ? (uint32_t)bytes[1] << 8 : 0) |
                           (count > 2 ? bytes[2] : 0u);
    char four[4];

    four[0] = digits[three >> 18];
    four[1] = digits[three >> 12 & 63];
    four[2] = count > 1 ? digits[three >> 6 & 63] : '=';
    four[3] = count > 2 ? digits[three & 63] : '=';
    text_add(out, four, 4);
}

/* An embedding as little-endian floats in base64. */
static void put_floats(text *out, const float *values, int count)
{
    unsigned char bytes[12]; /* of three floats: whole digits */
    int i, k, n;

    for (i = 0; i < count; i += 3) {
        n = program_least(3, count - i);
        for (k = 0; k < n; k++)
            program_put_u32(bytes + 4 * k, program_float_bits(values[i + k]));
        for (k = 0; k < 4 * n; k += 3)
            put_base64(out, bytes + k, (size_t)program_least(3, 4 * n - k));
    }
}

/* An embedding, as numbers or in base64. */
static void write_embedding(writer *j, const server *s, const request *r, const choice *c)
{
    int i;

    if (r->base64) {
        put_item(j, "embedding");
        text_say(j->out, "\"");
        put_floats(j->out, c->sum, s->info.embedding);
        text_say(j->out, "\"");
        return;
    }
    put_array(j, "embedding");
    for (i = 0; i < s->info.embedding; i++)
        put_number(j, NULL, 9, (double)c->sum[i]);
    put_close(j);
}

static void send_embeddings(server *s, request *r)
{
    text out = NO_TEXT;
    writer w = write_to(&out);
    long long tokens = 0;
    int i;

    put_object(&w, NULL);
    put_text(&w, "object", "list");
    put_array(&w, "data");
    for (i = 0; i < r->count; i++) {
        put_object(&w, NULL);
        put_text(&w, "object", "embedding");
        put_integer(&w, "index", i);
        write_embedding(&w, s, r, &r->choices[i]);
        put_close(&w);
        tokens += r->choices[i].prompted;
    }
    put_close(&w);
    put_text(&w, "model", s->model);
    put_text(&w, "pooling", s->last_pooling ? "last" : "mean");
    put_object(&w, "usage");
    put_integer(&w, "prompt_tokens", tokens);
    put_integer(&w, "total_tokens", tokens);
    put_close(&w);
    put_close(&w);
    text_say(&out, "\n");
    request_send(s, r, out.bytes ? out.bytes : "", out.length);
    text_free(&out);
}
#endif
