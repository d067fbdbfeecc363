/* test_stack.c - how much of the caller's stack the calls need: as much as the header says under MEMORY, at most.
   cc -O2 -pthread test_stack.c. Every call runs on a thread whose stack has been painted. */
#define _POSIX_C_SOURCE 200809L
#include "../specdec.h"
#include "check.h"
#include <pthread.h>

static specdec_error failure; /* of the last call that failed before there was an engine */

#define TARGET "examples/models/tiny-stories-target-q8_0.gguf"
#define DRAFT "examples/models/tiny-stories-draft-q8_0.gguf"
#define STACK_BYTES (512 * 1024)
#define PROMISED (14 * 1024) /* the header's MEMORY */
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
    return check_report("test_stack");
}
