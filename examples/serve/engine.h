/* engine.h - the one thread that calls the engine. A round: take in what the HTTP threads have queued, drop what nobody
   waits for any more, begin choices while there are free sequences, one step for all, hand out what it has written. */
#ifndef SERVE_ENGINE_H
#define SERVE_ENGINE_H

/* --- who is still there ------------------------------------------------------------------------------------------- */

/* Looks which clients have closed their connection. A connection that waits for its reply is not looked at by
   libmicrohttpd. Under the lock, which keeps their descriptors open. */
static void engine_watch(server *s)
{
    request *r;
    int count = 0;

    for (r = s->active; r; r = r->next)
        count++;
    if (count > s->watched_room) {
        struct pollfd *grown = (struct pollfd *)realloc(s->watched, 2 * (size_t)count * sizeof *grown);

        if (!grown)
            return;
        s->watched = grown;
        s->watched_room = 2 * count;
    }
    count = 0;
    for (r = s->active; r; r = r->next, count++) {
        s->watched[count].fd = r->gone ? -1 : r->fd;
        s->watched[count].events = POLLRDHUP;
        s->watched[count].revents = 0;
    }
    if (poll(s->watched, (nfds_t)count, 0) < 1)
        return;
    count = 0;
    for (r = s->active; r; r = r->next, count++)
        if (s->watched[count].revents & (POLLRDHUP | POLLHUP | POLLERR)) {
            r->gone = 1;
            request_resume(r);
        }
}

/* Takes the queue in and looks who is gone; waits while there is nothing to do. Returns 0 at the end. */
static int engine_receive(server *s)
{
    server_lock(s);
    while (!s->inbox && !s->active && !s->stopping)
        pthread_cond_wait(&s->wake, &s->lock);
    *s->active_end = s->inbox;
    if (s->inbox)
        s->active_end = s->inbox_end;
    s->inbox = NULL;
    s->inbox_end = &s->inbox;
    engine_watch(s);
    server_unlock(s);
    return s->active || !s->stopping;
}

/* --- sequences ---------------------------------------------------------------------------------------------------- */

/* Gives a choice's sequence back; its statistics stay. */
static void engine_close(server *s, choice *c)
{
    if (c->state != CHOICE_RUNNING)
        return;
    specdec_get_stats(c->sequence, &c->stats);
    specdec_close(c->sequence);
    c->sequence = NULL;
    s->running--;
    s->crowded = 0;
    s->moved = 1;
}

/* Adds to the counters what a step brought to a sequence. */
static void engine_count(server *s, const specdec_stats *before, const specdec_stats *now)
{
    const int64_t accepted = now->accepted - before->accepted;
    int drafters = 0, which = SPECDEC_DRAFT_COUNT, i;

    for (i = 0; i < SPECDEC_DRAFT_COUNT; i++)
        if (now->steps_by_drafter[i] > before->steps_by_drafter[i]) {
            drafters++;
            which = i;
        }
    s->m.accepted_by[drafters == 1 ? which : SPECDEC_DRAFT_COUNT] += accepted;
    s->m.accepted += accepted;
    s->m.drafted += now->drafted - before->drafted;
    s->m.steps += now->steps - before->steps;
    s->m.tokens += now->tokens - before->tokens;
    s->m.prompt_tokens += now->prompt_tokens - before->prompt_tokens;
    s->m.shared_tokens += now->shared_tokens + now->cached_tokens - before->shared_tokens - before->cached_tokens;
}

/* Reads what the last step has done for a choice: counters, and how many of its new tokens were draft tokens. The
   tokens of a step are those that were accepted, then one of the model's own. */
static void engine_look(server *s, choice *c)
{
    specdec_stats now;

    specdec_get_stats(c->sequence, &now);
    server_lock(s);
    engine_count(s, &c->stats, &now);
    server_unlock(s);
    s->moved |= now.tokens > c->stats.tokens || now.prefilled_tokens > c->stats.prefilled_tokens;
    c->drafted = (int)(now.accepted - c->stats.accepted);
    c->step_from = c->tokens;
    c->stats = now;
}

/* A time, into a histogram. Under the lock. */
static void engine_time(long long *counts, double *sum, double seconds)
{
    int i = 0;

    while (i < SERVE_BUCKETS && seconds > serve_buckets[i])
        i++;
    counts[i]++;
    *sum += seconds;
}

/* The ids of an array of tokens. Caller frees. */
static int32_t *engine_ids(const json_t *array)
{
    const size_t count = json_array_size(array);
    int32_t *ids = (int32_t *)malloc((count + 1) * sizeof *ids);
    size_t i;

    for (i = 0; ids && i < count; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(array, i));
    return ids;
}

/* Prompts a choice: with the messages of a chat, or with a completion's text or tokens. */
static specdec_result engine_prompt(const request *r, const choice *c)
{
    const json_t *prompt = prompt_of(r, "prompt", c->prompt);
    int32_t *ids;
    specdec_result result;

    if (r->kind == REQUEST_CHAT)
        return specdec_chat_json(c->sequence, r->body.bytes, r->body.length);
    if (json_is_string(prompt))
        return specdec_prompt(c->sequence, json_string_value(prompt), json_string_length(prompt));
    ids = engine_ids(prompt);
    if (!ids)
        return SPECDEC_ERROR_MEMORY;
    result = specdec_prompt_tokens(c->sequence, ids, (int)json_array_size(prompt));
    free(ids);
    return result;
}

/* The status of a reply that says what the engine could not do. */
static int engine_status(specdec_result result)
{
    return result == SPECDEC_ERROR_CONTEXT ? 413
           : result == SPECDEC_ERROR_FULL  ? 503
           : result == SPECDEC_ERROR_ARGUMENT || result == SPECDEC_ERROR_UNSUPPORTED || result == SPECDEC_ERROR_FORMAT
               ? 400
               : 500;
}

/* Ends a request whose choice has failed. */
static void engine_refuse(server *s, request *r, const choice *c, specdec_result result)
{
    char words[SPECDEC_ERROR_TEXT_SIZE];

    snprintf(words, sizeof words, "%s",
             c->sequence && *specdec_error_text(c->sequence) ? specdec_error_text(c->sequence)
                                                             : specdec_result_text(result));
    request_fail(s, r, engine_status(result), result == SPECDEC_ERROR_CONTEXT ? "context_length_exceeded" : NULL,
                 words);
}

/* Settings of a choice: each of several answers has a seed of its own. */
static specdec_settings engine_settings(const request *r, const choice *c)
{
    specdec_settings settings = r->settings;

    settings.sampling.seed += (uint64_t)((c - r->choices) % r->n);
    return settings;
}

/* --- answers ------------------------------------------------------------------------------------------------------ */

/* The call that a part belongs to; NULL when memory ran out. */
static tool_call *engine_call(choice *c, int number)
{
    tool_call *grown;

    if (number < c->call_count)
        return &c->calls[number];
    grown = (tool_call *)realloc(c->calls, ((size_t)number + 1) * sizeof *grown);
    if (!grown) {
        c->content.broken = 1;
        return NULL;
    }
    memset(grown + c->call_count, 0, (size_t)(number + 1 - c->call_count) * sizeof *grown);
    c->calls = grown;
    c->call_count = number + 1;
    return &c->calls[number];
}

/* Keeps a part of an answer that is not streamed. Of calls, the count is kept in any case. */
static void engine_keep(const request *r, choice *c, const specdec_part *part)
{
    tool_call *call = part->call >= 0 ? engine_call(c, part->call) : NULL;

    if (r->stream)
        return;
    if (part->kind == SPECDEC_PART_CONTENT || part->kind == SPECDEC_PART_THOUGHT)
        text_add(part->kind == SPECDEC_PART_THOUGHT ? &c->thoughts : &c->content, part->text.bytes, part->text.length);
    else if (call && part->text.length)
        text_add(part->kind == SPECDEC_PART_NAME ? &call->name : &call->arguments, part->text.bytes, part->text.length);
}

/* Streams a part of an answer, or keeps it. */
static void engine_deliver(server *s, request *r, choice *c, const specdec_part *part)
{
    event e = {*part, !r->marks_wanted ? -1 : c->tokens - c->step_from <= c->drafted, NULL};
    text whole = NO_TEXT;
    size_t end;

    engine_keep(r, c, part);
    if (!r->stream || part->kind == SPECDEC_PART_END)
        return;
    if (part->call >= 0) { /* a character that is cut waits for its other bytes */
        text_add(&whole, c->cut, (size_t)c->cut_count);
        text_add(&whole, part->text.bytes, part->text.length);
        end = utf8_whole(whole.bytes, whole.length);
        c->cut_count = (int)(whole.length - end);
        memcpy(c->cut, whole.bytes + end, (size_t)c->cut_count);
        e.part.text.bytes = whole.bytes;
        e.part.text.length = end;
    }
    if (e.part.text.length || part->kind == SPECDEC_PART_NAME)
        send_event(s, r, c, &e);
    text_free(&whole);
}

/* Notes that a piece has come: times for /metrics. */
static void engine_clock(server *s, request *r, choice *c)
{
    const double now = serve_clock();

    server_lock(s);
    if (c->last > 0)
        engine_time(s->m.waits, &s->m.waits_sum, now - c->last);
    else
        engine_time(s->m.firsts, &s->m.firsts_sum, now - r->arrived);
    server_unlock(s);
    c->last = now;
}

/* A part, and the tokens that it was made of: log-probabilities first, which lie in the sequence. */
static void engine_part(server *s, request *r, choice *c, const specdec_part *part)
{
    int count, i;

    specdec_tokens(c->sequence, NULL, &count);
    count -= c->prompted;
    for (i = c->tokens; i < count; i++)
        if (i >= c->skip)
            note_logprob(s, r, c, c->prompted + i);
    c->tokens = count;
    if (count <= c->skip && c->skip)
        return;
    if (part->text.length)
        engine_clock(s, r, c);
    engine_deliver(s, r, c, part);
    c->offset += part->text.length;
}

/* The next part that is ready: of a chat without the model's marks, of a completion as it is. */
static specdec_result engine_take(const request *r, const choice *c, specdec_part *part)
{
    if (r->kind == REQUEST_CHAT)
        return specdec_take_part(c->sequence, part);
    memset(part, 0, sizeof *part);
    part->call = -1;
    return specdec_take(c->sequence, &part->text);
}

/* A request all of whose choices are done. */
static void engine_end(server *s, request *r)
{
    int i, broken = 0;

    for (i = 0; i < r->count; i++) {
        if (r->choices[i].state != CHOICE_DONE)
            return;
        broken |= r->choices[i].content.broken;
    }
    if (broken) {
        request_fail(s, r, 500, NULL, "out of memory");
        return;
    }
    if (r->kind == REQUEST_EMBEDDING)
        send_embeddings(s, r);
    else if (r->stream)
        end_stream(s, r);
    else
        send_answers(s, r);
    request_end(s, r, 200);
}

/* An answer has ended. */
static void engine_finish(server *s, request *r, choice *c)
{
    const specdec_stop stop = c->called ? SPECDEC_STOP_END : specdec_stopped(c->sequence, NULL);
    event e = {{SPECDEC_PART_CONTENT, -1, {NULL, 0}}, -1, NULL};

    c->finish = stop == SPECDEC_STOP_LIMIT || stop == SPECDEC_STOP_CONTEXT ? "length"
                : c->call_count                                            ? "tool_calls"
                                                                           : "stop";
    engine_close(s, c);
    c->state = CHOICE_DONE;
    e.finish = c->finish;
    if (r->stream)
        send_event(s, r, c, &e);
    engine_end(s, r);
}

/* Takes what the last step has made ready. */
static void engine_collect(server *s, request *r, choice *c)
{
    specdec_part part;
    specdec_result result;

    engine_look(s, c);
    do {
        result = engine_take(r, c, &part);
        if (!result || result == SPECDEC_DONE)
            engine_part(s, r, c, &part);
        c->called = !result && part.kind == SPECDEC_PART_END && r->one_call;
        result = c->called ? SPECDEC_DONE : result;
    } while (!result);
    if (result == SPECDEC_DONE)
        engine_finish(s, r, c);
    else if (result != SPECDEC_PENDING && result != SPECDEC_ERROR_FULL)
        engine_refuse(s, r, c, result);
}

/* Opens a sequence for a choice, and prompts it: the steps that follow read the prompt. */
static void engine_begin_answer(server *s, request *r, choice *c)
{
    const specdec_settings settings = engine_settings(r, c);
    const event e = {{SPECDEC_PART_CONTENT, -1, {NULL, 0}}, -1, NULL};
    specdec_result result = specdec_set(c->sequence, &settings);

    c->offset = c->skip ? c->offset : 0;
    memset(&c->stats, 0, sizeof c->stats);
    if (!result)
        result = engine_prompt(r, c);
    if (result) {
        engine_refuse(s, r, c, result);
        return;
    }
    specdec_tokens(c->sequence, NULL, &c->prompted);
    if (!r->stream)
        return;
    server_lock(s);
    if (!r->status)
        r->status = 200;
    server_unlock(s);
    if (r->kind == REQUEST_CHAT && !c->skip)
        send_event(s, r, c, &e);
    else
        request_send(s, r, "", 0);
}

enum { STALLED = 8 /* steps in which nothing was read nor written */ };

/* The cache is full, and all sequences wait for room: the youngest begins anew when others have ended. What it has
   delivered is left out then: its text is the same. One that is alone ends. */
static void engine_put_back(server *s)
{
    request *r, *of = NULL;
    choice *youngest = NULL;
    int i;

    for (r = s->active; r; r = r->next)
        for (i = 0; i < r->count && !r->complete; i++)
            if (r->choices[i].state == CHOICE_RUNNING && (!youngest || r->choices[i].began >= youngest->began)) {
                youngest = &r->choices[i];
                of = r;
            }
    if (youngest && s->running == 1)
        engine_refuse(s, of, youngest, SPECDEC_ERROR_FULL);
    if (!youngest || s->running == 1)
        return;
    engine_close(s, youngest);
    s->crowded = 1;
    youngest->skip = youngest->tokens > youngest->skip ? youngest->tokens : youngest->skip;
    youngest->state = CHOICE_WAITING;
}

/* --- embeddings --------------------------------------------------------------------------------------------------- */

enum { EMBED_TOKENS = 64 }; /* that are read between two steps of others */

/* The tokens of an input, with those that the model wants around a text. Returns 0 after refusing it. */
static int engine_input(server *s, request *r, choice *c)
{
    const specdec_model *model = specdec_get_model(s->engine);
    const json_t *input = prompt_of(r, "input", c->prompt);
    const int flags = SPECDEC_TOKENIZE_BEGIN | SPECDEC_TOKENIZE_END;
    const size_t length = json_string_length(input);
    size_t bytes;
    void *memory;
    specdec_error failure;
    specdec_result result = SPECDEC_OK;

    free(c->input); /* of before the choice was put back */
    free(c->sum);
    c->input = NULL;
    if (!json_is_string(input)) {
        c->input = engine_ids(input);
        c->prompted = (int)json_array_size(input);
    } else if (length > (size_t)s->info.context * 16) {
        c->prompted = s->info.context + 1;
    } else {
        bytes = specdec_tokenize_memory(model, length);
        memory = malloc(bytes);
        c->input = (int32_t *)malloc((4 * length + 8) * sizeof *c->input);
        result = memory && c->input ? specdec_tokenize(model, json_string_value(input), length, flags, c->input,
                                                       (int)(4 * length + 8), &c->prompted, memory, bytes, &failure)
                                    : SPECDEC_ERROR_MEMORY;
        free(memory);
    }
    c->sum = (float *)calloc((size_t)s->info.embedding, sizeof *c->sum);
    if (c->prompted > s->info.context)
        request_fail(s, r, 413, "context_length_exceeded", "an input has more tokens than the context");
    else if (result || !c->input || !c->sum)
        request_fail(s, r, 500, NULL, result && result != SPECDEC_ERROR_MEMORY ? failure.text : "out of memory");
    else if (!c->prompted)
        request_fail(s, r, 400, NULL, "an input is empty");
    return !r->complete;
}

/* The sum, or the last one, of states becomes a vector of length 1. */
static void engine_normalise(float *vector, int count)
{
    double length = 0;
    int i;

    for (i = 0; i < count; i++)
        length += (double)vector[i] * (double)vector[i];
    length = length > 0 ? sqrt(length) : 1;
    for (i = 0; i < count; i++)
        vector[i] = (float)((double)vector[i] / length);
}

/* Reads some tokens of an input, and adds up the states behind them. */
static void engine_embed(server *s, request *r, choice *c)
{
    static const int final = SPECDEC_STATE_FINAL;
    const int size = s->info.embedding, count = program_least(EMBED_TOKENS, c->prompted - c->tokens);
    float *states = (float *)malloc((size_t)count * (size_t)size * sizeof *states);
    specdec_result result = states ? specdec_prompt_states(c->sequence, c->input + c->tokens, count, &final, 1, states)
                                   : SPECDEC_ERROR_MEMORY;
    int i, k;

    for (k = 0; !result && k < count; k++)
        for (i = 0; i < size; i++)
            c->sum[i] = s->last_pooling ? states[(size_t)k * (size_t)size + (size_t)i]
                                        : c->sum[i] + states[(size_t)k * (size_t)size + (size_t)i];
    free(states);
    if (result == SPECDEC_ERROR_FULL && s->running > 1)
        return; /* later */
    if (result) {
        engine_refuse(s, r, c, result);
        return;
    }
    c->tokens += count;
    s->moved = 1;
    if (c->tokens < c->prompted)
        return;
    engine_normalise(c->sum, size);
    engine_close(s, c);
    c->state = CHOICE_DONE;
    server_lock(s);
    s->m.prompt_tokens += c->prompted;
    server_unlock(s);
    engine_end(s, r);
}

/* --- rounds ------------------------------------------------------------------------------------------------------- */

/* Begins a choice. Returns 0 when no sequence is free. */
static int engine_begin(server *s, request *r, choice *c)
{
    if (s->running == s->o->slots || specdec_open(s->engine, &c->sequence))
        return 0;
    c->state = CHOICE_RUNNING;
    c->began = serve_clock();
    c->tokens = 0;
    s->running++;
    if (!r->started) {
        r->started = 1;
        server_lock(s);
        s->waiting--;
        server_unlock(s);
    }
    if (r->kind == REQUEST_EMBEDDING)
        engine_input(s, r, c);
    else
        engine_begin_answer(s, r, c);
    return 1;
}

/* The next choice of a request that waits, and how many of it run; NULL when none waits. */
static choice *engine_waiting(const request *r, int *running)
{
    choice *first = NULL;
    int i;

    *running = 0;
    for (i = r->count; i-- > 0 && !r->complete;)
        if (r->choices[i].state == CHOICE_WAITING)
            first = &r->choices[i];
        else
            *running += r->choices[i].state == CHOICE_RUNNING;
    return first;
}

/* Begins choices while sequences are free: of the request that has the fewest running, of equals the oldest. So one
   that asks for many answers does not keep others waiting for all of them. */
static void engine_begin_all(server *s)
{
    for (;;) {
        request *r, *next = NULL;
        choice *c, *best = NULL;
        int running, fewest = INT_MAX;

        for (r = s->active; r && !(s->crowded && s->running); r = r->next) {
            c = engine_waiting(r, &running);
            if (c && running < fewest) {
                fewest = running;
                best = c;
                next = r;
            }
        }
        if (!best || !engine_begin(s, next, best))
            return;
    }
}

/* One step for all, and what it brought. */
static void engine_step(server *s)
{
    request *r;
    int i;

    s->moved = 0;
    specdec_work(s->engine);
    for (r = s->active; r; r = r->next)
        for (i = 0; i < r->count && !r->complete; i++)
            if (r->choices[i].state == CHOICE_RUNNING && r->kind == REQUEST_EMBEDDING)
                engine_embed(s, r, &r->choices[i]);
            else if (r->choices[i].state == CHOICE_RUNNING)
                engine_collect(s, r, &r->choices[i]);
    s->stalled = s->moved ? 0 : s->stalled + 1;
    if (s->stalled < STALLED)
        return;
    s->stalled = 0;
    engine_put_back(s);
}

/* A request leaves: its reply is complete, its client gone, or its time over. */
static void engine_drop(server *s, request *r)
{
    int i;

    for (i = 0; i < r->count; i++)
        engine_close(s, &r->choices[i]);
    server_lock(s);
    s->waiting -= !r->started;
    s->m.cancelled += r->gone && !r->complete;
    server_unlock(s);
    request_release(s, r);
}

/* Is a request to leave? */
static int engine_is_over(server *s, request *r)
{
    int over;

    server_lock(s);
    over = r->gone || r->complete;
    server_unlock(s);
    if (!over && serve_clock() > r->deadline) {
        server_lock(s);
        s->m.timed_out++;
        server_unlock(s);
        request_fail(s, r, 504, "timeout", "the answer took too long");
        over = 1;
    }
    return over;
}

static void engine_sweep(server *s)
{
    request **at = &s->active, *r;

    while ((r = *at) != NULL)
        if (engine_is_over(s, r)) {
            *at = r->next;
            engine_drop(s, r);
        } else {
            at = &r->next;
        }
    s->active_end = at;
}

/* What /metrics tells of the engine. */
static void engine_publish(server *s)
{
    specdec_info info;

    specdec_get_info(s->engine, &info);
    server_lock(s);
    s->m.running = s->running;
    s->m.cache = info.cache;
    s->m.cache_free = info.cache_free;
    s->m.cache_prefixes = info.cache_prefixes;
    server_unlock(s);
}

/* The engine's thread. */
static void *engine_run(void *data)
{
    server *s = (server *)data;

    while (engine_receive(s)) {
        engine_sweep(s);
        engine_begin_all(s);
        if (s->running)
            engine_step(s);
        engine_sweep(s);
        engine_publish(s);
    }
    return NULL;
}
#endif
