/* settings.h - where the settings of a text come from, the later over the earlier: the program's own, the model file's
   general.sampling.* keys, a saved text or a line of input, flags. Include it behind program.h. */
#ifndef SETTINGS_H
#define SETTINGS_H
#include <stddef.h>

typedef enum setting_kind { SETTING_REAL, SETTING_INTEGER, SETTING_SEED, SETTING_TEXT } setting_kind;

/* A setting, by all its names. */
typedef struct setting {
    const char *flag;
    const char *key;    /* behind general.sampling. in a file; NULL: it has none */
    const char *member; /* of a request in JSON; NULL: it has none */
    setting_kind kind;
    size_t at, size;    /* in specdec_settings */
    double low, high;
} setting;

#define SETTING(field) offsetof(specdec_settings, field), sizeof(((specdec_settings *)0)->field)

static const setting settings_table[] = {
    {"--temp", "temp", "temperature", SETTING_REAL, SETTING(sampling.temperature), 0, 1e6},
    {"--top-k", "top_k", "top_k", SETTING_INTEGER, SETTING(sampling.top_k), 0, 1 << 24},
    {"--top-p", "top_p", "top_p", SETTING_REAL, SETTING(sampling.top_p), 0, 1},
    {"--min-p", "min_p", "min_p", SETTING_REAL, SETTING(sampling.min_p), 0, 1},
    {"--repeat-penalty", "penalty_repeat", "repeat_penalty", SETTING_REAL, SETTING(sampling.repetition_penalty), 0, 1e6},
    {"--repeat-last-n", "penalty_last_n", "repeat_last_n", SETTING_INTEGER, SETTING(sampling.repetition_window), -1, 1 << 24},
    {"--seed", NULL, "seed", SETTING_SEED, SETTING(sampling.seed), 0, 0},
    {"--slide", NULL, NULL, SETTING_INTEGER, SETTING(slide), 0, 1 << 24},
    {"--special", NULL, NULL, SETTING_INTEGER, SETTING(show_special), 0, 1},
    {"--frequency-penalty", NULL, "frequency_penalty", SETTING_REAL, SETTING(sampling.frequency_penalty), -1e3, 1e3},
    {"--presence-penalty", NULL, "presence_penalty", SETTING_REAL, SETTING(sampling.presence_penalty), -1e3, 1e3},
    {"--dry-multiplier", NULL, "dry_multiplier", SETTING_REAL, SETTING(sampling.dry_multiplier), 0, 1e6},
    {"--dry-base", NULL, "dry_base", SETTING_REAL, SETTING(sampling.dry_base), 1, 1e6},
    {"--dry-allowed-length", NULL, "dry_allowed_length", SETTING_INTEGER, SETTING(sampling.dry_allowed_length), 1, 1 << 24},
    {"--dry-penalty-last-n", NULL, "dry_penalty_last_n", SETTING_INTEGER, SETTING(sampling.dry_window), -1, 1 << 24},
    {"--dry-breakers", NULL, NULL, SETTING_TEXT, SETTING(sampling.dry_breakers), 0, 0},
    {"--top-nsigma", "top_n_sigma", "top_n_sigma", SETTING_REAL, SETTING(sampling.top_n_sigma), -1, 1e6},
    {"--typical", "typ_p", "typical_p", SETTING_REAL, SETTING(sampling.typical_p), 0, 1},
    {"--xtc-probability", "xtc_probability", "xtc_probability", SETTING_REAL, SETTING(sampling.xtc_probability), 0, 1},
    {"--xtc-threshold", "xtc_threshold", "xtc_threshold", SETTING_REAL, SETTING(sampling.xtc_threshold), 0, 1},
    {"--dynatemp-range", NULL, "dynatemp_range", SETTING_REAL, SETTING(sampling.temperature_range), 0, 1e6},
    {"--dynatemp-exp", NULL, "dynatemp_exponent", SETTING_REAL, SETTING(sampling.temperature_exponent), 0, 1e3},
    {"--mirostat-ent", NULL, NULL, SETTING_REAL, SETTING(sampling.mirostat_tau), 0, 1e3},
    {"--mirostat-lr", "mirostat_eta", "mirostat_eta", SETTING_REAL, SETTING(sampling.mirostat_rate), 0, 1e3},
    {"--samplers", NULL, NULL, SETTING_TEXT, SETTING(sampling.samplers), 0, 0},
    {"--min-tokens", NULL, "min_tokens", SETTING_INTEGER, SETTING(min_tokens), 0, 1 << 24},
    {"--ignore-eos", NULL, NULL, SETTING_INTEGER, SETTING(ignore_end), 0, 1}};

/* The rows of flags that name models. */
#define MODEL_FLAGS(config) \
    {"-m", PROGRAM_TEXT, &(config)->target.path, "FILE", "the model: a GGUF file", 0, 0}, \
    {"-md", PROGRAM_TEXT, &(config)->draft.path, "FILE", "a small draft model with the same vocabulary, or a drafter made for the model", 0, 0}, \
    {"-mh", PROGRAM_TEXT, &(config)->heads.path, "FILE", \
     "heads trained for the model: an MLP speculator, Medusa, EAGLE-3", 0, 0}

/* Are the models there that a way to draft needs? Returns PROGRAM_GO_ON, or a status after saying which is not. */
static PROGRAM_UNUSED int settings_check_models(const specdec_config *config, int drafting)
{
    if (!config->target.path)
        return program_misused("-m is missing: which model?", "");
    if (drafting == SPECDEC_DRAFT_MODEL && !config->draft.path)
        return program_misused("--spec draft needs a draft model: -md", "");
    if (drafting == SPECDEC_DRAFT_HEADS && !config->heads.path)
        return program_misused("--spec heads needs heads: -mh", "");
    return PROGRAM_GO_ON;
}

/* The rows of the best-known samplers, in a configuration, and of all others. */
#define SAMPLING_FLAGS(config) \
    {"--top-k", PROGRAM_FIELD, config, "top_k", NULL, 0, 0}, \
    {"--top-p", PROGRAM_FIELD, config, "top_p", NULL, 0, 0}, \
    {"--min-p", PROGRAM_FIELD, config, "min_p", NULL, 0, 0}, \
    {"--repeat-penalty", PROGRAM_FIELD, config, "repetition_penalty", NULL, 0, 0}, \
    {"--repeat-last-n", PROGRAM_FIELD, config, "repetition_window", NULL, 0, 0}

#define SETTINGS_FLAGS(config) \
    {"--frequency-penalty", PROGRAM_FIELD, config, "frequency_penalty", NULL, 0, 0}, \
    {"--presence-penalty", PROGRAM_FIELD, config, "presence_penalty", NULL, 0, 0}, \
    {"--dry-multiplier", PROGRAM_FIELD, config, "dry_multiplier", NULL, 0, 0}, \
    {"--dry-base", PROGRAM_FIELD, config, "dry_base", NULL, 0, 0}, \
    {"--dry-allowed-length", PROGRAM_FIELD, config, "dry_allowed_length", NULL, 0, 0}, \
    {"--dry-penalty-last-n", PROGRAM_FIELD, config, "dry_window", NULL, 0, 0}, \
    {"--dry-breakers", PROGRAM_FIELD, config, "dry_breakers", NULL, 0, 0}, \
    {"--top-nsigma", PROGRAM_FIELD, config, "top_n_sigma", NULL, 0, 0}, \
    {"--typical", PROGRAM_FIELD, config, "typical_p", NULL, 0, 0}, \
    {"--xtc-probability", PROGRAM_FIELD, config, "xtc_probability", NULL, 0, 0}, \
    {"--xtc-threshold", PROGRAM_FIELD, config, "xtc_threshold", NULL, 0, 0}, \
    {"--dynatemp-range", PROGRAM_FIELD, config, "temperature_range", NULL, 0, 0}, \
    {"--dynatemp-exp", PROGRAM_FIELD, config, "temperature_exponent", NULL, 0, 0}, \
    {"--mirostat-ent", PROGRAM_FIELD, config, "mirostat_tau", NULL, 0, 0}, \
    {"--mirostat-lr", PROGRAM_FIELD, config, "mirostat_rate", NULL, 0, 0}, \
    {"--samplers", PROGRAM_FIELD, config, "samplers", NULL, 0, 0}, \
    {"--min-tokens", PROGRAM_FIELD, config, "min_tokens", NULL, 0, 0}, \
    {"--ignore-eos", PROGRAM_FIELD, config, "ignore_end", NULL, 0, 0}

#define SETTINGS_TEMPERATURE 1u /* the bit of the first row */

enum { SETTINGS = (int)(sizeof settings_table / sizeof *settings_table) };

/* Copies one setting. */
static void setting_copy(specdec_settings *to, const specdec_settings *from, const setting *s)
{
    memcpy((char *)to + s->at, (const char *)from + s->at, s->size);
}

static int setting_differs(const specdec_settings *a, const specdec_settings *b, const setting *s)
{
    return memcmp((const char *)a + s->at, (const char *)b + s->at, s->size) != 0;
}

/* Gives a setting that is no seed a value as llama.cpp's requests and files mean it: there a top-p of 0 leaves the best
   token alone, a top-k below 1 leaves all, and no temperature is below 0. Returns 0 when it is out of range. */
static int setting_put(specdec_settings *to, const setting *s, double value)
{
    const double whole = value > -2e9 && value < 2e9 ? (double)(long)value : value + 1;
    float real;
    int32_t integer;

    if (s->kind == SETTING_TEXT)
        return 0;
    if (value < 0 && (s->at == offsetof(specdec_settings, sampling.temperature) ||
                      s->at == offsetof(specdec_settings, sampling.top_k) ||
                      s->at == offsetof(specdec_settings, sampling.dry_window) ||
                      s->at == offsetof(specdec_settings, sampling.top_n_sigma)))
        value = 0;
    else if (s->kind == SETTING_INTEGER && !(whole >= value && whole <= value))
        return 0;
    if (!(value >= s->low && value <= s->high))
        return 0;
    if (s->at == offsetof(specdec_settings, sampling.top_p) && value < 1e-30)
        value = 1e-30;
    if (s->at == offsetof(specdec_settings, sampling.repetition_window) && value >= 0 && value < 1)
        to->sampling.repetition_penalty = 1; /* a window of none: no penalty */
    real = (float)value;
    integer = (int32_t)value;
    memcpy((char *)to + s->at, s->kind == SETTING_REAL ? (const void *)&real : (const void *)&integer, s->size);
    return 1;
}

/* Writes what a setting is. */
static void setting_print(FILE *file, const specdec_settings *settings, const setting *s)
{
    const char *at = (const char *)settings + s->at;
    float real;
    int32_t integer;
    uint64_t seed;

    if (s->kind == SETTING_REAL) {
        memcpy(&real, at, sizeof real);
        fprintf(file, "%g", (double)real);
    } else if (s->kind == SETTING_INTEGER) {
        memcpy(&integer, at, sizeof integer);
        fprintf(file, "%d", (int)integer);
    } else if (s->kind == SETTING_TEXT) {
        fprintf(file, "...");
    } else {
        memcpy(&seed, at, sizeof seed);
        fprintf(file, "%llu", (unsigned long long)seed);
    }
}

/* Which settings the command line has: a bit for each row of the table. */
static unsigned settings_given(const program_flag *flags)
{
    unsigned given = 0;
    int i;

    for (i = 0; i < SETTINGS; i++)
        given |= (unsigned)program_given(flags, settings_table[i].flag) << i;
    return given;
}

/* Copies those that are given. */
static void settings_take(specdec_settings *to, const specdec_settings *from, unsigned given)
{
    int i;

    for (i = 0; i < SETTINGS; i++)
        if (given >> i & 1)
            setting_copy(to, from, &settings_table[i]);
}

/* Takes mirostat from a file: 2, with the surprise of another key or, as in llama.cpp, 5 bits. Returns how many settings
   that is. */
static int settings_mirostat_from_file(specdec_settings *to, const specdec_gguf *gguf)
{
    specdec_gguf_value found;
    double kind, tau = 5;

    if (!specdec_gguf_find(gguf, "general.sampling.mirostat", &found))
        return 0;
    kind = specdec_gguf_real(&found, 0, &kind) ? kind : -1;
    if (!(kind >= 0 && kind <= 0) && !(kind >= 2 && kind <= 2)) {
        fprintf(stderr, "%s: the file's general.sampling.mirostat counts for nothing: 2 is all that is known here\n", program_name);
        return 0;
    }
    if (kind < 1)
        return 0;
    if (specdec_gguf_find(gguf, "general.sampling.mirostat_tau", &found) &&
        !(specdec_gguf_real(&found, 0, &tau) && tau > 0 && tau <= 1e3)) {
        fprintf(stderr, "%s: the file's general.sampling.mirostat_tau counts for nothing: no number that --mirostat-ent takes\n",
                program_name);
        tau = 5;
    }
    to->sampling.mirostat_tau = (float)tau;
    return 1;
}

/* Takes what the model's file recommends, and says what it cannot take. Returns how many settings that were. */
static int settings_from_file(specdec_settings *to, const specdec_gguf *gguf)
{
    specdec_gguf_value found;
    char key[64];
    double value;
    int i, taken = settings_mirostat_from_file(to, gguf);

    for (i = 0; i < SETTINGS; i++) {
        const setting *s = &settings_table[i];

        snprintf(key, sizeof key, "general.sampling.%s", s->key ? s->key : "");
        if (!s->key || !specdec_gguf_find(gguf, key, &found))
            continue;
        if (!found.is_array && specdec_gguf_real(&found, 0, &value) && setting_put(to, s, value))
            taken++;
        else
            fprintf(stderr, "%s: the file's %s counts for nothing: no number that %s takes\n", program_name, key, s->flag);
    }
    if (specdec_gguf_find(gguf, "general.sampling.sequence", &found) &&
        !(specdec_gguf_real(&found, 0, &value) && value >= 0 && value <= 0))
        fprintf(stderr, "%s: the file's general.sampling.sequence counts for nothing: there is no such sampling here\n", program_name);
    return taken;
}

/* Whether a setting changes which token is chosen. */
static int setting_acts(const specdec_settings *settings, const setting *s)
{
    const specdec_sampling *sampling = &settings->sampling;
    const float penalty = sampling->repetition_penalty;

    switch (s->at) {
    case offsetof(specdec_settings, sampling.temperature):
        return 1;
    case offsetof(specdec_settings, sampling.top_k):
        return sampling->temperature > 0 && sampling->top_k;
    case offsetof(specdec_settings, sampling.top_p):
        return sampling->temperature > 0 && sampling->top_p > 0 && sampling->top_p < 1;
    case offsetof(specdec_settings, sampling.min_p):
        return sampling->temperature > 0 && sampling->min_p > 0;
    case offsetof(specdec_settings, sampling.repetition_window):
        return penalty > 0 && (penalty < 1 || penalty > 1) && sampling->repetition_window;
    case offsetof(specdec_settings, sampling.repetition_penalty):
        return penalty > 0 && (penalty < 1 || penalty > 1);
    case offsetof(specdec_settings, sampling.top_n_sigma):
        return sampling->temperature > 0 && sampling->top_n_sigma > 0;
    case offsetof(specdec_settings, sampling.mirostat_tau):
        return sampling->temperature > 0 && sampling->mirostat_tau > 0;
    case offsetof(specdec_settings, sampling.typical_p):
        return sampling->temperature > 0 && sampling->typical_p > 0 && sampling->typical_p < 1;
    case offsetof(specdec_settings, sampling.xtc_probability):
    case offsetof(specdec_settings, sampling.xtc_threshold):
        return sampling->temperature > 0 && sampling->xtc_probability > 0;
    default:
        return 0;
    }
}

/* Says how tokens are chosen, as flags would, and on whose word. */
static PROGRAM_UNUSED void settings_tell(const specdec_settings *settings, const char *whose)
{
    int i;

    fprintf(stderr, "%s: %s", program_name, whose);
    for (i = 0; i < SETTINGS; i++)
        if (setting_acts(settings, &settings_table[i])) {
            fprintf(stderr, " %s ", settings_table[i].flag);
            setting_print(stderr, settings, &settings_table[i]);
        }
    fprintf(stderr, "%s\n", settings->sampling.temperature > 0 ? " (--temp 0: greedy)" : "");
}

/* Says which settings flags have changed. */
static PROGRAM_UNUSED void settings_tell_changes(const specdec_settings *before, const specdec_settings *after)
{
    int i;

    for (i = 0; i < SETTINGS; i++)
        if (setting_differs(before, after, &settings_table[i])) {
            fprintf(stderr, "%s: %s ", program_name, settings_table[i].flag);
            setting_print(stderr, after, &settings_table[i]);
            fprintf(stderr, " in place of the saved ");
            setting_print(stderr, before, &settings_table[i]);
            fprintf(stderr, "\n");
        }
}
#endif
