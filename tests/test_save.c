/* test_save.c - contexts that last: a saved text goes on bit for bit as if it had never stopped, files that are damaged or
   foreign are refused and change nothing; a full context slides and goes on as a text that was given what stays.
   cc -O2 -pthread -I. test_save.c, run from the repository's root; SPECDEC_QUICK=1 shortens.
   test_save NAME: one test. test_save write FILE, test_save read FILE: texts saved here go on on another machine. */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "check.h"
#include "gguf_maker.h"
#include "machine.h"

enum { CONTEXT_TOKENS = 160, MOST_TEXT = 20000 };

static int quick;

/* --- models ----------------------------------------------------------------------------------------------------------- */

enum { PLAIN, NOISY, WINDOWED, TUNED, MODELS };
static file models[MODELS];
static file heads, layer;

static void make_models(void)
{
    models[PLAIN] = random_model(0, 0, 0);
    models[NOISY] = random_model(0, 0.25f, 0);
    models[TUNED] = random_model(0, 0.001f, 0);
    models[WINDOWED] = random_windowed(0);
    heads = random_heads();
    layer = random_layer();
}

static specdec_config config_of(int target)
{
    specdec_config c;

    memset(&c, 0, sizeof c);
    c.target.data = models[target].data;
    c.target.size = models[target].size;
    c.threads = 1;
    c.context = CONTEXT_TOKENS;
    c.drafting = SPECDEC_DRAFT_OFF;
    return c;
}

/* The same with everything that guesses. */
static void add_drafts(specdec_config *c, int target, int with_layer)
{
    const int draft = target == WINDOWED ? WINDOWED : NOISY;

    c->draft.data = models[draft].data;
    c->draft.size = models[draft].size;
    c->heads = source_of(with_layer ? &layer : &heads);
    c->drafting = SPECDEC_DRAFT_AUTO;
}

/* --- texts ------------------------------------------------------------------------------------------------------------ */

/* What a text has handed out. */
typedef struct answer {
    char text[MOST_TEXT];
    size_t length;
} answer;

static answer of_one, of_other;

/* Takes up to n pieces. Returns what the last call did. */
static specdec_result hand_out(specdec *t, int n, answer *a)
{
    specdec_result result = SPECDEC_OK;
    specdec_text piece;

    while (n-- > 0 && result == SPECDEC_OK) {
        result = specdec_next(t, &piece);
        if (a->length + piece.length > sizeof a->text)
            return SPECDEC_ERROR_BUFFER;
        memcpy(a->text + a->length, piece.bytes, piece.length);
        a->length += piece.length;
    }
    return result;
}

static void prompt(specdec *t, int count, uint64_t random)
{
    int32_t tokens[1000];
    int i;

    for (i = 0; i < count; i++)
        tokens[i] = 5 + (int)(maker_random(&random) % 250);
    CHECK_EQUAL_INT(specdec_prompt_tokens(t, tokens, count), SPECDEC_OK);
}

/* The tokens of both, and all that both have handed out since, are the same. */
static int same_texts(const specdec *one, const specdec *other, const answer *a, const answer *b)
{
    const int32_t *these, *those;
    int n, m;

    specdec_tokens(one, &these, &n);
    specdec_tokens(other, &those, &m);
    return n == m && memcmp(these, those, (size_t)n * sizeof *these) == 0 && a->length == b->length &&
           memcmp(a->text, b->text, a->length) == 0;
}

/* A text as a file, which the caller frees. */
static file save(specdec *t)
{
    file f = {NULL, 0};
    specdec_result result = specdec_save(t, NULL, 0, &f.size);

    CHECK_EQUAL_INT(result, SPECDEC_OK);
    f.data = (unsigned char *)malloc(f.size + 1);
    if (result || !f.data)
        exit(1);
    CHECK_EQUAL_INT(specdec_save(t, f.data, f.size, &f.size), SPECDEC_OK);
    return f;
}

static int same_files(const file *a, const file *b)
{
    return a->size == b->size && memcmp(a->data, b->data, a->size) == 0;
}

static void repair(const file *f)
{
    specdec__store_u64(f->data + f->size - 8, specdec__hash(SPECDEC__HASH, f->data, f->size - 8));
}

/* --- a saved text goes on --------------------------------------------------------------------------------------------- */

/* A text is saved after so many pieces and gone on with in an engine of another make: both go on alike. */
static void go_on(const specdec_config *here, const specdec_config *there, int pieces)
{
    float rows[2][512];
    machine a, b;
    file saved, again;

    if (!open_machine(&a, here) || !open_machine(&b, there))
        return;
    memset(&of_one, 0, sizeof of_one);
    memset(&of_other, 0, sizeof of_other);
    prompt(a.first, 40, 7);
    prompt(b.first, 12, 8); /* gives way */
    hand_out(b.first, 5, &of_other);
    hand_out(a.first, pieces, &of_one);
    of_one.length = of_other.length = 0;
    saved = save(a.first);
    CHECK_EQUAL_INT(specdec_load(b.first, saved.data, saved.size), SPECDEC_OK);
    CHECK_EQUAL_INT(b.first->view.length, b.first->count - 1); /* nothing is read again */
    again = save(b.first);
    CHECK(same_files(&saved, &again));
    if (pieces % 3 == 1) {
        CHECK_EQUAL_INT(specdec_logits(a.first, NULL, NULL, 0, rows[0]), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_logits(b.first, NULL, NULL, 0, rows[1]), SPECDEC_OK);
        CHECK(memcmp(rows[0], rows[1], (size_t)a.first->model->vocab_size * sizeof **rows) == 0);
    }
    CHECK_EQUAL_INT(hand_out(a.first, 1000, &of_one), hand_out(b.first, 1000, &of_other));
    CHECK(same_texts(a.first, b.first, &of_one, &of_other));
    CHECK_EQUAL_INT(specdec_stopped(a.first, NULL), specdec_stopped(b.first, NULL));
    close_machine(&a);
    close_machine(&b);
    free(saved.data);
    free(again.data);
}

static void test_going_on(void)
{
    static const char *const kinds[] = {"f32", "f16", "q8_0"};
    const int step = quick ? 17 : 5;
    int pieces, kind, target, sampled, i = 0;

    TEST("a saved text goes on bit for bit: greedy and sampled, every kind of cache, with windows, whatever drafts");
    for (target = PLAIN; target <= WINDOWED; target += WINDOWED)
        for (kind = 0; kind < 3; kind++)
            for (sampled = 0; sampled < 2; sampled++)
                for (pieces = 0; pieces < 70; pieces += step, i++) {
                    specdec_config here = config_of(target), there = here;

                    here.kv = there.kv = kinds[kind];
                    here.settings.sampling.temperature = sampled ? 1.2f : 0;
                    here.settings.sampling.seed = 0x123456789abcdefu + (uint64_t)i;
                    here.settings.sampling.repetition_penalty = 1.3f;
                    here.settings.sampling.repetition_window = i % 2 ? -1 : 20;
                    here.settings.max_tokens = i % 3 ? 100 : 0;
                    here.settings.show_special = i % 2;
                    here.settings.stop[0] = there.settings.stop[0] = i % 4 ? "qwertz" : NULL;
                    there.batch = 7;
                    there.context = CONTEXT_TOKENS + (i % 4 ? 0 : 50);
                    there.threads = 1 + i % 2;
                    there.async = i % 5 ? 0 : 1;
                    if (i % 3)
                        add_drafts(i % 2 ? &here : &there, target, i % 4 == 1);
                    if (there.context > here.context)
                        there.settings.max_tokens = here.settings.max_tokens = 60;
                    go_on(&here, &there, pieces);
                }
    printf("  %d texts\n", i);
}

/* Writes one token after the other. In between, the text is saved and loaded into b. Returns whether there was half a
   character, 2: bytes that may begin a stop string, 4: bytes set free by other stop strings. */
static int go_on_everywhere(specdec *a, specdec *b, specdec_settings settings, int seed)
{
    int seen = 0, i;

    prompt(a, 5, (uint64_t)seed);
    for (i = 0; i < 60; i++) {
        size_t length;
        file saved;

        of_one.length = of_other.length = 0;
        if (specdec__decode_next_piece(a, 1, &length)) /* not specdec_next: as its text is not looked at, nothing is missed */
            break;
        if (a->stop.held && i % 3 == seed % 3) {
            settings.stop[a->stop.held_string] = "~~";
            CHECK_EQUAL_INT(specdec_set(a, &settings), SPECDEC_OK);
            CHECK_EQUAL_INT(specdec_set(b, &settings), SPECDEC_OK);
        }
        saved = save(a);
        CHECK_EQUAL_INT(specdec_load(b, saved.data, saved.size), SPECDEC_OK);
        CHECK(a->released_bytes == b->released_bytes && memcmp(a->piece, b->piece, a->released_bytes) == 0);
        CHECK(a->stop.held == b->stop.held && a->stop.stopped == b->stop.stopped);
        CHECK(a->stream.held_count == b->stream.held_count && a->stream.drop_space == b->stream.drop_space &&
              memcmp(a->stream.held, b->stream.held, (size_t)a->stream.held_count) == 0);
        seen |= (a->stream.held_count > 0) | (a->stop.held > 0) << 1 | (a->released_bytes > 0) << 2;
        hand_out(b, 4, &of_other); /* is given up for the next file */
        if (a->released_bytes)
            hand_out(a, 1, &of_one);
        free(saved.data);
    }
    return seen;
}

static void test_state(void)
{
    int i, seed, seen = 0;

    TEST("half a character, bytes held back and bytes set free are saved, too");
    for (seed = 0; seed < (quick ? 8 : 40); seed++) {
        static char stops[3][64];
        specdec_config c = config_of(PLAIN);
        machine a, b;

        c.settings.sampling.temperature = 1.5f;
        c.settings.sampling.seed = (uint64_t)seed;
        for (i = 0; i < 3; i++) { /* many tokens end in such a letter, and are held back */
            snprintf(stops[i], sizeof stops[i], "%c no text goes on like this", 'a' + 3 * i);
            c.settings.stop[i] = stops[i];
        }
        if (!open_machine(&a, &c) || !open_machine(&b, &c))
            return;
        seen |= go_on_everywhere(a.first, b.first, c.settings, seed);
        close_machine(&a);
        close_machine(&b);
    }
    CHECK_EQUAL_INT(seen, 7);
}

/* All lengths of half a character, which byte tokens make. */
static void test_half(void)
{
    static const unsigned char emoji[3] = {0xf0, 0x9f, 0x92};
    specdec_config c = config_of(PLAIN);
    machine a, b;
    int n;

    TEST("one, two and three bytes of a character that waits for its last byte are saved");
    if (!open_machine(&a, &c) || !open_machine(&b, &c))
        return;
    prompt(a.first, 5, 1);
    for (n = 1; n <= 3; n++) {
        file saved;

        a.first->stream.held_count = n;
        memcpy(a.first->stream.held, emoji, sizeof emoji);
        saved = save(a.first);
        CHECK_EQUAL_INT(specdec_load(b.first, saved.data, saved.size), SPECDEC_OK);
        CHECK_EQUAL_INT(b.first->stream.held_count, n);
        CHECK(memcmp(b.first->stream.held, emoji, (size_t)n) == 0);
        free(saved.data);
    }
    close_machine(&a);
    close_machine(&b);
}

/* Models of others: real windows, long contexts, and the pair of examples/models. */
static void test_models(void)
{
    static const char *const names[] = {"conformance/more/gemma2-q8_0.gguf", "conformance/more/gemma3-q4_0.gguf",
                                        "conformance/more/phi3-q4_0.gguf", "conformance/qwen3-q6_k.gguf"};
    char path[300];
    int i;

    TEST("a saved text of a model made elsewhere goes on bit for bit");
    for (i = 0; i < 4; i++) {
        specdec_config c;
        size_t size;
        unsigned char *data = check_read_file(check_shared(path, sizeof path, names[i]), &size);

        if (!data) {
            SKIP(path);
            continue;
        }
        memset(&c, 0, sizeof c);
        c.target.data = data;
        c.target.size = size;
        c.threads = 1;
        c.context = 80;
        c.kv = i % 2 ? "q8_0" : NULL;
        c.settings.sampling.temperature = 1;
        go_on(&c, &c, 30);
        free(data);
    }
}

/* --- several texts ---------------------------------------------------------------------------------------------------- */

static int used_pages(const specdec *t)
{
    const specdec__kv *kv = &t->engine->target.kv;

    return kv->span[0].count - kv->span[0].free_count - kv->span[0].only_kept + kv->span[1].count - kv->span[1].free_count - kv->span[1].only_kept;
}

/* Text i of several, saved in the middle of what it does, goes on in any place; the others do not notice. */
static void one_of_several(int target, int i)
{
    specdec_config c = config_of(target);
    specdec *texts[3], *elsewhere;
    machine m, alone;
    file saved;
    int k;

    c.settings.sampling.temperature = i % 2 ? 1.1f : 0;
    if (!open_machine(&alone, &c))
        return;
    add_drafts(&c, target, i % 2);
    c.sequences = 4;
    c.batch = 16;
    c.prefill_chunk = 5;
    if (!open_machine(&m, &c))
        return;
    texts[0] = m.first;
    for (k = 0; k < 3; k++) {
        if (k)
            CHECK_EQUAL_INT(specdec_open(m.first, &texts[k]), SPECDEC_OK);
        prompt(texts[k], 30 + 40 * k, (uint64_t)(i + k));
    }
    for (k = 0; k < i; k++)
        specdec_work(m.first);
    memset(&of_one, 0, sizeof of_one);
    memset(&of_other, 0, sizeof of_other);
    CHECK_EQUAL_INT(specdec_open(m.first, &elsewhere), SPECDEC_OK);
    saved = save(texts[i % 3]); /* perhaps before all of its prompt is read */
    prompt(elsewhere, 3, 1);
    CHECK_EQUAL_INT(specdec_load(elsewhere, saved.data, saved.size), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_load(alone.first, saved.data, saved.size), SPECDEC_OK);
    hand_out(elsewhere, 1000, &of_one);
    hand_out(alone.first, 1000, &of_other);
    CHECK(same_texts(elsewhere, alone.first, &of_one, &of_other));
    of_one.length = of_other.length = 0;
    CHECK_EQUAL_INT(specdec_rewind(alone.first, 0), SPECDEC_OK);
    k = (i + 1) % 3;
    prompt(alone.first, 30 + 40 * k, (uint64_t)(i + k));
    hand_out(texts[k], 1000, &of_one);
    hand_out(alone.first, 1000, &of_other);
    CHECK(same_texts(texts[k], alone.first, &of_one, &of_other));
    for (k = 0; k < 3; k++)
        specdec_close(texts[k]);
    specdec_close(elsewhere);
    CHECK_EQUAL_INT(used_pages(m.first), 0);
    free(saved.data);
    close_machine(&m);
    close_machine(&alone);
}

static void test_several(void)
{
    int i;

    TEST("one text of several is saved and loaded, whatever it was doing; pages come back, others do not notice");
    for (i = 0; i < (quick ? 4 : 16); i++)
        one_of_several(i % 4 == 3 ? WINDOWED : PLAIN, i);
}

/* A rule that forks at every token which is a multiple of seven. */
static int sevens(void *user_data, const int32_t *tokens, int count, int32_t *child)
{
    (void)user_data;
    child[0] = tokens[count - 1] / 7 + 5;
    return tokens[count - 1] % 7 == 0;
}

static void test_forks(void)
{
    specdec_config c = config_of(PLAIN);
    specdec *child, *fork;
    machine m, other;
    file saved, of_child;
    int i, born;

    TEST("a text that forks is saved without its children, and forks where it had not; a child is saved, but none is replaced");
    c.sequences = 30;
    c.forks = 2; /* so that there are places for all of them, whenever they come */
    c.hooks.fork = sevens;
    c.settings.sampling.temperature = 1;
    if (!open_machine(&m, &c) || !open_machine(&other, &c))
        return;
    memset(&of_one, 0, sizeof of_one);
    memset(&of_other, 0, sizeof of_other);
    prompt(m.first, 10, 3);
    while (!specdec_child(m.first, 0) && hand_out(m.first, 1, &of_one) == SPECDEC_OK)
        continue;
    child = specdec_child(m.first, 0);
    CHECK(child != NULL);
    if (!child)
        return;
    saved = save(m.first);
    of_child = save(child);
    CHECK_EQUAL_INT(specdec_load(child, saved.data, saved.size), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_fork(m.first, &fork), SPECDEC_OK);
    of_one.length = 0;
    CHECK_EQUAL_INT(specdec_load(other.first, saved.data, saved.size), SPECDEC_OK);
    hand_out(m.first, 1000, &of_one);
    hand_out(other.first, 1000, &of_other);
    CHECK(same_texts(m.first, other.first, &of_one, &of_other));
    for (i = born = 0; specdec_child(m.first, i); i++) /* those that came later come here, too */
        born += specdec_child(m.first, i)->fork_at > (int)specdec__load_u32(saved.data + 24 + 4 * SPECDEC__SAVE_COUNT);
    for (i = 0; i < born; i++)
        CHECK(specdec_child(other.first, i) != NULL);
    CHECK(specdec_child(other.first, born) == NULL);
    of_one.length = of_other.length = 0;
    CHECK_EQUAL_INT(specdec_load(other.first, of_child.data, of_child.size), SPECDEC_OK);
    CHECK(specdec_child(other.first, 0) == NULL); /* those of the text before are gone */
    hand_out(child, 1000, &of_one);
    hand_out(other.first, 1000, &of_other);
    CHECK(same_texts(child, other.first, &of_one, &of_other));
    close_machine(&m);
    close_machine(&other);
    free(saved.data);
    free(of_child.data);
}

/* A fork without a place for the child is no state that goes into a file. */
static void test_waiting_fork(void)
{
    specdec_config c = config_of(PLAIN);
    size_t bytes = 77;
    const int32_t *tokens;
    specdec *second;
    machine m;
    int n;

    TEST("a text whose fork waits for a place is not saved");
    c.sequences = 2;
    c.hooks.fork = sevens;
    c.settings.sampling.temperature = 1;
    if (!open_machine(&m, &c))
        return;
    CHECK_EQUAL_INT(specdec_open(m.first, &second), SPECDEC_OK);
    prompt(m.first, 10, 3);
    while (specdec_step(m.first, &tokens, &n) == SPECDEC_OK || m.first->handed_out < m.first->count)
        continue;
    CHECK(m.first->forced_count > 0);
    CHECK_EQUAL_INT(specdec_stopped(m.first, NULL), SPECDEC_STOP_NONE);
    CHECK_EQUAL_INT(specdec_save(m.first, NULL, 0, &bytes), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(bytes, 77);
    close_machine(&m);
}

/* --- files that are none ---------------------------------------------------------------------------------------------- */

/* Loads a file that may be anything. Where it is refused the text must be what it was: `before`. Else it goes on. */
static int try_file(specdec *t, const file *f, size_t size, const file *before)
{
    unsigned char *exact = (unsigned char *)malloc(size + 1); /* so that reading behind it is noticed */
    specdec_result result;
    const int32_t *tokens;
    size_t length = 0;
    int which, count;
    file now;

    if (!exact)
        exit(1);
    memcpy(exact, f->data, size);
    result = specdec_load(t, exact, size);
    free(exact);
    if (!result) {
        const specdec_stop stop = specdec_stopped(t, &which);

        specdec_tokens(t, &tokens, &count);
        CHECK(stop != SPECDEC_STOP_END || (count > 0 && which == tokens[count - 1]));
        specdec_join_forks(t, NULL, 0, &length);
        CHECK(length <= 300 + 1024 * (size_t)count);
        of_one.length = 0;
        hand_out(t, 3, &of_one);
        CHECK_EQUAL_INT(specdec_load(t, before->data, before->size), SPECDEC_OK);
        return 1;
    }
    CHECK(((result >= SPECDEC_ERROR_FORMAT && result <= SPECDEC_ERROR_CONTEXT) || result == SPECDEC_ERROR_FULL) && specdec_error_text(t)[0]);
    now = save(t);
    CHECK(same_files(&now, before));
    free(now.data);
    return 0;
}

/* A small engine whose text is `before`, and a file of another text. */
static void small_texts(machine *m, int target, const char *kv, file *before, file *f)
{
    specdec_config c = config_of(target);

    c.kv = kv;
    c.context = 40;
    c.settings.stop[0] = "abcdefghijk";
    c.settings.sampling.temperature = 1;
    if (!open_machine(m, &c))
        exit(1);
    prompt(m->first, 3, 1);
    hand_out(m->first, 2, &of_one);
    *f = save(m->first);
    prompt(m->first, 4, 2);
    hand_out(m->first, 3, &of_one);
    *before = save(m->first);
}

static void test_damage(void)
{
    static const char *const kinds[] = {"f32", "f16", "q8_0"};
    int kind, bit, accepted = 0, tried = 0;
    file before, f;
    machine m;
    size_t i;

    TEST("a file with any byte changed, or cut anywhere, is refused and changes nothing");
    for (kind = 0; kind < 3; kind++) {
        small_texts(&m, kind ? PLAIN : WINDOWED, kinds[kind], &before, &f);
        for (i = 0; i < f.size; i += quick && i > 300 ? 37 : 1)
            for (bit = 0; bit < 8; bit += quick ? 7 : 3) {
                f.data[i] = (unsigned char)(f.data[i] ^ 1 << bit);
                CHECK(!try_file(m.first, &f, f.size, &before));
                f.data[i] = (unsigned char)(f.data[i] ^ 1 << bit);
            }
        for (i = 0; i < f.size; i += quick && i > 300 ? 37 : 1)
            CHECK(!try_file(m.first, &f, i, &before));
        TEST("one that was changed by somebody who knows the checksum is refused, or is a text");
        for (i = 0; i < f.size - 8; i += quick && i > 300 ? 37 : 1) {
            const unsigned char byte = f.data[i];

            for (bit = 0; bit < 256; bit += 85, tried++) {
                f.data[i] = (unsigned char)bit;
                repair(&f);
                accepted += try_file(m.first, &f, f.size, &before);
            }
            f.data[i] = byte;
        }
        for (i = SPECDEC__SAVE_HEAD_BYTES + sizeof(specdec__saved_fields) + 8; i < f.size; i += quick ? 211 : 1) {
            file cut = f;
            unsigned char last[8];

            cut.size = i;
            memcpy(last, f.data + i - 8, 8);
            repair(&cut);
            CHECK(!try_file(m.first, &cut, i, &before));
            memcpy(f.data + i - 8, last, 8);
        }
        CHECK(accepted > tried / 8 && accepted < tried);
        close_machine(&m);
        free(before.data);
        free(f.data);
    }
    printf("  %d of %d accepted\n", accepted, tried);
}

/* An empty text that says it has ended, though it cannot: what is behind the end of nothing is not looked at. */
static void test_empty_file(void)
{
    specdec_config c = config_of(PLAIN);
    unsigned char *fields;
    machine m;
    file f;

    TEST("an empty text that claims an answer is refused");
    if (!open_machine(&m, &c))
        return;
    f = save(m.first);
    CHECK_EQUAL_INT(specdec_load(m.first, f.data, f.size), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_stopped(m.first, NULL), SPECDEC_STOP_NONE);
    fields = f.data + SPECDEC__SAVE_HEAD_BYTES;
    specdec__store_u32(fields + 4 * SPECDEC__SAVE_FINISHED, 1);
    specdec__store_u32(fields + 4 * SPECDEC__SAVE_SLID, 5);
    repair(&f);
    CHECK_EQUAL_INT(specdec_load(m.first, f.data, f.size), SPECDEC_ERROR_FORMAT);
    CHECK_EQUAL_INT(specdec_stopped(m.first, NULL), SPECDEC_STOP_NONE);
    free(f.data);
    close_machine(&m);
}

/* Fields of any size, and files of random bytes. */
static void test_random_files(void)
{
    static const uint32_t sizes[] = {0, 1, 2, 7, 39, 40, 41, 255, 256, 257, 1u << 24, 0x7fffffffu, 0x80000000u, 0xffffffffu};
    uint64_t random = 99;
    file before, f;
    machine m;
    int i, k;

    TEST("fields of any value, and random bytes, are refused or are a text");
    small_texts(&m, WINDOWED, NULL, &before, &f);
    for (i = 0; i < (quick ? 2000 : 40000); i++) {
        file wild;

        wild.size = i % 2 ? f.size : (size_t)(maker_random(&random) % (2 * f.size));
        wild.data = (unsigned char *)malloc(wild.size + 1);
        if (!wild.data)
            exit(1);
        for (k = 0; k < (int)wild.size; k++)
            wild.data[k] = k < (int)f.size ? f.data[k] : (unsigned char)maker_random(&random);
        if (i % 4 == 0) {
            for (k = 12; k < (int)wild.size; k++)
                wild.data[k] = (unsigned char)maker_random(&random);
        } else if (wild.size > 24 + sizeof(specdec__saved_fields)) {
            for (k = 1 + (int)(maker_random(&random) % 3); k > 0; k--)
                specdec__store_u32(wild.data + 24 + 4 * (maker_random(&random) % SPECDEC__SAVE_FIELD_COUNT),
                                   sizes[maker_random(&random) % SPECDEC__COUNT(sizes)]);
        }
        if (wild.size > 8)
            repair(&wild);
        try_file(m.first, &wild, wild.size, &before);
        free(wild.data);
    }
    CHECK(i > 0);
    close_machine(&m);
    free(before.data);
    free(f.data);
}

/* A file of this text is refused by that engine, with these words. */
static void foreign(const file *f, const specdec_config *c, specdec_result wanted, const char *words)
{
    file before, after;
    machine m;

    if (!open_machine(&m, c))
        return;
    prompt(m.first, 5, 5);
    before = save(m.first);
    CHECK_EQUAL_INT(specdec_load(m.first, f->data, f->size), wanted);
    if (!strstr(specdec_error_text(m.first), words))
        fprintf(stderr, "%s\n", specdec_error_text(m.first));
    CHECK(strstr(specdec_error_text(m.first), words) != NULL);
    after = save(m.first);
    CHECK(same_files(&before, &after));
    free(before.data);
    free(after.data);
    close_machine(&m);
}

static void test_foreign(void)
{
    specdec_config c = config_of(PLAIN), other = c;
    size_t bytes = 0;
    machine m;
    file f;

    TEST("a file of another model, a slightly trained one too, or of another cache, and what has no room, are refused");
    if (!open_machine(&m, &c))
        return;
    prompt(m.first, 100, 1);
    f = save(m.first);
    other.target = source_of(&models[TUNED]);
    foreign(&f, &other, SPECDEC_ERROR_MISMATCH, "another model");
    other.target = source_of(&models[WINDOWED]);
    foreign(&f, &other, SPECDEC_ERROR_MISMATCH, "another model");
    other = c;
    other.kv = "q8_0";
    foreign(&f, &other, SPECDEC_ERROR_MISMATCH, "q8_0");
    other = c;
    other.context = 99;
    foreign(&f, &other, SPECDEC_ERROR_CONTEXT, "100 tokens");
    f.data[8] = 1;
    foreign(&f, &c, SPECDEC_ERROR_UNSUPPORTED, "version 1");
    TEST("what is missing or too small is said");
    CHECK_EQUAL_INT(specdec_save(m.first, f.data, f.size - 1, &bytes), SPECDEC_ERROR_BUFFER);
    CHECK_EQUAL_INT(bytes, f.size);
    CHECK_EQUAL_INT(specdec_save(m.first, f.data, f.size, NULL), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_save(NULL, f.data, f.size, &bytes), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_load(m.first, NULL, 5), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_load(NULL, f.data, f.size), SPECDEC_ERROR_ARGUMENT);
    specdec_close(m.first);
    CHECK_EQUAL_INT(specdec_save(m.first, f.data, f.size, &bytes), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_load(m.first, f.data, f.size), SPECDEC_ERROR_ARGUMENT);
    free(f.data);
    close_machine(&m);
}

/* Another text has the pages that a file needs. */
static void test_full_cache(void)
{
    specdec_config c = config_of(PLAIN);
    specdec *second;
    file f, before;
    machine m;

    TEST("a text for which the cache has no room left is refused, until there is room");
    c.sequences = 2;
    c.cache = 20;
    c.batch = c.tree_size = 4;
    if (!open_machine(&m, &c))
        return;
    prompt(m.first, 100, 1);
    hand_out(m.first, 1, &of_one);
    f = save(m.first);
    CHECK_EQUAL_INT(specdec_rewind(m.first, 0), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_open(m.first, &second), SPECDEC_OK);
    prompt(second, 100, 2);
    hand_out(second, 1, &of_one);
    before = save(m.first);
    CHECK_EQUAL_INT(specdec_load(m.first, f.data, f.size), SPECDEC_ERROR_FULL);
    CHECK(strstr(specdec_error_text(m.first), "no room in the cache") != NULL);
    CHECK_EQUAL_INT(specdec_load(second, f.data, f.size), SPECDEC_OK); /* its own pages are room */
    CHECK(!try_file(m.first, &f, f.size, &before));
    specdec_close(second);
    CHECK_EQUAL_INT(specdec_load(m.first, f.data, f.size), SPECDEC_OK);
    free(f.data);
    free(before.data);
    close_machine(&m);
}

/* The RoPE of long contexts turns keys otherwise: no file goes from one to the other. */
static void test_long_rope(void)
{
    specdec_config c, longer;
    maker_recipe r;
    machine m;
    file f, model;

    TEST("a text of a short context is no text of a long one, where the model tells them apart");
    memset(&r, 0, sizeof r);
    r.architecture = "phi3";
    r.embedding = 32;
    r.long_rope = 64;
    model = random_file(&r);
    c = config_of(PLAIN);
    c.target = source_of(&model);
    c.context = 60;
    longer = c;
    longer.context = 70;
    if (!open_machine(&m, &c))
        return;
    prompt(m.first, 10, 1);
    f = save(m.first);
    foreign(&f, &longer, SPECDEC_ERROR_MISMATCH, "short context");
    go_on(&longer, &longer, 3);
    close_machine(&m);
    free(f.data);
    free(model.data);
}

static void test_empty(void)
{
    specdec_config c = config_of(PLAIN);
    const int32_t *tokens;
    specdec_text piece;
    machine m;
    file f;
    int count;

    TEST("an empty text is saved, and loaded it is empty");
    if (!open_machine(&m, &c))
        return;
    f = save(m.first);
    prompt(m.first, 10, 1);
    CHECK_EQUAL_INT(specdec_load(m.first, f.data, f.size), SPECDEC_OK);
    specdec_tokens(m.first, &tokens, &count);
    CHECK_EQUAL_INT(count, 0);
    CHECK_EQUAL_INT(specdec_next(m.first, &piece), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(used_pages(m.first), 0);
    free(f.data);
    close_machine(&m);
}

/* --- a full context slides -------------------------------------------------------------------------------------------- */

static machine oracle;

/* The text that an undisturbed engine writes behind these tokens until its context is full, or `most` of them. */
static void check_follows(const int32_t *kept, int count, const int32_t *written, int most)
{
    const int32_t *tokens;
    int i = 0, n, k;

    CHECK_EQUAL_INT(specdec_rewind(oracle.first, 0), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_prompt_tokens(oracle.first, kept, count), SPECDEC_OK);
    while (i < most && specdec_step(oracle.first, &tokens, &n) == SPECDEC_OK)
        for (k = 0; k < n && i < most; k++, i++)
            if (tokens[k] != written[i]) {
                CHECK_EQUAL_INT(tokens[k], written[i]);
                return;
            }
    CHECK_EQUAL_INT(i, most);
}

static int laps_seen;

/* Follows a text over `laps` ends of its context, or until the model ends it. Behind each, it must be what it is when what
   stays is prompted. */
static void follow_laps(specdec *t, int keep, int laps)
{
    static int32_t before[4096], after[4096];
    const int32_t *tokens;
    specdec_text piece;
    int count, n, kept, lap;

    for (lap = 0; lap < laps; lap++) {
        specdec_tokens(t, &tokens, &count);
        while (count < t->context && specdec_next(t, &piece) == SPECDEC_OK)
            specdec_tokens(t, &tokens, &count);
        if (specdec__stream_end_reason(t, count) == SPECDEC_STOP_END)
            return;
        laps_seen++;
        memcpy(before, tokens, (size_t)count * sizeof *before);
        CHECK_EQUAL_INT(count, t->context);
        CHECK_EQUAL_INT(specdec_step(t, &tokens, &n), SPECDEC_OK);
        kept = t->context - (t->context - keep) / 2;
        specdec_tokens(t, &tokens, &count);
        CHECK_EQUAL_INT(count, kept + n);
        CHECK(memcmp(tokens, before, (size_t)keep * sizeof *tokens) == 0);
        CHECK(memcmp(tokens + keep, before + keep + (t->context - kept), (size_t)(kept - keep) * sizeof *tokens) == 0);
        while (count < t->context) {
            if (specdec_step(t, &tokens, &n))
                break;
            specdec_tokens(t, &tokens, &count);
        }
        memcpy(after, tokens, (size_t)count * sizeof *after);
        if (specdec__stream_end_reason(t, count) == SPECDEC_STOP_END)
            return;
        CHECK_EQUAL_INT(count, t->context);
        check_follows(after, kept, after + kept, count - kept);
    }
}

static void test_sliding(void)
{
    static const int keeps[] = {1, 4, 33, 63};
    int i;

    TEST("a context that slides goes on as a text that was given what stays: plainly and with drafts, also beside, with windows");
    for (i = 0; i < (quick ? 8 : 40); i++) {
        const int target = i % 5 == 4 ? WINDOWED : PLAIN, keep = keeps[i % 4];
        specdec_config c = config_of(target), plain = c;

        c.context = plain.context = 70 + i;
        c.kv = plain.kv = i % 3 == 2 ? "q8_0" : NULL;
        c.settings.sampling.temperature = i % 2 ? 1.3f : 0;
        c.settings.sampling.seed = (uint64_t)i;
        c.settings.sampling.repetition_penalty = 1.2f;
        plain.settings = c.settings;
        c.settings.slide = keep;
        c.batch = 1 + 9 * (i % 3);
        if (i % 4)
            add_drafts(&c, target, i % 3 == 0);
        c.threads = i % 3 ? 1 : 2;
        c.async = i % 3 ? 0 : 1;
        c.sequences = 1 + i % 2;
        if (!open_machine(&oracle, &plain))
            return;
        {
            machine m;

            if (!open_machine(&m, &c))
                return;
            prompt(m.first, 30, (uint64_t)i);
            follow_laps(m.first, keep, 3);
            CHECK_EQUAL_INT(m.first->settings.slide, keep);
            close_machine(&m);
        }
        close_machine(&oracle);
    }
    CHECK(laps_seen >= 2 * i);
}

/* The bytes of a text and where they end do not know of the border. */
static void test_slide_text(void)
{
    specdec_config c = config_of(PLAIN);
    specdec_text piece;
    const int32_t *tokens;
    specdec_result result;
    machine m;
    char whole[MOST_TEXT], stop[16];
    size_t length = 0, border = 0, i;
    int n, before = 0;

    TEST("stop strings and limits hold across the border, and pieces are the text of the tokens");
    c.context = 60;
    c.settings.slide = 4;
    c.settings.max_tokens = 200;
    c.settings.sampling.temperature = 1;
    if (!open_machine(&m, &c))
        return;
    prompt(m.first, 20, 9);
    do {
        result = specdec_next(m.first, &piece);
        memcpy(whole + length, piece.bytes, piece.length);
        length += piece.length;
        specdec_tokens(m.first, &tokens, &n);
        if (n < before && !border)
            border = length - piece.length;
        before = n;
    } while (result == SPECDEC_OK);
    whole[length] = 0;
    CHECK_EQUAL_INT(specdec_stopped(m.first, NULL), SPECDEC_STOP_LIMIT);
    CHECK_EQUAL_INT(m.first->slid + m.first->handed_out - m.first->answer_from, 200);
    CHECK(border > 6);
    memcpy(stop, whole + border - 3, 6); /* half of it on each side; the text has it once */
    stop[6] = 0;
    CHECK(strstr(whole, stop) == whole + border - 3);
    c.settings.stop[0] = stop;
    CHECK_EQUAL_INT(specdec_rewind(m.first, 0), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_set(m.first, &c.settings), SPECDEC_OK);
    prompt(m.first, 20, 9);
    for (i = 0; (result = specdec_next(m.first, &piece)) == SPECDEC_OK; i += piece.length)
        CHECK(memcmp(whole + i, piece.bytes, piece.length) == 0);
    i += piece.length;
    CHECK_EQUAL_INT(specdec_stopped(m.first, NULL), SPECDEC_STOP_STRING);
    CHECK_EQUAL_INT(i, border - 3);
    close_machine(&m);
}

/* A text that is cancelled while it reads what stays is what it was before. */
static int cancel_at; /* at which report of progress */

static int on_progress(void *user_data, const char *what, int done, int total)
{
    (void)user_data; (void)done; (void)total;
    return strcmp(what, "prefill") == 0 && cancel_at > 0 && --cancel_at == 0;
}

static void test_slide_cancelled(void)
{
    specdec_config c = config_of(PLAIN), plain;
    const int32_t *tokens, *more;
    int32_t before[64];
    float logprob[64];
    specdec_logprob known;
    int n, i, at;
    machine m, other;

    TEST("a text that is cancelled while its context slides is what it was; then it goes on as if that had not been");
    c.context = 60;
    c.batch = 4;
    c.logprobs = 2;
    c.settings.slide = 4;
    c.settings.sampling.temperature = 1;
    plain = c;
    c.hooks.progress = on_progress;
    if (!open_machine(&m, &c) || !open_machine(&other, &plain))
        return;
    for (at = 1; at < 7; at++) {
        specdec_rewind(m.first, 0);
        specdec_rewind(other.first, 0);
        prompt(m.first, 30, (uint64_t)at);
        prompt(other.first, 30, (uint64_t)at);
        while (specdec_step(m.first, &tokens, &n) == SPECDEC_OK && m.first->handed_out < 60)
            continue;
        memcpy(before, m.first->tokens, sizeof *before * 60);
        for (i = 30; i < 60; i++) {
            CHECK_EQUAL_INT(specdec_get_logprob(m.first, i, &known), SPECDEC_OK);
            logprob[i] = known.logprob;
        }
        cancel_at = at;
        CHECK_EQUAL_INT(specdec_step(m.first, &tokens, &n), SPECDEC_ERROR_CANCELLED);
        CHECK_EQUAL_INT(n, 0);
        specdec_tokens(m.first, &tokens, &n);
        CHECK(n == 60 && memcmp(tokens, before, sizeof *before * 60) == 0);
        for (i = 30; i < 60; i++) {
            CHECK_EQUAL_INT(specdec_get_logprob(m.first, i, &known), SPECDEC_OK);
            CHECK(known.token == before[i] && known.logprob == logprob[i]);
        }
        cancel_at = 0;
        for (i = 0; i < 90; i++)
            CHECK_EQUAL_INT(specdec_step(m.first, &tokens, &n), SPECDEC_OK);
        while (other.first->slid < m.first->slid || other.first->handed_out < m.first->handed_out)
            if (specdec_step(other.first, &more, &n))
                break;
        CHECK(m.first->handed_out == other.first->handed_out &&
              memcmp(m.first->tokens, other.first->tokens, (size_t)m.first->handed_out * sizeof *tokens) == 0);
        for (i = 0; i < m.first->handed_out; i++)
            CHECK(m.first->logprobs[i] == other.first->logprobs[i]);
    }
    close_machine(&m);
    close_machine(&other);
}

/* Several texts that nobody asks by specdec_next. */
static void test_slide_work(void)
{
    specdec_config c = config_of(PLAIN), plain = c;
    specdec *second, *texts[2];
    specdec_text piece;
    machine m, alone;
    int i, laps[2] = {0, 0}, work = 0;
    file saved;

    TEST("texts slide one by one, whoever calls specdec_work; a text that has slid is saved and goes on");
    c.context = plain.context = 64;
    c.sequences = 2;
    c.settings.slide = plain.settings.slide = 2;
    c.settings.sampling.temperature = plain.settings.sampling.temperature = 1;
    if (!open_machine(&m, &c) || !open_machine(&alone, &plain))
        return;
    CHECK_EQUAL_INT(specdec_open(m.first, &second), SPECDEC_OK);
    texts[0] = m.first;
    texts[1] = second;
    prompt(m.first, 30, 1);
    prompt(second, 50, 2);
    while ((laps[0] < 100 || laps[1] < 100) && specdec_work(m.first) == SPECDEC_OK && work++ < 2000)
        for (i = 0; i < 2; i++)
            while (specdec_take(texts[i], &piece) == SPECDEC_OK)
                laps[i] = texts[i]->slid;
    CHECK(laps[0] >= 100 && laps[1] >= 100);
    saved = save(second);
    CHECK_EQUAL_INT(specdec_load(alone.first, saved.data, saved.size), SPECDEC_OK);
    memset(&of_one, 0, sizeof of_one);
    memset(&of_other, 0, sizeof of_other);
    CHECK_EQUAL_INT(hand_out(second, 200, &of_one), SPECDEC_OK);
    CHECK_EQUAL_INT(hand_out(alone.first, 200, &of_other), SPECDEC_OK);
    CHECK(same_texts(second, alone.first, &of_one, &of_other));
    free(saved.data);
    close_machine(&m);
    close_machine(&alone);
}

/* What does not slide: prompts, contexts that are kept as a whole, families; and a text without a single byte ends. */
static void test_slide_ends(void)
{
    static specdec_bias invisible[300];
    specdec_config c = config_of(PLAIN);
    int32_t more[1] = {9};
    specdec_text piece;
    machine m;
    int i;

    TEST("a prompt does not slide, and a text that does not slide, has children or shows nothing ends with its context");
    c.context = 40;
    c.settings.slide = 20;
    for (i = 0; i < 3; i++) {
        if (!open_machine(&m, &c))
            return;
        prompt(m.first, 30, 4);
        if (i == 0) {
            while (!m.first->slid || m.first->handed_out < 40)
                CHECK_EQUAL_INT(specdec_next(m.first, &piece), SPECDEC_OK);
            CHECK_EQUAL_INT(specdec_prompt_tokens(m.first, more, 1), SPECDEC_ERROR_CONTEXT);
            c.settings.slide = 39;
            CHECK_EQUAL_INT(specdec_set(m.first, &c.settings), SPECDEC_ERROR_ARGUMENT);
            refused("all tokens but one stay", &c, SPECDEC_ERROR_ARGUMENT, "keeps at most 38");
            c.settings.slide = 40;
            refused("all tokens stay", &c, SPECDEC_ERROR_ARGUMENT, "settings.slide is 40");
            c.settings.slide = 38;
            CHECK_EQUAL_INT(specdec_set(m.first, &c.settings), SPECDEC_OK);
            c.settings.slide = 0;
        } else {
            memset(&of_one, 0, sizeof of_one);
            CHECK_EQUAL_INT(hand_out(m.first, 100, &of_one), SPECDEC_DONE);
            CHECK_EQUAL_INT(specdec_stopped(m.first, NULL), SPECDEC_STOP_CONTEXT);
            CHECK_EQUAL_INT(m.first->handed_out, 40);
            c.settings.slide = 4; /* all but a control token is forbidden: nothing is ever handed out */
            c.settings.sampling.temperature = 1;
            for (c.settings.sampling.bias_count = 0; c.settings.sampling.bias_count < 300;) {
                invisible[c.settings.sampling.bias_count].token = c.settings.sampling.bias_count + 1;
                invisible[c.settings.sampling.bias_count++].bias = -INFINITY;
            }
            c.settings.sampling.biases = invisible;
        }
        close_machine(&m);
    }
    c.settings.sampling.bias_count = 0;
    c.sequences = 30;
    c.forks = 1;
    c.hooks.fork = sevens;
    if (!open_machine(&m, &c))
        return;
    prompt(m.first, 10, 3);
    memset(&of_one, 0, sizeof of_one);
    CHECK_EQUAL_INT(hand_out(m.first, 100, &of_one), SPECDEC_DONE);
    CHECK(specdec_child(m.first, 0) != NULL);
    CHECK_EQUAL_INT(specdec_stopped(m.first, NULL), SPECDEC_STOP_CONTEXT);
    c.settings.slide = -1;
    CHECK_EQUAL_INT(specdec_set(m.first, &c.settings), SPECDEC_ERROR_ARGUMENT);
    close_machine(&m);
}

/* Texts of every kind of cache, saved one behind the other with what they then write, or read back: on this machine or on
   one of another byte order and word size. */
static int carry(const char *path, int writes)
{
    static const char *const kinds[] = {"f32", "f16", "q8_0"};
    FILE *f = fopen(path, writes ? "wb" : "rb");
    int i;

    TEST("a text that was saved on another machine goes on bit for bit");
    for (i = 0; f && i < 6; i++) {
        specdec_config c = config_of(i % 2 ? WINDOWED : PLAIN);
        unsigned char head[8];
        file saved;
        machine m;

        c.kv = kinds[i / 2];
        c.settings.sampling.temperature = 1;
        if (!open_machine(&m, &c))
            return 1;
        memset(&of_one, 0, sizeof of_one);
        if (writes) {
            prompt(m.first, 40, 7);
            hand_out(m.first, 20, &of_other);
            saved = save(m.first);
            hand_out(m.first, 50, &of_one);
            specdec__store_u32(head, (uint32_t)saved.size);
            specdec__store_u32(head + 4, (uint32_t)of_one.length);
            fwrite(head, 1, 8, f);
            fwrite(saved.data, 1, saved.size, f);
            fwrite(of_one.text, 1, of_one.length, f);
        } else {
            CHECK(fread(head, 1, 8, f) == 8);
            saved.size = specdec__load_u32(head);
            of_other.length = specdec__load_u32(head + 4);
            saved.data = (unsigned char *)malloc(saved.size);
            CHECK(saved.data && fread(saved.data, 1, saved.size, f) == saved.size);
            CHECK(fread(of_other.text, 1, of_other.length, f) == of_other.length);
            CHECK_EQUAL_INT(specdec_load(m.first, saved.data, saved.size), SPECDEC_OK);
            CHECK_EQUAL_INT(m.first->view.length, m.first->count - 1);
            hand_out(m.first, 50, &of_one);
            CHECK(of_one.length == of_other.length && memcmp(of_one.text, of_other.text, of_one.length) == 0);
        }
        free(saved.data);
        close_machine(&m);
    }
    CHECK(f && !ferror(f) && fclose(f) == 0);
    return check_report("test_save");
}

int main(int argc, char **argv)
{
    static const struct { const char *name; void (*run)(void); } tests[] = {
        {"going_on", test_going_on}, {"state", test_state}, {"half", test_half}, {"models", test_models}, {"several", test_several},
        {"forks", test_forks}, {"forks", test_waiting_fork}, {"damage", test_damage}, {"random", test_random_files}, {"random", test_empty_file},
        {"foreign", test_foreign}, {"foreign", test_full_cache}, {"foreign", test_long_rope}, {"foreign", test_empty},
        {"sliding", test_sliding}, {"slide", test_slide_text}, {"slide", test_slide_cancelled}, {"slide", test_slide_work},
        {"slide", test_slide_ends}};
    size_t i;

    quick = getenv("SPECDEC_QUICK") != NULL;
    make_models();
    if (argc == 3)
        return carry(argv[2], strcmp(argv[1], "write") == 0);
    for (i = 0; i < SPECDEC__COUNT(tests); i++)
        if (argc < 2 || strcmp(argv[1], tests[i].name) == 0)
            tests[i].run();
    return check_report("test_save");
}
