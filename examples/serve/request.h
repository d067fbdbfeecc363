/* request.h - bodies of requests: JSON as OpenAI's clients write it, checked and taken apart. What cannot be done is
   refused with words that say so; it is never ignored. */
#ifndef SERVE_REQUEST_H
#define SERVE_REQUEST_H

enum { REQUEST_MOST_CHOICES = SERVE_CHOICES, REQUEST_DEFAULT_TOKENS = 16 /* of /v1/completions, as OpenAI has it */ };

/* Why a request is refused. */
typedef struct refusal {
    int status;
    const char *code;
    char text[SPECDEC_ERROR_TEXT_SIZE + 80];
} refusal;

/* Notes why. Returns 0, so that a check can end with it. */
static int refuse(refusal *why, int status, const char *code, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    vsnprintf(why->text, sizeof why->text, format, list);
    va_end(list);
    why->status = status;
    why->code = code;
    return 0;
}

/* A member that is there and not null; else NULL. */
static json_t *member(const json_t *object, const char *name)
{
    json_t *value = json_object_get(object, name);

    return json_is_null(value) ? NULL : value;
}

/* Is that nothing: false, 0, "", [], {}, or not there? */
static int is_nothing(const json_t *value)
{
    return !value || json_is_false(value) ||
           (json_is_number(value) && !(json_number_value(value) < 0) && !(json_number_value(value) > 0)) ||
           (json_is_string(value) && !json_string_length(value)) || (json_is_array(value) && !json_array_size(value)) ||
           (json_is_object(value) && !json_object_size(value));
}

/* What OpenAI's requests may ask for, and this server has not. */
static int refuse_unsupported(const json_t *json, refusal *why)
{
    static const char *const names[] = {
        "suffix", "echo", "functions", "function_call", "audio", "web_search_options", "dimensions"};
    size_t i;

    for (i = 0; i < PROGRAM_COUNT(names); i++)
        if (!is_nothing(member(json, names[i])))
            return refuse(why, 400, "unsupported", "\"%s\" is not supported here", names[i]);
    return 1;
}

/* A whole number in [low, high]; *out stays as it is where there is none. */
static int take_integer(const json_t *json, const char *name, int low, int high, int *out, refusal *why)
{
    const json_t *value = member(json, name);
    const json_int_t number = value && json_is_integer(value) ? json_integer_value(value) : (json_int_t)low - 1;

    if (!value)
        return 1;
    if (number < low || number > high)
        return refuse(why, 400, NULL, "\"%s\" must be a whole number from %d to %d", name, low, high);
    *out = (int)number;
    return 1;
}

static int take_switch(const json_t *json, const char *name, int *out, refusal *why)
{
    const json_t *value = member(json, name);

    if (value && !json_is_boolean(value))
        return refuse(why, 400, NULL, "\"%s\" must be true or false", name);
    *out = value ? json_is_true(value) : *out;
    return 1;
}

/* A seed: any whole number. */
static int take_seed(request *r, refusal *why)
{
    const json_t *value = member(r->json, "seed");

    if (value && !json_is_integer(value))
        return refuse(why, 400, NULL, "\"seed\" must be a whole number");
    r->seeded = value != NULL;
    if (value)
        r->settings.sampling.seed = (uint64_t)json_integer_value(value);
    return 1;
}

/* Settings by the header's own names, such as presence_penalty. */
static int take_named(request *r, refusal *why)
{
    static const char *const names[] = {
        "frequency_penalty",  "presence_penalty", "dry_multiplier",    "dry_base",
        "dry_allowed_length", "dry_window",       "top_n_sigma",       "typical_p",
        "xtc_probability",    "xtc_threshold",    "temperature_range", "temperature_exponent",
        "mirostat_tau",       "mirostat_rate",    "min_tokens",        "ignore_end"};
    size_t i;

    for (i = 0; i < PROGRAM_COUNT(names); i++) {
        const json_t *value = member(r->json, names[i]);
        char *words = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9)) : NULL;
        specdec_error error;
        const int wrong = words && specdec_settings_set(&r->settings, names[i], words, &error);

        free(words);
        if (wrong)
            return refuse(why, 400, NULL, "%s", error.text);
    }
    return 1;
}

/* Temperature, top_p and the like: the rows of tools/settings.h that have a name in requests; then the others. */
static int take_sampling(request *r, refusal *why)
{
    int i;

    for (i = 0; i < SETTINGS; i++) {
        const setting *s = &settings_table[i];
        const json_t *value = s->member && s->kind != SETTING_SEED ? member(r->json, s->member) : NULL;

        if (value && !(json_is_number(value) && setting_put(&r->settings, s, json_number_value(value))))
            return refuse(why, 400, NULL, "\"%s\" must be a %s from %g to %g", s->member,
                          s->kind == SETTING_INTEGER ? "whole number" : "number", s->low, s->high);
    }
    return take_named(r, why) && take_seed(r, why);
}

/* Adds a stop string. It stays in the JSON. */
static int add_stop(request *r, const json_t *value, int *count, refusal *why)
{
    const size_t length = json_is_string(value) ? json_string_length(value) : 0;

    if (!length || length > 256 || strlen(json_string_value(value)) != length)
        return refuse(why, 400, NULL,
                      "\"stop\" must be a text of 1 to 256 bytes without zero bytes, or an array of such");
    if (*count == SPECDEC_STOP_STRINGS)
        return refuse(why, 400, NULL, "\"stop\" holds more than %d texts", SPECDEC_STOP_STRINGS);
    r->settings.stop[(*count)++] = json_string_value(value);
    return 1;
}

static int take_stops(request *r, refusal *why)
{
    const json_t *value = member(r->json, "stop");
    int count = 0;
    size_t i;

    if (!value)
        return 1;
    memset(r->settings.stop, 0, sizeof r->settings.stop);
    if (!json_is_array(value))
        return add_stop(r, value, &count, why);
    for (i = 0; i < json_array_size(value); i++)
        if (!add_stop(r, json_array_get(value, i), &count, why))
            return 0;
    return 1;
}

/* {"token id": bias}. */
static int take_biases(request *r, refusal *why)
{
    json_t *object = member(r->json, "logit_bias"), *value;
    const char *name;
    int count = 0;

    if (!object)
        return 1;
    if (!json_is_object(object))
        return refuse(why, 400, NULL, "\"logit_bias\" must be an object of token ids and numbers");
    r->biases = (specdec_bias *)malloc((json_object_size(object) + 1) * sizeof *r->biases);
    if (!r->biases)
        return refuse(why, 500, NULL, "out of memory");
    json_object_foreach(object, name, value)
    {
        char *end;
        const long token = strtol(name, &end, 10);
        const double bias = json_number_value(value);

        if (*end || end == name || token < 0 || token > INT32_MAX || !json_is_number(value) || bias < -100 ||
            bias > 100)
            return refuse(why, 400, NULL, "\"logit_bias\" must be an object of token ids and numbers from -100 to 100");
        r->biases[count].token = (int32_t)token;
        r->biases[count++].bias = bias > -100 ? (float)bias : -INFINITY;
    }
    r->settings.sampling.biases = r->biases;
    r->settings.sampling.bias_count = count;
    return 1;
}

/* Streaming, and what its last event holds. */
static int take_stream(request *r, refusal *why)
{
    const json_t *options_of = member(r->json, "stream_options");

    if (!take_switch(r->json, "stream", &r->stream, why) ||
        !take_switch(r->json, "speculation", &r->marks_wanted, why))
        return 0;
    if (options_of && !json_is_object(options_of))
        return refuse(why, 400, NULL, "\"stream_options\" must be an object");
    return !options_of || take_switch(options_of, "include_usage", &r->usage_wanted, why);
}

/* Log-probabilities: of a chat a switch and a number, of a completion a number. */
static int take_logprobs(request *r, refusal *why)
{
    int most = -1;

    if (r->kind == REQUEST_CHAT) {
        if (!take_switch(r->json, "logprobs", &r->logprobs, why) ||
            !take_integer(r->json, "top_logprobs", 0, 20, &most, why))
            return 0;
        if (most > 0 && !r->logprobs)
            return refuse(why, 400, NULL, "\"top_logprobs\" goes with \"logprobs\": true only");
    } else {
        if (!take_integer(r->json, "logprobs", 0, 20, &most, why))
            return 0;
        r->logprobs = most >= 0;
    }
    r->top_logprobs = most > 0 ? most : 0;
    r->settings.top_logprobs = r->logprobs ? (r->top_logprobs ? r->top_logprobs : 1) : -1;
    return 1;
}

static int take_limit(request *r, refusal *why)
{
    int most = r->kind == REQUEST_COMPLETION ? REQUEST_DEFAULT_TOKENS : r->settings.max_tokens;

    if (!take_integer(r->json, "max_tokens", 1, 1 << 24, &most, why) ||
        !take_integer(r->json, "max_completion_tokens", 1, 1 << 24, &most, why))
        return 0;
    r->settings.max_tokens = most;
    return 1;
}

/* --- prompts ------------------------------------------------------------------------------------------------------ */

/* Is that an array of token ids? */
static int is_tokens(const json_t *value)
{
    return json_is_array(value) && json_array_size(value) && json_is_integer(json_array_get(value, 0));
}

/* The i-th prompt, or input: a text or an array of token ids. */
static const json_t *prompt_of(const request *r, const char *name, int i)
{
    const json_t *value = member(r->json, name);

    return json_is_array(value) && !is_tokens(value) ? json_array_get(value, (size_t)i) : value;
}

static int check_tokens(const server *s, const json_t *array, const char *name, refusal *why)
{
    size_t i;

    for (i = 0; i < json_array_size(array); i++) {
        const json_t *value = json_array_get(array, i);

        if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) >= s->info.vocabulary)
            return refuse(why, 400, NULL, "\"%s\": token ids are whole numbers from 0 to %d", name,
                          s->info.vocabulary - 1);
    }
    return 1;
}

/* Counts the prompts of a member, and checks what they are. */
static int take_prompts(const server *s, request *r, const char *name, refusal *why)
{
    const json_t *value = member(r->json, name);
    int i;

    r->prompts = json_is_array(value) && !is_tokens(value) && json_array_size(value) <= REQUEST_MOST_CHOICES
                     ? (int)json_array_size(value)
                     : 1;
    if (!value || (json_is_array(value) && (!json_array_size(value) || json_array_size(value) > (1u << 24))))
        return refuse(why, 400, NULL, "\"%s\" is missing or empty", name);
    if (json_is_array(value) && !is_tokens(value) && json_array_size(value) > REQUEST_MOST_CHOICES)
        return refuse(why, 400, NULL, "\"%s\" holds more than %d texts", name, REQUEST_MOST_CHOICES);
    for (i = 0; i < r->prompts; i++) {
        const json_t *one = prompt_of(r, name, i);

        if (!json_is_string(one) && !is_tokens(one))
            return refuse(why, 400, NULL, "\"%s\" must be a text, an array of token ids, or an array of these", name);
        if (is_tokens(one) && !check_tokens(s, one, name, why))
            return 0;
    }
    return 1;
}

/* Are there messages? The header reads them, and says what is wrong with them. */
static int check_messages(const request *r, refusal *why)
{
    const json_t *messages = member(r->json, "messages");

    return (json_is_array(messages) && json_array_size(messages)) ||
           refuse(why, 400, NULL, "\"messages\" must be an array with a message or more");
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

enum { CONSTRAINT_MOST = 64 << 20 }; /* bytes that a constraint is compiled in, at most */

/* Compiles what an answer, or a call, shall obey, into memory that becomes the request's. The work is bounded, whatever
   the source is. NULL after noting why. */
static const specdec_constraint *compile(void **memory, const specdec_constraint_source *source, const char *name,
                                         refusal *why)
{
    const specdec_constraint *constraint = NULL;
    specdec_error error;
    size_t bytes;
    specdec_result result = specdec_constraint_needed(source, &bytes, &error);

    for (; !result && !constraint && bytes <= CONSTRAINT_MOST; bytes *= 4) {
        free(*memory);
        *memory = malloc(bytes);
        if (!*memory)
            break;
        result = specdec_constraint_init(&constraint, source, *memory, bytes, &error);
        result = result == SPECDEC_ERROR_MEMORY ? SPECDEC_OK : result;
    }
    if (result)
        refuse(why, 400, NULL, "\"%s\": %s", name, error.text);
    else if (!constraint)
        refuse(why, 400, NULL, "\"%s\" is too large", name);
    return constraint;
}

/* The same for a source whose text is JSON; all else in it is given. */
static const specdec_constraint *compile_json(void **memory, specdec_constraint_source source, const json_t *value,
                                              const char *name, refusal *why)
{
    char *words = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    const specdec_constraint *constraint = NULL;

    source.text = words;
    source.length = SPECDEC_WHOLE_STRING;
    if (words)
        constraint = compile(memory, &source, name, why);
    else
        refuse(why, 400, NULL, "\"%s\" cannot be read", name);
    free(words);
    return constraint;
}

/* Makes the answer obey a JSON schema; compact: without white space, of which there is else as much as the model
   likes. */
static int take_schema(request *r, const json_t *schema, int compact, refusal *why)
{
    specdec_constraint_source source;

    if (!json_is_object(schema) && !json_is_boolean(schema))
        return refuse(why, 400, NULL, "\"response_format\": \"json_schema\" needs a \"schema\"");
    memset(&source, 0, sizeof source);
    source.kind = SPECDEC_CONSTRAINT_SCHEMA;
    source.compact = compact;
    r->settings.constraint = compile_json(&r->constraint, source, schema, "response_format", why);
    return r->settings.constraint != NULL;
}

/* A grammar in GBNF, as llama.cpp's server takes it. */
static int take_grammar(request *r, refusal *why)
{
    const json_t *grammar = member(r->json, "grammar");
    specdec_constraint_source source;

    if (!grammar || (json_is_string(grammar) && !json_string_length(grammar)))
        return 1;
    if (!json_is_string(grammar))
        return refuse(why, 400, NULL, "\"grammar\" must be a text");
    memset(&source, 0, sizeof source);
    source.kind = SPECDEC_CONSTRAINT_GBNF;
    source.text = json_string_value(grammar);
    source.length = json_string_length(grammar);
    r->settings.constraint = compile(&r->constraint, &source, "grammar", why);
    return r->settings.constraint != NULL;
}

/* The form of an answer: any text, a JSON object, or what a schema describes. */
static int take_format(request *r, refusal *why)
{
    const json_t *format = member(r->json, "response_format");
    const char *type = json_string_value(json_object_get(format, "type"));
    json_t *object;
    int good;

    if (!format || (type && strcmp(type, "text") == 0))
        return take_grammar(r, why);
    if (!is_nothing(member(r->json, "grammar")))
        return refuse(why, 400, NULL, "\"response_format\" and \"grammar\" exclude each other");
    if (type && strcmp(type, "json_schema") == 0)
        return take_schema(r, json_object_get(json_object_get(format, "json_schema"), "schema"), 1, why);
    if (!type || strcmp(type, "json_object") != 0)
        return refuse(why, 400, NULL, "\"response_format\" must have type text, json_object or json_schema");
    object = json_pack("{s:s}", "type", "object");
    good = take_schema(r, object, 0, why);
    json_decref(object);
    return good;
}

/* The one tool that must be called; NULL: none is named. */
static const char *named_tool(const request *r)
{
    return json_string_value(json_object_get(json_object_get(member(r->json, "tool_choice"), "function"), "name"));
}

/* Tools: calls obey their schemas. The model must have marks for calls. */
static int take_tools(const server *s, request *r, refusal *why)
{
    const json_t *tools = member(r->json, "tools"), *choice_of = member(r->json, "tool_choice");
    const char *name = named_tool(r);
    specdec_constraint_source source;
    int several = 1;

    if (is_nothing(tools) || (json_is_string(choice_of) && strcmp(json_string_value(choice_of), "none") == 0))
        return 1;
    if (!s->calls)
        return refuse(why, 400, "unsupported", "this model's chat template has no calls of tools that are known here");
    if (!take_switch(r->json, "parallel_tool_calls", &several, why))
        return 0;
    r->one_call = name || !several;
    if (r->settings.constraint)
        return refuse(why, 400, "unsupported", "\"tools\" go without \"response_format\" and \"grammar\" here");
    memset(&source, 0, sizeof source);
    source.kind = SPECDEC_CONSTRAINT_TOOLS;
    source.calls = s->calls;
    source.choices = name ? &name : NULL;
    source.choice_count = name != NULL;
    source.compact = 1;
    r->settings.calls = compile_json(&r->calls, source, tools, "tools", why);
    return r->settings.calls != NULL;
}

/* Makes the choices: n answers of each prompt. */
static int make_choices(request *r, refusal *why)
{
    int i;

    if (r->n > REQUEST_MOST_CHOICES / r->prompts)
        return refuse(why, 400, NULL, "\"n\" times prompts is above %d", REQUEST_MOST_CHOICES);
    r->count = 0;
    r->choices = (choice *)calloc((size_t)(r->n * r->prompts), sizeof *r->choices);
    if (!r->choices)
        return refuse(why, 500, NULL, "out of memory");
    r->count = r->n * r->prompts;
    for (i = 0; i < r->count; i++)
        r->choices[i].prompt = i / r->n;
    return 1;
}

static int take_answer_request(const server *s, request *r, refusal *why)
{
    int best = 0;

    r->settings = s->settings;
    if (!take_integer(r->json, "n", 1, REQUEST_MOST_CHOICES, &r->n, why) ||
        !take_integer(r->json, "best_of", 1, REQUEST_MOST_CHOICES, &best, why))
        return 0;
    if (best && best != r->n)
        return refuse(why, 400, "unsupported", "\"best_of\" must be \"n\" here: all answers are returned");
    if (!take_sampling(r, why) || !take_limit(r, why) || !take_stops(r, why) || !take_biases(r, why) ||
        !take_stream(r, why) || !take_logprobs(r, why) || !take_format(r, why))
        return 0;
    if (r->kind == REQUEST_COMPLETION)
        return take_prompts(s, r, "prompt", why);
    r->prompts = 1;
    return take_tools(s, r, why) && check_messages(r, why);
}

static int take_embedding_request(const server *s, request *r, refusal *why)
{
    const json_t *format = member(r->json, "encoding_format");
    const char *name = format ? json_string_value(format) : "float";

    if (!name || (strcmp(name, "float") != 0 && strcmp(name, "base64") != 0))
        return refuse(why, 400, NULL, "\"encoding_format\" must be float or base64");
    r->base64 = strcmp(name, "base64") == 0;
    return take_prompts(s, r, "input", why);
}

/* Takes a request's body apart. Returns 0 and why when it is refused. */
static int request_parse(const server *s, request *r, refusal *why)
{
    json_error_t error;

    r->json = json_loadb(r->body.bytes ? r->body.bytes : "", r->body.length, JSON_ALLOW_NUL, &error);
    if (!r->json)
        return refuse(why, 400, NULL, "the body is no JSON: %.150s (line %d, column %d)", error.text, error.line,
                      error.column);
    if (!json_is_object(r->json))
        return refuse(why, 400, NULL, "the body must be a JSON object");
    if (r->kind != REQUEST_CHAT) /* of a chat, the header reads it */
        text_free(&r->body);
    r->n = 1;
    if (!refuse_unsupported(r->json, why))
        return 0;
    if (!(r->kind == REQUEST_EMBEDDING ? take_embedding_request : take_answer_request)(s, r, why))
        return 0;
    return make_choices(r, why);
}
#endif
