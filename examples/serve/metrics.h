/* metrics.h - what /metrics tells, in the text format of Prometheus (version 0.0.4). */
#ifndef SERVE_METRICS_H
#define SERVE_METRICS_H

static void metric_head(text *out, const char *name, const char *kind, const char *help)
{
    text_print(out, "# HELP specdec_%s %s\n# TYPE specdec_%s %s\n", name, help, name, kind);
}

static void metric(text *out, const char *name, const char *kind, const char *help, double value)
{
    metric_head(out, name, kind, help);
    text_print(out, "specdec_%s %.17g\n", name, value);
}

static void metric_times(text *out, const char *name, const char *help, const long long *counts, double sum)
{
    long long count = 0;
    int i;

    metric_head(out, name, "histogram", help);
    for (i = 0; i < SERVE_BUCKETS; i++) {
        count += counts[i];
        text_print(out, "specdec_%s_bucket{le=\"%g\"} %lld\n", name, serve_buckets[i], count);
    }
    count += counts[SERVE_BUCKETS];
    text_print(out, "specdec_%s_bucket{le=\"+Inf\"} %lld\nspecdec_%s_sum %.6f\nspecdec_%s_count %lld\n", name, count, name,
               sum, name, count);
}

static void metric_requests(text *out, const metrics *m)
{
    static const char *const names[SERVE_ENDPOINTS] = {"chat", "completions", "embeddings", "models", "health", "metrics",
                                                       "page", "page"};
    int i, k;

    metric_head(out, "requests_total", "counter", "Replies, by endpoint and status.");
    for (i = 0; i < SERVE_ENDPOINTS - 1; i++)
        for (k = 2; k < 6; k++)
            if (m->requests[i][k])
                text_print(out, "specdec_requests_total{endpoint=\"%s\",status=\"%dxx\"} %lld\n", names[i], k, m->requests[i][k]);
}

static void metric_accepted(text *out, const metrics *m)
{
    int i;
    static const char *const names[SPECDEC_DRAFT_COUNT + 1] = {
        NULL, NULL,
#define NAME_OF(NAME, kind, name) name,
        SPECDEC_DRAFTERS(NAME_OF) "several"};

    metric_head(out, "accepted_tokens_total", "counter", "Draft tokens that were accepted, by who drafted the step's tree.");
    for (i = 0; i <= SPECDEC_DRAFT_COUNT; i++)
        if (names[i])
            text_print(out, "specdec_accepted_tokens_total{drafter=\"%s\"} %lld\n", names[i], m->accepted_by[i]);
}

static void metrics_text(server *s, text *out)
{
    metrics m;
    int waiting;

    server_lock(s);
    m = s->m;
    waiting = s->waiting;
    server_unlock(s);
    metric_requests(out, &m);
    metric_accepted(out, &m);
    metric(out, "prompt_tokens_total", "counter", "Tokens of prompts.", (double)m.prompt_tokens);
    metric(out, "shared_tokens_total", "counter", "Of these, taken over from other sequences.", (double)m.shared_tokens);
    metric(out, "tokens_total", "counter", "Tokens that were written.", (double)m.tokens);
    metric(out, "sequence_steps_total", "counter", "Steps, counted for each sequence.", (double)m.steps);
    metric(out, "tokens_per_step", "gauge", "Tokens a step of a sequence, since the start.", m.steps ? (double)m.tokens / (double)m.steps : 0);
    metric(out, "draft_tokens_total", "counter", "Draft tokens that were verified.", (double)m.drafted);
    metric(out, "sequences_running", "gauge", "Sequences that are open.", m.running);
    metric(out, "slots", "gauge", "Sequences that may be open.", s->o->slots);
    metric(out, "requests_waiting", "gauge", "Requests in the queue.", waiting);
    metric(out, "refused_total", "counter", "Requests that were refused as the queue was full.", (double)m.refused_full);
    metric(out, "cancelled_total", "counter", "Requests whose clients went away.", (double)m.cancelled);
    metric(out, "timed_out_total", "counter", "Requests that took too long.", (double)m.timed_out);
    metric(out, "cache_pages", "gauge", "Pages of 64 tokens in the cache.", m.cache / 64);
    metric(out, "cache_pages_free", "gauge", "Of these, in no open sequence.", m.cache_free / 64);
    metric(out, "cache_pages_prefixes", "gauge", "Of the free ones, with beginnings of closed sequences.", m.cache_prefixes / 64);
    metric_times(out, "wait_between_tokens_seconds", "Between two pieces of an answer.", m.waits, m.waits_sum);
    metric_times(out, "first_token_seconds", "From a request's arrival to the first piece of an answer.", m.firsts, m.firsts_sum);
}
#endif
