/* machine.h - what tests of engines share: files in memory, engines in blocks of their own, configurations that must be
   refused. Include behind specdec.h's implementation, check.h and gguf_maker.h. */
#ifndef MACHINE_H
#define MACHINE_H

#ifdef _WIN32
static inline void machine_yield(void) { SwitchToThread(); } /* another thread may run now */
#else
#include <sched.h>
static inline void machine_yield(void) { sched_yield(); }
#endif

static specdec_error failure; /* of the last call that failed before there was an engine */

typedef struct file {
    unsigned char *data;
    size_t size;
} file;

/* What a maker holds, as a file that the caller frees. */
static inline file finish(maker *m)
{
    file f;

    maker_write(m);
    f.size = m->file.size;
    f.data = m->file.data;
    m->file.data = NULL; /* stays */
    maker_free(m);
    return f;
}

static inline file random_file(const maker_recipe *r)
{
    file f;

    f.data = maker_model(r, &f.size);
    return f;
}

/* A small model with random weights, with experts, or none if that is 0. noise: how far they are from those of the one
   without, which it can draft for. */
static inline file random_mixture(int experts, int layers, float noise, int may_end)
{
    maker_recipe r;

    memset(&r, 0, sizeof r);
    r.experts = experts;
    r.seed = 11;
    r.output_type = 1;
    r.embedding = 32;
    r.layers = layers;
    r.noise = noise;
    r.may_end = may_end;
    return random_file(&r);
}

static inline file random_model(int layers, float noise, int may_end) { return random_mixture(0, layers, noise, may_end); }

/* The same with a block that predicts, at random. */
static inline file random_predicting(int layers, int may_end)
{
    maker_recipe r;

    memset(&r, 0, sizeof r);
    r.seed = 11;
    r.output_type = r.nextn = 1;
    r.embedding = 32;
    r.layers = layers;
    r.may_end = may_end;
    return random_file(&r);
}

/* Drafts that guess at random, for targets whose states are 32 wide: heads, and a layer that reads states. */
static inline file random_heads(void)
{
    static maker m;
    maker_heads_recipe r;

    memset(&r, 0, sizeof r);
    r.embedding = 32;
    r.seed = 5;
    maker_begin_heads(&m, &r);
    return finish(&m);
}

static inline file random_layer(void)
{
    maker_recipe r;

    memset(&r, 0, sizeof r);
    r.architecture = "eagle3";
    r.embedding = 32;
    r.seed = 6;
    r.reads[0] = 1;
    r.reads[1] = 2;
    r.short_rows = 140;
    r.output_type = r.borrows = 1;
    return random_file(&r);
}

/* The same for drafts that come in files of their own, by number: block drafters, and for the model below an assistant. */
static inline file random_drafter(int i)
{
    maker_recipe r;

    memset(&r, 0, sizeof r);
    r.architecture = i < 3 ? "dflash" : "gemma4-assistant";
    r.embedding = 32;
    r.layers = i < 3 ? 2 : 6;
    r.window = 20;
    r.reads[0] = 1;
    r.reads[1] = 2;
    r.borrows = i < 3;
    r.anchored = r.trusts = i == 1;
    r.markov = i == 1 ? 32 : 0;
    r.selector = i == 2 ? 6 : 0;
    r.conv = i == 2 ? 3 : 0;
    r.seed = 8;
    return random_file(&r);
}

/* A model most of whose layers look back 20 tokens, with capped logits and an output matrix that can be screened. */
static inline file random_windowed(int may_end)
{
    maker_recipe r;

    memset(&r, 0, sizeof r);
    r.seed = 13;
    r.architecture = "gemma3";
    r.embedding = 32;
    r.layers = 6;
    r.window = 20;
    r.scales = 1;
    r.output_type = 9; /* Q8_0 */
    r.may_end = may_end;
    return random_file(&r);
}

static inline specdec_source source_of(const file *f)
{
    specdec_source s;

    memset(&s, 0, sizeof s);
    s.data = f->data;
    s.size = f->size;
    return s;
}

typedef struct machine {
    specdec *first;
    void *block;
} machine;

static inline int open_machine(machine *m, const specdec_config *c)
{
    size_t bytes;

    memset(m, 0, sizeof *m);
    CHECK_EQUAL_INT(specdec_memory_needed(c, &bytes, &failure), SPECDEC_OK);
    m->block = malloc(bytes);
    memset(m->block, 0xA5, bytes);
    CHECK_EQUAL_INT(specdec_init(&m->first, c, m->block, bytes, &failure), SPECDEC_OK);
    if (!m->first)
        fprintf(stderr, "%s\n", failure.text);
    return m->first != NULL;
}

static inline void close_machine(machine *m)
{
    specdec_deinit(m->first);
    free(m->block);
}

/* Tokens [from, count) of a text are those that a machine without speculation writes behind the first `from` of them. */
static inline void check_written(machine *oracle, const int32_t *tokens, int from, int count, const specdec_settings *settings)
{
    const int32_t *known;
    int n, common = 0;

    if (from == count)
        return;
    specdec_tokens(oracle->first, &known, &n);
    while (common < n && common < from - 1 && known[common] == tokens[common])
        common++;
    CHECK_EQUAL_INT(specdec_rewind(oracle->first, common), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_set(oracle->first, settings), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_prompt_tokens(oracle->first, tokens + common, from - common), SPECDEC_OK);
    for (n = from; n < count;) {
        const int32_t *more;
        int length, i;

        const specdec_result result = specdec_step(oracle->first, &more, &length);

        CHECK_EQUAL_INT(result, SPECDEC_OK); /* else the text goes on where it must end */
        if (result)
            return;
        for (i = 0; i < length && n < count; i++, n++)
            if (more[i] != tokens[n]) {
                CHECK_EQUAL_INT(more[i], tokens[n]);
                return;
            }
    }
    CHECK_EQUAL_INT(n, count);
}

/* No engine can be made of this, and the error has these words. */
static inline void refused(const char *what, const specdec_config *c, specdec_result result, const char *words)
{
    size_t bytes = 0;
    specdec *t = NULL;
    void *block = NULL;
    specdec_result got = specdec_memory_needed(c, &bytes, &failure);

    if (!got) {
        block = malloc(bytes);
        got = specdec_init(&t, c, block, bytes, &failure);
    }
    if (got != result || !strstr(failure.text, words))
        fprintf(stderr, "%s: %d, %s\n", what, (int)got, got ? failure.text : "");
    CHECK_EQUAL_INT(got, result);
    CHECK(strstr(failure.text, words) != NULL);
    specdec_deinit(t);
    free(block);
}
#endif
