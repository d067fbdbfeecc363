/* test_text.c - promises of >>text: tokenizers equal those of llama.cpp, no text is lost, nothing breaks them. */
#define SPECDEC_NO_SIMD /* no kernels are run: builds in a third of the time */
#include "../src/base/os.h"
#include "../src/text/chat.h"
#include "../src/text/decode.h"
#include "../src/text/load.h"
#include "../src/text/stop.h"
#include "../src/text/tokenize.h"
#include "check.h"

#define SEPARATOR "\n__ggml_vocab_test__\n"
#define SPACE "\xe2\x96\x81"

/* --- small vocabularies, written as GGUF files in memory --- */

typedef struct recipe {
    const char *model, *pre;
    const char *const *tokens; /* behind the 256 byte tokens */
    const int *types;
    int count;
    const char *const *merges;
    int merge_count;
    int token_count, score_count, type_count; /* what the arrays hold: -1 for all, -2 to leave the key out */
    int score_type;
    const char *id_key;
    int64_t id;
    int no_space_prefix;
    const char *name; /* of the model */
} recipe;

typedef struct builder {
    unsigned char data[1 << 17];
    size_t size;
    unsigned pairs;
} builder;

static void put_u32(builder *b, uint32_t value)
{
    specdec__store_u32(b->data + b->size, value);
    b->size += 4;
}

static void put_u64(builder *b, uint64_t value)
{
    put_u32(b, (uint32_t)value);
    put_u32(b, (uint32_t)(value >> 32));
}

static void put_string(builder *b, const char *text)
{
    put_u64(b, strlen(text));
    memcpy(b->data + b->size, text, strlen(text));
    b->size += strlen(text);
}

static void put_key(builder *b, const char *key, uint32_t type)
{
    put_string(b, key);
    put_u32(b, type);
    b->pairs++;
}

static void put_array(builder *b, const char *key, uint32_t type, int count)
{
    put_key(b, key, SPECDEC_GGUF_ARRAY);
    put_u32(b, type);
    put_u64(b, (uint64_t)count);
}

/* The text of token id: SPM <unk> <s> </s> <0x00>..., BPE the 256 characters; then the recipe's. */
static const char *token_text(const recipe *r, int id, char buffer[16])
{
    static const char *const first[] = {"<unk>", "<s>", "</s>"};
    int spm = strcmp(r->model, "llama") == 0, bytes = spm ? 3 : 0;

    if (id >= bytes + 256)
        return r->tokens[id - bytes - 256];
    if (spm && id < 3)
        return first[id];
    if (spm) {
        snprintf(buffer, 16, "<0x%02X>", (unsigned)(id - 3));
    } else {
        uint32_t code = specdec__text_byte_to_code((unsigned)id);
        size_t at = 0;
        if (code >= 0x80)
            buffer[at++] = (char)(0xc0 | code >> 6);
        buffer[at++] = (char)(code < 0x80 ? code : 0x80 | (code & 63));
        buffer[at] = 0;
    }
    return buffer;
}

static void build(builder *b, const recipe *r)
{
    int spm = strcmp(r->model, "llama") == 0, extra = spm ? 259 : 256, all = extra + r->count, i;
    char buffer[16];

    memset(b, 0, sizeof *b);
    memcpy(b->data, "GGUF\3\0\0\0", 8);
    b->size = 24;
    put_key(b, "tokenizer.ggml.model", SPECDEC_GGUF_STRING);
    put_string(b, r->model);
    if (r->pre) {
        put_key(b, "tokenizer.ggml.pre", SPECDEC_GGUF_STRING);
        put_string(b, r->pre);
    }
    if (r->token_count != -2) {
        int count = r->token_count < 0 ? all : r->token_count;
        put_array(b, "tokenizer.ggml.tokens", SPECDEC_GGUF_STRING, count);
        for (i = 0; i < count; i++)
            put_string(b, token_text(r, i, buffer));
    }
    if (r->score_count != -2) {
        int count = r->score_count < 0 ? all : r->score_count;
        put_array(b, "tokenizer.ggml.scores", (uint32_t)r->score_type, count);
        for (i = 0; i < count; i++)
            put_u32(b, specdec__bits_from_float(i < extra ? 0.0f : (float)(12 - (i - extra))));
    }
    if (r->type_count != -2) {
        int count = r->type_count < 0 ? all : r->type_count;
        put_array(b, "tokenizer.ggml.token_type", SPECDEC_GGUF_I32, count);
        for (i = 0; i < count; i++)
            put_u32(b, (uint32_t)(i >= extra ? r->types[i - extra] : !spm ? 1 : i == 0 ? 2 : i < 3 ? 3 : 6));
    }
    if (r->merges) {
        put_array(b, "tokenizer.ggml.merges", SPECDEC_GGUF_STRING, r->merge_count);
        for (i = 0; i < r->merge_count; i++)
            put_string(b, r->merges[i]);
    }
    if (r->id_key) {
        put_key(b, r->id_key, SPECDEC_GGUF_I64);
        put_u64(b, (uint64_t)r->id);
    }
    if (r->no_space_prefix) {
        put_key(b, "tokenizer.ggml.add_space_prefix", SPECDEC_GGUF_BOOL);
        b->data[b->size++] = 0;
    }
    if (r->name) {
        put_key(b, "general.name", SPECDEC_GGUF_STRING);
        put_string(b, r->name);
    }
    specdec__store_u32(b->data + 16, b->pairs);
}

static const char *const spm_tokens[] = {SPACE, "a", "b", "c", "ab", "abc", "bc", SPACE "a", SPACE SPACE, "\xc3\xa9",
                                         "aa", "aaaa",
                                         "<|im_end|>", "<tool>", "<tool>x", "a"};
static const int spm_types[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 4, 3, 1};
static const recipe spm_recipe = {"llama", NULL, spm_tokens, spm_types, 16, NULL, 0, -1, -1, -1, SPECDEC_GGUF_F32,
                                  NULL, 0, 0, NULL};

static const char *const uncut_tokens[] = {SPACE, "a", "b", "c", "a" SPACE, "ab", SPACE "b", "b" SPACE "b", SPACE SPACE,
                                           " "};
static const int uncut_types[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 5};
static const recipe uncut_recipe = {"llama", NULL, uncut_tokens, uncut_types, 10, NULL, 0, -1, -1, -1,
                                    SPECDEC_GGUF_F32, NULL, 0, 0, NULL};

static const char *const bpe_tokens[] = {"ab", "abc", "bc", "\304\240a", "\xc4\xa0\xc4\xa0", "aa", "<|endoftext|>",
                                         "<tool>",
                                         "<tool>x", "[PAD1]", "whole"};
static const int bpe_types[] = {1, 1, 1, 1, 1, 1, 3, 4, 3, 4, 1};
static const char *const bpe_merges[] = {"b c", "a b", "a bc", "\xc4\xa0 a", "\xc4\xa0 \xc4\xa0", "a a", "nospace",
                                         "x nothing",
                                         "a b", "", " "};
static const recipe bpe_recipe = {"gpt2", "gpt-2", bpe_tokens, bpe_types, 11, bpe_merges, 11, -1, -2, -1,
                                  SPECDEC_GGUF_F32, NULL, 0, 0, NULL};

/* --- a vocabulary and its memory --- */

typedef struct subject {
    specdec__gguf gguf;
    specdec__vocab v;
    void *memory;
    size_t bytes;
    specdec_error error;
} subject;

/* Counts, allocates exactly that (64-aligned), builds. The file must outlive the subject. */
static specdec_result open_bytes(subject *s, const unsigned char *data, size_t size)
{
    specdec__arena arena;
    specdec__bytes file;
    specdec_result counted, built;

    memset(s, 0, sizeof *s);
    memset(&arena, 0, sizeof arena);
    file.data = data;
    file.size = size;
    counted = specdec__gguf_open(&s->gguf, file, &s->error);
    if (!counted)
        counted = specdec__vocab_init(&s->v, &s->gguf, &arena, &s->error);
    if (counted)
        return counted;
    s->bytes = arena.used;
    s->memory = malloc(s->bytes + 64);
    arena.base = (unsigned char *)s->memory + (64 - (uintptr_t)s->memory % 64) % 64;
    arena.size = s->bytes;
    arena.used = 0;
    built = specdec__vocab_init(&s->v, &s->gguf, &arena, &s->error);
    CHECK(!built || strstr(s->error.text, "collide") != NULL); /* which is not known before there is memory */
    CHECK(arena.used == s->bytes);
    return built;
}

static void close_subject(subject *s)
{
    free(s->memory);
    s->memory = NULL;
}

static specdec_result open_recipe(subject *s, builder *b, const recipe *r)
{
    build(b, r);
    return open_bytes(s, b->data, b->size);
}

/* Tokenizes with exactly the scratch that is promised to be enough. Returns the count; the caller frees *tokens. */
static size_t tokenize(const subject *s, const char *text, size_t length, int flags, int32_t **tokens)
{
    size_t scratch_size = specdec__tokenize_scratch_bytes(&s->v, length), count = 0, capacity = 4 * length + 8;
    void *scratch = malloc(scratch_size);

    *tokens = (int32_t *)malloc(capacity * sizeof **tokens);
    CHECK_EQUAL_INT(specdec__tokenize(&s->v, text, length, flags, NULL, *tokens, capacity, &count, scratch, scratch_size,
                                      NULL), SPECDEC_OK);
    CHECK(count <= capacity);
    free(scratch);
    return count;
}

/* Are these the tokens of a text? ids: count numbers. */
static int gives(const subject *s, const char *text, int flags, const int *ids, size_t count)
{
    int32_t *tokens;
    size_t i, got = tokenize(s, text, strlen(text), flags, &tokens);
    int same = got == count;

    for (i = 0; i < count && same; i++)
        same = tokens[i] == ids[i];
    if (!same) {
        fprintf(stderr, "'%s' gave", text);
        for (i = 0; i < got; i++)
            fprintf(stderr, " %d", (int)tokens[i]);
        fprintf(stderr, "\n");
    }
    free(tokens);
    return same;
}

/* Text of tokens through a stream. Returns its length; the caller frees *text. */
static size_t detokenize(const subject *s, const int32_t *tokens, size_t count, int32_t previous, int show, char **text)
{
    specdec__text_decoder stream;
    size_t room = s->v.longest_bytes + 3, used = 0, i;
    unsigned char *out = (unsigned char *)malloc((count + 1) * room);

    specdec__text_decoder_begin(&stream, &s->v, previous, show);
    for (i = 0; i < count; i++) {
        size_t written;
        CHECK_EQUAL_INT(specdec__text_decoder_push(&stream, &s->v, tokens[i], out + used, room, &written, NULL),
                        SPECDEC_OK);
        used += written;
    }
    used += specdec__text_decoder_end(&stream, out + used);
    *text = (char *)out;
    return used;
}

static uint32_t random_state = 1;

static unsigned random_below(unsigned n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % n;
}

/* Text from a pool that meets many rules, or any bytes. */
static size_t random_text(char *out, size_t pieces, int any_bytes)
{
    static const char *const pool[] = {"a", "b", "c", "a", "ab", " ", " ", "  ", "\n", "\r\n", "\t", "'s", "'LL", "1",
                                       "23", "\xc3\xa9",
                                       "\xe4\xb8\xad", "\xf0\x9f\x98\x80", "!", "..", "\xc2\xa0", "The", "ing",
                                       "\xc2\xbd", "<", "tool>", "x"};
    size_t used = 0;

    while (pieces--) {
        if (any_bytes) {
            out[used++] = (char)(random_below(3) ? random_below(256) : 'a' + random_below(3));
        } else {
            const char *piece = pool[random_below(SPECDEC__COUNT(pool))];
            memcpy(out + used, piece, strlen(piece));
            used += strlen(piece);
        }
    }
    return used;
}

/* --- another tokenizer: the definition, slow and plain --- */

/* Merges [0, n) by looking through all pairs each time. starts: n + 1 places. Returns the number of symbols. */
static size_t slow_merge(const specdec__vocab *v, const specdec__text_stretch *run, size_t *starts, int32_t *ids)
{
    size_t n = 0, at = 0, i, best;

    while (at < run->length) {
        size_t size = 1;
        if (v->model != SPECDEC__VOCAB_BPE && at >= run->prefix) {
            int sequence = specdec__utf8_sequence_bytes(run->text + at - run->prefix, run->length - at);
            size = sequence > 0 ? (size_t)sequence : 1;
        }
        starts[n] = at;
        ids[n++] = specdec__vocab_find_token_of_stretch(v, run, at, size);
        at += size;
    }
    starts[n] = at;
    for (;;) {
        double best_value = 0;
        int32_t best_id = -1;

        for (i = 0, best = n; i + 1 < n; i++) {
            int32_t id = specdec__vocab_find_token_of_stretch(v, run, starts[i], starts[i + 2] - starts[i]);
            double value;
            if (id < 0)
                continue;
            if (v->model != SPECDEC__VOCAB_SPM) {
                uint32_t rank = ids[i] < 0 || ids[i + 1] < 0
                                    ? UINT32_MAX
                                    : specdec__vocab_merge_rank(v, (uint32_t)ids[i], (uint32_t)ids[i + 1]);
                if (rank == UINT32_MAX)
                    continue;
                value = -(double)rank;
            } else {
                value = (double)specdec__load_f32(v->scores + (size_t)id * 4);
            }
            if (best == n || value > best_value) {
                best = i;
                best_value = value;
                best_id = id;
            }
        }
        if (best == n)
            return n;
        ids[best] = best_id;
        for (i = best + 1; i + 1 < n; i++)
            ids[i] = ids[i + 1];
        for (i = best + 1; i < n; i++)
            starts[i] = starts[i + 1];
        n--;
    }
}

/* Is a run a token that is never built from merges? */
static int is_whole(const specdec__vocab *v, const specdec__text_stretch *run)
{
    const int kind = v->pre_tokenizer ? v->pre_tokenizer->whole_words : SPECDEC__WORDS_MERGED;

    return kind && (kind == SPECDEC__WORDS_WHOLE || run->text[0] == '\n') &&
           specdec__vocab_find_token_of_stretch(v, run, 0, run->length) >= 0;
}

/* Compares one text without special tokens; SPM is merged whole here, and words of characters, never cut at spaces. */
static int agrees_with_slow(const subject *s, const char *text, size_t length)
{
    const specdec__vocab *v = &s->v;
    size_t *starts = (size_t *)malloc((length + 2) * sizeof *starts), at = 0, same = 1, count, done = 0;
    int32_t *ids = (int32_t *)malloc((length + 2) * sizeof *ids), *tokens;

    count = tokenize(s, text, length, 0, &tokens);
    while (at < length && same) {
        specdec__text_stretch run;
        size_t n, i;

        run.text = (const unsigned char *)text + at;
        run.prefix = v->model == SPECDEC__VOCAB_SPM && v->add_space_prefix;
        run.length = (v->model == SPECDEC__VOCAB_SPM ? length : specdec__pre_tokenizer_first_word(v->pre_tokenizer, run.text,
                                                                                                  length - at)) + run.prefix;
        if (is_whole(v, &run)) {
            same = done < count && tokens[done++] == specdec__vocab_find_token_of_stretch(v, &run, 0, run.length);
            at += run.length;
            continue;
        }
        n = slow_merge(v, &run, starts, ids);
        for (i = 0; i < n && same; i++) {
            size_t j;
            if (ids[i] >= 0) {
                same = done < count && tokens[done++] == ids[i];
                continue;
            }
            for (j = starts[i]; j < starts[i + 1] && same; j++) {
                int32_t id = v->byte_token[specdec__text_stretch_byte(&run, j)];
                same = id < 0 || (done < count && tokens[done++] == id);
            }
        }
        at += run.length - run.prefix;
    }
    same = same && done == count;
    free(starts);
    free(ids);
    free(tokens);
    return (int)same;
}

/* --- promises about files kept beside the checkout --- */

static void run_cases(const subject *s, const char *path)
{
    char name[1200];
    size_t size, cases = 0;
    char *in, *out, *at, *line;

    snprintf(name, sizeof name, "%s.inp", path);
    in = (char *)check_read_file(name, &size);
    snprintf(name, sizeof name, "%s.out", path);
    out = (char *)check_read_file(name, &size);
    if (!in || !out) {
        SKIP("no .inp and .out");
        free(in);
        free(out);
        return;
    }
    for (at = in, line = out; *at; cases++) {
        char *next = strstr(at, SEPARATOR), *end;
        size_t length = next ? (size_t)(next - at) : strlen(at), count, i;
        int32_t *tokens;
        int same = 1;

        count = tokenize(s, at, length, 0, &tokens);
        for (i = 0; i < count; i++, line = end)
            same = strtol(line, &end, 10) == tokens[i] && end != line && memchr(line, '\n',
                                                                                (size_t)(end - line)) == NULL && same;
        CHECK(same && *line == '\n');
        if (!same || *line != '\n')
            fprintf(stderr, "%s: case %zu differs\n", path, cases);
        line = strchr(line, '\n') ? strchr(line, '\n') + 1 : line;
        free(tokens);
        at = next ? next + strlen(SEPARATOR) : at + length;
    }
    printf("%s: %zu cases\n", path, cases);
    free(in);
    free(out);
}

/* StarCoder's vocabulary has no tokens for bytes that no valid text has; that of DeepSeek Coder has characters for them. */
static int has_all_bytes(const subject *s)
{
    int byte;

    for (byte = 0; byte < 256; byte++)
        if (s->v.byte_token[byte] < 0 ||
            specdec__vocab_token_type(&s->v, (uint32_t)s->v.byte_token[byte]) == SPECDEC__TOKEN_USER_DEFINED)
            return 0;
    return 1;
}

static void check_round_trip(const subject *s)
{
    char text[2048], *back;
    int i, any_bytes = has_all_bytes(s);

    for (i = 0; i < 400; i++) {
        size_t length = random_text(text, random_below(60), any_bytes && i % 2), got;
        int32_t *tokens;
        size_t count = tokenize(s, text, length, i % 4 < 2 ? SPECDEC_TOKENIZE_BEGIN : 0, &tokens);

        got = detokenize(s, tokens, count, -1, 0, &back);
        CHECK(got == length && memcmp(back, text, length) == 0);
        free(tokens);
        free(back);
    }
}

static void check_long_inputs(const subject *s, const char *name)
{
    static const char *const units[] = {"a", " ", "\n", "ab", "1", "\xe4\xb8\xad", "\xff", "<|",
                                        "the quick brown fox, "};
    size_t length = 100000, u;
    char *text = (char *)malloc(length + 32);
    double slowest = 0;

    for (u = 0; u < SPECDEC__COUNT(units); u++) {
        size_t used = 0, kept = strcmp(units[u], "\xff") != 0 || has_all_bytes(s);
        double seconds = specdec__os_monotonic_seconds();
        int32_t *tokens;
        size_t count;
        char *back;

        for (; used < length; used += strlen(units[u]))
            memcpy(text + used, units[u], strlen(units[u]));
        count = tokenize(s, text, used, SPECDEC_TOKENIZE_SPECIAL, &tokens);
        seconds = specdec__os_monotonic_seconds() - seconds;
        slowest = seconds > slowest ? seconds : slowest;
        CHECK((detokenize(s, tokens, count, -1, 0, &back) == used && memcmp(back, text, used) == 0) || !kept);
        free(back);
        free(tokens);
    }
    printf("%s: 100 KB of one unit: slowest %.3f s\n", name, slowest);
    CHECK(slowest < 5 || getenv("TEST_WRAPPER")); /* an emulator may take longer */
    free(text);
}

/* Renames a key of a file so that nobody finds it. */
static void hide_key(unsigned char *data, size_t size, const char *key)
{
    const size_t length = strlen(key);
    size_t at;

    for (at = 0; at + length <= size && memcmp(data + at, key, length) != 0; at++)
        ;
    CHECK(at + length <= size);
    if (at + length <= size)
        data[at + length - 1] = '?';
}

/* The same file without tokenizer.ggml.pre: its vocabulary is recognised. */
static void check_recognised(unsigned char *data, size_t size, const subject *with)
{
    const specdec__pre_tokenizer *words = with->v.pre_tokenizer;
    subject s;

    hide_key(data, size, "tokenizer.ggml.pre");
    CHECK_EQUAL_INT(open_bytes(&s, data, size), SPECDEC_OK);
    CHECK(s.memory && s.v.pre_tokenizer == words && s.v.add_bos == with->v.add_bos && s.v.pre_tokenizer_source == 0);
    close_subject(&s);
}

static void test_shared(void)
{
    static const char *const files[] = {"vocab/ggml-vocab-gpt-2.gguf", "vocab/ggml-vocab-llama-bpe.gguf",
                                        "vocab/ggml-vocab-llama-spm.gguf", "vocab/ggml-vocab-qwen2.gguf",
                                        "vocab/ggml-vocab-refact.gguf", "vocab/ggml-vocab-starcoder.gguf",
                                        "vocab/ggml-vocab-deepseek-coder.gguf", "vocab/ggml-vocab-qwen35.gguf",
                                        "vocab/ggml-vocab-gemma-4.gguf"};
    char path[1024], text[1024];
    size_t i;
    int j;

    for (i = 0; i < SPECDEC__COUNT(files); i++) {
        size_t size;
        unsigned char *data;
        subject s;

        TEST("tokens equal those of llama.cpp");
        data = check_read_file(check_shared(path, sizeof path, files[i]), &size);
        if (!data) {
            SKIP(path);
            continue;
        }
        CHECK_EQUAL_INT(open_bytes(&s, data, size), SPECDEC_OK);
        if (s.memory) {
            printf("%s: %u tokens, %zu bytes of indexes\n", path, s.v.count, s.bytes);
            CHECK(s.bytes < (s.v.count > 200000 ? 16u : 8u) << 20);
            run_cases(&s, path);
            TEST("no text is lost: detokenize(tokenize(x)) == x");
            check_round_trip(&s);
            TEST("merging gives what its definition gives");
            for (j = 0; j < 300; j++)
                CHECK(agrees_with_slow(&s, text, random_text(text, random_below(40), j % 3 == 0)));
            TEST("long inputs take no long time");
            check_long_inputs(&s, path);
            TEST("a vocabulary of a well-known model is recognised without tokenizer.ggml.pre");
            if (s.v.model == SPECDEC__VOCAB_BPE && !strstr(path, "qwen35")) /* which has the vocabulary of Qwen 2 */
                check_recognised(data, size, &s);
        }
        close_subject(&s);
        free(data);
    }
}

/* --- promises about small vocabularies --- */

#define GIVES(s, text, flags, ...) \
    do { \
        static const int expected[] = {__VA_ARGS__}; \
        CHECK(gives((s), (text), (flags), expected + 1, SPECDEC__COUNT(expected) - 1)); \
    } while (0)

static void test_small_spm(void)
{
    static const char *const gemma_tokens[] = {SPACE, "a", "\n\n", "\n\n\n", "  ", "<start_of_turn>"};
    static const int gemma_types[] = {1, 1, 4, 4, 4, 3};
    static const char *const phi_names[] = {"Phi3", "microsoft/phi-3-mini", "Phi 3.5 Mini Instruct"};
    static const char *const other_names[] = {"Phi 4 Mini Instruct", "phi", "Phi-", "sphinx 3", ""};
    static builder b;
    recipe r = spm_recipe;
    subject s;
    size_t i;

    TEST("SPM merges by score, falls back to bytes, puts a space in front");
    CHECK_EQUAL_INT(open_recipe(&s, &b, &r), SPECDEC_OK);
    GIVES(&s, "", SPECDEC_TOKENIZE_BEGIN, 0, 1);
    GIVES(&s, "a", 0, 0, 259 + 7);
    GIVES(&s, "a", SPECDEC_TOKENIZE_BEGIN, 0, 1, 259 + 7);
    GIVES(&s, "abc", 0, 0, 259, 259 + 5);
    GIVES(&s, " a", 0, 0, 259, 259 + 7);
    GIVES(&s, "  a", 0, 0, 259 + 8, 259 + 7);
    GIVES(&s, "\xc3\xa9\xc3", 0, 0, 259, 259 + 9, 3 + 0xc3);
    GIVES(&s, "z", 0, 0, 259, 3 + 'z');
    TEST("control tokens are parsed on demand, user-defined ones always, the longest first");
    GIVES(&s, "c<|im_end|>c", SPECDEC_TOKENIZE_SPECIAL, 0, 259, 262, 271, 259, 262);
    GIVES(&s, "<tool>x", SPECDEC_TOKENIZE_SPECIAL, 0, 273);
    GIVES(&s, "<tool>c", 0, 0, 272, 259, 262);
    GIVES(&s, "c<s>", 0, 0, 259, 262, 3 + '<', 3 + 's', 3 + '>');
    GIVES(&s, "c<s>", SPECDEC_TOKENIZE_SPECIAL, 0, 259, 262, 1);
    TEST("of equal texts the first token wins");
    CHECK_EQUAL_INT(s.v.count, 259 + 16);
    GIVES(&s, "ba", 0, 0, 259, 261, 260);
    TEST("end tokens: those the file names and the well-known ones");
    CHECK(specdec__vocab_is_end_token(&s.v, 2) && specdec__vocab_is_end_token(&s.v, 271) &&
          !specdec__vocab_is_end_token(&s.v, 1));
    CHECK(!specdec__vocab_is_end_token(&s.v, -1) && !specdec__vocab_is_end_token(&s.v, 1 << 30));
    close_subject(&s);

    TEST("add_space_prefix false is honoured");
    r.no_space_prefix = 1;
    CHECK_EQUAL_INT(open_recipe(&s, &b, &r), SPECDEC_OK);
    GIVES(&s, "abc", 0, 0, 264);
    close_subject(&s);

    TEST("Gemma: white space tokens are user-defined and found as they are written, no space in front");
    r.tokens = gemma_tokens;
    r.types = gemma_types;
    r.count = SPECDEC__COUNT(gemma_tokens);
    CHECK_EQUAL_INT(open_recipe(&s, &b, &r), SPECDEC_OK);
    GIVES(&s, "a\n\na  a a", 0, 0, 260, 261, 260, 263, 260, 259, 260);
    GIVES(&s, "\n<start_of_turn>\n\n\nz", SPECDEC_TOKENIZE_SPECIAL, 0, 3 + '\n', 264, 262, 3 + 'z');
    close_subject(&s);

    TEST("Phi-3 drops white space behind special tokens, but not behind <s>; other models keep it");
    r = spm_recipe;
    for (i = 0; i < SPECDEC__COUNT(phi_names); i++) {
        r.name = phi_names[i];
        CHECK_EQUAL_INT(open_recipe(&s, &b, &r), SPECDEC_OK);
        GIVES(&s, "<|im_end|>\n c<|im_end|>\n", SPECDEC_TOKENIZE_SPECIAL, 0, 271, 259, 262, 271);
        GIVES(&s, "<s>\nc <tool>\n<tool> ", SPECDEC_TOKENIZE_SPECIAL, 0, 1, 259, 3 + '\n', 262, 259, 272, 272);
        close_subject(&s);
    }
    for (i = 0; i < SPECDEC__COUNT(other_names); i++) {
        r.name = other_names[i];
        CHECK_EQUAL_INT(open_recipe(&s, &b, &r), SPECDEC_OK);
        GIVES(&s, "<|im_end|>\nc", SPECDEC_TOKENIZE_SPECIAL, 0, 271, 259, 3 + '\n', 262);
        close_subject(&s);
    }

    TEST("a vocabulary without types still has bytes and control tokens");
    r = spm_recipe;
    r.type_count = -2;
    CHECK_EQUAL_INT(open_recipe(&s, &b, &r), SPECDEC_OK);
    GIVES(&s, "z</s>", SPECDEC_TOKENIZE_SPECIAL, 0, 259, 3 + 'z', 2);
    close_subject(&s);
}

static void test_ends(void)
{
    static const char *const tokens[] = {SPACE, "c", "<eos>", "<end_of_turn>", "<start_of_turn>"};
    static const int types[] = {1, 1, 3, 3, 3}, gemma2_types[] = {1, 1, 3, 4, 4};
    static const int32_t answer[] = {260, 262, 263};
    static builder b;
    recipe r = spm_recipe;
    subject s;
    int32_t *ids;
    char *text;

    TEST("Gemma 3: a text ends by <eos> as by <end_of_turn>, whichever of them the file names");
    r.tokens = tokens;
    r.types = types;
    r.count = SPECDEC__COUNT(tokens);
    r.id_key = "tokenizer.ggml.eos_token_id";
    for (r.id = 261; r.id <= 262; r.id++) {
        CHECK_EQUAL_INT(open_recipe(&s, &b, &r), SPECDEC_OK);
        CHECK_EQUAL_INT(s.v.eos, r.id);
        CHECK(specdec__vocab_is_end_token(&s.v, 261) && specdec__vocab_is_end_token(&s.v, 262) &&
              !specdec__vocab_is_end_token(&s.v, 263));
        close_subject(&s);
    }

    TEST("a chat format's token that a file has as user-defined is a control token all the same: no part of a text");
    r.types = gemma2_types;
    r.id = 261;
    CHECK_EQUAL_INT(open_recipe(&s, &b, &r), SPECDEC_OK);
    CHECK(specdec__vocab_is_end_token(&s.v, 262));
    CHECK(detokenize(&s, answer, 3, -1, 0, &text) == 1 && text[0] == 'c');
    free(text);
    CHECK(detokenize(&s, answer, 3, -1, 1, &text) == 29);
    free(text);
    GIVES(&s, "<end_of_turn>", SPECDEC_TOKENIZE_SPECIAL, 0, 262);
    CHECK_EQUAL_INT(tokenize(&s, "<end_of_turn>", 13, 0, &ids), 14); /* the space in front, and bytes */
    free(ids);
    close_subject(&s);
}

/* Opens an SPM vocabulary with these texts, all of one type, behind the others: from token 259 on. */
static void open_sequences(subject *s, builder *b, const char *const *texts, int count, int type)
{
    recipe r = spm_recipe;
    int types[8], i;

    for (i = 0; i < 8; i++)
        types[i] = type;
    r.tokens = texts;
    r.types = types;
    r.count = count;
    if (!type)
        r.type_count = -2;
    CHECK_EQUAL_INT(open_recipe(s, b, &r), SPECDEC_OK);
}

static void test_marks(void)
{
    static const char *const ends[] = {
        "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|end_of_text|>", "<|endoftext|>", "<end_of_turn>",
        "<end_of_utterance>", "<eos>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "[e~[", "<turn|>", "<|tool_response>",
        "<|return|>", "<|call|>", "<|calls|>", "<|flush|>", ("<\xef\xbd\x9c" "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"),
        "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]", "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>",
        "<reponame>", "<|file_sep|>"};
    static const char *const others[] = {"<|EOT|>", "<|eot|>", "< EOT >", "<seed:eos>", "EOS", "[eos]", "<eos", "<|users|>",
                                         "<|fim_prefix|>", "<|channel|>", "<s>x", ("<\xef\xbd\x9c" "Users\xef\xbd\x9c>")};
    static const char *const harmony[] = {"<|end|>", "<|return|>", "<|call|>", "<|start|>"};
    static const char *const open_solar[] = {"<|end|>", "<|flush|>", "<|calls|>"};
    static const char *const half[] = {"<|end|>", "<|return|>", "<|flush|>"};
    static const char *const tool[] = {"<|tool_response>", "</s>"};
    static const char *const gap[] = {"<|fim_prefix|>", "\xe2\x96\x81<MID>", "<fim_suffix>"};
    static const char *const pads[] = {"pad", "<PAD>", "<|file_sep|>"};
    static const int types[] = {0, 1, 2, 3, 4, 5, 6};
    static builder b;
    recipe r = spm_recipe;
    subject s;
    size_t i;
    int t;

    TEST("a text that llama.cpp knows as an end is an end and a control token, whatever its type");
    for (i = 0; i < SPECDEC__COUNT(ends); i++)
        for (t = 0; t < 7; t++) {
            open_sequences(&s, &b, &ends[i], 1, types[t]);
            CHECK(specdec__vocab_is_end_token(&s.v, 259) &&
                  specdec__vocab_token_type(&s.v, 259) == SPECDEC__TOKEN_CONTROL);
            CHECK(specdec__vocab_is_end_token(&s.v, 2) == (strcmp(ends[i], "<|tool_response>") != 0)); /* </s> */
            GIVES(&s, ends[i], SPECDEC_TOKENIZE_SPECIAL, 0, 259);
            close_subject(&s);
        }
    TEST("other texts are no ends, and their types stay");
    for (i = 0; i < SPECDEC__COUNT(others); i++)
        for (t = 1; t < 7; t++) {
            open_sequences(&s, &b, &others[i], 1, types[t]);
            CHECK(!specdec__vocab_is_end_token(&s.v, 259) && s.v.end_token_count == 1);
            CHECK(strncmp(others[i], "<|fim", 5) == 0 || strcmp(others[i], "<|channel|>") == 0 ||
                  specdec__vocab_token_type(&s.v, 259) == types[t]);
            close_subject(&s);
        }
    TEST("<|end|> ends a message, no text, where <|return|> and <|call|>, or <|flush|> and <|calls|>, do that");
    open_sequences(&s, &b, harmony, 4, 3);
    CHECK(!specdec__vocab_is_end_token(&s.v, 259) && specdec__vocab_is_end_token(&s.v, 260) &&
          specdec__vocab_is_end_token(&s.v, 261));
    CHECK(specdec__vocab_token_type(&s.v, 259) == SPECDEC__TOKEN_USER_DEFINED &&
          specdec__vocab_token_type(&s.v, 262) == SPECDEC__TOKEN_USER_DEFINED);
    close_subject(&s);
    open_sequences(&s, &b, open_solar, 3, 1);
    CHECK(!specdec__vocab_is_end_token(&s.v, 259) && specdec__vocab_is_end_token(&s.v, 260) &&
          specdec__vocab_is_end_token(&s.v, 261));
    close_subject(&s);
    open_sequences(&s, &b, half, 3, 4);
    CHECK(specdec__vocab_is_end_token(&s.v, 259) && specdec__vocab_is_end_token(&s.v, 260) &&
          specdec__vocab_is_end_token(&s.v, 261));
    close_subject(&s);
    TEST("</s> is plain text where <|tool_response> ends texts, even if the file names it");
    open_sequences(&s, &b, tool, 2, 3);
    CHECK(s.v.eos == 2 && !specdec__vocab_is_end_token(&s.v, 2) && specdec__vocab_is_end_token(&s.v, 259));
    CHECK_EQUAL_INT(specdec__vocab_token_type(&s.v, 2), SPECDEC__TOKEN_NORMAL);
    close_subject(&s);
    TEST("tokens around a gap are control tokens, and end nothing");
    open_sequences(&s, &b, gap, 3, 1);
    for (t = 259; t < 262; t++)
        CHECK(specdec__vocab_token_type(&s.v, (uint32_t)t) == SPECDEC__TOKEN_CONTROL &&
              !specdec__vocab_is_end_token(&s.v, t));
    close_subject(&s);
    TEST("tokens that a file names as paddings or separators of files are ends");
    for (i = 0; i < 3; i++) {
        static const char *const keys[] = {"tokenizer.ggml.fim_pad_token_id", "tokenizer.ggml.fim_rep_token_id",
                                           "tokenizer.ggml.fim_sep_token_id"};

        r.id_key = keys[i];
        r.id = 263;
        CHECK_EQUAL_INT(open_recipe(&s, &b, &r), SPECDEC_OK);
        CHECK(specdec__vocab_is_end_token(&s.v, 263) && specdec__vocab_is_end_token(&s.v, 2));
        close_subject(&s);
    }
    TEST("where the file names the padding of such prompts, texts do not: their types stay");
    r.tokens = pads;
    r.types = types + 1;
    r.count = 3;
    r.id_key = "tokenizer.ggml.fim_pad_token_id";
    r.id = 259;
    CHECK_EQUAL_INT(open_recipe(&s, &b, &r), SPECDEC_OK);
    CHECK(specdec__vocab_is_end_token(&s.v, 259) && !specdec__vocab_is_end_token(&s.v, 260) &&
          specdec__vocab_is_end_token(&s.v, 261));
    CHECK(specdec__vocab_token_type(&s.v, 260) == types[2] &&
          specdec__vocab_token_type(&s.v, 261) == SPECDEC__TOKEN_CONTROL);
    close_subject(&s);
    TEST("a token that the file names as its end is one, whatever its text says");
    r = spm_recipe;
    r.tokens = gap;
    r.types = types;
    r.count = 3;
    r.id_key = "tokenizer.ggml.eos_token_id";
    r.id = 260;
    CHECK_EQUAL_INT(open_recipe(&s, &b, &r), SPECDEC_OK);
    CHECK(specdec__vocab_is_end_token(&s.v, 260) && s.v.end_token_count == 2);
    close_subject(&s);
}

static char log_line[256];

static void note_line(void *user_data, const char *line)
{
    (void)user_data;
    snprintf(log_line, sizeof log_line, "%s", line);
}

/* What the log says of a vocabulary: "" is nothing. */
static const char *told(const subject *s)
{
    specdec_hooks hooks;

    memset(&hooks, 0, sizeof hooks);
    hooks.log = note_line;
    log_line[0] = 0;
    specdec__vocab_log_assumptions(&s->v, &hooks);
    return log_line;
}

static void test_small_bpe(void)
{
    static builder b;
    recipe r = bpe_recipe;
    subject s;
    int i;

    TEST("BPE merges by rank, leftmost first; merges that name no token are passed over");
    CHECK_EQUAL_INT(open_recipe(&s, &b, &r), SPECDEC_OK);
    GIVES(&s, "abc", 0, 0, 257);
    GIVES(&s, "aaab", 0, 0, 261, 256);
    GIVES(&s, "a ab", 0, 0, 'a', ' ', 256);
    GIVES(&s, "whole", 0, 0, 'w', 'h', 'o', 'l', 'e');
    GIVES(&s, "\xff", 0, 0, 0xff);
    GIVES(&s, "b<|endoftext|>", SPECDEC_TOKENIZE_SPECIAL | SPECDEC_TOKENIZE_BEGIN, 0, 'b', 262);
    GIVES(&s, "<tool>x", 0, 0, 263, 'x');
    GIVES(&s, "<tool>x", SPECDEC_TOKENIZE_SPECIAL, 0, 264);
    CHECK(specdec__vocab_is_end_token(&s.v, 262));
    close_subject(&s);

    TEST("BPE leaves out a byte that has no token; the unknown token never stands for it");
    r.token_count = 0xff; /* the last byte has none, and unknown_token_id is 0 */
    r.type_count = -2;
    r.id_key = "tokenizer.ggml.unknown_token_id";
    CHECK_EQUAL_INT(open_recipe(&s, &b, &r), SPECDEC_OK);
    GIVES(&s, "a\xff" "b", 0, 0, 'a', 'b');
    close_subject(&s);

    TEST("the unknown token ends a text where it is one of the well-known ends (SmolLM2-Instruct)");
    r = bpe_recipe;
    r.id_key = "tokenizer.ggml.unknown_token_id";
    r.id = 262;
    CHECK_EQUAL_INT(open_recipe(&s, &b, &r), SPECDEC_OK);
    CHECK(s.v.unknown == 262 && specdec__vocab_is_end_token(&s.v, 262));
    close_subject(&s);

    TEST("llama-bpe takes a whole word when it is a token");
    r = bpe_recipe;
    r.pre = "llama3";
    CHECK_EQUAL_INT(open_recipe(&s, &b, &r), SPECDEC_OK);
    CHECK_EQUAL_INT(s.v.add_bos, 1);
    GIVES(&s, "whole", 0, 0, 266);
    close_subject(&s);

    TEST("a gpt2 vocabulary without .pre, or with \"default\", that is not known is taken for GPT-2, with a warning");
    CHECK_EQUAL_INT(open_recipe(&s, &b, &r), SPECDEC_OK);
    CHECK_EQUAL_INT(strcmp(told(&s), ""), 0);
    close_subject(&s);
    for (i = 0; i < 2; i++) {
        r.pre = i ? "default" : NULL;
        CHECK_EQUAL_INT(open_recipe(&s, &b, &r), SPECDEC_OK);
        CHECK(s.v.pre_tokenizer && strcmp(s.v.pre_tokenizer->name, "gpt-2") == 0);
        CHECK(strncmp(told(&s), "warning: tokenizer.ggml.pre is missing", 38) == 0);
        close_subject(&s);
    }
}

static specdec_result outcome(const recipe *r, const char *in_text)
{
    static builder b;
    subject s;
    specdec_result result = open_recipe(&s, &b, r);

    CHECK(!result || s.error.code == result);
    if (result && in_text && !strstr(s.error.text, in_text))
        fprintf(stderr, "'%s' is not in '%s'\n", in_text, s.error.text);
    CHECK(!result || !in_text || strstr(s.error.text, in_text) != NULL);
    close_subject(&s);
    return result;
}

static void test_bad_files(void)
{
    static const char *const names[][2] = {{"lama-bpe", "near: llama-bpe"}, {"qwen3", "near: qwen2"},
                                          {"gpt4o", "near: gpt-4o"}, {"teken", "near: tekken"},
                                          {"olmo2", "near: olmo"}, {"", "known"}};
    static builder b;
    subject s;
    size_t i;
    recipe r;

    TEST("what a vocabulary promises and does not hold is refused with a text that names it");
    r = spm_recipe, r.model = "bert", r.token_count = 3;
    CHECK_EQUAL_INT(outcome(&r, "bert"), SPECDEC_ERROR_UNSUPPORTED);
    r = bpe_recipe, r.pre = "chameleon";
    CHECK_EQUAL_INT(outcome(&r, "chameleon"), SPECDEC_ERROR_UNSUPPORTED);
    TEST("a pre-tokenizer that is not known is named, with the one that is near, if one is");
    for (i = 0; i < SPECDEC__COUNT(names); i++) {
        r.pre = names[i][0];
        CHECK_EQUAL_INT(outcome(&r, names[i][0]), SPECDEC_ERROR_UNSUPPORTED);
        CHECK_EQUAL_INT(outcome(&r, names[i][1]), SPECDEC_ERROR_UNSUPPORTED);
    }
    r.pre = "whitespace";
    open_recipe(&s, &b, &r);
    CHECK(strstr(s.error.text, "whitespace") && !strstr(s.error.text, "near"));
    close_subject(&s);
    r = spm_recipe, r.token_count = -2;
    CHECK_EQUAL_INT(outcome(&r, "tokens"), SPECDEC_ERROR_FORMAT);
    r = spm_recipe, r.token_count = 0;
    CHECK_EQUAL_INT(outcome(&r, "tokens"), SPECDEC_ERROR_FORMAT);
    r = spm_recipe, r.score_count = 100;
    CHECK_EQUAL_INT(outcome(&r, "scores"), SPECDEC_ERROR_FORMAT);
    r = spm_recipe, r.score_count = -2;
    CHECK_EQUAL_INT(outcome(&r, "scores"), SPECDEC_ERROR_FORMAT);
    r = spm_recipe, r.score_type = SPECDEC_GGUF_I32;
    CHECK_EQUAL_INT(outcome(&r, "scores"), SPECDEC_ERROR_FORMAT);
    r = spm_recipe, r.type_count = 258;
    CHECK_EQUAL_INT(outcome(&r, "token_type"), SPECDEC_ERROR_FORMAT);
    r = bpe_recipe, r.merges = NULL;
    CHECK_EQUAL_INT(outcome(&r, "merges"), SPECDEC_ERROR_FORMAT);
    r = spm_recipe, r.id_key = "tokenizer.ggml.eos_token_id", r.id = 259 + 16;
    CHECK_EQUAL_INT(outcome(&r, "eos_token_id"), SPECDEC_ERROR_FORMAT);
    r.id = -7;
    CHECK_EQUAL_INT(outcome(&r, "eos_token_id"), SPECDEC_ERROR_FORMAT);
    TEST("an id of -1 or 2^32 - 1 means none");
    r.id = UINT32_MAX;
    CHECK_EQUAL_INT(outcome(&r, NULL), SPECDEC_OK);
    r.id = -1;
    CHECK_EQUAL_INT(outcome(&r, NULL), SPECDEC_OK);
    TEST("a vocabulary of one token works");
    r = spm_recipe, r.token_count = 1;
    CHECK_EQUAL_INT(outcome(&r, NULL), SPECDEC_OK);
    r = bpe_recipe, r.token_count = 1;
    CHECK_EQUAL_INT(outcome(&r, NULL), SPECDEC_OK);
}

/* A file can be made so that all its tokens have one place: loading it must not take hours. */
static void test_collisions(void)
{
    enum { COUNT = 4500, MASK = 8191 }; /* with the 259 others: a table of 8192 places */
    static char texts[COUNT][8];
    static const char *tokens[COUNT];
    recipe r = spm_recipe;
    specdec__bytes text = {NULL, 7};
    uint32_t number = 0;
    int i, j;

    TEST("tokens whose hashes have one place are refused");
    for (i = 0; i < COUNT; i++) {
        tokens[i] = texts[i];
        text.data = (const unsigned char *)texts[i];
        do {
            number++;
            for (j = 0; j < 7; j++)
                texts[i][j] = (char)('a' + (number >> 4 * j) % 16);
        } while ((specdec__vocab_hash_finish(specdec__vocab_hash_bytes(0, text)) & MASK) != 77);
    }
    r.tokens = tokens;
    r.types = NULL;
    r.type_count = -2;
    r.count = 4000;
    CHECK_EQUAL_INT(outcome(&r, NULL), SPECDEC_OK);
    r.count = COUNT;
    CHECK_EQUAL_INT(outcome(&r, "collide"), SPECDEC_ERROR_FORMAT);
}

/* Tables may be made so that one run of entries has no end. */
static void test_far_lookups(void)
{
    enum { PLACES = 8192 };
    static uint32_t slots[PLACES], merges[4] = {5, 6, 0, 0};
    static builder b;
    specdec__bytes text = {(const unsigned char *)"abc", 3};
    specdec__text_stretch run = {(const unsigned char *)"abc", 3, 0};
    uint32_t home[2];
    subject s;
    int i, j;

    TEST("entries are looked for no further than they are ever put, however long a run of them is");
    CHECK_EQUAL_INT(open_recipe(&s, &b, &spm_recipe), SPECDEC_OK);
    s.v.token_table = s.v.merge_table = slots;
    s.v.token_table_mask = s.v.merge_table_mask = PLACES - 1;
    s.v.merges = merges;
    home[0] = specdec__vocab_hash_finish(specdec__vocab_hash_bytes(0, text));
    home[1] = specdec__vocab_pair_hash(5, 6);
    for (i = 0; i < 4; i++) {
        const int within = i / 2;
        const uint32_t at = home[i % 2] + SPECDEC__VOCAB_PROBES_MOST - (uint32_t)within;

        for (j = 0; j < PLACES; j++)
            slots[j] = 2; /* <s>, and the second merge */
        slots[at % PLACES] = i % 2 ? 1 : 259 + 5 + 1;
        slots[(at + 1) % PLACES] = 0;
        if (i % 2) {
            CHECK_EQUAL_INT(specdec__vocab_merge_rank(&s.v, 5, 6), within ? 0 : SPECDEC__TEXT_NONE);
        } else {
            CHECK_EQUAL_INT(specdec__vocab_find_token_by_file_text(&s.v, text, NULL), within ? 259 + 5 : -1);
            CHECK_EQUAL_INT(specdec__vocab_find_token_of_stretch(&s.v, &run, 0, 3), within ? 259 + 5 : -1);
        }
    }
    close_subject(&s);
}

/* Everything that can be asked of a vocabulary, on some text. */
static void exercise(const subject *s)
{
    char text[512];
    size_t length = random_text(text, random_below(40), (int)random_below(2)), count, size, i;
    int32_t tokens[64];
    unsigned char scratch[4096], out[64];
    int flags = (int)random_below(8);

    specdec__tokenize(&s->v, text, length, flags, NULL, tokens, random_below(65), &count, scratch, random_below(4097), NULL);
    for (i = 0; i < 20; i++)
        specdec__token_write_bytes(&s->v, (int32_t)random_below(s->v.count + 2) - 1, (int)random_below(2), out,
                                   random_below(65), &size, NULL);
}

static void test_mutations(void)
{
    static builder b, mutant;
    const recipe *recipes[2];
    int which, i, j, opened = 0;

    TEST("no damaged vocabulary crashes or reaches out of bounds");
    recipes[0] = &spm_recipe;
    recipes[1] = &bpe_recipe;
    for (which = 0; which < 2; which++) {
        build(&b, recipes[which]);
        for (i = 0; i < 6000; i++) {
            subject s;
            unsigned char *exact;

            mutant = b;
            for (j = (int)random_below(4) + 1; j; j--) {
                size_t at = random_below((unsigned)b.size);
                unsigned bit = 1u << random_below(8);
                mutant.data[at] = (unsigned char)(random_below(2) ? random_below(256) : mutant.data[at] ^ bit);
            }
            if (random_below(8) == 0)
                mutant.size = random_below((unsigned)b.size);
            exact = (unsigned char *)malloc(mutant.size + 1);
            memcpy(exact, mutant.data, mutant.size);
            if (!open_bytes(&s, exact, mutant.size)) {
                opened++;
                exercise(&s);
            }
            close_subject(&s);
            free(exact);
        }
    }
    printf("mutations: %d of 12000 still opened\n", opened);
    CHECK(opened > 1000 && opened < 12000);
}

static void test_limits(void)
{
    static builder b;
    const recipe *recipes[2];
    const char *text = "<tool>xab abc<|im_end|>aaaa a<tool>";
    size_t length = strlen(text), capacity, scratch_size;
    int which;

    recipes[0] = &spm_recipe;
    recipes[1] = &bpe_recipe;
    for (which = 0; which < 2; which++) {
        subject s;
        int32_t *all, tokens[64];
        size_t count, wanted, enough = 0;

        TEST("the needed count comes back however little room there is");
        CHECK_EQUAL_INT(open_recipe(&s, &b, recipes[which]), SPECDEC_OK);
        wanted = tokenize(&s, text, length, SPECDEC_TOKENIZE_SPECIAL, &all);
        for (capacity = 0; capacity < 64; capacity++) {
            char scratch[1024];
            specdec_result result = specdec__tokenize(&s.v, text, length, SPECDEC_TOKENIZE_SPECIAL, NULL,
                                                      capacity ? tokens : NULL,
                                                      capacity, &count, scratch, sizeof scratch, NULL);
            CHECK(result == (capacity < wanted ? SPECDEC_ERROR_BUFFER : SPECDEC_OK) && count == wanted);
            CHECK(memcmp(tokens, all, (capacity < wanted ? capacity : wanted) * sizeof *tokens) == 0);
        }
        TEST("too little scratch is an error, never a wrong result");
        for (scratch_size = 0; scratch_size <= specdec__tokenize_scratch_bytes(&s.v, length); scratch_size++) {
            char *scratch = (char *)malloc(scratch_size + 1);
            specdec_result result = specdec__tokenize(&s.v, text, length, SPECDEC_TOKENIZE_SPECIAL, NULL, tokens, 64,
                                                      &count,
                                                      scratch + scratch_size % 2, scratch_size - scratch_size % 2,
                                                      NULL);
            CHECK(result == SPECDEC_ERROR_MEMORY || (!result && count == wanted && !memcmp(tokens, all,
                                                                                           count * sizeof *tokens)));
            enough += !result;
            free(scratch);
        }
        CHECK(enough > 0);
        CHECK_EQUAL_INT(specdec__tokenize(&s.v, text, length, 0, NULL, tokens, 64, &count, NULL, 0, NULL),
                        SPECDEC_ERROR_MEMORY);
        TEST("ids outside the vocabulary are refused");
        CHECK_EQUAL_INT(specdec__token_write_bytes(&s.v, -1, 0, NULL, 0, &count, NULL), SPECDEC_ERROR_ARGUMENT);
        CHECK_EQUAL_INT(specdec__token_write_bytes(&s.v, (int32_t)s.v.count, 0, NULL, 0, &count, NULL),
                        SPECDEC_ERROR_ARGUMENT);
        TEST("no memory for the indexes is an error");
        {
            specdec__arena arena;
            specdec__vocab v;
            arena.base = (unsigned char *)s.memory;
            arena.size = s.bytes - 1;
            arena.used = 0;
            CHECK_EQUAL_INT(specdec__vocab_init(&v, &s.gguf, &arena, NULL), SPECDEC_ERROR_MEMORY);
        }
        free(all);
        close_subject(&s);
    }
}

static void test_small_properties(void)
{
    const specdec__bytes tool = {(const unsigned char *)"<tool>", 6};
    static builder b;
    const recipe *recipes[3];
    char text[512];
    int which, i;

    recipes[0] = &spm_recipe;
    recipes[1] = &bpe_recipe;
    recipes[2] = &uncut_recipe; /* merges may cross spaces */
    for (which = 0; which < 3; which++) {
        subject s;

        CHECK_EQUAL_INT(open_recipe(&s, &b, recipes[which]), SPECDEC_OK);
        TEST("no text is lost: detokenize(tokenize(x)) == x");
        check_round_trip(&s);
        TEST("merging gives what its definition gives");
        for (i = 0; i < 500; i++) {
            size_t length = random_text(text, random_below(50), i % 3 == 0);
            /* the definition knows no special tokens */
            if (specdec__text_find_token_text((const unsigned char *)text, 0, length, tool) == length)
                CHECK(agrees_with_slow(&s, text, length));
        }
        close_subject(&s);
    }
}

/* Writes a code point as UTF-8 without asking whether it may be. Returns the bytes. */
static size_t put_code(unsigned char *out, uint32_t code, size_t size)
{
    static const unsigned char first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    size_t i;

    for (i = size - 1; i; i--, code >>= 6)
        out[i] = (unsigned char)(0x80 | (code & 63));
    out[0] = (unsigned char)(first[size] | code);
    return size;
}

static int kind_of(uint32_t code)
{
    return specdec__text_class_properties[specdec__text_character_class(code)].kind;
}

static int facts_of(uint32_t code)
{
    return specdec__text_class_properties[specdec__text_character_class(code)].properties;
}

static void test_characters(void)
{
    unsigned char text[8];
    uint32_t code, wrong = 0;
    size_t size, cut;
    int byte;

    TEST("every character is read whole, and its beginnings are known as such");
    for (code = 0; code < 0x110000; code++) {
        specdec__text_character c;

        size = put_code(text, code, code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4);
        c = specdec__text_character_at(text, size, 0);
        if (code >= 0xd800 && code < 0xe000) {
            wrong += c.code != 0xfffd || c.size != 1;
            continue;
        }
        wrong += c.code != code || (size_t)c.size != size;
        for (cut = 1; cut < size; cut++)
            wrong += specdec__utf8_sequence_bytes(text, cut) != -(int)cut ||
                     specdec__text_incomplete_bytes(text, cut) != cut;
        wrong += specdec__text_incomplete_bytes(text, size) != 0;
    }
    CHECK_EQUAL_INT(wrong, 0);
    TEST("longer spellings and what lies beyond U+10FFFF are no characters");
    for (code = 0, wrong = 0; code < 0x10000; code++) {
        wrong += code < 0x80 && specdec__utf8_sequence_bytes(text, put_code(text, code, 2)) != 0;
        wrong += code < 0x800 && specdec__utf8_sequence_bytes(text, put_code(text, code, 3)) != 0;
        wrong += specdec__utf8_sequence_bytes(text, put_code(text, code, 4)) != 0;
        wrong += specdec__utf8_sequence_bytes(text, put_code(text, 0x110000 + code, 4)) != 0;
    }
    CHECK_EQUAL_INT(wrong, 0);
    TEST("every byte has its own character in byte-level BPE");
    for (byte = 0; byte < 256; byte++)
        CHECK_EQUAL_INT(specdec__text_code_to_byte(specdec__text_byte_to_code((unsigned)byte)), byte);
    CHECK(specdec__text_code_to_byte(0x20) == -1 && specdec__text_code_to_byte(0x144) == -1);
    TEST("letters, numbers and white space are Unicode's");
    CHECK(kind_of('a') == SPECDEC__TEXT_LETTER && kind_of(0x4e2d) == SPECDEC__TEXT_LETTER);
    CHECK(kind_of('7') == SPECDEC__TEXT_NUMBER && kind_of(0xbd) == SPECDEC__TEXT_NUMBER);
    CHECK(kind_of(0x85) == SPECDEC__TEXT_SPACE && kind_of(0x3000) == SPECDEC__TEXT_SPACE);
    CHECK(kind_of(0x301) == SPECDEC__TEXT_OTHER && kind_of(0xfeff) == SPECDEC__TEXT_OTHER);
    CHECK(kind_of(0x10ffff) == SPECDEC__TEXT_OTHER && kind_of(0) == SPECDEC__TEXT_OTHER);
    TEST("upper and lower case, letters without case and marks are Unicode's");
    for (code = 0x100; code < 0x130; code++)
        CHECK_EQUAL_INT(facts_of(code), code % 2 ? SPECDEC__TEXT_TAIL : SPECDEC__TEXT_HEAD);
    CHECK_EQUAL_INT(facts_of('A'), SPECDEC__TEXT_HEAD);
    CHECK_EQUAL_INT(facts_of('z'), SPECDEC__TEXT_TAIL);
    CHECK_EQUAL_INT(facts_of(0x1c5), SPECDEC__TEXT_HEAD); /* title case */
    CHECK_EQUAL_INT(facts_of(0x138), SPECDEC__TEXT_TAIL); /* between two rows of pairs */
    CHECK_EQUAL_INT(facts_of(0x139), SPECDEC__TEXT_HEAD);
    CHECK_EQUAL_INT(facts_of(0x2b0), SPECDEC__TEXT_HEAD | SPECDEC__TEXT_TAIL);
    CHECK_EQUAL_INT(facts_of(0x4e2d), SPECDEC__TEXT_HEAD | SPECDEC__TEXT_TAIL);
    CHECK_EQUAL_INT(facts_of(0x301), SPECDEC__TEXT_HEAD | SPECDEC__TEXT_TAIL | SPECDEC__TEXT_MARK);
    CHECK(facts_of('7') == 0 && facts_of(' ') == 0 && facts_of('!') == SPECDEC__TEXT_PUNCTUATION);
}

/* Cuts a text into words and joins them with bars. */
static int cuts(const char *pre, const char *text, const char *wanted)
{
    specdec__vocab v;
    char out[256];
    size_t used = 0, at = 0, length = strlen(text), i;

    memset(&v, 0, sizeof v);
    v.model = SPECDEC__VOCAB_BPE;
    for (i = 0; i < SPECDEC__COUNT(specdec__pre_tokenizers); i++)
        if (strcmp(specdec__pre_tokenizers[i].name, pre) == 0)
            v.pre_tokenizer = &specdec__pre_tokenizers[i];
    while (at < length) {
        size_t size = specdec__text_first_stretch_bytes(&v, (const unsigned char *)text + at, length - at);
        memcpy(out + used, text + at, size);
        used += size;
        out[used++] = '|';
        at += size;
    }
    out[used] = 0;
    if (strcmp(out, wanted) != 0)
        fprintf(stderr, "%s: '%s'\n", pre, out);
    return strcmp(out, wanted) == 0;
}

static void test_words(void)
{
    TEST("words are cut as the published expressions cut them");
    CHECK(cuts("gpt-2", "I'll we'LL 12345 a!? b  \n c", "I|'ll| we|'|LL| 12345| a|!?| b|  \n| c|"));
    CHECK(cuts("llama-bpe", "I'll we'LL 12345 a!?\n b  \n c", "I|'ll| we|'LL| |123|45| a|!?\n| b|  \n| c|"));
    CHECK(cuts("qwen2", "x1234 \r\n\t(a)\n\n  ", "x|1|2|3|4| \r\n|\t|(a|)\n\n|  |"));
    CHECK(cuts("qwen2", "\ta\xc2\xa0" "b  c\xcc\x81 \xff" "d", "\ta|\xc2\xa0" "b| | c|\xcc\x81| \xff|d|"));
    CHECK(cuts("gpt-2", "' 's' 'sx", "'| '|s|'| '|sx|"));
    CHECK(cuts("llama3", "   ", "   |") && cuts("gpt-2", " ", " |") && cuts("gpt-2", "\n\n", "\n\n|"));
    CHECK(cuts("smaug-bpe", "we'LL 12345", "we|'LL| |123|45|") && cuts("dbrx", "1234", "123|4|"));
    CHECK(cuts("starcoder", "a 12", "a| |1|2|") && cuts("refact", "a 12", "a| |1|2|"));
    CHECK(cuts("exaone", "a 12", "a| |1|2|") && cuts("exaone4", "a 12", "a| 12|") && cuts("olmo", "a 12", "a| 12|"));
    CHECK(cuts("glm4", "I'LL 1234", "I|'LL| |123|4|") && cuts("falcon3", "1234", "123|4|") && cuts("megrez", "12", "1|2|"));
    CHECK(cuts("tekken", "HelloWorld I'll 12 a://b/c /\n", "Hello|World| I|'ll| |1|2| a|://|b|/c| /\n|"));
    CHECK(cuts("kanana2", "HelloWorld I'll 123", "Hello|World| I'll| |123|"));
}

/* Cuts [0, length) of a text by all stages one after the other, as their definition says: ends[i] is 1 where a piece ends. */
static void cut_by_stages(const specdec__text_stage *stages, const unsigned char *text, size_t length, char *ends)
{
    size_t from, to, at, size;

    memset(ends, 0, length + 1);
    ends[length] = 1;
    for (; stages->match; stages++)
        for (from = 0; from < length; from = to) {
            for (to = from + 1; !ends[to];)
                to++;
            for (at = from; at < to; at += size) {
                size = stages->match(text + at, to - at);
                if (size)
                    ends[at] = ends[at + size] = 1;
                else
                    size = (size_t)specdec__text_character_at(text, to, at).size;
            }
        }
}

static void test_stages(void)
{
    static const char *const parts[] = {"a", "B", " ", "  ", "\n", "\r", "\t", "1", "23", "!", "'", "$", "|", "_", "\xe4\xb8\xad",
                                        "\xe3\x81\x82", "\xea\xb0\x80", "\xc3\xa9", "\xcc\x81", "\xef\xbc\x8c", "\xe3\x80\x80",
                                        "\xd0\xb6", "\xff", "\x01", "\xef\xbc\x93", "'s", "\xf0\x9f\x98\x80"};
    static unsigned char text[700];
    static char ends[701];
    size_t row, length, at, i;
    int repeat, times, wrong = 0;

    TEST("pre-tokenizers of several stages cut as one stage after the other does, whatever lies behind a word");
    for (row = 0; row < SPECDEC__COUNT(specdec__pre_tokenizers); row++)
        for (repeat = 0; specdec__pre_tokenizers[row].stages && repeat < 1500; repeat++) {
            const specdec__pre_tokenizer *words = &specdec__pre_tokenizers[row];

            for (length = 0; length < (size_t)(repeat % 8 ? 60 : 600);) {
                i = random_below(SPECDEC__COUNT(parts));
                for (times = random_below(6) ? 1 : (int)random_below(40); times-- > 0 && length < 690; length += strlen(parts[i]))
                    memcpy(text + length, parts[i], strlen(parts[i]));
            }
            cut_by_stages(words->stages, text, length, ends);
            for (at = 0; at < length;) {
                const size_t size = specdec__pre_tokenizer_first_word(words, text + at, length - at);

                if (!size)
                    break;
                for (i = 1; i < size; i++)
                    wrong += ends[at + i];
                at += size;
                wrong += !ends[at];
            }
            wrong += at != length;
        }
    CHECK_EQUAL_INT(wrong, 0);
    TEST("words of the models of 2025 and 2026");
    CHECK(cuts("deepseek-v3", "a1234 b!!\n  x\xe4\xb8\xad\xe3\x81\x82y .foo", "a|123|4| b|!!\n| | x|\xe4\xb8\xad\xe3\x81\x82|y| .|foo|"));
    CHECK(cuts("hunyuan-dense", "c\xcc\x81 (a)", "c\xcc\x81| (|a|)|"));
    CHECK(cuts("deepseek-llm", "ab 12  \nc\xc3\xa9 !\xe4\xb8\xad", "ab| |12|  |\n|c|\xc3\xa9| !|\xe4\xb8\xad|"));
    CHECK(cuts("deepseek-coder", " a\xe4\xb8\xad" "b1 12!?\n\n", " a|\xe4\xb8\xad|b|1| |1|2|!?|\n|\n|"));
    CHECK(cuts("falcon", "it's 12345 $a  b", "it|'|s| |123|45| |$|a| | b|"));
    CHECK(cuts("qwen35", "c\xcc\x81" "d12 it's!\n", "c\xcc\x81" "d|1|2| it|'s|!\n|"));
    CHECK(cuts("seed-coder", "a12!\n\nb", "a|1|2|!|\n\n|b|"));
    CHECK(cuts("command-r", "a 12", "a| |1|2|") && cuts("granite-docling", "a 12", "a| 12|"));
    CHECK(cuts("lfm2", "we'LL 1234", "we|'LL| |123|4|") && cuts("hunyuan", "a12", "a|1|2|") && cuts("bailingmoe2", "a12", "a|1|2|"));
    CHECK(cuts("tiny_aya", "1234567 12ab 123", "1|234|567| |12|ab| |123|") && cuts("superbpe", "a b1234 c", "a b|1|234| c|"));
    CHECK(cuts("kimi-k2", " \xe4\xb8\xad" "aBc's 1234", " |\xe4\xb8\xad|a|Bc's| |123|4|"));
    CHECK(cuts("viking", "a b12, c", "a| b|1|2|,| c|") && cuts("minicpm5", "  1234 a", "  |123|4| a|"));
}

static void test_words_gpt4o(void)
{
    TEST("gpt-4o: a word is upper case letters, then lower case ones");
    CHECK(cuts("gpt-4o", "HelloWorld helloWORLD ABCdef", "Hello|World| hello|WORLD| ABCdef|"));
    CHECK(cuts("gpt-4o", "\xc3\x89t\xc3\xa9 (Abc) \tXy", "\xc3\x89t\xc3\xa9| (|Abc|)| |\tXy|"));
    CHECK(cuts("llama4", "camelCase", "camel|Case|"));
    TEST("gpt-4o: contractions belong to the word");
    CHECK(cuts("gpt-4o", "I'll WE'LL don't 's x'y", "I'll| WE'LL| don't| '|s| x|'y|"));
    TEST("gpt-4o: digits go in threes, alone");
    CHECK(cuts("gpt-4o", "x12345 6", "x|123|45| |6|"));
    TEST("gpt-4o: line ends and slashes end a row of signs");
    CHECK(cuts("gpt-4o", "a://b/c /\n\n x\n  \n y  ", "a|://|b|/c| /\n\n| x|\n  \n| y|  |"));
    TEST("gpt-4o: letters without case stand in both parts, and so do marks");
    CHECK(cuts("gpt-4o", "\xe4\xb8\xad\xe6\x96\x87" "ab\xe4\xb8\xad", "\xe4\xb8\xad\xe6\x96\x87" "ab\xe4\xb8\xad|"));
    CHECK(cuts("gpt-4o", "\xe4\xb8\xad" "AB AB\xe4\xb8\xad" "C", "\xe4\xb8\xad|AB| AB\xe4\xb8\xad|C|"));
    CHECK(cuts("gpt-4o", "e\xcc\x81" "a E\xcc\x81", "e\xcc\x81" "a| E\xcc\x81|"));
    CHECK(cuts("gpt-4o", "\xcc\x81! \xcc\x81" "AB \xcc\x81" "ab", "\xcc\x81|!| \xcc\x81|AB| \xcc\x81" "ab|"));
    CHECK(cuts("gpt-4o", "\xcc\x81" "AB", "\xcc\x81|AB|"));
    CHECK(cuts("gpt-4o", "\xd0\x9f\xd1\x80\xd0\xb8\xd0\x92\xd0\x95", "\xd0\x9f\xd1\x80\xd0\xb8|\xd0\x92\xd0\x95|"));
}

static void test_stream(void)
{
    static builder b;
    subject s;
    const int32_t smile[] = {3 + 0xf0, 3 + 0x9f, 3 + 0x98, 3 + 0x80}, broken[] = {3 + 0xf0, 3 + 0x9f, 260, 3 + 0xe2,
                                                                                  3 + 0x82};
    const int32_t start[] = {1, 266, 266};
    specdec__text_decoder stream;
    unsigned char out[64];
    char *text;
    size_t written, i;

    CHECK_EQUAL_INT(open_recipe(&s, &b, &spm_recipe), SPECDEC_OK);
    TEST("a stream never ends inside a character");
    specdec__text_decoder_begin(&stream, &s.v, 260, 0);
    for (i = 0; i < 4; i++) {
        CHECK_EQUAL_INT(specdec__text_decoder_push(&stream, &s.v, smile[i], out, sizeof out, &written, NULL),
                        SPECDEC_OK);
        CHECK_EQUAL_INT(written, i < 3 ? 0 : 4);
    }
    CHECK(memcmp(out, "\xf0\x9f\x98\x80", 4) == 0);
    TEST("bytes that cannot become valid pass as they are");
    CHECK(detokenize(&s, broken, 5, -1, 0, &text) == 5 && memcmp(text, "\xf0\x9f" "a\xe2\x82", 5) == 0);
    free(text);
    TEST("the space that SPM puts in front is taken away at the beginning only");
    CHECK(detokenize(&s, start, 3, -1, 0, &text) == 3 && memcmp(text, "a a", 3) == 0);
    free(text);
    CHECK(detokenize(&s, start + 1, 2, 260, 0, &text) == 4 && memcmp(text, " a a", 4) == 0);
    free(text);
    TEST("control tokens show only on demand");
    CHECK(detokenize(&s, start, 3, -1, 1, &text) == 6 && memcmp(text, "<s>a a", 6) == 0);
    free(text);
    TEST("a failed push changes nothing");
    specdec__text_decoder_begin(&stream, &s.v, 260, 0);
    CHECK_EQUAL_INT(specdec__text_decoder_push(&stream, &s.v, smile[0], out, 64, &written, NULL), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec__text_decoder_push(&stream, &s.v, 260, out, 1, &written, NULL), SPECDEC_ERROR_BUFFER);
    CHECK_EQUAL_INT(specdec__text_decoder_push(&stream, &s.v, 1 << 20, out, 64, &written, NULL),
                    SPECDEC_ERROR_ARGUMENT);
    CHECK_EQUAL_INT(specdec__text_decoder_end(&stream, out), 1);
    CHECK_EQUAL_INT(out[0], 0xf0);
    close_subject(&s);
}

/* Sends a text through in random pieces. Returns the bytes handed out, ended or not. */
static size_t scan_text(const char *const *stops, int count, const char *text, size_t length, char *out, int *stopped)
{
    specdec__stop_scan scan;
    size_t at = 0, used = 0;
    int i;

    memset(&scan, 0, sizeof scan);
    for (i = 0; i < count; i++)
        CHECK_EQUAL_INT(specdec__stop_add_string(&scan, stops[i], strlen(stops[i]), NULL), SPECDEC_OK);
    while (at < length) {
        size_t piece = random_below(4) + 1, written;
        piece = piece < length - at ? piece : length - at;
        CHECK_EQUAL_INT(specdec__stop_push_bytes(&scan, (const unsigned char *)text + at, piece,
                                                 (unsigned char *)out + used, piece + SPECDEC__STOP_MAX_BYTES, &written,
                                                 NULL),
                        SPECDEC_OK);
        used += written;
        at += piece;
    }
    *stopped = scan.stopped;
    return used + specdec__stop_write_held_bytes(&scan, (unsigned char *)out + used);
}

static void test_stop(void)
{
    static const char *const stops[] = {"ba", "abab", "abac", "c", "aabb", "<|im_end|>"};
    static unsigned char copies[SPECDEC__STOP_COPY_BYTES];
    static char all[SPECDEC__STOP_MAX_BYTES];
    char text[64], out[1024];
    specdec__stop_scan scan;
    unsigned char byte;
    size_t written;
    int i, stopped;

    TEST("text is cut exactly before the stop string that is complete first, whatever the pieces");
    for (i = 0; i < 20000; i++) {
        size_t length = random_below(30), end, cut, got, j;
        int first = (int)random_below(6), count = 1 + (int)random_below((unsigned)(6 - first)), k, found = 0;

        for (j = 0; j < length; j++)
            text[j] = (char)('a' + random_below(random_below(3) + 1));
        for (end = 1, cut = length; end <= length && !found; end++)
            for (k = first; k < first + count; k++) {
                size_t size = strlen(stops[k]);
                if (size <= end && memcmp(text + end - size, stops[k], size) == 0 && (!found || end - size < cut)) {
                    cut = end - size;
                    found = 1 + k - first;
                }
            }
        got = scan_text(stops + first, count, text, length, out, &stopped);
        CHECK(got == cut && memcmp(out, text, cut) == 0 && stopped == found);
    }
    TEST("unusable stop strings and buffers are refused");
    memset(&scan, 0, sizeof scan);
    CHECK_EQUAL_INT(specdec__stop_add_string(&scan, "", 0, NULL), SPECDEC_ERROR_ARGUMENT);
    memset(all, 'x', sizeof all);
    CHECK_EQUAL_INT(specdec__stop_add_string(&scan, all, SPECDEC__STOP_MAX_BYTES + 1, NULL), SPECDEC_ERROR_ARGUMENT);
    for (i = 0; i < SPECDEC_STOP_STRINGS; i++)
        CHECK_EQUAL_INT(specdec__stop_add_string(&scan, "x", 1, NULL), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec__stop_add_string(&scan, "x", 1, NULL), SPECDEC_ERROR_ARGUMENT);
    memset(&scan, 0, sizeof scan);
    for (i = 0; i < SPECDEC_STOP_BYTES / SPECDEC__STOP_MAX_BYTES; i++)
        CHECK_EQUAL_INT(specdec__stop_add_string(&scan, all, SPECDEC__STOP_MAX_BYTES, NULL), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec__stop_add_string(&scan, "x", 1, NULL), SPECDEC_ERROR_ARGUMENT);
    TEST("copies of stop strings may take the places of others");
    memset(&scan, 0, sizeof scan);
    for (i = 0; i < 6; i++)
        CHECK_EQUAL_INT(specdec__stop_add_string(&scan, stops[i], strlen(stops[i]), NULL), SPECDEC_OK);
    specdec__stop_copy_strings(&scan, copies);
    for (i = 0; i < 3; i++) { /* the other way around */
        specdec__bytes moving = scan.strings[i];

        scan.strings[i] = scan.strings[5 - i];
        scan.strings[5 - i] = moving;
    }
    specdec__stop_copy_strings(&scan, copies);
    for (i = 0; i < 6; i++)
        CHECK(strcmp((const char *)scan.strings[i].data, stops[5 - i]) == 0 && scan.strings[i].data >= copies);
    CHECK_EQUAL_INT(specdec__stop_push_bytes(&scan, (const unsigned char *)"y", 1, &byte, 1, &written, NULL),
                    SPECDEC_ERROR_BUFFER);
}

static void test_compare(void)
{
    static builder b[3];
    static const char *changed[16];
    recipe shorter = bpe_recipe, other = spm_recipe;
    subject a, c, d;
    uint32_t first;

    TEST("vocabularies compare as same, padded, or different from a certain id on");
    CHECK_EQUAL_INT(open_recipe(&a, &b[0], &bpe_recipe), SPECDEC_OK);
    shorter.count = 9; /* [PAD1] and whole are missing */
    CHECK_EQUAL_INT(open_recipe(&c, &b[1], &shorter), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec__vocab_compare(&a.v, &a.v, &first), SPECDEC__VOCAB_SAME);
    CHECK_EQUAL_INT(specdec__vocab_compare(&a.v, &c.v, &first), SPECDEC__VOCAB_DIFFERENT);
    CHECK_EQUAL_INT(first, 256 + 10);
    close_subject(&a);
    shorter.count = 10;
    CHECK_EQUAL_INT(open_recipe(&a, &b[0], &shorter), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec__vocab_compare(&a.v, &c.v, &first), SPECDEC__VOCAB_PADDED);
    CHECK_EQUAL_INT(specdec__vocab_compare(&c.v, &a.v, &first), SPECDEC__VOCAB_PADDED);
    CHECK_EQUAL_INT(first, 256 + 9);
    CHECK_EQUAL_INT(open_recipe(&d, &b[2], &other), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec__vocab_compare(&a.v, &d.v, &first), SPECDEC__VOCAB_DIFFERENT);
    close_subject(&d);
    memcpy(changed, bpe_tokens, sizeof bpe_tokens);
    changed[3] = "other";
    shorter.tokens = changed;
    CHECK_EQUAL_INT(open_recipe(&d, &b[2], &shorter), SPECDEC_OK);
    CHECK_EQUAL_INT(specdec__vocab_compare(&a.v, &d.v, &first), SPECDEC__VOCAB_DIFFERENT);
    CHECK_EQUAL_INT(first, 259);
    close_subject(&a);
    close_subject(&c);
    close_subject(&d);
}

static void test_digits_apart(void)
{
    static const char text[] = "abc12  7 x's 3d\n\n9";
    static const char *const words[] = {"abc", "1", "2", "  ", "7", " x", "'s", " ", "3", "d", "\n\n", "9"};
    const unsigned char *at = (const unsigned char *)text;
    size_t left = sizeof text - 1, i, size;
    specdec__vocab v;

    TEST("the smollm pre-tokenizer cuts around every digit before it looks for words");
    memset(&v, 0, sizeof v);
    v.model = SPECDEC__VOCAB_BPE;
    for (i = 0; i < SPECDEC__COUNT(specdec__pre_tokenizers); i++)
        if (strcmp(specdec__pre_tokenizers[i].name, "smollm") == 0)
            v.pre_tokenizer = &specdec__pre_tokenizers[i];
    CHECK(v.pre_tokenizer != NULL);
    for (i = 0; left && i < SPECDEC__COUNT(words); i++, at += size, left -= size) {
        size = specdec__text_first_stretch_bytes(&v, at, left);
        CHECK_EQUAL_INT(size, strlen(words[i]));
        CHECK(memcmp(at, words[i], size < strlen(words[i]) ? size : strlen(words[i])) == 0);
    }
    CHECK_EQUAL_INT(left, 0);
}

int main(void)
{
    test_characters();
    test_words();
    test_words_gpt4o();
    test_stages();
    test_small_spm();
    test_ends();
    test_marks();
    test_small_bpe();
    test_small_properties();
    test_bad_files();
    test_collisions();
    test_far_lookups();
    test_limits();
    test_mutations();
    test_stream();
    test_stop();
    test_compare();
    test_shared();
    test_digits_apart();
    return check_report("test_text");
}
