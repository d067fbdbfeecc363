/* test_stack.c - how much of the caller's stack the calls need: as much as the header says under MEMORY, at most.
   cc -O2 -pthread -I. test_stack.c. Every call runs on a thread whose stack has been painted. */
#define _POSIX_C_SOURCE 200809L
#include "specdec.h"
#include "check.h"
#include <pthread.h>

static specdec_error failure; /* of the last call that failed before there was an engine */

#define TARGET "examples/models/tiny-stories-target-q8_0.gguf"
#define DRAFT "examples/models/tiny-stories-draft-q8_0.gguf"
#define STACK_BYTES (512 * 1024)
#define PROMISED (22 * 1024) /* docs/manual.md, "stack" */
#define PAINT 0xa5

/* What the calls under test share. */
typedef struct caller {
    specdec_config config;
    specdec *engine;
    void *memory;
    size_t bytes;
    specdec_result result;
} caller;

typedef struct step {
    const char *name;
    void (*call)(caller *);
} step;

/* A step on its painted stack; top is where the step began. */
typedef struct run {
    const step *at;
    caller *with;
    unsigned char *top;
} run;

static void measure(caller *c) { c->result = specdec_memory_needed(&c->config, &c->bytes, &failure); }
static void begin(caller *c) { c->result = specdec_init(&c->engine, &c->config, c->memory, c->bytes, &failure); }
static void read_prompt(caller *c) { c->result = specdec_prompt(c->engine, "Once upon a time, there was", SPECDEC_WHOLE_STRING); }

static void write_text(caller *c)
{
    specdec_text piece;
    int i;

    for (i = 0; i < 80 && c->result == SPECDEC_OK; i++)
        c->result = specdec_next(c->engine, &piece);
}

static void talk(caller *c)
{
    const specdec_message message = {SPECDEC_USER, "Who was the girl?", SPECDEC_WHOLE_STRING, 0};

    c->result = specdec_chat(c->engine, &message, 1);
}

static void end(caller *c) { specdec_deinit(c->engine); }

static const step steps[] = {{"specdec_memory_needed", measure}, {"specdec_init", begin}, {"specdec_prompt", read_prompt},
                             {"specdec_next", write_text}, {"specdec_chat", talk}, {"specdec_next", write_text},
                             {"specdec_deinit", end}};

static void *run_step(void *argument)
{
    run *r = (run *)argument;
    unsigned char here = 0;

    r->top = &here;
    r->at->call(r->with);
    return NULL;
}

/* Bytes of stack that a step has touched, from the frame of the function that calls it on; 0 when no thread could be had. */
static size_t depth_of(const step *at, caller *c)
{
    unsigned char *stack = NULL;
    pthread_attr_t attributes;
    pthread_t thread;
    size_t low = 0, depth = 0;
    run r;

    r.at = at;
    r.with = c;
    if (posix_memalign((void **)&stack, 65536, STACK_BYTES))
        return 0;
    memset(stack, PAINT, STACK_BYTES);
    pthread_attr_init(&attributes);
    if (!pthread_attr_setstack(&attributes, stack, STACK_BYTES) && !pthread_create(&thread, &attributes, run_step, &r)) {
        pthread_join(thread, NULL);
        while (stack[low] == PAINT)
            low++;
        depth = (size_t)(r.top - (stack + low));
    }
    pthread_attr_destroy(&attributes);
    free(stack);
    return depth;
}

/* All steps with one way to draft and verify. */
static void all_steps(caller *c, int promised)
{
    size_t i, depth, most = 0;

    for (i = 0; i < sizeof steps / sizeof *steps; i++) {
        c->result = SPECDEC_OK;
        if (steps[i].call == begin)
            c->memory = malloc(c->bytes);
        depth = depth_of(&steps[i], c);
        printf("    %-22s %6lu bytes of stack\n", steps[i].name, (unsigned long)depth);
        CHECK(depth > 0);
        CHECK(c->result == SPECDEC_OK || c->result == SPECDEC_DONE);
        most = depth > most ? depth : most;
        if (c->result != SPECDEC_OK && c->result != SPECDEC_DONE)
            break;
    }
    free(c->memory);
    c->memory = NULL;
    if (promised)
        CHECK(most <= PROMISED);
    else
        SKIP("built without optimisation or with a sanitizer: frames are larger");
}

/* A model with a chat template: its pair stands before all others, and the tensors stay aligned. */
static unsigned char *with_template(const char *text, size_t *size)
{
    static const char key[] = "tokenizer.chat_template";
    const size_t before = 8 + (sizeof key - 1) + 4 + 8, length = (before + strlen(text) + 35) / 32 * 32 - before;
    unsigned char *file = check_read_file(DRAFT, size), *out, *at;
    size_t i;

    if (!file)
        return NULL;
    out = (unsigned char *)calloc(*size + before + length, 1);
    memcpy(out, file, 24);
    out[16]++; /* pairs */
    at = out + 24;
    at[0] = sizeof key - 1;
    memcpy(at + 8, key, sizeof key - 1);
    at += 8 + sizeof key - 1;
    at[0] = 8; /* a string */
    for (i = 0; i < 4; i++)
        at[4 + i] = (unsigned char)(length >> 8 * i);
    memset(at + 12, ' ', length);
    memcpy(at + 12, "{#", 2);
    memcpy(at + 12 + length - strlen(text) - 2, "#}", 2);
    memcpy(at + 12 + length - strlen(text), text, strlen(text));
    memcpy(at + 12 + length, file + 24, *size - 24);
    *size += before + length;
    free(file);
    return out;
}

/* Templates that nest as deep as they may: brackets, calls in arguments, macros in macros. */
static void test_templates(int promised)
{
    static const char *const templates[] = {
        "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + eos_token + '\n' }}{% endfor %}{{ '<|assistant|>\n' }}",
        "{{ (1 if (2 if (3 if (4 if (5 if (6 if (7 if 8 else 9) else 10) else 1) else 2) else 3) else 4) else 5) }}",
        "{{ 'a'.replace('b'.replace('c'.replace('d'.replace('e'.replace('f'.replace('g', 'h'), 'i'), 'j'), 'k'), 'l'), 'm') }}",
        "{{ 1 == 1 and (1 or 2 and (3 == 4 ~ 5 + 6 * (1 or 2 and (3 == 4 ~ 5 + 6 * (1 and 2 == (3 + (4 * 5))))))) }}",
        "{% macro a(x='') %}{{ x ~ 'a' }}{% endmacro %}{% macro b(x='') %}{% for m in messages %}{{ a(x=a(x) ~ x) }}{% endfor %}"
        "{% endmacro %}{% macro c(x='') %}{% if b(x) %}{{ b(b(x)) }}{% endif %}{% endmacro %}{% macro d(x='') %}{% set y %}"
        "{{ c((c(x))) }}{% endset %}{{ y }}{% endmacro %}{{ d((d('x' if ('y' if ('z') else 'u') else ''))) }}"};
    size_t i;

    for (i = 0; i < sizeof templates / sizeof *templates; i++) {
        caller c;

        TEST("nor does a chat template, however deep");
        memset(&c, 0, sizeof c);
        c.config.target.data = with_template(templates[i], &c.config.target.size);
        CHECK(c.config.target.data != NULL);
        c.config.chat_format = i ? "zephyr" : NULL;
        c.config.threads = 1;
        c.config.context = 256;
        c.config.weights_in_place = 1;
        all_steps(&c, promised);
        free((void *)(size_t)c.config.target.data);
    }
}

int main(void)
{
    static const char *const kv[] = {"f16", "f32", "q8_0", "f16"};
    caller c;
    size_t i;
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(SPECDEC_TEST_NO_LIMITS)
    const int promised = 1;
#else
    const int promised = 0;
#endif

    for (i = 0; i < sizeof kv / sizeof *kv; i++) {
        memset(&c, 0, sizeof c);
        c.config.target.path = TARGET;
        c.config.draft.path = DRAFT;
        c.config.kv = kv[i];
        c.config.threads = 1; /* further threads have stacks of their own */
        c.config.context = 512;
        c.config.chat_format = "zephyr";
        c.config.weights_in_place = i == 1;
        c.config.settings.sampling.temperature = i ? 0.8f : 0;
        c.config.rule = i == 2 ? SPECDEC_RULE_SEQUOIA : SPECDEC_RULE_COUPLED;
        c.config.retrieval = i == 3 ? 64 : 0; /* two levels: a drafter inside a drafter */
        TEST("no call needs more of the caller's stack than the header says");
        all_steps(&c, promised);
    }
    test_templates(promised);
    return check_report("test_stack");
}
