/* test_room.c - the cache has room for what was asked of it: with config.cache 0 every text of every configuration can be
   filled to the end of its context, whatever windows its layers have and whoever drafts.
   cc -O2 -pthread -I. test_room.c. SPECDEC_ROOM_DEEP=1: engines of all configurations, not of a sample; takes half an hour. */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "check.h"
#include "gguf_maker.h"
#include "machine.h"

enum { MOST_TEXTS = 8, MOST_CONTEXT = 200 };

static uint32_t dice = 1;

static int roll(int sides)
{
    dice = dice * 1664525 + 1013904223;
    return (int)((dice >> 8) % (uint32_t)sides);
}

/* --- the cache alone: its views are filled as steps fill them --------------------------------------------------------- */

enum { ALL_KEYS = 1, ALL_WINDOWS = 2, BOTH = 3 };

/* A cache without a model. */
typedef struct cache {
    specdec__kv kv;
    specdec__view view[MOST_TEXTS];
    specdec__kv_demand room;
} cache;

static unsigned char block[4 << 20];
static int straight[513]; /* nodes in order: all are committed */

static void lay_out(cache *c, int kinds, int window)
{
    specdec__arena arena = {NULL, 0, 0};
    specdec__model m;
    int i;

    memset(&m, 0, sizeof m);
    arena.base = block;
    arena.size = sizeof block;
    m.kv_heads = 1;
    m.head_dim = 16;
    m.window = window;
    m.span_used[SPECDEC__WHOLE] = kinds & 1;
    m.span_used[SPECDEC__WINDOW] = kinds >> 1; /* no layers: a page has no bytes, as in a part of a model */
    specdec__kv_init(&c->kv, SPECDEC__KV_F16, &m, &c->room, &arena);
    for (i = 0; i < c->room.max_views; i++)
        specdec__view_init(&c->view[i], &c->kv, (c->room.view_keys + 2 * c->room.step_nodes) / SPECDEC__KEYS + 2, 1, &arena);
    if (arena.used == SIZE_MAX)
        abort();
}

/* A step of all texts that are not full: each has a root, and one of them all other nodes. The first `kept` nodes of each
   are committed. Returns how many found no room. */
static int take_step(cache *c, int kept)
{
    int nodes[MOST_TEXTS] = {0}, i, left = c->room.step_nodes, refused = 0, widest = roll(c->room.max_views);

    for (i = 0; i < c->room.max_views; i++)
        left -= nodes[i] = c->view[i].length < c->room.view_keys;
    if (nodes[widest])
        nodes[widest] += left;
    for (i = 0; i < c->room.max_views; i++)
        refused += nodes[i] && !specdec__view_reserve_and_notify(&c->view[i], &c->kv, nodes[i]);
    for (i = 0; i < c->room.max_views && !refused; i++) {
        const int n = specdec__min_int(specdec__min_int(nodes[i], kept), c->room.view_keys - c->view[i].length);

        if (n)
            specdec__view_commit(&c->view[i], &c->kv, straight, n);
        specdec__view_free_reserved_slots(&c->view[i], &c->kv);
    }
    return refused;
}

/* Fills all views of a cache, and counts what is refused; together: one as fast as the other. */
static int fill_cache(cache *c, int together)
{
    int i, kept = 1 + roll(together ? 9 : 40), refused = 0, full;

    for (i = 0; i < c->room.max_views && !together; i++) { /* one after the other to some length, as prompts are read */
        int length = roll(c->room.view_keys), n;

        for (; length > 0 && !refused; length -= n) {
            n = specdec__min_int(length, c->room.step_nodes);
            refused += !specdec__view_reserve_and_notify(&c->view[i], &c->kv, n);
            if (!refused)
                specdec__view_commit(&c->view[i], &c->kv, straight, n);
        }
    }
    for (full = 0; !full && !refused;) {
        refused += take_step(c, kept);
        for (full = 1, i = 0; i < c->room.max_views; i++)
            full &= c->view[i].length == c->room.view_keys;
    }
    return refused;
}

static void walk_caches(void)
{
    static const int most[] = {2, 3, 6, 18, 33, 65, 129, 513}, windows[] = {1, 8, 20, 64, 100, 190};
    static cache c;
    int context, texts, w, kinds, bad = 0;

    TEST("every view of a cache can be filled to its end, at all contexts, numbers of texts, widths of steps and windows");
    for (context = 1; context <= MOST_CONTEXT; context++)
        for (texts = 1; texts <= MOST_TEXTS; texts++)
            for (w = 0; w < (int)SPECDEC__COUNT(windows); w++)
                for (kinds = w ? ALL_WINDOWS : ALL_KEYS; kinds <= BOTH; kinds += 1) {
                    int together = roll(2), refused, far = 40 * (roll(8) == 0); /* some contexts are many windows long */

                    if (kinds == BOTH && roll(2))
                        continue;
                    c.room.max_views = texts;
                    c.room.view_keys = context * (far ? far : 1);
                    c.room.all_keys = c.room.view_keys * texts;
                    c.room.step_nodes = specdec__max_int(most[roll((int)SPECDEC__COUNT(most))], texts + 1);
                    c.room.reserved_nodes = c.room.step_nodes;
                    if (far && c.room.step_nodes < 18)
                        continue;
                    lay_out(&c, kinds, windows[w]);
                    refused = fill_cache(&c, together);
                    if (refused && bad++ < 8)
                        fprintf(stderr, "context %d texts %d step %d windows %d kinds %d\n", c.room.view_keys, texts, c.room.step_nodes,
                                windows[w], kinds);
                }
    CHECK_EQUAL_INT(bad, 0);
}

/* What a bound in tokens says holds for windows, too: they never take more pages than layers that see all keys. */
static void bound_caches(void)
{
    static cache c;
    int i;

    TEST("config.cache bounds windows, too, and what no machine has does not overflow");
    for (i = 0; i < 1000; i++) {
        c.room.max_views = 1 + roll(MOST_TEXTS);
        c.room.view_keys = 1 + roll(4000);
        c.room.all_keys = 1 + roll(c.room.view_keys);
        c.room.reserved_nodes = c.room.step_nodes = 1 + roll(100);
        memset(block, 0, 64);
        lay_out(&c, BOTH, 1 + roll(2000));
        CHECK(c.kv.span[SPECDEC__WINDOW].count <= c.kv.span[SPECDEC__WHOLE].count);
        CHECK(c.kv.span[SPECDEC__WINDOW].count > 0);
    }
    c.room.max_views = SPECDEC_MAX_SEQUENCES;
    c.room.view_keys = 1 << 24;
    c.room.all_keys = 1 << 30;
    c.room.reserved_nodes = 1 << 20;
    c.kv.span[SPECDEC__WINDOW].window = (1 << 30) - 1;
    CHECK(specdec__kv_count_pages(&c.kv.span[SPECDEC__WINDOW], &c.room) >= 1 << 24);
    CHECK(specdec__kv_count_pages(&c.kv.span[SPECDEC__WINDOW], &c.room) < 1 << 25);
}

/* --- engines ---------------------------------------------------------------------------------------------------------- */

enum { LLAMA, GEMMA, PHI, OLMO, KINDS };
static file models[KINDS], noisy, predicting, heads, layer;

static void make_models(void)
{
    static const char *const names[KINDS] = {"llama", "gemma3", "phi3", "olmo2"};
    static const int layers[KINDS] = {1, 6, 1, 4};
    maker_recipe r;
    int i;

    for (i = 0; i < KINDS; i++) {
        memset(&r, 0, sizeof r);
        r.architecture = names[i];
        r.seed = 7 + (uint32_t)i;
        r.embedding = 32;
        r.feed_forward = 32;
        r.layers = layers[i];
        r.window = i == PHI ? 16 : 20;
        r.output_type = 1;
        models[i] = random_file(&r);
        r.nextn = 1;
        if (i == LLAMA)
            predicting = random_file(&r);
    }
    memset(&r, 0, sizeof r);
    r.seed = 7;
    r.embedding = r.feed_forward = 32;
    r.layers = 1;
    r.output_type = 1;
    r.noise = 0.2f;
    noisy = random_file(&r);
    heads = random_heads();
    layer = random_layer();
}

/* Whether each of an engine's texts would find room in a drafter's cache for a tree of so many nodes. */
static int draft_fits(specdec__drafter *d, int views, int nodes)
{
    int i, fits = 1;

    for (i = 0; i < views; i++) {
        if (d->kind.init == specdec__draft_model_init) {
            specdec__draft_model *m = (specdec__draft_model *)d->state;

            fits &= specdec__view_reserve_and_notify(&m->views[i], &m->context.kv, nodes);
        } else if (d->kind.init == specdec__draft_layer_init) {
            specdec__draft_layer *m = (specdec__draft_layer *)d->state;

            fits &= specdec__view_reserve_and_notify(&m->sequences[i].view, &m->context.kv, nodes);
        } else if (d->kind.init == specdec__draft_recall_init) {
            specdec__draft_recall *m = (specdec__draft_recall *)d->state;

            fits &= specdec__view_reserve_and_notify(&m->cache.sequences[i].view, &m->cache.context.kv, m->nodes);
        }
    }
    return fits;
}

/* All texts of an engine are prompted and written to the ends of their contexts. Returns how many could not. */
static int fill_engine(const specdec_config *c)
{
    specdec *text[MOST_TEXTS];
    machine m;
    specdec_text piece;
    specdec_result result;
    int i, bad = 0;

    if (!open_machine(&m, c))
        return 1;
    text[0] = m.first;
    for (i = 1; i < c->sequences; i++)
        bad += specdec_open(m.first, &text[i]) != SPECDEC_OK;
    for (i = 0; i < c->sequences && !bad; i++) {
        int32_t tokens[MOST_CONTEXT];
        int n, count = 1 + roll(roll(4) ? 2 : c->context);

        count = specdec__min_int(count, c->context - 1);
        for (n = 0; n < count; n++)
            tokens[n] = 3 + roll(250);
        if (count)
            bad += specdec_prompt_tokens(text[i], tokens, count) != SPECDEC_OK;
    }
    for (i = 0; i < c->sequences && !bad && c->context > 1; i++) {
        do
            result = specdec_next(text[i], &piece);
        while (!result);
        bad += result != SPECDEC_DONE || (specdec_stopped(text[i], NULL) != SPECDEC_STOP_CONTEXT);
        if (bad)
            fprintf(stderr, "%s\n", specdec_error_text(text[i]));
    }
    for (i = 0; i < m.first->engine->drafter_count && !bad; i++)
        bad += !draft_fits(&m.first->engine->drafters[i], c->sequences, m.first->engine->config.tree_size);
    close_machine(&m);
    return bad;
}

/* One of the ways to draft: none, n-grams, a draft model, a layer that reads states, two levels, a block of the model that predicts. */
static void choose_drafts(specdec_config *c, int kind, int way)
{
    static const specdec_drafting ways[] = {SPECDEC_DRAFT_OFF, SPECDEC_DRAFT_NGRAM, SPECDEC_DRAFT_MODEL, SPECDEC_DRAFT_AUTO,
                                            SPECDEC_DRAFT_HEADS, SPECDEC_DRAFT_TRIFORCE, SPECDEC_DRAFT_MTP};

    c->drafting = ways[way];
    if (way == 6)
        c->target = source_of(&predicting);
    if (way == 2 || way == 3)
        c->draft = source_of(kind == LLAMA ? &noisy : &models[kind]);
    if (way == 4)
        c->heads = source_of(kind == LLAMA ? &heads : &layer);
    if (way == 4 && kind != LLAMA && kind != GEMMA)
        c->drafting = SPECDEC_DRAFT_NGRAM;
    if (way == 5 && kind == LLAMA)
        c->retrieval = 16;
    else if (way == 5)
        c->drafting = SPECDEC_DRAFT_AUTO;
}

static void walk_engines(int deep)
{
    static const int batches[] = {1, 2, 17, 64}, trees[] = {0, 2, 5, 64};
    specdec_config c;
    int context, texts, batch, tree, kind, way, bad = 0, count = 0;

    TEST("with config.cache 0 every text of every engine can be written to the end of its context");
    for (context = 2; context <= MOST_CONTEXT; context++)
        for (texts = 1; texts <= MOST_TEXTS; texts++)
            for (batch = 0; batch < 4; batch++)
                for (tree = 0; tree < 4; tree++)
                    for (kind = 0; kind < KINDS; kind++)
                        for (way = 0; way < 7; way++) {
                            if (!deep && roll(500 + context * texts * 5))
                                continue;
                            memset(&c, 0, sizeof c);
                            c.target = source_of(&models[kind]);
                            c.context = context;
                            c.sequences = texts;
                            c.batch = batches[batch];
                            c.tree_size = trees[tree];
                            c.tree_depth = 2 + roll(3);
                            c.threads = 1;
                            c.weights_in_place = roll(2);
                            c.policy = roll(2) ? SPECDEC_POLICY_STATIC : SPECDEC_POLICY_DYNAMIC;
                            c.kv = roll(2) ? "q8_0" : NULL;
                            choose_drafts(&c, kind, way);
                            count++;
                            if (fill_engine(&c) && bad++ < 8)
                                fprintf(stderr, "context %d texts %d batch %d tree %d kind %d way %d\n", context, texts,
                                        c.batch, c.tree_size, kind, way);
                        }
    printf("    %d engines\n", count);
    CHECK(count > 100);
    CHECK_EQUAL_INT(bad, 0);
}

/* Where nothing drafts, buffers hold no rows of a tree, unless the caller asks for one: for specdec_logits, say. */
static void plain_engines(void)
{
    static const int32_t tokens[] = {5, 6, 7}, parents[] = {-1, 0, 1};
    size_t bytes[3];
    specdec_config c;
    machine m;
    int i;

    TEST("an engine that does not draft pays for no tree");
    memset(&c, 0, sizeof c);
    c.target = source_of(&models[LLAMA]);
    c.threads = 1;
    c.context = 100;
    c.drafting = SPECDEC_DRAFT_OFF;
    for (i = 0; i < 3; i++) {
        c.batch = 1 + (i == 1);
        c.tree_size = i == 2 ? 32 : 0;
        CHECK(!specdec_memory_needed(&c, &bytes[i], &failure));
        if (!open_machine(&m, &c))
            continue;
        CHECK_EQUAL_INT(m.first->engine->target.max_nodes, i == 2 ? 33 : i + 2);
        CHECK(!specdec_prompt_tokens(m.first, tokens, 3));
        CHECK_EQUAL_INT(specdec_logits(m.first, tokens, parents, 3, NULL), i == 2 ? SPECDEC_OK : SPECDEC_ERROR_ARGUMENT);
        CHECK_EQUAL_INT(specdec_logits(m.first, tokens, parents, 1, NULL), SPECDEC_OK);
        close_machine(&m);
    }
    CHECK(bytes[0] < bytes[1] && bytes[1] < bytes[2]);
    CHECK(bytes[2] - bytes[0] > 30 * 301 * sizeof(float)); /* rows of logits */
    c.tree_size = 0;
    c.batch = 1;
    c.sequences = 5; /* a root each */
    if (open_machine(&m, &c)) {
        CHECK_EQUAL_INT(m.first->engine->target.max_nodes, 6);
        close_machine(&m);
    }
}

/* What specdec_init would refuse is refused by whoever asks how much memory it needs. */
static void asked_first(void)
{
    maker_recipe r;
    specdec_config c, good;
    file other, longer;
    size_t bytes;

    TEST("specdec_memory_needed refuses what specdec_init would");
    memset(&r, 0, sizeof r);
    r.seed = 9;
    r.embedding = 32;
    r.layers = 1;
    r.vocab = 290;
    r.output_type = 1;
    other = random_file(&r);
    r.vocab = 320;
    longer = random_file(&r);
    memset(&good, 0, sizeof good);
    good.target = source_of(&models[LLAMA]);
    good.threads = 1;
    good.context = 100;
    c = good;
    c.draft = source_of(&other);
    CHECK_EQUAL_INT(specdec_memory_needed(&c, &bytes, &failure), SPECDEC_ERROR_MISMATCH);
    CHECK(strstr(failure.text, "they first differ at token 290") != NULL);
    c.draft = source_of(&longer);
    CHECK_EQUAL_INT(specdec_memory_needed(&c, &bytes, &failure), SPECDEC_ERROR_MISMATCH);
    CHECK(strstr(failure.text, "they first differ at token 301") != NULL);
    c.drafting = SPECDEC_DRAFT_TRIFORCE;
    CHECK_EQUAL_INT(specdec_memory_needed(&c, &bytes, &failure), SPECDEC_ERROR_MISMATCH);
    c.drafting = SPECDEC_DRAFT_OFF;
    CHECK_EQUAL_INT(specdec_memory_needed(&c, &bytes, &failure), SPECDEC_OK);
    c = good;
    c.target = source_of(&longer);
    c.heads = source_of(&layer);
    CHECK_EQUAL_INT(specdec_memory_needed(&c, &bytes, &failure), SPECDEC_ERROR_MISMATCH);
    c = good;
    c.chat_format = "no such format";
    CHECK_EQUAL_INT(specdec_memory_needed(&c, &bytes, &failure), SPECDEC_ERROR_ARGUMENT);
    c = good;
    c.fork_token = "no such token";
    CHECK_EQUAL_INT(specdec_memory_needed(&c, &bytes, &failure), SPECDEC_ERROR_ARGUMENT);
    c.fork_token = "300"; /* by their ids */
    c.child_token = "301";
    CHECK_EQUAL_INT(specdec_memory_needed(&c, &bytes, &failure), SPECDEC_ERROR_ARGUMENT);
    c.child_token = "299";
    CHECK_EQUAL_INT(specdec_memory_needed(&c, &bytes, &failure), SPECDEC_OK);
    TEST("a context that cannot slide is refused, by default or not");
    for (c = good, c.context = 1; c.context < 9; c.context++)
        for (c.settings.slide = 0; c.settings.slide < 12; c.settings.slide++)
            CHECK_EQUAL_INT(specdec_memory_needed(&c, &bytes, &failure),
                            c.settings.slide && c.settings.slide >= c.context - 1 ? SPECDEC_ERROR_ARGUMENT : SPECDEC_OK);
    c.context = 0;
    c.settings.slide = 511; /* the model's context is 512 */
    CHECK_EQUAL_INT(specdec_memory_needed(&c, &bytes, &failure), SPECDEC_ERROR_ARGUMENT);
    c.settings.slide = 510;
    CHECK_EQUAL_INT(specdec_memory_needed(&c, &bytes, &failure), SPECDEC_OK);
    free(other.data);
    free(longer.data);
}

/* Saved texts of an engine find room in a new one of the same size, whatever its steps are, in any order. */
static void walk_loads(void)
{
    specdec *from[MOST_TEXTS], *to[MOST_TEXTS];
    specdec_text piece;
    specdec_config c;
    machine a, b;
    int turn, i, n, bad = 0;

    TEST("all texts of an engine, saved, are loaded by another one of the same size, and go on to the end");
    for (turn = 0; turn < 120; turn++) {
        memset(&c, 0, sizeof c);
        c.target = source_of(&models[turn % KINDS]);
        c.context = 2 + roll(MOST_CONTEXT);
        c.sequences = 1 + roll(MOST_TEXTS);
        c.tree_size = 2 + roll(4);
        c.batch = turn % 3 ? 64 : 1;
        c.threads = 1;
        c.drafting = SPECDEC_DRAFT_OFF;
        if (!open_machine(&a, &c))
            continue;
        c.batch = turn % 2 ? 17 : 1;
        if (!open_machine(&b, &c))
            continue;
        for (i = 0; i < c.sequences; i++) {
            int32_t tokens[MOST_CONTEXT + 2];
            const int at = i ? c.sequences - i : 0, count = 1 + roll(c.context - 1); /* the last one first */
            size_t bytes = 0;
            unsigned char *data;

            from[i] = a.first;
            to[at] = b.first;
            bad += i && (specdec_open(a.first, &from[i]) != SPECDEC_OK || specdec_open(b.first, &to[at]) != SPECDEC_OK);
            for (n = 0; n < count; n++)
                tokens[n] = 3 + roll(250);
            bad += specdec_prompt_tokens(from[i], tokens, count) != SPECDEC_OK;
            for (n = roll(2) ? 0 : c.context; n < c.context && !specdec_next(from[i], &piece); n++)
                continue;
            bad += specdec_save(from[i], NULL, 0, &bytes) != SPECDEC_OK;
            data = (unsigned char *)malloc(bytes);
            bad += specdec_save(from[i], data, bytes, &bytes) != SPECDEC_OK;
            if (specdec_load(to[at], data, bytes) && bad++ < 8)
                fprintf(stderr, "context %d text %d of %d, kind %d: %s\n", c.context, i, c.sequences, turn % KINDS,
                        specdec_error_text(to[at]));
            free(data);
        }
        for (i = 0; i < c.sequences && !bad; i++) {
            specdec_result result;

            do
                result = specdec_next(to[i], &piece);
            while (!result);
            bad += result != SPECDEC_DONE;
        }
        close_machine(&a);
        close_machine(&b);
    }
    CHECK_EQUAL_INT(bad, 0);
}

int main(void)
{
    int i;

    for (i = 0; i < (int)SPECDEC__COUNT(straight); i++)
        straight[i] = i;
    make_models();
    walk_caches();
    bound_caches();
    walk_engines(getenv("SPECDEC_ROOM_DEEP") != NULL);
    walk_loads();
    plain_engines();
    asked_first();
    return check_report("test_room");
}
