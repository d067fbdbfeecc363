/* test_ends.c - what ends an answer, and what the model sees of it then: end tokens of the settings, stop strings that are
   control tokens, and answers that are cut where a stop string has ended them.
   cc -O2 -pthread -I. test_ends.c, run from the repository's root; SPECDEC_QUICK=1 shortens. */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "check.h"
#include "gguf_maker.h"
#include "machine.h"
#include <unistd.h>

enum { CONTEXT_TOKENS = 200, MOST_TEXT = 8000 };

static int quick;
static file model, draft;

typedef struct answer {
    char text[MOST_TEXT];
    size_t length;
} answer;

static specdec_config config_of(int drafts)
{
    specdec_config c;

    memset(&c, 0, sizeof c);
    c.target = source_of(&model);
    c.threads = 1;
    c.context = CONTEXT_TOKENS;
    c.drafting = SPECDEC_DRAFT_OFF;
    if (drafts) {
        c.draft = source_of(&draft);
        c.drafting = SPECDEC_DRAFT_AUTO;
    }
    c.settings.max_tokens = 60;
    c.settings.sampling.temperature = 1;
    return c;
}

static void prompt(specdec *t, int count, uint64_t random)
{
    int32_t tokens[100];
    int i;

    for (i = 0; i < count; i++)
        tokens[i] = 5 + (int)(maker_random(&random) % 250);
    CHECK_EQUAL_INT(specdec_prompt_tokens(t, tokens, count), SPECDEC_OK);
}

/* The answer to its end. */
static void read_on(specdec *t, answer *a)
{
    specdec_text piece;
    specdec_result result;

    do {
        result = specdec_next(t, &piece);
        CHECK(result == SPECDEC_OK || result == SPECDEC_DONE);
        CHECK(a->length + piece.length < sizeof a->text);
        memcpy(a->text + a->length, piece.bytes, piece.length);
        a->length += piece.length;
    } while (result == SPECDEC_OK);
    a->text[a->length] = 0;
}

/* --- end tokens ------------------------------------------------------------------------------------------------------- */

/* Tokens of an answer without any ends: count of them. */
static int free_answer(const specdec_config *c, int seed, int32_t *out, int *from)
{
    static answer a;
    const int32_t *tokens;
    machine m;
    int count;

    a.length = 0;
    if (!open_machine(&m, c))
        exit(1);
    prompt(m.first, 9, (uint64_t)seed);
    specdec_tokens(m.first, NULL, from);
    read_on(m.first, &a);
    specdec_tokens(m.first, &tokens, &count);
    memcpy(out, tokens, (size_t)count * sizeof *out);
    close_machine(&m);
    return count;
}

static void test_end_tokens(void)
{
    static answer a;
    int32_t plain[CONTEXT_TOKENS + 1];
    const int32_t *tokens;
    int seed, count, from, got, at, which;

    TEST("an answer ends by the first end token of the settings, with and without drafts, by pieces and by steps");
    for (seed = 0; seed < (quick ? 12 : 60); seed++) {
        specdec_config c = config_of(0);
        machine m;

        c.settings.sampling.seed = (uint64_t)seed;
        count = free_answer(&c, seed, plain, &from);
        c = config_of(seed % 2);
        c.settings.sampling.seed = (uint64_t)seed;
        c.settings.end_tokens[0] = -5; /* unknown ids are skipped */
        c.settings.end_tokens[1] = 1 << 30;
        c.settings.end_tokens[2] = plain[from + 1 + seed % 40];
        c.settings.end_token_count = 3;
        for (at = from; at < count && plain[at] != c.settings.end_tokens[2]; at++)
            ;
        if (!open_machine(&m, &c))
            return;
        prompt(m.first, 9, (uint64_t)seed);
        a.length = 0;
        if (seed % 3)
            read_on(m.first, &a);
        else
            while (!specdec_step(m.first, &tokens, &got))
                continue;
        specdec_tokens(m.first, &tokens, &got);
        CHECK_EQUAL_INT(got, at + 1);
        CHECK(memcmp(tokens, plain, (size_t)got * sizeof *tokens) == 0);
        CHECK_EQUAL_INT(specdec_stopped(m.first, &which), SPECDEC_STOP_END);
        CHECK_EQUAL_INT(which, plain[at]);
        TEST("without them it goes on as if they had never been there");
        c.settings.end_token_count = 0;
        CHECK_EQUAL_INT(specdec_set(m.first, &c.settings), SPECDEC_OK);
        read_on(m.first, &a);
        specdec_tokens(m.first, &tokens, &got);
        CHECK(got == count && memcmp(tokens, plain, (size_t)got * sizeof *tokens) == 0);
        close_machine(&m);
    }
    TEST("more than there is room for is refused");
    {
        specdec_config c = config_of(0);

        c.settings.end_token_count = SPECDEC_END_TOKENS + 1;
        refused("too many ends", &c, SPECDEC_ERROR_ARGUMENT, "end_token_count");
        c.settings.end_token_count = -1;
        refused("less than no ends", &c, SPECDEC_ERROR_ARGUMENT, "end_token_count");
    }
}

/* A stop string is exactly the text of a control token, which the model is made to write. */
static void test_control_tokens(void)
{
    static const char *const texts[] = {"<s>", "<unk>"};
    static answer a;
    int i, special, drafts, which;

    TEST("a stop string that is a control token ends the answer though the token is no text");
    for (i = 0; i < 2; i++)
        for (special = 0; special < 2; special++)
            for (drafts = 0; drafts < 2; drafts++) {
                specdec_config c = config_of(drafts);
                specdec_bias bias = {1 - i, 1000};
                specdec_stop why;
                machine m;

                c.settings.sampling.temperature = 0;
                c.settings.sampling.biases = &bias;
                c.settings.sampling.bias_count = 1;
                c.settings.show_special = special;
                c.settings.stop[0] = "never";
                c.settings.stop[1] = texts[i];
                if (!open_machine(&m, &c))
                    return;
                prompt(m.first, 9, 3);
                a.length = 0;
                read_on(m.first, &a);
                why = specdec_stopped(m.first, &which);
                CHECK_EQUAL_INT(a.length, 0);
                CHECK_EQUAL_INT(why, special ? SPECDEC_STOP_STRING : SPECDEC_STOP_END);
                CHECK_EQUAL_INT(which, special ? 1 : 1 - i);
                close_machine(&m);
            }
    TEST("other stop strings with such a text inside end nothing by it");
    {
        specdec_config c = config_of(0);
        specdec_bias bias = {1, 1000};
        machine m;

        c.settings.sampling.temperature = 0;
        c.settings.sampling.biases = &bias;
        c.settings.sampling.bias_count = 1;
        c.settings.stop[0] = "<s>x";
        c.settings.stop[1] = "<s";
        if (!open_machine(&m, &c))
            return;
        prompt(m.first, 9, 3);
        a.length = 0;
        read_on(m.first, &a);
        CHECK_EQUAL_INT(specdec_stopped(m.first, NULL), SPECDEC_STOP_LIMIT);
        close_machine(&m);
    }
}

/* --- copies ----------------------------------------------------------------------------------------------------------- */

static void test_copies(void)
{
    static answer plain, a;
    char stop[4], other[SPECDEC_STOP_STRINGS][16];
    specdec_config c = config_of(0);
    specdec_settings settings;
    specdec *second;
    machine m;
    int i, n;

    TEST("stop strings are copied: the caller may forget them, and those of the configuration are for texts opened later, too");
    if (!open_machine(&m, &c))
        return;
    prompt(m.first, 9, 7);
    read_on(m.first, &plain);
    close_machine(&m);
    memcpy(stop, plain.text + plain.length / 2, 3);
    stop[3] = 0;
    c.sequences = 2;
    for (i = 0; i < SPECDEC_STOP_STRINGS; i++) {
        snprintf(other[i], sizeof other[i], "\1%d", i);
        c.settings.stop[i] = i == SPECDEC_STOP_STRINGS - 1 ? stop : other[i];
    }
    if (!open_machine(&m, &c))
        return;
    memset(stop, 'x', 3);
    memset(other, 'x', sizeof other);
    CHECK_EQUAL_INT(specdec_open(m.first, &second), SPECDEC_OK);
    for (n = 0; n < 3; n++) {
        specdec *t = n == 1 ? second : m.first;

        if (n == 2) { /* what is set, set once more in another order */
            specdec_get_settings(t, &settings);
            for (i = 0; i < SPECDEC_STOP_STRINGS / 2; i++) {
                const char *moving = settings.stop[i];

                settings.stop[i] = settings.stop[SPECDEC_STOP_STRINGS - 1 - i];
                settings.stop[SPECDEC_STOP_STRINGS - 1 - i] = moving;
            }
            CHECK_EQUAL_INT(specdec_rewind(t, 0), SPECDEC_OK);
            CHECK_EQUAL_INT(specdec_set(t, &settings), SPECDEC_OK);
            memset(&settings, 0, sizeof settings);
        }
        prompt(t, 9, 7);
        a.length = 0;
        read_on(t, &a);
        CHECK_EQUAL_INT(specdec_stopped(t, &i), SPECDEC_STOP_STRING);
        CHECK_EQUAL_INT(i, n == 2 ? 0 : SPECDEC_STOP_STRINGS - 1);
        CHECK(a.length < plain.length && memcmp(a.text, plain.text, a.length) == 0);
    }
    TEST("a fork has copies of its own");
    CHECK_EQUAL_INT(specdec_rewind(m.first, 0), SPECDEC_OK);
    prompt(m.first, 9, 7);
    specdec_close(second);
    CHECK_EQUAL_INT(specdec_fork(m.first, &second), SPECDEC_OK);
    memset(&settings, 0, sizeof settings);
    CHECK_EQUAL_INT(specdec_set(m.first, &settings), SPECDEC_OK);
    n = (int)a.length;
    a.length = 0;
    read_on(second, &a);
    CHECK_EQUAL_INT(specdec_stopped(second, NULL), SPECDEC_STOP_STRING);
    CHECK_EQUAL_INT((int)a.length, n);
    close_machine(&m);
}

/* --- cut answers ------------------------------------------------------------------------------------------------------ */

/* What the tokens of an answer are as text. */
static size_t text_of(specdec *t, int from, char *out)
{
    specdec__text_decoder stream;
    const int32_t *tokens;
    size_t length = 0, more;
    int count, i;

    specdec_tokens(t, &tokens, &count);
    specdec__text_decoder_begin(&stream, &t->model->vocab, tokens[from - 1], t->settings.show_special);
    for (i = from; i < count; i++, length += more)
        CHECK_EQUAL_INT(specdec__text_decoder_push(&stream, &t->model->vocab, tokens[i], (unsigned char *)out + length,
                                                   MOST_TEXT - length, &more, NULL),
                        SPECDEC_OK);
    return length + specdec__text_decoder_end(&stream, (unsigned char *)out + length);
}

/* Both go on alike behind the same words. */
static void same_continuations(specdec *t, specdec *other)
{
    static answer a, b;
    const int32_t *tokens;
    int count;

    specdec_tokens(t, &tokens, &count);
    CHECK_EQUAL_INT(specdec_rewind(other, 0), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_prompt_tokens(other, tokens, count), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_prompt(t, " then", 5), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_prompt(other, " then", 5), SPECDEC_OK);
    a.length = b.length = 0;
    read_on(t, &a);
    read_on(other, &b);
    CHECK(a.length == b.length && memcmp(a.text, b.text, a.length) == 0);
}

#define STORIES "examples/models/tiny-stories-target-q8_0.gguf" /* tokens of several letters: stop strings begin inside */

static void test_cut(int stories)
{
    static answer plain, a;
    static char seen[MOST_TEXT], restored[MOST_TEXT];
    int seed, from, cuts = 0, inside = 0;

    TEST("an answer that a stop string ended is cut to what was handed out");
    for (seed = 0; seed < (quick ? 40 : stories ? 60 : 400); seed++) {
        specdec_config c = config_of(0), other;
        machine m, fresh;
        char stop[16];
        size_t length, size = 1 + (size_t)seed % 9;
        const int32_t *tokens;
        int count, before, which;

        c.settings.sampling.seed = (uint64_t)seed;
        c.settings.show_special = seed % 5 == 0;
        if (stories) {
            memset(&c.target, 0, sizeof c.target);
            c.target.path = STORIES;
            c.weights_in_place = 1;
        }
        if (!open_machine(&m, &c))
            return;
        prompt(m.first, 9, (uint64_t)seed);
        plain.length = 0;
        read_on(m.first, &plain);
        close_machine(&m);
        if (plain.length < 40 || memchr(plain.text, 0, plain.length))
            continue;
        memcpy(stop, plain.text + 5 + seed % 20, size);
        stop[size] = 0;
        other = c;
        if (seed % 2)
            c.drafting = SPECDEC_DRAFT_AUTO;
        c.settings.stop[0] = "never to be seen";
        c.settings.stop[1] = stop;
        if (!open_machine(&m, &c) || !open_machine(&fresh, &other))
            return;
        prompt(m.first, 9, (uint64_t)seed);
        specdec_tokens(m.first, NULL, &from);
        CHECK_EQUAL_INT(specdec_cut_stop(m.first), SPECDEC_OK); /* nothing to cut */
        a.length = 0;
        read_on(m.first, &a);
        CHECK_EQUAL_INT(specdec_stopped(m.first, &which), SPECDEC_STOP_STRING);
        specdec_tokens(m.first, NULL, &before);
        if (seed % 3 == 0) { /* saved, and cut elsewhere */
            size_t bytes;
            void *data;

            CHECK_EQUAL_INT(specdec_save(m.first, NULL, 0, &bytes), SPECDEC_OK);
            data = malloc(bytes);
            CHECK_EQUAL_INT(specdec_save(m.first, data, bytes, &bytes), SPECDEC_OK);
            CHECK_EQUAL_INT(specdec_rewind(m.first, 0), SPECDEC_OK);
            CHECK_EQUAL_INT(specdec_load(m.first, data, bytes), SPECDEC_OK);
            free(data);
        }
        CHECK_EQUAL_INT(specdec_cut_stop(m.first), SPECDEC_OK);
        specdec_tokens(m.first, &tokens, &count);
        length = text_of(m.first, from, seen);
        CHECK(length == a.length && memcmp(seen, a.text, length) == 0);
        CHECK(count >= from && count <= before + 3);
        CHECK_EQUAL_INT(specdec_stopped(m.first, &which), SPECDEC_STOP_STRING);
        CHECK_EQUAL_INT(which, 1);
        CHECK_EQUAL_INT(specdec_join_forks(m.first, restored, sizeof restored, &length), SPECDEC_OK);
        CHECK(length == a.length && memcmp(restored, a.text, length) == 0);
        cuts += count < before;
        inside += stop[0] != ' ' &&
                  specdec__vocab_token_text(&m.first->model->vocab, (uint32_t)tokens[count - 1]).size == 1;
        before = count;
        CHECK_EQUAL_INT(specdec_cut_stop(m.first), SPECDEC_OK); /* once */
        specdec_tokens(m.first, NULL, &count);
        CHECK_EQUAL_INT(count, before);
        c.settings.stop[1] = NULL;
        CHECK_EQUAL_INT(specdec_set(m.first, &c.settings), SPECDEC_OK);
        same_continuations(m.first, fresh.first);
        close_machine(&m);
        close_machine(&fresh);
    }
    printf("  %d answers lost tokens, %d end in one letter now\n", cuts, inside);
    CHECK(cuts > 20);
    CHECK(inside > 1);
}

/* A chat goes on from what its user has seen: the same tokens as behind an answer that was cut by hand. */
static void test_chat_cuts(void)
{
    static const specdec_message first = {SPECDEC_USER, "Once", 4, 0}, second = {SPECDEC_USER, "then", 4, 0};
    static answer plain, a;
    char stop[8];
    int seed, cut = 0;

    TEST("a chat goes on behind what was handed out of an answer that a stop string ended");
    for (seed = 0; seed < 12; seed++) {
        specdec_config c = config_of(0);
        const int32_t *these, *those;
        int n[2], before;
        machine m, other;

        c.chat_format = "llama2";
        c.settings.sampling.seed = (uint64_t)seed;
        c.settings.max_tokens = 30;
        if (!open_machine(&m, &c))
            return;
        CHECK_EQUAL_INT(specdec_chat(m.first, &first, 1), SPECDEC_OK);
        plain.length = 0;
        read_on(m.first, &plain);
        close_machine(&m);
        if (plain.length < 12 || memchr(plain.text, 0, plain.length))
            continue;
        memcpy(stop, plain.text + 5, 5);
        stop[5] = 0;
        c.settings.stop[0] = stop;
        if (!open_machine(&m, &c) || !open_machine(&other, &c))
            return;
        a.length = 0;
        CHECK_EQUAL_INT(specdec_chat(m.first, &first, 1), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_chat(other.first, &first, 1), SPECDEC_OK);
        read_on(m.first, &a);
        read_on(other.first, &a);
        specdec_tokens(m.first, NULL, &before);
        CHECK_EQUAL_INT(specdec_cut_stop(other.first), SPECDEC_OK);
        specdec_tokens(other.first, NULL, &n[1]);
        cut += n[1] < before;
        CHECK_EQUAL_INT(specdec_chat(m.first, &second, 1), SPECDEC_OK);
        CHECK_EQUAL_INT(specdec_chat(other.first, &second, 1), SPECDEC_OK);
        specdec_tokens(m.first, &these, &n[0]);
        specdec_tokens(other.first, &those, &n[1]);
        CHECK(n[0] == n[1] && memcmp(these, those, (size_t)n[0] * sizeof *these) == 0);
        close_machine(&m);
        close_machine(&other);
    }
    CHECK(cut > 3);
}

static void test_cut_refused(void)
{
    specdec_config c = config_of(0);
    machine m;

    TEST("a closed text cannot be cut");
    if (!open_machine(&m, &c))
        return;
    specdec_close(m.first);
    CHECK_EQUAL_INT(specdec_cut_stop(m.first), SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec_cut_stop(NULL), SPECDEC_ERROR_ARGUMENT);
    close_machine(&m);
}

/* --- saved ------------------------------------------------------------------------------------------------------------ */

static void test_saved(void)
{
    specdec_config c = config_of(0);
    specdec_settings settings;
    machine m, other;
    size_t bytes;
    void *data;
    int i;

    TEST("end tokens and stop strings are saved with a text, and are the loaded text's");
    for (i = 0; i < 5; i++)
        c.settings.end_tokens[i] = 100 * i;
    c.settings.end_token_count = 5;
    c.settings.stop[0] = "first";
    c.settings.stop[1] = "</s>";
    if (!open_machine(&m, &c))
        return;
    c = config_of(0);
    c.settings.stop[0] = "another";
    c.settings.end_tokens[0] = 7;
    c.settings.end_token_count = 1;
    if (!open_machine(&other, &c))
        return;
    prompt(m.first, 9, 1);
    CHECK_EQUAL_INT(specdec_save(m.first, NULL, 0, &bytes), SPECDEC_OK);
    data = malloc(bytes);
    CHECK_EQUAL_INT(specdec_save(m.first, data, bytes, &bytes), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec_load(other.first, data, bytes), SPECDEC_OK);
    free(data);
    specdec_get_settings(other.first, &settings);
    CHECK_EQUAL_INT(settings.end_token_count, 5);
    CHECK(settings.end_tokens[4] == 400 && settings.end_tokens[1] == 100);
    CHECK(settings.stop[0] && strcmp(settings.stop[0], "first") == 0);
    CHECK(settings.stop[1] && strcmp(settings.stop[1], "</s>") == 0 && !settings.stop[2]);
    close_machine(&m);
    close_machine(&other);
}

int main(void)
{
    quick = getenv("SPECDEC_QUICK") != NULL;
    model = random_model(0, 0, 0);
    draft = random_model(0, 0.25f, 0);
    test_end_tokens();
    test_control_tokens();
    test_copies();
    test_cut(0);
    if (access(STORIES, R_OK) == 0)
        test_cut(1);
    else
        SKIP(STORIES);
    test_chat_cuts();
    test_cut_refused();
    test_saved();
    free(model.data);
    free(draft.data);
    return check_report("test_ends");
}
