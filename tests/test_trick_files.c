/* test_trick_files.c - models of every architecture with one thing that is wrong in each, or two: a size of a layer, of an expert, of a
   state, of a latent row, of streams; a list too short or of another type; a tensor of another shape, or missing. Each file is refused
   with a sentence, or it is read and runs.
   cc -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined -pthread -I. tests/test_trick_files.c -lm
   test_trick_files [ARCHITECTURE [NUMBER]]: one architecture, one file. Without SPECDEC_QUICK=1: all files, some ten thousand. */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "check.h"
#include "gguf_maker.h"
#include "machine.h"

#define ROOM ((size_t)128 << 20) /* larger engines are left alone */

enum { VOCABULARY = 262 };

/* Values of keys that are integers, of keys that are floats, and what becomes of lists and of keys as such. */
static const uint32_t integers[] = {0, 1, 2, 3, 7, 15, 16, 17, 24, 32, 33, 48, 96, 1000, 1000000, 1u << 30, 0x7fffffffu, 0x80000000u, 0xffffffffu};
static const float floats[] = {0, -1, 1e-30f, 1e30f, -1e30f, INFINITY, -INFINITY, NAN};
enum { SHORTER, LONGER, EMPTY, FIRST_ZERO, LAST_ZERO, FIRST_ODD, LAST_HUGE, OF_FLOATS, OF_TEXTS, NESTED, LIST_TRICKS };
enum { MISSING, A_TEXT, A_BOOL, A_FLOAT, A_NEGATIVE, A_LONG, A_LIST, A_SHORT_LIST, KEY_TRICKS };
enum { ABSENT, RENAMED, TURNED, WIDER, NARROWER, FLAT, DEEPER, HALVED, ZERO, VAST, OTHER_TYPE, NO_TYPE, QUANTISED, TENSOR_TRICKS };

#define COUNT(list) ((int)(sizeof(list) / sizeof(list)[0]))

/* Keys that a file may have, behind the architecture's name, whether a made one has them or not. */
static const char *const keys[] = {
    ".nextn_predict_layers", ".expert_count", ".expert_used_count", ".expert_shared_count", ".expert_feed_forward_length",
    ".expert_shared_feed_forward_length", ".expert_group_count", ".expert_group_used_count", ".expert_gating_func", ".expert_weights_norm",
    ".expert_weights_scale", ".leading_dense_block_count", ".interleave_moe_layer_step", ".moe_latent_size", ".attention.kv_lora_rank",
    ".attention.q_lora_rank", ".attention.key_length_mla", ".attention.value_length_mla", ".attention.sliding_window",
    ".attention.sliding_window_pattern", ".attention.shared_kv_layers", ".attention.key_length_swa", ".attention.value_length_swa",
    ".rope.dimension_count_swa", ".attention.recurrent_layers", ".full_attention_interval", ".shortconv.l_cache", ".ssm.conv_kernel",
    ".ssm.state_size", ".ssm.group_count", ".ssm.time_step_rank", ".ssm.inner_size", ".embedding_length_per_layer_input",
    ".altup.num_inputs", ".altup.active_idx", ".activation_sparsity_scale", ".rope.scaling.original_context_length", ".rope.scaling.factor",
    ".rope.scaling.alpha", ".rope.scaling.yarn_log_multiplier", ".attention.causal", ".rope.freq_base_swa"};

static maker_recipe recipe_of(const char *architecture)
{
    maker_recipe r;

    memset(&r, 0, sizeof r);
    r.architecture = architecture;
    r.layers = 3; /* one of each kind */
    r.embedding = r.feed_forward = 32;
    r.heads = 2;
    r.kv_heads = 1;
    r.vocab = VOCABULARY;
    r.output_type = 1;
    r.seed = 3;
    if (!strcmp(architecture, "gemma4"))
        r.experts = 5;
    return r;
}

/* Whether a pair is one of the architecture's. */
static int is_own(const maker_pair *p, const maker_recipe *r) { return strncmp(p->key, r->architecture, strlen(r->architecture)) == 0; }

/* Item i of a list of integers becomes another; bytes of an item. */
static void set_item(maker_pair *p, uint64_t i, uint32_t value)
{
    const uint32_t type = specdec__load_u32(p->value.data);
    const size_t width = specdec__gguf_type_size[type];
    unsigned char *at = p->value.data + 12 + (size_t)i * width;

    if (width == 4)
        specdec__store_u32(at, value);
    else if (width == 1)
        *at = (unsigned char)value;
}

static void trick_list(maker_pair *p, int what)
{
    const uint64_t count = specdec__load_u64(p->value.data + 4);
    const size_t width = specdec__gguf_type_size[specdec__load_u32(p->value.data)];
    uint64_t now = count;

    if (!width || !count)
        return;
    switch (what) {
    case SHORTER: now = count - 1; break;
    case LONGER: now = count + 1; break;
    case EMPTY: now = 0; break;
    case FIRST_ZERO: set_item(p, 0, 0); break;
    case LAST_ZERO: set_item(p, count - 1, 0); break;
    case FIRST_ODD: set_item(p, 0, 17); break;
    case LAST_HUGE: set_item(p, count - 1, 0xffffffffu); break;
    case OF_FLOATS: specdec__store_u32(p->value.data, width == 4 ? 6 : 1); break;
    case OF_TEXTS: specdec__store_u32(p->value.data, 8); break;
    default: specdec__store_u32(p->value.data, 9); break;
    }
    if (now > count)
        maker_put_number(&p->value, 1, (int)width);
    else
        p->value.size -= (size_t)(count - now) * width;
    specdec__store_u32(p->value.data + 4, (uint32_t)now);
}

/* A key as such: of another type, a list where it was a number, missing. */
static void trick_key(maker *m, const char *own, int what)
{
    char key[80];
    int i;

    snprintf(key, sizeof key, "%s", own);
    switch (what) {
    case MISSING: maker_remove_pair(m, key); break;
    case A_TEXT: maker_text(m, key, "17"); break;
    case A_BOOL: maker_bool(m, key, 1); break;
    case A_FLOAT: maker_f32(m, key, 2.5f); break;
    case A_NEGATIVE: maker_put_number(&maker_pair_of(m, key, 5)->value, 0xffffffffu, 4); break;
    case A_LONG: maker_u64(m, key, UINT64_C(0x8000000000000000)); break;
    default:
        for (maker_array(m, key, 4, what == A_LIST ? 3 : 2), i = 0; i < (what == A_LIST ? 3 : 2); i++)
            maker_put_number(&maker_find_pair(m, key)->value, i == 1 ? 48 : 32, 4);
    }
}

static void trick_tensor(maker *m, maker_tensor *t, int what)
{
    const uint64_t first = t->shape[0];

    switch (what) {
    case ABSENT:
        free(t->data.data);
        memmove(t, t + 1, (size_t)(m->tensor + --m->tensors - t) * sizeof *t);
        memset(&m->tensor[m->tensors], 0, sizeof *t);
        break;
    case RENAMED: snprintf(t->name, sizeof t->name, "blk.1.what.weight"); break;
    case TURNED:
        t->shape[0] = t->dimensions > 1 ? t->shape[1] : first;
        t->shape[1] = t->dimensions > 1 ? first : t->shape[1];
        break;
    case WIDER: t->shape[0] *= 2; break;
    case NARROWER: t->shape[0] = first > 1 ? first / 2 : 3; break;
    case FLAT:
        t->shape[0] *= t->dimensions > 1 ? t->shape[1] : 1;
        t->dimensions = 1;
        break;
    case DEEPER:
        t->shape[t->dimensions] = 2;
        t->dimensions++;
        break;
    case HALVED: t->shape[t->dimensions - 1] = t->shape[t->dimensions - 1] > 1 ? t->shape[t->dimensions - 1] / 2 : 3; break;
    case ZERO: t->shape[t->dimensions - 1] = 0; break;
    case VAST: t->shape[t->dimensions - 1] = UINT64_C(1) << 61; break;
    case OTHER_TYPE: t->type = 1; break;
    case NO_TYPE: t->type = 99; break;
    default: t->type = 8;
    }
}

/* Trick number `number` on a model. Returns whether there are so many; *name: what it is about. */
static int trick(maker *m, const maker_recipe *r, int number, char *name, size_t size)
{
    char key[80];
    int i, own;

    for (i = 0; i < m->pairs; i++) {
        maker_pair *p = &m->pair[i];

        if (!is_own(p, r))
            continue;
        own = p->type == 9 ? LIST_TRICKS : p->type == 6 ? COUNT(floats) : COUNT(integers);
        if (number >= own + KEY_TRICKS) {
            number -= own + KEY_TRICKS;
            continue;
        }
        snprintf(key, sizeof key, "%s", p->key);
        snprintf(name, size, "%s, %d", key, number);
        if (number >= own)
            trick_key(m, key, number - own);
        else if (p->type == 9)
            trick_list(p, number);
        else if (p->type == 6)
            maker_f32(m, key, floats[number]);
        else
            maker_u32(m, key, integers[number]);
        return 1;
    }
    if (number < COUNT(keys) * (COUNT(integers) + KEY_TRICKS)) {
        const int each = COUNT(integers) + KEY_TRICKS, k = number / each;

        snprintf(key, sizeof key, "%s", maker_key(r, keys[k]));
        snprintf(name, size, "%s, %d", key, number % each);
        if (number % each < COUNT(integers))
            maker_u32(m, key, integers[number % each]);
        else
            trick_key(m, key, number % each - COUNT(integers));
        return 1;
    }
    number -= COUNT(keys) * (COUNT(integers) + KEY_TRICKS);
    if (number >= m->tensors * TENSOR_TRICKS)
        return 0;
    snprintf(name, size, "%s, %d", m->tensor[number / TENSOR_TRICKS].name, number % TENSOR_TRICKS);
    trick_tensor(m, &m->tensor[number / TENSOR_TRICKS], number % TENSOR_TRICKS);
    return 1;
}

/* Refuses a file with a sentence, or reads and runs it: a prompt, steps with trees, a rewound beginning. Returns whether it is read. */
static int load_and_run(const file *f, const char *name)
{
    static const int32_t tokens[9] = {40, 77, 261, 100, 41, 77, 261, 100, 41};
    const int32_t *more;
    specdec_config c;
    specdec *t = NULL;
    specdec_result result;
    size_t bytes = 0;
    void *block;
    int i, n;

    memset(&c, 0, sizeof c);
    c.target = source_of(f);
    c.context = 48;
    c.batch = 7;
    c.threads = 1;
    c.async = -1;
    c.weights_in_place = (int)(f->size >> 5 & 1);
    failure.text[0] = 0;
    result = specdec_memory_needed(&c, &bytes, &failure);
    if (!result && bytes > ROOM)
        return 1;
    block = result ? NULL : malloc(bytes ? bytes : 1);
    if (!result)
        result = specdec_init(&t, &c, block, bytes, &failure);
    if (result) {
        if (!failure.text[0] || t)
            fprintf(stderr, "%s: result %d, no sentence\n", name, (int)result);
        CHECK(failure.text[0] != 0 && !t);
        CHECK(result == SPECDEC_ERROR_FORMAT || result == SPECDEC_ERROR_UNSUPPORTED || result == SPECDEC_ERROR_ARGUMENT || result == SPECDEC_ERROR_MEMORY);
        free(block);
        return 0;
    }
    result = specdec_prompt_tokens(t, tokens, 9);
    for (i = 0; i < 4 && !result; i++) {
        result = specdec_step(t, &more, &n);
        if (i == 1 && !result)
            result = specdec_rewind(t, 5);
    }
    CHECK(result == SPECDEC_OK || result == SPECDEC_DONE || specdec_error_text(t)[0]);
    specdec_deinit(t);
    free(block);
    return 1;
}

/* Files of an architecture: with one trick each, every stride-th of them, from `from` on; then with two each, at random. */
static int try_architecture(const char *name, int from, int stride, int pairs, int *read)
{
    const maker_recipe r = recipe_of(name);
    static maker m;
    uint64_t state = check_seed() + strlen(name);
    char about[160], second[160];
    int i, all = 0, tried = 0, there = 1;
    file f;

    for (i = from; there; i += stride) {
        maker_begin(&m, &r);
        there = trick(&m, &r, i, about, sizeof about);
        f = finish(&m);
        if (there) {
            all = i + 1;
            *read += load_and_run(&f, about);
            tried++;
        }
        free(f.data);
    }
    for (i = 0; i < pairs && all; i++) {
        maker_begin(&m, &r);
        trick(&m, &r, (int)(maker_random(&state) % (unsigned)all), about, sizeof about);
        trick(&m, &r, (int)(maker_random(&state) % (unsigned)all), second, sizeof second);
        f = finish(&m);
        *read += load_and_run(&f, second);
        tried++;
        free(f.data);
    }
    return tried;
}

/* What must be refused, and in which words. */
static void test_named(void)
{
    static const struct { const char *architecture, *key; uint32_t value; const char *words; } rows[] = {
        {"gemma3n", ".altup.num_inputs", 1, "altup.num_inputs"}, {"gemma3n", ".altup.num_inputs", 1000000, "altup.num_inputs"},
        {"gemma3n", ".altup.num_inputs", 3, "altup_"}, {"gemma3n", ".altup.active_idx", 1, "altup.active_idx"},
        {"gemma3n", ".activation_sparsity_scale", 1, "activation_sparsity_scale"},
        {"qwen3moe", ".expert_used_count", 6, "expert_used_count"}, {"qwen3moe", ".expert_used_count", 0, "expert_used_count"},
        {"bailingmoe2", ".expert_group_count", 3, "expert_group_used_count"}, {"glm4moe", ".expert_group_used_count", 9, "expert_group_used_count"},
        {"lfm2", ".shortconv.l_cache", 0, "taps"}, {"lfm2", ".shortconv.l_cache", 1000000, "taps"},
        {"granitehybrid", ".ssm.group_count", 0, "share 0 keys"}, {"deepseek2", ".attention.kv_lora_rank", 0, "kv_lora_rank"},
        {"deepseek2", ".attention.kv_lora_rank", 0xffffffffu, "kv_lora_rank"}, {"gemma4", ".attention.shared_kv_layers", 3, "shared_kv_layers"},
        {"nemotron_h_moe", ".moe_latent_size", 17, "multiples of 16"}};
    static maker m;
    size_t i;

    TEST("what is wrong with a file of a new kind is said by name");
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const maker_recipe r = recipe_of(rows[i].architecture);
        file f;

        maker_begin(&m, &r);
        maker_u32(&m, maker_key(&r, rows[i].key), rows[i].value);
        f = finish(&m);
        CHECK(!load_and_run(&f, rows[i].key));
        if (!strstr(failure.text, rows[i].words))
            fprintf(stderr, "%s%s = %u: \"%s\" does not name %s\n", rows[i].architecture, rows[i].key, (unsigned)rows[i].value, failure.text, rows[i].words);
        CHECK(strstr(failure.text, rows[i].words) != NULL);
        free(f.data);
    }
}

int main(int argc, char **argv)
{
    const int quick = getenv("SPECDEC_QUICK") != NULL, stride = argc > 2 ? 1 << 20 : quick ? 37 : 1;
    int tried = 0, read = 0;
    size_t i;

    test_named();
    TEST("models of every architecture, wrong in one thing or two, are refused with a sentence, or are read and run");
    for (i = 0; i < maker_writers(); i++)
        if (argc < 2 || !strcmp(argv[1], specdec__architectures[i].name))
            tried += try_architecture(specdec__architectures[i].name, argc > 2 ? atoi(argv[2]) : quick ? (int)(i * 7 % 37) : 0, stride,
                                      argc > 2 ? 0 : quick ? 10 : 200, &read);
    printf("  %d files, of which %d are read\n", tried, read);
    CHECK(argc > 1 || tried >= 400);
    return check_report("test_trick_files");
}
